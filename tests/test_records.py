"""A record says and does what a frozen dataclass of the standard library does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from dataclasses import dataclass as standard
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from boundby.model import records
from boundby.model.expressions import expression
from boundby.model.records import dataclass


def _members() -> dict[str, Any]:
    return {
        "__annotations__": {"low": "int", "names": "tuple", "cache": "dict", "kind": "ClassVar[str]"},
        "names": (),
        "cache": field(default_factory=dict, repr=False, compare=False),
        "kind": "span",
        "doubled": cached_property(lambda self: 2 * self.low),
    }


def _made(decorator: Any) -> Any:
    cls = type("Span", (), {**_members(), "__module__": __name__})
    vars(cls)["doubled"].__set_name__(cls, "doubled")
    return decorator(frozen=True)(cls)


OURS, THEIRS = _made(dataclass), _made(standard)


@dataclass(frozen=True)
class Kept:
    """At module level, so that it can be pickled."""

    low: int
    high: int = 3
    unit: ClassVar[str] = "ns"


@dataclass(frozen=True, eq=False)
class ByIdentity:
    """Compared by identity."""

    low: int


def test_prints_compares_and_hashes_like_the_standard_one() -> None:
    for make in (OURS, THEIRS):
        assert repr(make(1, ("a",))) == "Span(low=1, names=('a',))"
        assert make(1, cache={1: 2}) == make(1) != make(2)
        assert make(1) != (1, ())
        assert hash(make(1)) == hash(make(1, cache={1: 2})) == hash((1, ()))
    assert OURS(1) != THEIRS(1)


@pytest.mark.parametrize("name", ["low", "names", "other"])
def test_what_is_set_stays(name: str) -> None:
    for make in (OURS, THEIRS):
        span = make(1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(span, name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(span, name)


def test_tools_for_dataclasses_work_on_it() -> None:
    kept = Kept(1)
    assert dataclasses.asdict(replace(kept, high=5)) == {"low": 1, "high": 5}
    assert [each.name for each in dataclasses.fields(Kept)] == ["low", "high"]
    assert pickle.loads(pickle.dumps(kept)) == copy.deepcopy(kept) == kept
    assert OURS(3).doubled == 6


def test_very_many_are_made_like_few() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Late(Kept):
        name: str
        rows: list[int] = field(default_factory=list)
        doubled: int = 0

        def __post_init__(self) -> None:
            self.__dict__["doubled"] = 2 * self.low

    few, first = Late(1, name="a"), Late.__init__
    many = [Late(1, name="a") for _ in range(600)]
    assert Late.__init__ is not first
    assert len({id(one.rows) for one in many}) == 600
    assert all(one == few and repr(one) == repr(few) for one in many)
    assert Late(1, 2, name="b", rows=[3]) == records.replace(few, high=2, name="b", rows=[3])
    wrong: list[dict[str, Any]] = [{}, {"name": "a", "more": 1}]
    for given in wrong:
        with pytest.raises(TypeError):
            Late(1, **given)
    with pytest.raises(dataclasses.FrozenInstanceError):
        few.low = 2  # type: ignore[misc]


@pytest.mark.parametrize("cls", [OURS, THEIRS], ids=["record", "standard"])
def test_own_tools_do_what_those_of_the_standard_library_do(cls: Any) -> None:
    span = cls(1, ("a",), {1: 2})
    assert [(each.name, each.type) for each in records.fields(cls)] == [
        (each.name, each.type) for each in dataclasses.fields(cls)
    ]
    assert span.doubled == 2
    other = records.replace(span, low=4)
    assert (other.low, other.names, other.cache, other.doubled) == (4, ("a",), {1: 2}, 8)
    assert span.low == 1
    with pytest.raises(TypeError, match="nothing"):
        records.replace(span, nothing=1)


def test_an_expression_does_what_a_compiled_one_does() -> None:
    late = expression(r"(a+)b", re.IGNORECASE)
    assert [late.search("xAab")[1], late.sub("-", "aab ab"), late.pattern] == ["Aa", "- -", "(a+)b"]  # type: ignore[index]
    with pytest.raises(re.error):
        expression("(").search("")


def test_a_record_of_a_record_takes_its_fields_first() -> None:
    @dataclass(frozen=True, kw_only=True)
    class More(Kept):
        name: str
        rows: list[int] = field(default_factory=list)

    made = More(1, name="a")
    assert repr(made).endswith("More(low=1, high=3, name='a', rows=[])")
    assert str(inspect.signature(More)) == "(low, high=3, *, name, rows=[])"
    assert [each.name for each in dataclasses.fields(More)] == ["low", "high", "name", "rows"]
    match made:
        case Kept(low, high):
            assert (low, high) == (1, 3)


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"low": 1}), ((1,), {"other": 2}), ((1, 2), {"high": 2})]
)
def test_other_arguments_than_its_fields_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Kept(*values, **named)


def test_identity_where_it_is_asked_for() -> None:
    one = ByIdentity(1)
    assert one == one != ByIdentity(1)
    assert len({one, ByIdentity(1)}) == 2


def test_what_changes_is_no_record() -> None:
    with pytest.raises(TypeError, match="can change"):
        dataclass(frozen=False)
