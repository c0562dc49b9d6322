"""CUDA C renderer: a linear program as the source of one kernel, for nvrtc.

In       a Program
Out      CUDA C: extern "C" __global__ void NAME(pointers), one group of the program per block, no header included
Next     c_source.py (what dialects share), cuda_arithmetic.py (expressions), gpu.py (the same in LLVM's words)

A second opinion on the road through LLVM: the same program, another vendor's compiler. Products and sums may become
FMAs (nvrtc's default, as `contract` allows it to LLVM); division and square root round to nearest.
"""

from __future__ import annotations

from hcq.compiler.linear.across import lower_across
from hcq.compiler.linear.narrow_indices import narrow_indices
from hcq.compiler.linear.program import UNITS_READ, Instruction, Program
from hcq.compiler.render import bulk, cuda_bulk, cuda_tensor_memory, cuda_warpgroup, warpgroup
from hcq.compiler.render.bulk import BULK
from hcq.compiler.render.byte_units import SORTED, are_floats, factors_of
from hcq.compiler.render.c_source import CSource
from hcq.compiler.render.cuda_arithmetic import CUDA, PRELUDE
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.compiler.render.nvptx import MOST_DECLARED
from hcq.compiler.render.tensor_memory import TENSOR
from hcq.compiler.render.warpgroup import WARPGROUP
from hcq.ir.dtype import DType
from hcq.ir.op import Op

WARP = 32


def render(program: Program, arch: str) -> str:
    """The kernel's source. Raises RenderError for what these kernels have no spelling for."""
    lower_across(program, WARP)
    narrow_indices(program)
    return _Source(program).module()


