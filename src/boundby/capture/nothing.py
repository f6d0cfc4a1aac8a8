"""Say why a run left nothing to analyse, from what came out and from what the user asked."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from boundby.capture.diagnostics import warnings_in
from boundby.capture.failure import disk_full, last_lines
from boundby.capture.flags import Options
from boundby.capture.folder import RunFolder
from boundby.capture.locate import Nsys
from boundby.capture.session import Ran
from boundby.model.errors import InputError, ToolError, UserError

_DISK_FULL = re.compile(r"No space left on device|disk is full|Disk quota exceeded|ProtobufSerializeException")
#: Less room than this is none: the smallest report takes 0.2 MB, and nsys writes it twice.
NO_ROOM_BYTES = 1 << 20
_DOCTOR = "boundby doctor looks for the cause."


def why_no_report(ran: Ran, options: Options, folder: RunFolder, nsys: Nsys) -> UserError:
    """Why nsys left no report."""
    said = last_lines(ran.said)
    if ran.hung:
        return ToolError(f"nsys {nsys.release} did not start the program. {said}", _DOCTOR)
    if ran.nsys_signal is not None:
        name = signal.Signals(ran.nsys_signal).name
        problem = f"nsys was killed by {name} while it recorded; the program was stopped."
        why = "The system does that when memory runs out: record less, with --duration or --capture-range."
        return ToolError(problem, why if ran.nsys_signal == signal.SIGKILL else _DOCTOR)
    if not ran.started:
        return ToolError(f"nsys {nsys.release} did not start the program. {said}", _DOCTOR)
    if _DISK_FULL.search(ran.said.text) or shutil.disk_usage(folder.path).free < NO_ROOM_BYTES:
        error = disk_full(f"the report in {folder.path}")
        kept = next((path for path in ran.files if path.is_file()), None)
        rescue = f" nsys left what it had in {kept}: boundby analyze {kept}." if kept is not None else ""
        return type(error)(f"{error.message}{rescue}", error.next_step)
    if options.capture_range is not None:
        return InputError(
            f"Nothing was recorded: the program never entered the capture range {options.capture_range}.",
            _range_hint(options.capture_range),
        )
    if options.delay_s and ran.duration_s:
        return InputError(
            f"Nothing was recorded: the program ended before the {options.delay_s:g} s of --delay were over.",
            "Give a shorter --delay, or let the program run longer.",
        )
    return ToolError(f"nsys {nsys.release} ended without an error, but wrote no report. {said}", _DOCTOR)


def why_no_events(export: Path) -> UserError:
    """Why a report holds nothing, in the profiler's own words."""
    warnings = warnings_in(export)
    said = f" The profiler says: {' / '.join(warnings[:3])}" if warnings else ""
    return InputError(
        f"The report is there, but it holds no events.{said}",
        "Does the program use CUDA or NVTX, and did it run for more than an instant? boundby doctor checks the rest.",
    )


def check_room(folder: Path, what: str) -> None:
    """Refuse to begin where nothing fits: an nsys without room for its temporary files does not say so, it hangs."""
    if shutil.disk_usage(folder).free < NO_ROOM_BYTES:
        raise disk_full(f"{what} {folder}")


def _range_hint(capture_range: str) -> str:
    if capture_range == "cudaProfilerApi":
        return "It begins where the program calls torch.cuda.profiler.start() (cudaProfilerStart)."
    return "Its name must be exactly that of an NVTX range, which begins after the program has started."
