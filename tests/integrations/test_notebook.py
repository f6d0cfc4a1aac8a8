"""The example notebook, run by a real Jupyter kernel, and looked at in a real browser."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from boundby import analyze, compare_runs
from boundby.document.comparison_document import document
from boundby.render import html, to_html
from tests.render.test_page_browser import browser
from tests.support.headlines import stressed

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
REPORT = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"


def run(cells: list[str], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each cell, from a kernel of this Python."""
    for module in ("torch", "nbclient", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install {module}")
    import nbclient
    import nbformat
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.kernel_spec.env = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(made, km=manager, timeout=120, resources=resources).execute()
    return [cell.outputs for cell in made.cells]


def shown(outputs: list[dict[str, Any]], kind: str = "text/html") -> str:
    return "".join(output["data"].get(kind, "") for output in outputs if "data" in output)


def printed(outputs: list[dict[str, Any]]) -> str:
    return "".join(output["text"] for output in outputs if "text" in output)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Of the example, and of some more cells in the same kernel."""
    read = json.loads(NOTEBOOK.read_text())
    cells = ["".join(cell["source"]) for cell in read["cells"] if cell["cell_type"] == "code"]
    more = [
        "def waits():\n    total = 0\n    for _ in range(3):\n        total += train(batch(0))\n    return total",
        "%%boundby --no-lines\nimport math\nmath.pi",
        "try:\n    get_ipython().run_cell_magic('boundby', '', 'train(batch(0))\\n1 / 0')\nexcept ZeroDivisionError:\n"
        "    print('the cell has its error')",
        "%%boundby other\nwaits();",
        "other is None",
    ]
    folder = tmp_path_factory.mktemp("examples")
    cells = [cell.replace("../sample_reports/", f"{REPORT.parent}/") for cell in cells]
    return run([*cells, *more], folder)


def test_cells_show_what_they_are_bound_by_and_name_their_lines(outputs: list[list[dict[str, Any]]]) -> None:
    slow = shown(outputs[2])
    assert stressed("cpu") in slow
    assert re.search(r"In \[2\]:\d+ ", slow)
    assert re.search(r'<a href="boundby-out/torch/cell3\.\d+\.html"', slow)
    assert "<script" not in slow
    assert "<b>before</b>" in shown(outputs[4])  # how much faster, a busy machine does not always tell
    assert shown(outputs[5], "text/plain").startswith("<boundby.Report of boundby-out/torch/cell4.")
    assert stressed("sync") in shown(outputs[6])


def test_a_cell_keeps_its_value_and_its_errors(outputs: list[list[dict[str, Any]]]) -> None:
    plain, failing, other, last = outputs[8:]
    assert plain[-1]["data"]["text/plain"] == "3.141592653589793"
    assert "the cell has its error" in printed(failing)
    assert "BOUND" not in shown(failing)
    assert "execute_result" not in {output["output_type"] for output in other}
    assert re.search(r"In \[\d+\]:\d+ ", shown(other))
    assert shown(last, "text/plain") == "False"


def test_it_reads_in_light_and_dark(tmp_path: Path, outputs: list[list[dict[str, Any]]], browser: Any) -> None:
    """As notebooks show it: within a page whose colours are its own."""
    report = analyze(REPORT)
    parts = [shown(outputs[2]), html.fragment(report), to_html.fragment(document(compare_runs(report, report)))]
    page = tmp_path / "notebook.html"
    script = """() => [...document.querySelectorAll('div td, div p, div > div > strong, table td')].map(
        one => getComputedStyle(one).color)"""
    for ink, paper in (("rgb(0, 0, 0)", "#fff"), ("rgb(230, 230, 230)", "#111")):
        style = f"<!doctype html><meta charset='utf-8'><body style='color:{ink};background:{paper}'>"
        page.write_text(style + "".join(f"<div>{part}</div>" for part in parts))
        view = browser.new_page()
        view.goto(page.as_uri())
        colors = view.evaluate(script)
        assert len(colors) > 20
        assert colors.count(ink) > 0.5 * len(colors)
        view.close()


__all__ = ["browser"]
