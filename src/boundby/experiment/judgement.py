"""From paces to the result: the fit, the bound, what limits the answer, and whether the verdict by trace agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from boundby.experiment import cycles
from boundby.experiment.cycles import BALANCED, OUTSIDE, SERIAL
from boundby.experiment.inside.conductor import CACHED
from boundby.experiment.planning import (
    DEVICE,
    HOST,
    INPUT,
    LARGE,
    Block,
    BlockPlan,
    Difference,
    FoundParts,
    Paces,
    PlannedFeed,
    compare,
    middle_mean,
    student_quantile,
)
from boundby.model import statistics
from boundby.model.scale import HALF, NOTABLE
from boundby.model.units import duration, percent, plural
from boundby.results.proof import Estimate, MeasuredCondition, Proof, ProvenPart, Removal
from boundby.results.report import DeviceReport, Report, ThreadReport, Verdict

#: How probable an answer has to be for each word of confidence.
_CONFIDENT = (("high", 0.95), ("medium", 0.8), ("low", 0.6))
UNKNOWN = "unknown"
#: An interval wider than this says little.
WIDE = HALF
#: The program changed if blocks without a delay differ by more than this between the two ends of the experiment.
DRIFT = NOTABLE
#: Waits for a core, and sleep, from this share of a step on are told.
CROWDED = NOTABLE

WHERE_HOST = {
    "begin": "before the launches (where the step begins)",
    "between": "between the launches (before the optimizer's)",
    "end": "after the last launch (before what waits at the end of the step)",
}
#: Causes of the verdict by trace -> the parts that they stand for.
PARTS_OF_CAUSE: Mapping[str, tuple[str, ...]] = {
    "gpu_compute": (DEVICE,),
    "gpu_comm": (DEVICE,),
    "gpu_copy": (DEVICE, HOST),
    "cpu": (HOST,),
    "cuda_api": (HOST,),
    "sync": (HOST, DEVICE),
    "host_blocked": (INPUT, HOST),  # the host's own waits in the OS are its work here
}


def judge(
    command: str,
    plan: BlockPlan,
    blocks: Sequence[Block | None],
    report: Report | None = None,
    removals: Sequence[Removal] = (),
    problem: str = "",
) -> Proof | None:
    """What the blocks say so far; None: not even one condition was measured. ``problem``: what ended them too early."""
    paces = compare(blocks)
    delayed = [difference for difference in paces.differences if difference.condition.delayed]
    if not delayed or not paces.base:
        return None
    program = plan.found
    tried = {part for difference in delayed for part in difference.condition.delayed}
    busy = {part: _busy(part, paces, program, report) for part in program.parts if part in tried}
    parts = tuple(busy)
    fitted = _fit(delayed, paces, program, busy)
    bound, confidence = _answer(fitted.likely)
    beyond, _ = _answer(fitted.beyond)
    if confidence == "high" and _is_open_to_doubt(paces, fitted, program):
        confidence = "medium"
    trace, agreement, because = _by_trace(report, bound, confidence, fitted, program)
    return Proof(
        command=command,
        steps=sum(block.steps for block in blocks if block is not None),
        step_ns=round(paces.step_ns),
        steps_by=told_source(program.source),
        spread_ns=_spread(paces),
        conditions=tuple(_conditions(paces)),
        parts=tuple(_part(part, plan, paces, fitted, busy[part]) for part in parts),
        bound=bound,
        confidence=confidence,
        bound_next=beyond if bound in parts and beyond not in (UNKNOWN, OUTSIDE) else None,
        likely={name: round(share, 3) for name, share in fitted.likely.items()},
        court_row=_court_row(bound, confidence, program),
        bound_by_trace=trace,
        agreement=agreement,
        agreement_because=because,
        removals=(*_removals(paces, report if program.feed else None), *removals),
        doubts=tuple(_doubts(plan, paces, fitted, blocks, problem)),
    )


def _fit(
    delayed: Sequence[Difference], paces: Paces, found: FoundParts, busy: Mapping[str, float | None]
) -> cycles.Fit:
    """What each part is worth, by the paces that its delays gave. ``busy``: each part's own time, where it is known."""
    measured = [
        cycles.DelayedPace(
            difference.delay_ns,
            difference.longer_ns,
            difference.error_ns,
            difference.freedom,
            difference.core_wait_ns,
            difference.beside_core_wait_ns,
        )
        for difference in delayed
    ]
    asleep = None if found.device else statistics.median([block.asleep_ns for block in paces.base])
    on_one_thread = found.feed is None or found.feed.kind == "main"
    whole = [part for part, busy_ns in busy.items() if on_one_thread and busy_ns is not None]
    reach = LARGE * paces.step_ns
    return cycles.fit(paces.step_ns, paces.error_ns, measured, busy, reach, paces.core_wait_ns, asleep, whole)


