from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boundby.document.blocks import FOLD_BELOW, cells, letters, segments
from boundby.model.causes import CAUSE_INFO, CAUSE_KEYS, OTHER
from tests.support.reports import account

ACCOUNTS = st.fixed_dictionaries({key: st.just(0) | st.integers(0, 10**13) for key in CAUSE_KEYS})


@given(ACCOUNTS, st.integers(1, 250), st.booleans())
def test_cells_fill_the_bar_exactly(time: dict[str, int], width: int, at_least_one: bool) -> None:
    parts = segments(time)
    lengths = cells(parts, width, at_least_one=at_least_one)
    assert sum(lengths) == (width if parts else 0)
    assert all(length >= 0 for length in lengths)
    if at_least_one and width >= len(parts):
        assert all(lengths)
    if not at_least_one:
        for part, length in zip(parts, lengths, strict=True):
            assert abs(part.fraction * width - length) < 1 + 1e-6


@given(ACCOUNTS)
def test_folding_loses_no_time(time: dict[str, int]) -> None:
    parts = segments(time, fold_below=FOLD_BELOW)
    assert sum(part.ns for part in parts) == sum(time.values())
    assert sum(part.cause == "other" for part in parts) <= 1
    shown = [part.cause for part in parts if part.cause != "other"]
    assert shown == [key for key in CAUSE_KEYS if key in shown]


def test_letters() -> None:
    time = account(gpu_compute=50, sync=25, cuda_api=25)
    assert letters(segments(time), 8) == "CCCCssaa"
    assert letters(segments(account()), 8) == ""


def test_one_small_cause_is_named_and_two_are_folded() -> None:
    one = segments(account(gpu_compute=1000, sync=1), fold_below=FOLD_BELOW)
    assert [part.cause for part in one] == ["gpu_compute", "sync"]
    two = segments(account(gpu_compute=1000, sync=1, cpu=1), fold_below=FOLD_BELOW)
    assert [part.label for part in two] == ["compute", "other"]


def test_every_cause_has_its_own_letter_label_and_colour() -> None:
    assert tuple(CAUSE_INFO) == CAUSE_KEYS
    rows = (*CAUSE_INFO.values(), OTHER)
    for words in ({row.letter for row in rows}, {row.label for row in rows}, {row.color for row in rows}):
        assert len(words) == len(rows)
