"""Trace records: every byte of a trace file, declared once; writer, reader and docs/trace-format.md go by it.

In       nothing
Out      the kinds of records, their frame and the heads of their data as layouts; pack_record, and commands to bytes
         and back
Next     observe/trace_writer.py (the writer), file.py (the reader), docs/trace-format.md (the same for people)

A file is MAGIC and then records. A record is a Frame, text (JSON, or nothing) and data. What happens often
(submissions, allocations, completions) has no text: its data starts with a head declared here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from hcq.command import Barrier, Command, Copy, Dispatch, Fill, Indirect, Packets, Signal, Timestamp, Wait
from hcq.errors import UsageError
from hcq.layout import Packet, bits

VERSION = 2
MAGIC = b"HCQTRACE 2\n"
MAX_RECORD_BYTES = 1 << 32
DIGEST_BYTES = 16


class Kind(IntEnum):
    """What a record says. A reader keeps the kinds that it does not know."""

    PROCESS = 1  # a process began to write: text
    DEVICE = 2  # a device opened: text
    CLOSE = 3  # a device closed: text
    # a call to the operating system: text; data is an ioctl's argument before the call, then after it
    PORT = 4
    MAP = 5  # memory of a device was mapped: text
    UNMAP = 6  # and unmapped: text
    CODE = 7  # a program was loaded: text; data is the whole object
    UNLOAD = 8  # a program was dropped: text
    STRING = 9  # text with a number, by which later records call it: data is the number (4 bytes), then UTF-8
    ALLOC = 10  # a buffer was handed out: Alloc
    FREE = 11  # and given back: Free
    SUBMIT = 12  # a submission, written before the doorbell: Submit, its words, its commands
    TIMES = 13  # when the device began and ended submissions: Times
    SIGNAL = 14  # the host saw or set a signal: SignalSeen
    BLOCK = 15  # memory that submissions run or read indirectly: Block, its commands, its words
    PATCH = 16  # words of a block that changed: Patch
    DATA = 17  # contents of memory (only with HCQ_TRACE=file,data): Data, the bytes
    STAMPS = 18  # what timestamp packets stored: Stamps
    FAULT = 19  # the device stopped, or a wait timed out: text
    DROPPED = 20  # the submission recorded last did not reach the device: text
    RESULT = 21  # what submissions left in a buffer (only with HCQ_TRACE=file,data): Result
    NAME = 22  # a buffer got another name, which holds for all of its life: text
    COUNTERS = 23  # what a launch did, as an emulated GPU counted (only with HCQ_PROFILE=counters): text
    PLACE = 24  # which rank of a job the process is, and how its clock stands to rank 0's from now on: text
    SPAN = 25  # a stretch of time that the program gave a name, a collective perhaps: text
    JOINED = 26  # this trace was made of several files; what was done with the clock of one of them: text
    CLOCK = 27  # a device's clock, as times of the device are written down, beside the host's: text
    FINDING = 28  # a kernel breaks a rule, as an emulated GPU saw (only with HCQ_SANITIZE): text


class Frame(Packet, words=7):
    """Before every record."""

    checksum = bits(31, 0, doc="CRC-32 of everything after it in this record")
    kind = bits(47, 32, enum=Kind)
    reserved = bits(63, 48)
    text_bytes = bits(95, 64, doc="bytes")
    data_bytes = bits(127, 96, doc="bytes")
    process = bits(159, 128, doc="the process that wrote it, as the system numbers processes")
    time_ns = bits(
        223, 160, doc="ns, the clock of time.monotonic_ns; devices put the same clock into signals"
    )


class Alloc(Packet, words=8):
    """A buffer begins to exist. `capacity_bytes` is what it occupies, with alignment."""

    device = bits(31, 0, doc="number of the DEVICE record, in this process")
    name = bits(63, 32, doc="string; 0 when it has no name")
    va = bits(127, 64)
    size_bytes = bits(191, 128)
    capacity_bytes = bits(255, 192)


class Free(Packet, words=6):
    """A buffer's memory goes back to the pool; submissions in flight may still use it."""

    device = bits(31, 0)
    reserved = bits(63, 32)
    va = bits(127, 64)
    capacity_bytes = bits(191, 128)


