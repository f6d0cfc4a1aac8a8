"""Healthy programs on machines of any kind: nothing of compute, launches, copies or set-up is found in them."""

from __future__ import annotations

import pytest
from benchmarks.simulated.counterfactual import Case
from benchmarks.simulated.generate import generate

from boundby.rules.builtin import builtin
from tests.rules.builtin.harness import Source, look

GROUPS = ("gpu_compute", "cuda_api", "gpu_copy", "init")
RULES = tuple(rule for rule in builtin() if rule.group in GROUPS)
HEALTHY = [made for made in map(generate, range(500)) if made.healthy][:25]


@pytest.mark.parametrize("made", HEALTHY, ids=lambda made: f"{made.label} {made.seed}")
def test_healthy_programs_are_not_accused(made: Case) -> None:
    looked = look(Source(made.program, made.machine, seed=made.seed), *RULES)
    assert not looked.found
    assert not [item for item in looked.not_checked if "failed" in item.reason]
