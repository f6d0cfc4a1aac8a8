"""Which backend is chosen, and that nothing is imported for it."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from boundby.annotate import backends, nvtx_range, steps
from boundby.annotate.backends import Label, NoBackend, NvtxBackend, TorchBackend
from tests.support.nsys import environment


class FakeNvtx:
    """torch.cuda.nvtx, which writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def range_push(self, name: str) -> None:
        self.told.append(("push", name))

    def range_pop(self) -> None:
        self.told.append(("pop", None))

    def range_start(self, name: str) -> int:
        self.told.append(("start", name))
        return 7

    def range_end(self, handle: int) -> None:
        self.told.append(("end", handle))


def fake_torch(*, cuda: bool) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        _C=types.SimpleNamespace(**({"_nvtx": object()} if cuda else {})), cuda=types.SimpleNamespace(nvtx=FakeNvtx())
    )


@pytest.fixture
def _undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "chosen", None)
    monkeypatch.delenv(backends.SWITCH, raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.usefixtures("_undecided")
def test_torch_serves_where_a_cuda_build_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(cuda=True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert backends.backend() == "torch"
    with nvtx_range("x", color="red"):
        pass
    marker = backends.current().marker(Label("y"))
    assert marker is not None
    marker.end(marker.start())
    assert torch.cuda.nvtx.told == [("push", "x"), ("pop", None), ("start", "y"), ("end", 7)]


@pytest.mark.usefixtures("_undecided")
def test_the_nvtx_package_serves_where_torch_has_no_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvtx", reason="the nvtx package is not installed")
    monkeypatch.setitem(sys.modules, "torch", fake_torch(cuda=False))
    assert backends.backend() == "nvtx"
    with nvtx_range("x", domain="d", color="#102030", category="c"), nvtx_range("y", category=3):
        pass


def test_a_domain_goes_to_the_nvtx_package_or_else_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(cuda=True)
    served: list[Label] = []
    other = types.SimpleNamespace(marker=served.append)
    monkeypatch.setattr(backends, "_nvtx_backend", lambda: other)
    TorchBackend(torch).marker(Label("x", "d"))
    assert served == [Label("x", "d")]
    monkeypatch.setattr(backends, "_nvtx_backend", lambda: None)
    marker = TorchBackend(torch).marker(Label("x", "d"))
    assert marker is not None
    marker.push()
    assert torch.cuda.nvtx.told == [("push", "x")]


@pytest.mark.usefixtures("_undecided")
@pytest.mark.parametrize("value", ["off", "OFF", "0", "no", " false "])
def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(backends.SWITCH, value)
    monkeypatch.setitem(sys.modules, "torch", fake_torch(cuda=True))
    assert backends.backend() == "none"
    with nvtx_range("x"):
        pass


@pytest.mark.usefixtures("_undecided")
def test_nothing_is_looked_for_again_unless_nothing_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_nvtx_backend", lambda: None)
    assert backends.backend() == "none"
    monkeypatch.setitem(sys.modules, "torch", fake_torch(cuda=True))
    assert backends.backend() == "none"
    assert backends.reconsider().name == "torch"
    monkeypatch.delitem(sys.modules, "torch")
    assert backends.reconsider().name == "torch"


def test_a_decorator_follows_the_backend_in_use() -> None:
    marked = nvtx_range("x")
    with backends.using(NoBackend()), marked:
        pass
    torch = fake_torch(cuda=True)
    with backends.using(TorchBackend(torch)), marked:
        pass
    assert torch.cuda.nvtx.told == [("push", "x"), ("pop", None)]


def test_the_nvtx_package_can_switch_itself_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", types.SimpleNamespace(enabled=lambda: False))
    assert backends._nvtx_backend.__wrapped__() is None


def test_names_made_up_as_the_program_runs_are_not_kept_without_end() -> None:
    nvtx = types.SimpleNamespace(annotate=lambda *_, **__: _Annotation(), start_range=print, end_range=print)
    backend = NvtxBackend(nvtx)
    for number in range(backends.MARKERS_KEPT + 10):
        backend.marker(Label(f"name {number}"))
    assert backend.marker.cache_info().currsize == backends.MARKERS_KEPT


class _Annotation:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, boundby.annotate;"
        "print([name for name in ('torch', 'nvtx', 'numpy', 'asyncio') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert answer.stdout.strip() == "[]"


def test_torchs_profiler_sees_ranges_where_it_records(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(backends, "chosen", None)
    monkeypatch.delenv(backends.SWITCH, raising=False)
    monkeypatch.setitem(sys.modules, backends.PROFILER, types.SimpleNamespace(step=lambda: None, _running=object()))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        for number in steps([0, 1], warmup=1):
            with nvtx_range("outer"), nvtx_range(f"inner {number}", domain="mine"):
                pass
    assert backends.backend() == "torch.profiler"
    ranges = [event.name for event in recorded.events() if not event.name.startswith("aten::")]
    assert ranges == ["outer", "inner 0", "outer", "inner 1"]  # the profiler draws steps itself
