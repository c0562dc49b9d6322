"""Drawing: random numbers of other distributions than the uniform and the normal one, and draws in place.

In       probabilities, rates, shapes; a Generator where not the device's own numbers are wanted
Out      tensors of numbers, drawn now
Changes  the counter of the stream that is drawn from; forms that end in _ write into the tensor
Next     random.py (where the numbers come from), rejection.py (gamma, Poisson), more/distributions/ (densities)

Nothing is read back: a draw can be part of a recording. So probabilities in tensors are not checked.
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import dtypes, float_format


class Drawing(Methods):
    """multinomial, poisson, bernoulli_, normal_, uniform_, exponential_, ..."""

    __slots__ = ()

    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Self:
        """Indices, each as likely as its weight in this vector, or in each row of this matrix. int64.

        replacement   the same index may come again; else each comes once, and first what is likely
        Returns       -1 where no index with a positive weight is left
        Raises        UsageError for other shapes and integers, and for more samples than weights without replacement

        >>> Tensor([0.0, 3.0, 0.0]).multinomial(2, replacement=True).tolist()
        [1, 1]
        """
        shape, dtype = self.node.shape, self.node.dtype
        if len(shape) not in (1, 2) or not shape[-1] or not dtype.is_float:
            raise UsageError(
                f"[multinomial] {dtype.name} of shape {shape}: give floats, a vector or rows of weights."
            )
        if num_samples < 1 or (not replacement and num_samples > shape[-1]):
            raise UsageError(
                f"[multinomial] num_samples={num_samples} of {shape[-1]} weights: give 1 or more, and without "
                "replacement no more than there are."
            )
        weights: Any = self.detach().cast(dtypes.float32)._reshape((math.prod(shape[:-1]), shape[-1]))
        rows, count = weights.node.shape
        is_there = weights > 0.0
        if replacement:
            # the first whose running total is above a random share of the total
            share = weights._numbers("rand", (rows, num_samples, 1), generator)
            totals = weights.cumsum(1)
            is_above = (totals.unsqueeze(1) > share * totals[:, -1:].unsqueeze(1)) & is_there.unsqueeze(1)
            places = self._kind.arange(count, device=self.device)
            last = is_there.where(places, -1).amax(1).reshape(rows, 1, 1)
            found = is_above.where(places, last).amin(2)
            found = (last.reshape(rows, 1) < 0).where(-1, found)
        else:
            # what would happen first, of events at these rates
            when = is_there.where(weights._waits(weights.node.shape, generator) / weights, math.inf)
            times, found = when.topk(num_samples, 1, largest=False)
            found = (times == math.inf).where(-1, found)
        return found._reshape((*shape[:-1], num_samples))  # type: ignore[no-any-return]

    def _numbers(self, call: str, shape: Any, generator: Any) -> Any:
        """Uniform or normal numbers of a shape, in this tensor's format or float32, on its device."""
        have = self.node.dtype
        kind = have if have is dtypes.float64 else dtypes.float32
        return getattr(self._kind, call)(shape, dtype=kind, device=self.device, generator=generator)

    def _waits(self, shape: Any, generator: Any) -> Any:
        """Times until something that happens at rate 1."""
        return -(1.0 - self._numbers("rand", shape, generator)).log()

    def _put(self, call: str, values: Any) -> Self:
        here: Any = self
        return here._written(call, values.cast(self.node.dtype))  # type: ignore[no-any-return]

    def poisson(self, *, generator: Any = None) -> Self:
        """How many events there are, at the rate in each element; in its dtype. NaN for a negative rate.

        Source  Hörmann 1993, "The transformed rejection method for generating Poisson random variables"

        >>> Tensor([0.0, 0.0]).poisson().tolist()
        [0.0, 0.0]
        """
        from hcq.frontend.ops import rejection

        if not self.node.dtype.is_float:
            raise UsageError(f"[poisson] {self.node.dtype.name} rates: give floats.")
        made = rejection.poisson(self.detach()._float_at_least_32(), generator)
        return constant_in(self, made.cast(self.node.dtype))  # type: ignore[no-any-return]

    def _float_at_least_32(self) -> Any:
        return self if self.node.dtype.itemsize >= 4 else self.cast(dtypes.float32)

    def bernoulli_(self, p: Any = 0.5, *, generator: Any = None) -> Self:
        """Each element becomes 1 with probability p, a number or a tensor, else 0. Returns this tensor.

        >>> Tensor.zeros(3).bernoulli_(1.0).tolist()
        [1.0, 1.0, 1.0]
        """
        return self._put("bernoulli_", self._bernoulli_of(p, generator=generator))

    def uniform_(self, low: float = 0.0, to: float = 1.0, *, generator: Any = None, **named: float) -> Self:
        """Each element becomes a uniform number in [low, to); PyTorch's `from=` is `low`. Returns this tensor.

        >>> x = Tensor.empty(1000).uniform_(2.0, 3.0)
        >>> x.min().item() >= 2.0, x.max().item() < 3.0
        (True, True)
        """
        low = named.pop("from", low)
        if named or not low <= to:
            raise UsageError(
                f"[uniform_] from={low}, to={to}{_others(named)}: give two numbers, the lower one first."
            )
        numbers = self._numbers("rand", self.node.shape, generator)
        return self._put("uniform_", numbers * (to - low) + low)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Self:
        """Each element becomes a number of the normal distribution. Returns this tensor.

        >>> abs(Tensor.empty(10000).normal_(5.0, 0.1).mean().item() - 5.0) < 0.01
        True
        """
        _refuse_unless(std >= 0, "normal_", f"std={std}", "0 or more")
        return self._put("normal_", self._numbers("randn", self.node.shape, generator) * std + mean)

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Self:
        """Each element becomes exp of a number of the normal distribution. Returns this tensor.

        >>> Tensor.empty(2).log_normal_(0.0, 0.0).tolist()
        [1.0, 1.0]
        """
        _refuse_unless(std >= 0, "log_normal_", f"std={std}", "0 or more")
        return self._put(
            "log_normal_", (self._numbers("randn", self.node.shape, generator) * std + mean).exp()
        )

    def exponential_(self, lambd: float = 1.0, *, generator: Any = None) -> Self:
        """Each element becomes the time until something happens, at the rate lambd. Returns this tensor.

        >>> abs(Tensor.empty(20000).exponential_(2.0).mean().item() - 0.5) < 0.02
        True
        """
        _refuse_unless(lambd > 0, "exponential_", f"lambd={lambd}", "above 0")
        return self._put("exponential_", self._waits(self.node.shape, generator) / lambd)

    def geometric_(self, p: float, *, generator: Any = None) -> Self:
        """Each element becomes the number of trials until the first success, of chance p. Returns this tensor.

        >>> Tensor.empty(3).geometric_(1.0).tolist()
        [1.0, 1.0, 1.0]
        """
        _refuse_unless(0 < p <= 1, "geometric_", f"p={p}", "above 0 and at most 1")
        left = math.log1p(-p) if p < 1 else -math.inf
        return self._put("geometric_", (self._waits(self.node.shape, generator) / -left).floor() + 1.0)

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Self:
        """Each element becomes a number of Cauchy's distribution. Returns this tensor.

        >>> abs(Tensor.empty(20001).cauchy_(3.0, 0.5).median().item() - 3.0) < 0.05
        True
        """
        _refuse_unless(sigma > 0, "cauchy_", f"sigma={sigma}", "above 0")
        angle = (self._numbers("rand", self.node.shape, generator) - 0.5) * math.pi
        return self._put("cauchy_", angle.tan() * sigma + median)

    def random_(
        self, low: int | None = None, to: int | None = None, *, generator: Any = None, **named: int
    ) -> Self:
        """Each element becomes a whole number in [low, to), in [0, low) of one number; PyTorch's `from=` is `low`.

        Of none it is what the dtype counts without gaps, from 0 on. Returns this tensor.

        >>> sorted(set(Tensor.empty(100).random_(3, 5).tolist()))
        [3.0, 4.0]
        """
        low = named.pop("from", low)
        dtype = self.node.dtype
        if named:
            raise UsageError(f"[random_] from={low}, to={to}{_others(named)}: give from and to.")
        if to is None:
            most = (2 << float_format(dtype)[1] if dtype.is_float else int(dtype.max)) + 1
            low, to = 0, most if low is None else low
        whole = dtypes.uint64 if to > 1 << 63 else dtypes.int64
        numbers = self._kind.randint(
            low or 0, to, self.node.shape, dtype=whole, device=self.device, generator=generator
        )
        return self._put("random_", numbers)


def _others(named: dict[str, Any]) -> str:
    return "".join(f", {name}={value}" for name, value in named.items())


def _refuse_unless(is_right: bool, call: str, what: str, needs: str) -> None:
    if not is_right:
        raise UsageError(f"[{call}] {what}: it has to be {needs}.")
