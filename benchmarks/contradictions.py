"""Contradictions within one report, which nobody needs to know the truth to see.

    python -m benchmarks.contradictions FILE_OR_FOLDER ... [--simulated 500] [--damaged 500 --folder FOLDER] [--pages]

Each law holds of any report: a part saves no more than its whole, the best is the best, what is not sure is told as a
range, and nothing that stands on one screen denies another thing there.
"""

from __future__ import annotations

import re
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import unescape
from itertools import pairwise
from pathlib import Path

import boundby
from benchmarks import damage
from benchmarks.simulated.generate import generate
from boundby.api import Analysis
from boundby.claims.findings import rank
from boundby.claims.laws import Claim, of_advice, of_verdict
from boundby.document import sentences, view
from boundby.model import units
from boundby.model.causes import BUSY_CAUSES, NOUN, SCENARIO_OF_CAUSE, SCENARIOS, Cause
from boundby.model.errors import UserError
from boundby.render import markdown, page, terminal
from boundby.replay.trust import summed
from boundby.results.report import DeviceReport, RegionReport, Report, WhatIf
from boundby.rules import remedies
from boundby.rules.builtin import builtin

#: Two figures closer than this part of the window are the same for a reader.
NEAR = 0.01
#: A saving is worth a word from this part of the window on.
WORTH = 0.01
#: A cause with less of the account is no verdict (DESIGN 4).
LEAST_SHARE = 0.05
#: Responses that remove more than their pattern's cause.
_OF_SEVERAL = {"sync.one-side": frozenset(("sync", "cpu"))}
_BUSY = {cause.key for cause in BUSY_CAUSES}


def contradictions(report: Report) -> Iterator[str]:
    """Each broken law, as a sentence."""
    yield from _parts(report)
    yield from _shares(report)
    yield from _best(report)
    yield from _sure(report)
    yield from _sums(report)
    yield from _regions(report)
    yield from _cards(report)
    yield from _threads(report)
    yield from _verdicts(report)
    yield from _devices(report)
    yield from _told(report)
    yield from _screen(report)


def _predictions(report: Report, device: DeviceReport) -> dict[str, WhatIf]:
    return {item.scenario: item for item in report.what_if if item.device == device.id}


def most_saved(report: Report, cause: str) -> int | None:
    """The most that removing a cause everywhere saves on any device, at the far end of its range; None: no telling."""
    limits = []
    for device in report.devices:
        item = _predictions(report, device).get(SCENARIO_OF_CAUSE.get(cause, ""))
        if item is None:
            return None
        after_waits = [saving.saving_ns for saving in device.verdict.savings if saving.cause == cause]
        least_ns = item.predicted_ns if item.low_ns is None else item.low_ns
        limits.append(max([item.baseline_ns - least_ns, *after_waits]))
    return max(limits, default=None)


def _parts(report: Report) -> Iterator[str]:
    window = max((device.window_ns for device in report.devices), default=0)
    causes_of_rule = {rule.id: rule.takes for rule in builtin()}
    for finding in report.findings:
        low, high = finding.saving_ns or (0, 0)
        if low > high or (window and high > window):
            yield f"finding {finding.id}: saves {low} to {high} of {window}"
        yield from _part(report, f"finding {finding.id}", high, causes_of_rule.get(finding.rule, frozenset()))
    for device in report.devices:
        for response in device.first_responses:
            of_rule = causes_of_rule.get(response.command.removeprefix("boundby explain "), frozenset())
            causes = of_rule or _OF_SEVERAL.get(response.id) or _of_scenario(response.id)
            yield from _part(report, f"response {response.id}", (response.saving_ns or (0, 0))[1], causes)
    saving_of = {region.path: region.verdict.saving_ns or 0 for region in report.regions}
    for path, saving in saving_of.items():
        if window and path and saving > max((d.window_ns for d in report.devices), default=0):
            yield f"region {'/'.join(path)}: saves {saving / window:.0%} of the window"


def _of_scenario(response: str) -> frozenset[str]:
    """What a response takes away by the scenario of its remedy; else it is of the kind of its verdict."""
    remedy = remedies.by_key().get(response)
    parts = remedy.scenario.split("+") if remedy is not None and remedy.scenario else []
    if parts and all(part in SCENARIOS for part in parts):
        return frozenset(cause for part in parts for cause in SCENARIOS[part].causes)
    return frozenset((response.partition(".")[0],))


