"""What of a report to analyse, and how: one frozen object from the command line to the window."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from os import PathLike

from msgspec import Struct
from msgspec.structs import force_setattr


class AnalysisOptions(Struct, frozen=True):
    """The options of every analysis. Lists become tuples, so that equal options are equal."""

    window: str = "gpu"
    """The time to account for: ``gpu``, ``all``, ``START:END`` or ``nvtx:NAME``."""
    skip_first: int = 0
    """Leave out that many instances of the steps as warm-up."""
    region: str | None = None
    """A glob; only regions that match are reported, and only they are changed by ``what_if``."""
    devices: tuple[int, ...] = ()
    """Only these GPUs, by their ids; none: all."""
    processes: tuple[int, ...] = ()
    """Only these processes, by their ids; none: all."""
    min_share: float | None = None
    """Leave out regions below this fraction of the window; None: none, though views for people leave out below 1 %."""
    fold: bool = True
    """Let numbered names (``step 1``, ``step 2``) share a region."""
    find_regions: bool = True
    """Where a process has no NVTX ranges of its own, find its iterations and phases in its launches."""
    nsys: str | PathLike[str] | None = None
    """The nsys that exports ``.nsys-rep`` files; None: the first that is found."""
    captures: tuple[str | PathLike[str], ...] = ()
    """Recordings of the capture of CUDA graphs that the report replays."""
    keep_export: bool = False
    """Leave the export beside the report."""
    max_memory: int | None = None
    """Bytes that an analysis may take, by estimate; of what takes more the last part is analysed. None: 80 % of the
    machine's."""
    max_time: float | None = None
    """Seconds of CPU time that each stage may take. None: a minute, and a second for every 20,000 events."""
    disable: tuple[str, ...] = ()
    """Rules to leave out."""
    thresholds: Mapping[str, Mapping[str, float]] | None = None
    """By rule, then name, instead of the rule's own."""
    show_all: bool = False
    """Findings below 1 % of the window too."""

    def __post_init__(self) -> None:
        for name in ("devices", "processes", "captures", "disable"):
            force_setattr(self, name, tuple(getattr(self, name)))

    def arguments(self) -> str:
        """What makes another command look at the same span, GPUs, processes and captures: `` --skip-first 1``."""
        usual = AnalysisOptions()
        window = ["--window", self.window] if self.window != usual.window else []
        skipped = ["--skip-first", str(self.skip_first)] if self.skip_first else []
        devices = [word for number in self.devices for word in ("--device", str(number))]
        processes = [word for number in self.processes for word in ("--process", str(number))]
        captures = [word for path in self.captures for word in ("--capture", os.fspath(path))]
        return "".join(f" {shlex.quote(word)}" for word in (*window, *skipped, *devices, *processes, *captures))

    def chosen(self) -> dict[str, object]:
        """The options that differ from their defaults."""
        usual, names = AnalysisOptions(), self.__struct_fields__
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(usual, name)}
