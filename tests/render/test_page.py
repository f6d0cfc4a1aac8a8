"""The HTML page as text: complete in itself, nothing in it can run but its own script, whatever names a trace holds."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.document import view
from boundby.document.sentences import TERMS
from boundby.model.causes import CAUSE_KEYS, COLORS
from boundby.plot_data import build_plot_data
from boundby.render import page
from boundby.render.html import fragment
from boundby.render.page import FOLDER
from boundby.render.page.evidence_words import evidence, evidence_label
from boundby.results.plot_data import PlotData
from boundby.results.report import AnalysisSummary, Report
from boundby.trace.facts import PYTORCH
from boundby.trace.tables import TableT, Trace
from tests.support import reports
from tests.support.headlines import headline, stressed
from tests.support.program import Program
from tests.support.traces import analysis_of

US = 1_000
MOST_BYTES = 6_000_000


class Reading(HTMLParser):
    """The elements of a page, the text of its scripts and styles, and every attribute that could fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in self.raw else None
        if self._inside:
            self.raw[tag].append("")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None


def hostile_plot_data() -> PlotData:
    program = Program()
    names = [name or "(none)" for name in reports.HOSTILE]
    now = 0
    for turn in range(3):
        for number, name in enumerate(names):
            program.push(now, now + 40 * US, name)
            call = program.api(now + US, now + 9 * US, f"cudaLaunchKernel{name}" if turn else "cudaLaunchKernel")
            program.kernel(now + 10 * US, now + 20 * US, call, name)
            program.api(now + 10 * US, now + 22 * US, "cudaStreamSynchronize_v3020")
            now += 50 * US + number
    return build_plot_data(build_timeline(program.trace(), parse_window("gpu")))


def rendered(report: Report, plot_data: PlotData | None = None) -> str:
    return page.render(report, plot_data)


@pytest.fixture(scope="module")
def hostile() -> str:
    return rendered(reports.hostile(), hostile_plot_data())


@pytest.mark.parametrize("name", reports.ALL)
@pytest.mark.parametrize("with_plot_data", [False, True])
def test_every_report_renders(name: str, with_plot_data: bool) -> None:
    text = rendered(reports.ALL[name](), hostile_plot_data() if with_plot_data else None)
    assert text.lstrip().startswith("<!doctype html>")
    assert text.count("<script") == 3  # what is drawn, the result to download, the program
    assert len(text.encode()) < MOST_BYTES


def test_the_policy_admits_this_style_and_script_only(hostile: str) -> None:
    read = Reading(hostile)
    policy = next(a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "script-src": digest(read.raw["script"][2]),
        "style-src": digest(read.raw["style"][0]),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_fetches_and_no_attribute_runs_or_styles(hostile: str) -> None:
    for tag, attributes in Reading(hostile).elements:
        assert tag not in ("img", "iframe", "object", "embed", "link", "base", "form", "audio", "video")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("style", "src", "srcset", "srcdoc", "action"), (tag, name)
            if name == "href":
                assert (value or "").startswith("#")


def test_the_data_cannot_end_its_element(hostile: str) -> None:
    data = Reading(hostile).raw["script"][0]
    assert not re.search(r"[<>&\u2028\u2029]", data)
    found = json.loads(data)
    assert "<img src=x onerror=alert(*)>" in json.dumps(found["plot_data"]["regions"])
    assert not any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 for char in json.dumps(found, ensure_ascii=False))


@pytest.mark.parametrize("name", reports.ALL)
@pytest.mark.parametrize("render", [rendered, fragment])
def test_every_row_of_a_table_has_as_many_cells(name: str, render: Callable[[Report], str]) -> None:
    for table in re.findall(r"<table.*?</table>", render(reports.ALL[name]()), re.DOTALL):
        assert len({len(re.findall(r"<t[hd]\b", row)) for row in table.split("<tr")[1:]}) == 1, table[:200]


@pytest.mark.parametrize("name", reports.ALL)
def test_the_script_finds_each_cause_by_its_number(name: str) -> None:
    data = json.loads(Reading(rendered(reports.ALL[name]())).raw["script"][0])
    assert [cause["key"] for cause in data["causes"]] == list(CAUSE_KEYS)
    assert all(cause["meaning"] for cause in data["causes"])


def test_code_keeps_its_lines_where_it_is_shown_and_where_it_is_copied() -> None:
    from boundby.render.html import environment

    code = 'with torch.autocast("cuda"):\n    loss = model(x)\x1b'
    shown = environment().from_string('<pre title="{{ code | lined }}">{{ code | lined }}</pre>').render(code=code)
    lines = "with torch.autocast(&#34;cuda&#34;):\n    loss = model(x)\\x1b"
    assert shown == f'<pre title="{lines}">{lines}</pre>'


def test_hostile_names_are_text(hostile: str) -> None:
    assert "<img" not in hostile
    assert "&lt;img src=x onerror=alert(1)&gt;" in hostile
    assert "\x1b" not in hostile
    assert "\u202e" not in hostile
    hostile.encode("utf-8")


