"""The truth: the same program with a cost removed, run again on the same machine (docs/account.md, docs/what-if.md).

>>> from boundby.simulate.instructions import Launch, Loop, Work, item, program
>>> known = Truths(program(Loop(10, [Launch("gemm", 200_000), item(), Work(150_000)])))
>>> known.truth().bound
'sync'
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect, bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Flag, auto
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from boundby.model.scale import DISPATCH_NS, NEARLY_ALL, NEGLIGIBLE, NEXT_TO_NOTHING, SLIGHT, SMALL
from boundby.simulate.instructions import Program
from boundby.simulate.machine import (
    CALLS,
    OWN_CODE,
    PAGE_FAULT,
    Do,
    Executed,
    Machine,
    Path,
    Run,
    Script,
    ScriptThread,
    Step,
    StepKind,
    Wait,
    realise,
    simulate,
)
from boundby.simulate.nsys_export import Capture, RunExport, to_export
from boundby.simulate.patterns import EVERY, JITTERY

# What a run took: the window of a device, and how long it was busy with what, each instant counted once.

#: kind of operation -> the cause that it stands for, in the order in which they hide each other
_CLASS = {
    StepKind.KERNEL: "gpu_compute",
    StepKind.GRAPH: "gpu_compute",
    StepKind.COMM: "gpu_comm",
    StepKind.COPY: "gpu_copy",
    StepKind.SET: "gpu_copy",
}
GPU_CAUSES = ("gpu_compute", "gpu_comm", "gpu_copy")


def devices(run: Run) -> tuple[int, ...]:
    """The devices on which the program did anything."""
    return tuple(sorted({_device(run, operation) for operation in run.operations if _is_traced(run, operation)}))


def window_ns(run: Run, device: int = 0) -> int:
    """From the first operation's start, or the begin on the host of the first step that launched anything on the
    device, to the last one's end, or that of the last such step; 0 where there was no operation."""
    mine = operations_on(run, device)
    if not mine:
        return 0
    steps = _steps(run, mine)
    low = min(one.start_ns for one in mine)
    high = max(one.end_ns for one in mine)
    return max(high, *(end for _, end in steps)) - min(low, *(begin for begin, _ in steps)) if steps else high - low


def _step_path(run: Run) -> Path:
    """The outermost region that repeats and holds most of the launches; () if none does."""
    steps = [step for thread in run.script.threads if thread.traced for step in thread.steps]
    launches = Counter(step.path[:depth] for step in steps if step.operation for depth in range(1, len(step.path) + 1))
    instances = Counter(step.path for step in steps if step.do == Do.PUSH)
    total = sum(step.operation is not None for step in steps)
    found = [path for path, count in launches.items() if 2 * count > total and instances[path] > 1]
    return min(found, key=len, default=())


def _instances(script: ScriptThread, done: int, path: Path) -> Iterator[tuple[int, int]]:
    """Where a thread enters and leaves a range, in what it has done."""
    own = [at for at in range(done) if script.steps[at].path == path and script.steps[at].do in (Do.PUSH, Do.POP)]
    return zip(own[::2], own[1::2], strict=False)


def _steps(run: Run, operations: Iterable[Executed]) -> list[tuple[int, int]]:
    """When the first and the last of the program's steps that launched any of these operations begin and end on the
    host."""
    path = _step_path(run)
    if not path:
        return []
    threads = run.script.threads
    within = [one for one in operations if threads[one.thread].steps[one.step].path[: len(path)] == path]
    found = []
    for thread, script in enumerate(threads):
        launched = sorted(one.step for one in within if one.thread == thread)
        lent = sorted(run.start_ns[one.thread][one.step] for one in within if one.thread != thread)
        for push, pop in _instances(script, len(run.end_ns[thread]), path):
            begin, end = run.start_ns[thread][push], run.end_ns[thread][pop]
            if bisect(launched, push) < bisect(launched, pop) or bisect_left(lent, begin) < bisect(lent, end):
                found.append((begin, end))
    return [min(found), max(found)] if found else []


