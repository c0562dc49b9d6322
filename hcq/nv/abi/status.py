"""Statuses: what the resource manager, UVM and a channel's error notifier say, in words with the usual cause.

In       a status number, the number of a channel error (Xid)
Out      NvStatus, tell_status(number), tell_xid(number)
Changes  nothing
Next     abi.py (who checks statuses)
Source   nvstatuscodes.h, nverror.h of the open kernel module 580.142; causes are our own words
"""

from __future__ import annotations

from enum import IntEnum


class NvStatus(IntEnum):
    """NV_STATUS, as 580 numbers it."""

    NV_OK = 0x0
    NV_ERR_BROKEN_FB = 0x1
    NV_ERR_BUFFER_TOO_SMALL = 0x2
    NV_ERR_BUSY_RETRY = 0x3
    NV_ERR_CALLBACK_NOT_SCHEDULED = 0x4
    NV_ERR_CARD_NOT_PRESENT = 0x5
    NV_ERR_CYCLE_DETECTED = 0x6
    NV_ERR_DMA_IN_USE = 0x7
    NV_ERR_DMA_MEM_NOT_LOCKED = 0x8
    NV_ERR_DMA_MEM_NOT_UNLOCKED = 0x9
    NV_ERR_DUAL_LINK_INUSE = 0xA
    NV_ERR_ECC_ERROR = 0xB
    NV_ERR_FIFO_BAD_ACCESS = 0xC
    NV_ERR_FREQ_NOT_SUPPORTED = 0xD
    NV_ERR_GPU_DMA_NOT_INITIALIZED = 0xE
    NV_ERR_GPU_IS_LOST = 0xF
    NV_ERR_GPU_IN_FULLCHIP_RESET = 0x10
    NV_ERR_GPU_NOT_FULL_POWER = 0x11
    NV_ERR_GPU_UUID_NOT_FOUND = 0x12
    NV_ERR_HOT_SWITCH = 0x13
    NV_ERR_I2C_ERROR = 0x14
    NV_ERR_I2C_SPEED_TOO_HIGH = 0x15
    NV_ERR_ILLEGAL_ACTION = 0x16
    NV_ERR_IN_USE = 0x17
    NV_ERR_INFLATE_COMPRESSED_DATA_FAILED = 0x18
    NV_ERR_INSERT_DUPLICATE_NAME = 0x19
    NV_ERR_INSUFFICIENT_RESOURCES = 0x1A
    NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1B
    NV_ERR_INSUFFICIENT_POWER = 0x1C
    NV_ERR_INVALID_ACCESS_TYPE = 0x1D
    NV_ERR_INVALID_ADDRESS = 0x1E
    NV_ERR_INVALID_ARGUMENT = 0x1F
    NV_ERR_INVALID_BASE = 0x20
    NV_ERR_INVALID_CHANNEL = 0x21
    NV_ERR_INVALID_CLASS = 0x22
    NV_ERR_INVALID_CLIENT = 0x23
    NV_ERR_INVALID_COMMAND = 0x24
    NV_ERR_INVALID_DATA = 0x25
    NV_ERR_INVALID_DEVICE = 0x26
    NV_ERR_INVALID_DMA_SPECIFIER = 0x27
    NV_ERR_INVALID_EVENT = 0x28
    NV_ERR_INVALID_FLAGS = 0x29
    NV_ERR_INVALID_FUNCTION = 0x2A
    NV_ERR_INVALID_HEAP = 0x2B
    NV_ERR_INVALID_INDEX = 0x2C
    NV_ERR_INVALID_IRQ_LEVEL = 0x2D
    NV_ERR_INVALID_LIMIT = 0x2E
    NV_ERR_INVALID_LOCK_STATE = 0x2F
    NV_ERR_INVALID_METHOD = 0x30
    NV_ERR_INVALID_OBJECT = 0x31
    NV_ERR_INVALID_OBJECT_BUFFER = 0x32
    NV_ERR_INVALID_OBJECT_HANDLE = 0x33
    NV_ERR_INVALID_OBJECT_NEW = 0x34
    NV_ERR_INVALID_OBJECT_OLD = 0x35
    NV_ERR_INVALID_OBJECT_PARENT = 0x36
    NV_ERR_INVALID_OFFSET = 0x37
    NV_ERR_INVALID_OPERATION = 0x38
    NV_ERR_INVALID_OWNER = 0x39
    NV_ERR_INVALID_PARAM_STRUCT = 0x3A
    NV_ERR_INVALID_PARAMETER = 0x3B
    NV_ERR_INVALID_PATH = 0x3C
    NV_ERR_INVALID_POINTER = 0x3D
    NV_ERR_INVALID_REGISTRY_KEY = 0x3E
    NV_ERR_INVALID_REQUEST = 0x3F
    NV_ERR_INVALID_STATE = 0x40
    NV_ERR_INVALID_STRING_LENGTH = 0x41
    NV_ERR_INVALID_READ = 0x42
    NV_ERR_INVALID_WRITE = 0x43
    NV_ERR_INVALID_XLATE = 0x44
    NV_ERR_IRQ_NOT_FIRING = 0x45
    NV_ERR_IRQ_EDGE_TRIGGERED = 0x46
    NV_ERR_MEMORY_TRAINING_FAILED = 0x47
    NV_ERR_MISMATCHED_SLAVE = 0x48
    NV_ERR_MISMATCHED_TARGET = 0x49
    NV_ERR_MISSING_TABLE_ENTRY = 0x4A
    NV_ERR_MODULE_LOAD_FAILED = 0x4B
    NV_ERR_MORE_DATA_AVAILABLE = 0x4C
    NV_ERR_MORE_PROCESSING_REQUIRED = 0x4D
    NV_ERR_MULTIPLE_MEMORY_TYPES = 0x4E
    NV_ERR_NO_FREE_FIFOS = 0x4F
    NV_ERR_NO_INTR_PENDING = 0x50
    NV_ERR_NO_MEMORY = 0x51
    NV_ERR_NO_SUCH_DOMAIN = 0x52
    NV_ERR_NO_VALID_PATH = 0x53
    NV_ERR_NOT_COMPATIBLE = 0x54
    NV_ERR_NOT_READY = 0x55
    NV_ERR_NOT_SUPPORTED = 0x56
    NV_ERR_OBJECT_NOT_FOUND = 0x57
    NV_ERR_OBJECT_TYPE_MISMATCH = 0x58
    NV_ERR_OPERATING_SYSTEM = 0x59
    NV_ERR_OTHER_DEVICE_FOUND = 0x5A
    NV_ERR_OUT_OF_RANGE = 0x5B
    NV_ERR_OVERLAPPING_UVM_COMMIT = 0x5C
    NV_ERR_PAGE_TABLE_NOT_AVAIL = 0x5D
    NV_ERR_PID_NOT_FOUND = 0x5E
    NV_ERR_PROTECTION_FAULT = 0x5F
    NV_ERR_RC_ERROR = 0x60
    NV_ERR_REJECTED_VBIOS = 0x61
    NV_ERR_RESET_REQUIRED = 0x62
    NV_ERR_STATE_IN_USE = 0x63
    NV_ERR_SIGNAL_PENDING = 0x64
    NV_ERR_TIMEOUT = 0x65
    NV_ERR_TIMEOUT_RETRY = 0x66
    NV_ERR_TOO_MANY_PRIMARIES = 0x67
    NV_ERR_UVM_ADDRESS_IN_USE = 0x68
    NV_ERR_MAX_SESSION_LIMIT_REACHED = 0x69
    NV_ERR_LIB_RM_VERSION_MISMATCH = 0x6A
    NV_ERR_PRIV_SEC_VIOLATION = 0x6B
    NV_ERR_GPU_IN_DEBUG_MODE = 0x6C
    NV_ERR_FEATURE_NOT_ENABLED = 0x6D
    NV_ERR_RESOURCE_LOST = 0x6E
    NV_ERR_PMU_NOT_READY = 0x6F
    NV_ERR_FLCN_ERROR = 0x70
    NV_ERR_FATAL_ERROR = 0x71
    NV_ERR_MEMORY_ERROR = 0x72
    NV_ERR_INVALID_LICENSE = 0x73
    NV_ERR_NVLINK_INIT_ERROR = 0x74
    NV_ERR_NVLINK_MINION_ERROR = 0x75
    NV_ERR_NVLINK_CLOCK_ERROR = 0x76
    NV_ERR_NVLINK_TRAINING_ERROR = 0x77
    NV_ERR_NVLINK_CONFIGURATION_ERROR = 0x78
    NV_ERR_RISCV_ERROR = 0x79
    NV_ERR_FABRIC_MANAGER_NOT_PRESENT = 0x7A
    NV_ERR_ALREADY_SIGNALLED = 0x7B
    NV_ERR_QUEUE_TASK_SLOT_NOT_AVAILABLE = 0x7C
    NV_ERR_KEY_ROTATION_IN_PROGRESS = 0x7D
    NV_ERR_TEST_ONLY_CODE_NOT_ENABLED = 0x7E
    NV_ERR_SECURE_BOOT_FAILED = 0x7F
    NV_ERR_INSUFFICIENT_ZBC_ENTRY = 0x80
    NV_ERR_NVLINK_FABRIC_NOT_READY = 0x81
    NV_ERR_NVLINK_FABRIC_FAILURE = 0x82
    NV_ERR_GPU_MEMORY_ONLINING_FAILURE = 0x83
    NV_ERR_REDUCTION_MANAGER_NOT_AVAILABLE = 0x84
    NV_ERR_THRESHOLD_CROSSED = 0x85
    NV_ERR_RESOURCE_RETIREMENT_ERROR = 0x86
    NV_ERR_FABRIC_STATE_OUT_OF_SYNC = 0x87
    NV_ERR_BUFFER_FULL = 0x88
    NV_ERR_BUFFER_EMPTY = 0x89
    NV_ERR_MC_FLA_OFFSET_TABLE_FULL = 0x8A
    NV_ERR_DMA_XFER_FAILED = 0x8B
    NV_ERR_GENERIC = 0xFFFF
    NV_WARN_HOT_SWITCH = 0x10001
    NV_WARN_INCORRECT_PERFMON_DATA = 0x10002
    NV_WARN_MISMATCHED_SLAVE = 0x10003
    NV_WARN_MISMATCHED_TARGET = 0x10004
    NV_WARN_MORE_PROCESSING_REQUIRED = 0x10005
    NV_WARN_NOTHING_TO_DO = 0x10006
    NV_WARN_NULL_OBJECT = 0x10007
    NV_WARN_OUT_OF_RANGE = 0x10008
    NV_WARN_THRESHOLD_CROSSED = 0x10009


