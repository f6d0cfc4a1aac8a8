"""Waits that a PyTorch operator makes, each with its rewrite."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.operator_syncs import EVERY
from boundby.rules.rule import Match, Remedy, Rule


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


def _remedies() -> tuple[Remedy, ...]:
    return tuple(
        Remedy(f"**{one.label}**: {one.remedy.text}", one.remedy.code, one.remedy.language, one.remedy.caution)
        for one in EVERY
    )


RULE = Rule(
    id="sync-operator",
    title="A PyTorch operator makes the host wait for the GPU",
    group="sync",
    picture="""
    host   launch launch |nonzero: waits for its size ....| launch launch
    GPU      [kernel ][kernel ][kernel ][count][8 B]               [kernel ]
                                                    ^^^^^^^^^^^^^^^ idle
    """,
    meaning="""
Some operators need an answer from the GPU before they can return: how many elements `nonzero` found, how many
values are distinct, what a scalar is. The host stops until everything launched before is done. Only then does
it launch again, and until that arrives the GPU has nothing to do: each wait drains the queue that the host had
built up.

Told by: operator ranges in the trace (`boundby profile --torch-ops`, nsys `--pytorch`, `emit_nvtx`), a blocking
CUDA call inside one, and time in which the GPU was idle because of it (the account's `sync`). The outermost
operator that is known names the finding: `x[mask]` runs `nonzero`, but it is the index that has to change.

The saving is replayed without these waits alone. Where that is next to nothing, because the next wait takes
their place, the high end says what they cost once all other waits are gone.
""",
    remedies=_remedies(),
    disproof="""
Remove one of the calls named under the finding (or replace its result by a constant) and capture again: if the
step takes as long as before, the GPU had other reasons to be idle. A wait that is followed by no gap is not
reported.
""",
    check=check,
    needs=("cuda_api", "kernels"),
    see_also=("sync-readback", "sync-call", "sync-pageable-copy"),
    references={
        "PyTorch: performance tuning guide, avoid unnecessary CPU-GPU synchronization": (
            "https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
        "PyTorch: torch.cuda.set_sync_debug_mode": (
            "https://pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html"
        ),
    },
)
