"""First responses that neither a rule nor one scenario of the replay numbers, each with a question of its own; and
what they are for, a device or a region, with what its findings and a replay say of a change."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from boundby.claims.laws import Claim, ClaimedSaving, Wholes
from boundby.claims.signs import LOW_UTILIZATION, MANY_SYNCS_PER_MS, Part
from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import Bool, Rows, RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work, kernel_name
from boundby.evidence.feeders import SATURATED
from boundby.evidence.host_idleness import is_in_operators
from boundby.evidence.initialization import warm_up_code
from boundby.evidence.kernels import (
    is_slow_double,
    is_training,
    kernel_search,
    kernel_word,
    launches_profiled,
    limits,
    ready_made,
    shape,
)
from boundby.evidence.latecomers import is_exchange
from boundby.evidence.launches import items
from boundby.evidence.transfers import beside_copies
from boundby.evidence.waits import wait_chain
from boundby.model.causes import BOUND_LABEL, BUSY_CAUSES, NOUN, SCENARIO_OF_CAUSE, Cause
from boundby.model.gpus import Gpu, all_gpus, find_gpu
from boundby.model.intervals import union
from boundby.model.scale import COLUMN, HALF, HARDLY, NEARLY_ALL, NOTABLE, QUARTER, SMALL
from boundby.model.units import (
    count,
    duration,
    duration_range,
    is_nothing_beside,
    is_placed,
    percent,
    percent_range,
    place,
    size,
)
from boundby.replay.predictor import Predictor, ReplayStep
from boundby.replay.questions import answer
from boundby.replay.removals import Faster
from boundby.results.report import CodeLine, DeviceReport, Finding, RegionReport, Steady
from boundby.rules import remedies
from boundby.rules.builtin import builtin
from boundby.rules.remedies import Remedy, common_facts
from boundby.rules.rule import Rule
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import ATTENTIONS, MATMULS, KernelKind, is_library_kernel, kernel_label

SavingNs = tuple[int, int]
# What is tried first: what takes one command, what a rule has found, what only a replay says, what has to be bought.
AT_ONCE = -1
FOUND, REPLAYED, BOUGHT, UNNUMBERED, NOTHING = range(5)


class Told(NamedTuple):
    """What this trace says of one remedy."""

    because: str
    saving_ns: SavingNs | None = None
    action: str = ""
    command: str = ""
    rank: int = REPLAYED
    title: str = ""  # of what was found; empty: the remedy's
    code: str = ""
    where: CodeLine | None = None
    rule: str = ""  # that found it
    is_guess: bool = False  # the saving: it ranks, and is not told
    is_shown: bool = True  # the trace shows what is wrong; False: somebody has to look for it
    other: str = ""  # the cause, where it is another than the verdict's
    causes: frozenset[str] | None = None  # of which it takes time; empty: of any; None: its rule's, else its pattern's


class Subject(Struct, frozen=True, kw_only=True, dict=True):
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
        rule = rules().get(told.rule)
        causes = told.causes
        if causes is None:
            causes = (rule.takes if rule is not None else frozenset()) or frozenset((bound,))
        region = self.part.path if isinstance(self.part, RegionReport) else None
        claim = Claim(bound, causes, ClaimedSaving(*told.saving_ns), region)
        saving = self.wholes.closed(claim, None if self.is_part else [self.device_id])
        because = f"{told.because}{self._beside(bound, causes, saving.high_ns)}"
        return told._replace(saving_ns=(saving.low_ns, saving.high_ns), because=because)

    def _beside(self, bound: str, causes: frozenset[str], most_ns: int) -> str:
        """What else becomes shorter, where a change saves more than all time of the verdict's cause."""
        others = [NOUN[cause] for cause in sorted(causes - {bound}) if cause in NOUN]
        if self.is_part or not others or bound not in causes or bound != self.part.verdict.bound:
            return ""
        own = self.wholes.of({bound}, [self.device_id])
        return f"; this change shortens {' and '.join(others)}, too" if most_ns > own.high_ns else ""

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

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """What every row of the table may name."""
        return common_facts(self.context.trace, self.context.program)

    def code(self, row: Remedy) -> str:
        """A remedy as code, where no finding gives it."""
        return row.code(self.context.program, self.facts, is_of_amd=self.context.trace.is_of_amd)

    def what_if(self, scenario: str) -> str:
        """The command that answers a question; the scenario always in quotes."""
        quoted = f"'{scenario}'" if "'" not in scenario else shlex.quote(scenario)
        return f"boundby what-if {self.facts['report']} -s {quoted}{self.options}"

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

    def found(self, remedy: str) -> Told | None:
        """What the best finding says that asks for this remedy."""
        best = max((item for item in self.findings if _saves(item) and item.remedy == remedy), key=weight, default=None)
        return None if best is None else self.of_finding(best)

    def of_finding(self, item: Finding) -> Told:
        """What a finding says."""
        told = Told(
            item.title if self.is_part else f"{item.title}{within(item)}",
            item.saving_ns,
            item.advice[0] if item.advice else "",
            f"boundby explain {item.rule}",
            rank=FOUND,
            title=item.change,
            code=item.code,
            where=item.where,
            rule=item.rule,
        )
        if item.remedy == "cpu.start-once" and self.is_mostly_start:
            code = f"{self.facts['sample']}  # with more steps"
            told = told._replace(title="Record a longer run: this one is mostly start-up", code=code)
        return told

    @property
    def is_mostly_start(self) -> bool:
        """After its first part, initialization bounds every other one: none shows what a longer run does."""
        phases = self.part.phases if isinstance(self.part, DeviceReport) else ()
        return len(phases) > 1 and all(phase.bound == Cause.INIT.key for phase in phases[1:])

    def tells(self, *of_rules: str) -> bool:
        """Whether one of these rules has found anything, be it a note that saves nothing."""
        return any(item.rule in of_rules for item in self.findings)

    def replayed(self, scenario: str, because: str, *, ceiling: bool = True) -> Told:
        """The answer to a question of ``boundby what-if``. ``ceiling``: at most so much, perhaps nothing."""
        if self.predictor is None or self.is_part:
            return self.at_most(because)
        predicted = [
            item for item in self.context.what_if if item.scenario == scenario and item.device == self.device_id
        ]
        item = predicted[0] if predicted else answer(self.predictor, scenario, tells_next=False)[self.device]
        low, high = item.saving_ns
        verdict = self.part.verdict
        if verdict.saving_range_ns and scenario == SCENARIO_OF_CAUSE.get(verdict.bound):
            high = min(high, verdict.saving_range_ns[1])  # as the verdict tells it
        saving = (0 if ceiling else max(low, 0), max(high, 0))
        return Told(because, saving, command=self.what_if(scenario) if high > 0 else "")

    def at_most(self, because: str) -> Told:
        """Without a replay of its own: at most what the verdict says."""
        saving = self.part.verdict.saving_ns
        return Told(because, None if saving is None else (0, saving))

    @property
    def no_replay(self) -> str:
        """Why nothing tells what a change would save, where nothing can be replayed."""
        why = None if self.context.savings is None else self.context.savings.unreliable
        return why or "this trace cannot be replayed"

    def speed(self, rows: Bool, least: float, most: float, because: str, scenario: str) -> Told:
        """With these operations faster."""
        saving = None if self.is_part else self.context.saving_by_speed(rows, least, most)
        if saving is None and not self.is_part:
            return Told(f"{because}; no saving is told: {self.no_replay}")
        return Told(because, saving, command=self.what_if(scenario) if saving and scenario else "")


