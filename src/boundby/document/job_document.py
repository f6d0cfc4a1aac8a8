"""A job of many ranks, and two jobs compared, as documents: the sentence first, then who holds up whom, then ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct

from boundby.document import sentences
from boundby.document.blocks import (
    Bar,
    Bars,
    Column,
    Document,
    Drawing,
    Entries,
    Entry,
    Facts,
    Heading,
    Legend,
    Only,
    Paragraph,
    Role,
    Section,
    Segment,
    Span,
    Table,
    clean,
    entries,
    in_region,
    section,
)
from boundby.document.comparison_document import limits, told_first
from boundby.model import units
from boundby.model.causes import (
    BOUND_LABEL,
    CAUSE_INFO,
    CAUSE_KEYS,
    COLORS,
    JOB_CAUSES,
    LETTER,
    NOUN,
    OWN_COMM,
    SHORT_LABEL,
    info,
)
from boundby.model.scale import A_FEW_LINES, HALF, HARDLY, NEGLIGIBLE, ONE_BY_ONE, RANKING, SLIGHT, SMALL, TABLE
from boundby.results.comparison import GateResult
from boundby.results.job_report import (
    JobComparison,
    JobReport,
    JobSide,
    JobWhatIf,
    Pipeline,
    RankChange,
    RankReport,
    Straggler,
    StragglerChange,
)
from boundby.structure import mpi_ranks
from boundby.trace.vocabulary.last_words import UNCLEAR

#: Up to so many ranks stand one by one; of more, those that stand out.
OUTLIERS = RANKING
#: Predictions that save less are not worth a line; those of one region, of which there are many, from here on.
_LEAST_SAVED, _LEAST_SAVED_IN_REGION = NEGLIGIBLE, SMALL
#: Nobody can take all of these away: half of the kernels' time, and who holds the job up, are told instead.
_LASTING = ("gpu_compute", "device_wait")
#: A cause that no change removes, as what a rank's time is.
_UNREMOVED = {"device_wait": "time between launch and start"}
#: Of all waits one rank causes more than this: it is named, with a doubt, where nobody is slower than its peers.
_MOSTLY = HALF
#: Less waiting, of all ranks' time, is ordinary.
_LEAST_WAITS = SMALL
_SCENARIOS = {
    "balance": "the ranks shared all work evenly (perfect balance)",
    "transfer_free": "transfers took no time",
    "transfer=2": "transfers were twice as fast",
    "kernels=2": "kernels were twice as fast on all ranks",
}


#: What is said to do, before what the job would gain by that.
REMEDIES = {
    "": "Make it as short as in the others",
    "check_device": "Check {its} GPU (clocks, temperature, other programs on it), or whether {its} batches are larger",
    "replace_machine": "Replace or check that machine",
    "share_work": "Give {it} as much work there as {its} peers have",
    "move_layers": "Move layers from {it} to the others",
    "balance_lengths": "Inputs differ in length: give each rank batches that take as long as the others'",
    "balance_steps": "If their inputs differ in length, give each rank batches that take as long as the others'",
    "feed": "Load {its} input faster: faster storage, or more loader workers",
    "host": "Check what else runs on {its} cores, and {its} garbage collection and logging",
    "look": "See what {they} in that time (boundby analyze): do less of it, or do it where no rank waits for {it}",
    "warm_up": "Do that before the first step",
    "less_often": "Do that less often, or beside the steps",
    "check_link": "Check that link: adapters, cables, switch",
}


#: Instead of `look` where what they do is told.
_DO_LESS = "Do less of that, or do it where no rank waits for {it}"
#: Blocked time, by what the host sleeps on (`Straggler.blocked_on`).
_BLOCKED = {
    "sleep": "in sleep()",
    "poll": "in poll",
    "lock": "on a lock",
    "condition": "on a condition",
    "file": "on a file",
    "network": "on the network",
    "thread or process": "on a thread or process",
    "queue": "on a queue",
    "GIL": "on the interpreter's lock (GIL)",
}


#: What ranks can be sorted by: the most first; by rank: as they are.
SORTS: dict[str, Callable[[RankReport], int]] = {
    "rank": lambda _: 0,
    "own": lambda rank: sum(rank.own.values()),
    "transfer": lambda rank: rank.transfer_ns,
    "waits": lambda rank: rank.wait_ns,
    "others-wait": lambda rank: rank.caused_wait_ns,
}


class JobLook(Struct, frozen=True):
    """Which ranks are shown one by one, and in what order: those that stand out, where nothing is said."""

    sort: str = "rank"
    top: int | None = None
    full: bool = False


STANDING_OUT = JobLook()


def headline(job: JobReport) -> str:
    """What bounds the job, in a sentence."""
    verdict = job.verdict
    words = {
        "imbalance": "bound by imbalance between its ranks",
        "gpu_comm": "bound by transfers between its ranks",
        "host_blocked": "bound by blocked time of its ranks",
    }
    bound = words.get(verdict.bound, BOUND_LABEL.get(verdict.bound, verdict.bound))
    if verdict.bound == "imbalance" and isinstance(next(iter(costs(job)), None), Pipeline):
        bound = "bound by its pipeline"
    ranks = f"{len(job.ranks)} ranks"
    if job.missing:
        ranks = f"{len(job.ranks) + len(job.missing)} ranks, of which {len(job.ranks)} are here,"
    if any(ending.is_inside for ending in job.ended):
        ended = (
            "broke off inside MPI" if any(failed.program.ended != UNCLEAR for failed in job.programs) else "did not end"
        )
        return f"The job of {ranks.rstrip(',')} {ended}: {endings(job)}."
    if verdict.bound == "unknown":
        return f"It is not known what bounds the job of {ranks.rstrip(',')}: {clean(verdict.because)}."
    return f"The job of {ranks} is {bound}: {clean(verdict.because)}."


def programs(job: JobReport) -> Iterator[Heading | Paragraph]:
    """How programs ended that did not end well, above all else."""
    for group in job.programs[:A_FEW_LINES]:
        end, more = group.program, group.left_out if group.ranks else group.left_out[1:]
        who = names_of(job, group.ranks) if group.ranks else clean(group.left_out[0])
        who += f" and {units.plural(len(more), 'more report')}" if more else ""
        is_all = len(group.ranks) + len(group.left_out) == len(job.ranks) + len(job.left_out)
        yield Heading(str(sentences.ended_headline(end, "The program" if is_all else f"The program of {who}")))
        rest = sentences.MAY_HAVE_CAUGHT if end.ended == UNCLEAR else f"{sentences.when(end, has_started_cuda=True)}."
        yield from (Paragraph(line.strip(), "faint") for line in sentences.own_lines(end))
        yield Paragraph(rest)


def endings(job: JobReport) -> str:
    """What ranks were in that did not come to the end of MPI, those that left the others first."""
    ordered = sorted(job.ended, key=lambda one: (one.is_inside and not one.has_failed, -one.lasted_ns, one.rank))
    clauses = [
        mpi_ranks.ending(
            name_of(job, ending.rank),
            clean(ending.call),
            ending.lasted_ns if ending.is_inside else None,
            next((name_of(job, at) for at, rank in enumerate(job.ranks) if rank.rank == ending.peer), ""),
            ending.tag,
            ending.bytes,
            has_failed=ending.has_failed,
        )
        for ending in ordered[: mpi_ranks.MOST_TOLD]
    ]
    all_stuck = all(one.is_inside and not one.has_failed for one in ordered) and len(ordered) == len(job.ranks)
    return mpi_ranks.endings(clauses, len(ordered) - mpi_ranks.MOST_TOLD, all_stuck)


def facts(job: JobReport) -> list[str]:
    """Length, steps, collectives, clocks, confidence."""
    parts = [units.duration(job.length_ns) + (" counted from the first collective on" if job.collectives else "")]
    if job.steps > 1:
        parts.append(f"{job.steps} steps")
    parts.append(units.plural(job.collectives, "collective"))
    matched = [rank.clock for rank in job.ranks if rank.clock.matched]
    if matched:
        median = sorted(clock.residual_ns for clock in matched)[len(matched) // 2]
        worst = max(clock.worst_ns for clock in matched)
        within = f"clocks differ by {units.duration(median)} typically, {units.duration(worst)} at most"
        parts.append(within if worst else "all ranks have one clock")
    parts.append(f"confidence {job.verdict.confidence}")
    return parts


def name_of(job: JobReport, place: int) -> str:
    """``rank 7``, or the report's name where no rank is told."""
    rank = job.ranks[place]
    return f"rank {rank.rank}" if rank.rank is not None else clean(rank.name)


