"""One verdict from one case: the bound, how sure, why, and what removing it would save."""

from __future__ import annotations

from msgspec.structs import replace

from boundby.claims.because import because, is_filling, is_for_pages, is_for_ranks
from boundby.claims.bound import BUSY_KEYS, BoundCase, Decision, as_accounted, decide, host_together_ns
from boundby.claims.confidence import confidence
from boundby.claims.doubt import saving_range, settled, why_not
from boundby.model.causes import Cause
from boundby.results.report import Saving, Verdict


def judge(case: BoundCase) -> Verdict:
    """The verdict."""
    case = as_accounted(settled(case))
    decision = decide(case)
    reason = why_not(case, decision)
    if reason is None:
        return _promising(_verdict(case, decision, because(case, decision)), case, decision)
    withheld = Decision("unknown", decision.savings, why_not=reason)
    return _verdict(case, withheld, reason.split(". ")[0])


def _verdict(case: BoundCase, decision: Decision, why: str) -> Verdict:
    """A decision and how sure it is."""
    level, uncertain = confidence(case, decision)
    return Verdict(
        bound=decision.bound,
        confidence=level,
        reasons=tuple(doubt.sentence for doubt in uncertain),
        uncertainties=uncertain,
        because=why,
        why_not=decision.why_not,
        bound_next=None if case.is_thread else decision.bound_next,
        decided_by="account" if case.replayed is None else "replay",
        mixed_of=decision.mixed_of,
        savings=tuple(saving for saving in decision.savings if saving.saving_ns > 0),
    )


def _promising(verdict: Verdict, case: BoundCase, decision: Decision) -> Verdict:
    """The verdict with what removing its bound, and the best of the rest, would save."""
    named = decision.mixed_of[0] if decision.mixed_of else decision.bound
    shown = _told(case, decision)
    second = _second(case, decision, named)
    alone = case.replay.alone.get(decision.bound)
    return replace(
        verdict,
        saving_ns=next((saving.saving_ns for saving in shown if saving.cause == named), None),
        saving_range_ns=None if case.is_thread else saving_range(case, decision),
        runner_up=second.cause if second else None,
        runner_up_saving_ns=second.saving_ns if second in shown else None,
        without_ns=None if alone is None else alone.predicted_ns,
        host_together_ns=host_together_ns(case, decision),
        waits_for=_waits_for(case, decision),
    )


def _waits_for(case: BoundCase, decision: Decision) -> str:
    if decision.bound == Cause.CPU.key:
        return "pages" if is_for_pages(case) else ""
    if decision.bound == Cause.GPU_COPY.key:
        return "fills" if is_filling(case) else ""
    return "ranks" if decision.bound == Cause.HOST_BLOCKED.key and is_for_ranks(case) else ""


def _told(case: BoundCase, decision: Decision) -> tuple[Saving, ...]:
    """The savings that are told as numbers: nothing but a replay shows how far the host's work hides behind the
    device's, and what a thread alone would save says nothing about what waits for it."""
    shown = () if case.is_thread else decision.savings
    return tuple(saving for saving in shown if case.replayed is not None or saving.cause not in BUSY_KEYS)


def _second(case: BoundCase, decision: Decision, named: str) -> Saving | None:
    """The best of what else would save time, where the verdict names a cause; of two that it names, the other."""
    if case.is_thread or decision.bound in ("hidden", "unknown"):
        return None
    if decision.mixed_of is not None:
        return next((saving for saving in decision.savings if saving.cause == decision.mixed_of[1]), None)
    others = (saving for saving in decision.savings if saving.saving_ns > 0 and saving.cause != named)
    return next(others, None)
