"""What to do first: the remedies of a verdict's pattern that apply here, each with what it would save.

The table is in `boundby.rules.remedies`. Findings number a remedy where a rule looked for it, else a replay does; what
does not apply is not told.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.claims import patterns
from boundby.claims.counted import (
    BOUGHT,
    COUNTED,
    FOUND,
    INPUT,
    NOTHING,
    UNNUMBERED,
    SavingNs,
    Subject,
    Told,
    rules,
    weight,
)
from boundby.claims.doubt import SYNC_EVENTS
from boundby.claims.laws import ClaimedSaving, Wholes
from boundby.claims.signs import card, card_of_host
from boundby.claims.summary import span_of_work
from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import CannotCheckError, RuleContext, once
from boundby.evidence.device_work import device_work
from boundby.evidence.host_idleness import host_pieces
from boundby.evidence.operators import has_sources
from boundby.evidence.waits import wait_chain, waits_of
from boundby.model.arrays import group_sums
from boundby.model.causes import SHORT_LABEL, Cause
from boundby.model.scale import A_FEW_LINES, DISPATCH_NS, HABIT, HALF, MARGIN, NOTABLE, ONE_BY_ONE, SLIGHT
from boundby.model.units import duration, percent, plural
from boundby.replay.predictor import Predictor
from boundby.replay.trust import uncertainty
from boundby.results.report import (
    Card,
    CodeLine,
    DeviceReport,
    Finding,
    FirstResponse,
    NoGpuWork,
    RegionReport,
    ThreadReport,
    Verdict,
)
from boundby.rules import remedies
from boundby.rules.remedies import Remedy, common_facts
from boundby.trace.facts import ProgramEnd
from boundby.trace.program import program_end
from boundby.trace.vocabulary.kernel_names import KernelKind
from boundby.trace.vocabulary.last_words import UNCLEAR, lacked_file

# Regions with less of the window, and more regions than this, have no card: nobody would read it.
REGION_SHARE, MOST_REGIONS = SLIGHT, ONE_BY_ONE
# A timer on the host lies of a region with this share of the time whose work on the device takes so many times as long.
TIMED_SHARE, LEAST_TIMED_NS, LEAST_INSTANCES = NOTABLE, DISPATCH_NS, HABIT
LIES = 3.0
UNSEEN_SHARE = NOTABLE  # of the window, from which waiting streams are worth a response of their own
_LATE_START = "late-start"  # of the run: who chose a part of it knows why
_SHARED = "shared-gpu"
_WHOSE = "stop-sharing"  # the remedy that tells who else works on the GPU
#: One remedy of the table with what this trace says of it.
Answer = tuple[Remedy, Told]


def responses(subject: Subject) -> tuple[tuple[Card, ...], tuple[FirstResponse, ...]]:
    """The cards of a verdict and its first responses, best first, those without a number last."""
    verdict, is_part = subject.part.verdict, subject.is_part
    bounds = verdict.mixed_of if verdict.bound == "mixed" and verdict.mixed_of else (verdict.bound,)
    described = [bound for bound in bounds if bound in patterns.KEYS]
    made = tuple(_of_bounds(subject, described))
    # Of the whole program: they stand with the first device alone.
    notes = () if is_part or subject.device > 0 else (*_harmless_waits(subject), *_mistimed(subject))
    part, is_of_host = subject.part, not subject.context.timeline.devices
    if isinstance(part, RegionReport) and is_of_host:
        return tuple(card_of_host(bound, part) for bound in described), made
    cards = tuple(replace(card(bound, part), lookalikes=patterns.lookalikes(bound, part)) for bound in described)
    return (replace(cards[0], notes=notes), *cards[1:]) if cards else (), made


def _of_bounds(subject: Subject, known: Sequence[str]) -> Iterable[FirstResponse]:
    """First responses of the patterns of a verdict, or of one that names none."""
    if not known:
        yield from _without_pattern(subject) if subject.part.verdict.bound == "unknown" else ()
        return
    rows = _of_patterns(subject, known)
    if not subject.is_part:
        before = [*_before_all_else(subject)]
        yield from before
        said = {response.id for response in before}
        rows = [entry for entry in _with_best_finding(subject, rows, known) if entry[0].key not in said]
        rows = [entry for entry in rows if entry[1].rule != _LATE_START or subject.options]
    told = _of_one_call(subject, _others_first(rows))
    yield from [_response(subject, *entry) for entry in _with_attention(subject, told)]


def _with_attention(subject: Subject, told: list[Answer]) -> list[Answer]:
    """Answers, with a reason more where fused attention takes most of the time and the first answer is about other
    kernels: a reader asks first why attention is not to be fused."""
    if subject.is_part or not told or told[0][0].bound != "gpu_compute" or told[0][1].is_guess:
        return told
    share = subject.kind_share(KernelKind.ATTENTION)
    if share < HALF:
        return told
    row, first = told[0]
    because = f"{first.because}; attention takes {percent(share)} of kernel time and is fused already"
    return [(row, first._replace(because=because)), *told[1:]]


def _before_all_else(subject: Subject) -> Iterator[FirstResponse]:
    """What comes before any change of the program: that it does what it is meant to do, what of the run matters most,
    and what was not recorded."""
    end = program_end(subject.context.trace)
    if end is not None and end.ended == UNCLEAR:
        yield _mend(subject, end)
    for item in subject.findings:
        if item.rule == _LATE_START and item.severity != "note" and not subject.options:
            row, answer = _of_finding(subject, item)
            other = row.bound if row.bound != subject.part.verdict.bound else ""
            yield _response(subject, row, answer._replace(other=other))
        if item.rule == _SHARED and "interrupted_ns" in item.evidence and _is_mostly(subject, item):
            yield _response(subject, *_of_finding(subject, item))  # no other number holds
    if subject.is_in_graphs:
        yield _see_into_graphs(subject)


def _is_mostly(subject: Subject, item: Finding) -> bool:
    """Whether it is of most of the window."""
    return item.saving_ns is not None and item.saving_ns[1] >= HALF * subject.window_ns


def _mend(subject: Subject, end: ProgramEnd) -> FirstResponse:
    """An error is the last that the program printed: what it did after that may not be what it is meant to do."""
    file = lacked_file(end.words)
    mended = f"{file} is there" if file else "it prints no error"
    command = f"boundby profile -- {subject.facts['program']}  # once {mended}"
    return FirstResponse(
        "unknown.error",
        f"Give the program {file}, and record again" if file else "Mend the error that it printed, and record again",
        because=f"what it did without {'the file' if file else 'what failed'} may not be what it is meant to do",
        needs="another run",
        caution="the program is meant to go on without it",
        command=command,
        code=command,
        is_search=True,
    )


def _of_patterns(subject: Subject, bounds: Sequence[str]) -> list[Answer]:
    """What this trace says of the remedies of these patterns, best first; where something outside sets the pace, only
    that: nothing else makes the program faster."""
    answers = [answer for bound in bounds for row in remedies.of_bound(bound) if (answer := _asked(subject, row))]
    if paced := [item for item in subject.findings if item.rule == "external-pace"]:
        answers = [_of_finding(subject, paced[0])]
    answers = [(row, subject.closed(row.bound, closed_answer)) for row, closed_answer in answers]
    answers = sorted(answers, key=lambda pair: _rank(pair[1]))
    return _surest_first([entry for entry in answers if _rank(entry[1])[0] != NOTHING] or answers[:1])


def _surest_first(told: list[Answer]) -> list[Answer]:
    """What is shown to save more at least than the first one at most is tried before it, unless it has to be bought."""
    if not told or told[0][1].saving_ns is None:
        return told
    most_ns = told[0][1].saving_ns[1]
    sure = [
        entry
        for entry in told
        if entry[1].is_shown and entry[1].rank < BOUGHT and entry[1].saving_ns and entry[1].saving_ns[0] > most_ns
    ]
    return [*sure, *(entry for entry in told if entry not in sure)]


def _others_first(told: list[Answer]) -> list[Answer]:
    """Answers in which a remedy that is never the first stands behind another one that saves anything."""
    if not told or not told[0][0].is_never_first:
        return told
    after = [row.is_never_first or _rank(answer)[0] >= BOUGHT for row, answer in told]
    if False not in after:
        return told
    at = after.index(False)
    return [told[at], *told[:at], *told[at + 1 :]]


def _of_one_call(subject: Subject, told: list[Answer]) -> list[Answer]:
    """Answers, with the first one and what asks for the same call, or for it with one argument more, as one: it makes
    that call, and saves no less than either."""
    if subject.is_part or not told or told[0][0].is_search:
        return told
    (row, first), *others = told
    call, saving_ns = first.code or subject.code(row), first.saving_ns
    numbered = [other for other in others if saving_ns and other[1].saving_ns and not other[0].is_never_first]
    alike = [other for other in numbered if _extends(_code(subject, other), call)]
    for other_row, other in alike:
        longer, title = _code(subject, (other_row, other)), first.title or row.words(subject.facts)
        if longer != call:
            also = other.title or other_row.words(subject.facts)
            title = f"{title}, and {also[:1].lower()}{also[1:]}"
        saving_ns = _at_least(saving_ns, other.saving_ns)
        cause = other_row.bound if other_row.bound != row.bound else first.other
        call, first = longer, first._replace(title=title, saving_ns=saving_ns, code=longer, other=cause)
    return [(row, first), *(other for other in others if other not in alike)]


def _code(subject: Subject, answer: Answer) -> str:
    row, told = answer
    return told.code or subject.code(row)


def _extends(code: str, call: str) -> bool:
    """Whether code is a call, or the same call with more arguments."""
    return bool(call) and "\n" not in code and (code == call or code.startswith(f"{call.removesuffix(')')}, "))


def _at_least(one: SavingNs | None, other: SavingNs | None) -> SavingNs | None:
    """What two changes that are made at once save: no less than either, at both ends."""
    if one is None or other is None:
        return one or other
    return max(one[0], other[0]), max(one[1], other[1])


def _asked(subject: Subject, row: Remedy) -> Answer | None:
    """What this trace says of a remedy; None where it does not apply."""
    if not row.is_for(subject.context.program):
        return None
    if row.key in COUNTED:
        answer = COUNTED[row.key](subject)
    else:
        answer = subject.found(row.key)
        if answer is None and row.scenario:
            answer = subject.replayed(row.scenario, row.because)
    return None if answer is None else (row, answer)


def _of_finding(subject: Subject, item: Finding) -> Answer:
    row = remedies.by_key().get(item.remedy) or Remedy(bound="", id=f"finding.{item.rule}", title=item.title)
    return row, subject.of_finding(item)


def _response(subject: Subject, row: Remedy, told: Told) -> FirstResponse:
    code = told.code or subject.code(row)
    return FirstResponse(
        id=row.key,
        title=told.title or row.words(subject.facts),
        saving_ns=None if told.is_guess else told.saving_ns,
        because=told.because,
        action=told.action,
        needs=row.needs,
        caution=row.caution,
        command=told.command or explaining(row.bound),
        is_search=row.is_search,
        code=code,
        where=told.where or (_line_of(subject, row.bound) if code else None),  # a bigger GPU is of no line
        other=told.other,
    )


def explaining(bound: str) -> str:
    """The command that explains a pattern, by the name that people read: ``boundby explain 'host code'``."""
    return f"boundby explain {shlex.quote(SHORT_LABEL[bound])}" if bound else ""


def _line_of(subject: Subject, bound: str) -> CodeLine | None:
    """The line from which most of a cause's time comes, where no finding names one."""
    if subject.is_part:
        return None
    context = subject.context
    return _lines(context).get(bound)


