"""Fixtures that many rooms share: a real nsys, an older one, and a small report captured with the first."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import hatch_build
import pytest
from hypothesis import HealthCheck, settings

from boundby.capture.nsys import Nsys
from boundby.model import library
from boundby.rules import matches
from tests.support.nsys import OLDER, capture, fetched_nsys, installed_nsys
from tests.support.traces import trace_names

# The same examples in every run, however long they take: a loaded machine is no failure, and a rare example is found by
# looking for it (--hypothesis-profile=default), not on the day of somebody else's change.
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


def pytest_sessionstart() -> None:
    """A checkout that is not installed, or whose C files changed since, gets its native core here. What the tests start
    hears Ctrl-C even where a shell started them in the background, which has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if library.why_not() and hatch_build.compiler():
        hatch_build.build()
        library._load.cache_clear()


def pytest_collection_finish() -> None:
    """What is there before the first test stays: the garbage collector need not look at it after each of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_rule_fails_silently() -> Iterator[None]:
    """A rule that raises is one line for users: here it fails the test."""

    def failure(error: Exception) -> str:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matches, "failure", failure)
        yield


@pytest.fixture(scope="session")
def nsys() -> Nsys:
    """A real nsys: found as a user's is, else fetched by scripts/get-nsys, else the test is skipped."""
    return installed_nsys()


@pytest.fixture(scope="session")
def nsys_older() -> Nsys:
    """nsys 2022.4.2 from the cache, fetched where needed, else the test is skipped."""
    return fetched_nsys(OLDER)


@pytest.fixture(scope="session")
def nvtx_report(nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of examples/workloads/cpu_steps.py with 5 steps. It is shared: do not change it."""
    return capture(nsys, tmp_path_factory.mktemp("nvtx_report"), "cpu_steps.py", "5")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all that captures with a real nsys in one worker, since two captures at once disturb each other; all tests of
    a real trace in one, and of every other file in one, so that what they share is made once. Captures, which wait,
    come first, then traces: no long group is left for the end, where other workers have nothing more to do."""
    real, turn = set(trace_names()), dict[str, tuple[int, str]]()
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        captures = item.get_closest_marker("nsys") is not None or not _CAPTURING.isdisjoint(fixtures)
        values = getattr(getattr(item, "callspec", None), "params", {}).values()
        traces = [value for value in values if isinstance(value, str) and value in real]
        file = "nsys" if captures else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(traces[0] if traces else file))
        turn[item.nodeid] = (1, traces[0]) if traces else (2 - 2 * captures, "")
        if captures:  # a recording on a loaded machine can lose events or a signal its moment
            item.add_marker(pytest.mark.flaky(reruns=2))
    items.sort(key=lambda item: turn[item.nodeid])


#: Fixtures that capture, or hand out what does.
_CAPTURING = {"nsys", "nsys_older", "nvtx_report"}
