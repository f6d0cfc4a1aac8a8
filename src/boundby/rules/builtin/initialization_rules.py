"""The rules on setting up: what is loaded, compiled, tried out or allocated while the GPU waits, before its first work
and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import Int, Rows, RuleContext, SavingNs
from boundby.evidence.host_idleness import Idleness, ending_calls, examples, host_pieces
from boundby.evidence.initialization import (
    Autotuning,
    Compilations,
    WarmOption,
    allocated_in,
    autotuning,
    call_evidence,
    call_place,
    compilations,
    init_saving,
    libraries_of,
    progress_at,
    rest_after_steps,
    rest_region,
    rest_window,
    setup_calls,
    warm_option,
    warm_regions,
    warm_share,
    warm_up_code,
)
from boundby.evidence.latecomers import MESSAGE_NAME
from boundby.evidence.transfers import looks_like_a_model
from boundby.model.arrays import group_sums, ranked, unique
from boundby.model.causes import Cause
from boundby.model.intervals import union
from boundby.model.late import expression
from boundby.model.scale import HALF, MANY, MARGIN, MOST, NOTABLE, QUARTER, TENFOLD
from boundby.model.units import count, counted, duration, percent, size
from boundby.results.report import Example
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.builtin._telling import analyze, known, rest_options
from boundby.rules.remedies import common_facts
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.program import KnownProgram, ProgramKind
from boundby.trace.tables import Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.cuda import CallClass, cuda_name
from boundby.trace.vocabulary.kernel_names import kernel_label

# Ranges and calls are named if they cover this share of the start; a range gives way to one inside it that covers most.
_MOST = HALF
# What is uploaded after it was made on the CPU is a model, and no batch.
_MODEL_BYTES = 50_000_000


# What the remedy is called where the cause of the late start is known.
_KEEP = "Make the context once for several jobs, and for one GPU"
_ON_GPU = "Build the model on the GPU"
_SLOW = "Try to shorten the start first, since it takes longer than the part that the verdict is about"


class _Covering(Struct, frozen=True):
    """A range open before the first GPU work: for how long of it."""

    row: int  # of ``trace.ranges``
    name: str
    start_ns: int
    covered_ns: int


def _in_one_call(context: RuleContext, call: int, took: int, in_cuda_ns: int) -> tuple[str, Example]:
    """How much of the time in CUDA calls one takes."""
    name = context.call_name(call)
    of_calls = f"{duration(took)} of that"
    if took < MOST * in_cuda_ns:
        of_calls = f"{duration(in_cuda_ns)} of that in CUDA calls, {duration(took)}"
    return f"; {of_calls} in one {name}", Example(int(context.calls.start_ns[call]), took, name)


def _late_start(context: RuleContext) -> Iterator[Match]:
    trace, calls, operations = context.trace, context.calls, context.operations
    if not len(operations):
        return
    (low, end), first = trace.span_ns, int(operations.start_ns.min())
    high = min(first, *(device.low_ns for device in context.timeline.devices))  # a step may begin before its work
    startup, work = high - low, int(operations.end_ns.max()) - first
    share = startup / max(end - low, 1)
    if startup < LATE_START.threshold(context, "startup_ns") or share < QUARTER:
        return
    rows = np.flatnonzero((calls.start_ns < high) & (calls.end_ns > low))
    ends = np.minimum(calls.end_ns[rows], high)
    in_cuda, length = union(calls.start_ns[rows], ends).total, ends - calls.start_ns[rows]
    covering = _ranges(context, low, high)
    evidence: dict[str, object] = {
        "startup_ns": startup,
        "first_to_last_gpu_work_ns": work,
        "startup_of_run_fraction": round(share, 4),
        "in_cuda_calls_ns": in_cuda if trace.captured.cuda_api else None,
        "calls": context.named_calls(rows, 3, length),
    }
    if trace.captured.osrt:
        evidence["os_calls"] = _os_calls(context, low, high)
    evidence["ranges"] = [f"{item.name}: {duration(item.covered_ns)}" for item in covering]
    named = [item for item in covering if item.covered_ns >= _MOST * startup]
    is_cuda = in_cuda >= _MOST * startup
    is_slow = False
    if is_cuda:
        worst = np.lexsort((rows, -length))[0]
        what, example = _in_one_call(context, int(rows[worst]), int(length[worst]), in_cuda)
        examples = [example]
        usual_ns = LATE_START.threshold(context, "startup_ns")  # tenfold is no start that a program may wait for
        is_slow = example.duration_ns >= max(TENFOLD * usual_ns, HALF * (end - low))
    else:
        what, examples = _in_ranges(context, named, in_cuda)
    begins = "GPU work" if high == first else "step"
    yield Match(
        region=None,
        title=f"{duration(startup)} ({percent(share)} of the recording) pass before the first {begins}, and are not "
        f"analysed{what}",
        evidence=evidence,
        saving_ns=None,
        advice=_late_advice(context, in_cuda, startup, named[0] if named else None),
        examples=tuple(examples) or (Example(low, startup, "from the first event to the first GPU work"),),
        severity="medium" if is_slow else "note",
    ).advising(**_late_code(context, named, is_cuda=is_cuda, is_slow=is_slow))


def _in_ranges(context: RuleContext, named: list[_Covering], in_cuda_ns: int) -> tuple[str, list[Example]]:
    """What ranges tell of it; where none does, how much of it is in CUDA calls."""
    if named:
        what = "; " + ", ".join(f"{duration(item.covered_ns)} of that in {item.name}" for item in named)
        return what, [Example(item.start_ns, item.covered_ns, item.name) for item in named]
    return f"; {duration(in_cuda_ns)} of that in CUDA calls" if context.trace.captured.cuda_api else "", []


def _late_code(context: RuleContext, named: list[_Covering], *, is_cuda: bool, is_slow: bool) -> dict[str, str]:
    """What to write, where that is known, and what comes earlier then. ``is_slow``: one call takes most of the run."""
    if is_slow:
        lazy = "" if context.trace.is_of_amd else "CUDA_MODULE_LOADING=LAZY "
        what = f"{'loads code when needed, and ' if lazy else ''}starts no other GPU"
        return {"code": f"{lazy}{_own_gpus(context)}  # {what}", "earlier": _SLOW}
    if is_cuda:
        is_one = len(context.timeline.devices) == 1
        return {"code": _own_gpus(context), "earlier": _KEEP} if is_one else {}
    if named and _makes_model(context, named[0]):
        return {"code": 'with torch.device("cuda"): model = Model(...)', "earlier": _ON_GPU}
    return {}


def _own_gpus(context: RuleContext) -> str:
    """The program, which sees no more GPUs than it used."""
    hide = "HIP_VISIBLE_DEVICES" if context.trace.is_of_amd else "CUDA_VISIBLE_DEVICES"
    used = ",".join(str(context.trace.gpus[device.index].id) for device in context.timeline.devices)
    return f"{hide}={used} {context.trace.how_it_runs}"


def _os_calls(context: RuleContext, low: int, high: int) -> list[str]:
    """The OS calls of the thread that launches the first work that take most of the start."""
    os_calls, names = context.trace.os_calls, context.trace.names
    inside = np.isin(os_calls.thread, unique(context.calls.thread))
    inside &= (os_calls.start_ns >= low) & (os_calls.end_ns <= high)
    lengths = (os_calls.end_ns - os_calls.start_ns)[inside]
    called, call_index = ranked(os_calls.name[inside])
    total = Counter[str]()
    for name, length in zip(called.tolist(), group_sums(call_index, lengths, len(called)).tolist(), strict=True):
        total[names[name]] += length
    most = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:3]
    return [f"{name}: {duration(length)}" for name, length in most]


def _ranges(context: RuleContext, low: int, high: int) -> list[_Covering]:
    """The ranges that cover most of the start, no one inside another; a range that holds little but another gives way
    to that one. A range may end after the first GPU work: its part before it counts."""
    ranges, parent = context.trace.ranges, context.tree.range_parent
    covered = np.minimum(ranges.end_ns, high) - np.maximum(ranges.start_ns, low)
    rows = np.flatnonzero((parent < 0) & (covered > 0))
    rows = rows[np.lexsort((rows, -covered[rows]))][:3]
    covering = []
    for row in rows.tolist():
        while True:
            inside = np.flatnonzero(parent == row)
            best = int(inside[np.lexsort((inside, -covered[inside]))][0]) if len(inside) else -1
            if best < 0 or covered[best] < MOST * covered[row]:
                break
            row = best
        name = context.trace.names[ranges.name[row]]
        covering.append(_Covering(row, name, max(int(ranges.start_ns[row]), low), int(covered[row])))
    return covering


def _late_advice(context: RuleContext, in_cuda: int, startup: int, named: _Covering | None) -> tuple[str, ...]:
    if in_cuda >= _MOST * startup and context.trace.is_of_amd:
        return (
            "Keep the process alive from job to job, and show one GPU only (HIP_VISIBLE_DEVICES=0): most of it is HIP "
            "itself, which makes a context and loads code",
        )
    if in_cuda >= _MOST * startup:
        return (
            "Keep the process alive from job to job, show one GPU only (CUDA_VISIBLE_DEVICES=0), and build for this "
            "GPU: most of it is CUDA itself, which makes a context and loads code. From CUDA 11.7, "
            "CUDA_MODULE_LOADING=LAZY loads code when it is needed (the default since 12.2)",
        )
    if not context.program.is_python:
        return (
            "Find out with nsys profile --sample=process-tree, or perf record -g, which functions run: it is host code "
            "before the first launch, or the driver that makes the context, which no call in the trace shows",
        )
    command = f"py-spy record -o start.svg -- {context.trace.how_it_runs}"
    profile = f"Find out with {command} what the program does before the first GPU work"
    if named is None:
        return (f"{profile}; the same command with python -X importtime shows which imports are slow",)
    if _makes_model(context, named):
        return (
            'Build the model on the GPU, with torch.device("cuda"): model = Model(...), instead of '
            "Model(...).to('cuda'); with a checkpoint, build on device \"meta\" and load it to the GPU: "
            f"{named.name} runs on the CPU for {duration(named.covered_ns)}, then uploads "
            f"{size(int(_uploaded(context, named).sum()))} from pageable memory",
            profile,
        )
    return (f"{profile}: {named.name} is what takes the time",)


def _makes_model(context: RuleContext, named: _Covering) -> bool:
    """Whether a model is made on the CPU there, and uploaded."""
    sizes = _uploaded(context, named) if context.program.is_torch else np.zeros(0, np.int64)
    return int(sizes.sum()) >= _MODEL_BYTES and looks_like_a_model(sizes)


def _uploaded(context: RuleContext, covering: _Covering) -> Int:
    """What calls inside this range, on its thread, copy to devices from pageable memory: bytes of each copy."""
    ranges, calls, table = context.trace.ranges, context.calls, context.operations
    rows = np.flatnonzero(
        (table.kind == OpKind.MEMCPY)
        & (table.direction == Direction.HTOD)
        & (table.source == MemoryKind.PAGEABLE)
        & (calls.of_operation >= 0)
    )
    call = calls.of_operation[rows]
    inside = calls.thread[call] == ranges.thread[covering.row]
    inside &= calls.start_ns[call] >= ranges.start_ns[covering.row]
    inside &= calls.start_ns[call] < ranges.end_ns[covering.row]
    sizes: Int = table.bytes[rows[inside]].astype(np.int64)
    return sizes


LATE_START = Rule(
    id="late-start",
    title="The first GPU work comes late",
    group="init",
    check=_late_start,
    needs=("kernels",),
    thresholds=(
        Threshold("startup_ns", 2e9, "ns", "Importing a framework and making a context take one or two seconds."),
    ),
)


_COMPILES = expression(r"cuLink|nvrtc|nvJitLink")
# If the longest call of each process holds so much, it happens once in each.
_ONCE_SHARE = MOST
# What comes after the warm-up pays again if so much of it is initialization.
PAYS_AGAIN = NOTABLE


class _FirstCalls(Struct, frozen=True):
    """Some of the calls, and of the idle pieces between them in which a library sets itself up."""

    rows: Rows  # of ``context.calls``
    pieces: Rows  # of the context's `HostPieces`
    calls_ns: int
    pieces_ns: int
    allocation_ns: int  # of ``calls_ns``
    libraries: tuple[str, ...]  # that set themselves up in the pieces, as far as is known
    processes: int

    @property
    def is_allocation(self) -> bool:
        """Whether allocating and pinning takes most of it."""
        return not len(self.pieces) and 2 * self.allocation_ns > self.calls_ns

    @property
    def total_ns(self) -> int:
        return self.calls_ns + self.pieces_ns


def _lazy_initialization(context: RuleContext) -> Iterator[Match]:
    rows, pieces = setup_calls(context).once, host_pieces(context)
    idle = pieces.of_kind(Idleness.SETUP)
    of_call, of_piece = context.timeline.call_region[rows], pieces.region[idle]
    warm = warm_regions(context)
    messages = np.array([bool(MESSAGE_NAME.search(name)) for name in context.tree.name], bool) & ~warm
    for words, chosen in ((_in_warm_up, warm), (_by_messages, messages), (_others, ~warm & ~messages)):
        part = _part(context, rows[chosen[of_call]], idle[chosen[of_piece]])
        if part.total_ns >= context.least_ns:
            yield words(context, part, _match(context, part))


def _part(context: RuleContext, rows: Rows, pieces: Rows) -> _FirstCalls:
    calls, idle = context.calls, host_pieces(context)
    is_allocation = ~calls.is_first_load[rows] & (calls.kind[rows] != CallClass.INIT)
    threads = unique(np.concatenate((calls.thread[rows], idle.thread[pieces])))
    names = libraries_of(context, idle.intervals(pieces), idle.thread[pieces].tolist()) if len(pieces) else []
    return _FirstCalls(
        rows=rows,
        pieces=pieces,
        calls_ns=int(context.call_ns(rows).sum()),
        pieces_ns=idle.total_ns(pieces),
        allocation_ns=int(context.call_ns(rows)[is_allocation].sum()),
        libraries=tuple(names),
        processes=len(unique(context.trace.process_of_thread[threads])),
    )


def _match(context: RuleContext, part: _FirstCalls) -> Match:
    """What is said of all parts alike; no saving yet."""
    pieces = host_pieces(context)
    lengths = np.concatenate((context.call_ns(part.rows), (pieces.end_ns - pieces.start_ns)[part.pieces]))
    regions: npt.NDArray[np.int64] = np.concatenate(
        (context.timeline.call_region[part.rows], pieces.region[part.pieces])
    )
    between: tuple[Example, ...] = ()
    if len(part.pieces):
        between = examples(context, part.pieces, "sets a library up")
    return Match(
        region=context.place(regions, np.maximum(lengths, 1)),
        title=_title(context, part),
        evidence=_evidence(context, part),
        saving_ns=None,
        advice=(),
        examples=(*context.call_examples(part.rows), *between),
        instances=max(len(part.rows), 1),
    )


def _others(context: RuleContext, part: _FirstCalls, match: Match) -> Match:
    """What the program itself does for the first time."""
    is_runtime = context.program.kind == ProgramKind.DIRECTIVES and not len(part.pieces)
    if option := warm_option(context):
        return _by_option(context, match, option)
    remedy = "init.runtime-start" if is_runtime else "init.allocate-once" if part.is_allocation else "init.warm-up"
    saving_ns = _saving(context, part)
    return replace(
        match,
        saving_ns=saving_ns,
        advice=_runtime_advice(_rest(context, part)) if is_runtime else _lazy_advice(context, part, saving_ns),
        severity="low" if is_runtime else None,
        where=line_of_calls(context, part.rows, context.call_ns(part.rows)),
    ).advising(remedy, warm_up_code(context) if remedy == "init.warm-up" else "", **known(rest=_rest(context, part)))


def _beyond_bar(context: RuleContext, saving_ns: SavingNs) -> str:
    """Why this may save more than the bar shows of initialization; empty where it does not."""
    is_beyond = saving_ns is not None and saving_ns[1] - context.time_ns(Cause.INIT) > MARGIN * context.window_ns
    return ": later work then starts earlier, too" if is_beyond else ""


def _look_at(rest: str, what: str = "") -> str:
    """What comes after the warm-up, and what is said of it."""
    return f"Look at the rest{what}: {analyze(rest)}" if rest else "Record more steps: nothing comes after these"


def _runtime_advice(rest: str) -> tuple[str, ...]:
    """What is left to do about what the program cannot change."""
    look = f"Look at the run without its start ({analyze(rest)})" if rest else "Leave this as it is"
    return (f"{look}: the OpenMP or OpenACC runtime makes these calls itself, once per process",)


def _by_option(context: RuleContext, match: Match, option: WarmOption) -> Match:
    """What falls into the first steps of a program that is told to warm up, in no range of that name."""
    rest = rest_after_steps(context, option.steps)
    return replace(
        match,
        evidence={**match.evidence, "warm_up_option": option.text},
        advice=(
            *((_look_at(rest),) if rest else ()),
            f"{'The' if rest else 'Leave this as it is: the'} program warms up already ({option.text}), and the "
            "recording holds that",
        ),
        severity="note",
    ).advising("init.after-warm-up", **known(rest=rest))


def _in_warm_up(context: RuleContext, part: _FirstCalls, match: Match) -> Match:
    """What lies in regions that are warm-up by name: the program does already what could be advised."""
    share, names = warm_share(context)
    rest = rest_window(context) or _rest(context, part)
    again = _init_share(context, rest_region(context))
    return replace(
        match,
        title=f"in regions named as set-up or warm-up ({percent(share)} of the window), {match.title}",
        evidence={
            **match.evidence,
            "warm_up_of_window_fraction": round(share, 4),
            "warm_up_regions": names[:10],
            "initialization_in_the_rest_fraction": round(again, 4),
        },
        advice=(
            _look_at(rest, ", which pays for such calls, too" if again >= PAYS_AGAIN else ""),
            "The program warms up already",
        ),
        severity="note",
    ).advising("init.after-warm-up", **known(rest=rest))


def _init_share(context: RuleContext, region: int | None) -> float:
    """Of a region's account; 0 where there is no region."""
    time = context.figures.inclusive[region] if region is not None else np.zeros(len(Cause), np.int64)
    return int(time[Cause.INIT]) / max(int(time.sum()), 1)