def test_our_own_files_hold_nothing_that_ends_them() -> None:
    for name in (*page.SCRIPTS, *page.STYLES):
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert "</" not in text.lower().replace("</g", "") or not re.search(r"</(script|style)", text, re.IGNORECASE)
        assert "<!--" not in text
        assert not re.search(
            r"\b(?:eval|Function)\s*\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text
        ), name
        assert not re.search(r"https?://(?!github\.com/leeoniya/uPlot)", text), name


def test_the_vendored_library_comes_with_its_licence() -> None:
    assert "MIT" in (FOLDER / "assets/vendor/uPlot.LICENSE").read_text(encoding="utf-8")


def test_what_the_page_says_first() -> None:
    text = rendered(reports.sample())
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text[text.index("<main") : text.index("<script type")])).replace(
        "&nbsp;", " "
    )
    assert headline("sync").rstrip(".") in words
    assert "saves 1.10-1.30 s (20-24 %)" in words
    assert "Use torch.where and a count instead of the boolean mask." in words
    assert "Could not check 2" in words
    assert "the trace holds no CPU scheduling" in words
    assert "one GPU only" not in words  # it could not matter
    assert "Notes 1" in words
    order = [
        words.index(part)
        for part in (stressed("sync"), "saves 1.10", "Ranges of the program with", "What was captured")
    ]
    assert order == sorted(order)


def test_no_findings_and_many_findings() -> None:
    base = reports.sample()
    assert "No findings." in rendered(replace(base, findings=(), not_checked=(), analysis=AnalysisSummary()))
    healthy = rendered(replace(base, findings=(), not_checked=(), analysis=AnalysisSummary(rules_checked=31)))
    assert "none of 31 checks knows" in healthy
    assert '<li class="card' not in healthy
    many = rendered(replace(base, findings=base.findings[:1] * 12 + base.findings[1:]))
    assert many.count('<li class="card') == 3
    assert many.count('<details class="finding"') == 13
    assert "2 that save less" in many
    notes = rendered(replace(base, findings=base.findings[1:], analysis=AnalysisSummary(rules_checked=31)))
    assert "No finding worth 1 % of the time (31 checks); 1 note." in notes


def test_a_finding_on_a_card_is_told_once() -> None:
    """Its details unfold there, and the page of their rule stands once; the others are told below."""
    base = reports.sample()
    found = [replace(base.findings[0], title=f"cost {number} is high") for number in range(5)]
    page = rendered(replace(base, findings=(*found, *base.findings[1:])))
    for number in range(5):
        assert page.partition('<script type="application/json" id="report">')[0].count(f"cost {number} is high") == 1
        assert page.count(f'id="finding-{number + 1}"') == 1
    cards = page[page.index('<ol class="cards n3">') : page.index("</ol>", page.index('<ol class="cards n3">'))]
    assert cards.count('<details class="finding"') == 3
    rule = base.findings[0].rule
    assert page.count(f'href="#rule-{rule}"') == 5
    assert page.count(f'id="rule-{rule}"') == 1


def test_each_part_of_the_bar_has_letter_and_label_to_show_where_they_fit() -> None:
    """Which of them fits is the browser's to lay out: no share of the bar decides."""
    report = reports.sample()
    labels = [
        attrs["class"] for tag, attrs in Reading(rendered(report)).elements if "label c-" in (attrs.get("class") or "")
    ]
    shown = view.accounts(report)[0].parts
    assert labels == [f"label c-{part.cause}" for part in shown]


def test_kernels_stand_once() -> None:
    """In the page's own table where it has one, else among what all formats have."""
    report = reports.with_tops()
    assert "Kernels and CUDA calls with most time" in rendered(report)
    with_own = rendered(report, hostile_plot_data())
    assert "Kernels and CUDA calls with most time" not in with_own
    assert "CUDA calls with most time" in with_own


def test_the_words_of_the_glossary_are_explained() -> None:
    page = rendered(reports.sample())
    assert all(f"<dt>{term.word}</dt>" in page for term in TERMS)


def test_what_would_bound_next_is_said_where_it_is_known() -> None:
    next_bounds = {(0, "no_sync"): "cuda_api", (0, "infinite_gpu"): None}
    text = page.render(reports.sample(), None, next_bounds=next_bounds)
    table = text[text.index('class="what-if"') :]
    assert "nothing worth 1 %" in table
    assert "not worked out" in table
    assert "swatch c-cuda_api" in table


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("total_ns", 1_300_000, "1.30 ms"),
        ("bytes", 4096, "4.10 kB"),
        ("busy_fraction", 0.24, "24 %"),
        ("count", 12_345, "12,345"),
        ("ratio", 2.3456, "2.35"),
        ("operators", ["aten::item", "aten::nonzero"], "aten::item, aten::nonzero"),
        ("by", {"read_ns": 5_000, "pinned": True}, "read: 5.00 us, pinned: yes"),
        ("missing", None, "not captured"),
        ("slept_on_ns", {"poll": 8_029_385_453}, "poll: 8.03 s"),
        ("first_ns", [68_875_616, 2_000], "68.9 ms, 2.00 us"),
        ("gpu_ns_of_each", 1_396_564, "1.40 ms"),
        ("processes_started", [751_791], "751791"),
        ("thread", 62_976, "62976"),
    ],
)
def test_evidence_reads_as_people_write(key: str, value: object, expected: str) -> None:
    assert evidence(key, value) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("slept_on_ns", "calls that the host waited in"),
        ("share_of_window_fraction", "share of the window"),
        ("host_asleep_fraction", "of this time, host asleep"),
    ],
)
def test_evidence_is_named_in_words(key: str, expected: str) -> None:
    assert evidence_label(key) == expected


