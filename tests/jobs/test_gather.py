"""Reports of ranks gathered: in any order, by anybody, with some that cannot be used."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from benchmarks.simulated.jobs import Job, Plant, simulate, write_export
from click.testing import CliRunner
from msgspec.structs import replace

from boundby import api
from boundby.cli.job import add_pages
from boundby.cli.main import cli, main
from boundby.document.job_document import OUTLIERS
from boundby.jobs import gather as gathering
from boundby.jobs.gather import Gathered, read_rank
from boundby.jobs.merge import merge
from boundby.model.errors import InputError
from boundby.options import AnalysisOptions
from boundby.results import saved
from boundby.results.job_report import JobReport
from tests.jobs.made import report

JOB = Job(data=4, steps=6, layers=2, plants=(Plant("slow_input", 2, 0.4),))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    for run in simulate(JOB):
        write_export(run, folder / f"rank_{run.rank}.sqlite")
    return folder


@pytest.fixture(scope="module")
def whole(reports: Path) -> str:
    return saved.render(api.job(reports, workers=1))


def test_the_exports_tell_what_was_planted(whole: str) -> None:
    found = saved.loads(whole, JobReport)
    (straggler,) = found.stragglers
    assert (straggler.kind, straggler.ranks, straggler.cause, straggler.region[-1]) == (
        "rank",
        (2,),
        "host_blocked",
        "data",
    )
    assert saved.render(found) == whole


def test_any_order_and_any_number_of_processes_give_the_same_bytes(reports: Path) -> None:
    files = sorted(reports.iterdir())
    backwards = api.job(files[::-1], workers=2)
    assert saved.render(backwards) == saved.render(api.job(files, workers=1))


def _kills_itself_once_at_rank_1(name: str, path: Path, options: AnalysisOptions) -> Gathered:
    mark = path.parent / "killed"
    if "rank_1" in name and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return read_rank(name, path, options)


def test_dask_gives_the_same_bytes_though_a_worker_is_killed_midway(reports: Path, whole: str, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    copied = shutil.copytree(reports, tmp_path / reports.name)
    named = [(path.name, path) for path in sorted(copied.iterdir())]
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        answers = gathering.each(named, work=_kills_itself_once_at_rank_1, scheduler=cluster.scheduler_address)
    assert (copied / "killed").exists()
    assert [answer.name for answer in answers] == [name for name, _ in named]
    summaries = [one for answer in answers for one in answer.summaries]
    found = saved.loads(whole, JobReport)
    assert replace(merge(summaries, str(reports), []), first=found.first) == found


def _kills_itself_at_rank_1(name: str, path: Path, options: AnalysisOptions) -> Gathered:
    if "rank_1" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_rank(name, path, options)


def test_a_report_that_kills_its_reader_is_named_and_takes_no_other_with_it(reports: Path) -> None:
    named = [(path.name, path) for path in sorted(reports.iterdir())[:2]]
    answers = list(gathering._in_processes(named, AnalysisOptions(), 2, _kills_itself_at_rank_1))
    assert {answer.name for answer in answers if answer.summaries} == {name for name, _ in named} - {"rank_1.sqlite"}
    (lost,) = (answer for answer in answers if answer.problem)
    assert lost.problem == "rank_1.sqlite: the process that read it was killed 3 times."


def test_corrupt_cut_and_foreign_reports_are_named(reports: Path, tmp_path: Path) -> None:
    for path in reports.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "rank_7.sqlite").write_bytes((tmp_path / "rank_0.sqlite").read_bytes()[:9_000])
    (tmp_path / "rank_8.json.gz").write_bytes(b"\x1f\x8b nothing")
    other = Job(data=3, steps=9, layers=3, seed=5)
    write_export(simulate(other)[0], tmp_path / "rank_9.sqlite")
    found = api.job(tmp_path, workers=1)
    assert [rank.rank for rank in found.ranks] == [0, 1, 2, 3]
    text = " ".join(found.left_out)
    assert all(f"rank_{number}" in text for number in (7, 8, 9))
    assert [one.ranks for one in found.stragglers] == [(2,)]


def test_one_rank_is_no_job(reports: Path) -> None:
    with pytest.raises(InputError, match="at least two ranks"):
        api.job([reports / "rank_0.sqlite"])


def test_a_job_of_which_no_rank_can_be_read_is_told(reports: Path, tmp_path: Path) -> None:
    for path in reports.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[:9_000])
    with pytest.raises(InputError, match=r"None of the 4 files can be read as a report\..*is truncated"):
        api.job(tmp_path, workers=1)


@pytest.mark.parametrize(("limit", "code"), [("imbalance < 5 %", 1), ("imbalance < 60 %", 0), ("waits < 90 %", 0)])
def test_limits_are_held_against_jobs(whole: str, tmp_path: Path, limit: str, code: int) -> None:
    path = tmp_path / "job.json"
    path.write_text(whole, encoding="utf-8")
    assert main(["check", str(path), "-l", limit]) == code


@pytest.mark.parametrize("kind", ["terminal", "markdown", "html", "json"])
def test_every_format_names_the_culprit(reports: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    arguments = ["job", str(reports), "--workers", "1", "--format", kind, "--pages", "none", "-o", str(out), "-q"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    text = out.read_text(encoding="utf-8")
    assert "host_blocked" in text if kind == "json" else "ank 2 takes" in text
    assert len(text) < 200_000


def test_the_page_links_to_pages_of_ranks_and_makes_those_that_lack(reports: Path, tmp_path: Path) -> None:
    for path in sorted(reports.iterdir())[:3]:
        shutil.copy(path, tmp_path)
    (tmp_path / "rank_0.html").write_text("its own", encoding="utf-8")
    page = tmp_path / "answer.html"
    assert main(["job", str(tmp_path), "--workers", "1", "-o", str(page), "-q"]) == 0
    text = page.read_text(encoding="utf-8")
    for link in ("rank_0.html", "answer_ranks/rank_1.html", "answer_ranks/rank_2.html"):
        assert f'href="{link}"' in text
        assert (tmp_path / link).is_file()
    assert "boundby" in (tmp_path / "answer_ranks" / "rank_2.html").read_text(encoding="utf-8")
    assert (tmp_path / "rank_0.html").read_text(encoding="utf-8") == "its own"


def test_of_many_ranks_those_that_stand_out_get_a_page(reports: Path, tmp_path: Path) -> None:
    found = report(Job(data=20, steps=6, layers=1, plants=(Plant("slow_device", 7, 0.4),)))
    one = sorted(reports.iterdir())[0]
    for rank in found.ranks:
        (tmp_path / f"{rank.name}.sqlite").symlink_to(one)
    named = replace(found, ranks=tuple(replace(rank, name=f"{rank.name}.sqlite") for rank in found.ranks))
    told, links = add_pages(named, [tmp_path], tmp_path / "job.html", AnalysisOptions(), workers=1)
    made = [place for place, link in enumerate(links) if link is not None]
    assert 7 in made
    assert len(made) <= OUTLIERS
    assert told.notes[-1].startswith(f"Of 20 ranks {len(made)} have a page")
    assert add_pages(named, [tmp_path], tmp_path / "other.html", AnalysisOptions(), "none")[1] == [None] * 20
