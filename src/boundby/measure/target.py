"""``FILE.py:function`` and ``package.module:factory``: what is to be measured, found and made."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from boundby.measure.device import Device, wait_if_started
from boundby.measure.results import EVENT, METHODS, SYNCHRONISED, WALL, MeasureError, TargetError, next_step
from boundby.measure.sampling import SamplingPlan
from boundby.measure.values import as_inputs, is_module
from boundby.model.scale import HANDFUL

_FORM = "Give FILE.py:FUNCTION or package.module:FUNCTION."


class Target(Struct, frozen=True):
    """A function and its inputs. ``make_inputs`` makes those of another size, ``build`` the function for a device."""

    name: str
    fn: Callable[..., object]
    inputs: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    make_inputs: Callable[[int], Any] | None = None
    build: Callable[[str], Callable[..., object]] | None = None
    first_call_ns: int | None = None  # where it had to be called to find out what it is


def load(place: str, *, device: str | None = None) -> Target:
    """Find what ``place`` names and call it, once, without arguments.

    If it gives a callable, or a callable and its inputs (a tuple of them, a dict of named ones, a single one, or a
    function from a size to inputs), it is a factory, and those are measured. If it gives anything else, it is itself
    the function to measure. A factory with a parameter ``device`` is told the device, if one was chosen.

    Raises:
        TargetError: there is no such file, module or function; it raises; it returns nothing.
    """
    function = find(place)
    takes_device = _check_signature(place, function)
    arguments = {"device": device} if takes_device and device is not None else {}
    began = time.perf_counter_ns()
    made = _called(place, lambda: function(**arguments))
    _called(place, wait_if_started)
    elapsed = time.perf_counter_ns() - began
    target = factory(place, made)
    if target is not None:
        return _with_build(target, place, function) if takes_device else target
    if made is None:
        raise TargetError(
            f"{place} returns nothing, so there is nothing to measure, and nothing that shows that work was done.",
            "Return a result; or, as a factory, a callable and its inputs: return model, (x,).",
        )
    return Target(place, function, first_call_ns=elapsed)


def load_sweep(place: str) -> Callable[[int, str], Any] | None:
    """What makes the work of a size for a device, where ``place`` names a function that takes a ``size``; else None.

    Raises:
        TargetError: there is no such file, module or function.
    """
    function = find(place)
    names = _parameters(function)
    if "size" not in names:
        return None

    def make(size: int, device: str) -> Any:
        chosen = {"size": size, "device": device}
        return _called(place, lambda: function(**{name: chosen[name] for name in chosen if name in names}))

    return make


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # builtins that tell nothing
        return frozenset()


def _with_build(target: Target, place: str, function: Callable[..., Any]) -> Target:
    def build(device: str) -> Callable[..., object]:
        made = factory(place, _called(place, lambda: function(device=device)))
        if made is None:
            raise TargetError(f"{place} gives no callable for the device {device}.", "Return one for every device.")
        return made.fn

    return Target(target.name, target.fn, target.inputs, target.kwargs, target.make_inputs, build)


def factory(place: str, made: Any) -> Target | None:
    """What a factory gave: a callable, or one and its inputs; None if this is no factory's result."""
    if callable(made):
        return Target(place, made)
    if not isinstance(made, tuple) or not made or not callable(made[0]):
        return None
    fn, *rest = made
    if len(rest) != 1:
        return Target(place, fn, tuple(rest))
    inputs = rest[0]
    if isinstance(inputs, tuple | list):
        return Target(place, fn, tuple(inputs))
    if isinstance(inputs, Mapping):
        return Target(place, fn, kwargs={str(name): value for name, value in inputs.items()})
    if callable(inputs) and not is_module(inputs) and not hasattr(inputs, "shape"):
        return _sized(place, fn, inputs)
    return Target(place, fn, (inputs,))


def _sized(place: str, fn: Callable[..., object], make: Callable[[int], Any]) -> Target:
    return Target(place, fn, as_inputs(_called(place, lambda: make(1))), make_inputs=make)


