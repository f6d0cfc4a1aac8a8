"""Items that a program works on one after the other, and could work on as one batch.

A step that launches the same few kernels again and again may do so for its items, or for the layers of a model. Layers
need each other's results, so that no batch joins them. Only names tell the two apart, or a wait in each round: nobody
waits after every layer.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.evidence.context import RuleContext, SavingNs, once
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work
from boundby.evidence.launches import launches
from boundby.model.arrays import is_any, median
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, HALF, MOST
from boundby.model.units import count
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.operator_names import is_operator
from boundby.trace.vocabulary.range_names import is_item


class Items(Struct, frozen=True):
    """``each`` rounds of ``kernels`` launches stand in every instance of what holds them."""

    region: int  # that holds the rounds
    each: int
    kernels: int
    is_named: bool  # the rounds have ranges of their own
    has_small_grids: bool  # a kernel of all items may take no longer than one of a single item

    @property
    def text(self) -> str:
        """``80 rounds of 18 kernels each stand in every frame``."""
        return f"{count(self.each)} rounds of {count(self.kernels)} kernels each"

    def saving(self, context: RuleContext) -> SavingNs | None:
        """What one round in place of all saves: at least the launches and waits of the others; at most all of their
        time, but that of kernels which fill the GPU, since these take as long for all items as one after the other."""
        left, inside = 1 - 1 / self.each, context.subtree(self.region)
        found = context.saving((Cause.SYNC.key, Cause.CUDA_API.key), regions=inside)
        if found is None:
            return None
        time = context.figures.inclusive[self.region] // max(len(context.timeline.devices), 1)
        most_ns = int(time.sum()) - (0 if self.has_small_grids else int(time[Cause.GPU_COMPUTE]))
        return round(left * min(found[0], most_ns)), round(left * most_ns)


@once
def items(context: RuleContext) -> Items | None:
    """The items that most of the launches are made for; None: nothing says that there are any."""
    work, of = device_work(context), launches(context)
    if not len(of.call) or median(work.duration_ns[of.operation]) > SHORT_KERNEL_NS:
        return None
    blocks, room = work.blocks[of.operation], work.multiprocessors[of.operation]
    is_small = not bool(((blocks >= room) & (room > 0)).mean() > HALF)
    found = _named(context) or _waited_for(context)
    return found and Items(*found, has_small_grids=is_small)


def _named(context: RuleContext) -> tuple[int, int, int, bool] | None:
    """Ranges that are numbered as items are, several in each range around them."""
    tree, of = context.tree, launches(context)
    instances = np.bincount(tree.of_range, minlength=len(tree))
    regions = context.timeline.launch_region[of.operation]
    for region in range(1, len(tree)):  # the outermost first
        parent, name = int(tree.parent[region]), tree.name[region]
        each = instances[region] / max(int(instances[parent]), 1)
        if parent == ROOT or each < HABIT or not is_item(name) or is_operator(name):
            continue
        inside = int(np.count_nonzero(context.subtree(region)[regions]))
        if inside >= HALF * len(of.call):
            return region, round(each), max(round(inside / int(instances[region])), 1), True
    return None


def _waited_for(context: RuleContext) -> tuple[int, int, int, bool] | None:
    """Rounds that repeat in the launches of a step, with a wait in each."""
    of = launches(context)
    if not of.units:
        return None
    kernels, times = of.units[0]
    region = context.place(context.timeline.launch_region[of.operation])
    turns = int(np.count_nonzero(context.tree.of_range == region))
    waits = int(np.count_nonzero(is_any(context.calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))))
    if region == ROOT or not turns or times < HABIT * turns or waits < MOST * times:
        return None
    return (region, round(times / turns), kernels, False) if kernels * times >= HALF * len(of.call) else None
