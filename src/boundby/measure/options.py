"""The choices of a measurement, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from boundby.measure.device import Device
from boundby.measure.errors import MeasureError
from boundby.measure.results import EVENT, METHODS, SYNCHRONISED, WALL
from boundby.measure.sampling import Plan

_SPELLINGS = {"synchronized": SYNCHRONISED, "events": EVENT}


class Options(Struct, frozen=True):
    """As ``latency`` takes and explains them.

    Raises:
        MeasureError: a choice that makes no sense.
    """

    kwargs: Mapping[str, Any] | None = None
    name: str | None = None
    device: str | Device | None = None
    method: str | None = None
    mode: str | None = None
    graph: bool = False
    flush_l2: bool = False
    fresh_inputs: bool | Callable[[], tuple[Any, ...]] = False
    warmup: bool | int = True
    calls_per_sample: int | None = None
    min_samples: int = 30
    max_samples: int = 10_000
    confidence: float = 0.95
    precision: float = 0.01
    budget_s: float = 5.0

    def __post_init__(self) -> None:
        if self.spelt_method not in (*METHODS, WALL, None):
            raise MeasureError(f"There is no method {self.method!r}.", f"Choose one of {', '.join(METHODS)}.")
        if not 0 < self.confidence < 1:
            raise MeasureError(f"{self.confidence} is not a confidence.", "Give a number between 0 and 1, as 0.95.")
        if not (self.precision > 0 and 0 < self.budget_s < float("inf")):
            raise MeasureError("Precision and budget must be more than 0.", "Such as 0.01 and 5 seconds.")
        if min(self.min_samples, self.max_samples, self.calls_per_sample or 1) < 1 or self.calls_per_sample == 0:
            raise MeasureError("Numbers of samples and calls must be 1 or more.", "Such as 30.")
        if self.warmup is not True and self.warmup < 0:
            raise MeasureError("Warm-up cannot be fewer than 0 calls.", "Give a number of calls, or True.")
        if self.graph and self.fresh_inputs:
            raise MeasureError("A graph replays on the inputs it was captured with.", "Leave out fresh inputs.")

    @property
    def spelt_method(self) -> str | None:
        return _SPELLINGS.get(self.method, self.method) if self.method is not None else None

    @property
    def plan(self) -> Plan:
        """How much is measured."""
        return Plan(
            min_samples=min(self.min_samples, self.max_samples),
            max_samples=self.max_samples,
            confidence=self.confidence,
            precision=self.precision,
            budget_ns=round(self.budget_s * 1e9),
            warmup=self.warmup,
            calls_per_sample=self.calls_per_sample,
        )
