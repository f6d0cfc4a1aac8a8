"""Runs of kernels: what is attention, an optimizer, a chain, and what only looks like one."""

from __future__ import annotations

from boundby.evidence.kernels import attention, elementwise_chains, optimizer_kernels
from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import EXP, REDUCE_MAX, REDUCE_SUM, elementwise
from tests.rules.builtin.harness import Source, context_of

PRODUCT = "ampere_sgemm_128x64_tn"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>(float *, const float *, int)"
BACKWARD = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float>(float *, const float *, int)"
NLL = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(float *)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::detail::TensorInfo<float>)"


def _kernels(*names: str, turns: int = 5) -> Source:
    body: list[Instruction] = [Launch(name, 50 * US) for name in names]
    return Source(program(Loop(turns, [Range("step {i}", [Work(20 * US), *body])]), Sync()))


def test_a_softmax_kernel_between_products_is_attention() -> None:
    found = attention(context_of(_kernels(PRODUCT, elementwise("Mul"), SOFTMAX, PRODUCT)))
    assert (found.instances, len(found.between), len(found.products), found.forward) == (5, 10, 10, 5)


def test_a_softmax_written_out_is_attention_once() -> None:
    steps = (elementwise("Mul"), REDUCE_MAX, elementwise("Sub"), EXP, REDUCE_SUM, elementwise("Div"))
    found = attention(context_of(_kernels(PRODUCT, *steps, PRODUCT)))
    assert (found.instances, len(found.between)) == (5, 30)


def test_backward_is_told_apart() -> None:
    found = attention(context_of(_kernels(PRODUCT, BACKWARD, PRODUCT)))
    assert (found.instances, found.forward) == (5, 0)


def test_a_loss_is_no_attention() -> None:
    assert attention(context_of(_kernels(PRODUCT, SOFTMAX, NLL, BACKWARD, PRODUCT))).instances == 0


def test_a_router_is_no_attention() -> None:
    assert attention(context_of(_kernels(PRODUCT, SOFTMAX, TOPK, PRODUCT))).instances == 0


def test_an_exponential_alone_is_no_softmax() -> None:
    assert attention(context_of(_kernels(PRODUCT, elementwise("Mul"), EXP, elementwise("Add"), PRODUCT))).instances == 0


def test_products_on_another_stream_do_not_count() -> None:
    body = [Launch(PRODUCT, 50 * US, stream=1), Launch(SOFTMAX, 50 * US), Launch(PRODUCT, 50 * US, stream=1)]
    assert attention(context_of(Source(program(Loop(5, body), Sync())))).instances == 0


def test_optimizers_are_told_by_their_range() -> None:
    update = Range("Optimizer.step#SGD.step", [Launch(elementwise("Add"), 5 * US)])
    context = context_of(Source(program(Loop(5, [Launch(elementwise("Add"), 5 * US), update]), Sync())))
    assert len(optimizer_kernels(context)) == 5


def test_optimizers_are_told_by_addcdiv() -> None:
    adam = [elementwise(what) for what in ("Mul", "Add", "Addcmul", "Sqrt", "Addcdiv")]
    assert len(optimizer_kernels(context_of(_kernels(PRODUCT, *adam)))) == 25
    assert len(optimizer_kernels(context_of(_kernels(PRODUCT, *adam[:-1])))) == 0


def test_an_optimized_region_is_no_optimizer() -> None:
    body = Range("optimized path", [Launch(elementwise("Add"), 5 * US)])
    assert len(optimizer_kernels(context_of(Source(program(Loop(5, [body]), Sync()))))) == 0


def test_chains_are_of_three_and_more() -> None:
    pair = elementwise("Mul"), elementwise("Add")
    context = context_of(_kernels(PRODUCT, *pair, PRODUCT, *pair, *pair))
    found = elementwise_chains(context)
    assert (len(set(found.chain.tolist())), len(found.rows)) == (5, 20)


def test_attention_is_no_chain() -> None:
    steps = (elementwise("Mul"), REDUCE_MAX, elementwise("Sub"), EXP, REDUCE_SUM, elementwise("Div"))
    assert not len(elementwise_chains(context_of(_kernels(PRODUCT, *steps, PRODUCT))).rows)
