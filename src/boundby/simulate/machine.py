"""What calls, copies and hand-overs cost on the simulated machine. The defaults resemble a server GPU under PyTorch."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict


class Machine(Struct, frozen=True, dict=True):
    """Times in ns, rates in bytes per ns (which is GB/s). All jitter is off by default: then every time is exact.

    A call that launches takes its call time; the work is handed to the device at ``submit_point`` of it, arrives
    ``launch_latency_ns`` later, and starts when the stream's operation before it has ended for ``switch_ns``.
    """

    launch_call_ns: int = 5_000
    copy_call_ns: int = 6_000
    memset_call_ns: int = 5_000
    graph_call_ns: int = 8_000
    event_call_ns: int = 1_500
    submit_point: float = 0.8  # fraction of a call after which the device has been told
    launch_latency_ns: int = 3_000
    switch_ns: int = 1_000
    graph_switch_ns: int = 500  # between the nodes of a graph

    sync_call_ns: int = 1_500  # a wait for what is done already
    sync_return_ns: int = 5_000  # from the end of what is waited for to the end of the call
    sync_spins: bool = True  # False: a waiting thread is scheduled out
    range_ns: int = 100  # to open or close an NVTX range
    wake_ns: int = 10_000  # from a signal to the run of the thread that awaited it

    queue_limit: int = 1_024  # operations of one stream not finished; the next launch waits for room

    pinned_bytes_per_ns: float = 25.0
    pageable_bytes_per_ns: float = 6.0
    device_bytes_per_ns: float = 1_000.0  # copies on the device, and sets
    copy_setup_ns: int = 1_200
    copy_engines: int = 1  # per direction
    # An asynchronous copy from pageable memory returns when what is left of it fits in the staging buffer, and a
    # small one when it has been copied there. One to pageable memory returns when it is done.
    staging_bytes: int = 65_536
    staging_bytes_per_ns: float = 10.0

    #: While a thread waits in a copy to or from pageable memory, the driver lets no other thread of its process copy:
    #: such a call goes on so long after that one has returned. 0: it does not wait.
    driver_release_ns: int = 0

    legacy_default_stream: bool = False  # True: stream 0 waits for the other streams of its process and they for it

    #: What kernels that run beside each other lose (memory, caches): each takes 1 + contention * (the share of the GPU
    #: that the others take) times as long.
    contention: float = 0.0
    #: Kernels of several processes: 0 runs them beside each other, as MPS does; else one process at a time has the
    #: device, for so long while others have work. What runs when its process loses the turn stands still.
    slice_ns: int = 0

    host_jitter: float = 0.0  # sigma of a lognormal factor of call times, host work and sleeps
    device_jitter: float = 0.0  # the same of kernels, copies, latencies and switches
    hiccup_chance: float = 0.0  # that a call or a piece of host work is interrupted (another process, a page fault)
    hiccup_ns: int = 50_000  # mean of the exponential length of an interruption

    clock_noise_ns: int = 0  # device times are written with up to this error
    clock_skew_ns: int = 0  # and with this offset
    clock_drift: float = 0.0  # and run fast by this fraction

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0 and name not in ("clock_skew_ns", "clock_drift"):
                raise ValueError(f"{name} is negative")
            if value == 0 and ("bytes_per_ns" in name or name in ("queue_limit", "copy_engines")):
                raise ValueError(f"{name} must be more than 0")
        if self.submit_point > 1:
            raise ValueError("submit_point is a fraction of a call")

    def copy_ns(self, bytes: int, memory: str) -> int:
        """Time of a copy on the device's copy engine, by the kind of memory on its slower side."""
        rate = {
            "pageable": self.pageable_bytes_per_ns,
            "managed": self.pageable_bytes_per_ns,
            "pinned": self.pinned_bytes_per_ns,
            "device": self.device_bytes_per_ns,
        }[memory]
        return self.copy_setup_ns + round(bytes / rate)
