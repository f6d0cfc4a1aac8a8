"""How sure a verdict is, and why not surer. Missing data lowers it and is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boundby.model.causes import SHORT_LABEL, Cause
from boundby.model.units import percent
from boundby.trace.facts import Captured
from boundby.verdict.verdict import MIXED_WITHIN, Decision

# Shares of the window above which something lowers the confidence by one step, or by two: a twentieth cannot turn a
# verdict that leads clearly, a fifth can.
UNEXPLAINED_SOME = 0.05
UNEXPLAINED_MUCH = 0.20
PROFILER_SOME = 0.05
GUESSED_HOST = 0.10  # host time split into cpu and blocked without scheduling data
CLOSE_CALL = 2 * MIXED_WITHIN
FEW_OPERATIONS = 20  # fewer are an anecdote

_LEVELS = ("high", "medium", "low")


@dataclass(frozen=True)
class Confidence:
    level: str
    reasons: tuple[str, ...]


def judge(
    decision: Decision,
    time: Mapping[Cause, int],
    captured: Captured,
    *,
    unreliable: str | None = None,
    operations: int,
    clock_shifted: bool,
    has_cpu_evidence: bool,
) -> Confidence:
    """Confidence in one decision. Reasons come in order of weight."""
    window = sum(time.values())
    if window == 0:
        return Confidence("high", ())
    lost = 0
    reasons: list[str] = []

    def lower(steps: int, reason: str) -> None:
        nonlocal lost
        lost += steps
        reasons.append(reason)

    def share(*causes: Cause) -> float:
        return sum(time[cause] for cause in causes) / window

    if not captured.cuda_api:
        lower(2, "CUDA API calls were not captured, so idle time has no owner")
    if (unexplained := share(Cause.UNATTRIBUTED)) >= UNEXPLAINED_SOME:
        lower(2 if unexplained >= UNEXPLAINED_MUCH else 1, f"{percent(unexplained)} of the time is unattributed")
    if not has_cpu_evidence and share(Cause.CPU, Cause.HOST_BLOCKED) >= GUESSED_HOST:
        lower(1, "neither CPU scheduling nor OS calls were captured: cpu may be time spent blocked")
    if unreliable is not None and captured.cuda_api:
        lower(1, f"the trace cannot be replayed reliably: {unreliable}")
    if share(Cause.PROFILER) >= PROFILER_SOME:
        lower(1, f"{percent(share(Cause.PROFILER))} of the time is the profiler's own")
    if clock_shifted:
        lower(1, "the device's clock was off and was corrected")
    if operations < FEW_OPERATIONS and decision.bound not in ("host_blocked", "cpu"):
        lower(1, f"only {operations} GPU operations")
    if decision.bound == "unknown":
        lower(1, "no cause stands out")
    elif decision.mixed_of is None and decision.host_limit_fraction is None and len(decision.savings) > 1:
        lead = (decision.savings[0].saving_ns - decision.savings[1].saving_ns) / window
        if lead < CLOSE_CALL:
            lower(1, f"{SHORT_LABEL[decision.savings[1].cause]} is close behind")
    return Confidence(_LEVELS[min(lost, 2)], tuple(reasons))


def host_confidence(time: Mapping[Cause, int], *, has_cpu_evidence: bool) -> Confidence:
    """Confidence in a verdict on host time alone."""
    window = sum(time.values())
    if not has_cpu_evidence:
        return Confidence("low", ("neither CPU scheduling, samples nor OS calls were captured",))
    if window and (unexplained := time[Cause.UNATTRIBUTED] / window) >= UNEXPLAINED_SOME:
        level = "low" if unexplained >= UNEXPLAINED_MUCH else "medium"
        return Confidence(level, (f"{percent(unexplained)} of the time is unattributed",))
    return Confidence("high", ())