def names_of(job: JobReport, places: Sequence[int]) -> str:
    """Several ranks in few words."""
    if len(places) < 2:
        return "".join(name_of(job, index) for index in places)
    numbers = [rank for rank in (job.ranks[index].rank for index in places) if rank is not None]
    is_told = len(numbers) == len(places)
    if len(places) <= 4:
        every = list(map(str, numbers)) if is_told else [name_of(job, index) for index in places]
        return f"{'ranks ' if is_told else ''}{', '.join(every[:-1])} and {every[-1]}"
    first, last = name_of(job, places[0]), name_of(job, places[-1])
    if not is_told:
        return f"{first} to {last} ({len(places)} of them)"
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"{len(numbers)} ranks ({', '.join(map(str, numbers[:4]))}, ... {numbers[-1]})"


def told(job: JobReport, one: Straggler, *, with_remedy: bool = True) -> str:
    """One thing that holds the job up, in a sentence, and what to do about it."""
    of_job = f" ({units.percent(one.saving_ns / job.length_ns, 1)})" if job.length_ns else ""
    gain = f"{units.duration(one.saving_ns)}{of_job} shorter"
    remedy = f" {remedy_of(job, one)}." if with_remedy else ""
    said = _subject(f"{late(job, one)}{_made_of(one)}.{_waits_for(job, one)}{_why_a_stage(job, one)}")
    return f"{said}{remedy} Without this cause, the job is {gain}."


