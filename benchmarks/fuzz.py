"""Does any input bring boundby to fall? Damaged copies by the thousand, in processes that may die of them.

    python -m benchmarks.fuzz --cases 10000 --seed 0 --kind sqlite
    python -m benchmarks.fuzz --kind kineto saved-json jobs --traces FOLDER

Each case damages bytes, pages, tables, columns or values of a small input: simulated ones, those of ``sample_reports``,
and real ones of ``--traces`` up to `MOST_BYTES`. What may come out is one sentence with a next step, or a result whose
invariants and JSON schema hold. A traceback, a failed rule, anything on stderr, over `LONGEST_S` or over `MOST_MEMORY`
is a failure: it is printed with its seed, and ``--kind K --seed S --cases 1`` brings it back. `TOGETHER` cases share a
process; where anything is wrong in it, each of them runs again in one of its own. Exits with 1 where there was a
failure.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import gzip
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from tests.readers.kineto.test_reader import small
from tests.support import beside
from tests.support.counted import COUNTED_BOUND, counted_program, damage_counted
from tests.support.damaged_json import damaged, damaged_result
from tests.support.damaged_sqlite import damage
from tests.support.invariants import check_invariants
from tests.support.training import training_loop

from benchmarks.simulated.jobs import Job, Plant, simulate, write_export
from boundby import api
from boundby.model.errors import UserError
from boundby.render import markdown
from boundby.render.formats import FORMATS, Surface
from boundby.results import saved
from boundby.results.report import Report
from boundby.results.schema import DOCUMENTS, schema
from boundby.rules import builtin as rules

MOST_BYTES = 1_200_000  # of a source: thousands of copies are to be looked at
LONGEST_S, MOST_MEMORY = 60, 2 << 30
PART_OF_JOBS = 0.25  # of the ranks of a real job that is read
TELL_EVERY = 500
WHOLE_EVERY = 10
TOGETHER = 20  # cases in one process: what they share costs a fifth
SENTENCE, REPORT = "one sentence", "a report that holds"
_SAMPLES = Path(__file__).parents[1] / "sample_reports"
_SMALL = 100_000  # bytes: sources below are all as likely
_SURFACE = Surface(100, None, unicode=True)
#: What one failure has in common with others like it: not its numbers and paths.
_FIGURES = re.compile(r"/\S*/|\d+")


@dataclass(frozen=True)
class Kind:
    """A kind of input: what to damage, how, and what is done with it."""

    sources: Callable[[Path, Path | None], Sequence[Path]]  # (a folder to write into, real traces) -> files or folders
    damage: Callable[[Path, random.Random], None]  # in place
    use: Callable[[Path], object]  # raises what users would meet
    often: Callable[[Path], object] | None = None  # the same without what costs most

    def use_of(self, seed: int) -> Callable[[Path], object]:
        """What is done with the copy of a seed: one of `WHOLE_EVERY` draws its page, too, and reads its JSON back."""
        return self.use if self.often is None or seed % WHOLE_EVERY == 0 else self.often


@cache
def validator(document: str) -> Any:
    """Of one kind of result, by its own schema."""
    return jsonschema_rs.Draft202012Validator(schema(DOCUMENTS[document]))


def holds(document: str, text: str) -> None:
    """Raises ValidationError where JSON breaks its own schema."""
    validator(document).validate(json.loads(text))


def analyse(path: Path, formats: Sequence[str] = ("terminal", "markdown", "html")) -> None:
    """A report, its invariants, its JSON (there and back, too, where a page is asked for), and other formats of it."""
    analysis = api.Analysis(path)
    report = analysis.report
    failed = [item.reason for item in report.not_checked if item.reason.startswith("the rule failed")]
    assert not failed, failed
    check_invariants(report)
    text = saved.render(report)
    holds("report", text)
    if "html" in formats:
        assert saved.render(saved.loads(text, Report)) == text
    for name in formats:
        render = FORMATS[name].render
        assert render is not None
        render(analysis, _SURFACE, None)


def _without_page(path: Path) -> None:
    analyse(path, ("terminal", "markdown"))


def same_bound(path: Path) -> None:
    """As above; and what was damaged decides no verdict."""
    analyse(path, ("terminal", "markdown"))
    bounds = {device.verdict.bound for device in api.analyze(path).devices}
    assert bounds <= {COUNTED_BOUND}, bounds


def beside_holds(path: Path) -> None:
    """A report that holds, and no confident error."""
    _without_page(path)
    beside.check_beside(path)


def reuse(path: Path) -> None:
    """A saved result shown, compared with a whole one, and checked."""
    report = api.load(path)
    holds("report", saved.render(report))
    markdown.render(report)
    whole = api.load(path.with_name("whole.json"))
    holds("comparison", saved.render(api.compare_runs(whole, report)))
    holds("check", saved.render(api.check(report, "step.time < 12 ms", "gpu_utilization > 50 %")))


def join(folder: Path) -> None:
    """The report of a job of which some ranks are damaged."""
    report = api.job(folder, workers=1)
    failed = [text for text in report.missing if "could not be worked out" in str(text)]
    assert not failed, failed
    holds("job", saved.render(report))


def exports(folder: Path, traces: Path | None) -> list[Path]:
    made = [training_loop(2).write(folder / f"built_{year}.sqlite", year) for year in ("2022", "2026")]
    return [*made, *_small(_SAMPLES, "*.sqlite"), *_small(traces, "**/*.sqlite")]


def counted(folder: Path, _: Path | None) -> list[Path]:
    return [counted_program().write(folder / f"counted_{year}.sqlite", year) for year in ("2022", "2023", "2026")]


def profiler_traces(folder: Path, traces: Path | None) -> list[Path]:
    found = [small().write(folder / "small.json")]
    for number, packed in enumerate([*_small(_SAMPLES, "*.json.gz"), *_small(traces, "kineto/*.json.gz", 60_000)]):
        found.append(folder / f"{number}.json")
        found[-1].write_bytes(gzip.decompress(packed.read_bytes()))
    return found


def results(folder: Path, traces: Path | None) -> list[Path]:
    found = []
    for path in exports(folder, traces)[:8]:
        with contextlib.suppress(UserError):
            text = saved.render(api.analyze(path))
            found.append(folder / f"{path.stem}.json")
            found[-1].write_text(text, encoding="utf-8")
    shutil.copyfile(found[0], folder / "whole.json")
    return found


def jobs(folder: Path, traces: Path | None) -> list[Path]:
    plans = (Job(data=3, steps=4, layers=2, plants=(Plant("slow_input", 2, 0.4),)), Job(data=2, steps=3, layers=2))
    for number, job in enumerate(plans):
        (folder / f"job{number}").mkdir()
        for run in simulate(job):
            write_export(run, folder / f"job{number}" / f"rank_{run.rank}.sqlite")
    for packed in sorted(traces.glob("kineto/job_*/*.json.gz")) if traces else ():
        (folder / packed.parent.name).mkdir(exist_ok=True)
        trace = json.loads(gzip.decompress(packed.read_bytes()))
        (folder / packed.parent.name / packed.stem).write_text(json.dumps(_begin(trace)))
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _begin(trace: dict[str, Any]) -> dict[str, Any]:
    """The first part of a trace: of all of it, thousands of copies would take days."""
    times = sorted(event["ts"] for event in trace["traceEvents"] if "ts" in event)
    until = times[int(len(times) * PART_OF_JOBS)]
    return {**trace, "traceEvents": [one for one in trace["traceEvents"] if one.get("ts", until) <= until]}


def _small(folder: Path | None, pattern: str, most: int = MOST_BYTES) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.stat().st_size <= most] if folder else []


def _damage_text(path: Path, chance: random.Random) -> None:
    path.write_bytes(damaged(path.read_bytes(), chance))


def _damage_result(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.with_name("whole.json").write_bytes(data)
    path.write_bytes(damaged_result(data, chance))


def _damage_ranks(folder: Path, chance: random.Random) -> None:
    ranks = sorted(folder.iterdir())
    for path in chance.sample(ranks, chance.randint(1, len(ranks))):
        (damage if path.suffix == ".sqlite" else _damage_text)(path, chance)


KINDS: Mapping[str, Kind] = {
    "sqlite": Kind(exports, damage, analyse, _without_page),
    "beside": Kind(lambda folder, _: beside.write(folder), beside.damage_beside, beside_holds),
    "counters": Kind(counted, damage_counted, same_bound),
    "kineto": Kind(profiler_traces, _damage_text, analyse, _without_page),
    "saved-json": Kind(results, _damage_result, reuse),
    "jobs": Kind(jobs, _damage_ranks, join),
}


def make(kind: Kind, sources: Sequence[Path], seed: int, folder: Path) -> Path:
    """The damaged copy of one seed."""
    chance = random.Random(seed)
    [source] = chance.choices(
        sources, [1 / max(source.stat().st_size, _SMALL) for source in sources]
    )  # small ones often
    path = folder / source.name
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
    kind.damage(path, chance)
    return path


def outcome(use: Callable[[Path], object], path: Path) -> str:
    """What came out: a sentence, a report, or the traceback of what must not happen."""
    try:
        use(path)
    except UserError as error:
        is_sentence = bool(error.next_step) and "\n" not in error.message.strip()
        return SENTENCE if is_sentence else f"no sentence with a next step: {error!r}"
    except jsonschema_rs.ValidationError as error:
        return f"breaks its schema at {error.instance_path}: {error.message[:200]}"
    except Exception:
        return traceback.format_exc(limit=-3)
    return REPORT


def isolated(cases: Callable[[], Iterable[str]], folder: Path) -> str | list[str]:
    """What came out of cases in a process of their own, which may crash, hang, use up memory or print what it should
    not; one text where it did."""
    said = folder / "said"
    child = os.fork()
    if child == 0:  # whatever happens, the child ends here: it is a copy of who started it
        try:
            with said.open("wb") as file:
                os.dup2(file.fileno(), 2)
            pages = int(Path("/proc/self/statm").read_text().split()[0])  # of who started it, which may map much
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * MOST_MEMORY,) * 2)
            outcomes = []
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LONGEST_S)
            for what in cases():
                outcomes.append(what)
                signal.alarm(LONGEST_S)
            (folder / "outcomes").write_text(json.dumps(outcomes), encoding="utf-8")
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(0)
    _, status, used = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"over {LONGEST_S} s" if name == "SIGALRM" else f"ended by {name}"
    if noise := said.read_text(encoding="utf-8", errors="replace").strip():
        return f"on stderr: {noise}"
    if used.ru_maxrss * 1024 > MOST_MEMORY:
        return f"{used.ru_maxrss / (1 << 20):.1f} GB of memory"
    outcomes = json.loads((folder / "outcomes").read_text(encoding="utf-8"))
    return [str(what) for what in outcomes]


def run(name: str, cases: int, seed: int, traces: Path | None, tell: Callable[[str], None]) -> Counter[str]:
    """How often each outcome was met; failures are told as they come."""
    kind, found = KINDS[name], Counter[str]()
    with tempfile.TemporaryDirectory(prefix="boundby-fuzz-") as kept:
        sources = kind.sources(Path(kept), traces)
        rules.third_party = cache(rules.third_party)  # the same for all
        for source in sources:
            outcome(kind.use, source)  # what is imported once is there for all
        gc.freeze()

        def of(seeds: Iterable[int]) -> str | list[str]:
            def each() -> Iterator[str]:
                for number in seeds:
                    with tempfile.TemporaryDirectory(dir=folder) as own:
                        yield outcome(kind.use_of(number), make(kind, sources, number, Path(own)))

            with tempfile.TemporaryDirectory(dir=kept) as folder:
                return isolated(each, Path(folder))

        for first in range(seed, seed + cases, TOGETHER):
            seeds = range(first, min(first + TOGETHER, seed + cases))
            outcomes = of(seeds)
            if isinstance(outcomes, str) or not {SENTENCE, REPORT}.issuperset(outcomes):
                alone = [what if isinstance(what, str) else what[0] for what in map(of, ([seed] for seed in seeds))]
                if {SENTENCE, REPORT}.issuperset(alone):
                    bad = outcomes if isinstance(outcomes, str) else next(w for w in outcomes if w not in alone)
                    tell(f"{name} --seed {first} --cases {len(seeds)}, of which each alone is well: {bad}")
                    alone[-1] = "only after others"
                outcomes = alone
            for number, what in zip(seeds, outcomes, strict=True):
                if what not in (SENTENCE, REPORT):
                    tell(f"{name} --seed {number}: {what}")
                    what = _FIGURES.sub("*", what.strip().splitlines()[-1])
                found[what] += 1
            if (first - seed) // TOGETHER % (TELL_EVERY // TOGETHER) == 0:
                tell(f"{name}: {sum(found.values()):,} of {cases:,}")
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each has its own")
    parser.add_argument("--kind", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--traces", type=Path, default=os.environ.get("BOUNDBY_TRACES") or None)
    arguments = parser.parse_args()
    failures = 0
    for name in arguments.kind:
        begun = time.monotonic()
        found = run(name, arguments.cases, arguments.seed, arguments.traces, lambda text: print(text, flush=True))
        print(f"{name}: {arguments.cases:,} cases in {time.monotonic() - begun:,.0f} s")
        for what, count in found.most_common():
            print(f"{count:8,}  {what}", flush=True)
        failures += sum(count for what, count in found.items() if what not in (SENTENCE, REPORT))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
