"""``--open``: show a page, or a Perfetto trace, in the browser of whoever sits at this machine."""

from __future__ import annotations

import functools
import os
import sys
import webbrowser
from collections.abc import Mapping
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import click

from boundby.model.scale import ANSWER_S

PERFETTO = "https://ui.perfetto.dev"
PORT = 9001  # the one that Perfetto's page may load from


def show(path: Path, *, port: int = PORT, wait_s: float = ANSWER_S) -> None:
    """Open it, or say what to do where nobody would see it."""
    is_trace = path.suffix in (".pftrace", ".perfetto-trace")
    if not has_screen(os.environ):
        click.echo(f"boundby: {_advice(path, is_trace)}", err=True)
    elif is_trace:
        serve(path, port=port, wait_s=wait_s)
    elif not webbrowser.open(path.resolve().as_uri()):
        click.echo(f"boundby: no browser could be started; open {path.resolve()}", err=True)


def has_screen(environment: Mapping[str, str]) -> bool:
    """Whether a browser that is started here shows itself to the user: not over ssh, and not without a display."""
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return False
    return sys.platform != "linux" or any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _advice(path: Path, is_trace: bool) -> str:
    where = path.resolve()
    if is_trace:
        return f"no screen here. On your machine: scp HOST:{where} . and open the file at {PERFETTO}"
    return f"no screen here. On your machine: scp HOST:{where} . and open it (the page is one file)"


def serve(path: Path, *, port: int = PORT, wait_s: float = ANSWER_S) -> bool:
    """Let Perfetto's page load a trace from this machine: one file, once, to nobody else. Whether it was loaded."""
    loaded = False

    class OneFile(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal loaded
            if self.path.partition("?")[0] != f"/{quote(path.name)}":
                self.send_error(404)
                return
            super().do_GET()
            loaded = True

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", PERFETTO)
            self.send_header("Cache-Control", "no-cache")
            super().end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    class Once(HTTPServer):
        allow_reuse_address = True
        timeout = wait_s
        is_late = False

        def handle_timeout(self) -> None:
            self.is_late = True

    try:
        server = Once(("127.0.0.1", port), functools.partial(OneFile, directory=str(path.resolve().parent)))
    except OSError as error:
        click.echo(f"boundby: port {port} is taken ({error.strerror}); open {path} at {PERFETTO}", err=True)
        return False
    with server:
        address = f"{PERFETTO}/#!/?url=http://127.0.0.1:{server.server_port}/{quote(path.name)}"
        if not webbrowser.open(address):
            click.echo(f"boundby: open {address}", err=True)
        while not loaded and not server.is_late:
            server.handle_request()
    if not loaded:
        click.echo(f"boundby: nobody loaded {path} within {wait_s:g} s; open it at {PERFETTO}", err=True)
    return loaded
