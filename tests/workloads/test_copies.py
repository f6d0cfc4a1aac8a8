"""The overlapped copies, with stand-ins for streams: the order of things, and the results."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from examples.workloads import registry

torch = pytest.importorskip("torch", reason="the workload is for torch, which is not installed")


class Stream:
    """Writes down who waits for whom."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told

    def wait_stream(self, other: Stream) -> None:
        self.told.append(f"{self.name} waits for {other.name}")

    def record_event(self) -> Stream:
        self.told.append(f"{self.name} event")
        return self

    def synchronize(self) -> None:
        self.told.append(f"host waits for {self.name}")


def test_the_next_batch_is_fetched_before_this_one_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.workloads import copies

    told: list[str] = []
    names = iter(["in", "out"])
    main = Stream("main", told)
    empty, to = torch.empty, torch.Tensor.to

    @contextlib.contextmanager
    def on(stream: Stream) -> Any:
        told.append(f"on {stream.name}")
        yield

    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(next(names), told))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *_, **__: to(tensor, copy=True))

    def unpinned(*shape: Any, **kinds: Any) -> Any:
        return empty(*shape, **{**kinds, "pin_memory": False})

    model = torch.nn.Conv2d(1, 1, 1)
    monkeypatch.setattr(torch, "empty", unpinned)
    model.register_forward_hook(lambda *_: told.append("compute"))
    batches = [torch.full((1, 1, 2, 2), float(number)) for number in range(registry.BATCHES)]
    overlapped = copies.Overlapped(model, batches)
    with torch.no_grad():
        results = [overlapped.step(number) for number in range(4)]
        for number, result in enumerate(results):
            assert torch.equal(result, model(batches[number]))
    first = ["on in", "main waits for in", "on in", "compute", "out waits for main", "on out", "out event"]
    assert told[: len(first)] == first
    assert told[len(first) : 2 * len(first) - 1] == first[1:]
    assert told.count("host waits for out") == 2  # from the third step on, for the one two steps before