def operations_on(run: Run, device: int) -> list[Executed]:
    """The program's operations on one device, in launch order."""
    return [one for one in run.operations if _device(run, one) == device and _is_traced(run, one)]


def exposed(run: Run, device: int, paths: Mapping[tuple[int, int], Path]) -> dict[tuple[Path, str], int]:
    """Busy time by (path, cause): each instant goes to the highest class that runs, of that to the operation that
    started first. ``paths``: the region of each (thread, step) that launched an operation."""
    classes = [(GPU_CAUSES.index(_CLASS[one.spec.kind]), one) for one in operations_on(run, device)]
    found: dict[tuple[Path, str], int] = {}
    for start, end, rank, one in _sweep(classes):
        key = paths[one.thread, one.step], GPU_CAUSES[rank]
        found[key] = found.get(key, 0) + end - start
    return found


def _sweep(operations: Iterable[tuple[int, Executed]]) -> Iterable[tuple[int, int, int, Executed]]:
    """Pieces (start, end, rank, operation) that cover the busy time once."""
    order = sorted(operations, key=lambda entry: entry[1].start_ns)
    cuts = sorted({time for _, one in order for time in (one.start_ns, one.end_ns)})
    running: list[tuple[int, int, int, Executed]] = []
    place = 0
    for low, high in itertools.pairwise(cuts):
        while place < len(order) and order[place][1].start_ns <= low:
            rank, one = order[place]
            heapq.heappush(running, (rank, one.start_ns, place, one))
            place += 1
        while running and running[0][3].end_ns <= low:
            heapq.heappop(running)
        if running:
            yield low, high, running[0][0], running[0][3]


def _is_traced(run: Run, operation: Executed) -> bool:
    return run.script.threads[operation.thread].traced


def _device(run: Run, operation: Executed) -> int:
    return run.script.threads[operation.thread].steps[operation.step].device


#: That much of the host interval after a call is dispatch; the rest is the program's own work (docs/account.md).
DISPATCH_LIMIT_NS = DISPATCH_NS
#: Two savings this close (of the window) are not told apart.
MIXED_WITHIN = SLIGHT
#: No cause that saves less of the window is named.
LEAST_SAVING = NEGLIGIBLE
#: A device this busy without an idle cause worth IDLE_WORTH is bound by its own work, however close the host is.
SATURATED, IDLE_WORTH = NEARLY_ALL, SMALL
#: A region is hidden if removing all of it changes less than this of the window.
NOTHING = NEXT_TO_NOTHING


class CostRemoval(Flag):
    """What is taken out of a program."""

    NONE = 0
    WAITS = auto()  # host waits for the device: syncs, blocking and pageable copies, allocations that stall
    LAUNCHES = auto()  # time of calls that do not wait, dispatch between calls, launch latency
    KERNELS = auto()  # kernels that are not communication, and graphs
    COMM = auto()
    COPIES = auto()  # copies and sets on the device, and all host time of copies that the host waits for
    CPU = auto()  # host work beyond dispatch, but for that of threads that make input
    SLEEPS = auto()  # input: host time blocked in the operating system, and what threads compute that make input
    INIT = auto()  # allocation, contexts, module loads
    QUEUE = auto()  # the limit of the launch queue


EVERYTHING = ~CostRemoval.NONE
#: scenario id -> what it removes
SCENARIOS: dict[str, CostRemoval] = {
    "no_sync": CostRemoval.WAITS,
    "no_launch_overhead": CostRemoval.LAUNCHES,
    "infinite_gpu": CostRemoval.KERNELS,
    "copies_free": CostRemoval.COPIES,
    "cpu_free": CostRemoval.CPU,
    "input_free": CostRemoval.SLEEPS,
    "comm_free": CostRemoval.COMM,
    "init_free": CostRemoval.INIT,
    "infinite_host": CostRemoval.WAITS
    | CostRemoval.LAUNCHES
    | CostRemoval.CPU
    | CostRemoval.SLEEPS
    | CostRemoval.INIT
    | CostRemoval.QUEUE,
}
#: cause -> what it removes; all but sync from the program that no longer waits
CAUSES: dict[str, CostRemoval] = {
    "sync": CostRemoval.WAITS,
    "gpu_compute": CostRemoval.KERNELS,
    "gpu_comm": CostRemoval.COMM,
    "gpu_copy": CostRemoval.COPIES,
    "cuda_api": CostRemoval.LAUNCHES,
    "init": CostRemoval.INIT,
    "cpu": CostRemoval.CPU,
    "host_blocked": CostRemoval.SLEEPS,
}


