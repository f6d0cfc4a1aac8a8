"""``%load_ext boundby``: ``%%boundby`` runs a cell under PyTorch's profiler and shows what it is bound by, ``%boundby``
shows files. Lines of cells are named as people see them: ``In [5]:3``."""

from __future__ import annotations

import argparse
import ast
import html
import importlib
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, NoReturn

from boundby.integrations import apart
from boundby.integrations.apart import harmless, say
from boundby.integrations.call_lines import Alias
from boundby.integrations.torch_profiler import FOLDER, TraceHandler, recorded_already
from boundby.model.errors import UserError


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext boundby``."""
    magics = Magics(shell)
    shell.register_magic_function(magics.show, "line", "boundby")
    shell.register_magic_function(magics.run, "cell", "boundby")


class Magics:
    """The two magics of one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def show(self, line: str) -> Any:
        """%boundby REPORT [REPORT]: show a report; of two, what changed; of a folder of ranks, the job."""
        parser = _Parser("%boundby", description=self.show.__doc__)
        parser.add_argument("reports", nargs="+", metavar="REPORT", help="what boundby analyze takes")
        parser.add_argument("--skip-first", type=int, default=0, metavar="K", help="leave out the first K steps")
        parser.add_argument("--window", default="gpu", help="as for boundby analyze")
        chosen = parser.parse(line)
        from boundby import api
        from boundby.options import AnalysisOptions

        options = AnalysisOptions(skip_first=chosen.skip_first, window=chosen.window)
        try:
            if len(chosen.reports) == 2:
                return api.compare_runs(chosen.reports[0], chosen.reports[1], options)
            if len(chosen.reports) > 2 or api.is_job(chosen.reports[0]):
                return api.job(chosen.reports, workers=1)
            return api.load(chosen.reports[0], options)
        except UserError as error:
            _refuse(f"{error.message} {error.next_step}")

    def run(self, line: str, cell: str) -> Any:
        """%%boundby [NAME]: run this cell under torch's profiler, and show what it is bound by."""
        parser = _Parser("%%boundby", description=self.run.__doc__)
        parser.add_argument("name", nargs="?", help="the variable that gets the Report")
        parser.add_argument("--no-lines", action="store_true", help="no lines of cells: less is recorded")
        parser.add_argument("--memory", action="store_true", help="record allocations, too")
        parser.add_argument("-o", "--output", default=FOLDER, metavar="FOLDER", help=f"[{FOLDER}]")
        chosen = parser.parse(line)
        __tracebackhide__ = True
        handler = _CellHandler(self._shell, cell, chosen.output, lines=not chosen.no_lines)
        profiler = _start(handler, with_stack=not chosen.no_lines, profile_memory=chosen.memory)
        try:
            with _range("cell", profiler):
                value = self._execute(cell)
        except BaseException:
            handler.show = False
            raise
        finally:
            if profiler is not None:
                with harmless("boundby's recording"):
                    profiler.__exit__(*sys.exc_info())
        if chosen.name and profiler is not None:
            self._shell.user_ns[chosen.name] = handler.report
        return value

    def _execute(self, cell: str) -> Any:
        """Run the cell as IPython would; the value of its last expression."""
        __tracebackhide__ = True
        shell = self._shell
        tree = shell.transform_ast(shell.compile.ast_parse(shell.transform_cell(cell)))
        name = shell.compile.cache(cell, _cell_number(shell))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(shell.compile(tree, name, "exec"), shell.user_ns)
        if last is None:
            return None
        value = eval(shell.compile(ast.Expression(last.value), name, "eval"), shell.user_ns)
        return None if cell.rstrip().endswith(";") else value


class _CellHandler(TraceHandler):
    """Shows HTML, and calls cells by their numbers."""

    def __init__(self, shell: Any, cell: str, folder: str, *, lines: bool) -> None:
        super().__init__(folder, f"cell{_cell_number(shell)}", use_gzip=True, show=True, lines=lines)
        self._shell, self._cell = shell, cell

    def _aliases(self) -> Mapping[str, Alias]:
        compiler = self._shell.compile
        numbers: dict[str, int] = getattr(compiler, "_filename_map", {})
        own = compiler.get_code_name(self._cell, self._cell, _cell_number(self._shell))
        named = {file: Alias(f"In [{number}]") for file, number in numbers.items()}
        return {**named, own: Alias(f"In [{_cell_number(self._shell)}]", lines_above=1)}  # the magic's own line

    def _print(self, answer: apart.ApartAnswer, seconds: float) -> None:  # noqa: ARG002
        from boundby.render.html import fragment

        display: Any = importlib.import_module("IPython.display")
        report = self.report
        shown = "" if report is None else fragment(report)
        display.display(display.HTML(shown + self._link(seconds)))

    def _link(self, seconds: float) -> str:
        """The page, where the notebook's server shows files; else its path."""
        note = f"analysed in {seconds:.1f} s, after the cell had run"
        if self.page is None:
            return f"<div>{html.escape(note)}</div>"
        path = os.path.relpath(self.page)
        is_served = "google.colab" not in sys.modules and "VSCODE_PID" not in os.environ and not path.startswith("..")
        name = html.escape(path, quote=True)
        link = f'<a href="{name}" target="_blank" rel="noopener">the page</a>' if is_served else "the page"
        link += f" ({name})"
        return f'<div style="opacity:.8;font-family:sans-serif">{link}, {html.escape(note)}</div>'


def _cell_number(shell: Any) -> int:
    """The number of the cell that runs: IPython's counter is ahead of it in some versions."""
    numbers: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if (number := numbers.get(frame.f_code.co_filename)) is not None:
            return number
        frame = frame.f_back
    return int(shell.execution_count)


def _range(name: str, profiler: Any) -> AbstractContextManager[object]:
    """The cell as a range of the trace: time outside of operators counts, too."""
    if profiler is None:
        return nullcontext()
    made: AbstractContextManager[object] = importlib.import_module("torch.profiler").record_function(name)
    return made


def _start(handler: TraceHandler, **chosen: bool) -> Any:
    """torch's profiler, started; None where there is none, and why is told."""
    started: Any = None
    with harmless("boundby's recording"):
        if why := recorded_already():
            say(f"boundby: {why}: the cell is not recorded again.")
        else:
            profiler: Any = importlib.import_module("torch.profiler")
            started = profiler.profile(on_trace_ready=handler, record_shapes=True, **chosen).__enter__()
    return started


class _Parser(argparse.ArgumentParser):
    """Options of a magic: what is wrong with them is IPython's UsageError, without a traceback."""

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(name, description=description, add_help=False)
        self.add_argument("-h", "--help", action="store_true", help="show this")

    def parse(self, line: str) -> argparse.Namespace:
        words = shlex.split(line)
        if {"-h", "--help"} & {*words}:
            _refuse(self.format_help())
        return self.parse_args(words)

    def error(self, message: str) -> NoReturn:
        _refuse(f"{self.prog}: {message}")


def _refuse(message: str) -> NoReturn:
    errors: Any = importlib.import_module("IPython.core.error")
    raise errors.UsageError(message)
