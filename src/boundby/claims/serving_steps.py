"""A server's steps by kind and size, each with its own verdict: never one mean of prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import median, quantile
from boundby.model.causes import BUSY_CAUSES
from boundby.model.errors import SelectionError
from boundby.model.scale import HALF, LIST, SMALL, TENFOLD
from boundby.model.units import duration
from boundby.results.report import FirstResponse, NoGpuWork, RegionReport, Verdict
from boundby.results.serving_report import STEP_KINDS, ServingReport, ServingSteps, StepBudget, StepPhase
from boundby.stats.step_times import MeasuredSteps, measure_steps
from boundby.trace.vocabulary.range_names import is_found_step, without_layer

#: The quantile by which latencies of servers are promised and compared: their p99.
_HIGH = 0.99
#: A gap of so many steps is perhaps no work of the server's.
_LONG_GAP = TENFOLD


def serving_report(
    path: str, timeline: Timeline, regions: Sequence[RegionReport], no_gpu_work: NoGpuWork | None
) -> ServingReport:
    """The report of a trace that holds steps of a server. Raises SelectionError where it holds none."""
    if not timeline.devices:
        why = "" if no_gpu_work is None or no_gpu_work.is_host_only else f" ({no_gpu_work})"
        raise SelectionError(
            f"No GPU work is on record{why}: what a server's steps take cannot be told.",
            "boundby analyze says more. Engines work in processes of their own: nsys sees them with"
            " --trace-fork-before-exec=true (docs/serving.md).",
        )
    steps = measure_steps(timeline)
    groups = [] if steps is None else _groups(timeline, steps)
    is_found = any(path and is_found_step(path[-1]) for (_, path), _ in groups)
    if steps is None or not (any(steps.kinds) or is_found):
        raise SelectionError(
            "No steps of a server were found: no range has a name that vLLM, SGLang or TensorRT-LLM gives, and no"
            " attention kernel serves only prompts or only decoding.",
            "docs/serving.md says how to record them; boundby analyze takes any program.",
        )
    by_path = {region.path: region for region in regions}
    whole_ns = int((steps.step_ns + steps.gap_ns).sum())
    token_ns, generated_per_s = _paces(steps, whole_ns)
    return ServingReport(
        path=path,
        device=timeline.trace.gpus[steps.device.index].name,
        engine=steps.engines[0] if len(steps.engines) == 1 else "",
        named=all(step_kind is not None for step_kind in steps.told),
        steps=tuple(_steps(steps, rows, kind, where, by_path) for (kind, where), rows in groups),
        token_ns=token_ns,
        generated_per_s=generated_per_s,
        workers=steps.workers,
        overlaps=steps.overlaps,
        notes=tuple(_notes(steps, whole_ns, is_found)),
    )


def _paces(steps: MeasuredSteps, whole_ns: int) -> tuple[tuple[float, float] | None, float | None]:
    """Time per output token, median and p99, and tokens that all of these steps generate in a second; None: untold."""
    generating = _generating(steps)
    between = np.diff(steps.begin_ns[[count != 0 for count in generating]])
    generated = [count for count in generating if count is not None]
    is_told = None not in steps.kinds and len(between) >= 2
    is_known = whole_ns and any(generated) and len(generated) == len(generating)
    token_ns = (median(between), quantile(between, _HIGH)) if is_told else None
    return token_ns, sum(generated) * 1e9 / whole_ns if is_known else None


def _generating(steps: MeasuredSteps) -> list[int | None]:
    """How many requests generate a token in each step; None: some, or that is not told."""
    by_kind = ({"prefill": 0, "decode": size.requests} for size in steps.sizes)
    return [
        generates.get(kind or "") if named is None else named.generating
        for named, kind, generates in zip(steps.told, steps.kinds, by_kind, strict=True)
    ]


_Rows = npt.NDArray[np.intp]


def _groups(timeline: Timeline, steps: MeasuredSteps) -> list[tuple[tuple[str, tuple[str, ...]], _Rows]]:
    """Rows of the steps of each kind and region, prefill first, smaller ones before larger ones."""
    regions = timeline.ownership.regions
    by_path: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for at, (kind, row) in enumerate(zip(steps.kinds, steps.ranges.tolist(), strict=True)):
        by_path.setdefault((kind or STEP_KINDS[-1], regions.path(int(regions.of_range[row]))), []).append(at)
    sizes = [step_size.tokens or step_size.requests or 0 for step_size in steps.sizes]
    order = ("prefill", "mixed", "decode", "unknown")
    return sorted(
        ((key, np.array(rows, np.intp)) for key, rows in by_path.items()),
        key=lambda entry: (order.index(entry[0][0]), min(sizes[at] for at in entry[1].tolist()), entry[0][1]),
    )


def _steps(
    steps: MeasuredSteps,
    rows: _Rows,
    kind: str,
    path: tuple[str, ...],
    regions: dict[tuple[str, ...], RegionReport],
) -> ServingSteps:
    """One kind and size."""
    sizes, length, busy = [steps.sizes[row] for row in rows.tolist()], steps.step_ns[rows], steps.busy_ns[rows]
    requests = [step_size.requests for step_size in sizes if step_size.requests is not None]
    tokens = [step_size.tokens for step_size in sizes if step_size.tokens is not None]
    followed = rows[rows < len(steps) - 1]
    graph_fraction = float((busy * steps.graph_fraction[rows]).sum() / busy.sum()) if busy.any() else 0.0
    gap_ns = float(steps.gap_ns[followed].mean()) if len(followed) else 0.0
    whole_ns = float(length.mean()) + gap_ns
    outer, inner = regions.get(path), regions.get((*path, path[-1])) if path else None
    verdict, responses = _judged(outer, inner)
    return ServingSteps(
        kind=kind,
        path=path,
        requests=_median(requests),
        tokens=_median(tokens),
        count=len(rows),
        median_ns=median(length),
        p99_ns=quantile(length, _HIGH),
        host_gap_ns=_median(steps.gap_ns[followed]),
        gpu_busy_ns=median(busy),
        graph_fraction=round(graph_fraction, 4),
        tokens_per_s=round(sum(tokens) / len(tokens) * 1e9 / whole_ns, 3) if tokens and whole_ns else None,
        budget=_budget(steps, rows, graph_fraction, gap_ns),
        waited_ns=_mean(steps.waited_ns[rows]),
        hidden_ns=_mean(steps.hidden_ns[rows]),
        bound=verdict.bound,
        confidence=verdict.confidence,
        first_responses=responses,
        phases=_phases((*path, path[-1]) if inner is not None else path, outer, regions),
        communication=None if outer is None else outer.communication,
        mfu=_mfu(outer, float(length.mean())),
    )


def _judged(outer: RegionReport | None, inner: RegionReport | None) -> tuple[Verdict, tuple[FirstResponse, ...]]:
    """What is said of the steps' region; where nothing is, of the same step without what a tool put around it."""
    region = inner if outer and inner and outer.verdict.bound == "unknown" else outer
    return (Verdict("unknown", "low"), ()) if region is None else (region.verdict, region.first_responses)


