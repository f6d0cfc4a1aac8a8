"""Cases of verdicts, of which each test names what it is about."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from boundby.claims.bound import Case, Host, Missing, Records, Replay

_PARTS = {"host": Host, "records": Records, "replay": Replay, "missing": Missing}
_OF = {name: part for part, record in _PARTS.items() for name in record.__struct_fields__}


def case(**known: Any) -> Case:
    """A case, of the fields of all its parts."""
    own = {name: value for name, value in known.items() if name not in _OF}
    parts = {
        part: record(**{name: value for name, value in known.items() if _OF.get(name) == part})
        for part, record in _PARTS.items()
    }
    return Case(**own, **parts)


def changed(known: Case, **fields: Any) -> Case:
    """A case with other fields, of any of its parts."""
    own = {name: value for name, value in fields.items() if name not in _OF}
    parts = {
        part: replace(getattr(known, part), **{name: value for name, value in fields.items() if _OF.get(name) == part})
        for part in _PARTS
    }
    return replace(known, **own, **parts)
