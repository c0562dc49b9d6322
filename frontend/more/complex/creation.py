"""Creation of complex tensors: from a shape and a number, or random ones.

In       shapes, complex numbers, complex dtypes
Out      lazy complex tensors
Changes  random numbers advance the device's counter
Next     ops/creation.py and ops/random.py (the same for real tensors), frontend/ops/complex_arguments.py (who comes
         here)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import ComplexDType, DType, dtypes
from hcq.ir.dtype import DType as AnyDType


class Creation(Pair):
    """full, zeros, ones, eye, rand, randn, and their like-another forms."""

    __slots__ = ()

    def full_like(
        self,
        fill_value: Any,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Any:
        """One number in this tensor's shape, and in its dtype and on its device unless others are given."""
        if dtype is not None and not dtype.is_complex:
            return self.real.full_like(fill_value, dtype, device, requires_grad)
        number = complex(fill_value)
        parts = [self.real.full_like(part, device=device) for part in (number.real, number.imag)]
        made = self.of(*parts) if dtype is None else self.of(*parts).cast(dtype)
        return made.requires_grad_() if requires_grad else made

    def zeros_like(
        self, dtype: AnyDType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Any:
        """Zeros in this tensor's shape, and in its dtype and on its device unless others are given."""
        return self.full_like(0, dtype, device, requires_grad)

    def ones_like(
        self, dtype: AnyDType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Any:
        """Ones in this tensor's shape, and in its dtype and on its device unless others are given."""
        return self.full_like(1, dtype, device, requires_grad)

    empty_like = zeros_like

    def rand_like(
        self,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Any:
        """Random numbers as `rand` makes them, in this tensor's shape, and on its device unless another is given."""
        return self._alike("rand", dtype, device, requires_grad, generator)

    def randn_like(
        self,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Any:
        """Random numbers as `randn` makes them, in this tensor's shape, and on its device unless another is given."""
        return self._alike("randn", dtype, device, requires_grad, generator)

    def _alike(self, draw: str, dtype: Any, device: Any, requires_grad: bool, generator: Any) -> Any:
        kind = self.real if dtype is not None and not dtype.is_complex else self
        options = {"requires_grad": requires_grad, "generator": generator}
        return getattr(kind, draw)(
            self.shape, dtype=dtype or self.dtype, device=device or self.device, **options
        )

    def new_full(
        self, size: Any, fill_value: Any, dtype: AnyDType | None = None, device: str | None = None
    ) -> Any:
        """One number in that shape, in this tensor's dtype and on its device unless others are given."""
        if dtype is not None and not dtype.is_complex:
            return self.real.new_full(size, fill_value, dtype, device)
        return self.full(size, fill_value, dtype or self.dtype, device or self.device)

    def new_zeros(self, *size: Any, dtype: AnyDType | None = None, device: str | None = None) -> Any:
        """Zeros in that shape, in this tensor's dtype and on its device unless others are given."""
        return self.new_full(size[0] if len(size) == 1 else size, 0, dtype, device)

    def new_ones(self, *size: Any, dtype: AnyDType | None = None, device: str | None = None) -> Any:
        """Ones in that shape, in this tensor's dtype and on its device unless others are given."""
        return self.new_full(size[0] if len(size) == 1 else size, 1, dtype, device)

    new_empty = new_zeros

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Any:
        """Every element the same number; complex64 unless another dtype is given."""
        if dtype is not None and not dtype.is_complex:
            raise UsageError(f"[full] {shown(fill_value)} does not fit {dtype.name}. Use dtypes.complex64.")
        part, number = _part(dtype), complex(fill_value)
        return cls._made(
            requires_grad,
            Tensor.full(shape, number.real, part, device),
            Tensor.full(shape, number.imag, part, device),
        )

    @classmethod
    def zeros(
        cls,
        *shape: Any,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Any:
        """All zero."""
        return cls._made(
            requires_grad, *(Tensor.zeros(*shape, dtype=_part(dtype), device=device) for _ in "ri")
        )

    empty = zeros

    @classmethod
    def ones(
        cls,
        *shape: Any,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Any:
        """All one."""
        one = Tensor.ones(*shape, dtype=_part(dtype), device=device)
        return cls._made(requires_grad, one, one.zeros_like())

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Any:
        """Ones on the diagonal, zero elsewhere."""
        one = Tensor.eye(n, m, _part(dtype), device)
        return cls._made(requires_grad, one, one.zeros_like())

    @classmethod
    def rand(
        cls,
        *shape: Any,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Any:
        """Both parts random from 0 to 1."""
        return cls._made(
            requires_grad,
            *(Tensor.rand(*shape, dtype=_part(dtype), device=device, generator=generator) for _ in "ri"),
        )

    @classmethod
    def randn(
        cls,
        *shape: Any,
        dtype: AnyDType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Any:
        """Random numbers of mean 0 and variance 1: each part is normal with variance 1/2."""
        parts = (
            Tensor.randn(*shape, dtype=_part(dtype), device=device, generator=generator) * 0.5**0.5
            for _ in "ri"
        )
        return cls._made(requires_grad, *parts)

    @classmethod
    def _made(cls, requires_grad: Any, real: Tensor, imag: Tensor) -> Any:
        made = cls.of(real, imag)
        return made.requires_grad_() if requires_grad else made


def _part(dtype: AnyDType | None) -> DType:
    return dtype.part if isinstance(dtype, ComplexDType) else dtypes.float32
