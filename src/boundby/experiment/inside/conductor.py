"""Leads the program through the blocks of the plan: drain, begin empty, drop the first steps, count, end.

First, what a thread's clocks say: how long something took, how much of that it ran, and could run and had no core.
Called where a step of the program ends and the next begins. While the program warms up it only notes when that was.
"""

from __future__ import annotations

import atexit
import copy
import gc
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .ledger import MOST_BATCHES, Ledger


class Moment(NamedTuple):
    """A time, and how long this thread had run and had waited for a core until then; or what lies between two."""

    ns: int = 0
    cpu_ns: int = 0
    core_wait_ns: int = 0

    def plus(self, other: Moment) -> Moment:
        """Both together."""
        return Moment(*(own + more for own, more in zip(self, other, strict=True)))

    def minus(self, other: Moment) -> Moment:
        """What is left without the other."""
        return Moment(*(own - less for own, less in zip(self, other, strict=True)))

    @property
    def asleep_ns(self) -> int:
        """Neither did it run nor could it."""
        return max(self.ns - self.cpu_ns - self.core_wait_ns, 0)


def now() -> Moment:
    """This thread's."""
    core_wait_ns = _core_wait_ns()
    return Moment(time.perf_counter_ns(), time.thread_time_ns(), core_wait_ns)


def since(begin: Moment) -> Moment:
    """What this thread has taken since then."""
    return now().minus(begin)


def sleep(ns: int) -> Moment:
    """Sleep, and say for how long: a busy wait would take the core from a loader."""
    begin = now()
    time.sleep(ns / 1e9)
    return since(begin)


def _core_wait_ns() -> int:
    """By the kernel's file on this thread; 0 where there is none."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:  # noqa: PTH123
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


# What steps change in a torch program: kept while batches are given again, and put back afterwards.


class TrainingState:
    """Parameters and buffers of all modules, what optimizers remember, and random numbers, as they were."""

    def __init__(self) -> None:
        torch: Any = sys.modules.get("torch")
        self._torch = torch
        self._tensors: list[tuple[Any, Any]] = []
        self._optimizers: list[tuple[Any, Any]] = []
        self._random = random.getstate()
        numpy: Any = sys.modules.get("numpy.random")
        self._numpy = None if numpy is None else (numpy, numpy.get_state())
        self._torch_random: Any = None
        if torch is None or not hasattr(torch, "optim"):
            return
        self._torch_random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if _has_cuda(torch) else []
        for thing in _alive(torch):
            if isinstance(thing, torch.nn.Module):
                own = (*thing.parameters(recurse=False), *thing.buffers(recurse=False))
                self._tensors += [(tensor, tensor.detach().clone()) for tensor in own]
            else:
                self._optimizers.append((thing, copy.deepcopy(thing.state_dict())))

    def put_back(self) -> None:
        """All of it."""
        random.setstate(self._random)
        if self._numpy is not None:
            self._numpy[0].set_state(self._numpy[1])
        if self._torch_random is None:
            return
        with self._torch.no_grad():
            for tensor, was in self._tensors:
                tensor.copy_(was)
                tensor.grad = None
        for optimizer, state in self._optimizers:
            optimizer.load_state_dict(state)
        own, devices = self._torch_random
        self._torch.set_rng_state(own)
        if devices:
            self._torch.cuda.set_rng_state_all(devices)


def _alive(torch: Any) -> list[Any]:
    kinds = torch.nn.Module, torch.optim.Optimizer
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def _has_cuda(torch: Any) -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


# The blocks of the plan, one after the other.

#: ``found`` -> a plan, or None while there is none yet.
Planner = Callable[["dict[str, Any]"], "dict[str, Any] | None"]

TOLD_EVERY_NS = 50_000_000
#: A block for which so many times its steps were run and did not count is given up.
MOST_UNCOUNTED = 25
WARMING, DRAINING, COUNTING, OVER = "warming", "draining", "counting", "over"
#: Places of a step at which the host can be delayed.
BEGIN, BETWEEN, END = "begin", "between", "end"
#: The remedy that gives batches from memory.
CACHED = "input_free"


class Kept:
    """The last batches, which one removal gives instead of the loader's.

    What steps on them change is put back before the next batch of the loader's: the program trains on each of those
    once, in their order, from where the one before it led.
    """

    MOST = 4

    def __init__(self) -> None:
        self.is_wanted = self.are_given = False
        self._batches: list[Any] = []
        self._given = 0
        self._before: TrainingState | None = None

    def keep(self, batch: Any) -> None:
        if self.is_wanted:
            self._batches = [*self._batches[1 - self.MOST :], batch]

    def instead(self) -> list[Any]:
        """One batch while they are given, else none."""
        if not self.are_given or not self._batches:
            if self._before is not None:
                self._before.put_back()
                self._before = None
            return []
        if self._before is None:
            self._before = TrainingState()
        self._given += 1
        return [self._batches[self._given % len(self._batches)]]


class FolderPlanner:
    """Tells what was found by the folder; who runs the experiment answers there."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told_ns = 0

    def __call__(self, found: dict[str, Any]) -> dict[str, Any] | None:
        now_ns = time.perf_counter_ns()
        if now_ns - self._told_ns < TOLD_EVERY_NS:
            return None
        plan = self._ledger.plan()
        if plan is None:
            self._ledger.say("found", **found)
        self._told_ns = now_ns
        return plan


