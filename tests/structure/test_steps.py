"""Which region is the program's steps, and which of them are warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.structure.steps import Candidate, count_warm_up, find_steps, likely_steps


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


WHOLE = Candidate((), 1, 1000, 100)


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        ([], None),
        ([Candidate((), 5, 100, 100), Candidate(("a",), 1, 50, 90)], None),  # the root, and what does not repeat
        ([Candidate(("load",), 60, 900, 0), Candidate(("train", "batch"), 60, 50, 97)], 1),  # a step launches
        ([Candidate(("step",), 9, 50, 40), Candidate(("other",), 9, 50, 45)], None),  # neither holds most
        ([Candidate(("warm-up step",), 9, 900, 90), Candidate(("a", "b"), 9, 9, 60), Candidate(("c",), 9, 9, 60)], 2),
    ],
)
def test_steps(regions: list[Candidate], expected: int | None) -> None:
    assert find_steps(regions, WHOLE) == expected


def test_where_nothing_is_launched_steps_take_most_of_the_time() -> None:
    assert find_steps([Candidate(("a",), 3, 400, 0)], Candidate((), 1, 1000, 0)) is None
    assert find_steps([Candidate(("a",), 3, 600, 0)], Candidate((), 1, 1000, 0)) == 0


def test_candidates_to_name() -> None:
    found = [Candidate(("load",), 9, 900, 0), Candidate(("a",), 9, 1, 40), Candidate(("b", "c"), 9, 1, 45)]
    assert likely_steps(found) == ("b/c", "a")
    assert likely_steps(found[:1]) == ("load",)
