"""MSL renderer: a linear program as the source of one kernel, for Metal's own compiler.

In       a Program
Out      MSL: kernel void NAME(buffers), one group of the program per threadgroup
Next     metal_arithmetic.py (one expression per operation), cuda.py (the same kernel in CUDA C), ../codegen.py

An instruction is a statement, a vector's lanes are variables of their own, and an accumulator is a variable that is
assigned.
Vectors that lie aligned in memory are loaded and stored whole. Matrix units (simdgroup_matrix) are not used.
Source   Metal Shading Language Specification 3.1: address spaces, attributes, SIMD-group functions, barriers
"""

from __future__ import annotations

from hcq.compiler.linear.across import lower_across
from hcq.compiler.linear.alignment import Alignment
from hcq.compiler.linear.narrow_indices import narrow_indices
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.compiler.render import metal_arithmetic as spell
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.compiler.render.metal_arithmetic import literal, memory_type, register_type
from hcq.ir.dtype import DType
from hcq.ir.op import ARITHMETIC, Op

WARP = 32  # threads of a SIMD group
MOST_PARAMETERS = 31  # entries of the buffer argument table
PRELUDE = "#include <metal_stdlib>\nusing namespace metal;"
VECTORS = (2, 4)  # lanes that a load or a store has at once
MOST_VECTOR_BYTES = 16


def render(program: Program, arch: str) -> str:
    """The kernel's source. Raises RenderError for what Metal has no spelling for."""
    if len(program.params) > MOST_PARAMETERS:
        raise RenderError(
            f"{program.name}: {len(program.params)} buffers; a kernel of Metal's takes {MOST_PARAMETERS}. "
            "Realize some of them first"
        )
    lower_across(program, WARP)
    narrow_indices(program)
    return _Source(program).module()


