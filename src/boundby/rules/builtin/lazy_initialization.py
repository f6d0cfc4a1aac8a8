"""Loading, compiling, first allocations, and libraries that set themselves up, after the first GPU work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.attribution.windows import step_region
from boundby.evidence.collectives import MESSAGE_NAME
from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.host_idleness import SETUP, examples, host_pieces
from boundby.evidence.initialization import (
    call_evidence,
    init_saving,
    rest_window,
    setup_calls,
    warm_regions,
    warm_share,
)
from boundby.evidence.library_starts import libraries_of
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule
from boundby.trace.vocabulary.cuda import CallClass

Int = npt.NDArray[np.int64]

_COMPILES = re.compile(r"cuLink|nvrtc|nvJitLink")
# If the longest call of each process holds so much, it happens once in each.
_ONCE_SHARE = 0.8


@dataclass(frozen=True)
class _Part:
    """Some of the calls, and of the idle pieces between them in which a library sets itself up."""

    rows: Rows  # of ``timeline.calls``
    pieces: Rows  # of the context's `HostPieces`
    calls_ns: int
    pieces_ns: int
    libraries: tuple[str, ...]  # that set themselves up in the pieces, as far as is known

    @property
    def total_ns(self) -> int:
        return self.calls_ns + self.pieces_ns


def _check(context: RuleContext) -> Iterator[Match]:
    rows, pieces = setup_calls(context).once, host_pieces(context)
    idle = pieces.of_kind(SETUP)
    of_call, of_piece = _regions_of_calls(context, rows), pieces.region[idle]
    warm = warm_regions(context)
    tree = context.tree
    messages = np.array([bool(MESSAGE_NAME.search(name)) for name in tree.name], bool) & ~warm
    for make, chosen in ((_in_warm_up, warm), (_by_messages, messages), (_others, ~warm & ~messages)):
        part = _part(context, rows[chosen[of_call]], idle[chosen[of_piece]])
        if part.total_ns >= context.least_ns:
            yield make(context, part)


def _part(context: RuleContext, rows: Rows, pieces: Rows) -> _Part:
    calls = context.calls
    length = (calls.end_ns - calls.start_ns)[rows]
    idle = host_pieces(context)
    threads = np.unique(idle.thread[pieces]).tolist()
    names = libraries_of(context, idle.intervals(pieces), threads) if len(pieces) else []
    return _Part(rows, pieces, int(length.sum()), idle.total_ns(pieces), tuple(names))


def _regions_of_calls(context: RuleContext, rows: Rows) -> Int:
    calls, ownership = context.calls, context.timeline.ownership
    region = np.zeros(len(rows), np.int64)
    for thread in np.unique(calls.thread[rows]).tolist():
        mine = calls.thread[rows] == thread
        region[mine] = ownership.at(thread, calls.start_ns[rows[mine]])
    return region


def _place(context: RuleContext, part: _Part) -> int:
    calls, pieces = context.calls, host_pieces(context)
    weights = ((calls.end_ns - calls.start_ns)[part.rows], (pieces.end_ns - pieces.start_ns)[part.pieces])
    regions = np.concatenate((_regions_of_calls(context, part.rows), pieces.region[part.pieces]))
    return context.place(regions, np.maximum(np.concatenate(weights), 1))


def _others(context: RuleContext, part: _Part) -> Match:
    """What the program itself does for the first time."""
    is_runtime = context.framework == "openmp" and not len(part.pieces)
    return Match(
        region=_place(context, part),
        title=_title(context, part),
        evidence=_evidence(context, part),
        saving_ns=_saving(context, part),
        advice=_RUNTIME if is_runtime else _advice(context, part),
        examples=_examples(context, part),
        severity="low" if is_runtime else None,
        instances=max(len(part.rows), 1),
    )


_RUNTIME = (
    "The OpenMP or OpenACC runtime makes these calls itself, at its first use of the device and once per process: the "
    "program can hardly change it, and a longer run pays it no more often",
)


def _in_warm_up(context: RuleContext, part: _Part) -> Match:
    """What lies in regions that are warm-up by name: the program does already what could be advised."""
    share, names = warm_share(context)
    rest = rest_window(context)
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return Match(
        region=_place(context, part),
        title=f"{percent(share)} of the window is set-up and warm-up by name ({shown}): {_title(context, part)}",
        evidence={
            **_evidence(context, part),
            "warm_up_of_window_fraction": round(share, 4),
            "warm_up_regions": names[:10],
        },
        saving_ns=None,
        advice=(
            "The program warms up already, so this costs later steps nothing. Look at the rest: boundby analyze "
            + (f"--window {rest}" if rest else "--window START:END, or --skip-first K"),
        ),
        examples=_examples(context, part),
        severity="note",
        instances=max(len(part.rows), 1),
    )


def _by_messages(context: RuleContext, part: _Part) -> Match:
    """What a message-passing library does inside its own calls."""
    calls, trace = context.calls, context.trace
    tree = context.tree
    length = (calls.end_ns - calls.start_ns)[part.rows]
    process = trace.process_of_thread[calls.thread[part.rows]]
    longest = [int(length[process == one].max()) for one in np.unique(process).tolist()]
    names = sorted({tree.name[region] for region in np.unique(_regions_of_calls(context, part.rows)).tolist()})
    one = context.named_calls(part.rows, 1)[0].partition(":")[0]
    if sum(longest) >= _ONCE_SHARE * part.calls_ns:
        many = f" in each of {len(longest)} processes, {duration(sum(longest))} in all," if len(longest) > 1 else ""
        took = duration(max(longest))
        title = f"the first {one} takes {took}{many} once, inside the message-passing library ({', '.join(names[:3])})"
    else:
        title = f"inside the message-passing library ({', '.join(names[:3])}): {_title(context, part)}"
    return Match(
        region=None,
        title=title,
        evidence={**_evidence(context, part), "longest_of_each_process_ns": longest[:16]},
        saving_ns=_saving(context, part),
        advice=(
            "The library pins its own buffers and sets itself up at its first messages: exchange one message of each "
            "size before what counts, or leave the start out of the picture (--window START:END)",
        ),
        examples=_examples(context, part),
        severity="low",  # the program cannot change it, and a longer run pays it once
        instances=len(part.rows),
    )


def _title(context: RuleContext, part: _Part) -> str:
    over = _processes(context, part)
    summed = f", summed over {over} processes" if over > 1 else ""
    named = ", ".join(context.named_calls(part.rows, 2))
    calls = "1 call" if len(part.rows) == 1 else f"{count(len(part.rows))} calls"
    if not len(part.pieces):
        takes = "takes" if len(part.rows) == 1 else "take"
        told = "loads code, allocates or pins" if len(part.rows) == 1 else "load code, allocate or pin"
        return f"{calls} that {told} {takes} {duration(part.total_ns)}{summed}: {named}"
    between = f"{duration(part.pieces_ns)} of the host in the libraries"
    spent = f"{duration(part.calls_ns)} in {calls} ({named})" if len(part.rows) else ""
    who = _who(part)
    return f"{who} and code loads, {duration(part.total_ns)} once{summed}: {between}{f', {spent}' if spent else ''}"


def _who(part: _Part) -> str:
    names = " and ".join(part.libraries)
    return f"{names} {'starts' if len(part.libraries) == 1 else 'start'}" if names else "a library starts"


def _processes(context: RuleContext, part: _Part) -> int:
    trace = context.trace
    threads = (context.calls.thread[part.rows], host_pieces(context).thread[part.pieces])
    return len({trace.threads[thread].process for thread in np.unique(np.concatenate(threads)).tolist()})


def _saving(context: RuleContext, part: _Part) -> tuple[int, int]:
    """Without the calls' own time, and without what the host does between them; no more than both take."""
    low, high = init_saving(context, part.rows, 0.0) if len(part.rows) else (0, 0)
    if not len(part.pieces):
        return low, high
    pieces = host_pieces(context)
    mask = np.zeros(len(context.calls), bool)
    ended = pieces.call[part.pieces]
    mask[ended[ended >= 0]] = True
    causes = [cause.key for cause in (Cause.CPU, Cause.HOST_BLOCKED) if (pieces.cause[part.pieces] == cause).any()]
    found = context.saving(causes, calls=mask) or (0, part.pieces_ns)
    return low, min(high + min(found[1], part.pieces_ns), part.total_ns, context.longest_window_ns)


