"""Perfetto traces, read back by Perfetto's own trace processor: every slice as it was, every cause to the ns."""

from __future__ import annotations

import builtins
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from boundby import api
from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.cli.main import main
from boundby.model.causes import LETTER, SHORT_LABEL
from boundby.model.errors import UserError
from boundby.render import perfetto
from boundby.render.perfetto import Slices, Writer, protos
from boundby.replay.counterfactuals import Counterfactuals
from boundby.results.report import Example, Finding, Report, TraceSummary
from boundby.trace.tables import Trace
from tests.support.program import Program
from tests.support.trace_processor import open_trace, rows
from tests.support.traces import REPOSITORY, analysis_of, trace_names

pytest.importorskip("perfetto")

SAMPLES = sorted(path.name for path in (REPOSITORY / "sample_reports").glob("*.sqlite"))
SLICES = "SELECT slice.ts, slice.dur, slice.depth FROM slice JOIN track ON track.id = track_id WHERE track.name "
NO_REPORT = Report(trace=TraceSummary("built", "built"), devices=(), regions=())


def write(path: Path, report: Report, timeline: Timeline, plot_data: Any = None) -> Path:
    with path.open("wb") as file:
        perfetto.write(file, report, timeline, plot_data)
    return path


def spans(start: Any, end: Any) -> list[tuple[int, int]]:
    """(start, duration) of each, in order."""
    return sorted(zip(start.tolist(), (end - start).tolist(), strict=True))


def found(processor: Any, condition: str, offset: int = 0) -> list[tuple[int, int]]:
    return sorted((ts - offset, dur) for ts, dur, _ in rows(processor, SLICES + condition))


def check(processor: Any, timeline: Timeline, offset: int = 0) -> None:
    """Whatever the trace holds is there, once, with its times."""
    trace = timeline.trace
    operations, ranges = trace.operations, trace.ranges
    streams = "GLOB 'stream *' OR track.name = 'no stream'"
    assert found(processor, streams, offset) == spans(operations.start_ns, operations.end_ns)
    assert not rows(processor, f"SELECT 1 FROM ({SLICES} {streams}) WHERE depth > 0")
    assert found(processor, "= 'CUDA API'", offset) == spans(trace.api.start_ns, trace.api.end_ns)
    assert found(processor, "GLOB 'NVTX*'", offset) == spans(ranges.start_ns, ranges.end_ns)
    assert found(processor, "= 'OS runtime'", offset) == spans(trace.os_calls.start_ns, trace.os_calls.end_ns)
    launched = int((timeline.calls.of_operation >= 0).sum())
    assert rows(processor, "SELECT count(*) FROM flow") == [(launched,)]
    assert not rows(processor, "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')")


def causes(processor: Any, parent: str) -> dict[str, int]:
    """Nanoseconds by name on the causes track below ``parent``."""
    query = (
        "SELECT slice.name, sum(dur) FROM slice JOIN track ON track.id = track_id JOIN track above ON "
        f"above.id = track.parent_id WHERE track.name = 'causes' AND above.name GLOB '{parent}' GROUP BY slice.name"
    )
    return dict(rows(processor, query))


@pytest.mark.parametrize("name", [*trace_names()[::3], *SAMPLES])  # Perfetto's queries take their time
def test_everything_of_a_real_trace_is_there(name: str, tmp_path: Path) -> None:
    examined = api.examine(REPOSITORY / "sample_reports" / name) if name in SAMPLES else analysis_of(name)
    try:
        _ = examined.report
    except UserError:
        pytest.skip("not a report")
    timeline = examined.timeline
    output = write(tmp_path / "t.pftrace", examined.report, timeline, examined.plot_data)
    offset = max(-perfetto._earliest(timeline, examined.report), 0)
    with open_trace(output) as processor:
        check(processor, timeline, offset)
        for device in examined.report.devices:
            told = {f"{LETTER[cause]} {SHORT_LABEL[cause]}": ns for cause, ns in device.time.items() if ns}
            assert causes(processor, f"GPU {device.id} *") == told
        findings = rows(processor, SLICES + "= 'boundby findings'")
        assert len(findings) == sum(max(len(finding.examples), 1) for finding in examined.report.findings)
        threads = {(thread.pid, thread.tid) for thread in timeline.trace.threads}
        query = "SELECT pid, tid FROM thread_track JOIN thread USING (utid) JOIN process USING (upid)"
        assert set(rows(processor, query)) <= threads


