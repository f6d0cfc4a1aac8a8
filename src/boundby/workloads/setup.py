"""What a workload is asked for: variant, device, seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """Everything that determines what a program computes, and where."""

    variant: str = "before"
    device: str = "cpu"  # or "cuda"
    seed: int = 0

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    @property
    def is_before(self) -> bool:
        return self.variant == "before"

    def size(self, *, cuda: T, cpu: T) -> T:
        """The size for this device: on a CPU a step shall take no more than a fraction of a second."""
        return cuda if self.is_cuda else cpu
