"""Bench: candidates for a kernel are checked and timed, in a process that may die of one.

In       a kernel, the code object of its heuristic schedule; code objects of candidates
Out      how long each takes; a `Wrong` for one whose results are others
Changes  opens a device of this process's own, takes memory for the kernel's arguments, runs what it is given
Next     searching.py (who asks, through a Helper), clock.py (what time is)

Arguments are random numbers that floats hold exactly, eighths up to 2: so sums come out alike in any order. Before a
candidate counts, it has computed what the heuristic's kernel computed from the same memory, within rounding, has
written everything that it should, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hcq import config
from hcq.compiler.code_object import CodeObject
from hcq.frontend.core.data import pack
from hcq.frontend.search.clock import Clock, clock_of
from hcq.ir.dtype import DType, dtypes, from_bits
from hcq.ir.node import Node, Param
from hcq.ir.op import Op
from hcq.lifetime import open_devices, opening

MAX_BYTES = 4 << 30  # of a kernel's arguments: larger ones keep the heuristic's schedule
PATTERN = 65521  # random elements, a prime: repeated, they lie differently in every row
GUARD_BYTES = 256  # behind each argument: nobody writes there
RUNS = 5  # of a candidate, of which the fastest counts: what else a machine does only adds time
SHORT_NS = 3_000_000  # together: further runs, until it is as long
LONG_NS = 50_000_000  # together; a candidate that has taken longer has run often enough
HOPELESS = 1.5  # times the best: one run is enough
ROUNDS = 15  # of candidates side by side, of which the fastest counts, too
LAST_NS = 100_000_000  # together: further rounds, so that all meet the same moments of a busy machine
MORE = 30  # times as many runs or rounds, at most
TOLERANCES = {1: 0.15, 2: 0.02, 4: 1e-4, 8: 1e-9}  # of floats by their size: sums in another order


class Wrong(Exception):
    """A candidate that computes something else."""


@dataclass
class Argument:
    """A buffer of a kernel, what is in it at first, and after the heuristic's kernel."""

    number: int
    dtype: DType
    is_written: bool
    buffer: Any
    first: bytes
    expected: bytes = b""


def bench(device_name: str, sink: Node, reference: CodeObject) -> Callable[[bytes], bytes]:
    """What a helper does: answers requests of `ask_one` and `ask_several`. Called in the process of the helper."""
    settings = config.current()
    quiet = replace(
        settings,
        debug=frozenset(),
        trace=None,
        validate=False,
        profile=False,
        counters=False,
        search=0,
        search_results=None,
    )
    config.use(replace(quiet, report=frozenset({"off"}), timeout_ms=1 << 30))  # the helper has a deadline
    open_devices.by_name.clear()  # those of the parent
    return Bench(opening.open(device_name), sink, reference).answer


def ask_one(code: CodeObject) -> bytes:
    """The request to check and time one candidate."""
    return _request([code], together=False)


def ask_several(codes: list[CodeObject]) -> bytes:
    """The request to time checked candidates side by side."""
    return _request(codes, together=True)


def times_of(answer: bytes) -> list[float]:
    """What came back: nanoseconds of each."""
    found: list[float] = json.loads(answer)
    return found


def _request(codes: list[CodeObject], together: bool) -> bytes:
    blobs = [code.to_bytes() for code in codes]
    head = json.dumps({"together": together, "sizes": [len(blob) for blob in blobs]}).encode()
    return head + b"\n" + b"".join(blobs)