class Truth(Struct, frozen=True):
    """What is true of a device (region ``()``) or of a region on it; times of the device's window in ns.

    ``scenarios``: of a device, the window under each scenario id. ``savings``: what removing each cause
    saves as verdicts count it, best first. ``busy_ns``: the account's busy time by cause (a region's with what it
    holds). ``mixed_of``: the two best.
    """

    device: int
    region: Path
    window_ns: int
    scenarios: Mapping[str, int]
    savings: tuple[tuple[str, int], ...]
    busy_ns: Mapping[str, int]
    saturated: bool
    bound: str
    mixed_of: tuple[str, str] | None

    @property
    def margin_fraction(self) -> float:
        """How far the second best removal is behind the best, as a fraction of the window."""
        return (self.savings[0][1] - self.savings[1][1]) / self.window_ns if self.window_ns else 0.0


class Truths:
    """A program, run as it is and without whatever is asked for; every counterfactual is run once."""

    def __init__(self, program: Program, machine: Machine | None = None, seed: int = 0) -> None:
        first = realise(program, machine, seed)
        owned = _own(first, simulate(first))
        run = simulate(owned)  # the same times: steps may have been cut where their owner changes
        self.script = _split(owned, run)
        self.run = replace(run, script=self.script)
        self._present_in: dict[Path, CostRemoval] = {}
        self._windows: dict[tuple[CostRemoval, Path], dict[int, int]] = {}
        self._exposed: dict[int, dict[tuple[Path, str], int]] = {}

    def devices(self) -> tuple[int, ...]:
        """The devices that did anything."""
        return devices(self.run)

    def regions(self) -> tuple[Path, ...]:
        """All regions' paths, parents before children. Numbers of loops are written ``*``."""
        found = {step.path[:depth] for thread in self.script.threads if thread.traced for step in thread.steps
                 for depth in range(1, len(step.path) + 1)}  # fmt: skip
        return tuple(sorted(found))

    def window(self, removal: CostRemoval = CostRemoval.NONE, *, region: Path = (), device: int = 0) -> int:
        """The window of a device once something is removed, everywhere or in one region."""
        key = removal & self._present(region), region
        if key not in self._windows:
            changed = without(self.script, *key)
            run = self.run if changed is self.script else simulate(changed)
            self._windows[key] = {number: window_ns(run, number) for number in self.devices()}
        return self._windows[key].get(device, 0)

    def _present(self, region: Path) -> CostRemoval:
        """What a region holds of all that can be removed: removing anything else changes nothing."""
        if not self._present_in:
            found: dict[Path, CostRemoval] = defaultdict(lambda: CostRemoval.NONE)
            of_step: dict[tuple[Step, bool], CostRemoval] = {}
            for thread in (thread for thread in self.script.threads if thread.traced):
                makes = _makes_input(thread)
                for step in thread.steps:
                    plain = step._replace(path=(), text="")
                    if (plain, makes) not in of_step:
                        of_step[plain, makes] = _removable(plain, makes)
                    for depth in range(len(step.path) + 1):
                        found[step.path[:depth]] |= of_step[plain, makes]
            found[()] |= CostRemoval.QUEUE
            self._present_in = dict(found)
        return self._present_in.get(region, CostRemoval.NONE)

    def truth(self, *, region: Path = (), device: int = 0) -> Truth:
        """Scenarios, savings and verdict of a device or of one region on it."""
        base = self.window(device=device)
        waitless = self.window(CostRemoval.WAITS, region=region, device=device)
        savings = {"sync": base - waitless}
        for cause, removal in CAUSES.items():
            if cause != "sync":
                savings[cause] = waitless - self.window(removal | CostRemoval.WAITS, region=region, device=device)
        everything = self.window(EVERYTHING, region=region, device=device)
        order = sorted(savings.items(), key=lambda entry: (-entry[1], entry[0]))
        saturated = self._saturated(device) if region else self._is_saturated(device, savings)
        busy = self.busy(region=region, device=device)
        bound, mixed = _decide(base, dict(order), busy, base - everything, saturated, is_region=bool(region))
        names = {} if region else SCENARIOS
        scenarios = {name: self.window(removal, device=device) for name, removal in names.items()}
        return Truth(device, region, base, scenarios, tuple(order), busy, saturated, bound, mixed)

    def busy(self, *, region: Path = (), device: int = 0) -> dict[str, int]:
        """Busy time of the device by cause: what the region owns with all that lies in it."""
        if device not in self._exposed:
            paths = _paths(self.script)
            self._exposed[device] = exposed(self.run, device, paths)
        found = dict.fromkeys(GPU_CAUSES, 0)
        for (path, cause), ns in self._exposed[device].items():
            if path[: len(region)] == region:
                found[cause] += ns
        return found

    def _saturated(self, device: int) -> bool:
        return self.truth(device=device).saturated

    def _is_saturated(self, device: int, savings: Mapping[str, int]) -> bool:
        window = self.window(device=device)
        busy = sum(self.busy(device=device).values())
        idle = max(saving for cause, saving in savings.items() if cause not in GPU_CAUSES)
        return busy >= SATURATED * window and idle < IDLE_WORTH * window


