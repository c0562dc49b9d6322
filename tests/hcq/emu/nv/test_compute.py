"""The emulated compute engine launches what a QMD says, reads constant bank 0 where it says, and refuses the rest."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hcq.nv.abi.image import SymbolEntry
from hcq.nv.abi.qmd import QmdV3
from hcq.nv.abi.sm_errors import WarpEsr
from tests.hcq.emu.nv.raw import (
    AXPY,
    BANKS,
    LOCAL_WINDOW,
    Launch,
    Loaded,
    Memory,
    Raw,
    methods,
    release,
    setup,
)

ALL = ["nv:sm_80", "nv:sm_86", "nv:sm_89", "nv:sm_90", "nv:sm_100", "nv:sm_120"]
WITH_SEED = [*ALL, "nv:sm_90:seed=11"]
FURTHER = ("nv:sm_86", "nv:sm_89", "nv:sm_100")  # the layouts of launches are those of the other three
WAIT_FOR_IDLE = methods(1, 0x110, 0)
HEADER = ".version 7.0\n.target sm_80\n.address_size 64\n"

TOUCH = (
    HEADER
    + """
.visible .entry touch(.param .u64 at, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
)
DOUBLE_AND_ADD = (
    HEADER
    + """
.visible .entry step(.param .u64 at, .param .u32 factor, .param .u32 addend)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [factor];
    ld.param.u32 %r2, [addend];
    ld.global.u32 %r3, [%rd1];
    mad.lo.u32 %r4, %r3, %r1, %r2;
    st.global.u32 [%rd1], %r4;
    ret;
}
"""
)
ENDLESS = (
    HEADER
    + """
.visible .entry endless()
{
LOOP:
    bra LOOP;
}
"""
)
SHARED = (
    HEADER
    + """
.extern .shared .align 4 .b8 dynamic[];
.visible .entry reverse(.param .u64 at)
{
    .shared .align 4 .b8 own[256];
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [at];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, own;
    add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r3], %r1;
    mov.u32 %r4, dynamic;
    add.u32 %r4, %r4, %r2;
    st.shared.u32 [%r4], %r1;
    bar.sync 0;
    mov.u32 %r5, 252;
    sub.u32 %r5, %r5, %r2;
    mov.u32 %r6, dynamic;
    add.u32 %r6, %r6, %r5;
    ld.shared.u32 %r7, [%r6];
    cvt.u64.u32 %rd2, %r2;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r7;
    ret;
}
"""
)
VARIABLE = (
    HEADER
    + """
.global .align 4 .u32 count;
.visible .entry bump()
{
    .reg .b32 %r<3>;
    ld.global.u32 %r1, [count];
    add.u32 %r2, %r1, 1;
    st.global.u32 [count], %r2;
    ret;
}
"""
)


@pytest.fixture(params=[pytest.param(word, marks=[pytest.mark.thorough] * (word in FURTHER)) for word in ALL])
def raw(request: pytest.FixtureRequest) -> Raw:
    return ready(request.param)


def ready(*words: str) -> Raw:
    """A channel that has been set up for launches."""
    made = Raw(*words).open_channel()
    made.sem = made.memory(4096)
    made.out = made.memory(4096)
    made.push(setup(made))
    return made


def do(raw: Raw, words: list[int]) -> None:
    """Until everything before is done."""
    value = int(raw.sem.array()[0]) + 1
    raw.push([*words, *release(raw.sem.va, value)])
    raw.until(lambda: raw.sem.array()[0] == value)


def touch(raw: Raw, value: int = 7, at: int | None = None, **fields: Any) -> Launch:
    """A launch of one thread that stores a value."""
    if not hasattr(raw, "touch"):
        raw.touch = Loaded(raw, TOUCH, "touch", 12)
    params = struct.pack("<QI", raw.out.va if at is None else at, value)
    return Launch(raw, raw.touch.program, params, **fields)


# ------------------------------------------------------------ launches


