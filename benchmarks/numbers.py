"""What does each number decide? Each is moved by x0.7 and x1.4, and every trace is judged again.

    python -m benchmarks.numbers FOLDER [--simulated 12] [--damaged 12] [--rooms claims,rules] [--most 16]
        [--write FILE]

A number is one of `boundby.model.numbers.register`, or a threshold of a rule. What follows from it follows when it
is moved: numbers that are worked out of it, and modules that import it. A trace is judged again only if a function
that reads the number ran on it. Rooms that decide nothing about a trace (reading, drawing, recording, measuring) are
left out.
"""

from __future__ import annotations

import ast
import copy
import os
import pickle
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from msgspec.structs import replace

from benchmarks import damage
from benchmarks.simulated.generate import generate
from boundby.api import Analysis
from boundby.claims.findings import find
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.model.errors import UserError
from boundby.model.numbers import Number, register
from boundby.options import AnalysisOptions
from boundby.render import terminal
from boundby.results.report import DeviceReport, Report, ThreadReport
from boundby.rules.builtin import builtin
from boundby.rules.matches import check
from boundby.rules.rule import Rule
from boundby.trace.tables import Trace

FACTORS = (0.7, 1.4)
#: Rooms whose numbers decide what is said of a trace.
ROOMS = (
    "correlation",
    "structure",
    "attribution",
    "stats",
    "replay",
    "evidence",
    "rules",
    "claims",
    "document",
    "model",
)
#: Of these only what comes after the replay is worked out again.
LATE = frozenset(("evidence", "rules", "claims", "document"))
#: What a number changes, the weightiest first.
EFFECTS = ("verdict", "confidence", "region", "finding", "first", "saving", "words")
#: A saving counts as another from this part of the window on.
OTHER_SAVING = 0.01
#: Larger traces are left out; of more operations, numbers of modules are not moved: each is judged hundreds of times.
MOST_BYTES = 40_000_000
MOST_OPERATIONS = 8_000


def said(report: Report) -> dict[str, Any]:
    """What a report says, by what a number may change of it."""
    window = max((device.window_ns for device in report.devices), default=1)
    savings = [
        *(saving for device in report.devices for saving in (device.verdict.saving_ns,)),
        *(end for finding in report.findings for end in finding.saving_ns or ()),
        *(end for item in report.what_if for end in (item.low_ns, item.predicted_ns, item.high_ns)),
    ]
    parts: list[DeviceReport | ThreadReport] = [*report.devices, *report.threads]
    return {
        "verdict": [(part.verdict.bound, part.verdict.mixed_of) for part in parts],
        "confidence": [part.verdict.confidence for part in parts],
        "region": [
            (one.path, one.verdict.bound, one.verdict.mixed_of, one.verdict.confidence) for one in report.regions
        ],
        "finding": sorted((one.rule, one.region or (), one.severity) for one in report.findings),
        "first": [[one.id for one in part.first_responses] for part in parts],
        "saving": [round((saving or 0) / window / OTHER_SAVING) for saving in savings],
        "words": terminal.render(report, width=120),
    }


