"""docs/gpu.md of what ``scripts/gpu-proof`` brought back: what was predicted and measured, and by how much they differ.

    scripts/gpu-proof tables

Raw streams (``.qdstrm``) become reports here. Nothing is left out of a table because it looks bad: an item that failed
is a row that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from boundby import Report, UserError, analyze
from boundby.model.units import duration

AFTERS = ("after", "graphs", "compile")


@dataclass(frozen=True)
class Results:
    """The folder of items; each holds result.json and what its command left."""

    folder: Path

    def result(self, key: str) -> dict[str, Any] | None:
        path = self.folder / key / "result.json"
        return json.loads(path.read_text()) if path.exists() else None

    def said(self, key: str) -> Any:
        """What the item printed as JSON; None where it did not run or failed."""
        result = self.result(key)
        if result is None or result["exit_code"]:
            return None
        lines = [line for line in result["stdout"].splitlines() if line.startswith("{")]
        return json.loads(lines[-1] if lines else result["stdout"] or "null")

    def report(self, key: str) -> Report | None:
        """The analysis of the capture that the item left."""
        run = self.folder / key / "run"
        for name in ("report.nsys-rep", "report.qdstrm", "trace.json.gz", "report.pt.trace.json.gz"):
            if (run / name).exists():
                try:
                    return analyze(run / name)
                except UserError as error:
                    print(f"{key}: {error}")
        return None

    def all_keys(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob("*/result.json"))


def write_tables(folder: Path, output: Path) -> None:
    """Write the page."""
    results = Results(folder)
    parts = (environment, predictions, planted, times, peaks, profilers, cost, items)
    text = "\n\n".join("\n".join(part(results)) for part in parts) + "\n"
    output.write_text(f"# On a real GPU\n\nMade by `scripts/gpu-proof`.\n\n{text}", encoding="utf-8")


def table(*columns: str) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"


def row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def percent(value: float, truth: float) -> str:
    return f"{100 * (value - truth) / truth:+.1f} %" if truth else ""


def environment(results: Results) -> Iterator[str]:
    """Device and versions."""
    facts = [said for key in results.all_keys() if (said := results.said(key)) and "torch" in said]
    yield "## Machine\n"
    yield (
        ", ".join(sorted({f"{one.get('device_name') or one.get('device')}, torch {one['torch']}" for one in facts}))
        or "not known"
    )


def step_ns(results: Results, name: str, variant: str, kind: str = "plain") -> int | None:
    said = results.said(f"captures.{name}-{variant}.{kind}")
    return said and said["median_ns"]


def predictions(results: Results) -> Iterator[str]:
    """Each workload: verdict and first finding on "before"; "after", measured without a profiler."""
    yield "## Before and after\n"
    yield from table(
        "workload", "capture", "verdict", "first finding", "would save", "before, unprofiled", "after", "saved"
    )
    names = dict.fromkeys(
        key.split(".")[1].rsplit("-", 1)[0] for key in results.all_keys() if key.startswith("captures.")
    )
    for name in names:
        before = step_ns(results, name, "before")
        for kind in ("nsys", "torch"):
            report = results.report(f"captures.{name}-before.{kind}")
            if report is None or before is None:
                continue
            verdict = ", ".join(f"{device.bound} ({device.confidence})" for device in report.devices) or "no device"
            first = next((finding for finding in report.findings if finding.saving_ns), None)
            window = report.devices[0].window if report.devices else None
            share = ""
            if first is not None and first.saving_ns is not None and window is not None:
                length = window.end_ns - window.start_ns
                share = " to ".join(f"{100 * saving / length:.0f} %" for saving in first.saving_ns)
            for variant in AFTERS:
                after = step_ns(results, name, variant)
                if after is not None:
                    saved = f"{100 * (before - after) / before:.0f} %"
                    title = first.title if first else "none"
                    yield row(
                        f"{name} → {variant}", kind, verdict, title, share, duration(before), duration(after), saved
                    )


def planted(results: Results) -> Iterator[str]:
    """Parts of known length."""
    yield "## A wait, a sleep and a copy of known length\n"
    yield from table("profiler", "part", "planted", "found", "difference")
    for kind in ("nsys", "torch"):
        truth, report = (
            results.said(f"planted.{kind}") or results.said("planted.plain"),
            results.report(f"planted.{kind}"),
        )
        if truth is None or report is None:
            continue
        steps = ("step", "ProfilerStep")
        regions = {region.path[-1]: region for region in report.regions if "".join(region.path[:1]).startswith(steps)}
        found = {
            "sleep": regions["sleep"].host_ns if "sleep" in regions else None,
            "copy": regions["copy"].time["gpu_copy"] if "copy" in regions else None,
            "wait": regions["wait"].sync.blocked_ns if "wait" in regions and regions["wait"].sync else None,
        }
        for part, value in found.items():
            known = truth[f"{part}_ns"]
            told = "not told" if value is None else duration(value)
            yield row(kind, part, duration(known), told, "" if value is None else percent(value, known))


def times(results: Results) -> Iterator[str]:
    """boundby measure against the judges."""
    yield "## Timing\n"
    tests = results.result("time.tests")
    if tests is not None:
        summary = (tests["stdout"].strip().splitlines() or ["nothing"])[-1].strip("= ")
        yield f"`pytest tests/measure/test_gpu.py`: {summary}\n"
    judges = results.said("time.judges")
    if judges:
        yield from table("function", "boundby", "torch.utils.benchmark", "events by hand", "to Timer", "to events")
        for name, one in judges.items():
            ours, theirs, hand = one["ours_ns"], one["theirs_ns"], one["by_hand_ns"]
            by_hand = (duration(hand), percent(ours, hand)) if hand else ("", "")
            yield row(name, duration(ours), duration(theirs), by_hand[0], percent(ours, theirs), by_hand[1])
    shown = ("methods", "devices", "throughput", "mistakes", "ways", "batches", "distances", "training", "loss")
    for key in (f"time.{name}" for name in shown):
        result = results.result(key)
        if result is not None:
            yield f"\n`{result['command']}`\n\n```\n{result['stdout'].rstrip()}\n```"


def peaks(results: Results) -> Iterator[str]:
    """Published against reached."""
    yield "## Peaks\n"
    said = results.said("peaks.peaks")
    if said:
        yield from table("what", "reached", "published", "share")
        for group, unit in (("tflops", "TFLOP/s"), ("gb_per_s", "GB/s")):
            for name, one in said[group].items():
                published = one["published"]
                share = f"{100 * one['measured'] / published:.0f} %" if published else ""
                yield row(name, f"{one['measured']:,.1f} {unit}", f"{published:,.1f}" if published else "", share)


def profilers(results: Results) -> Iterator[str]:
    """The same program, recorded by nsys and by torch's profiler."""
    yield "## One program, two profilers\n"
    yield from table("workload", "device time, nsys", "torch", "difference", "verdict, nsys", "torch")
    for key in results.all_keys():
        if not key.endswith(".nsys"):
            continue
        name = key.removesuffix(".nsys")
        pair = [results.report(f"{name}.{kind}") for kind in ("nsys", "torch")]
        if None in pair or not all(report and report.devices for report in pair):
            continue
        # Per step: the two record different numbers of steps.
        busy = [report.devices[0].busy_ns / max(1, steps_in(report)) for report in pair if report]
        bounds = [report.devices[0].bound for report in pair if report]
        label = name.split(".", 1)[1]
        yield row(label, duration(round(busy[0])), duration(round(busy[1])), percent(busy[1], busy[0]), *bounds)


