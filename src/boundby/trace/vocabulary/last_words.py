"""What a program wrote last: whether that says that it failed or was interrupted, why, and in which line.

An error in the text is no failure: programs print errors and run on. A failure is an error after which nothing but the
aftermath of an end follows, or the word of whoever started the program (an exit status, mpirun, torchrun). A traceback
of Python that an interpreter prints as it ends begins at the program's outermost frame; one that begins further in, or
comes twice from the same place, was printed by who caught the error, and how that ended is then unclear.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import PurePosixPath
from typing import NamedTuple

from msgspec import Struct

from boundby.model.late import expression
from boundby.model.scale import LIST, TWO_LINES
from boundby.trace.stacks import is_user_python
from boundby.trace.vocabulary.os import is_mpi

FAILED, INTERRUPTED, UNCLEAR = "failed", "interrupted", "unclear"
LONGEST_WORDS = TWO_LINES
MOST_LINES = LIST  # that are kept: a traceback's last frames and the error
TAIL = 1 << 16  # characters of the end of what a program writes: a traceback and its launcher add a few thousand
_LONGEST_READ = 2_000  # characters of a line: what errors say stands before that
_SIGNALS = {one.value: one.name for one in signal.Signals}
BY_SIGNAL = 128  # and the signal's number: the exit status of whom a signal ended


class LastWords(Struct, frozen=True):
    """How a program ended (`FAILED`, `INTERRUPTED`, or `UNCLEAR` after an error that may have been caught), by what it
    said: one line, the place in the user's code (``train.py:6``), and the lines that tell of it."""

    ended: str
    words: str
    where: str | None = None
    lines: tuple[str, ...] = ()


class _Weight(IntEnum):
    """Which of several marks tells the cause: who failed knows more than a signal, and a signal more than who waits."""

    LAUNCHER = 0
    SIGNAL = 1
    ERROR = 2


class _Mark(NamedTuple):
    """A line that says that the program ended. ``first`` to ``last``: the lines that belong to it."""

    weight: _Weight
    first: int
    last: int
    words: str
    where: str | None = None
    ended: str = FAILED
    kept: tuple[str, ...] = ()


def last_words(errors: str, output: str = "", exit_code: int | None = None) -> LastWords | None:
    """What the end of standard error (or else of standard output) says of how the program ended; None: nothing says
    that it failed or was interrupted. ``exit_code``: as a shell has it; None: not known."""
    if exit_code == 0:
        return None
    is_over = exit_code is None and any(map(_OVER.search, _clean_lines(output)[-1:]))
    for text in () if is_over else (errors, output):
        lines = _clean_lines(text)
        marks = [mark for mark in _marks(lines) if exit_code is not None or not _runs_on(lines[mark.last + 1 :])]
        if marks:
            return _told(_that_count(marks, exit_code), lines)
    return None if exit_code is None else _told_by_code(exit_code, _clean_lines(errors) or _clean_lines(output))


def _told_by_code(exit_code: int, lines: Sequence[str]) -> LastWords:
    """Where no line that is known says why."""
    said = list(lines[-1:])  # sys.exit("text") writes just that
    is_asked = exit_code in (BY_SIGNAL + signal.SIGINT, BY_SIGNAL + signal.SIGTERM)
    words = _short(said[0]) if said and not _is_going(said[0]) else ""
    kept = tuple(map(masked, said)) if words else ()
    if not words and (name := _SIGNALS.get(exit_code - BY_SIGNAL)):
        words = f"ended by {name}"
    return LastWords(INTERRUPTED if is_asked else FAILED, words, _place(said), kept)


def masked(text: str) -> str:
    """The text without what is nobody's business: the names of home folders, and values of what is called a secret."""
    text = _HOME.sub(r"~", text)
    text = _SECRET.sub(lambda match: f"{match[1]}***", text)
    return _TOKEN.sub("***", text)


_HOME = expression(r"(?:/home|/Users|/users)/[^/\s'\":]+|[A-Za-z]:\\Users\\[^\\\s'\":]+")
_SECRET = expression(
    r"((?:token|secret|password|passwd|credential|api[_-]?key|access[_-]?key)\w*['\"]?\s*[=:]\s*['\"]?|://[^/\s:@]+:)"
    r"[^\s'\",;@]+",
    re.IGNORECASE,
)
_TOKEN = expression(r"\b(?:hf_|sk-|gh[pousr]_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{12,}")

