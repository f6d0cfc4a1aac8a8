"""What this machine lets a profiler see: GPUs and their driver, CPU sampling, performance counters, the container."""

from __future__ import annotations

import csv
import ctypes
import errno
import os
import platform
import re
from pathlib import Path

from msgspec import Struct

from boundby.capture.child import ask
from boundby.model import door

#: nvidia-smi wakes up sleeping GPUs, which can take seconds each.
SMI_TIMEOUT_S = 30.0
#: ``perf_event_open`` by machine; it has no wrapper in the C library.
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "ppc64le": 319}
_PERF_TYPE_SOFTWARE = 1
_PERF_ATTR_SIZE = 64  # the first version of the structure, known to every kernel
_EXCLUDE_KERNEL = 1 << 5
#: Capabilities that lift limits on profilers, by bit number (linux/capability.h).
CAPABILITIES = {"SYS_PTRACE": 19, "SYS_ADMIN": 21, "PERFMON": 38}


class InstalledGpu(Struct, frozen=True):
    """One GPU, as nvidia-smi tells of it."""

    name: str
    memory: str | None = None


class Computer(Struct, frozen=True):
    """What is there and what is permitted. The texts say why something is not; None: it is."""

    kernel: str
    gpus: tuple[InstalledGpu, ...]
    driver: str | None
    no_sampling: str | None
    no_counters: str | None
    root: Path = Path("/")

    @property
    def kernel_version(self) -> tuple[int, ...]:
        found = re.match(r"(\d+)\.(\d+)", self.kernel)
        return (int(found[1]), int(found[2])) if found else ()


def look_at_machine(root: Path = Path("/")) -> Computer:
    """Ask the machine. ``root`` stands for the root folder, below which /proc is read."""
    gpus, driver = find_gpus(root)
    return Computer(
        kernel=platform.release(),
        gpus=gpus,
        driver=driver,
        no_sampling=why_no_sampling(root),
        no_counters=why_no_counters(root),
        root=root,
    )


def find_gpus(root: Path = Path("/")) -> tuple[tuple[InstalledGpu, ...], str | None]:
    """The NVIDIA GPUs and the driver's version, by nvidia-smi, else by what the driver shows in /proc."""
    answer = ask(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"], SMI_TIMEOUT_S)
    if answer is not None and answer.returncode == 0:
        rows = [[cell.strip() for cell in row] for row in csv.reader(answer.lines)]
        rows = [row for row in rows if len(row) == 3]
        if rows:
            return tuple(InstalledGpu(name, memory) for name, memory, _ in rows), rows[0][2]
    texts = [_read(path) for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))]
    models = [match[1].strip() for text in texts if (match := re.search(r"Model:\s*(.+)", text))]
    version = re.search(r"Kernel Module\D*([\d.]+)", _read(root / "proc/driver/nvidia/version"))
    return tuple(InstalledGpu(model) for model in models), version[1] if version else None


def why_no_sampling(root: Path = Path("/")) -> str | None:
    """Why a process may not sample itself and watch its context switches; None where it may."""
    number = _try_perf_event()
    if number in (0, None):
        return None
    paranoid = perf_event_paranoid(root)
    if number in (errno.EACCES, errno.EPERM) and paranoid is not None and paranoid > 2 and os.geteuid() != 0:
        return f"kernel.perf_event_paranoid is {paranoid}, above 2"
    if number in (errno.EACCES, errno.EPERM):
        return "the container or the system forbids perf_event_open"
    return f"perf_event_open does not work here ({os.strerror(number)})"


#: How a machine is made to let users read GPU performance counters.
PERMIT_COUNTERS = (
    "Record as root; or permit it to everyone: echo options nvidia NVreg_RestrictProfilingToAdminUsers=0 | "
    "sudo tee /etc/modprobe.d/nvidia-profiling.conf, then restart (https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)


def why_no_counters(root: Path = Path("/")) -> str | None:
    """Why GPU performance counters may not be read; None where nothing speaks against it."""
    if is_admin_only(root) and not has_capability("SYS_ADMIN", root):
        return "the NVIDIA driver keeps GPU counters to administrators (RmProfilingAdminOnly is 1)"
    return None


def is_admin_only(root: Path = Path("/")) -> bool:
    """Whether the driver gives performance counters to administrators only."""
    return re.search(r"RmProfilingAdminOnly:\s*1", _read(root / "proc/driver/nvidia/params")) is not None


def perf_event_paranoid(root: Path = Path("/")) -> int | None:
    """The kernel's setting, None where there is none."""
    return read_number(root / "proc/sys/kernel/perf_event_paranoid")


def has_capability(name: str, root: Path = Path("/")) -> bool:
    """Whether this process holds a capability; being root in a container does not give all of them."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(root / "proc/self/status"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> CAPABILITIES[name] & 1)


def is_seccomp_filtered(root: Path = Path("/")) -> bool:
    """Whether system calls of this process pass a filter, as in most containers."""
    return re.search(r"^Seccomp:\s*2", _read(root / "proc/self/status"), re.MULTILINE) is not None


def container_kind(root: Path = Path("/")) -> str | None:
    """The kind of container that this runs in, as far as it can be told."""
    if (root / ".dockerenv").exists():
        return "Docker"
    if (root / "run/.containerenv").exists():
        return "Podman"
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "Apptainer"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    groups = _read(root / "proc/1/cgroup")
    return "a container" if re.search(r"docker|kubepods|containerd|lxc", groups) else None


def read_number(path: Path) -> int | None:
    """A setting of the kernel, None where there is none."""
    text = _read(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _try_perf_event() -> int | None:
    """0 if this process may count its own software events, else the error number; None: cannot be tried."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None or os.name != "posix":
        return None
    attributes = bytearray(_PERF_ATTR_SIZE)
    attributes[0:4] = _PERF_TYPE_SOFTWARE.to_bytes(4, "little")
    attributes[4:8] = _PERF_ATTR_SIZE.to_bytes(4, "little")
    attributes[40:48] = _EXCLUDE_KERNEL.to_bytes(8, "little")
    try:
        library = ctypes.CDLL(None, use_errno=True)
        buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
        handle = library.syscall(number, ctypes.byref(buffer), 0, -1, -1, 0)
    except (OSError, AttributeError, ValueError):
        return None
    if handle < 0:
        return ctypes.get_errno()
    os.close(handle)
    return 0


def _read(path: Path) -> str:
    """The text of a small file, empty where it cannot be read."""
    try:
        return door.read_text(path, errors="replace")
    except OSError:
        return ""
