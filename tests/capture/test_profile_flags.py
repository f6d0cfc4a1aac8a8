"""From options, nsys and machine to arguments; and a real nsys with fewer flags than it has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from boundby.capture import flags
from boundby.capture.flags import CaptureOptions, Computer, InstalledGpu, Plan, Support, plan, probe_support, read_help
from boundby.capture.nsys import Nsys
from boundby.model.errors import ToolError, UserError
from tests.support.nsys import fake_nsys
from tests.support.profiling import Profiler

GPU = Computer("5.15.0-91-generic", (InstalledGpu("NVIDIA A100"),), "535.104", None, None)
CPU = Computer("6.18.1", (), None, None, None)
PROGRAM = ("python", "train.py")
HELP_2026 = """
usage: nsys profile [<args>] [application] [<application args>]

        -t, --trace=

           Possible values are 'cuda', 'cuda-hw', 'nvtx', 'cublas', 'mpi', 'ucx', 'nccl', 'osrt', 'cudnn' or 'none'.
           Default is 'cuda,nvtx,osrt'.

        -s, --sample=

           Possible values are 'process-tree' or 'none'.

        --cpuctxsw=
        --backtrace=
        (Experimental) --gpu-metrics-devices=

           Takes the place of --gpu-metrics-device. Note that --trace=vulkan must be set.

        --gpu-metrics-frequency=
        --cuda-graph-trace=<granularity>
        --kill=
        --wait=
