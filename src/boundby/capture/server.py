"""Recording a phase of a running server of language models: it is asked to start and stop its profiler.

vLLM and SGLang take ``POST /start_profile`` and ``POST /stop_profile``. What that starts is PyTorch's profiler, or
where the server runs under nsys with ``--capture-range=cudaProfilerApi`` what lies between cudaProfilerStart and
cudaProfilerStop. Recorded is a server that works: one without requests would be all gap. Whether it has any, and how
many steps it has done, its ``GET /metrics`` tells (vLLM: always; SGLang: with --enable-metrics).
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from boundby.model import door
from boundby.model.errors import InputError, ToolError
from boundby.model.late import expression
from boundby.model.scale import LOOK_S, PATIENCE_S

Engine = Literal["vLLM", "SGLang"]
#: Answers are no longer.
_RUNNING = expression(r"^(?:vllm:num_requests_running|sglang:num_running_reqs)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)
_STEPS = expression(r"^vllm:iteration_tokens_total_count(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)
_TRACES = ("*.trace.json", "*.trace.json.gz")


class ServedPhase(NamedTuple):
    """What to record. ``traces``: where the server's profiler writes; None: not known, or nsys records."""

    url: str
    steps: int
    delay_s: float = 0.0
    duration_s: float | None = None  # at most
    traces: Path | None = None
    is_under_nsys: bool = False


