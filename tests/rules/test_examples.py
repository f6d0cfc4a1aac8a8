"""Examples of findings stand on the host's clock, whatever the device's says."""

from __future__ import annotations

import numpy as np

from boundby import api
from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.evidence.context import RuleContext
from boundby.rules.builtin._operations import MatchedOperations
from boundby.stats.figures import measure
from tests.support.program import Program
from tests.support.traces import trace_path


def test_operations_of_a_skewed_device_are_told_on_the_hosts_clock() -> None:
    program = Program()
    for number in range(50):
        call = program.api(10_000 * number, 10_000 * number + 20, "cudaLaunchKernel")
        program.kernel(10_000 * number - 5_000_000, 10_000 * number - 4_999_500 + number, call)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    shift = timeline.devices[0].shift.shift_ns
    assert shift > 4_000_000
    context = RuleContext(timeline, measure(timeline), (), (), (), savings=None)
    found = MatchedOperations(context, np.arange(50)).examples()[:3]
    assert [(item.start_ns, item.duration_ns) for item in found] == [
        (10_000 * number - 5_000_000 + shift, 500 + number) for number in (49, 48, 47)
    ]


def test_every_example_of_a_real_skewed_trace_lies_in_the_hosts_time() -> None:
    """Its device runs 156 ms early: an operation told on the device's clock would stand before its launch."""
    examined = api.examine(trace_path("pytorch_ddp_rank_clock_skew.sqlite"), show_all=True)
    (device,) = examined.timeline.devices
    assert device.shift.shift_ns
    table, calls = examined.timeline.trace.operations, examined.timeline.calls
    launched = calls.of_operation >= 0
    starts = set(table.start_ns[launched].tolist())
    assert not starts & set((table.start_ns[launched] - device.shift.shift_ns).tolist())
    kernels = {"hot-kernel", "tensor-cores", "small-grid", "unfused-elementwise", "layout-conversion", "pageable-copy"}
    examples = [one for item in examined.report.findings if item.rule in kernels for one in item.examples]
    assert examples
    assert all(one.start_ns in starts for one in examples)
