"""AQL as AMD's runtime sends it: barriers on values, scratch memory on demand, times, doorbells out of order."""

from __future__ import annotations

import platform
import struct
import threading
from typing import Any

import numpy as np
import pytest

from hcq.amd.abi import aql, sdma
from hcq.amd.abi.descriptor import SIZE_BYTES, KernelDescriptor
from hcq.amd.abi.kfd import ContextSaveAreaHeader
from hcq.emu.amd.dispatch import Dispatch, dispatch_from_aql
from hcq.emu.amd.process_gpu import ILLEGAL_INSTRUCTION, TRAP, QueueStopped
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.memory import SharedRange, aligned_words
from hcq.emu.shader import compare_exchange
from tests.hcq.emu.amd.rig import DATA, QUEUE, SAVE_AREA, Rig, all_steps

NEVER = 2**64 - 1
# what ROCr sends after every code object: ACQUIRE_MEM of instruction caches
INVALIDATE = {
    "gfx1100": (0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 0, 0x4381),
    "gfx90a": (0xC0055800, 0x28840000, 0xFFFFFFFF, 0xFF, 0, 0, 0),
    "gfx942": (0xC0055800, 0x28840000, 0xFFFFFFFF, 0xFF, 0, 0, 0),
}


@pytest.mark.parametrize(
    ("condition", "value", "mask", "reference", "over"),
    [
        (aql.Condition.EQ, 5, NEVER, 5, True),
        (aql.Condition.EQ, 5, NEVER, 6, False),
        (aql.Condition.NE, 5, NEVER, 5, False),
        (aql.Condition.LT, -1, NEVER, 0, True),  # signed
        (aql.Condition.GTE, -1, NEVER, 0, False),
        (aql.Condition.EQ, 0x1234, 0xFF, 0x34, True),
        (aql.Condition.GTE, 7, NEVER, 7, True),
    ],
)
def test_a_barrier_on_a_value_compares_what_its_mask_leaves(
    condition: aql.Condition, value: int, mask: int, reference: int, over: bool
) -> None:
    rig = Rig()
    queue = rig.aql()
    packet = aql.BarrierValue(
        signal=rig.signal(0, value), mask=mask, value=reference & 2**64 - 1, cond=condition
    )
    words = list(packet.words)
    for garbage in (1, 9, 10, 11, 12, 13):  # what the runtime leaves in reserved words
        words[garbage] = 0xDEADBEEF
    assert not aql.decode_one(words).unclaimed  # lint has nothing to say about them, either
    rig.submit(queue, words)
    assert all_steps(queue) == over


def test_a_queue_reads_from_0_on_whatever_the_memory_of_its_read_pointer_holds() -> None:
    rig = Rig()
    queue = rig.aql(read_dispatch_id=7)
    rig.submit(queue, aql.BarrierAnd(completion_signal=rig.signal(0, 1)))
    assert all_steps(queue) == 1
    assert rig.value(DATA) == 0
    assert rig.vm.load64(queue.rptr_va) == 1


def test_a_barrier_on_a_value_without_a_signal_is_over_and_one_with_no_condition_stops_the_queue() -> None:
    rig = Rig()
    queue = rig.aql(queue_inactive_signal=rig.signal(0, 0))
    rig.submit(queue, aql.BarrierValue(), aql.BarrierValue(signal=rig.signal(64, 0), cond=9))
    assert queue.step()
    with pytest.raises(QueueStopped, match="no such condition"):
        queue.step()
    assert rig.value(DATA) == 0x20


def test_a_barrier_on_any_signal_waits_for_one_and_a_barrier_on_all_for_all() -> None:
    rig = Rig()
    queue = rig.aql()
    one, other, done = rig.signal(0, 1), rig.signal(64, 1), rig.signal(128, 1)
    rig.submit(
        queue,
        aql.BarrierOr(dep_signal_0=one, dep_signal_3=other, completion_signal=done),
        aql.BarrierAnd(dep_signal_0=one, dep_signal_3=other, completion_signal=done),
    )
    assert not queue.step()
    rig.signal(64, 0)
    assert all_steps(queue) == 1
    assert rig.value(done) == 0
    rig.signal(0, 0)
    assert all_steps(queue) == 1
    assert rig.value(done) == NEVER  # decremented twice


@pytest.mark.parametrize("arch", INVALIDATE)
def test_the_runtimes_invalidation_of_instruction_caches_is_executed(arch: str) -> None:
    rig = Rig(f"amd:{arch}")
    queue = rig.aql()
    words = INVALIDATE[arch]
    rig.store(DATA + 4096, struct.pack(f"<{len(words)}I", *words))
    done = rig.signal(0, 1)
    packet = aql.Pm4Ib(ib_base=DATA + 4096, ib_size=len(words), completion_signal=done)
    rig.submit(queue, packet)
    all_steps(queue)
    assert rig.value(done) == 0


