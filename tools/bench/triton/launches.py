"""Launches: Triton's kernels compiled for a GPU that is only named, and counted on an emulated one.

In       Launch: a kernel's name, its arguments, constants, grid and options; an open emulated device
Out      Counters of a sample of its blocks
Changes  device memory for the arguments, freed at the end; Triton's cache
Next     kernels.py (the kernels), rows.py (who lists launches), ../../../hcq/performance/counters.py (the record)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from hcq.performance import counters
from hcq.performance.counters import Counters

WAVES_OF_32 = ("gfx11", "gfx12")
SCRATCH_POINTERS = 2  # behind a kernel's own parameters: global and profile scratch
ALIGNED = 16  # what Triton's launcher finds out about pointers and integers before it compiles
TYPES = {"fp32": 4, "fp16": 2, "bf16": 2, "i8": 1, "i32": 4, "i64": 8, "fp8e4nv": 1, "fp8e5": 1}


class Memory(NamedTuple):
    """A buffer of so many elements. content: what is in it at first, where that decides what a kernel does."""

    kind: str
    elements: int
    content: Any = None


@dataclass(frozen=True)
class Launch:
    """One launch. arguments: Memory, ints and floats, in the order of the kernel's parameters that are no constants."""

    kernel: str
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 2


class Compiled(NamedTuple):
    """A kernel for one architecture. shared_bytes: what a launch has to ask for. scratch_bytes: of global memory, for
    each block."""

    image: bytes
    entry: str
    shared_bytes: int
    threads: int
    scratch_bytes: int


def target_of(arch: str) -> Any:
    """How Triton calls an architecture."""
    target: Any = import_module("triton.backends.compiler").GPUTarget
    if arch.startswith("sm_"):
        return target("cuda", int(arch[3:]), 32)
    return target("hip", arch, 32 if arch.startswith(WAVES_OF_32) else 64)


def compiled(launch: Launch, arch: str) -> Compiled:
    """What Triton's own launcher would compile, which knows what is a multiple of 16 and that buffers are small."""
    compiler: Any = import_module("triton.compiler")
    language: Any = import_module("triton.language")
    kernel = getattr(import_module("hcq.tools.bench.triton.kernels"), launch.kernel)
    names = [name for name in kernel.arg_names if name not in launch.constants]
    constants = {
        name: getattr(language, value[3:]) if isinstance(value, str) and value.startswith("tl.") else value
        for name, value in launch.constants.items()
    }
    signature, attrs = {}, {}
    for name, value in zip(names, launch.arguments):
        known = []
        if isinstance(value, Memory):
            signature[name] = f"*{value.kind}"
            known.append(["tt.divisibility", ALIGNED])
            if not arch.startswith("sm_") and TYPES[value.kind] * value.elements < 1 << 31:
                known.append(["tt.pointer_range", 32])
        elif isinstance(value, int):
            signature[name] = "i32"
            if value % ALIGNED == 0:
                known.append(["tt.divisibility", ALIGNED])
        else:
            signature[name] = "fp32"
        if known:
            attrs[(kernel.arg_names.index(name),)] = known
    signature |= dict.fromkeys(constants, "constexpr")
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = compiler.ASTSource(kernel, signature, places, attrs)
    options = {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True}
    made = compiler.compile(source, target=target_of(arch), options=options)
    facts = made.metadata
    image = made.asm["ptx"].encode() if arch.startswith("sm_") else made.asm["hsaco"]
    scratch = int(getattr(facts, "global_scratch_size", 0) or 0)
    return Compiled(image, facts.name, facts.shared, facts.num_warps * facts.target.warp_size, scratch)


def count(device: Any, launch: Launch, blocks: int, timeout_ms: float) -> Counters:
    """What so many blocks of a launch did (0: all). Raises what the compiler or the device raises."""
    made = compiled(launch, device.arch)
    program: Any = device.load(made.image, made.entry)
    program.dynamic_shared_bytes = made.shared_bytes
    buffers = []
    given: list[Any] = []
    grid = (*launch.grid, 1, 1)[:3]
    try:
        for value in launch.arguments:
            if isinstance(value, Memory):
                buffers.append(device.alloc(max(ALIGNED, TYPES[value.kind] * value.elements)))
                if value.content is not None:
                    buffers[-1].write(value.content)
                given.append(buffers[-1])
            else:
                given.append(value)
        scratch = None
        if made.scratch_bytes:
            scratch = device.alloc(made.scratch_bytes * grid[0] * grid[1] * grid[2])
            buffers.append(scratch)
        given += [scratch] + [None] * (SCRATCH_POINTERS - 1)
        with counters.count(blocks) as found:
            queue = device.queue().dispatch(program, given, grid=grid, block=(made.threads, 1, 1))
            queue.submit().wait(timeout_ms=timeout_ms)
    finally:
        for buffer in buffers:
            buffer.free()
    return Counters.from_fields({**found[0].as_fields(), "kernel": launch.kernel, "entry": 0})
