"""What each pattern looks like and what to try first: one page a bound, which ``boundby explain`` shows too.

A page is Markdown: the title, a picture (lanes of host and device over time), "Classic signs"; its "First responses"
are rows of `boundby.rules.remedies`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from msgspec import Struct

from boundby.model.causes import BOUND_LABEL, NOUN, REMOVABLE, SHORT_LABEL
from boundby.rules import remedies
from boundby.rules.remedies import Remedy

KEYS: tuple[str, ...] = tuple(cause.key for cause in REMOVABLE)
# Whose code a page shows, and how many of them.
_SHOWN, _MOST_SHOWN = ("torch", "cpp", "any"), 2
# What a page calls the facts of a trace.
_BLANKS = {
    "program": "PROGRAM",
    "report": "REPORT",
    "kernel": "KERNEL",
    "function": "FUNCTION",
    "sample": "boundby profile -- PROGRAM",
    "rest": "--skip-first 1",
    "mask": "",
    "jax_mask": "",
    "larger": "4",
    "gpu": "1",
    "work": "other work",
    "job": "boundby job REPORT",
}
#: Verdicts and causes that no change removes have a page as well, without responses.
PAGES: tuple[str, ...] = (*KEYS, "mixed", "unknown", "hidden", "device_wait", "profiler", "unattributed")
#: Words for the same, on the command line, beside those that screens use.
ALIASES = {
    "kernels": "gpu_compute",
    "api": "cuda_api",
    "launch": "cuda_api",
    "launches": "cuda_api",
    "synchronization": "sync",
    "host": "cpu",
    "input": "host_blocked",
    "waiting for input": "host_blocked",
    "waiting for other ranks": "host_blocked",
    "comm": "gpu_comm",
    "cannot tell": "unknown",
    **{name.lower(): key for names in (SHORT_LABEL, NOUN, BOUND_LABEL) for key, name in names.items() if key in PAGES},
}


class PatternPage(Struct, frozen=True):
    """One page."""

    key: str
    title: str
    text: str
    remedies: tuple[Remedy, ...]  # in the page's order

    @property
    def picture(self) -> str:
        """Lanes of host and device over time."""
        return self.text.partition("```text\n")[2].partition("\n```")[0]


@cache
def pattern(key: str) -> PatternPage:
    """The page of a bound (a key of `PAGES`)."""
    text = Path(__file__).with_name(f"{key}.md").read_text(encoding="utf-8").strip()
    rows = tuple(row for row in remedies.of_bound(key) if row.text)
    told = "\n\n".join(_section(row) for row in rows)
    whole = f"{text}\n\n## First responses\n\n{told}" if rows else text
    return PatternPage(key, text.partition("\n")[0].removeprefix("# "), whole, rows)


def _section(row: Remedy) -> str:
    """One response of a page: the words, the code for each kind of program, what it needs."""
    examples = [row.do[kind] for kind in _SHOWN if kind in row.do][:_MOST_SHOWN]
    code = "".join(f"\n\n```text\n{Template(one).safe_substitute(_BLANKS)}\n```" for one in examples)
    title = row.words({})
    return f"### {row.id}: {title}\n\n{row.text}{code}\n\n- Needs: {row.needs}\n- Not when: {row.caution}"


def named(word: str) -> PatternPage | None:
    """The pattern that a word means, as a screen or the JSON says it; None: none."""
    plain = word.lower().strip(" .?")
    key = ALIASES.get(plain, plain.replace("-", "_").replace(" ", "_"))
    return pattern(key) if key in PAGES else None
