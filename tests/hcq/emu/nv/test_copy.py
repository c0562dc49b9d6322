"""The emulated copy engine moves what it is told to, and says when it is done."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.status import NvStatus
from tests.hcq.emu.nv.raw import Memory, Raw, methods, refusal, release

NONE, PIPELINED, NON_PIPELINED = 0, 1, 2
FLUSH, ONE_WORD, FOUR_WORDS = 1 << 2, 1 << 3, 2 << 3
SRC_PITCH, DST_PITCH, MULTI_LINE, REMAP = 1 << 7, 1 << 8, 1 << 9, 1 << 10
LINEAR = SRC_PITCH | DST_PITCH
ARCHS = ["nv:sm_80", "nv:sm_89", "nv:sm_90", "nv:sm_100", "nv:sm_120:seed=5"]
FURTHER = ("nv:sm_89", "nv:sm_100")  # copies as on the generation before


@pytest.fixture(
    params=[pytest.param(word, marks=[pytest.mark.thorough] * (word in FURTHER)) for word in ARCHS]
)
def raw(request: pytest.FixtureRequest) -> Raw:
    return ready(request.param)


def ready(*words: str) -> Raw:
    made = Raw(*words).open_channel()
    made.sem = made.memory(4096)
    made.push(methods(4, 0, made.engines.copy))
    return made


def where(source: int, target: int) -> list[int]:
    return methods(4, 0x400, source >> 32, source & 0xFFFFFFFF, target >> 32, target & 0xFFFFFFFF)


def copy(source: int, target: int, size: int, flags: int = NON_PIPELINED | LINEAR) -> list[int]:
    return [*where(source, target), *methods(4, 0x418, size), *methods(4, 0x300, flags)]


def signal(raw: Raw, value: int, flags: int = FLUSH | FOUR_WORDS, at: int = 0) -> list[int]:
    va = raw.sem.va + at
    return [*methods(4, 0x240, va >> 32, va & 0xFFFFFFFF, value), *methods(4, 0x300, flags)]


def do(raw: Raw, words: list[int]) -> None:
    """Until the copy engine's own semaphore says that it is done."""
    value = int(raw.sem.array()[0]) + 1
    raw.push([*words, *signal(raw, value)])
    raw.until(lambda: raw.sem.array()[0] == value)


def filled(raw: Raw, size: int, is_video: bool = False) -> Memory:
    made = raw.memory(size, is_video=is_video)
    made.host[:] = np.random.default_rng(size).integers(0, 256, made.size_bytes)
    return made


def test_bytes_arrive_between_all_kinds_of_memory(raw: Raw):
    system, video = filled(raw, 1 << 16), raw.memory(1 << 16, is_video=True)
    back = raw.memory(1 << 16)
    do(raw, [*copy(system.va + 3, video.va + 7, 50001), *copy(video.va + 7, back.va + 1, 50001)])
    assert (back.host[1:50002] == system.host[3:50004]).all()
    assert not back.host[50002:].any() and back.host[0] == 0


def test_a_copy_may_cross_mappings_that_are_neighbours(raw: Raw):
    source = filled(raw, 16384)
    parts = [raw.allocate(8192) for _ in range(2)]
    base = raw.take(16384)
    raw.create_range(base, 16384)
    for number, handle in enumerate(parts):
        raw.map_gpu(Memory(handle, base + 8192 * number, 8192, False))
    back = raw.memory(16384)
    do(raw, [*copy(source.va, base, 16384), *copy(base, back.va, 16384)])
    assert (back.host == source.host).all()


def test_lines_have_pitches(raw: Raw):
    source, target = filled(raw, 4096), raw.memory(4096)
    do(
        raw,
        [
            *where(source.va, target.va + 2),
            *methods(4, 0x410, 64, 100, 30, 7),
            *methods(4, 0x300, NON_PIPELINED | LINEAR | MULTI_LINE),
        ],
    )
    wanted = np.zeros(4096, np.uint8)
    for line in range(7):
        wanted[2 + 100 * line : 32 + 100 * line] = source.host[64 * line : 64 * line + 30]
    assert (target.host == wanted).all()


def test_without_multi_line_the_count_of_lines_means_nothing(raw: Raw):
    source, target = filled(raw, 4096), raw.memory(4096)
    do(raw, [*methods(4, 0x410, 64, 64, 0, 9), *copy(source.va, target.va, 16)])
    assert (target.host[:16] == source.host[:16]).all() and not target.host[16:].any()


