"""Explicit waits, and blocking copies of more than a value: what no more specific rule speaks of."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Remedy, Rule
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
    picture="""
    host   launch launch |cudaDeviceSynchronize ......|  own work   launch
    GPU      [kernel ][kernel                     ]                   [kernel ]
                                                    ^^^^^^^^^^^^^^^^^^ idle
    """,
    meaning="""
Launches return at once, so that the host can be far ahead of the device. A wait gives that lead away: the host
stands still until the device is done, and then the device stands still until the host has launched again. What
the two could have done at the same time, they do one after the other.

Told by: calls that wait (`cuda*Synchronize`, blocking copies) with GPU idle time behind them. A wait that costs
nothing, at the end of a program say, is not reported. Waits that a PyTorch operator makes, values read back,
allocations and pageable copies have rules of their own. Where memory is freed before the next launch, the
release would wait in their stead: such waits are not reported either.

The saving is replayed without these waits alone. Where that is next to nothing, because the next wait takes
their place, the high end says what they cost once all other waits are gone.
""",
    remedies=(
        Remedy(
            "Take the wait out. Work that is launched on one stream runs in order without it.",
            """
            for batch in loader:
                start = time.perf_counter()
                train_step(batch)
                torch.cuda.synchronize()                  # for the clock alone: costs the overlap in every step
                times.append(time.perf_counter() - start)

            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(); train_step(batch); end.record()   # read begin.elapsed_time(end) after the loop
            """,
        ),
        Remedy(
            "Order two streams on the device, not on the host.",
            """
            cudaEventRecord(produced, copy_stream);
            cudaStreamWaitEvent(compute_stream, produced, 0);   // the host goes on
            """,
            "cpp",
        ),
        Remedy(
            "If the host needs the result, let it lag a step: launch step n + 1, then wait for step n.",
            caution="results are one step old when looked at, and buffers must not be reused too early: keep two.",
        ),
    ),
    disproof="""
Comment the call out (or keep it only every 100th step) and capture again. If the step takes as long, the device
had no work that could have overlapped. If results become wrong, the wait stood for an order between streams:
use an event.
""",
    check=check,
    needs=("cuda_api", "kernels"),
    see_also=("sync-operator", "sync-readback", "sync-allocation", "sync-pageable-copy", "sync-polling"),
    references={
        "CUDA Runtime API: API synchronization behavior": (
            "https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html"
        )
    },
)
