from __future__ import annotations

from html.parser import HTMLParser

import pytest

from boundby.render import html
from tests.support import reports
from tests.support.headlines import stressed

VOID: set[str] = set()


class _Strict(HTMLParser):
    """Fails on what does not nest, and collects what stands there."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_it_is_well_formed_and_has_neither_script_nor_link(name: str) -> None:
    page = _Strict()
    text = html.fragment(reports.ALL[name]())
    assert "--min-share" not in text
    text.encode("utf-8")
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.tags <= {"div", "span", "strong", "table", "tr", "th", "td"}
    assert page.attributes <= {"style", "title"}


def test_names_are_shown_not_obeyed() -> None:
    page = _Strict()
    page.feed(html.fragment(reports.hostile()))
    assert any(part.startswith("<img src=x onerror=alert(1)>") for part in page.text)


def test_notebooks_get_it() -> None:
    html.register()
    text = reports.sample()._repr_html_()
    assert text is not None
    assert stressed("sync") in text
    assert "these 5.43 s would be 4.12 s (-24 %)" in text
    assert "sync 24 %" in text
