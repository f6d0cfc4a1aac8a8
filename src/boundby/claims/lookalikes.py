"""What looks like a pattern and is something else, held against what is measured: one row an entry of the page.

The entries are those of "When it is not there" on the pages of `boundby.claims.patterns`, in their order; what tells
each from the pattern is a row as the classic signs are. Where it is not as usual, the other thing may be what it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from boundby.claims import patterns, signs
from boundby.claims.signs import Between, Part, SignOf, known, share
from boundby.model.causes import Cause
from boundby.model.scale import HALF, MOST, NEARLY_ALL, NOTABLE, QUARTER, SMALL
from boundby.results.report import Lookalike

#: As the nsys tables and PyTorch's profiler name copies that use no link to the host.
_BETWEEN_DEVICES = ("DtoD", "PtoP")


def _exposed(part: Part) -> Between | None:
    return None if part.exposed_by_waits_ns is None else known(part.exposed_by_waits_ns / signs.total(part))


def _waiting_for_a_core(part: Part) -> Between | None:
    """Where it is not on record when threads ran, nobody can tell."""
    return None if part.cpu_utilization is None else known(part.preempted_ns / signs.total(part))


def _in_graphs(part: Part) -> Between | None:
    graphs = part.graphs
    return known(graphs.total_ns / signs.total(part) if graphs else 0.0)


def _small_copies(part: Part) -> Between | None:
    number = sum(copied.count for copied in part.memcpy.values())
    return known(sum(copied.small_count for copied in part.memcpy.values()) / number) if number else None


def _between_devices(part: Part) -> Between | None:
    whole = sum(copied.total_ns for copied in part.memcpy.values())
    own = sum(copied.total_ns for key, copied in part.memcpy.items() if key in _BETWEEN_DEVICES)
    return known(own / whole) if whole else None


def _of_managed(part: Part) -> Between | None:
    """Of the bytes copied, those of managed memory."""
    whole = sum(copied.bytes for copied in part.memcpy.values())
    kinds = [(kind, size) for part_name in part.memcpy.values() for kind, size in part_name.by_memory.items()]
    return known(sum(size for kind, size in kinds if "managed" in kind) / whole) if whole else None


_CORES = SignOf("ready and without a core", _waiting_for_a_core, high=SMALL)
_INIT = SignOf("idle for initialization", share(Cause.INIT), high=NOTABLE)
_LONG = SignOf("idle time in gaps over 100 us", signs.long_gaps, HALF)

#: By the pattern's key, in the order of its page; None: nothing in a trace of one process tells.
ROWS: Mapping[str, tuple[SignOf | None, ...]] = {
    "gpu_compute": (
        SignOf("SMs active while busy", signs.active, HALF),
        SignOf("communication alone", share(Cause.GPU_COMM), high=NOTABLE),
        SignOf("copies alone", share(Cause.GPU_COPY), high=NOTABLE),
        SignOf("in CUDA graphs without their kernels", _in_graphs, high=NOTABLE),
        None,
    ),
    "cuda_api": (
        SignOf("idle for host code", share(Cause.CPU), high=QUARTER),
        _CORES,
        _INIT,
        SignOf("GPU busy", signs.busy, high=NEARLY_ALL),
    ),
    "sync": (
        SignOf("idle because of syncs", _exposed, SMALL),
        SignOf("idle for host code", share(Cause.CPU), high=QUARTER),
        SignOf("copies alone", share(Cause.GPU_COPY), high=NOTABLE),
    ),
    "cpu": (
        SignOf("launching thread at work", signs.own_work, MOST),
        _LONG,
        _CORES,
        _INIT,
        SignOf("not on record", share(Cause.UNATTRIBUTED), high=QUARTER),
    ),
    "host_blocked": (
        SignOf("GPU busy", signs.busy, high=MOST),
        _CORES,
        SignOf("idle for host code and initialization", share(Cause.CPU, Cause.INIT), high=QUARTER),
        None,
    ),
    "gpu_copy": (
        SignOf("copies alone", share(Cause.GPU_COPY), NOTABLE),
        SignOf("copies of at most 1 KiB", _small_copies, high=MOST),
        SignOf("copy time inside or between GPUs", _between_devices, high=HALF),
        SignOf("bytes of managed memory", _of_managed, high=HALF),
    ),
    "gpu_comm": (
        None,
        SignOf("communication alone", share(Cause.GPU_COMM), NOTABLE),
        SignOf("copy time inside or between GPUs", _between_devices, high=HALF),
    ),
    "init": (
        SignOf("idle for initialization", share(Cause.INIT), NOTABLE),
        None,
        None,
        None,
    ),
}


def of(pattern: str, part: Part) -> tuple[Lookalike, ...]:
    """Those of one pattern that something measured can tell from it."""
    texts = patterns.entries(pattern, patterns.NOT_PART)
    rows = zip(texts, ROWS[pattern], strict=True)
    return tuple(Lookalike(text, row.of(part)) for text, row in rows if row is not None)
