"""Pushbuffers of a foreign channel as commands: launches with their kernels and arguments, copies, fills.

In       the words of a segment as the GPU is about to read them; GPU memory; who knows the kernel at an address
Out      the commands that need more than one method to be understood
Changes  the registers that methods set stay for the next segment, as they do in the channel
Next     reader.py (which channel), kernels.py (which kernel), hcq/nv/decode.py (what methods say by themselves)

A launch is read when its methods are: what the channel itself writes before (inline data, a copy over its own QMD) is
not yet there then, and a grid that another one starts (a dependent QMD) is not seen.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hcq.command import Command, Copy, Dispatch, Fill
from hcq.events.foreign_devices import Parameter
from hcq.events.kernel_observer import Read
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi import copy_methods as copy
from hcq.nv.abi.classes import ARCHITECTURES, COMPUTE, COPY
from hcq.nv.abi.compute_methods import PcasAction
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, HOST_END, WITH_DATA, Push, SecOp
from hcq.nv.abi.qmd import Qmd, qmd_for
from hcq.nv.foreign.kernels import Kernel

SET_OBJECT_AT = 0
MAX_LINES = 256  # of one transfer, that are told one by one
SCHEDULES = frozenset(
    {
        PcasAction.SCHEDULE,
        PcasAction.INVALIDATE_COPY_SCHEDULE,
        PcasAction.PREFETCH_SCHEDULE,
        PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
        PcasAction.INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING,
    }
)
FindKernel = Callable[[int, Read], Kernel]


class PushReader:
    """One channel of a GPU of this architecture."""

    def __init__(self, arch: str, find: FindKernel) -> None:
        engines = ARCHITECTURES[arch]
        self.qmd = qmd_for(engines.compute)
        self._find = find
        # where nobody has bound a class yet, drivers have these
        self._classes: dict[int, int] = {COMPUTE_SUBCHANNEL: engines.compute, COPY_SUBCHANNEL: engines.copy}
        self._registers: dict[int, dict[int, int]] = {}  # by subchannel

    def read(self, words: Sequence[int], read: Read) -> Iterator[Command]:
        """The commands of one segment."""
        for subchannel, address, word in writes(words):
            if address == SET_OBJECT_AT:
                self._classes[subchannel] = word & 0xFFFF
            elif address >= HOST_END:
                registers = self._registers.setdefault(subchannel, {})
                registers[address] = word
                owner = self._classes.get(subchannel, 0)
                if owner in COPY and address == copy.LaunchDma.at:
                    yield from _transfer(registers, copy.LaunchDma.decode([word]))
                elif owner in COMPUTE and _schedules(address, word):
                    shown = compute.SendPcasA.decode([registers.get(compute.SendPcasA.at, 0)])
                    launch = self._launch(shown.qmd_address_shifted8, read)
                    if launch is not None:
                        yield launch

    def _launch(self, va: int, read: Read) -> Dispatch | None:
        size = 4 * self.qmd.length_words
        raw = read(va, size)
        if len(raw) != size:
            return None
        qmd = self.qmd.decode(struct.unpack(f"<{self.qmd.length_words}I", raw))
        kernel = self._find(qmd.value("program_address"), read)
        grid = (qmd.value("grid_width"), qmd.value("grid_height"), qmd.value("grid_depth"))
        block = tuple(qmd.value(f"cta_thread_dimension{axis}") for axis in range(3))
        return _dispatch(kernel, qmd, read, grid, (block[0], block[1], block[2]))


def writes(words: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(subchannel, address, word) of each method, in order; what comes behind the end of a segment is not read."""
    at = 0
    while at < len(words):
        how, subchannel, address, count = _header(words[at])
        at += 1
        if how is SecOp.IMMD_DATA_METHOD:
            yield subchannel, address, count
        elif how is SecOp.END_PB_SEGMENT:
            return
        elif how in WITH_DATA:
            for number in range(min(count, len(words) - at)):
                step = {SecOp.INC_METHOD: number, SecOp.ONE_INC: min(number, 1)}.get(how, 0)
                yield subchannel, address + 4 * step, words[at + number]
            at += count


