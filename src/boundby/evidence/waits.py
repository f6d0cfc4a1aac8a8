"""Every call in which the host waited for the device, and the one rule that speaks of it.

A wait belongs to the most specific rule: that of the operator it was made by, else of what it is (an allocation that
stalls, a value read back, a pageable copy), else of the call itself. No rule speaks of a wait that a copy's own length
makes, or that a release of memory right after it would make instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np
from msgspec import Struct

from boundby.evidence.context import Bool, CannotCheckError, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.operators import has_sources, source_of, sources_of
from boundby.model.arrays import (
    as_rows,
    factorize,
    grouped,
    is_any,
    is_in,
    largest,
    narrow,
    pick,
    places,
    ranked,
    shared,
    unique,
)
from boundby.model.intervals import NOTHING, CoveredTime, any_of
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HALF, HANDFUL, HARDLY, LIST, PLENTY, QUARTER, SMALL
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.stats.device_figures import SMALL_COPY_BYTES
from boundby.trace.stacks import StackSource
from boundby.trace.tables import Direction, OpKind
from boundby.trace.vocabulary.cuda import CallClass, cuda_name, plain_name

# PyTorch operators that make the host wait, each with why it does and what to write instead.
#
# The page of the rule `sync-operator` shows the rewrites as code.


class OperatorSync(Struct, frozen=True):
    """One way in which an operator waits. ``operators`` are its names in a trace."""

    key: str
    label: str  # as people write it
    operators: tuple[str, ...]
    because: str  # completes "waits for the GPU: "
    advice: tuple[str, ...]
    code: str


NONZERO = OperatorSync(
    "nonzero",
    "torch.nonzero",
    ("aten::nonzero", "aten::nonzero_numpy", "aten::argwhere"),
    "the host has to know how many elements there are",
    (
        "Keep the shape: compute on all elements and choose with torch.where(mask, x, 0), or multiply by the mask, "
        "instead of gathering with nonzero's indices",
        "Careful: a sparse mask can be worth its sync, if few elements are left and what follows is costly",
    ),
    "x = torch.where(mask, x, 0)  # all elements stay: no nonzero()",
)
UNIQUE = OperatorSync(
    "unique",
    "torch.unique",
    ("aten::_unique2", "aten::_unique", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive"),
    "the host has to know how many distinct values there are",
    (
        "Count over a fixed number of classes instead of unique: x.flatten().sort().values, then "
        "torch.searchsorted(sorted, torch.arange(classes + 1, device=x.device)).diff()",
        "Work on all classes at once (scatter_add, one_hot) instead of looping over the labels that are present",
    ),
    "counts = torch.zeros(classes, device=x.device).scatter_add_(0, x, torch.ones_like(x, dtype=torch.float))",
)
BOOLEAN_INDEX = OperatorSync(
    "boolean-index",
    "a boolean index",
    (
        "aten::index",
        "aten::index_put_",
        "aten::_index_put_impl_",
        "aten::index_put",
        "aten::masked_select",
        "aten::masked_scatter_",
    ),
    "the host has to know how many elements the mask lets through",
    (
        "Write torch.where(mask, x, 0) for x[mask] in sums and means, x.masked_fill_(mask, v) for x[mask] = v, and "
        "ignore_index= in losses: the shape then stays known",
        "Careful: a sparse mask can be worth its sync, if few elements are left and what follows is costly",
    ),
    "total = torch.where(mask, x, 0).sum()  # in place of x[mask].sum()",
)
ITEM = OperatorSync(
    "item",
    "tensor.item()",
    ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"),
    "a value is read back to the host",
    (
        "Keep the value on the device: add up loss.detach() there and read it once every N steps, after the step",
        "Replace `if tensor:` and float(tensor) by torch.where or arithmetic on the device; print and log rarely",
    ),
    "total += loss.detach()  # stays on the GPU, in place of loss.item()",
)
EQUAL = OperatorSync(
    "equal",
    "torch.equal",
    ("aten::equal", "aten::allclose"),
    "its result is a Python bool",
    ("Compare on the device with (a == b).all() and keep the result there, or compare only in tests",),
    "is_equal = (a == b).all()  # stays on the GPU, in place of torch.equal",
)
REPEAT = OperatorSync(
    "repeat-interleave",
    "torch.repeat_interleave",
    ("aten::repeat_interleave",),
    "the host has to know how long the result is",
    ("Give the length: torch.repeat_interleave(x, repeats, output_size=n)",),
    "torch.repeat_interleave(x, repeats, output_size=n)",
)
BINCOUNT = OperatorSync(
    "bincount",
    "torch.bincount",
    ("aten::bincount", "aten::_bincount", "aten::histogram"),
    "the host has to know the largest value (minlength does not help)",
    ("Count into an array of fixed size: torch.zeros(classes, device=d).scatter_add_(0, x, torch.ones_like(x, ...))",),
    "torch.zeros(classes, device=x.device).scatter_add_(0, x, torch.ones_like(x, dtype=torch.float))",
)
LINALG = OperatorSync(
    "linalg",
    "torch.linalg",
    (
        *(f"aten::linalg_{name}" for name in ("inv", "solve", "cholesky", "lu_factor", "ldl_factor")),
        "aten::inverse",
        "aten::_linalg_check_errors",
    ),
    "the host checks whether it succeeded",
    ("Use the unchecked variant and test its info on the device: torch.linalg.inv_ex, solve_ex, cholesky_ex",),
    "inverse, info = torch.linalg.inv_ex(a)  # check info after the step",
)
TO_HOST = OperatorSync(
    "copy-to-host",
    ".cpu() / .to(host)",
    ("aten::to", "aten::_to_copy", "aten::copy_"),
    "data is copied to the host, which waits until it is there",
    (
        "Copy only what the host needs, after the step and not in it; for larger results use a pinned buffer with "
        "non_blocking=True and wait for an event when the data are needed",
    ),
    "host.copy_(x, non_blocking=True)  # host = torch.empty(x.shape, pin_memory=True), made once",
)
TO_DEVICE = OperatorSync(
    "copy-to-device",
    ".to(device) from pageable memory",
    ("aten::to", "aten::_to_copy", "aten::copy_"),
    "memory that is not pinned is copied while the host stands by",
    (
        "Pin the source and do not block: DataLoader(pin_memory=True) and x.to(device, non_blocking=True)",
        "Create constants on the device, torch.zeros(n, device=d), and others once, outside the loop",
    ),
    'DataLoader(dataset, pin_memory=True)\nx = x.to("cuda", non_blocking=True)',
)

# In the order in which `sync-operator` teaches them.
EVERY = (NONZERO, UNIQUE, BOOLEAN_INDEX, ITEM, TO_HOST, TO_DEVICE, REPEAT, BINCOUNT, EQUAL, LINALG)
_NAMED = tuple(one for one in EVERY if one is not TO_HOST and one is not TO_DEVICE)
_BY_NAME = {name: one for one in _NAMED for name in one.operators}
_COPIES = frozenset(TO_HOST.operators)


def operator_sync(chain: Sequence[str], *, is_read: bool, is_fed: bool) -> OperatorSync | None:
    """Which way of waiting a chain of operators (innermost first) is; the outermost that is known decides.

    ``is_read``, ``is_fed``: the wait is about a copy to, or from, the host.
    """
    for name in reversed(chain):
        if name in _COPIES:
            if is_read or is_fed:
                return TO_HOST if is_read else TO_DEVICE
            continue
        wait = _BY_NAME.get(name)
        if wait is BOOLEAN_INDEX and is_fed:  # not a mask: an index that lies on the host
            return TO_DEVICE
        if wait is not None:
            return wait
    return None


# Calls that wait for the device whenever it is busy: without the wait before them, they would wait instead.
_FREES = expression(r"^cu(?:da)?(?:Free(?:Host|Array)?|MemFree(?:Host)?|HostUnregister|MemHostUnregister|DeviceReset)$")
# A call that was held for a copy waited, if it was held this part of its time by what came before the copy. Else the
# copy itself is the matter, and rules on copies speak of it.
AHEAD_SHARE = HALF
# Of the groups of one rule at most so many are replayed, largest first: the rest are small beside them.
MOST_GROUPS = LIST
# Waits share what they cost: without its neighbours one may save more than its own time. Ask from this part of the
# least saving worth telling on.
ASK_SHARE = QUARTER
# Kinds of waits that are tried for a chain of them, and the longest trace: each asks for replays.
MOST_KINDS = HANDFUL
MOST_CALLS = 3_000_000
MOST_EXAMPLES = A_FEW_LINES
MOST_LOOKED_AT = PLENTY  # waits of a group whose lines are looked up


class WaitKind(IntEnum):
    """What a wait is, and so which rule speaks of it."""

    OPERATOR = 0  # made by an operator of PyTorch
    ALLOCATION = 1  # memory is allocated or released
    READBACK = 2  # for a small value
    PAGEABLE = 3  # before a copy of pageable memory
    CALL = 4  # nothing more special
    COPY = 5  # for the copy's own length: no rule on waits
    TAKEN_OVER = 6  # a release right after it would wait instead: no rule


#: Waits that no rule on waits speaks of.
UNTOLD = (WaitKind.COPY, WaitKind.TAKEN_OVER)


class WaitTable(Struct, frozen=True):
    """Columns of waits, in order of their calls. ``call`` is a row of ``context.calls``."""

    call: Int
    idle_ns: Int  # of the account's sync time, what this wait is to blame for, on all devices
    held_ns: Int  # the host was held, by waits or by a copy that it had to stand by
    incident: Int  # the same of waits for one thing: a copy and the sync right after it
    kind: Int  # WaitKind
    region: Int  # the innermost region that is the user's, not an operator
    operator: Int  # that makes it, among EVERY; NOTHING: none
    copied: Int  # the copy that it makes, or that was launched just before it; NOTHING: none

    def of_kind(self, kind: WaitKind) -> Rows:
        return np.flatnonzero(self.kind == kind)


class WaitGroup(Struct, frozen=True):
    """Alike waits in one place: ``rows`` of `WaitTable`."""

    key: str
    region: int
    rows: Rows
    incidents: int
    idle_ns: int
    held_ns: int
    processes: int

    @property
    def costs(self) -> str:
        """``1,200 times, 53.2 ms in all``, or ``in 2 processes together``."""
        if self.incidents == 1:
            return f"once, for {duration(self.held_ns)}"
        together = "all" if self.processes < 2 else f"{self.processes} processes together"
        return f"{self.incidents:,} times, {duration(self.held_ns)} in {together}"


@once
def waits_of(context: RuleContext) -> WaitTable:
    """All waits whose call lies in the window."""
    if not len(context.calls):
        raise CannotCheckError("the trace holds no CUDA API calls")
    every, start_ns = context.timeline.waits, context.calls.start_ns[context.timeline.waits.rows]
    _, held_ns, idle_ns = every.ns
    rows = as_rows(((held_ns > 0) | (idle_ns > 0)) & context.in_windows(start_ns))
    call, (blocked_ns, held_ns, idle_ns) = every.rows[rows], every.ns[:, rows]
    kind, incident, operator, copied = _kinds(context, call, blocked_ns, held_ns)
    high_ns = max((device.high_ns for device in context.timeline.devices), default=0)
    beyond_ns = np.maximum(context.calls.end_ns[call] - high_ns, 0) if context.is_cut else 0  # it waits to its end
    blocked_ns, held_ns = np.maximum(blocked_ns - beyond_ns, 0), np.maximum(held_ns - beyond_ns, 0)
    return WaitTable(
        call=(rows_of_calls := narrow(call)),
        idle_ns=narrow(idle_ns),
        held_ns=narrow(held_ns),
        incident=shared(narrow(incident), rows_of_calls),
        kind=kind.astype(np.int8),
        region=context.operators.region[call],
        operator=narrow(operator),
        copied=narrow(copied),
    )


def _kinds(context: RuleContext, call: Rows, blocked: Int, held: Int) -> tuple[Int, Int, Int, Int]:
    """What each wait is, what it belongs to, the operator that makes it, and its copy. Shapes (waits,)."""
    calls, table, operators = context.calls, context.operations, context.operators
    is_sync, is_allocation = calls.kind[call] == CallClass.SYNC, calls.kind[call] == CallClass.ALLOC
    # What a sync waits for is most often what was launched just before it: a copy to the host is what it is there for.
    about = np.where(is_sync, _last_launch(context, call), call)
    copied = _copy_of(context, about)
    direction, is_pageable = pick(table.direction, copied, NOTHING), pick(table.is_pageable, copied, False)
    reads, feeds = direction == Direction.DTOH, direction == Direction.HTOD
    small = reads & (pick(table.bytes, copied, 0) <= SMALL_COPY_BYTES)
    kind = np.full(len(call), WaitKind.CALL, np.int64)
    kind[is_pageable & ((calls.kind[call] == CallClass.LAUNCH) | (is_sync & feeds))] = WaitKind.PAGEABLE
    kind[small] = WaitKind.READBACK
    kind[is_allocation] = WaitKind.ALLOCATION
    incident = call.copy()
    copying = np.flatnonzero(is_sync & (reads | feeds))
    waited_for = is_in(about[copying], call)
    incident[copying[waited_for]] = about[copying[waited_for]]
    is_copy = (reads | feeds) & ~small
    if is_copy.any():
        until = np.clip(pick(table.start_ns, copied, 0), calls.start_ns[call], calls.end_ns[call])
        ahead = _busy(context).within(calls.start_ns[call], until)
        of_incident = ranked(incident)[1]
        waited = np.bincount(of_incident, np.where(is_copy, ahead, blocked), minlength=1)
        stood = np.bincount(of_incident, held, minlength=1)
        is_copy &= (waited < AHEAD_SHARE * stood)[of_incident]
    made_by = np.full(len(call), NOTHING, np.int64)
    inside = np.flatnonzero((operators.of_range[call] >= 0) & ~is_allocation)
    cases, case_of = factorize(operators.chain_of_range[operators.of_range[call[inside]]], reads[inside], feeds[inside])
    sample = np.zeros(len(cases), np.int64)
    sample[case_of] = inside  # any one of each case: they are alike
    for case, row in enumerate(sample.tolist()):
        operator = operator_sync(operators.chain(int(call[row])), is_read=bool(reads[row]), is_fed=bool(feeds[row]))
        if operator is not None:
            alike = inside[case_of == case] if len(cases) > 1 else inside
            kind[alike] = WaitKind.OPERATOR
            is_copy[alike] &= operator in (TO_HOST, TO_DEVICE)
            made_by[alike] = EVERY.index(operator)
    kind[is_copy] = WaitKind.COPY
    kind[_is_taken_over(context)[call] & ~is_allocation] = WaitKind.TAKEN_OVER
    return kind, incident, made_by, copied


def _busy(context: RuleContext) -> CoveredTime:
    """When at least one device works."""
    return CoveredTime(any_of(device.busy for device in context.timeline.devices))


def _copy_of(context: RuleContext, call: Rows) -> Int:
    """For each of these calls the operation that it copies with; NOTHING where it copies nothing."""
    of_operation = context.calls.of_operation
    copies = np.flatnonzero((context.operations.kind == OpKind.MEMCPY) & (of_operation >= 0))
    if not len(copies):
        return np.full(len(call), NOTHING, np.int64)
    copy_of = np.full(len(context.calls), NOTHING, np.int64)
    copy_of[of_operation[copies]] = copies
    return pick(copy_of, call, NOTHING)


def _is_taken_over(context: RuleContext) -> Bool:
    """Calls after which their thread frees memory before it launches anything."""
    calls, count = context.calls, len(context.calls)
    frees = context.named(calls.name, lambda name: _FREES.match(cuda_name(name)))
    if not frees.any():
        return frees
    decides = frees | is_any(calls.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY))
    at_or_after = np.minimum.accumulate(np.where(decides, np.arange(count), count)[::-1])[::-1]
    following = np.append(at_or_after, count)[1:]
    is_same_thread = np.append(calls.thread, -1)[following] == calls.thread
    taken_over: Bool = is_same_thread & np.append(frees, False)[following]
    return taken_over


def _last_launch(context: RuleContext, call: Rows) -> Int:
    """For each of these calls the one before it on its thread that launched something; NOTHING without one."""
    calls = context.calls
    is_launch = np.append(
        is_any(calls.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY)), False
    )  # none before the first
    last = np.where(is_launch[call - 1], call - 1, NOTHING)  # most often the very last call
    if len(far := np.flatnonzero(last == NOTHING)):
        launches = np.flatnonzero(is_launch)
        last[far] = np.append(launches, NOTHING)[places(launches, call[far]) - 1]
    is_same_thread = pick(calls.thread, last, NOTHING) == calls.thread[call]  # calls are sorted by thread
    return np.where(is_same_thread, last, NOTHING)


def groups(context: RuleContext, rows: Rows, keys: Sequence[str], of_row: Rows) -> list[WaitGroup]:
    """Waits of one key (``keys``, and which of these each row has) in one region that are worth asking about, largest
    first; what is scattered over small regions comes together, in the region that holds it.

    The account shows the gap right after a wait alone. What the host lost of its lead it may pay for later, so the time
    it was held counts as well, where the device was idle after a wait at all.
    """
    waits = waits_of(context)
    weight = np.maximum(waits.idle_ns, waits.held_ns)

    def is_worth(chosen: Rows) -> bool:
        has_gap = waits.idle_ns[chosen].any() or (waits.kind[chosen] == WaitKind.PAGEABLE).any()
        return bool(has_gap) and int(weight[chosen].sum()) >= ASK_SHARE * context.least_ns

    worth: list[tuple[str, int, Rows]] = []
    for key in sorted(set(keys)):
        alike = rows[is_in(of_row, [number for number, name in enumerate(keys) if name == key])]
        regions, of_region = grouped(waits.region[alike])
        by_region = [(region, alike[rows_of]) for region, rows_of in zip(regions.tolist(), of_region, strict=True)]
        worth += [(key, region, inside) for region, inside in by_region if is_worth(inside)]
        rest = np.concatenate([alike[:0], *(inside for _, inside in by_region if not is_worth(inside))])
        if is_worth(rest):
            worth.append((key, context.place(waits.region[rest], weight[rest]), rest))
    worth.sort(key=lambda group: (-int(weight[group[2]].sum()), *group[:2]))
    return [
        WaitGroup(
            key=key,
            region=region,
            rows=chosen,
            incidents=len(unique(waits.incident[chosen])),
            idle_ns=int(waits.idle_ns[chosen].sum()),
            held_ns=int(waits.held_ns[chosen].sum()),
            processes=len(unique(context.trace.process_of_thread[context.calls.thread[waits.call[chosen]]])),
        )
        for key, region, chosen in worth[:MOST_GROUPS]
    ]


@once
def kinds_of_waits(context: RuleContext) -> dict[str, Rows]:
    """Waits (rows of `WaitTable`) that rules speak of, by what they are called: by the operator or the call."""
    return _by_name(context, np.flatnonzero(~is_any(waits_of(context).kind, UNTOLD)))


def untold_waits(context: RuleContext) -> dict[str, Rows]:
    """The other ones, by the same names."""
    return _by_name(context, np.flatnonzero(is_any(waits_of(context).kind, UNTOLD)))


def _by_name(context: RuleContext, rows: Rows) -> dict[str, Rows]:
    waits = waits_of(context)
    kinds, of_row = factorize(waits.operator[rows], context.calls.name[waits.call[rows]])
    names_of = [
        plain_name(context.trace.names[name]) if operator == NOTHING else EVERY[operator].label
        for operator, name in kinds.tolist()
    ]
    names = sorted(set(names_of))
    of_wait = np.array([names.index(name) for name in names_of], np.intp)[of_row]
    return {name: rows[of_wait == number] for number, name in enumerate(names)}


def largest_kinds(context: RuleContext) -> dict[str, Rows]:
    """The `MOST_KINDS` in which the host is held longest, longest first; none of a trace too long for that."""
    if len(context.calls) > MOST_CALLS:
        return {}
    kinds, held_ns = kinds_of_waits(context), waits_of(context).held_ns
    ordered = sorted(kinds, key=lambda name: (-int(held_ns[kinds[name]].sum()), name))
    return {name: kinds[name] for name in ordered[:MOST_KINDS]}


def savings(context: RuleContext, groups: Sequence[WaitGroup]) -> list[tuple[SavingNs, dict[str, object]]]:
    """What a program without the waits of each group would save, and how that is known, for evidence.

    Where one wait goes, the next often waits instead. Waits that save next to nothing alone, but do once all
    others are gone as well, are told with both figures.
    """
    if not groups:
        return []
    waits = waits_of(context)
    every = waits.call[~is_any(waits.kind, (WaitKind.COPY, WaitKind.TAKEN_OVER))]
    alone, others = [], []
    for group in groups:
        of_group = waits.call[group.rows]
        is_other = np.ones(len(context.calls), bool)
        is_other[of_group] = False
        alone.append(of_group)
        others.append(every[is_other[every]])
    # What `wait_chain` will ask comes with them: several are replayed at once, for little more than one.
    soon = [waits.call[rows] for rows in largest_kinds(context).values()]
    saved = context.savings_without_waits(*alone, *others, every, *soon)
    if saved is None:
        return [((0, group.idle_ns), {}) for group in groups]  # the account's
    together = sum(saved[2 * len(groups)])
    is_shifted = any(device.shift.shift_ns for device in context.timeline.devices)
    savings_of: list[tuple[SavingNs, dict[str, object]]] = []
    for group, own, rest in zip(groups, saved, saved[len(groups) :], strict=False):
        last = max(together - sum(rest), 0) // 2
        both = own if own[1] >= context.least_ns else (min(own[0], last), max(own[1], last))
        if is_shifted:
            # How far ahead the host would come hangs on a clock that was corrected: the idle time right after is sure.
            both = min(both[0], group.idle_ns), both[1]
        savings_of.append((both, {"saving_alone_ns": sum(own) // 2, "saving_after_other_waits_ns": last}))
    return savings_of


def evidence(context: RuleContext, group: WaitGroup) -> dict[str, object]:
    """What all findings on waits say of them."""
    waits = waits_of(context)
    by_call = {name: times for name, times, _ in context.call_totals(waits.call[group.rows])}
    return {
        "waits": group.incidents,
        "host_waited_ns": group.held_ns,
        "longest_wait_ns": int(waits.held_ns[group.rows].max(initial=0)),
        "gpu_idle_right_after_ns": group.idle_ns,
        "calls": dict(sorted(by_call.items(), key=lambda item: (-item[1], item[0]))),
    }


def lines(context: RuleContext, group: WaitGroup) -> dict[str, int]:
    """Lines of the program's own Python that these waits were seen at, and how many of them, most first: of the longest
    `MOST_LOOKED_AT`, those whose stack is on record (a sampled one is of few)."""
    waits = waits_of(context)
    trace, calls = context.trace, context.calls
    if not has_sources(trace):
        return {}
    most = len(group.rows) if trace.captured.python_stacks else MOST_LOOKED_AT
    call = waits.call[group.rows[largest(waits.held_ns[group.rows], most, group.rows)]]
    if trace.captured.python_stacks and not len(trace.python_frames):
        stacks, is_seen = trace.backtraces.load(), np.zeros(len(call), bool)
        for thread in unique(calls.thread[call]).tolist():
            rows = np.flatnonzero(calls.thread[call] == thread)
            time = stacks.events.start_ns[stacks.rows(StackSource.PYTHON, thread)]
            is_seen[rows] = places(time, calls.end_ns[call[rows]]) > places(time, calls.start_ns[call[rows]])
        call = call[is_seen]
    looked_at = (line for frames in sources_of(context.timeline, call[:MOST_LOOKED_AT], 1) for line in frames)
    seen = Counter(re.sub(r"^<module> \((.+)\)$", r"\1", line) for line in looked_at)
    return {line: times for line, times in sorted(seen.items(), key=lambda item: (-item[1], item[0])) if ":" in line}


def examples(context: RuleContext, group: WaitGroup) -> tuple[Example, ...]:
    """The waits that cost most, with the operator and the source line where the trace holds them."""
    waits = waits_of(context)
    rows, held_ns = group.rows, waits.held_ns[group.rows]
    if len(rows) > MOST_EXAMPLES:
        rows = rows[held_ns >= np.partition(held_ns, len(rows) - MOST_EXAMPLES)[len(rows) - MOST_EXAMPLES]]
    rows = rows[np.lexsort((rows, -waits.idle_ns[rows], -waits.held_ns[rows]))]
    shown = []
    for row in rows[:MOST_EXAMPLES].tolist():
        call = int(waits.call[row])
        chain = context.operators.chain(call)
        inside = f" in {' < '.join(chain[:3])}" if chain else ""
        source = "".join(f", {line}" for line in source_of(context.timeline, call, 1))
        shown.append(
            Example(
                int(context.calls.start_ns[call]),
                int(context.call_ns(call)),
                f"{context.call_name(call)}{inside}{source}",
            )
        )
    return tuple(shown)


# Links of a chain: each asks for a replay of every kind that is left.
MOST_LINKS = HANDFUL
# A chain ends where this part of what all waits cost is gone.
MOST_OF = 1 - SMALL
# A wait is harmless if the host stands this part of the window in it, and without it the program takes as long.
STANDS, COSTS = SMALL, HARDLY


class Link(Struct, frozen=True):
    """One kind of waits: how long the host stands in them, and what is saved once they and those before are gone."""

    name: str
    waits: int
    held_ns: int
    saved_ns: int


class WaitChain(Struct, frozen=True):
    """Links in the order in which they go; ``whole_ns``: all waits gone; ``harmless``: kinds that cost nothing."""

    links: tuple[Link, ...]
    whole_ns: int
    harmless: tuple[Link, ...]

    @property
    def text(self) -> str:
        """``torch.nonzero, then torch.unique, then a boolean index wait instead: 62 ms in all``; empty for one."""
        if len(self.links) < 2:
            return ""
        steps = [f"{link.name} ({duration(link.saved_ns)})" for link in self.links]
        return f"{steps[0]}, then {', then '.join(steps[1:])}: {duration(self.whole_ns)} in all"


NO_CHAIN = WaitChain((), 0, ())


@once
def wait_chain(context: RuleContext) -> WaitChain:
    """The chain of this trace; `NO_CHAIN` where it cannot be replayed, or nothing waits."""
    if not context.is_replayed:
        return NO_CHAIN
    try:
        waits, kinds, every = waits_of(context), largest_kinds(context), kinds_of_waits(context)
    except CannotCheckError:
        return NO_CHAIN
    if not kinds:
        return NO_CHAIN
    held = {name: int(waits.held_ns[inside].sum()) for name, inside in kinds.items()}
    largest = list(kinds)
    [whole] = _saved(context, [list(every.values())])
    if whole < COSTS * context.longest_window_ns:  # none costs anything: the largest may be worth saying so
        harmless = [name for name in largest if held[name] >= STANDS * context.longest_window_ns]
        return WaitChain((), whole, tuple(_harmless(context, name, kinds[name]) for name in harmless))
    links, alone = _links(context, kinds, held, whole)
    largest = [name for name in largest if name not in {link.name for link in links}]
    harmless = [
        name
        for name in largest
        if held[name] >= STANDS * context.longest_window_ns and alone[name] < COSTS * context.longest_window_ns
    ]
    return WaitChain(tuple(links), whole, tuple(_harmless(context, name, kinds[name]) for name in harmless))


def _links(
    context: RuleContext, kinds: Mapping[str, Rows], held: Mapping[str, int], whole: int
) -> tuple[list[Link], dict[str, int]]:
    """One kind of wait after the other, each time the one that saves most, until little of what all cost is left; and
    what each alone would save."""
    links: list[Link] = []
    gone: list[Rows] = []
    alone: dict[str, int] = {}
    largest = list(kinds)
    while largest and len(links) < MOST_LINKS and (not links or links[-1].saved_ns < MOST_OF * whole):
        saved = dict(zip(largest, _saved(context, [[*gone, kinds[name]] for name in largest]), strict=True))
        alone = alone or saved
        best = max(largest, key=lambda name: (saved[name], held[name]))
        links.append(Link(best, len(kinds[best]), held[best], saved[best]))
        gone.append(kinds[best])
        largest.remove(best)
    return links, alone


def _harmless(context: RuleContext, name: str, rows: Rows) -> Link:
    """With those of its name that wait for a copy, or after which memory is freed: as tables of calls count them."""
    every = np.concatenate((rows, untold_waits(context).get(name, rows[:0])))
    return Link(name, len(every), int(waits_of(context).held_ns[every].sum()), 0)


def _saved(context: RuleContext, selections: Sequence[Sequence[Rows]]) -> list[int]:
    """The middle of what is saved without the waits (rows of `Waits`) of each of these."""
    calls = [waits_of(context).call[unique(np.concatenate(list(rows)))] for rows in selections]
    savings = context.savings_without_waits(*calls)
    return [0] * len(calls) if savings is None else [sum(saving) // 2 for saving in savings]
