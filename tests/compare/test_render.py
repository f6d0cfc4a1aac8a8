from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import jsonschema_rs
import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from boundby.compare import gate
from boundby.compare.between import compare
from boundby.document import comparison_document
from boundby.document.comparison_document import document
from boundby.render import ci_files, to_html, to_markdown, to_terminal
from boundby.results import saved
from boundby.results.comparison import SIGNIFICANCE, Comparison, GateResult
from boundby.results.report import AnalysisSummary
from boundby.results.schema import schema
from tests.compare import pairs
from tests.support import golden, reports, schemas

SCHEMA = schema(Comparison)


def _faster() -> Comparison:
    return compare(pairs.run(pairs.training()), pairs.run(pairs.training(steps=45, reads=0, loss="compute_loss"), 3))


def _hostile() -> Comparison:
    other = reports.hostile()
    renamed = tuple(replace(item, path=(*item.path[:-1], item.path[-1] + "2")) for item in other.regions[1:])
    changed = replace(other, regions=(other.regions[0], *renamed), findings=other.findings[:1])
    return compare(replace(reports.hostile(), findings=other.findings[1:]), changed)


def _findings() -> Comparison:
    report = reports.sample()
    report = replace(report, findings=report.findings[:1], not_checked=())
    device = replace(report.devices[0], id=0, name="H100")
    new = replace(report.findings[0], rule="launch", title="kernels of 2 us", region=("step", "forward"))
    return compare(report, replace(report, findings=(new,), devices=(device,), analysis=AnalysisSummary(window="all")))


ALL: dict[str, Callable[[], Comparison]] = {
    "faster": _faster,
    "same": lambda: compare(pairs.run(pairs.training()), pairs.run(pairs.training(), 1)),
    "hostile": _hostile,
    "findings": _findings,
    "cpu_only": lambda: compare(reports.cpu_only(), reports.cpu_only()),
    "empty": lambda: compare(reports.empty(), reports.empty()),
    "appeared": lambda: compare(reports.empty(), reports.sample()),
    "vanished": lambda: compare(reports.sample(), reports.empty()),
    "devices": lambda: compare(reports.two_devices(), reports.many_devices()),
}


def _gate() -> GateResult:
    limits = [gate.parse(text) for text in ("step.time < 1 ms", "gpu_utilization > 0.5", "findings <= 3")]
    limits += [gate.parse("nosuch.time < 1 ms", optional=True, reason="why <b>not</b>")]
    return gate.check(limits, reports.sample())


@pytest.mark.parametrize("name", ALL)
def test_the_json_is_valid_by_its_schema(name: str) -> None:
    data = json.loads(saved.render(ALL[name]()))
    data["gate"] = _gate().to_dict()
    jsonschema_rs.Draft202012Validator(SCHEMA).validate(data)
    schemas.assert_described(data, SCHEMA)


@pytest.mark.parametrize("name", ALL)
def test_what_was_written_can_be_read(name: str) -> None:
    text = saved.render(ALL[name]())
    assert saved.render(saved.loads(text, Comparison)) == text
    gate_text = saved.render(_gate())
    assert saved.loads(gate_text, GateResult) == _gate()


