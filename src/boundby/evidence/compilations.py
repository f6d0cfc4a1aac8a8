"""Code that is compiled while the program runs, and kernels that are tried out to choose the fastest (autotuning)."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from boundby.evidence.context import Int, Rows, RuleContext, once
from boundby.evidence.device_work import device_work
from boundby.model.arrays import is_any, unique
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.intervals import EMPTY, IntervalSet, contains, union
from boundby.model.scale import MANY
from boundby.trace.stacks import file_name
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.compilers import COMPILERS, is_compile_call, is_compiler_process
from boundby.trace.vocabulary.cuda import plain_name

# Triton's do_bench writes 256 MB between two runs of a kernel, so that it finds nothing in the cache; smaller fills are
# a program's own.
FLUSH_NS, FLUSH_BYTES = 50_000, 128 << 20
# So often in a row one kernel and one fill take turns: do_bench runs each configuration dozens of times.
LEAST_FLUSHES = MANY
_FILL = expression(r"FillFunctor|memset", re.IGNORECASE)


class Compilations(Struct, frozen=True):
    """Idle pieces of devices in which the host compiles, and the calls that end them or compile themselves."""

    start_ns: Int
    end_ns: Int
    region: Int
    calls: Rows  # of ``context.calls``
    who: tuple[str, ...]  # the compilers, as far as names show
    processes: int  # of compilers, beside the program

    @property
    def total_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


@once
def compilations(context: RuleContext) -> Compilations:
    """All of a trace. Calls of compilers count with their own time in gaps."""
    calls, hosts = context.calls, context.timeline.host_state
    is_compiling = context.named(calls.name, lambda name: is_compile_call(plain_name(name)))
    rows: list[tuple[Int, Int, Int]] = [(np.empty(0, np.int64),) * 3]
    chosen: list[Rows] = [np.empty(0, np.intp)]
    for device in context.timeline.devices:
        parts = device.segments
        is_init = np.flatnonzero((parts.cause == Cause.INIT) & (parts.thread >= 0))
        for thread in unique(parts.thread[is_init]).tolist():
            of_thread = is_init[parts.thread[is_init] == thread]
            own = calls.rows_of(thread)
            linking = own.start + np.flatnonzero(is_compiling[own])
            compiling = hosts.compiling_for(thread)
            either = union(
                np.concatenate((compiling.start, calls.start_ns[linking])),
                np.concatenate((compiling.end, calls.end_ns[linking])),
            )
            inside = of_thread[contains(either, parts.start_ns[of_thread]) >= 0]
            if not len(inside):
                continue
            rows.append(tuple(c[inside].astype(np.int64) for c in (parts.start_ns, parts.end_ns, parts.region)))
            ends = own.start + np.searchsorted(calls.start_ns[own], parts.start_ns[inside])
            chosen += [ends[ends < own.stop], linking]
    start, end, region = (np.concatenate(column) for column in zip(*rows, strict=True))
    gaps = union(start, end) if len(start) else EMPTY
    processes = sum(is_compiler_process(process.name) for process in context.trace.processes)
    return Compilations(start, end, region, unique(np.concatenate(chosen)), _who(context, gaps), processes)


def _who(context: RuleContext, inside: IntervalSet) -> tuple[str, ...]:
    """Compilers by the names of ranges there; else of binaries in samples there; else of all kernels."""
    trace = context.trace
    if not len(inside.start):
        return ()
    ranges = trace.ranges
    names = unique(ranges.name[(contains(inside, ranges.start_ns) >= 0)]).tolist()
    texts = [trace.names[name] for name in names]
    if found := _compilers(texts):
        return found
    if trace.captured.backtraces:
        stacks = trace.backtraces.load()
        frames: set[str] = set()
        for stack in unique(stacks.events.stack[contains(inside, stacks.events.start_ns) >= 0]).tolist():
            frames |= {file_name(stacks.module(frame)) for frame in stacks.frames_of(stack).tolist()}
        if found := _compilers(sorted(frames)):
            return found
    return _compilers([trace.names[name] for name in unique(context.operations.name).tolist() if name >= 0])


def _compilers(texts: list[str]) -> tuple[str, ...]:
    """The first two that any text names."""
    return tuple(who for who, pattern in COMPILERS if any(map(pattern.search, texts)))[:2]


class Autotuning(Struct, frozen=True):
    """``flushes``: fills of the cache; ``rows``: these and the kernels that they take turns with, of the operations."""

    rows: Rows
    flushes: int
    kernels: tuple[str, ...]

    @property
    def is_seen(self) -> bool:
        return self.flushes >= LEAST_FLUSHES


@once
def autotuning(context: RuleContext) -> Autotuning:
    """Runs in which one large fill comes again and again, with one and the same kernel between."""
    work, table = device_work(context), context.operations
    fills = context.named(table.name, _FILL.search)
    is_fill = (fills & (table.kind == OpKind.KERNEL) & (work.duration_ns >= FLUSH_NS)) | (
        (table.kind == OpKind.MEMSET) & (table.bytes >= FLUSH_BYTES)
    )
    if np.count_nonzero(is_fill) < LEAST_FLUSHES:
        return Autotuning(np.empty(0, np.intp), 0, ())
    order = np.flatnonzero(work.in_window & is_any(table.kind, (OpKind.KERNEL, OpKind.MEMSET)))
    keys = (order, table.start_ns[order], table.stream[order], table.process[order], table.device[order])
    order = order[np.lexsort(keys)]
    flush, name, stream = is_fill[order], table.name[order], table.stream[order]
    # A turn: fill, kernel, fill, and the kernel after it has the same name.
    turn = np.zeros(len(order), bool)
    if len(order) > 3:
        alike = (name[1:-2] == name[3:]) & (stream[:-3] == stream[3:]) & (name[:-3] == name[2:-1])
        turn[:-3] = flush[:-3] & ~flush[1:-2] & flush[2:-1] & ~flush[3:] & alike
    at = np.flatnonzero(turn)
    if not len(at):
        return Autotuning(np.empty(0, np.intp), 0, ())
    runs = np.split(at, np.flatnonzero(np.diff(at) != 2) + 1)
    kept = [run for run in runs if len(run) >= LEAST_FLUSHES - 1]
    if not kept:
        return Autotuning(np.empty(0, np.intp), 0, ())
    inside = np.concatenate([np.arange(int(run[0]), int(run[-1]) + 4) for run in kept])
    tried = sorted({context.trace.names[name[run[0] + 1]] for run in kept})
    return Autotuning(np.sort(order[inside]), sum(len(run) + 1 for run in kept), tuple(tried))
