"""Running PTX in tests: a few instructions over arrays, whole kernels over buffers, CUDA C through nvrtc."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import shutil
import struct
import subprocess
import tempfile
from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.counters import counted
from hcq.emu.nv.shader.memory import AddressSpace
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.program import code_addresses
from hcq.emu.nv.shader.run import Kernel, Report
from hcq.emu.nv.shader.syntax import Module

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
HEADER = ".version 8.3\n.target sm_90\n.address_size 64\n"


def _library_is_there(name: str) -> bool:
    if importlib.util.find_spec("nvidia") is None:
        return False
    from hcq.errors import UsageError
    from hcq.nv.toolchain import nvjitlink, nvrtc

    try:
        (nvrtc if name == "nvrtc" else nvjitlink).library()
    except UsageError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _library_is_there("nvrtc"), reason="needs nvrtc: pip install 'hcq[nv]'")
needs_nvjitlink = pytest.mark.skipif(
    not _library_is_there("nvJitLink"), reason="needs nvJitLink: pip install 'hcq[nv]'"
)


def needs_header(name: str) -> pytest.MarkDecorator:
    """For tests of CUDA C that includes a header: nvrtc carries them from 13.5 on, else a wheel may have them."""

    def is_there() -> bool:
        if not _library_is_there("nvrtc"):
            return False
        from hcq.nv.toolchain import nvrtc

        folder = nvrtc.header_folder()
        return folder is not None and (folder / name).is_file()

    return pytest.mark.skipif(
        not is_there(), reason=f"needs {name}: an nvrtc that carries the CUDA headers (13.5 on)"
    )


def initial_data(module: Module, name: str, symbols: dict[str, int]) -> bytes:
    """The first contents of a .global or .const variable, with the addresses it holds filled in."""
    variable = module.variables[name]
    known = {**code_addresses(module, symbols), **symbols}
    data = bytearray(variable.data.ljust(variable.size_bytes, b"\0"))
    for piece in variable.addresses:
        value = (known[piece.symbol] + piece.addend) >> piece.shift
        data[piece.at : piece.at + piece.size_bytes] = (value % (1 << 8 * piece.size_bytes)).to_bytes(
            piece.size_bytes, "little"
        )
    return bytes(data)


class Launch:
    """Buffers at addresses, and kernels over them. Buffers are NumPy arrays, changed in place."""

    def __init__(self) -> None:
        self.memory = AddressSpace()
        self.next = 0x1000_0000

    def buffer(self, array: np.ndarray[Any, Any], is_writable: bool = True) -> int:
        va = self.next
        self.memory.map(va, array, is_writable)
        self.next += -(-array.nbytes // 4096) * 4096 + 4096
        return va

    def load(self, ptx: str, entry: str, counts: bool = False) -> Kernel:
        """A kernel whose module's variables have memory of their own; it stays readable in self.variables."""
        module = parse(ptx)
        symbols: dict[str, int] = {}
        self.variables: dict[str, np.ndarray[Any, Any]] = {}
        for variable in module.variables.values():
            if variable.space in ("global", "const"):
                self.variables[variable.name] = np.zeros(max(variable.size_bytes, 1), np.uint8)
                symbols[variable.name] = self.buffer(self.variables[variable.name])
        for name in symbols:
            data = np.frombuffer(initial_data(module, name, symbols), np.uint8)
            self.variables[name][: len(data)] = data
        return Kernel(module, entry, symbols, additions=(counted,) * counts)

    def run(
        self, kernel: Kernel, grid: Any, block: Any, *args: Any, shared: int = 0, **options: Any
    ) -> Report:
        """Arguments: arrays (mapped here), ints as 32 bits, np.int64, floats as 32 bits, bytes as they are."""
        params = b""
        for arg, formal in zip(args, kernel.function.params):
            params += bytes(-len(params) % formal.alignment)
            params += self._pack(arg, formal.size_bytes)
        grid3, block3 = (
            ((*size, 1, 1)[:3] if isinstance(size, tuple) else (size, 1, 1)) for size in (grid, block)
        )
        return kernel.run(grid3, block3, self.memory, params, dynamic_shared_bytes=shared, **options)

    def _pack(self, arg: Any, size_bytes: int) -> bytes:
        if isinstance(arg, np.ndarray):
            return struct.pack("<Q", self.buffer(arg))
        if isinstance(arg, bytes):
            return arg
        if isinstance(arg, float):
            return struct.pack("<f" if size_bytes == 4 else "<d", arg)
        if isinstance(arg, np.generic):
            return arg.tobytes()
        return int(arg % (1 << 8 * size_bytes)).to_bytes(size_bytes, "little")


