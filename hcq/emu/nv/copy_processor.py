"""The copy engine: lines of bytes from one place to another, constants instead of bytes, a semaphore at the end.

In       methods of a copy class
Out      memory copied; semaphores released
Changes  memory
Next     channel.py (when a copy happens), hcq/nv/abi/copy_methods.py (declared), semaphores.py (what a release stores)
Source   clc6b5.h, clc7b5.h, clc8b5.h, clc9b5.h, clcab5.h

Pitch layouts of virtual memory are emulated; block-linear layouts, physical addresses and conditions are refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hcq.emu.nv import semaphores
from hcq.emu.nv.engine import Engine, on
from hcq.emu.nv.errors import Access, CopyError
from hcq.emu.nv.memory import Bytes, View
from hcq.emu.shader import copy_checks
from hcq.nv.abi import copy_methods as copy
from hcq.nv.abi.compute_methods import SetRenderEnableCMode
from hcq.nv.abi.copy_methods import DataTransferType, DstX, SemaphoreType

UNIT = "CE0 HUBCLIENT_CE0"
REDUCTIONS = frozenset(semaphores.REDUCTIONS)
FOUR_COMPONENTS = ("x", "y", "z", "w")


class CopyProcessor(Engine):
    """One copy engine of one channel."""

    error = CopyError

    @on(copy.LaunchDma)
    def launch(self, method: Any) -> None:
        """The transfer, then the semaphore, each if it is asked for."""
        if method.src_type or method.dst_type:
            raise CopyError("LAUNCH_DMA with a PHYSICAL address: a channel of a process has none")
        if method.data_transfer_type != DataTransferType.NONE and self._is_enabled():
            transfer = self._transfer(method)
            self.channel.begin(
                self, transfer.run, method.data_transfer_type == DataTransferType.NON_PIPELINED
            )
        if method.semaphore_type != SemaphoreType.NONE:
            self._release(method)

    def _is_enabled(self) -> bool:
        mode = self.words.get(copy.SetRenderEnableC.at, SetRenderEnableCMode.TRUE)
        if mode not in (SetRenderEnableCMode.TRUE, SetRenderEnableCMode.FALSE):
            raise CopyError(f"SET_RENDER_ENABLE_C.mode={mode}: conditions are not emulated")
        return bool(mode == SetRenderEnableCMode.TRUE)

    def _transfer(self, method: Any) -> Transfer:
        if method.dst_memory_layout != copy.SrcMemoryLayout.PITCH:
            raise CopyError("LAUNCH_DMA.dst_memory_layout=BLOCKLINEAR: only PITCH is emulated")
        remap = self.last(copy.SetRemapComponents) if method.remap_enable else None
        reads = remap is None or any(_component(remap, name) <= DstX.SRC_W for name in _written(remap))
        if reads and method.src_memory_layout != copy.SrcMemoryLayout.PITCH:
            raise CopyError("LAUNCH_DMA.src_memory_layout=BLOCKLINEAR: only PITCH is emulated")
        return Transfer(
            self,
            source=self.address(copy.OffsetInUpper, copy.OffsetInLower) if reads else None,
            target=self.address(copy.OffsetOutUpper, copy.OffsetOutLower),
            length=self.word(copy.LineLengthIn),
            lines=self.word(copy.LineCount) if method.multi_line_enable else 1,
            pitches=(self.word(copy.PitchIn), self.word(copy.PitchOut)),
            remap=remap,
            constants=(self.word(copy.SetRemapConstA), self.word(copy.SetRemapConstB)),
        )

    def _release(self, method: Any) -> None:
        """With a flush it comes after all that was copied before; without one nothing orders it."""
        if method.semaphore_type == SemaphoreType.RELEASE_CONDITIONAL_INTR_SEMAPHORE:
            raise CopyError("LAUNCH_DMA.semaphore_type=RELEASE_CONDITIONAL_INTR_SEMAPHORE is not emulated")
        has_timestamp = method.semaphore_type == SemaphoreType.RELEASE_SEMAPHORE_WITH_TIMESTAMP
        size = 8 if method.values.get("semaphore_payload_size") else 4
        va = self.address(copy.SetSemaphoreA, copy.SetSemaphoreB)
        value = self.word(copy.SetSemaphorePayload)
        if size == 8:
            value |= self.word(copy.SetSemaphorePayloadUpper) << 32
        if not semaphores.is_aligned(va, size, has_timestamp):
            raise CopyError(
                f"LAUNCH_DMA: the semaphore at {va:#x} is not aligned to its {16 if has_timestamp else size} bytes"
            )
        how = method.semaphore_reduction.name if method.semaphore_reduction_enable else ""
        how = how if how == "INC" else how.removeprefix("I")  # IMIN is MIN
        if how and how not in REDUCTIONS:
            raise CopyError(f"LAUNCH_DMA.semaphore_reduction={method.semaphore_reduction!r} is not emulated")
        is_signed = method.semaphore_reduction_sign == copy.SemaphoreReductionSign.SIGNED

        def act() -> None:
            now = self.channel.card.time_ns() if has_timestamp else None
            semaphores.release(self.channel.view, va, value, size, now, UNIT, how, is_signed)

        self.channel.begin(self, act, bool(method.flush_enable))


class Transfer(NamedTuple):
    """One transfer, with all that its methods said when it was launched.

    source   None when only constants are written
    length   of a line: in bytes, with remapping in elements of several components
    """

    engine: Engine
    source: int | None
    target: int
    length: int
    lines: int
    pitches: tuple[int, int]
    remap: Any
    constants: tuple[int, int]

    def run(self) -> None:
        """Move every line. Raises MmuFault where one is not mapped."""
        view = self.engine.channel.view
        for line in range(self.lines):
            source = None if self.source is None else self.source + line * signed_pitch(self.pitches[0])
            target = self.target + line * signed_pitch(self.pitches[1])
            copy_checks.look(
                self.engine.channel.process.pid, "LAUNCH_DMA", target, source, self._line_bytes()
            )
            if self.remap is None:
                assert source is not None
                copy_bytes(view, source, target, self.length)
            else:
                self._remapped(view, source, target)

    def _line_bytes(self) -> int:
        """Of a line of the target; of the source, too, unless it is remapped to more of them."""
        if self.remap is None:
            return self.length
        size, given = self.remap.component_size + 1, self.remap.num_dst_components + 1
        taken = given if self.source is None else min(given, self.remap.num_src_components + 1)
        return int(self.length * size * taken)

    def _remapped(self, view: View, source: int | None, target: int) -> None:
        """Each element of the target is made of components of the source's element, of constants, or left alone."""
        remap = self.remap
        size = remap.component_size + 1
        taken, given = remap.num_src_components + 1, remap.num_dst_components + 1
        data: Bytes | None = None
        if source is not None:
            raw = view.read(source, self.length * taken * size, UNIT)
            data = np.frombuffer(raw, np.uint8).reshape(self.length, taken, size)
        pieces = list(view.spans(target, self.length * given * size, Access.WRITE, UNIT))
        old = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        out = old.reshape(self.length, given, size)
        for number, name in enumerate(_written(remap)):
            what = _component(remap, name)
            if what <= DstX.SRC_W and data is not None:
                if what >= taken:
                    raise CopyError(f"SET_REMAP_COMPONENTS: dst_{name} is component {what} of {taken}")
                out[:, number] = data[:, what]
            elif what in (DstX.CONST_A, DstX.CONST_B):
                constant = self.constants[what == DstX.CONST_B]
                out[:, number] = np.frombuffer(constant.to_bytes(4, "little")[:size], np.uint8)
        at = 0
        flat = out.reshape(-1)
        for piece in pieces:
            piece[:] = flat[at : at + len(piece)]
            at += len(piece)


def _written(remap: Any) -> tuple[str, ...]:
    """The components that an element of the target has; what is said of the others means nothing."""
    return FOUR_COMPONENTS[: remap.num_dst_components + 1]


def _component(remap: Any, name: str) -> int:
    return int(remap.values[f"dst_{name}"])


def signed_pitch(pitch: int) -> int:
    """The step between lines, which may be negative."""
    return semaphores.signed(pitch, 32)


def copy_bytes(view: View, source: int, target: int, size_bytes: int) -> None:
    """Copy a range whose two ends may each be made of several mappings."""
    sources = list(view.spans(source, size_bytes, Access.READ, UNIT))
    targets = list(view.spans(target, size_bytes, Access.WRITE, UNIT))
    while sources and targets:
        count = min(len(sources[0]), len(targets[0]))
        targets[0][:count] = sources[0][:count]
        for pieces in (sources, targets):
            pieces[0] = pieces[0][count:]
            if not len(pieces[0]):
                pieces.pop(0)
