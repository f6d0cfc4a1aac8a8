"""A report's figures in the three usual trackers, each without a server: ``python trackers.py REPORT FOLDER``.

Each function stands by itself; ``boundby`` needs none of these packages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import boundby
from boundby import Report


def to_wandb(report: Report, folder: Path) -> None:
    import wandb

    with wandb.init(project="speed", mode="offline", dir=folder) as run:
        run.log(report.metrics())


def to_mlflow(report: Report, folder: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    with mlflow.start_run():
        mlflow.log_metrics(report.metrics())


def to_tensorboard(report: Report, folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for name, value in report.metrics().items():
            writer.add_scalar(name, value, global_step=0)


if __name__ == "__main__":
    for send in (to_wandb, to_mlflow, to_tensorboard):
        send(boundby.analyze(sys.argv[1]), Path(sys.argv[2]))
