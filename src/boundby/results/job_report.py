"""The result of a job of many ranks, as plain frozen data in the order of its JSON."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from boundby.model.causes import BOUNDS
from boundby.results.comparison import Significance
from boundby.results.report import CONFIDENCES, FirstResponse, Viewed
from boundby.results.saved import LATER, Least, Natural, NonNegative, OneOf, RegionPath, Saved, Times, derived
from boundby.trace.facts import ProgramEnd

#: What a job can be bound by beside what its ranks are: waiting for some of them.
JOB_BOUNDS = (*BOUNDS, "imbalance")
KINDS = ("rank", "exceptions", "extra", "stage", "link", "machine", "random")
#: What helps against what holds a job up.
REMEDIES = (
    *("", "check_device", "replace_machine", "share_work", "move_layers", "balance_lengths", "balance_steps"),
    *("feed", "host", "look", "warm_up", "less_often", "check_link"),
)


class RankClock(Struct, frozen=True):
    """How a rank's clock was set: what the ends of collectives say, on the first rank's clock."""

    offset_ns: Annotated[int, "Nanoseconds added to the rank's times at the begin of its window."]
    drift: Annotated[float, "Nanoseconds more for each nanosecond since then."]
    matched: Annotated[Natural, "Collectives that it rests on; 0: only what the file says."]
    residual_ns: Annotated[NonNegative, "How far the rank's ends lie from the common ends, median, nanoseconds."]
    worst_ns: Annotated[NonNegative, "The same, 95th percentile."]


class RankReport(Struct, frozen=True, kw_only=True):
    """One rank: its time, what of it was its own, transfer and waiting."""

    name: Annotated[str, "The report, as given."]
    rank: Annotated[int | None, "Rank in the job; null: not told."]
    device: Annotated[str, "Name of the GPU; empty: none."]
    stage: Annotated[
        Natural, "Which group of ranks that do the same it is in: a stage of a pipeline; 0 where there is one."
    ]
    window_ns: Annotated[Natural, "Length of its window, nanoseconds."]
    own: Annotated[
        Times, "Its own work by cause, nanoseconds: all but what it spent in collectives with nothing else to do."
    ]
    transfer_ns: Annotated[Natural, "Exposed time in collectives after all had come, nanoseconds."]
    wait_ns: Annotated[Natural, "Exposed time in collectives before the last had come, nanoseconds; all starts apart."]
    start_wait_ns: Annotated[Natural, "The same at the rank's first collective: ranks begin at different times."]
    caused_wait_ns: Annotated[
        Natural, "How long others waited in collectives to which it came last, beyond the second last."
    ]
    last: Annotated[Natural, "Collectives to which it came last."]
    collectives: Annotated[Natural, "Collectives that were matched."]
    unmatched: Annotated[Natural, "Collectives that no other rank here has."]
    clock: RankClock
    steps: Annotated[tuple[int, ...], "Its own work in each step of the job, nanoseconds."] = ()
    step_waits: Annotated[tuple[int, ...], "What it waited in each, transfer included, nanoseconds."] = ()
    step_causes: Annotated[str, "The letter of the cause with most excess over its peers in each step; '.': none."] = ""
    warnings: Annotated[tuple[str, ...], "What lowers certainty."] = ()
    step_line: Annotated[
        str,
        LATER,
        "What it does in the course of one step of the job, the same span on all ranks, as letters of equal length: a"
        " cause of its own work, '=' transfer, '.' waits for others; empty: no steps.",
    ] = ""


class Straggler(Struct, frozen=True, kw_only=True):
    """What holds the job up: a rank, a stage or a link that takes longer than those that do the same, and why."""

    kind: Annotated[
        str,
        OneOf(KINDS),
        "rank: in most steps; exceptions: in some; extra: work that no other rank has; stage: all its ranks; link: slow"
        " transfers of one group; machine: all its ranks; random: ranks take turns.",
    ]
    ranks: Annotated[tuple[int, ...], "Places in the list of ranks; empty: any."]
    stage: Annotated[int | None, "The stage, where it is one."]
    cause: Annotated[str, "Cause key, in the culprit's own account."]
    region: Annotated[RegionPath, "Where most of it lies."]
    excess_ns: Annotated[Natural, "Own time beyond that of its peers, nanoseconds a rank."]
    cause_share: Annotated[NonNegative, "Share of the excess that has this cause."]
    saving_ns: Annotated[
        Natural, "The job would be so much shorter if it did what its peers do, those before it mended."
    ]
    steps: Annotated[Natural, "In how many steps it shows."]
    remedy: Annotated[str, OneOf(REMEDIES), LATER, "What would gain that; empty: not known."] = ""
    waited_in: Annotated[
        str | None, LATER, "The call or collective in which others wait for it longest; null: in none."
    ] = None
    waited_ns: Annotated[Natural, LATER, "How long they wait there for it, nanoseconds of all of them."] = 0
    blocked_on: Annotated[
        str | None,
        LATER,
        "What most of the excess is spent on where its cause is host_blocked, as in blocked_on of threads; null: not"
        " told.",
    ] = None


class Ended(Struct, frozen=True):
    """A rank that started MPI and did not end it: its last call, and whether it ever returned from it."""

    rank: Annotated[Natural, "Place in the list of ranks."]
    call: Annotated[str, "Its last call that waits for others."]
    is_inside: Annotated[bool, "It never returned from it."]
    lasted_ns: Annotated[Natural, "How long it was in it, nanoseconds; where it failed there, at most."]
    peer: Annotated[int | None, "The rank that the message is for, or of; null: not told."] = None
    tag: Annotated[int | None, "The message's tag; null: not told."] = None
    bytes: Annotated[int | None, "The message's size; null: not told."] = None
    has_failed: Annotated[bool, "It failed in it, as the backtrace says that it printed.", LATER] = False


class ProgramOfRanks(Struct, frozen=True):
    """How the program of some ranks ended, where it failed, was interrupted, or may have failed."""

    ranks: Annotated[tuple[int, ...], "Places in the list of ranks."]
    left_out: Annotated[tuple[str, ...], "Reports of which no rank could be made."]
    program: Annotated[ProgramEnd, "What it said; of several that said the same, of the first to end."]


class Pair(Struct, frozen=True):
    """Who waits for whom."""

    waiting: Annotated[Natural, "Place in the list of ranks."]
    last: Annotated[Natural, "Place of the rank that came last."]
    wait_ns: Annotated[Natural, "Nanoseconds."]


class JobWhatIf(Struct, frozen=True):
    """The job's length as a scenario would leave it, by replay of all ranks joined at their collectives."""

    scenario: Annotated[
        str, "What is changed: balance, transfer_free, transfer=2, kernels=2, without CAUSE, without CAUSE in REGION."
    ]
    predicted_ns: Annotated[Natural, "Predicted length, nanoseconds."]
    baseline_ns: Annotated[Natural, "Measured length, nanoseconds."]
    cause: Annotated[str | None, "The cause that is gone on all ranks; null: none is."] = None
    region: Annotated[RegionPath, "Where it is gone; empty: everywhere."] = ()


