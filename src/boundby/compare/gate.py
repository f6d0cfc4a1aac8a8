"""Limits such as ``step/loss.time < 12 ms``: read, and held against a report or a comparison.

    limit    = [ scope "." ] quantity operator number [ unit ]
    scope    = a region's path, its last name or a glob of either, in quotes where it holds dots or spaces at its ends;
               "step": the region of that name, else the region that is the program's step
    operator = "<" | "<=" | ">" | ">=" | "==" | "!="

Without a scope a limit is of the whole: of every device where the quantity is a device's.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from boundby.compare.matching import step_candidate
from boundby.compare.quantities import QUANTITIES, Known, Number, Quantity, findings, known, new_findings, records_of
from boundby.model import door, units
from boundby.model.errors import InputError, UserError, did_you_mean
from boundby.model.scale import NOTABLE
from boundby.results.comparison import Comparison, GateResult, LimitResult, Measured, RegionChange
from boundby.results.job_report import JobComparison, JobReport
from boundby.results.report import RegionReport, Report
from boundby.structure.steps import find_steps, likely_steps
from boundby.trace.facts import END_UNKNOWN, EXPORT_INCOMPLETE, UNBELIEVABLE, ProgramEnd
from boundby.trace.vocabulary.last_words import FAILED, UNCLEAR

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
STEP = "step"
#: More than this part of a step passes outside of steps: a limit of its time does not hold the program's pace.
OUTSIDE_SHARE = NOTABLE
_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS: Mapping[str, Mapping[str, float]] = {
    "ns": _NS,
    "fraction": {"": 1, "%": 0.01},
    "count": {"": 1},
    "per_ms": {"": 1, "/ms": 1},
    "bytes": {"": 1, **_BYTES},
}
_LIMIT = re.compile(
    r"\s*(?:(?P<quote>['\"])(?P<quoted>.*)(?P=quote)\s*\.\s*)?(?P<left>[^<>=!]*?)\s*"
    r"(?P<operator><=|>=|==|!=|<|>)\s*(?P<number>[-+]?[\d_]*\.?\d+(?:[eE][-+]?\d+)?)\s*(?P<unit>\S*)\s*",
    re.DOTALL,
)
LIST = "See them all: boundby check --quantities"


class LimitError(UserError):
    """A limit that says nothing that could be checked."""


class Limit(Struct, frozen=True):
    """``scope`` None: the whole. ``fails``: written as what must not be (``--fail-on``). ``optional``: where the
    report holds no such region, the limit is kept."""

    text: str
    scope: str | None
    quantity: str
    operator: str
    value: float
    fails: bool = False
    optional: bool = False
    reason: str = ""

    @property
    def definition(self) -> Quantity:
        return QUANTITIES[self.quantity]

    def keeps(self, value: float) -> bool:
        """Whether the value keeps the limit."""
        return OPERATORS[self.operator](value, self.value) != self.fails


def parse(text: str, *, fails: bool = False, optional: bool = False, reason: str = "") -> Limit:
    """Read a limit. Raises LimitError."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise LimitError(f"{text!r} is not a limit.", "Write QUANTITY OPERATOR VALUE, such as 'step.time < 12 ms'.")
    scope, quantity = _split(text, match["quoted"], match["left"].strip())
    definition = QUANTITIES[quantity]
    if scope is not None and definition.of_region is None and definition.of_change is None:
        raise LimitError(f"{text!r}: no region has {quantity}, only the whole report.", f"Write {quantity} alone.")
    if scope is None and not (definition.of_whole or definition.of_comparison or definition.of_job):
        raise LimitError(
            f"{text!r}: {quantity} belongs to a region.", f"Name one: REGION.{quantity}, or step.{quantity}."
        )
    value = _value(text, quantity, definition.unit, match["number"], match["unit"])
    written = f"fail on {text.strip()}" if fails else text.strip()
    return Limit(written, scope, quantity, match["operator"], value, fails, optional, reason)


