"""What holds for every program: order on streams, causes before effects, the queue limit, the same run every time."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from benchmarks.simulated.contended import ContendedMachine
from benchmarks.simulated.counterfactual import GPU_CAUSES, Case, devices, exposed, operations_on, window_ns
from benchmarks.simulated.generate import generate
from benchmarks.simulated.untidy import FEATURES
from msgspec.structs import replace

from boundby.simulate.machine import Engine, Executed, Run, Step, Wait

CASES = [(seed, ()) for seed in range(24)] + [(seed, (name,)) for name in FEATURES for seed in (100,)]


@pytest.fixture(scope="module", params=CASES, ids=lambda known: "-".join(map(str, (known[0], *known[1]))))
def case(request: pytest.FixtureRequest) -> Case:
    return generate(*request.param)


@pytest.fixture(scope="module")
def ran(case: Case) -> Run:
    return case.run()


def step_of(ran: Run, one: Executed) -> Step:
    return ran.script.threads[one.thread].steps[one.step]


def by_stream(ran: Run) -> dict[tuple[int, int, int], list[Executed]]:
    found: dict[tuple[int, int, int], list[Executed]] = defaultdict(list)
    for one in ran.operations:
        step = step_of(ran, one)
        found[ran.script.threads[one.thread].process, step.device, step.stream].append(one)
    return found


def test_steps_follow_one_another(ran: Run) -> None:
    for starts, ends in zip(ran.start_ns, ran.end_ns, strict=True):
        assert all(start <= end for start, end in zip(starts, ends, strict=True))
        assert ends[:-1] == starts[1:]


def test_streams_run_in_launch_order(ran: Run) -> None:
    for stream in by_stream(ran).values():
        for earlier, later in itertools.pairwise(stream):
            assert later.start_ns >= earlier.end_ns + later.spec.switch_ns
            assert ran.start_ns[later.thread][later.step] >= ran.start_ns[earlier.thread][earlier.step]


def test_nothing_starts_before_its_launch_has_reached_the_device(ran: Run) -> None:
    for one in ran.operations:
        machine, length = ran.script.machine, one.end_ns - one.start_ns
        assert length >= one.spec.ns if isinstance(machine, ContendedMachine) else length == one.spec.ns
        launched = ran.start_ns[one.thread][one.step] + one.spec.submit_ns + one.spec.latency_ns
        assert one.start_ns >= launched
    threads = [thread for thread in ran.script.threads if not thread.daemon]
    done = [one for one in ran.operations if not ran.script.threads[one.thread].daemon]
    assert len(done) == sum(step.operation is not None for thread in threads for step in thread.steps)


def test_waits_end_after_what_they_wait_for(ran: Run) -> None:
    for one in ran.operations:
        if one.step >= len(ran.end_ns[one.thread]):
            continue  # a daemon that waits for what nobody is left for
        step, end = step_of(ran, one), ran.end_ns[one.thread][one.step]
        if step.wait == Wait.OWN_END:
            assert end >= one.end_ns + step.return_ns
        elif step.wait == Wait.OWN_STAGED:
            assert end >= one.start_ns + one.spec.lead_ns


def test_the_device_has_room_for_what_runs(ran: Run) -> None:
    if getattr(ran.script.machine, "slice_ns", 0):
        return  # what stands still takes no room
    for number in devices(ran):
        edges = []
        for one in operations_on(ran, number):
            need = {Engine.COMPUTE: one.spec.share, Engine.NONE: 0}.get(one.spec.engine, 1)
            edges += [(one.end_ns, 0, one.spec.engine, -need), (one.start_ns, 1, one.spec.engine, need)]
        used: dict[Engine, int] = defaultdict(int)
        for _, _, engine, need in sorted(edges):
            used[engine] += need
            assert used[engine] <= (1000 if engine == Engine.COMPUTE else ran.script.machine.copy_engines)


def test_the_queue_keeps_its_limit(case: Case) -> None:
    limit = 8
    ran = replace(case, machine=replace(case.machine, queue_limit=limit)).run()
    for stream in by_stream(ran).values():
        for earlier, later in zip(stream, stream[limit:], strict=False):
            # The call begins earlier, but hands over only once there is room.
            ends = ran.end_ns[later.thread]
            assert later.step >= len(ends) or ends[later.step] >= earlier.end_ns


def test_busy_time_is_counted_once(ran: Run) -> None:
    for number in devices(ran):
        found = exposed(ran, number, defaultdict(tuple))
        covered = set()
        for one in operations_on(ran, number):
            covered.add((one.start_ns, one.end_ns))
        union, reach = 0, -1
        for start, end in sorted(covered):
            union += max(0, end - max(start, reach))
            reach = max(reach, end)
        assert sum(found.values()) == union <= window_ns(ran, number)
        assert {cause for _, cause in found} <= set(GPU_CAUSES)


def test_the_same_seed_gives_the_same_run(case: Case, ran: Run) -> None:
    again = generate(case.seed, case.features)
    assert again == case
    assert again.run() == ran
