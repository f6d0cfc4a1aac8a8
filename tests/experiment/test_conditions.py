"""Which parts are delayed in which blocks."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from boundby.experiment.planning import BASE, PARTS, Condition, conditions, order, rounds_within, subsets

SOME_PARTS = st.sets(st.sampled_from(PARTS), min_size=1).map(sorted)


def test_three_parts_have_eight_conditions() -> None:
    assert subsets(("device", "host", "input")) == (
        ("host",),
        ("input",),
        ("device",),
        ("host", "input"),
        ("host", "device"),
        ("input", "device"),
        ("host", "input", "device"),
    )
    assert len({BASE, *conditions(PARTS, (0.25,))}) == 8
    assert len({BASE, *conditions(("host", "input"), (0.25,))}) == 4
    assert len({BASE, *conditions(("host",), (0.25,))}) == 2


@given(SOME_PARTS, st.integers(1, 4))
def test_each_block_has_a_neighbour_without_a_delay(parts: list[str], rounds: int) -> None:
    wanted = conditions(parts, (0.125, 0.25))
    blocks = order(wanted, rounds)
    assert blocks[0] == blocks[-1] == BASE
    assert rounds_within(len(blocks), len(wanted)) == rounds
    assert rounds_within(len(blocks) - 1, len(wanted)) == rounds - 1
    runs = [(condition, len(list(run))) for condition, run in groupby(blocks)]
    assert [length for condition, length in runs if condition != BASE] == [2] * rounds * len(wanted)
    assert [length for condition, length in runs if condition == BASE] == [1] * (1 + rounds * len(wanted))
    assert all(blocks.count(condition) == 2 * rounds for condition in wanted)


def test_a_removal_is_a_condition_without_a_delay() -> None:
    assert conditions(("host",), (0.25,), ("input_free",))[-1] == Condition(remedy="input_free")
