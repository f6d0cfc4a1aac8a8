"""The native core: one small library without a Python ABI, built from the C files in ``boundby/native``.

``hatch_build.py`` builds it when boundby is installed. Where there is none, or none that can be loaded, nothing is
analysed: the first call says why in one sentence, and how to mend it.
"""

from __future__ import annotations

import ctypes
import sys
import zlib
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model import stage
from boundby.model.errors import ToolError
from boundby.model.records import dataclass, fields

HERE = Path(__file__).parents[1] / "native"
NAME = "boundby_core" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_DTYPES: dict[str, type[np.generic]] = {
    "BoolArray": np.bool_,
    "ByteArray": np.uint8,
    "Int8Array": np.int8,
    "Int32Array": np.int32,
    "Int64Array": np.int64,
    "FloatArray": np.float64,
}


@dataclass(frozen=True, eq=False)
class Record:
    """A struct of arrays: fields are arrays of the types above (passed as pointers), integers and truth values (as 64
    bits), in the order of the C struct."""

    @cached_property
    def structure(self) -> ctypes.Structure:
        """The C struct. Raises TypeError for a column of another type, or one that is not contiguous."""
        structure, columns = _structure(type(self))  # type: ignore[arg-type]  # a class can be hashed
        values: list[int] = []
        for name, kind in columns:
            value: npt.NDArray[np.generic] | int = getattr(self, name)
            if isinstance(value, np.ndarray):
                if value.dtype != _DTYPES[kind] or not value.flags.c_contiguous:
                    raise TypeError(f"{type(self).__name__}.{name} must be a contiguous {kind}")
                values.append(_address(value))
            else:
                values.append(int(value))
        return structure(*values)


def _address(values: npt.NDArray[np.generic]) -> int:
    """Where contiguous values lie: ``values.ctypes.data``, which takes as long as a short pass does."""
    if not values.flags.writeable:
        return values.ctypes.data
    return ctypes.addressof(_NO_BYTES.from_buffer(values))  # type: ignore[arg-type]  # an array is a buffer


_NO_BYTES = ctypes.c_char * 0


@cache
def _structure(record: type) -> tuple[type[ctypes.Structure], tuple[tuple[str, str], ...]]:
    """The C struct of a kind of record, and its columns: names and types."""
    columns = tuple((field.name, str(field.type)) for field in fields(record))
    types = [(column, ctypes.c_void_p if kind in _DTYPES else ctypes.c_int64) for column, kind in columns]
    return type(record.__name__, (ctypes.Structure,), {"_fields_": types}), columns


@cache
def _function(name: str, answer: type[ctypes._SimpleCData[int]]) -> ctypes._NamedFuncPointer:
    """A function of the library, and what it answers with. ToolError without a library."""
    function = required()[name]
    function.restype = answer
    return function


def fingerprint() -> int:
    """A number that changes with any C file: a library built from others is not used."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.[ch]"))))


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    try:
        library = ctypes.CDLL(str(HERE / NAME))
        built_from = int(library.boundby_sources())
    except (OSError, AttributeError):
        return None, "it was not built, or not for this machine"
    if built_from & 0xFFFFFFFF != fingerprint():
        return None, "it was built from other sources"
    return library, ""


def why_not() -> str | None:
    """Why the native core cannot be used, to complete "because"; None: it can."""
    library, reason = _load()
    return None if library else reason


def required() -> ctypes.CDLL:
    """The library. ToolError without one."""
    library, reason = _load()
    if library is None:
        raise ToolError(f"The native core is not there: {reason}.", MEND)
    return library


MEND = (
    "Install boundby again where there is a C compiler: pip install --force-reinstall --no-deps boundby"
    " (in a checkout: python hatch_build.py)."
)


def call(function: str, *records: Record) -> int:
    """What a function of the library answers, called with pointers to these structs. ToolError without a library,
    OutOfBoundsError where the stage that this is in has had its time or memory."""
    stage.check()
    return int(_function(function, ctypes.c_int)(*(ctypes.byref(record.structure) for record in records)))


def run(function: str, *arguments: npt.NDArray[np.generic] | int | Record) -> int:
    """What a function of the library answers, called with pointers to these arrays and structs, which must be as it
    takes them, and 64-bit integers. ToolError without a library, TypeError for an array that is not contiguous,
    OutOfBoundsError as `call`."""
    stage.check()
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Record):
            values.append(ctypes.byref(argument.structure))
        elif not isinstance(argument, np.ndarray):
            values.append(ctypes.c_int64(int(argument)))
        elif argument.flags.c_contiguous:
            values.append(ctypes.c_void_p(_address(argument)))
        else:
            raise TypeError(f"{function} takes contiguous arrays")
    return int(_function(function, ctypes.c_int64)(*values))


def integers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of integers as functions take it that are told how wide they are; itself if it is so already."""
    is_plain = values.dtype.kind in "ib" and values.flags.c_contiguous
    return values if is_plain else int64(values)


def int64(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """An array as the library takes it; itself if it is so already."""
    return np.ascontiguousarray(values, np.int64)
