"""Programs of host, loader and device on a virtual clock: what an experiment on them measures, and what is true.

Many pipelines at once, one array element each. A step: the host waits for a batch, does its work, launches, and waits
for the device where it may run no further ahead. Workers take turns; each has ``prefetch`` requests open. The device
works off what was launched, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MOST_WORKERS, MOST_PREFETCH, MOST_AHEAD = 8, 4, 64
STEPS = 192  # a multiple of every number of workers but 5 and 7


@dataclass(frozen=True)
class Pipelines:
    """Shape (pipelines,) each. ``workers`` 0: loaded on the main thread; ``ahead`` 1: the host waits in every step."""

    host: Float
    fetch: Float
    device: Float
    workers: Int
    prefetch: Int
    ahead: Int
    jitter: float = 0.10

    @property
    def per_step(self) -> Mapping[str, Float]:
        """Busy time of each part a step."""
        return {"host": self.host, "input": self.fetch / np.maximum(self.workers, 1), "device": self.device}


def draw(number: int, seed: int) -> Pipelines:
    """Pipelines at random: balanced ones, serial ones and all between."""
    random = np.random.default_rng(seed)
    workers = random.integers(0, MOST_WORKERS + 1, number)
    host, inputs, device = random.uniform(0.1, 1.0, (3, number))
    alike = random.random(number) < 0.25  # two parts within 5 %
    inputs = np.where(alike, host * random.uniform(0.95, 1.05, number), inputs)
    ahead = np.where(random.random(number) < 0.35, 1, 2 ** random.integers(0, 7, number))
    return Pipelines(
        host, inputs * np.maximum(workers, 1), device, workers, random.integers(1, MOST_PREFETCH + 1, number), ahead
    )


def pace(pipelines: Pipelines, delay: Mapping[str, Float], seed: int, steps: int = STEPS) -> Float:
    """Time a step, from an empty begin, by the completions of the device, after 2 x workers steps were dropped."""
    random = np.random.default_rng(seed)
    number = len(pipelines.host)
    every = np.arange(number)
    workers = np.maximum(pipelines.workers, 1)
    on_main = pipelines.workers == 0
    none = np.zeros(number)
    added = {part: delay.get(part, none) for part in ("host", "input", "device")}

    def jittered(mean: Float) -> Float:
        spread: Float = mean * np.clip(random.normal(1.0, pipelines.jitter, number), 0.3, 3.0)
        return spread

    window = MOST_WORKERS * MOST_PREFETCH
    received = np.zeros((window, number))  # when each of the last batches was received
    free = np.zeros((MOST_WORKERS, number))  # when each worker is free
    done = np.zeros((MOST_AHEAD, number))  # when each of the last steps was done on the device
    host = np.zeros(number)
    begun = np.zeros(number)
    dropped = np.where(on_main, 2, 2 * workers)
    counted = (steps - dropped) // workers * workers
    ends = np.zeros(number)
    for step in range(steps):
        turn = step % workers
        fetch = jittered(pipelines.fetch) + added["input"] * np.where(on_main, 1, workers)
        asked = received[(step - workers * pipelines.prefetch) % window, every]
        asked = np.where(step < workers * pipelines.prefetch, 0.0, asked)
        ready = np.maximum(free[turn, every], asked) + fetch
        free[turn, every] = np.where(on_main, 0.0, ready)
        host = host + added["host"]
        host = np.where(on_main, host + fetch, np.maximum(host, ready))
        received[step % window] = host
        host = host + jittered(pipelines.host)
        done[step % MOST_AHEAD] = (
            np.maximum(host, done[(step - 1) % MOST_AHEAD]) + jittered(pipelines.device) + added["device"]
        )
        waited = done[(step - pipelines.ahead + 1) % MOST_AHEAD, every]
        host = np.where(step - pipelines.ahead + 1 < 0, host, np.maximum(host, waited))
        begun = np.where(step == dropped - 1, done[step % MOST_AHEAD], begun)
        ends = np.where(step == dropped + counted - 1, done[step % MOST_AHEAD], ends)
    pace: Float = (ends - begun) / counted
    return pace


def shorter(pipelines: Pipelines, part: str, by: Float) -> Pipelines:
    """The pipelines with one part's work shortened, by so much a step."""
    workers = np.maximum(pipelines.workers, 1)
    host, fetch, device = pipelines.host, pipelines.fetch, pipelines.device
    if part == "host":
        host = host - by
    elif part == "input":
        fetch = fetch - by * workers
    else:
        device = device - by
    return Pipelines(host, fetch, device, pipelines.workers, pipelines.prefetch, pipelines.ahead, pipelines.jitter)


def truth(pipelines: Pipelines, reach: Mapping[str, Float], repeats: Sequence[int] = range(4)) -> dict[str, Float]:
    """What a unit saved of each part saves, over the first ``reach``, by doing so."""
    found = {}
    for part, by in reach.items():
        less = shorter(pipelines, part, by)
        gains = [pace(pipelines, {}, 900 + seed) - pace(less, {}, 900 + seed) for seed in repeats]
        found[part] = np.mean(gains, axis=0) / by
    return found
