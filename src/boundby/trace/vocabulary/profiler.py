"""What nsys notes of itself: whether CUDA was in use, and why it recorded none of it.

The texts are those of nsys 2021 to 2026; the library that it injects into programs (libToolsInjection64) holds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from boundby.model.late import expression
from boundby.trace.facts import Diagnostic, Severity


class Refusal(Struct, frozen=True):
    """Why the profiler recorded no CUDA, and what helps, in words and as a command (PROGRAM: the program's command
    line). ``is_certain``: it then records none at all."""

    because: str
    remedy: str
    is_certain: bool = True
    command: str = "boundby doctor"


# It is in the program, and CUDA was initialized there.
_STARTED = expression(r"^CUDA injection initialized successfully|^cuBLAS injection initialized|^Loaded CUPTI library")
_ANOTHER_NSYS = "Record with an nsys that supports this driver: the newest one, or the one of the CUDA toolkit"
_WITH_ANOTHER = "boundby profile --nsys PATH/TO/nsys -- PROGRAM"
# The first that any message has is the reason.
_REFUSALS: tuple[tuple[re.Pattern[str], Refusal], ...] = (
    (
        expression(r"launched as root|INSUFFICIENT_PRIVILEGES", re.IGNORECASE),
        Refusal(
            "on this machine the profiler must run as root to record CUDA",
            "Record as root",
            command="sudo -E boundby profile -- PROGRAM",
        ),
    ),
    (
        expression(r"protected memory|confidential comput|PROTECTED_MEMORY", re.IGNORECASE),
        Refusal(
            "the GPU's memory is protected (confidential computing), and the driver then permits no profiler",
            "Record on a GPU without confidential computing",
        ),
    ),
    (
        expression(r"already subscribed to CUPTI|MULTIPLE_SUBSCRIBERS"),
        Refusal(
            "another profiler in the program holds CUPTI, which takes one at a time",
            "Record without the other profiler: torch.profiler, ncu, a debugger, a monitoring agent",
            command="boundby profile -- PROGRAM",
        ),
    ),
    (
        expression(r"driver version \([\d.]+\) is no longer supported"),
        Refusal("the driver is older than the nsys of this recording supports", _ANOTHER_NSYS, command=_WITH_ANOTHER),
    ),
    (
        expression(r"Incompatible CUDA driver|CUPTI_ERROR_(?:INVALID_DEVICE|NOT_COMPATIBLE|INVALID_KIND)"),
        Refusal(
            "this nsys does not support the driver: CUPTI refused the device", _ANOTHER_NSYS, command=_WITH_ANOTHER
        ),
    ),
    (
        expression(r"not load the CUPTI library|Unable to determine supported CUPTI|not find CUPTI directory"),
        Refusal("nsys could not load its CUPTI library", "Install nsys whole, in a version that supports the driver"),
    ),
    (
        expression(
            r"CUDA injection initialization failed|Cannot initialize (?:CUDA event|CudaTracing)|CUDA profiling stopped"
        ),
        Refusal(
            "the profiler's CUDA part did not start",
            "Let boundby doctor and nsys status -e look for the cause",
        ),
    ),
    (
        expression(r"CUDA event processing was stopped"),
        Refusal("the profiler could not match the GPU and gave up its events", _ANOTHER_NSYS, command=_WITH_ANOTHER),
    ),
    (
        expression(r"CUPTI_ERROR_\w+"),
        Refusal("CUPTI failed while it recorded", "Let boundby doctor look for the cause; another nsys may help"),
    ),
    (
        expression(r"driver version \([\d.]+\) is not supported by this build"),
        Refusal(
            "the nsys that recorded this is too old for the driver",
            _ANOTHER_NSYS,
            is_certain=False,
            command=_WITH_ANOTHER,
        ),
    ),
)
_DRIVER = expression(r"CUDA driver version \(([\d.]+)\)")


def has_started_cuda(diagnostics: Sequence[Diagnostic]) -> bool:
    """Whether the profiler saw the program initialize CUDA, or load a library that needs it."""
    return any(_STARTED.search(message.text) for message in diagnostics)


def why_no_cuda(diagnostics: Sequence[Diagnostic]) -> Refusal | None:
    """Why the profiler recorded nothing of CUDA, as far as it says; None: it says nothing of the kind."""
    texts = [message.text for message in diagnostics if message.severity >= Severity.WARNING]
    reasons = [reason for pattern, reason in _REFUSALS if any(map(pattern.search, texts))]
    if not reasons:
        return None
    driver = next((match[1] for text in texts if (match := _DRIVER.search(text))), None)
    newer = _REFUSALS[-1][1]
    if driver is not None and newer in reasons:
        is_certain = any(reason.is_certain for reason in reasons)
        return Refusal(
            f"the nsys that recorded this is too old for the driver of CUDA {driver}",
            f"Install the nsys of CUDA {driver} or a newer one, then record again",
            is_certain,
            f"sudo apt-get install cuda-nsight-systems-{driver.replace('.', '-')}  # from the CUDA repository\n"
            "boundby profile -- PROGRAM",
        )
    return reasons[0]


# Names of a GPU's counters, which nsys writes in several ways (``SM Active``, ``SMs Active [Throughput %]``).

#: The counters that are read, by the column of ``MetricSamples`` that they belong to.
_NAMED = {
    "gr_active": expression(r"^GR Active$", re.IGNORECASE),
    "sm_active": expression(r"^SMs? Active$", re.IGNORECASE),
    "sm_issue": expression(r"^SM Issue$", re.IGNORECASE),
    "tensor_active": expression(r"^Tensor Active\b", re.IGNORECASE),
    "warps": expression(r"^Compute Warps in Flight$", re.IGNORECASE),
    "dram_read": expression(r"^DRAM Read (?:Throughput|Bandwidth)$", re.IGNORECASE),
    "dram_write": expression(r"^DRAM Write (?:Throughput|Bandwidth)$", re.IGNORECASE),
    "pcie_receive": expression(r"^PCIe RX (?:Throughput|Bandwidth)$", re.IGNORECASE),
    "pcie_send": expression(r"^PCIe TX (?:Throughput|Bandwidth)$", re.IGNORECASE),
    # Requests and responses, user and protocol data: their sum is the link's load.
    "nvlink_receive": expression(r"^NVLink RX\b", re.IGNORECASE),
    "nvlink_send": expression(r"^NVLink TX\b", re.IGNORECASE),
}
METRIC_COLUMNS = tuple(_NAMED)
#: For people.
WORDS = {
    "gr_active": "GPU active",
    "sm_active": "SMs active",
    "sm_issue": "SM issue",
    "tensor_active": "tensor cores active",
    "warps": "warps in flight",
    "dram_read": "DRAM read",
    "dram_write": "DRAM write",
    "pcie_receive": "PCIe in",
    "pcie_send": "PCIe out",
    "nvlink_receive": "NVLink in",
    "nvlink_send": "NVLink out",
}
_UNIT = expression(r"\s*\[([^\]]*)\]\s*$")


def column_of(name: str) -> str | None:
    """The column of a counter in per cent; None for any other."""
    unit = _UNIT.search(name)
    if unit and "%" not in unit[1]:
        return None
    plain = (name[: unit.start()] if unit else name).strip()
    # "SM Instructions/Tensor Active" stands below a heading; "Tensor Active / FP16 Active" is one name.
    last = plain.rpartition("/")[2] if "/" in plain and " / " not in plain else plain
    return next((column for column, names in _NAMED.items() if names.search(last.strip())), None)
