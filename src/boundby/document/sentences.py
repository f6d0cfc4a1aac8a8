"""The words that a verdict, its findings and what a report lacks are told in, shared by every format. Plain text, no
markup.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from boundby.document.blocks import FOLD_BELOW, First, clean, file_name
from boundby.model import units
from boundby.model.causes import (
    BOUND_LABEL,
    BUSY_CAUSES,
    CAUSE_INFO,
    HOST_MEANING,
    MEANING,
    NOUN,
    SCENARIO_OF_CAUSE,
    SHORT_LABEL,
    scenario_label,
)
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HALF, HARDLY, MARGIN, NEARLY_ALL, NEGLIGIBLE, NOTABLE, RANKING, SMALL
from boundby.results.report import (
    NO_GPU_WORK,
    CodeLine,
    DeviceReport,
    Example,
    Finding,
    FirstResponse,
    NotChecked,
    Phase,
    RegionReport,
    Report,
    Steady,
    ThreadReport,
    Verdict,
    WhatIf,
)
from boundby.rules import remedies
from boundby.trace.facts import NO_GPU, PYTORCH, Captured, ProgramEnd, UnreadTable
from boundby.trace.vocabulary.last_words import INTERRUPTED, UNCLEAR
from boundby.trace.vocabulary.os import worth_naming
from boundby.trace.vocabulary.python import library_of

IN_RANGES = NEARLY_ALL  # of the host's time: ranges that cover less of it are told to do so
NOTHING = "Nothing to account for: the report holds no GPU work and no thread with NVTX ranges."
#: Under a table that holds regions which no annotation made.
FOUND = (
    "The program has no NVTX ranges that cover its launches: iterations and phases were found in what it launches, not "
    "annotated. --no-find leaves them out."
)

_UNRECORDED = "records are missing: the trace does not show whether the device works, or why it is idle"
WORTH_NAMING = HARDLY  # of the window: below it a saving would read "0 %"
# A share of the run below this is told to a tenth of a percent.
FINELY_BELOW = NEGLIGIBLE
# Of what happens once, and of the window: a smaller part of it is not named.
WORTH_A_NAME, MOST_PARTS = SMALL, A_FEW_LINES
# And of what comes on top of the bound's saving; and of the bound's saving, what may be chosen instead.
WORTH_ADDING, A_CHOICE = NEGLIGIBLE, HALF
#: A cause whose name is no noun, beside one whose name is.
_AS_NOUN = {"host_blocked": NOUN["host_blocked"]}
_OF_GPU = {cause.key for cause in BUSY_CAUSES}


class WaitsFor(Struct, frozen=True):
    """How a verdict's ``waits_for`` is told: in the headline, behind the cause's name in the legend of the bar, in a
    table, and to ``boundby explain`` (empty: by its cause)."""

    bound: str
    mostly: str
    cell: str
    topic: str = ""


WAITS_FOR = {
    "input": WaitsFor("waiting for input", "mostly for input", "input"),
    "ranks": WaitsFor("waiting for other ranks", "mostly for other ranks", "other ranks", "waiting for other ranks"),
    "pages": WaitsFor("bound by page migration", "mostly page faults", "page faults", "page migration"),
    "source": WaitsFor("paced by its source", "mostly for its source", "its source"),
    "fills": WaitsFor("bound by filling memory", "mostly filling memory", "fills"),
}


class Headline(Struct, frozen=True):
    """``GPU 0 is`` + ``SYNC BOUND`` + ``.``: formats stress the middle part, ``bound`` colours it."""

    before: str
    stressed: str
    after: str
    bound: str

    def __str__(self) -> str:
        return f"{self.before}{self.stressed}{self.after}"


def _any_of(subject: str, verb: str) -> str:
    """``GPU 0 is``, ``either GPU is``, ``any of the 3 threads is``: whose bound is not known."""
    if subject.startswith("Both "):
        return f"either {subject.removeprefix('Both ').removesuffix('s')} is"
    return f"any of the {subject.removeprefix('All ')} is" if subject.startswith("All ") else f"{subject} {verb}"


def headline(
    verdict: Verdict, subject: str, *, plural: bool = False, begin_with: str = "", of_host: bool = False
) -> Headline:
    """The verdict as the first sentence anybody reads. ``begin_with``: another cause, whose removal is tried first.
    ``of_host``: the subject is a thread, which is blocked itself; a GPU waits for a blocked host."""
    verb = "are" if plural else "is"
    if verdict.bound == "unknown" and verdict.why_not:
        return Headline("The trace ", "CANNOT TELL", f" what {_any_of(subject, verb)} bound by.", "unknown")
    if verdict.bound == "unknown":
        return Headline(f"{subject} {'have' if plural else 'has'} ", "NO DOMINANT CAUSE", ".", "unknown")
    if verdict.bound == "mixed" and verdict.mixed_of:
        first, second = (_AS_NOUN.get(cause, SHORT_LABEL.get(cause, cause)) for cause in verdict.mixed_of)
        return Headline(f"{subject} {verb} ", "MIXED", f": {first} and {second}.", "mixed")
    words = _bound_of_thread(verdict) if of_host else bound_label(verdict)
    end = f"; the best advice is on {NOUN[begin_with]}." if begin_with in NOUN else "."
    return Headline(f"{subject} {verb} ", words.upper(), end, verdict.bound)


def _bound_of_thread(verdict: Verdict) -> str:
    is_blocked = verdict.bound == "host_blocked" and not verdict.waits_for
    return SHORT_LABEL[verdict.bound] if is_blocked else bound_label(verdict)


class Lead(Struct, frozen=True):
    """What stands above everything where the program itself, or the recording, went wrong."""

    headline: Headline
    told: tuple[str, ...]
    lines: tuple[str, ...] = ()  # of the program's own output
    is_told: bool = True  # whether what the host's threads did says anything: not where CUDA calls are not on record


def lead(report: Report) -> Lead | None:
    """Of a report without GPU work: its diagnosis; None where the host's time is judged as it is."""
    why = report.trace.no_gpu_work
    if why is None or why.is_host_only:
        return None
    if report.trace.program is not None and why.diagnosis == "failed":
        return ended(report)
    words = NO_GPU_WORK[why.diagnosis]
    because = f": {clean(why.because).rstrip('.')}" if why.because else ""
    sentences = () if report.trace.program is None else (str(ended_headline(report.trace.program)),)
    return Lead(Headline("", words.upper(), f"{because}.", "unknown"), sentences, is_told=why.diagnosis == "unused")


def end_above(report: Report) -> Lead | None:
    """What stands above all else of how the program ended; None where `lead` says it, or nothing is to be said."""
    return ended(report) if lead(report) is None else None