def weight(item: Finding) -> int:
    """How much a finding saves: what is sure counts twice."""
    low, high = item.saving_ns or (0, 0)
    return 2 * low + high


def _saves(item: Finding) -> bool:
    return item.severity != "note"


def within(item: Finding) -> str:
    """Where a finding lies, behind its title: `` (in step/loss)``; empty where that says so."""
    return f" (in {place(item.region)})" if item.region and not is_placed(item.title, item.region) else ""


@cache
def rules() -> Mapping[str, Rule]:
    """boundby's own, by id."""
    return {rule.id: rule for rule in builtin()}


_ONE_SIDE = frozenset((Cause.SYNC.key, Cause.CPU.key))
# A kernel made faster by hand: a quarter is often found, twice as fast sometimes. It ranks, and is not told.
KERNEL_LEAST = 1 + QUARTER
KERNEL_MOST = 2.0
A_TENTH_OFF = 1 / (1 - NOTABLE)  # times as fast
# A third more work in each saves a quarter of the launches, twice as much half of them.
BATCH_LEAST, BATCH_MOST = QUARTER, HALF
WORTH_BUYING = 1 + QUARTER  # times the peaks of the GPU in use
LONGEST_NAME = COLUMN  # characters: a longer kernel is named by the command alone
MATRIX_SHARE = SMALL  # of kernel time: less is no model whose precision could be lowered
_HALF = (KernelKind.MATMUL_TENSOR, KernelKind.ATTENTION)
_PRECISION = {KernelKind.MATMUL_FP32: "fp32", KernelKind.MATMUL_TF32: "tf32", KernelKind.MATMUL_TENSOR: "bf16"}
MUCH_ONCE = QUARTER  # of the window: what comes after it is worth a look of its own
#: Rules that show that the host waits for the next batch.
INPUT = ("host-input", "input-between-steps")
# Rules that speak of the host's own time, each of a part of its own.
_OWN_TIME = ("host-phase", "managed-read-back", *INPUT)


