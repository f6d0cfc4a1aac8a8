"""Frames of a camera, of which each takes more or less work; a decoder that is busy all the time; no schedules."""

from __future__ import annotations

from boundby.simulate.instructions import (
    MS,
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
    threads,
)
from tests.rules.builtin.harness import RuleCases, Source, without

FRAMES = 60


def _fed(*makes: Instruction) -> Source:
    """One thread hands over a frame at a time, the other works on it: for 10 ms, more or less."""
    step = Range("frame {i}", [Await("frame"), Work(10 * MS, 0.3), Copy(1 << 20), Launch("gray", 1 * MS), Sync()])
    source = Thread((Loop(FRAMES, [*makes, Signal("frame")]),), "source")
    return Source(threads(Thread((Loop(FRAMES, [step]),)), source))


def camera() -> Source:
    return _fed(Sleep(40 * MS, "ioctl"))


def decoder() -> Source:
    return _fed(Work(40 * MS, 0.02))


def without_schedules() -> Source:
    return without(camera(), "schedule")


CASES = RuleCases(positive=camera, negative=decoder, missing=without_schedules, also=("sync-call",))
