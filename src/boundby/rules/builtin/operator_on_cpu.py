"""Operators of PyTorch that compute on the CPU in a program that uses a GPU, while that idles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.host_idleness import operators_on_cpu
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime, any_of
from boundby.model.scale import HALF
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    if not any(name.startswith("aten::") for name in context.trace.names):
        raise CannotCheckError("the trace holds no operator ranges (boundby profile --torch-ops adds them)")
    rows, ranges = operators_on_cpu(context), context.trace.ranges
    if not len(rows):
        return
    gaps = any_of(device.gaps.intervals for device in context.timeline.devices)
    start, end = ranges.start_ns[rows], ranges.end_ns[rows]
    exposed = CoveredTime(gaps).within(start, end)
    total = int(exposed.sum())
    if total < context.least_ns:
        return
    region = context.tree.of_range[rows]
    names = [context.tree.name[number] for number in region.tolist()]
    by_name: dict[str, tuple[int, int]] = {}
    for name, ns in zip(names, exposed.tolist(), strict=True):
        before = by_name.get(name, (0, 0))
        by_name[name] = (before[0] + 1, before[1] + ns)
    largest = sorted(by_name.items(), key=lambda item: (-item[1][1], item[0]))
    listed = ", ".join(f"{name} {duration(ns)} ({times:,} x)" for name, (times, ns) in largest[:3])
    longest = np.argsort(-exposed, kind="stable")[:3].tolist()
    saving = context.saving((Cause.CPU.key,), regions=np.isin(np.arange(len(context.tree)), region))
    yield Match(
        context.place(context.tree.parent[region], exposed),
        f"operators compute on the CPU while the GPU idles, {duration(total)} in all: {listed}",
        {"operators": {name: ns for name, (_, ns) in largest[:10]}, "idle_ns": total, "calls": len(rows)},
        None if saving is None else (round(HALF * saving[0]), saving[1]),  # kernels take their place
        (
            "Move their inputs to the device before: x = x.to('cuda', non_blocking=True), or create them there; the "
            "operators then run as kernels",
            "Where the data have to stay on the host: in DataLoader workers, beside the GPU's work",
        ),
        tuple(Example(int(start[row]), int(end[row] - start[row]), f"{names[row]} on the CPU") for row in longest),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="operator-on-cpu",
    title="Operators compute on the CPU in a GPU program",
    group="host",
    cause=Cause.CPU,
    check=_check,
    needs=("kernels", "cuda_api", "nvtx"),
)
