"""What to try first on a job: about what holds it up most, about reports that are missing, about a program that failed.

Where it is about one rank, what that rank's own report says of the same cause is what to do; `asked` says whom to ask.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from boundby.capture import launched_ranks
from boundby.document import job_document
from boundby.document.job_document import bubble_share, costs, late, name_of, names_of, passing
from boundby.jobs.gather import part_of, report_of
from boundby.jobs.rank_summary import RankSummary
from boundby.model import units
from boundby.model.causes import SHORT_LABEL
from boundby.model.scale import LIST, NEARLY_ALL, NEGLIGIBLE
from boundby.options import AnalysisOptions
from boundby.results.job_report import JobReport, Pipeline, ProgramOfRanks, Straggler
from boundby.results.report import FirstResponse
from boundby.trace.vocabulary.last_words import FAILED

#: What the busy device does more of than its peers is told by no rank's own report: only that it does much of it.
_OF_DEVICES = ("gpu_compute", "gpu_copy")
_DEAL_OUT = (
    "order = sorted(range(len(dataset)), key=lambda i: length[i])\n"
    "mine = order[rank::ranks]  # inputs that follow each other are about as long, and go to different ranks"
)
_COLLECT_TOGETHER = "gc.disable()  # before the loop\nif step % 500 == 0: gc.collect()  # all ranks in the same steps"
_NUMBERED = re.compile(r"^(.*?rank[-_. ]?)(\d+)(.*)$", re.IGNORECASE | re.DOTALL)


class RankQuestion(Struct, frozen=True):
    """What is asked of a rank's own report. ``rank``: its name; ``cause``: what a good answer is about, by its key;
    empty: anything. ``is_of_report``: it is about all that the report holds, not this rank alone."""

    rank: str
    cause: str
    is_of_report: bool = False

    def is_answered_by(self, response: FirstResponse) -> bool:
        """Whether it is about the cause."""
        return not self.cause or self.cause in (response.id.partition(".")[0], response.other)


def asked(job: JobReport) -> RankQuestion | None:
    """Whose report is asked what to try first, and about what; None: it would not tell."""
    failed = _failed(job)
    if failed is not None:
        name = job.ranks[failed.ranks[0]].name if failed.ranks else failed.left_out[0]
        return RankQuestion(name, "", is_of_report=True)
    if _is_stuck(job) or job.verdict.bound == "unknown":
        return None
    worst = next(iter(costs(job)), None)
    return _about_the_bound(job) if worst is None else _about(job, worst)


def _about_the_bound(job: JobReport) -> RankQuestion | None:
    """Of a job that nobody holds up, the rank with most of what bounds it."""
    bound = job.verdict.bound
    return None if bound == "imbalance" or not _is_worth_it(job) else RankQuestion(_with_most(job, bound), bound)


def _about(job: JobReport, worst: Straggler | Pipeline) -> RankQuestion | None:
    """Who holds the job up, about the cause."""
    if isinstance(worst, Pipeline) or worst.cause in _OF_DEVICES or worst.kind == "link":
        return None
    return RankQuestion(job.ranks[worst.ranks[0]].name if worst.ranks else _with_most(job, worst.cause), worst.cause)


def of(
    job: JobReport, summaries: Sequence[RankSummary], path_of: Mapping[str, Path], answer: FirstResponse | None
) -> FirstResponse | None:
    """What to try first; None: nothing is worth it. ``path_of``: reports by their names; ``answer``: what the rank
    says that `asked` names, if it says anything."""
    known = _Known(job, {one.name: one for one in summaries}, path_of)
    if _failed(job) is not None:
        return answer
    if _is_stuck(job):
        return _see_who_hangs()
    if job.verdict.bound == "unknown":
        return _add_reports(known) if job.missing else None
    worst = next(iter(costs(job)), None)
    if worst is None:
        return _of_bound(known, answer)
    if isinstance(worst, Pipeline):
        return _more_micro_batches(job, worst)
    return _of_straggler(known, worst, answer)


class _Known(Struct, frozen=True):
    """The job, its ranks' summaries by their names, and its reports by theirs."""

    job: JobReport
    summaries: Mapping[str, RankSummary]
    path_of: Mapping[str, Path]

    def analyze(self, rank: str) -> str:
        """The command that analyses a rank by itself; empty where its report is not here."""
        path = self.path_of.get(report_of(rank))
        chosen = part_of(rank, AnalysisOptions()).arguments
        return "" if path is None else f"boundby analyze {shlex.quote(str(path))}{chosen}"

    def compare(self, rank: str, peer: str) -> str:
        """The command that sets a rank beside another one; empty where one report holds both."""
        one, other = self.path_of.get(rank), self.path_of.get(peer)
        told = f"boundby compare {shlex.quote(str(other))} {shlex.quote(str(one))}"
        return told if one is not None and other is not None else ""

    @property
    def any_summary(self) -> RankSummary | None:
        """That of the first rank."""
        return self.summaries.get(self.job.ranks[0].name)


