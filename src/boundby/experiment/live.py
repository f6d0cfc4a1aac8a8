"""Run a program under experiment as a child process, and watch it through the folder that its processes write to; and
`boundby.prove`, the same of a function of this process."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.capture.launcher import INJECTED
from boundby.capture.nsys import handling
from boundby.capture.recording import check_program
from boundby.experiment import judgement, planning
from boundby.experiment.inside import FOLDER_VARIABLE, SETTINGS_VARIABLE, training_loop, trial
from boundby.experiment.inside.conductor import CACHED, END, Conductor, FolderPlanner
from boundby.experiment.inside.delayed_device import DelayedDevice, SpinningCuda
from boundby.experiment.inside.ledger import Ledger
from boundby.experiment.inside.training_loop import ANNOTATED
from boundby.experiment.judgement import promised_ns, told_source
from boundby.experiment.planning import Block, BlockPlan, ExperimentError, compare, read_block, student_quantile
from boundby.model import door
from boundby.model.errors import UserError
from boundby.model.scale import GRACE_S
from boundby.model.units import duration, plural
from boundby.results.proof import Proof, Removal
from boundby.results.report import Report
from boundby.trace.facts import JobPlace

Progress = Callable[[str, "float | None"], None]
Say = Callable[[str], None]

LOOK_S = 0.05


class Wanted(Struct, frozen=True):
    """What is asked for."""

    program: tuple[str, ...]
    steps: int | None = None
    place: str = "begin"
    step_name: str | None = None
    removals: tuple[str, ...] = ()
    run_on: bool = False
    remedy: str | None = None
    """Tried in the whole run, in which nothing is delayed; empty: the run to hold it against."""


class ProgramRun(Struct, frozen=True):
    """A program that has ended, and what was measured until then."""

    exit_code: int
    plan: BlockPlan | None
    blocks: tuple[Block | None, ...]
    losses: tuple[float | None, ...]
    told: Mapping[str, Any] | None
    problem: str
    was_interrupted: bool

    @property
    def is_complete(self) -> bool:
        """Whether all blocks were run."""
        return self.plan is not None and len(self.blocks) == len(self.plan.blocks)

    @property
    def why_nothing(self) -> ExperimentError:
        """Of a program that ended well, and nothing was measured."""
        if self.problem:
            return ExperimentError(f"The experiment has failed: {self.problem}.", planning.MARK)
        if self.plan is None:
            return planning.nothing_found(self.told)
        return ExperimentError("The program ended before anything was measured.", "Let it run for more steps.")


def run(wanted: Wanted, *, say: Say, progress: Progress) -> ProgramRun:
    """Run the program to the end of the experiment, or its own.

    Raises:
        ProgramError: there is no such program.
        ExperimentError: there can be no experiment on it.
    """
    check_program(wanted.program)
    job_place = JobPlace.in_environment(os.environ)
    if (job_place.world_size or 1) > 1:
        raise ExperimentError(
            f"This is rank {job_place.rank} of a job of {job_place.world_size}: a delay here would hold up the others.",
            "Run the program on one rank, or look at the job: boundby job.",
        )
    with tempfile.TemporaryDirectory(prefix="boundby-prove-") as folder:
        child = subprocess.Popen(list(wanted.program), env=environment(os.environ, folder, wanted))
        watched = Watched(Path(folder), wanted, say, progress)
        try:
            with _interrupts() as interrupts:
                was_ended = _watch(child, watched, interrupts)
        except BaseException:
            _end(child)
            raise
        watched.look()
        watched.close()
        code = 0 if was_ended else child.returncode
        return ProgramRun(
            code if code >= 0 else 128 - code,
            watched.plan,
            tuple(watched.blocks),
            tuple(watched.losses),
            watched.told,
            watched.problem,
            bool(interrupts),
        )


def environment(env: Mapping[str, str], folder: str, wanted: Wanted) -> dict[str, str]:
    """``env`` with the way into the program."""
    path = os.pathsep.join(filter(None, (str(INJECTED), env.get("PYTHONPATH", ""))))
    settings: dict[str, Any] = {"run_on": wanted.run_on, "kept": bool(wanted.removals)}
    if wanted.remedy is not None:
        settings["remedy"] = wanted.remedy
    changed = trial.ENVIRONMENTS.get(wanted.remedy or "", {})
    return {**env, **changed, "PYTHONPATH": path, FOLDER_VARIABLE: folder, SETTINGS_VARIABLE: json.dumps(settings)}


class Watched:
    """What the folder says, read as it grows."""

    def __init__(self, folder: Path, wanted: Wanted, say: Say, progress: Progress) -> None:
        self._folder, self._wanted, self._say, self._progress = folder, wanted, say, progress
        self._read = 0
        self.plan: BlockPlan | None = None
        self.blocks: list[Block | None] = []
        self.losses: list[float | None] = []
        self.told: Mapping[str, Any] | None = None
        self.problem = ""
        self.is_done = False
        self.leaves = True

    def look(self) -> None:
        """Read what was added."""
        for line in self._lines():
            kind = line.pop("kind")
            if kind == "found" and self.plan is None:
                self.told = line
                self._try_plan(line)
            elif kind == "block" and self.plan is not None:
                self._add(line)
            elif kind == "problem":
                self.problem = line["what"]
            elif kind == "done":
                self.is_done = True
                self.leaves = line["leaves"]
                self._keep_losses(line)

    def close(self) -> None:
        """The program has ended."""
        self._progress("", None)

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            with door.opened(self._folder / "said") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    def _try_plan(self, told: dict[str, Any]) -> None:
        self._keep_losses(told)
        program = planning.look(told, named=self._wanted.step_name)
        if program is None:
            self._progress("warming up", None)
            return
        wanted = self._wanted
        self.plan = planning.plan(
            program,
            wanted.steps,
            place=wanted.place,
            removals=wanted.removals,
            without_delays=wanted.remedy is not None,
        )
        planning.make_folder_ready(self._folder, self.plan)
        self._say(costs(self.plan))

    def _keep_losses(self, told: Mapping[str, Any]) -> None:
        self.losses = [None if loss is None else float.fromhex(loss) for loss in told.get("losses", ())]

    def _add(self, line: Mapping[str, Any]) -> None:
        assert self.plan is not None
        each = self.plan.found.feed.each if self.plan.found.feed else 1
        self.blocks.append(read_block(line, self.plan.blocks[line["number"]], each))
        self._progress("block by block", len(self.blocks) / len(self.plan.blocks))


def costs(plan: BlockPlan) -> str:
    """What the experiment takes, before it begins."""
    program = plan.found
    different = len(set(plan.blocks))
    feed = "" if program.feed is None else f", loader: {program.feed.kind}"
    return (
        f"steps by {told_source(program.source)}, {duration(program.step_ns)} each{feed}; "
        f"{plural(different, 'condition')} in "
        f"{len(plan.blocks)} blocks of {plan.count} steps: {plan.all_steps:,} steps, about {duration(plan.time_ns)}"
    )


def _watch(child: subprocess.Popen[bytes], watched: Watched, interrupts: list[int]) -> bool:
    """Until the program has ended. It gets Ctrl-C itself; a second one ends it.

    True: it was ended since the experiment was over.
    """
    asked = 0.0
    while child.poll() is None:
        watched.look()
        if len(interrupts) > 1:
            _end(child)
        if watched.is_done and not watched._wanted.run_on:
            asked = asked or time.monotonic()
            if not watched.leaves or time.monotonic() - asked > GRACE_S:
                _end(child)
                return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(LOOK_S)
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S / 4)
        child.kill()
        child.wait()


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Count Ctrl-C instead of ending: what is known so far is told."""
    seen: list[int] = []
    with handling(lambda number, _frame: seen.append(number), signal.SIGINT):
        yield seen


