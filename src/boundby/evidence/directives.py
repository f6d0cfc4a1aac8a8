"""Constructs of OpenACC around a program's operations: which directive moves which variable, at which line."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boundby.evidence.context import Int, Rows, RuleContext, once
from boundby.model.arrays import group_sums, is_in, unique
from boundby.trace.tables import Construct


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
    known = {name: one for name, one in context.trace.constructs.items() if one.place}
    if not known:
        return {}
    ranges, of_range = context.trace.ranges, context.tree.of_range
    rows = np.flatnonzero(is_in(ranges.name, sorted(known)))
    first = rows[np.unique(of_range[rows], return_index=True)[1]]
    return {int(of_range[row]): known[int(ranges.name[row])] for row in first.tolist()}


@once
def _outermost(context: RuleContext) -> Int:
    """Of each region the outermost construct that it lies in, itself included; -1: none."""
    tree, constructs = context.tree, _constructs(context)
    outermost = np.full(len(tree), -1, np.int64)
    for region in unique(np.fromiter(constructs, np.int64, len(constructs))).tolist():  # parents come before children
        if outermost[region] < 0:
            outermost[tree.subtree(region)] = region
    return outermost
