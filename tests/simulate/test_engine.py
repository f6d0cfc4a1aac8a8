"""The engine against timelines worked out by hand."""

from __future__ import annotations

import pytest

from boundby.simulate.instructions import (
    Alloc,
    Await,
    Call,
    Copy,
    GraphLaunch,
    Init,
    Launch,
    Loop,
    Memset,
    Node,
    Process,
    Program,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    item,
    threads,
)
from boundby.simulate.machine import DeadlockError
from tests.simulate.small import device, host, run


def test_the_host_runs_ahead() -> None:
    ran = run([Launch("a", 100), Launch("b", 50)])
    assert host(ran) == [("LaunchKernel", 0, 5), ("LaunchKernel", 5, 10)]
    assert device(ran) == [("a", 8, 108), ("b", 109, 159)]


def test_the_device_waits_for_the_host() -> None:
    ran = run([Launch("a", 10), Work(100), Sleep(20), Call(7), Launch("b", 10)])
    assert host(ran)[1:] == [
        ("work", 5, 105),
        ("sleep", 105, 125),
        ("StreamIsCapturing", 125, 132),
        ("LaunchKernel", 132, 137),
    ]
    assert device(ran) == [("a", 8, 18), ("b", 140, 150)]


def test_a_sync_waits_and_returns_a_little_later() -> None:
    ran = run([Launch("a", 100), Sync(), Work(50), Sync()])
    assert host(ran)[1:] == [("DeviceSynchronize", 5, 113), ("work", 113, 163), ("DeviceSynchronize", 163, 165)]


def test_a_stream_sync_waits_for_its_stream_only() -> None:
    ran = run([Launch("a", 100, share=0.5), Launch("b", 200, stream=1, share=0.5), Sync("stream"), Sync("stream", 1)])
    assert device(ran) == [("a", 8, 108), ("b", 13, 213)]
    assert host(ran)[2:] == [("StreamSynchronize", 10, 113), ("StreamSynchronize", 113, 218)]


def test_an_event_sync_waits_for_what_came_before_the_record() -> None:
    ran = run([Sync("event", event="e"), Launch("a", 100), Record("e"), Launch("b", 100), Sync("event", event="e")])
    assert host(ran) == [
        ("EventSynchronize", 0, 2),  # never recorded
        ("LaunchKernel", 2, 7),
        ("EventRecord", 7, 9),
        ("LaunchKernel", 9, 14),
        ("EventSynchronize", 14, 115),
    ]
    assert device(ran) == [("a", 10, 110), ("b", 111, 211)]


def test_item_is_a_copy_and_a_wait() -> None:
    ran = run([Launch("a", 100), *item(4)])
    assert host(ran)[1:] == [("MemcpyAsync", 5, 11), ("StreamSynchronize", 11, 118)]
    assert device(ran) == [("a", 8, 108), ("memcpy", 109, 113)]


@pytest.mark.parametrize("direction", ["HtoD", "DtoH"])
def test_a_blocking_copy_waits_then_copies(direction: str) -> None:
    ran = run([Launch("a", 100), Copy(50, direction, blocking=True)])  # type: ignore[arg-type]
    assert device(ran)[1] == ("memcpy", 109, 159)
    assert host(ran)[1] == ("Memcpy", 5, 164)


def test_pinned_copies_are_asynchronous() -> None:
    ran = run([Launch("a", 100), Copy(50, "DtoH"), Copy(50, "HtoD")])
    assert host(ran)[1:] == [("MemcpyAsync", 5, 11), ("MemcpyAsync", 11, 17)]
    assert device(ran)[1:] == [("memcpy", 109, 159), ("memcpy", 160, 210)]


def test_an_asynchronous_copy_to_pageable_memory_is_none() -> None:
    ran = run([Launch("a", 100), Copy(50, "DtoH", "pageable")])
    assert device(ran)[1] == ("memcpy", 109, 209)
    assert host(ran)[1] == ("MemcpyAsync", 5, 214)