# Remedies tried on the program: in blocks of the experiment, or in whole runs with and without.

#: Tried in whole runs: once without, twice with, twice without, ...
WHOLE = (*trial.REMEDIES, *trial.ENVIRONMENTS)
#: The order of those runs: a drift of the machine that is even over them cancels out.
TURNS = (False, True, True, False, False, True)


def check(remedies: Sequence[str]) -> None:
    """Raises ExperimentError for what cannot be tried."""
    for remedy in remedies:
        if remedy not in (CACHED, *WHOLE):
            raise ExperimentError(
                f"{remedy!r} cannot be tried on a running program.", f"These can: {', '.join((CACHED, *WHOLE))}."
            )


def try_whole(wanted: Wanted, remedy: str, report: Report | None, say: Say, progress: Progress) -> list[Removal]:
    """What a remedy saves by runs with and without it; nothing if a run did not come far enough."""
    say(f"trying {remedy}: {len(TURNS)} short runs of the program, every other pair of them with it")
    sides: dict[bool, list[ProgramRun]] = {False: [], True: []}
    for number, changed in enumerate(TURNS):
        progress(f"trying {remedy}", number / len(TURNS))
        chosen = replace(wanted, remedy=remedy if changed else "", removals=(), run_on=False)
        ran = run(chosen, say=lambda _costs: None, progress=lambda _what, _share: None)
        if ran.was_interrupted or not any(ran.blocks):
            say(f"{remedy}: a run {'with' if changed else 'without'} it ended before it was measured. {ran.problem}")
            return []
        sides[changed].append(ran)
    without, changed_paces = ([compare(ran.blocks).step_ns for ran in sides[side]] for side in (False, True))
    saved, margin = _difference(without, changed_paces)
    return [
        Removal(
            id=remedy,
            promised_ns=promised_ns(report, remedy, float(np.mean(without))),
            measured_ns=(round(saved - margin), round(saved + margin)),
            outputs=_outputs(*(ran.losses for ran in (*sides[False][:2], sides[True][0]))),
        )
    ]


