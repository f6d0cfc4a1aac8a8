"""Hooks of the documentation site: the JSON page's tables come from the schema that the package ships, the pages of the
rules from the rules themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from boundby.rules.builtin import builtin
from boundby.rules.pages import index, page

SCHEMA = Path(__file__).parent.parent / "src/boundby/render/schema.json"
PLACEHOLDER = "<!-- tables of the schema -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every rule's page, and the table of all."""
    pages = {"index": index(builtin())} | {rule.id: page(rule) for rule in builtin()}
    for name, text in pages.items():
        files.append(File.generated(config, f"rules/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill the tables in where a page asks for them."""
    if PLACEHOLDER not in markdown:
        return markdown
    return markdown.replace(PLACEHOLDER, tables(json.loads(SCHEMA.read_text())))


def tables(schema: dict[str, Any]) -> str:
    """One table per top-level key, then one per shared definition, in Markdown."""
    parts = []
    for key, value in schema["properties"].items():
        parts += [f"### `{key}`", "", value.get("description", ""), ""]
        parts += _table(value.get("items", value))
    for name, value in schema.get("$defs", {}).items():
        parts += [f"### {name} {{#{name.lower()}}}", "", value.get("description", ""), ""]
        parts += _table(value)
    return "\n".join(parts)


def _table(value: dict[str, Any]) -> list[str]:
    rows = [(name, _kind(item), item.get("description", "")) for name, item in value.get("properties", {}).items()]
    if not rows:
        return [_kind(value), ""]
    cells = [f"| `{name}` | {kind} | {text.replace('|', chr(92) + '|')} |" for name, kind, text in rows]
    return ["| key | type | meaning |", "| --- | --- | --- |", *cells, ""]


def _kind(item: dict[str, Any]) -> str:
    if "$ref" in item:
        name = item["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in item:
        return f"`{item['const']}`"
    if "enum" in item:
        return ", ".join(f"`{value}`" for value in item["enum"])
    if "anyOf" in item or "oneOf" in item:
        return " or ".join(_kind(one) for one in item.get("anyOf", item.get("oneOf", [])))
    kind = item.get("type", "any")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if "items" in item and isinstance(item["items"], dict):
        return f"{text} of {_kind(item['items'])}"
    if isinstance(item.get("additionalProperties"), dict):
        return f"{text} of {_kind(item['additionalProperties'])}"
    return text
