"""A job's Perfetto trace, read back by Perfetto's own messages."""

from __future__ import annotations

from collections import defaultdict
from io import BytesIO
from typing import Any

import pytest
from benchmarks.simulated.jobs import Job, Plant, simulate
from benchmarks.simulated.summaries import summaries

from boundby.jobs import job_perfetto
from boundby.jobs.merge import merge


@pytest.fixture(scope="module")
def slices() -> dict[tuple[str, str], list[tuple[int, int, str, int]]]:
    """By (rank, track): start, end, name and flow of each slice."""
    proto: Any = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    job = Job(data=3, steps=4, clock_ns=900_000_000, skew_ns=1, plants=(Plant("slow_device", 1, 0.3),))
    ranks = summaries(job, simulate(job))
    file = BytesIO()
    job_perfetto.write(file, ranks, merge(ranks, "simulated"))
    tracks, names, began, found = {}, {}, defaultdict(list), defaultdict(list)
    for packet in proto.Trace.FromString(file.getvalue()).packet:
        described = packet.track_descriptor
        if described.uuid:
            tracks[described.uuid] = described.name, described.parent_uuid
        names.update({one.iid: one.name for one in packet.interned_data.event_names})
        event = packet.track_event
        if event.track_uuid and event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
            began[event.track_uuid].append((packet.timestamp, names[event.name_iid], *event.flow_ids))
        elif event.track_uuid:
            start, name, *flow = began[event.track_uuid].pop()
            track, parent = tracks[event.track_uuid]
            found[tracks[parent][0], track].append((start, packet.timestamp, name, *flow))
    return found


def test_every_rank_has_its_tracks(slices: dict[tuple[str, str], list[Any]]) -> None:
    ranks = ("rank 0", "rank 1", "rank 2")
    assert set(slices) == {(rank, track) for rank in ranks for track in ("steps", "work and waits", "collectives")}
    assert [name for *_, name in slices["rank 1", "steps"]] == ["step 0", "step 1", "step 2", "step 3"]


def test_parts_of_a_collective_end_together_on_one_clock(slices: dict[tuple[str, str], list[Any]]) -> None:
    ends = defaultdict(list)
    for (_, track), inside in slices.items():
        for _, end, _, *flow in inside:
            if track == "collectives":
                ends[flow[0]].append(end)
    assert all(len(one) == 3 and max(one) - min(one) < 10_000 for one in ends.values())


def test_waits_name_whom_they_are_for_and_work_its_cause(slices: dict[tuple[str, str], list[Any]]) -> None:
    spent: dict[str, int] = defaultdict(int)
    for start, end, name in slices["rank 0", "work and waits"]:
        spent[name] += end - start
    assert spent["waits for rank 1"] > 0.5 * sum(ns for name, ns in spent.items() if name.startswith("waits"))
    assert max(spent, key=lambda name: spent[name]).startswith("compute in step */")
