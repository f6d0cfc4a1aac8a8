"""Variations of Kineto's JSON, each met by what is in the file and not by its version."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boundby
from boundby.api import load
from boundby.model.causes import Cause
from boundby.model.errors import InputError
from boundby.readers import holds_trace, read_trace
from boundby.render import terminal
from boundby.trace.tables import Direction, MemoryKind, OpKind
from tests.readers.kineto.trace import PID, TID, Kineto


def small() -> Kineto:
    made = Kineto(distributedInfo={"rank": 3, "world_size": 8, "backend": "nccl"}, baseTimeNanoseconds=10**18)
    made.event("user_annotation", "ProfilerStep#4", 0, 100)
    made.event("cpu_op", "aten::mm", 5, 20, args={"Input Dims": [[4, 8], [8, 2]], "Sequence number": 7})
    made.launch(10, 1)
    made.kernel(20.5, 30.25, 1)
    return made


@pytest.mark.parametrize("suffix", ["json", "json.gz", "pt.trace.json", "anything"])
def test_the_content_says_what_a_file_is(tmp_path: Path, suffix: str) -> None:
    text = small().text().encode()
    path = tmp_path / f"trace.{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    trace = read_trace(path)
    assert trace.source == "pytorch-profiler"
    assert trace.operations.end_ns.tolist() == [50_750]
    assert (trace.place.rank, trace.place.world_size, trace.start_unix_ns) == (3, 8, 10**18)
    assert [trace.names[name] for name in trace.ranges.name] == ["ProfilerStep#4", "aten::mm"]
    assert trace.operator_names == {"aten::mm"}
    assert (trace.threads[0].pid, trace.threads[0].tid) == (PID, TID)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(small().events))
    assert len(read_trace(path).operations) == 1


def test_ids_below_zero_and_events_without_a_name(tmp_path: Path) -> None:
    data = json.loads(small().text())
    for event in data["traceEvents"]:
        if event.get("cat") == "kernel":
            event["name"] = 1e300
        if event.get("cat") in ("cpu_op", "user_annotation"):
            event["pid"], event["tid"] = -6, -7
            event.pop("name")
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(data))
    report = boundby.analyze(path)
    assert {name for region in report.regions for name in region.path} == {"(unnamed)"}
    trace = read_trace(path)
    assert [trace.names[name] for name in trace.operations.name] == ["(unnamed)"]
    assert {(one.pid, one.tid) for one in trace.threads} >= {((1 << 32) - 6, (1 << 32) - 7)}


def test_traces_of_2021(tmp_path: Path) -> None:
    """Other categories, no decimals, ids as texts, backslashes that are no escapes."""
    made = Kineto()
    made.event("Operator", "ProfilerStep#1", 1_600_000_000_000_000, 90, tid="101", args={"Input dims": []})
    made.event("Runtime", "cudaMemcpyAsync", 1_600_000_000_000_010, 5, tid="101", args={"correlation": 1})
    arguments = {"device": 0, "stream": 7, "correlation": 1, "bytes": 4096}
    made.event(
        "Memcpy", "Memcpy HtoD (Pageable -> Device)", 1_600_000_000_000_020, 9, pid=0, tid="stream 7", args=arguments
    )
    made.event("Kernel", "PATH", 1_600_000_000_000_040, 9, pid=0, tid="stream 7", args={**arguments, "correlation": 2})
    path = tmp_path / "old.json"
    path.write_text(made.text().replace("PATH", r"C:\dir\kernel"))
    trace = read_trace(path)
    operations = trace.operations
    assert operations.kind.tolist() == [OpKind.MEMCPY, OpKind.KERNEL]
    assert (operations.direction[0], operations.source[0]) == (Direction.HTOD, MemoryKind.PAGEABLE)
    assert trace.names[operations.name[1]] == r"C:\dir\kernel"
    assert not trace.operator_names
    assert trace.start_unix_ns == 1_600_000_000_000_000_000


def test_what_is_no_json_but_is_found_in_files_passes(tmp_path: Path) -> None:
    """NaN, control characters in texts, keys given twice (the last counts), commas too many."""
    text = small().text().replace('"stream": 7', '"stream": 3, "occupancy": NaN, "stream": 9')
    path = tmp_path / "odd.json"
    path.write_text(text.replace("gemm", "ge\tmm").replace("}]}", "},]}"))
    trace = read_trace(path)
    assert trace.operations.stream.tolist() == [9]
    assert "ge\tmm" in trace.names


def test_hip_calls_are_their_cuda_twins(tmp_path: Path) -> None:
    made = Kineto(deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}, {"id": 1, "name": "AMD Instinct MI300X"}])
    made.launch(0, 1, "hipModuleLaunchKernel")
    made.kernel(10, 50, 1, device=9)
    made.launch(20, 2, "hipMemcpyWithStream", 60)
    made.event(
        "gpu_memcpy",
        "Memcpy DtoH (Device -> Host)",
        60,
        5,
        pid=9,
        tid=7,
        args={"device": 9, "correlation": 2, "bytes": 4},
    )
    report = boundby.analyze(made.write(tmp_path / "hip.json"))
    assert (report.devices[0].id, report.devices[0].name) == (9, "AMD Instinct MI300X")
    assert [gpu.id for gpu in report.trace.gpus] == [9]  # of another numbering: which of the list is idle is not known
    assert report.devices[0].sync.count == 1


def test_host_time_is_told_by_operators_and_frames_and_else_unattributed(tmp_path: Path) -> None:
    def idle(**between: tuple[str, float, float]) -> dict[str, int]:
        made = Kineto()
        for category, (name, start, length) in between.items():
            made.event(category, name, start, length)
        made.launch(0, 1)
        made.kernel(10, 10, 1)
        made.launch(2_000, 2)
        made.kernel(2_010, 10, 2)
        return dict(boundby.analyze(made.write(tmp_path / "idle.json")).devices[0].time)

    assert idle()["unattributed"] == 1_895_000  # all but the time in which the next call may be prepared
    assert idle(cpu_op=("aten::sort", 100, 1_900))["cpu"] == 1_895_000
    assert idle(python_function=("<built-in function sleep>", 100, 1_900))["host_blocked"] > 1_800_000
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    assert idle(user_annotation=(loader, 100, 1_900))["host_blocked"] > 1_800_000


def test_an_iterators_next_is_input_without_ranges(tmp_path: Path) -> None:
    made = Kineto()
    for step in range(4):
        at = step * 10_000
        made.launch(at, step + 1)
        made.kernel(at + 10, 1_000, step + 1)
        made.event("python_function", "batches.py(12): __next__", at + 1_500, 8_000)
        made.event("python_function", "batches.py(40): decode", at + 1_600, 7_800)
    report = boundby.analyze(made.write(tmp_path / "next.json"))
    assert report.devices[0].verdict.bound == "cpu"
    assert "host-input" in [finding.rule for finding in report.findings]


def test_a_wait_names_the_programs_line(tmp_path: Path) -> None:
    made = small()
    made.event("python_function", "train.py(31): step", 0, 100)
    made.event("python_function", "torch/_tensor.py(9): item", 9, 80)
    found = boundby.examine(made.write(tmp_path / "line.json"))
    assert found.trace.frames.at(0, 10_000)[0].label == "item (_tensor.py:9)"
    from boundby.evidence.operators import source_of

    assert source_of(found.timeline, 0)[0] == "step (train.py:31)"


def test_work_is_told_by_sizes(tmp_path: Path) -> None:
    made = small()
    made.events[1]["args"]["Input type"] = ["float", "float"]
    report = boundby.analyze(made.write(tmp_path / "work.json"))
    work = report.regions[0].work
    assert work is not None
    assert (work.flops, work.bytes, work.known_ns) == (2 * 4 * 8 * 2, 4 * (32 + 16 + 8), 30_250)


def test_a_kernel_of_triton_names_its_source(tmp_path: Path) -> None:
    made = Kineto()
    source = {"kernel_file": "/tmp/inductor/cab.py", "kernel_name": "triton_poi_0", "num_warps": 4, "num_stages": 1}
    for step in range(20):  # launched ahead: the device never waits
        made.event("cpu_op", "triton_poi_0", step * 30, 20, args={**source, "kernel_kwargs": "XBLOCK=1024"})
        made.launch(step * 30 + 2, step + 1)
        shape: dict[str, Any] = {"grid": [8000, 2, 1], "est. achieved occupancy %": 24}
        made.kernel(10 + step * 900, 900, step + 1, "triton_poi_0", **shape)
    report = boundby.analyze(made.write(tmp_path / "triton.json"))

    (hot,) = [finding for finding in report.findings if finding.rule == "hot-kernel"]
    assert any("/tmp/inductor/cab.py (num_warps=4, num_stages=1, XBLOCK=1024)" in advice for advice in hot.advice)
    assert hot.evidence["estimated_occupancy_fraction"] == 0.24


def test_a_grid_in_work_items_is_told_in_blocks(tmp_path: Path) -> None:
    made = Kineto()
    calls = "hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel", "hipModuleLaunchKernel", "hipExtLaunchKernel"
    for number, call in enumerate(calls, 1):
        made.launch(10 * number, number, call)
        made.kernel(100 * number, 90, number, f"k{number}", grid=[350_000, 8, 1], block=[256, 4, 1])
    trace = read_trace(made.write(tmp_path / "hip.json"))

    found = trace.shapes.blocks[trace.operations.shape].tolist()
    assert found == [1_368 * 2, 1_368 * 2, 350_000 * 8, 350_000 * 8]  # 350,000 / 256 = 1367.2


def test_strides_tell_which_convolutions_get_nchw(tmp_path: Path) -> None:
    made = Kineto()
    image = {"Input Dims": [[8, 64, 56, 56]], "Input type": ["float"]}
    for step in range(20):
        planar = [[200704, 3136, 56, 1]] if step % 4 else [[200704, 1, 3584, 64]]
        made.event("cpu_op", "aten::convolution", step * 40, 35, args={**image, "Input Strides": planar})
        for part, name in enumerate(("nchwToNhwcKernel", "sm80_xmma_fprop_implicit_gemm")):
            made.launch(step * 40 + 2 + 10 * part, 2 * step + part + 1)
            made.kernel(10 + step * 900 + part * 300, 300, 2 * step + part + 1, name, grid=[8000, 2, 1])
    report = boundby.analyze(made.write(tmp_path / "layout.json"))

    (layout,) = [finding for finding in report.findings if finding.rule == "layout-conversion"]
    assert "75 % of the convolutions get NCHW inputs" in layout.title
    assert layout.evidence["convolutions_with_nchw_inputs_fraction"] == 0.75


def test_uneven_exchanges_are_told(tmp_path: Path) -> None:
    made = Kineto()
    told = {
        "Collective name": "all_to_allv",
        "Process Group Name": "0",
        "Group size": 4,
        "In split size": [400, 100, 100, 200],
        "Out split size": [200, 200, 200, 200],
    }
    for step in range(10):
        made.launch(step * 30, 2 * step + 1)
        made.launch(step * 30 + 10, 2 * step + 2)
        made.kernel(10 + step * 1_000, 500, 2 * step + 1, "gemm", grid=[8000, 2, 1])
        made.kernel(515 + step * 1_000, 490, 2 * step + 2, "ncclDevKernel_SendRecv(ncclDevKernelArgs)", **told)
    report = boundby.analyze(made.write(tmp_path / "uneven.json"))

    (exposed,) = [finding for finding in report.findings if finding.rule == "comm-exposed"]
    assert exposed.evidence["largest_split_of_mean"] == 2.0
    assert "the largest part that a rank exchanges is 2.0 times the mean" in exposed.title
    assert exposed.advice[0].startswith("Balance what ranks exchange")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (small().text()[:-40].encode(), "cut short"),
        (gzip.compress(small().text().encode())[:-20], "cut short"),
        (small().text().replace('"traceEvents": [', '"traceEvents": [ oops').encode(), "not JSON"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "holds no event"),
        (b'{"answer": 42}', "without the events"),
    ],
    ids=["cut JSON", "cut gzip", "no JSON", "no event", "another's JSON"],
)
def test_what_cannot_be_used_is_told_in_a_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=said):
        read_trace(path)


def test_a_step_in_which_the_recording_ended_is_told_apart(tmp_path: Path) -> None:
    made = Kineto()
    for step in range(3):
        made.event("user_annotation", f"ProfilerStep#{step}", step * 100, 100 if step < 2 else 7)
        for call in range(5 if step < 2 else 1):
            made.launch(step * 100 + call, 10 * step + call)
            made.kernel(step * 100 + 10 + 8 * call, 8, 10 * step + call)
    report = boundby.analyze(made.write(tmp_path / "cut.json"))
    assert {region.name: region.instances for region in report.regions if region.path} == {
        "ProfilerStep#*": 2,
        "ProfilerStep#* (cut)": 1,
    }
    assert any(warning.code == "step-cut" and "ProfilerStep#2" in warning.message for warning in report.trace.warnings)


def test_who_calls_backward_waits_for_the_engines_thread(tmp_path: Path) -> None:
    """However few calls there are: the step's end comes earlier by what the engine's thread no longer does."""
    made = Kineto()
    made.event("user_annotation", "ProfilerStep#0", 0, 9_000)
    for call in range(3):
        made.launch(100 * call, call + 1)
        made.kernel(100 * call + 20, 5, call + 1)
    for node in range(3):
        start = 500 + 2_000 * node
        name = f"autograd::engine::evaluate_function: Node{node}Backward0"
        made.event("cpu_op", name, start, 1_900, tid=TID + 1)
        made.launch(start + 1_800, 10 + node)
        made.events[-1]["tid"] = TID + 1
        made.kernel(start + 1_820, 5, 10 + node)
    made.launch(6_600, 20)
    made.kernel(6_620, 5, 20)
    found = boundby.examine(made.write(tmp_path / "backward.json"))
    assert found.timeline.logical_threads.leader.tolist() == [0, 0]
    assert (found.report.devices[0].verdict.saving_ns or 0) > 4_000_000
    assert found.report.devices[0].time["cpu"] == 3 * 1_800_000  # while the engine's nodes are open


def test_filled_gradients_are_no_update_and_views_no_computation(tmp_path: Path) -> None:
    made, call = Kineto(), 0
    for step in range(4):
        begin = step * 40_000
        made.event("user_annotation", "Optimizer.zero_grad#SGD.zero_grad", begin, 39_000)
        for tensor in range(60):
            call, start = call + 1, begin + 600 * tensor
            made.event("cpu_op", "aten::linear", start, 500)
            made.event("cpu_op", "aten::empty", start + 10, 400)
            made.launch(start + 450, call)
            made.kernel(start + 460, 5, call, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>()")
    found = {item.rule: item for item in boundby.analyze(made.write(tmp_path / "zero.json"), show_all=True).findings}
    assert "operator-on-cpu" not in found
    assert found["unfused-optimizer"].advice[0].startswith("optimizer.zero_grad(set_to_none=True)")


def test_memory_is_told_by_region_and_over_time(tmp_path: Path) -> None:
    made = Kineto()
    made.event("user_annotation", "forward", 0, 50)
    made.event("cpu_op", "aten::empty", 5, 10)
    made.event("user_annotation", "loss", 60, 30)
    made.launch(20, 1)
    made.kernel(30, 50, 1)
    in_use = 1_000  # weights
    for time, address, size in ((7, 1, 500), (8, 2, 300), (40, 2, -300), (65, 3, 400), (80, 1, -500)):
        in_use += size
        told = {"Total Allocated": in_use, "Total Reserved": 4_096, "Bytes": size, "Addr": address}
        made.event("cpu_instant_event", "[memory]", time, 0, ph="i", args={**told, "Device Id": 0, "Device Type": 1})
    report = boundby.analyze(made.write(tmp_path / "memory.json"))
    memory = report.devices[0].memory
    assert memory is not None
    assert (memory.peak_bytes, memory.peak_ns, memory.peak_path) == (1_900, 65_000, ("loss",))
    assert (memory.before_bytes, memory.first_bytes, memory.last_bytes) == (1_000, 1_000, 1_400)
    assert [(one.path, one.bytes) for one in memory.held] == [(("forward",), 500), (("loss",), 400)]
    of = {region.path: region.memory for region in report.regions}
    forward = of["forward",]
    assert forward is not None
    assert (forward.allocated_bytes, forward.kept_bytes, forward.held_at_peak_bytes) == (800, 500, 500)
    assert "peak 1.90 kB in use (4.10 kB reserved)" in terminal.render(report)


@pytest.mark.parametrize(("agents", "visible"), [((2,), (0,)), ((9, 4), (0, 1)), ((2,), (2,))])
def test_memory_of_amd_is_that_of_the_gpu_that_pytorch_sees(
    agents: tuple[int, ...], visible: tuple[int, ...], tmp_path: Path
) -> None:
    """Operations are on agent 2 (the CPUs are agents, too); PyTorch allocates on GPU 0, which is the same."""
    made = Kineto()
    for place, agent in enumerate(agents):
        made.launch(20 + 9 * place, 1 + place)
        made.kernel(30 + 90 * place, 50, 1 + place, device=agent)
    for number in visible:
        told = {"Total Allocated": 100 * (number + 1), "Total Reserved": 4_096, "Bytes": 100, "Addr": 1}
        made.event("cpu_instant_event", "[memory]", 40, 0, ph="i", args={**told, "Device Id": number, "Device Type": 1})
    found = {device.id: device.memory for device in boundby.analyze(made.write(tmp_path / "amd.json")).devices}
    for number, agent in zip(visible, sorted(agents), strict=True):
        memory = found[agent]
        assert memory is not None
        assert memory.peak_bytes == 100 * (number + 1)


def test_backward_is_told_beside_its_forward(tmp_path: Path) -> None:
    made = Kineto()
    made.event("user_annotation", "net", 0, 40)
    made.event("cpu_op", "aten::linear", 5, 30, args={"Sequence number": 7})
    made.event("cpu_op", "aten::addmm", 8, 20, args={"Sequence number": 7})
    made.launch(10, 1)
    made.kernel(20, 10, 1)
    node = {"Sequence number": 7, "Fwd thread id": 1}
    made.event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 50, 40, tid=TID + 1, args=node)
    made.event("cpu_op", "aten::mm", 55, 20, tid=TID + 1, args={"Sequence number": 9})
    made.event("cuda_runtime", "cudaLaunchKernel", 60, 5, tid=TID + 1, args={"correlation": 2})
    made.kernel(70, 25, 2)
    told = {
        region.path: region.backward_kernels_ns for region in boundby.analyze(made.write(tmp_path / "b.json")).regions
    }
    assert told["net",] == told["net", "aten::linear"] == told["net", "aten::linear", "aten::addmm"] == 25_000
    assert sum(told.values()) == 4 * 25_000  # and the whole


def test_a_plain_trace_is_no_saved_result(tmp_path: Path) -> None:
    """Commands that take a result saved as JSON take a trace, too."""
    path, result = small().write(tmp_path / "trace.json"), tmp_path / "result.json"
    result.write_text(json.dumps(boundby.analyze(path).to_dict()))
    assert [holds_trace(one) for one in (path, result)] == [True, False]
    assert load(path).devices[0].busy_ns == load(result).devices[0].busy_ns
    comparison = boundby.compare_runs(result, path)
    assert comparison.devices[0].after is not None


def test_who_waits_for_autograd_sleeps_and_a_thread_lives_from_its_first_frame(tmp_path: Path) -> None:
    """In ``run_backward`` the engine's threads work, unless the caller runs the operators itself."""

    def time(*operators: tuple[float, float]) -> dict[str, int]:
        made = Kineto()
        made.event("python_function", "train.py(1): <module>", 0, 4_200)
        made.event("python_function", "<built-in method run_backward of torch._C._EngineBase object>", 1_000, 2_000)
        for start, length in operators:
            made.event("cpu_op", "MulBackward0", start, length)
        made.launch(500, 1)
        made.kernel(510, 10, 1)
        made.launch(4_000, 2)
        made.kernel(4_010, 10, 2)
        found = boundby.examine(made.write(tmp_path / "backward.json"))
        assert found.timeline.host_state.states(0).at(np.array([100_000]))[0] == Cause.CPU, "it had begun"
        return dict(found.report.devices[0].time)

    assert time()["host_blocked"] == 2_000_000
    alone = time((1_200, 1_700))
    assert (alone["host_blocked"], alone["cpu"]) == (300_000, time()["cpu"] + 1_700_000)


