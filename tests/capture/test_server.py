"""Recording a running server: a small HTTP server that answers as vLLM and SGLang do, and writes a trace."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from benchmarks.simulated.server import Batch, Server

from boundby.capture.server import ServedPhase, ServerClock, record_phase
from boundby.cli.main import main
from boundby.model.errors import InputError, ToolError
from boundby.simulate.kineto import write_kineto

BATCHES = [Batch(2, 512, 0), *[Batch(0, 0, 30)] * 6] * 3


@dataclass
class Fake:
    """What the server is and does. ``idle``: so many looks at its figures find it without requests."""

    engine: str
    folder: Path
    idle: int = 0
    counts: bool = True
    refuses: bool = False
    ends: bool = False  # when it is asked to record
    asked: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    steps: int = 100

    def metrics(self) -> str:
        if self.idle > 0:
            self.idle -= 1
            running = 0
        else:
            running, self.steps = 3, self.steps + 7
        if not self.counts:
            return "python_info 1.0\n"
        if self.engine == "SGLang":
            return f'sglang:num_running_reqs{{model_name="m"}} {running}.0\n'
        return (
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0\n'
            f'vllm:iteration_tokens_total_sum{{engine="0"}} 9.0\n'
            f'vllm:iteration_tokens_total_count{{engine="0"}} {self.steps}.0\n'
        )

    def write(self) -> None:
        name = "rank0.123.pt.trace.json.gz" if self.engine == "vLLM" else "123-TP-0.trace.json.gz"
        write_kineto(Server(self.engine, BATCHES, graphs=True, overlaps=False).run(), self.folder / name)  # type: ignore[arg-type]

    def answer(self, path: str, body: dict[str, object] | None) -> tuple[int, str]:
        if body is None:
            if self.ends and self.asked:
                return 404, ""
            if path == "/metrics":
                return 200, self.metrics()
            known = path == "/health" or (path == "/get_model_info" and self.engine == "SGLang")
            return (200, "{}") if known else (404, "")
        self.asked.append((path, body))
        if self.refuses:
            return 404, ""
        if path == ("/stop_profile" if self.engine == "vLLM" else "/start_profile"):
            self.write()
        return 200, ""


@contextmanager
def serving(fake: Fake) -> Iterator[str]:
    """The server's address."""

    class Handler(BaseHTTPRequestHandler):
        def _send(self, body: dict[str, object] | None) -> None:
            code, text = fake.answer(self.path, body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            self._send(None)

        def do_POST(self) -> None:
            self._send(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def virtual() -> ServerClock:
    """Time that passes only where somebody sleeps."""
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    return ServerClock(lambda: passed[0], sleep)


def test_vllm_records_so_many_steps_and_then_stops(tmp_path: Path) -> None:
    fake = Fake("vLLM", tmp_path, idle=4)
    said: list[str] = []
    with serving(fake) as url:
        found = record_phase(ServedPhase(url, 20, traces=tmp_path), said.append, virtual())
    assert [path for path, _ in fake.asked] == ["/start_profile", "/stop_profile"]
    assert fake.asked[0][1] == {"num_steps": 20}
    assert found.engine == "vLLM"
    assert found.steps is not None
    assert found.steps >= 20
    assert [path.name for path in found.traces] == ["rank0.123.pt.trace.json.gz"]
    assert "has no requests: recording begins when it has" in said[0]


def test_sglang_is_told_where_to_write_and_ends_by_itself(tmp_path: Path) -> None:
    fake = Fake("SGLang", tmp_path)
    with serving(fake) as url:
        found = record_phase(ServedPhase(url, 20, traces=tmp_path), lambda _: None, virtual())
    told = {"num_steps": 20, "activities": ["CPU", "GPU"], "output_dir": str(tmp_path.resolve())}
    assert fake.asked == [("/start_profile", told)]
    assert [path.name for path in found.traces] == ["123-TP-0.trace.json.gz"]


def test_under_nsys_sglang_starts_cudas_profiler(tmp_path: Path) -> None:
    fake = Fake("SGLang", tmp_path)
    with serving(fake) as url:
        found = record_phase(ServedPhase(url, 20, is_under_nsys=True), lambda _: None, virtual())
    assert fake.asked == [("/start_profile", {"num_steps": 20, "activities": ["CUDA_PROFILER"]})]
    assert not found.traces
    assert not found.ended  # by itself, later


def test_a_server_that_stays_idle_is_not_recorded(tmp_path: Path) -> None:
    fake = Fake("vLLM", tmp_path, idle=1 << 30)
    with serving(fake) as url, pytest.raises(ToolError, match="had no requests"):
        record_phase(ServedPhase(url, 20, traces=tmp_path), lambda _: None, virtual())
    assert not fake.asked


def test_a_server_without_a_profiler_is_told(tmp_path: Path) -> None:
    fake = Fake("vLLM", tmp_path, refuses=True)
    with serving(fake) as url, pytest.raises(ToolError, match="answers /start_profile with 404"):
        record_phase(ServedPhase(url, 20, traces=tmp_path), lambda _: None, virtual())


def test_a_server_that_counts_no_steps_needs_a_duration(tmp_path: Path) -> None:
    fake = Fake("vLLM", tmp_path, counts=False)
    with serving(fake) as url:
        with pytest.raises(ToolError, match="Give --duration"):
            record_phase(ServedPhase(url, 20, traces=tmp_path), lambda _: None, virtual())
        found = record_phase(ServedPhase(url, 20, duration_s=3.0, traces=tmp_path), lambda _: None, virtual())
    assert found.steps is None
    assert found.traces


def test_a_server_that_ends_while_it_records_is_told(tmp_path: Path) -> None:
    with serving(Fake("vLLM", tmp_path, ends=True)) as url, pytest.raises(ToolError, match="ended while it recorded"):
        record_phase(ServedPhase(url, 20, traces=tmp_path), lambda _: None, virtual())


def test_nobody_answers() -> None:
    with pytest.raises(ToolError, match="No server answers"):
        record_phase(ServedPhase("127.0.0.1:9", 20), lambda _: None, virtual())
    with pytest.raises(InputError, match="no address of a server"):
        record_phase(ServedPhase("file:///etc/passwd", 20), lambda _: None, virtual())


def test_the_command_says_what_the_steps_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Fake("vLLM", tmp_path)) as url:
        assert main(["profile", "--server", url, "--steps", "10", "--traces", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "Decode steps (30 requests)" in shown.out
    assert "steps named by vLLM" in shown.out
    assert "rank0.123.pt.trace.json.gz" in shown.err


def test_without_a_program_and_a_server_there_is_nothing_to_record() -> None:
    assert main(["profile"]) == 2
