"""What translated kernels call: memory, masks, barriers, and what threads exchange.

In       arrays with a number for each thread of a batch, or one number that all have; masks: True, False, or an array
Out      arrays; KernelFault for an access outside, a race in threadgroup memory, a barrier that not all threads reach
Changes  memory
Next     translate.py (who writes these calls), program.py (who makes the batches)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", "SIMD-group
         Functions", "Threadgroup Address Space"; who holds which elements of a matrix: MLX,
         mlx/backend/metal/kernels/steel/gemm/mma.h

All threads take each step together, so a missing barrier would do no harm here. It is found by other means: each
element of threadgroup memory remembers who touched it since the last barrier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.metal.shader.device_races import DeviceRaces
from hcq.emu.metal.shader.errors import KernelFault
from hcq.emu.metal.shader.stopping import NEVER, Stopped
from hcq.system import native

SIMD = 32
MATRIX = 8  # rows and columns of a matrix of a SIMD group
_LANES = np.arange(SIMD)
ROWS = (_LANES >> 1 & 3) + (_LANES >> 4 << 2)  # of the pair of elements that each thread has
COLUMNS = (_LANES & 1) * 2 + (_LANES >> 3 & 1) * 4
NOBODY, SEVERAL = -1, -2
ACCESSES = {"reads": "load", "writes": "store"}
UNTOUCHED = 0xCD  # each byte of threadgroup memory that nobody has written


class Memory:
    """What a parameter points to."""

    is_shared = False

    def __init__(self, name: str, data: NDArray[np.uint8], is_writable: bool) -> None:
        self.name, self.data, self.is_writable = name, data, is_writable
        self.size_bytes = len(data)
        self._views: dict[str, Any] = {}

    def view(self, kind: str) -> Any:
        """All of it as numbers of a kind."""
        found = self._views.get(kind)
        if found is None:
            size = np.dtype(kind).itemsize
            found = self._views[kind] = self.data[: len(self.data) // size * size].view(kind)
        return found


class SharedMemory(Memory):
    """Threadgroup memory, a row for each group of the batch."""

    is_shared = True

    def __init__(self, name: str, size_bytes: int, groups: int) -> None:
        self.stride = -(-size_bytes // 16) * 16
        super().__init__(name, np.full(self.stride * groups, UNTOUCHED, np.uint8), True)
        self.size_bytes = size_bytes
        self.shadow: NDArray[np.uint8] | None = None  # what nobody wrote, where somebody wants to know
        self.writer = np.full(self.stride * groups, NOBODY, np.int32)
        self.reader = np.full(self.stride * groups, NOBODY, np.int32)

    def forget(self) -> None:
        """A barrier: what was done before is ordered before what comes."""
        self.writer.fill(NOBODY)
        self.reader.fill(NOBODY)


class Machine:
    """A batch: so many groups of so many threads, all at the same step. `thread` numbers the threads of the batch.

    first   the number of its first group in the grid
    """

    def __init__(self, name: str, groups: int, threads: int, first: int = 0) -> None:
        self.name, self.groups, self.threads, self.first = name, groups, threads, first
        self.size = groups * threads
        self.thread = np.arange(self.size, dtype=np.int32)
        self.row = self.thread // threads
        self.shared: list[SharedMemory] = []
        self.races: DeviceRaces | None = None  # in device memory, where somebody wants to know
        self.stop = NEVER

    def fault(self, what: str) -> KernelFault:
        """The error of this kernel."""
        return KernelFault(f"{self.name}: {what}")

    def look(self) -> None:
        """At each round of a loop: whether to go on. Raises Stopped."""
        if self.stop.is_set:
            raise Stopped

    # ------------------------------------------------------------ masks

    def narrow(self, mask: Any, condition: Any) -> Any:
        """The threads of a mask for which a condition holds."""
        if not isinstance(condition, np.ndarray):
            return mask if condition else False
        if mask is False:
            return False
        both = condition if mask is True else mask & condition
        if both.all():
            return True
        return both if both.any() else False

    def without(self, mask: Any, condition: Any) -> Any:
        """The others."""
        return self.narrow(mask, np.logical_not(condition))

    def assign(self, mask: Any, value: Any, before: Any) -> Any:
        """A variable after an assignment by some threads."""
        return value if mask is True else before if mask is False else np.where(mask, value, before)

    def assign_vector(self, mask: Any, value: Any, before: Any) -> Any:
        """A variable with several lanes after an assignment by some threads."""
        return [self.assign(mask, *lanes) for lanes in zip(value, before)]

    def pick(self, condition: Any, yes: Any, no: Any) -> Any:
        """condition ? yes : no"""
        if isinstance(condition, np.ndarray):
            return np.where(condition, yes, no)
        return yes if condition else no

    def unwind(self, returned: Any, value: Any) -> Any:
        """What a function gives, of threads that returned early and those that came to its end."""
        while returned is not None:
            mask, early, returned = returned
            value = self.assign(mask, early, value)
        return value

    # ------------------------------------------------------------ numbers

    def to_integer(self, value: Any, kind: str) -> Any:
        """A float without its fraction, saturated; NaN becomes 0."""
        limits = np.iinfo(kind)
        wide = np.asarray(value).astype(np.float64)
        inside = np.where(np.isnan(wide), 0.0, wide)
        low, high = inside <= float(limits.min), inside >= float(limits.max)
        plain = np.where(low | high, 0.0, inside).astype(kind)
        found = np.where(low, np.array(limits.min, kind), np.where(high, np.array(limits.max, kind), plain))
        return found if isinstance(value, np.ndarray) else found[()]

    def divide(self, a: Any, b: Any, wants_rest: bool) -> Any:
        """C's division of integers, towards zero; by zero, where it is undefined, 0."""
        zero = b == 0
        safe = np.where(zero, np.array(1, b.dtype), b)
        if a.dtype.kind == "u":
            found = a % safe if wants_rest else a // safe
        else:
            rest = np.fmod(a, safe)
            found = rest if wants_rest else (a - rest) // safe
        return np.where(zero, np.array(0, a.dtype), found)[()]

    def shift(self, a: Any, count: Any, is_left: bool) -> Any:
        """Only the low bits of a count matter."""
        bits = a.dtype.itemsize * 8
        by = (count & np.array(bits - 1, count.dtype)).astype(a.dtype)
        return np.left_shift(a, by) if is_left else np.right_shift(a, by)

    # ------------------------------------------------------------ memory

    def load(self, mask: Any, memory: Memory, kind: str, index: Any) -> Any:
        """Numbers from memory; threads that are not there get anything."""
        if mask is False:
            return np.array(0, kind)[()]
        view = memory.view(kind)
        if not memory.is_shared and not isinstance(index, np.ndarray):
            self._check(memory, kind, int(index), int(index), "reads")
            if self.races is not None:
                self.races.touched(self, "load", mask, memory, kind, index)
            return view[int(index)]
        at = self._places(mask, memory, kind, index, "reads")
        if memory.is_shared:
            self._note_read(mask, memory, at * np.dtype(kind).itemsize)
        elif self.races is not None:
            self.races.touched(self, "load", mask, memory, kind, at)
        return view[at]

    def store(self, mask: Any, memory: Memory, kind: str, index: Any, value: Any) -> None:
        """Numbers into memory."""
        if mask is False:
            return
        if not memory.is_writable:
            raise self.fault(f"writes {memory.name}, which is const.")
        if not isinstance(index, np.ndarray):
            index = np.full(self.size, index)
        at = self._places(mask, memory, kind, index, "writes")
        if self.races is not None and not memory.is_shared:
            self.races.touched(self, "store", mask, memory, kind, at)
        if mask is not True:
            at = at[mask]
            if isinstance(value, np.ndarray):
                value = value[mask]
        if memory.is_shared:
            self._note_write(mask, memory, at * np.dtype(kind).itemsize)
        memory.view(kind)[at] = value

    def load_vector(self, mask: Any, memory: Memory, kind: str, index: Any, lanes: int) -> list[Any]:
        """Lanes side by side, their address a multiple of their size."""
        self._check_vector(mask, memory, index, lanes)
        return [self.load(mask, memory, kind, index + np.array(lane, index.dtype)) for lane in range(lanes)]

    def store_vector(self, mask: Any, memory: Memory, kind: str, index: Any, values: list[Any]) -> None:
        """The same way back."""
        self._check_vector(mask, memory, index, len(values))
        for lane, value in enumerate(values):
            self.store(mask, memory, kind, index + np.array(lane, index.dtype), value)

    def _check_vector(self, mask: Any, memory: Memory, index: Any, lanes: int) -> None:
        wrong = index % np.array(lanes, index.dtype) != 0
        if mask is False or not np.any(wrong if mask is True else wrong & mask):
            return
        fault = self.fault(
            f"an access of {lanes} lanes of {memory.name} does not begin at a multiple of its size."
        )
        fault.is_misaligned = True
        if not memory.is_shared:
            fault.address = native.address_of(memory.data)
        raise fault

    def _places(self, mask: Any, memory: Memory, kind: str, index: Any, verb: str) -> Any:
        """Indices into the view, with 0 for threads that are not there."""
        if not isinstance(index, np.ndarray):
            index = np.full(self.size, index)
        if mask is not True:
            index = np.where(mask, index, np.array(0, index.dtype))
        if index.dtype.kind == "u" and index.dtype.itemsize == 8:
            index = np.minimum(index, np.array(2**62, index.dtype)).astype(np.int64)
        self._check(memory, kind, int(index.min()), int(index.max()), verb)
        if isinstance(memory, SharedMemory):
            return index + self.row * np.int64(memory.stride // np.dtype(kind).itemsize)
        return index

    def _check(self, memory: Memory, kind: str, low: int, high: int, verb: str) -> None:
        count = memory.size_bytes // np.dtype(kind).itemsize
        if low < 0 or high >= count:
            at = low if low < 0 else high
            fault = self.fault(f"{verb} {memory.name}[{at}] of {count} elements of {kind}.")
            if not memory.is_shared:
                fault.access, fault.size_bytes = ACCESSES[verb], np.dtype(kind).itemsize
                fault.address = native.address_of(memory.data) + at * fault.size_bytes
            else:
                fault.shared_byte = max(0, at) * np.dtype(kind).itemsize
            raise fault

    # ------------------------------------------------------------ threads together

    def barrier(
        self, mask: Any, orders_device_memory: bool = True, orders_threadgroup_memory: bool = True
    ) -> None:
        """All threads of each group, or none. orders: accesses before it and behind it, by its mem_flags."""
        if isinstance(mask, np.ndarray):
            there = mask.reshape(self.groups, self.threads)
            if (there.any(axis=1) != there.all(axis=1)).any():
                raise self.fault(
                    "some threads of a group reach a threadgroup_barrier that the others do not."
                )
        for memory in self.shared if orders_threadgroup_memory else ():
            memory.forget()
        if self.races is not None and orders_device_memory and mask is not False:
            self.races.barrier(self, mask)

    def shuffle_xor(self, mask: Any, value: Any, by: Any) -> Any:
        """The value of the thread of the same SIMD group whose number differs in these bits."""
        if not isinstance(value, np.ndarray):
            return value
        own = self.thread % np.int32(self.threads)
        other = own ^ np.int32(by)
        if int(by) >= SIMD or (other >= self.threads).any():
            raise self.fault(f"simd_shuffle_xor by {by} reaches a thread that is not in the SIMD group.")
        at = self.thread + (other - own)
        if isinstance(mask, np.ndarray) and (mask & ~mask[at]).any():
            raise self.fault("simd_shuffle_xor asks a thread that is not there.")
        return value[at]

    def product(self, mask: Any, a: Any, b: Any, c: Any, d: Any, kind: str) -> Any:
        """a @ b + c of matrices of SIMD groups; d is what threads that are not there keep.

        Products and sums are rounded one by one, along k in its order, from c on.
        """
        if mask is False:
            return d
        if self.threads % SIMD:
            raise self.fault(f"a matrix of SIMD groups, of which {self.threads} threads are no whole number.")
        if isinstance(mask, np.ndarray):
            there = mask.reshape(-1, SIMD)
            if (there.any(axis=1) != there.all(axis=1)).any():
                raise self.fault("a product of matrices that some threads of a SIMD group do not reach.")
        left, right, total = self._whole(a, kind), self._whole(b, kind), self._whole(c, "float")
        for k in range(MATRIX):
            total = total + left[:, :, k, None] * right[:, None, k, :]
        found = [total[:, ROWS, COLUMNS + lane].reshape(self.size) for lane in range(2)]
        return [self.assign(mask, new, old) for new, old in zip(found, d)]

    def _whole(self, elements: Any, kind: str) -> Any:
        """The matrices of all SIMD groups, as float32."""
        made = np.empty((self.size // SIMD, MATRIX, MATRIX), np.float32)
        for lane, values in enumerate(elements):
            if kind == "bfloat":
                values = (np.asarray(values).astype(np.uint32) << np.uint32(16)).view(np.float32)
            made[:, ROWS, COLUMNS + lane] = np.broadcast_to(values, self.size).reshape(-1, SIMD)
        return made

    def _note_read(self, mask: Any, memory: Any, at: Any) -> None:
        who = self.thread if mask is True else self.thread[mask]
        at = at if mask is True else at[mask]
        writer = memory.writer[at]
        if ((writer != NOBODY) & (writer != who)).any():
            raise self._race(memory, at[(writer != NOBODY) & (writer != who)], "reads what another one wrote")
        known = memory.reader[at]
        memory.reader[at] = who
        several = (memory.reader[at] != who) | ((known != NOBODY) & (known != who))
        memory.reader[at[several]] = SEVERAL

    def _note_write(self, mask: Any, memory: Any, at: Any) -> None:
        who = self.thread if mask is True else self.thread[mask]
        for touched, what in ((memory.writer[at], "wrote"), (memory.reader[at], "read")):
            wrong = (touched != NOBODY) & (touched != who)
            if wrong.any():
                raise self._race(memory, at[wrong], f"writes what another one {what}")
        memory.writer[at] = who
        wrong = memory.writer[at] != who
        if wrong.any():
            raise self._race(memory, at[wrong], "writes what another one writes")

    def _race(self, memory: Any, at: Any, what: str) -> KernelFault:
        place = int(at[0]) % memory.stride
        return self.fault(
            f"a race: a thread {what}, at byte {place} of {memory.name}, with no barrier between."
        )
