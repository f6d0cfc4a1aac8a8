"""A program with its machine and seed: what a run needs."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct, field

from boundby.simulate.counterfactual import Truths
from boundby.simulate.instructions import Program
from boundby.simulate.machine import Machine, Run, realise, simulate
from boundby.simulate.nsys_export import Capture, Export, to_export


class Case(Struct, frozen=True, dict=True):
    """``label``: the pattern it was made after. ``healthy``: nothing in it should be accused. ``is_plain``: one
    thread, one stream, no jitter, so that nothing is left to chance or to guessing. ``features``: what is untidy in
    it (``untidy.FEATURES``). ``capture``: what an export of it holds."""

    label: str
    program: Program
    machine: Machine = field(default_factory=Machine)
    seed: int = 0
    healthy: bool = False
    is_plain: bool = False
    features: tuple[str, ...] = ()
    capture: Capture = field(default_factory=Capture)

    def run(self) -> Run:
        """What happens."""
        return simulate(realise(self.program, self.machine, self.seed))

    def export(self) -> Export:
        """What a profiler would record of it."""
        return to_export(self.run(), self.capture)

    @cached_property
    def truths(self) -> Truths:
        """What would happen."""
        return Truths(self.program, self.machine, self.seed)