@pytest.mark.parametrize("word", WITH_SEED)
def test_a_grid_runs_with_its_parameters(word: str):
    raw = ready(word)
    x, y = raw.memory(8192), raw.memory(8192)
    x.array("f4")[:1500] = np.arange(1500)
    y.array("f4")[:] = 1
    kernel = Loaded(raw, AXPY, "axpy", 24)
    params = struct.pack("<QQfI", y.va, x.va, 2.0, 1500)
    do(raw, Launch(raw, kernel.program, params, (6, 1, 1), (256, 1, 1)).words)
    assert (y.array("f4")[:1500] == 1 + 2 * np.arange(1500)).all()
    assert (y.array("f4")[1500:] == 1).all()


@pytest.mark.parametrize("action", [2, 3, 9, 10])
def test_every_way_to_schedule_launches(raw: Raw, action: int):
    launch = touch(raw)
    do(raw, [*methods(1, 0x2B4, launch.qmd_va >> 8), *methods(1, 0x2C0, action)])
    assert raw.out.array()[0] == 7


def test_the_older_signal_launches_too(raw: Raw):
    launch = touch(raw)
    do(raw, [*methods(1, 0x2B4, launch.qmd_va >> 8), *methods(1, 0x2BC, 3)])
    assert raw.out.array()[0] == 7


def test_an_action_without_schedule_launches_nothing(raw: Raw):
    launch = touch(raw)
    do(raw, [*methods(1, 0x2B4, launch.qmd_va >> 8), *methods(1, 0x2C0, 1)])
    assert raw.out.array()[0] == 0


def test_shared_memory_is_the_kernels_own_and_what_the_qmd_gives_beyond(raw: Raw):
    kernel = Loaded(raw, SHARED, "reverse", 8)
    params = struct.pack("<Q", raw.out.va)
    launch = Launch(raw, kernel.program, params, block=(64, 1, 1), shared_memory_size=0x400 + 512)
    do(raw, launch.words)
    assert (raw.out.array()[:64] == 63 - np.arange(64)).all()
    launch.write(shared_memory_size=0x400 + 256)
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "shared memory has 256 bytes" in line


def test_a_kernel_without_shared_memory_may_be_given_none(raw: Raw):
    do(raw, touch(raw, shared_memory_size=0).words)
    assert raw.out.array()[0] == 7


def test_variables_of_a_module_lie_where_its_symbols_say(raw: Raw):
    kernel = Loaded(raw, VARIABLE, "bump", 0)
    table = raw.memory(4096)
    entry = SymbolEntry(name_address=table.va + 64, address=raw.out.va + 8).to_bytes()
    table.host[:16] = np.frombuffer(entry, np.uint8)
    table.host[64:70] = np.frombuffer(b"count\0", np.uint8)
    kernel.put(VARIABLE.encode(), "bump", 0, symbols_address=table.va, symbol_count=1)
    launch = Launch(raw, kernel.program)
    do(raw, [*launch.words, *WAIT_FOR_IDLE, *launch.words])
    assert raw.out.array()[2] == 2


def test_constants_of_machine_code_lie_in_a_bank_that_the_qmd_binds(raw: Raw):
    ptx = VARIABLE.replace(".global .align 4 .u32 count;", ".const .align 4 .u32 count = 5;").replace(
        "st.global.u32 [count], %r2", "st.global.u32 [%rd1], %r2"
    )
    ptx = ptx.replace("bump()", "bump(.param .u64 at)").replace("ld.global.u32 %r1", "ld.const.u32 %r1")
    ptx = ptx.replace(".reg .b32 %r<3>;", ".reg .b32 %r<3>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [at];")
    kernel = Loaded(raw, ptx, "bump", 8)
    table = raw.memory(4096)
    entry = SymbolEntry(name_address=table.va + 64, address=table.va + 256).to_bytes()
    table.host[:16] = np.frombuffer(entry, np.uint8)
    table.host[64:70] = np.frombuffer(b"count\0", np.uint8)
    table.array()[64] = 41
    kernel.put(ptx.encode(), "bump", 8, symbols_address=table.va, symbol_count=1)
    launch = Launch(raw, kernel.program, struct.pack("<Q", raw.out.va))
    do(raw, launch.words)  # there is only PTX: nothing reads a bank
    assert raw.out.array()[0] == 42
    kernel.memory.host[0x200] = 1  # as if there were machine code
    launch.write(constant_buffer_valid_3=1, constant_buffer_addr_3=table.va + 256, constant_buffer_size_3=16)
    do(raw, launch.words)
    launch.write(constant_buffer_valid_3=0)
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "the .const variable 'count'" in line and "is in none of the constant banks" in line


