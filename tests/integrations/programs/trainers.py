"""The callbacks in the real libraries, on the CPU, with tiny models of their own. Arguments: which, a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import boundby

STEPS = 8


class Numbers(torch.utils.data.Dataset):
    """Inputs and labels that a seed tells."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        made = torch.Generator().manual_seed(place)
        return {"inputs": torch.randn(8, generator=made), "labels": torch.randn(1, generator=made)}


class Small(torch.nn.Module):
    """What ``transformers.Trainer`` takes: a module that returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": torch.nn.functional.mse_loss(self.layer(inputs), labels)}


def of_transformers(folder: Path) -> dict[str, Any]:
    from transformers import Trainer, TrainingArguments

    from boundby.integrations.transformers import BoundbyCallback

    def train(*callbacks: Any) -> Any:
        torch.manual_seed(0)
        options = {"per_device_train_batch_size": 4, "num_train_epochs": 1, "logging_steps": 1, "report_to": "none"}
        arguments = TrainingArguments(str(folder / "out"), use_cpu=True, disable_tqdm=True, **options)
        trainer = Trainer(Small(), arguments, train_dataset=Numbers(), callbacks=[*callbacks])
        trainer.train()
        return trainer

    def losses(trainer: Any) -> list[float]:
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    logged: list[dict[str, float]] = []
    train(BoundbyCallback(wait=2, active=2, log=logged.append))
    assert logged[0]["boundby/findings"] >= 0
    bare, callback = train(), BoundbyCallback(wait=2, active=2)
    watched = train(callback)
    block = callback.block
    assert block is not None
    assert losses(watched) == losses(bare)
    last = watched.state.log_history[-1]

    return {"path": str(block.path), "metrics": {k: v for k, v in last.items() if k.startswith("boundby/")}}


def of_lightning(folder: Path) -> dict[str, Any]:
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    from boundby.integrations.lightning import BoundbyMonitor

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Small()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    monitor = BoundbyMonitor(wait=2, active=2)
    logger = CSVLogger(folder)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=logger, callbacks=[monitor], default_root_dir=folder, **quiet
    )
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    trainer.fit(Module(), loader)
    logger.save()
    head, *rows = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    names, values = head.split(","), rows[-1].split(",")
    assert monitor.block is not None
    found = {name: float(value) for name, value in zip(names, values, strict=True) if name.startswith("boundby/")}
    return {"path": str(monitor.block.path), "metrics": found}


def of_accelerate(folder: Path) -> dict[str, Any]:
    from accelerate import Accelerator
    from accelerate.utils import ProfileKwargs

    handler = boundby.trace_handler(folder)
    schedule = {"wait": 1, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 0}
    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[ProfileKwargs(schedule_option=schedule, on_trace_ready=handler, with_stack=True)]
    )
    made = Small()
    model, optimizer, loader = accelerator.prepare(
        made, torch.optim.SGD(made.parameters(), lr=0.1), torch.utils.data.DataLoader(Numbers(), batch_size=4)
    )
    with accelerator.profile() as profiler:
        for batch in loader:
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    report = handler.report
    assert report is not None
    return {"path": str(handler.path), "metrics": report.metrics()}


result = globals()[f"of_{sys.argv[1]}"](Path(sys.argv[2]))
print(json.dumps(result))
