"""The framework of the rules: what is run, kept, folded, ranked and cut, and what happens to a rule that fails."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from boundby.claims.findings import find
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.model import stage
from boundby.results.report import Example
from boundby.rules import builtin as rules
from boundby.rules.matches import failure
from boundby.rules.rule import Match, Rule, Threshold
from boundby.rules.settings import RuleError, make_settings
from tests.rules.builtin.harness import context_of, pattern, without


def rule(check: Any, name: str = "some-rule", **changes: Any) -> Rule:
    made = Rule(
        id=name,
        title="Something",
        group="sync",
        check=check,
        thresholds=(Threshold("size", 2.0, "count", "x"),),
        page="## What would prove it wrong\n\nNothing\nelse.\n\n## See also\n\n- nothing",
    )
    return replace(made, **changes)


def saves(share: float, title: str = "title", **changes: Any) -> Any:
    def check(context: RuleContext) -> Iterator[Match]:
        ns = round(share * context.longest_window_ns)
        yield Match(0, title, {"x_ns": 1}, (ns, ns), ("advice",), **changes)

    return check


@pytest.fixture(scope="module")
def context() -> RuleContext:
    return context_of(pattern("sync", steps=5))


def test_findings_are_ranked_by_saving_and_notes_come_last(context: RuleContext) -> None:
    made = [
        rule(saves(0.02), "small"),
        rule(saves(0.9, severity="note"), "note"),
        rule(saves(0.5), "large"),
        rule(saves(0.05), "middle"),
    ]
    found = find(context, made).found
    assert [(item.rule, item.severity) for item in found] == [
        ("large", "high"),
        ("middle", "medium"),
        ("small", "low"),
        ("note", "note"),
    ]


def test_nothing_below_one_percent_is_told_unless_asked_for(context: RuleContext) -> None:
    made = [rule(saves(0.009), "below"), rule(saves(0.0), "nothing")]
    assert not find(context, made).found
    assert [item.rule for item in find(replace(context, show_all=True), made).found] == ["below"]


def test_the_same_said_twice_is_said_once(context: RuleContext) -> None:
    def check(context: RuleContext) -> Iterator[Match]:
        yield from saves(0.2)(context)
        yield from saves(0.3)(context)
        yield from saves(0.1, "another")(context)

    found = find(context, [rule(check)]).found
    assert [item.title for item in found] == ["title", "another"]
    assert found[0].saving_ns == (round(0.3 * context.longest_window_ns),) * 2


def test_the_worst_three_examples_are_kept(context: RuleContext) -> None:
    examples = tuple(Example(start, length, "x") for start, length in enumerate((5, 9, 1, 9, 7)))
    (found,) = find(context, [rule(saves(0.5, examples=examples, instances=5))]).found
    assert [(item.start_ns, item.duration_ns) for item in found.examples] == [(1, 9), (3, 9), (4, 7)]
    assert found.instances == 5


def test_a_saving_is_never_more_than_the_window_nor_less_than_nothing(context: RuleContext) -> None:
    def check(context: RuleContext) -> Iterator[Match]:
        yield Match(None, "title", {}, (10 * context.longest_window_ns, -5), ("advice",))

    (found,) = find(context, [rule(check)]).found
    assert found.saving_ns == (0, context.longest_window_ns)


def test_savings_off_the_account_are_marked_and_never_grave(context: RuleContext) -> None:
    assert find(context, [rule(saves(0.5))]).found[0].evidence["saving_by"] == "replay"
    (found,) = find(replace(context, savings=None), [rule(saves(0.5))]).found
    assert (found.severity, found.evidence["saving_by"]) == ("medium", "account")


def test_rules_for_which_no_time_is_left_say_so(context: RuleContext, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0]
    for which in ("clock", "wall"):
        monkeypatch.setattr(stage, which, lambda: now_s[0])

    def slow(context: RuleContext) -> Iterator[Match]:
        now_s[0] += 61
        context.saving(("init", "cpu"))
        yield from saves(0.5)(context)

    with stage.stage("looking for what to change"):
        looked = find(context, [rule(saves(0.5), "a"), rule(slow, "b"), rule(saves(0.5), "c")])
    assert [item.rule for item in looked.found] == ["a"]
    assert [item.rule for item in looked.not_checked] == ["b", "c"]
    assert "took over 60 s of CPU time" in looked.not_checked[0].reason


def test_a_rule_that_lacks_its_data_says_so() -> None:
    def check(context: RuleContext) -> Iterator[Match]:
        if context.devices:
            raise CannotCheckError("there is no moon")
        yield from ()

    lacking = context_of(without(pattern("sync", steps=5), "ranges"))
    looked = find(lacking, [rule(check, "a"), rule(saves(1.0), "b", needs=("nvtx", "gpu_metrics"))])
    assert [(item.rule, item.reason) for item in looked.not_checked] == [
        ("a", "there is no moon"),
        ("b", "the trace holds no NVTX ranges and no GPU metrics"),
    ]
    assert looked.checked == 0


@pytest.fixture
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fails is one line, not a test that fails (tests/conftest.py)."""
    monkeypatch.setattr("boundby.rules.matches.failure", failure)


@pytest.mark.usefixtures("as_for_users")
def test_a_rule_that_fails_is_one_that_could_not_check(context: RuleContext) -> None:
    def check(context: RuleContext) -> Iterator[Match]:
        yield from saves(0.5)(context)
        raise KeyError("two\nlines")

    looked = find(context, [rule(check, "bad"), rule(saves(0.5), "good")])
    assert [item.rule for item in looked.found] == ["good"]
    (failed,) = looked.not_checked
    assert failed.reason.startswith("the rule failed: KeyError: 'two\\nlines' (rules/test_findings.py, line ")


def test_a_rule_that_fails_fails_a_test(context: RuleContext) -> None:
    with pytest.raises(KeyError):
        find(context, [rule(lambda context: context.thresholds["none", "such"])])


@pytest.mark.usefixtures("as_for_users")
@pytest.mark.parametrize("fields", [(0, "t", {}, (1, 1), (), (), "grave"), (99_999, "t", {}, (1, 1), ())])
def test_a_match_that_is_none_counts_as_failed(context: RuleContext, fields: tuple[Any, ...]) -> None:
    looked = find(context, [rule(lambda context: [Match(*fields)] if context else [])])
    assert not looked.found
    assert "failed" in looked.not_checked[0].reason


def test_what_could_not_matter_is_told_apart() -> None:
    healthy = context_of(pattern("healthy", steps=5))
    lacks = rule(saves(1.0), needs=("gpu_metrics",))
    (item,) = find(healthy, [lacks]).not_checked
    assert not item.could_matter  # there is no sync time to speak of
    (item,) = find(context_of(pattern("sync", steps=5)), [lacks]).not_checked
    assert item.could_matter


def test_rules_can_be_left_out(context: RuleContext) -> None:
    settings = make_settings([rule(saves(0.5))], disable=["some-rule"])
    looked = find(context, [rule(saves(0.5))], settings.disabled)
    assert (looked.found, looked.checked) == ((), 0)


def test_thresholds_can_be_changed(context: RuleContext) -> None:
    seen = []

    def check(context: RuleContext) -> Iterator[Match]:
        seen.append(made.threshold(context, "size"))
        return iter(())

    made = rule(check)
    for thresholds in (None, {"some-rule": {"size": 7}}):
        settings = make_settings([made], thresholds=thresholds)
        find(replace(context, thresholds=settings.thresholds), [made])
    assert seen == [2.0, 7.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"disable": ["some-rul"]}, "There is no rule 'some-rul'. Did you mean some-rule?"),
        ({"disable": ["xyzzy"]}, "There is no rule 'xyzzy'. The command \"boundby rules\" lists the rules."),
        ({"thresholds": {"some-rule": {"width": 1}}}, "The rule some-rule has no threshold 'width'."),
        ({"thresholds": {"some-rule": {"size": "big"}}}, "The threshold some-rule.size is 'big'."),
        ({"thresholds": {"some-rule": {"size": True}}}, "The threshold some-rule.size is True."),
    ],
)
def test_what_is_no_rule_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message.replace(".", r"\.").replace("?", r"\?")):
        make_settings([rule(saves(0.5))], **arguments)


THEIRS = rule(saves(0.5), "their-rule")
TAKEN = rule(saves(0.5), "sync-call")


WITHOUT_PAGE = replace(THEIRS, id="without-page", page=None)


def several() -> list[Rule]:
    return [THEIRS]


def test_other_packages_bring_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("THEIRS", "several", "missing", "TAKEN", "pytest", "WITHOUT_PAGE")
    points = [EntryPoint(name, f"{__name__}:{name}", rules.ENTRY_POINTS) for name in names]
    monkeypatch.setattr(rules, "_installed", lambda: points)
    found, broken = rules.third_party()
    assert [item.id for item in found] == ["their-rule"]
    assert {item.rule for item in broken} == {"missing", "pytest", "sync-call", "their-rule", "WITHOUT_PAGE"}
    assert len(rules.every()) == len(rules.builtin()) + 1


def test_what_is_installed_later_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    before = rules.third_party()[0]
    told = tmp_path / "theirs-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Name: theirs\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[{rules.ENTRY_POINTS}]\ntheirs = {__name__}:THEIRS\n")
    assert rules.third_party()[0] == (*before, THEIRS)


def test_no_saving_is_told_beyond_the_cost(context: RuleContext) -> None:
    least = max(round(0.02 * context.longest_window_ns), 1)
    (found,) = find(context, [rule(saves(0.5, cost_ns=least))]).found
    assert found.saving_ns == (least, least)


def test_what_it_would_save_may_be_unknown(context: RuleContext) -> None:
    def check(_: RuleContext) -> Iterator[Match]:
        yield Match(0, "told", {"x_ns": 1}, None, ("advice",), severity="medium")
        yield Match(0, "not told", {"x_ns": 1}, None, ("advice",))

    (found,) = find(context, [rule(check)]).found
    assert (found.title, found.severity, found.saving_ns) == ("told", "medium", None)
