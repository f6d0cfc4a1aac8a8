"""A job of many ranks -> terminal, Markdown and one HTML page: the sentence first, then who holds up whom, then the
ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from boundby.document.bars import cells, segments
from boundby.document.text import clean, region_name, shorten
from boundby.model import units
from boundby.model.causes import BOUND_LABEL, CAUSE_KEYS, COLORS, LETTER, SHORT_LABEL
from boundby.model.records import dataclass
from boundby.model.scale import HALF, NEGLIGIBLE, SMALL
from boundby.render import markdown
from boundby.results.job import JobReport, JobWhatIf, RankReport, Straggler
from boundby.structure import ranks as mpi_ranks

#: Up to so many ranks stand one by one; of more, those that stand out.
ONE_BY_ONE = 16
OUTLIERS = 10
_PAIRS = 32
#: Predictions that save less are not worth a line.
_LEAST_SAVED = NEGLIGIBLE
#: Of all waits one rank causes more than this: it is named, with a doubt, where nobody is slower than its peers.
_MOSTLY = HALF
#: Less waiting, of all ranks' time, is ordinary.
_LEAST_WAITS = SMALL
_SCENARIOS = {
    "balance": "perfect balance",
    "transfer_free": "transfers take no time",
    "transfer=2": "transfers twice as fast",
    "kernels=2": "kernels twice as fast on all ranks",
}


#: What ranks can be sorted by: the most first; by rank: as they are.
SORTS: dict[str, Callable[[RankReport], int]] = {
    "rank": lambda _: 0,
    "own": lambda rank: sum(rank.own.values()),
    "transfer": lambda rank: rank.transfer_ns,
    "waits": lambda rank: rank.wait_ns,
    "others-wait": lambda rank: rank.caused_wait_ns,
}


@dataclass(frozen=True)
class Look:
    """Which ranks are shown one by one, and in what order: those that stand out, where nothing is said."""

    sort: str = "rank"
    top: int | None = None
    full: bool = False


STANDING_OUT = Look()


def headline(job: JobReport) -> str:
    """What bounds the job, in a sentence."""
    verdict = job.verdict
    words = {"imbalance": "bound by imbalance between its ranks", "gpu_comm": "bound by transfers between its ranks"}
    bound = words.get(verdict.bound, BOUND_LABEL.get(verdict.bound, verdict.bound))
    ranks = f"{len(job.ranks)} ranks"
    if job.missing:
        ranks = f"{len(job.ranks) + len(job.missing)} ranks, of which {len(job.ranks)} are here,"
    if any(one.is_inside for one in job.ended):
        return f"The job of {ranks.rstrip(',')} did not end: {endings(job)}."
    if verdict.bound == "unknown":
        return f"It is not known what bounds the job of {ranks.rstrip(',')}: {clean(verdict.because)}."
    return f"The job of {ranks} is {bound}: {clean(verdict.because)}."


def endings(job: JobReport) -> str:
    """What ranks were in that did not come to the end of MPI, those that are stuck first."""
    ordered = sorted(job.ended, key=lambda one: (not one.is_inside, -one.lasted_ns, one.rank))
    clauses = [
        mpi_ranks.ending(
            name_of(job, one.rank),
            clean(one.call),
            one.lasted_ns if one.is_inside else None,
            next((name_of(job, at) for at, rank in enumerate(job.ranks) if rank.rank == one.peer), ""),
            one.tag,
            one.bytes,
        )
        for one in ordered[: mpi_ranks.MOST_TOLD]
    ]
    all_stuck = all(one.is_inside for one in ordered) and len(ordered) == len(job.ranks)
    return mpi_ranks.endings(clauses, len(ordered) - mpi_ranks.MOST_TOLD, all_stuck)


def facts(job: JobReport) -> list[str]:
    """Length, steps, collectives, clocks, confidence."""
    told = [units.duration(job.length_ns) + (" from the first collective on" if job.collectives else "")]
    if job.steps > 1:
        told.append(f"{job.steps} steps")
    told.append(units.plural(job.collectives, "collective"))
    matched = [rank.clock for rank in job.ranks if rank.clock.matched]
    if matched:
        median = sorted(clock.residual_ns for clock in matched)[len(matched) // 2]
        worst = max(clock.worst_ns for clock in matched)
        told.append(f"clocks set to within {units.duration(median)} (worst {units.duration(worst)})")
    told.append(f"confidence {job.verdict.confidence}")
    return told


def name_of(job: JobReport, place: int) -> str:
    """``rank 7``, or the report's name where no rank is told."""
    rank = job.ranks[place]
    return f"rank {rank.rank}" if rank.rank is not None else clean(rank.name)


