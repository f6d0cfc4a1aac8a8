"""The pattern of a verdict as a card: of each device, and of each region that matters.

A card has the parts of a pattern: picture, context, problem, trade-offs, its signs as they are here, what to do first,
what bounds the program next, and false alarms. What every program with the pattern has alike is told with the first
card of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from boundby.claims import patterns
from boundby.claims.laws import wholes
from boundby.document import sentences, view
from boundby.document.blocks import (
    Column,
    Entries,
    Entry,
    Heading,
    Inline,
    Paragraph,
    Section,
    Span,
    Table,
    Verbatim,
    entries,
    region_name,
)
from boundby.document.view import ShownAccount
from boundby.model import units
from boundby.model.causes import BOUND_LABEL, NOUN
from boundby.model.late import expression
from boundby.model.scale import GLANCE, LIST, SLIGHT, SMALL
from boundby.results.report import Card, Finding, FirstResponse, RegionReport, Report, Sign, Verdict
from boundby.rules.remedies import conditions

#: GitHub takes comments of up to 65,536 characters; what one device has here takes some 1,700.
MOST_DEVICES = GLANCE
#: A region that is all of what holds it but this, with the same verdict, has nothing of its own to tell.
NOTHING_ELSE = SLIGHT
#: `` (`init`, `cpu`)``
_KEY = f"`(?:{'|'.join(patterns.KEYS)})`"
_KEYS_BEHIND = expression(rf" \({_KEY}(?:, {_KEY})*\)")
#: A limit is of the pattern; what only looks like it lies on the other side.
_OTHER_SIDE = {"over": "under", "under": "over"}
_MARKS = {True: "✓", False: "✗", None: "?"}
_SIGNS = (
    Column("classic signs", lambda sign: f"{_MARKS[sign.is_met]} {sign.name}"),
    Column("here", lambda sign: sign.value, right=True),
    Column("usual", lambda sign: sign.limit, right=True),
)


class Shown(Struct, frozen=True):
    """What a card is of: a device, a thread or a region."""

    name: str
    verdict: Verdict
    cards: tuple[Card, ...]
    responses: tuple[FirstResponse, ...]
    set_against_ns: int  # what savings are shares of
    because: str  # of a region; a device's stands above
    then: str  # what is left without the bound, and what bounds that
    has_gpu: bool = True  # else nothing is known of what comes then
    in_full: bool = True  # with the code, the needs and the commands of its responses
    linked: tuple[
        Finding, ...
    ] = ()  # findings that stand on the same page: responses lead there, and do not repeat them


def sections(report: Report) -> tuple[Section, ...]:
    """The cards of a report, one section each, folded where a format folds."""
    return tuple(part for parts in by_subject(report) for part in parts)


def by_subject(report: Report, *, is_of_regions: bool = False, links: bool = False) -> list[tuple[Section, ...]]:
    """The cards of each device (thread, where there is no GPU work; ``is_of_regions``: of none), then of each region
    that matters. ``links``: on a page that has the findings, ``#finding-1`` the first."""
    explained = set() if report.devices else {*patterns.PAGES}  # without a GPU their words say nothing
    accounts = () if is_of_regions else map(_of_account, view.accounts(report)[:MOST_DEVICES])
    of_regions = (_of_region(region, report) for region in regions(report))
    every = (replace(shown, linked=report.findings if links else ()) for shown in (*accounts, *of_regions))
    return [tuple(_sections(shown, explained, f"pattern-{number}")) for number, shown in enumerate(every)]


def regions(report: Report) -> list[RegionReport]:
    """Those with a card; where none was asked for, without those that are all of what holds them, which has it, and no
    more than a reader takes in."""
    every = [region for region in report.regions if region.cards]
    if report.analysis.region_glob is not None:
        return every
    bounds = {device.verdict.bound for device in report.devices}
    around: list[tuple[tuple[str, ...], float, set[str]]] = [((), 1.0, bounds)]
    kept = []
    for region in every:  # what holds a region stands before it
        while region.path[: len(around[-1][0])] != around[-1][0]:
            around.pop()
        _, share, outer = around[-1]
        if region.share < (1 - NOTHING_ELSE) * share or {region.verdict.bound} != outer:
            kept.append(region)
            around.append((region.path, region.share, {region.verdict.bound}))
    most = sorted(kept, key=lambda region: (-region.share, region.path))[:LIST]
    return [region for region in kept if region in most]


