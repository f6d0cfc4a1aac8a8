"""``boundby.profiling``: a block that records by itself, marks steps under nsys, and never gets in the way."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

import boundby
from boundby.cli.main import main

PROGRAM = Path(__file__).parent / "programs" / "block.py"


def run(folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What the program prints, and on stderr."""
    answer = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder / "traces"), *arguments], capture_output=True, text=True, check=False
    )
    assert answer.returncode == code, answer.stderr
    return answer.stdout, answer.stderr


def traces(folder: Path) -> list[Path]:
    return sorted((folder / "traces").glob("*.pt.trace.json.gz"))


def test_it_records_some_steps_and_names_the_lines_of_the_program(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out, _ = run(tmp_path, "6")
    (trace,) = traces(tmp_path)
    report = boundby.analyze(trace)
    assert out.startswith(str(report))
    assert "page: True" in out
    assert f"report: {report!r}" in out
    steps = next(region for region in report.regions if region.path == ("ProfilerStep#*",))
    assert steps.instances == 2
    text = gzip.decompress(trace.read_bytes()).decode()
    number = (
        PROGRAM.read_text().splitlines().index("            torch.ones(64, 64).mm(torch.ones(64, 64)).sum().item()")
    )
    assert f"block.py({number + 1}): torch.ones(64, 64).mm(torch.ones(64, 64)).sum().item()" in text


def test_a_loop_that_is_too_short_is_told_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out, problems = run(tmp_path, "2")
    assert "nothing was recorded: 2 steps ended, and the first 2 are not recorded" in problems
    assert "profiling(wait=0, warmup=0)" in problems
    assert "report: None" in out


def test_an_error_of_the_program_is_its_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out, problems = run(tmp_path, "9", "fails", code=1)
    assert problems.rstrip().endswith('KeyError: "the program\'s own"')
    assert "boundby: " not in problems
    assert "report" not in out


def test_without_torch_steps_are_ranges_and_the_sentence_says_so(tmp_path: Path) -> None:
    out, problems = run(tmp_path, "6", "without")
    assert "torch is not installed, so steps are NVTX ranges here" in out
    assert "report: None" in out
    assert problems == ""
    assert traces(tmp_path) == []


def test_where_nothing_writes_ranges_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUNDBY_NVTX", "off")
    out, _ = run(tmp_path, "6", "without")
    assert "NVTX ranges here" not in out
    assert 'To mark the steps: pip install "boundby[annotate]".' in out


def test_wrong_numbers_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="active is 1 or more"):
        boundby.profiling(active=0)


@pytest.mark.nsys
def test_under_boundby_profile_it_marks_steps_and_records_nothing_twice(
    tmp_path: Path, nsys: object, capfd: pytest.CaptureFixture[str]
) -> None:
    assert nsys
    pytest.importorskip("torch")
    pytest.importorskip("nvtx")
    program = [sys.executable, str(PROGRAM), str(tmp_path / "traces"), "6"]
    assert main(["profile", "-q", "-o", str(tmp_path / "run"), "--", *program]) == 0
    out = capfd.readouterr().out
    assert "nsys records this program, so steps are NVTX ranges here" in out
    assert traces(tmp_path) == []
    regions = {region.path: region.instances for region in boundby.analyze(tmp_path / "run").regions}
    assert regions["step *",] == 5  # the last goes from the last step() to the end of the block
    assert regions["warmup *",] == 2


def test_with_torch_it_records_nothing_twice(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arguments = ["profile", "-q", "--with", "torch", "--torch-steps", "1,1,2", "-o", str(tmp_path / "run")]
    assert main([*arguments, "--", sys.executable, str(PROGRAM), str(tmp_path / "traces"), "6"]) == 0
    assert traces(tmp_path) == []
    regions = {region.path: region.instances for region in boundby.analyze(tmp_path / "run").regions}
    assert regions["ProfilerStep#*",] == 2
