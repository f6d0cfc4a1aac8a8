"""The one table of remedies: what can be changed, for which programs, in which words and as which code.

Rules find evidence and name the remedy that it speaks for; findings, first responses and ``boundby explain`` are views
of this table. A row's ``do`` is code or a command by what the program is written in (a library, a kind of
`boundby.trace.program.ProgramKind`, "amd", "any"); ``$name`` in it is a fact that the rule or the trace brings.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from string import Template

from msgspec import Struct, field

from boundby.trace.program import KnownProgram
from boundby.trace.tables import Trace

#: What a title calls that of which a trace does not tell more.
UNTOLD = {
    "function": "the host's code",
    "thread": "launching thread",
    "work": "the GPU's work",
    "late": "one rank",
    "doing": "it does something else meanwhile",
    "items": "N",
    "kernel": "the kernel with the most time",
    "what": "common work",
    "library": "a library",
    "earlier": "Find out what the program does before its first GPU work",
}


def conditions(needs: str, caution: str) -> tuple[str, ...]:
    """``It needs free cores.``, ``Leave it if the device is busy already.``: those that are told."""
    sentences = (("It needs", needs), ("Leave it if", caution))
    return tuple(f"{begin} {text}." for begin, text in sentences if text)


class Remedy(Struct, frozen=True, kw_only=True):
    """One row. ``bound``: the pattern whose page teaches it; empty: none."""

    bound: str
    id: str
    title: str
    rules: tuple[str, ...] = ()  # whose findings number it
    do: Mapping[str, str] = field(default_factory=dict)
    text: str = ""  # the paragraph of the page; empty: the page leaves it out
    needs: str = ""  # what stands behind "It needs"
    caution: str = ""  # what stands behind "Leave it if"
    scenario: str = ""  # the replay that numbers it where no rule does
    because: str = ""  # what that replay leaves out
    kinds: tuple[str, ...] = ()  # of programs that can follow it, as in ``do``; empty: all
    is_search: bool = False  # it finds out what to change
    is_never_first: bool = False  # others are tried before it, whatever it saves
    elsewhere: str = ""  # who saves the time that it numbers, where this run saves none: ``$time`` stands for it

    @property
    def conditions(self) -> tuple[str, ...]:
        """What it needs, and when it is no help, a sentence each."""
        return conditions(self.needs, self.caution)

    @property
    def key(self) -> str:
        """Pattern and name, as a first response's id."""
        return f"{self.bound}.{self.id}" if self.bound else self.id

    def is_for(self, program: KnownProgram) -> bool:
        """Whether this kind of program can follow it."""
        return not self.kinds or bool({*self.kinds} & {*program.keys})

    def saves(self, time: str) -> str:
        """``saves 1.10-1.30 s``, or who saves it, if not this run; looking for something saves nothing itself."""
        if self.elsewhere:
            return Template(self.elsewhere).substitute(time=time)
        return f"removing what you find saves {time}" if self.is_search else f"saves {time}"

    def words(self, facts: Mapping[str, object]) -> str:
        """The title, of what the rule found."""
        return Template(self.title).safe_substitute({**UNTOLD, **facts})

    def code(self, program: KnownProgram, facts: Mapping[str, object], *, is_of_amd: bool = False) -> str:
        """What to write or type; empty where nobody knows it."""
        for key in (*(("amd",) if is_of_amd else ()), *program.keys, "any"):
            if key in self.do:
                try:
                    return Template(self.do[key]).substitute(facts)
                except KeyError:  # the evidence does not tell enough for it
                    continue
        return ""


def common_facts(trace: Trace, program: KnownProgram) -> dict[str, str]:
    """What every row may name: the program's command, the report, and the command that records what the host runs."""
    command, recorder = trace.how_it_runs, sampler(trace, program)
    sample = f"{recorder} -- {command}" if recorder.startswith("boundby") else f"{recorder} -o run {command}"
    return {"program": command, "report": shlex.quote(trace.path), "sample": sample}


def sampler(trace: Trace, program: KnownProgram) -> str:
    """The command, without the program's own, that records which functions the host runs."""
    if trace.is_told_by_frames:
        return "boundby profile --with torch --torch-record stacks,shapes"
    if program.is_torch:
        return "boundby profile"
    if program.is_python:
        return "boundby profile --nsys-args=--python-sampling=true"
    return f"nsys profile --sample=process-tree -t {_traced(trace)}"


def _traced(trace: Trace) -> str:
    """What nsys is to trace the next time: what a diagnosis needs, and what was traced this time."""
    recorded = {
        "mpi": len(trace.messages) > 0,
        "openacc": "OpenACC" in trace.domains,
        "openmp": "OpenMP" in trace.domains,
    }
    return ",".join(("cuda", "nvtx", "osrt", *(name for name, is_recorded in recorded.items() if is_recorded)))


_PINNED_TORCH = 'DataLoader(dataset, pin_memory=True)\nbatch = batch.to("cuda", non_blocking=True)'
_PINNED_CPP = "cudaMallocHost(&host, bytes);\ncudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);"
_PINNED_CUPY = "host = cupyx.zeros_pinned(shape, dtype)\ndevice.set(host, stream=stream)"
_PINNED = {
    "torch": _PINNED_TORCH,
    "cupy": _PINNED_CUPY,
    "directives": "nvc++ -gpu=pinned ...  # mapped arrays are then allocated in pinned memory",
    "julia": "CUDA.pin(array)",
    "any": _PINNED_CPP,
}
_GRAPH_CPP = (
    "cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal); step(stream); cudaStreamEndCapture(stream, &graph);\n"
    "cudaGraphInstantiate(&exec, graph, 0);\n"
    "cudaGraphLaunch(exec, stream);  // in the loop"
)
# Whether it runs with that option is not on record.
_VLLM_NOT_EAGER = "vllm serve MODEL  # without --enforce-eager, if that was set"
_AN_EVENT = {
    "torch": "event.synchronize()  # torch.cuda.Event(blocking=True), in place of time.sleep",
    "cpp": "ready.wait(lock, [&] { return is_ready; });  // std::condition_variable, in place of sleep",
    "python": "ready.wait()  # threading.Event, in place of time.sleep",
}
_AHEAD = {
    "torch": "pool = concurrent.futures.ThreadPoolExecutor(1)  # a process pool if prepare is pure Python\n"
    "ahead = pool.submit(prepare, step + 1)  # while the GPU computes this step",
    "python": "pool = concurrent.futures.ThreadPoolExecutor(1)  # a process pool if prepare is pure Python\n"
    "ahead = pool.submit(prepare, step + 1)  # while the GPU computes this step",
    "julia": "ahead = Threads.@spawn prepare(step + 1)  # while the GPU computes this step",
    "cpp": "auto ahead = std::async(std::launch::async, prepare, step + 1);  // beside the GPU",
    "openmp": "#pragma omp target teams loop nowait  // the host goes on while it runs",
    "directives": "#pragma acc parallel loop async(1)  // the host goes on while it runs",
}
_FIND_SLEEP = {"any": "grep -rnwE 'u?sleep|nanosleep|sleep_for|sleep_until' .  # in the source of the program"}
_POOL = "rmm.reinitialize(pool_allocator=True)"

