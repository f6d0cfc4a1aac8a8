"""What would help against what holds a job up, as far as its ranks' own work tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from boundby.jobs.diagnosis import Chance, Culprit, Job
from boundby.model.causes import Cause
from boundby.model.scale import HALF, NEARLY_ALL

_BY_CAUSE = {
    Cause.HOST_BLOCKED: "feed",
    Cause.CPU: "host",
    Cause.CUDA_API: "host",
    Cause.SYNC: "host",
    Cause.INIT: "warm_up",
}


def remedy_of(one: Culprit | Chance, job: Job, *, is_mpi: bool = False) -> str:
    """Which of ``results.job_report.REMEDIES`` helps; empty: nothing is known. ``is_mpi``: ranks pass messages, which
    need not be a training with batches."""
    remedy = _known(one, job)
    return "look" if is_mpi and remedy in ("feed", "host") else remedy


def _known(one: Culprit | Chance, job: Job) -> str:
    is_work = one.cause in (Cause.GPU_COMPUTE, Cause.GPU_COPY)
    if isinstance(one, Chance):
        lengths = "balance_lengths" if is_work and lengths_differ(job) else "balance_steps"
        return lengths if is_work else _BY_CAUSE.get(one.cause, "")
    of_kind = {"extra": "less_often", "link": "check_link", "machine": "replace_machine"}.get(one.kind, "")
    if one.kind == "stage" and is_work:
        return "move_layers"
    if of_kind or not is_work:
        return of_kind or _BY_CAUSE.get(one.cause, "")
    return "share_work" if _is_in_one_region(one, job) else "check_device"


def _is_in_one_region(one: Culprit, job: Job) -> bool:
    """Whether a culprit takes longer in its worst region alone, and as long as its peers in its other work."""
    keys = (job.cause == one.cause) & (job.time[list(one.ranks)].sum(axis=(0, 1)) > 0)
    own = job.time[list(one.ranks)].sum(axis=1).mean(axis=0)[keys]
    stage = next(members for members in job.stages if one.ranks[0] in members)
    peers = [rank for rank in stage if rank not in one.ranks]
    if not peers or len(own) < 2:
        return False
    excess = np.maximum(own - np.median(job.time[peers].sum(axis=1), axis=0)[keys], 0)
    worst = np.array([job.regions[region][-1:] == one.region[-1:] for region in job.region[keys].tolist()])
    return bool(excess[worst].sum() >= NEARLY_ALL * excess.sum() and own[worst].sum() < NEARLY_ALL * own.sum())


def lengths_differ(job: Job) -> bool:
    """Whether what ranks compute in the two regions in which they compute most, forward and backward, is longer and
    shorter together: as it is where inputs differ in length (correlated by 0.9 or more, the limit of "Understanding
    Stragglers in Large Model Training Using What-if Analysis", OSDI 2025)."""
    keys = np.flatnonzero(job.cause == Cause.GPU_COMPUTE)
    largest = keys[np.argsort(-job.time[:, :, keys].sum(axis=(0, 1)), kind="stable")][:2]
    if len(largest) < 2 or job.steps < 2:
        return False
    time = job.time[:, :, largest]
    beyond = time - time.mean(axis=1, keepdims=True)
    first, other = beyond[..., 0].ravel(), beyond[..., 1].ravel()
    size = float(np.sqrt((first**2).sum() * (other**2).sum()))
    return size > 0 and float((first * other).sum()) >= NEARLY_ALL * size


def _are_one_machines(same: Sequence[Culprit], job: Job) -> bool:
    """Whether none of these ranks is far slower than the others, nor for its work."""
    excess_ns = [culprit.excess_ns for culprit in same]
    return min(excess_ns) >= HALF * max(excess_ns) and not any(_known(culprit, job) == "share_work" for culprit in same)


def folded(culprits: Sequence[Culprit], job: Job) -> list[Culprit]:
    """``culprits`` with all ranks of one machine as that machine, and ranks that are slow alike, and of which the job
    gains only by all together (each has the same share of that), as one."""
    alike: dict[tuple[object, ...], list[Culprit]] = {}
    for culprit in _by_machine(culprits, job):
        is_rank = culprit.kind in ("rank", "exceptions")
        key = (
            (culprit.kind, culprit.cause, culprit.region, culprit.saving_ns)
            if is_rank
            else (culprit.kind, culprit.ranks, culprit.cause)
        )
        alike.setdefault(key, []).append(culprit)
    return [_as_one(same) for same in alike.values()]


def _by_machine(culprits: Sequence[Culprit], job: Job) -> list[Culprit]:
    """Machines all of whose ranks are slow, where none is far slower than the others or in one region alone (that is
    its work's doing, not the machine's); then the other culprits."""
    left, machines, hosts = list(culprits), [], [summary.host for summary in job.summaries]
    for host in sorted({*hosts} - {""}) if len(set(hosts)) > 1 else ():
        of_host = {rank for rank, name in enumerate(hosts) if name == host}
        for cause in sorted({culprit.cause for culprit in left}):
            same = [
                culprit
                for culprit in left
                if (culprit.kind, culprit.cause) == ("rank", cause) and set(culprit.ranks) <= of_host
            ]
            if 1 < len(of_host) == len(same) and _are_one_machines(same, job):
                machines.append(replace(_as_one(same), kind="machine"))
                left = [culprit for culprit in left if culprit not in same]
    return [*machines, *left]


def _as_one(same: Sequence[Culprit]) -> Culprit:
    ranks = tuple(sorted({rank for culprit in same for rank in culprit.ranks}))
    return replace(
        same[0],
        ranks=ranks,
        excess_ns=sum(culprit.excess_ns * len(culprit.ranks) for culprit in same) // len(ranks),
        share=sum(culprit.share for culprit in same) / len(same),
        saving_ns=sum(culprit.saving_ns for culprit in same),
        steps=max(culprit.steps for culprit in same),
    )