def late(job: JobReport, one: Straggler) -> str:
    """What holds the job up, as a clause: ``rank 3 takes 1.20 s longer than its peers, in all 12 steps``."""
    what = f"{_noun(one.cause)}{in_region(one.region)}"
    excess, who = units.duration(one.excess_ns), names_of(job, one.ranks)
    many = len(one.ranks) > 1
    if one.kind == "random":
        when = "in some steps than in others" if job.steps > 1 else "at times"
        return f"ranks take turns at being late: their {what} takes longer {when}"
    if one.kind == "link":
        return f"transfers among {who} take {excess} longer than those of groups that send as much"
    if one.kind == "stage":
        whose = f"each rank of stage {one.stage} ({who})" if many else f"stage {one.stage} ({who})"
        return f"{whose} has {excess} more work than {'ranks of ' if many else ''}other stages, mostly {what}"
    if one.kind == "extra":
        return f"{who} alone does {excess} of {what}, which the others wait for"
    if one.kind == "exceptions":
        return f"{who} {'are each' if many else 'is'} held up {_often(job, one)}, by {excess} of {what}"
    return _longer(job, one)


def _longer(job: JobReport, one: Straggler) -> str:
    """Ranks that take longer than those that do the same."""
    who, takes, than = names_of(job, one.ranks), "takes", _the_other(job, one) or "its peers"
    if len(one.ranks) > 1:
        takes, than = "each take", "their peers"
    if one.kind == "machine":
        who += " (all ranks of one machine)"
    together = " together" if job.steps > 1 else ""
    return f"{who} {takes} {units.duration(one.excess_ns)} longer than {than}, {_often(job, one)}{together}"


def remedy_of(job: JobReport, one: Straggler, *, by_name: bool = False) -> str:
    """What to do about it; ``by_name``: it stands by itself, without the sentence that says who."""
    words = _DO_LESS if one.remedy == "look" and one.blocked_on else REMEDIES[one.remedy]
    who = f"stage {one.stage}" if one.kind == "stage" else names_of(job, one.ranks)
    their, them, they = ("its", "it", f"{names_of(job, one.ranks)} does")
    if one.kind != "stage" and (len(one.ranks) > 1 or one.kind == "random"):
        their, them, they = ("their", "them", "they do")
    if by_name and one.kind != "random":
        them, their = who, their if len(one.ranks) > 1 else f"{who}'s"
    return words.format(its=their, it=them, they=they)


def _subject(told: str) -> str:
    """At the beginning of a sentence: words of ours, a rank's name among them, else a file's name as it is."""
    is_ours = told.partition(" ")[0] in ("each", "rank", "ranks", "stage", "transfers")
    return told[:1].upper() + told[1:] if is_ours else told


def _often(job: JobReport, one: Straggler) -> str:
    if job.steps <= 1:
        return "over the run"
    return f"in all {job.steps} steps" if one.steps == job.steps else f"in {one.steps} of {job.steps} steps"


