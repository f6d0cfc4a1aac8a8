"""What a trace can leave open: every kind of uncertainty in words, with the capture that would settle it."""

from __future__ import annotations

from msgspec import Struct

_NSYS, _NSYS_EVENTS = "--trace=cuda,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree", "--cuda-event-trace=true"
_TORCH, _TORCH_EVENTS = "with_stack=True", "_ExperimentalConfig(enable_cuda_sync_events=True)"
_HOST = f"nsys: {_NSYS}; torch.profiler: {_TORCH}"
_EVENTS = f"nsys: {_NSYS_EVENTS}; torch.profiler: {_TORCH_EVENTS}"
_BOTH = f"nsys: {_NSYS} {_NSYS_EVENTS}; torch.profiler: {_TORCH}, {_TORCH_EVENTS}"
_AGAIN = "capture a shorter time, and let the program end by itself"
_ALONE = "capture while no other process uses the GPU"
_COMPARE = "make the change and compare: boundby compare BEFORE AFTER"


class OpenKind(Struct, frozen=True):
    """``sentence``: what is open, where nothing more is known of it. ``capture``: what would settle it."""

    sentence: str
    capture: str


KINDS = {
    # Of predictions.
    "model": OpenKind("savings are computed by a model of the program, which is not exact", _COMPARE),
    "unexplained": OpenKind("some delays have no cause on record, and may end with the change or stay", _BOTH),
    "makers": OpenKind("a thread of the program prepares the input meanwhile, and may need as long for it", _COMPARE),
    "allocations": OpenKind("allocations may or may not wait for the GPU", _HOST),
    "order": OpenKind("in which order work of several streams would run after the change is not known", _EVENTS),
    "wakers": OpenKind("which thread wakes the sleeping ones is not known", _HOST),
    "room": OpenKind("which kernels of several streams fit on the GPU together is not known", _COMPARE),
    "outside": OpenKind(
        "the GPU may be waiting for something that is not recorded, and that would not get faster",
        "capture the worker processes and the other ranks, too: boundby job",
    ),
    "ranks": OpenKind(
        "other ranks may gain as much, so that their messages come sooner", "capture the other ranks, too: boundby job"
    ),
    "shared": OpenKind("some launched work starts late for a reason that is not on record", _ALONE),
    "contradictions": OpenKind("the times deny some dependencies: as many others may be unknown", _EVENTS),
    "lost-work": OpenKind("launches are on record whose work is not", _AGAIN),
    "lost-calls": OpenKind("CUDA calls are missing from the record", _AGAIN),
    "unwoken": OpenKind("the thread that the host waits for is not on record: it may have worked or slept", _HOST),
    "idle-sleeps": OpenKind("sleeps that cost the GPU hardly any idle time may last as long as before", _HOST),
    "clock": OpenKind(
        "the GPU's clock may be ahead of the host's", "capture again, with another version of the profiler"
    ),
    "waits-first": OpenKind("the saving depends on whether the host's waits are removed first", _COMPARE),
    "range-of-change": OpenKind("the change makes it faster by a factor that is not known exactly", _COMPARE),
    # Of verdicts.
    "no-calls": OpenKind("CUDA API calls were not captured, so idle time has no owner", "nsys: --trace=cuda,nvtx,osrt"),
    "no-gpu": OpenKind(
        "the trace does not show whether the program waits for this thread",
        "capture a part of the program that uses the GPU: boundby doctor",
    ),
    "no-verdict": OpenKind("no verdict can be given", ""),
    "no-cause": OpenKind("no cause stands out", ""),
    "close": OpenKind("another cause is close behind", _COMPARE),
    "turned": OpenKind("removing another cause may save more: the estimates are too close to tell", _BOTH),
    "together": OpenKind("the host's causes together would save more", _COMPARE),
    "waits-stay": OpenKind(
        "removing another cause would save more, as long as the host waits as it does now", _COMPARE
    ),
    "unlike-account": OpenKind("what the account shows and what the replay saves differ", _BOTH),
    "unreplayed": OpenKind("savings are estimates", _EVENTS),
    "bad-times": OpenKind("the times of many rows contradict others: no time in this report is sure", _AGAIN),
    "bad-rows": OpenKind("some rows of the report are missing or cannot be right: others may be, too", _AGAIN),
    "error-printed": OpenKind(
        "the last thing that the program printed is an error: it may not have done its work",
        "mend the error, and capture again",
    ),
    "single-row": OpenKind("a single row of the report tells of time at the ends of the window", _AGAIN),
    "unrecorded": OpenKind("a part of the time is not recorded", _HOST),
    "profiler": OpenKind(
        "a part of the time is the profiler's own", "capture less: nsys without --sample and --backtrace"
    ),
    "opaque-graphs": OpenKind(
        "CUDA graphs are recorded as one piece each, not as kernels, copies and gaps", "nsys: --cuda-graph-trace=node"
    ),
    "unseen": OpenKind("the GPU's counters show work of which no operation is on record", _ALONE),
    "silent": OpenKind("CUDA calls stop on record before the end, while ranges go on", _AGAIN),
    "no-host": OpenKind("neither CPU scheduling, samples nor OS calls were captured", _HOST),
    "preempted": OpenKind(
        "the host's thread was runnable and waited for a core", "capture while no other program computes"
    ),
    "thinned": OpenKind(
        "context switches are missing: when the host computed, slept or waited for another thread is not sure",
        _AGAIN,
    ),
}
