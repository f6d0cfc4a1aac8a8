"""Find the nsys to use: the one named, else the first that runs among those usually installed.

Nothing here starts a capture; a candidate is only asked for its version.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from boundby.capture.child import ChildTimeoutError, run_child
from boundby.model.errors import ToolError
from boundby.model.scale import ANSWER_S

#: Names the nsys to use, as ``--nsys`` does.
NSYS_VARIABLE = "BOUNDBY_NSYS"
#: Where installers put nsys, relative to the root folder.
INSTALL_PATTERNS = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/hpc_sdk/Linux_*/*/profilers/Nsight_Systems/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/local/cuda*/nsight-systems-*/target-linux-*/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "usr/lib/nsight-systems/target-linux-*/nsys",
    "usr/lib/*-linux-gnu/nsight-systems/target-linux-*/nsys",
)
#: Where people unpack nsys in their home folder.
HOME_PATTERNS = ("nsight-systems*/bin/nsys", "nsight-systems*/target-linux-*/nsys")
NEXT_STEP = (
    "Install Nsight Systems (it comes with the CUDA toolkit; on Debian, scripts/get-nsys fetches it), "
    f"or name its nsys with --nsys or {NSYS_VARIABLE}."
)


class Nsys(Struct, frozen=True):
    """An nsys that runs. ``version`` is None where it does not tell one."""

    path: Path
    version: str | None
    found_in: str
    """How it was found: ``--nsys``, ``BOUNDBY_NSYS``, ``PATH``, ``install folder`` or ``cache``."""

    @property
    def version_tuple(self) -> tuple[int, ...]:
        """The version in numbers, ``(2023, 4, 4, 54)``; empty, and so the lowest, where it is not known."""
        return version_numbers(self.version or "")

    @property
    def release(self) -> str:
        """The version as people write it: ``2023.4.4``, or ``of unknown version``."""
        return ".".join(map(str, self.version_tuple[:3])) or "of unknown version"

    @property
    def importer(self) -> Path | None:
        """The QdstrmImporter beside it. An nsys that has none captures, but writes only a ``.qdstrm``."""
        folder = Path(os.path.realpath(self.path)).parent
        places = [folder, *folder.parent.glob("host-linux-*")]
        return next((p / "QdstrmImporter" for p in places if (p / "QdstrmImporter").is_file()), None)


class Unusable(Struct, frozen=True):
    """A file that looked like nsys and is not, or does not run."""

    path: Path
    found_in: str
    reason: str


def find_nsys(
    explicit: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Nsys:
    """The nsys to use. ``root`` stands for the root folder, under which install folders are looked for.

    One that is named, by argument or by ``BOUNDBY_NSYS``, is used or is an error: no other is taken silently.

    Raises:
        ToolError: none was found, or the one named does not run.
    """
    unusable: list[Unusable] = []
    for candidate in candidates(explicit, env=env, root=root):
        if isinstance(candidate, Nsys):
            return candidate
        if candidate.found_in in ("--nsys", NSYS_VARIABLE):
            problem = f"{candidate.found_in} names {candidate.path}, but {candidate.reason}."
            raise ToolError(problem, f"Correct it, or leave {candidate.found_in} out to use an installed nsys.")
        unusable.append(candidate)
    if unusable:
        found = "; ".join(f"{each.path}: {each.reason}" for each in unusable)
        raise ToolError(f"No nsys found that runs ({found}).", NEXT_STEP)
    raise ToolError("No nsys found in PATH or in the usual install folders.", NEXT_STEP)


def candidates(
    explicit: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Iterator[Nsys | Unusable]:
    """Every nsys on this machine, in the order in which they are preferred, each file once."""
    seen: set[Path] = set()
    for found_in, paths in _places(explicit, env, root):
        probed: list[Nsys | Unusable] = []
        for path in paths:
            real = Path(os.path.realpath(path))
            if real not in seen:
                seen.add(real)
                probed.append(probe(path, found_in, env))
        yield from sorted(probed, key=_newest_first)


def probe(path: Path, found_in: str, env: Mapping[str, str] = os.environ) -> Nsys | Unusable:
    """Ask a file for its nsys version."""
    if not os.access(path, os.F_OK):
        return Unusable(path, found_in, "there is no such file, or it may not be read")
    if not path.is_file() or not os.access(path, os.X_OK):
        return Unusable(path, found_in, "it is not a program that can be run")
    try:
        answer = run_child([path.absolute(), "--version"], env=env, timeout_s=ANSWER_S)
    except ChildTimeoutError:
        return Unusable(path, found_in, f"it did not report its version within {ANSWER_S:.0f} s")
    except OSError as error:
        return Unusable(path, found_in, f"it cannot be run ({error.strerror})")
    said = answer.text
    if "Nsight Systems" not in said:
        first = answer.lines[0].strip() if answer.lines else "nothing"
        return Unusable(path, found_in, f"it is not Nsight Systems (asked for its version it says: {first})")
    version = re.search(r"version\s+(\d[\w.-]*)", said)
    return Nsys(path, version[1] if version else None, found_in)


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where fetched tools are kept: the rule that scripts/get-nsys follows too."""
    if own := env.get("BOUNDBY_CACHE"):
        return _expanded(own, env).absolute()
    return _expanded(env.get("XDG_CACHE_HOME") or "~/.cache", env).absolute() / "boundby"


def version_numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2023.4.4.54-234433681190v0`` -> ``(2023, 4, 4, 54)``."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def _places(
    explicit: str | os.PathLike[str] | None, env: Mapping[str, str], root: Path
) -> Iterator[tuple[str, list[Path]]]:
    """How nsys may be found, in order of preference, with the files that are there."""
    if explicit is not None:
        yield "--nsys", [_named(os.fspath(explicit), env)]
    if env.get(NSYS_VARIABLE):
        yield NSYS_VARIABLE, [_named(env[NSYS_VARIABLE], env)]
    if in_path := shutil.which("nsys", path=env.get("PATH", "")):
        yield "PATH", [Path(in_path)]
    installed = [path for pattern in INSTALL_PATTERNS for path in root.glob(pattern)]
    at_home = [path for pattern in HOME_PATTERNS for path in _expanded("~", env).glob(pattern)]
    yield "install folder", sorted(installed) + sorted(at_home)
    yield "cache", sorted(cache_folder(env).glob("nsys/*/target-linux-*/nsys"))


def _named(text: str, env: Mapping[str, str]) -> Path:
    """The file a user means: a path, a folder that nsys was unpacked to, or the name of a command in PATH."""
    path = _expanded(text, env)
    if path.is_dir():
        inside = [path / "nsys", path / "bin/nsys", *sorted(path.glob("target-linux-*/nsys"))]
        return next((each for each in inside if each.is_file()), path)
    if os.sep not in text and not path.exists():
        return Path(shutil.which(text, path=env.get("PATH", "")) or path)
    return path


def _expanded(text: str, env: Mapping[str, str]) -> Path:
    """``~`` by the given environment, so that a caller decides where home is."""
    if (text == "~" or text.startswith("~/")) and env.get("HOME"):
        return Path(env["HOME"] + text[1:])
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user, or one without a home
        return Path(text)


def _newest_first(candidate: Nsys | Unusable) -> tuple[list[int], str]:
    """What runs comes first, the newest first, then by path."""
    if isinstance(candidate, Unusable):
        return [1], os.fspath(candidate.path)
    return [-number for number in candidate.version_tuple] or [0], os.fspath(candidate.path)
