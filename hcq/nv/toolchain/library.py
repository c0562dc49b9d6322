"""Where NVIDIA's compiler libraries are: in the pip wheels, beside a CUDA toolkit, or where the loader finds them.

In       the name of a library
Out      Library: its functions by prototype, its path
Changes  opens the library once per process
Next     nvrtc.py, nvjitlink.py
Source   wheel contents: nvidia/cu13/lib/libnvrtc.so.13 (CUDA 13), nvidia/cuda_nvrtc/lib/libnvrtc.so.12 (CUDA 12)
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcq.errors import UsageError
from hcq.system import native

SYSTEM_FOLDERS = (
    "/usr/local/cuda/lib64",
    "/opt/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
MAJORS = (13, 12)


class Library:
    """An opened library; its functions are called as attributes of the prototypes given."""

    def __init__(self, name: str, path: str, handle: int, prototypes: Mapping[str, str]) -> None:
        self.name = name
        self.path = path
        self._handle = handle
        self._functions: dict[str, Any] = {}
        for function, prototype in prototypes.items():
            at = native.library_symbol(handle, function)
            if not at:
                raise UsageError(
                    f"{name}: {path} has no function {function}. Install a newer one: pip install hcq[nv]."
                )
            self._functions[function] = native.function(at, prototype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._functions:
            raise AttributeError(f"{self.name} has no function {name!r} here")
        return self._functions[name]

    def optional(self, name: str, prototype: str) -> Any | None:
        """A function that only newer versions have."""
        at = native.library_symbol(self._handle, name)
        return native.function(at, prototype) if at else None

    @property
    def folder(self) -> Path | None:
        """The folder it lies in, when that is known."""
        path = Path(self.path)
        return path.parent if path.is_absolute() else None


def candidates(name: str) -> list[str]:
    """Paths to try for libNAME, best first: newest wheel, toolkit folders, then plain names for the loader."""
    found: list[str] = []
    for folder in [*_wheel_folders(), *map(Path, SYSTEM_FOLDERS)]:
        matches = [path for path in folder.glob(f"lib{name}.so*") if re.search(r"\.so(\.\d+)*$", path.name)]
        found += [str(path) for path in sorted(matches, key=_version, reverse=True)]
    return [*found, *(f"lib{name}.so.{major}" for major in MAJORS), f"lib{name}.so"]


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name.partition(".so")[2]))


def _wheel_folders() -> list[Path]:
    """lib folders of the nvidia namespace package, newest CUDA first."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    new = [folder for root in roots for folder in root.glob("cu[0-9]*/lib")]
    old = [folder for root in roots for folder in root.glob("*/lib") if folder not in new]
    return [*sorted(new, reverse=True), *sorted(old)]


def open_library(name: str, package: str, prototypes: Mapping[str, str]) -> Library:
    """Open libNAME. Raises UsageError that says how to get it."""
    for path in candidates(name):
        if handle := native.library(path):
            return Library(name, path, handle, prototypes)
    raise UsageError(
        f"{name} is not installed: neither the pip wheel {package} nor a CUDA toolkit has lib{name}.so."
        " Install it with: pip install 'hcq[nv]'."
    )
