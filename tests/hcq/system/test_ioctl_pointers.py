"""What the argument of an ioctl points to: declared where the headers have it, recorded before and after the call."""

from __future__ import annotations

import dataclasses
import errno
import json
import struct
from pathlib import Path

import pytest

from hcq import backends
from hcq.amd.abi import drm, kfd
from hcq.amd.abi.pointers import POINTERS as AMD_POINTERS
from hcq.amd.ioctl import counter_ticks_per_ms
from hcq.config import Config
from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError, UsageError
from hcq.nv.abi import ioctls, rm_structs
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.pointers import EMBEDDED, pointers_of
from hcq.system import native
from hcq.system.ioctl_pointers import MAX_BLOCK_BYTES, Block, Nested, Pointer, follow, named
from hcq.system.port import RecordingPort
from hcq.tools import hcq_trace
from hcq.trace import calls
from hcq.trace.file import Trace
from hcq.trace.records import MAGIC, Kind, pack_record

DEVICES = {"NV": "nv:sm_90", "AMD": "amd:gfx1100"}


def machine_with(word: str) -> EmulatedPort:
    """A machine of its own: nothing of it was asked or attached before."""
    return EmulatedPort([backends.load(backends.of(word).emulation)([word])])


@pytest.fixture(params=DEVICES)
def recorded(request, tmp_path) -> Trace:
    """A device of each vendor, opened and closed with a trace."""
    kind = request.param
    path = tmp_path / "run.hcqtrace"
    settings = dataclasses.replace(Config.read({}), trace=str(path))
    backends.load(backends.of(kind).device)(kind, machine_with(DEVICES[kind]), settings).close()
    return Trace.read(str(path))


def ioctls_of(trace: Trace) -> list[calls.Call]:
    return [found for record in trace.calls if (found := calls.ioctl_of(record)) is not None]


# -- following


def test_a_pointer_to_entries_with_pointers_is_followed_to_the_last_one():
    memory = {0x1000: struct.pack("<2Q", 0x2000, 0x2010), 0x2000: struct.pack("<IIQ", 1, 3, 0x3000),
              0x2010: struct.pack("<IIQ", 2, 2, 0x4000)}  # fmt: skip
    (chunks,) = AMD_POINTERS[ord("d"), 0x44]
    argument = struct.pack("<IIIIQ", 0, 0, 2, 0, 0x1000)
    found = follow([chunks], argument, lambda va, size: memory[va][:size])
    assert found == [
        Block("chunks", 0x1000, 16),
        Block("chunks[0].chunk", 0x2000, 16),
        Block("chunks[0].chunk.chunk_data", 0x3000, 12),
        Block("chunks[1].chunk", 0x2010, 16),
        Block("chunks[1].chunk.chunk_data", 0x4000, 8),
    ]
    assert named([chunks], "chunks[1].chunk.chunk_data") == Pointer("chunk_data", 8, 4, count_at=4)
    assert named([chunks], "chunks.other") is None


def test_null_short_and_boundless_arguments_lead_nowhere_or_to_a_limit():
    words = Pointer("words", 0, 4, count_at=8)
    assert follow([words], bytes(12), lambda va, size: b"") == []
    assert follow([words], b"\x10", lambda va, size: b"") == []
    (block,) = follow([words], struct.pack("<QI", 16, 2**32 - 1), lambda va, size: b"")
    assert block.size_bytes == MAX_BLOCK_BYTES


def test_a_masks_bits_are_counted_as_words():
    (mask,) = AMD_POINTERS[ord("K"), 0x1A]
    (block,) = follow([mask], struct.pack("<IIQ", 1, 64, 0x5000), lambda va, size: b"")
    assert block == Block("cu_mask_ptr", 0x5000, 8)


# -- what is declared


def test_amds_pointers_stand_where_our_structures_have_them():
    layouts = {(ord("K"), number): call.layout for number, call in kfd.KFD_IOCTLS.items()}
    layouts[ord("d"), 0x45] = drm.Info
    compared = 0
    for key, pointers in AMD_POINTERS.items():
        for pointer in pointers:
            if key in layouts:
                assert layouts[key].fields[pointer.name].byte_offset == pointer.at, pointer
                compared += 1
            if pointer.layout is not None:
                assert 4 * pointer.layout.length_words == pointer.entry_bytes
    assert compared >= 5


def test_nvidias_lists_stand_where_our_structures_have_them():
    abi = ioctls.abi_for("580.142")
    compared = 0
    for control, pointers in EMBEDDED.items():
        name = ioctls.CONTROLS.get(control)
        for pointer in pointers if name else ():
            assert abi.layout(name).fields[pointer.name].byte_offset == pointer.at
            compared += 1
    assert compared >= 1
    argument = rm_structs.RmControlArgs(cmd=ControlId.NV2080_CTRL_CMD_GR_GET_INFO, params=64, paramssize=32)
    (params,) = pointers_of(ioctls.RM_CONTROL.request, argument.to_bytes())
    assert (params.at, params.entry_bytes) == (rm_structs.RmControlArgs.params.byte_offset, 32)


def test_an_allocation_without_a_size_has_that_of_its_class():
    argument = rm_structs.RmAllocArgs(hclass=0x0080, pallocparms=64).to_bytes()
    (params, rights) = pointers_of(ioctls.RM_ALLOC.request, argument)
    assert (params.entry_bytes, rights.at) == (56, 24)
    assert pointers_of(ioctls.UVM_FREE.request, bytes(16)) == ()


