"""What a replay puts into the rings of a GPU, as text without addresses.

In       a device and a graph that was replayed before
Out      lines: for each queue the packets that it is given, and indented those of the blocks that they run
Next     test_golden_replay.py (who keeps the text)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.abi.registers import name_of
from hcq.amd.device import AmdDevice
from hcq.command import Dispatch
from hcq.gpu.device import GpuDevice
from hcq.nv.abi.gpfifo import GpEntry
from hcq.nv.abi.host_methods import SemExecute, SemPayloadLo
from hcq.nv.decode import LaunchData
from hcq.system import native

LAUNCHES = "DispatchDirect", "KernelDispatch", "SendPcasA"  # what starts a kernel: PM4, AQL, NVIDIA's channel


def replay_text(gpu: GpuDevice, graph: Any, has_names: bool = False) -> str:
    """The packets of one replay, by queue.

    has_names   with the name of the kernel behind each launch: for a graph that runs in order on one queue
    """
    words = graph._copies[0].words
    names = [what.program.name for what in graph.commands if isinstance(what, Dispatch)] if has_names else []
    lines = _amd(gpu, words) if isinstance(gpu, AmdDevice) else _nv(gpu, words)
    return "\n".join(_runs(_named(lines, iter(names)))) + "\n"


def _named(lines: Iterable[str], names: Iterator[str]) -> Iterator[str]:
    for line in lines:
        name = next(names, "") if line.strip().startswith(LAUNCHES) else ""
        yield f"{line}: {name}" if name else line


def _runs(lines: Iterable[str]) -> Iterator[str]:
    """Equal lines that follow each other as one."""
    for line, same in itertools.groupby(lines):
        count = len(list(same))
        indent = line[: len(line) - len(line.lstrip())]
        yield line if count == 1 else f"{indent}{count} times {line.lstrip()}"


# ------------------------------------------------------------ AMD


def _amd(gpu: Any, words: list[bytes]) -> Iterator[str]:
    rings: dict[str, list[Any]] = {}
    for _, piece in copy(gpu._sync).pieces(gpu.encoder, words, gpu.timeline.va, 1):
        for packet in gpu.decode(memoryview(bytes(piece)).cast("I")):
            rings.setdefault(piece.ring, []).append((packet, piece))
    for name, packets in sorted(rings.items()):
        yield f"{gpu.rings[name].kind} ring"
        yield from (line for packet, piece in packets for line in _amd_lines(gpu, packet, piece))


def _amd_lines(gpu: Any, packet: Any, piece: Any) -> Iterator[str]:
    yield f"  {_amd_name(packet)}"
    if isinstance(packet, (pm4.IndirectBuffer, aql.Pm4Ib)):
        block = piece.upload or native.read(packet.ib_base, 4 * packet.ib_size)
        yield from (f"    {_amd_name(inside)}" for inside in gpu.decode(memoryview(block).cast("I")))


def _amd_name(packet: Any) -> str:
    name = type(packet).__name__
    if isinstance(packet, pm4.SetShReg):
        return f"{name} {name_of(packet.reg_offset)}"
    if isinstance(packet, (pm4.ReleaseMem, pm4.ReleaseMemGfx9)):
        return f"{name} {pm4.DataSel(packet.data_sel).name}" + " and interrupt" * bool(packet.int_sel)
    if isinstance(packet, (pm4.WaitRegMem, sdma.PollRegmem)):
        value = packet.reference if isinstance(packet, pm4.WaitRegMem) else packet.value
        return f"{name} {value}"
    if isinstance(packet, (aql.KernelDispatch, aql.Pm4Ib)):
        return f"{name}, {'behind' if packet.barrier else 'beside'} those before it"
    return name


# ------------------------------------------------------------ NVIDIA


def _nv(gpu: Any, words: list[bytes]) -> Iterator[str]:
    channels: dict[str, list[str]] = {"channel": [], "copy channel": []}
    for piece in words:
        lines = channels["copy channel" if piece.is_free else "channel"]  # type: ignore[attr-defined]
        for entry in piece.entries:  # type: ignore[attr-defined]
            segment = GpEntry.decode((entry & 0xFFFFFFFF, entry >> 32))
            lines.append("  segment of the graph")
            lines += _nv_lines(gpu, native.read(segment.get, 4 * segment.length))
    channels["channel"] += ["  segment of the submission", *_nv_lines(gpu, bytes(gpu.finish(1)))]
    for name, lines in channels.items():
        if lines:
            yield name
            yield from lines


def _nv_lines(gpu: Any, methods: bytes) -> Iterator[str]:
    for packet in gpu.decode(memoryview(methods).cast("I")):
        assert not isinstance(packet, LaunchData)  # those lie before the segment
        for written in packet.methods:
            method = written.method
            extra = ""
            if isinstance(method, SemExecute):
                extra = f" {method.fields['operation'].show(method.operation)}" + ", wfi" * bool(
                    method.release_wfi
                )
            elif isinstance(method, SemPayloadLo):
                extra = f" {method.payload}"
            yield f"    {type(method).__name__}{extra}"