def told_source(source: str) -> str:
    """What marks the steps, for people."""
    if source.startswith("nvtx:"):
        return f"the NVTX range {source.split(':', 2)[2]!r}"
    return {
        "annotate.steps": "boundby.annotate.steps",
        "ProfilerStep": "the profiler's step()",
        "optimizer": "the optimizer's steps",
        "loader": "the loader's batches",
    }.get(source, source)


def _answer(likely: Mapping[str, float]) -> tuple[str, str]:
    best = max(likely, key=lambda name: likely[name])
    for word, least in _CONFIDENT:
        if likely[best] >= least:
            return best, word
    return UNKNOWN, "low"


def _busy(part: str, paces: Paces, found: FoundParts, report: Report | None) -> float | None:
    """What was measured of a part's own time a step: in the process itself, of a device by the report."""
    if part == INPUT:
        each = found.feed.each if found.feed else 1
        fetched = [block.fetch_ns / each for block in paces.base if block.fetch_ns is not None]
        return statistics.median(fetched) if fetched else None
    if part == DEVICE:
        return report.devices[0].gpu_utilization * paces.step_ns if report and report.devices else None
    if found.device or (found.feed is not None and found.feed.kind == "thread"):
        return None  # the host waits for those, too, where nobody sees it
    own = [block.pace_ns - block.wait_ns - block.core_wait_ns[HOST] for block in paces.base]
    return max(statistics.median(own), 0.0)


def _conditions(paces: Paces) -> Iterator[MeasuredCondition]:
    margin = paces.error_ns * student_quantile(paces.freedom)
    level = middle_mean(paces.free_ns)
    yield MeasuredCondition(
        delayed=(), delay_ns=0, blocks=len(paces.base), step_ns=_rounded(level - margin, level, level + margin)
    )
    for difference in paces.differences:
        middle = level + difference.value_ns
        yield MeasuredCondition(
            delayed=difference.condition.delayed,
            delay_ns=round(float(np.mean(list(difference.delay_ns.values()))) if difference.delay_ns else 0.0),
            blocks=difference.blocks,
            step_ns=_rounded(middle - difference.margin_ns, middle, middle + difference.margin_ns),
            removed=difference.condition.remedy,
        )


def _rounded(low: float, middle: float, high: float) -> tuple[float, float, float]:
    return round(low), round(middle), round(high)


def _part(part: str, plan: BlockPlan, paces: Paces, fitted: cycles.Fit, busy_ns: float | None) -> ProvenPart:
    worth = fitted.worth[part]
    return ProvenPart(
        part=part,
        where=where(part, plan),
        slope=_slope(part, paces),
        saved_per_ns=Estimate(worth.value, worth.low, worth.high),
        reach_ns=round(fitted.reach_ns[part]),
        busy_ns=None if busy_ns is None else round(busy_ns),
    )


def where(part: str, plan: BlockPlan) -> str:
    """Where a part was delayed."""
    if part == HOST:
        return WHERE_HOST[plan.place]
    if part == DEVICE:
        return f"{plan.found.device}, on the stream of the step"
    feed = plan.found.feed or PlannedFeed("main")
    return {
        "main": "the loader, on the thread of the steps",
        "thread": "the loader, on a thread of its own",
        "workers": f"the loader's {plural(feed.workers, 'worker')}",
    }[feed.kind]


def _slope(part: str, paces: Paces) -> Estimate:
    alone = [difference for difference in paces.differences if difference.condition.delayed == (part,)]
    if not alone:
        return Estimate(0.0, 0.0, 0.0)
    largest = max(alone, key=lambda difference: difference.delay_ns[part])
    delay = max(largest.delay_ns[part], 1.0)
    value, margin = largest.value_ns / delay, largest.margin_ns / delay
    return Estimate(round(value, 3), round(value - margin, 3), round(value + margin, 3))


def _removals(paces: Paces, report: Report | None) -> Iterator[Removal]:
    for difference in paces.differences:
        if difference.condition.remedy:
            measured = (
                round(-difference.value_ns - difference.margin_ns),
                round(-difference.value_ns + difference.margin_ns),
            )
            promised = promised_ns(report, difference.condition.remedy, middle_mean(paces.free_ns))
            yield Removal(id=difference.condition.remedy, promised_ns=promised, measured_ns=measured)


