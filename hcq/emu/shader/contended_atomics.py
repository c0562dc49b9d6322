"""Contended atomics: many threads update one address, in order, with the work done for many at a time.

In       where each thread's address is among them all, what stands there, the threads' operands
Out      what each thread found, what stands at the end
Changes  nothing; the shader cores read and write memory
Next     emu/amd/shader/atomic_ops.py, emu/nv/shader/atomic_ops.py (the operations of each vendor)

While many addresses have threads left, a turn serves one thread of each. The few that are left then have long queues:
a run serves all of a queue at once, as a running sum does. Both give what serving the threads one by one gives,
bit for bit, in the order of their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

Array = Any  # NumPy's own annotations do not describe arrays of unknown dtype
Turn = Callable[[Array, Array, Array], Array]  # (what stands there, x, y) -> what then does, a thread each
Run = Callable[
    [Array, Array, Array], Array
]  # ((1,) what stands there, x, y) -> (n + 1,) before each, and at the end

# addresses that are left when runs take over: a turn costs about what a run costs
FEW_ADDRESSES = 64
# changes that a run of compare-and-swaps looks for with NumPy before it goes through the rest thread by thread
MANY_CHANGES = 32


class Queues:
    """Threads by address. `order` has those of the first address in order of their numbers, then those of the next."""

    def __init__(self, keys: Array) -> None:
        self.order = np.argsort(keys, kind="stable")
        ordered = keys[self.order]
        bounds = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        self.starts = np.concatenate(([0], bounds))
        self.counts = np.concatenate((bounds, [len(keys)])) - self.starts
        self.is_distinct = len(self.starts) == len(keys)

    @property
    def firsts(self) -> Array:
        """The first thread of each address."""
        return self.order[self.starts]

    @property
    def places(self) -> Array:
        """For each thread of `order` the number of its address."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    def serve(self, memory: Array, x: Array, y: Array, turn: Turn, run: Run | None) -> tuple[Array, Array]:
        """(what each thread found, what stands at each address at the end).

        memory  what stands at each address before
        x, y    operands, one for each thread
        run     the same as many turns at one address; None: there is no such thing
        """
        found, current = np.empty(len(self.order), memory.dtype), memory.copy()
        waiting = np.arange(len(self.starts))
        longest, done = int(self.counts.max(initial=0)), 0
        while done < longest and (run is None or len(waiting) > FEW_ADDRESSES):
            threads = self.order[self.starts[waiting] + done]
            seen = current[waiting]
            found[threads] = seen
            current[waiting] = turn(seen, x[threads], y[threads])
            done += 1
            waiting = waiting[self.counts[waiting] > done]
        if done < longest and run is not None:
            for place in waiting.tolist():
                start = self.starts[place]
                threads = self.order[start + done : start + self.counts[place]]
                values = run(current[place : place + 1], x[threads], y[threads])
                found[threads] = values[:-1]
                current[place] = values[-1]
        return found, current


# -- runs of whole loops around a compare-and-swap

_FLOATS: dict[int, Any] = {4: np.float32, 8: np.float64}
_SIGNED: dict[int, Any] = {4: np.int32, 8: np.int64}
_BITWISE: tuple[Any, ...] = (np.bitwise_and, np.bitwise_or)
_LIMITS: tuple[Any, ...] = (np.maximum, np.minimum)
_ARITHMETIC: tuple[Any, ...] = (np.add, np.subtract, np.multiply)


def guesses(first: Array, stored: Array, operands: Iterable[Array]) -> Iterator[Array]:
    """What thread after thread of a queue could find, and what the last could leave: (n + 1,) bits each.

    first     (1,) what stands there
    stored    what each thread would leave if it were the first: no guess contradicts the first of them
    operands  bits that could be what a thread adds, multiplies by, ...
    """
    for guess in _guesses(first, stored, operands):
        if guess[1] == stored[0]:
            yield guess


