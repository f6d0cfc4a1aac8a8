"""Run rules over programs whose answer is known, and say which cases every rule has.

Each rule has a file ``case_RULE_ID.py`` here (hyphens become underscores) that defines ``CASES``, a `RuleCases`. The
tests find it by the rule's id, so that a rule without one fails.
"""

from __future__ import annotations

import functools
import importlib
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from boundby.api import Analysis
from boundby.claims.findings import Findings, find
from boundby.claims.laws import Wholes
from boundby.evidence.context import RuleContext
from boundby.readers import read_trace
from boundby.results.report import Finding
from boundby.rules.builtin import builtin
from boundby.rules.rule import Rule
from boundby.simulate.instructions import Program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import Capture, write_export
from boundby.simulate.patterns import EVERY
from boundby.trace.tables import Trace

Change = Callable[[Trace], Trace]


# What stands behind an arrow: an instruction, code, or a command.
_VERBS = """Add Allocate Annotate Avoid Balance Begin Build Capture Choose Collapse Compare Compile Compute Copy
Count Create Exchange Export Fill Find Fuse Give Hold If Join Keep Launch Leave Let Look Make
Measure Move Order Overlap Pin Post Prefetch Put Read Record Remove Replace Run Say See Send Set
Shorten Start Switch Take Try Use Wait Work Write"""
_INSTRUCTION = re.compile(rf"(?:{'|'.join(_VERBS.split())})\b|#pragma |(?:ncu|rocprof-compute|with) |\S* = |\S*[(=]")


def is_something_to_do(advice: str) -> bool:
    """Whether an advice begins with what to do, and not with why."""
    return _INSTRUCTION.match(advice) is not None


# Commands that show something, and change nothing.
_LOOKS = re.compile(
    r"(?:mpirun \S+ \S+ )?(?:boundby|nsys|ncu|rocprof-compute|perf|py-spy|nvidia-smi|rocm-smi|watch|top) "
    r"|torch\.cuda\.set_sync_debug_mode"
)
_TO_LOOK = re.compile(r"\b(?:Find|See|Look|Analyse|Record|Capture|Measure|see|record)\b")


def is_of_one_action(title: str, code: str) -> bool:
    """Whether a title asks to look for something where its code does no more, and only there: one that also says what
    to do then (``Find and remove``) fits both."""
    to_look = _TO_LOOK.search(title)
    if _LOOKS.match(code):
        return to_look is not None
    return to_look is None or to_look.start() > 0 or " and " in title


class Source(Struct, frozen=True):
    """A trace to look at: a simulated program (or one that tests/support/program.py built), and what to change of what
    was read of it."""

    program: Program | Trace
    machine: Machine = field(default_factory=Machine)
    capture: Capture = field(default_factory=Capture)
    seed: int = 0
    schema: str = "2023"
    change: Change | None = None

    def changed(self, change: Change) -> Source:
        """The same, with the trace changed after reading."""
        return replace(self, change=change)


class RuleCases(Struct, frozen=True):
    """``positive``: the rule finds something. ``negative``: it looks and finds nothing. ``missing``: it says that it
    cannot check. ``also``: ids of rules that may find something in the positive case as well."""

    positive: Callable[[], Source]
    negative: Callable[[], Source]
    missing: Callable[[], Source]
    also: tuple[str, ...] = ()


def pattern(name: str, steps: int = 20, *, seed: int = 0, **changes: Any) -> Source:
    """A program of `boundby.simulate.patterns` or `stories`."""
    made = EVERY[name].make(random.Random(seed), steps)
    return Source(made, seed=seed, **changes)


def without(source: Source, *tables: str) -> Source:
    """The source without some of a trace's tables, by their names in `Trace`: ``api``, ``ranges``, ``schedule``..."""
    captured = {
        "operations": ("kernels", "memcpy", "cuda_graphs"),
        "api": ("cuda_api", "sync"),
        "ranges": ("nvtx",),
        "os_calls": ("osrt",),
        "schedule": ("cpu_scheduling",),
        "samples": ("cpu_samples",),
    }

    def drop(trace: Trace) -> Trace:
        trace = source.change(trace) if source.change else trace
        flags = {flag: False for table in tables for flag in captured.get(table, ())}
        emptied: dict[str, Any] = {table: type(getattr(trace, table)).empty() for table in tables}
        return replace(trace, captured=replace(trace.captured, **flags), **emptied)

    return source.changed(drop)


def as_torch(source: Source) -> Source:
    """The source as a program in PyTorch, which names its main thread."""

    def rename(trace: Trace) -> Trace:
        trace = source.change(trace) if source.change else trace
        return replace(trace, threads=tuple(replace(thread, name="pt_main_thread") for thread in trace.threads))

    return source.changed(rename)


def context_of(source: Source) -> RuleContext:
    """What rules get to see of a source."""
    return Analysis(_read(source), find_regions=False).rule_context


#: What rules say by themselves, whatever is left of it by what its whole saves.
NO_LIMITS = Wholes({}, {}, {})


def look(source: Source, *rules: Rule) -> Findings:
    """What the rules (all of boundby's own, without any) find."""
    return find(context_of(source), rules or builtin(), limits=NO_LIMITS)


def findings(source: Source, *rules: Rule) -> tuple[Finding, ...]:
    """Only what they find."""
    return look(source, *rules).found


def cases_of(rule: Rule) -> RuleCases:
    """The cases of a rule. Raises ModuleNotFoundError where it has none."""
    module = importlib.import_module(f"tests.rules.builtin.case_{rule.id.replace('-', '_')}")
    found = module.CASES
    assert isinstance(found, RuleCases)
    return found


def _read(source: Source) -> Trace:
    if isinstance(source.program, Trace):
        trace = source.program
    else:
        trace = _simulated(source.program, source.machine, source.capture, source.seed, source.schema)
    return source.change(trace) if source.change else trace


@functools.lru_cache(maxsize=32)
def _simulated(program: Program, machine: Machine, capture: Capture, seed: int, schema: str) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "simulated.sqlite"
        write_export(simulate(realise(program, machine, seed)), path, schema, capture)
        return read_trace(path)
