"""The ranks of a job replayed together: when would each end, with this much work and these transfers?

A rank's own time passes; at an arrival its
part of the collective begins, once its stream's last one is over; the collective ends on all ranks its transfer after
the last has arrived; a rank that waits for it goes on then. Variants run side by side.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.model.arrays import BoolArray, FloatArray, Int32Array, Int64Array
from boundby.model.library import Record, run, struct

NONE = -1


class Course(Record, Struct, frozen=True, eq=False):
    """Events of all ranks, rank by rank, and the work before each. *Slots* are events with, behind each rank's last,
    its tail: event + rank."""

    order: Int32Array  # in which events can be worked out
    turn_at: Int32Array  # order[turn_at[n]:turn_at[n + 1]] need nothing of each other
    rank: Int32Array  # per event
    instance: Int32Array  # the collective it is of; NONE: one that nobody else holds
    queue: Int32Array  # the collective before it on its stream, where it queued behind that
    is_join: BoolArray  # it ends a wait; else it is an arrival
    lag_ns: FloatArray  # how long after the end of ``queue`` it began; a wait: after that of ``instance`` it was over
    fixed_ns: FloatArray  # what is as long as measured whatever changes
    work_at: Int64Array  # work_at[slot]:work_at[slot + 1] are the rows of its work
    cell: Int32Array  # per row of work: which of the factors it is multiplied by
    work_ns: FloatArray
    tail: Int32Array  # per rank: its slot
    ranks: int


def replay(course: Course, factor: FloatArray, transfer_ns: FloatArray, begin_ns: Int64Array) -> FloatArray:
    """When each rank ends, shape (ranks, variants). ``factor``: (cells, variants); ``transfer_ns``: (collectives,
    variants)."""
    variants = factor.shape[1]
    time = np.repeat(begin_ns.astype(np.float64)[:, None], variants, axis=1)
    latest = np.full(transfer_ns.shape, -np.inf)
    columns = {
        "factor": np.ascontiguousarray(factor),
        "transfer_ns": np.ascontiguousarray(transfer_ns),
        "time_ns": time,
        "latest_ns": latest,
        "own_ns": np.zeros(variants),
        "events": len(course.order),
        "variants": variants,
    }
    run("boundby_chain", course.structure, struct("Variants", columns))
    return time


__all__ = ["NONE", "Course", "replay"]