def _guesses(first: Array, stored: Array, operands: Iterable[Array]) -> Iterator[Array]:
    yield np.concatenate((first, first + np.cumsum(stored - first, dtype=stored.dtype)))
    yield np.concatenate((first, stored))
    yield first ^ np.concatenate((first ^ first, np.bitwise_xor.accumulate(stored ^ first)))
    for function in (*_BITWISE, *_LIMITS):
        yield accumulating(function)(first, stored, stored)
    scalar = _FLOATS.get(first.itemsize)
    if scalar is None:
        return
    for kind in (_SIGNED[first.itemsize], scalar):
        for function in _LIMITS:
            yield accumulating(function, kind)(first, stored, stored)
    for operand in operands:
        for function in _ARITHMETIC:
            # the first alone, before the whole run is worked out
            if function(first.view(scalar), operand[:1].view(scalar)).view(first.dtype)[0] == stored[0]:
                yield accumulating(function, scalar)(first, operand, stored)


# -- runs of single atomics


def accumulating(function: Any, scalar: Any = None) -> Run:
    """A run of a ufunc, on the bits of numbers of another type if one is given. It keeps the order: floats, too."""

    def run(first: Array, x: Array, y: Array) -> Array:
        values = np.concatenate((first, x))
        typed = values if scalar is None else values.view(scalar)
        return function.accumulate(typed, dtype=typed.dtype).view(values.dtype)

    return run


def exchanging(first: Array, x: Array, y: Array) -> Array:
    """A run of exchanges: everybody finds what the one before has left."""
    return np.concatenate((first, x))


def one_by_one(update: Callable[[int, int, int], int]) -> Run:
    """A run of any function of unsigned integers, with plain numbers: a hundred times as fast as arrays of one."""

    def run(first: Array, x: Array, y: Array) -> Array:
        values, limit = first.tolist(), (1 << 8 * first.itemsize) - 1
        current = values[0]
        for a, b in zip(x.tolist(), y.tolist()):
            current = update(current, a, b) & limit
            values.append(current)
        return np.array(values, first.dtype)

    return run


def increment(old: int, bound: int, unused: int) -> int:
    """Up to the bound, then 0."""
    return 0 if old >= bound else old + 1


def decrement(old: int, bound: int, unused: int) -> int:
    """Down to 0, then the bound."""
    return bound if old == 0 or old > bound else old - 1


def comparing(first: Array, compare: Array, new: Array) -> Array:
    """A run of compare-and-swaps, from change to change: most threads find a value that they did not expect."""
    found = np.empty(len(compare) + 1, first.dtype)
    current, at = first[0], 0
    for _ in range(MANY_CHANGES):
        is_change = compare[at:] == current
        is_change &= new[at:] != current
        hit = int(is_change.argmax()) if len(is_change) else 0
        if not len(is_change) or not is_change[hit]:
            found[at:] = current
            return found
        found[at : at + hit + 1] = current
        current, at = new[at + hit], at + hit + 1
    rest = _COMPARING(np.array([current], first.dtype), compare[at:], new[at:])
    found[at:] = rest
    return found


_COMPARING = one_by_one(lambda old, compare, new: new if old == compare else old)


def adding_bf16(nan: int) -> Run:
    """A run of sums of bfloat16, each rounded to nearest even; `nan` is what a NaN becomes."""

    def run(first: Array, x: Array, y: Array) -> Array:
        values = first.tolist()
        current = _widened(values[0])
        for addend in (x.astype(np.uint32) << np.uint32(16)).view(np.float32).tolist():
            bits = _bf16_bits(current + addend, nan)
            values.append(bits)
            current = _widened(bits)
        return np.array(values, first.dtype)

    return run


def _widened(bits: int) -> float:
    number: float = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return number


def _bf16_bits(number: float, nan: int) -> int:
    """A double has so many bits that rounding to float and then to bfloat16 is as good as rounding once."""
    if number != number:
        return nan
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    except OverflowError:
        return 0x7F80 if number > 0 else 0xFF80
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def in_halves(run: Run) -> Run:
    """A run on 16-bit halves of words, each half a queue of its own."""

    def both(first: Array, x: Array, y: Array) -> Array:
        halves = [run(*[part.view(np.uint16)[half::2] for part in (first, x, y)]) for half in (0, 1)]
        return np.stack(halves, axis=1).reshape(-1).view(first.dtype)

    return both
