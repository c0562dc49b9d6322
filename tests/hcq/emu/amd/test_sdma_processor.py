"""Packets of copy engines as AMD's runtime sends them; the words were seen on their way to an emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.amd.abi import aql, sdma
from hcq.emu.amd.memory import UserRange
from hcq.emu.amd.process_gpu import QueueStopped
from tests.hcq.emu.amd.rig import ARCHITECTURES, DATA, Rig, all_steps
from tests.hcq.emu.process_pages import Pages

BIG = 0x40000000
HDP_FLUSH = [0x8, 0, 0x80000000, 0, 0, 0]
GCR_BEFORE, GCR_AFTER = [0x111, 0, 0xC3C00000, 0, 0], [0x111, 0, 0x80400000, 0, 0]


def halves(address: int) -> list[int]:
    return [address & 0xFFFFFFFF, address >> 32]


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100"])
def test_the_runtimes_copy_moves_bytes_decrements_the_signal_and_raises_its_event(arch: str) -> None:
    rig = Rig(f"amd:{arch}")
    rig.data[:4000] = np.arange(4000) % 251
    event, mailbox = rig.event()
    signal = rig.signal(0x8000, 1, (event, mailbox))
    has_gcr = arch == "gfx1100"
    words = [
        *HDP_FLUSH,
        *(GCR_BEFORE if has_gcr else []),
        *[0x1, 4000 - 1, 0, *halves(DATA), *halves(DATA + 0x4000)],
        *(GCR_AFTER if has_gcr else []),
        *[0x5E00000A, *halves(signal + 8), 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0],
        *[0x00030005 if has_gcr else 5, *halves(mailbox), event.id],
        *[0x6, event.id],
    ]
    assert all_steps(rig.copies(words)) == (7 if has_gcr else 5)
    assert (rig.data[0x4000 : 0x4000 + 4000] == rig.data[:4000]).all()
    assert rig.value(signal) == 0
    assert event.is_signalled


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_box_is_copied_out_of_one_array_into_another(arch: str) -> None:
    rig = Rig(f"amd:{arch}")
    source = rig.data[:0x4000].view(np.uint32)[:3000].reshape(5, 20, 30)
    source[:] = np.arange(3000).reshape(5, 20, 30)
    layout = rig.gpu.chip.copies.packets[sdma.Op.COPY | sdma.COPY_WINDOW << 8]
    box = layout(
        elementsize=2,
        src_addr=DATA,
        src_x=3,
        src_y=4,
        src_z=1,
        src_pitch=30 - 1,
        src_slice_pitch=600 - 1,
        dst_addr=DATA + 0x8000,
        dst_x=1,
        dst_y=2,
        dst_z=0,
        dst_pitch=16 - 1,
        dst_slice_pitch=256 - 1,
        rect_x=10 - 1,
        rect_y=7 - 1,
        rect_z=3 - 1,
    )
    assert sdma.decode_one(box.words, rig.gpu.chip.copies) == box
    all_steps(rig.copies(box.words))
    target = rig.data[0x8000 : 0x8000 + 4 * 768].view(np.uint32).reshape(3, 16, 16)
    expected = np.zeros((3, 16, 16), np.uint32)
    expected[:, 2:9, 1:11] = source[1:4, 4:11, 3:13]
    assert (target == expected).all()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_one_packet_copies_as_much_as_its_count_can_say(arch: str) -> None:
    rig = Rig(f"amd:{arch}")
    size = 24 << 20  # what ROCr put into one packet for gfx942
    memory = np.zeros(2 * size, np.uint8)
    memory[:size:4096] = 7
    rig.vm.map(BIG, memory)
    all_steps(rig.copies([1, size - 1, 0, *halves(BIG), *halves(BIG + size)]))
    assert (memory[:size] == memory[size:]).all()


def test_an_atomic_that_is_not_an_addition_stops_the_queue() -> None:
    rig = Rig()
    queue = rig.copies(sdma.Atomic(atomic_op=0x20, address=DATA).words)
    with pytest.raises(QueueStopped, match="only ADD64"):
        queue.step()


# ------------------------------------------------------------ pages of another process


def with_pages(size_bytes: int) -> tuple[Rig, Pages]:
    rig, pages = Rig(), Pages(size_bytes)
    one = UserRange.of(BIG, pages, True, "pages")
    rig.vm.insert(one)
    rig.vm.users[BIG] = one
    return rig, pages


def test_of_a_processs_pages_only_those_are_fetched_that_are_touched() -> None:
    rig, pages = with_pages(1 << 20)
    assert rig.vm.load32(BIG + 0x5000) == pages.there[0x5000:0x5004].view(np.uint32)[0]
    rig.vm.settle()
    assert pages.fetched == [(0x5000, 4096)]
    assert not pages.stored


def test_every_step_sees_what_the_process_has_stored_before_it() -> None:
    rig, pages = with_pages(4096)
    assert rig.vm.load32(BIG) == pages.there[:4].view(np.uint32)[0]
    pages.there[:4] = 1, 0, 0, 0
    rig.vm.settle()
    assert rig.vm.load32(BIG) == 1


def test_a_kernel_that_sees_a_flag_sees_what_was_stored_before_it_in_another_page() -> None:
    rig, pages = with_pages(8192)
    pages.there[:] = 0
    data, flag = np.array([BIG + 8], np.uint64), np.array([BIG + 4096], np.uint64)
    assert rig.vm.gather(data, 1)[0, 0] == 0  # fetches the page, in the same step
    pages.there[8], pages.there[4096] = 5, 1  # the process, or another GPU: the data, then the flag
    assert rig.vm.gather(flag, 1)[0, 0] == 1
    assert rig.vm.gather(data, 1)[0, 0] == 5


def test_what_a_kernel_stores_reaches_a_process_in_the_order_of_the_stores() -> None:
    rig, pages = with_pages(3 * 4096)
    flag, data = np.array([BIG], np.uint64), np.array([BIG + 4096], np.uint64)
    rig.vm.scatter(flag, np.array([[1]], np.uint32))
    rig.vm.scatter(data, np.array([[2]], np.uint32))
    rig.vm.scatter(flag, np.array([[3]], np.uint32))
    rig.vm.load32(DATA)  # memory of the GPU: no page of the process is touched
    assert [at // 4096 for at, _ in pages.stored] == [0, 1, 0]


def test_of_pages_between_two_that_a_kernel_touches_nothing_is_fetched() -> None:
    rig, pages = with_pages(1 << 20)
    rig.vm.gather(np.array([BIG + 0x1000, BIG + 0xF1000], np.uint64), 1)
    assert pages.fetched == [(0x1000, 4096), (0xF1000, 4096)]


def test_no_byte_of_a_process_is_written_but_those_that_the_gpu_changed() -> None:
    rig, pages = with_pages(8192)
    rig.vm.scatter(np.array([BIG + 100, BIG + 5000], np.uint64), np.array([[9, 0x01020304]], np.uint32))
    pages.there[200:204] = 77  # the process, meanwhile, elsewhere in the same page
    rig.vm.settle()
    assert pages.stored == [(100, 4), (5000, 4)]
    assert pages.there[200] == 77
    assert pages.there[5000:5004].tolist() == [4, 3, 2, 1]


def test_what_a_copy_engine_overwrites_is_not_fetched_and_goes_out_as_one_piece() -> None:
    rig, pages = with_pages(1 << 20)
    rig.data[:40000] = 3
    queue = rig.copies([1, 40000 - 1, 0, *halves(DATA), *halves(BIG + 8192)])
    assert rig.gpu.step(queue)
    assert pages.stored == [(8192, 40000)]
    assert pages.fetched == [(8192 + 9 * 4096, 4096)]  # the page that it ends in
    assert (pages.there[8192 : 8192 + 40000] == 3).all()


def test_bytes_beside_a_copy_into_the_same_page_are_the_processs() -> None:
    rig, pages = with_pages(4096)
    before = pages.there.copy()
    queue = rig.copies([1, 16 - 1, 0, *halves(DATA), *halves(BIG + 32)])
    assert rig.gpu.step(queue)
    before[32:48] = 0
    assert (pages.there == before).all()


def test_what_a_release_writes_back_is_in_the_process_before_the_signal_says_so() -> None:
    rig = Rig("amd:gfx90a:caches")
    done = rig.signal(0, 1)
    signal = rig.vm.bytes_at(done + aql.AmdSignal.value.byte_offset, 8, "read").view(np.uint64)
    values: list[int] = []

    class Noting(Pages):
        def store(self, at: int, size_bytes: int) -> None:
            values.append(int(signal[0]))
            super().store(at, size_bytes)

    pages = Noting(4096)
    one = UserRange.of(BIG, pages, True, "pages")
    rig.vm.insert(one)
    rig.vm.users[BIG] = one
    assert rig.gpu.caches is not None
    rig.gpu.caches.vector.scatter(np.array([BIG], np.uint64), np.array([[0x01010101]], np.uint32))
    rig.gpu.caches.vector.end_kernel()
    queue = rig.aql()
    rig.submit(queue, aql.BarrierAnd(release_fence_scope=aql.FenceScope.SYSTEM, completion_signal=done))
    assert queue.step()
    assert rig.value(done) == 0
    assert pages.there[:4].tolist() == [1, 1, 1, 1]
    assert set(values) == {1}
