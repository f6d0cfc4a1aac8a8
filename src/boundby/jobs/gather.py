"""Summaries of many reports, worked out side by side: in this process, in local ones, or on a dask cluster.

Each report is a task of its own, and none can take the others with it: what cannot be read is named, a worker that
dies gives its tasks to the others. Results do not depend on who worked out what.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from boundby.capture import folder as runs
from boundby.jobs.rank import summarise
from boundby.jobs.rank_summary import RankGroup, RankSummary, held_once
from boundby.model.errors import InputError, ToolError, UserError
from boundby.model.inputs import by_suffix, split_suffix
from boundby.model.late import expression
from boundby.model.scale import HABIT
from boundby.model.stage import stage
from boundby.opening import Progress, open_trace
from boundby.options import AnalysisOptions
from boundby.readers.nsys import export_kind
from boundby.trace.facts import ProgramEnd
from boundby.trace.program import program_end

#: A report whose worker dies so often is left out.
_TRIES = HABIT
_OWN = ("run.json", "report.json", "job.json")


#: What the name of a rank says where its report holds several.
_PART = expression(r" process (\d+)(?: GPU (\d+))?$")


class Gathered(Struct, frozen=True):
    """What became of one report: what its ranks did, or the problem with it; and how its program ended, where it says
    so."""

    name: str
    summaries: tuple[RankSummary, ...] = ()
    problem: str = ""
    program: ProgramEnd | None = None


def report_of(rank: str) -> str:
    """The name of the report that holds a rank of this name."""
    return rank.partition(" process ")[0]


def part_of(rank: str, options: AnalysisOptions) -> AnalysisOptions:
    """The options that choose a rank in its report by its name."""
    part = _PART.search(rank)
    if part is None:
        return options
    return replace(options, processes=(int(part[1]),), devices=(int(part[2]),) if part[2] else ())


def find_reports(given: Sequence[Path]) -> tuple[str, list[tuple[str, Path]]]:
    """What to call the job, and its reports: (name, path). A folder stands for all reports and runs in it. Raises
    InputError."""
    reports: dict[Path, None] = {}
    for path in given:
        if path.is_dir() and not _is_one(path):
            inside = list(_inside(path))
            if not inside:
                suffixes = ", ".join(suffix for suffix, _ in by_suffix(sought=True))
                hint = f"Give the folder that holds one report per rank. Names of reports end in {suffixes}."
                raise InputError(f"{path} holds no report.", hint)
            reports |= dict.fromkeys(inside)
        else:
            reports[path] = None
    base = (
        given[0]
        if len(given) == 1 and given[0].is_dir()
        else Path(os.path.commonpath([report.absolute().parent for report in reports]))
    )
    named = sorted((os.path.relpath(path, base) if base.is_dir() else str(path), path) for path in reports)
    return str(given[0]) if len(given) == 1 else named[0][0], named


def _is_one(folder: Path) -> bool:
    """Whether a folder holds one report or is one: a run's, even if what made it was cut short. PyTorch's
    profiler writes one a process."""
    made = any((folder / name).is_file() for name in (runs.EXPORT, runs.REPORT, runs.STREAM, runs.TORCH_TRACE))
    return made or export_kind(folder) is not None


def _inside(folder: Path) -> Iterator[Path]:
    chosen: dict[Path, tuple[int, Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if _is_one(path):
                yield path
            continue
        parts = split_suffix(path)
        if parts is None or path.name in _OWN:
            continue
        stem, order = path.with_name(parts[0]), [suffix for suffix, _ in by_suffix(sought=True)]
        chosen[stem] = min(chosen.get(stem, (len(order), path)), (order.index(parts[1]), path))
    yield from (path for _, path in chosen.values())


def read_rank(name: str, path: Path, options: AnalysisOptions) -> Gathered:
    """One report's summaries, or why there are none."""
    program = None
    try:
        trace = open_trace(path, options.nsys, _silent, keep_export=options.keep_export)
        program = program_end(trace)
        with stage("accounting", events=len(trace.operations) + len(trace.api) + len(trace.ranges)):
            return Gathered(name, tuple(summarise(trace, name)))
    except UserError as error:
        problem = error.message if name in error.message else f"{name}: {error.message}"
        return Gathered(name, problem=problem, program=program)
    except Exception as error:
        why = f"{name} could not be worked out ({type(error).__name__}: {error})."
        return Gathered(name, problem=why, program=program)


