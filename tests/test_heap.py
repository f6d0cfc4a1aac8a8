"""Free memory is kept with glibc, and left alone with other C libraries."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from boundby.model import stage

RESIDENT = """
import sys
import numpy as np
from boundby.model import stage

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

stage.own_process()
stage.keep_freed()
before = resident()
hole = np.ones(8_000_000)
del hole
print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_memory_of_arrays_that_are_gone_is_kept() -> None:
    ran = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 32_000_000  # of 64 MB


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    monkeypatch.setitem(stage._process, "is_own", True)
    stage.keep_freed()


def test_memory_of_a_process_of_others_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(ctypes, "CDLL", asked.append)
    monkeypatch.setitem(stage._process, "is_own", False)
    stage.keep_freed()
    assert not asked