def names_of(job: JobReport, places: Sequence[int]) -> str:
    """Several ranks in few words."""
    if len(places) <= 4:
        return ", ".join(name_of(job, place) for place in places)
    numbers = [job.ranks[place].rank for place in places]
    first, last = name_of(job, places[0]), name_of(job, places[-1])
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return f"{first} to {last} ({len(places)} of them)"
    if known == list(range(known[0], known[0] + len(known))):
        return f"ranks {known[0]} to {known[-1]}"
    return f"{len(known)} ranks ({', '.join(map(str, known[:4]))}, ... {known[-1]})"


def told(job: JobReport, one: Straggler) -> str:
    """One thing that holds the job up, in a sentence."""
    what = SHORT_LABEL[one.cause] + (f" in {region_name(one.region)}" if one.region else "")
    share = f" ({units.percent(one.saving_ns / job.length_ns, 1)})" if job.length_ns else ""
    gain = f"{units.duration(one.saving_ns)}{share} shorter"
    often = f"in {one.steps} of {job.steps} steps" if job.steps > 1 else "over the run"
    excess, who = units.duration(one.excess_ns), names_of(job, one.ranks)
    subject = who[:1].upper() + who[1:]
    if one.kind == "random":
        differs = "differs from step to step" if job.steps > 1 else "differs in the course of the run"
        remedy = ""
        if one.cause == "gpu_compute":
            remedy = " If their inputs differ in length, give each rank batches that take as long as the others'."
        return f"Ranks take turns at being late: their {what} {differs}.{remedy} Even, the job is {gain}."
    if one.kind == "link":
        return f"Transfers among {who} take {excess} longer than those of groups that send as much. As fast: {gain}."
    if one.kind == "stage":
        moved = one.cause in ("gpu_compute", "gpu_copy")
        remedy = "Move layers from it to the others" if moved else "As short as the others"
        return f"Stage {one.stage} ({who}) does {excess} more than other stages, mostly {what}. {remedy}: {gain}."
    if one.kind == "extra":
        return f"{subject} alone does {excess} of {what}, which the others wait for. Without: {gain}."
    many = len(one.ranks) > 1
    if one.kind == "exceptions":
        return f"{subject} {'are each' if many else 'is'} held up {often}, by {excess} of {what}. Without: {gain}."
    takes, mostly = "each take" if many else "takes", units.percent(one.cause_share)
    peers = f"{'their' if many else 'its'} peers, {mostly} of it {what}, {often}"
    waits = (
        f" The others wait for it in {clean(one.waited_in)}: {units.duration(one.waited_ns)}." if one.waited_in else ""
    )
    return f"{subject} {takes} {excess} longer than {peers}.{waits} Like them: {gain}."


def nobody(job: JobReport) -> str:
    """What is said where nothing holds the job up."""
    if job.verdict.bound == "unknown":
        return "None of the ranks here, as far as these reports show: what others hold up cannot be seen."
    most = job.most_waited_for()
    waits = sum(rank.wait_ns for rank in job.ranks) / max(sum(rank.window_ns for rank in job.ranks), 1)
    if job.steps == 1 and most is not None and most[1] > _MOSTLY and waits > _LEAST_WAITS:
        who, share = name_of(job, most[0]), units.percent(most[1])
        return (
            f"Perhaps {who}: {share} of what ranks wait for others is for it. One step is too few to say whether that"
            " is so in every step."
        )
    return "Nobody: no rank, stage or link is so much slower than its peers that the job would gain."


def scenario(one: JobWhatIf) -> str:
    """A scenario for people."""
    if one.cause is None:
        return _SCENARIOS.get(one.scenario, one.scenario)
    where = f" in {region_name(one.region)}" if one.region else ""
    return f"no {SHORT_LABEL[one.cause]}{where} on any rank"


def shown(job: JobReport, look: Look = STANDING_OUT) -> tuple[list[int], str]:
    """The ranks to show one by one, and what is said of the others."""
    most = len(job.ranks) if look.full else look.top or ONE_BY_ONE
    if len(job.ranks) <= most or look.sort != "rank":
        by = SORTS[look.sort]
        return sorted(range(len(job.ranks)), key=lambda place: (-by(job.ranks[place]), place))[:most], ""
    named = [place for one in (*job.stragglers, *job.extras) for place in one.ranks[:4]]
    by_wait = sorted(range(len(job.ranks)), key=lambda place: (job.ranks[place].wait_ns, place))
    by_cause = sorted(range(len(job.ranks)), key=lambda place: (-job.ranks[place].caused_wait_ns, place))
    chosen = list(dict.fromkeys([*named, *by_cause[:3], *by_wait[:2], *by_wait[-2:]]))[: look.top or OUTLIERS]
    waits = sorted(_share(rank, rank.wait_ns) for rank in job.ranks)
    spread = " / ".join(units.percent(waits[round(part * (len(waits) - 1))]) for part in (0, 0.25, 0.5, 0.75, 1))
    return sorted(
        chosen
    ), f"All {len(job.ranks)} ranks wait for others {spread} of their time (least, quartiles, most)."