_ESCAPES = expression(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
# What each line of a rank's output may begin with: [rank0]:, [default0]:, [1,0]<stderr>:, (Worker pid=12), 0:.
_RANK = expression(r"^(?:\[(?:rank|default)\d+\]:|\[\d+,\d+\]<std\w+>:|\(\w+ pid=\d+[^)]*\)|\d+:) ?")


def _clean_lines(text: str) -> list[str]:
    """Lines without colours, ranks, blanks at the ends and what progress bars wrote over."""
    lines = (line.rpartition("\r")[2] for line in _ESCAPES.sub("", text.replace("\r\n", "\n")).split("\n"))
    return [line for raw in lines if (line := _RANK.sub("", raw[:_LONGEST_READ]).rstrip())]


# What is written after a program has failed, by those who clean up or waited for it.
_AFTERMATH = expression(
    r"wandb|mlflow|neptune|resource_tracker|leaked|ProcessGroupNCCL|destroy_process_group|torch[./]distributed|elastic"
    r"|Killing subprocess|closing signal|exits with return code|srun|slurmstepd|mpirun|mpiexec|prterun|PMIX|ORTE|UCX"
    r"|nsys|Nsight|HYDRA_FULL_ERROR|Exception ignored|core dumped|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA"
    r"|warnings\.warn|Warning:|NCCL (?:WARN|INFO)|Run history|Sync(?:ed|ing)",
    re.IGNORECASE,
)
# What only a program that runs on writes.
_GOING = expression(
    r"\b(?:epoch|step|iter(?:ation)?|batch|loss|acc(?:uracy)?|throughput|samples/s|tokens/s)\b.{0,20}\d"
    r"|\d(?:it/s|s/it)|\d%\||\b(?:INFO|DEBUG)\b|^\s*(?:done|finished|completed|success\w*|elapsed|total time)\b"
    r"|\b(?:retrying|falling back|fallback|continuing|skipping|ignored|ignoring|recovered|restarting|disabl\w+"
    r"|using (?:\w+ )*(?:defaults?|instead))\b",
    re.IGNORECASE,
)


# What a program writes last that came to its end, whatever it wrote to the other stream, and when.
_OVER = expression(
    r"^\W*(?:all )?(?:done|finished|completed|success\w*|bye)(?: successfully)?\W*$|\b(?:PASS(?:ED)?|OK)\W*$"
    r"|^\s*(?:total|elapsed|wall|run) ?time\b",
    re.IGNORECASE,
)


def _is_going(line: str) -> bool:
    return bool(_GOING.search(line)) and not _AFTERMATH.search(line)


def _runs_on(lines: Sequence[str]) -> bool:
    """Whether the program goes on after an error: it writes what only a program that runs does."""
    return any(map(_is_going, lines))


def _that_count(marks: Sequence[_Mark], exit_code: int | None) -> Sequence[_Mark]:
    """The marks of the end. An error that may have been caught is its cause where the exit status, or who started the
    program, says that it failed; beside any other end it is none."""
    unclear = [range(mark.first, mark.last + 1) for mark in marks if mark.ended == UNCLEAR]
    sure = [mark for mark in marks if mark.ended != UNCLEAR and not any(mark.last in rows for rows in unclear)]
    if any(mark.weight > _Weight.LAUNCHER for mark in sure):
        return sure
    is_known = bool(sure) or exit_code is not None
    return [mark._replace(ended=FAILED) if is_known and mark.ended == UNCLEAR else mark for mark in marks]


def _told(marks: Sequence[_Mark], lines: Sequence[str]) -> LastWords:
    """Of all marks the one that tells the cause: the heaviest; of several Python errors the last, else the first."""
    most = max(mark.weight for mark in marks)
    heaviest = [mark for mark in marks if mark.weight == most]
    chosen = next((mark for mark in reversed(heaviest) if mark.kept), heaviest[0])
    is_stopped = any(mark.ended == INTERRUPTED for mark in marks)
    ended = INTERRUPTED if is_stopped and chosen.weight < _Weight.ERROR else chosen.ended
    rest = lines[chosen.last + 1 :]
    kept = chosen.kept or tuple(lines[chosen.first : chosen.last + 1])
    where = chosen.where or _place(rest)
    return LastWords(ended, _short(chosen.words), where, tuple(masked(line)[:TWO_LINES] for line in kept[-MOST_LINES:]))


def _short(words: str) -> str:
    words = masked(" ".join(words.split()))
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 3]}..."


