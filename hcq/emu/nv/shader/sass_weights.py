"""Weights: how many instructions of machine code ptxas makes of one of PTX, where they run, how long results take.

In       an instruction
Out      Cost
Next     chains.py (who asks), tests/hcq/emu/nv/shader/test_sass_weights.py (nvdisasm's second opinion)
Source   counts: nvdisasm of what ptxas 13 makes for sm_80, of kernels with one instruction each; latencies of
         arithmetic: accel-sim's settings for A100 and H100 (4 clocks, 23 for special functions), arXiv 2208.11174 (4
         for a dependent add), gpu-benches' cuda-incore (8 for float64 on V100)

What PTX hides: a division is a call of 8 to 40 instructions, exp2 of a full range is 4, a 64-bit sum is two, a move is
none. What an address needs is folded into loads.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.emu.nv.shader.syntax import Address, Instruction, Register
from hcq.emu.nv.shader.types import TYPES


class Cost(NamedTuple):
    """pipe      where its instructions are issued: the words of hcq/performance/model/pipes.py
    issues    how many there are
    clocks    until a result of arithmetic can be used
    awaits    what a load waits for, a word of chains.NOMINAL
    beside    multiply-adds and comparisons that bring its argument into range, and its result back
    """

    pipe: str
    issues: int
    clocks: float = 0.0
    awaits: str = ""
    beside: int = 0


FREE = Cost("alu", 0)
ALU, SPECIAL_CLOCKS, F64_CLOCKS, SHUFFLE_CLOCKS = 4.0, 23.0, 8.0, 23.0
# exact divisions and roots: (instructions, clocks), by type and whether they are approximate
DIVISIONS = {("f32", True): (2, 31.0), ("f32", False): (10, 60.0), ("f64", False): (18, 150.0)}
INTEGER_DIVISION = {32: (22, 110.0), 64: (75, 400.0)}
SPECIAL = {"ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt"}
MOVES = {"mov", "cvta", "isspacep", "mapa"}
WARP = {"shfl", "match", "redux", "movmatrix"}
VOTES = {"vote", "activemask", "elect"}
MATRIX = {"mma", "wmma", "wgmma", "tcgen05"}
ON_FMA_PIPE = {"fma", "mad", "mul", "add", "sub"}


def type_of(one: Instruction) -> str:
    """The first type among its modifiers; "" without one."""
    return next((name for name in one.modifiers if name in TYPES), "")


def cost_of(one: Instruction) -> Cost:
    """Of one instruction of PTX."""
    opcode, words = one.opcode, set(one.modifiers)
    if opcode in MOVES:
        return _move(one)
    if opcode in ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix"):
        return _memory(one, words)
    if opcode == "cp":
        return _copy(words, one)
    if opcode in MATRIX:
        return _matrix(opcode, one)
    if opcode in WARP:
        return Cost("warp", 1, SHUFFLE_CLOCKS)
    if opcode in VOTES:
        return Cost("alu", 1, 2 * ALU)
    if opcode in ("bra", "brx", "ret", "exit", "call"):
        return Cost("control", 1)
    if opcode in ("bar", "barrier", "membar", "fence", "mbarrier"):
        return Cost("control", 1, ALU)
    return _arithmetic(one, words)


def _move(one: Instruction) -> Cost:
    """A copy between registers is renamed away; what is read of a special register is not."""
    source = one.operands[-1] if one.operands else None
    name = getattr(source, "name", "")
    if one.opcode == "mov" and not isinstance(source, Register) and name.startswith("%"):
        return Cost("alu", 1, SPECIAL_CLOCKS)
    return FREE


def _memory(one: Instruction, words: set[str]) -> Cost:
    spaces = {word.partition("::")[0] for word in words}
    if spaces & {"param", "const"}:
        return FREE
    if "shared" in spaces or one.opcode in ("ldmatrix", "stmatrix"):
        loads = one.opcode in ("ld", "ldmatrix", "atom")
        return Cost("memory", 1, 0.0, "shared" if loads else "")
    if one.opcode == "atom":
        return Cost("memory", 1, 0.0, "atomic")
    return Cost("memory", 1, 0.0, "global" if one.opcode in ("ld", "ldu") else "")


def _copy(words: set[str], one: Instruction) -> Cost:
    if not any(isinstance(operand, Address) for operand in one.operands):
        return Cost("control", 1)
    return Cost("memory", 1, 0.0, "copy" if "bulk" not in words else "")


def _matrix(opcode: str, one: Instruction) -> Cost:
    if any(word in ("load", "store") for word in one.modifiers[:1]):
        loads = opcode == "wmma" and one.modifiers[0] == "load"
        return Cost("memory", 4, 0.0, "shared" if loads else "")
    if opcode in ("wgmma", "tcgen05"):
        return Cost("matrix", 1, 0.0)
    return Cost("matrix", 2 if opcode == "wmma" else 1, 2 * 17.0 if opcode == "wmma" else 24.0)


def _arithmetic(one: Instruction, words: set[str]) -> Cost:
    opcode, name = one.opcode, type_of(one)
    kind = TYPES[name] if name else None
    if opcode == "cvt":
        return _convert(one)
    if kind is not None and kind.is_float:
        return _of_floats(opcode, name, words)
    bits = 8 * kind.size_bytes if kind is not None else 32
    if opcode in ("div", "rem"):
        issues, clocks = INTEGER_DIVISION[64 if bits == 64 else 32]
        return Cost("alu", issues, clocks)
    if opcode in ("mul", "mad"):
        wide = bits == 64 and "wide" not in words
        return Cost("fma", 3 if wide else 1, (3 if wide else 1) * ALU + 1)
    if opcode in ("popc", "clz", "bfind", "brev"):
        return Cost("special", 1, SPECIAL_CLOCKS)
    if bits == 64 and opcode == "add":
        return Cost("fma", 1, ALU + 1)  # a wide multiply-add, or a part of an address
    return Cost("alu", 2 if bits == 64 else 1, (2 if bits == 64 else 1) * ALU)


def _of_floats(opcode: str, name: str, words: set[str]) -> Cost:
    if name == "f64":
        issues, clocks = DIVISIONS["f64", False] if opcode in ("div", "sqrt", "rcp") else (1, F64_CLOCKS)
        return Cost("f64", issues, clocks)
    if opcode == "div" or (opcode in ("rcp", "sqrt") and "approx" not in words):
        issues, clocks = DIVISIONS["f32", "approx" in words or "full" in words]
        return Cost("fma", issues, clocks)
    if opcode in SPECIAL:
        if "ftz" in words or opcode in ("sin", "cos", "tanh"):
            return Cost("special", 1, SPECIAL_CLOCKS)
        return Cost("special", 1, SPECIAL_CLOCKS + 2 * ALU, beside=3)
    if opcode in ON_FMA_PIPE:
        return Cost("half" if name in ("f16", "bf16", "f16x2", "bf16x2") else "fma", 1, ALU)
    return Cost("alu", 1, ALU)


def _convert(one: Instruction) -> Cost:
    types = [word for word in one.modifiers if word in TYPES]
    if types == ["f32", "f16"]:
        return Cost("half", 1, ALU)  # HADD2.F32: a sum with nothing
    if any(TYPES[word].is_float for word in types):
        return Cost("convert", 1, 8.0)
    return FREE if len(types) == 2 and TYPES[types[0]].size_bytes == 8 else Cost("alu", 1, ALU)