def _share(rank: RankReport, ns: int) -> float:
    return ns / rank.window_ns if rank.window_ns else 0.0


def terminal(job: JobReport, *, width: int = 100, unicode: bool = True, look: Look = STANDING_OUT) -> str:
    """The whole view as plain text."""
    lines = [
        *_wrapped(headline(job), width),
        *_wrapped(" · ".join(facts(job)) if unicode else "; ".join(facts(job)), width),
    ]
    if job.verdict.reasons:
        lines += _wrapped("Confidence limited: " + "; ".join(clean(one) for one in job.verdict.reasons) + ".", width)
    lines += ["", "WHO HOLDS IT UP"]
    for number, one in enumerate(job.stragglers, 1):
        lines += _wrapped(f"{number}. {told(job, one)}", width, 3)
    if not job.stragglers:
        lines += _wrapped(nobody(job), width)
    for one in job.extras:
        lines += _wrapped(told(job, one), width)
    places, rest = shown(job, look)
    first = "RANKS THAT STAND OUT" if look.sort == "rank" else f"{len(places)} OF {len(job.ranks)} RANKS"
    lines += ["", "RANKS" if len(places) == len(job.ranks) else first]
    bar_width = max(width - 74, 12)
    lines.append(f"{'rank':<22} {'own':>9} {'transfer':>9} {'waits':>9} {'wait %':>6} {'others wait':>11}  time")
    for place in places:
        rank = job.ranks[place]
        name = shorten(name_of(job, place), 22)
        lines.append(
            f"{name:<22} {units.duration(sum(rank.own.values())):>9} {units.duration(rank.transfer_ns):>9}"
            f" {units.duration(rank.wait_ns):>9} {units.percent(_share(rank, rank.wait_ns)):>6}"
            f" {units.duration(rank.caused_wait_ns):>11}  {_bar(rank, bar_width)}"
        )
    used = [key for key in CAUSE_KEYS if any(rank.own[key] for rank in job.ranks)]
    lines += _wrapped(
        ", ".join([*(f"{LETTER[key]} {SHORT_LABEL[key]}" for key in used), "= transfer", ". waits"]), width
    )
    lines += _wrapped(rest, width) if rest else []
    if job.what_if:
        lines += ["", "WHAT IF (all ranks, replayed together)"]
        for change in sorted(job.what_if, key=lambda change: (change.predicted_ns, change.scenario)):
            saved = 1 - change.predicted_ns / change.baseline_ns if change.baseline_ns else 0.0
            if saved >= _LEAST_SAVED or look.full:
                takes = units.duration(change.predicted_ns)
                lines.append(f"  {shorten(scenario(change), 52):<52} {takes:>9}  {units.percent(saved):>5} shorter")
    notes = [*(f"Left out: {clean(one)}" for one in job.left_out), *(clean(one) for one in job.notes)]
    if notes:
        lines += ["", "NOTES"]
        for note in notes:
            lines += _wrapped(note, width, 2)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _bar(rank: RankReport, width: int) -> str:
    """Own work by cause, then transfer (=) and waiting (.)."""
    whole = sum(rank.own.values()) + rank.transfer_ns + rank.wait_ns
    if not whole:
        return ""
    waits, transfer = round(width * rank.wait_ns / whole), round(width * rank.transfer_ns / whole)
    own = max(width - waits - transfer, 0)
    parts = segments(rank.own)
    lengths = cells(parts, own) if parts and own else ()
    text = "".join(part.letter * length for part, length in zip(parts, lengths, strict=False))
    return text + "=" * transfer + "." * waits


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, subsequent_indent=" " * indent) or [""]


