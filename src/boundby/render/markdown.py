"""Report -> GitHub-flavoured Markdown, for a comment on a pull request: the sentence first, details folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from boundby.model import units
from boundby.model.causes import HOST_MEANING, LETTER, MEANING
from boundby.render import findings, sentences
from boundby.render.bars import FOLD_BELOW, letters, segments
from boundby.render.missing import not_captured
from boundby.render.selection import select
from boundby.render.text import clean, region_name, shorten
from boundby.results.report import Check, Report, Verdict

BAR_WIDTH = 60
SMALL_BAR = 16
_INDENT = "&nbsp;" * 4  # plain spaces are dropped at the start of a cell
_BLOCK = re.compile(r"(?:#{1,6}|[+-]|\d{1,9}[.)])(?:\s|$)|[=-]+$")  # at the start: a heading or a list
# GitHub makes links and notifications of @name, #1 and addresses even when they are escaped; a tag between stops it.
_SPECIAL = re.compile(r"[@#](?=\w)|://|www\.|[\\`*_\[\]~$&<>|]")
_REPLACED = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "@": "<span>@</span>",
    "#": "<span>#</span>",
    "://": "<span>:</span>//",
    "www.": "www<span>.</span>",
}
LONGEST_NAME = 100
OPEN_ROWS = 12  # a longer table of regions is folded away
OPEN_FINDINGS = 5  # the best; the others are folded away
OPEN_DEVICES = 4  # more are told in one table, and one by one in a fold
# GitHub takes comments of up to 65,536 characters; one device's account and checks take some 1,700.
MOST_DEVICES = 12


def render(report: Report, *, min_share: float | None = None) -> str:
    """The report as Markdown, ended by a line break."""
    sections = [_title(report), *_accounts(report), _regions(report, min_share), _findings(report)]
    sections += [_what_if(report), *_checklists(report), _not_captured(report), _warnings(report)]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: str) -> str:
    """Text that Markdown, HTML and GitHub leave as it is, on one line."""
    text = clean(text).strip()
    first = f"&#{ord(text[0])};" if _BLOCK.match(text) else ""
    return first + _SPECIAL.sub(lambda found: _REPLACED.get(found[0], f"\\{found[0]}"), text[1:] if first else text)


def code(text: str) -> str:
    """A name in code style. Entities where a code span could not hold it inside a table."""
    text = shorten(clean(text), LONGEST_NAME)
    if not text.strip():
        return ""
    if any(char in text for char in "`|\\"):
        return f"<code>{''.join(char if char.isalnum() or char == ' ' else f'&#{ord(char)};' for char in text)}</code>"
    return f"`{text}`"


def _title(report: Report) -> str:
    facts = " · ".join(escape(fact) for fact in sentences.circumstances(report))
    return f"**{code(sentences.what_ran(report))}**  \n{facts}"


def _accounts(report: Report) -> Iterable[str]:
    folded = len(report.devices) > 2
    told = [
        _account(sentences.gpu(device), device.verdict, device.time, device.window_ns, folded=folded)
        for device in report.devices[:MOST_DEVICES]
    ]
    if len(report.devices) > OPEN_DEVICES:
        yield _devices(report)
        title = "GPU by GPU" if len(told) == len(report.devices) else f"GPU by GPU, the first {len(told)}"
        yield _folded(title, "\n\n".join(told))
    else:
        yield from told
    for thread in report.threads:
        note = sentences.blocked_on(thread.blocked_on)
        yield _account(sentences.thread(thread), thread.verdict, thread.time, thread.total_ns, note, words=HOST_MEANING)
    if not report.devices and not report.threads:
        yield "Nothing to account for: the report holds no GPU work and no thread with NVTX ranges."


def _devices(report: Report) -> str:
    """All devices in one table, below what most of them are bound by."""
    bounds = [device.verdict.bound for device in report.devices]
    most = max(sorted(set(bounds)), key=bounds.count)
    same = bounds.count(most)
    number = f"{same} of {len(bounds)} GPUs" if same < len(bounds) else f"All {same} GPUs"
    example = next(device.verdict for device in report.devices if device.verdict.bound == most)
    rows = [
        (
            escape(sentences.gpu(device)),
            _bound(device.verdict),
            f"`{letters(segments(device.time), SMALL_BAR)}`",
            units.percent(device.gpu_utilization),
            units.duration(device.window_ns),
            units.duration(device.verdict.saving_ns) if device.verdict.saving_ns is not None else "",
        )
        for device in report.devices
    ]
    heads = ("GPU", "bound by", "account", "busy", "window", "saves")
    return f"### {escape(str(sentences.headline(example, number, plural=True)))}\n\n{_table(heads, 'lllrrr', rows)}"


def _account(
    subject: str,
    verdict: Verdict,
    time: Mapping[str, int],
    whole_ns: int,
    note: str = "",
    *,
    folded: bool = False,
    words: Mapping[str, str] = MEANING,
) -> str:
    sentence = sentences.headline(verdict, subject)
    lines = [f"### {escape(str(sentence))}", ""]
    told = [sentences.because(verdict), sentences.outlook(verdict, whole_ns), sentences.next_best(verdict, whole_ns)]
    told += [sentences.confidence(verdict), note]
    lines += [" ".join(escape(text) for text in told if text), ""]
    parts = segments(time, fold_below=FOLD_BELOW)
    if not parts:
        return "\n".join([*lines, "No time in the window."])
    lines += ["```text", letters(parts, BAR_WIDTH, at_least_one=True), "```", ""]
    rows = [
        (
            f"`{part.letter}`\N{NO-BREAK SPACE}{part.label}",
            units.percent(part.fraction),
            units.duration(part.ns),
            words.get(part.cause, ""),
        )
        for part in parts
    ]
    table = _table(("cause", "share", "time", "meaning"), "lrrl", rows)
    return "\n".join([*lines, _folded("Account", table) if folded else table])


def _regions(report: Report, min_share: float | None) -> str:
    selection = select(report, min_share)
    rows = []
    for row in selection.rows:
        region = row.region
        saving = region.verdict.saving_ns
        bar = letters(segments(region.time), SMALL_BAR)
        rows.append(
            (
                f"{_INDENT * row.depth}{code(row.label)}",
                units.count(region.instances),
                sentences.each(region),
                units.percent(region.share),
                f"`{bar}`" if bar else "",
                _bound(region.verdict),
                units.duration(saving) if saving is not None else "",
            )
        )
    if selection.outside is not None:
        bar = letters(segments(selection.outside.time_exclusive), SMALL_BAR)
        rows.append(("(no range)", "", "", units.percent(selection.outside_share), f"`{bar}`", "", ""))
    if not rows:
        return ""
    heads = ("region", "inst", "time/inst", "share", "account", "bound by", "saves")
    table = _table(heads, "lrrrllr", rows)
    text = f"#### Regions\n\n{_folded(f'{len(rows)} regions', table) if len(rows) > OPEN_ROWS else table}"
    why = [
        f"- {code(region_name(row.region.path))}: {escape(row.region.verdict.because)}"
        for row in selection.rows
        if row.region.verdict.because
    ]
    if why:  # a column of sentences would leave the others no room
        text += "\n\n" + _folded("Why each is bound so", "\n".join(why))
    if selection.left_out:
        below = units.percent(selection.min_share)
        text += f"\n\n{selection.left_out} more below {below}; `--min-share 0` shows all."
    if any(row.region.found for row in selection.rows):
        text += f"\n\n{escape(sentences.FOUND)}"
    return text


def _bound(verdict: Verdict) -> str:
    letter = f"`{LETTER[verdict.bound]}`\N{NO-BREAK SPACE}" if verdict.bound in LETTER else ""
    sure = "?" if verdict.confidence == "low" else ""
    return f"{letter}{escape(sentences.bound_word(verdict))}{sure}"


def _findings(report: Report) -> str:
    healthy = findings.nothing_found(report)
    if not report.findings:
        return escape(healthy)
    shown = findings.shown(report)
    lines = [*([escape(healthy), ""] if healthy else []), f"#### {findings.heading(report)}", ""]
    for rank, finding in enumerate(shown, 1):
        if rank == OPEN_FINDINGS + 1:
            lines += ["", f"<details><summary>{len(shown) - OPEN_FINDINGS} more</summary>", ""]
        where = f"{code(region_name(finding.region))}: " if finding.region else ""
        saving = findings.saves(finding)
        saves = f" Saves {saving}." if saving else ""
        title = escape(finding.title).rstrip(".")
        lines.append(f"{rank}. **{escape(finding.severity)}** {where}{title}.{saves}")
        indent = " " * len(f"{rank}. ")
        lines += [f"{indent}- {escape(advice)}" for advice in finding.advice]
        worst = findings.worst(finding.examples)
        lines += [f"{indent}- {escape(worst)}"] if worst else []
        lines.append(f"{indent}- {code(f'boundby explain {finding.rule}')}")
    if len(shown) > OPEN_FINDINGS:
        lines += ["", "</details>"]
    more = findings.left_out(report)
    return "\n".join([*lines, *(["", escape(more)] if more else [])])


def _what_if(report: Report) -> str:
    rows = [
        (code(label), units.duration(item.predicted_ns), _change(item.baseline_ns, item.predicted_ns))
        for label, item in sentences.notable_scenarios(report)
    ]
    return f"#### What if\n\n{_table(('scenario', 'predicted', 'change'), 'lrr', rows)}" if rows else ""


def _change(baseline_ns: int, predicted_ns: int) -> str:
    return sentences.change(baseline_ns - predicted_ns, baseline_ns)


def _checklists(report: Report) -> Iterable[str]:
    for device in report.devices[:MOST_DEVICES]:
        if device.checklist:
            title = "Measured" if len(report.devices) == 1 else f"Measured on {sentences.gpu(device)}"
            yield _folded(title, _table(("check", "value", "reading", "points to"), "llll", _checks(device.checklist)))


def _checks(checks: Sequence[Check]) -> list[tuple[str, ...]]:
    return [
        (
            escape(check.name),
            escape(check.value),
            escape(check.reading),
            escape(sentences.bound_phrase(check.points_to)) if check.points_to else "",
        )
        for check in checks
    ]


def _not_captured(report: Report) -> str:
    rows = [(escape(gap.kind), escape(gap.cost), code(gap.flag)) for gap in not_captured(report)]
    table = _table(("not captured", "so it cannot be told", "nsys profile"), "lll", rows) if rows else ""
    unchecked = findings.could_not_check(report.not_checked, every=report.analysis.show_all)
    skipped = "\n".join(f"- Could not check {code(rules)}, because {escape(reason)}" for reason, rules in unchecked)
    body = "\n\n".join(filter(None, (table, skipped)))
    return _folded("Not captured", body) if body else ""


def _warnings(report: Report) -> str:
    if not report.trace.warnings:
        return ""
    lines = [f"> {escape(warning.message)} ({code(warning.code)})  " for warning in report.trace.warnings]
    return "\n".join(["> [!WARNING]", *lines])


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _unbroken(figure: str) -> str:
    """A number and its unit on one line."""
    return figure.replace(" ", "\N{NO-BREAK SPACE}")


def _table(heads: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    rows = [[_unbroken(cell) if side == "r" else cell for cell, side in zip(row, align, strict=True)] for row in rows]
    marks = ["---:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows))