def ended(report: Report) -> Lead | None:
    """How the program ended, where it failed or was interrupted, or printed an error and may have gone on."""
    end = report.trace.program
    if end is None:
        return None
    if end.ended == UNCLEAR:
        return Lead(ended_headline(end), (MAY_HAVE_CAUGHT,))
    why, rest = report.trace.no_gpu_work, "What follows is what it did until then"
    rest = "The recording is whole until then" if end.ended == INTERRUPTED else rest if report.devices else ""
    ended_when = when(end, why is not None and why.has_started_cuda)
    return Lead(ended_headline(end), (f"{ended_when}. {rest}.".removesuffix(" ."),), own_lines(end))


def when(end: ProgramEnd, has_started_cuda: bool = False) -> str:
    """``It ended after 17 ms, before any GPU work, with exit status 1``."""
    text = f"It ended after {units.duration(end.after_ns)}"
    if end.before_gpu_work:
        text += ", with no GPU work on record" if has_started_cuda else ", before any GPU work"
    return text if end.exit_code is None else f"{text}, with exit status {end.exit_code}"


def own_lines(end: ProgramEnd) -> tuple[str, ...]:
    """What the program wrote of its failure, beside the words that the headline has."""
    return () if end.ended == INTERRUPTED else tuple(clean(line) for line in end.lines if end.words not in line)


MAY_HAVE_CAUGHT = "No exit status is on record: the program may have ended because of it, or caught it and gone on."
_ENDED = {INTERRUPTED: (" was ", "INTERRUPTED"), UNCLEAR: (" ", "PRINTED AN ERROR")}


def ended_headline(end: ProgramEnd, who: str = "The program") -> Headline:
    """``The program FAILED: ModuleNotFoundError: No module named 'numpy' (train.py:6).``"""
    before, stressed = _ENDED.get(end.ended, (" ", "FAILED"))
    words = clean(end.words).rstrip(".")
    where = f" ({clean(end.where)})" if end.where and end.where not in words else ""
    return Headline(f"{who}{before}", stressed, f": {words}{where}." if words else f"{where}.", "unknown")


def not_busy(device: DeviceReport) -> str:
    """What the time is called in which a device is not seen to work: idle, unless records of work are missing there."""
    return "not seen busy" if lacks_records(device) else "idle"


def meanings(devices: Sequence[DeviceReport]) -> Mapping[str, str]:
    """What each cause says of the time of these devices."""
    return {**MEANING, "unattributed": _UNRECORDED} if any(map(lacks_records, devices)) else MEANING


def lacks_records(device: DeviceReport) -> bool:
    return device.coverage.unrecorded_ns >= max(WORTH_NAMING * device.window_ns, 1)


Left = Mapping[str, WhatIf]  # of a device, by the cause that is gone alone
WIDE = SMALL  # of the window: a prediction whose range is wider is told as a range


def left(report: Report, device: DeviceReport) -> Left:
    """What is predicted to be left of a device's window; empty where nothing can be."""
    predictions = {item.scenario: item for item in report.what_if if item.device == device.id}
    return {cause: predictions[scenario] for cause, scenario in SCENARIO_OF_CAUSE.items() if scenario in predictions}


def most_saved(verdict: Verdict, window_ns: int, left: Left) -> int | None:
    """What removing the bound alone would save: of a device as what-if predicts it; None: nothing can be said."""
    main, without_ns = _main(verdict), verdict.without_ns
    if verdict.saving_ns is None or (main not in left and without_ns is None):
        return verdict.saving_ns
    return window_ns - (left[main].predicted_ns if main in left else without_ns or 0)


def most_of_either(verdict: Verdict, window_ns: int, left: Left) -> int | None:
    """How long the window would be without the one of a mixed verdict's two causes that saves more."""
    named = [left[cause].predicted_ns for cause in verdict.mixed_of or () if cause in left]
    saving_ns = most_saved(verdict, window_ns, left)
    return saving_ns if saving_ns is None else max([saving_ns, *(window_ns - ns for ns in named)])


def _without(verdict: Verdict) -> str:
    """What is gone of a verdict's cause: ``copies``, ``fills of memory``."""
    return "fills of memory" if verdict.waits_for == "fills" else NOUN[_main(verdict)]


def _main(verdict: Verdict) -> str:
    return verdict.mixed_of[0] if verdict.bound == "mixed" and verdict.mixed_of else verdict.bound


def outlook(
    verdict: Verdict,
    window_ns: int,
    left: Left | None = None,
    time: Mapping[str, int] | None = None,
    claimed_ns: int = 0,
) -> str:
    """What removing the bound would save, and what would come next; empty where nothing can be said. ``left``: of a
    device; ``time``: its account, against which people hold what is told; ``claimed_ns``: what a change of the bound,
    told beside it, saves at most: more than one number here would contradict it."""
    main = _main(verdict)
    if main not in NOUN or not window_ns:
        return ""
    if verdict.decided_by == "account":
        return ""  # it knows no more than the shares in the bar, which the verdict's reason has
    saved = most_saved(verdict, window_ns, left or {})
    if saved is None:
        return ""
    if left is not None and not left and verdict.without_ns is None and verdict.saving_range_ns is not None:
        return _by_range(verdict.saving_range_ns, main, window_ns)
    left, time = left or {}, time or {}
    if window_ns - saved < NEGLIGIBLE * window_ns and verdict.bound_next not in NOUN and verdict.bound != "mixed":
        return ""  # without all there is, nothing is left
    item = left.get(main)
    saves = MiddleHalf(saved, saved, saved) if item is None else _saved(item)
    if saves.most_ns - saves.least_ns > HALF * window_ns and verdict.bound != "mixed":
        return _by_range((saves.least_ns, saves.most_ns), main, window_ns)
    told = (
        f"Without {_without(verdict)} these {units.duration(window_ns)} {_taking(saved, window_ns, item, claimed_ns)}"
    )
    then = _then(verdict, window_ns, left, saves.most_ns, time)
    if verdict.bound != "mixed" and time.get("unattributed", 0) > HALF * (window_ns - saved):
        then = "; most of what is left has no cause on record"  # whatever is the largest of what has one
    this = f"What removing {NOUN[main]} saves" if verdict.bound == "mixed" else "The saving"
    return f"{told}{then}.{_beyond(main, saves, window_ns, time, this)}"


def _beyond(cause: str, saves: MiddleHalf, window_ns: int, time: Mapping[str, int], this: str = "The saving") -> str:
    """Why a cause saves, or may save, more than its share of the bar; empty where no number that is told says so, or
    where that share is not known."""
    own_ns = time.get(cause)
    if own_ns is None or saves.told_ns <= own_ns or saves.most_told_ns(window_ns) - own_ns <= MARGIN * window_ns:
        return ""
    share = units.percent(own_ns / window_ns)
    exceeds = "exceeds" if saves.least_ns - own_ns > MARGIN * window_ns else "may exceed"
    return f" {this} {exceeds} the {share} in the bar, because later work would start earlier, too."


