"""Calls, OS calls, kernels and range names, told apart by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.correlation.starting import is_compile_range
from boundby.trace.vocabulary.cuda import (
    CallClass,
    OverheadClass,
    classify_call,
    classify_overhead,
    is_call,
    is_communication,
    plain_name,
)
from boundby.trace.vocabulary.os import blocked_on
from boundby.trace.vocabulary.range_names import Shapes, fold_name, fold_names

CALLS = {
    CallClass.SYNC: "cudaDeviceSynchronize_v3020 cudaStreamSynchronize_v3020 cudaStreamSynchronize_ptsz_v7000 "
    "cudaEventSynchronize_v3020 cuCtxSynchronize cuStreamSynchronize cuEventSynchronize cudaThreadSynchronize",
    CallClass.LAUNCH: "cudaLaunchKernel_v7000 cudaLaunchKernelExC_v11060 cuLaunchKernel cuLaunchKernelEx "
    "cudaLaunchCooperativeKernel_v9000 cudaGraphLaunch_v10000 cuGraphLaunch cudaMemcpyAsync_v3020 "
    "cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2_ptsz cudaMemsetAsync_v3020 cuMemsetD32Async cudaMemset_v3020 "
    "cudaMemPrefetchAsync cudaMemcpyPeerAsync_v4000",
    CallClass.BLOCKING_COPY: "cudaMemcpy_v3020 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cudaMemcpy2D_v3020 "
    "cudaMemcpyToSymbol_v3020 cuMemcpy3D_v2",
    CallClass.ALLOC: "cudaMalloc_v3020 cudaFree_v3020 cudaHostAlloc_v3020 cudaFreeHost_v3020 cuMemAlloc_v2 "
    "cuMemFree_v2 cuMemAllocManaged cudaMallocManaged_v6000 cuMemHostRegister_v2 cudaHostRegister_v4000 cuMemCreate "
    "cuMemMap cuMemAllocHost_v2 cudaMallocHost_v3020",
    CallClass.INIT: "cuInit cuCtxCreate_v2 cuDevicePrimaryCtxRetain cuModuleLoadData cuModuleLoadDataEx "
    "cuLibraryLoadData cuModuleUnload cuLinkAddData_v2 cudaDeviceReset_v3020 cuLibraryGetKernel cuKernelGetFunction",
    CallClass.OTHER: "cudaEventRecord_v3020 cudaEventQuery_v3020 cudaStreamWaitEvent_v3020 cudaGetDevice_v3020 "
    "cudaStreamIsCapturing_v10000 cudaMallocAsync_v11020 cudaFreeAsync_v11020 cuMemAllocAsync cudaLaunchHostFunc "
    "cudaStreamQuery_v3020 cuGetProcAddress_v2 cudaGraphInstantiate_v11000 cudaMemGetInfo_v3020",
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in CALLS.items() for name in names.split()])
def test_calls(kind: CallClass, name: str) -> None:
    assert classify_call(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("musaStreamSynchronize", CallClass.SYNC),
        ("mcMemcpy", CallClass.BLOCKING_COPY),
        ("topsLaunchKernel", CallClass.LAUNCH),
        ("cnrtMalloc", CallClass.ALLOC),
        ("aclrtSynchronizeStream", None),  # as CUDA names none
        ("zeCommandQueueSynchronize", None),
    ],
)
def test_calls_of_other_makers_that_are_named_as_those_of_cuda(name: str, kind: CallClass | None) -> None:
    assert is_call(name) == (kind is not None)
    assert classify_call(name) == (CallClass.OTHER if kind is None else kind)


def test_plain_name() -> None:
    assert plain_name("cudaLaunchKernel_v7000") == "cudaLaunchKernel"
    assert plain_name("cuMemcpyDtoHAsync_v2_ptsz") == "cuMemcpyDtoHAsync"
    assert plain_name("cudaMemcpy2D_v3020") == "cudaMemcpy2D"


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("lock", "pthread_mutex_lock pthread_rwlock_wrlock futex flock"),
        (
            "condition",
            "pthread_cond_wait pthread_cond_timedwait sem_wait sem_timedwait sem_clockwait pthread_barrier_wait",
        ),
        ("sleep", "nanosleep usleep sleep clock_nanosleep pause sigwait"),
        ("poll", "poll ppoll select pselect epoll_wait epoll_pwait"),
        ("network", "recv recvfrom recvmsg send sendto accept connect"),
        ("file", "read pread64 write fread fwrite fgets fsync readv preadv2"),
        ("thread or process", "pthread_join waitpid wait4 wait system"),
        (None, "mmap munmap open open64 fopen ioctl pthread_create mprotect madvise sched_yield pthread_mutex_trylock"),
    ],
)
def test_os_calls(what: str | None, names: str) -> None:
    for name in names.split():
        assert blocked_on(name) == what, name


def test_communication_kernels() -> None:
    for name in (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "ncclKernel_Broadcast",
        "nvshmem_barrier",
        "cross_device_reduce_1stage",
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*, float*)",
        "void deep_ep::intranode::notify_dispatch<8>(int const*)",
        "_ZN7deep_ep9internode8dispatchILb0EEEvv",
    ):
        assert is_communication(name)
    for name in (
        "reduce_kernel",
        "softmax_warp_forward",
        "cutlass_80_gemm",
        "elementwise_kernel",
        "block_all_gather_x",
        "void step::internode(float*)",
        "void gemm<deep_ep::internode::Tag>(float*)",
    ):
        assert not is_communication(name)


def test_overhead_rows() -> None:
    assert classify_overhead("CUPTI: Instrumentation") == OverheadClass.PROFILER
    assert classify_overhead("CUDA profiling initialization") == OverheadClass.PROFILER
    assert classify_overhead("Runtime Triggered Module Loading") == OverheadClass.INIT
    assert classify_overhead("Lazy Function Loading") == OverheadClass.INIT
    assert classify_overhead("Driver Compiler") == OverheadClass.INIT
    assert classify_overhead("dlopen(libcuda.so.1)") == OverheadClass.NONE


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("iteration_12", "iteration_*"),
        ("step 12", "step *"),
        ("step12", "step*"),
        ("Epoch 3 / Batch 17", "Epoch * / Batch *"),
        ("ProfilerStep#42", "ProfilerStep#*"),
        ("aten::addmm, seq = 893, op_id = 7", "aten::addmm"),
        ("aten::addmm, seq = 893", "aten::addmm"),
        ("aten::conv2d, op_id = 7, sizes = [[1, 3], [2]]", "aten::conv2d"),
        ("conv2d", "conv2d"),
        ("layer1", "layer1"),
        ("float16", "float16"),
        ("resnet50_v2", "resnet50_v2"),
        ("layers.3.attention", "layers.3.attention"),
        ("batch[7]", "batch[*]"),
        ("7", "*"),
        ("", ""),
        ("train_step12", "train_step*"),
        ("forward", "forward"),
    ],
)
def test_folding(name: str, folded: str) -> None:
    assert fold_name(name) == folded
    assert fold_name(folded) == folded


#: What rules about names look at, digits of another script among them.
PARTS = ("step", "iter", "layer", "conv2d", "aten::", ", seq = ", ", sizes = [", "]", " ", "_", ".", "#", "a", "0", "7")
NUMBERED = (
    "12",
    "٢",
    "é",
    "(cut)",
    "\n",
    "compile",
    "Backward",
    "autograd::engine::evaluate_function: ",
    "/",
    ":",
    "-",
)
NAMES = st.lists(st.lists(st.sampled_from((*PARTS, *NUMBERED)), max_size=6).map("".join), max_size=8)


@given(NAMES)
@settings(max_examples=500)
def test_many_names_fold_as_each_does(names: list[str]) -> None:
    assert fold_names(names) == [fold_name(name) for name in names]


@given(NAMES)
@settings(max_examples=300)
def test_what_names_tell_does_not_hang_on_numbers(names: list[str]) -> None:
    assert Shapes.of(names).told(is_compile_range) == [is_compile_range(name) for name in names]


def test_numbers_of_their_own_do_not_tell_names_apart() -> None:
    names = ["step 7", "step 12", "c10::add", "c11::add", "fusion_3", "[1, 2]", "[33, 4]"]
    assert Shapes.of(names).but_for_lone_numbers() == ["step 0", "[0, 0]", "c10::add", "c11::add", "fusion_3"]
