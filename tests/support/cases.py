"""Cases of verdicts, of which each test names what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from boundby.claims.bound import BoundCase, CaseRecords, Host, MissingRecords, Replay
from boundby.model.causes import SCENARIO_OF_CAUSE
from boundby.replay.predictor import MODEL_ERROR
from boundby.replay.trust import OUTSIDE, uncertainty
from boundby.results.report import WhatIf


def predicted(
    window_ns: int,
    alone_ns: Mapping[str, int] | None = None,
    open_ns: Mapping[str, tuple[int, int]] | None = None,
    held_ns: Mapping[str, int] | None = None,
    saved_ns: Mapping[str, int] | None = None,
) -> dict[str, WhatIf]:
    """Predictions by scenario: the window without each cause, else what is left by ``saved_ns``; and how much less and
    more its removal may save, of that what is held up from outside of the trace."""
    found, held_ns = {}, held_ns or {}
    left_ns = {cause: window_ns - (saved_ns or {}).get(cause, 0) for cause in open_ns or {}} | dict(alone_ns or {})
    for cause, left in left_ns.items():
        less, more = (open_ns or {}).get(cause, (0, 0))
        error, outside = round(MODEL_ERROR * left), held_ns.get(cause, 0)
        of = uncertainty(OUTSIDE, 0, outside), uncertainty("unexplained", more + error, less + error - outside)
        scenario = SCENARIO_OF_CAUSE[cause]
        found[scenario] = WhatIf(
            scenario, left, window_ns, 0, left - more - error, left + less + error, uncertainties=of
        )
    return found


_PARTS = {"host": Host, "records": CaseRecords, "replay": Replay, "missing": MissingRecords}
_OF = {name: part for part, record in _PARTS.items() for name in record.__struct_fields__}


def case(**known: Any) -> BoundCase:
    """A case, of the fields of all its parts."""
    own = {name: value for name, value in known.items() if name not in _OF}
    parts = {
        part: record(**{name: value for name, value in known.items() if _OF.get(name) == part})
        for part, record in _PARTS.items()
    }
    return BoundCase(**own, **parts)


def changed(known: BoundCase, **fields: Any) -> BoundCase:
    """A case with other fields, of any of its parts."""
    own = {name: value for name, value in fields.items() if name not in _OF}
    parts = {
        part: replace(getattr(known, part), **{name: value for name, value in fields.items() if _OF.get(name) == part})
        for part in _PARTS
    }
    return replace(known, **own, **parts)
