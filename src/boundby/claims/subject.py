"""What first responses are for: a device or a region, with what its findings and a replay say of a change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache, cached_property
from typing import NamedTuple

from msgspec import Struct

from boundby.claims.laws import Claim, ClaimedSaving, Wholes
from boundby.claims.signs import Part
from boundby.evidence.context import Bool, RuleContext
from boundby.evidence.device_work import device_work
from boundby.model.causes import BUSY_CAUSES
from boundby.model.units import place
from boundby.replay.predictor import Predictor
from boundby.replay.questions import answer
from boundby.results.report import CodeLine, DeviceReport, Finding, RegionReport
from boundby.rules.builtin import builtin
from boundby.rules.remedies import Remedy, common_facts
from boundby.rules.rule import Rule
from boundby.trace.vocabulary.kernel_names import KernelKind

SavingNs = tuple[int, int]
# What is tried first: what takes one command, what a rule has found, what only a replay says, what has to be bought.
AT_ONCE = -1
FOUND, REPLAYED, BOUGHT, UNNUMBERED, NOTHING = range(5)
NO_REPLAY = "no number: a replay of this trace cannot be trusted"


class Told(NamedTuple):
    """What this trace says of one remedy."""

    because: str
    saving_ns: SavingNs | None = None
    action: str = ""
    command: str = ""
    rank: int = REPLAYED
    title: str = ""  # of what was found; empty: the remedy's
    code: str = ""
    where: CodeLine | None = None
    rule: str = ""  # that found it
    is_guess: bool = False  # the saving: it ranks, and is not told
    is_shown: bool = True  # the trace shows what is wrong; False: somebody has to look for it
    other: str = ""  # the cause, where it is another than the verdict's
    causes: frozenset[str] | None = None  # of which it takes time; empty: of any; None: its rule's, else its pattern's


class Subject(Struct, frozen=True, kw_only=True, dict=True):
    """What a card is for: a device, or a region (``is_part``)."""

    context: RuleContext
    predictor: Predictor | None  # None: nothing can be replayed to be trusted
    findings: tuple[Finding, ...]
    part: Part
    wholes: Wholes
    device: int = -1  # its place among the devices; of a region -1
    options: str = ""  # what makes a command look at the same part of the report

    @property
    def is_part(self) -> bool:
        return isinstance(self.part, RegionReport)

    @property
    def window_ns(self) -> int:
        return max(sum(self.part.time.values()), 1)

    @property
    def busy_ns(self) -> int:
        """What the host's work could hide behind."""
        return sum(self.part.time[cause.key] for cause in BUSY_CAUSES)

    def closed(self, bound: str, told: Told) -> Told:
        """A response with no more of a saving than the laws allow: its finding's causes are its, else its pattern's."""
        if told.saving_ns is None:
            return told
        rule = rules().get(told.rule)
        causes = told.causes
        if causes is None:
            causes = (rule.takes if rule is not None else frozenset()) or frozenset((bound,))
        region = self.part.path if isinstance(self.part, RegionReport) else None
        claim = Claim(bound, causes, ClaimedSaving(*told.saving_ns), region)
        saving = self.wholes.closed(claim, None if self.is_part else [self.device_id])
        return told._replace(saving_ns=(saving.low_ns, saving.high_ns))

    @property
    def device_id(self) -> int:
        return self.part.id if isinstance(self.part, DeviceReport) else -1

    @property
    def device_index(self) -> int:
        """As rows of operations name it."""
        return self.context.timeline.devices[self.device].index

    @property
    def is_in_graphs(self) -> bool:
        """Most of the work runs in graphs that were recorded as one operation each."""
        graphs = self.part.graphs
        return graphs is not None and graphs.total_ns > self.part.kernels.total_ns

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """What every row of the table may name."""
        return common_facts(self.context.trace, is_python=self.context.program.is_python)

    def code(self, row: Remedy) -> str:
        """A remedy as code, where no finding gives it."""
        return row.code(self.context.program, self.facts, is_of_amd=self.context.trace.is_of_amd)

    def what_if(self, scenario: str) -> str:
        """The command that answers a question; the scenario always in quotes."""
        quoted = f"'{scenario}'" if "'" not in scenario else shlex.quote(scenario)
        return f"boundby what-if {self.facts['report']} -s {quoted}{self.options}"

    @cached_property
    def kernels(self) -> Bool:
        """Which operations are kernels of the window."""
        return device_work(self.context).is_kernel

    @cached_property
    def kernel_ns(self) -> int:
        return max(int(device_work(self.context).duration_ns[self.kernels].sum()), 1)

    def kind_share(self, *kinds: KernelKind) -> float:
        """Of kernel time."""
        work = device_work(self.context)
        return int(work.duration_ns[work.kernels_of(kinds)].sum()) / self.kernel_ns

    def found(self, remedy: str) -> Told | None:
        """What the best finding says that asks for this remedy."""
        best = max((item for item in self.findings if _saves(item) and item.remedy == remedy), key=weight, default=None)
        return None if best is None else self.of_finding(best)

    def of_finding(self, item: Finding) -> Told:
        """What a finding says."""
        return Told(
            item.title if self.is_part else f"{item.title}{within(item)}",
            item.saving_ns,
            item.advice[0] if item.advice else "",
            f"boundby explain {item.rule}",
            rank=FOUND,
            title=item.change,
            code=item.code,
            where=item.where,
            rule=item.rule,
        )

    def tells(self, *of_rules: str) -> bool:
        """Whether one of these rules has found anything, be it a note that saves nothing."""
        return any(item.rule in of_rules for item in self.findings)

    def replayed(self, scenario: str, because: str, *, ceiling: bool = True) -> Told:
        """The answer to a question of ``boundby what-if``. ``ceiling``: at most so much, perhaps nothing."""
        if self.predictor is None or self.is_part:
            return self.at_most(because)
        predicted = [
            item for item in self.context.what_if if item.scenario == scenario and item.device == self.device_id
        ]
        item = predicted[0] if predicted else answer(self.predictor, scenario, tells_next=False)[self.device]
        low, high = item.saving_ns
        saving = (0 if ceiling else max(low, 0), max(high, 0))
        return Told(because, saving, command=self.what_if(scenario) if high > 0 else "")

    def at_most(self, because: str) -> Told:
        """Without a replay of its own: at most what the verdict says."""
        saving = self.part.verdict.saving_ns
        return Told(because, None if saving is None else (0, saving))

    def speed(self, rows: Bool, least: float, most: float, because: str, scenario: str) -> Told:
        """With these operations faster."""
        saving = None if self.is_part else self.context.saving_by_speed(rows, least, most)
        if saving is None and not self.is_part:
            return Told(f"{NO_REPLAY} ({because})")
        return Told(because, saving, command=self.what_if(scenario) if saving and scenario else "")


def weight(item: Finding) -> int:
    """How much a finding saves: what is sure counts twice."""
    low, high = item.saving_ns or (0, 0)
    return 2 * low + high


def _saves(item: Finding) -> bool:
    return item.severity != "note"


def within(item: Finding) -> str:
    """Where a finding lies, behind its title: `` (in step/loss)``."""
    return f" (in {place(item.region)})" if item.region else ""


@cache
def rules() -> Mapping[str, Rule]:
    """boundby's own, by id."""
    return {rule.id: rule for rule in builtin()}
