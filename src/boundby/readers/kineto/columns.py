"""What is asked of Kineto's JSON: its events as columns (which are what, their arguments, their names), and what stands
beside them (the job, the profiler, the clock)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import MISSING, Int8Array, Int32Array, Int64Array, unique
from boundby.model.late import expression
from boundby.model.units import FURTHEST_NS
from boundby.native.passes import NUMBER, RAW, TEXT, JsonEvents
from boundby.readers.sanitize import bounded
from boundby.trace.facts import JobPlace, ProcessGroup

OTHER, KERNEL, COPY, SET, CALL, OPERATOR, ANNOTATION, MODULE, FRAME, OVERHEAD, SYNC, MEMORY = range(12)
# Categories by what they are; 2021's are capitalised, and some vendors' runtimes have their own.
_KIND_OF = {
    "kernel": KERNEL,
    **dict.fromkeys(("gpu_memcpy", "memcpy"), COPY),
    **dict.fromkeys(("gpu_memset", "memset"), SET),
    **dict.fromkeys(("runtime", "driver"), CALL),
    **dict.fromkeys(("cpu_op", "operator"), OPERATOR),
    "user_annotation": ANNOTATION,
    "python_function": FRAME,
    "overhead": OVERHEAD,
    "cuda_sync": SYNC,
    "cpu_instant_event": MEMORY,
}
_CALLS = ("_runtime", "_driver")  # cuda_runtime, xpu_runtime, mtia_runtime, privateuse1_driver ...
MODULE_PREFIX = "nn.Module: "
_ANNOTATION = expression(r"^ProfilerStep#|^Optimizer\.\w+#|^enumerate\(DataLoader\)#")  # operators' category in 2021
_INTEGER = expression(r"-?\d{1,18}")

T = TypeVar("T")


def kinds_of(events: JsonEvents) -> Int8Array:
    """Per event what it is, by its category and, of Python functions and of 2021's files, its name."""
    kind: Int8Array = np.full(len(events), OTHER, np.int8)
    for number in unique(events.category[events.category >= 0]).tolist():
        text = events.texts[number].lower()
        kind[events.category == number] = _KIND_OF.get(text, CALL if text.endswith(_CALLS) else OTHER)
    is_module = np.array([*(text.startswith(MODULE_PREFIX) for text in events.texts), False], bool)[events.name]
    is_annotation = np.array([*(bool(_ANNOTATION.match(text)) for text in events.texts), False], bool)[events.name]
    kind[is_module & (kind == FRAME)] = MODULE
    kind[is_annotation & (kind == OPERATOR)] = ANNOTATION
    is_interval = events.phase == ord("X")
    kind[np.where(kind == MEMORY, is_interval, ~is_interval)] = OTHER
    return kind