def _decide(
    window: int, savings: Mapping[str, int], busy: Mapping[str, int], all_saved: int, saturated: bool, is_region: bool
) -> tuple[str, tuple[str, str] | None]:
    """The bound of section 4. On a saturated device only its own work is looked at, as far as there is any."""
    if not window or (is_region and abs(all_saved) < NOTHING * window):
        return "hidden", None
    names = list(savings)
    if saturated and any(busy.values()):
        names = [cause for cause in names if cause in GPU_CAUSES]
        if savings[names[0]] < LEAST_SAVING * window:
            return max(GPU_CAUSES, key=lambda cause: busy[cause]), None
    first, second = names[:2]
    if savings[first] < LEAST_SAVING * window:
        return "unknown", None
    if savings[second] >= LEAST_SAVING * window and savings[first] - savings[second] < MIXED_WITHIN * window:
        return "mixed", (first, second)
    return first, None


def without(script: Script, removal: CostRemoval, region: Path = ()) -> Script:
    """The script with some costs gone, everywhere or in one region (with all that lies in it).

    Host work is divided and owned as in ``Truths``: use its ``script``.
    """
    if not removal:
        return script
    depth = len(region)
    threads = []
    for thread in script.threads:
        if not thread.traced:
            threads.append(thread)
            continue
        mine = _of_makers(removal) if _makes_input(thread) else removal
        steps = [_strip(step, mine) if step.path[:depth] == region else step for step in thread.steps]
        threads.append(replace(thread, steps=tuple(steps)))
    limit = None if CostRemoval.QUEUE in removal and not region else script.queue_limit
    return replace(script, threads=tuple(threads), queue_limit=limit)


def _makes_input(thread: ScriptThread) -> bool:
    """Whether a thread makes what another takes: it hands over, and is neither the one that takes nor does its work."""
    is_beside = thread.number > 0 and not (thread.daemon or thread.delegate)
    return is_beside and any(step.do == Do.SIGNAL for step in thread.steps)


def _of_makers(removal: CostRemoval) -> CostRemoval:
    """What is taken out of threads that make input: what they compute is input."""
    return removal | CostRemoval.CPU if CostRemoval.SLEEPS in removal else removal & ~CostRemoval.CPU