class _Source:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.values: dict[Instruction, list[str]] = {}  # an expression for each lane: a variable or a number
        self.helpers: dict[str, str] = {}
        self.count = 0
        self.depth = 1
        self.aligned = Alignment()
        self.own_group: Instruction | None = None  # the loop over groups, which here is no loop

    def module(self) -> str:
        program = self.program
        for it in program.instructions:
            self.instruction(it)
        head = [f"// {program.name}: {program.groups} threadgroups of {program.launched} threads"]
        head += [f"// p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        head += [PRELUDE, "", *self.helpers.values()]
        if self.helpers:
            head.append("")
        params = [
            f"device {'' if param.writable else 'const '}{memory_type(dtype)} *p{param.index} [[buffer({place})]]"
            for place, (param, dtype) in enumerate(program.params)
        ]
        params += [
            "uint group_ [[threadgroup_position_in_grid]]",
            "uint thread_ [[thread_position_in_threadgroup]]",
        ]
        head.append(f"[[max_total_threads_per_threadgroup({program.launched})]]")
        head.append(f"kernel void {program.name}(\n    " + ",\n    ".join(params) + ") {")
        if program.shared_bytes:
            units = -(-program.shared_bytes // 16)
            head.append(f"  threadgroup uint4 shared[{units}];")
        return "\n".join([*head, *self.lines, "}"]) + "\n"

    # -- lines ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def helper(self, name: str, text: str) -> str:
        """A function that the kernel calls, written once above it."""
        self.helpers[name] = text
        return name

    def let(self, it: Instruction, lanes: list[str]) -> None:
        """New variables for the lanes of an instruction's value."""
        kind = register_type(it.dtype)
        names = []
        for lane in lanes:
            self.count += 1
            names.append(f"v{self.count}")
            self.line(f"const {kind} {names[-1]} = {lane};")
        self.values[it] = names

    def same(self, it: Instruction, lanes: list[str]) -> None:
        """The lanes are other values; those of an accumulator as it is now, since it will be assigned again."""
        if any(source is not None and source.op is Op.ACCUMULATOR for source in it.src):
            self.let(it, lanes)
        else:
            self.values[it] = lanes

    # -- instructions -----------------------------------------------------------------------------------------------

    def instruction(self, it: Instruction) -> None:
        op = it.op
        if op is Op.CONST:
            self.values[it] = [literal(it.arg, it.dtype.scalar)] * it.dtype.lanes
        elif op is Op.PARAM:
            self.values[it] = [f"p{it.arg.index}"]
        elif op is Op.SPECIAL:
            self.special(it)
        elif op is Op.SHARED:
            kind = memory_type(it.dtype)
            self.values[it] = [f"((threadgroup {kind} *)shared + {it.arg // it.dtype.scalar.itemsize})"]
        elif op is Op.SHUFFLE:
            self.let(it, [self.shuffle(lane, it) for lane in self.of(it, 0)])
        elif op is Op.BARRIER:
            self.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
        elif op is Op.ACCUMULATOR:
            self.accumulator(it)
        elif op is Op.UPDATE:
            for variable, value in zip(self.of(it, 0), self.of(it, 1)):
                self.line(f"{variable} = {value};")
        elif op is Op.LOOP:
            self.begin_loop(it)
        elif op is Op.ENDLOOP:
            self.end_loop(it)
        elif op is Op.LOAD:
            self.let(it, self.load(it))
        elif op is Op.STORE:
            self.store(it)
        elif op is Op.BROADCAST:
            self.same(it, self.of(it, 0) * it.dtype.lanes)
        elif op is Op.VECTOR:
            self.same(it, [self.of(it, lane)[0] for lane in range(len(it.src))])
        elif op is Op.LANE:
            lanes = [lane for source in range(len(it.src)) for lane in self.of(it, source)]
            self.let(it, [lanes[lane] for lane in it.arg])
        elif op in ARITHMETIC:
            self.let(it, self.arithmetic(it))
        else:
            raise RenderError(f"{op.name}: kernels of Metal's have no such instruction")

    def special(self, it: Instruction) -> None:
        """The number of the group or of the thread in it. The range of groups ends at nobody's."""
        if it.arg == "last":
            self.values[it] = [""]
            return
        name = "thread" if it.arg == "thread" else "group"
        kind = register_type(it.dtype)
        self.line(f"const {kind} {name}_number = ({kind}){name}_;")
        self.values[it] = [f"{name}_number"]

    def shuffle(self, lane: str, it: Instruction) -> str:
        """Words of 32 bits and less are exchanged; longer ones in two, and a bool as a number: MSL has neither."""
        kind = register_type(it.dtype)
        if kind == "bool":
            return f"simd_shuffle_xor((uint){lane}, (ushort){it.arg}) != 0"
        if it.dtype.scalar.bits < 64:
            return f"simd_shuffle_xor({lane}, (ushort){it.arg})"
        body = (
            "{\n"
            "  const uint low = simd_shuffle_xor((uint)x, by);\n"
            "  const uint high = simd_shuffle_xor((uint)(x >> 32), by);\n"
            "  return (ulong)high << 32 | (ulong)low;\n"
            "}"
        )
        name = self.helper("shuffle_long", f"static inline ulong shuffle_long(ulong x, ushort by) {body}")
        return f"({kind}){name}((ulong){lane}, (ushort){it.arg})"

    def of(self, it: Instruction, number: int) -> list[str]:
        """The lanes of a source."""
        return self.values[it.source(number)]

    def arithmetic(self, it: Instruction) -> list[str]:
        sources = [(self.values[s], s.dtype) for s in it.src if s is not None]
        unsigned = it.arg == NOT_NEGATIVE
        known = it.src[1].number if len(it.src) > 1 and it.src[1] is not None else None
        lanes = []
        for lane in range(it.dtype.lanes):
            operands = [(values[lane], dtype) for values, dtype in sources]
            lanes.append(spell.arithmetic(self, it.op, it.dtype, operands, unsigned, known))
        return lanes

    # -- loops ------------------------------------------------------------------------------------------------------

    def accumulator(self, it: Instruction) -> None:
        names = []
        for value in self.of(it, 0):
            self.count += 1
            names.append(f"a{self.count}")
            self.line(f"{register_type(it.dtype)} {names[-1]} = {value};")
        self.values[it] = names

    def begin_loop(self, it: Instruction) -> None:
        if it.src[0] is not None and it.src[0].op is Op.SPECIAL:
            self.own_group = it
            self.values[it] = ["group_number"]
            return
        low, high = self.of(it, 0)[0], self.of(it, 1)[0]
        self.count += 1
        name = f"{it.arg.name.replace('.', '_')}_{self.count}"
        self.values[it] = [name]
        self.line(f"for ({register_type(it.dtype)} {name} = {low}; {name} < {high}; ++{name}) {{")
        self.depth += 1

    def end_loop(self, it: Instruction) -> None:
        if it.src[0] is self.own_group is not None:
            self.own_group = None
            return
        self.depth -= 1
        self.line("}")

    # -- memory -----------------------------------------------------------------------------------------------------

    def places(self, it: Instruction, lanes: int) -> list[str]:
        """The elements of an access, one for each lane."""
        address = self.of(it, 0)[0]
        base = self.of(it, 1)[0] if it.src[1] is not None else ""
        found = []
        for lane in range(lanes):
            offset = (it.arg or 0) + lane
            if base and offset:
                index = f"{base} {'+' if offset > 0 else '-'} {abs(offset)}"
            else:
                index = base or str(offset)
            found.append(f"{address}[{index}]")
        return found

    def pieces(self, it: Instruction, dtype: DType) -> int:
        """How many lanes are loaded or stored at once, where the address divides by their size; 1: each by itself."""
        best = 1
        for lanes in VECTORS:
            size = dtype.itemsize * lanes
            if dtype.lanes % lanes or size > MOST_VECTOR_BYTES or dtype.is_bool:
                continue
            if self.aligned.bytes(it, dtype) >= size:
                best = lanes
        return best

    def space(self, it: Instruction) -> str:
        """Where an address is."""
        if it.source(0).op is Op.SHARED:
            return "threadgroup"
        return "device"

    def load(self, it: Instruction) -> list[str]:
        mask = it.src[2] if len(it.src) > 2 else None
        places = self.places(it, it.dtype.lanes)
        step = self.pieces(it, it.dtype) if mask is None else 1
        if step > 1:
            kind = f"{memory_type(it.dtype)}{step}"
            lanes = []
            for first in range(0, it.dtype.lanes, step):
                self.count += 1
                name = f"m{self.count}"
                self.line(f"const {kind} {name} = *({self.space(it)} const {kind} *)&{places[first]};")
                lanes += [f"{name}[{lane}]" for lane in range(step)]
            return lanes
        lanes = [f"{place} != 0" for place in places] if it.dtype.is_bool else places
        if mask is not None:
            zero = literal(0, it.dtype.scalar)
            lanes = [f"{mask} ? {lane} : {zero}" for mask, lane in zip(self.of(it, 2), lanes)]
        return lanes

    def store(self, it: Instruction) -> None:
        values = self.of(it, 2)
        masks = self.of(it, 3) if len(it.src) > 3 and it.src[3] is not None else []
        places = self.places(it, len(values))
        dtype = it.source(2).dtype
        step = self.pieces(it, dtype) if len(set(masks)) < 2 else 1  # all lanes or none
        kind = f"{memory_type(dtype)}{step}"
        for first in range(0, len(values), step):
            guard = f"if ({masks[first]}) " if masks else ""
            if step > 1:
                lanes = ", ".join(values[first : first + step])
                self.line(f"{guard}*({self.space(it)} {kind} *)&{places[first]} = {kind}({lanes});")
            else:
                self.line(f"{guard}{places[first]} = {values[first]};")
