"""The program's loop, as the experiment hooks into it: where its steps begin, and its loaders.

Steps begin by the program's own words (``boundby.annotate.steps``, ``ProfilerStep``, NVTX ranges), by its optimizer or
by its loader. Loaders are torch's DataLoader (main thread, workers, a thread of the program), and any iterable that was
named as one. A batch is delayed where it is fetched. Before a block a loader runs empty: what it would ask for is put
aside (the sampler is asked as ever, so that random numbers are drawn in the same order) and asked for at once when the
block is begun. No worker is ever paused. A loader on a thread of its own waits before it fetches the next item until
the steps starve.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .conductor import BETWEEN, END, Conductor, Moment, now, since, sleep
from .delayed_device import SpinningCuda
from .ledger import Batch

ANNOTATED, PROFILER, OPTIMIZER, LOADER, NVTX = "annotate.steps", "ProfilerStep", "optimizer", "loader", "nvtx:"
_DIGITS = re.compile(r"\d+")
MOST_NAMES = 200


def hook_up_steps(conductor: Conductor, when_imported: Any) -> None:
    """Whatever tells where steps begin, as soon as the program imports it."""
    when_imported("nvtx", lambda: _hook_nvtx(conductor))
    when_imported("torch.cuda.nvtx", lambda: _hook_torch_nvtx(conductor))
    when_imported("torch.profiler.profiler", lambda: _hook_profiler(conductor))
    when_imported("torch.optim.optimizer", lambda: _hook_optimizers(conductor))
    when_imported("boundby.annotate.ranges", lambda: _hook_annotated_steps(conductor))
    when_imported("torch.cuda", lambda: _hook_device(conductor))


class _Ranges:
    """The NVTX ranges that are open on each thread: names with numbers folded, and how deep they lie."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._open = threading.local()
        self._names: set[str] = set()

    def push(self, name: str) -> None:
        stack = self._stack()
        source = f"{NVTX}{len(stack)}:{_DIGITS.sub('*', name)}"
        stack.append(source)
        if source in self._names or len(self._names) < MOST_NAMES:
            self._names.add(source)
            self._conductor.boundary(source)

    def pop(self) -> None:
        stack = self._stack()
        if stack and stack.pop() == self._conductor.source:
            self._conductor.place(END)

    def _stack(self) -> list[str]:
        if not hasattr(self._open, "names"):
            self._open.names = []
        names: list[str] = self._open.names
        return names


def _hook_nvtx(conductor: Conductor) -> None:
    nvtx: Any = sys.modules["nvtx"]
    ranges = _Ranges(conductor)

    class annotate(nvtx.annotate):  # type: ignore[misc, name-defined, unused-ignore]  # noqa: N801
        def __init__(self, message: Any = None, *args: Any, **kwargs: Any) -> None:
            super().__init__(message, *args, **kwargs)
            self._boundby_name = "" if message is None else str(message)

        def __enter__(self) -> Any:
            ranges.push(self._boundby_name)
            return super().__enter__()

        def __exit__(self, *raised: Any) -> Any:
            ranges.pop()
            return super().__exit__(*raised)

        def __call__(self, function: Any) -> Any:
            marked = super().__call__(function)
            name = self._boundby_name or function.__name__

            @functools.wraps(function)
            def inner(*args: Any, **kwargs: Any) -> Any:
                ranges.push(name)
                try:
                    return marked(*args, **kwargs)
                finally:
                    ranges.pop()

            return inner

    annotate.__qualname__ = annotate.__name__ = "annotate"
    _replace_ranges(nvtx, ranges, ("push_range", "pop_range"))
    nvtx.annotate = annotate


def _hook_torch_nvtx(conductor: Conductor) -> None:
    _replace_ranges(sys.modules["torch.cuda.nvtx"], _Ranges(conductor), ("range_push", "range_pop"))


def _replace_ranges(module: Any, ranges: _Ranges, names: tuple[str, str]) -> None:
    push, pop = (getattr(module, name) for name in names)

    @functools.wraps(push)
    def pushed(message: Any = None, *args: Any, **kwargs: Any) -> Any:
        ranges.push("" if message is None else str(message))
        return push(message, *args, **kwargs)

    @functools.wraps(pop)
    def popped(*args: Any, **kwargs: Any) -> Any:
        ranges.pop()
        return pop(*args, **kwargs)

    setattr(module, names[0], pushed)
    setattr(module, names[1], popped)


def _hook_profiler(conductor: Conductor) -> None:
    kind: Any = sys.modules["torch.profiler.profiler"].profile
    step = kind.step

    @functools.wraps(step)
    def stepped(self: Any) -> Any:
        result = step(self)
        conductor.boundary(PROFILER)
        return result

    kind.step = stepped


