"""Modules: a code object in a GPU's memory once, its entries beside the variables that they share.

In       a code object
Out      programs of its entries, and Buffers of its variables, all of one copy
Changes  a block of executable memory; it goes back when module, programs and buffers of variables are dropped
Next     amd/module.py, nv/module.py (what is linked, what a launch needs), program.py (arguments)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hcq import checks
from hcq.errors import UsageError
from hcq.gpu.program import GpuProgram
from hcq.memory import Buffer

if TYPE_CHECKING:
    from hcq.gpu.device import GpuDevice

SHOWN = 12  # names in an error


class GpuModule(ABC):
    """A code object that is loaded.

    name       how messages, reports and traces call it
    image      the bytes that it was made from
    entries    names of its kernels
    variables  names of its variables: __device__, __constant__ and __managed__ ones
    """

    def __init__(
        self,
        device: GpuDevice,
        name: str,
        image: bytes,
        entries: Sequence[str],
        places: Mapping[str, tuple[int, int]],
    ) -> None:
        self.device, self.name, self.image = device, name, image
        self.entries, self.variables = tuple(sorted(entries)), tuple(sorted(places))
        self._places = places  # of variables: offset in the image, size in bytes

    has_writable = False  # one of its variables is of such that kernels write
    code: Buffer  # all of it
    va: int  # where the image begins in it

    @abstractmethod
    def make(self, entry: str, args: tuple[str, ...] | None, name: str) -> GpuProgram:
        """`program` without checks of what the caller passed. Raises UsageError when this kernel cannot run here."""

    def program(
        self,
        entry: str,
        args: Sequence[str] | None = None,
        name: str | None = None,
        access: Sequence[str] | None = None,
        sources: Mapping[str, str] | None = None,
        extents: Sequence[int] | None = None,
    ) -> GpuProgram:
        """One of its kernels, which uses this module's variables.

        entry, args, name, sources, access, extents   as Device.load; access is of arguments alone: where the module has
                                                      variables, recorded launches keep their order all the same
        Raises    UsageError for a kernel that is not there, naming those that are, or that cannot run on this GPU
        """
        label = checks.text(f"{self.name}.program", "entry", entry)
        if name is not None and checks.text(f"{self.name}.program", "name", name):
            label = name
        self.check_entry(entry)
        kinds = None if args is None else checks.words(f"{self.name}.program({entry!r})", "args", args)
        device = self.device
        device.check_alive()
        made = device.memory.with_room(lambda: self.make(entry, kinds, label))
        made.has_variables = bool(self.variables)  # the host, and copies, may fill any of them
        device.announce(made, entry, self.image, access, sources, extents)
        return made

    def check_entry(self, entry: str) -> None:
        """Raises UsageError, naming the kernels that there are, for another one."""
        if entry not in self.entries:
            names = ", ".join(self.entries) or "none"
            raise UsageError(f"load({self.name!r}): no kernel {entry!r} in the object. Its kernels: {names}.")

    def variable(self, name: str) -> Buffer:
        """A variable's memory, to be read, filled and copied; it keeps the module's memory alive.

        Raises  UsageError for a variable that is not there, naming those that are
        """
        checks.text(f"{self.name}.variable", "name", name)
        if name not in self._places:
            raise UsageError(
                f"{self.name}.variable({name!r}): there is none of this name; it has {_some(self.variables)}. C++ "
                'mangles names: declare it extern "C", or give the mangled one.'
            )
        offset, size_bytes = self._places[name]
        # any launch may use it, though no launch names it: whoever writes there waits for all of them
        self.code.is_recorded = True
        made = self.code.view(self.va - self.code.address + offset, size_bytes)
        made.name = name
        return made

    def __repr__(self) -> str:
        counts = f"{len(self.entries)} entries, {len(self.variables)} variables"
        return f"Module({self.name} on {self.device.name}: {counts})"


def _some(names: Sequence[str]) -> str:
    """Names in a message; not all of a thousand."""
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) + rest) or "none"