def _marks(lines: Sequence[str]) -> list[_Mark]:
    return [*_tracebacks(lines), *_lines_that_tell(lines), *_refusals(lines), *_last_line(lines)]


# --- Python
_TRACEBACK = expression(r"^(?!.*Original)[\s│╭─+|]*Traceback \(most recent call last\)")
_NOT_THE_END = expression(
    r"^(?:Exception ignored in|Exception in thread|Exception in callback|Process \S+:|Task exception was never"
    r"|--- Logging error ---|Future exception)"
)
_FRAME = expression(r"^\s*(?:│\s*)?(?:❱\s*)?(?:File \"([^\"]+)\", line (\d+)|(\S+\.py):(\d+) in )")
_EXCEPTION = expression(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$")
_NESTED = expression(r"^[A-Za-z_][\w.]*: Caught \w+ in .*worker|^-- Process \d+ terminated with")
# What a launcher raises because a process of its failed: that one's error says why.
_OF_LAUNCHER = expression(
    r"(?:^|\.)(?:ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException)$"
)
_STOPPED = expression(r"(?:^|\.)(?:KeyboardInterrupt|SignalException)$")
# Where a traceback of an error that nobody catches begins: at the program's outermost frame, or a process's. Hydra cuts
# its own frames off.
_FUNCTION = expression(r"^\s*File \".*\", line \d+, in (\S+)")
_OUTERMOST = expression(r"^(?:<module>|_run_module_as_main|_run_code|_bootstrap|_wrap)$")
_CUT_BY_HYDRA = expression(r"^Error executing job with overrides")
_LIBRARY_PLACE = expression(r"^<|site-packages|dist-packages")


def _tracebacks(lines: Sequence[str]) -> Iterator[_Mark]:
    for head, row, end, times in _raised(lines):
        name = (_EXCEPTION.match(lines[row]) or ["", ""])[1]
        words = _innermost(lines[row], lines[row + 1 : end])
        frames = _frames(lines[head:end])
        own = [frame for frame in frames if is_user_python(frame[0]) and not _LIBRARY_PLACE.search(frame[0])]
        is_caught = _may_be_caught(lines, head, times)
        yield _Mark(
            _Weight.LAUNCHER if _OF_LAUNCHER.search(name) else _Weight.ERROR,
            head,
            row,
            words,
            f"{PurePosixPath(own[-1][0]).name}:{own[-1][1]}" if own else None,
            INTERRUPTED if _STOPPED.search(name) else UNCLEAR if is_caught else FAILED,
            (*(line for frame in own[-2:] for line in frame[2]), words),
        )


def _raised(lines: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Of each traceback of an error that may have ended the program: the lines of its head, of the error and behind its
    end, and how many tracebacks begin alike."""
    heads = [row for row, line in enumerate(lines) if "Traceback" in line and _TRACEBACK.match(line)]
    firsts = Counter(lines[head + 1] for head in heads if head + 1 < len(lines))
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=False):
        if head and _NOT_THE_END.match(lines[head - 1]):
            continue
        row = next((row for row in range(head + 1, end) if _begins_an_error(lines[row])), None)
        if row is None:  # cut
            continue
        if (_EXCEPTION.match(lines[row]) or ["", ""])[1] != "SystemExit":
            yield head, row, end, firsts[lines[head + 1]]


def _innermost(words: str, after: Sequence[str]) -> str:
    """The error that another process raised, where this one only tells of it."""
    if not _NESTED.match(words):
        return words
    inner = [line for line in after if _EXCEPTION.match(line) and "Error" in line.split(":")[0]]
    return inner[-1] if inner else words


def _may_be_caught(lines: Sequence[str], head: int, times: int) -> bool:
    """Whether the program may have gone on: a traceback that does not begin at its outermost frame, or stands there
    several ``times``."""
    first = _FUNCTION.match(lines[head + 1])
    is_inner = bool(first and not _OUTERMOST.match(first[1]))
    return (is_inner or times > 1) and not any(map(_CUT_BY_HYDRA.match, lines[:head]))


def _begins_an_error(line: str) -> bool:
    return not line[0].isspace() and line[0] not in "│╭╰+|" and bool(_EXCEPTION.match(line))


def _frames(lines: Sequence[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """File, line and the lines that show them, the innermost last."""
    shown_frames = []
    for row, line in enumerate(lines):
        if frame := _FRAME.match(line):
            source = lines[row + 1 : row + 2] if frame[1] else []
            shown = (line, *(text for text in source if text[:1].isspace() and not _FRAME.match(text)))
            shown_frames.append((frame[1] or frame[3], frame[2] or frame[4], shown))
    return shown_frames


# --- lines that are written by whoever is about to end
#: Lines that tell of an end, by how much they know and how the program then ended. The group is what is said.
_TELLING: tuple[tuple[_Weight, str, tuple[str, ...]], ...] = (
    (
        _Weight.ERROR,
        FAILED,
        (
            r"^\S*python[\d.]*(?:\.exe)?: ((?:can't open file|No module named|Error while finding).*)",
            r"^((?:Syntax|Indentation|Tab)Error: .*)",
            r"(Fatal Python error: .*)",
            r"^((?:terminate called|libc\+\+abi: terminating).*)",
            r"^(.*: Assertion [`'].*' failed.*)",
            r"^((?:free|malloc|realloc|munmap_chunk)\(\): .*|double free or .*|corrupted .*|\*\*\* stack smash.*)",
            r"(Fortran runtime error: .*|forrtl: severe .*|^ *ERROR STOP\b.*|\bF\w\w-F-.*)",
            r"(Accelerator Fatal Error: .*)",
            r"^ERROR: (?:LoadError: )?(\w*(?:Error|Exception)\b.*|.* on line \d+.*)",  # Julia
            r"^(thread '.*' panicked at .*|panic: .*)",
            r"((?:error while loading shared libraries|symbol lookup error): .*)",
            r"((?:Fatal error in|Abort\(\d+\) on node) .*)",  # MPICH
            r"^\[\S+:\d+:\d+:\d+\]\s+\S+:\d+\s+(.*returned -1: .*|.*[Aa]ssertion .*)",  # UCX
            r"((?:[Oo]ut of memory: Killed|oom-kill event|Out Of Memory$).*)",
            r"^(?:/usr/bin/env|(?:\S*/)?\w*sh|\S+: line \d+): (.*(?:not found|No such file .*|Permission denied))$",
        ),
    ),
    (
        _Weight.SIGNAL,
        INTERRUPTED,
        (
            r"(slurmstepd: error: .*CANCELLED.*|forrtl: error \(69\).*|^mpirun: killing job.*)",
            r"^(Aborted!|\^C|Terminated)$",
        ),
    ),
    (
        _Weight.SIGNAL,
        FAILED,
        (
            r"(Caught signal \d+ .*|Program received signal SIG.*|signal \(\d+[.\d]*\): .*)",
            r"\] (Signal: .*)",  # Open MPI
            r"^(?:\S+: line \d+:\s+\d+ )?((?:Segmentation fault|Aborted|Bus error|Illegal instruction|Killed)"
            r"(?: \(core dumped\))?)(?:\s{2,}.*)?$",
            r"^(Floating point exception.*)",
            r"(MPI_ABORT was invoked on rank .*)",
        ),
    ),
    (
        _Weight.LAUNCHER,
        FAILED,
        (
            r"((?:mpirun|mpiexec|prterun) (?:noticed|detected) that .*|BAD TERMINATION OF .*)",
            r"^((?:mpirun|mpiexec|prterun) was unable to .*|There are not enough slots available .*)",
            r"ORTE_(ERROR)_LOG: .*show_help",  # what it wanted to tell is lost
            r"(Primary job +terminated normally, but .*)",
            r"^(srun: error: .*)",
            r"(exits with return code = -?[1-9]\d*|failed \(exitcode: -?[1-9]\d*\).*)",
        ),
    ),
)
_PATTERNS = [(weight, ended, expression(text)) for weight, ended, texts in _TELLING for text in texts]
# A word of each of them: few lines of a log have one, and to look for words is quick.
_TROUBLE = (
    *("error", "abort", "terminat", "fatal", "assert", "free", "corrupt", "smash", "alloc", "munmap", "fortran", "-f-"),
    *(
        "stop",
        "panic",
        "return",
        "signal",
        "oom",
        "segment",
        "bus ",
        "illegal",
        "kill",
        "floating",
        "noticed",
        "detected",
    ),
    *("no such", "not found", "denied", "cancel", "^c", "exit", "unable", "slots", "memory", "open file", "no module"),
)
_EXECUTABLE = expression(r"^\s*Executable: (\S+)")
_BLOCK = 4  # lines of what mpirun says after the first
_WHAT = expression(r"^\s*what\(\):\s*(.*)")


def _lines_that_tell(lines: Sequence[str]) -> Iterator[_Mark]:
    for row, line in enumerate(lines):
        lower = line.lower()
        for weight, ended, pattern in _PATTERNS if any(word in lower for word in _TROUBLE) else ():
            if (match := pattern.search(line)) is None:
                continue
            words, last = match[1].strip(), row
            if words == "ERROR":
                said = [text_line for text_line in lines[max(row - 1, 0) : row] if not _AFTERMATH.search(text_line)]
                words = said[0] if said else "mpirun reports an error, whose text is lost"
            for of in filter(None, map(_EXECUTABLE.match, lines[row + 1 : row + 1 + _BLOCK])):
                words, last = f"mpirun was unable to launch {of[1]}: no such executable", row + _BLOCK
            if row + 1 < len(lines) and (what := _WHAT.match(lines[row + 1])):
                words, last = f"{what[1]} ({words.rpartition('instance of ')[2].strip(chr(39))})", row + 1
            yield _Mark(weight, row, last, words, _place([*lines[max(row - 3, 0) : row], words]), ended)
            break


# --- a command line that was refused; tests
_USAGE = expression(r"^usage:? ", re.IGNORECASE)
_REFUSED = expression(r"^(?:[\w./-]+: )?(error: .*)$", re.IGNORECASE)
_TESTS = expression(r"^=+ (.*\b\d+ (?:failed|error)s?\b.*) =+$")


def _refusals(lines: Sequence[str]) -> Iterator[_Mark]:
    if lines and (refused := _REFUSED.match(lines[-1])) and any(map(_USAGE.match, lines)):
        yield _Mark(_Weight.ERROR, len(lines) - 1, len(lines) - 1, refused[1])
    elif lines and _USAGE.match(lines[0]) and all(line[0].isspace() or line[0] == "-" for line in lines[1:]):
        yield _Mark(_Weight.SIGNAL, 0, len(lines) - 1, lines[0])  # how it is called is all that it said
    for row, line in enumerate(lines):
        # Of tests of which some passed, the run is whole.
        if (tests := _TESTS.match(line)) and " passed" not in line:
            yield _Mark(_Weight.ERROR, row, row, f"pytest: {tests[1]}")


# --- the very last line
# What checks of CUDA calls write before they leave, each in its own words.
_CHECKED = expression(
    r"\b(?:cuda|hip|nccl|cublas|cudnn|gpu\s?assert)\w*[ _]?(?:runtime |driver |API )?(?:error|failure|failed|assert)\b"
    r"|\bGPUassert\b|\bcuda(?:Error|Get)\w+|^(?:fatal|error)\b ?:|\b(?:no CUDA-capable device|out of memory)\b",
    re.IGNORECASE,
)


# What a program writes of its own that lacks something it needs: it may end for that, or do without.
_LACKS = expression(
    r"\b(?:(?:could|can)(?: ?not|n't)|can't|unable to|failed to) (?:open|read|load|find|create|connect)\b"
    r"|: (?:No such file or directory|Permission denied|Input/output error|No space left on device|Connection refused"
    r"|Address already in use|Cannot allocate memory|Invalid argument|Broken pipe)$"
    r"|\[E\] ",  # TensorRT's logger
    re.IGNORECASE,
)


# The file that it lacks: what ends in a suffix or has a folder.
_FILE = expression(r"""(?<![\w./~-])((?:[\w.~+-]*/)+[\w.+-]*\w|[\w+-][\w.+-]*\.[A-Za-z]\w*)""")


def lacked_file(words: str) -> str:
    """The file that a program says it could not open, read or find; empty where it names none."""
    return files[0] if _LACKS.search(words) and (files := _FILE.findall(words)[-1:]) else ""


# A library's log, which tells its own file: ``cuda_driver.cc:266] failed call to cuInit``. Who logs goes on.
_LOGGED = expression(r"\.\w+:\d+\]")


def _last_line(lines: Sequence[str]) -> Iterator[_Mark]:
    row = next((row for row in reversed(range(len(lines))) if not _AFTERMATH.search(lines[row])), None)
    if row is None or _LOGGED.search(lines[row]) or _is_going(lines[row]):
        return
    ended = FAILED if _CHECKED.search(lines[row]) else UNCLEAR if _LACKS.search(lines[row]) else None
    if ended is not None:
        yield _Mark(_Weight.SIGNAL, row, row, lines[row].strip(), _place([lines[row]]), ended)


# --- backtraces
_OF_UCX, _FRAME_OF_UCX = expression(r"^==== backtrace \(tid: *(\d+)\) ===="), expression(r"^ *\d+ 0x\w+ (\w+)\(")
_FRAME_OF_OPEN_MPI = expression(r"^\[[^\]\s]+?:(\d+)\] \[ *\d+\] \S*\((\w+)\+0x")


def failed_in(text: str) -> dict[int, str]:
    """The call of MPI in which a rank failed, by the backtrace that UCX (by thread id) or Open MPI (by process id) then
    prints, the innermost frame first: ``{771889: "MPI_Recv"}``."""
    failing_call: dict[int, str] = {}
    thread: str | None = None
    for line in _clean_lines(text) if "MPI_" in text else ():
        if begins := _OF_UCX.match(line):
            thread = begins[1]
        elif line.startswith("===="):
            thread = None
        elif frame := _FRAME_OF_OPEN_MPI.match(line):
            _add_call(failing_call, frame[1], frame[2])
        elif thread is not None and (frame := _FRAME_OF_UCX.match(line)):
            _add_call(failing_call, thread, frame[1])
    return failing_call


def _add_call(found: dict[int, str], number: str, function: str) -> None:
    if is_mpi(function):
        found.setdefault(int(number), function.removeprefix("P"))


# --- places
_SOURCE = r"[\w./~+-]+\.(?:c|cc|cpp|cxx|cu|cuh|hpp|hh|h|f|for|f90|F90|f95|f03|jl|rs|py|go)\b"
_PLACE = expression(
    rf"(?<![\w./])(?P<file>{_SOURCE})(?::|\(|\"?,? line | )(?P<line>\d+)\b(?!\])"
    rf"|\b[Ll]ine:? (?P<of>\d+) of file (?P<source>{_SOURCE})"
)
_FILE_ABOVE, _LINE_BELOW = expression(rf"^ *File: ({_SOURCE})$"), expression(r"^ *Line: (\d+)$")
_BUILT_ELSEWHERE = expression(
    r"^/(?:usr|build|opt|var|tmp/build|dvs|workspace)|/(?:jenkins|build-result|rustc)/|^\.\./\.\./"
)


def _place(lines: Sequence[str]) -> str | None:
    """``heat.f90:81``: of the places that the lines name the innermost one in the program, not in a library."""
    matches = [match for line in lines for match in _PLACE.finditer(line)]
    locations = [(match["file"] or match["source"], match["line"] or match["of"]) for match in matches]
    files, numbers = (
        [match[1] for line in lines if (match := pattern.match(line))] for pattern in (_FILE_ABOVE, _LINE_BELOW)
    )
    locations += zip(files, numbers, strict=False)  # as the OpenACC runtime of nvc has it
    own = [location for location in locations if not _BUILT_ELSEWHERE.search(location[0])]
    return f"{PurePosixPath(own[0][0]).name}:{own[0][1]}" if own else None
