"""Data that travels to the host and back in every step."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.copying import copy_evidence, copy_examples
from boundby.evidence.devicework import device_work, framework, place_of, saving_without
from boundby.evidence.transfers import Transfer, transfers
from boundby.model.causes import Cause
from boundby.model.units import count, duration, size
from boundby.rules.rule import Match, Remedy, Rule, Threshold

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
    work, found = context.once(device_work), context.once(transfers)
    rows = found.rows(Transfer.RETURNS)
    if found.returns < context.threshold(RULE, "returns") or int(work.exposed_ns[rows].sum()) < context.least_ns:
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
        advice=_ADVICE.get(context.once(framework), _ADVICE["cuda"]),
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="repeated-transfer",
    title="The same amount of data goes out and comes back every step",
    group="gpu_copy",
    picture="""\
GPU  | u in | kernel | u out | u in | kernel | u out | u in | kernel | u out |
then | u in | kernel | kernel | kernel | ...                         | u out |
""",
    meaning="""\
Offloaded loops often map their data anew for each kernel: everything goes to the device, one kernel runs, everything
comes back, and the next step sends it again.

Told by copies of one size, 1 MiB or more, that go to the host and are followed by copies of exactly that size to the
device, at least three times, sooner than any host could write as many bytes (20 GB/s), with kernels in between. So what
comes in is what went out, or had been lying ready. Which of the two a timeline cannot show. The first way in and the
last way out are not counted: those have to be. The saving is the replay of the trace without the others. Where the
data are new each time, nothing of it can be had.
""",
    remedies=(
        Remedy(
            "PyTorch: stay on the device.",
            'u = u.to("cuda")\nfor _ in range(steps):\n    u = step(u)\nresult = u.cpu()',
        ),
        Remedy(
            "OpenMP and OpenACC: one data region around the loop.",
            "#pragma omp target data map(tofrom: u[0:n], next[0:n])\n"
            "for (int i = 0; i < steps; ++i) {\n"
            "    #pragma omp target teams distribute parallel for\n"
            "    for (int j = 0; j < n; ++j) next[j] = f(u, j);\n"
            "    swap(u, next);\n}",
            language="cpp",
            caution="Host code inside the region sees old values: #pragma omp target update from(...) for what it "
            "reads. Swapping host pointers swaps their device twins.",
        ),
        Remedy(
            "MPI: let the library read device memory (CUDA-aware MPI).",
            "MPI_Sendrecv(device_send, n, MPI_DOUBLE, right, 0, device_receive, n, MPI_DOUBLE, left, 0, comm,\n"
            "             MPI_STATUS_IGNORE);",
            language="cpp",
            caution="Needs an MPI built for CUDA: ompi_info --parsable | grep cuda.",
        ),
    ),
    disproof="What comes in is new data of the same size that lay ready (a list of images, each with a result as "
    "large), or the host changes some of it in between in ways that only it can.",
    check=_check,
    needs=("memcpy",),
    thresholds=(Threshold("returns", 3, "count", "Twice can be a beginning and an end."),),
    see_also=("pageable-copy", "copy-overlap", "managed-memory"),
)
