"""The forward pass of the replay: when would everything have happened, with these costs?

``forward.c`` works it out; ``tests/native/twins.py`` says the same in Python. Times are nanoseconds, rows of nodes and
operations as in `boundby.replay.graph`, NONE (-1) in an index means that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import (
    BoolArray,
    ByteArray,
    Int32Array,
    Int64Array,
    as_rows,
    blank,
    compact,
    offsets,
    spread,
)
from boundby.model.library import Record, run, struct

NONE = -1
NEVER = -(1 << 62)
FIRST_KERNEL = 3  # kinds of operations from here on are kernels
BLOCK = 32  # lanes that are looked at as one
AT_ONCE, SOME, FEW = 16, 8, 2  # passes that run as one; some or few of them are quicker by themselves
EXACT_NS = 1 << 53  # whole numbers below are exact as floating point numbers: 104 days

T = TypeVar("T", bound=Record)


class Links(Record, Struct, frozen=True, eq=False, dict=True):
    """What comes after what. Columns of nodes, then of operations, then of lanes (streams that share a device)."""

    chain: Int32Array
    node_begin_ns: Int64Array  # as measured: where chains begin that follow nothing
    node_end_ns: Int64Array  # as measured
    follows: Int32Array  # the node that woke this one's thread
    follow_lag_ns: Int64Array
    wait_at: Int32Array  # wait_at[node]:wait_at[node + 1] of wait_for are the operations it waits for
    wait_for: Int32Array
    waits_for_start: BoolArray
    queue_slot: Int32Array  # the operation whose end makes room in the stream's queue
    queue_slot_lag_ns: Int64Array
    launch: Int32Array  # the node that launched each operation
    from_call_end: BoolArray  # that node's call had to finish first
    before: Int32Array  # the operation before it on its stream
    after_at: Int32Array  # after_at[row]:after_at[row + 1] of after_what are operations of other streams
    after_what: Int32Array
    start_ns: Int64Array  # as measured
    unexplained_lead_ns: Int64Array  # by how much it was seen to start before its device should have had room
    lane: Int32Array  # NONE: alone on its device
    lane_first: Int32Array  # lanes of the same device, per lane: lane_first:lane_stop
    lane_stop: Int32Array
    kind: Int32Array  # what each operation is to others
    excludes: BoolArray  # kind * kinds + kind: these two cannot run at once
    kinds: int

    @property
    def nodes(self) -> int:
        return len(self.chain)

    @property
    def operations(self) -> int:
        return len(self.launch)

    @cached_property
    def chains(self) -> int:
        return int(self.chain.max(initial=-1)) + 1

    @cached_property
    def origin_ns(self) -> int:
        """The first time that was measured."""
        return min(int(time.min(initial=-NEVER)) for time in (self.node_begin_ns, self.start_ns))

    @cached_property
    def reach_ns(self) -> float:
        """From the first to the last time that was measured, and all lags of edges."""
        latest = max(int(time.max(initial=NEVER)) for time in (self.node_begin_ns, self.start_ns))
        lags = (self.follow_lag_ns, self.queue_slot_lag_ns, self.unexplained_lead_ns)
        return latest - self.origin_ns + sum(map(_total_ns, lags))

    @cached_property
    def waiting(self) -> Int32Array:
        """Of each entry of ``wait_for``: the node that waits."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.wait_at))

    @cached_property
    def follows_on(self) -> tuple[Int64Array, Int64Array]:
        """Pairs of operations of which the second starts after the first."""
        every = np.arange(len(self.launch))
        follower = np.concatenate((every, np.repeat(every, np.diff(self.after_at))))
        leader = np.concatenate((self.before, self.after_what)).astype(np.int64)
        return leader[leader >= 0], follower[leader >= 0]

    def check(self, order: Int32Array) -> None:
        """Raise ValueError for an index, in a column or in an order of events, that points nowhere."""
        nodes, operations, lanes = self.nodes, self.operations, len(self.lane_first)
        per_node = (self.node_begin_ns, self.node_end_ns, self.follows, self.follow_lag_ns, self.waits_for_start)
        per_operation = (self.from_call_end, self.before, self.start_ns, self.unexplained_lead_ns, self.lane, self.kind)
        good = [
            all(len(column) == nodes for column in (*per_node, self.queue_slot, self.queue_slot_lag_ns)),
            all(len(column) == operations for column in per_operation),
            _are_offsets(self.wait_at, nodes, self.wait_for),
            _are_offsets(self.after_at, operations, self.after_what),
            len(self.lane_stop) == lanes and len(self.excludes) == self.kinds**2,
            _is_within(self.chain, 0, self.chains),
            _is_within(self.follows, NONE, nodes) and _is_within(self.launch, NONE, nodes),
            *(_is_within(column, NONE, operations) for column in (self.queue_slot, self.before)),
            *(_is_within(column, 0, operations) for column in (self.wait_for, self.after_what)),
            _is_within(self.lane, NONE, lanes) and _is_within(self.kind, 0, self.kinds),
            _is_within(self.lane_first, 0, lanes) and _is_within(self.lane_stop, 0, lanes + 1),
            _is_within(order, -operations, 2 * nodes),
        ]
        if not all(good):
            raise ValueError(f"a graph's columns do not fit together (check {good.index(False)})")


