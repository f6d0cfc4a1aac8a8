"""Does boundby ever say something wrong with confidence about a trace that lacks records? Thousands of damaged copies.

    python -m benchmarks.damage --copies 10000 --seed 0
    python -m benchmarks.damage --copies 500 --kind kernels-end --traces FOLDER --json damage.json

Each copy is a real trace (`--traces`, else `BOUNDBY_TRACES`) or the export of a simulated program, damaged by chance in
one way. The truth is what boundby says of the whole trace (of a copy that a capture range cut: of that span of it). An
answer on the copy agrees, abstains (``unknown``), or is an error; errors of high or medium confidence are *confident*.
Savings and predictions are held against the truth with their stated range, and 5 % of the window.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from benchmarks.simulated.generate import generate
from boundby.api import Analysis
from boundby.correlation.correlate import correlate
from boundby.model.errors import UserError
from boundby.opening import open_trace
from boundby.readers.plausible import without_broken
from boundby.results.report import DeviceReport, Verdict, WhatIf
from boundby.simulate.instructions import GraphLaunch, walk
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, work_of_call

Mask = npt.NDArray[np.bool_]
#: Larger traces are left out: thousands of copies are to be looked at.
MOST_OPERATIONS = 4_000
#: Under so much loss, this part of the verdicts must stand.
SMALL_LOSS, LEAST_STANDING = 0.02, 0.95
#: What a saving or prediction may be off by, of the window, beyond its stated range.
SLACK = 0.05
#: Of the copies, this part is of simulated programs.
SIMULATED = 0.6


@dataclass(frozen=True)
class Copy:
    """A damaged trace: how, by how much, and where the truth lies (None: in the whole trace)."""

    trace: Trace
    lost_fraction: float
    window: str | None = None


@dataclass
class Outcome:
    """What one copy showed."""

    source: str
    kind: str
    seed: int
    lost_fraction: float
    answer: str = "agrees"  # abstains, error, confident
    truth: str = ""
    found: str = ""
    confidence: str = ""
    why_not: str = ""
    wrong_figures: list[str] = field(default_factory=list)  # savings and predictions out of their range


Damage = Callable[[Trace, random.Random, float], Copy | None]


def _take(trace: Trace, kept: Mask, name: str) -> Trace:
    return replace(trace, **{name: getattr(trace, name).take(kept)})


def _some(rows: npt.NDArray[np.intp], size: int, chance: random.Random, fraction: float) -> Mask:
    """All of ``size`` but this fraction of ``rows``, taken by chance."""
    kept = np.ones(size, bool)
    gone = np.random.default_rng(chance.getrandbits(32)).random(len(rows)) < fraction
    kept[rows[gone]] = False
    return kept


def _drop_operations(trace: Trace, kept: Mask) -> Copy | None:
    lost = 1 - float(kept.mean()) if len(kept) else 0.0
    return Copy(_take(trace, kept, "operations"), lost) if lost and kept.any() else None


def _stretch(trace: Trace, chance: random.Random, fraction: float, *, at_end: bool) -> Copy | None:
    """Operations of one stretch of launches are gone: at the end, or in the middle."""
    order = np.argsort(trace.operations.start_ns, kind="stable")
    count = int(len(order) * fraction)
    first = len(order) - count if at_end else int(chance.random() * (len(order) - count))
    kept = np.ones(len(order), bool)
    kept[order[first : first + count]] = False
    return _drop_operations(trace, kept)


def _by_group(trace: Trace, chance: random.Random, fraction: float, group: npt.NDArray[np.int64]) -> Copy | None:
    numbers = np.unique(group)
    rows = np.flatnonzero(group == chance.choice(numbers.tolist()))
    return _drop_operations(trace, _some(rows, len(group), chance, fraction)) if len(rows) else None


def kernels_end(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    return _stretch(trace, chance, fraction, at_end=True)


def kernels_middle(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    return _stretch(trace, chance, fraction, at_end=False)


def kernels_random(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    count = len(trace.operations)
    return _drop_operations(trace, _some(np.arange(count), count, chance, fraction))


def kernels_stream(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    return _by_group(trace, chance, fraction, trace.operations.stream)


def kernels_thread(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    calls = correlate(trace)
    thread = np.append(calls.thread, -1)[calls.of_operation].astype(np.int64)
    return _by_group(trace, chance, fraction, thread)


def kernels_kind(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    return _by_group(trace, chance, fraction, trace.operations.kind.astype(np.int64))


def _drop_calls(trace: Trace, kept: Mask) -> Copy | None:
    lost = 1 - float(kept.mean()) if len(kept) else 0.0
    return Copy(_take(trace, kept, "api"), lost) if lost and kept.any() else None


def calls_random(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    count = len(trace.api)
    return _drop_calls(trace, _some(np.arange(count), count, chance, fraction))


def calls_end(trace: Trace, _chance: random.Random, fraction: float) -> Copy | None:
    order = np.argsort(trace.api.start_ns, kind="stable")
    kept = np.ones(len(order), bool)
    kept[order[len(order) - int(len(order) * fraction) :]] = False
    return _drop_calls(trace, kept)


def syncs_orphaned(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    """Calls that wait are gone, their rows in the table of syncs are not."""
    points = trace.stream_points
    known = np.isin(trace.api.correlation, points.correlation[~points.is_record])
    rows = np.flatnonzero(known & (trace.call_class[trace.api.name] == CallClass.SYNC))
    return _drop_calls(trace, _some(rows, len(trace.api), chance, fraction)) if len(rows) else None


def graph_rows(trace: Trace, _chance: random.Random, _fraction: float) -> Copy | None:
    """Nodes of graphs are recorded as one operation for each launch."""
    table = trace.operations
    launches = {number for number, name in enumerate(trace.names) if "GraphLaunch" in name and work_of_call(name)}
    calls = correlate(trace)
    is_graph = np.isin(np.append(calls.name, -1)[calls.of_operation], sorted(launches)) & (calls.of_operation >= 0)
    if not is_graph.any() or (table.kind == OpKind.GRAPH).any():
        return None
    rows = np.flatnonzero(is_graph)
    key = table.correlation[rows]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    start = np.full(len(first), np.iinfo(np.int64).max)
    end = np.full(len(first), np.iinfo(np.int64).min)
    np.minimum.at(start, group, table.start_ns[rows])
    np.maximum.at(end, group, table.end_ns[rows])
    columns = {name: getattr(table, name).copy() for name in ("start_ns", "end_ns", "kind", "name")}
    for name, values in (("start_ns", start), ("end_ns", end), ("kind", OpKind.GRAPH), ("name", -1)):
        columns[name][rows[first]] = values
    merged = replace(table, **columns).take(np.flatnonzero(np.isin(np.arange(len(table)), rows[first]) | ~is_graph))
    order = np.lexsort((merged.end_ns, merged.start_ns, merged.device))
    return Copy(replace(trace, operations=merged.take(order)), 0.0)


def os_calls_thinned(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    count = len(trace.os_calls)
    kept = _some(np.arange(count), count, chance, fraction)
    return Copy(_take(trace, kept, "os_calls"), 1 - float(kept.mean())) if count else None


def switches_thinned(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    count = len(trace.schedule)
    kept = _some(np.arange(count), count, chance, fraction)
    return Copy(_take(trace, kept, "schedule"), 1 - float(kept.mean())) if count else None


def clock_shifted(trace: Trace, chance: random.Random, _fraction: float) -> Copy | None:
    """The device's clock is ahead or behind."""
    shift = round(10 ** chance.uniform(4.5, 8.5)) * chance.choice((-1, 1))
    table = trace.operations
    moved = replace(table, start_ns=table.start_ns + shift, end_ns=table.end_ns + shift)
    return Copy(replace(trace, operations=moved), 0.0)