class Submit(Packet, words=10):
    """Words follow, as the device reads them, then commands (see Command). Instrumentation packets are not in it."""

    device = bits(31, 0)
    queue = bits(63, 32, doc="string")
    value = bits(127, 64, doc="what the timeline is when it is done")
    site = bits(159, 128, doc="string: the line of the program that submitted it")
    thread = bits(191, 160, doc="string: the thread's name")
    size_words = bits(223, 192)
    commands = bits(255, 224, doc="how many commands follow the words")
    reserved = bits(319, 256)


class Times(Packet, words=2, tail="entries"):
    """Any number of entries: value, start, end (ns), 64 bits each."""

    device = bits(31, 0)
    entries_count = bits(63, 32)


class SignalSeen(Packet, words=8):
    """A signal as the host saw it after a wait, or as the host set it."""

    device = bits(31, 0)
    is_set = bits(63, 32, doc="1: the host set it; 0: the host waited and saw it")
    va = bits(127, 64)
    value = bits(191, 128)
    timestamp_ns = bits(255, 192, doc="ns, from the cell")


class Block(Packet, words=6):
    """Commands follow, then words."""

    device = bits(31, 0)
    label = bits(63, 32, doc="string")
    va = bits(127, 64)
    commands = bits(159, 128)
    size_words = bits(191, 160)


class Patch(Packet, words=4, tail="entries"):
    """Any number of PatchEntry: what a replay wrote into its block before it was submitted."""

    device = bits(31, 0)
    entries_count = bits(63, 32)
    va = bits(127, 64, doc="the block's")


class PatchEntry(Packet, words=6):
    """One argument in a block: a float of 8 bytes in `value`, however many it takes in the block."""

    byte_offset = bits(31, 0)
    command = bits(63, 32)
    argument = bits(95, 64)
    letter = bits(111, 96, doc="ASCII: b buffer, i integer, f float")
    size_bytes = bits(127, 112, doc="how many bytes of the block it takes; 0: eight")
    value = bits(191, 128)


class Why(IntEnum):
    """Why the contents of memory were written down."""

    BEFORE_USE = 0  # the first submission that uses the buffer comes next
    HOST_WROTE = 1
    HOST_READ = 2
    AT_CLOSE = 3


class Data(Packet, words=6):
    """The bytes follow."""

    device = bits(31, 0)
    why = bits(63, 32, enum=Why)
    va = bits(127, 64)
    size_bytes = bits(191, 128)


class Result(Packet, words=12):
    """A digest of a whole buffer after the last submission that was handed it, and before the next."""

    device = bits(31, 0)
    reserved = bits(63, 32)
    va = bits(127, 64)
    size_bytes = bits(191, 128)
    value = bits(255, 192, doc="the timeline value of that submission")
    digest_low = bits(319, 256, doc="BLAKE2b of the bytes, 16 bytes long, little-endian")
    digest_high = bits(383, 320)


class Stamps(Packet, words=2, tail="entries"):
    """Any number of entries: address, nanoseconds, 64 bits each."""

    device = bits(31, 0)
    entries_count = bits(63, 32)


class Verb(IntEnum):
    """The first byte of a packed command."""

    DISPATCH = 1
    COPY = 2
    FILL = 3
    WAIT = 4
    SIGNAL = 5
    TIMESTAMP = 6
    BARRIER = 7
    INDIRECT = 8
    PACKETS = 9


class PackedCommand(Packet, words=1):
    """Before every command."""

    verb = bits(7, 0, enum=Verb)
    reserved = bits(15, 8)
    size_words = bits(31, 16, doc="this word included")