def _total_ns(column: Int64Array) -> float:
    """All of them together, or what they cannot be more than, if that is little."""
    at_most = max(float(column.max(initial=0)), -float(column.min(initial=0))) * len(column)
    return at_most if at_most < EXACT_NS / 64 else float(np.abs(column).sum(dtype=np.float64))  # it cannot overflow


def _are_offsets(at: Int32Array, count: int, flat: Int32Array) -> bool:
    return len(at) == count + 1 and at[0] == 0 and at[-1] == len(flat) and bool((at[1:] >= at[:-1]).all())


def _is_within(column: Int32Array, low: int, stop: int) -> bool:
    return len(column) == 0 or (int(column.min()) >= low and int(column.max()) < stop)


@dataclass(frozen=True, eq=False)
class Costs(Record):
    """What scenarios change: columns of nodes, then of operations. Unchanged they replay the trace."""

    interval_ns: Int64Array  # before each node
    call_ns: Int64Array  # the call's own time, without waiting
    waits: BoolArray
    wait_lag_ns: Int64Array  # from the end of what it waits for to its return
    launch_latency_ns: Int64Array  # from the launching call to the start at the earliest
    switch_ns: Int64Array  # from the end of what it comes after
    unexplained_delay_ns: Int64Array
    duration_ns: Int64Array
    has_queue_limit: bool = True

    def __getattr__(self, name: str) -> Any:
        """A column of which less is left, written out now that somebody asks for it."""
        less = vars(self).get("_less", {}).get(name)
        if less is None:
            raise AttributeError(name)
        vars(self)[name] = column = less.column
        return column

    def column(self, name: str) -> Column:
        """A column, as it was given to `changed`."""
        less: Column | None = vars(self).get("_less", {}).get(name)
        return getattr(self, name) if less is None else less

    def changed(self, **columns: Column | BoolArray | bool) -> Costs:
        """The same with these columns for others."""
        made = object.__new__(Costs)
        known = {field.name: columns.get(field.name, vars(self).get(field.name)) for field in fields(self)}
        less = {**vars(self).get("_less", {}), **columns}
        less = {name: column for name, column in less.items() if isinstance(column, Less)}
        vars(made).update({name: column for name, column in known.items() if name not in less}, _less=less)
        return made

    def blanked(self, name: str, where: BoolArray, left: Int64Array | None = None) -> Column:
        """A column of which in these places nothing is left, or ``left`` of what was measured."""
        column = self.column(name)
        if isinstance(column, Less) and column.left is left and column.pieces is None:
            return column._replace(where=column.where | where)
        if isinstance(column, Less):
            column = column.column
        return Less(column, where, left)

    def check(self, links: Links) -> None:
        """Raise ValueError where columns are not those of these links."""
        columns = [self.column(field.name) for field in fields(self)[:-1]]
        lengths = [len(column.measured if isinstance(column, Less) else column) for column in columns]
        if lengths != [links.nodes] * 4 + [links.operations] * 4:
            raise ValueError("costs are of another graph")

    def is_same(self, other: Costs) -> bool:
        """Whether nothing differs."""
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return all(one is two or np.array_equal(one, two) for one, two in pairs)

    @cached_property
    def total_ns(self) -> float:
        """All of them, one after the other."""
        return sum(_total_ns(getattr(self, name)) for name in COSTS)


