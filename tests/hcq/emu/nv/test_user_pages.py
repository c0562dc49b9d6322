"""Pages of a program under the supervisor, registered with an NVIDIA GPU: it works on a copy, and nobody can tell."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hcq.emu.kernel import OwnProcess
from hcq.emu.nv import semaphores
from hcq.emu.nv.caches import DataCache
from hcq.emu.nv.memory import HostPages, PageTable, mapping_of
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.status import NvStatus
from tests.hcq.emu.nv.raw import Memory, Raw, refusal, release
from tests.hcq.emu.process_pages import Pages

VA = 0x10_0000_0000
UNIT = "a test"
ACQUIRE = 0  # of SEM_EXECUTE


def mapped(pages: Pages, offset: int = 0, size_bytes: int = 0, va: int = VA) -> PageTable:
    """An address space with these pages in it."""
    table = PageTable()
    size = size_bytes or len(pages.there) - offset
    table.map(mapping_of(va, HostPages(pages), offset, size, True, "pages"))
    return table


def at(*offsets: int) -> np.ndarray:
    return np.array([VA + one for one in offsets], np.uint64)


def test_engines_and_kernels_see_what_the_process_has_stored_before_each_access() -> None:
    pages = Pages(1 << 20)
    table = mapped(pages)
    for value in (5, 6):
        pages.there[0x5000:0x5004] = value
        assert table.view.read(VA + 0x5000, 4, UNIT) == bytes([value] * 4)
        assert table.view.load(at(0x5000, 0x5002), np.uint16, 1).tolist() == [value * 0x101] * 2
        table.settle()
    assert pages.fetched == [(0x5000, 4096)] * 4  # that page once for each access, and no other
    assert not pages.stored


def test_a_flag_and_the_data_that_it_announces_are_seen_and_stored_in_order() -> None:
    pages = Pages(8192)
    view = mapped(pages).view
    pages.there[:] = 0
    assert view.load(at(8), np.uint32, 1)[0] == 0
    pages.there[8], pages.there[4096] = 5, 1
    assert view.load(at(4096), np.uint32, 1)[0] == 1
    assert view.load(at(8), np.uint32, 1)[0] == 5
    view.store(at(4100), np.array([1], np.uint32))
    view.store(at(12), np.array([2], np.uint32))
    view.store(at(4100), np.array([3], np.uint32))
    view.read(VA, 4, UNIT)
    assert [offset // 4096 for offset, _ in pages.stored] == [1, 0, 1]


@pytest.mark.parametrize("has_caches", [False, True])
def test_no_byte_of_the_process_is_written_but_those_that_a_kernel_changed(has_caches: bool) -> None:
    pages = Pages(8192)
    table = mapped(pages)
    view = DataCache().over(table.view) if has_caches else table.view
    view.store(at(100, 5000), np.array([9, 0x01020304], np.uint32))
    pages.there[200:204] = 77  # the process, meanwhile, elsewhere in the same page
    table.settle()
    assert pages.stored == [(100, 4), (5000, 4)]
    assert pages.there[[100, 200, 5000]].tolist() == [9, 77, 4]


def test_of_two_gpus_that_change_the_same_page_neither_loses_anything() -> None:
    pages = Pages(4096)
    one, other = mapped(pages), mapped(pages)
    one.view.write(VA, b"\1", UNIT)
    other.view.write(VA + 1, b"\2", UNIT)
    other.settle()
    one.view.write(VA + 2, b"\3", UNIT)
    one.settle()
    assert pages.there[:4].tolist() == [1, 2, 3, 3]


def test_what_is_left_of_a_mapping_is_still_the_same_pages() -> None:
    pages = Pages(5 * 4096)
    table = mapped(pages, offset=4096)
    table.view.write(VA + 4096, b"\7", UNIT)
    table.unmap(VA + 4096, 4096)
    assert pages.there[2 * 4096] == 7  # what was written there is not lost
    table.view.write(VA + 2 * 4096 + 5, b"\1\1", UNIT)
    table.settle()
    assert pages.stored[1:] == [(3 * 4096 + 5, 2)]


def test_a_semaphore_is_released_when_the_process_has_what_was_written_before() -> None:
    pages = Pages(4096)
    table = mapped(pages)
    seen = []
    watched = SimpleNamespace(
        table=table, store_number=lambda va, value, size, unit: seen.append(pages.there[0])
    )
    table.view.write(VA, b"\x55", UNIT)
    semaphores.release(watched, VA + 64, 1, 4, None, UNIT)
    assert seen == [0x55]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> tuple[Raw, Pages, Memory]:
    """A GPU with such pages mapped."""
    pages = Pages(1 << 16)
    monkeypatch.setattr(OwnProcess, "memory", lambda self, va, size_bytes: pages)
    raw = Raw().open_channel()
    memory = Memory(0x5C0000AA, raw.take(1 << 16), 1 << 16, False)
    raw.call(
        raw.fd,
        abi.RM_ALLOC_MEMORY,
        hroot=raw.client,
        hobjectparent=raw.device,
        hobjectnew=memory.handle,
        hclass=0x71,
        fd=0xFFFFFFFF,
        pmemory=0x10000,
        limit=(1 << 16) - 1,
    )
    raw.create_range(memory.va, memory.size_bytes)
    raw.map_gpu(memory)
    return raw, pages, memory


def test_a_semaphore_in_such_pages_reaches_the_process_and_is_heard_from_it(
    registered: tuple[Raw, Pages, Memory],
) -> None:
    raw, pages, memory = registered
    numbers = pages.there.view("u4")
    pages.there[:] = 0
    raw.push([*release(memory.va, 7), *release(memory.va + 16, 9, ACQUIRE), *release(memory.va + 32, 8)])
    raw.until(lambda: numbers[0] == 7)
    assert numbers[8] == 0
    numbers[4] = 9
    raw.until(lambda: numbers[8] == 8)


def test_words_that_the_host_reads_at_any_time_do_not_lie_there(
    registered: tuple[Raw, Pages, Memory],
) -> None:
    raw, _, memory = registered
    for fields in ({"huserdmemory_0": memory.handle, "userdoffset_0": 0}, {"hobjecterror": memory.handle}):
        assert refusal(raw.add_channel, **fields) == NvStatus.NV_ERR_NOT_SUPPORTED
