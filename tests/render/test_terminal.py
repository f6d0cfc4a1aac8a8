from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

import boundby
from boundby.document import report_document
from boundby.model.causes import BOUNDS
from boundby.render import terminal
from boundby.render.face import ColorSystem, Face
from boundby.results.report import AnalysisSummary, Saving, Verdict, Window
from boundby.trace.facts import Captured
from tests.support import golden, reports
from tests.support.headlines import headline

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["sample", "cpu_only", "two_devices", "many_devices"])
def test_golden(name: str, width: int) -> None:
    golden.check(f"terminal_{name}_{width}.txt", terminal.render(reports.ALL[name](), width=width))


def test_golden_hostile_ascii() -> None:
    golden.check("terminal_hostile_100_ascii.txt", terminal.render(reports.hostile(), width=100, unicode=False))


@pytest.mark.parametrize("name", sorted(reports.ALL))
@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 100, 120, 160, 250])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_screen(name: str, width: int, unicode: bool) -> None:
    for line in terminal.render(reports.ALL[name](), width=width, unicode=unicode).splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_without_unicode_all_is_ascii(name: str) -> None:
    assert terminal.render(reports.ALL[name](), unicode=False).isascii()


@pytest.mark.parametrize("name", sorted(reports.ALL))
@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
def test_colour_changes_no_figure(name: str, system: ColorSystem) -> None:
    """Only the labels within bars, the badge's spaces and its full stop are the coloured view's own."""
    plain = terminal.render(reports.ALL[name](), width=100)
    painted = terminal.render(reports.ALL[name](), width=100, color_system=system)
    if name != "empty":
        assert painted != plain
    stripped = ESCAPE.sub("", painted)
    assert "\x1b" not in stripped
    assert len(stripped.splitlines()) == len(plain.splitlines())
    assert [line for line in plain.splitlines() if ":" in line and "BOUND" not in line] == [
        line for line in stripped.splitlines() if ":" in line and "BOUND" not in line
    ]


def test_it_is_a_function_of_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    before = terminal.render(reports.sample(), width=90, color_system="truecolor")
    for name, value in (("COLUMNS", "33"), ("NO_COLOR", "1"), ("TERM", "dumb"), ("FORCE_COLOR", "1"), ("LINES", "5")):
        monkeypatch.setenv(name, value)
    assert terminal.render(reports.sample(), width=90, color_system="truecolor") == before


def test_names_from_a_trace_are_harmless() -> None:
    text = terminal.render(reports.hostile(), width=200)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold red]x[/bold red]" in text  # shown, not obeyed
    text.encode("utf-8")
    painted = terminal.render(reports.hostile(), width=200, color_system="truecolor")
    assert "\x1b" not in ESCAPE.sub("", painted)


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=()), max_size=40), st.integers(40, 130))
def test_any_name_leaves_the_table_straight(name: str, width: int) -> None:
    base = reports.sample()
    renamed = (base.regions[0], replace(base.regions[1], path=(name,)))
    lines = terminal.render(replace(base, regions=renamed), width=width).splitlines()
    "".join(lines).encode("utf-8")
    assert all(cell_len(line) <= width for line in lines)
    head = next(index for index, line in enumerate(lines) if line.startswith("REGION"))
    assert _from_cell(lines[head + 1], lines[head].index("BOUND BY")).startswith("s sync")


def _from_cell(line: str, cell: int) -> str:
    used = 0
    for index, char in enumerate(line):
        if used >= cell:
            return line[index:]
        used += cell_len(char)
    return ""


def test_the_sentence_names_the_bound_and_the_saving() -> None:
    text = terminal.render(reports.sample())
    assert headline("sync") in text
    assert "Without syncs these 5.43 s would be 4.12 s (-24 %); the next limit would be launch overhead." in text
    assert "Shares of the time:   C compute 58 %   M copy 3 %   s sync 24 %   a launch overhead 11 %" in text


@pytest.mark.parametrize("bound", BOUNDS)
def test_every_bound_has_a_sentence(bound: str) -> None:
    base = reports.sample()
    mixed_of = ("sync", "cpu") if bound == "mixed" else None
    verdict = Verdict(bound, "low", ("one", "two."), saving_ns=10, bound_next="unknown", mixed_of=mixed_of)
    device = replace(base.devices[0], verdict=verdict)
    text = terminal.render(replace(base, devices=(device,), regions=()))
    assert headline(bound) in text
    assert "Confidence in the verdict: low (one; two)." in text


def test_regions_below_the_share_are_counted() -> None:
    assert "1 region below 1 % is not shown; --min-share 0 shows all." in terminal.render(reports.sample())
    everything = terminal.render(reports.sample(), min_share=0.0)
    assert "zero_grad" in everything
    assert "not shown" not in everything
    most = terminal.render(reports.sample(), min_share=0.5)
    assert "4 regions below 50 % are not shown" in most
    assert "data" in most  # hidden behind the GPU, but it takes the host more than half of the time


def test_a_tree_of_short_names_is_indented() -> None:
    """Each level by two cells, however narrow the column of names."""
    sample = reports.sample()
    paths = [("a", *"bcd"[:depth]) for depth in range(4)]
    row = next(one for one in sample.regions if one.path == ("step",))
    text = terminal.render(replace(sample, regions=tuple(replace(row, path=path) for path in paths)))
    names = [line.split("  100 ")[0].rstrip() for line in text.splitlines() if "  100 " in line]
    assert names == ["a", "  b", "    c", "      d"]


