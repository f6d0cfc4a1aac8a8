"""The skeleton of the rules on waits: each says of which waits it speaks, in which words, and what to do about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.waits import Group, WaitKind, evidence, examples, groups, saving, waits_of
from boundby.model.arrays import ranked
from boundby.model.records import dataclass
from boundby.rules.rule import Match
from boundby.trace.vocabulary.cuda import plain_name

#: Keys of waits, and which of these each has.
Keys = tuple[list[str], Rows]


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
        told = words(context, group)
        yield Match(
            region=group.region,
            title=told.title,
            evidence={**told.evidence, **evidence(context, group), **single},
            saving_ns=saving_ns,
            advice=(*told.advice, *_together_advice(context, single)),
            examples=examples(context, group),
            instances=group.incidents,
        )


def _together_advice(context: RuleContext, single: Mapping[str, object]) -> tuple[str, ...]:
    """A line for waits that save something only together with others."""
    alone_ns = single.get("saving_alone_ns")
    if not isinstance(alone_ns, int) or alone_ns >= context.least_ns:
        return ()
    return ("Alone it saves little, since the next wait takes its place: remove the waits of this part together",)
