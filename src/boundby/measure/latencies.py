"""``latency``: how long one call takes, with the first call, warm-up and samples kept apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from boundby.measure.device import Device
from boundby.measure.options import Options
from boundby.measure.results import METHODS, Latency, Methods
from boundby.measure.run import Run


def latency(
    fn: Callable[..., object],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    device: str | Device | None = None,
    method: str | None = None,
    mode: str | None = None,
    graph: bool = False,
    flush_l2: bool = False,
    fresh_inputs: bool | Callable[[], tuple[Any, ...]] = False,
    warmup: bool | int = True,
    calls_per_sample: int | None = None,
    min_samples: int = 30,
    max_samples: int = 10_000,
    confidence: float = 0.95,
    precision: float = 0.01,
    budget_s: float = 5.0,
) -> Latency:
    """Time ``fn(*inputs, **kwargs)``.

    The first call is timed apart, one more is watched for mistakes. Then calls are made until their times have
    settled, then samples are taken until the confidence interval of the median is narrow enough, at least
    ``min_samples``, for at most ``budget_s`` (and half of that for warm-up). On a GPU every sample begins on an idle
    device.

    Args:
        fn: any callable. A ``torch.nn.Module`` in ``mode="training"`` is timed forward and backward.
        name: what the result is called. Default: the function's own name.
        device: "cpu", "cuda", "cuda:1". Default: the GPU that the inputs, the model or the result are on, else the CPU.
        method: on a GPU "event" (default), "synchronised", or "naive"; the CPU has the wall clock only.
        mode: "inference" or "training" puts the model and gradients into that mode; None leaves them as they are.
        graph: capture the call as a CUDA graph and time its replay.
        flush_l2: push everything out of the GPU's L2 cache before each call; one call per sample then.
        fresh_inputs: True gives each call its own copy of the inputs, made before the clock starts; a function that
            takes nothing makes them instead.
        warmup: True warms up until steady; a number makes so many calls; 0 or False none.
        calls_per_sample: calls timed together. Default: as many as take 0.2 ms.
        precision: half width of the interval at which it is enough, as a fraction of the median.

    Raises:
        DeviceError: the device is not here. MeasureError: choices that do not go together.
        TargetError: ``fn`` raised (its error is the cause), or ran out of memory.
    """
    options = Options(
        kwargs=kwargs,
        name=name,
        device=device,
        method=method,
        mode=mode,
        graph=graph,
        flush_l2=flush_l2,
        fresh_inputs=fresh_inputs,
        warmup=warmup,
        calls_per_sample=calls_per_sample,
        min_samples=min_samples,
        max_samples=max_samples,
        confidence=confidence,
        precision=precision,
        budget_s=budget_s,
    )
    return measured(fn, inputs, options)


def measured(fn: Callable[..., object], inputs: tuple[Any, ...], options: Options) -> Latency:
    """``latency`` with its options in one."""
    run = Run(fn, inputs, options)
    with run.entered():
        run.start()
        run.sample()
        run.finish()
    return run.result()


def methods(fn: Callable[..., object], *inputs: Any, **options: Any) -> Methods:
    """``latency`` by every method that the device knows: naive, synchronised, event; on the CPU the wall clock.

    Takes what ``latency`` takes, but ``method``. The device is found by the first one for all of them.
    """
    chosen = Options(**options)
    first = measured(fn, inputs, replace(chosen, method=None))
    if first.method not in METHODS:
        return Methods((first,))
    rest = replace(chosen, device=chosen.device if chosen.device is not None else first.device)
    others = [
        # Only the first call of all of them is a first call.
        replace(measured(fn, inputs, replace(rest, method=method)), first_call_ns=first.first_call_ns)
        for method in METHODS
        if method != first.method
    ]
    return Methods(tuple(sorted((*others, first), key=lambda result: METHODS.index(result.method))))
