"""The causes of the account, one row each: their keys, words and looks; the names that a verdict can carry; and the
named what-if scenarios, one row each: which causes are removed, and how people are told.

``CAUSES`` is the order in which causes are stored (arrays are indexed by it) and shown. How the replay removes a cause
is in `boundby.replay.removals`.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Cause(IntEnum):
    """What one nanosecond of a device's timeline was spent on. Exactly one applies to each."""

    GPU_COMPUTE = 0
    GPU_COMM = 1
    GPU_COPY = 2
    SYNC = 3
    CUDA_API = 4
    INIT = 5
    CPU = 6
    HOST_BLOCKED = 7
    DEVICE_WAIT = 8
    PROFILER = 9
    UNATTRIBUTED = 10

    def __init__(self, _: int) -> None:
        self.key = self._name_.lower()  #: the name used in JSON, CSV and SQLite: ``gpu_compute``, ``sync``, ...


class CauseInfo(Struct, frozen=True):
    """One cause in every format. Fields left empty: no verdict names it (``bound``), accounts of host threads do not
    hold it (``host_meaning``), no change to the program removes it (``noun``)."""

    key: str  # in JSON, CSV and SQLite
    letter: str  # in bars without colour
    label: str  # its one name, in tables and sentences
    meaning: str  # what a device's time is spent on
    color: str  # ``#rrggbb``, the same in the terminal, in HTML and in figures
    ink: str  # what is written on that colour
    bound: str = ""  # the verdict
    host_meaning: str = ""  # what a host thread's time is spent on, in traces without GPU work
    noun: str = ""  # what a saving supposes to be gone
    hatch: str = ""  # in figures, for those who cannot tell the colours apart
    marker: str = "o"  # of single gaps in figures, likewise


# Cool colours mean that the GPU works, warm ones that it idles for a reason a program can change, greys the rest. They
# are those of Okabe and Ito where possible, which colour-blind readers tell apart; letters say the same anyway.
_ROWS = (
    CauseInfo(
        key="gpu_compute",
        letter="C",
        label="compute",
        bound="compute bound",
        meaning="a kernel runs",
        noun="compute",
        color="#0f9d6e",
        ink="#04170f",
    ),
    CauseInfo(
        key="gpu_comm",
        letter="N",
        label="communication",
        bound="communication bound",
        meaning="a communication kernel runs (NCCL, NVSHMEM)",
        noun="communication",
        color="#0072b2",
        ink="#ffffff",
        hatch="////",
    ),
    CauseInfo(
        key="gpu_copy",
        letter="M",
        label="copy",
        bound="copy bound",
        meaning="a memory copy, set or page migration runs",
        noun="copies",
        color="#56b4e9",
        ink="#10222e",
        hatch="....",
    ),
    CauseInfo(
        key="sync",
        letter="s",
        label="sync",
        bound="sync bound",
        meaning="the device is idle because the host had waited for it",
        host_meaning="the thread waits for the device",
        noun="syncs",
        color="#cc4357",
        ink="#ffffff",
        hatch="xxxx",
        marker="D",
    ),
    CauseInfo(
        key="cuda_api",
        letter="a",
        label="launch overhead",
        bound="bound by launch overhead",
        meaning="the device is idle while the host launches work, or prepares the next launch",
        host_meaning="the thread is in CUDA calls, or prepares the next one",
        noun="launch overhead",
        color="#e8871e",
        ink="#2b1600",
        hatch="\\\\\\\\",
        marker="s",
    ),
    CauseInfo(
        key="init",
        letter="i",
        label="initialization",
        bound="bound by initialization",
        meaning="the device is idle during context creation, module load, JIT, or the allocation or freeing of memory",
        host_meaning="the thread loads modules, creates contexts, or allocates or frees memory",
        noun="initialization",
        color="#b07aa1",
        ink="#1d0f19",
        hatch="++++",
        marker="P",
    ),
    CauseInfo(
        key="cpu",
        letter="h",
        label="host code",
        bound="bound by host code",
        meaning="the device is idle while the host runs its own code",
        host_meaning="the thread runs its own code",
        noun="host code",
        color="#f0c808",
        ink="#2e2600",
    ),
    CauseInfo(
        key="host_blocked",
        letter="b",
        label="blocked",
        bound="waiting for a blocked host",
        meaning="the device is idle while the host is blocked: it waits for files, locks or other processes",
        host_meaning="the thread is blocked: it waits for files, locks or other processes",
        noun="blocked time",
        color="#9c6644",
        ink="#ffffff",
        hatch="----",
        marker="X",
    ),
    CauseInfo(
        key="device_wait",
        letter="w",
        label="launched but not started",
        meaning="work is launched, and the device has not started it: it changes kernels, or waits for another stream",
        color="#7b8a97",
        ink="#0f161c",
        hatch="||||",
        marker="<",
    ),
    CauseInfo(
        key="profiler",
        letter="p",
        label="profiler",
        meaning="the device is idle under the profiler's own overhead",
        host_meaning="the profiler's own overhead",
        color="#55606b",
        ink="#ffffff",
        hatch="oooo",
        marker=">",
    ),
    CauseInfo(
        key="unattributed",
        letter="?",
        label="not recorded",
        meaning="the trace does not show why the device is idle",
        host_meaning="the trace does not show whether the thread runs",
        color="#a3abb2",
        ink="#1d2226",
    ),
)
#: Causes too small to show, folded; its colour is also that of verdicts that name no cause.
OTHER = CauseInfo(
    key="other", letter=".", label="other", meaning="causes too small to show", color="#c3c9ce", ink="#1d2226"
)
CAUSE_INFO: dict[str, CauseInfo] = {row.key: row for row in _ROWS}
#: What stands in the bars of a job's ranks, and in no account: communication as a rank's own work, and what a rank does
#: besides its own work.
OWN_COMM = CauseInfo(
    key="own_comm",
    letter=CAUSE_INFO["gpu_comm"].letter,
    label="own time in communication calls",
    meaning="the rank itself works in a communication call, and nobody is waited for",
    color=CAUSE_INFO["gpu_comm"].color,
    ink=CAUSE_INFO["gpu_comm"].ink,
    hatch=CAUSE_INFO["gpu_comm"].hatch,
)
JOB_CAUSES = (
    OWN_COMM,
    CauseInfo(
        key="transfer", letter="=", label="transfer", meaning="a collective moves data", color="#c9b3e6", ink="#1d2226"
    ),
    CauseInfo(
        key="waits",
        letter=".",
        label="waits for others",
        meaning="other ranks are late",
        color="#d4d8dc",
        ink="#1d2226",
    ),
)
_EVERY = CAUSE_INFO | {row.key: row for row in JOB_CAUSES}