def render_markdown(job: JobReport, look: Look = STANDING_OUT) -> str:
    """The job as GitHub-flavoured Markdown."""
    lines = [f"### {markdown.escape(headline(job))}", "", markdown.escape(" · ".join(facts(job))), ""]
    if job.verdict.reasons:
        lines += [markdown.escape("Confidence limited: " + "; ".join(job.verdict.reasons) + "."), ""]
    lines += [f"{number}. {markdown.escape(told(job, one))}" for number, one in enumerate(job.stragglers, 1)]
    lines += [f"- {markdown.escape(told(job, one))}" for one in job.extras]
    if not job.stragglers:
        lines.append(nobody(job))
    places, rest = shown(job, look)
    rows = [
        (
            markdown.code(name_of(job, place)),
            units.duration(sum(job.ranks[place].own.values())),
            units.duration(job.ranks[place].transfer_ns),
            units.duration(job.ranks[place].wait_ns),
            units.percent(_share(job.ranks[place], job.ranks[place].wait_ns)),
            units.duration(job.ranks[place].caused_wait_ns),
        )
        for place in places
    ]
    lines += ["", markdown.table(("rank", "own", "transfer", "waits", "wait %", "others wait for it"), "lrrrrr", rows)]
    lines += [rest] if rest else []
    predicted = [
        (
            markdown.escape(scenario(one)),
            units.duration(one.predicted_ns),
            units.percent(1 - one.predicted_ns / one.baseline_ns),
        )
        for one in job.what_if
        if one.baseline_ns and one.predicted_ns <= 0.99 * one.baseline_ns
    ]
    if predicted:
        lines += ["", markdown.table(("what if", "job takes", "shorter by"), "lrr", predicted)]
    lines += ["", *(f"- Left out: {markdown.escape(one)}" for one in job.left_out)]
    lines += [f"- {markdown.escape(one)}" for one in job.notes]
    return "\n".join(lines).rstrip() + "\n"


def html(job: JobReport, links: Sequence[str | None] = ()) -> str:
    """One self-contained page: heat map of ranks and steps, who waits for whom, every rank. ``links``: a page a
    rank."""
    from boundby.render.page import job_page

    return job_page(
        {
            "headline": headline(job),
            "facts": facts(job),
            "reasons": job.verdict.reasons,
            "stragglers": [told(job, one) for one in job.stragglers],
            "extras": [told(job, one) for one in job.extras],
            "nobody": nobody(job),
            "what_if": [
                (
                    scenario(one),
                    units.duration(one.predicted_ns),
                    units.percent(1 - one.predicted_ns / one.baseline_ns),
                )
                for one in job.what_if
                if one.baseline_ns and one.predicted_ns <= 0.99 * one.baseline_ns
            ],
            "pairs": [
                (name_of(job, one.waiting), name_of(job, one.last), units.duration(one.wait_ns))
                for one in job.pairs[:_PAIRS]
            ],
            "ranks": list(_rows(job, links)),
            "notes": [*(f"Left out: {one}" for one in job.left_out), *job.notes],
            "steps": job.steps,
            "causes": [(LETTER[key], SHORT_LABEL[key], *COLORS[key][:2]) for key in CAUSE_KEYS],
        },
        _data(job),
    )


def _rows(job: JobReport, links: Sequence[str | None]) -> Iterable[dict[str, object]]:
    for place, rank in enumerate(job.ranks):
        clock = rank.clock
        yield {
            "name": name_of(job, place),
            "numbers": (
                *(place, place, rank.stage, sum(rank.own.values()), rank.transfer_ns, rank.wait_ns),
                *(round(_share(rank, rank.wait_ns), 6), rank.caused_wait_ns, rank.last),
                *(clock.offset_ns, round(clock.residual_ns)),
            ),
            "file": rank.name,
            "link": links[place] if place < len(links) else None,
            "stage": rank.stage,
            "own": units.duration(sum(rank.own.values())),
            "transfer": units.duration(rank.transfer_ns),
            "wait": units.duration(rank.wait_ns),
            "share": units.percent(_share(rank, rank.wait_ns)),
            "caused": units.duration(rank.caused_wait_ns),
            "last": rank.last,
            "offset": f"{clock.offset_ns / 1e3:,.1f} us",
            "residual": units.duration(clock.residual_ns) if clock.matched else "not set",
        }


def _data(job: JobReport) -> str:
    """What the heat map draws, as JSON that no text of a trace can leave."""
    colors = {LETTER[key]: COLORS[key][0] for key in CAUSE_KEYS}
    data = {
        "names": [name_of(job, place) for place in range(len(job.ranks))],
        "own": [list(rank.steps) for rank in job.ranks],
        "wait": [list(rank.step_waits) for rank in job.ranks],
        "cause": [rank.step_causes for rank in job.ranks],
        "colors": colors,
        "labels": {LETTER[key]: SHORT_LABEL[key] for key in CAUSE_KEYS},
    }
    return (
        json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )
