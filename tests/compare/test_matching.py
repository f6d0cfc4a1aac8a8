from __future__ import annotations

import pytest

from boundby.compare.between import compare
from boundby.compare.matching import match, tree
from boundby.results.report import Report
from tests.compare.pairs import made_of, region
from tests.support import reports


def matched(before: Report, after: Report) -> dict[str, str | None]:
    """Later path -> earlier path; what is gone as ``-path``."""
    found: dict[str, str | None] = {}
    for item in match(tree(before), tree(after)):
        if item.after is None:
            assert item.before is not None
            found["-" + "/".join(item.before.path)] = None
        elif item.after.path:
            found["/".join(item.after.path)] = "/".join(item.before.path) if item.before is not None else None
    return found


def of(*paths: str) -> Report:
    return made_of(*(region(path) for path in paths))


def test_the_same_report_matches_itself_by_path() -> None:
    for report in (reports.sample(), reports.hostile(), reports.cpu_only(), reports.empty()):
        assert all(item.how == "path" and item.score == 1 for item in match(tree(report), tree(report)))


def test_a_renamed_parent_takes_its_children_along() -> None:
    before = of("step", "step/fwd", "step/fwd/attention", "step/fwd/mlp", "step/loss")
    after = of("step", "step/forward", "step/forward/attention", "step/forward/mlp", "step/loss")
    found = matched(before, after)
    assert found["step/forward"] == "step/fwd"
    assert found["step/forward/attention"] == "step/fwd/attention"
    by_path = {item.path: item for item in compare(before, after).regions}
    assert by_path["step", "forward", "mlp"].matched_by == "similar"
    assert 0.6 <= by_path["step", "forward", "mlp"].similarity < 1
    assert by_path["step", "loss"].matched_by == "path"


@pytest.mark.parametrize(
    ("one", "other"), [("loss", "compute_loss"), ("forward_pass", "Forward pass"), ("dataload", "data_loading")]
)
def test_renamed_leaves(one: str, other: str) -> None:
    assert matched(of("step", f"step/{one}"), of("step", f"step/{other}"))[f"step/{other}"] == f"step/{one}"


@pytest.mark.parametrize(("one", "other"), [("forward", "optimizer"), ("loss", "backward"), ("a", "b")])
def test_what_shares_nothing_but_its_place_is_new_and_gone(one: str, other: str) -> None:
    found = matched(of("step", f"step/{one}"), of("step", f"step/{other}"))
    assert found[f"step/{other}"] is None
    assert f"-step/{one}" in found


def test_a_level_put_around_or_taken_away() -> None:
    inner, outer = (
        of("step", "step/forward", "step/loss"),
        of("train", "train/step", "train/step/forward", "train/step/loss"),
    )
    found = matched(inner, outer)
    assert found == {
        "train": None,
        "train/step": "step",
        "train/step/forward": "step/forward",
        "train/step/loss": "step/loss",
    }
    assert matched(outer, inner)["step/loss"] == "train/step/loss"


def test_numbers_fold_whatever_the_report_did() -> None:
    apart = of("step 1", "step 1/loss", "step 2", "step 2/loss")
    found = compare(apart, of("step *", "step */loss"))
    step = next(item for item in found.regions if item.path == ("step *",))
    assert step.before is not None
    assert step.before.instances == 40
    assert step.matched_by == "path"


def test_the_nearer_name_wins() -> None:
    found = matched(
        of("step", "step/layer_norm_1a", "step/layer_norm_2a"), of("step", "step/layer_norm_2b", "step/layer_norm_1b")
    )
    assert found["step/layer_norm_1b"] == "step/layer_norm_1a"
    assert found["step/layer_norm_2b"] == "step/layer_norm_2a"


def test_another_domain() -> None:
    before, after = made_of(region("step", domain="a")), made_of(region("step", domain="b"))
    item = next(item for item in compare(before, after).regions if item.path)
    assert (item.matched_by, item.before is not None) == ("similar", True)


def test_every_region_is_in_exactly_one_match() -> None:
    before = of("a", "a/b", "a/b/c", "x", "x/b", "a/loss", "q")
    after = of("a", "a/bb", "a/bb/c", "y", "y/b", "a/b", "a/my_loss")
    result = match(tree(before), tree(after))
    for part, side in ((tree(before), "before"), (tree(after), "after")):
        paths = sorted(item.path for item in part.walk())
        assert sorted(found.path for item in result if (found := getattr(item, side)) is not None) == paths


def test_a_parent_that_was_left_out_still_holds_its_children() -> None:
    found = matched(made_of(region("step/loss")), of("step", "step/loss"))
    assert found["step/loss"] == "step/loss"