def _removable(step: Step, makes_input: bool) -> CostRemoval:
    """What, removed alone or from a program that no longer waits, would change a step."""
    found, waitless = CostRemoval.NONE, _strip(step, CostRemoval.WAITS)
    for removal in CostRemoval:
        mine = _of_makers(removal) if makes_input else removal
        if _strip(step, mine) != step or _strip(step, mine | CostRemoval.WAITS) != waitless:
            found |= removal
    return found


def _strip(step: Step, removal: CostRemoval) -> Step:
    """One step without what is removed."""
    if step.do in OWN_CODE:
        step = step._replace(init_ns=0) if CostRemoval.INIT in removal and step.init_ns else step
        gone = (step.excess_ns if CostRemoval.CPU in removal else 0) + (
            step.host_ns - step.excess_ns if CostRemoval.LAUNCHES in removal else 0
        )
        return step._replace(host_ns=step.host_ns - gone) if gone else step
    if step.do == Do.SLEEP:
        return step._replace(host_ns=0) if CostRemoval.SLEEPS in removal else step
    return _strip_call(step, removal) if step.do in CALLS else step


def _strip_call(step: Step, removal: CostRemoval) -> Step:
    if CostRemoval.INIT in removal and step.init_ns:
        step = step._replace(init_ns=0)
    if CostRemoval.WAITS in removal and step.wait != Wait.NONE and step.call != PAGE_FAULT:
        # A sync is gone; a copy is as if it were asynchronous and its memory pinned.
        host_ns = step.host_ns if step.operation else 0
        step = step._replace(wait=Wait.NONE, return_ns=0, host_ns=host_ns)
    if CostRemoval.COPIES in removal and step.operation and step.operation.kind in (StepKind.COPY, StepKind.SET):
        step = _strip_copy(step)
    if CostRemoval.LAUNCHES in removal:
        step = _strip_launch(step)
    if step.operation and _removes(step.operation.kind, removal):
        step = step._replace(operation=step.operation._replace(ns=0, nodes=()))
    return step


def _strip_copy(step: Step) -> Step:
    """No time on the device; a call that would wait for its own copy takes none on the host either."""
    assert step.operation is not None
    operation = step.operation._replace(ns=0, lead_ns=0)
    if step.held:
        operation = operation._replace(submit_ns=0)
        step = step._replace(host_ns=0, wait=Wait.NONE, return_ns=0)
    return step._replace(operation=operation)


def _strip_launch(step: Step) -> Step:
    """No call time unless the host waits in the call, and no latency on the way to the device."""
    if step.wait == Wait.NONE:
        step = step._replace(host_ns=0, arrive_ns=0)
    if step.operation is not None:
        submit = step.operation.submit_ns if step.wait != Wait.NONE else 0
        step = step._replace(operation=step.operation._replace(submit_ns=submit, latency_ns=0))
    return step


def _removes(kind: StepKind, removal: CostRemoval) -> bool:
    if kind in (StepKind.KERNEL, StepKind.GRAPH):
        return CostRemoval.KERNELS in removal
    return kind == StepKind.COMM and CostRemoval.COMM in removal


def _split(script: Script, run: Run) -> Script:
    """Say of all host work how much lies beyond the dispatch limit, counted from the end of the last call."""
    threads = []
    for at, thread in enumerate(script.threads):
        if thread.daemon:
            threads.append(thread)
            continue
        steps = list(thread.steps)
        limit: int | None = None  # until when host work is dispatch; before the first call nothing is
        for number, step in enumerate(steps):
            start, end = run.start_ns[at][number], run.end_ns[at][number]
            if step.do in CALLS and step.call != PAGE_FAULT:
                limit = end + DISPATCH_LIMIT_NS
            elif step.do in OWN_CODE:
                excess = end - start if limit is None else end - min(max(start, limit), end)
                steps[number] = step._replace(excess_ns=min(excess, step.host_ns))
        threads.append(replace(thread, steps=tuple(steps)))
    return replace(script, threads=tuple(threads))


