"""How often is boundby right? Random programs whose true answer is known, analyzed from their exports alone.

    python -m benchmarks.truth --programs 1000 --seed 0 --json truth.json
    python -m benchmarks.truth --programs 100 --only helper_threads --only lost_rows
    python -m benchmarks.truth --show 17 --only helper_threads --keep helper.sqlite
    python -m benchmarks.truth --pattern sync

The truth comes from running each program again, on an event-driven machine, without the cost in question
(`benchmarks.simulated.counterfactual`). The analysis sees nothing but the export. Verdicts are compared where the two
best removals differ by enough to be told apart; predicted windows are compared under every scenario. This share of the
programs is untidy in one to four ways (`benchmarks.simulated.untidy`); `--only` makes every program untidy in just the
given ways. `--pattern` tells the truth of a program of `boundby simulate`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles

from msgspec.structs import replace

import boundby
from benchmarks.simulated.counterfactual import CAUSES, Case, Truth, Truths, known_case
from benchmarks.simulated.generate import drawn_features, generate
from benchmarks.simulated.untidy import FEATURES
from boundby.model.scale import MANY
from boundby.model.units import duration
from boundby.results.report import DeviceReport, Report, WhatIf
from boundby.simulate.patterns import EVERY

#: This part of the programs is untidy.
UNTIDY_SHARE = 0.6
#: Three of seven real traces that record CUDA events lack the rows of the records; so does every so many-th export.
WITHOUT_RECORDS = 4
#: Verdicts are judged where the best removal leads by this much of the window.
DEVICE_MARGIN, REGION_MARGIN = 0.10, 0.03
#: A prediction further off than this, and called sure, is a confident wrong number.
FAR_OFF = 0.05
#: Causes of the host beside its waits.
HOST = ("cuda_api", "cpu", "host_blocked", "init")
#: What an idle device is not blamed for in a healthy program.
NO_BLAME = ("gpu_compute", "gpu_comm", "gpu_copy", "hidden", "unknown", "mixed")
#: A verdict that says that the trace cannot tell.
ABSTAINED = "unknown"
SHOWN_WORST = 15


@dataclass(frozen=True)
class Prediction:
    """A predicted window beside the true one. ``error``: predicted - true, as a fraction of the true window (or of 1 %
    of the measured one). ``confidence``: what the prediction says of itself, else the device's verdict."""

    scenario: str
    predicted_ns: int
    true_ns: int
    error: float
    confidence: str
    is_inside: bool | None  # the true window lies in the range that was told; None: no range was told


@dataclass
class Outcome:
    """What one program showed."""

    seed: int
    label: str
    features: tuple[str, ...]
    healthy: bool
    plain: bool
    has_records: bool
    devices: list[tuple[str, str, float]] = field(default_factory=list)  # truth, verdict, margin
    levels: list[str] = field(default_factory=list)  # the confidence of each device's verdict
    regions: list[tuple[str, str, str, float]] = field(default_factory=list)  # path, truth, verdict, margin
    predictions: list[Prediction] = field(default_factory=list)
    accused: list[str] = field(default_factory=list)  # regions of a healthy program that were given an idle bound
    unreliable: bool = False

    @property
    def errors(self) -> list[tuple[str, float]]:
        """(scenario, error) of every prediction."""
        return [(one.scenario, one.error) for one in self.predictions]

    @property
    def far_off(self) -> list[Prediction]:
        """Predictions that were called sure and are wrong."""
        return [one for one in self.predictions if one.confidence == "high" and abs(one.error) > FAR_OFF]


def made(seed: int, features: Sequence[str]) -> Case:
    """A seed's program with these features; every fourth export lacks the records of events."""
    case = generate(seed, features)
    if seed % WITHOUT_RECORDS == 0:
        case = replace(case, capture=replace(case.capture, event_records=False))
    return case


def examine(case: Case, folder: Path) -> Outcome:
    """Simulate, export, analyze, compare."""
    path = case.export().write(folder / f"{case.seed}.sqlite", "2023")
    report = boundby.analyze(path)
    path.unlink()
    return compare(case, report)


