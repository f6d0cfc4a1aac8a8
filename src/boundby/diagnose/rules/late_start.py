"""First GPU work long after the start of the trace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.diagnose.case import Case
from boundby.diagnose.devicework import framework
from boundby.diagnose.rule import Match, Remedy, Rule, Threshold
from boundby.diagnose.rules._setup import named_calls
from boundby.model.report import Example
from boundby.model.units import duration, percent
from boundby.timeline.intervals import union


def _check(case: Case) -> Iterator[Match]:
    if not case.devices:
        return
    device = min(case.devices, key=lambda item: (item.startup_ns, item.id))
    startup, window = device.startup_ns, device.window_ns
    share = startup / max(startup + window, 1)
    if startup < case.threshold(RULE, "startup_ns") or share < case.threshold(RULE, "startup_fraction"):
        return
    setting = case.timeline.setting
    calls = setting.calls
    low, high = device.window_start_ns - startup, device.window_start_ns
    rows = np.flatnonzero((calls.start_ns >= low) & (calls.end_ns <= high))
    in_cuda = union(calls.start_ns[rows], calls.end_ns[rows]).total
    evidence: dict[str, object] = {
        "startup_ns": startup,
        "window_ns": window,
        "startup_of_run_fraction": round(share, 4),
        "in_cuda_calls_ns": in_cuda if setting.trace.captured.cuda_api else None,
        "calls": named_calls(case, rows, 3) if len(rows) else [],
    }
    if setting.trace.captured.osrt:
        evidence["os_calls"] = _os_calls(case, low, high)
    in_ranges = _ranges(case, low, high)
    evidence["ranges"] = [f"{name}: {duration(length)}" for name, _, length in in_ranges]
    yield Match(
        region=None,
        title=f"the first GPU work starts {duration(startup)} after the trace: {percent(share)} of the run is before "
        f"it, {duration(in_cuda)} of that in CUDA calls",
        evidence=evidence,
        saving_ns=None,
        advice=_advice(case, in_cuda, startup),
        examples=tuple(Example(start, length, name) for name, start, length in in_ranges)
        or (Example(low, startup, "from the first event to the first GPU work"),),
        severity="note",
    )


def _os_calls(case: Case, low: int, high: int) -> list[str]:
    """The OS calls of the thread that launches the first work that take most of the start."""
    setting = case.timeline.setting
    start, end = setting.trace.os_calls.start_ns, setting.trace.os_calls.end_ns
    threads = np.unique(setting.calls.thread)
    inside = np.isin(setting.trace.os_calls.thread, threads) & (start >= low) & (end <= high)
    names = setting.trace.os_calls.name[inside]
    total: dict[str, int] = {}
    for name, length in zip(names.tolist(), (end - start)[inside].tolist(), strict=True):
        text = setting.trace.names[name]
        total[text] = total.get(text, 0) + length
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:3]
    return [f"{name}: {duration(length)}" for name, length in ranked]


def _ranges(case: Case, low: int, high: int) -> list[tuple[str, int, int]]:
    """The longest ranges before the first GPU work, no one inside another: name, start, length."""
    setting = case.timeline.setting
    ranges = setting.trace.ranges
    outer = setting.ownership.regions.range_parent < 0
    rows = np.flatnonzero(outer & (ranges.start_ns >= low) & (ranges.end_ns <= high))
    rows = rows[np.argsort(ranges.start_ns[rows] - ranges.end_ns[rows], kind="stable")][:3]
    length = ranges.end_ns - ranges.start_ns
    names = [setting.trace.names[name] for name in ranges.name[rows]]
    return list(zip(names, ranges.start_ns[rows].tolist(), length[rows].tolist(), strict=True))


def _advice(case: Case, in_cuda: int, startup: int) -> tuple[str, ...]:
    if in_cuda >= startup / 2:
        return (
            "Most of it is CUDA itself: load code when it is needed (CUDA_MODULE_LOADING=LAZY, the default since "
            "12.2), and show one GPU only (CUDA_VISIBLE_DEVICES=0)",
        )
    if not _is_python(case):
        return (
            "It is host code before the first launch: nsys profile --sample=process-tree, or perf record -g, shows "
            "which functions",
        )
    return (
        "It is host code before the first launch: py-spy record -o start.svg -- python train.py shows what it does, "
        "python -X importtime train.py which imports are slow",
        'A model is built faster on the GPU (with torch.device("cuda"):), a data set loaded faster from a prepared '
        "cache",
    )


def _is_python(case: Case) -> bool:
    trace = case.timeline.setting.trace
    started = [(trace.command or "").split(" ")[0], *(process.name for process in trace.processes)]
    return case.once(framework) in ("torch", "cudf") or any("python" in name for name in started)


RULE = Rule(
    id="late-start",
    title="The first GPU work comes late",
    group="init",
    picture="""\
host | imports | reads the data set | builds the model | uploads | steps ...
GPU                                                      |########|##########
       none of this is in the window
""",
    meaning="""\
The account begins with the first GPU work, so what comes before it is in no share and no saving. If the run is short,
or starts often (tests, jobs in a queue, serving that scales up), that time matters as much as any other.

Told if 2 s and a quarter of the run pass before the first GPU work. The profiler's own start is part of it. It is a
note: the window does not hold this time.
""",
    remedies=(
        Remedy(
            "See where it goes.",
            "python -X importtime train.py 2> imports.txt\npy-spy record -o start.svg -- python train.py",
            language="bash",
        ),
        Remedy(
            "Prepare the data set once, and map it.",
            'tokens = np.memmap("tokens.bin", dtype=np.uint16, mode="r")',
        ),
    ),
    disproof="The trace was started long before the program, or the run is so long that its start does not count.",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("startup_ns", 2e9, "ns", "Importing a framework and making a context take one or two seconds."),
        Threshold("startup_fraction", 0.25, "fraction of the run", "Less is seldom what a run is waited for."),
    ),
    see_also=("lazy-initialization",),
)
