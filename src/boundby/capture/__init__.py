"""Everything that has to do with running nsys: find it, record with it, and export a report through it.

nsys can fail and still leave with status 0, so what it wrote is checked and not only how it ended.
"""

from __future__ import annotations

from boundby.capture.export import export_sqlite, export_to_temporary
from boundby.capture.folder import command_of, find_in_folder, is_run, rank_of
from boundby.capture.handover import typed_command
from boundby.capture.locate import Nsys, Unusable, candidates, find_nsys

__all__ = [
    "Nsys",
    "Unusable",
    "candidates",
    "command_of",
    "export_sqlite",
    "export_to_temporary",
    "find_in_folder",
    "find_nsys",
    "is_run",
    "rank_of",
    "typed_command",
]