def _hook_optimizers(conductor: Conductor) -> None:
    module: Any = sys.modules["torch.optim.optimizer"]
    torch: Any = sys.modules["torch"]
    first: list[int] = []

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            conductor.place(BETWEEN)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        conductor.place(END)
        if not first:
            first.append(id(optimizer))
        if first[0] == id(optimizer):  # of several, the first one's steps are the program's
            conductor.boundary(OPTIMIZER)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _hook_annotated_steps(conductor: Conductor) -> None:
    iteration: Any = sys.modules["boundby.annotate.ranges"]
    tell = iteration._tell_profiler

    @functools.wraps(tell)
    def told() -> None:
        tell()
        conductor.boundary(ANNOTATED)

    iteration._tell_profiler = told


def _hook_device(conductor: Conductor) -> None:
    """CUDA is the device once the program itself has started it."""
    cuda: Any = sys.modules["torch.cuda"]
    begin = cuda._lazy_init

    @functools.wraps(begin)
    def started() -> Any:
        result = begin()
        if conductor.device is None and cuda.is_initialized():
            conductor.device = SpinningCuda(sys.modules["torch"])
        return result

    cuda._lazy_init = started


#: How long a thread's loader sleeps between two looks whether the steps starve.
LOOK_S = 0.0005
WORKERS, DIRECT = "workers", "direct"


def hook_up_loaders(conductor: Conductor, when_imported: Any) -> None:
    """All loaders of this process, and the fetching in a worker, if that is what it is."""
    when_imported("torch.utils.data._utils.fetch", lambda: _hook_fetchers(conductor))
    when_imported("torch.utils.data.dataloader", lambda: _hook_loaders(conductor))
    when_imported("boundby.annotate.ranges", lambda: _hook_annotated_feeds(conductor))


def _hook_fetchers(conductor: Conductor) -> None:
    module: Any = sys.modules["torch.utils.data._utils.fetch"]
    for kind in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        kind.fetch = _timed(kind.fetch, conductor)


def hooked() -> list[tuple[Any, str]]:
    """The classes of torch, if it is there, and the names in them that `hook_up_loaders` replaces."""
    fetch: Any = sys.modules.get("torch.utils.data._utils.fetch")
    loader: Any = sys.modules.get("torch.utils.data.dataloader")
    if fetch is None or loader is None:
        return []
    base, many = loader._BaseDataLoaderIter, loader._MultiProcessingDataLoaderIter
    fetchers = [(kind, "fetch") for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)]
    return [*fetchers, (many, "_try_put_index"), *((base, name) for name in ("__init__", "_reset", "__next__"))]


def _timed(fetch: Any, conductor: Conductor) -> Any:
    @functools.wraps(fetch)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = now()
        batch = fetch(*args, **kwargs)
        _fetched(conductor, begin)
        return batch

    return timed


_own = threading.local()  # of a fork its parent's, so by process


def _fetched(conductor: Conductor, begin: Moment) -> None:
    """A thread that does nothing but load waits for cores between two batches, too."""
    end, ledger = now(), conductor.ledger
    taken = end.minus(begin)
    loads_only = _in_worker() or conductor.is_apart(threading.get_ident())
    pid, last = getattr(_own, "last", (0, begin))
    before = begin.minus(last) if loads_only and pid == os.getpid() else Moment()
    delay = ledger.input_delay_ns
    slept_ns = sleep(delay).ns if delay > 0 else 0
    ledger.add(Batch(taken.ns, taken.core_wait_ns, before.core_wait_ns, slept_ns))
    _own.last = os.getpid(), now()