def test_times_are_stored_where_profiling_is_enabled_and_only_there() -> None:
    for enabled in (0, 1):
        rig = Rig()
        queue = rig.aql(enable_profiling=enabled)
        done = rig.signal(0, 1)
        rig.submit(queue, aql.BarrierAnd(completion_signal=done))
        all_steps(queue)
        start, end = struct.unpack_from("<QQ", rig.read(done, 64), aql.AmdSignal.start_ts.byte_offset)
        assert bool(start) == bool(end) == bool(enabled)
        assert start <= end


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no code of this machine here")
def test_no_decrement_is_lost_where_the_host_adds_to_the_same_signal() -> None:
    count, far = 400, DATA + 0x1000_0000
    rig = Rig()
    memory = np.zeros(4096, np.uint8)
    rig.vm.insert(SharedRange(memory, aligned_words(far, memory), far, far + 4096, True, "of the host"))
    queue = rig.aql()
    value = aql.AmdSignal.value.byte_offset

    def host() -> None:
        for _ in range(count):
            compare_exchange.add(memory.ctypes.data + value, 1)

    other = threading.Thread(target=host)
    other.start()
    for _ in range(count // 8):
        rig.submit(queue, *[aql.BarrierAnd(completion_signal=far)] * 8)
        assert all_steps(queue) == 8
    other.join()
    assert rig.value(far) == 0


@pytest.mark.parametrize("kind", ["AQL", "SDMA"])
def test_the_host_may_change_a_signal_between_a_processors_look_at_it_and_its_store(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, at the worst moment: a processor that loads and then stores would lose what the host did."""
    real = compare_exchange._function(8)
    if real is None:
        pytest.skip("no code of this machine here")
    far = DATA + 0x1000_0000
    memory = np.zeros(4096, np.uint8)
    words = memory.view(np.uint64)
    words[1] = 5
    from_host = [95]

    def after_the_host(*arguments: Any) -> None:
        if from_host:
            words[1] += np.uint64(from_host.pop())
        real(*arguments)

    monkeypatch.setattr(compare_exchange, "_function", lambda size: after_the_host)
    rig = Rig()
    rig.vm.insert(SharedRange(memory, aligned_words(far, memory), far, far + 4096, True, "of the host"))
    queue: Any
    if kind == "AQL":
        queue = rig.aql()
        rig.submit(queue, aql.BarrierAnd(completion_signal=far))
    else:
        atomic = sdma.Atomic(atomic_op=sdma.AtomicOp.ADD64, address=far + 8, src_data=2**64 - 1)
        queue = rig.copies(atomic.words)
    assert queue.step()
    assert int(words[1]) == 99


def test_doorbells_that_are_rung_out_of_order_lose_no_packet() -> None:
    """Two threads: the second has its packet ready, and rings, before the first has."""
    rig = Rig()
    queue = rig.aql()
    done = rig.signal(0, 2)
    invalid = aql.Header(type=aql.PacketType.INVALID)
    rig.submit(queue, invalid, aql.BarrierAnd(completion_signal=done))  # rings for the second
    assert not queue.step()
    rig.written = 0
    rig.submit(queue, aql.BarrierAnd(completion_signal=done))  # rings for the first, which is lower
    rig.vm.store64(queue.wptr_va, 2)
    assert all_steps(queue) == 2
    assert rig.value(done) == 0


# ------------------------------------------------------------ kernels


def kernel(rig: Rig, **fields: int) -> int:
    """A descriptor in DATA whose code ends at once; its address."""
    code = ISAS[rig.gpu.chip.arch].encode("s_endpgm")
    rig.store(DATA + 8192 + 256, struct.pack(f"<{len(code)}I", *code))
    is_wave32 = int(rig.gpu.chip.family > 9)
    descriptor = KernelDescriptor(
        kernel_code_entry_byte_offset=256, enable_wavefront_size32=is_wave32, **fields
    )
    rig.store(DATA + 8192, descriptor.to_bytes()[:SIZE_BYTES])
    return DATA + 8192


def dispatch_of(address: int, **fields: int) -> aql.KernelDispatch:
    sizes = {f"workgroup_size_{axis}": 1 for axis in "xyz"} | {f"grid_size_{axis}": 1 for axis in "xyz"}
    return aql.KernelDispatch(**{**sizes, "kernel_object": address, **fields})


def test_the_last_workgroups_of_a_grid_may_be_partial() -> None:
    rig = Rig()
    queue = rig.aql()
    packet = dispatch_of(kernel(rig), workgroup_size_x=64, workgroup_size_y=2, grid_size_x=100, grid_size_y=5)
    work = dispatch_from_aql(rig.gpu.chip, rig.vm, queue.descriptor(), QUEUE, packet, 0)
    assert isinstance(work, Dispatch)
    assert (work.grid, work.items) == ((2, 3, 1), (100, 5, 1))


@pytest.mark.parametrize(("arch", "filled_in"), [("gfx1030", 2 << 21), ("gfx90a", 0)])
def test_a_descriptor_of_scratch_memory_says_how_many_lanes_lie_beside_each_other(
    arch: str, filled_in: int
) -> None:
    rig, words = Rig(f"amd:{arch}"), (0x1000, 0x8000_0000, 0x10000, 0x1080_0000)
    queue = rig.aql(**{f"scratch_resource_descriptor_{n}": word for n, word in enumerate(words)})
    packet = dispatch_of(kernel(rig, enable_sgpr_private_segment_buffer=1))
    work = dispatch_from_aql(rig.gpu.chip, rig.vm, queue.descriptor(), QUEUE, packet, 0)
    assert isinstance(work, Dispatch)
    assert work.user_sgprs[:4] == (*words[:3], words[3] | filled_in)


@pytest.mark.parametrize(
    ("arch", "code"), [("gfx1030", 0x400), ("gfx1100", 0x400), ("gfx942", 0x1), ("gfx90a", 0x1)]
)
def test_a_kernel_that_needs_more_scratch_memory_asks_for_it_and_waits(arch: str, code: int) -> None:
    rig = Rig(f"amd:{arch}")
    event, mailbox = rig.event()
    inactive = rig.signal(0, 0, (event, mailbox))
    queue = rig.aql(queue_inactive_signal=inactive)
    done = rig.signal(64, 1)
    rig.submit(
        queue, dispatch_of(kernel(rig), private_segment_size=164, completion_signal=done), aql.BarrierAnd()
    )
    assert all_steps(queue) == 0
    assert rig.value(inactive) == code
    assert event.is_signalled  # the runtime's thread wakes
    assert all_steps(queue) == 0  # and what comes behind has to wait, too
    # the runtime fills amd_queue_t and stores 0; then the same packet is tried again
    rig.store(
        QUEUE, aql.AmdQueue(queue_inactive_signal=inactive, scratch_wave64_lane_byte_size=176).to_bytes()
    )
    rig.vm.store64(queue.wptr_va, 2)
    rig.signal(0, 0)
    assert all_steps(queue) == 2
    assert rig.value(done) == 0


def test_the_runtime_ends_a_queue_that_waits_for_scratch_memory_with_minus_one() -> None:
    rig = Rig()
    inactive = rig.signal(0, 0)
    queue = rig.aql(queue_inactive_signal=inactive)
    rig.submit(queue, dispatch_of(kernel(rig), private_segment_size=164))
    assert not queue.step()
    rig.signal(0, -1)
    with pytest.raises(QueueStopped, match="the host ended it"):
        queue.step()


def test_an_error_code_in_the_inactive_signal_wakes_who_waits_for_it() -> None:
    rig = Rig()
    event, mailbox = rig.event()
    inactive = rig.signal(0, 0, (event, mailbox))
    queue = rig.aql(queue_inactive_signal=inactive)
    rig.submit(queue, aql.Header(type=aql.PacketType.AGENT_DISPATCH))
    with pytest.raises(QueueStopped):
        queue.step()
    assert rig.value(inactive) == 0x20
    assert event.is_signalled


# ------------------------------------------------------------ exceptions


def failing(rig: Rig, code: int) -> int:
    """A kernel that traps, or that is no code."""
    words = ISAS[rig.gpu.chip.arch].encode("s_trap", simm16=2) if code == TRAP else [0xFFFFFFFF] * 4
    address = kernel(rig)
    rig.store(DATA + 8192 + 256, struct.pack(f"<{len(words)}I", *words))
    return address


@pytest.mark.parametrize("code", [TRAP, ILLEGAL_INSTRUCTION])
def test_with_runtime_enable_an_exception_is_told_through_the_save_area(code: int) -> None:
    rig = Rig()
    rig.events.is_runtime_enabled = rig.gpu.has_trap_handler = True
    event, _ = rig.event()
    header = ContextSaveAreaHeader(err_payload_addr=DATA + 512, err_event_id=event.id)
    rig.store(SAVE_AREA, header.to_bytes())
    queue = rig.aql()
    rig.submit(queue, dispatch_of(failing(rig, code)))
    assert not rig.gpu.step(queue)
    assert rig.vm.load64(DATA + 512) == 1 << code - 1
    assert event.is_signalled
    assert not queue.can_run


@pytest.mark.parametrize(("code", "stored"), [(TRAP, 0x80000000), (ILLEGAL_INSTRUCTION, 0x40000000)])
def test_without_it_the_trap_handler_stores_it_into_the_inactive_signal(code: int, stored: int) -> None:
    rig = Rig()
    rig.gpu.has_trap_handler = True
    inactive = rig.signal(0, 0)
    queue = rig.aql(queue_inactive_signal=inactive)
    rig.submit(queue, dispatch_of(failing(rig, code)))
    assert not rig.gpu.step(queue)
    assert rig.value(inactive) == stored
