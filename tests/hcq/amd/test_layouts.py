"""Every structure is declared once: what is encoded decodes to itself, and the kernel's own header agrees."""

from __future__ import annotations

import random
import re
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import pytest

from hcq.amd.abi import aql, descriptor, drm, kfd, pm4, registers, sdma
from hcq.amd.abi.registers import Register
from hcq.layout import Packet, declared_in

HEADER = Path("/usr/include/linux/kfd_ioctl.h")
MODULES = (aql, descriptor, drm, kfd, pm4, registers, sdma)
SIZES = {"__u64": 64, "__u32": 32, "__s32": 32, "uint64_t": 64, "uint32_t": 32}


def layouts_of(*modules: ModuleType) -> list[type[Packet]]:
    return [layout for module in modules for layout in declared_in(vars(module), Packet)]


def some_values(layout: type[Packet], seed: int) -> dict[str, int]:
    draw = random.Random(f"{layout.__name__} {seed}")
    values = {}
    for name, field in layout.fields.items():
        if issubclass(layout, pm4.Pm4) and name in pm4.Pm4.hidden_fields:
            continue
        number = draw.getrandbits(field.width)
        values[name] = number * field.unit
    return values


@pytest.mark.parametrize(
    "layout", layouts_of(*MODULES), ids=lambda layout: f"{layout.__module__}.{layout.__name__}"
)
@pytest.mark.parametrize("seed", range(3))
def test_every_packet_decodes_to_what_was_encoded(layout: type[Packet], seed: int):
    packet = layout(**some_values(layout, seed))
    again = layout.decode(packet.words)
    assert again == packet
    assert again.values == packet.values
    assert not again.unclaimed


@pytest.mark.parametrize("packets", [pm4.GFX9, pm4.GFX11], ids=["gfx9", "gfx11"])
def test_a_stream_of_pm4_splits_into_its_packets(packets: dict[int, type[pm4.Pm4]]):
    made = [layout(**some_values(layout, 1)) for layout in packets.values()]
    waits = [index for index, packet in enumerate(made) if isinstance(packet, pm4.WaitRegMem)]
    for index in waits:  # what it waits for decides how it is read
        made[index] = pm4.WaitRegMem(**{**made[index].values, "mem_space": pm4.MemSpace.MEMORY})
    made.insert(3, pm4.NopWord())
    made.insert(5, pm4.SetShReg(reg_offset=3, registers=(1, 2, 3)))
    words = [word for packet in made for word in packet.words]
    assert pm4.decode(words, packets) == made


def test_registers_print_by_name_with_their_fields():
    rsrc = pm4.SetShReg(reg_offset=Register.COMPUTE_PGM_RSRC1, registers=(0x200041, 0x180))
    assert repr(rsrc) == (
        "SetShReg(COMPUTE_PGM_RSRC1(granulated_vgpr_count=1, granulated_sgpr_count=1, dx10_clamp=1), "
        "COMPUTE_PGM_RSRC2(tgid_x_en=1, tgid_y_en=1))"
    )
    assert rsrc.description == repr(rsrc)[len("SetShReg(") : -1]  # what hcq-trace shows
    start = pm4.SetShReg(reg_offset=Register.COMPUTE_START_Z, registers=(0, 64))
    assert repr(start) == "SetShReg(COMPUTE_START_Z=0x0, COMPUTE_NUM_THREAD_X(num_thread_full=64))"
    assert repr(pm4.SetShReg(reg_offset=0x21F, registers=(7,))) == "SetShReg(register_0x21f=0x7)"
    assert repr(pm4.SetShReg(reg_offset=0x20C)) == "SetShReg(reg_offset=COMPUTE_PGM_LO)"


def test_the_sisters_of_set_sh_reg_print_their_own_registers():
    mask = pm4.SetShRegIndex(reg_offset=0x216, index=3, registers=(0xFFFF,))
    assert repr(mask) == "SetShRegIndex(index=3, COMPUTE_STATIC_THREAD_MGMT_SE0=0xffff)"
    where = pm4.SetUconfigReg(reg_offset=0x200, registers=(1 << 31 | 1 << 30 | 2 << 8,))
    assert repr(where) == (
        "SetUconfigReg(GRBM_GFX_INDEX(sa_index=2, instance_broadcast_writes=1, se_broadcast_writes=1))"
    )


def test_a_register_that_has_fields_shows_bits_that_none_of_them_claims():
    odd = pm4.SetShReg(reg_offset=Register.COMPUTE_TMPRING_SIZE, registers=(1 << 31,))
    assert repr(odd) == "SetShReg(COMPUTE_TMPRING_SIZE(unclaimed_word_0=0x80000000))"