def _next_limit(following: str, verdict: Verdict, window_ns: int, saved_ns: int, time: Mapping[str, int]) -> str:
    """The next limit, and why it is hardly in the bar where that is so: of what is left without the bound's work, the
    idle time that it has now explains little, or it has no letter in the bar, since the GPU's work hides it. Empty
    where it comes after waits: the bar counts it as sync."""
    own_ns = time.get(following, 0)
    is_unseen = own_ns < min(SMALL * window_ns, window_ns - saved_ns - own_ns)
    if not (time and is_unseen and verdict.bound in _OF_GPU):
        return NOUN[following]
    is_after_waits = following not in _OF_GPU and time.get("sync", 0) >= SMALL * window_ns
    return "" if is_after_waits else f"{NOUN[following]}, now hidden behind the GPU's work"


def _then(verdict: Verdict, window_ns: int, left: Left, saved_ns: int, time: Mapping[str, int]) -> str:
    """What comes beside the bound, or after it."""
    if verdict.bound == "mixed" and (other := verdict.runner_up) in NOUN:
        then = left.get(other)
        then_ns = window_ns - then.predicted_ns if then else verdict.runner_up_saving_ns or 0
        return f"; without {NOUN[other]} they {_taking(then_ns, window_ns, then)}"
    if verdict.bound_next not in NOUN:
        return ""
    close = next((doubt.where for doubt in verdict.uncertainties if doubt.kind == "close"), ())
    if len(close) > 1 and verdict.bound_next in close:  # each of them may be it
        return f"; the next limit would be {' or '.join(NOUN[key] for key in close)}"
    following = _next_limit(verdict.bound_next, verdict, window_ns, saved_ns, time)
    return f"; the next limit would be {following}" if following else ""


def _by_range(saving_ns: tuple[int, int], main: str, window_ns: int) -> str:
    """Where no prediction can be trusted, since it hangs on delays that nothing explains: both ends."""
    low, high = (ns / window_ns for ns in saving_ns)
    bounds = units.percent_range(low, high) if low >= WORTH_NAMING else f"up to {units.percent(high)}"
    return f"Removing {NOUN[main]} would save {bounds} of the time; the trace does not show it more exactly."


NO_FIRST = First((), "", "")


def first(responses: Sequence[FirstResponse], window_ns: int) -> First:
    """The response that is tried first; nothing without any. Where its code is not known, the next step in words stands
    behind the reason."""
    if not responses:
        return NO_FIRST
    response = responses[0]
    code = tuple(filter(None, (clean(line).rstrip() for line in response.code.splitlines())))
    step = "" if code else clean(response.action).rstrip(".")
    because = " ".join(f"{part}." for part in (reason(response, window_ns), step) if part)
    is_in_headline = response.id == "no_gpu_work.failed"
    return First(code, because, "" if response.where is None or is_in_headline else place(response.where))


def reason(one: FirstResponse, window_ns: int) -> str:
    """``Remove the waits (saves 1.10-1.30 s, 20-24 %): nonzero waits 100 times``."""
    saves, title = saves_of(one, window_ns), clean(one.title)
    because = clean(one.because).rstrip(".")
    text = f"{title} ({saves})" if saves else title
    return f"{text}: {because}" if because and because != title else text


def place(line: CodeLine) -> str:
    """``train.py:84  loss = model(x)``, ``train.py:31 (step)``; of a function in C ``solve (binary app)``; where a
    stack holds a library's files alone, ``gpt_oss.py:293 (forward) of the library vllm, which your program uses``."""
    file = clean(line.file.rsplit("/", 1)[-1])
    if line.line is None:
        return f"{clean(line.function)} (binary {file})"
    function = f" ({clean(line.function)})" if line.function else ""
    if library := library_of(line.file):
        return f"{file}:{line.line}{function} of the library {clean(library)}, which your program uses"
    return f"{file}:{line.line}{f'  {clean(line.source)}' if line.source else function}"


def numbered(responses: Sequence[FirstResponse]) -> list[FirstResponse]:
    """Those that stand by themselves: the first, and all that have a number or are of a finding."""
    return [
        response
        for number, response in enumerate(responses)
        if not number or response.saving_ns is not None or response.where
    ]


def usual(responses: Sequence[FirstResponse]) -> str:
    """``Also usual, without a number here: prune the model; ...``: the others share one line."""
    alone = {id(response) for response in numbered(responses)}
    titles = [clean(response.title) for response in responses if id(response) not in alone]
    return f"Also usual, without a number here: {'; '.join(titles)}." if titles else ""


def of_other_bound(verdict: Verdict, responses: Sequence[FirstResponse]) -> FirstResponse | None:
    """What to do about the other one of the two causes that a mixed verdict names; None elsewhere."""
    first_of = {responses[0].id.partition(".")[0], responses[0].other} if responses else set[str]()
    others = [f"{bound}." for bound in verdict.mixed_of or () if bound not in first_of] * (verdict.bound == "mixed")
    saving = (
        response for response in responses[1:] if (response.saving_ns[1] if response.saving_ns else response.action)
    )
    return next((response for response in saving if any(map(response.id.startswith, others))), None)


def saves_of(response: FirstResponse, window_ns: int) -> str:
    """``saves 1.10-1.30 s, 20-24 %``, or who saves that time, if not this run; empty without a number."""
    saves = saving(response.saving_ns, window_ns)
    row = remedies.by_key().get(response.id)
    if saves and response.saving_ns is not None and row is not None and row.elsewhere:
        saves = saves_range(response.saving_ns)  # it is no part of this window
    return saves and (row.saves(saves) if row is not None else f"saves {saves}")


#: In the place of a saving: of a remedy that saves another run, and where no number can be told.
NONE_IN_THIS_RUN, UNKNOWN = "none in this run", "not known"


def saves_elsewhere(remedy: str) -> bool:
    """Whether a remedy, by its key, saves this run nothing, and another one something."""
    row = remedies.by_key().get(remedy)
    return row is not None and bool(row.elsewhere)


def saving(saving_ns: tuple[int, int] | None, window_ns: int) -> str:
    """``1.10-1.30 s, 20-24 %``; empty without a number."""
    if saving_ns is None or not window_ns:
        return ""
    low, high = saving_ns
    if units.is_nothing_beside(low, high):
        return f"up to {units.duration(high)}, {units.percent(high / window_ns)}" if high else "nothing here"
    return f"{units.duration_range(low, high)}, {units.percent_range(low / window_ns, high / window_ns)}"


