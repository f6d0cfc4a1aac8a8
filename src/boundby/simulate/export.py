"""A run as an export in nsys' own schema, marked as simulated."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from boundby.__about__ import __version__
from boundby.model.errors import OutputError
from boundby.simulate.engine import Executed, Run
from boundby.simulate.rows import CallRow, Export, Thread
from boundby.simulate.schema import GENERATIONS
from boundby.simulate.script import CALLS, PAGE_FAULT, Do, Kind, ScriptThread, Step, Wait

#: What META_DATA_EXPORT says, and the name of every GPU (older schemas have no metadata).
PRODUCT = "boundby simulate"
GPU_NAME = "Simulated GPU"
#: The hardware of every GPU: MULTIPROCESSORS times BLOCKS_EACH blocks of THREADS threads fill it.
MULTIPROCESSORS, BLOCKS_EACH, THREADS, REGISTERS = 100, 8, 256, 32
GPU_FACTS = {"smCount": MULTIPROCESSORS, "threadsPerWarp": 32, "maxWarpsPerSm": 64, "maxBlocksPerSm": 32} | {
    "maxRegistersPerSm": 65_536,
    "maxShmemPerSm": 167_936,
    "computeMajor": 8,
    "computeMinor": 0,
}
FIRST_PID = 1000
_RECORDS, _SYNCS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
# As nsys numbers them: the default stream, those that programs make; each GPU of a process has numbers of its own.
DEFAULT_STREAM, FIRST_STREAM, STREAMS_OF_GPU = 7, 13, 1_000
_AT_A_FAULT = 2  # CUpti_ActivityUnifiedMemoryMigrationCause
#: nsys leaves shorter OS calls out.
OSRT_THRESHOLD_NS = 1_000
# Version suffixes as CUPTI writes them; driver calls have none.
_VERSION = {"cudaLaunchKernel": "_v7000", "cudaGraphLaunch": "_v10000", "cudaStreamIsCapturing": "_v10000"}


class Capture(Struct, frozen=True):
    """Which kinds of data the capture holds beside CUDA's. ``graph_nodes``: graphs node by node, not as a whole.
    ``registered_ranges``: ranges name their text by number, as registered strings do. ``event_records``, ``syncs``: the
    rows that say where an event was recorded, and what a call or stream waited for; ``lost``: that part of both is
    missing here and there.
    """

    nvtx: bool = True
    osrt: bool = True
    sched: bool = True
    graph_nodes: bool = False
    registered_ranges: bool = False
    event_records: bool = True
    syncs: bool = True
    lost: float = 0.0


def to_export(run: Run, capture: Capture | None = None) -> Export:
    """The rows of a run."""
    return _Exporter(run, capture or Capture()).export


def write_export(run: Run, path: Path, schema: str = "2023", capture: Capture | None = None) -> Path:
    """Write a run as an export, whole or not at all and over nothing that is there. Raises OutputError."""
    if schema not in GENERATIONS:
        raise OutputError(f"There is no schema {schema}.", f"Choose one of {', '.join(GENERATIONS)}.")
    with new_file(path) as place:
        to_export(run, capture).write(place, schema)
    return path


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write to, which becomes ``path`` in the end if nothing went wrong and nothing else
    has taken the name."""
    try:
        if os.path.lexists(path):
            raise OutputError(f"{path} is already there.", "Choose another name, or remove it.")
        with tempfile.TemporaryDirectory(prefix=".boundby-", dir=path.parent) as folder:
            place = Path(folder) / "export.sqlite"
            yield place
            _publish(place, path)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or error}.", "Write elsewhere.") from error


def _publish(place: Path, path: Path) -> None:
    """Give the file its name. A link never replaces; where there are none, a look must do."""
    try:
        os.link(place, path)
    except FileExistsError:
        raise OutputError(f"{path} is already there.", "Choose another name, or remove it.") from None
    except OSError:
        if os.path.lexists(path):
            raise OutputError(f"{path} is already there.", "Choose another name, or remove it.") from None
        place.rename(path)