def _by_messages(context: RuleContext, part: _FirstCalls, match: Match) -> Match:
    """What a message-passing library does inside its own calls."""
    length, process = context.call_ns(part.rows), context.trace.process_of_thread[context.calls.thread[part.rows]]
    longest = [int(length[process == number].max()) for number in unique(process).tolist()]
    regions = unique(context.timeline.call_region[part.rows]).tolist()
    inside = ", ".join(sorted({context.tree.name[region] for region in regions})[:3])
    if sum(longest) >= _ONCE_SHARE * part.calls_ns:
        each = f" of each of {len(longest)} processes" if len(longest) > 1 else ""
        up_to = "up to " if len(longest) > 1 else ""
        call_name = context.call_totals(part.rows)[0][0]
        what, cost_ns = f"the first {call_name}{each} takes {up_to}{duration(max(longest))} inside", max(longest)
    else:
        what, cost_ns = f"{match.title}, inside", part.total_ns
    return replace(
        match,
        region=None,
        title=f"{what} the message-passing library ({inside})",
        evidence={**match.evidence, "longest_of_each_process_ns": longest[:16]},
        saving_ns=_saving(context, part),
        advice=(
            "If you time the program, exchange one message of each size before the clock starts: the library pins its "
            "own buffers and sets itself up at its first messages",
        ),
        severity="low",  # the program cannot change it, and a longer run pays it once
        remedy="init.runtime-start",
        facts=known(rest=_rest(context, part)),
        instances=len(part.rows),
        cost_ns=cost_ns,  # processes run side by side
    )


