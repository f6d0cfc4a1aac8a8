"""The native forward pass equals the plain one to the nanosecond: on random graphs, random programs and real traces."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hatch_build
import numpy as np
import pytest
from benchmarks.simulated.generate import generate
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.model import library
from boundby.model.arrays import Int32Array, Int64Array
from boundby.model.causes import SCENARIOS
from boundby.model.units import EXACT_NS
from boundby.native.passes import (
    AT_ONCE,
    NONE,
    Costs,
    Less,
    Links,
    Pass,
    Pieces,
    Windows,
    _is_wide,
    assign_slots,
    find_late,
    follow,
    forward,
    in_turns,
    shorten,
    spans,
)
from boundby.readers import read_trace
from boundby.replay.predictor import Predictor
from boundby.replay.removals import Without
from boundby.simulate.nsys_export import to_export
from boundby.trace.tables import Trace
from tests.attribution.strategies import host_sequences
from tests.native.twins import without_core
from tests.support.program import Program
from tests.support.traces import trace_names, trace_path


def assert_same(links: Links, costs: Costs, order: Int32Array, *, calibrates: bool = False) -> None:
    """Every column of a pass, natively and in Python: in the order's own turn, and each event in its turn."""
    links.check(order)
    following = follow(links, order)

    def copied(record: Costs | Links, *names: str) -> dict[str, Any]:
        return {name: getattr(record, name).copy() for name in names}

    def passes() -> Iterator[Pass]:  # one that calibrates changes what it is given
        own_costs = costs.changed(**copied(costs, "interval_ns", "call_ns", "wait_lag_ns"))
        own_links = replace(links, **copied(links, "follow_lag_ns", "queue_slot_lag_ns"))
        yield forward(own_links, own_costs, order, calibrates=calibrates)
        if len(links.lane_first) and not calibrates:  # without lanes it is all the same
            yield in_turns(links, costs, order, following)

    native = list(passes())
    first = native[0]
    times = first.call_start, first.call_end, first.turn if first.keeps_turns else first.start
    late = find_late(links, costs, *times)
    with without_core():
        plain = list(passes())
        assert np.array_equal(find_late(links, costs, *times), late)
    for one, other in zip(native, plain, strict=True):
        for name in one.__struct_fields__:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def scenarios(trace: Trace) -> Iterator[tuple[Links, Costs, Int32Array]]:
    """A trace's graph under every scenario."""
    timeline = build_timeline(trace, parse_window("gpu"))
    if timeline.devices:
        predictor = Predictor(timeline)
        graph = predictor.graph
        for causes in ((), *(scenario.causes for scenario in SCENARIOS.values())):
            yield graph.links, Without(causes)(graph, graph.costs, predictor.everywhere), graph.order


