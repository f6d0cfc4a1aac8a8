"""Programs that behave badly under a real nsys: always their own exit code, and a report or one sentence.

Crashes, signals, 137, stdin, terminals, a disk that they fill, secrets and an nsys killed midway are in
test_profile.py and test_profile_flags.py; here is the rest.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from tests.support.nsys import names
from tests.support.profiling import Profiler

pytestmark = pytest.mark.nsys
FLOOD = 2_000_000
PROGRAMS = {
    # It outlives the program, in a session of its own, and holds on to its output.
    "a daemon": """
import os, sys, time
import nvtx
with nvtx.annotate("work"):
    time.sleep(0.05)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("daemon", "w").write(str(os.getpid()))
        os.close(1); os.close(2)
        time.sleep(900)
    os._exit(0)
os.wait()
while not os.path.exists("daemon") or not open("daemon").read():
    time.sleep(0.01)
sys.exit(5)
""",
    "a flood, and no folder to stand on": f"""
import os, shutil, sys, tempfile
import nvtx
folder = tempfile.mkdtemp()
os.chdir(folder)
with nvtx.annotate("work"):
    shutil.rmtree(folder)
    for stream in (sys.stdout, sys.stderr):
        stream.write(("x" * 99 + "\\n") * {FLOOD // 100})
sys.exit(6)
""",
    "the recording's folder is gone": """
import shutil, sys
shutil.rmtree("out")
sys.exit(7)
""",
    "a millisecond": "import os; os._exit(8)",
}
CODES = dict(zip(PROGRAMS, (5, 6, 7, 8), strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_own_code_and_a_report_or_a_sentence(
    name: str, nsys: Nsys, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = Profiler(nsys, tmp_path, capfd).run_program(["--format=none"], [sys.executable, "-c", PROGRAMS[name]])
    if (tmp_path / "daemon").exists():
        os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)  # it was still there
    assert ran.code == CODES[name], ran.err[-2000:]
    own = [line for line in ran.err.splitlines() if line.startswith("boundby: ")]
    assert own
    assert "Traceback" not in ran.err
    if "flood" in name:
        assert ran.out.count("x" * 99) == FLOOD // 100
    if ran.folder.exists():
        assert {"report.nsys-rep", "report.sqlite", "report.json", "run.json"} <= set(names(ran.folder))
        assert ran.facts["exit_code"] == CODES[name]
        assert not [one for one in names(ran.folder) if one.endswith(".part")]


def test_two_at_once(nsys: Nsys, tmp_path: Path) -> None:
    started = []
    for number in (1, 2):
        place = tmp_path / str(number)
        place.mkdir()
        started.append(Profiler(nsys, place).behaving("exit", str(number)))
    for number, one in enumerate(started, 1):
        ran = one.finish()
        assert ran.code == number, ran.err
        assert ran.ranges == {"work": 1, "part": 3}
