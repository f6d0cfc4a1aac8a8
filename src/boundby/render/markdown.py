"""Report -> GitHub-flavoured Markdown, for a comment on a pull request: the sentence first, details folded away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boundby.document import findings, sentences, view
from boundby.document.bars import letters, segments
from boundby.document.missing import captured_by, not_captured
from boundby.document.text import clean, region_name, shorten
from boundby.document.view import Account
from boundby.model import units
from boundby.model.causes import LETTER
from boundby.model.expressions import expression
from boundby.results.report import Report

BAR_WIDTH = 60
SMALL_BAR = 16
INDENT = "&nbsp;" * 4  # plain spaces are dropped at the start of a cell
_BLOCK = expression(r"(?:#{1,6}|[+-]|\d{1,9}[.)])(?:\s|$)|[=-]+$")  # at the start: a heading or a list
# GitHub makes links and notifications of @name, #1 and addresses even when they are escaped; a tag between stops it.
_SPECIAL = expression(r"[@#](?=\w)|://|www\.|[\\`*_\[\]~$&<>|]")
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
    sections += [
        _responses(report),
        _tops(report, min_share),
        _what_if(report),
        *_checklists(report),
        _not_captured(report),
        _warnings(report),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: str) -> str:
    """Text that Markdown, HTML and GitHub leave as it is, on one line."""
    text = clean(text).strip()
    first = f"&#{ord(text[0])};" if _BLOCK.match(text) else ""
    return first + _SPECIAL.sub(lambda found: _REPLACED.get(found[0], f"\\{found[0]}"), text[1:] if first else text)


def code(text: str) -> str:
    """A name in code style, shortened."""
    return command(shorten(clean(text), LONGEST_NAME))


def command(text: str) -> str:
    """A command in code style, whole. Entities where a code span could not hold it inside a table."""
    text = clean(text)
    if not text.strip():
        return ""
    if any(char in text for char in "`|\\"):
        return f"<code>{''.join(char if char.isalnum() or char == ' ' else f'&#{ord(char)};' for char in text)}</code>"
    return f"`{text}`"


def _title(report: Report) -> str:
    facts = " · ".join(escape(fact) for fact in sentences.circumstances(report))
    return f"**{code(sentences.what_ran(report))}**  \n{facts}"


def _accounts(report: Report) -> Iterable[str]:
    members = view.accounts(report)
    if not members:
        yield sentences.NOTHING
    if (ended := sentences.end_above(report)) is not None:
        yield f"### {escape(str(ended.headline))}\n\n{_lead(ended)}"
    devices = members[: len(report.devices)]
    told = [_account(account, folded=len(devices) > 2) for account in devices[:MOST_DEVICES]]
    if len(devices) > OPEN_DEVICES:
        yield _devices(devices)
        title = "GPU by GPU" if len(told) == len(devices) else f"GPU by GPU, the first {len(told)}"
        yield _folded(title, "\n\n".join(told))
    else:
        yield from told
    threads = members[len(devices) :]
    yield from (_account(thread) for thread in (threads if not threads or threads[0].lead is None else threads[:1]))


def _lead(lead: sentences.Lead) -> str:
    """What stands below the sentence on how a program ended."""
    own = "\n".join(line.replace("```", "") for line in lead.lines)
    return "\n\n".join([*([f"```text\n{own}\n```"] if own else []), *map(escape, lead.told)])


def _responses(report: Report) -> str:
    """What to do first, of every account, folded away."""
    parts = []
    for account in view.accounts(report)[:MOST_DEVICES]:
        rows = [
            (
                escape(one.title),
                escape(sentences.saves_of(one, account.set_against_ns).removeprefix("saves ")),
                escape(one.because),
                command(one.command),
            )
            for one in sentences.numbered(account.responses)
        ]
        if rows:
            heads = (f"{escape(account.name)}: what to do first", "saves", "because", "command")
            parts.append(table(heads, "lrll", rows))
            parts += [escape(usual)] if (usual := sentences.usual(account.responses)) else []
    return _folded("First responses", "\n\n".join(parts)) if parts else ""


def _tops(report: Report, min_share: float | None) -> str:
    """Kernels and calls with most time."""
    parts = [
        table(
            (head, "count", "time"),
            "lrr",
            [(code(one.name), units.count(one.count), units.duration(one.total_ns)) for one in tops],
        )
        for head, tops in zip(("kernel", "CUDA call, what it waits included"), view.tops(report), strict=True)
        if tops
    ]
    rows = [
        (
            INDENT * ((len(label) - len(label.lstrip())) // 2) + code(label.lstrip()),
            n,
            ns,
            code(top) if top else "",
            *calls,
        )
        for label, n, ns, top, *calls in view.region_sums(report, min_share)
    ]
    if rows:
        heads = ("region", "kernels", "time", "most in", "CUDA calls", "time", "most in")
        parts.append(table(heads, "lrrlrrl", [(*row[:6], code(row[6]) if row[6] else "") for row in rows]))
    return _folded("Kernels and CUDA calls with most time", "\n\n".join(parts)) if parts else ""


def _devices(devices: Sequence[Account]) -> str:
    """All devices in one table, below what each group of them is bound by."""
    heads = [f"### {escape(str(headline))}" for headline, _ in view.summaries(devices)]
    rows = [
        (
            escape(device.name),
            _bound(LETTER.get(device.verdict.bound, ""), device.bound),
            f"`{letters(segments(device.time), SMALL_BAR)}`",
            units.percent(device.utilization),
            units.duration(device.whole_ns),
            units.duration(device.saving_ns) if device.saving_ns is not None else "",
        )
        for device in devices
    ]
    return "\n\n".join((*heads, table(("GPU", "bound by", "account", "busy", "window", "max"), "lllrrr", rows)))


def _account(account: Account, *, folded: bool = False) -> str:
    lines = [f"### {escape(str(account.headline))}", ""]
    if account.lead is not None:
        lines += [_lead(account.lead), ""]
    else:
        lines += [" ".join(escape(text) for text in (*account.told, *account.doubts)), ""]
    told = account.first
    if told.because:
        lines += [f"**First:** {escape(told.because)}", ""]
    if told.code:
        lines += ["```text", *(line.replace("```", "") for line in told.code), "```", ""]
    if told.where:
        lines += [f"at {command(told.where)}", ""]
    if other := account.first_of_other:
        lines += [f"**And:** {escape(other)}", ""]
    if account.lead is not None and not account.lead.is_told:
        return "\n".join(lines).rstrip()
    if not account.parts:
        return "\n".join([*lines, "No time in the window."])
    lines += ["```text", letters(account.parts, BAR_WIDTH, at_least_one=True), "```", ""]
    rows = [
        (
            f"`{part.letter}`\N{NO-BREAK SPACE}{part.label}",
            units.percent(part.fraction),
            units.duration(part.ns),
            account.meanings.get(part.cause, ""),
        )
        for part in account.parts
    ]
    text = table(("cause", "share", "time", "meaning"), "lrrl", rows)
    return "\n".join([*lines, _folded("Account", text) if folded else text])


def _regions(report: Report, min_share: float | None) -> str:
    selection = view.select(report, min_share)
    rows = [
        (
            f"{INDENT * row.depth}{code(row.label) if row.is_judged else row.label}",
            row.instances,
            row.each,
            units.percent(row.share),
            f"`{bar}`" if (bar := letters(segments(row.time), SMALL_BAR)) else "",
            _bound(row.letter, row.bound),
            row.saves,
        )
        for row in selection.every_row
    ]
    if not rows:
        return ""
    text = table(("region", "inst", "time/inst", "share", "account", "bound by", "max"), "lrrrllr", rows)
    parts = ["#### Regions", _folded(f"{len(rows)} regions", text) if len(rows) > OPEN_ROWS else text]
    why = [f"- {code(region_name(row.region.path))}: {escape(row.because)}" for row in selection.rows if row.because]
    if why:  # a column of sentences would leave the others no room
        parts.append(_folded("Why each is bound so", "\n".join(why)))
    return "\n\n".join((*parts, *(escape(note) for note in selection.notes)))


def _bound(letter: str, word: str) -> str:
    return (f"`{letter}`\N{NO-BREAK SPACE}" if letter else "") + escape(word)


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
        (code(label), sentences.predicted_length(item), sentences.predicted_change(item))
        for label, item in sentences.notable_scenarios(report)
    ]
    if why := sentences.no_predictions(report):
        return f"#### What if\n\n{escape(why)}."
    return f"#### What if\n\n{table(('scenario', 'predicted', 'change'), 'lrr', rows)}" if rows else ""


def _checklists(report: Report) -> Iterable[str]:
    for device in view.accounts(report)[:MOST_DEVICES]:
        rows = [
            (
                escape(check.name),
                escape(check.value),
                escape(check.reading),
                escape(sentences.bound_phrase(check.points_to)) if check.points_to else "",
            )
            for check in device.checklist
        ]
        if rows:
            title = "Measured" if len(report.devices) == 1 else f"Measured on {device.name}"
            yield _folded(title, table(("check", "value", "reading", "points to"), "llll", rows))


def _not_captured(report: Report) -> str:
    rows = [(escape(gap.kind), escape(gap.cost), escape(gap.reason) or code(gap.flag)) for gap in not_captured(report)]
    lacking = (
        table(("not captured", "what that hides", f"why, or with {captured_by(report)}"), "lll", rows) if rows else ""
    )
    unchecked = findings.could_not_check(report.not_checked, every=report.analysis.show_all)
    skipped = "\n".join(f"- Could not check {code(rules)}, because {escape(reason)}" for reason, rules in unchecked)
    body = "\n\n".join(filter(None, (lacking, skipped)))
    return _folded("Not captured", body) if body else ""


def _warnings(report: Report) -> str:
    return warned((warning.message, warning.code) for warning in report.trace.warnings)


def warned(warnings: Iterable[tuple[str, str]]) -> str:
    """A box of (message, code)."""
    lines = [f"> {escape(message)} ({code(slug)})  " for message, slug in warnings]
    return "\n".join(["> [!WARNING]", *lines]) if lines else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _unbroken(figure: str) -> str:
    """A number and its unit on one line."""
    return figure.replace(" ", "\N{NO-BREAK SPACE}")


def table(heads: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """``align``: one letter a column, ``l`` or ``r``."""
    rows = [[_unbroken(cell) if side == "r" else cell for cell, side in zip(row, align, strict=True)] for row in rows]
    marks = ["---:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows))