def _budget(steps: MeasuredSteps, rows: _Rows, graph_fraction: float, gap_ns: float) -> StepBudget:
    busy_ns = float(steps.busy_ns[rows].mean())
    return StepBudget(
        graph_ns=round(busy_ns * graph_fraction, 1),
        other_ns=round(busy_ns * (1 - graph_fraction), 1),
        head_ns=_mean(steps.head_ns[rows]),
        inside_ns=_mean(steps.inside_ns[rows]),
        tail_ns=_mean(steps.tail_ns[rows]),
        gap_ns=round(gap_ns, 1),
    )


def _median(values: Sequence[int] | npt.NDArray[np.int64]) -> float | None:
    return median(values) if len(values) else None


def _mean(ns: npt.NDArray[np.int64]) -> float:
    return round(float(ns.mean()), 1)


def _phases(
    path: tuple[str, ...], step: RegionReport | None, regions: Mapping[tuple[str, ...], RegionReport]
) -> tuple[StepPhase, ...]:
    """The ranges that lie in a step, with what they take of one, most time first."""
    if step is None or not step.instances:
        return ()
    parts: dict[str, list[RegionReport]] = {}
    for own, region in regions.items():
        if own[:-1] == path and "::" not in own[-1]:  # the framework's operators are no parts of a step
            parts.setdefault(without_layer(own[-1]), []).append(region)
    busy = [cause.key for cause in BUSY_CAUSES]
    phases = [
        StepPhase(
            name=name,
            per_step=round(sum(figures.instances for figures in every) / step.instances, 3),
            host_ns=round(sum(figures.host.total_ns for figures in every) / step.instances, 1),
            device_ns=round(sum(figures.time[key] for figures in every for key in busy) / step.instances, 1),
        )
        for name, every in parts.items()
    ]
    return tuple(sorted(phases, key=lambda phase: (-max(phase.host_ns, phase.device_ns), phase.name))[:LIST])


def _mfu(step: RegionReport | None, length_ns: float) -> float | None:
    """What the matrix products of a step would take at the peak, of the step alone."""
    work = None if step is None else step.work
    if step is None or work is None or not work.at_peak_ns or not step.instances or not length_ns:
        return None
    if work.known_ns < HALF * work.kernels_ns:
        return None
    return round(work.at_peak_ns / step.instances / length_ns, 4)


def _notes(steps: MeasuredSteps, whole_ns: int, is_found: bool) -> Iterator[str]:
    waited = int(steps.waited_ns.sum())
    if waited > SMALL * whole_ns:
        yield (
            f"Besides, these steps wait for {duration(waited)} while no work on record runs: inside blocking calls, or"
            " with work that is launched and not begun. For what is not on record; that time is in no figure here."
        )
    if is_found:
        yield (
            "The program names no steps: they are told by what is launched between two waits, and their kind by kernels"
            " of attention. A step that is one CUDA graph without any in sight is taken to decode."
        )
    if None in steps.kinds:
        yield (
            "Whether some steps serve prompts or decode is not known: their kernels of attention do both. Names of"
            " steps tell it (docs/serving.md)."
        )
    if any(step_size.requests is None for step_size in steps.sizes):
        yield (
            "How many requests some steps serve is not known: neither a name nor a kernel of attention that is launched"
            " one by one tells it. A graph runs for the size that it was captured for, to which batches are padded."
        )
    if steps.workers > 1:
        yield f"{steps.workers} processes make such steps; the one whose steps work longest is shown."
    if len(steps) == 1:
        yield "There is one step only: neither the gap to the next one nor the time per output token can be told."
    if len(steps.engines) > 1:
        yield "Steps have the names of several engines."
    if steps.gap_ns.max() > _LONG_GAP * median(steps.step_ns):
        yield "Some gaps are many times as long as a step: perhaps there was no request. They are counted as they are."
