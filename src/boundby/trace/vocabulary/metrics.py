"""Names of a GPU's counters, which nsys writes in several ways (``SM Active``, ``SMs Active [Throughput %]``)."""

from __future__ import annotations

import re

from boundby.model.expressions import expression

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
COLUMNS = tuple(_NAMED)
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
