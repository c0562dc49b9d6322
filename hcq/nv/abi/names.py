"""Names: what the numbers of NVIDIA's kernel interface are called, also those that this driver never uses.

In       a number: of an escape, a UVM call, a control, a class
Out      its name in the headers; for a control or class without one, what its parts say
Changes  nothing
Next     control_names.py (controls), calls.py (whole calls in words), abi.py (the calls that we make)
Source   nv_escape.h, nv-ioctl-numbers.h, uvm_ioctl.h, ctrl*.h, cl*.h of the open kernel modules, release 580.142
"""

from __future__ import annotations

from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.control_names import name_of

ESCAPES = {
    0x27: "NV_ESC_RM_ALLOC_MEMORY",
    0x29: "NV_ESC_RM_FREE",
    0x2A: "NV_ESC_RM_CONTROL",
    0x2B: "NV_ESC_RM_ALLOC",
    0x34: "NV_ESC_RM_DUP_OBJECT",
    0x35: "NV_ESC_RM_SHARE",
    0x41: "NV_ESC_RM_IDLE_CHANNELS",
    0x4A: "NV_ESC_RM_VID_HEAP_CONTROL",
    0x4E: "NV_ESC_RM_MAP_MEMORY",
    0x4F: "NV_ESC_RM_UNMAP_MEMORY",
    0x52: "NV_ESC_RM_GET_EVENT_DATA",
    0x54: "NV_ESC_RM_ALLOC_CONTEXT_DMA2",
    0x57: "NV_ESC_RM_MAP_MEMORY_DMA",
    0x58: "NV_ESC_RM_UNMAP_MEMORY_DMA",
    0x5E: "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO",
    0xC8: "NV_ESC_CARD_INFO",
    0xC9: "NV_ESC_REGISTER_FD",
    0xCE: "NV_ESC_ALLOC_OS_EVENT",
    0xCF: "NV_ESC_FREE_OS_EVENT",
    0xD1: "NV_ESC_STATUS_CODE",
    0xD2: "NV_ESC_CHECK_VERSION_STR",
    0xD3: "NV_ESC_IOCTL_XFER_CMD",
    0xD5: "NV_ESC_QUERY_DEVICE_INTR",
    0xD6: "NV_ESC_SYS_PARAMS",
    0xD7: "NV_ESC_NUMA_INFO",
    0xD9: "NV_ESC_EXPORT_TO_DMABUF_FD",
    0xDA: "NV_ESC_WAIT_OPEN_COMPLETE",
}

