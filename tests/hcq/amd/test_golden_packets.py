"""What the driver sends for a copy, a dispatch and a dependency between two queues, reviewed packet by packet.

Renew with --renew-golden, then read the diff: it is what every GPU will be asked to do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq import command
from hcq.amd.abi.pm4 import Header as Pm4Header
from hcq.amd.abi.pm4 import SetShReg
from hcq.amd.abi.registers import name_of
from hcq.amd.abi.sdma import Header as SdmaHeader
from hcq.amd.chip import CHIPS
from hcq.amd.encode import COMPUTE, COPY, Encoder, Piece
from hcq.amd.launch import Launcher, Scratch
from hcq.amd.link import Linked
from hcq.layout import Packet
from tests.hcq.amd.kernels import image

CASES = [
    ("gfx1100", False),
    ("gfx1100", True),
    ("gfx90a", False),
    ("gfx942", False),
    ("gfx942", True),
    ("gfx1201", False),
    ("gfx950", True),
    ("gfx1030", False),
]


def encoder_of(arch: str, is_aql: bool) -> Encoder:
    xccs = 4 if arch in ("gfx942", "gfx950") else 1
    return Encoder(
        CHIPS[arch], is_aql, xccs, ring_fence_va=0x1000, copy_fence_va=0x1040, slot_va=0x2008, event_id=1
    )


def shown(encoder: Encoder, piece: Piece) -> list[str]:
    lines = []
    for packet in decoded(encoder, piece):
        lines.append(f"  {packet!r}")
    if piece.upload and encoder.is_aql and piece[0] == 0:  # the packet runs a block of PM4
        lines += [f"    {packet!r}" for packet in encoder.decode(memoryview(piece.upload).cast("I"))]
    return lines


def decoded(encoder: Encoder, piece: Piece) -> list[Packet]:
    packets = encoder.decode(memoryview(bytes(piece)).cast("I"))
    assert sum(len(packet.words) for packet in packets) * 4 == len(piece)
    for packet in packets:
        assert not packet.unclaimed
        assert not isinstance(packet, (Pm4Header, SdmaHeader))
    return packets


def launcher_of(arch: str, is_aql: bool, kernel: str) -> Launcher:
    linked = Linked(image(arch), CHIPS[arch], kernel)
    scratch = (
        Scratch(va=0x30000000, size_bytes=0x400000, wave_bytes=8192, waves=64)
        if kernel == "scratch"
        else None
    )
    return Launcher(CHIPS[arch], is_aql, linked.kernels[kernel], 0x10000000, scratch, queue_va=0x5000)


@pytest.mark.parametrize(("arch", "is_aql"), CASES)
def test_the_packets_of_each_case_are_the_reviewed_ones(
    arch: str, is_aql: bool, golden: Callable[[str, str], None]
):
    encoder = encoder_of(arch, is_aql)
    lines = [
        "a copy of 5 MiB",
        *shown(encoder, encoder.encode(command.Copy(0x20000000, 0x10000000, 5 << 20))),
    ]
    lines += ["two copies, one after the other: between them", *shown(encoder, encoder.copy_fence)]
    fill = command.Fill(0x20000001, 0x0807060504030201, 30)
    lines += [
        "a fill of 30 bytes with 8-byte values, at an odd address",
        *shown(encoder, encoder.encode(fill)),
    ]
    for kernel in ("increment", "reverse", "scratch"):
        launcher = launcher_of(arch, is_aql, kernel)
        lines.append(f"a dispatch of {kernel}, grid (3, 2, 1), block (64, 1, 1)")
        lines += shown(encoder, launcher.dispatch(bytes(64), (3, 2, 1), (64, 1, 1)))
    lines += [
        "the compute queue hands over to the copy queue",
        *shown(encoder, encoder.ring_fence_signal(COMPUTE, 5)),
    ]
    lines += ["the copy queue waits for it", *shown(encoder, encoder.ring_fence_wait(COPY, 5))]
    lines += ["the copy queue hands back", *shown(encoder, encoder.ring_fence_signal(COPY, 6))]
    lines += ["the compute queue waits for it", *shown(encoder, encoder.ring_fence_wait(COMPUTE, 6))]
    lines += ["a wait for a signal", *shown(encoder, encoder.encode(command.Wait(0x3000, 7)))]
    lines += ["a barrier", *shown(encoder, encoder.encode(command.Barrier()))]
    lines += ["a timestamp", *shown(encoder, encoder.encode(command.Timestamp(0x3010)))]
    lines += [
        "the end of a submission on the compute queue",
        *shown(encoder, encoder.finish(0x4000, 9, COMPUTE)),
    ]
    lines += ["the end of a submission on the copy queue", *shown(encoder, encoder.finish(0x4000, 9, COPY))]
    golden(f"amd/packets_{arch}_{'aql' if is_aql else 'pm4'}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(("arch", "is_aql"), CASES)
def test_a_dispatch_leaves_the_waves_done_and_the_registers_said_by_its_descriptor(arch: str, is_aql: bool):
    if is_aql:
        pytest.skip("the packet processor does this by itself")
    encoder = encoder_of(arch, is_aql)
    launcher = launcher_of(arch, is_aql, "reverse")
    packets = decoded(encoder, launcher.dispatch(b"", (3, 2, 1), (256, 1, 1)))
    names = [type(packet).__name__ for packet in packets]
    assert names[0].startswith("AcquireMem")
    assert names[-2:] == ["DispatchDirect", "EventWrite"]
    assert (packets[-2].dim_x, packets[-2].dim_y, packets[-2].dim_z) == (3, 2, 1)  # type: ignore[attr-defined]
    written = {}
    for packet in packets:
        if isinstance(packet, SetShReg):
            written.update((name_of(packet.reg_offset + i), word) for i, word in enumerate(packet.tail_words))
    assert written["COMPUTE_PGM_LO"] << 8 == 0x10000000 + launcher.kernel.entry_offset
    assert written["COMPUTE_PGM_RSRC2"] >> 15 & 0x1FF == 2  # 1024 bytes of LDS, in units of 512
    assert written["COMPUTE_NUM_THREAD_X"] == 256
    assert written["COMPUTE_TMPRING_SIZE"] == 0