@once
def _lines(context: RuleContext) -> dict[str, CodeLine | None]:
    """Of each cause the line that holds most of it; nothing where the trace tells no lines."""
    if not has_sources(context.trace):
        return {}
    work, table, calls = device_work(context), context.operations, context.calls.of_operation
    kinds = {
        "gpu_compute": work.is_kernel & ~table.is_communication,
        "gpu_comm": work.is_kernel & table.is_communication,
        "gpu_copy": work.is_copy,
    }
    lines = {
        bound: line_of_calls(context, calls[chosen], work.duration_ns[chosen])
        for bound, chosen in ((bound, np.flatnonzero(mask)) for bound, mask in kinds.items())
    }
    lines["cuda_api"] = line_of_calls(context, calls[np.flatnonzero(work.is_kernel)])
    try:
        waits, pieces = waits_of(context), host_pieces(context)
    except CannotCheckError:
        return lines
    lines["sync"] = line_of_calls(context, waits.call, waits.held_ns)
    for bound, cause in (("cpu", Cause.CPU), ("host_blocked", Cause.HOST_BLOCKED), ("init", Cause.INIT)):
        rows = np.flatnonzero(pieces.cause == cause)
        lines[bound] = line_of_calls(context, pieces.call[rows], pieces.length_ns[rows])
    return lines


