"""The result of comparing two reports, and limits and whether they were kept, as plain frozen data. Renderers read it
and do no arithmetic on traces.

Times are nanoseconds. ``before`` and ``after`` are totals of a run; what is called ``each`` is per instance, so that
runs with different counts can be set side by side.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from boundby.results.report import Finding, Verdict, Viewed
from boundby.results.saved import LATER, Flat, Least, OneOf, RegionPath, Saved, Times, derived

# Limits and whether they were kept, as plain frozen data.


class Measured(Struct, frozen=True):
    """One value that a limit was held against."""

    subject: Annotated[str, "Region or device; empty: the whole."]  # "step/loss", "GPU 0"
    value: Annotated[float | None, "null: it is not known."]
    kept: Annotated[bool, "Whether this one kept the limit."]


class LimitResult(Struct, frozen=True):
    """One limit."""

    limit: Annotated[str, "As written."]
    kept: Annotated[bool, "Whether it was kept."]
    unit: Annotated[str, OneOf(("ns", "fraction", "count", "per_ms", "bytes")), "Of the measured values."]
    message: Annotated[str, "What was measured, in a sentence."]
    measured: Annotated[tuple[Measured, ...], "The values it was compared with."] = ()
    reason: Annotated[str, "Why the limit is there, in its author's words."] = ""
    skipped: Annotated[bool, "Optional, and nothing to hold it against."] = False
    untold: Annotated[bool, "Neither kept nor broken: what was recorded does not tell."] = False


class GateResult(Saved, Struct, frozen=True):
    """All limits of one check."""

    kind: ClassVar[str] = "check"
    written_by: ClassVar[str] = "boundby check REPORT --json"
    names_tool: ClassVar[bool] = False

    subject: Annotated[str, "What was checked: of a comparison, the later report."]
    limits: Annotated[tuple[LimitResult, ...], "One entry a limit."]

    @property
    @derived(after="subject")
    def passed(self) -> bool:
        """Whether every limit was kept."""
        return all(result.kept for result in self.limits)

    @property
    def broken(self) -> tuple[LimitResult, ...]:
        return tuple(result for result in self.limits if not result.kept and not result.untold)

    @property
    def untold(self) -> tuple[LimitResult, ...]:
        """Limits of which nothing can be said."""
        return tuple(result for result in self.limits if result.untold)


#: What a test of instances can say. ``faster`` and ``slower`` are significant and large enough to matter.
SIGNIFICANCE = ("faster", "slower", "same", "too_few", "not_tested")


class Side(Struct, frozen=True):
    """One of the two runs."""

    path: Annotated[str, "The report's file."]
    command: Annotated[str | None, "What ran."]
    gpus: Annotated[tuple[str, ...], "Names of the GPUs that did work."]
    nsys_version: Annotated[str | None, "The nsys that recorded it; null: not on record."]
    window: Annotated[str, "The window that was analysed."]
    total_ns: Annotated[int, "All devices' windows; threads' time without GPU work."]
    found_high: Annotated[int, "Findings of high severity."]
    run_ns: Annotated[
        int | None, LATER, "The whole run, with what lies before and after the window; null: not on record."
    ] = None


class Doubt(Struct, frozen=True):
    """Why the two may not be comparable."""

    code: Annotated[str, "A stable slug."]
    message: Annotated[str, "A sentence."]


class Significance(Struct, frozen=True):
    """Whether the typical instance changed, judged by how much instances of each run differ among themselves."""

    status: Annotated[str, OneOf(SIGNIFICANCE), "faster and slower are significant."]
    series: Annotated[str, "host or projected: which durations were tested; empty: none."] = ""
    instances_before: Annotated[int, "Durations tested."] = 0
    instances_after: Annotated[int, "Durations tested."] = 0
    median_before_ns: Annotated[float | None, "Median."] = None
    median_after_ns: Annotated[float | None, "Median."] = None
    change: Annotated[float | None, "Of the median: -0.25 is a quarter less."] = None
    change_low: Annotated[float | None, "Lower end of the 95 % confidence interval of the change."] = None
    change_high: Annotated[float | None, "Upper end."] = None
    p_value: Annotated[float | None, "Two-sided, adjusted for the number of regions tested."] = None
    reason: Annotated[str, "Why nothing was tested, or why it is no more than same."] = ""

    @property
    def is_change(self) -> bool:
        return self.status in ("faster", "slower")


class Account(Struct, frozen=True, kw_only=True):
    """One run's half of a device or region: its account, how often it ran, its verdict."""

    name: Annotated[str, "Device, or the region's last name."]  # "GPU 0", "Host"
    path: Annotated[RegionPath, "Path of a region."] = ()
    instances: Annotated[float, "How often it ran; of a device, how many steps it took (1 where they are the same)."]
    total_ns: Annotated[int, "The account's time of all instances."]
    time: Annotated[Times, "Nanoseconds of every cause, of all instances."]
    host_ns: Annotated[int, "Host time of all instances."] = 0
    sync_count: Annotated[int, "Blocking syncs."] = 0
    verdict: Annotated[Verdict, Flat(("bound", "waits_for", "mixed_of", "confidence", "saving_ns"))]

    @property
    @derived(after="total_ns")
    def each_ns(self) -> float:
        """The account's time per instance."""
        return self.total_ns / self.instances if self.instances else 0.0

    def each_of(self, cause: str) -> float:
        """One cause's time per instance."""
        return self.time.get(cause, 0) / self.instances if self.instances else 0.0


