"""The rules on input that comes too late, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.feeders import (
    SATURATED,
    FeedingWorker,
    FilesRead,
    files_read,
    loader_processes,
    named_workers,
    waiting_share,
    workers,
)
from boundby.evidence.host_idleness import (
    ON_PURPOSE,
    HostPieces,
    Idleness,
    Place,
    host_pieces,
    hot_functions,
    is_seen,
    places,
    slept_on,
)
from boundby.model.arrays import median, unique
from boundby.model.causes import Cause
from boundby.model.intervals import IntervalSet, intersect
from boundby.model.scale import HALF, LIST, QUARTER
from boundby.model.units import counted, percent, plural, size
from boundby.rules.builtin._telling import asleep_share, match, mostly_in, where_and_when
from boundby.rules.rule import Match, Rule

# As many paths of files stand in the evidence.
MOST_FILES = LIST
# Workers that wait for a core for this share of the time gain nothing by others beside them.
CORES_TAKEN = QUARTER
# Above, the launching thread waits for the batch; below, it makes it.
MOSTLY_ASLEEP = HALF
# Workers that run less than this wait for something themselves.
MOSTLY_BUSY = HALF


def _wanted(context: RuleContext, processes: Sequence[FeedingWorker]) -> int:
    """How many workers make batches as fast as the rest of a step takes, where the machine has the cores: those that
    sleep take none. Where nothing tells of cores, twice as many as now."""
    cores, now = context.trace.machine.cores, max(len(processes), loader_processes(context))
    if waiting_share(processes) >= CORES_TAKEN or _are_cores_taken(context, processes):
        return max(now // 2, 1)
    if cores is None:
        return 2 * now
    pieces, span_ns = host_pieces(context), context.longest_window_ns
    waits = pieces.intervals(pieces.of_kind(Idleness.INPUT)).total
    busy = sum(process.busy for process in processes) / len(processes)
    return max(now, min(math.ceil(now * span_ns / max(span_ns - waits, 1)), math.floor(cores / busy)))


def _more_workers(context: RuleContext, processes: Sequence[FeedingWorker]) -> str:
    """How many to try next."""
    cores, number = context.trace.machine.cores, _wanted(context, processes)
    if cores is None:
        return f"{number}) or more, as far as there are cores"
    return f"{number}) (the machine has {counted(cores, 'core', 'cores')})"


def input_advice(context: RuleContext, place: Place, sleeping: float, others: list[FeedingWorker]) -> tuple[str, ...]:
    """Who makes the input, how busy they are, and so what to change."""
    is_asleep = sleeping > MOSTLY_ASLEEP
    if (busy := _busy_advice(context, others, is_asleep=is_asleep)) is not None:
        return (busy,)
    first = _waiting_advice(context, place, others) if is_asleep else _beside_advice(context, place)
    if first == ON_PURPOSE or not context.timeline.devices:
        return (first,)
    copy = context.program.pick("cudaMemcpyAsync", torch=".to(device, non_blocking=True)")
    return first, f"Copy the next batch while this one computes: pinned memory, {copy}, a stream of its own"


def _busy_advice(context: RuleContext, others: list[FeedingWorker], *, is_asleep: bool) -> str | None:
    """Where workers or threads are at their limit; None: none is."""
    program, busiest = context.program, [worker for worker in others if worker.busy >= MOSTLY_BUSY]
    processes, threads = (
        [worker for worker in busiest if worker.is_process == is_process] for is_process in (True, False)
    )
    helpers = [worker for worker in threads if worker.busy >= SATURATED] if is_asleep else []
    if helpers and processes:
        pace = f"it runs at {percent(helpers[0].busy)} while the program waits, and {named_workers(processes)}"
        return program.pick(
            f"Give the program's thread {helpers[0].number} less to do, or let several share it: {pace}",
            torch="Hand over smaller types (uint8, half), fewer bytes, or batches that lie in one piece: "
            f"pin_memory=True has one thread ({helpers[0].number}) copy each batch once more, which no worker can "
            f"speed up; {pace}",
        )
    if processes and waiting_share(processes) >= CORES_TAKEN:
        fewer = program.pick("fewer of them", torch="num_workers below the number of cores")
        return (
            f"Give the workers cores (a quiet machine, more CPUs for the job, {fewer}), or make their work cheaper: "
            f"{named_workers(processes)} meanwhile, so that the cores are taken, and more workers would only take turns"
        )
    return _workers_advice(context, busiest, processes) if processes or helpers else None


def _workers_advice(context: RuleContext, busiest: list[FeedingWorker], processes: list[FeedingWorker]) -> str:
    """More workers, or cheaper work in them."""
    torch = "Hand work to processes (num_workers), or make it cheaper"
    if processes:
        torch = (
            f"Try DataLoader(num_workers={_more_workers(context, processes)}, or cheaper decoding and augmentation (a "
            "compiled decoder, transforms on whole batches or on the GPU)"
        )
    more = context.program.pick("Use more of the workers, or give them cheaper work", torch=torch)
    return f"{more}: {named_workers(busiest)} meanwhile"


def _beside_advice(context: RuleContext, place: Place) -> str:
    hot = mostly_in(hot_functions(context, place.rows))
    does = f"now the program's own thread does it{f', mostly in {hot}' if hot else ''}"
    if workers_now := loader_processes(context):
        into = f"Move this work into the {plural(workers_now, 'worker')} of the DataLoader"
        return f"{'Do it in a thread of its own, beside other work' if place.times == 1 else into}: {does}"
    buffer = (
        "Let another thread fill the next pinned buffer" if context.timeline.devices else "Let another thread do it"
    )
    return f"{context.program.pick(buffer, torch=f'Let other processes do it, by {_loader(context)}')}: {does}"


def _loader(context: RuleContext) -> str:
    """A DataLoader whose workers make the batches. Pinned memory serves copies to a GPU."""
    pinned = "pin_memory=True, " if context.timeline.devices else ""
    return f"DataLoader(dataset, num_workers=4, {pinned}persistent_workers=True)"


def _waiting_advice(context: RuleContext, place: Place, others: list[FeedingWorker]) -> str:
    """Of a thread that sleeps until the batch is there, while nobody on record is busy with it."""
    program = context.program
    if not context.trace.captured.cpu_scheduling:
        return program.pick(
            "Let what makes the input run ahead (more of it, a deeper queue); a recording by boundby profile shows "
            "whether that computes or waits for storage",
            torch="Use more workers and prefetching (num_workers, prefetch_factor, persistent_workers=True); a "
            "recording by boundby profile shows whether the workers compute or wait for storage",
        )
    runs = [worker for worker in others if worker.is_process]
    if runs and _are_cores_taken(context, runs):
        fewer = program.pick("fewer workers", torch="num_workers below the number of cores")
        return (
            f"Try {fewer}, cheaper work in each, or more cores for the job: {named_workers(runs)} meanwhile, and the "
            "program's own thread often waits for a core. The cores are taken, and more workers would only take turns"
        )
    if runs:
        more = program.pick("more workers", torch=f"num_workers={_wanted(context, runs)}")
        they = "it waits" if len(runs) == 1 else "they wait"
        return (
            f"Try {more} where cores are free, fewer than cores where they are not, or cheaper work in each: "
            f"{named_workers(runs)} meanwhile, and what {they} for besides is not on record (a core, storage, the "
            "network)"
        )
    if _only_sleeps(context, place):
        return ON_PURPOSE
    return (
        f"Prefetch more{program.pick('', torch=' (prefetch_factor)')}, cache, pack small files into large ones: "
        "nothing else of the trace runs meanwhile, so that the input comes from storage, the network or an unprofiled "
        "process"
    )


def _only_sleeps(context: RuleContext, place: Place) -> bool:
    """Whether what the host sleeps in there is mostly a call that only lets time pass."""
    return next(iter(slept_on(context, host_pieces(context).asleep(place.rows))), None) == "sleep"


def _remedy(context: RuleContext, place: Place, sleeping: float, others: list[FeedingWorker]) -> tuple[str, str]:
    """The row of the table, and its code where the number of workers is known."""
    processes = [worker for worker in others if worker.is_process]
    makes_it = sleeping <= MOSTLY_ASLEEP and not any(worker.busy >= MOSTLY_BUSY for worker in processes)
    # Whatever a pause is for, another thread can take it.
    if makes_it or (_only_sleeps(context, place) and not processes):
        return "host_blocked.load-beside", context.program.pick("", torch=_loader(context))
    if not processes:
        return "host_blocked.workers", ""
    helpers = [
        worker for worker in others if not worker.is_process and worker.busy >= SATURATED and sleeping > MOSTLY_ASLEEP
    ]
    if helpers:  # one thread of the program hands every batch over
        return "host_blocked.workers", context.program.pick(
            "", torch="batch = batch.half()  # in the workers: fewer bytes to hand over"
        )
    now = max(len(processes), loader_processes(context))
    loader = f"DataLoader(dataset, num_workers={_wanted(context, processes)}, persistent_workers=True)"
    return "host_blocked.workers", context.program.pick("", torch=f"{loader}  # now {now}; no more than cores")


def _are_cores_taken(context: RuleContext, runs: Sequence[FeedingWorker]) -> bool:
    """Whether these take a core or more, and the threads that they feed wait for one for much of the time that these
    could run: on CPUs that only other programs take, more workers get more of them."""
    if sum(worker.busy - worker.waiting for worker in runs) < 1:
        return False
    around = {account.thread: account.covered for account in context.timeline.threads}
    span = context.trace.span_ns
    waits_ns = runs_ns = 0
    for thread in around or unique(context.calls.thread).tolist():
        host = context.timeline.host_state.evidence(thread)
        inside = around.get(thread, IntervalSet(np.array(span[:1], np.int64), np.array(span[1:], np.int64)))
        if host.on_cpu is not None:
            waits_ns += intersect(host.preempted, inside).total
            runs_ns += intersect(host.on_cpu, inside).total
    return waits_ns > CORES_TAKEN * (waits_ns + runs_ns)


def _workers_beside(context: RuleContext, place: Place) -> list[FeedingWorker]:
    """Who computed meanwhile, where context switches tell."""
    if not len(context.trace.schedule):
        return []
    return workers(context, host_pieces(context).intervals(place.rows))


def _of_workers(others: list[FeedingWorker]) -> dict[str, object]:
    """Who computes beside the thread that waits, and how busily, as evidence."""
    processes = [worker.busy for worker in others if worker.is_process]
    busy = sum(worker.busy for worker in others) / len(others) if others else 0.0
    facts: dict[str, object] = {
        "worker_processes": len(processes),
        "other_threads_running": len(others) - len(processes),
        "their_cpu_utilization_fraction": round(busy, 3),
    }
    if processes:
        facts["worker_processes_cpu_utilization_fraction"] = round(sum(processes) / len(processes), 3)
    return facts


def _at_work(context: RuleContext, sleeping: float) -> str:
    """What a GPU waits for meanwhile, where the host is seen at work."""
    is_work = bool(context.timeline.devices) and sleeping <= MOSTLY_ASLEEP and is_seen(context)
    return ", while the host mostly computes" if is_work else ""


def _of_reading(read: FilesRead | None) -> dict[str, object]:
    if read is None:
        return {}
    return {"read_bytes": read.bytes, "reading_ns": read.reading_ns, "files": list(read.paths[:MOST_FILES])}


def _host_input(context: RuleContext) -> Iterator[Match]:
    """The GPU idles while the program waits for its next batch."""
    pieces, captured = host_pieces(context), context.trace.captured
    if not captured.nvtx and not len(pieces.of_kind(Idleness.INPUT)):
        raise CannotCheckError("the trace holds no NVTX ranges that show where input is fetched")
    for place in places(context, pieces.of_kind(Idleness.INPUT)):
        asleep, sleeping = pieces.asleep(place.rows), asleep_share(context, place)
        others = _workers_beside(context, place)
        threads = [thread for worker in others for thread in worker.threads]
        evidence, batch = _batch_uploaded(pieces, place)
        if slept := slept_on(context, asleep):
            evidence["slept_on_ns"] = slept
        if captured.cpu_scheduling:
            evidence |= _of_workers(others)
        when = f"{where_and_when(context, place)}{_at_work(context, sleeping)}"
        read = files_read(context, pieces.intervals(place.rows))
        meanwhile = "" if read is None else f"; the program {read} meanwhile"
        evidence |= _of_reading(read)
        yield match(
            context,
            place,
            f"{_what(context, place, sleeping, batch)}{when}{meanwhile}",
            "waits for input" if sleeping > MOSTLY_ASLEEP else "prepares input",
            evidence=evidence,
            advice=input_advice(context, place, sleeping, others),
            removed_least=HALF,
            asleep_fraction=sleeping,
            spots=hot_functions(context, place.rows, threads if sleeping > MOSTLY_ASLEEP and threads else None),
        ).advising(*_remedy(context, place, sleeping, others))


def _batch_uploaded(pieces: HostPieces, place: Place) -> tuple[dict[str, object], str]:
    """Evidence and words of the batch whose upload most of this time ends in; empty where it ends in something else."""
    uploads = pieces.batch_bytes[place.rows]
    if 2 * int(pieces.length_ns[place.rows][uploads > 0].sum()) <= place.total_ns:
        return {}, ""
    batch_bytes = round(median(uploads[uploads > 0]))
    return {"batch_bytes": batch_bytes}, f"its next batch ({size(batch_bytes)})"


def _what(context: RuleContext, place: Place, sleeping: float, batch: str) -> str:
    is_pause = sleeping > MOSTLY_ASLEEP and _only_sleeps(context, place)
    if context.timeline.devices:
        return f"the GPU waits for {batch or 'input'}{' while the host is in sleep()' if is_pause else ''}"
    if is_pause:
        return "the program is in sleep() where it fetches its input"
    return "the program waits for input" if sleeping > MOSTLY_ASLEEP else "the program prepares its input itself"


HOST_INPUT = Rule(
    id="host-input",
    title="The GPU waits for input",
    group="host",
    causes=(Cause.HOST_BLOCKED, Cause.CPU),
    check=_host_input,
)


_TO_BE_SURE = (
    "To be sure: boundby profile --torch-ops names the loader's part, or put annotate_loader of boundby.annotate "
    "around it"
)


def _between_steps(context: RuleContext) -> Iterator[Match]:
    """The GPU idles between two steps of a PyTorch program, and nothing says what for: most likely its input."""
    pieces = host_pieces(context)
    for place in places(context, pieces.of_kind(Idleness.BETWEEN)):
        asleep, sleeping = pieces.asleep(place.rows), asleep_share(context, place)
        spots = hot_functions(context, place.rows)
        does = "sleeps" if sleeping > MOSTLY_ASLEEP else "computes" if is_seen(context) else "computes or sleeps"
        hot = f" in {spots[0].short_symbol}" if spots and sleeping <= MOSTLY_ASLEEP else ""
        others = _workers_beside(context, place)
        yield match(
            context,
            place,
            f"between two steps the host {does}{hot} and the GPU idles, most likely for the next batch"
            f"{where_and_when(context, place)}",
            does,
            evidence={"slept_on_ns": slept} if (slept := slept_on(context, asleep)) else {},
            advice=(
                *input_advice(context, place, sleeping, others),
                *context.program.pick((), torch=(_TO_BE_SURE,)),
            ),
            removed_least=0.0,
            asleep_fraction=sleeping,
            spots=spots,
        ).advising(*_remedy(context, place, sleeping, others))


BETWEEN_STEPS = Rule(
    id="input-between-steps",
    title="The GPU idles between two steps",
    group="host",
    causes=(Cause.HOST_BLOCKED, Cause.CPU),
    check=_between_steps,
    needs=("cuda_api", "nvtx"),
)
