"""Does every prediction obey the laws? A table over a folder of reports: one line a device, what was broken at its end.

    python -m benchmarks.laws FOLDER [--only PART]

Laws (docs/what-if.md): unchanged, the replay gives the measured times back; no delay that nothing explains is negative;
nothing starts before its launch, or before what it comes after has ended; a removal never lengthens; no prediction is
shorter than the busiest stream that it leaves alone; without costs of the host, what cannot run at once takes its time;
with a perfect host the device takes no longer than without one of its parts; no region saves more than the whole;
a range holds its prediction; what a thread did is the same in the account and in the replay; kernels 2 % faster on a
device that is 95 % busy with kernels alone move its end by about that; a cause of the host for which the device does
not idle in a part is not its bound with high confidence.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import boundby
from boundby.api import Analysis
from boundby.model.arrays import Int64Array
from boundby.model.causes import BUSY_CAUSES, REMOVABLE, SCENARIOS
from boundby.model.errors import UserError
from boundby.model.intervals import clip, subtract, union
from boundby.replay.engine import replay
from boundby.replay.predictor import Predictor, ReplayStep, most_saved
from boundby.replay.removals import Faster
from boundby.results.report import DeviceReport, RegionReport
from boundby.trace.facts import CLOCKS_APART_NS
from boundby.trace.tables import OpKind

#: Clocks and turns leave predictions uncertain by this part of the window.
SLACK = 0.005
#: Devices busier than this are asked for kernels 2 % faster.
BUSY = 0.95
#: What costs the host alone.
HOST = ("no_sync", "no_launch_overhead", "cpu_free", "input_free", "init_free")
HOST_CAUSES = {cause.key for cause in REMOVABLE if cause not in BUSY_CAUSES}
CAUSES = tuple(cause.key for cause in REMOVABLE)


def broken(analysis: Analysis) -> Iterator[str]:
    """What is broken, in words."""
    predictor, predicted = analysis.predictor, analysis.replayed.predicted_ns
    graph = predictor.graph
    start, end = replay(graph, graph.costs)
    measured = graph.links.start_ns
    if not np.array_equal(start, measured):
        yield f"unchanged, {np.count_nonzero(start != measured)} operations move"
    negative = int((graph.costs.unexplained_delay_ns < 0).sum())
    if negative:
        yield f"{negative} negative delays"
    before = graph.links.before
    launched, clock = graph.links.launch >= 0, CLOCKS_APART_NS
    calls = graph.links.node_begin_ns[graph.links.launch[launched]]
    denied = graph.contradictions.by_ns[launched] > 0  # counted, and told where they matter
    if unlaunched := int(((start[launched] < calls - clock) & ~denied).sum()):
        yield f"{unlaunched} operations start before their launch"
    early = int(((before >= 0) & (start < end[before])).sum()) if len(before) else 0
    if early:
        yield f"{early} operations start before their stream's predecessor has ended"
    for one in graph.disagreements:
        causes = f"{one.account.key} in the account and {one.replay.key} in the replay"
        yield f"{one.ns} ns of thread {one.thread} are {causes}"
    windows = {name: predictor.without(scenario.causes) for name, scenario in SCENARIOS.items()}
    for position, length in enumerate(predictor.measured_ns):
        slack = SLACK * length
        for name, lengths in windows.items():
            if lengths[position] > length + slack:
                yield f"{name} lengthens by {(lengths[position] - length) / length:.1%}"
        device = predictor.devices[position]
        told = predicted[device.index]
        least = min(told[name] for name in HOST)
        lows = {name: list(lengths) for name, lengths in windows.items()}
        for item in analysis.what_if:
            if item.device != predictor.timeline.trace.gpus[device.index].id:
                continue
            if not (item.low_ns or 0) <= item.predicted_ns <= (item.high_ns or 0):
                yield f"the range of {item.scenario} does not hold its prediction"
            lows[item.scenario][position] = min(item.low_ns or 0, lows[item.scenario][position])
        if told["infinite_host"] > least:
            yield f"infinite_host is longer than a part of it by {told['infinite_host'] - least} ns"
        yield from _too_short(predictor, position, lows)
        yield from _overlapped(predictor, position, windows)
        yield from _slightly_faster(predictor, position)

    parts: tuple[DeviceReport | RegionReport, ...] = (*analysis.devices, *analysis.regions)
    for part in parts:
        verdict = part.verdict
        named = set(verdict.mixed_of or (verdict.bound,)) & HOST_CAUSES
        for cause in sorted(named) if verdict.confidence == "high" and any(part.time.values()) else ():
            if not part.time[cause]:
                place = part.name if isinstance(part, DeviceReport) else "/".join(part.path)
                yield f"{place}: {cause} with high confidence, though the device never idles for it"

    whole = {cause: most_saved(predictor.measured_ns, predictor.without((cause,))) for cause in CAUSES}
    waitless = predictor.without(("sync",))
    for cause in CAUSES:
        whole[cause] = max(whole[cause], most_saved(waitless, predictor.without((cause,), first=("sync",))))
    for number, saved in analysis.replayed.region.items():
        for cause, saved_ns in saved.items():
            if saved_ns > whole[cause] * (1 + SLACK):
                yield f"region {number} saves {saved_ns} ns of {cause}, everything {whole[cause]} ns"


def _overlapped(predictor: Predictor, position: int, windows: dict[str, list[int]]) -> Iterator[str]:
    """Without costs of the host a window holds the busiest stream, and what cannot run beside any of its work."""
    graph, device = predictor.graph, predictor.devices[position]
    links, rows = graph.links, np.flatnonzero((graph.device == device.index) & predictor.everywhere.operations)
    lanes = links.lane[rows]
    if len(rows) == 0:
        return
    duration_ns = _inside_ns(predictor, position)
    work = np.bincount(lanes + 1, duration_ns[rows])
    busiest = int(work.argmax()) - 1
    excludes = links.excludes.reshape(links.kinds, links.kinds)
    beside = np.unique(links.kind[rows[lanes == busiest]])
    beside_none = np.asarray(excludes[:, beside].all(axis=1))
    alone = (lanes == busiest) | beside_none[links.kind[rows]]
    others = lanes[alone & (lanes != busiest)]
    least = int(duration_ns[rows[lanes == busiest]].sum())
    if len(others):  # of the others, the busiest one: they may run beside each other
        own = alone & (lanes != busiest)
        least += int(np.bincount(lanes[own], duration_ns[rows[own]]).max())
    least = min(least, clip(device.busy, device.low_ns, device.high_ns).total)
    for name in HOST:
        if windows[name][position] < least * (1 - SLACK):
            yield f"{name} needs {least - windows[name][position]} ns of overlap that was not shown to be possible"


def _inside_ns(predictor: Predictor, position: int) -> Int64Array:
    """How long each operation takes inside of a device's window."""
    start, device = predictor.graph.links.start_ns, predictor.devices[position]
    end = start + predictor.graph.costs.duration_ns
    inside: Int64Array = np.maximum(np.minimum(end, device.high_ns) - np.maximum(start, device.low_ns), 0)
    return inside


