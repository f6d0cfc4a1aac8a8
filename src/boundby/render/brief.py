"""Report -> JSON for agents and scripts: in short what decides, with ids that stay and the command behind each number;
and what could be made faster, as a flat list.

The brief is at most `MOST_CHARACTERS` and fewer than 1,500 tokens: lists get shorter, and say so, until it fits.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from boundby.claims.limits import limit
from boundby.document import sentences, serving_document, view
from boundby.document.blocks import clean, region_name, shorten
from boundby.document.sentences import NOTE, not_captured
from boundby.model.late import expression
from boundby.model.scale import HALF, HARDLY, TWO_LINES
from boundby.results.report import (
    Counters,
    DeviceReport,
    Finding,
    FirstResponse,
    RegionReport,
    Report,
    ThreadReport,
    Top,
)
from boundby.results.saved import escaped
from boundby.results.serving_report import ServingReport, ServingSteps
from boundby.rules.builtin import builtin
from boundby.trace.facts import ProgramEnd

MOST_CHARACTERS = 4_000
MOST_TOKENS = 1_350  # by `tokens`, up to 7 % too low on briefs of real traces: fewer than 1,500 in truth
MOST_TEXT = 160  # characters of one sentence
LEAST_SHARE = HARDLY
Json = dict[str, Any]
# What a tokenizer of o200k_base or cl100k_base takes for one token, or nearly: a word, three digits, a run of signs.
_PIECE = expression(r"[A-Z]?[a-z]+|[A-Z]+|\d{1,3}|[^\x00-\x7f]+|[^\w\s]+|_|\n")
_ENDS = expression(r"[.:;] ")  # of a clause
# How many of each list, from generous to sparse: the first that fits is taken.
_STEPS: tuple[Mapping[str, int], ...] = (
    {"devices": 4, "first": 4, "findings": 5, "regions": 8, "kernels": 5, "calls": 3, "text": MOST_TEXT},
    {"devices": 4, "first": 3, "findings": 4, "regions": 6, "kernels": 4, "calls": 3, "text": 120},
    {"devices": 2, "first": 2, "findings": 3, "regions": 4, "kernels": 3, "calls": 2, "text": MOST_TEXT},
    {"devices": 3, "first": 2, "findings": 3, "regions": 5, "kernels": 3, "calls": 2, "text": 100},
    {"devices": 2, "first": 2, "findings": 2, "regions": 3, "kernels": 2, "calls": 1, "text": 80},
    {"devices": 1, "first": 1, "findings": 1, "regions": 2, "kernels": 1, "calls": 1, "text": 60},
)


def render(report: Report) -> str:
    """One line a key, ended by a line break."""
    for most in _STEPS:
        lines = [f"{json.dumps(key)}:{_dumps(value)}" for key, value in brief(report, most).items()]
        text = "{" + ",\n".join(lines) + "}\n"
        if len(text) <= MOST_CHARACTERS and tokens(text) <= MOST_TOKENS:
            break
    return text


def tokens(text: str) -> float:
    """About how many tokens a text is: within 7 % of the larger count of o200k_base and cl100k_base on real briefs."""
    return sum(_tokens(piece[0]) for piece in _PIECE.finditer(text))


def _tokens(piece: str) -> float:
    if not piece.isascii():
        return 0.8 * len(piece.encode())
    if piece.isalpha():
        return 1 if len(piece) <= 8 else 2 if len(piece) <= 14 else -(-len(piece) // 4)
    return 0.5 if piece == "_" else 1 if piece.isdigit() else -(-len(piece) // 3)


def brief(report: Report, most: Mapping[str, int] = _STEPS[0]) -> Json:
    """The brief as plain data; times in milliseconds."""
    name = shlex.quote(report.trace.path)
    parts = report.devices or report.threads
    responses = [response for part in parts[:1] for response in part.first_responses]
    worth = [item for item in report.findings if item.severity != sentences.NOTE]
    rows = sorted((row for row in view.select(report).rows), key=lambda row: (-row.share, row.region.path))
    kernels, calls = view.tops(report)
    return {
        "brief": 1,
        "report": shorten(clean(report.trace.path), TWO_LINES),
        "program": _text(report.trace.command or "", most),
        **({"ended": _ended(end, most)} if (end := report.trace.program) is not None else {}),
        **({"no_gpu_work": _text(str(why), most)} if (why := report.trace.no_gpu_work) is not None else {}),
        "gpu": sorted({clean(device.name) for device in report.devices}),
        "verdicts": [_part(part, report, most) for part in parts[: most["devices"]]],
        "first": [_response(response, name, most) for response in responses[: most["first"]]],
        "findings": [_finding(item, responses[: most["first"]], most) for item in worth[: most["findings"]]],
        "regions": [_region(row.region, most) for row in rows[: most["regions"]]],
        "top_kernels": [_top(operation) for operation in kernels[: most["kernels"]]],
        "top_calls": [_top(operation) for operation in calls[: most["calls"]]],
        "not_told": [
            *(["what came before the last part of the report (--max-memory)"] if report.trace.is_part else []),
            *([no_predictions] if (no_predictions := sentences.no_predictions(report)) else []),
            *(f"{gap.kind} ({gap.remedy})" for gap in not_captured(report)),
        ],
        "left_out": {
            "verdicts": max(len(parts) - most["devices"], 0),
            "first": max(len(responses) - most["first"], 0),
            "findings": max(len(worth) - most["findings"], 0),
            "regions": max(sum(bool(region.path) for region in report.regions) - most["regions"], 0),
        },
        "commands": {
            "all": "boundby analyze REPORT --format json",
            "region": "boundby analyze REPORT --format json --region PATH",
            "finding": "boundby explain RULE (a finding's id up to @)",
            "first": "boundby explain PATTERN (an id up to the dot)",
            "what_if": "boundby what-if REPORT -s SCENARIO",
        },
    }


def of_serving(report: ServingReport) -> str:
    """A server's steps, times in milliseconds: one line a key, ended by a line break."""
    most = _STEPS[0]
    fields: Json = {
        "brief": 1,
        "report": shorten(clean(report.path), TWO_LINES),
        "gpu": clean(report.device),
        "says": clean(serving_document.headline(report)),
        "steps": [_serving_steps(steps) for steps in report.steps],
        "token_ms": None if report.token_ns is None else list(map(_ms, report.token_ns)),
        "generated_per_s": report.generated_per_s,
        "try": [clean(text) for text in serving_document.advice(report)],
        "notes": [_text(note, most) for note in report.notes],
        "commands": {"all": "boundby serving REPORT --format json", "program": "boundby analyze REPORT --format brief"},
    }
    return "{" + ",\n".join(f"{json.dumps(key)}:{_dumps(value)}" for key, value in fields.items()) + "}\n"


