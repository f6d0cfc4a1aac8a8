"""Build the native core (src/boundby/native) when boundby is installed or packed.

With the machine's own C compiler (``CC``, cc, gcc or clang), else with zig from PyPI, which is fetched for the build
where pip can have it. ``python hatch_build.py`` builds it in place. For wheels to be given away,
``BOUNDBY_NATIVE_TARGET`` names a target below and zig builds for it, whatever the machine. Where nothing can build it,
boundby is installed without, and refuses to analyse anything.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

NATIVE = Path(__file__).parent / "src" / "boundby" / "native"
#: What BOUNDBY_NATIVE_TARGET may be: zig's name for it, the wheel's, the library's ending.
TARGETS = {
    "x86_64-linux": ("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", ".so"),
    "aarch64-linux": ("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", ".so"),
    "x86_64-macos": ("x86_64-macos.11.0", "macosx_11_0_x86_64", ".dylib"),
    "aarch64-macos": ("aarch64-macos.11.0", "macosx_11_0_arm64", ".dylib"),
    "x86_64-windows": ("x86_64-windows-gnu", "win_amd64", ".dll"),
}
#: -fwrapv: overflow is defined; no file needs the C library.
FLAGS = ("-std=c11", "-O2", "-g0", "-fwrapv", "-fvisibility=hidden", "-shared", "-Wall", "-Wextra")
#: zig is 80 MB: what a slow line needs for that, and not so long that an install without a network seems to hang.
FETCH_TIMEOUT_S = 300
ENDINGS = {"win32": ".dll", "darwin": ".dylib"}


class CustomBuildHook(BuildHookInterface):
    """Hatchling's hook: builds the library, then puts it into the wheel and the platform into its name."""

    def dependencies(self) -> list[str]:
        """zig, where it must be there. Where it would only be nice, an install must not fail for want of it."""
        return ["ziglang"] if os.environ.get("BOUNDBY_NATIVE_TARGET") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        target = os.environ.get("BOUNDBY_NATIVE_TARGET")
        try:
            with zig_at_hand() if not target and compiler() is None else nullcontext():
                library = build(target)
        except (OSError, subprocess.SubprocessError) as error:
            if target:
                raise
            self.app.display_warning(
                f"boundby's native core was not built ({error}): without it, nothing can be analysed. "
                "With a C compiler, or where pip can fetch ziglang, install boundby again."
            )
            return
        if version == "editable":
            return
        platform = TARGETS[target][1] if target else sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(library)] = f"boundby/native/{library.name}"


def compiler() -> list[str] | None:
    """The machine's C compiler; None without one."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    return None


@contextmanager
def zig_at_hand() -> Iterator[None]:
    """Let ``python -m ziglang`` run while a library is built, fetched by pip if need be. Raises OSError or
    SubprocessError where it cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        if importlib.util.find_spec("ziglang") is None:
            say("no C compiler is here: zig (80 MB) is fetched from PyPI to build the native core, which takes minutes")
            fetch = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", folder, "ziglang"]
            subprocess.run([*pip(), *fetch], check=True, timeout=FETCH_TIMEOUT_S, capture_output=True)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def say(text: str) -> None:
    """Tell whoever installs: by the terminal, too, where pip keeps what a build prints to itself."""
    print(f"boundby: {text}", file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        with suppress(OSError), open("/dev/tty", "w", encoding="utf-8") as terminal:  # noqa: PTH123
            terminal.write(f"\nboundby: {text}\n")


def pip() -> list[str]:
    """A command that runs pip: this Python's, or, in an environment that only builds, the one that Python came with."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    bundled = importlib.util.find_spec("ensurepip")
    wheels = sorted(Path(str(bundled.origin)).parent.glob("_bundled/pip-*.whl")) if bundled else []
    if not wheels:
        raise OSError("no C compiler was found, nor pip to fetch one")
    return [sys.executable, str(wheels[-1] / "pip")]


def build(target: str | None = None, *options: str, folder: Path = NATIVE) -> Path:
    """Build the library, beside its sources or in another folder, and return its path. Raises OSError or
    CalledProcessError."""
    if target and target not in TARGETS:
        raise OSError(f"BOUNDBY_NATIVE_TARGET={target} is none of {', '.join(TARGETS)}")
    zig_target, _, ending = TARGETS[target] if target else ("", "", ENDINGS.get(sys.platform, ".so"))
    command = compiler() if target is None else None
    if command is None:
        command = [sys.executable, "-m", "ziglang", "cc", *(("-target", zig_target) if zig_target else ())]
    library = folder / f"boundby_core{ending}"
    made = library.with_name(f"{library.name}.{os.getpid()}")  # two builds at once do not meet
    crc = zlib.crc32(b"".join(path.read_bytes() for path in sorted(NATIVE.glob("*.[ch]"))))
    position = () if ending == ".dll" else ("-fPIC",)
    files = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    arguments = [*FLAGS, *position, *options, f"-DBOUNDBY_SOURCES={crc}u", "-o", str(made), *files]
    subprocess.run([*command, *arguments], check=True)
    made.replace(library)
    return library


if __name__ == "__main__":
    print(build(os.environ.get("BOUNDBY_NATIVE_TARGET")))
