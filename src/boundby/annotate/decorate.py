"""Mark every stretch of a function that runs: functions, coroutine functions, generators, async generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any

Marked = AbstractContextManager[object]
"""Entered and left around each stretch, many times, nested in itself where a function calls itself."""


def decorate(function: Any, marked: Marked) -> Any:
    """The same kind of callable, marked.

    Raises:
        TypeError: it is no function or method.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(decorate(function.__func__, marked))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"nvtx_range decorates functions and methods, and not {function!r}.")
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator_function(function, marked)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine_function(function, marked)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator_function(function, marked)
    else:
        wrapper = _function(function, marked)
    return functools.wraps(function)(wrapper)


def _function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with marked:
            return function(*args, **kwargs)

    return wrapper


def _generator_function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _drive(function(*args, **kwargs), marked))

    return wrapper


def _coroutine_function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await _Resumed(function(*args, **kwargs), marked)

    return wrapper


def _async_generator_function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        step = inner.asend(None)
        while True:
            try:
                produced = await _Resumed(step, marked)
            except StopAsyncIteration:
                return
            try:
                sent = yield produced
            except GeneratorExit:
                await _Resumed(inner.aclose(), marked)
                raise
            except BaseException as error:
                step = inner.athrow(error)
            else:
                step = inner.asend(sent)

    return wrapper


class _Resumed:
    """Awaits another awaitable, marked while that runs and not while it waits."""

    __slots__ = ("_awaited", "_marked")

    def __init__(self, awaited: Coroutine[Any, Any, Any], marked: Marked) -> None:
        self._awaited = awaited
        self._marked = marked

    def __await__(self) -> Generator[Any, Any, Any]:
        return _drive(self._awaited.__await__(), self._marked)


def _drive(inner: Generator[Any, Any, Any], marked: Marked) -> Generator[Any, Any, Any]:
    """``yield from inner``, marked while ``inner`` runs."""
    resume: Callable[[Any], Any] = inner.send
    value: Any = None
    while True:
        try:
            with marked:
                produced = resume(value)
        except StopIteration as stop:
            return stop.value
        finally:
            value = None  # an error in here would hold its own frame, and with that all locals, until collected
        try:
            value = yield produced
            resume = inner.send
        except GeneratorExit:
            with marked:
                inner.close()
            raise
        except BaseException as error:
            value = error
            resume = inner.throw
