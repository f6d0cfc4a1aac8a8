"""Time is bounded stage by stage: what has run out says so in one sentence, and the rest of the report stands. Clocks
are virtual: the stage that is named takes for ever, all others no time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.fuzz import holds
from benchmarks.simulated.jobs import Job, simulate, write_export

from boundby import api
from boundby.cli.main import main
from boundby.model import stage
from boundby.model.errors import OutOfTimeError
from boundby.render import page, perfetto
from boundby.results import saved
from tests.readers.kineto.test_reader import small
from tests.support.invariants import check_invariants

SAMPLE = Path(__file__).parents[1] / "sample_reports" / "simulated_sync.sqlite"
FOREVER_S = 1e9
Endless = Callable[[str], None]


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    """Lets stages whose name begins so take for ever."""

    def take_for_ever(name: str) -> None:
        def clock() -> float:
            current = stage._current.get()
            return FOREVER_S if current is not None and current.doing.startswith(name) else 0.0

        for which in ("clock", "wall"):
            monkeypatch.setattr(stage, which, clock)

    return take_for_ever


@pytest.mark.parametrize(
    "doing", ["reading ", "accounting for every nanosecond", "judging", "judging devices", "judging regions"]
)
def test_without_these_there_is_no_report(doing: str, endless: Endless) -> None:
    endless(doing)
    with pytest.raises(OutOfTimeError) as caught:
        api.analyze(SAMPLE)
    assert caught.value.message.lower().startswith(doing)
    assert caught.value.message.endswith(" took over 60 s of CPU time.")
    assert "--window" in caught.value.next_step
    assert "--max-time" in caught.value.next_step


def test_a_profilers_trace(endless: Endless, tmp_path: Path) -> None:
    endless("reading ")
    with pytest.raises(OutOfTimeError, match=r"Reading .*small\.json took over 60 s of CPU time\."):
        api.analyze(small().write(tmp_path / "small.json"))


def test_without_replays_the_account_decides_and_no_prediction_is_made(endless: Endless) -> None:
    whole = api.analyze(SAMPLE)
    endless("replaying")
    report = api.analyze(SAMPLE)
    check_invariants(report)
    holds("report", saved.render(report))
    assert report.what_if == ()
    (device,) = report.devices
    assert (device.verdict.decided_by, whole.devices[0].verdict.decided_by) == ("account", "replay")
    assert device.verdict.confidence != "high"
    why = "replaying without each cause took over 60 s of CPU time"
    assert why in device.verdict.reasons
    assert [one.time for one in report.regions] == [one.time for one in whole.regions]
    with pytest.raises(OutOfTimeError, match=r"Replaying took over 60 s"):
        api.what_if(SAMPLE, ["no_sync"])


def test_rules_and_first_responses_that_come_too_late_are_named(endless: Endless) -> None:
    whole = api.analyze(SAMPLE)
    endless("looking for what to change")
    report = api.analyze(SAMPLE)
    check_invariants(report)
    assert (report.findings, report.analysis.rules_checked) == ((), 0)
    late = [item for item in report.not_checked if "looking for what to change took over 60 s" in item.reason]
    assert len(late) == len(report.not_checked) > 40
    assert report.devices[0].verdict == whole.devices[0].verdict
    endless("asking what to do first")
    report = api.analyze(SAMPLE)
    assert report.findings == whole.findings
    assert [device.first_responses for device in report.devices] == [()]
    assert "No first responses: asking what to do first took over 60 s of CPU time." in str(report.trace.warnings[0])


@pytest.mark.parametrize("doing", ["drawing", "looking for what comes next"])
def test_a_page_leaves_out_its_drawings_and_says_so(doing: str, endless: Endless) -> None:
    endless(doing)
    analysis = api.examine(SAMPLE)
    text = page.of(analysis)
    assert f"no tables of GPU work: {doing} took over 60 s of CPU time." in text
    assert 'id="timeline"' not in text
    assert analysis.report == api.analyze(SAMPLE)


@pytest.mark.parametrize(
    ("doing", "work"),
    [
        ("comparing", lambda _: api.compare_runs(SAMPLE, SAMPLE)),
        ("writing", lambda analysis: _written(analysis)),
    ],
)
def test_what_follows_a_report_ends_with_a_sentence(
    doing: str, work: Callable[[api.Analysis], object], endless: Endless
) -> None:
    analysis = api.examine(SAMPLE)
    _ = analysis.plot_data
    endless(doing)
    with pytest.raises(OutOfTimeError, match="took over 60 s of CPU time"):
        work(analysis)


def _written(analysis: api.Analysis) -> None:
    with analysis.in_time("writing all events", 1.0):
        perfetto.write(io.BytesIO(), analysis.report, analysis.timeline, analysis.plot_data)


def test_ranks_that_take_too_long_are_left_out_and_so_is_the_job(endless: Endless, tmp_path: Path) -> None:
    for run in simulate(Job(data=2, steps=3, layers=2)):
        write_export(run, tmp_path / f"rank_{run.rank}.sqlite")
    endless("accounting")
    with pytest.raises(Exception, match=r"rank_0\.sqlite: Accounting took over 60 s of CPU time\."):
        api.job(tmp_path, workers=1)
    endless("joining")
    with pytest.raises(OutOfTimeError, match="Joining the ranks took over 60 s"):
        api.job(tmp_path, workers=1)


def test_a_stage_inside_has_time_of_its_own_and_what_was_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    for which in ("clock", "wall"):
        monkeypatch.setattr(stage, which, lambda: now_s[0])
    with stage.stage("outer", most_s=10):
        with stage.stage("inner", events=10**9):
            now_s[0] += 9
            stage.check()
            now_s[0] += 2
            with pytest.raises(OutOfTimeError, match="Inner took over 10 s"):
                stage.check()
        now_s[0] += 9
        stage.check()
        now_s[0] += 2
        assert stage.over() is not None
    stage.check()  # in no stage there is no end


def test_large_reports_have_more_time() -> None:
    with stage.stage("all of it", events=20_000_000, size=400 << 20):
        current = stage._current.get()
        assert current is not None
        assert current.most_s >= 60 + 1_000 + 100


def test_on_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(SAMPLE), "--max-time", "0"]) == 2
    told = capfd.readouterr().err.splitlines()
    assert told[0].endswith(" took over 0 s of CPU time.")
    assert len(told) == 2
    assert main(["analyze", str(SAMPLE), "-q", "--max-time", "1000"]) == 0
