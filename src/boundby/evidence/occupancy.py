"""How many warps of a kernel fit on a multiprocessor, from its registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from boundby.trace.tables import GpuFacts

WARP = 32  # threads
REGISTER_UNIT = 256  # registers are given out to warps in units of this, since Kepler
SHARED_UNIT = 128  # bytes, since Ampere (256 before)
SYSTEM_SHARED = 1_024  # bytes of shared memory that CUDA keeps of each block, since Ampere
MOST_BLOCKS = 32  # resident blocks of a multiprocessor: 16 on 7.5 and 8.6, 24 on 8.9, else 32


@dataclass(frozen=True)
class Occupancy:
    """``fraction`` of the warps that a multiprocessor can hold; ``limit``: what stands in the way of more."""

    fraction: float
    limit: str  # "registers", "shared memory", "blocks", "nothing"


def theoretical_occupancy(facts: GpuFacts, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """The occupancy of a kernel that has blocks enough; None where the hardware or the shape is not told."""
    known = (facts.warps_per_multiprocessor, facts.registers_per_multiprocessor, threads, registers)
    if not all(known):
        return None
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    blocks = {
        "blocks": _most_blocks(facts.capability),
        "nothing": facts.warps_per_multiprocessor // warps,
        "registers": facts.registers_per_multiprocessor // of_warp // warps,
    }
    if shared_bytes and facts.shared_bytes_per_multiprocessor:
        unit = -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT + (SYSTEM_SHARED if facts.capability >= (8, 0) else 0)
        blocks["shared memory"] = facts.shared_bytes_per_multiprocessor // unit
    fewest = min(blocks.values())
    if fewest == 0:  # the kernel ran, so a limit is larger than told
        return None
    limit = "nothing" if blocks["nothing"] == fewest else min(name for name in blocks if blocks[name] == fewest)
    return Occupancy(min(fewest * warps / facts.warps_per_multiprocessor, 1.0), limit)


def _most_blocks(capability: tuple[int, int]) -> int:
    return {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}.get(capability, MOST_BLOCKS)
