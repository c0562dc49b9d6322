"""What the driver sends for each command, reviewed method by method and field by field.

Renew with --renew-golden, then read the diff: it is what every GPU will be asked to do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq import command
from hcq.layout import Packet
from hcq.nv.abi.methods import Push
from hcq.nv.bundle import Bundle
from hcq.nv.chip import CHIPS
from hcq.nv.decode import LaunchData, decoder
from hcq.nv.encode import Encoder, Piece
from hcq.nv.launch import Launcher
from hcq.nv.link import Linked
from hcq.nv.pushbuffer import place, plan
from tests.hcq.nv.kernels import image

VA = 0x7_0000_0000


def encoder_of(arch: str) -> Encoder:
    return Encoder(CHIPS[arch], copy_fence_va=0x6_0000_0000, stamp_va=0x6_0000_0040)


def launcher_of(arch: str, kernel: str) -> Launcher:
    linked = Linked(Bundle.of(image(arch)), kernel, CHIPS[arch], kernel)
    return Launcher(CHIPS[arch], linked.kernel, VA, sm_count=132)


def decoded(arch: str, words: bytes) -> list[Packet]:
    packets = decoder(arch)(memoryview(bytes(words)).cast("I"))
    assert b"".join(packet.to_bytes() for packet in packets) == words
    for packet in packets:
        assert isinstance(packet, Push)
        assert not packet.unclaimed
        assert "UNKNOWN" not in repr(packet)
    return packets


def shown(arch: str, piece: bytes) -> list[str]:
    lines = []
    for packet in decoded(arch, piece):
        if isinstance(packet, LaunchData):
            lines += [f"  {packet.qmd!r}", f"  {packet.bank0!r}"]
            lines.append(f"  parameters {' '.join(f'{word:08x}' for word in packet.parameters)}")
        else:
            assert isinstance(packet, Push)
            lines.append(f"  {packet.description}")
    return lines


@pytest.mark.parametrize("arch", CHIPS)
def test_the_methods_of_each_command_are_the_reviewed_ones(arch: str, golden: Callable[[str, str], None]):
    encoder = encoder_of(arch)
    commands = {
        "a copy of 5 MiB": command.Copy(0x6_2000_0000, 0x6_1000_0000, 5 << 20),
        "a copy over itself": command.Copy(0x6_2000_0040, 0x6_2000_0000, 100),
        "a fill of 30 bytes with 8-byte values, at an odd address": command.Fill(
            0x6_2000_0001, 0x0807060504030201, 30
        ),
        "a fill of 4 KiB with words": command.Fill(0x6_2000_0000, 0x0403020104030201, 4096),
        "a wait for a signal": command.Wait(0x6_0000_3000, 7),
        "a signal": command.Signal(0x6_0000_3000, 2**40 + 7),
        "a timestamp": command.Timestamp(0x6_0000_3010),
        "a barrier": command.Barrier(),
        "a block of recorded work": command.Indirect(0x6_3000_0000, 1234),
    }
    lines = ["a new channel", *shown(arch, encoder.setup())]
    lines += ["new code", *shown(arch, encoder.new_code)]
    lines += ["local memory", *shown(arch, encoder.local_memory(0x8_0000_0000, 0x640000, 66))]
    for title, what in commands.items():
        lines += [title, *shown(arch, encoder.encode(what))]
    for kernel in ("increment", "reverse", "local"):
        launcher = launcher_of(arch, kernel)
        arguments = bytes(range(1, 1 + launcher.kernel.param_bytes))
        lines.append(f"a launch of {kernel}, grid (3, 2, 1), block (64, 1, 1)")
        lines += shown(arch, launcher.dispatch(arguments, (3, 2, 1), (64, 1, 1)))
    lines += ["the end of a submission", *shown(arch, encoder.finish(0x6_0000_0080, 9))]
    golden(f"nv/methods_{arch}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("arch", CHIPS)
def test_a_placed_launch_points_at_its_data(arch: str):
    launcher = launcher_of(arch, "increment")
    pieces = [encoder_of(arch).new_code] + [
        launcher.dispatch(bytes([n] * 8), (n, 1, 1), (32, 1, 1)) for n in (1, 2, 3)
    ]
    how = plan(pieces)
    placed = place(pieces, how, VA)
    (run,) = placed.runs
    assert run[0] + 4 * run[1] == len(placed.image)
    methods = decoded(arch, bytes(placed.image[run[0] :]))
    launched = [
        written.method.values["qmd_address_shifted8"]
        for packet in methods
        if isinstance(packet, Push)
        for written in packet.methods
        if written.method.vendor == "SEND_PCAS_A"
    ]
    assert launched == [VA + at for at in placed.data[1:]]
    qmd_type = CHIPS[arch].qmd
    for number, va in enumerate(launched, 1):
        assert va % 256 == 0
        words = memoryview(bytes(placed.image[va - VA : va - VA + 4 * qmd_type.length_words])).cast("I")
        qmd = qmd_type.decode(words)
        assert qmd.value("grid_width") == number
        bank = qmd.value("constant_buffer_addr_0")
        assert bank == va + 4 * qmd_type.length_words
        at = bank - VA + launcher.kernel.param_base
        assert placed.image[at : at + 8] == bytes([number] * 8)
        bank0 = CHIPS[arch].bank0
        held = bytes(placed.image[bank - VA : bank - VA + 4 * bank0.length_words])
        shown_bank = bank0.decode(memoryview(held).cast("I"))
        at = launcher.kernel.param_base
        expected = {"bank_address": bank, "param_address": bank + at, "param_end": bank + at + 8}
        assert {name: shown_bank.values[name] for name in bank0.addresses} == {
            name: expected[name] for name in bank0.addresses
        }


def test_blocks_split_the_methods_into_runs():
    encoder = encoder_of("sm_90")
    pieces: list[Piece] = [
        encoder.new_code,
        encoder.encode(command.Indirect(0x6_3000_0000, 4)),
        encoder.encode(command.Barrier()),
        encoder.encode(command.Indirect(0x6_4000_0000, 4)),
        encoder.finish(0x6_0000_0080, 1),
    ]
    placed = place(pieces, plan(pieces), VA)
    sizes = [len(pieces[0]), len(pieces[2]), len(pieces[4])]
    assert [4 * words for _, words in placed.runs] == sizes
    assert len(placed.image) == sum(sizes)
