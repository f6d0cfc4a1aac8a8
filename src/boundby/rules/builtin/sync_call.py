"""Explicit waits, and blocking copies of more than a value: what no more specific rule speaks of."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.rules.rule import Match, Rule
from boundby.trace.vocabulary.cuda import plain_name

_ADVICE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Memcpy",
        (
            "Copy with cudaMemcpyAsync from pinned memory, on a stream of its own, and wait for an event only where "
            "the data are used",
        ),
    ),
    (
        "EventSynchronize",
        (
            "Let the stream wait, not the host: cudaStreamWaitEvent(stream, event), event.wait() in PyTorch; "
            "or wait one step later, when the event is long done",
        ),
    ),
    (
        "StreamSynchronize",
        (
            "Order streams with events (cudaStreamWaitEvent) instead of waiting on the host, and read results one step "
            "later",
        ),
    ),
    (
        "",
        (
            "Remove the wait, or move it out of the loop: work on one stream is in order without it. Take times with "
            "events, not with a synchronization in every step",
        ),
    ),
)


_WHERE = "To see which line waits: torch.cuda.set_sync_debug_mode('warn'), or capture with boundby profile --torch-ops"


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    rows = waits.of_kind(_waits.CALL)
    names, call_name = context.timeline.trace.names, context.timeline.calls.name
    keys = [plain_name(names[number]) for number in call_name[waits.call[rows]].tolist()]
    for group in _waits.groups(context, waits, rows, keys):
        saved, told = _waits.saving(context, waits, group)
        yield Match(
            region=group.region,
            title=f"{group.key} makes the host wait {_waits.costs(group)}",
            evidence={**_waits.evidence(context, waits, group), **told},
            saving_ns=saved,
            advice=(
                *next(lines for part, lines in _ADVICE if part in group.key),
                *((_WHERE,) if _waits.is_python(context) else ()),
                *_waits.together_advice(context, told),
            ),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
        )


RULE = Rule(
    id="sync-call",
    title="The host waits for the GPU in explicit calls, and the GPU runs dry",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