# Of initialization, calls that make or end a context; the others load code.
_CONTEXT = expression(r"Ctx|Primary|^cuInit|InitDevice|DeviceReset|ThreadExit")


def _done_by(context: RuleContext, rows: Rows) -> str:
    """``load code, allocate or free memory``: what these calls do; of one call ``loads code``."""
    names, is_allocation = context.calls.name[rows], context.calls.kind[rows] == CallClass.ALLOC
    makes_context = context.named(names, lambda name: bool(_CONTEXT.search(cuda_name(name)))) & ~is_allocation
    s = "s" if len(rows) == 1 else ""
    done = (
        ("set" + s + " up the GPU", makes_context),
        ("load" + s + " code", ~makes_context & ~is_allocation),
        (f"allocate{s} or free{s} memory", is_allocation),
    )
    some = [what for what, which in done if which.any()]
    return (", " if is_allocation.any() else " or ").join(some)


def _title(context: RuleContext, part: _FirstCalls) -> str:
    summed = f", summed over {part.processes} processes" if part.processes > 1 else ""
    named, in_bar = ", ".join(context.named_calls(part.rows, 2)), _in_bar(context, part)
    shown = f"; {in_bar}" if in_bar else ""
    is_single = len(part.rows) == 1
    calls = "1 call" if is_single else f"{count(len(part.rows))} calls"
    if not len(part.pieces):
        if is_single:
            name = named.partition(" x ")[2].partition(" ")[0]
            return f"1 {name} {_done_by(context, part.rows)} for {duration(part.total_ns)}{summed}{shown}"
        return f"{calls} that {_done_by(context, part.rows)} take {duration(part.total_ns)}{summed} ({named}{shown})"
    libraries = f"{' and '.join(part.libraries)} {'starts' if len(part.libraries) == 1 else 'start'}"
    who = libraries if part.libraries else "GPU libraries start"
    spent = f", {duration(part.calls_ns)} in {calls} ({named})" if len(part.rows) else ""
    return (
        f"{who} and code loads for {duration(part.total_ns)}, once{summed}{f' ({in_bar})' if in_bar else ''}"
        f": {duration(part.pieces_ns)} of host time in the libraries{spent}"
    )