TABLE: tuple[Remedy, ...] = (
    Remedy(
        bound="gpu_compute",
        id="lower-precision",
        title="Run the matrix work in lower precision",
        rules=("tensor-cores",),
        do={
            "jax": 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
            "cupy": "CUPY_TF32=1 $program",
            "cpp": "cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);",
        },
        text="TF32, BF16 and FP16 use the tensor cores. FP8 and INT8 go further in inference.",
        needs="a GPU with tensor cores for that type, and a check that the results stay good enough",
        caution="the program is sensitive to rounding (solvers, small differences of large numbers)",
    ),
    Remedy(
        bound="gpu_compute",
        id="fuse",
        title="Fuse kernels with a compiler",
        rules=("unfused-elementwise",),
        do={
            "vllm": _VLLM_NOT_EAGER,
            "sglang": "python -m sglang.launch_server --model-path MODEL --enable-torch-compile",
            "torch": "model = torch.compile(model)",
            "jax": "step = jax.jit(step)",
            "cupy": "@cupy.fuse()",
            "julia": "@. y = a * x + b  # one broadcast is one kernel",
            "cpp": "y[i] = f(g(h(x[i])));  // the whole chain in one kernel, not one kernel for each of f, g and h",
        },
        text="A chain of elementwise kernels reads and writes memory once for each kernel. A compiler makes one kernel "
        "of the chain.",
        needs="shapes that do not change at every step",
        caution="the time is in a few large matrix kernels: there is nothing to fuse",
    ),
    Remedy(
        bound="gpu_compute",
        id="inference-engine",
        title="Run the model in an inference engine",
        do={
            "torch": "model = torch_tensorrt.compile(model, inputs=[sample])  # or torch.onnx.export, and ONNX Runtime",
            "tensorflow": "trt.TrtGraphConverterV2(input_saved_model_dir=path).convert()",
        },
        text="TensorRT and ONNX Runtime fuse layers and try several kernels for each, in FP16 or INT8 where that is"
        " allowed. A compiler fuses; an engine also chooses.",
        needs="a model for inference that can be exported, and time to build the engine for its shapes",
        caution="you train the model, or shapes change with every input",
        kinds=("torch", "tensorflow"),
    ),
    Remedy(
        bound="gpu_compute",
        id="fuse-attention",
        title="Use a fused attention kernel",
        rules=("unfused-attention",),
        do={
            "torch": "out = torch.nn.functional.scaled_dot_product_attention(q, k, v$mask)",
            "jax": 'out = jax.nn.dot_product_attention(q, k, v, ${jax_mask}implementation="cudnn")',
            "cpp": "auto out = cudnn_graph.sdpa(q, k, v, options);  // cuDNN frontend, or FlashAttention",
        },
        text="A fused kernel keeps the attention matrix in registers. Without fusion the matrix goes through "
        "memory for each operation.",
        needs="attention of a usual form: a mask or a bias goes in as an argument",
        caution="the model needs the attention weights themselves",
    ),
    Remedy(
        bound="gpu_compute",
        id="channels-last",
        title="Keep tensors in the layout that the kernels want",
        rules=("layout-conversion",),
        do={
            "torch": "model = model.to(memory_format=torch.channels_last)\n"
            "batch = batch.to(memory_format=torch.channels_last)",
            "cpp": "cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, type, n, c, h, w);",
        },
        text="Tensor-core kernels read images as NHWC. Other layouts are converted before and after each kernel.",
        needs="convolutions",
        caution="layers in between support only NCHW",
    ),
    Remedy(
        bound="gpu_compute",
        id="fill-gpu",
        title="Give the kernel enough blocks to fill the GPU",
        rules=("small-grid", "small-blocks", "tail-wave"),
        do={"torch": "x = torch.stack(samples)  # one call for all samples instead of one call for each"},
        text="Each block runs on one multiprocessor. A grid with fewer blocks leaves the others idle.",
        needs="work that can be cut into more pieces",
        caution="other kernels fill the GPU meanwhile",
    ),
    Remedy(
        bound="gpu_compute",
        id="library-kernel",
        title="Try $library, which has $what ready, tuned for each GPU",
        do={"cpp": "$call\n// in place of $kernel$hint"},
        text="NVIDIA's libraries have kernels for common work, tuned for each GPU: matrix products, convolutions, "
        "Fourier transforms, sorts, sums.",
        needs="a kernel that does what its name says",
        caution="the kernel also does something that the library's kernel cannot",
        kinds=("cpp",),
        is_search=True,
    ),
    Remedy(
        bound="gpu_compute",
        id="single-precision",
        title="Compute $kernel in single precision where that is enough",
        do={"cpp": "float x = 1.0f;  // in place of double, in all of $kernel: constants and functions, too"},
        text="Cards for games and workstations compute double precision at 1/32 or 1/64 of the rate of single.",
        needs="a check that the results stay good enough",
        caution="the program is sensitive to rounding, or runs on a data-centre GPU",
        kinds=("cpp", "directives", "julia"),
        is_search=True,
    ),
    Remedy(
        bound="gpu_compute",
        id="better-kernels",
        title="Find out what limits $kernel",
        rules=("hot-kernel",),
        do={
            "amd": "rocprof-compute profile -n limits -k $search -- $program",
            "any": "ncu --set full $launches $program",
        },
        text="A profiler of single kernels shows whether memory, arithmetic or latency limits it.",
        needs="the kernel's source, or another library call to use instead, once the limit is known",
        caution="the kernel is a vendor's, and at its peak already",
        is_search=True,
    ),
    Remedy(
        bound="gpu_compute",
        id="keep-tuning",
        title="Keep the result of kernel tuning",
        do={"any": "TRITON_CACHE_AUTOTUNING=1 $program"},
    ),
    Remedy(
        bound="gpu_compute",
        id="bigger-gpu",
        title="Use a bigger GPU",
        text="Kernels that fill the device run faster by the ratio of the peaks: of memory bandwidth where they move "
        "data, of arithmetic where they compute.",
        needs="another device; the number holds for kernels that fill that device",
        caution="kernels are small, or the host soon becomes the limit: see what bounds next",
    ),
    Remedy(
        bound="gpu_compute",
        id="quantize-or-prune",
        title="Quantize to INT8 or prune the model",
        text="The model gives the same answer with less arithmetic, in inference.",
        needs="calibration and a check of quality: no trace can tell what it saves",
        caution="you train the model",
    ),
    Remedy(
        bound="gpu_compute",
        id="balance-gpus",
        title="Give each GPU work in proportion to its speed",
        rules=("gpu-balance",),
    ),
    Remedy(
        bound="",
        id="stop-sharing",
        title="See who else uses the GPU, before and while the program runs",
        rules=("shared-gpu",),
        do={
            "amd": "watch rocm-smi --showpids",
            "any": "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv -l 1",
        },
        is_search=True,
    ),
    Remedy(
        bound="",
        id="watch-clocks",
        title="While the program runs, see whether heat or power lowers the clock",
        do={
            "amd": "watch rocm-smi --showclocks --showtemp --showpower",
            "any": "nvidia-smi --query-gpu=clocks.sm,temperature.gpu,power.draw,clocks_event_reasons.active"
            " --format=csv -l 1",
        },
        is_search=True,
    ),
    Remedy(
        bound="",
        id="own-streams",
        title="Keep work off the default stream",
        rules=("stream-default", "stream-shared"),
        do={
            "torch": "with torch.cuda.stream(torch.cuda.Stream()):",
            "cupy": "with cupy.cuda.Stream(non_blocking=True):",
            "cpp": "cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);",
            "openmp": "#pragma omp target teams loop nowait",
            "directives": "#pragma acc parallel loop async(1)",
        },
    ),
    Remedy(
        bound="cuda_api",
        id="cuda-graphs",
        title="Launch what repeats as one CUDA graph",
        rules=("cuda-graphs",),
        do={
            "vllm": _VLLM_NOT_EAGER,
            "sglang": "python -m sglang.launch_server --model-path MODEL  # without --disable-cuda-graph",
            "torch": 'model = torch.compile(model, mode="reduce-overhead")',
            "jax": "step = jax.jit(step)",
            "cpp": _GRAPH_CPP,
            "openmp": "#pragma omp target teams loop nowait\n#pragma omp taskwait  // once, after the last loop",
            "directives": "#pragma acc parallel loop async(1)\n#pragma acc wait  // once, after the last loop",
            "cupy": "stream.begin_capture(); step(); graph = stream.end_capture()\ngraph.launch(stream)  # in the loop",
        },
        text="One call takes the place of hundreds.",
        needs="the same shapes and addresses at every step; no sync inside the captured part",
        caution="control flow depends on values on the device",
    ),
    Remedy(
        bound="cuda_api",
        id="graphs-with-collectives",
        title="Launch what repeats as one CUDA graph, on all ranks alike",
        rules=("cuda-graphs",),
        do={
            "torch": 'model = torch.compile(model, mode="reduce-overhead")  # in place of torch.compile(model)',
            "cpp": _GRAPH_CPP,
        },
        text="One call takes the place of hundreds. All ranks capture the same collectives in the same order, and "
        "launch their graphs alike.",
        needs="the same shapes and addresses at every step on all ranks; no sync inside the captured part",
        caution="ranks do not all run the same steps: then they hang",
        is_never_first=True,
    ),
    Remedy(
        bound="cuda_api",
        id="larger-batch",
        title="Give each launch more work",
        rules=("small-batch",),
        do={
            "vllm": "vllm serve MODEL --max-num-seqs 512  # more requests in a step",
            "sglang": "python -m sglang.launch_server --model-path MODEL --max-running-requests 512",
            "torch": "DataLoader(dataset, batch_size=2 * batch_size)",
            "jax": "batch_size = 2 * batch_size",
            "openmp": "#pragma omp target teams loop collapse(2)",
            "directives": "#pragma acc parallel loop collapse(2)",
            "cpp": "step<<<dim3(blocks, 2), threads>>>(items);  // blockIdx.y chooses one of two items",
        },
        text="Twice the work in each launch (a larger batch) needs half the launches, and small kernels take hardly "
        "any longer.",
        needs="memory on the device, and a program that may take more items at a time",
        caution="the latency of one item counts, or kernels fill the device already",
    ),
    Remedy(
        bound="cuda_api",
        id="larger-chunks",
        title="Cut the work into larger chunks",
        rules=("small-chunks",),
        do={"cpp": "chunk_size *= $larger;  // $each", "any": "chunk_size = $larger * chunk_size  # $each"},
        text="A copy or kernel should run for several times as long as its call.",
        needs="memory for two or three chunks at a time",
        caution="the latency of one chunk counts",
    ),
    Remedy(
        bound="cuda_api",
        id="fewer-operations",
        title="Use fewer and larger operations",
        rules=("launch-overhead",),
        do={
            "vllm": _VLLM_NOT_EAGER,
            "sglang": "python -m sglang.launch_server --model-path MODEL --enable-torch-compile",
            "torch": "step = torch.compile(step)",
            "jax": "step = jax.jit(step)",
            "cupy": "@cupy.fuse()",
            "openmp": "#pragma omp target teams loop collapse(2)",
            "directives": "#pragma acc parallel loop collapse(2)",
            "cpp": "step<<<dim3(blocks, items), threads>>>(data);  // all items in one launch, not one launch for each",
        },
        text="Fuse chains of small kernels, and use batched operations instead of loops over tensors.",
        needs="operations that follow each other on the same data",
        caution="kernels are long: then launches hide behind them",
    ),
    Remedy(
        bound="cuda_api",
        id="fused-optimizer",
        title="Update all parameters in a few kernels",
        rules=("unfused-optimizer",),
        do={"cpp": "update<<<blocks, threads>>>(addresses, sizes, tensors);  // one launch for a list of all tensors"},
        text="A fused optimizer updates all parameters in a few kernels instead of a few kernels for each parameter.",
        needs="an optimizer that has a fused form",
        caution="parameters are on several devices or of several types",
    ),
    Remedy(
        bound="cuda_api",
        id="compiled-loop",
        title="Run the loop outside Python (AOTInductor, C++)",
        do={"torch": "torch._inductor.aoti_compile_and_package(torch.export.export(model, (sample,)))"},
        text="A loop in C++ (AOTInductor, LibTorch, a compiled extension) dispatches in a few microseconds; Python "
        "takes tens.",
        needs="a model that can be exported",
        caution="the time is in the CUDA calls themselves: graphs help there, another language does not",
        scenario="no_launch_overhead",
        because="the number assumes no launch overhead at all, not even the framework's dispatch",
        kinds=("torch", "python"),
    ),
    Remedy(
        bound="sync",
        id="remove-waits",
        title="Find and remove the waits, the costliest first",
        rules=("sync-operator", "sync-call", "sync-polling"),
        do={
            "torch": 'torch.cuda.set_sync_debug_mode("warn")  # names the line of each wait',
            "any": "$sample",
        },
        text="A wait ends the host's lead: the GPU sits idle until new kernels arrive. Use `torch.where` in place of "
        "`nonzero` and masks, and events in place of a sync for a timer. If one wait is removed, the next often waits "
        "in its place: all of them together count.",
        needs="values that can stay on the device",
        caution="the host needs the value to decide what to launch next",
        scenario="no_sync",
    ),
    Remedy(
        bound="sync",
        id="read-back-later",
        title="Read values back once every N steps",
        rules=("sync-readback",),
        do={
            "torch": "total += loss.detach()  # stays on the GPU\nif step % 100 == 0: print(total.item() / 100)",
            "jax": "if step % 100 == 0: print(float(loss))",
            "python": "if step % 100 == 0: print(float(loss))",
            "any": "cudaMemcpyAsync(pinned, value, bytes, cudaMemcpyDeviceToHost, stream);\n"
            "cudaEventRecord(done, stream);  // look at it after the next step is launched",
        },
        text="Add values up on the device, copy them without blocking, look at them a step later.",
        needs="a value that nobody looks at in the same step",
        caution="the loop ends on that value",
    ),
    Remedy(
        bound="sync",
        id="larger-batch",
        title="Put more work between two waits",
        do={
            "torch": "DataLoader(dataset, batch_size=2 * batch_size)",
            "jax": "batch_size = 2 * batch_size",
            "openmp": "#pragma omp taskwait  // after several loops with nowait, not after each",
            "directives": "#pragma acc wait  // after several loops, not after each",
            "cpp": "if (i % 8 == 7) cudaStreamSynchronize(stream);  // after several pieces, not after each",
        },
        text="With twice the work between two waits, for example a larger batch, the program needs half as many waits.",
        needs="memory on the device, and a program that may take more items at a time",
        caution="the latency of one item counts",
    ),
    Remedy(
        bound="sync",
        id="keep-memory",
        title="Allocate once, outside the loop",
        rules=("sync-allocation",),
        do={
            "cudf": _POOL,
            "torch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True $program",
            "any": "cudaMallocAsync(&pointer, bytes, stream);\ncudaFreeAsync(pointer, stream);",
        },
        text="`cudaMalloc` and `cudaFree` wait for the GPU. A pool keeps what is freed.",
        needs="sizes that recur",
        caution="memory is allocated once",
    ),
    Remedy(
        bound="sync",
        id="pinned-copies",
        title="Copy from pinned memory without blocking",
        rules=("sync-pageable-copy",),
        do={"torch": _PINNED_TORCH, "cupy": _PINNED_CUPY, "any": _PINNED_CPP},
        text="The host goes on while a copy from pinned memory runs.",
        needs="pinned host buffers, which take memory that cannot be swapped",
        caution="the host changes the buffer right after the call",
    ),
    Remedy(
        bound="sync",
        id="one-side",
        title="Move the host code between waits to the GPU",
        text="If host code between two waits can run as kernels on the device, it needs no wait at all.",
        needs="an operation on the device for what the host computes",
        caution="the host's part is long and the device has other work meanwhile",
        scenario="no_sync+cpu_free",
        because="the number assumes that both the syncs and the host code between them are gone",
    ),
    Remedy(
        bound="sync",
        id="de-interleave",
        title="Separate host and device parts",
        text="First launch all that does not depend on the host, then do the host's part: the two overlap.",
        needs="work on the device that does not depend on the host's part",
        caution="each step of either part needs the other's result",
        scenario="no_sync",
        because="the number assumes that the program never waits and the host stays ahead of the GPU",
    ),
    Remedy(
        bound="cpu",
        id="move-to-device",
        title="Move the host's work to the device",
        rules=("operator-on-cpu",),
        do={"torch": 'x = x.to("cuda", non_blocking=True)  # before these operators'},
        text="Move operators that run on the CPU, NumPy and pandas between steps, metrics and augmentation.",
        needs="the data on the device, and an operation for it there (CuPy, torch, cuDF)",
        caution="the work is branching over few values",
    ),
    Remedy(
        bound="cpu",
        id="managed-memory",
        title="Move managed memory to the host in one piece",
        rules=("managed-read-back",),
        do={
            "openmp": "#pragma omp target update from(u[0:n])",
            "directives": "#pragma acc update self(u[0:n])",
            "any": "cudaMemPrefetchAsync(pointer, bytes, cudaCpuDeviceId, stream);\ncudaStreamSynchronize(stream);",
        },
        text="A host that reads managed memory from the GPU stops at each new page. `cudaMemPrefetchAsync` to the CPU "
        "moves it in one piece; a check on the GPU moves a single number.",
        needs="knowledge of what the host will read",
        caution="the host reads few of the pages",
    ),
    Remedy(
        bound="cpu",
        id="vectorise",
        title="Find what is slow in $function, and speed it up",
        rules=("host-work",),
        do={
            "torch": "$sample",
            "python": "$sample",
            "any": "perf record -g -- $program\nperf annotate $function",
        },
        text="One call over an array instead of a loop over its elements, or the same work in another thread.",
        needs="the name of the loop, from a sampling profiler or from the functions named here",
        caution="the loop is vectorised already",
    ),
    Remedy(
        bound="cpu",
        id="print-less",
        title="Run it without $option: $function seems to print, by its name",
        do={"any": "$quiet"},
        needs="a run whose output nobody reads",
        caution="the option means something else to this program",
    ),
    Remedy(
        bound="cpu",
        id="cheaper-code",
        title="Find the code that the host spends its time in, and make it cheaper",
        do={
            "torch": "py-spy record --native -o profile.svg -- $program  # 100 samples a second: run many steps",
            "python": "py-spy record --native -o profile.svg -- $program  # 100 samples a second: run many steps",
            "any": "perf record -g -- $program\nperf report",
        },
        text="Compute once what does not change, call once over an array instead of once an element, or move the work "
        "to a GPU. The profile names the lines.",
        needs="a sampling profiler",
        caution="the time is in library calls that do what they must",
    ),
    Remedy(
        bound="cpu",
        id="find-host-code",
        title="Find out what the host runs, by CPU samples",
        do={"any": "$sample"},
        text="The recording does not name the code. Samples, Python stacks and calls of the operating system do.",
        needs="another run",
        caution="the time is in the framework's operators: those are on record",
        is_search=True,
    ),
    Remedy(
        bound="cpu",
        id="fewer-operators",
        title="Cut operator overhead",
        do={
            "vllm": _VLLM_NOT_EAGER,
            "sglang": "python -m sglang.launch_server --model-path MODEL --enable-torch-compile",
            "torch": "model = torch.compile(model)",
            "jax": "step = jax.jit(step)",
        },
        text="Between one operator and the next the framework dispatches: Python, autograd, checks of types. "
        "A compiler, batched operators, a larger batch or a CUDA graph leave out most of it.",
        needs="operators that can be fused, batched or captured",
        caution="the time is the program's own code between operators: `with_stack=True` or a sampling profiler "
        "shows it",
    ),
    Remedy(
        bound="cpu",
        id="overlap",
        title="Overlap host code with the GPU's work",
        rules=("host-phase",),
        do=_AHEAD,
        text="Prepare step n + 1 in another thread or process while the device computes step n.",
        needs="another core, and work that does not depend on the current step",
        caution="the device has too little to do to hide the host code",
        scenario="cpu_free",
        because="at most the GPU's own busy time can be overlapped",
    ),
    Remedy(
        bound="cpu",
        id="overlap-next-step",
        title="Overlap host code with the GPU's work",
        do=_AHEAD,
        elsewhere="each later step saves $time",
    ),
    Remedy(
        bound="cpu",
        id="start-once",
        title="Look at the run after its one-time start",
        do={"any": "boundby analyze $report $rest  # without the start"},
        text="What comes before most of the kernels is paid once: a longer run, or one process for many jobs, does not "
        "pay it again.",
        needs="a process that is kept for the next job",
        caution="the program is short and runs once",
        elsewhere="a process pays this once: $time",
    ),
    Remedy(
        bound="cpu",
        id="threads",
        title="Match the number of threads to the cores",
        rules=("preempted",),
        do={"any": "OMP_NUM_THREADS=1 $program"},
        text="Use more threads where one thread computes and cores are free, and fewer where threads wait for cores.",
        needs="CPU scheduling in the trace, which shows which of the two it is",
        caution="the threads wait for the interpreter's lock (GIL): then use processes",
    ),
    Remedy(
        bound="",
        id="own-cores",
        title="Find out which program takes the cores",
        do={"any": "top -b -n 1"},
        needs="a quiet machine, or cores of its own (`taskset`, `numactl`)",
        caution="the machine is shared on purpose: then this is how fast it runs there",
        is_search=True,
    ),
    Remedy(
        bound="host_blocked",
        id="workers",
        title="Load batches faster",
        rules=("host-input", "input-between-steps"),
        do={
            "torch": "DataLoader(dataset, num_workers=8, persistent_workers=True)  # no more than cores",
            "tensorflow": "dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)"
            ".prefetch(tf.data.AUTOTUNE)",
            "python": "batches = concurrent.futures.ProcessPoolExecutor().map(load, paths)",
            "cpp": "auto next = std::async(std::launch::async, load, step + 1);  // beside the GPU",
        },
        text="Use as many workers as it takes to keep up with the device.",
        needs="free cores, and memory for the batches that wait",
        caution="storage is what is slow, or the cores are taken already: then more workers only get in each other's "
        "way",
    ),
    Remedy(
        bound="host_blocked",
        id="load-beside",
        title="Prepare the next batch in other processes or threads",
        do={
            "torch": "DataLoader(dataset, num_workers=4, pin_memory=True, persistent_workers=True)",
            "tensorflow": "dataset = dataset.prefetch(tf.data.AUTOTUNE)",
            "python": "ahead = concurrent.futures.ThreadPoolExecutor(1).submit(load, step + 1)",
            "cpp": "auto next = std::async(std::launch::async, load, step + 1);  // beside the GPU",
        },
        text="Now the thread that launches also makes the batch, and the device waits meanwhile.",
        needs="free cores and memory for the batches",
        caution="a batch depends on the result of the step before it",
    ),
    Remedy(
        bound="host_blocked",
        id="shorter-wait",
        title="Find and shorten what the $thread waits for",
        rules=("host-wait",),
        do={"any": "boundby profile -- $program"},
        scenario="input_free",
        because="the number assumes that the launching thread is never blocked while the GPU idles",
    ),
    Remedy(
        bound="host_blocked",
        id="messages-ahead",
        title="Overlap messages with $work",
        do={
            "any": "MPI_Irecv(buffer, count, type, source, tag, comm, &request);  // before $work\n"
            "MPI_Wait(&request, MPI_STATUS_IGNORE);  // after it"
        },
    ),
    Remedy(
        bound="host_blocked",
        id="late-rank",
        title="Find out why $late comes late",
        do={"any": "$job"},
        is_search=True,
    ),
    Remedy(
        bound="host_blocked",
        id="late-rank-sleeps",
        title="Find the sleep in $late, and remove or shorten it: $doing",
        do=_FIND_SLEEP,
    ),
    Remedy(
        bound="host_blocked",
        id="shorter-sleep",
        title="Find the sleep, and remove or shorten it",
        do=_FIND_SLEEP,
    ),
    Remedy(
        bound="host_blocked",
        id="late-rank-computes",
        title="See how to make $late come earlier: $doing",
        do={"any": "$job"},
    ),
    Remedy(
        bound="host_blocked",
        id="wait-for-event",
        title="Wait for an event instead of sleeping",
        do=_AN_EVENT,
    ),
    Remedy(
        bound="host_blocked",
        id="external-pace",
        title="Nothing to change, because the program keeps up with its source",
        rules=("external-pace",),
        text="A camera, a sender or a timer hands over the work, and the program keeps up with it. Nothing in the "
        "program makes it faster.",
        needs="a faster source, or several at once",
        caution="the source is as fast as it should be: then nothing needs to change",
    ),
    Remedy(
        bound="host_blocked",
        id="prefetch",
        title="Prefetch further ahead",
        do={
            "torch": "DataLoader(..., prefetch_factor=8)  # all else as it is",
            "tensorflow": "dataset = dataset.prefetch(tf.data.AUTOTUNE)",
        },
        text="A queue evens out batches that take longer than others.",
        needs="memory for the batches",
        caution="workers are behind on average: then no queue is long enough",
        scenario="input_free",
        because="the number assumes that batches are always ready in time; slower workers gain less",
    ),
    Remedy(
        bound="host_blocked",
        id="persistent-workers",
        title="Keep workers alive between epochs",
        do={"torch": "DataLoader(..., persistent_workers=True)  # all else as it is"},
        text="Workers are not started again at every epoch.",
        needs="a data set that does not change between epochs",
        caution="there is one epoch",
        kinds=("torch",),
    ),
    Remedy(
        bound="host_blocked",
        id="start-workers-early",
        title="Start the workers while the GPU works",
        do={"torch": "batches = iter(loader)  # before the steps that come first: the workers start beside them"},
        text="The iterator of a DataLoader starts its workers. If it is made early, they start beside other work.",
        needs="free cores, and memory for the batches",
        caution="no other work comes first",
        kinds=("torch",),
    ),
    Remedy(
        bound="host_blocked",
        id="pinned-input",
        title="Hand batches over in pinned memory",
        do={"torch": _PINNED_TORCH},
        text="The copy of a pinned batch runs beside the computation.",
        needs="memory that cannot be swapped",
        caution="copies are short",
        kinds=("torch", "python"),
    ),
    Remedy(
        bound="host_blocked",
        id="decode-on-device",
        title="Decode and augment on the device",
        text="DALI, nvJPEG, torchvision transforms on GPU tensors: this takes the work off the CPU.",
        needs="time left on the device",
        caution="the device is busy already",
        kinds=("torch", "python"),
    ),
    Remedy(
        bound="gpu_copy",
        id="keep-on-device",
        title="Keep data on the device",
        rules=("repeated-transfer",),
        do={
            "torch": 'x = x.to("cuda")  # once, before the loop\ny = x.cpu()  # once, after it',
            "openmp": "#pragma omp target data map(tofrom: u[0:n])  // around the loop",
            "directives": "#pragma acc data copy(u[0:n])  // around the loop",
            "cupy": "x = cupy.asarray(x)  # once, before the loop\ny = cupy.asnumpy(x)  # once, after it",
            "any": "cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);  // once, before the loop\n"
            "cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);  // once, after it",
        },
        text="Upload once, compute there as often as needed, read back at the end.",
        needs="memory on the device for it",
        caution="the host changes the data in between",
    ),
    Remedy(
        bound="gpu_copy",
        id="pinned",
        title="Copy from pinned memory",
        rules=("pageable-copy",),
        do=_PINNED,
        text="Pinned memory is copied two to five times as fast as pageable memory, and the host need not wait.",
        needs="pinned memory, which cannot be swapped",
        caution="the buffer is used once: pinning itself takes time",
    ),
    Remedy(
        bound="gpu_copy",
        id="pinned-for-reuse",
        title="If a longer run copies the same buffers again, pin them",
        do=_PINNED,
        elsewhere="pinned memory saves $time in each repetition; pinning itself costs about as much, once",
    ),
    Remedy(
        bound="gpu_copy",
        id="make-on-device",
        title="Make the data on the device, not on the host",
        do={
            "torch": 'with torch.device("cuda"): model = Model(...)  # or torch.load(path, map_location="cuda")',
            "cudf": "frame = cudf.read_parquet(path)",
            "cupy": "x = cupy.random.random(shape)",
            "jax": "x = jax.random.normal(key, shape)",
            "openmp": "#pragma omp target teams loop  // the loop that fills u, on the device",
            "directives": "#pragma acc parallel loop present(u)  // the loop that fills u, on the device",
            "any": "fill<<<blocks, threads>>>(device, n);  // in place of a loop on the host and a copy",
        },
        text="What is made on the device is never uploaded.",
        needs="data that the device can make or read",
        caution="the data come from the host",
    ),
    Remedy(
        bound="gpu_copy",
        id="overlap-copies",
        title="Overlap copies with computation",
        rules=("copy-overlap", "copy-exposed"),
        do={
            "torch": 'with torch.cuda.stream(copies): ahead = ahead.to("cuda", non_blocking=True)\n'
            "torch.cuda.current_stream().wait_stream(copies)",
            "openmp": "#pragma omp target update to(u[0:n]) nowait depend(out: u[0:n])",
            "directives": "#pragma acc update device(u[0:n]) async(2)",
            "any": "cudaMemcpyAsync(ahead, pinned, bytes, cudaMemcpyHostToDevice, copies);\n"
            "cudaEventRecord(copied, copies); cudaStreamWaitEvent(stream, copied);",
        },
        text="With a stream of their own and two buffers, the next piece arrives while this one is being used.",
        needs="pinned memory, a second buffer",
        caution="each kernel needs the whole copy before it",
        scenario="copies_overlapped",
        because="copies can overlap with kernels for at most as long as the kernels take",
    ),
    Remedy(
        bound="gpu_copy",
        id="larger-pieces",
        title="Join small copies into one",
        do={
            "torch": "x = torch.cat(pieces)  # on the host, then one x.to('cuda')",
            "any": "cudaMemcpyAsync(device, packed, all_bytes, cudaMemcpyHostToDevice, stream);  // one copy for all",
        },
        text="Each copy has a fixed start-up cost: pack small ones into one.",
        needs="data that is ready at the same time",
        caution="copies are over 4 MB each already",
    ),
    Remedy(
        bound="gpu_copy",
        id="no-fill",
        title="Leave out the fill where a kernel writes all of the memory before it is read",
        do={
            "torch": 'x = torch.empty(shape, device="cuda")  # in place of torch.zeros',
            "cupy": "x = cupy.empty(shape)  # in place of cupy.zeros",
            "any": "// cudaMemset(pointer, 0, bytes);  // delete this line, if a kernel writes all of that memory",
        },
    ),
    Remedy(
        bound="gpu_copy",
        id="fewer-copies",
        title="Read data where they lie instead of copying them",
        do={
            "torch": "torch.mul(a, b, out=whole[i])  # in place of torch.cat and .clone()",
            "any": "next<<<blocks, threads>>>(source);  // reads the source, without the copy before it",
        },
    ),
    Remedy(
        bound="gpu_copy",
        id="faster-link",
        title="Find out why the link is slow",
        rules=("copy-bandwidth",),
        do={
            "amd": "rocm-smi --showbus",
            "any": "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv\n"
            "nvidia-smi topo -m",
        },
        is_search=True,
    ),
    Remedy(
        bound="gpu_copy",
        id="half-the-bytes",
        title="Move half the bytes, where half the bits are precise enough",
        do={
            "torch": "x = x.to(torch.bfloat16)  # before the copy",
            "python": "x = x.astype(numpy.float16)  # before the copy",
            "cpp": "cudaMemcpyAsync(device, host, n * sizeof(narrow), cudaMemcpyHostToDevice, stream);\n"
            "// narrow: float in place of double, __half in place of float; host and kernels hold it, too",
        },
        text="Copy BF16 or 8-bit images instead of FP32, and decode or convert them on the device.",
        needs="a type of half the bits that is precise enough, and kernels that read it or convert first",
        caution="the data are in their smallest form already",
        scenario="copies=2",
        because="copies of half the bytes take half as long",
        is_never_first=True,
    ),
    Remedy(
        bound="gpu_copy",
        id="managed-memory",
        title="Prefetch managed memory",
        rules=("managed-memory",),
        do={
            "openmp": "nvc++ -gpu=mem:separate ...\n#pragma omp target data map(to: u[0:n]) map(from: v[0:n])",
            "directives": "nvc++ -gpu=mem:separate ...\n#pragma acc data copyin(u[0:n]) copyout(v[0:n])",
            "python": "cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)  # no managed memory",
            "cudf": "rmm.reinitialize(managed_memory=False)",
            "any": "cudaMemPrefetchAsync(pointer, bytes, device, stream);  // before the first kernel that reads it",
        },
        text="`cudaMemPrefetchAsync` and `cudaMemAdvise` replace page faults, which move few pages at a time.",
        needs="managed memory in use",
        caution="the program copies explicitly",
    ),
    Remedy(
        bound="gpu_comm",
        id="overlap-comm",
        title="Overlap communication with the backward pass",
        rules=("comm-exposed",),
        do={
            "torch": "model = DistributedDataParallel(model, bucket_cap_mb=25, gradient_as_bucket_view=True)",
            "any": "ncclAllReduce(gradient, gradient, n, ncclFloat, ncclSum, comm, comm_stream);  // as soon as ready",
        },
        text="DDP and FSDP do so bucket by bucket, if gradients become ready one after the other.",
        needs="buckets that are ready before the end of the backward pass",
        caution="no computation is left to hide the communication",
        scenario="comm_overlapped",
        because="communication can overlap with kernels for at most as long as the kernels take",
    ),
    Remedy(
        bound="gpu_comm",
        id="find-late-rank",
        title="Find the rank that the others wait for",
        rules=("comm-exposed",),
        do={"any": "boundby job FOLDER  # the traces of all ranks"},
        text="A collective lasts until the last rank has come; `boundby job` says which one that is, and why.",
        needs="traces of all ranks",
        caution="ranks arrive together",
        is_search=True,
    ),
    Remedy(
        bound="gpu_comm",
        id="overlap-exchange",
        title="Compute while ranks exchange data",
        do={
            "torch": "work = dist.all_to_all_single(received, sent, async_op=True)  # or batch_isend_irecv(messages)\n"
            "work.wait()  # where the received data are used, after other work was launched",
            "any": "ncclRecv(next, n, ncclFloat, peer, comm, comm_stream);  // before the kernels that do not need it",
        },
        text="Sends, receives and all-to-all run beside kernels that do not need their data: another micro-batch, "
        "another layer.",
        needs="work that does not depend on what is received",
        caution="the rank that sends is late: then balance helps, not overlap",
        scenario="comm_overlapped",
        because="communication can overlap with kernels for at most as long as the kernels take",
    ),
    Remedy(
        bound="gpu_comm",
        id="fewer-bytes",
        title="Exchange fewer bytes",
        do={"torch": "model.register_comm_hook(None, default_hooks.bf16_compress_hook)"},
        text="Use BF16 gradients, sharding, or gradient accumulation without an exchange at each step.",
        needs="a check that training still converges",
        caution="collectives are short: then latency counts, not bytes",
        scenario="comm=2",
        because="half the bytes take half as long; less is saved where a collective waits for other ranks",
    ),
    Remedy(
        bound="gpu_comm",
        id="bucket-size",
        title="Choose the size of buckets",
        do={"torch": "model = DistributedDataParallel(model, bucket_cap_mb=100)"},
        text="Choose larger buckets where collectives are small and many, and smaller ones where the last "
        "collective begins late.",
        needs="an experiment: compare two captures",
        caution="there is one collective in a step",
        kinds=("torch",),
    ),
    Remedy(
        bound="gpu_comm",
        id="balance",
        title="See what the GPU does that comes last, and balance the ranks",
        rules=("comm-straggler",),
        do={"any": "boundby analyze $report --device $gpu"},
        text="The last rank to arrive sets the pace for all.",
        needs="traces of all ranks",
        caution="ranks arrive together",
    ),
    Remedy(
        bound="init",
        id="warm-up",
        title="Warm up before you start the clock",
        rules=("lazy-initialization",),
        do={
            "torch": "for _ in range(3): model(sample)  # before the clock starts\ntorch.cuda.synchronize()",
            "jax": "step(sample).block_until_ready()  # before the clock starts",
            "python": "step(sample)  # once, before the clock starts",
            "cpp": "kernel<<<blocks, threads>>>(data);  // once, before the timer starts: this loads its code\n"
            "cudaDeviceSynchronize();",
            "any": "step(sample);  // once, before the clock starts: it loads the code that the measured steps run",
        },
        text="Run a few steps before the clock starts or the requests come. `CUDA_MODULE_LOADING=EAGER` loads all code "
        "at the start instead. Neither makes the whole run shorter.",
        needs="a part that is measured, or waited for, apart from the start of the program",
        caution="the program runs once and is short: then the start is what counts",
        scenario="init_free",
        because="it comes once, and steps that follow do not pay it",
        elsewhere="what you time gets shorter by $time; the whole run does not",
    ),
    Remedy(
        bound="init",
        id="after-warm-up",
        title="Look at what comes after the warm-up",
        do={"any": "boundby analyze $report $rest  # without the start"},
    ),
    Remedy(
        bound="init",
        id="keep-compiled",
        title="Keep compiled code for the next run",
        rules=("jit-compilation",),
        do={
            "jax": "JAX_COMPILATION_CACHE_DIR=~/.cache/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 $program",
            "torch": "TORCHINDUCTOR_FX_GRAPH_CACHE=1 $program",
            "any": "CUDA_CACHE_MAXSIZE=4294967296 $program",
        },
        text="Code that is compiled at run time is compiled again in each process, unless a cache keeps it.",
        needs="a folder that stays",
        caution="shapes change at every step: fix the shapes first",
        elsewhere="each later run saves $time",
    ),
    Remedy(
        bound="init",
        id="allocate-once",
        title="Allocate and pin memory once",
        do={
            "cudf": _POOL,
            "torch": "buffer = torch.empty(largest_shape, pin_memory=True)  # once, before the loop",
            "cupy": "cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)",
            "any": "cudaMalloc(&device, largest); cudaMallocHost(&host, largest);  // once, before the loop",
        },
    ),
    Remedy(
        bound="init",
        id="runtime-start",
        title="Analyse the run without its one-time start",
        do={"any": "boundby analyze $report $rest  # without the start"},
        elsewhere="a process pays this once: $time",
    ),
    Remedy(
        bound="init",
        id="lazy-loading",
        title="Load less code",
        do={"amd": "HIP_ENABLE_DEFERRED_LOADING=1 $program", "any": "CUDA_MODULE_LOADING=LAZY $program"},
        text="`CUDA_MODULE_LOADING=LAZY` loads a kernel when it is first launched (HIP does so unless told otherwise); "
        "ship code for the device in use; keep compiled kernels in a cache.",
        needs="CUDA 11.7 or later, or ROCm",
        caution="the first step must be fast: then load everything beforehand",
    ),
    Remedy(
        bound="init",
        id="allocator",
        title="Allocate less often",
        rules=("allocation",),
        do={
            "cudf": _POOL,
            "torch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True $program",
            "julia": "mul!(y, a, x)  # writes into y, which is there",
            "openmp": "#pragma omp target enter data map(alloc: u[0:n])  // once, before the loop",
            "directives": "#pragma acc enter data create(u[0:n])  // once, before the loop",
            "python": "np.add(a, b, out=c)  # writes into c, which is there",
            "any": "cudaMallocAsync(&pointer, bytes, stream);\ncudaFreeAsync(pointer, stream);",
        },
        text="Use a caching allocator, or keep buffers.",
        needs="sizes that recur",
        caution="memory is allocated once",
    ),
    Remedy(
        bound="init",
        id="earlier-start",
        title="$earlier",
        rules=("late-start",),
        do={"torch": "$sample", "python": "$sample", "any": "perf record -g -- $program"},
        is_search=True,
    ),
    Remedy(
        bound="",
        id="steady-state",
        title="Look at the steady state",
        rules=("warm-up", "unsteady"),
        do={"any": "boundby analyze $report $rest  # without the start"},
    ),
    Remedy(
        bound="",
        id="record-more",
        title="Record what is missing",
        rules=(
            "trace-clock-skew",
            "trace-events-lost",
            "trace-incomplete",
            "trace-no-nvtx",
            "trace-profiler-overhead",
        ),
        do={"any": "$sample"},
        is_search=True,
    ),
    Remedy(
        bound="",
        id="record-graphs",
        title="Record what runs inside the CUDA graphs (boundby profile does: --cuda-graph-trace=node)",
        rules=("trace-graph-level",),
        do={"any": "boundby profile -- $program"},
        is_search=True,
    ),
    *(
        Remedy(
            bound=bound,
            id="on-cpu",
            title="Measure from which size on the GPU pays, and run smaller work on the CPU",
            do={"torch": "boundby measure devices FILE.py:FUNCTION"},
            text="Where the device has little to do and the host waits for it again and again, the CPU may be faster"
            " alone: it needs no launch, no copy and no wait.",
            needs="work that is small for a CPU, and code that also runs there",
            caution="sizes will grow: from some size on the GPU pays",
            scenario="no_sync+no_launch_overhead+infinite_gpu+copies_free",
        )
        for bound in ("cuda_api", "sync")
    ),
    *(
        Remedy(
            bound=bound,
            id="one-batch",
            title="Work on $items items as one batch",
            do={
                "torch": "out = model(torch.stack(items))  # in place of $items calls with one item each",
                "jax": "out = jax.vmap(model)(items)  # in place of $items calls with one item each",
                "python": "out = model(np.stack(items))  # in place of $items calls with one item each",
                "cpp": "step<<<dim3(blocks, $items), threads>>>(items);  // blockIdx.y chooses the item",
                "openmp": "#pragma omp target teams loop collapse(2)  // over all $items items and their elements",
                "directives": "#pragma acc parallel loop collapse(2)  // over all $items items and their elements",
            },
            text="A loop over items launches the same kernels for each of them, and often waits for each. One batch"
            " launches them once and waits once, and small kernels take hardly any longer for all items than for one.",
            needs="items of one size that do not depend on each other, and memory for all of them",
            caution="they are layers, or steps in time: each needs the one before",
        )
        for bound in ("cuda_api", "sync")
    ),
)


@cache
def by_key() -> Mapping[str, Remedy]:
    """Rows by `Remedy.key`."""
    return {row.key: row for row in TABLE}


@cache
def of_rule(rule: str) -> Remedy | None:
    """The row that a rule's findings number unless they name another; None: a rule of another package."""
    return next((row for row in TABLE if rule in row.rules), None)


def of_bound(bound: str) -> Iterable[Remedy]:
    """The rows of a pattern, in the page's order."""
    return (row for row in TABLE if row.bound == bound)
