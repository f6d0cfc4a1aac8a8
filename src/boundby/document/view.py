"""What every format shows of a report, in what order: its accounts, and the regions worth a row. Pure; no markup.

Files for programs hold all regions; tables for people those worth a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from boundby.document import measurements, sentences
from boundby.document.blocks import FOLD_BELOW, First, Segment, clean, part_name, segments
from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, HOST_MEANING, LETTER, NOUN, SHORT_LABEL
from boundby.model.scale import (
    A_FEW_LINES,
    HABIT,
    HALF,
    HALF_MORE,
    HARDLY,
    NEGLIGIBLE,
    NOTABLE,
    QUARTER,
    RANKING,
    SLIGHT,
    SMALL,
    TABLE,
    TENFOLD,
)
from boundby.results.report import (
    Card,
    Check,
    DeviceReport,
    Finding,
    FirstResponse,
    RegionReport,
    Report,
    ThreadReport,
    Top,
    Verdict,
)

MOST_RANGES = A_FEW_LINES  # of GPU numbers in a sentence
EXTERNAL_PACE = "host_blocked.external-pace"  # the id of that response
IN_FULL = 2  # more accounts than this are told together
MOST_TOPS = RANKING  # names, over all devices
MAX_ROWS = TABLE  # one screen: beyond it, only an explicit --min-share shows more
NO_RANGE, INNER = "(no range)", "(inner)"
ONCE = "once"  # in place of a saving: what a process pays once, and this run does not save
NOTABLE_EXPOSED = SLIGHT  # of the window, that waits cost beyond what the bar calls sync
# Where the first instance takes so many times what one of the others does (the median one, no mean of two), and the
# mean so many times: that is no usual time.
FIRST, UNEVEN = TENFOLD, HALF_MORE
_CONFIDENCE = ("low", "medium", "high")


class ShownAccount(Struct, frozen=True):
    """One device's account, or one host thread's where there is no GPU work."""

    name: str
    verdict: Verdict
    time: Mapping[str, int]  # ns by cause
    whole_ns: int
    set_against_ns: int  # what savings are told as shares of
    meanings: Mapping[str, str]  # of its causes
    gpu_name: str = ""
    utilization: float | None = None  # of a device
    not_busy: str = ""  # what the rest of a device's window is called
    note: str = ""
    outside: str = ""  # how little of the run a device's window is, and who else had the device
    checklist: tuple[Check, ...] = ()
    cards: tuple[Card, ...] = ()
    responses: tuple[FirstResponse, ...] = ()
    exposed_by_waits_ns: int | None = None
    device: DeviceReport | None = None  # None: a thread
    first_steps: int = 0  # of a device's one-time time
    left: sentences.Left | None = None  # of a device's window without each cause alone, by replay
    lead: sentences.Lead | None = None  # what is told instead of a verdict, of a report without GPU work

    @property
    def begin_with(self) -> str:
        """The cause that is tried first, where it is another than the verdict's."""
        return next((response.other for response in self.responses[:1]), "")

    @property
    def headline(self) -> sentences.Headline:
        """The verdict, and the other cause that is tried first where there is one."""
        if self.lead is not None:
            return self.lead.headline
        is_thread = self.device is None
        return sentences.headline(self.verdict, self.name, begin_with=self.begin_with, of_host=is_thread)

    def steady(self, width: int | None = None) -> str:
        """What repeats, and what happens once, in as many cells if it can; nothing where the pace comes from outside,
        which the first response tells."""
        return "" if self.device is None or self.is_paced else sentences.steady(self.device, width, self.first_steps)

    @property
    def because(self) -> str:
        return sentences.because(self.verdict) if self.lead is None else " ".join(self.lead.told)

    @property
    def _meanwhile(self) -> str:
        """Where there is no verdict: the call in which the host is for most of the window."""
        top = max((self.device.api.top if self.device and self.has_no_verdict else ()), key=_total_ns, default=None)
        if top is None or not HALF * self.whole_ns <= top.total_ns <= self.whole_ns:
            return ""
        share = units.percent(top.total_ns / self.whole_ns)
        return f"For {share} of the window ({units.duration(top.total_ns)}) the host is in {clean(top.name)}."

    @property
    def is_paced(self) -> bool:
        """Whether something outside of the program sets its pace, so that no removal makes it faster."""
        return any(response.id == EXTERNAL_PACE for response in self.responses)

    @property
    def first(self) -> First:
        """What to do first, why, and where."""
        return sentences.first(self.responses, self.set_against_ns)

    @property
    def first_of_other(self) -> First:
        """What to do about the second of two causes that weigh the same."""
        other = sentences.of_other_bound(self.verdict, self.responses)
        return sentences.first(() if other is None else (other,), self.set_against_ns)

    @property
    def most(self) -> str:
        """What removing the bound would save, and what comes next; nothing where the pace comes from outside."""
        if self.is_paced:
            return ""
        of_bound = (item for item in self.responses[:1] if item.id.startswith(f"{self.verdict.bound}."))
        claimed_ns = max((item.saving_ns[1] for item in of_bound if item.saving_ns is not None), default=0)
        return sentences.outlook(self.verdict, self.whole_ns, self.left, self.time, claimed_ns)

    @property
    def sure(self) -> str:
        """How sure the verdict is, and the runner-up."""
        return " ".join(self.doubts)

    @property
    def exposed(self) -> str:
        """``If no call of the host waited for the GPU, copies included, the GPU would idle 3 % of the time instead of
        17 %.``: where waits cost more than the account's sync time, and the replay says no less. Where work is not on
        record nobody knows how long it idles."""
        waits_ns, busy = self.exposed_by_waits_ns or 0, self.utilization
        if busy is None or self.device is None or sentences.lacks_records(self.device):
            return ""
        if not self.whole_ns or waits_ns - self.time.get("sync", 0) < NOTABLE_EXPOSED * self.whole_ns:
            return ""
        gone = (self.left or {}).get("sync")
        if gone is not None and gone.saved_ns < NOTABLE_EXPOSED * self.whole_ns:
            return ""
        then = units.percent(max(1 - busy - waits_ns / self.whole_ns, 0.0))
        idle = f"the GPU would idle {then} of the time instead of {units.percent(1 - busy)}"
        return f"If no call of the host waited for the GPU, copies included, {idle}."

    @property
    def told(self) -> tuple[str, ...]:
        """What repeats, why, what it would save, how much of communication is hidden, and what counters say."""
        return (*self.reasons, *_filled(self.most, *self.measured))

    @property
    def reasons(self) -> tuple[str, ...]:
        """What repeats, what to know of the window, and why: what stands above the first response."""
        return _filled(self.steady(), self.outside, self.because)

    @property
    def measured(self) -> tuple[str, ...]:
        """How much of communication is hidden, and what the GPU's counters say while it is busy."""
        if self.device is None:
            return ()
        overlap = measurements.overlap_sentence(self.device)
        return _filled(self._meanwhile, overlap, *measurements.counter_sentences(self.device))

    @property
    def doubts(self) -> tuple[str, ...]:
        """How sure that is, and what comes next."""
        if self.lead is not None:
            return ()
        return _filled(
            sentences.confidence(self.verdict, self.left if self.most else None),
            "" if self.is_paced else sentences.next_best(self.verdict, self.whole_ns, self.left, self.time),
            self.note,
        )

    @property
    def parts(self) -> tuple[Segment, ...]:
        """Of its bar, small ones folded."""
        return segments(self.time, fold_below=FOLD_BELOW)

    @property
    def _mostly(self) -> dict[str, str]:
        """What causes are mostly of: the bound by what it waits for; launch overhead by calls that prefetch managed
        memory, and copies by fills of memory, whatever it is bound by."""
        waits = sentences.WAITS_FOR.get(self.verdict.waits_for)
        told = {self.verdict.bound: waits.mostly} if waits else {}
        if self.device is None:
            return told
        prefetch_ns = sum(top.total_ns for top in self.device.api.top if "MemPrefetch" in top.name)
        copying_ns = sum(copies.total_ns for copies in self.device.memcpy.values())
        told["cuda_api"] = "mostly prefetching" if prefetch_ns > HALF * self.time.get("cuda_api", 0) else ""
        told["gpu_copy"] = (
            sentences.WAITS_FOR["fills"].mostly if copying_ns < HALF * self.time.get("gpu_copy", 0) else ""
        )
        return told

    def named(self, part: Segment) -> str:
        """What a part of its bar is called: ``blocked (mostly for input)``; ``copy (mostly filling memory)``, whatever
        it is bound by, where that takes long enough; ``cause not recorded``, where all of the GPU's work is."""
        if part.cause == "unattributed" and self.device is not None and not sentences.lacks_records(self.device):
            return f"cause {part.label}"
        mostly = self._mostly.get(part.cause, "") if part.fraction >= SMALL or part.cause == self.verdict.bound else ""
        return f"{part.label} ({mostly})" if mostly else part.label

    @property
    def has_account(self) -> bool:
        """Whether anything is known of its time."""
        return is_known(self.time)

    @property
    def bound(self) -> str:
        return sentences.bound_word(self.verdict)

    @property
    def saves(self) -> str:
        """As of regions, a time or ``once``; empty where nothing can be told, and where nothing is to be gained."""
        if not self.is_paced and _is_paid_once(self.verdict, self.responses):
            return ONCE
        saving = None if self.is_paced else self.saving_ns
        return units.duration(saving) if saving is not None and self.whole_ns else ""

    @property
    def has_no_verdict(self) -> bool:
        return self.verdict.why_not is not None

    @property
    def saving_ns(self) -> int | None:
        """What removing the bound alone would save, as what-if says; of two alike the one that saves more."""
        return sentences.most_of_either(self.verdict, self.whole_ns, self.left or {})


