"""What a rule is: what it looks for, what it needs, what it teaches, what it finds, and its page as people read it.

A rule stands in a file in `boundby.rules.builtin` (or is an entry point ``boundby.rules`` of another package), its page
beside it: ``boundby explain`` and the documentation show that page with what the rule declares.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from boundby.model.causes import Cause
from boundby.model.late import expression
from boundby.model.units import duration, percent, size
from boundby.results.report import SEVERITIES, CodeLine, Example

if TYPE_CHECKING:
    from boundby.evidence.context import RuleContext


class RuleGroup(Struct, frozen=True):
    """What some rules speak about. ``causes``: those that they could save time of; empty: any."""

    label: str
    causes: tuple[Cause, ...] = ()


# The causes that a change can remove, and what is no cause.
GROUPS: dict[str, RuleGroup] = {
    "gpu_compute": RuleGroup("Compute", (Cause.GPU_COMPUTE,)),
    "gpu_comm": RuleGroup("Communication", (Cause.GPU_COMM,)),
    "gpu_copy": RuleGroup("Copy", (Cause.GPU_COPY,)),
    "cuda_api": RuleGroup("Launch overhead", (Cause.CUDA_API, Cause.UNATTRIBUTED)),
    "sync": RuleGroup("Sync", (Cause.SYNC, Cause.UNATTRIBUTED)),
    "init": RuleGroup("Initialization and warm-up", (Cause.INIT, Cause.UNATTRIBUTED)),
    "host": RuleGroup("Host code, input, locks", (Cause.CPU, Cause.HOST_BLOCKED, Cause.UNATTRIBUTED)),
    "streams": RuleGroup("Streams"),
    "trace": RuleGroup("Quality of the trace"),
}
# The fields of `Captured`, as people call them.
DATA = {
    "kernels": "GPU kernels",
    "cuda_api": "CUDA API calls",
    "memcpy": "memory copies",
    "sync": "synchronization records",
    "nvtx": "NVTX ranges",
    "osrt": "OS runtime calls",
    "cpu_scheduling": "CPU scheduling",
    "cpu_samples": "CPU samples",
    "gpu_metrics": "GPU metrics",
    "cuda_graphs": "CUDA graphs",
}


class Threshold(Struct, frozen=True):
    """A number that decides, with its unit and why it is what it is. Users change it in ``[tool.boundby]``."""

    name: str
    value: float
    unit: str  # "ns", "fraction", "count", ...
    reason: str

    def of(self, context: RuleContext, rule_id: str) -> float:
        """Its value for a rule, as the user set it, else its own."""
        return context.thresholds.get((rule_id, self.name), self.value)


#: Evidence of a match whose saving is computed from measured times, and from no replay.
MEASURED = {"saving_by": "measured"}


class Match(Struct, frozen=True):
    """What a rule found in one place. ``region`` is an index into the timeline's regions (0: the root)."""

    region: int | None
    title: str  # one line: what, how often, how much; the region's name is put before it
    evidence: Mapping[str, object]  # numbers, with units in their names
    # Low and high, of all devices' window. None: what it would save is not known; told if ``severity`` is given.
    saving_ns: tuple[int, int] | None
    advice: tuple[str, ...]  # the most specific first: one line each, code where it is short
    examples: tuple[Example, ...] = ()  # all of them; the worst are kept
    severity: str | None = None  # None: by the saving
    instances: int = 1  # how many alike it stands for
    cost_ns: int | None = None  # what it costs by its own words: no saving is told as more
    is_unsure: bool = False  # perhaps nothing is saved: at most of medium severity
    remedy: str = ""  # a row of `boundby.rules.remedies`; empty: the first that the rule numbers
    code: str = ""  # what to write or type, where the evidence tells more than the row
    facts: Mapping[str, object] = field(default_factory=dict)  # what the row's code names
    where: CodeLine | None = None  # the line of the program that it speaks of

    def __post_init__(self) -> None:
        if self.severity not in (None, *SEVERITIES):
            raise ValueError(f"{self.severity!r} is not a severity")

    def advising(self, remedy: str = "", code: str = "", **facts: object) -> Match:
        """This match with what to do about it."""
        return replace(self, remedy=remedy or self.remedy, code=code or self.code, facts={**self.facts, **facts})


def note(
    title: str,
    evidence: Mapping[str, object],
    advice: str,
    *,
    region: int | None = None,
    examples: tuple[Example, ...] = (),
    instances: int = 1,
) -> Match:
    """What saves nothing by itself: averages mislead, or the trace limits what can be told."""
    return Match(region, title, evidence, None, (advice,), examples, "note", instances)


