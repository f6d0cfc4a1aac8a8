"""What is told apart from chance, held against tables of the distributions."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.jobs.even import is_by_chance, least_t


@pytest.mark.parametrize(("freedom", "limit"), [(6, 9.844), (10, 6.567), (100, 4.177)])
def test_few_values_take_more_standard_errors(freedom: int, limit: float) -> None:
    assert least_t(np.array([freedom]))[0] == pytest.approx(limit, rel=0.03)


def _is_by_chance(between: float, groups: int, within: float, values: int) -> bool:
    return bool(is_by_chance(np.array([between]), np.array([groups]), np.array([within]), np.array([values]))[0])


def test_means_of_groups_differ_by_chance_up_to_what_their_values_explain() -> None:
    assert _is_by_chance(4 * 3.0, 5, 20.0, 25)  # a ratio of 3 for 4 and 20 degrees of freedom: one in 25
    assert not _is_by_chance(4 * 30.0, 5, 20.0, 25)
    assert _is_by_chance(2 * 5.0, 3, 4.0, 7)
    assert not _is_by_chance(1.0, 2, 0.0, 6)  # values that never differ tell the least difference
    assert _is_by_chance(0.0, 2, 0.0, 6)


def test_a_group_alone_or_of_single_values_tells_nothing() -> None:
    assert _is_by_chance(9.0, 1, 0.0, 5)
    assert _is_by_chance(9.0, 3, 0.0, 3)
