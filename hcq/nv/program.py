"""Programs of an NVIDIA GPU: code in the GPU's memory, and how its kernel takes arguments.

In       a cubin, PTX or both, and a kernel's name
Out      a Program whose dispatches are packed as the code object says
Changes  a block of memory; it goes back to the pool when the program is dropped
Next     hcq/gpu/program.py (packing), link.py (the image), launch.py (QMD and constant bank 0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hcq import checks
from hcq.device import Device
from hcq.errors import UsageError
from hcq.gpu.shared_memory import SharingProgram
from hcq.memory import Buffer
from hcq.nv import tensor_map
from hcq.nv.abi.tensor_map import TENSOR_MAP_BYTES
from hcq.nv.chip import RESERVED_SHARED_BYTES
from hcq.nv.encode import Piece
from hcq.nv.launch import Grid, Launcher, Together

MAX_GRID: Grid = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Grid = (1024, 1024, 64)


class NvProgram(SharingProgram):
    """An entry of a loaded object.

    cooperative   whether all blocks of a grid run at once, so that they may wait for one another
    """

    def __init__(
        self,
        device: Device,
        name: str,
        va: int,
        launcher: Launcher,
        args: tuple[str, ...] | None,
        code: Buffer,
        workspace: Callable[[str], tuple[Together, Buffer]],
    ) -> None:
        kernel = launcher.kernel
        self.kernel, self.launcher, self.code = kernel, launcher, code
        self._new_workspace = workspace  # for launches of this name
        self._together: Together | None = None
        self._workspace: Buffer | None = None
        self._rests: dict[int, bytes] = {}  # of tensor maps: what follows the address
        # arguments that become maps, and the bytes that these reach to
        self._ends: list[tuple[int, int]] = []
        if args is not None and len(args) != len(kernel.parameters):
            raise UsageError(
                f"load({name!r}): args names {len(args)} arguments; the kernel has {len(kernel.parameters)} parameters."
            )
        most = launcher.chip.max_threads(kernel.registers)
        self.max_threads = min(kernel.largest_block or most, most)
        super().__init__(device, name, va + kernel.code_at, args, 0, lambda: None)

    def line_at(self, pc: int) -> str:
        """Of a line of its PTX: an emulated GPU runs that, and names no addresses."""
        from hcq.code.ptx_lines import line_of_ptx  # for reports alone
        from hcq.nv.bundle import Bundle

        return line_of_ptx(Bundle.of(self.origin[1]).ptx, pc) if pc < self.code_va else ""

    def caller_at(self, pc: int) -> str:
        """As line_at, of the outermost function that was inlined."""
        from hcq.code.ptx_lines import caller_of_ptx  # for reports alone
        from hcq.nv.bundle import Bundle

        return caller_of_ptx(Bundle.of(self.origin[1]).ptx, pc) if pc < self.code_va else ""

    @property
    def params_at(self) -> int:
        """In the launch data, behind the QMD and the start of constant bank 0."""
        return self.launcher.params_at - 4

    @property
    def own_shared_bytes(self) -> int:
        """Without what is reserved, which objects for chips that put it first count in."""
        own = self.kernel.static_shared
        return max(own - RESERVED_SHARED_BYTES, 0) if self.launcher.chip.shared_first else own

    @property
    def most_shared_bytes(self) -> int:
        return self.launcher.chip.max_shared_bytes

    @property
    def cooperative(self) -> bool:
        """Whether all blocks of a grid run at once, as `grid.sync()` of cooperative groups needs it; False at first.

        >>> program.cooperative = True  # doctest: +SKIP

        May be set before a dispatch; a grid that the GPU cannot run at once is refused then.
        """
        return self._together is not None

    @cooperative.setter
    def cooperative(self, wanted: bool) -> None:
        if not isinstance(wanted, bool):
            raise UsageError(f"{self.name}.cooperative={checks.shown(wanted)}: it is True or False.")
        if not wanted:
            self._together = None
        elif self._together is None:
            self._together, self._workspace = self._new_workspace(self.name)

    def _check_resident(self, grid: Grid, block: Grid) -> None:
        """A block that waits for one that cannot start, because there is no room for it, would wait for ever."""
        most = self.launcher.resident_blocks(block, self._dynamic_shared)
        if math.prod(grid) > most:
            raise UsageError(
                f"dispatch {self.name}: grid={grid!r} has {math.prod(grid)} blocks; the program is cooperative, and at "
                f"most {most} blocks of {math.prod(block)} threads run at once on {self.launcher.sm_count} SMs of "
                f"{self.launcher.chip.arch}. Launch fewer blocks that do more each."
            )

    def set_tensor_maps(self, maps: Sequence[str]) -> None:
        """Say which parameters are tensor maps: a dispatch passes a buffer, and its kernel is given a map of it.

        maps    for each parameter what tensor_map.without_address takes, "" for one that is no map
        Raises  UsageError when a parameter is too small for a map, or the words describe none
        """
        parameters = self.kernel.parameters
        if len(maps) != len(parameters):
            raise UsageError(
                f"{self.name}: {len(maps)} tensor maps, or none, for {len(parameters)} parameters."
            )
        for number, (words, parameter) in enumerate(zip(maps, parameters)):
            if words and parameter.size_bytes != TENSOR_MAP_BYTES:
                raise UsageError(
                    f"{self.name}: parameter {number} has {parameter.size_bytes} bytes; a tensor map has "
                    f"{TENSOR_MAP_BYTES}. Give maps for those that the kernel declares as such."
                )
        wanted = {number: words for number, words in enumerate(maps) if words}
        self._rests = {number: tensor_map.without_address(words) for number, words in wanted.items()}
        self.shapes.clear()

    def rest(self, number: int, arg: object) -> bytes:
        return self._rests.get(number, b"") if isinstance(arg, Buffer) else b""

    def _letter(self, number: int, arg: object, size: int) -> str:
        if number in self._rests and isinstance(arg, Buffer):
            return "Q"
        return super()._letter(number, arg, size)

    def _check_addresses(self, values: Sequence[Any]) -> None:
        """Whether a map can begin at these addresses; what lies there is the caller's to know, as for any pointer."""
        for number in self._rests:
            address = values[number]
            if isinstance(address, int) and address % tensor_map.ADDRESS_ALIGNMENT:
                raise UsageError(
                    f"dispatch {self.name}: argument {number} is at {address:#x}; the kernel copies tiles of a "
                    f"tensor, which begins at a multiple of {tensor_map.ADDRESS_ALIGNMENT}."
                )

    # ------------------------------------------------------------ dispatching

    def dispatch(self, args: Sequence[Any], grid: Grid, block: Grid) -> tuple[Piece, tuple[int | float, ...]]:
        """The words of one launch, and its arguments as plain numbers."""
        values = self.values(args)
        grid, block = self.launch_sizes(grid, block)
        packed = self.pack_args(args, values)
        if self._rests:
            self._check_addresses(values)
        if self._together is not None:
            self._check_resident(grid, block)
        made = self.launcher.dispatch(packed, grid, block, self._dynamic_shared, self._together)
        return made, tuple(value for value in values if not isinstance(value, bytes))

    def places(self, args: Sequence[Any]) -> list[tuple[int, int]]:
        parameters = self.kernel.parameters
        if len(args) != len(parameters):
            sizes = ", ".join(f"{one.size_bytes} bytes" for one in parameters) or "none"
            raise UsageError(
                f"dispatch {self.name}: takes {len(parameters)} arguments ({sizes}), got {len(args)}."
            )
        return [(one.offset, one.size_bytes) for one in parameters]

    def declared_kind(self, number: int) -> str:
        return self.kernel.parameters[number].kind

    def check_launch(self, grid: Grid, block: Grid) -> tuple[Grid, Grid]:
        grid = checks.sizes(f"dispatch {self.name}", "grid", grid, MAX_GRID)
        block = checks.sizes(f"dispatch {self.name}", "block", block, MAX_BLOCK)
        required = self.kernel.required_block
        if required and block != tuple(required):
            raise UsageError(
                f"dispatch {self.name}: block={block!r}; the kernel was compiled for exactly {tuple(required)}."
            )
        cluster = self.kernel.cluster
        if any(size % width for size, width in zip(grid, cluster)):
            raise UsageError(
                f"dispatch {self.name}: grid={grid!r} is no multiple of the kernel's clusters of {cluster} blocks."
            )
        if math.prod(block) > self.max_threads:
            raise UsageError(
                f"dispatch {self.name}: block={block!r} has {math.prod(block)} threads; the kernel was compiled for at "
                f"most {self.max_threads}, with {self.kernel.registers} registers for each."
            )
        return grid, block