# -- recording


def test_what_every_argument_points_to_is_recorded_before_and_after(recorded):
    nested = [block for call in ioctls_of(recorded) for block in call.nested]
    assert nested
    assert all(len(block.before) == len(block.after) > 0 for block in nested)
    assert any(block.before != block.after for block in nested)
    for call in ioctls_of(recorded):
        declared = backends.pointers_of(recorded.devices[0].kind)(call.request, call.before)
        assert len(call.nested) >= sum(
            int.from_bytes(call.before[pointer.at : pointer.at + 8], "little") > 0
            and pointer.count_at is None
            for pointer in declared
        )


def test_a_channels_parameters_and_the_facts_of_a_gpu_are_in_the_trace(tmp_path, capsys):
    path = tmp_path / "nv.hcqtrace"
    settings = dataclasses.replace(Config.read({}), trace=str(path))
    nv = backends.load(backends.of("NV").device)("NV", machine_with("nv:sm_90"), settings)
    ring = nv.channel.fifo.va
    nv.close()
    names = {block.name for call in ioctls_of(Trace.read(str(path))) for block in call.nested}
    assert {"params", "params.grinfolist", "pallocparms"} <= names
    assert hcq_trace.main(["show", str(path), "--ioctls"]) == 0
    page = capsys.readouterr().out
    assert f"gpfifooffset={ring:#x}" in page
    assert "GpuGetClasslistV2() -> numclasses=" in page
    assert "params.grinfolist (" in page
    assert hcq_trace.main(["show", str(path), "--ioctls", "--json"]) == 0
    views = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (name,) = [
        block for view in views for block in view.get("nested", ()) if "GpuGetNameString" in block["text"]
    ]
    assert b"emulated GH100" in bytes.fromhex(name["after"])
    assert b"emulated GH100" not in bytes.fromhex(name["before"])


def test_the_apertures_that_the_kfd_filled_in_are_shown_as_its_structure(tmp_path, capsys):
    path = tmp_path / "amd.hcqtrace"
    settings = dataclasses.replace(Config.read({}), trace=str(path))
    backends.load(backends.of("AMD").device)("AMD", machine_with("amd:gfx1100"), settings).close()
    assert hcq_trace.main(["show", str(path), "--ioctls"]) == 0
    page = capsys.readouterr().out
    assert "ProcessDeviceApertures() -> lds_base=" in page
    assert "device_ids_array_ptr (4 bytes at" in page


def test_an_answer_behind_a_pointer_is_what_the_caller_got():
    heard: list[Nested] = []
    port = machine_with("amd:gfx1100")
    declared = backends.pointers_of("AMD")

    def note(call: str, arguments: tuple, result: object) -> None:
        heard.extend(arguments[4] if call == "ioctl" else ())

    recording = RecordingPort(port, note, declared)
    fd = recording.open("/dev/dri/renderD128")
    speed = counter_ticks_per_ms(recording, fd)
    (answer,) = heard
    assert answer.name == "return_pointer"
    at = drm.DeviceInfo.gpu_counter_freq.byte_offset
    assert struct.unpack_from("<I", answer.after, at) == (speed,)


def test_a_wild_pointer_is_recorded_as_nothing_and_is_the_kernels_to_refuse():
    assert native.peek(16, 8) == b""
    assert native.peek(2**64 - 8, 8) == b""
    heard: list[tuple] = []

    class Refusing:
        def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
            error = DriverError("bad address")
            error.errno = errno.EFAULT
            raise error

    port = RecordingPort(Refusing(), lambda *what: heard.append(what), backends.pointers_of("NV"))  # type: ignore[arg-type]
    argument = bytearray(rm_structs.RmControlArgs(cmd=0x20801201, params=16, paramssize=32).to_bytes())
    with pytest.raises(DriverError):
        port.ioctl(3, ioctls.RM_CONTROL.request, argument)
    ((_, arguments, result),) = heard
    assert arguments[4] == [Nested("params", 16, b"", b"")]
    assert isinstance(result, DriverError)


# -- reading


def trace_with(tmp_path: Path, text: dict, data: bytes) -> Trace:
    record = pack_record(Kind.PORT, 1, 2, json.dumps(text).encode(), data)
    return Trace.parse(MAGIC + record)


def test_a_trace_of_a_version_that_followed_nothing_still_reads(tmp_path):
    text = {"device": 0, "call": "ioctl", "arguments": [3, 0xC020462A], "argument_bytes": 4, "result": 0}
    (record,) = trace_with(tmp_path, text, b"abcdefgh").calls
    assert calls.ioctl_of(record) == calls.Call(3, 0xC020462A, b"abcd", b"efgh", ())


@pytest.mark.parametrize(("before", "after"), [(5, 0), (-1, 0), (2, 3)])
def test_nested_memory_that_does_not_fit_its_record_is_refused(tmp_path, before, after):
    text = {"device": 0, "call": "ioctl", "arguments": [3, 1], "argument_bytes": 1,
            "nested": [{"name": "x", "va": 1, "before_bytes": before, "after_bytes": after}]}  # fmt: skip
    with pytest.raises(UsageError, match="record 0"):
        trace_with(tmp_path, text, b"abcdef")
