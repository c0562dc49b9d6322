"""Programs of an AMD GPU: a code object in the GPU's memory, and how its kernel takes arguments.

In       an AMDGPU ELF object and a kernel's name
Out      a Program whose dispatches are packed by the object's own metadata
Changes  a block of executable memory; it goes back to the pool when the program is dropped
Next     link.py (relocations, checks), launch.py (registers), metadata.py (the arguments)

An argument is a Buffer, an int, a float, or bytes for a structure passed by value. The metadata says how large each is,
and often no more than that: whether four bytes are an int or a float is then what the caller passes, or what `args` of
load() says.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.amd.encode import Piece
from hcq.amd.launch import Grid, Launcher
from hcq.amd.link import Kernel
from hcq.amd.metadata import Argument
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.program import Program

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice

MAX_GRID = 2**31 - 1
_INTEGERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}
_KIND_OF_TYPE = {"float": "float", "double": "float", "half": "float", "_Float16": "float"}


class Slot(NamedTuple):
    """Where an argument goes in the argument segment, and its struct letter; "s" for bytes."""

    offset: int
    size_bytes: int
    letter: str


class Shape(NamedTuple):
    """How arguments of certain types are packed. masks: integers are cut to these bits, so that -1 fits."""

    pack: Callable[..., bytes]
    slots: tuple[Slot, ...]
    masks: tuple[int, ...]  # 0 for what is no integer


class AmdProgram(Program):
    """An entry of a loaded object. `kernarg_bytes`: the size of its argument segment."""

    device: AmdDevice

    def __init__(
        self,
        device: AmdDevice,
        name: str,
        kernel: Kernel,
        va: int,
        launcher: Launcher,
        args: tuple[str, ...] | None,
        code: Buffer,
    ) -> None:
        self.kernel, self.launcher, self.code = kernel, launcher, code
        metadata = kernel.metadata
        self.explicit = tuple(
            arg for arg in (metadata.args if metadata else ()) if not arg.value_kind.startswith("hidden_")
        )
        self.hidden = tuple(
            arg for arg in (metadata.args if metadata else ()) if arg.value_kind.startswith("hidden_")
        )
        self.kernarg_bytes = max(kernel.descriptor.kernarg_size, metadata.kernarg_bytes if metadata else 0)
        self.max_threads = min(metadata.max_threads if metadata else 1024, device.chip.max_block)
        if args is not None and metadata is not None and len(args) != len(self.explicit):
            raise UsageError(
                f"load({name!r}): args names {len(args)} arguments; the object's metadata has {len(self.explicit)}."
            )
        for arg in self.explicit:
            if arg.value_kind not in ("by_value", "global_buffer"):
                raise UsageError(
                    f"load({name!r}): argument {arg.name!r} is a {arg.value_kind}; "
                    "only buffers and values can be passed."
                )
        self._hidden_for = functools.lru_cache(64)(self._hidden)
        # what a launch names: the code on a PM4 ring, the descriptor on an AQL ring
        entry = kernel.descriptor_offset if device.is_aql else kernel.entry_offset
        super().__init__(device, name, va + entry, args or self._known_kinds(), 0, lambda: None)

    def _known_kinds(self) -> tuple[str, ...] | None:
        """Kinds of all arguments, when the metadata tells them."""
        kinds = [
            "buffer" if arg.value_kind == "global_buffer" else _kind_of_type(arg.type_name)
            for arg in self.explicit
        ]
        return tuple(kinds) if kinds and all(kinds) else None

    # ------------------------------------------------------------ dispatching

    def dispatch(self, args: Sequence[Any], grid: Grid, block: Grid) -> tuple[Piece, tuple[int | float, ...]]:
        """The packets of one launch, and its arguments as plain numbers."""
        values = self.values(args)
        self.check_launch(grid, block)
        shape = self.shape(args)
        try:
            packed = shape.pack(
                *[index(value) & mask if mask else value for value, mask in zip(values, shape.masks)]
            )
        except (struct.error, OverflowError, TypeError) as error:
            raise UsageError(f"dispatch {self.name}: {args!r} cannot be packed: {error}.") from None
        if self.hidden:
            packed = packed.ljust(self.kernarg_bytes, b"\0")
            packed = packed[: self.hidden[0].offset] + self._hidden_for(grid, block)
        made = self.launcher.dispatch(packed.ljust(self.kernarg_bytes, b"\0") or bytes(64), grid, block)
        if self.device.validator is not None:
            made.buffers = tuple(
                (number, value)
                for number, (arg, value) in enumerate(zip(args, values))
                if isinstance(arg, Buffer)
            )
        return made, tuple(value for value in values if not isinstance(value, bytes))

    def values(self, args: Sequence[Any]) -> list[Any]:
        """Arguments as numbers and bytes. Raises UsageError for buffers that are freed, elsewhere or poisoned."""
        found: list[Any] = []
        for arg in args:
            if isinstance(arg, Buffer):
                if arg.device is not self.device and not self.device.can_reach(arg):
                    raise UsageError(
                        f"dispatch {self.name}: {arg!r} is not on {self.device.name}. Copy it there first."
                    )
                if self.device.failures:
                    arg.check_poison(f"dispatch {self.name}")
                found.append(arg.address)
            else:
                found.append(arg)
        return found

    def shape(self, args: Sequence[Any]) -> Shape:
        """Check arguments against the metadata, once for each combination of types, and place them."""
        types: Any = tuple(len(arg) if isinstance(arg, bytes) else type(arg) for arg in args)
        known: Shape | None = self.shapes.get(types)
        if known is not None:
            return known
        places = self._places(args)
        letters, slots = "<", []
        at = 0
        for number, (arg, (offset, size)) in enumerate(zip(args, places)):
            letter = self._letter(number, arg, size)
            letters += f"{offset - at}x{size}s" if letter == "s" else f"{offset - at}x{letter}"
            at = offset + size
            slots.append(Slot(offset, size, letter))
        masks = tuple((1 << 8 * slot.size_bytes) - 1 if slot.letter in "BHIQ" else 0 for slot in slots)
        made = Shape(struct.Struct(letters).pack, tuple(slots), masks)
        self.shapes[types] = made
        return made

    def _places(self, args: Sequence[Any]) -> list[tuple[int, int]]:
        """(offset, size) of each argument."""
        if self.kernel.metadata is None:
            return [(8 * index, 8) for index in range(len(args))]
        if len(args) != len(self.explicit):
            names = ", ".join(arg.name or f"{arg.size_bytes} bytes" for arg in self.explicit) or "none"
            raise UsageError(
                f"dispatch {self.name}: takes {len(self.explicit)} arguments ({names}), got {len(args)}."
            )
        return [(arg.offset, arg.size_bytes) for arg in self.explicit]

    def _letter(self, index: int, arg: object, size: int) -> str:
        kind = kind_of(arg)
        wanted = self.args[index] if self.args is not None else ""
        is_buffer = index < len(self.explicit) and self.explicit[index].value_kind == "global_buffer"
        if isinstance(arg, bytes) and len(arg) == size:
            return "s"
        if not kind:
            raise UsageError(
                f"dispatch {self.name}: argument {index} is {arg!r}. An argument is a Buffer, an int, a float, or "
                f"{size} bytes."
            )
        if (wanted and wanted != kind and not (wanted == "float" and kind == "int")) or (
            is_buffer and kind == "float"
        ):
            raise UsageError(
                f"dispatch {self.name}: argument {index} is a {'buffer' if is_buffer else wanted}, got {arg!r}."
            )
        letters = _FLOATS if wanted == "float" or kind == "float" else _INTEGERS
        if size not in letters or (kind == "buffer" and size != 8):
            raise UsageError(
                f"dispatch {self.name}: argument {index} has {size} bytes, and {arg!r} is no such value. "
                f"Pass {size} bytes."
            )
        return letters[size]

    def check_launch(self, grid: Grid, block: Grid) -> None:
        """Raises UsageError when grid or block cannot be right."""
        for what, size in (("grid", grid), ("block", block)):
            if not (isinstance(size, (tuple, list)) and len(size) == 3) or not all(
                isinstance(n, int) and 0 < n <= MAX_GRID for n in size
            ):
                raise UsageError(
                    f"dispatch {self.name}: {what}={size!r}; takes three whole numbers from 1 to {MAX_GRID}."
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

    # ------------------------------------------------------------ hidden arguments

    def _hidden(self, grid: Grid, block: Grid) -> bytes:
        """The bytes from the first hidden argument to the end of the segment."""
        start = self.hidden[0].offset
        data = bytearray(self.kernarg_bytes - start)
        for arg in self.hidden:
            value = self._hidden_value(arg, grid, block)
            if value and arg.size_bytes in _INTEGERS:
                struct.pack_into("<" + _INTEGERS[arg.size_bytes], data, arg.offset - start, value)
        return bytes(data)

    def _hidden_value(self, arg: Argument, grid: Grid, block: Grid) -> int:
        kind = arg.value_kind.removeprefix("hidden_")
        name, _, axis = kind.rpartition("_")
        if axis in ("x", "y", "z"):
            number = "xyz".index(axis)
            return {"block_count": grid[number], "group_size": block[number]}.get(name, 0)
        if kind == "grid_dims":
            return 3 if grid[2] * block[2] > 1 else 2 if grid[1] * block[1] > 1 else 1
        apertures = self.device.apertures
        return {
            "private_base": apertures.scratch_base >> 32,
            "shared_base": apertures.lds_base >> 32,
        }.get(kind, 0)


def kind_of(arg: object) -> str:
    """What an argument is; numbers of other libraries count, arrays of any size do not."""
    if isinstance(arg, Buffer):
        return "buffer"
    if hasattr(arg, "__len__"):
        return ""
    return "int" if hasattr(arg, "__index__") else "float" if hasattr(arg, "__float__") else ""


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
