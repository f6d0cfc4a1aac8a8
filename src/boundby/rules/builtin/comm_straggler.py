"""One GPU comes late to the collectives, and all others wait for it inside theirs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from boundby.evidence.collectives import collectives
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.model.arrays import median
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, MOST
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    trace = context.trace
    if not context.operations.is_communication.any():
        return
    if len(context.timeline.devices) < 2:
        raise CannotCheckError("the report holds the communication of one GPU only: profile all ranks into one report")
    matched = collectives(context)
    if matched is None:
        raise CannotCheckError("the GPUs' communication kernels do not match one to one")
    last = np.argmax(matched.start_ns, axis=0)
    times_last = np.bincount(last, minlength=len(matched.devices))
    late = int(np.argmax(times_last))
    often = float(times_last[late]) / max(len(last), 1)
    others = np.delete(np.arange(len(matched.devices)), late)
    waited = int(matched.waited_ns[others][:, last == late].sum()) // len(others)
    if len(last) < HABIT or often < MOST:
        return
    if waited < context.least_ns:
        return
    gpu = trace.gpus[matched.devices[late]].id
    lateness = matched.start_ns[late] - np.median(matched.start_ns[others], axis=0).astype(np.int64)
    name = trace.names[int(context.operations.name[matched.row[late][0]])]
    yield Match(
        region=context.place(context.timeline.launch_region[matched.row[late]], np.maximum(lateness, 0)),
        title=f"GPU {gpu} comes last to {percent(often)} of {len(last):,} collectives, and the others wait "
        f"{duration(waited)} for each",
        evidence={
            "gpu": gpu,
            "collectives": len(last),
            "last_fraction": round(often, 4),
            "median_lateness_ns": int(median(lateness)),
            "others_waited_ns": waited,
            "kernel": name,
        },
        saving_ns=(0, waited),
        advice=(
            f"Compare GPU {gpu} with another: boundby analyze {shlex.quote(trace.path)} --device {gpu}. Its own bound "
            "says why it is late: more or longer input (uneven batches), host work on its rank (logging, saving), a "
            "slower or hotter GPU",
        ),
        examples=tuple(
            Example(
                int(matched.start_ns[:, number].min()),
                int(lateness[number]),
                f"{name}: GPU {gpu} {duration(int(lateness[number]))} after the others",
            )
            for number in np.argsort(-lateness, kind="stable")[:3].tolist()
        ),
        instances=len(last),
        is_unsure=True,
        facts={"gpu": gpu},
    )


RULE = Rule(
    id="comm-straggler",
    title="One GPU is late to the collectives",
    group="gpu_comm",
    cause=Cause.GPU_COMM,
    check=_check,
    needs=("kernels",),
)
