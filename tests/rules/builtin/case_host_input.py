"""Slow files in a range named data; the same sleep hidden behind the GPU; no ranges to tell input by."""

from __future__ import annotations

from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def waits_for_files() -> Source:
    return pattern("blocked")


def fed_ahead() -> Source:
    return pattern("healthy")


def without_ranges() -> Source:
    return without(pattern("blocked"), "ranges")


CASES = RuleCases(positive=waits_for_files, negative=fed_ahead, missing=without_ranges)
