"""What kind of program a trace is of: what its user wrote it in decides which remedies make sense to him.

Told from the processes that use the GPU: names of kernels and ranges, NVTX domains, threads, the command, and binaries
in backtraces. Where two things speak, the more specific wins; where nothing does, it is a program in C or C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TypeVar

from msgspec import Struct

from boundby.model.arrays import unique
from boundby.model.late import expression
from boundby.trace.facts import ProgramEnd
from boundby.trace.stacks import file_name
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.last_words import UNCLEAR, last_words

T = TypeVar("T")


class ProgramKind(Enum):
    """What the user's own code is."""

    TORCH = "Python with PyTorch"
    PYTHON = "Python"  # JAX, CuPy, RAPIDS, Numba, a library of its own ...
    CPP = "C++ or CUDA"
    DIRECTIVES = "OpenMP or OpenACC"
    JULIA = "Julia"


class KnownProgram(Struct, frozen=True):
    """``library``: the array library or server whose kernels or ranges the trace shows (``torch``, ``jax``, ``vllm``),
    ``openmp`` of directives that are OpenMP's; empty: none is known."""

    kind: ProgramKind
    library: str = ""

    @property
    def is_python(self) -> bool:
        return self.kind in (ProgramKind.TORCH, ProgramKind.PYTHON)

    @property
    def is_torch(self) -> bool:
        return self.kind == ProgramKind.TORCH

    @property
    def is_server(self) -> bool:
        """Whether it serves a model: who runs it sets options, and writes none of its code."""
        return self.library in _SERVERS

    @property
    def keys(self) -> tuple[str, ...]:
        """What words for this program are filed under: its library, then its kind. A library's own words are for those
        who call it from Python; of directives OpenMP's are apart."""
        kind, has_words = self.kind.name.lower(), self.is_python or self.kind == ProgramKind.DIRECTIVES
        return (self.library, kind) if has_words and self.library else (kind,)

    def pick(self, otherwise: T, **of_kind: T) -> T:
        """The words for this program: by library (``cudf=``), then by kind (``torch=``, ``python=``, ``directives=``,
        ``julia=``; what is there for ``python`` holds for no program with torch), else ``otherwise``."""
        return next((of_kind[key] for key in self.keys if key in of_kind), otherwise)


# Servers of models, which run PyTorch.
_SERVERS = ("vllm", "sglang")
# Libraries by what only they name: kernels, ranges, domains, threads, binaries. The first that is seen decides.
_LIBRARIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("sglang", expression(r"\bsglang(?:::|\.|/|_)|^sglang$|^step\[(?:DECODE|EXTEND|MIXED)\b")),
    ("vllm", expression(r"^VLLM::|\bvllm(?:::|\.|/| serve)|^vllm$|^execute_(?:context|\d+_context)_\d")),
    (
        "torch",
        expression(
            r"at::native::|\baten::|\bc10::|^pt_(?:main_thread|autograd|data_worker|pin_mem|thread_pool)"
            r"|libtorch_python|libc10_cuda|^triton_(?:poi|red|per|tem)_|torch::"
        ),
    ),
    ("cudf", expression(r"\bcudf::|^libcudf|^cudf_python$")),
    (
        "jax",
        expression(r"XlaModule|^tf_XLA|^jax|jaxlib|xla_extension|^(?:loop|input)_\w*fusion(?:_\d+)?$|\bjit_\w+\b.*hlo"),
    ),
    ("tensorflow", expression(r"tensorflow::|^tf_(?:data|Compute)|libtensorflow")),
    ("cupy", expression(r"\bcupy_|^cupy")),
    ("numba", expression(r"\bcudapy::|_ZN6cudapy")),
)
LIBRARIES = (*(name for name, _ in _LIBRARIES), "openmp")
_PYTHON = expression(
    r"(?:^|[\\/ ])(?:i?python|pypy|pytest|torchrun|accelerate|deepspeed|jupyter|ray|vllm)[\d.]*(?:\.exe)?(?=$|\s)"
    r"|\.py(?=$|\s)|^pt_main_thread$|cpython-3|^python3?[\d.]*$|^VLLM::|^ray::",
    re.IGNORECASE,
)
# nvc, nvfortran and gcc name the kernels of directives after the function and line that they were made of.
_DIRECTIVES = expression(r"^nvkernel_|__omp_offloading|__nv_main|_\d+_gpu(?:__red)?$|_gpu__red|^acc_|\$_omp_fn\$")
# ``nvkernel_solve_F1L204_2``: what `nvc -mp=gpu` makes of line 204; that of an OpenACC loop is ``solve_204_gpu``.
_OPENMP = expression(r"^nvkernel_\w+_F\d+L\d+_|__omp_offloading|\$_omp_fn\$|^OpenMP$", re.IGNORECASE)
_DIRECTIVE_DOMAINS = expression(r"^(?:OpenACC|OpenMP)$", re.IGNORECASE)
_JULIA = expression(r"^julia\b|(?:^|[\\/])julia(?:[\d.]*)(?=$|\s)|\bjulia_|CuDeviceArray|libjulia|^gpu_\w+!?\(")


