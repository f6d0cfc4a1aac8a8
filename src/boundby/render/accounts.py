"""The accounts of the terminal view: for each device (or thread) the sentence, the bar and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from boundby.model import units
from boundby.model.causes import BUSY_CAUSES, MEANING, OTHER
from boundby.render import sentences
from boundby.render.bars import FOLD_BELOW, Segment, cells, segments
from boundby.render.face import DIM, STRONG, Face, pad
from boundby.results.report import Report, Verdict

IN_FULL = 2  # more subjects than this get one line each
MAX_THREADS = 8
_CONFIDENCE = ("low", "medium", "high")
_BUSY = {cause.key for cause in BUSY_CAUSES}


@dataclass(frozen=True)
class Subject:
    """What an account is of."""

    name: str
    whole_ns: int
    time: Mapping[str, int]
    verdict: Verdict
    utilization: float | None  # of the device, for the brace below its bar
    note: str = ""


def device_lines(report: Report, face: Face) -> list[list[Text]]:
    """One section a device, or one section for them all where they are many."""
    subjects = [
        Subject(
            name=sentences.gpu(device),
            whole_ns=device.window_ns,
            time=device.time,
            verdict=device.verdict,
            utilization=device.gpu_utilization,
        )
        for device in report.devices
    ]
    return _sections(subjects, face)


def thread_lines(report: Report, face: Face) -> list[list[Text]]:
    """The host's account, for traces without GPU work."""
    if not report.threads:
        if report.devices:
            return []
        text = "Nothing to account for: the report holds no GPU work and no thread with NVTX ranges."
        return [face.wrapped(text, style=STRONG)]
    busiest = sorted(report.threads, key=lambda thread: (-thread.total_ns, thread.pid, thread.tid))
    subjects = [
        Subject(
            name=sentences.thread(thread),
            whole_ns=thread.total_ns,
            time=thread.time,
            verdict=thread.verdict,
            utilization=None,
            note=sentences.blocked_on(thread.blocked_on),
        )
        for thread in busiest[:MAX_THREADS]
    ]
    sections = _sections(subjects, face)
    if len(busiest) > MAX_THREADS:
        sections[-1] += face.wrapped(f"{len(busiest) - MAX_THREADS} more threads are not shown.", style=DIM)
    return sections


def _sections(subjects: Sequence[Subject], face: Face) -> list[list[Text]]:
    if len(subjects) <= IN_FULL:
        return [_in_full(subject, face) for subject in subjects]
    return [_summary(subjects, face), _side_by_side(subjects, face)]


