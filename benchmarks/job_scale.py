"""What jobs of many ranks cost, in CPU seconds and memory: summaries that are joined, or reports that are read first.

python -m benchmarks.job_scale --summaries 4096
python -m benchmarks.job_scale --reports 64 128 256 512 --kernels 100000

Reports are four different ones, each linked as often as it takes; one of the four is slow. Reading runs in processes of
its own, joining in this one. ``--kept FOLDER`` keeps summaries that were made there, and joins again what it holds.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.simulated.jobs import Job, Plant, simulate, write_export
from benchmarks.simulated.summaries import summaries
from boundby import api
from boundby.jobs.merge import merge
from boundby.jobs.rank_summary import RankSummary

#: Reports that differ, and what one step of them holds: 2,702 kernels and 100 collectives.
DIFFERENT, LAYERS, KERNELS = 4, 100, 9
#: Of summaries, how many ranks are tensor parallel, and for how many steps.
TENSOR, STEPS = 8, 6


def used() -> tuple[float, float, float]:
    """CPU seconds of this process and of those it started and saw end, and its own memory at its peak in GB."""
    mine, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime, theirs.ru_utime + theirs.ru_stime, mine.ru_maxrss / (1 << 20)


def made(ranks: int, kept: Path | None) -> list[RankSummary]:
    """So many summaries: simulated, or as they were kept."""
    file = None if kept is None else kept / f"{ranks}.pickle"
    if file is not None and file.exists():
        held: list[RankSummary] = pickle.loads(file.read_bytes())  # our own file
        return held
    job = Job(data=ranks // TENSOR, tensor=TENSOR, steps=STEPS, plants=(Plant("slow_device", 5, 0.2),))
    simulated = summaries(job, simulate(job))
    if file is not None:
        file.write_bytes(pickle.dumps(simulated))
    return simulated


def joined(ranks: int, kept: Path | None) -> str:
    """The join of so many summaries."""
    every = made(ranks, kept)
    before = used()
    report = merge(every, "simulated")
    after = used()
    return (
        f"{ranks} summaries, {report.collectives:,} collectives, {report.steps} steps: {after[0] - before[0]:.1f} CPU"
        f" s, {after[2]:.2f} GB at the peak, {before[2]:.2f} GB of it before; held up by"
        f" {[(one.kind, one.ranks, one.cause) for one in report.stragglers]}"
    )


def exports(folder: Path, kernels: int) -> list[Path]:
    """Different reports of about so many kernels."""
    steps = math.ceil(kernels / (3 * LAYERS * KERNELS + 2))
    job = Job(data=DIFFERENT, layers=LAYERS, kernels=KERNELS, steps=steps, plants=(Plant("slow_device", 3, 0.2),))
    return [write_export(run, folder / f"{run.rank}.sqlite") for run in simulate(job)]


def read(different: Sequence[Path], ranks: int) -> str:
    """Reports of so many ranks read and joined."""
    with tempfile.TemporaryDirectory(dir=different[0].parent) as folder:
        for rank in range(ranks):
            os.link(different[rank % len(different)], Path(folder) / f"rank_{rank}.sqlite")
        before = used()
        report = api.job([folder], workers=2)
        after = used()
    reader = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20)
    return (
        f"{ranks} reports, {report.collectives:,} collectives, {report.steps} steps: {after[1] - before[1]:.1f} CPU s"
        f" to read, {after[0] - before[0]:.1f} to join, {after[2]:.2f} GB at the peak and {reader:.2f} GB in one that"
        f" reads; held up by {[(one.kind, len(one.ranks), one.cause) for one in report.stragglers]}"
    )


def apart(work: Callable[[], object]) -> None:
    """In a process of its own, whose memory is its own; what it says is printed."""
    child = os.fork()
    if child == 0:
        print(work(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--summaries", type=int, nargs="*", default=[], help="how many ranks")
    parser.add_argument("--reports", type=int, nargs="*", default=[], help="how many ranks")
    parser.add_argument("--kernels", type=int, default=100_000, help="of each report")
    parser.add_argument("--kept", type=Path, help="a folder that summaries are kept in")
    chosen = parser.parse_args()
    for ranks in chosen.summaries:
        apart(partial(joined, ranks, chosen.kept))
    with tempfile.TemporaryDirectory() as folder:
        if chosen.reports:
            apart(lambda: f"{len(exports(Path(folder), chosen.kernels))} different reports")
        for ranks in chosen.reports:
            apart(partial(read, sorted(Path(folder).glob("*.sqlite")), ranks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