def is_known(time: Mapping[str, int]) -> bool:
    """Whether an account holds anything beside what is not on record."""
    return time.get("unattributed", 0) < (1 - HARDLY) * sum(time.values())


def _total_ns(top: Top) -> int:
    return top.total_ns


def accounts(report: Report) -> tuple[ShownAccount, ...]:
    """Of the devices; then of the host's threads, the busiest first."""
    whole_ns, lead = longest_window(report), sentences.lead(report)
    devices = (
        ShownAccount(
            name=sentences.gpu(device),
            verdict=device.verdict,
            time=device.time,
            whole_ns=device.window_ns,
            set_against_ns=whole_ns,
            meanings=sentences.meanings([device]),
            gpu_name=device.name,
            utilization=device.gpu_utilization,
            not_busy=sentences.not_busy(device),
            # One way to part the window is enough.
            note=" ".join(
                _filled(
                    "" if device.steady else sentences.phases(device),
                )
            ),
            outside=" ".join(
                _filled(
                    sentences.elsewhere(report) if device is report.devices[0] else "",
                    sentences.shared(report, device),
                )
            ),
            device=device,
            first_steps=_first_steps(report, device),
            checklist=device.checklist,
            cards=device.cards,
            responses=device.first_responses,
            exposed_by_waits_ns=device.exposed_by_waits_ns,
            left=sentences.left(report, device),
        )
        for device in report.devices
    )
    threads = (
        ShownAccount(
            name=sentences.thread(thread),
            verdict=thread.verdict,
            time=thread.time,
            whole_ns=thread.total_ns,
            set_against_ns=whole_ns,
            meanings=HOST_MEANING,
            note=sentences.blocked_on(thread.blocked_on),
            cards=thread.cards,
            responses=thread.first_responses,
            lead=lead,
        )
        for thread in _own_threads(report)
    )
    return (*devices, *threads)


