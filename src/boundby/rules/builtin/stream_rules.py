"""The rules on streams: the legacy default stream makes all others take turns with it, and threads that work side by
side launch onto one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import Bool, CannotCheckError, Int, Rows, RuleContext
from boundby.evidence.device_work import device_work, kernel_name
from boundby.model.arrays import is_even, pick, ranked, unique
from boundby.model.intervals import CoveredTime, union
from boundby.model.scale import HALF, MANY, NEGLIGIBLE, SLIGHT
from boundby.model.units import count, duration
from boundby.replay.streams import SWITCH_LIMIT_NS
from boundby.results.report import Example
from boundby.rules.builtin._operations import KernelSet, MatchedOperations
from boundby.rules.rule import MEASURED, Match, Rule
from boundby.trace.tables import OpKind, StreamRole
from boundby.trace.vocabulary.cuda import plain_name

# CUPTI's number of the default stream of a process's first context, and what nsys writes where there is none.
DEFAULT_STREAMS = (0, 7)
# The default stream serialises only if the two sides (nearly) never run at once.
MOST_OVERLAP = NEGLIGIBLE
# Explicit waits for events explain as much if there is one for so many operations.
WAITS_SHARE = HALF
_NEVER = np.iinfo(np.int64).min // 2


class Held(Struct, frozen=True):
    """Operations that were launched and free to run on their own stream, and began when the other side ended."""

    rows: Rows
    held_ns: Int
    sides_ns: tuple[int, int]  # busy time of the default stream and of all others


def _held(context: RuleContext, device: int, process: int) -> Held | None:
    """None where there are not both sides, or where they do run at once."""
    table, calls = context.operations, context.calls
    if is_even(table.stream):
        return None  # not both sides
    of_process = (table.device == device) & (table.process == process) & device_work(context).in_window
    rows = np.flatnonzero(of_process & (table.kind != OpKind.MIGRATION))
    default, independent = _roles(context, process, table.stream[rows])
    rows, default = rows[~independent], default[~independent]
    if not default.any() or default.all():
        return None
    start, end, stream = table.start_ns[rows], table.end_ns[rows], table.stream[rows]
    sides = [union(start[side], end[side]) for side in (default, ~default)]
    if not all(side.total for side in sides):
        return None  # what takes no time holds nobody up
    together = int(CoveredTime(sides[0]).within(sides[1].start, sides[1].end).sum())
    if together > MOST_OVERLAP * min(side.total for side in sides):
        return None
    order = np.lexsort((end, start, stream))
    before = np.full(len(rows), _NEVER, np.int64)  # the end of the operation before it on its stream
    before[order[1:]] = np.where(stream[order[1:]] == stream[order[:-1]], end[order[:-1]], _NEVER)
    call = calls.of_operation[rows]
    ready = np.maximum(np.where(call >= 0, calls.start_ns[np.maximum(call, 0)], start), before)
    released = np.zeros(len(rows), np.int64)  # the last end of the other side
    for side, others in ((default, sides[1]), (~default, sides[0])):
        position = np.searchsorted(others.end, start[side], side="right") - 1
        released[side] = np.where(position >= 0, others.end[np.maximum(position, 0)], _NEVER)
    held_ns = released - ready
    chosen = (call >= 0) & (start - released <= SWITCH_LIMIT_NS) & (held_ns >= LAUNCH_LIMIT_NS)
    return Held(rows[chosen], held_ns[chosen], (sides[0].total, sides[1].total))


def _roles(context: RuleContext, process: int, stream: Int) -> tuple[Bool, Bool]:
    """Masks of work on the default stream, and on streams that do not wait for it."""
    streams = context.trace.streams
    of_process = streams.process == process
    null = streams.stream[of_process & (streams.kind == StreamRole.NULL)]
    independent = streams.stream[of_process & (streams.kind == StreamRole.INDEPENDENT)]
    stream_ids, which = ranked(stream)
    default = np.isin(stream_ids, null if len(null) else DEFAULT_STREAMS)
    # Streams of PyTorch do not wait for the default stream; those of its libraries are on record, or taken for its own.
    independent = np.isin(stream_ids, independent) | (context.program.is_torch & ~of_process.any() & ~default)
    return pick(default, which, False), pick(independent, which, False)


def _default(context: RuleContext) -> Iterator[Match]:
    if not len(context.calls):
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing shows when an operation was launched")
    calls = context.trace.api.name
    waits = int(context.named(calls, lambda name: plain_name(name).endswith("StreamWaitEvent")).sum())
    worth = max(context.least_ns, SLIGHT * context.longest_window_ns)
    for device in context.timeline.devices:
        for process in unique(device.operations.table.process).tolist():
            held = _held(context, device.index, process)
            if held is None or len(held.rows) < MANY:
                continue
            total = int(held.held_ns.sum())
            most = min(total, *held.sides_ns)
            if waits >= WAITS_SHARE * len(held.rows) or most < worth:
                continue
            yield Match(
                region=MatchedOperations(context, held.rows).region,
                title=f"the default stream and the others take turns, which holds up {count(len(held.rows))} "
                f"operations for {duration(total)} in all",
                evidence={
                    "count": len(held.rows),
                    "held_ns": total,
                    "default_stream_busy_ns": held.sides_ns[0],
                    "other_streams_busy_ns": held.sides_ns[1],
                    "stream_wait_event_calls": waits,
                    **MEASURED,
                },
                saving_ns=(0, most),
                advice=(
                    context.program.pick(
                        "Keep work off the default stream: compile with nvcc --default-stream per-thread, or make the "
                        "other streams with cudaStreamNonBlocking",
                        torch="Keep work off the default stream: with torch.cuda.stream(s): for all of it",
                        python="Keep work off the default stream: give all of it streams of its own",
                        openmp="Let target regions run beside each other: nowait, and depend where order matters",
                        directives="Keep work off the default queue: async(queue) on all of it",
                        julia="Keep work off the default stream: tasks have streams of their own",
                    ),
                    "What is gained depends on whether their kernels fit on the GPU together: test it",
                ),
                examples=_held_examples(context, held),
                instances=len(held.rows),
                is_unsure=True,
            )


def _held_examples(context: RuleContext, held: Held) -> tuple[Example, ...]:
    """Those that are held up longest."""
    table = context.operations
    examples = []
    for number in np.lexsort((held.rows, -held.held_ns))[:3].tolist():
        row, held_ns = int(held.rows[number]), int(held.held_ns[number])
        kind = OpKind(int(table.kind[row]))
        name = kernel_name(context, row) if kind == OpKind.KERNEL else kind.name.lower()
        what = f"{name} on stream {table.stream[row]} held up"
        examples.append(Example(int(table.start_ns[row]) - held_ns, held_ns, what))
    return tuple(examples)


DEFAULT = Rule(
    id="stream-default",
    title="The default stream makes the others wait",
    group="streams",
    check=_default,
    needs=("kernels",),
)


# Kernels with more blocks than this, a multiprocessor, take as long side by side.
_SMALL = HALF


def _shared(context: RuleContext) -> Iterator[Match]:
    calls, table, work = context.calls, context.operations, device_work(context)
    if not len(calls):
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing shows which thread launched what")
    leader_of = context.timeline.logical_threads.leader
    if len(unique(leader_of[unique(calls.thread)])) < 2:
        return
    rows = np.flatnonzero(work.is_kernel & (calls.of_operation >= 0))
    leader = leader_of[calls.thread[calls.of_operation[rows]]]
    if len(unique(leader)) < 2:
        return
    if not (work.blocks[rows] > 0).any() or not (work.multiprocessors[rows] > 0).any():
        raise CannotCheckError("the trace holds no launch shapes, so not whether kernels would fit side by side")
    is_small = (work.blocks[rows] > 0) & (work.blocks[rows] <= _SMALL * work.multiprocessors[rows])
    key = np.stack((table.device[rows], table.process[rows], table.stream[rows]), axis=1)
    streams, of_row = np.unique(key, axis=0, return_inverse=True)
    worth = max(context.least_ns, SLIGHT * context.longest_window_ns)
    for number, (_, _, stream) in enumerate(streams.tolist()):
        here = np.flatnonzero(of_row.ravel() == number)
        here = here[np.argsort(table.start_ns[rows[here]], kind="stable")]
        leaders, of_leader = ranked(leader[here])
        if len(leaders) < 2 or int((np.diff(of_leader) != 0).sum()) < MANY:
            continue
        # Time of small kernels by thread: all but the longest's could run beside it.
        small_ns = np.bincount(of_leader, weights=np.where(is_small[here], work.exposed_ns[rows[here]], 0))
        most = int(small_ns.sum() - small_ns.max())
        if most < worth:
            continue
        small = int(is_small[here].sum())
        yield Match(
            region=KernelSet(context, rows[here]).region,
            title=f"{len(leaders)} threads launch onto stream {stream}; {count(small)} kernels too small for the GPU "
            f"run one after the other, {duration(int(small_ns.sum()))}",
            evidence={
                "threads": len(leaders),
                "stream": stream,
                "kernels": len(here),
                "small_kernels": small,
                "small_kernels_ns": int(small_ns.sum()),
                **MEASURED,
            },
            saving_ns=(0, most),
            advice=(
                context.program.pick(
                    "Give each thread a stream of its own: cudaStreamNonBlocking, or nvcc --default-stream per-thread",
                    torch="Give each thread a stream of its own: with torch.cuda.stream(torch.cuda.Stream()): in the "
                    "thread",
                    python="Give each thread a stream of its own",
                    openmp="Let each thread's target regions run as tasks: nowait, and depend where order matters",
                    directives="Give each thread a queue of its own: async(queue) with another number in each",
                    julia="Give each task a stream of its own, as CUDA.jl does by default",
                ),
            ),
            examples=KernelSet(context, rows[here[is_small[here]]]).examples(),
            instances=small,
            is_unsure=True,
        )


SHARED = Rule(
    id="stream-shared",
    title="Threads share one stream",
    group="streams",
    check=_shared,
    needs=("kernels",),
)