@functools.lru_cache(1 << 12)
def _header(word: int) -> tuple[Any, int, int, int]:
    header = Push.decode([word])
    return header.sec_op, header.subchannel, header.method_address, header.count


def _schedules(address: int, word: int) -> bool:
    """Whether a method launches the QMD of SEND_PCAS_A."""
    if address == compute.SendSignalingPcasB.at:
        return bool(compute.SendSignalingPcasB.decode([word]).schedule)
    return (
        address == compute.SendSignalingPcas2B.at
        and compute.SendSignalingPcas2B.decode([word]).pcas_action in SCHEDULES
    )


# ------------------------------------------------------------ copies


def _transfer(registers: dict[int, int], launch: Any) -> Iterator[Command]:
    """What LAUNCH_DMA moves. Layouts in blocks, physical addresses and mixed components are left to the methods."""
    if launch.data_transfer_type == copy.DataTransferType.NONE or launch.src_type or launch.dst_type:
        return
    pitch = copy.SrcMemoryLayout.PITCH
    if launch.dst_memory_layout != pitch:
        return
    source, target = (
        registers.get(upper.at, 0) << 32 | registers.get(lower.at, 0)
        for upper, lower in (
            (copy.OffsetInUpper, copy.OffsetInLower),
            (copy.OffsetOutUpper, copy.OffsetOutLower),
        )
    )
    length = registers.get(copy.LineLengthIn.at, 0)
    lines = registers.get(copy.LineCount.at, 0) if launch.multi_line_enable else 1
    pitches = [registers.get(one.at, 0) for one in (copy.PitchIn, copy.PitchOut)]
    element = b""
    if launch.remap_enable:
        element = _constant(registers)
        length *= len(element)
        if not element:
            return
    elif launch.src_memory_layout != pitch:
        return
    if lines > 1 and set(pitches) == {length}:
        length, lines = length * lines, 1
    for line in range(min(lines, MAX_LINES)):
        to = target + line * pitches[1]
        if element:
            yield Fill(to, int.from_bytes((element * 8)[:8], "little"), length)
        else:
            yield Copy(to, source + line * pitches[0], length)


def _constant(registers: dict[int, int]) -> bytes:
    """What each element becomes; b"" where some of it is read, or where it does not repeat in 8 bytes."""
    remap = copy.SetRemapComponents.decode([registers.get(copy.SetRemapComponents.at, 0)])
    size = remap.component_size + 1
    constants: dict[int, int] = {
        copy.DstX.CONST_A: registers.get(copy.SetRemapConstA.at, 0),
        copy.DstX.CONST_B: registers.get(copy.SetRemapConstB.at, 0),
    }
    element = b""
    for name in "xyzw"[: remap.num_dst_components + 1]:
        what = remap.values[f"dst_{name}"]
        if what not in constants:
            return b""
        element += constants[what].to_bytes(4, "little")[:size]
    return element if 8 % len(element) == 0 else b""


# ------------------------------------------------------------ launches


def _dispatch(
    kernel: Kernel, qmd: Qmd, read: Read, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> Dispatch:
    """A launch with its arguments as they lie in constant bank 0 now."""
    program = kernel.program
    bank, size = qmd.value("constant_buffer_addr_0"), qmd.value("constant_buffer_size_0")
    values: list[int | float] = []
    for one in program.numbers:
        at = kernel.param_base + one.offset
        data = read(bank + at, one.size_bytes) if at + one.size_bytes <= size else b""
        if len(data) != one.size_bytes:
            return Dispatch(program.without_arguments, (), grid, block)
        values.append(_value(one, data))
    return Dispatch(program, tuple(values), grid, block)


def _value(parameter: Parameter, data: bytes) -> int | float:
    if parameter.letter == "f" and len(data) in (2, 4, 8):
        value: float = struct.unpack({2: "<e", 4: "<f", 8: "<d"}[len(data)], data)[0]
        return value
    return int.from_bytes(data, "little")
