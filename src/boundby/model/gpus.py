"""What GPUs can do at most: peaks by precision, memory bandwidth, multiprocessors, each with where it is published.

Peaks are **dense** (without 2:4 sparsity), at boost clock, with FP32 accumulation: on GeForce cards tensor cores run
at half rate with it, and that is what PyTorch uses. Real programs reach a part of them; ratios of two rows say how much
faster another device could be at best.
"""

from __future__ import annotations

import itertools
import re
from functools import cache

from msgspec import Struct

from boundby.model.late import expression


class Gpu(Struct, frozen=True):
    """Published peaks of one device; ``None`` where it has no such unit."""

    name: str
    pattern: str  # a regular expression that the device's name contains, case aside
    fp32_tflops: float  # CUDA cores
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    memory_gb_per_s: float  # powers of ten
    sm_count: int  # compute units on AMD
    source: str

    def tflops(self, precision: str) -> float | None:
        """The peak at ``fp32``, ``tf32``, ``bf16``, ``fp16`` or ``fp8``."""
        peak: float | None = getattr(self, f"{precision}_tflops")
        return peak


_BLACKWELL = "NVIDIA HGX B200 data sheet, an eighth of the board, without sparsity"
_HOPPER = "NVIDIA H100 data sheet, without sparsity"
_H200 = "NVIDIA H200 data sheet, without sparsity"
_AMPERE = "NVIDIA A100 data sheet"
_ADA = "NVIDIA Ada GPU architecture whitepaper, appendix A"
_GA102 = "NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A"
_TURING = "NVIDIA Turing GPU architecture whitepaper, appendix"
_RTX_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix"
_SHEET = "NVIDIA data sheet of the product"
_AMD = "AMD data sheet of the product"