def promised_ns(report: Report | None, remedy: str, step_ns: float) -> tuple[float, float] | None:
    """What a report promises for a remedy or scenario, a step: its share of the window, of this program's step."""
    if report is None:
        return None
    share = next(_promised_shares(report, remedy), None)
    if share is not None:
        return round(step_ns * share[0]), round(step_ns * share[1])
    return _blocked_ns(report, step_ns) if remedy == CACHED and not report.devices else None


def _promised_shares(report: Report, remedy: str) -> Iterator[tuple[float, float]]:
    """Of the window, by predictions, then by what is to be done first."""
    for what_if in report.what_if:
        if what_if.scenario == remedy and what_if.baseline_ns:
            ends = (what_if.high_ns or what_if.predicted_ns, what_if.low_ns or what_if.predicted_ns)
            yield 1 - ends[0] / what_if.baseline_ns, 1 - ends[1] / what_if.baseline_ns
    accounts: list[DeviceReport | ThreadReport] = [*report.devices, *report.threads]
    for device in accounts:
        window = _window_ns(device)
        for response in device.first_responses:
            if response.id == remedy and response.saving_ns is not None and window:
                yield response.saving_ns[0] / window, response.saving_ns[1] / window


def _blocked_ns(report: Report, step_ns: float) -> tuple[float, float] | None:
    """Without a device nothing is replayed: the account's own share of the steps in which the host waits in the OS.

    Of steps without waits for a core, as ``step_ns`` is: a busy machine lengthens what is not blocked.
    """
    steps = max(
        (region for region in report.regions if len(region.path) == 1), key=lambda root: root.instances, default=None
    )
    whole = 0 if steps is None else sum(steps.time.values()) - steps.preempted_ns
    if steps is None or steps.instances < 2 or whole <= 0:
        return None
    blocked = step_ns * min(1.0, steps.time["host_blocked"] / whole)
    return round(blocked), round(blocked)


def _window_ns(account: DeviceReport | ThreadReport) -> int:
    return sum(account.time.values())


def _doubts(
    plan: BlockPlan, paces: Paces, fitted: cycles.Fit, blocks: Sequence[Block | None], problem: str
) -> Iterator[str]:
    """What keeps the answer from being sure."""
    yield from _doubts_of_run(plan, paces, blocks, problem)
    yield from _doubts_of_paces(plan.found, paces, fitted)
    yield from _doubts_of_parts(plan, paces, fitted)


def _doubts_of_run(plan: BlockPlan, paces: Paces, blocks: Sequence[Block | None], problem: str) -> Iterator[str]:
    """What was not measured, or not long enough."""
    counted = len([block for block in blocks if block is not None])
    if counted < len(plan.blocks):
        why = f" {problem}." if problem else ""
        yield f"The experiment ended early: {counted} of {len(plan.blocks)} blocks were measured.{why}"
    if _is_shaky(paces):
        yield "Too few blocks to tell how much they scatter: give more --steps."
    if not plan.found.is_steady:
        yield f"The steps had not settled after {plural(plan.found.warm_up_steps, 'step')} of warm-up."


def _doubts_of_paces(found: FoundParts, paces: Paces, fitted: cycles.Fit) -> Iterator[str]:
    """Steps whose lengths differ for other reasons than the delays."""
    short, long = _spread(paces)
    waits = {part: wait / paces.step_ns for part, wait in paces.core_wait_ns.items() if wait > CROWDED * paces.step_ns}
    if long > 2 * short and not (found.feed and found.feed.each > 1) and not waits:
        yield (
            f"Steps are of very different length: a tenth take less than {duration(short)}, a tenth more than "
            f"{duration(long)}. The answer is about the middle half of them."
        )
    drift = _drift(paces.free_ns)
    if drift is not None and abs(drift) > DRIFT:
        yield (
            f"The program or its machine changed meanwhile: steps without a delay were {percent(abs(drift))} "
            f"{'longer' if drift > 0 else 'shorter'} at the end than at the begin, waits for a core left out."
        )
    if fitted.misfit > 1.0:
        yield (
            "The delays do not add up as those of a pipeline do: what was measured is taken for "
            f"{fitted.misfit:.1f} times less exact."
        )
    if waits:
        waited = " and ".join(f"{part} waited for one for {percent(share)} of a step" for part, share in waits.items())
        yield (
            f"Other programs took the cores: {waited}. Without such waits a step takes "
            f"{duration(middle_mean(paces.free_ns))}. What a part is worth is given for all loads from none to this "
            "one; a free machine narrows it."
        )