def run_ptx(
    ptx: str, entry: str, grid: Any, block: Any, *args: Any, shared: int = 0, **options: Any
) -> Launch:
    launch = Launch()
    launch.run(launch.load(ptx, entry), grid, block, *args, shared=shared, **options)
    return launch


@functools.cache
def compile_cuda(source: str, arch: str = "compute_90", *options: str) -> str:
    from hcq.nv.toolchain.nvrtc import compile_cuda as compile_

    return compile_(source, arch, options).ptx


@functools.cache
def compile_by_nvcc(source: str, arch: str = "compute_90") -> str:
    """For what needs the toolkit's own headers, or what nvrtc has not; skips the test where there is no nvcc."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc, of the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "kernel.cu"
        place.write_text(source)
        command = [nvcc, "-ptx", f"-arch={arch}", "-std=c++17", str(place), "-o", f"{folder}/kernel.ptx"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"this nvcc does not compile it: {(done.stderr or done.stdout)[:400]}")
        return (pathlib.Path(folder) / "kernel.ptx").read_text()


def run_cuda(
    source: str, entry: str, grid: Any, block: Any, *args: Any, shared: int = 0, **options: Any
) -> Launch:
    return run_ptx(compile_cuda(source), entry, grid, block, *args, shared=shared, **options)


def instructions(lines: str, inputs: list[np.ndarray[Any, Any]], outputs: str, block: int = 128) -> list[Any]:
    """Run PTX lines once per element, and return the outputs' bits.

    Inputs are %a, %b, %c, %e, outputs %x, %y with sizes "32 64"; %p to %s are predicates, %h0 to %h9 have 16 bits, %t0
    to %t9 32, %w0 to %w9 64.
    """
    n = max(len(array) for array in inputs)
    arrays = [np.array(np.broadcast_to(array, (n,))) for array in inputs]
    sizes = [array.itemsize for array in arrays]
    results = [np.zeros(n, BITS[int(size) // 8]) for size in outputs.split()]
    names = "abce"
    text = [HEADER, ".visible .entry k("]
    text.append(
        ",".join(f".param .u64 P{i}" for i in range(len(arrays) + len(results))) + ", .param .u32 N) {"
    )
    text.append(
        ".reg .b64 %at, %i64; .reg .b32 %i, %n, %thread, %width, %t<10>; .reg .b64 %w<10>; .reg .b16 %h<10>;"
    )
    text.append(".reg .pred %out, %p, %q, %r, %s;")
    register = {1: 16, 2: 16, 4: 32, 8: 64}
    text += [f".reg .b{register[size]} %{names[i]};" for i, size in enumerate(sizes)]
    text += [f".reg .b{8 * result.itemsize} %{'xy'[i]};" for i, result in enumerate(results)]
    text.append(
        "mov.u32 %thread, %tid.x; mov.u32 %width, %ntid.x; mov.u32 %i, %ctaid.x; mad.lo.s32 %i, %i, %width, %thread;"
    )
    text.append("ld.param.u32 %n, [N]; setp.ge.u32 %out, %i, %n; @%out ret; cvt.u64.u32 %i64, %i;")
    for i, size in enumerate(sizes):
        text.append(f"{{ .reg .b64 %base; ld.param.u64 %base, [P{i}]; mad.lo.u64 %at, %i64, {size}, %base;")
        text.append(f"ld.global.b{8 * size} %{names[i]}, [%at]; }}")
    text.append(lines)
    for i, result in enumerate(results):
        text.append(f"{{ .reg .b64 %base; ld.param.u64 %base, [P{len(arrays) + i}];")
        text.append(
            f"mad.lo.u64 %at, %i64, {result.itemsize}, %base; st.global.b{8 * result.itemsize} [%at], %{'xy'[i]}; }}"
        )
    text.append("ret; }")
    run_ptx("\n".join(text), "k", -(-n // block), block, *arrays, *results, n)
    return results
