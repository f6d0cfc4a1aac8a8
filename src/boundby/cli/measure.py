"""``boundby measure``: time a function, find its best batch size, hold CPU against GPU, compare two results."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.shared_options import FILE, PLAIN, Command, Real, json_option, output_option, stacked, view_options

if TYPE_CHECKING:
    from boundby.measure.comparisons import Measurable
    from boundby.measure.results import Latency, Result
    from boundby.measure.target import Target

METHODS = ("event", "synchronised", "naive", "all")
MODES = ("inference", "training")


class _MeasureGroup(click.Group):
    """``boundby measure TARGET`` is ``boundby measure latency TARGET``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["latency", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_MeasureGroup, epilog=outcome.EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def measure() -> None:
    """Time a function or a model properly.

    "boundby measure TARGET" is short for "boundby measure latency TARGET"; its options are in "boundby measure latency
    --help".

    A TARGET is FILE.py:FUNCTION or package.module:FUNCTION. It is called once without arguments. If it returns a
    callable and its inputs, those are measured; if it returns anything else, it is itself what is measured.

    \b
    boundby measure train.py:step
    boundby measure bench.py:model --method all --figure latency.png
    boundby measure bench.py:model -o before.json
    boundby measure --compare before.json bench.py:model
    boundby measure throughput bench.py:model --latency-limit 50
    boundby measure devices bench.py:model
    boundby measure stages bench.py:pipeline --ways
    """


class Show(Struct, frozen=True):
    """Where a result goes, and how it looks."""

    as_json: bool
    output: Path | None
    figure: Path | None
    view: View
    apart: contextlib.ExitStack
    """With --json, what the target prints goes to stderr until this is closed."""

    def ready(self) -> None:
        """Whatever would fail after the hard work fails before it."""
        from boundby.results import write

        click.get_current_context().call_on_close(self.apart.close)
        if self.as_json:
            self.apart.enter_context(contextlib.redirect_stdout(sys.stderr))
        if self.output is not None:
            write.check(self.output)
        if self.figure is not None:
            from boundby.measure import charts

            charts.check_name(self.figure)

    def one_or_two(self, target: str | None, pair: tuple[str, str] | None, run: Callable[[str], Result]) -> None:
        """What ``run`` makes of a target; of a pair, each of them a target or a saved result, how the two compare."""
        from boundby.measure.comparisons import compare as judge
        from boundby.measure.results import load

        if (target is None) == (pair is None):
            raise click.UsageError("Give a TARGET, or --compare A B.")
        self.ready()
        if pair is None:
            self.result(run(target or ""))
            return
        for source in filter(_is_saved, pair):
            load(source)  # a bad one is refused before anything is measured
        a, b = (load(source) if _is_saved(source) else run(source) for source in pair)
        self.result(judge(a, b))

    def result(self, result: Result) -> None:
        """Save, draw and print."""
        self.apart.close()
        if self.output is not None:
            result.save(self.output)
            self.view.note(f"wrote {self.output}")
        if self.figure is not None:
            result.figure(self.figure)
            self.view.note(f"wrote {self.figure}")
        if self.as_json:
            from boundby.results.saved import render

            console.put(render(result), utf8=True)
            return
        from boundby.measure import shown

        surface = self.view.surface()
        console.put(shown.render(result, width=surface.width, color_system=surface.color_system))


def _shown(command: Command) -> Command:
    """The options that every command has; the command gets one ``show``."""

    @functools.wraps(command)
    def gathered(as_json: bool, output: Path | None, figure: Path | None, view: View, **values: Any) -> Any:
        return command(**values, show=Show(as_json, output, figure, view, contextlib.ExitStack()))

    return stacked(
        json_option,
        output_option("Save the result as JSON, to compare with later."),
        click.option("--figure", type=FILE, help="Draw it to this file: .png, .svg or .pdf."),
        view_options(*PLAIN, quiet="No notes on stderr."),
    )(gathered)


_mode = click.option("--mode", type=click.Choice(MODES), help="Put the model into this mode. [as it is]")
_moded = stacked(
    click.option("--device", metavar="cpu|cuda|cuda:N", help="Where to time. [where inputs and model are]"), _mode
)


@measure.command(epilog=outcome.EPILOG)
@click.argument("target", required=False)
@click.option("--compare", "pair", nargs=2, metavar="A B", help="Compare two targets or saved results.")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="How to time a GPU: by CUDA events (event), by the host's clock with a wait for the GPU (synchronised) or "
    "without (naive), or all side by side. [event]",
)
@click.option(
    "--size",
    "sizes",
    metavar="N",
    type=click.IntRange(min=1),
    multiple=True,
    help="With --method all: a batch size to show the mistakes at; can be repeated.",
)
@click.option("--graph", is_flag=True, help="Capture a CUDA graph and time its replay.")
@click.option("--flush-l2", is_flag=True, help="Empty the GPU's L2 cache before each call.")
@click.option("--fresh-inputs", is_flag=True, help="Give each call its own copy of the inputs.")
@click.option("--no-warmup", is_flag=True, help="Do not warm up, to see what difference that makes.")
@click.option("--samples", metavar="N", type=click.IntRange(min=1), help="The fewest samples to take. [30]")
@click.option(
    "--precision",
    metavar="PERCENT",
    type=Real(min=0.001),
    help="Take samples until half the width of the interval is this part of the median. [1]",
)
@click.option("--budget", metavar="SECONDS", type=Real(min=0.001), help="How long to sample, at most. [5]")
@_moded
@_shown
def latency(
    target: str | None,
    pair: tuple[str, str] | None,
    method: str | None,
    sizes: tuple[int, ...],
    graph: bool,
    flush_l2: bool,
    fresh_inputs: bool,
    no_warmup: bool,
    samples: int | None,
    precision: float | None,
    budget: float | None,
    device: str | None,
    mode: str | None,
    show: Show,
) -> None:
    """Time one call of TARGET (the default command).

    \b
    boundby measure latency bench.py:model --mode inference
    boundby measure latency bench.py:model --method all --size 1 --size 16 --size 256
    boundby measure latency --compare before.json after.json
    """
    if (target is None) == (pair is None):
        raise click.UsageError("Give a TARGET, or --compare A B.")
    if sizes and method != "all":
        raise click.UsageError("--size goes with --method all; throughput and devices go through sizes, too.")
    chosen: dict[str, Any] = {
        "device": device,
        "mode": mode,
        "graph": graph,
        "flush_l2": flush_l2,
        "fresh_inputs": fresh_inputs,
        "warmup": not no_warmup,
        "min_samples": samples,
        "precision": precision / 100 if precision is not None else None,
        "budget_s": budget,
    }
    options = {name: value for name, value in chosen.items() if value is not None}
    show.ready()
    if pair is not None:
        if method == "all":
            raise click.UsageError("--compare takes one method, not all.")
        show.result(_compare(pair, {**options, "method": method}))
        return
    from boundby.measure.latencies import latency as time_one
    from boundby.measure.latencies import methods as time_all
    from boundby.measure.latencies import methods_by_size

    resolved = _target(target or "", device)
    options |= {"name": resolved.name, "kwargs": resolved.kwargs}
    result: Result
    if sizes:
        resolved = _with_inputs(resolved)
        result = methods_by_size(
            resolved.fn, *resolved.inputs, sizes=sizes, make_inputs=resolved.make_inputs, **options
        )
    elif method == "all":
        result = time_all(resolved.fn, *resolved.inputs, **options)
    else:
        result = _with_first(time_one(resolved.fn, *resolved.inputs, **options, method=method), resolved)
    show.result(result)