def steps_in(report: Report) -> int:
    return max((region.instances for region in report.regions if region.path[-1].startswith("step")), default=1)


def cost(results: Results) -> Iterator[str]:
    """What recording costs a step."""
    yield "## The cost of recording\n"
    yield from table("workload", "alone", "boundby profile", "", "--torch-ops", "")
    names = dict.fromkeys(key.split(".")[1] for key in results.all_keys() if key.startswith("cost."))
    for name in names:
        medians = []
        for kind in ("plain", "profile", "torch-ops"):
            turns = [results.said(f"cost.{name}.{kind}.{turn}") for turn in range(3)]
            values = [said["median_ns"] for said in turns if said]
            medians.append(median(values) if values else None)
        alone = medians[0]
        if alone is not None:
            cells = [(duration(round(one)), percent(one, alone)) if one else ("", "") for one in medians[1:]]
            yield row(name, duration(round(alone)), *(cell for pair in cells for cell in pair))


def items(results: Results) -> Iterator[str]:
    """Every item that ran, and how it ended."""
    yield "## All items\n"
    yield from table("item", "command", "ended")
    for key in results.all_keys():
        result = results.result(key)
        assert result is not None
        code = result["exit_code"]
        ended = f"{result['seconds']:.0f} s" if not code else f"exit {code}: {last_line(result)}"
        yield row(key, f"`{result['command']}`", ended)


def last_line(result: dict[str, Any]) -> str:
    return next((line for line in reversed((result["stderr"] or result["stdout"]).splitlines()) if line.strip()), "")
