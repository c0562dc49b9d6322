"""Products of scaled numbers: matrices of floats of 8 or 4 bits, whose rows, or blocks of 32, have scales.

In       narrow matrices and their scales
Out      scaled_mm, lazy; ScalingType and SwizzleType, the words of its arguments
Next     functional.py (where it is found), ../../ir/block_scales.py (powers of two), compiler/loops/scaled.py (matrix
         units that take narrow numbers with the scales of their blocks: gfx950's)
Source   PyTorch, torch.nn.functional.scaled_mm; OCP Microscaling Formats 1.0
"""

from __future__ import annotations

from enum import Enum

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.block_scales import BLOCK, EXPONENT_BITS, FRACTION
from hcq.ir.dtype import DType, dtypes

# the codes of fp8e4m3 for E2M1's 0, 0.5, 1, 1.5, 2, 3, 4, 6, the first in the lowest byte
CODES_E4M3 = int.from_bytes(bytes((0x00, 0x30, 0x38, 0x3C, 0x40, 0x44, 0x48, 0x4C)), "little")


class ScalingType(Enum):
    """What one scale is for.

    >>> nn.functional.ScalingType.BlockWise1x32.value
    3
    """

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(Enum):
    """How scales lie.

    >>> nn.functional.SwizzleType.NO_SWIZZLE.value
    0
    """

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


RECIPES = (ScalingType.TensorWise, ScalingType.RowWise, ScalingType.BlockWise1x32)


