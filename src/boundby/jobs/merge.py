"""All ranks' summaries become one report. The order in which they come says nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.capture.folder import worker_of
from boundby.jobs.bubble import pipeline_of
from boundby.jobs.diagnosis import FEW_STEPS, Chance, Culprit, Diagnosis, Job, diagnose, in_rounds
from boundby.jobs.gather import Gathered
from boundby.jobs.job_remedies import folded, remedy_of
from boundby.jobs.meetings import Aligned, Clock, Matched, align
from boundby.jobs.rank_summary import UNKNOWN, RankGroup, RankSummary
from boundby.model import units
from boundby.model.arrays import BoolArray, Int64Array, factorize, group_sums
from boundby.model.causes import CAUSE_KEYS, CAUSES, LETTER, NOUN, SHORT_LABEL, Cause
from boundby.model.errors import InputError
from boundby.model.scale import (
    BUSY_NS,
    HALF,
    MOST_MEMBERS,
    NEGLIGIBLE,
    NOTABLE,
    PAGE_ROWS,
    QUARTER,
    SEVERAL,
    SLIGHT,
    SMALL,
)
from boundby.model.units import LINE
from boundby.results.job_report import (
    Ended,
    JobReport,
    JobVerdict,
    JobWhatIf,
    Pair,
    Pipeline,
    ProgramOfRanks,
    RankClock,
    RankReport,
    Straggler,
)
from boundby.trace.facts import ProgramEnd
from boundby.trace.stacks import ROUNDED_NS
from boundby.trace.vocabulary.last_words import FAILED
from boundby.trace.vocabulary.os import MessageKind, message_kind


def broken(report: JobReport) -> Iterator[str]:
    """A sentence for each law that the report breaks."""
    balance = next((prediction.predicted_ns for prediction in report.what_if if prediction.scenario == "balance"), 0)
    if balance > report.length_ns:
        yield f"balanced, the job would take {units.duration(balance - report.length_ns)} longer"
    if any(straggler.saving_ns <= 0 for straggler in (*report.stragglers, *report.extras)):
        yield "something is named that the job would gain nothing by"
    most = sum(rank.wait_ns + rank.start_wait_ns + rank.transfer_ns for rank in report.ranks)
    for straggler in report.stragglers:
        if straggler.saving_ns > most + ROUNDED_NS:  # who is late makes the job longer by no more than others wait
            saved, with_others = units.duration(straggler.saving_ns), units.duration(most)
            yield f"what is named would save {saved}, and all ranks together are with others for {with_others}"
    if report.pipeline is not None and report.pipeline.bubble_ns > most:
        yield f"a pipeline fills and drains for {units.duration(report.pipeline.bubble_ns)}, and ranks wait for less"
    for rank in report.ranks:
        total = sum(rank.own.values()) + rank.transfer_ns + rank.wait_ns + rank.start_wait_ns
        if abs(total - rank.window_ns) > ROUNDED_NS:
            yield f"{rank.name} takes {units.duration(total)} in a window of {units.duration(rank.window_ns)}"
    caused, waited = sum(rank.caused_wait_ns for rank in report.ranks), sum(rank.wait_ns for rank in report.ranks)
    if caused > waited + ROUNDED_NS:
        yield f"ranks wait {units.duration(waited)}, of which {units.duration(caused)} for those who came last"


#: A job is bound by imbalance where balance would save this share of it: nothing else is to be had for so little.
IMBALANCE_SHARE = SMALL
#: A rank that shares a smaller part of its collectives with the others is no rank of their job.
_STRANGE_SHARE = QUARTER
#: A replay that misses the measured length by more lowers confidence; by far more, and nothing that it says is sure.
_REPLAY_ERROR, _REPLAY_FAILS = SLIGHT, NOTABLE
#: A clock whose ends lie further from the others', as the median, is poor.
_POOR_CLOCK_NS = BUSY_NS
#: Where more of the time in collectives is in such that nobody else here has, what bounds the job cannot be told.
_MOSTLY_ALONE = HALF
#: A profiler's excess below this share of a step is not worth a word.
_LEAST_EXCESS_SHARE = NEGLIGIBLE


def merge(summaries: Sequence[RankSummary], path: str, unused: Sequence[Gathered] = ()) -> JobReport:
    """One report of all; ``unused``: reports that no summary is of. Raises InputError where there are fewer than two
    ranks."""
    kept, aligned, problems = choose(summaries)
    left_out = [unread_report.problem for unread_report in unused]
    if len(kept) < 2:
        unread = (
            f"None of the {len(left_out)} files can be read as a report. The first:"
            if len(left_out) > 1 and not kept
            else ""
        )
        few = "A job has at least two ranks, and only one is here." if kept else ""
        said = (*_failed(unused), unread, *left_out[: 1 if unread else None], *problems, few)
        raise InputError(
            " ".join(filter(None, said)),
            "Give one report per rank, or a folder of them. For one process, however many its GPUs: "
            "boundby analyze REPORT",
        )
    _demand_meetings(kept, aligned, path)
    of_program, kept = kept, in_rounds(kept, aligned.matched)
    diagnosis, job = diagnose(kept, aligned)
    diagnosis = replace(diagnosis, culprits=tuple(folded(diagnosis.culprits, job)))
    diagnosis = _of_a_job_that_ended(_worth_naming(diagnosis), kept)
    waits = _waits(kept, aligned)
    ranks = _ranks(kept, aligned, diagnosis, job, waits)
    world = max((summary.world_size for summary in kept if summary.world_size <= MOST_MEMBERS), default=UNKNOWN)
    here = {summary.rank for summary in kept}
    missing = tuple(sorted(set(range(max(world, 0))) - here)) if UNKNOWN not in here else ()
    notes = [*aligned.notes, *_notes(kept, aligned, diagnosis, missing)]
    if kept is not of_program:
        notes.append("The program names no steps: each round of the collectives that all ranks share counts as a step.")
    waited = _waited_in(kept, aligned.matched, waits)
    is_mpi = any(summary.begins_mpi is not None for summary in summaries)
    stragglers = tuple(
        _straggler(culprit, job, is_mpi, *_longest(waited, culprit.ranks)) for culprit in diagnosis.culprits
    )
    stragglers += tuple(_random(turn, job, is_mpi) for turn in diagnosis.chance)
    number, low, high = job.usual_step() or (0, 0, 0)
    programs = _programs(kept, unused)
    pipeline = None if missing or not diagnosis.what_if else _pipeline(ranks, diagnosis, job)
    report = JobReport(
        path=path,
        world_size=world if world != UNKNOWN else None,
        length_ns=max(diagnosis.length_ns, 0),
        replayed_ns=max(diagnosis.replayed_ns, 0),
        steps=diagnosis.steps,
        steps_together=job.together,
        collectives=len(aligned.matched),
        verdict=_verdict(ranks, diagnosis, aligned, missing, kept, programs, pipeline),
        stragglers=tuple(
            sorted(stragglers, key=lambda straggler: (-straggler.saving_ns, straggler.kind, straggler.ranks))
        ),
        extras=tuple(_straggler(extra, job, is_mpi, *_longest(waited, extra.ranks)) for extra in diagnosis.extras),
        ranks=ranks,
        pairs=_pairs(aligned.matched, waits, len(kept)),
        what_if=tuple(
            JobWhatIf(
                scenario=prediction.scenario,
                predicted_ns=prediction.length_ns,
                baseline_ns=max(diagnosis.length_ns, 0),
                cause=None if prediction.cause is None else prediction.cause.key,
                region=prediction.region,
            )
            for prediction in diagnosis.what_if
        ),
        step_shown=number,
        step_shown_ns=high - low,
        missing=missing,
        left_out=(*left_out, *problems),
        notes=tuple(notes),
        ended=_ended(kept),
        programs=programs,
        pipeline=pipeline,
    )
    faults = tuple(broken(report))
    if not faults:
        return report
    verdict = replace(report.verdict, confidence="low", reasons=(*report.verdict.reasons, *faults))
    return replace(report, verdict=verdict)


def _demand_meetings(summaries: Sequence[RankSummary], aligned: Aligned, path: str) -> None:
    """Raises InputError where none of these meets another, and nothing says that they are ranks of one job."""
    if len(aligned.matched) or any(summary.unfinished is not None for summary in summaries):
        return
    if len({summary.clock for summary in summaries}) == 1 and summaries[0].clock:
        why = f"{path} is one report, and its {len(summaries)} processes or GPUs share no collective."
        raise InputError(f"{why} They are no ranks of one job.", f"boundby analyze {path}")
    if not any(len(summary.meetings) for summary in summaries):
        why = f"None of the {len(summaries)} reports holds a collective or a message between ranks: they are no job."
        raise InputError(why, f"Analyse each by itself: boundby analyze {summaries[0].clock or summaries[0].name}")
    if all(summary.base_ns for summary in summaries) and _are_apart(summaries):
        names = f"{summaries[0].name} and {summaries[1].name}"
        raise InputError(
            f"Reports such as {names} were recorded at different times: they are no ranks of one job.",
            "Analyse each by itself (boundby analyze REPORT), or compare two runs (boundby compare BEFORE AFTER).",
        )


def _are_apart(summaries: Sequence[RankSummary]) -> bool:
    """Whether no two were recorded at the same time, by the files' own clocks."""
    return all(before[1] < after[0] for before, after in pairwise(sorted(map(_span_ns, summaries))))


