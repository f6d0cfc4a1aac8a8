from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from boundby.document.blocks import clean, part_name, region_name, shorten
from boundby.results.saved import valid

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=60)  # surrogates and all


@given(ANYTHING)
def test_clean_text_is_one_harmless_line_of_valid_unicode(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert not {unicodedata.category(char) for char in cleaned} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(cleaned.splitlines()) <= 1
    assert clean(cleaned) == cleaned


def test_what_clean_shows() -> None:
    assert clean("a\x1b[31mb\n\udc80\u202e") == "a\\x1b[31mb\\n\ufffd\\u202e"
    assert clean("漢字 é ok") == "漢字 é ok"
    assert clean("no\u00a0break") == "no break"


@given(ANYTHING)
def test_valid_changes_nothing_but_surrogates(text: str) -> None:
    made = valid(text)
    made.encode("utf-8")
    assert len(made) == len(text)
    assert all(new == old or "\ud800" <= old <= "\udfff" for new, old in zip(made, text, strict=True))


@given(ANYTHING, st.integers(0, 40), st.sampled_from(["...", "…"]))
def test_shortened_text_fits_and_keeps_both_ends(text: str, width: int, ellipsis: str) -> None:
    text = clean(text)
    made = shorten(text, width, ellipsis)
    assert cell_len(made) <= width
    if cell_len(text) <= width:
        assert made == text
    elif width > len(ellipsis) + 5:
        # The text may hold dots of its own, so the ellipsis is one of the places where it could be.
        cuts = [at for at in range(len(made)) if made.startswith(ellipsis, at)]
        assert any(text.startswith(made[:at]) and text.endswith(made[at + len(ellipsis) :]) for at in cuts)


def test_region_names() -> None:
    assert region_name(()) == "(no range)"
    assert region_name(("a", "", "b\n")) == "a/(unnamed)/b\\n"
    assert part_name(" ") == "(unnamed)"
