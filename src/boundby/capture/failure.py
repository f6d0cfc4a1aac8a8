"""Say why nsys failed, or left nothing to analyse: from how it ended, what it wrote last, and what it was given.

The texts looked for are those of a real nsys, 2022.4 to 2024.2. Other failures are told in nsys' own words.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from boundby.capture.folder import disk_full
from boundby.capture.nsys import Finished, Nsys, version_numbers
from boundby.model import door
from boundby.model.errors import InputError, OutputError, ToolError, UserError
from boundby.model.scale import A_FEW_LINES, TWO_LINES

if TYPE_CHECKING:
    from boundby.capture.flags import CaptureOptions
    from boundby.capture.session import Ran

_DISK_FULL = re.compile(
    r"disk is full|No space left on device|Disk quota exceeded|disk I/O error|ProtobufSerializeException"
)
_TOO_NEW = (
    re.compile(r"Report was created in [\w ]+ version \(([\w.-]+)\), newer than your current version"),
    re.compile(r"Version number is invalid: ([\w.@-]+)"),  # nsys 2022, of reports of 2023 and later
    re.compile(r"Qdstrm version ([\w.-]+) is not supported"),
)
_NOT_WHOLE = re.compile(
    r"magic number mismatch|Cannot read from stream|Version tag is not found|Invalid version prefix"
    r"|File is corrupted"
)
#: nsys prints these and can leave with status 0 all the same.
_FAILED = re.compile(r"Exportation error|Failed to close database|disk is full")
#: A file begins with what wrote it: "... Report 2023@4@4@54-...", "... Stream 2023.4.4.54-...".
_WRITTEN_BY = re.compile(rb"NVIDIA [\w ]+ (?:Report|Stream) (\d{4}[.@][\d.@]+)")
#: How much of what nsys said goes into a message.
_LINES_QUOTED = A_FEW_LINES
#: Less room than this is none: the smallest report takes 0.2 MB, and nsys writes it twice.
NO_ROOM_BYTES = 1 << 20
_DOCTOR = "boundby doctor looks for the cause."


def admits_failure(finished: Finished) -> bool:
    """Whether nsys left with an error, or said that it failed although it left without one."""
    return finished.returncode != 0 or _FAILED.search(finished.text) is not None


def written_by(report: Path) -> str | None:
    """The nsys that wrote a report, ``2023.4.4.54``; None where the report does not tell (2022)."""
    found = _WRITTEN_BY.search(door.first_of(report, door.HEADER_BYTES))
    return found[1].decode().replace("@", ".").strip(".") if found else None


def is_same_release(report: Path, nsys: Nsys) -> bool:
    """Whether this nsys, as far as is known, is the one that wrote the report."""
    captured_with = version_numbers(written_by(report) or "")
    return bool(captured_with) and captured_with[:3] == nsys.version_tuple[:3]


def export_error(finished: Finished, report: Path, exported: Path, nsys: Nsys) -> UserError:
    """Why ``nsys export`` gave no whole ``exported``."""
    plain = _plain_cause(finished, report, nsys)
    if plain is not None:
        return plain
    size = exported.stat().st_size if exported.exists() else 0
    # An export is larger than its report, so less room than that was not enough, whatever nsys says.
    if shutil.disk_usage(exported.parent).free + size < report.stat().st_size:
        return disk_full(f"the export of {report.name}")
    said = last_lines(finished)
    if finished.returncode == 0:
        wrote = "an incomplete file" if size else "nothing"
        return ToolError(
            f"nsys {nsys.release} ended without an error exporting {report.name}, but wrote {wrote}. {said}",
            "To see more, run it by hand: nsys export --type=sqlite. The .sqlite can be given instead.",
        )
    return ToolError(
        f"nsys {nsys.release} could not export {report.name} (status {finished.returncode}). {said}",
        "Another version of nsys may help: name it with --nsys.",
    )


def import_error(finished: Finished, stream: Path, nsys: Nsys) -> UserError:
    """Why QdstrmImporter gave no report."""
    captured_with = written_by(stream)
    if captured_with and not is_same_release(stream, nsys):
        return _too_new(stream, captured_with, nsys, exactly=True)
    return _plain_cause(finished, stream, nsys, exactly=True) or ToolError(
        f"QdstrmImporter of nsys {nsys.release} could not import {stream.name} "
        f"(status {finished.returncode}). {last_lines(finished)}",
        "Import it with the nsys that captured it, and give the .nsys-rep.",
    )


def last_lines(finished: Finished) -> str:
    """nsys' own last words, for a message."""
    if not finished.lines:
        return "It said nothing."
    words = " / ".join(line.strip() for line in finished.lines[-_LINES_QUOTED:])
    return f"It said: {words[-TWO_LINES:]}"