class Conductor:
    """The experiment in the process whose steps are looked at."""

    def __init__(self, ledger: Ledger, planner: Planner, *, ends_program: bool) -> None:
        self.ledger = ledger
        self.kept = Kept()
        self.device: Any = None
        self.feed: dict[str, Any] = {}
        self.losses: list[Any] = []
        self.remedy = ""
        self._planner = planner
        self._ends_program = ends_program
        self._pid: int | None = None
        self._lock = threading.RLock()
        self._state = WARMING
        self._seen: dict[str, list[int]] = {}
        self._threads: dict[str, int] = {}
        self._places: set[str] = {BEGIN}
        self._plan: dict[str, Any] = {}
        self._source = ""
        self._at = -1
        self._step_ns = 0.0
        self._host_delay_ns = 0
        self._block: _RunBlock | None = None
        self._last_ns = 0

    # what hooks ask and tell

    @property
    def is_here(self) -> bool:
        """Whether steps of this process count; a fork of it is another process."""
        return self._pid == os.getpid() and self._state != OVER

    @property
    def is_over(self) -> bool:
        """Whether all blocks were run, or it has failed."""
        return self._state == OVER

    @property
    def source(self) -> str:
        """What marks the steps; empty while that is not decided."""
        return self._source

    @property
    def holds(self) -> bool:
        """Whether loaders shall ask for nothing more, so that they run empty."""
        return self._state == DRAINING and self._pid == os.getpid()

    @property
    def is_starving(self) -> bool:
        """Whether the steps have stopped for want of what is held back."""
        patience = max(3 * int(self._plan.get("step_ns", 0)), 5_000_000)
        return time.perf_counter_ns() - self._last_ns > patience

    @property
    def _leaves(self) -> bool:
        """Whether the program can be ended from here: only by its main thread."""
        return self._ends_program and threading.current_thread() is threading.main_thread()

    def boundary(self, source: str, now_ns: int | None = None) -> None:
        """A step ends here, and the next begins."""
        if self._state == OVER or (self._pid is not None and self._pid != os.getpid()):
            return
        if self._state != WARMING and source != self._source:
            return
        try:
            self._boundary(source, time.perf_counter_ns() if now_ns is None else now_ns)
        except Exception as error:
            self._fail(error)
        if self._state == OVER and self._at >= 0:
            self._leave()

    def place(self, where: str) -> None:
        """The program is at a place of its step at which the host can be delayed."""
        if self._pid != os.getpid():
            return
        self._places.add(where)
        if where == BETWEEN:
            self._delay_device()
        if self._host_delay_ns and self._plan.get("place") == where:
            self._delay_host()

    def waited(self, taken: Moment) -> None:
        """The steps' thread has waited for a batch (or fetched it itself)."""
        if self._block is not None and self._threads.get(self._source) == threading.get_ident():
            self._block.waited = self._block.waited.plus(taken)

    def loads(self, thread: int, **feed: Any) -> None:
        """A loader is in use: ``kind`` and what is known of it. Its thread tells whether it loads beside the steps."""
        if not self.feed:
            self.feed = {"thread": thread, **feed}

    def disturbed(self, whole_queue: bool) -> None:
        """Another loader ran, or a new epoch began: the step does not count, nor do the next while the queue fills."""
        if self._block is not None:
            self._block.interrupt(int(self._plan["drop"]) if whole_queue else 1)

    def is_apart(self, thread: int) -> bool:
        """Whether a loader's thread is another one than the steps'."""
        return self._threads.get(self._source) != thread

    def is_empty(self) -> None:
        """What was held back has run empty: the block begins now."""
        with self._lock:
            if self._state == DRAINING:
                self._begin_block()

    # the course

    def _boundary(self, source: str, now_ns: int) -> None:
        with self._lock:
            if self._state == WARMING:
                self._warm_up(source, now_ns)
                return
            block = self._block
            self._last_ns = now_ns
            if self._state == DRAINING:
                if not self._drains_by_itself():
                    self._begin_block()
            elif block is not None:
                block.step(now_ns, self.device)
                if BETWEEN not in self._places:
                    self._delay_device()
                if block.is_done:
                    self._end_block()
                elif block.uncounted > MOST_UNCOUNTED * (int(self._plan["count"]) + int(self._plan["drop"])):
                    raise RuntimeError("epochs are too short: queues fill anew before a block is over")
            if self._host_delay_ns and self._plan.get("place") == BEGIN and self._state == COUNTING:
                self._delay_host()

    def _warm_up(self, source: str, now_ns: int) -> None:
        if self._pid is None:
            if not self.ledger.claim():
                self._state = OVER
                return
            self._pid = os.getpid()
            atexit.register(self.ended)
        times = self._seen.setdefault(source, [])
        times.append(now_ns)
        del times[:-MOST_BATCHES]
        self._threads[source] = threading.get_ident()
        plan = self._planner(self._found())
        if plan is None:
            return
        self._plan, self._source = plan, plan["source"]
        self._step_ns = plan["step_ns"]
        self._next()

    def _found(self) -> dict[str, Any]:
        feed = dict(self.feed)
        thread = feed.pop("thread", None)
        return {
            "times": self._seen,
            "feed": feed,
            "feed_is_apart": {source: thread != own for source, own in self._threads.items()},
            "device": None if self.device is None else self.device.name,
            "places": sorted(self._places),
            "losses": [_number(loss) for loss in self.losses],
            "ranks": _ranks(),
        }

    def _drains_by_itself(self) -> bool:
        """Whether a loader says when it is empty. One on the steps' own thread holds nothing."""
        return bool(self.feed) and (self.feed["kind"] == "workers" or self.is_apart(self.feed["thread"]))

    def _next(self) -> None:
        """The next block, from the drain on."""
        self._set_delays({})
        self._at += 1
        self._block = None
        self._last_ns = time.perf_counter_ns()
        if self._at == len(self._plan["blocks"]):
            self.ledger.say("done", losses=[_number(loss) for loss in self.losses], leaves=self._leaves)
            self._state = OVER
            return
        self._state = DRAINING

    def _begin_block(self) -> None:
        wanted = self._plan["blocks"][self._at]
        if self.device is not None:
            self.device.synchronize()
        self.remedy = wanted["remedy"]
        self.kept.are_given = self.remedy == CACHED
        delays = {part: round(share * self._step_ns) for part, share in wanted["shares"].items()}
        self._set_delays(delays)
        self._block = _RunBlock(
            int(self._plan["drop"]), int(self._plan["count"]), self.ledger.counts(), delays.get("device", 0)
        )
        self._last_ns = time.perf_counter_ns()
        self._state = COUNTING

    def _end_block(self) -> None:
        block = self._block
        assert block is not None
        self._set_delays({})
        if self.device is not None:
            self.device.synchronize()
        self.remedy, self.kept.are_given = "", False
        entry = block.told(self.device, self.ledger)
        if self._at == 0:  # nothing is delayed, and a device's own pace shows; a burst of load shall set no delay
            turns = list(_turns(entry["stretches"], int(self._plan["each"])))
            self._step_ns = statistics.median(turns) if turns else self._step_ns
        self.ledger.say("block", number=self._at, **entry)
        self._next()

    def _set_delays(self, delays: dict[str, int]) -> None:
        self._host_delay_ns = int(delays.get("host", 0))
        self.ledger.input_delay_ns = int(delays.get("input", 0))

    def _delay_host(self) -> None:
        taken = sleep(self._host_delay_ns)
        if self._block is not None:
            self._block.delayed = self._block.delayed.plus(taken)

    def _delay_device(self) -> None:
        """Behind work of the step where that can be told: a device that idles meanwhile would hide its delay."""
        if self.device is not None and self._block is not None:
            self.device.delay(self._block.device_delay_ns)

    def _fail(self, error: Exception) -> None:
        self._state = OVER
        self._set_delays({})
        self.kept.are_given = False
        self.ledger.say("problem", what=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        if os.environ.get("BOUNDBY_DEBUG"):
            raise error

    def _leave(self) -> None:
        """The experiment is over: the program ends as it would by ``sys.exit()``, if that was asked for."""
        self._at = -1
        if self._leaves:
            raise SystemExit(0)

    def ended(self) -> None:
        """The program ends: whatever was under way is over."""
        if self._pid == os.getpid() and self._state != OVER:
            self._state = OVER
            self.ledger.say("found" if self._at < 0 else "ended", **(self._found() if self._at < 0 else {}))


class _RunBlock:
    """Steps under one condition: stretches of them that nothing disturbed."""

    def __init__(self, drop: int, count: int, fetched: dict[str, int], device_delay_ns: int) -> None:
        self.device_delay_ns = device_delay_ns
        self.delayed = self.waited = Moment()
        self.uncounted = 0
        self._drop, self._count = drop, count
        self._skipped = 0
        self._fetched = fetched
        self._stretches: list[list[Any]] = []
        self._steps: list[list[tuple[int, ...]]] = []
        self._counted = 0
        self._begin = now()
        self._is_open = False

    @property
    def is_done(self) -> bool:
        return self._counted >= self._count

    def interrupt(self, skip: int) -> None:
        """What the open step is part of does not count."""
        self._is_open = False
        self._skipped = min(self._skipped, max(0, self._drop - skip))

    def step(self, now_ns: int, device: Any) -> None:
        """A step has ended."""
        end = now()
        own = end.minus(self._begin).minus(self.delayed).minus(self.waited)
        if self._is_open:
            self._counted += 1
            self._steps[-1].append((self.delayed.ns, self.waited.ns, own.core_wait_ns, own.asleep_ns))
            self._stretches[-1].append(now_ns if device is None else device.mark())
        else:
            self.uncounted += 1
            self._skipped += 1
            if self._skipped >= self._drop:
                self._is_open = True
                self._steps.append([])
                self._stretches.append([now_ns if device is None else device.mark()])
        self._begin, self.delayed, self.waited = end, Moment(), Moment()

    def told(self, device: Any, ledger: Ledger) -> dict[str, Any]:
        """What was measured. The device has done all its work."""
        stretches = self._stretches
        delays: list[float] = []
        if device is not None:
            stretches = [[device.when_ns(mark) for mark in stretch] for stretch in stretches]
            delays = list(device.delays_ns())
        return {
            "stretches": [ends for ends in stretches if len(ends) > 1],
            "stretch_steps": [steps for steps in self._steps if steps],
            "device_delays_ns": delays,
            "batches": ledger.batches_since(self._fetched),
        }


def _turns(stretches: list[list[Any]], each: int) -> Iterator[float]:
    """Steps, as the mean of those whose batches arrive together."""
    for ends in stretches:
        for at in range(each, len(ends), each):
            yield (ends[at] - ends[at - each]) / each


def _number(value: Any) -> Any:
    """A loss as a plain number (its bits as text, so that nothing is lost)."""
    try:
        return float(value).hex()
    except Exception:
        return None


def _ranks() -> int:
    """Ranks of the job that this process is part of."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_world_size())
    except Exception:
        return 1
    return 1