def random_graph(seed: int, most: int = 9) -> tuple[Links, Costs, Int32Array]:
    """Any links that fit together, whatever they mean, and any order. Of nodes and of operations fewer than ``most``;
    half of the graphs have no lanes."""
    random = np.random.default_rng(seed)
    nodes, operations, lanes, kinds = (
        int(random.integers(low, high)) for low, high in ((0, most), (0, most), (0, 70), (1, 9))
    )
    lanes *= seed % 2

    def index(count: int, stop: int, low: int = NONE) -> Int32Array:
        return random.integers(low, stop, count, np.int32) if stop > low else np.zeros(0, np.int32)

    def time(count: int) -> Int64Array:
        return random.integers(-50, 200, count)

    def truth(count: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return random.integers(0, 2, count).astype(bool)

    def edges(count: int) -> tuple[Int32Array, Int32Array]:
        degree = random.integers(0, 3 if operations else 1, count)
        at = np.concatenate(([0], np.cumsum(degree))).astype(np.int32)
        return at, index(int(at[-1]), operations, 0)

    wait_at, wait_for = edges(nodes)
    after_at, after_what = edges(operations)
    links = Links(
        chain=index(nodes, 3, 0),
        node_begin_ns=time(nodes),
        node_end_ns=time(nodes),
        follows=index(nodes, nodes),
        follow_lag_ns=time(nodes),
        wait_at=wait_at,
        wait_for=wait_for,
        waits_for_start=truth(nodes),
        queue_slot=index(nodes, operations),
        queue_slot_lag_ns=time(nodes),
        launch=index(operations, nodes),
        from_call_end=truth(operations),
        before=index(operations, operations),
        after_at=after_at,
        after_what=after_what,
        start_ns=time(operations),
        unexplained_lead_ns=time(operations),
        lane=index(operations, lanes),
        lane_first=index(lanes, lanes, 0),
        lane_stop=index(lanes, lanes + 1, 0),
        kind=index(operations, kinds, 0),
        excludes=truth(kinds * kinds),
        kinds=kinds,
    )
    costs = Costs(
        interval_ns=time(nodes),
        call_ns=time(nodes),
        waits=truth(nodes),
        wait_lag_ns=time(nodes),
        launch_latency_ns=time(operations),
        switch_ns=time(operations),
        unexplained_delay_ns=time(operations),
        duration_ns=time(operations),
        has_queue_limit=bool(random.integers(2)),
    )
    return links, costs, index(int(random.integers(0, 5 * most)), 2 * nodes, -operations)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_random_graphs(seed: int, calibrates: bool) -> None:
    assert_same(*random_graph(seed), calibrates=calibrates)


@settings(max_examples=20, deadline=None)
@given(host_sequences(threads=2, devices=2, processes=2, most=10))
def test_random_programs(program: Program) -> None:
    for case in scenarios(program.trace()):
        assert_same(*case)
        assert_sound(*case)


def assert_sound(links: Links, costs: Costs, order: Int32Array) -> None:
    """Several passes at once over an order that needs nothing later begin and end the windows as each pass does by
    itself; turned round, the order is found out."""
    random = np.random.default_rng(len(order))
    nodes = random.permutation(links.nodes)[: random.integers(0, 3)].astype(np.int32)
    if (slots := assign_slots(links, order, nodes)) is not None:
        window = random.integers(-1, 3, links.operations, np.int32)
        told = random.choice(links.operations, min(links.operations, 2), replace=False)
        told = told[: random.integers(0, 3)]
        window[told] = -2 - np.arange(len(told))
        windows = Windows(window, 3, nodes)
        count = 2 * links.nodes * int(random.integers(2))  # of what the intervals are made of, where that is told
        node = np.sort(random.integers(0, max(links.nodes, 1), count))
        at = np.searchsorted(node, np.arange(links.nodes + 1)).astype(np.int32)
        pieces = Pieces(at, random.integers(0, 9, count, np.int32))
        early_ns = np.minimum(costs.launch_latency_ns, 0)
        many = [
            costs.changed(
                interval_ns=Less(costs.interval_ns, random.random(count) < number / 8, pieces=pieces)
                if count
                else costs.interval_ns,
                call_ns=costs.blanked("call_ns", random.random(links.nodes) < number / 8),
                waits=costs.waits & (random.random(links.nodes) >= number / 8),
                launch_latency_ns=Less(costs.launch_latency_ns, random.random(links.operations) < 0.5, early_ns),
                duration_ns=costs.blanked("duration_ns", random.random(links.operations) < number / 8),
                unexplained_delay_ns=costs.unexplained_delay_ns + number % 2,
                has_queue_limit=costs.has_queue_limit and number != 3,
            )
            for number in range(random.integers(1, AT_ONCE + 2))
        ]
        if random.integers(2):
            many.append(costs.changed(interval_ns=costs.interval_ns // 2, switch_ns=costs.switch_ns + 1))
        far = costs.changed(call_ns=costs.call_ns + EXACT_NS) if links.nodes else costs  # no double would hold it
        ones = [forward(links, each, order) for each in (*many, far)]
        for is_wide in {_is_wide(), False}:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("boundby.native.passes._is_wide", lambda is_wide=is_wide: is_wide)
                found = spans(links, costs, [*many, far], order, slots, windows)
            for one, columns in zip(ones, found, strict=True):
                for column, expected in zip(columns, windows.spans(one.start, one.end, one.call_start), strict=True):
                    assert np.array_equal(column, expected)
    if (links.launch >= 0).any():
        assert assign_slots(links, np.ascontiguousarray(order[::-1]), nodes) is None
    if len(order):
        assert assign_slots(links, order[order != order[(order < 0) | (order & 1 == 0)][0]], nodes) is None


def sound_graph(seed: int, most: int = 9) -> tuple[Links, Costs, Int32Array]:
    """Any links that fit together, in an order that needs nothing later: what comes later is left out of them."""
    links, costs, _ = random_graph(seed, most)
    random = np.random.default_rng(seed)
    made = np.concatenate((2 * np.arange(links.nodes), ~np.arange(links.operations)))
    place = random.permutation(len(made))
    node_at, row_at = place[: links.nodes], place[links.nodes :]

    def known(index: Int32Array, at: Int64Array, by: Int64Array) -> Int32Array:
        return np.where((index >= 0) & (np.append(at, 0)[index] < by), index, NONE).astype(np.int32)

    links = replace(
        links,
        follows=known(links.follows, node_at, node_at),
        queue_slot=known(links.queue_slot, row_at, node_at),
        launch=known(links.launch, node_at, row_at),
        before=known(links.before, row_at, row_at),
        after_at=np.zeros(links.operations + 1, np.int32),
        after_what=np.zeros(0, np.int32),
    )
    waiting = 2 * np.flatnonzero(np.diff(links.wait_at)) + 1
    order = np.concatenate((made[np.argsort(place)], random.permutation(waiting))).astype(np.int32)
    return links, costs, order


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_several_passes_at_once(seed: int) -> None:
    links, costs, order = sound_graph(seed)
    assert assign_slots(links, order, np.zeros(0, np.int32)) is not None
    assert_sound(links, costs, order)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_an_order_that_passes_for_sound_reads_no_time_that_is_not_there(seed: int) -> None:
    links, costs, order = random_graph(seed)
    if assign_slots(links, order, np.zeros(0, np.int32)) is not None:
        assert_sound(links, costs, order)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**31 - 1), st.booleans()), max_size=30))
