"""`boundby prove` on real programs with known limits: does the interval hold the truth, is it sure of a wrong bound?

    python -m benchmarks.prove_real FOLDER [--runs 200] [--only torch-balanced] [--steps N] [--minutes 60]
    python -m benchmarks.prove_real FOLDER --traces    # the same programs recorded by nsys
    python -m benchmarks.prove_real FOLDER --table     # of what lies in FOLDER

FOLDER keeps what each run measured, so that the judgement can be made again without running anything. Where what is
true does not follow from how a program is made, it is measured in the same run, by blocks in which a part is shorter.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.prove_programs import PARTS, PROGRAMS, SHORTER, shorter
from boundby.api import analyze
from boundby.experiment import judgement, live
from boundby.model.causes import SHORT_LABEL
from boundby.results.proof import Proof
from boundby.results.report import Report

#: A part is worth something from here on; a truth this near to it is either.
WORTH, NEAR, FAR = 0.5, 0.2, 0.25
#: Steps of a program under nsys.
RECORDED = 300
#: How the experiments compare with the trace, for people.
COMPARED = {
    "agree": "agree",
    "trace doubted": "contradict the trace",
    "experiment doubted": "not sure",
    "both doubted": "neither is sure",
}
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
    parts = PROGRAMS[name].parts if PROGRAMS[name].worth is None else ()
    wanted = live.Wanted(program, steps, removals=tuple(map(shorter, parts)))
    ran = live.run(wanted, say=lambda _what: None, progress=lambda _what, _share: None)
    kept = folder / f"{name}.{number}.pickle"
    kept.write_bytes(pickle.dumps(ran))
    proof = judged(kept)
    told = "nothing" if proof is None else f"{proof.bound}, {proof.confidence}"
    print(f"{kept.stem:24} {time.monotonic() - begin:5.1f} s  {told} {ran.problem}", flush=True)


def judged(kept: Path, report: Report | None = None) -> Proof | None:
    """What is said of a run that was kept."""
    ran = pickle.loads(kept.read_bytes())
    return None if ran.plan is None else judgement.judge(kept.stem, ran.plan, ran.blocks, report)


def record(folder: Path, name: str) -> None:
    """One program under nsys."""
    program = (sys.executable, "-m", "benchmarks.prove_programs", name, "--steps", str(RECORDED))
    boundby = (sys.executable, "-m", "boundby", "profile", "--force", "--torch-ops", "--format", "none")
    subprocess.run((*boundby, "-o", str(folder / f"{name}.profile"), "--", *program), check=True)


def agreements(folder: Path) -> str:
    """The verdict by trace beside those of the experiments."""
    lines = ["| program | by trace | by experiment | compared |", "| --- | --- | --- | --- |"]
    for name in PROGRAMS:
        place = folder / f"{name}.profile"
        if not place.exists():
            continue
        report = analyze(place)
        told = judgement.verdict_by_trace(report)
        proofs = [judged(kept, report) for kept in sorted(folder.glob(f"{name}.*.pickle"))]
        said = Counter(f"{proof.bound} ({proof.confidence})" for proof in proofs if proof)
        agree = Counter(COMPARED[proof.agreement] for proof in proofs if proof and proof.agreement)
        by_trace = "nothing" if told is None else f"{SHORT_LABEL.get(told[0], told[0])} ({told[1].confidence})"
        counts = (", ".join(f"{count} {what}" for what, count in of.most_common()) for of in (said, agree))
        lines.append(f"| `{name}` | {by_trace} | {' | '.join(counts)} |")
    return "\n".join(lines)


def truths(name: str, proof: Proof) -> Mapping[str, Truth]:
    """Of each part of a program, as it ran."""
    program = PROGRAMS[name]
    if program.worth is not None:
        return {part: Truth(value) for part, value in zip(program.parts, program.worth, strict=True)}
    saved = {removal.id: removal.measured_ns for removal in proof.removals}
    workers = max(program.settings[0], 1)
    found = {}
    for part in program.parts:
        taken = SHORTER * program.lengths[PARTS.index(part)] * 1e6 / (workers if part == "input" else 1)
        low, high = (end / taken for end in saved[shorter(part)])
        found[part] = Truth(min(1.0, max(0.0, (low + high) / 2)), (high - low) / 2)
    return found


def answers(name: str, true: Mapping[str, Truth]) -> set[str]:
    """The bounds that are right: where a part is worth about half of what is saved there, with it and without."""
    near = {part: max(NEAR, one.margin) for part, one in true.items()}
    sure = [part for part, one in true.items() if one.value > WORTH + near[part]]
    either = [part for part, one in true.items() if abs(one.value - WORTH) <= near[part]]
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
        true = [truths(name, proof) for proof in proofs]
        parts = [
            (part.saved_per_ns, its[part.part]) for proof, its in zip(proofs, true, strict=True) for part in proof.parts
        ]
        held = sum(one.low - its.margin <= its.value <= one.high + its.margin for one, its in parts)
        off = [abs(one.value - its.value) for one, its in parts]
        sure = [(proof.bound, its) for proof, its in zip(proofs, true, strict=True) if proof.confidence == "high"]
        wrong = sum(bound not in answers(name, its) for bound, its in sure)
        worth = [f"{part} {statistics.fmean(its[part].value for its in true):.2f}" for part in true[0]]
        by_design, measured = (" by design", " (measured)") if PROGRAMS[name].worth is None else ("", "")
        yield (
            f"{name} | {PROGRAMS[name].limit}{by_design} | {', '.join(worth).replace('.00', '')}{measured}",
            len(kept),
            len(parts),
            held,
            sum(x > FAR for x in off),
            statistics.fmean(off),
            statistics.fmean(one.high - one.low for one, _ in parts),
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
        lines.append(f"| {name} | {runs} | {parts} | {held} | {far} | {error:.3f} | {width:.2f} | {sure} | {wrong} |")
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
    parser.add_argument("--traces", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.table:
        print(table(options.folder), agreements(options.folder), sep="\n\n")
    elif options.traces:
        for name in options.only or PROGRAMS:
            record(options.folder, name)
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
