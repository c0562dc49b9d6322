"""Program: a kernel loaded on a device, ready to dispatch.

In       a code object and the name of its entry
Out      what a dispatch needs: the address of the entry, the kinds of its arguments, the size of its scratch memory
Changes  pages of code; they are freed once the program is dropped and no submitted work can run it any more
Next     cpu/link.py (loading an object for the host's processor), queue.py (dispatch)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from hcq import checks
from hcq.errors import UsageError
from hcq.system.call_site import Site

KINDS = ("buffer", "int", "float")
# pack_into, where, and for integers the bits that are kept, else 0
Store = tuple[Callable[..., None], int, int]


class Slot(NamedTuple):
    """Where an argument goes among the packed ones, and its struct letter; "s" for bytes."""

    offset: int
    size_bytes: int
    letter: str

    def holds(self, value: Any) -> bool:
        """Whether a value fits: an integer as a signed or an unsigned one, a float that does not become infinite."""
        if self.letter in "BHIQ":
            return bool(-(1 << 8 * self.size_bytes - 1) <= value < 1 << 8 * self.size_bytes)
        if self.letter == "s":
            return True
        try:
            struct.pack("<" + self.letter, value)
        except OverflowError:
            return False
        return True

    def store_at(self, byte_offset: int) -> Store:
        """How a value that fits is written to such a slot at an offset of some memory."""
        mask = (1 << 8 * self.size_bytes) - 1 if self.letter in "BHIQ" else 0
        return struct.Struct("<" + self.letter).pack_into, byte_offset, mask


class Loader(Protocol):
    """A device, as far as a program needs it."""

    @property
    def name(self) -> str:
        """How messages call the device."""
        ...

    def unloaded(self, entry: int) -> None:
        """A program is gone. Called by destructors."""


class Program:
    """An entry of a loaded object, ready to be dispatched. Dropping the last reference unloads it.

    name           how messages, reports and traces call it
    entry          the device address that launches name
    code_va        where its first instruction is: `entry`, unless that is a descriptor
    args           kinds of the arguments in order ("buffer", "int", "float"), or None when nobody said
    scratch_bytes  private memory of each worker that it was loaded with
    access         what it does with each buffer, for the rules ("read", "write", "both", ""); None when nobody said
    extents        how many bytes of each it uses, 0 for all; None when nobody said
    has_variables  it may use memory that no launch names: launches keep their order, whatever `access` says
    shapes         device-private: argument types seen -> how to pack them
    packed         the same for the trace, once it has seen a dispatch
    first_site     the line that first dispatched it

    Once `complete` was called, an attribute that the program does not have cannot be set.
    """

    _dynamic_shared = (
        0  # what launches ask for beyond the kernel's own shared memory, where a device has such
    )
    _is_complete = False
    origin: tuple[str, bytes] = ("", b"")  # the entry and the image that it was loaded from
    _numbers: tuple[Any, ...] = ()  # of each parameter: ..., which a launch gives, or what it always is

    def __init__(
        self,
        device: Loader,
        name: str,
        entry: int,
        args: tuple[str, ...] | None,
        scratch_bytes: int,
        release: Callable[[], None],
    ) -> None:
        for kind in args or ():
            if kind not in KINDS:
                raise UsageError(
                    f"load({name!r}): unknown argument kind {kind!r}. Kinds: {', '.join(KINDS)}."
                )
        self.device = device
        self.name = name
        self.entry = self.code_va = entry
        self.args = args
        self.scratch_bytes = scratch_bytes
        self.access: tuple[str, ...] | None = None
        self.extents: tuple[int, ...] | None = None
        self.has_variables = False
        self.shapes: dict[tuple[type, ...], Any] = {}
        self.first_site: Site = None
        self.packed: tuple[Callable[..., bytes], int, str] | None = None
        self._release = release

    def line_at(self, pc: int) -> str:
        """The line of the source that an instruction was made from; "" where nobody says."""
        return ""

    def caller_at(self, pc: int) -> str:
        """The line where the function of such an instruction was inlined, if it was, and that is known."""
        return ""

    def set_access(self, access: Sequence[str], extents: Sequence[int] | None = None) -> None:
        """Say what the program does with the memory of each argument, so that validation can judge the order of its
        launches.

        access   "read", "write", "both" or "" (no memory) for each argument
        extents  how many bytes it uses from the address on; None, or 0 for one of them, means to the buffer's end
        Raises   UsageError for another word, or another number of them than the program has arguments
        """
        access = checks.words(f"load({self.name!r})", "access", access)
        count = len(access) if self.args is None else len(self.args)
        if len(access) != count or not set(access) <= {"read", "write", "both", ""}:
            raise UsageError(
                f'load({self.name!r}): access={access!r}; takes "read", "write", "both" or "" for each of the '
                f"{count} arguments."
            )
        if extents is not None and len(extents) != count:
            raise UsageError(
                f"load({self.name!r}): {len(extents)} extents for {count} arguments. Give one for each."
            )
        self.access = tuple(access)
        self.extents = (
            None
            if extents is None
            else tuple(checks.whole(f"load({self.name!r})", "extents", extent) for extent in extents)
        )

    def with_numbers(self, args: Sequence[Any]) -> Sequence[Any]:
        """What a launch names, and between it the numbers that are the same in all (hcq/code/fixed_numbers.py)."""
        rest = iter(args)
        if len(args) == len(self._numbers):
            return args
        return [*[next(rest, None) if one is ... else one for one in self._numbers], *rest]

    def complete(self) -> None:
        """It is loaded: from now on a misspelt or a foreign attribute is refused, not kept without effect."""
        self._is_complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_complete and not hasattr(self, name):
            raise UsageError(
                f"{self.name}.{name} = {checks.shown(value)}: a program of {self.device.name} has no such attribute. "
                f"What can be set: {', '.join(self._settable()) or 'nothing'}."
            )
        object.__setattr__(self, name, value)

    @classmethod
    def _settable(cls) -> list[str]:
        """Attributes that a launch depends on and methods that set more, by name."""
        found = []
        for name in dir(cls):
            member = getattr(cls, name)
            if isinstance(member, property) and member.fset is not None:
                found.append(name)
            elif name.startswith("set_"):
                found.append(f"{name}()")
        return found

    def __del__(self) -> None:
        release = getattr(self, "_release", None)
        if release is not None:
            self.device.unloaded(self.entry)
            release()

    def __repr__(self) -> str:
        args = "unchecked arguments" if self.args is None else f"({', '.join(self.args)})"
        return f"Program({self.name} {args} on {self.device.name} at {self.entry:#x})"


def check_dispatch(device: Loader, program: Any, args: Any, block: Any, groups_per_claim: Any) -> None:
    """Refuse a launch where something is not even of the right type; asked when it could not be encoded."""
    if not isinstance(program, Program):
        raise UsageError(
            f"dispatch: takes a Program, not {checks.shown(program)}. Make one with load() of {device.name}."
        )
    call = f"dispatch {program.name}"
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise UsageError(
            f"{call}: args={checks.shown(args)}; takes a list of a Buffer, an int or a float for each parameter."
        )
    checks.sizes(call, "block", block, (2**31, 2**31, 2**31))
    checks.whole(call, "groups_per_claim", groups_per_claim, 0, 2**32 - 1)