class Pipeline(Struct, frozen=True, kw_only=True):
    """Stages that micro-batches pass one after the other, and what ranks wait while these fill and drain."""

    stages: Annotated[int, Least(2), "How many there are."]
    micro_batches: Annotated[int, Least(1), "How many pass them in each step."]
    bubble_ns: Annotated[
        Natural,
        "How much longer the job is because the stages fill and drain, nanoseconds: what one micro-batch takes all"
        " stages but the busiest, in each step; no more than the busiest rank waits, nor than ranks wait on average"
        " beyond what balance would save.",
    ]
    saving_ns: Annotated[Natural, "The job would be so much shorter, at most, with twice as many of half the size."]


class JobVerdict(Struct, frozen=True, kw_only=True):
    """What bounds the job."""

    bound: Annotated[
        str, OneOf(JOB_BOUNDS), "imbalance, gpu_comm for transfer, else what its ranks themselves are bound by."
    ]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure that is."]
    because: Annotated[str, "The numbers that decide it."]
    reasons: Annotated[tuple[str, ...], "Why the confidence is not higher."] = ()
    saving_ns: Annotated[int | None, "What the job would be shorter without it; null: not known."] = None


class JobReport(Saved, Viewed, Struct, frozen=True, kw_only=True):
    """Who holds up whom in a job of many ranks, why, and what balance would save. ``boundby.job`` returns it."""

    kind: ClassVar[str] = "job"
    written_by: ClassVar[str] = "boundby job REPORTS... -o job.json"

    path: Annotated[str, "What was given: a folder, or the first of the reports."]
    world_size: Annotated[int | None, "How many ranks the job has, as its files tell; null: they do not."]
    length_ns: Annotated[
        Natural, "From the end of the first collective of all to the end of the last rank, nanoseconds."
    ]
    replayed_ns: Annotated[Natural, "The same as replayed unchanged."]
    steps: Annotated[int, Least(1), "Steps that were told apart; 1: none."]
    collectives: Annotated[Natural, "Collectives matched over ranks."]
    verdict: JobVerdict
    stragglers: Annotated[tuple[Straggler, ...], "What holds the job up, most first."]
    extras: Annotated[tuple[Straggler, ...], "Work that one rank alone has, such as logging, that the others wait for."]
    ranks: Annotated[tuple[RankReport, ...], "One entry a rank, by rank, then name."]
    pairs: Annotated[tuple[Pair, ...], "Who waits for whom, longest first; of many ranks the most of it."]
    what_if: Annotated[tuple[JobWhatIf, ...], "Predictions for the whole job."]
    steps_together: Annotated[int, Least(1), "How many of the program's steps make one of these."] = 1
    step_shown: Annotated[Natural, LATER, "Which step the ranks' step_line shows, from 1; 0: none."] = 0
    step_shown_ns: Annotated[Natural, LATER, "How long that step is, from its first begin to its last end."] = 0
    missing: Annotated[tuple[int, ...], "Ranks that the job has and no report was given of."] = ()
    left_out: Annotated[tuple[str, ...], "Reports that could not be used, and why."] = ()
    notes: Annotated[tuple[str, ...], "What else should be known."] = ()
    ended: Annotated[tuple[Ended, ...], LATER, "Ranks that did not come to the end of MPI."] = ()
    programs: Annotated[
        tuple[ProgramOfRanks, ...], LATER, "How programs ended that did not end well, those that failed first."
    ] = ()
    pipeline: Annotated[
        Pipeline | None, LATER, "The pipeline and its bubble; null: none, or its micro-batches cannot be counted."
    ] = None
    first: Annotated[
        FirstResponse | None,
        LATER,
        "What to try first, and what the job would be shorter by; null: nothing saves 1 % of it.",
    ] = None

    def __repr__(self) -> str:
        verdict = self.verdict
        return f"<boundby.JobReport of {self.path}: {len(self.ranks)} ranks, {verdict.bound} ({verdict.confidence})>"

    @property
    @derived(after="length_ns")
    def imbalance(self) -> NonNegative:
        """What perfect balance would save, as a fraction of the job's length."""
        even = next((answer.predicted_ns for answer in self.what_if if answer.scenario == "balance"), self.length_ns)
        return max(self.length_ns - even, 0) / self.length_ns if self.length_ns else 0.0

    def most_waited_for(self) -> tuple[int, float] | None:
        """The rank (its place) that the others wait for longest, and its share of all that is waited for somebody; None
        where nobody waits."""
        waited = [rank.caused_wait_ns for rank in self.ranks]
        most = max(range(len(waited)), key=lambda index: (waited[index], -index))
        return (most, waited[most] / sum(waited)) if waited[most] > 0 else None