@measure.command(epilog=outcome.EPILOG)
@click.argument("a")
@click.argument("b")
@_shown
def compare(a: str, b: str, show: Show) -> None:
    """Say whether A and B, targets or saved results, differ.

    Two targets are measured alternately. For options of the measurement use "boundby measure --compare A B".
    """
    show.ready()
    show.result(_compare((a, b), {}))


def _pair(how: str) -> Callable[[Command], Command]:
    return click.option(
        "--compare", "pair", nargs=2, metavar="A B", help=f"Compare two targets or saved results, {how}."
    )


@measure.command(epilog=outcome.EPILOG)
@click.argument("target", required=False)
@_pair("by size")
@click.option("--latency-limit", metavar="MS", type=Real(min=0, min_open=True), help="The longest a batch may take.")
@click.option("--start", metavar="N", type=click.IntRange(min=1), default=1, help="The batch size to start with. [1]")
@click.option("--max-batch", metavar="N", type=click.IntRange(min=1), help="The largest batch size to try.")
@click.option("--budget", metavar="SECONDS", type=Real(min=0.001), default=60, help="How long to search, at most. [60]")
@_moded
@_shown
def throughput(
    target: str | None,
    pair: tuple[str, str] | None,
    latency_limit: float | None,
    start: int,
    max_batch: int | None,
    budget: float,
    device: str | None,
    mode: str | None,
    show: Show,
) -> None:
    """Find TARGET's batch size with the most samples per second.

    TARGET returns a callable and the inputs of one batch, whose first dimension is repeated to make other sizes, or a
    callable and a function from a batch size to inputs.

    \b
    boundby measure throughput bench.py:model --latency-limit 50 -o before.json
    boundby measure throughput --compare before.json bench.py:model
    """
    from boundby.measure.sweeps import throughput as search

    def run(place: str) -> Result:
        resolved = _factory(place, device)
        return search(
            resolved.fn,
            *resolved.inputs,
            make_inputs=resolved.make_inputs,
            name=resolved.name,
            device=device,
            mode=mode,
            start=start,
            max_batch=max_batch,
            latency_limit_ms=latency_limit,
            budget_s=budget,
        )

    show.one_or_two(target, pair, run)