def compare(case: Case, report: Report) -> Outcome:
    """A report beside the truth."""
    found = Outcome(
        *(case.seed, case.label, case.features, case.healthy, case.is_plain, case.capture.event_records),
        unreliable=not report.what_if,
    )
    for device in report.devices:
        truth = case.truths.truth(device=device.id)
        right = right_answer(case.truths, truth, device.verdict.bound, DEVICE_MARGIN)
        found.devices.append((right, device.verdict.bound, truth.margin_fraction))
        found.levels.append(device.verdict.confidence)
        found.predictions += [
            _prediction(item, device, truth.scenarios[item.scenario], truth.window_ns)
            for item in report.what_if
            if item.device == device.id and item.scenario in truth.scenarios
        ]
    if len(report.devices) == 1:
        known = {"/".join(path): path for path in case.truths.regions()}
        for region in report.regions:
            name = "/".join(region.path)
            if name in known and region.share >= 0.01:
                truth = case.truths.truth(region=known[name], device=report.devices[0].id)
                right = right_answer(case.truths, truth, region.verdict.bound, REGION_MARGIN)
                found.regions.append((name, right, region.verdict.bound, truth.margin_fraction))
                if case.healthy and region.verdict.bound not in NO_BLAME:
                    found.accused.append(name)
    return found


def right_answer(truths: Truths, truth: Truth, verdict: str, margin: float) -> str:
    """The true bound; of one that waits bind, the verdict instead, if removing that cause of the host by itself saves
    more of the program as it ran than removing all waits does: then the waits are not what costs it most."""
    if truth.bound != "sync" or verdict not in HOST:
        return truth.bound
    waitless, without = (
        truths.window(CAUSES[cause], region=truth.region, device=truth.device) for cause in ("sync", verdict)
    )
    return verdict if waitless - without >= margin * truth.window_ns else truth.bound


def _prediction(item: WhatIf, device: DeviceReport, true_ns: int, window_ns: int) -> Prediction:
    error = (item.predicted_ns - true_ns) / max(true_ns, 0.01 * window_ns)
    low, high = getattr(item, "low_ns", None), getattr(item, "high_ns", None)
    slack = 0.005 * window_ns  # clocks and turns
    return Prediction(
        *(item.scenario, item.predicted_ns, true_ns, error),
        getattr(item, "confidence", device.verdict.confidence),
        None if low is None or high is None else low - slack <= true_ns <= high + slack,
    )


def _one(job: tuple[int, tuple[str, ...], str]) -> Outcome:
    seed, features, folder = job
    return examine(made(seed, features), Path(folder))


def wrong(found: Outcome) -> bool:
    """True if a verdict that could be told was wrong, or a prediction called sure was far off."""
    return (
        any(t != v and m >= DEVICE_MARGIN for t, v, m in found.devices)
        or any(t != v and m >= REGION_MARGIN for _, t, v, m in found.regions)
        or bool(found.far_off)
    )


def summary(outcomes: Iterable[Outcome]) -> dict[str, object]:
    """Agreement, confusion and errors, of all and by what is untidy."""
    outcomes = list(outcomes)
    untidy = [o for o in outcomes if o.features]
    groups = {
        "all": outcomes,
        "tidy": [o for o in outcomes if not o.features],
        "plain": [o for o in outcomes if o.plain],
        "without_event_records": [o for o in outcomes if not o.has_records],
        "untidy": untidy,
        **{name: [o for o in untidy if name in o.features] for name in FEATURES},
        **{f"{name} alone": [o for o in untidy if o.features == (name,)] for name in FEATURES},
    }
    scenarios = sorted({one.scenario for o in outcomes for one in o.predictions})
    return {
        "groups": {name: _figures(members) for name, members in groups.items() if members},
        "scenarios": {
            name: _spread([one.error for o in outcomes for one in o.predictions if one.scenario == name])
            for name in scenarios
        },
        "healthy": {"programs": sum(o.healthy for o in outcomes), "accused": sum(len(o.accused) for o in outcomes)},
        "device_confusion": _confusion([(t, v) for o in outcomes for t, v, m in o.devices if m >= DEVICE_MARGIN]),
        "region_confusion": _confusion([(t, v) for o in outcomes for _, t, v, m in o.regions if m >= REGION_MARGIN]),
        "wrong_seeds": [o.seed for o in outcomes if wrong(o)],
    }


