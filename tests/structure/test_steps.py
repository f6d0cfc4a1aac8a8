"""Which region is the program's steps, and which of them are warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.structure.steps import count_warm_up, find_steps


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([], 0),
        ([50], 0),
        ([50, 30, *[10] * 10], 2),
        ([10] * 12, 0),
        ([50, 10, 50, *[10] * 9], 1),  # only the run from the first one on
        ([50, 10, 10], 1),
        ([50, 10], 0),  # a third at most
        ([30] * 3 + [10] * 6, 3),
        ([30] * 4 + [10] * 6, 0),
        ([14, *[10, 11, 12, 13, 14, 15] * 3], 0),  # within what the others differ by
        ([10, *[30] * 11], 0),  # a fast start is no warm-up
        ([50_000, 20, *[10] * 10], 1),  # beside the first, the second one's excess is nothing
    ],
)
def test_warm_up(durations: list[int], expected: int) -> None:
    assert count_warm_up(np.array(durations, np.int64)) == expected


def test_what_counts_as_slower_can_be_chosen() -> None:
    durations = np.array([14, *[10] * 9], np.int64)
    assert (count_warm_up(durations), count_warm_up(durations, 1.3)) == (0, 1)


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        ([], None),
        ([(0, 5, 100), (1, 1, 50)], None),  # the root is no region, one instance no repetition
        ([(0, 1, 100), (1, 1, 50), (2, 3, 10), (2, 3, 30), (3, 9, 40)], 3),
        ([(1, 2, 10), (1, 2, 10)], 0),
    ],
)
def test_steps(regions: list[tuple[int, int, int]], expected: int | None) -> None:
    assert find_steps(regions) == expected
