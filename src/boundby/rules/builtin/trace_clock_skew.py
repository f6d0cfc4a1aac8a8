"""The device's clock is off, and was corrected by the least that causality asks for."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.model.units import duration, percent
from boundby.rules.rule import Match, Remedy, Rule, Threshold


def check(context: RuleContext) -> Iterator[Match]:
    gpus = context.timeline.trace.gpus
    for device in context.timeline.devices:
        shift = device.shift.shift_ns
        if abs(shift) < context.threshold(RULE, "shift"):
            continue
        yield Match(
            region=None,
            title=f"GPU {gpus[device.index].id}'s clock was off by {duration(abs(shift))}, so latencies are not known",
            evidence={"shift_ns": shift, "started_before_launch_fraction": device.shift.early_fraction},
            saving_ns=None,
            advice=(
                f"Busy time and kernels are right; gaps right after launches may be longer than shown "
                f"({percent(device.shift.early_fraction)} of the operations start before their launch). Capture again, "
                "with another nsys, if it matters",
            ),
            severity="note",
        )


RULE = Rule(
    id="trace-clock-skew",
    title="The GPU's clock is off from the host's",
    group="trace",
    picture="""
    host          launch   launch
    GPU    [kernel ][kernel ]     starts before its launch: the clocks disagree
    """,
    meaning="""
nsys puts the times of host and device on one clock. In some captures that fails, and kernels start before the
calls that launch them. boundby shifts the device's times by the least that makes that impossible. Durations are
right, and the order on the device is; how long an operation took from its launch is not known, only that it is
at least what is shown.

Told by: more operations that start before their launch than chance allows.
""",
    remedies=(
        Remedy(
            "Capture again, with another version of nsys if need be: the clocks are matched anew for every capture."
        ),
    ),
    disproof="""
If in another capture no operation starts before its launch and the verdict is the same, the correction did no
harm.
""",
    check=check,
    needs=("kernels",),
    thresholds=(
        Threshold("shift", 10_000, "ns", "A shift below the usual launch latency moves no gap to another cause."),
    ),
)
