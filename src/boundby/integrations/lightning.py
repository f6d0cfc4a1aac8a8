"""``BoundbyMonitor`` for Lightning's ``Trainer``: some batches recorded, the answer at the end of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from boundby.integrations.apart import harmless
from boundby.integrations.torch_profiler import profiling


class BoundbyMonitor(Callback):
    """Record some training batches with torch's profiler, say at the end of the training what it is bound by, and give
    the metrics to every logger: ``Trainer(callbacks=[BoundbyMonitor()])``.

    Args:
        wait, warmup, active: training batches to let pass, to warm up with, to record.
        dir_name: the folder for traces and pages. Without it: ``boundby`` in the Trainer's ``default_root_dir``.
        options: as of ``boundby.profiling``.
    """

    def __init__(
        self, wait: int = 5, warmup: int = 1, active: int = 3, *, dir_name: str | None = None, **options: Any
    ) -> None:
        super().__init__()
        self._rhythm, self._folder, self._options = (wait, warmup, active), dir_name, options
        self._block: profiling | None = None

    @property
    def block(self) -> profiling | None:
        """The ``boundby.profiling`` of the last training: ``report``, ``path``, ``page``."""
        return self._block

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        folder = self._folder or Path(trainer.default_root_dir) / "boundby"
        self._block = profiling(*self._rhythm, dir_name=folder, **{"show": False, **self._options})
        self._block.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002
        if self._block is not None:
            self._block.step()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        if self._block is not None:
            self._block.__exit__(type(exception), exception, exception.__traceback__)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        if self._block is None:
            return
        self._block.__exit__(None, None, None)
        if not trainer.is_global_zero:
            return
        self._block.tell()
        with harmless("boundby's metrics"):
            if (report := self._block.report) is not None:
                for logger in trainer.loggers:
                    logger.log_metrics(report.metrics(), step=trainer.global_step)