class _Loaders:
    """The DataLoader's iterators, numbered: their ids are used again from epoch to epoch."""

    def __init__(self, conductor: Conductor) -> None:
        self.conductor = conductor
        self._number = 0
        self._main: Any = None  # the loader of the program's steps: the one whose batch came first

    def begun(self, iterator: Any, loader: Any) -> None:
        """A pass over a loader has begun."""
        self._number += 1
        iterator._boundby_number = self._number
        iterator._boundby_aside = []
        iterator._boundby_loader = id(loader)
        queue = vars(iterator).get("_data_queue")  # not there yet when the iterator is made
        if queue is not None and not hasattr(queue, "_boundby_is_timed"):
            queue._boundby_is_timed = True
            self._time(queue)

    def next(self, iterator: Any, inner: Any) -> Any:
        """A batch is asked for."""
        conductor = self.conductor
        if _in_worker():
            return inner(iterator)
        conductor.boundary(LOADER)
        workers = int(iterator._num_workers)
        conductor.loads(
            threading.get_ident(),
            kind=WORKERS if workers else DIRECT,
            workers=workers,
            prefetch=int(getattr(iterator, "_prefetch_factor", 0) or 0),
            number=iterator._boundby_number,
        )
        if conductor.is_here:
            self._watch(iterator)
        for batch in conductor.kept.instead():
            return batch
        batch = inner(iterator) if workers else self._timed(inner, iterator)
        conductor.kept.keep(batch)
        return batch

    def _timed(self, wait: Any, *args: Any) -> Any:
        begin = now()
        try:
            return wait(*args)
        finally:
            self.conductor.waited(since(begin))

    def _time(self, queue: Any) -> None:
        """Count as waiting only the wait for a worker: to take a batch over is the host's own work."""
        name = "_poll" if hasattr(queue, "_poll") else "get"  # of a pipe; with pinned memory of a thread
        setattr(queue, name, functools.partial(self._timed, getattr(queue, name)))

    def _watch(self, iterator: Any) -> None:
        conductor = self.conductor
        if self._main is None:
            self._main = iterator._boundby_loader, iterator._boundby_number
        loader, number = self._main
        if iterator._boundby_loader != loader:
            conductor.disturbed(whole_queue=False)
        elif iterator._boundby_number != number:
            self._main = loader, iterator._boundby_number
            conductor.disturbed(whole_queue=True)
        if not iterator._num_workers:
            wait_until_released(conductor)
        elif iterator._boundby_aside and _is_empty(iterator):
            if iterator._boundby_loader == self._main[0]:
                wait_until_released(conductor)
                conductor.is_empty()
            ask_for_what_was_put_aside(iterator)


def wait_until_released(conductor: Conductor) -> None:
    """On a loader's own thread: fetch nothing more until all is used up. The steps' thread holds nothing."""
    while conductor.holds and conductor.is_apart(threading.get_ident()):
        if conductor.is_starving:
            conductor.is_empty()
            return
        time.sleep(LOOK_S)


def _hook_loaders(conductor: Conductor) -> None:
    module: Any = sys.modules["torch.utils.data.dataloader"]
    base, many = module._BaseDataLoaderIter, module._MultiProcessingDataLoaderIter
    loaders = _Loaders(conductor)
    make, reset, put, get = base.__init__, base._reset, many._try_put_index, base.__next__

    @functools.wraps(make)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        loaders.begun(self, loader)
        make(self, loader, *args, **kwargs)

    @functools.wraps(reset)
    def _reset(self: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
        loaders.begun(self, loader)
        return reset(self, loader, *args, **kwargs)

    @functools.wraps(put)
    def _try_put_index(self: Any) -> Any:
        if not conductor.holds or _in_worker():
            return put(self)
        try:
            self._boundby_aside.append(self._next_index())
        except StopIteration:
            return None
        return None

    @functools.wraps(get)
    def __next__(self: Any) -> Any:  # noqa: N807
        return loaders.next(self, get)

    base.__init__, base._reset, base.__next__ = __init__, _reset, __next__
    many._try_put_index = _try_put_index
    _put_index.append(put)


_put_index: list[Any] = []


def ask_for_what_was_put_aside(iterator: Any) -> None:
    """All of it at once, as at the begin of an epoch."""
    aside = iterator._boundby_aside
    try:
        while aside:
            iterator._next_index = functools.partial(aside.pop, 0)
            before = len(aside)
            _put_index[0](iterator)
            if len(aside) == before:
                break
    finally:
        vars(iterator).pop("_next_index", None)


def _is_empty(iterator: Any) -> bool:
    return iterator._tasks_outstanding <= 0 and not any(len(info) > 1 for info in iterator._task_info.values())


def _in_worker() -> bool:
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker._worker_info is not None


class Feed:
    """Any iterator as the program's loader: each item is fetched, and delayed, on the thread that asks for it."""

    def __init__(self, items: Iterator[Any], conductor: Conductor) -> None:
        self._items = items
        self._conductor = conductor

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        conductor = self._conductor
        thread = threading.get_ident()
        conductor.loads(thread, kind=DIRECT, workers=0, prefetch=0, number=0)
        wait_until_released(conductor)
        for kept in conductor.kept.instead():
            return kept
        begin = now()
        item = next(self._items)
        _fetched(conductor, begin)
        conductor.waited(since(begin))
        conductor.kept.keep(item)
        return item


def _hook_annotated_feeds(conductor: Conductor) -> None:
    """``annotate_loader`` says what the loader is."""
    iteration: Any = sys.modules["boundby.annotate.ranges"]
    marked = iteration._marked_items

    @functools.wraps(marked)
    def fed(items: Any, *args: Any) -> Any:
        is_torch = any(kind.__name__ == "_BaseDataLoaderIter" for kind in type(items).__mro__)
        return marked(items if is_torch else Feed(items, conductor), *args)

    iteration._marked_items = fed
