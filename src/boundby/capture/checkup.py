"""Look whether recording works here, and what will be missing: one check a question, each with what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct

from boundby.capture import flags, run_facts
from boundby.capture.export import count_rows, warnings_in
from boundby.capture.flags import UNKNOWN_SUPPORT, CaptureOptions, Computer, look_at_machine
from boundby.capture.folder import RunFolder
from boundby.capture.nsys import Nsys, Unusable, ask, candidates, find_nsys
from boundby.capture.recording import Request, export_report, find_report, record_once
from boundby.capture.run_facts import NVTX_FIX, Python, nvtx_trap
from boundby.model import door, library
from boundby.model.errors import ToolError, UserError
from boundby.model.scale import ANSWER_S, MANY

Status = Literal["ok", "note", "warning", "failed", "skipped"]
#: A recording of minutes takes a few hundred MB, and its export several times that.
NO_ROOM_BYTES = 200 << 20
#: The recording that proves that recording works: a program of a second with so many NVTX ranges.
EXPECTED_RANGES = MANY
_PROGRAM = f"""\
import time
try:
    import nvtx
except ImportError:
    nvtx = None
for number in range({EXPECTED_RANGES}):
    if nvtx is None:
        time.sleep(0.05)
    else:
        with nvtx.annotate("boundby doctor"):
            time.sleep(0.05)
