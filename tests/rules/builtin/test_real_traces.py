"""The rules on real traces: none fails, and whatever they find can be looked up."""

from __future__ import annotations

from copy import copy

import pytest
from msgspec.structs import replace

from boundby.claims.counted import weight
from boundby.document.sentences import saves_elsewhere
from boundby.model.errors import UserError
from boundby.results.report import Report
from boundby.rules.builtin import builtin
from tests.rules.builtin.harness import is_of_one_action, is_something_to_do
from tests.support.traces import analysis_of, trace_names

PAGES = {f"rules/{rule.id}" for rule in builtin()}


def analyzed(name: str) -> Report:
    """The report with all that rules find: what they look at is worked out once for all tests of a trace."""
    try:
        found = copy(analysis_of(name))
        found.options = replace(found.options, show_all=True)
        for step in ("rule_settings", "rule_context", "report"):
            vars(found).pop(step, None)
        return found.report
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", trace_names())
def test_findings_can_be_looked_up(name: str) -> None:
    report = analyzed(name)
    assert not [item for item in report.not_checked if "failed" in item.reason]
    assert report.analysis.rules_checked + len(report.not_checked) == len(builtin())
    regions = {region.path for region in report.regions}
    longest = max(
        [device.window_ns for device in report.devices] or [thread.total_ns for thread in report.threads], default=0
    )
    for finding in report.findings:
        assert finding.region is None or finding.region in regions
        assert finding.docs in PAGES
        assert finding.instances >= 1
        assert "\n" not in finding.title
        assert not finding.title.endswith(".")
        assert is_something_to_do(finding.advice[0]), finding.advice[0]
        assert not finding.code or is_of_one_action(finding.change, finding.code), (finding.change, finding.code)
        if finding.saving_ns is not None:
            low, high = finding.saving_ns
            assert 0 <= low <= high <= longest
        for example in finding.examples:
            assert example.duration_ns >= 0
            assert example.what
    told = [item for item in report.findings if item.severity != "note"]
    # What is sure counts twice; what saves another run comes last.
    saved = [(not saves_elsewhere(item.remedy), weight(item)) for item in told]
    assert saved == sorted(saved, reverse=True)
