"""What each test costs: ``pytest -p tests.support.cpu`` prints the CPU seconds of files and tests.

They are those of pytest and of all that it started and waited for; what a fixture costs counts for the test that asked
first. Wall time would say what else the machine did.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from typing import cast

import pytest

#: Name of the property of a test's reports: xdist's workers send those to where they are summed.
COST = "cpu_s"
SHOWN = 60


def used_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_STARTED] = (used_s(), time.monotonic())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cpu_s, wall_s = item.stash[_STARTED]
    item.stash[_STARTED] = now = (used_s(), time.monotonic())
    report.user_properties.append((COST, (now[0] - cpu_s, now[1] - wall_s)))
    return report


_STARTED = pytest.StashKey[tuple[float, float]]()


class _Costs:
    """Sums what reports say."""

    def __init__(self) -> None:
        self.tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for value in [value for name, value in report.user_properties if name == COST][-1:]:
            cpu_s, wall_s = cast(tuple[float, float], value)
            self.tests[report.nodeid][0] += cpu_s
            self.tests[report.nodeid][1] += wall_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: dict[str, float] = defaultdict(float)
        for name, (cpu_s, _) in self.tests.items():
            files[name.partition("::")[0]] += cpu_s
        out = terminalreporter.write_line
        terminalreporter.section(f"CPU seconds: {sum(files.values()):.0f}")
        for name, cpu_s in sorted(files.items(), key=lambda item: -item[1]):
            out(f"{cpu_s:8.1f}  {name}")
        out("of tests, with wall seconds:")
        for name, (cpu_s, wall_s) in sorted(self.tests.items(), key=lambda item: -item[1][0])[:SHOWN]:
            out(f"{cpu_s:8.1f} {wall_s:8.1f}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Costs())
