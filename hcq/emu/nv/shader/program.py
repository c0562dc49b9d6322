"""A kernel linked to run: its functions decoded, its shared variables placed, its global ones found.

In       a Module, the name of an .entry, the addresses of the module's global and constant variables
Out      Program
Next     decode.py (Decoded), machine.py (runs it), run.py (who makes it, with opcodes.decode)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hcq.emu.nv.shader.decode import COPY_BY_THEMSELVES, Decoded
from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.flow import is_warp_barrier, is_warp_wide, orders_some
from hcq.emu.nv.shader.syntax import (
    Address,
    Arguments,
    Function,
    Module,
    Operand,
    Pair,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
    placed,
)
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.pointers import Origin
from hcq.errors import UsageError

CODE_START = 0x7F7E_0000_0000  # addresses of functions, for indirect calls; no memory is there
CODE_STEP = 16


Decode = Callable[[Module, Function], Decoded]


class Program:
    """An entry with all it can reach. decode: what makes a function ready to run, when it is first needed."""

    def __init__(self, module: Module, name: str, symbols: Mapping[str, int], decode: Decode) -> None:
        entry = module.functions.get(name)
        if entry is None or not entry.is_entry or not entry.has_body:
            entries = ", ".join(f.name for f in module.functions.values() if f.is_entry) or "none"
            raise UsageError(f"kernel {name!r}: this PTX module has no such .entry; it has {entries}.")
        self.module = module
        self.symbols = symbols
        self._decode = decode
        self._decoded: dict[str, Decoded] = {}
        # which parameters addresses were made from, by what the parameters are (pointers.py)
        self.origins: dict[tuple[Any, ...], dict[int, Origin]] = {}
        self.specials: dict[tuple[Any, ...], Lanes] = {}  # special registers that batches share
        self.values: dict[tuple[Any, ...], Lanes] = {}  # addresses of its names, likewise
        self._places = code_addresses(module, symbols)
        # of functions with bodies; an alias has the address of what it stands for
        self._at = {
            place: module.functions[name].name
            for name, place in self._places.items()
            if module.functions[name].has_body
        }
        self.functions = _reachable(module, entry)
        self.shared_places, self.static_shared_bytes = _place_shared(module, self.functions)
        # all of it is declared: none has the size that a launch says
        self.shared_is_declared = max(self.shared_places.values(), default=0) < self.static_shared_bytes
        self.uses_warps = any(
            is_warp_wide(instruction)
            or instruction.opcode in ("activemask", "match")
            or is_warp_barrier(instruction)
            for function in self.functions
            for instruction in function.body
        )
        # where cooperative groups exchange values between warps
        self.uses_reserved_shared = any(
            isinstance(operand, Symbol) and operand.name.startswith("%reserved_smem_offset")
            for function in self.functions
            for instruction in function.body
            for operand in instruction.operands
        )
        # whether anything touches shared memory that its threads must wait for
        self.copies_by_itself = any(
            instruction.opcode in COPY_BY_THEMSELVES
            for function in self.functions
            for instruction in function.body
        )
        # whether anything may order some warps of a block and not all, or warps of several blocks
        self.orders_some = any(
            orders_some(instruction) for function in self.functions for instruction in function.body
        )
        self.entry = self.decoded(name)

    def check(self) -> None:
        """Decode all that the entry reaches by name, through functions and through tables of their addresses.

        Raises  UsageError at the first instruction that cannot run; a function that nobody reaches may hold anything
        """
        reached = {self.entry.function.name: self.entry.function}
        rest: list[str] = [*_mentions(self.entry.function)]
        seen: set[str] = set()
        while rest:
            name = rest.pop()
            if name in seen:
                continue
            seen.add(name)
            if (variable := self.module.variables.get(name)) is not None:
                rest += [piece.symbol for piece in variable.addresses]
            function = self.module.functions.get(name)
            if function is None or not function.has_body or function.name in reached:
                continue
            reached[function.name] = function
            try:
                self.decoded(function.name)
            except PtxError as error:
                raise UsageError(f"function {function.name!r}, which it reaches: {error}") from None
            rest += _mentions(function)

    def decoded(self, name: str) -> Decoded:
        """A function, decoded when it is first needed."""
        known = self._decoded.get(name)
        if known is None:
            known = self._decoded[name] = self._decode(self.module, self.module.functions[name])
        return known

    def text_of_line(self, line: int) -> str:
        """The instruction in a line of the module's text, or ""."""
        found = (one for function in self.functions for one in function.body if one.line == line)
        return str(next(found, ""))

    def function_at(self, address: int) -> str | None:
        """The function with this address."""
        return self._at.get(address)

    def is_shared(self, decoded: Decoded, name: str) -> bool:
        """Whether a name is that of a variable in shared memory."""
        of_params = decoded.function.is_entry and name in param_offsets(decoded.function)
        return name in self.shared_places and not of_params

    def value(self, decoded: Decoded, name: str, offset: int, scalar: Any) -> Lanes:
        """The same, and so much more, as the one number that all threads read."""
        key = decoded.function.name, name, offset, scalar
        if key not in self.values:
            bits = 8 * np.dtype(scalar).itemsize
            self.values[key] = np.array([(self.address(decoded, name) + offset) % (1 << bits)], scalar)
        return self.values[key]

    def address(self, decoded: Decoded, name: str) -> int:
        """The address of a variable or function, in its space. A kernel's parameters are counted from the first."""
        function = decoded.function
        if function.is_entry:
            offset = param_offsets(function).get(name)
            if offset is not None:
                return offset
        if name in self.shared_places:
            return self.shared_places[name]
        if name in self.module.variables:
            if name not in self.symbols:
                raise UsageError(
                    f"kernel {function.name!r} uses the variable {name!r}, whose address the launch does not give."
                    " Pass it in symbols."
                )
            return self.symbols[name]
        if name in self._places:
            return self._places[name]
        raise PtxError(function.line, f"{name!r} is not declared in function {function.name!r} or its module")


