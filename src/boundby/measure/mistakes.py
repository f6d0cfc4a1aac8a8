"""The usual mistakes, found: in how it was measured, in what was measured, and in the samples themselves."""

from __future__ import annotations

import collections
import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from boundby.measure import sampling, values
from boundby.measure.device import Device
from boundby.measure.results import NAIVE, DeviceState, Latency, Mistake
from boundby.model import statistics
from boundby.model.scale import HANDFUL, NOTABLE
from boundby.model.units import duration, percent

#: The middle half of the samples spreads over more than this fraction of the median: what a quiet machine stays
#: well below (1 to 3 %), for CPU code too.
NOISY_SPREAD = NOTABLE
#: The usual rule of thumb.
FEW_SAMPLES = statistics.MANY_SAMPLES


def of_placement(device: Device, modules: Sequence[Any], inputs: object, held: Sequence[Any]) -> Iterator[Mistake]:
    """Inputs or parameters on the CPU in the timing of a GPU."""
    if not device.is_asynchronous:
        return
    tensors = [leaf for leaf in values.leaves(inputs) if values.is_tensor(leaf)]
    away = sum(values.device_of(tensor) == "cpu" for tensor in tensors)
    if away:
        yield Mistake(
            "cpu-inputs",
            f"{away} of {len(tensors)} input tensors are on the CPU while {device.name} is timed: their copy to the "
            "device, if the function makes it, is part of the time.",
            f"Move the inputs to {device.name} first, unless the copy is what you want to time.",
        )
    parameters = [weight for module in modules for weight in module.parameters()]
    here = sum(values.device_of(weight) == "cpu" for weight in parameters)
    if here:
        yield Mistake(
            "cpu-parameters",
            f"{here} of {len(parameters)} parameters of the model are on the CPU while {device.name} is timed.",
            f"Move the model with model.to('{device.name}').",
        )
    elif not tensors and not parameters and held and all(values.device_of(tensor) == "cpu" for tensor in held):
        yield Mistake(
            "cpu-inputs",
            f"All tensors that the function is seen to use are on the CPU while {device.name} is timed.",
            f"Move them to {device.name}, or time on the CPU.",
        )


def of_syncs(sites: Sequence[str], device: Device) -> Iterator[Mistake]:
    """Waits of the host for the device inside the function; on the CPU those that a GPU would make."""
    if not sites:
        return
    counted = collections.Counter(_short(site) for site in sites)
    named = ", ".join(f"{site} ({times} times)" if times > 1 else site for site, times in counted.most_common(HANDFUL))
    more = f" and {len(counted) - HANDFUL} more places" if len(counted) > HANDFUL else ""
    times = "once" if len(sites) == 1 else f"{len(sites)} times"
    waits = "The function waits for the device" if device.is_asynchronous else "On a GPU the host would wait for it"
    yield Mistake(
        "host-sync" if device.is_asynchronous else "would-wait",
        f"{waits} {times} in a call: {named}{more}.",
        "Such a wait keeps the host from running ahead. Keep values on the device until they are needed.",
    )


def _short(site: str) -> str:
    """A place below the current folder is named from there."""
    return site.removeprefix(f"{Path.cwd()}{os.sep}")


def of_result(result: object) -> Iterator[Mistake]:
    """A call that has not done its work yet, or shows nothing of it."""
    kind = type(result).__name__
    if inspect.isgenerator(result) or inspect.isasyncgen(result) or isinstance(result, map | filter | zip):
        yield Mistake(
            "lazy-result",
            f"A call returns a {kind}, whose work begins only when it is read: hardly any of it was timed.",
            "Consume it in the function, as in list(...).",
        )
    elif inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        yield Mistake(
            "lazy-result",
            f"A call returns a {kind} that nobody awaits: its work was not timed.",
            "Run it to its end in the function, as in asyncio.run(...).",
        )
    elif result is None:
        yield Mistake(
            "unused-result",
            "A call returns nothing, so nothing shows that its work was done; a compiler may leave unused work out.",
            "Return the result.",
        )


def of_procedure(latency: Latency) -> Iterator[Mistake]:
    """How it was measured."""
    number = len(latency.block_ns)
    if latency.method == NAIVE and latency.device != "cpu":
        yield Mistake(
            "no-synchronisation",
            "Nothing waited for the device: this is the time to hand the work over, not the time that it takes.",
            "Use the method event or synchronised.",
        )
    if latency.warmup_calls == 0:
        yield Mistake(
            "no-warm-up",
            f"There was no warm-up: the first sample took {duration(latency.samples_ns[0])}, "
            f"the median {duration(latency.median_ns)}.",
            "Leave warm-up on.",
        )
    if number == 1:
        yield Mistake(
            "one-sample",
            "There is one sample only: nothing shows how far off it can be.",
            "Give more time (budget) or more samples.",
        )
    elif number < FEW_SAMPLES:
        yield Mistake(
            "few-samples",
            f"There are {number} samples only; below {FEW_SAMPLES} percentiles and intervals mean little.",
            "Give more time (budget).",
        )


def of_samples(latency: Latency) -> Iterator[Mistake]:
    """What the samples say about the machine."""
    if latency.is_steady is False:
        yield Mistake(
            "not-steady",
            f"Times had not settled, or not provably, when warm-up ended after {latency.warmup_calls} calls.",
            "Give more time (budget), or look for what changes from call to call.",
        )
    samples = latency.samples_ns
    if len(samples) >= 2 * sampling.MIN_STEADY:
        half = len(samples) // 2
        first, second = statistics.median(samples[:half]), statistics.median(samples[half:])
        if sampling.steady_from(samples) is None and abs(second / first - 1) > NOISY_SPREAD / 2:
            yield Mistake(
                "drift",
                f"Times drifted while they were taken: median {duration(first)} in the first half, "
                f"{duration(second)} in the second.",
                "Something else changed: clocks, temperature, another program, growing data.",
            )
    if len(samples) > 2 and latency.spread_fraction > NOISY_SPREAD:
        yield Mistake(
            "noisy",
            f"The machine is noisy, or the work varies: the middle half of the samples spreads over "
            f"{percent(latency.spread_fraction)} of the median.",
            "Stop other programs, fix clocks and threads, or measure for longer.",
        )
    yield from of_states(latency.before, latency.after)


def of_compiler(recompiled: int, limit: int) -> Iterator[Mistake]:
    """torch.compile at work while samples were taken."""
    if recompiled:
        often = f"at least {recompiled}" if recompiled >= limit else str(recompiled)
        yield Mistake(
            "recompiled",
            f"torch.compile compiled again after warm-up, in {often} samples, which were counted as warm-up.",
            "Look for inputs whose shape or type changes: TORCH_LOGS=recompiles says which.",
        )


def of_states(before: DeviceState | None, after: DeviceState | None) -> Iterator[Mistake]:
    """What the GPU's state says against the figures."""
    reasons = sorted({reason for state in (before, after) if state for reason in state.throttling or ()})
    if reasons:
        yield Mistake(
            "throttled",
            f"The GPU held its clock down ({', '.join(reasons)}).",
            "Let it cool, raise the power limit, or lock a lower clock to get the same figure again.",
        )
    # Before it the GPU may have rested; after it has worked it is in its fastest state, if nothing keeps it from that.
    if after is not None and after.performance_state:
        yield Mistake(
            "slow-state",
            f"After the measurement the GPU is in performance state P{after.performance_state}, not P0.",
            "It rested in between, or is held there: see nvidia-smi -q -d PERFORMANCE, or lock its clocks.",
        )
