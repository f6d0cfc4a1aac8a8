"""The rules on what others take of the machine: of the GPU, or of the cores that the host needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import kernel_name
from boundby.evidence.feeders import is_child
from boundby.evidence.interruptions import PARTS, interruptions, slowdowns
from boundby.model.arrays import is_any, median, unique
from boundby.model.causes import Cause
from boundby.model.intervals import EMPTY, CoveredTime, IntervalSet, intersect, union
from boundby.model.scale import NOTABLE, SLIGHT
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.remedies import by_key
from boundby.rules.rule import MEASURED, Match, Rule


def _shared_gpu(context: RuleContext) -> Iterator[Match]:
    worth = max(context.least_ns, SLIGHT * context.longest_window_ns)
    shared = {item.device: item for item in interruptions(context) if item.total_ns >= worth}
    table, gpus = context.operations, context.trace.gpus
    for device, item in shared.items():
        longest = np.lexsort((item.rows, -item.length_ns))[:3].tolist()
        each = "each is" if len(item.common_ns) == 1 else "some are"
        lengths = f"{each} held up for about {', others for about '.join(map(duration, item.common_ns))}"
        gaps = len(item.rows) - item.in_kernels
        yield Match(
            region=ROOT,
            title=f"another process or context had GPU {gpus[device].id} for {duration(item.total_ns)}: "
            f"{count(item.in_kernels)} kernels of {item.kinds} kinds take longer than others of the same grid, and "
            f"{count(gaps)} start late that were launched long before; {lengths}",
            evidence={
                "gpu": gpus[device].id,
                "interruptions": len(item.rows),
                "in_kernels": item.in_kernels,
                "before_kernels": gaps,
                "kinds_of_kernels": item.kinds,
                "common_lengths_ns": list(item.common_ns),
                "interrupted_ns": item.total_ns,
                **MEASURED,
            },
            saving_ns=(0, item.total_ns),
            advice=(
                "Measure on a GPU of your own, or see, while the program runs, who else uses this one: "
                f"{_command(context, 'stop-sharing')}",
                "Until then kernels take longer here than they need: savings of other findings may be too high",
            ),
            examples=tuple(
                Example(
                    int(table.start_ns[item.rows[number]]),
                    int(item.length_ns[number]),
                    f"{kernel_name(context, int(item.rows[number]))} is held up",
                )
                for number in longest
            ),
            instances=len(item.rows),
            cost_ns=item.total_ns,
        )
    for slow in slowdowns(context):
        if slow.device in shared or slow.excess_ns < worth:
            continue
        yield Match(
            region=ROOT,
            title=f"kernels of the same grid take up to {percent(slow.ratio - 1)} longer at one time than at another, "
            f"{slow.kinds} kinds alike: lower clocks, or another program on GPU {gpus[slow.device].id}",
            evidence={
                "slower_by": round(slow.ratio, 3),
                "kinds_of_kernels": slow.kinds,
                "excess_ns": slow.excess_ns,
                "fastest_tenth": slow.fastest + 1,
                "slowest_tenth": slow.slowest + 1,
                "parts": PARTS,
                **MEASURED,
            },
            saving_ns=(0, slow.excess_ns),
            advice=(
                "While the program runs, see whether heat or power lowers the clock: "
                f"{_command(context, 'watch-clocks')}; another process on the GPU slows kernels the same way",
            ),
            cost_ns=slow.excess_ns,
            is_unsure=True,
            remedy="watch-clocks",
        )


def _command(context: RuleContext, remedy: str) -> str:
    """What a row of the table has people type."""
    return by_key()[remedy].code(context.program, {}, is_of_amd=context.trace.is_of_amd)


SHARED_GPU = Rule(
    id="shared-gpu",
    title="Kernels are slower than others of their kind: the GPU is shared, or its clock is lower",
    group="gpu_compute",
    check=_shared_gpu,
    needs=("kernels", "cuda_api"),
)


# Who takes less is chance.
LEAST_CORES = NOTABLE
# Who takes the cores, and what to do about it.
_OWN, _CHILDREN, _OTHERS = "threads of its own process", "processes that it started", "other programs"
_ADVICE = {
    _OWN: "Run fewer threads than cores: OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, or the pool's own size; those "
    "beyond the cores only take turns",
    _CHILDREN: "Run fewer processes than cores: workers and ranks on one machine, or each with one thread "
    "(OMP_NUM_THREADS=1)",
    _OTHERS: "See with top which other program takes the cores, measure on a quiet machine, or bind the program to "
    "cores of its own (taskset, numactl)",
}


def _preempted(context: RuleContext) -> Iterator[Match]:
    for thread, around in _threads(context).items():
        waits = intersect(context.timeline.host_state.evidence(thread).preempted, around)
        share = waits.total / max(context.longest_window_ns, 1)
        if waits.total < context.least_ns or share < NOTABLE:
            continue
        takers = _takers(context, thread, waits)
        who = max(takers, key=lambda taker: (takers[taker], taker)) if takers else _OTHERS
        length = waits.end - waits.start
        longest = np.lexsort((waits.start, -length))[:3].tolist()
        own = context.timeline.ownership
        region = context.place(own.at(thread, waits.start), np.maximum(length, 1))
        yield Match(
            region=region,
            title=f"the host's thread could run and waits for a core: {duration(waits.total)}, {percent(share)} of the "
            f"time, {count(len(length))} times, mostly behind {who}",
            evidence={
                "preempted_ns": waits.total,
                "preempted_fraction": round(share, 4),
                "times": len(length),
                "median_ns": int(median(length)),
                "cores_taken_meanwhile": {taker: round(cores, 2) for taker, cores in sorted(takers.items())},
                **MEASURED,
            },
            saving_ns=(0, waits.total),
            advice=tuple(
                _ADVICE[taker]
                for taker in sorted(takers or {_OTHERS: 0.0}, key=lambda taker: -takers.get(taker, 0.0))[:2]
            ),
            examples=tuple(Example(int(waits.start[row]), int(length[row]), "waits for a core") for row in longest),
            instances=len(length),
            cost_ns=waits.total,
        ).advising("own-cores" if who == _OTHERS else "cpu.threads")


def _threads(context: RuleContext) -> dict[int, IntervalSet]:
    """Threads that devices wait for, each with when; without GPU work the annotated ones."""
    accounts = context.timeline.threads
    if accounts:
        return {account.thread: account.covered for account in accounts}
    by_thread: dict[int, IntervalSet] = {}
    for device in context.timeline.devices:
        parts = device.segments
        of_host = is_any(parts.cause, (Cause.CPU, Cause.HOST_BLOCKED, Cause.CUDA_API)) & (parts.thread >= 0)
        for thread in unique(parts.thread[of_host]).tolist():
            is_own = of_host & (parts.thread == thread)
            before = by_thread.get(thread, EMPTY)
            by_thread[thread] = union(
                np.concatenate((before.start, parts.start_ns[is_own])),
                np.concatenate((before.end, parts.end_ns[is_own])),
            )
    return by_thread


def _takers(context: RuleContext, thread: int, waits: IntervalSet) -> dict[str, float]:
    """How many cores others take in these intervals on average, by whose they are."""
    trace = context.trace
    own = trace.threads[thread].process
    total: dict[str, float] = {}
    for other in unique(trace.schedule.thread).tolist():
        if other == thread:
            continue
        on = context.timeline.host_state.evidence(other).on_cpu
        if on is None or not len(on.start):
            continue
        cores = int(CoveredTime(on).within(waits.start, waits.end).sum()) / max(waits.total, 1)
        process = trace.threads[other].process
        whose = _OWN if process == own else _CHILDREN if is_child(trace, process, own) else _OTHERS
        total[whose] = total.get(whose, 0.0) + cores
    return {whose: cores for whose, cores in total.items() if cores >= LEAST_CORES}


PREEMPTED = Rule(
    id="preempted",
    title="The host waits for a core",
    group="host",
    cause=Cause.CPU,
    check=_preempted,
    needs=("cpu_scheduling", "osrt"),
)