def _see_into_graphs(subject: Subject) -> FirstResponse:
    """Before anything is changed or bought: what most of the time is made of was not recorded."""
    graphs, row = subject.part.graphs, remedies.by_key()["record-graphs"]
    assert graphs is not None
    return FirstResponse(
        "gpu_compute.see-into-graphs",
        row.words({}),
        because=f"{percent(min(graphs.total_ns / subject.window_ns, 1.0))} of the time is in CUDA graphs recorded as"
        " one piece each: their kernels, copies and gaps are not on record",
        action="boundby profile records the kernels inside graphs (nsys profile --cuda-graph-trace=node)",
        needs="another run; it costs some time for each kernel",
        caution="the run cannot be repeated",
        command="boundby explain trace-graph-level",
        is_search=True,
        code=subject.code(row),
    )


def _harmless_waits(subject: Subject) -> Iterator[str]:
    """Waits that cost nothing."""
    chain, saved = wait_chain(subject.context), subject.context.saving(("sync",)) or (0, 0)
    devices = len(subject.context.timeline.devices)
    on_all = f"On all {devices} GPUs together, " if devices > 1 else ""
    for link in chain.harmless[:2]:
        does = "block" if link.waits > 1 else "blocks"
        held = f"{on_all}{plural(link.waits, f'{link.name} call')} {does} the host for {duration(link.held_ns)}"
        waits = "these waits" if link.waits > 1 else "this wait"
        alone = f"Removing {waits} alone saves nothing"
        if not chain.links and sum(saved) >= 2 * subject.context.least_ns:  # copies hold the host instead
            elsewhere = "the program would wait elsewhere instead, as in copies"
            yield f"{held}. {alone}: {elsewhere}"
            break
        meanwhile = "" if subject.part.time["sync"] >= subject.context.least_ns else ": the GPU works meanwhile"
        yield f"{held}. {alone}{meanwhile}"


