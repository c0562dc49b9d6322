"""Random numbers: a block cipher of (seed, counter), so that a draw is arithmetic and the same on every device.

In       shapes, ranges, `manual_seed`
Out      `Random`, the random constructors of Tensor; `threefry2x32`, the generator on graphs
Changes  each draw adds its size to the device's counter, in device memory: a recorded draw replays as new numbers
Next     initial.py (initial weights), docs/semantics.md (what is promised)
Source   Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011: Threefry-2x32, 20 rounds

Element i of a draw is the cipher of the counter's value plus i: a shorter draw is the start of a longer one, and no
order of execution matters. A draw happens when it is called, like an assignment: two reads of one draw always agree.
"""

from __future__ import annotations

from math import pi, prod
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import check_count, shape_args, thread_modes, transforms
from hcq.frontend.core.nodes import expanded, ordinal, reduced, reshaped
from hcq.frontend.core.threads import lock
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.streams import DEFAULT, Stream
from hcq.ir.dtype import DType, Kind, dtypes
from hcq.ir.node import Node, Shape, binary, const
from hcq.ir.op import Op

MAX_RANKED = 1 << 13  # longest permutation made by comparing every pair; longer ones are sorted on the host


# -- the generator --------------------------------------------------------------------------------------------------

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def threefry2x32(key: tuple[Node, Node], counter: tuple[Node, Node]) -> tuple[Node, Node]:
    """Two uint32 words from two words of key and two of counter; 20 rounds."""
    third = _xor(_xor(key[0], key[1]), const(_PARITY, dtypes.uint32))
    keys = (*key, third)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for turn in range(20):
        x = x + y
        y = _xor(_rotate(y, _ROTATIONS[turn % 8]), x)
        if turn % 4 == 3:
            injection = turn // 4 + 1
            x = x + keys[injection % 3]
            y = y + keys[(injection + 1) % 3] + injection
    return x, y


def _xor(a: Node, b: Node) -> Node:
    return binary(Op.XOR, a, b)


def _rotate(x: Node, count: int) -> Node:
    return binary(Op.OR, binary(Op.SHL, x, count), binary(Op.SHR, x, 32 - count))


def _halves(x: Node) -> tuple[Node, Node]:
    """The low and the high word of a uint64."""
    return x.cast(dtypes.uint32), binary(Op.SHR, x, 32).cast(dtypes.uint32)


# -- the words ------------------------------------------------------------------------------------------------------


def _words(kind: type[Methods], count: int, device: str, stream: Stream) -> tuple[Node, Node]:
    """Two uint32 words for each of `count` elements, and the counter advanced past them.

    The words read the counter after it advanced: whoever computes them also advances it, in a recording too.
    """
    state = stream.state(kind, device)
    state.counter.assign(kind._of(state.counter.node + count, device))
    place = Node(Op.IOTA, dtypes.uint64, (), count) + (state.counter.node + ((1 << 64) - count))
    return threefry2x32(_halves(state.seed.node), _halves(place))


# -- bits to numbers ------------------------------------------------------------------------------------------------

_MANTISSA_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _unit(words: tuple[Node, Node], dtype: DType) -> Node:
    """Numbers in [0, 1): as many random bits as the format has, so that none rounds up to 1."""
    bits = _MANTISSA_BITS[dtype.name]
    if bits <= 24:
        fraction = binary(Op.SHR, words[0], 32 - bits).cast(dtypes.float32)
        return (fraction * 2.0**-bits).cast(dtype)
    wide = binary(Op.OR, binary(Op.SHL, words[1].cast(dtypes.uint64), 32), words[0].cast(dtypes.uint64))
    return binary(Op.SHR, wide, 64 - bits).cast(dtype) * 2.0**-bits


def _bell(words: tuple[Node, Node], dtype: DType) -> Node:
    """Standard normal numbers, by Box and Muller: a radius from one word, an angle from the other."""
    work = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    scale = 2.0**-32 if work is dtypes.float64 else 2.0**-24
    shift = 0 if work is dtypes.float64 else 8
    radius_word, angle_word = (binary(Op.SHR, word, shift) if shift else word for word in words)
    # (0, 1]: the logarithm of zero is not wanted
    open_unit = (radius_word.cast(work) + 1.0) * scale
    squared = Node(Op.LOG, work, (open_unit,)) * -2.0
    angle = angle_word.cast(work) * (2.0 * pi * scale)
    bell = Node(Op.SQRT, work, (squared,)) * Node(Op.COS, work, (angle,))
    return bell.cast(dtype)