def _split(text: str, quoted: str | None, left: str) -> tuple[str | None, str]:
    """Scope and quantity: the longest quantity that the left side ends with."""
    if quoted is not None:
        if left in QUANTITIES:
            return quoted, left
        raise _unknown(text, left)
    starts = [0, *(dot.end() for dot in re.finditer(r"\.", left))]
    for start in starts:
        if left[start:] in QUANTITIES:
            return left[: start - 1].strip() if start else None, left[start:]
    raise _unknown(text, left)


def _unknown(text: str, left: str) -> LimitError:
    tails = [left, left.rpartition(".")[2], ".".join(left.split(".")[-2:])]
    hint = next(filter(None, (did_you_mean(tail, QUANTITIES) for tail in tails)), "")
    return LimitError(f"{text!r}: there is no quantity {left!r}.", f"{hint}{LIST}")


def _value(text: str, quantity: str, unit: str, number: str, written: str) -> float:
    factors = _UNITS[unit]
    if written not in factors:
        expected = " ".join(name for name in factors if name)
        wrong = f"{written!r} is no unit of {quantity}" if written else f"the value of {quantity} needs a unit"
        if expected:
            raise LimitError(f"{text!r}: {wrong}.", f"Units of {quantity}: {expected}.")
        raise LimitError(f"{text!r}: {quantity} is a number and has no unit.", f"Leave out {written!r}.")
    value = float(number.replace("_", "")) * factors[written]
    if unit == "fraction" and not written and abs(value) > 1:
        raise LimitError(
            f"{text!r}: {quantity} is a fraction, and {number} is more than all.", f"Write {number} %, or 0 to 1."
        )
    return value


def check(
    limits: Sequence[Limit], report: Report, comparison: Comparison | None = None, *, steps: str | None = None
) -> GateResult:
    """Hold every limit against the report, and against the comparison whose later side it is. Raises LimitError for
    a limit that needs two runs where there is one."""
    region, end = step_of(report, steps), report.trace.program
    results = [_check(limit, report, comparison, region) for limit in limits]
    warned = {warning.code for warning in report.trace.warnings}
    warned |= {doubt.code for doubt in comparison.doubts} if comparison is not None else set()
    for why in (why for code, why in OPEN.items() if code in warned):
        results = [_open(result, why) for result in results]
    return GateResult(report.trace.path, _by_end(results, [] if end is None else [end]))


#: Warnings of a report of which nothing that it keeps is known to be kept, and why.
OPEN = {
    "max-memory": "only the last part of the report was read, for want of memory (see its warning max-memory)",
    EXPORT_INCOMPLETE: "the export ended early, and tables may be missing",
    UNBELIEVABLE: "so many times contradict others that none is sure",
    END_UNKNOWN: "how the program ended is not known (its run.json cannot be read)",
}


def _by_end(results: Sequence[LimitResult], ends: Sequence[ProgramEnd]) -> tuple[LimitResult, ...]:
    """What can be told of limits by how programs ended."""
    for end in ends:
        if end.ended == UNCLEAR:
            why = f"the program may have ended by the error that it printed ({end.words})"
            results = [_open(result, why) for result in results]
        elif end.ended == FAILED:
            results = [result if result.skipped else _of_failed(result, end) for result in results]
    return tuple(results)


def _open(result: LimitResult, why: str) -> LimitResult:
    """Not known to be kept; what is broken is told as broken."""
    if result.skipped or not result.kept:
        return result
    text = f"Whether this holds for all of it cannot be told: {why}."
    return replace(result, kept=False, untold=True, message=f"{result.message} {text}")


def _of_failed(result: LimitResult, end: ProgramEnd) -> LimitResult:
    """Neither kept nor broken: a run that did not reach its end is no measurement of the program."""
    said = f" ({end.words})" if end.words else ""
    return replace(result, kept=False, untold=True, message=f"Cannot be checked: the program failed{said}.")


