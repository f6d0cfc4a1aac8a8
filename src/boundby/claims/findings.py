"""Findings: what rules matched, as claims that the laws let stand; folded, cut to what is worth telling, and ranked."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from boundby.claims.laws import Claim, ClaimedSaving, Wholes, wholes
from boundby.evidence.context import WORTH_SHARE, RuleContext
from boundby.evidence.host_idleness import behind_input, external_pace
from boundby.model.errors import OutOfTimeError
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, NOTABLE, SLIGHT
from boundby.model.units import duration
from boundby.results.report import SEVERITIES, Finding, NotChecked
from boundby.rules import remedies
from boundby.rules.matches import look
from boundby.rules.rule import Match, Rule

# Shares of the window from which a saving is of high and of medium severity.
HIGH_SHARE, MEDIUM_SHARE = NOTABLE, SLIGHT
MOST_EXAMPLES = A_FEW_LINES
# What these speak of is sure to save nothing where processes that make the input set the pace.
BEHIND_INPUT = ("gpu_compute", "gpu_copy", "cuda_api", "sync", "streams")
_FIGURES = expression(r"[\d.,]+")


class Findings(Struct, frozen=True):
    """``found``: best saving first, notes last. ``not_checked`` and ``checked``: as `Matches` has them."""

    found: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    checked: int


class _Judged(Struct, frozen=True):
    """What a match comes to. ``beside``: why its saving is not what it looks like, behind its title."""

    saving: ClaimedSaving | None
    severity: str
    beside: str = ""


def find(
    context: RuleContext,
    rules: Iterable[Rule],
    disabled: Collection[str] = (),
    *,
    limits: Wholes | None = None,
    is_moot: bool = False,
) -> Findings:
    """What the rules find (`look` runs them). ``limits``: what no claim may pass; None: it is worked out."""
    with contextlib.suppress(OutOfTimeError):  # judging asks for both, also where rules have used up the time
        external_pace(context), behind_input(context)
    looked = look(context, rules, disabled, is_moot=is_moot)
    limits = limits or wholes(context.devices, context.what_if, context.regions)
    findings: list[Finding] = []
    spoken = set[str]()  # groups
    for rule, match in looked.matched:
        judged = None if rule.is_last and rule.group in spoken else _judged(context, rule, match, limits)
        if judged is not None:
            findings.append(_finding(context, rule, match, judged))
            if judged.severity != "note" and not rule.is_last:
                spoken.add(rule.group)
    return Findings(_named(sorted(_folded(findings), key=rank)), looked.not_checked, looked.checked)


def _judged(context: RuleContext, rule: Rule, match: Match, limits: Wholes) -> _Judged | None:
    """The saving as the laws let it stand; None: it is not worth telling."""
    if match.saving_ns is None:
        return _Judged(None, match.severity or "low")
    region = None if match.region is None else context.path(match.region)
    if (pace := external_pace(context)) is not None:
        period = duration(pace.period_ns)
        return _Judged(None, "note", f" (shortening this saves nothing, since work arrives every {period})")
    saving = _within_cost(context, match, match.saving_ns)
    if beside := _behind(context, rule):
        saving = ClaimedSaving(0, saving.high_ns)
    closed = limits.closed(Claim(rule.id, rule.takes, saving, region))
    if not _is_worth(context, match, saving, closed, limits):
        return None
    severity = _severity(
        context,
        match,
        closed,
        is_narrowed=closed != saving,
        is_told=limits.is_told,
        is_elsewhere=_is_elsewhere(_row(rule, match)),
    )
    return _Judged(None if severity == "note" and closed == (0, 0) else closed, severity, beside)


def _behind(context: RuleContext, rule: Rule) -> str:
    """Why nothing that the rule speaks of saves anything as long as the input sets the pace; empty: it may."""
    return behind_input(context) or "" if rule.group in BEHIND_INPUT else ""


def _is_worth(context: RuleContext, match: Match, saving: ClaimedSaving, closed: ClaimedSaving, limits: Wholes) -> bool:
    """Whether it is worth telling, and what it is a part of."""
    is_told = match.severity == "note" or saving.high_ns >= context.least_ns
    return is_told and not closed.high_ns < WORTH_SHARE * limits.longest_ns <= saving.high_ns


def _within_cost(context: RuleContext, match: Match, saving: tuple[int, int]) -> ClaimedSaving:
    """No more than what the match speaks of costs, in order."""
    low, high = sorted(max(int(value), 0) for value in saving)
    most = context.longest_window_ns if match.cost_ns is None else min(match.cost_ns, context.longest_window_ns)
    return ClaimedSaving(min(low, most), min(high, most))


def _severity(
    context: RuleContext, match: Match, saving: ClaimedSaving, *, is_narrowed: bool, is_told: bool, is_elsewhere: bool
) -> str:
    """As the rule says, but for what is left of its saving; else by the saving. Low where another run saves it."""
    if is_elsewhere and match.severity != "note":
        return "low"
    severity = by_saving = _severity_of(saving, context.longest_window_ns)
    is_sure = is_told  # nothing is where no verdict names a cause
    if match.severity is not None:
        severity = max(match.severity, by_saving, key=SEVERITIES.index) if is_narrowed else match.severity
    else:  # a share of the account is less sure than a replay
        is_sure &= context.is_replayed and not match.is_unsure
    if severity == "high" and not is_sure:
        severity = "medium"
    # Whatever a rule thinks of its remedy: what may save this run a tenth of its window is not low.
    is_large = saving.high_ns >= HIGH_SHARE * context.longest_window_ns
    return "medium" if severity == "low" and is_large else severity


def _row(rule: Rule, match: Match) -> remedies.Remedy | None:
    """The row of the table that tells what to do about it."""
    return remedies.by_key()[match.remedy] if match.remedy else remedies.of_rule(rule.id)


def _is_elsewhere(row: remedies.Remedy | None) -> bool:
    """Whether what it saves this run does not save."""
    return row is not None and bool(row.elsewhere)


def _severity_of(saving: ClaimedSaving, window_ns: int) -> str:
    """By the middle of the range: its high end alone may be far from sure."""
    middle_ns = (saving.low_ns + saving.high_ns) / 2
    if middle_ns == 0:
        return "low"
    return (
        "high" if middle_ns >= HIGH_SHARE * window_ns else "medium" if middle_ns >= MEDIUM_SHARE * window_ns else "low"
    )


def _finding(context: RuleContext, rule: Rule, match: Match, judged: _Judged) -> Finding:
    row = _row(rule, match)
    facts = {**remedies.common_facts(context.trace, context.program), **match.facts}
    examples = sorted(match.examples, key=lambda item: (-item.duration_ns, item.start_ns, item.what))[:MOST_EXAMPLES]
    saving_by = {"saving_by": "replay" if context.is_replayed else "account"}
    is_told = match.saving_ns is None or "saving_by" in match.evidence
    return Finding(
        rule=rule.id,
        severity=judged.severity,
        title=f"{match.title}{judged.beside}",
        region=None if match.region is None else context.path(match.region),
        evidence={**match.evidence, **({} if is_told else saving_by)},
        saving_ns=None if judged.saving is None else (judged.saving.low_ns, judged.saving.high_ns),
        advice=match.advice,
        docs=f"rules/{rule.id}",
        examples=tuple(examples),
        instances=match.instances,
        disproof=rule.disproof,
        remedy=row.key if row is not None else "",
        change=row.words(facts) if row is not None else "",
        code=match.code or (row.code(context.program, facts, is_of_amd=context.trace.is_of_amd) if row else ""),
        where=match.where,
    )


def _folded(findings: Iterable[Finding]) -> list[Finding]:
    """One of several that say the same of the same place: the one that saves most."""
    best: dict[tuple[object, ...], Finding] = {}
    for item in findings:
        key = (item.rule, item.region, item.title)
        if key not in best or rank(item) < rank(best[key]):
            best[key] = item
    return list(best.values())


def _named(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each with an id that is the same in every run of a program: rule and region, and of several there a number, in
    the order of their titles without figures."""
    ordered = list(findings)
    ids: dict[int, str] = {}
    taken: dict[str, int] = {}
    for place in sorted(range(len(ordered)), key=lambda number: (_FIGURES.sub("", ordered[number].title), number)):
        item = ordered[place]
        base = f"{item.rule}@{'/'.join(item.region)}" if item.region else item.rule
        taken[base] = taken.get(base, 0) + 1
        ids[place] = base if taken[base] == 1 else f"{base}#{taken[base]}"
    return tuple(replace(item, id=ids[index]) for index, item in enumerate(ordered))


def rank(finding: Finding) -> tuple[object, ...]:
    """Notes last; what saves this run most first, of which the part that is sure counts twice."""
    is_elsewhere = _is_elsewhere(remedies.by_key().get(finding.remedy))
    low, high = finding.saving_ns or (0, 0)
    is_note = finding.severity == "note"
    severity = SEVERITIES.index(finding.severity)
    saved_ns = -(2 * low + high)
    return is_note, is_elsewhere, saved_ns, severity, finding.rule, finding.region or (), finding.title
