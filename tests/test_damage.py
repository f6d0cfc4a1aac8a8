"""Damaged copies of simulated programs: nothing wrong is said with confidence (``python -m benchmarks.damage``)."""

from __future__ import annotations

from collections import Counter

from benchmarks import damage

COPIES = 18
#: Work that was lost; what other kinds still get wrong stands in docs/evidence.md.
KINDS = [kind for kind in sorted(damage.DAMAGES) if kind.startswith("kernels")]


def test_a_damaged_trace_never_leads_to_a_confident_error() -> None:
    outcomes = list(damage.run(COPIES, 2, KINDS, None))
    count = Counter(item.answer for item in outcomes)
    assert not [item for item in outcomes if item.answer == "confident"]
    assert count["agrees"] > COPIES / 2
    assert all(item.why_not for item in outcomes if item.answer == "abstains" and item.truth != "unknown")


def test_the_table_has_a_row_for_each_kind() -> None:
    outcomes = [damage.Outcome("a", "window-cut", 1, 0.01), damage.Outcome("b", "calls-end", 2, 0.5, "confident")]
    rows = damage.table(outcomes).splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["calls-end", "window-cut", "all"]
    assert rows[-1].split()[1:] == ["2", "1", "0", "0", "1", "0", "1", "100.0%"]
