"""The state of an NVIDIA GPU: from NVML where the package nvidia-ml-py is installed, else from nvidia-smi.

What a driver does not tell is None. Nothing here raises: a measurement does not fail because its circumstances are
not known.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from boundby.measure.results import DeviceState

#: NVML's bits of nvmlClocksEventReasons -> words. Idle and applications-clock settings are no throttling.
REASONS: Mapping[int, str] = {
    0x0000000000000004: "software power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
_TIMEOUT_S = 10
_FIELDS = (
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks_throttle_reasons.active",
    "pstate",
    "persistence_mode",
)


def state(uuid: str) -> DeviceState | None:
    """The GPU with this UUID (with or without ``GPU-`` before it), or None where nothing tells."""
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return _from_nvml(name) or _from_smi(name)


def reasons(bits: int | None) -> tuple[str, ...] | None:
    """The words for a bit mask of clock event reasons."""
    return None if bits is None else tuple(text for bit, text in REASONS.items() if bits & bit)


def _from_nvml(uuid: str) -> DeviceState | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # not installed, or no driver
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

        def told(read: Callable[[], Any]) -> Any:
            with contextlib.suppress(Exception):  # nvml.NVMLError_NotSupported and its like
                return read()
            return None

        def milliwatts(value: Any) -> float | None:
            return None if value is None else value / 1000

        return DeviceState(
            "NVML",
            power_w=milliwatts(told(lambda: nvml.nvmlDeviceGetPowerUsage(handle))),
            power_limit_w=milliwatts(told(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))),
            temperature_c=told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            sm_clock_mhz=told(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            max_sm_clock_mhz=told(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=told(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            throttling=reasons(told(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
            performance_state=told(lambda: int(nvml.nvmlDeviceGetPerformanceState(handle))),
            persistence_mode=told(lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle))),
        )
    except Exception:
        return None
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def _from_smi(uuid: str) -> DeviceState | None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    query = [smi, f"--id={uuid}", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parsed(done.stdout)


def parsed(line: str) -> DeviceState | None:
    """One line of ``nvidia-smi --query-gpu`` for the fields above; what is "[N/A]" is None."""
    cells = [cell.strip() for cell in line.strip().split(",")]
    if len(cells) != len(_FIELDS):
        return None
    *figures, mask, state, mode = cells
    numbers = [_number(cell) for cell in figures]
    bits: int | None = None
    with contextlib.suppress(ValueError):
        bits = int(mask, 16)
    level = int(state[1:]) if state[:1] == "P" and state[1:].isdigit() else None
    persistence = {"Enabled": True, "Disabled": False}.get(mode)
    power, limit, temperature, clock, highest, memory = numbers
    return DeviceState(
        "nvidia-smi", power, limit, temperature, clock, highest, memory, reasons(bits), level, persistence
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