def test_a_qmd_releases_semaphores_when_its_grid_has_ended(raw: Raw):
    va = raw.sem.va
    fields: dict[str, int] = {}
    for number, (structure, wide) in enumerate([(1, 0), (0, 1), (2, 1)]):
        fields |= {
            f"release{number}_enable": 1,
            f"release{number}_address": va + 64 * (number + 1),
            f"release{number}_payload": 5 + number + (number << 32),
            f"release{number}_structure_size": structure,
            f"release{number}_payload64b": wide,
        }
    do(raw, touch(raw, **fields).words)
    assert raw.sem.array()[16] == 5 and raw.sem.array()[17] == 0
    assert raw.sem.array("u8")[16] == 6 + (1 << 32) and raw.sem.array("u8")[17] > 0
    assert raw.sem.array("u8")[24] == 7 + (2 << 32)


def test_a_dependent_qmd_is_launched_when_the_first_has_ended(raw: Raw):
    raw.out.array()[0] = 1
    kernel = Loaded(raw, DOUBLE_AND_ADD, "step", 16)
    second = Launch(raw, kernel.program, struct.pack("<QII", raw.out.va, 10, 3))
    first = Launch(
        raw,
        kernel.program,
        struct.pack("<QII", raw.out.va, 1, 4),
        dependent_qmd0_enable=1,
        dependent_qmd0_action=1,
        dependent_qmd0_pointer=second.qmd_va,
    )
    do(raw, first.words)
    assert raw.out.array()[0] == 53


def test_report_semaphores_come_after_the_grids(raw: Raw):
    va = raw.sem.va + 64
    raw.push([*touch(raw).words, *methods(1, 0x1B00, va >> 32, va & 0xFFFFFFFF, 9, 1 << 28)])
    raw.until(lambda: raw.sem.array()[16] == 9)
    assert raw.out.array()[0] == 7 and raw.sem.array()[17] == 0
    raw.push(methods(1, 0x1B00, va >> 32, va & 0xFFFFFFFF, 10, 0))
    raw.until(lambda: raw.sem.array()[16] == 10)
    assert raw.sem.array("u8")[9] > 0
    if raw.arch != "sm_80":
        raw.push(methods(1, 0x158, 11, 1, va & 0xFFFFFFFF, va >> 32, 1 << 12))
        raw.until(lambda: raw.sem.array("u8")[8] == 11 + (1 << 32))


def test_words_of_the_pushbuffer_can_be_stored(raw: Raw):
    va = raw.out.va + 4
    words = [
        *methods(1, 0x188, va >> 32, va & 0xFFFFFFFF),
        *methods(1, 0x180, 7, 1),
        *methods(1, 0x1B0, 0x41),
        3 << 29 | 2 << 16 | 1 << 13 | 0x1B4 >> 2,
        0x44332211,
        0xFF776655,
    ]
    do(raw, words)
    assert raw.out.host[:12].tobytes().hex() == "000000001122334455667700"


# ------------------------------------------------------------ order and caches


def outcomes(run: Callable[[int], int]) -> set[int]:
    """What work came to with one seed after the other, until it has come to two things."""
    seen: set[int] = set()
    for seed in range(60):
        seen.add(run(seed))
        if len(seen) == 2:
            break
    return seen