def gather(
    reports: Sequence[tuple[str, Path]],
    options: AnalysisOptions | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[list[RankSummary], list[Gathered]]:
    """All summaries, and the reports that are left out, in the order of the reports' names.

    ``workers``: local processes; 1: this one; None: one a core. ``scheduler``: the address of a dask scheduler, or
    ``local``.
    """
    ordered = each(reports, options, workers=workers, scheduler=scheduler, progress=progress)
    return [gathered for answer in ordered for gathered in answer.summaries], [
        gathered for gathered in ordered if gathered.problem
    ]


def each(
    reports: Sequence[tuple[str, Path]],
    options: AnalysisOptions | None = None,
    work: Callable[[str, Path, AnalysisOptions], Gathered] = read_rank,
    *,
    stage: str = "reading",
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[Gathered]:
    """What ``work`` answers of each report, in the order of the reports; a name stands for one."""
    chosen, tell = options or AnalysisOptions(), progress or _silent
    count = min(workers or os.cpu_count() or 1, len(reports))
    if scheduler is not None:
        answers = _on_cluster(reports, chosen, scheduler, workers, work)
    elif count > 1:
        answers = _in_processes(reports, chosen, count, work)
    else:
        answers = (work(name, path, chosen) for name, path in reports)
    by_name, groups_held = {}, dict[RankGroup, RankGroup]()
    for number, answer in enumerate(answers):
        summaries = tuple(held_once(summary, groups_held) for summary in answer.summaries)
        by_name[answer.name] = replace(answer, summaries=summaries)
        tell(f"{stage} {len(reports)} reports", (number + 1) / len(reports))
    return [by_name[name] for name, _ in reports if name in by_name]


def _in_processes(
    reports: Sequence[tuple[str, Path]],
    options: AnalysisOptions,
    workers: int,
    work: Callable[..., Gathered] = read_rank,
) -> Iterator[Gathered]:
    """In local processes. One that dies takes its pool with it: what was not done is done in a new one, and what was
    being done then by itself, so that a report that kills its reader is found and no other is blamed for it."""
    left = dict(reports)
    suspects: list[str] = []
    tries: dict[str, int] = {}
    while left:
        batch = suspects[:1] or [name for name in left if name not in suspects]
        size = min(workers, len(batch))
        pending: dict[Future[Gathered], str] = {}
        with ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("spawn")) as pool:
            queue = iter(batch)
            try:
                for name in [*itertools.islice(queue, 2 * size)]:
                    pending[pool.submit(work, name, left[name], options)] = name
                while pending:
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        answer = future.result()
                        left.pop(pending.pop(future))
                        suspects = [name for name in suspects if name in left]
                        yield answer
                        for name in itertools.islice(queue, 1):
                            pending[pool.submit(work, name, left[name], options)] = name
            except BrokenProcessPool:
                for name in sorted(pending.values()):
                    tries[name] = tries.get(name, 0) + 1
                    if tries[name] >= _TRIES:
                        left.pop(name)
                        yield Gathered(name, problem=f"{name}: the process that read it was killed {_TRIES} times.")
                suspects = sorted({*suspects, *pending.values()} & left.keys())


def _on_cluster(
    reports: Sequence[tuple[str, Path]],
    options: AnalysisOptions,
    scheduler: str,
    workers: int | None,
    work: Callable[[str, Path, AnalysisOptions], Gathered],
) -> Iterator[Gathered]:
    """On a dask cluster whose workers see the same files. A worker that dies gives its tasks to others."""
    try:
        import distributed
    except ImportError:
        raise ToolError("dask.distributed is not installed.", "pip install distributed") from None
    dask: Any = distributed
    cluster: Any = None
    if scheduler == "local":
        cluster = dask.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    try:
        client: Any = dask.Client(cluster or scheduler, timeout=30)
    except (OSError, ValueError, TimeoutError) as error:
        raise ToolError(f"No dask scheduler answers at {scheduler} ({error}).", "Start one: dask scheduler") from None
    try:
        futures = {
            client.submit(work, name, path.resolve(), options, pure=False, retries=_TRIES): name
            for name, path in reports
        }
        for future in dask.as_completed(list(futures)):
            name = futures[future]
            if future.status == "finished":
                yield future.result()
            else:
                yield Gathered(name, problem=f"{name}: no worker of the cluster could read it ({future.exception()}).")
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def _silent(_stage: str, _fraction: float | None) -> None:
    """No progress is shown."""
