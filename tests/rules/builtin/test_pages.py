"""Every rule has its page beside it, and links on pages lead to pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boundby.rules import builtin as rules
from boundby.rules.rule import GROUPS, Rule, index, page

RULES = rules.builtin()
IDS = {rule.id for rule in RULES}
SECTIONS = ["What happens", "What to do", "What would prove it wrong", "See also"]
every = pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])


def test_there_is_one_file_a_rule() -> None:
    assert {file.stem for file in Path(rules.__file__).parent.glob("*.md")} == IDS


@every
def test_it_has_a_picture_and_its_sections(rule: Rule) -> None:
    start, *parts = re.split(r"(?m)^## (.+)$", rule.text)
    picture = re.fullmatch(r"```text\n(.+)\n```", start.strip(), re.DOTALL)
    assert picture
    assert max(map(len, picture[1].splitlines())) <= 80
    assert parts[::2] in (SECTIONS, SECTIONS[:-1])
    assert all(text.strip() for text in parts[1::2])
    assert rule.text.count("```") % 2 == 0


@every
def test_it_leads_to_rules_that_exist(rule: Rule) -> None:
    linked = re.findall(r"\]\(([^():]+)\)", rule.section("See also"))
    assert {name.removesuffix(".md") for name in linked} <= IDS - {rule.id}
    assert all(f"boundby explain {name.removesuffix('.md')}" in page(rule, linked=False) for name in linked)


@every
def test_the_whole_page_says_what_the_rule_declares(rule: Rule) -> None:
    text = page(rule)
    assert text.startswith(f"# {rule.id}\n\n**{rule.title}** ({GROUPS[rule.group].label})\n\n```text\n")
    assert [name for name in re.findall(r"(?m)^## (.+)$", text) if name not in SECTIONS] == [
        *(["Thresholds"] if rule.thresholds else []),
        *(["Needs"] if rule.needs else []),
    ]
    for threshold in rule.thresholds:
        assert f"| `{threshold.name}` |" in text
    assert rule.disproof
    assert "\n" not in rule.disproof


def test_the_index_has_every_rule() -> None:
    assert set(re.findall(r"(?m)^\| \[([a-z-]+)\]\(\1\.md\) \|", index(RULES))) == IDS