def _failed(job: JobReport) -> ProgramOfRanks | None:
    return next((one for one in job.programs if one.program.ended == FAILED), None)


def _is_stuck(job: JobReport) -> bool:
    return any(one.is_inside for one in job.ended)


def _is_worth_it(job: JobReport) -> bool:
    """Whether the job would be shorter by enough without what bounds it."""
    return (job.verdict.saving_ns or 0) >= NEGLIGIBLE * job.length_ns > 0


def _with_most(job: JobReport, cause: str) -> str:
    """The name of the rank with most of a cause in its own time; of transfers, which are in nobody's, in these."""
    most = max(job.ranks, key=lambda one: one.transfer_ns if cause == "gpu_comm" else one.own.get(cause, 0))
    return most.name


def _place(job: JobReport, name: str) -> int:
    return next(place for place, one in enumerate(job.ranks) if one.name == name)


def _see_who_hangs() -> FirstResponse:
    code = 'gdb -p PID -batch -ex "thread apply all bt"  # of each rank, once it hangs (Python: py-spy dump --pid PID)'
    return FirstResponse(
        "job.hang",
        "Run it again, and look where each rank is when nothing goes on",
        because="the recording tells the last call of each rank, not what led to it",
        needs="another run",
        code=code,
        command=code,
        is_search=True,
    )


def _add_reports(known: _Known) -> FirstResponse:
    """Without the ranks on the other side nothing can be said of what bounds the job."""
    job = known.job
    told, record = _files(job), f"{_recording(known.any_summary)}  # records every rank"
    again = f"boundby job {shlex.quote(job.path)}  # once {told}" if Path(job.path).is_dir() and told else ""
    reports = "report" if len(job.missing) == 1 else "reports"
    title = f"Add the {reports} of the {units.plural(len(job.missing), 'other rank')}, or record all ranks again"
    of_all, here = len(job.ranks) + len(job.missing), len(job.ranks)
    because = f"only {here} of the {of_all} ranks {'has its report' if here == 1 else 'have their reports'} here"
    if partners := _partners(known):
        verbs = ("shares", "comes") if len(partners) == 1 else ("share", "come")
        because += f"; {_ranks_told(partners)} {verbs[0]} process groups with these, and {verbs[1]} first"
    return FirstResponse(
        "job.missing",
        title,
        because=because,
        needs="reports of all ranks, of the same steps",
        code="\n".join(filter(None, (again, record))),
        command=again or record,
        is_search=True,
    )


def _partners(known: _Known) -> list[int]:
    """The ranks without a report that share a process group with those that have one; none where all do, or none is
    told."""
    missing = set(known.job.missing)
    groups = {group.ranks for one in known.summaries.values() for group in one.groups}
    partners = {rank for ranks in groups if not missing <= set(ranks) for rank in ranks} & missing
    return sorted(partners) if partners != missing else []


def _ranks_told(ranks: Sequence[int]) -> str:
    """``ranks 8, 16 and 24``; of many the first few."""
    if len(ranks) > LIST:
        return f"ranks {', '.join(map(str, ranks[:LIST]))} and {len(ranks) - LIST} more"
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _files(job: JobReport) -> str:
    """How the missing reports would be called by the names of those that are here: ``rank-2.json.gz to
    rank-127.json.gz lie there``; empty where these do not name their ranks."""
    parts = [(one.rank, _NUMBERED.match(one.name)) for one in job.ranks]
    shapes = {(found[1], found[3]) for rank, found in parts if found and found[2].isdecimal() and int(found[2]) == rank}
    if len(shapes) != 1 or not all(found for _, found in parts):
        return ""
    before, after = shapes.pop()
    first, last = (shlex.quote(f"{before}{number}{after}") for number in (job.missing[0], job.missing[-1]))
    return f"{first} lies there" if first == last else f"{first} to {last} lie there"


def _recording(summary: RankSummary | None) -> str:
    """The command that records a report of each rank."""
    program = "PROGRAM" if summary is None else summary.how_it_runs
    with_torch = "--with torch " if summary is not None and summary.is_of_torch else ""
    if launched_ranks.is_launcher(program.split()):
        return f"boundby profile {with_torch}-- {program}"
    return f"srun boundby profile {with_torch}-o run -- {program}"


def _more_micro_batches(job: JobReport, pipeline: Pipeline) -> FirstResponse:
    now, twice = pipeline.micro_batches, 2 * pipeline.micro_batches
    return FirstResponse(
        "job.micro-batches",
        "Cut each step into more and smaller micro-batches",
        (0, pipeline.saving_ns),
        because=f"only {passing(pipeline)}, so that they fill and drain for {bubble_share(job, pipeline)} of the time",
        action="An interleaved schedule shortens that, too",
        needs="memory for the activations of as many as there are stages",
        caution="kernels of so small a micro-batch no longer fill the GPU",
        code=f"schedule = Schedule1F1B(stage, n_microbatches={twice})  # torch.distributed.pipelining; {now} now\n"
        "--micro-batch-size N  # in Megatron-LM: half of today's N, same --global-batch-size",
    )