def test_pieces_are_taken_from_intervals(found: list[tuple[int, int, bool]]) -> None:
    found.sort()
    at = np.searchsorted([piece[0] for piece in found], np.arange(6)).astype(np.int32)
    pieces = Pieces(at, np.array([piece[1] for piece in found], np.int32))
    mine = np.array([piece[2] for piece in found], bool)
    interval = np.arange(5, dtype=np.int64) * 1_000
    native = shorten(interval, pieces, mine)
    with without_core():
        assert np.array_equal(shorten(interval, pieces, mine), native)
    assert np.array_equal(interval, np.arange(5) * 1_000)
    with pytest.raises(IndexError):
        shorten(interval, Pieces(np.arange(7, dtype=np.int32), np.ones(6, np.int32)), np.ones(6, bool))


@pytest.mark.parametrize("seed", range(3))
def test_simulated_programs(seed: int, tmp_path: Path) -> None:
    for case in scenarios(read_trace(to_export(generate(seed).run()).write(tmp_path / "x.sqlite", "2023"))):
        assert_same(*case)


# Plain Python takes minutes for larger ones.
SMALL = ("concurrent_streams", "cpp_vector_add", "openmp_heat", "oddities/tiny_old", "transformer_forward")


@pytest.mark.parametrize("name", [name for name in trace_names() if name.startswith(SMALL)])
def test_real_traces(name: str) -> None:
    for case in scenarios(read_trace(trace_path(name))):
        assert_same(*case)


def test_indices_that_point_nowhere_are_refused() -> None:
    graphs = (random_graph(seed) for seed in range(200))
    links, costs, order = next(
        graph for graph in graphs if min(graph[0].nodes, graph[0].operations, len(graph[0].lane_first)) >= 2
    )
    columns = (
        "chain",
        "follows",
        "wait_at",
        "queue_slot",
        "launch",
        "before",
        "after_at",
        "lane",
        "lane_first",
        "kind",
    )
    for name in columns:
        for wrong in (-2, 1000):
            column = getattr(links, name).copy()
            column[-1] = wrong
            if name == "chain" and wrong > 0:
                continue  # a chain more
            with pytest.raises(ValueError, match="do not fit together"):
                replace(links, **{name: column}).check(order)
    for event in (2 * links.nodes, -links.operations - 1):
        with pytest.raises(ValueError, match="do not fit together"):
            links.check(np.array([event], np.int32))
    with pytest.raises(ValueError, match="another graph"):
        forward(links, costs.changed(call_ns=costs.call_ns[1:]), order)


def test_columns_of_another_type_are_refused() -> None:
    links, costs, order = random_graph(1)
    with pytest.raises(TypeError, match=r"Costs\.call_ns must be a contiguous column of i8"):
        forward(links, costs.changed(call_ns=costs.call_ns.astype(np.int32)), order)  # type: ignore[arg-type]


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    load = library._load.__wrapped__
    monkeypatch.setattr(library, "fingerprint", lambda: 1)
    assert load() == (None, "it was built from other sources")
    monkeypatch.setattr(library, "NAME", "nothing.so")
    assert load() == (None, "it was not built, or not for this machine")


SANITIZED = """
import sys
from pathlib import Path
from boundby.model import library
library.NAME = sys.argv[1]
from tests.support.fuzz_native import use_plain_memory
from tests.native.test_forward import assert_same, assert_sound, random_graph, sound_graph
library.required()
use_plain_memory(Path(sys.argv[1]).parent)
for seed in range(200):
    most = 9 if seed % 4 else 400  # far beyond what sanitizers see around a small array
    assert_same(*random_graph(seed, most), calibrates=seed % 3 == 0)
    assert_sound(*sound_graph(seed, most))
"""


def test_no_undefined_behaviour_and_no_stray_access(tmp_path: Path) -> None:
    """The library built with sanitizers, on random graphs: with and without pieces, lanes and windows."""
    compiler = hatch_build.compiler()
    if compiler is None:
        pytest.skip("no C compiler")
    options = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    try:
        made = hatch_build.build(None, *options, folder=tmp_path)
        runtime = subprocess.run([*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the compiler has no sanitizers")
    environment = {**os.environ, "LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    ran = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(made)], env=environment, capture_output=True, text=True, check=False
    )
    if "cannot be preloaded" in ran.stderr:
        pytest.skip("no runtime of the sanitizers")
    assert ran.returncode == 0, ran.stderr[-2000:]