@pytest.mark.parametrize(("size", "dtype"), [(1, "u1"), (2, "u2"), (4, "u4")])
def test_constants_fill_memory_by_elements(raw: Raw, size: int, dtype: str):
    target = raw.memory(4096)
    components = 4 | (size - 1) << 16  # x is constant A
    do(
        raw,
        [
            *methods(4, 0x700, 0xA1B2C3D4, 0, components),
            *where(0, target.va + 16),
            *methods(4, 0x418, 100),
            *methods(4, 0x300, NON_PIPELINED | DST_PITCH | SRC_PITCH | REMAP | FLUSH),
        ],
    )
    found = target.array(dtype)
    at = 16 // size
    assert (found[at : at + 100] == 0xA1B2C3D4 % (1 << 8 * size)).all()
    assert found[at - 1] == found[at + 100] == 0


def test_components_are_taken_from_the_source_the_constants_or_left_alone(raw: Raw):
    source, target = raw.memory(4096), raw.memory(4096)
    source.array()[:8] = np.arange(8)
    target.array()[:16] = 99
    # x from the source's y, y from constant B, z stays, w from the source's x; 4 bytes, 2 components to 4
    components = 1 | 5 << 4 | 6 << 8 | 0 << 12 | 3 << 16 | 1 << 20 | 3 << 24
    do(
        raw,
        [
            *methods(4, 0x700, 1, 55, components),
            *where(source.va, target.va),
            *methods(4, 0x418, 4),
            *methods(4, 0x300, NON_PIPELINED | LINEAR | REMAP),
        ],
    )
    assert target.array()[:16].reshape(4, 4).tolist() == [[2 * n + 1, 55, 99, 2 * n] for n in range(4)]


def test_a_semaphore_of_one_word_stores_one_word(raw: Raw):
    raw.sem.array()[5] = 0xEEEEEEEE
    raw.push(signal(raw, 9, FLUSH | ONE_WORD, at=16))
    raw.until(lambda: raw.sem.array()[4] == 9)
    assert raw.sem.array()[5] == 0xEEEEEEEE


def test_a_semaphore_of_four_words_has_the_time(raw: Raw):
    before = raw.emulated.time_ns()
    raw.push(signal(raw, 9))
    raw.until(lambda: raw.sem.array()[0] == 9)
    assert before <= raw.sem.array("u8")[1] <= raw.emulated.time_ns()


def test_a_semaphore_may_count(raw: Raw):
    increment = FLUSH | ONE_WORD | 5 << 14 | 1 << 18 | 1 << 19  # IADD
    for _ in range(3):
        raw.push(signal(raw, 2, increment, at=32))
    raw.until(lambda: raw.sem.array()[8] == 6)


def test_a_copy_that_rendering_is_off_for_does_nothing(raw: Raw):
    source, target = filled(raw, 4096), raw.memory(4096)
    do(raw, [*methods(4, 0x25C, 0), *copy(source.va, target.va, 64)])
    assert not target.host.any()


def test_a_page_fault_names_the_engine_and_the_address(raw: Raw):
    source = filled(raw, 4096)
    raw.push([*copy(source.va + 4000, 0x40_0000_0000, 64), *release(raw.sem.va, 1)])
    xid, line = raw.fault()
    assert xid == 31
    assert (
        "ENGINE CE0 HUBCLIENT_CE0 faulted @ 0x40_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
        in line
    )
    assert raw.sem.array()[0] == 0


def test_a_copy_beyond_its_memory_faults_at_the_first_byte_that_is_not_there(raw: Raw):
    source, target = filled(raw, 4096), raw.memory(8192)
    raw.push([*copy(source.va, target.va, 4097), *release(raw.sem.va, 1)])
    xid, line = raw.fault()
    assert xid == 31 and f"{source.va + 4096 & 0xFFFFFFFF:08x}" in line and "VIRT_READ" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (methods(4, 0x300, NON_PIPELINED | LINEAR | 1 << 12), "PHYSICAL"),
        (methods(4, 0x300, NON_PIPELINED | SRC_PITCH), "dst_memory_layout=BLOCKLINEAR"),
        (methods(4, 0x300, NON_PIPELINED | DST_PITCH), "src_memory_layout=BLOCKLINEAR"),
        (methods(4, 0x300, FLUSH | 3 << 3), "CONDITIONAL"),
        (methods(4, 0x25C, 2) + methods(4, 0x300, NON_PIPELINED | LINEAR), "conditions are not emulated"),
        (methods(4, 0x104, 1), "has no method 0x0104"),
        (methods(4, 0x2B4, 1), "has no method 0x02b4"),
    ],
)
def test_what_the_engine_does_not_do_stops_the_channel(raw: Raw, words: list[int], says: str):
    raw.push(words)
    xid, line = raw.fault()
    assert xid == 39 and says in line


def test_an_address_of_57_bits_is_hoppers():
    for word, xid in (("nv:sm_80", 39), ("nv:sm_90", 31)):
        raw = ready(word)
        raw.push([*copy(1 << 52, 0, 16), *release(raw.sem.va, 1)])
        assert raw.fault()[0] == xid


