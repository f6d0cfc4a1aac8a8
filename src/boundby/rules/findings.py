"""Run every rule over one trace; fold, rank and cut what they find."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from boundby.evidence.context import WORTH_SHARE, CannotCheckError, RuleContext
from boundby.evidence.host_idleness import behind_input
from boundby.evidence.pace import external_pace
from boundby.model import stage
from boundby.model.errors import OutOfBoundsError
from boundby.model.expressions import expression
from boundby.model.scale import A_FEW_LINES, NOTABLE, SLIGHT
from boundby.model.units import duration
from boundby.results.report import SEVERITIES, Finding, NotChecked
from boundby.rules import remedies
from boundby.rules.rule import DATA, GROUPS, Match, Rule

# Shares of the window from which a saving is of high and of medium severity.
HIGH_SHARE, MEDIUM_SHARE = NOTABLE, SLIGHT
MOST_EXAMPLES = A_FEW_LINES
# What these speak of is sure to save nothing where processes that make the input set the pace.
BEHIND_INPUT = ("gpu_compute", "gpu_copy", "cuda_api", "sync", "streams")
_MOOT = "what is on record says nothing of how the program runs"
_FIGURES = expression(r"[\d.,]+")


class Findings(Struct, frozen=True):
    """``found``: best saving first, notes last. ``not_checked``: which could not check, and why. ``checked``: how many
    rules looked and had what they need."""

    found: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    checked: int


def find(
    context: RuleContext, rules: Iterable[Rule], disabled: Collection[str] = (), *, is_moot: bool = False
) -> Findings:
    """Run the rules, but for the ``disabled`` ids; none where what is on record says nothing of how the
    program runs (``is_moot``). A rule that fails, or for which there is no time left, is one that
    could not check: no rule brings an analysis down."""
    if is_moot:
        looked_for = sorted(rule.id for rule in rules if rule.id not in disabled)
        return Findings((), tuple(NotChecked(rule, _MOOT, could_matter=False) for rule in looked_for), 0)
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    checked = 0
    spoken: set[str] = set()  # groups
    for rule in sorted(rules, key=lambda rule: (rule.is_last, rule.id)):
        if rule.id in disabled:
            continue
        try:
            stage.check()
            new = [finding for finding in check(context, rule) if not (rule.is_last and rule.group in spoken)]
            findings += new
            spoken |= {rule.group for finding in new if finding.severity != "note" and is_worth(context, finding)}
            checked += 1
        except (Exception, SystemExit) as error:  # a rule of another package may try to end the program
            not_checked.append(NotChecked(rule.id, _why_not(error), could_matter=_could_matter(context, rule)))
    worth_telling = [finding for finding in findings if finding.severity == "note" or is_worth(context, finding)]
    return Findings(_named(sorted(_folded(worth_telling), key=rank)), tuple(not_checked), checked)


def _named(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each with an id that is the same in every run of a program: rule and region, and of several there a number, in
    the order of their titles without figures."""
    ordered = list(findings)
    ids: dict[int, str] = {}
    taken: dict[str, int] = {}
    for place in sorted(range(len(ordered)), key=lambda place: (_FIGURES.sub("", ordered[place].title), place)):
        item = ordered[place]
        base = f"{item.rule}@{'/'.join(item.region)}" if item.region else item.rule
        taken[base] = taken.get(base, 0) + 1
        ids[place] = base if taken[base] == 1 else f"{base}#{taken[base]}"
    return tuple(replace(item, id=ids[place]) for place, item in enumerate(ordered))


def is_worth(context: RuleContext, finding: Finding) -> bool:
    """Whether it may save what is worth telling."""
    return finding.saving_ns is None or finding.saving_ns[1] >= context.least_ns


def check(context: RuleContext, rule: Rule) -> list[Finding]:
    """What one rule finds. Raises CannotCheckError where the trace lacks what it needs."""
    missing = [DATA.get(name, name) for name in rule.needs if not _has(context, name)]
    if missing:
        raise CannotCheckError(f"the trace holds no {' and no '.join(missing)}")
    findings = [(match, _finding(context, rule, match)) for match in rule.check(context)]
    # What knows neither what it saves nor how severe it is, is nothing to tell.
    return [finding for match, finding in findings if (match.saving_ns, match.severity) != (None, None)]


def _has(context: RuleContext, name: str) -> bool:
    """Whether the trace holds some kind of data. nsys writes no table for what did not happen: where CUDA was traced,
    no copies means that nothing was copied, and a rule that looks at copies has what it needs."""
    captured = context.trace.captured
    return bool(getattr(captured, name)) or (name == "memcpy" and captured.kernels)


