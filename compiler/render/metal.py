"""MSL renderer: a linear program as the source of one kernel, for Metal's own compiler.

In       a Program
Out      MSL: kernel void NAME(buffers), one group of the program per threadgroup
Next     c_source.py (what dialects share), metal_arithmetic.py (expressions), cuda.py (the same in CUDA C)

Vectors that lie aligned in memory are loaded and stored whole. A matrix of a SIMD group is made of the elements that
its threads hold, and taken apart again for what is no product.
Source   Metal Shading Language Specification 3.1: address spaces, attributes, SIMD-group functions and matrices,
         barriers; which thread holds which element of a matrix: compiler/loops/matrix_units.py
"""

from __future__ import annotations

from hcq.compiler.linear.across import lower_across
from hcq.compiler.linear.narrow_indices import narrow_indices
from hcq.compiler.linear.program import BUFFERS, Instruction, Program
from hcq.compiler.render.c_source import CSource
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.compiler.render.metal_arithmetic import METAL
from hcq.ir.dtype import DType
from hcq.ir.op import Op

WARP = 32  # threads of a SIMD group
MOST_PARAMETERS = 31  # entries of the buffer argument table
PRELUDE = "#include <metal_stdlib>\nusing namespace metal;"
VECTORS = (2, 4)  # lanes that a load or a store has at once
MOST_VECTOR_BYTES = 16
MATRICES = {"simdgroup.f16": "half", "simdgroup.bf16": "bfloat", "simdgroup.f32": "float"}  # of factors


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


