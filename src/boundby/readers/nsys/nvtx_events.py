"""The kinds of rows in NVTX_EVENTS."""

from __future__ import annotations

from enum import IntEnum


class NvtxEvent(IntEnum):
    """``eventType``. The twins with T are those of texts that NVTX registered (nvtxStringHandle)."""

    MARK = 34
    PUSH_POP = 59
    START_END = 60
    PUSH_POP_T = 70
    START_END_T = 71
    DOMAIN_CREATE = 75


PUSH_POP = (NvtxEvent.PUSH_POP, NvtxEvent.PUSH_POP_T)
START_END = (NvtxEvent.START_END, NvtxEvent.START_END_T)