def _lower_precision(subject: Subject) -> Told | None:
    if subject.is_part or subject.is_in_graphs or subject.found("gpu_compute.lower-precision"):
        return subject.found("gpu_compute.lower-precision")
    matrix = subject.kind_share(*MATMULS, *ATTENTIONS)
    if matrix < MATRIX_SHARE or subject.kind_share(*_HALF) > matrix / 2:
        return None
    return Told("no number: the kernels' names do not show their precision")


class _TopKernel(Struct, frozen=True):
    """The kernel with the most time: what making it faster by hand would save, and what its rows say."""

    name: str  # as it is shown
    symbol: str
    share: str
    is_slow_double: bool
    rows: Rows
    told: Told


def _top_kernel(subject: Subject) -> _TopKernel | None:
    top = subject.part.kernels.top
    if subject.is_part or not top:
        return None
    context, work = subject.context, device_work(subject.context)
    of_label = context.names_where(
        context.operations.name[subject.kernels], lambda name: kernel_label(name) == top[0].name
    )
    alike = subject.kernels & of_label[context.operations.name]
    own = subject.kernels & (context.operations.device == subject.device_index)
    chosen = np.flatnonzero(alike & own)
    if not len(chosen):
        return None
    share = _of_kernel_time(context, np.flatnonzero(own), int(work.duration_ns[chosen].sum()))
    name = kernel_name(context, int(chosen[0]))
    seen = "".join(f"; {limit}" for limit in limits(context, chosen))
    tenth = context.saving_by_speed(alike & own, A_TENTH_OFF, A_TENTH_OFF)
    if tenth is not None and tenth[1]:
        most_ns = round(NOTABLE * int(work.duration_ns[chosen].sum()))  # whatever the replay's error
        tenth = min(tenth[0], most_ns), min(tenth[1], most_ns)
        saved = f"up to {duration(tenth[1])}" if is_nothing_beside(*tenth) else duration_range(*tenth)
        of_window = percent_range(*(ns / subject.window_ns for ns in tenth))
        share += f" (each {percent(NOTABLE)} off it saves {saved}, {of_window} of the window)"
    took = duration(int(work.duration_ns[chosen].sum()))
    # The title has a short name, and the command a long one.
    because = f"it takes {took}, {share}, in {shape(context, chosen)}{seen}{_beside_others(subject)}"
    # A plus would join two scenarios; and a scenario makes it faster on other GPUs, too.
    is_asked = "+" not in name and len(chosen) == int(alike.sum())
    asked = f"kernel:{name}={KERNEL_MOST:g}" if is_asked else ""
    answer = subject.speed(alike & own, KERNEL_LEAST, KERNEL_MOST, because, asked)
    where = line_of_calls(context, context.calls.of_operation[chosen], work.duration_ns[chosen])
    symbol = context.trace.names[context.operations.name[chosen[0]]]
    answer = answer._replace(where=where, is_shown=bool(seen), is_guess=True)
    return _TopKernel(name, symbol, share, is_slow_double(context, int(chosen[0])), chosen, answer)


