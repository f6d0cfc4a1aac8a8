"""Perfetto packets by the million: each kind is serialized once by Perfetto's own protos, then stamped with columns.

A packet made field by field in Python takes some 10 us; a trace of a million kernels has nine million of them. So the
values that differ between packets are given a fixed width (protobuf allows padded varints, and Perfetto's own writer
uses them), their places in the serialized packet are found, and NumPy writes whole columns into copies of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model.errors import UserError
from boundby.render.text import clean

Int = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SEQUENCE = 1  # all events are of one writer, so that all share its interned texts
DESCRIPTIONS = 2  # tracks are described by another: events of a writer that describes a thread would be taken for its
NARROWEST, WIDEST = 4, 9  # bytes of a padded varint: below, its place could not be told for sure; 63 bits above
FIXED = 8  # bytes of a fixed64


def protos() -> Any:
    """Perfetto's message types. Raises UserError where the package is not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        message = "Writing a Perfetto trace needs the perfetto package, which is not installed."
        raise UserError(message, "Run: pip install 'boundby[perfetto]'") from error
    return perfetto_trace_pb2


def width_of(largest: int) -> int:
    """Bytes that a varint of up to ``largest`` gets."""
    return min(max(-(-int(largest).bit_length() // 7), NARROWEST), WIDEST)


class Marks:
    """Placeholder values for one template: each serializes to bytes that stand nowhere else in it."""

    def __init__(self) -> None:
        self.places: list[tuple[str, int, bytes]] = []  # name, width, bytes looked for

    def varint(self, name: str, width: int) -> int:
        """A value to set where the column ``name`` will be stamped, ``width`` bytes wide."""
        septets = [0x41 + len(self.places), *([0x55] * (width - 2)), 0x2A]
        self.places.append((name, width, bytes([*(0x80 | septet for septet in septets[:-1]), septets[-1]])))
        return sum(septet << (7 * place) for place, septet in enumerate(septets))

    def fixed(self, name: str) -> int:
        """The same for a fixed64."""
        data = bytes([0xC1 + len(self.places), *([0xAD] * (FIXED - 1))])
        self.places.append((name, 0, data))
        return int.from_bytes(data, "little")


class Template:
    """One serialized packet, framed as a trace file wants it, to be stamped with columns."""

    def __init__(self, packet: Any, marks: Marks) -> None:
        data = framed(packet)
        self._bytes: Bytes = np.frombuffer(data, np.uint8)
        self._fields: list[tuple[str, int, int]] = []  # name, width (0: fixed64), offset
        for name, width, wanted in marks.places:
            if data.count(wanted) != 1:
                raise AssertionError(f"the place of {name} in a packet is not certain")
            self._fields.append((name, width, data.index(wanted)))

    def __len__(self) -> int:
        return len(self._bytes)

    def stamp(self, columns: Mapping[str, Int], count: int) -> Bytes:
        """``count`` packets, shape (count, bytes of one)."""
        packets = np.tile(self._bytes, (count, 1))
        for name, width, offset in self._fields:
            value = columns[name].astype(np.uint64)
            if width == 0:
                packets[:, offset : offset + FIXED] = value.astype("<u8").view(np.uint8).reshape(count, FIXED)
                continue
            for place in range(width):
                septet = (value >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
                packets[:, offset + place] = septet | (0x80 if place < width - 1 else 0)
        return packets


def interleave(count: int, parts: Sequence[tuple[npt.NDArray[np.intp], Bytes]]) -> bytes:
    """Packets of several templates in one order: each part's packets stand at its places, of ``count`` in all."""
    sizes = np.zeros(count, np.int64)
    for places, packets in parts:
        sizes[places] = packets.shape[1]
    offset = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    for places, packets in parts:
        data[offset[places][:, None] + np.arange(packets.shape[1])] = packets
    return data.tobytes()


def framed(packet: Any) -> bytes:
    """A packet as a file holds it: a Trace of one packet; traces are joined by joining their bytes."""
    found: bytes = protos().Trace(packet=[packet]).SerializeToString()
    return found


class Texts:
    """Texts that packets name by number. ``new`` gives those added since it was last asked, to be written first."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._written = 0

    def add(self, text: str) -> int:
        """The number of a text, counted from 1."""
        return self._number.setdefault(text, len(self._number) + 1)

    def add_all(self, texts: Sequence[str], used: Int, *, unnamed: str = "(unnamed)") -> Int:
        """Numbers for ``texts[used]``; only texts that are used are kept. Text from traces is made harmless."""
        distinct, inverse = np.unique(used, return_inverse=True)
        named = (clean(texts[index]).strip() if index >= 0 else "" for index in distinct.tolist())
        return np.array([self.add(name or unnamed) for name in named], np.int64)[inverse]

    def new(self) -> list[tuple[int, str]]:
        """(number, text) of the texts not yet written."""
        found = [(number, text) for text, number in list(self._number.items())[self._written :]]
        self._written = len(self._number)
        return found
