"""nvtx_range on coroutine functions: a range for each stretch that runs, none while it waits."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator

import pytest

from boundby.annotate import nvtx_range
from tests.annotate.recording import Recorder


def test_tasks_that_take_turns_never_see_each_others_ranges(recorder: Recorder) -> None:
    seen: list[tuple[str, str]] = []

    async def talk(name: str, turns: int) -> str:
        for _ in range(turns):
            seen.append((name, recorder.here))
            await asyncio.sleep(0)
        return name

    first, second = nvtx_range("first")(talk), nvtx_range("second")(talk)

    async def main() -> list[str]:
        return list(await asyncio.gather(first("first", 3), second("second", 3), talk("bare", 3)))

    assert asyncio.run(main()) == ["first", "second", "bare"]
    assert len(seen) == 9
    assert all(here == ("" if name == "bare" else name) for name, here in seen)
    assert recorder.counts == {"first": 4, "second": 4}  # three waits make four stretches


def test_ranges_nest_through_await(recorder: Recorder) -> None:
    @nvtx_range("inner")
    async def inner() -> int:
        await asyncio.sleep(0)
        return 1

    @nvtx_range("outer")
    async def outer() -> int:
        with nvtx_range("block"):
            pass
        return await inner() + 1

    assert inspect.iscoroutinefunction(outer)
    assert asyncio.run(outer()) == 2
    assert recorder.paths == ["outer", "outer/block", "outer/inner", "outer", "outer/inner"]


def test_errors_and_cancellation_pass_through_and_close(recorder: Recorder) -> None:
    cleaned: list[str] = []

    @nvtx_range("waits")
    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(recorder.here)

    @nvtx_range("fails")
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    async def main() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ValueError, match="mine"):
            await fails()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waits(), 0.001)

    asyncio.run(main())
    assert cleaned == ["waits", "waits"]
    assert recorder.counts == {"waits": 4, "fails": 2}


def test_a_coroutine_that_is_dropped_closes(recorder: Recorder) -> None:
    @nvtx_range("dropped")
    async def dropped() -> None:
        try:
            await asyncio.Future()
        finally:
            assert recorder.here == "dropped"

    async def main() -> None:
        coroutine = dropped()
        coroutine.send(None)
        coroutine.close()

    asyncio.run(main())
    assert recorder.counts == {"dropped": 2}


@nvtx_range("produce")
async def produce(count: int) -> AsyncGenerator[int, str]:
    """Yields numbers, tells what was sent."""
    for number in range(count):
        await asyncio.sleep(0)
        try:
            sent = yield number
        except ValueError:
            sent = "thrown"
        if sent:
            yield -len(sent)


def test_async_generators_are_marked_while_they_run(recorder: Recorder) -> None:
    async def main() -> list[int]:
        numbers = []
        async for number in produce(2):
            assert recorder.here == ""
            numbers.append(number)
        return numbers

    assert inspect.isasyncgenfunction(produce)
    assert asyncio.run(main()) == [0, 1]
    assert recorder.counts == {"produce": 5}  # two waits, two items, the end


def test_async_generators_take_what_is_sent_and_thrown(recorder: Recorder) -> None:
    async def main() -> None:
        numbers = produce(3)
        assert await numbers.asend(None) == 0  # type: ignore[arg-type]
        assert await numbers.asend("four") == -4
        assert await numbers.__anext__() == 1
        assert await numbers.athrow(ValueError()) == -len("thrown")
        await numbers.aclose()
        with pytest.raises(StopAsyncIteration):
            await numbers.__anext__()

    asyncio.run(main())
    assert set(recorder.paths) == {"produce"}


def test_leaving_an_async_generator_early_runs_its_end_in_a_range(recorder: Recorder) -> None:
    ended: list[str] = []

    @nvtx_range("source")
    async def source() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append(recorder.here)

    async def main() -> None:
        items = source()
        async for _ in items:
            break
        await items.aclose()

    asyncio.run(main())
    assert ended == ["source"]
    assert recorder.counts == {"source": 3}
