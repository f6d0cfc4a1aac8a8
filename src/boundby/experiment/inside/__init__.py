"""What runs inside the program under experiment: it delays parts in some blocks of steps, and notes how long steps are.

Only Python's standard library: the program's own Python may have nothing else. Whatever fails in here ends the
experiment, and never the program.
"""

from __future__ import annotations

from collections.abc import Callable

FOLDER_VARIABLE = "BOUNDBY_EXPERIMENT"
#: JSON: what holds for the whole run: ``run_on`` to the program's end, a ``remedy``, whether batches are ``kept``.
SETTINGS_VARIABLE = "BOUNDBY_EXPERIMENT_SETTINGS"

WhenImported = Callable[[str, Callable[[], None]], None]


def begin(folder: str, when_imported: WhenImported) -> None:
    """Hook up this process: as soon as the program imports what can be hooked up."""
    import json
    import os

    from . import delayed_device, training_loop, trial
    from .conductor import Conductor, FolderPlanner
    from .ledger import Ledger

    ledger = Ledger(folder)
    settings = json.loads(os.environ.get(SETTINGS_VARIABLE, "{}"))
    conductor = Conductor(ledger, FolderPlanner(ledger), ends_program=not settings.get("run_on"))
    conductor.kept.is_wanted = bool(settings.get("kept"))
    delayed_device.conductors.append(conductor)
    training_loop.hook_up_steps(conductor, when_imported)
    training_loop.hook_up_loaders(conductor, when_imported)
    if "remedy" in settings:
        trial.hook_up(conductor, when_imported, settings["remedy"])
