"""A batch of symbols: what a step of the interpreter sees while it is written down as code for one wave.

In       a Writer; steps that read and write registers
Out      the same attributes as a Batch; registers as symbols
Changes  the Writer
Next     waves.py (Batch), native_text.py (who traces), hcq/emu/compiled/symbols.py

Vector registers lie in the wave's own memory, scalar ones in its row of the batch's; what an instruction has written
is known by name until the block ends. Masks that a vector instruction wrote become bits when somebody asks for those.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from hcq.emu.amd.shader.waves import EXEC
from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.compiled.writer import WIDTH, Writer

U32, U64, BOOL = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(bool)


class Mask(Symbol):
    """Booleans of lanes of which the bits are known, too: an i64 in the scalar stream."""

    def __init__(self, like: Symbol, bits: str) -> None:
        super().__init__(like.writer, like.text, BOOL, True)
        self.bits = bits

    def argmax(self, axis: int) -> Symbol:
        """The first lane that is on; 0 where none is."""
        w = self.writer
        place = w.say(f"call i64 @llvm.cttz.i64(i64 {self.bits}, i1 false)", False)
        none = w.say(f"icmp eq i64 {self.bits}, 0", False)
        return w.symbol(f"select i1 {none}, i64 0, i64 {place}", np.int64, False)

    def __getitem__(self, key: Any) -> Any:
        whole = slice(None)
        if not (
            isinstance(key, tuple) and len(key) == 2 and key[0] == whole and isinstance(key[1], np.ndarray)
        ):
            return super().__getitem__(key)
        w, lanes = self.writer, self.writer.lanes
        narrow = w.say(f"trunc i64 {self.bits} to i{lanes}", False) if lanes < 64 else self.bits
        row = w.say(f"bitcast i{lanes} {narrow} to <{lanes} x i1>", False)
        order = ", ".join(f"i32 {int(x)}" for x in key[1])
        kind = f"<{lanes} x i1>"
        moved = w.say(f"shufflevector {kind} {row}, {kind} poison, <{lanes} x i32> <{order}>", False)
        bits = w.say(f"bitcast {kind} {moved} to i{lanes}", False)
        if lanes < 64:
            bits = w.say(f"zext i{lanes} {bits} to i64", False)
        return Mask(w.mask_of(bits), bits)

    def along(self, index: Symbol) -> Symbol:
        """For each lane that of another lane."""
        w = self.writer
        moved = w.binary("lshr", U64, w.symbol_of(self.bits, U64), index)
        return w.symbol(f"trunc {w.type_of(U64, True)} {w.wide(moved)} to <{WIDTH} x i1>", BOOL, True)


class Place(Symbol):
    """A vector register, or a half of one; read whenever its value is asked for, as a view of an array is."""

    def __init__(self, batch: SymbolicBatch, register: int, dtype: Any, half: int | None = None) -> None:
        self.writer, self.dtype, self.is_vector = batch.writer, np.dtype(dtype), True
        self.segment = batch.writer.segment
        self.narrow = self.factors = None
        self.batch, self.row, self.half = batch, batch.row_of(register), half

    @property
    def text(self) -> str:
        w = self.writer
        whole = Symbol(w, w.register(self.row), U32, True)
        if self.half is not None:
            moved = w.binary("lshr", U32, whole, np.array([16 * self.half], U32))
            whole = w.convert(moved, np.dtype(np.uint16))
        return whole.view(self.dtype).text

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        """Its value now, converted."""
        return self.writer.convert(self.copy(), np.dtype(dtype))

    def copy(self) -> Symbol:
        """Its value now."""
        return Symbol(self.writer, self.text, self.dtype, True)

    def put(self, x: Any, where: Any = True) -> None:
        """Write, where a mask says so."""
        w = self.writer
        new = w.as_symbol(x, self.dtype)
        unsigned = np.dtype(f"u{self.dtype.itemsize}")
        bits = w.convert(new.view(unsigned), U32)
        old = Symbol(w, w.register(self.row), U32, True)
        if self.half is not None:
            kept = w.binary("and", U32, old, np.array([0xFFFF0000 >> 16 * self.half], U32))
            bits = w.binary("or", U32, kept, w.binary("shl", U32, bits, np.array([16 * self.half], U32)))
        if where is not True:
            bits = w.select(w.as_symbol(where, BOOL), Symbol(w, w.wide(bits), U32, True), old)
        w.set_register(self.row, w.wide(bits))

    def __setitem__(self, key: Any, x: Any) -> None:
        key = self._with_lane(key)
        if isinstance(key, Symbol) and key.dtype == np.bool_:
            self.put(x, key)
        elif isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], Symbol) and self.half is None:
            self._settled()
            self.writer.scalar.append(
                f"store i32 {self.batch.scalar_text(x, U32)}, ptr {self._one(key[1])}, align 4"
            )
        else:
            raise NotTraced("a write to some lanes")

    def _with_lane(self, key: Any) -> Any:
        """One lane whose number is known now, as one that is not."""
        if not (isinstance(key, tuple) and len(key) == 2) or isinstance(key[0], slice):
            return key
        first, second = key
        if isinstance(second, Symbol) or np.size(second) != 1:
            return key
        return first, self.writer.as_symbol(second, U32)

    def __getitem__(self, key: Any) -> Any:
        key = self._with_lane(key)
        if isinstance(key, tuple) and len(key) == 2:
            first, second = key
            if isinstance(second, Symbol) and not second.is_vector and self.half is None:
                self._settled()
                return self.writer.symbol(f"load i32, ptr {self._one(second)}, align 4", U32, False).view(
                    self.dtype
                )
            if isinstance(second, np.ndarray) and first == slice(None):
                return self._permuted(second)
        return super().__getitem__(key)

    def _settled(self) -> None:
        if self.writer.stores:
            raise NotTraced("lanes of a register that a loop is writing")

    def _one(self, lane: Symbol) -> str:
        w = self.writer
        at = w.convert(lane, U64).text
        return w.say(f"getelementptr [{w.lanes} x i32], ptr %own, i64 {self.row}, i64 {at}", False)

    def _whole(self) -> str:
        """All lanes, in the scalar stream."""
        self._settled()
        w = self.writer
        where = w.say(f"getelementptr [{w.lanes} x i32], ptr %own, i64 {self.row}", False)
        return w.say(f"load <{w.lanes} x i32>, ptr {where}, align 64", False)

    def _permuted(self, pattern: Any) -> Symbol:
        w = self.writer
        kind = f"<{w.lanes} x i32>"
        order = ", ".join(f"i32 {int(x)}" for x in pattern)
        moved = w.say(f"shufflevector {kind} {self._whole()}, {kind} poison, {kind} <{order}>", False)
        return self._as_type(self.batch.from_row(moved))

    def along(self, index: Symbol) -> Symbol:
        """For each lane that of another lane."""
        w = self.writer
        row = self.batch.temporary()
        w.scalar.append(f"store <{w.lanes} x i32> {self._whole()}, ptr {row}, align 64")
        at = w.say(f"getelementptr i32, ptr {row}, <{WIDTH} x i64> {w.wide(w.convert(index, U64))}", True)
        on = f"<{WIDTH} x i1> splat (i1 true)"
        found = w.say(
            f"call <{WIDTH} x i32> @llvm.masked.gather.v{WIDTH}i32.v{WIDTH}p0(<{WIDTH} x ptr> {at}, i32 4, {on}, "
            f"<{WIDTH} x i32> zeroinitializer)",
            True,
        )
        return self._as_type(found)

    def _as_type(self, text: str) -> Symbol:
        w = self.writer
        whole = Symbol(w, text, U32, True)
        if self.half is not None:
            whole = w.convert(
                w.binary("lshr", U32, whole, np.array([16 * self.half], U32)), np.dtype(np.uint16)
            )
        return whole.view(self.dtype)


class File:
    """Vector registers seen as one type."""

    def __init__(self, batch: SymbolicBatch, dtype: Any) -> None:
        self.batch, self.dtype = batch, np.dtype(dtype)

    def __len__(self) -> int:
        return self.batch.registers

    @property
    def shape(self) -> tuple[int, int, int]:
        """As the interpreter's array of one wave."""
        return self.batch.registers, 1, self.batch.writer.lanes

    def __getitem__(self, key: Any) -> Place:
        if isinstance(key, tuple) and len(key) == 4 and self.dtype.itemsize == 2:
            return Place(self.batch, int(key[0]), self.dtype, int(key[3]))
        return Place(self.batch, int(key), self.dtype)

    def __setitem__(self, key: Any, x: Any) -> None:
        """Python writes back what an operator in place gives. Raises NotTraced."""
        raise NotTraced("a register written without its mask")


