"""Which limit of the GPU its counters show: memory, tensor cores, instruction issue, too little work, or latency."""

from __future__ import annotations

from boundby.model.scale import HALF, SMALL
from boundby.model.units import duration, percent
from boundby.results.report import Counters, DeviceReport
from boundby.trace.facts import TraceWarning

#: A unit that is used beyond this part of its peak limits; below, latency or too little work does. Nsight Compute's
#: "speed of light" rules draw the same line.
MUCH_USED = HALF
#: Of the window: so much work without a record is told, and makes idle time doubtful.
NOTABLE_UNSEEN = SMALL


def limit(counters: Counters | None) -> str:
    """One sentence; empty where the counters were not sampled, or where other time is mixed into the samples."""
    if counters is None or not counters.is_unmixed or counters.sm_active is None:
        return ""
    used = _used(counters)
    beside = ", ".join(f"{name} {percent(value)}" for name, value in used.items())
    best = max(used, key=lambda name: used[name], default="")
    if best and used[best] > MUCH_USED:
        return f"{_LIMITS[best]} the limit of the kernels ({beside} of the peak)."
    if counters.sm_active < MUCH_USED:
        return (
            f"Only {percent(counters.sm_active)} of the multiprocessors (SMs) are active while the GPU is busy: "
            "the kernels have too few blocks to fill it."
        )
    if len(used) < len(_LIMITS):
        return ""
    return (
        f"No unit is used beyond {percent(MUCH_USED)} of its peak ({beside}) though {percent(counters.sm_active)} "
        "of the SMs are active: the kernels wait for memory or for their own results (latency)."
    )


def _used(counters: Counters) -> dict[str, float]:
    """How much of each unit's peak is used; units that were not sampled are not there."""
    values = {"memory": counters.dram, "tensor cores": counters.tensor_active, "SM issue": counters.sm_issue}
    return {name: value for name, value in values.items() if value is not None}


_LIMITS = {
    "memory": "Memory bandwidth is",
    "tensor cores": "The tensor cores are",
    "SM issue": "Instruction issue is",
}


def unseen(device: DeviceReport) -> TraceWarning | None:
    """What to say of work that the counters show and no operation on record; None: there is hardly any."""
    length_ns = device.coverage.unseen_ns
    if length_ns < NOTABLE_UNSEEN * device.window_ns:
        return None
    return TraceWarning(
        "lost-beside-counters",
        f"The counters of GPU {device.id} show it at work for {duration(length_ns)} in which no operation is on record"
        ": operations were lost, or another program uses this GPU.",
    )
