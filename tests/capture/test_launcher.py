"""The launcher of --torch-ops inside a program: unseen without torch, and with it the ranges nest as the calls do."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boundby.capture.launcher import Note, complaints, launcher_environment, read_notes
from boundby.capture.launcher.program import when_imported
from boundby.capture.nsys import Nsys
from boundby.trace.stacks import LINE_MARK
from tests.support.nsys import REPOSITORY
from tests.support.profiling import Profiler

#: Nothing here takes a tenth of this, on however busy a machine.
HANGS_S = 600
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: In place of the nvtx package: writes each range as a line, indented by how deep it is.
RECORDER = """\
import os
_log, _depth = open(os.environ["RECORD"], "a", buffering=1), 0

def enabled():
    return True

class annotate:
    def __init__(self, name, **_):
        self.name = name
    def __enter__(self):
        global _depth
        _log.write("  " * _depth + self.name + "\\n")
        _depth += 1
    def __exit__(self, *_):
        global _depth
        _depth -= 1

def start_range(name, **_): ...
def end_range(handle): ...
"""
MODEL = """\
import sys, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.tail = nn.Sequential(nn.ReLU())
    def forward(self, x):
        if len(x) == 13:
            raise ValueError("unlucky")
        for layer in self.layers:
            x = layer(x)
        return self.tail(x)
model, loss = Block(), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""


class Place:
    """A folder in which programs run under the launcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.record = folder / "record"
        (folder / "packages").mkdir()
        (folder / "packages" / "nvtx.py").write_text(RECORDER)

    def package(self, name: str, text: str) -> None:
        (self.folder / "packages" / f"{name}.py").write_text(text)

    def run(self, *arguments: str, launched: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        own = {**os.environ, "PYTHONPATH": str(self.folder / "packages"), "RECORD": str(self.record), **env}
        given = launcher_environment(own, self.notes) if launched else own
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=given, capture_output=True, text=True, cwd=self.folder, timeout=HANGS_S, check=False
        )

    def ranges(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


SEEN = """\
import json, os, sys
print(json.dumps([sys.argv, __name__, sys.path, sorted(m for m in sys.modules if "boundby" in m),
                  getattr(sys.modules.get("sitecustomize"), "WHOSE", None), sys.flags.isolated]))
"""


@pytest.mark.parametrize("how", ["script", "module", "-c"])
def test_a_program_without_torch_sees_no_difference(place: Place, how: str) -> None:
    (place.folder / "seen.py").write_text(SEEN)
    place.package("sitecustomize", "WHOSE = 'their own'")
    arguments = {"script": ["seen.py", "a b"], "module": ["-m", "seen", "a b"], "-c": ["-c", SEEN, "a b"]}[how]
    with_it, without = place.run(*arguments), place.run(*arguments, launched=False)
    assert with_it.stderr == without.stderr == ""
    told, expected = json.loads(with_it.stdout), json.loads(without.stdout)
    assert told.pop(3) == ["_boundby_launcher"]
    assert expected.pop(3) == []
    assert told == expected
    assert told[3] == "their own"
    assert not read_notes(place.notes)


@pytest.mark.parametrize(
    "program", ["raise SystemExit(7)", "raise ValueError('x')", "import nothing_of_that_name", "1/0", "import torch"]
)
def test_exit_codes_and_tracebacks_are_the_same(place: Place, program: str) -> None:
    (place.folder / "program.py").write_text(program)
    if program == "import torch":  # one that cannot be imported
        place.package("torch", "raise ImportError('no libtorch here')")
    with_it, without = place.run("program.py"), place.run("program.py", launched=False)
    assert (with_it.returncode, with_it.stderr) == (without.returncode, without.stderr)


def test_an_error_in_the_launcher_stays_there(place: Place) -> None:
    place.package("torch", "__version__ = 'not a real one'")
    ran = place.run("-c", "import torch, torch as again; print(torch.__version__, torch.__loader__.__class__.__name__)")
    assert (ran.stdout, ran.stderr) == ("not a real one SourceFileLoader\n", "")
    (note,) = read_notes(place.notes)
    assert note.torch == "not a real one"
    assert "AttributeError" in note.problem
    assert complaints((note,)) == [f"--torch-ops: {note.problem}"]


def test_children_are_reached_and_those_that_will_not_be_are_not(place: Place) -> None:
    place.package("torch", "__version__ = '1'")
    imports = f"import sys; sys.path.insert(0, {str(place.folder / 'packages')!r}); import torch"
    program = f"import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:], '-c', {imports!r}])"
    place.run("-c", program)
    assert len(read_notes(place.notes)) == 1
    place.run("-c", program, "-I")
    assert len(read_notes(place.notes)) == 1


def test_what_a_user_is_told(tmp_path: Path) -> None:
    assert "imported torch" in complaints(read_notes(tmp_path / "none"))[0]
    (tmp_path / "notes").write_text('{"pid": 1, "torch": "2", "ranges": "none"}\nnonsense\n[]\n')
    notes = read_notes(tmp_path / "notes")
    assert [note.pid for note in notes] == [1]
    assert "the nvtx package is missing" in complaints(notes)[0]


#: Run by one process one after the other, since each start of torch takes seconds; each makes its own model.
PROGRAMS = {
    "training": """
