"""Programs of an NVIDIA GPU: code in the GPU's memory, and how its kernel takes arguments.

In       a cubin, PTX or both, and a kernel's name
Out      a Program whose dispatches are packed as the code object says
Changes  a block of memory; it goes back to the pool when the program is dropped
Next     link.py (the image), launch.py (QMD and constant bank 0)

An argument is a Buffer, an int, a float, or bytes for a structure passed by value. A code object says how large each
is, and seldom more: whether four bytes are an int or a float is then what the caller passes, or what `args` of load()
says.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.nv.encode import Piece
from hcq.nv.launch import Grid, Launcher
from hcq.nv.link import CODE_AT, Kernel
from hcq.program import Program

if TYPE_CHECKING:
    from hcq.nv.device import NvDevice

MAX_GRID: Grid = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Grid = (1024, 1024, 64)
MAX_KNOWN = 1024
_INTEGERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}


class Slot(NamedTuple):
    """Where an argument goes in the parameters, and its struct letter; "s" for bytes."""

    offset: int
    size_bytes: int
    letter: str


class Shape(NamedTuple):
    """How arguments of certain types are packed. masks: integers are cut to these bits, so that -1 fits."""

    pack: Callable[..., bytes]
    slots: tuple[Slot, ...]
    masks: tuple[int, ...]  # 0 for what is no integer


class NvProgram(Program):
    """An entry of a loaded object. `dynamic_shared_bytes` is what launches ask for beyond the kernel's own."""

    device: NvDevice

    def __init__(
        self,
        device: NvDevice,
        name: str,
        kernel: Kernel,
        va: int,
        launcher: Launcher,
        args: tuple[str, ...] | None,
        code: Buffer,
    ) -> None:
        self.kernel, self.launcher, self.code = kernel, launcher, code
        self._dynamic_shared = 0
        self._known_launches: set[tuple[Grid, Grid]] = set()  # sizes that were found to be right
        if args is not None and len(args) != len(kernel.parameters):
            raise UsageError(
                f"load({name!r}): args names {len(args)} arguments; the kernel has {len(kernel.parameters)} parameters."
            )
        most = launcher.chip.max_threads(kernel.registers)
        self.max_threads = min(kernel.largest_block or most, most)
        super().__init__(device, name, va + CODE_AT, args, 0, lambda: None)

    @property
    def dynamic_shared_bytes(self) -> int:
        return self._dynamic_shared

    @dynamic_shared_bytes.setter
    def dynamic_shared_bytes(self, size_bytes: int) -> None:
        limit = self.launcher.chip.max_shared_bytes
        if size_bytes < 0 or self.launcher.shared_bytes(size_bytes) > limit + 1024:
            raise UsageError(
                f"{self.name}.dynamic_shared_bytes={size_bytes}: with the kernel's own {self.kernel.static_shared}, "
                f"a block has 0 to {limit} bytes of shared memory on {self.device.arch}."
            )
        self._dynamic_shared = size_bytes

    # ------------------------------------------------------------ dispatching

    def dispatch(self, args: Sequence[Any], grid: Grid, block: Grid) -> tuple[Piece, tuple[int | float, ...]]:
        """The words of one launch, and its arguments as plain numbers."""
        values = self.values(args)
        try:
            is_known = (grid, block) in self._known_launches
        except TypeError:  # lists, which are fine, too
            is_known = False
        if not is_known:
            grid, block = self.check_launch(grid, block)
        shape = self.shape(args)
        try:
            packed = shape.pack(
                *[index(value) & mask if mask else value for value, mask in zip(values, shape.masks)]
            )
        except (struct.error, OverflowError, TypeError) as error:
            raise UsageError(f"dispatch {self.name}: {args!r} cannot be packed: {error}.") from None
        if len(packed) != self.kernel.param_bytes:
            packed = packed.ljust(self.kernel.param_bytes, b"\0")
        made = self.launcher.dispatch(packed, grid, block, self._dynamic_shared)
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
        """Check arguments against the kernel's parameters, once for each combination of types, and place them."""
        types: Any = tuple(len(arg) if isinstance(arg, bytes) else type(arg) for arg in args)
        known: Shape | None = self.shapes.get(types)
        if known is not None:
            return known
        parameters = self.kernel.parameters
        if len(args) != len(parameters):
            sizes = ", ".join(f"{one.size_bytes} bytes" for one in parameters) or "none"
            raise UsageError(
                f"dispatch {self.name}: takes {len(parameters)} arguments ({sizes}), got {len(args)}."
            )
        letters, slots, at = "<", [], 0
        for number, (arg, parameter) in enumerate(zip(args, parameters)):
            letter = self._letter(number, arg, parameter.size_bytes)
            gap = parameter.offset - at
            letters += f"{gap}x{parameter.size_bytes}s" if letter == "s" else f"{gap}x{letter}"
            at = parameter.offset + parameter.size_bytes
            slots.append(Slot(parameter.offset, parameter.size_bytes, letter))
        masks = tuple((1 << 8 * slot.size_bytes) - 1 if slot.letter in "BHIQ" else 0 for slot in slots)
        made = Shape(struct.Struct(letters).pack, tuple(slots), masks)
        self.shapes[types] = made
        return made

    def _letter(self, number: int, arg: object, size: int) -> str:
        wanted = self.args[number] if self.args is not None else ""
        said = self.kernel.parameters[number].kind
        if isinstance(arg, bytes) and len(arg) == size:
            return "s"
        kind = kind_of(arg)
        if not kind:
            raise UsageError(
                f"dispatch {self.name}: argument {number} is {arg!r}. An argument is a Buffer, an int, a float, or "
                f"{size} bytes."
            )
        is_number = wanted == "float" and kind == "int"
        if (wanted and wanted != kind and not is_number) or (said == "float" and kind == "buffer"):
            raise UsageError(f"dispatch {self.name}: argument {number} is a {wanted or said}, got {arg!r}.")
        letters = _FLOATS if "float" in (wanted, said, kind) else _INTEGERS
        if size not in letters or (kind == "buffer" and size != 8):
            raise UsageError(
                f"dispatch {self.name}: argument {number} has {size} bytes, and {arg!r} is no such value. "
                f"Pass {size} bytes."
            )
        return letters[size]

    def check_launch(self, grid: Grid, block: Grid) -> tuple[Grid, Grid]:
        """Both as tuples. Raises UsageError when grid or block cannot be right."""
        for what, size, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
            if not (isinstance(size, (tuple, list)) and len(size) == 3) or not all(
                isinstance(n, int) and 0 < n <= limit for n, limit in zip(size, limits)
            ):
                raise UsageError(
                    f"dispatch {self.name}: {what}={size!r}; takes three whole numbers from 1 to {limits}."
                )
        required = self.kernel.required_block
        if required and tuple(block) != tuple(required):
            raise UsageError(
                f"dispatch {self.name}: block={block!r}; the kernel was compiled for exactly {tuple(required)}."
            )
        if math.prod(block) > self.max_threads:
            raise UsageError(
                f"dispatch {self.name}: block={block!r} has {math.prod(block)} threads; the kernel was compiled for at "
                f"most {self.max_threads}, with {self.kernel.registers} registers for each."
            )
        if len(self._known_launches) >= MAX_KNOWN:
            self._known_launches.clear()
        sizes: tuple[Grid, Grid] = tuple(grid), tuple(block)  # type: ignore[assignment]
        self._known_launches.add(sizes)
        return sizes


def kind_of(arg: object) -> str:
    """What an argument is; numbers of other libraries count, arrays of any size do not."""
    if isinstance(arg, Buffer):
        return "buffer"
    if hasattr(arg, "__len__"):
        return ""
    return "int" if hasattr(arg, "__index__") else "float" if hasattr(arg, "__float__") else ""