class ServerClock(NamedTuple):
    """Time, as the caller has it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Recorded(NamedTuple):
    """What was recorded. ``ended``: the recording is over; SGLang ends it by itself, and does not tell. ``steps``: None
    where the server does not tell. ``traces``: new ones, in order of their names."""

    engine: Engine
    ended: bool
    steps: int | None
    traces: tuple[Path, ...]


def _at_work(url: str, phase: ServedPhase, say: Callable[[str], None], clock: ServerClock) -> Engine:
    """Wait until a server answers and has requests; which engine it is. Raises ToolError where none answers."""
    if not _answers(url):
        if not phase.is_under_nsys:  # there, it is starting
            raise ToolError(f"No server answers at {url}.", "Is the address right, and has the server started?")
        say(f"waiting for the server to answer at {url}")
        _wait(lambda: _answers(url), clock, f"No server answers at {url}.", "Is the address right?")
    engine: Engine = "vLLM" if _get(url, "/get_model_info") is None else "SGLang"
    if not _is_working(url):
        say(f"{engine} at {url} has no requests: recording begins when it has")
        _wait(lambda: _is_working(url), clock, f"{engine} at {url} had no requests.", "Send it some, and try again.")
    return engine


def record_phase(phase: ServedPhase, say: Callable[[str], None], clock: ServerClock = ServerClock()) -> Recorded:  # noqa: B008
    """Wait until the server works, have it record, and wait for what it writes. Raises InputError for a URL that is
    none, ToolError where the server does not do what it is asked for."""
    url = _checked(phase.url)
    engine = _at_work(url, phase, say, clock)
    clock.sleep(phase.delay_s)
    before, steps_asked = _traces(phase.traces), _number(url, _STEPS)
    if engine == "vLLM" and steps_asked is None and phase.duration_s is None:
        raise ToolError(f"{engine} at {url} does not tell how many steps it has done.", "Give --duration S.")
    _start(url, engine, phase)
    say(f"{engine} at {url} records {phase.steps} steps")
    is_asked_to_end = engine == "vLLM" or phase.duration_s is not None  # SGLang ends by itself after so many steps
    if is_asked_to_end:
        _wait_for_end(url, engine, phase, steps_asked, before, clock)
        _stop(url, engine)
    done = _number(url, _STEPS)
    written = _written(phase, before, clock)
    steps = None if done is None or steps_asked is None else round(done - steps_asked)
    return Recorded(engine, is_asked_to_end or bool(written), steps, written)


def _checked(url: str) -> str:
    parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(f"{url!r} is no address of a server.", "Write it as http://localhost:8000.")
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def _request(url: str, path: str, body: bytes | None = None) -> bytes:
    """An answer. Raises OSError (urllib's HTTPError and URLError are such)."""
    headers = {"Content-Type": "application/json"} if body else {}
    asked = urllib.request.Request(url + path, data=body, headers=headers)
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        content: bytes = answer.read(door.MOST_WRITTEN_BYTES)
    return content


def _get(url: str, path: str) -> str | None:
    """What the server answers; None: nothing, or an error."""
    try:
        return _request(url, path).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _answers(url: str) -> bool:
    return _get(url, "/health") is not None


def _number(url: str, what: re.Pattern[str]) -> float | None:
    """The sum of a figure over all models of the server; None: it does not tell."""
    text = _get(url, "/metrics")
    try:
        values = [float(value) for value in what.findall(text or "")]
    except ValueError:
        return None
    return sum(values) if values else None


def _is_working(url: str) -> bool:
    """Whether it has requests, where it tells."""
    running = _number(url, _RUNNING)
    return running is None or running > 0


def _wait(is_so: Callable[[], bool], clock: ServerClock, otherwise: str, next_step: str) -> None:
    until = clock.now() + PATIENCE_S
    while not is_so():
        if clock.now() >= until:
            raise ToolError(otherwise, next_step)
        clock.sleep(LOOK_S)


def _start(url: str, engine: Engine, phase: ServedPhase) -> None:
    asked: dict[str, object] = {"num_steps": phase.steps}
    if engine == "SGLang":
        asked["activities"] = ["CUDA_PROFILER"] if phase.is_under_nsys else ["CPU", "GPU"]
        if phase.traces is not None:
            asked["output_dir"] = str(phase.traces.resolve())
    try:
        _request(url, "/start_profile", json.dumps(asked).encode())
    except urllib.error.HTTPError as error:
        raise ToolError(
            f"{engine} at {url} does not record: it answers /start_profile with {error.code}.",
            "vLLM needs --profiler-config when it starts (docs/serving.md); TensorRT-LLM has no such request.",
        ) from None
    except OSError as error:
        raise ToolError(f"{url} does not answer /start_profile ({error}).", "Does the server still run?") from None


def _wait_for_end(
    url: str, engine: Engine, phase: ServedPhase, known: float | None, before: frozenset[Path], clock: ServerClock
) -> None:
    """Until the steps are done, by what the server counts or writes, or the time is over. Raises ToolError where the
    server ends."""
    until = clock.now() + (PATIENCE_S if phase.duration_s is None else phase.duration_s)
    while clock.now() < until:
        done = _number(url, _STEPS)
        if known is not None and done is not None and done - known >= phase.steps:
            return
        if _traces(phase.traces) - before:
            return  # it has ended by itself
        if done is None and not _answers(url):
            raise ToolError(f"{engine} at {url} ended while it recorded.", "What it printed last may say why.")
        clock.sleep(LOOK_S)


def _stop(url: str, engine: Engine) -> None:
    try:
        _request(url, "/stop_profile", b"{}")
    except OSError as error:
        if engine == "vLLM":  # SGLang may have ended the recording by itself, and then says so
            raise ToolError(
                f"{engine} at {url} did not end the recording ({error}).", "Ask /stop_profile again."
            ) from None


def _traces(folder: Path | None) -> frozenset[Path]:
    """Traces below a folder."""
    if folder is None or not folder.is_dir():
        return frozenset()
    return frozenset(path for pattern in _TRACES for path in folder.rglob(pattern) if path.is_file())


def _written(phase: ServedPhase, before: frozenset[Path], clock: ServerClock) -> tuple[Path, ...]:
    """The traces that the server has written, once they grow no more."""
    if phase.traces is None or phase.is_under_nsys:
        return ()
    sizes: list[dict[Path, int]] = [{}]

    def are_whole() -> bool:
        sizes.append({path: path.stat().st_size for path in _traces(phase.traces) - before})
        return bool(sizes[-1]) and all(sizes[-1].values()) and sizes[-1] == sizes[-2]

    _wait(
        are_whole,
        clock,
        f"No new trace lies in {phase.traces}.",
        "Name the folder that the server's profiler writes to: vLLM's torch_profiler_dir.",
    )
    return tuple(sorted(sizes[-1]))