def test_a_small_copy_from_pageable_memory_is_staged_in_the_call() -> None:
    ran = run([Launch("a", 100), Copy(100, "HtoD", "pageable")])
    assert host(ran)[1] == ("MemcpyAsync", 5, 21)  # 6 and 100 bytes at 10 a ns
    assert device(ran)[1] == ("memcpy", 109, 309)


def test_a_large_copy_from_pageable_memory_holds_the_host_until_the_rest_is_staged() -> None:
    ran = run([Copy(400, "HtoD", "pageable"), Launch("a", 10)])
    assert device(ran) == [("memcpy", 9, 809), ("a", 810, 820)]
    assert host(ran)[0] == ("MemcpyAsync", 0, 609)  # 300 of 400 bytes after the copy's start


def test_one_copy_engine_for_each_direction() -> None:
    copies = [Copy(100, "HtoD", stream=0), Copy(100, "HtoD", stream=1), Copy(100, "DtoH", stream=2)]
    assert device(run(copies)) == [("memcpy", 9, 109), ("memcpy", 109, 209), ("memcpy", 21, 121)]
    assert device(run(copies, copy_engines=2))[1] == ("memcpy", 15, 115)


def test_copies_on_the_device_and_sets_need_no_engine() -> None:
    ran = run([Copy(1000, "HtoD"), Memset(1000, stream=1), Copy(1000, "DtoD", "device", blocking=True, stream=2)])
    assert device(ran) == [("memcpy", 9, 1009), ("memset", 14, 114), ("memcpy", 20, 120)]
    assert host(ran)[2] == ("Memcpy", 11, 17)  # cudaMemcpy on the device does not wait


def test_a_stream_waits_for_an_event_and_the_host_does_not() -> None:
    kernels = [Launch("a", 10, share=0.5), Launch("b", 10, 1, share=0.5)]
    ran = run([Copy(100, "HtoD", stream=1), Record("e", 1), WaitEvent("e"), *kernels])
    assert [row[1:] for row in host(ran)] == [(0, 6), (6, 8), (8, 10), (10, 15), (15, 20)]
    assert device(ran) == [("memcpy", 9, 109), ("a", 110, 120), ("b", 110, 120)]


def test_an_event_counts_as_recorded_last_before_the_wait() -> None:
    ran = run([WaitEvent("e"), Launch("a", 10), Launch("b", 100, 1, share=0), Record("e", 1)])
    assert device(ran) == [("a", 10, 20), ("b", 15, 115)]


def test_kernels_share_the_device_while_they_fit() -> None:
    ran = run([Launch("a", 100, 0, share=0.5), Launch("b", 100, 1, share=0.5), Launch("c", 10, 2, share=0.1)])
    assert device(ran) == [("a", 8, 108), ("b", 13, 113), ("c", 108, 118)]


def test_no_kernel_overtakes_one_that_does_not_fit() -> None:
    ran = run([Launch("a", 100, 0, share=0.6), Launch("b", 100, 1), Launch("c", 10, 2, share=0.1)])
    assert device(ran) == [("a", 8, 108), ("b", 108, 208), ("c", 208, 218)]


def test_the_legacy_default_stream_waits_for_all_and_all_for_it() -> None:
    body = [Launch("a", 100, 1, share=0.1), Launch("b", 10, 0, share=0.1), Launch("c", 10, 2, share=0.1)]
    assert device(run(body)) == [("a", 8, 108), ("b", 13, 23), ("c", 18, 28)]
    assert device(run(body, legacy_default_stream=True)) == [("a", 8, 108), ("b", 109, 119), ("c", 120, 130)]


def test_a_full_queue_holds_the_launch() -> None:
    ran = run([Loop(4, [Launch("a", 100)])], queue_limit=2)
    assert device(ran) == [("a", 8, 108), ("a", 109, 209), ("a", 210, 310), ("a", 311, 411)]
    assert host(ran) == [
        ("LaunchKernel", 0, 5),
        ("LaunchKernel", 5, 10),
        ("LaunchKernel", 10, 113),  # room at 108
        ("LaunchKernel", 113, 214),
    ]