class PackedDispatch(Packet, words=12):
    """A launch; its arguments follow, 64 bits each."""

    verb = bits(7, 0, enum=Verb, default=Verb.DISPATCH)
    reserved = bits(15, 8)
    size_words = bits(31, 16)
    letters = bits(63, 32, doc="string with one letter an argument: b buffer, i integer, f float, ? unknown")
    entry = bits(127, 64)
    groups_per_claim = bits(159, 128)
    grid_x = bits(191, 160)
    grid_y = bits(223, 192)
    grid_z = bits(255, 224)
    block_x = bits(287, 256)
    block_y = bits(319, 288)
    block_z = bits(351, 320)
    dynamic_shared_bytes = bits(383, 352, doc="beyond the kernel's own, of each workgroup")


class PackedOther(Packet, words=8):
    """Every other command, with the fields it has: Copy dst, src, size; Fill dst, pattern, size; Wait and Signal
    signal, value; Timestamp address; Indirect address, size in words; Packets size in words."""

    verb = bits(7, 0, enum=Verb)
    reserved = bits(15, 8)
    size_words = bits(31, 16, default=8)
    label = bits(63, 32, doc="string; of Indirect, and of Packets: their ring and their names")
    first = bits(127, 64)
    second = bits(191, 128)
    third = bits(255, 192)


HEADS: dict[Kind, type[Packet]] = {
    Kind.ALLOC: Alloc,
    Kind.FREE: Free,
    Kind.SUBMIT: Submit,
    Kind.TIMES: Times,
    Kind.SIGNAL: SignalSeen,
    Kind.BLOCK: Block,
    Kind.PATCH: Patch,
    Kind.DATA: Data,
    Kind.STAMPS: Stamps,
    Kind.RESULT: Result,
}

_FRAME = Frame.struct()[0]
_REST = struct.Struct(_FRAME.format.replace("I", "", 1))  # what the checksum covers of the frame
_pack_rest = _REST.pack
_pack_checksum = struct.Struct("<I").pack
_crc32 = zlib.crc32
_OTHER = PackedOther.struct()[0]
_pack_8 = _OTHER.pack
_DISPATCH = PackedDispatch.struct()[0]
_COMMAND = PackedCommand.struct()[0]


def digest(data: Any) -> bytes:
    """What a Result says of bytes."""
    from hashlib import blake2b

    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def pack_record(kind: int, process: int, time_ns: int, text: bytes = b"", data: bytes = b"") -> bytes:
    """A whole record, with its checksum."""
    body = _pack_rest(kind, 0, len(text), len(data), process, time_ns) + text + data
    return _pack_checksum(_crc32(body)) + body


def pack_commands(commands: Sequence[Command], intern: Callable[[str], int]) -> bytes:
    """Commands as the bytes of a Submit or Block record. `intern` gives a string its number."""
    if len(commands) == 1:
        return _pack(commands[0], intern)
    return b"".join([_pack(what, intern) for what in commands])


