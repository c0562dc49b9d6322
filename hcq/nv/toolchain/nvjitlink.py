"""nvJitLink: PTX (and cubins) to one cubin, in this process.

In       PTX text, an architecture such as sm_90
Out      the bytes of a cubin
Changes  opens the library at the first call
Next     nvrtc.py (CUDA C), hcq/nv/cubin.py (what a cubin says)
Source   nvJitLink.h; its functions also exist without the version in their names, and those we call
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.nv.toolchain.library import Library, open_library
from hcq.system import native

PACKAGE = "nvidia-nvjitlink"
PROTOTYPES = {
    "nvJitLinkVersion": "int(*)(unsigned int *, unsigned int *)",
    "nvJitLinkCreate": "int(*)(uintptr_t *, unsigned int, char **)",
    "nvJitLinkDestroy": "int(*)(uintptr_t *)",
    "nvJitLinkAddData": "int(*)(uintptr_t, int, void *, size_t, char *)",
    "nvJitLinkComplete": "int(*)(uintptr_t)",
    "nvJitLinkGetLinkedCubinSize": "int(*)(uintptr_t, size_t *)",
    "nvJitLinkGetLinkedCubin": "int(*)(uintptr_t, void *)",
    "nvJitLinkGetInfoLogSize": "int(*)(uintptr_t, size_t *)",
    "nvJitLinkGetInfoLog": "int(*)(uintptr_t, char *)",
    "nvJitLinkGetErrorLogSize": "int(*)(uintptr_t, size_t *)",
    "nvJitLinkGetErrorLog": "int(*)(uintptr_t, char *)",
}
INPUT_CUBIN, INPUT_PTX = 1, 2
# checked by us: for an -arch such as sm_3 the library does not return but ends the process (seen with 13.5)
ARCHITECTURE = re.compile(r"sm_\d{2,3}[af]?")
STATUS = (
    "success", "unrecognized option", "missing -arch", "invalid input", "the PTX does not compile",
    "NVVM does not compile", "internal error", "thread pool", "unrecognized input", "finalizer error", "null input",
    "incompatible options", "incorrect input type", "architectures differ", "the library is older than the input",
    "missing fatbin", "unrecognized -arch", "unsupported -arch",
)  # fmt: skip


@functools.cache
def library() -> Library:
    """nvJitLink, opened once."""
    return open_library("nvJitLink", PACKAGE, PROTOTYPES)


def version() -> tuple[int, int]:
    """The CUDA version it belongs to."""
    major, minor = native.new("unsigned int[1]"), native.new("unsigned int[1]")
    _check(library().nvJitLinkVersion(major, minor), "nvJitLinkVersion()")
    return int(major[0]), int(minor[0])


class Assembled(NamedTuple):
    """A cubin, and what the assembler says of it."""

    cubin: bytes
    log: str


def link_ptx(ptx: str | Sequence[str], arch: str = "sm_90", options: Sequence[str] = ()) -> bytes:
    """Assemble PTX for one GPU. Several texts are linked with each other.

    options    more options of nvJitLink, such as "-O3"
    Raises     UsageError with the assembler's messages
    """
    return assemble(ptx, arch, options).cubin


def assemble(ptx: str | Sequence[str], arch: str = "sm_90", options: Sequence[str] = ()) -> Assembled:
    """`link_ptx` with what the assembler tells: its warnings, and with "-verbose" registers and spills of each kernel.

    Raises     UsageError with the assembler's messages
    """
    if ARCHITECTURE.fullmatch(arch) is None:
        raise UsageError(f"nvJitLink: arch={arch!r} is not an architecture. Write sm_90, sm_90a, ...")
    texts = [ptx] if isinstance(ptx, str) else list(ptx)
    linker = library()
    words = [f"-arch={arch}", *options]
    handle = native.new_handle()
    strings = [native.new("char[]", word.encode()) for word in words]
    call = f"nvJitLinkCreate({' '.join(words)})"
    _check(linker.nvJitLinkCreate(handle, len(strings), native.new("char *[]", strings)), call)
    try:
        for number, text in enumerate(texts):
            data = native.new("char[]", text.encode())
            name = f"input{number}.ptx"
            status = linker.nvJitLinkAddData(handle[0], INPUT_PTX, data, len(data), name.encode())
            _check(status, f"nvJitLinkAddData({name!r}, {len(data)} bytes) for {arch}", handle)
        _check(linker.nvJitLinkComplete(handle[0]), f"nvJitLinkComplete() for {arch}", handle)
        size = native.new("size_t[1]")
        _check(linker.nvJitLinkGetLinkedCubinSize(handle[0], size), "nvJitLinkGetLinkedCubinSize()", handle)
        cubin = native.new("char[]", int(size[0]))
        _check(linker.nvJitLinkGetLinkedCubin(handle[0], cubin), "nvJitLinkGetLinkedCubin()", handle)
        return Assembled(native.read(native.address(cubin), int(size[0])), _log(handle, "Info"))
    finally:
        linker.nvJitLinkDestroy(handle)


def _check(status: int, call: str, handle: Any = None) -> None:
    if not status:
        return
    word = STATUS[status] if 0 <= status < len(STATUS) else "unknown status"
    log = "" if handle is None else _log(handle, "Error")
    raise UsageError(f"{call} -> {word} ({status}), from {library().path}.{log}")


def _log(handle: Any, kind: str) -> str:
    """The log of this kind, "Error" or "Info"; "" where there is none."""
    linker, size = library(), native.new("size_t[1]")
    if getattr(linker, f"nvJitLinkGet{kind}LogSize")(handle[0], size) or not size[0]:
        return ""
    text = native.new("char[]", int(size[0]) + 1)
    if getattr(linker, f"nvJitLinkGet{kind}Log")(handle[0], text):
        return ""
    return "\n" + native.text_at(text).strip()
