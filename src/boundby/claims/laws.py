"""The list of claims and the laws that they obey: whatever says that a change would save time says it here first, and
is narrowed to what its whole saves, or withdrawn.

A claim is a change, where it is made, the causes of which it takes time, and a saving from low to high. Its whole is
what is saved where these causes are gone everywhere. A part saves no more than its whole, at either end; nothing takes
time that is unattributed; nothing in a region saves more than the region; devices run side by side, so that of several
the one that saves most counts. What a region saves at most, and what a comparison holds against a later run, is read
off the claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from boundby.model.causes import BUSY_CAUSES, REMOVABLE, SCENARIO_OF_CAUSE, SCENARIOS
from boundby.results.report import DeviceReport, Finding, RegionReport, Verdict, WhatIf

_REMOVABLE = tuple(cause.key for cause in REMOVABLE)
_BUSY = frozenset(cause.key for cause in BUSY_CAUSES)
_UNTOLD = {"hidden", *_BUSY}

Path = tuple[str, ...]


class ClaimedSaving(NamedTuple):
    """Nanoseconds that a change would save, at least and at most."""

    low_ns: int
    high_ns: int

    def within(self, whole: ClaimedSaving) -> ClaimedSaving:
        """As much of it as a part of that may save."""
        high_ns = min(self.high_ns, whole.high_ns)
        return ClaimedSaving(min(self.low_ns, whole.low_ns, high_ns), high_ns)


class Claim(Struct, frozen=True):
    """One change and what it would save. ``causes``: of which it takes time; empty: nobody says of which."""

    change: str  # a cause that is gone, a scenario, a rule's or a pattern's advice
    causes: frozenset[str]
    saving: ClaimedSaving
    region: Path | None = None  # where it is made; None: everywhere
    device: int | None = None  # by its id: whose window becomes shorter; None: that of which it saves most
    told_ns: int | None = None  # the one number of a replay, inside of its range
    basis: str = ""  # replay, account; empty: whatever found it

    @property
    def most_ns(self) -> int:
        """The one number of a replay; of advice, which has none, the high end."""
        return self.saving.high_ns if self.told_ns is None else self.told_ns


def without(cause: str, saving_ns: int, basis: str, region: Path | None = None, device: int | None = None) -> Claim:
    """The claim of one cause that is gone."""
    return Claim(cause, frozenset((cause,)), ClaimedSaving(saving_ns, saving_ns), region, device, basis=basis)


def of_verdict(verdict: Verdict, region: Path | None = None, device: int | None = None) -> list[Claim]:
    """What a verdict says of every cause, best first: as the program ran without waits, once it no longer waits without
    others."""
    return [without(saving.cause, saving.saving_ns, verdict.decided_by, region, device) for saving in verdict.savings]


def of_what_if(what_if: Iterable[WhatIf]) -> list[Claim]:
    """What predictions say of named scenarios, each of the program as it ran."""
    return [
        Claim(
            item.scenario,
            frozenset(SCENARIOS[item.scenario].causes),
            ClaimedSaving(*(max(ns, 0) for ns in item.saving_ns)),
            device=item.device,
            told_ns=item.saved_ns,
            basis="replay",
        )
        for item in what_if
        if item.scenario in SCENARIOS
    ]


def of_advice(findings: Iterable[Finding], regions: Iterable[RegionReport]) -> list[Claim]:
    """What findings and first responses promise in a region."""
    promises = [(item.rule, item.region, item.saving_ns) for item in findings if item.severity != "note"]
    promises += [(item.id, region.path, item.saving_ns) for region in regions for item in region.first_responses]
    return [Claim(change, frozenset(), ClaimedSaving(*ns), region) for change, region, ns in promises if region and ns]


def of_what_lies_in(
    regions: Iterable[RegionReport], devices: Sequence[DeviceReport], what_if: Iterable[WhatIf]
) -> list[Claim]:
    """What removing the bound everywhere saves, less what the rest of the window takes, is saved in the region. Of
    several devices no region has a window of its own."""
    if len(devices) != 1:
        return []
    (device,) = devices
    bounds = {SCENARIO_OF_CAUSE.get(cause) for cause in (device.verdict.bound, *(device.verdict.mixed_of or ()))}
    most_ns = max((item.most_told_ns for item in what_if if item.scenario in bounds), default=0)
    rest_ns = device.window_ns - most_ns
    inside = ((region.path, region.total_ns - rest_ns) for region in regions if region.path)
    return [Claim("all", frozenset(), ClaimedSaving(0, ns), path) for path, ns in inside if ns > 0]


def up_to(regions: Sequence[RegionReport], claims: Iterable[Claim]) -> tuple[RegionReport, ...]:
    """Regions with what changes there save at most: no less than any claim of it and of what lies in it, no more than
    its limit. Advice tells nothing where no verdict does; and of work of the device that nothing is told of, its parts
    tell nothing. ``regions``: parents before children."""
    by_path, limits = {region.path: region for region in regions}, _limits(regions)
    most = _of_each(regions, claims)
    for region in reversed(regions):
        if (ns := most[region.path]) is None:
            continue
        verdict = region.verdict
        ns = max(ns, *(claim.most_ns for claim in of_verdict(verdict)), *(verdict.saving_range_ns or ()), 0)
        ns = most[region.path] = min(ns, limits[region.path])
        around = _around(region, by_path)
        if around is not None and (most[around.path] is not None or around.verdict.bound not in _UNTOLD):
            most[around.path] = max(most[around.path] or 0, ns)
    return tuple(
        replace(region, most_saved_ns=ns, verdict=_narrowed(region.verdict, ns))
        for region, ns in ((region, most[region.path]) for region in regions)
    )


def _narrowed(verdict: Verdict, most_ns: int | None) -> Verdict:
    """A region's verdict that says of no cause more than the region saves at most: where most of its work is not on
    record, the replay with that work may."""
    if most_ns is None or all(saving.saving_ns <= most_ns for saving in verdict.savings):
        return verdict
    ends = verdict.saving_range_ns
    return replace(
        verdict,
        savings=tuple(replace(saving, saving_ns=min(saving.saving_ns, most_ns)) for saving in verdict.savings),
        saving_ns=None if verdict.saving_ns is None else min(verdict.saving_ns, most_ns),
        runner_up_saving_ns=None if verdict.runner_up_saving_ns is None else min(verdict.runner_up_saving_ns, most_ns),
        saving_range_ns=None if ends is None else (min(ends[0], most_ns), min(ends[1], most_ns)),
    )


def _of_each(regions: Sequence[RegionReport], claims: Iterable[Claim]) -> dict[Path, int | None]:
    """The largest of the claims of each region itself; None: nothing is told of it."""
    most = {region.path: region.most_saved_ns for region in regions}
    for claim in claims:
        if claim.region is not None and claim.region in most and (claim.basis or most[claim.region] is not None):
            most[claim.region] = max(most[claim.region] or 0, claim.most_ns)
    return most


def _limits(regions: Sequence[RegionReport]) -> dict[Path, int]:
    """What a change in each region saves at most: what it takes, and what the one around it saves at most; inside of
    what other work hides, no more than that saves."""
    by_path, limits = {region.path: region for region in regions}, dict[Path, int]()
    for region in regions:
        limits[region.path] = region.longest_ns if region.path else region.total_ns
        if (around := _around(region, by_path)) is None:
            continue
        limits[region.path] = min(limits[region.path], limits[around.path])
        if around.verdict.bound == "hidden" and around.verdict.decided_by == "replay":
            of_all = max((claim.most_ns for claim in of_verdict(around.verdict)), default=0)
            limits[region.path] = min(limits[region.path], of_all)
    return limits


def _around(region: RegionReport, by_path: Mapping[Path, RegionReport]) -> RegionReport | None:
    return by_path.get(region.path[:-1]) if region.path else None


class Wholes(Struct, frozen=True):
    """What removing each cause everywhere saves, by device."""

    by_device: Mapping[int, Mapping[str, ClaimedSaving]]
    explained_ns: Mapping[int, int]  # of each device's window: what is not unattributed
    of_region: Mapping[Path, tuple[int, int]]  # what one cause that is gone there saves at most; what any change does
    is_told: bool = True  # False: no verdict names a cause

    @property
    def longest_ns(self) -> int:
        """More than this no change saves."""
        return max(self.explained_ns.values(), default=0)

    def of(self, causes: Collection[str], devices: Iterable[int] | None = None) -> ClaimedSaving:
        """What removing all of these saves on the device that it saves most; of no causes: everything."""
        wholes = [self._on(device, causes) for device in (self.by_device if devices is None else devices)]
        return ClaimedSaving(*(max((whole[end] for whole in wholes), default=0) for end in (0, 1)))

    def _on(self, device: int, causes: Collection[str]) -> ClaimedSaving:
        most_ns = self.explained_ns[device]
        of_causes = [self.by_device[device][cause] for cause in causes if cause in self.by_device[device]]
        if not of_causes:
            return ClaimedSaving(most_ns, most_ns)
        high_ns = min(sum(cause_saving.high_ns for cause_saving in of_causes), most_ns)
        return ClaimedSaving(min(max(cause_saving.low_ns for cause_saving in of_causes), high_ns), high_ns)

    def closed(self, claim: Claim, devices: Iterable[int] | None = None) -> ClaimedSaving:
        """The saving of a claim, narrowed to what its whole saves, and to what its region does: one of several causes
        may save more than each of them alone, and no more than the region takes. Without a device no whole is known."""
        saving = claim.saving.within(self.of(claim.causes, devices)) if self.by_device else claim.saving
        if claim.region is None or claim.region not in self.of_region:
            return saving
        most_ns = self.of_region[claim.region][len(claim.causes) > 1]
        return saving.within(ClaimedSaving(most_ns, most_ns))


def wholes(devices: Sequence[DeviceReport], what_if: Iterable[WhatIf], regions: Iterable[RegionReport]) -> Wholes:
    """By the replay where there is one, as the program ran and once nothing waits; else by the account."""
    claims = of_what_if(what_if)
    predicted = {(claim.device, claim.change): claim.saving for claim in claims}
    predicted_ns = {(claim.device, claim.change): claim.most_ns for claim in claims}
    by_device: dict[int, dict[str, ClaimedSaving]] = {}
    for device in devices:
        then_ns = {claim.change: claim.most_ns for claim in of_verdict(device.verdict)}
        of_device = by_device[device.id] = {}
        for cause in _REMOVABLE:
            saving = predicted.get((device.id, SCENARIO_OF_CAUSE[cause]))
            if saving is None:
                of_device[cause] = _of_account(device, cause)
            else:
                told_ns = max(predicted_ns[device.id, SCENARIO_OF_CAUSE[cause]], then_ns.get(cause, 0))
                # What is open of a cause of the host is idle time: the device's work stays.
                open_ns = saving.high_ns if cause in _BUSY else min(saving.high_ns, max(told_ns, device.idle_ns))
                of_device[cause] = ClaimedSaving(min(saving.low_ns, open_ns), max(open_ns, then_ns.get(cause, 0)))
        of_device["device_wait"] = ClaimedSaving(0, device.time.get("device_wait", 0))
    explained_ns = {device.id: device.window_ns - device.time.get("unattributed", 0) for device in devices}
    is_replayed = any(device.verdict.decided_by == "replay" for device in devices)
    of_region = {
        region.path: (
            region.max_saving_ns if is_replayed else max(region.max_saving_ns, _longest_work_ns(region)),
            max(region.total_ns, region.max_saving_ns),
        )
        for region in regions
        if region.path and region.max_saving_ns is not None
    }
    is_told = not devices or any(device.verdict.bound != "unknown" for device in devices)
    return Wholes(by_device, explained_ns, of_region, is_told)


def _longest_work_ns(region: RegionReport) -> int:
    """The device's work in a region of one kind: without a replay nothing shows how much of it others would hide."""
    return max(region.time.get(cause.key, 0) for cause in BUSY_CAUSES)


def _of_account(device: DeviceReport, cause: str) -> ClaimedSaving:
    """Without a replay nothing shows what hides behind what: between nothing and all of its time. What launches take
    holds their latency, and who sleeps may wait for what another thread works."""
    own_ns = device.time.get(cause, 0)
    if cause == "sync":
        own_ns = max(own_ns, device.exposed_by_waits_ns or 0)
    beside = {"cuda_api": "device_wait", "cpu": "host_blocked", "host_blocked": "cpu"}.get(cause, "")
    return ClaimedSaving(0, own_ns + device.time.get(beside, 0))