def _mistimed(subject: Subject) -> Iterator[str]:
    """The first step of which a timer on the host would tell the wrong length."""
    for region in sorted(subject.context.regions, key=lambda region: (-region.share, region.path)):
        if not region.path or region.projected is None or region.instances < LEAST_INSTANCES:
            continue
        host_ns = region.host.median_ns  # where instances overlap on the device, each makes the program so much longer:
        device_ns = min(region.projected.median_ns, region.total_ns / region.devices_each / region.instances)
        if region.share >= TIMED_SHARE and host_ns and device_ns >= LIES * host_ns and device_ns >= LEAST_TIMED_NS:
            yield (
                f"if you time it by hand: without a synchronization a timer on the host around {region.path[-1]}"
                f" measures only its launches ({duration(host_ns)}); the GPU takes {duration(device_ns)} for it."
                " Measure with events, or boundby measure"
            )
            return


def of_devices(
    context: RuleContext,
    predictor: Predictor | None,
    findings: Sequence[Finding],
    devices: Sequence[DeviceReport],
    wholes: Wholes,
    options: str = "",
) -> tuple[DeviceReport, ...]:
    """Devices with their cards and first responses. ``options``: of commands, see `AnalysisOptions.arguments`."""
    made = []
    for position, device in enumerate(devices):
        subject = Subject(
            context=context,
            predictor=predictor,
            findings=tuple(findings),
            part=device,
            wholes=wholes,
            device=position,
            options=options,
        )
        cards, responses_of = responses(subject)
        verdict = _beside_others(_waiting(device.verdict, findings), responses_of)
        made.append(replace(device, cards=cards, first_responses=responses_of, verdict=verdict))
    return tuple(made)


