"""Error registers of SMs: what a multiprocessor says of the warp that it stopped, and of itself.

In       words, as the resource manager's debugger reads them, or as the kernel's log prints them by address
Out      WarpEsr, GlobalEsr, and their errors in words
Next     hcq/nv/sm_errors.py (who asks the resource manager), hcq/emu/nv/rm_controls.py (who answers),
         tools/trace/kernel_log/nvidia.py (ESR lines of Xid 13)
Source   NVIDIA's open driver of Tegra, nvgpu: hw_gr_gv11b.h (gr_gpc0_tpc0_sm0_hww_warp_esr, ..._report_mask),
         hw_gr_gk20a.h (gr_gpc0_tpc0_sm_hww_global_esr); ctrl83dedebug.h: NV83DE_SM_ERROR_STATE_REGISTERS. Numbers of
         later GPUs are not public: inferred to be the same, and shown beside the words
"""

from __future__ import annotations

from hcq.layout import Packet, bits

# Of HWW_WARP_ESR.ERROR
WARP_ERRORS = {
    0x01: "stack error",
    0x02: "API stack error",
    0x04: "the PC wrapped",
    0x05: "misaligned PC",
    0x06: "PC overflow",
    0x08: "misaligned register",
    0x09: "illegal instruction encoding",
    0x0B: "illegal instruction parameter",
    0x0D: "out of range register",
    0x0E: "out of range address",
    0x0F: "misaligned address",
    0x10: "invalid address space",
    0x12: "invalid constant address",
    0x16: "stack overflow",
    0x17: "MMU fault",
    0x18: "texture format",
    0x19: "texture layout",
    0x20: "MMU refused an access",
}
GLOBAL_ERRORS = {
    0: "SM to SM fault",
    1: "L1 error",
    2: "errors of several warps",
    3: "physical stack overflow",
    4: "breakpoint or trap",
    5: "paused at a breakpoint",
    6: "single step complete",
    29: "ECC error, corrected",
    30: "ECC error, not corrected",
    31: "timeout",
}
# Where a TPC has them, as the log names them: from Volta on for each of its SMs, before that for its only one
ESR_REGISTERS = {0x728: "warp mask", 0x72C: "global mask", 0x730: "warp ESR", 0x734: "global ESR"}
OLDER_REGISTERS = {0x644: "warp mask", 0x648: "warp ESR", 0x64C: "global mask", 0x650: "global ESR"}
SM_STRIDE, TPC_STRIDE = 0x80, 0x800


class WarpEsr(Packet, words=1):
    """HWW_WARP_ESR: the first warp that an SM stopped."""

    error = bits(15, 0)
    wrap_id = bits(23, 16, doc="the vendor's name: which warp of the SM")
    addr_error_type = bits(27, 24)

    @property
    def description(self) -> str:
        """Its error; "" for none."""
        return (
            ""
            if not self.error
            else WARP_ERRORS.get(self.error, f"error {self.error:#x}, which is not known")
        )


def global_errors(word: int) -> str:
    """HWW_GLOBAL_ESR in words: what an SM as a whole reports; "" for nothing."""
    known = [text for bit, text in GLOBAL_ERRORS.items() if word >> bit & 1]
    rest = word & ~sum(1 << bit for bit in GLOBAL_ERRORS)
    return ", ".join([*known, *([f"bits {rest:#x}, which are not known"] if rest else [])])


def register_name(address: int) -> str:
    """What the log's ESR line names by an address such as 0x504730; "" for another register."""
    at = address % TPC_STRIDE
    return OLDER_REGISTERS.get(at) or (ESR_REGISTERS.get(0x700 | at % SM_STRIDE, "") if at >= 0x700 else "")
