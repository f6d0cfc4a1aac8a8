"""What a finding tells of a window lies in it; and it saves no more than it costs."""

from __future__ import annotations

import pytest

from boundby.api import Analysis
from boundby.results.report import Finding
from boundby.trace.tables import Direction, MemoryKind
from tests.rules.builtin.hardware import elementwise
from tests.support.program import Program
from tests.support.traces import analysis_of

MS = 1_000_000


def finding_of(program: Program, window: str, rule: str) -> Finding:
    found = Analysis(program.trace(), window=window, show_all=True).report.findings
    return next(finding for finding in found if finding.rule == rule)


def upload() -> Program:
    program = Program()
    call = program.api(0, 200 * MS, "cudaMemcpy")
    program.copy(1 * MS, 201 * MS, call, Direction.HTOD, MemoryKind.PAGEABLE, 800 * MS)
    call = program.api(210 * MS, 211 * MS, "cudaLaunchKernel")
    program.kernel(211 * MS, 212 * MS, call)
    return program


def test_of_a_copy_that_the_window_cuts_its_part_is_told() -> None:
    finding = finding_of(upload(), "150ms:180ms", "pageable-copy")
    assert "800 MB from pageable memory in 200 ms, 30.0 ms of that in the window" in finding.title
    assert finding.saving_ns is not None
    assert finding.saving_ns[1] <= 30 * MS
    assert finding.evidence["total_ns"] == 30 * MS
    assert finding.evidence["bandwidth_bytes_per_s"] == pytest.approx(4e9)
    assert [(one.start_ns, one.duration_ns) for one in finding.examples] == [(150 * MS, 30 * MS)]


def test_of_a_copy_that_lies_inside_all_is() -> None:
    finding = finding_of(upload(), "gpu", "pageable-copy")
    assert "in 200 ms while no kernel runs" in finding.title


def test_of_a_call_that_the_window_cuts_its_part_is_told() -> None:
    program = Program()
    program.kernel(0, 1 * MS, program.api(0, 10_000, "cudaLaunchKernel"))
    program.api(10 * MS, 110 * MS, "cudaMalloc")
    program.kernel(120 * MS, 121 * MS, program.api(119 * MS, 119 * MS + 5_000, "cudaLaunchKernel"))
    assert "100 ms" in finding_of(program, "gpu", "lazy-initialization").title
    finding = finding_of(program, "40ms:90ms", "lazy-initialization")
    assert "50.0 ms" in finding.title
    assert finding.saving_ns is not None
    assert finding.saving_ns[1] <= 50 * MS


def test_what_the_host_does_behind_all_work_is_saved() -> None:
    """Between the steps, in the same place, it computes as well."""
    program = Program()
    for step in range(10):
        at = step * 4 * MS
        call = program.api(at, at + 5_000, "cudaLaunchKernel")
        program.kernel(at + 10_000, at + MS, call)
        program.api(at + 6_000, at + MS + 5_000, "cudaDeviceSynchronize")
    program.api(80 * MS, 80 * MS + 1_000, "cudaGetDeviceCount")
    finding = finding_of(program, "all", "host-phase")
    assert "42.0 ms" in finding.title
    assert finding.saving_ns is not None
    assert 19 * MS <= finding.saving_ns[0] <= finding.saving_ns[1] <= 43 * MS


def test_processes_side_by_side_save_no_more_than_one_of_them_takes() -> None:
    report = analysis_of("openacc_mpi_4_processes_4_gpus.sqlite").report
    finding = next(finding for finding in report.findings if "inside the message-passing library" in finding.title)
    longest = finding.evidence["longest_of_each_process_ns"]
    assert isinstance(longest, list)
    assert finding.saving_ns is not None
    assert finding.saving_ns[1] <= max(longest)


def test_launches_beyond_the_region_that_is_named_are_told() -> None:
    program = Program()
    for step in range(40):
        base = step * 500_000
        program.push(base, base + 340_000, "Optimizer.step#Adadelta.step")
        program.push(base + 345_000, base + 400_000, "Optimizer.zero_grad#Adadelta.zero_grad")
        for number in range(12):
            at = base + number * 30_000 + (20_000 if number == 11 else 0)
            call = program.api(at, at + 5_000, "cudaLaunchKernel")
            program.kernel(at + 10_000, at + 14_000, call, elementwise("Mul"))
    titles = [finding.title for finding in Analysis(program.trace(), show_all=True).report.findings]
    told = [title for title in titles if "tensor by tensor" in title]
    assert told
    assert "92 % of these launches lie in Optimizer.step#Adadelta.step" in told[0]