class Columns:
    """The events of one file on their way into tables. ``names`` grows by what tables ask for."""

    def __init__(self, events: JsonEvents) -> None:
        self.events = events
        self.kind = kinds_of(events)
        self._names: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All names that tables asked for until now: Trace.names."""
        return tuple(self._names)

    def number(self, key: str, rows: npt.NDArray[Any]) -> Int64Array:
        """The numbers that an argument is in these rows; MISSING where it is none."""
        kind, value = self.events.argument(key)
        numbers: Int64Array = np.where(kind == NUMBER, value, MISSING)[rows]
        is_text = (kind == TEXT)[rows]
        if is_text.any():  # "3"
            texts = [self.events.texts[text] for text in value[rows[is_text]].tolist()]
            numbers[is_text] = [int(text) if _INTEGER.fullmatch(text) else MISSING for text in texts]
        return numbers

    def within(self, key: str, rows: npt.NDArray[Any], low: int, stop: int, otherwise: int) -> Int64Array:
        """Whole numbers of a key; what is missing, or not from ``low`` to below ``stop``, is ``otherwise``."""
        value = self.number(key, rows)
        return np.where((value >= low) & (value < stop), value, otherwise)

    def text(self, key: str, rows: npt.NDArray[Any]) -> Int64Array:
        """Which text (of ``events.texts``) an argument is in these rows, lists and objects as JSON; -1: none."""
        kind, value = self.events.argument(key)
        ids: Int64Array = np.where((kind == TEXT) | (kind == RAW), value, -1)[rows]
        return ids

    def each(self, texts: npt.NDArray[Any], work: Callable[[str], T], otherwise: T) -> list[T]:
        """What ``work`` makes of each text of ``events.texts``, worked out once for each; ``otherwise`` for -1."""
        used, inverse = np.unique(texts, return_inverse=True)
        made = [work(self.events.texts[number]) if number >= 0 else otherwise for number in used.tolist()]
        return [made[index] for index in inverse.reshape(-1).tolist()]

    def name(self, texts: npt.NDArray[Any], work: Callable[[str], str] = str) -> Int32Array:
        """The number in ``names`` of each of these texts of ``events.texts``; -1 for -1."""
        used, inverse = np.unique(texts, return_inverse=True)
        numbers = [
            self._names.setdefault(bounded(work(self.events.texts[number])), len(self._names)) if number >= 0 else -1
            for number in used.tolist()
        ]
        return np.array(numbers or [0], np.int32)[inverse.reshape(-1)]

    def names_of(self, texts: list[str]) -> Int32Array:
        """The number in ``names`` of each of these texts, which are no event's."""
        return np.array([self._names.setdefault(text, len(self._names)) for text in texts], np.int32)

    def name_of(self, rows: npt.NDArray[Any], work: Callable[[str], str] = str) -> Int32Array:
        """The number in ``names`` of the name of each of these events; those without one are "(unnamed)"."""
        ids = self.name(self.events.name[rows], work)
        if (ids < 0).any():
            ids[ids < 0] = self._names.setdefault("(unnamed)", len(self._names))
        return ids


# What stands beside the events.

_LEAST_UNIX_NS = FURTHEST_NS // 4  # 2006: no machine has been up for as long
_TOLD = (
    *("schemaVersion", "cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version"),
    *("hip_runtime_version", "hip_driver_version", "with_stack", "with_modules", "record_shapes", "profile_memory"),
)


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; of anything else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def integers(text: str) -> list[int]:
    """All integers in a text."""
    return [int(number) for number in re.findall(r"-?\d{1,18}", text)]


def listed_ranks(text: str) -> tuple[int, ...]:
    """The ranks in a list; () where it was cut short ("[0, 1, ..., 127]")."""
    return () if "..." in text else tuple(integers(text))


def _job(top: dict[str, Any]) -> dict[str, Any]:
    info = top.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def place_in_job(top: dict[str, Any]) -> JobPlace:
    """Which rank wrote the trace."""
    info = _job(top)
    rank, world = (info[key] if isinstance(info.get(key), int) else None for key in ("rank", "world_size"))
    return JobPlace(rank, world, str(info["backend"]) if info.get("backend") else None)


def configured_groups(top: dict[str, Any]) -> list[ProcessGroup]:
    """The process groups that the job had made when the trace was written."""
    return [
        ProcessGroup(
            name=str(group.get("pg_name", "")),
            description=str(group.get("pg_desc", "")),
            ranks=listed_ranks(json.dumps(group.get("ranks"))),
        )
        for group in objects(_job(top).get("pg_config"))
    ]


def unix_time(top: dict[str, Any], time_ns: int) -> int | None:
    """Unix time of an event's time, which counts from ``baseTimeNanoseconds`` where that is told, or else from 1970.
    None: it counts from when the machine was started."""
    base = top.get("baseTimeNanoseconds")
    if time_ns >= _LEAST_UNIX_NS:
        return time_ns
    return time_ns + base if isinstance(base, int) and 0 < base < 1 << 62 else None


def metadata(top: dict[str, Any]) -> dict[str, str]:
    """Versions and settings of the profiler; nothing of the user or the machine."""
    return {key: str(top[key]) for key in _TOLD if isinstance(top.get(key), (int, float, str))}
