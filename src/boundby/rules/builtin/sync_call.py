"""Explicit waits, and blocking copies of more than a value: what no more specific rule speaks of."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import busy_of_devices
from boundby.evidence.waits import Group, WaitKind
from boundby.model.causes import Cause
from boundby.rules.builtin._waiting import Words, calls_of, matches
from boundby.rules.rule import Match, Rule

_ADVICE = (
    (
        "Memcpy",
        "Copy with cudaMemcpyAsync from pinned memory, on a stream of its own, and wait for an event only where the "
        "data are used",
    ),
    (
        "EventSynchronize",
        "Let the stream wait, not the host: cudaStreamWaitEvent(stream, event), event.wait() in PyTorch; or wait one "
        "step later, when the event is long done",
    ),
    (
        "StreamSynchronize",
        "Order streams with events (cudaStreamWaitEvent) instead of waiting on the host, and read results one step "
        "later",
    ),
    (
        "",
        "Remove the wait, or move it out of the loop: work on one stream is in order without it. Take times with "
        "events, not with a synchronization in every step",
    ),
)
# Devices that differ by this much from their mean make the host wait whatever it calls.
UNEVEN = 1.2


def check(context: RuleContext) -> Iterator[Match]:
    return matches(context, WaitKind.CALL, calls_of, _words)


def _words(context: RuleContext, group: Group) -> Words:
    advice = next(line for part, line in _ADVICE if part in group.key)
    busy_ns = busy_of_devices(context)
    if len(busy_ns) > 1 and max(busy_ns) >= UNEVEN * (sum(busy_ns) / len(busy_ns)):
        advice = (
            "The GPUs have unequal work, and the host waits for the slower one: see gpu-balance. Without the wait the "
            "next one takes its place"
        )
    return Words(f"{group.key} makes the host wait {group.costs}", (advice,))


RULE = Rule(
    id="sync-call",
    title="The host waits for the GPU in explicit calls, and the GPU runs dry",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
