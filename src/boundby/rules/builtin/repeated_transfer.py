"""Data that travels to the host and back in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from boundby.evidence.context import Int, Rows, RuleContext, once
from boundby.evidence.transfers import Transfer, transfers
from boundby.model.arrays import group_sums, is_in, unique
from boundby.model.causes import Cause
from boundby.model.scale import HABIT
from boundby.model.units import count, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule
from boundby.trace.program import ProgramKind
from boundby.trace.tables import Construct

# Constructs of OpenACC around a program's operations: which directive moves which variable, at which line.


class Directive(NamedTuple):
    """A directive of the source, with the variables that it and its parts name."""

    construct: Construct
    variables: tuple[str, ...]

    @property
    def sentinel(self) -> str:
        """How directives begin in the language of the file."""
        is_fortran = self.construct.file.rpartition(".")[2].lower().startswith("f")
        return "!$acc" if is_fortran else "#pragma acc"


def directives_of(context: RuleContext, operations: Rows) -> tuple[Directive, ...]:
    """The directives inside which these operations were launched, those with most of their time first."""
    outermost, tree = _outermost(context), context.tree
    owner = outermost[context.timeline.launch_region[operations]]
    inside = owner >= 0
    table = context.operations
    time_ns = group_sums(owner[inside], (table.end_ns - table.start_ns)[operations][inside], len(tree))
    regions = np.flatnonzero(time_ns)
    constructs = _constructs(context)
    directives = []
    for region in regions[np.lexsort((regions, -time_ns[regions]))].tolist():
        parts = [constructs[part] for part in np.flatnonzero(outermost == region).tolist() if part in constructs]
        variables = dict.fromkeys(part.variable for part in parts if part.variable)
        directives.append(Directive(constructs[region], tuple(variables)))
    return tuple(directives)


@once
def _constructs(context: RuleContext) -> dict[int, Construct]:
    """The construct of each region that is one of a known place."""
    constructs = {name: construct for name, construct in context.trace.constructs.items() if construct.place}
    if not constructs:
        return {}
    ranges, of_range = context.trace.ranges, context.tree.of_range
    rows = np.flatnonzero(is_in(ranges.name, sorted(constructs)))
    first = rows[np.unique(of_range[rows], return_index=True)[1]]
    return {int(of_range[row]): constructs[int(ranges.name[row])] for row in first.tolist()}


@once
def _outermost(context: RuleContext) -> Int:
    """Of each region the outermost construct that it lies in, itself included; -1: none."""
    tree, constructs = context.tree, _constructs(context)
    outermost = np.full(len(tree), -1, np.int64)
    for region in unique(np.fromiter(constructs, np.int64, len(constructs))).tolist():  # parents come before children
        if outermost[region] < 0:
            outermost[tree.subtree(region)] = region
    return outermost


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
    where = " and ".join(directive.construct.place for directive in directives)
    return (
        f"{directives[0].sentinel} data copy({variables}) around the loop that holds {where} keeps the data on the "
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
    where = ", ".join(directive.construct.place for directive in directives)
    whose = f" ({where})" if where else ""
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
