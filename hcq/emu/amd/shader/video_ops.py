"""Instructions of graphics and video: faces of a cube, a lighting product, distances of bytes at four places.

In       arrays of the kinds in each signature, or a Context for v_mqsad_u32_u8
Out      VIDEO, a table of meanings; a step
Changes  VGPRs, when the step runs
Next     integer_ops.py (distances at one place), vector_ops.py (operands, modifiers and EXEC)
Source   instruction descriptions of the RDNA3 and CDNA3 ISA documents; the table of screen partitions: the Vega ISA
         document, "V_SCREEN_PARTITION_4SE_B32". CDNA's documents list the instruction without it
"""

from __future__ import annotations

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.integer_ops import sad_bytes
from hcq.emu.amd.shader.meaning import Compute, Table
from hcq.emu.amd.shader.operands import Context, Step, put
from hcq.emu.amd.shader.vector_operands import Sources
from hcq.emu.amd.shader.waves import Batch

VIDEO = Table()
define = VIDEO.define
PLACES = range(4)  # of the four bytes among eight, each one byte further
LARGEST = np.finfo(np.float32).max
# v_screen_partition_4se_b32: which of four shader engines an area of the screen concerns, by eight bits
ENGINES = np.array(
    [
        int(digit, 16)
        for digit in (
            "137f5fff7ffffffff26efafffbffffffdf4cff5fffdfffff9bf8fffafffeffff"
            "ffff4cdf6fffeffffffff89bf99ffdffffff7f13ff9fffbfffff6ef26ff6fff7"
            "bfffffff23bfaffff7fffffff19df5ffffefffffef8cffaffffdffff67f4fff5"
            "9fffdfffffff8ceff66ffefffffff467ff6fff7fffffbf239ff9fffbffff9df1"
        )
    ],
    np.uint32,
)


def by_face(of_x: Compute, of_y: Compute, of_z: Compute) -> Compute:
    """A function for each axis: that of the largest coordinate counts, z before y before x where they are equal."""

    def compute(x: Array, y: Array, z: Array) -> Array:
        size_x, size_y, size_z = np.abs(x), np.abs(y), np.abs(z)
        is_z = (size_z >= size_x) & (size_z >= size_y)
        is_y = ~is_z & (size_y >= size_x)
        found = np.where(is_z, of_z(x, y, z), np.where(is_y, of_y(x, y, z), of_x(x, y, z)))
        return found.astype(np.float32)

    return compute


define(
    "v_cubeid_f32",
    "f32 = f32 f32 f32",
    by_face(
        lambda x, y, z: np.where(x < 0, 1.0, 0.0),
        lambda x, y, z: np.where(y < 0, 3.0, 2.0),
        lambda x, y, z: np.where(z < 0, 5.0, 4.0),
    ),
)
define(
    "v_cubesc_f32",
    "f32 = f32 f32 f32",
    by_face(
        lambda x, y, z: np.where(x < 0, z, -z), lambda x, y, z: x, lambda x, y, z: np.where(z < 0, -x, x)
    ),
)
define(
    "v_cubetc_f32",
    "f32 = f32 f32 f32",
    by_face(lambda x, y, z: -y, lambda x, y, z: np.where(y < 0, -z, z), lambda x, y, z: -y),
)
define(
    "v_cubema_f32",
    "f32 = f32 f32 f32",
    by_face(lambda x, y, z: x * 2, lambda x, y, z: y * 2, lambda x, y, z: z * 2),
)


def lighting(a: Array, b: Array, c: Array) -> Array:
    """a * b, where zero wins; the least number where b or c say that there is no light."""
    dark = ~(b > -LARGEST) | ~(c > 0)
    product = np.where((a == 0) | (b == 0), np.float32(0), a * b)
    return np.where(dark, -LARGEST, product)


define("v_screen_partition_4se_b32", "u32 = u32", lambda x: ENGINES[x & np.uint32(0xFF)])
define("v_mullit_f32", "f32 = f32 f32 f32", lighting)


def four_distances(masked: bool) -> Compute:
    """The distances of four bytes to those at four places of eight, each added to 16 bits."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        found = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint64)
        for place in PLACES:
            window = (a >> np.uint64(8 * place)).astype(np.uint32)
            added = (c >> np.uint64(16 * place)).astype(np.uint32) & np.uint32(0xFFFF)
            total = (sad_bytes(window, b, masked) + added) & np.uint32(0xFFFF)
            found |= total.astype(np.uint64) << np.uint64(16 * place)
        return found

    return compute


define("v_qsad_pk_u16_u8", "u64 = u64 u32 u64", four_distances(masked=False))
define("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64", four_distances(masked=True))


def compile_wide_distances(ctx: Context, name: str, operands: Sources) -> Step | None:
    """The step of v_mqsad_u32_u8, which adds to four registers; None for other instructions."""
    if name != "v_mqsad_u32_u8":
        return None
    if ctx.inst.fields["clamp"]:
        raise ctx.refuse("clamp has no meaning here")
    added, register = operands.code(2), ctx.inst.fields["vdst"]
    if added < 256:
        raise ctx.refuse("its third operand is four vector registers")
    bytes_, reference = operands.read(0, "u64"), operands.read(1, "u32")

    def run(b: Batch) -> None:
        a, c = bytes_(b), reference(b)
        totals = [
            sad_bytes((a >> np.uint64(8 * place)).astype(np.uint32), c, masked=True)
            + b.u32[added - 256 + place]
            for place in PLACES
        ]
        for place, total in zip(PLACES, totals):
            put(b, b.u32[register + place], total)

    return run
