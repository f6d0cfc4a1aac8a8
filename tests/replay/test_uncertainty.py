"""A range is the sum of what is uncertain of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boundby.model.open_kinds import KINDS
from boundby.replay.questions import answer
from boundby.replay.trust import OpenRange, summed
from tests.replay.test_replay import predictor_of, steps_with_sync

NS = st.integers(0, 10**6)
REACHES = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), NS, NS, st.integers(0, 2)))


def widened(told_ns: int, reaches: list[tuple[str, int, int, int]], floor_ns: int = 0) -> OpenRange:
    found = OpenRange(told_ns, (), min(floor_ns, told_ns))
    for kind, one, other, steps in reaches:
        found = found.reaching(kind, min(one, other), max(one, other), steps=steps)
    return found


@given(NS, REACHES, NS)
def test_a_range_holds_all_that_it_may_reach_and_adds_up(
    told_ns: int, reaches: list[tuple[str, int, int, int]], floor_ns: int
) -> None:
    found = widened(told_ns, reaches, floor_ns)
    assert found.low_ns == min([told_ns, *(min(one[1:3]) for one in reaches)])
    assert found.high_ns == max([told_ns, *(max(one[1:3]) for one in reaches)])
    low_ns, high_ns, steps = summed(told_ns, found.told)
    assert (low_ns, high_ns) == (found.least_ns, found.high_ns)
    assert steps == max((one[3] for one in reaches), default=0)


@given(NS, REACHES, NS)
def test_another_number_of_the_same_range_keeps_its_ends(
    told_ns: int, reaches: list[tuple[str, int, int, int]], other_ns: int
) -> None:
    found = widened(told_ns, reaches)
    other = found.told_as(other_ns, "model")
    assert other.told_ns == other_ns
    assert (other.low_ns, other.high_ns) == (min(found.low_ns, other_ns), max(found.high_ns, other_ns))
    assert summed(other_ns, other.told)[:2] == (other.low_ns, other.high_ns)


def test_every_prediction_adds_up() -> None:
    for item in answer(predictor_of(steps_with_sync()), "kernels=2+no_sync"):
        assert summed(item.predicted_ns, item.uncertainties)[:2] == (item.low_ns, item.high_ns)


def test_overlapped_copies_take_no_longer_than_they_did() -> None:
    for found in answer(predictor_of(steps_with_sync()), "copies_overlapped"):
        assert found.predicted_ns <= found.baseline_ns