def test_with_a_seed_launches_that_nothing_orders_run_in_any_order():
    def outcome(seed: int, between: list[int]) -> int:
        raw = ready(f"nv:sm_90:seed={seed}")
        raw.out.array()[0] = 1
        kernel = Loaded(raw, DOUBLE_AND_ADD, "step", 16)
        first = Launch(raw, kernel.program, struct.pack("<QII", raw.out.va, 1, 4))
        second = Launch(raw, kernel.program, struct.pack("<QII", raw.out.va, 10, 3))
        do(raw, [*first.words, *between, *second.words])
        raw.end()
        return int(raw.out.array()[0])

    assert outcomes(lambda seed: outcome(seed, [])) == {53, 17}
    assert {outcome(seed, WAIT_FOR_IDLE) for seed in range(5)} == {53}


def test_with_a_seed_a_release_that_does_not_wait_may_come_before_the_grid():
    def last_word(seed: int) -> int:
        raw = ready(f"nv:sm_90:seed={seed}")
        kernel = Loaded(raw, DOUBLE_AND_ADD, "step", 16)
        # the grid adds to the semaphore's own word: the last one to write it tells the order
        launch = Launch(raw, kernel.program, struct.pack("<QII", raw.sem.va + 64, 1, 100))
        raw.push([*launch.words, *release(raw.sem.va + 64, 5, 1), *release(raw.sem.va, 1)])
        raw.until(lambda: raw.sem.array()[0] == 1)
        raw.end()
        return int(raw.sem.array()[16])

    assert outcomes(lambda seed: last_word(seed) == 105) == {False, True}


def test_with_a_seed_a_qmd_that_is_not_copied_must_stay_as_it_is():
    """Between PREFETCH_SCHEDULE and the grid's start the QMD is still read."""

    def stored(seed: int) -> int:
        raw = ready(f"nv:sm_90:seed={seed}")
        launch = touch(raw, 7)
        other = touch(raw, 8)
        va = launch.qmd_va
        upload = [
            *methods(1, 0x188, va >> 32, va & 0xFFFFFFFF),
            *methods(1, 0x180, 384, 1),
            *methods(1, 0x1B0, 0x41),
            3 << 29 | 96 << 16 | 1 << 13 | 0x1B4 >> 2,
            *other.memory.array()[:96].tolist(),
        ]
        do(raw, [*methods(1, 0x2B4, va >> 8), *methods(1, 0x2C0, 9), *upload])
        raw.end()
        return int(raw.out.array()[0])

    assert outcomes(stored) == {7, 8}


def test_code_that_is_replaced_needs_an_invalidation(raw: Raw):
    do(raw, touch(raw, 7).words)
    changed = TOUCH.replace(
        "%r1;\n    ret", "%r1;\n    add.u32 %r1, %r1, 1;\n    st.global.u32 [%rd1+4], %r1;\n    ret"
    )
    raw.touch.put(changed.encode(), "touch", 12)
    do(raw, [*methods(1, 0x1698, 1), *touch(raw, 20).words])
    assert raw.out.array()[:2].tolist() == [20, 21]
    raw.touch.put(TOUCH.encode(), "touch", 12)
    do(raw, touch(raw, 30, invalidate_instruction_cache=1).words)
    assert raw.out.array()[:2].tolist() == [30, 21]
    raw.touch.put(changed.encode(), "touch", 12)
    raw.push(touch(raw, 40).words)
    xid, line = raw.fault()
    assert xid == 13 and "the instruction cache still holds the old one" in line


def test_a_constant_bank_that_is_written_again_needs_an_invalidation(raw: Raw):
    launch = touch(raw, 7, constant_buffer_invalidate_0=0)
    at = BANKS[launch.layout.version][5]
    do(raw, launch.words)
    launch.bank[at + 8] = 9
    do(raw, [*methods(1, 0x1698, 1 << 12), *launch.words])
    assert raw.out.array()[0] == 9
    launch.bank[at + 8] = 11
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "the constant cache still holds what it was" in line


