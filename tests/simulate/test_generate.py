"""Random programs and their JSON; the textbook patterns and what boundby says of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import IDLE_WORTH, Case
from benchmarks.simulated.generate import drawn_features, generate
from benchmarks.simulated.untidy import FEATURES

import boundby
from boundby.simulate.instructions import INSTRUCTIONS, walk
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from boundby.simulate.patterns import PATTERNS

PURE = ("compute", "comm", "copy", "api", "sync", "cpu", "blocked", "init")
JITTER = Machine(host_jitter=0.05, device_jitter=0.01)


@pytest.mark.parametrize(("seed", "name"), list(enumerate(PATTERNS)))
def test_a_pattern_is_what_it_says(name: str, seed: int) -> None:
    known = PATTERNS[name]
    truths = Case(name, known.make(random.Random(seed), 10), JITTER, seed).truths
    for device in truths.devices():
        truth = truths.truth(device=device)
        assert truth.bound == known.bound
        assert truth.saturated or not known.healthy
    if known.healthy:
        for region in truths.regions():
            truth = truths.truth(region=region)
            is_small = max(saving for _, saving in truth.savings) < IDLE_WORTH * truth.window_ns  # a first batch
            assert is_small or truth.bound in ("gpu_compute", "hidden", "unknown")


@pytest.mark.parametrize("name", PURE)
def test_boundby_finds_the_bound_of_a_pure_pattern(name: str, tmp_path: Path) -> None:
    case = Case(name, PATTERNS[name].make(random.Random(0), 10), JITTER)
    report = boundby.analyze(write_export(case.run(), tmp_path / "pure.sqlite"))
    assert [device.verdict.bound for device in report.devices] == [case.truths.truth().bound] == [PATTERNS[name].bound]


def test_a_seed_is_a_program() -> None:
    assert generate(5) == generate(5)
    assert generate(5) != generate(6)


def test_all_kinds_come_up() -> None:
    made = [generate(seed, drawn_features(seed, 0.25)) for seed in range(400)]
    assert {feature for case in made for feature in case.features} == set(FEATURES)
    used = Counter(
        type(one)
        for case in made
        for process in case.program.processes
        for thread in process.threads
        for one in walk(thread.body)
    )
    assert set(used) == set(INSTRUCTIONS) - {type(None)}
    assert set(PATTERNS) <= {case.label for case in made}
    assert sum(case.healthy for case in made) >= 5
    assert sum(case.is_plain for case in made) >= 20
    threads = Counter(len(case.program.processes[0].threads) for case in made)
    assert min(threads[1], threads[2], threads[3]) >= 10
