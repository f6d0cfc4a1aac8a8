"""Waits that a PyTorch operator makes, each with its rewrite."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.operator_syncs import EVERY
from boundby.evidence.waits import Group, WaitKind, waits_of
from boundby.model.causes import Cause
from boundby.rules.builtin._waiting import Keys, Words, matches
from boundby.rules.rule import Match, Rule

_BY_KEY = {one.key: one for one in EVERY}
# Of the waits of a group so many are asked for the operator that the program itself called.
_MOST_NAMED = 1_000


def check(context: RuleContext) -> Iterator[Match]:
    if not context.operators.names:
        if len(waits_of(context).call) and context.program.is_torch:
            raise CannotCheckError("the trace holds no operator ranges: capture with boundby profile --torch-ops")
        return
    yield from matches(context, WaitKind.OPERATOR, _keys, _words)


def _keys(context: RuleContext, rows: Rows) -> Keys:
    return [operator.key for operator in EVERY], waits_of(context).operator[rows]


def _words(context: RuleContext, group: Group) -> Words:
    operator, operators = _BY_KEY[group.key], context.operators
    called = operators.outermost[waits_of(context).call[group.rows[:_MOST_NAMED]]]
    names = sorted({operators.names[number] for number in called.tolist() if number >= 0})
    return Words(
        f"{operator.label} makes the host wait {group.costs}",
        operator.advice,
        {"operator": ", ".join(names) or operator.label, "waits_because": operator.because},
    )


RULE = Rule(
    id="sync-operator",
    title="A PyTorch operator makes the host wait for the GPU",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
