"""Report -> what could be made faster as a flat list, for agents that read ``items.json``."""

from __future__ import annotations

import json
from typing import Any

from boundby.document import sentences
from boundby.document.blocks import clean
from boundby.document.sentences import NOTE
from boundby.results.report import Finding, Report
from boundby.results.saved import escaped
from boundby.rules.builtin import builtin


def render(report: Report) -> str:
    """An empty list says that nothing was found."""
    verdicts = [part.verdict for part in report.devices or report.threads]
    bound = verdicts[0].bound if verdicts else "unknown"
    window_ns = max((device.window_ns for device in report.devices), default=report.trace.duration_ns or 0)
    causes = {rule.id: sorted(rule.takes) for rule in builtin()}
    items = [_item(one, bound, causes.get(one.rule, []), window_ns) for one in report.findings]
    return escaped(json.dumps({"items": items}, ensure_ascii=False, indent=1, default=str)) + "\n"


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
        "headroomVerdict": "moves time; the run is no shorter" if sentences.only_moves(one.remedy) else headroom,
        "iters": one.instances,
        "advice": list(one.advice),
        "code": one.code,
    }