def check_job(limits: Sequence[Limit], job: JobReport, comparison: JobComparison | None = None) -> GateResult:
    """Hold every limit against a job of many ranks, and ``regression`` against the comparison whose later side it is.
    Raises LimitError for one that is of a single report."""
    results = []
    for limit in limits:
        read = limit.definition.of_job
        if comparison is not None and limit.quantity == "regression":
            tested = comparison.significance
            slower = (tested.change or 0.0) if tested.status == "slower" else 0.0
            slowdown = {} if tested.status in ("too_few", "not_tested") else {"": slower}
            results.append(_judge(limit, slowdown, tested.reason[:1].upper() + tested.reason[1:] + "."))
            continue
        if read is None:
            raise LimitError(f"{limit.text!r}: a job has no {limit.quantity}.", LIST)
        results.append(_judge(limit, read(job), "The job holds no ranks."))
    return GateResult(job.path, _by_end(results, [failed.program for failed in job.programs]))


def step_of(report: Report, glob: str | None = None) -> RegionReport | None:
    """The region that is the program's step: the one named, else the one that plainly is; None where none is. A loop
    that boundby found is the step only where it is named: with records missing it finds another one, and no word of
    the program's tells them apart."""
    regions = [region for region in report.regions if region.path]
    if glob is not None:
        steps = [region for region in regions if _matches(region.path, glob)]
        if not steps:
            raise LimitError(f"No region matches {glob!r}, so there are no steps.", _some(report))
        return max(steps, key=lambda region: (region.host.total_ns, region.path))
    regions = [region for region in regions if not region.found]
    candidates = [step_candidate(region.path, [region]) for region in regions]
    number = find_steps(candidates, step_candidate((), [region for region in report.regions if not region.path]))
    return None if number is None else regions[number]


def _check(limit: Limit, report: Report, comparison: Comparison | None, steps: RegionReport | None) -> LimitResult:
    _refuse(limit, report, comparison, steps)
    if limit.scope is None:
        return _of_whole(limit, report, comparison, steps)
    of_change = limit.definition.of_change if limit.definition.needs_two else None
    if comparison is not None and of_change is not None:
        changes = _changes(comparison, limit.scope, steps)
        return _judge(limit, {"/".join(item.path): of_change(item) for item in changes}, _absent(limit, report))
    return _of_regions(limit, report, comparison, steps, limit.scope)


def _refuse(limit: Limit, report: Report, comparison: Comparison | None, steps: RegionReport | None) -> None:
    """LimitError where the limit asks for what is not there."""
    definition = limit.definition
    if definition.of_job is not None:
        raise LimitError(f"{limit.text!r}: only a job has {limit.quantity}.", "Give the job's folder of reports.")
    if definition.needs_two and comparison is None:
        raise LimitError(
            f"{limit.text!r}: {limit.quantity} needs two runs.", "Use: boundby compare BEFORE AFTER --budget FILE"
        )
    if steps is None and not limit.optional and _is_of_step(limit, report):
        likely = likely_steps([step_candidate(region.path, [region]) for region in report.regions])
        if likely:
            hint = f"Name it with --steps; candidates: {', '.join(likely)}."
            raise LimitError(f"{limit.text!r}: no region is plainly the program's step.", hint)


def _is_of_step(limit: Limit, report: Report) -> bool:
    """Whether the limit is of the program's step, and no region has that name."""
    if limit.scope is None:
        return limit.quantity.endswith("per_step")
    return limit.scope == STEP and not any(region.path and _matches(region.path, STEP) for region in report.regions)


def _of_whole(limit: Limit, report: Report, comparison: Comparison | None, steps: RegionReport | None) -> LimitResult:
    """A limit of the whole report, or of the whole difference."""
    definition = limit.definition
    of_both = definition.of_comparison if definition.needs_two else None
    if comparison is not None and limit.quantity in PACES:
        values = _pace(limit, comparison, steps)
    elif comparison is not None and of_both is not None:
        values = of_both(comparison)
    else:
        values = definition.of_whole(report, steps) if definition.of_whole is not None else {}
    result = _judge(limit, values, _nothing(limit), _knowledge(limit, report, comparison))
    abstains = next((device.verdict.why_not for device in report.devices if device.verdict.why_not), None)
    if result.kept and limit.quantity.startswith("findings") and abstains is not None:
        return replace(result, kept=False, untold=True, message=f"{limit.quantity} cannot be told: {abstains}.")
    return result