def _span_ns(one: RankSummary) -> tuple[int, int]:
    """From when to when it was recorded, by its file's own clock."""
    return one.base_ns + one.window_ns[0], one.base_ns + one.window_ns[1]


def _programs(summaries: Sequence[RankSummary], unused: Sequence[Gathered]) -> tuple[ProgramOfRanks, ...]:
    """How programs ended, failed ones first: one entry for all ranks whose programs ended alike."""
    alike: dict[tuple[str, str, str | None], list[tuple[int, str, ProgramEnd]]] = {}
    of_ranks = [(rank, report.name, report.program) for rank, report in enumerate(summaries)]
    for rank, name, end in (*of_ranks, *((-1, report.name, report.program) for report in unused)):
        if end is not None:
            alike.setdefault((end.ended, end.words, end.where), []).append((rank, name, end))
    programs = [
        ProgramOfRanks(
            tuple(rank for rank, _, _ in same if rank >= 0),
            tuple(name for rank, name, _ in same if rank < 0),
            min((end for _, _, end in same), key=lambda end: end.after_ns),
        )
        for same in alike.values()
    ]
    return tuple(sorted(programs, key=lambda program: (program.program.ended != FAILED, program.program.after_ns)))


def _failed(unused: Sequence[Gathered]) -> list[str]:
    """What the programs of reports said that cannot be used."""
    ends = [
        (report.name, report.program)
        for report in unused
        if report.program is not None and report.program.ended == FAILED
    ]
    return [f"The program of {name} failed: {end.words}." for name, end in ends]


