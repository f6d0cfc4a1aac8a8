"""The causes of the account and the names a verdict can carry, each in one place.

``CAUSES`` is the order in which causes are stored (arrays are indexed by it) and shown.
"""

from __future__ import annotations

from enum import IntEnum


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

    @property
    def key(self) -> str:
        """The name used in JSON, CSV and SQLite: ``gpu_compute``, ``sync``, ..."""
        return self.name.lower()


CAUSES: tuple[Cause, ...] = tuple(Cause)
CAUSE_KEYS: tuple[str, ...] = tuple(cause.key for cause in CAUSES)
BUSY_CAUSES: tuple[Cause, ...] = (Cause.GPU_COMPUTE, Cause.GPU_COMM, Cause.GPU_COPY)

# Causes that a change to the program can remove, so that a verdict can name them.
REMOVABLE: tuple[Cause, ...] = (
    Cause.GPU_COMPUTE,
    Cause.GPU_COMM,
    Cause.GPU_COPY,
    Cause.SYNC,
    Cause.CUDA_API,
    Cause.INIT,
    Cause.CPU,
    Cause.HOST_BLOCKED,
)

# One word for people, the sentence form of a verdict, and one letter for bars without colour.
SHORT_LABEL: dict[str, str] = {
    "gpu_compute": "compute",
    "gpu_comm": "comm",
    "gpu_copy": "copy",
    "sync": "sync",
    "cuda_api": "api",
    "init": "init",
    "cpu": "cpu",
    "host_blocked": "blocked",
    "device_wait": "device wait",
    "profiler": "profiler",
    "unattributed": "unattributed",
}
BOUND_LABEL: dict[str, str] = {
    "gpu_compute": "GPU-compute bound",
    "gpu_comm": "GPU-communication bound",
    "gpu_copy": "GPU-copy bound",
    "cuda_api": "CUDA-API bound",
    "sync": "synchronization bound",
    "cpu": "CPU bound",
    "host_blocked": "blocked on the host",
    "init": "initialization bound",
    "hidden": "hidden behind other work",
    "mixed": "mixed",
    "unknown": "unknown",
}
BOUNDS: tuple[str, ...] = tuple(BOUND_LABEL)
LETTER: dict[str, str] = {
    "gpu_compute": "C",
    "gpu_comm": "N",
    "gpu_copy": "M",
    "sync": "s",
    "cuda_api": "a",
    "init": "i",
    "cpu": "h",
    "host_blocked": "b",
    "device_wait": "w",
    "profiler": "p",
    "unattributed": "?",
}
MEANING: dict[str, str] = {
    "gpu_compute": "a kernel runs",
    "gpu_comm": "a communication kernel runs (NCCL, NVSHMEM)",
    "gpu_copy": "a memory copy, set or page migration runs",
    "sync": "the device is idle because the host had waited for it",
    "cuda_api": "the device is idle while the host launches work or dispatches to the next launch",
    "init": "the device is idle during context creation, module load, JIT or memory allocation",
    "cpu": "the device is idle while the host runs its own code",
    "host_blocked": "the device is idle while the host sleeps in the operating system (files, locks, workers)",
    "device_wait": "work is launched, but the device has not begun it (kernel switch, event, other stream)",
    "profiler": "the device is idle under the profiler's own overhead",
    "unattributed": "the trace does not show why the device is idle",
}
# The same for accounts of host threads, in traces without GPU work.
HOST_MEANING: dict[str, str] = {
    "sync": "the thread waits for the device",
    "cuda_api": "the thread is in CUDA calls or dispatches to the next one",
    "init": "the thread loads modules, creates contexts or allocates memory",
    "cpu": "the thread runs its own code",
    "host_blocked": "the thread sleeps in the operating system (files, locks, workers)",
    "profiler": "the profiler's own overhead",
    "unattributed": "the trace does not show whether the thread runs",
}
SCENARIO_LABEL: dict[str, str] = {
    "no_sync": "without host waits",
    "no_launch_overhead": "without launch overhead",
    "infinite_gpu": "kernels in no time",
    "copies_free": "copies in no time",
    "cpu_free": "without the host's own work",
    "input_free": "without host sleeps",
    "comm_free": "communication in no time",
    "init_free": "without initialization",
    "infinite_host": "with a perfect host",
}
