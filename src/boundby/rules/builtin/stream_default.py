"""The legacy default stream makes all other streams take turns with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import device_work, kernel_name, place_of
from boundby.model.intervals import Coverage, union
from boundby.model.units import count, duration
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind, StreamRole
from boundby.trace.vocabulary.cuda import plain_name

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# CUPTI's number of the default stream of a process's first context, and what nsys writes where there is none.
DEFAULT_STREAMS = (0, 7)
# An operation that starts within this time of another's end was let go by it.
RELEASE_NS = 6_000
# Held up for less than this it would have taken as long to arrive.
LEAST_HOLD_NS = 10_000
# The default stream serialises only if the two sides (nearly) never run at once.
MOST_OVERLAP = 0.01


@dataclass(frozen=True)
class Held:
    """Operations that were launched and free to run on their own stream, and began when the other side ended."""

    rows: npt.NDArray[np.intp]
    held_ns: Int
    sides_ns: tuple[int, int]  # busy time of the default stream and of all others


def _held(context: RuleContext, device: int, process: int) -> Held | None:
    """None where there are not both sides, or where they do run at once."""
    timeline = context.timeline
    table, calls = timeline.trace.operations, timeline.calls
    work = device_work(context)
    mine = np.flatnonzero(
        (table.device == device) & (table.process == process) & work.in_window & (table.kind != OpKind.MIGRATION)
    )
    default, independent = _roles(context, process, table.stream[mine])
    mine, default = mine[~independent], default[~independent]
    if not default.any() or default.all():
        return None
    sides = [union(table.start_ns[mine[side]], table.end_ns[mine[side]]) for side in (default, ~default)]
    together = int(Coverage(sides[0]).within(sides[1].start, sides[1].end).sum())
    if together > MOST_OVERLAP * min(side.total for side in sides):
        return None
    order = np.lexsort((table.end_ns[mine], table.start_ns[mine], table.stream[mine]))
    before = np.full(len(mine), np.iinfo(np.int64).min // 2, np.int64)
    same = table.stream[mine[order[1:]]] == table.stream[mine[order[:-1]]]
    before[order[1:]] = np.where(same, table.end_ns[mine[order[:-1]]], before[order[1:]])
    call = timeline.calls.of_operation[mine]
    launched = np.where(call >= 0, calls.start_ns[np.maximum(call, 0)], table.start_ns[mine])
    ready = np.maximum(launched, before)
    released = np.zeros(len(mine), np.int64)
    for side, others in ((default, sides[1]), (~default, sides[0])):
        place = np.searchsorted(others.end, table.start_ns[mine[side]], side="right") - 1
        released[side] = np.where(place >= 0, others.end[np.maximum(place, 0)], np.iinfo(np.int64).min // 2)
    start = table.start_ns[mine]
    chosen = (call >= 0) & (start - released <= RELEASE_NS) & (released - ready >= LEAST_HOLD_NS)
    return Held(mine[chosen], (released - ready)[chosen], (sides[0].total, sides[1].total))


def _roles(context: RuleContext, process: int, stream: Int) -> tuple[Bool, Bool]:
    """Masks of work on the default stream, and on streams that do not wait for it."""
    told = context.trace.streams
    mine = told.process == process
    null = told.stream[mine & (told.kind == StreamRole.NULL)]
    independent = told.stream[mine & (told.kind == StreamRole.INDEPENDENT)]
    return np.isin(stream, null if len(null) else DEFAULT_STREAMS), np.isin(stream, independent)


def _check(context: RuleContext) -> Iterator[Match]:
    timeline = context.timeline
    if not len(timeline.calls):
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing tells when an operation was launched")
    trace = timeline.trace
    names = np.array([plain_name(name).endswith("StreamWaitEvent") for name in trace.names] or [False], bool)
    waits = int(names[trace.api.name].sum())
    for device in context.timeline.devices:
        for process in np.unique(device.operations.table.process).tolist():
            held = _held(context, device.index, process)
            if held is None or len(held.rows) < RULE.threshold(context, "count_least") or waits >= len(held.rows) / 2:
                continue  # explicit waits for events explain as much
            total = int(held.held_ns.sum())
            most = min(total, *held.sides_ns)
            if most < max(context.least_ns, RULE.threshold(context, "share_fraction") * context.longest_window_ns):
                continue
            yield Match(
                region=place_of(context, held.rows),
                title=f"the default stream and the others take turns: {count(len(held.rows))} operations held up, "
                f"{duration(total)} in all",
                evidence={
                    "count": len(held.rows),
                    "held_ns": total,
                    "default_stream_busy_ns": held.sides_ns[0],
                    "other_streams_busy_ns": held.sides_ns[1],
                    "stream_wait_event_calls": waits,
                },
                saving_ns=(0, most),
                advice=(
                    "Put no work on the default stream beside others: torch.cuda.stream(s) for all of it, or "
                    "compile with "
                    "nvcc --default-stream per-thread, or make the other streams with cudaStreamNonBlocking",
                    "What is gained depends on whether their kernels fit on the GPU together: test it",
                ),
                examples=_examples(context, held),
                instances=len(held.rows),
                severity="medium" if most >= 0.1 * context.longest_window_ns else None,
            )


def _examples(context: RuleContext, held: Held) -> tuple[Example, ...]:
    start = context.operations.start_ns
    found = []
    for place in np.lexsort((held.rows, -held.held_ns))[:3].tolist():
        row, held_ns = int(held.rows[place]), int(held.held_ns[place])
        found.append(Example(int(start[row]) - held_ns, held_ns, f"{_what(context, row)} held up"))
    return tuple(found)


def _what(context: RuleContext, row: int) -> str:
    table = context.operations
    name = kernel_name(context, row) if table.kind[row] == OpKind.KERNEL else OpKind(int(table.kind[row])).name.lower()
    return f"{name} on stream {table.stream[row]}"


RULE = Rule(
    id="stream-default",
    title="The default stream makes the others wait",
    group="streams",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("count_least", 20, "count", "Fewer can be chance."),
        Threshold("share_fraction", 0.03, "fraction of the window", "Below, it is not worth a change of streams."),
    ),
)
