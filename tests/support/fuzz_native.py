"""The native core built with sanitizers, against what it must equal: what ``scripts/fuzz-native`` runs."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hatch_build
import pytest

from boundby.cli.main import main as boundby
from boundby.model import library
from tests.readers.test_pages import differential
from tests.support.odd_databases import damage, write_odd
from tests.support.traces import REPOSITORY, traces_folder

#: Of one database, so many damaged copies are read.
_DAMAGED_COPIES = 4
#: Random parts of the tests that hold passes against their plain twins.
_PASSES = ("account", "chain", "drawing", "events", "forward")
_RANDOM = "not real_traces and not stray_access and not other_sources"
_TRACES = ("*.sqlite", "*.json.gz")
_COMMANDS = (
    "analyze {TRACE} --all -o {FOLDER}/page.html",
    "analyze {TRACE} --all -o {FOLDER}/trace.pftrace",
    "analyze {TRACE} --all",
    "what-if {TRACE} --format json",
    "compare {TRACE} {NEXT} --format json",
)
#: PyDataMem_SetHandler's place in NumPy's table of functions, which keeps its order.
_SET_HANDLER = 304


def pages(folder: str, many: int = 10_000, first: int = 0) -> None:
    """Read ``many`` databases natively and by SQLite."""
    path = Path(folder) / "odd.sqlite"
    outcomes: Counter[tuple[str, tuple[str, str]]] = Counter()
    for seed in range(first, first + many):
        write_odd(path, seed // (1 + _DAMAGED_COPIES))
        is_damaged = seed % (1 + _DAMAGED_COPIES) > 0
        if is_damaged:
            damage(path, seed)
        try:
            outcomes["damaged" if is_damaged else "whole", differential(path)] += 1
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
        if (seed + 1) % 1000 == 0:
            print(f"{sum(outcomes.values()):,} databases", flush=True)
    for (kind, (numbers, texts)), count in sorted(outcomes.items()):
        print(f"{count:6} {kind} databases: numbers {numbers}, texts {texts}")


def passes(_: str, rounds: int = 1) -> None:
    """Run the random tests, with another seed each time."""
    tests = [f"tests/native/test_{name}.py" for name in _PASSES]
    for seed in range(rounds):
        options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-k", _RANDOM, f"--hypothesis-seed={seed}"]
        if code := pytest.main([*options, *tests]):
            sys.exit(code)


def traces(folder: str, *given: str) -> None:
    """Analyse all traces below the folders given (none: the real ones and the samples), as a page, for Perfetto and for
    the terminal; ask what changes would gain, and compare each with the next. What commands answer does not matter."""
    below = [Path(name) for name in given] or [*filter(None, [traces_folder()]), REPOSITORY / "sample_reports"]
    paths = [path for place in below for ending in _TRACES for path in sorted(place.rglob(ending))]
    use_plain_memory(Path(folder))
    codes: Counter[object] = Counter()
    for number, (path, following) in enumerate(zip(paths, [*paths[1:], *paths[:1]], strict=True), 1):
        print(f"{number} of {len(paths)}: {path}", flush=True)
        for arguments in _COMMANDS:
            names = {"TRACE": str(path), "NEXT": str(following), "FOLDER": folder}
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                codes[boundby([argument.format(**names) for argument in arguments.split()])] += 1
    print(", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items(), key=str)))


def use_plain_memory(folder: Path) -> None:
    """Let NumPy ask malloc for every array, where sanitizers see its bounds and its end."""
    made = folder / "plain_memory.so"
    source = Path(__file__).with_name("plain_memory.c")
    subprocess.run([*(hatch_build.compiler() or ["cc"]), "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    allocator = ctypes.CDLL(str(made))
    pointer, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    functions = (ctypes.c_void_p * (_SET_HANDLER + 1)).from_address(
        pointer(importlib.import_module("numpy._core.multiarray")._ARRAY_API, None)
    )
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET_HANDLER] or 0)
    handler, kind = (
        ctypes.addressof(ctypes.c_char.in_dll(allocator, name)) for name in ("plain_memory", "plain_memory_is")
    )
    set_handler(new(handler, kind, None))


def main(folder: str, what: str, *arguments: str) -> None:
    """Run ``pages``, ``passes`` or ``traces`` with the library in ``folder``."""
    core = ctypes.CDLL(str(Path(folder) / library.NAME))
    library._load = lambda: (core, "")  # type: ignore[assignment]
    if what == "traces":
        traces(folder, *arguments)
    else:
        chosen: dict[str, Callable[..., None]] = {"pages": pages, "passes": passes}
        chosen[what](folder, *map(int, arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
