"""What the names of Python frames say, as the PyTorch profiler writes them: ``train.py(31): step``,
``<built-in method item of Tensor object at 0x7f3a>``."""

from __future__ import annotations

import re
import sys
from functools import cached_property, lru_cache

from msgspec import Struct

from boundby.model.late import expression
from boundby.trace.vocabulary.os import SLEEPS

_PLACE = expression(r"^(.+?)\((\d+)\): (.+)$", re.DOTALL)
_BUILT_IN = expression(r"^<built-in (?:method|function) (\w+)")
# Functions of C in which a thread sleeps or waits in the operating system, by what on: see SLEEPS in os.py.
_SLEEPING = {
    "acquire": "lock",
    "wait": "condition",
    "sleep": "sleep",
    **dict.fromkeys(("waitpid", "wait4", "run_backward"), "thread or process"),  # run_backward: autograd's threads
    **dict.fromkeys(("select", "poll", "epoll", "kevent"), "poll"),
    **dict.fromkeys(("recv", "recv_into", "recvfrom", "recvmsg", "accept", "connect", "sendall"), "network"),
    **dict.fromkeys(("read", "readinto", "readline", "readall", "fsync"), "file"),
}
# Packages whose frames stand between the program's own lines and the device: no line in them is the program's.
_FRAMEWORKS = expression(
    r"^(?:torch\w*|functorch|triton|numpy|scipy|pandas|PIL|cv2|jax\w*|flax|cupyx?|numba|deepspeed|accelerate|apex"
    r"|megatron|einops|xformers|flash_attn|flashinfer|aiter|nvtx|boundby|tqdm|ray|fsspec|sklearn|dask|distributed"
    r"|IPython|ipykernel)/|/torchinductor_|^<|(?:^|/)triton(?:-custom)?/python/triton/"
)
_LIBRARIES = expression(
    r"^(?:transformers|diffusers|lightning|pytorch_lightning|lightning_fabric|timm|vllm|sglang|peft|trl|datasets"
    r"|tensorrt_llm|sentence_transformers|ultralytics|monai)/|/(?:vllm|sglang)/"
)
# What of boundby runs inside a program that it records.
_BOUNDBY = expression(r"(?:^|/)boundby/(?:annotate|capture|experiment|integrations|measure)/")
# Where torch works off what it was told, and what it does there: no line of the program decides how.
_PROFILER = expression(r"(?:^|/)torch/(?:profiler/|autograd/profiler\.py)")
_ENGINE = expression(r"(?:^|/)torch/(autograd|optim)/\w+\.py$")
ENGINES = {"autograd": "backward pass", "optim": "optimizer step"}
_INSTALLED = expression(r"(?:^|/)lib/python\d[\d.]*/(?:(?:site|dist)-packages/)?|(?:^|/)(?:site|dist)-packages/")
#: Of a loader's range: it waits for processes that make its batches.
WAITS_FOR_WORKERS = expression(r"^enumerate\(DataLoader\)#_MultiProcessing")
#: Of a loader's range.
LOADER = expression(r"^enumerate\(DataLoader\)#")


class Frame(Struct, frozen=True, dict=True):
    """A Python function, or one of C that Python calls, without a file. ``line`` 0: not told."""

    function: str
    file: str
    line: int

    @property
    def label(self) -> str:
        """``step (train.py:31)``, ``Tensor.item``."""
        line = f":{self.line}" if self.line else ""
        return f"{self.function} ({self.file.rsplit('/', 1)[-1]}{line})" if self.file else self.function

    @cached_property
    def distance(self) -> int:
        """How far from the program's own code: 0 its own, 1 a library of models or servers, 2 a framework or Python."""
        if not self.file or _FRAMEWORKS.search(self.file) or is_boundby(self.file):
            return 2
        inside = _INSTALLED.split(self.file)[-1]
        if _FRAMEWORKS.search(inside) or inside.split("/")[0].removesuffix(".py") in sys.stdlib_module_names:
            return 2
        return 1 if _LIBRARIES.search(inside) or inside != self.file else 0


def library_of(file: str) -> str:
    """``vllm``, of a file that is a library's of models or servers; empty for the program's own."""
    if Frame("", file, 0).distance != 1:
        return ""
    inside = _INSTALLED.split(file)[-1]
    library = _LIBRARIES.search(inside)
    return library[0].strip("/") if library else inside.partition("/")[0].removesuffix(".py")


def is_profiler(file: str) -> bool:
    """Whether a Python file is the profiler's, or boundby's, which starts it."""
    return is_boundby(file) or _PROFILER.search(file) is not None


def is_boundby(file: str) -> bool:
    """Whether a Python file is boundby's own."""
    return _BOUNDBY.search(file) is not None


def engine_of(file: str) -> str:
    """What torch does in a file of its own that works off what it was told (``backward pass``); else empty."""
    match = _ENGINE.search(file)
    return ENGINES[match[1]] if match else ""


@lru_cache(maxsize=1 << 16)
def read_frame(name: str) -> Frame:
    """A frame by its name."""
    if match := _PLACE.match(name):
        return Frame(match[3], match[1], int(match[2]))
    built_in = _BUILT_IN.match(name)
    return Frame(built_in[1] if built_in else name, "", 0)


def sleeps_on(name: str) -> str | None:
    """What a thread whose innermost frame has this name waits for in the operating system; None: it does not."""
    built_in = _BUILT_IN.match(name)
    return _SLEEPING.get(built_in[1]) if built_in else None


def sleep_kind_of_frame(name: str) -> int:
    """The place of ``sleeps_on`` in `SLEEPS`; -1 where it sleeps on nothing."""
    what = sleeps_on(name)
    return -1 if what is None else SLEEPS.index(what)
