"""Work arrives at a pace that something outside of the program sets, and the GPU and the host keep up with it."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.attribution.regions import ROOT
from boundby.evidence.context import RuleContext
from boundby.evidence.host_idleness import external_pace
from boundby.model.causes import Cause
from boundby.model.units import count, duration
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    pace = external_pace(context)
    if pace is None:
        return
    thread = context.trace.threads[pace.thread]
    region = context.timeline.step_region
    yield Match(
        region=ROOT if region is None else region,
        title=f"work arrives every {duration(pace.period_ns)} ({count(pace.periods)} times, thread "
        f"{thread.name or thread.tid} wakes for it), and of that time the GPU works {duration(pace.gpu_ns)} and the "
        f"busiest thread {duration(pace.host_ns)}: there is nothing to gain below {duration(pace.period_ns)}",
        evidence={
            "period_ns": pace.period_ns,
            "periods": pace.periods,
            "gpu_ns_of_each": pace.gpu_ns,
            "busiest_thread_ns_of_each": pace.host_ns,
            "thread": thread.tid,
        },
        saving_ns=None,
        advice=(
            "Use a faster source (a camera with more frames a second, a timer, a sender), or several, for more "
            "throughput. For lower latency, look at one period alone, from the arrival to the end of its GPU work",
        ),
        examples=(Example(pace.low_ns, pace.high_ns - pace.low_ns, "from the first arrival to the last"),),
        severity="low",
        instances=pace.periods,
    )


RULE = Rule(
    id="external-pace",
    title="Work arrives at a pace set outside of the program",
    group="host",
    cause=Cause.HOST_BLOCKED,
    check=_check,
    needs=("cuda_api", "cpu_scheduling"),
)
