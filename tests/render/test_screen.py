"""One screen: at most 40 lines of 100 columns, the verdict and what to do first on top, for any trace."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from boundby.document import view
from boundby.model.errors import UserError
from boundby.render import screen
from boundby.results.report import FirstResponse, NoGpuWork, OneTimePart, Report
from boundby.trace.facts import ProgramEnd
from tests.support import golden, reports
from tests.support.traces import analysis_of, trace_names

RESPONSE = FirstResponse(
    "sync.remove-waits",
    "Take out the waits, the costliest first",
    (1_100_000_000, 1_300_000_000),
    "nonzero waits 100 times",
    "Keep the shape: torch.where(mask, x, 0)",
)


def _with_response(report: Report) -> Report:
    return replace(report, devices=tuple(replace(device, first_responses=(RESPONSE,)) for device in report.devices))


def test_the_action_stands_in_the_first_lines() -> None:
    text = screen.render(_with_response(reports.sample()))
    golden.check("screen_sample_100.txt", text)
    first = text.splitlines()[:8]
    assert any(
        line.startswith("First: Take out the waits, the costliest first (saves 1.10-1.30 s, 20-24 %)") for line in first
    )


@pytest.mark.parametrize(
    "make", [reports.sample, reports.hostile, reports.many_devices, reports.cpu_only, reports.empty]
)
@pytest.mark.parametrize("width", [100, 120, 60])
def test_a_screen_is_one_screen(make: object, width: int) -> None:
    text = screen.render(_with_response(make()), width=width, unicode=False)  # type: ignore[operator]
    assert all(len(line) <= width for line in text.splitlines())
    assert width < 100 or len(text.splitlines()) <= screen.MOST_LINES


def test_what_stands_on_top_is_not_said_again() -> None:
    base = reports.sample()
    item = next(item for item in base.findings if item.severity != "note")
    first = replace(RESPONSE, command=f"boundby explain {item.rule}", because=item.title)
    devices = tuple(replace(device, first_responses=(first,)) for device in base.devices)
    text = screen.render(replace(base, devices=devices))
    assert " ".join(text.split()).count(item.title.partition(":")[0]) == 1
    assert "FINDINGS" not in text
    assert "No other finding" in text
    assert "OTHER FINDINGS (1)" in screen.render(_with_response(base))


def test_what_saves_this_run_nothing_says_so() -> None:
    base = reports.sample()
    moved = [replace(item, remedy="init.warm-up") for item in base.findings if item.severity != "note"]
    assert " none in this run  " in screen.render(replace(base, findings=tuple(moved)))


def test_the_command_for_more_looks_at_the_same() -> None:
    base = reports.sample()
    asked = replace(base.analysis, window="1:2", device_ids=(0,))
    text = screen.render(replace(base, analysis=asked))
    assert f"More: boundby analyze {base.trace.path} --window 1:2 --device 0 --full" in text


def test_several_devices_say_what_repeats_and_why_a_verdict_is_no_surer() -> None:
    base = reports.two_devices()
    first, *others = base.devices
    once = (OneTimePart("warm up", first.window, first.window_ns // 2),)
    unsure = replace(
        first.verdict, confidence="medium", uncertainties=reports.sample().devices[0].verdict.uncertainties
    )
    unsure = replace(first.verdict, confidence="medium", reasons=("the clock was off",))
    text = screen.render(replace(base, devices=(replace(first, one_time=once, verdict=unsure), *others)))
    assert "One-time work: 2.71 s, 50 % (warm up) (GPU 0)." in text
    assert "Why the confidence is medium (GPU 0): the clock was off." in text


def test_one_finding_is_shown_however_little_room_is_left() -> None:
    report = _with_response(replace(reports.many_devices(), findings=reports.sample().findings))
    regions = tuple(
        replace(one, path=(f"part {number}",)) for number in range(12) for one in report.regions if len(one.path) == 1
    )
    text = screen.render(replace(report, regions=(report.regions[0], *regions)))
    assert "OTHER FINDINGS (1" in text
    assert len(text.splitlines()) <= screen.MOST_LINES


def test_helpers_of_a_program_that_failed_are_not_shown() -> None:
    base = reports.cpu_only()
    thread, end = base.threads[0], ProgramEnd("failed", "no such file")
    helper = replace(thread, pid=thread.pid + 1, name="uname", time=reports.account(cpu=1), total_ns=1_000_000)
    why = NoGpuWork("failed", "no such file")
    trace = replace(base.trace, program=end, no_gpu_work=why)
    shown = [one.name for one in view.accounts(replace(base, threads=(*base.threads, helper), trace=trace))]
    assert not any("uname" in name for name in shown)
    assert any("uname" in one.name for one in view.accounts(replace(base, threads=(*base.threads, helper))))


def test_columns_that_tell_nothing_are_left_out() -> None:
    base = reports.sample()
    none = replace(base.regions[0].verdict, bound="unknown", why_not="records are missing", saving_ns=None)
    text = screen.render(replace(base, regions=tuple(replace(region, verdict=none) for region in base.regions)))
    assert "BOUND BY  " not in text
    assert "SAVES UP TO" not in text


def test_more_rows_where_they_are_asked_for() -> None:
    report = reports.sample()
    one = screen.render(report, options=screen.ScreenOptions(top=1))
    assert "more regions" in one
    assert len(screen.render(report, options=screen.ScreenOptions(top=50)).splitlines()) > len(one.splitlines())
    by_saving = screen.render(report, options=screen.ScreenOptions(sort="max", top=2))
    assert by_saving.index("step/loss") > 0  # a flat list, whole paths


@pytest.mark.parametrize("name", trace_names())
def test_every_real_trace_fits_one_screen(name: str) -> None:
    try:
        report = analysis_of(name).report
    except UserError:
        pytest.skip("no report: a user error")
    lines = screen.render(report).splitlines()
    assert len(lines) <= screen.MOST_LINES
    assert max(map(len, lines)) <= 100
    below = [
        line for place, line in enumerate(lines) if any("   → " in one for one in lines[max(place - 2, 0) : place + 1])
    ]
    assert not any(line.endswith("…") for line in below if line.startswith("   "))  # commands are there to be typed
    if report.devices:
        # Above it: the head, the verdict and why; and how the program ended, and what to know of the window.
        above = 10 + 4 * (report.trace.program is not None) + 2 * bool(view.accounts(report)[0].outside)
        assert any(line.startswith("First: ") for line in lines[:above]), lines[:above]


@pytest.mark.parametrize("width", [60, 100])
def test_columns_are_explained_where_they_are_shown(width: int) -> None:
    lines = screen.render(_with_response(reports.sample()), width=width).splitlines()
    heading = next(line for line in lines if line.startswith("REGION"))
    notes = " ".join(line for line in lines if not line.startswith("REGION"))
    assert ("SAVES UP TO" in heading) is (width == 100)
    assert ("SAVES UP TO: " in notes) is (width == 100)