def next_best(verdict: Verdict, window_ns: int, left: Left | None = None, time: Mapping[str, int] | None = None) -> str:
    """What removing the cause that saves most beside the bound would save alone, from the program as it ran (``left``:
    of a device); empty where it is less than half of what the bound saves, and so no choice (a mixed verdict has named
    it). Where the host waits for the device that may be more than the bound's saving, since either one gone ends the
    wait; the runner-up is then told of the program that no longer waits, as the verdict ranks it, as uncertain as it is
    alone. ``time``: the account, which may hold less of it than that saves."""
    left, main, runner_up = left or {}, _main(verdict), verdict.runner_up
    if not window_ns or runner_up not in NOUN or verdict.bound == "mixed" or verdict.decided_by == "account":
        return ""
    alone = {cause: _saved(item) for cause, item in left.items() if cause != main and cause in NOUN}
    then_ns = verdict.runner_up_saving_ns or 0
    then = alone.get(runner_up, MiddleHalf(then_ns, then_ns, then_ns)).moved(then_ns, window_ns)
    other = max(alone, key=lambda cause: alone[cause].told_ns, default=runner_up)
    saves, bound_ns = alone.get(other, then), most_saved(verdict, window_ns, left) or 0
    if verdict.bound == "sync" or saves.told_ns > bound_ns:
        more = f"After the syncs are gone, removing {NOUN[runner_up]} would save another {then.told(window_ns)}."
        return more if then.told_ns > WORTH_ADDING * window_ns else ""
    if saves.told_ns <= max(A_CHOICE * bound_ns, WORTH_NAMING * window_ns):
        return ""
    what, saved = NOUN[other], saves.told(window_ns)
    why = _beyond(other, saves, window_ns, time or {})
    return f"Removing {what} instead of {_without(verdict)} would save {saved}.{why}"


def change(saving_ns: int, window_ns: int) -> str:
    """``-24 %`` of the window."""
    return units.change(-saving_ns / window_ns if window_ns else 0.0)


class MiddleHalf(Struct, frozen=True):
    """A saving: as told, at least, and at most."""

    told_ns: int
    least_ns: int
    most_ns: int

    def moved(self, told_ns: int, window_ns: int) -> MiddleHalf:
        """Another saving that is as uncertain."""
        least_ns, most_ns = told_ns - self.told_ns + self.least_ns, told_ns - self.told_ns + self.most_ns
        return MiddleHalf(told_ns, max(least_ns, 0), min(max(most_ns, told_ns), window_ns))

    def most_told_ns(self, window_ns: int) -> int:
        """The one number that is told of it, or the larger one of two."""
        return self.told_ns if self.most_ns - self.least_ns <= WIDE * window_ns else self.most_ns

    def told(self, window_ns: int) -> str:
        """``24 %`` of the window, or ``6-62 %`` where one number would say more than the trace does."""
        if self.most_told_ns(window_ns) == self.told_ns:
            return units.percent(self.told_ns / window_ns)
        least, most = (units.percent(ns / window_ns) for ns in (self.least_ns, self.most_ns))
        return f"up to {most}" if self.least_ns < WORTH_NAMING * window_ns else f"{least.removesuffix(' %')}-{most}"


def _saved(item: WhatIf) -> MiddleHalf:
    return MiddleHalf(item.saved_ns, *item.saving_ns)


def predicted_length(item: WhatIf) -> str:
    """``4.12 s``, or ``4.30-10.7 s``."""
    return units.duration_range(*item.ends_ns) if item.is_wide else units.duration(item.predicted_ns)


def predicted_change(item: WhatIf) -> str:
    """``-24 %`` of the window, by a prediction, or ``-62 to -6 %``."""
    if not item.is_wide:
        return change(item.saved_ns, item.baseline_ns)
    return _change_of_range(item)


def _change_of_range(item: WhatIf) -> str:
    least, most = (change(ns, item.baseline_ns) for ns in item.saving_ns)
    return most if least == most else f"{most.removesuffix(' %')} to {least}"  # as the times: the shorter first


def unsure_of(verdict: Verdict, left: Left) -> str:
    """What leaves most open of what the bound saves, where that is of low confidence under a verdict that is not; empty
    elsewhere."""
    named = (left[cause] for cause in verdict.mixed_of or (verdict.bound,) if cause in left)
    low = [item for item in named if item.low_ns is not None and item.confidence == "low"]
    if verdict.confidence == "low" or not low:
        return ""
    why = _why_open(low[0])
    return f"; in the savings: low{f' ({why})' if why else ''}"


def _why_open(item: WhatIf) -> str:
    """What lowers the confidence in a prediction most, or leaves most open of it; empty where only the model's own
    error does, which every prediction has."""
    doubts = (doubt for doubt in item.uncertainties if doubt.kind != "model")
    worst = max(doubts, key=lambda doubt: (doubt.steps, doubt.low_ns + doubt.high_ns), default=None)
    return clean(worst.sentence) if worst else ""


def _taking(saving_ns: int, window_ns: int, item: WhatIf | None = None, claimed_ns: int = 0) -> str:
    """``would be 10.7 s (-6.4 %)``, ``would be 4.3-10.7 s (-62 to -6.4 %)``."""
    if item is not None and (item.is_wide or claimed_ns > max(saving_ns, 0)):
        return f"would be {units.duration_range(*item.ends_ns)} ({_change_of_range(item)})"
    if saving_ns <= 0:
        return "would be as long"
    return f"would be {units.duration(window_ns - saving_ns)} ({change(saving_ns, window_ns)})"


def confidence(verdict: Verdict, left: Left | None = None) -> str:
    """``Confidence in the verdict: medium (CPU scheduling was not captured); in the savings: low (another process seems
    to share the GPU).``; empty where there is no verdict."""
    if verdict.why_not is not None:  # nothing to be sure of
        return ""
    why = f" ({_reasons(verdict)})" if verdict.reasons else ""
    return f"Confidence in the verdict: {verdict.confidence}{why}{unsure_of(verdict, left or {})}."


def why_unsure(verdict: Verdict, of: str) -> str:
    """``Why the confidence is medium (GPU 0): CPU scheduling was not captured.``: of one of several, whose confidence
    stands beside its verdict; empty without a reason."""
    if verdict.why_not is not None or not verdict.reasons:
        return ""
    return f"Why the confidence is {verdict.confidence} ({of}): {_reasons(verdict)}."


def _reasons(verdict: Verdict) -> str:
    return "; ".join(clean(reason).rstrip(".") for reason in verdict.reasons)


def shared(report: Report, device: DeviceReport) -> str:
    """``Another process or context shares GPU 0 and had it for 4.34 s of this time: kernels look slower than they are,
    and savings may be too high.``; empty where none is known to."""
    taken = [item.evidence.get("interrupted_ns") for item in report.findings if item.evidence.get("gpu") == device.id]
    lost_ns = max((ns for ns in taken if isinstance(ns, int)), default=0)
    if not lost_ns:
        return ""
    had = f"Another process or context shares {gpu(device)} and had it for {units.duration(lost_ns)} of this time"
    return f"{had}: kernels look slower than they are, and savings may be too high."


