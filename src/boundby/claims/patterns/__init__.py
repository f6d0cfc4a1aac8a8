"""What each pattern looks like and what to try first: one page a bound, which ``boundby explain`` shows too.

A page is Markdown: the title, a picture (lanes of host and device over time), "Classic signs", and under "First
responses" one section a response, ``### id: title``, that ends with the lines "Needs:" and "Not when:".
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from boundby.model.causes import REMOVABLE
from boundby.model.expressions import expression
from boundby.model.records import dataclass

_RESPONSE = expression(
    r"^### (?P<id>[a-z0-9-]+): (?P<title>.+?)\n\n(?P<text>.*?)\n\n- Needs: (?P<needs>.+?)\n"
    r"- Not when: (?P<caution>.+?)$",
    re.MULTILINE | re.DOTALL,
)
KEYS: tuple[str, ...] = tuple(cause.key for cause in REMOVABLE)
#: Other words for the same, on the command line.
ALIASES = {
    "compute": "gpu_compute",
    "kernels": "gpu_compute",
    "api": "cuda_api",
    "launch": "cuda_api",
    "synchronization": "sync",
    "host": "cpu",
    "input": "host_blocked",
    "blocked": "host_blocked",
    "copy": "gpu_copy",
    "copies": "gpu_copy",
    "comm": "gpu_comm",
    "communication": "gpu_comm",
    "initialization": "init",
}


@dataclass(frozen=True)
class Remedy:
    """One first response as its page teaches it."""

    id: str
    title: str
    needs: str
    caution: str


@dataclass(frozen=True)
class Pattern:
    """One page."""

    key: str
    title: str
    text: str
    remedies: tuple[Remedy, ...]  # in the page's order

    @property
    def picture(self) -> str:
        """Lanes of host and device over time."""
        return self.text.partition("```text\n")[2].partition("\n```")[0]

    def remedy(self, name: str) -> Remedy:
        """The response of this id. Raises KeyError."""
        return {one.id: one for one in self.remedies}[name]


@cache
def pattern(key: str) -> Pattern:
    """The page of a bound (a key of `KEYS`)."""
    text = Path(__file__).with_name(f"{key}.md").read_text(encoding="utf-8").strip()
    remedies = (
        Remedy(found["id"], found["title"], _line(found["needs"]), _line(found["caution"]))
        for found in _RESPONSE.finditer(f"{text}\n")
    )
    return Pattern(key, text.partition("\n")[0].removeprefix("# "), text, tuple(remedies))


def named(word: str) -> Pattern | None:
    """The pattern that a word means; None: none."""
    key = ALIASES.get(word.lower(), word.lower().replace("-", "_"))
    return pattern(key) if key in KEYS else None


def _line(text: str) -> str:
    return " ".join(text.split())
