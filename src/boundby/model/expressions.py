"""Regular expressions, each compiled when it is first used: a report meets a few of the two hundred that modules hold,
and to compile them all takes a tenth of the time of a small one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from re import compile as expression
else:

    class _Late:
        """``re.compile``, late: its methods and attributes are those of what it compiles."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._given = text, flags

        def __getattr__(self, name: str) -> Any:
            value = getattr(re.compile(*self._given), name)
            setattr(self, name, value)  # not asked for here again
            return value

    expression = _Late


__all__ = ["expression"]
