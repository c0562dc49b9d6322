"""Page faults: the status word that the kernel driver prints, and who may have asked.

In       a PROTECTION_FAULT_STATUS word; the number or the name of a client of the gfxhub
Out      its fields; words for them; names of clients
Next     kfd.py (what a process is told of a fault), tools/trace/kernel_log/amd_faults.py (the kernel's log)
Source   gfxhub_v1_0.c, gfxhub_v2_0.c, gfxhub_v3_0.c and gfxhub_v12_0.c of Linux' amdgpu: the status registers and the
         tables of clients; kfd_int_process_v9.c: the protection bits. What a value of WALKER_ERROR and a bit of
         PERMISSION_FAULTS stand for is inferred: public logs agree with it, and no header says it
"""

from __future__ import annotations

from hcq.layout import SparsePacket, bits

PAGE_BYTES = 4096


class ProtectionFaultStatus(SparsePacket, words=1):
    """VM_L2_PROTECTION_FAULT_STATUS of gfx9, GCVM_L2_... and MMVM_L2_PROTECTION_FAULT_STATUS of gfx10 to gfx12."""

    more_faults = bits(0)
    walker_error = bits(3, 1)
    permission_faults = bits(7, 4)
    mapping_error = bits(8)
    cid = bits(17, 9)
    rw = bits(18)
    atomic = bits(19)
    vmid = bits(23, 20)
    vf = bits(24)
    vfid = bits(29, 25)


WALKER_ERRORS = {
    1: "the address is beyond the range of the page tables",
    2: "the page directory of the last level has no valid entry there",
    3: "the page directory of level 1 has no valid entry there",
    4: "the page directory of level 2 has no valid entry there",
    5: "translating further failed",
}
NOT_VALID, NO_READ, NO_WRITE, NO_EXECUTE = 1, 2, 4, 8  # bits of permission_faults
RING_NOT_VALID, RING_READ, RING_WRITE = 8, 16, 32  # the `ring:` of a fault's line is no ring, but these bits

_GFX9 = ("CB", "DB", "IA", "WD", "CPF", "CPC", "CPG", "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG", "PA")
_GFX10 = {
    0x0: "CB/DB",
    0x2: "GE1",
    0x3: "GE2",
    0x4: "CPF",
    0x5: "CPC",
    0x6: "CPG",
    0x7: "RLC",
    0x8: "TCP",
    0x9: "SQC (inst)",
    0xA: "SQC (data)",
    0xB: "SQG",
    0xD: "SDMA0",
    0xE: "SDMA1",
    0xF: "GCR",
    0x10: "SDMA2",
    0x11: "SDMA3",
}
GFXHUB_CLIENTS: dict[str, dict[int, str]] = {"gfx9": dict(enumerate(_GFX9)), "gfx10": _GFX10}

# What a client does, by how its name begins; the first that fits.
_CLIENTS = (
    ("TCP", "a vector load or store of a kernel"),
    ("SQC (inst)", "the fetch of a kernel's code"),
    ("SQC (data)", "a scalar load of a kernel, mostly of its arguments"),
    ("SQG", "the shader sequencer"),
    ("CPF", "the command processor's fetcher"),
    ("CPC", "the compute command processor"),
    ("CPG", "the graphics command processor"),
    ("SDMA", "a copy engine"),
    ("LSDMA", "the light copy engine"),
    ("CB", "the colour and depth blocks of graphics"),
    ("DB", "the depth block of graphics"),
    ("GE", "the geometry engine"),
    ("IA", "the input assembler of graphics"),
    ("WD", "the work distributor of graphics"),
    ("PA", "the primitive assembler of graphics"),
    ("RLC", "the run list controller"),
    ("GCR", "the cache controller"),
    ("VCN", "the video engine"),
    ("JPEG", "the JPEG engine"),
    ("VSCH", "the video scheduler"),
    ("DCE", "the display engine"),
    ("MP", "a firmware processor"),
    ("HDP", "the host's data path"),
    ("OSS", "the interrupt system"),
    ("UTCL2", "the translation cache itself"),
)


def describe_client(name: str) -> str:
    """A client's name with what it does: "TCP, a vector load or store of a kernel"; the name where that is unknown."""
    for start, does in _CLIENTS:
        if name.startswith(start):
            return f"{name}, {does}"
    return name


def describe_permission(status: ProtectionFaultStatus) -> str:
    """Why the access was refused, as far as the status word says."""
    said = int(status.permission_faults)
    write, missing = bool(status.rw), bool(said & NOT_VALID)
    if status.walker_error:
        return "the page is not mapped"
    if missing:
        return "the page is not mapped"
    if status.mapping_error:
        return "the page is mapped to a physical address that does not exist"
    if said & NO_EXECUTE:
        return "the page holds no code that may run"
    if said & NO_WRITE and write:
        return "the page may not be written"
    if said & NO_READ and not write:
        return "the page may not be read"
    return "the access is not allowed there" if said else "the status word names no reason"