def _why_a_stage(job: JobReport, one: Straggler) -> str:
    """Why the last stage usually does more."""
    last = one.remedy == "move_layers" and one.stage == max(rank.stage for rank in job.ranks)
    return " The last stage usually has the output layer and the loss besides its layers." if last else ""


#: What takes longer than its peers; of all others their clause says whose time it is.
_SLOWER = ("rank", "machine")


def _made_of(one: Straggler) -> str:
    """What most of an excess is: ``: all of it is blocked time in sleep(), above all in step/load``."""
    if one.kind not in _SLOWER:
        return ""
    share = "all" if one.cause_share >= 1 - HARDLY else units.percent(one.cause_share)
    blocked = f" {_BLOCKED.get(one.blocked_on, f'on {clean(one.blocked_on)}')}" if one.blocked_on else ""
    where = f", above all{in_region(one.region)}" if one.region else ""
    return f": {share} of it is {_noun(one.cause)}{blocked}{where}"


def _the_other(job: JobReport, one: Straggler) -> str:
    """Of two ranks the one that is not meant; empty where there are more."""
    others = [index for index in range(len(job.ranks)) if index not in one.ranks]
    return name_of(job, others[0]) if len(job.ranks) == 2 and len(others) == 1 else ""


def _waits_for(job: JobReport, one: Straggler) -> str:
    """In which call others wait for it, and for how long; empty: in none."""
    if not one.waited_in or one.kind not in _SLOWER:
        return ""
    other, them = _the_other(job, one), "them" if len(one.ranks) > 1 else "it"
    waiting = f"{_subject(other)} waits" if other else "The others wait"
    return f" {waiting} for {them} in {clean(one.waited_in)} for {units.duration(one.waited_ns)}."


def _filling(job: JobReport, pipeline: Pipeline, *, with_remedy: bool = True) -> str:
    """What a pipeline's ranks wait while its stages fill and drain, and what would make that shorter."""
    gain = f"{units.duration(pipeline.saving_ns)} ({units.percent(pipeline.saving_ns / job.length_ns, 1)})"
    remedy = "More micro-batches a step, or an interleaved schedule, make it shorter: with" if with_remedy else "With"
    return (
        f"The pipeline's stages fill and drain in each step (its bubble): that takes {bubble_share(job, pipeline)} of"
        f" the time, since only {passing(pipeline)}. {remedy} twice as many of half the size, the job would be up to"
        f" {gain} shorter."
    )


def bubble_share(job: JobReport, pipeline: Pipeline) -> str:
    """How much of the job a pipeline fills and drains."""
    return units.percent(pipeline.bubble_ns / job.length_ns)


def passing(pipeline: Pipeline) -> str:
    """``4 micro-batches a step pass its 4 stages``."""
    few = units.plural(pipeline.micro_batches, "micro-batch", "micro-batches")
    return f"{few} a step {'passes' if pipeline.micro_batches == 1 else 'pass'} its {pipeline.stages} stages"


def costs(job: JobReport) -> list[Straggler | Pipeline]:
    """What holds the job up, most first: who does, and a pipeline's bubble where that is worth it."""
    found: list[Straggler | Pipeline] = [*job.stragglers]
    pipeline = job.pipeline
    if pipeline is not None and pipeline.saving_ns >= SLIGHT * job.length_ns > 0:
        found.append(pipeline)
    return sorted(found, key=lambda one: -one.saving_ns)


def holding_up(job: JobReport) -> list[str]:
    """The same in sentences; what First says to do about the first is not said again."""
    return [
        _filling(job, one, with_remedy=with_remedy)
        if isinstance(one, Pipeline)
        else told(job, one, with_remedy=with_remedy)
        for one, with_remedy in ((one, bool(number) or job.first is None) for number, one in enumerate(costs(job)))
    ]


def nobody(job: JobReport) -> str:
    """What is said where nothing holds the job up; empty: of a job that did not end, what stands above it says all."""
    if any(ending.is_inside for ending in job.ended):
        return ""
    if job.verdict.bound == "unknown":
        return "None of these ranks, as far as their reports show. A missing rank may: its report is not here."
    most = job.most_waited_for()
    waits = sum(rank.wait_ns for rank in job.ranks) / max(
        sum(of_rank.window_ns - of_rank.start_wait_ns for of_rank in job.ranks), 1
    )
    if most is not None and most[1] > _MOSTLY and waits > _LEAST_WAITS:
        who, share = name_of(job, most[0]), units.percent(most[1])
        why = "One step is too few to say whether that is so in every step."
        if job.steps > 1:
            why = f"Its {job.steps} steps differ too much from each other to say that it is slow itself."
        return f"Perhaps {who}: {share} of what ranks wait for others is for it. {why}"
    least = units.percent(SLIGHT)
    return f"No single one: making any rank, stage or link as fast as its peers saves less than {least}."