def _of_straggler(known: _Known, one: Straggler, answer: FirstResponse | None) -> FirstResponse:
    """What to do about who holds the job up; what its own report says of the cause, where it says anything."""
    job, saving = known.job, (0, one.saving_ns)
    if answer is not None:
        who = names_of(job, one.ranks[:1]) if one.ranks else name_of(job, _place(job, _with_most(job, one.cause)))
        because = f"on {who} {answer.because}" if answer.because else late(job, one)
        return replace(answer, saving_ns=saving, because=because, other="")
    code = _code(known, one)
    return FirstResponse(
        f"job.{(one.remedy or 'like-peers').replace('_', '-')}",
        job_document.remedy_of(job, one, by_name=True),
        saving,
        because=late(job, one),
        code=code,
        command=code if code.startswith("boundby ") else "",
    )


def _code(known: _Known, one: Straggler) -> str:
    """What to write or type about it."""
    if one.remedy == "move_layers" and one.stage is not None:
        return _layers(known.job, one.stage)
    if one.remedy in ("balance_lengths", "balance_steps"):
        return _DEAL_OUT
    if not one.ranks:
        return _of_turns(known, one)
    return _of_machine(known, one) or _beside_a_peer(known, one)


def _of_turns(known: _Known, one: Straggler) -> str:
    """Ranks that take turns at being late: Python collects garbage when it likes, else it is to be looked at."""
    summary = known.any_summary
    if one.cause == "cpu" and summary is not None and summary.is_of_torch:
        return _COLLECT_TOGETHER
    return known.analyze(_with_most(known.job, one.cause))


def _of_machine(known: _Known, one: Straggler) -> str:
    """What shows whether a device, a machine or a link is what is slow; empty: another thing is."""
    rank = known.job.ranks[one.ranks[0]]
    summary = known.summaries.get(rank.name)
    where = f"  # on {(summary.host if summary is not None else '') or names_of(known.job, one.ranks[:1])}"
    if one.remedy == "check_link":
        return f"nvidia-smi nvlink --errorcounters; ibstat{where}"
    if one.remedy not in ("check_device", "replace_machine"):
        return ""
    if rank.device.startswith(("AMD", "Instinct")):
        return f"rocm-smi --showclocks --showtemp --showpids{where}"
    return f"nvidia-smi -q -d CLOCK,TEMPERATURE,PIDS{where}"


def _beside_a_peer(known: _Known, one: Straggler) -> str:
    """The command that shows what a rank does beside one that does the same, or what it does by itself."""
    job, rank = known.job, known.job.ranks[one.ranks[0]]
    peers = (other for place, other in enumerate(job.ranks) if place not in one.ranks and other.stage == rank.stage)
    peer = next(peers, None)
    beside = known.compare(rank.name, peer.name) if peer is not None and one.cause in _OF_DEVICES else ""
    return beside or known.analyze(rank.name)


def _layers(job: JobReport, stage: int) -> str:
    """Options that give the first or the last stage of a pipeline fewer layers; empty: it is none of these."""
    last = max(rank.stage for rank in job.ranks)
    which = "last" if stage == last else "first" if stage == 0 else ""
    where = "else where the model is cut into stages"
    return f"--decoder-{which}-pipeline-num-layers N  # Megatron-LM: fewer than others have; {where}" if which else ""


def _of_bound(known: _Known, answer: FirstResponse | None) -> FirstResponse | None:
    """Nobody holds the job up: what the rank says that has most of what bounds it, or who is waited for most."""
    job, bound = known.job, known.job.verdict.bound
    if not _is_worth_it(job):
        return None
    if bound == "imbalance":
        most = job.most_waited_for()
        return None if most is None else _look_at(known, job.ranks[most[0]].name, job.verdict.because)
    name = _with_most(job, bound)
    if answer is None:
        return _look_at(known, name, f"no other rank spends so much time on {SHORT_LABEL[bound]}")
    most_ns = job.verdict.saving_ns or 0
    saving = None if answer.saving_ns is None else (0, min(answer.saving_ns[1], most_ns))
    because = f"on {_on_whom(job, name, bound)} {answer.because}" if answer.because else answer.because
    return replace(answer, saving_ns=saving, because=because)


def _on_whom(job: JobReport, name: str, bound: str) -> str:
    """The rank with most of the bound, and that all others have about as much, where they do."""
    place = _place(job, name)
    spent = [rank.transfer_ns if bound == "gpu_comm" else rank.own.get(bound, 0) for rank in job.ranks]
    is_alike = len(spent) > 1 and min(spent) >= NEARLY_ALL * spent[place]
    return f"{name_of(job, place)}, much as on the others," if is_alike else name_of(job, place)


def _look_at(known: _Known, name: str, because: str) -> FirstResponse | None:
    command = known.analyze(name)
    who = name_of(known.job, _place(known.job, name))
    if not command:
        return None
    return FirstResponse(
        "job.look",
        f"See what {who} does",
        because=because,
        command=command,
        code=command,
        is_search=True,
    )
