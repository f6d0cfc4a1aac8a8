"""`boundby.prove`: the experiment on a function of this process, called step after step."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from boundby.experiment import judgement, live, planning
from boundby.experiment.inside import FOLDER_VARIABLE, feeds
from boundby.experiment.inside.conductor import CACHED, END, Conductor, FolderPlanner
from boundby.experiment.inside.delayed_device import DelayedDevice, SpinningCuda
from boundby.experiment.inside.ledger import Ledger
from boundby.experiment.inside.step_sources import ANNOTATED
from boundby.model.errors import UserError
from boundby.results.proof import Proof
from boundby.results.report import Report


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
        wanted = live.Wanted((_name(step_function),), steps, removals=removals)
        watched = live.Watched(Path(folder), wanted, lambda _costs: None, lambda _what, _share: None)
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
        for batch in items if is_torch else feeds.Feed(items, conductor):
            yield batch
        if batch is none:
            return


class _Planner:
    """Plans in this process what `FolderPlanner` lets another one plan."""

    def __init__(self, ledger: Ledger, watched: live.Watched) -> None:
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
    kept = [(kind, name, vars(kind)[name]) for kind, name in feeds.hooked()]
    environment = live.environment(os.environ, folder, live.Wanted(()))
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", FOLDER_VARIABLE)}
    try:
        os.environ.update({name: environment[name] for name in before})
        feeds.hook_up(conductor, lambda name, action: action() if name in sys.modules else None)
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
