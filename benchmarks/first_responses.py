"""First responses held against what happens when somebody follows them: ``python -m benchmarks.first_responses``.

A program of each pattern runs on the simulated machine and is analysed; then the program with the response carried out
runs, and its report is set against the prediction. ``--write`` puts the table into docs/first-responses.md, and the
reports of the first programs into sample_reports/patterns, as Markdown and as a page.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchmarks.simulated.counterfactual import Case
from boundby import api
from boundby.claims.patterns import pattern
from boundby.model.units import change, duration, percent
from boundby.render import markdown, page
from boundby.results.report import DeviceReport
from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Await,
    Copy,
    GraphLaunch,
    Instruction,
    Launch,
    Loop,
    Node,
    Program,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    item,
    program,
    threads,
)
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from boundby.simulate.patterns import NCCL

STEPS = 30
COLLECTIVE = 900 * US
SGEMM, HALF = "ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
PAGE = Path(__file__).parents[1] / "docs" / "first-responses.md"
SAMPLES = Path(__file__).parents[1] / "sample_reports" / "patterns"
BEGIN, END = "<!-- table: python -m benchmarks.first_responses --write -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Story:
    """A program before and after. ``response``: the id of what is carried out."""

    name: str
    before: Program
    after: Program
    response: str
    done: str


def _steps(*body: Instruction, name: str = "") -> Program:
    return program(Loop(STEPS, [Range("step {i}", list(body))]), Sync(), name=name or "first_responses")


def _products(kernel: str, ns: int) -> list[Instruction]:
    return [Range("forward", [Work(30 * US), *(Launch(kernel, ns) for _ in range(8))])]


def _small(count: int) -> list[Instruction]:
    return [Range("forward", [Loop(count, [Launch("vectorized_elementwise", 3 * US), Work(6 * US)])])]


def _fed(
    make: Sequence[Instruction], use: Sequence[Instruction], first: Sequence[Instruction] | None = None
) -> Program:
    """What is made for a step, in a thread of its own, two steps ahead. ``first``: what makes the first batch."""
    begin = (Await("room"), *(make if first is None else first), Signal("batch"))
    feeder = Loop(STEPS - 1, [Await("room"), *make, Signal("batch")])
    step = Range("step {i}", [Range("data", [Await("batch"), Signal("room")]), *use])
    main = Thread((Signal("room"), Signal("room"), Loop(STEPS, [step]), Sync()))
    return threads(main, Thread((*begin, feeder), "feeder"), name="first_responses")


def _copied(memory: str, stream: int) -> list[Instruction]:
    copy: Instruction = Copy(40_000_000, "HtoD", memory, stream=stream)  # type: ignore[arg-type]
    ready = [Record("copied", stream=stream), WaitEvent("copied")] if stream else []
    return [Range("load", [Work(20 * US), copy, *ready]), Range("forward", [Launch("gemm", 1 * MS)])]


def _reduced(stream: int) -> list[Instruction]:
    backward: list[Instruction] = []
    for layer in range(4):
        backward.append(Launch(f"gemm_grad_{layer}", 800 * US, share=0.8))
        if stream:
            backward += [Record(f"grad_{layer}"), WaitEvent(f"grad_{layer}", stream=stream)]
            backward.append(Launch(NCCL, COLLECTIVE, stream=stream, comm=True, share=0.2))
    if not stream:
        backward += [Launch(NCCL, COLLECTIVE, comm=True, share=0.2) for _ in range(4)]
    joined: list[Instruction] = [Record("reduced", stream=stream), WaitEvent("reduced")] if stream else []
    return [Range("backward", [Work(20 * US), *backward]), *joined, Range("optimizer", [Launch("adam", 100 * US)])]


def _waits(*, reads: bool) -> list[Instruction]:
    part: list[Instruction] = [Launch("gemm", 150 * US), Launch("reduce", 100 * US), *(item() if reads else [])]
    prepare: list[Instruction] = [piece for _ in range(5) for piece in (Work(45 * US), Launch("fill", 2 * US))]
    return [Range("forward", part + prepare), Range("loss", part + prepare)]


def stories() -> tuple[Story, ...]:
    """One of each pattern."""
    forward: list[Instruction] = [Range("forward", [Loop(5, [Launch("gemm", 150 * US), Work(10 * US)])])]
    augment: list[Instruction] = [Work(1 * MS, 0.1)]
    short: list[Instruction] = [Range("forward", [Loop(5, [Launch("gemm", 80 * US), Work(10 * US)])])]
    read: list[Instruction] = [Sleep(3 * MS, "read", 0.1)]
    allocate: list[Instruction] = [
        Range("allocate", [Alloc(900 * US), Alloc(200 * US, waits=True, call="cudaFree")]),
        Range("forward", [Launch("gemm", 300 * US), Work(20 * US)]),
    ]
    graph: list[Instruction] = [
        Range("forward", [GraphLaunch([Node("vectorized_elementwise", 3 * US)] * 100), Work(20 * US)])
    ]
    return (
        Story(
            "gpu_compute",
            _steps(*_products(SGEMM, 400 * US)),
            _steps(*_products(HALF, 160 * US)),
            "gpu_compute.lower-precision",
            "the products run in BF16, 2.5 times as fast",
        ),
        Story(
            "cuda_api",
            _steps(*_small(100)),
            _steps(*graph),
            "cuda_api.cuda-graphs",
            "each step is one graph of the same kernels",
        ),
        Story(
            "sync",
            _steps(*_waits(reads=True)),
            _steps(*_waits(reads=False)),
            "sync.read-back-later",
            "no `.item()` in the step",
        ),
        Story(
            "cpu",
            _steps(Range("augment", augment), *short),
            _fed(augment, short),
            "cpu.overlap",
            "a thread of its own augments, two steps ahead",
        ),
        Story(
            "host_blocked",
            _steps(Range("data", read), *forward),
            # Five workers make no single batch sooner: the first takes one of them as long as before.
            _fed([Sleep(600 * US, "read", 0.1)], forward, first=read),
            "host_blocked.workers",
            "five workers read ahead: after the first a batch is there every 0.6 ms",
        ),
        Story(
            "gpu_copy",
            _steps(*_copied("pageable", 0)),
            _steps(*_copied("pinned", 0)),
            "gpu_copy.pinned",
            "the same copies from pinned memory",
        ),
        Story(
            "gpu_comm",
            _steps(*_reduced(0)),
            _steps(*_reduced(1)),
            "gpu_comm.overlap-comm",
            "each layer's gradients are reduced on a stream of their own",
        ),
        Story(
            "init",
            _steps(*allocate),
            _steps(*allocate[1:]),
            "init.allocator",
            "one buffer for all steps",
        ),
    )


def finer() -> tuple[Story, ...]:
    """Programs with a finer pattern, whose number comes from what the trace itself counts."""
    return (
        Story(
            "cuda_api",
            _items(80, 3 * US),
            _items(1, 5 * US),  # one item fills a fiftieth of the GPU: 80 take 1.6 times as long as one
            "cuda_api.one-batch",
            "one batch of 80 items goes through the same 18 kernels, which take 5 us each",
        ),
        Story(
            "cpu",
            _left_on_cpu([Work(3 * MS, 0.1)]),
            _left_on_cpu([Work(20 * US), Launch("cdist_kernel", 100 * US)]),
            "cpu.move-to-device",
            "the operator runs on the GPU, in 0.1 ms",
        ),
    )


def _items(rounds: int, ns: int) -> Program:
    kernels = [
        piece for one in range(18) for piece in (Work(8 * US, 0.2), Launch(f"elementwise_{one}", ns, share=0.02))
    ]
    frame = [Loop(rounds, [Range("item {i}", kernels)]), Launch("sum", 50 * US), *item()]
    return program(Loop(6, [Range("frame {i}", frame)]), Sync(), name="items")


def _left_on_cpu(operator: list[Instruction]) -> Program:
    forward = [Range("aten::mm, seq = {i}", [Work(20 * US), Launch("gemm", 200 * US)]) for _ in range(4)]
    step = [Range("aten::cdist, seq = {i}", operator), Range("forward", forward)]
    return program(Loop(20, [Range("step {i}", step)]), Sync(), name="left_on_cpu")


def device_of(made: Program, folder: Path, name: str) -> DeviceReport:
    """What boundby says of a program's only device."""
    case = Case(name, made, Machine(host_jitter=0.05, device_jitter=0.01), 1)
    write_export(case.run(), folder / f"{name}.sqlite", "2023")
    return api.analyze(folder / f"{name}.sqlite").devices[0]


