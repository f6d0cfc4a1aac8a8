"""Analysis on Windows and macOS: what only Linux has is taken away, and reports are read and written all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.headlines import stressed

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
PROGRAM = """
import os, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None  # an import of it fails
for name in ("fchmod", "fchown", "chown", "killpg", "getpgid", "setsid", "fork", "sched_getaffinity", "geteuid",
             "getuid", "getloadavg", "posix_fadvise", "statvfs", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGQUIT", "SIGSTOP"):
    if hasattr(signal, name):
        delattr(signal, name)
from boundby.cli.main import main
report, page, result, plot = sys.argv[1:]
codes = [main(["analyze", report, "-q", "-o", page]), main(["analyze", report, "-q", "-o", result]),
         main(["what-if", report, "-q", "--top", "1"]), main(["compare", report, report, "-q"]),
         main(["check", result, "-q", "-l", "gpu_utilization > 1 %"])]
sys.exit(max(codes))
"""


def test_reports_are_analysed_without_what_only_linux_has(tmp_path: Path) -> None:
    paths = [tmp_path / "page.html", tmp_path / "result.json", tmp_path / "plot.svg"]
    command = [sys.executable, "-c", PROGRAM, str(SAMPLE), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert stressed("sync") in paths[0].read_text(encoding="utf-8").upper()
    assert json.loads(paths[1].read_text(encoding="utf-8"))["devices"]