def test_with_caches_what_was_read_stays_until_it_is_invalidated():
    raw = ready("nv:sm_90:caches")
    raw.out.array()[0] = 1
    kernel = Loaded(raw, DOUBLE_AND_ADD, "step", 16)

    def step(**fields: int) -> list[int]:
        return Launch(raw, kernel.program, struct.pack("<QII", raw.out.va, 2, 0), **fields).words

    do(raw, step())
    assert raw.out.array()[0] == 2  # stores go through
    do(raw, step())
    assert raw.out.array()[0] == 2  # and another SM has not seen them
    do(raw, step(invalidate_shader_data_cache=1))
    assert raw.out.array()[0] == 4
    raw.out.array()[0] = 50  # nor what the host stored
    do(raw, step())
    assert raw.out.array()[0] == 4
    raw.out.array()[0] = 50
    do(raw, [*methods(1, 0x1698, 1 << 4), *step()])
    assert raw.out.array()[0] == 100
    do(raw, [*methods(1, 0x21C, 1 << 4), *step()])
    assert raw.out.array()[0] == 200


def test_with_caches_a_kernel_sees_its_own_stores_and_faults_as_without():
    raw = ready("nv:sm_90:caches")
    kernel = Loaded(raw, SHARED, "reverse", 8)
    do(
        raw,
        Launch(
            raw, kernel.program, struct.pack("<Q", raw.out.va), block=(64, 1, 1), shared_memory_size=0x600
        ).words,
    )
    assert (raw.out.array()[:64] == 63 - np.arange(64)).all()
    raw.push(touch(raw, at=0x40_0000_0010).words)
    xid, line = raw.fault()
    assert xid == 31 and "faulted @ 0x40_00000010" in line and "VIRT_WRITE" in line


