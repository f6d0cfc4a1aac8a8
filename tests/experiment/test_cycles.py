"""What a part is worth, from paces whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from benchmarks import prove_virtual

from boundby.experiment.cycles import BALANCED, OUTSIDE, SERIAL, DelayedPace, Fit, fit
from boundby.experiment.planning import DEVICE, HOST, INPUT, PARTS, conditions

SHARES = (0.125, 0.25)


def _fit(cycles: Mapping[tuple[str, ...], float], busy: Mapping[str, float], error: float = 0.01) -> Fit:
    """Of exact paces: the longest of these cycles, in milliseconds."""
    step = max(cycles.values())
    paces = []
    for condition in conditions(PARTS, SHARES):
        delay = condition.share * step
        pace = max(length + delay * len(set(parts) & set(condition.delayed)) for parts, length in cycles.items())
        paces.append(
            DelayedPace(dict.fromkeys(condition.delayed, delay * 1e6), (pace - step) * 1e6, error * step * 1e6)
        )
    known = {part: time * 1e6 for part, time in busy.items()}
    return fit(step * 1e6, error * step * 1e6, paces, known, SHARES[-1] * step * 1e6)


def _best(answers: Mapping[str, float]) -> str:
    return max(answers, key=lambda name: answers[name])


@pytest.mark.parametrize("bound", PARTS)
def test_the_longest_part_is_the_bound(bound: str) -> None:
    busy = {**dict.fromkeys(PARTS, 2.0), bound: 8.0}
    found = _fit({(part,): time for part, time in busy.items()}, busy)
    assert _best(found.likely) == bound
    assert found.worth[bound].value == pytest.approx(1.0, abs=0.05)
    assert all(found.worth[part].value == pytest.approx(0.0, abs=0.05) for part in PARTS if part != bound)


def test_balanced_and_serial_have_the_same_slopes_and_opposite_answers() -> None:
    balanced = _fit({(HOST,): 4.0, (DEVICE,): 4.0, (INPUT,): 1.0}, {HOST: 4.0, DEVICE: 4.0, INPUT: 1.0})
    serial = _fit({(HOST, DEVICE): 8.0, (INPUT,): 1.0}, {HOST: 4.0, DEVICE: 4.0, INPUT: 1.0})
    assert _best(balanced.likely) == BALANCED
    assert _best(serial.likely) == SERIAL
    for part in (HOST, DEVICE):
        assert balanced.worth[part].value < 0.15
        assert serial.worth[part].value > 0.85


def test_what_bounds_next_is_told() -> None:
    found = _fit({(HOST,): 2.0, (DEVICE,): 8.0, (INPUT,): 5.0}, {HOST: 2.0, DEVICE: 8.0, INPUT: 5.0})
    assert _best(found.likely) == DEVICE
    assert _best(found.beyond) == INPUT


def test_a_pace_set_from_outside_is_none_of_the_parts() -> None:
    found = _fit({(): 10.0, (HOST,): 3.0, (DEVICE,): 2.0, (INPUT,): 1.0}, {HOST: 3.0, DEVICE: 2.0, INPUT: 1.0})
    assert _best(found.likely) == OUTSIDE
    assert all(worth.value < 0.25 < worth.high for worth in found.worth.values())  # it may be work that was not delayed


def test_paces_that_tell_nothing_make_a_wide_interval() -> None:
    paces = [DelayedPace({HOST: 1e6}, 0.5e6, 4e6, 2), DelayedPace({INPUT: 1e6}, 0.5e6, 4e6, 2)]
    found = fit(4e6, 2e6, paces, {HOST: None, INPUT: None}, 1e6)
    assert all(worth.high - worth.low > 0.5 for worth in found.worth.values())
    assert max(found.likely.values()) < 0.95


def test_work_that_was_not_measured_is_not_set_from_outside() -> None:
    """Two parts nearly balanced, and 10 % of either that looked like waiting: the step grows by all of each delay."""
    found = _fit({(HOST,): 5.5, (INPUT,): 5.4}, {HOST: 5.0, INPUT: 5.0}, error=0.03)
    assert found.likely[OUTSIDE] < 0.2
    saved = (5.5 - 5.4) / (SHARES[-1] * 5.5)
    assert found.worth[HOST].low <= saved <= found.worth[HOST].high


def test_paces_that_no_cycles_explain_are_taken_for_less_exact() -> None:
    """Under a lock a delay of 1 ms can cost 2."""
    paces = [DelayedPace({HOST: share * 1e6}, 2 * share * 1e6, 0.02e6) for share in (0.5, 1.0)]
    found = fit(4e6, 0.02e6, paces, {HOST: None, INPUT: None}, 1e6)
    assert found.misfit > 2
    assert _fit({(HOST,): 5.0, (INPUT,): 3.0}, {HOST: 5.0, INPUT: 3.0}).misfit < 1


def test_a_wait_for_a_core_is_a_delay_that_the_machine_made() -> None:
    """While the host sleeps, others have their turn, and it then waits less: its delay of 1 ms costs 0.2."""
    paces = [DelayedPace({HOST: 1e6}, 0.2e6, 0.02e6, 30, {HOST: 3.2e6}, {HOST: 4e6}) for _ in range(3)]
    found = fit(8e6, 0.02e6, paces, {HOST: 4e6}, 1e6, {HOST: 4e6}, asleep_ns=0.0)
    assert found.worth[HOST].low > 0.9
    assert found.likely[HOST] > 0.95


def test_a_bound_that_turns_with_the_load_is_not_sure() -> None:
    """The loader's 4 ms set the pace where a core is free; as it ran, the host's waits made it take 6."""
    paces = [
        DelayedPace({HOST: 1e6}, 1e6, 0.02e6, 30, {HOST: 3e6}, {HOST: 3e6}),
        DelayedPace({INPUT: 1e6}, 0.0, 0.02e6, 30, {HOST: 3e6}, {HOST: 3e6}),
        DelayedPace({HOST: 1e6, INPUT: 1e6}, 1e6, 0.02e6, 30, {HOST: 3e6}, {HOST: 3e6}),
    ]
    found = fit(6e6, 0.02e6, paces, {HOST: 3e6, INPUT: 4e6}, 1e6, {HOST: 3e6})
    assert found.worth[HOST].low < 0.1
    assert found.worth[HOST].high > 0.9
    assert max(found.likely.values()) < 0.95


def test_a_thread_that_never_sleeps_waits_for_nothing_outside() -> None:
    paces = [DelayedPace({HOST: 1e6}, 0.7e6, 0.4e6, 3)]
    awake, asleep = (fit(4e6, 0.4e6, paces, {HOST: 4e6}, 1e6, asleep_ns=ns) for ns in (0.0, 3e6))
    assert awake.likely[OUTSIDE] < asleep.likely[OUTSIDE]


def test_the_same_measurement_gives_the_same_answer() -> None:
    busy = {HOST: 4.0, DEVICE: 3.9, INPUT: 1.0}
    assert _fit({(HOST,): 4.0, (DEVICE,): 3.9}, busy) == _fit({(HOST,): 4.0, (DEVICE,): 3.9}, busy)


def test_pipelines_on_a_virtual_clock() -> None:
    """`python -m benchmarks.prove_virtual` has a thousand; docs/prove.md its figures."""
    score = prove_virtual.score(24, 7)
    assert score.fitted.mean() < 0.05
    assert (score.fitted > prove_virtual.FAR).mean() <= 0.05
    assert score.covered > 0.85
    assert score.slopes.mean() > 3 * score.fitted.mean()
