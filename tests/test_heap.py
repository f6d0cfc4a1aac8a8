"""Free memory is kept and given back with glibc, and left alone with other C libraries."""

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

stage.keep_freed()
hole, above = np.ones(8_000_000), np.ones(100_000)
del hole
kept = resident()
stage.give_back()
print(kept - resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_holes_are_kept_until_they_are_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 32_000_000  # of 64 MB


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    monkeypatch.setattr(stage._Heap, "is_kept", False)
    stage.keep_freed()
    assert not stage._Heap.is_kept
    stage.give_back()
