"""Every workload runs on a CPU in every variant that can, and all of them compute the same."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from examples.workloads.registry import BY_NAME, WORKLOADS, Setup, Workload

STEPS = 2
#: bf16 keeps 8 bits of a number; everything else differs by rounding only.
TOLERANCE = {"gpu_compute": 2e-2}
#: torch.compile takes half a minute on two cores.
NOT_HERE = {("gpu_compute", "compile")}


def needs_torch(workload: Workload) -> None:
    if workload.needs_torch:
        torch = pytest.importorskip("torch", reason="this workload is for torch, which is not installed")
        torch.set_num_threads(1)


def results(workload: Workload, variant: str, seed: int = 0) -> list[Any]:
    """What each step gives, as arrays or lists."""
    with workload.program(Setup(variant, seed=seed)) as step:
        found = [step(number) for number in range(STEPS)]
    return [result if isinstance(result, list) else np.asarray(result) for result in found]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking workers beside threads
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_all_variants_give_the_same(workload: Workload) -> None:
    needs_torch(workload)
    runnable = [
        name for name in workload.variants if name not in workload.cuda_only and (workload.name, name) not in NOT_HERE
    ]
    if workload.name == "cpu_steps":  # its sum counts turns until a time is up
        assert runnable == ["before"]
        assert len(results(workload, "before")) == STEPS
        return
    assert runnable[:2] == ["before", "after"]
    for before, after in pairwise(results(workload, variant) for variant in runnable):
        for one, other in zip(before, after, strict=True):
            if isinstance(one, list):
                assert one == other
                assert any(one)
            else:
                assert np.isfinite(one).all()
                np.testing.assert_allclose(other, one, rtol=TOLERANCE.get(workload.name, 1e-4), atol=1e-4)


@pytest.mark.parametrize("name", ["cuda_api", "numpy_only"])
def test_the_seed_makes_the_data(name: str) -> None:
    workload = BY_NAME[name]
    needs_torch(workload)
    first, again, other = (results(workload, "after", seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("seed", range(5))
def test_the_losses_and_their_gradients_are_equal(seed: int) -> None:
    torch = pytest.importorskip("torch", reason="the loss is torch's, which is not installed")
    from examples.workloads.registry import CLASSES
    from examples.workloads.sync import IGNORED, count_labels, loss_on_device, loss_with_syncs, sample_labels

    torch.manual_seed(seed)
    labels = sample_labels(2, 16)
    if seed == 1:
        labels.fill_(IGNORED)
    elif seed == 2:
        labels[labels != IGNORED] = 3  # one label, and no edge
    elif seed == 3:
        labels = torch.randint(CLASSES, labels.shape)  # nothing unknown
    gradients = []
    losses = []
    for loss_of in (loss_with_syncs, loss_on_device):
        scores = torch.linspace(-1, 1, 2 * CLASSES * 256).view(2, CLASSES, 16, 16).sin().requires_grad_()
        loss = loss_of(scores * 3, labels)
        (loss + scores.sum() * 0).backward()
        losses.append(loss.item())
        gradients.append(scores.grad)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1])
    counted = torch.bincount(labels[labels != IGNORED].flatten(), minlength=CLASSES)
    assert count_labels(labels.flatten()).tolist() == counted.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_both_decoders_read_the_same(seed: int) -> None:
    torch = pytest.importorskip("torch", reason="the decoders are for torch, which is not installed")
    from examples.workloads.sync_loop import BLANK, decode_at_once, decode_by_frame

    chosen = random.Random(seed)
    frames = chosen.choice([1, 2, 17])
    tokens = [[chosen.choice([BLANK, BLANK, 1, 2]) for _ in range(frames)] for _ in range(4)]
    tokens[0] = [BLANK] * frames
    scores = torch.nn.functional.one_hot(torch.tensor(tokens), 3).float()
    assert decode_by_frame(scores) == decode_at_once(scores)
    assert decode_at_once(scores)[0] == []


def test_both_preparations_give_the_same_images() -> None:
    pytest.importorskip("torch", reason="one of them is torch's, which is not installed")
    from examples.workloads.cpu import prepare_on_device, prepare_on_host, sample_images

    images = sample_images(np.random.default_rng(3), 12, 40)
    assert images.mirrored.any()
    assert not images.mirrored.all()
    for side in (8, 40, 64):
        on_host = prepare_on_host(images, side)
        assert on_host.shape == (12, 3, side, side)
        np.testing.assert_allclose(prepare_on_device(images, side, "cpu").numpy(), on_host, rtol=1e-3, atol=1e-4)


def test_boxes_chosen_show_different_things() -> None:
    pytest.importorskip("torch", reason="the workload is for torch, which is not installed")
    from examples.workloads.pipeline import CHOSEN, choose

    box = [0.1, 0.1, 0.2, 0.2]
    found = np.array([[[0.5, *box], [0.9, *box], [0.7, 0.5, 0.5, 0.2, 0.2], [0.1, 0.12, 0.1, 0.2, 0.2]]], np.float32)
    assert choose(found).tolist() == [[1, 2, *[1] * (CHOSEN - 2)]]
