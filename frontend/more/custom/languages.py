"""Languages: whatever a program is given as becomes an image that its device loads.

In       a loaded Program, an image, a source text, or what Triton compiled
Out      `Code`: image, entry, and what a launch has to ask for
Changes  runs a compiler: a library in this process, or cc in one of its own; keeps what it made for the process
Next     __init__.py (who launches it), compiler/assemble/ and hcq/nv/toolchain/ (the compilers)

A text says itself what language it is, by what no other language has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.compiler.target import Target
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.program import Program

COMPILE_S = 60
C_OPTIONS = ("-O2", "-fPIC", "-ffreestanding", "-fno-stack-protector", "-x", "c", "-c")
TRITON_POINTERS = 2  # behind a kernel's own parameters: global and profile scratch
# what HIP's headers would say, as far as clang knows it without them
HIP = """#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __syncthreads() __builtin_amdgcn_s_barrier()
struct hcq_three { unsigned x, y, z; };
#define threadIdx (hcq_three{__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), \
__builtin_amdgcn_workitem_id_z()})
#define blockIdx (hcq_three{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), \
__builtin_amdgcn_workgroup_id_z()})
#define blockDim (hcq_three{__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), \
__builtin_amdgcn_workgroup_size_z()})
#line 1
"""


class Code(NamedTuple):
    """A program as an image. block: the threads that it was compiled for, 0 where nobody says.

    spare_pointers   null pointers that its compiler may have put behind the parameters
    """

    image: bytes
    entry: str
    name: str
    shared_bytes: int = 0
    scratch_bytes: int = 0
    block: int = 0
    spare_pointers: int = 0


class Language(NamedTuple):
    """How a text is recognised, where its kernels' names stand, and what makes an image of it."""

    name: str
    sign: re.Pattern[str]
    kernels: re.Pattern[str]
    image: Callable[[str, Target, str], bytes]


def code_of(program: Any, device: Any, entry: str | None) -> Code:
    """The image of whatever a program is given as. Raises UsageError where that is nothing that the device runs."""
    if entry is not None and (not isinstance(entry, str) or not entry):
        raise UsageError(f"[custom] entry={shown(entry)}: give the name of a kernel.")
    if isinstance(program, Program):
        return _loaded(program)
    if isinstance(program, str):
        return _compiled(program, devices.target(device.name), entry)
    if isinstance(program, (bytes, bytearray, memoryview)):
        found = entry or _only_entry(bytes(program), device)
        return Code(bytes(program), found, found)
    if hasattr(program, "asm") and hasattr(program, "metadata"):
        return _of_triton(program, device, entry)
    raise UsageError(
        f"[custom] program={shown(program)}: give a loaded Program, the bytes of an image, a source text, or a kernel "
        "that Triton compiled."
    )


def _loaded(program: Program) -> Code:
    """The code of a loaded program: a copy of it runs, so that nobody else uses its variables."""
    entry, image = program.origin
    if not image:
        raise UsageError(f"[custom] {program.name} was loaded by a module: give its image and entry instead.")
    return Code(image, entry, program.name, program._dynamic_shared, program.scratch_bytes)


def _only_entry(image: bytes, device: Any) -> str:
    """The kernel of an image that has one."""
    try:
        entries = device.module(image).entries
    except UsageError as problem:
        raise UsageError(f"[custom] say entry=, the kernel's name in the image: {problem}") from problem
    if len(entries) != 1:
        raise UsageError(
            f"[custom] the image has the kernels {', '.join(entries) or 'none'}: say which with entry=."
        )
    return str(entries[0])


def _of_triton(compiled: Any, device: Any, entry: str | None) -> Code:
    """What triton.compile gives: code by its kind, and facts about its launch."""
    asm, facts = compiled.asm, compiled.metadata
    kinds = {"nvptx": ("cubin", "ptx"), "cuda": ("cubin", "ptx"), "amdgpu": ("hsaco",)}
    wanted = kinds.get(devices.target(device.name).name, ())
    found = {kind: asm[kind] for kind in wanted if kind in asm}
    if not found:
        raise UsageError(
            f"[custom] Triton compiled this kernel to {', '.join(asm)}, and {device.name} is {device.arch}: compile it "
            "for that architecture."
        )
    for what in ("global_scratch_size", "profile_scratch_size"):
        if getattr(facts, what, 0):
            raise UsageError(
                f"[custom] the kernel of Triton needs {what}={getattr(facts, what)}, which it is not given."
            )
    raw = {kind: code.encode() if isinstance(code, str) else bytes(code) for kind, code in found.items()}
    if "ptx" in raw:
        from hcq.nv.bundle import Bundle

        image = Bundle(raw["cubin"], raw["ptx"]).pack() if "cubin" in raw else raw["ptx"]
    else:
        (image,) = raw.values()
    name = entry or str(facts.name)
    target = getattr(facts, "target", None)
    lanes: int = getattr(target, "warp_size", None) or getattr(facts, "warp_size", None) or 32
    threads = int(getattr(facts, "num_warps", 4)) * lanes
    return Code(image, name, name, int(getattr(facts, "shared", 0)), 0, threads, TRITON_POINTERS)


