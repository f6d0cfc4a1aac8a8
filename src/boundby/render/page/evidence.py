"""The figures behind a finding as the page shows them: each key in words, each value with its unit."""

from __future__ import annotations

from collections.abc import Mapping

from boundby.document.blocks import clean
from boundby.model import units
from boundby.model.expressions import expression

_NAMED_UNIT = expression(r"_(?:ns|bytes_per_s|bytes|fraction)(?=_|$)")
_UNIT = expression(r"(?:^|_)(bytes_per_s|bytes|fraction|share|ns)(?=_|$)")
_SHOWN = {"ns": units.duration, "bytes_per_s": units.bandwidth, "bytes": units.size} | dict.fromkeys(
    ("fraction", "share"), units.percent
)
# Numbers that name something: no thousands are set apart.
_NAMES = ("late_process", "processes_started", "sending_process", "thread", "thread_ids", "stream")
# Keys that do not read as words; any other reads as it is spelled, its unit left to the value.
_LABELS = {
    "allocation_ns": "in allocations",
    "assumed_speed_up": "assumed to be so many times as fast",
    "before_kernels": "interruptions before kernels",
    "busiest_thread_ns_of_each": "busiest thread in each period",
    "by_way_exposed_ns": "not hidden, by direction",
    "bytes_each_way_and_time": "each way, each time",
    "call_median_ns": "one call (median)",
    "calls_ns": "in the calls",
    "commonest_size_bytes": "most frequent size",
    "commonest_size_count": "copies of that size",
    "compiling_ns": "in compilers",
    "excess_ns": "longer than later ones by",
    "exposed_ns": "not hidden by other work",
    "first_launches_ns": "in first launches",
    "first_ns": "first instance",
    "gpu_ns_of_each": "GPU work in each period",
    "graph_fraction": "time inside graphs (share of the window)",
    "graph_ns": "time inside graphs",
    "half_is_over_at_fraction": "half of it is over after (of the window)",
    "hidden_fraction": "hidden by other work",
    "idle_ns": "GPU idle",
    "in_kernels": "interruptions inside kernels",
    "interrupted_fraction": "of these, cut short by other calls",
    "is_upload": "goes to the device",
    "is_without_first_in_and_last_out": "first upload and last download left out",
    "kernels_wait_ns": "kernels wait for pages",
    "largest_split_of_mean": "largest part of an exchange, times the mean",
    "late": "late ranks",
    "late_ns": "after the first quarter of the window",
    "loading_ns": "in loading code",
    "longest_of_each_process_ns": "longest in each process",
    "name": "full name",
    "of_a_step": "in each step",
    "other_threads_running": "other threads of the program at work",
    "p10_ns": "one in ten is shorter than",
    "p90_ns": "one in ten is longer than",
    "run_median_ns": "one copy or kernel (median)",
    "saving_after_other_waits_ns": "saved if the other waits go first",
    "saving_alone_ns": "saved if these waits alone go",
    "saving_by": "saving worked out by",
    "setup_calls_inside_ns": "set-up calls inside",
    "slept_on_ns": "waited in",
    "small_grid_fraction": "kernels with few blocks",
    "spread_fraction": "between these two, of the median",
    "startup_ns": "before the first GPU work",
    "startup_of_run_fraction": "share of the run",
    "their_cpu_utilization_fraction": "share of a core that each of these takes",
    "times_larger": "chunks could be larger by a factor of",
    "unexplained_fraction": "no recorded cause (share of the window)",
    "unexplained_ns": "no recorded cause",
    "waits_because": "why it waits",
    "warm_up_of_window_fraction": "warm-up (share of the window)",
    "worker_processes_cpu_utilization_fraction": "share of a core that each worker takes",
}


#: Where no GPU idles, the same figures are of the host's threads.
_HOST_LABELS = {"idle_ns": "time", "share_of_window_fraction": "share of all threads' time"}


def evidence_label(key: str, *, has_gpu: bool = True) -> str:
    """``share of kernel time``: the value carries the unit."""
    label = None if has_gpu else _HOST_LABELS.get(key)
    return clean(label or _LABELS.get(key) or _NAMED_UNIT.sub("", key).replace("_", " "))


def evidence(key: str, value: object, unit: str = "") -> str:
    """A figure of a finding as people read it; its unit is a word of its name, else of the name of what holds it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: units.NOT_CAPTURED}[value]
    unit = named[1] if (named := _UNIT.search(key)) else unit
    if isinstance(value, int | float):
        plain = str(value) if key in _NAMES else f"{value:,}"
        return _SHOWN[unit](value) if unit else plain if isinstance(value, int) else f"{value:.3g}"
    if isinstance(value, Mapping):
        parts = (f"{evidence_label(str(name))}: {evidence(str(name), item, unit)}" for name, item in value.items())
        return ", ".join(parts) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(evidence(key if key in _NAMES else "", item, unit) for item in value) or "none"
    return clean(str(value))