def _noun(cause: str) -> str:
    """What of a rank's time a cause is: ``host code``, ``blocked time``."""
    return _UNREMOVED.get(cause) or NOUN.get(cause, SHORT_LABEL[cause])


def scenario(one: JobWhatIf) -> str:
    """A scenario for people."""
    if one.cause is None:
        return _SCENARIOS.get(one.scenario, one.scenario)
    where = in_region(one.region)
    noun = OWN_COMM.label if one.cause == "gpu_comm" else _noun(one.cause)
    return f"no rank had {noun}{where}"


def shown(job: JobReport, look: JobLook = STANDING_OUT) -> tuple[list[int], str]:
    """The ranks to show one by one, and what is said of the others."""
    most = len(job.ranks) if look.full else look.top or ONE_BY_ONE
    if len(job.ranks) <= most or look.sort != "rank":
        by = SORTS[look.sort]
        return sorted(range(len(job.ranks)), key=lambda index: (-by(job.ranks[index]), index))[:most], ""
    named = [index for culprit in (*job.stragglers, *job.extras) for index in culprit.ranks[:4]]
    by_wait = sorted(range(len(job.ranks)), key=lambda index: (job.ranks[index].wait_ns, index))
    by_cause = sorted(range(len(job.ranks)), key=lambda index: (-job.ranks[index].caused_wait_ns, index))
    chosen = list(dict.fromkeys([*named, *by_cause[:3], *by_wait[:2], *by_wait[-2:]]))[: look.top or OUTLIERS]
    waits = sorted(_share(rank, rank.wait_ns) for rank in job.ranks)
    spread = " / ".join(units.percent(waits[round(part * (len(waits) - 1))]) for part in (0, 0.25, 0.5, 0.75, 1))
    return sorted(
        chosen
    ), f"All {len(job.ranks)} ranks wait for others {spread} of their time (least, quartiles, most)."


def _share(rank: RankReport, ns: int) -> float:
    """Of its time since it began with the others."""
    whole = rank.window_ns - rank.start_wait_ns
    return ns / whole if whole > 0 else 0.0


class _Line(Struct, frozen=True):
    """A rank in the table."""

    at: int
    name: str
    rank: RankReport
    link: str | None
    longest_ns: int  # the time of the rank with the longest

    @property
    def own_ns(self) -> int:
        return sum(self.rank.own.values())

    def bar(self) -> Bar:
        """Own work by cause, then transfer and waiting; to one scale: of a rank that ended early it is shorter."""
        time = {**self.rank.own, "transfer": self.rank.transfer_ns, "waits": self.rank.wait_ns}
        whole = sum(time.values())
        parts = tuple(Segment(_in_bars(key), ns, ns / whole) for key, ns in time.items() if ns) if whole else ()
        return Bar(parts, whole / max(self.longest_ns, whole, 1))

    def residual(self) -> str:
        return units.duration(self.rank.clock.residual_ns) if self.rank.clock.matched else "not set"


def _in_bars(key: str) -> str:
    """A cause as the bars of ranks name it: of communication only their own part, beside transfers."""
    return OWN_COMM.key if key == "gpu_comm" else key


def _step(name: str, rank: RankReport) -> Bar:
    """What a rank does in the course of one step."""
    runs = [(letter, len(list(same))) for letter, same in groupby(rank.step_line)]
    of_letter = {row.letter: row.key for row in (*CAUSE_INFO.values(), *JOB_CAUSES)}
    whole = max(len(rank.step_line), 1)
    return Bar(tuple(Segment(of_letter[letter], count, count / whole) for letter, count in runs), 1.0, name)


def _time(head: str, ns: Callable[[_Line], float], **more: Any) -> Column:
    return Column(head, lambda line: units.duration(ns(line)), right=True, key=ns, **more)