from torch.utils.data import DataLoader, TensorDataset
for (x,) in DataLoader(TensorDataset(torch.randn(2, 4)), batch_size=2):
    with torch.profiler.record_function("clear"):
        optimizer.zero_grad()
    loss(model(x), x).backward()
    optimizer.step()
""",
    "marks itself": """
from boundby.annotate import annotate_module
annotate_module(model)
model(torch.randn(1, 4))
""",
    "compiled": """
import torch._dynamo
compiled = torch.compile(model, backend="eager", fullgraph=True)
for _ in range(3):
    compiled(torch.randn(2, 4))
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], dict(torch._dynamo.utils.counters["graph_break"]))
""",
    "profiles itself": """
from torch.profiler import profile
from torch._subclasses.fake_tensor import FakeTensorMode
import copy, pickle
for _ in range(2):
    with profile() as profiler:
        model(torch.randn(2, 4))
    print(len(profiler.events()) > 5)
with FakeTensorMode() as mode:
    fake = mode.from_tensor(torch.randn(2, 4))
    print(type(fake + fake).__name__)
pickle.loads(pickle.dumps(copy.deepcopy(nn.Linear(4, 4))))(torch.randn(1, 4))
with torch.inference_mode():
    model(torch.randn(2, 4))
""",
    "raises": """
class Unlucky(torch.optim.SGD):
    def step(self, closure=None):
        raise ValueError("no step")
for action in (lambda: model(torch.randn(13, 4)), Unlucky(model.parameters(), 0.1).step):
    try:
        action()
    except ValueError:
        pass
model(torch.randn(1, 4))
optimizer.step()
""",
}
IN_TURN = """\
import json, nvtx, sys
for name, program in json.loads(sys.argv[1]).items():
    nvtx._log.write(f"== {name}\\n")
    print(f"== {name}", flush=True)
    exec(program, {"__name__": "__main__"})
"""


@dataclass(frozen=True)
class Ran:
    """What the programs did: their ranges and what they printed, each by name of the program."""

    ranges: dict[str, list[str]]
    printed: dict[str, list[str]]
    notes: tuple[Note, ...]

    def outline(self, name: str) -> list[str]:
        """A program's ranges without those of operators."""
        return [line for line in self.ranges[name] if "aten::" not in line]