RENUMBERED_595 = {0x8B: "NV_ERR_OPERATION_ABORTED", 0x8C: "NV_ERR_DMA_XFER_FAILED"}  # 595 inserted one
FIRST_WARNING = 0x10001
# calls that answer these have done their work
BENIGN = frozenset({NvStatus.NV_OK, NvStatus.NV_WARN_NOTHING_TO_DO})

CAUSES: dict[int, str] = {
    NvStatus.NV_ERR_INSUFFICIENT_PERMISSIONS: (
        "privileged class or control without CAP_SYS_ADMIN (bPriv usermode, power/perf controls); a "
        "container or sandbox policy; object owned by another client"
    ),
    NvStatus.NV_ERR_INVALID_ARGUMENT: (
        "wrong ioctl struct size or wrong device node (comes back as errno EINVAL); channel with "
        "hVASpace set although its parent is a group; engineType not matching the group; fd passed to "
        "RM_MAP_MEMORY is not of the right node; hUserdMemory missing"
    ),
    NvStatus.NV_ERR_INVALID_CLIENT: (
        "client handle used through an fd that did not create it, or after fork()"
    ),
    NvStatus.NV_ERR_INVALID_CLASS: (
        "class id not supported on this GPU: read the class list (0x800292) first"
    ),
    NvStatus.NV_ERR_INVALID_FLAGS: (
        "FERMI_VASPACE_A registered with UVM without the IS_EXTERNALLY_OWNED bit"
    ),
    NvStatus.NV_ERR_INVALID_OBJECT: (
        "UVM_REGISTER_CHANNEL before the engine object (compute class) exists on a GR channel"
    ),
    NvStatus.NV_ERR_INVALID_OBJECT_HANDLE: (
        "handle does not exist under this client; NV_ESC_RM_MAP_MEMORY_DMA into an externally owned VA space"
    ),
    NvStatus.NV_ERR_INVALID_OBJECT_PARENT: ("class allocated under the wrong parent: see the class headers"),
    NvStatus.NV_ERR_INVALID_OBJECT_NEW: ("handle already used or 0/reserved handle given"),
    NvStatus.NV_ERR_INVALID_PARAM_STRUCT: (
        "control paramsSize differs from the size the driver expects: ABI/version mismatch"
    ),
    NvStatus.NV_ERR_INVALID_POINTER: ("NULL or bad params pointer with a nonzero size"),
    NvStatus.NV_ERR_INVALID_STATE: (
        "REGISTER_FD repeated on the same fd (errno EINVAL); GPFIFO_SCHEDULE before UVM_REGISTER_CHANNEL "
        "for a GR channel in an externally owned VA space; second UVM_MM_INITIALIZE on the same uvm fd"
    ),
    NvStatus.NV_ERR_ILLEGAL_ACTION: (
        "UVM ioctl on a uvm fd that has not been initialised with UVM_INITIALIZE"
    ),
    NvStatus.NV_ERR_STATE_IN_USE: (
        "a second RM_MAP_MEMORY context put on a device fd that already carries one: open a fresh fd per "
        "mapping"
    ),
    NvStatus.NV_ERR_IN_USE: (
        "exporting RM objects to an fd that is already used for something else; otherwise generic"
    ),
    NvStatus.NV_ERR_INVALID_DEVICE: (
        "UVM_MAP_EXTERNAL_ALLOCATION: the GPU named is not registered in this UVM space, or peer access "
        "to the owning GPU was not enabled; RM: wrong deviceId or deviceInstance"
    ),
    NvStatus.NV_ERR_OUT_OF_RANGE: ("UVM_MAP_EXTERNAL_ALLOCATION: VA beyond what the GPU MMU can address"),
    NvStatus.NV_ERR_PAGE_TABLE_NOT_AVAIL: (
        "UVM_REGISTER_GPU_VASPACE without a preceding UVM_MM_INITIALIZE, or after the MM fd was closed"
    ),
    NvStatus.NV_ERR_UVM_ADDRESS_IN_USE: (
        "external range overlaps an existing UVM range, or the VA is occupied by a managed range"
    ),
    NvStatus.NV_ERR_INVALID_ADDRESS: (
        "UVM base/length not 4 KiB aligned, outside one external range, or no page size fits the "
        "alignment of base/length/offset; NULL user VA in OS_DESCRIPTOR"
    ),
    NvStatus.NV_ERR_NO_MEMORY: (
        "out of video/system memory, or pinned-page / locked-memory limits (RLIMIT_MEMLOCK), or an "
        "oversized vidmem request"
    ),
    NvStatus.NV_ERR_INSUFFICIENT_RESOURCES: (
        "out of channel ids, copy engines, BAR1 space, or client handles"
    ),
    NvStatus.NV_ERR_NOT_SUPPORTED: (
        "unknown control number, or control not valid on this GPU/virtualisation mode; also UVM/ATS "
        "features absent"
    ),
    NvStatus.NV_ERR_OBJECT_NOT_FOUND: (
        "handle lookup failed; GPU id not attached; in a sandbox also a handle that it did not record"
    ),
    NvStatus.NV_ERR_OPERATING_SYSTEM: (
        "failure inside an OS call (mmap/pin/memdesc), often user pages that cannot be pinned"
    ),
    NvStatus.NV_ERR_LIB_RM_VERSION_MISMATCH: ("CHECK_VERSION_STR with a different version string"),
    NvStatus.NV_ERR_GPU_IS_LOST: ("GPU fell off the bus / reset needed (Xid 79)"),
    NvStatus.NV_ERR_RC_ERROR: ("channel or GPU already in error state"),
    NvStatus.NV_ERR_RESET_REQUIRED: ("channel or GPU already in error state"),
    NvStatus.NV_WARN_NOTHING_TO_DO: (
        "UVM_MM_INITIALIZE when this kernel/va space does not need the MM fd: treat as success"
    ),
    NvStatus.NV_ERR_BUSY_RETRY: ("retry the call"),
    NvStatus.NV_ERR_TIMEOUT_RETRY: ("retry the call"),
    NvStatus.NV_ERR_MORE_PROCESSING_REQUIRED: ("retry the call"),
}

