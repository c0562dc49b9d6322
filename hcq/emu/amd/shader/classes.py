"""Classes: what an instruction is to those who count: what unit of the GPU it needs, what it computes.

In       an instruction, or its name
Out      its class; operations of a lane; operations of a matrix instruction
Next     counters.py and chains.py (who count by them), hazards.py
Source   CDNA and RDNA ISA documents: names of instructions say types and shapes
"""

from __future__ import annotations

import re

from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.memory_ops import INVALIDATES, OTHER_CACHES
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.scalar_memory_ops import CACHE_ONLY, LOAD_WORDS

MATRIX = re.compile(
    r"v_(?:s?mfmac?|wmma|swmmac)_(?:scale_)?(?:f32|f64|f16|bf16|i32)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?"
    r"(xf32|bf16|iu8|iu4|fp8|bf8|f8f6f4|f16|f32|f64|i8)"
)
FACTORS = {"iu8": "i8", "iu4": "i4", "fp8": "f8", "bf8": "f8", "f8f6f4": "f4"}
EIGHT_BITS = (
    0,
    1,
)  # what cbsz and blgp hold for floats of eight bits, which take twice as long as narrower ones
SPECIAL = re.compile(r"v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos|tanh)_")
FLOATS = re.compile(r"_(b?f16|f32|f64)(?![\dx])")
FUSED = re.compile(r"fma|fmac|_mad_|_mac_")
DOTS = {"dot2": 4, "dot4": 8, "dot8": 16}
ARITHMETIC = re.compile(
    r"_(add|sub|subrev|mul|min|max|min3|max3|med3|exp|log|rcp|rsq|sqrt|sin|cos)(_num|_legacy|_dx9_zero)?_"
)
MOVES = re.compile(r"v_(mov|cndmask|swap|accvgpr|dual_mov|dual_cndmask|perm_|alignb)")
WARP = re.compile(r"v_(readlane|readfirstlane|writelane|permlane)|ds_(swizzle|b?permute|append|consume)")
WAITS = re.compile(
    r"s_(waitcnt|wait_|nop|delay_alu|clause|sleep|set_inst|setprio|sethalt|version|icache)|v_nop|ds_nop"
)
LOAD_BYTES = {**{what: 4 * words for what, words in LOAD_WORDS.items()}, "u8": 1, "i8": 1, "u16": 2, "i16": 2}
CONTROL = re.compile(r"s_(c?branch|setpc|swappc|call|endpgm|trap|code_end)")


def class_of(inst: Instruction) -> str:
    """Which of hcq.performance.counters.CLASSES it belongs to."""
    name, form = (
        inst.name if inst.pair is None else inst.pair[0].name,
        inst.format,
    )  # two at once count as the first
    if name in INVALIDATES or name in OTHER_CACHES or name in CACHE_ONLY or WAITS.match(name):
        return "wait"
    if WARP.match(name):
        return "warp"
    if form == "DS":
        return f"shared {_verb(name[3:])}"
    if form == "SMEM":
        return "constant load"
    if form == "SCRATCH":
        return "local"
    if form in ("FLAT", "GLOBAL", "MUBUF"):
        return f"global {_verb(name.split('_', 1)[1])}"
    if name.startswith("s_barrier"):
        return "barrier"
    if CONTROL.match(name):
        return "control"
    if name.startswith("s_"):
        return "scalar"
    return _vector_class(name)


def _vector_class(name: str) -> str:
    if matrix_of(name) is not None:
        return "matrix"
    if SPECIAL.match(name):
        return "special"
    if name.startswith("v_cvt"):
        return "convert"
    if MOVES.match(name):
        return "move"
    return "float" if FLOATS.search(name) else "integer"


def _verb(tail: str) -> str:
    """load, store or atomic."""
    word = tail.split("_")[0]
    verbs = {"load": "load", "read": "load", "read2": "load", "read2st64": "load", "store": "store", "write": "store",
             "write2": "store", "write2st64": "store"}  # fmt: skip
    return verbs.get(word, "atomic")


def matrix_of(name: str) -> tuple[str, int, int] | None:
    """(type of the factors, operations of a product, blocks; 0 where the name does not say) of a matrix instruction."""
    found = MATRIX.match(name)
    if found is None:
        return None
    m, n, k = (int(found[index]) for index in (1, 2, 3))
    return FACTORS.get(found[5], found[5]), 2 * m * n * k, int(found[4] or 0)


def matrix_flops(ctx: Context) -> tuple[str, int] | None:
    """(type of the factors, operations of a wave)."""
    inst = ctx.inst
    found = matrix_of(inst.name)
    if found is None:
        return None
    kind, flops, blocks = found
    if kind == "f4" and (inst.fields["cbsz"] in EIGHT_BITS or inst.fields["blgp"] in EIGHT_BITS):
        kind = "f8"
    vdst = inst.opcode.operand("vdst")
    if not blocks and vdst is not None and inst.format == "MAI":  # gfx90a says blocks by how much comes out
        m, n = (int(one) for one in re.findall(r"(\d+)x(\d+)x", inst.name)[0])
        blocks = max(1, 64 * vdst.width // ((64 if "_f64_" in inst.name else 32) * m * n))
    return kind, flops * max(1, blocks)


def flops_of(name: str) -> tuple[str, int] | None:
    """(type, operations of a lane) of a vector instruction on floats."""
    name = name.replace("v_dual_", "v_")
    if not name.startswith("v_") or name.startswith(("v_cmp", "v_cvt")) or matrix_of(name) is not None:
        return None
    dot = next((count for word, count in DOTS.items() if word in name), 0)
    kinds = FLOATS.findall(name)
    if not kinds:
        return None
    count = dot or (2 if FUSED.search(name) else 1 if ARITHMETIC.search(name) else 0)
    if not count:
        return None
    return kinds[-1] if dot else kinds[0], count * (2 if name.startswith("v_pk_") else 1)