def code_addresses(module: Module, symbols: Mapping[str, int]) -> dict[str, int]:
    """What the address of each function is, for indirect calls and for tables of function pointers.

    symbols   says it where the launch has placed functions; elsewhere they are counted, an alias with its function
    """
    counted: dict[int, int] = {}
    return {
        name: symbols[name]
        if name in symbols
        else counted.setdefault(id(function), CODE_START + CODE_STEP * number)
        for number, (name, function) in enumerate(module.functions.items())
    }


def param_offsets(function: Function) -> dict[str, int]:
    """Where each parameter of a kernel is, from the first."""
    return {name: at for name, at, _ in placed(function.params, function.param_base)}


def _names(operand: Operand) -> list[str]:
    if isinstance(operand, Symbol):
        return [operand.name]
    if isinstance(operand, Address):
        return [operand.base.name] if isinstance(operand.base, Symbol) else []
    if isinstance(operand, TensorAddress):
        return _names(operand.map)
    if isinstance(operand, (Vector, Arguments)):
        return [name for part in operand.parts for name in _names(part)]
    if isinstance(operand, Pair):
        return _names(operand.first) + _names(operand.second)
    return []


def _mentions(function: Function) -> set[str]:
    return {
        name for instruction in function.body for operand in instruction.operands for name in _names(operand)
    }


def _reachable(module: Module, entry: Function) -> list[Function]:
    """The entry and every function it or its callees name; functions whose addresses lie in data count too."""
    found, rest = [entry], [entry]
    in_data = {piece.symbol for variable in module.variables.values() for piece in variable.addresses}
    rest_names = in_data & set(module.functions)
    while rest or rest_names:
        names = _mentions(rest.pop()) if rest else {rest_names.pop()}
        for name in names:
            function = module.functions.get(name)
            if function is not None and function not in found:
                found.append(function)
                rest.append(function)
    return found


def _place_shared(module: Module, functions: list[Function]) -> tuple[dict[str, int], int]:
    """Offsets of shared variables: those that are used, then the ones whose size the launch says.

    The most aligned come first, which leaves the smallest gaps: no more memory is needed than compilers lay out.
    """
    used: dict[str, Variable] = {}
    for function in functions:
        for name in sorted(_mentions(function)):
            variable = function.variables.get(name) or module.variables.get(name)
            if variable is not None and variable.space == "shared":
                used[variable.name] = variable
    places: dict[str, int] = {}
    end = 0
    for variable in sorted(used.values(), key=lambda variable: -variable.alignment):
        if variable.size_bytes:
            end = -(-end // variable.alignment) * variable.alignment
            places[variable.name] = end
            end += variable.size_bytes
    open_ended = [variable for variable in used.values() if not variable.size_bytes]
    for variable in open_ended:
        end = -(-end // variable.alignment) * variable.alignment
    for variable in open_ended:
        places[variable.name] = end
    return places, end
