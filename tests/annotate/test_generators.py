"""nvtx_range on generators: marked while they run, not while their consumer does."""

from __future__ import annotations

import inspect
from collections.abc import Generator

import pytest

from boundby.annotate import nvtx_range
from tests.annotate.recording import Recorder


@nvtx_range("numbers")
def numbers(count: int) -> Generator[int, str | None, str]:
    for number in range(count):
        try:
            sent = yield number
        except ValueError:
            sent = "thrown"
        if sent:
            yield -len(sent)
    return "done"


def test_a_range_for_each_item_and_none_in_between(recorder: Recorder) -> None:
    for _ in numbers(3):
        assert recorder.here == ""
        with nvtx_range("body"):
            pass
    assert inspect.isgeneratorfunction(numbers)
    assert recorder.counts == {"numbers": 4, "body": 3}


def test_generators_that_take_turns_do_not_mix(recorder: Recorder) -> None:
    assert list(zip(numbers(3), numbers(3), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    assert recorder.counts == {"numbers": 8}


def test_send_throw_and_return_work_as_without_it(recorder: Recorder) -> None:
    running = numbers(3)
    assert next(running) == 0
    assert running.send("four") == -4
    assert next(running) == 1
    assert running.throw(ValueError()) == -6
    assert next(running) == 2
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value == "done"
    assert set(recorder.paths) == {"numbers"}


@pytest.mark.parametrize("collected", [False, True])
def test_closing_early_runs_the_end_in_a_range(recorder: Recorder, *, collected: bool) -> None:
    ended: list[str] = []

    @nvtx_range("source")
    def source() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            ended.append(recorder.here)

    items = source()
    next(items)
    if collected:
        del items
    else:
        items.close()
    assert ended == ["source"]
    assert recorder.counts == {"source": 2}


def test_an_error_inside_closes_the_range(recorder: Recorder) -> None:
    @nvtx_range("bad")
    def bad() -> Generator[int, None, None]:
        yield 1
        raise ValueError

    with pytest.raises(ValueError):
        list(bad())
    assert recorder.counts == {"bad": 2}


def test_a_block_in_a_generator_that_is_dropped_late_closes_nothing_else(recorder: Recorder) -> None:
    def source() -> Generator[int, None, None]:
        with nvtx_range("held"):
            yield 1

    first, second = source(), source()
    next(first)
    next(second)
    first.close()
    second.close()
    assert recorder.counts == {"held": 1, "held/held": 1}
