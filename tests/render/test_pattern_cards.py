"""Cards and diagnoses: every part of a pattern, in every format, from the same document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from boundby import api
from boundby.claims import patterns
from boundby.claims.signs import SIGNS
from boundby.document import pattern_cards, report_document
from boundby.document.blocks import Document
from boundby.model.causes import BOUND_LABEL
from boundby.render import markdown, page, terminal, to_html, to_markdown, to_terminal
from boundby.results.report import Report
from tests.support.traces import analysis_of

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
PARTS = ("Context", "Problem", patterns.FORCES_PART, patterns.SIGNS_PART, patterns.RESPONSES_PART, patterns.THEN_PART)


@pytest.fixture(scope="module")
def report() -> Report:
    return api.analyze(SAMPLE)


@pytest.fixture(scope="module")
def diagnosis(report: Report) -> Document:
    return report_document.diagnosis(report)


@pytest.mark.parametrize("key", patterns.KEYS)
def test_every_pattern_has_all_parts(key: str) -> None:
    shown = patterns.pattern(key)
    assert tuple(shown.parts) == (*PARTS, patterns.NOT_PART)
    assert shown.picture
    assert all(row.usual in shown.text for row in SIGNS[key])
    named = re.findall(r"`([a-z_]+)`", shown.parts[patterns.THEN_PART])
    assert {one for one in named if "_" in one or one in patterns.KEYS} <= {*patterns.KEYS, "nonzero"}
    assert set(named) & {*patterns.KEYS} - {key}  # patterns lead to each other


def _drawn(document: Document) -> dict[str, str]:
    return {
        "terminal": to_terminal.render(document),
        "markdown": to_markdown.render(document),
        "page": to_html.page(document),
        "fragment": to_html.fragment(document),
    }


def test_a_diagnosis_has_every_part_in_every_format(report: Report, diagnosis: Document) -> None:
    (device,) = report.devices
    (card,) = device.cards
    for text in _drawn(diagnosis).values():
        plain = " ".join(re.sub(r"<[^>]+>|[*`\\]", "", text).replace("&nbsp;", " ").replace("&#39;", "'").split())
        for part in (*PARTS, patterns.NOT_PART):
            assert part.lower() in plain.lower()
        assert "idle: launch queue empty" in plain
        for sign in card.signs:
            assert sign.name in plain
            assert sign.value in plain
            assert sign.limit in plain
        assert device.first_responses[0].title in plain
        assert "step /loss" in plain or "step */loss" in plain


@pytest.mark.parametrize("width", [40, 60, 100, 140])
def test_no_line_is_wider_than_asked(diagnosis: Document, width: int) -> None:
    """Except by a word of a command that goes on behind a backslash: it stays whole."""
    lines = to_terminal.render(diagnosis, width=width).splitlines()
    goes_on = [" \\" in (line[-2:], before[-2:]) for before, line in zip(["", *lines], lines, strict=False)]
    assert all(cell_len(line) <= width or one for line, one in zip(lines, goes_on, strict=True))


def test_words_of_a_pattern_stand_once_and_regions_have_cards_of_their_own(report: Report) -> None:
    for text in (terminal.render(report), markdown.render(report), page.render(report)):
        assert text.count("The host decides something") == 1
        titles = re.findall(rf"pattern: {BOUND_LABEL['sync']} \(([^)]*)\)", text.replace("\\", ""), re.IGNORECASE)
        assert titles == ["GPU 0", "step */loss", "step */forward"]


def test_a_response_that_a_finding_tells_leads_to_it_on_the_page(report: Report) -> None:
    (finding, *_) = report.findings
    (device,) = report.devices
    told = replace(
        device.first_responses[0], because=f"{finding.title}, often", command=f"boundby explain {finding.rule}"
    )
    report = replace(report, devices=(replace(device, first_responses=(told,)),))
    text = page.render(report)
    card = text[text.index("First responses") : text.index(patterns.THEN_PART)]
    assert '<a href="#finding-1">Finding 1</a>, often' in card
    assert finding.title not in card
    assert f"{finding.title}, often" in terminal.render(report)


def test_a_card_of_a_host_that_waits_has_the_verdict_s_words() -> None:
    report = analysis_of("mpi_rank_1_late.sqlite").report
    titles = [parts[0].title for parts in pattern_cards.by_subject(report)[:2]]
    assert titles == [
        "Pattern: Waiting for other ranks (Thread MPI Rank 0 (28067))",
        "Pattern: A blocked host: input, files, locks (Thread MPI Rank 1 (28068))",
    ]


def test_what_is_asked_for_is_told_in_full() -> None:
    report = api.analyze(SAMPLE, region="*loss*")
    (parts,) = pattern_cards.by_subject(report, is_of_regions=True)
    shown = to_terminal.render(Document("", (), parts))
    assert "The host decides something" in shown
    assert "It needs " in shown
    assert "Context." in str(report)  # the screen


def test_of_two_causes_each_card_has_its_own_responses() -> None:
    report = api.analyze(SAMPLE)
    (device,) = report.devices
    other = replace(device.first_responses[0], id="cpu.overlap", title="Overlap")
    mixed = replace(
        device,
        verdict=replace(device.verdict, bound="mixed", mixed_of=("sync", "cpu")),
        cards=(*device.cards, replace(device.cards[0], pattern="cpu")),
        first_responses=(*device.first_responses, other),
    )
    first, second = pattern_cards.by_subject(replace(report, devices=(mixed,)))[0]
    drawn = [to_terminal.render(Document("", (), (one,))) for one in (first, second)]
    assert [("Read values back" in text, "Overlap (" in text) for text in drawn] == [(True, False), (False, True)]
    assert not any("Without syncs" in text for text in drawn)  # the verdict above them says so


def test_no_card_says_the_keys_of_causes() -> None:
    """They are names for the JSON and for `boundby explain`; behind the words they say the same again."""
    report = api.analyze(SAMPLE)
    (device,) = report.devices
    for key in patterns.KEYS:
        told = replace(
            device, verdict=replace(device.verdict, bound=key), cards=(replace(device.cards[0], pattern=key),)
        )
        (card,) = pattern_cards.by_subject(replace(report, devices=(told,)))[0]
        text = to_terminal.render(Document("", (), (card,)))
        assert not [one for one in patterns.KEYS if f"({one}" in text], text
