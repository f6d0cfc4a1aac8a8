"""Damage to traces in JSON: cuts, flipped bytes, moved text, and values of every wrong kind in every field."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

_FIELDS = ("ts", "dur", "pid", "tid", "name", "cat", "ph", "args")
_ARGUMENTS = (
    *("device", "stream", "correlation", "bytes", "grid", "block", "Input Dims", "Input type", "Concrete Inputs"),
    *("Sequence number", "Process Group Ranks", "Collective name", "wait_on_stream", "Total Allocated"),
    *("registers per thread", "wait_on_cuda_event_record_corr_id", "Seq", "Device Type"),
)
_TOP = ("baseTimeNanoseconds", "deviceProperties", "distributedInfo", "schemaVersion")
_WRONG: tuple[Any, ...] = (
    *(None, -1, 0, 1e308, -1e300, 1 << 70, 1 << 62, -5.5, "x", "", "7", [1], {}, True, float("nan"), float("inf")),
    *("kernel", "cuda_runtime", "gpu_memcpy", 4294967295, [[1, 2], [3]], "[[1, 2]", [1 << 40] * 3, [{"id": "a"}]),
    {"rank": "x", "pg_config": [1, {}]},
)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One accident to the text of a trace, several times over."""
    return chance.choice(_ACCIDENTS)(data, chance, chance.choice((1, 1, 2, 5, 20)))


def _cut(data: bytes, chance: random.Random, _times: int) -> bytes:
    return data[: chance.randrange(len(data))]


def _bytes(data: bytes, chance: random.Random, times: int) -> bytes:
    out = bytearray(data)
    for _ in range(times):
        out[chance.randrange(len(out))] = chance.randrange(256)
    return bytes(out)


def _pieces(data: bytes, chance: random.Random, times: int) -> bytes:
    """Pieces of text are gone, or there twice."""
    out = bytearray(data)
    for _ in range(times):
        low = chance.randrange(max(len(out), 1))
        high = low + chance.randrange(1, 400)
        out[low:high] = b"" if chance.random() < 0.5 else out[low:high] * 2
    return bytes(out)


def _values(data: bytes, chance: random.Random, times: int) -> bytes:
    whole = json.loads(data)
    for _ in range(3 * times):
        event = chance.choice(whole["traceEvents"])
        if chance.random() < 0.5:
            event[chance.choice(_FIELDS)] = deepcopy(chance.choice(_WRONG))
        elif isinstance(event.setdefault("args", {}), dict):
            event["args"][chance.choice(_ARGUMENTS)] = deepcopy(chance.choice(_WRONG))
    return json.dumps(whole).encode()


def _rows(data: bytes, chance: random.Random, _times: int) -> bytes:
    """Events in another order, and only some of them."""
    whole = json.loads(data)
    chance.shuffle(whole["traceEvents"])
    del whole["traceEvents"][chance.randrange(len(whole["traceEvents"])) :]
    return json.dumps(whole).encode()


def _top(data: bytes, chance: random.Random, _times: int) -> bytes:
    whole = json.loads(data)
    whole[chance.choice(_TOP)] = deepcopy(chance.choice(_WRONG))
    return json.dumps(whole["traceEvents"] if chance.random() < 0.2 else whole).encode()


def _packed(data: bytes, chance: random.Random, times: int) -> bytes:
    packed = _bytes(gzip.compress(data, 1), chance, times)
    return _cut(packed, chance, 1) if chance.random() < 0.3 else packed


_ACCIDENTS: tuple[Callable[[bytes, random.Random, int], bytes], ...] = (
    _cut,
    _bytes,
    _pieces,
    _values,
    _values,
    _rows,
    _top,
    _packed,
)


def damaged_result(data: bytes, chance: random.Random) -> bytes:
    """The same to any JSON, a saved result say: its text, or values of the wrong kind anywhere in it."""
    if chance.random() < 0.3:
        return chance.choice((_cut, _bytes, _pieces))(data, chance, chance.choice((1, 2, 5)))
    whole = json.loads(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        place: Any = whole
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = chance.choice(keys)
            if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.1:
                break
            place = place[key]
        if chance.random() < 0.2 and len(place) > 1:
            del place[key]
        else:
            place[key] = deepcopy(chance.choice(_WRONG))
    return json.dumps(whole).encode()
