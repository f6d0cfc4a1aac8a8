"""Does memory grow with the shape of a trace, and not with its size? Peaks of analyses, each in a process of its own.

    python -m benchmarks.memory [SHAPE ...] [--rounds 2000] [--most 3.0]
    python -m benchmarks.memory --cut --traces FOLDER

Each shape is an export in which something grows that most traces have little of: streams, events, depth, lanes, names,
threads, collectives, loops. Its peak is held against that of a plain training loop of as many rows, and must not be
over ``--most`` times as high. ``--cut``: real traces instead, with 12 % of their kernels cut in one stretch, held
against the whole trace. Exits with 1 where a shape takes more, or where its process died.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.simulated.full_export import Export
from boundby.simulate.nsys_export import ExportedThread

US = 1_000
MOST_TIMES = 3.0
MOST_BYTES = 6 << 30  # of address space, for each process
LONGEST_S = 900  # by the wall clock, for each process
CUT_FRACTION, CUT_PLACES = 0.12, (0.1, 0.45, 0.8)

_CHILD = """\
import resource, sys
from boundby.api import Analysis
Analysis(sys.argv[1]).report
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def _launch(
    export: Export, main: ExportedThread, at: int, *, name: str = "gemm", stream: int = 7, length: int = 4 * US
) -> int:
    """A launch and its kernel; when the kernel ends."""
    begin = at + 3 * US
    export.kernel(
        export.api(main, at, at + 2 * US, "cudaLaunchKernel_v7000"), begin, begin + length, name=name, stream=stream
    )
    return begin + length


