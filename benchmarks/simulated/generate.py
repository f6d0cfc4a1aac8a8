"""Random programs, the same for the same seed: textbook patterns, and above all mixtures of parts of any size."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.simulated.counterfactual import Case
from benchmarks.simulated.mixture import LEAST_STEPS, mixture
from benchmarks.simulated.untidy import FEATURES
from boundby.simulate.instructions import Copy, GraphLaunch, Launch, Memset, Program, walk
from boundby.simulate.machine import Machine
from boundby.simulate.patterns import PATTERNS


def generate(seed: int, features: Sequence[str] = ()) -> Case:
    """One random program. Of four, three are mixtures; the rest are patterns, healthy ones among them. With features
    (``untidy.FEATURES``) it is always a mixture, made untidy in these ways."""
    chance = random.Random(f"boundby {seed}")
    if chance.random() < 0.25 and not features:
        name = chance.choice(sorted(PATTERNS))
        pattern = PATTERNS[name]
        made = pattern.make(chance, chance.randint(LEAST_STEPS, 12))
        machine = _machine(chance, is_exact=chance.random() < 0.3)
        return Case(name, made, machine, seed, pattern.healthy, is_plain(made, machine))
    is_exact = chance.random() < 0.4
    draft = mixture(chance, _machine(chance, is_exact=is_exact))
    for name in features:
        FEATURES[name].add(draft)
    made = draft.finished()
    label = " ".join([*features, draft.label])
    plain = not features and is_plain(made, draft.machine)
    return Case(label, made, draft.machine, seed, False, plain, tuple(features), draft.capture)


def drawn_features(seed: int, share: float) -> tuple[str, ...]:
    """What is untidy in a seed's program: this share of the seeds has something, mostly one or two things."""
    chance = random.Random(f"untidy {seed}")
    if chance.random() >= share:
        return ()
    count = chance.choices([1, 2, 3, 4], [4, 3, 2, 1])[0]
    return tuple(sorted(chance.sample(sorted(FEATURES), count)))


def is_plain(made: Program, machine: Machine) -> bool:
    """One thread, one stream, no chance."""
    members = [thread for process in made.processes for thread in process.threads]
    found = [one for thread in members for one in walk(thread.body)]
    streams = {(one.device, one.stream) for one in found if isinstance(one, Launch | GraphLaunch | Copy | Memset)}
    spread = any(getattr(one, "spread", 0) for one in found)
    exact = not (machine.host_jitter or machine.device_jitter or machine.hiccup_chance or machine.clock_noise_ns)
    return len(members) == 1 and len(streams) <= 1 and exact and not spread


def _machine(chance: random.Random, *, is_exact: bool) -> Machine:
    quiet = {"host_jitter": 0.0, "device_jitter": 0.0, "hiccup_chance": 0.0, "clock_noise_ns": 0}
    noisy = {
        "host_jitter": chance.choice([0.02, 0.05, 0.2]),
        "device_jitter": chance.choice([0.0, 0.01, 0.05]),
        "hiccup_chance": chance.choice([0.0, 0.0, 0.0, 0.005]),
        "clock_noise_ns": chance.choice([0, 0, 200]),
    }
    return Machine(
        launch_call_ns=chance.choice([3_000, 5_000, 8_000]),
        launch_latency_ns=chance.choice([2_000, 3_000, 5_000]),
        sync_return_ns=chance.choice([3_000, 5_000, 10_000]),
        sync_spins=chance.random() < 0.8,
        legacy_default_stream=chance.random() < 0.2,
        **(quiet if is_exact else noisy),  # type: ignore[arg-type]
    )
