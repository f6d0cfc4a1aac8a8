from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jinja2 import DictLoader, Environment

from boundby.render import html
from boundby.render.compiled import CompiledTemplates
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


def test_templates_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def say() -> tuple[str, bool]:
        """What a template says, and whether it was compiled for that."""
        compiled: list[str] = []

        class Noted(Environment):
            def _generate(self, *arguments: Any, **options: Any) -> str:
                compiled.append(arguments[1])
                return super()._generate(*arguments, **options)

        environment = Noted(
            loader=DictLoader({"hello.html.j2": "Hello {{ name }}"}), bytecode_cache=CompiledTemplates()
        )
        return environment.get_template("hello.html.j2").render(name="you"), bool(compiled)

    assert say() == ("Hello you", True)
    assert say() == ("Hello you", False)
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.write_bytes(b"damaged")
    assert say() == ("Hello you", True)
    assert say() == ("Hello you", False)
    file.unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert say() == ("Hello you", True)
    assert not file.exists()
