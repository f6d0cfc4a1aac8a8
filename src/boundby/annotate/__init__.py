"""Name the parts of a program, so that a trace tells which of them the time goes to.

>>> from boundby.annotate import annotate_loader, annotate_module, annotate_optimizer, nvtx_range, steps
>>> with nvtx_range("load"):                                     # a block, a function, a method, a generator
...     pass
>>> annotate_module(model); annotate_optimizer(optimizer)        # doctest: +SKIP
>>> for batch in steps(annotate_loader(loader), warmup=5):       # doctest: +SKIP
...     train_step(batch)

Ranges go to torch's own NVTX where the program has imported a CUDA build of torch, else to the ``nvtx`` package, else
nowhere (``backend()`` says which). Nothing here imports torch. ``BOUNDBY_NVTX=off`` in the environment turns all of
it off.
"""

from __future__ import annotations

from boundby.annotate.backends import backend
from boundby.annotate.modules import ModuleRanges, OptimizerRanges, annotate_module, annotate_optimizer
from boundby.annotate.ranges import AnnotatedLoader, annotate_loader, nvtx_range, steps

__all__ = [
    "AnnotatedLoader",
    "ModuleRanges",
    "OptimizerRanges",
    "annotate_loader",
    "annotate_module",
    "annotate_optimizer",
    "backend",
    "nvtx_range",
    "steps",
]