def window_cut(trace: Trace, chance: random.Random, fraction: float) -> Copy | None:
    """A capture range: what begins before it or ends after it is not recorded."""
    table = trace.operations
    low, high = int(table.start_ns.min()), int(table.end_ns.max())
    length = max(round((high - low) * (1 - min(fraction, 0.8))), 1)
    first = low + round(chance.random() * (high - low - length))
    last = first + length

    def inside(name: str) -> Any:
        part = getattr(trace, name)
        begin, end = part.start_ns, getattr(part, "end_ns", part.start_ns)
        return part.take((begin >= first) & (end <= last))

    calls = inside("api")
    key = trace.process_of_thread[calls.thread] * (1 << 40) + calls.correlation
    joined = np.isin(table.process.astype(np.int64) * (1 << 40) + table.correlation, key)
    kept = joined & (table.start_ns >= first) & (table.end_ns <= last)
    if kept.sum() < 20:
        return None
    span = (int(table.start_ns[kept].min()), int(table.end_ns[kept].max()))
    tables = {name: inside(name) for name in ("api", "ranges", "os_calls", "overhead", "schedule", "samples")}
    cut = replace(trace, operations=table.take(kept), **tables, span_ns=(first, last))
    return Copy(cut, 1 - float(kept.mean()), f"{span[0]}ns:{span[1]}ns")


