"""The host reads a kernel's result back page by page, or after a prefetch; and without calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.simulated.full_export import Export

from boundby.readers import read_trace
from boundby.trace.tables import Trace
from tests.rules.builtin.harness import RuleCases, Source, without

MS = 1_000_000
PAGES = 200
USER, SPECULATIVE = 1, 3  # CUpti_ActivityUnifiedMemoryMigrationCause


def read_back(cause: int) -> Trace:
    """A kernel of 20 ms, then 200 migrations to the host, each of which comes 0.3 ms after the one before."""
    export = Export(("./check",))
    main = export.thread(pid=1, tid=1)
    export.api(main, 0, MS // 10, "cudaMallocManaged")
    call = export.api(main, MS, MS + 10_000, "cudaLaunchKernel")
    export.kernel(call, MS + 20_000, 21 * MS, name="fill(float*)", shape=(4_000, 256, 32))
    export.api(main, MS + 15_000, 21 * MS + 5_000, "cudaDeviceSynchronize")
    for page in range(PAGES):
        at = 22 * MS + page * 3 * MS // 10
        export.memcpy(main, at, at + 15_000, bytes=170_000, kind="UVM_DtoH", target="managed", cause=cause)
    with tempfile.TemporaryDirectory() as folder:
        return read_trace(export.write(Path(folder) / "managed.sqlite", "2023"))


def by_faults() -> Source:
    return Source(read_back(SPECULATIVE))


def by_prefetch() -> Source:
    return Source(read_back(USER))


def without_calls() -> Source:
    return without(by_faults(), "api")


CASES = RuleCases(
    positive=by_faults,
    negative=by_prefetch,
    missing=without_calls,
    also=("hot-kernel", "trace-incomplete", "trace-no-nvtx"),
)