def test_the_schema_knows_the_model() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    assert SCHEMA["properties"]["format_version"]["const"] == Comparison.format_version
    assert tuple(sorted(SCHEMA["$defs"]["Significance"]["properties"]["status"]["enum"])) == tuple(sorted(SIGNIFICANCE))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [40, 72, 100, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(name: str, width: int, unicode: bool) -> None:
    for color in (None, "truecolor"):
        text = to_terminal.render(document(ALL[name]()), width=width, unicode=unicode, color_system=color)
        if color is None:
            assert all(cell_len(line) <= width for line in text.splitlines())
            assert "\x1b" not in text
        if not unicode:
            text.encode("ascii")


@pytest.mark.parametrize("name", ["faster", "findings", "same"])
def test_golden(name: str) -> None:
    comparison = ALL[name]()
    if name != "findings":  # what rules say and what the replay predicts of simulated programs is theirs to test
        comparison = replace(comparison, findings=(), predictions=())
    golden.check(f"compare_{name}_100.txt", to_terminal.render(document(comparison), width=100))
    golden.check(f"compare_{name}.md", to_markdown.render(document(comparison)))


@pytest.mark.parametrize("sort", ["time", *comparison_document.SORTS])
def test_rows_can_be_few_and_sorted(sort: str) -> None:
    comparison = ALL["faster"]()
    rows, left_out = comparison_document.regions(comparison, 2, sort)
    assert len(rows) == 2
    assert left_out.endswith("in --format json.")
    if sort != "time":
        weights = [
            comparison_document.SORTS[sort](row.change) for row in comparison_document.regions(comparison, sort=sort)[0]
        ]
        assert weights == sorted(weights, reverse=True)
        assert all(row.depth == 0 for row in rows)
    assert rows[0].name in to_terminal.render(document(comparison, top=2, sort=sort))


class _Tags(HTMLParser):
    """Every tag, and every attribute that could run or load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("name", ALL)
def test_nothing_in_the_page_can_run_or_load(name: str) -> None:
    for text, has_script in (
        (to_html.page(document(ALL[name](), _gate())), True),
        (to_html.fragment(document(ALL[name]())), False),
    ):
        parser = _Tags()
        parser.feed(text)
        assert not parser.tags & {"img", "iframe", "link", "object", "form"}
        assert not {name for name in parser.attributes if name.startswith("on")} | parser.attributes & {"src", "srcset"}
        assert "default-src &#39;none&#39;; script-src &#39;sha256-" in text or not has_script
        assert has_script or not parser.tags & {"script", "style", "a", "button"}
        text.encode("utf-8")


def test_a_hostile_name_is_shown_as_text() -> None:
    text = to_html.page(document(_hostile()))
    assert "&lt;img src=x onerror=alert(*)&gt;" in text  # the number is folded, as all are


def test_the_page_says_what_the_terminal_says() -> None:
    comparison = _faster()
    page, shown = to_html.page(document(comparison)), to_terminal.render(document(comparison), width=160)
    for words in ("1.3 times as fast", "before: loss (matched by similarity", "cut from"):
        assert words in page
        assert words in shown


@pytest.mark.parametrize("name", ALL)
def test_markdown_has_tables_that_hold(name: str) -> None:
    lines = to_markdown.render(document(ALL[name]())).splitlines()
    for line, following in pairwise(lines):
        if line.startswith("|") and following.startswith("|"):
            assert line.count(" | ") == following.count(" | ")
        bare = re.sub(r"`[^`]*`", "", line)  # a code span shows what it holds
        assert "<script" not in bare
        assert "<img" not in bare


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (None, ""),
        (0.0, "0 %"),
        (0.0004, "<0.1 %"),
        (-0.2401, "-24 %"),
        (0.053, "+5.3 %"),
        (-0.9978, "-99.8 %"),
        (-1.0, "-100 %"),
        (1.3, "+130 %"),
        (12.0, "13 times"),
        (-0.987, "-99 %"),
    ],
)
def test_changes(fraction: float | None, text: str) -> None:
    assert comparison_document.change(fraction) == text


def test_a_gate_in_every_form() -> None:
    result = _gate()
    assert not result.passed
    text = to_terminal.render(comparison_document.gate_document(result))
    assert text.splitlines()[0] == "LIMITS: 1 of 4 limits is broken, 1 cannot be told."
    assert text.splitlines()[1] == "BROKEN   step.time < 1 ms: time of step is 53.3 ms."
    assert "🔴 **BROKEN** `step.time < 1 ms`: time of step is 53.3 ms." in to_markdown.render(
        comparison_document.gate_document(result)
    )
    assert "<b>" not in to_markdown.render(comparison_document.gate_document(result))
    suite = ElementTree.fromstring(ci_files.junit(result))[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "skipped": "2",
    }
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.get("message") == "time of step is 53.3 ms."


def test_junit_of_any_text() -> None:
    nasty = "x\x00\x1b<&>\udc80\n]]>"
    result = gate.check([gate.parse("'" + nasty + "'.time < 1 ms", reason=nasty)], reports.hostile())
    ElementTree.fromstring(ci_files.junit(result).encode("utf-8"))
    to_terminal.render(comparison_document.gate_document(result))
    to_markdown.render(comparison_document.gate_document(result)).encode("utf-8")