def _plain_cause(finished: Finished, report: Path, nsys: Nsys, exactly: bool = False) -> UserError | None:
    """The failures whose cause is plain. ``exactly``: only the very version that captured it will do."""
    if _DISK_FULL.search(finished.text):
        return disk_full(f"the export of {report.name}")
    if finished.signal_name is not None:
        return _killed(finished, report)
    needed = written_by(report)
    found = next((match for pattern in _TOO_NEW if (match := pattern.search(finished.text))), None)
    if found is not None:
        return _too_new(report, needed or found[1].replace("@", "."), nsys, exactly)
    # 2022 has other words for other parts of a newer report.
    if needed and nsys.version and version_numbers(needed)[:3] > nsys.version_tuple[:3]:
        return _too_new(report, needed, nsys, exactly)
    if _NOT_WHOLE.search(finished.text):
        problem = f"{report} is truncated, damaged or not an nsys report. {last_lines(finished)}"
        return InputError(problem, "Copy it again, or capture again.")
    return None


def _killed(finished: Finished, report: Path) -> UserError:
    if finished.signal_number == signal.SIGXFSZ:
        problem = f"The export of {report.name} is larger than the file size limit of this shell."
        return OutputError(problem, "Raise the limit: ulimit -f.")
    problem = f"nsys was killed by {finished.signal_name} while working on {report.name}. {last_lines(finished)}"
    if finished.signal_number == signal.SIGKILL:
        return ToolError(problem, "The system does that when memory runs out: export where there is more.")
    return ToolError(problem, "Try again, or with another version of nsys: name it with --nsys.")


def _too_new(report: Path, needed: str, nsys: Nsys, exactly: bool) -> ToolError:
    release = ".".join(map(str, version_numbers(needed)[:3]))
    which = "that very version" if exactly else "that or a newer one"
    return ToolError(
        f"{report.name} was captured with nsys {release} and needs {which}; {nsys.path} is {nsys.release}.",
        "Name one with --nsys, or run nsys export --type=sqlite where it was captured and give the .sqlite.",
    )


def _never_began(ran: Ran, options: CaptureOptions) -> InputError | None:
    """What was asked to be waited for before recording, where that may not have come."""
    if options.capture_range is not None:
        hint = "Its name must be exactly that of an NVTX range, which begins after the program has started."
        if options.capture_range == "cudaProfilerApi":
            hint = "It begins where the program calls torch.cuda.profiler.start() (cudaProfilerStart)."
        problem = f"Nothing was recorded: the program never entered the capture range {options.capture_range}."
        return InputError(problem, hint)
    if options.delay_s and ran.duration_s:
        return InputError(
            f"Nothing was recorded: the program ended before the {options.delay_s:g} s of --delay were over.",
            "Give a shorter --delay, or let the program run longer.",
        )
    return None


def _nsys_killed(number: int) -> UserError:
    problem = f"nsys was killed by {signal.Signals(number).name} while it recorded; the program was stopped."
    why = "The system does that when memory runs out: record less, with --duration or --capture-range."
    return ToolError(problem, why if number == signal.SIGKILL else _DOCTOR)


def why_no_report(ran: Ran, options: CaptureOptions, folder: Path, nsys: Nsys) -> UserError:
    """Why nsys left no report of a run in this folder."""
    said = last_lines(ran.said)
    if ran.nsys_signal is not None and not ran.hung:
        return _nsys_killed(ran.nsys_signal)
    if ran.hung or not ran.started:
        return ToolError(f"nsys {nsys.release} did not start the program. {said}", _DOCTOR)
    kept = next((path for path in ran.files if path.is_file()), None)
    rescue = f" nsys left what it had in {kept}: boundby analyze {kept}." if kept is not None else ""
    if not folder.is_dir():
        hint = f"Does the program tidy up there? Name another folder with -o.{rescue}"
        return OutputError(f"{folder} is gone: something removed it while the program ran.", hint)
    if _DISK_FULL.search(ran.said.text) or shutil.disk_usage(folder).free < NO_ROOM_BYTES:
        return disk_full(f"the report in {folder}", rescue)
    if (unmet := _never_began(ran, options)) is not None:
        return unmet
    return ToolError(f"nsys {nsys.release} ended without an error, but wrote no report. {said}", _DOCTOR)


def why_no_events(warnings: Sequence[str]) -> UserError:
    """Why a report holds nothing, in the profiler's own words."""
    said = f" The profiler says: {' / '.join(warnings[:3])}" if warnings else ""
    return InputError(
        f"The report is there, but it holds no events.{said}",
        "Does the program use CUDA or NVTX, and did it run for more than an instant? boundby doctor checks the rest.",
    )


def check_room(folder: Path, what: str) -> None:
    """Refuse to begin where nothing fits: an nsys without room for its temporary files does not say so, it hangs."""
    if shutil.disk_usage(folder).free < NO_ROOM_BYTES:
        raise disk_full(f"{what} {folder}")