def _in_bar(context: RuleContext, part: _FirstCalls) -> str:
    """How much of the calls' time the bar shows, where that is the smaller part: the GPU works meanwhile, or what it
    does is not on record. Several processes or GPUs take their time side by side."""
    shown_ns = context.time_ns(Cause.INIT)
    is_side_by_side = part.processes > 1 or len(context.timeline.devices) > 1
    if is_side_by_side or shown_ns >= HALF * part.total_ns or part.total_ns - shown_ns <= MARGIN * context.window_ns:
        return ""
    return f"the bar shows {duration(shown_ns) if shown_ns else 'none'} of it as initialization"


def _saving(context: RuleContext, part: _FirstCalls) -> SavingNs:
    """Without the calls' own time, and without what the host does between them: no more than both take, nor than the
    account has of initialization."""
    if not len(part.pieces):
        return init_saving(context, part.rows, 0.0)
    calls = unique(np.concatenate((part.rows, ending_calls(host_pieces(context), part.pieces))))
    most_ns = min(part.total_ns, context.time_ns(Cause.INIT), context.longest_window_ns)
    _, high = context.saving((Cause.INIT.key,), calls=calls) or (0, most_ns)
    return 0, min(high, most_ns)


def _evidence(context: RuleContext, part: _FirstCalls) -> dict[str, object]:
    rows, length, is_first = part.rows, context.call_ns(part.rows), context.calls.is_first_load[part.rows]
    evidence: dict[str, object] = {}
    if len(rows):
        low = min(device.low_ns for device in context.timeline.devices)
        at = (context.calls.start_ns[rows] - low) / context.longest_window_ns
        order = np.argsort(at, kind="stable")
        half = float(at[order][np.searchsorted(np.cumsum(length[order]), part.calls_ns / 2)])
        first_ns = int(length[is_first].sum())
        evidence = {
            **call_evidence(context, rows),
            "first_launches_ns": first_ns,
            "loading_ns": part.calls_ns - part.allocation_ns - first_ns,
            "allocation_ns": part.allocation_ns,
            "half_is_over_at_fraction": round(max(half, 0.0), 4),
        }
    if len(part.pieces):
        evidence |= {"host_in_libraries_ns": part.pieces_ns, "libraries": list(part.libraries)}
    return {**evidence, "processes": part.processes}


