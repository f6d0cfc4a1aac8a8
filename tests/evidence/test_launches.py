"""Launches: each belongs to one part, and repeating ones to as many graphs as there are repetitions."""

from __future__ import annotations

import random

import numpy as np
from benchmarks.simulated.generate import generate

from boundby.evidence.launches import Part, launches
from boundby.simulate.instructions import US, Copy, Instruction, Launch, Loop, Range, Sync, Work, item, program
from tests.rules.builtin.hardware import elementwise, on_gpu
from tests.rules.builtin.harness import Source, context_of

LAYERS: list[Instruction] = [part for number in range(30) for part in (Work(10 * US), Launch(f"op_{number}", 4 * US))]


def test_a_repeating_sequence_is_one_graph_each_time() -> None:
    found = launches(context_of(Source(program(Loop(10, LAYERS), Sync()))))
    assert len(found.rows(Part.REPEATING)) == 300
    assert found.graphs == 10


def test_steps_part_what_has_no_end_of_its_own() -> None:
    same: list[Instruction] = [Work(10 * US), Launch("op", 4 * US)] * 30
    found = launches(context_of(Source(program(Loop(10, [Range("step {i}", same)]), Sync()))))
    assert (len(found.rows(Part.REPEATING)), found.graphs) == (300, 10)


def test_waits_and_copies_to_the_host_cut_sequences() -> None:
    body = [*LAYERS[:40], *item(), *LAYERS[40:]]
    found = launches(context_of(Source(program(Loop(10, body), Sync()))))
    # The end of one turn and the beginning of the next have nothing in between: 20, then 9 times 10 and 20, then 10.
    assert (len(found.rows(Part.REPEATING)), found.graphs) == (300, 11)


def test_pieces_too_short_are_interrupted() -> None:
    body: list[Instruction] = []
    for number in range(0, 60, 8):
        body += [*LAYERS[number : number + 8], Copy(4096, "HtoD")]
    found = launches(context_of(Source(program(Loop(10, body), Sync()))))
    assert len(found.rows(Part.REPEATING)) == 0
    assert found.interrupted == 1.0


def test_other_shapes_are_other_launches() -> None:
    chance = random.Random(0)
    names = [f"op_{chance.randrange(40)}" for _ in range(400)]
    parts: list[Instruction] = [part for name in names for part in (Work(10 * US), Launch(name, 4 * US))]
    assert len(launches(context_of(Source(program(parts, Sync())))).rows(Part.REPEATING)) == 0


def test_the_optimizer_is_a_part_of_its_own() -> None:
    update = Range("optimizer", [Loop(10, [Work(10 * US), Launch(elementwise("Add"), 3 * US)])])
    found = launches(context_of(on_gpu(Source(program(Loop(10, [Range("step {i}", [*LAYERS, update])]), Sync())))))
    assert len(found.rows(Part.OPTIMIZER)) == 100
    assert len(found.rows(Part.REPEATING)) == 300


def test_every_launch_has_one_part_in_any_program() -> None:
    for seed in range(12):
        made = generate(seed)
        context = context_of(Source(made.program, made.machine, seed=made.seed))
        found = launches(context)
        assert len(np.unique(found.call)) == len(found.call)
        assert sum(len(found.rows(part)) for part in Part) == len(found.call)
        for part in Part:
            assert (found.part_of_call[found.call[found.rows(part)]] == part).all()
            assert len(np.unique(found.operation[found.rows(part)])) == len(found.rows(part))
        assert 0 <= found.graphs <= len(found.rows(Part.REPEATING))


def test_a_pass_of_equal_layers_is_one_sequence() -> None:
    head: list[Instruction] = [Work(10 * US), Launch("head", 4 * US)]
    found = launches(context_of(Source(program(Loop(6, [*LAYERS, *LAYERS, *LAYERS, *head]), Sync()))))
    assert found.units == ((91, 6),)


def test_sequences_in_pieces_are_counted() -> None:
    broken = [*LAYERS[:30], *item(), *LAYERS[30:], *item()]
    found = launches(context_of(Source(program(Loop(2, broken), Loop(4, [*LAYERS, *item()]), Sync()))))
    assert found.units[0] == (30, 4)
    assert found.turns == 6