def _beside_others(verdict: Verdict, responses_of: Sequence[FirstResponse]) -> Verdict:
    """No verdict is sure on a device that another process had for so long that it comes before all else."""
    is_first = any(response.id == _WHOSE for response in responses_of[:1])
    if not is_first or verdict.confidence != "high":
        return verdict
    reason = "another process or context had the GPU for half of the time or more"
    doubt = uncertainty("shared", steps=1, where=[verdict.bound], sentence=reason)
    uncertainties = (*verdict.uncertainties, doubt)
    return replace(verdict, confidence="medium", reasons=(*verdict.reasons, reason), uncertainties=uncertainties)


def _waiting(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """A verdict of a blocked host that says so where the best of what was found about its waits is input, or where work
    arrives at a pace that is set outside of the program."""
    if verdict.bound != "host_blocked" or verdict.waits_for:
        return verdict
    if any(item.rule == "external-pace" for item in findings):
        return replace(verdict, waits_for="source")
    waits = (item for item in findings if item.rule in (*INPUT, "host-wait", "host-phase") and item.saving_ns)
    best = max(waits, key=lambda item: item.saving_ns or (0, 0), default=None)
    return replace(verdict, waits_for="input") if best is not None and best.rule in INPUT else verdict


def of_regions(
    context: RuleContext, findings: Sequence[Finding], regions: Sequence[RegionReport], wholes: Wholes
) -> tuple[RegionReport, ...]:
    """Regions, those that matter with their cards and first responses."""
    named = [region for region in regions if region.path and region.share >= REGION_SHARE]
    worth = {id(region) for region in sorted(named, key=lambda region: (-region.share, region.path))[:MOST_REGIONS]}
    made = []
    for region in regions:
        if id(region) not in worth:
            made.append(region)
            continue
        depth = len(region.path)
        inside = tuple(item for item in findings if item.region and item.region[:depth] == region.path)
        subject = Subject(context=context, predictor=None, findings=inside, part=region, wholes=wholes)
        cards, responses_of = responses(subject)
        made.append(
            replace(region, cards=cards, first_responses=responses_of, verdict=_waiting(region.verdict, inside))
        )
    return tuple(made)


def of_threads(
    context: RuleContext, findings: Sequence[Finding], threads: Sequence[ThreadReport], no_gpu_work: NoGpuWork | None
) -> tuple[ThreadReport, ...]:
    """Host threads (in traces without GPU work) with what to do first: what mends the lack of GPU work, else the best
    findings, else what to capture."""
    if no_gpu_work is not None and no_gpu_work.response is not None:
        return tuple(replace(thread, first_responses=(no_gpu_work.response,)) for thread in threads)
    saving = [item for item in findings if item.saving_ns and item.severity != "note"]
    return tuple(_of_thread(context, saving, thread) for thread in threads)


def _of_thread(context: RuleContext, saving: Sequence[Finding], thread: ThreadReport) -> ThreadReport:
    best = [_plain(item, thread) for item in saving if thread.tid in _told_of(context, item)]
    best.sort(key=lambda response: -sum(response.saving_ns or (0, 0)))
    bounds = thread.verdict.mixed_of or (thread.verdict.bound,)
    if not best and thread.verdict.bound in patterns.KEYS:
        best = list(_unnumbered(context, bounds))
    cards = tuple(card_of_host(bound, thread) for bound in bounds if bound in patterns.KEYS)
    return replace(thread, cards=cards, first_responses=tuple(best[:MOST_OF_THREAD] or _capture(context)))


# As many responses a thread has.
MOST_OF_THREAD = A_FEW_LINES


def _unnumbered(context: RuleContext, bounds: Sequence[str]) -> Iterator[FirstResponse]:
    """What is usual for these bounds in this kind of program: one thread's time does not tell what it would save."""
    facts = common_facts(context.trace, context.program)
    for row in (row for bound in bounds for row in remedies.of_bound(bound)):
        code = row.code(context.program, facts, is_of_amd=context.trace.is_of_amd)
        if row.is_search and code:
            because = "no number: the recording does not name what takes the time"
            yield FirstResponse(
                row.key,
                row.words({}),
                because=because,
                needs=row.needs,
                caution=row.caution,
                command=explaining(row.bound),
                is_search=True,
                code=code,
            )


def _plain(item: Finding, thread: ThreadReport) -> FirstResponse:
    """A finding as a response of its own, which saves no more than the thread's time of its causes."""
    takes = rule.takes if (rule := rules().get(item.rule)) is not None else frozenset[str]()
    most_ns = sum(thread.time[cause] for cause in takes or thread.time)
    saving = None if item.saving_ns is None else ClaimedSaving(*item.saving_ns).within(ClaimedSaving(most_ns, most_ns))
    row = remedies.by_key().get(item.remedy)
    return FirstResponse(
        row.key if row is not None else f"finding.{item.rule}",
        item.change or item.title,
        None if saving is None else (saving.low_ns, saving.high_ns),
        because=item.title,
        action=item.advice[0] if item.advice else "",
        needs=row.needs if row is not None else "",
        caution=row.caution if row is not None else "",
        command=f"boundby explain {item.rule}",
        is_search=row is not None and row.is_search,
        code=item.code,
        where=item.where,
    )


@once
def _time_of_threads(context: RuleContext) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Of each thread of a trace without GPU work, its id and its time by region."""
    return [
        (
            context.trace.threads[account.thread].tid,
            group_sums(account.segments.region, account.segments.end_ns - account.segments.start_ns, len(context.tree)),
        )
        for account in context.timeline.threads
    ]


def _told_of(context: RuleContext, item: Finding) -> set[int]:
    """Ids of the threads that a finding in a trace without GPU work is about: its own (but of the process that others
    wait for), else those in whose time its region's is."""
    if isinstance(own := item.evidence.get("thread_ids"), list):
        late, trace = item.evidence.get("late_process"), context.trace
        pids = (trace.processes[process].pid for process in trace.process_of_thread.tolist())
        return {*own} - {thread.tid for thread, pid in zip(trace.threads, pids, strict=True) if pid == late}
    if not item.region:
        return {context.trace.threads[account.thread].tid for account in context.timeline.threads}
    inside = context.regions_under(item.region)
    held = {tid: int(by_region[inside].sum()) for tid, by_region in _time_of_threads(context)}
    return {tid for tid, ns in held.items() if ns and 2 * ns >= max(held.values())}


def _rank(told: Told) -> tuple[int, int]:
    """By how soon it is tried, then what saves most first, of which the part that is sure counts twice."""
    if told.saving_ns is None:
        return (told.rank if told.rank <= FOUND else UNNUMBERED), 0
    low, high = told.saving_ns
    return (told.rank, -(2 * low + high)) if high else (NOTHING, 0)


def _with_best_finding(subject: Subject, told: list[Answer], bounds: Sequence[str]) -> list[Answer]:
    """The best finding is told with the responses, whatever it is of: first, if it saves more than they. One of another
    cause leads where it saves more, at least and at most, than any of theirs; the headline then names both."""
    best = next((item for item in subject.findings if item.saving_ns and item.severity != "note"), None)
    if best is None or any(answer.rule == best.rule for _, answer in told):
        return told
    row, other = _of_finding(subject, best)
    other = subject.closed(row.bound, other)
    takes = rule.takes if (rule := rules().get(best.rule)) is not None else frozenset[str]()
    if takes and not takes & {*bounds}:
        cause = row.bound or next(key for key in patterns.KEYS if key in takes)
        other = other._replace(because=f"{other.because}. {_of_another_cause(subject, other, cause)}", other=cause)
    return [(row, other), *told] if _leads(best, other, told) else [*told[:1], (row, other), *told[1:]]


def _of_another_cause(subject: Subject, other: Told, cause: str) -> str:
    """How a finding of this cause goes with a verdict of another one, and with the bar, which may show less of it."""
    own_ns, is_not = subject.part.time.get(cause, 0), "is not the verdict's cause"
    name = f"{SHORT_LABEL[cause][0].upper()}{SHORT_LABEL[cause][1:]}"
    if other.saving_ns is None or other.saving_ns[0] - own_ns <= MARGIN * subject.window_ns:
        return f"{name} {is_not}"
    share = percent(own_ns / subject.window_ns)
    return f"{name} {is_not} ({share} in the bar), but without it later work would start earlier"


def _leads(best: Finding, other: Told, told: list[Answer]) -> bool:
    """Whether what the best finding says (``other``) stands before the responses of the pattern."""
    most = max((-_rank(answer)[1] for _, answer in told if _rank(answer)[0] < BOUGHT), default=0)
    # A search promises no more than its low end: what it finds may be nothing to change.
    own = [
        (answer.saving_ns[0], answer.saving_ns[not row.is_search])
        for row, answer in told
        if answer.saving_ns is not None and answer.rank < BOUGHT
    ]
    if other.other and (most > 0 or any(one.rank <= FOUND for _, one in told)):
        if other.saving_ns is None or not own:
            return False
        return all(one > max(rest) for one, *rest in zip(other.saving_ns, *own, strict=True))
    return weight(best) > most


def _without_pattern(subject: Subject) -> Iterable[FirstResponse]:
    """No cause stands out: what would tell more, and what there is to gain all the same."""
    part, facts = subject.part, subject.facts
    span = None if subject.is_part else span_of_work(subject.context.timeline.devices[subject.device])
    if span is not None and part.verdict.why_not is not None:
        command = f"boundby analyze {facts['report']} --window {span}"
        yield FirstResponse(
            "unknown.span",
            "Analyse only the span that holds the work",
            needs="nothing",
            caution="the gap itself is the question",
            command=command,
            code=command,
            is_search=True,
        )
    if part.coverage.unseen_ns and part.verdict.why_not is not None:
        because = "if nobody else does, this recording lost operations, so record again"
        yield _response(subject, remedies.by_key()[_WHOSE], Told(because, command="boundby explain shared-gpu"))
    saving = [item for item in subject.findings if item.saving_ns and item.severity != "note"]
    for item in saving[:2]:
        yield _response(subject, *_of_finding(subject, item))
    share = part.time["device_wait"] / subject.window_ns
    if share >= UNSEEN_SHARE:
        command = f"boundby analyze {facts['report']} -o timeline.pftrace{subject.options}"
        yield FirstResponse(
            "unknown.device-wait",
            "Look at what launched work waits for on the device",
            because=f"launched work waits {percent(share)} of the time: for a stream, an event, or a GPU that wakes up",
            needs="a timeline: Perfetto, or the Nsight Systems window",
            caution="no change to the program is known to remove it",
            command=command,
            code=command,
            is_search=True,
        )
    yield from _capture(subject.context)


def _capture(context: RuleContext) -> Iterator[FirstResponse]:
    """What the trace lacks, if that keeps anybody from telling more."""
    captured = context.trace.captured
    if context.trace.is_told_by_frames:
        yield from _profile_more(context)
        return
    lacking = [
        flag
        for flag, kind, is_there in (
            ("CUDA calls", "cuda", captured.cuda_api),
            ("OS calls", "osrt", captured.osrt),
            ("CPU scheduling", "cpu_scheduling", captured.cpu_scheduling),
        )
        if not is_there and kind not in context.trace.not_recorded  # the same again would not record it either
    ]
    yield from _capture_again(context, lacking, "under nsys", "")


def _capture_again(context: RuleContext, lacking: Sequence[str], how: str, options: str) -> Iterator[FirstResponse]:
    if lacking:
        program = common_facts(context.trace, context.program)["program"]
        yield FirstResponse(
            "unknown.capture",
            "Capture what this trace lacks, and analyse again",
            because=f"it was recorded without {' and without '.join(lacking)}",
            needs=f"another run {how}",
            caution="the run cannot be repeated",
            command=f"boundby profile {options}-- {program}",
            code=f"boundby profile {options}-- {program}",
            is_search=True,
        )


def _profile_more(context: RuleContext) -> Iterator[FirstResponse]:
    """What else PyTorch's profiler can record, and this trace lacks."""
    captured = context.trace.captured
    lacking = [
        setting
        for setting, is_there in (
            ("ProfilerActivity.CUDA", captured.kernels and captured.cuda_api),
            ("Python stacks (with_stack=True)", captured.python_stacks),
            (f"experimental_config={SYNC_EVENTS}", captured.sync or not captured.kernels or context.trace.is_of_amd),
        )
        if not is_there
    ]
    nsys = "" if context.trace.is_of_amd else ", or under nsys, which knows what the operating system does too"
    yield from _capture_again(
        context, lacking, f"under torch.profiler{nsys}", "--with torch --torch-record stacks,shapes "
    )
