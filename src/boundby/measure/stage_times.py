"""``stages``: where the time of a pipeline goes, on host and device, without stopping it to look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.annotate import nvtx_range
from boundby.measure import device as device_module
from boundby.measure import mistakes
from boundby.measure.comparisons import compare
from boundby.measure.device import Device, HostDevice, was_started
from boundby.measure.latencies import machine
from boundby.measure.results import (
    EVENT,
    METHOD_MEANING,
    WALL,
    DeviceState,
    MeasureError,
    StagesComparison,
    StagesResult,
    StageTimes,
    TargetError,
)
from boundby.measure.sampling import steady_from
from boundby.model.errors import UserError
from boundby.model.scale import HABIT


def stages(*, device: str | Device | None = None, synchronise: bool = False) -> Stages:
    """A recorder of stages.

    >>> from boundby.measure import stages
    >>> record = stages()
    >>> for frame in range(3):
    ...     with record("decode"):
    ...         work = sorted(range(100 - frame))
    >>> result = record.result()
    >>> result.passes, [stage.name for stage in result.stages]
    (3, ['decode'])

    Each stage is an NVTX range of the same name too, and on a GPU a pair of CUDA events on the current stream. Nothing
    waits for the device until ``result`` does, once. Stages may nest; use one recorder in one thread.

    Args:
        device: "cpu", "cuda", "cuda:1". Default: the current GPU if the program has started CUDA when the first stage
            begins, else the CPU.
        synchronise: wait for the device after each stage, as many do in order to time it: to see what that costs.
    """
    return Stages(device, synchronise=synchronise)


class _Entry(Struct):
    """One time that a stage was entered."""

    name: str
    depth: int
    host_begin_ns: int
    host_end_ns: int = 0
    begin: Any = None  # events
    end: Any = None


class _Resolved(Struct, frozen=True):
    """An entry on one axis: nanoseconds since the recorder's first stage."""

    name: str
    depth: int
    host: tuple[int, int]
    device: tuple[int, int] | None


class Stages:
    """Call it with a stage's name for the block that is the stage; ``result`` when all is done."""

    def __init__(self, device: str | Device | None = None, *, synchronise: bool = False) -> None:
        self._wanted, self._synchronise = device, synchronise
        self._device: Device | None = None
        self._entries: list[_Entry] = []
        self._open: list[_Entry] = []
        self._base: Any = None
        self._before: DeviceState | None = None
        self._base_ns = 0

    def __call__(self, name: str) -> _TimedStage:
        """The block ``with recorder("model1"):``."""
        return _TimedStage(self, name)

    def result(self, *, warmup: bool = True) -> StagesResult:
        """All stages so far, resolved: waits for the device, once. First passes that are unlike the rest are left out,
        by the rule of ``latency``; with ``warmup=False`` they count.

        Raises:
            MeasureError: a stage is still open, or none was entered.
        """
        if self._open:
            raise MeasureError(f"The stage {self._open[-1].name!r} is still open.", "Ask for the result after it.")
        if self._device is None:
            raise MeasureError(
                "No stage was entered.", "Put the parts of the pipeline into blocks: with stages('model1')."
            )
        self._device.synchronize()
        after = self._device.state()
        resolved = [self._resolved(entry) for entry in self._entries]
        measured = _result(resolved, self._device, synchronised=self._synchronise, warmup=warmup)
        noticed = tuple(mistakes.of_states(self._before, after))
        return replace(measured, after=after, machine=machine(), mistakes=noticed)

    def enter(self, name: str) -> _Entry:
        device = self._device or self._start()
        entry = _Entry("/".join([*(outer.name for outer in self._open[-1:]), name]), len(self._open), device.now_ns())
        if device.is_asynchronous:
            entry.begin = device.mark()
            device.record(entry.begin)
        self._entries.append(entry)
        self._open.append(entry)
        return entry

    def leave(self, entry: _Entry) -> None:
        device = self._device
        assert device is not None
        if device.is_asynchronous:
            entry.end = device.mark()
            device.record(entry.end)
            if self._synchronise:
                device.synchronize()
        entry.host_end_ns = device.now_ns()
        self._open.remove(entry)

    def _start(self) -> Device:
        if self._wanted is None:
            self._device = device_module.choose("cuda") if was_started() else HostDevice()
        else:
            self._device = device_module.choose(self._wanted)
        self._before = self._device.state()
        # The first stage begins on an idle device: then this event and this reading of the clock are one moment.
        self._device.synchronize()
        if self._device.is_asynchronous:
            self._base = self._device.mark()
            self._device.record(self._base)
        self._base_ns = self._device.now_ns()
        return self._device

    def _resolved(self, entry: _Entry) -> _Resolved:
        host = (entry.host_begin_ns - self._base_ns, entry.host_end_ns - self._base_ns)
        if self._device is None or entry.begin is None:
            return _Resolved(entry.name, entry.depth, host, None)
        between = self._device.between_ns
        return _Resolved(
            entry.name, entry.depth, host, (between(self._base, entry.begin), between(self._base, entry.end))
        )


class _TimedStage:
    """A block that is a stage."""

    def __init__(self, recorder: Stages, name: str) -> None:
        self._recorder, self._name = recorder, name
        self._range = nvtx_range(name)

    def __enter__(self) -> None:
        self._range.__enter__()
        self._entry = self._recorder.enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._recorder.leave(self._entry)
        self._range.__exit__(kind, error, traceback)


