"""Packets of a foreign queue as commands: launches with their kernels and arguments, copies, fills, blocks.

In       words as a ring's processor takes them; GPU memory; who knows the kernel at an address
Out      the commands that need more than the words to be understood, and the blocks that the words run
Changes  the registers that PM4 packets set stay for the next ones
Next     reader.py (which queue), code_objects.py (which kernel), hcq/amd/abi/ (the packets)

What a packet says by itself (waits, signals, caches) is left to whoever decodes the words.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.abi.descriptor import KernelDescriptor, user_sgprs
from hcq.amd.abi.registers import NumThread, Register
from hcq.amd.decode import queue_decoder
from hcq.command import Command, Copy, Dispatch, Fill, Indirect
from hcq.events.foreign_devices import ForeignBlock, ForeignProgram, Parameter
from hcq.events.kernel_observer import Read

COPIES = (sdma.CopyLinear, sdma.CopyLinearV4, sdma.CopyLinearV7)
FILLS = (sdma.ConstFill, sdma.ConstFillV4, sdma.ConstFillV7)
MAX_DEPTH = 2
MAX_BLOCK_WORDS = 1 << 20

# (address of what the packet names, is that a descriptor) -> the kernel, and its descriptor where it is known
FindKernel = Callable[[int, bool], tuple[ForeignProgram, KernelDescriptor | None]]


class PacketReader:
    """One queue. kind: AQL, PM4 or SDMA."""

    def __init__(self, kind: str, arch: str, find_kernel: FindKernel) -> None:
        self.kind = kind
        self._decode = {name: queue_decoder(arch, name) for name in ("AQL", "PM4", "SDMA")}
        self._find = find_kernel
        self._registers: dict[int, int] = {}

    def read(self, words: bytes, read: Read) -> tuple[list[Command], list[ForeignBlock]]:
        """The commands of what a doorbell showed, and the blocks that it runs."""
        blocks: list[ForeignBlock] = []
        return list(self._commands(self.kind, words, read, blocks, 0)), blocks

    def _commands(
        self, kind: str, words: bytes, read: Read, blocks: list[ForeignBlock], depth: int
    ) -> Iterator[Command]:
        packets: list[Any] = self._decode[kind](memoryview(words).cast("I"))
        for packet in packets:
            if isinstance(packet, COPIES):
                yield Copy(packet.dst_addr, packet.src_addr, packet.count + 1)
            elif isinstance(packet, FILLS):
                yield _fill(packet)
            elif isinstance(packet, pm4.SetShReg):
                values = enumerate(packet.tail_words, packet.reg_offset)
                self._registers.update(values)
            elif isinstance(packet, pm4.DispatchDirect):
                yield self._pm4_dispatch(packet, read)
            elif isinstance(packet, aql.KernelDispatch):
                yield self._aql_dispatch(packet, read)
            elif isinstance(packet, (pm4.IndirectBuffer, aql.Pm4Ib, sdma.Indirect)) and depth < MAX_DEPTH:
                inside = "SDMA" if kind == "SDMA" else "PM4"
                yield from self._block(inside, packet, read, blocks, depth)

    def _block(
        self, kind: str, packet: Any, read: Read, blocks: list[ForeignBlock], depth: int
    ) -> Iterator[Command]:
        va, size = packet.ib_base, packet.ib_size
        words = read(va, 4 * size) if 0 < size <= MAX_BLOCK_WORDS else b""
        if words:
            commands = tuple(self._commands(kind, words, read, blocks, depth + 1))
            label = f"{kind} block@{va:x}"
            blocks.append(ForeignBlock(va, label, words, commands))
            yield Indirect(va, size, label, commands)

    # ------------------------------------------------------------ launches

    def _aql_dispatch(self, packet: aql.KernelDispatch, read: Read) -> Dispatch:
        program, descriptor = self._find(packet.kernel_object, True)
        block = (packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z)
        items = (packet.grid_size_x, packet.grid_size_y, packet.grid_size_z)
        groups = [-(-extent // max(width, 1)) for extent, width in zip(items, block)]
        made = _dispatch(program, packet.kernarg_address, read, (groups[0], groups[1], groups[2]), block)
        own = packet.group_segment_size if descriptor is None else descriptor.group_segment_fixed_size
        return made._replace(dynamic_shared_bytes=max(packet.group_segment_size - own, 0))

    def _pm4_dispatch(self, packet: pm4.DispatchDirect, read: Read) -> Dispatch:
        at = self._registers
        entry = (at.get(Register.COMPUTE_PGM_LO, 0) | at.get(Register.COMPUTE_PGM_HI, 0) << 32) << 8
        program, descriptor = self._find(entry, False)
        block = [
            NumThread.decode([at.get(Register.COMPUTE_NUM_THREAD_X + axis, 0)]).num_thread_full
            for axis in range(3)
        ]
        grid = (packet.dim_x, packet.dim_y, packet.dim_z)
        place = None if descriptor is None else user_sgprs(descriptor).get("kernarg_segment_ptr")
        kernarg = 0
        if place is not None:
            first = Register.COMPUTE_USER_DATA_0 + place
            kernarg = at.get(first, 0) | at.get(first + 1, 0) << 32
        return _dispatch(program, kernarg, read, grid, (block[0], block[1], block[2]))


def _fill(packet: Any) -> Fill:
    is_word = packet.fillsize == sdma.FillSize.WORD
    size = (packet.count & ~3) + 4 if is_word else packet.count + 1
    unit = {sdma.FillSize.BYTE: 1, sdma.FillSize.HALF: 2}.get(packet.fillsize, 4)
    pattern = (packet.src_data & (1 << 8 * unit) - 1).to_bytes(unit, "little") * (8 // unit)
    return Fill(packet.dst_addr, int.from_bytes(pattern, "little"), size)


def _dispatch(
    program: ForeignProgram, kernarg: int, read: Read, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> Dispatch:
    """A launch with its arguments as they lie in memory now."""
    values: list[int | float] = []
    for one in program.numbers if kernarg else ():
        data = read(kernarg + one.offset, one.size_bytes)
        if len(data) != one.size_bytes:
            break
        values.append(_value(one, data))
    if len(values) != len(program.numbers):
        return Dispatch(program.without_arguments, (), grid, block)
    return Dispatch(program, tuple(values), grid, block)


def _value(parameter: Parameter, data: bytes) -> int | float:
    if parameter.letter == "f":
        value: float = struct.unpack({2: "<e", 4: "<f", 8: "<d"}[parameter.size_bytes], data)[0]
        return value
    return int.from_bytes(data, "little")
