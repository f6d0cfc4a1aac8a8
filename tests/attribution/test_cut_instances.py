"""Instances that a window or the recording's end cuts through: told, kept apart, and out of figures per instance."""

from __future__ import annotations

from pathlib import Path

from benchmarks.simulated.full_export import Export

from boundby import analyze
from boundby.document import sentences
from boundby.results.report import RegionReport, Report

US, MS = 1_000, 1_000_000
STEP_MS, STEPS = 10, 8


def trained(folder: Path, *, ends_inside: bool = False, lost: int = 0) -> Path:
    """Steps of 10 ms: a forward and a backward part of one kernel of 4 ms each. The last one may never end; of the
    first ``lost`` ones no kernel is on record."""
    export = Export()
    main = export.thread(pid=1, tid=1)
    for number in range(STEPS):
        begin = number * STEP_MS * MS
        is_last = ends_inside and number == STEPS - 1
        parts = ("forward",) if is_last else ("forward", "backward")
        export.nvtx(main, begin, None if is_last else begin + 9_900 * US, f"step {number}")
        for place, part in enumerate(parts):
            at = begin + place * 5 * MS + 20 * US
            export.nvtx(main, at, at + 4_800 * US, part)
            call = export.api(main, at + 10 * US, at + 20 * US, "cudaLaunchKernel")
            if number >= lost:
                export.kernel(call, at + 30 * US, at + 4_030 * US)
            export.api(main, at + 30 * US, at + 4_100 * US, "cudaDeviceSynchronize")
    return export.write(folder / "steps.sqlite")


def region(report: Report, *path: str) -> RegionReport:
    (found,) = [item for item in report.regions if tuple(item.path) == path]
    return found


def test_a_window_through_steps_leaves_whole_ones_to_the_figures(tmp_path: Path) -> None:
    report = analyze(trained(tmp_path), window="0.007s:0.046s")  # from within step 0 to within step 4
    whole = region(report, "step *")
    assert whole.instances == 3
    assert whole.host.mean_ns == 9_900 * US
    assert sum(whole.time.values()) == 30 * MS
    assert region(report, "step *", "forward").instances == 3
    cut = region(report, "step * (cut)")
    assert cut.instances == 2
    assert sum(cut.time.values()) == 9 * MS
    (warning,) = [item for item in report.trace.warnings if item.code == "step-cut"]
    assert (
        warning.message == "The window begins or ends within instances (2 of step *): kept apart from the whole ones."
    )


def test_a_window_between_steps_cuts_none(tmp_path: Path) -> None:
    report = analyze(trained(tmp_path), window="0.00995s:0.03995s")
    assert region(report, "step *").instances == 3
    assert not [item for item in report.trace.warnings if item.code == "step-cut"]
    whole = analyze(trained(tmp_path))
    assert region(whole, "step *").instances == STEPS


def test_a_step_in_which_the_recording_ends_is_no_whole_one(tmp_path: Path) -> None:
    report = analyze(trained(tmp_path, ends_inside=True))
    assert region(report, "step *").instances == STEPS - 1
    assert region(report, "step *").host.mean_ns == 9_900 * US
    assert region(report, "step * (cut)").instances == 1
    assert any(
        "The recording begins or ends within instances (1 of step *)" in w.message for w in report.trace.warnings
    )


def test_two_phases_are_no_steps(tmp_path: Path) -> None:
    """A program that is cut while its only long range is open has no instance of which others would be the measure."""
    report = analyze(trained(tmp_path), window="0.012s:0.028s")  # within steps 1 and 2
    assert region(report, "step *").instances == 2
    assert not [item for item in report.trace.warnings if item.code == "step-cut"]


def test_ranges_that_a_program_forgets_to_end_are_not_cut(tmp_path: Path) -> None:
    """Start/end ranges without an end stay open for good: that is no recording that ended within them."""
    export = Export()
    main = export.thread(pid=1, tid=1)
    for number in range(6):
        at = number * 5 * MS
        export.nvtx(main, at, at + 4 * MS if number < 3 else None, "request", kind="startend")
        call = export.api(main, at + 10 * US, at + 20 * US, "cudaLaunchKernel")
        export.kernel(call, at + 30 * US, at + 3 * MS)
    report = analyze(export.write(tmp_path / "leaks.sqlite"))
    assert region(report, "request").instances == 6


def test_instances_before_the_window_whose_work_is_not_on_record_are_told_and_not_counted(tmp_path: Path) -> None:
    report = analyze(trained(tmp_path, lost=2))
    assert region(report, "step *").instances == STEPS - 2
    assert region(report, "step *", "forward").instances == STEPS - 2
    assert "before (in 20.0 ms of it the GPU's work was not recorded)" in sentences.window(report)