def _doubts_of_parts(plan: BlockPlan, paces: Paces, fitted: cycles.Fit) -> Iterator[str]:
    """Parts of which the delays do not tell, or not all."""
    program = plan.found
    for part, worth in fitted.worth.items():
        if worth.high - worth.low > WIDE:
            yield f"{part}: {worth.low:.2f} to {worth.high:.2f} is too wide an interval to decide. Give more --steps."
    if program.feed is not None and program.feed.kind == "thread":
        yield "The queue of the loader's thread cannot be seen: it counts as empty once the steps get no batch."
    if _may_hide(paces, program):
        yield (
            "The loader is a thread of the steps' process. Where both work under one lock (the GIL is one), a delay "
            "before it is hidden, and that part is worth more than the table says."
        )
    if program.feed is None and any(block.remedy == CACHED for block in plan.blocks):
        yield "The program has no loader: batches from memory changed nothing, and what was measured of them is noise."
    if fitted.likely[OUTSIDE] > WIDE:
        yield (
            "A delay at these places costs little. Work at other places may set the pace, as under a lock (try "
            "--host-at), or something outside of the program."
        )
    if program.device is None:
        yield "No device was found to delay: what one is worth was not measured."


def _spread(paces: Paces) -> tuple[float, float]:
    short, long = np.quantile(paces.spans_ns, (0.1, 0.9))
    return float(short), float(long)


def _is_shaky(paces: Paces) -> bool:
    return any(difference.freedom < 2 or difference.error_ns == 0 for difference in paces.differences)


def _court_row(bound: str, confidence: str, found: FoundParts) -> dict[str, tuple[str, ...]]:
    """The causes that a verdict by trace can name to be right, where the experiment is sure."""
    parts = found.parts if bound == SERIAL else (bound,)
    causes = [cause for cause, stands_for in PARTS_OF_CAUSE.items() if set(parts) & set(_stands(stands_for, found))]
    return {"bound": tuple(causes)} if causes and confidence == "high" else {}


def _stands(parts: tuple[str, ...], found: FoundParts) -> tuple[str, ...]:
    """With a loader in the steps' own process, its work looks like the host's."""
    is_inside = found.feed is not None and found.feed.kind != "workers"
    return (*parts, INPUT) if HOST in parts and is_inside else parts


def _is_open_to_doubt(paces: Paces, fitted: cycles.Fit, found: FoundParts) -> bool:
    return _is_shaky(paces) or fitted.misfit > 1.0 or _may_hide(paces, found)


def _may_hide(paces: Paces, found: FoundParts) -> bool:
    """Whether the steps' thread may wait for a lock that the loader's thread holds."""
    if found.feed is None or found.feed.kind != "thread":
        return False
    return statistics.median([block.asleep_ns for block in paces.base]) > CROWDED * paces.step_ns


def _drift(base: Sequence[float]) -> float | None:
    third = len(base) // 3
    if not third:
        return None
    first, last = (statistics.median(part) for part in (base[:third], base[-third:]))
    return last / first - 1


def verdict_by_trace(report: Report) -> tuple[str, Verdict] | None:
    """The verdict on the device with the longest window, or on the thread with most time."""
    accounts: list[DeviceReport | ThreadReport] = [*report.devices] or [*report.threads]
    if not accounts:
        return None
    longest = max(accounts, key=_window_ns)
    return longest.verdict.bound, longest.verdict


def _by_trace(
    report: Report | None, bound: str, confidence: str, fitted: cycles.Fit, found: FoundParts
) -> tuple[str | None, str | None, str]:
    verdict = None if report is None else verdict_by_trace(report)
    if verdict is None:
        return None, None, ""
    named, by_trace = verdict
    causes = by_trace.mixed_of or (named,)
    stands_for = {part for cause in causes for part in _stands(PARTS_OF_CAUSE.get(cause, ()), found)}
    worth = {part: value.value for part, value in fitted.worth.items()}
    most = max(worth.values())
    values = ", ".join(f"{part} {value:.2f}" for part, value in worth.items())
    if not stands_for:
        return named, "trace doubted", f"The trace names no part of the program; measured: {values}."
    named_most = any(part in stands_for and value > most - WIDE / 2 for part, value in worth.items())
    if bound == BALANCED and len(causes) > 1:
        return named, "agree", f"No part alone saves much; a millisecond saved is worth: {values}."
    if named_most and bound not in (BALANCED, OUTSIDE, UNKNOWN):
        return named, "agree", f"A millisecond saved is worth: {values}."
    if bound == UNKNOWN or confidence == "low":
        doubted = "both doubted" if by_trace.confidence == "low" else "experiment doubted"
        return named, doubted, "The experiment is not sure: more --steps would tell."
    if stands_for <= {DEVICE} and DEVICE not in worth:
        return named, "experiment doubted", "The experiment could not delay the device that the trace names."
    unsure = " The trace is not sure either." if by_trace.confidence == "low" else ""
    return named, "trace doubted", f"A millisecond saved is worth: {values}.{unsure}"
