"""``boundby.trace_handler`` for ``torch.profiler``, and ``boundby.profiling``: a block around a loop.

torch is not imported before a program uses it. Traces are written as torch's own handler writes them, and analysed in a
process of their own (`apart`) once a cycle of the schedule is over: nothing runs inside of the recorded steps.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import importlib.util
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from boundby.integrations import apart
from boundby.integrations.apart import harmless, say, warn
from boundby.model import door
from boundby.model.errors import InputError, OutputError
from boundby.model.scale import GRACE_S

if TYPE_CHECKING:
    from boundby.integrations.call_lines import Alias
    from boundby.results.report import Report

#: How long rank 0 waits for the traces of the others: all ranks write at the same step.
FOLDER = "boundby-out/torch"
_SUFFIX = ".pt.trace.json"


class TracePlace(Struct, frozen=True):
    """This process's place among the ranks of a job."""

    rank: int
    ranks: int


def place_in_job() -> TracePlace:
    """What ``torch.distributed`` says, else what the launcher does; a program of one process is rank 0 of 1."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    with contextlib.suppress(Exception):
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return TracePlace(distributed.get_rank(), distributed.get_world_size())
    values = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    return TracePlace(*map(int, values)) if all(text.isdecimal() for text in values) else TracePlace(0, 1)


class TraceHandler:
    """What ``trace_handler`` gives: called by ``torch.profiler`` when a cycle of its schedule is over.

    ``report`` is the last cycle's Report, ``path`` its trace, ``page`` its page; None where there is none (yet).
    """

    def __init__(
        self, dir_name: str | os.PathLike[str], worker_name: str | None, use_gzip: bool, *, show: bool, lines: bool
    ) -> None:
        self._folder, self._worker, self._use_gzip = Path(dir_name), worker_name, use_gzip
        self.show, self._lines = show, lines
        self._first: str | None = None  # the first cycle's Report as JSON
        self._last: str | None = None
        self.cycles = 0
        self._before = frozenset(self._traces())
        self.path: Path | None = None
        self.page: Path | None = None

    def __call__(self, prof: Any) -> None:
        """Write the trace of a cycle; on rank 0 say what it shows."""
        with harmless("boundby.trace_handler"):
            self.cycles += 1
            self.path = self.page = self._last = None
            rank_place = place_in_job()
            self.path = self._write(prof, rank_place)
            if self.show and rank_place.rank == 0:
                self._tell(self.path, rank_place)

    def tell(self) -> None:
        """Say on rank 0 what the last cycle shows, where ``show=False`` left that for later."""
        with harmless("boundby's analysis"):
            if self.path is not None and (rank_place := place_in_job()).rank == 0:
                self._tell(self.path, rank_place)

    @property
    def report(self) -> Report | None:
        """The Report of the last cycle on rank 0; None: nothing was recorded, or it could not be analysed."""
        if self._last is None and self.path is not None:
            with harmless("boundby's analysis"):
                self._last = apart.ask(apart.Question(str(self.path))).report
        if self._last is None:
            return None
        from boundby.results import saved
        from boundby.results.report import Report

        return saved.loads(self._last, Report)

    def _write(self, prof: Any, place: TracePlace) -> Path:
        worker = self._worker or (f"rank{place.rank}" if place.ranks > 1 else f"{socket.gethostname()}_{os.getpid()}")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{worker}.{time.time_ns()}{_SUFFIX}"
        unfinished = path.with_name(f".{path.name}")
        try:
            prof.export_chrome_trace(str(unfinished))
            _check_whole(unfinished)
            if self._lines:
                from boundby.integrations import call_lines

                call_lines.add(prof, unfinished, self._aliases())
            if self._use_gzip:
                path = path.with_name(f"{path.name}.gz")
                with door.opened(unfinished) as plain, gzip.open(path, "wb", compresslevel=4) as packed:
                    shutil.copyfileobj(plain, packed)
            else:
                unfinished.replace(path)
        except BaseException:
            if self._use_gzip:
                path.unlink(missing_ok=True)  # what is cut short is no trace
            raise
        finally:
            with contextlib.suppress(OSError):
                for left in self._folder.glob(f"{unfinished.name}*"):  # torch's own, too
                    left.unlink()
        return path

    def _tell(self, path: Path, place: TracePlace) -> None:
        began = time.perf_counter()
        page = path.with_name(f"{path.name.partition(_SUFFIX)[0]}.html")
        ranks = self._of_all_ranks(place) if place.ranks > 1 else ()
        if place.ranks > 1 and not ranks:
            warn(f"the traces of all {place.ranks} ranks did not come in time. Later: boundby job {self._folder}")
        answer = apart.ask(apart.Question(str(path), str(page), self._first, ranks, *_surface()))
        self._last = answer.report
        self._first = self._first or answer.report
        if answer.page_problem:
            warn(f"no page: {answer.page_problem}")
        else:
            self.page = page
        self._print(answer, time.perf_counter() - began)

    def _print(self, answer: apart.ApartAnswer, seconds: float) -> None:
        if answer.changed:
            say(f"Since the first cycle: {answer.changed}")
        if answer.job:
            say(answer.job)
        if not answer.changed and not answer.job:
            say(answer.screen)
        shown = f"page {self.page}, " if self.page else ""
        say(f"boundby: trace {self.path}, {shown}{seconds:.1f} s outside of the recorded steps (show=False: none)")

    def _aliases(self) -> Mapping[str, Alias]:
        """What files are called in the trace, where that is not their name."""
        return {}

    def _of_all_ranks(self, place: TracePlace) -> tuple[str, ...]:
        """This cycle's trace of each rank, once all are there; () where they do not come."""
        until = time.monotonic() + GRACE_S
        while True:
            by_rank: dict[str, list[str]] = {}
            for name in sorted(set(self._traces()) - self._before):
                by_rank.setdefault(name.partition(".")[0], []).append(name)
            ready = [names[self.cycles - 1] for names in by_rank.values() if len(names) >= self.cycles]
            if len(ready) >= place.ranks:
                return tuple(str(self._folder / name) for name in sorted(ready))
            if time.monotonic() > until:
                return ()
            time.sleep(0.1)

    def _traces(self) -> list[str]:
        with contextlib.suppress(OSError):
            names = [path.name for path in self._folder.iterdir()]
            return [name for name in names if _SUFFIX in name and not name.startswith(".")]
        return []


def trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    *,
    show: bool = True,
) -> TraceHandler:
    """A handler for ``torch.profiler.profile(on_trace_ready=...)``, in place of ``tensorboard_trace_handler``.

    It writes each cycle's trace into ``dir_name``, and on rank 0 prints what the program is bound by, leaves a page
    beside the trace and says what changed since the first cycle; with several ranks it tells who holds up whom. The
    analysis runs in a process of its own when the recorded steps are over; its time is told.

    An error is one line on stderr, and the loop goes on.

    Args:
        dir_name: the folder for traces and pages; it is made.
        worker_name: how files begin. Without it: the rank, or host and process id.
        use_gzip: write ``.json.gz``.
        show: False only writes the traces.
    """
    return TraceHandler(dir_name, worker_name, use_gzip, show=show, lines=False)


class profiling:  # noqa: N801 (it reads as a function: with boundby.profiling() as p)
    """Record some steps of a loop: ``with boundby.profiling(wait=1, warmup=1, active=3) as p:``, with ``p.step()`` at
    the end of each step; then ``p.report``.

    torch's profiler records. Where ``boundby profile`` (or nsys) records already, and where torch is not there, the
    steps are NVTX ranges and nothing is recorded twice. An error of the recording is one line on stderr; what the
    block raises is raised.

    Args:
        wait, warmup, active: steps to let pass, to warm up with, to record.
        repeat: cycles of these; 0: to the end of the block.
        dir_name: the folder for traces and pages.
        show: print what it is bound by.
        with_stack, record_shapes, profile_memory, **profiler: as of ``torch.profiler.profile``.
    """

    def __init__(
        self,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        *,
        dir_name: str | os.PathLike[str] = FOLDER,
        show: bool = True,
        with_stack: bool = True,
        record_shapes: bool = True,
        profile_memory: bool = False,
        **profiler: Any,
    ) -> None:
        if min(wait, warmup, repeat) < 0 or active < 1:
            raise ValueError("profiling: wait, warmup and repeat are 0 or more, active is 1 or more.")
        self._rhythm = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        self._chosen = {"with_stack": with_stack, "record_shapes": record_shapes, "profile_memory": profile_memory}
        self._chosen |= profiler
        self._handler = TraceHandler(dir_name, None, True, show=show, lines=with_stack)
        self._show = show
        self._profiler: Any = None
        self._marks: Iterator[object] | None = None
        self._steps = 0

    def __enter__(self) -> profiling:
        with harmless("boundby.profiling"):
            if why := recorded_already() or _no_torch():
                self._mark(why)
            else:
                self._start()
        return self

    def step(self) -> None:
        """A step is over."""
        self._steps += 1
        if self._marks is not None:
            with harmless("boundby.profiling"):
                next(self._marks, None)
        elif self._profiler is not None:
            self._attempt(self._profiler.step)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        marks, self._marks = self._marks, None
        profiler, self._profiler = self._profiler, None
        with harmless("boundby.profiling"):
            if marks is not None:
                marks.close()  # type: ignore[attr-defined]
            if profiler is not None:
                self._handler.show &= kind is None  # who waits for an error waits for no analysis
                first = self._rhythm["wait"] + self._rhythm["warmup"]
                has_recorded = self._steps > first or first == 0
                if not has_recorded:
                    profiler.on_trace_ready = None
                profiler.__exit__(kind, error, traceback)
                if not has_recorded and kind is None:
                    raise InputError(
                        f"nothing was recorded: {self._steps} steps ended, and the first {first} are not recorded.",
                        f"Call step() after each of {first + self._rhythm['active']} steps, or use "
                        "boundby.profiling(wait=0, warmup=0).",
                    )

    def tell(self) -> None:
        """Say what the recorded steps show, where ``show=False`` left that for later."""
        self._handler.tell()

    @property
    def report(self) -> Report | None:
        """The Report of the last recorded steps; None where nothing was recorded."""
        return self._handler.report

    @property
    def path(self) -> Path | None:
        """Their trace."""
        return self._handler.path

    @property
    def page(self) -> Path | None:
        """Their page."""
        return self._handler.page

    def _start(self) -> None:
        profiler: Any = importlib.import_module("torch.profiler")
        made = profiler.profile(
            schedule=profiler.schedule(**self._rhythm), on_trace_ready=self._handler, **self._chosen
        )
        made.__enter__()
        self._profiler = made

    def _attempt(self, work: Callable[[], object]) -> None:
        """A profiler that fails once is asked no more."""
        succeeded = False
        with harmless("boundby.profiling"):
            work()
            succeeded = True
        if not succeeded:
            self._profiler = None

    def _mark(self, why: str) -> None:
        """Every step as a range, those to record inside of the range that nsys can be told to capture."""
        from boundby.annotate import backend, steps

        if self._show and backend() != "none":
            say(f"boundby.profiling: {why}, so steps are NVTX ranges here and nothing else is recorded.")
        elif self._show:
            say(
                f"boundby.profiling: {why}, and nothing here writes NVTX ranges, so nothing is recorded. To mark the "
                'steps: pip install "boundby[annotate]".'
            )
        first = self._rhythm["wait"] + self._rhythm["warmup"]
        self._marks = steps(iter(int, 1), warmup=first, active=self._rhythm["active"])
        next(self._marks)


def recorded_already() -> str:
    """Why nothing is to be recorded: a profiler that is around this program; empty: there is none."""
    if os.environ.get("BOUNDBY_TORCH_PROFILER"):
        return "boundby profile --with torch records this program"
    if os.environ.get("NSYS_PROFILING_SESSION_ID") or os.environ.get("NVTX_INJECTION64_PATH"):
        return "nsys records this program"
    return ""


def _no_torch() -> str:
    if sys.modules.get("torch") is None and importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    return ""


def _check_whole(path: Path) -> None:
    """torch says nothing when it cannot write all of a trace. Raises OutputError."""
    with contextlib.suppress(OSError), door.opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 64, 0))
        if re.search(rb"\}\s*$", file.read()):
            return
    free = shutil.disk_usage(path.parent).free
    raise OutputError(
        f"torch.profiler wrote no whole trace into {path.parent}.", f"{free / 1e6:,.0f} MB are free there."
    )


def _surface() -> tuple[int, bool]:
    """Columns of what is printed, and whether it shows more than ASCII."""
    width = shutil.get_terminal_size((100, 24)).columns if getattr(sys.stdout, "isatty", bool)() else 100
    try:
        "→─".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return width, False
    return width, True
