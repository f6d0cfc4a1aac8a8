"""Report -> GitHub-flavoured Markdown, for a comment on a pull request: the sentence first, details folded away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boundby.document import pattern_cards, report_document, sentences, view
from boundby.document.blocks import letters, region_name, segments
from boundby.document.view import ShownAccount
from boundby.model import units
from boundby.model.causes import LETTER
from boundby.model.scale import GLANCE, HANDFUL, LABEL, NARROW
from boundby.render import to_markdown
from boundby.render.to_markdown import INDENT, code, escape, table
from boundby.results.report import Report

OPEN_ROWS = GLANCE  # a longer table of regions is folded away
OPEN_DEVICES = HANDFUL  # more are told in one table, and one by one in a fold


def render(report: Report, *, min_share: float | None = None) -> str:
    """The report as Markdown, ended by a line break."""
    sections = [_title(report), *_accounts(report), _regions(report, min_share), _findings(report)]
    sections += [
        *to_markdown.sections(report_document.sections(report, min_share)),
        *to_markdown.blocks_of(report_document.warnings(report)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


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
    texts = [_account(account, folded=len(devices) > 2) for account in devices[: pattern_cards.MOST_DEVICES]]
    if len(devices) > OPEN_DEVICES:
        yield _devices(devices)
        title = "GPU by GPU" if len(texts) == len(devices) else f"GPU by GPU, the first {len(texts)}"
        yield _folded(title, "\n\n".join(texts))
    else:
        yield from texts
    threads = members[len(devices) :]
    yield from (_account(thread) for thread in (threads if not threads or threads[0].lead is None else threads[:1]))


def _lead(lead: sentences.Lead) -> str:
    """What stands below the sentence on how a program ended."""
    own = "\n".join(line.replace("```", "") for line in lead.lines)
    return "\n\n".join([*([f"```text\n{own}\n```"] if own else []), *map(escape, lead.told)])


def _devices(devices: Sequence[ShownAccount]) -> str:
    """All devices in one table, below what each group of them is bound by."""
    heads = [f"### {escape(str(headline))}" for headline, _ in view.summaries(devices)]
    rows = [
        (
            escape(device.name),
            _bound(LETTER.get(device.verdict.bound, ""), device.bound),
            f"`{letters(segments(device.time), NARROW)}`",
            units.percent(device.utilization),
            units.duration(device.whole_ns),
            units.duration(device.saving_ns) if device.saving_ns is not None else "",
        )
        for device in devices
    ]
    columns = ("GPU", "bound by", "time by cause", "busy", "window", "saves up to")
    return "\n\n".join((*heads, table(columns, "lllrrr", rows)))


def _account(account: ShownAccount, *, folded: bool = False) -> str:
    lines = [f"### {escape(str(account.headline))}", ""]
    if account.lead is not None:
        lines += [_lead(account.lead), ""]
    else:
        lines += [" ".join(map(escape, account.reasons)), ""]
    lines += to_markdown.first(account.first)
    lines += to_markdown.first(account.first_of_other, "And")
    if account.lead is None:
        lines += [
            " ".join(map(escape, (*filter(None, (account.most, account.exposed, *account.measured)), *account.doubts))),
            "",
        ]
    if account.lead is not None and not account.lead.is_told:
        return "\n".join(lines).rstrip()
    if not account.parts:
        return "\n".join([*lines, "No time in the window."])
    lines += ["```text", letters(account.parts, LABEL, at_least_one=True), "```", ""]
    rows = [
        (
            f"`{part.letter}`\N{NO-BREAK SPACE}{account.named(part)}",
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
            f"`{bar}`" if (bar := letters(segments(row.time), NARROW)) else "",
            _bound(row.letter, row.bound),
            row.saves,
        )
        for row in selection.every_row
    ]
    if not rows:
        return ""
    text = table(("region", "count", "mean time", "share", "time by cause", "bound by", "saves up to"), "lrrrllr", rows)
    parts = ["#### Regions", _folded(f"{len(rows)} regions", text) if len(rows) > OPEN_ROWS else text]
    why = [f"- {code(region_name(row.region.path))}: {escape(row.because)}" for row in selection.rows if row.because]
    if why:  # a column of sentences would leave the others no room
        parts.append(_folded("Why each is bound so", "\n".join(why)))
    return "\n\n".join((*parts, *(escape(note) for note in selection.notes)))


def _bound(letter: str, word: str) -> str:
    return (f"`{letter}`\N{NO-BREAK SPACE}" if letter else "") + escape(word)


def _findings(report: Report) -> str:
    healthy = sentences.nothing_found(report)
    if not report.findings:
        return escape(healthy)
    shown = sentences.shown_findings(report)
    lines = [*([escape(healthy), ""] if healthy else []), f"#### {sentences.findings_heading(report)}", ""]
    for rank, finding in enumerate(shown, 1):
        if rank == HANDFUL + 1:
            lines += ["", f"<details><summary>{len(shown) - HANDFUL} more</summary>", ""]
        where = f"{code(region_name(finding.region))}: " if finding.region else ""
        worth = sentences.worth(finding)
        saves = f" {worth[0].upper()}{worth[1:]}." if worth else ""
        title = escape(finding.title).rstrip(".")
        lines.append(f"{rank}. **{escape(sentences.priority(finding))}** {where}{title}.{saves}")
        indent = " " * len(f"{rank}. ")
        lines += [f"{indent}- {escape(advice)}" for advice in finding.advice]
        worst = sentences.worst_instances(finding.examples)
        lines += [f"{indent}- {escape(worst)}"] if worst else []
        lines.append(f"{indent}- {code(f'boundby explain {finding.rule}')}")
    if len(shown) > HANDFUL:
        lines += ["", "</details>"]
    more = sentences.left_out(report)
    return "\n".join([*lines, *(["", escape(more)] if more else [])])


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