def _below(words: tuple[Node, Node], span: int) -> Node:
    """Integers in [0, span), uint64: the integer part of span times a 64-bit fraction; any span up to 2**32 is even
    to within span / 2**64, a longer one by remainder to within the same."""
    low, high = words[1].cast(dtypes.uint64), words[0].cast(dtypes.uint64)
    if span > 1 << 32:
        return binary(Op.MOD, binary(Op.OR, binary(Op.SHL, high, 32), low), span)
    return binary(Op.SHR, high * span + binary(Op.SHR, low * span, 32), 32)


class OnTensors(classmethod):  # type: ignore[type-arg]
    """A constructor of Tensor; of a tensor, the method of this name between _ and _of."""

    def __get__(self, one: Any, kind: type | None = None) -> Any:
        return super().__get__(one, kind) if one is None else getattr(one, f"_{self.__func__.__name__}_of")


class Random(Methods):
    """The random constructors of Tensor. Every draw is reproducible: `manual_seed(n)`, the same calls, any device."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int) -> None:
        """Start the random numbers of every device over from this seed, of 64 bits; without a call it is 0.

        >>> _ = Tensor.manual_seed(7)
        >>> first = Tensor.rand(3).tolist()
        >>> _ = Tensor.manual_seed(7)
        >>> Tensor.rand(3).tolist() == first
        True
        """
        DEFAULT.restart("manual_seed", seed)

    @classmethod
    def rand(
        cls, *shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False,
        generator: Any = None,
    ) -> Self:  # fmt: skip
        """Uniform numbers in [0, 1); float32 unless another float is given.

        requires_grad   as in `Tensor(data)`; a draw happens now, and takes the next numbers of its device

        >>> x = Tensor.rand(1000)
        >>> x.min().item() >= 0.0, x.max().item() < 1.0
        (True, True)
        """
        sizes, kind = _sizes("rand", shape), _float("rand", dtype)
        return cls._draw(sizes, device, lambda words: _unit(words, kind), kind, requires_grad, generator)

    @classmethod
    def randn(
        cls, *shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False,
        generator: Any = None,
    ) -> Self:  # fmt: skip
        """Numbers of the normal distribution with mean 0 and deviation 1; float32 unless another float is given.

        Source  Box and Muller 1958

        >>> x = Tensor.randn(10000)
        >>> abs(x.mean().item()) < 0.05, abs(x.std().item() - 1) < 0.05
        (True, True)
        """
        sizes, kind = _sizes("randn", shape), _float("randn", dtype)
        return cls._draw(sizes, device, lambda words: _bell(words, kind), kind, requires_grad, generator)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Self:
        """Uniform numbers in [low, high); float32 unless another float is given. Raises UsageError if low > high.

        >>> x = Tensor.uniform(1000, low=-1.0, high=2.0)
        >>> x.min().item() >= -1.0, x.max().item() < 2.0
        (True, True)
        """
        if not low <= high:
            raise UsageError(f"[uniform] low {low} is above high {high}. Swap them.")
        sizes, kind = _sizes("uniform", shape), _float("uniform", dtype)

        def number(words: tuple[Node, Node]) -> Node:
            return _unit(words, kind) * (high - low) + low

        return cls._draw(sizes, device, number, kind, requires_grad, generator)

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Self:
        """Numbers of the normal distribution with this mean and deviation; float32 unless another float is given.

        >>> x = Tensor.normal(10000, mean=5.0, std=2.0)
        >>> 4.8 < x.mean().item() < 5.2, 1.8 < x.std().item() < 2.2
        (True, True)
        """
        if not std >= 0:
            raise UsageError(f"[normal] std {std}: a deviation is 0 or more.")
        sizes, kind = _sizes("normal", shape), _float("normal", dtype)

        def number(words: tuple[Node, Node]) -> Node:
            return _bell(words, kind) * std + mean

        return cls._draw(sizes, device, number, kind, requires_grad, generator)

    @classmethod
    def randint(
        cls,
        low: int,
        high: Any = None,
        size: Any = (),
        *,
        dtype: DType | None = None,
        device: str | None = None,
        generator: Any = None,
    ) -> Self:
        """Integers in [low, high), each as likely as the next; `randint(high, size)` starts at 0.

        Raises  UsageError for an empty range, and for one that does not fit the dtype, int64 unless given

        >>> x = Tensor.randint(3, 5, (1000,))
        >>> x.unique().tolist()
        [3, 4]
        """
        if isinstance(high, (tuple, list)) and size == ():
            high, size = None, high
        if high is None:
            low, high = 0, low
        if not is_whole(high):
            raise UsageError(f"[randint] high={shown(high)}: takes an int, or None.")
        low, high = int(low), int(high)
        kind = dtype or dtypes.int64
        if not kind.is_integer or kind.kind is Kind.INDEX:
            raise UsageError(f"[randint] dtype {kind.name}: give an integer dtype, or use rand.")
        if not low < high:
            raise UsageError(f"[randint] [{low}, {high}) holds no integer. high must be above low.")
        if low < kind.min or high - 1 > kind.max:
            raise UsageError(f"[randint] [{low}, {high}) does not fit {kind.name}. Give a wider dtype.")
        span, offset = high - low, low % (1 << 64)

        def number(words: tuple[Node, Node]) -> Node:
            return (_below(words, span) + offset).cast(kind)

        sizes = _sizes("randint", (size,))
        return cls._draw(sizes, device, number, kind, False, generator)

    @OnTensors
    def bernoulli(
        cls, *shape: Any, p: float = 0.5, dtype: DType | None = None, device: str | None = None, generator: Any = None
    ) -> Self:  # fmt: skip
        """True with probability p; in `dtype`, bool if none is given. Raises UsageError for p outside 0 to 1.

        Of a tensor, `x.bernoulli()`: 1 with the probability that is in each element, or p, in its dtype; else 0.

        >>> Tensor.bernoulli(3, p=1.0).tolist(), Tensor.bernoulli(2, p=0.0, dtype=hcq.float32).tolist()
        ([True, True, True], [0.0, 0.0])
        """
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"[bernoulli] p {p}: a probability is between 0 and 1.")
        kind = dtype or dtypes.bool

        def number(words: tuple[Node, Node]) -> Node:
            return (_unit(words, dtypes.float32) < p).cast(kind)

        return cls._draw(_sizes("bernoulli", shape), device, number, kind, False, generator)

    def _bernoulli_of(self, p: Any = None, *, generator: Any = None) -> Self:
        """`x.bernoulli()`."""
        chance = self if p is None else p
        if isinstance(p, (int, float)) and not 0.0 <= p <= 1.0:
            raise UsageError(f"[bernoulli] p {p}: a probability is between 0 and 1.")
        if p is None and not self.node.dtype.is_float:
            raise UsageError(f"[bernoulli] {self.node.dtype.name} holds no probabilities. Give p, or floats.")
        numbers = self._kind.rand(self.node.shape, device=self.device, generator=generator)
        return constant_in(self, (numbers < chance).cast(self.node.dtype))

    @classmethod
    def randperm(
        cls, n: int, *, dtype: DType | None = None, device: str | None = None, generator: Any = None
    ) -> Self:
        """The numbers 0 .. n-1 in random order.

        Up to 8192 of them, each number is the rank of a random key, counted on the device by comparing every pair, and
        can be part of a recording. A longer permutation sorts the keys on the host.

        >>> Tensor.randperm(5).sort().values.tolist()
        [0, 1, 2, 3, 4]
        """
        if not isinstance(n, int) or n < 0:
            raise UsageError(f"[randperm] {n!r}: give how many numbers, 0 or more.")
        kind = dtype or dtypes.int64
        if not kind.is_integer or n - 1 > kind.max:
            raise UsageError(f"[randperm] {n} numbers do not fit {kind.name}. Give a wider integer dtype.")
        if n > MAX_RANKED:
            return cls._sorted_on_host(n, kind, device, generator)
        keys = cls._draw((n,), device, lambda words: words[0], dtypes.uint32, False, generator)
        return keys._like(_ranks(keys.node).cast(kind)).realize()

    @classmethod
    def _sorted_on_host(cls, n: int, kind: DType, device: str | None, generator: Any) -> Self:
        import numpy as np

        def number(words: tuple[Node, Node]) -> Node:
            return binary(
                Op.OR, binary(Op.SHL, words[1].cast(dtypes.uint64), 32), words[0].cast(dtypes.uint64)
            )

        keys = cls._draw((n,), device, number, dtypes.uint64, False, generator)
        order = np.argsort(keys.numpy(), kind="stable")
        return cls(order, dtype=kind, device=keys.device)

    def rand_like(
        self,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Self:
        """Uniform numbers in [0, 1), of this tensor's shape, in its dtype and on its device unless others are given.

        >>> Tensor.zeros(2, 3, dtype=hcq.float64).rand_like().dtype
        dtypes.float64
        """
        return self._drawn_alike(self.rand, dtype, device, requires_grad, generator)

    def randn_like(
        self,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Self:
        """Standard normal numbers, of this tensor's shape, in its dtype and on its device unless others are given.

        >>> Tensor.zeros(2, 3).randn_like().shape
        (2, 3)
        """
        return self._drawn_alike(self.randn, dtype, device, requires_grad, generator)

    def _drawn_alike(
        self, draw: Any, dtype: DType | None, device: str | None, requires_grad: bool, generator: Any
    ) -> Self:
        """What a constructor draws of this tensor's shape, and where it is."""
        made: Self = draw(
            self.shape, dtype=dtype or self.dtype, device=device or self.device, generator=generator
        )
        if device is None and devices.is_group(self.device):
            made = made._like(self._placed_alike(made.node))
        return made.requires_grad_() if requires_grad else made

    @classmethod
    def _draw(
        cls, sizes: Shape, device: str | None, number: Any, dtype: DType, requires_grad: bool, generator: Any = None
    ) -> Self:  # fmt: skip
        """A tensor of numbers made from random words, drawn now."""
        if generator is not None and not hasattr(generator, "stream_for"):
            raise UsageError(f"[rand] generator={shown(generator)}: give a hcq.Generator, or None.")
        if generator is not None and device is None:
            device = generator.device
        where = devices.canonical(device)
        stream = DEFAULT if generator is None else generator.stream_for(where)
        for around in reversed(transforms() if thread_modes else ()):
            if around.randomness != "same":  # inside of vmap
                return cls._of(around.drawn(cls, sizes, where, number, dtype, generator), where)
        count = prod(sizes)
        with lock:  # no two threads get the same numbers
            node = number(_words(cls, count, where, stream)) if count else Node(Op.IOTA, dtype, (), 0)
            tensor = cls._of(Node(Op.RESHAPE, dtype, (node,), sizes), where)
            tensor.realize(stream.state(cls, where).counter)
        if requires_grad:
            tensor.requires_grad_()
        return tensor


def _ranks(keys: Node) -> Node:
    """How many keys come before each one; equal keys keep their order."""
    n = keys.shape[0]
    square = (n, n)

    own, other = (expanded(reshaped(keys, shape), square) for shape in ((n, 1), (1, n)))
    earlier = ordinal(n, 1, square) < ordinal(n, 0, square)
    before = (other < own) | (binary(Op.CMPEQ, other, own) & earlier)
    return reshaped(reduced(Op.ADD, before.cast(dtypes.int32), (1,)), (n,))


def _sizes(call: str, shape: tuple[Any, ...]) -> Shape:
    sizes = tuple(shape_args(call, shape))
    for size in sizes:
        if size < 0:
            raise UsageError(f"[{call}] shape {sizes}: a size is 0 or more.")
    check_count(call, sizes)
    return sizes


def _float(call: str, dtype: DType | None) -> DType:
    kind = dtype or dtypes.float32
    if kind.name not in _MANTISSA_BITS:
        raise UsageError(
            f"[{call}] dtype {kind.name}: give float16, bfloat16, float32 or float64, "
            "and use randint for integers."
        )
    return kind
