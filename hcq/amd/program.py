"""Programs of an AMD GPU: a code object in the GPU's memory, and how its kernel takes arguments.

In       an AMDGPU ELF object and a kernel's name
Out      a Program whose dispatches are packed by the object's own metadata
Changes  a block of executable memory; it goes back to the pool when the program is dropped
Next     hcq/gpu/program.py (packing), link.py (relocations, checks), launch.py (registers), metadata.py (the arguments)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hcq import checks
from hcq.amd.encode import Piece
from hcq.amd.launch import Grid, Launcher
from hcq.amd.metadata import IMPLICIT_BYTES, Argument, implicit_arguments
from hcq.device import Device
from hcq.errors import UsageError
from hcq.gpu.program import INTEGERS
from hcq.gpu.shared_memory import SharingProgram
from hcq.memory import Buffer

MAX_GRID = 2**31 - 1
MAX_KNOWN = 64
_KIND_OF_TYPE = {"float": "float", "double": "float", "half": "float", "_Float16": "float"}


class AmdProgram(SharingProgram):
    """An entry of a loaded object.

    kernarg_bytes  the size of its argument segment
    is_described   whether its metadata says where arguments lie; else each has 8 bytes, one behind the other
    debug_image    the object, where it has lines of the source; else empty
    bases          hidden arguments that are the same for every launch: where memory windows begin, upper halves
    """

    debug_image = b""

    def __init__(
        self,
        device: Device,
        name: str,
        va: int,
        launcher: Launcher,
        bases: Mapping[str, int],
        args: tuple[str, ...] | None,
        code: Buffer,
    ) -> None:
        kernel = launcher.kernel
        self.kernel, self.launcher, self.bases, self.code = kernel, launcher, bases, code
        self.has_said_kinds = args is not None
        metadata = kernel.metadata
        table = metadata.args if metadata else ()
        self.explicit = tuple(arg for arg in table if not arg.is_hidden)
        self.hidden = tuple(arg for arg in table if arg.is_hidden)
        self.kernarg_bytes = max(kernel.descriptor.kernarg_size, metadata.kernarg_bytes if metadata else 0)
        self.is_described = metadata is not None and bool(table or not self.kernarg_bytes)
        if not self.is_described and self.kernarg_bytes >= IMPLICIT_BYTES:
            self.hidden = implicit_arguments(self.kernarg_bytes - IMPLICIT_BYTES)
        explicit_end = max((arg.offset + arg.size_bytes for arg in self.explicit), default=0)
        self._hidden_at = min((arg.offset for arg in self.hidden), default=self.kernarg_bytes)
        self._is_mixed = explicit_end > self._hidden_at  # hidden arguments stand between others
        self.max_threads = min(metadata.max_threads if metadata else 1024, launcher.chip.max_block)
        if args is not None and self.is_described and len(args) != len(self.explicit):
            raise UsageError(
                f"load({name!r}): args names {len(args)} arguments; the object's metadata has {len(self.explicit)}."
            )
        for arg in self.explicit:
            if arg.value_kind not in ("by_value", "global_buffer"):
                raise UsageError(
                    f"load({name!r}): argument {arg.name!r} is a {arg.value_kind}; "
                    "only buffers and values can be passed."
                )
        self._hidden_known: dict[tuple[Grid, Grid, int], bytes] = {}  # for grid, block and dynamic LDS
        # what a launch names: the code on a PM4 ring, the descriptor on an AQL ring
        entry = kernel.descriptor_offset if launcher.is_aql else kernel.start_offset
        super().__init__(device, name, va + entry, args or self._known_kinds(), 0, lambda: None)
        self.code_va = va + kernel.start_offset

    @property
    def kernarg_place(self) -> tuple[int, int] | None:
        """The first of the two registers that have the address of its arguments, and how many bytes they are."""
        register = self.launcher.places.get("kernarg_segment_ptr")
        return None if register is None else (register, self.kernarg_bytes)

    def line_at(self, pc: int) -> str:
        if not self.debug_image:
            return ""
        from hcq.code.lines import line_at  # for reports alone

        return line_at(self.debug_image, self.kernel.name, pc - self.code_va)

    def caller_at(self, pc: int) -> str:
        if not self.debug_image:
            return ""
        from hcq.code.inlined import caller_at  # for reports alone

        return caller_at(self.debug_image, self.kernel.name, pc - self.code_va)

    def _known_kinds(self) -> tuple[str, ...] | None:
        """Kinds of all arguments, when the metadata has them."""
        kinds = [
            "buffer" if arg.value_kind == "global_buffer" else _kind_of_type(arg.type_name)
            for arg in self.explicit
        ]
        return tuple(kinds) if kinds and all(kinds) else None

    # ------------------------------------------------------------ dispatching

    def dispatch(self, args: Sequence[Any], grid: Grid, block: Grid) -> tuple[Piece, tuple[int | float, ...]]:
        """The packets of one launch, and its arguments as plain numbers."""
        values = self.values(args)
        grid, block = self.launch_sizes(grid, block)
        packed = self.pack_args(args, values)
        # the caller gives hidden ones, too
        is_whole = not self.is_described and len(packed) > self._hidden_at
        packed = packed.ljust(self.kernarg_bytes, b"\0")
        shared = self._dynamic_shared
        if self._is_mixed:
            packed = self._between_hidden(packed, self._hidden(grid, block, shared))
        elif self.hidden and not is_whole:
            packed = packed[: self._hidden_at] + self._hidden(grid, block, shared)
        made = self.launcher.dispatch(packed or bytes(64), grid, block, shared)
        if self.device.observers:  # rules, for one
            made.buffers = tuple(
                (number, value)
                for number, (arg, value) in enumerate(zip(args, values))
                if isinstance(arg, Buffer)
            )
        return made, tuple(value for value in values if not isinstance(value, bytes))

    @property
    def own_shared_bytes(self) -> int:
        return self.kernel.descriptor.group_segment_fixed_size

    @property
    def most_shared_bytes(self) -> int:
        return self.launcher.chip.lds_bytes

    def places(self, args: Sequence[Any]) -> list[tuple[int, int]]:
        if not self.is_described:
            return self._places_unsaid(args)
        if len(args) != len(self.explicit):
            names = ", ".join(arg.name or f"{arg.size_bytes} bytes" for arg in self.explicit) or "none"
            raise UsageError(
                f"dispatch {self.name}: takes {len(self.explicit)} arguments ({names}), got {len(args)}."
            )
        return [(arg.offset, arg.size_bytes) for arg in self.explicit]

    def _places_unsaid(self, args: Sequence[Any]) -> list[tuple[int, int]]:
        """Where nobody says what the arguments are: 8 bytes each, and bytes as they are, that fill the segment."""
        if self.args is not None and len(args) != len(self.args):
            raise UsageError(f"dispatch {self.name}: takes {len(self.args)} arguments, got {len(args)}.")
        found, at = [], 0
        for arg in args:
            size = len(arg) if isinstance(arg, bytes) else 8
            at = at if isinstance(arg, bytes) else -(-at // 8) * 8
            found.append((at, size))
            at += size
        # older compilers leave the size 0 in the descriptor of a kernel that has arguments
        is_known = bool(self.kernarg_bytes) or not self.kernel.descriptor.enable_sgpr_kernarg_segment_ptr
        if is_known and -(-at // 8) not in {-(-end // 8) for end in (self._hidden_at, self.kernarg_bytes)}:
            hidden = f", {IMPLICIT_BYTES} of them hidden arguments" if self.hidden else ""
            raise UsageError(
                f"dispatch {self.name}: its argument segment has {self.kernarg_bytes} bytes{hidden}, and {len(args)} "
                f"arguments take {at}: 8 each, for the object has no table of them. Pass as many, or the last ones as "
                "bytes."
            )
        return found

    def declared_kind(self, number: int) -> str:
        is_buffer = number < len(self.explicit) and self.explicit[number].value_kind == "global_buffer"
        return "buffer" if is_buffer else ""

    def check_launch(self, grid: Grid, block: Grid) -> tuple[Grid, Grid]:
        grid = checks.sizes(f"dispatch {self.name}", "grid", grid, (MAX_GRID, MAX_GRID, MAX_GRID))
        block = checks.sizes(f"dispatch {self.name}", "block", block, (MAX_GRID, MAX_GRID, MAX_GRID))
        metadata = self.kernel.metadata
        if metadata is not None and metadata.required_block not in (None, block):
            raise UsageError(
                f"dispatch {self.name}: block={block!r}; the kernel was compiled for exactly "
                f"{metadata.required_block} (.reqd_workgroup_size)."
            )
        if metadata is not None and any(n > most for n, most in zip(grid, metadata.most_groups)):
            raise UsageError(
                f"dispatch {self.name}: grid={grid!r}; the kernel was compiled for at most {metadata.most_groups} "
                "workgroups (.max_num_workgroups)."
            )
        if math.prod(block) > self.max_threads:
            raise UsageError(
                f"dispatch {self.name}: block={block!r} has {math.prod(block)} threads; the kernel was compiled for at "
                f"most {self.max_threads}."
            )
        if any(groups * threads >= 2**32 for groups, threads in zip(grid, block)):
            raise UsageError(
                f"dispatch {self.name}: grid={grid!r} of block={block!r}: more than 2**32-1 threads along one axis."
            )
        return grid, block

    # ------------------------------------------------------------ hidden arguments

    def _between_hidden(self, packed: bytes, hidden: bytes) -> bytes:
        """The segment where explicit arguments follow hidden ones: each keeps its own bytes."""
        data = bytearray(packed[: self._hidden_at] + hidden)
        for arg in self.explicit:
            data[arg.offset : arg.offset + arg.size_bytes] = packed[arg.offset : arg.offset + arg.size_bytes]
        return bytes(data)

    def _hidden(self, grid: Grid, block: Grid, shared: int) -> bytes:
        """The bytes from the first hidden argument to the end of the segment."""
        known = self._hidden_known.get((grid, block, shared))
        if known is not None:
            return known
        if len(self._hidden_known) >= MAX_KNOWN:
            self._hidden_known.clear()
        start = self._hidden_at
        data = bytearray(self.kernarg_bytes - start)
        for arg in self.hidden:
            value = self._hidden_value(arg, grid, block, shared)
            if value and arg.size_bytes in INTEGERS:
                struct.pack_into("<" + INTEGERS[arg.size_bytes], data, arg.offset - start, value)
        made = self._hidden_known[grid, block, shared] = bytes(data)
        return made

    def _hidden_value(self, arg: Argument, grid: Grid, block: Grid, shared: int) -> int:
        kind = arg.value_kind.removeprefix("hidden_")
        name, _, axis = kind.rpartition("_")
        if axis in ("x", "y", "z"):
            number = "xyz".index(axis)
            return {"block_count": grid[number], "group_size": block[number]}.get(name, 0)
        if kind == "grid_dims":
            return 3 if grid[2] * block[2] > 1 else 2 if grid[1] * block[1] > 1 else 1
        if kind == "dynamic_lds_size":
            return shared
        return self.bases.get(kind, 0)


def _kind_of_type(type_name: str) -> str:
    if type_name in _KIND_OF_TYPE:
        return _KIND_OF_TYPE[type_name]
    words = set(type_name.split())
    integers = {
        "int",
        "char",
        "short",
        "long",
        "unsigned",
        "signed",
        "uint",
        "bool",
        "size_t",
        "uchar",
        "ushort",
        "ulong",
    }
    return "int" if words and words <= integers else ""
