"""Files of expected output. ``BOUNDBY_UPDATE_GOLDEN=1 pytest`` rewrites them: read the diff before you keep it."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"


def check(name: str, text: str) -> None:
    """``text`` is what ``tests/golden/name`` holds."""
    path = FOLDER / name
    if os.environ.get("BOUNDBY_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {path.name}: make it with BOUNDBY_UPDATE_GOLDEN=1"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; BOUNDBY_UPDATE_GOLDEN=1 rewrites it"