def parts(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each program."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("== "):
            found[line[3:]] = []
        else:
            found[list(found)[-1]].append(line)
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    place = Place(tmp_path_factory.mktemp("programs"))
    programs = json.dumps({name: MODEL + program for name, program in PROGRAMS.items()})
    done = place.run("-W", "error::UserWarning", "-c", IN_TURN, programs)
    assert done.returncode == 0, done.stderr
    return Ran(parts(place.ranges()), parts(done.stdout.splitlines()), read_notes(place.notes))


@needs_torch
def test_modules_operators_data_and_optimizer(ran: Ran) -> None:
    (note,) = ran.notes
    assert (note.ranges, note.operators, note.problem) == ("nvtx", "dispatch", "")
    lines = ran.ranges["training"]
    assert ran.outline("training") == [
        *("data start", "data", "clear"),
        *("forward", "  layers.0", "  layers.1", "  tail", "    tail.0"),
        "MSELoss",
        *("MSELoss", "backward", "  tail", "    tail.0", "  layers.1", "  layers.0"),
        *("optimizer", "data"),
    ]
    assert lines[lines.index("  layers.0") + 1 :][:2] == ["    aten::t", "    aten::addmm"]
    assert "    aten::mm" in lines[lines.index("backward") :]


@needs_torch
def test_a_model_that_marks_itself_gets_no_second_set(ran: Ran) -> None:
    assert ran.outline("marks itself") == ["forward", "  layers.0", "  layers.1", "  tail", "    tail.0"]


@needs_torch
def test_ranges_close_when_modules_and_steps_raise(ran: Ran) -> None:
    outline = ran.outline("raises")
    assert outline[0] == "forward"
    assert outline.count("forward") + outline.count("  forward") == 2
    assert outline[1] == "optimizer"


@needs_torch
def test_compiled_models_stay_in_one_piece_and_warn_of_nothing(ran: Ran) -> None:
    assert ran.printed["compiled"] == ["1 {}"]
    outline = ran.outline("compiled")
    assert outline[:1] == ["forward"]
    assert not any("layers" in line for line in outline)


@needs_torch
def test_the_programs_own_profiler_and_modes_work(ran: Ran) -> None:
    assert ran.printed["profiles itself"] == ["True", "True", "FakeTensor"]


@needs_torch
def test_emit_nvtx_waits_for_cuda_and_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, with a CUDA build's parts put in."""
    import torch

    from boundby.capture.launcher.program.torch_ranges import EmitNvtx, choose

    done: list[str] = []
    state = {"cuda": False}

    class Emit:
        def __init__(self, record_shapes: bool) -> None:
            assert not record_shapes

        def __enter__(self) -> None:
            profiler._run_on_profiler_start()
            done.append("on")

    profiler: Any = torch.autograd.profiler
    monkeypatch.setattr(torch._C, "_nvtx", object(), raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: state["cuda"])
    monkeypatch.setattr(profiler, "emit_nvtx", Emit)
    monkeypatch.setattr(profiler, "_run_on_profiler_start", lambda: done.append("started"))
    monkeypatch.setattr(profiler, "_run_on_profiler_stop", lambda: done.append("stopped"))
    monkeypatch.setattr(torch.autograd, "_disable_profiler", lambda: done.append("off"))
    operators = choose(torch)
    assert isinstance(operators, EmitNvtx)
    operators.ensure()
    assert done == []
    state["cuda"] = True
    operators.ensure()
    operators.ensure()
    assert done == ["started", "on"]
    done.clear()
    profiler._run_on_profiler_start()  # the program's own
    operators.ensure()
    assert done == ["off", "started"]
    profiler._run_on_profiler_stop()
    operators.ensure()
    assert done == ["off", "started", "stopped", "started", "on"]
    operators._stop()


@needs_torch
@pytest.mark.nsys
def test_a_real_recording_holds_them(nsys: Nsys, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = f"{MODEL}\nfor _ in range(5):\n    model(torch.randn(2, 4)).sum().backward(); optimizer.step()\n"
    options = ["--torch-ops", "--format=none"]
    ran = Profiler(nsys, tmp_path, capfd).run_program(options, [sys.executable, "-c", program])
    assert ran.code == 0, ran.err
    found = ran.ranges
    assert {name: found[name] for name in ("forward", "backward", "optimizer", "aten::addmm")} == {
        "forward": 5,
        "backward": 5,
        "optimizer": 5,
        "aten::addmm": 10,
    }
    assert found["layers.0"] == 10  # forward and backward
    assert "--torch-ops" not in ran.err
    assert ran.facts["torch_ops"] is True
    marks = "SELECT count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id WHERE coalesce(text, value) LIKE ?"
    with contextlib.closing(sqlite3.connect(ran.folder / "report.sqlite")) as export:
        assert export.execute(marks, (f"{LINE_MARK}%",)).fetchone()[0] > 0


def test_nothing_of_it_needs_more_than_the_standard_library() -> None:
    """It runs on the program's Python, which has none of boundby's packages."""
    folder = REPOSITORY / "src/boundby/capture/launcher"
    for path in [*folder.glob("inject/*.py"), *folder.glob("program/*.py")]:
        for line in path.read_text().splitlines():
            if line.strip().startswith(("import ", "from ")):
                name = line.split()[1]
                assert name.startswith((".", "boundby.annotate")) or name.split(".")[0] in sys.stdlib_module_names, line


def test_all_who_wait_for_a_module_are_called_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waited_for.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    called: list[str] = []
    when_imported("waited_for", lambda: called.append("first"))
    when_imported("waited_for", lambda: called.append("second"))
    importlib.import_module("waited_for")
    when_imported("waited_for", lambda: called.append("late"))
    assert called == ["first", "second", "late"]