UVM_CALLS = {
    0x01: "UVM_RESERVE_VA",
    0x02: "UVM_RELEASE_VA",
    0x03: "UVM_REGION_COMMIT",
    0x04: "UVM_REGION_DECOMMIT",
    0x05: "UVM_REGION_SET_STREAM",
    0x06: "UVM_SET_STREAM_RUNNING",
    0x07: "UVM_SET_STREAM_STOPPED",
    0x0A: "UVM_ADD_SESSION",
    0x0B: "UVM_REMOVE_SESSION",
    0x0C: "UVM_ENABLE_COUNTERS",
    0x0D: "UVM_MAP_COUNTER",
    0x0E: "UVM_CREATE_EVENT_QUEUE",
    0x0F: "UVM_REMOVE_EVENT_QUEUE",
    0x10: "UVM_MAP_EVENT_QUEUE",
    0x11: "UVM_EVENT_CTRL",
    0x12: "UVM_REGISTER_MPS_SERVER",
    0x13: "UVM_REGISTER_MPS_CLIENT",
    0x14: "UVM_GET_GPU_UUID_TABLE",
    0x17: "UVM_CREATE_RANGE_GROUP",
    0x18: "UVM_DESTROY_RANGE_GROUP",
    0x19: "UVM_REGISTER_GPU_VASPACE",
    0x1A: "UVM_UNREGISTER_GPU_VASPACE",
    0x1B: "UVM_REGISTER_CHANNEL",
    0x1C: "UVM_UNREGISTER_CHANNEL",
    0x1D: "UVM_ENABLE_PEER_ACCESS",
    0x1E: "UVM_DISABLE_PEER_ACCESS",
    0x1F: "UVM_SET_RANGE_GROUP",
    0x21: "UVM_MAP_EXTERNAL_ALLOCATION",
    0x22: "UVM_FREE",
    0x23: "UVM_MEM_MAP",
    0x25: "UVM_REGISTER_GPU",
    0x26: "UVM_UNREGISTER_GPU",
    0x27: "UVM_PAGEABLE_MEM_ACCESS",
    0x28: "UVM_PREVENT_MIGRATION_RANGE_GROUPS",
    0x29: "UVM_ALLOW_MIGRATION_RANGE_GROUPS",
    0x2A: "UVM_SET_PREFERRED_LOCATION",
    0x2B: "UVM_UNSET_PREFERRED_LOCATION",
    0x2C: "UVM_ENABLE_READ_DUPLICATION",
    0x2D: "UVM_DISABLE_READ_DUPLICATION",
    0x2E: "UVM_SET_ACCESSED_BY",
    0x2F: "UVM_UNSET_ACCESSED_BY",
    0x33: "UVM_MIGRATE",
    0x35: "UVM_MIGRATE_RANGE_GROUP",
    0x36: "UVM_ENABLE_SYSTEM_WIDE_ATOMICS",
    0x37: "UVM_DISABLE_SYSTEM_WIDE_ATOMICS",
    0x38: "UVM_TOOLS_INIT_EVENT_TRACKER",
    0x39: "UVM_TOOLS_SET_NOTIFICATION_THRESHOLD",
    0x3A: "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS",
    0x3B: "UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS",
    0x3C: "UVM_TOOLS_ENABLE_COUNTERS",
    0x3D: "UVM_TOOLS_DISABLE_COUNTERS",
    0x3E: "UVM_TOOLS_READ_PROCESS_MEMORY",
    0x3F: "UVM_TOOLS_WRITE_PROCESS_MEMORY",
    0x40: "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE",
    0x41: "UVM_MAP_DYNAMIC_PARALLELISM_REGION",
    0x42: "UVM_UNMAP_EXTERNAL",
    0x43: "UVM_TOOLS_FLUSH_EVENTS",
    0x44: "UVM_ALLOC_SEMAPHORE_POOL",
    0x45: "UVM_CLEAN_UP_ZOMBIE_RESOURCES",
    0x46: "UVM_PAGEABLE_MEM_ACCESS_ON_GPU",
    0x47: "UVM_POPULATE_PAGEABLE",
    0x48: "UVM_VALIDATE_VA_RANGE",
    0x49: "UVM_CREATE_EXTERNAL_RANGE",
    0x4A: "UVM_MAP_EXTERNAL_SPARSE",
    0x4B: "UVM_MM_INITIALIZE",
    0x4C: "UVM_TOOLS_INIT_EVENT_TRACKER_V2",
    0x4D: "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2",
    0x4E: "UVM_ALLOC_DEVICE_P2P",
    0x4F: "UVM_CLEAR_ALL_ACCESS_COUNTERS",
    0x50: "UVM_DISCARD",
    0x7FF: "UVM_IS_8_SUPPORTED",
    0x30000001: "UVM_INITIALIZE",
    0x30000002: "UVM_DEINITIALIZE",
}

