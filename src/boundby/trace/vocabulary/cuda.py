"""What a CUDA API call is, told from its name alone.

Sync types and their ENUM labels differ between nsys versions (tests/readers/test_facts.py), names do not.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from boundby.model.late import expression

# What calls of other makers are: most have a twin of CUDA that does the same and differs in nothing but its prefix
# (AMD's hip, Moore Threads' musa, MetaX's mc). So have those of Intel's Unified Runtime, under other names.
_MAKER = expression(r"^(?!cu(?:da)?[A-Z]|ur[A-Z]|nv)[a-z]+(?=[A-Z])")

# Names that are not CUDA's with another prefix.
_TWINS = {
    "hipCtxSynchronize": "cuCtxSynchronize",
    "hipExtModuleLaunchKernel": "cuLaunchKernel",
    "hipHccModuleLaunchKernel": "cuLaunchKernel",
    "hipModuleLaunchKernel": "cuLaunchKernel",
    "hipModuleLaunchCooperativeKernel": "cuLaunchCooperativeKernel",
    "hipHostAlloc": "cudaHostAlloc",
    "hipHostMalloc": "cudaHostAlloc",
    "hipExtMallocWithFlags": "cudaMalloc",
    "hipHostFree": "cudaFreeHost",
    "hipMemcpyWithStream": "cudaMemcpy",  # waits for the stream that it names
    "hipDrvGraphLaunch": "cudaGraphLaunch",
    "urEnqueueKernelLaunch": "cudaLaunchKernel",
    "urEnqueueUSMMemcpy": "cudaMemcpyAsync",
    "urEnqueueUSMFill": "cudaMemsetAsync",
    "urQueueFinish": "cudaStreamSynchronize",
    "urEventWait": "cudaEventSynchronize",
    **dict.fromkeys(("urUSMDeviceAlloc", "urUSMHostAlloc", "urUSMSharedAlloc"), "cudaMalloc"),
    "urUSMFree": "cudaFree",
    **dict.fromkeys(("urProgramBuild", "urProgramBuildExp"), "cuModuleLoadData"),
}


@lru_cache(maxsize=4096)
def cuda_twin(name: str) -> str:
    """The CUDA call that does what this call does; any other name as it is."""
    return _TWINS.get(name) or _MAKER.sub("cuda", name)


class CallClass(IntEnum):
    """How a call counts in the account."""

    OTHER = 0  # cheap bookkeeping: queries, attributes, events, handles
    LAUNCH = 1  # enqueues device work and returns: kernels, graphs, async copies, sets
    SYNC = 2  # the host waits for the device until it returns
    BLOCKING_COPY = 3  # launches a copy and waits for it
    ALLOC = 4  # memory allocation, release or pinning; may wait for the device inside
    INIT = 5  # contexts, modules, JIT


_SUFFIX = expression(r"(?:_v\d+|_ptsz|_ptds)+$")

_SYNC = expression(r"^cu(?:da)?(?:Device|Thread|Ctx|Stream|Event)Synchronize$")
_COPY = expression(r"^cu(?:da)?(?:Memcpy|GLMap|Memcpy2D|Memcpy3D)")
_LAUNCH = expression(r"Launch|Memcpy|Memset|MemPrefetch|^cu(?:da)?MemsetD")
_ALLOC = expression(
    r"^cu(?:da)?(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister|HostFree"
    r"|MemAlloc|MemFree|MemHost|MemCreate|MemRelease|MemMap|MemUnmap|MemAddress|MemSetAccess|MemPool"
    r"|Array3?D?Create|ArrayDestroy|MipmappedArray)"
)
_PROFILER = expression(r"^cu(?:da)?Profiler(?:Start|Stop|Initialize)$")
_INIT = expression(
    r"^cuInit$|^cu(?:da)?(?:CtxCreate|CtxDestroy|DevicePrimaryCtx|DeviceReset|ThreadExit|InitDevice|GreenCtx"
    r"|Module|Library|Link|Kernel(?:Get|Set))|^__cuda|RegisterFatBinary|^nvrtc|^nvJitLink"
)


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """The call's name without nsys' version suffix: ``cudaLaunchKernel_v7000`` -> ``cudaLaunchKernel``."""
    return _SUFFIX.sub("", name)


def is_profiler_call(name: str) -> bool:
    """Whether a call only turns the profiler on or off: what it takes is the profiler's."""
    return bool(_PROFILER.match(plain_name(name)))


