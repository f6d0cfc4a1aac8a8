"""The rules on several GPUs: no computation hides their communication, one comes late to it and all others wait inside
theirs, or they have unequal work, or none."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.context import CannotCheckError, Rows, RuleContext, SavingNs
from boundby.evidence.device_work import busy_of_devices, device_work
from boundby.evidence.latecomers import collectives, is_exchange, waited_by_size_ns, waited_ns
from boundby.model.arrays import median
from boundby.model.causes import Cause
from boundby.model.scale import A_FEW_LINES, HABIT, HALF, MOST, NEARLY_ALL, QUARTER, SLIGHT, SMALL
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.builtin._operations import ENOUGH, KernelSet, small_grid_rows
from boundby.rules.rule import MEASURED, Match, Rule, note

_BUCKETS = "Send them in buckets, not one by one: each collective has a fixed cost, and all ranks meet in each"
_BUCKETS_OF_TORCH = f"{_BUCKETS} (DDP: bucket_cap_mb; FSDP: wrap whole layers; DeepSpeed: reduce_bucket_size)"
_BALANCE = (
    "Balance what ranks exchange: all wait for the one with most (experts: a capacity, an auxiliary loss, or experts "
    "placed by their load)",
)

_WAITING = (
    "Find the rank that comes late: boundby job FOLDER, of the traces of all ranks, says which one the others wait "
    "for, since when and why. Overlap helps only with the rest",
)

_EXCHANGE = (
    "Find the rank that comes late: boundby job FOLDER, with the traces of all ranks, shows which one it is, and why, "
    "since a rank that receives also waits for the one that sends",
    "Between stages of a pipeline: stages of equal length, more and smaller micro-batches, an interleaved schedule. "
    "Between experts: compute another micro-batch, or the shared experts, meanwhile",
)


def _largest_split(context: RuleContext, rows: Rows) -> float | None:
    """The largest split of exchanges with split sizes over their mean, weighted by their time; None: none is told."""
    collective = context.operations.collective[rows]
    with_sizes = rows[collective >= 0]
    uneven = context.trace.collectives.uneven_percent[context.operations.collective[with_sizes]]
    length_ns = (context.operations.end_ns - context.operations.start_ns)[with_sizes]
    split = uneven > 0
    return float(np.average(uneven[split], weights=np.maximum(length_ns[split], 1))) / 100 if split.any() else None


def _of_a_step(context: RuleContext, count: int) -> int | None:
    """How many of so many collectives a step has on each device; None: there are no steps."""
    step = context.timeline.step_region
    if step is None:
        return None
    steps = int((context.timeline.ownership.regions.of_range == step).sum())
    return count // max(steps, 1)


def _waiting(context: RuleContext, waits_ns: int) -> str:
    said = f"; at least {duration(waits_ns)} of that is waiting for other ranks, which no overlap saves"
    return said if waits_ns >= context.least_ns else ""


def _in_each_step(context: RuleContext, rows: Rows, of_a_step: int) -> str:
    usual = median(context.operations.end_ns[rows] - context.operations.start_ns[rows])
    return f", in {count(of_a_step)} collectives of {duration(usual)} (median) in each step"


def _is_worth_it(context: RuleContext, exposed_ns: int, hidden: float) -> bool:
    """Whether overlap would gain anything: not where little is exposed, where most of that is waiting for a late device
    (comm-straggler says so), or where the program does so already."""
    worth = max(context.least_ns, SLIGHT * context.window_ns)
    return hidden < NEARLY_ALL and exposed_ns - min(waited_ns(context), exposed_ns) >= worth


def _exposed(context: RuleContext) -> Iterator[Match]:
    rows = np.flatnonzero(context.operations.is_communication & device_work(context).in_window)
    collectives = KernelSet(context, rows)
    exposed = collectives.exposed_ns
    hidden = max(1 - exposed / max(collectives.total_ns, 1), 0.0)
    if not _is_worth_it(context, exposed, hidden):
        return
    waits = int(waited_by_size_ns(context)[rows].sum())
    uneven, of_a_step = _largest_split(context, rows), _of_a_step(context, len(collectives))
    is_uneven = uneven is not None and uneven >= 1 + HALF
    is_many = of_a_step is not None and of_a_step >= ENOUGH
    title = "".join(
        (
            _hidden(context, collectives),
            f"; the largest part that a rank exchanges is {uneven:.1f} times the mean" if is_uneven else "",
            _waiting(context, waits),
            _in_each_step(context, rows, of_a_step or 0) if is_many else "",
        )
    )
    is_waiting = waits > HALF * exposed
    remedy = "gpu_comm.overlap-exchange" if is_exchange(context) else "gpu_comm.overlap-comm"
    yield collectives.match(
        title,
        {
            "exposed_ns": exposed,
            "total_ns": collectives.total_ns,
            "hidden_fraction": round(hidden, 4),
            "waiting_ns": waits,
            "count": len(collectives),
            "devices": len(collectives.per_device()),
            "kernels": collectives.named(),
            "of_a_step": of_a_step,
            "largest_split_of_mean": None if uneven is None else round(uneven, 2),
        },
        _saving(collectives, waits),
        _exposed_advice(context, is_waiting=is_waiting, is_uneven=is_uneven, is_many=is_many),
        cost_ns=exposed,
    ).advising("gpu_comm.find-late-rank" if is_waiting else remedy)


def _exposed_advice(context: RuleContext, *, is_waiting: bool, is_uneven: bool, is_many: bool) -> tuple[str, ...]:
    return (
        *(_WAITING if is_waiting else ()),
        *(_BALANCE if is_uneven else ()),
        *(context.program.pick((_BUCKETS,), torch=(_BUCKETS_OF_TORCH,)) if is_many else ()),
        *(_EXCHANGE[is_waiting:] if is_exchange(context) else _reductions(context)),
    )


def _hidden(context: RuleContext, collectives: KernelSet) -> str:
    """How long communication runs, and how much of it other kernels hide."""
    runs_ns, exposed, window_ns = collectives.total_ns, collectives.exposed_ns, max(context.window_ns, 1)
    share, kernels = percent(min(runs_ns / window_ns, 1)), "no other kernel hides it"
    if runs_ns - exposed >= context.least_ns:
        left = f"{duration(exposed)} ({percent(exposed / window_ns)}) stay"
        kernels = f"other kernels hide {duration(runs_ns - exposed)} of it, and {left}"
    return f"communication runs for {duration(runs_ns)}, {share} of the window: {kernels}"


def _saving(collectives: KernelSet, waits_ns: int) -> SavingNs:
    """What overlap saves at least and at most: a collective that waits for others waits beside other kernels, too.
    Where most of it is waiting, what the late rank costs."""
    low, high = collectives.saving_without(Cause.GPU_COMM, HALF)
    exposed = max(collectives.exposed_ns, 1)
    if waits_ns > HALF * exposed:
        return 0, min(high, waits_ns)
    return round(low * (1 - waits_ns / exposed)), max(high - waits_ns, low)


def _reductions(context: RuleContext) -> tuple[str, ...]:
    return context.program.pick(
        ("Start each collective as soon as its data are ready, on a stream of its own, while other kernels run",),
        torch=(
            "Start each collective as soon as its data are ready, on a stream of its own, while the rest of "
            "backward runs: DDP does so per bucket (bucket_cap_mb), FSDP with backward_prefetch; one "
            "all_reduce after backward hides nothing",
            "Fewer bytes: bf16 gradients (DDP's comm hook bf16_compress_hook), no_sync() while accumulating",
        ),
    )


COMM_EXPOSED = Rule(
    id="comm-exposed",
    title="Communication that no computation hides",
    group="gpu_comm",
    cause=Cause.GPU_COMM,
    check=_exposed,
    needs=("kernels",),
)


def _straggler(context: RuleContext) -> Iterator[Match]:
    trace = context.trace
    if not context.operations.is_communication.any():
        return
    if len(context.timeline.devices) < 2:
        raise CannotCheckError("the report holds the communication of one GPU only: profile all ranks into one report")
    matched = collectives(context)
    if matched is None:
        raise CannotCheckError("the GPUs' communication kernels do not match one to one")
    last = np.argmax(matched.start_ns, axis=0)
    times_last = np.bincount(last, minlength=len(matched.devices))
    late = int(np.argmax(times_last))
    often = float(times_last[late]) / max(len(last), 1)
    others = np.delete(np.arange(len(matched.devices)), late)
    waited = int(matched.waited_ns[others][:, last == late].sum()) // len(others)
    if len(last) < HABIT or often < MOST:
        return
    if waited < context.least_ns:
        return
    gpu = trace.gpus[matched.devices[late]].id
    lateness = matched.start_ns[late] - np.median(matched.start_ns[others], axis=0).astype(np.int64)
    name = trace.names[int(context.operations.name[matched.row[late][0]])]
    yield Match(
        region=context.place(context.timeline.launch_region[matched.row[late]], np.maximum(lateness, 0)),
        title=f"GPU {gpu} comes last to {percent(often)} of {len(last):,} collectives, and the others wait "
        f"{duration(waited)} for each",
        evidence={
            "gpu": gpu,
            "collectives": len(last),
            "last_fraction": round(often, 4),
            "median_lateness_ns": int(median(lateness)),
            "others_waited_ns": waited,
            "kernel": name,
            **MEASURED,
        },
        saving_ns=(0, waited),
        advice=(
            f"Compare GPU {gpu} with another: boundby analyze {shlex.quote(trace.path)} --device {gpu}. Its own bound "
            "says why it is late: more or longer input (uneven batches), host work on its rank (logging, saving), a "
            "slower or hotter GPU",
        ),
        examples=tuple(
            Example(
                int(matched.start_ns[:, number].min()),
                int(lateness[number]),
                f"{name}: GPU {gpu} {duration(int(lateness[number]))} after the others",
            )
            for number in np.argsort(-lateness, kind="stable")[:3].tolist()
        ),
        instances=len(last),
        is_unsure=True,
        facts={"gpu": gpu},
    )


STRAGGLER = Rule(
    id="comm-straggler",
    title="One GPU is late to the collectives",
    group="gpu_comm",
    cause=Cause.GPU_COMM,
    check=_straggler,
    needs=("kernels",),
)


# Kinds of unused GPUs that are named.
MOST_NAMED = A_FEW_LINES


def _unbalanced(context: RuleContext) -> Iterator[Match]:
    yield from _unequal(context)
    yield from _unused(context)


def _unequal(context: RuleContext) -> Iterator[Match]:
    """GPUs that compute for unequal times."""
    work, table, gpus = device_work(context), context.operations, context.trace.gpus
    used = context.timeline.devices
    ids = [gpus[device.index].id for device in used]
    busy = np.array(busy_of_devices(context), np.int64)
    if len(used) > 1 and busy.any():
        most, least = int(np.argmax(busy)), int(np.argmin(busy))
        extra = int(busy[most]) - int(busy.mean())
        worth = max(context.least_ns, SMALL * context.longest_window_ns)
        if extra >= worth and busy[most] >= (1 + QUARTER) * busy.mean():
            rows = np.flatnonzero(work.is_kernel & (table.device == used[most].index))
            yield Match(
                region=KernelSet(context, rows).region,
                title=f"GPU {gpus[used[most].index].id} computes for {duration(int(busy[most]))}, GPU "
                f"{gpus[used[least].index].id} for {duration(int(busy[least]))}: balanced, each would take "
                f"{duration(int(busy.mean()))}",
                evidence={
                    "compute_ns": {str(gpu): ns for gpu, ns in zip(ids, busy.tolist(), strict=True)},
                    "mean_ns": int(busy.mean()),
                    "names": sorted({gpus[device.index].name for device in used}),
                    **MEASURED,
                },
                saving_ns=(0, extra),
                advice=(
                    "Give each GPU work in proportion to its speed: waits for the slower one go with the balance, not "
                    "with the call that waits",
                ),
                examples=KernelSet(context, rows).examples(),
                cost_ns=extra,
                is_unsure=True,
            )


def _unused(context: RuleContext) -> Iterator[Match]:
    """GPUs that have no work while others are busy, and full of it."""
    gpus, used, work = context.trace.gpus, context.timeline.devices, device_work(context)
    busy = np.array(busy_of_devices(context), np.int64)
    idle = [gpu for gpu in gpus if not gpu.used]
    kernels = int(busy.sum()) >= MOST * max(context.window_ns, 1)
    # The GPUs of other ranks are listed as well, and a profiler of one process sees none of theirs.
    is_alone = not (context.operations.is_communication.any() or context.trace.is_told_by_frames)
    is_filled = int(work.duration_ns[small_grid_rows(context)].sum()) < HALF * work.busy_kernels_ns
    if idle and used and kernels and is_alone and is_filled:
        names = list(dict.fromkeys(gpu.name for gpu in idle))
        more = f" and {len(names) - MOST_NAMED} more kinds" if len(names) > MOST_NAMED else ""
        others = "the other is" if len(used) == 1 else f"the other {len(used)} are, on average,"
        yield note(
            f"{len(idle)} of the {len(gpus)} GPUs that the report lists ({', '.join(names[:MOST_NAMED])}{more}) "
            f"{'runs' if len(idle) == 1 else 'run'} nothing of this program, while {others} busy with its kernels "
            f"{percent(int(busy.sum()) / max(context.window_ns, 1))} of the time",
            {"gpus_listed": len(gpus), "gpus_used": len(used), "unused": [gpu.name for gpu in idle]},
            "Run independent work (batches, requests, parameters) on the other GPUs, if they are free: they may belong "
            "to other users",
            region=ROOT,
        )


GPU_BALANCE = Rule(
    id="gpu-balance",
    title="GPUs have unequal work, or none",
    group="gpu_compute",
    check=_unbalanced,
    needs=("kernels",),
)
