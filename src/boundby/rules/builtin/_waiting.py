"""The skeleton of the rules on waits: each says of which waits it speaks, in which words, and what to do about them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from boundby.attribution.regions import ROOT
from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.waits import Group, WaitKind, evidence, examples, groups, lines, saving, waits_of
from boundby.model.arrays import ranked
from boundby.model.records import dataclass
from boundby.rules.builtin._telling import around
from boundby.rules.rule import Match
from boundby.trace.vocabulary.cuda import plain_name

#: Keys of waits, and which of these each has.
Keys = tuple[list[str], Rows]
WHERE = (
    "To see which line waits: record with boundby profile, which marks it, or torch.cuda.set_sync_debug_mode('warn')"
)
MOST_LINES = 5
MOSTLY, NEARLY_ALL = 0.5, 0.9  # of the waits that were seen at a line


@dataclass(frozen=True)
class Words:
    """What one rule says of a group of waits, beside what all say."""

    title: str
    advice: tuple[str, ...]
    evidence: Mapping[str, object] = field(default_factory=dict)


def calls_of(context: RuleContext, rows: Rows) -> Keys:
    """The names of the calls that wait, as keys of groups."""
    numbers, of_row = ranked(context.calls.name[waits_of(context).call[rows]])
    return [plain_name(context.trace.names[number]) for number in numbers.tolist()], of_row


def matches(
    context: RuleContext,
    kind: WaitKind,
    keys: Callable[[RuleContext, Rows], Keys],
    words: Callable[[RuleContext, Group], Words],
    least: float = 1,
) -> Iterator[Match]:
    """Waits of one kind, alike ones (by their key) of a region together, if they come ``least`` times or more."""
    rows = waits_of(context).of_kind(kind)
    for group in groups(context, rows, *keys(context, rows)):
        if group.incidents < least:
            continue
        saving_ns, single = saving(context, group)
        told, at = words(context, group), lines(context, group)
        seen = {"lines": dict(itertools.islice(at.items(), MOST_LINES))} if at else {}
        where = () if at else context.program.pick((), torch=(WHERE,))
        yield Match(
            region=group.region,
            title=f"{told.title}{_at(at) or _outside(context, group)}",
            evidence={**told.evidence, **evidence(context, group), **single, **seen},
            saving_ns=saving_ns,
            advice=(*told.advice, *_together_advice(context, single), *where),
            examples=examples(context, group),
            instances=group.incidents,
        )


def _at(lines: Mapping[str, int]) -> str:
    """``, at loss (train.py:42)``: the line of most of the waits that were seen at one; empty where they are spread."""
    line, times = next(iter(lines.items()), ("", 0))
    share = times / max(sum(lines.values()), 1)
    return f", {'' if share >= NEARLY_ALL else 'mostly '}at {line}" if share >= MOSTLY else ""


def _outside(context: RuleContext, group: Group) -> str:
    """``, between "step *" and [DALI] Feed``: where waits in no range are; empty of others."""
    waits = waits_of(context)
    if group.region != ROOT or (waits.region[group.rows] != ROOT).any():
        return ""
    thread = context.calls.thread[waits.call[group.rows]].tolist()
    at = around(context, [(one,) for one in thread], waits.start_ns[group.rows], waits.held_ns[group.rows])
    return f", {at}" if at else ""


def _together_advice(context: RuleContext, single: Mapping[str, object]) -> tuple[str, ...]:
    """A line for waits that save something only together with others."""
    alone_ns = single.get("saving_alone_ns")
    if not isinstance(alone_ns, int) or alone_ns >= context.least_ns:
        return ()
    return ("Alone it saves little, since the next wait takes its place: remove the waits of this part together",)
