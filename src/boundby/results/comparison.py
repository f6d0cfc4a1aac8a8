"""The result of comparing two reports, as plain frozen data. Renderers read it and do no arithmetic on traces.

Times are nanoseconds. ``before`` and ``after`` are totals of a run; what is called ``each`` is per instance, so that
runs with different counts can be set side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boundby.results.report import Finding, Verdict

COMPARISON_VERSION = 1  # 1: first published form. Keys are stable; more may be added.

#: What a test of instances can say. ``faster`` and ``slower`` are significant and large enough to matter.
SIGNIFICANCE = ("faster", "slower", "same", "too_few", "not_tested")


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    path: str
    command: str | None
    gpus: tuple[str, ...]  # names of those that did work
    nsys_version: str | None
    window: str  # which one was chosen
    total_ns: int  # all devices' windows (threads' time, without GPU work)
    found_high: int  # findings of high severity


@dataclass(frozen=True)
class Doubt:
    """Why the two may not be comparable. ``code`` is a stable slug."""

    code: str
    message: str


@dataclass(frozen=True)
class Significance:
    """Whether the typical instance changed, judged by how much instances of each run differ among themselves."""

    status: str  # one of SIGNIFICANCE
    series: str = ""  # "host" or "projected": which durations were tested
    instances_before: int = 0  # durations tested
    instances_after: int = 0
    median_before_ns: float | None = None
    median_after_ns: float | None = None
    change: float | None = None  # of the median: -0.25 is a quarter less
    change_low: float | None = None  # 95 % confidence interval of the change
    change_high: float | None = None
    p_value: float | None = None  # two-sided, adjusted for the number of regions tested
    reason: str = ""  # why nothing was tested, or why it is no more than "same"

    @property
    def is_change(self) -> bool:
        return self.status in ("faster", "slower")


@dataclass(frozen=True)
class Account:
    """One run's half of a device or region: its account, how often it ran, its verdict."""

    name: str  # "GPU 0", "Host", or the region's last name
    path: tuple[str, ...]
    total_ns: int
    time: Mapping[str, int]
    instances: int
    verdict: Verdict
    host_ns: int = 0  # of all instances
    syncs: int = 0

    @property
    def each_ns(self) -> float:
        """The account's time per instance."""
        return self.total_ns / self.instances if self.instances else 0.0

    def each_of(self, cause: str) -> float:
        """One cause's time per instance."""
        return self.time.get(cause, 0) / self.instances if self.instances else 0.0


@dataclass(frozen=True)
class DeviceChange:
    """A device (or the host's threads together, without GPU work) in both runs; one of the two can be missing.

    ``steps_before`` and ``steps_after``: how often the steps ran where that differs, else None. Then times are set
    side by side per step, and ``instances`` of the accounts says so.
    """

    before: Account | None
    after: Account | None
    is_per_step: bool = False
    utilization_before: float | None = None
    utilization_after: float | None = None

    @property
    def change(self) -> float | None:
        return _change(self.before, self.after)


@dataclass(frozen=True)
class RegionChange:
    """A region in both runs, or only in one (the other is None)."""

    before: Account | None
    after: Account | None
    domain: str
    how: str  # "path" | "similar" | "" (not matched)
    similarity: float  # 1.0 where paths are the same
    significance: Significance

    @property
    def path(self) -> tuple[str, ...]:
        """Where it is now, else where it was."""
        found = self.after or self.before
        return found.path if found else ()

    @property
    def change(self) -> float | None:
        """Of the account's time per instance; None where there is nothing to set it against."""
        return _change(self.before, self.after)


@dataclass(frozen=True)
class FindingChange:
    """What became of a finding. ``unchecked``: the later run lacks the data of its rule.

    ``measured_ns`` is the whole change of the region (or the window). To the finding's credit is no more than
    ``cause_ns``, the change of the ``cause`` that its remedy takes away, shared by all ``together``.
    """

    status: str  # "resolved" | "new" | "remains" | "unchecked"
    finding: Finding  # the later one where it remains
    before_saving_ns: tuple[int, int] | None
    after_saving_ns: tuple[int, int] | None
    measured_ns: int | None = None  # resolved: by how much its region (or the window) became shorter
    is_region_gone: bool = False  # resolved only in that its region is not there any more
    was: Finding | None = None  # remains: the earlier one
    trend: str = (
        ""  # remains: "improved" or "worse" where what it can save, else what it costs, changed by a quarter or more
    )
    cause: str = ""  # resolved: the cause that its remedy takes away, where a rule has one
    cause_ns: int | None = None  # resolved: by how much that cause became shorter there
    together: int = 1  # resolved: findings whose credit these two figures are


@dataclass(frozen=True)
class Prediction:
    """A prediction made on the earlier run, set against what the later run measured.

    ``removed``: the part of the cause that is gone (1: all of it). ``expected_ns``: the prediction for that part,
    ``baseline - removed * (baseline - predicted)``. ``error``: of that against the measured time.
    """

    subject: str  # "GPU 0" or a region
    scenario: str
    causes: tuple[str, ...]
    baseline_ns: float
    predicted_ns: float
    removed: float
    expected_ns: float
    measured_ns: float
    also: tuple[str, ...] = ()  # other causes that changed by much: then the error is not the prediction's alone

    @property
    def error(self) -> float:
        return (self.expected_ns - self.measured_ns) / self.measured_ns if self.measured_ns else 0.0


@dataclass(frozen=True)
class Comparison:
    """Everything one comparison found. ``boundby.compare_runs`` returns it; every format is made from it."""

    before: Side
    after: Side
    devices: tuple[DeviceChange, ...]
    regions: tuple[RegionChange, ...]  # depth first as in the later report; those that are gone come last
    findings: tuple[FindingChange, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    steps: tuple[str, ...] | None = None  # the region taken as the program's steps

    @property
    def is_one_program(self) -> bool:
        """False where neither the command nor any region is the same: then nothing became faster or slower."""
        matched = any(item.path and item.before is not None and item.after is not None for item in self.regions)
        return matched or not any(doubt.code == "command" for doubt in self.doubts)

    def to_dict(self) -> dict[str, object]:
        """The JSON form as plain dicts and lists."""
        from boundby.render.comparison.json import to_dict

        return to_dict(self)

    def _repr_html_(self) -> str:
        from boundby.render.comparison.html import fragment

        return fragment(self)


def _change(before: Account | None, after: Account | None) -> float | None:
    if before is None or after is None or not before.each_ns:
        return None
    return after.each_ns / before.each_ns - 1