def _of_regions(
    limit: Limit, report: Report, comparison: Comparison | None, steps: RegionReport | None, scope: str
) -> LimitResult:
    """A limit of each region that ``scope`` names."""
    regions, read = _regions(report, scope, steps), limit.definition.of_region
    values = {"/".join(region.path): read(region) for region in regions} if read is not None else {}
    result = _judge(limit, values, _absent(limit, report), _knowledge(limit, report, comparison))
    is_of_steps = limit.quantity == "time" and steps is not None and [region.path for region in regions] == [steps.path]
    between_ns = _between_ns(report, regions[0]) if is_of_steps else 0.0
    if values and between_ns > 0:
        text = f"{result.message.removesuffix('.')}; {shown(between_ns, 'ns')} more pass for each outside of it."
        result = replace(result, message=text)
    return result


def _between_ns(report: Report, region: RegionReport) -> float:
    """What passes outside of the steps, for each of them; 0 where that is little."""
    whole = sum(device.window_ns for device in report.devices)
    if not region.instances or not region.total_ns:
        return 0.0
    outside = (whole - region.total_ns) / region.instances
    return outside if outside >= OUTSIDE_SHARE * region.total_ns / region.instances else 0.0


def _regions(report: Report, scope: str, steps: RegionReport | None) -> list[RegionReport]:
    matching = [region for region in report.regions if region.path and _matches(region.path, scope)]
    return [steps] if not matching and scope == STEP and steps is not None else matching


def _changes(comparison: Comparison, scope: str, steps: RegionReport | None) -> list[RegionChange]:
    there = [item for item in comparison.regions if item.path and item.after is not None]
    if scope == ANY_REGION:
        return [item for item in there if item.significance.status not in ("too_few", "not_tested")]
    matching = [item for item in there if _matches(item.path, scope)]
    if not matching and scope == STEP:
        path = comparison.steps or (steps.path if steps else None)
        return [item for item in there if item.path == path]
    return matching


def _matches(path: tuple[str, ...], glob: str) -> bool:
    """As ``--region`` does: the path or the last name, literally or as a glob."""
    whole, name = "/".join(path), path[-1]
    return glob in (whole, name) or fnmatchcase(whole, glob) or fnmatchcase(name, glob)


#: Without a region these are of the step; ``any-region.regression`` is of every region.
PACES = ("regression", "improvement")
ANY_REGION = "any-region"


def _pace(limit: Limit, comparison: Comparison, steps: RegionReport | None) -> Mapping[str, Number]:
    """Of the step; where no region is the step, of the outermost regions."""
    read = limit.definition.of_change
    there = [item for item in comparison.regions if item.path and item.after is not None]
    path = comparison.steps or (steps.path if steps is not None else None)
    chosen = [item for item in there if item.path == path] or [item for item in there if len(item.path) == 1]
    values = {"/".join(item.path): read(item) for item in chosen} if read is not None else {}
    return {name: value for name, value in values.items() if value is not None} if len(values) > 1 else values


Knowledge = Callable[[str, Number], Known | None]


def _knowledge(limit: Limit, report: Report, comparison: Comparison | None) -> Knowledge:
    """What is known of a value of a report, by its name and as measured."""
    name, records = limit.quantity, records_of(report)
    if name.startswith("findings.new") and comparison is not None:
        return lambda _, value: new_findings(value, report, comparison)
    if name.startswith("findings"):
        return lambda _, value: findings(value, report)
    return lambda subject, value: known(name, value, records.get(subject), report.trace.captured)


def _as_measured(_subject: str, value: Number) -> Known | None:
    return None if value is None else Known(value, value)


