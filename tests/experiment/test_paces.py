"""From blocks of steps to how much longer a step takes under each condition."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.experiment.planning import (
    BASE,
    HOST,
    INPUT,
    Block,
    Condition,
    compare,
    conditions,
    middle_mean,
    order,
    read_block,
    student_quantile,
)

STEP_NS = 4_000_000.0
HOST_LATE = Condition((HOST,), 0.25)


def _block(condition: Condition, pace_ns: float, core_wait_ns: float = 0.0) -> Block:
    delays = dict.fromkeys(condition.delayed, condition.share * STEP_NS)
    core_waits = {HOST: core_wait_ns, INPUT: 0.0}
    return Block(condition, pace_ns, 6, (pace_ns,) * 6, delays, core_waits, 0.0, 0.0, None)


def _told(stretches: list[list[float]], step: tuple[float, ...] = (0, 0, 0, 0), **more: object) -> dict[str, object]:
    return {
        "stretches": stretches,
        "stretch_steps": [[step] * (len(stretch) - 1) for stretch in stretches],
        "device_delays_ns": [],
        "batches": [],
        **more,
    }


def test_an_even_drift_of_the_machine_cancels_out() -> None:
    blocks = order([HOST_LATE], 4)
    paces = [STEP_NS + 10_000 * at + (1_000_000 if block.delayed else 0) for at, block in enumerate(blocks)]
    found = compare([_block(block, pace) for block, pace in zip(blocks, paces, strict=True)])
    (difference,) = found.differences
    assert difference.blocks == 8
    assert difference.value_ns == pytest.approx(1_000_000)
    assert difference.delay_ns == {HOST: 1_000_000}
    assert found.spans_ns[0] == STEP_NS


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    wanted = conditions((HOST, INPUT), (0.25,))
    blocks = order(wanted, 2)
    held = []
    for _ in range(400):
        paces = [STEP_NS * random.normal(1.0, 0.01) for _ in blocks]
        found = compare([_block(block, pace) for block, pace in zip(blocks, paces, strict=True)])
        held += [abs(one.value_ns) <= one.margin_ns for one in found.differences]
    assert 0.9 <= np.mean(held) <= 0.99


def test_blocks_that_did_not_count_are_left_out() -> None:
    paces = [_block(BASE, STEP_NS), None, _block(HOST_LATE, 1.25 * STEP_NS), None, None]
    (difference,) = compare(paces).differences
    assert difference.value_ns == pytest.approx(0.25 * STEP_NS)
    assert compare([None, _block(HOST_LATE, STEP_NS), None]).differences == ()
    assert compare([]).base == ()


def test_batches_that_arrive_together_are_one_observation() -> None:
    """Four workers: four steps at once, then a wait for the next four."""
    ends = [at // 4 * 8.0e6 + at % 4 * 1.0e6 for at in range(13)]
    block = read_block(_told([ends]), BASE, 4)
    assert block is not None
    assert block.pace_ns == pytest.approx(2.0e6)
    assert len(block.spans_ns) == 12
    assert read_block(_told([ends[:4]]), BASE, 4) is None
    assert read_block(_told([]), BASE, 1) is None


def test_the_delay_that_happened_counts() -> None:
    told = _told([[0.0, 1.0e6, 2.0e6]], (300_000, 0, 7, 0), batches=[(2_100_000, 100_000, 20_000, 500_000)] * 4)
    block = read_block(told, Condition((HOST, INPUT), 0.25), 2)
    assert block is not None
    assert block.delay_ns == {HOST: 300_000, INPUT: 250_000}
    assert block.core_wait_ns == {HOST: 7, INPUT: 60_000}
    assert block.fetch_ns == 2_000_000


def test_a_step_that_was_held_up_counts_for_nothing() -> None:
    assert middle_mean([4.0, 4.0, 4.0, 400.0]) == 4.0


@pytest.mark.parametrize("freedom", [1, 2, 7, 30])
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-6)


def test_waits_for_a_core_explain_why_blocks_differ() -> None:
    """Others take the cores by turns: a step takes up to three times as long, and its delay is told to a hundredth."""
    random = np.random.default_rng(0)
    blocks = order([HOST_LATE], 3)
    waits = [STEP_NS * random.uniform(0.0, 2.0) for _ in blocks]
    paces = [STEP_NS + wait + (1_000_000 if block.delayed else 0) for block, wait in zip(blocks, waits, strict=True)]
    measured = compare([_block(*one) for one in zip(blocks, paces, waits, strict=True)])
    (difference,) = measured.differences
    assert difference.value_ns == pytest.approx(1_000_000)
    assert difference.margin_ns < 10_000
    assert measured.free_ns == pytest.approx([STEP_NS] * len(measured.base))
    assert measured.step_ns > 1.3 * STEP_NS


def test_waits_that_something_else_hides_explain_nothing() -> None:
    """The loader sets the pace: the host waits for a core while it would wait for a batch."""
    random = np.random.default_rng(0)
    blocks = order([HOST_LATE], 3)
    measured = compare([_block(block, STEP_NS, STEP_NS * random.uniform(0.0, 0.5)) for block in blocks])
    assert measured.free_ns == pytest.approx([STEP_NS] * len(measured.base))
    assert measured.differences[0].margin_ns < 10_000