def process_lost(trace: Trace, chance: random.Random, _fraction: float) -> Copy | None:
    """Nothing of one of several processes is left."""
    users = np.unique(trace.operations.process).tolist()
    if len(users) < 2:
        return None
    gone = chance.choice(users)
    of_thread = trace.process_of_thread != gone
    for name in ("api", "ranges", "os_calls", "overhead", "schedule", "samples"):
        trace = _take(trace, of_thread[getattr(trace, name).thread], name)
    return Copy(_take(trace, trace.operations.process != gone, "operations"), 0.0)


def one_time(trace: Trace, chance: random.Random, _fraction: float) -> Copy | None:
    """One wrong time in one row: as sqlite3's UPDATE would leave it, and as a reader then finds it."""
    table = chance.choice([name for name in ("api", "operations", "ranges", "os_calls") if len(getattr(trace, name))])
    rows = getattr(trace, table)
    row = chance.randrange(len(rows))
    start, end = rows.start_ns.copy(), rows.end_ns.copy()
    first, last = trace.span_ns
    how = chance.choice(("zero", "begin", "late", "early", "far", "open"))
    if how in ("zero", "begin"):
        start[row] = 0 if how == "zero" else first
    elif how == "early":
        start[row] -= round(10 ** chance.uniform(4, 8.5))
    elif how == "far":
        start[row] = first + round(chance.random() * (last - first))
    else:
        end[row] = last if how == "open" else end[row] + round(10 ** chance.uniform(4, 8.5))
    if table == "operations" and end[row] < start[row]:  # the reader leaves it out
        return None
    end[row] = max(end[row], start[row])
    moved = replace(rows, start_ns=start, end_ns=end).sorted(trace.names)
    return Copy(without_broken(replace(trace, **{table: moved})), 0.0)


DAMAGES: Mapping[str, Damage] = {
    "one-time": one_time,
    "kernels-end": kernels_end,
    "kernels-middle": kernels_middle,
    "kernels-random": kernels_random,
    "kernels-stream": kernels_stream,
    "kernels-thread": kernels_thread,
    "kernels-kind": kernels_kind,
    "calls-random": calls_random,
    "calls-end": calls_end,
    "syncs-orphaned": syncs_orphaned,
    "graph-rows": graph_rows,
    "os-calls-thinned": os_calls_thinned,
    "switches-thinned": switches_thinned,
    "clock-shifted": clock_shifted,
    "window-cut": window_cut,
    "process-lost": process_lost,
}


@dataclass(frozen=True)
class Answers:
    """What was said of each device, by its id."""

    devices: Mapping[int, DeviceReport]
    predictions: Mapping[tuple[int, str], WhatIf]


def answers(trace: Trace, window: str = "gpu") -> Answers:
    """Verdicts and predictions; none where there is no GPU work."""
    analysis = Analysis(trace, window=window)
    if not analysis.timeline.devices:
        return Answers({}, {})
    return Answers(
        {device.id: device for device in analysis.devices},
        {(item.device, item.scenario): item for item in analysis.what_if},
    )


