"""Code generation: which heuristic, renderer and assembler serve a target, and how a launch of their kernels looks.

In       a Target
Out      a `Codegen`, loaded when something has to be compiled for it; targets that take another road
Next     pipeline.py (the only caller), target.py (what the names mean)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from hcq.compiler.linear.program import Program
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import GPU_TARGETS, Target, Toolchain


@dataclass(frozen=True)
class Codegen:
    """The stations of the road that differ by target.

    choose    loops as they lie -> loops as this machine likes them
    render    (program, arch) -> its text
    assemble  (text, target, name) -> the object that its device loads
    """

    choose: Callable[[LoopNest, Target], LoopNest]
    render: Callable[[Program, str], str]
    assemble: Callable[[str, Target, str], bytes]


def codegen(target: Target) -> Codegen:
    """The code generation of a target. Raises ValueError for one that there is none for."""
    return _made(target.codegen or target.name)


@cache
def _made(name: str) -> Codegen:
    if ":" in name:
        module, _, attribute = name.partition(":")
        found: Codegen = getattr(importlib.import_module(module), attribute)
        return found
    if name == "cpu":
        from hcq.compiler.assemble import llvm_cpu
        from hcq.compiler.loops.heuristic import choose
        from hcq.compiler.render import llvm

        return Codegen(choose, llvm.render, llvm_cpu.assemble)
    if name not in GPU_TARGETS:
        known = ", ".join(("cpu", *GPU_TARGETS))
        raise ValueError(f"no code generation for target {name!r}; known: {known}")
    from hcq.compiler.loops import heuristic_gpu
    from hcq.compiler.render import amdgpu, cuda, gpu, metal, nvptx

    if name == "cuda":
        return Codegen(heuristic_gpu.choose, cuda.render, _make)
    if name == "metal":
        return Codegen(heuristic_gpu.choose, metal.render, _as_text)
    dialect = amdgpu.DIALECT if name == "amdgpu" else nvptx.DIALECT
    return Codegen(heuristic_gpu.choose, partial(gpu.render, dialect=dialect), _assemble_gpu)


def assemble_with(target: Target, assembler: str) -> Target:
    """The same target, its kernels assembled by "llvmlite" (the default) or by "comgr" (AMD's own, where installed).

    Kernels of the two do not mix in the caches. Raises ValueError for a target or assembler that do not go together,
    ComgrError where comgr is missing or does not know the architecture.
    """
    if assembler == target.assembler:
        return target
    plain = replace(target, assembler="llvmlite", key=target.key.partition("/")[0])
    if assembler == "llvmlite":
        return plain
    if assembler != "comgr" or target.name != "amdgpu":
        can = "llvmlite, comgr" if target.name == "amdgpu" else "llvmlite"
        raise ValueError(
            f"assemble_with({target.name} {target.arch}, {assembler!r}): this target has the assemblers {can}"
        )
    from hcq.compiler.assemble import comgr

    major, minor = comgr.check(target.arch)
    return replace(plain, assembler="comgr", key=f"{plain.key}/comgr-{major}.{minor}")


def compile_with(target: Target, toolchain: Toolchain) -> Target:
    """The same NVIDIA GPU, its kernels made by a vendor's compiler: of CUDA C, or of the PTX that LLVM writes.

    Kernels of the several roads do not mix in the caches. Raises ValueError for another kind of target, and for a
    toolchain that takes neither.
    """
    names = {"cuda": "cuda", "ptx": "nvptx"}
    if target.name not in names.values() or toolchain.takes not in names:
        raise ValueError(
            f"compile_with({target.name} {target.arch}, {toolchain.name} of {toolchain.takes!r}): "
            "takes an NVIDIA target and a toolchain of cuda or ptx"
        )
    key = f"{target.arch}/{toolchain.takes}-{toolchain.name}"
    return replace(target, name=names[toolchain.takes], key=key, toolchain=toolchain)


def _as_text(text: str, target: Target, name: str) -> bytes:
    """Metal's own compiler takes the text, when it is loaded."""
    return text.encode()


def _make(text: str, target: Target, name: str) -> bytes:
    if target.toolchain is None:
        raise ValueError(f"{name}: {target.name} has no compiler of its own; choose one with compile_with.")
    from hcq.compiler.assemble.llvm_gpu import own_target

    return target.toolchain.make(text, own_target(text, target).arch, name)


def _assemble_gpu(text: str, target: Target, name: str) -> bytes:
    if target.assembler == "comgr":
        from hcq.compiler.assemble import comgr

        return comgr.assemble(text, target, name)
    from hcq.compiler.assemble import llvm_gpu

    image = llvm_gpu.assemble(text, target, name)
    return image if target.toolchain is None else _make(image.decode(), target, name)