@dataclass
class Case:
    """A trace, judged as the numbers stand."""

    name: str
    source: Path | Trace
    ran: set[str] = field(default_factory=set)  # functions, by module and line

    def analysis(self, **changes: Any) -> Analysis:
        """Anew."""
        return Analysis(
            self.source if isinstance(self.source, Path) else copy.copy(self.source), AnalysisOptions(**changes)
        )

    @cached_property
    def whole(self) -> dict[str, Any]:
        """What is said."""
        return said(self.analysis().report)

    @cached_property
    def from_replay(self) -> dict[str, Any]:
        """The same, worked out from the replay on."""
        return self.again(late=True)

    @cached_property
    def replayed(self) -> Analysis:
        """Up to the replay."""
        made = self.analysis()
        _ = made.replayed, made.stats, made.no_gpu_work
        return made

    def again(self, *, late: bool) -> dict[str, Any]:
        """What is said with a number moved; ``late``: from the replay on."""
        if not late:
            return said(self.analysis().report)
        made = copy.copy(self.replayed)
        return said(made.report)

    @cached_property
    def is_small(self) -> bool:
        """Small enough to be judged hundreds of times."""
        return len(self.analysis().trace.operations) <= MOST_OPERATIONS

    def watch(self) -> None:
        """Which functions run on it."""

        def entered(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and "boundby" in frame.f_code.co_filename:
                self.ran.add(_key(frame.f_code))

        sys.setprofile(entered)
        try:
            said(self.analysis().report)
        finally:
            sys.setprofile(None)


def _key(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}"


class Sources:
    """All modules of boundby: who imports what, what is worked out of what, who reads a name."""

    def __init__(self) -> None:
        self.modules = {
            name.removeprefix("boundby."): module
            for name, module in sys.modules.items()
            if name.startswith("boundby.") and getattr(module, "__file__", None)
        }
        self.imports: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        self.worked_out: dict[tuple[str, str], list[tuple[str, ast.Assign | ast.AnnAssign]]] = defaultdict(list)
        self.readers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name, module in self.modules.items():
            self._read(name, module)

    def _read(self, name: str, module: ModuleType) -> None:
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("boundby."):
                for alias in node.names:
                    origin = str(node.module).removeprefix("boundby."), alias.name
                    self.imports[origin].append((name, alias.asname or alias.name))
            elif (
                isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_arithmetic(node.value)
            ):
                for word in {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}:
                    self.worked_out[name, word].append((name, node))
        for code in _codes(compile(text, str(module.__file__), "exec")):
            for word in code.co_names:
                self.readers[name, word].add(_key(code) if code.co_name != "<module>" else "<module>")

    def move(self, module: str, name: str, value: object) -> tuple[set[str], set[str]]:
        """Give a name another value, wherever it is known and whatever is worked out of it. Returns the functions that
        read any of it, and their rooms."""
        pending, functions, rooms = [(module, name, value)], set[str](), set[str]()
        while pending:
            module, name, value = pending.pop()
            setattr(self.modules[module], name, value)
            rooms.add(module.partition(".")[0])
            functions |= self.readers.get((module, name), set())
            pending += [(other, alias, value) for other, alias in self.imports.get((module, name), ())]
            for other, node in self.worked_out.get((module, name), ()):
                space = vars(self.modules[other])
                assert node.value is not None
                result = eval(compile(ast.Expression(node.value), "<moved>", "eval"), space)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    values = result if isinstance(target, ast.Tuple) else [result]
                    pending += [
                        (other, one.id, each)
                        for one, each in zip(names, values, strict=True)
                        if isinstance(one, ast.Name) and getattr(self.modules[other], one.id, None) != each
                    ]
        return functions, rooms


def _is_arithmetic(node: ast.AST) -> bool:
    kinds = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    return all(isinstance(part, kinds) for part in ast.walk(node))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _scaled(value: Any, factor: float) -> Any:
    """A whole number stays one, and moves by one at least."""
    if isinstance(value, tuple):
        return tuple(_scaled(one, factor) for one in value)
    if isinstance(value, float):
        return value * factor
    moved = round(value * factor)
    return moved if moved != value else value + (1 if factor > 1 else -1)


def in_child(do: Callable[[], Any]) -> Any:
    """What it returns, worked out in a process of its own; None: it died."""
    read, write = os.pipe()
    child = os.fork()
    if not child:  # whatever happens, the child ends here
        try:
            os.close(read)
            try:
                answer: Any = do()
            except Exception as error:
                answer = f"fails: {type(error).__name__}: {error}"
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        got = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(got) if got else None


def effects(cases: Sequence[Case], *, late: bool) -> Counter[str]:
    """On how many traces a move changes what, each by the weightiest."""
    found: Counter[str] = Counter()
    for case in cases:
        with suppress(UserError):
            before, now = case.from_replay if late else case.whole, case.again(late=late)
            found[next((what for what in EFFECTS if now[what] != before[what]), "nothing")] += 1
    return found


def move_number(sources: Sources, number: Number, cases: Sequence[Case], most: int) -> Counter[str] | str:
    """What both moves of a constant change."""
    name, total = number.name, Counter[str]()
    if not hasattr(sources.modules.get(number.module), name):
        return "not loaded"
    value = getattr(sources.modules[number.module], name)
    for factor in FACTORS:

        def moved(factor: float = factor) -> Counter[str]:
            functions, rooms = sources.move(number.module, name, _scaled(value, factor))
            is_late = rooms <= LATE
            told = [case for case in cases if "<module>" in functions or functions & case.ran]
            return effects(told[:: max(len(told) // most, 1)][:most], late=is_late)

        answer = in_child(moved)
        if not isinstance(answer, Counter):
            return str(answer)
        total += answer
    return total


def outcome(rule: Rule, context: RuleContext) -> dict[str, Any]:
    """What a rule alone says, by what a threshold may change of it; nothing below what is worth telling."""
    try:
        check(context, rule)
        found = find(context, [rule]).found
    except CannotCheckError as error:
        return {"finding": [], "saving": [], "words": [str(error)]}
    window = max(context.longest_window_ns, 1)
    return {
        "finding": sorted((item.region or (), item.severity) for item in found),
        "saving": sorted(round(end / window / OTHER_SAVING) for item in found for end in item.saving_ns or ()),
        "words": sorted((item.title, *item.advice) for item in found),
    }


def move_thresholds(case: Case, rules: Sequence[Rule]) -> dict[tuple[str, str], Counter[str]]:
    """What both moves of every threshold change on one trace: its rule looks again, and nothing else."""
    context, changed = case.analysis().rule_context, {}
    for rule in rules:
        before = outcome(rule, context)
        for one in rule.thresholds:
            effects_of = changed[rule.id, one.name] = Counter[str]()
            for factor in FACTORS:
                chosen = {(rule.id, one.name): one.value * factor}
                moved = replace(context, thresholds=chosen, _facts={})  # facts may rest on it
                now = outcome(rule, moved)
                effects_of[next((what for what in before if now[what] != before[what]), "nothing")] += 1
    return changed


def traces(arguments: Namespace) -> Iterator[Case]:
    """Real ones, simulated programs, damaged copies."""
    place = Path(arguments.place)
    files = [*arguments.folder.rglob("*.sqlite"), *arguments.folder.rglob("*.json.gz")]
    for file in sorted(files):
        if file.stat().st_size < MOST_BYTES:
            yield Case(file.name, file)
    for seed in range(arguments.simulated):
        yield Case(f"simulated {seed}", generate(seed).export().write(place / f"{seed}.sqlite", "2023"))
    sources = damage.Sources(arguments.folder, place, 40)
    number = done = 0
    while done < arguments.damaged:
        number += 1
        made = damage.damaged(sources, number, sorted(damage.DAMAGES))
        if made is not None:
            done += 1
            yield Case(f"{made[0].kind} of {made[0].source}", made[1].trace)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--simulated", type=int, default=12)
    parser.add_argument("--damaged", type=int, default=12)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--most", type=int, default=16, help="traces that a number is moved on")
    parser.add_argument("--write", type=Path, help="the table, as Markdown")
    given = parser.parse_args(arguments)
    rooms = given.rooms.split(",")
    with tempfile.TemporaryDirectory() as place:
        given.place = place
        cases, every = [], 0
        rules = builtin() if "rules" in rooms else ()
        totals: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for case in traces(given):
            with suppress(UserError):
                for key, found in move_thresholds(case, rules).items():
                    totals[key] += found
                every += 1
                if given.most and case.is_small:
                    _ = case.whole, case.from_replay
                    case.watch()
                    cases.append(case)
        sources = Sources()
        rows: list[tuple[str, str, str, str, Counter[str] | str]] = []
        for number in register():
            room = number.module.partition(".")[0]
            if given.most and room in rooms and not number.is_threshold:
                answer = move_number(sources, number, cases, given.most)
                rows.append((room, f"{number.module}.{number.name}", number.value, number.why, answer))
                print(*rows[-1][:3], _told(answer), sep="\t", flush=True)
        for rule in rules:
            for one in rule.thresholds:
                answer = totals[rule.id, one.name]
                rows.append(("rules", f"{rule.id}.{one.name}", f"{one.value:g}", one.reason, answer))
                print(*rows[-1][:3], _told(answer), sep="\t", flush=True)
    if given.write is not None:
        given.write.write_text(_page(rows, (len(cases), every), given), encoding="utf-8")
    return 0


def _told(answer: Counter[str] | str) -> str:
    if isinstance(answer, str):
        return answer
    changed = [f"{what} {answer[what]}" for what in EFFECTS if answer[what]]
    return f"{', '.join(changed) or 'nothing'} (of {answer.total()})"


def _page(
    rows: Sequence[tuple[str, str, str, str, Counter[str] | str]], count: tuple[int, int], given: Namespace
) -> str:
    """The table: by room, then number by number, those that decide most first."""
    weight = {what: place for place, what in enumerate((*EFFECTS, "nothing"))}

    def strongest(answer: Counter[str] | str) -> str:
        return "nothing" if isinstance(answer, str) else next((what for what in EFFECTS if answer[what]), "nothing")

    by_room: dict[str, Counter[str]] = defaultdict(Counter)
    for room, *_, answer in rows:
        by_room[room][strongest(answer)] += 1
    heads, every = (*EFFECTS, "nothing"), Counter(number.module.split(".")[0] for number in register())
    lines = [
        "# What each number decides",
        "",
        "`boundby doctor --numbers` lists every number in boundby's code with its unit and its reason. A *move* is one "
        f"change of one number, to {FACTORS[0]:g} or {FACTORS[1]:g} times its value, on one trace. {len(rows)} numbers "
        "were moved.",
        "",
        f"- A rule's threshold was moved on {count[1]} traces (real ones, {given.simulated} simulated programs, "
        f"{given.damaged} damaged copies), and its rule ran again.",
        f"- Any other number was moved on up to {given.most} of {count[0]} small traces for which the code with the "
        "number runs, and these traces were analysed again.",
        "",
        "The first table has one row for each room (part of the code). A moved number counts once, in the first of the "
        "columns that it changed:",
        "",
        f"| room | numbers | {' | '.join(heads)} |",
        f"| --- | --- |{' --- |' * len(heads)}",
        *(
            f"| `{room}` | {every[room]} | {' | '.join(str(by_room[room][what]) for what in heads)} |"
            for room in sorted(every)
        ),
        "",
        "`python -m benchmarks.numbers FOLDER --write docs/numbers.md` writes this page.",
        "",
        "| number | value | changes (of moves) | why |",
        "| --- | --- | --- | --- |",
    ]
    ranked = sorted(rows, key=lambda row: (weight[strongest(row[-1])], row[1]))
    lines += [f"| `{name}` | `{value}` | {_told(answer)} | {_cell(why)} |" for _, name, value, why, answer in ranked]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").strip()


if __name__ == "__main__":
    sys.exit(main())
