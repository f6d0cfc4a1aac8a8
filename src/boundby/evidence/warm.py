"""Regions that are warm-up by their names, and what is left to look at beside them."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import RuleContext

# "warmup", "Warm-up Step *", "init_model", "setup": ranges that a program opens around what it does once.
WARM_NAME = re.compile(
    r"warm[ _-]?(?:up|ing)|^(?:init|initiali[sz](?:e|ation|ing)|set[ _-]?up|start[ _-]?up)"
    r"(?:[ _-]?(?:the )?(?:model|net|network|weights|cuda|gpu|device|context|handles?|librar(?:y|ies)))?$",
    re.IGNORECASE,
)


def warm_regions(context: RuleContext) -> npt.NDArray[np.bool_]:
    """Mask over regions: warm-up by name, or inside one that is. Ask with ``context.once(warm_regions)``."""
    tree = context.timeline.ownership.regions
    found = np.zeros(len(tree), bool)
    for region in range(1, len(tree)):  # parents stand before their children
        found[region] = found[tree.parent[region]] or bool(WARM_NAME.search(tree.name[region]))
    return found


def warm_share(context: RuleContext) -> tuple[float, list[str]]:
    """The fraction of the account that lies in warm-up regions, and the outermost of their names, most time first."""
    tree, warm = context.timeline.ownership.regions, context.once(warm_regions)
    outer = np.flatnonzero(warm & ~warm[np.maximum(tree.parent, 0)])
    time = context.figures.inclusive[outer].sum(axis=1)
    named = [tree.name[region] for region in outer[np.lexsort((outer, -time))].tolist()]
    return int(time.sum()) / max(context.window_ns, 1), list(dict.fromkeys(named))


def rest_window(context: RuleContext) -> str | None:
    """The value of ``--window`` that shows the largest region beside warm-up; None where there is none."""
    tree, warm = context.timeline.ownership.regions, context.once(warm_regions)
    around = warm.copy()  # and those that hold warm-up
    for region in range(len(tree) - 1, 0, -1):
        if around[region]:
            around[tree.parent[region]] = True
    time = context.figures.inclusive.sum(axis=1)
    rows = np.flatnonzero(~around & (time > 0))
    if not len(rows):
        return None
    best = int(rows[np.lexsort((rows, tree.depth[rows], -time[rows]))][0])
    same = np.array([name == tree.name[best] for name in tree.name], bool)
    name = "/".join(tree.path(best)) if bool((same & around).any()) else tree.name[best]
    return f"'nvtx:{name}'"
