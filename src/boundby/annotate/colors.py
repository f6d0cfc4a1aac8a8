"""Colours of ranges, the same for every backend."""

from __future__ import annotations

import re

OPAQUE = 0xFF000000
NAMES = {
    "black": 0x000000,
    "blue": 0x0000FF,
    "cyan": 0x00FFFF,
    "gray": 0x808080,
    "green": 0x008000,
    "magenta": 0xFF00FF,
    "orange": 0xFFA500,
    "purple": 0x800080,
    "red": 0xFF0000,
    "white": 0xFFFFFF,
    "yellow": 0xFFFF00,
}
_HEX = re.compile(r"#([0-9a-fA-F]{6})")


def argb(color: str | int | None) -> int | None:
    """A colour as 0xAARRGGBB. Takes a name of NAMES, "#rrggbb", or the number itself."""
    if color is None or isinstance(color, int):
        return color
    if color.lower() in NAMES:
        return OPAQUE | NAMES[color.lower()]
    if found := _HEX.fullmatch(color):
        return OPAQUE | int(found[1], 16)
    raise ValueError(f"{color!r} is not a colour known here. Use one of {', '.join(NAMES)}, or '#rrggbb'.")
