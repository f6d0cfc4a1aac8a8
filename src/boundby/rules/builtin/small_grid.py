"""Long kernels with fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import (
    device_work,
    kernel_name,
    named_top,
    operation_examples,
    place_of,
    saving_by_speed,
)
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Rule, Threshold


def small_grid_rows(context: RuleContext) -> Rows:
    """Kernels that run alone and long on few of the multiprocessors."""
    rows = _small_rows(context)
    return rows[_runs_alone(context, rows, RULE.threshold(context, "alone_fraction"))]


def _small_rows(context: RuleContext) -> Rows:
    work = device_work(context)
    long_enough = work.is_kernel & (work.duration_ns >= RULE.threshold(context, "kernel_ns"))
    told = (work.blocks > 0) & (work.multiprocessors > 0)
    small = work.blocks <= RULE.threshold(context, "fill_fraction") * work.multiprocessors
    return np.flatnonzero(long_enough & told & small)


def _runs_alone(context: RuleContext, rows: Rows, share: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of these no other kernel shares the device with for more than the rest of their time."""
    work, table = device_work(context), context.operations
    alone = np.zeros(len(rows), bool)
    for device in np.unique(table.device[rows]).tolist():
        others = np.flatnonzero(work.in_window & (table.kind <= 1) & (table.device == device))
        start, end = np.sort(table.start_ns[others]), np.sort(table.end_ns[others])
        before_start = np.concatenate(([0], np.cumsum(start)))
        before_end = np.concatenate(([0], np.cumsum(end)))

        def busy_until(
            time: np.ndarray[tuple[int], np.dtype[np.int64]],
            start: np.ndarray[tuple[int], np.dtype[np.int64]] = start,
            end: np.ndarray[tuple[int], np.dtype[np.int64]] = end,
            of_start: np.ndarray[tuple[int], np.dtype[np.int64]] = before_start,
            of_end: np.ndarray[tuple[int], np.dtype[np.int64]] = before_end,
        ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            """Kernel time before an instant, kernels that run together each counted."""
            begun, done = np.searchsorted(start, time), np.searchsorted(end, time)
            return begun * time - of_start[begun] - (done * time - of_end[done])

        mine = np.flatnonzero(table.device[rows] == device)
        own = work.duration_ns[rows[mine]]
        together = busy_until(table.end_ns[rows[mine]]) - busy_until(table.start_ns[rows[mine]]) - own
        alone[mine] = together <= (1 - share) * own
    return alone


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    long_enough = work.is_kernel & (work.duration_ns >= RULE.threshold(context, "kernel_ns"))
    if int(work.exposed_ns[long_enough].sum()) < context.least_ns:
        return
    if not ((work.blocks > 0) & (work.multiprocessors > 0))[long_enough].any():
        raise CannotCheckError("the trace tells no launch shapes, or not how many multiprocessors the GPU has")
    rows = small_grid_rows(context)
    yield from _beside(context, np.setdiff1d(_small_rows(context), rows))
    exposed = int(work.exposed_ns[rows].sum())
    if exposed < max(context.least_ns, RULE.threshold(context, "share_fraction") * context.longest_window_ns):
        return
    filled = work.blocks[rows] / work.multiprocessors[rows]
    mean = float(np.average(filled, weights=work.duration_ns[rows]))
    most = min(1 / mean, RULE.threshold(context, "filled_most"))
    longest = int(rows[np.argmax(work.duration_ns[rows])])
    total = int(work.duration_ns[rows].sum())
    yield Match(
        region=place_of(context, rows),
        title=f"{'1 long kernel' if len(rows) == 1 else f'{count(len(rows))} long kernels'} ({duration(total)}) "
        f"{'runs' if len(rows) == 1 else 'run'} alone on {percent(mean)} of the GPU's multiprocessors",
        evidence={
            "count": len(rows),
            "total_ns": total,
            "share_of_kernel_time_fraction": round(exposed / max(work.busy_kernels_ns(), 1), 4),
            "blocks": sorted({int(value) for value in work.blocks[rows]})[:5],
            "multiprocessors": int(work.multiprocessors[longest]),
            "multiprocessors_used_fraction": round(mean, 4),
            "kernels": named_top(context, rows),
        },
        saving_ns=(0, saving_by_speed(context, rows, 1.0, most)[1]),
        advice=(
            f"{kernel_name(context, longest)} launches {_blocks(int(work.blocks[longest]))} of "
            f"{int(work.threads[longest])} threads on {int(work.multiprocessors[longest])} multiprocessors: split its "
            "work into smaller blocks, at least two a multiprocessor",
            *(
                (
                    "PyTorch: a larger batch, or batched calls (torch.bmm, torch.stack, vmap) instead of a loop over "
                    "samples",
                )
                if context.is_python
                else ()
            ),
            "Where the work cannot be split, run independent kernels beside it on another stream",
        ),
        examples=operation_examples(
            context,
            rows,
            lambda row: f"{kernel_name(context, row)}, {_blocks(int(work.blocks[row]))} of {work.threads[row]}",
        ),
        instances=len(rows),
        cost_ns=total,
    )


def _beside(context: RuleContext, rows: Rows) -> Iterator[Match]:
    """Single kernels of few blocks that take long although others run beside them: what else runs hides them, and as
    soon as that is shorter, they are what the program waits for."""
    work = device_work(context)
    rows = rows[work.duration_ns[rows] >= RULE.threshold(context, "beside_fraction") * context.longest_window_ns]
    if len(rows) == 0:
        return
    total, longest = int(work.duration_ns[rows].sum()), int(rows[np.argmax(work.duration_ns[rows])])
    filled = float(np.average(work.blocks[rows] / work.multiprocessors[rows], weights=work.duration_ns[rows]))
    most = min(1 / filled, RULE.threshold(context, "filled_most"))
    blocks, all_of_them = int(work.blocks[rows].max()), len(rows)
    saved = context.saving_by_speed(rows, most, most)
    yield Match(
        region=place_of(context, rows),
        title=f"{all_of_them} kernel{'s' if all_of_them > 1 else ''} of {'1 block' if blocks == 1 else 'few blocks'} "
        f"take{'' if all_of_them > 1 else 's'} {duration(total)} beside other kernels: "
        f"{', '.join(named_top(context, rows, 3))}",
        evidence={
            "count": all_of_them,
            "total_ns": total,
            "blocks": sorted({int(value) for value in work.blocks[rows]})[:5],
            "multiprocessors": int(work.multiprocessors[longest]),
            "multiprocessors_used_fraction": round(filled, 4),
            "kernels": named_top(context, rows),
            f"saving_if_{round(most)}_times_as_fast_ns": None if saved is None else min(saved[0], total),
        },
        saving_ns=None,  # what runs beside them hides it, or some of it
        advice=(
            f"{kernel_name(context, longest)} launches {_blocks(int(work.blocks[longest]))} of "
            f"{int(work.threads[longest]):,} threads on {int(work.multiprocessors[longest])} multiprocessors: split "
            "its work into smaller blocks, at least two a multiprocessor",
            "What runs beside them hides them now: it has to be shorter as well before the program is",
        ),
        examples=operation_examples(
            context,
            rows,
            lambda row: f"{kernel_name(context, row)}, {_blocks(int(work.blocks[row]))} of {work.threads[row]}",
        ),
        instances=all_of_them,
        severity="low",
    )


def _blocks(number: int) -> str:
    return "1 block" if number == 1 else f"{number:,} blocks"


RULE = Rule(
    id="small-grid",
    title="Long kernels use few of the multiprocessors",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("kernel_ns", 20_000, "ns", "Shorter kernels are a matter of launching: see launch-overhead."),
        Threshold("fill_fraction", 0.5, "blocks per multiprocessor", "Above half, filling the rest gains little."),
        Threshold("alone_fraction", 0.9, "fraction", "Kernels that run together fill the GPU together."),
        Threshold("share_fraction", 0.02, "fraction of the window", "Below, a full GPU would gain too little."),
        Threshold(
            "beside_fraction", 0.05, "fraction of the window", "Shorter ones beside others are what streams are for."
        ),
        Threshold("filled_most", 8.0, "times", "Work that fits in few blocks seldom splits into a hundred."),
    ),
)
