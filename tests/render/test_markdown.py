from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from boundby.render import markdown, to_markdown
from tests.support import golden, reports
from tests.support.headlines import headline

#: As GitHub reads it: tables, strikethrough and HTML.
GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
OUR_TAGS = {"details", "summary", "code", "span"}
READER_TAGS = {"p", "h3", "h4", "table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li", "strong", "pre", "br"}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> _Tags:
    page = _Tags()
    page.feed(GITHUB.render(text))
    return page


@pytest.mark.parametrize("name", ["sample", "cpu_only", "two_devices", "hostile"])
def test_golden(name: str) -> None:
    golden.check(f"markdown_{name}.md", markdown.render(reports.ALL[name]()))


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_every_row_has_the_columns_of_its_table(name: str) -> None:
    page = GITHUB.render(markdown.render(reports.ALL[name]()))
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
        counts = {len(re.findall(r"<t[hd][ >]", row)) for row in rows}
        assert len(counts) == 1
    assert page.count("<details>") == page.count("</details>")
    assert "<p>|" not in page  # a table that was not read as one


def test_names_from_a_trace_are_text() -> None:
    text = markdown.render(reports.hostile())
    page = read(text)
    assert page.tags <= OUR_TAGS | READER_TAGS | {"blockquote", "hr"}
    assert page.attributes <= {"style", "class"}
    for name in ("<img src=x onerror=alert(1)>", "a|b\\|c", "`tick` ``two``", "**bold** _it_ ~~no~~ #1 $x$ <!-- c -->"):
        assert name in page.text
    assert not re.search(r"(?<![`\w>])@\w", re.sub(r"(?<!\\)`[^`]*`|<code>.*?</code>", "", text))


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=30))
def test_escaped_prose_reads_as_it_was(text: str) -> None:
    from boundby.document.blocks import clean

    page = read(to_markdown.escape(text))
    assert page.tags <= {"p", "span"}
    assert page.text.split() == clean(text).split()


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=9))
def test_a_name_in_a_table_cell_reads_as_it_was(name: str) -> None:
    from boundby.document.blocks import clean

    table = f"| a | b |\n| --- | --- |\n| {to_markdown.code(name)} | end |"
    page = GITHUB.render(table)
    assert page.count("<td>") == 2
    parsed = read(table)
    assert parsed.tags <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert "".join(parsed.text.split()) == "ab" + "".join(clean(name).split()) + "end"


def test_the_sentence_comes_first() -> None:
    lines = markdown.render(reports.sample()).splitlines()
    assert lines[3] == f"### {headline('sync')}"


def test_a_node_of_many_gpus_fits_a_comment() -> None:
    text = markdown.render(reports.many_devices(64))
    assert f"### {headline('sync', '48 of 64 GPUs', plural=True)}" in text
    assert text.count("| GPU 63 |") == 1
    assert len(text) < 65_536


def test_a_long_table_of_regions_is_folded() -> None:
    base = reports.sample()
    many = tuple(replace(base.regions[1], path=(f"step {number}",)) for number in range(13))
    text = markdown.render(replace(base, regions=(base.regions[0], *many)))
    assert "<details><summary>14 regions</summary>" in text or "<details><summary>13 regions</summary>" in text
    assert "<summary>1" not in markdown.render(base)
