"""Two jobs compared, as a document."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.document.blocks import (
    Bar,
    Bars,
    Column,
    Document,
    Entries,
    Entry,
    Facts,
    Heading,
    Paragraph,
    Role,
    Segment,
    Span,
    Table,
    section,
)
from boundby.document.gate_document import limits, told_first
from boundby.document.text import region_name
from boundby.model import units
from boundby.model.causes import BOUND_LABEL, CAUSE_KEYS, SHORT_LABEL
from boundby.model.scale import HARDLY
from boundby.results.gate import GateResult
from boundby.results.job import JobComparison, JobSide, RankChange, StragglerChange

#: Of more ranks, those that changed most.
MOST_RANKS = 16
#: Parts of less than this share of a step are not worth a line.
_LEAST_SHARE = HARDLY
_STATUS = {"resolved": Span("Gone:", "good"), "new": Span("New:", "bad"), "stays": Span("Stays:")}
_WHERE = (
    Column("mean rank", lambda row: row[0]),
    Column("before", lambda row: row[1], right=True),
    Column("after", lambda row: row[2], right=True),
    Column("change", lambda row: row[3], right=True),
)
_RANKS = (
    Column("rank", lambda rank: str(rank.rank), key=lambda rank: rank.rank),
    Column("own before", lambda rank: units.duration(rank.own_before_ns), right=True, key=lambda r: r.own_before_ns),
    Column("own after", lambda rank: units.duration(rank.own_after_ns), right=True, key=lambda r: r.own_after_ns),
    Column("change", lambda rank: _change(rank.own_before_ns, rank.own_after_ns), right=True),
    Column(
        "waits before", lambda rank: units.duration(rank.wait_before_ns), right=True, key=lambda r: r.wait_before_ns
    ),
    Column("waits after", lambda rank: units.duration(rank.wait_after_ns), right=True, key=lambda r: r.wait_after_ns),
)


def document(found: JobComparison, result: GateResult | None = None) -> Document:
    """What changed, for people; with a gate's result where there is one."""
    sides = (("before", found.before), ("after", found.after))
    whole = max(1.0, *(_whole_ns(side) for _, side in sides))
    chosen = _ranks(found)
    more = len(found.ranks) - len(chosen)
    stragglers = Entries(tuple(Entry(told(each), (_STATUS[each.status],)) for each in found.stragglers))
    where = "a mean rank's step" if found.before.step_ns is not None else "a mean rank"
    return Document(
        f"boundby: {found.before.path} → {found.after.path}",
        (
            *told_first(result),
            Heading(Span(headline(found), _role(found))),
            *(Facts(_side(side), word, "") for word, side in sides),
            *(Paragraph(note, "warning") for note in found.notes),
        ),
        (
            *limits(result),
            *section(
                "Who holds it up",
                stragglers if found.stragglers else Paragraph("Nobody, before and after."),
                id="stragglers",
                short="Who",
            ),
            *section(
                f"Where {where} goes",
                Bars(tuple(_bar(word, side, whole) for word, side in sides)),
                Table(_WHERE, tuple(rows(found))),
                id="where",
                short="Where",
            ),
            *section(
                "Ranks that changed most" if more else "Ranks",
                Table(_RANKS, tuple(chosen)),
                Paragraph(f"{more} more ranks changed less.", "faint") if more else None,
                id="ranks",
                short="Ranks",
            ),
        ),
    )


def headline(found: JobComparison) -> str:
    """How much shorter or longer, and whether that is sure."""
    one, other, tested = found.before, found.after, found.significance
    what = "A step" if one.step_ns is not None and other.step_ns is not None else "The job"
    before, after = (side.step_ns if what == "A step" else side.length_ns for side in (one, other))
    told = f"{what} takes {units.duration(after or 0)} instead of {units.duration(before or 0)}"
    told += f" ({units.change(found.change)})"
    if tested.is_change:
        return f"{told}: {tested.status}, significantly."
    return f"{told}; {tested.reason}."


def rows(found: JobComparison) -> Iterator[tuple[str, str, str, str]]:
    """Where the mean rank's time goes: what, before, after, change."""
    one, other = found.before, found.after
    parts = [(SHORT_LABEL[key], float(one.own[key]), float(other.own[key])) for key in CAUSE_KEYS]
    parts += [("transfer", one.transfer_ns, other.transfer_ns), ("waits for others", one.wait_ns, other.wait_ns)]
    whole = max(sum(before for _, before, _ in parts), sum(after for _, _, after in parts), 1.0)
    for name, before, after in parts:
        if max(before, after) >= _LEAST_SHARE * whole:
            yield name, units.duration(before), units.duration(after), _change(before, after)
    balances = [units.percent(side.imbalance, 1) for side in (one, other)]
    yield "balance would save", balances[0], balances[1], ""


def told(change: StragglerChange) -> str:
    """One straggler, in a sentence."""
    one = change.after or change.before
    assert one is not None
    what = SHORT_LABEL[one.cause] + (f" in {region_name(one.region)}" if one.region else "")
    gains = [units.duration(each.saving_ns) for each in (change.before, change.after) if each is not None]
    who = {"random": "ranks take turns at being late", "stage": f"stage {one.stage}"}.get(one.kind, "")
    if not who:
        who = f"{'ranks' if len(one.ranks) > 1 else 'rank'} {', '.join(map(str, one.ranks[:4]))}"
    return f"{who}, {what}, {' then '.join(gains)} of the job."


def _role(found: JobComparison) -> Role:
    return ("bad" if found.change > 0 else "good") if found.significance.is_change else ""


def _change(before: float, after: float) -> str:
    return units.change(after / before - 1) if before else ""


def _ranks(found: JobComparison) -> list[RankChange]:
    def moved(one: RankChange) -> float:
        return abs(one.own_after_ns - one.own_before_ns)

    return sorted(sorted(found.ranks, key=lambda one: (-moved(one), one.rank))[:MOST_RANKS], key=lambda one: one.rank)


def _side(side: JobSide) -> tuple[str | Span, ...]:
    bound = BOUND_LABEL.get(side.bound, f"bound by {side.bound}")
    return (Span(side.path, "code"), f"{side.ranks} ranks", bound, f"confidence {side.confidence}")


def _whole_ns(side: JobSide) -> float:
    return sum(side.own.values()) + side.transfer_ns + side.wait_ns


def _bar(word: str, side: JobSide, longest_ns: float) -> Bar:
    """A side's mean rank; its part of the longer one."""
    whole = _whole_ns(side)
    time = {**side.own, "transfer": side.transfer_ns, "waits": side.wait_ns}
    parts = (Segment(key, round(ns), ns / whole) for key, ns in time.items() if ns >= _LEAST_SHARE * longest_ns)
    return Bar(tuple(parts) if whole else (), whole / longest_ns, word, units.duration(whole))