def _ended(summaries: Sequence[RankSummary]) -> tuple[Ended, ...]:
    """Ranks that did not come to the end of MPI."""
    return tuple(
        Ended(
            rank=rank,
            call=last.call,
            is_inside=last.is_inside,
            lasted_ns=last.until_ns - last.since_ns,
            peer=last.peer if last.peer >= 0 else None,
            tag=last.tag if last.tag >= 0 else None,
            bytes=last.bytes if last.bytes >= 0 else None,
            has_failed=last.has_failed,
        )
        for rank, summary in enumerate(summaries)
        if (last := summary.unfinished) is not None
    )


class _WaitsOfParts(Struct, frozen=True):
    """Per part of all collectives: how long its rank had nothing to do but what was transferred, and but wait for
    others; how much of that is for who came last, and who that is. In the first collective of each rank nobody is
    waited for: ranks begin at different times."""

    transfer_ns: Int64Array
    waited_ns: Int64Array
    is_start: BoolArray
    blamed_ns: Int64Array
    last: Int64Array


def _waits(summaries: Sequence[RankSummary], aligned: Aligned) -> _WaitsOfParts:
    matched = aligned.matched
    first_row = np.append(0, np.cumsum([len(summary.meetings) for summary in summaries])).astype(np.int64)
    shown = np.concatenate([np.empty(0, np.int64), *_exposed(summaries)])[first_row[matched.rank] + matched.row]
    transfer = np.minimum(shown, matched.transfer_ns[matched.instance])
    is_start = np.zeros(len(shown), bool)
    if not aligned.begin_together:
        every = [matched.parts_of(rank) for rank in range(len(summaries))]
        is_start[[parts[np.argmin(matched.end_ns[parts])] for parts in every if len(parts)]] = True
    latest, late_by = matched.latest()
    last = matched.rank[latest][matched.instance]
    blamed = np.where(is_start | (matched.rank == last), 0, np.minimum(late_by[matched.instance], shown - transfer))
    return _WaitsOfParts(transfer, shown - transfer, is_start, np.maximum(blamed, 0), last)


def _waited_in(summaries: Sequence[RankSummary], matched: Matched, waits: _WaitsOfParts) -> dict[int, dict[str, int]]:
    """For each rank that others wait for: how long they do, by the call or collective that they are in."""
    by_culprit = dict[int, dict[str, int]]()
    parts = np.flatnonzero(waits.blamed_ns > 0)
    call = np.concatenate([summary.meetings.call for summary in summaries])
    first_row = np.append(0, np.cumsum([len(summary.meetings) for summary in summaries])).astype(np.int64)
    of_part = call[first_row[matched.rank[parts]] + matched.row[parts]]
    distinct, which = factorize(waits.last[parts], matched.rank[parts], of_part)
    for (culprit, rank, number), ns in zip(
        distinct.tolist(), group_sums(which, waits.blamed_ns[parts], len(distinct)).tolist(), strict=True
    ):
        name, of_culprit = summaries[rank].kinds[number], by_culprit.setdefault(culprit, {})
        of_culprit[name] = of_culprit.get(name, 0) + ns
    return by_culprit


def _longest(waited: Mapping[int, Mapping[str, int]], ranks: Sequence[int]) -> tuple[str | None, int]:
    """The call in which others wait longest for one of these ranks, and for how long."""
    every = [(ns, name) for rank in ranks for name, ns in waited.get(rank, {}).items()]
    ns, name = max(every, default=(0, None), key=lambda wait: wait[0])
    return name, ns


def choose(summaries: Sequence[RankSummary]) -> tuple[list[RankSummary], Aligned, list[str]]:
    """Ranks in their order, and as they are aligned; without those that are there twice or belong to another job."""
    ordered, others = _recorded_together(
        sorted(summaries, key=lambda summary: (summary.rank, summary.name, summary.window_ns))
    )
    kept, problems = _each_once(ordered)
    problems += others
    silent = [
        summary
        for summary in kept
        if not len(summary.meetings) and summary.rank == UNKNOWN and summary.unfinished is None
    ]
    if len(kept) - len(silent) > 1:
        problems += [
            f"{summary.name} holds no collective, in which the others meet: it is of another program."
            for summary in silent
        ]
        kept = [summary for summary in kept if summary not in silent]
    aligned = align(kept)
    strange = _strange(kept, aligned)
    if strange:
        problems += [
            f"{kept[index].name} shares {units.percent(share)} of its collectives with the others: it is of"
            " another job, or of another time."
            for index, share in strange.items()
        ]
        kept = [number for index, number in enumerate(kept) if index not in strange]
        aligned = align(kept)
    return kept, aligned, problems


def _recorded_together(ordered: Sequence[RankSummary]) -> tuple[list[RankSummary], list[str]]:
    """Where ranks are there twice, of one recording: the one with most ranks, else the first by name; and what is of
    others, which were made at another time."""
    ranks_known = [summary.rank for summary in ordered if summary.rank != UNKNOWN]
    if len(set(ranks_known)) == len(ranks_known) or not all(summary.base_ns for summary in ordered):
        return list(ordered), []
    recordings: list[list[int]] = []
    latest_ns = 0
    for low, high, place in sorted((*_span_ns(summary), at) for at, summary in enumerate(ordered)):
        if not recordings or low > latest_ns:
            recordings.append([])
        recordings[-1].append(place)
        latest_ns = max(latest_ns, high)
    chosen = max(recordings, key=lambda some: (len({ordered[index].rank for index in some}), -min(some)))
    files: dict[str, list[str]] = {}
    for one in (left_summary for index, left_summary in enumerate(ordered) if index not in chosen):
        files.setdefault(PurePath(one.clock).name or one.name, []).append(str(one.rank))
    notes = [
        f"{name} ({'rank' if len(ranks) == 1 else 'ranks'} {', '.join(ranks)}) was recorded at another time than"
        f" {ordered[min(chosen)].name}: it is another run."
        for name, ranks in files.items()
    ]
    return [ordered[index] for index in sorted(chosen)], notes