_TIMED = "If you time the program, "


def _lazy_advice(context: RuleContext, part: _FirstCalls, saving_ns: SavingNs) -> tuple[str, ...]:
    rest, later = _rest(context, part), "A longer run pays this once"
    if rest:
        later += f": measure without it ({analyze(rest)})"
    if len(part.pieces):
        who = " and ".join(part.libraries) or "GPU libraries"
        sets = "sets itself" if len(part.libraries) == 1 else "set themselves"
        once = context.program.pick("make one call of each kind", torch="run one step", python="run one step")
        return (
            f"{_TIMED}{once} before the clock starts: {who} {sets} up at the first call",
            "Keep the process alive for the next job, which then does not pay it again",
            f"{_eager(context)} loads the code of all kernels at the start, not at their first launch: this run saves "
            "nothing",
            *_compiling(context, part.rows),
            later,
        )
    if not part.is_allocation:
        return (
            f"{_TIMED}launch each kernel once before the clock starts: its first launch loads its code",
            f"{_eager(context)} loads the code of all kernels at the start instead: this run saves nothing by that",
            *_compiling(context, part.rows),
            later,
        )
    pool = "rmm.reinitialize(pool_allocator=True) before the first data frame: allocations then come from a pool"
    once = f"Allocate and pin once, at the largest size needed{_beyond_bar(context, saving_ns)}"
    return context.program.pick(once, cudf=pool), later