class DeviceChange(Struct, frozen=True):
    """A device (or the host's threads together, without GPU work) in both runs; one of the two can be missing."""

    before: Annotated[Account | None, "In the earlier run; null where it is only in the other."]
    after: Annotated[Account | None, "In the later run; null where it is only in the other."]
    is_per_step: Annotated[
        bool, "Whether instances of the accounts are steps, since the runs took different numbers of them."
    ] = False
    gpu_utilization_before: Annotated[float | None, "Busy part of the earlier window."] = None
    gpu_utilization_after: Annotated[float | None, "Busy part of the later window."] = None
    why_not: Annotated[str | None, LATER, "Why the two cannot be set side by side; null: they can."] = None

    @property
    @derived(after="is_per_step")
    def change(self) -> float | None:
        """Change of each_ns; null where that cannot be told."""
        return None if self.why_not is not None else _change(self.before, self.after)


class RegionChange(Struct, frozen=True):
    """A region in both runs, or only in one (the other is None)."""

    before: Annotated[Account | None, "In the earlier run; null where it is only in the other."]
    after: Annotated[Account | None, "In the later run; null where it is only in the other."]
    domain: Annotated[str, "NVTX domain."]
    matched_by: Annotated[str | None, OneOf(("path", "similar")), "How it was matched; null: only in one report."]
    similarity: Annotated[float, "1 where nothing on the path was renamed."]
    significance: Significance
    why_not: Annotated[str | None, LATER, "Why its times cannot be set side by side; null: they can."] = None

    @property
    def path(self) -> tuple[str, ...]:
        """Where it is now, else where it was."""
        account = self.after or self.before
        return account.path if account else ()

    @property
    @derived(after="similarity")
    def change(self) -> float | None:
        """Change of each_ns: the account's mean time per instance; null where there is nothing to set it against, or
        where it cannot be told."""
        return None if self.why_not is not None else _change(self.before, self.after)


