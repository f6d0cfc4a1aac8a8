"""Set up the ranges in one process, and note down what came of it. Nothing that fails here reaches the program."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import when_imported

#: The folder of the boundby that profiles, which the program's own Python need not have installed.
BOUNDBY = Path(__file__).resolve().parents[3]


def begin(notes: str) -> None:
    """Hook up torch, which has just been imported."""
    torch: Any = sys.modules["torch"]
    outcome = {"torch": str(getattr(torch, "__version__", "")), "ranges": "none", "operators": "none", "problem": ""}
    try:
        if os.environ.get("BOUNDBY_TORCH_RANGES") != "lines":
            make_importable()
        _hook_up(torch, outcome, notes)
    except Exception as error:
        if os.environ.get("BOUNDBY_DEBUG"):
            raise
        outcome["problem"] = f"{type(error).__name__}: {error}"
    note(notes, outcome)


def _hook_up(torch: Any, outcome: dict[str, str], notes: str) -> None:
    from . import torch_profile as torch_profiler

    if (settings := torch_profiler.settings()) is not None:
        _profile(torch, settings, notes)
        return
    wanted = os.environ.get("BOUNDBY_TORCH_RANGES", "operators").split(",")
    if "lines" in wanted:
        _begin_lines(torch)
    if wanted == ["lines"]:
        return
    from boundby.annotate import backend

    from . import torch_ranges

    outcome["ranges"] = backend()
    if outcome["ranges"] == "none":
        return
    if "collectives" in wanted:
        when_imported("torch.distributed", torch_ranges.mark_collectives)
    if "operators" not in wanted:
        return
    operators = torch_ranges.choose(torch)
    outcome["operators"] = operators.name
    torch_ranges.AllModuleRanges(torch, operators).hook_up()
    if operators.name != "emit_nvtx" and outcome["ranges"] == "nvtx":
        when_imported("torch.autograd.profiler", torch_ranges.mark_record_functions)
    when_imported("torch.utils.data.dataloader", lambda: torch_ranges.mark_loaders(operators))
    when_imported("torch.optim.optimizer", torch_ranges.mark_optimizers)


def _begin_lines(torch: Any) -> None:
    """Nobody asked for lines: where they cannot be had, nothing is said."""
    from . import lines

    with contextlib.suppress(Exception):
        lines.begin(torch)


def _profile(torch: Any, settings: dict[str, Any], notes: str) -> None:
    """PyTorch's own profiler records instead of nsys."""
    from .torch_profile import TorchProfiler

    made = TorchProfiler(torch, settings, lambda problem: note(notes, {"wrote": "trace", "problem": problem}))
    made.hook_up()
    when_imported("torch.optim.optimizer", made.count_optimizers)


def note(notes: str, outcome: dict[str, str]) -> None:
    """One line a process; short appends of several processes do not mix."""
    with contextlib.suppress(OSError):
        handle = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps({"pid": os.getpid(), **outcome}) + "\n")


def make_importable() -> None:
    """Make ``import boundby`` work where the program's Python does not have it, without a folder more in sys.path."""
    if importlib.util.find_spec("boundby") is not None:
        return
    spec = importlib.util.spec_from_file_location(
        "boundby", BOUNDBY / "__init__.py", submodule_search_locations=[str(BOUNDBY)]
    )
    if spec is None or spec.loader is None:
        raise ImportError("boundby's own files are gone")
    package = importlib.util.module_from_spec(spec)
    sys.modules["boundby"] = package
    spec.loader.exec_module(package)
