"""A program with its machine and seed: what a run needs, and as JSON what a failure leaves behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import asdict, fields

from boundby.model import door
from boundby.model.errors import InputError
from boundby.simulate.counterfactual import Truths
from boundby.simulate.instructions import INSTRUCTIONS, Instruction, Node, Process, Program, Thread
from boundby.simulate.machine import Machine, Run, realise, simulate
from boundby.simulate.nsys_export import Capture, Export, to_export

FORMAT_VERSION = 1  # 1: first
_KINDS = {kind.__name__: kind for kind in INSTRUCTIONS}


class Case(Struct, frozen=True, dict=True):
    """``label``: the pattern it was made after. ``healthy``: nothing in it should be accused. ``is_plain``: one
    thread, one stream, no jitter, so that nothing is left to chance or to guessing. ``features``: what is untidy in
    it (``untidy.FEATURES``). ``capture``: what an export of it holds."""

    label: str
    program: Program
    machine: Machine = field(default_factory=Machine)
    seed: int = 0
    healthy: bool = False
    is_plain: bool = False
    features: tuple[str, ...] = ()
    capture: Capture = field(default_factory=Capture)

    def run(self) -> Run:
        """What happens."""
        return simulate(realise(self.program, self.machine, self.seed))

    def export(self) -> Export:
        """What a profiler would record of it."""
        return to_export(self.run(), self.capture)

    @cached_property
    def truths(self) -> Truths:
        """What would happen."""
        return Truths(self.program, self.machine, self.seed)


def save(case: Case, path: Path) -> None:
    """Write a case as JSON."""
    path.write_text(dumps(case), encoding="utf-8")


def load(path: Path) -> Case:
    """Read a case. Raises InputError for anything that is none."""
    try:
        return loads(door.read_text(path))
    except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} is not a saved case of a simulated program: {error}.", "Give a file that was saved."
        ) from error


def dumps(case: Case) -> str:
    """A case as JSON text, the same bytes every time."""
    data = {
        "format_version": FORMAT_VERSION,
        "label": case.label,
        "seed": case.seed,
        "healthy": case.healthy,
        "is_plain": case.is_plain,
        "features": case.features,
        "machine": _changed(case.machine, Machine()),
        "capture": _changed(case.capture, Capture()),
        "program": {
            "name": case.program.name,
            "command": case.program.command,
            "processes": [
                {**_plain(process), "threads": [_thread(thread) for thread in process.threads]}
                for process in case.program.processes
            ],
        },
    }
    return json.dumps(data, indent=1) + "\n"


def loads(text: str) -> Case:
    """The case that ``dumps`` wrote; ValueError, TypeError or KeyError for anything else."""
    data = json.loads(text)
    if data["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version {data['format_version']} is not known")
    processes = tuple(
        Process(**{**process, "threads": tuple(_read_thread(thread) for thread in process["threads"])})
        for process in data["program"]["processes"]
    )
    program = Program(processes, data["program"]["name"], tuple(data["program"]["command"]))
    machine = Machine(**data["machine"])
    capture, features = Capture(**data.get("capture", {})), tuple(data.get("features", ()))
    return Case(
        *(data["label"], program, machine, data["seed"], data["healthy"], data["is_plain"]),
        features,
        capture,
    )


def _plain(thing: Thread | Process) -> dict[str, Any]:
    """Its fields with a plain value."""
    return {one.name: getattr(thing, one.name) for one in fields(thing) if one.name not in ("threads", "body")}


def _changed(thing: Machine | Capture, usual: Machine | Capture) -> dict[str, Any]:
    """The fields that are not as usual."""
    return {name: value for name, value in asdict(thing).items() if value != getattr(usual, name)}


def _thread(thread: Thread) -> dict[str, Any]:
    return {**_plain(thread), "body": [_instruction(one) for one in thread.body]}


def _read_thread(data: Mapping[str, Any]) -> Thread:
    return Thread(**{**data, "body": tuple(_read_instruction(one) for one in data["body"])})


def _instruction(instruction: Instruction) -> dict[str, Any]:
    """``{"do": kind, ...}`` with what differs from the defaults."""
    data: dict[str, Any] = {"do": type(instruction).__name__}
    for one in fields(instruction):
        value = getattr(instruction, one.name)
        if one.name == "body":
            value = [_instruction(part) for part in value]
        elif one.name == "nodes":
            value = [[node.kernel, node.ns] for node in value]
        elif one.default is not NODEFAULT and value == one.default:
            continue
        data[one.name] = value
    return data


def _read_instruction(data: Mapping[str, Any]) -> Instruction:
    values = {name: value for name, value in data.items() if name != "do"}
    if "body" in values:
        values["body"] = tuple(_read_instruction(one) for one in values["body"])
    if "nodes" in values:
        values["nodes"] = tuple(Node(*node) for node in values["nodes"])
    made: Instruction = _KINDS[data["do"]](**values)
    return made
