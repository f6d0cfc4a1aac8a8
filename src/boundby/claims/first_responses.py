"""What to do first: the responses of a verdict's pattern, each with what it would save here, or why nobody can tell.

The pages in `boundby.claims.patterns` say what a response is, what it needs and when not to do it. Here each is asked
of the trace: findings answer where a rule looked for the same thing, else a replay does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.claims import patterns
from boundby.claims.checklist import LOW_UTILIZATION
from boundby.claims.doubt import SYNC_EVENTS
from boundby.claims.laws import Claim, Saving, Wholes
from boundby.claims.signs import Part, card
from boundby.evidence.context import Bool, RuleContext, once
from boundby.evidence.device_work import device_work, kernel_name
from boundby.evidence.feeders import SATURATED
from boundby.evidence.host_idleness import ON_PURPOSE, is_in_operators
from boundby.evidence.kernel_limits import limits, profile_command, shape
from boundby.evidence.wait_chains import wait_chain
from boundby.model.arrays import group_sums
from boundby.model.causes import BOUND_LABEL, BUSY_CAUSES, Cause
from boundby.model.expressions import expression
from boundby.model.gpus import Gpu, all_gpus, find_gpu
from boundby.model.records import dataclass, replace
from boundby.model.scale import HABIT, HALF, NOTABLE, QUARTER, SLIGHT, SMALL
from boundby.model.units import count, duration, percent, plural, size
from boundby.replay.predictor import Predictor, Step
from boundby.replay.questions import answer
from boundby.replay.removals import Faster
from boundby.results.report import (
    Card,
    DeviceReport,
    Finding,
    FirstResponse,
    NoGpuWork,
    RegionReport,
    ThreadReport,
    Verdict,
)
from boundby.rules.builtin import builtin
from boundby.rules.rule import Rule
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernels import ATTENTIONS, MATMULS, KernelKind, is_library_kernel, kernel_label

# Regions with less of the window, and more regions than this, have no card: nobody would read it.
REGION_SHARE, MOST_REGIONS = SLIGHT, 16
# A kernel made faster by hand: a quarter is often found, twice as fast sometimes.
KERNEL_LEAST, KERNEL_MOST = 1.25, 2.0
# A third more work in each saves a quarter of the launches, twice as much half of them.
BATCH_LEAST, BATCH_MOST = QUARTER, HALF
SMALL_KERNEL_NS = 10_000  # longer ones are no matter of launching, and take longer for a larger batch
SMALL_PIECE = 4 << 20  # bytes: from this on a copy reaches the link's rate
WORTH_BUYING = 1.33  # times the peaks of the GPU in use
# A timer on the host lies of a region with this share of the time whose work on the device takes so many times as long.
TIMED_SHARE, LIES, LEAST_TIMED_NS, LEAST_INSTANCES = NOTABLE, 3.0, 100_000, HABIT
MATRIX_SHARE = SMALL  # of kernel time: less is no model whose precision could be lowered
UNSEEN_SHARE = NOTABLE  # of the window, from which waiting streams are worth a response of their own
_HALF = (KernelKind.MATMUL_TENSOR, KernelKind.ATTENTION)
_PRECISION = {KernelKind.MATMUL_FP32: "fp32", KernelKind.MATMUL_TF32: "tf32", KernelKind.MATMUL_TENSOR: "bf16"}

_NO_REPLAY = "no number: a replay of this trace cannot be trusted"
IN_GRAPHS = "no number: what runs inside CUDA graphs was not recorded; capture with --cuda-graph-trace=node"

_SPAN = expression(r"--window \S+:\S*[^\s.]")  # as a verdict that cannot be told names it

# What a finding on pageable memory asks for, if not to make the data elsewhere.
_PINNING = expression(r"pinn?(?:ed|_memory|ing)|cudaMallocHost|pcie", re.IGNORECASE)

SavingNs = tuple[int, int]
# What is tried first: what a rule has found, then what only a replay says, then what has to be bought.
FOUND, REPLAYED, BOUGHT, UNNUMBERED, NOTHING = range(5)


class Told(NamedTuple):
    """What this trace says of one response. ``applies``: False where there is nothing here to change."""

    because: str
    saving_ns: SavingNs | None = None
    action: str = ""
    command: str = ""
    applies: bool = True
    rank: int = REPLAYED
    title: str = ""  # where the page's is not what the finding asks for; its needs and cautions are not either
    is_search: bool = False  # it finds out what to change
    causes: frozenset[str] = frozenset()  # of which it takes time; empty: its rule's, else its pattern's


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a card is for: a device, or a region (``is_part``)."""

    context: RuleContext
    predictor: Predictor | None  # None: nothing can be replayed to be trusted
    findings: tuple[Finding, ...]
    part: Part
    wholes: Wholes
    device: int = -1  # its place among the devices; of a region -1
    options: str = ""  # what makes a command look at the same part of the report

    @property
    def is_part(self) -> bool:
        return isinstance(self.part, RegionReport)

    @property
    def window_ns(self) -> int:
        return max(sum(self.part.time.values()), 1)

    @property
    def busy_ns(self) -> int:
        """What the host's work could hide behind."""
        return sum(self.part.time[cause.key] for cause in BUSY_CAUSES)

    def closed(self, bound: str, told: Told) -> Told:
        """A response with no more of a saving than the laws allow: its finding's causes are its, else its pattern's."""
        if told.saving_ns is None:
            return told
        rule = _rules().get(told.command.removeprefix("boundby explain "))
        causes = told.causes or (rule.takes if rule is not None else frozenset()) or frozenset((bound,))
        region = self.part.path if isinstance(self.part, RegionReport) else None
        claim = Claim(bound, causes, Saving(*told.saving_ns), region)
        saving = self.wholes.closed(claim, None if self.is_part else [self.device_id])
        return told._replace(saving_ns=(saving.low_ns, saving.high_ns))

    @property
    def device_id(self) -> int:
        return self.part.id if isinstance(self.part, DeviceReport) else -1

    @property
    def device_index(self) -> int:
        """As rows of operations name it."""
        return self.context.timeline.devices[self.device].index

    @property
    def is_in_graphs(self) -> bool:
        """Most of the work runs in graphs that were recorded as one operation each."""
        graphs = self.part.graphs
        return graphs is not None and graphs.total_ns > self.part.kernels.total_ns

    @property
    def report_name(self) -> str:
        return shlex.quote(self.context.trace.path)

    def what_if(self, scenario: str) -> str:
        return f"boundby what-if {self.report_name} -s {_quoted(scenario)}{self.options}"

    @cached_property
    def kernels(self) -> Bool:
        """Which operations are kernels of the window."""
        return device_work(self.context).is_kernel

    @cached_property
    def kernel_ns(self) -> int:
        return max(int(device_work(self.context).duration_ns[self.kernels].sum()), 1)

    def kind_share(self, *kinds: KernelKind) -> float:
        """Of kernel time."""
        work = device_work(self.context)
        return int(work.duration_ns[work.kernels_of(kinds)].sum()) / self.kernel_ns

    def found(self, *rules: str) -> Told | None:
        """What the best finding of these rules says."""
        mine = [item for item in self.findings if item.rule in rules and item.severity != "note"]
        if not mine:
            return None
        best = max(mine, key=lambda item: 2 * (item.saving_ns or (0, 0))[0] + (item.saving_ns or (0, 0))[1])
        place = "" if self.is_part else _in(best)
        action = best.advice[0] if best.advice else ""
        return Told(f"{best.title}{place}", best.saving_ns, action, f"boundby explain {best.rule}", rank=FOUND)

    def tells(self, rule: str) -> bool:
        """Whether this rule has found anything, be it a note that saves nothing."""
        return any(item.rule == rule for item in self.findings)

    def replayed(self, scenario: str, because: str, *, ceiling: bool = True) -> Told:
        """The answer to a question of ``boundby what-if``. ``ceiling``: at most so much, perhaps nothing."""
        if self.predictor is None or self.is_part:
            return self.at_most(because)
        known = [item for item in self.context.what_if if item.scenario == scenario and item.device == self.device_id]
        if known:
            low = high = known[0].baseline_ns - known[0].predicted_ns
        else:
            told = answer(self.predictor, scenario, tells_next=False)[self.device]
            low, high = told.baseline_ns - told.high_ns, told.baseline_ns - told.low_ns
        saving = (0 if ceiling else max(low, 0), max(high, 0))
        return Told(because, saving, command=self.what_if(scenario) if high > 0 else "")

    def at_most(self, because: str) -> Told:
        """Without a replay of its own: at most what the verdict says."""
        saving = self.part.verdict.saving_ns
        return Told(because, None if saving is None else (0, saving))

    def speed(self, rows: Bool, least: float, most: float, because: str, scenario: str) -> Told:
        """With these operations faster."""
        saving = None if self.is_part else self.context.saving_by_speed(rows, least, most)
        if saving is None and not self.is_part:
            return Told(f"{_NO_REPLAY} ({because})")
        return Told(because, saving, command=self.what_if(scenario) if saving and scenario else "")