def healthy(rounds: int) -> Export:
    """Steps of ten kernels each on one stream, which end with a sync."""
    export = Export()
    main, at = export.thread(), 0
    for number in range(rounds // 10):
        begin = at
        for place in range(10):
            at = _launch(export, main, at, name=f"kernel_{place}")
        export.api(main, at, at + 5 * US, "cudaStreamSynchronize_v3020")
        at += 10 * US
        export.nvtx(main, begin, at, f"step {number}")
    return export


def crossed(rounds: int, streams: int, events: int = 1, launches_every: int = 0) -> Export:
    """Streams that record events and wait for those of all others, round by round."""
    export = Export()
    main, at = export.thread(), 0
    for stream in range(streams):
        at = _launch(export, main, at, stream=7 + stream)
    for number in range(rounds // streams):
        for stream in range(streams):
            own = (stream * events + number % events) * 2
            call = export.api(main, at, at + US, "cudaEventRecord_v3020")
            export.record(call, own, stream=7 + stream)
            at += 2 * US
            for other in (1, 2):
                waited = ((stream + other) % streams * events + number % events) * 2
                call = export.api(main, at, at + US, "cudaStreamWaitEvent_v3020")
                export.stream_wait(call, at, at + US, waited, stream=7 + stream)
                at += 2 * US
        if launches_every and number % launches_every == 0:
            at = _launch(export, main, at, stream=7 + number % streams)
    for stream in range(streams):
        at = _launch(export, main, at, stream=7 + stream)
    return export


def awaited(rounds: int) -> Export:
    """The host waits, again and again, for an event that waits for many streams."""
    export = crossed(200, 100)
    main = export.thread()
    at = max(int(row["end"] or 0) for row in export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]) + 10 * US
    for _ in range(rounds):
        export.api(main, at, at + US, "cudaEventSynchronize_v3020", event=0)
        export.api(main, at + 2 * US, at + 3 * US, "cudaDeviceSynchronize_v3020")
        at += 4 * US
    return export


def depth(rounds: int) -> Export:
    """Ranges inside each other, and a kernel in the innermost."""
    export = Export()
    main = export.thread()
    for number in range(rounds):
        export.nvtx(main, number * US, (3 * rounds - number) * US, f"level {number} of {rounds}")
    _launch(export, main, (rounds + 1) * US)
    return export


def lanes(rounds: int) -> Export:
    """Every kernel on a stream of its own, all at the same time."""
    export = Export()
    main = export.thread()
    for number in range(rounds):
        at = number * 3 * US
        _launch(export, main, at, stream=7 + number, length=rounds * 3 * US)
    return export


def names(rounds: int) -> Export:
    """Every kernel and every range has a name of its own."""
    export = Export()
    main, at = export.thread(), 0
    for number in range(rounds):
        word = "".join(chr(97 + number // 26**place % 26) for place in range(5))
        begin, at = at, _launch(export, main, at, name=f"kernel_{word}")
        export.nvtx(main, begin, at, f"range {word}")
    return export


def threads(rounds: int, most: int | None = None) -> Export:
    """Launches come from as many threads in turn (None: each from one of its own), which then sleep until the end."""
    export, at = Export(), 0
    main = export.thread()
    for number in range(rounds):
        thread = export.thread(main.pid, main.pid + 1 + number % (most or rounds))
        begin, at = at, _launch(export, thread, at)
        export.nvtx(thread, begin, at, "work")
        export.osrt(thread, at, 40 * US * rounds, "pthread_cond_wait")
    return export


def collectives(rounds: int) -> Export:
    """Communication on many streams, each of which waits for compute by an event."""
    export = Export()
    main, at = export.thread(), 0
    for number in range(rounds // 4):
        at = _launch(export, main, at, name="gemm")
        event, stream = 2 * number, 20 + number % 64
        export.record(export.api(main, at, at + US, "cudaEventRecord_v3020"), event, stream=7)
        export.stream_wait(
            export.api(main, at + US, at + 2 * US, "cudaStreamWaitEvent_v3020"),
            at + US,
            at + 2 * US,
            event,
            stream=stream,
        )
        at = _launch(export, main, at + 3 * US, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=stream)
    return export


def loops(rounds: int) -> Export:
    """Loops inside loops of calls, without ranges: 1 2 1 3 1 2 1 4 and so on."""
    export = Export()
    main, at = export.thread(), 0
    for number in range(1, rounds + 1):
        at = _launch(export, main, at, name=f"kernel_{(number & -number).bit_length()}") + 30 * US
    return export


def nulls(rounds: int) -> Export:
    """Work on the null stream between work on many streams that follow it."""
    export = Export()
    main, at = export.thread(), 0
    export.stream(main, 7, "null")
    for number in range(200):
        export.stream(main, 20 + number, "default")
    for number in range(rounds):
        at = _launch(export, main, at, stream=7 if number % 2 else 20 + number // 2 % 200)
    return export


def allocations(rounds: int) -> Export:
    """Allocations that wait for the device, between launches on many streams."""
    export = Export()
    main, at = export.thread(), 0
    for number in range(rounds):
        end = _launch(export, main, at, stream=7 + number % 200, length=100 * US)
        export.api(main, at + 3 * US, end + 5 * US, "cudaFree_v3020")
        at = end + 10 * US
    return export


SHAPES: dict[str, Callable[[int], Export]] = {
    "streams-3": lambda rounds: crossed(rounds, 3),
    "streams-300": lambda rounds: crossed(rounds, 300),
    "streams-300-launches": lambda rounds: crossed(rounds, 300, launches_every=1),
    "events": lambda rounds: crossed(rounds, 3, events=rounds),
    "awaited": awaited,
    "depth": depth,
    "lanes": lanes,
    "names": names,
    "threads": threads,
    "collectives": collectives,
    "loops": loops,
    "nulls": nulls,
    "allocations": allocations,
}


def rows(export: Export) -> int:
    """How many events there are."""
    return sum(len(found) for table, found in export.rows.items() if found and "start" in found[0])


def peak(path: Path) -> int | None:
    """Bytes at the peak of an analysis; None where its process died."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))

    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)],
            capture_output=True,
            text=True,
            preexec_fn=bound,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"  {path.name}: over {LONGEST_S} s")
        return None
    if done.returncode:
        print("  " + (done.stderr.strip().splitlines() or [f"ended by {done.returncode}"])[-1])
        return None
    return int(done.stdout.split()[-1])


def cut(path: Path, copy: Path, place: float) -> bool:
    """Write a copy without a stretch of its kernels. Whether there are enough to cut."""
    shutil.copyfile(path, copy)
    with closing(sqlite3.connect(copy)) as database:
        try:
            found = database.execute("SELECT rowid FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start").fetchall()
        except sqlite3.OperationalError:
            return False
        count = int(len(found) * CUT_FRACTION)
        first = int(len(found) * place)
        database.executemany("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = ?", found[first : first + count])
        database.commit()
    return count > 0


def of_shapes(chosen: Sequence[str], rounds: int, folder: Path) -> Iterator[tuple[str, int | None, int | None]]:
    """Each shape, its peak, and that of a plain loop of as many rows."""
    for name in chosen:
        export = SHAPES[name](rounds)
        mine = peak(export.write(folder / f"{name}.sqlite"))
        yield name, mine, peak(healthy(max(rows(export) * 10 // 23, 10)).write(folder / f"{name}-healthy.sqlite"))


def of_traces(traces: Path, folder: Path) -> Iterator[tuple[str, int | None, int | None]]:
    """Each real trace with a stretch cut, its peak, and that of the whole trace."""
    for path in sorted(traces.rglob("*.sqlite")):
        whole = None
        for place in CUT_PLACES:
            copy = folder / f"{path.stem}-{place}.sqlite"
            if cut(path, copy, place):
                whole = peak(path) if whole is None else whole
                yield copy.stem, peak(copy), whole
            copy.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--most", type=float, default=MOST_TIMES)
    parser.add_argument("--cut", action="store_true", help="Real traces with a stretch of their kernels cut.")
    parser.add_argument("--traces", type=Path, default=os.environ.get("BOUNDBY_TRACES"))
    chosen = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        taken = (
            of_traces(chosen.traces, folder)
            if chosen.cut
            else of_shapes(chosen.shapes or list(SHAPES), chosen.rounds, folder)
        )
        for name, mine, plain in taken:
            times = mine / plain if mine is not None and plain else None
            is_bad = times is None or times > chosen.most
            failed += is_bad
            figures = "died" if mine is None else f"{mine / 1e6:6.0f} MB"
            against = "died" if plain is None else f"{plain / 1e6:6.0f} MB"
            ratio = "" if times is None else f"{times:6.1f}"
            print(f"{name:40}{figures:>10}{against:>10}{ratio}{'  !' if is_bad else ''}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
