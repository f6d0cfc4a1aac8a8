"""What a rule is: what it looks for, what it needs, what it teaches, and what it finds.

A rule is one file in `boundby.rules.builtin` (or an entry point ``boundby.rules`` of another package) that defines
``RULE``. Its texts are the only source of ``boundby explain`` and of its page in the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boundby.results.report import Example

if TYPE_CHECKING:
    from boundby.evidence.context import RuleContext

# What a rule speaks about: the causes a change can remove, and what is no cause.
GROUPS: dict[str, str] = {
    "gpu_compute": "GPU-compute bound",
    "gpu_comm": "Communication",
    "gpu_copy": "Copies",
    "cuda_api": "CUDA-API bound",
    "sync": "Synchronization",
    "init": "Initialization and warm-up",
    "host": "Host: CPU work, input, locks",
    "streams": "Streams",
    "trace": "Quality of the trace",
}


@dataclass(frozen=True)
class Threshold:
    """A number that decides, with its unit and why it is what it is. Users change it in ``[tool.boundby]``."""

    name: str
    value: float
    unit: str  # "ns", "fraction", "count", ...
    reason: str


@dataclass(frozen=True)
class Remedy:
    """One thing to do. ``code`` shows it; ``language`` is the lexer's name: ``python``, ``cpp``, ``bash``."""

    text: str
    code: str = ""
    language: str = "python"
    caution: str = ""  # when not to do it, what it may cost


@dataclass(frozen=True)
class Match:
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


@dataclass(frozen=True)
class Rule:
    """A rule. ``needs`` are names of `Captured` fields without which it cannot check."""

    id: str  # words joined by hyphens; names the page docs/rules/ID.md
    title: str
    group: str  # a key of GROUPS
    picture: str  # the pattern as a few lines of text: lanes of host and device over time
    meaning: str  # Markdown: what happens, why it costs time, how it is told
    remedies: tuple[Remedy, ...]
    disproof: str  # what would prove a finding of this rule wrong
    check: Callable[[RuleContext], Iterable[Match]]
    needs: tuple[str, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    see_also: tuple[str, ...] = ()  # ids of other rules
    references: Mapping[str, str] = field(default_factory=dict)  # title: address of public documentation