class _Source(CSource):
    spell = CUDA
    group = "group"

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.registers: dict[Instruction, list[str]] = {}  # of fragments whose lanes are parts of registers
        self.is_without_producers = False

    def head(self) -> list[str]:
        program = self.program
        head = [f"// {program.name}: {program.groups} blocks of {program.launched} threads"]
        head += [f"// p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        params = []
        for param, dtype in program.params:
            what = f"{'' if param.writable else 'const '}{CUDA.memory_type(dtype)} *__restrict__"
            if param.index in program.tensor_maps:
                what = "const __grid_constant__ TensorMap"
                self.helper("TensorMap", cuda_bulk.MAP_TYPE)
            params.append(f"{what} p{param.index}")
        head += [PRELUDE, "", *self.helpers.values()]
        if self.helpers:
            head.append("")
        bounds = f"__launch_bounds__({program.launched})"
        head.append(f'extern "C" __global__ void {bounds} {program.name}({", ".join(params)}) {{')
        if program.shared_bytes:
            asks = program.ask_for_shared(MOST_DECLARED)
            where, size = ("extern ", "") if asks else ("", program.shared_bytes)
            head.append(f"  {where}__shared__ __align__({program.shared_align}) u8 shared[{size}];")
        return head

    # -- instructions -----------------------------------------------------------------------------------------------

    def instruction(self, it: Instruction) -> None:
        op = it.op
        if op is Op.SPECIAL:
            self.special(it)
        elif op is Op.SHARED:
            self.values[it] = [f"(({CUDA.memory_type(it.dtype)} *)(shared + {it.arg}))"]
        elif op is Op.SHUFFLE:
            self.let(it, [f"__shfl_xor_sync(0xffffffffu, {lane}, {it.arg})" for lane in self.of(it, 0)])
        elif op is Op.PRODUCER:
            self.producer(it)
        elif op in BULK:
            self.bulk(it)
        elif op in WARPGROUP:
            self.warpgroup(it)
        elif op is Op.BARRIER and self.is_without_producers:
            self.line(cuda_warpgroup.statement(bulk.others_meet(self.program.threads)))
        elif op is Op.BARRIER:
            if it.arg == UNITS_READ:
                self.line(cuda_warpgroup.statement(warpgroup.SHARED_FENCE))
            self.line("__syncthreads();")
        elif op is Op.MATRIX:
            self.matrix(it)
        elif op is Op.LOAD_ROWS:
            self.load_rows(it)
        elif op is Op.ROUND_TF32:
            self.round_tf32(it)
        elif op is Op.COPY_SHARED:
            self.copy_shared(it)
        elif op is Op.COMMIT:
            self.line('asm volatile("cp.async.commit_group;" ::: "memory");')
        elif op is Op.WAIT:
            self.line(f'asm volatile("cp.async.wait_group {it.arg};" ::: "memory");')
        elif op is Op.SCRATCH:
            raise RenderError("a kernel for a GPU was given packed operands: stage and box are for CPUs")
        elif not self.common(it):
            raise RenderError(f"{op.name}: not an instruction of a linear program")

    def special(self, it: Instruction) -> None:
        """The number of the block or of the thread in it. The range of groups ends at nobody's."""
        if it.arg == "last":
            self.values[it] = [""]
            return
        name, word = ("thread", "threadIdx") if it.arg == "thread" else ("group", "blockIdx")
        self.line(f"const {CUDA.register_type(it.dtype)} {name} = {word}.x;")
        self.values[it] = [name]

    # -- matrix units -----------------------------------------------------------------------------------------------

    def matrix(self, it: Instruction) -> None:
        """mma.m16n8k16 of halves in pairs, or m16n8k8 of rounded floats; sums in float."""
        factors = factors_of(it.arg)
        if factors is not None:
            self.matrix_of_bytes(it, factors)
            return
        kind = it.arg.removeprefix("mma.")
        if kind == "tf32":
            words = [f"__float_as_uint({lane})" for place in (0, 1) for lane in self.of(it, place)]
            shape = "m16n8k8"
        else:
            words = [_pair(*lanes) for place in (0, 1) for lanes in _pairs(self.of(it, place))]
            shape = "m16n8k16"
        a = len(words) * 2 // 3
        self.count += 1
        names = [f"m{self.count}_{lane}" for lane in range(4)]
        self.line(f"f32 {', '.join(names)};")
        text = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {_slots(0, 4)}, {_slots(4, a)}, "
        outputs = ", ".join([f'"=f"({name})' for name in names])
        inputs = ", ".join([f'"r"({word})' for word in words] + [f'"f"({lane})' for lane in self.of(it, 2)])
        text += f"{_slots(4 + a, a // 2)}, {_slots(4 + len(words), 4)}"
        self.line(f'asm("{text};" : {outputs} : {inputs});')
        self.values[it] = names

    def round_tf32(self, it: Instruction) -> None:
        """Floats as mma takes them."""
        self.count += 1
        names = [f"t{self.count}_{lane}" for lane in range(it.dtype.lanes)]
        self.line(f"u32 {', '.join(names)};")
        for name, lane in zip(names, self.of(it, 0), strict=True):
            self.line(f'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"({name}) : "f"({lane}));')
        self.values[it] = [f"__uint_as_float({name})" for name in names]

    def matrix_of_bytes(self, it: Instruction, factors: tuple[str, str]) -> None:
        """Two of mma.m16n8k32: of B, columns with even numbers and columns with odd ones."""
        words = [self.words(it.source(place)) for place in (0, 1)]
        self.count += 1
        names = [f"m{self.count}_{lane}" for lane in range(8)]
        kind, letter = ("f32", "f") if are_floats(factors) else ("s32", "r")
        self.line(f"{'f32' if letter == 'f' else 'i32'} {', '.join(names)};")
        kinds = f"{kind}.{'.'.join(factors)}.{kind}"
        text = f"mma.sync.aligned.m16n8k32.row.col.{kinds} {_slots(0, 4)}, {_slots(4, 4)}, "
        for column in range(2):
            places = [4 * row + 2 * pair + column for row in range(2) for pair in range(2)]
            outputs = ", ".join([f'"={letter}"({names[place]})' for place in places])
            inputs = [f'"r"({word})' for word in (*words[0], *words[1][column::2])]
            inputs += [f'"{letter}"({self.of(it, 2)[place]})' for place in places]
            self.line(f'asm("{text}{_slots(8, 2)}, {_slots(10, 4)};" : {outputs} : {", ".join(inputs)});')
        self.values[it] = names

    def words(self, fragment: Instruction) -> list[str]:
        """A fragment of bytes as registers."""
        if fragment not in self.registers:
            lanes = [f"(u32)(u8){lane}" for lane in self.values[fragment]]
            self.registers[fragment] = [
                " | ".join(
                    [
                        f"{lane} << {8 * at}" if at else lane
                        for at, lane in enumerate(lanes[first : first + 4])
                    ]
                )
                for first in range(0, len(lanes), 4)
            ]
        return self.registers[fragment]

    def load_rows(self, it: Instruction) -> None:
        """ldmatrix: the row that each thread names, dealt out."""
        offset, is_turned = it.arg
        at = Instruction(it.op, it.dtype, it.src, offset, it.depth)
        (place,) = self.places(at, 1)
        words = it.dtype.lanes * it.dtype.itemsize // 4
        self.count += 1
        names = [f"m{self.count}_{word}" for word in range(words)]
        self.line(f"u32 {', '.join(names)};")
        text = f"ldmatrix.sync.aligned.m8n8.x{words}{'.trans' if is_turned else ''}.shared.b16 {_slots(0, words)}"
        outputs = ", ".join([f'"=r"({name})' for name in names])
        address = f'"r"((u32)__cvta_generic_to_shared(&{place}))'
        self.line(f'asm volatile("{text}, [%{words}];" : {outputs} : {address} : "memory");')
        if it.dtype.itemsize == 1:
            if is_turned:
                pairs = [names[word - word % 2 : word - word % 2 + 2] for word in range(words)]
                names = [
                    f"__byte_perm({low}, {high}, {SORTED[word % 2]:#x})"
                    for word, (low, high) in enumerate(pairs)
                ]
            self.registers[it] = names
            self.values[it] = [f"(u8)({name} >> {8 * at})" for name in names for at in range(4)]
            return
        if it.dtype.itemsize == 4:
            self.values[it] = [f"__uint_as_float({name})" for name in names]
            return
        self.values[it] = [half for name in names for half in (f"(u16){name}", f"(u16)({name} >> 16)")]

    def copy_shared(self, it: Instruction) -> None:
        """cp.async in pieces as large as both addresses divide by; smaller ones than 4 bytes the thread copies."""
        mask, guard = ("" if s is None else self.values[s][0] for s in it.src[4:6])
        scalar = it.dtype.itemsize
        ends = [
            Instruction(it.op, it.dtype, src, at, it.depth)
            for src, at in zip((it.src[:2], it.src[2:4]), it.arg, strict=True)
        ]
        size = min([self.aligned.bytes(end, it.dtype) for end in ends])
        to, source = (self.places(end, it.dtype.lanes) for end in ends)
        if guard:
            self.line(f"if ({guard}) {{")
            self.depth += 1
        for lane in range(0, it.dtype.lanes, max(1, size // scalar)):
            if size < 4:
                zero = CUDA.literal(0, it.dtype.scalar)
                self.line(f"{to[lane]} = {f'{mask} ? {source[lane]} : {zero}' if mask else source[lane]};")
                continue
            word = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size}"
            inputs = f'"r"((u32)__cvta_generic_to_shared(&{to[lane]})), "l"(&{source[lane]})'
            if mask:
                word, inputs = f"{word}, %2", f'{inputs}, "r"({mask} ? {size} : 0)'
            self.line(f'asm volatile("{word};" :: {inputs} : "memory");')
        if guard:
            self.depth -= 1
            self.line("}")

    def bulk(self, it: Instruction) -> None:
        """Copies by tensor maps and their mbarriers."""

        def shared(address: int, base: int = -1, offset: int = 0) -> str:
            src = (it.source(address), None if base < 0 else it.src[base])
            return cuda_bulk.shared(self.places(Instruction(it.op, it.dtype, src, offset, it.depth), 1)[0])

        def number(place: int) -> str:
            return cuda_bulk.number(self.of(it, place)[0])

        if it.op is Op.MBARRIERS:
            line, operands = bulk.make(it.arg, cuda_bulk.slot), [shared(0), number(1)]
        elif it.op is Op.EXPECT_TILES:
            line, operands = bulk.expect(it.arg, cuda_bulk.slot), [shared(0, 1), number(2)]
        elif it.op is Op.FREE_TILES:
            line, operands = bulk.free(cuda_bulk.slot), [shared(0, 1), number(2)]
        elif it.op is Op.WAIT_TILES:
            line, operands = bulk.wait(cuda_bulk.slot), [shared(0, 1), number(2)]
        else:
            places = [number(place) for place in range(6, len(it.src))]
            line = bulk.copy(len(places), cuda_bulk.slot)
            operands = [shared(0, 1, it.arg), shared(2, 3), number(4), f'"l"(&{self.of(it, 5)[0]})', *places]
        self.line(cuda_bulk.statement(line, operands))

    def producer(self, it: Instruction) -> None:
        """Part the producers, of whom one does what stands here, from the threads that compute."""
        if it.arg == "begin":
            self.line(f"if ({self.values[it.source(0).source(0)][0]} >= {self.program.threads}) {{")
            self.depth += 1
            self.line(f"if ({self.of(it, 0)[0]}) {{")
            self.depth += 1
            return
        self.depth -= 1
        self.line("}")
        self.line("return;")
        self.depth -= 1
        self.line("}")
        self.is_without_producers = True

    def warpgroup(self, it: Instruction) -> None:
        """What a warpgroup's unit does, on the variables of its accumulator."""
        if it.op is Op.DESCRIPTOR:
            start = Instruction(it.op, it.dtype, it.src, 0, it.depth)
            self.let(it, [cuda_warpgroup.descriptor(it, self.places(start, 1)[0])])
            return
        if it.op in TENSOR:
            self.tensor_memory(it)
            return
        if it.op in (Op.WARPGROUP_FENCE, Op.WARPGROUP_WAIT):
            lines = cuda_warpgroup.ordering(it)
        else:
            more = [factor for place in range(len(it.src) - 1) for factor in self.factor(it.source(place))]
            lines = cuda_warpgroup.in_place(it, self.accumulator(it), more)
        for line in lines:
            self.line(line)

    def factor(self, value: Instruction) -> list[tuple[str, str]]:
        """A factor of WARPGROUP_MATRIX: a descriptor, or registers; and constraints."""
        if warpgroup.words_of(value):
            return [(word, "r") for word in self.registers[value]]
        return [(self.values[value][0], "l")]

    def accumulator(self, it: Instruction) -> list[str]:
        """The variables that an instruction of a warpgroup works on: its last operand's, or new ones."""
        last = it.src[-1]
        if last is not None and it.op is not Op.WARPGROUP_HELD:
            self.values[it] = self.values[last]
            return self.values[it]
        kind, lanes = "f32", self.values[last] if last is not None else ["0.0f"] * it.dtype.lanes
        if it.dtype.itemsize < warpgroup.WORD:
            kind, lanes = "u32", [_pair(*pair) for pair in _pairs(lanes)]
        self.count += 1
        names = [f"w{self.count}_{number}" for number in range(len(lanes))]
        for name, lane in zip(names, lanes, strict=True):
            self.line(f"{kind} {name} = {lane};")
        (self.values if kind == "f32" else self.registers)[it] = names
        return names

    def tensor_memory(self, it: Instruction) -> None:
        """What a unit with a memory of its own does; results are variables."""
        has_place = it.op in (Op.TENSOR_MEMORY, Op.TENSOR_COMMIT)
        place = cuda_bulk.shared(f"{self.of(it, 0)[0]}[0]") if has_place else ""
        given = [at for at in range(int(has_place), len(it.src)) if it.src[at] is not None]
        values = [self.of(it, at)[0] for at in given]
        if it.op is Op.TENSOR_HELD:
            lanes = [lane for at in given[2:] for lane in self.of(it, at)]
            values[2:] = [_pair(*pair) for pair in _pairs(lanes)]
        results: list[str] = []
        if it.op in (Op.TENSOR_MEMORY, Op.TENSOR_RESULT):
            self.count += 1
            results = [f"t{self.count}_{lane}" for lane in range(it.dtype.lanes)]
            self.line(f"{CUDA.register_type(it.dtype.scalar)} {', '.join(results)};")
            self.values[it] = results
        self.line(cuda_tensor_memory.statement(it, results, place, values))

    # -- memory -----------------------------------------------------------------------------------------------------

    def whole(self, it: Instruction, dtype: DType) -> str:
        """A vector of memory as one value, where its address divides by its size; "" where it does not."""
        size = dtype.itemsize * dtype.lanes
        if dtype.lanes == 1 or self.aligned.bytes(it, dtype) < size:
            return ""
        kind = CUDA.memory_type(dtype)
        name = f"{kind}x{dtype.lanes}"
        self.helper(name, f"struct __align__({size}) {name} {{ {kind} lane[{dtype.lanes}]; }};")
        return name

    def load(self, it: Instruction) -> list[str]:
        mask = it.src[2] if len(it.src) > 2 else None
        lanes = self.places(it, it.dtype.lanes)
        is_whole = mask is None or mask.op is Op.BROADCAST  # all lanes or none
        vector = self.whole(it, it.dtype) if is_whole else ""
        if vector:
            self.count += 1
            name, there = f"m{self.count}", f"*(const {vector} *)&{lanes[0]}"
            if mask is None:
                self.line(f"const {vector} {name} = {there};")
            else:
                self.line(f"{vector} {name} = {{}};")
                self.line(f"if ({self.of(it, 2)[0]}) {name} = {there};")
            lanes = [f"{name}.lane[{lane}]" for lane in range(it.dtype.lanes)]
        if it.dtype.is_bool:
            lanes = [f"{lane} != 0" for lane in lanes]
        return lanes if vector else self.masked(it, lanes)

    def store(self, it: Instruction) -> None:
        values = self.of(it, 2)
        masks = self.store_masks(it)
        places = self.places(it, len(values))
        vector = self.whole(it, it.source(2).dtype)
        if vector and len(set(masks)) < 2:  # all lanes or none
            guard = f"if ({masks[0]}) " if masks else ""
            self.line(f"{guard}*({vector} *)&{places[0]} = {vector}{{{{{', '.join(values)}}}}};")
            return
        for lane, (place, value) in enumerate(zip(places, values)):
            guard = f"if ({masks[lane]}) " if masks else ""
            self.line(f"{guard}{place} = {value};")


def _pairs(lanes: list[str]) -> list[tuple[str, str]]:
    return list(zip(lanes[::2], lanes[1::2], strict=True))


def _pair(low: str, high: str) -> str:
    """Two 16-bit lanes as a register."""
    return f"(u32){low} | (u32){high} << 16"


def _slots(first: int, count: int) -> str:
    """Operands of inline assembly in braces, by number."""
    return "{" + ", ".join([f"%{first + i}" for i in range(count)]) + "}"
