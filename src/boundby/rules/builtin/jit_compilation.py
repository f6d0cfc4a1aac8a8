"""Code is compiled while the program runs, or kernels are tried out, and the device waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import RuleContext
from boundby.evidence.initialization import Autotuning, Compilations, autotuning, compilations, progress_at
from boundby.model.arrays import unique
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.scale import MANY, QUARTER
from boundby.model.units import count, counted, duration, percent
from boundby.results.report import Example
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.builtin._telling import rest_options
from boundby.rules.remedies import common_facts
from boundby.rules.rule import Match, Rule
from boundby.trace.vocabulary.kernel_names import kernel_label


def _check(context: RuleContext) -> Iterator[Match]:
    compiled, tried = compilations(context), autotuning(context)
    if compiled.total_ns >= context.least_ns:
        yield _compiled(context, compiled)
    if tried.is_seen and (kernels := KernelSet(context, tried.rows)).exposed_ns >= context.least_ns:
        yield _tried(kernels, tried)


def _compiled(context: RuleContext, compiled: Compilations) -> Match:
    length = compiled.end_ns - compiled.start_ns
    late_ns = int(length[progress_at(context, compiled.start_ns) >= QUARTER].sum())
    goes_on = late_ns >= QUARTER * compiled.total_ns and len(unique(compiled.calls)) >= MANY
    who = " and ".join(compiled.who)
    low, high = context.saving((Cause.INIT.key,), calls=compiled.calls) or (0, compiled.total_ns)
    longest = np.lexsort((compiled.start_ns, -length))[:3].tolist()
    helpers = counted(compiled.processes, "compiler process", "compiler processes")
    return Match(
        region=context.place(compiled.region, np.maximum(length, 1)),
        title=f"{f'{who} compiles' if len(compiled.who) == 1 else f'{who} compile' if who else 'code is compiled'} "
        f"while the program runs, and the GPU waits for it for {duration(compiled.total_ns)}, "
        f"{percent(compiled.total_ns / max(context.window_ns, 1))} of the window"
        f"{f', {compiled.gaps:,} times' if goes_on else ''}",
        evidence={
            "compiling_ns": compiled.total_ns,
            "gaps": compiled.gaps,
            "stretches": len(length),
            "compilers": list(compiled.who),
            "compiler_processes": compiled.processes or None,
            "late_ns": late_ns,
            "calls": context.named_calls(compiled.calls),
        },
        saving_ns=(min(low, compiled.total_ns) if goes_on else 0, min(high, compiled.total_ns)),
        advice=(
            *_advice(context, compiled, "" if goes_on else rest_options(context, compiled.end_ns, length)),
            *([f"{helpers} ran beside it"] if compiled.processes else []),
        ),
        examples=tuple(
            Example(int(compiled.start_ns[row]), int(length[row]), f"{who or 'the host'} compiles") for row in longest
        ),
        instances=compiled.gaps,
        cost_ns=compiled.total_ns,
        where=line_of_calls(context, unique(compiled.calls)),
    ).advising(code=_code(context, compiled.who))


# nvFuser as a program calls it from Python, alone or by way of Thunder; without it TorchScript calls nvFuser.
_FRONT_END = expression(r"^Fusion(?:Cache|Definition)::")
_SERIALIZED = "nvfuser.enable_automatic_serialization()  # nvFuser 0.1.4 on: the next process loads what was compiled"
_SCRIPTED = "torch.jit.set_fusion_strategy([('DYNAMIC', 1)])  # compiles once for all shapes"


def _code(context: RuleContext, who: tuple[str, ...]) -> str:
    """What keeps the code of this compiler."""
    run = common_facts(context.trace, is_python=context.program.is_python)["program"]
    if "nvFuser" in who and any(map(_FRONT_END.match, context.tree.name)):
        return _SERIALIZED
    if {"torch.compile", "Triton"} & {*who}:
        return f"TORCHINDUCTOR_CACHE_DIR=~/.cache/inductor TRITON_CACHE_DIR=~/.cache/triton {run}"
    return context.program.pick(
        "nvcc -arch=native",
        torch=_SCRIPTED,
        jax="",
        cupy=f"CUPY_CACHE_DIR=~/.cache/cupy {run}",
        numba="@cuda.jit(cache=True)",
        julia="step(sample)  # once for each type, before the measured part",
        directives="nvc++ -gpu=ccnative",
        python="",
    )


def _advice(context: RuleContext, compiled: Compilations, rest: str) -> tuple[str, ...]:
    """Compile once, keep what was compiled, give it no reason to compile again. ``rest``: the option that shows what
    comes after."""
    program, who = context.program, compiled.who
    by_torch = "torch.compile" in who or "Triton" in who
    once = program.pick(
        "Compile ahead of time for this GPU (nvcc -gencode arch=compute_90,code=sm_90), or keep the cubin that NVRTC "
        "makes and load it in the next run; CUDA_CACHE_PATH keeps only what the driver compiles of PTX",
        jax="Set JAX_COMPILATION_CACHE_DIR=/path, which keeps what was compiled for the next run; with "
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 also what compiles in less than a second",
        cupy="Set CUPY_CACHE_DIR to a disk that stays: it keeps what was compiled for the next run",
        numba="Use @cuda.jit(cache=True), which keeps what was compiled for the next run",
        python="Keep what was compiled for the next run: a cache folder on a disk that stays",
        torch="Keep what was compiled for the next run: TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR on a disk that "
        "stays"
        if by_torch
        else "Keep the process for several jobs, or compile ahead of time what its kernels do: "
        f"{who[0] if who else 'the compiler'} compiles again in each process",
        julia="Compile once, before the measured part (a first call of each function and type)",
        directives="Compile for this GPU (-gpu=cc90 with nvc and nvfortran), so that the driver has no PTX to compile",
    )
    again = program.pick(
        "Run each shape once before the measured part; a new shape or type is compiled again",
        jax="Make one jitted function of them, which compiles once: each operation outside jax.jit is compiled by "
        "itself, and again for each shape, those that make weights, too",
        torch="Run each shape once before the measured part. New shapes are compiled again: "
        + ("TORCH_LOGS=recompiles says why, torch.compile(dynamic=True) or padding" if by_torch else "padding")
        + " to a few lengths avoids it",
    )
    measure = (f"In a long run it is paid once: boundby analyze {rest} shows the rest",) if rest else ()
    return (once, *((again,) if who != ("CuPy",) else ()), *measure)


def _tried(kernels: KernelSet, tried: Autotuning) -> Match:
    names = sorted({kernel_label(name) for name in tried.kernels})
    return kernels.match(
        f"{counted(len(names), 'kernel is', 'kernels are')} tried out (autotuning) with {count(tried.flushes)} flushes "
        f"of the cache in between: {duration(kernels.total_ns)} on the GPU ({', '.join(names[:2])})",
        {
            "flushes": tried.flushes,
            "runs": len(kernels) - tried.flushes,
            "total_ns": kernels.total_ns,
            "kernels": kernels.named(),
        },
        (0, kernels.saving_without(Cause.GPU_COMPUTE)[1]),
        (
            "It happens once for each new key (shape, dtype): keep the result (TRITON_CACHE_AUTOTUNING=1, or "
            "triton.autotune(..., cache_results=True)), or fix the best configuration, once it is known",
            "Keys that hold a length (sequence, batch) are tuned again for each: round it, or leave it out of the key",
        ),
        cost_ns=kernels.total_ns,
    ).advising("gpu_compute.keep-tuning")


RULE = Rule(
    id="jit-compilation",
    title="Code is compiled while the program runs",
    group="init",
    cause=Cause.INIT,
    check=_check,
    needs=("kernels", "cuda_api"),
)