def _beside_others(subject: Subject) -> str:
    """What has to become shorter as well, where a mixed verdict names what the device does side by side."""
    verdict = subject.part.verdict
    others = [
        key for key in verdict.mixed_of or () if key != Cause.GPU_COMPUTE.key and Cause[key.upper()] in BUSY_CAUSES
    ]
    is_mixed = verdict.bound == "mixed" and others
    return f"; a faster kernel saves little unless {NOUN[others[0]]} gets shorter, too" if is_mixed else ""


def _of_kernel_time(context: RuleContext, rows: Rows, part_ns: int) -> str:
    """``46 % of kernel time``; of kernels that overlap that is their summed time. Communication is no part of it."""
    start, end = context.operations.start_ns[rows], context.operations.end_ns[rows]
    summed_ns = int((end - start).sum())
    overlap_ns = summed_ns - union(start, end).total
    whose = "the compute kernels' summed time" if overlap_ns > SMALL * summed_ns else "kernel time"
    return f"{percent(part_ns / max(summed_ns, 1))} of {whose}"


def _changed(subject: Subject, remedy: str, top: _TopKernel, **facts: str) -> Told:
    row, search = remedies.by_key()[remedy], kernel_search(subject.context, top.name)
    figures = {
        **subject.facts,
        **facts,
        "kernel": kernel_word(top.name),
        "search": search,
        "launches": launches_profiled(subject.context, top.name, top.rows),
    }
    code = row.code(subject.context.program, figures, is_of_amd=subject.context.trace.is_of_amd)
    return top.told._replace(title=row.words({**figures, "kernel": top.name}), code=code)


def _better_kernels(subject: Subject) -> Told | None:
    """What its grid, its types and its durations tell, and the command that tells the rest."""
    answer, top = subject.found("gpu_compute.better-kernels"), _top_kernel(subject)
    if top is None:
        return answer
    changed = _changed(subject, "gpu_compute.better-kernels", top)
    return changed if len(top.name) <= LONGEST_NAME else changed._replace(title="")


def _single_precision(subject: Subject) -> Told | None:
    top = _top_kernel(subject)
    if top is None or not top.is_slow_double or is_library_kernel(top.symbol):
        return None
    return _changed(subject, "gpu_compute.single-precision", top)


def _library_kernel(subject: Subject) -> Told | None:
    """What its name says that a library has ready."""
    top = _top_kernel(subject)
    ready = ready_made(subject.context, top.symbol) if top is not None else None
    if top is None or ready is None:
        return None
    changed = _changed(subject, "gpu_compute.library-kernel", top, **ready._asdict())
    return changed._replace(because=f"{top.name}, by its name {ready.what}, takes {top.share}")


def _bigger_gpu(subject: Subject) -> Told | None:
    if subject.is_part or not isinstance(subject.part, DeviceReport):
        return None
    context = subject.context
    name, index = subject.part.name, subject.device_index
    multiprocessors = context.trace.gpu_facts[index].multiprocessors if context.trace.gpu_facts else 0
    today = find_gpu(name, multiprocessors or None)
    if today is None:
        return None
    precision = _precision(subject, today)
    bigger = _bigger_than(today, precision)
    if bigger is None:
        return None  # boundby's table holds none
    if subject.predictor is None:
        return Told(f"no number: {subject.no_replay}")
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


def _on_another(subject: Subject, today: Gpu, bigger: Gpu, precision: str) -> Told | None:
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
    slow = [ReplayStep(Faster(filling | graphs, least), predictor.everywhere)]
    fast = [
        ReplayStep(Faster((subject.kernels | graphs) & ~matrix, max(memory, 1.0)), predictor.everywhere),
        ReplayStep(Faster(matrix, max(arithmetic, memory)), predictor.everywhere),
    ]
    measured = predictor.measured_ns[subject.device]
    after = [predictor.windows(*steps)[subject.device] for steps in (slow, fast)]
    low, high = sorted(max(measured - window, 0) for window in after)
    then = predictor.next_bounds(*slow)[subject.device]
    following = f", then {BOUND_LABEL[then]}" if then and then != subject.part.verdict.bound else ""
    speed_ups = sorted(measured / max(window, 1) for window in after)
    if speed_ups[-1] < 1 + SMALL:
        return None  # nobody buys one for that
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


def _engine(subject: Subject) -> Told | None:
    """For inference: it fuses chains and chooses kernels, as two other changes do one by one."""
    if subject.is_part or is_training(subject.context):
        return None
    parts = [subject.found(key) for key in ("gpu_compute.fuse", "gpu_compute.lower-precision")]
    savings = [item.saving_ns for item in parts if item is not None and item.saving_ns is not None]
    if not savings:
        return _quantize(subject)
    saving = max(low for low, _ in savings), min(sum(high for _, high in savings), subject.window_ns)
    return Told("an engine fuses operations and chooses a kernel for each layer, in the precision allowed", saving)


def _quantize(subject: Subject) -> Told | None:
    if subject.is_part or subject.kind_share(*MATMULS, *ATTENTIONS) < MATRIX_SHARE:
        return None
    return Told("no number: what it saves depends on the model, not on the trace")


def _compiled_loop(subject: Subject) -> Told | None:
    """A model that is exported is not trained."""
    row = remedies.by_key()["cuda_api.compiled-loop"]
    return None if is_training(subject.context) else subject.replayed(row.scenario, row.because)


def _larger_batch(subject: Subject) -> Told | None:
    answer, median = subject.found("cuda_api.larger-batch"), subject.part.kernels.median_ns
    if not subject.is_part and items(subject.context) is not None:
        return None  # how many there are is on record
    if answer or subject.is_part or median is None or median > SHORT_KERNEL_NS:
        return answer
    whole = subject.context.saving(("cuda_api",))
    saving = None if whole is None else (round(whole[0] * BATCH_LEAST), round(whole[1] * BATCH_MOST))
    because = f"the median kernel takes {duration(median)}; with twice the work in each launch half as many are needed"
    return Told(because if saving else f"no number: {because}", saving)


def _one_batch(key: str) -> Callable[[Subject], Told | None]:
    """As many items as the trace shows in a step, worked on at once."""

    def told(subject: Subject) -> Told | None:
        context = subject.context
        batch = None if subject.is_part else items(context)
        if batch is None or (saving := batch.saving(context)) is None:
            return None
        row, facts = remedies.by_key()[key], {**subject.facts, "items": count(batch.each)}
        return Told(
            f"{batch.text} (in {place(context.path(batch.region))}); one batch of them needs one round",
            saving,
            title=row.words(facts),
            code=row.code(context.program, facts),
            rank=FOUND if batch.is_named else REPLAYED,
            is_shown=batch.is_named,
            causes=frozenset(),
        )

    return told


def _more_between_waits(subject: Subject) -> Told | None:
    """Twice the work between two waits: half of them are left for the same items."""
    whole = None if subject.is_part else subject.context.saving(("sync",))
    if not whole or items(subject.context) is not None:
        return None
    return Told(
        "with twice the work between two waits the same items need half as many waits",
        (round(whole[0] * BATCH_LEAST), round(whole[1] * BATCH_MOST)),
    )


def _on_cpu(subject: Subject) -> Told | None:
    """Where the GPU's part is small and waits are many: what a program saves that does the kernels' work in no time on
    the CPU is also how long it may take for it."""
    part, kernels = subject.part, subject.part.kernels
    is_small = subject.busy_ns <= QUARTER * subject.window_ns and (kernels.median_ns or 0) <= SHORT_KERNEL_NS
    if subject.is_part or not is_small or (part.sync.per_ms or 0.0) < MANY_SYNCS_PER_MS:
        return None
    replayed = subject.replayed(remedies.by_key()["sync.on-cpu"].scenario, "")
    if not replayed.saving_ns or not replayed.saving_ns[1]:
        return None
    cost = duration(replayed.saving_ns[1])
    because = f"the kernels take {duration(kernels.total_ns)}; with launches, copies and waits they cost {cost}"
    return replayed._replace(because=f"{because}. A CPU that does their work in less time wins", causes=frozenset())


