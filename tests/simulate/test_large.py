"""Large exports: counts, order and readability, on small ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.large_export import KERNELS_PER_STEP, write_large

import boundby
from boundby.readers import read_trace


@pytest.mark.parametrize("kernels", [1, 200, 2_000, 7_000])
def test_there_are_as_many_kernels_as_asked_for(kernels: int, tmp_path: Path) -> None:
    path = tmp_path / "large.sqlite"
    made = write_large(path, kernels)
    assert kernels <= made < kernels + 10 * KERNELS_PER_STEP
    trace = read_trace(path)
    assert len(trace.operations) == made
    assert 1.1 * made < len(trace.api) < 1.4 * made
    assert 0.1 * made < len(trace.ranges) < 0.4 * made
    assert len(np.unique(trace.api.correlation)) == len(trace.api)
    assert len(np.unique(trace.operations.correlation)) == made
    assert (trace.operations.start_ns[1:] >= trace.operations.end_ns[:-1]).all()  # one stream, in order


def test_a_large_export_is_analysed(tmp_path: Path) -> None:
    path = tmp_path / "large.sqlite"
    write_large(path, 4_000)
    report = boundby.analyze(path)
    assert [device.kernels.count for device in report.devices] == [4_000]
    assert ("step", "forward", "aten::mm") in {region.path for region in report.regions}
