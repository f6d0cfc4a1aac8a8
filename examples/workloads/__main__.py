"""``python -m examples.workloads NAME``: run a workload, print its step time."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import Any

from examples.workloads.registry import BY_NAME, WORKLOADS, Setup, Workload
from examples.workloads.timing import StepTimes, measure

from boundby.model.errors import UserError

CUDA_STEPS, WARMUP = 50, 3
INTERRUPTED = 128 + signal.SIGINT


class WorkloadError(UserError):
    """A workload that cannot run here."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.list or options.name is None:
            print(_listing())
            return 0
        print(_run(options))
    except UserError as error:
        print(f"examples.workloads: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.workloads",
        description="Small annotated programs, one for each pattern, to profile and to compare before and after.",
        epilog="They show what helps a GPU. On a CPU they do the same with less work, and need not get faster.",
    )
    parser.add_argument("name", nargs="?", choices=[*BY_NAME], metavar="NAME", help="which one (see --list)")
    parser.add_argument("--variant", help="before (the default), after, or another that --list shows")
    parser.add_argument("--steps", type=_count, help=f"steps to measure (default: {CUDA_STEPS} on a GPU, else fewer)")
    parser.add_argument("--warmup", type=_count, help=f"steps before those (default: {WARMUP})")
    parser.add_argument(
        "--device", choices=["auto", "cuda", "cpu"], default="auto", help="default: CUDA if it is there"
    )
    parser.add_argument("--seed", type=int, default=0, help="of models and data (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a line")
    parser.add_argument("--list", action="store_true", help="tell which workloads there are")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("a number of steps, 0 or more")
    return number


def _listing() -> str:
    lines = []
    for workload in WORKLOADS:
        needs = "" if workload.needs_torch else "; needs no torch"
        lines.append(f"{workload.name:<12} {workload.summary} ({workload.bound} bound{needs})")
        lines += [f"{'':<12}   {name:<8} {what}" for name, what in workload.variants.items()]
    return "\n".join(lines)


def _run(options: argparse.Namespace) -> str:
    workload = BY_NAME[options.name]
    variant = options.variant or next(iter(workload.variants))
    torch = _torch(workload)
    setup = Setup(variant, _device(workload, options.device, torch), options.seed)
    _check(workload, setup)
    count = options.steps if options.steps is not None else CUDA_STEPS if setup.is_cuda else workload.cpu_steps
    warmup = options.warmup if options.warmup is not None else WARMUP
    if count == 0:
        raise WorkloadError("No step to measure.", "Use --steps with a number above 0.")
    if torch is not None and not setup.is_cuda:
        # The steps are small here: more threads would mostly wait for each other, and for other programs.
        torch.set_num_threads(1)
    with workload.program(setup) as step:
        times = measure(step, count, warmup, cuda=setup.is_cuda)
    facts = _facts(workload, setup, times, warmup, torch)
    return json.dumps(facts) if options.json else _sentence(facts)


def _torch(workload: Workload) -> Any:
    if not workload.needs_torch:
        return None
    if importlib.util.find_spec("torch") is None:
        free = ", ".join(other.name for other in WORKLOADS if not other.needs_torch)
        raise WorkloadError(
            f"The workload {workload.name} needs PyTorch, which is not installed for {sys.executable}.",
            f"Install it (pip install torch), or take one that does without: {free}.",
        )
    import torch

    return torch


def _device(workload: Workload, wanted: str, torch: Any) -> str:
    if torch is None:
        if wanted == "cuda":
            raise WorkloadError(f"The workload {workload.name} uses no GPU.", "Leave out --device.")
        return "cpu"
    has_cuda = bool(torch.cuda.is_available())
    if wanted == "cuda" and not has_cuda:
        raise WorkloadError(
            f"PyTorch {torch.__version__} sees no GPU here.",
            "Use --device cpu, or install a CUDA build of torch on a machine with a GPU and its driver.",
        )
    return "cuda" if has_cuda and wanted != "cpu" else "cpu"


def _check(workload: Workload, setup: Setup) -> None:
    if setup.variant not in workload.variants:
        raise WorkloadError(
            f"The workload {workload.name} has no variant {setup.variant!r}.",
            f"It has {', '.join(workload.variants)}.",
        )
    if setup.variant in workload.cuda_only and not setup.is_cuda:
        raise WorkloadError(
            f"The variant {setup.variant} of {workload.name} needs a GPU.", "Use --variant after to run on the CPU."
        )
    if setup.variant == "compile" and not setup.is_cuda and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        raise WorkloadError(
            "torch.compile needs a C++ compiler on the CPU, and there is none in PATH.",
            "Install one (apt-get install g++), or use --variant after.",
        )


def _facts(workload: Workload, setup: Setup, times: StepTimes, warmup: int, torch: Any) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "variant": setup.variant,
        "device": setup.device,
        "device_name": torch.cuda.get_device_name() if setup.is_cuda else None,
        "torch": None if torch is None else str(torch.__version__),
        "seed": setup.seed,
        "clock": times.clock,
        "warmup": warmup,
        "steps": len(times.step_ns),
        "median_ns": times.median_ns,
        "p95_ns": times.p95_ns,
        "mean_ns": times.mean_ns,
        "step_ns": list(times.step_ns),
    }


def _sentence(facts: dict[str, Any]) -> str:
    place = facts["device_name"] or facts["device"]
    return (
        f"{facts['workload']} {facts['variant']} on {place}: {facts['median_ns'] / 1e6:.3f} ms a step (median), "
        f"p95 {facts['p95_ns'] / 1e6:.3f} ms, {facts['steps']} steps after {facts['warmup']} to warm up"
    )


if __name__ == "__main__":
    sys.exit(main())
