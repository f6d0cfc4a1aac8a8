"""Run by every Python under ``boundby profile --torch-ops``, before its program: wait for torch, and be gone.

A program sees nothing of this: its own ``sitecustomize`` runs, and ``sys.path`` and ``sys.modules`` are as without.
No error here may reach it.
"""

import os
import sys


def _wait_for_torch() -> None:
    import importlib.util

    notes = os.environ.get("BOUNDBY_TORCH_OPS")
    if not notes or sys.version_info < (3, 10):
        return
    folder = os.path.join(os.path.dirname(_HERE), "program")  # noqa: PTH118, PTH120 (pathlib would be one import more)
    spec = importlib.util.spec_from_file_location(
        "_boundby_launcher",
        os.path.join(folder, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[folder],
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules["_boundby_launcher"] = package
    spec.loader.exec_module(package)
    package.wait_for_torch(notes)


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
    _wait_for_torch()
except Exception:
    if os.environ.get("BOUNDBY_DEBUG"):
        raise
_run_the_next_one()
