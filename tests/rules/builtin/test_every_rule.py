"""What every rule has: a page, and a program on which it fires, one on which it does not, and one it cannot check."""

from __future__ import annotations

import re
from copy import copy
from functools import cache
from pathlib import Path

import pytest

from boundby.claims.findings import find
from boundby.evidence.context import RuleContext
from boundby.rules import builtin as rules
from boundby.rules.rule import GROUPS, Rule
from boundby.trace.facts import Captured
from boundby.trace.program import KnownProgram, ProgramKind
from tests.rules.builtin.harness import NO_LIMITS, cases_of, context_of, is_of_one_action, is_something_to_do, look

# Rules that tell what a timeline shows, and that it cannot show what would be saved.
UNKNOWN_SAVING = {"external-pace", "hot-kernel"}
RULES = rules.builtin()
every = pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
PROGRAMS = (
    KnownProgram(ProgramKind.TORCH, "torch"),
    KnownProgram(ProgramKind.TORCH, "vllm"),
    KnownProgram(ProgramKind.TORCH, "sglang"),
    KnownProgram(ProgramKind.PYTHON, "jax"),
    KnownProgram(ProgramKind.PYTHON, "cupy"),
    KnownProgram(ProgramKind.CPP),
    KnownProgram(ProgramKind.DIRECTIVES),
    KnownProgram(ProgramKind.JULIA),
)


@cache
def positive(rule: str) -> RuleContext:
    """What the rule of this id sees of the program on which it fires."""
    return context_of(cases_of(next(one for one in RULES if one.id == rule)).positive())


def test_ids_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_no_rule_imports_a_rule() -> None:
    """What several speak of lies in modules whose names begin with an underscore."""
    for file in Path(rules.__file__).parent.glob("*.py"):
        assert not re.findall(r"from boundby\.rules\.builtin\.[a-z]\w* import", file.read_text()), file.name


@every
def test_its_texts_are_there(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.group in GROUPS
    assert rule.title.strip()
    assert set(rule.needs) <= set(Captured.__struct_fields__)
    assert all(threshold.reason.strip() and threshold.unit for threshold in rule.thresholds)
    assert len({threshold.name for threshold in rule.thresholds}) == len(rule.thresholds)


@every
def test_it_finds_what_it_looks_for(rule: Rule) -> None:
    cases = cases_of(rule)
    found = find(positive(rule.id), RULES, limits=NO_LIMITS).found
    mine = [finding for finding in found if finding.rule == rule.id]
    assert mine, f"found only {[finding.rule for finding in found]}"
    for finding in mine:
        assert finding.title
        assert finding.advice
        assert finding.evidence
        assert finding.severity == "note" or finding.saving_ns is not None or rule.id in UNKNOWN_SAVING
        for example in finding.examples:
            assert example.what
    others = {finding.rule for finding in found} - {rule.id, *cases.also}
    assert not others, f"fires as well: {sorted(others)}"


@every
def test_every_kind_of_program_gets_advice_it_can_follow(rule: Rule) -> None:
    if rule.id in ("sync-operator", "operator-on-cpu"):
        return  # speaks of PyTorch's operators, which only its programs show
    context = copy(positive(rule.id))
    for program in PROGRAMS:
        context.__dict__["program"] = program
        for finding in find(context, (rule,), limits=NO_LIMITS).found:
            assert finding.advice, f"{program}: {finding.title}"
            assert is_something_to_do(finding.advice[0]), finding.advice[0]
            if finding.code:
                assert is_of_one_action(finding.change, finding.code), f"{finding.change!r} over {finding.code!r}"
            if not program.is_torch:
                assert not [
                    line for line in (*finding.advice, finding.disproof) if "torch" in line or "DataLoader" in line
                ]
            if not program.is_python:
                assert not [line for line in finding.advice if "py-spy" in line or "NumPy" in line]


@every
def test_it_finds_nothing_where_nothing_is(rule: Rule) -> None:
    looked = look(cases_of(rule).negative(), rule)
    assert not looked.found
    assert not looked.not_checked


@every
def test_it_says_what_it_lacks(rule: Rule) -> None:
    looked = look(cases_of(rule).missing(), rule)
    assert not looked.found
    (reason,) = [item.reason for item in looked.not_checked]
    assert reason
    assert "failed" not in reason
