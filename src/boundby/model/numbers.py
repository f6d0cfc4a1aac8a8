"""The register of numbers: every number that stands at the top of a module, with its unit and its reason.

A number is registered by standing there, so that none can be forgotten: the register reads the modules themselves. Its
reason is the comment beside it or above it, its unit what its name ends in; a rule's threshold states both.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeGuard

#: What a name ends in, and the unit that it says.
_UNITS = {
    "NS": "ns",
    "S": "s",
    "MS": "ms",
    "BYTES": "bytes",
    "SHARE": "fraction",
    "FRACTION": "fraction",
    "FACTOR": "times",
    "HZ": "Hz",
    "PT": "points",
}
_SOURCES = Path(__file__).parents[1]


class Number(NamedTuple):
    """One number. ``module``: dotted, without the package; ``name``: of a threshold with its rule's id."""

    module: str
    line: int
    name: str
    value: str  # as it is written
    unit: str
    why: str

    @property
    def is_threshold(self) -> bool:
        """Whether users may change it."""
        return "." in self.name


def register(sources: Path = _SOURCES) -> Iterator[Number]:
    """All numbers, module by module."""
    for path in sorted(sources.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(sources).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(text)
        comments = _comments(text)
        yield from _constants(tree, comments, module)
        yield from _thresholds(tree, module)


def _constants(tree: ast.Module, comments: Mapping[int, str], module: str) -> Iterator[Number]:
    before, said = 0, ""
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        comment = comments.get(node.lineno, "") or _above(comments, node.lineno)
        said = comment or (said if node.lineno == before + 1 else "")  # those below each other share one
        before, value = node.end_lineno or node.lineno, node.value
        if not is_number(value):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for word, part in _named(target, value):
                yield Number(module, node.lineno, word, ast.unparse(part), _unit(word, part), said)


def _named(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each name with its number, where several stand on one line."""
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    is_each = isinstance(value, ast.Tuple) and len(value.elts) == len(names)
    values = value.elts if isinstance(value, ast.Tuple) and is_each else [value] * len(names)
    yield from zip(map(ast.unparse, names), values, strict=True)


def _thresholds(tree: ast.Module, module: str) -> Iterator[Number]:
    for rule in (node for node in ast.walk(tree) if _calls(node, "Rule")):
        rule_id = next(ast.literal_eval(word.value) for word in rule.keywords if word.arg == "id")
        for node in (node for node in ast.walk(rule) if _calls(node, "Threshold")):
            name, value, unit, why = (ast.literal_eval(part) for part in node.args)
            yield Number(module, node.lineno, f"{rule_id}.{name}", str(value), unit, why)


def _calls(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def is_number(node: ast.AST | None) -> TypeGuard[ast.expr]:
    """Whether an expression is made of numbers alone."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(is_number, parts))
    return False


def _unit(name: str, value: ast.AST) -> str:
    rest, _, last = name.rpartition("_")
    if last in _UNITS:
        return f"per {_UNITS[last]}" if rest.endswith("_PER") else _UNITS[last]
    is_whole = not any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in ast.walk(value))
    return "count" if is_whole else "ratio"


def _comments(text: str) -> dict[int, str]:
    """By line; those that stand alone begin with a newline."""
    comments_of = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = "\n" if not token.line[: token.start[1]].strip() else ""
            comments_of[token.start[0]] = alone + token.string.lstrip("#:").strip()
    return comments_of


def _above(comments: Mapping[int, str], line: int) -> str:
    """The comment that stands alone right above a line."""
    lines: list[str] = []
    while (text := comments.get(line := line - 1, "")).startswith("\n"):
        lines.insert(0, text.strip())
    return " ".join(lines)