class Rule(Struct, frozen=True, dict=True):
    """A rule. ``needs`` are names of `Captured` fields without which it cannot check.

    Its page is Markdown: a picture (lanes of host and device over time), and the sections "What happens", "What to do",
    "What would prove it wrong" and perhaps "See also". It is read when somebody asks for it.
    """

    id: str  # words joined by hyphens; names its page
    title: str
    group: str  # a key of GROUPS
    check: Callable[[RuleContext], Iterable[Match]]
    needs: tuple[str, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    cause: Cause | None = None  # the one that its remedy takes away; None: several, or none
    causes: tuple[Cause, ...] = ()  # where it takes time of several
    is_last: bool = False  # it speaks only where no other rule of its group found anything
    page: str | None = None  # the page's text; None: it is the file ID.md beside the module of ``check``

    @property
    def takes(self) -> frozenset[str]:
        """Keys of the causes of which its remedy takes time; empty: of any."""
        return frozenset(cause.key for cause in (*self.causes, self.cause) if cause is not None)

    def threshold(self, context: RuleContext, name: str) -> float:
        """A threshold as the user set it, else its own value. Raises KeyError for a name that it does not have."""
        return {threshold.name: threshold for threshold in self.thresholds}[name].of(context, self.id)

    @cached_property
    def text(self) -> str:
        """The page as it was written. Raises OSError where its file cannot be read."""
        if self.page is not None:
            return self.page.strip()
        return Path(inspect.getfile(self.check)).with_name(f"{self.id}.md").read_text(encoding="utf-8").strip()

    def section(self, heading: str) -> str:
        """What the page says under this heading; empty without it."""
        _, _, after = f"\n{self.text}".partition(f"\n## {heading}\n")
        return after.partition("\n## ")[0].strip()

    @property
    def disproof(self) -> str:
        """What would prove a finding of this rule wrong: one line."""
        return _PAGE_LINK.sub(r"\1", " ".join(self.section("What would prove it wrong").split()))


_PAGE_LINK = expression(r"\[([a-z0-9-]+)\]\(\1\.md\)")


def page(rule: Rule, *, linked: bool = True) -> str:
    """Everything about one rule, ended by a line break. ``linked``: other rules are links to their pages."""
    text, see_also, links = rule.text.partition("\n## See also\n")
    if not linked:
        links = _PAGE_LINK.sub(r"boundby explain \1", links)
    parts = [
        f"# {rule.id}",
        f"**{rule.title}** ({GROUPS[rule.group].label})",
        text.strip(),
        *_thresholds(rule),
        *_needs(rule),
        (see_also + links).strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def pattern_page(key: str, text: str, rules: Iterable[Rule]) -> str:
    """A pattern's page with the rules that look for its causes, ended by a line break."""
    title, _, rest = text.partition("\n")
    shown = re.sub(r"^### ([a-z0-9-]+): (.+)$", r"### \2", rest, flags=re.MULTILINE).strip()
    of_pattern = [rule for rule in sorted(rules, key=lambda rule: rule.id) if key in rule.takes]
    listed = "\n".join(f"- `boundby explain {rule.id}`: {rule.title}" for rule in of_pattern)
    return f"{title} ({key})\n\n{shown}\n" + (f"\n## Rules that look for it\n\n{listed}\n" if listed else "")


def index(rules: Iterable[Rule]) -> str:
    """The table of all rules by group."""
    lines = [
        "# Rules",
        "",
        "What `boundby analyze` looks for. `boundby explain RULE` shows the same pages; "
        "[findings](../findings.md) says how they are ranked, turned off and changed.",
    ]
    for group, members in by_group(rules):
        lines += ["", f"## {GROUPS[group].label}", "", "| rule | what it finds |", "| --- | --- |"]
        lines += [f"| [{rule.id}]({rule.id}.md) | {_cell(rule.title)} |" for rule in members]
    return "\n".join(lines) + "\n"


def by_group(rules: Iterable[Rule]) -> list[tuple[str, list[Rule]]]:
    """Rules of every group that has any, groups in their own order, rules by id."""
    ordered = sorted(rules, key=lambda rule: rule.id)
    groups = [(group, [rule for rule in ordered if rule.group == group]) for group in GROUPS]
    return [(group, members) for group, members in groups if members]


def amount(threshold: Threshold) -> str:
    """A threshold's value with its unit, as people read it."""
    if threshold.unit == "ns":
        return duration(threshold.value)
    if threshold.unit == "fraction":
        return percent(threshold.value)
    if threshold.unit == "bytes":
        return size(threshold.value)
    return f"{threshold.value:g} {threshold.unit}".removesuffix(" count")


def _thresholds(rule: Rule) -> list[str]:
    if not rule.thresholds:
        return []
    rows = ["| threshold | value | why |", "| --- | ---: | --- |"]
    rows += [
        f"| `{threshold.name}` | {amount(threshold)} | {_cell(threshold.reason)} |" for threshold in rule.thresholds
    ]
    first = rule.thresholds[0]
    how = f"```toml\n[tool.boundby]\nthresholds.{rule.id}.{first.name} = {first.value:g}  # {first.unit}\n```"
    return ["## Thresholds", "\n".join(rows), how]


def _needs(rule: Rule) -> list[str]:
    if not rule.needs:
        return []
    return ["## Needs", f"{', '.join(DATA.get(name, name) for name in rule.needs)}."]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
