"""Faults in words: from what the kernel driver says to the buffer, the queue and the packet.

In       a Fault, what names an address, the kernel's log; rings
Out      sentences for DeviceFault and WaitTimeout
Next     process.py (where faults come from), device.py (who raises)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.process import Fault
from hcq.amd.rings import AqlRing, Ring
from hcq.base import RingState
from hcq.layout import Packet

AROUND = 3  # packets before and after the one that the GPU reads next
AROUND_BYTES = 1024  # of a ring, for reports: more than these packets have
UNKNOWN = (pm4.Header, sdma.Header, aql.Header)  # what decoders give for words that are no packet they know


def describe_fault(fault: Fault, describe_address: Callable[[int], str], log: Sequence[str]) -> str:
    """What happened, with the address named, and the last line about this GPU in the kernel's log, if we see one."""
    about = f"GPU {fault.gpu_id:#x}: "
    says = next((line.removeprefix(about) for line in reversed(log) if line.startswith(about)), "")
    return _describe(fault, describe_address) + (
        f"; the kernel's log says: {says.rstrip('.')}" if says else ""
    )


def _describe(fault: Fault, describe_address: Callable[[int], str]) -> str:
    if fault.memory is not None:
        what = fault.memory
        if what.imprecise:
            return "the GPU took a page fault, and its driver does not know at which address"
        # a store to what is not mapped sets ReadOnly, too, for it is a store that was not allowed
        why = (
            "is not mapped" if what.NotPresent else "may not be written" if what.ReadOnly else "holds no code"
        )
        return f"the GPU took a page fault: the page at {what.va:#x} {why} ({describe_address(what.va)})"
    assert fault.hardware is not None
    lost = " and lost the contents of its memory" if fault.hardware.memory_lost else ""
    return f"the GPU hung and was reset{lost}"


def describe_ring(ring: Ring) -> str:
    """How far a ring is."""
    text = f"{ring.kind} ring: the GPU has read up to {ring.get} of {ring.put}"
    if ring.put != ring.rung:
        text += f", and the doorbell was rung for {ring.rung}"
    if isinstance(ring, AqlRing) and ring.inactive_code:
        text += f", and stopped: {describe_inactive(ring.inactive_code)}"
    return text


def ring_state(name: str, ring: Ring, decode: Callable[[Sequence[int]], list[Packet]]) -> RingState:
    """A ring for a report: how far it is, and the packet that the GPU reads next."""
    get, put = ring.get, ring.put
    at = get * (len(ring.bytes) // ring.size) % len(ring.bytes)
    shown = "nothing: all packets are read"
    around = [(-1 - number, repr(packet)) for number, packet in enumerate(_read_last(ring, at, decode))][::-1]
    if get != put:
        unit = len(ring.bytes) // ring.size
        ahead = _part(ring, at, min(AROUND_BYTES, (put - get) * unit))
        next_ones = decode(memoryview(ahead).cast("I"))[: AROUND + 1]
        shown = repr(next_ones[0])
        around += [(number, repr(packet)) for number, packet in enumerate(next_ones)]
    return RingState(f"{name} ({ring.kind})", put, get, ring.size, shown, around)


def _part(ring: Ring, at: int, size_bytes: int) -> bytes:
    """What a ring holds from one place on; it may go round."""
    head = bytes(ring.bytes[at : at + size_bytes])
    return head + bytes(ring.bytes[: size_bytes - len(head)])


def _read_last(ring: Ring, at: int, decode: Callable[[Sequence[int]], list[Packet]]) -> list[Packet]:
    """The packets before a place, the last one first.

    No word says where the packet before it began. So reading begins at each of the words before, and what most of
    those found that come out at this place is taken. Where the ring's first word is among them, that one is sure. AQL's
    processor marks what it has read as invalid: of that nothing is left.
    """
    unit = len(ring.bytes) // ring.size
    before = min(AROUND_BYTES, ring.get * unit, len(ring.bytes) - (ring.put - ring.get) * unit)
    words = memoryview(_part(ring, (at - before) % len(ring.bytes), before)).cast("I")
    votes: Counter[tuple[int, ...]] = Counter()
    found: dict[tuple[int, ...], list[Packet]] = {}
    for start in range(0, len(words), max(unit // 4, 1)):
        packets = decode(words[start:])
        sizes = [len(packet.words) for packet in packets]
        if sum(sizes) == len(words) - start and not any(type(one) in UNKNOWN for one in packets):
            if before == ring.get * unit and not start:
                return packets[-AROUND:][::-1]
            key = tuple(sizes[-AROUND:])
            votes[key] += 1
            found[key] = packets[-AROUND:][::-1]
    return found[votes.most_common(1)[0][0]] if votes else []


def describe_inactive(code: int) -> str:
    """Why an AQL processor stopped a queue."""
    reasons = [text for bit, text in aql.INACTIVE.items() if code & bit]
    return "; ".join(reasons) or f"error {code:#x}"
