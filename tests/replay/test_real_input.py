"""What must hold on real traces, where much of the window visibly is one cause.

A real training that sleeps for its DataLoader: without these sleeps it takes a tenth of the time.

Threads that begin in the middle of a trace (a second loader's pin-memory thread) are begun by the leading thread: their
first event follows its last call before that. Begun at their measured time, they would hold up everything (11.8 s).
"""

from __future__ import annotations

import pytest

import boundby
from tests.support.traces import analysis_of, trace_path


def test_without_host_sleeps() -> None:
    report = boundby.analyze(trace_path("pytorch_a100_all_cpu_tables.sqlite"))
    predicted = {item.scenario: item.predicted_ns for item in report.what_if}
    assert 0.5e9 < predicted["input_free"] < 1.5e9
    verdicts = {region.path[-1]: region.verdict for region in report.regions if region.path}
    assert verdicts["Data loading"].bound == "host_blocked"
    assert (verdicts["Data loading"].saving_ns or 0) > 5e9


def _predicted(name: str) -> dict[str, int]:
    return {item.scenario: item.predicted_ns for item in analysis_of(name).what_if}


def test_pageable_uploads_take_no_time_without_copies() -> None:
    """40 % of the window are copies of pageable memory, which hold the host: their staging goes with them (4.65 s of
    7.86 s), though the calls return some 40 us before the copies end."""
    assert _predicted("transformer_2_7b_nvtx.sqlite")["copies_free"] < 5.2e9


def test_a_busy_device_without_its_kernels() -> None:
    """93 % of the window are kernels; the host alone would need about half of it (0.70 s of 1.33 s)."""
    assert _predicted("pytorch_ddp_rank_clock_skew.sqlite")["infinite_gpu"] < 0.9e9


@pytest.mark.parametrize("name", ["openmp_heat_before.sqlite", "transformer_2_7b_nvtx.sqlite"])
def test_very_fast_copies_are_as_no_copies(name: str) -> None:
    """Copies of pageable memory hold the host while they are staged: quicker copies, shorter staging."""
    answers, _ = boundby.what_if(trace_path(name), ["copies=1", "copies=2", "copies=1000", "copies_free"])
    same, half, quick, none = (answer.predicted_ns for answer in answers)
    assert same == answers[0].baseline_ns
    assert none <= quick <= 1.06 * none
    assert abs(half - (same + none) / 2) < 0.05 * same
