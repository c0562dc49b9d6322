"""Calls of AMD's kernel drivers that other programs make and this driver never does, on /dev/kfd and on render nodes.

In       the number of a request, or its name in the kernel's headers
Out      OtherCall: its name, its argument as it goes in and, where that is another structure, as it comes back
Changes  nothing
Next     kfd.py, drm.py (the calls that this driver makes), tools/trace/amd_calls.py (who reads logs with these)
Source   linux/kfd_ioctl.h 1.11 and 1.17; drm/drm.h; drm/amdgpu_drm.h before and after GEM_VA and GEM_OP grew

The KFD's numbers from 0x80 on are of ROCm's own kernel module. Its header was not read: they are as programs that make
these calls have them.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.amd.abi import drm
from hcq.layout import Packet, SparsePacket, bits


class OtherCall(NamedTuple):
    """A call: its name without the prefix; None where its argument is declared nowhere here.

    `sizes` are the bytes of its argument in releases of the kernel, where the layout alone does not say them.
    """

    name: str
    layout: type[Packet] | None = None
    answer: type[Packet] | None = None
    sizes: tuple[int, ...] = ()

    @property
    def known_sizes(self) -> tuple[int, ...]:
        """Bytes that the argument has: in one release or another."""
        return self.sizes or (() if self.layout is None else (4 * self.layout.length_words,))


class SmiEventsArgs(SparsePacket, words=2):
    """kfd_ioctl_smi_events_args"""

    gpuid = bits(31, 0)
    anon_fd = bits(63, 32)


class SvmArgs(SparsePacket, words=6):
    """kfd_ioctl_svm_args; attributes, each a type and a value, stand behind it."""

    start_addr = bits(63, 0)
    size = bits(127, 64)
    op = bits(159, 128)  # 0 sets, 1 asks
    nattr = bits(191, 160)


class CriuArgs(SparsePacket, words=14):
    """kfd_ioctl_criu_args"""

    devices = bits(63, 0)
    bos = bits(127, 64)
    priv_data = bits(191, 128)
    priv_data_size = bits(255, 192)
    num_devices = bits(287, 256)
    num_bos = bits(319, 288)
    num_objects = bits(351, 320)
    pid = bits(383, 352)
    op = bits(415, 384)  # 0 asks, 1 takes a checkpoint, 2 lets go, 3 restores, 4 goes on


class DbgTrapArgs(SparsePacket, words=8):
    """kfd_ioctl_dbg_trap_args; what stands behind the operation is its own."""

    pid = bits(31, 0)
    op = bits(63, 32)  # 0 enables the debugger of a process


class GemClose(SparsePacket, words=2):
    """drm_gem_close"""

    handle = bits(31, 0)
    pad = bits(63, 32)


class Capability(SparsePacket, words=4):
    """drm_get_cap"""

    capability = bits(63, 0)
    value = bits(127, 64)


class PrimeHandle(SparsePacket, words=3):
    """drm_prime_handle"""

    handle = bits(31, 0)
    flags = bits(63, 32)
    fd = bits(95, 64)


class GemCreate(SparsePacket, words=8):
    """drm_amdgpu_gem_create_in"""

    bo_size = bits(63, 0)
    alignment = bits(127, 64)
    domains = bits(191, 128)  # 1 host, 2 GTT, 4 VRAM, 0x40 doorbells, 0x80 registers that flush
    domain_flags = bits(255, 192)


class GemCreateAnswer(SparsePacket, words=2):
    """drm_amdgpu_gem_create_out"""

    handle = bits(31, 0)


class GemMmap(SparsePacket, words=2):
    """drm_amdgpu_gem_mmap_in"""

    handle = bits(31, 0)


class GemMmapAnswer(SparsePacket, words=2):
    """drm_amdgpu_gem_mmap_out"""

    addr_ptr = bits(63, 0)


class Ctx(SparsePacket, words=4):
    """drm_amdgpu_ctx_in"""

    op = bits(31, 0)  # 1 makes, 2 frees, 3 and 4 ask for the state, 5 and 6 get and set a pstate
    flags = bits(63, 32)
    ctx_id = bits(95, 64)
    priority = bits(127, 96)


class CtxAnswer(SparsePacket, words=4):
    """drm_amdgpu_ctx_out of a context that was made; of a question, its flags and the hangs stand here."""

    ctx_id_or_flags = bits(63, 0)
    hangs = bits(95, 64)
    reset_status = bits(127, 96)


class BoList(SparsePacket, words=6):
    """drm_amdgpu_bo_list_in"""

    operation = bits(31, 0)  # 0 makes, 1 destroys, 2 updates
    list_handle = bits(63, 32)
    bo_number = bits(95, 64)
    bo_info_size = bits(127, 96)
    bo_info_ptr = bits(191, 128)


class BoListAnswer(SparsePacket, words=2):
    """drm_amdgpu_bo_list_out"""

    list_handle = bits(31, 0)


class Cs(SparsePacket, words=6):
    """drm_amdgpu_cs_in: a submission"""

    ctx_id = bits(31, 0)
    bo_list_handle = bits(63, 32)
    num_chunks = bits(95, 64)
    flags = bits(127, 96)
    chunks = bits(191, 128)


class CsAnswer(SparsePacket, words=2):
    """drm_amdgpu_cs_out"""

    handle = bits(63, 0)


class GemWaitIdle(SparsePacket, words=4):
    """drm_amdgpu_gem_wait_idle_in"""

    handle = bits(31, 0)
    flags = bits(63, 32)
    timeout = bits(127, 64)


class GemWaitIdleAnswer(SparsePacket, words=2):
    """drm_amdgpu_gem_wait_idle_out"""

    status = bits(31, 0)  # 0: it is idle; 1: it is in use
    domain = bits(63, 32)  # where its memory is


class GemVa(SparsePacket, words=16):
    """drm_amdgpu_gem_va; it ends behind map_size before there were timelines."""

    handle = bits(31, 0)
    operation = bits(95, 64)  # 1 maps, 2 unmaps, 3 clears, 4 replaces
    flags = bits(127, 96)
    va_address = bits(191, 128)
    offset_in_bo = bits(255, 192)
    map_size = bits(319, 256)
    vm_timeline_point = bits(383, 320)
    vm_timeline_syncobj_out = bits(415, 384)
    num_syncobj_handles = bits(447, 416)
    input_fence_syncobj_handles = bits(511, 448)


class WaitCs(SparsePacket, words=8):
    """drm_amdgpu_wait_cs_in"""

    handle = bits(63, 0)
    timeout = bits(127, 64)
    ip_type = bits(159, 128)
    ip_instance = bits(191, 160)
    ring = bits(223, 192)
    ctx_id = bits(255, 224)


class GemOp(SparsePacket, words=6):
    """drm_amdgpu_gem_op; it ends behind the value before mappings could be asked for."""

    handle = bits(31, 0)
    op = bits(63, 32)  # 0 asks how it was made, 1 sets where it may be, 2 asks for its mappings
    value = bits(127, 64)
    num_entries = bits(159, 128)


class GemListHandles(SparsePacket, words=4):
    """drm_amdgpu_gem_list_handles"""

    entries = bits(63, 0)
    num_entries = bits(95, 64)


class WaitCsAnswer(SparsePacket, words=2):
    """drm_amdgpu_wait_cs_out"""

    status = bits(63, 0)  # 0: it is done; 1: the time is over


class GemUserptr(SparsePacket, words=6):
    """drm_amdgpu_gem_userptr"""

    addr = bits(63, 0)
    size = bits(127, 64)
    flags = bits(159, 128)
    handle = bits(191, 160)


KFD: dict[int, OtherCall] = {
    0x06: OtherCall("GET_PROCESS_APERTURES"),
    0x0D: OtherCall("DBG_REGISTER_DEPRECATED"),
    0x0E: OtherCall("DBG_UNREGISTER_DEPRECATED"),
    0x0F: OtherCall("DBG_ADDRESS_WATCH_DEPRECATED"),
    0x10: OtherCall("DBG_WAVE_CONTROL_DEPRECATED"),
    0x1F: OtherCall("SMI_EVENTS", SmiEventsArgs),
    0x20: OtherCall("SVM", SvmArgs),
    0x22: OtherCall("CRIU_OP", CriuArgs),
    0x26: OtherCall("DBG_TRAP", DbgTrapArgs),
    0x28: OtherCall("PROFILER"),
    0x80: OtherCall("IPC_IMPORT_HANDLE"),
    0x81: OtherCall("IPC_EXPORT_HANDLE"),
    0x82: OtherCall("DBG_TRAP_DEPRECATED"),
    0x83: OtherCall("CROSS_MEMORY_COPY"),
    0x84: OtherCall("RLC_SPM"),
    0x85: OtherCall("PC_SAMPLE"),
    0x86: OtherCall("PROFILER"),  # before Linux had it as 0x28
    0x87: OtherCall("AIS_OP"),
}
# of every GPU's driver; strace has the same names
DRM: dict[int, OtherCall] = {
    0x00: OtherCall("VERSION", drm.Version),
    0x01: OtherCall("GET_UNIQUE"),
    0x02: OtherCall("GET_MAGIC"),
    0x09: OtherCall("GEM_CLOSE", GemClose),
    0x0C: OtherCall("GET_CAP", Capability),
    0x0D: OtherCall("SET_CLIENT_CAP", Capability),
    0x2D: OtherCall("PRIME_HANDLE_TO_FD", PrimeHandle),
    0x2E: OtherCall("PRIME_FD_TO_HANDLE", PrimeHandle),
    0xBF: OtherCall("SYNCOBJ_CREATE"),
    0xC0: OtherCall("SYNCOBJ_DESTROY"),
    0xC1: OtherCall("SYNCOBJ_HANDLE_TO_FD"),
    0xC2: OtherCall("SYNCOBJ_FD_TO_HANDLE"),
    0xC3: OtherCall("SYNCOBJ_WAIT"),
    0xC4: OtherCall("SYNCOBJ_RESET"),
    0xC5: OtherCall("SYNCOBJ_SIGNAL"),
    0xCA: OtherCall("SYNCOBJ_TIMELINE_WAIT"),
    0xCB: OtherCall("SYNCOBJ_QUERY"),
    0xCC: OtherCall("SYNCOBJ_TRANSFER"),
    0xCD: OtherCall("SYNCOBJ_TIMELINE_SIGNAL"),
}
FIRST_OF_DRIVER, LAST_OF_DRIVER = 0x40, 0x9F  # numbers that every GPU's driver uses as it likes
AMDGPU: dict[int, OtherCall] = {
    0x40: OtherCall("GEM_CREATE", GemCreate, GemCreateAnswer),
    0x41: OtherCall("GEM_MMAP", GemMmap, GemMmapAnswer),
    0x42: OtherCall("CTX", Ctx, CtxAnswer),
    0x43: OtherCall("BO_LIST", BoList, BoListAnswer),
    0x44: OtherCall("CS", Cs, CsAnswer),
    0x45: OtherCall("INFO", drm.Info),
    0x46: OtherCall("GEM_METADATA", sizes=(288,)),
    0x47: OtherCall("GEM_WAIT_IDLE", GemWaitIdle, GemWaitIdleAnswer),
    0x48: OtherCall("GEM_VA", GemVa, sizes=(40, 64)),
    0x49: OtherCall("WAIT_CS", WaitCs, WaitCsAnswer),
    0x50: OtherCall("GEM_OP", GemOp, sizes=(16, 24)),
    0x51: OtherCall("GEM_USERPTR", GemUserptr),
    0x52: OtherCall("WAIT_FENCES", sizes=(24,)),
    0x53: OtherCall("VM", sizes=(8,)),
    0x54: OtherCall("FENCE_TO_HANDLE", sizes=(32,)),
    0x55: OtherCall("SCHED", sizes=(16,)),
    0x56: OtherCall("USERQ", sizes=(72,)),
    0x57: OtherCall("USERQ_SIGNAL", sizes=(48,)),
    0x58: OtherCall("USERQ_WAIT", sizes=(72,)),
    0x59: OtherCall("GEM_LIST_HANDLES", GemListHandles),
}