def test_where_no_gpu_idles_evidence_is_of_threads() -> None:
    labels = [evidence_label(key, has_gpu=False) for key in ("idle_ns", "share_of_window_fraction", "slept_on_ns")]
    assert labels == ["time", "share of all threads' time", "calls that the host waited in"]


def repeated(trace: Trace, times: int, period_ns: int) -> Trace:
    """A trace whose events happen ``times`` times, ``period_ns`` apart."""

    def table(rows: TableT) -> TableT:
        every = rows.take(np.tile(np.arange(len(rows)), times))
        turn = np.repeat(np.arange(times), len(rows)) * period_ns
        moved = {name: getattr(every, name) + turn for name in ("start_ns", "end_ns") if hasattr(every, name)}
        if hasattr(every, "correlation"):
            moved["correlation"] = every.correlation + np.repeat(np.arange(times), len(rows)) * (len(trace.api) + 1)
        made = replace(every, **moved)
        where = getattr(made, "thread", None)
        first = made.device if where is None else where  # type: ignore[attr-defined]
        return made.take(np.lexsort((made.start_ns, first)))  # type: ignore[attr-defined]

    tables = {name: table(getattr(trace, name)) for name in ("operations", "api", "ranges")}
    return replace(trace, **tables, span_ns=(trace.span_ns[0], trace.span_ns[1] + (times - 1) * period_ns))


def test_many_kernels_stay_below_the_bound() -> None:
    program = Program(threads=2)
    for number in range(1_000):
        at = number * 20 * US
        call = program.api(at, at + 5 * US, "cudaLaunchKernel_v7000")
        program.kernel(at + 6 * US, at + 14 * US, call, f"void kernel_{number % 900}<float, {'T, ' * 200}>(int)")
        program.push(at, at + 9 * US, f"{'long name ' * 60}{chr(97 + number % 26)} {chr(97 + number // 26 % 26)}")
        program.push(at, at + 3 * US, f"op {number % 40}", 1)
    trace = repeated(program.trace(), 200, 20_000 * US)
    assert len(trace.operations) == 200_000
    plot_data = build_plot_data(build_timeline(trace, parse_window("gpu")))
    assert sum(row.count for row in plot_data.kernels) + plot_data.kernels_left_out[1] == 200_000
    assert len(rendered(reports.sample(), plot_data).encode()) < MOST_BYTES


def _luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("key", sorted(COLORS))
def test_what_is_written_on_a_cause_can_be_read(key: str) -> None:
    """4.5 to 1, as WCAG asks of text of usual size."""
    dark, light = sorted(_luminance(color) for color in COLORS[key])
    assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize("make", [reports.sample, reports.many_devices, reports.cpu_only])
def test_headings_follow_each_other_and_everything_is_labelled(make: Callable[[], Report]) -> None:
    text = page.render(make(), None)
    levels = [int(level) for level in re.findall(r"<h([1-6])", text)]
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert not re.search(r"<th[^>]*>\s*</th>", text)
    assert all("aria-label=" in tag for tag in re.findall(r"<[^>]*tabindex=[^>]*>", text))
    assert all("aria-label=" in tag for tag in re.findall(r"<svg[^>]*role=[^>]*>", text))
    assert '<html lang="en"' in text


def test_a_wait_that_is_not_counted_shows_no_zero() -> None:
    """It began before the window; what the GPU idled after it lies inside."""
    drawn = hostile_plot_data()
    row = replace(drawn.syncs[0], count=0, blocked_ns=0, idle_ns=11_600)
    text = rendered(reports.sample(), replace(drawn, syncs=(row, *drawn.syncs)))
    assert '<td class="n" data-v="0">not counted</td>' in text
    assert "Not counted: the wait began before the window" in text
    assert "Not counted: the wait" not in rendered(reports.sample(), drawn)


def test_a_page_of_pytorch_speaks_of_no_other_profiler() -> None:
    report = reports.sample()
    traced = replace(report, trace=replace(report.trace, source=PYTORCH, nsys_version=None))
    for said, is_there in ((rendered(report), True), (rendered(traced), False)):
        assert ("GPU kernels, CUDA API calls, memory copies, CUDA synchronizations, NVTX ranges" in said) is is_there
        assert "profiler nsys" not in said


def test_shares_of_kernels_have_the_base_that_findings_have() -> None:
    """What communicates is no kernel time: the two sum up apart."""
    drawn = analysis_of("kineto/h800_expert_parallel.json.gz").plot_data
    for kind in (False, True):
        rows = [row for row in drawn.kernels if row.is_communication is kind]
        assert sum(row.share for row in rows) == pytest.approx(1.0)
