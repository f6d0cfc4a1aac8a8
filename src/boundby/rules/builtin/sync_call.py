"""Explicit waits, and blocking copies of more than a value: what no more specific rule speaks of."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import busy_of_devices
from boundby.evidence.waits import Group, WaitKind, waits_of
from boundby.model.arrays import pick
from boundby.model.causes import Cause
from boundby.model.step_function import NOTHING
from boundby.rules.builtin._waiting import Words, calls_of, matches
from boundby.rules.rule import Match, Rule
from boundby.trace.tables import Direction

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
# These shares of the waits come right after copies within the device: they are what is waited for.
MOSTLY, NEARLY_ALL = 0.6, 0.9
_ON_DEVICE = (
    "A copy within the device needs no wait: what uses the data comes after it on the same stream anyway. A library "
    "that hands over batches so (a loader, an adapter between frameworks) can be told to order streams with an event, "
    "or to write to where the data are used"
)


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
    waits = waits_of(context)
    direction = pick(context.operations.direction, waits.copied[group.rows], NOTHING)
    after_copies = float((direction == Direction.DTOD).mean())
    if "Synchronize" in group.key and after_copies >= MOSTLY:
        each = "mostly " if after_copies < NEARLY_ALL else "each " if group.incidents > 1 else ""
        title = f"{group.key} makes the host wait {group.costs}, {each}right after a copy on the device"
        return Words(title, (_ON_DEVICE,))
    return Words(f"{group.key} makes the host wait {group.costs}", (advice,))


RULE = Rule(
    id="sync-call",
    title="The host waits for the GPU in explicit calls, and the GPU runs dry",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