class Scalars:
    """Scalar registers, one by one or in pairs."""

    def __init__(self, batch: SymbolicBatch, words: int) -> None:
        self.batch, self.words = batch, words

    def view(self, dtype: Any) -> Scalars:
        """As 64-bit numbers."""
        return Scalars(self.batch, np.dtype(dtype).itemsize // 4)

    def __getitem__(self, key: Any) -> Symbol:
        if not (isinstance(key, tuple) and key[0] == slice(None) and isinstance(key[1], int)):
            raise NotTraced("many scalar registers")
        return self.batch.scalar(key[1]) if self.words == 1 else self.batch.scalar_pair(2 * key[1])

    def __setitem__(self, key: Any, x: Any) -> None:
        if not (isinstance(key, tuple) and key[0] == slice(None) and isinstance(key[1], int)):
            raise NotTraced("many scalar registers")
        if self.words == 1:
            self.batch.set_scalar(key[1], x)
        else:
            self.batch.set_pair(2 * key[1], x)


class Residents:
    """What a step may know of the waves beside its own."""

    def __init__(self, lanes: int) -> None:
        self.wave_size = lanes
        self.memory = self

    def acquire(self) -> None:
        """Memory is always up to date."""


class SymbolicBatch:
    """One wave, in symbols."""

    def __init__(self, writer: Writer, registers: int, mode: int) -> None:
        self.writer, self.registers, self.mode = writer, registers, mode
        self.residents = Residents(writer.lanes)
        self.mask_words = writer.lanes // 32
        self.words: dict[int, Symbol] = {}
        self.dirty: set[int] = set()
        self.pending: dict[int, Symbol] = {}  # masks of this segment
        self.condition: Symbol | None = None
        self.is_condition_dirty = False
        self.lanes_now: Symbol | None = None
        self.readable: Any = np.ones((1, 1), np.bool_)
        self.all_lanes = False
        self.waves = 1
        self.answer = None
        self.known: dict[Any, Any] = {}  # the bits of masks, by their words
        self.used, self.most = (
            {1: 0, 2: 0},
            {1: 0, 2: 0},
        )  # temporaries, by their words: now, and in this block
        self.u32, self.i32, self.f32 = (File(self, dtype) for dtype in ("u4", "i4", "f4"))
        self.u16, self.i16, self.f16 = (File(self, dtype) for dtype in ("u2", "i2", "f2"))

    def __getattr__(self, name: str) -> NoReturn:
        raise NotTraced(f"a batch's {name}")

    # -- vector registers

    def row_of(self, register: int) -> int:
        """Where a vector register lies in the wave's memory. Raises NotTraced where there is none of this number."""
        if not 0 <= register < self.registers:
            raise NotTraced("a register that is not there")
        return register

    def pair(self, register: int, dtype: Any) -> Symbol:
        """Two consecutive vector registers as one 64-bit number per lane."""
        low, high = (self.u32[register + word].astype(U64) for word in (0, 1))
        return (low | (high << np.uint64(32))).view(dtype)

    def put_pair(self, register: int, x: Any, dtype: Any) -> None:
        """Write 64-bit numbers to two consecutive vector registers, where lanes are on."""
        bits = self.writer.as_symbol(x, dtype).view(U64)
        self.u32[register].put(bits.astype(U32), self.lanes)
        self.u32[register + 1].put((bits >> np.uint64(32)).astype(U32), self.lanes)

    def temporary(self, words: int = 1) -> str:
        """A place of the wave's own, of one or two words for each lane, until an instruction frees them all."""
        self.used[words] += 1
        self.most[words] = max(self.most[words], self.used[words])
        return f"%kept{words}_{self.used[words]}"

    def free_temporaries(self) -> None:
        """What instructions before this one have put there is read. A segment has just ended."""
        self.used = dict.fromkeys(self.used, 0)

    def from_row(self, text: str) -> str:
        """The i32s of lanes that the scalar stream has as one vector."""
        w = self.writer
        row = self.temporary()
        w.scalar.append(f"store <{w.lanes} x i32> {text}, ptr {row}, align 64")
        where = w.say(f"getelementptr i32, ptr {row}, i64 %l{w.segment}", True)
        return w.say(f"load <{WIDTH} x i32>, ptr {where}, align 64", True)

    # -- scalar registers

    @property
    def s(self) -> Scalars:
        """The scalar registers."""
        return Scalars(self, 1)

    scalars = s

    def scalar_text(self, x: Any, dtype: Any) -> str:
        """A number of the wave. Raises NotTraced for one of each lane."""
        found = self.writer.as_symbol(x, dtype)
        if found.is_vector:
            raise NotTraced("a number of each lane in a scalar register")
        return found.text

    def settle(self, register: int, words: int) -> None:
        """Masks that overlap these registers become bits."""
        size = self.mask_words
        if any(mask < register + words and register < mask + size for mask in self.pending):
            self.close()

    def scalar(self, register: int) -> Symbol:
        """A word of a scalar register."""
        self.settle(register, 1)
        found = self.words.get(register)
        if found is None:
            where = self.writer.say(f"getelementptr i32, ptr %scalars, i64 {register}", False)
            found = self.words[register] = self.writer.symbol(f"load i32, ptr {where}", U32, False)
        return found

    def scalar_pair(self, register: int) -> Symbol:
        """Two scalar registers as one number."""
        low, high = (self.scalar(register + word).astype(U64) for word in (0, 1))
        return low | (high << np.uint64(32))

    def set_scalar(self, register: int, x: Any) -> None:
        """Write a scalar register."""
        self.settle(register, 1)
        text = self.scalar_text(x, U32)
        self.words[register] = self.writer.symbol_of(text, U32)
        self.dirty.add(register)

    def set_pair(self, register: int, x: Any) -> None:
        """Write two scalar registers."""
        whole = self.writer.symbol_of(self.scalar_text(x, U64), U64)
        self.set_scalar(register, whole.astype(U32))
        self.set_scalar(register + 1, (whole >> np.uint64(32)).astype(U32))

    def forget(self, register: int, words: int) -> None:
        """Nothing: writes know what they change."""

    @property
    def scc(self) -> Symbol:
        """The condition bit."""
        if self.condition is None:
            byte = self.writer.say("load i8, ptr %scc", False)
            self.condition = self.writer.symbol(f"icmp ne i8 {byte}, 0", BOOL, False)
        return self.condition

    @scc.setter
    def scc(self, x: Any) -> None:
        self.condition = self.writer.symbol_of(self.scalar_text(x, BOOL), BOOL)
        self.is_condition_dirty = True

    # -- masks

    def bits(self, register: int) -> Symbol:
        """A mask as the bits of one number."""
        low = self.scalar(register).astype(U64)
        return low if self.mask_words == 1 else low | (self.scalar(register + 1).astype(U64) << np.uint64(32))

    def mask(self, register: int) -> Symbol:
        """A lane mask held in scalar registers, as booleans."""
        found = self.pending.get(register)
        if found is not None:
            return found
        self.settle(register, self.mask_words)
        words = tuple(self.scalar(register + word).text for word in range(self.mask_words))
        bits = self.known.get(words)
        if bits is None:
            bits = self.known[words] = self.bits(register).text
        return Mask(self.writer.mask_of(bits), bits)

    def set_mask(self, register: int, x: Any) -> None:
        """Write booleans of lanes to a mask register."""
        self.pending.pop(register, None)
        self.settle(register, self.mask_words)
        w = self.writer
        mask = w.as_symbol(x, BOOL)
        self.pending[register] = mask if mask.is_vector else Symbol(w, w.wide(mask), BOOL, True)

    @property
    def lanes(self) -> Symbol:
        """Which lanes are on."""
        return self.mask(EXEC) if self.lanes_now is None else self.lanes_now

    @lanes.setter
    def lanes(self, mask: Symbol) -> None:
        self.lanes_now = mask

    def exec_changed(self) -> None:
        """The lane mask follows EXEC."""
        self.lanes_now = None

    def set_exec(self, mask: Symbol) -> None:
        """Set which lanes are on."""
        self.lanes_now = None
        self.set_mask(EXEC, mask)

    def any_bit(self, register: int) -> Symbol:
        """Some lane of a mask is set."""
        return self.bits(register) != np.uint64(0)

    # -- attempts

    def state(self) -> dict[str, Any]:
        """What a step that is not traced to its end must not have changed."""
        return {
            name: value.copy() if isinstance(value, (dict, set)) else value
            for name, value in vars(self).items()
        }

    # -- ends of segments

    def close(self) -> None:
        """End the segment: its loop runs, masks become bits."""
        w = self.writer
        names = {register: w.bits_of(mask) for register, mask in self.pending.items()}
        self.pending = {}
        w.close()
        for register, name in names.items():
            whole = w.symbol_of(name, U64)
            for word in range(self.mask_words):
                moved = whole if not word else whole >> np.uint64(32)
                self.words[register + word] = moved.astype(U32)
                self.dirty.add(register + word)

    def flushed(self) -> list[str]:
        """Lines that put scalars where they belong."""
        w = self.writer
        lines = []
        for register in sorted(self.dirty):
            where = w.fresh("f")
            lines.append(f"{where} = getelementptr i32, ptr %scalars, i64 {register}")
            lines.append(f"store i32 {self.words[register].text}, ptr {where}")
        if self.is_condition_dirty and self.condition is not None:
            byte = w.fresh("f")
            lines.append(f"{byte} = zext i1 {self.condition.text} to i8")
            lines.append(f"store i8 {byte}, ptr %scc")
        return lines
