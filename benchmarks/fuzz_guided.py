"""Fuzzing that follows coverage: damage that reaches new lines of the readers is damaged further (Atheris, libFuzzer).

    python -m benchmarks.fuzz_guided --kind sqlite --cases 20000 --seed 1
    python -m benchmarks.fuzz_guided --kind kineto --seconds 600 --corpus FOLDER

Needs ``pip install atheris`` (Linux, Python 3.11 and later). The readers' Python is instrumented; half of the damage is
that of ``benchmarks.fuzz``, which knows tables, columns and events, half is libFuzzer's own. What may come out is a
trace or one sentence with a next step; anything else ends the run, and libFuzzer leaves the input as ``crash-*`` in the
folder where it runs. ``--corpus`` keeps what reached new lines for the next run.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["boundby.readers"]):
    from boundby.readers import read_trace

from tests.support.damaged_json import damaged

from benchmarks import fuzz

_LONGEST = 1 << 17  # bytes of an input: small ones are read fast
_UNITS_S = 10  # an input that takes longer is a failure


def damage_text(data: bytes, chance: random.Random, _: Path) -> bytes:
    """The damage of benchmarks.fuzz to JSON that may be damaged already."""
    try:
        return damaged(data, chance)
    except (ValueError, KeyError, TypeError, IndexError):  # no longer a trace
        return data[: chance.randrange(len(data) + 1)]


def damage_tables(data: bytes, chance: random.Random, path: Path) -> bytes:
    """The damage of benchmarks.fuzz to a database that may be damaged already."""
    path.write_bytes(data)
    try:
        fuzz.KINDS["sqlite"].damage(path, chance)
    except Exception:  # it cannot be opened any more
        return data
    return path.read_bytes()


KINDS: dict[str, Callable[[bytes, random.Random, Path], bytes]] = {"sqlite": damage_tables, "kineto": damage_text}


def main() -> None:
    """Command line. Ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="sqlite")
    parser.add_argument("--cases", type=int, default=-1, help="[until it is stopped]")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="keeps the inputs that reached new lines")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="boundby-guided-"))
    corpus = arguments.corpus or folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    (folder / "sources").mkdir()
    for number, source in enumerate(fuzz.KINDS[arguments.kind].sources(folder / "sources", None)):
        if source.stat().st_size <= _LONGEST:
            (corpus / f"source-{number}").write_bytes(source.read_bytes())
    path, scratch = folder / "input", folder / "scratch"
    knows = KINDS[arguments.kind]

    def one(data: bytes) -> None:
        path.write_bytes(data)
        what = fuzz.outcome(read_trace, path)
        if what not in (fuzz.SENTENCE, fuzz.REPORT):
            raise AssertionError(what)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if not data or chance.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return knows(bytes(data), chance, scratch)[:most]

    limits = [f"-runs={arguments.cases}", f"-max_total_time={arguments.seconds}", f"-seed={arguments.seed}"]
    limits += [f"-max_len={_LONGEST}", f"-timeout={_UNITS_S}", "-rss_limit_mb=2048", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, os.fspath(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