def _judge(
    limit: Limit, values: Mapping[str, Number], nothing: str, knowledge: Knowledge = _as_measured
) -> LimitResult:
    """A limit is kept, or broken, only if it is so at both ends of what is known."""
    if not values:
        return _unmeasured(limit, nothing)
    unit = limit.definition.unit
    ends = {name: knowledge(name, value) for name, value in values.items()}
    measured = tuple(
        Measured(name, value, (end := ends[name]) is not None and limit.keeps(end.low) and _is_told(limit, end))
        for name, value in values.items()
    )
    broken = [item for item in measured if (end := ends[item.subject]) and _is_told(limit, end) and not item.kept]
    untold = [item for item in measured if not item.kept and item not in broken]
    if not untold or broken:
        return LimitResult(limit.text, not broken, unit, _of_worst(limit, measured, broken), measured, limit.reason)
    end = ends[untold[0].subject]
    why = _why_unknown(limit) if end is None else f"it is {shown(untold[0].value, unit)} {end.why}"
    text = f"{_named(untold[0].subject, limit)} cannot be told: {why}."
    measured = tuple(replace(item, kept=False) for item in measured)
    return LimitResult(limit.text, False, unit, text, measured, limit.reason, untold=True)


def _unmeasured(limit: Limit, nothing: str) -> LimitResult:
    """Of a limit on what is not there."""
    is_open = limit.definition.needs_two and limit.scope is None  # nothing could be tested: no change is known
    return LimitResult(
        limit.text,
        limit.optional,
        limit.definition.unit,
        nothing,
        (),
        limit.reason,
        untold=is_open and not limit.optional,
        skipped=limit.optional,
    )


def _of_worst(limit: Limit, measured: Sequence[Measured], broken: Sequence[Measured]) -> str:
    """The sentence for the one farthest from the limit, of those that break it if any does."""
    worst = max(broken or measured, key=lambda item: _distance(limit, item))
    message = f"{_named(worst.subject, limit)} is {shown(worst.value, limit.definition.unit)}"
    others = len(broken or measured) - 1
    if others > 0:
        message += f" (and {others} more{' break it' if broken else ', none worse'})"
    return f"{message}."


def _is_told(limit: Limit, end: Known) -> bool:
    """Whether the limit is kept, or broken, whatever lies between both ends."""
    if limit.operator in ("==", "!=") and not end.is_sure:
        return not end.low <= limit.value <= end.high
    return limit.keeps(end.low) == limit.keeps(end.high)


def _distance(limit: Limit, item: Measured) -> tuple[float, str]:
    value = item.value if item.value is not None else 0.0
    upwards = limit.operator in ("<", "<=") if not limit.fails else limit.operator in (">", ">=")
    if limit.operator in ("==", "!="):
        return abs(value - limit.value), item.subject
    return (value if upwards else -value), item.subject


def _named(subject: str, limit: Limit) -> str:
    threads = " (all threads)" if limit.scope is None and limit.quantity.endswith("per_step") else ""
    return f"{limit.quantity}{threads} of {subject}" if subject else limit.quantity


def _why_unknown(limit: Limit) -> str:
    if limit.definition.of_change is not None:
        return "too few instances, or it is only in one of the runs"
    return "it was not captured"


def _nothing(limit: Limit) -> str:
    if limit.definition.of_comparison is not None:
        return "No region has instances enough in both runs to tell a change from chance."
    if limit.quantity.endswith("per_step"):
        return "The report holds no region that is plainly its step."
    return "The report holds no GPU work."


def _absent(limit: Limit, report: Report) -> str:
    if limit.scope == STEP:
        return "The report holds no region that is plainly its step."
    near = did_you_mean(limit.scope or "", ("/".join(region.path) for region in report.regions))
    return f"No region matches {limit.scope!r}. {near}{_some(report)}"


def _some(report: Report) -> str:
    names = ["/".join(region.path) for region in report.regions if region.path][:4]
    return f"The report's regions include: {', '.join(names)}." if names else "The report holds no regions."