_OTHERS_WAIT = _time("delays others", lambda line: line.rank.caused_wait_ns)
_OTHERS_WAIT_MEANS = (
    "Own work: all but transfers and waits for others, sleep and blocked time included. "
    "Delays others: how long the other ranks waited for this one alone, the last to come."
)
_RANKS = (
    Column("rank", lambda line: Span(line.name, "code", link=line.link or ""), key=lambda line: line.at),
    Column("stage", lambda line: str(line.rank.stage), right=True, key=lambda line: line.rank.stage, where="page"),
    _time("own work", lambda line: line.own_ns),
    _time("transfer", lambda line: line.rank.transfer_ns),
    _time("waits", lambda line: line.rank.wait_ns),
    Column(
        "wait %",
        lambda line: units.percent(_share(line.rank, line.rank.wait_ns)),
        right=True,
        goes=1,
        key=lambda line: _share(line.rank, line.rank.wait_ns),
    ),
    _OTHERS_WAIT,
    Column("time", lambda line: line.bar(), goes=2),
    Column("came last", lambda line: str(line.rank.last), right=True, key=lambda line: line.rank.last, where="page"),
    _time("clock", lambda line: line.rank.clock.offset_ns, where="page"),
    Column(
        "residual", lambda line: line.residual(), right=True, key=lambda line: line.rank.clock.residual_ns, where="page"
    ),
    Column("report", lambda line: line.rank.name, key=lambda line: line.rank.name, where="page"),
)
_WHAT_IF = (
    Column("if", lambda one: scenario(one)),
    Column("job takes", lambda one: units.duration(one.predicted_ns), right=True),
    Column("shorter by", lambda one: units.percent(_saved(one)), right=True),
)


#: Why nobody is accused by whom the others wait for there.
_PASSED_ON = (
    "In a pipeline a rank that comes last has often waited itself, for the stage beside it, and passes that on: who "
    "holds the job up stands above."
)


def _is_pipeline(job: JobReport) -> bool:
    return any(rank.stage for rank in job.ranks)


def _seen(lines: Sequence[_Line], causes: Sequence[str]) -> tuple[str, ...]:
    """The causes that any rank's bar has room for."""
    shown = {part.cause for line in lines for part in line.bar().parts if part.fraction >= HARDLY}
    return tuple(key for key in causes if key in shown)


def _lengths(job: JobReport, lines: Sequence[_Line]) -> Iterator[str]:
    """Where ranks are counted for longer than the job, or for less than others."""
    earlier_ns = max((line.longest_ns for line in lines), default=0) - job.length_ns
    if earlier_ns >= NEGLIGIBLE * job.length_ns:
        yield (
            "The job's time begins when the first collective ends. The rows of the ranks begin up to "
            f"{units.duration(earlier_ns)} earlier, and add up to more."
        )
    if any(line.bar().scale < 1 - SMALL for line in lines):
        yield "A shorter bar: that rank began later or ended earlier."


def _ranks_part(
    job: JobReport, look: JobLook, lines: Sequence[_Line], every_cause: tuple[str, ...]
) -> tuple[Section, ...]:
    chosen, rest = shown(job, look)
    # Who broke off or hangs delays others by what no collective measures.
    is_blamed = not (_is_pipeline(job) or any(ending.is_inside for ending in job.ended))
    columns = tuple(column for column in _RANKS if is_blamed or column is not _OTHERS_WAIT)
    meaning = _OTHERS_WAIT_MEANS if is_blamed and any(line.rank.caused_wait_ns for line in lines) else ""
    title = "Ranks" if len(chosen) == len(lines) else "Ranks that stand out"
    if look.sort != "rank" and len(chosen) < len(lines):
        title = f"{len(chosen)} of {len(lines)} ranks"
    return section(
        title,
        Only("text", (Table(columns, tuple(lines[at] for at in chosen)),)),
        Only("page", (Table(columns, tuple(lines)),)),
        Only("text", (Legend(_seen(lines, every_cause)),)),
        Only("page", (Legend(every_cause),)),
        Paragraph(" ".join(filter(None, (meaning, *_lengths(job, lines)))), "faint"),
        Only("text", (Paragraph(rest),)) if rest else None,
        id="ranks",
        short="Ranks",
    )