def _eager(context: RuleContext) -> str:
    return "HIP_ENABLE_DEFERRED_LOADING=0" if context.trace.is_of_amd else "CUDA_MODULE_LOADING=EAGER"


def _rest(context: RuleContext, part: _FirstCalls) -> str:
    """Options that leave this start out."""
    pieces, calls = host_pieces(context), context.calls
    end_ns = np.concatenate((calls.end_ns[part.rows], pieces.end_ns[part.pieces]))
    length_ns = np.concatenate((context.call_ns(part.rows), pieces.length_ns[part.pieces]))
    return rest_options(context, end_ns, length_ns)


def _compiling(context: RuleContext, rows: Rows) -> tuple[str, ...]:
    if not any(_COMPILES.search(name) for name, _, _ in context.call_totals(rows)):
        return ()
    return (
        "Code is compiled or linked at run time: build it for this GPU ("
        + context.program.pick("nvcc -arch=native", torch="TORCH_CUDA_ARCH_LIST=8.0")
        + "), or keep what was compiled (CUDA_CACHE_PATH)",
    )


LAZY_INITIALIZATION = Rule(
    id="lazy-initialization",
    title="One-time loading and allocation inside the measured window",
    group="init",
    cause=Cause.INIT,
    check=_lazy_initialization,
    needs=("kernels", "cuda_api"),
)


def _jit_compilation(context: RuleContext) -> Iterator[Match]:
    compiled, tried = compilations(context), autotuning(context)
    if compiled.total_ns >= context.least_ns:
        yield _compiled(context, compiled)
    if tried.is_seen and (kernels := KernelSet(context, tried.rows)).exposed_ns >= context.least_ns:
        yield _tried(kernels, tried)