def _each_once(ordered: Sequence[RankSummary]) -> tuple[list[RankSummary], list[str]]:
    """Each rank and each process of a worker once, of the size of job that most are of; and what was left out."""
    sizes = [summary.world_size for summary in ordered if summary.world_size != UNKNOWN]
    usual = max(set(sizes), key=lambda size: (sizes.count(size), size), default=UNKNOWN)
    kept: list[RankSummary] = []
    problems: list[str] = []
    taken: dict[int, str] = {}
    workers: dict[str, str] = {}
    for summary in ordered:
        worker = worker_of(PurePath(summary.name).name) if summary.rank == UNKNOWN else ""
        if summary.world_size not in (UNKNOWN, usual):
            problems.append(
                f"{summary.name} is of another job: of {summary.world_size} ranks, where the others have {usual}."
            )
        elif (first := taken.get(summary.rank)) is not None:
            problems.append(f"{summary.name} is rank {summary.rank} as well; {first} was taken.")
        elif worker and worker in workers:
            problems.append(
                f"{summary.name} is another cycle of the process of {workers[worker]}, and that one was taken."
            )
        else:
            kept.append(summary)
            if summary.rank != UNKNOWN:
                taken[summary.rank] = summary.name
            elif worker:
                workers[worker] = summary.name
    return kept, problems


def _strange(kept: Sequence[RankSummary], aligned: Aligned) -> dict[int, float]:
    """The few that share hardly any collective with the others, by place: what part they share."""
    if len(kept) <= 2 or not all(len(summary.meetings) for summary in kept):
        return {}
    shares = [clock.matched / len(summary.meetings) for summary, clock in zip(kept, aligned.clocks, strict=True)]
    strange = {index: share for index, share in enumerate(shares) if share < _STRANGE_SHARE}
    return strange if len(strange) < len(kept) / 2 else {}


def _ranks(
    summaries: Sequence[RankSummary], aligned: Aligned, diagnosis: Diagnosis, job: Job, waited: _WaitsOfParts
) -> tuple[RankReport, ...]:
    matched = aligned.matched
    exposed = _exposed(summaries)
    caused = group_sums(waited.last, waited.blamed_ns, len(summaries))
    last = np.bincount(matched.rank[matched.latest()[0]], minlength=len(summaries))
    stage_of = {rank: index for index, members in enumerate(diagnosis.stages) for rank in members}
    waits = _step_waits(summaries, job)
    step = job.usual_step()
    causes = {
        rank: letters
        for members in diagnosis.stages
        for rank, letters in zip(members, _step_causes(job, members), strict=True)
    }
    reports = []
    for index, summary in enumerate(summaries):
        own = matched.parts_of(index)
        transfer, start = waited.transfer_ns[own], waited.is_start[own]
        alone = np.ones(len(summary.meetings), bool)
        alone[matched.row[own]] = False
        open_ns = _never_left(summary, exposed[index], alone)
        reports.append(
            RankReport(
                name=summary.name,
                rank=None if summary.rank == UNKNOWN else summary.rank,
                device=summary.device,
                stage=stage_of[index],
                window_ns=summary.window_ns[1] - summary.window_ns[0],
                own=dict(zip(CAUSE_KEYS, summary.own_ns.tolist(), strict=True)),
                transfer_ns=int(transfer.sum()) + int(exposed[index][alone].sum()) - open_ns,
                wait_ns=int(waited.waited_ns[own][~start].sum()) + open_ns,
                start_wait_ns=int(waited.waited_ns[own][start].sum()),
                caused_wait_ns=int(caused[index]),
                last=int(last[index]),
                collectives=len(own),
                unmatched=int(alone.sum()),
                clock=_clock(aligned.clocks[index]),
                steps=tuple(np.round(job.time[index].sum(axis=1)).astype(np.int64).tolist()),
                step_waits=tuple(waits[index].tolist()),
                step_causes=causes[index],
                warnings=summary.warnings,
                step_line=""
                if step is None
                else line_of(summary, aligned.clocks[index], matched, index).letters(summary, *step[1:], LINE),
            )
        )
    return tuple(reports)


def _is_stuck(summary: RankSummary) -> bool:
    return summary.unfinished is not None and summary.unfinished.is_inside


def _of_a_job_that_ended(diagnosis: Diagnosis, summaries: Sequence[RankSummary]) -> Diagnosis:
    """Without ranking and predictions where a rank never came out of a call: how long the job would take nothing
    tells."""
    if not any(map(_is_stuck, summaries)):
        return diagnosis
    return replace(diagnosis, culprits=(), extras=(), chance=(), what_if=())


def _worth_naming(diagnosis: Diagnosis) -> Diagnosis:
    """Without what is worth too little to be a cause, unless all that is worth so little is worth it together."""
    least_ns = NEGLIGIBLE * diagnosis.length_ns
    savings = [*(one.saving_ns for one in diagnosis.culprits), *(one.saving_ns for one in diagnosis.chance)]
    if sum(saving for saving in savings if saving < least_ns) >= least_ns:
        return diagnosis
    return replace(
        diagnosis,
        culprits=tuple(one for one in diagnosis.culprits if one.saving_ns >= least_ns),
        chance=tuple(one for one in diagnosis.chance if one.saving_ns >= least_ns),
        extras=tuple(one for one in diagnosis.extras if one.saving_ns >= least_ns),
    )


