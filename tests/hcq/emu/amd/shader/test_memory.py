"""Memory: the address space and its faults; loads, stores and atomics of every width, in memory and in LDS."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.errors import UsageError
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import FAMILY, GFX9, ISAS, OLD_NAMES, run, run_words, words32

BASE = 0x10_0000_0000
Bytes = np.ndarray[Any, Any]


def space(data: Bytes, **options: Any) -> AddressSpace:
    memory = AddressSpace()
    memory.map(BASE, data, name="data", **options)
    return memory


def pair(addresses: Any, first: int = 0) -> dict[int, Any]:
    """64-bit addresses in two registers."""
    wide = np.asarray(addresses, np.uint64)
    return {first: wide & np.uint64(0xFFFFFFFF), first + 1: wide >> np.uint64(32)}


# -- the address space ------------------------------------------------------------------------------------------------
def test_overlapping_mappings_are_refused_and_unmapping_needs_a_start() -> None:
    memory = space(np.zeros(64, np.uint8))
    with pytest.raises(UsageError, match="is mapped already"):
        memory.map(BASE + 60, bytearray(8))
    with pytest.raises(UsageError, match="no mapping starts there"):
        memory.unmap(BASE + 4)
    memory.unmap(BASE)
    with pytest.raises(PageFault, match="not mapped"):
        memory.read(BASE, 4)


def test_accesses_fault_before_memory_is_touched() -> None:
    data = np.zeros(64, np.uint8)
    memory = space(data)
    memory.map(BASE + 64, bytes(16), name="constants")
    addresses = np.array([BASE, BASE + 62], np.uint64)
    with pytest.raises(PageFault, match="ends beyond its mapping"):
        memory.scatter(addresses, np.ones((1, 2), np.uint32))
    with pytest.raises(PageFault, match="constants is read-only"):
        memory.scatter(np.array([BASE, BASE + 64], np.uint64), np.ones((1, 2), np.uint32))
    assert not data[4:].any()
    assert memory.gather(np.array([BASE + 64], np.uint64), 2).shape == (2, 1)


def test_one_access_may_reach_several_mappings() -> None:
    memory = AddressSpace()
    first, second = np.arange(4, dtype=np.uint32), np.arange(10, 14, dtype=np.uint32)
    memory.map(0x1000, first)
    memory.map(0x9000, second)
    addresses = np.array([0x9004, 0x1000, 0x900C, 0x1008], np.uint64)
    assert memory.gather(addresses, 1)[0].tolist() == [11, 0, 13, 2]
    memory.scatter(addresses, np.array([[5, 6, 7, 8]], np.uint32))
    assert (first[0], first[2], second[1], second[3]) == (6, 8, 5, 7)


# -- loads and stores -------------------------------------------------------------------------------------------------
LOADS = {  # gfx1100 name, gfx942 name: bytes, signed, half
    ("load_u8", "load_ubyte"): (1, False, None),
    ("load_i8", "load_sbyte"): (1, True, None),
    ("load_u16", "load_ushort"): (2, False, None),
    ("load_i16", "load_sshort"): (2, True, None),
    ("load_d16_u8", "load_ubyte_d16"): (1, False, 0),
    ("load_d16_hi_i8", "load_sbyte_d16_hi"): (1, True, 1),
    ("load_d16_b16", "load_short_d16"): (2, False, 0),
    ("load_d16_hi_b16", "load_short_d16_hi"): (2, False, 1),
}


def narrow(data: Bytes, at: int, size: int, signed: bool) -> int:
    return int.from_bytes(data[at : at + size].tobytes(), "little", signed=signed)


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("names", LOADS)
@pytest.mark.parametrize("segment", ["global", "flat"])
def test_narrow_loads_extend_or_fill_half_a_register(segment: str, names: tuple[str, str], arch: str) -> None:
    which = int(arch in OLD_NAMES)
    width = 24 if arch == "gfx1201" else ISAS[arch].flat_offset_bits
    size, signed, half = LOADS[names]
    data = np.random.default_rng(0).integers(0, 256, 300, dtype=np.uint8)
    at = np.random.default_rng(1).integers(0, 290, 64 if arch in GFX9 else 32)
    fields = {"offset": 5} if segment == "flat" else {"offset": (1 << width) - 3}  # a negative offset: -3
    shift = 5 if segment == "flat" else -3
    state = pair(BASE + at - shift) | {4: 0xAAAA5555}
    b = run(arch, f"{segment}_{names[which]}", "v4", "v[0:1]", fields=fields, v=state, memory=space(data))
    for lane, place in enumerate(at.tolist()):
        value = narrow(data, place, size, signed)
        if half is None:
            expected = value & 0xFFFFFFFF
        else:  # on GFX9 parts, with ECC, the other half is cleared
            other = 0 if arch in GFX9 else 0xAAAA5555 & 0xFFFF << 16 * (1 - half)
            expected = (value & 0xFFFF) << 16 * half | other
        assert int(b.u32[4, 0, lane]) == expected


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("words", [1, 2, 3, 4])
@pytest.mark.parametrize("aligned", [True, False])
def test_wide_loads_and_stores_move_whole_words(arch: str, words: int, aligned: bool) -> None:
    size = 64 if arch in GFX9 else 32
    width = f"b{32 * words}" if arch not in OLD_NAMES else f"dword{'' if words == 1 else f'x{words}'}"
    data = np.random.default_rng(2).integers(0, 256, size * 16 + 4, dtype=np.uint8)
    at = np.random.default_rng(3).permutation(size) * 16 + (0 if aligned else 1)
    span = f"v[4:{3 + words}]" if words > 1 else "v4"
    lanes = np.arange(size) % 3 != 0
    memory = space(data)
    b = run(
        arch, f"global_load_{width}", span, "v[0:1]", v=pair(BASE + at) | {4: 7}, memory=memory, lanes=lanes
    )
    for lane in range(size):
        got = b.u32[4 : 4 + words, 0, lane].tobytes()
        if lanes[lane]:
            assert got == data[at[lane] : at[lane] + 4 * words].tobytes()
        else:
            assert b.u32[4, 0, lane] == 7
    before = data.copy()
    values = {4 + i: words32(i, size) for i in range(words)}
    run(
        arch,
        f"global_store_{width}",
        "v[0:1]",
        span,
        v=pair(BASE + at) | values,
        memory=space(data),
        lanes=lanes,
    )
    for lane in range(size):
        there = slice(at[lane], at[lane] + 4 * words)
        expected = np.array([values[4 + i][lane] for i in range(words)], np.uint32).tobytes()
        assert data[there].tobytes() == (expected if lanes[lane] else before[there].tobytes())


@pytest.mark.parametrize("arch", ISAS)
def test_a_scalar_base_takes_32_bit_offsets(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    data = np.arange(1024, dtype=np.uint32)
    name = "global_load_b32" if arch not in OLD_NAMES else "global_load_dword"
    b = run(
        arch,
        name,
        "v4",
        "v0",
        fields={"saddr": 6, "offset": 8},
        v={0: 4 * np.arange(size)},
        s={6: BASE & 0xFFFFFFFF, 7: BASE >> 32},
        memory=space(data),
    )
    assert b.u32[4, 0].tolist() == list(range(2, size + 2))


@pytest.mark.parametrize("arch", ISAS)
def test_stores_of_bytes_and_halves_leave_their_neighbours(arch: str) -> None:
    names = {"gfx1100": ("store_b8", "store_d16_hi_b16"), "gfx942": ("store_byte", "store_short_d16_hi")}[
        FAMILY[arch]
    ]
    size = 64 if arch in GFX9 else 32
    data = np.full(8 * size, 0xEE, np.uint8)
    x = words32(1, size)
    memory = space(data)
    run(
        arch, f"global_{names[0]}", "v[0:1]", "v2", v=pair(BASE + 8 * np.arange(size)) | {2: x}, memory=memory
    )
    memory = space(data)
    run(
        arch,
        f"global_{names[1]}",
        "v[0:1]",
        "v2",
        v=pair(BASE + 8 * np.arange(size) + 3) | {2: x},
        memory=memory,
    )
    rows = data.reshape(size, 8)
    assert (rows[:, 0] == x & 255).all() and (rows[:, [1, 2, 5, 6, 7]] == 0xEE).all()
    assert (rows[:, 3] == x >> 16 & 255).all() and (rows[:, 4] == x >> 24).all()


@pytest.mark.parametrize("arch", ISAS)
def test_scalar_loads_fill_registers(arch: str) -> None:
    data = np.arange(64, dtype=np.uint32)
    name = "s_load_b128" if arch not in OLD_NAMES else "s_load_dwordx4"
    words = ISAS[arch].encode(name, sdata=8, sbase=3, offset=8)
    b = run_words(arch, words, s={6: BASE & 0xFFFFFFFF, 7: BASE >> 32}, memory=space(data))
    assert b.s[0, 8:12].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("arch", ISAS)
def test_buffers_read_zero_and_drop_writes_beyond_their_records(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    data = np.arange(size, dtype=np.uint32)
    records = 4 * (size - 8)
    descriptor = {8: BASE & 0xFFFFFFFF, 9: BASE >> 32, 10: records, 11: 0}
    load, store = ("b32", "b32") if arch not in OLD_NAMES else ("dword", "dword")
    offsets = {0: 4 * np.arange(size), 1: 99}
    none = "null" if arch == "gfx1201" else 0
    common: dict[str, Any] = {"fields": {"offen": 1}, "s": descriptor, "memory": space(data)}
    b = run(arch, f"buffer_load_{load}", "v2", "v0", "s[8:11]", none, v=offsets, **common)
    assert b.u32[2, 0].tolist() == [*range(size - 8), *[0] * 8]
    run(
        arch,
        f"buffer_store_{store}",
        "v1",
        "v0",
        "s[8:11]",
        none,
        v=offsets,
        **(common | {"memory": space(data)}),
    )
    assert data.tolist() == [99] * (size - 8) + list(range(size - 8, size))


# -- LDS --------------------------------------------------------------------------------------------------------------
def lds_names(arch: str) -> tuple[str, str, str, str]:
    if arch not in OLD_NAMES:
        return "ds_load", "ds_store", "_2addr", "_2addr_stride64"
    return "ds_read", "ds_write", "2", "2st64"


@pytest.mark.parametrize("arch", ISAS)
def test_lds_pairs_use_two_offsets_in_units_of_their_element(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    load, store, two, far = lds_names(arch)
    x, y = words32(1, size), words32(2, size)
    isa = ISAS[arch]
    for form, reach in ((two, 1), (far, 64)):
        offsets = {"offset0": 1, "offset1": 3}
        words = [
            *assemble(isa, f"{store}{form}_b32", ("v0", "v1", "v2"), None, None, **offsets),
            *assemble(isa, f"{load}{form}_b32", ("v[4:5]", "v0"), None, None, **offsets),
        ]
        b = run_words(arch, words, v={0: 16 * np.arange(size), 1: x, 2: y}, lds_bytes=8192)
        at = 4 * np.arange(size)
        lds = b.residents.lds.words
        assert (lds[at + 3 * reach] == y).all()
        # with a far reach, lanes overlap: the last one wins
        expected = np.where(reach == 1, x, lds[at + reach])
        assert (b.u32[4, 0] == expected).all() and (b.u32[5, 0] == y).all()


@pytest.mark.parametrize("arch", ISAS)
def test_lds_reads_zero_beyond_its_end_and_drops_writes(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    load, store, _, _ = lds_names(arch)
    at = 4 * np.arange(size)
    b = run(arch, f"{store}_b32", "v0", "v1", v={0: at, 1: 7}, lds_bytes=64)
    assert (b.residents.lds.words == 7).all() and len(b.residents.lds.words) == 16
    b = run(arch, f"{load}_b32", "v2", "v0", v={0: at + 60, 2: 9}, lds_bytes=64)
    assert (b.u32[2, 0] == 0).all()
    b = run(arch, "ds_add_rtn_u32", "v2", "v0", "v1", v={0: at, 1: 1, 2: 9}, lds_bytes=64)
    assert b.residents.lds.words.tolist() == [1] * 16 and (b.u32[2, 0] == 0).all()


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("second", ["v2", "v4", "v5"])
def test_what_an_lds_atomic_returns_may_go_where_its_data_are(arch: str, second: str) -> None:
    """Also where some lanes are beyond the end: their zeros are not the data of the others."""
    size = 64 if arch in GFX9 else 32
    at, number = 8 * np.arange(size), int(second[1:])
    swap = "ds_wrxchg2_rtn_b32" if arch in OLD_NAMES else "ds_storexchg_2addr_rtn_b32"
    one, two = 100 + np.arange(size), 500 + np.arange(size)
    state = {"v": {0: at, 1: one, number: two}, "lds_bytes": 8 * size}
    b = run(arch, swap, "v[4:5]", "v0", "v1", second, fields={"offset1": 1}, **state)
    assert b.residents.lds.words.tolist() == np.stack([one, two], axis=1).reshape(-1).tolist()
    assert not b.u32[4:6, 0].any()
    add = run(arch, "ds_add_rtn_u32", "v1", "v0", "v1", v={0: at, 1: one}, lds_bytes=64)
    assert add.residents.lds.words[::2].tolist() == one[:8].tolist()
    assert not add.u32[1, 0].any()


@pytest.mark.parametrize("arch", ISAS)
def test_compare_and_store_has_its_operands_in_the_chips_own_order(arch: str) -> None:
    name, operands = {
        "gfx1100": ("ds_cmpstore_rtn_b32", ("v2", "v0", "v1", "v3")),  # new, compare
        "gfx942": ("ds_cmpst_rtn_b32", ("v2", "v0", "v3", "v1")),  # compare, new
    }[FAMILY[arch]]
    b = run(arch, name, *operands, v={0: 0, 1: 5, 3: 0}, lds_bytes=16)
    assert int(b.residents.lds.words[0]) == 5
    assert b.u32[2, 0].tolist() == [0] + [5] * (b.u32.shape[2] - 1)


# -- atomics ----------------------------------------------------------------------------------------------------------
def s32(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


ATOMICS: dict[str, tuple[str, Callable[[int, int], int]]] = {  # gfx1100 suffix: gfx942 name, new memory
    "swap_b32": ("swap", lambda m, d: d),
    "add_u32": ("add", lambda m, d: m + d),
    "sub_u32": ("sub", lambda m, d: m - d),
    "min_i32": ("smin", lambda m, d: min(m, d, key=s32)),
    "min_u32": ("umin", min),
    "max_i32": ("smax", lambda m, d: max(m, d, key=s32)),
    "max_u32": ("umax", max),
    "and_b32": ("and", lambda m, d: m & d),
    "or_b32": ("or", lambda m, d: m | d),
    "xor_b32": ("xor", lambda m, d: m ^ d),
    "inc_u32": ("inc", lambda m, d: 0 if m >= d else m + 1),
    "dec_u32": ("dec", lambda m, d: d if m == 0 or m > d else m - 1),
}


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("name", ATOMICS)
@pytest.mark.parametrize("cells", [1, 3, 40])
def test_atomics_run_in_lane_order_and_return_what_they_found(arch: str, name: str, cells: int) -> None:
    size = 64 if arch in GFX9 else 32
    old_name, change = ATOMICS[name]
    spelled = name if arch not in OLD_NAMES else old_name
    memory = words32(1, cells)
    data, index = words32(2, size), np.random.default_rng(3).integers(0, cells, size)
    expected, found = memory.tolist(), []
    lanes = np.arange(size) % 7 != 3
    for lane in range(size):
        found.append(expected[index[lane]])
        if lanes[lane]:
            expected[index[lane]] = change(expected[index[lane]], int(data[lane])) & 0xFFFFFFFF
    returns = {"gfx942": "sc0", "gfx950": "sc0", "gfx1201": "th"}.get(arch, "glc")
    fields = {returns: 1, "vdst": 4}
    state = pair(BASE + 4 * index) | {2: data}
    b = run(
        arch,
        f"global_atomic_{spelled}",
        "v[0:1]",
        "v2",
        fields=fields,
        v=state,
        memory=space(memory),
        lanes=lanes,
    )
    assert memory.tolist() == expected
    assert b.u32[4, 0][lanes].tolist() == np.array(found)[lanes].tolist()


@pytest.mark.parametrize("arch", ISAS)
def test_wide_and_float_atomics(arch: str) -> None:
    size = 64 if arch in GFX9 else 32
    memory = np.array([1 << 40], np.uint64)
    name = "global_atomic_add_u64" if arch not in OLD_NAMES else "global_atomic_add_x2"
    run(
        arch,
        name,
        "v[0:1]",
        "v[2:3]",
        v=pair(np.full(size, BASE)) | pair(np.full(size, 3 << 31), 2),
        memory=space(memory),
    )
    assert int(memory[0]) == (1 << 40) + size * (3 << 31)
    floats = np.zeros(1, np.float32)
    half = np.float32(0.5).view(np.uint32)
    adds = "global_atomic_add_f32" in ISAS[arch].by_name  # gfx1030 has the largest number, and no sum
    run(
        arch,
        "global_atomic_add_f32" if adds else "global_atomic_fmax",
        "v[0:1]",
        "v2",
        v=pair(np.full(size, BASE)) | {2: half},
        memory=space(floats),
    )
    assert floats[0] == (size / 2 if adds else 0.5)
    cell = np.zeros(2, np.uint32)
    name = "global_atomic_cmpswap_b32" if arch not in OLD_NAMES else "global_atomic_cmpswap"
    state = pair(np.full(size, BASE)) | {2: np.arange(1, size + 1), 3: np.arange(size)}  # new, compare
    run(arch, name, "v[0:1]", "v[2:3]", v=state, memory=space(cell))
    assert cell[0] == size  # each lane found what the one before it left


def test_packed_float_atomics_add_both_halves() -> None:
    cell = np.zeros(1, np.uint32)
    both = np.array([1.0, 2.0], np.float16).view(np.uint32)[0]
    run(
        "gfx942",
        "global_atomic_pk_add_f16",
        "v[0:1]",
        "v2",
        v=pair(np.full(64, BASE)) | {2: both},
        memory=space(cell),
    )
    assert cell.view(np.float16).tolist() == [64.0, 128.0]


@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_lanes_beside_each_other_move_the_same_bytes_as_lanes_one_by_one(words: int) -> None:
    data = np.random.default_rng(words).integers(0, 256, 4096, np.uint8)
    step = 4 * words
    orders = {
        "in order": np.arange(40) * step,
        "one swapped": np.array([0, 2, 1, *range(3, 40)]) * step,
        "one twice": np.array([0, 1, 1, *range(3, 40)]) * step,
        "with a hole": np.array([*range(39), 40]) * step,
        "backwards": np.arange(40)[::-1] * step,
        "one lane": np.arange(1),
    }
    for (name, order), start in itertools.product(orders.items(), (0, 4, 8, 1, 2)):
        memory, one_by_one = space(data.copy()), space(data.copy())
        addresses = (BASE + start + order).astype(np.uint64)
        rows = memory.gather(addresses, words)
        expected = np.stack(
            [one_by_one.gather(addresses[lane : lane + 1], words)[:, 0] for lane in range(len(order))], axis=1
        )
        assert (rows == expected).all(), (name, start)
        new = np.arange(rows.size, dtype=np.uint32).reshape(rows.shape) * np.uint32(0x01010101)
        before = rows.copy()
        memory.scatter(addresses, new)
        for lane in range(len(order)):
            one_by_one.scatter(addresses[lane : lane + 1], new[:, lane : lane + 1])
        assert memory.read(BASE, 4096) == one_by_one.read(BASE, 4096), (name, start)
        assert (rows == before).all()  # what was read does not change with memory
