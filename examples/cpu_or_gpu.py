"""From which size on does a GPU pay? With inputs that are there already, and with their copies there and back.

python examples/cpu_or_gpu.py
boundby measure devices examples/cpu_or_gpu.py:distances --figure sizes.png
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from boundby import measure

FEATURES, CENTRES = 16, 64


def nearest(points: torch.Tensor) -> torch.Tensor:
    """The nearest of some centres to each point: a product, and a minimum."""
    centres = torch.linspace(-1, 1, CENTRES * FEATURES, device=points.device).reshape(CENTRES, FEATURES)
    return torch.cdist(points, centres).argmin(dim=1)


def distances() -> tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[int], torch.Tensor]]:
    """The function, and what makes its input of any size."""
    return nearest, lambda size: torch.linspace(-1, 1, size * FEATURES).reshape(size, FEATURES)


def main(sizes: tuple[int, ...] = (16, 256, 4096, 65536), budget_s: float = 20.0) -> measure.Devices:
    function, make = distances()
    result = measure.devices(function, make_inputs=make, sizes=sizes, budget_s=budget_s)
    print(result)
    return result


if __name__ == "__main__":
    main()
