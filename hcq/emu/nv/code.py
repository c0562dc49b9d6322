"""The kernel at a program address: PTX that the driver put beside it, or that its cubin has, parsed and decoded.

In       the descriptor before the address, the address space; a search for the PTX of code without a descriptor
Out      Code; KernelError when what lies there is no kernel that can run
Changes  what is kept of texts that were parsed
Next     launch.py (who asks), hcq/nv/abi/image.py (the descriptor), shader/run.py (Kernel)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from hcq.code.kernel_text import KernelText
from hcq.emu.nv.errors import KernelError
from hcq.emu.nv.memory import View
from hcq.emu.nv.shader.opcodes import Addition
from hcq.emu.nv.shader.run import Kernel, parsed
from hcq.emu.nv.spec import Chip
from hcq.errors import UsageError
from hcq.nv.abi.image import SYMBOL_BYTES, KernelDescriptor, SymbolEntry, crc32

CONSTANTS = "GRAPHICS GPC0 GPCCLIENT_GCC"  # constants and instructions are fetched by the same unit
WARP_EXCEPTION = "Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0)"
MAX_NAME_BYTES, MAX_PTX_BYTES, MAX_SYMBOLS = 4096, 1 << 28, 1 << 16


class Code(NamedTuple):
    """What lies at a program address: a kernel, its PTX, its .const variables as (name, address, bytes)."""

    kernel: Kernel
    text: str
    constants: tuple[tuple[str, int, int], ...] = ()


def is_lone_exit(kernel: Kernel) -> bool:
    """Whether a kernel does nothing but end: it reads nothing of constant bank 0."""
    return not kernel.param_bytes and len(kernel.function.body) <= 1


def load(
    view: View,
    raw: bytes,
    program: int,
    chip: Chip,
    additions: tuple[Addition, ...] = (),
    search: Callable[[], KernelText | None] = lambda: None,
) -> Code:
    """The kernel that a descriptor in GPU memory names.

    additions   what is put around its steps
    search      for what the code was made from, where there is no descriptor
    """
    found = KernelDescriptor.from_bytes(raw)

    def refuse(why: str) -> KernelError:
        return KernelError(f"{WARP_EXCEPTION}: Illegal Instruction: {why}")

    if not found.is_valid:
        return _searched(program, search(), chip, additions)
    if not 0 < found.ptx_bytes <= MAX_PTX_BYTES or found.symbol_count > MAX_SYMBOLS:
        raise refuse(f"{found!r} makes no sense")
    text = view.read(found.ptx_address, found.ptx_bytes, CONSTANTS)
    if crc32(text) != found.ptx_crc32:
        raise refuse(f"the PTX at {found.ptx_address:#x} is damaged")
    symbols = []
    for number in range(found.symbol_count):
        entry = SymbolEntry.from_bytes(
            view.read(found.symbols_address + SYMBOL_BYTES * number, SYMBOL_BYTES, CONSTANTS)
        )
        symbols.append((name_at(view, entry.name_address), entry.address))
    try:
        name = name_at(view, found.entry_name_address)
        code = _compiled(text, name, tuple(symbols), chip.param_offset_of(found.param_bytes), additions)
    except UsageError as error:
        raise refuse(str(error)) from None
    needed = code.kernel.param_bytes
    if needed > found.param_bytes:
        raise refuse(f"the descriptor says {found.param_bytes} bytes of parameters; the PTX has {needed}")
    return code


def _searched(program: int, found: KernelText | None, chip: Chip, additions: tuple[Addition, ...]) -> Code:
    """The kernel that a foreign loader has placed as machine code."""
    try:
        if found is None:
            raise UsageError(
                f"no descriptor of PTX lies before {program:#x}, and no cubin with this code was found"
            )
        if not found.text:
            raise UsageError(f"{found.name} at {program:#x} comes from a cubin without PTX")
        base = chip.param_offset_of(found.param_bytes)
        return _compiled(found.text, found.name, found.symbols, base, additions)
    except UsageError as error:
        raise KernelError(
            f"{WARP_EXCEPTION}: Illegal Instruction: {error}. Machine code is not emulated: compile kernels with "
            "-lineinfo, which keeps their PTX in the cubin, or name a folder of cubins and PTX with HCQ_EMU_PTX"
        ) from None


def name_at(view: View, va: int) -> str:
    """Text up to its NUL."""
    data = b""
    while b"\0" not in data and len(data) < MAX_NAME_BYTES:
        data += view.read(va + len(data), 1, CONSTANTS)
    return data.partition(b"\0")[0].decode("utf-8", "replace")


@functools.lru_cache(256)
def _compiled(
    text: bytes,
    entry: str,
    symbols: tuple[tuple[str, int], ...],
    param_base: int,
    additions: tuple[Addition, ...],
) -> Code:
    source = text.decode("utf-8", "replace")
    module = parsed(text, param_base)
    constants = [
        (name, va, module.variables[name].size_bytes)
        for name, va in symbols
        if name in module.variables and module.variables[name].space == "const"
    ]
    return Code(
        Kernel(module, entry, dict(symbols), param_base, additions=additions), source, tuple(constants)
    )
