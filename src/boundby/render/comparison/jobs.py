"""Two jobs compared -> terminal, Markdown and one HTML page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from boundby.document.text import clean, region_name, shorten
from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, COLORS, LETTER, SHORT_LABEL
from boundby.model.scale import HARDLY
from boundby.render import gate, markdown
from boundby.results.gate import GateResult
from boundby.results.job import JobComparison, JobSide, RankChange, StragglerChange

#: Of more ranks, those that changed most.
MOST_RANKS = 16
#: Parts of less than this share of a step are not worth a line.
_LEAST_SHARE = HARDLY
_STATUS = {"resolved": "Gone", "new": "New", "stays": "Stays"}


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
    return f"{_STATUS[change.status]}: {who}, {what}, {' then '.join(gains)} of the job."


def _change(before: float, after: float) -> str:
    return units.change(after / before - 1) if before else ""


def _ranks(found: JobComparison) -> list[RankChange]:
    def moved(one: RankChange) -> float:
        return abs(one.own_after_ns - one.own_before_ns)

    return sorted(sorted(found.ranks, key=lambda one: (-moved(one), one.rank))[:MOST_RANKS], key=lambda one: one.rank)


def terminal(found: JobComparison, *, width: int = 100) -> str:
    """As plain text."""
    one, other = found.before, found.after
    lines = textwrap.wrap(headline(found), width)
    lines += textwrap.wrap(
        f"Before: {clean(one.path)}, {one.ranks} ranks, bound by {one.bound} ({one.confidence}). "
        f"After: {clean(other.path)}, {other.ranks} ranks, bound by {other.bound} ({other.confidence}).",
        width,
    )
    lines += ["", f"{'MEAN RANK, A STEP' if one.step_ns is not None else 'MEAN RANK':<24} {'before':>10} {'after':>10}"]
    lines += [
        f"{shorten(name, 24):<24} {before:>10} {after:>10} {change:>9}" for name, before, after, change in rows(found)
    ]
    if found.stragglers:
        lines += ["", "WHO HOLDS IT UP"]
        lines += [
            part for each in found.stragglers for part in textwrap.wrap(told(each), width, subsequent_indent="  ")
        ]
    chosen = _ranks(found)
    if chosen:
        lines += ["", f"{'RANK':<8} {'own before':>11} {'after':>10} {'':>9} {'waits before':>13} {'after':>10}"]
        for rank in chosen:
            own = units.duration(rank.own_before_ns), units.duration(rank.own_after_ns)
            waits = units.duration(rank.wait_before_ns), units.duration(rank.wait_after_ns)
            change = _change(rank.own_before_ns, rank.own_after_ns)
            lines.append(f"{rank.rank:<8} {own[0]:>11} {own[1]:>10} {change:>9} {waits[0]:>13} {waits[1]:>10}")
    lines += [part for note in found.notes for part in textwrap.wrap(clean(note), width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render_markdown(found: JobComparison) -> str:
    """As GitHub-flavoured Markdown."""
    lines = [f"### {markdown.escape(headline(found))}", ""]
    lines += [markdown.table(("mean rank", "before", "after", "change"), "lrrr", list(rows(found))), ""]
    lines += [f"- {markdown.escape(told(each))}" for each in found.stragglers]
    chosen = [
        (
            str(rank.rank),
            *(units.duration(ns) for ns in (rank.own_before_ns, rank.own_after_ns)),
            *(units.duration(ns) for ns in (rank.wait_before_ns, rank.wait_after_ns)),
        )
        for rank in _ranks(found)
    ]
    if chosen:
        heads = ("rank", "own before", "own after", "waits before", "waits after")
        lines += ["", markdown.table(heads, "rrrrr", chosen)]
    lines += [f"- {markdown.escape(note)}" for note in found.notes]
    return "\n".join(lines).rstrip() + "\n"


def sides(found: JobComparison) -> list[tuple[str, str, str]]:
    """Both jobs: which, what was given, and what it is."""
    return [
        (which, clean(side.path), f"{side.ranks} ranks, bound by {side.bound}, confidence {side.confidence}")
        for which, side in (("Before", found.before), ("After", found.after))
    ]


def _bar(side: JobSide, longest_ns: float) -> list[tuple[str, str, str, str, str]]:
    """A side's mean rank as parts of a bar: letter, label, length, share of the longer side's in percent, colour."""
    parts = [(LETTER[key], SHORT_LABEL[key], float(side.own[key]), COLORS[key][0]) for key in CAUSE_KEYS]
    parts += [("=", "transfer", side.transfer_ns, "#c9b3e6"), (".", "waits for others", side.wait_ns, "#d4d8dc")]
    return [
        (letter, label, units.duration(ns), f"{100 * ns / longest_ns:.3f}", color)
        for letter, label, ns, color in parts
        if ns >= _LEAST_SHARE * longest_ns
    ]


def html(found: JobComparison, result: GateResult | None = None) -> str:
    """As one self-contained page, with a gate's result where there is one."""
    from boundby.render.html import environment

    whole = [sum(side.own.values()) + side.transfer_ns + side.wait_ns for side in (found.before, found.after)]
    return (
        environment()
        .get_template("comparison/jobs.html.j2")
        .render(
            headline=headline(found),
            is_change=found.significance.is_change,
            change=found.change,
            sides=sides(found),
            bars=[
                (which, _bar(side, max(*whole, 1.0)), units.duration(ns))
                for which, side, ns in zip(("before", "after"), (found.before, found.after), whole, strict=True)
            ],
            what="a mean rank's step" if found.before.step_ns is not None else "a mean rank",
            rows=list(rows(found)),
            stragglers=[(each.status, told(each)) for each in found.stragglers],
            ranks=[
                (
                    rank.rank,
                    units.duration(rank.own_before_ns),
                    units.duration(rank.own_after_ns),
                    _change(rank.own_before_ns, rank.own_after_ns),
                    units.duration(rank.wait_before_ns),
                    units.duration(rank.wait_after_ns),
                )
                for rank in _ranks(found)
            ],
            left_out=max(len(found.ranks) - MOST_RANKS, 0),
            notes=found.notes,
            gate=gate,
            result=result,
        )
    )