def test_what_overlaps_gets_a_track_of_its_own(tmp_path: Path) -> None:
    program = Program(threads=2, processes=2, devices=2)
    for number in range(20):
        call = program.api(100 * number, 100 * number + 20, "cudaLaunchKernel", thread=number % 2)
        program.kernel(100 * number + 10, 100 * number + 250, call, device=number % 2)  # overlaps the next two
        program.kernel(100 * number + 20, 100 * number + 20, call, name="no time at all", device=number % 2)
        program.push(100 * number, 100 * number + 150, f"crosses {number}", domain=number % 2)
        program.push(100 * number, 100 * number + 150, "of the process", is_process=True)
    program.push(0, 2000, "whole")
    timeline = built(program.trace())
    with open_trace(write(tmp_path / "t.pftrace", NO_REPORT, timeline)) as processor:
        check(processor, timeline)


def test_negative_times_are_moved_and_the_offset_told(tmp_path: Path) -> None:
    program = Program()
    call = program.api(0, 20, "cudaLaunchKernel")
    program.kernel(30, 1_000, call)
    timeline = built(program.trace(shift=-5_000))
    report = replace(NO_REPORT, devices=devices(timeline))
    with open_trace(write(tmp_path / "t.pftrace", report, timeline)) as processor:
        check(processor, timeline, offset=5_000)
        query = "SELECT int_value FROM args WHERE key = 'debug.clock_offset_ns'"
        assert rows(processor, query) == [(5_000,)]


def test_arguments_of_operations(tmp_path: Path) -> None:
    program = Program()
    call = program.api(0, 20, "cudaMemcpyAsync")
    program.copy(30, 1_000, call, size=1 << 33)
    program.push(0, 25, "step")
    timeline = built(program.trace())
    with open_trace(write(tmp_path / "t.pftrace", NO_REPORT, timeline)) as processor:
        query = "SELECT key, display_value FROM slice JOIN args USING (arg_set_id) WHERE slice.name = 'memcpy HtoD'"
        assert dict(rows(processor, query)) == {
            "debug.bytes": str(1 << 33),
            "debug.direction": "HtoD",
            "debug.source": "pinned",
            "debug.target": "device",
            "debug.correlation": "1",
            "debug.region": "step",
        }


def test_findings_stand_at_their_examples(tmp_path: Path) -> None:
    program = Program()
    program.kernel(30, 1_000, program.api(0, 20, "cudaLaunchKernel"))
    examples = (Example(40, 7, "first"), Example(-500, 3, "second"))
    finding = Finding("r", "high", "a title", ("a", "b"), {}, (3, 9), ("do this",), "r", examples=examples)
    report = replace(NO_REPORT, findings=(finding, replace(finding, title="nowhere", examples=(), saving_ns=None)))
    with open_trace(write(tmp_path / "t.pftrace", report, built(program.trace()))) as processor:
        query = "SELECT ts, slice.name FROM slice JOIN track ON track.id = track_id WHERE track.name GLOB '*findings'"
        assert sorted(rows(processor, query)) == [(0, "a title"), (530, "nowhere"), (540, "a title")]
        query = "SELECT display_value FROM slice JOIN args USING (arg_set_id) WHERE key = 'debug.example' ORDER BY ts"
        assert rows(processor, query) == [("second",), ("first",)]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    nasty = ["\udc80 surrogate", "\x00", "", " ", "<script>", "x" * 70_000, "漢字 \u202e bidi"]
    program = Program()
    for number, name in enumerate(nasty):
        call = program.api(100 * number, 100 * number + 20, name)
        program.kernel(100 * number + 30, 100 * number + 90, call, name=name)
        program.push(100 * number, 100 * number + 25, name)
    timeline = built(program.trace())
    with open_trace(write(tmp_path / "t.pftrace", NO_REPORT, timeline)) as processor:
        check(processor, timeline)
        names = {name for (name,) in rows(processor, "SELECT name FROM slice")}
        assert "\N{REPLACEMENT CHARACTER} surrogate" in names
        assert "\\x00" in names


