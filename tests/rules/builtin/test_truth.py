"""Savings of findings against the truth: the same programs run again without what the finding is about."""

from __future__ import annotations

import random

import pytest
from benchmarks.simulated.counterfactual import CostRemoval, Truths

from boundby.claims.findings import find
from boundby.rules.builtin import builtin
from boundby.simulate.instructions import Program
from boundby.simulate.machine import Machine
from boundby.simulate.patterns import STORIES
from tests.rules.builtin import case_sync_allocation, case_sync_call, case_sync_pageable_copy, case_sync_polling
from tests.rules.builtin.harness import Source, context_of, findings, pattern
from tests.rules.builtin.random_truth import STATED_ERROR, compare

JITTER = Machine(host_jitter=0.03, device_jitter=0.01, hiccup_chance=0.002)
LOSS = ("step *", "loss")


def story(machine: Machine) -> Source:
    return Source(STORIES["segmentation_before"].make(random.Random(0), 20), machine)


SYNC = pattern("sync")
ASKED = {
    "sync forward": (SYNC, "sync-readback", ("step *", "forward"), ("step *", "forward"), "read back"),
    "sync loss": (SYNC, "sync-readback", LOSS, LOSS, "read back"),
    "nonzero": (story(Machine()), "sync-operator", LOSS, (*LOSS, "aten::nonzero, seq = *"), "nonzero"),
    "unique": (story(Machine()), "sync-operator", LOSS, (*LOSS, "aten::_unique2, seq = *"), "unique"),
    "boolean": (story(Machine()), "sync-operator", LOSS, (*LOSS, "aten::index, seq = *"), "boolean index"),
    "nonzero, jitter": (story(JITTER), "sync-operator", LOSS, (*LOSS, "aten::nonzero, seq = *"), "nonzero"),
    "unique, jitter": (story(JITTER), "sync-operator", LOSS, (*LOSS, "aten::_unique2, seq = *"), "unique"),
    "device": (case_sync_call.timed_by_waiting(), "sync-call", ("step *",), ("step *",), "cudaDeviceSynchronize"),
    "cudaFree": (case_sync_allocation.freed_in_the_loop(), "sync-allocation", ("step *",), ("step *",), "cudaFree"),
    "pageable": (
        case_sync_pageable_copy.pageable(),
        "sync-pageable-copy",
        ("step *", "load"),
        ("step *", "load"),
        "pageable",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_waits_save_what_they_truly_cost(name: str) -> None:
    source, rule, place, region, words = ASKED[name]
    (found,) = [item for item in findings(source) if item.rule == rule and item.region == place and words in item.title]
    assert found.saving_ns is not None
    low, high = found.saving_ns
    assert isinstance(source.program, Program)
    known = Truths(source.program, source.machine, source.seed)
    left = known.window(CostRemoval.WAITS, region=region)
    truth = known.window() - left
    assert low - STATED_ERROR * left <= truth <= high + STATED_ERROR * left
    # The range is told to be close, not only to hold the truth somewhere.
    assert abs((low + high) / 2 - truth) <= max(0.1 * truth, 0.01 * known.window())


def test_waits_of_random_programs() -> None:
    found, accused = compare(range(12))
    assert len(found) >= 4
    assert not accused
    assert sum(item.holds for item in found) >= 0.95 * len(found)


def test_polling_saves_what_it_truly_costs() -> None:
    asking, quiet = case_sync_polling.asks(60), case_sync_polling.asks(0)
    (found,) = [item for item in find(context_of(asking), builtin()).found if item.rule == "sync-polling"]
    assert isinstance(asking.program, Program)
    assert isinstance(quiet.program, Program)
    left = Truths(quiet.program).window()
    assert found.saving_ns is not None
    low, high = found.saving_ns
    assert low - STATED_ERROR * left <= Truths(asking.program).window() - left <= high + STATED_ERROR * left
