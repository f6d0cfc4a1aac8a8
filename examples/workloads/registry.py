"""The workloads by name: what each is bound by, its variants, what one is asked for, and where it lives."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

BATCHES = 4  # different ones that a workload goes through in turn
CLASSES = 100  # that models of images and words tell apart
FEATURES = 64  # of each instant of a sound or a series


@dataclass(frozen=True)
class Setup:
    """Everything that determines what a program computes, and where."""

    variant: str = "before"
    device: str = "cpu"  # or "cuda"
    seed: int = 0

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    @property
    def is_before(self) -> bool:
        return self.variant == "before"

    def size(self, *, cuda: T, cpu: T) -> T:
        """The size for this device: on a CPU a step shall take no more than a fraction of a second."""
        return cuda if self.is_cuda else cpu


Step = Callable[[int], Any]
"""Runs step number N and gives its result, for which it need not wait."""


@dataclass(frozen=True)
class Workload:
    """A program in several variants that compute the same."""

    name: str
    bound: str  # what ``before`` is bound by on a GPU, or on the host where it uses none
    summary: str
    variants: Mapping[str, str]  # name -> what it does; the first one is the default
    module: str = ""  # in this package; the name, unless that is a module of Python itself
    needs_torch: bool = True
    cuda_only: frozenset[str] = frozenset()  # variants
    cpu_steps: int = 5  # measured by default on a CPU

    def program(self, setup: Setup) -> AbstractContextManager[Step]:
        """Build model and data; entered, it gives the step to run."""
        module = importlib.import_module(f"examples.workloads.{self.module or self.name}")
        built: AbstractContextManager[Step] = module.program(setup)
        return built


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "gpu_compute",
        "gpu_compute",
        "train a transformer",
        {
            "before": "in fp32",
            "after": "bf16 by autocast",
            "compile": "bf16, compiled by torch.compile",
        },
    ),
    Workload(
        "cuda_api",
        "cuda_api",
        "a small network on each of many items",
        {
            "before": "item by item, a few tiny kernels each",
            "after": "all items as one batch",
            "graphs": "one batch, replayed as a CUDA graph",
        },
        cuda_only=frozenset({"graphs"}),
    ),
    Workload(
        "sync",
        "sync",
        "train a segmentation network with a class-balanced loss",
        {
            "before": "nonzero, unique, boolean masks, a branch on a tensor",
            "after": "torch.where, sort and count, ignore_index",
        },
    ),
    Workload(
        "sync_loop",
        "sync",
        "recognise speech, then decode the result (CTC)",
        {
            "before": "frame by frame with .item()",
            "after": "all frames at once on the device, one copy to the host",
        },
    ),
    Workload(
        "cpu",
        "cpu",
        "classify images that need cropping, gamma and resizing",
        {
            "before": "prepared by NumPy on the host, image by image",
            "after": "raw bytes copied, prepared on the device",
        },
    ),
    Workload(
        "input",
        "host_blocked",
        "train on samples that are slow to load",
        {
            "before": "loaded in the training process",
            "after": "loaded ahead by workers",
        },
    ),
    Workload(
        "copy",
        "gpu_copy",
        "run large batches through a small network and fetch all results",
        {
            "before": "blocking copies from and to pageable memory",
            "after": "pinned memory, copies on streams of their own behind the computation",
        },
        module="copies",
    ),
    Workload(
        "pipeline",
        "mixed",
        "detect, choose boxes on the host, classify them",
        {
            "before": "one after the other for each frame",
            "after": "the next frame's detection runs while the host chooses",
        },
    ),
    Workload(
        "numpy_only",
        "cpu",
        "cluster points (k-means), without torch and GPU",
        {
            "before": "a Python loop over points",
            "after": "vectorised",
        },
        needs_torch=False,
        cpu_steps=10,
    ),
    Workload(
        "cpu_steps",
        "host_blocked",
        "load, compute, hand over to a thread: known times, without torch and GPU",
        {"before": "the only variant"},
        needs_torch=False,
        cpu_steps=10,
    ),
)

BY_NAME: Mapping[str, Workload] = {workload.name: workload for workload in WORKLOADS}
