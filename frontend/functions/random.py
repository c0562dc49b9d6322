"""Generators: random numbers of their own, and where the default ones stand, under PyTorch's names: `hcq.torch.random`.

In       seeds, states
Out      `Generator`, for `generator=` of every draw; default_generator; fork_rng
Changes  where draws go on
Next     ops/streams.py (seed and counter on each device), ops/random.py (draws)

For the same seed the numbers are the same on every device. A state is 16 bytes: the seed, and how many numbers were
drawn.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hcq.checks import shown
from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.streams import DEFAULT, DEFAULT_SEED, Stream
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes


class Generator:
    """A stream of random numbers of one device: what others draw does not move it.

    device   the default device unless given

    >>> g = Generator().manual_seed(3)
    >>> first = Tensor.rand(2, generator=g).tolist()
    >>> Tensor.rand(2, generator=g.manual_seed(3)).tolist() == first
    True
    """

    def __init__(self, device: str | None = None) -> None:
        self._device: str | None = devices.canonical(device)
        self._stream = Stream(DEFAULT_SEED)

    @property
    def device(self) -> str:
        """The device that it draws on."""
        return self._device or devices.canonical(None)

    def stream_for(self, device: str) -> Stream:
        """The stream, for a draw on a device. Raises UsageError for another than its own."""
        if self._device not in (None, device):
            raise UsageError(
                f"[Generator] a generator of {self._device} draws on {device}. Make one there: "
                f'hcq.Generator("{device}").'
            )
        return self._stream

    def manual_seed(self, seed: int) -> Generator:
        """Start over from a seed of 64 bits. Returns this generator.

        >>> Generator().manual_seed(5).initial_seed()
        5
        """
        self._stream.restart("manual_seed", seed)
        return self

    def seed(self) -> int:
        """Start over from a seed that nobody knows, of the operating system. Returns it.

        >>> g = Generator()
        >>> g.seed() == g.initial_seed()
        True
        """
        seed = int.from_bytes(os.urandom(8), "little")
        self._stream.restart("seed", seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that it began with last.

        >>> Generator().initial_seed()
        0
        """
        return self._stream.seed

    def get_state(self) -> Tensor:
        """Where it stands: 16 bytes on the CPU, for `set_state`. Waits.

        >>> g = Generator()
        >>> state = g.get_state()
        >>> first = Tensor.rand(2, generator=g).tolist()
        >>> g.set_state(state)
        >>> Tensor.rand(2, generator=g).tolist() == first
        True
        """
        state: Any = self._stream.state(Tensor, self.device)
        raw = struct.pack("<QQ", state.seed.item(), state.counter.item())
        return Tensor(raw, device="CPU", dtype=dtypes.uint8)

    def set_state(self, new_state: Tensor) -> None:
        """Go on from where `get_state` was called. Raises UsageError for what it did not give.

        >>> Generator().set_state(hcq.tensor([1]))
        Traceback (most recent call last):
            ...
        hcq.errors.UsageError: [set_state] ...
        """
        is_right = (
            isinstance(new_state, Tensor) and new_state.dtype is dtypes.uint8 and new_state.shape == (16,)
        )
        if not is_right:
            raise UsageError(f"[set_state] {shown(new_state)}: give what get_state() gave, 16 bytes.")
        seed, counter = struct.unpack("<QQ", bytes(new_state.tolist()))
        self._stream.seed = seed
        self._stream.go_to(Tensor, self.device, seed, counter)

    def clone_state(self) -> Generator:
        """Another generator that stands where this one stands.

        >>> g = Generator().manual_seed(4)
        >>> Tensor.rand(1, generator=g.clone_state()).item() == Tensor.rand(1, generator=g).item()
        True
        """
        made = Generator(self.device)
        made.set_state(self.get_state())
        return made

    def __repr__(self) -> str:
        return f"Generator(device={self.device}, seed={self._stream.seed})"


class _Default(Generator):
    """What draws that name no generator draw from, on every device."""

    def __init__(self) -> None:
        self._device, self._stream = None, DEFAULT


default_generator = _Default()


def manual_seed(seed: int) -> Generator:
    """Start the random numbers of every device over from this seed. Returns the default generator.

    >>> hcq.manual_seed(0)
    Generator(device=..., seed=0)
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Start over from a seed that nobody knows, which is returned.

    >>> hcq.seed() == hcq.initial_seed()
    True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of `manual_seed`; 0 without one.

    >>> _ = hcq.manual_seed(3)
    >>> hcq.initial_seed()
    3
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Where the random numbers of the default device stand, for `set_rng_state`.

    >>> hcq.get_rng_state().shape
    (16,)
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Go on from where `get_rng_state` was called.

    >>> state = hcq.get_rng_state()
    >>> first = hcq.rand(2).tolist()
    >>> hcq.set_rng_state(state)
    >>> hcq.rand(2).tolist() == first
    True
    """
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """What is drawn inside moves no stream outside: afterwards all devices go on from where they stood.

    devices   may be given, and has no effect: all are

    >>> with hcq.torch.random.fork_rng():
    ...     inside = hcq.rand(2).tolist()
    >>> hcq.rand(2).tolist() == inside
    True
    """
    if not enabled:
        yield
        return
    first = DEFAULT.seed
    held: dict[str, Any] = dict(DEFAULT.states)
    stood = {name: (state.seed.item(), state.counter.item()) for name, state in held.items()}
    try:
        yield
    finally:
        DEFAULT.seed = first
        for name in list(DEFAULT.states):
            DEFAULT.go_to(Tensor, name, *stood.get(name, (first, 0)))


def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, dtype: DType | None = None, device: str | None = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Numbers of the normal distribution: of a size for two numbers; one for each element of tensors of them.

    >>> hcq.normal(2.0, 0.0, (2,)).tolist(), hcq.normal(Tensor([1.0, 2.0]), 0.0).tolist()
    ([2.0, 2.0], [1.0, 2.0])
    """
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise UsageError("[normal] two numbers: give a size, too, or tensors.")
        return Tensor.normal(
            size,
            mean=mean,
            std=std,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
            generator=generator,
        )
    one = mean if isinstance(mean, Tensor) else std
    if size is not None:
        raise UsageError(
            f"[normal] size={size} with a tensor: the numbers have the tensors' shape. Leave it out."
        )
    shape = Tensor.broadcast_shapes(*[x.shape for x in (mean, std) if isinstance(x, Tensor)])
    numbers = Tensor.randn(shape, dtype=dtype or one.dtype, device=one.device, generator=generator)
    made = (numbers * std + mean).detach()
    return made.requires_grad_() if requires_grad else made


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that is in each element, or p; else 0. In its dtype.

    >>> hcq.bernoulli(Tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    return input._bernoulli_of(p, generator=generator)


def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: DType | None = None, device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Integers in [low, high), or [0, low), of a tensor's shape, dtype and device.

    >>> hcq.randint_like(hcq.tensor([[0, 0]]), 5, 6).tolist()
    [[5, 5]]
    """
    kind = dtype or input.dtype
    if high is None:
        low, high = 0, low
    whole = kind if kind.is_integer else dtypes.int64
    made = Tensor.randint(
        low, high, input.shape, dtype=whole, device=device or input.device, generator=generator
    )
    return made.cast(kind)