"""
LISTS_A_GPU = "echo 'Possible values are:'; echo '\t0: NVIDIA A100 PCI[0000:07:00.0]'; echo '\tall: all of them'"


def made(
    options: CaptureOptions | None = None, machine: Computer = GPU, *, nsys: Nsys, help_text: str = HELP_2026
) -> Plan:
    return plan(options or CaptureOptions(), read_help(help_text), machine, nsys, PROGRAM)


@pytest.fixture
def new(tmp_path: Path) -> Nsys:
    return fake_nsys(tmp_path / "bin", LISTS_A_GPU, "2026.1.1.4-x")


def test_help_is_read_by_its_headings() -> None:
    support = read_help(HELP_2026)
    assert support.traces == {"cuda", "cuda-hw", "nvtx", "cublas", "mpi", "ucx", "nccl", "osrt", "cudnn"}
    assert "gpu-metrics-devices" in support.flags
    assert "gpu-metrics-device" not in support.flags  # named in a text only


@pytest.mark.nsys
def test_the_help_of_a_real_nsys(nsys: Nsys) -> None:
    support = probe_support(nsys)
    assert {"trace", "sample", "cpuctxsw", "output", "session-new", "kill", "wait", "delay"} <= support.flags
    assert {"cuda", "nvtx", "osrt"} <= support.traces
    assert "none" not in support.traces


def test_what_the_diagnosis_needs(new: Nsys) -> None:
    chosen = made(nsys=new)
    assert chosen.arguments == (
        "--trace=cuda,cudnn,cublas,nvtx,osrt",
        "--sample=process-tree",
        "--cpuctxsw=process-tree",
        "--backtrace=none",
        "--cuda-graph-trace=node",
        "--gpu-metrics-devices=all",
        "--gpu-metrics-frequency=1000",
        "--kill=none",
        "--wait=primary",
    )
    assert not chosen.lacks


def test_what_is_not_permitted_is_left_out_and_told(new: Nsys) -> None:
    locked = Computer("5.15", GPU.gpus, "535", "kernel.perf_event_paranoid is 4, above 2", "the driver forbids it")
    chosen = made(machine=locked, nsys=new)
    assert {"--sample=none", "--cpuctxsw=none"} < set(chosen.arguments)
    assert not any("metrics" in each for each in chosen.arguments)
    texts = [str(lack) for lack in chosen.lacks]
    assert texts == [
        "without CPU scheduling and samples: kernel.perf_event_paranoid is 4, above 2, so the report cannot tell "
        "surely whether the host computes or sleeps",
        "without GPU metrics: the driver forbids it, so the report will not show how well running kernels fill the GPU",
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM'", "ERR_NVGPUCTRPERM"),
        ("echo 'Possible values are:'; echo 'None of the installed GPUs are supported'", "cannot sample this GPU"),
    ],
)
def test_gpu_metrics_only_where_nsys_lists_a_gpu_for_them(tmp_path: Path, body: str, reason: str) -> None:
    chosen = made(nsys=fake_nsys(tmp_path / "bin", body, "2026.1.1.4-x"))
    assert not any("metrics" in each for each in chosen.arguments)
    assert [reason in lack.reason for lack in chosen.lacks] == [True]


def test_metrics_that_are_asked_for_are_fine_or_refused(new: Nsys) -> None:
    chosen = made(CaptureOptions(metrics=True), nsys=new)
    assert "--gpu-metrics-frequency=10000" in chosen.arguments
    locked = Computer("5.15", GPU.gpus, "535", None, "the driver keeps GPU counters to administrators")
    with pytest.raises(ToolError, match="keeps GPU counters to administrators") as refused:
        made(CaptureOptions(metrics=True), machine=locked, nsys=new)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in (refused.value.next_step or "")
    with pytest.raises(ToolError, match="no NVIDIA GPU"):
        made(CaptureOptions(metrics=True), machine=CPU, nsys=new)


def test_the_older_name_of_a_flag(tmp_path: Path) -> None:
    text = HELP_2026.replace("gpu-metrics-devices", "gpu-metrics-device")
    chosen = made(nsys=fake_nsys(tmp_path / "bin", LISTS_A_GPU), help_text=text)
    assert "--gpu-metrics-device=all" in chosen.arguments


def test_without_a_gpu_one_line_says_so(new: Nsys) -> None:
    chosen = made(machine=CPU, nsys=new)
    assert [str(lack) for lack in chosen.lacks] == [
        "without GPU data: no NVIDIA GPU is visible here, so the report covers the host only"
    ]
    assert "--trace=cuda,cudnn,cublas,nvtx,osrt" in chosen.arguments  # it costs nothing, and the eye may be wrong


def test_flags_that_this_nsys_lacks_are_not_given(new: Nsys) -> None:
    text = "\t-t, --trace=\n\n\t   'cuda', 'nvtx', 'osrt'\n\n\t-o, --output=\n"
    chosen = made(nsys=new, help_text=text)
    assert chosen.arguments == ("--trace=cuda,nvtx,osrt",)
    assert {lack.what for lack in chosen.lacks} == {
        "CPU scheduling and samples",
        "kernels inside CUDA graphs",
        "GPU metrics",
    }


def test_an_nsys_that_hangs_on_this_kernel_does_not_sample(tmp_path: Path) -> None:
    old = fake_nsys(tmp_path / "bin", "", "2022.4.2.1-df9881f")
    assert "--sample=none" in made(machine=CPU, nsys=old).arguments
    assert "--sample=process-tree" in made(machine=GPU, nsys=old).arguments  # an older kernel


def test_an_older_nsys_takes_whole_seconds(tmp_path: Path) -> None:
    text = f"{HELP_2026}\n        --delay=\n        --duration=\n"
    old = fake_nsys(tmp_path / "bin", "", "2022.4.2.1-df9881f")
    chosen = made(CaptureOptions(delay_s=0.2, duration_s=2), nsys=old, help_text=text)
    assert {"--delay=1", "--duration=2"} < set(chosen.arguments)


def test_several_gpus_and_mpi(new: Nsys, monkeypatch: pytest.MonkeyPatch) -> None:
    several = Computer("5.15", (*GPU.gpus, *GPU.gpus), "535", None, None)
    assert made(machine=several, nsys=new).arguments[0] == "--trace=cuda,cudnn,cublas,nvtx,osrt,nccl"
    chosen = plan(CaptureOptions(), read_help(HELP_2026), GPU, new, ("mpirun", "-n", "2", "python"))
    assert chosen.arguments[0] == "--trace=cuda,cudnn,cublas,nvtx,osrt,mpi,ucx"
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert made(nsys=new).arguments[0].endswith(",mpi,ucx")


def test_what_part_of_the_run(new: Nsys) -> None:
    text = f"{HELP_2026}\n\t--delay=\n\t--duration=\n\t--capture-range=\n\t--capture-range-end=\n\t--nvtx-capture=\n"
    chosen = made(CaptureOptions(delay_s=2, duration_s=0.5, capture_range="nvtx:a step"), nsys=new, help_text=text)
    assert chosen.arguments[7:12] == (
        "--delay=2",
        "--duration=0.5",
        "--capture-range=nvtx",
        "--capture-range-end=stop",
        "--nvtx-capture=a step@*",
    )
    assert chosen.environment == {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}
    for asked, given in (("nvtx:x@mine", "x@mine"), ("steps", "boundby.capture@*")):
        chosen = made(CaptureOptions(capture_range=asked), nsys=new, help_text=text)
        assert f"--nvtx-capture={given}" in chosen.arguments
    assert "--capture-range=cudaProfilerApi" in (
        made(CaptureOptions(capture_range="cudaProfilerApi"), nsys=new, help_text=text).arguments
    )


def test_the_users_own_arguments_win(new: Nsys) -> None:
    chosen = made(CaptureOptions(nsys_args=("-t", "cuda", "--sample=none", "--cuda-memory-usage=true")), nsys=new)
    assert not any(each.startswith(("--trace", "--sample=process")) for each in chosen.arguments)
    assert chosen.arguments[-4:] == ("-t", "cuda", "--sample=none", "--cuda-memory-usage=true")


@pytest.mark.parametrize("argument", ["-o", "-o=x", "--output=x", "--session-new=x", "-Y", "--start-later=true"])
def test_arguments_that_would_take_the_recording_away_are_refused(new: Nsys, argument: str) -> None:
    with pytest.raises(UserError, match="--nsys-args cannot hold"):
        made(CaptureOptions(nsys_args=(argument,)), nsys=new)


def test_the_plain_plan(new: Nsys) -> None:
    full = made(CaptureOptions(nsys_args=("--sample=none",)), nsys=new)
    plain = flags.plain(CaptureOptions(nsys_args=("--sample=none",)), full)
    assert plain.arguments == (
        "--cpuctxsw=none",
        "--trace=cuda,nvtx,osrt",
        "--kill=none",
        "--wait=primary",
        "--sample=none",
    )


def test_a_percent_sign_in_the_folder_is_no_pattern(new: Nsys) -> None:
    command = flags.command_line(new, made(nsys=new), Path("/a/50%/report"), "s", Support(frozenset(), frozenset()))
    assert "--output=/a/50%%/report" in command


Behind = Callable[[str], Profiler]


@pytest.fixture
def behind(nsys: Nsys, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Behind:
    """Runs in this process, with the real nsys behind a few lines of shell."""

    def make(body: str) -> Profiler:
        path = tmp_path / "nsys"
        path.write_text(f'#!/bin/sh\nreal="{nsys.path}"\n{body}\nexec "$real" "$@"\n')
        path.chmod(0o755)
        return Profiler(Nsys(path, nsys.version, "--nsys"), tmp_path, capfd)

    return make


@pytest.mark.nsys
def test_a_real_nsys_that_lacks_flags(nsys: Nsys, behind: Behind) -> None:
    if nsys.version_tuple < flags.NSYS_2023:
        pytest.skip("it hangs if it is not told not to watch the scheduler")
    lacking = "wait kill backtrace cpuctxsw session-new"
    hide = f"sed -E 's/--({lacking.replace(' ', '|')})=/--no-such-\\1=/'"
    body = f"""