def _compiled(context: RuleContext, compiled: Compilations) -> Match:
    length = compiled.end_ns - compiled.start_ns
    late_ns = int(length[progress_at(context, compiled.start_ns) >= QUARTER].sum())
    goes_on = late_ns >= QUARTER * compiled.total_ns and len(unique(compiled.calls)) >= MANY
    who = " and ".join(compiled.who)
    times, in_all = (f"{count(compiled.gaps)} times, ", " in all") if goes_on else ("", "")
    low, high = context.saving((Cause.INIT.key,), calls=compiled.calls) or (0, compiled.total_ns)
    longest = np.lexsort((compiled.start_ns, -length))[:3].tolist()
    helpers = counted(compiled.processes, "compiler process", "compiler processes")
    return Match(
        region=context.place(compiled.region, np.maximum(length, 1)),
        title=f"the GPU waits {times}{duration(compiled.total_ns)}{in_all} "
        f"({percent(compiled.total_ns / max(context.window_ns, 1))} of the window) while "
        f"{f'{who} compiles' if len(compiled.who) == 1 else f'{who} compile' if who else 'code is compiled'}",
        evidence={
            "compiling_ns": compiled.total_ns,
            "gaps": compiled.gaps,
            "stretches": len(length),
            "compilers": list(compiled.who),
            "compiler_processes": compiled.processes or None,
            "late_ns": late_ns,
            "calls": context.named_calls(compiled.calls),
        },
        saving_ns=(min(low, compiled.total_ns) if goes_on else 0, min(high, compiled.total_ns)),
        advice=(
            *_jit_advice(context, compiled, "" if goes_on else rest_options(context, compiled.end_ns, length)),
            *([f"{helpers} ran beside it"] if compiled.processes else []),
        ),
        examples=tuple(
            Example(int(compiled.start_ns[row]), int(length[row]), f"{who or 'the host'} compiles") for row in longest
        ),
        instances=compiled.gaps,
        cost_ns=compiled.total_ns,
        where=line_of_calls(context, unique(compiled.calls)),
    ).advising(code=_jit_code(context, compiled.who))


# nvFuser as a program calls it from Python, alone or by way of Thunder; without it TorchScript calls nvFuser.
_FRONT_END = expression(r"^Fusion(?:Cache|Definition)::")
_SERIALIZED = "nvfuser.enable_automatic_serialization()  # nvFuser 0.1.4 on: the next process loads what was compiled"
_SCRIPTED = "torch.jit.set_fusion_strategy([('DYNAMIC', 1)])  # compiles once for all shapes"


def _jit_code(context: RuleContext, who: tuple[str, ...]) -> str:
    """What keeps the code of this compiler."""
    run = common_facts(context.trace, context.program)["program"]
    if "nvFuser" in who and any(map(_FRONT_END.match, context.tree.name)):
        return _SERIALIZED
    if {"torch.compile", "Triton"} & {*who}:
        return f"TORCHINDUCTOR_CACHE_DIR=~/.cache/inductor TRITON_CACHE_DIR=~/.cache/triton {run}"
    return context.program.pick(
        "nvcc -arch=native",
        torch=_SCRIPTED,
        jax="",
        cupy=f"CUPY_CACHE_DIR=~/.cache/cupy {run}",
        numba="@cuda.jit(cache=True)",
        julia="step(sample)  # once for each type, before the clock starts",
        directives="nvc++ -gpu=ccnative",
        python="",
    )


def _jit_advice(context: RuleContext, compiled: Compilations, rest: str) -> tuple[str, ...]:
    """Compile once, keep what was compiled, give it no reason to compile again. ``rest``: the option that shows what
    comes after."""
    program, who = context.program, compiled.who
    by_torch = "torch.compile" in who or "Triton" in who
    once = program.pick(
        "Compile ahead of time for this GPU (nvcc -gencode arch=compute_90,code=sm_90), or keep the cubin that NVRTC "
        "makes and load it in the next run; CUDA_CACHE_PATH keeps only what the driver compiles of PTX",
        jax="Set JAX_COMPILATION_CACHE_DIR=/path, which keeps what was compiled for the next run; with "
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 also what compiles in less than a second",
        cupy="Set CUPY_CACHE_DIR to a disk that stays: it keeps what was compiled for the next run",
        numba="Use @cuda.jit(cache=True), which keeps what was compiled for the next run",
        python="Keep what was compiled for the next run: a cache folder on a disk that stays",
        torch="Keep what was compiled for the next run: TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR on a disk that "
        "stays"
        if by_torch
        else f"Keep the process for several jobs: {who[0] if who else 'the compiler'} compiles its kernels again in "
        "each process",
        julia="Compile once, before the clock starts (a first call of each function and type)",
        directives="Compile for this GPU (-gpu=cc90 with nvc and nvfortran), so that the driver has no PTX to compile",
    )
    again = program.pick(
        "Run each shape once before the clock starts; a new shape or type is compiled again",
        jax="Make one jitted function of them, which compiles once: each operation outside jax.jit is compiled by "
        "itself, and again for each shape, those that make weights, too",
        torch="Run each shape once before the clock starts. New shapes are compiled again: "
        + ("TORCH_LOGS=recompiles says why, torch.compile(dynamic=True) or padding" if by_torch else "padding")
        + " to a few lengths avoids it",
    )
    measure = (f"In a long run it is paid once: {analyze(rest)} shows the rest",) if rest else ()
    return (once, *((again,) if who != ("CuPy",) else ()), *measure)


