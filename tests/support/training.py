"""A small training loop as an export: a bit of everything that nsys records, the same in every schema."""

from __future__ import annotations

from benchmarks.simulated.full_export import Export

from boundby.trace.tables import NO_STREAM

MS = 1_000_000
US = 1_000


def training_loop(steps: int = 4) -> Export:
    """``steps`` steps of data, forward, loss (with a wait) and backward on a second thread; one GPU."""
    export = Export(("python", "train.py", "--steps", str(steps)))
    main = export.thread(pid=4242, tid=4242, name="python")
    backward = export.thread(pid=4242, tid=4250, name="autograd")
    export.overhead(main, -2 * MS, -1 * MS, "Profiler start")
    export.api(main, -MS, -MS + 400 * US, "cudaMalloc_v3020")
    export.sched(main, -3 * MS, True)
    export.sched(backward, -3 * MS, False)
    for step in range(steps):
        at = step * 10 * MS
        export.nvtx(main, at, at + 9 * MS, f"step {step}", registered=step % 2 == 0)
        export.nvtx(main, at, at + 2 * MS, "data")
        export.osrt(main, at + 100 * US, at + 1_200 * US, "poll")
        export.sched(main, at + 110 * US, False)
        export.sched(main, at + 1_190 * US, True)
        copy = export.api(main, at + 1_500 * US, at + 1_560 * US, "cudaMemcpyAsync_v3020")
        export.memcpy(copy, at + 1_530 * US, at + 1_700 * US, bytes=1 << 20, source="pinned")
        export.nvtx(main, at + 2 * MS, at + 4 * MS, "forward", domain="model")
        for layer in range(3):
            start = at + 2 * MS + layer * 100 * US
            launch = export.api(main, start, start + 8 * US, "cudaLaunchKernel_v7000")
            begin = start + 20 * US + layer * 400 * US
            export.kernel(launch, begin, begin + 450 * US, name=f"void gemm_{layer}<float>(int)")
        export.nvtx(main, at + 4 * MS, at + 5 * MS, "loss")
        read = export.api(main, at + 4_010 * US, at + 4_700 * US, "cudaMemcpy_v3020")
        export.memcpy(read, at + 4_680 * US, at + 4_690 * US, bytes=8, kind="DtoH", source="device", target="pageable")
        export.nvtx(main, at + 5 * MS, at + 8 * MS, "backward")
        export.sched(backward, at + 5_010 * US, True)
        for layer in range(2):
            start = at + 5_100 * US + layer * 700 * US
            launch = export.api(backward, start, start + 10 * US, "cudaLaunchKernel_v7000")
            export.kernel(launch, start + 15 * US, start + 600 * US, name=f"void gemm_grad_{layer}<float>(int)")
            export.sample(backward, start + 50 * US)
        export.sched(backward, at + 7 * MS, False)
        clear = export.api(main, at + 7_500 * US, at + 7_510 * US, "cudaMemsetAsync_v3020")
        export.memset(clear, at + 7_520 * US, at + 7_530 * US, bytes=4096)
        export.api(main, at + 7_600 * US, at + 7_900 * US, "cudaDeviceSynchronize_v3020")
        export.sample(main, at + 6 * MS)
    export.nvtx(main, 0, steps * 10 * MS, "epoch", kind="startend")
    export.nvtx(main, 5 * MS, None, "checkpoint", kind="mark")
    export.memcpy(main, 9_100 * US, 9_200 * US, kind="UVM_HtoD", source="unknown", target="unknown", stream=NO_STREAM)
    return export
