"""A loop in a ``boundby.profiling`` block. Arguments: the folder, steps, and ``without`` to hide torch."""

from __future__ import annotations

import sys

if "without" in sys.argv:
    sys.modules["torch"] = None  # type: ignore[assignment]
else:
    import torch

import boundby

with boundby.profiling(wait=1, warmup=1, active=2, dir_name=sys.argv[1]) as p:
    for step in range(int(sys.argv[2])):
        if "without" in sys.argv:
            sum(range(20_000))
        else:
            torch.ones(64, 64).mm(torch.ones(64, 64)).sum().item()
        p.step()
        if "fails" in sys.argv and step == 3:
            raise KeyError("the program's own")
report = p.report
print("report:", report if report is None else repr(report))
print("page:", p.page is not None and p.page.is_file())
