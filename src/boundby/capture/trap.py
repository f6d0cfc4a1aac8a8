"""Known traps between a program's packages and nsys that lose data in silence."""

from __future__ import annotations

from collections.abc import Mapping

from boundby.capture.locate import Nsys, version_numbers

#: From this version on, the nvtx package asks for a part of NVTX that nsys did not have ...
NVTX_TOO_NEW = (0, 2, 12)
#: ... before this version: it then records no range of the package at all, and says so only in its diagnostics.
NSYS_TAKES_IT = (2024, 3)
NVTX_FIX = "Install nvtx==0.2.11 there (pip install nvtx==0.2.11), or record with nsys 2024.4 or later."


def nvtx_trap(packages: Mapping[str, str], nsys: Nsys) -> str | None:
    """What is wrong with a Python's nvtx package under this nsys; None where nothing is."""
    version = packages.get("nvtx")
    if version is None or version_numbers(version) < NVTX_TOO_NEW or not nsys.version_tuple:
        return None
    if nsys.version_tuple >= NSYS_TAKES_IT:
        return None
    return f"the nvtx package {version} records no range under nsys {nsys.release}, and no error says so"
