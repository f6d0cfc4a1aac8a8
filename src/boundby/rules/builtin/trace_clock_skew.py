"""The device's clock is off, and was corrected by the least that causality asks for."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.model.units import duration
from boundby.rules.rule import Match, Rule, Threshold, note


def _check(context: RuleContext) -> Iterator[Match]:
    for device in context.timeline.devices:
        shift = device.shift.shift_ns
        if abs(shift) < RULE.threshold(context, "shift"):
            continue
        gpu = context.trace.gpus[device.index].id
        yield note(
            f"GPU {gpu}'s clock was off by {duration(abs(shift))}, so latencies are not known",
            {"shift_ns": shift, "started_before_launch_fraction": device.shift.early_fraction},
            "Busy time and kernels are right; gaps right after launches may be longer than shown "
            f"({device.shift.because}). Capture again, with another nsys, if it "
            "matters",
        )


RULE = Rule(
    id="trace-clock-skew",
    title="The GPU's clock is off from the host's",
    group="trace",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("shift", 10_000, "ns", "A shift below the usual launch latency moves no gap to another cause."),
    ),
)