class Bench:
    """A device with a kernel's arguments in its memory."""

    def __init__(self, device: Any, sink: Node, reference: CodeObject, clock: Clock | None = None) -> None:
        self.device = device
        self.clock = clock or clock_of(device)
        self.arguments = [self._argument(node) for node in parameters(sink)]
        self.is_in_place = any(one.is_written for one in self.arguments) and _reads_what_it_writes(sink)
        self.best_ns = float("inf")
        self._fill()
        self._launch(reference)
        for one in self.arguments:
            one.expected = one.buffer.read() if one.is_written else one.first

    def answer(self, request: bytes) -> bytes:
        """The times of what a request holds, as JSON. Raises Wrong, and what the device raises."""
        head, _, blobs = request.partition(b"\n")
        asked = json.loads(head)
        codes, at = [], 0
        for size in asked["sizes"]:
            codes.append(CodeObject.from_bytes(blobs[at : at + size]))
            at += size
        times = self.side_by_side(codes) if asked["together"] else [self.one(code) for code in codes]
        return json.dumps(times).encode()

    def one(self, code: CodeObject) -> float:
        """Check a candidate, then time it."""
        self._fill()
        program = self._launch(code)
        for one in self.arguments:
            self._check(one)
        taken: list[float] = []
        runs = self.clock.runs(RUNS)
        while len(taken) < runs or (1 < runs and sum(taken) < SHORT_NS and len(taken) < MORE * runs):
            if sum(taken) > LONG_NS:
                break
            taken.append(self._time(program, code))
            if taken[0] > HOPELESS * self.best_ns:
                break
        self.best_ns = min(self.best_ns, *taken)
        return min(taken)

    def side_by_side(self, codes: list[CodeObject]) -> list[float]:
        """Times of several candidates that take turns."""
        programs = [self._load(code) for code in codes]
        taken: list[list[float]] = [[] for _ in codes]
        rounds = self.clock.runs(ROUNDS)
        for number in range(MORE * rounds):
            total = sum(map(sum, taken))
            if total > 4 * LONG_NS * len(codes) or (number >= rounds and (rounds == 1 or total > LAST_NS)):
                break
            for code, program, times in zip(codes, programs, taken, strict=True):
                times.append(self._time(program, code))
        return [min(times) for times in taken]

    def _argument(self, node: Node) -> Argument:
        about = node.arg
        assert isinstance(about, Param)
        size = prod(about.shape) * node.dtype.itemsize
        first = random_bytes(node.dtype, prod(about.shape), about.index)
        buffer = self.device.alloc(size + GUARD_BYTES)
        guard = bytes(range(256))[:GUARD_BYTES]
        return Argument(about.index, node.dtype, about.writable, buffer, first + guard)

    def _fill(self) -> None:
        for one in self.arguments:
            one.buffer.write(one.first)

    def _load(self, code: CodeObject) -> Any:
        access = ["write" if one.is_written else "read" for one in self.arguments]
        program = self.device.load(
            code.image, code.entry, args=code.args, scratch_bytes=code.scratch_bytes, access=access
        )
        if any(code.tensor_maps):
            program.set_tensor_maps(code.tensor_maps)
        if code.dynamic_shared_bytes:
            program.dynamic_shared_bytes = code.dynamic_shared_bytes
        return program

    def _launch(self, code: CodeObject) -> Any:
        program = self._load(code)
        self.device.run(program, [one.buffer for one in self.arguments], grid=code.grid, block=code.block)
        return program

    def _time(self, program: Any, code: CodeObject) -> float:
        if self.is_in_place:  # what it reads is not what it wrote the last time
            self._fill()
        return self.clock.time(program, [one.buffer for one in self.arguments], code.grid, code.block)

    def _check(self, one: Argument) -> None:
        found = one.buffer.read()
        if found == one.expected:
            return
        size = len(found) - GUARD_BYTES
        if not one.is_written:
            raise Wrong(f"argument {one.number} is read only, and was written")
        if found[size:] != one.expected[size:]:
            raise Wrong(f"memory behind argument {one.number} was written")
        if not agree(found[:size], one.expected[:size], one.dtype):
            raise Wrong(f"argument {one.number} has other values")


def parameters(sink: Node) -> list[Node]:
    """A kernel's arguments, in their order."""
    found = {node.arg.index: node for node in sink.toposort() if node.op is Op.PARAM}
    return [found[number] for number in sorted(found)]


def argument_bytes(sink: Node) -> int:
    """The memory that its arguments take."""
    return sum(prod(node.arg.shape) * node.dtype.itemsize for node in parameters(sink))


def _reads_what_it_writes(sink: Node) -> bool:
    written = {store.src[0] for store in sink.src}
    values = [node for store in sink.src for node in store.src[1].toposort()]
    return any(node in written for node in values)


def random_bytes(dtype: DType, count: int, seed: int) -> bytes:
    """Elements of a dtype, the same for the same seed: eighths from -2 to 2, small integers."""
    import numpy as np

    if dtype.is_bool:
        numbers: list[Any] = [False, True]
    elif dtype.is_float:
        numbers = [eighths / 8 for eighths in range(-16, 17)]
    else:
        numbers = list(range(33)) if dtype.is_unsigned else list(range(-4, 29))
    table = np.frombuffer(pack(numbers, dtype), f"u{dtype.itemsize}")
    drawn = table[np.random.default_rng(seed).integers(0, len(table), min(count, PATTERN))]
    return np.resize(drawn, count).tobytes() if count else b""


def agree(found: bytes, expected: bytes, dtype: DType) -> bool:
    """Whether two arrays are equal: floats within what rounding in another order makes of them."""
    if found == expected:
        return True
    if not dtype.is_float:
        return False
    import numpy as np

    got, want = (_floats(data, dtype) for data in (found, expected))
    with np.errstate(all="ignore"):
        is_number = np.isfinite(want)
        if not np.array_equal(is_number, np.isfinite(got)):
            return False
        if not np.array_equal(got[~is_number], want[~is_number], equal_nan=True):
            return False
        got, want = got[is_number], want[is_number]
        tolerance = TOLERANCES[dtype.itemsize]
        room = np.abs(want) + np.mean(np.abs(want), dtype=np.float64).astype(want.dtype)
        return bool(np.all(np.abs(got - want) <= tolerance * room))


def _floats(data: bytes, dtype: DType) -> Any:
    """As floats that NumPy computes with."""
    import numpy as np

    if dtype is dtypes.float64:
        return np.frombuffer(data, np.float64)
    if dtype is dtypes.bfloat16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype.itemsize == 1:
        table = np.array([from_bits(bits, dtype) for bits in range(256)], np.float32)
        return table[np.frombuffer(data, np.uint8)]
    return np.frombuffer(data, np.float16 if dtype is dtypes.float16 else np.float32).astype(np.float32)
