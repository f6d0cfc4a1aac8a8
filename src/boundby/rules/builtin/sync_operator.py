"""Waits that a PyTorch operator makes, each with its rewrite."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.operator_syncs import EVERY
from boundby.model.causes import Cause
from boundby.rules.rule import Match, Rule


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    if not waits.operators.names:
        if len(waits.call) and _waits.is_python(context):
            raise CannotCheckError("the trace holds no operator ranges: capture with boundby profile --torch-ops")
        return
    known = {one.key: one for one in EVERY}
    rows = waits.of_kind(_waits.OPERATOR)
    keys = [found.key if (found := waits.operator[row]) is not None else "" for row in rows.tolist()]
    for group in _waits.groups(context, waits, rows, keys):
        operator = known[group.key]
        saved, told = _waits.saving(context, waits, group)
        innermost = sorted({name for row in group.rows[:1000].tolist() if (name := _outermost(waits, row))})
        yield Match(
            region=group.region,
            title=f"{operator.label} makes the host wait {_waits.costs(group)}",
            evidence={
                "operator": ", ".join(innermost) or operator.label,
                "waits_because": operator.because,
                **_waits.evidence(context, waits, group),
                **told,
            },
            saving_ns=saved,
            advice=(*operator.advice, *_waits.together_advice(context, told)),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
        )


def _outermost(waits: _waits.Waits, row: int) -> str | None:
    number = int(waits.operators.outermost[waits.call[row]])
    return waits.operators.names[number] if number >= 0 else None


RULE = Rule(
    id="sync-operator",
    title="A PyTorch operator makes the host wait for the GPU",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