def _own_threads(report: Report) -> list[ThreadReport]:
    """The busiest first; of a program that failed without helpers, processes that lasted for little of it."""
    ordered = sorted(report.threads, key=lambda thread: (-thread.total_ns, thread.pid, thread.tid))
    if sentences.lead(report) is None:
        return ordered
    own, least_ns = ordered[0].pid if ordered else 0, QUARTER * max((one.total_ns for one in ordered), default=0)
    return [thread for thread in ordered if thread.pid == own or thread.total_ns >= least_ns]


def _first_steps(report: Report, device: DeviceReport) -> int:
    """How many of the program's steps come before the steady ones, where they are a part of the one-time work worth a
    word."""
    found, once_ns = device.steady, sum(part.ns for part in device.one_time)
    region = next((region for region in report.regions if found is not None and region.path == found.region), None)
    if found is None or region is None or not found.steps or len(report.devices) > 1:
        return 0
    number = max(region.instances - found.steps, 0)
    return number if sum((region.instance_ns.host_ns or ())[:number]) >= SMALL * once_ns else 0


def summaries(members: Sequence[ShownAccount]) -> list[tuple[sentences.Headline, str]]:
    """One sentence for all accounts that share a verdict, and the least confidence among them."""
    groups: dict[tuple[str, tuple[str, str] | None, str], list[ShownAccount]] = {}
    for account in members:
        verdict = account.verdict
        groups.setdefault((verdict.bound, verdict.mixed_of, verdict.waits_for), []).append(account)
    if members and members[0].lead is not None:
        return [(members[0].headline, "")]
    return [
        (
            sentences.headline(
                group[0].verdict,
                _subject(group, len(members)),
                plural=len(group) > 1,
                begin_with=group[0].begin_with,
                of_host=group[0].device is None,
            ),
            ""
            if group[0].has_no_verdict
            else "confidence " + min((account.verdict.confidence for account in group), key=_CONFIDENCE.index),
        )
        for group in groups.values()
    ]


