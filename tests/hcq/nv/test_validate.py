"""The rules on NVIDIA's methods: each seeded bug fires the rule named beside it, and our own words fire none."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.errors import UsageError
from hcq.graph import Symbol
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi import copy_methods as copy
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.methods import Push, incrementing
from hcq.nv.device import NvDevice
from hcq.nv.encode import Piece, note_block
from hcq.observe import observer
from hcq.observe.validator import Validator
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]
pytestmark = pytest.mark.fires_rules
SCALE = ("buffer", "buffer", "int", "float", "float")


def fired(nv: NvDevice, *words: bytes) -> list[str]:
    """The rules that a submission of these words fires; none of them reaches the GPU."""
    observer(nv, Validator).findings = []
    before = nv.timeline.submitted
    try:
        nv.submit(list(words), [])
    except UsageError:
        assert nv.timeline.submitted == before
    return sorted({finding.rule for finding in observer(nv, Validator).findings})


def changed(made: bytes, field: Any, value: int, start: int = 4) -> Piece:
    """A launch with one field of its data, which begin behind the header, set to another value."""
    number = int.from_bytes(made, "little")
    low = 8 * start + field.low
    number = number & ~((1 << field.width) - 1 << low) | (value // field.unit) << low
    found = Piece(number.to_bytes(len(made), "little"))
    assert isinstance(made, Piece)
    found.data_bytes, found.patches = made.data_bytes, made.patches
    return found


@pytest.fixture(params=ARCHS)
def nv(request: pytest.FixtureRequest, open_nv: Open) -> NvDevice:
    return open_nv(request.param, validate=True)


MUTATIONS: list[tuple[str, int, str]] = [
    ("program_address", 0x1000, "program-unknown"),
    ("grid_width", 0, "grid-limit"),
    ("grid_width", 9, "nv-launch-data"),
    ("cta_thread_dimension0", 0, "block-limit"),
    ("cta_thread_dimension1", 64, "block-limit"),
    ("cta_thread_dimension0", 32, "nv-launch-data"),
    ("shared_memory_size", 0, "shared-limit"),
    ("register_count", 1, "register-limit"),
    ("constant_buffer_size_0", 0x100, "argument-size"),
    ("constant_buffer_size_0", 0x10000, "nv-launch-data"),
    ("constant_buffer_valid_0", 0, "nv-launch-data"),
    ("qmd_major_version", 1, "nv-launch-data"),
]


@pytest.mark.parametrize(("name", "value", "expected"), MUTATIONS)
def test_a_mutated_field_of_a_qmd_fires_the_named_rule(nv: NvDevice, name: str, value: int, expected: str):
    program = nv.load(image(nv.arch), "scale", args=SCALE)
    out, a = nv.alloc(256, "out"), nv.alloc(256, "a")
    a.write(bytes(256))
    made, _ = program.dispatch([out, a, 64, 2.0, 1.0], (1, 1, 1), (64, 1, 1))
    assert fired(nv, made) == []
    nv.synchronize()
    qmd = nv.chip.qmd
    assert expected in fired(nv, changed(made, qmd.fields[qmd.renamed.get(name, name)], value))


def test_a_mutated_argument_is_named_with_its_place(nv: NvDevice):
    program = nv.load(image(nv.arch), "scale", args=SCALE)
    out, a = nv.alloc(256, "out"), nv.alloc(256, "a")
    a.write(bytes(256))
    made, _ = program.dispatch([out, a, 64, 2.0, 1.0], (1, 1, 1), (64, 1, 1))
    words = bytearray(made)
    at = program.launcher.params_at
    struct.pack_into("<Q", words, at, 0x1230)
    piece = Piece(words)
    piece.data_bytes, piece.patches = made.data_bytes, made.patches
    assert fired(nv, piece) == ["address-unmapped"]


def test_copies_and_fills_out_of_bounds_are_found(nv: NvDevice):
    a, b = nv.alloc(64, "a"), nv.alloc(64, "b")
    a.write(bytes(64))
    b.write(bytes(64))
    copied, filled = nv.queue().copy(b, a).words, nv.queue().fill(b, 1).words
    length = incrementing(4, copy.LineLengthIn(value=64), copy.LineCount(value=1)).to_bytes()
    longer = incrementing(4, copy.LineLengthIn(value=65), copy.LineCount(value=1)).to_bytes()
    for words in (copied, filled):
        assert fired(nv, words) == []
        nv.synchronize()
        assert length in words
        assert "range-beyond-buffer" in fired(nv, words.replace(length, longer))


def test_words_that_are_no_methods_are_found(nv: NvDevice):
    assert fired(nv, struct.pack("<2I", 0x2001_2FFF, 0)) == ["packet-unknown"]
    assert fired(nv, struct.pack("<2I", 0x2005_0017, 0)) == ["packet-length"]
    loose = Push(method_address=0x78, sec_op=4, count=1).to_bytes()
    assert fired(nv, (int.from_bytes(loose, "little") | 1 << 12).to_bytes(4, "little")) == ["bits-unclaimed"]


def test_a_launch_without_a_wait_behind_it_is_unordered_with_what_follows(nv: NvDevice):
    program = nv.load(image(nv.arch), "increment", args=("buffer",), access=("both",))
    a = nv.alloc(256, "a")
    a.write(bytes(256))
    made, _ = program.dispatch([a], (1, 1, 1), (64, 1, 1))
    assert fired(nv, made, made) == []
    nv.synchronize()
    unordered = Piece(made[:-4])
    unordered.data_bytes, unordered.patches = made.data_bytes, made.patches
    assert fired(nv, unordered, made) == ["missing-barrier"]


def test_a_copy_that_nobody_waits_for_is_unordered_with_what_follows(nv: NvDevice):
    a, b = nv.alloc(64, "a"), nv.alloc(64, "b")
    a.write(bytes(64))
    words = nv.queue().copy(b, a).words
    assert words.endswith(nv.encoder._copy_fence)
    unordered = words[: -len(nv.encoder._copy_fence)]
    assert fired(nv, unordered, words) == ["missing-barrier"]


def test_a_block_that_is_not_there_is_found(nv: NvDevice):
    assert fired(nv, note_block(0x1000, 4)) == ["block-out-of-bounds"]


def test_a_wait_for_memory_that_is_no_signal_is_found(nv: NvDevice):
    acquire = host.SemExecute(operation=host.SemExecuteOperation.ACQ_STRICT_GEQ, payload_size=1)
    assert fired(nv, nv.encoder._semaphore(0x1000, 1, acquire)) == ["address-unmapped"]


def test_replays_are_judged_with_the_arguments_they_were_given(nv: NvDevice):
    program = nv.load(image(nv.arch), "increment", args=("buffer",), access=("both",))
    graph = nv.graph("steps").dispatch(program, [Symbol("out")], block=(64, 1, 1))
    spacer = nv.alloc(64, "spacer")
    out = nv.alloc(256, "out")
    assert spacer.address < out.address
    spacer.free()  # an address where a live buffer ends counts as its own
    out.write(bytes(256))
    graph.replay({"out": out}).wait()
    graph.replay({"out": out}).wait()
    assert out.read() == struct.pack("<64I", *[2] * 64)
    out.free()
    again = nv.alloc(1 << 20, "another")
    again.write(bytes(1 << 20))
    with pytest.raises(UsageError):
        nv.submit([graph._copies[0].words[0]], [graph._copies[0].meaning])
    assert {finding.rule for finding in observer(nv, Validator).findings} == {"address-freed"}


def naming(va: int) -> dict[str, bytes]:
    """Methods of host, compute and copy class that name an address, each set as a submission of its own."""
    high, low = va >> 32, va & 0xFFFFFFFF
    reduction = host.SemExecute(operation=host.SemExecuteOperation.REDUCTION)
    at = host.SemAddrLo(offset=low), host.SemAddrHi(offset=high), host.SemPayloadLo(payload=1)
    report = (
        compute.SetReportSemaphoreAddressLower(lower=low),
        compute.SetReportSemaphoreAddressUpper(upper=high),
    )
    to = compute.OffsetOutUpper(value=high), compute.OffsetOut(value=low)
    release = copy.LaunchDma(semaphore_type=copy.SemaphoreType.RELEASE_ONE_WORD_SEMAPHORE)
    copies = (
        copy.SetSemaphoreA(upper=high),
        copy.SetSemaphoreB(lower=low),
        copy.SetSemaphorePayload(payload=1),
    )
    sets: dict[str, list[Push]] = {
        "a reduction": [incrementing(0, *at, host.SemPayloadHi(), reduction)],
        "a report": [
            incrementing(
                1,
                compute.SetReportSemaphoreA(offset_upper=high),
                compute.SetReportSemaphoreB(offset_lower=low),
            ),
            incrementing(1, compute.SetReportSemaphoreD(operation=0)),
        ],
        "a report of Hopper's": [incrementing(1, *report, compute.ReportSemaphoreExecute(operation=0))],
        "a notification": [
            incrementing(
                1,
                compute.SetNotifyA(address_upper=high),
                compute.SetNotifyB(address_lower=low),
                compute.Notify(),
            )
        ],
        "data in line": [
            incrementing(1, compute.LineLengthIn(value=4), compute.LineCount(value=1), *to),
            incrementing(1, compute.LaunchDma(dst_memory_layout=1), compute.LoadInlineData(v=7)),
        ],
        "a copy's semaphore": [incrementing(4, *copies), incrementing(4, release)],
    }
    return {name: b"".join(push.to_bytes() for push in pushes) for name, pushes in sets.items()}


def test_every_method_that_names_an_address_is_looked_at(nv: NvDevice):
    buffer = nv.alloc(4096, "mine")
    for what, words in naming(0x123000).items():
        if "Hopper" in what and nv.arch < "sm_9" and nv.arch.startswith("sm_8"):
            continue
        assert "address-unmapped" in fired(nv, words), what
    assert nv.timeline.submitted == 0
    for what, words in naming(buffer.address).items():
        if what == "data in line":
            assert fired(nv, words) == [], what
    nv.synchronize()


def test_the_last_line_of_a_copy_of_many_is_looked_at(nv: NvDevice):
    buffer = nv.alloc(4096, "mine")
    high, low = buffer.address >> 32, buffer.address & 0xFFFFFFFF
    places = copy.OffsetInUpper(upper=high), copy.OffsetInLower(value=low), copy.OffsetOutUpper(upper=high)
    layout = (
        copy.PitchIn(value=64),
        copy.PitchOut(value=4096),
        copy.LineLengthIn(value=16),
        copy.LineCount(value=3),
    )
    launch = copy.LaunchDma(
        data_transfer_type=copy.DataTransferType.NON_PIPELINED,
        multi_line_enable=1,
        src_memory_layout=1,
        dst_memory_layout=1,
    )
    words = incrementing(4, *places, copy.OffsetOutLower(value=low + 2048), *layout).to_bytes()
    assert set(fired(nv, words + incrementing(4, launch).to_bytes())) & {
        "address-unmapped",
        "range-beyond-buffer",
    }
