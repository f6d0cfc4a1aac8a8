"""What AMD's HIP calls are: each has a twin of CUDA, under nearly the same name, that does the same. So have those of
Intel's Unified Runtime, under other names."""

from __future__ import annotations

from functools import lru_cache

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
    return _TWINS.get(name) or (f"cuda{name[3:]}" if name.startswith("hip") else name)
