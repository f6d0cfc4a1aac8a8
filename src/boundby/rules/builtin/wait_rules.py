"""The rules on waits for the device: calls that have one skeleton (each rule says of which it speaks, in which words,
and what to do), and loops that ask again and again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from boundby.attribution.regions import ROOT
from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import busy_of_devices
from boundby.evidence.waits import (
    EVERY,
    TO_DEVICE,
    WaitGroup,
    WaitKind,
    evidence,
    examples,
    groups,
    lines,
    savings,
    waits_of,
)
from boundby.model.arrays import median, pick, ranked
from boundby.model.causes import Cause
from boundby.model.intervals import NOTHING, expand
from boundby.model.late import expression
from boundby.model.scale import HABIT, HALF, LIST, MANY, NEARLY_ALL, NO_LAUNCH_NS, PLENTY, QUARTER
from boundby.model.units import duration, size
from boundby.results.report import Example
from boundby.rules.builtin._telling import around
from boundby.rules.rule import Match, Rule
from boundby.stats.device_figures import SMALL_COPY_BYTES
from boundby.trace.tables import Direction
from boundby.trace.vocabulary.cuda import cuda_name, plain_name

#: Keys of waits, and which of these each has.
Keys = tuple[list[str], Rows]
WHERE = (
    "To see which line waits: record with boundby profile, which marks it, or torch.cuda.set_sync_debug_mode('warn')"
)
MOST_LINES = LIST
MOSTLY = HALF  # of the waits that were seen at a line
NEEDS = ("cuda_api", "kernels")


class Words(Struct, frozen=True):
    """What one rule says of a group of waits, beside what all say."""

    title: str
    advice: tuple[str, ...]
    evidence: Mapping[str, object] = field(default_factory=dict)
    remedy: str = ""
    code: str = ""


def calls_of(context: RuleContext, rows: Rows) -> Keys:
    """The names of the calls that wait, as keys of groups."""
    numbers, of_row = ranked(context.calls.name[waits_of(context).call[rows]])
    return [plain_name(context.trace.names[number]) for number in numbers.tolist()], of_row


def _as_one(_: RuleContext, rows: Rows) -> Keys:
    """All waits of a region together."""
    return [""], np.zeros(len(rows), np.intp)


def matches(
    context: RuleContext,
    kind: WaitKind,
    keys: Callable[[RuleContext, Rows], Keys],
    words: Callable[[RuleContext, WaitGroup], Words],
    least: float = 1,
) -> Iterator[Match]:
    """Waits of one kind, alike ones (by their key) of a region together, if they come ``least`` times or more."""
    rows = waits_of(context).of_kind(kind)
    worth = [group for group in groups(context, rows, *keys(context, rows)) if group.incidents >= least]
    for group, (saving_ns, single) in zip(worth, savings(context, worth), strict=True):
        sentences, at = words(context, group), lines(context, group)
        seen = {"lines": dict(itertools.islice(at.items(), MOST_LINES))} if at else {}
        where = () if at else context.program.pick((), torch=(WHERE,))
        yield Match(
            region=group.region,
            title=f"{sentences.title}{_at(at) or _outside(context, group)}",
            evidence={**sentences.evidence, **evidence(context, group), **single, **seen},
            saving_ns=saving_ns,
            advice=(*sentences.advice, *_together_advice(context, single), *where),
            examples=examples(context, group),
            instances=group.incidents,
            where=line_of_calls(context, waits_of(context).call[group.rows], waits_of(context).held_ns[group.rows]),
            remedy=sentences.remedy,
            code=sentences.code,
        )


def _at(lines: Mapping[str, int]) -> str:
    """``, at loss (train.py:42)``: the line of most of the waits that were seen at one; empty where they are spread."""
    line, times = next(iter(lines.items()), ("", 0))
    share = times / max(sum(lines.values()), 1)
    return f", {'' if share >= NEARLY_ALL else 'mostly '}at {line}" if share >= MOSTLY else ""


def _outside(context: RuleContext, group: WaitGroup) -> str:
    """``, between "step *" and [DALI] Feed``: where waits in no range are; empty of others."""
    waits = waits_of(context)
    if group.region != ROOT or (waits.region[group.rows] != ROOT).any():
        return ""
    call = waits.call[group.rows]
    threads = [(number,) for number in context.calls.thread[call].tolist()]
    at = around(context, threads, context.calls.start_ns[call], waits.held_ns[group.rows])
    return f", {at}" if at else ""


def _together_advice(context: RuleContext, single: Mapping[str, object]) -> tuple[str, ...]:
    """A line for waits that save something only together with others."""
    alone_ns = single.get("saving_alone_ns")
    if not isinstance(alone_ns, int) or alone_ns >= context.least_ns:
        return ()
    return ("Alone it saves little, since the next wait takes its place: remove the waits of this part together",)


# Small values copied to the host, for which it waits; where no operator range says who asked.
_READ = (
    "Keep the value on the device, or read it one step later: copy it asynchronously into pinned memory, record an "
    "event, launch the next step, then look",
)
_READ_TORCH = (
    "Keep the value on the device and read it once every N steps: no .item(), float(t), if t: or print(t) in the step; "
    "torch.where instead of a branch",
)


def _read_back(context: RuleContext, group: WaitGroup) -> Words:
    return Words(f"a value is read back to the host {group.costs}", context.program.pick(_READ, torch=_READ_TORCH))


READBACK = Rule(
    id="sync-readback",
    title="Single values are read back to the host, which waits for each",
    group="sync",
    cause=Cause.SYNC,
    check=lambda context: matches(context, WaitKind.READBACK, _as_one, _read_back),
    needs=NEEDS,
)


# Allocations and releases of device memory that wait for the GPU, again and again.
_ALLOCATE = (
    "Allocate once, outside the loop, or take memory from a pool that does not wait: cudaMallocAsync and cudaFreeAsync",
)
_ALLOCATE_PYTHON = ("Allocate once, outside the loop, or let a memory pool of the library hold what is freed",)
_ALLOCATE_TORCH = (
    "Leave torch.cuda.empty_cache() out of the loop, so that memory is kept and used again",
    "If the allocator runs out of memory and retries: smaller batches, or "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)


def _allocated(context: RuleContext) -> Iterator[Match]:
    return matches(context, WaitKind.ALLOCATION, calls_of, _in_the_loop, HABIT)


def _in_the_loop(context: RuleContext, group: WaitGroup) -> Words:
    python = _ALLOCATE_PYTHON
    advice = context.program.pick(_ALLOCATE, torch=_ALLOCATE_TORCH, python=python, julia=python)
    return Words(f"{group.key} waits for the GPU {group.costs}", advice)


ALLOCATION = Rule(
    id="sync-allocation",
    title="Device memory is freed or allocated in the loop, and the host waits",
    group="sync",
    check=_allocated,
    needs=NEEDS,
)


# Copies named asynchronous that are not: their host memory is pageable, so the host stands by.
_PIN_PYTHON = ("Keep the host side in pinned memory, made once, and copy asynchronously on a stream",)
_PIN_TORCH = ("Pin the host's memory and do not block: DataLoader(pin_memory=True), x.to(device, non_blocking=True)",)
_PIN = ("Pin the host's memory once: cudaMallocHost, or cudaHostRegister for memory that exists already",)


def _standing_by(context: RuleContext, group: WaitGroup) -> Words:
    copied = np.isin(context.calls.of_operation, waits_of(context).call[group.rows])
    moved = int(context.operations.bytes[copied].sum())
    copies, plural = ("a copy", "s") if group.incidents == 1 else (f"{group.incidents:,} copies", "")
    return Words(
        f"the host stands by while {copies} of pageable memory ({size(moved)}) wait{plural} for the GPU's earlier "
        f"work: {duration(group.held_ns)} in all",
        context.program.pick(_PIN, torch=_PIN_TORCH, python=_PIN_PYTHON, julia=_PIN_PYTHON),
        {"moved_bytes": moved},
    )


PAGEABLE = Rule(
    id="sync-pageable-copy",
    title="Asynchronous copies from or to pageable memory hold the host",
    group="sync",
    cause=Cause.SYNC,
    check=lambda context: matches(context, WaitKind.PAGEABLE, _as_one, _standing_by),
    needs=NEEDS,
)


# Waits that a PyTorch operator makes, each with its rewrite.
_BY_KEY = {one.key: one for one in EVERY}


def _of_operators(context: RuleContext) -> Iterator[Match]:
    if not context.operators.names:
        if len(waits_of(context).call) and context.program.is_torch:
            raise CannotCheckError("the trace holds no operator ranges: capture with boundby profile --torch-ops")
        return
    yield from matches(context, WaitKind.OPERATOR, _operators, _of_operator)


def _operators(context: RuleContext, rows: Rows) -> Keys:
    return [operator.key for operator in EVERY], waits_of(context).operator[rows]


def _of_operator(context: RuleContext, group: WaitGroup) -> Words:
    operator, operators = _BY_KEY[group.key], context.operators
    called = operators.outermost[waits_of(context).call[group.rows[:PLENTY]]]
    names = sorted({operators.names[number] for number in called.tolist() if number >= 0})
    evidence: dict[str, object] = {"operator": ", ".join(names) or operator.label, "waits_because": operator.because}
    each, code, advice = "", operator.code, operator.advice
    if operator is TO_DEVICE and (
        moved := median(pick(context.operations.bytes, waits_of(context).copied[group.rows], 0))
    ):
        each, evidence["copied_bytes"] = f" ({size(round(moved))} each)" if group.incidents > 1 else "", round(moved)
        if moved <= SMALL_COPY_BYTES:  # a value or a few, and no batch
            code, advice = _CONSTANT, (_CREATE,)
    return Words(f"{operator.label}{each} makes the host wait {group.costs}", advice, evidence, code=code)


_CREATE = (
    "Create such small tensors on the device (torch.full, torch.zeros, torch.arange with device=), once, outside the "
    "loop, or hand them over as Python numbers: the host knows these values, so that nothing needs to be copied"
)
_CONSTANT = (
    'scale = torch.full((), value, device="cuda")  # once, in place of torch.tensor(value, device="cuda") in a loop'
)


OPERATOR = Rule(
    id="sync-operator",
    title="A PyTorch operator makes the host wait for the GPU",
    group="sync",
    cause=Cause.SYNC,
    check=_of_operators,
    needs=NEEDS,
)


# Explicit waits, and blocking copies of more than a value: what no more specific rule speaks of.
_INSTEAD = (
    (
        "Memcpy",
        "Copy with cudaMemcpyAsync from pinned memory, on a stream of its own, and wait for an event only where the "
        "data are used",
    ),
    (
        "EventSynchronize",
        "Let the stream wait for the event, not the host; or wait one step later, when the event is long done",
    ),
    (
        "StreamSynchronize",
        "Order streams with events instead of waiting on the host, and read results one step later",
    ),
    (
        "",
        "Remove the wait, or move it out of the loop: work on one stream is in order without it. Take times with "
        "events, not with a synchronization in every step",
    ),
)
# Devices that differ by this much from their mean make the host wait whatever it calls.
UNEVEN = 1 + QUARTER
# These shares of the waits come right after copies within the device: they are what is waited for.
MOSTLY_AFTER, ALL_AFTER = HALF, NEARLY_ALL
_ON_DEVICE = (
    "Remove the wait: what uses the data comes after the copy on the same stream anyway. Where a library hands over "
    "batches this way (a loader, an adapter between frameworks), order streams with an event instead, or have it write "
    "straight to where the data are used"
)


# What to do about a wait for an upload, and its code.
_AFTER_UPLOAD = (
    "Wait only before the host writes to that memory again, for an event: what uses the data comes after the copy on "
    "the same stream anyway",
    "cudaEventRecord(copied, stream);  // to wait for only before the host writes to that memory again",
)
_AFTER_UPLOAD_TORCH = (
    'Use x.to("cuda", non_blocking=True) of pinned memory, without a wait: what uses the data comes after the copy '
    "anyway",
    'x = x.to("cuda", non_blocking=True)  # from pinned memory',
)


# Waits that a library makes as it tries its kernels out, and what keeps it from doing so.
_SEARCHES = expression(r"convolution|cudnn|miopen", re.IGNORECASE)
_SEARCH = (
    "Use few shapes, or leave the search out (torch.backends.cudnn.benchmark = False, "
    "cudnnGetConvolutionForwardAlgorithm_v7 in place of cudnnFind...): the library waits, not the program, while it "
    "tries its kernels once for each shape, and keeps the fastest"
)


def _is_search(context: RuleContext, group: WaitGroup) -> bool:
    """Whether these waits for events lie in a convolution: between one and the next the library tries a kernel."""
    operators, calls = context.operators, waits_of(context).call[group.rows[:PLENTY]]
    numbers = operators.outermost[calls].tolist() if len(operators.names) else []
    inside = {operators.names[number] for number in numbers if number >= 0}
    return "EventSynchronize" in group.key and any(map(_SEARCHES.search, (*inside, *context.path(group.region))))


# What a runtime of directives waits for.
_DIRECTIVES = (
    "Use nowait (OpenMP) or async (OpenACC), and one wait where the result is needed: the runtime waits at the end of "
    "each region unless it is told not to"
)


def _explicit(context: RuleContext, group: WaitGroup) -> Words:
    if _is_search(context, group):
        code = context.program.pick("", torch="torch.backends.cudnn.benchmark = False")
        return Words(f"{group.key} makes the host wait {group.costs}", (_SEARCH,), code=code)
    advice = context.program.pick(next(line for part, line in _INSTEAD if part in group.key), directives=_DIRECTIVES)
    busy_ns = busy_of_devices(context)
    if len(busy_ns) > 1 and max(busy_ns) >= UNEVEN * (sum(busy_ns) / len(busy_ns)):
        advice = (
            "Balance the work of the GPUs (see gpu-balance): it is unequal, and the host waits for the slower one. "
            "Without this wait the next one takes its place"
        )
    if "Synchronize" in group.key and (words := _after_copies(context, group)) is not None:
        return words
    if group.incidents == 1 and advice == _INSTEAD[-1][1]:
        advice = "Remove the wait, unless the host needs the result there: the GPU runs out of work after it"
    return Words(f"{group.key} makes the host wait {group.costs}", (advice,), code=_instead(context, group.key))


def _after_copies(context: RuleContext, group: WaitGroup) -> Words | None:
    """Of waits that come right after copies on the device or to it; None: these do not."""
    direction = pick(context.operations.direction, waits_of(context).copied[group.rows], NOTHING)
    on_device, to_device = (float((direction == way).mean()) for way in (Direction.DTOD, Direction.HTOD))
    each = "each " if group.incidents > 1 else ""
    waits = f"{group.key} makes the host wait {group.costs}"
    if on_device >= MOSTLY_AFTER:
        each = "mostly " if on_device < ALL_AFTER else each
        title = f"{waits}, {each}right after a copy on the device"
        return Words(title, (_ON_DEVICE,), code=_instead(context, "StreamSynchronize"))
    if to_device < ALL_AFTER:
        return None
    advice, code = context.program.pick(_AFTER_UPLOAD, torch=_AFTER_UPLOAD_TORCH)
    return Words(f"{waits}, {each}right after a copy to the device", (advice,), code=code)


def _instead(context: RuleContext, call: str) -> str:
    """What to write in place of a wait, as code, where the program makes the call itself."""
    event = "event.record(); stream.wait_event(event)  # in place of a wait of the host"
    if "Memcpy" in call:
        torch = 'x = x.to("cuda", non_blocking=True)  # from pinned memory'
        cpp = "cudaMemcpyAsync(to, from, bytes, kind, stream);  // from or to pinned memory, in place of cudaMemcpy"
    elif "DeviceSynchronize" in call:
        torch = "start.record(); step(); end.record()  # torch.cuda.Event(enable_timing=True), no synchronize()"
        cpp = "cudaEventRecord(done, stream);  // work on one stream is in order without cudaDeviceSynchronize"
    else:
        torch, cpp = event, "cudaEventRecord(done, first); cudaStreamWaitEvent(second, done);"
    return context.program.pick(
        "",
        torch=torch,
        cupy=event,
        cpp=cpp,
        openmp="#pragma omp target teams loop nowait",
        directives="#pragma acc parallel loop async(1)",
    )


CALL = Rule(
    id="sync-call",
    title="The host waits for the GPU in explicit calls, and the GPU runs dry",
    group="sync",
    cause=Cause.SYNC,
    check=lambda context: matches(context, WaitKind.CALL, calls_of, _explicit),
    needs=NEEDS,
)


Int = npt.NDArray[np.int64]
# Who polls asks again at once, or after a short sleep. What asks now and then (the allocator of pinned memory, once a
# batch) does not wait for an answer.
LONGEST_PAUSE_NS = NO_LAUNCH_NS
_QUERY = expression(r"^cu(?:da)?(?:Event|Stream)Query$")


def _polling(context: RuleContext) -> Iterator[Match]:
    calls = context.calls
    is_query = context.named(calls.name, lambda name: _QUERY.match(cuda_name(name)))
    rows = np.flatnonzero(is_query)
    rows = rows[context.in_windows(calls.start_ns[rows])]
    first, last = _loops(rows, calls.thread, calls.start_ns, calls.end_ns)
    long = (last - first + 1) >= MANY
    first, last = first[long], last[long]
    took = calls.end_ns[last] - calls.start_ns[first]
    if took.sum() < context.least_ns:
        return
    asked = int((last - first + 1).sum())
    # With the interval before each call; that before the first of a loop is the program's own.
    _, again = expand(first + 1, last + 1)
    saved = context.saving((Cause.CUDA_API.key, Cause.CPU.key, Cause.HOST_BLOCKED.key), calls=again)
    worst = np.lexsort((first, -took))[:3].tolist()
    yield Match(
        region=context.place(context.timeline.call_region[first], took),
        title=f"{context.call_name(first[worst[0]])} is called {asked:,} times in {len(first):,} loops, "
        f"for {duration(int(took.sum()))} in all",
        evidence={
            "calls": asked,
            "loops": len(first),
            "polling_ns": int(took.sum()),
            "longest_loop_ns": int(took.max()),
        },
        saving_ns=saved if saved is not None else (0, int(took.sum())),
        advice=(
            "Launch what comes next before asking; where one stream must wait for another use cudaStreamWaitEvent, and "
            "where the host must wait, one cudaEventSynchronize",
        ),
        examples=tuple(
            Example(
                int(calls.start_ns[first[loop]]),
                int(took[loop]),
                f"{last[loop] - first[loop] + 1:,} calls of {context.call_name(first[loop])}",
            )
            for loop in worst
        ),
        instances=len(first),
        where=line_of_calls(context, first, took),
    ).advising(
        code=context.program.pick(
            "cudaEventSynchronize(event);  // once, in place of the loop over cudaEventQuery",
            torch="event.synchronize()  # once, in place of the loop over event.query()",
        )
    )


def _loops(rows: Rows, thread: npt.NDArray[np.int32], start_ns: Int, end_ns: Int) -> tuple[Rows, Rows]:
    """First and last row of each run of these calls with no other call of the thread between, and no long pause."""
    if len(rows) == 0:
        return rows, rows
    breaks = (np.diff(rows) != 1) | (np.diff(thread[rows]) != 0)
    breaks |= start_ns[rows[1:]] - end_ns[rows[:-1]] > LONGEST_PAUSE_NS
    return rows[np.append(True, breaks)], rows[np.append(breaks, True)]


POLLING = Rule(
    id="sync-polling",
    title="The host polls events or streams in a loop instead of launching",
    group="sync",
    cause=Cause.SYNC,
    causes=(Cause.CUDA_API,),  # each question is a call, in place of a launch
    check=_polling,
    needs=("cuda_api", "kernels"),
)
