"""dma-bufs of the emulated KFD: what may be shared, who gets at it, and how long the memory lives."""

from __future__ import annotations

import array
import errno
import mmap
import os
from typing import Any

import pytest

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import AllocFlags
from hcq.emu.amd.kfd import emulate
from hcq.emu.amd.kfd_topology import VRAM_BYTES
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import MAP_SHARED, PROT_READ, PROT_WRITE
from tests.hcq.amd.conftest import the_process
from tests.hcq.emu.amd import test_kfd
from tests.hcq.emu.amd.test_kfd_process import Process

VA = test_kfd.VA
VRAM, GTT = AllocFlags.VRAM | AllocFlags.WRITABLE, AllocFlags.GTT | AllocFlags.WRITABLE
TEXT = b"shared by a descriptor"


@pytest.fixture
def one() -> Process:
    return Process(emulate(["amd:gfx90a", "amd:gfx1100"]))


def exported(one: Process, flags: int = VRAM, size: int = 8192) -> tuple[int, Any]:
    """A descriptor for a new buffer object of the first GPU, with TEXT in it; and the allocation."""
    made = one.alloc(flags=flags, size=size)
    fd = one.call(kfd.EXPORT_DMABUF, handle=made.handle, flags=os.O_CLOEXEC).dmabuf_fd
    native.write(one.port.mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd), TEXT, len(TEXT))
    return fd, made


def seen_by(process: Any, gpu_id: int, va: int) -> bytes:
    """What a GPU reads at an address."""
    data: bytes = process.gpus[gpu_id].vm.read(va, len(TEXT))
    return data


def test_an_imported_buffer_object_has_the_memory_of_the_exported_one_also_when_that_is_freed(one: Process):
    fd, made = exported(one)
    one.call(kfd.FREE_MEMORY_OF_GPU, handle=made.handle)
    again = one.call(kfd.IMPORT_DMABUF, gpu_id=one.node.gpu_id, dmabuf_fd=fd, va_addr=VA + (1 << 20))
    one.port.close(fd)
    one.map(again.handle)
    assert seen_by(the_process(one.port.kernels[0]), one.node.gpu_id, VA + (1 << 20)) == TEXT
    ids = array.array("I", [one.node.gpu_id])
    where = ids.buffer_info()[0]
    one.call(kfd.UNMAP_MEMORY_FROM_GPU, handle=again.handle, device_ids_array_ptr=where, n_devices=1)
    one.call(kfd.FREE_MEMORY_OF_GPU, handle=again.handle)
    assert one.available() == VRAM_BYTES  # counted once


@pytest.mark.parametrize("flags", [VRAM, GTT])
def test_another_gpu_and_another_process_get_at_it(one: Process, flags: int):
    fd, _ = exported(one, flags)
    driver: Any = one.port.kernels[0]
    other = Process(driver)
    file = one.port.files[fd]
    passed = other.port.process.install(file, 0, 0)  # as a socket passes a descriptor
    mine, its = driver.topology[0], driver.topology[1]
    drm = other.port.open(f"/dev/dri/renderD{its.render_minor}")
    other.call(kfd.ACQUIRE_VM, drm_fd=drm, gpu_id=its.gpu_id)
    for node in (mine, its):
        at = VA + node.index * (1 << 20)
        again = other.call(kfd.IMPORT_DMABUF, gpu_id=node.gpu_id, dmabuf_fd=passed, va_addr=at)
        other.map(again.handle, node.gpu_id)
        assert seen_by(driver.processes[other.port.process], node.gpu_id, at) == TEXT


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (VRAM, AllocFlags.VRAM),
        (VRAM | AllocFlags.PUBLIC, AllocFlags.VRAM | AllocFlags.PUBLIC),
        (GTT | AllocFlags.PUBLIC, AllocFlags.GTT),
    ],
)
def test_a_descriptor_says_what_it_is(one: Process, flags: int, told: int):
    fd, _ = exported(one, flags)
    info = one.call(kfd.GET_DMABUF_INFO, dmabuf_fd=fd, metadata_size=64)
    assert (info.size, info.flags, info.gpu_id, info.metadata_size) == (8192, told, one.node.gpu_id, 0)


def test_what_cannot_be_shared_or_is_no_dma_buf_is_refused(one: Process):
    fd, made = exported(one)
    gpu_id = one.node.gpu_id
    one.refuses(errno.EINVAL, kfd.EXPORT_DMABUF, handle=made.handle + 1)
    one.refuses(errno.EINVAL, kfd.EXPORT_DMABUF, handle=made.handle & 0xFFFFFFFF)
    pages = mmap.mmap(-1, 4096)
    user = one.alloc(
        va_addr=VA + 8192,
        flags=AllocFlags.USERPTR | AllocFlags.WRITABLE,
        mmap_offset=native.address_of(pages),
    )
    one.refuses(errno.EPERM, kfd.EXPORT_DMABUF, handle=user.handle)
    for call in (kfd.IMPORT_DMABUF, kfd.GET_DMABUF_INFO):
        one.refuses(errno.EBADF, call, gpu_id=gpu_id, dmabuf_fd=fd + 100)
        one.refuses(errno.EINVAL, call, gpu_id=gpu_id, dmabuf_fd=one.drm_fd)
    one.refuses(errno.EINVAL, kfd.IMPORT_DMABUF, gpu_id=1, dmabuf_fd=fd)
    driver: Any = one.port.kernels[0]
    one.refuses(errno.ENODEV, kfd.IMPORT_DMABUF, gpu_id=driver.topology[1].gpu_id, dmabuf_fd=fd)
    with pytest.raises(DriverError) as error:
        one.port.mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 4096)  # beyond its end
    assert error.value.errno == errno.EINVAL


def test_an_import_without_an_address_or_at_half_a_page_is_not_mapped(one: Process):
    fd, _ = exported(one)
    for va in (0, VA + (1 << 20) + 64):
        made = one.call(kfd.IMPORT_DMABUF, gpu_id=one.node.gpu_id, dmabuf_fd=fd, va_addr=va)
        with pytest.raises(DriverError) as error:
            one.map(made.handle)
        assert error.value.errno == errno.EINVAL


def test_export_came_with_interface_1_12():
    one = Process(emulate(["amd:gfx1100:kfd=1.11"]))
    one.refuses(errno.ENOTTY, kfd.EXPORT_DMABUF, handle=one.alloc().handle)
