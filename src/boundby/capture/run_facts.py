"""The circumstances of a run, for run.json: enough to run it again, and no secret in it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from boundby.__about__ import __version__
from boundby.capture.flags import Computer, Plan
from boundby.capture.folder import PYTHON
from boundby.capture.nsys import Nsys, ask, version_numbers
from boundby.capture.session import Ran
from boundby.model import door
from boundby.model.scale import ANSWER_S
from boundby.trace.facts import JobPlace

FORMAT_VERSION = 1
#: Variables that change how fast a program runs, and hold no secret. No other value is kept.
ENVIRONMENT = frozenset(
    (
        *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING"),
        *("CUDA_CACHE_DISABLE", "CUDA_DEVICE_ORDER", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"),
        *("NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "MKL_NUM_THREADS"),
        *("OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY"),
        *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
        *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_CUDA_ARCH_LIST"),
        *("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE", "NCCL_DEBUG"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "TOKENIZERS_PARALLELISM", "XLA_FLAGS"),
        *("PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONGIL", "MALLOC_ARENA_MAX"),
    )
)
#: Packages whose version explains a speed.
PACKAGES = (
    *("torch", "torchvision", "triton", "numpy", "nvtx", "cupy", "cupy-cuda12x", "jax", "jaxlib", "tensorflow"),
    *("transformers", "accelerate", "lightning", "pytorch-lightning", "deepspeed", "flash-attn", "xformers"),
    *("nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-nccl-cu12", "boundby"),
)
#: From this version on, the nvtx package asks for a part of NVTX that nsys did not have ...
NVTX_TOO_NEW = (0, 2, 12)
#: ... before this version: it then records no range of the package at all, and says so only in its diagnostics.
NSYS_TAKES_IT = (2024, 3)
NVTX_FIX = "Install nvtx==0.2.11 there (pip install nvtx==0.2.11), or record with nsys 2024.4 or later."
_ASK = """\
import json, platform, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except Exception:
        pass
print(json.dumps({"version": platform.python_version(), "executable": sys.executable, "packages": found}))
"""


class Python(Struct, frozen=True):
    """The Python that a program runs on."""

    executable: str
    version: str
    packages: Mapping[str, str]


def find_python(program: Sequence[str]) -> Path | None:
    """The Python interpreter that a command runs on, itself or by the first line of its script (torchrun)."""
    for word in program[:4]:  # also behind a wrapper: "env X=1 python", "numactl -l python"
        path = shutil.which(word)
        if path is not None and PYTHON.match(Path(word).name):
            return Path(path)
    first = shutil.which(program[0])
    return None if first is None else _of_first_line(Path(first))


def look_at_python(interpreter: Path | None) -> Python | None:
    """Ask an interpreter for its version and the packages that matter; None where it does not answer."""
    if interpreter is None:
        return None
    answer = ask([str(interpreter), "-c", _ASK, *PACKAGES], ANSWER_S)
    if answer is None or answer.returncode != 0 or not answer.lines:
        return None
    try:
        return msgspec.json.decode(answer.lines[-1], type=Python)
    except msgspec.MsgspecError:
        return None


def nvtx_trap(packages: Mapping[str, str], nsys: Nsys) -> str | None:
    """What is wrong with a Python's nvtx package under this nsys; None where nothing is."""
    version = packages.get("nvtx")
    if version is None or version_numbers(version) < NVTX_TOO_NEW or not nsys.version_tuple:
        return None
    if nsys.version_tuple >= NSYS_TAKES_IT:
        return None
    return f"the nvtx package {version} records no range under nsys {nsys.release}, and no error says so"


def look_at_git(folder: Path) -> dict[str, Any] | None:
    """The commit that a folder is at, and whether it differs from it; None outside a repository."""
    commit = ask(["git", "rev-parse", "HEAD"], ANSWER_S, folder)
    if commit is None or commit.returncode != 0 or not commit.lines:
        return None
    status = ask(["git", "status", "--porcelain", "--untracked-files=no"], ANSWER_S, folder)
    is_dirty = bool(status.lines) if status is not None and status.returncode == 0 else None
    return {"commit": commit.lines[-1].strip(), "dirty": is_dirty}


def program_folder(program: Sequence[str]) -> Path:
    """The folder whose source code runs: that of the script, else the working folder."""
    for word in program:
        path = Path(word)
        if path.suffix in (".py", ".sh") and path.is_file():
            return path.resolve().parent
    return Path.cwd()


def look_at_host(machine: Computer) -> dict[str, Any]:
    """The computer: names and sizes, nothing of its users."""
    return {
        "name": socket.gethostname(),
        "system": _system(),
        "kernel": machine.kernel,
        "cpu": _processor(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "driver": machine.driver,
        "gpus": [{"name": gpu.name, "memory": gpu.memory} for gpu in machine.gpus],
    }


def of_run(
    ran: Ran,
    plan: Plan,
    nsys: Nsys,
    machine: Computer,
    python: Python | None,
    *,
    program: Sequence[str],
    torch_ops: bool,
    place: JobPlace | None,
    source: Mapping[str, Any] | None,
    started: datetime,
) -> dict[str, Any]:
    """All of run.json."""
    return {
        "format_version": FORMAT_VERSION,
        "tool": {"name": "boundby", "version": __version__},
        "command": list(program),
        "working_folder": str(Path.cwd()),
        "torch_ops": torch_ops,
        "rank": place and place.rank,
        "world_size": place and place.world_size,
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round(ran.duration_s, 3),
        "exit_code": ran.exit_code,
        "last_words": msgspec.to_builtins(said) if (said := ran.last_words) is not None else None,
        "stopped_by": "duration" if ran.outlived else ran.stopped_by.name if ran.stopped_by else None,
        "nsys": {"version": nsys.version, "path": str(nsys.path), "arguments": list(plan.arguments)},
        "not_recorded": [{"what": each.what, "reason": each.reason, "kind": each.kind} for each in plan.lacks],
        "host": look_at_host(machine),
        "python": python and {"version": python.version, "path": python.executable, "packages": python.packages},
        "git": source,
        "environment": environment_of(os.environ),
    }


def environment_of(env: Mapping[str, str]) -> dict[str, str]:
    """The variables on the allow-list that are set."""
    return {name: env[name] for name in sorted(ENVIRONMENT) if name in env}


def _of_first_line(path: Path) -> Path | None:
    try:
        line = door.first_of(path, 512).partition(b"\n")[0]
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    for word in reversed(line[2:].decode(errors="replace").split()):
        executable = shutil.which(word)
        if executable is not None and PYTHON.match(Path(word).name):
            return Path(executable)
    return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except (OSError, AttributeError):
        return platform.system()


def _processor() -> str:
    try:
        text = door.read_text(Path("/proc/cpuinfo"), errors="replace")
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()
