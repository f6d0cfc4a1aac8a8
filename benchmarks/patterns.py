"""A program made to have each pattern, and what boundby says of it: ``python -m benchmarks.patterns``.

Each runs on the simulated machine and is read as nsys exports it and as PyTorch's profiler writes it; patterns that can
exist without a GPU are also had by a program of PyTorch on the CPU, recorded by its profiler here. Verdict, card, signs
and first response have to be those of the pattern's page. ``--write`` puts the table into docs/patterns.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.first_responses import finer, stories
from benchmarks.simulated.counterfactual import Case
from boundby import api
from boundby.claims.patterns import pattern
from boundby.document import sentences
from boundby.model.causes import BOUND_LABEL
from boundby.results.report import Card, FirstResponse, Report
from boundby.simulate.instructions import US, Launch, Loop, Program, Range, Sync, Work, item, program
from boundby.simulate.kineto import write_kineto
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export

PAGE = Path(__file__).parents[1] / "docs" / "patterns.md"
BEGIN, END = "<!-- table: python -m benchmarks.patterns --write -->", "<!-- end of table -->"
HEAD = ("pattern", "a program made to have it", "recorded as", "verdict", "signs", "first response")
KINDS = {"nsys": "nsys export", "kineto": "PyTorch profiler"}
#: What programs of PyTorch do in each step, on the CPU alone.
ON_CPU = {
    "cpu": ("rows normalized one by one in Python", "for row in x: total += float((row / (row.norm() + 1)).sum())"),
    "host_blocked": ("a batch read slowly before each step", "time.sleep(0.05); y = x[0] + 1"),
}
_SCRIPT = """
import sys, time, torch
x = torch.rand(400, 64); total = 0.0
def step():
    global total
    {body}
step()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as found:
    for _ in range(12):
        with torch.profiler.record_function("step"):
            step()
found.export_chrome_trace(sys.argv[1])
"""


@dataclass(frozen=True)
class Made:
    """A program and the pattern that it was made for. ``response``: the id of what it should be told first; empty: any
    of the pattern's page."""

    key: str
    about: str
    program: Program
    response: str = ""


@dataclass(frozen=True)
class Told:
    """What boundby says of one recording."""

    verdict: str
    confidence: str
    cards: tuple[Card, ...]
    first: FirstResponse
    whole_ns: int

    @classmethod
    def of(cls, report: Report) -> Told:
        """Of the first device; of the busiest thread where there is none."""
        part = report.devices[0] if report.devices else max(report.threads, key=lambda thread: thread.total_ns)
        whole_ns = sum(part.time.values())
        return cls(part.verdict.bound, part.verdict.confidence, part.cards, part.first_responses[0], whole_ns)

    def agrees(self, key: str, response: str = "") -> str:
        """What of it is not the pattern's; empty where all is."""
        if self.verdict != key or [card.pattern for card in self.cards] != [key]:
            return f"the verdict is {self.verdict}"
        missing = [sign.name for sign in self.cards[0].signs if sign.is_met is not True]
        if missing:
            return f"not met: {', '.join(missing)}"
        maybe = [one.here.name for one in self.cards[0].lookalikes if one.here.is_met is False]
        if maybe:
            return f"it may be something else: {', '.join(maybe)}"
        is_its = self.first.id == response if response else self.first.id.startswith(f"{key}.")
        return "" if is_its else f"it is told first: {self.first.id}"


def made() -> Iterator[Made]:
    """One of each pattern, then finer ones."""
    about = {
        "gpu_compute": "eight FP32 products a step, launched far ahead",
        "cuda_api": "100 kernels of 3 us a step",
        "sync": "a value read back twice a step",
        "cpu": "1 ms of host code before a few kernels",
        "host_blocked": "3 ms in `read` before each step",
        "gpu_copy": "40 MB of pageable memory a step",
        "gpu_comm": "four all-reduces after the backward pass",
        "init": "memory allocated and freed in each step",
    }
    for story in stories():
        yield Made(story.name, about[story.name], story.before)
    finer_about = ("80 items a frame, 18 kernels for each", "an operator of the model left on the CPU")
    for told, story in zip(finer_about, finer(), strict=True):
        yield Made(story.name, told, story.before, story.response)
    yield Made("cuda_api", "kernels of 3 us, each waited for", _tiny())


def _tiny() -> Program:
    piece = [Work(40 * US, 0.1), Launch("add", 3 * US), Work(40 * US, 0.1), Launch("mul", 3 * US), *item()]
    return program(Loop(50, [Range("step {i}", [Loop(10, piece)])]), Sync(), name="tiny")


def recorded(one: Made, kind: str, folder: Path) -> Told:
    """What boundby says of a program's recording of one kind."""
    run = Case("made", one.program, Machine(host_jitter=0.05, device_jitter=0.01), 1).run()
    number = len([*folder.iterdir()])
    if kind == "nsys":
        path = folder / f"{number}.sqlite"
        write_export(run, path, "2023")
    else:
        path = write_kineto(run, folder / f"{number}.json")
    return Told.of(api.analyze(path))


def on_cpu(key: str, folder: Path) -> Told | None:
    """What boundby says of the program of PyTorch on the CPU; None without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    path = folder / f"torch-{key}.json"
    script = _SCRIPT.format(body=ON_CPU[key][1])
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True)
    return Told.of(api.analyze(path))


def row(one: Made, kind: str, told: Told) -> str:
    """One line of the table."""
    signs = told.cards[0].signs if told.cards else ()
    met = sum(sign.is_met is True for sign in signs)
    first = f"{told.first.title}: {sentences.saves_of(told.first, told.whole_ns) or 'no number'}"
    verdict = f"{BOUND_LABEL.get(told.verdict, told.verdict)}, {told.confidence}"
    cells = (pattern(one.key).title, one.about, KINDS[kind], verdict, f"{met} of {len(signs)}", first)
    return f"| {' | '.join(cells)} |"


def row_on_cpu(key: str) -> str:
    """The line of a program on the CPU: what it takes differs from run to run, what it is bound by does not."""
    about = f"{ON_CPU[key][0]} (PyTorch, no GPU)"
    cells = (pattern(key).title, about, KINDS["kineto"], BOUND_LABEL[key], "1 of 1", "differs from run to run")
    return f"| {' | '.join(cells)} |"


def table(folder: Path) -> str:
    """All rows, as Markdown. AssertionError where one does not agree with its pattern's page."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    for one in made():
        for kind in KINDS:
            told = recorded(one, kind, folder)
            assert not (wrong := told.agrees(one.key, one.response)), (one.about, kind, wrong)
            lines.append(row(one, kind, told))
    return "\n".join([*lines, *map(row_on_cpu, ON_CPU)])


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/patterns.md")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        text = table(Path(folder))
        for key in ON_CPU:
            told = on_cpu(key, Path(folder))
            print(f"# {key} on the CPU: {'PyTorch is not installed' if told is None else told.agrees(key) or 'agrees'}")
    print(text)
    if write:
        above, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{above}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