@pytest.mark.parametrize("version", [sdma.V4, sdma.V6, sdma.V7], ids=["v4", "v6", "v7"])
def test_a_stream_of_sdma_splits_into_its_packets(version: sdma.Version):
    made: list[Packet] = []
    for layout in version.packets.values():
        values = some_values(layout, 2)
        values = {name: value for name, value in values.items() if name not in ("op", "sub_op", "count")}
        tail = {"data": (7,)} if layout is version.write else {}
        made.append(layout(**values, **tail))
    words = [word for packet in made for word in packet.words]
    assert sdma.decode(words, version) == made


def test_words_that_make_no_sense_end_the_stream_and_raise_nothing():
    draw = random.Random(1)
    for _ in range(300):
        words = [draw.getrandbits(32) for _ in range(draw.randrange(1, 20))]
        for shown in (pm4.decode(words, pm4.GFX11), sdma.decode(words, sdma.V6), aql.decode(words)):
            assert all(repr(packet) for packet in shown)


def test_cache_control_has_the_values_that_other_drivers_send():
    from hcq.amd.chip import CHIPS

    assert CHIPS["gfx1100"].acquire().words[7] == 0xC3F1
    assert CHIPS["gfx942"].acquire().words[1] == 0x28C40000
    assert CHIPS["gfx1100"].release().words[1] == 0x70F514
    assert CHIPS["gfx942"].release().words[1] == 0x88514


def test_an_aql_header_asks_for_a_barrier_and_system_scope():
    assert aql.KernelDispatch().words[0] & 0xFFFF == 0x1502


def test_packets_print_what_is_set_and_nothing_else():
    packet = pm4.WaitRegMem(
        function=pm4.Function.EQUAL, mem_space=pm4.MemSpace.MEMORY, address=0x1000, mask=1
    )
    assert repr(packet) == "WaitRegMem(function=EQUAL, mem_space=MEMORY, address=0x1000, mask=1)"


# ------------------------------------------------------------ the kernel's own header


def header_structs() -> dict[str, list[tuple[str, int]]]:
    """struct name -> (field, bits), from the text of the header."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text(), flags=re.S)
    found = {}
    for name, body in re.findall(r"struct (kfd_\w+) \{([^{}]*)\};", text):
        fields = re.findall(r"(\w+)\s+(\w+)\s*;", body)
        found[name] = [(field, SIZES.get(kind, 0)) for kind, field in fields]
    return found


def header_requests() -> dict[str, tuple[int, str, str]]:
    """call -> (number, macro, struct), from the text of the header."""
    pattern = r"#define AMDKFD_IOC_(\w+)\s*\\?\s*AMDKFD_(IO\w*)\((0x[0-9A-Fa-f]+),[\s\\]*struct (\w+)\)"
    return {
        name: (int(number, 16), macro, struct_name)
        for name, macro, number, struct_name in re.findall(pattern, HEADER.read_text())
    }


@pytest.mark.skipif(not HEADER.is_file(), reason="linux/kfd_ioctl.h is not installed (linux-libc-dev)")
@pytest.mark.parametrize("call", kfd.KFD_IOCTLS.values(), ids=lambda call: call.name)
def test_an_ioctl_agrees_with_the_kernels_header(call: kfd.Ioctl):
    requests = header_requests()
    if call.name not in requests:
        pytest.skip(f"this linux/kfd_ioctl.h is older than {call.name}")
    number, macro, struct_name = requests[call.name]
    assert call.number == number
    assert call.direction == {"IOR": kfd.READ, "IOW": kfd.WRITE, "IOWR": kfd.READ | kfd.WRITE}[macro]
    assert struct_name in (call.layout.__doc__ or "")
    at = 0
    for field, width in header_structs()[struct_name]:
        ours = call.layout.fields[field]
        assert (ours.low, ours.width) == (at, width), field
        at += width
    assert at <= 8 * call.size_bytes  # a newer interface may have more behind


@pytest.mark.skipif(not HEADER.is_file(), reason="linux/kfd_ioctl.h is not installed (linux-libc-dev)")
def test_flags_agree_with_the_kernels_header():
    text = HEADER.read_text()
    for name, value in re.findall(r"#define KFD_IOC_ALLOC_MEM_FLAGS_(\w+)\s+\(1\s*<<\s*(\d+)\)", text):
        assert kfd.AllocFlags[name] == 1 << int(value)
    for prefix, names in (("KFD_IOC_EVENT_", kfd.EventType), ("KFD_IOC_QUEUE_TYPE_", kfd.QueueType)):
        known: dict[str, int] = {member.name: member.value for member in names}
        for name, value in re.findall(rf"#define {prefix}(\w+)\s+(0x\w+|\d+)", text):
            if name in known:
                assert known[name] == int(value, 0)
    assert issubclass(kfd.QueueType, IntEnum)
