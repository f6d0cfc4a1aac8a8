"""Small values copied to the host, for which it waits; where no operator range says who asked."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.rules.rule import Match, Rule


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    rows = waits.of_kind(_waits.READBACK)
    for group in _waits.groups(context, waits, rows, ["read"] * len(rows)):
        saved, told = _waits.saving(context, waits, group)
        yield Match(
            region=group.region,
            title=f"a value is read back to the host {_waits.costs(group)}",
            evidence={
                **_waits.evidence(context, waits, group),
                **told,
            },
            saving_ns=saved,
            advice=_advice(context) + _waits.together_advice(context, told),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
        )


def _advice(context: RuleContext) -> tuple[str, ...]:
    if not _waits.is_python(context):
        return (
            "Keep the value on the device, or read it one step later: copy it asynchronously into pinned memory, "
            "record an event, launch the next step, then look",
        )
    return (
        "Keep the value on the device and read it once every N steps: no .item(), float(t), if t: or print(t) in the "
        "step; torch.where in place of a branch",
        "To see which line asks: torch.cuda.set_sync_debug_mode('warn'), or capture with boundby profile --torch-ops",
    )


RULE = Rule(
    id="sync-readback",
    title="Single values are read back to the host, which waits for each",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
