"""Reports without GPU work: each has one diagnosis, and what the host did meanwhile is no verdict but for programs of
the host."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby import api
from boundby.cli.main import main
from boundby.cli.outcome import Exit
from boundby.render import brief, markdown, screen, terminal
from boundby.results.report import Report
from boundby.simulate.nsys_export import Name
from boundby.trace.vocabulary.last_words import UNCLEAR
from tests.trace.test_last_words import CAUGHT, IMPORT, INSIDE, KEYBOARD, TENSORFLOW

MS = 1_000_000
PID = 1000
DIAGNOSTICS = {
    "CUDA trace requires target process to be launched as root.": "as root",
    "Installed CUDA driver version (13.1) is not supported by this build of Nsight Systems.": "CUDA 13.1",
    "CUDA injection initialization failed.": "did not start",
    "Could not load the CUPTI library. Please make sure the installed CUDA version is supported.": "CUPTI library",
    "A client is already subscribed to CUPTI. CUPTI does not support multiple concurrent subscriber.": "profiler",
    "ActivityFlushAll returned 2: CUPTI_ERROR_INVALID_DEVICE": "does not support the driver",
    "ActivityFlushAll returned 7: CUPTI_ERROR_UNKNOWN": "CUPTI failed",
}
STARTED = "CUDA injection initialized successfully."


def host_only(command: tuple[str, ...] = ("python", "train.py")) -> Export:
    """A thread that reads a file and computes, for 100 ms."""
    export = Export(command)
    thread = export.thread(PID)
    for begin in range(0, 100, 10):
        export.osrt(thread, begin * MS, (begin + 1) * MS, "read")
    export.osrt(thread, 99 * MS, 100 * MS, "write")
    return export


def written(export: Export, text: str, kind: str = "stderr", pid: int = PID) -> None:
    process = export.thread(pid).global_pid
    export.row("ProcessStreams", globalPid=process, filenameId=Name(f"pid_{pid}_{kind}.log"), contentId=Name(text))


def report(export: Export, folder: Path) -> Report:
    return api.analyze(export.write(folder / "report.sqlite", "2026"))


def no_verdict(found: Report, diagnosis: str) -> str:
    """Nothing is bound, found or saved; gives the screen."""
    assert found.trace.no_gpu_work is not None
    assert found.trace.no_gpu_work.diagnosis == diagnosis
    assert {thread.verdict.bound for thread in found.threads} == {"unknown"}
    assert {thread.verdict.confidence for thread in found.threads} == {"low"}
    assert {region.verdict.bound for region in found.regions} == {"unknown"}
    assert not found.findings
    told = screen.render(found)
    for word in ("Vectorise", "BOUND", "Confidence in", "saves"):
        assert word not in told.replace("BOUND BY", "")
    return told


def test_a_failed_program_has_a_first_screen_of_its_own(tmp_path: Path) -> None:
    export = host_only()
    written(export, IMPORT)
    found = report(export, tmp_path)
    told = no_verdict(found, "failed")
    for text in (told, terminal.render(found), markdown.render(found)):
        assert "ModuleNotFoundError" in text
        assert "train.py:6" in text
        assert "100 ms, before any GPU work" in text
    assert "import schedulefree" in told
    assert '"ended":{"how":"failed"' in brief.render(found)
    end = found.to_dict()["trace"]["program"]
    assert (end["ended"], end["where"], end["after_ns"], end["before_gpu_work"]) == (
        "failed",
        "train.py:6",
        100 * MS,
        True,
    )


def test_only_the_lines_of_the_failure_are_kept(tmp_path: Path) -> None:
    export = host_only()
    written(export, f"the secret of the day is heron\n{IMPORT}")
    written(export, "a private table\n", "stdout")
    found = report(export, tmp_path)
    kept = f"{found.to_dict()}"
    assert "schedulefree" in kept
    assert "heron" not in kept
    assert "private table" not in kept


def test_where_cuda_was_in_use_a_crash_may_have_lost_its_records(tmp_path: Path) -> None:
    export = host_only()
    export.diagnostic(STARTED, 1)
    written(export, IMPORT)
    assert "with no GPU work on record" in no_verdict(report(export, tmp_path), "failed")


@pytest.mark.parametrize("text", [CAUGHT, TENSORFLOW])
def test_who_prints_errors_and_runs_on_is_judged(text: str, tmp_path: Path) -> None:
    export = host_only()
    written(export, text)
    found = report(export, tmp_path)
    assert found.trace.program is None
    assert found.trace.no_gpu_work is not None
    assert found.trace.no_gpu_work.is_host_only
    assert found.threads[0].verdict.bound == "cpu"


def test_an_error_that_may_have_been_caught_is_told_above_the_verdict(tmp_path: Path) -> None:
    """Nothing says that the program failed: it is judged, and no limit is told as kept."""
    export = host_only()
    written(export, INSIDE)
    found = report(export, tmp_path)
    assert found.trace.program is not None
    assert found.trace.program.ended == UNCLEAR
    assert found.threads[0].verdict.bound == "cpu"
    for text in (screen.render(found), terminal.render(found), markdown.render(found)):
        assert "PRINTED AN ERROR: RuntimeError: shapes do not fit (sweep.py:8)" in text
        assert "may have ended because of it, or caught it and gone on" in " ".join(text.split())
        assert "FAILED" not in text


def test_check_does_not_keep_what_an_error_may_have_cut_short(tmp_path: Path) -> None:
    path = failed_after_work(INSIDE).write(tmp_path / "report.sqlite", "2026")
    [kept] = api.check(path, "gpu_utilization > 1 %").limits
    assert kept.untold
    assert "may have ended by the error" in kept.message


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Couldn't open file: densenet201.weights\n", "Give the program densenet201.weights, and record again"),
        (INSIDE, "Mend the error that it printed, and record again"),
    ],
)
def test_who_printed_an_error_last_mends_it_first(text: str, first: str, tmp_path: Path) -> None:
    (device,) = api.analyze(failed_after_work(text).write(tmp_path / "report.sqlite", "2026")).devices
    assert device.first_responses[0].title == first
    assert device.first_responses[0].code.startswith("boundby profile -- ")
    assert "error-printed" in [one.kind for one in device.verdict.uncertainties]
    assert device.verdict.confidence != "high"


def test_a_program_of_the_host_is_judged_and_never_surely(tmp_path: Path) -> None:
    found = report(host_only(), tmp_path)
    assert found.threads[0].verdict.bound == "cpu"
    assert found.threads[0].verdict.confidence != "high"


def test_an_interrupted_program_of_the_host_is_whole_until_then(tmp_path: Path) -> None:
    export = host_only()
    written(export, KEYBOARD.replace("^C", "\n"))
    found = report(export, tmp_path)
    assert found.trace.program is not None
    assert found.trace.program.ended == "interrupted"
    assert found.threads[0].verdict.bound == "cpu"


@pytest.mark.parametrize(("text", "words"), DIAGNOSTICS.items())
def test_the_profiler_says_why_cuda_was_not_recorded(text: str, words: str, tmp_path: Path) -> None:
    export = host_only()
    export.diagnostic(text, 2)
    told = no_verdict(report(export, tmp_path), "not_recorded")
    assert "CUDA WAS NOT RECORDED" in told
    assert words in " ".join(told.split())
    assert "no GPU work" not in told


def test_a_library_for_gpus_that_launches_nothing(tmp_path: Path) -> None:
    export = host_only()
    export.diagnostic(STARTED, 1)
    export.nvtx(export.thread(PID), 0, 90 * MS, "aten::linear")
    told = no_verdict(report(export, tmp_path), "unused")
    assert "NOTHING RAN ON THE GPU" in told
    assert "model.to('cuda')" in told
    (response,) = api.analyze(tmp_path / "report.sqlite").threads[0].first_responses
    assert response.command == "boundby profile -- python train.py"


def test_ranges_of_a_library_for_gpus_show_that_cuda_was_not_recorded(tmp_path: Path) -> None:
    export = host_only(("trtexec",))
    export.nvtx(export.thread(PID), 0, 90 * MS, "ExecutionContext::execute", domain="TensorRT")
    assert "TensorRT" in no_verdict(report(export, tmp_path), "not_recorded")


@pytest.mark.parametrize(("inside", "diagnosis"), [(range(11), "inside_driver"), (range(2), "host_only")])
def test_backtraces_tell_who_does_not_come_out_of_the_driver(inside: range, diagnosis: str, tmp_path: Path) -> None:
    path = host_only(("solver",)).write(tmp_path / "report.sqlite", "2026")
    with closing(sqlite3.connect(path)) as database, database:
        first = database.execute("SELECT max(id) FROM StringIds").fetchone()[0] + 1
        texts = ("0x7f", "libcuda.so.535.161.08", "main", "solver")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts, first))
        database.execute("CREATE TABLE IF NOT EXISTS OSRT_CALLCHAINS (id, symbol, module, unresolved, stackDepth)")
        for chain, places in ((1, ((first, first + 1), (first + 2, first + 3))), (2, ((first + 2, first + 3),))):
            for depth, (symbol, module) in enumerate(places):
                row = (chain, symbol, module, None, depth)
                database.execute(
                    "INSERT INTO OSRT_CALLCHAINS (id, symbol, module, unresolved, stackDepth) VALUES (?, ?, ?, ?, ?)",
                    row,
                )
        rows = [row for (row,) in database.execute("SELECT rowid FROM OSRT_API ORDER BY start")]
        chains = [(1 if number in inside else 2, row) for number, row in enumerate(rows)]
        database.executemany("UPDATE OSRT_API SET callchainId = ? WHERE rowid = ?", chains)
    found = api.analyze(path)
    assert found.trace.no_gpu_work is not None
    assert found.trace.no_gpu_work.diagnosis == diagnosis
    if diagnosis == "inside_driver":
        assert "INSIDE A CUDA CALL" in no_verdict(found, diagnosis)


def failed_after_work(text: str = IMPORT) -> Export:
    export = host_only()
    thread = export.thread(PID)
    for begin in range(10, 60, 5):
        export.kernel(
            export.api(thread, begin * MS, begin * MS + 5_000, "cudaLaunchKernel"), begin * MS + MS, begin * MS + 3 * MS
        )
    written(export, text)
    return export


def test_a_program_that_failed_later_is_judged_until_then(tmp_path: Path) -> None:
    found = report(failed_after_work(), tmp_path)
    assert found.trace.no_gpu_work is None
    assert found.devices
    for text in (screen.render(found), terminal.render(found), markdown.render(found)):
        assert "FAILED" in text
        assert "what it did until then" in " ".join(text.split())


def test_a_comparison_says_that_a_program_failed(tmp_path: Path) -> None:
    path = failed_after_work().write(tmp_path / "report.sqlite", "2026")
    doubts = api.compare_runs(path, path).doubts
    assert [doubt.code for doubt in doubts] == ["earlier-failed", "later-failed"]


def test_check_cannot_check_a_program_that_failed(tmp_path: Path) -> None:
    path = failed_after_work().write(tmp_path / "report.sqlite", "2026")
    result = api.check(path, "gpu_utilization > 1 %", "gaps.longest < 1 ns")
    assert all(limit.untold and not limit.kept for limit in result.limits)
    assert main(["check", str(path), "-l", "gpu_utilization > 1 %"]) == Exit.CANNOT_TELL


@pytest.mark.parametrize(
    ("said", "first", "second"),
    [
        (IMPORT, "pip install schedulefree  #", "boundby profile -- python train.py"),
        (
            "python: can't open file '/work/train.py': [Errno 2] No such file or directory\n",
            "find . -name 'train.py'  # where it is",
            "boundby profile -- python FOLDER/train.py",
        ),
        (
            "Traceback (most recent call last):\n  File \"/work/train.py\", line 6, in <module>\nKeyError: 'loss'\n",
            "",
            "",
        ),
    ],
)
def test_a_program_that_failed_is_mended_first_and_recorded_second(
    said: str, first: str, second: str, tmp_path: Path
) -> None:
    """The command that failed would fail again."""
    export = host_only()
    written(export, said)
    (response,) = report(export, tmp_path).threads[0].first_responses
    mend, _, again = response.code.partition("\n")
    assert mend.startswith(first)
    assert again == second


def test_a_driver_newer_than_nsys_names_the_package_to_install(tmp_path: Path) -> None:
    export = host_only()
    export.diagnostic("Installed CUDA driver version (13.1) is not supported by this build of Nsight Systems.", 2)
    export.diagnostic("ActivityFlushAll returned 2: CUPTI_ERROR_INVALID_DEVICE", 2)
    (response,) = report(export, tmp_path).threads[0].first_responses
    assert response.title == "Install the nsys of CUDA 13.1 or a newer one, then record again"
    assert "cuda-nsight-systems-13-1" in response.code
    assert response.code.endswith("boundby profile -- python train.py")
