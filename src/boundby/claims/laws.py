"""The laws that claims obey: whatever says that a change would save time says it here first, and is narrowed to what
its whole saves, or withdrawn.

A claim is a change, where it is made, the causes of which it takes time, and a saving from low to high. Its whole is
what is saved where these causes are gone everywhere. A part saves no more than its whole, at either end; nothing takes
time that is unattributed; nothing in a region saves more than the region; devices run side by side, so that of several
the one that saves most counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from boundby.model.causes import REMOVABLE
from boundby.model.scenarios import SCENARIO_OF_CAUSE
from boundby.results.report import DeviceReport, RegionReport, WhatIf

_REMOVABLE = tuple(cause.key for cause in REMOVABLE)

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

    change: str
    causes: frozenset[str]
    saving: ClaimedSaving
    region: Path | None = None  # where it is made; None: everywhere


class Wholes(Struct, frozen=True):
    """What removing each cause everywhere saves, by device."""

    by_device: Mapping[int, Mapping[str, ClaimedSaving]]
    explained_ns: Mapping[int, int]  # of each device's window: what is not unattributed
    of_region: Mapping[Path, int]
    is_told: bool = True  # False: no verdict names a cause

    @property
    def longest_ns(self) -> int:
        """More than this no change saves."""
        return max(self.explained_ns.values(), default=0)

    def of(self, causes: Collection[str], devices: Iterable[int] | None = None) -> ClaimedSaving:
        """What removing all of these saves on the device that it saves most; of no causes: everything."""
        wholes = [self._on(device, causes) for device in (self.by_device if devices is None else devices)]
        return ClaimedSaving(*(max((one[end] for one in wholes), default=0) for end in (0, 1)))

    def _on(self, device: int, causes: Collection[str]) -> ClaimedSaving:
        most_ns = self.explained_ns[device]
        of_causes = [self.by_device[device][cause] for cause in causes if cause in self.by_device[device]]
        if not of_causes:
            return ClaimedSaving(most_ns, most_ns)
        high_ns = min(sum(one.high_ns for one in of_causes), most_ns)
        return ClaimedSaving(min(max(one.low_ns for one in of_causes), high_ns), high_ns)

    def closed(self, claim: Claim, devices: Iterable[int] | None = None) -> ClaimedSaving:
        """The saving of a claim, narrowed to what its whole saves; and, if it is of one cause, to what its region
        does, which its bound limits."""
        saving = claim.saving.within(self.of(claim.causes, devices))
        most_ns = None if claim.region is None or len(claim.causes) > 1 else self.of_region.get(claim.region)
        return saving if most_ns is None else saving.within(ClaimedSaving(most_ns, most_ns))


def wholes(devices: Sequence[DeviceReport], what_if: Iterable[WhatIf], regions: Iterable[RegionReport]) -> Wholes:
    """By the replay where there is one, as the program ran and once nothing waits; else by the account."""
    predicted = {(item.device, item.scenario): item for item in what_if}
    by_device: dict[int, dict[str, ClaimedSaving]] = {}
    for device in devices:
        then_ns = {saving.cause: saving.saving_ns for saving in device.verdict.savings}
        found = by_device[device.id] = {}
        for cause in _REMOVABLE:
            item = predicted.get((device.id, SCENARIO_OF_CAUSE[cause]))
            found[cause] = _of_account(device, cause) if item is None else _of_replay(item, then_ns.get(cause, 0))
        found["device_wait"] = ClaimedSaving(0, device.time.get("device_wait", 0))
    explained_ns = {device.id: device.window_ns - device.time.get("unattributed", 0) for device in devices}
    most_ns = {region.path: region.max_saving_ns for region in regions if region.path}
    is_told = not devices or any(device.verdict.bound != "unknown" for device in devices)
    return Wholes(by_device, explained_ns, {path: ns for path, ns in most_ns.items() if ns is not None}, is_told)


def _of_replay(item: WhatIf, then_ns: int) -> ClaimedSaving:
    low_ns, high_ns = item.saving_ns
    return ClaimedSaving(max(low_ns, 0), max(high_ns, then_ns, 0))


def _of_account(device: DeviceReport, cause: str) -> ClaimedSaving:
    """Without a replay nothing shows what hides behind what: between nothing and all of its time. What launches take
    holds their latency, and who sleeps may wait for what another thread works."""
    own_ns = device.time.get(cause, 0)
    if cause == "sync":
        own_ns = max(own_ns, device.exposed_by_waits_ns or 0)
    beside = {"cuda_api": "device_wait", "cpu": "host_blocked", "host_blocked": "cpu"}.get(cause, "")
    return ClaimedSaving(0, own_ns + device.time.get(beside, 0))
