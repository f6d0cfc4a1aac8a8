"""What sets the pace: a source outside of the program, the upload of each batch, the size of chunks."""

from __future__ import annotations

import pytest

from boundby.evidence.host_idleness import Idleness, external_pace, host_pieces
from boundby.evidence.launches import chunks, saving_by_size
from boundby.evidence.transfers import batch_uploads
from boundby.simulate.instructions import (
    MS,
    US,
    Await,
    Copy,
    Instruction,
    Launch,
    Loop,
    Range,
    Signal,
    Sleep,
    Sync,
    Thread,
    Work,
    program,
    threads,
)
from tests.rules.builtin.harness import Source, context_of, findings
from tests.support.traces import analysis_of

FRAMES, CHUNKS = 60, 8_000
FRAME = [Await("frame"), Work(10 * MS, 0.3), Copy(1 << 20), Launch("gray", 1 * MS), Sync()]


def fed(*makes: Instruction) -> Source:
    """One thread hands over a frame at a time, the other works on it for about 10 ms."""
    source = Thread((Loop(FRAMES, [*makes, Signal("frame")]),), "source")
    return Source(threads(Thread((Loop(FRAMES, FRAME),)), source))


def test_a_camera_sets_the_pace() -> None:
    pace = external_pace(context_of(fed(Sleep(40 * MS, "ioctl"))))
    assert pace is not None
    assert pace.period_ns == pytest.approx(40 * MS, rel=0.01)
    assert pace.gpu_ns == pytest.approx(1 * MS, rel=0.1)
    assert pace.host_ns == pytest.approx(10 * MS, rel=0.2)


@pytest.mark.parametrize(
    "makes",
    [
        pytest.param((Work(40 * MS, 0.02),), id="a decoder that is busy all the time"),
        pytest.param((Sleep(40 * MS, "read", 0.3),), id="a disk that takes more or less time"),
        pytest.param((Sleep(1 * MS, "ioctl"),), id="a source that is faster than the program"),
    ],
)
def test_no_pace_from_outside(makes: tuple[Instruction, ...]) -> None:
    assert external_pace(context_of(fed(*makes))) is None


def test_steps_that_always_take_as_long_do_not_show_a_pace() -> None:
    """Nothing varies, so nothing tells whether the period would follow."""
    step = [Work(1 * MS), Launch("gemm", 1 * MS), Sync(), Sleep(10 * MS, "read")]
    assert external_pace(context_of(Source(program(Loop(FRAMES, step))))) is None


def test_below_the_pace_nothing_is_promised() -> None:
    found = findings(fed(Sleep(40 * MS, "ioctl")))
    assert [item.rule for item in found if item.severity != "note"] == ["external-pace"]
    assert not any(item.saving_ns for item in found)


def batches(upload: int, readback: int) -> Source:
    """A step prepares a batch for 5 ms, uploads its two parts, computes for 1 ms and reads something back."""
    parts = Copy(upload), Copy(upload)
    step = [Work(5 * MS, 0.1), *parts, Launch("net", 1 * MS), Copy(readback, "DtoH"), Sync()]
    return Source(program(Loop(20, step)))


@pytest.mark.parametrize(
    ("upload", "readback", "is_input"), [(1 << 20, 8, True), (8, 8, False), (1 << 20, 2 << 20, False)]
)
def test_gaps_that_end_in_the_upload_of_a_batch_are_input(upload: int, readback: int, is_input: bool) -> None:
    """A scalar is no batch, and what is made of results that were read back is no input."""
    context = context_of(batches(upload, readback))
    (device,) = context.timeline.devices
    assert (batch_uploads(context, device) > 0).any() == is_input
    assert not is_input or batch_uploads(context, device).max() == 2 * upload
    pieces = host_pieces(context)
    waited_ns = pieces.total_ns(pieces.of_kind(Idleness.INPUT))
    # Of the 5 ms before an upload the sync before them is to blame for one.
    assert waited_ns == (pytest.approx(19 * 4 * MS, rel=0.15) if is_input else 0)


def test_larger_chunks_save_what_the_same_program_saves_with_them() -> None:
    """The range holds what the simulated machine takes with chunks 20 times as large."""

    def cut(into: int) -> Source:
        piece, kernel = (64 << 20) // into, 2 * US * CHUNKS // into
        chunk = [Copy(piece, stream=1), Launch("add", kernel, 1), Copy(piece, "DtoH", stream=1)]
        return Source(program(Loop(into, chunk), Sync()))

    small, large = (context_of(cut(into)) for into in (CHUNKS, CHUNKS // 20))
    of = chunks(small)
    assert of is not None
    low, high = saving_by_size(small, of)
    saved = small.longest_window_ns - large.longest_window_ns
    assert low <= saved <= high
    assert chunks(large) is None


def test_real_chunks_save_what_was_measured() -> None:
    context = analysis_of("pair_chunks_of_1000.sqlite").rule_context
    of = chunks(context)
    assert of is not None
    low, high = saving_by_size(context, of)
    assert low <= 138_700_000 <= high
    assert high - low < 0.25 * context.longest_window_ns


def test_a_real_camera() -> None:
    pace = external_pace(analysis_of("camera_25_frames_a_second.sqlite").rule_context)
    assert pace is not None
    assert pace.period_ns == pytest.approx(40 * MS, rel=0.01)
    assert pace.gpu_ns == pytest.approx(1.4 * MS, rel=0.05)


@pytest.mark.parametrize(("steps", "is_told"), [(1, True), (20, False)])
def test_the_wait_for_the_first_batch_of_many_is_no_finding(steps: int, is_told: bool) -> None:
    """A thread of its own reads ahead: only the first batch has no work to hide behind."""
    feeder = Thread((Loop(steps, [Sleep(2 * MS, "read"), Signal("batch")]),), "feeder")
    step = Range("step {i}", [Range("data", [Await("batch")]), Launch("gemm", 4 * MS), Sync()])
    source = Source(threads(Thread((Loop(steps, [step]),)), feeder))
    assert bool([item for item in findings(source) if item.rule.startswith("host-")]) == is_told
