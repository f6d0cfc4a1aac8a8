"""The native core: one small library without a Python ABI, built from the C files in ``boundby/native``.

``hatch_build.py`` builds it when boundby is installed. Where there is none, or none that can be loaded, nothing is
analysed: the first call says why in one sentence, and how to mend it.
"""

from __future__ import annotations

import ctypes
import re
import sys
import zlib
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model import stage
from boundby.model.errors import ToolError

HERE = Path(__file__).parents[1] / "native"
NAME = "boundby_core" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
#: Of each type of C the types that a column of it may have.
_DTYPES = {
    "int64_t": ("i8",),
    "int32_t": ("i4",),
    "int8_t": ("i1",),
    "uint8_t": ("b1", "u1", "i1"),
    "double": ("f8",),
    "Found": ("i8",),  # seven numbers
}


class CStruct:
    """A record whose fields are those of the struct of its name in ``structs.h``."""

    @cached_property
    def structure(self) -> ctypes.Structure:
        """That struct: see `struct`."""
        name: str = type(self).__name__
        return struct(name, {column: getattr(self, column) for column in _layouts()[name][1]})


def struct(name: str, columns: Mapping[str, Any]) -> ctypes.Structure:
    """A struct of ``structs.h`` with these columns, which it keeps. Raises TypeError for one of another type, or one
    that is not contiguous, missing or not known."""
    made, types = _layouts()[name]
    if types.keys() != columns.keys():
        raise TypeError(f"{name} has other columns: {', '.join(sorted(types.keys() ^ columns.keys()))}")
    values: list[int] = []
    for column, kinds in types.items():
        value = columns[column]
        if not kinds:
            values.append(int(value))
        elif value.dtype.str[1:] in kinds and value.flags.c_contiguous:
            values.append(address(value))
        else:
            raise TypeError(f"{name}.{column} must be a contiguous column of {kinds[0]}")
    structure = made(*values)
    structure.kept_alive = columns
    return structure


@cache
def constant(name: str) -> int:
    """A number that a C file gives a name."""
    value = re.match(r"\d+", _programs().partition(f" {name} = ")[2])
    if value is None:
        raise KeyError(name)
    return int(value.group())


@cache
def _programs() -> str:
    """The text of all C files."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.c")))


@cache
def _layouts() -> dict[str, tuple[type[ctypes.Structure], dict[str, tuple[str, ...]]]]:
    """The structs of ``structs.h`` by name, and of each field the types of its column; none: it is a number."""
    text = re.sub(r"/\*.*?\*/", "", (HERE / "structs.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    layouts = {}
    for body, name in re.findall(r"typedef struct {(.*?)} (\w+);", text, re.DOTALL):
        types: dict[str, tuple[str, ...]] = {}
        for kind, names in re.findall(r"(?:const )?(\w+) ([^;]+);", body):
            types |= {
                declarator.strip(" *\n"): _DTYPES[kind] if "*" in declarator else () for declarator in names.split(",")
            }
        columns = [(column, ctypes.c_void_p if kinds else ctypes.c_int64) for column, kinds in types.items()]
        layouts[name] = type(name, (ctypes.Structure,), {"_fields_": columns}), types
    return layouts


def address(values: npt.NDArray[np.generic]) -> int:
    """Where contiguous values lie: ``values.ctypes.data``, which takes as long as a short pass does. Raises TypeError
    for values that are not contiguous."""
    try:
        return ctypes.addressof(_NO_BYTES.from_buffer(values))  # type: ignore[arg-type]  # an array is a buffer
    except (TypeError, ValueError):  # it cannot be written to, or is not contiguous
        if not values.flags.c_contiguous:
            raise TypeError("values must be contiguous") from None
        return values.ctypes.data


_NO_BYTES = ctypes.c_char * 0


@cache
def _function(name: str, arguments: int) -> ctypes._NamedFuncPointer:
    """A function of the library, to be called with so many addresses and numbers. ToolError without a library."""
    function = required()[name]
    function.restype, function.argtypes = ctypes.c_int64, (ctypes.c_int64,) * arguments
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


def run(function: str, *arguments: npt.NDArray[np.generic] | int | ctypes.Structure) -> int:
    """What a function of the library answers, called with pointers to these arrays and structs, which must be as it
    takes them, and 64-bit integers. ToolError without a library, TypeError for an array that is not contiguous,
    OutOfBoundsError where the stage that this is in has had its time or memory."""
    stage.check()
    values = [argument if type(argument) is int else _passed(argument) for argument in arguments]
    return int(_function(function, len(values))(*values))


def _passed(argument: npt.NDArray[np.generic] | int | ctypes.Structure) -> int:
    if isinstance(argument, np.ndarray):
        return address(argument)
    return ctypes.addressof(argument) if isinstance(argument, ctypes.Structure) else int(argument)


def integers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of integers as functions take it that are told how wide they are; itself if it is so already."""
    is_plain = values.dtype.kind in "ib" and values.flags.c_contiguous
    return values if is_plain else int64(values)


def int64(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """An array as the library takes it; itself if it is so already."""
    return np.ascontiguousarray(values, np.int64)
