"""Look whether recording works here, and what will be missing: one check a question, each with what to do about it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from boundby.capture import facts, flags
from boundby.capture.flags import UNKNOWN_SUPPORT
from boundby.capture.locate import Nsys, Unusable, candidates, find_nsys
from boundby.capture.machine import (
    Machine,
    container_kind,
    has_capability,
    is_admin_only,
    is_seccomp_filtered,
    look_at_machine,
    perf_event_paranoid,
    read_number,
)
from boundby.capture.roundtrip import ROUND_TRIP_FAILED, RoundTrip, round_trip
from boundby.capture.torchcheck import look_at_torch
from boundby.capture.trap import NVTX_FIX, nvtx_trap
from boundby.model.errors import ToolError

Status = Literal["ok", "note", "warning", "failed", "skipped"]
#: A recording of minutes takes a few hundred MB, and its export several times that.
LITTLE_ROOM_BYTES = 5 << 30
NO_ROOM_BYTES = 200 << 20


@dataclass(frozen=True)
class Check:
    """The answer to one question. ``advice`` is empty where nothing needs to be done."""

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks, in a fixed order."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """``failed`` if something keeps recordings from working, else ``warning`` if they will lack something."""
        found = {check.status for check in self.checks}
        return "failed" if "failed" in found else "warning" if "warning" in found else "ok"


def examine(nsys: Path | None = None, python: Path | None = None, *, quick: bool = False) -> Iterator[Check]:
    """The checks, one by one as they are done. ``python``: the interpreter of the programs to be profiled.

    ``quick`` leaves out the round trip.
    """
    machine = look_at_machine()
    asked = facts.look_at_python(python or facts.default_python())
    tool: Nsys | None = None
    try:
        tool = find_nsys(nsys)
        yield _nsys(tool)
    except ToolError as error:
        yield Check("nsys", "failed", error.message, error.next_step)
    yield _importer(tool)
    trip = round_trip(tool, machine, asked) if tool is not None and not quick else None
    yield _round_trip(tool, trip)
    yield _nvtx(tool, asked, trip)
    yield _perf(machine, tool)
    yield _ptrace(machine.root)
    yield _container(machine)
    yield _gpu(machine)
    yield _counters(machine)
    yield _torch(asked, machine)
    yield from _disks()


def _nsys(nsys: Nsys) -> Check:
    others = [each for each in candidates() if each.path != nsys.path]
    also = ", ".join(each.release for each in others if isinstance(each, Nsys))
    broken = ", ".join(str(each.path) for each in others if isinstance(each, Unusable))
    found = f"{nsys.release} in {nsys.path} ({nsys.found_in})"
    found += f"; also here: {also}" if also else ""
    if broken:
        return Check("nsys", "note", f"{found}; does not run: {broken}")
    return Check("nsys", "ok", found)


def _importer(nsys: Nsys | None) -> Check:
    if nsys is None:
        return Check("importer", "skipped", "no nsys")
    if nsys.importer is not None:
        return Check("importer", "ok", str(nsys.importer))
    return Check(
        "importer",
        "note",
        "no QdstrmImporter beside nsys, so it may leave only a .qdstrm; the round trip shows it",
        "If it does: put the folders target-linux-* and host-linux-* of one nsys side by side.",
    )


def _round_trip(nsys: Nsys | None, trip: RoundTrip | None) -> Check:
    name = "round trip"
    if nsys is None or trip is None:
        return Check(name, "skipped", "no nsys" if nsys is None else "left out (--quick)")
    if trip.problem is not None:
        return Check(name, "failed", trip.problem, trip.advice)
    found = f"recorded, exported and read {trip.seconds:.1f} s of a program"
    if trip.ranges is None:
        return Check(name, "ok", f"{found} (without NVTX: this Python has no nvtx package)")
    if trip.ranges == trip.expected:
        return Check(name, "ok", f"{found}: all {trip.expected} NVTX ranges came back")
    return Check(name, "failed", f"{found}: {trip.ranges} of {trip.expected} NVTX ranges came back", ROUND_TRIP_FAILED)


def _nvtx(nsys: Nsys | None, python: facts.Python | None, trip: RoundTrip | None) -> Check:
    name = "nvtx package"
    if python is None:
        return Check(name, "skipped", "no Python to ask")
    version = python.packages.get("nvtx")
    if version is None:
        advice = "To annotate programs without CUDA: pip install nvtx==0.2.11 (newer ones need nsys 2024.4 or later)."
        return Check(name, "note", f"not installed for {python.executable}", advice)
    trap = nvtx_trap(python.packages, nsys) if nsys is not None else None
    if trap is not None and not (trip is not None and trip.ranges == trip.expected):
        return Check(name, "failed", f"{trap} ({python.executable})", NVTX_FIX)
    return Check(name, "ok", f"{version} for {python.executable}")


def _perf(machine: Machine, nsys: Nsys | None) -> Check:
    paranoid = perf_event_paranoid(machine.root)
    setting = f"kernel.perf_event_paranoid is {paranoid}" if paranoid is not None else "no perf_event_paranoid here"
    if machine.no_sampling is None:
        reason = flags.why_no_scheduling(UNKNOWN_SUPPORT, machine, nsys) if nsys is not None else None
        if reason is not None:
            return Check("CPU sampling", "warning", f"permitted, but {reason}", "Record with a newer nsys.")
        return Check("CPU sampling", "ok", f"permitted; {setting}")
    return Check(
        "CPU sampling",
        "warning",
        f"{machine.no_sampling}: no context switches and samples, so computing and sleeping are hard to tell apart",
        "As root: sysctl kernel.perf_event_paranoid=2. In a container: also --cap-add=PERFMON (or SYS_ADMIN).",
    )


def _ptrace(root: Path) -> Check:
    scope = read_number(root / "proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        return Check("ptrace", "ok", "not restricted (no Yama)")
    if scope < 3:
        return Check("ptrace", "ok", f"kernel.yama.ptrace_scope is {scope}; boundby starts programs itself")
    return Check("ptrace", "note", f"kernel.yama.ptrace_scope is {scope}: nsys cannot attach to a running program")


def _container(machine: Machine) -> Check:
    kind = container_kind(machine.root)
    limits = [] if has_capability("SYS_ADMIN", machine.root) else ["no CAP_SYS_ADMIN"]
    limits += ["seccomp filter"] if is_seccomp_filtered(machine.root) else []
    if kind is None:
        return Check("container", "ok", "none seen")
    found = f"{kind}{f' ({chr(44).join(limits)})' if limits else ''}"
    if machine.no_sampling is not None:
        advice = "Start it with --cap-add=SYS_ADMIN, and if that is not enough --security-opt seccomp=unconfined."
        return Check("container", "warning", f"{found}: it keeps nsys from sampling", advice)
    return Check("container", "ok", found)


def _gpu(machine: Machine) -> Check:
    if machine.gpus:
        names = ", ".join(gpu.name for gpu in machine.gpus)
        return Check("GPU", "ok", f"{names}; driver {machine.driver or 'unknown'}")
    if shutil.which("nvidia-smi") is not None or machine.driver is not None:
        advice = "Does nvidia-smi work? In a container: start it with --gpus all (and the NVIDIA container toolkit)."
        return Check("GPU", "warning", "a driver but no GPU", advice)
    return Check("GPU", "note", "no NVIDIA GPU or driver: recordings tell only of the host")


def _counters(machine: Machine) -> Check:
    name = "GPU counters"
    if not machine.gpus:
        return Check(name, "skipped", "no GPU")
    if machine.no_counters is None:
        how = "for everyone" if not is_admin_only(machine.root) else "as administrator"
        return Check(name, "ok", f"permitted {how}")
    advice = (
        "CUDA tracing works without; GPU metrics need root, or the driver option NVreg_RestrictProfilingToAdminUsers=0 "
        "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
    )
    return Check(name, "warning", machine.no_counters, advice)


def _torch(python: facts.Python | None, machine: Machine) -> Check:
    if python is None:
        return Check("torch", "skipped", "no Python to ask")
    if "torch" not in python.packages:
        return Check("torch", "note", f"not installed for {python.executable}")
    told = look_at_torch(Path(python.executable))
    if told is None:
        advice = f'Try: {python.executable} -c "import torch"'
        return Check("torch", "warning", f"{python.packages['torch']} does not import", advice)
    if told.cuda is None:
        advice = "Install a CUDA build." if machine.gpus else ""
        return Check("torch", "warning" if machine.gpus else "note", f"{told.version}, built without CUDA", advice)
    if not told.is_available:
        status: Status = "warning" if machine.gpus else "note"
        advice = "Is the driver new enough for this build? nvidia-smi shows up to which CUDA it goes." * bool(
            machine.gpus
        )
        return Check("torch", status, f"{told.version} for CUDA {told.cuda}, which sees no GPU", advice)
    return Check("torch", "ok", f"{told.version} for CUDA {told.cuda}")


def _disks() -> Iterator[Check]:
    places = {"this folder": Path.cwd(), "temporary folder": Path(tempfile.gettempdir())}
    for name, place in places.items():
        free = shutil.disk_usage(place).free
        found = f"{free / (1 << 30):.1f} GB free in {place}"
        if not os.access(place, os.W_OK):
            yield Check(f"disk, {name}", "warning", f"{place} cannot be written", "Record from another, or with -o.")
        elif free < NO_ROOM_BYTES:
            yield Check(f"disk, {name}", "failed", found, "Free some space (TMPDIR names another temporary folder).")
        elif free < LITTLE_ROOM_BYTES:
            yield Check(f"disk, {name}", "warning", found, "Enough for a minute or two of recording, not for hours.")
        else:
            yield Check(f"disk, {name}", "ok", found)