def test_a_full_queue_is_full_for_its_stream_only() -> None:
    ran = run([Loop(2, [Launch("a", 100, share=0.1)]), Launch("b", 10, 1, share=0.1)], queue_limit=2)
    assert device(ran)[2] == ("b", 18, 28)


def test_an_allocation_may_wait_for_the_device_first() -> None:
    ran = run([Launch("a", 100), Alloc(50), Alloc(50, waits=True, call="cudaFree"), Init(20)])
    assert host(ran)[1:] == [("Malloc", 5, 55), ("Free", 55, 158), ("cuLibraryLoadData", 158, 178)]


def test_the_first_launch_of_a_kernel_loads_it() -> None:
    ran = run([Loop(2, [Launch("a", 10, load_ns=100)])])
    assert host(ran) == [("LaunchKernel", 0, 105), ("LaunchKernel", 105, 110)]
    assert device(ran) == [("a", 108, 118), ("a", 119, 129)]


def test_a_graph_is_one_operation() -> None:
    ran = run([GraphLaunch((Node("a", 10), Node("b", 20))), Launch("c", 5)])
    assert host(ran)[0] == ("GraphLaunch", 0, 8)
    assert device(ran) == [("graph", 11, 43), ("c", 44, 49)]
    assert ran.operations[0].spec.nodes == (("a", 0, 10), ("b", 12, 20))


def test_threads_hand_over() -> None:
    main = Thread((Work(100), Signal("go"), Await("done"), Work(10)))
    other = Thread((Await("go"), Launch("a", 10), Signal("done"), Signal("later"), Await("later")))
    ran = run(threads(main, other))
    assert host(ran, 1) == [
        ("await", 0, 110),
        ("LaunchKernel", 110, 115),
        ("signal", 115, 115),
        ("signal", 115, 115),
        ("await", 115, 115),  # that signal had come already
    ]
    assert host(ran)[2:] == [("await", 100, 125), ("work", 125, 135)]


def test_signals_wake_in_the_order_of_waiting() -> None:
    waiting = [Thread((Work(number), Await("go"))) for number in (3, 1, 2)]
    ran = run(threads(Thread((Work(10), Loop(3, [Signal("go"), Work(10)]))), *waiting))
    assert [host(ran, thread)[1][2] for thread in (1, 2, 3)] == [40, 20, 30]


def test_processes_share_the_device_and_nothing_else() -> None:
    one = Process((Thread((Launch("a", 100), Record("e"), Sync())),))
    other = Process((Thread((WaitEvent("e"), Launch("b", 100), Sync())),))
    ran = run(Program((one, other)))
    assert device(ran) == [("a", 8, 108), ("b", 108, 208)]
    assert host(ran, 1)[2] == ("DeviceSynchronize", 7, 213)


def test_devices_are_independent() -> None:
    ran = run([Launch("a", 100), Launch("b", 100, device=1), Sync(device=1)])
    assert device(ran) == [("a", 8, 108), ("b", 13, 113)]
    assert host(ran)[2] == ("DeviceSynchronize", 10, 118)


def test_ranges_cost_what_the_machine_says() -> None:
    ran = run([Range("step {i}", [Launch("a", 10)])], range_ns=2)
    assert host(ran) == [("LaunchKernel", 2, 7)]
    assert (ran.start_ns[0], ran.end_ns[0]) == ([0, 2, 7], [2, 7, 9])


def test_waiting_for_nothing_is_an_error() -> None:
    with pytest.raises(DeadlockError, match="thread 0 in 'never'"):
        run([Launch("a", 10), Await("never")])


def test_nonsense_is_refused() -> None:
    for body in ([Work(-1)], [Launch("a", 1, share=2)], [Copy(1, "DtoD")], [Sync("event")], [GraphLaunch(())]):
        with pytest.raises(ValueError):
            run(body)
    with pytest.raises(TypeError):
        run([42])  # type: ignore[list-item]
    with pytest.raises(ValueError):
        run([Work(1)], queue_limit=0)
