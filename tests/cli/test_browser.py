"""``--open``: the page, Perfetto by a server that ends when it is loaded, and what is said without a screen."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from boundby.cli import analyze
from boundby.cli.main import main

SAMPLE = "sample_reports/simulated_sync.sqlite"


def test_the_page_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(analyze, "has_screen", lambda _: True)

    def opens(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    assert main(["analyze", SAMPLE, "--open"]) == 0
    (address,) = opened
    assert address.startswith("file:///")
    assert "Content-Security-Policy" in urllib.request.urlopen(address).read().decode()


def test_perfetto_loads_the_trace_once_and_the_server_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "a trace.pftrace"
    trace.write_bytes(b"packets")
    (tmp_path / "secret").write_text("x")
    got: list[tuple[bytes, str | None]] = []

    def load(address: str) -> None:
        local = address.partition("?url=")[2]
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(local.replace("a%20trace.pftrace", "secret"))
        with urllib.request.urlopen(local) as answer:
            got.append((answer.read(), answer.headers["Access-Control-Allow-Origin"]))

    threads: list[threading.Thread] = []

    def opens(address: str) -> bool:
        assert address.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
        threads.append(threading.Thread(target=load, args=(address,)))
        threads[0].start()
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    assert analyze.serve(trace, port=0)
    threads[0].join()
    assert got == [(b"packets", "https://ui.perfetto.dev")]


def test_a_server_that_nobody_asks_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert not analyze.serve(tmp_path / "t.pftrace", port=0, wait_s=0.01)
    assert "nobody loaded" in capsys.readouterr().err


def test_over_ssh_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert main(["analyze", SAMPLE, "--open"]) == 0
    assert "On your machine: scp HOST:" in capsys.readouterr().err
    assert not analyze.has_screen({"SSH_TTY": "/dev/pts/1", "DISPLAY": ":0"})


def test_only_what_a_browser_shows_is_opened(tmp_path: Path) -> None:
    assert main(["analyze", SAMPLE, "--open", "-o", str(tmp_path / "r.json")]) == 2
