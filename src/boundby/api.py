"""boundby from Python: one report worked out step by step, two runs set side by side, limits held against a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.attribution.losses import filled
from boundby.attribution.timeline import Timeline, build_timeline, select
from boundby.attribution.windows import matching_ranges, parse_window, regions_matching, skipped_steps
from boundby.model import door
from boundby.model.arrays import MISSING, unique
from boundby.model.causes import SCENARIOS
from boundby.model.errors import OutOfBoundsError, SelectionError, UserError
from boundby.model.scale import NEARLY_ALL, NOTABLE, QUARTER
from boundby.model.stage import SHARE_OF_MACHINE, Room, keep_freed, machine_bytes, stage
from boundby.model.units import duration
from boundby.opening import Progress, open_trace
from boundby.options import AnalysisOptions
from boundby.readers import holds_trace
from boundby.render import html
from boundby.results.report import (
    AnalysisSummary,
    DeviceReport,
    Finding,
    FirstResponse,
    NoGpuWork,
    NotChecked,
    RegionReport,
    Report,
    ThreadReport,
    TraceSummary,
    WhatIf,
)
from boundby.stats.figures import Figures, exclusive_account, measure
from boundby.trace.facts import ProgramEnd, TraceWarning
from boundby.trace.program import program_end
from boundby.trace.tables import OpKind, Trace

if TYPE_CHECKING:  # each step loads what it needs: an account alone takes no replay, no rules and no verdict
    from boundby.claims.laws import Wholes
    from boundby.compare.gate import Budget
    from boundby.evidence.context import RuleContext
    from boundby.jobs.job_first import RankQuestion
    from boundby.jobs.rank_summary import RankSummary
    from boundby.replay.counterfactuals import Counterfactuals, Filled
    from boundby.replay.predictor import Predictor
    from boundby.replay.questions import Answer
    from boundby.results.comparison import Comparison, GateResult
    from boundby.results.job_report import JobComparison, JobReport
    from boundby.results.plot_data import PlotData
    from boundby.results.serving_report import ServingReport
    from boundby.rules.rule import Rule
    from boundby.rules.settings import Settings

Source = str | PathLike[str] | Report
html.register()
#: ``--fail-on`` in a word.
SHORTHANDS = {"regression": "regression > 5 %", "new-findings": "findings.new.high > 0"}

#: How much of an analysis is done when each step is, by the CPU time of large reports (docs/performance.md).
_READ, _ACCOUNTED, _MEASURED, _REPLAYED, _FOUND = NOTABLE, QUARTER, QUARTER, 1 - QUARTER, NEARLY_ALL


class Analysis:
    """One report, and all that is worked out of it: each step is made once, when it is first asked for.

    ``source`` is a file, the folder of a run, or a trace that has been read already; options come as for ``analyze``.
    Every step raises boundby.model.errors.UserError, with one clear sentence and a next step, for what a user can mend.
    """

    def __init__(
        self,
        source: str | PathLike[str] | Trace,
        options: AnalysisOptions | None = None,
        *,
        progress: Progress | None = None,
        **changes: Any,
    ) -> None:
        self.source = source
        self.options = replace(options or AnalysisOptions(), **changes)
        self._progress = progress or _silent
        self._window = parse_window(self.options.window, self.options.skip_first)

    def _reading(self, doing: str, fraction: float | None) -> None:
        is_export = not doing.startswith("reading")  # nsys counts for itself
        self._progress(doing, fraction if is_export or fraction is None else _READ * fraction)

    @contextlib.contextmanager
    def in_time(self, doing: str, done: float) -> Iterator[None]:
        """One step, of a trace that has been read: who watches is told, and it takes no longer than it may."""
        trace = self.trace
        self._progress(doing, done)
        tables = trace.operations, trace.api, trace.ranges, trace.os_calls, trace.schedule
        with self._stage(doing, sum(map(len, tables))):
            yield

    def _stage(self, doing: str, events: int | None = None) -> contextlib.AbstractContextManager[None]:
        chosen = self.options
        return stage(
            doing, events=events, most_s=chosen.max_time, most_bytes=chosen.max_memory, room_bytes=self._most_bytes
        )

    @property
    def _most_bytes(self) -> int | None:
        """How much memory this may take; None where nobody tells."""
        return self.options.max_memory or round(SHARE_OF_MACHINE * (machine_bytes() or 0)) or None

    @property
    def _room(self) -> Room | None:
        """How much memory this may take, and from when on the trace must be read."""
        most = self._most_bytes
        window = self._window
        is_any = window.kind in ("gpu", "all") and not window.skip_first
        first_ns = window.low_ns if window.kind == "span" and not window.skip_first else None
        return Room(most, None if is_any else MISSING if first_ns is None else first_ns) if most else None

    @cached_property
    def trace(self) -> Trace:
        """What was recorded, of the devices and processes that were asked for."""
        chosen = self.options
        trace = self.source
        if not isinstance(trace, Trace):
            with self._stage("reading"):
                trace = open_trace(
                    Path(trace),
                    chosen.nsys,
                    self._reading,
                    keep_export=chosen.keep_export,
                    room=self._room,
                    captures=chosen.captures,
                )
        keep_freed()
        return select(trace, chosen.devices, chosen.processes)

    @cached_property
    def timeline(self) -> Timeline:
        """Every nanosecond of each device's window by cause and region."""
        trace, chosen = self.trace, self.options
        with self.in_time("accounting for every nanosecond", _READ):
            timeline = build_timeline(trace, self._window, fold=chosen.fold, find=chosen.find_regions)
        if chosen.region is not None:  # one that matches nothing is refused before the hard work
            matching_ranges(timeline.trace, timeline.ownership.regions, chosen.region)
        return timeline

    @cached_property
    def stats(self) -> Figures:
        """Figures per region and per name."""
        timeline = self.timeline
        with self.in_time("judging", _ACCOUNTED):
            return measure(timeline)

    @cached_property
    def predictor(self) -> Predictor:
        """The dependencies of the trace as a graph, to be replayed with costs removed. Needs GPU work."""
        if not self.timeline.devices:
            raise SelectionError(f"{self.trace.path} holds no GPU work to replay.", "Capture with --trace=cuda.")
        from boundby.replay.predictor import Predictor

        return Predictor(self.timeline)

    @cached_property
    def replayed(self) -> Counterfactuals:
        """The trace replayed without each cause: empty where it holds no GPU work, no calls, or no time is left."""
        from boundby.replay.counterfactuals import Counterfactuals, counterfactuals

        if not self.timeline.devices:
            return Counterfactuals()
        if not len(self.timeline.calls):
            return Counterfactuals(unreliable="CUDA API calls were not captured")
        inclusive = self.stats.inclusive
        try:
            with self.in_time("replaying without each cause", _MEASURED):
                replayed = counterfactuals(self.predictor, inclusive)
                return replace(replayed, filled=self._filled()) if self.timeline.losses.lost.any() else replayed
        except OutOfBoundsError as error:
            return Counterfactuals(unreliable=error.because)

    def _filled(self) -> Filled:
        """What this trace would be, had the device been busy whenever work that is not on record may have run."""
        from boundby.replay.counterfactuals import Filled, counterfactuals
        from boundby.replay.predictor import Predictor

        timeline, chosen = self.timeline, self.options
        begins_ns = {device.index: device.low_ns for device in timeline.devices}
        trace = filled(timeline.trace, timeline.calls, timeline.losses, begins_ns)
        other = build_timeline(trace, timeline.window, fold=chosen.fold)
        inclusive = other.ownership.regions.accumulate(exclusive_account(other))
        accounts = {device.index: device.segments.by_cause() for device in other.devices}
        return Filled(accounts, inclusive, counterfactuals(Predictor(other), inclusive))

    @cached_property
    def what_if(self) -> tuple[WhatIf, ...]:
        """The report's predictions; none where the trace cannot be replayed to be trusted."""
        from boundby.claims import summary

        if self.replayed.unreliable:
            return ()
        return tuple(
            summary.prediction(self.timeline, self.replayed, device, scenario)
            for device in self.timeline.devices
            for scenario in self.replayed.predicted_ns.get(device.index, {})
        )

    @cached_property
    def devices(self) -> tuple[DeviceReport, ...]:
        """A verdict and figures per device."""
        from boundby.claims import summary

        predictor = self.predictor if self.replayed.device else None
        with self.in_time("judging devices", _REPLAYED):
            return summary.devices(self.timeline, self.stats, self.replayed, predictor)

    @cached_property
    def regions(self) -> tuple[RegionReport, ...]:
        """A verdict and figures per region: all of them, whatever the report shows."""
        return self._regions()

    def _regions(self, glob: str | None = None, min_share: float = 0.0) -> tuple[RegionReport, ...]:
        from boundby.claims import summary

        part, why, devices = (self.timeline, self.stats, self.replayed), self._no_verdict, self.devices
        with self.in_time("judging regions", _REPLAYED):
            return summary.regions(*part, glob=glob, min_share=min_share, no_verdict=why, devices=devices)

    @cached_property
    def program_end(self) -> ProgramEnd | None:
        """How the program ended, if it failed or was interrupted."""
        return program_end(self.trace)

    @cached_property
    def no_gpu_work(self) -> NoGpuWork | None:
        """Why the trace holds no GPU work; None: it holds some, or records of some are missing."""
        if self.timeline.devices or self.options.processes:  # of chosen ones: another may have used the GPU
            return None
        from boundby.evidence.no_gpu_work import no_gpu_work

        return no_gpu_work(self.trace, self.program_end, int(self.timeline.losses.lost.sum()))

    @property
    def _no_verdict(self) -> str | None:
        """Why the host's time says nothing about the program, where that is so."""
        why = self.no_gpu_work
        return None if why is None or why.is_host_only else str(why)

    @cached_property
    def rule_settings(self) -> Settings:
        """Which rules look, and by which thresholds."""
        from boundby.rules.settings import make_settings

        chosen = self.options
        every, _ = self._rules
        return make_settings(every, disable=chosen.disable, thresholds=chosen.thresholds, show_all=chosen.show_all)

    @cached_property
    def rule_context(self) -> RuleContext:
        """All that a rule may look at."""
        from boundby.evidence.context import RuleContext
        from boundby.replay.questions import Savings

        settings = self.rule_settings
        savings = Savings(self.predictor) if self.replayed.device else None
        return RuleContext(
            self.timeline,
            self.stats,
            self.devices,
            self.regions,
            self.what_if,
            savings,
            settings.thresholds,
            settings.show_all,
        )

    @cached_property
    def wholes(self) -> Wholes:
        """What removing each cause saves: no claim of a part is more."""
        from boundby.claims.laws import wholes

        return wholes(self.devices, self.what_if, self.regions)

    @cached_property
    def report(self) -> Report:
        """What is shown and saved."""
        from boundby.claims.findings import find

        settings, chosen = self.rule_settings, self.options  # a wrong setting is refused before the hard work
        context, shown = self.rule_context, self.regions
        if chosen.region is not None or chosen.min_share:
            shown = self._regions(chosen.region, chosen.min_share or 0.0)
        every, broken = self._rules
        with self.in_time("looking for what to change", _REPLAYED):
            is_moot = self._no_verdict is not None
            looked = find(context, every, settings.disabled, limits=self.wholes, is_moot=is_moot)
        findings = looked.found
        devices, threads, shown, late = self._first_responses(findings, shown)
        context.forget()
        del self.rule_context  # what rules asked is worked out anew if somebody else asks: a seventh of all memory
        paths = {region.path for region in shown if region.path}
        failed = tuple(item for item in broken if item.rule not in settings.disabled)
        return Report(
            devices=devices,
            threads=threads,
            regions=shown,
            what_if=self.what_if,
            unreliable=self.replayed.unreliable,
            operators=self.stats.operators,
            collectives=self.stats.collectives,
            steps=self.stats.steps.kept,
            step_mfu=self.stats.step_mfu,
            findings=tuple(
                finding
                for finding in findings
                if chosen.region is None or finding.region is None or finding.region in paths
            ),
            not_checked=(*looked.not_checked, *failed),
            analysis=AnalysisSummary(
                window=chosen.window,
                skip_first=chosen.skip_first,
                region_glob=chosen.region,
                device_ids=chosen.devices,
                process_ids=chosen.processes,
                min_share=chosen.min_share or 0.0,
                fold=chosen.fold,
                rules_checked=looked.checked,
                rules_disabled=tuple(sorted(settings.disabled)),
                thresholds={f"{rule}.{name}": value for (rule, name), value in sorted(settings.thresholds.items())},
                show_all=chosen.show_all,
            ),
            # Last: whether backtraces can be read is known once something has asked for them.
            trace=replace(
                _describe(self.trace, self.timeline, chosen.skip_first, (*late, *self._unseen)),
                program=self.program_end,
                no_gpu_work=self.no_gpu_work,
            ),
        )

    @property
    def _unseen(self) -> Iterator[TraceWarning]:
        """Work that the GPUs' counters show and no operation on record does."""
        from boundby.claims.limits import unseen

        return filter(None, map(unseen, self.devices))

    def _first_responses(
        self, found: Sequence[Finding], regions: tuple[RegionReport, ...]
    ) -> tuple[tuple[DeviceReport, ...], tuple[ThreadReport, ...], tuple[RegionReport, ...], tuple[TraceWarning, ...]]:
        """Devices, threads and regions with what to do first; without it, and with a warning, if time runs out."""
        from boundby.claims import first_responses, laws, summary

        context, devices = self.rule_context, self.devices
        threads, late = summary.threads(self.timeline, self._no_verdict), tuple[TraceWarning, ...]()
        predictor = self.predictor if context.is_replayed else None
        try:
            with self.in_time("asking what to do first", _FOUND):
                devices = first_responses.of_devices(
                    context, predictor, found, devices, self.wholes, self.options.arguments()
                )
                threads = first_responses.of_threads(context, found, threads, self.no_gpu_work)
                regions = first_responses.of_regions(context, found, regions, self.wholes)
        except OutOfBoundsError as error:
            devices = self.devices
            late = (TraceWarning("out-of-time", f"No first responses: {error.because}."),)
        claims = laws.of_advice(found, regions) + laws.of_what_lies_in(regions, devices, self.what_if)
        return devices, threads, laws.up_to(regions, claims), late

    @cached_property
    def plot_data(self) -> PlotData:
        """What pages and figures draw beside the report."""
        from boundby.plot_data import build_plot_data

        timeline = self.timeline
        with self.in_time("drawing", _FOUND):
            return build_plot_data(timeline)

    @cached_property
    def next_bounds(self) -> Mapping[tuple[int, str], str | None]:
        """What would bound each device next under the report's notable predictions, by (device id, scenario); None:
        nothing worth 1 %."""
        from boundby.replay.questions import next_bounds

        if not self.report.what_if:
            return {}
        predictions = self.report.what_if
        names = {item.scenario for item in predictions if item.predicted_ns < 0.99 * item.baseline_ns}
        with self.in_time("looking for what comes next", _FOUND):
            return next_bounds(self.predictor, [item for item in predictions if item.scenario in names])

    def predict(self, scenario: str, region: str | None = None) -> list[Answer]:
        """What a scenario would leave of each device's window, changed only in regions that match the glob; of a named
        scenario without a region: ``what_if``. Nothing where the trace cannot be replayed to be trusted."""
        from boundby.claims import summary
        from boundby.replay import questions
        from boundby.replay.questions import answer

        inside = None if region is None else regions_matching(self.timeline.ownership.regions, region)
        with self.in_time("replaying", _MEASURED):
            questions.check(self.predictor, scenario)
        if self.replayed.unreliable:
            return []
        with self.in_time("replaying", _MEASURED):
            if inside is None and scenario in SCENARIOS:
                predictions = [item for item in self.what_if if item.scenario == scenario]
                then = questions.next_bounds(self.predictor, predictions)
                return [questions.answered(item, then[item.device, scenario]) for item in predictions]
            causes, part = questions.causes_of(scenario), (self.timeline, self.replayed)
            return [
                summary.widened(*part, device, predicted, causes)
                for device, predicted in zip(
                    self.timeline.devices, answer(self.predictor, scenario, inside, region), strict=True
                )
            ]

    @cached_property
    def _rules(self) -> tuple[tuple[Rule, ...], tuple[NotChecked, ...]]:
        """Every rule there is, and packages whose rules cannot be loaded."""
        from boundby.rules import builtin as rules

        installed, broken = rules.third_party()
        return (*rules.builtin(), *installed), broken


