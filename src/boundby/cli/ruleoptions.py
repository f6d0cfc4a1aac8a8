"""What the command line and ``[tool.boundby]`` in pyproject.toml say about rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RuleOptions:
    """Arguments of `boundby.api.analyze`."""

    disable: tuple[str, ...] = ()
    thresholds: Mapping[str, Mapping[str, float]] | None = None
    show_all: bool = False


def rule_options(disable: Sequence[str] = (), *, show_all: bool = False) -> RuleOptions:
    """The options, on top of the nearest pyproject.toml. Raises UserError for what is none of boundby's, before any
    hard work is done."""
    from boundby.rules.builtin import every
    from boundby.rules.settings import make_settings, read_config

    config = read_config(Path.cwd())
    chosen = RuleOptions((*config.get("disable", ()), *disable), config.get("thresholds") or None, show_all)
    if chosen.disable or chosen.thresholds:
        make_settings(every(), disable=chosen.disable, thresholds=chosen.thresholds)
    return chosen
