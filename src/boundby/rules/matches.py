"""Run every rule over one trace: what they match, and which could not check. What it saves the claims say."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct

from boundby.evidence.context import WORTH_SHARE, CannotCheckError, RuleContext
from boundby.model import stage
from boundby.model.errors import OutOfBoundsError
from boundby.results.report import NotChecked
from boundby.rules.rule import DATA, GROUPS, Match, Rule

_MOOT = "the recording does not show how the program runs"


class Matches(Struct, frozen=True):
    """``matched``: rule by rule, those that speak last behind the others. ``not_checked``: which could not check, and
    why. ``checked``: how many rules looked and had what they need."""

    matched: tuple[tuple[Rule, Match], ...]
    not_checked: tuple[NotChecked, ...]
    checked: int


def look(
    context: RuleContext, rules: Iterable[Rule], disabled: Collection[str] = (), *, is_moot: bool = False
) -> Matches:
    """Run the rules, but for the ``disabled`` ids; none where what is on record says nothing of how the
    program runs (``is_moot``). A rule that fails, or for which there is no time left, is one that
    could not check: no rule brings an analysis down."""
    asked = sorted((rule for rule in rules if rule.id not in disabled), key=lambda rule: (rule.is_last, rule.id))
    if is_moot:
        return Matches(
            (),
            tuple(NotChecked(rule_id, _MOOT, could_matter=False) for rule_id in sorted(rule.id for rule in asked)),
            0,
        )
    matched: list[tuple[Rule, Match]] = []
    not_checked: list[NotChecked] = []
    for rule in asked:
        outcome = _tried(context, rule)
        if isinstance(outcome, NotChecked):
            not_checked.append(outcome)
        else:
            matched += [(rule, match) for match in outcome]
    return Matches(tuple(matched), tuple(not_checked), len(asked) - len(not_checked))


def _tried(context: RuleContext, rule: Rule) -> list[Match] | NotChecked:
    try:
        stage.check()
        return check(context, rule)
    except (Exception, SystemExit) as error:  # a rule of another package may try to end the program
        return NotChecked(rule.id, _why_not(error), could_matter=_could_matter(context, rule))


def check(context: RuleContext, rule: Rule) -> list[Match]:
    """What one rule matches. Raises CannotCheckError where the trace lacks what it needs, and IndexError where a match
    is of no region that there is."""
    missing = [DATA.get(name, name) for name in rule.needs if not _has(context, name)]
    if missing:
        raise CannotCheckError(f"the trace holds no {' and no '.join(missing)}")
    # What knows neither what it saves nor how severe it is, is nothing to tell.
    matches = [match for match in rule.check(context) if (match.saving_ns, match.severity) != (None, None)]
    for match in matches:
        context.path(match.region or 0)
    return matches


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
    where = f" ({'/'.join(Path(frames[-1].filename).parts[-2:])}, line {frames[-1].lineno})" if frames else ""
    return f"the rule failed: {one_line(error)}{where}"


def one_line(error: BaseException) -> str:
    """``KeyError: 'x'``, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