def _own(script: Script, run: Run) -> Script:
    """Give steps outside any range of their thread to the range open on the process's annotated thread, and put
    the ranges of a delegate inside it."""
    threads = list(script.threads)
    for process in {thread.process for thread in threads}:
        members = [at for at, thread in enumerate(threads) if thread.process == process]
        annotated = [at for at in members if any(step.do == Do.PUSH for step in threads[at].steps)]
        if not annotated:
            continue
        lender = annotated[0]
        times, paths = _open_paths(threads[lender], run.start_ns[lender], run.end_ns[lender])
        taken = {step.text: step.path for step in threads[lender].steps if step.do == Do.AWAIT}
        for at in (at for at in members if at != lender and not threads[at].daemon):
            given = [taken[step.text] for step in threads[at].steps if step.do == Do.SIGNAL and step.text in taken]
            makes_for = given[0] if given and _makes_input(threads[at]) else None
            threads[at] = _borrow(threads[at], run.start_ns[at], run.end_ns[at], times, paths, makes_for)
    return replace(script, threads=tuple(threads))


def _open_paths(thread: ScriptThread, starts: Iterable[int], ends: Iterable[int]) -> tuple[list[int], list[Path]]:
    """When the innermost open path changes, and to what."""
    times, paths = [], []
    for step, start, end in zip(thread.steps, starts, ends, strict=True):
        if step.do in (Do.PUSH, Do.POP):
            times.append(start if step.do == Do.PUSH else end)
            paths.append(step.path if step.do == Do.PUSH else step.path[:-1])
    return times, paths


def _borrow(
    thread: ScriptThread,
    starts: Iterable[int],
    ends: Iterable[int],
    times: list[int],
    paths: list[Path],
    makes_for: Path | None,
) -> ScriptThread:
    """Own code and sleeps belong to the region that takes what is made (``makes_for``), else at every instant to what
    is open then: they are cut where that changes."""
    steps: list[Step] = []
    for step, start, end in zip(thread.steps, starts, ends, strict=True):
        if not thread.delegate and step.path:
            steps.append(step)
            continue
        if makes_for is not None and step.do in (Do.WORK, Do.SLEEP):
            steps.append(step._replace(path=makes_for + step.path))
            continue
        first, last = bisect_right(times, start), bisect_right(times, end - 1)
        if step.do not in (Do.WORK, Do.SLEEP) or last <= first or step.init_ns:
            steps.append(step._replace(path=_lent(paths, first) + step.path))
            continue
        bounds = [start, *times[first:last], end]
        for number, (low, high) in enumerate(itertools.pairwise(bounds)):
            if high > low:
                steps.append(step._replace(path=_lent(paths, first + number) + step.path, host_ns=high - low))
    return replace(thread, steps=tuple(steps))


def _lent(paths: list[Path], place: int) -> Path:
    return paths[place - 1] if place > 0 else ()


def _paths(script: Script) -> dict[tuple[int, int], Path]:
    return {
        (at, number): step.path
        for at, thread in enumerate(script.threads)
        for number, step in enumerate(thread.steps)
        if step.operation is not None
    }


class Case(Struct, frozen=True, dict=True):
    """``label``: the pattern it was made after. ``healthy``: nothing in it should be accused. ``is_plain``: one
    thread, one stream, no jitter, so that nothing is left to chance or to guessing. ``features``: what is untidy in
    it (``untidy.FEATURES``). ``capture``: what an export of it holds."""

    label: str
    program: Program
    machine: Machine = field(default_factory=Machine)
    seed: int = 0
    healthy: bool = False
    is_plain: bool = False
    features: tuple[str, ...] = ()
    capture: Capture = field(default_factory=Capture)

    def run(self) -> Run:
        """What happens."""
        return simulate(realise(self.program, self.machine, self.seed))

    def export(self) -> RunExport:
        """What a profiler would record of it."""
        return to_export(self.run(), self.capture)

    @cached_property
    def truths(self) -> Truths:
        """What would happen."""
        return Truths(self.program, self.machine, self.seed)


def known_case(name: str, seed: int, steps: int) -> Case:
    """The program that ``boundby simulate --pattern`` runs."""
    known = EVERY[name]
    return Case(name, known.make(random.Random(seed), steps), JITTERY, seed, known.healthy)
