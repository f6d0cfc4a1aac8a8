"""Memory that is free: kept by the C library for the next arrays, and given back before the steps that take most."""

from __future__ import annotations

import contextlib
import ctypes
import sys

#: Parameters of glibc's ``mallopt``, both set to the most that it takes: from which size on memory is asked for and
#: given back by itself, and how much that is free stays at the end of the heap.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _MOST_BYTES = -3, -1, 2**31 - 1


class _Heap:
    is_kept = False


def keep_freed() -> None:
    """Let the C library keep the memory of arrays that are gone for the next ones, in this process. Left to itself,
    glibc gives back what is larger than 32 MB, and every page of the next array is a fault."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
                mallopt(parameter, _MOST_BYTES)
            _Heap.is_kept = True


def give_back() -> None:
    """Give the holes back, where they are kept: before a step that takes most memory, whose arrays have other sizes, so
    that the peak is made of what is used. Elsewhere they are better used again: each page that is given back is a fault
    when it is next written to."""
    if _Heap.is_kept:
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