def find(place: str) -> Callable[..., Any]:
    """The function that ``place`` names. Raises TargetError where there is none."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise TargetError(f"{place!r} names no function.", _FORM)
    module = _file(where) if where.endswith(".py") or "/" in where else _module(where)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise TargetError(f"There is no {name} in {where}.", _suggestion(module, name))
        target = getattr(target, part)
    if not callable(target):
        raise TargetError(f"{place} is not a function but {type(target).__name__}.", _suggestion(module, ""))
    function: Callable[..., Any] = target
    return function


def _suggestion(module: ModuleType, name: str) -> str:
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    close = difflib.get_close_matches(name, own, HANDFUL) or own[:HANDFUL]
    return f"It has {', '.join(close)}." if close else "It has no function of its own."


def _file(where: str) -> ModuleType:
    path = Path(where)
    if path.is_dir() or not path.exists():
        raise TargetError(f"There is no file {where}.", _FORM)
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # as for "python FILE.py"
        sys.path.insert(0, folder)
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"measured_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{where} is not a Python file.", _FORM)
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        _called(where, lambda: loader.exec_module(module))
    except TargetError:
        del sys.modules[name]
        raise
    return module


def _module(where: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
            raise TargetError(
                f"There is no module {where}.", f"{_FORM} Modules are looked for here and on Python's path."
            ) from error
        raise _raised(where, error) from error
    except (Exception, SystemExit) as error:
        raise _raised(where, error) from error


def _check_signature(place: str, function: Callable[..., Any]) -> bool:
    """Whether it takes ``device``; raises if it cannot be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins that tell nothing
        return False
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    takes = any(p.name == "device" and p.kind is not p.POSITIONAL_ONLY and p.default is not p.empty for p in parameters)
    if needed and set(needed) <= {"size", "device"}:
        raise TargetError(
            f"{place} takes a size.", f"Sizes are what devices goes through: boundby measure devices {place}"
        )
    if needed:
        raise TargetError(
            f"{place} needs arguments ({', '.join(needed)}).",
            "Give a factory instead: a function without arguments that returns the callable and its inputs.",
        )
    return takes


def _called(place: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (Exception, SystemExit) as error:
        raise _raised(place, error) from error


def _raised(place: str, error: BaseException) -> TargetError:
    """One sentence with the kind of the error, its first line, and where it was raised in the target's own code."""
    if isinstance(error, SyntaxError):
        return TargetError(
            f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}.", "Correct it, and try again."
        )
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return TargetError(f"{place} raised {what.rstrip('.')}{at}.", next_step(error))


def _is_own(file: str) -> bool:
    """Whether a file is the user's: not this one, not Python's, not an installed package's."""
    if file.startswith("<") or Path(file).resolve() == Path(__file__).resolve() or "site-packages" in file:
        return False
    return not file.startswith(sysconfig.get_path("stdlib"))


# The choices of a measurement, checked.

_SPELLINGS = {"synchronized": SYNCHRONISED, "events": EVENT}


class Options(SamplingPlan, frozen=True, kw_only=True):
    """As ``latency`` takes and explains them.

    Raises:
        MeasureError: a choice that makes no sense.
    """

    kwargs: Mapping[str, Any] | None = None
    name: str | None = None
    device: str | Device | None = None
    method: str | None = None
    mode: str | None = None
    graph: bool = False
    flush_l2: bool = False
    fresh_inputs: bool | Callable[[], tuple[Any, ...]] = False

    def __post_init__(self) -> None:
        methods, calls = ", ".join(METHODS), 1 if self.calls_per_sample is None else self.calls_per_sample
        for is_right, problem, hint in (
            (
                self.spelt_method in (*METHODS, WALL, None),
                f"There is no method {self.method!r}.",
                f"Choose one of {methods}.",
            ),
            (
                0 < self.confidence < 1,
                f"{self.confidence} is not a confidence.",
                "Give a number between 0 and 1, as 0.95.",
            ),
            (
                self.precision > 0 and 0 < self.budget_s < float("inf"),
                "Precision and budget must be more than 0.",
                "Such as 0.01 and 5 seconds.",
            ),
            (
                min(self.min_samples, self.max_samples, calls) >= 1,
                "Numbers of samples and calls must be 1 or more.",
                "Such as 30.",
            ),
            (self.warmup >= 0, "Warm-up cannot be fewer than 0 calls.", "Give a number of calls, or True."),
            (
                not (self.graph and self.fresh_inputs),
                "A graph replays on the inputs it was captured with.",
                "Leave out fresh inputs.",
            ),
        ):
            if not is_right:
                raise MeasureError(problem, hint)

    @property
    def spelt_method(self) -> str | None:
        return _SPELLINGS.get(self.method, self.method) if self.method is not None else None
