"""A render node of the emulated amdgpu: mappings of buffer objects, and the ioctls that libdrm makes when it opens one.

In       an open file of /dev/dri/renderD*, its ioctls and mappings
Out      the driver's version, what DRM_AMDGPU_INFO says of the GPU; buffer objects in the process
Changes  the process's mappings
Next     kfd_memory.py (who makes buffer objects), kfd.py (who opens this), hcq/amd/abi/drm.py (the structures)
Source   drm_ioctl.c: drm_version; amdgpu_kms.c: amdgpu_info_ioctl; amdgpu_gem.c: amdgpu_gem_object_mmap
"""

from __future__ import annotations

import errno
import struct

from hcq.amd.abi import drm
from hcq.amd.abi.pointers import pointers_of
from hcq.emu.amd.gpu import CLOCK_HZ, EmulatedGpu
from hcq.emu.amd.kfd_process import KfdProcess
from hcq.emu.amd.kfd_topology import EmulatedNode
from hcq.emu.kernel import File, Process, Refusal
from hcq.emu.watched_call import watched

DRIVER_NAME, DRIVER_DATE, DRIVER_TEXT = b"amdgpu", b"20150101", b"AMD GPU"
DRIVER_VERSION = 3, 57, 0
GB_ADDR_CONFIG = 0x263E  # the register's number, the one that libdrm reads
# Bits 5:3, the pipe interleave, are 0 (256 bytes): AMD's image library accepts nothing else on gfx11. Inferred, and not
# read from a GPU.
GB_ADDR_CONFIG_VALUE = 0x545


class RenderNode(File):
    """An open /dev/dri/renderD*: a process's buffer objects on that GPU are mapped through it."""

    def __init__(self, process: KfdProcess, gpu: EmulatedGpu) -> None:
        self.process, self.gpu, self.node = process, gpu, gpu.node
        self.owner: KfdProcess | None = None  # of its address space, once that is acquired

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        observers = self.process.observers
        if not observers:
            return self._answer(request, argument, process)
        path = f"/dev/dri/renderD{self.node.render_minor}"
        return watched(observers, path, pointers_of, request, argument, process, self._answer)

    def _answer(self, request: int, argument: bytearray, process: Process) -> int:
        if request == drm.VERSION_REQUEST:
            return self._version(argument, process)
        if request == drm.INFO_REQUEST:
            return self._info(argument, process)
        raise Refusal(errno.ENOTTY)

    def _version(self, argument: bytearray, process: Process) -> int:
        """DRM_IOCTL_VERSION (drm_version): texts are cut to the room there is, and their whole lengths come back."""
        asked = drm.Version.decode(memoryview(bytes(argument)).cast("I"))
        major, minor, patch = DRIVER_VERSION
        texts = {"name": DRIVER_NAME, "date": DRIVER_DATE, "desc": DRIVER_TEXT}
        for field, text in texts.items():
            room, where = asked.values[f"{field}_len"], asked.values[field]
            if room and where:
                process.write(where, text[:room])
        lengths = {f"{field}_len": len(text) for field, text in texts.items()}
        found = {**asked.values, **lengths, "major": major, "minor": minor, "patchlevel": patch}
        argument[:] = drm.Version(**found).to_bytes()
        return 0

    def _info(self, argument: bytearray, process: Process) -> int:
        """DRM_AMDGPU_INFO (amdgpu_info_ioctl): an answer is cut to the room there is."""
        what = drm.Info.decode(memoryview(bytes(argument)).cast("I"))
        if not what.return_pointer or not what.return_size:
            raise Refusal(errno.EINVAL)
        if what.query == drm.ACCEL_WORKING:
            answer = struct.pack("<I", 1)
        elif what.query == drm.DEV_INFO:
            answer = device_info(self.node).to_bytes()
        elif what.query == drm.READ_MMR_REG:
            answer = self._register(what.mmr_offset, what.mmr_count)
        else:
            raise Refusal(errno.EINVAL)
        process.write(what.return_pointer, answer[: what.return_size])
        return 0

    def _register(self, number: int, count: int) -> bytes:
        if count == 1 and number == GB_ADDR_CONFIG:
            return struct.pack("<I", GB_ADDR_CONFIG_VALUE)
        from hcq.emu.amd import debugfs_files  # few programs ask for others

        found = debugfs_files.status(self.gpu)
        if count != 1 or number not in found:
            raise Refusal(errno.EFAULT)  # a register that may not be read
        return struct.pack("<I", found[number])

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        """Any buffer object, public or not: the kernel's NO_CPU_ACCESS went from such memory in 2021."""
        bo = self.process.object_at(self.node.gpu_id, offset)
        if bo is None:
            raise Refusal(errno.EINVAL)
        if size_bytes > bo.size_bytes:
            raise Refusal(errno.EINVAL)
        return bo.backing.map_host(va, size_bytes, prot, flags)

    def close(self) -> None:
        """The address space stays acquired: it belongs to the process."""


def device_info(node: EmulatedNode) -> drm.DeviceInfo:
    """What DEV_INFO says of a GPU."""
    facts, chip = node.properties(), node.spec.chip
    engines = facts["array_count"] // facts["simd_arrays_per_engine"]
    return drm.DeviceInfo(
        device_id=facts["device_id"],
        family={9: 141, 10: 143, 11: 145, 12: 152}[chip.family],
        num_shader_engines=engines,
        num_shader_arrays_per_engine=facts["simd_arrays_per_engine"],
        gpu_counter_freq=CLOCK_HZ // 1000,
        max_engine_clock=1000 * facts["max_engine_clk_fcompute"],
        max_memory_clock=1_000_000,
        cu_active_number=facts["simd_count"] // facts["simd_per_cu"],
        enabled_rb_pipes_mask=(1 << engines) - 1,
        num_rb_pipes=engines,
        num_hw_gfx_contexts=8,
        pcie_gen=4,
        virtual_address_offset=2 << 20,
        virtual_address_max=1 << 47,
        virtual_address_alignment=4096,
        pte_fragment_size=2 << 20,
        gart_page_size=4096,
        vram_type=9 if chip.family > 9 else 6,  # GDDR6, HBM
        vram_bit_width=256,
        wave_front_size=facts["wave_front_size"],
        num_shader_visible_vgprs=512 if chip.family == 9 else 256,
        num_cu_per_sh=facts["cu_per_simd_array"],
        num_tcc_blocks=16,
        pcie_num_lanes=16,
        high_va_offset=0xFFFF800000000000,
        high_va_max=0xFFFFFFFFFFE00000,
    )