def program_of(trace: Trace) -> KnownProgram:
    """What wrote the program. Threads and processes count where they call CUDA; all do where none does."""
    kernels = _texts(trace, unique(trace.operations.name))
    processes, started = _started(trace)
    named = [*kernels, *trace.range_names[1].but_for_lone_numbers(), *trace.domains, *started]
    is_torchs = trace.is_told_by_frames  # its profiler runs in its own programs
    library, is_python = _library(named, "torch" if is_torchs else ""), is_torchs or _any(_PYTHON, started)
    if not is_python and _any(_JULIA, [*started, *kernels]):
        return KnownProgram(ProgramKind.JULIA)
    if not library or not is_python:
        library, is_python = _of_binaries(_binaries(trace), library, is_python=is_python, is_named=any(processes))
    if not library and (directives := _directives(kernels, trace.domains)) is not None:
        return directives
    if not is_python:
        return KnownProgram(ProgramKind.CPP, library)
    return KnownProgram(ProgramKind.TORCH if library in ("torch", *_SERVERS) else ProgramKind.PYTHON, library)


def _directives(kernels: Sequence[str], domains: Sequence[str]) -> KnownProgram | None:
    """What a compiler made of directives; None: kernels and domains are not called so."""
    if not _any(_DIRECTIVES, kernels) and not _any(_DIRECTIVE_DOMAINS, domains):
        return None
    return KnownProgram(ProgramKind.DIRECTIVES, "openmp" if _any(_OPENMP, [*kernels, *domains]) else "")


def _of_binaries(binaries: Sequence[str], library: str, *, is_python: bool, is_named: bool) -> tuple[str, bool]:
    """The library, and whether it is Python, by the binaries that are loaded: a library of Python is, where neither the
    program's name nor its binaries say that there is no Python in it."""
    library, is_python = library or _library(binaries), is_python or _any(_PYTHON, binaries)
    is_silent = not is_named and not any(name.startswith("lib") for name in binaries)
    return library, is_python or (bool(library) and is_silent)


def _any(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    return any(map(pattern.search, texts))


def _library(texts: Sequence[str], known: str = "") -> str:
    """The first library that any of these texts names, or that is ``known``; empty: none."""
    return next((name for name, pattern in _LIBRARIES if name == known or _any(pattern, texts)), "")


def _started(trace: Trace) -> tuple[list[str], list[str]]:
    """Names of the processes that call CUDA (of all where none does), and these with their threads' and the command."""
    callers = unique(trace.api.thread)
    chosen = unique(trace.process_of_thread[callers]).tolist() if len(callers) else range(len(trace.processes))
    processes = [trace.processes[number].name for number in chosen]
    threads = [thread.name for thread in trace.threads if thread.process in chosen or not len(callers)]
    return processes, [*processes, *threads, trace.command or ""]


def _binaries(trace: Trace) -> list[str]:
    """File names of the binaries that backtraces show, in order."""
    if not trace.captured.backtraces:
        return []
    stacks = trace.backtraces.load()
    return sorted({file_name(stacks.names[number]) for number in unique(stacks.frames.module).tolist()})


def _texts(trace: Trace, numbers: Iterable[int]) -> list[str]:
    return [trace.names[number] for number in map(int, numbers) if number >= 0]


# How a program ended: its last words, held against what is on record.


def program_end(trace: Trace) -> ProgramEnd | None:
    """How it ended, if it failed or was interrupted; None: nothing says so. The first process speaks for what it
    started: these write to its streams."""
    errors = "".join(text.text for text in trace.written if text.is_error)
    output = "".join(text.text for text in trace.written if not text.is_error)
    said = trace.last_words or last_words(errors, output, trace.exit_code)
    if said is None:
        return None
    return ProgramEnd(
        ended=said.ended,
        words=said.words,
        where=said.where,
        after_ns=trace.span_ns[1] - trace.span_ns[0],
        before_gpu_work=not len(trace.operations),
        exit_code=trace.exit_code,
        lines=said.lines,
    )


def is_end_unclear(trace: Trace) -> bool:
    """Whether an error is the last that it printed: it may have ended because of it, or gone on without something."""
    end = program_end(trace)
    return end is not None and end.ended == UNCLEAR