def test_what_is_said_to_the_owner_of_an_amd_device_is_hips(tmp_path: Path) -> None:
    made = Kineto(deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}])
    for call in range(12):
        begin = 7_000 + 100 * call if call else 0
        made.launch(begin, call + 1, "hipLaunchKernel", 5 if call else 6_500)
        made.kernel(begin + 20 if call else 6_450, 20, call + 1)
    made.launch(-50, 100, "hipLaunchKernel")
    made.kernel(-30, 10, 100, "other")
    report = boundby.analyze(made.write(tmp_path / "amd.json"))
    found = next(item for item in report.findings if item.rule == "lazy-initialization")
    assert "HIP_ENABLE_DEFERRED_LOADING=0" in " ".join(found.advice)
    (first,) = report.devices[0].first_responses
    assert (first.id, first.code.splitlines()[-1]) == ("init.warm-up", "torch.cuda.synchronize()")  # HIP's name, too
    assert "CUDA_" not in first.because + first.action


def test_calls_have_the_stacks_of_their_operators_in_old_traces(tmp_path: Path) -> None:
    """PyTorch 1.8 to 1.11 tell of each operator where it was called from, and no Python functions."""
    made = Kineto()
    stack = "/opt/conda/lib/python3.8/site-packages/torch/_tensor.py(9): item;train.py(31): step;train.py(50): <module>"
    made.event("Operator", "aten::item", 0, 100, args={"Call stack": stack})
    made.event("Operator", "aten::_local_scalar_dense", 5, 90)
    made.launch(10, 1, "cudaMemcpyAsync")
    made.launch(20, 2, "cudaStreamSynchronize", 60)
    made.launch(200, 3)
    told = {"device": 0, "stream": 7, "correlation": 1, "bytes": 4}
    made.event("Memcpy", "Memcpy DtoH (Device -> Pageable)", 30, 40, pid=0, tid=7, args=told)
    made.kernel(210, 10, 3)
    found = boundby.examine(made.write(tmp_path / "old.json"))
    from boundby.evidence.operators import source_of

    assert found.trace.captured.python_stacks
    lines = [source_of(found.timeline, call) for call in range(3)]
    assert lines == [("step (train.py:31)", "<module> (train.py:50)")] * 2 + [()]


