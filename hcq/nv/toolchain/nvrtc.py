"""nvrtc: CUDA C to PTX and to a cubin, in this process.

In       CUDA C source, an architecture such as sm_90
Out      Compiled: the PTX, the cubin, the compiler's log
Changes  opens the library at the first call; may unpack the CUDA headers it carries into the cache folder
Next     nvjitlink.py (PTX to cubin), hcq/nv/cubin.py (what a cubin says)
Source   nvrtc.h
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcq import config
from hcq.errors import UsageError
from hcq.nv.toolchain.library import Library, open_library
from hcq.system import native, private_files

PACKAGE = "nvidia-cuda-nvrtc"
PROTOTYPES = {
    "nvrtcVersion": "int(*)(int *, int *)",
    "nvrtcGetNumSupportedArchs": "int(*)(int *)",
    "nvrtcGetSupportedArchs": "int(*)(int *)",
    "nvrtcGetErrorString": "char *(*)(int)",
    "nvrtcCreateProgram": "int(*)(uintptr_t *, char *, char *, int, void *, void *)",
    "nvrtcDestroyProgram": "int(*)(uintptr_t *)",
    "nvrtcCompileProgram": "int(*)(uintptr_t, int, char **)",
    "nvrtcGetProgramLogSize": "int(*)(uintptr_t, size_t *)",
    "nvrtcGetProgramLog": "int(*)(uintptr_t, char *)",
    "nvrtcGetPTXSize": "int(*)(uintptr_t, size_t *)",
    "nvrtcGetPTX": "int(*)(uintptr_t, char *)",
    "nvrtcGetCUBINSize": "int(*)(uintptr_t, size_t *)",
    "nvrtcGetCUBIN": "int(*)(uintptr_t, char *)",
}
INSTALL_HEADERS = "int(*)(char *, unsigned int, char **)"
COMPILATION = 6  # NVRTC_ERROR_COMPILATION: the source is wrong, and the log says where
INVALID_OPTION = 5
ARCHITECTURE = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


class Compiled(NamedTuple):
    """What nvrtc made. cubin is empty when only PTX was asked for (compute_90)."""

    ptx: str
    cubin: bytes
    log: str


@functools.cache
def library() -> Library:
    """nvrtc, opened once."""
    return open_library("nvrtc", PACKAGE, PROTOTYPES)


def version() -> tuple[int, int]:
    """The CUDA version it belongs to."""
    numbers = native.new("int[2]")
    _check(library().nvrtcVersion(numbers, numbers + 1), "nvrtcVersion()")
    return int(numbers[0]), int(numbers[1])


def supported_architectures() -> tuple[int, ...]:
    """The numbers of sm_NN that it compiles for."""
    count = native.new("int[1]")
    _check(library().nvrtcGetNumSupportedArchs(count), "nvrtcGetNumSupportedArchs()")
    numbers = native.new("int[]", int(count[0]))
    _check(library().nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs()")
    return tuple(int(number) for number in numbers)


def compile_cuda(
    source: str, arch: str = "sm_90", options: Sequence[str] = (), name: str = "kernel.cu"
) -> Compiled:
    """Compile CUDA C. Kernels should be extern "C", or their names are mangled.

    arch       sm_90: PTX and cubin; compute_90: PTX only
    options    more options of nvrtc, such as "--use_fast_math"
    Raises     UsageError with the compiler's messages
    """
    _check_architecture(arch)
    nvrtc = library()
    words = [f"--gpu-architecture={arch}", "--std=c++17", *_include_options(source), *options]
    program = native.new_handle()
    call = f"nvrtcCreateProgram({name!r})"
    _check(
        nvrtc.nvrtcCreateProgram(
            program, source.encode(), name.encode(), 0, native.pointer(0), native.pointer(0)
        ),
        call,
    )
    try:
        texts = [native.new("char[]", word.encode()) for word in words]
        status = nvrtc.nvrtcCompileProgram(program[0], len(texts), native.new("char *[]", texts))
        log = _get(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode("utf-8", "replace")
        if status in (COMPILATION, INVALID_OPTION):
            raise UsageError(
                f"nvrtc: {name} does not compile for {arch} with {' '.join(words)}:\n{log.strip()}"
            )
        _check(status, f"nvrtcCompileProgram({name!r}, {' '.join(words)})", log)
        ptx = _get(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode("utf-8", "replace")
        cubin = b""
        if arch.startswith("sm_"):
            cubin = _get(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, ends_in_zero=False)
        return Compiled(ptx, cubin, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _check_architecture(arch: str) -> None:
    match = ARCHITECTURE.fullmatch(arch)
    if match is None:
        raise UsageError(
            f"nvrtc: arch={arch!r} is not an architecture. Write sm_90 (cubin) or compute_90 (PTX only)."
        )
    if int(match[1]) not in supported_architectures():
        known = ", ".join(f"sm_{number}" for number in supported_architectures())
        major, minor = version()
        raise UsageError(f"nvrtc {major}.{minor} does not compile for {arch}. It knows {known}.")


def _get(program: Any, size_of: Any, get: Any, ends_in_zero: bool = True) -> bytes:
    """One result of a program: its size, then its bytes."""
    size = native.new("size_t[1]")
    _check(size_of(program[0], size), "nvrtc: size of a result")
    if not size[0]:
        return b""
    buffer = native.new("char[]", int(size[0]))
    _check(get(program[0], buffer), "nvrtc: a result")
    data = native.read(native.address(buffer), int(size[0]))
    return data[:-1] if ends_in_zero else data


def _check(status: int, call: str, log: str = "") -> None:
    if status:
        word = native.text_at(library().nvrtcGetErrorString(status))
        raise UsageError(f"{call} -> {word} ({status}), from {library().path}. {log}".rstrip())


# -- headers


def _include_options(source: str) -> list[str]:
    """Where cuda_fp16.h and its like are: asked only for sources that include something."""
    if "#include" not in source:
        return []
    folder = header_folder()
    if folder is None:
        return []
    return [f"--include-path={path}" for path in (folder, folder / "cccl") if path.is_dir()]


@functools.cache
def header_folder() -> Path | None:
    """The CUDA headers: those that nvrtc carries (13.5 on), unpacked into the cache; else those beside the library."""
    install = library().optional("nvrtcInstallBundledHeaders", INSTALL_HEADERS)
    if install is not None:
        return _unpack_headers(install)
    near = library().folder
    for folder in [near.parent / "include", near.parent.parent / "cuda_runtime" / "include"] if near else []:
        if (folder / "cuda_fp16.h").is_file():
            return folder
    return None


def _unpack_headers(install: Any) -> Path:
    """26 MB of headers, once per version: nvrtc itself locks the folder and marks it complete."""
    major, minor = version()
    folder = config.current().cache_dir / f"cuda-headers-{major}.{minor}"
    message = native.new("char *[1]")
    try:
        above = private_files.open_folder(folder.parent, make=True)
        try:
            # headers of others would be their code
            os.close(private_files.open_inner(above, folder.name, make=True))
        finally:
            os.close(above)
        status = install(str(folder).encode(), 0, message)
    except OSError as error:
        raise UsageError(
            f"nvrtc: no room for the CUDA headers in {folder}: {error}. Set HCQ_CACHE_DIR."
        ) from None
    if status:
        why = native.text_at(message[0]) if native.address(message[0]) else "no reason given"
        raise UsageError(
            f"nvrtcInstallBundledHeaders({folder}) -> {status}: {why}. Set HCQ_CACHE_DIR to a writable one."
        )
    return folder
