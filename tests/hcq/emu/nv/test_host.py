"""The front end of an emulated channel: ring entries, headers, host methods, and what stops a channel."""

from __future__ import annotations

import copy

import pytest

from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.gpfifo import GpControl, GpOpcode
from hcq.nv.abi.status import NvStatus as S
from tests.hcq.emu.nv.raw import ENTRIES, USERD_AT, WINDOW, WINDOW_BYTES, Raw, methods, refusal, release

WFI, CLASS_SIZE_64, TIMESTAMP = 1 << 20, 1 << 24, 1 << 25
ACQUIRE, RELEASE, STRICT_GEQ, CIRC_GEQ, AND, NOR, REDUCTION = range(7)


@pytest.fixture(params=["nv:sm_80", "nv:sm_90", "nv:sm_120:seed=3"])
def raw(request: pytest.FixtureRequest) -> Raw:
    return Raw(request.param).open_channel()


@pytest.fixture
def sem(raw: Raw):
    return raw.memory(4096)


# ------------------------------------------------------------ semaphores


def test_a_release_stores_its_payload_and_nothing_else(raw: Raw, sem):
    sem.array()[:8] = 0xEEEEEEEE
    raw.push(release(sem.va + 4, 42, RELEASE))
    raw.until(lambda: sem.array()[1] == 42)
    assert sem.array()[0] == sem.array()[2] == 0xEEEEEEEE


def test_a_release_of_64_bits_stores_both_words(raw: Raw, sem):
    raw.push(release(sem.va, 0x1_0000_0002, RELEASE | CLASS_SIZE_64))
    raw.until(lambda: sem.array("u8")[0] == 0x1_0000_0002)


def test_a_timestamp_is_the_gpus_clock_and_lies_behind_the_payload(raw: Raw, sem):
    sem.array()[1] = 0xEEEEEEEE
    before = raw.emulated.time_ns()
    raw.push(release(sem.va, 7, RELEASE | WFI | TIMESTAMP))
    raw.until(lambda: sem.array()[0] == 7)
    assert sem.array()[1] == 0
    assert before <= sem.array("u8")[1] <= raw.emulated.time_ns()


