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

from hcq.emu.metal.shader import atomics, simd_functions
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
    is_own = False  # each thread has its own
    stride = 0  # bytes of a row, where each group or each thread has one

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
        self.writer, self.reader, self.changer = (Marks(self.stride * groups) for _ in range(3))

    def forget(self) -> None:
        """A barrier: what was done before is ordered before what comes."""
        for marks in (self.writer, self.reader, self.changer):
            marks.forget()


class OwnMemory(Memory):
    """An array of a thread's own, a row for each thread of the batch."""

    is_own = True

    def __init__(self, name: str, size_bytes: int, threads: int) -> None:
        self.stride = -(-size_bytes // 16) * 16
        super().__init__(name, np.full(self.stride * threads, UNTOUCHED, np.uint8), True)
        self.size_bytes = size_bytes
        self.shadow: NDArray[np.uint8] | None = None


class Marks:
    """Who did something at each place of threadgroup memory since the last barrier: a thread, NOBODY, SEVERAL, or
    several of one SIMD group, -3 - its number. phase: how many barriers of its SIMD group a thread had come to then."""

    def __init__(self, size_bytes: int) -> None:
        self.who = np.full(size_bytes, NOBODY, np.int32)
        self.phase: Any = None
        self.is_clean = True

    def forget(self) -> None:
        """Nobody did anything yet."""
        if not self.is_clean:
            self.who.fill(NOBODY)
            self.is_clean = True

    def put(self, at: Any, who: Any, simd: Any, phases: Any) -> None:
        """These threads do it now. simd: the SIMD group of each, and phases of these; None where it does not matter."""
        self.is_clean = False
        known = self.who[at]
        self.who[at] = who
        several = (self.who[at] != who) | ((known != NOBODY) & (known != who))
        self.who[at[several]] = SEVERAL
        if simd is None:
            return
        if self.phase is None:
            self.phase = np.zeros(len(self.who), np.int32)
        self.phase[at] = phases[simd]
        code = -3 - simd
        near = several & ((known == NOBODY) | (self.simd_of(known, phases) == simd))
        self.who[at[near]] = code[near]
        apart = np.zeros(len(at), bool)
        apart[near] = self.who[at[near]] != code[near]
        self.who[at[apart | (several & ~near)]] = SEVERAL

    def simd_of(self, who: Any, phases: Any) -> Any:
        """The SIMD groups of what marks say; -1: of several, or of nobody."""
        return np.where(who >= 0, phases.of[np.maximum(who, 0)], np.where(who < SEVERAL, -3 - who, -1))

    def against(self, at: Any, who: Any, simd: Any, phases: Any) -> Any:
        """Which of these accesses come after nothing that orders them after those who left these marks."""
        if self.is_clean:
            return np.zeros(len(at), bool)
        theirs = self.who[at]
        found = (theirs != NOBODY) & (theirs != who)
        if simd is not None and self.phase is not None:
            ordered = (self.simd_of(theirs, phases) == simd) & (self.phase[at] < phases[simd])
            found &= ~ordered
        return found


class Phases:
    """How many barriers each SIMD group of the batch has come to. of: the SIMD group of each thread."""

    def __init__(self, of: Any) -> None:
        self.of = of
        self.count = np.zeros(int(of.max(initial=0)) + 1, np.int32)

    def __getitem__(self, simd: Any) -> Any:
        return self.count[simd]


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
        self.phases: Phases | None = None  # where the kernel has barriers of SIMD groups
        self.races: DeviceRaces | None = None  # in device memory, where somebody wants to know
        self.stop = NEVER

    def keep_phases(self) -> None:
        """The kernel has barriers of SIMD groups."""
        per_group = -(-self.threads // SIMD)
        self.phases = Phases(self.row * per_group + self.thread % self.threads // SIMD)

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

    def either(self, a: Any, b: Any) -> Any:
        """The threads of both masks."""
        if a is False or b is True:
            return b
        if b is False or a is True:
            return a
        return a | b

    def rest(self, mask: Any, *gone: Any) -> Any:
        """The threads of a mask that are in none of the others."""
        for one in gone:
            if one is True or mask is False:
                return False
            if one is not False:
                mask = ~one if mask is True else mask & ~one
        return mask if mask is True or (mask is not False and mask.any()) else False

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

    def function(self, name: str, kind: str, *values: Any) -> Any:
        """A function of numbers."""
        return simd_functions.function(name, kind, values)

    def unset(self, value: Any, name: str, line: int) -> Any:
        """A variable that has no value yet."""
        return value

    # ------------------------------------------------------------ memory

    def own(self, name: str, size_bytes: int) -> OwnMemory:
        """An array of each thread's own."""
        return OwnMemory(name, size_bytes, self.size)

    def rows_of(self, memory: Memory) -> Any:
        """Which row of a memory is whose."""
        return self.thread if memory.is_own else self.row

    def load(self, mask: Any, memory: Memory, kind: str, index: Any) -> Any:
        """Numbers from memory; threads that are not there get anything."""
        if mask is False:
            return np.array(0, kind)[()]
        view = memory.view(kind)
        if not memory.stride and not isinstance(index, np.ndarray):
            self._check(memory, kind, int(index), int(index), "reads")
            if self.races is not None:
                self.races.touched(self, "load", mask, memory, kind, index)
            return view[int(index)]
        at = self._places(mask, memory, kind, index, "reads")
        if memory.is_shared:
            self._note_read(mask, memory, at * np.dtype(kind).itemsize)
        elif self.races is not None and not memory.is_own:
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
        if self.races is not None and not memory.stride:
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
        if not memory.stride:
            fault.address = native.address_of(memory.data)
        raise fault

    def atomic(
        self, mask: Any, memory: Memory, kind: str, index: Any, operation: str, x: Any = 0, y: Any = 0
    ) -> Any:
        """What each thread found there; those that are not there get anything."""
        found = np.zeros(self.size, kind)
        if mask is False:
            return found
        if memory.is_own:
            raise self.fault(f"an atomic operation on {memory.name}, which is a thread's own.")
        if operation != "load" and not memory.is_writable:
            raise self.fault(f"writes {memory.name}, which is const.")
        places = self._places(mask, memory, kind, index, "reads" if operation == "load" else "writes")
        who = self.thread if mask is True else np.flatnonzero(mask)
        at = places[who]
        if memory.is_shared:
            self._note_atomic(who, memory, at * np.dtype(kind).itemsize, operation == "load")
        elif self.races is not None:
            verb = {"load": "load", "store": "store"}.get(operation, "atomic")
            self.races.touched(self, verb, mask, memory, kind, places, is_atomic=True)
        if operation == "load":
            found[who] = memory.view(kind)[at]
            return found
        operands = [np.broadcast_to(np.asarray(one, kind), (self.size,))[who] for one in (x, y)]
        found[who] = atomics.operate(memory.view(kind), at, operation, *operands)
        return found

    def _places(self, mask: Any, memory: Memory, kind: str, index: Any, verb: str) -> Any:
        """Indices into the view, with 0 for threads that are not there."""
        if not isinstance(index, np.ndarray):
            index = np.full(self.size, index)
        if mask is not True:
            index = np.where(mask, index, np.array(0, index.dtype))
        if index.dtype.kind == "u" and index.dtype.itemsize == 8:
            index = np.minimum(index, np.array(2**62, index.dtype)).astype(np.int64)
        self._check(memory, kind, int(index.min()), int(index.max()), verb)
        if memory.stride:
            return index + self.rows_of(memory) * np.int64(memory.stride // np.dtype(kind).itemsize)
        return index

    def _check(self, memory: Memory, kind: str, low: int, high: int, verb: str) -> None:
        count = memory.size_bytes // np.dtype(kind).itemsize
        if low < 0 or high >= count:
            at = low if low < 0 else high
            fault = self.fault(f"{verb} {memory.name}[{at}] of {count} elements of {kind}.")
            if memory.is_own:
                fault.own_byte = max(0, at) * np.dtype(kind).itemsize
            elif not memory.is_shared:
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

    def simdgroup_barrier(
        self, mask: Any, orders_device_memory: bool, orders_threadgroup_memory: bool
    ) -> None:
        """All threads of each SIMD group, or none."""
        if mask is False:
            return
        if isinstance(mask, np.ndarray) and not self._simd_groups(mask).whole():
            raise self.fault("some threads of a SIMD group reach a simdgroup_barrier that the others do not.")
        if self.phases is not None and orders_threadgroup_memory:
            self.phases.count[np.unique(self.phases.of if mask is True else self.phases.of[mask])] += 1
        if self.races is not None and orders_device_memory:
            self.races.simd_barrier(self, mask)

    def atomic_thread_fence(
        self,
        mask: Any,
        orders_device_memory: bool,
        orders_threadgroup_memory: bool,
        reaches: bool,
        relaxed: bool,
    ) -> None:
        """Accesses before it and behind it, as others see them who meet by atomic operations. reaches: other groups."""
        if self.races is not None and mask is not False and orders_device_memory and not relaxed:
            self.races.fence(self, mask, reaches)

    def simd(self, mask: Any, name: str, *values: Any) -> Any:
        """What threads of each SIMD group give each other."""
        given = [np.broadcast_to(np.asarray(one), (self.size,)) for one in values]
        if mask is False:
            return given[0] if given else np.zeros(self.size, bool)
        return simd_functions.exchange(self._simd_groups(mask), self.name, name, given)

    def _simd_groups(self, mask: Any) -> simd_functions.Groups:
        there = np.ones(self.size, bool) if mask is True else mask
        return simd_functions.Groups(self.groups, self.threads, there)

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
        simd = None if self.phases is None else self.phases.of[who]
        for marks, what in ((memory.writer, "wrote"), (memory.changer, "changed")):
            wrong = marks.against(at, who, simd, self.phases)
            if wrong.any():
                raise self._race(memory, at[wrong], f"reads what another one {what}")
        memory.reader.put(at, who, simd, self.phases)

    def _note_write(self, mask: Any, memory: Any, at: Any) -> None:
        who = self.thread if mask is True else self.thread[mask]
        simd = None if self.phases is None else self.phases.of[who]
        for marks, what in ((memory.writer, "wrote"), (memory.reader, "read"), (memory.changer, "changed")):
            wrong = marks.against(at, who, simd, self.phases)
            if wrong.any():
                raise self._race(memory, at[wrong], f"writes what another one {what}")
        writer = memory.writer
        writer.who[at], writer.is_clean = who, False
        if simd is not None and self.phases is not None:
            if writer.phase is None:
                writer.phase = np.zeros(len(writer.who), np.int32)
            writer.phase[at] = self.phases[simd]
        wrong = writer.who[at] != who
        if wrong.any():
            raise self._race(memory, at[wrong], "writes what another one writes")

    def _note_atomic(self, who: Any, memory: Any, at: Any, is_load: bool) -> None:
        simd = None if self.phases is None else self.phases.of[who]
        for marks, what in ((memory.writer, "wrote"), (memory.reader, "read")):
            if is_load and what == "read":
                continue
            wrong = marks.against(at, who, simd, self.phases)
            if wrong.any():
                raise self._race(memory, at[wrong], f"changes what another one {what}")
        memory.changer.put(at, who, simd, self.phases)

    def _race(self, memory: Any, at: Any, what: str) -> KernelFault:
        place = int(at[0]) % memory.stride
        return self.fault(
            f"a race: a thread {what}, at byte {place} of {memory.name}, with no barrier between."
        )