def _serving_steps(one: ServingSteps) -> Json:
    times = {
        "median_ms": one.median_ns,
        "p99_ms": one.p99_ns,
        "gap_ms": one.host_gap_ns,
        "gpu_busy_ms": one.gpu_busy_ns,
        "if_host_hidden_ms": one.hidden_ns,
    }
    return {
        "kind": one.kind,
        "requests": one.requests,
        "tokens": one.tokens,
        "count": one.count,
        **{name: None if ns is None else _ms(ns) for name, ns in times.items()},
        "graph_fraction": one.graph_fraction,
        "tokens_per_s": one.tokens_per_s,
        "bound": one.bound,
    }


def _ended(end: ProgramEnd, most: Mapping[str, int]) -> Json:
    fields: Json = {
        "how": end.ended,
        "words": _text(end.words, most),
        "where": end.where,
        "after_ms": _ms(end.after_ns),
    }
    return {**fields, "exit_code": end.exit_code}


def _part(part: DeviceReport | ThreadReport, report: Report, most: Mapping[str, int]) -> Json:
    verdict, whole = part.verdict, sum(part.time.values())
    fields: Json = {
        "id": f"GPU {part.id}" if isinstance(part, DeviceReport) else f"thread {part.tid}",
        "bound": verdict.bound,
        "confidence": verdict.confidence,
        "why": _text(_why(verdict.why_not or verdict.because, report), most),
        "window_ms": _ms(whole),
        "time_ms": {key: _ms(ns) for key, ns in part.time.items() if ns > LEAST_SHARE * whole},
    }
    if isinstance(part, DeviceReport):
        fields |= _of_device(part, most)
    if verdict.mixed_of:
        fields["mixed_of"] = list(verdict.mixed_of)
    left = sentences.left(report, part) if isinstance(part, DeviceReport) else {}
    if (saving_ns := sentences.most_saved(verdict, whole, left)) is not None:
        fields["max_saving_ms"] = _ms(saving_ns)
        fields["then"] = verdict.bound_next
    if isinstance(part, DeviceReport) and part.exposed_by_waits_ns:
        fields["exposed_by_waits_ms"] = _ms(part.exposed_by_waits_ns)
    return fields


def _why(why: str, report: Report) -> str:
    return "as no_gpu_work" if why == str(report.trace.no_gpu_work) else why


def _of_device(device: DeviceReport, most: Mapping[str, int]) -> Json:
    """What only devices have: steady steps, counters."""
    fields: Json = {}
    if device.one_time:
        fields["steady"] = _text(sentences.steady(device), most)
    if device.counters and device.counters.busy:
        fields["counters_while_busy"] = _counted(device.counters.busy)
        fields["limit"] = _text(limit(device.counters.busy), most)
    return fields


