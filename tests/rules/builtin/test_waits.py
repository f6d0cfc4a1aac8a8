"""Which rule speaks of which wait."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.evidence import waits as _waits
from boundby.evidence.waits import operator_sync
from boundby.rules.builtin import builtin
from boundby.simulate.instructions import US, Alloc, Copy, Instruction, Launch, Loop, Memory, Range, Sync, Work, program
from tests.rules.builtin.harness import Source, context_of, findings, pattern

SCALAR = ("aten::_local_scalar_dense", "aten::item")


@pytest.mark.parametrize(
    ("chain", "read", "fed", "key"),
    [
        (SCALAR, True, False, "item"),
        ((*SCALAR, "aten::is_nonzero"), True, False, "item"),
        ((*SCALAR, "aten::allclose"), True, False, "equal"),
        (("aten::nonzero",), True, False, "nonzero"),
        (("aten::nonzero", "aten::index"), True, False, "boolean-index"),
        (("aten::nonzero", "aten::index_put_", "IndexPutBackward0"), True, False, "boolean-index"),
        (("aten::copy_", "aten::_to_copy", "aten::to", "aten::index"), False, True, "copy-to-device"),
        (("aten::copy_", "aten::_to_copy", "aten::to"), True, False, "copy-to-host"),
        (("aten::copy_", "aten::_to_copy", "aten::to"), False, True, "copy-to-device"),
        (("aten::copy_",), False, False, None),
        (("aten::sort", "aten::_unique2"), True, False, "unique"),
        (("aten::addmm",), False, False, None),
        ((), True, False, None),
    ],
)
def test_the_outermost_known_operator_names_a_wait(
    chain: tuple[str, ...], read: bool, fed: bool, key: str | None
) -> None:
    found = operator_sync(chain, is_read=read, is_fed=fed)
    assert (found.key if found else None) == key


def kinds(*body: Instruction) -> set[int]:
    work = [part for number in range(6) for part in (Work(45 * US), Launch(f"gemm_{number}", 90 * US))]
    context = context_of(Source(program(Loop(5, [Range("step {i}", [*work, *body])]), Sync())))
    waits = _waits.waits_of(context)
    return set(waits.kind[waits.call < waits.call.max()].tolist())


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_a_value_read_back(memory: Memory) -> None:
    assert kinds(Copy(8, "DtoH", memory), Sync("stream")) == {_waits.WaitKind.READBACK}


def test_an_explicit_wait() -> None:
    assert kinds(Sync("stream")) == {_waits.WaitKind.CALL}


def test_a_copy_that_waits_and_a_copy_that_takes_long() -> None:
    assert kinds(Copy(1 << 18, "HtoD", "pageable")) == {_waits.WaitKind.PAGEABLE}
    assert kinds(Copy(1 << 24, "HtoD", "pageable")) == {_waits.WaitKind.COPY}


def test_a_wait_that_freeing_would_make_in_its_stead() -> None:
    assert _waits.WaitKind.TAKEN_OVER in kinds(Sync("stream"), Alloc(5 * US, call="cudaFree"))
    assert kinds(Alloc(5 * US, waits=True, call="cudaFree")) == {_waits.WaitKind.ALLOCATION}


def test_no_wait_is_told_twice() -> None:
    for name in ("sync", "segmentation_before"):
        source = pattern(name)
        waits = _waits.waits_of(context_of(source))
        told = findings(source, *(rule for rule in builtin() if rule.group == "sync"))
        assert sum(item.instances for item in told) <= len(set(waits.incident.tolist()))


def test_a_copy_and_the_sync_after_it_are_one_incident() -> None:
    context = context_of(pattern("segmentation_before", steps=4))
    waits = _waits.waits_of(context)
    asked = waits.of_kind(_waits.WaitKind.OPERATOR)
    assert len(asked) == 4 * 3 * 2
    assert len(set(waits.incident[asked].tolist())) == 4 * 3


@pytest.mark.parametrize(
    ("incidents", "processes", "told"),
    [
        (1, 1, "once, for 290 ms"),
        (30, 1, "30 times, 290 ms in all"),
        (30, 2, "30 times, 290 ms in 2 processes together"),
    ],
)
def test_waits_of_several_processes_are_told_as_a_sum(incidents: int, processes: int, told: str) -> None:
    group = _waits.WaitGroup("item", 0, np.arange(incidents), incidents, 0, 290_000_000, processes)
    assert group.costs == told
