"""What rules ask of a trace's names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from boundby.evidence.context import RuleContext


def test_a_row_without_a_name_is_none_of_the_names() -> None:
    """-1 is no place among the names, and not the last of them either."""
    numbers = np.array([-1, 0], np.int32)
    context = SimpleNamespace(trace=SimpleNamespace(names=("first", "last")), _used=lambda _: [-1, 0])
    fits = RuleContext.names_where(context, numbers, lambda name: name == "last")  # type: ignore[arg-type]
    assert fits.tolist() == [False, False, False]