CLASS_NAMES = {
    0x0000: "NV01_ROOT",
    0x0001: "NV01_ROOT_NON_PRIV",
    0x0002: "NV01_CONTEXT_DMA",
    0x0005: "NV01_EVENT",
    0x003E: "NV01_MEMORY_SYSTEM",
    0x0040: "NV01_MEMORY_LOCAL_USER",
    0x0041: "NV01_ROOT_CLIENT",
    0x0070: "NV01_MEMORY_VIRTUAL",
    0x0071: "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR",
    0x0079: "NV01_EVENT_OS_EVENT",
    0x0080: "NV01_DEVICE_0",
    0x00DE: "RM_USER_SHARED_DATA",
    0x00F8: "NV_MEMORY_FABRIC",
    0x00FD: "NV_MEMORY_MULTICAST_FABRIC",
    0x2080: "NV20_SUBDEVICE_0",
    0x2081: "NV2081_BINAPI",
    0x503B: "NV50_P2P",
    0x503C: "NV50_THIRD_PARTY_P2P",
    0x50A0: "NV50_MEMORY_VIRTUAL",
    0x83DE: "GT200_DEBUGGER",
    0x9067: "FERMI_CONTEXT_SHARE_A",
    0x90E6: "GF100_SUBDEVICE_MASTER",
    0x90F1: "FERMI_VASPACE_A",
    0xA06C: "KEPLER_CHANNEL_GROUP_A",
    0xB2CC: "MAXWELL_PROFILER_DEVICE",
    0xC361: "VOLTA_USERMODE_A",
    0xC369: "MMU_FAULT_BUFFER",
    0xC36F: "VOLTA_CHANNEL_GPFIFO_A",
    0xC461: "TURING_USERMODE_A",
    0xC46F: "TURING_CHANNEL_GPFIFO_A",
    0xC561: "AMPERE_USERMODE_A",
    0xC56F: "AMPERE_CHANNEL_GPFIFO_A",
    0xC574: "UVM_CHANNEL_RETAINER",
    0xC5B5: "TURING_DMA_COPY_A",
    0xC5C0: "TURING_COMPUTE_A",
    0xC661: "HOPPER_USERMODE_A",
    0xC6B5: "AMPERE_DMA_COPY_A",
    0xC6C0: "AMPERE_COMPUTE_A",
    0xC761: "BLACKWELL_USERMODE_A",
    0xC7B5: "AMPERE_DMA_COPY_B",
    0xC7C0: "AMPERE_COMPUTE_B",
    0xC86F: "HOPPER_CHANNEL_GPFIFO_A",
    0xC8B5: "HOPPER_DMA_COPY_A",
    0xC96F: "BLACKWELL_CHANNEL_GPFIFO_A",
    0xC9B5: "BLACKWELL_DMA_COPY_A",
    0xC9C0: "ADA_COMPUTE_A",
    0xCA6F: "BLACKWELL_CHANNEL_GPFIFO_B",
    0xCAB5: "BLACKWELL_DMA_COPY_B",
    0xCB33: "NV_CONFIDENTIAL_COMPUTE",
    0xCBC0: "HOPPER_COMPUTE_A",
    0xCDC0: "BLACKWELL_COMPUTE_A",
    0xCEC0: "BLACKWELL_COMPUTE_B",
}

# the second byte of a control of a subdevice: the part of the GPU that it asks
SUBDEVICE_PARTS = {
    0x01: "GPU", 0x02: "FUSE", 0x03: "EVENT", 0x04: "TIMER", 0x05: "THERMAL", 0x06: "I2C", 0x08: "BIOS",
    0x0A: "INTERNAL", 0x10: "CLK", 0x11: "FIFO", 0x12: "GR", 0x13: "FB", 0x17: "MC", 0x18: "BUS", 0x20: "PERF",
    0x22: "RC", 0x23: "GPIO", 0x25: "DMA", 0x26: "PMGR", 0x27: "POWER", 0x2A: "CE", 0x30: "NVLINK", 0x31: "FLCN",
    0x32: "VOLT", 0x34: "ECC", 0x35: "FLA", 0x36: "GSP", 0x38: "GRMGR", 0x3A: "DMABUF",
}  # fmt: skip


def class_name(number: int) -> str:
    """A class by its name in the headers, or its number."""
    if number in CLASS_NAMES:
        return CLASS_NAMES[number]
    return ClassId(number).name if number in ClassId._value2member_map_ else f"class {number:#x}"


def control_name(number: int) -> str:
    """A control by its name, or by what its number says: the class it is for, the part, and its index there."""
    known = name_of(number)
    if known:
        return known
    owner, part, index = number >> 16, number >> 8 & 0xFF, number & 0xFF
    named = SUBDEVICE_PARTS.get(part) if owner == ClassId.NV20_SUBDEVICE_0 else None
    return f"control {number:#010x} of {class_name(owner)} ({named or f'part {part:#x}'}, index {index:#x})"


def uvm_name(number: int) -> str:
    """A call of /dev/nvidia-uvm."""
    return UVM_CALLS.get(number, f"UVM call {number:#x}")


def escape_name(number: int) -> str:
    """An escape of /dev/nvidiactl or a GPU's node, by the low byte of the request."""
    return ESCAPES.get(number, f"escape {number:#x}")