def test_a_copy_channel_of_its_own_reports_its_engine():
    raw = Raw("nv:sm_90").open_uvm()
    raw.ring, raw.notifier, raw.sem = raw.memory(1 << 16), raw.memory(4096), raw.memory(4096)
    raw.group = raw.alloc(0xA06C, raw.device, "ChannelGroupAlloc", enginetype=9 + 2, hvaspace=raw.space)
    raw.share = 0
    raw.add_channel()
    raw.copy = raw.alloc(raw.engines.copy, raw.channel, "CopyAlloc", version=1, enginetype=11)
    raw.register_channel(base=0, length=0)
    raw.schedule()
    source, target = filled(raw, 4096), raw.memory(4096)
    raw.push(methods(4, 0, raw.engines.copy))
    do(raw, copy(source.va, target.va, 4096))
    assert (target.host == source.host).all()
    raw.push(methods(4, 0x104, 1))
    assert raw.fault()[0] == 41  # ROBUST_CHANNEL_CE2_ERROR


def test_other_gpus_video_memory_is_copied_once_peers_are_enabled():
    words = ("nv:sm_90", "nv:sm_90")
    raw = Raw(*words).open_channel()
    raw.sem = raw.memory(4096)
    other = raw.rm.gpus[1]
    fd = raw.port.open(f"/dev/nvidia{other.minor}")
    raw.call(fd, abi.REGISTER_FD, ctl_fd=raw.ctl)
    mine = raw.device, raw.uuid
    device = raw.alloc(0x80, raw.client, "DeviceAlloc", deviceid=1)
    uuid = int.from_bytes(other.uuid, "little")
    raw.call(raw.uvm, abi.UVM_REGISTER_GPU, gpu_uuid=uuid, rmctrlfd=0xFFFFFFFF)
    raw.device = device
    video = raw.allocate(1 << 16, is_video=True)
    base = raw.take(1 << 16)
    raw.create_range(base, 1 << 16)
    memory = Memory(video, base, 1 << 16, True)
    raw.device, raw.uuid = mine
    assert refusal(raw.map_gpu, memory) == NvStatus.NV_ERR_INVALID_DEVICE
    raw.call(raw.uvm, abi.UVM_ENABLE_PEER_ACCESS, gpuuuida=raw.uuid, gpuuuidb=uuid)
    raw.map_gpu(memory)
    source, back = filled(raw, 1 << 16), raw.memory(1 << 16)
    raw.push(methods(4, 0, raw.engines.copy))
    do(raw, [*copy(source.va, base, 1 << 16), *copy(base, back.va, 1 << 16)])
    assert (back.host == source.host).all()


def test_with_a_seed_a_semaphore_without_a_flush_may_come_before_the_copy():
    """The copy reads the semaphore itself, so it tells which was first."""
    first = []
    for seed in range(12):
        raw = ready(f"nv:sm_90:seed={seed}")
        target = raw.memory(4096)
        raw.push([*copy(raw.sem.va, target.va, 4), *signal(raw, 1, ONE_WORD), *release(raw.sem.va + 16, 1)])
        raw.until(lambda raw=raw: raw.sem.array()[4] == 1)
        first.append(int(target.array()[0]))
        raw.end()
    assert set(first) == {0, 1}
    for seed in range(6):
        raw = ready(f"nv:sm_90:seed={seed}")
        target = raw.memory(4096)
        raw.push([*copy(raw.sem.va, target.va, 4), *signal(raw, 1, FLUSH | ONE_WORD)])
        raw.until(lambda raw=raw: raw.sem.array()[0] == 1)
        assert target.array()[0] == 0
        raw.end()


WFI_OF_HOST, COMPUTE_NOP = methods(0, 0x78, 1), methods(1, 0x100, 0)


def test_wfi_waits_for_the_engine_that_was_sent_methods_last_and_for_no_other():
    """dev_pbdma.ref. After a copy and a method of another engine WFI does not wait for the copy any more.

    The copy reads what is released behind the WFI, so it tells which was first.
    """

    def is_copied(seed: int, between: list[int]) -> bool:
        raw = ready(f"nv:sm_90:seed={seed}")
        raw.push(methods(1, 0, raw.engines.compute))
        target, released = raw.memory(4096), raw.sem.va + 16
        behind = [*WFI_OF_HOST, *release(released, 1), *signal(raw, 2, FLUSH | ONE_WORD)]
        raw.push([*copy(released, target.va, 4), *between, *behind])
        raw.until(lambda: raw.sem.array()[0] == 2)
        found = int(target.array()[0]) == 0
        raw.end()
        return found

    assert {is_copied(seed, []) for seed in range(8)} == {True}
    assert {is_copied(seed, COMPUTE_NOP) for seed in range(24)} == {False, True}