def _evidence(context: RuleContext, part: _Part) -> dict[str, object]:
    calls, rows = context.calls, part.rows
    length = (calls.end_ns - calls.start_ns)[rows]
    first = calls.is_first_load[rows]
    loads = first | (calls.kind[rows] == CallClass.INIT)
    evidence: dict[str, object] = {}
    if len(rows):
        low = min(device.low_ns for device in context.timeline.devices)
        at = (calls.start_ns[rows] - low) / context.longest_window_ns
        order = np.argsort(at, kind="stable")
        half = float(at[order][np.searchsorted(np.cumsum(length[order]), part.calls_ns / 2)])
        evidence = {
            **call_evidence(context, rows),
            "first_launches_ns": int(length[first].sum()),
            "loading_ns": int(length[loads & ~first].sum()),
            "allocation_ns": int(length[~loads].sum()),
            "half_is_over_at_fraction": round(max(half, 0.0), 4),
        }
    if len(part.pieces):
        evidence |= {"host_in_libraries_ns": part.pieces_ns, "libraries": list(part.libraries)}
    return {**evidence, "processes": _processes(context, part)}


def _examples(context: RuleContext, part: _Part) -> tuple[Example, ...]:
    between = examples(context, host_pieces(context), part.pieces, "sets a library up") if len(part.pieces) else ()
    return (*context.call_examples(part.rows), *between)


