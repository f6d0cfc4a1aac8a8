"""Damaged copies of PyTorch profiler traces: each gives one sentence, or a report that adds up. Nothing else.

    python -m benchmarks.damaged_traces FILE... --seeds 10000

Every fourth copy is analysed as a whole, the others are only read. Exits with 1 where anything else came out.
"""

from __future__ import annotations

import argparse
import gzip
import random
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from tests.support.damaged_json import damaged
from tests.support.invariants import check_invariants

from boundby.api import Analysis
from boundby.model.errors import UserError
from boundby.readers import read_trace

WHOLE_ANALYSES = 4


def outcome(path: Path, *, is_whole: bool) -> str:
    """What came out: a sentence, a trace, a report, or the traceback of what must not happen."""
    try:
        if not is_whole:
            read_trace(path)
            return "read"
        check_invariants(Analysis(path).report)
    except UserError as error:
        is_sentence = bool(error.next_step) and "\n" not in error.message.strip()
        return "one sentence" if is_sentence else f"Traceback: no sentence with a next step: {error!r}"
    except Exception:
        return traceback.format_exc(limit=-3)
    return "a report that adds up"


def main() -> int:
    """Read the command line, damage, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    texts = [gzip.decompress(file.read_bytes()) for file in arguments.files]
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.json"
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            chance = random.Random(seed)
            path.write_bytes(damaged(chance.choice(texts), chance))
            what = outcome(path, is_whole=seed % WHOLE_ANALYSES == 0)
            if what.startswith("Traceback"):
                print(f"seed {seed}: {what}", flush=True)
            found[what.splitlines()[-1] if what.startswith("Traceback") else what] += 1
    for what, count in found.most_common():
        print(f"{count:7,}  {what}")
    return 1 if any(what not in ("read", "one sentence", "a report that adds up") for what in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