def cuda_name(name: str) -> str:
    """What the call is, in CUDA's words: without a version suffix, and of a HIP call the twin's name."""
    return cuda_twin(plain_name(name))


def classify_call(name: str) -> CallClass:
    """The class of one CUDA runtime or driver call, or HIP call, by its (suffixed or plain) name."""
    plain = cuda_name(name)
    is_async = "Async" in plain
    if _SYNC.match(plain):
        return CallClass.SYNC
    if _ALLOC.match(plain):
        return CallClass.OTHER if is_async else CallClass.ALLOC
    if _INIT.match(plain):
        return CallClass.INIT
    if _COPY.match(plain):
        return CallClass.LAUNCH if is_async or "Peer" in plain else CallClass.BLOCKING_COPY
    if _LAUNCH.search(plain) and "Callback" not in plain and "HostFunc" not in plain:
        return CallClass.LAUNCH
    return CallClass.OTHER


_CALL = expression(r"^_*(?:cu|hip|ur[A-Z]|nvrtc|nvJit)")


def is_call(name: str) -> bool:
    """Whether a call of CUDA, HIP or Unified Runtime may be named so, or does what one of CUDA does."""
    return bool(_CALL.match(name)) or classify_call(name) != CallClass.OTHER


def is_device_wide(name: str) -> bool:
    """True for a wait for all that a process has launched; waits for single streams and events are none."""
    return bool(re.match(r"^cu(?:da)?(?:Device|Thread|Ctx)Synchronize", name))


class CallWork(IntEnum):
    """What a call puts on the device, of what a capture records there."""

    NONE = 0
    KERNEL = 1
    GRAPH = 2
    COPY = 3
    SET = 4


_WORK = (
    (CallWork.NONE, expression(r"Graph(?!Launch)|GraphicsR|Prefetch|GLMap|Callback|HostFunc")),
    (CallWork.GRAPH, expression(r"GraphLaunch")),
    (CallWork.KERNEL, expression(r"Launch")),
    (CallWork.COPY, expression(r"Memcpy")),
    (CallWork.SET, expression(r"Memset")),
)


def work_of_call(name: str) -> CallWork:
    """What a call of this (suffixed or plain) name puts on the device; building a graph puts nothing there."""
    return next((work for work, pattern in _WORK if pattern.search(name)), CallWork.NONE)


_COMMUNICATION = expression(
    r"nccl|nvshmem|rccl|^(?:one|two)_?shot_all_?reduce|multimem_|cross_device_reduce|^(?:custom_)?all_?reduce"
    r"|^all_?gather|^reduce_?scatter|^all_?to_?all",
    re.IGNORECASE,
)


# DeepEP and its kin: dispatch, combine and notify, whose short names say nothing.
_EXPERT_PARALLEL = expression(r"(?:\b|_)ep::(?:(?:inter|intra)node\w*|low_latency\w*)::|deep_ep\d+(?:inter|intra)node")


def is_communication(kernel_name: str) -> bool:
    """True for a kernel that moves data between GPUs, by its name, short or with namespaces."""
    return bool(_COMMUNICATION.search(kernel_name)) or is_expert_parallel(kernel_name)


def is_expert_parallel(kernel_name: str) -> bool:
    """True for a kernel that sends tokens to experts on other GPUs and back, by its name with namespaces."""
    return bool(_EXPERT_PARALLEL.search(re.split("[<(]", kernel_name, maxsplit=1)[0]))


class OverheadClass(IntEnum):
    """What a row of the overhead tables stands for. CUPTI files some of CUDA's own work under that name."""

    NONE = 0  # the program's own work, watched: a library takes as long to load without nsys
    PROFILER = 1
    INIT = 2  # CUDA loads modules or compiles


_NOT_OVERHEAD = expression(r"^dl(?:m?open|close)|command buffer full", re.IGNORECASE)
_LOADING = expression(r"module loading|function loading|compiler", re.IGNORECASE)


def classify_overhead(name: str) -> OverheadClass:
    """The class of a row of PROFILER_OVERHEAD or CUPTI_ACTIVITY_KIND_OVERHEAD, by its name."""
    if _NOT_OVERHEAD.search(name):
        return OverheadClass.NONE
    return OverheadClass.INIT if _LOADING.search(name) else OverheadClass.PROFILER
