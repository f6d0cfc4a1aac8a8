"""`boundby prove` on real programs with known limits: does the interval hold the truth, is it sure of a wrong bound?

    python -m benchmarks.prove_real FOLDER [--runs 200] [--only torch-balanced] [--steps N] [--minutes 60]
    python -m benchmarks.prove_real FOLDER --truth     # what is true of programs of which it does not follow
    python -m benchmarks.prove_real FOLDER --table     # of what lies in FOLDER

FOLDER keeps what each run measured, so that the judgement can be made again without running anything.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.prove_programs import PROGRAMS
from boundby.experiment import judgement, live
from boundby.results.proof import Proof

TRUTHS = "truths.json"
#: A part is worth something from here on; a truth this near to it is either.
WORTH, NEAR, FAR = 0.5, 0.2, 0.25
#: How often the balanced program's truth is measured, all in all.
SESSIONS = 6
#: Programs whose parts work under a lock of their own or the interpreter's.
LOCKED = ("numpy-lock", "numpy-gil")


@dataclass(frozen=True)
class Truth:
    """What a part is worth, and how exactly that is known (95 %)."""

    value: float
    margin: float = 0.0


def run(folder: Path, name: str, number: int, steps: int | None) -> None:
    """One experiment, kept."""
    program = (sys.executable, "-m", "benchmarks.prove_programs", name)
    begin = time.monotonic()
    ran = live.run(live.Wanted(program, steps), say=lambda _what: None, progress=lambda _what, _share: None)
    kept = folder / f"{name}.{number}.pickle"
    kept.write_bytes(pickle.dumps(ran))
    proof = judged(kept)
    told = "nothing" if proof is None else f"{proof.bound}, {proof.confidence}"
    print(f"{kept.stem:24} {time.monotonic() - begin:5.1f} s  {told} {ran.problem}", flush=True)


def judged(kept: Path) -> Proof | None:
    """What is said of a run that was kept."""
    ran = pickle.loads(kept.read_bytes())
    return None if ran.plan is None else judgement.judge(kept.stem, ran.plan, ran.blocks)


def measure_truths(folder: Path) -> None:
    """Where it does not follow from the program: by shortening its parts, without any experiment."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in [name for name, program in PROGRAMS.items() if program.worth is None] * SESSIONS:
        command = (sys.executable, "-m", "benchmarks.prove_programs", name, "--truth")
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for part, one in told.items():
            found.setdefault(name, {}).setdefault(part, []).append(one["worth"])
        print(name, told, flush=True)
    (folder / TRUTHS).write_text(json.dumps(found))


def truths(folder: Path, name: str) -> Mapping[str, Truth]:
    """Of each part of a program."""
    program = PROGRAMS[name]
    if program.worth is not None:
        return {part: Truth(value) for part, value in zip(program.parts, program.worth, strict=True)}
    measured = json.loads((folder / TRUTHS).read_text())[name]
    return {
        part: Truth(min(1.0, max(0.0, statistics.fmean(values))), 2.0 * statistics.stdev(values) / len(values) ** 0.5)
        for part, values in measured.items()
    }


def answers(name: str, true: Mapping[str, Truth]) -> set[str]:
    """The bounds that are right: where a part is worth about half of what is saved there, with it and without."""
    sure = [part for part, one in true.items() if one.value > WORTH + NEAR]
    either = [part for part, one in true.items() if abs(one.value - WORTH) <= NEAR]
    # work under a lock is not delayed: that something else sets the pace is what can be said of it
    locked = {"outside"} if name in LOCKED else set()
    sets = [sure, *([*sure, part] for part in either), [*sure, *either]]
    return locked | {"balanced" if not parts else parts[0] if len(parts) == 1 else "serial" for parts in sets}


def rows(folder: Path) -> Iterator[tuple[str, int, int, int, int, float, float, int, int]]:
    """One program each: runs, parts, intervals that hold, parts far off, error, width, sure, sure and wrong."""
    for name in PROGRAMS:
        kept = sorted(folder.glob(f"{name}.*.pickle"))
        proofs = [proof for proof in map(judged, kept) if proof is not None]
        if not proofs:
            continue
        true = truths(folder, name)
        right = answers(name, true)
        parts = [(part.saved_per_ns, true[part.part]) for proof in proofs for part in proof.parts]
        held = sum(one.low - its.margin <= its.value <= one.high + its.margin for one, its in parts)
        off = [abs(one.value - its.value) for one, its in parts]
        sure = [proof.bound for proof in proofs if proof.confidence == "high"]
        wrong = sum(bound not in right for bound in sure)
        width = statistics.fmean(one.high - one.low for one, _ in parts)
        yield (
            name,
            len(kept),
            len(parts),
            held,
            sum(x > 0.25 for x in off),
            statistics.fmean(off),
            width,
            len(sure),
            wrong,
        )


def table(folder: Path) -> str:
    """As docs/prove.md has it."""
    counted = "runs | parts | held | off by more than 0.25 | mean error | mean width | sure | sure and wrong |"
    lines = [f"| program | limit | worth | {counted}", "| --- | --- | --- |" + " ---: |" * 8]
    totals = [0.0] * 8
    for name, *values in rows(folder):
        runs, parts, held, far, error, width, sure, wrong = values
        worth = ", ".join(f"{part} {one.value:.2f}".replace(".00", "") for part, one in truths(folder, name).items())
        lines.append(
            f"| {name} | {PROGRAMS[name].limit} | {worth} | {runs} | {parts} | {held} | {far} | {error:.3f} "
            f"| {width:.2f} | {sure} | {wrong} |"
        )
        adds = (runs, parts, held, far, error * parts, width * parts, sure, wrong)
        totals = [total + add for total, add in zip(totals, adds, strict=True)]
    runs, parts, held, far, error, width, sure, wrong = totals
    if parts:
        lines.append(
            f"| all | | | {runs:.0f} | {parts:.0f} | {held:.0f} ({100 * held / parts:.1f} %) | {far:.0f} "
            f"({100 * far / parts:.1f} %) | {error / parts:.3f} | {width / parts:.2f} | {sure:.0f} | {wrong:.0f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--only", choices=[*PROGRAMS], action="append")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--truth", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.truth:
        measure_truths(options.folder)
    elif options.table:
        print(table(options.folder))
    else:
        end = time.monotonic() + 60 * options.minutes
        names = options.only or [*PROGRAMS]
        for number in range(options.first, options.first + options.runs):
            if time.monotonic() > end:
                break
            run(options.folder, names[number % len(names)], number, options.steps)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