@checked
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: DType | None = dtypes.bfloat16,
    contraction_dim: list[int] | tuple[int, ...] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product (m, k) @ (k, n) of narrow floats times their scales, summed in float32.

    mat_a, mat_b     float8_e4m3fn or float8_e5m2; uint8: two floats of 4 bits (E2M1) in a byte, the lower half first,
                     so (m, k / 2) and (k / 2, n)
    scale_recipe_a   TensorWise: one float32; RowWise: (m, 1) of float32, for b (1, n); BlockWise1x32: (m, k / 32) of
                     uint8, for b (n, k / 32): exponents e of 2 ** (e - 127), of which 255 is NaN
    Raises           UsageError for other scales, swizzled ones, several for one matrix, and sizes that do not meet

    >>> a = Tensor.ones(2, 32).cast(hcq.float8_e4m3fn)
    >>> scale, blocks = hcq.tensor([[128], [129]], dtype=hcq.uint8), nn.functional.ScalingType.BlockWise1x32
    >>> nn.functional.scaled_mm(a, a.T, scale, blocks, scale, blocks).tolist()
    [[128.0, 256.0], [256.0, 512.0]]
    """
    recipes = [_only("scale_recipe", recipe) for recipe in (scale_recipe_a, scale_recipe_b)]
    scales = [_only("scale", scale) for scale in (scale_a, scale_b)]
    for swizzle in (swizzle_a, swizzle_b):
        if swizzle is not None and _only("swizzle", swizzle) is not SwizzleType.NO_SWIZZLE:
            raise UsageError(f"[scaled_mm] {shown(swizzle)}: scales lie row by row here, NO_SWIZZLE.")
    if contraction_dim not in ((), []) or mat_a.ndim != 2 or mat_b.ndim != 2:
        raise UsageError(f"[scaled_mm] {mat_a.shape} and {mat_b.shape}: give (m, k) and (k, n).")
    sides = [_Side(*side) for side in zip("ab", (mat_a, mat_b.T), scales, recipes, strict=True)]
    depth = [side.numbers.shape[1] for side in sides]
    if depth[0] != depth[1]:
        raise UsageError(
            f"[scaled_mm] {mat_a.shape} and {mat_b.shape}: inner sizes {depth[0]} and {depth[1]} differ."
        )
    for side in sides:
        side.check()
    left, right = (side.factor() for side in sides)
    made = left.matmul(right.T)
    for side, is_left in zip(sides, (True, False), strict=True):
        of_rows = side.of_rows()
        if of_rows is not None:
            made = made * (of_rows if is_left else of_rows.T)
    if bias is not None:
        made = made + bias.cast(dtypes.float32)
    return made.cast(output_dtype or dtypes.bfloat16)


def _only(what: str, given: object) -> object:
    """The one that a list has. Raises UsageError for others."""
    if not isinstance(given, (list, tuple)):
        return given
    if len(given) != 1:
        raise UsageError(f"[scaled_mm] {len(given)} of {what}: give one for each matrix.")
    return given[0]


class _Side:
    """A matrix with k along its rows, and its scales."""

    def __init__(self, name: str, matrix: Tensor, scale: object, recipe: object):
        self.name, self.recipe = name, recipe
        if recipe not in RECIPES or not isinstance(scale, Tensor):
            names = ", ".join(one.name for one in RECIPES)
            raise UsageError(
                f"[scaled_mm] scale_recipe_{name}={shown(recipe)}: give one of {names}, and a tensor."
            )
        self.scale = scale
        self.numbers = matrix
        if matrix.dtype is dtypes.uint8:
            self.numbers = _unpacked(matrix)
        elif matrix.dtype not in (dtypes.fp8e4m3, dtypes.fp8e5m2):
            raise UsageError(
                f"[scaled_mm] mat_{name} of {matrix.dtype.name}: give floats of 8 bits, or uint8."
            )

    def check(self) -> None:
        """Raises UsageError where the scales are not those of the recipe."""
        rows, depth = self.numbers.shape
        kind, shape = dtypes.float32, self.scale.shape
        if self.recipe is ScalingType.TensorWise:
            fits, wanted = self.scale.numel() == 1, "one number"
        elif self.recipe is ScalingType.RowWise:
            wants = (rows, 1) if self.name == "a" else (1, rows)
            fits, wanted = shape == wants, f"{wants}"
        else:
            kind, wants = dtypes.uint8, (rows, depth // BLOCK)
            fits, wanted = shape == wants and depth % BLOCK == 0, f"{wants}, for blocks of {BLOCK}"
        if not fits or self.scale.dtype is not kind:
            raise UsageError(
                f"[scaled_mm] scale_{self.name} of {self.scale.dtype.name} {shape} for {rows} rows of {depth}: give "
                f"{kind.name}, {wanted}."
            )

    def factor(self) -> Tensor:
        """The numbers in float32, times the scales of their blocks."""
        wide = self.numbers.cast(dtypes.float32)
        if self.recipe is not ScalingType.BlockWise1x32:
            return wide
        rows, depth = wide.shape
        scaled = wide.reshape(rows, depth // BLOCK, BLOCK) * _powers(self.scale).unsqueeze(-1)
        return scaled.reshape(rows, depth)

    def of_rows(self) -> Tensor | None:
        """The scales of the rows of the result, (rows, 1) or one; None where blocks have them."""
        if self.recipe is ScalingType.BlockWise1x32:
            return None
        return self.scale.reshape(-1, 1)


def _powers(exponents: Tensor) -> Tensor:
    """`scales` of ir/block_scales.py, as tensors: the same nodes."""
    e, largest = exponents.cast(dtypes.int32), FRACTION - 1
    bits = (e << FRACTION).maximum(1 << largest) + (((e + 1) >> EXPONENT_BITS) << largest)
    return bits.bitcast(dtypes.float32)


def _unpacked(pairs: Tensor) -> Tensor:
    """(rows, k / 2) of two floats of 4 bits each as (rows, k) of fp8e4m3, which has all their numbers."""
    rows, half = pairs.shape
    shifts = Tensor([0, 4], device=pairs.device, dtype=dtypes.uint8)
    codes = ((pairs.unsqueeze(-1) >> shifts) & 15).reshape(rows, 2 * half)
    table = Tensor(CODES_E4M3, device=pairs.device, dtype=dtypes.int64)
    sizes = (table >> ((codes & 7).cast(dtypes.int64) << 3)).cast(dtypes.uint8)
    return (sizes | ((codes & 8) << 4)).bitcast(dtypes.fp8e4m3)
