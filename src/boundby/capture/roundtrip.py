"""Record a second of a known program, export it, and count what came back: the only proof that recording works."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from boundby.capture import facts, flags, nothing
from boundby.capture.diagnostics import add_diagnostics, count_rows, has_events, warnings_in
from boundby.capture.export import export_sqlite
from boundby.capture.flags import Options
from boundby.capture.folder import REPORT, STREAM, RunFolder
from boundby.capture.handover import prepare
from boundby.capture.locate import Nsys
from boundby.capture.machine import Machine
from boundby.capture.session import run_session
from boundby.model.errors import ToolError, UserError

ROUND_TRIP_FAILED = "Without NVTX ranges no time belongs to any region: see the check of the nvtx package."
EXPECTED_RANGES = 20
START_LIMIT_S = 60.0
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


@dataclass(frozen=True)
class RoundTrip:
    """What came back. ``ranges`` is None where the program could open none."""

    seconds: float = 0.0
    ranges: int | None = None
    expected: int = EXPECTED_RANGES
    problem: str | None = None
    advice: str = ""


def round_trip(nsys: Nsys, machine: Machine, python: facts.Python | None) -> RoundTrip:
    """Record the program with the flags that ``boundby profile`` would use."""
    try:
        return _round_trip(nsys, machine, python)
    except UserError as error:
        return RoundTrip(problem=error.message, advice=error.next_step)


def _round_trip(nsys: Nsys, machine: Machine, python: facts.Python | None) -> RoundTrip:
    program = [python.executable if python else sys.executable, "-c", _PROGRAM]
    support = flags.probe_support(nsys)
    chosen = flags.plan(Options(), support, machine, nsys, program)
    with tempfile.TemporaryDirectory(prefix="boundby-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        name = f"boundby-{uuid.uuid4().hex[:12]}"
        command = flags.command_line(nsys, chosen, folder / "report", name, support)
        ran = run_session(
            command, program, prepare(folder, os.environ), nsys, name, say=_silent, start_limit_s=START_LIMIT_S
        )
        if ran.started and ran.exit_code:
            raise ToolError(f"The program ended with exit code {ran.exit_code} under nsys.", "Does it run without?")
        report = next((folder / each for each in (REPORT, STREAM) if (folder / each).is_file()), None)
        if report is None:
            raise nothing.why_no_report(ran, Options(), RunFolder(folder, True), nsys)
        exported = export_sqlite(report, folder / "report.sqlite", nsys)
        add_diagnostics(report, exported, nsys)
        if not has_events(exported):
            raise nothing.why_no_events(exported)
        ranges = count_rows(exported, "NVTX_EVENTS", "eventType = 59")
        has_nvtx = python is not None and "nvtx" in python.packages
        is_trapped = any("payload extension is incompatible" in text for text in warnings_in(exported))
        return RoundTrip(ran.duration_s, ranges if has_nvtx or is_trapped else None)


def _silent(_text: str) -> None:
    """A check says nothing of its own."""