"""
_ASK_TORCH = """\
import json, torch
print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.is_available()]))
"""


class Examination(Struct, frozen=True):
    """The answer to one question. ``advice`` is empty where nothing needs to be done."""

    name: str
    status: Status
    found: str
    advice: str = ""


class Checkup(Struct, frozen=True):
    """All checks, in a fixed order."""

    checks: tuple[Examination, ...]

    @property
    def status(self) -> Status:
        """``failed`` if something keeps recordings from working, else ``warning`` if they will lack something."""
        statuses = {check.status for check in self.checks}
        return "failed" if "failed" in statuses else "warning" if "warning" in statuses else "ok"


def examine(nsys: Path | None = None, python: Path | None = None, *, quick: bool = False) -> Iterator[Examination]:
    """The checks, one by one as they are done. ``python``: the interpreter of the programs to be profiled.

    ``quick`` leaves out the recording.
    """
    here = _Here(nsys, python, quick)
    for name, look in _CHECKS.items():
        yield Examination(name, *look(here))


class RoundTrip(Struct, frozen=True):
    """What came back of a recording. ``ranges`` is None where the program could open none."""

    seconds: float
    ranges: int | None


class _Here:
    """What the checks look at, each asked for once."""

    def __init__(self, nsys: Path | None, python: Path | None, quick: bool) -> None:
        self.quick = quick
        self.machine: Computer = look_at_machine()
        self.python: Python | None = run_facts.look_at_python(python or Path(sys.executable))
        self.nsys: Nsys | None = None
        self.no_nsys: ToolError | None = None
        try:
            self.nsys = find_nsys(nsys)
        except ToolError as error:
            self.no_nsys = error

    @cached_property
    def trip(self) -> RoundTrip | UserError | None:
        """What a recording gave, or why it failed; None: there was none."""
        if self.nsys is None or self.quick:
            return None
        try:
            return _round_trip(self.nsys, self.machine, self.python)
        except UserError as error:
            return error

    @property
    def has_all_ranges(self) -> bool:
        """Whether NVTX ranges are known to be recorded."""
        return isinstance(self.trip, RoundTrip) and self.trip.ranges == EXPECTED_RANGES


Answer = tuple[Status, str] | tuple[Status, str, str]


def _round_trip(nsys: Nsys, here: Computer, python: Python | None) -> RoundTrip:
    """Record a second of a known program as ``boundby profile`` would, export it, and count what came back."""
    request = Request((python.executable if python else sys.executable, "-c", _PROGRAM), CaptureOptions())
    support = flags.probe_support(nsys)
    plan = flags.plan(request.options, support, here, nsys, request.program)
    with tempfile.TemporaryDirectory(prefix="boundby-", dir=door.temporary(), ignore_cleanup_errors=True) as temporary:
        folder = RunFolder(Path(temporary), True)
        ran = record_once(request, nsys, support, plan, folder, lambda _: None, start_limit_s=ANSWER_S)
        if ran.started and ran.exit_code:
            raise ToolError(
                f"The program ended with exit code {ran.exit_code} under nsys.", "Does it run without nsys?"
            )
        export_report(find_report(folder, ran, request.options, nsys), folder.export, nsys)
        ranges = count_rows(folder.export, "NVTX_EVENTS", "eventType = 59")
        has_nvtx = python is not None and "nvtx" in python.packages
        is_trapped = any("payload extension is incompatible" in text for text in warnings_in(folder.export))
        return RoundTrip(ran.duration_s, ranges if has_nvtx or is_trapped else None)


def _core(_: _Here) -> Answer:
    reason = library.why_not()
    return ("failed", f"nothing can be analysed: {reason}", library.MEND) if reason else ("ok", library.NAME)


def _nsys(here: _Here) -> Answer:
    nsys = here.nsys
    if nsys is None:
        assert here.no_nsys is not None
        return "failed", here.no_nsys.message, here.no_nsys.next_step
    others = [each for each in candidates() if each.path != nsys.path]
    also = ", ".join(each.release for each in others if isinstance(each, Nsys))
    broken = ", ".join(str(each.path) for each in others if isinstance(each, Unusable))
    text = f"{nsys.release} in {nsys.path} ({nsys.found_in})"
    text += f"; also here: {also}" if also else ""
    return ("note", f"{text}; does not run: {broken}") if broken else ("ok", text)


def _importer(here: _Here) -> Answer:
    if here.nsys is None:
        return "skipped", "no nsys"
    if here.nsys.importer is not None:
        return "ok", str(here.nsys.importer)
    return (
        "note",
        "no QdstrmImporter beside nsys, so it may leave only a .qdstrm; the round trip shows it",
        "If it does: put the folders target-linux-* and host-linux-* of one nsys side by side.",
    )


def _recording(here: _Here) -> Answer:
    trip = here.trip
    if trip is None:
        return "skipped", "no nsys" if here.nsys is None else "left out (--quick)"
    if isinstance(trip, UserError):
        return "failed", trip.message, trip.next_step
    text = f"recorded, exported and read {trip.seconds:.1f} s of a program"
    if trip.ranges is None:
        return "ok", f"{text} (without NVTX: this Python has no nvtx package)"
    if here.has_all_ranges:
        return "ok", f"{text}: all {EXPECTED_RANGES} NVTX ranges came back"
    advice = "Without NVTX ranges no time belongs to any region: see the check of the nvtx package."
    return "failed", f"{text}: {trip.ranges} of {EXPECTED_RANGES} NVTX ranges came back", advice


def _nvtx(here: _Here) -> Answer:
    python = here.python
    if python is None:
        return "skipped", "no Python to ask"
    version = python.packages.get("nvtx")
    if version is None:
        advice = "To annotate programs without CUDA: pip install nvtx==0.2.11 (newer ones need nsys 2024.4 or later)."
        return "note", f"not installed for {python.executable}", advice
    trap = nvtx_trap(python.packages, here.nsys) if here.nsys is not None else None
    if trap is not None and not here.has_all_ranges:
        return "failed", f"{trap} ({python.executable})", NVTX_FIX
    return "ok", f"{version} for {python.executable}"


def _sampling(here: _Here) -> Answer:
    paranoid = flags.perf_event_paranoid(here.machine.root)
    setting = f"kernel.perf_event_paranoid is {paranoid}" if paranoid is not None else "no perf_event_paranoid here"
    if here.machine.no_sampling is None:
        reason = flags.why_no_scheduling(UNKNOWN_SUPPORT, here.machine, here.nsys) if here.nsys is not None else None
        if reason is not None:
            return "warning", f"permitted, but {reason}", "Record with a newer nsys."
        return "ok", f"permitted; {setting}"
    return (
        "warning",
        f"{here.machine.no_sampling}: no context switches and samples, so computing and sleeping are hard to tell "
        "apart",
        "As root: sysctl kernel.perf_event_paranoid=2. In a container: also --cap-add=PERFMON (or SYS_ADMIN).",
    )


def _ptrace(here: _Here) -> Answer:
    scope = flags.read_number(here.machine.root / "proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        return "ok", "not restricted (no Yama)"
    if scope < 3:
        return "ok", f"kernel.yama.ptrace_scope is {scope}; boundby starts programs itself"
    return "note", f"kernel.yama.ptrace_scope is {scope}: nsys cannot attach to a running program"


def _container(here: _Here) -> Answer:
    root = here.machine.root
    kind = flags.container_kind(root)
    if kind is None:
        return "ok", "none seen"
    limits = [] if flags.has_capability("SYS_ADMIN", root) else ["no CAP_SYS_ADMIN"]
    limits += ["seccomp filter"] if flags.is_seccomp_filtered(root) else []
    text = f"{kind} ({', '.join(limits)})" if limits else kind
    if here.machine.no_sampling is None:
        return "ok", text
    advice = "Start it with --cap-add=SYS_ADMIN, and if that is not enough --security-opt seccomp=unconfined."
    return "warning", f"{text}: it keeps nsys from sampling", advice


def _gpu(here: _Here) -> Answer:
    gpus, driver = here.machine.gpus, here.machine.driver
    if gpus:
        return "ok", f"{', '.join(gpu.name for gpu in gpus)}; driver {driver or 'unknown'}"
    if shutil.which("nvidia-smi") is not None or driver is not None:
        advice = "Does nvidia-smi work? In a container: start it with --gpus all (and the NVIDIA container toolkit)."
        return "warning", "a driver but no GPU", advice
    return "note", "no NVIDIA GPU or driver: recordings cover the host only"


def _counters(here: _Here) -> Answer:
    if not here.machine.gpus:
        return "skipped", "no GPU"
    if here.machine.no_counters is None:
        who = "as administrator" if flags.is_admin_only(here.machine.root) else "for everyone"
        return "ok", f"permitted {who}"
    return "warning", here.machine.no_counters, f"Only GPU metrics need it. {flags.PERMIT_COUNTERS}"


def _torch(here: _Here) -> Answer:
    """What ``import torch`` gives in the program's Python. It takes seconds, so only this command does it."""
    python = here.python
    if python is None:
        return "skipped", "no Python to ask"
    if "torch" not in python.packages:
        return "note", f"not installed for {python.executable}"
    answer = ask([python.executable, "-c", _ASK_TORCH], ANSWER_S)
    said = answer.lines[-1:] if answer is not None and answer.returncode == 0 else ()
    try:
        version, cuda, is_available = json.loads("".join(said))
    except ValueError:
        advice = f'Try: {python.executable} -c "import torch"'
        return "warning", f"{python.packages['torch']} does not import", advice
    lacks: Status = "warning" if here.machine.gpus else "note"
    if cuda is None:
        return lacks, f"{version}, built without CUDA", "Install a CUDA build." if here.machine.gpus else ""
    if not is_available:
        advice = "Is the driver new enough for this build? nvidia-smi shows up to which CUDA it goes."
        return lacks, f"{version} for CUDA {cuda}, which sees no GPU", advice if here.machine.gpus else ""
    return "ok", f"{version} for CUDA {cuda}"


def _disk(place: Callable[[], Path]) -> Callable[[_Here], Answer]:
    def look(_here: _Here) -> Answer:
        folder = place()
        free = shutil.disk_usage(folder).free
        text = f"{free / (1 << 30):.1f} GB free in {folder}"
        if not os.access(folder, os.W_OK):
            return "warning", f"{folder} cannot be written", "Record from another, or with -o."
        if free < NO_ROOM_BYTES:
            return "failed", text, "Free some space (TMPDIR names another temporary folder)."
        if free < MANY * NO_ROOM_BYTES:
            return "warning", text, "Enough for a minute or two of recording, not for hours."
        return "ok", text

    return look


#: What is asked, in this order.
_CHECKS: dict[str, Callable[[_Here], Answer]] = {
    "native core": _core,
    "nsys": _nsys,
    "importer": _importer,
    "round trip": _recording,
    "nvtx package": _nvtx,
    "CPU sampling": _sampling,
    "ptrace": _ptrace,
    "container": _container,
    "GPU": _gpu,
    "GPU counters": _counters,
    "torch": _torch,
    "disk, this folder": _disk(Path.cwd),
    "disk, temporary folder": _disk(lambda: Path(tempfile.gettempdir())),
}