def test_modules_of_torchscript_are_regions_in_old_traces(tmp_path: Path) -> None:
    made = Kineto()
    top = "TOP(Net)::forward."
    for step in range(2):
        begin = 1_000 * step
        made.event("user_annotation", f"ProfilerStep#{step}", begin, 900)
        made.event(
            "Operator", "aten::conv2d", begin + 10, 100, args={"Module Hierarchy": f"{top}conv1(Conv2d)::forward."}
        )
        hierarchy = f"{top}conv1(Conv2d)::forward.SELF(Conv2d)::_conv_forward."
        made.event("Operator", "aten::convolution", begin + 20, 80, args={"Module Hierarchy": hierarchy})
        made.event("Operator", "aten::relu", begin + 150, 50, args={"Module Hierarchy": top})
        made.launch(begin + 160, step + 1)
        made.kernel(begin + 180, 10, step + 1)
        made.event("Operator", "aten::add_", begin + 400, 50)
    report = boundby.analyze(made.write(tmp_path / "modules.json"))

    instances = {"/".join(region.path): (region.instances, region.host.total_ns) for region in report.regions}
    assert instances["ProfilerStep#*/Net"] == (2, 2 * 190_001)
    assert instances["ProfilerStep#*/Net/conv1(Conv2d)/aten::conv2d/aten::convolution"] == (2, 160_000)
    assert instances["ProfilerStep#*/Net/aten::relu"] == (2, 100_000)
    assert "ProfilerStep#*/aten::add_" in instances