class JobSide(Struct, frozen=True, kw_only=True):
    """One of two jobs that are compared. Shares are of all ranks' time."""

    path: Annotated[str, "What was given."]
    ranks: Annotated[Natural, "How many there are."]
    length_ns: Annotated[Natural, "Of the job, nanoseconds."]
    step_ns: Annotated[float | None, "Median step, waiting included, nanoseconds; null: no steps were told apart."]
    own: Annotated[Times, "Mean own work of a rank by cause, of a step; of the run where there are none."]
    transfer_ns: Annotated[NonNegative, "The same of transfers."]
    wait_ns: Annotated[NonNegative, "The same of waiting for others."]
    imbalance: Annotated[NonNegative, "What perfect balance would save, as a fraction of the job's length."]
    bound: Annotated[str, OneOf(JOB_BOUNDS), "What bounds it."]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure that is."]


class StragglerChange(Struct, frozen=True):
    """Something that holds up one of the jobs, or both; here ``ranks`` are numbers of ranks."""

    status: Annotated[str, OneOf(("resolved", "new", "stays")), "Whether it is gone, new, or in both."]
    before: Annotated[Straggler | None, "In the first job; null: not there."]
    after: Annotated[Straggler | None, "In the second."]


class RankChange(Struct, frozen=True):
    """One rank that both jobs have, by its number: mean nanoseconds of a step, or of the run where there are none."""

    rank: Annotated[Natural, "Its number."]
    own_before_ns: Annotated[NonNegative, "Own work."]
    own_after_ns: Annotated[NonNegative, "Own work."]
    wait_before_ns: Annotated[NonNegative, "Waiting for others."]
    wait_after_ns: Annotated[NonNegative, "Waiting for others."]


class JobComparison(Saved, Struct, frozen=True, kw_only=True):
    """What changed from one job of many ranks to another."""

    kind: ClassVar[str] = "job-comparison"
    written_by: ClassVar[str] = "boundby compare JOB_A JOB_B -o comparison.json"

    before: JobSide
    after: JobSide
    change: Annotated[float, "Of the step, else of the job's length: -0.25 is a quarter less."]
    significance: Annotated[Significance, "Whether steps differ more than steps of one job do."]
    stragglers: Annotated[tuple[StragglerChange, ...], "Resolved, new, and those that stay."]
    ranks: Annotated[tuple[RankChange, ...], "Ranks that both have, by number."]
    notes: Annotated[tuple[str, ...], "What makes them less comparable."] = ()
