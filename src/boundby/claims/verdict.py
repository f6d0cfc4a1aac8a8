"""One verdict from one case: the bound, how sure, why, and what removing it would save."""

from __future__ import annotations

from boundby.claims.because import because, is_for_ranks
from boundby.claims.bound import BUSY_KEYS, Case, Decision, as_accounted, decide, host_together_ns
from boundby.claims.confidence import confidence
from boundby.claims.doubt import saving_range, settled, why_not
from boundby.results.report import Verdict


def judge(case: Case) -> Verdict:
    """The verdict."""
    case = as_accounted(settled(case))
    decision = decide(case)
    reason = why_not(case, decision)
    if reason is not None:
        decision = Decision("unknown", decision.savings, why_not=reason)
    level, uncertain = confidence(case, decision)
    named = decision.mixed_of[0] if decision.mixed_of else decision.bound
    gains = tuple(saving for saving in decision.savings if saving.saving_ns > 0)
    told = () if case.is_thread else decision.savings
    has_second = bool(told) and decision.bound not in ("hidden", "unknown")
    second = next((saving for saving in gains if saving.cause != named), None) if has_second else None
    # Nothing but a replay shows how far the host's work hides behind the device's.
    told = tuple(saving for saving in told if case.replayed is not None or saving.cause not in BUSY_KEYS)
    return Verdict(
        bound=decision.bound,
        confidence=level,
        reasons=tuple(one.sentence for one in uncertain),
        uncertainties=uncertain,
        because=because(case, decision) if reason is None else f"cannot be told: {reason.split('. ')[0]}",
        why_not=reason,
        saving_ns=None if reason else next((saving.saving_ns for saving in told if saving.cause == named), None),
        saving_range_ns=None if reason or case.is_thread else saving_range(case, decision),
        runner_up=second.cause if second else None,
        runner_up_saving_ns=second.saving_ns if second in told else None,
        bound_next=None if case.is_thread else decision.bound_next,
        without_ns=case.alone_ns.get(decision.bound),
        decided_by="account" if case.replayed is None else "replay",
        mixed_of=decision.mixed_of,
        savings=gains,
        host_together_ns=None if reason else host_together_ns(case, decision),
        waits_for="ranks" if decision.bound == "host_blocked" and is_for_ranks(case) else "",
    )