def _figures(outcomes: list[Outcome]) -> dict[str, object]:
    predictions = [one for o in outcomes for one in o.predictions]
    sure = [one for one in predictions if one.confidence == "high"]
    inside = [one.is_inside for one in predictions if one.is_inside is not None]
    return {
        "programs": len(outcomes),
        "unreliable": sum(o.unreliable for o in outcomes),
        "devices": _agreement([(t, v) for o in outcomes for t, v, m in o.devices if m >= DEVICE_MARGIN]),
        "regions": _agreement([(t, v) for o in outcomes for _, t, v, m in o.regions if m >= REGION_MARGIN]),
        "errors": _spread([one.error for one in predictions]),
        "high": len(sure),
        "sure_verdicts_wrong": sum(
            (t != v and m >= DEVICE_MARGIN and level == "high")
            for o in outcomes
            for (t, v, m), level in zip(o.devices, o.levels, strict=True)
        ),
        "high_far_off": sum(abs(one.error) > FAR_OFF for one in sure),
        "in_range": sum(inside) / len(inside) if inside else None,
    }


def _agreement(pairs: list[tuple[str, str]]) -> dict[str, float | int | None]:
    right = sum(t == v for t, v in pairs)
    abstained = sum(t != v == ABSTAINED for t, v in pairs)
    return {"compared": len(pairs), "agreement": right / len(pairs) if pairs else None, "abstained": abstained}


def _spread(values: list[float]) -> dict[str, float] | None:
    sizes = sorted(abs(value) for value in values)
    if len(sizes) < 2:
        return None
    return {"count": len(sizes), "median": median(sizes), "p95": quantiles(sizes, n=20)[-1], "max": sizes[-1]}


def _confusion(pairs: list[tuple[str, str]]) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = {}
    for truth, verdict in pairs:
        table.setdefault(truth, Counter())[verdict] += 1
    return {truth: dict(sorted(row.items())) for truth, row in sorted(table.items())}


def table(found: dict[str, object]) -> str:
    """The figures of every group, a line each. ``?``: of the verdicts compared, those that say that the trace cannot
    tell; ``sure``: wrong verdicts on devices whose confidence is high."""
    lines = [
        f"{'':32} {'programs':>8} {'devices':>17} {'sure':>4} {'regions':>17} {'p95':>7} {'max':>7} {'high':>6} "
        f"{'far off':>12} {'in range':>8}"
    ]
    groups = found["groups"]
    assert isinstance(groups, dict)
    for name, of in groups.items():
        errors = of["errors"] or {"p95": 0.0, "max": 0.0}
        far = f"{of['high_far_off']} {of['high_far_off'] / of['high']:.1%}" if of["high"] else "-"
        inside = "-" if of["in_range"] is None else f"{of['in_range']:.1%}"
        lines.append(
            f"{name:32} {of['programs']:8} {_share(of['devices']):>17} "
            f"{of['sure_verdicts_wrong']:4} {_share(of['regions']):>17} "
            f"{errors['p95']:7.1%} {errors['max']:7.0%} {of['high']:6} {far:>12} {inside:>8}"
        )
    return "\n".join(lines)


def _share(of: dict[str, float | int | None]) -> str:
    if of["agreement"] is None:
        return "-"
    return f"{of['agreement']:.1%} of {of['compared']}" + (f" ?{of['abstained']}" if of["abstained"] else "")


