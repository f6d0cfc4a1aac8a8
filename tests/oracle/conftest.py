"""Fixtures of the comparison with NVIDIA's own reports."""

from __future__ import annotations

import pytest

from boundby.capture.nsys import Nsys
from tests.oracle.nsys_reports import NsysReports


@pytest.fixture(scope="session")
def nvidia(nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> NsysReports:
    """NVIDIA's reports, each trace run once per session."""
    return NsysReports(nsys, tmp_path_factory.mktemp("nvidia"))