def _read_later(subject: Subject) -> Told | None:
    return _in_chain(subject, subject.found("sync.read-back-later"))


def _remove_waits(subject: Subject) -> Told | None:
    answer = subject.found("sync.remove-waits")
    if subject.is_part:
        return answer or subject.at_most("with all waits in it gone")
    if answer or subject.found("sync.read-back-later"):
        return _in_chain(subject, answer)
    sync = subject.part.sync
    reason = f"{count(sync.count)} syncs block the host for {duration(sync.blocked_ns)}"
    return subject.replayed("no_sync", wait_chain(subject.context).text or reason)


def _in_chain(subject: Subject, found: Told | None) -> Told | None:
    """Waits that a rule found: where they go, the next often waits in their place, so that all of them are the most."""
    whole = subject.context.saving(("sync",))
    if subject.is_part or found is None or found.saving_ns is None or not whole:
        return found
    chain = wait_chain(subject.context)
    because = found.because
    if chain.text:
        because += f"; one after the other: {chain.text}"
    elif whole[1] > (1 + HARDLY) * found.saving_ns[1]:
        because += "; the most is saved if no other wait takes their place"
    saving = (min(found.saving_ns[0], whole[1]), max(found.saving_ns[1], whole[1]))
    return found._replace(because=because, saving_ns=saving)


def _one_side(subject: Subject) -> Told | None:
    """What the host computes between two waits goes to the device: operators that are seen to run there. What else it
    may be nobody knows."""
    row, moved = remedies.by_key()["sync.one-side"], subject.found("cpu.move-to-device")
    if subject.is_part or moved is None or moved.saving_ns is None:
        return None
    replayed = subject.replayed(row.scenario, row.because)
    if replayed.saving_ns is None:
        return None
    saving = (min(moved.saving_ns[0], replayed.saving_ns[1]), replayed.saving_ns[1])
    return moved._replace(saving_ns=saving, title="", command=replayed.command, causes=_ONE_SIDE)


def _own_ns(item: Finding) -> int:
    """The time that a finding speaks of: its saving may be less, where only a part of that can be hidden."""
    idle_ns = item.evidence.get("idle_ns")
    return max(item.saving_ns[1] if item.saving_ns else 0, idle_ns if isinstance(idle_ns, int) else 0)


def _find_host_code(subject: Subject) -> Told | None:
    """What other findings do not name of the host's own code; nothing where samples of it are on record already."""
    answer, is_sampled = subject.found("cpu.find-host-code"), subject.context.trace.captured.cpu_samples
    if answer or is_sampled or is_in_operators(subject.context) or subject.tells("host-work"):
        return answer
    replayed = subject.replayed("cpu_free", "the GPU idles while the host runs its own code")
    if replayed.saving_ns is None or not replayed.saving_ns[1]:
        return None
    of_others = [_own_ns(item) for item in subject.findings if item.rule in _OWN_TIME and item.saving_ns]
    rest_ns = max(replayed.saving_ns[1] - sum(of_others), 0)
    if rest_ns < subject.context.least_ns:
        return None
    beside = f", {duration(rest_ns)} of it in no finding of its own" if of_others else ""
    return replayed._replace(saving_ns=(0, rest_ns), because=f"{replayed.because}{beside}", command="")


def _overlap(subject: Subject) -> Told | None:
    """Two that run side by side take as long as the longer: no more is saved than the device works."""
    if subject.found("cpu.overlap-next-step"):
        return None
    answer, busy_ns = subject.found("cpu.overlap"), subject.busy_ns
    if answer and answer.saving_ns and answer.saving_ns[1] <= busy_ns:
        return answer
    if subject.is_part or busy_ns < subject.context.least_ns:
        return answer
    row = remedies.by_key()["cpu.overlap"]
    return answer or _limited(subject.replayed(row.scenario, row.because), busy_ns)