class _Source(CSource):
    spell = METAL
    group = "group_number"

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.matrices: dict[
            Instruction, tuple[str, int]
        ] = {}  # fragments that are matrices, too, and how deep
        products = [it for it in program.instructions if it.op is Op.MATRIX]
        self.factors = {it.source(at): it.arg for it in products for at in (0, 1)}

    def head(self) -> list[str]:
        program = self.program
        head = [f"// {program.name}: {program.groups} threadgroups of {program.launched} threads"]
        head += [f"// p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        head += [PRELUDE, "", *self.helpers.values()]
        if self.helpers:
            head.append("")
        params = []
        for place, (param, dtype) in enumerate(program.params):
            kind = f"{'' if param.writable else 'const '}{METAL.memory_type(dtype)}"
            params.append(f"device {kind} *p{param.index} [[buffer({place})]]")
        params += [
            "uint group_ [[threadgroup_position_in_grid]]",
            "uint thread_ [[thread_position_in_threadgroup]]",
        ]
        head.append(f"[[max_total_threads_per_threadgroup({program.launched})]]")
        head.append(f"kernel void {program.name}(\n    " + ",\n    ".join(params) + ") {")
        if program.shared_bytes:
            units = -(-program.shared_bytes // 16)
            head.append(f"  threadgroup uint4 shared[{units}];")
        return head

    def instruction(self, it: Instruction) -> None:
        self.one(it)
        if it in self.factors:  # all of them before the products: threads wait for each other once
            self.matrix_of(it, MATRICES[self.factors[it]])

    def one(self, it: Instruction) -> None:
        """An instruction's lines."""
        op = it.op
        if op is Op.SPECIAL:
            self.special(it)
        elif op is Op.SHARED:
            kind = METAL.memory_type(it.dtype)
            self.values[it] = [f"((threadgroup {kind} *)shared + {it.arg // it.dtype.scalar.itemsize})"]
        elif op is Op.SHUFFLE:
            self.let(it, [self.shuffle(lane, it) for lane in self.of(it, 0)])
        elif op is Op.BARRIER:
            kind = "device" if it.arg == BUFFERS else "threadgroup"
            self.line(f"threadgroup_barrier(mem_flags::mem_{kind});")
        elif op is Op.MATRIX:
            self.matrix(it)
        elif op in (Op.LOOP, Op.ENDLOOP, Op.UPDATE):
            self.common(it)
            self.matrices = {  # an accumulator changes, and a name ends with its loop
                made: (name, depth)
                for made, (name, depth) in self.matrices.items()
                if made.op is not Op.ACCUMULATOR and depth <= self.depth
            }
        elif not self.common(it):
            raise RenderError(f"{op.name}: kernels of Metal's have no such instruction")

    def special(self, it: Instruction) -> None:
        """The number of the group or of the thread in it. The range of groups ends at nobody's."""
        if it.arg == "last":
            self.values[it] = [""]
            return
        name = "thread" if it.arg == "thread" else "group"
        kind = METAL.register_type(it.dtype)
        self.line(f"const {kind} {name}_number = ({kind}){name}_;")
        self.values[it] = [f"{name}_number"]

    def shuffle(self, lane: str, it: Instruction) -> str:
        """Words of 32 bits and less are exchanged; longer ones in two, and a bool as a number: MSL has neither."""
        kind = METAL.register_type(it.dtype)
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

    # -- matrix units -----------------------------------------------------------------------------------------------

    def matrix(self, it: Instruction) -> None:
        """a @ b + d of 8 x 8 matrices, a pair of neighbours in each thread."""
        a, b = (self.matrix_of(it.source(number), MATRICES[it.arg]) for number in (0, 1))
        d = self.matrix_of(it.source(2), "float")
        self.count += 1
        name = f"x{self.count}"
        self.line(f"simdgroup_float8x8 {name};")
        self.line(f"simdgroup_multiply_accumulate({name}, {a}, {b}, {d});")
        self.let(it, [f"{name}.thread_elements()[{lane}]" for lane in range(it.dtype.lanes)])
        self.matrices[it] = name, self.depth

    def matrix_of(self, it: Instruction, kind: str) -> str:
        """A fragment as a matrix."""
        found = self.matrices.get(it)
        if found is not None:
            return found[0]
        self.count += 1
        name = f"x{self.count}"
        self.matrices[it] = name, self.depth
        self.line(f"simdgroup_{kind}8x8 {name};")
        for lane, value in enumerate(self.values[it]):
            text = value if kind == "float" else f"as_type<{kind}>({value})"
            self.line(f"{name}.thread_elements()[{lane}] = {text};")
        return name

    # -- memory -----------------------------------------------------------------------------------------------------

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
        is_whole = mask is None or mask.op is Op.BROADCAST  # all lanes or none
        step = self.pieces(it, it.dtype) if is_whole else 1
        if step > 1:
            kind = f"{METAL.memory_type(it.dtype)}{step}"
            lanes = []
            for first in range(0, it.dtype.lanes, step):
                self.count += 1
                name = f"m{self.count}"
                there = f"*({self.space(it)} const {kind} *)&{places[first]}"
                if mask is None:
                    self.line(f"const {kind} {name} = {there};")
                else:
                    self.line(f"{kind} {name} = {kind}(0);")
                    self.line(f"if ({self.of(it, 2)[0]}) {name} = {there};")
                lanes += [f"{name}[{lane}]" for lane in range(step)]
            return lanes
        return self.masked(it, [f"{place} != 0" for place in places] if it.dtype.is_bool else places)

    def store(self, it: Instruction) -> None:
        values = self.of(it, 2)
        masks = self.store_masks(it)
        places = self.places(it, len(values))
        dtype = it.source(2).dtype
        step = self.pieces(it, dtype) if len(set(masks)) < 2 else 1  # all lanes or none
        kind = f"{METAL.memory_type(dtype)}{step}"
        for first in range(0, len(values), step):
            guard = f"if ({masks[first]}) " if masks else ""
            if step > 1:
                lanes = ", ".join(values[first : first + step])
                self.line(f"{guard}*({self.space(it)} {kind} *)&{places[first]} = {kind}({lanes});")
            else:
                self.line(f"{guard}{places[first]} = {values[first]};")