def responses(subject: Subject) -> tuple[tuple[Card, ...], tuple[FirstResponse, ...]]:
    """The cards of a verdict and its first responses, best first, those without a number last."""
    verdict = subject.part.verdict
    bounds = verdict.mixed_of if verdict.bound == "mixed" and verdict.mixed_of else (verdict.bound,)
    known = [bound for bound in bounds if bound in patterns.KEYS]
    told: list[tuple[str, patterns.Remedy, Told]] = []
    for bound in known:
        page, ask = patterns.pattern(bound), _ASKED[bound]
        told += [(bound, remedy, one) for remedy in page.remedies if (one := ask[remedy.id](subject)) is not None]
    if paced := subject.found("external-pace"):  # no other response makes it faster
        told = [("host_blocked", patterns.pattern("host_blocked").remedy("external-pace"), paced)]
    told = [(bound, remedy, subject.closed(bound, one)) for bound, remedy, one in told]
    made = tuple(_response(subject, *one) for one in sorted(told, key=lambda one: _rank(one[2])))
    if known and not subject.is_part:
        made = _with_best_finding(subject, made, [one[2] for one in told])
        if subject.is_in_graphs:
            made = (_see_into_graphs(subject), *made)
    if not known:
        made = tuple(_without_pattern(subject)) if verdict.bound == "unknown" else ()
    notes = () if subject.is_part else tuple(_notes(subject))
    return tuple(replace(card(bound, subject.part), notes=notes) for bound in known), made


def _see_into_graphs(subject: Subject) -> FirstResponse:
    """Before anything is changed or bought: what most of the time is made of was not recorded."""
    graphs = subject.part.graphs
    assert graphs is not None
    return FirstResponse(
        "gpu_compute.see-into-graphs",
        "Record what runs inside the CUDA graphs",
        because=f"{percent(min(graphs.total_ns / subject.window_ns, 1.0))} of the time is in CUDA graphs recorded as"
        " one piece each: whether their kernels, copies or gaps cost it cannot be seen",
        action="boundby profile -- PROGRAM records their kernels (nsys profile --cuda-graph-trace=node)",
        needs="another run; it costs some time for each kernel",
        caution="the run cannot be repeated",
        command="boundby explain trace-graph-level",
    )


