"""MMU faults in words: what a fault type, a client and an access of the kernel's log (Xid 31) stand for.

In       FAULT_PTE, GPCCLIENT_T1_3, ACCESS_TYPE_VIRT_READ: the names as the log has them
Out      words; the name where nothing is known of it
Next     status.py (channel errors by number), tools/trace/kernel_log/nvidia.py (the log)
Source   dev_fault.h of the open kernel module: NV_PFAULT_FAULT_TYPE, NV_PFAULT_CLIENT, NV_PFAULT_ACCESS_TYPE
"""

from __future__ import annotations

FAULT_TYPES = {
    "PDE": "nothing is mapped there: a page directory has no entry",
    "PDE_SIZE": "a page directory has another size than the access needs",
    "PTE": "nothing is mapped there: the page's entry is not valid",
    "VA_LIMIT_VIOLATION": "the address is beyond the address space",
    "UNBOUND_INST_BLOCK": "the channel has no address space",
    "PRIV_VIOLATION": "the page is for privileged accesses only",
    "RO_VIOLATION": "the page may not be written",
    "WO_VIOLATION": "the page may not be read",
    "PITCH_MASK_VIOLATION": "the surface does not allow such a pitch",
    "WORK_CREATION": "a kernel may not make work there",
    "UNSUPPORTED_APERTURE": "the page is in a memory that this engine cannot reach",
    "COMPRESSION_FAILURE": "the compressed page could not be read",
    "CC_VIOLATION": "confidential computing does not allow the access",
    "UNSUPPORTED_KIND": "the page is of a kind that this engine cannot use",
    "REGION_VIOLATION": "the address is in a region that is not to be used",
    "POISONED": "the page is poisoned by an uncorrectable memory error",
    "ATOMIC_VIOLATION": "the page does not take atomic accesses",
}
_ACCESSES = (("ATOMIC", "atomic"), ("PREFETCH", "prefetch"), ("WRITE", "write"), ("READ", "read"))

# The first whose name begins so; GPC: units of the shader clusters, HUB: all others.
_CLIENTS = (
    ("GPCCLIENT_T1_", "loads and stores of a kernel"),
    ("GPCCLIENT_GCC", "constants and instructions of a kernel"),
    ("GPCCLIENT_GPCCS", "the context switch of a shader cluster"),
    ("GPCCLIENT_TPCCS", "the context switch of a texture cluster"),
    ("GPCCLIENT_PE_", "the primitive engine"),
    ("GPCCLIENT_PROP_", "the raster operations' front"),
    ("GPCCLIENT_RAST", "the rasteriser"),
    ("GPCCLIENT_ROP_", "the raster operations"),
    ("HUBCLIENT_HOST", "the host interface: ring, pushbuffer or semaphore"),
    ("HUBCLIENT_ESC", "the host's semaphores and pushbuffers"),
    ("HUBCLIENT_FECS", "the context switch of the graphics engine"),
    ("HUBCLIENT_FE", "the front end: methods of a pushbuffer"),
    ("HUBCLIENT_SKED", "the scheduler of compute work: launch descriptions"),
    ("HUBCLIENT_SCC", "the state and constant cache"),
    ("HUBCLIENT_PD", "the primitive distributor"),
    ("HUBCLIENT_CE", "a copy engine"),
    ("HUBCLIENT_HSCE", "a copy engine"),
    ("HUBCLIENT_GRCOPY", "a copy engine"),
    ("HUBCLIENT_NVDEC", "a video decoder"),
    ("HUBCLIENT_NVENC", "a video encoder"),
    ("HUBCLIENT_NVJPG", "a JPEG engine"),
    ("HUBCLIENT_OFA", "the optical flow engine"),
    ("HUBCLIENT_PMU", "the power unit"),
    ("HUBCLIENT_GSP", "the firmware processor"),
    ("HUBCLIENT_SEC", "the security unit"),
    ("HUBCLIENT_FSP", "the boot processor"),
    ("HUBCLIENT_PTP", "another GPU"),
    ("HUBCLIENT_HSHUB", "the high-speed hub"),
    ("HUBCLIENT_MMU", "the MMU itself"),
    ("HUBCLIENT_P2P", "another GPU"),
)


def describe_type(name: str) -> str:
    """Why the MMU refused, of a name such as FAULT_PTE."""
    return FAULT_TYPES.get(name.removeprefix("FAULT_"), "")


def describe_client(name: str) -> str:
    """Who asked, of a name such as GPCCLIENT_T1_3."""
    return next((does for start, does in _CLIENTS if name.startswith(start)), "")


def describe_access(name: str) -> str:
    """What it wanted to do, of a name such as ACCESS_TYPE_VIRT_READ."""
    return next((word for part, word in _ACCESSES if part in name), "")
