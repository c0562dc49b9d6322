"""Triton without a GPU: a kernel compiled for one that is only named, and launched through the public API.

In       a kernel of kernels.py, what stands for its parameters, the architecture
Out      Compiled: the image, its entry, its shared memory and threads; `launch`
Changes  Triton's cache, which tests have in a folder of their own
Next     kernels.py, test_kernels.py
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from hcq.device import Device

NAMES = {  # of what arrays hold
    "float32": "fp32",
    "float16": "fp16",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "uint16": "bf16",
    "uint8": "fp8e4nv",
}
WAVES_OF_32 = ("gfx11", "gfx12")
SCRATCH_POINTERS = 2  # behind a kernel's own parameters: global and profile scratch, which these do not need


class Compiled(NamedTuple):
    """A kernel for one architecture. shared_bytes: what a launch has to ask for."""

    image: bytes
    entry: str
    shared_bytes: int
    threads: int


def target_of(arch: str) -> GPUTarget:
    """How Triton calls an architecture."""
    if arch.startswith("sm_"):
        return GPUTarget("cuda", int(arch[3:]), 32)
    return GPUTarget("hip", arch, 32 if arch.startswith(WAVES_OF_32) else 64)


def compiled(
    kernel: Any,
    types: list[str],
    constants: dict[str, Any],
    arch: str,
    num_warps: int = 4,
    num_stages: int = 2,
    num_ctas: int = 1,
) -> Compiled:
    """types: of the parameters that are no constants, in order: *fp32, i32; num_ctas: blocks of a cluster."""
    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, types)) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(n),): v for n, v in constants.items()})
    options = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas}
    made = compile(source, target=target_of(arch), options=options)
    facts = made.metadata
    image = made.asm["ptx"].encode() if arch.startswith("sm_") else made.asm["hsaco"]
    return Compiled(image, facts.name, facts.shared, facts.num_warps * facts.target.warp_size)


def launch(
    device: Device,
    kernel: Any,
    args: list[Any],
    grid: tuple[int, ...],
    constants: dict[str, Any],
    **options: Any,
) -> None:
    """Compile and run. args: arrays, whose contents become what the kernel leaves there, ints and floats."""
    types = options.pop("types", {})
    kinds = []
    for number, arg in enumerate(args):
        is_array = isinstance(arg, np.ndarray)
        kind = types.get(number) or (
            NAMES[arg.dtype.name] if is_array else "fp32" if isinstance(arg, float) else "i32"
        )
        kinds.append(f"*{kind}" if is_array else kind)
    made = compiled(kernel, kinds, constants, device.arch, **options)
    program: Any = device.load(made.image, made.entry)
    program.dynamic_shared_bytes = made.shared_bytes
    given = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            buffer = device.alloc(arg.nbytes)
            buffer.write(arg)
            given.append((arg, buffer))
    buffers = {id(arg): buffer for arg, buffer in given}
    values = [buffers[id(arg)] if isinstance(arg, np.ndarray) else arg for arg in args]
    sizes = (grid[0] * options.get("num_ctas", 1), *grid[1:], 1, 1)[:3]  # a program of Triton's is a cluster
    values += [None] * SCRATCH_POINTERS
    device.run(program, values, grid=(sizes[0], sizes[1], sizes[2]), block=(made.threads, 1, 1))
    for arg, buffer in given:
        arg[...] = np.frombuffer(buffer.read(), arg.dtype).reshape(arg.shape)
