"""Ask a Python for its torch. Importing it takes seconds, so only ``boundby doctor`` does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from boundby.capture.machine import ask

TORCH_TIMEOUT_S = 120.0
_ASK = """\
import json, torch
print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.is_available()]))
"""


@dataclass(frozen=True)
class Torch:
    """One installation. ``cuda`` is None in a build without."""

    version: str
    cuda: str | None
    is_available: bool


def look_at_torch(interpreter: Path) -> Torch | None:
    """What ``import torch`` gives; None where it fails."""
    answer = ask([str(interpreter), "-c", _ASK], TORCH_TIMEOUT_S)
    if answer is None or answer.returncode != 0 or not answer.lines:
        return None
    try:
        version, cuda, is_available = json.loads(answer.lines[-1])
    except ValueError:
        return None
    return Torch(str(version), None if cuda is None else str(cuda), bool(is_available))