# ------------------------------------------------------------ launches that cannot be


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"qmd_major_version": 2}, "says version 2.0; class"),
        ({"qmd_minor_version": 1}, ".1; class"),
        ({"cta_thread_dimension0": 0}, "CTA_THREAD_DIMENSION is (0, 1, 1)"),
        ({"cta_thread_dimension0": 1025}, "1025 threads, of 1 to 1024"),
        ({"cta_thread_dimension2": 65}, "65 threads"),
        ({"grid_height": 0}, "the grid has no blocks"),
        ({"register_count": 256}, "REGISTER_COUNT 256"),
        ({"register_count": 255, "cta_thread_dimension0": 512}, "an SM has 65536 registers"),
        ({"barrier_count": 17}, "BARRIER_COUNT is 17"),
        ({"shared_memory_size": 1 << 17}, "the carve-outs"),
        ({"min_sm_config_shared_mem_size": 4}, "MIN_SM_CONFIG_SHARED_MEM_SIZE is 0x4: no carve-out"),
        ({"target_sm_config_shared_mem_size": 0}, "TARGET_SM_CONFIG_SHARED_MEM_SIZE is 0x0: no carve-out"),
        ({"max_sm_config_shared_mem_size": 1}, "do not rise"),
        ({"constant_buffer_valid_0": 0}, "constant bank 0 is not valid"),
        ({"constant_buffer_size_0": 0x100}, "constant bank 0 has 0x100 bytes"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_by_name(raw: Raw, fields: dict[str, int], says: str):
    if fields.get("shared_memory_size") == 1 << 17 and raw.emulated.chip.max_shared_bytes < 1 << 17:
        says = f"SHARED_MEMORY_SIZE is 131072, of {raw.emulated.chip.max_shared_bytes}"
    launch = touch(raw)
    launch.write(**fields)
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and says in line


@pytest.mark.parametrize("what", ["block", "grid", "local window", "stack pointer"])
def test_constant_bank_0_has_to_say_what_the_launch_is(raw: Raw, what: str):
    launch = touch(raw)
    places = dict(
        zip(("block", "grid", "shared window", "local window", "stack pointer"), BANKS[launch.layout.version])
    )
    at = places[what]
    launch.bank[at] ^= 0x40
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and f"constant bank 0 says at {at:#x} that the {what}" in line


@pytest.mark.parametrize("what", ["block", "grid"])
def test_what_the_kernel_does_not_read_may_be_left_out(raw: Raw, what: str):
    """A launcher whose compiler never reads a slot writes zeros there; a kernel that reads it is refused."""
    launch = touch(raw)
    at = BANKS[launch.layout.version][what == "grid"]
    launch.bank[at : at + 12] = 0
    do(raw, launch.words)
    assert raw.out.array()[0] == 7
    reader = TOUCH.replace(
        "st.global", f"mov.u32 %r1, %{'nctaid' if what == 'grid' else 'ntid'}.x;\n    st.global"
    )
    kernel = Loaded(raw, reader, "touch", 12)
    launch.write(program_address=kernel.program)
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and f"that the {what} is 0x0, 0x0, 0x0; it is 0x1, 0x1, 0x1" in line


def test_parameters_are_read_at_the_offset_of_the_generation(raw: Raw):
    """Bytes a little further are other parameters: the kernel's store goes astray."""
    launch = touch(raw)
    at = BANKS[launch.layout.version][5]
    launch.bank[at : at + 12] = 0
    raw.push(launch.words)
    xid, line = raw.fault()
    assert (
        xid == 31
        and "GPCCLIENT_T1_0 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE" in line
    )
    assert "kernel touch, PTX line" in line


def test_the_qmd_is_of_the_version_that_the_class_reads():
    raw = ready("nv:sm_90")
    launch = touch(raw)
    words = QmdV3.launch(program_address=raw.touch.program).words
    launch.memory.array()[:96] = 0
    launch.memory.array()[: len(words)] = words
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "says version 3.0; class 0xcbc0 reads 4.0" in line


def test_a_qmd_that_is_not_mapped_is_a_page_fault_of_the_scheduler(raw: Raw):
    raw.push([*methods(1, 0x2B4, 0x40_0000_0000 >> 8), *methods(1, 0x2C0, 10)])
    xid, line = raw.fault()
    assert xid == 31 and "HUBCLIENT_SKED faulted @ 0x40_00000000" in line


@pytest.mark.parametrize(
    ("change", "xid", "says"),
    [
        ({"program_address": 0x40_0000_0000}, 31, "GPCCLIENT_GCC faulted @ 0x40_00000000"),
        ({"constant_buffer_addr_0": 0x40_0000_0000}, 31, "GPCCLIENT_GCC faulted @ 0x40_00000000"),
    ],
)
def test_addresses_in_a_qmd_are_the_gpus(raw: Raw, change: dict[str, int], xid: int, says: str):
    launch = touch(raw)
    launch.write(**change)
    raw.push(launch.words)
    found, line = raw.fault()
    assert found == xid and says in line


def test_code_without_a_descriptor_is_not_run(raw: Raw):
    launch = touch(raw)
    raw.touch.memory.host[0x200 - 64] ^= 1
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "no descriptor of PTX lies before" in line


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ptx_crc32": 1}, "is damaged"),
        ({"ptx_bytes": 0}, "makes no sense"),
        ({"param_bytes": 4}, "the descriptor says 4 bytes of parameters; the PTX has 12"),
    ],
)
def test_a_descriptor_is_not_trusted(raw: Raw, changes: dict[str, int], says: str):
    kernel = Loaded(raw, TOUCH, "touch", 12)
    kernel.put(TOUCH.encode(), "touch", **{"param_bytes": 12, **changes})
    raw.push(Launch(raw, kernel.program, struct.pack("<QI", raw.out.va, 1)).words)
    xid, line = raw.fault()
    assert xid == 13 and says in line


def test_ptx_that_cannot_be_read_names_its_line(raw: Raw):
    kernel = Loaded(raw, TOUCH.replace("st.global.u32", "tex.global.u32"), "touch", 12)
    raw.push(Launch(raw, kernel.program, struct.pack("<QI", raw.out.va, 1)).words)
    xid, line = raw.fault()
    assert xid == 13 and "PTX line 11" in line


