"""Products: matmul and its relatives, as movement, a multiplication and a sum.

In       tensors
Out      lazy tensors; the compiler sees one multiply-and-reduce kernel and tiles it
Next     window.py (convolutions are products over windows), compiler/loops/heuristic.py (how a product becomes fast)

float16 and bfloat16 are multiplied and accumulated in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.frontend.core.base import Core, thread_modes
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.known_later import room_of
from hcq.frontend.core.nodes import broadcast_shape, expanded, permuted, reshaped, sum_of_products
from hcq.frontend.ops.base import Methods, Self, in_float_together, narrowed
from hcq.ir.dtype import dtypes, promote


class Product(Methods):
    """matmul, dot, outer, linear, einsum."""

    __slots__ = ()

    def matmul(self, other: Self) -> Self:
        """Matrix product (..., m, k) @ (..., k, n) -> (..., m, n); vectors lose the axis they stand for.

        The dtype is what both promote to; float16 and bfloat16 are added up in float32.
        Raises  UsageError for inner sizes that differ, a tensor of shape (), bools

        >>> (hcq.tensor([[1, 2], [3, 4]]) @ hcq.tensor([1, 1])).tolist()
        [3, 7]
        """
        if not isinstance(other, Core):
            other = self._operand("matmul", other)
        self._same_device("matmul", other)
        if thread_modes:
            self, other = narrowed(self, other)
        return self._matmul(other)

    def _matmul(self, other: Self) -> Self:
        """`matmul` in the dtype that the operands have, also inside autocast()."""
        a, b = self.node, other.node
        left, right = a.shape, b.shape
        if not left or not right:
            raise UsageError(
                f"[matmul] {left} @ {right}: a tensor of shape () is no matrix. Multiply with *."
            )
        if left[-1] != right[-2 if len(right) > 1 else 0]:
            raise UsageError(
                f"[matmul] {left} @ {right}: inner sizes {left[-1]} and {right[-2 if len(right) > 1 else 0]} differ. "
                f"Transpose one side or reshape."
            )
        dtype = promote(a.dtype, b.dtype)
        if dtype.is_bool:
            raise UsageError(
                "[matmul] bool tensors are not multiplied as matrices. Cast to an integer or float."
            )
        if dtype.is_storage_only:
            return self.cast(dtypes.float32).matmul(other.cast(dtypes.float32)).cast(dtype)
        a, b = (a if a.dtype is dtype else a.cast(dtype)), (b if b.dtype is dtype else b.cast(dtype))
        if len(left) == 1:
            a = reshaped(a, (1, *left))
        if len(right) == 1:
            b = reshaped(b, (*right, 1))
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        batch = (
            broadcast_shape("matmul", a.shape[:-2], b.shape[:-2]) if len(a.shape) + len(b.shape) > 4 else ()
        )
        # (..., m, 1, k) * (..., 1, n, k): both sides end in k, the axis that is summed
        full = (*batch, m, n, k)
        rank = len(b.shape)
        turned = permuted(b, (*range(rank - 2), rank - 1, rank - 2))
        x = expanded(reshaped(a, (*a.shape[:-1], 1, k)), full)
        y = expanded(reshaped(turned, (*b.shape[:-2], 1, n, k)), full)
        return self._like(
            reshaped(sum_of_products(x, y, (len(full) - 1,)), _product_shape(left, right, batch, m, n))
        )

    def __matmul__(self, other: Self) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        return self._operand("matmul", other).matmul(self)

    mm = matmul
    bmm = matmul

    def mv(self, vector: Self) -> Self:
        """Matrix times vector: (m, k) and (k,) -> (m,).

        >>> hcq.tensor([[1, 2], [3, 4]]).mv(hcq.tensor([1, 10])).tolist()
        [21, 43]
        """
        return self.matmul(vector)

    def dot(self, other: Self) -> Self:
        """The sum of products of two vectors: (n,) and (n,) -> ().

        >>> hcq.tensor([1, 2]).dot(hcq.tensor([10, 100])).item()
        210
        """
        if len(self.node.shape) != 1 or len(other.node.shape) != 1:
            raise UsageError(
                f"[dot] {self.node.shape} and {other.node.shape}: dot is for two vectors. Use @."
            )
        return self.matmul(other)

    def outer(self, other: Self) -> Self:
        """Every product of an element of one vector with one of the other: (n,) and (m,) -> (n, m).

        >>> hcq.tensor([1, 2]).outer(hcq.tensor([1, 10, 100])).tolist()
        [[1, 10, 100], [2, 20, 200]]
        """
        if len(self.node.shape) != 1 or len(other.node.shape) != 1:
            raise UsageError(f"[outer] {self.node.shape} and {other.node.shape}: outer is for two vectors.")
        return self.unsqueeze(1) * other

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """self @ weight.T + bias: (..., in) with weight (out, in) and bias (out,) -> (..., out).

        >>> x, weight, bias = Tensor([1.0, 2.0]), Tensor([[1.0, 1.0], [0.0, 3.0]]), Tensor([0.5, 0.0])
        >>> x.linear(weight, bias).tolist()
        [3.5, 6.0]
        """
        if (
            len(weight.node.shape) not in (1, 2)
            or not self.node.shape
            or self.node.shape[-1] != weight.node.shape[-1]
        ):
            raise UsageError(
                f"[linear] input {self.node.shape}, weight {weight.node.shape}: the weight must be (out, in) "
                "with in equal to the input's last size."
            )
        if thread_modes:
            self, weight, bias = narrowed(self, weight, bias)
        side = weight.mT if len(weight.node.shape) == 2 else weight
        return self._matmul(side) if bias is None else self._matmul_plus(side, bias)

    @in_float_together
    def _matmul_plus(self, side: Self, bias: Self) -> Self:
        """The product and a bias, rounded once."""
        return self._matmul(side) + bias

    @staticmethod
    def einsum(formula: str, *operands: Any) -> Any:
        """Sums of products by letters, one for each axis: einsum("bij,bjk->bik", a, b). The rest is summed.

        A letter that stands twice in an operand takes its diagonal; "..." stands for axes that broadcast.
        Raises  UsageError for a letter with two sizes

        >>> Tensor.einsum("ij,j->i", hcq.tensor([[1, 2], [3, 4]]), hcq.tensor([1, 10])).tolist()
        [21, 43]
        """
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        for place, operand in enumerate(operands):
            if not isinstance(operand, Core):
                raise UsageError(f"[einsum] operand {place} is {shown(operand)}: give tensors.")
        if thread_modes and operands:
            operands = narrowed(*operands)
        inputs, arrow, output = formula.replace(" ", "").partition("->")
        terms = inputs.split(",")
        if len(terms) != len(operands):
            raise UsageError(
                f"[einsum] {formula!r} has {len(terms)} operands, got {len(operands)}. Give one tensor each."
            )
        many = max(
            [0, *[len(x.shape) - len(t.replace("...", "")) for t, x in zip(terms, operands) if "..." in t]]
        )
        dots = "".join([chr(ord("Ā") + place) for place in range(many)])  # letters that no formula has
        if not arrow:
            text = "".join(terms).replace("...", "")
            output = dots + "".join(letter for letter in sorted(set(text)) if text.count(letter) == 1)
        output = output.replace("...", dots)
        pairs = [_spelled(formula, t, x, dots) for t, x in zip(terms, operands)]
        terms, operands = [term for term, _ in pairs], tuple([x for _, x in pairs])
        if dots:
            shared = {dot: max(dict(zip(t, x.shape)).get(dot, 1) for t, x in pairs) for dot in dots}
            operands = tuple([_repeated(x, t, shared) for t, x in pairs])
        letters = sorted(set("".join(terms)))
        sizes: dict[str, int] = {}
        for term, x in zip(terms, operands):
            if len(term) != len(x.shape) or len(set(term)) != len(term) or (not term.isalpha() and term):
                raise UsageError(
                    f"[einsum] {term!r} for a tensor of shape {x.shape}: give one letter per axis, each letter once."
                )
            for letter, size in zip(term, x.shape):
                if sizes.setdefault(letter, size) != size:
                    raise UsageError(
                        f"[einsum] {formula!r}: '{letter}' is {sizes[letter]} and {size}. Sizes must agree."
                    )
        if any(letter not in sizes for letter in output) or len(set(output)) != len(output):
            raise UsageError(f"[einsum] {formula!r}: the output names letters of the inputs, each once.")
        order = output + "".join(letter for letter in letters if letter not in output)
        aligned = [_aligned(x, term, order) for term, x in zip(terms, operands)]
        first = aligned[0]
        if len(aligned) == 1:
            total = first.sum(tuple(range(len(output), len(order)))) if len(order) > len(output) else first
            return total
        for other in aligned[1:-1]:
            first = first * other
        last = aligned[-1]
        first._same_device("einsum", last)
        dtype = promote(first.node.dtype, last.node.dtype)
        shape = tuple(room_of(sizes[letter]) for letter in order)
        x, y = (expanded(side.node.cast(dtype), shape) for side in (first, last))
        axes = tuple(range(len(output), len(order)))
        return first._like(reshaped(sum_of_products(x, y, axes), shape[: len(output)]))


def _spelled(formula: str, term: str, x: Any, dots: str) -> tuple[str, Any]:
    """A term with letters for its dots, and without one that stands twice; the operand's diagonals for those."""
    count = len(x.shape) - len(term.replace("...", ""))
    if term.count("...") > 1 or count < 0 or (count and "..." not in term) or "." in term.replace("...", ""):
        raise UsageError(
            f"[einsum] {term!r} of {formula!r} for a tensor of shape {x.shape}: give one letter per axis."
        )
    term = term.replace("...", dots[len(dots) - count :])
    while len(set(term)) < len(term):
        twice = next(letter for letter in term if term.count(letter) > 1)
        first = term.index(twice)
        second = term.index(twice, first + 1)
        if x.shape[first] != x.shape[second]:
            raise UsageError(f"[einsum] {formula!r}: '{twice}' is {x.shape[first]} and {x.shape[second]}.")
        x = x.diagonal(0, first, second)
        term = term[:first] + term[first + 1 : second] + term[second + 1 :] + twice
    return term, x


def _repeated(x: Any, term: str, sizes: dict[str, int]) -> Any:
    """An operand whose dotted axes of size 1 have the size that the others have there."""
    return x.expand([sizes.get(letter, size) if size == 1 else size for letter, size in zip(term, x.shape)])


def _product_shape(
    left: tuple[int, ...], right: tuple[int, ...], batch: tuple[int, ...], m: int, n: int
) -> tuple[int, ...]:
    return (*batch, *((m,) if len(left) > 1 else ()), *((n,) if len(right) > 1 else ()))


def _aligned(x: Any, term: str, order: str) -> Any:
    """An operand with one axis for each letter of the order, size 1 for letters it lacks."""
    x = x.permute([term.index(letter) for letter in order if letter in term]) if term else x
    sizes = iter(x.shape)
    return x.reshape([next(sizes) if letter in term else 1 for letter in order]) if order else x