def _overlap_copies(subject: Subject) -> Told | None:
    answer = subject.found("gpu_copy.overlap-copies")
    if answer or subject.is_part:
        return answer
    row = remedies.by_key()["gpu_copy.overlap-copies"]
    alone_ns = beside_copies(subject.context)[subject.device].kernels_alone_ns
    shorter_ns = min(subject.part.time[Cause.GPU_COPY.key] - _uploads_ns(subject), alone_ns)
    if shorter_ns < subject.context.least_ns:
        return None  # they overlap already
    return _limited(subject.replayed(row.scenario, row.because), shorter_ns)


def _uploads_ns(subject: Subject) -> int:
    """What uploads take that come once, before what they could run beside."""
    uploads = (item for item in subject.findings if item.remedy == "gpu_copy.make-on-device")
    return sum(ns for item in uploads if isinstance(ns := item.evidence.get("exposed_ns"), int))


def _limited(told: Told, most_ns: int) -> Told:
    """Between nothing and so much, of which no scenario knows."""
    if told.saving_ns is None or told.saving_ns[1] <= most_ns:
        return told
    return told._replace(saving_ns=(0, most_ns), command="")


def _half_bytes(subject: Subject) -> Told | None:
    if found := subject.found("gpu_copy.half-the-bytes"):
        return found
    row = remedies.by_key()["gpu_copy.half-the-bytes"]
    if subject.is_part:
        upper = subject.at_most("half the bytes take about half as long")
        return upper if upper.saving_ns is None else upper._replace(saving_ns=(0, upper.saving_ns[1] // 2))
    copies = subject.part.memcpy.values()
    moved, took = sum(copied.bytes for copied in copies), duration(sum(copied.total_ns for copied in copies))
    beside = ", partly side by side" if sum(copied.total_ns for copied in copies) > subject.window_ns else ""
    because = f"copies move {size(moved)} in {took}{beside}, and half the bytes take about half as long"
    return subject.replayed(row.scenario, because, ceiling=False)


def _has_batches(subject: Subject) -> bool:
    """Whether anything tells of batches: a program that only sleeps may wait for a message, or a lock."""
    return subject.context.program.is_python or subject.tells(*INPUT)


def _shorter_wait(subject: Subject) -> Told | None:
    answer = subject.found("host_blocked.shorter-wait")
    if answer or subject.tells(*INPUT, "host-wait"):
        return answer
    row = remedies.by_key()["host_blocked.shorter-wait"]
    return subject.replayed(row.scenario, row.because)


def _prefetch(subject: Subject) -> Told | None:
    if subject.is_part or not _has_batches(subject):
        return None
    inputs = (item for item in subject.findings if item.rule == "host-input")
    busy = (item.evidence.get("worker_processes_cpu_utilization_fraction") for item in inputs)
    if any(isinstance(share, float) and share >= SATURATED for share in busy):
        return None  # workers that are behind on average: no queue is long enough
    row = remedies.by_key()["host_blocked.prefetch"]
    return subject.replayed(row.scenario, row.because)


def _pinned_input(subject: Subject) -> Told | None:
    return subject.found("sync.pinned-copies") or subject.found("gpu_copy.pinned") if _has_batches(subject) else None


def _decode(subject: Subject) -> Told | None:
    part = subject.part
    if not isinstance(part, DeviceReport) or not subject.tells(*INPUT) or part.gpu_utilization >= LOW_UTILIZATION:
        return None
    return Told(f"no number: the GPU is busy {percent(part.gpu_utilization)} of the time, so it has time to decode")


def _communication(key: str, *, is_of_exchanges: bool) -> Callable[[Subject], Told | None]:
    """What speaks of gradients says nothing of sends, receives and all-to-all, and the other way round."""

    def told(subject: Subject) -> Told | None:
        if is_exchange(subject.context) != is_of_exchanges:
            return None
        row, beside = remedies.by_key()[key], subject.part.communication
        if row.scenario == "comm_overlapped" and beside is not None and beside.hidden_fraction >= NEARLY_ALL:
            return None  # the program does so already
        return subject.found(key) or (subject.replayed(row.scenario, row.because) if row.scenario else None)

    return told


def _bucket_size(subject: Subject) -> Told | None:
    is_other = subject.is_part or is_exchange(subject.context)
    return None if is_other else Told("no number: sizes of messages are not in the trace")


def _after_warm_up(subject: Subject) -> Told | None:
    """Where the window's one-time part is large and what comes after it is bound by something else, that is what to
    look at, whether the program names its warm-up or it was found; so it is where only an option tells of one."""
    if subject.is_part:
        return None
    if isinstance(subject.part, DeviceReport) and subject.part.steady is not None:
        return _after_once(subject, subject.part, subject.part.steady)
    for item in subject.findings:
        share, option = (item.evidence.get(key) for key in ("warm_up_of_window_fraction", "warm_up_option"))
        because = None
        if isinstance(share, float):
            because = (
                f"regions named as set-up or warm-up take {percent(share)} of the window; a longer run spends no more "
                "time in them"
            )
        elif option:
            because = f"{item.title.partition(':')[0]}, as the program warms up ({option})"
        if because:
            return subject.of_finding(item)._replace(because=because, saving_ns=None)
    return None


def _after_once(subject: Subject, device: DeviceReport, steady: Steady) -> Told | None:
    once_ns = sum(part.ns for part in device.one_time)
    named = {device.verdict.bound, *(device.verdict.mixed_of or ())}
    if once_ns < MUCH_ONCE * device.window_ns or steady.bound in (*named, "unknown", "hidden"):
        return None
    context, row = subject.context, remedies.by_key()["init.after-warm-up"]
    begins_ns = steady.window.start_ns + context.timeline.devices[subject.device].shift.shift_ns
    rest = f"--window {context.instant(begins_ns, context.longest_window_ns)}:"
    code = row.code(context.program, {**subject.facts, "rest": rest}, is_of_amd=context.trace.is_of_amd)
    because = "a longer run repeats that, and not the start"
    return Told(because, rank=AT_ONCE, code=code, title="Look at what comes after the one-time work")


def _warm_up(subject: Subject) -> Told | None:
    """A program that warms up, by the names of its ranges or by an option, is not told to."""
    answer = subject.found("init.warm-up")
    warms_up = any(item.evidence.keys() & {"warm_up_of_window_fraction", "warm_up_option"} for item in subject.findings)
    if answer or subject.found("init.allocate-once") or warms_up:
        return answer
    row = remedies.by_key()["init.warm-up"]
    return subject.replayed(row.scenario, row.because)._replace(code=warm_up_code(subject.context))


#: By the remedy's key.
COUNTED: Mapping[str, Callable[[Subject], Told | None]] = {
    "gpu_compute.lower-precision": _lower_precision,
    "gpu_compute.library-kernel": _library_kernel,
    "gpu_compute.single-precision": _single_precision,
    "gpu_compute.better-kernels": _better_kernels,
    "gpu_compute.bigger-gpu": _bigger_gpu,
    "gpu_compute.inference-engine": _engine,
    "gpu_compute.quantize-or-prune": _quantize,
    "cuda_api.larger-batch": _larger_batch,
    "cuda_api.compiled-loop": _compiled_loop,
    **{key: _one_batch(key) for key in ("cuda_api.one-batch", "sync.one-batch")},
    "sync.larger-batch": _more_between_waits,
    **dict.fromkeys(("cuda_api.on-cpu", "sync.on-cpu"), _on_cpu),
    "sync.remove-waits": _remove_waits,
    "sync.read-back-later": _read_later,
    "sync.one-side": _one_side,
    "cpu.find-host-code": _find_host_code,
    "cpu.overlap": _overlap,
    "gpu_copy.overlap-copies": _overlap_copies,
    "gpu_copy.half-the-bytes": _half_bytes,
    "host_blocked.shorter-wait": _shorter_wait,
    "host_blocked.prefetch": _prefetch,
    "host_blocked.pinned-input": _pinned_input,
    "host_blocked.decode-on-device": _decode,
    **{
        key: _communication(key, is_of_exchanges=key == "gpu_comm.overlap-exchange")
        for key in ("gpu_comm.overlap-comm", "gpu_comm.overlap-exchange", "gpu_comm.fewer-bytes")
    },
    "gpu_comm.bucket-size": _bucket_size,
    "init.after-warm-up": _after_warm_up,
    "init.warm-up": _warm_up,
}