def _never_left(summary: RankSummary, exposed_ns: Int64Array, alone: BoolArray) -> int:
    """How long the rank is in a call that no other one meets, and that it never left: nothing is transferred there."""
    if summary.unfinished is None or not summary.unfinished.is_inside:
        return 0
    is_last = summary.meetings.end_ns >= summary.unfinished.until_ns
    return int(exposed_ns[alone & is_last].sum())


def _exposed(summaries: Sequence[RankSummary]) -> list[Int64Array]:
    """Of each rank: how long each of its collectives kept it waiting with nothing else to do."""
    exposed_of = []
    for summary in summaries:
        events = summary.events
        exposed = np.zeros(len(summary.meetings), np.int64)
        joins = events.is_join
        # A wait may have begun before the arrival at another: what passed at arrivals belongs to the join that follows.
        total = np.cumsum(summary.passed_ns)
        at = np.flatnonzero(joins)
        np.add.at(exposed, events.meeting[at], np.round(np.diff(total[at], prepend=0.0)).astype(np.int64))
        exposed_of.append(np.maximum(exposed, 0))
    return exposed_of


def _alone(summaries: Sequence[RankSummary], aligned: Aligned) -> tuple[int, int]:
    """How long ranks had nothing else to do than collectives that nobody else here has, and than any."""
    exposed = _exposed(summaries)
    matched = aligned.matched
    alone_ns = 0
    for rank, (summary, shown_ns) in enumerate(zip(summaries, exposed, strict=True)):
        alone = np.ones(len(shown_ns), bool)
        alone[matched.row[matched.parts_of(rank)]] = False
        alone_ns += int(shown_ns[alone].sum()) - _never_left(summary, shown_ns, alone)
    return alone_ns, sum(int(rank_exposed.sum()) for rank_exposed in exposed)


def _step_waits(summaries: Sequence[RankSummary], job: Job) -> Int64Array:
    """What each rank waited in each step of the job, shape (ranks, steps)."""
    waits = np.zeros((len(summaries), job.steps), np.int64)
    for rank, summary in enumerate(summaries):
        events = summary.events
        passed = np.maximum(summary.passed_ns, 0)
        number = np.searchsorted(summary.step_ns, events.time_ns, side="right")
        step = job.of_step[rank][np.minimum(number, len(job.of_step[rank]) - 1)]
        inside = (step >= 0) & (step < job.steps)
        np.add.at(waits[rank], step[inside], np.round(passed[inside]).astype(np.int64))
    return waits


def _step_causes(job: Job, members: Sequence[int]) -> Iterator[str]:
    """Of each rank of a stage a letter a step: the cause of what it does beyond its peers, where worth telling."""
    by_cause = np.stack([job.cause == cause for cause in range(len(CAUSES))], axis=1).astype(np.float64)
    usual = np.median(job.time[list(members)], axis=0)
    for index in members:
        peers = usual
        if len(members) <= SEVERAL:
            others = [rank for rank in members if rank != index]
            peers = np.median(job.time[others], axis=0) if others else job.time[index]
        excess = (job.time[index] - peers) @ by_cause
        worst = excess.argmax(axis=1)
        is_late = excess.max(axis=1) > _LEAST_EXCESS_SHARE * job.step_ns
        yield "".join(LETTER[Cause(cause).key] if tell else "." for cause, tell in zip(worst, is_late, strict=True))


def _clock(clock: Clock) -> RankClock:
    return RankClock(
        round(clock.offset_ns),
        round(clock.drift, 12),
        clock.matched,
        round(clock.residual_ns, 1),
        round(clock.worst_ns, 1),
    )


def _straggler(culprit: Culprit, job: Job, is_mpi: bool, waited_in: str | None, waited_ns: int) -> Straggler:
    return Straggler(
        kind=culprit.kind,
        ranks=culprit.ranks,
        stage=culprit.stage if culprit.stage >= 0 else None,
        cause=culprit.cause.key,
        region=culprit.region,
        excess_ns=max(culprit.excess_ns, 0),
        cause_share=round(culprit.share, 4),
        saving_ns=max(culprit.saving_ns, 0),
        steps=culprit.steps,
        remedy=remedy_of(culprit, job, is_mpi=is_mpi),
        waited_in=waited_in,
        waited_ns=waited_ns,
        blocked_on=_blocked_on(culprit, job) if culprit.cause == Cause.HOST_BLOCKED else None,
    )


def _blocked_on(culprit: Culprit, job: Job) -> str | None:
    """What a culprit's ranks sleep on for longer than their peers, where that is most of what they do more of."""
    stage = next(members for members in job.stages if culprit.ranks[0] in members)
    peers = [rank for rank in stage if rank not in culprit.ranks] or [
        rank for rank in range(len(job.summaries)) if rank not in culprit.ranks
    ]
    own = [dict(job.summaries[rank].slept_on) for rank in culprit.ranks]
    others = [dict(job.summaries[rank].slept_on) for rank in peers]
    more_ns = {
        what: np.mean([slept.get(what, 0) for slept in own])
        - np.median([slept.get(what, 0) for slept in others] or [0])
        for what in sorted({what for slept in own for what in slept})
    }
    most = max(more_ns, key=lambda what: more_ns[what], default=None)
    return most if most is not None and more_ns[most] > HALF * culprit.share * culprit.excess_ns else None


