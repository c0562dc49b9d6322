"""What caches of an emulated GPU hold, and what they never hold: memory that the kernel driver maps as uncached."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.amd.abi.kfd import AllocFlags
from hcq.emu.amd.caches import Caches, WriteBack, is_uncached
from hcq.emu.amd.memory import BufferObject, GpuVm
from hcq.emu.amd.spec import CHIPS
from hcq.emu.backing import Backing, DeviceMemory

VA = 0x10000
AT = np.array([VA], np.uint64)
GTT = AllocFlags.GTT | AllocFlags.WRITABLE
VRAM = AllocFlags.VRAM | AllocFlags.WRITABLE


def caches_over(flags: AllocFlags, arch: str = "gfx90a") -> tuple[Caches, GpuVm]:
    """The caches of a GPU with one buffer, and the memory below as the host sees it."""
    vm = GpuVm()
    bo = BufferObject(1, 1, VA, 4096, flags, Backing(4096, DeviceMemory()), 0)
    vm.map_object(bo, is_uncached(CHIPS[arch], flags))
    return Caches(vm, copies_are_cached=True), vm


@pytest.mark.parametrize(
    ("arch", "flags", "answer"),
    [
        ("gfx90a", GTT, False),
        ("gfx90a", GTT | AllocFlags.COHERENT, True),
        ("gfx90a", VRAM | AllocFlags.COHERENT, False),
        ("gfx90a", VRAM | AllocFlags.UNCACHED, True),
        ("gfx942", GTT, True),
        ("gfx942", VRAM | AllocFlags.COHERENT, False),
        ("gfx1100", GTT, False),
        ("gfx1100", VRAM | AllocFlags.COHERENT, True),
        ("gfx1201", GTT | AllocFlags.COHERENT, False),
        ("gfx1201", GTT | AllocFlags.UNCACHED, True),
    ],
)
def test_flags_and_architecture_say_what_is_uncached(arch: str, flags: AllocFlags, answer: bool) -> None:
    assert is_uncached(CHIPS[arch], flags) is answer


def test_what_a_kernel_writes_to_coherent_memory_is_there_at_once_and_hidden_in_other_memory() -> None:
    for flags, seen in ((GTT | AllocFlags.COHERENT, 7), (GTT, 0)):
        caches, vm = caches_over(flags)
        caches.vector.scatter(AT, np.array([[7]], np.uint32))
        caches.copies.fill(VA + 8, b"\7\0\0\0", 4)
        assert (vm.load32(VA), vm.load32(VA + 8)) == (seen, seen)
        caches.vector.update(AT, np.uint32, lambda old: old + np.uint32(1))
        assert vm.load32(VA) == (seen and 8)


def test_a_kernel_sees_the_hosts_answer_in_coherent_memory_after_an_invalidation_of_its_own() -> None:
    for flags, seen in ((GTT | AllocFlags.COHERENT, 5), (GTT, 0)):
        caches, vm = caches_over(flags)
        assert caches.vector.gather(AT, 1)[0, 0] == 0
        vm.store32(VA, 5)
        assert caches.vector.gather(AT, 1)[0, 0] == 0
        caches.vector.acquire()
        assert caches.vector.gather(AT, 1)[0, 0] == seen


def test_after_a_kernel_that_invalidated_its_cache_other_compute_units_hold_what_they_held() -> None:
    caches, vm = caches_over(GTT | AllocFlags.COHERENT)
    caches.vector.gather(AT, 1)
    caches.vector.end_kernel()
    vm.store32(VA, 5)
    caches.vector.acquire()
    assert caches.vector.gather(AT, 1)[0, 0] == 5
    caches.vector.end_kernel()
    assert caches.vector.gather(AT, 1)[0, 0] == 0
    caches.acquire(code=False, scalar=False, vector=True, l2=False, l2_write_back=False)
    assert caches.vector.gather(AT, 1)[0, 0] == 5


def test_a_packet_that_says_itself_what_is_cached_is_believed_before_the_page_table() -> None:
    for flags in (GTT, GTT | AllocFlags.UNCACHED):
        caches, vm = caches_over(flags, "gfx1201")
        assert isinstance(caches.copies, WriteBack)
        caches.copies.hold(VA, 3)
        assert vm.load32(VA) == 0
        caches.acquire_copies(write_back=True, invalidate=False)
        assert vm.load32(VA) == 3
