"""The figures behind a finding as the page shows them: each key in words that stand by themselves, each value with its
unit."""

from __future__ import annotations

from collections.abc import Mapping

from boundby.document.blocks import clean
from boundby.model import units
from boundby.model.late import expression

_NAMED_UNIT = expression(r"_(?:ns|bytes_per_s|bytes|fraction)(?=_|$)")
_UNIT = expression(r"(?:^|_)(bytes_per_s|bytes|fraction|share|ns)(?=_|$)")
_SHOWN = {"ns": units.duration, "bytes_per_s": units.bandwidth, "bytes": units.size} | dict.fromkeys(
    ("fraction", "share"), units.percent
)
# Numbers that name something: no thousands are set apart.
_NAMES = ("late_process", "processes_started", "sending_process", "thread", "thread_ids", "stream")
# A rule's id -> what its ``count`` counts, and what ``total_ns`` is the time of. Of other rules: kernels.
_COUNTED = dict.fromkeys(
    ("host-input", "host-phase", "host-wait", "host-work", "managed-read-back"), "stretches of time"
)
_COUNTED |= dict.fromkeys(
    ("copy-bandwidth", "copy-exposed", "copy-overlap", "pageable-copy", "repeated-transfer", "small-chunks"), "copies"
)
_COUNTED |= {
    "allocation": "calls",
    "comm-exposed": "collectives",
    "lazy-initialization": "calls",
    "managed-memory": "page migrations",
    "stream-default": "operations",
    "unfused-attention": "times that attention is computed",
}
_KERNELS = "kernels"
# How many, or which ones.
_LISTED = ("calls", "kernels")
# Where a figure is of more than what is counted: by its key and the rule's id.
_OF_MORE = {("calls_ns", "small-chunks"): "host time in the calls of these copies and their kernels"}
# Where ``total_ns`` is the time of something else than what is counted.
_TIMED = {"unfused-attention": "kernels between the matrix products"}
# A word of the tool's -> what it stands for.
_WORDS = {
    "account": "from the shares of the time",
    "measured": "from measured times, without a replay",
    "replay": "by replaying the trace without this cost",
}
# What each figure is, so that it is understood without those beside it; any other reads as it is spelled.
_LABELS = {
    "allocated_bytes": "memory allocated",
    "allocation_ns": "time in allocations",
    "assumed_graph_launch_ns": "assumed time to launch a graph",
    "assumed_link": "assumed link",
    "assumed_speed_up": "assumed speed-up (least, most)",
    "backward_count": "backward passes",
    "bandwidth_bytes_per_s": "bandwidth reached",
    "batch_bytes": "size of a batch",
    "before_kernels": "interruptions before kernels",
    "blocks": "blocks of a launch",
    "blocks_resident_per_multiprocessor": "blocks that fit on a multiprocessor at once",
    "busiest_thread_ns_of_each": "busiest thread in each period",
    "by_way_exposed_ns": "not hidden by other work, by direction",
    "bytes": "bytes moved",
    "bytes_each_way_and_time": "moved in each direction, each time",
    "call_median_ns": "one call takes (median)",
    "calls": "calls",
    "calls_ns": "host time in these calls",
    "captured_in": "graphs captured in",
    "chains": "chains of kernels",
    "common_lengths_ns": "most common lengths of an interruption",
    "common_size_bytes": "most frequent size of an allocation",
    "commonest_size_bytes": "most frequent size of a copy",
    "commonest_size_count": "copies of that size",
    "compiling_ns": "time in compilers",
    "compute_ns": "time in kernels, by GPU",
    "convolutions_with_nchw_inputs_fraction": "convolutions with NCHW inputs",
    "copied_bytes": "bytes copied",
    "cores_taken_meanwhile": "cores taken meanwhile, by whom",
    "cpu_page_faults_in_trace": "page faults of the CPU",
    "default_stream_busy_ns": "default stream busy",
    "devices": "GPUs",
    "estimated_occupancy_fraction": "estimated occupancy",
    "evictions": "evictions from the GPU's memory",
    "excess_ns": "time beyond the usual",
    "expected_bytes_per_s": "bandwidth expected",
    "expected_from": "expected bandwidth is that of",
    "exposed_ns": "time not hidden by other work",
    "fastest_tenth": "fastest tenth of the window",
    "files": "files read",
    "first_launches_ns": "time in first launches of kernels",
    "first_ns": "first instance takes",
    "first_to_last_gpu_work_ns": "from the first GPU work to the last",
    "forward_count": "forward passes",
    "gaps": "gaps of the GPU",
    "gpu": "GPU",
    "gpu_idle_fraction": "GPU idle meanwhile (share of the window)",
    "gpu_idle_ns": "GPU idle meanwhile",
    "gpu_idle_right_after_ns": "GPU idle right after the waits",
    "gpu_ns_of_each": "GPU work in each period",
    "gpu_page_faults_in_trace": "page faults of the GPU",
    "gpus_listed": "GPUs of the machine",
    "gpus_used": "GPUs used",
    "graph_fraction": "time inside graphs (share of the window)",
    "graph_launches": "launches of graphs",
    "graph_ns": "time inside graphs",
    "half_is_over_at_fraction": "half of this work is done at (share of the window)",
    "held_ns": "time held up",
    "hidden_fraction": "hidden by other work",
    "host_asleep_fraction": "of this time, host asleep",
    "host_in_libraries_ns": "host time in libraries that start",
    "host_waited_ns": "host waited, in all",
    "idle_fraction": "multiprocessors idle",
    "idle_in_launching_ns": "GPU idle for launch overhead",
    "idle_ns": "GPU idle",
    "in_cuda_calls_ns": "of this, in CUDA calls",
    "in_kernels": "interruptions inside kernels",
    "initialization_in_the_rest_fraction": "initialization in the rest of the window",
    "inside_a_send_meanwhile_fraction": "of this time, the sender was inside its send",
    "interrupted_fraction": "kernels between which the host makes other calls",
    "interrupted_ns": "time lost to interruptions",
    "is_upload": "upload made once, with next to no kernel meanwhile",
    "is_without_first_in_and_last_out": "first upload and last download left out",
    "kernel_count": "kernels",
    "kernel_median_ns": "one kernel takes (median)",
    "kernels_between": "kernels between the matrix products",
    "kernels_between_ns": "time of the kernels between these copies",
    "kernels_wait_ns": "kernels wait for pages",
    "lanes_used_fraction": "lanes of a warp in use",
    "largest_split_of_mean": "largest part of an exchange, times the mean",
    "last_fraction": "collectives to which it comes last",
    "late": "late ranks",
    "late_ns": "of this, after the first quarter of the window",
    "late_process": "process that comes late",
    "late_process_inside_ns": "late process inside the call",
    "later_median_ns": "later instances take (median)",
    "launch_to_launch_median_ns": "from one launch to the next (median)",
    "launches_lost": "launches whose work is not on record",
    "launches_per_graph": "launches in one graph",
    "lines": "lines of code",
    "loading_ns": "time in loading code",
    "longest_loop_ns": "longest loop",
    "longest_ns": "longest of them",
    "longest_of_each_process_ns": "longest in each process",
    "matrix_products_ns": "time of the matrix products",
    "mean_ns": "mean",
    "median_lateness_ns": "comes later than the others by (median)",
    "median_ns": "one takes (median)",
    "messages": "messages",
    "migrations": "page migrations",
    "moved_bytes": "bytes moved",
    "multiprocessors": "multiprocessors of the GPU",
    "name": "full name",
    "of_a_step": "in each step",
    "operator": "PyTorch operator",
    "os_calls": "calls of the operating system",
    "other_processes_inside_ns": "other processes inside the call",
    "other_streams_busy_ns": "other streams busy",
    "other_threads_running": "other threads of the program at work",
    "others_waited_ns": "others wait for it, in all",
    "p10_ns": "10th percentile",
    "p90_ns": "90th percentile",
    "parts": "parts of the window compared",
    "period_ns": "time from one arrival to the next",
    "periods": "arrivals",
    "polling_ns": "time in polling",
    "preempted_fraction": "waits for a core (share of the time)",
    "preempted_ns": "waits for a core",
    "processes_started": "processes started (ids)",
    "read_bytes": "bytes read",
    "reading_ns": "time in reading",
    "regions_found": "regions found by boundby",
    "released_again_bytes": "memory released again",
    "returns": "round trips",
    "run_median_ns": "one copy or kernel takes (median)",
    "saving_after_other_waits_ns": "saved if the other waits go first",
    "saving_alone_ns": "saved if these waits alone go",
    "saving_by": "how the saving was computed",
    "sending_process": "process that sends",
    "sequences": "launch sequences that repeat",
    "setup_calls_inside_ns": "of this, set-up calls",
    "share_of_window_fraction": "share of the window",
    "share_of_window_in_the_account_fraction": "share of the window, as in the bars",
    "shared_bytes_per_block": "shared memory of a block",
    "shift_ns": "shift of the GPU's clock",
    "slept_on_ns": "calls that the host waited in",
    "slower_by": "slowest over fastest, times",
    "slowest_tenth": "slowest tenth of the window",
    "small_grid_fraction": "kernels with fewer blocks than the GPU needs",
    "spread_fraction": "difference of these two (share of the median)",
    "started_before_launch_fraction": "work that seems to start before its launch",
    "startup_ns": "before the first GPU work",
    "startup_of_run_fraction": "before the first GPU work (share of the run)",
    "stretches": "stretches of compilation",
    "tf32_kernels_in_trace": "TF32 kernels on record",
    "their_cpu_utilization_fraction": "share of a core that each of these threads takes",
    "thread": "thread (id)",
    "thread_ids": "threads (ids)",
    "threads": "threads that do it",
    "times_larger": "chunks could be larger by a factor of",
    "to_device_count": "of these, to the device",
    "turns": "times that copies and kernels take turns",
    "unexplained_fraction": "time in question (share of all GPUs' time)",
    "unexplained_ns": "time in question, summed over the GPUs",
    "unused": "GPUs not used",
    "versions": "versions of the kernel",
    "waited_for_it_ns": "the others waited for it",
    "waiting_ns": "of this, waiting for other ranks",
    "waiting_with_gil_in_backtrace_fraction": "of these waits, for the interpreter's lock (GIL)",
    "waits_because": "why it waits",
    "waits_for_a_core_ns": "of this, waiting for a core",
    "warm_up_instances": "instances that warm up",
    "warm_up_of_window_fraction": "warm-up (share of the window)",
    "warm_up_option": "option that asks for warm-up",
    "warm_up_regions": "regions that warm up",
    "worker_processes": "worker processes",
    "worker_processes_cpu_utilization_fraction": "share of a core that each worker takes",
}


