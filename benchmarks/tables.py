"""The register of tables as a page: ``python -m benchmarks.tables > docs/tables.md``."""

from __future__ import annotations

from boundby.readers.nsys.reader import LABELS, NOT_READ, read_tables

_PAGE = """# Tables of a report

nsys writes each kind of data into a table of its own, some hundred kinds in all. This page lists the tables that
boundby reads, and those that it does not read. `python -m benchmarks.tables` makes it. `boundby analyze REPORT --full`
names the tables of a report that hold rows and are not read; the JSON has them as `trace.not_read`. If such a table is
not listed here, boundby says that it does not know the table.

A pattern such as `UCP_*` stands for all tables of such a name that are not under "Read".
"""


def page() -> str:
    """docs/tables.md: what is read, and what is not, each by name."""
    others = {**NOT_READ, LABELS: "labels of codes"}
    lines = [_PAGE, "## Read", "", "| table | what it gives | columns |", "| --- | --- | --- |"]
    for name, table in sorted(read_tables().items()):
        lines.append(f"| `{name}` | {table.gives} | {', '.join(f'`{column}`' for column in table.columns)} |")
    lines += ["", "## Not read", "", "| table | what it holds |", "| --- | --- |"]
    lines += [f"| `{name}` | {holds} |" for name, holds in sorted(others.items())]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")
