"""Small values copied to the host, for which it waits; where no operator range says who asked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.waits import Group, WaitKind
from boundby.model.causes import Cause
from boundby.rules.builtin._waiting import Keys, Words, matches
from boundby.rules.rule import Match, Rule

_OTHER = (
    "Keep the value on the device, or read it one step later: copy it asynchronously into pinned memory, record an "
    "event, launch the next step, then look",
)
_TORCH = (
    "Keep the value on the device and read it once every N steps: no .item(), float(t), if t: or print(t) in the step; "
    "torch.where instead of a branch",
)


def check(context: RuleContext) -> Iterator[Match]:
    return matches(context, WaitKind.READBACK, _keys, _words)


def _keys(_: RuleContext, rows: Rows) -> Keys:
    return ["read"], np.zeros(len(rows), np.intp)


def _words(context: RuleContext, group: Group) -> Words:
    return Words(f"a value is read back to the host {group.costs}", context.program.pick(_OTHER, torch=_TORCH))


RULE = Rule(
    id="sync-readback",
    title="Single values are read back to the host, which waits for each",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
