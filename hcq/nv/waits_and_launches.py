"""Waits and launches: where a channel can stand still, out of the words of its pushbuffer.

In       packets of a pushbuffer with their places, in the order in which the channel reads them
Out      an Acquire for each method that waits: for which cell, until what; a Launched for each kernel: its QMD
Next     abi/host_methods.py, abi/compute_methods.py (the methods), ring_words.py, tools/trace/nv_capsule.py (who ask)
Source   clc56f.h: SEM_EXECUTE, SEMAPHORED; clc6c0.h: SEND_PCAS_A, SEND_SIGNALING_PCAS_B, SEND_SIGNALING_PCAS2_B
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hcq.layout import Packet
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.host_methods import SemaphoredOperation, SemExecuteOperation
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, HOST_END, Push

WAITS = frozenset(
    {
        SemExecuteOperation.ACQUIRE,
        SemExecuteOperation.ACQ_STRICT_GEQ,
        SemExecuteOperation.ACQ_CIRC_GEQ,
        SemExecuteOperation.ACQ_AND,
        SemExecuteOperation.ACQ_NOR,
    }
)
OLDER = {
    SemaphoredOperation.ACQUIRE: SemExecuteOperation.ACQUIRE,
    SemaphoredOperation.ACQ_GEQ: SemExecuteOperation.ACQ_CIRC_GEQ,
    SemaphoredOperation.ACQ_AND: SemExecuteOperation.ACQ_AND,
}
SCHEDULES = (compute.SendSignalingPcasB.at, compute.SendSignalingPcas2B.at)
QMD_SHIFT = 8


class Acquire(NamedTuple):
    """A wait of the front end. at: the place of the packet that it is in."""

    at: int
    va: int
    how: SemExecuteOperation
    payload: int
    size_bytes: int


class Launched(NamedTuple):
    """A launch. at: the place of the packet that schedules it; qmd: where its description is, 0 if nothing says it."""

    at: int
    qmd: int


def launches(packets: Iterable[tuple[int, Packet]]) -> Iterator[Launched]:
    """Each launch, in order."""
    qmd = 0
    for at, packet in packets:
        if not isinstance(packet, Push) or packet.subchannel != COMPUTE_SUBCHANNEL:
            continue
        for address, word in packet.writes():
            if address == compute.SendPcasA.at:
                qmd = word << QMD_SHIFT
            elif address in SCHEDULES:
                yield Launched(at, qmd)


def acquires(packets: Iterable[tuple[int, Packet]]) -> Iterator[Acquire]:
    """Each wait, in order. An address that earlier words have set is taken to be 0, and such a wait is left out."""
    last: dict[int, int] = {}  # method -> the word that it was given last
    for at, packet in packets:
        for address, word in packet.writes() if isinstance(packet, Push) else ():
            if address >= HOST_END:
                continue
            last[address] = word
            found = None
            if address == host.SemExecute.at:
                found = _newer(host.SemExecute.decode([word]), last)
            elif address == host.Semaphored.at:
                found = _older(host.Semaphored.decode([word]), last)
            if found is not None and found.va:
                yield found._replace(at=at)


def _newer(execute: Method, last: dict[int, int]) -> Acquire | None:
    if execute.operation not in WAITS:
        return None
    size = 8 if execute.payload_size else 4
    payload = last.get(host.SemPayloadLo.at, 0)
    if size == 8:
        payload |= last.get(host.SemPayloadHi.at, 0) << 32
    va = last.get(host.SemAddrHi.at, 0) << 32 | last.get(host.SemAddrLo.at, 0)
    return Acquire(0, va, SemExecuteOperation(execute.operation), payload, size)


def _older(method: Method, last: dict[int, int]) -> Acquire | None:
    if method.operation not in SemaphoredOperation._value2member_map_:
        return None
    how = OLDER.get(SemaphoredOperation(method.operation))
    va = last.get(host.Semaphorea.at, 0) << 32 | last.get(host.Semaphoreb.at, 0)
    return None if how is None else Acquire(0, va, how, last.get(host.Semaphorec.at, 0), 4)
