"""What of a rank's time is waiting: whatever runs beside the end of what it waits for."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.jobs.rank_summary import Meetings, Own, Piece, RankEvents, RankWork, compact, fingerprint
from boundby.model.causes import Cause

US = 1_000
BUSY, COMM = int(Cause.GPU_COMPUTE), int(Cause.GPU_COMM)


def summed(
    pieces: list[tuple[int, int, int]], meetings: list[tuple[int, int, int]], own: list[tuple[int, int]]
) -> tuple[RankEvents, dict[int, int]]:
    """A rank's events, and its own time by cause. ``pieces``: start, end, cause; ``meetings``: start, end, stream;
    ``own``: start of an operation, and when its launch had arrived. In us."""
    start, end, cause = np.array(pieces, np.int64).T
    begun, over, stream = np.array(meetings, np.int64).T
    count, none = len(meetings), np.zeros(len(meetings), np.int32)
    untold = np.full(count, -1, np.int64)
    starts, arrived = np.array(own, np.int64).reshape(-1, 2).T
    found, events, work = compact(
        Piece(start * US, end * US, cause.astype(np.int8), np.zeros(len(pieces), np.int32)),
        Meetings(begun * US, over * US, begun * US, stream, none, none, untold, untold, none),
        (int(start[0]) * US, int(end[-1]) * US),
        np.empty(0, np.int64),
        Own(starts * US, arrived * US, np.arange(1, len(own) + 1)),
    )
    assert len(found) == count
    return events, _by_cause(work)


def _by_cause(work: RankWork) -> dict[int, int]:
    return {cause: int(work.ns[work.cause == cause].sum()) // US for cause in np.unique(work.cause).tolist()}


def test_a_wait_counts_though_a_kernel_begins_before_it_is_over() -> None:
    pieces = [(0, 100, BUSY), (100, 640, COMM), (640, 900, BUSY)]
    events, own = summed(pieces, [(100, 647, 9)], [(0, 0), (640, 5)])
    assert own == {BUSY: 360}
    assert events.time_ns[events.is_join].tolist() == [640 * US]


@pytest.mark.parametrize(
    ("meetings", "operations", "waited"),
    [
        # The host launched late: the collective had nothing to do with it.
        ([(100, 647, 9)], [(0, 0), (640, 639)], 0),
        # It was launched while the device waited: what came after that is a wait.
        ([(100, 647, 9)], [(0, 0), (640, 300)], 340),
        # The collective goes on for longer than the device had nothing else to do: it runs beside.
        ([(100, 2_000, 9)], [(0, 0), (640, 5)], 0),
        # What ended just before is what it waited for, and not another one that goes on.
        ([(100, 639, 9), (200, 700, 11)], [(0, 0), (640, 5)], 539),
    ],
)
def test_what_a_kernel_waited_for_is_told_by_its_launch_and_by_what_ended_nearest(
    meetings: list[tuple[int, int, int]], operations: list[tuple[int, int]], waited: int
) -> None:
    pieces = [(0, 100, BUSY), (100, 640, COMM), (640, 2_000, BUSY)]
    _, own = summed(pieces, meetings, operations)
    assert own.get(COMM, 0) == 540 - waited


def test_events_tell_which_kernels_have_begun_since_the_one_before() -> None:
    pieces = [(0, 100, BUSY), (100, 200, COMM), (200, 300, BUSY), (300, 400, COMM), (400, 500, BUSY)]
    events, _ = summed(pieces, [(100, 200, 9), (300, 400, 9)], [(0, 0), (50, 0), (200, 5), (400, 5)])
    assert events.kernels.tolist() == [1 + 2, 0, 3, 0]
    assert fingerprint("gemm") == fingerprint("gemm") != fingerprint("gemv")
