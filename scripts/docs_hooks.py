"""Hooks of the documentation site: the JSON page's tables come from the annotations that the JSON is written by, the
pages of rules and patterns from these themselves."""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from boundby.claims.patterns import PAGES, pattern
from boundby.results.report import Report
from boundby.results.schema import schema
from boundby.rules.builtin import builtin
from boundby.rules.rule import index, page, pattern_page

PLACEHOLDER = "<!-- tables of the schema -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every rule's page, the table of all, and every pattern's page."""
    pages = {"rules/index": index(builtin())} | {f"rules/{rule.id}": page(rule) for rule in builtin()}
    pages |= {f"patterns/{key}": pattern_page(key, pattern(key).text, builtin()) for key in PAGES}
    for name, text in pages.items():
        files.append(File.generated(config, f"{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill the tables in where a page asks for them."""
    return markdown.replace(PLACEHOLDER, tables(schema(Report))) if PLACEHOLDER in markdown else markdown


def tables(document: dict[str, Any]) -> str:
    """A table of the top-level keys, then one per object that they hold, in Markdown."""
    parts = _table(document)
    for name, value in document["$defs"].items():
        parts += [f"### {name} {{#{name.lower()}}}", "", value["description"], "", *_table(value)]
    return "\n".join(parts)


def _table(value: dict[str, Any]) -> list[str]:
    rows = [(name, _kind(item), item.get("description", "")) for name, item in value["properties"].items()]
    cells = [f"| `{name}` | {kind} | {text.replace('|', chr(92) + '|')} |" for name, kind, text in rows]
    return ["| key | type | meaning |", "| --- | --- | --- |", *cells, ""]


def _kind(item: dict[str, Any]) -> str:
    if "$ref" in item:
        name = item["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in item:
        return f"`{item['const']}`"
    if "enum" in item:
        return ", ".join("null" if value is None else f"`{value}`" for value in item["enum"])
    if "anyOf" in item:
        return " or ".join(_kind(one) for one in item["anyOf"])
    kind = item.get("type", "any")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    for inner in ("items", "additionalProperties"):
        if inner in item:
            text += f" of {_kind(item[inner])}"
    return text