def document(job: JobReport, look: JobLook = STANDING_OUT, links: Sequence[str | None] = ()) -> Document:
    """The job for people. ``links``: a page a rank."""
    longest_ns = max((sum(rank.own.values()) + rank.transfer_ns + rank.wait_ns for rank in job.ranks), default=0)
    lines = [
        _Line(at, name_of(job, at), rank, links[at] if at < len(links) else None, longest_ns)
        for at, rank in enumerate(job.ranks)
    ]
    reasons = "; ".join(map(clean, job.verdict.reasons))
    used = [_in_bars(key) for key in CAUSE_KEYS if any(rank.own[key] for rank in job.ranks)]
    every_cause = (*used, *(row.key for row in JOB_CAUSES if row is not OWN_COMM))
    predicted = [item for item in job.what_if if _is_worth_a_line(item) or look.full]
    holds = holding_up(job)
    pairs = (
        Column("waits", lambda wait: name_of(job, wait.waiting)),
        Column("for, as it came last", lambda wait: name_of(job, wait.last)),
        Column("how long", lambda wait: units.duration(wait.wait_ns), right=True),
    )
    return Document(
        "boundby job",
        (
            *programs(job),
            Heading(headline(job)),
            Facts(tuple(facts(job))),
            *([Paragraph(f"Confidence limited: {reasons}.", "faint")] if reasons else []),
            sentences.first(() if job.first is None else (job.first,), job.length_ns),
        ),
        (
            *section(
                "Who holds it up",
                entries(holds, ordered=True),
                None if holds else Paragraph(nobody(job)),
                entries(told(job, culprit) for culprit in job.extras),
                id="stragglers",
                short="Who",
            ),
            *section("Ranks and steps", Only("page", (_map(job), Legend(tuple(used)))), id="steps"),
            *section(
                f"Step {job.step_shown} of all ranks, from its beginning to the next one's"
                f" ({units.duration(job.step_shown_ns)})",
                Only("page", (Bars(tuple(_step(line.name, line.rank) for line in lines)), Legend(every_cause)))
                if job.step_shown
                else None,
                id="one-step",
                short="One step",
            ),
            *_ranks_part(job, look, lines, every_cause),
            *section(
                "What if (all ranks, replayed together)",
                Table(_WHAT_IF, tuple(sorted(predicted, key=_by_length))),
                id="what-if",
                short="What if",
            ),
            *section(
                "Who waits for whom",
                Only(
                    "page",
                    (Table(pairs, job.pairs[:TABLE]), Paragraph(_PASSED_ON if _is_pipeline(job) else "", "faint")),
                ),
                id="pairs",
            ),
            *section(
                "Notes",
                entries([*(f"Left out: {clean(text)}" for text in job.left_out), *map(clean, job.notes)]),
                id="notes",
            ),
        ),
    )


def _saved(one: JobWhatIf) -> float:
    return 1 - one.predicted_ns / one.baseline_ns if one.baseline_ns else 0.0


def _is_worth_a_line(one: JobWhatIf) -> bool:
    """Whether a prediction saves enough, and somebody could make it true."""
    if one.region:
        return _saved(one) >= _LEAST_SAVED_IN_REGION
    return _saved(one) >= _LEAST_SAVED and one.cause not in _LASTING


def _by_length(one: JobWhatIf) -> tuple[int, str]:
    return one.predicted_ns, one.scenario


def _map(job: JobReport) -> Drawing:
    """Each rank's time in each step."""
    data = {
        "names": [name_of(job, at) for at in range(len(job.ranks))],
        "own": [list(rank.steps) for rank in job.ranks],
        "wait": [list(rank.step_waits) for rank in job.ranks],
        "cause": [rank.step_causes for rank in job.ranks],
        "colors": {LETTER[key]: COLORS[key][0] for key in CAUSE_KEYS},
        "labels": {LETTER[key]: info(_in_bars(key)).label for key in CAUSE_KEYS},
    }
    return Drawing("heat_map.html.j2", {"map": data})


# Two jobs compared, as a document.

#: Of more ranks, those that changed most.
MOST_RANKS = ONE_BY_ONE
#: Parts of less than this share of a step are not worth a line.
_LEAST_SHARE = HARDLY
_STATUS = {"resolved": Span("Gone:", "good"), "new": Span("New:", "bad"), "stays": Span("Stays:")}
_WHERE = (
    Column("mean rank", lambda row: row[0]),
    Column("before", lambda row: row[1], right=True),
    Column("after", lambda row: row[2], right=True),
    Column("change", lambda row: row[3], right=True),
)
_RANK_CHANGES = (
    Column("rank", lambda rank: str(rank.rank), key=lambda rank: rank.rank),
    Column("own before", lambda rank: units.duration(rank.own_before_ns), right=True, key=lambda r: r.own_before_ns),
    Column("own after", lambda rank: units.duration(rank.own_after_ns), right=True, key=lambda r: r.own_after_ns),
    Column("change", lambda rank: _change(rank.own_before_ns, rank.own_after_ns), right=True),
    Column(
        "waits before", lambda rank: units.duration(rank.wait_before_ns), right=True, key=lambda r: r.wait_before_ns
    ),
    Column("waits after", lambda rank: units.duration(rank.wait_after_ns), right=True, key=lambda r: r.wait_after_ns),
)