def test_a_remark_behind_code_is_not_torn() -> None:
    code = "DataLoader(dataset, num_workers=8, persistent_workers=True)  # now 2"
    lines = [line.plain.strip() for line in Face(64, None, True).verbatim(code, 4)]
    assert lines == [code.partition("  #")[0], "# now 2"]


def test_a_command_on_several_lines_can_be_copied() -> None:
    """Above its remark, behind backslashes, and torn at none of its quoted words."""
    code = "ncu --set full --kernel-name 'regex:a kernel of <float, 4>' --launch-count 3 ./heat 8  # from its folder"
    *lines, remark = [line.plain for line in Face(40, None, True).verbatim(code, 2)]
    assert remark.strip() == "# from its folder"
    assert len(lines) > 2
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(code, comments=True)


def test_a_long_remark_has_its_mark_on_every_line() -> None:
    code = "MPI_Waitall(...);  // after the work of the GPU that does not need the messages"
    first, *lines = [line.plain.strip() for line in Face(40, None, True).verbatim(code, 2)]
    assert first == "MPI_Waitall(...);"
    assert all(line.startswith("// ") for line in lines)
    assert " ".join(line.removeprefix("// ") for line in lines) == code.partition("// ")[2]


def test_without_ranges_it_says_so() -> None:
    base = reports.sample()
    bare = replace(base, regions=base.regions[:1], trace=replace(base.trace, captured=Captured(kernels=True)))
    text = terminal.render(bare)
    assert "No NVTX ranges" in text
    assert "REGION" not in text
    assert "-t nvtx" in text
    assert "CUDA API calls" in text


def test_an_empty_window_has_no_bar() -> None:
    base = reports.sample()
    device = replace(base.devices[0], time=reports.NOTHING, window=Window(0, 0))
    assert "(no time in the window)" in terminal.render(replace(base, devices=(device,)))


def test_many_threads_are_cut_off() -> None:
    base = reports.cpu_only()
    threads = tuple(replace(base.threads[0], tid=tid) for tid in range(20))
    text = terminal.render(replace(base, threads=threads))
    assert headline("cpu", "All 8 threads", plural=True, of_host=True) in text
    assert "12 more threads are not shown." in text


def test_words_are_explained_where_they_occur() -> None:
    report = reports.sample()
    finding = replace(report.findings[0], title="3 copies of pageable memory")
    text = terminal.render(replace(report, findings=(finding,)), width=120)
    assert "\n  pageable " in text
    assert "\n  pinned " not in text
    assert "\n  pinned " in terminal.render(
        replace(report, findings=(replace(finding, advice=("use pinned memory",)),))
    )


def test_notes_have_a_heading_of_their_own() -> None:
    report = replace(reports.sample(), analysis=AnalysisSummary(rules_checked=39))
    note = next(item for item in report.findings if item.severity == "note")
    both = terminal.render(report, width=100).splitlines()
    assert [line.split("  ")[-1] for line in both if line.startswith(" # PRIORITY")] == ["FINDINGS (1)", "NOTES (1)"]
    only = terminal.render(replace(report, findings=(note, note)), width=100)
    assert "No finding worth 1 % of the time (39 checks); 2 notes." in only
    assert only.splitlines().count(" # PRIORITY  SAVES  NOTES (2)") == 1
    part = replace(report, findings=(), analysis=AnalysisSummary(rules_checked=39, region_glob="step*"))
    assert "No finding in regions step* (39 checks, of the whole program)." in terminal.render(part, width=100)
    assert "FINDINGS" not in only


def test_a_saving_beside_waits_says_what_it_is_measured_from() -> None:
    """What a replay saves without copies once nothing waits is less than what its scenario saves of the whole."""
    base = reports.sample()
    verdict = replace(
        base.devices[0].verdict,
        runner_up="gpu_copy",
        runner_up_saving_ns=500_000_000,
        decided_by="replay",
        savings=(Saving("sync", 1_300_000_000), Saving("gpu_copy", 500_000_000)),
    )
    text = terminal.render(replace(base, devices=(replace(base.devices[0], verdict=verdict),)))
    assert "After the syncs are gone, removing copies would save another 9 %." in text
    verdict = replace(verdict, bound="cpu", saving_ns=900_000_000, without_ns=None)
    text = terminal.render(replace(base, what_if=(), devices=(replace(base.devices[0], verdict=verdict),)))
    assert "Removing copies instead of host code would save 9 %" in text  # of the program as it ran, as every number is


def test_what_to_do_first_stands_above_what_it_leaves() -> None:
    """As on the first screen: why, what to do, and only then what would be left."""
    report = boundby.analyze(Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite")
    words = ("Why: ", "First: ", "Without ")
    told = [word for line in terminal.render(report).splitlines() for word in words if line.startswith(word)]
    assert tuple(told[:3]) == words


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    table = report_document._table(("operator", "sizes", "calls"), [("aten::mm", "", "2"), ("aten::add", "", "3")])
    assert [column.head for column in table.columns] == ["operator", "calls"]
    assert [column.cell(table.rows[1]) for column in table.columns] == ["aten::add", "3"]
