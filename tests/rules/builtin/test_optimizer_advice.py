"""The advice names the optimizer that PyTorch's own range names, and asks of it only what it can do."""

from __future__ import annotations

import pytest

from boundby.rules.builtin.fusion_rules import _fused, _is_written_out, _optimizer_code


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (("step *", "Optimizer.step#SGD.step"), "torch.optim.SGD(params, lr=lr, fused=True)"),
        (("Optimizer.step#Adadelta.step",), "torch.optim.Adadelta(params, lr=lr, foreach=True)"),
    ],
)
def test_the_optimizer_is_named(path: tuple[str, ...], wanted: str) -> None:
    assert wanted in _fused(path)
    assert wanted == _optimizer_code(path)


@pytest.mark.parametrize("path", [("step *", "optimizer"), ()])
def test_no_optimizer_is_named_that_nothing_names(path: tuple[str, ...]) -> None:
    assert "torch.optim" not in _fused(path)
    assert "foreach=True" in _optimizer_code(path)


@pytest.mark.parametrize(
    ("kernels", "is_own"),
    [
        (("pow_tensor_scalar_kernel_impl", "sqrt_kernel_cuda", "DivFunctor"), True),
        (("addcmul_cuda_kernel", "sqrt_kernel_cuda", "addcdiv_cuda_kernel"), False),
        (("MulFunctor", "CUDAFunctor_add"), False),
    ],
)
def test_an_update_written_out_is_not_torch_s(kernels: tuple[str, ...], is_own: bool) -> None:
    assert _is_written_out(kernels) == is_own