def _advice(context: RuleContext, part: _Part) -> tuple[str, ...]:
    trace, regions = context.trace, context.tree
    skip = "--skip-first 1, or " if len(trace.ranges) and step_region(trace, regions) is not None else ""
    later = f"A run of many steps pays this once: measure without it (boundby analyze {skip}--window START:END)"
    evidence = _evidence(context, part)
    if len(part.pieces):
        who = " and ".join(part.libraries) or "The library"
        sets = "sets itself" if len(part.libraries) < 2 else "set themselves"
        return (
            f"{who} {sets} up at the first call: create the handles and run one step of each shape before what counts "
            "(a warm-up), and keep the process alive for the next job",
            "CUDA_MODULE_LOADING=EAGER loads the code of all kernels at the start, not at their first launch",
            *_compiling(context, part.rows),
            later,
        )
    allocation = evidence["allocation_ns"]
    is_loading = isinstance(allocation, int) and 2 * allocation <= part.calls_ns
    if not is_loading and context.framework == "cudf":
        return (
            "rmm.reinitialize(pool_allocator=True) before the first frame: allocations then come from a pool",
            later,
        )
    if not is_loading:
        return ("Allocate and pin once, before what counts, at the largest size that will come", later)
    return (
        "Run one step of each shape before what counts: the first launch of a kernel loads its code; "
        "CUDA_MODULE_LOADING=EAGER loads all of it at the start instead",
        *_compiling(context, part.rows),
        later,
    )


def _compiling(context: RuleContext, rows: Rows) -> tuple[str, ...]:
    names = context.trace.names
    called = {names[name] for name in np.unique(context.calls.name[rows]).tolist()}
    if not any(_COMPILES.search(name) for name in called):
        return ()
    return (
        "Code is compiled or linked at run time: build it for this GPU (nvcc -gencode arch=compute_80,"
        "code=sm_80; TORCH_CUDA_ARCH_LIST=8.0), or keep what was compiled (CUDA_CACHE_PATH)",
    )


RULE = Rule(
    id="lazy-initialization",
    title="Loading and first allocations in between",
    group="init",
    cause=Cause.INIT,
    check=_check,
    needs=("kernels", "cuda_api"),
)
