"""Hand-built reports for the renderers' tests. Every account sums, as the real ones do."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from boundby.model.causes import CAUSE_KEYS
from boundby.results.report import (
    AnalysisSummary,
    ApiCalls,
    Check,
    Copies,
    DeviceReport,
    Distribution,
    Example,
    Finding,
    Gaps,
    Kernels,
    LaunchLatency,
    NotChecked,
    RegionReport,
    Report,
    Saving,
    Syncs,
    ThreadReport,
    Top,
    TraceSummary,
    Verdict,
    WhatIf,
    Window,
)
from boundby.trace.facts import Captured, GpuInfo, TraceWarning

MS = 1_000_000
WINDOW = 5_430 * MS
BUSY = ("gpu_compute", "gpu_comm", "gpu_copy")
CHECKLIST = (
    Check("GPU utilization", "61 %", "below 80 %: the GPU often waits", None),
    Check("CPU utilization", "84 %", "high, but not all of it", None),
    Check("gaps", "9.3k, longest 4.10 ms", "many and short", "cuda_api"),
    Check("API calls", "18.2 /ms", "frequent", "cuda_api"),
    Check("blocking syncs", "13 a step, 1.30 s", "many, most behind a copy of 8 bytes", "sync"),
    Check("copy share", "3 %", "rare", None),
)


def account(**ms: float) -> dict[str, int]:
    """A full account from milliseconds by cause."""
    return {key: round(ms.get(key, 0) * MS) for key in CAUSE_KEYS}


def distribution(count: int, each_ms: float) -> Distribution:
    total = round(count * each_ms * MS)
    return Distribution(count, total, each_ms * MS, each_ms * MS * 0.98, each_ms * MS * 1.2, round(each_ms * MS * 1.6))


def copies(count: int, byte_count: int) -> Copies:
    return Copies(
        count=count,
        bytes=byte_count,
        total_ns=count * 1_500,
        pageable_count=count // 2,
        small_count=count // 3,
        bandwidth_bytes_per_s=byte_count / (count * 1_500) * 1e9,
        by_memory={"pageable -> device": byte_count // 2, "pinned -> device": byte_count - byte_count // 2},
    )


def region(
    path: str | tuple[str, ...],
    time: Mapping[str, int],
    verdict: Verdict,
    *,
    exclusive: Mapping[str, int] | None = None,
    instances: int = 100,
    host_ms: float = 10.0,
    whole: int = WINDOW,
    domain: str = "",
) -> RegionReport:
    total = sum(time.values())
    busy = sum(time[cause] for cause in BUSY)
    return RegionReport(
        path=tuple(path.split("/")) if isinstance(path, str) else path,
        domain=domain,
        instances=instances,
        host=distribution(instances, host_ms),
        projected=distribution(instances, host_ms * 1.1) if busy else None,
        time=time,
        time_exclusive=time if exclusive is None else exclusive,
        verdict=verdict,
        gpu_utilization=busy / total if total else None,
        gpu_utilization_host=busy / total * 0.9 if total else None,
        cpu_utilization=0.84,
        gaps=Gaps(93 * instances, total - busy, 4_100_000),
        api=ApiCalls(180 * instances, 40_000_000, 18.2),
        sync=Syncs(13 * instances, 1_300_000_000, 0.24),
        memcpy={"HtoD": copies(200, 800_000_000), "DtoH": copies(1_300, 10_400)},
        kernels=Kernels(120 * instances, busy, 21_500.0),
        launch_latency=LaunchLatency(7_900.0, 41_000.0) if busy else None,
        queue_depth_median=2.0,
        blocked_on={"lock": 12_000_000, "file": 1_000_000},
        share=total / whole if whole else 0.0,
    )


def device(
    number: int, time: Mapping[str, int], verdict: Verdict, checklist: tuple[Check, ...] = CHECKLIST
) -> DeviceReport:
    window = sum(time.values())
    busy = sum(time[cause] for cause in BUSY)
    return DeviceReport(
        id=number,
        name="NVIDIA A100-SXM4-40GB",
        window=Window(3_100 * MS, 3_100 * MS + window),
        busy_ns=busy,
        idle_ns=window - busy,
        startup_ns=3_100 * MS,
        shutdown_ns=12 * MS,
        time=time,
        gaps=Gaps(9_312, window - busy, 4_100_000),
        kernels=Kernels(12_000, busy, 21_500.0),
        api=ApiCalls(98_826, 800_000_000, 18.2),
        sync=Syncs(1_300, 1_300_000_000, 0.24),
        memcpy={"HtoD": copies(200, 800_000_000), "DtoH": copies(1_300, 10_400)},
        launch_latency=LaunchLatency(7_900.0, 41_000.0),
        queue_depth_median=2.0,
        queue_depth_max=312,
        cpu_utilization=0.84,
        host_active_ns=window // 2,
        verdict=verdict,
        checklist=checklist,
        processes=(4242,),
    )


def thread(
    tid: int, name: str, time: Mapping[str, int], blocked_on: Mapping[str, int], cpu: float | None, verdict: Verdict
) -> ThreadReport:
    return ThreadReport(
        pid=77,
        tid=tid,
        name=name,
        total_ns=sum(time.values()),
        cpu_utilization=cpu,
        verdict=verdict,
        time=time,
        blocked_on=blocked_on,
    )


STEP = account(gpu_compute=3_100, gpu_copy=160, sync=1_300, cuda_api=590, cpu=150, device_wait=20, unattributed=8)
FORWARD = account(gpu_compute=2_150, cuda_api=70)
LOSS = account(gpu_compute=340, gpu_copy=100, sync=1_250, cuda_api=330, cpu=40)
BACKWARD = account(gpu_compute=580, cuda_api=190, sync=50, cpu=100)
ATTENTION = account(gpu_compute=900, cuda_api=20)
TINY = account(gpu_compute=8)
NOTHING = account()
WHOLE = account(
    gpu_compute=3_150, gpu_copy=163, sync=1_310, cuda_api=600, cpu=163, device_wait=26, profiler=4, unattributed=14
)


def minus(whole: Mapping[str, int], *parts: Mapping[str, int]) -> dict[str, int]:
    return {key: whole[key] - sum(part[key] for part in parts) for key in CAUSE_KEYS}


def verdict(bound: str, saving_ms: float | None = None, because: str = "", **more: object) -> Verdict:
    saving_ns = None if saving_ms is None else round(saving_ms * MS)
    made = Verdict(bound, "high", saving_ns=saving_ns, because=because, decided_by="replay")
    return replace(made, **more)


SYNC_BOUND = verdict(
    "sync",
    1_310,
    "13 syncs a step block 13 ms while the GPU idles",
    runner_up="cuda_api",
    runner_up_saving_ns=480 * MS,
    bound_next="cuda_api",
    savings=(Saving("sync", 1_310 * MS), Saving("cuda_api", 480 * MS), Saving("cpu", 90 * MS)),
)


def sample() -> Report:
    """One device, nested regions, a hidden and a mixed verdict, findings and scenarios."""
    mixed = verdict(
        "mixed",
        190,
        "host and GPU take turns",
        mixed_of=("gpu_compute", "cuda_api"),
        runner_up="cuda_api",
        runner_up_saving_ns=150 * MS,
        confidence="low",
        reasons=("CPU scheduling was not captured",),
    )
    regions = (
        region((), WHOLE, SYNC_BOUND, exclusive=minus(WHOLE, STEP), instances=1, host_ms=5_430),
        region(
            "step",
            STEP,
            verdict("sync", 1_300, "13 syncs a step block 13 ms while the GPU idles"),
            exclusive=minus(STEP, FORWARD, LOSS, BACKWARD, TINY),
            host_ms=53.2,
        ),
        region(
            "step/forward",
            FORWARD,
            verdict("gpu_compute", 210, "GPU 97 %, host 9 ms ahead"),
            exclusive=minus(FORWARD, ATTENTION),
            host_ms=21.8,
        ),
        region("step/forward/attention", ATTENTION, verdict("gpu_compute", 120, "GPU 98 %"), instances=2_400),
        region("step/loss", LOSS, verdict("sync", 1_250, "nonzero, unique and a boolean mask wait for the GPU")),
        region("step/backward", BACKWARD, mixed, host_ms=9.1),
        region("step/zero_grad", TINY, verdict("gpu_compute", 4, "GPU 99 %"), host_ms=0.1),
        region("data", NOTHING, verdict("hidden", None, "runs behind the GPU on another thread"), host_ms=31.0),
    )
    finding = Finding(
        rule="sync-operator",
        severity="high",
        title="torch.nonzero, torch.unique and a boolean index wait for the GPU",
        region=("step", "loss"),
        evidence={"syncs": 1_300, "operators": ["aten::nonzero", "aten::_unique2"], "share": 0.24},
        saving_ns=(1_100 * MS, 1_300 * MS),
        advice=("Use torch.where and a count instead of the boolean mask.", "Pass ignore_index to the loss."),
        docs="rules/sync-operator",
        examples=(
            Example(3_668_803_000, 3_620_000, "cudaMemcpyAsync in aten::nonzero, compute_loss (train.py:42)"),
            Example(9_537_906_000, 3_610_000, "cudaMemcpyAsync in aten::nonzero, compute_loss (train.py:42)"),
            Example(4_200_100_000, 910_000, "cudaStreamSynchronize in aten::_unique2"),
        ),
        instances=1_300,
        disproof="If the step takes as long without them, the GPU had other reasons to be idle.",
    )
    note = Finding(
        rule="trace-graph-level",
        severity="note",
        title="10 CUDA graph launches are opaque",
        region=None,
        evidence={"graph_launches": 10},
        saving_ns=None,
        advice=("Capture once with --cuda-graph-trace=node.",),
        docs="rules/trace-graph-level",
    )
    return Report(
        trace=TraceSummary(
            path="reports/train.sqlite",
            source="nsys-sqlite",
            nsys_version="2023.4.4",
            schema_version="3.11.1",
            command="python train.py --epochs 2 --batch-size 64",
            gpus=(GpuInfo(0, "NVIDIA A100-SXM4-40GB"), GpuInfo(1, "NVIDIA A100-SXM4-40GB", used=False)),
            captured=Captured(kernels=True, cuda_api=True, memcpy=True, sync=True, nvtx=True, osrt=True),
            warnings=(TraceWarning("open-ranges", "2 NVTX ranges never closed: they end with the trace"),),
            duration_ns=8_542 * MS,
        ),
        devices=(device(0, WHOLE, SYNC_BOUND),),
        threads=(),
        regions=regions,
        findings=(finding, note),
        not_checked=(
            NotChecked("input-pipeline", "the trace holds no CPU scheduling"),
            NotChecked("host-work", "the trace holds no CPU scheduling"),
            NotChecked("comm-straggler", "one GPU only", could_matter=False),
        ),
        analysis=AnalysisSummary(rules_checked=40),
        what_if=(
            WhatIf("no_sync", 4_120 * MS, WINDOW),
            WhatIf("no_launch_overhead", 4_950 * MS, WINDOW),
            WhatIf("infinite_gpu", 3_900 * MS, WINDOW),
        ),
    )


def cpu_only() -> Report:
    """No GPU work: threads instead of devices."""
    main = account(cpu=2_900, host_blocked=900, unattributed=200)
    worker = account(cpu=300, host_blocked=3_100)
    low = ("CPU scheduling was not captured", "no GPU work was captured")
    computing = verdict("cpu", 2_900, "the host computes 73 % of the time", confidence="medium", reasons=low)
    blocked = verdict("host_blocked", 3_100, "sleeps 91 % of the time, mostly on a lock")
    whole = 7_400 * MS
    return Report(
        trace=TraceSummary(
            path="cpu.nsys-rep",
            source="nsys-rep",
            nsys_version="2024.2.3",
            captured=Captured(nvtx=True, osrt=True),
            duration_ns=4_100 * MS,
        ),
        devices=(),
        threads=(
            thread(77, "python", main, {"file": 600 * MS, "lock": 300 * MS}, 0.73, computing),
            thread(81, "loader", worker, {"lock": 3_100 * MS}, None, blocked),
        ),
        regions=(
            region((), account(cpu=3_200, host_blocked=4_000, unattributed=200), computing, exclusive=NOTHING),
            region("load", worker, blocked, whole=whole, host_ms=34),
            region("fit", main, computing, whole=whole, host_ms=40),
        ),
    )


def with_tops() -> Report:
    """The sample, whose root and step say which kernel and which call took longest."""
    report = sample()
    kernel, call = Top("gemm", 3, 3000), Top("cudaLaunchKernel", 3, 3000)
    first = (
        replace(region, kernels=replace(region.kernels, top=(kernel,)), api=replace(region.api, top=(call,)))
        for region in report.regions[:2]
    )
    return replace(report, regions=(*first, *report.regions[2:]))


def two_devices() -> Report:
    """Two devices with different verdicts."""
    base = sample()
    second = account(gpu_compute=4_100, gpu_comm=1_000, gpu_copy=30, cuda_api=250, device_wait=50)
    comm = verdict(
        "gpu_comm",
        900,
        "all-reduce runs alone for 18 % of the time",
        runner_up="gpu_compute",
        runner_up_saving_ns=700 * MS,
    )
    return replace(base, devices=(*base.devices, device(1, second, comm)), findings=(), what_if=())


def many_devices(number: int = 8) -> Report:
    """A node: every device like the two above, in turn."""
    first, second = two_devices().devices
    devices = tuple(replace((first, second)[i % 4 == 3], id=i) for i in range(number))
    return replace(two_devices(), devices=devices)


def empty() -> Report:
    """A report that holds nothing at all."""
    return Report(trace=TraceSummary("empty.sqlite", "nsys-sqlite"), devices=(), regions=())


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "[bold red]x[/bold red]",
    "a|b\\|c",
    "=1+1",
    "+cmd",
    "@someone",
    "-2",
    "`tick` ``two``",
    "red \x1b[31mtext\x07 and\r\nlines\ttabs",
    "surrogate \udc80\ud800",
    "bidi \u202egnp.exe\u2066 zero\u200bwidth",
    "**bold** _it_ ~~no~~ #1 $x$ <!-- c -->",
    "漢字の名前 wide",
    "x" * 500,
    "",
    "\x00",
    "</td></tr></table><script>alert(1)</script>",
)


def hostile() -> Report:
    """Every text that a trace supplies is somebody else's."""
    base = sample()
    regions = tuple(
        region((name,), account(gpu_compute=200, sync=100), verdict("sync", 90, f"because {name}"), domain=name)
        for name in HOSTILE
    )
    nasty = "\x1b]0;title\x07<script>|`[red]\n@all"
    findings = (
        Finding(nasty, "high", nasty, (nasty, "y"), {nasty: nasty}, None, (nasty,), nasty),
        Finding("r", "low", "t", None, {}, (5, 5), (), ""),
    )
    return replace(
        base,
        trace=replace(
            base.trace,
            path=f"dir/{nasty}",
            command=nasty + "\udcff",
            nsys_version=nasty,
            warnings=(TraceWarning(nasty, nasty),),
        ),
        devices=(
            replace(
                base.devices[0],
                name=nasty,
                checklist=(Check(nasty, nasty, nasty, nasty),),
                verdict=replace(SYNC_BOUND, because=nasty, reasons=(nasty, nasty)),
            ),
        ),
        regions=(base.regions[0], *regions),
        findings=findings,
        not_checked=(NotChecked(nasty, nasty),),
        what_if=(WhatIf(nasty, 0, 5),),
    )


ALL = {
    "sample": sample,
    "cpu_only": cpu_only,
    "two_devices": two_devices,
    "many_devices": many_devices,
    "empty": empty,
    "hostile": hostile,
}