def test_it_parses_as_perfettos_own_messages() -> None:
    """The same without a trace processor: its protos read the file and find as many slices begun as ended."""
    examined = api.examine(REPOSITORY / "sample_reports" / "simulated_sync.sqlite")
    file = io.BytesIO()
    perfetto.write(file, examined.report, examined.timeline, examined.plot_data)
    trace = protos().Trace.FromString(file.getvalue())
    kinds = [packet.track_event.type for packet in trace.packet if packet.HasField("track_event")]
    events = protos().TrackEvent
    table = examined.timeline.trace
    expected = len(table.operations) + len(table.api) + len(table.ranges) + len(table.os_calls)
    assert kinds.count(events.TYPE_SLICE_BEGIN) == kinds.count(events.TYPE_SLICE_END) > expected
    assert kinds.count(events.TYPE_COUNTER) > 0


def test_an_empty_trace_is_a_valid_file(tmp_path: Path) -> None:
    timeline = built(nothing())
    with open_trace(write(tmp_path / "t.pftrace", NO_REPORT, timeline)) as processor:
        check(processor, timeline)


def test_a_slice_is_written_as_the_package_would() -> None:
    """By columns or by Perfetto's own messages: the same packets, whatever the width of the numbers."""
    proto = protos()
    values = np.array([0, 1, 127, 128, 2**28 - 1, 2**35, 2**62], np.int64)
    names = np.arange(1, 1 + len(values))
    start = np.arange(len(values)) * 2**40
    file = io.BytesIO()
    writer = Writer(file, offset_ns=0)
    texts = np.where(values % 2 == 0, values, -1)
    writer.slices("s", 0, 0, Slices(start, start + values, names, {"number": values}, {"text": texts}, flow=values))
    packets = [packet for packet in proto.Trace.FromString(file.getvalue()).packet if packet.HasField("track_event")]
    assert [packet.timestamp for packet in packets] == np.column_stack((start, start + values)).ravel().tolist()
    for number, packet in enumerate(packets[::2]):
        expected = proto.TracePacket(timestamp=int(start[number]), trusted_packet_sequence_id=1, sequence_flags=2)
        event = expected.track_event
        event.type, event.track_uuid, event.name_iid = proto.TrackEvent.TYPE_SLICE_BEGIN, 1, int(names[number])
        event.debug_annotations.add(name_iid=1, uint_value=int(values[number]))
        if texts[number] >= 0:
            event.debug_annotations.add(name_iid=2, string_value_iid=int(texts[number]))
        if values[number]:
            event.flow_ids.append(int(values[number]))
        assert packet == expected
        assert packet.SerializeToString() == expected.SerializeToString()


def test_without_the_package_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("perfetto"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match="perfetto package") as caught:
        perfetto.write(io.BytesIO(), NO_REPORT, built(nothing()))
    assert "pip install perfetto" in caught.value.next_step


def nothing() -> Trace:
    """A trace in which time passes and nothing happens."""
    return replace(Program().trace(), span_ns=(0, 10))


def built(trace: Trace) -> Timeline:
    return build_timeline(trace, parse_window("gpu"))


def devices(timeline: Timeline) -> Any:
    from boundby.claims import summary
    from boundby.stats.figures import measure

    return summary.devices(timeline, measure(timeline), Counterfactuals())


def test_the_command_writes_it_whole_and_only_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sample = str(REPOSITORY / "sample_reports" / "simulated_sync.sqlite")
    output = tmp_path / "trace.pftrace"
    assert main(["analyze", sample, "-o", str(output)]) == 0
    assert len(protos().Trace.FromString(output.read_bytes()).packet) > 1_000
    assert main(["analyze", sample, "--format", "perfetto"]) == 2
    assert "-o" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["trace.pftrace"]


def test_an_example_on_a_skewed_clock_stands_at_its_operation(tmp_path: Path) -> None:
    program = Program()
    for number in range(50):
        call = program.api(10_000 * number, 10_000 * number + 20, "cudaLaunchKernel")
        program.kernel(10_000 * number - 5_000_000, 10_000 * number - 4_999_500 + number, call)
    timeline = built(program.trace())
    shift = timeline.devices[0].shift.shift_ns
    assert shift > 4_000_000
    example = Example(10_000 * 7 - 5_000_000 + shift, 507, "a kernel")
    finding = Finding("r", "high", "a title", None, {}, None, (), "r", examples=(example,))
    with open_trace(write(tmp_path / "t.pftrace", replace(NO_REPORT, findings=(finding,)), timeline)) as processor:
        check(processor, timeline)
        query = "SELECT ts FROM slice WHERE name = 'a title'"
        assert rows(processor, query) == [(10_000 * 7 - 5_000_000 + shift,)]
