"""Where a program on the CPU would wait for a GPU, by the line."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from boundby.measure import latency, waits
from boundby.measure.device import compiled_graphs

torch: Any = pytest.importorskip("torch")
functional: Any = pytest.importorskip("torch.nn.functional")


def told(fn: Callable[..., object], *inputs: Any) -> dict[str, int]:
    """How often each line would wait, by its text."""
    places = [site.rpartition(":") for site in waits(fn, *inputs)]
    return dict(Counter(linecache.getline(file, int(line)).strip() for file, _, line in places))


@pytest.fixture
def values() -> Any:
    return torch.randn(100, 4)


@pytest.fixture
def labels() -> Any:
    return torch.arange(100) % 5


def test_sizes_that_only_the_device_knows(values: Any, labels: Any) -> None:
    def loss() -> object:
        chosen = (labels != 3).nonzero()
        present = labels.unique()
        kept = values[labels == 2]
        taken = torch.masked_select(values, values > 0)
        return chosen, present, kept, taken

    assert told(loss) == {
        "chosen = (labels != 3).nonzero()": 1,
        "present = labels.unique()": 1,
        "kept = values[labels == 2]": 1,
        "taken = torch.masked_select(values, values > 0)": 1,
    }


def test_values_that_the_host_asks_for(values: Any) -> None:
    def ask() -> object:
        if (values > 0).any():
            return values.sum().item(), values[0].tolist(), float(values.mean())
        return values.cpu()

    assert told(ask) == {
        "if (values > 0).any():": 1,
        "return values.sum().item(), values[0].tolist(), float(values.mean())": 3,
    }


def test_what_keeps_its_size_waits_for_nothing(values: Any, labels: Any) -> None:
    def loss() -> object:
        filled = values.clone()
        filled[labels == 2] = 0.0  # masked_fill
        gathered = values[labels]  # an index of numbers
        return torch.where(values > 0, filled, gathered).sum(), functional.one_hot(labels, 5)

    assert waits(loss) == ()


def test_writing_many_values_by_a_mask_waits(values: Any, labels: Any) -> None:
    def write() -> object:
        written = values.clone()
        written[labels == 2] = values[:20]
        return written

    assert told(write) == {"written[labels == 2] = values[:20]": 1}


def test_one_hot_of_an_unknown_number_of_classes_waits_once(labels: Any) -> None:
    def classes() -> object:
        return functional.one_hot(labels)

    assert told(classes) == {"return functional.one_hot(labels)": 1}


def test_what_is_on_the_host_already_waits_for_nothing(values: Any) -> None:
    def mixed() -> object:
        best = values.mean(1).cpu()
        chosen = best.topk(3).indices
        if chosen[0] > 50:
            chosen = chosen + 0
        own = torch.zeros(3)
        own[0] = float(own.sum())
        there = torch.ones(3, device=values.device)
        moved = chosen.to(values.device)
        return float(there.sum()), moved.tolist()

    assert told(mixed) == {
        "best = values.mean(1).cpu()": 1,
        "return float(there.sum()), moved.tolist()": 2,
    }


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_a_training_step_waits_where_the_program_asks(values: Any, labels: Any, optimizer: str) -> None:
    model = torch.nn.Linear(4, 5)
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)

    def step() -> float:
        loss = functional.cross_entropy(model(values), labels)
        loss.backward()
        steps.step()
        steps.zero_grad()
        value: float = loss.item()
        return value

    step()
    assert told(step) == {"value: float = loss.item()": 1}


def test_a_boolean_index_waits_again_on_the_way_back(values: Any, labels: Any) -> None:
    weight = torch.ones(4, requires_grad=True)

    def step() -> object:
        loss = (values * weight)[labels == 1].sum()
        loss.backward()
        return loss

    assert told(step) == {"loss = (values * weight)[labels == 1].sum()": 1, "loss.backward()": 1}


def test_the_results_are_those_without_looking(values: Any) -> None:
    def work() -> Any:
        return values.cpu().softmax(1) + torch.eye(4)[0]

    seen: list[Any] = []
    waits(lambda: seen.append(work()))
    assert torch.equal(seen[0], work())
    assert type(seen[0]) is torch.Tensor


@pytest.mark.usefixtures("briefly")
def test_a_measurement_on_the_cpu_says_so(values: Any) -> None:
    found = latency(lambda: values[values > 0].sum(), budget_s=0.05)
    (mistake,) = [one for one in found.mistakes if one.code == "would-wait"]
    assert "On a GPU the host would wait for it once in a call: " in mistake.message
    assert "test_would_wait.py:" in mistake.message
    assert "would-wait" not in {one.code for one in latency(lambda: values.sum(), budget_s=0.05).mistakes}


def test_nothing_is_compiled_for_a_look(values: Any) -> None:
    compiled = torch.compile(lambda x: x[x > 0].sum(), backend="eager")
    compiled(values)
    graphs = compiled_graphs()
    assert len(waits(compiled, values)) == 1
    compiled(values)
    assert compiled_graphs() == graphs


def test_without_torch_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch")
    assert waits(sorted, [3, 1]) == ()
