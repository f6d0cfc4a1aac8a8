"""Which frames of a backtrace speak of the program: not those of interpreter, C library, driver and profiler.

Decided by the frame's binary (or Python file), never by its depth. libm and the language runtimes' own work (``operator
new``, ``memcpy``) are done on the caller's behalf, so the caller is named.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from boundby.trace.stacks import Backtraces

_INTERPRETER = re.compile(r"^(?:lib)?python\d[\d.]*\w*(?:$|\.so)|^python$")
_PLUMBING = re.compile(
    r"^(?:libc|libpthread|ld|libdl|librt|libm|libstdc\+\+|libgcc_s|libunwind|libgomp|libiomp\d?|libomp|libtcmalloc\w*"
    r"|libjemalloc|linux-vdso|libToolsInjection\w*|libcupti|libcuda|libcudart|libnvidia-\w+|libnvToolsExt)"
    r"(?:[-.]\d[\w.+-]*)?(?:-[0-9a-f]+)?(?:$|\.so|-linux)|^libTools|^\[|^linux-vdso|^ld-linux",
)
# Entry points that stand in the program's own binary.
_ENTRY = re.compile(
    r"^(?:_start|_init|_fini|__libc_\w+|start_thread|__?clone\d?|\[Broken backtraces\]|\[Unknown\]|0x0)$"
)
_LIBRARY_FILE = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib/python\d[\d.]*/|^<frozen |^<__array_function__"
)


def is_interpreter(module: str) -> bool:
    """True for the Python interpreter's own binary (not its extension modules)."""
    return bool(_INTERPRETER.match(PurePath(module).name))


def is_plumbing(symbol: str, module: str) -> bool:
    """True for a frame that says nothing about the program: interpreter, C library, kernel, driver, profiler."""
    name = PurePath(module).name
    return bool(_INTERPRETER.match(name) or _PLUMBING.match(name) or _ENTRY.match(symbol))


def is_user_python(file: str) -> bool:
    """True for a Python file that is neither installed (site-packages) nor part of Python itself."""
    return bool(file) and not _LIBRARY_FILE.search(file)


def describe_frame(stacks: Backtraces, frame: int) -> str:
    """``compute_loss (train.py:42)`` for a Python frame, ``at::native::item [libtorch_cpu.so]`` for another."""
    symbol, module = stacks.symbol(frame), stacks.module(frame)
    line = int(stacks.frames.line[frame])
    if module.endswith((".py", ".pyx")) or line:
        place = f"{PurePath(module).name}:{line}" if line else PurePath(module).name
        return f"{symbol} ({place})"
    return f"{symbol} [{PurePath(module).name}]"