def _subject(group: Sequence[ShownAccount], total: int) -> str:
    """``All 4 GPUs, which one process drives,``: where GPUs wait for ranks: one may be taken for one."""
    named = listed([account.name for account in group], total)
    drivers = [account.device.processes for account in group if account.device is not None]
    is_of_one = len(drivers) > 1 and len(drivers[0]) == 1 and len(set(drivers)) == 1
    return f"{named}, which one process drives," if is_of_one and group[0].verdict.waits_for == "ranks" else named


def listed(names: Sequence[str], total: int) -> str:
    """``GPUs 0-2, 5``, ``All 8 GPUs``, ``3 threads``; ``16 of 64 GPUs`` where they are scattered."""
    if len(names) == 1:
        return names[0]
    noun = "threads" if any(not name.startswith("GPU ") for name in names) else "GPUs"
    if len(names) == total:
        return f"Both {noun}" if total == 2 else f"All {total} {noun}"
    return f"{len(names)} threads" if noun == "threads" else _scattered(names, total)


def _scattered(names: Sequence[str], total: int) -> str:
    runs: list[list[int]] = []
    for number in sorted(int(name.partition(" ")[2]) for name in names):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"GPUs {', '.join(ranges)}" if len(ranges) <= MOST_RANGES else f"{len(names)} of {total} GPUs"


class Row(Struct, frozen=True):
    """One region in its place of the tree. ``label`` is its path from the row above that holds it."""

    region: RegionReport
    depth: int
    label: str
    share: float
    time: Mapping[str, int]  # ns by cause
    is_judged: bool = True  # what no range owns is time, but nothing to judge
    is_paced: bool = False  # by something outside of the program
    is_paid_once: bool = False  # its bound, by each process: a longer run saves no more
    saves_below: bool = False  # what a row below saves by another change is all that it saves
    is_told_above: bool = False  # why, with the row that holds it

    @property
    def instances(self) -> str:
        return units.count(self.region.instances) if self.is_judged else ""

    @property
    def each(self) -> str:
        return sentences.each(self.region) if self.is_judged else ""

    @property
    def letter(self) -> str:
        """The cause's, in front of the bound; empty where the verdict names none."""
        return LETTER.get(self.region.verdict.bound, "") if self.is_judged else ""

    @property
    def bound(self) -> str:
        """``sync``, with a question mark where the confidence is low."""
        return sentences.bound_word(self.region.verdict) + "?" * self.is_uncertain if self.is_judged else ""

    @property
    def is_uncertain(self) -> bool:
        return self.is_judged and self.region.verdict.confidence == "low" and not self.has_no_verdict

    @property
    def saves(self) -> str:
        """A time; ``once``; ``not known`` of a region whose cause could be removed; else empty."""
        if self.is_paced or self.has_no_verdict or self.saves_below:
            return ""
        if self.is_paid_once:
            return ONCE
        saving_ns, is_of_cause = self.region.max_saving_ns, self.region.verdict.bound in NOUN
        return units.duration(saving_ns) if saving_ns is not None else sentences.UNKNOWN if is_of_cause else ""

    @property
    def has_account(self) -> bool:
        """Whether anything is known of its time."""
        return is_known(self.time)

    @property
    def has_no_verdict(self) -> bool:
        return not self.is_judged or self.region.verdict.why_not is not None

    @property
    def because(self) -> str:
        is_told_here = self.is_judged and not self.is_told_above
        return clean(self.region.verdict.because).rstrip(".") if is_told_here else ""