def job_comparison_document(found: JobComparison, result: GateResult | None = None) -> Document:
    """What changed, for people; with a gate's result where there is one."""
    sides = (("before", found.before), ("after", found.after))
    whole = max(1.0, *(_whole_ns(side) for _, side in sides))
    chosen = _ranks(found)
    more = len(found.ranks) - len(chosen)
    stragglers = Entries(tuple(Entry(change_told(each), (_STATUS[each.status],)) for each in found.stragglers))
    where = "a mean rank's step" if found.before.step_ns is not None else "a mean rank"
    return Document(
        f"boundby: {found.before.path} → {found.after.path}",
        (
            *told_first(result),
            Heading(Span(job_change(found), _role(found))),
            *(Facts(_side(side), word, "") for word, side in sides),
            *(Paragraph(note, "warning") for note in found.notes),
        ),
        (
            *limits(result),
            *section(
                "Who holds it up",
                stragglers if found.stragglers else Paragraph("No single rank, before and after."),
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
                Table(_RANK_CHANGES, tuple(chosen)),
                Paragraph(f"{more} more ranks changed less.", "faint") if more else None,
                id="ranks",
                short="Ranks",
            ),
        ),
    )


def job_change(found: JobComparison) -> str:
    """How much shorter or longer, and whether that is sure."""
    earlier, later, tested = found.before, found.after, found.significance
    what = "The median step" if earlier.step_ns is not None and later.step_ns is not None else "The job"
    before, after = (side.length_ns if what == "The job" else side.step_ns for side in (earlier, later))
    sentence = f"{what} takes {units.duration(after or 0)} instead of {units.duration(before or 0)}"
    sentence += f" ({units.change(found.change)})"
    if tested.is_change:
        return f"{sentence}: {tested.status}, significantly."
    return f"{sentence}; {tested.reason}."


def rows(found: JobComparison) -> Iterator[tuple[str, str, str, str]]:
    """Where the mean rank's time goes: what, before, after, change."""
    earlier, later = found.before, found.after
    parts = [(SHORT_LABEL[key], float(earlier.own[key]), float(later.own[key])) for key in CAUSE_KEYS]
    parts += [
        ("transfer", earlier.transfer_ns, later.transfer_ns),
        ("waits for others", earlier.wait_ns, later.wait_ns),
    ]
    whole = max(sum(before for _, before, _ in parts), sum(after for _, _, after in parts), 1.0)
    for name, before, after in parts:
        if max(before, after) >= _LEAST_SHARE * whole:
            yield name, units.duration(before), units.duration(after), _change(before, after)
    balances = [units.percent(side.imbalance, 1) for side in (earlier, later)]
    yield "balance would save", balances[0], balances[1], ""


def change_told(change: StragglerChange) -> str:
    """One straggler, in a sentence."""
    culprit = change.after or change.before
    assert culprit is not None
    what = f"{SHORT_LABEL[culprit.cause]}{in_region(culprit.region)}"
    gains = [units.duration(each.saving_ns) for each in (change.before, change.after) if each is not None]
    who = {"random": "ranks take turns at being late", "stage": f"stage {culprit.stage}"}.get(culprit.kind, "")
    if not who:
        who = f"{'ranks' if len(culprit.ranks) > 1 else 'rank'} {', '.join(map(str, culprit.ranks[:4]))}"
    return f"{who}, {what}, {' then '.join(gains)} of the job."


def _role(found: JobComparison) -> Role:
    return ("bad" if found.change > 0 else "good") if found.significance.is_change else ""


def _change(before: float, after: float) -> str:
    return units.change(after / before - 1) if before else ""


def _ranks(found: JobComparison) -> list[RankChange]:
    def moved(one: RankChange) -> float:
        return abs(one.own_after_ns - one.own_before_ns)

    return sorted(
        sorted(found.ranks, key=lambda rank: (-moved(rank), rank.rank))[:MOST_RANKS], key=lambda rank: rank.rank
    )


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
