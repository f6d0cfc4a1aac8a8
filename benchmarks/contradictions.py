"""Contradictions within one report, which nobody needs to know the truth to see.

    python -m benchmarks.contradictions FILE_OR_FOLDER ...

Each law holds of any report: a part saves no more than its whole, the best is the best, what is not sure is told as a
range, and nothing that stands on one screen denies another thing there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import boundby
from boundby.document import sentences
from boundby.model.causes import BUSY_CAUSES, Cause
from boundby.model.errors import UserError
from boundby.model.scenarios import SCENARIO_OF_CAUSE, SCENARIOS
from boundby.render import terminal
from boundby.replay.uncertainty import summed
from boundby.results.report import DeviceReport, Report, WhatIf
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
    yield from _best(report)
    yield from _sure(report)
    yield from _sums(report)
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
        limits.append(max([item.baseline_ns - (item.low_ns or item.predicted_ns), *after_waits]))
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
            causes = of_rule or _OF_SEVERAL.get(response.id) or frozenset((response.id.partition(".")[0],))
            yield from _part(report, f"response {response.id}", (response.saving_ns or (0, 0))[1], causes)
    saving_of = {region.path: region.verdict.saving_ns or 0 for region in report.regions}
    for path, saving in saving_of.items():
        if window and path and saving > max((d.window_ns for d in report.devices), default=0):
            yield f"region {'/'.join(path)}: saves {saving / window:.0%} of the window"


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
        is_saturated = verdict.bound in _BUSY
        if not is_saturated and saved.get(best, 0) > saved.get(verdict.bound, 0) + 3 * NEAR * window:
            yield f"GPU {device.id}: {verdict.bound} bound, but without {best} more is saved"


def _sure(report: Report) -> Iterator[str]:
    for device in report.devices:
        left = sentences.left(report, device)
        told = sentences.outlook(device.verdict, device.window_ns, left)
        item = left.get(device.verdict.bound)
        if item is not None and sentences.is_wide(item) and " about " in told:
            yield f"GPU {device.id}: one number is told of a prediction that is a range: {told}"
    is_unknown = bool(report.devices) and all(device.verdict.bound == "unknown" for device in report.devices)
    for finding in report.findings:
        if is_unknown and finding.severity == "high" and not (finding.saving_ns or (0, 0))[0]:
            yield f"finding {finding.id} is high in time that the verdict calls unknown"


def _sums(report: Report) -> Iterator[str]:
    """What is uncertain adds up to the range, and the range holds its number."""
    for item in report.what_if:
        ends = summed(item.predicted_ns, item.uncertainties)[:2]
        if ends != (item.low_ns, item.high_ns):
            yield f"GPU {item.device}: {item.scenario} is {item.low_ns} to {item.high_ns}, its uncertainties say {ends}"
        if not (item.low_ns or 0) <= item.predicted_ns <= (item.high_ns or 0) <= item.baseline_ns:
            yield f"GPU {item.device}: {item.scenario} of {item.baseline_ns} is not in its range"


def _screen(report: Report) -> Iterator[str]:
    screen = " ".join(terminal.render(report, width=100).split())
    for device in report.devices:
        first = device.first_responses[:1]
        high = max((response.saving_ns[1] for response in first if response.saving_ns), default=0)
        if high >= WORTH * device.window_ns and "a change that would save 1 %" in screen:
            yield f"GPU {device.id}: First saves up to {high / device.window_ns:.0%} above 'none would save 1 %'"
        parts = [item for item in _predictions(report, device).values() if len(SCENARIOS[item.scenario].causes) == 1]
        whole = _predictions(report, device).get("infinite_host")
        for item in parts:
            is_host = whole is not None and set(SCENARIOS[item.scenario].causes) <= set(
                SCENARIOS["infinite_host"].causes
            )
            if is_host and whole is not None and item.predicted_ns < whole.predicted_ns:
                yield f"GPU {device.id}: {item.scenario} saves more than infinite_host"


def main(arguments: Sequence[str] | None = None) -> int:
    found = files = 0
    for argument in sys.argv[1:] if arguments is None else arguments:
        path = Path(argument)
        every = sorted([*path.rglob("*.sqlite"), *path.rglob("*.json.gz")]) if path.is_dir() else [path]
        for file in every:
            try:
                report = boundby.analyze(file)
            except UserError:
                continue
            files += 1
            broken = list(contradictions(report))
            found += bool(broken)
            for sentence in broken:
                print(f"{file.name}: {sentence}", flush=True)
    print(f"{found} of {files} reports contradict themselves")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