class FindingChange(Struct, frozen=True, kw_only=True):
    """What became of a finding: the later one where it remains.

    ``measured_ns`` is the whole change of the region (or the window). To the finding's credit is no more than
    ``cause_ns``, the change of the ``cause`` that its remedy takes away, shared by all ``together``.
    """

    status: Annotated[
        str,
        OneOf(("new", "resolved", "remains", "unchecked")),
        "unchecked: the later report lacks the data of its rule.",
    ]
    finding: Annotated[Finding, Flat(("rule", "severity", "title", "region"))]
    saving_before_ns: Annotated[tuple[int, int] | None, "What it promised before: low, high."] = None
    saving_after_ns: Annotated[tuple[int, int] | None, "What it promises now: low, high."] = None
    measured_ns: Annotated[
        int | None,
        "Resolved: by how much its region (or the window) became shorter, for as many instances as before.",
    ] = None
    is_region_gone: Annotated[bool, "Resolved only in that its region is not there any more."] = False
    title_before: Annotated[str | None, "Remains: what was found before."] = None
    region_before: Annotated[RegionPath | None, "Remains: path of its region before."] = None
    trend: Annotated[
        str | None,
        OneOf(("improved", "worse")),
        "Remains: where what it can save (else what it costs) changed by a quarter or more; worse only where it costs"
        " more as well.",
    ] = None
    is_cost_alike: Annotated[
        bool,
        LATER,
        "Remains: it would save more by a quarter or more, and takes about as long as before (others are gone)."
        " New: its cause took about as long there before.",
    ] = False
    cause: Annotated[str | None, "Resolved: the cause that the rule's remedy takes away."] = None
    cause_ns: Annotated[
        int | None, "Resolved: by how much that cause became shorter there, for as many instances as before."
    ] = None
    together: Annotated[int, Least(1), "Resolved: how many findings share measured_ns and cause_ns."] = 1


class Prediction(Struct, frozen=True):
    """A prediction made on the earlier run, set against what the later run measured."""

    subject: Annotated[str, "GPU or region."]
    scenario: Annotated[str, "Scenario id."]
    causes: Annotated[tuple[str, ...], "What the scenario takes away."]
    baseline_ns: Annotated[float, "Measured before, per step where is_per_step."]
    predicted_ns: Annotated[float, "Predicted with all of the cause gone."]
    removed: Annotated[float, "The part of the cause that is gone."]
    expected_ns: Annotated[float, "The prediction for that part: baseline - removed * (baseline - predicted)."]
    measured_ns: Annotated[float, "Measured after."]
    also: Annotated[
        tuple[str, ...], "Other causes that changed by much: then the error is not the prediction's alone."
    ] = ()

    @property
    @derived(after="also")
    def error(self) -> float:
        """Of expected_ns against measured_ns."""
        return (self.expected_ns - self.measured_ns) / self.measured_ns if self.measured_ns else 0.0


class Comparison(Saved, Viewed, Struct, frozen=True, kw_only=True):
    """What changed between two runs. ``boundby.compare_runs`` returns it; every format is made from it."""

    kind: ClassVar[str] = "comparison"
    written_by: ClassVar[str] = "boundby compare BEFORE AFTER --format json -o result.json"

    before: Annotated[Side, "The earlier run."]
    after: Annotated[Side, "The later run."]
    doubts: Annotated[tuple[Doubt, ...], "Why the two may not be comparable."] = ()
    steps: Annotated[RegionPath | None, "Path of the region taken as the program's step, in the later report."] = None
    devices: Annotated[
        tuple[DeviceChange, ...], "Each device in both runs; without GPU work the host's threads together."
    ]
    regions: Annotated[
        tuple[RegionChange, ...],
        "Every region of either report, depth first as in the later one, those that are gone last.",
    ]
    findings: Annotated[tuple[FindingChange, ...], "What became of findings."] = ()
    outside: Annotated[
        RegionChange | None,
        LATER,
        "What no range owns, as if it were a region; per step where devices are. Null where neither has ranges.",
    ] = None
    predictions: Annotated[
        tuple[Prediction, ...], "Predictions made on the earlier run, set against what the later one measured."
    ] = ()

    def __repr__(self) -> str:
        changes = ", ".join(f"{device.change:+.1%}" for device in self.devices if device.change is not None)
        return f"<boundby.Comparison of {self.before.path} and {self.after.path}: {changes or 'not comparable'}>"

    @property
    def is_one_program(self) -> bool:
        """False where neither the command nor any region is the same, or nothing at all: then nothing became faster or
        slower."""
        codes = {doubt.code for doubt in self.doubts}
        matched = any(item.path and item.before is not None and item.after is not None for item in self.regions)
        return "program" not in codes and (matched or "command" not in codes)


def _change(before: Account | None, after: Account | None) -> float | None:
    if before is None or after is None or not before.each_ns:
        return None
    return after.each_ns / before.each_ns - 1
