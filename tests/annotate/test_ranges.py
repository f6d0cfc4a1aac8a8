"""nvtx_range around blocks, functions and methods: it opens once, nests, and closes however the block ends."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import pickle
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from boundby.annotate import nvtx_range
from tests.annotate.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable


@nvtx_range("add")
def add(first: int, second: int = 2) -> int:
    """Adds."""
    return first + second


class Model:
    @nvtx_range("method")
    def method(self, value: int) -> tuple[Model, int]:
        return self, value

    @classmethod
    @nvtx_range("inner class method")
    def inner(cls, value: int) -> tuple[type[Model], int]:
        return cls, value

    @staticmethod
    @nvtx_range("static")
    def static(value: int) -> int:
        return value

    @nvtx_range("recursive")
    def recursive(self, depth: int) -> int:
        return 0 if depth == 0 else 1 + self.recursive(depth - 1)


def test_a_block_is_a_range(recorder: Recorder) -> None:
    with nvtx_range("outer"):
        with nvtx_range("inner"):
            assert recorder.here == "outer/inner"
        assert recorder.here == "outer"
    assert recorder.paths == ["outer", "outer/inner"]


def test_one_object_serves_many_times_and_inside_itself(recorder: Recorder) -> None:
    marked = nvtx_range("x")
    for _ in range(2):
        with marked, marked:
            pass
    assert recorder.counts == {"x": 2, "x/x": 2}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_range_closes_when_its_block_raises(recorder: Recorder, error: type[BaseException]) -> None:
    with pytest.raises(error), nvtx_range("outer"), nvtx_range("inner"):
        raise error
    assert recorder.here == ""


def test_functions_keep_their_signature_name_and_result(recorder: Recorder) -> None:
    typed: Callable[..., int] = add
    assert typed(1, second=4) == 5
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert list(inspect.signature(add).parameters) == ["first", "second"]
    assert recorder.paths == ["add"]


def test_a_function_that_raises_closes_its_range(recorder: Recorder) -> None:
    @nvtx_range("bad")
    def bad() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        bad()
    assert recorder.paths == ["bad"]


def test_methods_of_all_kinds(recorder: Recorder) -> None:
    model = Model()
    assert model.method(1) == (model, 1)
    assert Model.inner(2) == (Model, 2)
    assert model.static(3) == 3
    assert model.recursive(2) == 2
    assert recorder.paths == [
        "method",
        "inner class method",
        "static",
        "recursive",
        "recursive/recursive",
        "recursive/recursive/recursive",
    ]


def test_it_may_stand_above_classmethod_and_staticmethod(recorder: Recorder) -> None:
    class Late:
        @nvtx_range("a")
        @classmethod
        def a(cls) -> type[Late]:
            return cls

        @nvtx_range("b")
        @staticmethod
        def b() -> str:
            return "b"

    assert Late.a() is Late
    assert Late().b() == "b"
    assert recorder.paths == ["a", "b"]


def test_what_cannot_be_marked_is_refused() -> None:
    with pytest.raises(TypeError, match="decorates functions and methods"):
        nvtx_range("class")(Model)
    with pytest.raises(TypeError, match="needs a name"):
        nvtx_range(add)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'blueish' is not a colour"):
        nvtx_range("x", color="blueish")


def test_domain_colour_and_category_reach_the_backend(recorder: Recorder) -> None:
    with nvtx_range("x", domain="mine", color="#ff8000", category="io"), nvtx_range("y", color="red"):
        pass
    assert [tuple(label) for label in recorder.labels] == [
        ("x", "mine", 0xFFFF8000, "io"),
        ("y", None, 0xFFFF0000, None),
    ]


def test_threads_do_not_mix(recorder: Recorder) -> None:
    shared = nvtx_range("shared")
    barrier = threading.Barrier(4)

    def work() -> None:
        for _ in range(50):
            with shared:
                barrier.wait()
                with nvtx_range("inside"):
                    barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.counts == {"shared": 200, "shared/inside": 200}


def test_an_outer_range_closes_what_was_left_open_inside(recorder: Recorder) -> None:
    left_open = nvtx_range("left open")
    with nvtx_range("outer"):
        left_open.__enter__()
    assert recorder.here == ""
    left_open.__exit__(None, None, None)  # too late, and harmless
    with nvtx_range("next"):
        assert recorder.here == "next"


def test_a_forked_child_has_nothing_open(recorder: Recorder) -> None:
    with nvtx_range("parent"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads; this child needs none
            child = os.fork()
        if child == 0:
            code = 1
            try:
                recorder.stacks.clear()
                with nvtx_range("child"):
                    code = 0 if recorder.here == "child" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert recorder.here == "parent"


def test_a_range_can_be_copied_and_pickled(recorder: Recorder) -> None:
    original = nvtx_range("x", domain="d", color="red")
    with original:
        pass
    for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        with twin:
            pass
    assert len(set(recorder.labels)) == 1
    assert recorder.counts == {"x": 3}


def test_async_with_is_one_start_end_range_per_entry(recorder: Recorder) -> None:
    shared = nvtx_range("request")

    async def request(seconds: float) -> None:
        async with shared:
            await asyncio.sleep(seconds)
            assert recorder.here == ""

    async def main() -> None:
        await asyncio.gather(request(0.002), request(0.001), request(0))
        with pytest.raises(ValueError):
            async with shared:
                raise ValueError

    asyncio.run(main())
    assert recorder.ended == ["request"] * 4
    assert recorder.paths == []