def _could_matter(context: RuleContext, rule: Rule) -> bool:
    """Whether what the rule looks for could be worth telling at all, by the account."""
    if not context.timeline.devices:  # without GPU work all time is the host's
        return rule.group == "host"
    causes = GROUPS[rule.group].causes
    return not causes or sum(context.time_ns(cause) for cause in causes) >= WORTH_SHARE * context.window_ns


def _why_not(error: BaseException) -> str:
    """Why a rule could not check."""
    if isinstance(error, OutOfBoundsError):
        return f"{error.because}: look at a part, with --window"
    return str(error) if isinstance(error, CannotCheckError) else failure(error)


def failure(error: BaseException) -> str:
    """``the rule failed: KeyError: 'x' (rules/my_rule.py, line 12)``: one line, for whoever wrote the rule."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({'/'.join(Path(frames[-1].filename).parts[-2:])}, line {frames[-1].lineno})" if frames else ""
    return f"the rule failed: {one_line(error)}{place}"


def one_line(error: BaseException) -> str:
    """``KeyError: 'x'``, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


def _finding(context: RuleContext, rule: Rule, match: Match) -> Finding:
    evidence, title, saving, asked = dict(match.evidence), match.title, match.saving_ns, match.severity
    if saving is not None:
        evidence["saving_by"] = "replay" if context.is_replayed else "account"
        saving = _within_cost(context, match, saving)
        if rule.group in BEHIND_INPUT and (behind := behind_input(context)):
            title, saving = f"{title}{behind}", (0, saving[1])
        if (pace := external_pace(context)) is not None:
            title = f"{title} (less of it saves nothing: work arrives every {duration(pace.period_ns)})"
            saving, asked = None, "note"
    severity = _severity(context, match, saving, asked)
    row = remedies.by_key()[match.remedy] if match.remedy else remedies.of_rule(rule.id)
    facts = {**remedies.common_facts(context.trace, is_python=context.program.is_python), **match.facts}
    examples = sorted(match.examples, key=lambda item: (-item.duration_ns, item.start_ns, item.what))[:MOST_EXAMPLES]
    return Finding(
        rule=rule.id,
        severity=severity,
        title=title,
        region=None if match.region is None else context.path(match.region),
        evidence=evidence,
        saving_ns=None if severity == "note" and saving == (0, 0) else saving,
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


def _within_cost(context: RuleContext, match: Match, saving: tuple[int, int]) -> tuple[int, int]:
    """No more than what the match speaks of costs, in order."""
    low, high = sorted(max(int(value), 0) for value in saving)
    most = context.longest_window_ns if match.cost_ns is None else min(match.cost_ns, context.longest_window_ns)
    return min(low, most), min(high, most)


def _severity(context: RuleContext, match: Match, saving: tuple[int, int] | None, asked: str | None) -> str:
    """As the rule says, else by the saving."""
    severity = severity_of(saving, context.longest_window_ns) if asked is None else asked
    # A share of the account is less sure than a replay.
    if asked is None and severity == "high" and (match.is_unsure or not context.is_replayed):
        severity = "medium"
    # Whatever a rule thinks of its remedy: what may save a tenth of the window is not low.
    if severity == "low" and saving is not None and saving[1] >= HIGH_SHARE * context.longest_window_ns:
        severity = "medium"
    if severity not in SEVERITIES:
        raise ValueError(f"{severity!r} is not a severity")
    return severity


def _folded(findings: Iterable[Finding]) -> list[Finding]:
    """One of several that say the same of the same place: the one that saves most."""
    best: dict[tuple[object, ...], Finding] = {}
    for item in findings:
        key = (item.rule, item.region, item.title)
        if key not in best or rank(item) < rank(best[key]):
            best[key] = item
    return list(best.values())


def severity_of(saving: tuple[int, int] | None, window_ns: int) -> str:
    """By the middle of the range: its high end alone may be far from sure."""
    if saving is None or window_ns == 0:
        return "low"
    share = (saving[0] + saving[1]) / 2 / window_ns
    return "high" if share >= HIGH_SHARE else "medium" if share >= MEDIUM_SHARE else "low"


def rank(finding: Finding) -> tuple[object, ...]:
    """Notes last; best saving first, of which the part that is sure counts twice."""
    low, high = finding.saving_ns or (0, 0)
    is_note = finding.severity == "note"
    severity = SEVERITIES.index(finding.severity)
    return is_note, -(2 * low + high), severity, finding.rule, finding.region or (), finding.title
