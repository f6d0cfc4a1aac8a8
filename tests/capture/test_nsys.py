"""Finding nsys: what is named wins or is an error, the rest is tried in order, the newest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.capture import nsys
from boundby.capture.nsys import Nsys, Unusable, cache_folder, candidates, find_nsys, version_numbers
from boundby.model.errors import ToolError
from tests.support.nsys import fake_nsys


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Surroundings in which no nsys is installed; the shell that runs the fakes needs no PATH."""
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


def install(root: Path, place: str, version: str) -> Path:
    return fake_nsys(root / place, "", version).path


@pytest.mark.nsys
def test_a_real_nsys_tells_its_version_and_has_its_importer(nsys: Nsys) -> None:
    found = find_nsys(nsys.path)
    assert found.version == nsys.version
    assert found.version_tuple >= (2020,)
    assert found.found_in == "--nsys"
    if found.path.parent.name.startswith("target-linux"):
        assert found.importer is not None


@pytest.mark.nsys
def test_versions_of_two_real_nsys_compare(nsys_older: Nsys) -> None:
    assert nsys_older.version_tuple[:3] == (2022, 4, 2)
    assert nsys_older.release == "2022.4.2"


def test_named_comes_before_variable_before_path_before_installed_before_cache(
    tmp_path: Path, env: dict[str, str]
) -> None:
    named = install(tmp_path, "named", "2020.1.1")
    env["BOUNDBY_NSYS"] = str(install(tmp_path, "variable", "2021.1.1"))
    install(tmp_path, "bin", "2022.1.1")
    install(tmp_path, "root/opt/nvidia/nsight-systems/2023.1.1/bin", "2023.1.1")
    install(tmp_path, "home/.cache/boundby/nsys/2024.1.1/target-linux-x64", "2024.1.1")
    found = list(candidates(named, env=env, root=tmp_path / "root"))
    assert [each.found_in for each in found] == ["--nsys", "BOUNDBY_NSYS", "PATH", "install folder", "cache"]
    assert [each.release for each in found if isinstance(each, Nsys)] == [
        "2020.1.1",
        "2021.1.1",
        "2022.1.1",
        "2023.1.1",
        "2024.1.1",
    ]


def test_installed_ones_come_newest_first_by_what_they_say_themselves(tmp_path: Path, env: dict[str, str]) -> None:
    install(tmp_path, "opt/nvidia/nsight-systems/2023.4.4/target-linux-x64", "2023.4.4.54-1")
    install(tmp_path, "opt/nvidia/nsight-systems-cli/2024.10.1/bin", "2024.10.1.1-1")
    install(tmp_path, "usr/local/cuda-12.4/bin", "2024.9.1.5-1")
    install(tmp_path, "usr/lib/nsight-systems/bin", "2022.4.2.1-1")
    install(tmp_path, "home/nsight-systems-2025.1/bin", "2025.1.1.1-1")
    releases = [each.release for each in candidates(env=env, root=tmp_path) if isinstance(each, Nsys)]
    assert releases == ["2025.1.1", "2024.10.1", "2024.9.1", "2023.4.4", "2022.4.2"]


def test_one_file_is_listed_once(tmp_path: Path, env: dict[str, str]) -> None:
    path = install(tmp_path, "opt/nvidia/nsight-systems/2023.4.4/target-linux-x64", "2023.4.4.54-1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nsys").symlink_to(path)
    assert [each.found_in for each in candidates(env=env, root=tmp_path)] == ["PATH"]


