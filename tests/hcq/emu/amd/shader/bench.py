"""A workbench for single instructions: registers in, one instruction, registers out.

In       an architecture, words, register contents
Out      the Batch after the instruction ran
Changes  nothing outside itself
Next     test_integer_ops.py, test_float_ops.py, test_scalar_ops.py, test_lane_ops.py, test_matrix_ops.py (who use it)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import pack_lanes
from hcq.emu.amd.shader.arrivals import Arrivals
from hcq.emu.amd.shader.memory import AddressSpace, Bytes
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.waves import Batch
from hcq.layout import Packet
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.kernels import ISAS

GFX9 = {"gfx90a", "gfx942", "gfx950"}
OLD_NAMES = {*GFX9, "gfx1030"}  # whose instructions have the names of before gfx11
FAMILY = {
    "gfx1030": "gfx942",
    "gfx1100": "gfx1100",
    "gfx1151": "gfx1100",
    "gfx1201": "gfx1100",
    "gfx90a": "gfx942",
    "gfx942": "gfx942",
    "gfx950": "gfx942",
}  # by spelling
CODE = 0x1000
ACC_OFFSET, REGISTERS = 256, 512
DEFAULT_MODE = 0x3F0

Numbers = np.ndarray[Any, Any]


def run_words(
    arch: str,
    words: Sequence[int],
    *,
    v: Mapping[int, Any] | None = None,
    s: Mapping[int, int] | None = None,
    lanes: Any = None,
    waves: int = 1,
    wave_size: int | None = None,
    scc: bool = False,
    mode: int = DEFAULT_MODE,
    lds_bytes: int = 0,
    memory: AddressSpace | None = None,
    flat_scratch: int = 0,
) -> Batch:
    """Run instructions that do not branch. `v` gives 32-bit words by register, broadcast to (wave, lane)."""
    isa = ISAS[arch]
    size = wave_size or (64 if isa.is_gfx9 else 32)
    space = memory or AddressSpace()
    end = isa.encode("s_endpgm")
    space.map(CODE, bytearray(struct.pack(f"<{len(words) + 1}I", *words, *end)), name="code")
    program = Program(isa, space, CODE, size, ACC_OFFSET if isa.is_gfx9 else 0)
    registers = np.zeros((REGISTERS, waves, size), np.uint32)
    for register, value in (v or {}).items():
        registers[register] = np.asarray(value).astype(np.uint32, copy=False)
    scalars = np.zeros((waves, 128), np.uint32)
    for register, number in (s or {}).items():
        scalars[:, register] = number & 0xFFFFFFFF
    active = np.ones((waves, size), np.bool_) if lanes is None else np.broadcast_to(lanes, (waves, size))
    scalars[:, 126 : 126 + size // 32] = pack_lanes(np.ascontiguousarray(active))
    lds = Bytes.zeros(max(lds_bytes, 4))
    residents: Any = SimpleNamespace(
        wave_size=size,
        watch=None,
        memory=space,
        scalar_memory=space,
        group_of=np.zeros(waves, np.intp),
        lds=lds,
        arrivals=Arrivals(lds, waves),
        lds_size=lds_bytes,
        strays=None,
        lds_stride=0,
        scratch=Bytes.zeros(4),
        scratch_size=0,
        flat_scratch=flat_scratch,
        name_of=lambda wave, lane: f"wave {wave} lane {lane}",
    )
    b = Batch(residents, CODE, mode, np.arange(waves), registers, scalars, np.full(waves, scc))
    block = program.block(CODE, mode)
    with np.errstate(all="ignore"):
        for step in block.steps:
            step(b)
    return b


RDNA4_NAMES = {
    **{f"s_{name}_{kind}": f"s_{name}_co_{kind}" for name in ("add", "sub") for kind in ("u32", "i32")},
    "s_addc_u32": "s_add_co_ci_u32",
    "s_subb_u32": "s_sub_co_ci_u32",
    "s_addk_i32": "s_addk_co_i32",
    "v_mad_u64_u32": "v_mad_co_u64_u32",
    "v_mad_i64_i32": "v_mad_co_i64_i32",
}


def spelled(arch: str, name: str) -> str:
    """The name that gfx12 has for an instruction of gfx11; any other name as it is."""
    if arch != "gfx1201" or name in ISAS[arch].by_name:
        return name
    numeric = re.sub(r"_(min|max|min3|max3|med3|minmax|maxmin)_(f\d\d)", r"_\1_num_\2", name)
    return RDNA4_NAMES.get(name, numeric)


def run(
    arch: str,
    name: str,
    *operands: str | int | float,
    form: str | None = None,
    extra: Packet | None = None,
    fields: Mapping[str, int] | None = None,
    **state: Any,
) -> Batch:
    """Run one instruction given by name and operands."""
    return run_words(
        arch, assemble(ISAS[arch], spelled(arch, name), operands, form, extra, **(fields or {})), **state
    )


EDGES32 = (
    0,
    1,
    2,
    31,
    32,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFF,
    0x0000FFFF,
    0xFFFF0000,
    0x00800000,
)


def words32(seed: int, count: int = 64) -> Numbers:
    """Random 32-bit words with edge values among them."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2**32, count, dtype=np.uint32)
    where = rng.permutation(count)[: count // 2]
    x[where] = np.array(EDGES32, np.uint32)[rng.integers(0, len(EDGES32), count // 2)]
    return x


FLOAT_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38)


def floats32(seed: int, count: int = 64) -> Numbers:
    """Random float32 bits of all exponents, ordinary sizes, and edge values."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    x[: count // 3] = rng.standard_normal(count // 3) * 10.0 ** rng.integers(-3, 4, count // 3)
    where = rng.permutation(count)[: count // 3]
    x[where] = np.array(FLOAT_EDGES, np.float32)[rng.integers(0, len(FLOAT_EDGES), count // 3)]
    return x
