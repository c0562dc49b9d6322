"""dma-bufs of the emulated KFD: descriptors for a buffer object, with which other GPUs and processes get at its memory.

In       EXPORT_DMABUF of a buffer object; GET_DMABUF_INFO and IMPORT_DMABUF of a descriptor
Out      a descriptor in the process; a second buffer object with the same memory
Changes  descriptors and buffer objects of the process
Next     kfd_memory.py (buffer objects), ../kernel.py (Process.install), ../calls.py (descriptors of other programs)
Source   kfd_chardev.c: the function named in each answer; amdgpu_amdkfd.c; amdgpu_amdkfd_gpuvm.c; amdgpu_dma_buf.c

The memory lives until the last buffer object and the last descriptor of it are gone; of other programs we do not see
that they close one, and let it live as long as the process that exported it.
"""

from __future__ import annotations

import errno
import os

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import AllocFlags
from hcq.emu.amd.kfd_answers import Answers, changed
from hcq.emu.amd.kfd_process import KfdProcess
from hcq.emu.amd.memory import BufferObject
from hcq.emu.kernel import File, Process, Refusal
from hcq.layout import Packet

SHARABLE = AllocFlags.VRAM | AllocFlags.GTT
COHERENCE = AllocFlags.COHERENT | AllocFlags.EXT_COHERENT | AllocFlags.UNCACHED
UNMAPPED = -1  # the call tells no offset for mmap
ANSWERS = Answers()
answers = ANSWERS.to


class DmaBuf(File):
    """An open dma-buf: the memory of a buffer object, which may be gone itself."""

    def __init__(self, bo: BufferObject) -> None:
        self.gpu_id, self.size_bytes, self.flags, self.backing = (
            bo.gpu_id,
            bo.size_bytes,
            bo.flags,
            bo.backing,
        )

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        raise Refusal(errno.ENOTTY)  # DMA_BUF_IOCTL_SYNC and the like: there is nothing to synchronize

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        """dma_buf_mmap_internal: not beyond its end."""
        if offset + size_bytes > self.size_bytes:
            raise Refusal(errno.EINVAL)
        return self.backing.map_host(va, size_bytes, prot, flags, offset)

    def close(self) -> None:
        """Its memory goes with the last reference."""


def _dmabuf(process: KfdProcess, fd: int) -> DmaBuf:
    """dma_buf_get. What is no file of ours may be no descriptor at all: both are said to be none."""
    file = process.process.file(fd)
    if file is None:
        raise Refusal(errno.EBADF)
    if not isinstance(file, DmaBuf):
        raise Refusal(errno.EINVAL)
    return file


@answers(kfd.EXPORT_DMABUF)
def export_dmabuf(process: KfdProcess, args: kfd.ExportDmabufArgs) -> Packet:
    """kfd_ioctl_export_dmabuf. amdgpu_gem_prime_export: no pages of the process.

    That doorbells and registers are refused so, too, is our inference.
    """
    process.gpu(args.handle >> 32)
    bo = process.object(args.handle)
    if not bo.flags & SHARABLE:
        raise Refusal(errno.EPERM)
    fd = process.process.install(DmaBuf(bo), bo.size_bytes, args.flags & os.O_CLOEXEC)
    return changed(args, dmabuf_fd=fd)


@answers(kfd.GET_DMABUF_INFO)
def get_dmabuf_info(process: KfdProcess, args: kfd.GetDmabufInfoArgs) -> Packet:
    """kfd_ioctl_get_dmabuf_info, amdgpu_amdkfd_get_dmabuf_info: memory of the KFD has no metadata."""
    shared = _dmabuf(process, args.dmabuf_fd)
    is_vram = bool(shared.flags & AllocFlags.VRAM)
    flags = AllocFlags.VRAM | shared.flags & AllocFlags.PUBLIC if is_vram else AllocFlags.GTT
    return changed(args, size=shared.size_bytes, gpu_id=shared.gpu_id, flags=flags, metadata_size=0)


@answers(kfd.IMPORT_DMABUF)
def import_dmabuf(process: KfdProcess, args: kfd.ImportDmabufArgs) -> Packet:
    """kfd_ioctl_import_dmabuf, import_obj_create: a buffer object with the same memory; of another GPU's it is GTT."""
    gpu = process.bound_gpu(args.gpu_id, errno.ENODEV)
    shared = _dmabuf(process, args.dmabuf_fd)
    is_own = shared.gpu_id == gpu.gpu_id and bool(shared.flags & AllocFlags.VRAM)
    place = AllocFlags.VRAM if is_own else AllocFlags.GTT
    flags = place | AllocFlags.WRITABLE | AllocFlags.EXECUTABLE | shared.flags & COHERENCE
    size, backing = shared.size_bytes, shared.backing
    bo = process.keep(
        gpu.gpu_id,
        lambda handle: BufferObject(handle, gpu.gpu_id, args.va_addr, size, flags, backing, UNMAPPED),
    )
    bo.is_imported = True
    return changed(args, handle=bo.handle)