def _is_paid_once(verdict: Verdict, responses: Iterable[FirstResponse], around: Iterable[Finding] = ()) -> bool:
    """Whether initialization is the bound, and all advice on that saves other runs only: of advice without a number
    nobody knows. ``around``: findings of the regions that hold it."""
    if verdict.bound != "init":
        return False
    advice = [one.id for one in responses if one.id.startswith("init.")]
    saving = [item.remedy for item in around if item.remedy.startswith("init.") and max(item.saving_ns or (0,))]
    return bool(advice) and all(map(sentences.saves_elsewhere, (*advice, *saving)))


def _around(row: Row, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings of the regions that hold this one."""
    return (item for item in findings if item.region and row.region.path[: len(item.region)] == item.region)


class Selection(Struct, frozen=True):
    rows: tuple[Row, ...]
    left_out: int
    min_share: float
    outside: Row | None  # what no range owns, where it is worth a line
    share_of: str = ""  # whose time the shares are of, where it is not that of one GPU or thread
    on_the_host: str = ""  # that means are of the GPU, where ranges take another time

    @property
    def every_row(self) -> tuple[Row, ...]:
        return (*self.rows, self.outside) if self.outside else self.rows

    @property
    def has_host_times(self) -> bool:
        """Some time per instance is in parentheses, the host's."""
        return any(not row.region.total_ns for row in self.rows)

    @property
    def uneven(self) -> str:
        """As `uneven`, of all of them."""
        return uneven(self.rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said below the table: means and bars that mislead, regions that no annotation made, and those left
        out."""
        return self.noted("; --min-share 0 shows all")

    def noted(self, how: str = "") -> tuple[str, ...]:
        """The note on rows left out, where ``how`` to see them is no option of a command line."""
        verb = "is" if self.left_out == 1 else "are"
        number, share = units.plural(self.left_out, "region"), units.percent(self.min_share)
        return _filled(
            self.share_of if self.rows else "",
            self.uneven,
            self.on_the_host,
            not_by_size(self.rows),
            inside_its_like(self.rows),
            sentences.FOUND if any(row.region.found for row in self.rows) else "",
            f"{number} below {share} {verb} not shown{how}." if self.left_out else "",
        )


def uncertain(rows: Sequence[Row]) -> str:
    """What a question mark after a bound means, with what leaves most open of the largest such region; empty where none
    has one."""
    row = max((row for row in rows if row.is_uncertain), key=lambda row: row.share, default=None)
    if row is None:
        return ""
    doubt = max(reversed(row.region.verdict.uncertainties), key=lambda doubt: doubt.steps, default=None)
    why = f" ({units.quoted(row.label)}: {clean(doubt.sentence).rstrip('.')})" if doubt is not None else ""
    return f"? after a bound: uncertain{why}."


def also_in_bars(drawn: Iterable[str], named: Iterable[str]) -> str:
    """``Also in the bars: b blocked; w launched but not started.``: causes drawn that no legend above names; empty
    without any."""
    others = sorted({*drawn} - {*named}, key=CAUSE_KEYS.index)
    return f"Also in the bars: {'; '.join(f'{LETTER[key]} {SHORT_LABEL[key]}' for key in others)}." if others else ""


def by_boundby(rows: Sequence[Row]) -> str:
    """What ``(found)`` behind a name means, and what an iteration is there; empty where none has it."""
    names = {part.partition(" ")[0] for row in rows if row.region.found for part in row.region.path}
    told = " Here an iteration is whatever repeats." if "iteration" in names else ""
    return f"(found): named by boundby, not by the program.{told}" if names else ""


def inside_its_like(rows: Sequence[Row]) -> str:
    """What ``(inner)`` behind a name means; empty where none has it."""
    is_inner = any(row.label.endswith(INNER) for row in rows)
    return f"{INNER}: a range inside one of the same name." if is_inner else ""


def not_by_size(rows: Sequence[Row]) -> str:
    """Why a region is bound by another cause than its bar is full of; empty where none is."""
    is_other = any(sentences.is_not_by_size(row.region.verdict, row.time) for row in rows if row.letter)
    return "BOUND BY: what saves most if it is gone, even where another cause takes more time." if is_other else ""


def uneven(rows: Sequence[Row]) -> str:
    """That ``MEAN TIME`` is a mean, of the largest region whose first instance makes it much more than others take;
    empty where none is such."""
    for row in sorted(rows, key=lambda row: -row.share):
        first_ns, *others_ns = row.region.instance_ns.host_ns or (0,)
        usual_ns = sorted(others_ns)[(len(others_ns) - 1) // 2] if others_ns else 0
        is_told = row.is_judged and row.region.total_ns and len(others_ns) >= HABIT and first_ns >= FIRST * usual_ns > 0
        is_told = is_told and sum(others_ns) <= UNEVEN * usual_ns * len(others_ns)  # else it is not the first alone
        if is_told and min(row.region.host.mean_ns, sentences.each_ns(row.region)) > UNEVEN * usual_ns:
            usual, first = units.duration(usual_ns), units.duration(first_ns)
            return f"{units.quoted(row.label)} took {first} the first time, {usual} usually."
    return ""


def on_the_host(report: Report, rows: Sequence[Row]) -> str:
    """That ``MEAN TIME`` is of one GPU, and the largest region whose ranges take another time on the host; empty where
    neither is to be said."""
    is_of_one = any(round(row.region.devices_each) > 1 for row in rows)
    judged = (row for row in rows if report.devices and row.is_judged and row.region.total_ns)
    for row in sorted(judged, key=lambda row: -row.share):
        gpu_ns, host_ns = sentences.each_ns(row.region), row.region.host.mean_ns
        if abs(gpu_ns - host_ns) > NOTABLE * max(gpu_ns, host_ns):
            whose = "of one GPU" if is_of_one else "the GPU's"
            where = _outside_of(longest_window(report), host_ns)
            took = f"{units.quoted(row.label)} takes {units.duration(host_ns)}{where}"
            return f"MEAN TIME: {whose}, idle included. On the host, {took}."
    return "MEAN TIME: of one GPU." if is_of_one else ""


def _outside_of(window_ns: int, host_ns: float) -> str:
    """How much of a range lies outside of the window at least, where it is longer than that."""
    outside_ns = host_ns - window_ns
    much = "mostly" if outside_ns > HALF * host_ns else "partly"
    return f", {much} outside of the analysed time" if outside_ns > 0 else ""


def most_saved(rows: Sequence[Row]) -> str:
    """What ``SAVES UP TO`` means, of rows that have one, and what may be unexpected of it; empty without rows."""
    if not rows:
        return ""
    told = ["SAVES UP TO: the most that removing a single cause from the region saves."]
    if any((row.region.max_saving_ns or 0) > (1 + SMALL) * _own_ns(row) > 0 for row in rows if not row.is_paid_once):
        told.append("It may exceed the region's own time: later work would start earlier, too.")
    if any(row.is_paid_once for row in rows):
        told.append(f"{ONCE}: a start-up cost that each process pays once.")
    return " ".join(told)


def beyond_the_bar(report: Report) -> str:
    """That a saving of one of several GPUs exceeds what its bar holds of the cause; empty where none does, or one
    account is all there is: its own sentence says so."""
    several = accounts(report) if len(report.devices) > 1 else ()
    if any((one.saving_ns or 0) > (1 + SMALL) * one.time.get(one.verdict.bound, 0) > 0 for one in several):
        return "A GPU's saving may exceed what its bar shows of the cause: later work would start earlier, too."
    return ""


def of_each_alone(report: Report, rows: Sequence[Row]) -> str:
    """That a region's bound is its own, where the whole has two and no row does; else empty."""
    mixed = any(device.verdict.mixed_of for device in report.devices)
    is_unlike = mixed and rows and not any(row.region.verdict.mixed_of for row in rows if row.is_judged)
    return "BOUND BY: of the region alone; the verdict is of the whole window." if is_unlike else ""


def _own_ns(row: Row) -> float:
    """What its instances take together, as the table shows them."""
    return sentences.each_ns(row.region) * row.region.instances


def select(report: Report, min_share: float | None = None) -> Selection:
    """Regions of at least ``min_share`` of the account, or of the host's time (hidden work has no account)."""
    threshold = max(NEGLIGIBLE if min_share is None else min_share, report.analysis.min_share)
    whole = window_total(report)
    named = [region for region in report.regions if region.path]
    weights = [_weight(region, whole) for region in named]
    if min_share is None and sum(weight >= threshold for weight in weights) > MAX_ROWS:
        threshold = sorted(weights, reverse=True)[MAX_ROWS - 1]
    shown = {index for index, weight in enumerate(weights) if weight >= threshold}
    root = next((region for region in report.regions if not region.path), None)
    outside = _outside(root, whole) if named and whole and root is not None else None
    rows = _marked(_tree(named, shown), report)
    return Selection(
        rows=rows,
        left_out=len(named) - len(shown),
        min_share=threshold,
        outside=outside if outside and outside.share >= threshold and outside.share > 0 else None,
        share_of=share_of(report),
        on_the_host=on_the_host(report, rows),
    )


def _marked(rows: Sequence[Row], report: Report) -> tuple[Row, ...]:
    """Rows that know whether their pace comes from outside, whether a process pays for their bound once, and whether
    what they save is a row's below."""
    is_paced = any(account.is_paced for account in accounts(report))
    return tuple(
        replace(
            row,
            is_paced=is_paced,
            is_paid_once=_is_paid_once(row.region.verdict, row.region.first_responses, _around(row, report.findings)),
            saves_below=_saves_below(row, rows[place + 1 :]),
        )
        for place, row in enumerate(rows)
    )


def _saves_below(row: Row, following: Iterable[Row]) -> bool:
    """Whether one of the rows that it holds saves all that it saves, and is bound by something else."""
    inside = takewhile(lambda one: one.depth > row.depth, following)
    return any(one.region.max_saving_ns == row.region.max_saving_ns and one.bound != row.bound for one in inside)


def share_of(report: Report) -> str:
    """Whose time a region's share is of; empty where one GPU or thread is all there is."""
    what, number = ("GPU", len(report.devices)) if report.devices else ("thread", len(report.threads))
    if number < 2:
        return ""
    whole = units.duration(window_total(report))
    together = f"SHARE: of {whole}, the time of {'both' if number == 2 else number} {what}s together"
    return f"{together}; other percentages: of the time of one {what}."


def _outside(root: RegionReport, whole_ns: int) -> Row:
    """What no range holds."""
    share = sum(root.time_exclusive.values()) / whole_ns
    return Row(root, 0, NO_RANGE, share, root.time_exclusive, is_judged=False)


def tops(report: Report) -> tuple[tuple[Top, ...], tuple[Top, ...]]:
    """Kernels and CUDA API calls with most time, over all devices."""
    return (
        _merged([device.kernels.top for device in report.devices]),
        _merged([device.api.top for device in report.devices]),
    )


def region_sums(report: Report, min_share: float | None = None) -> list[tuple[str, ...]]:
    """Of each region shown that launches or calls: its label, indented; kernels, their time, the name with most of it;
    the same of CUDA calls, what they waited included: all of the window, as the sums of devices are."""
    rows: list[tuple[str, ...]] = []
    for row in select(report, min_share).rows:
        kernels, calls = row.region.kernels, row.region.api
        if kernels.count or calls.in_window[0]:
            each = ((kernels.count, kernels.total_ns, kernels.top), (*calls.in_window, calls.top))
            cells = [(units.count(n), units.duration(ns), clean(top[0].name) if top else "") for n, ns, top in each]
            rows.append((f"{'  ' * row.depth}{row.label}", *cells[0], *cells[1]))
    return rows


def _merged(each: Sequence[tuple[Top, ...]]) -> tuple[Top, ...]:
    if len(each) == 1:
        return each[0]
    total: dict[str, tuple[int, int]] = {}
    for one in (operation_top for tops in each for operation_top in tops):
        count, ns = total.get(one.name, (0, 0))
        total[one.name] = (count + one.count, ns + one.total_ns)
    every = (Top(name, count, ns) for name, (count, ns) in total.items())
    return tuple(sorted(every, key=lambda merged_top: (-merged_top.total_ns, merged_top.name)))[:MOST_TOPS]


def window_total(report: Report) -> int:
    """All devices' windows, or all threads' time where there is no GPU work."""
    devices = sum(device.window_ns for device in report.devices)
    return devices or sum(thread.total_ns for thread in report.threads)


def told_above(report: Report) -> dict[str, FirstResponse]:
    """What stands on top, by the word before it: what to try first, and of the other cause of a mixed verdict."""
    members = accounts(report)[:1]
    named = [("First", response) for account in members for response in account.responses[:1]]
    others = [sentences.of_other_bound(account.verdict, account.responses) for account in members]
    return dict([*named, *(("And", response) for response in others if response is not None)])


def longest_window(report: Report) -> int:
    """The longest device window (thread, without GPU work): what savings are set against."""
    return max(
        (*(device.window_ns for device in report.devices), *(thread.total_ns for thread in report.threads)), default=0
    )


def _weight(region: RegionReport, whole: int) -> float:
    return max(region.share, min(region.host.total_ns / whole, 1.0) if whole else 0.0)


def _tree(named: list[RegionReport], shown: set[int]) -> tuple[Row, ...]:
    """Indent under the nearest ancestor shown; where a parent is left out, the label carries its name.

    ``named`` is depth first, so that what holds a region is the last one above it whose path begins its own, whatever
    its domain: a library's ranges lie inside the program's. ``shown`` are places in ``named``.
    """
    above: list[tuple[RegionReport, Row | None]] = []  # what holds the next one, each with the nearest row shown
    rows: list[Row] = []
    for index, region in enumerate(named):
        while above and not _holds(above[-1][0], region):
            above.pop()
        outer = above[-1][1] if above else None
        if index in shown:
            outer = _row(region, outer)
            rows.append(outer)
        above.append((region, outer))
    return tuple(rows)


_ENGINE = "autograd::engine::evaluate_function: "


def _row(region: RegionReport, outer: Row | None) -> Row:
    """The domain is named where it is another than around it."""
    start, around = (len(outer.region.path), outer.region.domain) if outer else (0, "")
    # PyTorch's engine wraps each backward operator in a range of its own: what tells them apart comes first.
    label = "/".join(part_name(part).replace(_ENGINE, "backward: ") for part in region.path[start:])
    if outer is not None and label == part_name(outer.region.path[-1]):
        label = f"{label} {INNER}"
    if _domain(region.domain) != _domain(around):
        label = f"{label} (found)" if region.found else f"{label} [{_domain(region.domain)}]"
    is_told = outer is not None and outer.region.verdict.because == region.verdict.because
    return Row(region, outer.depth + 1 if outer else 0, label, region.share, region.time, is_told_above=is_told)


def _holds(outer: RegionReport, inner: RegionReport) -> bool:
    depth = len(outer.path)
    return depth < len(inner.path) and inner.path[:depth] == outer.path


def _domain(name: str) -> str:
    return clean(name) or "default"


def _filled(*texts: str) -> tuple[str, ...]:
    return tuple(text for text in texts if text)
