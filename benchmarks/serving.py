"""Simulated servers with known answers: are kinds, sizes, step times and what hiding the host gains right?

    python -m benchmarks.serving [--servers 60] [--first 0] [--unnamed]
    python -m benchmarks.serving --unnamed [--servers 40] [--first 800]

Each is written as an export of nsys and as a trace of PyTorch's profiler. Truths: kinds and tokens by construction, a
step's time by the simulated clock (of servers that wait for their tokens in the step), and the gain by running the
server again on a host that takes no time. ``--unnamed``: servers that name no steps, with and without ranges around
their layers, as nsys (graphs node by node, and as a whole) and PyTorch's profiler record them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import boundby
from benchmarks.simulated.counterfactual import Truths
from benchmarks.simulated.server import Server, draw, step_times
from boundby.results.serving_report import ServingReport
from boundby.simulate.kineto import write_kineto
from boundby.simulate.nsys_export import Capture, write_export
from boundby.trace.vocabulary.range_names import fold_name


@dataclass(frozen=True)
class Score:
    """Errors of one server in one format, as fractions; None: not asked."""

    kinds: bool
    step: float | None
    gain: float

    def told(self) -> str:
        step = "" if self.step is None else f"  step {self.step:.2%}"
        return f"kinds {'right' if self.kinds else 'WRONG'}{step}  gain {self.gain:.2%}"


def score(server: Server, found: ServingReport) -> Score:
    """What was found against what is true."""
    expected: dict[str, int] = defaultdict(int)
    for batch in server.batches:
        expected[batch.kind] += 1
    counted: dict[str, int] = defaultdict(int)
    for one in found.steps:
        counted[one.kind] += one.count
    step = None
    if not server.overlaps:
        times = [(batch.kind, time) for batch, time in zip(server.batches, step_times(server.run()), strict=True)]
        errors = []
        for kind in expected:
            mine = sum(one.median_ns * one.count for one in found.steps if one.kind == kind) / counted[kind]
            rows = [one for one in found.steps if one.kind == kind]
            sizes = _medians(server, times, kind)
            true = sum(sizes[one.path[-1]] * one.count for one in rows) / counted[kind]
            errors.append(abs(mine / true - 1))
        step = max(errors)
    truth = Truths(server.program(), server.machine, server.seed).truth()
    saved = 1 - truth.scenarios["infinite_host"] / truth.window_ns
    period = sum(one.period_ns * one.count for one in found.steps)
    hidden = sum(one.hidden_ns * one.count for one in found.steps)
    return Score(dict(counted) == dict(expected), step, abs((1 - hidden / period) - saved))


def _medians(server: Server, times: list[tuple[str, int]], kind: str) -> dict[str, float]:
    """Of one kind the median time of each size, by the region's name."""
    of_size: dict[str, list[int]] = defaultdict(list)
    for number, (batch, (_, time)) in enumerate(zip(server.batches, times, strict=True)):
        if batch.kind == kind:
            of_size[fold_name(batch.name(server.engine, number))].append(time)
    return {size: statistics.median(every) for size, every in of_size.items()}


def both(server: Server, folder: Path) -> tuple[Score, Score]:
    """As nsys and as PyTorch's profiler record it."""
    run = server.run()
    nsys = write_export(run, folder / f"server_{server.seed}.sqlite", capture=Capture(graph_nodes=True))
    kineto = write_kineto(run, folder / f"server_{server.seed}.json")
    one, other = (score(server, boundby.serving(path)) for path in (nsys, kineto))
    return one, other


def unnamed(server: Server, folder: Path) -> list[bool]:
    """Of each of six traces of this server without names: whether its steps have the right kinds. What an overlapping
    server launches before its first wait is more than one step, and is left out."""
    expected = Counter(batch.kind for batch in server.batches[2 * server.overlaps :])
    found = []
    for layered in (False, True):
        run = replace(server, named=False, layered=layered).run()
        place = folder / f"unnamed_{server.seed}_{layered}"
        traces = [write_kineto(run, place.with_suffix(".json"))]
        for nodes in (True, False):
            path = Path(f"{place}_{nodes}.sqlite")
            traces.append(write_export(run, path, capture=Capture(graph_nodes=nodes)))
        for path in traces:
            counted: Counter[str] = Counter()
            for one in boundby.serving(path).steps:
                counted[one.kind] += one.count
            found.append(counted == expected)
            path.unlink()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--unnamed", action="store_true")
    chosen = parser.parse_args()
    if chosen.unnamed:
        with tempfile.TemporaryDirectory() as folder:
            seeds = range(chosen.first, chosen.first + chosen.servers)
            right = [one for seed in seeds for one in unnamed(draw(seed), Path(folder))]
        print(f"{len(right)} traces of {chosen.servers} servers without names: kinds right in {sum(right)}")
        return
    scores: list[Score] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(chosen.first, chosen.first + chosen.servers):
            server = draw(seed)
            made = both(server, Path(folder))
            scores += made
            if not all(one.kinds and (one.step or 0) < 0.01 and one.gain < 0.05 for one in made):
                told = " | ".join(one.told() for one in made)
                print(
                    f"{seed}: {server.engine}, graphs {server.graphs}, overlaps {server.overlaps}: {told}", flush=True
                )
    steps = [one.step for one in scores if one.step is not None]
    print(f"{len(scores)} traces of {chosen.servers} servers: kinds right in {sum(one.kinds for one in scores)}")
    print(f"step time off by {statistics.median(steps):.2%} (median), {max(steps):.2%} (worst)")
    gains = [one.gain for one in scores]
    print(
        f"gain of hiding the host off by {statistics.median(gains):.2%} (median), {max(gains):.2%} (worst) of the time"
    )


if __name__ == "__main__":
    main()