class Pieces(NamedTuple):
    """What the intervals before nodes are made of: ``at[node]:at[node + 1]`` of ``ns``."""

    at: Int32Array
    ns: Int32Array


class Less(NamedTuple):
    """A column of costs of which in some places (``where``) only ``left`` is left; None: nothing; or, of the intervals
    before nodes, one without some of the pieces. Written out only where somebody asks for it."""

    measured: Int64Array
    where: BoolArray
    left: Int64Array | None = None
    pieces: Pieces | None = None

    @property
    def column(self) -> Int64Array:
        """All of it."""
        if self.pieces is not None:
            return shorten(self.measured, self.pieces, self.where)
        return blank(self.measured, self.where) if self.left is None else np.where(self.where, self.left, self.measured)


Column = Int64Array | Less
#: Columns of `Costs` in nanoseconds, in the order of forward.c.
COSTS = (
    *("interval_ns", "call_ns", "wait_lag_ns", "launch_latency_ns"),
    *("switch_ns", "unexplained_delay_ns", "duration_ns"),
)


class Pass(Record, Struct, frozen=True, eq=False):
    """One pass over the events in an order, and what it found out.

    ``order``: 2 * node begins it, 2 * node + 1 ends one that waits, ~row is an operation. ``calibrates``: everything
    happens when it was measured. What its dependencies leave unexplained of that is not replayed but written down
    (``delay_ns`` and ``lead_ns`` of operations), or added to the columns of costs and links themselves (of nodes).
    """

    order: Int32Array
    events: int
    calibrates: bool
    keeps_turns: bool
    delay_ns: Int64Array
    lead_ns: Int64Array
    interval_ns: Int64Array
    call_ns: Int64Array
    wait_lag_ns: Int64Array
    follow_lag_ns: Int64Array
    queue_slot_lag_ns: Int64Array
    call_start: Int64Array
    call_end: Int64Array
    start: Int64Array
    end: Int64Array
    turn: Int64Array  # when each operation has its turn on its device; empty where all have one of their own
    clock: Int64Array  # the state on the way: of chains, then of lanes
    begun: BoolArray
    lane_end: Int64Array
    lane_kind: Int32Array
    block_end: Int64Array  # of BLOCK lanes side by side: none ends later (forward.c skips those that hold up nobody)
    front: Int64Array  # of each device (by its first lane) when the last kernel that waited for room began


def forward(links: Links, costs: Costs, order: Int32Array, *, calibrates: bool = False) -> Pass:
    """Run the events in this order. The links and the order must have been checked (`Links.check`). ``calibrates``
    changes columns of both: see `Pass`."""
    one_pass = _new(links, costs, order, calibrates)
    run("boundby_forward", links.structure, costs.structure, one_pass.structure)
    return one_pass


def assign_slots(links: Links, order: Int32Array, told: Int32Array) -> tuple[Int32Array, Int32Array, int] | None:
    """Of each node and of each operation its slot, and how many there are; ``told``: nodes whose slots hold their times
    in the end. None where an event needs what happens only
    after it in the order, or does not happen in it once."""
    nodes, rows = links.nodes, links.operations
    node, row = (np.full(size, NONE, np.int32) for size in (nodes, rows))
    node[told] = -2 - np.arange(len(told))
    slots = struct("Slots", {"spare": np.empty(nodes + rows, np.int32), "node": node, "row": row})
    count = run("boundby_slots", links.structure, order, len(order), nodes, rows, slots, len(told))
    return None if count < 0 else (node, row, count)


