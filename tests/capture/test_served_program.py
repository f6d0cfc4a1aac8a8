"""``boundby profile --server URL -- PROGRAM`` under a real nsys, on a stand-in for a server.

It answers as vLLM does, and its steps are ranges. Where a GPU is, cudaProfilerStart begins the recording; here a range
of its own does.
"""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from tests.support.profiling import Profiler, Started

pytestmark = pytest.mark.nsys
STEPS = 12
SERVER = """\
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import nvtx

how, port = sys.argv[1], int(sys.argv[2])
steps, recording, done = 0, threading.Event(), threading.Event()

class Handler(BaseHTTPRequestHandler):
    def answer(self, code, text=""):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        figures = f"vllm:num_requests_running 3\\nvllm:iteration_tokens_total_count {steps}\\n"
        self.answer(200 if self.path in ("/metrics", "/health") else 404, figures)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if how == "refuses":
            return self.answer(404)
        if how == "dies":
            os._exit(9)
        (recording if self.path == "/start_profile" else done).set()
        self.answer(200)

    def log_message(self, *_):
        pass

def step():
    global steps
    if how == "dies in a step" and recording.is_set() and steps > 3:
        os._exit(9)
    with nvtx.annotate("execute_context_0(0)_generation_4(4)"):
        time.sleep(0.01)
    steps += 1 if how != "dies in a step" or recording.is_set() else 0

if how != "is elsewhere":
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("serves", flush=True)
try:
    while not recording.is_set():
        step()
    with nvtx.annotate("recorded"):
        while not done.is_set():
            step()
    while True:
        step()
except KeyboardInterrupt:
    sys.exit(5)
"""


def _start(how: str, nsys: Nsys, place: Path) -> Started:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    program = place / "serve.py"
    program.write_text(SERVER)
    options = [f"--server=http://127.0.0.1:{port}", f"--steps={STEPS}", "--capture-range=nvtx:recorded"]
    return Profiler(nsys, place).start(options, [sys.executable, program, how, str(port)])


def test_a_server_is_recorded_while_it_works(nsys: Nsys, tmp_path: Path) -> None:
    started = _start("works", nsys, tmp_path)
    started.wait_until_told("Ctrl-C ends it")
    started.send(signal.SIGINT)
    ran = started.finish()
    assert ran.code == 5, ran.err
    assert f"records {STEPS} steps" in ran.err
    assert f"boundby serving {ran.folder}" in ran.err
    recorded = ran.ranges["execute_context_0(0)_generation_4(4)"]
    assert recorded >= STEPS
    assert ran.ranges["recorded"] == 1
    assert "decode, 3-4 requests" in ran.out


def test_a_server_that_does_not_record_says_so_and_is_ended(nsys: Nsys, tmp_path: Path) -> None:
    started = _start("refuses", nsys, tmp_path)
    started.wait_until_told("answers /start_profile with 404")
    assert "Nothing is recorded: Ctrl-C ends the program." in started.told
    started.send(signal.SIGINT)
    ran = started.finish()
    assert ran.code == 5
    assert "the program never entered the capture range" in ran.err
    assert not ran.folder.exists()


def test_a_server_at_another_address_is_waited_for(nsys: Nsys, tmp_path: Path) -> None:
    started = _start("is elsewhere", nsys, tmp_path)
    started.wait_until_told("waiting for the server to answer at http://127.0.0.1:")
    started.wait_for("serves")
    started.send(signal.SIGINT)
    assert started.finish().code == 5


@pytest.mark.parametrize(("how", "word"), [("dies", "does not answer /start_profile"), ("dies in a step", "")])
def test_a_server_that_dies_has_its_own_code(how: str, word: str, nsys: Nsys, tmp_path: Path) -> None:
    ran = _start(how, nsys, tmp_path).finish()
    assert ran.code == 9
    assert word in ran.err
    assert "Traceback" not in ran.err