#: Where no GPU idles, the same figures are of the host's threads.
_HOST_LABELS = {"idle_ns": "time", "share_of_window_fraction": "share of all threads' time"}


def evidence_label(key: str, rule: str = "", *, has_gpu: bool = True, is_list: bool = False) -> str:
    """``share of kernel time``: the value carries the unit. ``rule``: the id of the rule that found it.
    ``is_list``: the value names them."""
    label = f"which {key}" if is_list and key in _LISTED else None if has_gpu else _HOST_LABELS.get(key)
    if key in ("count", "total_ns"):
        counted = _COUNTED.get(rule, _KERNELS)
        label = counted if key == "count" else f"time of these {_TIMED.get(rule, counted)}, summed"
    label = _OF_MORE.get((key, rule), label)
    return clean(label or _LABELS.get(key) or _NAMED_UNIT.sub("", key).replace("_", " "))


def _inner(name: str) -> str:
    """The label of a figure inside another one: names of lines and operators stay as they are."""
    return evidence_label(name) if name.isidentifier() else clean(name)


def evidence(key: str, value: object, unit: str = "") -> str:
    """A figure of a finding as people read it; its unit is a word of its name, else of the name of what holds it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: units.NOT_CAPTURED}[value]
    unit = named[1] if (named := _UNIT.search(key)) else unit
    if isinstance(value, int | float):
        plain = str(value) if key in _NAMES else f"{value:,}"
        return _SHOWN[unit](value) if unit else plain if isinstance(value, int) else f"{value:.3g}"
    if isinstance(value, Mapping):
        parts = (f"{_inner(str(name))}: {evidence(str(name), item, unit)}" for name, item in value.items())
        return ", ".join(parts) or "none"
    if key == "saving_by":
        return _WORDS.get(str(value), str(value))
    if isinstance(value, list | tuple):
        return ", ".join(evidence(key if key in _NAMES else "", item, unit) for item in value) or "none"
    return clean(str(value))
