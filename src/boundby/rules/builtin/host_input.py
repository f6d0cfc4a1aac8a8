"""The GPU idles while the program waits for its next batch."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.feeders import SATURATED, Worker, named_workers, workers
from boundby.evidence.host_idleness import Idleness, Place, host_pieces, hot_functions, places, slept_on
from boundby.model.causes import Cause
from boundby.model.units import percent
from boundby.rules.builtin._telling import asleep_share, match, where_and_when
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces, captured = host_pieces(context), context.trace.captured
    if not captured.nvtx and not len(pieces.of_kind(Idleness.INPUT)):
        raise CannotCheckError("the trace holds no NVTX ranges that tell where input is fetched")
    for place in places(context, pieces.of_kind(Idleness.INPUT)):
        asleep, sleeping = pieces.asleep(place.rows), asleep_share(context, place)
        others = workers(context, pieces.intervals(place.rows))
        threads = [thread for one in others for thread in one.threads]
        evidence: dict[str, object] = {}
        if len(asleep):
            evidence["slept_on_ns"] = slept_on(context, asleep)
        if captured.cpu_scheduling:
            evidence["worker_processes"] = sum(one.is_process for one in others)
            evidence["other_threads_running"] = sum(not one.is_process for one in others)
            busy = sum(one.busy for one in others) / len(others) if others else 0.0
            evidence["their_cpu_utilization_fraction"] = round(busy, 3)
        yield match(
            context,
            place,
            f"the GPU idles for input{where_and_when(context, place)}",
            "waits for input" if sleeping > 0.5 else "prepares input",
            evidence=evidence,
            advice=_advice(context, place, sleeping, others),
            removed_least=RULE.threshold(context, "removed_least"),
            asleep_fraction=sleeping,
            spots=hot_functions(context, place.rows, threads if sleeping > 0.5 and threads else None),
        )


def _advice(context: RuleContext, place: Place, sleeping: float, others: list[Worker]) -> tuple[str, ...]:
    program = context.program
    busiest = [one for one in others if one.busy >= RULE.threshold(context, "busy_fraction")]
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
    else:
        first = (
            "Nothing else of the trace runs meanwhile: the input comes from storage, the network or an unprofiled "
            "process. "
            f"Prefetch more{program.pick('', torch=' (prefetch_factor)')}, cache, pack small files into large ones"
        )
    copy = program.pick("cudaMemcpyAsync", torch=".to(device, non_blocking=True)")
    return first, f"Copy the next batch while this one computes: pinned memory, {copy}, a stream of its own"


RULE = Rule(
    id="host-input",
    title="The GPU waits for input",
    group="host",
    cause=Cause.HOST_BLOCKED,
    check=_check,
    needs=("cuda_api",),
    thresholds=(
        Threshold("removed_least", 0.5, "fraction", "Twice as many workers halve the wait; storage may not keep up."),
        Threshold("busy_fraction", 0.5, "fraction", "Workers that run less than half of the time wait for something."),
    ),
)