def _difference(without: Sequence[float], changed: Sequence[float]) -> tuple[float, float]:
    """Of the means, and half the width of its interval (Student's t, the same spread on both sides)."""
    freedom = len(without) + len(changed) - 2
    spread = (len(without) - 1) * np.var(without, ddof=1) + (len(changed) - 1) * np.var(changed, ddof=1)
    error = (spread / freedom * (1 / len(without) + 1 / len(changed))) ** 0.5
    return float(np.mean(without) - np.mean(changed)), float(error) * student_quantile(freedom)


def _outputs(before: Sequence[float | None], again: Sequence[float | None], after: Sequence[float | None]) -> str:
    if list(before) != list(again):
        return "The program's losses differ from run to run by themselves: give it a seed to compare them."
    pairs = [
        (earlier, later)
        for earlier, later in zip(before, after, strict=False)
        if earlier is not None and later is not None
    ]
    if not pairs:
        return "No losses were seen to compare."
    if all(earlier == later for earlier, later in pairs):
        return f"The first {len(pairs)} losses are equal to the bit."
    most = max(abs(later - earlier) / max(abs(earlier), abs(later)) for earlier, later in pairs if earlier != later)
    return f"The first {len(pairs)} losses differ by up to {100 * most:.2g} %."


# The experiment on a function of this process, called step after step.


