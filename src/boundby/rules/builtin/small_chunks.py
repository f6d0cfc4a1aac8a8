"""Work cut into chunks so small that calling takes longer than running them."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.chunks import chunks, saving_by_size, times_larger
from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.scale import HALF
from boundby.model.units import duration, percent, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    found = chunks(context)
    if found is None or found.calls_ns < HALF * context.longest_window_ns:
        return
    copies, larger = CopySet(context, found.copies), times_larger(context, found)
    yield copies.match(
        f"the chunks of {size(found.bytes_each)} are too small: a copy or kernel runs for {duration(found.run_ns)} "
        f"(median) and takes {duration(found.call_ns)} to call; the calls take "
        f"{percent(min(found.calls_ns / max(context.longest_window_ns, 1), 1.0))} of the window, and the copies reach "
        f"{copies.bytes_per_ns:.2g} GB/s",
        copies.evidence(
            call_median_ns=round(found.call_ns),
            run_median_ns=round(found.run_ns),
            calls_ns=found.calls_ns,
            kernel_count=len(found.kernels),
            times_larger=larger,
        ),
        saving_by_size(context, found),
        (
            f"Larger chunks, so that a copy or kernel runs for several times as long as its call: here "
            f"{size(found.bytes_each * larger)} each; two or three chunks in flight hide copies as well as many",
        ),
        cost_ns=found.span_ns,
    ).advising(larger=larger)


RULE = Rule(
    id="small-chunks",
    title="Chunks too small to be worth a call each",
    group="cuda_api",
    causes=(Cause.CUDA_API, Cause.GPU_COPY, Cause.GPU_COMPUTE),
    check=_check,
    needs=("kernels", "cuda_api", "memcpy"),
)
