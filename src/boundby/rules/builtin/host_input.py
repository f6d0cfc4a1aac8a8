"""The GPU idles while the program waits for its next batch."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import scaled
from boundby.evidence.feeders import Worker, named_workers, workers
from boundby.evidence.host_idleness import (
    INPUT,
    HostPieces,
    Place,
    examples,
    host_pieces,
    hot_functions,
    named,
    places,
    saving,
    short_symbol,
    slept_on,
    times,
)
from boundby.model.causes import Cause
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    captured = context.trace.captured
    if not captured.nvtx and not len(pieces.of_kind(INPUT)):
        raise CannotCheckError("the trace holds no NVTX ranges that tell where input is fetched")
    for place in places(context, pieces, pieces.of_kind(INPUT)):
        asleep = place.rows[pieces.cause[place.rows] == Cause.HOST_BLOCKED]
        sleeping = pieces.total_ns(asleep) / max(place.total_ns, 1)
        others = workers(context, pieces.intervals(place.rows))
        threads = [thread for one in others for thread in one.threads]
        spots = hot_functions(context, pieces, place.rows, threads if sleeping > 0.5 and threads else None)
        evidence: dict[str, object] = {
            "idle_ns": place.total_ns,
            "count": place.times,
            "share_of_window_fraction": round(place.total_ns / max(context.window_ns, 1), 4),
            "host_asleep_fraction": round(sleeping, 3),
        }
        if len(asleep):
            evidence["slept_on_ns"] = slept_on(context, pieces, asleep)
        if captured.cpu_scheduling:
            evidence["worker_processes"] = sum(one.is_process for one in others)
            evidence["other_threads_running"] = sum(not one.is_process for one in others)
            evidence["their_cpu_utilization_fraction"] = round(_busy(others), 3)
        if spots:
            evidence["hottest_functions"] = named(spots)
        yield Match(
            region=place.region,
            title=f"the GPU idles for input: {times(place)}",
            evidence=evidence,
            saving_ns=scaled(saving(context, pieces, place), RULE.threshold(context, "removed_least"), 1.0),
            advice=_advice(context, pieces, place, sleeping, others),
            examples=examples(context, pieces, place.rows, "waits for input" if sleeping > 0.5 else "prepares input"),
            instances=place.times,
            cost_ns=place.total_ns,
        )


def _busy(others: list[Worker]) -> float:
    return sum(one.busy for one in others) / len(others) if others else 0.0


def _advice(
    context: RuleContext, pieces: HostPieces, place: Place, sleeping: float, others: list[Worker]
) -> tuple[str, ...]:
    is_python = context.is_python
    spots = hot_functions(context, pieces, place.rows)
    hot = f"; most of it is {short_symbol(spots[0].symbol)}" if spots else ""
    if sleeping <= 0.5:
        first = f"The launching thread prepares the batch itself{hot}: " + (
            "DataLoader(num_workers=4, pin_memory=True, persistent_workers=True) moves that to other processes"
            if is_python
            else "let another thread fill the next pinned buffer while this one is computed with"
        )
    elif not context.trace.captured.cpu_scheduling:
        first = (
            "More workers and prefetching (num_workers, prefetch_factor, persistent_workers=True); capture with "
            "--cpuctxsw=process-tree to see whether the workers compute or wait for storage"
        )
    elif others and max(one.busy for one in others) >= RULE.threshold(context, "busy_fraction"):
        busiest = [one for one in others if one.busy >= RULE.threshold(context, "busy_fraction")]
        wanted = 2 * max(sum(one.is_process for one in busiest), 1)
        more = (
            f"DataLoader(num_workers={wanted}) or more, or cheaper decoding and augmentation (a compiled decoder, "
            "transforms on whole batches or on the GPU)"
            if is_python
            else "more of them, or cheaper work in them"
        )
        first = f"{named_workers(busiest)} meanwhile: {more}"
    else:
        first = (
            "Nothing else of the trace runs meanwhile: the input comes from storage, the network or an unprofiled "
            "process. Prefetch more (prefetch_factor), cache, pack small files into large ones"
        )
    return (
        first,
        "Copy the next batch while this one computes: pinned memory, "
        f"{'.to(device, non_blocking=True)' if is_python else 'cudaMemcpyAsync'}, a stream of its own",
    )


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