def _random(chance: Chance, job: Job, is_mpi: bool) -> Straggler:
    return Straggler(
        kind="random",
        ranks=(),
        stage=None,
        cause=chance.cause.key,
        region=chance.region,
        excess_ns=0,
        cause_share=1.0,
        saving_ns=chance.saving_ns,
        steps=job.steps,
        remedy=remedy_of(chance, job, is_mpi=is_mpi),
    )


def _pairs(matched: Matched, waits: _WaitsOfParts, count: int) -> tuple[Pair, ...]:
    """Who waited for whom."""
    total = group_sums(matched.rank * count + waits.last, waits.blamed_ns, count * count)
    order = np.argsort(-total, kind="stable")[:PAGE_ROWS].tolist()
    return tuple(Pair(pair // count, pair % count, int(total[pair])) for pair in order if total[pair] > 0)


def _verdict(
    ranks: Sequence[RankReport],
    diagnosis: Diagnosis,
    aligned: Aligned,
    missing: Sequence[int],
    summaries: Sequence[RankSummary],
    programs: Sequence[ProgramOfRanks],
    pipeline: Pipeline | None,
) -> JobVerdict:
    length = max(diagnosis.length_ns, 1)
    what_if = {prediction.scenario: prediction.length_ns for prediction in diagnosis.what_if}
    named = sum(culprit.saving_ns for culprit in diagnosis.culprits if culprit.kind != "link")
    named += sum(turn.saving_ns for turn in diagnosis.chance)
    even = max(length - what_if.get("balance", length), 0)
    # The same work shared differently saves no more than ranks wait on average: the rest is even transfers.
    balance = max(min(even, sum(rank.wait_ns for rank in ranks) // max(len(ranks), 1)), named)
    transfer = length - what_if.get("transfer_free", length)
    confidence, reasons = _confidence(diagnosis, _doubts(diagnosis, aligned, missing, summaries), summaries, programs)
    because = _why_unknown(summaries, aligned)
    if because:
        return JobVerdict(bound="unknown", confidence="low", because=because, reasons=tuple(reasons))
    whole = max(sum(rank.window_ns - rank.start_wait_ns for rank in ranks), 1)
    if balance >= IMBALANCE_SHARE * length:
        waits = sum(rank.wait_ns for rank in ranks) / whole
        who = _held_up_by(ranks, diagnosis, summaries)
        because = _imbalance(
            who, f"{units.percent(waits)} of all ranks' time is waiting for others", diagnosis, pipeline
        )
        if not diagnosis.culprits and not diagnosis.chance:
            reasons = [*reasons, "no rank differs from the others in the same way in each step"]
            confidence = "medium" if confidence == "high" else "low"
        return _told("imbalance", confidence, because, reasons, balance)
    savings = {key: length - what_if.get(f"without {key}", length) for key in CAUSE_KEYS if key in _REMOVABLE}
    savings["gpu_comm"] = transfer
    bound = max(sorted(savings), key=lambda key: savings[key])
    own_ns = sum(rank.own[bound] for rank in ranks)
    reason = f"{units.percent(own_ns / whole)} of the ranks' time is {SHORT_LABEL.get(bound, bound)}"
    if bound == "gpu_comm":
        reason = f"transfers that nothing hides take {units.percent(transfer / length)}"
    fills = f", {_filling(pipeline, length)}" if pipeline is not None else ""
    because = f"{reason}{fills}, and perfect balance would save {units.percent(even / length, 1)}"
    return _told(bound, confidence, because, reasons, savings[bound])


def _imbalance(who: str, waiting: str, diagnosis: Diagnosis, pipeline: Pipeline | None) -> str:
    """Who holds the job up, what else would be gained, and how much is waiting; a pipeline's bubble stands first where
    it costs more than anybody, as in the list of what holds the job up."""
    length = max(diagnosis.length_ns, 1)
    even = max(
        length
        - next((prediction.length_ns for prediction in diagnosis.what_if if prediction.scenario == "balance"), length),
        0,
    )
    if pipeline is not None and pipeline.saving_ns > _of_the_first(diagnosis):
        who = f"{_filling(pipeline, length)}; {who}"
    elif pipeline is not None:
        waiting += f" ({_filling(pipeline, length)})"
    return f"{who}; {_gain(even, diagnosis)}; {waiting}"


def _gain(even_ns: int, diagnosis: Diagnosis) -> str:
    """What balance would gain, or, where that is more, the job without what holds it up most."""
    length = max(diagnosis.length_ns, 1)
    first_ns = _of_the_first(diagnosis)
    if first_ns > even_ns:
        evenly = f" (sharing the work evenly: {units.percent(even_ns / length)} shorter)" if even_ns > 0 else ""
        return f"without that the job would be {units.percent(first_ns / length)} shorter{evenly}"
    return f"perfect balance would make the job {units.percent(even_ns / length)} shorter"


def _pipeline(ranks: Sequence[RankReport], diagnosis: Diagnosis, job: Job) -> Pipeline | None:
    """The pipeline that the ranks are stages of, and its bubble."""
    balanced = next(
        (prediction.length_ns for prediction in diagnosis.what_if if prediction.scenario == "balance"),
        diagnosis.length_ns,
    )
    return pipeline_of(job, [rank.wait_ns for rank in ranks], diagnosis.length_ns - balanced)


def _filling(pipeline: Pipeline, length_ns: int) -> str:
    """How much of the time the pipeline fills and drains."""
    return f"the pipeline fills and drains for {units.percent(pipeline.bubble_ns / length_ns)} of the time"


def _of_the_first(diagnosis: Diagnosis) -> int:
    """What the job would gain without what holds it up most."""
    of_culprits = [culprit.saving_ns for culprit in diagnosis.culprits]
    return max([*of_culprits, *(turn.saving_ns for turn in diagnosis.chance)], default=0)


def _held_up_by(ranks: Sequence[RankReport], diagnosis: Diagnosis, summaries: Sequence[RankSummary]) -> str:
    """Who others wait for most."""
    turns = max((turn.saving_ns for turn in diagnosis.chance), default=0)
    if diagnosis.culprits and diagnosis.culprits[0].saving_ns >= turns:
        return _who(diagnosis.culprits[0], summaries)
    return "ranks take turns at being late" if diagnosis.chance else _waited_for(ranks, summaries)


def _confidence(
    diagnosis: Diagnosis,
    reasons: list[str],
    summaries: Sequence[RankSummary],
    programs: Sequence[ProgramOfRanks],
) -> tuple[str, list[str]]:
    """How sure what is said of the job is, and why not surer."""
    if any(item.program.ended == FAILED for item in programs):
        reasons.append("a program failed: what follows is what the ranks did until then")
    confidence = "high" if not reasons else "medium" if len(reasons) == 1 else "low"
    if _replay_error(diagnosis) > _REPLAY_FAILS:
        confidence = "low"
    if len({summary.begins_mpi for summary in summaries} - {None}) > 1:
        reasons = [*reasons, "some ranks began MPI before their recording did, or the call is lost"]
        confidence = "low"
    if lost := _lost_calls(summaries):
        what = "collective of MPI is" if lost == 1 else "collectives of MPI are"
        reasons = [*reasons, f"{units.count(lost)} {what} on record of some ranks and not of others"]
        confidence = "low"
    return confidence, reasons


def _why_unknown(summaries: Sequence[RankSummary], aligned: Aligned) -> str:
    """Why nothing can be said of the job; empty where something can."""
    because = "" if len(aligned.matched) else "no collective could be matched over the ranks"
    stuck = [rank for rank in _ended(summaries) if rank.is_inside]
    if stuck:
        names = [_name(summaries[rank.rank]) for rank in stuck]
        inside = " and ".join(f"{name} in {rank.call}" for name, rank in zip(names[:2], stuck, strict=False))
        because = f"it did not finish: {inside} at the end of the recording"
    alone, waited = _alone(summaries, aligned)
    if not because and alone > _MOSTLY_ALONE * waited:
        share = units.percent(alone / waited)
        because = (
            f"for {share} of the time in collectives the reports of the ranks on the other side are missing, so that"
            " time counts as transfer, though part of it may be waiting"
        )
    return because


def _lost_calls(summaries: Sequence[RankSummary]) -> int:
    """How many collectives of MPI ranks lack that others of their communicator have: all ranks make the same ones, but
    for the last, in which a rank that never ended may be."""
    counts: dict[RankGroup, Counter[int]] = {}
    for index, summary in enumerate(summaries):
        collective = [message_kind(kind) == MessageKind.COLLECTIVE for kind in summary.kinds]
        is_collective = np.array(collective, bool)[summary.meetings.kind]
        for group, times in zip(*np.unique(summary.meetings.group[is_collective], return_counts=True), strict=True):
            counts.setdefault(summary.groups[int(group)], Counter())[index] = int(times)
    place_of = {summary.rank: index for index, summary in enumerate(summaries)}
    lost = 0
    for group, by_rank in counts.items():
        members = [place_of[rank] for rank in group.ranks if rank in place_of] or range(len(summaries))
        most = max(by_rank.values())
        lost += sum(max(most - by_rank[index] - (summaries[index].unfinished is not None), 0) for index in members)
    return lost


_REMOVABLE = {"gpu_compute", "gpu_copy", "sync", "cuda_api", "cpu", "host_blocked", "init"}


def _told(bound: str, confidence: str, because: str, reasons: Sequence[str], saving: int) -> JobVerdict:
    return JobVerdict(
        bound=bound, confidence=confidence, because=because, reasons=tuple(reasons), saving_ns=max(saving, 0)
    )


def _waited_for(ranks: Sequence[RankReport], summaries: Sequence[RankSummary]) -> str:
    """Who the others wait for, where nobody is slower than its peers."""
    caused = [rank.caused_wait_ns for rank in ranks]
    most = caused.index(max(caused))
    share = units.percent(caused[most] / max(sum(caused), 1))
    return f"{share} of what ranks wait for others is for {_name(summaries[most])}"


def _who(culprit: Culprit, summaries: Sequence[RankSummary]) -> str:
    names = [_name(summaries[rank]) for rank in culprit.ranks]
    if culprit.kind == "stage":
        members = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        numbers = [summaries[rank].rank for rank in culprit.ranks]
        if len(names) == 2:
            members = " and ".join(names) if UNKNOWN in numbers else f"ranks {numbers[0]} and {numbers[1]}"
        return f"stage {culprit.stage} ({members}) does more work than the other stages"
    if culprit.kind == "link":
        return f"transfers of {names[0]} and its group are slow"
    late = f"{names[0]} comes late" if len(names) == 1 else f"{len(names)} ranks come late"
    noun = NOUN.get(culprit.cause.key)
    return f"{late} because of {'its' if len(names) == 1 else 'their'} {noun}" if noun else late


def _name(summary: RankSummary) -> str:
    return f"rank {summary.rank}" if summary.rank != UNKNOWN else summary.name


def _replay_error(diagnosis: Diagnosis) -> float:
    """By what part of the measured length the replay misses it."""
    return abs(diagnosis.replayed_ns / max(diagnosis.length_ns, 1) - 1) if diagnosis.replayed_ns else 0.0


def _doubts(
    diagnosis: Diagnosis, aligned: Aligned, missing: Sequence[int], summaries: Sequence[RankSummary]
) -> list[str]:
    doubts = []
    if missing:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        doubts.append(
            f"{units.plural(len(missing), 'rank')} {are} missing: time spent waiting for {them} counts as transfer"
        )
    if _replay_error(diagnosis) > _REPLAY_ERROR:
        doubts.append(f"replayed unchanged the job takes {units.duration(diagnosis.replayed_ns)}")
    if damaged := sum(summary.is_damaged for summary in summaries):
        doubts.append(f"rows of {units.plural(damaged, 'report')} had no time that fits the others' and were left out")
    doubts += _doubts_of_clocks(aligned, summaries)
    if diagnosis.steps < FEW_STEPS:
        are = "is" if diagnosis.steps == 1 else "are"
        doubts.append(f"{units.plural(diagnosis.steps, 'step')} {are} too few to show a pattern")
    return doubts


def _doubts_of_clocks(aligned: Aligned, summaries: Sequence[RankSummary]) -> Iterator[str]:
    """How well the ranks' clocks and collectives fit together."""
    unset = [summary.name for summary, clock in zip(summaries, aligned.clocks, strict=True) if not clock.matched]
    if unset and len(aligned.matched):
        yield f"the clock of {unset[0]} rests on its file alone"
    if any(clock.residual_ns > _POOR_CLOCK_NS for clock in aligned.clocks):
        yield "the ranks' ends of the same collective differ by more than their clocks explain"
    alone, parts = sum(len(summary.meetings) for summary in summaries), len(aligned.matched.rank)
    if alone and parts < alone / 2:
        yield f"{alone - parts:,} of {alone:,} recorded calls of collectives match no call of another rank"


def _notes(
    summaries: Sequence[RankSummary], aligned: Aligned, diagnosis: Diagnosis, missing: Sequence[int]
) -> list[str]:
    notes = []
    skew = [
        int(clock.at(np.array([summary.window_ns[0]]))[0])
        for summary, clock in zip(summaries, aligned.clocks, strict=True)
    ]
    apart = max(skew) - min(skew)
    if apart > _LEAST_EXCESS_SHARE * diagnosis.length_ns:
        notes.append(f"The ranks begin {units.duration(apart)} apart. Waiting for a rank to begin is not counted.")
    if missing:
        more = f" and {len(missing) - 8:,} more" if len(missing) > 8 else ""
        notes.append(f"Ranks without a report here: {', '.join(map(str, missing[:8]))}{more}.")
    alone, waited = _alone(summaries, aligned)
    if alone > _LEAST_EXCESS_SHARE * max(waited, 1):
        share = units.percent(alone / waited)
        notes.append(
            f"Predictions leave {share} of the time in collectives as it is: of these collectives only one rank's"
            " report is here."
        )
    if all(summary.rank == UNKNOWN for summary in summaries):
        notes.append("The reports do not say which ranks they are of, so they are listed by name.")
    return notes


# What a rank does at each time of the job's clock: its own work, waiting for the last to come, the transfer.

TRANSFER, WAITS, NOTHING = "=", ".", "?"


class Line(Struct, frozen=True):
    """One stretch an event, and one after the last: own work from ``since`` to ``worked``, waiting until the last rank
    ``came``, the transfer until ``until``."""

    since: Int64Array
    worked: Int64Array
    came: Int64Array
    until: Int64Array
    main: Int64Array  # the row of the work that takes most of it; -1: none
    met: Int64Array  # the collective that is waited for; -1: none

    def letters(self, summary: RankSummary, low: int, high: int, count: int) -> str:
        """What is done in each of ``count`` equal parts of a span."""
        middle = low + (2 * np.arange(count) + 1) * (high - low) // (2 * count)
        at = np.searchsorted(self.until, middle, side="right")
        letter = np.array([LETTER[Cause(cause).key] for cause in range(len(CAUSES))])
        work = letter[summary.work.cause[self.main]] if len(summary.work) else np.full(len(self.main), NOTHING)
        work = np.append(np.where(self.main >= 0, work, NOTHING), NOTHING)
        worked, came = (np.append(edge, middle[-1] + 1)[at] for edge in (self.worked, self.came))
        doing = np.where(middle < worked, work[at], np.where(middle < came, WAITS, TRANSFER))
        return "".join(np.where(middle < self.since[0], NOTHING, doing).tolist())


def line_of(summary: RankSummary, clock: Clock, matched: Matched, place: int) -> Line:
    """The line of the rank at a place."""
    work, events = summary.work, summary.events
    low, high = clock.at(np.array(summary.window_ns))
    count = len(events) + 1
    own = np.bincount(work.event, work.ns, count).astype(np.int64)
    until = np.maximum.accumulate(np.append(clock.at(events.time_ns), high))
    since = np.append(low, until[:-1])
    worked = np.minimum(since + own, until)
    main = np.full(count, -1, np.int64)
    rows = np.lexsort((work.ns, work.event))
    main[work.event[rows]] = rows  # the last of each event is its largest
    instance = matched.instance_of(place, len(summary.meetings))
    met = np.append(np.where(events.is_join, instance[events.meeting], -1), -1)
    transfer = np.where(met >= 0, np.append(matched.transfer_ns, 0)[met], 0)
    return Line(since, worked, np.clip(until - transfer, worked, until), until, main, met)