def prove(
    step_function: Callable[..., object],
    *,
    loader: Iterable[Any] | None = None,
    steps: int | None = None,
    device: DelayedDevice | None = None,
    report: Report | None = None,
    cached_batches: bool = False,
) -> Proof:
    """What each part of a step is worth, by delays: of the host, of ``loader`` and of the device.

    ``step_function`` is called with each batch of ``loader`` (again from its begin when it ends), or without one,
    until the experiment is over: as often as makes a good answer, or about ``steps`` times. CUDA is the device where
    the process has started it; another one keeps the protocol of ``DelayedDevice``. ``report`` is a verdict by trace
    to hold it against. ``cached_batches`` measures what batches from memory save; what steps on those change in torch
    is put back. Ctrl-C ends it with what is known.

    Raises:
        ExperimentError: there can be no experiment, or it ended before anything was measured.
    """
    removals = (CACHED,) if cached_batches and loader is not None else ()
    with tempfile.TemporaryDirectory(prefix="boundby-prove-") as folder:
        wanted = Wanted((_name(step_function),), steps, removals=removals)
        watched = Watched(Path(folder), wanted, lambda _costs: None, lambda _what, _share: None)
        conductor = Conductor(Ledger(folder), _Planner(Ledger(folder), watched), ends_program=False)
        conductor.kept.is_wanted = bool(removals)
        conductor.device = _cuda() if device is None else device
        try:
            with _hooked_up(conductor, folder), contextlib.suppress(KeyboardInterrupt):
                _run(step_function, loader, conductor)
        finally:
            atexit.unregister(conductor.ended)
        conductor.kept.are_given = False
        conductor.kept.instead()
        conductor.ended()
        watched.look()
    if watched.plan is None:
        raise planning.nothing_found(watched.told)
    proof = judgement.judge(_name(step_function), watched.plan, watched.blocks, report, (), watched.problem)
    if proof is None:
        why = f"The experiment ended before anything was measured. {watched.problem}".rstrip()
        raise planning.ExperimentError(why, "Give it more steps.")
    return proof


def _run(step_function: Callable[..., object], loader: Iterable[Any] | None, conductor: Conductor) -> None:
    batches = itertools.repeat(()) if loader is None else ((batch,) for batch in _batches(loader, conductor))
    for batch in batches:
        step_function(*batch)
        conductor.place(END)
        conductor.boundary(ANNOTATED)
        if conductor.is_over:
            return


def _batches(loader: Iterable[Any], conductor: Conductor) -> Iterator[Any]:
    """Pass after pass, as long as there are batches."""
    while True:
        items = iter(loader)
        is_torch = any(kind.__name__ == "_BaseDataLoaderIter" for kind in type(items).__mro__)
        none = object()
        batch = none
        for batch in items if is_torch else training_loop.Feed(items, conductor):
            yield batch
        if batch is none:
            return


class _Planner:
    """Plans in this process what `FolderPlanner` lets another one plan."""

    def __init__(self, ledger: Ledger, watched: Watched) -> None:
        self._through_folder = FolderPlanner(ledger)
        self._watched = watched

    def __call__(self, found: dict[str, Any]) -> dict[str, Any] | None:
        plan = self._through_folder(found)
        if plan is None:
            try:
                self._watched.look()
            except UserError as error:
                raise _Refused(error) from error
        return plan


class _Refused(BaseException):
    """Passes the conductor, which keeps errors from the program."""


@contextlib.contextmanager
def _hooked_up(conductor: Conductor, folder: str) -> Iterator[None]:
    """torch's loaders, for as long as the experiment lasts; workers that are started anew find the folder."""
    kept = [(kind, name, vars(kind)[name]) for kind, name in training_loop.hooked()]
    changed = environment(os.environ, folder, Wanted(()))
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", FOLDER_VARIABLE)}
    try:
        os.environ.update({name: changed[name] for name in before})
        training_loop.hook_up_loaders(conductor, lambda name, action: action() if name in sys.modules else None)
        yield
    except _Refused as refused:
        raise refused.args[0] from None
    finally:
        for kind, name, value in kept:
            setattr(kind, name, value)
        for name, was in before.items():
            os.environ.pop(name) if was is None else os.environ.update({name: was})


def _cuda() -> DelayedDevice | None:
    torch: Any = sys.modules.get("torch")
    device: DelayedDevice | None = None
    if torch is not None and torch.cuda.is_initialized():
        device = SpinningCuda(torch)
    return device


def _name(step_function: Callable[..., object]) -> str:
    return getattr(step_function, "__qualname__", type(step_function).__qualname__)
