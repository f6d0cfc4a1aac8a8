"""The account: invariants on anything, and equality with a second, literal reading on programs of one thread."""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from boundby.attribution.account import account_device
from boundby.attribution.host_state import HostState
from boundby.attribution.timeline import Timeline, build_timeline, part_of
from boundby.attribution.windows import parse_window
from boundby.correlation.correlate import correlate
from boundby.correlation.logical_threads import find_logical_threads
from boundby.model.causes import CAUSES, Cause
from boundby.model.errors import SelectionError
from boundby.trace.tables import Direction, MemoryKind
from tests.attribution.brute import Account, Brute
from tests.attribution.strategies import host_sequences
from tests.support.program import Program


def timeline_of(program: Program, window: str = "gpu", *, shift: int = 0, order: int | None = None) -> Timeline:
    return build_timeline(program.trace(shift, order), parse_window(window))


def by_cause_and_path(timeline: Timeline) -> Account:
    regions = timeline.ownership.regions
    found: Account = Counter()
    for device in timeline.devices:
        table = device.segments.by_region_and_cause(len(regions))
        for region, cause in zip(*np.nonzero(table), strict=True):
            found[CAUSES[cause], regions.path(int(region))] += int(table[region, cause])
    return found


def check_invariants(timeline: Timeline) -> None:
    regions = timeline.ownership.regions
    for device in timeline.devices:
        segments = device.segments
        assert (segments.end_ns > segments.start_ns).all()
        assert (segments.start_ns[1:] == segments.end_ns[:-1]).all()
        assert segments.start_ns[0] == device.low_ns
        assert segments.end_ns[-1] == device.high_ns
        window = device.high_ns - device.low_ns
        assert segments.by_cause().sum() == window
        assert segments.by_region_and_cause(len(regions)).sum() == window
        busy = sum(
            int(min(end, device.high_ns) - max(start, device.low_ns))
            for start, end in zip(*device.busy, strict=True)
            if end > device.low_ns and start < device.high_ns
        )
        assert segments.by_cause()[:3].sum() == busy
        assert ((segments.region >= 0) & (segments.region < len(regions))).all()


@settings(max_examples=300, deadline=None)
@given(host_sequences())
def test_equals_the_literal_reading(program: Program) -> None:
    timeline = timeline_of(program)
    check_invariants(timeline)
    # As the account sees it: where a sync returns before its kernel ends, the device's clock was set back.
    brute, (device,) = Brute(timeline.trace), timeline.devices
    assume((device.low_ns, device.high_ns) == (brute.low, brute.high))  # a step may reach further
    assert by_cause_and_path(timeline) == brute.account()


def test_a_clock_that_a_sync_contradicts_is_set_before_the_literal_reading() -> None:
    program = Program()
    calls = ["LaunchKernel", "LaunchKernel", "StreamSynchronize", "Malloc", "StreamSynchronize", "LaunchKernel"]
    calls += ["MemcpyAsync", "MemcpyAsync", "StreamSynchronize"]
    made = [program.api(1_000 * place, 1_000 * place + 1_000, f"cuda{name}") for place, name in enumerate(calls)]
    program.kernel(3_000, 4_000, made[0])  # ends after the sync that waited for it
    program.kernel(8_000, 28_000, made[1])
    program.kernel(8_000, 9_000, made[5])
    program.copy(9_000, 10_000, made[6], Direction.DTOH, MemoryKind.PAGEABLE)
    program.copy(10_000, 30_000, made[7], Direction.DTOH, MemoryKind.PAGEABLE)
    timeline = timeline_of(program)
    assert timeline.trace.operations.end_ns[0] == 3_000
    assert by_cause_and_path(timeline) == Brute(timeline.trace).account()


@settings(max_examples=30, deadline=None)
@given(
    host_sequences(threads=3, devices=2, processes=2, most=10),
    st.sampled_from(["gpu", "all", "100us:300us", ":200us"]),
)
def test_invariants_hold_for_any_threads_devices_and_windows(program: Program, window: str) -> None:
    with contextlib.suppress(SelectionError):  # the window may lie outside a short program
        check_invariants(timeline_of(program, window))


@settings(max_examples=30, deadline=None)
@given(host_sequences(threads=2, devices=2), st.integers(-(10**12), 10**15), st.integers(0, 2**31))
def test_shifting_and_permuting_change_nothing(program: Program, shift: int, seed: int) -> None:
    assert by_cause_and_path(timeline_of(program)) == by_cause_and_path(timeline_of(program, shift=shift, order=seed))


def test_a_thread_has_a_state_before_the_first_instant_of_the_trace() -> None:
    """A device's clock that is moved back lets a window begin there."""
    program = Program()
    program.kernel(2_000, 3_000, program.api(1_000, 1_100, "cudaLaunchKernel"))
    trace = program.trace()
    calls = correlate(trace)
    states = HostState(trace, calls, find_logical_threads(trace, calls)).states(0)
    assert states.at(np.array([-(10**12), 0, 1_050])).tolist() == [Cause.CPU, Cause.CPU, Cause.CUDA_API]


@settings(max_examples=20, deadline=None)
@given(host_sequences(threads=2, devices=2, most=10), st.integers(0, 100))
def test_a_part_of_a_window_is_as_accounted_for_alone(program: Program, place: int) -> None:
    timeline = timeline_of(program)
    for device in timeline.devices:
        cut = device.low_ns + (device.high_ns - device.low_ns) * place // 100
        for low, high in ((device.low_ns, cut), (cut, device.high_ns), (cut, (cut + device.high_ns) // 2)):
            if low >= high:
                continue
            part = part_of(timeline, device, low, high).devices[0]
            known = (timeline, device.operations, device.busy, low, high, timeline.losses, device.index)
            account, gaps, withheld = account_device(*known)
            for one, other in ((part.segments.joined(), account.joined()), (part.gaps, gaps)):
                for column in fields(other):
                    assert np.array_equal(getattr(one, column.name), getattr(other, column.name))
            assert part.withheld.unsure_ns == withheld.unsure_ns
            for mine, alone in zip(part.withheld[:2], withheld[:2], strict=True):
                assert (mine.by_cause() == alone.by_cause()).all()
