from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundby.document import sentences
from boundby.model import units

TIME = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9}
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (0.2, "<1 ns"),
        (812, "812 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (1_234, "1.23 us"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (53_200_000, "53.2 ms"),
        (5_430_000_000, "5.43 s"),
        (999_000_000_000, "999 s"),
        (1_200_000_000_000, "20.0 min"),
        (7_200_000_000_000_000, "2000 h"),
        (-5_000, "-5.00 us"),
        (None, "not captured"),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert units.duration(ns) == text


@given(st.integers(0, 3_000_000_000_000_000))
def test_a_duration_reads_back_within_its_three_digits(ns: int) -> None:
    number, unit = units.duration(ns).split(" ")
    assert abs(float(number) * TIME[unit] - ns) <= max(ns * 0.0051, 0)
    assert len(number.replace(".", "")) <= 3


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_a_longer_time_never_reads_shorter(one: int, other: int) -> None:
    def read(ns: int) -> float:
        number, unit = units.duration(ns).split(" ")
        return float(number) * TIME[unit]

    short, long = sorted((one, other))
    assert read(short) <= read(long) * (1 + 1e-9)


@given(st.integers(0, 999 * 10**12))
def test_a_size_reads_back(number: int) -> None:
    value, unit = units.size(number).split(" ")
    assert abs(float(value) * BYTES[unit] - number) <= number * 0.0051


@given(st.integers(0, 999 * 10**9))
def test_a_count_reads_back(number: int) -> None:
    found = re.fullmatch(r"([\d.]+)([kMG]?)", units.count(number))
    assert found
    assert abs(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]] - number) <= number * 0.051


@pytest.mark.parametrize(("number", "text"), [(812, "812"), (9_312, "9.3k"), (93_120, "93.1k"), (1_200_000, "1.2M")])
def test_count(number: int, text: str) -> None:
    assert units.count(number) == text


@given(st.floats(0, 1))
def test_percent_never_rounds_something_to_nothing_nor_most_to_all(fraction: float) -> None:
    text = units.percent(fraction)
    assert (text == "0 %") == (fraction == 0)
    assert (text == "100 %") == (fraction == 1)
    assert abs(float(text.strip("<> %")) / 100 - fraction) <= 0.0101


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "0 %"),
        (-0.24, "-24 %"),
        (0.24, "+24 %"),
        (-0.004, "-0.4 %"),
        (0.004, "+0.4 %"),
        (0.0532, "+5.3 %"),
        (0.0994, "+9.9 %"),
        (0.0996, "+10 %"),
        (0.0001, "<0.1 %"),
        (-0.9999, "-99.9 %"),
        (-1.0, "-100 %"),
        (12.5, "14 times"),
    ],
)
def test_change(fraction: float, text: str) -> None:
    assert units.change(fraction) == text


def test_a_digit_more_where_limits_are_set_against_a_share() -> None:
    fractions = (0.0, 0.0004, 0.8032, 0.9996, 1.0)
    assert [units.percent(value, digits=1) for value in fractions] == ["0 %", "<0.1 %", "80.3 %", ">99.9 %", "100.0 %"]


def test_plural() -> None:
    assert [units.plural(n, "copy", "copies") for n in (0, 1, 2)] == ["0 copies", "1 copy", "2 copies"]
    assert units.plural(1_200, "region") == "1,200 regions"


def test_the_rest() -> None:
    assert units.percent(-0.24) == "-24 %"
    assert units.percent(None) == units.bandwidth(None) == units.rate(None) == units.size(None) == "not captured"
    assert units.count(None) == "not captured"
    assert units.bandwidth(12.34e9) == "12.3 GB/s"
    assert units.rate(13.24) == "13.2 /ms"
    assert units.rate(0.001) == "<0.01 /ms"
    assert units.rate(0) == "0.00 /ms"
    assert units.rate(12_345) == "12.3k /ms"
    assert units.duration_range(1_100_000_000, 1_300_000_000) == "1.10-1.30 s"
    assert units.duration_range(900_000_000, 1_300_000_000) == "0.90-1.30 s"
    assert units.duration_range(5, 5) == "5 ns"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(4, 270_000_000, "up to 270 ms"), (0, 5, "up to 5 ns"), (270_000, 270_000_000, "up to 270 ms"), (0, 0, "0 ns")],
)
def test_a_low_end_that_the_high_one_cannot_show_is_not_told(low: int, high: int, text: str) -> None:
    assert sentences.saves_range((low, high)) == text


def test_a_place_in_a_sentence_is_no_longer_than_its_line() -> None:
    json = '{"op": "train", "layers": [' + ", ".join(["1024"] * 300) + '], "phase": "loss"}'
    assert units.place(("run", "step", "forward")) == "step/forward"
    assert units.place(()) == ""
    told = units.told_name(json)
    assert len(told) == units.LONGEST_TOLD
    assert told.startswith('{"op": "train"')
    assert told.endswith('"phase": "loss"}')


def test_two_ends_are_told_in_one_unit() -> None:
    assert units.duration_range(460_000, 4_300_000) == "0.46-4.30 ms"
    assert units.duration_range(939_000_000, 1_880_000_000) == "0.94-1.88 s"
    assert units.duration_range(999_900, 1_000_000) == "1.00 ms"
    assert units.percent_range(0.002, 0.006) == "up to 1 %"
