"""What stands beside the events of a Kineto trace: the job, the profiler, the clock."""

from __future__ import annotations

import json
import re
from typing import Any

from boundby.model.units import FURTHEST_NS
from boundby.trace.facts import JobPlace, ProcessGroup

_LEAST_UNIX_NS = FURTHEST_NS // 4  # 2006: no machine has been up for as long
_TOLD = (
    *("schemaVersion", "cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version"),
    *("hip_runtime_version", "hip_driver_version", "with_stack", "with_modules", "record_shapes", "profile_memory"),
)


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; of anything else none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def integers(text: str) -> list[int]:
    """All integers in a text."""
    return [int(number) for number in re.findall(r"-?\d{1,18}", text)]


def ranks(text: str) -> tuple[int, ...]:
    """The ranks in a list; () where it was cut short ("[0, 1, ..., 127]")."""
    return () if "..." in text else tuple(integers(text))


def _job(top: dict[str, Any]) -> dict[str, Any]:
    told = top.get("distributedInfo")
    return told if isinstance(told, dict) else {}


def place_in_job(top: dict[str, Any]) -> JobPlace:
    """Which rank wrote the trace."""
    told = _job(top)
    rank, world = (told[key] if isinstance(told.get(key), int) else None for key in ("rank", "world_size"))
    return JobPlace(rank, world, str(told["backend"]) if told.get("backend") else None)


def configured_groups(top: dict[str, Any]) -> list[ProcessGroup]:
    """The process groups that the job had made when the trace was written."""
    return [
        ProcessGroup(
            name=str(group.get("pg_name", "")),
            description=str(group.get("pg_desc", "")),
            ranks=ranks(json.dumps(group.get("ranks"))),
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
