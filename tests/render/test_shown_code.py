"""What is copied from a screen, whatever its width, is the command of the report."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import boundby
from boundby.render import screen
from boundby.render.shown_code import is_command

SAMPLES = Path(__file__).parents[2] / "sample_reports"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("name", ["cpu_steps", "sync_loop_before", "numpy_only_after"])
def test_a_command_of_a_screen_can_be_copied(name: str, width: int) -> None:
    report = boundby.analyze(SAMPLES / f"{name}.sqlite")
    firsts = [one for device in report.devices for one in device.first_responses[:1]]
    firsts += [one for thread in report.threads for one in thread.first_responses[:1]]
    codes = [code for one in firsts for code in one.code.splitlines() if is_command(code)]
    text = screen.render(report, width=width, unicode=False).replace("\\\n", "")
    shown = [shlex.split(line.removeprefix("First: "), comments=True) for line in text.splitlines() if " -- " in line]
    assert codes
    assert all(shlex.split(code, comments=True) in shown for code in codes)
    more = next(line for line in text.splitlines() if line.startswith("More: "))
    assert shlex.split(more.removeprefix("More: "))[:2] == ["boundby", "analyze"]
    assert "--full" in more