@pytest.mark.parametrize(
    ("operation", "payload", "too_little", "enough"),
    [
        (ACQUIRE, 5, 6, 5),
        (STRICT_GEQ, 5, 4, 9),
        (CIRC_GEQ, 5, 4, 5),
        (CIRC_GEQ, 3, 0xFFFFFFF0, 4),
        (AND, 6, 8, 12),
        (NOR, 0xFFFF0000, 0xFFFF, 0xFF),
    ],
)
def test_an_acquire_waits_until_its_condition_holds(raw: Raw, sem, operation, payload, too_little, enough):
    sem.array()[0] = too_little
    raw.push([*release(sem.va, payload, operation), *release(sem.va + 16, 1, RELEASE)])
    raw.push(release(sem.va + 32, 1, RELEASE))
    raw.until(lambda: raw.userd[0x88 // 4] == 1, "the first entry to be fetched")
    assert sem.array()[4] == sem.array()[8] == 0
    sem.array()[0] = enough
    raw.until(lambda: sem.array()[8] == 1)
    assert sem.array()[4] == 1


def test_an_acquire_of_64_bits_looks_at_both_words(raw: Raw, sem):
    sem.array("u8")[0] = 5
    raw.push([*release(sem.va, 1 << 32, STRICT_GEQ | CLASS_SIZE_64), *release(sem.va + 16, 1, RELEASE)])
    raw.until(lambda: raw.userd[0x88 // 4] == 1)
    assert sem.array()[4] == 0
    sem.array("u8")[0] = 1 << 33
    raw.until(lambda: sem.array()[4] == 1)


@pytest.mark.parametrize(
    ("number", "is_unsigned", "old", "payload", "new"),
    [
        (0, 0, 5, 0xFFFFFFFF, 0xFFFFFFFF),
        (0, 1, 5, 0xFFFFFFFF, 5),
        (1, 0, 5, 0xFFFFFFFF, 5),
        (2, 1, 6, 3, 5),
        (3, 1, 6, 3, 2),
        (4, 1, 6, 3, 7),
        (5, 1, 0xFFFFFFFF, 3, 2),
        (6, 1, 3, 3, 0),
        (6, 1, 2, 3, 3),
        (7, 1, 0, 3, 3),
        (7, 1, 2, 3, 1),
    ],
)
def test_a_reduction_replaces_a_number(raw: Raw, sem, number, is_unsigned, old, payload, new):
    sem.array()[0] = old
    raw.push(
        [*release(sem.va, payload, REDUCTION | number << 27 | is_unsigned << 31), *release(sem.va + 16, 1)]
    )
    raw.until(lambda: sem.array()[4] == 1)
    assert sem.array()[0] == new


def test_the_older_semaphore_releases_and_acquires(raw: Raw, sem):
    va = sem.va
    older = lambda at, payload, how: methods(0, 0x10, at >> 32, at & 0xFFFFFFFF, payload, how)  # noqa: E731
    raw.push([*older(va, 9, 2 | 1 << 24), *older(va, 9, 1), *older(va + 16, 3, 2)])
    raw.until(lambda: sem.array()[4] == 3)
    assert sem.array()[0] == 9 and sem.array("u8")[3] > 0


@pytest.mark.parametrize("control", [RELEASE | CLASS_SIZE_64, RELEASE | TIMESTAMP])
def test_a_semaphore_is_aligned_to_its_size(raw: Raw, sem, control: int):
    raw.push(release(sem.va + 4, 1, control))
    xid, line = raw.fault()
    assert xid == 32 and "are not aligned there" in line


def test_addresses_of_semaphores_have_40_bits_on_ampere_and_57_on_hopper():
    for word, xid in (("nv:sm_80", 32), ("nv:sm_90", 31)):
        raw = Raw(word).open_channel()
        raw.push(release(1 << 45, 1))
        assert raw.fault()[0] == xid


# ------------------------------------------------------------ entries and headers


def test_entries_are_fetched_in_order_around_the_ring(raw: Raw, sem):
    for number in range(3 * ENTRIES // 2):
        raw.push(release(sem.va, number + 1, RELEASE), ring=number % 5 == 4)
        if number % 5 == 4:
            raw.until(lambda number=number: sem.array()[0] == number + 1)
    raw.push(release(sem.va, 999, RELEASE))
    raw.until(lambda: sem.array()[0] == 999)
    raw.until(lambda: raw.userd[0x88 // 4] == raw.put)


def test_a_doorbell_that_is_not_rung_starts_nothing(raw: Raw, sem):
    raw.push(release(sem.va, 1, RELEASE), ring=False)
    raw.registers[0x90 // 4] = 0x12345
    raw.until(lambda: "no channel's token" in "".join(raw.port.kernel_log()))
    assert sem.array()[0] == 0
    raw.registers[0x90 // 4] = raw.token
    raw.until(lambda: sem.array()[0] == 1)


def test_work_of_a_channel_that_is_not_scheduled_waits(sem, raw: Raw):
    raw.control(raw.group, 0xA06C0101, benable=0)
    raw.push(release(sem.va, 1, RELEASE))
    raw.until(lambda: raw.registers[0x90 // 4] == 0, "the token to be taken")
    assert sem.array()[0] == 0
    raw.schedule()
    raw.until(lambda: sem.array()[0] == 1)


def test_every_kind_of_header_writes_where_it_says(raw: Raw, sem):
    va = sem.va
    head = lambda how, count, address: how << 29 | count << 16 | address >> 2  # noqa: E731
    raw.push(
        [
            0,  # a header of zero is a no-op
            *methods(0, 0x5C, va & 0xFFFFFFFF, va >> 32),
            head(3, 2, 0x64),  # twice to the same method: the last stays
            1,
            21,
            head(4, 0, 0x68),  # an immediate
            head(5, 2, 0x68),  # the first here, the others behind
            0,
            RELEASE,
            head(7, 0, 0),  # the end: what follows is not read
            0xFFFFFFFF,
        ]
    )
    raw.push(release(va + 4, 1, RELEASE))
    raw.until(lambda: sem.array()[1] == 1)
    assert sem.array()[0] == 21


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([2 << 29], "is no header"),
        ([6 << 29], "is no header"),
        ([0x5], "is no header"),
        ([1 << 29 | 5 << 16 | 0x5C >> 2, 1, 2], "promises 5 words; 2 are left"),
        (methods(0, 0x04, 1), "method ILLEGAL"),
        (methods(0, 0x84, 1), "CLEAR_FAULTED is the kernel driver's"),
        (methods(0, 0x54, 1), "has no method 0x0054"),
        (methods(0, 0x6C, 7), "operation=7 has no meaning"),
        (methods(0, 0x6C, 1 << 8), "has bits that SEM_EXECUTE has not"),
        (methods(0, 0x34, 22 << 27), "operation=22 has no meaning"),
        (methods(5, 0x100, 1), "on subchannel 5, where no class is bound"),
        (methods(4, 0, 0xC7C0), "the channel has no such object"),
    ],
)
def test_a_pushbuffer_that_makes_no_sense_stops_the_channel(raw: Raw, words: list[int], says: str):
    raw.push(words)
    xid, line = raw.fault()
    assert says in line
    assert xid == (69 if "object" in says else 32)


def test_a_copy_class_belongs_on_subchannel_four(raw: Raw):
    raw.push(methods(1, 0, raw.engines.copy))
    assert "a copy class belongs on 4" in raw.fault()[1]


def test_a_segment_that_is_not_mapped_is_a_page_fault(raw: Raw):
    raw.enter(0x40_0000_0000, 4)
    xid, line = raw.fault()
    assert (
        xid == 31
        and "HUBCLIENT_HOST faulted @ 0x40_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ" in line
    )


def test_a_ring_that_is_not_mapped_is_a_page_fault():
    raw = Raw().open_channel(gpfifooffset=0x40_0000_0000)
    raw.userd[0x8C // 4] = 1
    raw.registers[0x90 // 4] = raw.token
    xid, line = raw.fault()
    assert xid == 31 and "0x40_00000000" in line


def test_gp_put_beyond_the_ring_stops_the_channel(raw: Raw):
    raw.userd[0x8C // 4] = ENTRIES
    raw.registers[0x90 // 4] = raw.token
    assert raw.fault()[0] == 32


def test_a_new_channels_ring_is_empty_whatever_was_in_its_userd():
    raw = Raw().open_uvm()
    raw.ring, raw.notifier, sem = raw.memory(1 << 16), raw.memory(4096), raw.memory(4096)
    raw.ring.host[:] = 0xA5
    raw.add_group()
    raw.add_channel()
    assert not raw.userd.any() and raw.ring.host[0] == 0xA5
    raw.add_objects()
    raw.register_channel()
    raw.schedule()
    raw.push(release(sem.va, 1, RELEASE))
    raw.until(lambda: sem.array()[0] == 1)


def test_an_entry_of_length_zero_is_an_operation(raw: Raw, sem):
    raw.enter_raw(GpControl(opcode=GpOpcode.NOP).words)
    raw.push(release(sem.va, 1, RELEASE))
    raw.until(lambda: sem.array()[0] == 1)
    raw.enter_raw(GpControl(opcode=GpOpcode.ILLEGAL).words)
    assert raw.fault()[0] == 32


def test_an_extended_base_is_hoppers():
    for word, xid in (("nv:sm_90", 31), ("nv:sm_86", 32)):
        raw = Raw(word).open_channel()
        raw.enter_raw(
            GpControl(opcode=GpOpcode.SET_PB_SEGMENT_EXTENDED_BASE, operand=3 << 8).words, ring=False
        )
        raw.enter(raw.ring.va, 4)
        found, line = raw.fault()
        assert found == xid
        high = (raw.ring.va | 3 << 40) >> 32
        assert xid != 31 or f"{high:#x}_" in line  # the segment's own address, 3 << 40 higher


def test_host_methods_that_only_wait_or_flush_do_no_harm(raw: Raw, sem):
    words = [
        *methods(0, 0x08, 1),
        *methods(0, 0x20, 0, 0),
        *methods(0, 0x28, 0, 0, 0, 5 << 27),  # a membar
        *methods(0, 0x28, 0, 0, 1, 9 << 27),  # a TLB invalidation
        *methods(0, 0x78, 1),
        *methods(0, 0x80, 3),
        *methods(0, 0x50, 77),
        *release(sem.va, 1),
    ]
    raw.push(words)
    raw.until(lambda: sem.array()[0] == 1)
    assert raw.userd[0x48 // 4] == 77


# ------------------------------------------------------------ after an error


def test_the_whole_group_stops_and_says_so_everywhere(raw: Raw, sem):
    raw.enter(0x40_0000_0000, 4)
    line = raw.fault()[1]
    assert "Xid (PCI:0000:01:00): 31" in line and "pid=" in line
    assert raw.notifier.array("u8")[0] > 0
    fault = raw.control(raw.channel, 0x906F0106)
    assert (fault.addrhi, fault.addrlo, fault.faulttype) == (0x40, 0, 0)
    raw.push(release(sem.va, 1, RELEASE))
    raw.until(lambda: raw.registers[0x90 // 4] == 0, "the token to be taken")
    assert sem.array()[0] == 0
    assert refusal(raw.schedule) == S.NV_ERR_RC_ERROR
    assert refusal(raw.add_channel) == S.NV_ERR_RC_ERROR


def test_a_debugger_tells_the_fault():
    raw = Raw().open_channel()
    debugger = raw.alloc(
        0x83DE, raw.device, "DebuggerAlloc", happclient=raw.client, hclass3dobject=raw.compute
    )
    assert raw.control(debugger, 0x83DE0328).count == 0
    raw.enter(0x40_0000_0000, 4)
    raw.fault()
    found = raw.control(debugger, 0x83DE0328)
    entry = found.mmufaultinfolist
    assert (found.count, entry & (1 << 64) - 1) == (1, 0x40_0000_0000)
    assert raw.control(debugger, 0x83DE030C, htargetchannel=raw.channel, numsmstoread=1).mmufault_valid == 1


def test_a_new_group_works_after_an_error(raw: Raw, sem):
    raw.enter(0x40_0000_0000, 4)
    raw.fault()
    raw.call(raw.uvm, abi.UVM_UNREGISTER_CHANNEL, gpuuuid=raw.uuid, hclient=raw.client, hchannel=raw.channel)
    raw.free(raw.group)
    raw.ring.host[:] = 0
    raw.notifier.host[:] = 0
    raw.add_group()
    raw.add_channel()
    raw.add_objects()
    raw.register_channel()
    raw.schedule()
    raw.push(release(sem.va, 3, RELEASE))
    raw.until(lambda: sem.array()[0] == 3)
    assert raw.notifier.array()[3] == 0


def test_channels_of_other_groups_go_on(raw: Raw, sem):
    first, first_put, first_token = raw.ring, raw.put, raw.token
    broken_notifier = raw.notifier
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    raw.ring.host[:] = 0
    raw.add_group()
    raw.add_channel()
    raw.add_objects()
    raw.register_channel(base=0x11_0000_0000)
    raw.schedule()
    first.array()[2 * first_put : 2 * first_put + 2] = (0x100, 4 << 10)
    first.host[USERD_AT : USERD_AT + 512].view("u4")[0x8C // 4] = first_put + 1
    raw.registers[0x90 // 4] = first_token
    raw.until(lambda: broken_notifier.array("u2")[7] == 0xFFFF)
    raw.push(release(sem.va, 3, RELEASE))
    raw.until(lambda: sem.array()[0] == 3)
    assert raw.notifier.array("u2")[7] == 0


def test_two_channels_meet_at_a_semaphore(raw: Raw, sem):
    """The first waits for the second, which is rung later."""
    raw.push([*release(sem.va, 1, ACQUIRE), *release(sem.va + 16, 2, RELEASE)])
    raw.until(lambda: raw.userd[0x88 // 4] == 1)
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    raw.ring.host[:] = 0
    raw.add_group()
    raw.add_channel()
    raw.add_objects()
    raw.register_channel(base=0x11_0000_0000)
    raw.schedule()
    raw.push(release(sem.va, 1, RELEASE))
    raw.until(lambda: sem.array()[4] == 2)


@pytest.mark.parametrize("seed", range(4))
def test_channels_take_turns_in_any_order_and_each_keeps_its_own(seed: int):
    first = Raw(f"nv:sm_90:seed={seed}").open_channel()
    channels = [first]
    for number in range(1, 4):
        one = copy.copy(first)  # the same process, with a channel of its own
        one.ring, one.notifier = one.memory(1 << 16), one.memory(4096)
        one.add_group()
        one.add_channel()
        one.add_objects()
        one.register_channel(base=WINDOW + number * WINDOW_BYTES)
        one.schedule()
        channels.append(one)
    cells = [one.memory(4096) for one in channels]
    for step in range(24):
        for one, cell in zip(channels, cells):
            one.push(release(cell.va + 16 * step, step + 1, RELEASE | TIMESTAMP), ring=step % 3 == 2)
    for one, cell in zip(channels, cells):
        one.until(lambda cell=cell: cell.array()[4 * 23] == 24)
    stamps = [cell.array("u8")[1:48:2].tolist() for cell in cells]
    assert all(own == sorted(own) for own in stamps)
    together = sorted((stamp, number) for number, own in enumerate(stamps) for stamp in own)
    turns = sum(one[1] != other[1] for one, other in zip(together, together[1:]))
    assert turns > len(channels)  # they did not run one after the other