def _of_account(account: ShownAccount) -> Shown:
    """What its bound gone would save stands with the verdict, above its cards."""
    return Shown(
        name=account.name,
        verdict=account.verdict,
        cards=account.cards,
        responses=account.responses,
        set_against_ns=account.set_against_ns,
        because="",
        then="",
        has_gpu=account.device is not None,
    )


def _of_region(region: RegionReport, report: Report) -> Shown:
    verdict, whole_ns = region.verdict, view.longest_window(report)
    bounds = verdict.mixed_of or (verdict.bound,)
    most_ns = _without_bound_ns(region, bounds, report)
    return Shown(
        name=region_name(region.path),
        verdict=verdict,
        cards=region.cards,
        responses=region.first_responses,
        set_against_ns=whole_ns,
        because=sentences.because(verdict),
        then=_without(region, bounds, most_ns, whole_ns) if most_ns and whole_ns else "",
        has_gpu=bool(report.devices),
        in_full=report.analysis.region_glob is not None,
    )


def _without(region: RegionReport, bounds: Sequence[str], most_ns: int, whole_ns: int) -> str:
    """What the program is without the bound in the region, and what limits the region then."""
    gone = " here, or else without ".join(NOUN[bound] for bound in bounds)
    shorter = f"up to {units.duration(most_ns)} ({units.percent(most_ns / whole_ns)}) shorter"
    then, own_ns = f"Without {gone} here, the program would be {shorter}", sentences.each_ns(region) * region.instances
    if most_ns > (1 + SMALL) * own_ns > 0:
        taken = units.duration(own_ns)
        then += f". That exceeds the {taken} of the region, because later work would start earlier, too"
    following = NOUN.get(region.verdict.bound_next or "", "")
    return f"{then}. Then {following} would limit the region." if following else f"{then}."


def _without_bound_ns(region: RegionReport, bounds: Sequence[str], report: Report) -> int:
    """What its bound gone there saves at most: no more than that gone everywhere. Another change may save more."""
    savings, most_ns = region.verdict.savings, region.max_saving_ns or 0
    if savings and savings[0].cause not in bounds:
        return region.verdict.saving_ns or 0
    everywhere = wholes(report.devices, report.what_if, ()).of(bounds)
    return min(most_ns, everywhere.high_ns) if report.devices else most_ns


def _sections(shown: Shown, told: set[str], ident: str) -> Iterator[Section]:
    """One card a section. ``told``: patterns that need no words any more."""
    rest = shown
    for card in shown.cards:
        others = {f"{other.pattern}." for other in shown.cards if other is not card}
        own = tuple(response for response in rest.responses if not response.id.startswith((*others,)))
        key = patterns.page_key(card.pattern, shown.verdict.waits_for)
        parts = [Paragraph(rest.because), *_pattern(key, told), *_signs(card)]
        parts += [*_after(key, replace(rest, responses=own)), *_not_there(key, card, told)]
        told.add(key)
        left = tuple(
            response for response in rest.responses if response not in own
        )  # those of no pattern stand on the first card
        rest = replace(shown, responses=left, because="", then="")
        title = f"Pattern: {_title(card, shown.verdict)} ({shown.name})"
        yield Section(title, tuple(parts), f"{ident}-{card.pattern}", shown.name, is_folded=True)
    if shown.responses and not shown.cards:
        title = f"First responses ({shown.name})"
        yield Section(title, tuple(_responses(shown)), ident, shown.name, is_folded=True)


def _title(card: Card, verdict: Verdict) -> str:
    """That of the pattern's page; where the trace shows for what the host waits, the verdict's own words."""
    waits = sentences.bound_label(verdict) if card.pattern == verdict.bound and verdict.waits_for else ""
    return f"{waits[:1].upper()}{waits[1:]}" or patterns.pattern(card.pattern).title


def _pattern(key: str, told: set[str]) -> Iterator[object]:
    """What is alike wherever the pattern is."""
    if key not in told:
        page = patterns.pattern(key)
        yield Verbatim(page.picture, f"What {BOUND_LABEL.get(key, page.title)} looks like over time", False)
        for name in ("Context", "Problem"):
            yield Paragraph(_prose(page.parts[name]), word=f"{name}.")
        yield Heading(patterns.FORCES_PART, is_small=True)
        yield _list(page.parts[patterns.FORCES_PART])