def _in_full(subject: Subject, face: Face) -> list[Text]:
    verdict = subject.verdict
    lines = _sentence(sentences.headline(verdict, face.fit(subject.name, face.width // 2)), face)
    for text in (sentences.because(verdict), sentences.outlook(verdict, subject.whole_ns)):
        lines += face.wrapped(text) if text else []
    lines += [Text(), *_account(subject, face)]
    doubts = (sentences.confidence(verdict), sentences.next_best(verdict, subject.whole_ns), subject.note)
    return lines + face.wrapped(" ".join(filter(None, doubts)), style=DIM)


def _sentence(headline: sentences.Headline, face: Face) -> list[Text]:
    # The coloured badge ends the sentence as a full stop would.
    after = "" if face.color and headline.after == "." else headline.after
    line = face.line((headline.before, STRONG), face.badge(headline.stressed, headline.bound), (after, STRONG))
    return [line] if line.cell_len <= face.width else face.wrapped(str(headline), style=STRONG)


def _account(subject: Subject, face: Face) -> list[Text]:
    parts = segments(subject.time, fold_below=FOLD_BELOW)
    if not parts:
        return [face.line(("(no time in the window)", DIM))]
    lines = [face.bar(parts, face.width, full=True)]
    if subject.utilization is not None:
        lines.append(_braces(parts, subject.utilization, face))
    return lines + _legend(parts, face)


def _braces(parts: Sequence[Segment], utilization: float, face: Face) -> Text:
    """Under the bar: how much of it the GPU works, how much it idles."""
    lengths = cells(parts, face.width, at_least_one=True)
    busy = sum(length for part, length in zip(parts, lengths, strict=True) if part.cause in _BUSY)
    working, waiting = f"GPU busy {units.percent(utilization)}", f"idle {units.percent(1 - utilization)}"
    if busy < len(working) + 4:  # its label moves next door
        waiting = f"idle {units.percent(1 - utilization)}, GPU busy {units.percent(utilization)}"
    elif face.width - busy < len(waiting) + 4:
        working = f"{working}, {waiting}"
    return face.line((face.brace(working, busy) + face.brace(waiting, face.width - busy), DIM))


def _legend(parts: Sequence[Segment], face: Face) -> list[Text]:
    return _flow([_entry(part, face, percent=True) for part in parts], face)


def _entry(part: Segment, face: Face, *, percent: bool = False) -> Text:
    share = f" {units.percent(part.fraction)}" if percent else ""
    return face.line(face.swatch(part.cause, part.letter), f" {part.label}{share}")


def _flow(entries: Sequence[Text], face: Face) -> list[Text]:
    """Entries side by side, on as many lines as they take."""
    lines: list[Text] = []
    current = Text(no_wrap=True)
    for entry in entries:
        if current and current.cell_len + 3 + entry.cell_len > face.width:
            lines.append(current)
            current = Text(no_wrap=True)
        current = Text("   ").join([current, entry]) if current else entry
    return [*lines, current]


def _summary(subjects: Sequence[Subject], face: Face) -> list[Text]:
    """One sentence for all subjects that share a verdict."""
    groups: dict[tuple[str, tuple[str, str] | None], list[Subject]] = {}
    for subject in subjects:
        groups.setdefault((subject.verdict.bound, subject.verdict.mixed_of), []).append(subject)
    lines: list[Text] = []
    for members in groups.values():
        everybody = len(members) == len(subjects)
        names = listed([member.name for member in members], everybody)
        sentence = _sentence(sentences.headline(members[0].verdict, names, plural=len(members) > 1), face)
        confidence = min((member.verdict.confidence for member in members), key=_CONFIDENCE.index)
        sure = Text(f"  confidence {confidence}", style=DIM)
        if sentence[-1].cell_len + sure.cell_len > face.width:
            lines += [*sentence, sure]
        else:
            lines += [*sentence[:-1], Text.assemble(sentence[-1], sure)]
    return lines


def listed(names: Sequence[str], everybody: bool) -> str:
    """``GPUs 0-2 and 5``, ``All 8 GPUs``, ``3 threads``."""
    if len(names) == 1:
        return names[0]
    if any(not name.startswith("GPU ") for name in names):
        return f"{'All ' if everybody else ''}{len(names)} threads"
    if everybody:
        return f"All {len(names)} GPUs"
    runs: list[list[int]] = []
    for number in sorted(int(name.partition(" ")[2]) for name in names):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"GPUs {', '.join(ranges)}"


def _side_by_side(subjects: Sequence[Subject], face: Face) -> list[Text]:
    """One bar a subject, all of one width, so that they compare."""
    name = min(max(len(subject.name) for subject in subjects), face.width // 3)
    words = [sentences.bound_word(subject.verdict) for subject in subjects]
    word = max(len(text) for text in words)
    word = max(word, len("BOUND BY"))
    bar = max(face.width - name - word - 13, 10)
    lines = [face.heading(face.line(" " * (name + 2), pad("ACCOUNT", bar + 2), pad("BOUND BY", word), "   SAVES"))]
    shown: dict[str, Segment] = {}
    for subject, text in zip(subjects, words, strict=True):
        parts = segments(subject.time, fold_below=FOLD_BELOW)
        shown.update((part.cause, part) for part in parts)
        saving = subject.verdict.saving_ns
        saves = units.percent(saving / subject.whole_ns) if saving is not None and subject.whole_ns else ""
        label = pad(face.fit(subject.name, name), name + 2)
        lines.append(face.line(label, pad(face.bar(parts, bar), bar + 2), pad(text, word), pad(saves, 8, "right")))
    keys = [cause for cause in (*MEANING, OTHER.key) if cause in shown]
    return lines + _flow([_entry(shown[key], face) for key in keys], face)
