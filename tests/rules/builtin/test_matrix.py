"""Which rules fire on which simulated program: each on its own pattern, none on a healthy one."""

from __future__ import annotations

import pytest

from boundby.rules.builtin import builtin
from boundby.simulate.machine import Machine
from boundby.simulate.patterns import EVERY
from tests.rules.builtin.harness import look, pattern

JITTER = Machine(host_jitter=0.05, device_jitter=0.01)
# Every rule that fires on a pattern (notes as well), and nothing else. A pattern may rightly show more than one.
EXPECTED: dict[str, set[str]] = {
    "compute": set(),
    "comm": {"comm-exposed"},
    "copy": {"copy-overlap"},
    "api": {"cuda-graphs"},
    "sync": {"sync-readback", "launch-overhead"},  # host work in turns between tiny kernels
    "cpu": {"host-work"},
    "blocked": {"host-input"},
    "init": {"allocation", "lazy-initialization"},  # and one library, loaded once
    "healthy": set(),
    "autograd": {"cuda-graphs"},
    "feeding": {"host-input"},
    "streams": {"comm-exposed"},
    "graphs": {"trace-graph-level"},
    "two_gpus": {"comm-exposed"},
    "segmentation_before": {"sync-operator", "cuda-graphs"},
    "segmentation_no_nonzero": {"sync-operator", "cuda-graphs"},
    "segmentation_no_unique": {"sync-operator", "cuda-graphs"},
    "segmentation_after": set(),
}
HEALTHY = tuple(name for name, made in EVERY.items() if made.healthy)


def test_every_pattern_is_declared() -> None:
    assert set(EXPECTED) == set(EVERY)
    assert set().union(*EXPECTED.values()) <= {rule.id for rule in builtin()}


@pytest.mark.parametrize("name", EXPECTED)
def test_rules_fire_on_their_own_pattern(name: str) -> None:
    looked = look(pattern(name))
    assert {finding.rule for finding in looked.found} == EXPECTED[name]
    assert not [item for item in looked.not_checked if "failed" in item.reason]


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_healthy_is_accused(name: str) -> None:
    for seed in range(3):  # sizes and jitter differ
        found = look(pattern(name, seed=seed, machine=JITTER)).found
        assert not [finding.title for finding in found if finding.severity != "note"]