def _shares(report: Report) -> Iterator[str]:
    """A share of the window is that of the time beside it."""
    if len(report.devices) != 1:
        return  # several idle side by side, each for a thread of its own
    for finding in report.findings:
        idle_ns, share = (finding.evidence.get(key) for key in ("idle_ns", "share_of_window_fraction"))
        if isinstance(idle_ns, int) and isinstance(share, float):
            is_share = idle_ns / report.devices[0].window_ns
            if abs(is_share - share) > NEAR:
                yield f"finding {finding.id}: {idle_ns} ns are told to be {share:.0%} of the window, not {is_share:.0%}"


def _part(report: Report, what: str, high_ns: int, causes: frozenset[str]) -> Iterator[str]:
    """Where a part saves more than all of the causes of which it takes time."""
    window = max((device.window_ns for device in report.devices), default=0)
    wholes = [whole for cause in sorted(causes) if (whole := most_saved(report, cause)) is not None]
    if wholes and len(wholes) == len(causes) and high_ns > sum(wholes) + NEAR * window:
        told = f"all of {' and '.join(sorted(causes))} {sum(wholes) / window:.0%}"
        yield f"{what}: saves up to {high_ns / window:.0%}, {told}"


def _best(report: Report) -> Iterator[str]:
    for device in report.devices:
        verdict, predicted = device.verdict, _predictions(report, device)
        window = device.window_ns
        if verdict.bound not in Cause.__members__.keys() | {cause.key for cause in Cause} or not window:
            continue
        own = device.time.get(verdict.bound, 0)
        if verdict.bound == "sync":
            own += device.exposed_by_waits_ns or 0
        elif verdict.bound not in _BUSY:  # what stays idle without the waits, something else of the host holds up
            own += max(device.time["sync"] - (device.exposed_by_waits_ns or 0), 0)
        if verdict.bound == "cpu" and "another thread" in verdict.because:
            own += device.time["host_blocked"]  # what the launching thread waits for is another's work
        if own < LEAST_SHARE * window:
            yield f"GPU {device.id}: {verdict.bound} bound, of which the account has {own / window:.1%}"
        if verdict.bound == "sync" or verdict.decided_by != "replay":
            continue
        saved = {
            cause: predicted[key].baseline_ns - predicted[key].predicted_ns
            for cause, key in SCENARIO_OF_CAUSE.items()
            if key in predicted and cause != "sync"
        }
        best = max(saved, key=lambda cause: saved[cause], default=verdict.bound)
        is_told = any(one.kind == "waits-stay" for one in verdict.uncertainties)
        more_ns = saved.get(best, 0) - saved.get(verdict.bound, 0)
        if verdict.bound not in _BUSY and not is_told and more_ns > 3 * NEAR * window:
            yield f"GPU {device.id}: {verdict.bound} bound, but without {best} more is saved"


def _sure(report: Report) -> Iterator[str]:
    for device in report.devices:
        left = sentences.left(report, device)
        told = sentences.outlook(device.verdict, device.window_ns, left)
        item = left.get(device.verdict.bound)
        if item is not None and item.is_wide and " about " in told:
            yield f"GPU {device.id}: one number is told of a prediction that is a range: {told}"
    is_unknown = bool(report.devices) and all(device.verdict.bound == "unknown" for device in report.devices)
    for finding in report.findings:
        if is_unknown and finding.severity == "high" and not (finding.saving_ns or (0, 0))[0]:
            yield f"finding {finding.id} is high in time that the verdict calls unknown"


def _sums(report: Report) -> Iterator[str]:
    """What is told in parts adds up to what is told of the whole."""
    for device in report.devices:
        name, window, time = f"GPU {device.id}", device.window_ns, device.time
        busy_ns = sum(time[cause] for cause in _BUSY)
        work_ns = device.kernels.total_ns + (device.graphs.total_ns if device.graphs else 0)
        told = {
            "the account": (sum(time.values()), window),
            "busy and idle": (device.busy_ns + device.idle_ns, window),
            "work in the account": (busy_ns, device.busy_ns),
            "gaps": (device.gaps.total_ns, device.idle_ns),
        }
        yield from (
            f"{name}: {what} is {is_ns} ns, the whole {all_ns}"
            for what, (is_ns, all_ns) in told.items()
            if is_ns != all_ns
        )
        most = {
            "the longest gap": (device.gaps.longest_ns, device.gaps.total_ns),
            "compute": (time["gpu_compute"], work_ns),
            "waits for a core": (device.preempted_ns, time["cpu"]),
            "top kernels": (sum(top.total_ns for top in device.kernels.top), work_ns),
            "the host's own time": (device.host_active_ns or 0, window),
        }
        yield from (
            f"{name}: {what} takes {is_ns} ns of {all_ns}" for what, (is_ns, all_ns) in most.items() if is_ns > all_ns
        )
    for item in report.what_if:
        ends = summed(item.predicted_ns, item.uncertainties)[:2]
        if ends != (item.low_ns, item.high_ns):
            yield f"GPU {item.device}: {item.scenario} is {item.low_ns} to {item.high_ns}, its uncertainties say {ends}"
        if not (item.low_ns or 0) <= item.predicted_ns <= (item.high_ns or 0) <= item.baseline_ns:
            yield f"GPU {item.device}: {item.scenario} of {item.baseline_ns} is not in its range"


