"""Document -> one self-contained page, or a fragment for notebooks, which has neither script nor style sheet."""

from __future__ import annotations

from collections.abc import Iterable

from boundby import __about__
from boundby.document.blocks import Bar, Document, Drawing, Only, is_empty, spans
from boundby.model.causes import CAUSE_INFO
from boundby.render.html import environment

#: What the templates of blocks ask.
KINDS = {"is_bar": lambda cell: isinstance(cell, Bar), "spans": spans, "is_empty": is_empty}
SCRIPTS = ("assets/base.js", "assets/tables.js", "assets/heat_map.js")


def page(document: Document) -> str:
    """The whole page."""
    from boundby.render.page import STYLES, assets, policy, raw
    from boundby.render.page.drawings import as_script

    style, script = assets((*STYLES[-1:], "assets/document.css"), "\n"), assets(SCRIPTS, "\n")
    data: dict[str, object] = {
        "causes": [{"key": row.key, "label": row.label, "letter": row.letter} for row in CAUSE_INFO.values()]
    }
    for drawing in _drawings(block for part in document.sections for block in part.blocks):
        data |= drawing.data
    return _drawn(
        document,
        "page",
        version=__about__.__version__,
        style=raw(style),
        script=raw(script),
        policy=policy(style, script),
        data=as_script(data),
    )


def fragment(document: Document) -> str:
    """One ``<div>`` without script, in the notebook's own colours."""
    return _drawn(document, "text")


def _drawn(document: Document, place: str, **more: object) -> str:
    template = environment().get_template(f"document_{place}.html.j2")
    return template.render(document=document, place=place, **KINDS, **more)


def _drawings(blocks: Iterable[object]) -> Iterable[Drawing]:
    for block in blocks:
        if isinstance(block, Drawing):
            yield block
        elif isinstance(block, Only):
            yield from _drawings(block.blocks)
