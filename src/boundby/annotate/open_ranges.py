"""Which push/pop ranges are open on each thread, so that every one of them gets closed, and in order.

NVTX pops whatever was pushed last. A range that was left open (by an exception that passed a hook, by a loop that was
left while its iterator lives on) would make every later pop close the wrong one. Here each range has an owner, and
closing a range closes what is still open inside it first.
"""

from __future__ import annotations

import os
import threading

from boundby.annotate.backends import Marker


class Owner:
    """Owns one range, which ``release`` can close."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        self.is_open = True


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[object, Marker]] = []


_thread = _Thread()
#: Owners that have released their range while it was not the innermost one. Mostly empty.
_late: set[object] = set()


def push(owner: object, marker: Marker) -> None:
    """Open a range on this thread."""
    stack = _thread.open
    if _late:
        _sweep(stack)
    marker.push()
    stack.append((owner, marker))


def pop(owner: object) -> None:
    """Close the innermost range of this owner on this thread, and what was left open inside it. It may be closed."""
    stack = _thread.open
    if stack and stack[-1][0] is owner:
        stack.pop()[1].pop()
    else:
        _pop_through(stack, owner)
    if _late:
        _sweep(stack)


def release(owner: Owner) -> None:
    """Close a range from anywhere, at any time: at once if it is the innermost one here, else when it becomes that.

    For ranges whose end is not tied to a block, such as those of an iterator that is collected as garbage later, on
    another thread, or while its consumer has opened ranges of its own.
    """
    if owner.is_open:
        _late.add(owner)
        _sweep(_thread.open)


def depth() -> int:
    """How many ranges are open on this thread."""
    return len(_thread.open)


def _pop_through(stack: list[tuple[object, Marker]], owner: object) -> None:
    if not any(other is owner for other, _ in stack):
        return
    while _close_innermost(stack) is not owner:
        pass


def _sweep(stack: list[tuple[object, Marker]]) -> None:
    while stack and stack[-1][0] in _late:
        _close_innermost(stack)


def _close_innermost(stack: list[tuple[object, Marker]]) -> object:
    owner, marker = stack.pop()
    marker.pop()
    if isinstance(owner, Owner):
        owner.is_open = False
        _late.discard(owner)
    return owner


def _forget() -> None:
    for owner, _ in _thread.open:
        if isinstance(owner, Owner):
            owner.is_open = False
    _thread.open.clear()
    _late.clear()


# A forked child has none of its parent's ranges open: closing them there would close what the child opens itself.
os.register_at_fork(after_in_child=_forget)