def phases(device: DeviceReport) -> str:
    """``The bound changes 1.40 s into the window: sync bound before, compute bound after. ...``; empty where none
    does."""
    if len(device.phases) < 2:
        return ""
    first, second = device.phases[0], device.phases[-1]
    labels = {**BOUND_LABEL, device.verdict.bound: bound_label(device.verdict), "unknown": "no verdict"}
    first_bound, other = (labels.get(phase.bound, phase.bound) for phase in (first, second))
    into = units.duration(second.window.start_ns - device.window.start_ns)
    at, then = f"{into} into the window", f"--window {units.instant(second.window.start_ns, device.window_ns)}:"
    is_half = abs(_length(first) - _length(second)) <= 1
    if first_bound == other:
        parts = "both halves" if is_half else "both parts"
        return f"The program is not of one piece: {first_bound} in {parts} (which meet {at}), but not over the whole."
    if is_half:  # it may change anywhere in them
        return f"The bound changes: {first_bound} in the first half (until {at}), {other} in the second."
    told = f"The bound changes {at}: {first_bound} before, {other} after."
    is_first = any(then in response.code for response in device.first_responses[:1])  # its command says so
    return told if is_first else f"{told} For the rest alone, add '{then}'."


def steady(device: DeviceReport, width: int | None = None, first_steps: int = 0) -> str:
    """``Steady: 26.1 ms a step (median), compute bound. One-time work: 5.88 s, 64 % (uploads 4.46 s, host code 1.04
    s).``; empty where the window holds no one-time part that counts. ``width``: names as few parts as fit in it.
    ``first_steps``: as many slower steps come before the steady ones, and count as one-time work."""
    if not device.one_time:
        return ""
    once_ns, found = sum(part.ns for part in device.one_time), device.steady
    parts = [part for part in device.one_time if part.name != "other" and part.ns >= WORTH_A_NAME * once_ns]
    is_one = bool(parts) and parts[0].ns >= (1 - HARDLY) * once_ns
    named = [f"{clean(part.name)} {units.duration(part.ns)}" for part in parts[:MOST_PARTS]]
    named = [clean(parts[0].name)] if is_one else named
    after = _after(found, device) if found else ""
    share = units.percent(once_ns / device.window_ns)
    work = "One-time work"
    if found is not None and first_steps:
        number = f"{first_steps:,} " if first_steps > 1 else ""
        work += f" and the first {number}{_step_word(found)}{'s' * (first_steps > 1)}"
    once = f"{_pace(found) if found else ''}{work}: {units.duration(once_ns)}, {share}"
    variants = [f"{once} ({', '.join(named[:most])}){after}." for most in range(len(named), 0, -1)]
    variants += [f"{once} ({one})." for one in named[:1]] + [f"{once}."]
    return next((text for text in variants if width is None or len(text) <= width), variants[-1])


def _after(found: Steady, device: DeviceReport) -> str:
    """`` before the steps and 106 ms after them``, where enough of the window comes after them."""
    after_ns = device.window.end_ns - found.window.end_ns
    if after_ns < WORTH_A_NAME * device.window_ns:
        return ""
    return f" before the {_step_word(found)}s and {units.duration(after_ns)} after them"


def _pace(found: Steady) -> str:
    """``Steady: 26.1 ms a step (median), compute bound. ``; where no step is known, how long it is in all."""
    bound = "" if found.bound in ("unknown", "hidden") else f", {bound_phrase(found.bound)}"
    if found.step_ns is None:
        return f"Steady: the last {units.duration(found.window.end_ns - found.window.start_ns)}{bound}. "
    word = _step_word(found)
    return f"Steady: {units.duration(found.step_ns)} {'an' if word == 'iteration' else 'a'} {word} (median){bound}. "


def _step_word(found: Steady) -> str:
    return "iteration" if (found.region or ("",))[-1].startswith("iteration") else "step"


def _length(phase: Phase) -> int:
    return phase.window.end_ns - phase.window.start_ns


def because(verdict: Verdict) -> str:
    """``Why: 13 syncs a step block 13 ms.``: the numbers that decide, whatever clause they come in."""
    if verdict.why_not:
        return f"Why not: {clean(verdict.why_not).rstrip('.')}."
    text = clean(verdict.because).rstrip(".")
    return f"Why: {text}." if text else ""


def is_not_by_size(verdict: Verdict, time: Mapping[str, int]) -> bool:
    """Whether another cause than the bound plainly takes more of this time."""
    return verdict.bound in time and time[verdict.bound] + WIDE * sum(time.values()) < max(time.values())


def bound_label(verdict: Verdict) -> str:
    """``sync bound``, ``waiting for input``: what the headline calls it, without what a mixed one is of."""
    waits = WAITS_FOR.get(verdict.waits_for)
    return waits.bound if waits else BOUND_LABEL.get(verdict.bound, clean(verdict.bound))


def bound_word(verdict: Verdict) -> str:
    """The verdict in a table cell: ``sync``, ``sync + api``, ``other ranks``, ``hidden``."""
    if verdict.bound == "mixed" and verdict.mixed_of:
        return " + ".join(SHORT_LABEL.get(cause, cause) for cause in verdict.mixed_of)
    if verdict.why_not:
        return "cannot tell"
    waits = WAITS_FOR.get(verdict.waits_for)
    if waits is not None:
        return waits.cell
    return "-" if verdict.bound == "unknown" else SHORT_LABEL.get(verdict.bound, verdict.bound)


def topic(verdict: Verdict) -> str:
    """What ``boundby explain`` is asked of the verdict: its name as people read it; empty where there is none."""
    if verdict.bound in ("hidden", "unknown", "mixed"):
        return ""
    waits = WAITS_FOR.get(verdict.waits_for)
    return shlex.quote((waits.topic if waits else "") or SHORT_LABEL[verdict.bound])


def each(region: RegionReport) -> str:
    """The account's time per instance, on one device; in parentheses the host's, where the account holds none of it."""
    return each_time(region.total_ns / region.devices_each, region.host.total_ns, region.instances)


def each_ns(region: RegionReport) -> float:
    """Mean time of an instance of a region, ns."""
    return (region.total_ns / region.devices_each or region.host.total_ns) / max(region.instances, 1)


def each_time(total_ns: float, host_ns: float, instances: int) -> str:
    """As `each`, of figures."""
    if not instances:
        return ""
    return units.duration(total_ns / instances) if total_ns else f"({units.duration(host_ns / instances)})"


def what_ran(report: Report) -> str:
    """The command, else the name of the report's file."""
    return clean(report.trace.command) if report.trace.command else file_name(report.trace.path)


def command(report: Report, *options: str) -> str:
    """``boundby analyze run.sqlite --window 1:2 --full``: what looks at the same part of the same trace."""
    asked = report.analysis
    words = ["boundby", "analyze", report.trace.path]
    words += ["--window", asked.window] if asked.window != "gpu" else []
    words += ["--skip-first", f"{asked.skip_first}"] if asked.skip_first else []
    words += [word for number in asked.device_ids for word in ("--device", f"{number}")]
    words += [word for number in asked.process_ids for word in ("--process", f"{number}")]
    return clean(shlex.join([*words, *options]))


