"""What the rules on launches share: the figures of those that a match is about, and the match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boundby.evidence.context import MOST_EXAMPLES, Rows, RuleContext, SavingNs
from boundby.evidence.device_work import device_work, kernel_name
from boundby.evidence.host_idleness import behind_input
from boundby.evidence.launches import Part, launches
from boundby.model.causes import Cause
from boundby.results.report import Example
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, Threshold

# Launches that repeat in no fixed order are small-batch's, if most of their kernels are small, else launch-overhead's.
SMALL_BATCH = "small-batch"
SMALL = Threshold("small_fraction", 0.7, "fraction", "Single small kernels are part of every program.")
COUNT = Threshold("count", 100, "launches", "Fewer cannot take a share of the time that matters.")
SHARE = Threshold("share_fraction", 0.3, "fraction of launches", "Fewer are the odds and ends beside what repeats.")


@dataclass(frozen=True)
class LaunchSet:
    """The launches that a match is about: all of one part of `launches`."""

    context: RuleContext
    part: Part

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rows(self) -> Rows:
        """Rows of `launches`."""
        return launches(self.context).rows(self.part)

    @property
    def kernels(self) -> KernelSet:
        """What they launched."""
        return KernelSet(self.context, launches(self.context).operation[self.rows])

    @property
    def median_ns(self) -> float:
        """The median of their kernels' durations."""
        return float(np.median(self.kernels.duration_ns))

    @property
    def between_ns(self) -> int | None:
        """The host's median time from launch to launch; None where others come in between."""
        gap_ns = launches(self.context).gap_ns[self.rows]
        return round(float(np.median(gap_ns[gap_ns >= 0]))) if (gap_ns >= 0).any() else None

    @property
    def with_shape(self) -> Rows:
        """The operations of which the trace tells the launch shape, and how many multiprocessors the GPU has."""
        work, rows = device_work(self.context), self.kernels.rows
        return rows[(work.blocks[rows] > 0) & (work.multiprocessors[rows] > 0)]

    @property
    def small_share(self) -> float:
        """Share of these kernels with fewer blocks than the GPU has multiprocessors."""
        work, rows = device_work(self.context), self.with_shape
        return float((work.blocks[rows] < work.multiprocessors[rows]).mean()) if len(rows) else 0.0

    @property
    def are_small(self) -> bool:
        """Whether they are small-batch's to tell of."""
        return self.small_share >= SMALL.of(self.context, SMALL_BATCH)

    def are_many(self, rule: Rule) -> bool:
        """Whether they are enough, in number and of all, and the GPU idles for launches at all."""
        context = self.context
        least = max(rule.threshold(context, "count"), rule.threshold(context, "share_fraction") * self._of_all)
        return len(self) >= least and context.time_ns(Cause.CUDA_API) >= context.least_ns

    @property
    def _of_all(self) -> int:
        return len(launches(self.context).call)

    def saving_ns(self, rule: Rule, *causes: Cause) -> SavingNs:
        """What launching them in no time would save, and of that the part that the rule supposes."""
        low, high = launches(self.context).saving(self.context, self.part, *causes)
        least, most = (rule.threshold(self.context, name) for name in ("avoided_least", "avoided_most"))
        return round(least * low), round(most * high)

    def match(self, title: str, evidence: dict[str, object], saving_ns: SavingNs, advice: tuple[str, ...]) -> Match:
        """The match. Nothing is sure to be saved where processes that make the input set the pace."""
        context, work, shaped = self.context, device_work(self.context), self.with_shape
        behind = behind_input(context)
        counts: dict[str, object] = {
            "count": len(self),
            "kernel_median_ns": round(self.median_ns),
            "launch_to_launch_median_ns": self.between_ns,
        }
        if len(shaped):
            counts["small_grid_fraction"] = round(self.small_share, 4)
            counts["multiprocessors"] = int(work.multiprocessors[shaped].max())
        return Match(
            region=self.region,
            title=f"{title}{behind}",
            evidence={**counts, **evidence},
            saving_ns=(0 if behind else saving_ns[0], saving_ns[1]),
            advice=advice,
            examples=self._examples(),
            instances=len(self),
        )

    @property
    def region(self) -> int:
        """The region that made these launches, each counting alike."""
        region = self.context.timeline.launch_region[self.kernels.rows]
        return self.context.place(region, np.ones(len(region), np.int64))

    def _examples(self) -> tuple[Example, ...]:
        """The longest waits of the host from one launch to the next."""
        all_of_them, start_ns = launches(self.context), self.context.calls.start_ns
        later = self.rows[all_of_them.gap_ns[self.rows] >= 0]
        longest = later[np.lexsort((later, -all_of_them.gap_ns[later]))][:MOST_EXAMPLES].tolist()
        examples = []
        for row in longest:
            gap_ns = int(all_of_them.gap_ns[row])
            what = f"from the launch before to that of {kernel_name(self.context, int(all_of_them.operation[row]))}"
            examples.append(Example(int(start_ns[all_of_them.call[row]]) - gap_ns, gap_ns, what))
        return tuple(examples)