def _regions(report: Report) -> Iterator[str]:
    """A region is a part of the one around it, and the root is the devices; what hides behind other work saves nothing,
    and no instance takes longer on a device than the device's window."""
    by_path = {region.path: region for region in report.regions}
    root = by_path.get(())
    is_replayed = not report.devices or any(device.verdict.decided_by == "replay" for device in report.devices)
    idle = {cause.key: sum(device.time[cause.key] for device in report.devices) for cause in Cause}
    window = max((device.window_ns for device in report.devices), default=0)
    names = {path: "/".join(path) or "the root" for path in by_path}
    for path, region in by_path.items():
        name, outer = names[path], names.get(path[:-1], "")
        around = by_path.get(path[:-1]) if path else None
        if around is not None and around.domain == region.domain:
            more = [cause for cause, ns in region.time.items() if ns > around.time[cause]]
            yield from (f"{name}: more {cause} than in {outer}" for cause in more)
            if (region.max_saving_ns or 0) > (around.max_saving_ns or 0) and around.max_saving_ns is not None:
                yield f"{name}: saves {region.max_saving_ns} ns, {outer} {around.max_saving_ns}"
        if path and region.max_saving_ns is not None:
            most_ns = max((claim.most_ns for claim in _claims_of(region, report)), default=0)
            if not most_ns <= region.max_saving_ns <= region.longest_ns:
                yield f"{name}: up to {region.max_saving_ns} ns, claims {most_ns}, takes {region.longest_ns}"
        for one in region.verdict.savings if path and not is_replayed else ():
            if one.cause not in _BUSY and one.saving_ns > (all_ns := idle.get(one.cause, 0) + idle["device_wait"]):
                yield f"{name}: {one.cause} saves {one.saving_ns} ns, no device is replayed and all idle {all_ns}"
        if path and region.verdict.bound == "hidden" and region.max_saving_ns:
            yield f"{name}: hidden behind other work, and saves up to {region.max_saving_ns} ns"
        if path and window and region.total_ns and sentences.each_ns(region) > window:
            yield f"{name}: an instance takes {sentences.each_ns(region) / window:.0%} of the window"
        for what, ns in (("saves", region.verdict.saving_ns), ("saves up to", region.max_saving_ns)):
            if window and (ns or 0) > window:
                yield f"{name}: {what} {(ns or 0) / window:.0%} of the window"
        if any(ns > region.time[cause] for cause, ns in region.time_exclusive.items()):
            yield f"{name}: more of its own than with all that it holds"
    if root is not None and report.devices:
        for cause in root.time:
            if (of_root := root.time[cause]) != (of_all := sum(device.time[cause] for device in report.devices)):
                yield f"the root has {of_root} ns of {cause}, the devices {of_all}"
        if len(report.devices) == 1 and root.verdict.bound != report.devices[0].verdict.bound:
            yield f"the root is {root.verdict.bound} bound, its only device {report.devices[0].verdict.bound}"


def _threads(report: Report) -> Iterator[str]:
    """What is told of a thread saves no more than all of its time."""
    for thread in report.threads:
        for response in thread.first_responses:
            if (response.saving_ns or (0, 0))[1] > thread.total_ns:
                yield f"thread {thread.tid} of {thread.total_ns} ns: {response.id} saves {response.saving_ns}"


def _cards(report: Report) -> Iterator[str]:
    """What a finding says of a region, its card says."""
    for region in report.regions:
        for response in region.first_responses:
            same = [item for item in report.findings if item.remedy == response.id and item.region and item.saving_ns]
            inside = [item for item in same if (item.region or ())[: len(region.path)] == region.path]
            most_ns = max((ns[1] for item in inside if (ns := item.saving_ns)), default=0)
            if most_ns and response.saving_ns == (0, 0):
                yield f"{'/'.join(region.path)}: {response.id} saves nothing, and up to {most_ns} ns in the findings"


