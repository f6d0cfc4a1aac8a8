"""What a machine permits, read below a made-up root folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from boundby.capture import flags
from boundby.capture.flags import (
    container_kind,
    find_gpus,
    has_capability,
    is_admin_only,
    is_seccomp_filtered,
    perf_event_paranoid,
    why_no_counters,
    why_no_sampling,
)
from boundby.capture.nsys import Nsys
from boundby.capture.run_facts import environment_of, find_python, look_at_git, look_at_python, nvtx_trap


def write(root: Path, place: str, text: str) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def smi(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_gpus_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "NVIDIA A100-SXM4-40GB, 40960 MiB, 535.104.05"
    smi(tmp_path / "bin", f"echo '{line}'; echo '{line}'", monkeypatch)
    gpus, driver = find_gpus(tmp_path)
    assert [(gpu.name, gpu.memory) for gpu in gpus] == [("NVIDIA A100-SXM4-40GB", "40960 MiB")] * 2
    assert driver == "535.104.05"


def test_gpus_by_what_the_driver_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path / "bin", "echo 'Failed to initialize NVML'; exit 9", monkeypatch)
    assert find_gpus(tmp_path) == ((), None)
    write(tmp_path, "proc/driver/nvidia/gpus/0000:07:00.0/information", "Model: \t\t NVIDIA L4\nIRQ: 7\n")
    write(tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n")
    gpus, driver = find_gpus(tmp_path)
    assert ([gpu.name for gpu in gpus], driver) == (["NVIDIA L4"], "550.54.15")


def test_counters_for_administrators_only(tmp_path: Path) -> None:
    assert why_no_counters(tmp_path) is None
    write(tmp_path, "proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    write(tmp_path, "proc/self/status", "CapEff:\t00000000a80425fb\nSeccomp:\t2\n")
    assert is_admin_only(tmp_path)
    assert is_seccomp_filtered(tmp_path)
    assert not has_capability("SYS_ADMIN", tmp_path)
    assert "RmProfilingAdminOnly is 1" in (why_no_counters(tmp_path) or "")
    write(tmp_path, "proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t0\n")
    assert has_capability("SYS_ADMIN", tmp_path)
    assert not is_seccomp_filtered(tmp_path)
    assert why_no_counters(tmp_path) is None


@pytest.mark.parametrize(
    ("number", "paranoid", "user", "reason"),
    [
        (0, "4", 1000, None),
        (None, "4", 1000, None),
        (errno.EACCES, "4", 1000, "kernel.perf_event_paranoid is 4, above 2"),
        (errno.EPERM, "4", 0, "the container or the system forbids perf_event_open"),
        (errno.EPERM, "1", 1000, "the container or the system forbids perf_event_open"),
        (errno.ENOSYS, "2", 1000, "perf_event_open does not work here"),
    ],
)
def test_why_sampling_is_not_permitted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    paranoid: str,
    user: int,
    reason: str | None,
) -> None:
    write(tmp_path, "proc/sys/kernel/perf_event_paranoid", f"{paranoid}\n")
    monkeypatch.setattr(flags, "_try_perf_event", lambda: number)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = why_no_sampling(tmp_path)
    assert found == reason if reason is None else reason in str(found)


def test_this_machine_is_asked_without_harm() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    looked = flags.look_at_machine()
    assert looked.kernel_version >= (2, 6)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert perf_event_paranoid() is None or isinstance(perf_event_paranoid(), int)


def test_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        monkeypatch.delenv(name, raising=False)
    assert container_kind(tmp_path) is None
    write(tmp_path, "proc/1/cgroup", "0::/kubepods/besteffort/pod1\n")
    assert container_kind(tmp_path) == "a container"
    write(tmp_path, ".dockerenv", "")
    assert container_kind(tmp_path) == "Docker"


def test_the_python_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (
        ("python3", "#!/bin/sh\n"),
        ("torchrun", f"#!{folder}/python3\nimport torch\n"),
        ("tool", "#!/usr/bin/env python3\n"),
        ("script", "#!/bin/sh\n"),
        ("numactl", "#!/bin/sh\n"),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    expected = folder / "python3"
    for command in ("python3 x.py", f"{expected} x.py", "torchrun x.py", "tool", "numactl -l python3 x.py"):
        assert find_python(command.split()) == expected, command
    assert find_python(["script"]) is None
    assert find_python(["missing"]) is None
    assert look_at_python(expected) is None  # it says nothing


def test_only_listed_variables_are_kept() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", "AWS_SECRET_ACCESS_KEY": "x", "OMP_NUM_THREADS": "4", "HF_TOKEN": "y"}
    assert environment_of(env) == {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "4"}


def test_git_outside_a_repository(tmp_path: Path) -> None:
    assert look_at_git(tmp_path) is None


@pytest.mark.parametrize(
    ("package", "nsys", "is_trapped"),
    [
        ("0.2.17", "2023.4.4.54-1", True),
        ("0.2.12", "2022.4.2.1-1", True),
        ("0.2.11", "2023.4.4.54-1", False),
        ("0.2.17", "2024.4.1.61-1", False),
        ("0.2.17", None, False),
        (None, "2023.4.4.54-1", False),
    ],
)
def test_the_trap_of_the_nvtx_package(package: str | None, nsys: str | None, is_trapped: bool) -> None:
    packages = {} if package is None else {"nvtx": package}
    found = nvtx_trap(packages, Nsys(Path("/x"), nsys, "PATH"))
    assert (found is not None) == is_trapped