def _notes(subject: Subject) -> Iterator[str]:
    """Waits that cost nothing, and steps of which a timer on the host would tell the wrong length."""
    chain, saved = wait_chain(subject.context), subject.context.saving(("sync",))
    most_ns = 0 if saved is None else sum(saved) // 2
    for link in chain.harmless[:2]:
        beside = f", not counting {duration(link.untold_ns)} for copies or before memory is freed"
        held = (
            f"{link.name} blocks the host for {duration(link.held_ns)} in {plural(link.waits, 'call')}"
            f"{beside if link.untold_ns else ''}"
        )
        if not chain.links and most_ns >= subject.context.least_ns:  # copies hold the host instead
            yield (
                f"{held}: without these waits alone the program takes as long, since it then waits elsewhere, as in"
                f" copies. All of its waits, those in copies too, cost {duration(most_ns)}"
            )
            break
        yield f"{held} and costs nothing: the device works meanwhile, and without these waits the program takes as long"
    for region in sorted(subject.context.regions, key=lambda region: (-region.share, region.path)):
        if not region.path or region.projected is None or region.instances < LEAST_INSTANCES:
            continue
        host_ns, device_ns = region.host.median_ns, region.projected.median_ns
        if region.share >= TIMED_SHARE and host_ns and device_ns >= LIES * host_ns and device_ns >= LEAST_TIMED_NS:
            yield (
                f"a timer on the host around {region.path[-1]} without a synchronization would show"
                f" {duration(host_ns)} (enqueueing), while its work on the device takes {duration(device_ns)}: a"
                f" speed-up of {device_ns / host_ns:.0f} times measured like that is not real."
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
    for place, device in enumerate(devices):
        subject = Subject(
            context=context,
            predictor=predictor,
            findings=tuple(findings),
            part=device,
            wholes=wholes,
            device=place,
            options=options,
        )
        cards, told = responses(subject)
        made.append(replace(device, cards=cards, first_responses=told, verdict=_waiting(device.verdict, findings)))
    return tuple(made)


#: Rules that show that the host waits for the next batch.
_INPUT = ("host-input", "input-between-steps")


def _waiting(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """A verdict of a blocked host that says so where the best of what was found about its waits is input."""
    if verdict.bound != "host_blocked" or verdict.waits_for:
        return verdict
    waits = (item for item in findings if item.rule in (*_INPUT, "host-wait", "host-phase") and item.saving_ns)
    best = max(waits, key=lambda item: item.saving_ns or (0, 0), default=None)
    return replace(verdict, waits_for="input") if best is not None and best.rule in _INPUT else verdict


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
        cards, told = responses(subject)
        made.append(replace(region, cards=cards, first_responses=told, verdict=_waiting(region.verdict, inside)))
    return tuple(made)


#: The response of a thread's pattern that a rule numbers.
_OF_THREAD = {"preempted": "threads", "host-work": "vectorise", "host-input": "workers", "host-wait": "workers"}

#: Responses of a thread's pattern that mean nothing without a finding that speaks for them.
_NEEDS_EVIDENCE = ("vectorise", "threads", "managed-memory", "move-to-device", "overlap", "fewer-operators")


def of_threads(
    context: RuleContext, findings: Sequence[Finding], threads: Sequence[ThreadReport], no_gpu_work: NoGpuWork | None
) -> tuple[ThreadReport, ...]:
    """Host threads (in traces without GPU work) with what to do first: what mends the lack of GPU work, else the best
    findings, else what to capture, else what the page of their bound says."""
    if no_gpu_work is not None and no_gpu_work.response is not None:
        return tuple(replace(thread, first_responses=(no_gpu_work.response,)) for thread in threads)
    made = []
    for thread in threads:
        mine = [item for item in findings if item.severity != "note" and thread.tid in _told_of(context, item)]
        bounds = thread.verdict.mixed_of or (thread.verdict.bound,)
        pages = [patterns.pattern(bound) for bound in bounds if bound in patterns.KEYS]
        titles = {remedy.id: remedy.title for page in pages for remedy in page.remedies}
        numbered = [item for item in mine if item.saving_ns][:3]
        best = [
            _of_finding(
                item,
                "finding",
                "",
                title=_title_of_sleep(item.rule, next(iter(item.advice), ""))
                or (title_of_work(item) if item.rule == "host-work" else "")
                or titles.get(_OF_THREAD.get(item.rule, ""), ""),
            )
            for item in numbered
        ]
        told = {_OF_THREAD.get(item.rule) for item in numbered}
        taught = [
            FirstResponse(
                f"{page.key}.{remedy.id}",
                remedy.title,
                because="no number: one thread's time does not tell what else would wait then",
                needs=remedy.needs,
                caution=remedy.caution,
                command=f"boundby explain {page.key}",
            )
            for page in pages
            for remedy in page.remedies
            if remedy.id not in told and remedy.id not in _NEEDS_EVIDENCE
        ]
        unknown = () if pages else _capture(context)
        best = [replace(one, is_search=one.title == UNSEEN_WORK) for one in best]
        made.append(replace(thread, first_responses=(*best, *unknown, *taught)))
    return tuple(made)


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
    """Ids of the threads that a finding in a trace without GPU work is about: where its region's time is."""
    if not item.region:
        return {context.trace.threads[account.thread].tid for account in context.timeline.threads}
    inside = context.regions_under(item.region)
    held = {tid: int(by_region[inside].sum()) for tid, by_region in _time_of_threads(context)}
    return {tid for tid, ns in held.items() if ns and 2 * ns >= max(held.values())}


def _response(subject: Subject, bound: str, remedy: patterns.Remedy, told: Told) -> FirstResponse:
    program = subject.context.program
    return FirstResponse(
        id=f"{bound}.{remedy.id}",
        title=told.title or remedy.title,
        saving_ns=told.saving_ns,
        because=told.because if told.applies else f"nothing to do here: {told.because}",
        action=told.action if program.understands(told.action) else "",
        needs="" if told.title else remedy.needs,
        caution="" if told.title else remedy.caution,
        command=told.command or f"boundby explain {bound}",
        is_search=told.is_search,
    )


def _rank(told: Told) -> tuple[int, int]:
    """By how soon it is tried, then what saves most first, of which the part that is sure counts twice."""
    low, high = told.saving_ns or (0, 0)
    if not told.applies or told.saving_ns == (0, 0):
        return NOTHING, 0
    return (told.rank, -(2 * low + high)) if told.saving_ns else (UNNUMBERED, told.rank)


# GPU compute


def _lower_precision(subject: Subject) -> Told | None:
    if found := subject.found("tensor-cores"):
        return found
    if subject.is_part:
        return None
    if subject.is_in_graphs:
        return Told(IN_GRAPHS)
    half, matrix = subject.kind_share(*_HALF), subject.kind_share(*MATMULS, *ATTENTIONS)
    if matrix < MATRIX_SHARE:
        because = "hardly any matrix kernels by name: halving the bytes may still help kernels that move data"
        return Told(f"no number: {because}")
    if half > matrix / 2:
        return Told(f"{percent(half)} of kernel time runs on tensor cores in 16 bits already", applies=False)
    return Told("no number: the kernels' names do not tell their precision")


def _fuse(subject: Subject) -> Told | None:
    found = subject.found("unfused-attention", "unfused-elementwise", "unfused-optimizer")
    if found:
        return found
    if layout := subject.found("layout-conversion"):
        return layout._replace(title="Keep tensors in the layout that the kernels want")
    if subject.is_part:
        return None
    if subject.is_in_graphs:
        return Told(IN_GRAPHS)
    because = "no chains of elementwise kernels of 5 us or longer were found that take 5 % of kernel time"
    return Told(because, applies=False)


def _better_kernels(subject: Subject) -> Told | None:
    found = subject.found("small-grid", "small-blocks", "hot-kernel")
    top = subject.part.kernels.top
    if subject.is_part or not top:
        return found
    context, work = subject.context, device_work(subject.context)
    of_label = context.names_where(
        context.operations.name[subject.kernels], lambda name: kernel_label(name) == top[0].name
    )
    alike = subject.kernels & of_label[context.operations.name]
    own = subject.kernels if subject.is_part else subject.kernels & (context.operations.device == subject.device_index)
    rows = alike & own
    if not rows.any():
        return found
    share = int(work.duration_ns[rows].sum()) / max(int(work.duration_ns[own].sum()), 1)
    name, chosen = kernel_name(context, int(np.flatnonzero(rows)[0])), np.flatnonzero(rows)
    seen = "".join(f"; {one}" for one in limits(context, chosen))
    because = f"it takes {percent(share)} of kernel time in {shape(context, chosen)}{seen}"
    # A plus would join two scenarios; and a scenario makes it faster on other GPUs, too.
    is_asked = "+" not in name and rows.sum() == alike.sum()
    asked = f"kernel:{name}={KERNEL_MOST:g}" if is_asked else ""
    told = subject.speed(rows, KERNEL_LEAST, KERNEL_MOST, because, asked)
    if told.saving_ns is not None:
        scale = f"; worth is what {KERNEL_LEAST:g} to {KERNEL_MOST:g} times as fast would save"
        told = told._replace(because=f"{told.because}{scale}")
    told = told._replace(title=f"Find out what limits {name}", is_search=True)
    if found and re.search(rf"(?<!\w){re.escape(top[0].name)}(?!\w)", f"{found.because} {found.action}"):
        return told._replace(action=found.action)
    is_library = is_library_kernel(context.trace.names[context.operations.name[chosen[0]]])
    if is_library:
        return told._replace(action="")
    return told._replace(action=f"{profile_command(context, name)} shows it")


def _bigger_gpu(subject: Subject) -> Told | None:
    if subject.is_part or not isinstance(subject.part, DeviceReport):
        return None
    context = subject.context
    name, index = subject.part.name, subject.device_index
    multiprocessors = context.trace.gpu_facts[index].multiprocessors if context.trace.gpu_facts else 0
    today = find_gpu(name, multiprocessors or None)
    if today is None:
        return Told(f"no number: the peaks of {name or 'this GPU'} are not in boundby's table")
    precision = _precision(subject, today)
    bigger = _bigger_than(today, precision)
    if bigger is None:
        return Told(f"boundby's table holds no bigger GPU than {today.name}", applies=False)
    if subject.predictor is None:
        return Told(_NO_REPLAY)
    return _on_another(subject, today, bigger, precision)


def _bigger_than(today: Gpu, precision: str) -> Gpu | None:
    """The next data-centre GPU with at least a third more of memory bandwidth and of arithmetic."""
    names = ("Instinct MI300X",) if today.name.startswith("Instinct") else ("A100 80GB SXM", "H100 SXM", "B200")
    rows = {gpu.name: gpu for gpu in all_gpus()}
    for name in names:
        ratio = _arithmetic(today, rows[name], precision)
        if min(rows[name].memory_gb_per_s / today.memory_gb_per_s, ratio) >= WORTH_BUYING:
            return rows[name]
    return None


def _on_another(subject: Subject, today: Gpu, bigger: Gpu, precision: str) -> Told:
    """Kernels by the ratio of memory bandwidth (those that fill the device alone: the low end), or matrix kernels by
    that of arithmetic."""
    predictor, work = subject.predictor, device_work(subject.context)
    assert predictor is not None
    memory = bigger.memory_gb_per_s / today.memory_gb_per_s
    arithmetic = _arithmetic(today, bigger, precision)
    kernels = np.flatnonzero(subject.kernels)
    blocks, filled = work.blocks[kernels], np.maximum(work.multiprocessors[kernels], 1)
    graphs = subject.context.operations.kind == OpKind.GRAPH
    filling, matrix = np.zeros_like(graphs), np.zeros_like(graphs)
    filling[kernels[(blocks == 0) | (blocks >= filled)]] = True
    matrix[work.kernels_of((*MATMULS, *ATTENTIONS))] = True
    least = min(memory, arithmetic)
    slow = [Step(Faster(filling | graphs, least), predictor.everywhere)]
    fast = [
        Step(Faster((subject.kernels | graphs) & ~matrix, max(memory, 1.0)), predictor.everywhere),
        Step(Faster(matrix, max(arithmetic, memory)), predictor.everywhere),
    ]
    measured = predictor.measured_ns[subject.device]
    after = [predictor.windows(*steps)[subject.device] for steps in (slow, fast)]
    low, high = sorted(max(measured - window, 0) for window in after)
    then = predictor.next_bounds(*slow)[subject.device]
    following = f", then {BOUND_LABEL[then]}" if then and then != subject.part.verdict.bound else ""
    speed_ups = sorted(measured / max(window, 1) for window in after)
    times = (
        f"{speed_ups[0]:.1f}"
        if f"{speed_ups[0]:.1f}" == f"{speed_ups[1]:.1f}"
        else f"{speed_ups[0]:.1f} to {speed_ups[1]:.1f}"
    )
    because = (
        f"on {_article(bigger.name)} {bigger.name} about {times} times as fast{following} (peaks: memory "
        f"{memory:.1f} times, {precision.upper()} {arithmetic:.1f} times those of {_article(today.name)} {today.name};"
        f" {bigger.source})"
    )
    if subject.is_in_graphs:
        low, because = 0, f"{because}, if it is kernels that take the graphs' time"
    return Told(because, (low, high), rank=BOUGHT)


def _quoted(scenario: str) -> str:
    """For a shell, always in quotes."""
    return f"'{scenario}'" if "'" not in scenario else shlex.quote(scenario)


def _article(name: str) -> str:
    """By the sound of its first letter: an A100, an H100, an RTX 3090; a T4."""
    return "an" if name[0] in "AFHILMRSX" and not name.startswith("TITAN") else "a"


def _precision(subject: Subject, today: Gpu) -> str:
    """That in which most matrix time is spent; FP32 where there is none."""
    kind = max(_PRECISION, key=lambda kind: (subject.kind_share(kind), -kind))
    precision = _PRECISION[kind] if subject.kind_share(kind) > 0 else "fp32"
    return "fp16" if precision == "bf16" and today.bf16_tflops is None else precision


def _arithmetic(today: Gpu, other: Gpu, precision: str) -> float:
    """The ratio of peaks."""
    return (other.tflops(precision) or other.fp32_tflops) / (today.tflops(precision) or today.fp32_tflops)


def _quantize(subject: Subject) -> Told | None:
    if subject.is_part or subject.kind_share(*MATMULS, *ATTENTIONS) < MATRIX_SHARE:
        return None
    return Told("no number: what it saves depends on the model, not on the trace")


# CUDA API


def _graphs(subject: Subject) -> Told | None:
    if found := subject.found("cuda-graphs"):
        return found
    because = "no sequence of launches was found whose repetition is worth a graph"
    return None if subject.is_part else Told(because, applies=False)


def _larger_batch(subject: Subject) -> Told | None:
    if found := subject.found("small-batch", "small-chunks"):
        return found
    median = subject.part.kernels.median_ns
    if subject.is_part or median is None:
        return None
    if median > SMALL_KERNEL_NS:
        return Told(f"the median kernel takes {duration(median)}: it would grow with the batch", applies=False)
    whole = subject.context.saving(("cuda_api",))
    saving = None if whole is None else (round(whole[0] * BATCH_LEAST), round(whole[1] * BATCH_MOST))
    because = f"the median kernel takes {duration(median)}; twice the work in each launch needs half as many of them"
    because = because if saving else f"no number: {because}"
    return Told(because, saving)


def _fewer(subject: Subject) -> Told | None:
    found = subject.found("unfused-elementwise", "unfused-attention", "launch-overhead")
    if found or subject.is_part:
        return found
    return Told("no chains of small kernels, nor loops over tensors, that are worth a change were found", applies=False)


def _fused_optimizer(subject: Subject) -> Told | None:
    if found := subject.found("unfused-optimizer"):
        return found
    if subject.is_part or not subject.context.program.is_python:  # others have no optimizer
        return None
    return Told("no optimizer that updates tensor by tensor was found", applies=False)


def _compiled_loop(subject: Subject) -> Told | None:
    if not subject.context.program.is_python:
        return None
    return subject.replayed("no_launch_overhead", "what all launching costs, the framework's dispatch included")


# Synchronization


def _remove_waits(subject: Subject) -> Told | None:
    found = subject.found("sync-operator", "sync-call", "sync-readback", "sync-polling", "sync-allocation")
    if subject.is_part:
        return found or subject.at_most("with all waits in it gone")
    chain, sync = wait_chain(subject.context), subject.part.sync
    whole = subject.context.saving(("sync",))
    if found and found.saving_ns and whole:
        because = f"{found.because}; one after the other: {chain.text}" if chain.text else found.because
        saving = (min(found.saving_ns[0], whole[1]), max(found.saving_ns[1], whole[1]))
        return found._replace(because=because, saving_ns=saving)
    told = chain.text or f"{count(sync.count)} syncs block the host for {duration(sync.blocked_ns)}"
    return found or subject.replayed("no_sync", told)


def _read_later(subject: Subject) -> Told | None:
    if found := subject.found("sync-readback"):
        return found
    readbacks = subject.part.memcpy.get("DtoH")
    small = readbacks.small_count if readbacks else 0
    if subject.is_part or not small:
        return None if subject.is_part else Told("no small value is read back", applies=False)
    return Told(f"no number of its own: {count(small)} small copies to the host; see the waits above")


def _pinned_copies(subject: Subject) -> Told | None:
    return _pageable(subject, "sync-pageable-copy", "pageable-copy")


def _pageable(subject: Subject, *rules: str) -> Told | None:
    if found := subject.found(*rules):
        is_elsewhere = found.action and not _PINNING.search(found.action)
        return found._replace(title="Make the data on the device, not on the host") if is_elsewhere else found
    if subject.is_part:
        return None
    copies = subject.part.memcpy.values()
    pageable, number = sum(one.pageable_count for one in copies), sum(one.count for one in copies)
    if not pageable:
        return Told(f"no copy is from or to pageable memory ({count(number)} copies)", applies=False)
    return Told(f"no number: {count(pageable)} of {count(number)} copies are pageable, and cost less than 1 %")


def _one_side(subject: Subject) -> Told | None:
    if subject.is_part:
        return None
    told = subject.replayed("no_sync+cpu_free", "with no syncs and no host code between them")
    return told._replace(causes=frozenset((Cause.SYNC.key, Cause.CPU.key)))


def _de_interleave(subject: Subject) -> Told | None:
    if subject.is_part:
        return None
    return subject.replayed("no_sync", "with all waits gone, so that the host stays ahead of the device")


# CPU


def _move_to_device(subject: Subject) -> Told | None:
    return subject.found("operator-on-cpu")


#: What to call the response to host code that nothing on record names.
UNSEEN_WORK = "Find out what the host runs"
#: What to call the response to batches that the launching thread makes itself.
LOAD_BESIDE = "Prepare the next batch in other processes or threads"


def title_of_work(item: Finding) -> str:
    """What to call the response to the host's own work: by the function that samples show, else how to find it."""
    function = item.evidence.get("hottest_function")
    if function == "main":
        return "Find out which lines of main take the time"
    return f"Speed up {function}, or take it off the path to the GPU" if function else UNSEEN_WORK


def _read_back(subject: Subject) -> Told | None:
    return subject.found("managed-read-back")


def _vectorise(subject: Subject) -> Told | None:
    return None if is_in_operators(subject.context) else _own_work(subject)


def _fewer_operators(subject: Subject) -> Told | None:
    return _own_work(subject) if is_in_operators(subject.context) else None


#: Rules that speak of the host's own time, each of a part of its own.
_OWN_TIME = ("host-phase", "managed-read-back", "host-input", "input-between-steps")


def _own_work(subject: Subject) -> Told | None:
    is_known = is_in_operators(subject.context)
    if found := subject.found("host-work"):
        item = next(
            item for item in subject.findings if item.rule == "host-work" and found.because.startswith(item.title)
        )
        title = "" if is_known else title_of_work(item)
        return found._replace(title=title, is_search=title == UNSEEN_WORK)
    told = subject.replayed("cpu_free", "the GPU idles while the host runs its own code")
    if is_known or told.saving_ns is None:
        return told
    if not told.saving_ns[1]:
        return told
    of_others = [item.saving_ns[1] for item in subject.findings if item.rule in _OWN_TIME and item.saving_ns]
    rest_ns = max(told.saving_ns[1] - sum(of_others), 0)
    if rest_ns < subject.context.least_ns:
        return Told("what other findings name is nearly all of the host code", applies=False)
    beside = f", {duration(rest_ns)} of it beside what has a finding of its own" if of_others else ""
    return told._replace(
        saving_ns=(0, rest_ns), because=f"{told.because}{beside}", command="", title=UNSEEN_WORK, is_search=True
    )


def _overlap(subject: Subject) -> Told | None:
    """Two that run side by side take as long as the longer: no more is saved than the device works."""
    if found := subject.found("host-input"):
        return found._replace(title=LOAD_BESIDE)
    found, busy_ns = subject.found("host-phase"), subject.busy_ns
    if found and found.saving_ns and found.saving_ns[1] <= busy_ns:
        return found
    if subject.is_part:
        return None
    if busy_ns < subject.context.least_ns:
        return Told(f"the device works for {duration(busy_ns)}: nothing can hide behind that", applies=False)
    told = subject.replayed("cpu_free", "at most the GPU's own busy time can be overlapped")
    return _limited(told, busy_ns)


def _limited(told: Told, most_ns: int) -> Told:
    """Between nothing and so much, of which no scenario knows."""
    if told.saving_ns is None or told.saving_ns[1] <= most_ns:
        return told
    return told._replace(saving_ns=(0, most_ns), command="")


def _threads(subject: Subject) -> Told | None:
    return subject.found("preempted")


# Input

# Where the wait is not, or not for certain, for a batch.
_SHORTER_WAIT = "Shorten what the launching thread waits for"


def _title_of_sleep(rule: str, advice: str) -> str:
    """What to call the response to a wait that a rule found; empty: as the page does, for a batch."""
    if advice == ON_PURPOSE:
        return "Wait for an event instead of sleeping"
    return _SHORTER_WAIT if rule == "host-wait" else ""


def _workers(subject: Subject) -> Told | None:
    if found := subject.found("host-input", "host-wait", "input-between-steps"):
        rule = found.command.removeprefix("boundby explain ")
        return found._replace(title=_title_of_sleep(rule, found.action))
    told = subject.replayed("input_free", "if the launching thread were never blocked while the GPU idles")
    return told._replace(title=_SHORTER_WAIT)


def _external_pace(subject: Subject) -> Told | None:
    return subject.found("external-pace")


def _has_batches(subject: Subject) -> bool:
    """Whether anything tells of batches: a program that only sleeps may wait for a message, or a lock."""
    return subject.context.program.is_python or any(map(subject.tells, _INPUT))


def _prefetch(subject: Subject) -> Told | None:
    if subject.is_part or not _has_batches(subject):
        return None
    for item in subject.findings:
        busy = item.evidence.get("worker_processes_cpu_utilization_fraction")
        if item.rule == "host-input" and isinstance(busy, float):
            if busy >= SATURATED:
                behind = f"the workers run at {percent(busy)}: they are behind on average, and no queue is long enough"
                return Told(behind, applies=False)
            break
    because = "if batches were ready in time; workers that are too slow on average gain less"
    return subject.replayed("input_free", because)


def _persistent(subject: Subject) -> Told | None:
    starts = [item for item in subject.findings if item.advice and "persistent_workers" in item.advice[0]]
    if found := replace(subject, findings=tuple(starts)).found("host-phase"):
        return found
    if subject.is_part or not _has_batches(subject):
        return None
    return Told("no number: the trace does not tell where epochs begin")


def _pinned_input(subject: Subject) -> Told | None:
    return _pageable(subject, "pageable-copy", "sync-pageable-copy") if _has_batches(subject) else None


def _decode(subject: Subject) -> Told | None:
    if subject.is_part or not isinstance(subject.part, DeviceReport) or not _has_batches(subject):
        return None
    busy = subject.part.gpu_utilization
    return Told(
        f"no number: the GPU is busy {percent(busy)}, so that it has time for decoding"
        if busy < LOW_UTILIZATION
        else f"the GPU is busy {percent(busy)}: it has little time left for decoding",
        applies=busy < LOW_UTILIZATION,
    )


# Copies


def _keep(subject: Subject) -> Told | None:
    if found := subject.found("repeated-transfer"):
        return found
    return None if subject.is_part else Told("no data that go to the host and come back were found", applies=False)


def _pinned(subject: Subject) -> Told | None:
    return _pageable(subject, "pageable-copy", "sync-pageable-copy", "copy-bandwidth")


def _overlap_copies(subject: Subject) -> Told | None:
    if found := subject.found("copy-overlap"):
        return found
    if subject.is_part:
        return None
    told = subject.replayed("copies_overlapped", "copies beside the kernels, as long as they take")
    return _limited(told, min(subject.part.time[cause.key] for cause in (Cause.GPU_COMPUTE, Cause.GPU_COPY)))


def _larger_pieces(subject: Subject) -> Told | None:
    if found := subject.found("copy-bandwidth"):
        return found
    copied = subject.part.copied
    if subject.is_part or not copied.count:
        return None
    each = copied.bytes / copied.count
    if each >= SMALL_PIECE:
        return Told(f"copies are {size(each)} each on average: large enough", applies=False)
    return Told(f"no number: {count(copied.count)} copies of {size(each)} each on average")


def _half_bytes(subject: Subject) -> Told | None:
    if subject.is_part:
        return subject.at_most("at most: copies in it gone")
    return subject.replayed("copies=2", "copies of half the bytes take half as long", ceiling=False)


def _managed(subject: Subject) -> Told | None:
    if found := subject.found("managed-memory"):
        return found
    return None if subject.is_part else Told("hardly any managed memory moves", applies=False)


# Communication


def _overlap_comm(subject: Subject) -> Told | None:
    if found := subject.found("comm-exposed"):
        return found
    return subject.replayed("comm_overlapped", "communication beside the kernels, as long as it takes")


def _fewer_bytes(subject: Subject) -> Told | None:
    if subject.is_part:
        return None
    return subject.replayed(
        "comm=2", "half the bytes; a ceiling, since part of a collective's length is waiting for others"
    )


def _buckets(subject: Subject) -> Told | None:
    return None if subject.is_part else Told("no number: sizes of messages are not in the trace; compare two captures")


def _balance(subject: Subject) -> Told | None:
    if found := subject.found("comm-straggler"):
        return found
    return (
        None if subject.is_part else Told("no number: one rank's trace does not tell who came last; capture all ranks")
    )


# Initialization

_PART_OF_START = "no number of its own: it is part of the start above"


def _warm_up(subject: Subject) -> Told | None:
    if found := subject.found("lazy-initialization"):
        return found
    for item in subject.findings:
        if item.rule == "lazy-initialization" and "warm_up_of_window_fraction" in item.evidence and not subject.is_part:
            share = item.evidence["warm_up_of_window_fraction"]
            part = f"{percent(share)} of the window" if isinstance(share, float) else "part of the window"
            because = f"{part} is set-up and warm-up by name, which a longer run does not pay again"
            command, title = f"boundby explain {item.rule}", "Look at what comes after the warm-up"
            return Told(because, action=item.advice[0], command=command, rank=FOUND, title=title)
    told = subject.replayed("init_free", "what a program that has warmed up no longer pays")
    compiled = subject.found("jit-compilation")  # a cache spares the next run its compiling, without any warm-up
    return told if compiled is None else told._replace(action=compiled.action)


def _lazy(subject: Subject) -> Told | None:
    if subject.is_part:
        return None
    if not subject.tells("lazy-initialization"):
        return Told("no loading of code or start of libraries worth 1 % was found", applies=False)
    starts = [item.evidence for item in subject.findings if item.rule == "lazy-initialization"]
    if all(one.get("allocation_ns", 0) == one.get("total_ns") for one in starts):
        return Told("allocations and pinning take all of it, no code is loaded", applies=False)
    return Told(_PART_OF_START)


def _allocator(subject: Subject) -> Told | None:
    if found := subject.found("allocation", "sync-allocation"):
        return found
    if subject.is_part:
        return None
    if subject.tells("lazy-initialization"):  # which counts allocations of the start
        return Told(_PART_OF_START)
    return Told("allocations cost less than 1 % of the time", applies=False)


Ask = Callable[[Subject], Told | None]
#: By bound, for every response of its page.
_ASKED: Mapping[str, Mapping[str, Ask]] = {
    "gpu_compute": {
        "lower-precision": _lower_precision,
        "fuse": _fuse,
        "better-kernels": _better_kernels,
        "bigger-gpu": _bigger_gpu,
        "quantize-or-prune": _quantize,
    },
    "cuda_api": {
        "cuda-graphs": _graphs,
        "larger-batch": _larger_batch,
        "fewer-operations": _fewer,
        "fused-optimizer": _fused_optimizer,
        "compiled-loop": _compiled_loop,
    },
    "sync": {
        "remove-waits": _remove_waits,
        "read-back-later": _read_later,
        "pinned-copies": _pinned_copies,
        "one-side": _one_side,
        "de-interleave": _de_interleave,
    },
    "cpu": {
        "move-to-device": _move_to_device,
        "managed-memory": _read_back,
        "vectorise": _vectorise,
        "fewer-operators": _fewer_operators,
        "overlap": _overlap,
        "threads": _threads,
    },
    "host_blocked": {
        "workers": _workers,
        "external-pace": _external_pace,
        "prefetch": _prefetch,
        "persistent-workers": _persistent,
        "pinned-input": _pinned_input,
        "decode-on-device": _decode,
    },
    "gpu_copy": {
        "keep-on-device": _keep,
        "pinned": _pinned,
        "overlap-copies": _overlap_copies,
        "larger-pieces": _larger_pieces,
        "half-the-bytes": _half_bytes,
        "managed-memory": _managed,
    },
    "gpu_comm": {
        "overlap-comm": _overlap_comm,
        "fewer-bytes": _fewer_bytes,
        "bucket-size": _buckets,
        "balance": _balance,
    },
    "init": {"warm-up": _warm_up, "lazy-loading": _lazy, "allocator": _allocator},
}


def _without_pattern(subject: Subject) -> Iterable[FirstResponse]:
    """No cause stands out: what would tell more, and what there is to gain all the same."""
    part = subject.part
    if span := _SPAN.search(part.verdict.why_not or ""):
        yield FirstResponse(
            "unknown.span",
            "Analyse only the span that holds the work",
            because="nearly all of this window is one gap",
            needs="nothing",
            caution="the gap itself is the question",
            command=f"boundby analyze {subject.report_name} {span[0]}",
        )
    yield from _best_findings(subject)
    share = part.time["device_wait"] / subject.window_ns
    if share >= UNSEEN_SHARE:
        yield FirstResponse(
            "unknown.device-wait",
            "Look at what launched work waits for on the device",
            because=f"launched work waits {percent(share)} of the time: for a stream, an event, or clocks that wake up",
            needs="a timeline: Perfetto, or the Nsight Systems window",
            caution="no change to the program is known to remove it",
            command=f"boundby analyze {subject.report_name} -o timeline.pftrace{subject.options}",
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
    yield from _capture_again(lacking, "under nsys", "")


def _capture_again(lacking: Sequence[str], how: str, options: str) -> Iterator[FirstResponse]:
    if lacking:
        yield FirstResponse(
            "unknown.capture",
            "Capture what this trace lacks, and analyse again",
            because=f"the trace cannot tell more without {', '.join(lacking)}",
            needs=f"another run {how}",
            caution="the run cannot be repeated",
            command=f"boundby profile {options}-- PROGRAM",
        )


def _profile_more(context: RuleContext) -> Iterator[FirstResponse]:
    """The same of a trace of PyTorch's profiler, which can hold more than this one does."""
    captured = context.trace.captured
    kinds = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
    lacking = [
        setting
        for setting, is_there in (
            (kinds, captured.kernels and captured.cuda_api),
            ("with_stack=True", captured.python_stacks),
            (f"experimental_config={SYNC_EVENTS}", captured.sync or not captured.kernels or context.trace.is_of_amd),
        )
        if not is_there
    ]
    nsys = "" if context.trace.is_of_amd else ", or under nsys, which knows what the operating system does too"
    yield from _capture_again(lacking, f"under torch.profiler{nsys}", "--with torch --torch-record stacks,shapes ")


def _with_best_finding(
    subject: Subject, made: tuple[FirstResponse, ...], told: Sequence[Told]
) -> tuple[FirstResponse, ...]:
    """The best finding is told with the responses, whatever it is of: first, if it saves more than they."""
    best = next((item for item in subject.findings if item.saving_ns and item.severity != "note"), None)
    if best is None or any(one.command.endswith(f"explain {best.rule}") for one in told):
        return made
    weight = 2 * best.saving_ns[0] + best.saving_ns[1] if best.saving_ns else 0
    most = max((-_rank(one)[1] for one in told if _rank(one)[0] < BOUGHT), default=0)
    rule, bounds = _rules().get(best.rule), subject.part.verdict.mixed_of or (subject.part.verdict.bound,)
    is_other = rule is not None and bool(rule.takes) and not rule.takes & {*bounds}
    other = _of_finding(
        best, "finding", "of another kind than the verdict" if is_other else "the best finding", subject
    )
    # What is tried first is of the verdict's kind, where anything of that kind was found or saves.
    has_own = most > 0 or any(one.applies and one.rank == FOUND for one in told)
    leads = weight > most and not (is_other and has_own)
    return (other, *made) if leads else (*made[:1], other, *made[1:])


@cache
def _rules() -> Mapping[str, Rule]:
    return {rule.id: rule for rule in builtin()}


def _best_findings(subject: Subject) -> Iterator[FirstResponse]:
    for item in [item for item in subject.findings if item.saving_ns and item.severity != "note"][:2]:
        yield _of_finding(item, "unknown", "the best finding", subject)


def _in(item: Finding) -> str:
    """Where a finding lies, behind its title: `` (in step/loss)``."""
    return f" (in {'/'.join(item.region[-2:])})" if item.region else ""


def _remedy_of(item: Finding, subject: Subject) -> str:
    """What the page of some pattern calls the response that this finding numbers; empty where none does."""
    alone = replace(subject, findings=(item,), predictor=None)
    for bound, asked in _ASKED.items():
        for name, ask in asked.items():
            told = ask(alone)
            if told is not None and told.command == f"boundby explain {item.rule}":
                return told.title or patterns.pattern(bound).remedy(name).title
    return ""


def _of_finding(
    item: Finding, prefix: str, because: str, subject: Subject | None = None, *, title: str = ""
) -> FirstResponse:
    told = f"{item.title}{_in(item)}"
    remedy = title or (_remedy_of(item, subject) if subject is not None else "")
    return FirstResponse(
        f"{prefix}.{item.rule}",
        remedy or told,
        item.saving_ns,
        because=(f"{told} ({because})" if because else told) if remedy else because,
        action=item.advice[0] if item.advice else "",
        command=f"boundby explain {item.rule}",
    )
