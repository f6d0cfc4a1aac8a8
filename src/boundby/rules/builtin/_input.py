"""What to do about input that comes too late: what the rules on it say alike."""

from __future__ import annotations

from boundby.evidence.context import RuleContext
from boundby.evidence.feeders import SATURATED, Worker, named_workers, waiting_share
from boundby.evidence.host_idleness import Place, hot_functions, slept_on
from boundby.model.units import percent

#: Of a thread that sleeps in a call which only lets time pass.
ON_PURPOSE = (
    "The program sleeps on purpose (sleep, nanosleep): polling with a pause costs the GPU that pause. Wait for an "
    "event instead"
)
# Workers that wait for a core for this share of the time gain nothing by others beside them.
CORES_TAKEN = 0.3


def input_advice(
    context: RuleContext, place: Place, sleeping: float, others: list[Worker], busy_fraction: float
) -> tuple[str, ...]:
    """Who makes the input, how busy they are, and so what to change. ``busy_fraction``: workers that run less wait."""
    program = context.program
    busiest = [one for one in others if one.busy >= busy_fraction]
    spots = hot_functions(context, place.rows)
    hot = f"; most of it is {spots[0].short_symbol}" if spots else ""
    processes = [one for one in busiest if one.is_process]
    helpers = [one for one in busiest if not one.is_process and one.busy >= SATURATED]
    if sleeping > 0.5 and helpers and processes:
        beside = f"while it waits; {named_workers(processes)}"
        return (
            f"The program's thread {helpers[0].number} runs at {percent(helpers[0].busy)} {beside}: "
            + program.pick(
                "one thread sets the pace: give it less to do, or let several share it",
                torch="pin_memory=True has one thread copy each batch once more, which no worker can speed up. "
                "Smaller types "
                "(uint8, half), fewer bytes, or batches that lie in one piece help",
            ),
        )
    if processes and waiting_share(processes) >= CORES_TAKEN:
        fewer = program.pick("fewer of them", torch="num_workers below the number of cores")
        return (
            f"{named_workers(processes)} meanwhile: the cores are taken, and more workers would only take turns. Give "
            f"them cores (a quiet machine, more CPUs for the job, {fewer}), or make their work cheaper",
        )
    if processes or (helpers and sleeping > 0.5):
        more = program.pick(
            "more of them, or cheaper work in them",
            torch=f"DataLoader(num_workers={2 * len(processes)}) or more, as far as there are cores, or cheaper "
            f"decoding and "
            "augmentation (a compiled decoder, transforms on whole batches or on the GPU)"
            if processes
            else "hand work to processes (num_workers), or make it cheaper",
        )
        return (f"{named_workers(busiest)} meanwhile: {more}",)
    if sleeping <= 0.5:
        first = f"The launching thread prepares the batch itself{hot}: " + program.pick(
            "let another thread fill the next pinned buffer while this one is computed with",
            torch="DataLoader(num_workers=4, pin_memory=True, persistent_workers=True) moves that to other processes",
        )
    elif not context.trace.captured.cpu_scheduling:
        first = program.pick(
            "Let what makes the input run ahead (more of it, a deeper queue); capture with --cpuctxsw=process-tree to "
            "see "
            "whether that computes or waits for storage",
            torch="More workers and prefetching (num_workers, prefetch_factor, persistent_workers=True); capture with "
            "--cpuctxsw=process-tree to see whether the workers compute or wait for storage",
        )
    elif runs := [one for one in others if one.is_process]:
        more = program.pick("more of them", torch=f"num_workers={2 * len(runs)}")
        they = "it waits" if len(runs) == 1 else "they wait"
        first = (
            f"{named_workers(runs)} meanwhile, and what {they} for besides is not on record (a core, storage, the "
            f"network): {more} where cores are free, fewer than cores where they are not, or cheaper work in each"
        )
    elif next(iter(slept_on(context, place.rows)), None) == "sleep":
        return (ON_PURPOSE,)
    else:
        first = (
            "Nothing else of the trace runs meanwhile: the input comes from storage, the network or an unprofiled "
            "process. "
            f"Prefetch more{program.pick('', torch=' (prefetch_factor)')}, cache, pack small files into large ones"
        )
    if not context.timeline.devices:
        return (first,)
    copy = program.pick("cudaMemcpyAsync", torch=".to(device, non_blocking=True)")
    return first, f"Copy the next batch while this one computes: pinned memory, {copy}, a stream of its own"
