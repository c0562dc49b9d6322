"""Tensor maps: the 128 bytes with which a kernel tells the tensor memory accelerator (TMA) what a tensor looks like.

In       fields by name; or a tensor's shape, by TensorMap.tiled
Out      TensorMap, its parts in the order of dimensions
Next     hcq/nv/tensor_map.py (makes them, checked), hcq/emu/nv/shader/tensor_tiles.py (obeys them)
Source   no header has the layout. The fields are what ptxas 13.5 writes for the forms of tensormap.replace on sm_90a
         (PTX ISA, "tensormap.replace"; tests/hcq/nv/test_tensor_map.py compiles them and compares); the values of
         enumerations are that instruction's

Inferred: that all other bits may be zero. No form of the instruction writes bits 67..64, 82..81 and 95..87, in which
cuTensorMapEncodeTiled may keep a version, the kind of map (tiled or im2col) and the L2 promotion. Triton's kernels for
sm_90 make maps of 128 zero bytes and this instruction's fields alone (its lowering of tensormap_create), and so do we;
no GPU has been given one of ours yet. One of the vendor's library is decoded right, as far as fields are named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from hcq.layout import SparsePacket, bits

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64  # of its address: cuda.h declares CUtensorMap with alignas(64)
MAX_RANK = 5


class ElementType(IntEnum):
    """tensormap.replace.elemtype, where it is one field; tf32 is F32 with a bit of its own."""

    U8 = 0
    U16 = 1
    U32 = 2
    S32 = 3
    U64 = 4
    S64 = 5
    F16 = 6
    F32 = 7
    F32_FTZ = 8
    F64 = 9
    BF16 = 10


class Interleave(IntEnum):
    """tensormap.replace.interleave_layout"""

    NONE = 0
    B16 = 1
    B32 = 2


class Swizzle(IntEnum):
    """tensormap.replace.swizzle_mode: 16-byte pieces change places within spans of so many bytes."""

    NONE = 0
    B32 = 1
    B64 = 2
    B128 = 3


class Fill(IntEnum):
    """tensormap.replace.fill_mode: what elements outside of the tensor read as."""

    ZERO = 0
    NAN = 1


ELEMENT_BYTES = {
    ElementType.U8: 1,
    ElementType.U16: 2,
    ElementType.U32: 4,
    ElementType.S32: 4,
    ElementType.U64: 8,
    ElementType.S64: 8,
    ElementType.F16: 2,
    ElementType.F32: 4,
    ElementType.F32_FTZ: 4,
    ElementType.F64: 8,
    ElementType.BF16: 2,
}
FLOATS = (ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.F32_FTZ, ElementType.F64)
STRIDE_UNIT = 16
LOW_STRIDE_BITS = 32


class TensorMap(SparsePacket, words=32):
    """A tiled tensor map. Counts are kept less one: a rank of 2 as 1, a box of 64 as 63. Dimension 0 is contiguous."""

    global_address = bits(63, 0)
    rank_less_1 = bits(70, 68)
    element_type = bits(74, 71, enum=ElementType)
    interleave = bits(76, 75, enum=Interleave)
    swizzle = bits(78, 77, enum=Swizzle)
    fill = bits(79, enum=Fill)
    is_tf32 = bits(80, doc="set for .tf32 and .tf32.ftz, whose element types are F32 and F32_FTZ")
    swizzle_atomicity = bits(
        84, 83, doc="of sm_100: what changes places; 0 is 16 bytes, 1 is 32, 2 32 with halves turned, 3 64"
    )
    unnamed_85 = bits(85, doc="cleared with a new address")
    unnamed_86 = bits(86, doc="cleared with a new swizzle mode")
    # a stride in units of 16 bytes has 36 bits: 32 here, 4 further down
    stride_low0 = bits(127, 96)
    stride_low1 = bits(159, 128)
    stride_low2 = bits(191, 160)
    stride_low3 = bits(223, 192)
    stride_high0 = bits(227, 224)
    stride_high1 = bits(231, 228)
    stride_high2 = bits(235, 232)
    stride_high3 = bits(239, 236)
    dim0_less_1 = bits(287, 256)
    dim1_less_1 = bits(319, 288)
    dim2_less_1 = bits(351, 320)
    dim3_less_1 = bits(383, 352)
    dim4_less_1 = bits(415, 384)
    step0_less_1 = bits(418, 416)
    step1_less_1 = bits(421, 419)
    step2_less_1 = bits(424, 422)
    step3_less_1 = bits(427, 425)
    step4_less_1 = bits(430, 428)
    box0_less_1 = bits(447, 440)
    box1_less_1 = bits(455, 448)
    box2_less_1 = bits(463, 456)
    box3_less_1 = bits(471, 464)
    box4_less_1 = bits(479, 472)

    @classmethod
    def tiled(
        cls,
        address: int,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        steps: Sequence[int] = (),
        **others: int,
    ) -> TensorMap:
        """One of these sizes. strides: bytes, of every dimension but the first; steps: element strides, 1 if left out.

        Raises UsageError for a number that its field does not hold; whether the whole makes sense, the maker checks.
        """
        values = {"global_address": address, "rank_less_1": len(dims) - 1, **others}
        for name, sizes in (("dim", dims), ("box", box), ("step", steps)):
            values |= {f"{name}{i}_less_1": size - 1 for i, size in enumerate(sizes)}
        for i, stride in enumerate(strides):
            high, low = divmod(stride // STRIDE_UNIT, 1 << LOW_STRIDE_BITS)
            values |= {f"stride_low{i}": low, f"stride_high{i}": high}
        return cls(**values)

    @property
    def rank(self) -> int:
        """How many dimensions it says that it has: 1 to 8, of which more than 5 make no sense."""
        return self.rank_less_1 + 1

    @property
    def dims(self) -> tuple[int, ...]:
        """Elements of the tensor along each dimension."""
        return self._counts("dim")

    @property
    def box(self) -> tuple[int, ...]:
        """Elements that a copy spans along each dimension, with those that its steps leave out."""
        return self._counts("box")

    @property
    def steps(self) -> tuple[int, ...]:
        """Every how many elements one is copied, along each dimension."""
        return self._counts("step")

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each dimension, the first included."""
        rest = (
            STRIDE_UNIT * (self.values[f"stride_high{i}"] << LOW_STRIDE_BITS | self.values[f"stride_low{i}"])
            for i in range(min(self.rank, MAX_RANK) - 1)
        )
        return self.element_bytes, *rest

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; 0 for a type that has no meaning."""
        return ELEMENT_BYTES.get(ElementType(self.element_type), 0) if self.element_type <= 10 else 0

    def _counts(self, name: str) -> tuple[int, ...]:
        return tuple(self.values[f"{name}{i}_less_1"] + 1 for i in range(min(self.rank, MAX_RANK)))
