"""What each pattern looks like, what to try first, and what only looks like it: one page a bound, which ``boundby
explain`` shows too.

A page is Markdown: the title, a picture (lanes of host and device over time), and the parts of a pattern: context,
problem, trade-offs, what bounds the program next, and false alarms. Its "Classic signs" are rows of
`boundby.claims.signs`, its "First responses" rows of `boundby.rules.remedies`. What tells a false alarm from the
pattern is a row of `LOOKALIKES`, as the classic signs are: where it is not as usual, the other thing may be what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template

from msgspec import Struct

from boundby.claims import signs
from boundby.claims.signs import SIGNS, Between, Part, SignOf, known, share
from boundby.model.causes import BOUND_LABEL, CAUSE_INFO, NOUN, REMOVABLE, SHORT_LABEL, Cause
from boundby.model.scale import HALF, MOST, NEARLY_ALL, NOTABLE, QUARTER, SMALL
from boundby.results.report import Lookalike
from boundby.rules import remedies
from boundby.rules.remedies import Remedy

KEYS: tuple[str, ...] = tuple(cause.key for cause in REMOVABLE)
# Whose code a page shows, and how many of them.
_SHOWN = ("torch", "cpp", "any")
# What a page calls the facts of a trace.
_BLANKS = {
    "program": "PROGRAM",
    "report": "REPORT",
    "kernel": "KERNEL",
    "search": "KERNEL",
    "launches": "--launch-count 3 --kernel-name KERNEL",
    "call": "cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &alpha, B, n, A, k, &beta, C, n);",
    "hint": "",
    "function": "FUNCTION",
    "sample": "boundby profile -- PROGRAM",
    "rest": "--skip-first 1",
    "mask": "",
    "jax_mask": "",
    "larger": "4",
    "each": "4 MB",
    "items": "N",
    "gpu": "1",
    "work": "other work",
    "job": "boundby job REPORT",
}
#: What some verdicts wait for has a page of its own, instead of their bound's: by bound and `Verdict.waits_for`.
_OF_WAITS = {("host_blocked", "ranks"): "other_ranks"}
#: Verdicts and causes that no change removes have a page as well, without responses.
PAGES: tuple[str, ...] = (
    *KEYS,
    *_OF_WAITS.values(),
    "mixed",
    "unknown",
    "hidden",
    "device_wait",
    "profiler",
    "unattributed",
)
#: Titles of parts that are made, and of those that stand behind them.
SIGNS_PART, RESPONSES_PART = "Classic signs", "First responses"
FORCES_PART, THEN_PART, NOT_PART = "Trade-offs", "What bounds it next", "False alarms"
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
    "waiting for other ranks": "other_ranks",
    "page migration": "cpu",
    "comm": "gpu_comm",
    "imbalance": "gpu_comm",
    "cannot tell": "unknown",
    "blocked on the host": "host_blocked",
    "device wait": "device_wait",
    "launched, not started": "device_wait",
    "kernel time": "gpu_compute",
    "its source": "host_blocked",
    **{name.lower(): key for names in (SHORT_LABEL, NOUN, BOUND_LABEL) for key, name in names.items() if key in PAGES},
}
#: And the letters that stand for causes in bars.
_LETTERS = {cause.letter: key for key, cause in CAUSE_INFO.items()}


class PatternPage(Struct, frozen=True):
    """One page."""

    key: str
    title: str
    picture: str  # lanes of host and device over time; empty: what it stands for has none
    lead: str  # what stands above the parts
    parts: Mapping[str, str]  # by their titles, in the page's order
    remedies: tuple[Remedy, ...]  # in the page's order

    @property
    def text(self) -> str:
        """All of it, as Markdown."""
        picture = f"```text\n{self.picture}\n```" if self.picture else ""
        parts = (f"## {title}\n\n{text}" for title, text in self.parts.items())
        return "\n\n".join(filter(None, (f"# {self.title}", picture, self.lead, *parts)))


@cache
def pattern(key: str) -> PatternPage:
    """The page of a bound (a key of `PAGES`)."""
    text = Path(__file__).with_name(f"{key}.md").read_text(encoding="utf-8").strip()
    head, *written = text.split("\n## ")
    title, _, rest = head.partition("\n")
    before, _, after = rest.partition("```text\n")
    picture, _, below = after.partition("\n```")
    parts = {name: part.strip() for name, _, part in (section.partition("\n") for section in written)}
    rows = tuple(row for row in remedies.of_bound(key) if row.text)
    if key in SIGNS:  # they stand between the trade-offs and what bounds the program next
        made = {
            SIGNS_PART: "\n".join(f"- {row.name}: {row.usual}" for row in SIGNS[key]),
            RESPONSES_PART: "\n\n".join(map(_section, rows)),
        }
        later = {name: parts.pop(name) for name in (THEN_PART, NOT_PART)}
        parts |= made | later
    return PatternPage(key, title.removeprefix("# "), picture, f"{before}{below}".strip(), parts, rows)


def page_key(bound: str, waits_for: str) -> str:
    """The page of a pattern of a verdict, which may say for what the host waits."""
    return _OF_WAITS.get((bound, waits_for), bound)


def entries(key: str, part: str) -> tuple[str, ...]:
    """The entries of a part that is a list, each on one line."""
    listed = pattern(key).parts[part].removeprefix("- ").split("\n- ")
    return tuple(" ".join(entry.split()) for entry in listed)


def _section(row: Remedy) -> str:
    """One response of a page: the words, the code for each kind of program, what it needs."""
    examples = [row.do[kind] for kind in _SHOWN if kind in row.do][:2]
    code = "".join(f"\n\n```text\n{Template(example).safe_substitute(_BLANKS)}\n```" for example in examples)
    title = row.words({})
    conditions = "\n".join(f"- {condition}" for condition in row.conditions)
    return f"### {row.id}: {title}\n\n{row.text}{code}\n\n{conditions}"


def named(word: str) -> PatternPage | None:
    """The pattern that a word means, as a screen or the JSON says it; None: none."""
    plain = word.lower().strip(" .?")
    key = _LETTERS.get(word) or ALIASES.get(plain, plain.replace("-", "_").replace(" ", "_"))
    return pattern(key) if key in PAGES else None


#: As the nsys tables and PyTorch's profiler name copies that use no link to the host.
_BETWEEN_DEVICES = ("DtoD", "PtoP")


def _exposed(part: Part) -> Between | None:
    return None if part.exposed_by_waits_ns is None else known(part.exposed_by_waits_ns / signs.total(part))


def _waiting_for_a_core(part: Part) -> Between | None:
    """Where it is not on record when threads ran, nobody can tell."""
    return None if part.cpu_utilization is None else known(part.preempted_ns / signs.total(part))


def _in_graphs(part: Part) -> Between | None:
    graphs = part.graphs
    return known(graphs.total_ns / signs.total(part) if graphs else 0.0)


def _small_copies(part: Part) -> Between | None:
    number = sum(copied.count for copied in part.memcpy.values())
    return known(sum(copied.small_count for copied in part.memcpy.values()) / number) if number else None


def _between_devices(part: Part) -> Between | None:
    whole = sum(copied.total_ns for copied in part.memcpy.values())
    own = sum(copied.total_ns for key, copied in part.memcpy.items() if key in _BETWEEN_DEVICES)
    return known(own / whole) if whole else None


def _of_managed(part: Part) -> Between | None:
    """Of the bytes copied, those of managed memory."""
    whole = sum(copied.bytes for copied in part.memcpy.values())
    kinds = [(kind, size) for part_name in part.memcpy.values() for kind, size in part_name.by_memory.items()]
    return known(sum(size for kind, size in kinds if "managed" in kind) / whole) if whole else None


_CORES = SignOf("ready and without a core", _waiting_for_a_core, high=SMALL)
_INIT = SignOf("idle for initialization", share(Cause.INIT), high=NOTABLE)
_LONG = SignOf("idle time in gaps over 100 us", signs.long_gaps, HALF)

#: By the pattern's key, in the order of its page; None: nothing in a trace of one process tells.
LOOKALIKES: Mapping[str, tuple[SignOf | None, ...]] = {
    "gpu_compute": (
        SignOf("SMs active while busy", signs.active, HALF),
        SignOf("communication alone", share(Cause.GPU_COMM), high=NOTABLE),
        SignOf("copies alone", share(Cause.GPU_COPY), high=NOTABLE),
        SignOf("in CUDA graphs recorded as one piece", _in_graphs, high=NOTABLE),
        None,
    ),
    "cuda_api": (
        SignOf("idle for host code", share(Cause.CPU), high=QUARTER),
        _CORES,
        _INIT,
        SignOf("GPU busy", signs.busy, high=NEARLY_ALL),
    ),
    "sync": (
        SignOf("idle because of syncs", _exposed, SMALL),
        SignOf("idle for host code", share(Cause.CPU), high=QUARTER),
        SignOf("copies alone", share(Cause.GPU_COPY), high=NOTABLE),
    ),
    "cpu": (
        SignOf("launching thread at work", signs.own_work, MOST),
        _LONG,
        _CORES,
        _INIT,
        SignOf("not on record", share(Cause.UNATTRIBUTED), high=QUARTER),
    ),
    "host_blocked": (
        SignOf("GPU busy", signs.busy, high=MOST),
        _CORES,
        SignOf("idle for host code and initialization", share(Cause.CPU, Cause.INIT), high=QUARTER),
        None,
    ),
    "gpu_copy": (
        SignOf("copies alone", share(Cause.GPU_COPY), NOTABLE),
        SignOf("copies of at most 1 KiB", _small_copies, high=MOST),
        SignOf("copy time inside or between GPUs", _between_devices, high=HALF),
        SignOf("bytes of managed memory", _of_managed, high=HALF),
    ),
    "gpu_comm": (
        None,
        SignOf("communication alone", share(Cause.GPU_COMM), NOTABLE),
        SignOf("copy time inside or between GPUs", _between_devices, high=HALF),
    ),
    "init": (
        SignOf("idle for initialization", share(Cause.INIT), NOTABLE),
        None,
        None,
        None,
    ),
}


def lookalikes(pattern: str, part: Part) -> tuple[Lookalike, ...]:
    """Those of one pattern that something measured can tell from it."""
    texts = entries(pattern, NOT_PART)
    rows = zip(texts, LOOKALIKES[pattern], strict=True)
    return tuple(Lookalike(text, row.of(part)) for text, row in rows if row is not None)
