"""Data that travels to the host and back in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.evidence.context import RuleContext
from boundby.evidence.directives import Directive, directives_of
from boundby.evidence.transfers import Transfer, transfers
from boundby.model.causes import Cause
from boundby.model.scale import HABIT
from boundby.model.units import count, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule
from boundby.trace.program import ProgramKind

_ADVICE = {
    "torch": "Keep the tensors on the device: no .cpu() or .numpy() inside the loop, one before it and one after",
    "directives": "#pragma omp target data map(tofrom: u[0:n]) around the loop (OpenACC: #pragma acc data "
    "copy(u[0:n])) keeps the arrays on the device from step to step",
    "cpp": "Copy once before the loop and once after it: device memory keeps its content between kernels",
}


def _region_code(directives: Sequence[Directive]) -> str:
    """The directive around the loop, as code."""
    variables = ", ".join(dict.fromkeys(name for directive in directives for name in directive.variables)) or "..."
    return f"{directives[0].sentinel} data copy({variables})  // around the loop"


def _data_region(directives: Sequence[Directive]) -> str:
    """The directive that keeps on the device what these move at every pass."""
    variables = ", ".join(dict.fromkeys(name for directive in directives for name in directive.variables)) or "..."
    places = " and ".join(directive.construct.place for directive in directives)
    return (
        f"{directives[0].sentinel} data copy({variables}) around the loop that holds {places} keeps the data on the "
        f"device; inside it, present({variables}) instead of copies"
    )


# Where nothing says that it is the same data: what is done in either case.
_OTHERWISE = "If each copy moves another piece of a larger whole, copy it while the kernels of the piece before run"


def _check(context: RuleContext) -> Iterator[Match]:
    returns = transfers(context).returns
    copies = CopySet(context, transfers(context).rows(Transfer.RETURNS))
    if returns < HABIT or copies.exposed_ns < context.least_ns:
        return
    at_a_time, bytes_each_way = len(copies) / 2 / returns, copies.byte_count / 2 / returns
    common, times = copies.common_size
    alike = times == len(copies) and at_a_time == round(at_a_time) > 1
    what = f"{round(at_a_time)} x {size(common)}" if alike else size(bytes_each_way)
    directives = sorted(directives_of(context, copies.rows)[:2])
    places = ", ".join(directive.construct.place for directive in directives)
    whose = f" ({places})" if places else ""
    is_same = bool(directives) or context.program.kind == ProgramKind.DIRECTIVES  # their mapped arrays
    low, high = copies.saving_without(Cause.GPU_COPY)
    keep = _data_region(directives) if directives else context.program.pick(_ADVICE["cpp"], **_ADVICE)
    yield copies.match(
        f"{what}{whose} go to the host and as much comes back, {count(returns)} times: {copies.took} of copies",
        copies.evidence(
            is_without_first_in_and_last_out=True, returns=returns, bytes_each_way_and_time=round(bytes_each_way)
        ),
        (low if is_same else 0, high),
        (
            *((keep,) if is_same else (f"If it is the same data, {keep[0].lower()}{keep[1:]}", _OTHERWISE)),
            "Move what the host does with the data in between to the device, or read only the part that the host needs",
        ),
        cost_ns=copies.total_ns,
    ).advising(code=_region_code(directives) if directives else "")


RULE = Rule(
    id="repeated-transfer",
    title="The same amount of data goes out and comes back every step",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
)