def _claims_of(region: RegionReport, report: Report) -> list[Claim]:
    advice = of_advice((item for item in report.findings if item.region == region.path), [region])
    return [*of_verdict(region.verdict), *advice]


def _verdicts(report: Report) -> Iterator[str]:
    """A verdict agrees with itself."""
    subjects = [(f"GPU {device.id}", device.verdict) for device in report.devices]
    subjects += [("/".join(region.path) or "the root", region.verdict) for region in report.regions]
    for name, verdict in subjects:
        saved = [saving.saving_ns for saving in verdict.savings]
        if saved != sorted(saved, reverse=True):
            yield f"{name}: savings are not ranked"
        if verdict.reasons != tuple(one.sentence for one in verdict.uncertainties):
            yield f"{name}: its reasons are not its uncertainties"
        if (verdict.confidence == "high") == bool(verdict.reasons):
            yield f"{name}: confidence {verdict.confidence} for {len(verdict.reasons)} reasons"
        if verdict.why_not is not None and (verdict.bound != "unknown" or verdict.saving_ns is not None):
            yield f"{name}: cannot be told, and is {verdict.bound} bound"
        if verdict.runner_up is not None and verdict.runner_up == verdict.bound:
            yield f"{name}: {verdict.bound} comes second to itself"
        low, high = verdict.saving_range_ns or (0, 0)
        if (
            verdict.saving_range_ns is not None
            and verdict.saving_ns is not None
            and not low <= verdict.saving_ns <= high
        ):
            yield f"{name}: saves {verdict.saving_ns} ns, at least {low} and at most {high}"
        if verdict.mixed_of and not set(verdict.mixed_of) <= {saving.cause for saving in verdict.savings}:
            yield f"{name}: mixed of causes that save nothing"


def _devices(report: Report) -> Iterator[str]:
    """What is told of a device in two places is the same."""
    for device in report.devices:
        name, window, predicted = f"GPU {device.id}", device.window_ns, _predictions(report, device)
        alone = predicted.get(SCENARIO_OF_CAUSE.get(device.verdict.bound, ""))
        without_ns = device.verdict.without_ns
        if alone is not None and without_ns is not None and alone.predicted_ns != without_ns:
            yield f"{name}: without {device.verdict.bound} {without_ns} ns, by what-if {alone.predicted_ns}"
        for response in device.first_responses:
            low, high = response.saving_ns or (0, 0)
            if not 0 <= low <= high <= max(one.window_ns for one in report.devices):
                yield f"{name}: response {response.id} saves {low} to {high} ns of {window}"
        if sum(part.ns for part in device.one_time) > window:
            yield f"{name}: what happens once takes longer than the window"
        for span in (phase.window for phase in device.phases):
            if span.start_ns < device.window.start_ns or span.end_ns > device.window.end_ns:
                yield f"{name}: a phase lies outside of the window"
        fractions = (
            device.coverage.launches_recorded_fraction,
            device.coverage.host_state_fraction,
            device.gpu_utilization,
        )
        if any(not 0 <= fraction <= 1 for fraction in fractions if fraction is not None):
            yield f"{name}: more than all of it is on record"
    order = [
        finding.saving_ns[1] if finding.saving_ns else 0 for finding in report.findings if finding.severity != "note"
    ]
    if any(
        one.severity != "note" and two.severity != "note" and rank(one) > rank(two)
        for one, two in pairwise(report.findings)
    ):
        yield f"findings are not ranked: {order}"


#: Sentences on a screen, and the numbers in them.
_THESE = re.compile(r"these ([\d.]+ [num]?s)")
_NEXT = re.compile(r"Removing ([\w -]+?) instead of [\w -]+? would save (?:up to )?([\d.]+(?:-[\d.]+)?|<1) %")
_LOW = "in the savings: low"
_MARKUP = re.compile(r"<[^>]+>")
#: Cells of a screen on which no sentence is cut.
WIDE = 200


