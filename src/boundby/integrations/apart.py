"""Analyse a trace in a process of its own: a training keeps its memory, its imports and its random state, and lives on
whatever happens to the analysis.

The question goes in as JSON on standard input, and the answer comes back as JSON on standard output.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from boundby.model.errors import ToolError, UserError
from boundby.model.scale import PATIENCE_S

# A guest does no harm: what fails here is one line on stderr, and the host's loop goes on.


@contextlib.contextmanager
def harmless(doing: str) -> Iterator[None]:
    """Tell of whatever goes wrong inside, and go on after it."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"{doing} was interrupted; the program goes on. Press Ctrl-C again to end the program.")
    except Exception as error:
        warn(f"{doing} failed: {in_a_line(error)} The program goes on.")


def in_a_line(error: BaseException) -> str:
    """What went wrong, and what to do, as one line that ends with a full stop."""
    if isinstance(error, UserError):
        text = f"{error.message} {error.next_step}"
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def warn(text: str) -> None:
    """One line on stderr, wherever that leads."""
    with contextlib.suppress(Exception):
        print(f"boundby: {text}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Text on standard output, which a notebook or a logger may have replaced."""
    print(text, flush=True)


#: An analysis that takes longer is given up: a training waits for it.
MOST_S = PATIENCE_S
_CHILD = "import sys; sys.path[:] = {path!r}; from boundby.integrations import apart; apart.answer()"


class Question(Struct, frozen=True):
    """What to analyse, and what to make of it. Paths are texts."""

    trace: str
    page: str | None = None
    before: str | None = None
    """An earlier Report as JSON: then what changed is told, too."""
    ranks: tuple[str, ...] = ()
    """The traces of all ranks: then the job is told, too."""
    width: int = 100
    unicode: bool = True


class ApartAnswer(Struct, frozen=True, tag=True):
    """What there is to show, and the Report as JSON."""

    screen: str
    report: str
    changed: str = ""
    job: str = ""
    page_problem: str = ""


class ApartFailure(Struct, frozen=True, tag=True):
    """Why there is nothing to show, and what to do."""

    problem: str
    next_step: str


def ask(question: Question) -> ApartAnswer:
    """Analyse in another Python process. Raises UserError; what it prints to stderr is dropped."""
    if not sys.executable:
        raise ToolError("There is no Python to start for the analysis.", f"Run: boundby analyze {question.trace}")
    code = _CHILD.format(path=[entry or str(Path.cwd()) for entry in sys.path])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is for the program, which ends this
    ) as child:
        try:
            text, problem = child.communicate(msgspec.json.encode(question).decode(), timeout=MOST_S)
        except subprocess.TimeoutExpired:
            raise ToolError(f"The analysis took longer than {MOST_S} s.", f"Run: boundby {question.trace}") from None
        finally:
            child.kill()
    try:
        answered = msgspec.json.decode(text.splitlines()[-1], type=ApartAnswer | ApartFailure)
    except (msgspec.MsgspecError, IndexError):
        last = problem.strip().splitlines()[-1:] or [f"it ended with {child.returncode}"]
        raise ToolError(f"The analysis ended without a result ({last[0]}).", f"Run: boundby {question.trace}") from None
    if isinstance(answered, ApartFailure):
        raise UserError(answered.problem, answered.next_step)
    return answered


def answer() -> None:
    """What runs in the other process."""
    question = msgspec.json.decode(sys.stdin.read(), type=Question)
    try:
        answered: ApartAnswer | ApartFailure = work_out(question)
    except UserError as error:
        answered = ApartFailure(error.message, error.next_step)
    sys.stdout.write(msgspec.json.encode(answered).decode() + "\n")


def work_out(question: Question) -> ApartAnswer:
    """The answer, worked out in this process. Raises UserError."""
    from boundby import api
    from boundby.render import page, screen
    from boundby.results import saved, write

    analysis = api.examine(question.trace)
    report = analysis.report
    page_problem = ""
    try:
        if question.page:
            write.write_text(Path(question.page), page.of(analysis))
    except UserError as error:
        page_problem = f"{error.message} {error.next_step}"
    return ApartAnswer(
        screen.render(report, width=question.width, unicode=question.unicode).rstrip("\n"),
        saved.render(report),
        changed_since(question.before, report) if question.before else "",
        of_job(question.ranks, question) if question.ranks else "",
        page_problem,
    )


def changed_since(before: str, report: Any) -> str:
    """What changed since an earlier Report, in two sentences."""
    from boundby import api
    from boundby.document import comparison_document
    from boundby.results import saved
    from boundby.results.report import Report

    comparison = api.compare_runs(saved.loads(before, Report), report)
    changes = [
        text
        for device in comparison.devices
        for text in (comparison_document.headline(device, comparison), comparison_document.verdict(device))
    ]
    return " ".join(filter(None, changes))


def of_job(traces: Sequence[str], question: Question) -> str:
    """Who holds up whom, of all ranks."""
    from boundby import api
    from boundby.document.job_document import document
    from boundby.render import to_terminal

    merged_job = api.job(traces, workers=1 if len(traces) <= 4 else None)
    return to_terminal.render(document(merged_job), width=question.width, unicode=question.unicode).rstrip("\n")