class Windows(NamedTuple):
    """Of each operation the window that it counts for, of ``size``; NONE: of none. Those that are told themselves have
    -2 - n (the n-th), and so are these ``nodes``."""

    of: Int32Array
    size: int
    nodes: Int32Array

    @property
    def told(self) -> int:
        """How many are told themselves."""
        return max(-1 - int(self.of.min(initial=NONE)), 0)

    def spans(self, start: Int64Array, end: Int64Array, begun: Int64Array) -> Spans:
        """Of a pass whose times are there: of operations, and when nodes begin."""
        first, last = np.full(self.size, -NEVER), np.full(self.size, NEVER)
        found = Spans(first, last, np.zeros((self.told, 2), np.int64), begun[self.nodes])
        for number in range(self.size):
            rows = as_rows(self.of == number)
            found.first[number], found.last[number] = start[rows].min(initial=-NEVER), end[rows].max(initial=NEVER)
        rows = np.flatnonzero(self.of < NONE)
        found.kept[-2 - self.of[rows]] = np.stack((start[rows], end[rows]), axis=1)
        return found


class Spans(NamedTuple):
    """The earliest start and the latest end in each window, shape (windows,); of operations that are told themselves
    both times, shape (operations, 2), and when nodes begin that are, shape (nodes,)."""

    first: Int64Array
    last: Int64Array
    kept: Int64Array
    begun: Int64Array


def _is_wide() -> bool:
    """Whether the processor's registers hold four numbers."""
    return run("boundby_is_wide") > 0


class _AtOnce:
    """Up to AT_ONCE costs that differ from those measured by less in some places, of each column in one way. Of each
    of them only that is kept: in which places."""

    def __init__(self, measured: Costs, room_ns: float) -> None:
        """``room_ns``: no pass may last that long, however much happens one after the other."""
        self.measured = measured
        self._room_ns = room_ns - measured.total_ns
        self.members: list[int] = []
        self._most = AT_ONCE if _is_wide() else SOME
        self._left: dict[str, Int64Array | None] = {}  # by column
        self._passes: dict[str, list[ByteArray]] = {}  # by column (of costs, "waits" and "pieces"), for eight each
        self._marked: dict[str, tuple[BoolArray, int]] = {}  # what comes to that, once it is known of which passes
        self._pieces: Pieces | None = None
        self._unlimited = 0

    def add(self, number: int, costs: Costs) -> bool:
        """Whether these could join."""
        less = {name: column for name in COSTS if (column := self._less_of(costs, name)) is not None}
        left = {name: column.left for name, column in less.items() if column.pieces is None}
        is_other = any(self._left.get(name, column) is not column for name, column in left.items())
        new_ns = sum(_total_ns(ns) for name, ns in left.items() if ns is not None and name not in self._left)
        if is_other or new_ns >= self._room_ns or len(self.members) == self._most:
            return False
        self._left |= left
        self._room_ns -= new_ns
        self._unlimited |= (not costs.has_queue_limit) << len(self.members)
        self._mark("waits", costs.waits)
        for name, column in less.items():
            self._pieces = column.pieces or self._pieces
            self._mark(name if column.pieces is None else "pieces", column.where)
        self.members.append(number)
        return True

    def _mark(self, name: str, where: BoolArray) -> None:
        """The next pass is one of those in which there is less of a column in these places. Neighbours often share
        them."""
        known, bits = self._marked.get(name, (where, 0))
        if known is not where:
            self._note(name)
            bits = 0
        self._marked[name] = where, bits | 1 << len(self.members)

    def _note(self, name: str) -> None:
        where, bits = self._marked.pop(name)
        passes = self._passes.setdefault(name, [np.zeros(0, np.uint8)] * 2)
        for block in (0, 1):
            if of_block := bits >> 8 * block & 255:
                own = where.view(np.uint8) * np.uint8(of_block)  # shifting takes 25 times as long
                passes[block] = np.bitwise_or(passes[block], own, out=own) if len(passes[block]) else own

    def _less_of(self, costs: Costs, name: str) -> Less | None:
        column, measured = costs.column(name), getattr(self.measured, name)
        if column is measured:
            return None
        if isinstance(column, Less) and column.measured is measured:
            return column
        return Less(measured, np.ones(len(measured), np.bool_), getattr(costs, name))

    def spans(
        self, links: Links, order: Int32Array, slots: tuple[Int32Array, Int32Array, int], windows: Windows
    ) -> list[Spans]:
        """All in one pass."""
        for name in [*self._marked]:
            self._note(name)
        lanes, (node_slot, row_slot, places) = len(links.lane_first), slots
        pieces = self._pieces or Pieces(np.zeros(0, np.int32), np.zeros(0, np.int32))
        measured = {**{name: getattr(self.measured, name) for name in COSTS}, "waits": None, "pieces": pieces.ns}
        columns = [
            (column, self._left.get(name), *self._passes.get(name, (None, None))) for name, column in measured.items()
        ]
        at_once = next(size for size in (FEW, SOME, AT_ONCE) if len(self.members) <= size)
        shape = windows.size, at_once
        many: dict[str, Any] = {
            "order": order,
            "events": len(order),
            "origin": links.origin_ns,
            "columns": np.array([[_address(column) for column in each] for each in columns], np.int64),
            "unlimited": self._unlimited,
            "pieces": len(pieces.ns),
            "piece_at": pieces.at,
            "node_slot": node_slot,
            "row_slot": row_slot,
            "times": np.empty(2 * places * at_once),
            "clock": np.zeros(links.chains * at_once),
            "begun": np.zeros(links.chains, np.bool_),
            "lane_kind": np.zeros(lanes * at_once, np.int32),
            **{name: np.full(lanes * at_once, NEVER) for name in ("lane_end", "block_end", "front")},
            "lanes": lanes,
            "window": windows.of,
            "first": np.full(shape, float(-NEVER)),
            "last": np.full(shape, float(NEVER)),
            "kept": np.zeros((windows.told, 2, at_once)),
            "at_once": at_once,
            "is_wide": _is_wide(),
        }
        run("boundby_forward_many", links.structure, struct("Many", many))
        begun = many["times"].reshape(places, 2, at_once)[node_slot[windows.nodes], 0]
        at = [
            np.where(np.abs(time) < -NEVER, time.astype(np.int64) + links.origin_ns, time.astype(np.int64))
            for time in (many["first"], many["last"], many["kept"], begun)
        ]
        return [Spans(at[0][:, n], at[1][:, n], at[2][:, :, n], at[3][:, n]) for n in range(len(self.members))]


