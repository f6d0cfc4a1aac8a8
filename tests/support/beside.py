"""Programs whose exports hold what stands beside the GPU's work (MPI, OpenACC, counters, allocations, files, what the
program printed, the profiler's complaints), and damage to these tables alone."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.simulated.full_export import Export
from benchmarks.simulated.ranks import MS, Collective, Own, Recv, Send, Step, ranks

from boundby import api
from boundby.model.errors import InputError
from boundby.simulate.nsys_export import Name, Row
from tests.support.counted import COUNTED_BOUND, US, counted_program
from tests.support.counted import TABLES as COUNTED
from tests.support.damaged_sqlite import damage_tables

#: Every table that is damaged: no kernel, copy or CUDA call stands in one of them.
TABLES = (
    *COUNTED,
    *("MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS"),
    *("MPI_RANKS", "MPI_COMMUNICATORS"),
    *(f"CUPTI_ACTIVITY_KIND_OPENACC_{kind}" for kind in ("DATA", "LAUNCH", "OTHER")),
    *("OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS", "ProcessStreams", "DIAGNOSTIC_EVENT"),
    "TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS",
)
_NOISE = "W tensorflow/core: failed to allocate 2.1G\nTraceback is not here\nError: retrying\ndone\n"
ROUNDS, LATE_NS, LATE_PID = 12, 8 * MS, 5002


def program() -> Export:
    """`counted_program` in constructs of OpenACC, with files that it reads, what it printed, and MPI at both ends."""
    export = counted_program()
    main = export.thread()
    place: Row = {"globalTid": main.global_tid, "srcFile": Name("/src/heat.c"), "funcName": Name("main")}
    names: Row = {"DeviceType": 4, "cuDeviceId": 0, "cuContextId": 1, "cuStreamId": 7}
    for step in range(10):
        at = step * 10 * MS
        data: Row = {**place, **names, "nameId": Name("Enter data"), "bytes": 1 << 20, "varName": Name("u")}
        export.row("CUPTI_ACTIVITY_KIND_OPENACC_DATA", start=at + MS, end=at + 2 * MS, eventKind=11, lineNo=51, **data)
        other: Row = {**place, **names, "nameId": Name("Compute construct")}
        export.row(
            "CUPTI_ACTIVITY_KIND_OPENACC_OTHER", start=at + 2 * MS, end=at + 8 * MS, eventKind=9, lineNo=55, **other
        )
        launch: Row = {**other, "numGangs": 4, "numWorkers": 1, "vectorLength": 128}
        export.row(
            "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", start=at + 3 * MS, end=at + 4 * MS, eventKind=4, lineNo=55, **launch
        )
        times: Row = {"startedAt": at + 2 * MS, "endedAt": at + 2 * MS + 500 * US}
        common: Row = {"fileAccessId": 7, "threadId": main.global_tid, "eventType": 0, "context": ""}
        export.row("OSRT_FILE_ACCESS_EVENTS", apiCallId=Name("read"), bytesProcessed=100_000, **times, **common)
        resident = {"timestamp": at, "globalTid": main.global_tid, "gpu": 0, "totalBytesResident": 6_000_000_000}
        export.row("TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS", segmentGroup=0, segmentId=2, **resident)
    export.row("OSRT_FILE_ACCESS_DESCRIPTORS", fileAccessId=7, processId=main.pid, filePath="/data/train_0.tar")
    for kind, text in (("stderr", _NOISE), ("stdout", "loss 0.1\n")):
        stream = {"filenameId": Name(f"pid_{main.pid}_{kind}.log"), "contentId": Name(text)}
        export.row("ProcessStreams", globalPid=main.global_pid, **stream)
    export.diagnostic("Some buffers were late.", 2)
    return export


def late_rank() -> Export:
    """Four ranks of which the third comes late to each collective, and messages around them."""
    early: list[Step] = [Own(MS), Send(1), Recv(1), Collective(), Collective("MPI_Bcast", root=0)]
    partner: list[Step] = [Own(MS), Recv(0), Send(0), Collective(), Collective("MPI_Bcast", root=0)]
    rest: list[Step] = [Collective(), Collective("MPI_Bcast", root=0)]
    others = [[Own(MS + LATE_NS), *rest], [Own(MS), *rest]]
    return ranks([steps * ROUNDS for steps in (early, partner, *others)])


def write(folder: Path) -> list[Path]:
    """Both, as exports of several versions."""
    made = [program().write(folder / f"beside_{year}.sqlite", year) for year in ("2022", "2023", "2026")]
    return [*made, *(late_rank().write(folder / f"ranks_{year}.sqlite", year) for year in ("2023", "2026"))]


def damage_beside(path: Path, chance: random.Random) -> None:
    """Damage to values, rows, columns or the whole of these tables, and to nothing else."""
    damage_tables(path, chance, TABLES)


def check_beside(path: Path) -> None:
    """Nothing that these tables hold turns a verdict that does not rest on them; of ranks none is blamed with
    confidence but the one that was late; nobody is told that the program failed."""
    report = api.analyze(path)
    assert report.trace.program is None, report.trace.program
    if path.name.startswith("beside"):
        bounds = {device.verdict.bound for device in report.devices}
        assert bounds <= {COUNTED_BOUND}, bounds
        return
    sure = [thread for thread in report.threads if thread.verdict.confidence == "high"]
    assert not sure, sure
    try:
        job = api.job([path], workers=1)
    except InputError:  # too little is left of the ranks
        return
    if job.verdict.confidence != "low" and job.stragglers:
        late = job.stragglers[0]
        named = [job.ranks[place] for place in late.ranks]
        assert [one.rank or int(one.name.split()[-1]) for one in named] in ([2], [LATE_PID]), late
