"""Run by every Python under ``boundby profile --torch-ops`` and ``boundby prove``: wait, and be gone.

A program sees nothing of this: its own ``sitecustomize`` runs, and ``sys.path`` and ``sys.modules`` are as without.
No error here may reach it.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _hook_up() -> None:
    """What the environment asks for: ranges and lines (``boundby profile``), or an experiment (``boundby prove``)."""
    notes, folder = os.environ.get("BOUNDBY_TORCH_OPS"), os.environ.get("BOUNDBY_EXPERIMENT")
    if not (notes or folder) or sys.version_info < (3, 10):
        return
    launcher = _load("_boundby_launcher", "..", "program")
    if notes:
        launcher.wait_for_torch(notes)
    if folder:
        _load("_boundby_experiment", "..", "..", "..", "experiment", "inside").begin(folder, launcher.when_imported)


def _load(name: str, *place: str) -> "Any":
    """A package under a name of its own; boundby itself need not be installed here."""
    import importlib.util

    folder = os.path.abspath(os.path.join(_HERE, *place))  # noqa: PTH100, PTH118 (pathlib would be one import more)
    spec = importlib.util.spec_from_file_location(
        name,
        os.path.join(folder, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[folder],
    )
    if spec is None or spec.loader is None:
        raise ImportError(name)
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


def _run_the_next_one() -> None:
    """Python has one ``sitecustomize``; this one stands before that of the program's own installation."""
    import importlib.machinery
    import importlib.util

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120

try:
    _hook_up()
except Exception:
    if os.environ.get("BOUNDBY_DEBUG"):
        raise
_run_the_next_one()
