"""Calls that begin before the window and go on in it count with the part that lies in it, as their copies do."""

from __future__ import annotations

import pytest

from boundby.stats.host import calls_of, figures_of_calls
from tests.support.traces import analysis_of, trace_path


@pytest.mark.parametrize("name", ["three_pageable_copies.sqlite", "pair_pageable.sqlite"])
def test_each_copy_stands_beside_the_call_that_makes_it(name: str) -> None:
    (device,) = analysis_of(trace_path(name)).report.devices
    (copies,) = [one for one in device.api.top if one.name == "cudaMemcpy"]
    assert copies.count == device.copied.count == 3
    assert device.api.total_ns <= device.window_ns  # one thread calls: no more than there is


def test_no_call_is_longer_than_the_window_holds_of_it() -> None:
    timeline = analysis_of(trace_path("pair_pageable.sqlite")).timeline
    (device,) = timeline.devices
    chosen = calls_of(timeline, device)
    assert chosen.start_ns.min() >= device.low_ns
    assert chosen.end_ns.max() <= device.high_ns
    figures = figures_of_calls(timeline, chosen)
    assert figures.total_ns == int(chosen.length_ns.sum())
    assert figures.blocked_ns <= figures.total_ns
