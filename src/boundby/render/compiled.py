"""Compiled templates, kept where Python keeps compiled modules, and under its rules: compiling takes as long as the
rest of a small report's page."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from boundby import __about__
from boundby.model import door

_FOLDER = Path(__file__).parent


class CompiledTemplates(BytecodeCache):
    """One file a template, of this version of Python, Jinja and boundby; one that cannot be read or written is none."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        return super().get_cache_key(f"{name} {jinja2.__version__} {__about__.__version__}", filename)

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(Exception):  # as of a damaged one, which is written anew
            bucket.bytecode_from_string(door.read_bytes(_path(bucket)))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        path = _path(bucket)
        part = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                part.write_bytes(bucket.bytecode_to_string())
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


def _path(bucket: Bucket) -> Path:
    return Path(cache_from_source(str(_FOLDER / f"{bucket.key}.py")))