def circumstances(report: Report, *, names_instants: bool = True) -> tuple[str, ...]:
    """File, what part of it, GPU, nsys version and window, each a short phrase. ``names_instants``: of the recording
    below them; then what they count from."""
    parts = [file_name(report.trace.path)] if report.trace.command else []
    parts += ["only the last part of the report (--max-memory)"] if report.trace.is_part else []
    parts += gpus([device.name for device in report.devices]) or [_no_gpus(report)]
    if report.trace.nsys_version:
        parts.append(f"nsys {clean(report.trace.nsys_version)}")
    elif report.trace.exported_by:
        parts.append(f"exported by nsys {clean(report.trace.exported_by)}")
    parts.append(window(report))
    if report.analysis.region_glob:
        parts.append(f"regions {clean(report.analysis.region_glob)}")
    parts.append(instants_count_from(report) if names_instants else "")
    return tuple(part for part in parts if part)


def instants_count_from(report: Report) -> str:
    """``times of --window count from the start of the recording; its first event comes at 207 ms``; empty where these
    two are the same to a reader."""
    if not report.devices:
        return ""
    longest = _on_record(report)[0]
    begins_ns = longest.window.start_ns + longest.clock_shift_ns - longest.startup_ns
    if begins_ns < WORTH_NAMING * longest.window_ns:
        return ""
    first = units.duration(begins_ns)
    return f"times of --window count from the start of the recording; its first event comes at {first}"


_NO_NAME = expression(r"(?:GPU \d+)?")


def gpus(names: Sequence[str]) -> list[str]:
    """``8 x NVIDIA A100``: each name once, with how many there are. A number is no name."""
    counts = Counter("GPU (name not recorded)" if _NO_NAME.fullmatch(name) else clean(name) for name in names)
    return [f"{number} x {name}" if number > 1 else name for name, number in counts.items()]


def _no_gpus(report: Report) -> str:
    why = report.trace.no_gpu_work
    is_none = why is not None and (
        why.diagnosis == "unused" or (why.diagnosis == "failed" and not why.has_started_cuda)
    )
    is_unknown = why is not None and why.diagnosis in ("not_recorded", "inside_driver")
    why_not_recorded = report.trace.not_recorded.get("cuda")
    is_unknown = not is_none and (is_unknown or bool(why_not_recorded))
    if why_not_recorded == NO_GPU:
        return NO_GPU
    return "the GPU's work is not on record" if is_unknown else f"no GPU work{'' if is_none else ' on record'}"


def window(report: Report) -> str:
    """The span that was analysed, what share of the run it is, and what lies before and after it:
    ``analysed 146 ms of the 40.8 s on record (0.4 %); 2.4 s before, 38.3 s after``. A recording may hold less than the
    run: what its first and last event enclose is on record."""
    if not report.devices:
        return _host_time(report)
    longest, around, run_ns = _on_record(report)
    text = units.duration(longest.window_ns)
    chosen = report.analysis.window
    if chosen not in ("gpu", "all"):
        text += f", window {clean(chosen)},"
    outside = _around_window(longest, around, run_ns, is_whole=chosen == "gpu")
    lacks = chosen == "gpu" and lacks_records(longest)
    lacking = f"{units.duration(longest.coverage.unrecorded_ns)} of this without records" if lacks else ""
    if outside:
        run = units.duration(run_ns) if lacks else f"the {units.duration(run_ns)} on record"
        text = f"analysed {text} of {run} ({_finely(longest.window_ns / run_ns)})"
    elif not lacks:
        text += f"{'' if text.endswith(',') else ','} all that was recorded"
    text = ", ".join(filter(None, (text, lacking)))
    return "; ".join(filter(None, (text, ", ".join(outside))))


def _around_window(longest: DeviceReport, around: Mapping[str, int], run_ns: int, *, is_whole: bool) -> list[str]:
    """``2.4 s before``, ``38.3 s after``: what is worth naming. ``is_whole``: no other window was asked for."""
    named = [f"{units.duration(ns)} {where}" for where, ns in around.items() if ns >= WORTH_NAMING * run_ns]
    lost_ns = longest.coverage.before_ns
    if named and is_whole and lost_ns >= WORTH_NAMING * run_ns:
        named[0] += f" (in {units.duration(lost_ns)} of it the GPU's work was not recorded)"
    return named


def _on_record(report: Report) -> tuple[DeviceReport, Mapping[str, int], int]:
    """The device with the longest window, the time on record before and after that, and all three together, ns."""
    longest = max(report.devices, key=lambda device: (device.window_ns, -device.id))
    around = {"before": longest.startup_ns, "after": longest.shutdown_ns}
    return longest, around, longest.window_ns + sum(around.values())


def elsewhere(report: Report) -> str:
    """``Only 0.4 % is analysed; --window all analyses everything.``; empty where it
    is more than a small part, or chosen by the user."""
    longest, _, run_ns = _on_record(report)
    if report.analysis.window != "gpu" or report.trace.source == PYTORCH or longest.window_ns > NOTABLE * run_ns:
        return ""
    share = _finely(longest.window_ns / run_ns)
    return f"Only {share} is analysed; --window all analyses everything."


def _finely(share: float) -> str:
    return units.percent(share, digits=1 if share < FINELY_BELOW else 0)


def _host_time(report: Report) -> str:
    """How much host time is on record, and how much of it was judged, in a trace without GPU work."""
    length = report.trace.duration_ns
    if length is None:
        return ""
    whole, times = f"{units.duration(length)} of host time", [thread.total_ns for thread in report.threads]
    judged = max(times, default=0)
    if not 0 < judged < IN_RANGES * length:
        return whole
    if not report.trace.captured.nvtx:
        return whole if lead(report) is not None else f"{whole}, {units.duration(judged)} of it analysed"
    if len(times) > 1:
        return f"{whole}; annotated ranges of {len(times)} threads take {units.duration(sum(times))} together"
    share = _finely(judged / length)
    return f"{whole}; percentages are of the {units.duration(judged)} ({share}) in annotated ranges"


def gpu(device: DeviceReport) -> str:
    return f"GPU {device.id}"


def thread(report: ThreadReport) -> str:
    return f"Thread {clean(report.name)} ({report.tid})" if report.name else f"Thread {report.tid}"


def blocked_on(times: Mapping[str, int]) -> str:
    """``Blocked on: lock 1.20 s, file 300 ms.``, longest first, without what hardly counts."""
    told = ", ".join(f"{clean(kind)} {units.duration(times[kind])}" for kind in worth_naming(times))
    return f"Blocked on: {told}." if told else ""


def bound_phrase(bound: str) -> str:
    """``synchronization bound``, for the end of a sentence."""
    return BOUND_LABEL.get(bound, clean(bound))


def no_predictions(report: Report) -> str:
    """Why nothing is predicted; empty where something is, or nothing is there to replay."""
    return untrusted(report.unreliable) if report.unreliable else ""


