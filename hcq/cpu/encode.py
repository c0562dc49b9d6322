"""Encoding: commands to the CPU device's packets, and back.

In       a Command; for a dispatch also how its arguments lie in registers and on the stack
Out      bytes of whole packets
Next     packets.py (every bit), device.py (who sends them)

A dispatch's packet is made by one struct.pack. Its layout depends only on the kinds of the arguments, so it is worked
out once for each signature and kept: an ArgumentShape.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from hcq import command
from hcq.cpu import packets
from hcq.cpu.processor import MAX_STACK_SLOTS, Machine
from hcq.errors import UsageError
from hcq.layout import Packet, decode_stream


class ArgumentShape(NamedTuple):
    """How arguments of certain kinds become a Dispatch packet.

    pack     struct.pack of the whole packet: header fields in the order of Dispatch.struct(), then the arguments
    head     opcode, has_floats, length, stack_slots, group_slot: the packet's first fields
    gather   reorders the arguments as the packet has them; None when they already are in that order
    """

    pack: Callable[..., bytes]
    head: tuple[int, ...]
    gather: Callable[[Sequence[Any]], tuple[Any, ...]] | None
    slots: tuple[int, ...]  # argument index -> the 64-bit slot it goes to


@functools.lru_cache(1024)
def argument_shape(machine: Machine, kinds: str) -> ArgumentShape:
    """Place arguments as the C calling convention does. kinds: one letter each, "i" integer or address, "f" double."""
    integers: list[int] = []
    floats: list[int] = []
    stack: list[int] = []
    for index, kind in enumerate(kinds):
        registers, limit = (
            (floats, machine.float_registers) if kind == "f" else (integers, machine.integer_registers)
        )
        (registers if len(registers) < limit else stack).append(index)
    float_slots = machine.float_registers if floats else 0
    if len(integers) < machine.integer_registers:
        group_slot = len(integers)
    else:
        group_slot = machine.integer_registers + float_slots + len(stack)
    stack_slots = len(stack) + (group_slot >= machine.integer_registers)
    if stack_slots > MAX_STACK_SLOTS:
        most = MAX_STACK_SLOTS + machine.integer_registers - 1
        raise UsageError(
            f"dispatch: {len(kinds)} arguments are too many; about {most} fit. Pass a buffer of them."
        )
    text = "q" * len(integers) + "8x" * (machine.integer_registers - len(integers))
    text += "d" * len(floats) + "8x" * (float_slots - len(floats))
    text += "".join("d" if kinds[index] == "f" else "q" for index in stack)
    text += "8x" * (stack_slots - len(stack))
    header, names = packets.Dispatch.struct()
    whole = struct.Struct(header.format + text)
    assert names[:5] == ("opcode", "has_floats", "length", "stack_slots", "group_slot"), names
    order = integers + floats + stack
    gather = None if order == sorted(order) else itemgetter(*order)
    head = (int(packets.Opcode.DISPATCH), int(bool(floats)), whole.size // 4, stack_slots, group_slot)
    places = {index: slot for slot, index in enumerate(integers)}
    places.update((index, machine.integer_registers + slot) for slot, index in enumerate(floats))
    places.update((index, machine.integer_registers + float_slots + slot) for slot, index in enumerate(stack))
    slots = tuple(places[index] for index in range(len(kinds)))
    return ArgumentShape(whole.pack, head, gather, slots)


def encode(what: command.Command, machine: Machine) -> bytes:
    """One command as packet bytes."""
    if isinstance(what, command.Dispatch):
        kinds = what.program.args or tuple("float" if isinstance(arg, float) else "int" for arg in what.args)
        shape = argument_shape(machine, "".join("f" if kind == "float" else "i" for kind in kinds))
        return pack_dispatch(shape, what)
    if isinstance(what, command.Packets):
        return what.words
    return _packet(what).to_bytes()


def pack_dispatch(shape: ArgumentShape, what: command.Dispatch) -> bytes:
    """The plain way; device.py's hot path does the same in one call."""
    x, y, z = what.grid
    values = what.args if shape.gather is None else shape.gather(what.args)
    program = what.program
    return shape.pack(
        *shape.head, program.entry, x * y * z, x, y, z, what.groups_per_claim, program.scratch_bytes, *values
    )


def signal_struct() -> tuple[Callable[..., bytes], tuple[int, int]]:
    """The packer of a Signal packet, and its first two fields; the signal's address and value follow."""
    layout, names = packets.Signal.struct()
    assert names == ("opcode", "length", "signal", "value"), names
    return layout.pack, (int(packets.Opcode.SIGNAL), packets.Signal.length_words)


def timestamp_struct() -> tuple[Callable[..., bytes], tuple[int, int]]:
    """The packer of a Timestamp packet, and its first two fields; the address follows."""
    layout, names = packets.Timestamp.struct()
    assert names == ("opcode", "length", "address"), names
    return layout.pack, (int(packets.Opcode.TIMESTAMP), packets.Timestamp.length_words)


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of an architecture; packets are the same on all of them."""
    return decode


def decode(words: Sequence[int]) -> list[Packet]:
    """Packets as a trace shows them. Never raises: unknown opcodes and lengths end as the header that has them."""
    return decode_stream(words, packets.Header, packets.PACKETS)


def _packet(what: command.Command) -> Packet:
    if isinstance(what, command.Copy):
        return packets.Copy(dst=what.dst, src=what.src, size_bytes=what.size_bytes)
    if isinstance(what, command.Fill):
        return packets.Fill(dst=what.dst, pattern=what.pattern, size_bytes=what.size_bytes)
    if isinstance(what, command.Wait):
        return packets.Wait(signal=what.signal, value=what.value)
    if isinstance(what, command.Signal):
        return packets.Signal(signal=what.signal, value=what.value)
    if isinstance(what, command.Timestamp):
        return packets.Timestamp(address=what.address)
    if isinstance(what, command.Barrier):
        return packets.Barrier()
    if isinstance(what, command.Indirect):
        return packets.Indirect(address=what.address, size_words=what.size_words)
    raise UsageError(f"the CPU device has no packet for {what!r}.")