XIDS: dict[int, str] = {
    13: "ROBUST_CHANNEL_GR_EXCEPTION",
    14: "ROBUST_CHANNEL_FAKE_ERROR",
    16: "ROBUST_CHANNEL_VBLANK_CALLBACK_TIMEOUT",
    19: "ROBUST_CHANNEL_DISP_MISSED_NOTIFIER",
    20: "ROBUST_CHANNEL_MPEG_ERROR_SW_METHOD",
    21: "ROBUST_CHANNEL_ME_ERROR_SW_METHOD",
    22: "ROBUST_CHANNEL_VP_ERROR_SW_METHOD",
    23: "ROBUST_CHANNEL_RC_LOGGING_ENABLED",
    27: "ROBUST_CHANNEL_VP_ERROR",
    28: "ROBUST_CHANNEL_VP2_ERROR",
    29: "ROBUST_CHANNEL_BSP_ERROR",
    30: "ROBUST_CHANNEL_UNUSED_ERROR_30",
    31: "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT",
    32: "ROBUST_CHANNEL_PBDMA_ERROR",
    33: "ROBUST_CHANNEL_SEC_ERROR",
    34: "ROBUST_CHANNEL_MSVLD_ERROR",
    35: "ROBUST_CHANNEL_MSPDEC_ERROR",
    36: "ROBUST_CHANNEL_MSPPP_ERROR",
    39: "ROBUST_CHANNEL_CE0_ERROR",
    40: "ROBUST_CHANNEL_CE1_ERROR",
    41: "ROBUST_CHANNEL_CE2_ERROR",
    42: "ROBUST_CHANNEL_VIC_ERROR",
    43: "ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR",
    44: "ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW",
    45: "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL",
    47: "ROBUST_CHANNEL_NVENC0_ERROR",
    48: "ROBUST_CHANNEL_GPU_ECC_DBE",
    58: "FB_MEMORY_ERROR",
    59: "PMU_ERROR",
    60: "ROBUST_CHANNEL_SEC2_ERROR",
    61: "PMU_BREAKPOINT",
    62: "PMU_HALT_ERROR",
    63: "INFOROM_PAGE_RETIREMENT_EVENT",
    64: "INFOROM_PAGE_RETIREMENT_FAILURE",
    65: "ROBUST_CHANNEL_NVENC1_ERROR",
    68: "ROBUST_CHANNEL_NVDEC0_ERROR",
    69: "ROBUST_CHANNEL_GR_CLASS_ERROR",
    70: "ROBUST_CHANNEL_CE3_ERROR",
    71: "ROBUST_CHANNEL_CE4_ERROR",
    72: "ROBUST_CHANNEL_CE5_ERROR",
    73: "ROBUST_CHANNEL_NVENC2_ERROR",
    74: "NVLINK_ERROR",
    75: "ROBUST_CHANNEL_CE6_ERROR",
    76: "ROBUST_CHANNEL_CE7_ERROR",
    77: "ROBUST_CHANNEL_CE8_ERROR",
    78: "VGPU_START_ERROR",
    79: "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
    80: "PBDMA_PUSHBUFFER_CRC_MISMATCH",
    81: "ROBUST_CHANNEL_VGA_SUBSYSTEM_ERROR",
    82: "ROBUST_CHANNEL_NVJPG0_ERROR",
    83: "ROBUST_CHANNEL_NVDEC1_ERROR",
    84: "ROBUST_CHANNEL_NVDEC2_ERROR",
    85: "ROBUST_CHANNEL_CE9_ERROR",
    86: "ROBUST_CHANNEL_OFA0_ERROR",
    87: "NVTELEMETRY_DRIVER_REPORT",
    88: "ROBUST_CHANNEL_NVDEC3_ERROR",
    89: "ROBUST_CHANNEL_NVDEC4_ERROR",
    90: "LTC_ERROR",
    91: "RESERVED_XID",
    92: "EXCESSIVE_SBE_INTERRUPTS",
    93: "INFOROM_ERASE_LIMIT_EXCEEDED",
    94: "ROBUST_CHANNEL_CONTAINED_ERROR",
    95: "ROBUST_CHANNEL_UNCONTAINED_ERROR",
    96: "ROBUST_CHANNEL_NVDEC5_ERROR",
    97: "ROBUST_CHANNEL_NVDEC6_ERROR",
    98: "ROBUST_CHANNEL_NVDEC7_ERROR",
    99: "ROBUST_CHANNEL_NVJPG1_ERROR",
    100: "ROBUST_CHANNEL_NVJPG2_ERROR",
    101: "ROBUST_CHANNEL_NVJPG3_ERROR",
    102: "ROBUST_CHANNEL_NVJPG4_ERROR",
    103: "ROBUST_CHANNEL_NVJPG5_ERROR",
    104: "ROBUST_CHANNEL_NVJPG6_ERROR",
    105: "ROBUST_CHANNEL_NVJPG7_ERROR",
    108: "NVLINK_REMOTE_TRANSLATION_ERROR",
    110: "SEC_FAULT_ERROR",
    119: "GSP_RPC_TIMEOUT",
    120: "GSP_ERROR",
    121: "C2C_ERROR",
    122: "SPI_PMU_RPC_READ_FAIL",
    123: "SPI_PMU_RPC_WRITE_FAIL",
    124: "SPI_PMU_RPC_ERASE_FAIL",
    125: "INFOROM_FS_ERROR",
    126: "ROBUST_CHANNEL_CE10_ERROR",
    127: "ROBUST_CHANNEL_CE11_ERROR",
    128: "ROBUST_CHANNEL_CE12_ERROR",
    129: "ROBUST_CHANNEL_CE13_ERROR",
    130: "ROBUST_CHANNEL_CE14_ERROR",
    131: "ROBUST_CHANNEL_CE15_ERROR",
    132: "ROBUST_CHANNEL_CE16_ERROR",
    133: "ROBUST_CHANNEL_CE17_ERROR",
    134: "ROBUST_CHANNEL_CE18_ERROR",
    135: "ROBUST_CHANNEL_CE19_ERROR",
    136: "ALI_TRAINING_FAIL",
    137: "NVLINK_PRIV_ERR",
    138: "ROBUST_CHANNEL_DLA_ERROR",
    139: "ROBUST_CHANNEL_OFA1_ERROR",
    140: "UNRECOVERABLE_ECC_ERROR_ESCAPE",
    141: "ROBUST_CHANNEL_FAST_PATH_ERROR",
    142: "ROBUST_CHANNEL_NVENC3_ERROR",
    143: "GPU_INIT_ERROR",
    144: "NVLINK_SAW_ERROR",
    145: "NVLINK_RLW_ERROR",
    146: "NVLINK_TLW_ERROR",
    147: "NVLINK_TREX_ERROR",
    148: "NVLINK_NVLPW_CTRL_ERROR",
    149: "NVLINK_NETIR_ERROR",
    150: "NVLINK_MSE_ERROR",
    151: "ROBUST_CHANNEL_KEY_ROTATION_ERROR",
    152: "RESERVED7_ERROR",
    153: "RESERVED8_ERROR",
    154: "GPU_RECOVERY_ACTION_CHANGED",
    155: "NVLINK_SW_DEFINED_ERROR",
    156: "RESOURCE_RETIREMENT_EVENT",
    157: "RESOURCE_RETIREMENT_FAILURE",
    158: "GPU_FATAL_TIMEOUT",
    159: "ROBUST_CHANNEL_CHI_NON_DATA_ERROR",
    160: "CHANNEL_RETIREMENT_EVENT",
    161: "CHANNEL_RETIREMENT_FAILURE",
    162: "ISINK_REENGAGED",
    163: "ISINK_DISENGAGED",
    164: "ISINK_LOW_LIFETIME",
    165: "ISINK_ZERO_LIFETIME",
    166: "NVLINK_SECURE_INTERRUPT_ERROR",
    167: "PCIE_FATAL_TIMEOUT",
    168: "REDUCED_GPU_MEMORY_CAPACITY",
    169: "SEC2_HALT_ERROR",
    170: "ROBUST_CHANNEL_UNUSED_ERROR_170",
    171: "UNCORRECTABLE_DRAM_ERROR",
    172: "UNCORRECTABLE_SRAM_ERROR",
    173: "C2C_FATAL_LINK_FAILURE",
}

