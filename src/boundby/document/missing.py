"""What a report does not hold, what that costs, and the nsys flag that would have captured it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from boundby.document.text import clean
from boundby.model import units
from boundby.results.report import Report
from boundby.trace.facts import PYTORCH, UnreadTable


class Missing(Struct, frozen=True):
    kind: str
    cost: str  # what cannot be told without it
    flag: str  # of nsys profile, or what to give to torch.profiler
    reason: str = ""  # why it is not there although no flag is missing; empty: none is known

    @property
    def remedy(self) -> str:
        """The reason, where one is known, else what captures it: never a flag that was given."""
        return self.reason or self.flag


def captured_by(report: Report) -> str:
    """What captures more: it stands over what `not_captured` tells to give to it."""
    return "torch.profiler.profile" if report.trace.source == PYTORCH else "nsys profile"


def not_captured(report: Report) -> tuple[Missing, ...]:
    """The gaps that cost certainty.

    nsys writes no table for what did not happen, so kinds whose absence is as likely a fact about the program
    (copies, syncs, CUDA graphs) are not listed.
    """
    if report.trace.source == PYTORCH:
        return tuple(_not_in_pytorch_trace(report))
    return tuple(_not_in_nsys_report(report))


def not_read(report: Report) -> str:
    """``NET_NIC_METRIC, 12,400 rows; ANALYSIS_FILE, 3 rows``: what the report holds and boundby does not read."""
    return "; ".join(f"{clean(table.name)}, {_rows(table)}" for table in report.trace.not_read)


def _rows(table: UnreadTable) -> str:
    return "rows that cannot be counted" if table.rows is None else units.plural(table.rows, "row")


def _not_in_nsys_report(report: Report) -> Iterator[Missing]:
    captured, why = report.trace.captured, report.trace.not_recorded
    cuda, is_seen = why.get("cuda", ""), captured.kernels or captured.cuda_api
    if not captured.kernels and captured.cuda_graphs:
        cost = "what runs inside a graph: each launch counts as one piece of compute"
        yield Missing("kernels in CUDA graphs", cost, "--cuda-graph-trace=node", why.get("cuda_graphs", ""))
    elif not is_seen:
        yield Missing("CUDA", "anything about the GPU: the account is the host's", "-t cuda", cuda)
    elif not captured.kernels:
        yield Missing("kernels", "what the GPU computed, and when", "-t cuda", "traced, none recorded" * bool(cuda))
    elif not captured.cuda_api:
        cost = "what the host did while the GPU was idle"
        yield Missing("CUDA API calls", cost, "-t cuda", "traced, none recorded" * bool(cuda))
    if not captured.nvtx:
        cost, flag = "which part of the program the time belongs to", "-t nvtx (and annotate)"
        yield Missing("NVTX ranges", cost, flag, why.get("nvtx", ""))
    if not captured.osrt:
        cost = "what a sleeping host waits for: file, lock, worker"
        yield Missing("OS runtime calls", cost, "-t osrt", why.get("osrt", ""))
    if not captured.cpu_scheduling:
        cost = "whether the host computes or sleeps (cpu against blocked)"
        yield Missing("CPU scheduling", cost, "--cpuctxsw=process-tree", why.get("cpu_scheduling", ""))
    if report.devices and not captured.gpu_metrics:
        cost, flag = "how well running kernels fill the GPU", f"{_metrics_option(report.trace.nsys_version)}=all"
        yield Missing("GPU metrics", cost, flag, why.get("gpu_metrics", ""))


def _not_in_pytorch_trace(report: Report) -> Iterator[Missing]:
    """The same of PyTorch's profiler, which never records the operating system."""
    captured = report.trace.captured
    if not captured.kernels:
        yield Missing("kernels", "anything about the GPU: the account is the host's", _ACTIVITIES)
    elif not captured.cuda_api:
        yield Missing("CUDA API calls", "what the host did while the GPU was idle", _ACTIVITIES)
    if not captured.python_stacks:
        cost = "the program's lines, and what the host does outside operators (work or sleep)"
        yield Missing("Python functions", cost, "with_stack=True")
    if not captured.shapes:
        yield Missing("sizes of inputs", "floating-point work and bytes: how near the peak it is", "record_shapes=True")
    if not captured.memory:
        yield Missing("allocations", "memory over time, and what holds it at the peak", "profile_memory=True")
    cost = "sleep against work in detail, other processes, what lies before and after the active steps"
    is_of_amd = any(gpu.name.startswith("AMD") for gpu in report.trace.gpus)
    yield Missing("operating system", cost, "none" if is_of_amd else "none: capture with nsys, by boundby profile")


_ACTIVITIES = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"


def _metrics_option(nsys_version: str | None) -> str:
    """nsys renamed the option in 2024: 2024.2.3 knows only the old name, releases since 2025 use the new."""
    found = re.match(r"(\d{4})\.(\d+)", nsys_version or "")
    old = found is not None and (int(found[1]), int(found[2])) < (2024, 4)
    return "--gpu-metrics-device" if old else "--gpu-metrics-devices"
