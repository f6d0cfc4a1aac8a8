"""Data that travels to the host and back in every step."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, place_of, saving_without
from boundby.evidence.transfers import Transfer, copy_evidence, copy_examples, transfers
from boundby.model.causes import Cause
from boundby.model.units import count, duration, size
from boundby.rules.rule import Match, Rule, Threshold

_BETWEEN = "What the host does with them in between moves to the device too, or reads only the part it needs"
_ADVICE: dict[str, tuple[str, ...]] = {
    "torch": (
        "Keep the tensors on the device: no .cpu() or .numpy() inside the loop, one before it and one after",
        _BETWEEN,
    ),
    "openmp": (
        "#pragma omp target data map(tofrom: u[0:n]) around the loop (OpenACC: #pragma acc data copy(u[0:n])) keeps "
        "the arrays on the device from step to step",
        _BETWEEN,
    ),
    "cuda": ("Copy once before the loop and once after it: device memory keeps its content between kernels", _BETWEEN),
}


def _check(context: RuleContext) -> Iterator[Match]:
    work, found = device_work(context), transfers(context)
    rows = found.rows(Transfer.RETURNS)
    if found.returns < RULE.threshold(context, "returns") or int(work.exposed_ns[rows].sum()) < context.least_ns:
        return
    evidence = copy_evidence(context, rows)
    total, common = int(str(evidence["total_ns"])), int(str(evidence["commonest_size_bytes"]))
    at_a_time = len(rows) / 2 / found.returns  # copies each way
    byte_count = int(str(evidence["bytes"])) / 2 / found.returns
    alike = evidence["commonest_size_count"] == len(rows) and at_a_time == round(at_a_time) > 1
    what = f"{round(at_a_time)} x {size(common)}" if alike else size(byte_count)
    yield Match(
        region=place_of(context, rows),
        title=f"{what} go to the host and as much comes back, {count(found.returns)} times: {duration(total)} of "
        "copies",
        evidence={
            **evidence,
            "is_without_first_in_and_last_out": True,
            "returns": found.returns,
            "bytes_each_way_and_time": round(byte_count),
        },
        saving_ns=saving_without(context, Cause.GPU_COPY, rows),
        advice=_ADVICE.get(context.framework, _ADVICE["cuda"]),
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="repeated-transfer",
    title="The same amount of data goes out and comes back every step",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(Threshold("returns", 3, "count", "Twice can be a beginning and an end."),),
)