def shown(value: Number, unit: str) -> str:
    """A value with its unit, as precisely as limits are compared."""
    if value is None:
        return "not captured"
    if unit == "ns":
        return units.duration(value)
    if unit == "fraction":
        return units.percent(value, digits=1)
    if unit == "bytes":
        return units.size(value)
    text = f"{value:.3f}".rstrip("0").rstrip(".") if value < 1_000 else f"{value:,.0f}"
    return f"{text} /ms" if unit == "per_ms" else text


# A budget file: TOML with limits. Whatever is wrong in it is one sentence with its line.

_KEYS = ("limits", "limit", "steps")
_LIMIT_KEYS = ("check", "why", "optional")
_EXAMPLE = 'Such as: limits = ["step.time < 12 ms"]'


class Budget(Struct, frozen=True):
    """``steps``: a glob of the region that is the program's step (None: guessed)."""

    limits: tuple[Limit, ...]
    steps: str | None = None


def read(path: Path) -> Budget:
    """The budget in a file. Raises InputError, LimitError."""
    try:
        text = door.read_text(path)
    except OSError as error:
        raise InputError(f"Cannot read the budget {path}: {error.strerror}.", "Check the name.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"The budget {path} is not text.", "Give a TOML file.") from error
    return loads(text, str(path))


def loads(text: str, name: str = "budget") -> Budget:
    """The budget that TOML text holds."""
    data = _toml(text, name)
    for key in data:
        if key not in _KEYS:
            raise _wrong(text, name, key, f"there is no setting {key!r}", f"Known are {', '.join(_KEYS)}.")
    steps = data.get("steps")
    if steps is not None and not isinstance(steps, str):
        raise _wrong(text, name, "steps", "steps is not the name of a region", 'Such as: steps = "train/batch"')
    plain, tables = data.get("limits", []), data.get("limit", [])
    if not isinstance(plain, list) or not all(isinstance(item, str) for item in plain):
        raise _wrong(text, name, "limits", "limits is not a list of strings", _EXAMPLE)
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise _wrong(text, name, "limit", "limit is not a list of tables", "Write [[limit]] before each.")
    limits = [_limit(text, name, {"check": item}) for item in plain] + [_limit(text, name, item) for item in tables]
    if not limits:
        raise InputError(f"{name} holds no limit.", _EXAMPLE)
    return Budget(tuple(limits), steps)


def _toml(text: str, name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{name} is not TOML: {error}.", _EXAMPLE) from error


def _limit(text: str, name: str, item: Mapping[str, Any]) -> Limit:
    check = item.get("check")
    for key, value in item.items():
        expected = {"check": str, "why": str, "optional": bool}.get(key)
        if expected is None:
            raise _wrong(text, name, key, f"a limit has no {key!r}", f"Known are {', '.join(_LIMIT_KEYS)}.")
        if not isinstance(value, expected):
            kind = "true or false" if expected is bool else "a string"
            raise _wrong(text, name, key, f"{key} is not {kind}", _EXAMPLE)
    if check is None:
        raise _wrong(text, name, "[[limit]]", "a [[limit]] has no check", 'Such as: check = "step.time < 12 ms"')
    try:
        return parse(check, optional=item.get("optional", False), reason=item.get("why", ""))
    except LimitError as error:
        raise LimitError(f"{name}, line {_line(text, check)}: {error.message}", error.next_step) from error


def _wrong(text: str, name: str, where: str, what: str, hint: str) -> InputError:
    return InputError(f"{name}, line {_line(text, where)}: {what}.", hint)


def _line(text: str, wanted: str) -> int:
    """The line that holds the text; TOML parsers do not tell."""
    for candidate in (wanted, wanted.replace("\\", "\\\\").replace('"', '\\"')):
        for number, line in enumerate(text.splitlines(), 1):
            if candidate and candidate in line.partition("#")[0]:
                return number
    return 1
