"""NVTX domains of libraries that annotate themselves: their ranges are neither the user's regions nor operators."""

from __future__ import annotations

import re

_LIBRARY_DOMAIN = re.compile(
    r"^(?:nccl|nvshmem|cub|cccl|thrust|cublas|cublaslt|cudnn|cusparse|cusolver|cufft|curand|nvjpeg|tensorrt|"
    r"dali|cudf|libcudf|raft|libkvikio|rmm|librmm|ucx|mpi|openmpi|nvcomp)\b",
    re.IGNORECASE,
)


def is_library(domain: str) -> bool:
    """True for the domain of a library that annotates itself."""
    return bool(_LIBRARY_DOMAIN.match(domain))