def untrusted(why: str) -> str:
    """``No predictions: 30 % of ...``, without a full stop."""
    return f"No predictions: {clean(why)}"


NOTABLE_CHANGE = NEGLIGIBLE  # scenarios that change the window by less are not worth a line


def notable_scenarios(report: Report) -> list[tuple[str, WhatIf]]:
    """Predictions worth showing to people, with a label; the device is named where there are several."""
    return [
        (
            (f"GPU {item.device} " if len(report.devices) > 1 else "") + scenario_label(item.scenario),
            item,
        )
        for item in report.what_if
        if abs(item.saved_ns) >= NOTABLE_CHANGE * item.baseline_ns
    ]


# Words that a reader may not know: the causes that an account shows, and those that a text uses.


class Term(Struct, frozen=True):
    """``pattern`` finds the word in a text, in any of its forms."""

    word: str
    pattern: str
    meaning: str
    is_of_gpu: bool = True  # only GPU work brings it up


TERMS = (
    Term("replayed", r"\breplay", "calls and GPU work run again as they depend on each other, with one cost removed"),
    Term("projected", r"\bprojected\b", "of a range: from the first start to the last end of the GPU work it launched"),
    Term("pageable", r"\bpageable\b", "ordinary host memory: copied through a buffer while the host waits"),
    Term("pinned", r"\bpinned\b", "host memory that stays in place: the GPU copies it by itself, beside other work"),
    Term(
        "poll", r"\bpoll\b", "a system call that waits for another process, a file or a socket to have something", False
    ),
    Term("(no range)", r"\(no range\)", "time outside of all ranges", False),
    Term(
        "(found)",
        r"\(found\)",
        "regions that boundby found by what repeats in the launches: the program does not name them",
    ),
)


def words(report: Report, text: str) -> list[tuple[str, str, str]]:
    """(letter, word, meaning) of the causes that show in any account of the report, and of the terms in a text."""
    accounts = [*(device.time for device in report.devices), *(thread.time for thread in report.threads)]
    by_cause = meanings(report.devices) if report.devices else HOST_MEANING
    causes = [
        (cause.letter, cause.label, by_cause.get(cause.key, ""))
        for cause in CAUSE_INFO.values()
        if any(time.get(cause.key, 0) > FOLD_BELOW * sum(time.values()) for time in accounts)
    ]
    terms = [(" ", term.word, term.meaning) for term in TERMS if re.search(term.pattern, text)]
    return [entry for entry in (*causes, *terms) if entry[2]]


# What is said about findings, in every format: where the worst instances are, what could not be checked, and that
# nothing was found. Plain text, no markup.

#: More would hide the best ones; the rest is counted, and shown where all were asked for.
MOST_FINDINGS = RANKING
NOTE = "note"


def shown_findings(report: Report) -> tuple[Finding, ...]:
    """The findings that people see at once: the best ones, and every note."""
    if report.analysis.show_all:
        return report.findings
    saving = [item for item in report.findings if item.severity != NOTE][:MOST_FINDINGS]
    return (*saving, *(item for item in report.findings if item.severity == NOTE))


def saves(finding: Finding) -> str:
    """``1.10-1.30 s``; ``up to 1.30 s`` where the low end is nothing; empty where nothing is told, or this run
    saves nothing."""
    return "" if finding.saving_ns is None or saves_elsewhere(finding.remedy) else saves_range(finding.saving_ns)


def priority(finding: Finding) -> str:
    """``high priority``; ``note``."""
    return finding.severity if finding.severity == NOTE else f"{finding.severity} priority"


def worth(finding: Finding) -> str:
    """``saves 1.10-1.30 s``, ``each later run saves 802 ms``; empty where nothing is told."""
    if finding.saving_ns is None:
        return ""
    row = remedies.by_key().get(finding.remedy) if saves_elsewhere(finding.remedy) else None
    told = saves_range(finding.saving_ns)
    return f"saves {told}" if row is None else row.saves(told)


def is_told_by(response: FirstResponse, finding: Finding) -> bool:
    """Whether a response is a finding's, or says what the finding leaves open: what its change is worth."""
    if response.command == f"boundby explain {finding.rule}" and response.because.startswith(finding.title):
        return True
    if finding.code and finding.code == response.code and not response.is_search:
        return True  # the same change, whatever else speaks for it
    return finding.remedy == response.id and finding.saving_ns is None and finding.severity != NOTE


def saves_range(saving_ns: tuple[int, int]) -> str:
    """A saving (low, high), as ``saves`` tells it."""
    low, high = saving_ns
    is_most = high > 0 and units.is_nothing_beside(low, high)
    return f"up to {units.duration(high)}" if is_most else units.duration_range(low, high)


def worst_instances(examples: Sequence[Example]) -> str:
    """``worst 3.62 ms at 3.668803 s, 3.60 ms at 9.537906 s: cudaMemcpyAsync in aten::nonzero``; empty without any."""
    parts: list[str] = []
    for number, example in enumerate(examples):
        instant = f"{units.duration(example.duration_ns)} at {example.start_ns / 1e9:.6f} s"
        is_last_alike = number + 1 == len(examples) or examples[number + 1].what != example.what
        parts.append(f"{instant}: {clean(example.what)}" if is_last_alike else instant)
    return f"worst {', '.join(parts)}" if parts else ""


#: Of the window: a rule tells of what saves so much, and so the sentence about none speaks of it.
WORTH_TELLING = NEGLIGIBLE


def nothing_found(report: Report, *, is_told_above: bool = False, notes: int | None = None) -> str:
    """``No finding: none of 40 checks knows a change that would save 1 % of the time.``; empty where something was
    found, or nobody looked. ``is_told_above``: something stands on top of the screen, and all that was found.
    ``notes``: so many follow, where others are told elsewhere."""
    findings_count = count_findings(report, notes=False)
    notes = count_findings(report, notes=True) if notes is None else notes
    if not report.analysis.rules_checked or (findings_count and not is_told_above):
        return ""
    glob = report.analysis.region_glob
    where = f" in regions {clean(glob)}" if glob is not None else ""  # others may have some
    rules = units.plural(report.analysis.rules_checked, "check")
    if findings_count or is_told_above:
        return f"No other finding{where} ({rules}){_notes(notes)}."
    if notes:
        return f"No finding{where} worth {_least_told(report)} of the time ({rules}){_notes(notes)}."
    return _nothing_at_all(report, where, rules)


def _nothing_at_all(report: Report, where: str, rules: str) -> str:
    """What that says of a report without findings and notes."""
    if not report.devices:
        return f"No finding{where} ({rules} of the host's threads; the others look for what keeps a GPU waiting)."
    if where:
        return f"No finding{where} ({rules}, of the whole program)."
    if any(device.first_responses for device in report.devices):
        return f"No other finding ({rules})."
    return f"No finding: none of {rules} knows a change that would save {_least_told(report)} of the time."


