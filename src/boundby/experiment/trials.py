"""Remedies tried on the program: in blocks of the experiment, or in whole runs with and without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from boundby.experiment.inside import trial
from boundby.experiment.inside.conductor import CACHED
from boundby.experiment.judgement import promised_ns
from boundby.experiment.live import ProgramRun, Progress, Say, Wanted, run
from boundby.experiment.paces import compare, student_quantile
from boundby.experiment.planning import ExperimentError
from boundby.results.proof import Removal
from boundby.results.report import Report

#: Tried in whole runs: once without, twice with, twice without, ...
WHOLE = (*trial.REMEDIES, *trial.ENVIRONMENTS)
#: The order of those runs: a drift of the machine that is even over them cancels out.
TURNS = (False, True, True, False, False, True)


def check(remedies: Sequence[str]) -> None:
    """Raises ExperimentError for what cannot be tried."""
    for remedy in remedies:
        if remedy not in (CACHED, *WHOLE):
            raise ExperimentError(
                f"{remedy!r} cannot be tried on a running program.", f"These can: {', '.join((CACHED, *WHOLE))}."
            )


def try_whole(wanted: Wanted, remedy: str, report: Report | None, say: Say, progress: Progress) -> list[Removal]:
    """What a remedy saves by runs with and without it; nothing if a run did not come far enough."""
    say(f"trying {remedy}: {len(TURNS)} short runs of the program, every other pair of them with it")
    sides: dict[bool, list[ProgramRun]] = {False: [], True: []}
    for number, changed in enumerate(TURNS):
        progress(f"trying {remedy}", number / len(TURNS))
        chosen = replace(wanted, remedy=remedy if changed else "", removals=(), run_on=False)
        ran = run(chosen, say=lambda _costs: None, progress=lambda _what, _share: None)
        if ran.was_interrupted or not any(ran.blocks):
            say(f"{remedy}: a run {'with' if changed else 'without'} it ended before it was measured. {ran.problem}")
            return []
        sides[changed].append(ran)
    without, changed_paces = ([compare(ran.blocks).step_ns for ran in sides[side]] for side in (False, True))
    saved, margin = _difference(without, changed_paces)
    return [
        Removal(
            id=remedy,
            promised_ns=promised_ns(report, remedy, float(np.mean(without))),
            measured_ns=(round(saved - margin), round(saved + margin)),
            outputs=_outputs(*(ran.losses for ran in (*sides[False][:2], sides[True][0]))),
        )
    ]


def _difference(without: Sequence[float], changed: Sequence[float]) -> tuple[float, float]:
    """Of the means, and half the width of its interval (Student's t, the same spread on both sides)."""
    freedom = len(without) + len(changed) - 2
    spread = (len(without) - 1) * np.var(without, ddof=1) + (len(changed) - 1) * np.var(changed, ddof=1)
    error = (spread / freedom * (1 / len(without) + 1 / len(changed))) ** 0.5
    return float(np.mean(without) - np.mean(changed)), float(error) * student_quantile(freedom)


def _outputs(before: Sequence[float | None], again: Sequence[float | None], after: Sequence[float | None]) -> str:
    if list(before) != list(again):
        return "The program's losses differ from run to run by themselves: give it a seed to compare them."
    pairs = [(one, other) for one, other in zip(before, after, strict=False) if one is not None and other is not None]
    if not pairs:
        return "No losses were seen to compare."
    if all(one == other for one, other in pairs):
        return f"The first {len(pairs)} losses are equal to the bit."
    most = max(abs(other - one) / max(abs(one), abs(other)) for one, other in pairs if one != other)
    return f"The first {len(pairs)} losses differ by up to {100 * most:.2g} %."