@measure.command(epilog=outcome.EPILOG)
@click.argument("target", required=False)
@_pair("by size")
@click.option(
    "--size",
    "sizes",
    metavar="N",
    type=click.IntRange(min=1),
    multiple=True,
    help="A size to measure; can be repeated.",
)
@click.option("--gpu", metavar="cuda|cuda:N", help="The GPU. [the current one, if there is one]")
@click.option(
    "--quality", metavar="TARGET", help="A function that says as a number how good a result is; shown beside the times."
)
@_mode
@click.option(
    "--rtol", metavar="X", type=Real(min=0), default=1e-3, help="Results may differ by this part of the value. [0.001]"
)
@click.option(
    "--atol", metavar="X", type=Real(min=0), default=1e-5, help="Results may also differ by this amount. [0.00001]"
)
@click.option(
    "--budget", metavar="SECONDS", type=Real(min=0.001), default=60, help="How long to measure, at most. [60]"
)
@_shown
def devices(
    target: str | None,
    pair: tuple[str, str] | None,
    sizes: tuple[int, ...],
    gpu: str | None,
    quality: str | None,
    mode: str | None,
    rtol: float,
    atol: float,
    budget: float,
    show: Show,
) -> None:
    """Compare TARGET on the CPU with TARGET on the GPU.

    It times growing sizes, with and without copies to the GPU and back, and says from which size on the GPU is faster.
    TARGET returns a callable and inputs, as for throughput; or it is a function of a size and a device (a model's
    width, a training loop's length) that returns what is timed. Without a GPU the CPU's times are shown.

    \b
    boundby measure devices bench.py:model
    boundby measure devices bench.py:training --size 64 --size 256 --quality bench.py:loss
    boundby measure devices --compare before.json after.json
    """
    from boundby.measure.sweeps import devices as sweep
    from boundby.measure.target import find, load_sweep

    def run(place: str) -> Result:
        made = load_sweep(place)
        common: dict[str, Any] = {
            "quality": find(quality) if quality else None,
            "sizes": sizes or None,
            "gpu": gpu,
            "mode": mode,
            "name": place,
            "rtol": rtol,
            "atol": atol,
            "budget_s": budget,
        }
        if made is not None:
            return sweep(make=made, **common)
        resolved = _factory(place, "cpu")
        return sweep(resolved.fn, *resolved.inputs, make_inputs=resolved.make_inputs, build=resolved.build, **common)

    show.one_or_two(target, pair, run)


