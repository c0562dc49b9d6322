"""What a PTX module is made of, as plain data.

In       nothing: the parser fills these in
Out      Module, Function, Variable, Instruction and the operands
Next     parser.py (text to this), decode.py (this to closures)
Source   PTX ISA, "Syntax", "Directives", "Instruction Operands"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hcq.emu.nv.shader.types import Type

# Named registers are exactly these; everything else that starts with % is a declared register.
SPECIAL_VECTORS = (
    "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid",
)  # fmt: skip
SPECIAL_SCALARS = (
    "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "clock", "clock_hi", "clock64", "globaltimer",
    "globaltimer_lo", "globaltimer_hi", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
    "total_smem_size", "dynamic_smem_size", "aggr_smem_size", "reserved_smem_offset_begin",
    "reserved_smem_offset_end", "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1",
    *(f"pm{number}{size}" for number in range(8) for size in ("", "_64")),
    "is_explicit_cluster", "cluster_ctarank", "cluster_nctarank", "current_graph_exec",
)  # fmt: skip


class Register(NamedTuple):
    """A register, with the scope's number in its name where an inner scope hides an outer one."""

    name: str
    negated: bool = False  # !p
    part: str = ""  # a.b0, of video instructions
    minus: bool = False  # -a, of vmad


class Immediate(NamedTuple):
    """A number. Floats are given by their bits, and `is_float` says how many there are (4 or 8 bytes)."""

    value: int
    float_bytes: int = 0


class Symbol(NamedTuple):
    """The address of a variable, function or label, or a special register such as %tid.x."""

    name: str
    offset: int = 0


class Address(NamedTuple):
    """[base + offset]; base is a register, a symbol, or None for an absolute address."""

    base: Register | Symbol | None
    offset: int = 0


class Vector(NamedTuple):
    """{a, b, c, d}"""

    parts: tuple[Operand, ...]


class TensorAddress(NamedTuple):
    """[map, {x, y}]: the address of a tensor map, and where in the tensor, dimension 0 first."""

    map: Address
    coordinates: Vector


class Pair(NamedTuple):
    """p|q: two destinations"""

    first: Operand
    second: Operand


class Arguments(NamedTuple):
    """(a, b): the arguments or results of a call"""

    parts: tuple[Operand, ...]


class Discard(NamedTuple):
    """_: a result that is not wanted"""


Operand = Register | Immediate | Symbol | Address | TensorAddress | Vector | Pair | Arguments | Discard


@dataclass(frozen=True)
class Instruction:
    """One instruction. `modifiers` are the words between the dots after the opcode, in order."""

    line: int
    text: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None

    def __str__(self) -> str:
        return self.text


class Initial(NamedTuple):
    """A piece of an initialiser that is an address: at `at`, `size_bytes` of (symbol + addend) >> shift."""

    at: int
    size_bytes: int
    symbol: str
    addend: int
    shift: int


@dataclass
class Variable:
    """A named piece of memory. `space` is global, const, shared, local or param; texture for what is no memory.

    data        initial bytes, shorter than size_bytes where the rest is zero
    addresses   pieces of the initial bytes that are addresses of other symbols
    is_extern   declared, not defined; extern shared memory is what the launch adds ("dynamic")
    """

    name: str
    space: str
    type: Type
    size_bytes: int
    alignment: int
    line: int
    data: bytes = b""
    addresses: list[Initial] = field(default_factory=list)
    is_extern: bool = False


@dataclass
class Function:
    """An .entry or a .func: parameters, registers, variables, and its instructions with the labels between them."""

    name: str
    line: int
    is_entry: bool
    params: list[Variable]
    results: list[Variable]
    registers: dict[str, Type] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name -> index in body
    # .branchtargets and .calltargets; a .callprototype names none
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    has_body: bool = False
    required_block: tuple[int, ...] = ()  # .reqntid
    largest_block: tuple[int, ...] = ()  # .maxntid
    required_cluster: tuple[int, ...] = ()  # .reqnctapercluster, of more than one block
    fault: Exception | None = None  # why it is not understood: then only its name is known
    param_base: int = 0  # where a kernel's parameters begin in constant bank 0: they are aligned there

    @property
    def param_bytes(self) -> int:
        """Bytes of the parameter area, each parameter at its natural place."""
        end = 0
        for _, at, variable in placed(self.params, self.param_base):
            end = at + variable.size_bytes
        return end


def placed(variables: list[Variable], start: int = 0) -> list[tuple[str, int, Variable]]:
    """(name, offset from the start, variable) with each at the next multiple of its alignment, counted from 0."""
    found, at = [], start
    for variable in variables:
        at = -(-at // variable.alignment) * variable.alignment
        found.append((variable.name, at - start, variable))
        at += variable.size_bytes
    return found


@dataclass
class Module:
    """A parsed PTX file. `decoded` is what decode.py has made of its functions, for all kernels of it.

    is_cuda  NVIDIA's compiler wrote it, of CUDA C++: its first lines say so
    """

    version: tuple[int, int]
    target: str
    address_bytes: int
    functions: dict[str, Function]
    variables: dict[str, Variable]
    is_cuda: bool = False
    decoded: dict[str, Any] = field(default_factory=dict)