def _too_short(predictor: Predictor, position: int, windows: dict[str, list[int]]) -> Iterator[str]:
    """No prediction is shorter than the work of a stream that it does not touch."""
    graph, device = predictor.graph, predictor.devices[position]
    kernels = (graph.op_kind <= OpKind.GRAPH) & ~graph.is_communication
    removed = {
        "infinite_gpu": kernels,
        "copies_free": graph.op_kind >= OpKind.MEMCPY,
        "comm_free": graph.is_communication,
    }
    operations = predictor.timeline.trace.operations
    _, stream = np.unique(np.stack((operations.process, operations.stream)), axis=1, return_inverse=True)
    inside = predictor.everywhere.operations & (graph.device == device.index)
    duration_ns = _inside_ns(predictor, position)
    for name, lengths in windows.items():
        left = inside & ~removed.get(name, np.zeros(len(inside), bool))
        work = np.bincount(stream.reshape(-1)[left], duration_ns[left]) if left.any() else np.zeros(1)
        if lengths[position] < work.max() * (1 - SLACK):
            yield f"{name} is shorter than its busiest stream by {work.max() - lengths[position]:.0f} ns"


def _slightly_faster(predictor: Predictor, position: int) -> Iterator[str]:
    graph, device = predictor.graph, predictor.devices[position]
    length = predictor.measured_ns[position]
    kernels = (graph.op_kind <= OpKind.GRAPH) & ~graph.is_communication
    start, inside_ns = graph.links.start_ns, _inside_ns(predictor, position)
    others = (graph.device == device.index) & ~kernels & (inside_ns > 0)
    beside = union(start[others], start[others] + inside_ns[others])
    # What runs beside a kernel may be what the next one waits for.
    alone_ns = subtract(clip(device.busy, device.low_ns, device.high_ns), beside).total
    if alone_ns < BUSY * length or inside_ns[kernels].sum() < BUSY * length:
        return
    left = predictor.windows(ReplayStep(Faster(kernels, 1.02), predictor.everywhere))[position]
    if not 0.008 <= 1 - left / length <= 0.03:
        yield f"kernels 2 % faster move the end by {1 - left / length:.2%}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of the reports' names")
    given = parser.parse_args(arguments)
    violations = 0
    reports = [path for path in given.folder.rglob("*") if path.name.endswith((".sqlite", ".json.gz"))]
    for path in sorted(reports):
        if given.only not in path.name:
            continue
        try:
            analysis = boundby.examine(path)
        except UserError as error:
            print(f"{path.name}: {error.message}")
            continue
        if not analysis.timeline.devices or not len(analysis.timeline.calls):
            print(f"{path.name}: nothing to replay")
            continue
        found = list(broken(analysis))
        violations += len(found)
        dropped = analysis.predictor.graph.contradictions
        counts = f"dropped: {dropped.streams} streams, {dropped.waits} waits, {dropped.launches} launches"
        for law, excess in analysis.predictor.broken.items():
            counts += f"; put right: {law} by {excess:.1%}"
        print(f"{path.name}: {'; '.join(found) or 'all kept'} ({counts})", flush=True)
    print(f"{violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
