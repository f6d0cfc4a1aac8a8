"""Loading, compiling, first allocations, and libraries that set themselves up, after the first GPU work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import Rows, RuleContext, SavingNs
from boundby.evidence.host_idleness import Idleness, ending_calls, examples, host_pieces
from boundby.evidence.initialization import (
    WarmOption,
    call_evidence,
    init_saving,
    libraries_of,
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
from boundby.model.arrays import unique
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.scale import MOST, NOTABLE
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.builtin._telling import known, rest_options
from boundby.rules.rule import Match, Rule
from boundby.trace.program import ProgramKind
from boundby.trace.vocabulary.cuda import CallClass, classify_call

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


def _check(context: RuleContext) -> Iterator[Match]:
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
    return replace(
        match,
        saving_ns=_saving(context, part),
        advice=_RUNTIME if is_runtime else _advice(context, part),
        severity="low" if is_runtime else None,
        where=line_of_calls(context, part.rows, context.call_ns(part.rows)),
    ).advising(remedy, warm_up_code(context) if remedy == "init.warm-up" else "", **known(rest=_rest(context, part)))


_RUNTIME = (
    "Leave this as it is: the OpenMP or OpenACC runtime makes these calls itself, at its first use of the device and "
    "once per process, and a longer run pays it only once",
)


def _look_at(rest: str, what: str = "") -> str:
    """What comes after the warm-up, and what is said of it."""
    return f"Look at the rest{what}: boundby analyze {rest}" if rest else "Record more steps: nothing comes after these"


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
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return replace(
        match,
        title=f"regions named as set-up or warm-up ({shown}) take {percent(share)} of the window: {match.title}",
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
        many = f" in each of {len(longest)} processes, {duration(sum(longest))} in all," if len(longest) > 1 else ""
        call_name = context.call_totals(part.rows)[0][0]
        what, where, cost_ns = (
            f"the first {call_name} takes {duration(max(longest))}{many} once, inside",
            "",
            max(longest),
        )
    else:
        what, where, cost_ns = f"{match.title}, inside", "", part.total_ns
    return replace(
        match,
        region=None,
        title=f"{what} the message-passing library ({inside}){where}",
        evidence={**match.evidence, "longest_of_each_process_ns": longest[:16]},
        saving_ns=_saving(context, part),
        advice=(
            "Exchange one message of each size before the measured part, or leave the start out of the analysis: the "
            "library pins its own buffers and sets itself up at its first messages. The run is no shorter for either",
        ),
        severity="low",  # the program cannot change it, and a longer run pays it once
        remedy="init.runtime-start",
        facts=known(rest=_rest(context, part)),
        instances=len(part.rows),
        cost_ns=cost_ns,  # processes run side by side
    )


_DOES = {CallClass.LAUNCH: "loads code", CallClass.ALLOC: "allocates or frees memory"}


def _title(context: RuleContext, part: _FirstCalls) -> str:
    summed = f", summed over {part.processes} processes" if part.processes > 1 else ""
    named = ", ".join(context.named_calls(part.rows, 2))
    is_single = len(part.rows) == 1
    calls = "1 call" if is_single else f"{count(len(part.rows))} calls"
    if not len(part.pieces):
        if is_single:
            name = named.partition(" x ")[2].partition(" ")[0]
            does = _DOES.get(classify_call(name), "loads code or allocates memory")
            return f"1 {name} {does} for {duration(part.total_ns)}{summed}"
        return f"{calls} that load code or allocate memory take {duration(part.total_ns)}{summed} ({named})"
    who = f"{' and '.join(part.libraries)} {'starts' if len(part.libraries) == 1 else 'start'}"
    spent = f", {duration(part.calls_ns)} in {calls} ({named})" if len(part.rows) else ""
    return (
        f"{who if part.libraries else 'a library starts'} and code loads for {duration(part.total_ns)}, once{summed}: "
        f"{duration(part.pieces_ns)} of host time in the libraries{spent}"
    )


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


def _advice(context: RuleContext, part: _FirstCalls) -> tuple[str, ...]:
    rest, later = _rest(context, part), "A longer run pays this once"
    if rest:
        later += f": measure without it (boundby analyze {rest})"
    if len(part.pieces):
        who = " and ".join(part.libraries) or "the library"
        sets = "sets itself" if len(part.libraries) < 2 else "set themselves"
        return (
            "Create the handles and make one call of each kind before the measured part, and keep the process alive "
            f"for the next job: {who} {sets} up at the first call",
            f"{_eager(context)} loads the code of all kernels at the start, not at their first launch: the run is no "
            "shorter",
            *_compiling(context, part.rows),
            later,
        )
    if not part.is_allocation:
        return (
            "Launch each kernel once before the measured part: its first launch loads its code; "
            f"{_eager(context)} loads all of it at the start instead. Either way the run is no shorter",
            *_compiling(context, part.rows),
            later,
        )
    pool = "rmm.reinitialize(pool_allocator=True) before the first data frame: allocations then come from a pool"
    once = "Allocate and pin once, before the measured part, at the largest size that will be needed"
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


RULE = Rule(
    id="lazy-initialization",
    title="One-time loading and allocation inside the measured window",
    group="init",
    cause=Cause.INIT,
    check=_check,
    needs=("kernels", "cuda_api"),
)