@measure.command(epilog=outcome.EPILOG)
@click.argument("target", required=False)
@_pair("by stage")
@click.option("--ways", is_flag=True, help="Time it in three ways: the host's clock, events, waiting after each stage.")
@click.option(
    "--passes", metavar="N", type=click.IntRange(min=1), default=30, help="How often to run the pipeline. [30]"
)
@click.option("--synchronise", is_flag=True, help="Wait for the device after each stage, to see what that costs.")
@click.option("--no-warmup", is_flag=True, help="Count the first passes too, however slow they are.")
@click.option("--device", metavar="cpu|cuda|cuda:N", help="Where to time. [cuda, if the program has started CUDA]")
@_shown
def stages(
    target: str | None,
    pair: tuple[str, str] | None,
    ways: bool,
    passes: int,
    synchronise: bool,
    no_warmup: bool,
    device: str | None,
    show: Show,
) -> None:
    """Time each stage of a pipeline, on host and device.

    TARGET returns a callable and its inputs; the callable's first argument is the recorder, for the blocks that are
    stages: with stage("decode"): ...

    \b
    boundby measure stages bench.py:pipeline --ways
    boundby measure stages --compare before.json bench.py:pipeline
    """
    from boundby.measure.stage_times import pipeline, pipeline_ways

    if ways and (synchronise or pair is not None):
        raise click.UsageError("--ways times one TARGET, with and without waiting.")
    common: dict[str, Any] = {"passes": passes, "device": device, "warmup": not no_warmup}

    def run(place: str) -> Result:
        resolved = _pipeline(place, device)
        if ways:
            return pipeline_ways(resolved.fn, *resolved.inputs, **common)
        return pipeline(resolved.fn, *resolved.inputs, synchronise=synchronise, **common)

    show.one_or_two(target, pair, run)


def _pipeline(place: str, device: str | None) -> Target:
    from boundby.measure.results import TargetError

    resolved = _target(place, device)
    if resolved.first_call_ns is not None:
        raise TargetError(
            f"{place} returns no pipeline.", "Return a callable that takes the recorder first, and its inputs."
        )
    return resolved


def _target(place: str, device: str | None) -> Target:
    from boundby.measure.device import choose
    from boundby.measure.target import load

    if device is not None:
        choose(device)  # a wrong one is refused before anything is loaded
    return load(place, device=device)


def _factory(place: str, device: str | None) -> Target:
    return _with_inputs(_target(place, device))


def _with_inputs(found: Target) -> Target:
    """Raises TargetError: it returns no inputs that could be made larger."""
    from boundby.measure.results import TargetError

    if found.first_call_ns is not None or found.kwargs is not None:
        raise TargetError(
            f"{found.name} returns no inputs that could be made larger.",
            "Return a callable and its inputs: return model, (x,); or a function from a size to inputs.",
        )
    return found


def _with_first(result: Latency, found: Target) -> Latency:
    """A plain function had its first call when it was found."""
    from msgspec.structs import replace

    if found.first_call_ns is None or not result.warmup_calls:
        return result
    return replace(result, first_call_ns=found.first_call_ns)


def _compare(pair: Sequence[str], options: dict[str, Any]) -> Result:
    """Two targets in turns, two saved results, or a new measurement against a saved one."""
    from boundby.measure.comparisons import compare as judge
    from boundby.measure.comparisons import compare_in_turns
    from boundby.measure.latencies import measured
    from boundby.measure.results import load

    saved = {name: load(name) for name in pair if _is_saved(name)}
    made = {name: _measurable(name, options) for name in pair if name not in saved}
    if not saved:
        return compare_in_turns(made[pair[0]], made[pair[1]])
    a, b = (saved[name] if name in saved else measured(*made[name]) for name in pair)
    return judge(a, b)


def _measurable(name: str, options: dict[str, Any]) -> Measurable:
    from boundby.measure.target import Options

    resolved = _target(name, options.get("device"))
    return resolved.fn, resolved.inputs, Options(**options, name=resolved.name, kwargs=resolved.kwargs)


def _is_saved(name: str) -> bool:
    return name.endswith(".json") or (":" not in name and Path(name).is_file())
