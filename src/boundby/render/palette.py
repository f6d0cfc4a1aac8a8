"""One colour per cause, the same in the terminal and in HTML.

Cool colours mean that the GPU works, warm ones that it idles for a reason a program can change, greys the rest.
They are those of Okabe and Ito where possible, which colour-blind readers tell apart; letters say the same anyway.
"""

from __future__ import annotations

OTHER = "other"  # causes too small to show, folded
OTHER_LETTER = "."

#: cause key (or bound): (background, letter on it)
COLORS: dict[str, tuple[str, str]] = {
    "gpu_compute": ("#0f9d6e", "#ffffff"),
    "gpu_comm": ("#0072b2", "#ffffff"),
    "gpu_copy": ("#56b4e9", "#10222e"),
    "sync": ("#d1495b", "#ffffff"),
    "cuda_api": ("#e8871e", "#2b1600"),
    "init": ("#b07aa1", "#ffffff"),
    "cpu": ("#f0c808", "#2e2600"),
    "host_blocked": ("#9c6644", "#ffffff"),
    "device_wait": ("#7b8a97", "#ffffff"),
    "profiler": ("#55606b", "#ffffff"),
    "unattributed": ("#a3abb2", "#1d2226"),
    OTHER: ("#c3c9ce", "#1d2226"),
    "hidden": ("#c3c9ce", "#1d2226"),
    "mixed": ("#c3c9ce", "#1d2226"),
    "unknown": ("#c3c9ce", "#1d2226"),
}
