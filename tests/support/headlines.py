"""The headline of a verdict as it is worded now. How it is worded, ``tests/golden/headlines.txt`` alone says."""

from __future__ import annotations

from boundby.document import sentences
from boundby.results.report import Verdict


def headline(
    bound: str,
    subject: str = "GPU 0",
    *,
    waits_for: str = "",
    plural: bool = False,
    begin_with: str = "",
    of_host: bool = False,
) -> str:
    """The whole sentence; a mixed one is of syncs and host code."""
    verdict = Verdict(bound, "high", mixed_of=("sync", "cpu") if bound == "mixed" else None, waits_for=waits_for)
    return str(sentences.headline(verdict, subject, plural=plural, begin_with=begin_with, of_host=of_host))


def stressed(bound: str) -> str:
    """Its part in capitals."""
    return sentences.headline(Verdict(bound, "high"), "GPU 0").stressed
