"""Random programs for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from boundby.trace.tables import Direction, MemoryKind
from tests.support.program import Program

US = 1000
_SHORT = st.integers(1, 12).map(lambda n: n * US)
_LONG = st.sampled_from([5, 20, 60, 120, 250]).map(lambda n: n * US)
_LENGTH = st.one_of(_SHORT, _LONG)
_ACTIONS = ("kernel", "nccl", "copy", "pageable", "blocking_copy", "sync", "alloc", "query", "work", "sleep", "init")
_LEAST_CAPTURE = 5 * US
_OF_GRAPHS = ("capture", "graph")


@st.composite
def host_sequences(
    draw: st.DrawFn, *, threads: int = 1, devices: int = 1, processes: int = 1, most: int = 14
) -> Program:
    """Threads that call CUDA one call after another, with ranges around, on devices that answer as they like.

    Everything lies on whole microseconds. Operations start after their launch began, else at any time.
    """
    program = Program(threads=threads, devices=devices, processes=processes)
    launched = False
    for thread in range(threads):
        now = draw(st.integers(0, 50)) * US
        open_ranges: list[tuple[int, str]] = []
        for action in draw(
            st.lists(st.sampled_from((*_ACTIONS, *_OF_GRAPHS, "push", "pop")), min_size=2, max_size=most)
        ):
            if action == "push" and len(open_ranges) < 4:
                open_ranges.append((now, draw(st.sampled_from("abc"))))
                continue
            if action == "pop":
                if open_ranges:
                    begin, name = open_ranges.pop()
                    program.push(begin, now, name, thread)
                continue
            length = draw(_LENGTH)
            launched |= _act(draw, program, action, now, now + length, thread)
            now += length + draw(st.integers(0, 3)) * US
        for begin, name in reversed(open_ranges):
            program.push(begin, now, name, thread)
    if draw(st.booleans()):
        program.push(draw(st.integers(0, 99)) * US, draw(st.integers(100, 500)) * US, "wide", 0, is_process=True)
    if draw(st.booleans()):
        begin = draw(st.integers(0, 300)) * US
        program.overhead(begin, begin + draw(_LENGTH), 0)
    if not launched:
        program.kernel(now, now + US, program.api(now, now + US, "cudaLaunchKernel", 0))
    return program


def _act(draw: st.DrawFn, program: Program, action: str, start: int, end: int, thread: int) -> bool:
    """One call or stretch of host time; True if it launched something."""
    device = draw(st.integers(0, program.devices - 1))
    begin = start + draw(st.integers(0, 40)) * US
    finish = begin + draw(_LENGTH)
    if action == "capture" and end - start >= _LEAST_CAPTURE:  # launches that do not run
        last = end - US
        program.api(start, start + US, "cudaStreamBeginCapture_v10000", thread)
        for at in range(start + 2 * US, last - 2 * US, max((last - start) // 3 // US, 2) * US):
            program.api(at, at + US, "cudaLaunchKernel_v7000", thread)
        program.api(last, end, "cudaStreamEndCapture_v10000", thread)
        return False
    if action in ("kernel", "nccl", "graph"):
        name = "cudaGraphLaunch_v10000" if action == "graph" else "cudaLaunchKernel_v7000"
        call = program.api(start, end, name, thread)
        program.kernel(
            begin, finish, call, "nccl_all" if action == "nccl" else draw(st.sampled_from(["k1", "k2"])), device
        )
        return True
    if action in ("copy", "pageable", "blocking_copy"):
        name = "cudaMemcpy_v3020" if action == "blocking_copy" else "cudaMemcpyAsync_v3020"
        memory = MemoryKind.PAGEABLE if action == "pageable" else MemoryKind.PINNED
        direction = draw(st.sampled_from([Direction.HTOD, Direction.DTOH]))
        program.copy(begin, finish, program.api(start, end, name, thread), direction, memory, 512, device)
        return True
    names = {
        "sync": "cudaStreamSynchronize",
        "alloc": "cudaMalloc",
        "query": "cudaEventQuery",
        "init": "cuModuleLoadData",
    }
    if action in names:
        program.api(start, end, names[action], thread)
    elif action == "sleep":
        program.sleep(start, end, thread)
    return False
