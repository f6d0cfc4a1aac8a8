"""The named what-if scenarios, one row each: what is removed, and how people are told.

How the replay removes a cause is in `boundby.replay.removals`.
"""

from __future__ import annotations

from msgspec import Struct

from boundby.model.causes import NOUN


class Scenario(Struct, frozen=True):
    """One counterfactual: the program as it ran, without these causes."""

    key: str  # on the command line and in JSON
    label: str  # what is gone, everything else as it was
    causes: tuple[str, ...]  # keys of `boundby.model.causes.Cause`, in the order in which they are removed


def _without(key: str, cause: str) -> Scenario:
    return Scenario(key, f"without {NOUN[cause]}", (cause,))


_ROWS = (
    _without("no_sync", "sync"),
    _without("no_launch_overhead", "cuda_api"),
    _without("infinite_gpu", "gpu_compute"),
    _without("copies_free", "gpu_copy"),
    _without("cpu_free", "cpu"),
    _without("input_free", "host_blocked"),
    _without("comm_free", "gpu_comm"),
    _without("init_free", "init"),
    Scenario("infinite_host", "with an infinitely fast host", ("sync", "cuda_api", "cpu", "host_blocked", "init")),
)
SCENARIOS: dict[str, Scenario] = {row.key: row for row in _ROWS}
#: The scenario that removes one cause alone, by the cause's key.
SCENARIO_OF_CAUSE: dict[str, str] = {row.causes[0]: row.key for row in _ROWS if len(row.causes) == 1}


def scenario_label(key: str) -> str:
    """What is gone under a scenario; of a question that has no name (``kernels=2``) the question itself."""
    return SCENARIOS[key].label if key in SCENARIOS else key