def worst(outcomes: Iterable[Outcome], count: int = SHOWN_WORST) -> str:
    """The programs with the largest errors, those that were called sure before all others, and what shows them."""
    order = sorted(
        (o for o in outcomes if o.predictions or wrong(o)),
        key=lambda o: (
            -max((abs(one.error) for one in o.far_off), default=0.0),
            -max((abs(one.error) for one in o.predictions), default=0.0),
            o.seed,
        ),
    )
    lines = []
    for o in order[:count]:
        shown = o.far_off or o.predictions
        most = max(shown, key=lambda one: abs(one.error), default=None)
        error = f"{most.scenario} {most.error:+.0%} ({most.confidence})" if most else ""
        only = "".join(f" --only {name}" for name in o.features) or " --untidy-share 0"
        lines.append(f"--show {o.seed}{only}: {error} {'wrong' if wrong(o) else ''}")
    return "\n".join(lines)


def show(case: Case, keep: Path | None) -> str:
    """One program in full: what it is, its verdicts, every prediction beside the truth."""
    with tempfile.TemporaryDirectory() as folder:
        path = case.export().write(keep or Path(folder) / "case.sqlite", "2023")
        found = compare(case, boundby.analyze(path))
    lines = [f"{case.label}\n{case.machine}\n{case.capture}"]
    for process in case.program.processes:
        for thread in process.threads:
            lines.append(f"thread {thread.name}{' daemon' if thread.daemon else ''}")
            lines += [f"    {one}" for one in thread.body]
    lines += [f"device: {t} true, {v} told, ahead by {m:.1%}" for t, v, m in found.devices]
    lines += [f"region {name}: {t} true, {v} told, ahead by {m:.1%}" for name, t, v, m in found.regions]
    windows = ", ".join(f"{case.truths.window(device=device) / 1e6:.3f} ms" for device in case.truths.devices())
    lines.append(f"window {windows}")
    lines += [
        f"{one.scenario:20} {one.predicted_ns / 1e6:10.3f} told {one.true_ns / 1e6:10.3f} true {one.error:+8.1%} "
        f"{one.confidence} {'' if one.is_inside is None else 'in range' if one.is_inside else 'out of range'}"
        for one in found.predictions
    ]
    return "\n".join(lines)


def of_pattern(name: str, seed: int, steps: int = MANY) -> str:
    """What a program of ``boundby simulate`` is bound by, and its window without each cost, device by device."""
    truths = known_case(name, seed, steps).truths
    lines = []
    for one in (truths.truth(device=device) for device in truths.devices()):
        lines.append(f"GPU {one.device}: {one.bound}, {duration(one.window_ns)}")
        lines += [f"  {scenario:<20} {duration(window)}" for scenario, window in one.scenarios.items()]
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--untidy-share", type=float, default=UNTIDY_SHARE, help=f"[{UNTIDY_SHARE}]")
    parser.add_argument("--only", action="append", choices=sorted(FEATURES), default=[], help="just this; repeatable")
    parser.add_argument("--json", type=Path, help="write everything there, program by program")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", type=int, metavar="SEED", help="one program in full, and nothing else")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where --show writes the export")
    parser.add_argument("--pattern", choices=sorted(EVERY), help="the truth of this program, and nothing else")
    arguments = parser.parse_args()
    if arguments.pattern is not None:
        print(of_pattern(arguments.pattern, arguments.seed))
        return
    only = tuple(sorted(set(arguments.only)))
    if arguments.show is not None:
        print(
            show(made(arguments.show, only or drawn_features(arguments.show, arguments.untidy_share)), arguments.keep)
        )
        return
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(arguments.workers) as pool:
        seeds = range(arguments.seed, arguments.seed + arguments.programs)
        jobs = [(seed, only or drawn_features(seed, arguments.untidy_share), folder) for seed in seeds]
        outcomes = list(pool.map(_one, jobs))
    found = summary(outcomes)
    json.dump({key: value for key, value in found.items() if key != "groups"}, sys.stdout, indent=2)
    print(f"\n{table(found)}\n\nthe worst (python -m benchmarks.truth ...)\n{worst(outcomes)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**found, "outcomes": [asdict(o) for o in outcomes]}, indent=1))


if __name__ == "__main__":
    main()