CAUSES: tuple[Cause, ...] = tuple(Cause)
CAUSE_KEYS: tuple[str, ...] = tuple(cause.key for cause in CAUSES)
BUSY_CAUSES: tuple[Cause, ...] = (Cause.GPU_COMPUTE, Cause.GPU_COMM, Cause.GPU_COPY)
# Causes that a change to the program can remove, so that a verdict can name them.
REMOVABLE: tuple[Cause, ...] = tuple(cause for cause in CAUSES if CAUSE_INFO[cause.key].bound)

#: Every name that a verdict can carry: how it ends a sentence.
BOUND_LABEL: dict[str, str] = {
    **{row.key: row.bound for row in _ROWS if row.bound},
    "hidden": "overlapped by other work",
    "mixed": "mixed",
    "unknown": "no dominant cause",
}
BOUNDS: tuple[str, ...] = tuple(BOUND_LABEL)
# One column of the table, by cause key.
LETTER: dict[str, str] = {row.key: row.letter for row in _ROWS}
SHORT_LABEL: dict[str, str] = {row.key: row.label for row in _ROWS} | {"hidden": "overlapped", "unknown": "no cause"}
MEANING: dict[str, str] = {row.key: row.meaning for row in _ROWS}
HOST_MEANING: dict[str, str] = {row.key: row.host_meaning for row in _ROWS if row.host_meaning}
#: What is gone when a cause is: ``removing host code would save ...``.
NOUN: dict[str, str] = {row.key: row.noun for row in _ROWS if row.noun}
HATCH: dict[str, str] = {row.key: row.hatch for row in _ROWS if row.hatch}
#: By key of a cause or a bound: (background, letter on it).
COLORS: dict[str, tuple[str, str]] = {
    **{row.key: (row.color, row.ink) for row in (*_ROWS, OTHER)},
    **dict.fromkeys(("hidden", "mixed", "unknown"), (OTHER.color, OTHER.ink)),
}


def info(key: str) -> CauseInfo:
    """The row of a cause or of a verdict; `OTHER` where it names no cause (``other``, ``hidden``, ``mixed``)."""
    return _EVERY.get(key, OTHER)


class Scenario(Struct, frozen=True):
    """One counterfactual: the program as it ran, without these causes."""

    key: str  # on the command line and in JSON
    label: str  # what is gone, everything else as it was
    causes: tuple[str, ...]  # keys of `boundby.model.causes.Cause`, in the order in which they are removed


def _without(key: str, cause: str) -> Scenario:
    return Scenario(key, f"without {NOUN[cause]}", (cause,))


_SCENARIOS = (
    _without("no_sync", "sync"),
    _without("no_launch_overhead", "cuda_api"),
    _without("infinite_gpu", "gpu_compute"),
    _without("copies_free", "gpu_copy"),
    _without("cpu_free", "cpu"),
    _without("input_free", "host_blocked"),
    _without("comm_free", "gpu_comm"),
    _without("init_free", "init"),
    Scenario("infinite_host", "with an infinitely fast host", ("sync", "cuda_api", "cpu", "host_blocked", "init")),
)
SCENARIOS: dict[str, Scenario] = {row.key: row for row in _SCENARIOS}
#: The scenario that removes one cause alone, by the cause's key.
SCENARIO_OF_CAUSE: dict[str, str] = {row.causes[0]: row.key for row in _SCENARIOS if len(row.causes) == 1}


def scenario_label(key: str) -> str:
    """What is gone under a scenario; of a question that has no name (``kernels=2``) the question itself."""
    return SCENARIOS[key].label if key in SCENARIOS else key