def _signs(card: Card) -> Iterator[object]:
    yield Table(_SIGNS, card.signs)
    for text in (card.stands, *card.notes):
        if text:
            yield Paragraph(f"{_begun(text.rstrip('.'))}.", "faint")


def _begun(text: str) -> str:
    """With a capital, unless it begins with a name."""
    word = text.partition(" ")[0]
    return f"{text[:1].upper()}{text[1:]}" if word.islower() else text


def _after(key: str, shown: Shown) -> Iterator[object]:
    """What to do, and what bounds the program then."""
    if shown.responses:
        yield Heading("First responses", is_small=True)
        yield from _responses(shown)
    if not shown.has_gpu:
        return
    page, next_bound = patterns.pattern(key), shown.verdict.bound_next
    related = page.parts[patterns.THEN_PART].split("\n- ")
    naming = [text for text in related if next_bound is not None and f"`{next_bound}`" in text]
    told = naming or (related if shown.in_full else [])
    if shown.then or told:
        yield Heading(patterns.THEN_PART, is_small=True)
        yield Paragraph(shown.then)
        yield _list("\n- ".join(told))


def _not_there(key: str, card: Card, told: set[str]) -> Iterator[object]:
    """What looks like the pattern, with what is measured here; all of it once, later only what it may be."""
    here = {lookalike.text: lookalike.here for lookalike in card.lookalikes}
    texts = patterns.entries(key, patterns.NOT_PART)
    if key in told:
        texts = tuple(text for text in texts if text in here and here[text].is_met is False)
    if texts:
        yield Heading(patterns.NOT_PART, is_small=True)
        yield entries(_prose(f"{text} {_so_here(here[text])}" if text in here else text) for text in texts)


def _so_here(sign: Sign) -> str:
    """``Not so here (idle because of syncs: 35 %; a false alarm has under 5 %).``"""
    value = f"{sign.name}: {sign.value}"
    if sign.is_met is None:
        return f"The trace does not say ({value})."
    side, _, amount = sign.limit.partition(" ")
    beyond = f"a false alarm has {_OTHER_SIDE[side]} {amount}"
    return f"{'Not so' if sign.is_met else 'It may be so'} here ({value}; {beyond})."


def _responses(shown: Shown) -> Iterator[object]:
    """What to do first, best first; those without a number share a line."""
    numbered = sentences.numbered(shown.responses)
    yield Entries(tuple(_response(response, shown) for response in numbered), ordered=True)
    yield Paragraph(sentences.usual(shown.responses), "faint")


def _response(one: FirstResponse, shown: Shown) -> Entry:
    saves = sentences.saves_of(one, shown.set_against_ns)
    title = f"{one.title}{f' ({saves})' if saves else ''}"
    because, action = _because_and_action(one, shown.linked)
    if not shown.in_full:
        return Entry(title, (), tuple(filter(None, (because,))))
    more: tuple[Inline | Verbatim, ...] = (
        because,
        Verbatim(one.code) if one.code else "",
        f"at {sentences.place(one.where)}" if one.where is not None else "",
        f"→ {action}" if action else "",
        _prose(" ".join(conditions(one.needs, one.caution))),
        Span(one.command, "code") if one.command and one.command != one.code else "",
    )
    return Entry(title, (), tuple(part for part in more if part))


def _because_and_action(one: FirstResponse, linked: Sequence[Finding]) -> tuple[Inline, str]:
    """Why, and what to do; where a finding of the same page tells both, a link to there."""
    for number, item in enumerate(linked, 1):
        if sentences.is_told_by(one, item) and one.because.startswith(item.title):
            link = Span(f"Finding {number}", link=f"#finding-{number}")
            return (link, one.because.removeprefix(item.title)), "" if one.action in item.advice else one.action
    return one.because, one.action


def _list(text: str) -> Entries:
    """Our own Markdown: each ``- ...`` an entry."""
    return entries(_prose(part) for part in text.removeprefix("- ").split("\n- ") if part)


def _prose(text: str) -> Inline:
    """Our own Markdown: what stands between backticks is code. Keys of causes in brackets, behind their words, are for
    who looks for a page."""
    pieces = _KEYS_BEHIND.sub("", " ".join(text.split())).split("`")
    return tuple(Span(piece, "code" if number % 2 else "") for number, piece in enumerate(pieces) if piece)