def _counted(counters: Counters) -> Json:
    """Fractions of the peak, two digits."""
    names = ("sm_active", "sm_issue", "tensor_active", "dram")
    return {name: round(value, 2) for name in names if (value := getattr(counters, name)) is not None}


def _response(one: FirstResponse, name: str, most: Mapping[str, int]) -> Json:
    fields: Json = {"id": one.id, "do": _text(one.title, most), **_saves(one.id, one.saving_ns)}
    fields["because"] = _text(one.because, most)
    if one.code:
        fields["code"] = one.code
    elif one.action:
        fields["step"] = one.action
    if one.where is not None:
        fields["where"] = sentences.place(one.where)
    fields["command"] = one.command.replace(name, "REPORT")
    return fields


def _finding(item: Finding, first: Sequence[FirstResponse], most: Mapping[str, int]) -> Json:
    """A finding; what a response of ``first`` says already is not said again."""
    identity = shorten(clean(item.id or item.rule), TWO_LINES)
    fields: Json = {"id": identity, "severity": item.severity, **_saves(item.remedy, item.saving_ns)}
    what = next((f"as {response.id}" for response in first if response.because.startswith(item.title)), item.title)
    return {**fields, "what": _text(what, most), "do": _text(item.advice[0] if item.advice else "", most)}


def _region(region: RegionReport, most: Mapping[str, int]) -> Json:
    saving = region.max_saving_ns
    return {
        "path": shorten(region_name(region.path), most["text"]),
        "share": round(region.share, 3),
        "instances": region.instances,
        "bound": region.verdict.bound,
        "max_saving_ms": None if saving is None else _ms(saving),
    }


def _top(one: Top) -> Json:
    return {"name": _text(one.name, {"text": 48}), "count": one.count, "ms": _ms(one.total_ns)}


def _text(text: str, most: Mapping[str, int]) -> str:
    """As long as fits: up to where a clause ends, of a longer one cut."""
    text, length = clean(text), most["text"]
    if len(text) <= length:
        return text
    parts = [text[: end.start()] for end in _ENDS.finditer(text[: length + 1]) if end.start() >= HALF * length]
    whole = [part for part in parts if part.count("(") == part.count(")")]
    return whole[-1] if whole else f"{text[: length - 3]}..."


def _saves(remedy: str, saving_ns: tuple[int, int] | None) -> Json:
    if sentences.saves_elsewhere(remedy):
        return {"saves_ms": None, "moves_ms": _range(saving_ns)}
    return {"saves_ms": _range(saving_ns)}


def _range(saving_ns: tuple[int, int] | None) -> list[float] | None:
    return None if saving_ns is None else [_ms(saving_ns[0]), _ms(saving_ns[1])]


def _ms(ns: float) -> float:
    """Four digits are enough, and cost fewer tokens than nanoseconds."""
    return float(f"{ns / 1e6:.4g}")


def _dumps(value: object) -> str:
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


# What could be made faster as a flat list, for agents that read ``items.json``.


def items(report: Report) -> str:
    """An empty list says that nothing was found."""
    verdicts = [part.verdict for part in report.devices or report.threads]
    bound = verdicts[0].bound if verdicts else "unknown"
    window_ns = max((device.window_ns for device in report.devices), default=report.trace.duration_ns or 0)
    causes = {rule.id: sorted(rule.takes) for rule in builtin()}
    told = [_item(one, bound, causes.get(one.rule, []), window_ns) for one in report.findings]
    return escaped(json.dumps({"items": told}, ensure_ascii=False, indent=1, default=str)) + "\n"


def _item(one: Finding, bound: str, causes: list[str], window_ns: int) -> dict[str, Any]:
    """``status``: ``supported`` where a saving is sure, ``candidate`` where it may be nothing, else ``note``."""
    low_ns, high_ns = one.saving_ns or (0, 0)
    saves = sentences.saving(one.saving_ns, window_ns)
    headroom = f"saves {saves}" if saves else "no number: nothing in the trace tells what it saves"
    return {
        "id": one.id or one.rule,
        "title": clean(one.change or one.title),
        "claim": clean(one.title),
        "evidence": {**one.evidence, **({"where": sentences.place(one.where)} if one.where else {})},
        "magnitudeMs": round(high_ns / 1e6, 4),
        "status": NOTE if one.severity == NOTE else "supported" if low_ns else "candidate",
        "boundingResource": bound if bound in causes or not causes else causes[0],
        "headroomVerdict": "saves this run nothing" if sentences.saves_elsewhere(one.remedy) else headroom,
        "iters": one.instances,
        "advice": list(one.advice),
        "code": one.code,
    }