def compare(outcome: Outcome, truth: Answers, found: Answers) -> Outcome:
    """The worst of all devices."""
    worst = 0
    for number, device in found.devices.items():
        true = truth.devices.get(number)
        if true is None:
            continue
        answer = _judged(true.verdict, device.verdict)
        if answer >= worst:
            worst = answer
            outcome.truth, outcome.found = _bound(true.verdict), _bound(device.verdict)
            outcome.confidence, outcome.why_not = device.verdict.confidence, device.verdict.why_not or ""
        if answer == 0:
            outcome.wrong_figures += _figures(number, true, device, truth, found)
    outcome.answer = ("agrees", "abstains", "error", "confident")[worst]
    return outcome


def _bound(verdict: Verdict) -> str:
    return "+".join(verdict.mixed_of) if verdict.mixed_of else verdict.bound


def _judged(true: Verdict, found: Verdict) -> int:
    """0 agrees, 1 abstains, 2 error, 3 confident error: what calls the other cause close behind is not confident, and
    what is said of the whole with low confidence shows nobody wrong."""
    if found.bound == "unknown":
        return 0 if true.bound == "unknown" else 1
    if set(_bound(true).split("+")) & set(_bound(found).split("+")):
        return 0
    close = {cause for doubt in found.uncertainties if doubt.kind in ("close", "turned") for cause in doubt.where}
    is_close = bool(close & set(_bound(true).split("+")))
    is_open = "low" in (found.confidence, true.confidence) or true.bound == "unknown" or is_close
    return 2 if is_open else 3


def _figures(number: int, true: DeviceReport, device: DeviceReport, truth: Answers, found: Answers) -> Iterator[str]:
    """Savings and predictions that are not what they would be, within what they say of themselves. As parts of their
    windows: of a longer or shorter window they are others."""
    if device.verdict.confidence == "low":
        return
    said, should = device.verdict, true.verdict
    if said.saving_ns is not None and should.saving_ns is not None and said.bound == should.bound:
        low, high = said.saving_range_ns or (said.saving_ns, said.saving_ns)
        part = should.saving_ns / true.window_ns
        if not low / device.window_ns - SLACK <= part <= high / device.window_ns + SLACK:
            yield f"saving {said.bound}: {part:.0%}, said {low / device.window_ns:.0%} to {high / device.window_ns:.0%}"
    for (of, scenario), item in found.predictions.items():
        other = truth.predictions.get((of, scenario))
        if of != number or other is None or other.baseline_ns == 0:
            continue
        low, high = (item.predicted_ns if end is None else end for end in (item.low_ns, item.high_ns))
        part = other.predicted_ns / other.baseline_ns
        if not low / item.baseline_ns - SLACK <= part <= high / item.baseline_ns + SLACK:
            yield f"{scenario}: {part:.0%}, said {low / item.baseline_ns:.0%} to {high / item.baseline_ns:.0%}"