# The first row whose pattern fits names the device: variants stand before the plain name.
# name, pattern, FP32, TF32, BF16, FP16, FP8 in TFLOPS, GB/s, SMs, source
_ROWS: tuple[Gpu, ...] = (
    Gpu("B200", r"\bG?B200\b", 75, 1125, 2250, 2250, 4500, 8000, 148, _BLACKWELL),
    Gpu("GH200", r"\bGH200\b", 67, 494.5, 989.5, 989.5, 1979, 4000, 132, "NVIDIA GH200 data sheet (96 GB, halved)"),
    Gpu("H200 NVL", r"\bH200 NVL\b", 60, 417.5, 835.5, 835.5, 1670.5, 4800, 132, _H200),
    Gpu("H200", r"\bH200\b", 67, 494.5, 989.5, 989.5, 1979, 4800, 132, _H200),
    Gpu("H100 NVL", r"\bH100 NVL\b", 60, 417.5, 835.5, 835.5, 1670.5, 3900, 132, _HOPPER),
    Gpu("H100 PCIe", r"\bH[18]00 PCIe\b", 51.2, 378, 756, 756, 1513, 2000, 114, _HOPPER),
    Gpu("H100 SXM", r"\bH[18]00\b", 67, 494.5, 989.5, 989.5, 1979, 3350, 132, _HOPPER),
    Gpu("H20", r"\bH20\b", 44, 74, 148, 148, 296, 4000, 78, _SHEET),
    Gpu("A100 80GB PCIe", r"\bA[18]00[ -]80GB[ -]PCIe\b", 19.5, 156, 312, 312, None, 1935, 108, _AMPERE),
    Gpu("A100 80GB SXM", r"\bA[18]00-SXM(?:4|64)?-80GB\b", 19.5, 156, 312, 312, None, 2039, 108, _AMPERE),
    Gpu("A100 40GB", r"\bA100\b", 19.5, 156, 312, 312, None, 1555, 108, _AMPERE),
    Gpu("A30", r"\bA30\b", 10.3, 82, 165, 165, None, 933, 56, _SHEET),
    Gpu("A40", r"\bA40\b", 37.4, 74.8, 149.7, 149.7, None, 696, 84, _SHEET),
    Gpu("A10G", r"\bA10G\b", 35, 35, 70, 70, None, 600, 80, _SHEET),
    Gpu("A10", r"\bA10\b", 31.2, 62.5, 125, 125, None, 600, 72, _SHEET),
    Gpu("A2", r"\bA2\b", 4.5, 9, 18, 18, None, 200, 10, _SHEET),
    Gpu("L40S", r"\bL40S\b", 91.6, 183, 362, 362, 733, 864, 142, _SHEET),
    Gpu("L40", r"\bL40\b", 90.5, 90.5, 181, 181, 362, 864, 142, _SHEET),
    Gpu("L4", r"\bL4\b", 30.3, 60, 121, 121, 242, 300, 58, _SHEET),
    Gpu("V100S", r"\bV100S", 16.4, None, None, 130, None, 1134, 80, _SHEET),
    Gpu("V100 PCIe", r"\bV100-PCIE", 14, None, None, 112, None, 900, 80, _SHEET),
    Gpu("V100 SXM", r"\bV100\b", 15.7, None, None, 125, None, 900, 80, _SHEET),
    Gpu("T4", r"\bT4\b", 8.1, None, None, 65, None, 320, 40, _SHEET),
    Gpu("P100 PCIe", r"\bP100-PCIE-16GB", 9.3, None, None, 18.7, None, 732, 56, _SHEET),
    Gpu("P100 SXM", r"\bP100-SXM2", 10.6, None, None, 21.2, None, 732, 56, _SHEET),
    Gpu("P40", r"\bP40\b", 12, None, None, None, None, 346, 30, _SHEET),
    Gpu("RTX 6000 Ada", r"\bRTX 6000 Ada\b", 91.1, 182.1, 364.2, 364.2, 728.5, 960, 142, _SHEET),
    Gpu("RTX 5000 Ada", r"\bRTX 5000 Ada\b", 65.3, 130.6, 261.1, 261.1, 522.1, 576, 100, _SHEET),
    Gpu("RTX A6000", r"\bRTX A6000\b", 38.7, 77.4, 154.8, 154.8, None, 768, 84, _SHEET),
    Gpu("RTX A5000", r"\bRTX A5000\b", 27.8, 55.6, 111.1, 111.1, None, 768, 64, _SHEET),
    Gpu("RTX A4000", r"\bRTX A4000\b", 19.2, 38.3, 76.7, 76.7, None, 448, 48, _SHEET),
    Gpu("RTX 5090", r"\bRTX 5090(?! D)\b", 104.8, 104.8, 209.5, 209.5, 419, 1792, 170, _RTX_BLACKWELL),
    Gpu("RTX 5080", r"\bRTX 5080\b", 56.3, 56.3, 112.6, 112.6, 225.1, 960, 84, _RTX_BLACKWELL),
    Gpu("RTX 4090", r"\bRTX 4090(?! D)\b", 82.6, 82.6, 165.2, 165.2, 330.3, 1008, 128, _ADA),
    Gpu("RTX 4080", r"\bRTX 4080(?! SUPER)\b", 48.7, 48.7, 97.5, 97.5, 194.9, 717, 76, _ADA),
    Gpu("RTX 4070 Ti", r"\bRTX 4070 Ti(?! SUPER)\b", 40.1, 40.1, 80.2, 80.2, 160.4, 504, 60, _ADA),
    Gpu("RTX 3090 Ti", r"\bRTX 3090 Ti\b", 40, 40, 80, 80, None, 1008, 84, _ADA),
    Gpu("RTX 3090", r"\bRTX 3090\b", 35.6, 35.6, 71.2, 71.2, None, 936, 82, _GA102),
    Gpu("RTX 3080 Ti", r"\bRTX 3080 Ti\b", 34.1, 34.1, 68.2, 68.2, None, 912, 80, _ADA),
    Gpu("RTX 3080", r"\bRTX 3080\b", 29.8, 29.8, 59.5, 59.5, None, 760, 68, _GA102),
    Gpu("RTX 3070 Ti", r"\bRTX 3070 Ti\b", 21.7, 21.7, 43.5, 43.5, None, 608, 48, _SHEET),
    Gpu("RTX 3070", r"\bRTX 3070\b", 20.3, 20.3, 40.6, 40.6, None, 448, 46, _GA102),
    Gpu("TITAN RTX", r"\bTITAN RTX\b", 16.3, None, None, 130.5, None, 672, 72, _TURING),
    Gpu("Quadro RTX 6000", r"\bQuadro RTX [68]000\b", 16.3, None, None, 130.5, None, 672, 72, _TURING),
    Gpu("RTX 2080 Ti", r"\bRTX 2080 Ti\b", 13.4, None, None, 53.8, None, 616, 68, _TURING),
    Gpu("RTX 2080", r"\bRTX 2080(?! SUPER)\b", 10.1, None, None, 40.3, None, 448, 46, _TURING),
    Gpu("GTX 1080 Ti", r"\bGTX 1080 Ti\b", 11.3, None, None, None, None, 484, 28, _SHEET),
    Gpu("Instinct MI325X", r"\bMI325X\b", 163.4, 653.7, 1307.4, 1307.4, 2614.9, 6000, 304, _AMD),
    Gpu("Instinct MI300X", r"\bMI300X\b", 163.4, 653.7, 1307.4, 1307.4, 2614.9, 5300, 304, _AMD),
    Gpu("Instinct MI250X", r"\bMI250X\b", 23.9, None, 191.5, 191.5, None, 1638, 110, _AMD + " (one of two dies)"),
    Gpu("Instinct MI210", r"\bMI210\b", 22.6, None, 181, 181, None, 1638, 104, _AMD),
)

# A slice of a device, or a part that shares only its name, has other peaks than the row says.
_OTHER_PARTS = expression(r"\bMIG\b|Laptop|Max-Q|Mobile|\bGRID\b|\bvGPU\b", re.IGNORECASE)


def _begin(pattern: str) -> str:
    """The plain text that a pattern begins with: no name without it fits."""
    text = pattern.removeprefix(r"\b")
    plain = "".join(itertools.takewhile(lambda sign: sign.isalnum() or sign in " -", text))
    return plain[:-1] if text[len(plain) :].startswith("?") else plain


@cache
def find_gpu(device_name: str, sm_count: int | None = None) -> Gpu | None:
    """The device of this name, if its peaks are known; ``None`` where they are not, as for a laptop's part or a slice.

    ``sm_count``, where the trace tells it, must be the row's: another number is another device.
    """
    if _OTHER_PARTS.search(device_name):
        return None
    lowered = device_name.lower()
    likely = (gpu for gpu in _ROWS if _begin(gpu.pattern).lower() in lowered)  # to compile all patterns takes long
    row = next((gpu for gpu in likely if re.search(gpu.pattern, device_name, re.IGNORECASE)), None)
    return None if row is None or (sm_count and sm_count != row.sm_count) else row


def all_gpus() -> tuple[Gpu, ...]:
    """Every device whose peaks are known, in the table's order."""
    return _ROWS
