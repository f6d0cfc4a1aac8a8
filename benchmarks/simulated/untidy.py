"""What makes real programs untidy, each a change of a draft: they can be put together in any way.

Names, lengths and numbers of calls are those of traces of real programs: training behind DALI and behind a pin-memory
thread, distributed training, renderers in C++.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.simulated.contended import contended
from benchmarks.simulated.mixture import MOST_PART_NS, Draft, Helper, delegate, feed, part
from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Await,
    Call,
    Compile,
    Copy,
    GraphLaunch,
    Init,
    Instruction,
    Launch,
    Loop,
    NewStream,
    Node,
    Process,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    item,
)
from boundby.simulate.patterns import NCCL, log_uniform

# Streams that only one feature uses.
_LOADER, _PINNED, _COMM, _SHORT, _POOLED, _LOCKED, _PAGES = 20, 22, 24, 26, 28, 30, 32
#: A daemon's loop is long enough for any program that is made here.
_FOREVER_NS = 2_000 * MS


class Feature(Struct, frozen=True):
    """One kind of untidiness."""

    about: str
    add: Callable[[Draft], None]


def _loader(draft: Draft) -> None:
    """DALI's executors: one decodes, one copies much, one copies many small things and runs kernels, a buffer being
    used again only once the step that had it is done on the device."""
    chance = draft.chance
    decode: Instruction = chance.choice([Work, Sleep])(draft.size())
    large = Copy(log_uniform(chance, 1e5, 3e7), "HtoD", chance.choice(["pinned", "pageable"]), stream=_LOADER + 1)
    small = Loop(chance.randint(4, 30), [Copy(log_uniform(chance, 64, 4096), "HtoD", stream=_LOADER)])
    kernel = Launch("NormalizeInvStdDevKernel", draft.size() // 4, _LOADER, share=draft.layout.share)
    ahead = chance.randint(1, 2)
    buffers = 2 * ahead + 2  # what lies between the thread that fills one and the step that has it
    used, ready, copied = f"used {{i%{buffers}}}", f"ready {{i%{buffers}}}", f"copied {{i%{buffers}}}"
    mixed = [
        Sync("event", event=used),
        WaitEvent(used, _LOADER + 1),
        large,
        Record(copied, _LOADER + 1),
        Record("copied, for its time", _LOADER + 1),
    ]
    gpu = [WaitEvent(copied, _LOADER), small, Work(20 * US), kernel, Record(ready, _LOADER)]
    if chance.random() < 0.4:
        gpu.append(Sync("stream", _LOADER))
    stages = [
        Helper("[DALI][WT]CPU executor", [decode]),
        Helper("[DALI][WT]Mixed executor", mixed),
        Helper("[DALI][WT]GPU executor", gpu),
    ]
    feed(draft, stages[chance.randint(0, 1) :], "dali", "dali", WaitEvent(ready), ahead=ahead)
    draft.body.append(Record(used))


def _pin_memory(draft: Draft) -> None:
    """A thread that sleeps until a worker delivers, copies that into pinned memory and to the device, and waits."""
    chance = draft.chance
    copy = Copy(log_uniform(chance, 1e4, 1e7), "HtoD", stream=_PINNED)
    pinning: list[Instruction] = [Sleep(draft.size(), "poll", 0.1), Work(draft.size() // 10, 0.1)]
    if chance.random() < 0.3:
        pinning.append(Alloc(log_uniform(chance, 20 * US, 1 * MS), call="cudaHostAlloc"))
    ahead = chance.randint(1, 3)
    ready = f"pinned {{i%{ahead + 1}}}"
    ends: list[Instruction] = chance.choice([[], [copy, Sync("stream", _PINNED)], [copy, Record(ready, _PINNED)]])
    feed(draft, [Helper("pt_pin_memory", [*pinning, *ends])], "pinned", "next batch", WaitEvent(ready), ahead=ahead)


def _watchdog(draft: Draft) -> None:
    """NCCL's watchdog: asks now and then whether collectives are done, and cares for nothing else."""
    period = log_uniform(draft.chance, 300 * US, 20 * MS)
    asks = Loop(draft.chance.randint(1, 4), [Call(draft.chance.randint(800, 4_000), "cudaEventQuery")])
    body = Loop(_FOREVER_NS // period // 4, [Sleep(period, "pthread_cond_timedwait"), asks])
    draft.daemons.append(Thread((body,), "pt_nccl_watchdg", daemon=True))


def _background(draft: Draft) -> None:
    """Threads of the driver and of libraries, which sleep."""
    polls = Loop(_FOREVER_NS // (10 * MS), [Sleep(10 * MS, "poll")])
    draft.daemons.append(Thread((polls,), "cuda-EvtHandlr", daemon=True))
    for _ in range(draft.chance.randint(1, 6)):
        draft.daemons.append(Thread((Sleep(_FOREVER_NS, "pthread_cond_wait"),), daemon=True))


def _waiting_delegate(draft: Draft) -> None:
    """Autograd's thread: launches as the main thread does, reads values back, allocates."""
    if any(helper.delegate for helper in draft.helpers):
        return
    chance, layout = draft.chance, draft.layout
    kinds = ["compute", *chance.choices(["api", "sync", "pageable", "copy", "comm", "init", "cpu"], k=2)]
    delegate(draft, [part(kind, layout, chance) for kind in kinds])
    if chance.random() < 0.5:
        draft.body.append(Sync("device"))


_HELPERS = (_loader, _pin_memory, _watchdog, _background, _waiting_delegate)


def _helper_threads(draft: Draft) -> None:
    for add in draft.chance.sample(_HELPERS, draft.chance.randint(1, 3)):
        add(draft)


def _short_streams(draft: Draft) -> None:
    """A renderer's passes, each of which makes a stream, runs a kernel on it beside the main stream, and drops it."""
    chance, at = draft.chance, draft.layout
    beside = at.share if chance.random() < 0.5 else 1.0
    lengths = [log_uniform(chance, 5 * US, 300 * US) for _ in range(chance.randint(1, 3))]
    turn: list[Instruction] = [NewStream(_SHORT)]
    turn += [Launch(f"kernel_{number}", ns, at.stream, share=at.share) for number, ns in enumerate(lengths)]
    if joins := chance.random() < 0.5:
        turn += [Record("forked", at.stream), WaitEvent("forked", _SHORT)]
    turn.append(Launch("kernel_grid", log_uniform(chance, 10 * US, 500 * US), _SHORT, share=beside))
    if joins:
        turn += [Record("joined", _SHORT), WaitEvent("joined", at.stream)]
    if chance.random() < 0.5:
        turn.append(Sync(chance.choice(["device", "stream"]), _SHORT))
    turn.append(Launch("composite_kernel", log_uniform(chance, 5 * US, 200 * US), at.stream, share=at.share))
    if chance.random() < 0.6:
        turn += item(stream=at.stream, memory="pageable")
    turn.append(Call(1 * US, "cudaStreamDestroy"))
    draft.put(Loop(chance.randint(2, 12), turn), name="passes")


def _event_pools(draft: Draft) -> None:
    """Few events for everything: times of kernels, the order of streams, and how far the host may run ahead."""
    chance, streams = draft.chance, draft.layout.streams
    pool = [f"pool_{number}" for number in range(chance.randint(1, 3))]
    uses: list[Instruction] = []
    for number in range(chance.randint(2, 6)):
        event, source = pool[number % len(pool)], chance.randrange(streams)
        target = chance.choice([source, _POOLED, chance.randrange(streams)])
        kernel = Launch("bucket", log_uniform(chance, 5 * US, 300 * US), target, share=draft.layout.share)
        uses += [Record(event, source), *([] if target == source else [WaitEvent(event, target)]), kernel]
        uses += [Record(event, target)] * chance.randint(0, 1)
    if chance.random() < 0.5:
        uses += [Call(1_200, "cudaEventCreateWithFlags"), Record("new", chance.randrange(streams))]
        uses += [Call(800, "cudaEventDestroy")]
    draft.put(*uses, name="pool")
    if chance.random() < 0.5:  # one step ahead of the device, no more
        draft.body = [Sync("event", event="step done"), *draft.body, Record("step done")]


def _graph_capture(draft: Draft) -> None:
    """Graphs that were captured in the beginning: calls that launch nothing; then launches of the whole."""
    chance = draft.chance
    for number in range(chance.randint(1, 3)):
        nodes = [
            Node(f"fused_{number}_{node}", log_uniform(chance, 2 * US, 60 * US))
            for node in range(chance.randint(3, 40))
        ]
        draft.first += [
            *(Launch(node.kernel, node.ns) for node in nodes),
            Sync("device"),
            Call(12 * US, "cudaStreamBeginCapture"),
            *(one for _ in nodes for one in (Call(4 * US, "cudaLaunchKernel"), Work(8 * US))),
            Call(15 * US, "cudaStreamEndCapture"),
            Call(len(nodes) * 10 * US, "cudaGraphInstantiate"),
        ]
        graph = GraphLaunch(nodes, draft.layout.stream)
        between: list[Instruction] = chance.choice([[], [Launch("attention", draft.size() // 4)], [Work(draft.size())]])
        draft.put(*[graph, *between] * chance.randint(1, 3), name=f"replay_{number}")
    draft.capture = replace(draft.capture, graph_nodes=chance.random() < 0.5)


def _memory_pools(draft: Draft) -> None:
    """Allocation in the order of the stream, a pool that grows now and then, and a cache that is emptied."""
    chance, at = draft.chance, draft.layout
    free = Call(chance.randint(500, 2_000), "cudaFreeAsync")
    body: list[Instruction] = []
    for _ in range(chance.randint(1, 4)):
        body += [Call(chance.randint(600, 3_000), "cudaMallocAsync")] * chance.randint(1, 3)
        body += [Launch("elementwise", log_uniform(chance, 3 * US, 200 * US), at.stream, share=at.share), free]
    if chance.random() < 0.3:
        body.append(Call(log_uniform(chance, 50 * US, 1 * MS), "cudaMallocAsync"))
    if chance.random() < 0.3:
        body += [Alloc(chance.randint(20, 200) * US, waits=True, call="cudaFree"), Alloc(chance.randint(50, 400) * US)]
    draft.put(*body, name="pooled")
    draft.first += [Alloc(log_uniform(chance, 100 * US, 3 * MS)) for _ in range(chance.randint(1, 8))]


def _contention(draft: Draft) -> None:
    """Gradients are reduced while the backward pass goes on: kernels run beside communication, and all get slower."""
    chance = draft.chance
    draft.machine = contended(draft.machine, contention=chance.choice([0.1, 0.3, 0.6, 1.0]))
    grad, reduce = draft.size() // 4, draft.size() // 4
    share = chance.choice([0.1, 0.2, 0.4])
    bucket = [
        Launch("gemm_grad", grad, share=1 - share),
        Work(15 * US),
        Record("grads"),
        WaitEvent("grads", _COMM),
        Launch(NCCL, reduce, _COMM, comm=True, share=share),
    ]
    buckets = Loop(chance.randint(2, 8), bucket)
    draft.put(buckets, Record("reduced", _COMM), WaitEvent("reduced"), name="reduce")


def _shared_gpu(draft: Draft) -> None:
    """Another process on the same GPU: of the same job and in the trace, in turns or beside (MPS); or somebody else's,
    in turns. It leaves the device half of the time."""
    chance = draft.chance
    kernel = log_uniform(chance, 20 * US, MOST_PART_NS)
    pause = log_uniform(chance, kernel, 10 * kernel)
    turn: list[Instruction] = [Launch("foreign_gemm", kernel), Sync("stream"), Sleep(pause, "poll", 0.1)]
    traced = chance.random() < 0.5
    if not traced or chance.random() < 0.6:
        draft.machine = contended(draft.machine, slice_ns=log_uniform(chance, 100 * US, 2 * MS))
    if traced:
        body = Loop(chance.randint(5, 40), [Range("request {i}", turn)])
        draft.neighbours.append(Process((Thread((body,)),), "server"))
    else:
        body = Loop(min(_FOREVER_NS // (kernel + pause), 2_000), turn)
        draft.neighbours.append(Process((Thread((body,), daemon=True),), "somebody", traced=False))


def _lost_rows(draft: Draft) -> None:
    """The profiler keeps no record of events, or none of syncs, or loses some of both."""
    chance = draft.chance
    draft.capture = replace(
        draft.capture,
        event_records=chance.random() < 0.5,
        syncs=chance.random() < 0.6,
        lost=chance.choice([0.0, 0.02, 0.2, 0.6]),
    )
    if chance.random() < 0.4:  # one of the two still tells sleep from work
        name = chance.choice(["osrt", "sched"])
        draft.capture = replace(draft.capture, **{name: False})


def _clock_drift(draft: Draft) -> None:
    """The device's clock runs fast or slow, is ahead or behind, and its times are not exact."""
    chance = draft.chance
    drift = chance.choice([-1, 1]) * 10 ** chance.uniform(-6, -4)
    skew = chance.choice([0, 0, chance.randint(-20, 20) * US, chance.randint(-150, 150) * MS])
    noise = chance.choice([0, 100, 1_000])
    draft.machine = replace(draft.machine, clock_drift=drift, clock_skew_ns=skew, clock_noise_ns=noise)


def _uploads_first(draft: Draft) -> None:
    """A model that is uploaded, code that is loaded and a first pass, before the steps."""
    chance = draft.chance
    uploads = [
        Copy(log_uniform(chance, 1e6, 2e8), "HtoD", "pageable", blocking=True) for _ in range(chance.randint(1, 4))
    ]
    loads = Init(log_uniform(chance, 1 * MS, 50 * MS))
    draft.first += [*uploads, Work(draft.size()), loads, Launch("first_pass", draft.size()), Sync()]


def _step_heads(draft: Draft) -> None:
    """The host decodes and prepares in every step, before it launches anything; or works on in the end of it, once the
    device is done or while it works."""
    draft.body.insert(0, Range("preprocess", [Work(draft.size()), Work(draft.size())]))
    if draft.chance.random() < 0.6:
        waits: list[Instruction] = draft.chance.choice([[], [Sync()], item()])
        draft.body.append(Range("metrics", [*waits, Work(draft.size())]))


def _external_pace(draft: Draft) -> None:
    """A camera: frames come every so often, whatever the program does, and each step waits for one."""
    period = log_uniform(draft.chance, 2 * MS, 40 * MS)
    frame = Range("capture", [Sleep(period, "ioctl"), Work(draft.chance.randint(5, 200) * US)])
    draft.helpers.append(Helper("v4l2src0:src", [frame, Signal("frame")]))
    draft.body.insert(0, Range("frame", [Await("frame")]))


def _decoders(draft: Draft) -> None:
    """A pool of threads, each of which makes its part of every batch, a few steps ahead: all compute, or all read."""
    chance, length = draft.chance, draft.size()
    makes: Instruction = chance.choice([Work(length, 0.2), Sleep(length, "read", 0.2)])
    for number in range(chance.randint(2, 4)):
        feed(draft, [Helper("decoder", [makes])], f"part {number}", f"get part {number}", ahead=chance.randint(1, 3))


def _idle_logger(draft: Draft) -> None:
    """A logger's thread that polls, and a mutex of its own that the main thread takes now and then: for long before the
    first kernel, while the logger opens its file, and for next to nothing after."""
    chance = draft.chance
    period, lock = log_uniform(chance, 300 * US, 20 * MS), "logger's mutex"
    polls = [Sleep(period, "pthread_cond_timedwait"), Await(lock), Work(chance.randint(2, 20) * US), Signal(lock)]
    opens = [Await(lock), Signal("logger has it"), Sleep(chance.randint(20, 200) * MS, "fsync"), Signal(lock)]
    draft.daemons.append(Thread((*opens, Loop(_FOREVER_NS // period, polls)), "logger", daemon=True))
    logs: list[Instruction] = [Await(lock), Work(5 * US), Signal(lock)]
    draft.first = [Signal(lock), Await("logger has it"), *logs, *draft.first]
    draft.put(*logs, name="log")


def _compile_pool(draft: Draft) -> None:
    """Compilers of a pool of threads, for which the main thread sleeps before it hands their code over."""
    chance = draft.chance
    pool, programs = chance.randint(1, 4), chance.randint(2, 5)
    length = log_uniform(chance, 6 * MS, 40 * MS)
    for number in range(pool):
        turn = [Await(f"compile {number}"), Compile(length, 0.2), Signal(f"compiled {number}")]
        draft.daemons.append(Thread((Loop(programs, turn),)))
    asks = [Signal(f"compile {number}") for number in range(pool)]
    waits = [Await(f"compiled {number}") for number in range(pool)]
    run = Launch("jit_loop_fusion", log_uniform(chance, 5 * US, 300 * US))
    hands_over = Init(chance.randint(50, 400) * US, "cuModuleLoadData")
    draft.first += [Launch("warm_up", 5 * US), Loop(programs, [*asks, *waits, hands_over, run])]


def _unseen_threads(draft: Draft) -> None:
    """Workers of another process make batches, for which the main thread sleeps; of autograd's thread the capture
    holds nothing but its calls."""
    chance = draft.chance
    draft.capture = replace(draft.capture, osrt=False, sched=True)
    draft.body.insert(0, Range("next", [Sleep(draft.size(), "poll", 0.1)]))
    if not any(helper.delegate for helper in draft.helpers):
        delegate(draft, [part(kind, draft.layout, chance) for kind in ("compute", "api")])
    draft.helpers = [replace(helper, unseen=helper.delegate) for helper in draft.helpers]


def _driver_lock(draft: Draft) -> None:
    """Copies of a thread that makes batches wait in the driver while the main thread waits in a copy of its own."""
    chance = draft.chance
    draft.machine = replace(draft.machine, driver_release_ns=chance.randint(20, 70) * US)
    large = Copy(log_uniform(chance, 1e6, 3e7), "HtoD", stream=_LOCKED)
    ready = "locked {i%4}"
    stage = Helper("[DALI][WT]Mixed executor", [Work(draft.size() // 4), large, Record(ready, _LOCKED)])
    feed(draft, [stage], "locked", "locked batch", WaitEvent(ready), ahead=chance.randint(1, 2))
    kernel = Launch("fmha", log_uniform(chance, 500 * US, 5 * MS), draft.layout.stream)
    draft.body += [kernel, Copy(4, "DtoH", "pageable", stream=draft.layout.stream)]


def _first_loads(draft: Draft) -> None:
    """First launches that load their code, inside the window: the program's first kernel needs none."""
    chance = draft.chance
    loads = [log_uniform(chance, 300 * US, 30 * MS) for _ in range(chance.randint(1, 4))]
    kernels = [
        Launch(f"lazily_loaded_{number}", log_uniform(chance, 5 * US, 300 * US), load_ns=load)
        for number, load in enumerate(loads)
    ]
    draft.first += [Launch("warm_up", 5 * US), Loop(chance.randint(3, 6), kernels)]


def _fault_storms(draft: Draft) -> None:
    """Managed memory: what the host made is read by the device, and it reads results back, by page faults, a block at a
    time, and does something with each."""
    chance = draft.chance
    size = log_uniform(chance, 4e3, 2e6)
    moves: Instruction = Copy(size, "DtoH", "managed", stream=_PAGES)
    reads = Loop(chance.randint(20, 300), [moves, Work(log_uniform(chance, 2 * US, 400 * US), 0.2)])
    if chance.random() < 0.5:
        draft.first += [Launch("fills_managed", draft.size() // 4), Sync(), reads]
    else:
        draft.put(Sync(), reads, name="check")


FEATURES: Mapping[str, Feature] = {
    "helper_threads": Feature("Threads that copy, wait, poll and sleep beside the main one.", _helper_threads),
    "short_streams": Feature("Streams that are created and destroyed in every pass.", _short_streams),
    "event_pools": Feature("Events that are used again for something else.", _event_pools),
    "graph_capture": Feature("Graphs that were captured from calls.", _graph_capture),
    "memory_pools": Feature("Allocation in stream order, and caches.", _memory_pools),
    "contention": Feature("Kernels that slow each other down.", _contention),
    "shared_gpu": Feature("Several processes on one GPU.", _shared_gpu),
    "lost_rows": Feature("Events and syncs without rows.", _lost_rows),
    "uploads_first": Feature("Uploads, loading and a first pass before the steps.", _uploads_first),
    "step_heads": Feature("Host work at the begin of every step.", _step_heads),
    "external_pace": Feature("Steps that wait for a camera's frames.", _external_pace),
    "decoders": Feature("Several threads that make each batch.", _decoders),
    "idle_logger": Feature("A thread that polls, and a mutex that it shares with the main one.", _idle_logger),
    "compile_pool": Feature("Compilers on other threads, for which the main one sleeps.", _compile_pool),
    "unseen_threads": Feature("A loader of processes, and a thread whose state is not known.", _unseen_threads),
    "driver_lock": Feature("Copies that wait in the driver for another thread's.", _driver_lock),
    "first_loads": Feature("First launches that load code.", _first_loads),
    "fault_storms": Feature("Managed memory that moves at page faults.", _fault_storms),
    "clock_drift": Feature("Clocks that drift and are off.", _clock_drift),
}