def examine(
    path: str | PathLike[str],
    options: AnalysisOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> Analysis:
    """Analyse one report and keep what was worked out on the way. Arguments and errors are those of ``analyze``."""
    analysis = Analysis(path, options, progress=progress, **changes)
    _ = analysis.report  # errors come here, not when it is first looked at
    return analysis


def analyze(
    path: str | PathLike[str],
    options: AnalysisOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> Report:
    """Analyse one report: ``.sqlite`` (an nsys export), ``.nsys-rep`` or ``.qdrep`` (exported first), or the folder of
    a run that ``boundby profile`` made.

    Options come as an `AnalysisOptions`, or as keywords of the same names: ``analyze(path, skip_first=3)``.
    ``progress`` is called with a stage and a fraction (None: unknown).

    Raises boundby.model.errors.UserError with one clear sentence and a next step for anything a user can mend.
    """
    return examine(path, options, progress=progress, **changes).report


def serving(
    path: str | PathLike[str],
    options: AnalysisOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> ServingReport:
    """What the steps of a server of language models take, by kind (prefill, decode, mixed) and size: a report as for
    ``analyze``, whose options and errors these are. Raises SelectionError where it holds no such steps."""
    from boundby.claims.serving_steps import serving_report

    analysis = examine(path, options, progress=progress, **changes)
    return serving_report(str(path), analysis.timeline, analysis.report.regions, analysis.no_gpu_work)


def what_if(
    path: str | PathLike[str],
    scenarios: Sequence[str] = tuple(SCENARIOS),
    options: AnalysisOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> tuple[list[Answer], str | None]:
    """What each scenario would leave of each device's window, and why that is not to be trusted (None: it is).

    Where it is not there are no answers. ``scenarios`` are names of `SCENARIOS`, ``kernels=2`` (twice as fast),
    ``kernel:NAME=3``, ``copies=K``, ``comm=K``, ``cpu=K``, ``copies_overlapped``, ``comm_overlapped``, or several
    joined by ``+``. The option ``region`` limits the change to regions that match the glob, with all that lies in them;
    other options, progress and errors are those of ``analyze``.
    """
    analysis = Analysis(path, options, progress=progress, **changes)
    answers = [answer for scenario in scenarios for answer in analysis.predict(scenario, analysis.options.region)]
    return answers, analysis.replayed.unreliable


def job(
    reports: Sequence[str | PathLike[str]] | str | PathLike[str],
    options: AnalysisOptions | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> JobReport:
    """Who holds up whom in a job: one report a rank, a folder of them, or one report of several processes.

    ``workers``: local processes (1: this one; None: one a core). ``scheduler``: the address of a dask scheduler whose
    workers see the same files, or ``local``. What cannot be used is named in the result; the result does not depend on
    the order of the files or on who read them. Raises UserError where fewer than two ranks are left.
    """
    return joined(reports, options, workers=workers, scheduler=scheduler, progress=progress)[0]


def joined(
    reports: Sequence[str | PathLike[str]] | str | PathLike[str],
    options: AnalysisOptions | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[JobReport, list[RankSummary]]:
    """What ``job`` answers, and the compact summary of each rank that it is made of."""
    from boundby.jobs import job_first
    from boundby.jobs.gather import find_reports, gather, report_of
    from boundby.jobs.merge import merge

    given = [reports] if isinstance(reports, str | PathLike) else list(reports)
    name, files = find_reports([Path(path) for path in given])
    summaries, left_out = gather(files, options, workers=workers, scheduler=scheduler, progress=progress)
    (progress or _silent)("joining the ranks", None)
    with stage("joining the ranks", events=sum(len(summary.meetings) + len(summary.events) for summary in summaries)):
        report = merge(summaries, name, left_out)
    question, path_of = job_first.asked(report), dict(files)
    answer = None
    if question is not None and report_of(question.rank) in path_of:
        (progress or _silent)(f"looking closer at {question.rank}", None)
        answer = _answer(question, path_of[report_of(question.rank)], options)
    return replace(report, first=job_first.of(report, summaries, path_of, answer)), summaries


def _answer(question: RankQuestion, path: Path, options: AnalysisOptions | None) -> FirstResponse | None:
    """What a rank's own report says to try first about what is asked; None: nothing."""
    from boundby.jobs.gather import part_of

    chosen = options or AnalysisOptions()
    try:
        report = analyze(path, chosen if question.is_of_report else part_of(question.rank, chosen))
    except UserError:  # a job's answer stands without
        return None
    told = [one for device in report.devices for one in device.first_responses]
    told += [one for thread in report.threads for one in thread.first_responses]
    if not told and (no_gpu_work := report.trace.no_gpu_work) is not None and no_gpu_work.response is not None:
        told = [no_gpu_work.response]
    return next(filter(question.is_answered_by, told), None)


def load_job(
    path: str | PathLike[str], options: AnalysisOptions | None = None, *, progress: Progress | None = None
) -> JobReport:
    """A job's report, saved as JSON or made of a folder of reports. Raises UserError."""
    from boundby.results import saved
    from boundby.results.job_report import JobReport

    if Path(path).suffix.lower() == ".json":
        return saved.load(path, JobReport)
    return job(path, options, progress=progress)


def is_job(path: str | PathLike[str]) -> bool:
    """Whether this is a job's: its report saved as JSON, or a folder with the reports of several ranks."""
    import re

    target = Path(path)
    if target.is_dir():
        ranks = [file for file in target.iterdir() if re.search(r"rank[-_. ]?\d+", file.name, re.IGNORECASE)]
        return len({rank_file.name.split(".")[0] for rank_file in ranks}) > 1
    if target.suffix.lower() != ".json" or not target.is_file():
        return False
    return b'"kind": "job"' in door.first_of(target, 200)


def compare_jobs(
    before: str | PathLike[str],
    after: str | PathLike[str],
    options: AnalysisOptions | None = None,
    *,
    progress: Progress | None = None,
) -> JobComparison:
    """What changed from one job to another: folders of reports, or what ``job`` found, saved as JSON."""
    from boundby.compare.between import compare_jobs as compared

    return compared(*(load_job(path, options, progress=progress) for path in (before, after)))


def is_saved(path: Path) -> bool:
    """Whether this is a result saved as JSON, and no trace of PyTorch's profiler."""
    return path.suffix.lower() == ".json" and not (path.is_file() and holds_trace(path))


def load(
    source: Source, options: AnalysisOptions | None = None, *, progress: Progress | None = None, **changes: Any
) -> Report:
    """A report, however it comes: analysed already, saved as JSON, or anything that ``analyze`` takes.

    Raises UserError; SelectionError where a saved result would have to be analysed again.
    """
    from boundby.results import saved

    if isinstance(source, Report):
        return source
    path = Path(source)
    chosen = replace(options or AnalysisOptions(), **changes)
    if not is_saved(path):
        return analyze(path, chosen, progress=progress)
    fixed = sorted(name for name, value in chosen.chosen().items() if not isinstance(value, bool))
    if fixed:
        flag = fixed[0].replace("_", "-")
        raise SelectionError(f"{path} is a saved result: {flag} cannot be changed any more.", "Give the report itself.")
    return saved.load(path, Report)


def compare_runs(
    before: Source,
    after: Source,
    options: AnalysisOptions | None = None,
    *,
    steps: str | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Comparison:
    """What changed between two runs: reports, folders of runs, results saved as JSON, or ``Report`` objects.

    ``steps``: a glob of the region that is the program's step. Options are those of ``analyze``, for both. Raises
    UserError like ``analyze``.
    """
    from boundby.compare import between

    earlier, later = (load(source, options, progress=progress, **changes) for source in (before, after))
    with stage("comparing", events=len(earlier.regions) + len(later.regions)):
        return between.compare(earlier, later, steps=steps)


def limits(
    *, budget_file: str | PathLike[str] | None = None, texts: Sequence[str] = (), fail_on: Sequence[str] = ()
) -> Budget:
    """All limits of a check in one budget. ``fail_on``: conditions that must not hold. Raises LimitError."""
    from boundby.compare import gate

    read = gate.read(Path(budget_file)) if budget_file is not None else gate.Budget(())
    added = [gate.parse(text) for text in texts]
    added += [gate.parse(SHORTHANDS.get(text, text), fails=True) for text in fail_on]
    return gate.Budget((*read.limits, *added), read.steps)


def check(
    source: Source,
    *texts: str,
    options: AnalysisOptions | None = None,
    budget_file: str | PathLike[str] | None = None,
    steps: str | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> GateResult:
    """Whether a run keeps limits such as ``step.time < 12 ms``, given here or in a budget file.

    Options are those of ``analyze``. Raises UserError, of which LimitError for a limit that says nothing.
    """
    from boundby.compare import gate

    held = limits(budget_file=budget_file, texts=texts)
    return gate.check(held.limits, load(source, options, progress=progress, **changes), steps=steps or held.steps)


def _describe(trace: Trace, timeline: Timeline, skip_first: int, late: Sequence[TraceWarning] = ()) -> TraceSummary:
    """What was analysed: the file, the program, what was captured, and what lowers certainty. ``late``: more."""
    warnings = list(late)
    warnings += [
        TraceWarning(
            "clock-skew",
            f"GPU {trace.gpus[device.index].id}'s clock was {duration(abs(device.shift.shift_ns))} "
            f"{'ahead of' if device.shift.shift_ns < 0 else 'behind'} the host's ({device.shift.because}); that is "
            "corrected here.",
        )
        for device in timeline.devices
        if abs(device.shift.shift_ns) >= LAUNCH_LIMIT_NS
    ]
    warnings += [
        TraceWarning(
            "clock-unshown",
            f"All work on GPU {trace.gpus[device.index].id} begins {duration(device.shift.unshown_ns)} or more after "
            "its launch: earlier work is not on record, or its clock is ahead by as much.",
        )
        for device in timeline.devices
        if device.shift.unshown_ns >= NOTABLE * (device.high_ns - device.low_ns)
    ]
    if (trace.operations.kind == OpKind.GRAPH).any():
        text = (
            "CUDA graphs were traced as one operation each: kernels, copies and gaps inside them cannot be seen, and "
            "all their time counts as compute. Capture with --cuda-graph-trace=node to see them."
        )
        warnings.append(TraceWarning("graph-level", text))
    captured, problem = trace.captured, trace.backtraces.problem
    if problem is not None:
        warnings.append(TraceWarning("backtraces-damaged", f"Backtraces count as not captured: {problem}"))
        captured = replace(captured, backtraces=False, python_stacks=False)
    if skip_first:
        warnings.insert(0, TraceWarning("skipped-first", _left_out(timeline, skip_first)))
    return TraceSummary(
        path=trace.path,
        source=trace.source,
        nsys_version=trace.nsys_version,
        exported_by=trace.exported_by,
        schema_version=trace.schema_version,
        command=trace.command,
        gpus=trace.gpus,
        captured=captured,
        warnings=(*warnings, *timeline.trace.warnings),
        not_recorded=trace.not_recorded,
        not_read=trace.not_read,
        duration_ns=trace.span_ns[1] - trace.span_ns[0],
    )


def _left_out(timeline: Timeline, skip_first: int) -> str:
    """How many steps of which were left out, of each process."""
    steps = skipped_steps(timeline.window, timeline)
    regions = timeline.ownership.regions
    parents = unique(np.concatenate([regions.of_range[rows] for rows in steps.values()])).tolist()
    name = "/".join(regions.path(parents[0])) if len(parents) == 1 else timeline.window.range_glob
    sizes = sorted(map(len, steps.values()))
    each = f"{sizes[0]:,}" if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,}"
    of_each = f" in each of {len(steps):,} processes" if len(steps) > 1 else ""
    return f"Left out{of_each}: the first {skip_first} of {each} instances of {name}."


def _silent(stage: str, fraction: float | None) -> None:
    """No progress is shown."""


__all__ = [
    "Analysis",
    "AnalysisOptions",
    "Progress",
    "analyze",
    "check",
    "compare_runs",
    "examine",
    "limits",
    "load",
    "what_if",
]