def _address(column: Int64Array | Int32Array | ByteArray | None) -> int:
    return 0 if column is None or not len(column) else column.ctypes.data


def spans(
    links: Links,
    measured: Costs,
    costs: Iterable[Costs],
    order: Int32Array,
    slots: tuple[Int32Array, Int32Array, int],
    windows: Windows,
) -> list[Spans]:
    """What `Windows.spans` says of a pass with each of these costs, in as few passes as may be; see `assign_slots`.
    ``measured``: what most of their columns are, but for what is less of them. Costs are let go one after the other."""
    measured.check(links)
    if len(windows.of) != links.operations:
        raise ValueError("windows are of another graph")
    parts: list[_AtOnce] = []
    found: dict[int, Spans] = {}
    for number, each in enumerate(costs):
        each.check(links)
        if not any(part.add(number, each) for part in parts):
            part = _AtOnce(measured, EXACT_NS - links.reach_ns)
            if part.add(number, each):
                parts.append(part)
            else:
                one = forward(links, each, order)
                found[number] = windows.spans(one.start, one.end, one.call_start)
    for part in parts:
        found |= dict(zip(part.members, part.spans(links, order, slots, windows), strict=True))
    return [found[number] for number in range(len(found))]


def shorten(interval_ns: Int64Array, pieces: Pieces, mine: BoolArray) -> Int64Array:
    """The intervals before nodes without these pieces of theirs (``mine``: which)."""
    left: Int64Array = interval_ns.copy()
    if not _are_offsets(pieces.at, len(left), pieces.ns):
        raise IndexError("a piece is of no node")
    run("boundby_shorten", left, len(left), pieces.at, pieces.ns, mine)
    return left


def in_turns(links: Links, costs: Costs, order: Int32Array, following: tuple[Int32Array, Int32Array]) -> Pass:
    """Run each event in its turn: of those of which all that they come after has happened the one that comes first, of
    several at one time the first of the order. ``following``: see `follow`."""
    one_pass, count = _new(links, costs, order, False), len(order)
    state = {"pending": np.zeros(count, np.int32), "key": np.zeros(count, np.int64), "heap": np.zeros(count, np.int32)}
    turns = struct("Turns", {"next_at": following[0], "next": following[1], **state})
    run("boundby_in_turns", links.structure, costs.structure, one_pass.structure, turns)
    return one_pass