def test_windows_are_set_before_the_first_launch():
    raw = Raw().open_channel()
    raw.out = raw.memory(4096)
    raw.push([*methods(1, 0, raw.engines.compute), *touch(raw).words])
    xid, line = raw.fault()
    assert xid == 13 and "SET_SHADER_SHARED_MEMORY_WINDOW was never sent" in line


def test_memory_inside_a_window_cannot_be_reached(raw: Raw):
    inside = raw.allocate(4096)
    base = LOCAL_WINDOW + 0x10000
    raw.create_range(base, 4096)
    raw.map_gpu(Memory(inside, base, 4096, False))
    raw.push(touch(raw).words)
    xid, line = raw.fault()
    assert xid == 13 and "is mapped inside the local window" in line


def test_the_shared_window_is_aligned_to_4_gib_on_hopper():
    for word, is_fine in (("nv:sm_90", False), ("nv:sm_80", True)):
        raw = ready(word)
        launch = touch(raw)
        window = 0x70_1000_0000
        raw.push(methods(1, 0x2A0, window >> 32, window & 0xFFFFFFFF))
        if is_fine:
            launch.bank[0x18:0x20] = np.frombuffer(struct.pack("<Q", window), np.uint8)
            do(raw, launch.words)
        else:
            raw.push(launch.words)
            assert "is not aligned to 4 GiB" in raw.fault()[1]