def _notes(number: int) -> str:
    return f"; {units.plural(number, 'note')}" if number else ""


def _least_told(report: Report) -> str:
    return "0.1 %" if report.analysis.show_all else "1 %"


def count_findings(report: Report, *, notes: bool) -> int:
    """How many notes there are, or findings that are none; shown or not."""
    return sum((item.severity == NOTE) == notes for item in report.findings)


def findings_heading(report: Report) -> str:
    """``Findings (7), notes (2)``: of all, shown or not."""
    counts = (("findings", count_findings(report, notes=False)), ("notes", count_findings(report, notes=True)))
    return ", ".join(f"{word} ({number})" for word, number in counts if number).capitalize()


def left_out(report: Report) -> str:
    """How many findings are not shown, and how to see them."""
    more = len(report.findings) - len(shown_findings(report))
    return f"{units.plural(more, 'smaller finding')} not shown; --all shows every one." if more else ""


def could_not_check(items: Sequence[NotChecked], *, every: bool = False) -> list[tuple[str, str]]:
    """(reason, rules) of what could matter (or of everything), rules of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for item in items:
        if every or item.could_matter:
            by_reason.setdefault(clean(item.reason).rstrip("."), []).append(clean(item.rule))
    return [(reason, ", ".join(sorted(rules))) for reason, rules in by_reason.items()]


# What a report does not hold, what that costs, and the nsys flag that would have captured it.


NVTX_RANGES = "NVTX ranges"


class NotCaptured(Struct, frozen=True):
    kind: str
    cost: str  # what cannot be told without it
    flag: str  # of nsys profile, or what to give to torch.profiler
    reason: str = ""  # why it is not there although no flag is missing; empty: none is known

    @property
    def remedy(self) -> str:
        """The reason, where one is known, else what captures it: never a flag that was given."""
        return self.reason or self.flag


def captured_by(report: Report) -> str:
    """What captures more: it stands over what `not_captured` tells to give to it."""
    return "torch.profiler.profile" if report.trace.source == PYTORCH else "nsys profile"


def not_captured(report: Report) -> tuple[NotCaptured, ...]:
    """The gaps that cost certainty.

    nsys writes no table for what did not happen, so kinds whose absence is as likely a fact about the program
    (copies, syncs, CUDA graphs) are not listed.
    """
    if report.trace.source == PYTORCH:
        return tuple(_not_in_pytorch_trace(report))
    return tuple(_not_in_nsys_report(report))


def not_read(report: Report) -> str:
    """``NET_NIC_METRIC, 12,400 rows; ANALYSIS_FILE, 3 rows``: what the report holds and boundby does not read."""
    return "; ".join(f"{clean(table.name)}, {_rows(table)}" for table in report.trace.not_read)


def _rows(table: UnreadTable) -> str:
    return "rows that cannot be counted" if table.rows is None else units.plural(table.rows, "row")


def _not_in_nsys_report(report: Report) -> Iterator[NotCaptured]:
    captured, why = report.trace.captured, report.trace.not_recorded
    yield from _not_of_cuda(captured, why)
    if not captured.nvtx:
        cost, flag = "which part of the program the time belongs to", "-t nvtx (and annotate)"
        yield NotCaptured(NVTX_RANGES, cost, flag, why.get("nvtx", ""))
    if not captured.osrt:
        cost = "what a sleeping host waits for: file, lock, worker"
        yield NotCaptured("OS runtime calls", cost, "-t osrt", why.get("osrt", ""))
    if not captured.cpu_scheduling:
        cost = "whether the host computes or sleeps"
        yield NotCaptured("CPU scheduling", cost, "--cpuctxsw=process-tree", why.get("cpu_scheduling", ""))
    if not captured.cpu_samples:
        cost = "which functions the host computes in"
        yield NotCaptured("CPU samples", cost, "--sample=process-tree", why.get("cpu_samples", ""))
    if report.devices and not captured.gpu_metrics:
        cost, flag = (
            "how well running kernels fill the GPU",
            f"{_metrics_option(report.trace.nsys_version or report.trace.exported_by)}=all",
        )
        yield NotCaptured("GPU metrics", cost, flag, why.get("gpu_metrics", ""))


def _not_of_cuda(captured: Captured, why: Mapping[str, str]) -> Iterator[NotCaptured]:
    cuda, is_seen = why.get("cuda", ""), captured.kernels or captured.cuda_api
    none_came = "tracing was on, and no event came" * bool(cuda)
    if not captured.kernels and captured.cuda_graphs:
        cost = "what runs inside a graph: each launch counts as one piece of compute"
        yield NotCaptured("kernels in CUDA graphs", cost, "--cuda-graph-trace=node", why.get("cuda_graphs", ""))
    elif not is_seen:
        yield NotCaptured("CUDA", "anything about the GPU: the account is the host's", "-t cuda", cuda)
    elif not captured.kernels:
        yield NotCaptured("kernels", "what the GPU computed, and when", "-t cuda", none_came)
    elif not captured.cuda_api:
        cost = "what the host did while the GPU was idle"
        yield NotCaptured("CUDA API calls", cost, "-t cuda", none_came)


def _not_in_pytorch_trace(report: Report) -> Iterator[NotCaptured]:
    """What a trace of PyTorch's profiler lacks; it never records what the operating system does."""
    captured = report.trace.captured
    if not captured.kernels:
        yield NotCaptured("kernels", "anything about the GPU: the account is the host's", _ACTIVITIES)
    elif not captured.cuda_api:
        yield NotCaptured("CUDA API calls", "what the host did while the GPU was idle", _ACTIVITIES)
    if not captured.python_stacks:
        cost = "the program's lines, and what the host does outside operators (work or sleep)"
        yield NotCaptured("Python functions", cost, "with_stack=True")
    if not captured.shapes:
        yield NotCaptured(
            "sizes of inputs", "floating-point work and bytes: how near the peak it is", "record_shapes=True"
        )
    if not captured.memory:
        yield NotCaptured(
            "memory over time", "how much is allocated when, and what holds it at the peak", "profile_memory=True"
        )
    cost = "sleep against work in detail, other processes, what lies before and after the active steps"
    is_of_amd = any(gpu.name.startswith("AMD") for gpu in report.trace.gpus)
    yield NotCaptured(
        "OS calls and CPU scheduling", cost, "none" if is_of_amd else "none: capture with nsys, by boundby profile"
    )


_ACTIVITIES = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"


def _metrics_option(nsys_version: str | None) -> str:
    """nsys renamed the option in 2024: 2024.2.3 knows only the old name, releases since 2025 use the new."""
    match = re.match(r"(\d{4})\.(\d+)", nsys_version or "")
    old = match is not None and (int(match[1]), int(match[2])) < (2024, 4)
    return "--gpu-metrics-device" if old else "--gpu-metrics-devices"