def row(story: Story, folder: Path) -> tuple[str, float]:
    """One line of the table, and by what part of it the second window lies outside the predicted range."""
    before = device_of(story.before, folder, f"{story.response}-before")
    after = device_of(story.after, folder, f"{story.response}-after")
    response = next(one for one in before.first_responses if one.id == story.response)
    rank = before.first_responses.index(response) + 1
    assert before.verdict.bound == story.name, (story.name, before.verdict.bound)
    assert response.saving_ns is not None, (story.name, response)
    low, high = (before.window_ns - saving for saving in reversed(response.saving_ns))
    outside = max(low - after.window_ns, after.window_ns - high, 0) / after.window_ns
    side = "shorter" if after.window_ns < low else "longer"
    cells = (
        pattern(story.name).title,
        duration(before.window_ns),
        f"{rank}. {response.title}",
        story.done,
        f"{duration(low)} - {duration(high)}",
        f"{duration(after.window_ns)} ({change(after.window_ns / before.window_ns - 1)})",
        f"{percent(outside, 1)} {side} still" if outside else "yes",
    )
    return f"| {' | '.join(cells)} |", outside


def table(folder: Path) -> str:
    """All rows, as Markdown."""
    head = ("pattern", "before", "response (its rank)", "carried out", "predicted", "second report", "held")
    lines = [f"| {' | '.join(head)} |", "| --- | ---: | --- | --- | ---: | ---: | --- |"]
    return "\n".join([*lines, *(row(story, folder)[0] for story in (*stories(), *finer()))])


def write_samples(folder: Path, into: Path = SAMPLES) -> None:
    """What boundby says of each pattern, for people who have no report at hand."""
    into.mkdir(exist_ok=True)
    reports = {"pytorch_profiler": SAMPLES.parent / "simulated_sync.pt.trace.json.gz"}
    for story in stories():
        case = Case(story.name, story.before, Machine(host_jitter=0.05, device_jitter=0.01), 1)
        reports[story.name] = folder / f"{story.name}.sqlite"
        write_export(case.run(), reports[story.name], "2023")
    for name, path in reports.items():
        analysis = api.examine(path)
        report = replace(analysis.report, trace=replace(analysis.report.trace, path=path.name))
        text = markdown.render(report).replace(f"{path.parent}/", "")
        (into / f"{name}.md").write_text(text, encoding="utf-8")
        html = page.render(report, analysis.plot_data, next_bounds=analysis.next_bounds)
        (into / f"{name}.html").write_text(html.replace(f"{path.parent}/", ""), encoding="utf-8")


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/first-responses.md and sample_reports/patterns")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        text = table(Path(folder))
        if write:
            write_samples(Path(folder))
    print(text)
    if write:
        page = PAGE.read_text(encoding="utf-8")
        above, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{above}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
