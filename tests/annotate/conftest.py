"""Every test here writes its ranges to a recorder, and must have closed them all."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from boundby.annotate import backends, ranges
from tests.annotate.recording import Recorder


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """What the test's ranges were."""
    made = Recorder()
    with backends.using(made):
        yield made
        gc.collect()
    assert made.open == []
    assert ranges.depth() == 0