class _Exporter:
    """Goes through a run thread by thread."""

    def __init__(self, run: Run, capture: Capture) -> None:
        self.run = run
        self.capture = capture
        program = run.script.program
        self.export = Export(
            program.command,
            {"EXPORT_PRODUCT_NAME": PRODUCT, "SIMULATED": f"by boundby {__version__}: {program.name}"},
        )
        self.clock = random.Random("clock")  # the error of device times is no part of what happened
        self.operations = {(one.thread, one.step): one for one in run.operations}
        self.events: dict[tuple[int, str], int] = {}
        self.gpus: set[int] = set()
        self.streams: set[tuple[int, int]] = set()
        lasting = [ends for ends, thread in zip(run.end_ns, run.script.threads, strict=True) if not thread.daemon]
        self.over = max((ends[-1] for ends in lasting if ends), default=0)  # when the program is
        for at, thread in enumerate(run.script.threads):
            if thread.traced:
                self.write_thread(at, thread)
        self.lose_rows()

    def lose_rows(self) -> None:
        """Leave out what the capture lacks of events and syncs."""
        capture, chance = self.capture, random.Random("lost rows")
        for table, is_there in ((_RECORDS, capture.event_records), (_SYNCS, capture.syncs)):
            rows = self.export.rows.pop(table, [])
            if kept := [row for row in rows if is_there and chance.random() >= capture.lost]:
                self.export.rows[table] = kept

    def write_thread(self, at: int, thread: ScriptThread) -> None:
        pid = FIRST_PID * (thread.process + 1)
        place = self.export.thread(pid, pid + thread.number, thread.name)
        starts, ends = self.run.start_ns[at], [min(end, self.over) for end in self.run.end_ns[at]]
        if self.capture.sched and not thread.unseen:
            self.export.sched(place, 0, True)
        open_ranges: list[int] = []
        for number, (step, start, end) in enumerate(zip(thread.steps, starts, ends, strict=False)):
            if step.do in CALLS:
                self.write_call(place, step, start, end, self.operations.get((at, number)))
                if not thread.unseen and step.call != PAGE_FAULT:
                    self.write_wait(place, step, start, end)
            elif step.do in (Do.SLEEP, Do.AWAIT) and not thread.unseen:
                self.write_sleep(place, step, start, end)
            elif step.do == Do.PUSH:
                open_ranges.append(start)
            elif step.do == Do.POP and self.capture.nvtx:
                registered = self.capture.registered_ranges
                self.export.nvtx(place, open_ranges.pop(), end, step.text, domain=step.domain, registered=registered)
        if self.capture.sched and not thread.unseen:
            self.export.sched(place, ends[-1] if ends else 0, False)

    def write_call(self, place: Thread, step: Step, start: int, end: int, operation: Executed | None) -> None:
        if step.call == PAGE_FAULT:
            if operation is not None:
                self.write_operation(place, step, operation)
            return
        name = step.call + ("" if not step.call.startswith("cuda") else _VERSION.get(step.call, "_v3020"))
        event = self.event(place, step.text) if step.text else None
        stream = _stream(step)
        self.tell_stream(place, stream, is_null=step.stream == 0)
        call = self.export.api(place, start, end, name, stream=stream, event=event, device=step.device)
        if event is not None:
            if step.do == Do.RECORD:
                self.export.record(call, event, device=step.device, stream=stream)
            elif step.do == Do.WAIT_EVENT:
                self.export.stream_wait(call, start, end, event, device=step.device, stream=stream)
        if operation is not None:
            self.write_operation(call, step, operation)

    def write_wait(self, place: Thread, step: Step, start: int, end: int) -> None:
        """A call that waits for the device sleeps, on a machine that does not spin."""
        if self.capture.sched and not self.run.script.machine.sync_spins and step.wait != Wait.NONE:
            own_ns = 0 if step.operation else step.init_ns  # memory is looked for once the device is done
            self.sleep(place, start, end - own_ns)

    def tell_stream(self, place: Thread, stream: int, *, is_null: bool) -> None:
        """Every stream that a process names is in the table of its streams."""
        if (place.pid, stream) not in self.streams:
            self.streams.add((place.pid, stream))
            follows = self.run.script.machine.legacy_default_stream
            flag = "null" if is_null else "default" if follows else "non_blocking"
            self.export.stream(place, stream, flag)

    def write_operation(self, call: CallRow | Thread, step: Step, operation: Executed) -> None:
        export, spec = self.export, operation.spec
        if step.device not in self.gpus:
            self.gpus.add(step.device)
            export.gpu(step.device, GPU_NAME, {**GPU_FACTS, "asyncEngines": 2 * self.run.script.machine.copy_engines})
        start = self.device_time(operation.start_ns)
        end = max(start, self.device_time(operation.end_ns))
        device, stream = step.device, _stream(step)
        shape = (max(round(spec.share / 1000 * MULTIPROCESSORS * BLOCKS_EACH), 1), THREADS, REGISTERS)
        if spec.kind == Kind.GRAPH and self.capture.graph_nodes:
            stretch = (end - start) / spec.ns if spec.ns else 1.0  # what others on the device held the graph up
            for number, (kernel, offset, length) in enumerate(spec.nodes):
                export.kernel(
                    *(call, start + round(offset * stretch), start + round((offset + length) * stretch)),
                    shape=shape,
                    name=kernel,
                    device=device,
                    stream=stream,
                    graph_node=number + 1,
                )
        elif spec.kind == Kind.GRAPH:
            export.graph(call, start, end, device=device, stream=stream)
        elif spec.kind == Kind.SET:
            export.memset(call, start, end, bytes=spec.bytes, device=device, stream=stream)
        elif spec.kind == Kind.COPY:
            source = spec.memory if spec.direction == "HtoD" else "device"
            target = spec.memory if spec.direction == "DtoH" else "device"
            export.memcpy(
                *(call, start, end),
                bytes=spec.bytes,
                kind=f"UVM_{spec.direction}" if step.call == PAGE_FAULT else spec.direction,
                cause=_AT_A_FAULT if step.call == PAGE_FAULT else None,
                source=source,
                target=target,
                device=device,
                stream=stream,
            )
        else:
            export.kernel(call, start, end, shape=shape, name=spec.name, device=device, stream=stream)

    def write_sleep(self, place: Thread, step: Step, start: int, end: int) -> None:
        if end > start and self.capture.sched:
            self.sleep(place, start, end)
        if end - start >= OSRT_THRESHOLD_NS and self.capture.osrt:
            self.export.osrt(place, start, end, step.text if step.do == Do.SLEEP else "pthread_cond_wait")

    def sleep(self, place: Thread, start: int, end: int) -> None:
        """Off the CPU. Who sleeps again at once was back for a nanosecond: switches of one instant have no order."""
        start = max(start, self.export.last_switch_ns(place) + 1)
        if start < end:
            self.export.sched(place, start, False)
            self.export.sched(place, end, True)

    def event(self, place: Thread, name: str) -> int:
        """Event ids count per process, from 1."""
        key = place.pid, name
        return self.events.setdefault(key, 1 + sum(pid == place.pid for pid, _ in self.events))

    def device_time(self, time: int) -> int:
        machine = self.run.script.machine
        error = self.clock.randint(-machine.clock_noise_ns, machine.clock_noise_ns) if machine.clock_noise_ns else 0
        return time + round(time * machine.clock_drift) + machine.clock_skew_ns + error


def _stream(step: Step) -> int:
    number = DEFAULT_STREAM if step.stream == 0 else FIRST_STREAM + step.stream - 1
    return number + STREAMS_OF_GPU * step.device


__all__ = ["Capture", "to_export", "write_export"]