def follow(links: Links, order: Int32Array) -> tuple[Int32Array, Int32Array]:
    """What comes after each event of this order (``next_at`` and ``next`` of ``Turns``), as far as it does in the
    order: the events of a chain, and all that the links tell."""
    place = np.arange(len(order), dtype=np.int32)  # a call that waits for hundreds of streams has as many pairs
    is_operation, is_end = order < 0, (order >= 0) & (order & 1 == 1)
    row, node = ~order[is_operation], order[~is_operation] >> 1
    of_operation, begin = np.zeros(links.operations, np.int32), np.zeros(links.nodes, np.int32)
    of_operation[row], begin[order[~is_operation & ~is_end] >> 1] = place[is_operation], place[~is_operation & ~is_end]
    end = begin.copy()
    end[order[is_end] >> 1] = place[is_end]
    by_chain = place[~is_operation][np.argsort(links.chain[node], kind="stable")]
    chain = links.chain[order[by_chain] >> 1]
    same = chain[1:] == chain[:-1]
    woken, held = np.flatnonzero(links.follows >= 0), np.flatnonzero(links.queue_slot >= 0)
    launched = np.flatnonzero(links.launch >= 0)
    leader, follower = links.follows_on
    launch, after_call = links.launch[launched], links.from_call_end[launched]
    pairs = [
        (by_chain[:-1][same], by_chain[1:][same]),
        (end[links.follows[woken]], begin[woken]),
        (of_operation[links.queue_slot[held]], begin[held]),
        (of_operation[links.wait_for], end[links.waiting]),
        (np.where(after_call, end[launch], begin[launch]), of_operation[launched]),
        (of_operation[leader], of_operation[follower]),
    ]
    first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    del pairs
    known = first < second
    if not known.all():
        first, second = first[known], second[known]
    at = offsets(first, len(order)).astype(np.int32)
    return at, second[np.argsort(first, kind="stable")]


def _new(links: Links, costs: Costs, order: Int32Array, calibrates: bool) -> Pass:
    costs.check(links)
    nodes, operations, lanes, none = links.nodes, links.operations, len(links.lane_first), np.zeros(0, np.int64)
    return Pass(
        order=order,
        events=len(order),
        calibrates=calibrates,
        keeps_turns=lanes > 0,
        delay_ns=np.zeros(operations if calibrates else 0, np.int64),
        # Without lanes nothing is written to it.
        lead_ns=np.zeros(operations * calibrates, np.int64) if lanes else compact(spread(0, operations * calibrates)),
        **{name: getattr(costs, name) if calibrates else none for name in ("interval_ns", "call_ns", "wait_lag_ns")},
        **{name: getattr(links, name) if calibrates else none for name in ("follow_lag_ns", "queue_slot_lag_ns")},
        **{name: np.zeros(nodes, np.int64) for name in ("call_start", "call_end")},
        **{name: np.zeros(operations, np.int64) for name in ("start", "end")},
        turn=np.zeros(operations if lanes else 0, np.int64),
        clock=np.zeros(links.chains, np.int64),
        begun=np.zeros(links.chains, np.bool_),
        lane_kind=np.zeros(lanes, np.int32),
        **{name: np.full(lanes, NEVER) for name in ("lane_end", "block_end", "front")},
    )


def find_late(
    links: Links, costs: Costs, call_start: Int64Array, call_end: Int64Array, turn: Int64Array
) -> npt.NDArray[np.intp]:
    """Entries of ``wait_for`` for operations that have their turn only after the wait is over, though launched
    before."""
    if len(turn) != links.operations:
        raise ValueError("every operation has a turn")
    is_late = np.zeros(len(links.wait_for), np.bool_)
    columns = {"call_start": call_start, "call_end": call_end, "turn": turn, "is_late": is_late, "nodes": links.nodes}
    run("boundby_find_late", links.structure, costs.structure, struct("Late", columns))
    return np.flatnonzero(is_late)
