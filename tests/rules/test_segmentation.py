"""The segmentation loss from end to end: three waits named in the order of cost, each with its replacement; after the
fix they are gone, and the verdict is another."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import known_case

import boundby
from boundby.results.report import Finding, Report
from boundby.simulate.kineto import write_kineto
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import write_export
from boundby.simulate.patterns import STORIES

JITTER = Machine(host_jitter=0.05, device_jitter=0.01)


def analyzed(name: str, folder: Path) -> Report:
    run = simulate(realise(STORIES[name].make(random.Random(0), 20), JITTER))
    return boundby.analyze(write_export(run, folder / f"{name}.sqlite"))


def waits(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule.startswith("sync-")]


def test_the_loss_that_waits(tmp_path: Path) -> None:
    report = analyzed("segmentation_before", tmp_path)
    assert report.devices[0].verdict.bound == "sync"
    found = waits(report)
    assert [finding.evidence["operator"] for finding in found] == ["aten::nonzero", "aten::_unique2", "aten::index"]
    assert [finding.title.split(" makes")[0] for finding in found] == [
        "torch.nonzero",
        "torch.unique",
        "a boolean index",
    ]
    lows = [finding.saving_ns[0] for finding in found if finding.saving_ns]
    assert lows == sorted(lows, reverse=True)
    for finding, words in zip(found, ("torch.where", "searchsorted", "ignore_index"), strict=True):
        assert finding.rule == "sync-operator"
        assert finding.region == ("step *", "loss")
        assert finding.instances == 20
        assert words in " ".join(finding.advice)
        assert finding.examples[0].what.startswith("cudaMemcpyAsync in aten::")
    assert "sparse mask can be worth its sync" in " ".join(found[2].advice)


def test_the_loss_that_does_not(tmp_path: Path) -> None:
    report = analyzed("segmentation_after", tmp_path)
    assert report.devices[0].verdict.bound == "gpu_compute"
    assert not waits(report)
    before = analyzed("segmentation_before", tmp_path).devices[0]
    assert before.verdict.without_ns is not None
    assert report.devices[0].window_ns < 1.05 * before.verdict.without_ns


STEPS = ("segmentation_before", "segmentation_no_nonzero", "segmentation_no_unique", "segmentation_after")


@pytest.mark.parametrize("suffix", [".sqlite", ".json"])
def test_each_step_saves_what_the_one_before_promised(tmp_path: Path, suffix: str) -> None:
    """Promised by the finding of the wait that goes next; what is gained besides is launches and kernels that go with
    it."""
    reports = []
    for name in STEPS:
        case = known_case(name, 0, 20)
        path = tmp_path / f"{name}{suffix}"
        reports.append(boundby.analyze((write_export if suffix == ".sqlite" else write_kineto)(case.run(), path)))
    for earlier, later in pairwise(reports):
        (promised, *_) = [finding.saving_ns for finding in waits(earlier)]
        assert promised is not None
        gained = earlier.devices[0].window_ns - later.devices[0].window_ns
        assert gained > 0.8 * promised[0]
        assert gained < promised[1] + 0.1 * earlier.devices[0].window_ns
    assert [len(waits(report)) for report in reports] == [3, 2, 1, 0]
    assert [report.devices[0].verdict.bound for report in reports] == ["sync", *["gpu_compute"] * 3]