def _told(report: Report) -> Iterator[str]:
    """What the screen says of a device is what its claims say."""
    for device, account in zip(report.devices, view.accounts(report), strict=False):
        name, window, predicted = f"GPU {device.id}", device.window_ns, sentences.left(report, device)
        most, doubts = account.most, " ".join(account.doubts)
        if any(length != units.duration(window) for length in _THESE.findall(most)):
            yield f"{name}: another window than {units.duration(window)}: {most}"
        item = predicted.get(device.verdict.bound)
        if (
            item is not None
            and most
            and item.confidence == "low"
            and device.verdict.confidence == "high"
            and _LOW not in doubts
        ):
            yield f"{name}: a low number under a high headline: {most}"
        if found := _NEXT.search(doubts):
            saved = {
                NOUN[cause]: one.baseline_ns - one.predicted_ns
                for cause, one in predicted.items()
                if cause != device.verdict.bound
            }
            best = max(saved, key=lambda cause: saved[cause], default="")
            if best and saved[best] > saved.get(found[1], 0) + NEAR * window:
                yield f"{name}: next best is {best}, not {found[1]}"
        if "as long" in most and item is not None and item.baseline_ns - item.predicted_ns >= WORTH * window:
            yield f"{name}: {most} though {units.duration(item.baseline_ns - item.predicted_ns)} would be saved"
        parts = [segment.ns for segment in account.parts]
        if sum(parts) != window:
            yield f"{name}: the bar holds {sum(parts)} ns of {window}"


def _pages(report: Report) -> Iterator[str]:
    """What removing the bound would save, and how sure that is, stands alike on screen, page and in Markdown."""
    texts = {
        "screen": terminal.render(report, width=WIDE),
        "page": _MARKUP.sub("", page.render(report)),
        "markdown": markdown.render(report).replace("\\", "").replace("**", ""),
    }
    flat = {name: "".join(unescape(text).split()) for name, text in texts.items()}
    members = view.accounts(report)
    for account in members if len(members) <= view.IN_FULL else ():  # more are told together
        for name, text in flat.items():
            if "".join(account.most.split()) not in text:
                yield f"{account.name}: the {name} does not say: {account.most}"


def _screen(report: Report) -> Iterator[str]:
    screen = " ".join(terminal.render(report, width=100).split())
    for device in report.devices:
        first = device.first_responses[:1]
        high = max((response.saving_ns[1] for response in first if response.saving_ns), default=0)
        if high >= WORTH * device.window_ns and "a change that would save 1 %" in screen:
            yield f"GPU {device.id}: First saves up to {high / device.window_ns:.0%} above 'none would save 1 %'"
        notes = " ".join(note for card in device.cards for note in card.notes)
        others = any(finding.rule.startswith("sync-") for finding in report.findings)  # other waits, which do cost
        if " nothing: the GPU works meanwhile" in notes and "removing syncs would save" in screen and not others:
            yield f"GPU {device.id}: waits cost nothing, and removing syncs is the next best"
        parts = [item for item in _predictions(report, device).values() if len(SCENARIOS[item.scenario].causes) == 1]
        whole = _predictions(report, device).get("infinite_host")
        for item in parts:
            is_host = whole is not None and set(SCENARIOS[item.scenario].causes) <= set(
                SCENARIOS["infinite_host"].causes
            )
            if is_host and whole is not None and item.predicted_ns < whole.predicted_ns:
                yield f"GPU {device.id}: {item.scenario} saves more than infinite_host"


def reports(arguments: Namespace) -> Iterator[tuple[str, Report]]:
    """Name and report of every trace, simulated program and damaged copy that was asked for."""
    for path in arguments.paths:
        for file in sorted([*path.rglob("*.sqlite"), *path.rglob("*.json.gz")]) if path.is_dir() else [path]:
            with suppress(UserError):
                yield file.name, boundby.analyze(file)
    with tempfile.TemporaryDirectory() as place:
        for seed in range(arguments.seed, arguments.seed + arguments.simulated):
            yield (
                f"simulated {seed}",
                boundby.analyze(generate(seed).export().write(Path(place) / "one.sqlite", "2023")),
            )
        sources = damage.Sources(arguments.folder, Path(place), max(arguments.damaged // 25, 40))
        number, done = arguments.seed * 1_000_000, 0
        while done < arguments.damaged:
            number += 1
            made = damage.damaged(sources, number, sorted(damage.DAMAGES))
            if made is not None:
                with suppress(UserError):
                    yield f"{made[0].kind} of {made[0].source} ({number})", Analysis(made[1].trace).report
                done += 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="*", help="traces, and folders of them")
    parser.add_argument("--simulated", type=int, default=0, help="so many simulated programs")
    parser.add_argument("--damaged", type=int, default=0, help="so many damaged copies")
    parser.add_argument("--folder", type=Path, help="of traces, some of which are damaged")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", action="store_true", help="hold the pages against the screens, too")
    given = parser.parse_args(arguments)
    found = every = 0
    for name, report in reports(given):
        every += 1
        broken = [*contradictions(report), *(_pages(report) if given.pages else ())]
        found += bool(broken)
        for sentence in broken:
            print(f"{name}: {sentence}", flush=True)
    print(f"{found} of {every} reports contradict themselves")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
