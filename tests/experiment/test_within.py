"""`boundby.prove` on functions of this process. No time is asserted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.simulated.device import ModelledDevice

import boundby
from boundby.experiment.planning import ExperimentError
from boundby.results import saved
from boundby.results.proof import Proof

MS = 0.001


def _batches() -> Iterator[int]:
    for number in range(1_000_000):
        time.sleep(MS)
        yield number


def test_all_subsets_of_three_parts_are_delayed() -> None:
    device = ModelledDevice()

    def step(_batch: int) -> None:
        device.launch(1.0)
        device.synchronize()

    proof = boundby.prove(step, loader=_batches(), device=device, steps=140)
    assert {condition.delayed for condition in proof.conditions} == {
        (),
        ("host",),
        ("input",),
        ("device",),
        ("host", "input"),
        ("host", "device"),
        ("input", "device"),
        ("host", "input", "device"),
    }
    assert [part.part for part in proof.parts] == ["host", "input", "device"]
    assert all(part.saved_per_ns.low <= part.saved_per_ns.value <= part.saved_per_ns.high for part in proof.parts)
    assert saved.from_dict(proof.to_dict(), Proof) == proof


def test_a_step_that_is_too_short_is_refused() -> None:
    with pytest.raises(ExperimentError, match="too short to delay"):
        boundby.prove(lambda: None, steps=100)


def test_a_loader_that_ends_too_early_is_told() -> None:
    with pytest.raises(ExperimentError, match="ended after"):
        boundby.prove(lambda _batch: time.sleep(MS), loader=iter(range(5)), steps=100)


def test_the_functions_own_error_is_its_own() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        boundby.prove(fails)


def test_ctrl_c_gives_what_is_known() -> None:
    ends: list[int] = []

    class Device(ModelledDevice):
        def synchronize(self) -> None:
            ends.append(1)  # of a block, or its begin
            super().synchronize()

    def step() -> None:
        time.sleep(MS)
        if len(ends) > 9:
            raise KeyboardInterrupt

    proof = boundby.prove(step, device=Device(), steps=150)
    assert any(doubt.startswith("The experiment ended early") for doubt in proof.doubts)


def test_cached_batches_leave_the_training_as_it_was() -> None:
    """Parameters, momenta and random numbers end where they end without: to the bit."""
    torch: Any = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    threads = torch.get_num_threads()

    def train(experiment: bool) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        seen: list[Any] = []

        def step(batch: Any) -> None:
            time.sleep(MS)
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            seen.append(batch)

        data = torch.randn(4000, 4)
        loader = DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1))
        if experiment:
            proof = boundby.prove(step, loader=loader, steps=150, cached_batches=True)
            assert [removal.id for removal in proof.removals] == ["input_free"]
            once = [batch for at, batch in enumerate(seen) if not any(batch is other for other in seen[:at])]
            assert len(once) < len(seen)
            train.real = len(once)  # type: ignore[attr-defined]
        else:
            for _, batch in zip(range(train.real), loader, strict=False):  # type: ignore[attr-defined]
                step(batch)
        return {name: value.clone() for name, value in model.state_dict().items()}

    torch.set_num_threads(1)  # several wait for each other on a machine that is busy
    try:
        with_experiment, without = train(True), train(False)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(with_experiment[name], without[name]) for name in without)


def test_the_fixture_fails_only_where_the_experiment_shows_otherwise(
    boundby_prove: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boundby.experiment import live
    from tests.render.test_proof import PROOF

    monkeypatch.setattr(live, "prove", lambda _step, **_options: PROOF)
    assert boundby_prove(print, host=(0.0, 0.5), input=(0.5, 1.0)).bound == "input"
    with pytest.raises(pytest.fail.Exception, match="not worth what was asserted: host"):
        boundby_prove(print, host=(0.5, 1.0), input=(0.5, 1.0))
    with pytest.raises(TypeError, match="no part device"):
        boundby_prove(print, device=(0.5, 1.0))
