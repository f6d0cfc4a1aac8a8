"""What the rules on launches share: the figures of those that a match is about, and the match."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import MOST_EXAMPLES, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import device_work, kernel_name
from boundby.evidence.interruptions import held_up_ns
from boundby.evidence.launches import Launches, Part, launches
from boundby.model.arrays import as_rows, factorize, group_counts, largest, median, pick
from boundby.model.causes import Cause
from boundby.model.scale import MOST, QUARTER
from boundby.model.units import percent
from boundby.results.report import Example
from boundby.rules.builtin._operations import MOSTLY_INSIDE, KernelSet
from boundby.rules.rule import Match

# Launches, messages or collectives of which each has its price: a hundred; fewer take no share of the time.
ENOUGH = 100


class LaunchSet(Struct, frozen=True):
    """The launches that a match is about: all of one part, at least one."""

    context: RuleContext
    part: Part
    of: Launches
    call: Rows
    gap_ns: npt.NDArray[np.integer]  # from the launch before each, or -1
    kernels: KernelSet  # what they launched
    median_ns: float  # of the kernels' durations
    between_ns: int | None  # the host's median time from launch to launch; None where others always come in between
    small_share: float | None  # kernels with fewer blocks than the GPU has multiprocessors; None: not told of any
    multiprocessors: int  # of the largest GPU that they run on; 0 where that is not told

    def __len__(self) -> int:
        return len(self.call)

    @property
    def are_small(self) -> bool:
        """Whether they are small-batch's to tell of: most of their kernels are; else launch-overhead's."""
        return (self.small_share or 0.0) >= MOST

    @property
    def region(self) -> int:
        """The region that made these launches, each counting alike."""
        return self.context.place(self._regions)

    @property
    def _regions(self) -> npt.NDArray[np.integer]:
        return self.context.timeline.launch_region[self.kernels.at]

    @property
    def cost_ns(self) -> int:
        """The host's time from launch to launch, and the kernels' own: no change to launches saves more. Where another
        process takes the device in turns, without what that adds to both: launches wait for a full queue meanwhile."""
        held_ns = held_up_ns(self.context, self.kernels.rows)
        if held_ns and len(gap_ns := self.gap_ns[self.gap_ns > 0]):
            return round(float(median(gap_ns))) * len(gap_ns) + self.kernels.total_ns - held_ns
        return int(np.maximum(self.gap_ns, 0).sum()) + self.kernels.total_ns

    def saving_ns(self, least: float, most: float, *causes: Cause) -> SavingNs:
        """What launching them at no cost would save, and of that the part that the rule supposes."""
        low, high = self.of.saving(self.context, self.part, *causes)
        return round(least * low), round(most * high)

    def match(self, title: str, evidence: dict[str, object], saving_ns: SavingNs, advice: tuple[str, ...]) -> Match:
        """The match."""
        figures: dict[str, object] = {
            "count": len(self),
            "kernel_median_ns": round(self.median_ns),
            "launch_to_launch_median_ns": self.between_ns,
        }
        if self.small_share is not None:
            figures["small_grid_fraction"] = round(self.small_share, 4)
            figures["multiprocessors"] = self.multiprocessors
        region = self.region
        inside = float(pick(self.context.tree.subtree(region), self._regions, False).mean())
        if inside < MOSTLY_INSIDE:
            title += f"; {percent(inside)} of these launches lie in this region"
        return Match(
            region=region,
            title=title,
            evidence={**figures, **evidence},
            saving_ns=saving_ns,
            advice=advice,
            examples=self._examples(),
            instances=len(self),
            cost_ns=self.cost_ns,
            where=line_of_calls(self.context, self.call, np.maximum(self.gap_ns, 1)),
        )

    def _examples(self) -> tuple[Example, ...]:
        """The longest waits of the host from one launch to the next."""
        longest = largest(self.gap_ns, MOST_EXAMPLES)
        longest = longest[self.gap_ns[longest] >= 0]
        names = [kernel_name(self.context, row) for row in self.kernels.rows[longest].tolist()]
        started, gaps = self.context.calls.start_ns[self.call[longest]].tolist(), self.gap_ns[longest].tolist()
        return tuple(
            Example(start_ns - gap_ns, gap_ns, f"from the previous launch to that of {name}")
            for start_ns, gap_ns, name in zip(started, gaps, names, strict=True)
        )


def launched(context: RuleContext, part: Part) -> LaunchSet | None:
    """The launches of one part; None without any."""
    work, of = device_work(context), launches(context)
    rows = as_rows(of.part == part)  # most often all, which copies nothing
    kernels, gap_ns = KernelSet(context, of.operation[rows]), of.gap_ns[rows]
    if len(kernels) == 0:
        return None
    pairs, of_kernel = factorize(work.blocks.number[kernels.at], work.multiprocessors.number[kernels.at])
    blocks, multiprocessors = work.blocks.of(pairs[:, 0]), work.multiprocessors.of(pairs[:, 1])
    times = np.where((blocks > 0) & (multiprocessors > 0), group_counts(of_kernel, len(pairs)), 0)
    shaped = int(times.sum())
    return LaunchSet(
        context,
        part,
        of,
        of.call[rows],
        gap_ns,
        kernels,
        median_ns=float(median(kernels.duration_ns)),
        between_ns=round(median(known_ns)) if len(known_ns := gap_ns[gap_ns >= 0]) else None,
        small_share=int(times[blocks < multiprocessors].sum()) / shaped if shaped else None,
        multiprocessors=int(multiprocessors[times > 0].max(initial=0)),
    )


@once
def _rest(context: RuleContext) -> LaunchSet | None:
    return launched(context, Part.REST)


def in_no_order(context: RuleContext) -> LaunchSet | None:
    """The launches that repeat in no fixed order, if they are enough, in number and of all, and the GPU idles for
    launches at all."""
    if context.time_ns(Cause.CUDA_API) < context.least_ns:
        return None
    some = _rest(context)
    share = QUARTER * len(launches(context).call)
    return None if some is None or len(some) < max(ENOUGH, share) else some
