"""How often a comparison calls two runs of one program different, on simulated programs with jitter and interruptions.

    python -m benchmarks.significance --pairs 200

Half are textbook patterns, half random mixtures; each is run twice with other jitter, exported, analyzed and compared.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import boundby
from benchmarks.simulated.counterfactual import Case
from benchmarks.simulated.generate import generate
from boundby.results.comparison import Comparison
from boundby.simulate.instructions import Program
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from boundby.simulate.patterns import PATTERNS

MACHINE = Machine(host_jitter=0.05, device_jitter=0.02, hiccup_chance=0.005)
STEPS = 30
OTHER_RUN = 100_000  # added to the seed: the same program, other jitter


def program(seed: int) -> Program:
    """A pattern or a random mixture."""
    if seed % 2 == 0:
        return generate(seed).program
    names = sorted(PATTERNS)
    return PATTERNS[names[seed // 2 % len(names)]].make(random.Random(seed), STEPS)


def compare_with_itself(seed: int, folder: Path) -> Comparison:
    """Two runs of one program."""
    made = program(seed)
    paths = [folder / f"{seed}-{number}.sqlite" for number in range(2)]
    for number, path in enumerate(paths):
        write_export(Case("pair", made, MACHINE, seed + number * OTHER_RUN).run(), path)
    found = boundby.compare_runs(*paths)
    for path in paths:
        path.unlink()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    alarms = tested = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.pairs):
            found = [item for item in compare_with_itself(seed, Path(folder)).regions if item.path]
            tested += sum(item.significance.p_value is not None for item in found)
            wrong = [item for item in found if item.significance.is_change]
            alarms += bool(wrong)
            for item in wrong:
                print(f"seed {seed}: {'/'.join(item.path)} {item.significance}")
    print(f"{arguments.pairs} pairs of runs, {tested} regions tested: {alarms} pairs with a false alarm")


if __name__ == "__main__":
    main()
