"""Pushbuffers: runs of methods behind headers, packed and read back.

In       methods and the subchannel they go to; or the words of a pushbuffer
Out      incrementing, non_incrementing, immediate, increment_once -> Push; decode(words) -> packets with every word
Next     gpfifo.py (the ring of pushbuffer segments), qmd.py (what a launch points to)
Source   clc56f.h: DMA_METHOD_ADDRESS, DMA_SUBCH, DMA_METHOD_COUNT, DMA_SEC_OP

Methods below 0x100 are the host's, on every subchannel. The others belong to the class that SET_OBJECT bound to their
subchannel. Decoding never raises, and the words of what it returns are the words it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache

from hcq.errors import UsageError
from hcq.layout import Packet, bits
from hcq.nv.abi import compute_methods, copy_methods, host_methods
from hcq.nv.abi.classes import ARCHITECTURES, GPFIFO, ClassId
from hcq.nv.abi.method import Method, UnknownMethod

HOST_END = 0x100  # methods below are the host's
MAX_COUNT = 0x1FFF  # words behind one header
COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL = 1, 4


class SecOp(IntEnum):
    """What a header does with the words behind it."""

    GRP0_USE_TERT = 0  # a header of zero is a no-op
    INC_METHOD = 1  # word n goes to the method n words further
    GRP2_USE_TERT = 2
    NON_INC_METHOD = 3  # all words go to the same method
    IMMD_DATA_METHOD = 4  # no words: the count is the data
    ONE_INC = 5  # the first word goes to the method, all others to the one behind it
    END_PB_SEGMENT = 7


WITH_DATA = frozenset({SecOp.INC_METHOD, SecOp.NON_INC_METHOD, SecOp.ONE_INC})


@dataclass(frozen=True)
class Written:
    """One word that reaches an engine: the subchannel, the address it goes to, and the method that it is."""

    subchannel: int
    address: int
    method: Method

    def __repr__(self) -> str:
        where = f"@{self.address:#06x}" if isinstance(self.method, UnknownMethod) else ""
        return f"{self.method!r}{where}"


class Push(Packet, words=1, tail="data"):
    """A header and the words behind it. `methods` are the writes it makes, as the bound classes name them."""

    method_address = bits(11, 0, unit=4)
    subchannel = bits(15, 13)
    count = bits(28, 16)
    sec_op = bits(31, 29, enum=SecOp, default=SecOp.INC_METHOD)

    bound: Mapping[int, int] | None = None  # subchannel -> class where it stands, for one out of a pushbuffer
    host: int = 0  # class of its channel

    @cached_property
    def methods(self) -> tuple[Written, ...]:
        """The writes as the bound classes name them; none for a packet that is in no pushbuffer."""
        return tuple([Written(self.subchannel, at, kind.decode([word])) for at, word, kind in self._named()])

    @property
    def unknown_address(self) -> int | None:
        """The first that it writes where its class has no method."""
        return next((at for at, _, kind in self._named() if kind is UnknownMethod), None)

    def _named(self) -> Iterable[tuple[int, int, type[Method]]]:
        """(address, word, method) of each write."""
        return () if self.bound is None else _named(self, dict(self.bound), self.host)

    @property
    def missing(self) -> int:
        """How many words the header promises that are not there."""
        return max(self.count - len(self.tail_words), 0) if self.sec_op in WITH_DATA else 0

    def writes(self) -> list[tuple[int, int]]:
        """(address, word) of each write, in order."""
        if self.sec_op == SecOp.IMMD_DATA_METHOD:
            return [(self.method_address, self.count)]
        if self.sec_op not in WITH_DATA:
            return []
        step = {SecOp.INC_METHOD: MAX_COUNT, SecOp.NON_INC_METHOD: 0, SecOp.ONE_INC: 1}[SecOp(self.sec_op)]
        return [(self.method_address + 4 * min(n, step), word) for n, word in enumerate(self.tail_words)]

    @property
    def description(self) -> str:
        """The methods, with the operation and the subchannel of the header."""
        if self.sec_op == SecOp.GRP0_USE_TERT and not any(self.words):
            return "NOP"
        texts = [self.fields["sec_op"].show(self.sec_op), f"subchannel={self.subchannel}"]
        if self.methods:
            texts += [repr(written) for written in self.methods]
        else:
            texts += [f"method_address={self.method_address:#06x}", f"count={self.count}"]
            texts += [f"data=[{' '.join(f'{word:08x}' for word in self.tail_words)}]"] * bool(self.tail_words)
        texts += [f"missing_words={self.missing}"] * bool(self.missing)
        texts += [f"unclaimed_word_{index}={value:#010x}" for index, value in self.unclaimed.items()]
        return ", ".join(texts)

    def __repr__(self) -> str:
        return f"Push({self.description})"


class Unread(Packet, words=0, tail="data"):
    """Words behind END_PB_SEGMENT: the GPU does not read them."""


# ------------------------------------------------------------ classes

_HOST = {ClassId.AMPERE_CHANNEL_GPFIFO_A: "HOST_C56F"}  # of the other channels: HOST


def methods_of(class_id: int) -> dict[int, type[Method]]:
    """Address -> method of a class, one table for a ClassId and its number; empty for a class that is not known."""
    return _methods_of(int(class_id))  # the cache would keep a table for each type of number


@lru_cache(64)
def _methods_of(class_id: int) -> dict[int, type[Method]]:
    if class_id in GPFIFO:
        return host_methods.FILE.of_class(_HOST.get(ClassId(class_id), "HOST"))
    name = ClassId(class_id).name if class_id in ClassId._value2member_map_ else ""
    engine = copy_methods.FILE if "DMA_COPY" in name else compute_methods.FILE
    return engine.of_class(name)


# ------------------------------------------------------------ encoding


def semaphore(
    address: int, value: int, execute: Method, upper: type[Method] | None = None
) -> tuple[Method, ...]:
    """The methods of an operation of the host on a semaphore, in their order.

    execute  the SemExecute: which operation
    upper    the SemAddrHi of the channel's class, where it has a wider one
    """
    return (
        host_methods.SemAddrLo(offset=address & 0xFFFFFFFF),
        (upper or host_methods.SemAddrHi)(offset=address >> 32),
        host_methods.SemPayloadLo(payload=value & 0xFFFFFFFF),
        host_methods.SemPayloadHi(payload=value >> 32),
        execute,
    )


def incrementing(subchannel: int, *methods: Method) -> Push:
    """Consecutive methods behind one header. Raises UsageError when their addresses are not consecutive."""
    if not methods:
        raise UsageError(f"incrementing(subchannel={subchannel}): give at least one method.")
    for before, after in zip(methods, methods[1:]):
        inside = type(before) is type(after) and before.entries > 1
        if after.at != before.at + 4 and not inside:
            raise UsageError(
                f"incrementing(subchannel={subchannel}): {after.vendor} at {after.at:#x} does not follow "
                f"{before.vendor} at {before.at:#x}. Give it a header of its own."
            )
    data = tuple(method.word for method in methods)
    return _push(SecOp.INC_METHOD, subchannel, methods[0].at, data)


def non_incrementing(subchannel: int, method: type[Method], data: Iterable[int]) -> Push:
    """Any number of words for one method, such as inline data."""
    return _push(SecOp.NON_INC_METHOD, subchannel, method.at, tuple(data))


def increment_once(subchannel: int, first: Method, data: Iterable[int]) -> Push:
    """One method, then any number of words for the method behind it."""
    return _push(SecOp.ONE_INC, subchannel, first.at, (first.word, *data))


def immediate(subchannel: int, method: Method) -> Push:
    """A method whose word fits the header itself. Raises UsageError when it needs more than 13 bits."""
    if method.word > MAX_COUNT:
        raise UsageError(
            f"immediate({method!r}): {method.word:#x} does not fit 13 bits. Use incrementing instead."
        )
    return Push(
        sec_op=SecOp.IMMD_DATA_METHOD, subchannel=subchannel, method_address=method.at, count=method.word
    )


def _push(how: SecOp, subchannel: int, at: int, data: tuple[int, ...]) -> Push:
    if not 0 < len(data) <= MAX_COUNT:
        raise UsageError(f"{how.name} at {at:#x}: {len(data)} words; a header takes 1 to {MAX_COUNT}.")
    return Push(sec_op=how, subchannel=subchannel, method_address=at, count=len(data), data=data)


# ------------------------------------------------------------ decoding


def decode(
    words: Sequence[int], bound: Mapping[int, int] | None = None, host: int = ClassId.HOPPER_CHANNEL_GPFIFO_A
) -> list[Packet]:
    """A pushbuffer as packets that hold every one of its words. Never raises.

    bound  subchannel -> class when the words start; SET_OBJECT in the words binds others
    host   class of the channel
    """
    classes = dict(bound or {})
    found: list[Packet] = []
    at = 0
    while at < len(words):
        push = Push.decode(words[at : at + 1])
        end = at + 1 + (push.count if push.sec_op in WITH_DATA else 0)
        push.tail_words = tuple(words[at + 1 : end])
        push.bound, push.host = classes, host
        if push.method_address < HOST_END:
            classes = dict(classes)
            for _ in _named(push, classes, host):
                pass
        found.append(push)
        at = end
        if push.sec_op == SecOp.END_PB_SEGMENT and at < len(words):
            found.append(Unread.decode(words[at:]))
            break
    return found


def _named(push: Push, classes: dict[int, int], host: int) -> Iterator[tuple[int, int, type[Method]]]:
    """(address, word, method) of each write, and what it binds to the subchannels in `classes`."""
    for address, word in push.writes():
        owner = host if address < HOST_END else classes.get(push.subchannel, 0)
        kind = methods_of(owner).get(address, UnknownMethod)
        if issubclass(kind, host_methods.SetObject):
            classes[push.subchannel] = kind.decode([word]).nvclass
        yield address, word, kind


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """decode for one architecture, with its compute and copy classes bound where a driver of ours binds them.

    Raises  UsageError for an architecture that is not known
    """
    if arch not in ARCHITECTURES:
        raise UsageError(f"{arch!r}: unknown architecture. Known: {', '.join(ARCHITECTURES)}.")
    engines = ARCHITECTURES[arch]
    bound = {COMPUTE_SUBCHANNEL: engines.compute, COPY_SUBCHANNEL: engines.copy}
    return lambda words: decode(words, bound, engines.gpfifo)