XID_CAUSES: dict[int, str] = {
    13: (
        "GR exception: illegal instruction, misaligned/out-of-range shared or local access, bad shared "
        "window, ESR detail in dmesg"
    ),
    31: ("MMU fault: bad VA, unmapped, read-only, wrong address bits in a QMD/GPFIFO/semaphore"),
    32: ("PBDMA: malformed method header, method to an unbound subchannel, bad GPFIFO entry"),
    39: ("copy engine error"),
    40: ("copy engine error"),
    41: ("copy engine error"),
    43: ("channel reset by the software (verification) e.g. after a timeout"),
    45: ("channel removed because of another error in the TSG/process teardown"),
    69: ("class error: method value out of range or unsupported for the class"),
    70: ("copy engine error"),
    71: ("copy engine error"),
    72: ("copy engine error"),
    75: ("copy engine error"),
    76: ("copy engine error"),
    77: ("copy engine error"),
    79: ("GPU fell off the bus"),
    85: ("copy engine error"),
    94: ("contained / uncontained ECC-type error"),
    95: ("contained / uncontained ECC-type error"),
    109: ("a context switch did not complete, e.g. kernel never ends in a preempted group"),
    119: ("GSP RPC timeout / GSP error: the guest may need a GPU reset"),
    120: ("GSP RPC timeout / GSP error: the guest may need a GPU reset"),
    126: ("copy engine error"),
    127: ("copy engine error"),
    128: ("copy engine error"),
    129: ("copy engine error"),
    130: ("copy engine error"),
    131: ("copy engine error"),
    132: ("copy engine error"),
    133: ("copy engine error"),
    134: ("copy engine error"),
    135: ("copy engine error"),
    137: ("NVLink related"),
    138: ("NVLink related"),
    139: ("NVLink related"),
    140: ("NVLink related"),
    141: ("NVLink related"),
    142: ("NVLink related"),
    143: ("NVLink related"),
    144: ("NVLink related"),
    145: ("NVLink related"),
    146: ("NVLink related"),
    147: ("NVLink related"),
    148: ("NVLink related"),
    149: ("NVLink related"),
    150: ("NVLink related"),
    154: ("recovery action changed (reset/reboot/drain advice)"),
    155: ("NVLink related"),
}


def name_of(status: int, release: int = 580) -> str:
    """The vendor's name of a status; the number when there is none."""
    if release >= 595 and status in RENUMBERED_595:
        return RENUMBERED_595[status]
    return NvStatus(status).name if status in NvStatus._value2member_map_ else f"status {status:#x}"


def tell_status(status: int, release: int = 580) -> str:
    """A status in words: name, number and the usual cause where one is known."""
    cause = CAUSES.get(status)
    return f"{name_of(status, release)} ({status:#x}{f': {cause}' if cause else ''})"


def tell_xid(number: int) -> str:
    """A channel error in words, as the error notifier and the kernel's log number them."""
    name = XIDS.get(number, "no name in the headers")
    cause = XID_CAUSES.get(number)
    return f"Xid {number} ({name}{f': {cause}' if cause else ''})"
