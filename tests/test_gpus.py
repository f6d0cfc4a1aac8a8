"""The table of devices: each real name finds its row, parts that only share a name find none."""

from __future__ import annotations

import pytest

from boundby.model.gpus import all_gpus, find_gpu


@pytest.mark.parametrize(
    ("device_name", "row"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PG509-200", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B200", "B200"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 3070", "RTX 3070"),
        ("NVIDIA GeForce RTX 3070 Ti", "RTX 3070 Ti"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
    ],
)
def test_real_names(device_name: str, row: str) -> None:
    gpu = find_gpu(device_name)
    assert gpu is not None
    assert gpu.name == row


@pytest.mark.parametrize(
    "device_name",
    [
        "NVIDIA RTX 5000 Ada Generation Laptop GPU",
        "GeForce GTX 1060 with Max-Q Design",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 4090 D",
        "AMD Radeon Graphics",
        "Intel(R) HD Graphics 630",
        "",
    ],
)
def test_unknown_parts(device_name: str) -> None:
    assert find_gpu(device_name) is None


def test_another_number_of_multiprocessors_is_another_device() -> None:
    assert find_gpu("NVIDIA H200", 132) is not None
    assert find_gpu("NVIDIA H200", 16) is None


def test_rows_are_sound() -> None:
    names = [gpu.name for gpu in all_gpus()]
    assert len(names) == len(set(names))
    for gpu in all_gpus():
        peaks = [gpu.tflops(precision) for precision in ("fp32", "tf32", "bf16", "fp16", "fp8")]
        known = [peak for peak in peaks if peak is not None]
        assert known == sorted(known), gpu.name  # a lower precision is never slower
        assert gpu.source
        assert gpu.sm_count > 0
        assert gpu.memory_gb_per_s > 0