def _compiled(text: str, target: Target, entry: str | None) -> Code:
    languages = LANGUAGES.get(target.name, ())
    language = next((one for one in languages if one.sign.search(text)), None)
    if language is None:
        known = ", ".join(one.name for one in languages) or "none: give an image"
        raise UsageError(f"[custom] the source is in no language of {target.arch}, which are {known}.")
    names = list(dict.fromkeys(language.kernels.findall(text)))
    if entry is None and len(names) != 1:
        raise UsageError(
            f"[custom] the {language.name} has the kernels {', '.join(names) or 'none'}: say which with entry=."
        )
    name = entry or names[0]
    return Code(_image(language.name, text, target, name), name, name)


@lru_cache(maxsize=128)
def _image(language: str, text: str, target: Target, name: str) -> bytes:
    make = next(one.image for one in LANGUAGES[target.name] if one.name == language)
    try:
        with devices.toolchain():
            return make(text, target, name)
    except UsageError as problem:
        raise UsageError(f"[custom] {name}: {str(problem).removeprefix('[custom] ')}") from problem
    except (RuntimeError, ValueError) as problem:  # of an assembler, with its complaint
        raise UsageError(f"[custom] {name}: {str(problem).removeprefix(f'{name}: ')}") from problem


# ------------------------------------------------------------ the compilers


def _encoded(text: str, target: Target, name: str) -> bytes:
    """The device takes the text itself."""
    return text.encode()


def _host_ir(text: str, target: Target, name: str) -> bytes:
    from hcq.compiler.assemble import llvm_cpu

    return llvm_cpu.assemble(text, target, name)


def _gpu_ir(text: str, target: Target, name: str) -> bytes:
    from hcq.compiler.assemble import llvm_gpu

    lines = [line for line in text.splitlines() if not line.lstrip().startswith("target triple")]
    if target.name == "cuda":
        raise UsageError("LLVM IR becomes PTX under HCQ_NV_RENDERER=ptx, which is the default: set it.")
    return llvm_gpu.assemble("\n".join(lines), target, name)


def _cuda(text: str, target: Target, name: str) -> bytes:
    from hcq.nv.toolchain import images

    return images.of_cuda(text, target.arch, name)


def _hip(text: str, target: Target, name: str) -> bytes:
    from hcq.compiler.assemble import comgr

    try:
        return comgr.compile_hip(HIP + text, target.arch, name)
    except comgr.ComgrError as problem:
        raise UsageError(
            f"{problem} Or compile it elsewhere, hipcc --genco --offload-arch={target.arch}, and give the file's bytes."
        ) from problem


def _amd_assembly(text: str, target: Target, name: str) -> bytes:
    from hcq.compiler.assemble import comgr

    try:
        return comgr.compile_assembly(text, target.arch, name)
    except comgr.ComgrError as problem:
        raise UsageError(
            f"{problem} Or assemble it elsewhere, llvm-mc --arch=amdgcn --mcpu={target.arch} --filetype=obj, and give "
            "the file's bytes."
        ) from problem


def _c(text: str, target: Target, name: str) -> bytes:
    """An object of C, by the first compiler of the PATH."""
    found = next(filter(None, map(shutil.which, ("cc", "clang", "gcc"))), None)
    if found is None:
        raise UsageError("C needs a compiler, cc, clang or gcc, on the PATH: install one, or give LLVM IR.")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernel.o"
        words = [found, *C_OPTIONS, "-o", str(made), "-"]
        try:
            done = subprocess.run(words, input=text.encode(), capture_output=True, timeout=COMPILE_S)
        except (OSError, subprocess.SubprocessError) as problem:
            raise UsageError(
                f"{found} did not compile it: {problem}. Give LLVM IR, or the object."
            ) from problem
        if done.returncode:
            raise UsageError(f"{found} refused it: {done.stderr.decode('utf-8', 'replace').strip()}")
        return made.read_bytes()


def _language(name: str, sign: str, kernels: str, image: Callable[[str, Target, str], bytes]) -> Language:
    return Language(name, re.compile(sign, re.MULTILINE), re.compile(kernels, re.MULTILINE), image)


_IR = r'^\s*define\b[^@\n]*@"?[\w.$]+', r'^\s*define\b[^@\n]*@"?([\w.$]+)'
_GPU_IR = _IR[0], r'^\s*define\b[^@\n]*\b(?:amdgpu_kernel|ptx_kernel)\b[^@\n]*@"?([\w.$]+)'
_C_KERNELS = r"^\s*(?:extern\s+)?void\s+(\w+)\s*\([^;{]*\)\s*\{"
_MARKED = r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
_PTX = _language("PTX", r"^\s*\.version\s+\d", r"\.entry\s+([\w$]+)", _encoded)
_CUDA = _language("CUDA C", r"\b__global__\b", _MARKED, _cuda)
_NV = (_PTX, _language("LLVM IR", *_GPU_IR, _gpu_ir), _CUDA)
LANGUAGES: dict[str, tuple[Language, ...]] = {  # by Target.name
    "cpu": (_language("LLVM IR", *_IR, _host_ir), _language("C", r"\bvoid\s+\w+\s*\(", _C_KERNELS, _c)),
    "amdgpu": (
        _language("assembly", r"^\s*\.amdhsa_kernel\b", r"^\s*\.amdhsa_kernel\s+([\w.$]+)", _amd_assembly),
        _language("LLVM IR", *_GPU_IR, _gpu_ir),
        _language("HIP C", r"\b__global__\b", _MARKED, _hip),
    ),
    "nvptx": _NV,
    "cuda": _NV,
    "metal": (_language("MSL", r"\bkernel\s+void\b", r"\bkernel\s+void\s+(\w+)\s*\(", _encoded),),
}