def _tried(kernels: KernelSet, tried: Autotuning) -> Match:
    names = sorted({kernel_label(name) for name in tried.kernels})
    return kernels.match(
        f"{counted(len(names), 'kernel is', 'kernels are')} tried out (autotuning) with {count(tried.flushes)} flushes "
        f"of the cache in between: {duration(kernels.total_ns)} on the GPU ({', '.join(names[:2])})",
        {
            "flushes": tried.flushes,
            "runs": len(kernels) - tried.flushes,
            "total_ns": kernels.total_ns,
            "kernels": kernels.named(),
        },
        (0, kernels.saving_without(Cause.GPU_COMPUTE)[1]),
        (
            "It happens once for each new key (shape, dtype): keep the result (TRITON_CACHE_AUTOTUNING=1, or "
            "triton.autotune(..., cache_results=True)), or fix the best configuration, once it is known",
            "Keys that hold a length (sequence, batch) are tuned again for each: round it, or leave it out of the key",
        ),
        cost_ns=kernels.total_ns,
    ).advising("gpu_compute.keep-tuning")


JIT_COMPILATION = Rule(
    id="jit-compilation",
    title="Code is compiled while the program runs",
    group="init",
    cause=Cause.INIT,
    check=_jit_compilation,
    needs=("kernels", "cuda_api"),
)


def _allocation(context: RuleContext) -> Iterator[Match]:
    rows = setup_calls(context).steady
    total = int(context.call_ns(rows).sum())
    if len(rows) < MANY or total < context.least_ns:
        return
    held = allocated_in(context, rows)
    memory = f"; {held}" if held else ""
    yield Match(
        region=call_place(context, rows),
        title=f"{count(len(rows))} allocation calls take {duration(total)}, throughout the run: "
        f"{', '.join(context.named_calls(rows, 2))}{memory}",
        evidence={**call_evidence(context, rows), **(held.evidence if held else {})},
        saving_ns=init_saving(context, rows, HALF),
        advice=_allocation_advice(context.program, context.call_totals(rows)[0][0]),
        examples=context.call_examples(rows),
        instances=len(rows),
        cost_ns=total,
    )


def _allocation_advice(program: KnownProgram, call: str) -> tuple[str, ...]:
    """What to do about calls of which ``call`` takes the most time."""
    if "Host" in call:
        loader = ("DataLoader(..., pin_memory=True) keeps pinned buffers by itself",)
        return (
            f"Pin buffers once, before the loop, and use them again: {call} pins or unpins host memory, which takes "
            "far longer than allocating it",
            *program.pick((), torch=loader),
        )
    again = "Allocate before the loop and use the memory again"
    return program.pick(
        (f"{again}, or take it from a pool: cudaMallocAsync and cudaFreeAsync instead of {call}",),
        torch=(
            "Take torch.cuda.empty_cache() out of the loop, and set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
            "where shapes vary: PyTorch's allocator calls cudaMalloc only for memory that it does not hold",
            "Run the largest batch first, so that later ones find their memory there",
        ),
        cudf=("rmm.reinitialize(pool_allocator=True) before the first data frame: allocations then come from a pool",),
        python=(f"{again}: write into arrays that are there (out=), or let a memory pool of the library hold them",),
        directives=(f"{again}: one data region around the loop (enter data, exit data) instead of one in each turn",),
        julia=(f"{again}: write into arrays that are there (.=, mul!)",),
    )


ALLOCATION = Rule(
    id="allocation",
    title="Memory is allocated again and again",
    group="init",
    cause=Cause.INIT,
    check=_allocation,
    needs=("kernels", "cuda_api"),
)
