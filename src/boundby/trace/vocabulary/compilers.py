"""What tells that code is compiled while a program runs: calls, ranges and processes, by their names."""

from __future__ import annotations

import re

from boundby.model.expressions import expression

# Calls that hand over what was just compiled (PTX, cubin): what a thread did before one of them is the compilation.
# Not cuLibraryLoadData: CUDA's own libraries load their ready code with it, one kernel at a time.
_HANDS_OVER = expression(r"^cu(?:ModuleLoadData(?:Ex)?|ModuleLoadFatBinary|Link(?:Create|AddData|AddFile|Complete))$")
_COMPILES = expression(r"^(?:cuLink|nvrtc|nvJitLink|nvPTXCompiler)")
# Ranges: "compile" as a verb, not "compiled" (which runs what was); compilers and their passes by name.
_RANGE = expression(
    r"(?i:nvrtc|nvjitlink|ptxas|\bcicc\b|torch.?dynamo|convert_frame|torch.?inductor|compile_fx|autotun|benchmark_all_configs)"
    r"|(?<![A-Za-z])[Cc]ompil(?:e|ing|ation)(?![a-z])|[a-z]Compil(?:e|ing|ation)(?![a-z])|GpuLower|Xla(?:Compile|Lower)"
)
_PROCESS = expression(
    r"^(?:ptxas|cicc|cudafe\+\+|fatbinary|nvlink|nvcc|cc1(?:plus)?|collect2|ninja|ld(?:\.\w+)?|as"
    r"|(?:[\w.]+-)*(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-[\d.]+)?|pt_compile_w\w*)$"
)
# Who compiled, by names of ranges, kernels and binaries, the most specific first.
COMPILERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nvFuser", expression(r"Fusion(?:Executor|KernelRuntime)|nvfuser|\bGpuLower", re.IGNORECASE)),
    (
        "torch.compile",
        expression(r"dynamo|inductor|^triton_(?:poi|red|per|tem)_|compile_fx|CompiledFunction", re.IGNORECASE),
    ),
    ("Triton", expression(r"triton", re.IGNORECASE)),
    ("XLA", expression(r"\bxla|^Xla|jaxlib|^(?:loop|input)_\w*fusion|GpuCompiler", re.IGNORECASE)),
    ("CuPy", expression(r"\bcupy", re.IGNORECASE)),
    ("Numba", expression(r"cudapy|numba", re.IGNORECASE)),
    ("NVRTC", expression(r"nvrtc", re.IGNORECASE)),
)


def hands_over_code(call: str) -> bool:
    """True for a call, by its plain name, that loads or links code which the program holds in memory."""
    return bool(_HANDS_OVER.match(call))


def is_compile_call(call: str) -> bool:
    """True for a call, by its plain name, that compiles or links itself."""
    return bool(_COMPILES.match(call))


def is_compile_range(name: str) -> bool:
    """True for a range in which code is compiled."""
    return bool(_RANGE.search(name))


def is_compiler_process(name: str) -> bool:
    """True for a process, by its path or name, that compiles, assembles or links."""
    return bool(_PROCESS.match(name.rsplit("/", 1)[-1]))