def _pack(what: Command, intern: Callable[[str], int]) -> bytes:
    if type(what) is Dispatch:
        program = what.program
        pack, size_words, letters = program.packed or _shape(what)
        return pack(
            1, 0, size_words, intern(letters), program.entry, what.groups_per_claim,
            *what.grid, *what.block, what.dynamic_shared_bytes, *what.args,
        )  # fmt: skip
    if type(what) is Indirect:
        return _pack_8(8, 0, 8, intern(what.label), what.address, what.size_words, 0)
    if type(what) is Packets:
        label = intern(f"{what.ring}: {', '.join(what.names)}")
        return _pack_8(Verb.PACKETS, 0, 8, label, len(what.words) // 4, 0, 0)
    return _pack_other(what)


def packing(letters: str) -> tuple[Callable[..., bytes], int, str]:
    """How a dispatch of arguments of these letters is packed: what Program.packed holds. Integers are unsigned."""
    text = "".join("d" if letter == "f" else "Q" for letter in letters)
    made = struct.Struct(_DISPATCH.format + text)
    return made.pack, made.size // 4, letters


def _shape(what: Dispatch) -> tuple[Callable[..., bytes], int, str]:
    """How a dispatch is packed; the program keeps it when it says the kinds of its arguments."""
    kinds = what.program.args
    if kinds is None or len(kinds) != len(what.args):
        letters = "".join("f" if isinstance(arg, float) else "?" for arg in what.args)
    else:
        letters = "".join(kind[0] for kind in kinds)
    text = "".join(
        "d" if letter == "f" else "Q" if letter == "?" and arg >= 2**63 else "q"
        for letter, arg in zip(letters, what.args)
    )
    made = struct.Struct(_DISPATCH.format + text)
    shape = (made.pack, made.size // 4, letters)
    if kinds is not None and len(kinds) == len(what.args):
        what.program.packed = shape
    return shape


def _pack_other(what: Command) -> bytes:
    if isinstance(what, Copy):
        return _pack_8(Verb.COPY, 0, 8, 0, what.dst, what.src, what.size_bytes)
    if isinstance(what, Fill):
        return _pack_8(Verb.FILL, 0, 8, 0, what.dst, what.pattern, what.size_bytes)
    if isinstance(what, Wait):
        return _pack_8(Verb.WAIT, 0, 8, 0, what.signal, what.value, 0)
    if isinstance(what, Signal):
        return _pack_8(Verb.SIGNAL, 0, 8, 0, what.signal, what.value, 0)
    if isinstance(what, Timestamp):
        return _pack_8(Verb.TIMESTAMP, 0, 8, 0, what.address, 0, 0)
    if isinstance(what, Barrier):
        return _pack_8(Verb.BARRIER, 0, 8, 0, 0, 0, 0)
    raise UsageError(f"trace: no record for the command {what!r}. Add it to hcq/trace/records.py.")


def unpack_commands(
    data: bytes, count: int, string: Callable[[int], str]
) -> tuple[list[dict[str, Any]], int]:
    """Commands as plain data, and how many bytes they took. Raises ValueError when the bytes are no commands."""
    found: list[dict[str, Any]] = []
    at = 0
    for _ in range(count):
        verb, _, size_words = _COMMAND.unpack_from(data, at)
        if size_words < 1 or at + 4 * size_words > len(data):
            raise ValueError("a command reaches beyond its record")
        found.append(_unpack(verb, data[at : at + 4 * size_words], string))
        at += 4 * size_words
    return found, at


def _unpack(verb: int, data: bytes, string: Callable[[int], str]) -> dict[str, Any]:
    if verb == Verb.DISPATCH:
        _, _, _, name, entry, claim, *sizes, shared = _DISPATCH.unpack_from(data)
        letters = string(name)
        if _DISPATCH.size + 8 * len(letters) != len(data):
            raise ValueError("a dispatch's arguments do not fill its command")
        values = struct.unpack_from(
            "<" + "".join("d" if c == "f" else "q" for c in letters), data, _DISPATCH.size
        )
        args = [{"kind": KINDS_OF_LETTERS.get(c, "int"), "value": v} for c, v in zip(letters, values)]
        return {
            "verb": "dispatch",
            "entry": entry,
            "args": args,
            "grid": sizes[:3],
            "block": sizes[3:],
            "groups_per_claim": claim,
            "dynamic_shared_bytes": shared,
        }
    if verb not in _NAMES:
        return {"verb": f"verb_{verb}", "data": data.hex()}
    _, _, _, label, first, second, third = _OTHER.unpack(data)
    command: dict[str, Any] = {"verb": Verb(verb).name.lower()}
    command.update(zip(_NAMES[Verb(verb)], (first, second, third)))
    if verb in (Verb.INDIRECT, Verb.PACKETS):
        command["label"] = string(label)
    return command


KINDS_OF_LETTERS = {"b": "buffer", "i": "int", "f": "float", "?": "unknown"}

_NAMES: dict[int, tuple[str, ...]] = {
    Verb.COPY: ("dst", "src", "size_bytes"),
    Verb.FILL: ("dst", "pattern", "size_bytes"),
    Verb.WAIT: ("signal", "value"),
    Verb.SIGNAL: ("signal", "value"),
    Verb.TIMESTAMP: ("address",),
    Verb.BARRIER: (),
    Verb.INDIRECT: ("address", "size_words"),
    Verb.PACKETS: ("size_words",),
}
