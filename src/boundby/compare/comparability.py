"""Why two reports may not be comparable, or only in part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from boundby.compare.gate import OPEN
from boundby.compare.matching import Part
from boundby.model.units import plural
from boundby.results.comparison import Doubt
from boundby.results.report import Report
from boundby.trace.facts import PYTORCH, Captured
from boundby.trace.vocabulary.last_words import FAILED

# Kernels, copies and syncs are left out: a program that makes none of them leaves the same trace as a capture without.
_KINDS = {
    "cuda_api": "CUDA calls",
    "nvtx": "NVTX ranges",
    "osrt": "OS runtime calls",
    "cpu_scheduling": "CPU scheduling",
    "cpu_samples": "CPU samples",
    "gpu_metrics": "GPU metrics",
}
#: What decides between the causes of idle time: without it on one side, shares move between them.
_DECIDES = ("cuda_api", "osrt", "cpu_scheduling", "cpu_samples")
#: Warnings of a trace that change what times mean.
_TELLING = ("clock-skew", "graph-level", *OPEN)


def doubts(before: Report, after: Report, steps: tuple[Part, Part] | None, matched: bool = True) -> list[Doubt]:
    """Everything that differs beside the program itself, in the order of how much it spoils. ``matched``: some region
    of the one is in the other."""
    return [
        *_ends(before, after),
        *_devices(before, after),
        *_windows(before, after),
        *_commands(before, after),
        *_programs(before, after, matched),
        *_captures(before, after),
        *_steps(steps),
        *_found(before, after),
        *_traces(before, after),
    ]


def _ends(before: Report, after: Report) -> Iterator[Doubt]:
    for which, report in (("earlier", before), ("later", after)):
        if (end := report.trace.program) is not None and end.ended == FAILED:
            said = f" ({end.words})" if end.words else ""
            text = f"The program of the {which} report failed{said}: it was measured only until then."
            yield Doubt(f"{which}-failed", text)


def _devices(before: Report, after: Report) -> Iterator[Doubt]:
    if bool(before.devices) != bool(after.devices):
        which = "earlier" if before.devices else "later"
        yield Doubt("gpu-work", f"Only the {which} report holds GPU work: their accounts are of different things.")
        return
    one, other = (Counter(device.name for device in report.devices) for report in (before, after))
    if set(one) != set(other):
        yield Doubt("gpu", f"Other GPUs: {_names(one)} before, {_names(other)} after.")
    elif one != other:
        yield Doubt("gpu-count", f"{plural(len(before.devices), 'GPU')} before, {len(after.devices)} after.")


def _names(counts: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(counts.items())) or "none"


def _windows(before: Report, after: Report) -> Iterator[Doubt]:
    one, other = before.analysis, after.analysis
    if one.window != other.window:
        yield Doubt("window", f"Other windows: {one.window} before, {other.window} after.")
    if one.skip_first != other.skip_first:
        first = plural(one.skip_first, "step")
        yield Doubt(
            "skip-first", f"Warm-up was left out differently: the first {first} before, {other.skip_first} after."
        )
    if (one.device_ids, one.process_ids) != (other.device_ids, other.process_ids):
        yield Doubt("selection", "Other devices or processes were chosen in the two.")
    if (one.region_glob, one.min_share) != (other.region_glob, other.min_share):
        yield Doubt("regions", "The two reports were limited to other regions: some may look new or gone.")
    rules = [(asked.rules_disabled, dict(asked.thresholds), asked.show_all) for asked in (one, other)]
    if rules[0] != rules[1]:
        yield Doubt("rules", "Findings were looked for by other rules or thresholds in the two.")


def _commands(before: Report, after: Report) -> Iterator[Doubt]:
    one, other = before.trace.command, after.trace.command
    if one != other and one is not None and other is not None:
        yield Doubt("command", f"Other commands: {one!r} before, {other!r} after.")
    elif (one is None) != (other is None):
        which = "earlier" if one is None else "later"
        yield Doubt("command-unknown", f"What ran is not recorded in the {which} report.")


def _programs(before: Report, after: Report, matched: bool) -> Iterator[Doubt]:
    """Nothing that both do: no region, and no kernel of those with most time."""
    one, other = before.trace.command, after.trace.command
    if matched or (one is not None and one == other):
        return
    kernels = [{top.name for device in report.devices for top in device.kernels.top} for report in (before, after)]
    if kernels[0] and kernels[1] and not kernels[0] & kernels[1]:
        yield Doubt(
            "program",
            "Two programs: no region is in both, and no kernel of those with most time. What differs is no change.",
        )


def _captures(before: Report, after: Report) -> Iterator[Doubt]:
    for report, other, when in ((before, after, "before"), (after, before, "after")):
        only = [key for key in _KINDS if _has(report.trace.captured, key) and not _has(other.trace.captured, key)]
        if not only:
            continue
        cost = "the profiler's own cost differs"
        if any(key in _DECIDES for key in only):
            cost = "idle time is told apart by other evidence, so causes can trade places"
        yield Doubt("capture", f"Captured only {when}: {', '.join(_KINDS[key] for key in only)}; {cost}.")
    old, new = before.trace.nsys_version, after.trace.nsys_version
    if before.trace.source != after.trace.source and PYTORCH in (before.trace.source, after.trace.source):
        first, then = ("torch.profiler" if one.trace.source == PYTORCH else "nsys" for one in (before, after))
        yield Doubt("profiler", f"Two profilers: {first} before, {then} after; each one's own cost differs.")
    elif old != new:
        yield Doubt("nsys", f"Other versions of nsys: {old or 'unknown'} before, {new or 'unknown'} after.")


def _has(captured: Captured, key: str) -> bool:
    return bool(getattr(captured, key))


def _steps(steps: tuple[Part, Part] | None) -> Iterator[Doubt]:
    if steps is None or steps[0].instances == steps[1].instances:
        return
    name = "/".join(steps[1].path)
    text = f"{name} ran {steps[0].instances} times before, {steps[1].instances} after: times are set side by side each."
    yield Doubt("steps", text)


def _found(before: Report, after: Report) -> Iterator[Doubt]:
    """Regions that boundby found have its names, given again in each report."""
    one, other = (
        {region.path: region.instances for region in report.regions if region.found} for report in (before, after)
    )
    if one != other:
        text = "Regions were found by repetition and named by boundby: that those of one name are the same is a guess."
        yield Doubt("found-regions", text)


def _traces(before: Report, after: Report) -> Iterator[Doubt]:
    for code in _TELLING:
        one, other = (any(item.code == code for item in report.trace.warnings) for report in (before, after))
        if one != other:
            which = "earlier" if one else "later"
            yield Doubt(code, f"Only the {which} trace has the warning {code}: see there what it means.")