def test_local_memory_has_to_be_given_before_a_qmd_asks_for_it(raw: Raw):
    launch = touch(raw, shader_local_memory_high_size=0x240)
    per_warp = -(-0x240 * 32 // 0x200) * 0x200
    per_tpc = -(-per_warp * raw.emulated.chip.warps_per_sm * 2 // 0x8000) * 0x8000
    memory = raw.memory(4 * per_tpc)
    give = [
        *methods(1, 0x790, memory.va >> 32, memory.va & 0xFFFFFFFF),
        *methods(1, 0x2E4, per_tpc >> 32, per_tpc & 0xFFFFFFFF, 0xFF),
    ]
    do(raw, [*give, *launch.words])
    launch.write(shader_local_memory_high_size=0x1240)
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "SKEDCHECK05_LOCAL_MEMORY_TOTAL_SIZE" in line


@pytest.mark.parametrize(
    ("counts", "lacking"),
    [
        (3, "MAX_SM_COUNT is 3; this GPU has 4"),
        (4, ""),
        (0xFFFF00FF, ""),
        (1 << 24 | 1 << 16 | 4, ""),
        (1 << 16 | 4, "MAX_SINGLETON_TPC_GPC_COUNT is 0; this GPU has 1"),
        (1 << 24 | 4, "MAX_PLURAL_TPC_GPC_COUNT is 0; this GPU has 1"),
    ],
)
def test_local_memory_is_for_as_many_units_as_there_are(counts: int, lacking: str):
    """Of two GPCs one has two TPCs and the other one; what is not said of them is not judged."""
    raw = ready("nv:sm_90")
    launch = touch(raw, shader_local_memory_high_size=0x240)
    memory = raw.memory(4 * 0x240000)
    give = [
        *methods(1, 0x790, memory.va >> 32, memory.va & 0xFFFFFFFF),
        *methods(1, 0x2E4, 0, 0x240000, counts),
    ]
    if not lacking:
        do(raw, [*give, *launch.words])
        return
    raw.push([*give, *launch.words])
    xid, line = raw.fault()
    assert xid == 13 and lacking in line


@pytest.mark.parametrize(("sass", "is_right"), [(0, True), (0x90, True), (0xC0, False)])
def test_a_qmd_says_for_which_sms_its_code_is_or_nothing(sass: int, is_right: bool):
    raw = ready("nv:sm_90")
    launch = touch(raw, sass_version=sass)
    if is_right:
        do(raw, launch.words)
        return
    raw.push(launch.words)
    xid, line = raw.fault()
    assert xid == 13 and "SASS_VERSION is 0xc0; the SMs are of 0x90" in line


# ------------------------------------------------------------ kernels that go wrong


def test_a_stray_store_is_a_page_fault_with_the_kernels_line(raw: Raw):
    raw.push(touch(raw, at=0x40_0000_0010).words)
    xid, line = raw.fault()
    assert xid == 31
    assert "ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x40_00000010" in line
    assert "ACCESS_TYPE_VIRT_WRITE" in line and "st.global.u32" in line
    assert raw.control(raw.channel, 0x906F0106).addrlo == 0x10


def test_a_misaligned_store_is_an_exception(raw: Raw):
    raw.push(touch(raw, at=raw.out.va + 2).words)
    xid, line = raw.fault()
    assert xid == 13 and "SM Warp Exception" in line
    debugger = raw.alloc(
        0x83DE, raw.device, "DebuggerAlloc", happclient=raw.client, hclass3dobject=raw.compute
    )
    state = raw.control(debugger, 0x83DE030C, htargetchannel=raw.channel, numsmstoread=1)
    assert state.smerrorstatearray >> 192 & (1 << 64) - 1 == raw.out.va + 2
    assert state.smerrorstatearray >> 256 & (1 << 64) - 1 == raw.touch.program
    esr = WarpEsr.decode([state.smerrorstatearray >> 32 & 0xFFFFFFFF])
    assert (esr.description, esr.wrap_id) == ("misaligned address", 0)
    last = raw.control(debugger, 0x83DE030C, htargetchannel=raw.channel, numsmstoread=1, startingsm=5)
    assert last.smerrorstatearray == 0


def test_a_kernel_that_does_not_end_hangs():
    raw = ready("nv:sm_90:steps=20000")
    kernel = Loaded(raw, ENDLESS, "endless", 0)
    raw.push(Launch(raw, kernel.program).words)
    xid, line = raw.fault()
    assert xid == 109 and "20000 instructions were not enough" in line


def test_a_grid_that_is_too_large_to_end_hangs():
    """The budget is the whole launch's: two thousand million blocks of a few instructions exceed it."""
    raw = ready("nv:sm_90:steps=500")
    raw.push(touch(raw, grid=(2**31 - 1, 1, 1)).words)
    xid, line = raw.fault()
    assert xid == 109 and "500 instructions were not enough" in line


def test_a_kernel_that_is_not_wanted_any_more_is_stopped():
    raw = ready("nv:sm_90")
    kernel = Loaded(raw, ENDLESS, "endless", 0)
    raw.push(Launch(raw, kernel.program).words)
    raw.until(lambda: raw.userd[0x88 // 4] == raw.put)
    raw.free(raw.group)  # returns: the kernel does not hold the GPU until its budget is spent
    assert not raw.emulated.fronts and raw.port.kernel_log() == []


# ------------------------------------------------------------ methods


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (methods(1, 0x3F00, 1), "has no method 0x3f00"),
        (methods(1, 0x2A0, 1 << 20), "has bits that SET_SHADER_SHARED_MEMORY_WINDOW_A has not"),
        (methods(1, 0x2C0, 4), "pcas_action=4 has no meaning"),
        (methods(1, 0x2C0, 6), "INCREMENT_PUT is not emulated"),
        (methods(1, 0x320, 1), "LOAD_INLINE_QMD_DATA is not emulated"),
        (methods(1, 0x1B00, 0, 3, 1, 1 << 28), "is not aligned"),
        (methods(1, 0x1B0, 0x40), "plain stores to a PITCH layout"),
        (methods(1, 0x1B0, 0x41), "LINE_LENGTH_IN or LINE_COUNT 0"),
        (methods(1, 0x4A0, 1), "has no method 0x04a0"),
    ],
)
def test_a_method_that_the_class_has_not_is_a_class_error(raw: Raw, words: list[int], says: str):
    raw.push(words)
    xid, line = raw.fault()
    assert xid == 69 and says in line


def test_a_method_of_later_classes_is_none_of_ga100s():
    raw = ready("nv:sm_80")
    raw.push(methods(1, 0x158, 1))
    assert raw.fault()[0] == 69
