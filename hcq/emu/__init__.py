"""Emulated kernel drivers and GPUs: they answer the drivers' ioctls and execute their packets and kernels on the CPU.

port.py       EmulatedPort: HCQ_EMULATE=amd:gfx1100 makes such a GPU appear
kernel.py     what an emulated kernel driver is: files, answers, refusals, and who calls
machine.py    which paths are an emulated driver's; file_stat.py what stat says of them
calls.py      what system calls on them return
supervisor/   unmodified programs: python -m hcq emulate
attached.py   all code of this process: attach(...); function_patches.py how its calls get there
emu/shader/exact_floats.py      sums, products and fused multiply-adds rounded once, for the shader cores
emu/shader/contended_atomics.py  atomics of many threads at one address, served many at a time
emulation_options.py      the words of HCQ_EMULATE
backing.py    the bytes behind an allocation; pages.py the same for what emulated caches hold
worker.py     a GPU's thread: turns of queues or channels, visits of other threads
amd/, nv/     a vendor's kernel driver, its packet processors, and its shader core in shader/

The same file name stands for the same idea on both sides:

spec.py       what HCQ_EMULATE says of a GPU, and the figures of each architecture
gpu.py        one GPU: its queues or channels, and the thread that does their work
engine.py     what packets or methods do: handlers on what the vendor declares
memory.py     page tables: memory as the GPU's engines see it
caches.py     what is stale or hidden (:caches)
launch.py     from a dispatch or a launch description to the shader core
shader/       kernels. It knows nothing of queues and kernel drivers:
    errors.py, memory.py                  what can stop a kernel; the address space that kernels see
    floats.py                             rounding that NumPy does not have
    program.py, control.py                code decoded once, in blocks; how a block ends
    machine.py, run.py                    threads that part, meet again, wait and stop; from a grid to them
    *_ops.py                              what instructions mean, by kind: integer_ops, float_ops, convert_ops, ...

An emulation stands beside the driver: of `hcq.amd` and `hcq.nv` it imports what the vendor declares (`abi`) alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hcq.emu.attached import attach as attach
    from hcq.emu.attached import detach as detach


def __getattr__(name: str) -> Any:
    if name in ("attach", "detach"):
        from hcq.emu import attached  # much code, for these two alone

        return getattr(attached, name)
    raise AttributeError(f"module 'hcq.emu' has no attribute {name!r}")