@dataclass
class Sources:
    """Whole traces and what is said of them, read when first asked for."""

    folder: Path | None
    place: Path
    programs: int
    known: dict[str, tuple[Trace, Answers] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = sorted(self.folder.rglob("*.sqlite")) if self.folder else []
        self.real = [path for path in paths if path.stat().st_size < 60e6]

    def choose(self, chance: random.Random) -> str:
        if not self.real or chance.random() < SIMULATED:
            return f"simulated {chance.randrange(self.programs)}"
        return str(chance.choice(self.real))

    @cached_property
    def graphs(self) -> list[str]:
        """Simulated programs that launch CUDA graphs, recorded node by node: no real trace of that size is."""
        programs = {seed: generate(seed).program for seed in range(10 * self.programs)}
        threads = {
            seed: [thread for process in program.processes for thread in process.threads]
            for seed, program in programs.items()
        }
        return [
            f"nodes {seed}"
            for seed, found in threads.items()
            if any(isinstance(one, GraphLaunch) for thread in found for one in walk(thread.body))
        ]

    def get(self, name: str) -> tuple[Trace, Answers] | None:
        """None: nothing can be learnt from it."""
        if name not in self.known:
            self.known[name] = self._read(name)
        return self.known[name]

    def _read(self, name: str) -> tuple[Trace, Answers] | None:
        path = Path(name)
        is_simulated = name.startswith(("simulated", "nodes"))
        if is_simulated:
            case = generate(int(name.split()[1]))
            if name.startswith("nodes"):
                case = replace(case, capture=replace(case.capture, graph_nodes=True))
            path = case.export().write(self.place / f"{case.seed}.sqlite", "2023")
        try:
            trace = open_trace(path, None, lambda _stage, _part: None)
        except UserError:
            return None
        finally:
            if is_simulated:
                path.unlink()
        if not 20 <= len(trace.operations) <= MOST_OPERATIONS:
            return None
        return trace, answers(trace)


def damaged(sources: Sources, seed: int, kinds: Sequence[str]) -> tuple[Outcome, Copy, Trace, Answers] | None:
    """One copy; None: this trace cannot be damaged in this way."""
    chance = random.Random(f"damage {seed}")
    name, kind = sources.choose(chance), chance.choice(sorted(kinds))
    if kind == "graph-rows":
        name = chance.choice(sources.graphs)
    fraction = chance.uniform(0.002, 0.02) if chance.random() < 0.5 else chance.uniform(0.02, 0.99)
    source = sources.get(name)
    copy = None if source is None else DAMAGES[kind](source[0], chance, fraction)
    if source is None or copy is None:
        return None
    return Outcome(Path(name).stem, kind, seed, copy.lost_fraction), copy, *source


def run(copies: int, seed: int, kinds: Sequence[str], folder: Path | None) -> Iterator[Outcome]:
    """So many copies."""
    with tempfile.TemporaryDirectory() as place:
        sources = Sources(folder, Path(place), max(copies // 25, 40))
        number, done = seed * 1_000_000, 0
        while done < copies:
            number += 1
            made = damaged(sources, number, kinds)
            if made is None:
                continue
            outcome, copy, trace, truth = made
            try:
                if copy.window is not None:
                    truth = answers(trace, copy.window)
                yield compare(outcome, truth, answers(copy.trace))
            except UserError:
                continue  # nothing is said
            done += 1


def table(outcomes: Sequence[Outcome]) -> str:
    """By kind of damage, and all."""
    heads = f"{'copies':>7}{'stand':>7}{'abstain':>8}{'error':>7}{'confident':>10}{'figures':>8}"
    lines = [f"{'':18}{heads}{'<2 % lost':>12}{'stand':>7}"]
    for kind in (*sorted({item.kind for item in outcomes}), "all"):
        mine = [item for item in outcomes if kind in (item.kind, "all")]
        count = Counter(item.answer for item in mine)
        small = [item for item in mine if item.lost_fraction < SMALL_LOSS]
        stand = f"{sum(item.answer == 'agrees' for item in small) / len(small):.1%}" if small else "-"
        lines.append(
            f"{kind:18}{len(mine):>7,}{count['agrees']:>7,}{count['abstains']:>8,}{count['error']:>7,}"
            f"{count['confident']:>10,}{sum(bool(item.wrong_figures) for item in mine):>8,}{len(small):>12,}{stand:>7}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=sorted(DAMAGES))
    parser.add_argument("--traces", type=Path, default=os.environ.get("BOUNDBY_TRACES"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--show", type=int, default=20, help="So many of the worst.")
    chosen = parser.parse_args(arguments)
    folder = Path(chosen.traces) if chosen.traces else None
    outcomes = []
    for outcome in run(chosen.copies, chosen.seed, chosen.kind or sorted(DAMAGES), folder):
        outcomes.append(outcome)
        if len(outcomes) % 500 == 0:
            print(f"{len(outcomes):,} copies", file=sys.stderr)
    print(table(outcomes))
    wrong = [item for item in outcomes if item.answer in ("confident", "error") or item.wrong_figures]
    for item in sorted(wrong, key=lambda item: (item.answer != "confident", item.answer != "error"))[: chosen.show]:
        said = f"{item.truth}, said {item.found} ({item.confidence}) {'; '.join(item.wrong_figures[:3])}"
        print(f"{item.answer}: {item.source}, {item.kind} {item.lost_fraction:.1%} (seed {item.seed}): {said}")
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(item) for item in outcomes], indent=1), encoding="utf-8")
    return int(any(item.answer == "confident" for item in outcomes))


if __name__ == "__main__":
    sys.exit(main())
