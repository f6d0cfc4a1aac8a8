"""Opens ranges with every helper that needs no torch, for a capture by the real nsys."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterator

from boundby.annotate import annotate_loader, nvtx_range, steps


@nvtx_range("function")
def function() -> None:
    with nvtx_range("block", color="green", category="work"):
        pass


class Model:
    @nvtx_range("method")
    def method(self) -> None:
        function()

    @classmethod
    @nvtx_range("class method")
    def class_method(cls) -> None:
        function()


@nvtx_range("generator")
def generator(count: int) -> Generator[int, None, None]:
    yield from range(count)


@nvtx_range("coroutine")
async def coroutine(waits: int) -> None:
    for _ in range(waits):
        with nvtx_range("stretch"):
            pass
        await asyncio.sleep(0)


@nvtx_range("async generator")
async def async_generator(count: int) -> AsyncGenerator[int, None]:
    for number in range(count):
        yield number


async def concurrently() -> None:
    async def request() -> None:
        async with nvtx_range("request"):
            await coroutine(2)

    await asyncio.gather(request(), request(), request())
    async for _ in async_generator(2):
        pass


def fail() -> None:
    with nvtx_range("outer"), nvtx_range("inner"):
        raise ValueError


def broken() -> Iterator[int]:
    yield 1
    raise ValueError


def expect_error(function: object) -> None:
    try:
        function()  # type: ignore[operator]
    except ValueError:
        return
    raise AssertionError


def main() -> None:
    with nvtx_range("main"):
        Model().method()
        Model.class_method()
        for _ in generator(2):
            with nvtx_range("consumer"):
                pass
        expect_error(fail)
        expect_error(lambda: list(steps(broken(), name="broken")))
        with nvtx_range("mine", domain="other"):
            pass
    asyncio.run(concurrently())
    for number in steps(annotate_loader([1, 2, 3]), warmup=1, active=2):
        if number == 3:
            break
    worker = threading.Thread(target=function)
    worker.start()
    worker.join()
    with nvtx_range("last"):
        pass


if __name__ == "__main__":
    main()
