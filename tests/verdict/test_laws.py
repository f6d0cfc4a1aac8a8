"""The laws of claims: a part saves no more than its whole, and no report contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.contradictions import contradictions
from benchmarks.simulated.generate import generate
from hypothesis import given
from hypothesis import strategies as st

from boundby.api import analyze
from boundby.claims.laws import Claim, ClaimedSaving, Wholes
from boundby.model.errors import UserError
from boundby.options import AnalysisOptions
from tests.support.traces import analysis_of, trace_names

NS = st.integers(0, 10**9)
SAVINGS = st.tuples(NS, NS).map(lambda pair: ClaimedSaving(min(pair), max(pair)))
CAUSES = st.frozensets(st.sampled_from(("sync", "cpu", "gpu_copy")))


@pytest.mark.parametrize("name", trace_names())
def test_no_real_report_contradicts_itself(name: str) -> None:
    try:
        report = analysis_of(name).report
    except UserError:
        pytest.skip("no report: a user error")
    assert not list(contradictions(report))


@pytest.mark.parametrize("name", ["cpu_steps", "input_before", "sync_loop_before"])
def test_no_report_of_the_host_alone_contradicts_itself(name: str) -> None:
    report = analyze(Path(__file__).parents[2] / f"sample_reports/{name}.sqlite")
    assert any(response.saving_ns != (0, 0) for region in report.regions for response in region.first_responses)
    assert not list(contradictions(report))


def test_a_thread_is_told_no_more_than_its_own_time() -> None:
    sample = Path(__file__).parents[2] / "sample_reports/cpu_steps.sqlite"
    report = analyze(sample, AnalysisOptions(show_all=True))  # a finding of the code of both threads
    assert not list(contradictions(report))
    assert report.threads[1].first_responses[0].id == "host_blocked.wait-for-event"  # it computes for 1 % of its time


@pytest.mark.parametrize("seed", [3, 10, 17])
def test_no_report_of_a_simulated_program_contradicts_itself(seed: int, tmp_path: Path) -> None:
    report = analyze(generate(seed).export().write(tmp_path / "one.sqlite", "2023"))
    assert not list(contradictions(report))


@given(SAVINGS, CAUSES, st.fixed_dictionaries(dict.fromkeys(("sync", "cpu", "gpu_copy"), SAVINGS)), NS)
def test_a_closed_claim_saves_no_more_than_its_whole(
    saving: ClaimedSaving, causes: frozenset[str], of_causes: dict[str, ClaimedSaving], window_ns: int
) -> None:
    wholes = Wholes({0: of_causes}, {0: window_ns}, {("step",): (window_ns // 4, window_ns // 2)})
    claim = Claim("change", causes, saving)
    low_ns, high_ns = closed = wholes.closed(claim)

    assert 0 <= low_ns <= high_ns <= min(saving.high_ns, window_ns)
    assert low_ns <= saving.low_ns
    if causes:
        assert high_ns <= sum(of_causes[cause].high_ns for cause in causes)
    in_step = wholes.closed(Claim("change", causes, saving, ("step",)))
    assert in_step.high_ns <= min(high_ns, window_ns // (2 if len(causes) > 1 else 4))
    assert wholes.closed(Claim("change", causes, closed)) == closed