def pipeline(
    fn: Callable[..., object],
    *inputs: Any,
    passes: int = 30,
    device: str | Device | None = None,
    synchronise: bool = False,
    warmup: bool = True,
) -> StagesResult:
    """Call ``fn(stage, *inputs)`` so many times, where ``stage`` is a recorder: what ``boundby measure stages`` does.

    Raises:
        TargetError: ``fn`` raises. MeasureError: it enters no stage.
    """
    record = stages(device=device, synchronise=synchronise)
    try:
        for _ in range(passes):
            fn(record, *inputs)
    except UserError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise TargetError(
            f"The pipeline raises {text}.", 'Its first argument is the recorder: with stage("name"): ...'
        ) from error
    return record.result(warmup=warmup)


def pipeline_ways(
    fn: Callable[..., object],
    *inputs: Any,
    passes: int = 30,
    device: str | Device | None = None,
    warmup: bool = True,
) -> StagesComparison:
    """The three ways to time a pipeline, beside each other: ``pipeline`` as it runs (A), by the host's clock and by the
    device's events, and with the host waiting for the device after each stage (B). In turns, the middle run of each
    counts: what disturbs one run decides nothing."""
    runs: dict[bool, list[StagesResult]] = {False: [], True: []}
    for wait in (False, True) * HABIT:
        runs[wait].append(pipeline(fn, *inputs, passes=passes, device=device, synchronise=wait, warmup=warmup))
    as_it_is, waiting = (sorted(runs[wait], key=lambda run: run.pass_ns)[HABIT // 2] for wait in (False, True))
    return compare(as_it_is, waiting)


def _warm_passes(entries: Sequence[_Resolved], starts: Sequence[int]) -> int:
    """How many passes at the start to leave out. ``starts``: places of the entries that begin one."""
    if len(starts) < 2:
        return 0
    times = [entries[index].device or entries[index].host for index in starts]
    lengths = [later[0] - earlier[0] for earlier, later in pairwise(times)]
    return steady_from(lengths) or 0


def _of_stage(name: str, entries: Sequence[_Resolved], offsets: Sequence[int]) -> StageTimes:
    """``offsets``: how long after the begin of its pass each entry begins."""
    own = [(entry, ns) for entry, ns in zip(entries, offsets, strict=True) if entry.name == name]
    return _times(name, [entry for entry, _ in own], tuple(ns for _, ns in own))


def _length_ns(entries: Sequence[_Resolved], *, is_warm: bool) -> int:
    """From the begin of the first to the last end, on the host or its device."""
    end = max(max(entry.host[1], entry.device[1] if entry.device else 0) for entry in entries)
    first = entries[0]  # after warm-up the device may still work on that when the host goes on
    return end - (max(first.host[0], first.device[0]) if is_warm and first.device else first.host[0])


def _result(entries: Sequence[_Resolved], device: Device, *, synchronised: bool, warmup: bool) -> StagesResult:
    starts = [index for index, entry in enumerate(entries) if entry.depth == 0 and entry.name == entries[0].name]
    left_out = _warm_passes(entries, starts) if warmup else 0
    entries = entries[starts[left_out] :]
    pass_of = np.searchsorted(starts, np.arange(starts[left_out], starts[left_out] + len(entries)), side="right") - 1
    pass_begin = [entries[starts[number] - starts[left_out]].host[0] for number in pass_of.tolist()]
    offsets = [entry.host[0] - begin for entry, begin in zip(entries, pass_begin, strict=True)]
    names = list(dict.fromkeys(entry.name for entry in entries))
    top = [entry for entry in entries if entry.depth == 0]
    return StagesResult(
        device=device.name,
        device_name=device.label,
        clock=METHOD_MEANING[EVENT if device.is_asynchronous else WALL],
        stages=tuple(_of_stage(name, entries, offsets) for name in names),
        end_to_end_ns=_length_ns(entries, is_warm=left_out > 0),
        passes=sum(entry.name == names[0] for entry in entries),
        synchronised=synchronised and device.is_asynchronous,
        synchronised_estimate_ns=synchronised_estimate(top) if device.is_asynchronous and not synchronised else None,
        warmup_passes=left_out,
    )


def _times(name: str, entries: Sequence[_Resolved], begin_ns: tuple[int, ...]) -> StageTimes:
    spans = [(entry.host, entry.device) for entry in entries if entry.device is not None]
    return StageTimes(
        name,
        tuple(entry.host[1] - entry.host[0] for entry in entries),
        tuple(device[1] - device[0] for _, device in spans) if spans else None,
        tuple(_wait(host, device) for host, device in spans) if spans else None,
        begin_ns,
    )


def _wait(host: tuple[int, int], device: tuple[int, int]) -> int:
    return max(0, device[0] - host[0])


def synchronised_estimate(entries: Sequence[_Resolved]) -> tuple[int, int]:
    """[low, high] of the time the same stages would have taken had the host waited for the device after each.

    A stage would then take the longer of its host and its device time. The host's time of a stage may hold waiting for
    earlier stages' work (an ``.item()`` in it), which would have been over by then. That shows only as the time until
    the stream came to the stage, and only if the host was still in the stage then: the low end takes it for waiting,
    the high end for the host's own work.
    """
    low = high = 0
    before = entries[0].host[0] if entries else 0
    for entry in entries:
        between = entry.host[0] - before
        own = entry.host[1] - entry.host[0]
        begin, end = entry.device or (entry.host[0], entry.host[0])
        waited = min(own, _wait(entry.host, (begin, end))) if entry.host[1] >= begin else 0
        low += between + max(own - waited, end - begin)
        high += between + max(own, end - begin)
        before = entry.host[1]
    return low, high