for word; do for flag in {lacking}; do
  case "$word" in --$flag=*) echo "unrecognised option '$word'" >&2; exit 1;; esac
done; done
if [ "$1 $2" = "profile --help" ]; then "$real" "$@" | {hide}; exit; fi"""
    ran = behind(body).run("exit", "3")
    assert ran.code == 3, ran.err
    assert "without CPU scheduling and samples: " in ran.err
    assert "would not start" not in ran.err
    assert ran.ranges == {"work": 1, "part": 3}


@pytest.mark.nsys
def test_an_nsys_that_refuses_what_its_help_offers(behind: Behind) -> None:
    body = """
for word; do case "$word" in --sample=process-tree) echo "Illegal --sample argument." >&2; exit 1;; esac; done"""
    ran = behind(body).run("exit", "3")
    if "--sample=process-tree" not in str(ran.facts) and "cannot" in ran.err:
        pytest.skip("nothing is sampled here")
    assert ran.code == 3, ran.err
    assert "only the plain traces. It said: Illegal --sample argument." in ran.err
    assert ran.out.count("ready") == 1
    assert ran.ranges == {"work": 1, "part": 3}


@pytest.mark.nsys
def test_an_nsys_that_stumbles_is_tried_again(tmp_path: Path, behind: Behind) -> None:
    body = f"""
if [ "$1 $2" != "profile --help" ] && [ "$1" = profile ] && [ ! -e {tmp_path}/stumbled ]; then
  touch {tmp_path}/stumbled; echo "Connection to Agent lost." >&2; exit 1
fi"""
    ran = behind(body).run("exit", "0")
    assert ran.code == 0, ran.err
    assert "nsys failed to start, trying again. It said: Connection to Agent lost." in ran.err
    assert ran.facts["nsys"]["arguments"][0] == "--trace=cuda,cudnn,cublas,nvtx,osrt"


@pytest.mark.nsys
def test_a_killed_nsys_is_told_and_the_program_ended(behind: Behind, tmp_path: Path) -> None:
    body = f"""
if [ "$1" = profile ] && [ "$2" != --help ]; then
  "$real" "$@" & while [ ! -e {tmp_path}/on ]; do sleep 0.1; done; kill -9 $$
fi"""
    program = [sys.executable, "-c", f"import time; open('{tmp_path}/on', 'w'); time.sleep(300)"]
    ran = behind(body).run_program([], program)
    assert ran.code == 2
    assert "nsys was killed by SIGKILL while it recorded; the program was stopped." in ran.err
    assert not ran.folder.exists()
