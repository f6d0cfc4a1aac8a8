"""``BoundbyCallback`` for ``transformers.Trainer``: some steps recorded, the answer at the end of the training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from boundby.integrations.apart import harmless
from boundby.integrations.torch_profiler import profiling


class BoundbyCallback(TrainerCallback):
    """Record some optimizer steps with torch's profiler, and say at the end of the training what it is bound by.

    ``Trainer(..., callbacks=[BoundbyCallback()])``, or ``trainer.add_callback(BoundbyCallback(log=trainer.log))`` to
    send the metrics wherever the Trainer reports to. They are in ``trainer.state.log_history`` in any case.

    Args:
        wait, warmup, active: optimizer steps to let pass, to warm up with, to record.
        dir_name: the folder for traces and pages. Without it: ``boundby`` in the Trainer's ``output_dir``.
        log: what takes a dict of metrics.
        options: as of ``boundby.profiling``.
    """

    def __init__(
        self,
        wait: int = 5,
        warmup: int = 1,
        active: int = 3,
        *,
        dir_name: str | None = None,
        log: Callable[[dict[str, float]], object] | None = None,
        **options: Any,
    ) -> None:
        self._rhythm = (wait, warmup, active)
        self._folder, self._log, self._options = dir_name, log, options
        self._block: profiling | None = None

    @property
    def block(self) -> profiling | None:
        """The ``boundby.profiling`` of the last training: ``report``, ``path``, ``page``."""
        return self._block

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        folder = self._folder or Path(args.output_dir) / "boundby"
        self._block = profiling(*self._rhythm, dir_name=folder, **{"show": False, **self._options})
        self._block.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        if self._block is not None:
            self._block.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        if self._block is None:
            return
        self._block.__exit__(None, None, None)
        if not state.is_world_process_zero:
            return
        self._block.tell()
        with harmless("boundby's metrics"):
            if (report := self._block.report) is None:
                return
            if self._log is not None:
                self._log(report.metrics())
            else:
                state.log_history.append({**report.metrics(), "step": state.global_step})
