"""All headlines of verdicts, word for word: here, and nowhere else."""

from __future__ import annotations

from boundby.document import sentences
from boundby.document.sentences import WAITS_FOR
from boundby.model.causes import BOUNDS
from boundby.results.report import Verdict
from tests.support import golden
from tests.support.headlines import headline


def test_the_headline_of_every_verdict() -> None:
    one = [headline(bound) for bound in BOUNDS]
    several = [headline(bound, "Both GPUs", plural=True) for bound in BOUNDS]
    threads = [headline(bound, "All 3 threads", plural=True, of_host=True) for bound in BOUNDS]
    waiting = [headline(bound, waits_for=key) for key, bound in _WAITING.items()]
    other = [headline(bound, begin_with=bound) for bound in BOUNDS]
    unclear = Verdict("unknown", "low", why_not="the times contradict each other")
    untold = [
        str(sentences.headline(unclear, subject, plural=plural))
        for subject, plural in (("GPU 0", False), ("Both GPUs", True), ("All 3 threads", True))
    ]
    groups = (one, several, threads, waiting, other, untold)
    golden.check("headlines.txt", "\n\n".join("\n".join(group) for group in groups) + "\n")


def test_all_that_a_verdict_waits_for_is_there() -> None:
    assert set(_WAITING) == set(WAITS_FOR)


#: What a verdict says that it waits for, and whose verdict does.
_WAITING = {
    "input": "host_blocked",
    "ranks": "host_blocked",
    "source": "host_blocked",
    "pages": "cpu",
    "fills": "gpu_copy",
}