@pytest.mark.parametrize("how", ["--nsys", "BOUNDBY_NSYS"])
@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0o755, "no such file"),
        ("#!/bin/sh\necho NVIDIA Nsight Systems version 1.2.3\n", 0o644, "not a program that can be run"),
        ("#!/bin/sh\necho something else 1.0\n", 0o755, "it says: something else 1.0"),
        ("#!/nowhere/sh\n", 0o755, "cannot be run"),
        ("#!/bin/sh\nexit 3\n", 0o755, "it says: nothing"),
    ],
)
def test_one_that_is_named_and_does_not_run_is_an_error_though_another_would(
    tmp_path: Path, env: dict[str, str], how: str, content: str | None, mode: int, reason: str
) -> None:
    install(tmp_path, "bin", "2023.1.1")
    named = tmp_path / "named"
    if content is not None:
        named.write_text(content)
        named.chmod(mode)
    if how == "BOUNDBY_NSYS":
        env["BOUNDBY_NSYS"] = str(named)
    with pytest.raises(ToolError, match=how) as caught:
        find_nsys(named if how == "--nsys" else None, env=env, root=tmp_path)
    assert reason in caught.value.message
    assert str(named) in caught.value.message
    assert caught.value.next_step


def test_one_in_path_that_does_not_run_is_passed_over_and_told(tmp_path: Path, env: dict[str, str]) -> None:
    broken = tmp_path / "bin/nsys"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ToolError, match=str(broken)):
        find_nsys(env=env, root=tmp_path)
    install(tmp_path, "opt/nvidia/nsight-systems/2023.4.4/bin", "2023.4.4")
    assert find_nsys(env=env, root=tmp_path).release == "2023.4.4"
    assert isinstance(next(iter(candidates(env=env, root=tmp_path))), Unusable)


def test_none_at_all_says_what_to_do(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ToolError, match="No nsys found") as caught:
        find_nsys(env=env, root=tmp_path)
    assert "BOUNDBY_NSYS" in caught.value.next_step
    assert "get-nsys" in caught.value.next_step


def test_one_that_hangs_is_given_up(tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys, "ANSWER_S", 0.3)
    hanging = tmp_path / "nsys"
    # The shell stays between us and what hangs, as a wrapper script of an installation does.
    hanging.write_text("#!/bin/sh\n/bin/sleep 60\necho late\n")
    hanging.chmod(0o755)
    with pytest.raises(ToolError, match="did not report its version"):
        find_nsys(hanging, env=env, root=tmp_path)


def test_a_folder_or_a_bare_name_may_be_named(tmp_path: Path, env: dict[str, str]) -> None:
    path = install(tmp_path, "unpacked/target-linux-x64", "2023.4.4")
    assert find_nsys(tmp_path / "unpacked", env=env).path == path
    assert find_nsys(path.parent, env=env).path == path
    in_path = install(tmp_path, "bin", "2022.1.1")
    assert find_nsys("nsys", env=env).path == in_path
    assert find_nsys("~/n/nsys", env={**env, "HOME": str(install(tmp_path, "h/n", "2021.1.1").parents[1])})


def test_a_version_that_is_not_told_is_none_and_sorts_last(tmp_path: Path, env: dict[str, str]) -> None:
    untold = install(tmp_path, "opt/nvidia/nsight-systems/9/bin", "unofficial build")
    install(tmp_path, "opt/nvidia/nsight-systems/1/bin", "2021.1.1")
    found = [each for each in candidates(env=env, root=tmp_path) if isinstance(each, Nsys)]
    assert [each.version for each in found] == ["2021.1.1", None]
    assert found[1].path == untold
    assert found[1].version_tuple == ()
    assert found[1].release == "of unknown version"


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/boundby"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/boundby"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/boundby"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "BOUNDBY_CACHE": "/b"}, "/b"),
        ({"HOME": "/h", "BOUNDBY_CACHE": "~/b"}, "/h/b"),
    ],
)
def test_cache_folder(env: dict[str, str], folder: str) -> None:
    assert cache_folder(env) == Path(folder)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2023.4.4.54-234433681190v0", (2023, 4, 4, 54)),
        ("2022.4.2.1-df9881f", (2022, 4, 2, 1)),
        ("2024.10.1", (2024, 10, 1)),
        ("unknown", ()),
    ],
)
def test_version_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers
