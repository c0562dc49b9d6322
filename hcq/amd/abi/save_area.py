"""The context save area: how the waves of a compute queue lie in memory once the kernel driver has taken it off the
GPU.

In       the name of an architecture
Out      a Layout: the words of the control stack, and where the registers of a wave are; None where it is not public
Next     hcq/amd/saved_waves.py (who reads it), hcq/emu/amd/save_area.py (who writes it, as the hardware does), kfd.py
         (ContextSaveAreaHeader, GET_QUEUE_WAVE_STATE)
Source   Linux 6.18: cwsr_trap_handler_gfx9.asm, _gfx10.asm, _gfx12.asm (what the trap handler stores, in which order);
         get_wave_state of kfd_mqd_manager_v9.c and _v10.c (the header); ROCdbgapi 0.78: src/architecture.cpp,
         src/queue.cpp (the words of the control stack, counts of registers). No hardware has run what reads it here

Each XCC has a slice of the area, ctx_save_restore_size apart. A slice begins with its header. The control stack ends,
and the state of waves begins, at the size of the control stack that the queue was made with: the stack grows down from
there, and the waves up. So the word that was pushed last is the first one, and it is of the wave whose state lies last.

    header | ... | control stack | wave 0 | wave 1 | ... | wave n
                 ^               ^                        ^
       control_stack_offset      ctl_stack_size           wave_state_offset is behind this one

The stack: two words of packets, then words of three kinds: events, which say nothing of waves; the state of a
dispatch, for all waves whose words follow; and one word for each wave. The state of a wave, from its lowest address on:

    vector registers | those of the accumulation file (gfx908, gfx90a, gfx94x) or shared ones (gfx10 and later)
    | scalar registers | 16 hardware registers | 16 trap temporaries | LDS, with the first wave of a workgroup | gap
    (gfx9)
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.layout import Packet, bits

PACKET_WORDS = 2  # that start a control stack
HWREGS = TTMPS = 16
LDS_UNIT_BYTES = 512
PC_HIGH = 0xFFFF  # what is above these bits in pc_hi is not of the address
NO_VGPRS = 1 << 24  # of STATUS from gfx11 on: the wave has given its vector registers back


class RelaunchWave9(Packet, words=1):
    """COMPUTE_RELAUNCH of one wave, on gfx9."""

    scratch_slot = bits(8, 0)
    shader_engine = bits(12, 11)
    scratch_en = bits(15)
    last_wave = bits(16, doc="of its workgroup")
    first_wave = bits(17, doc="of its workgroup, whose LDS is saved with it")
    is_event = bits(30)
    is_state = bits(31)


class RelaunchWave10(Packet, words=1):
    """COMPUTE_RELAUNCH of one wave, on gfx10 and later."""

    scratch_slot = bits(9, 0)
    scratch_en = bits(11)
    first_wave = bits(12, doc="of its workgroup, whose LDS is saved with it")
    shader_engine = bits(26, 24, doc="gfx10: two bits of it")
    last_wave = bits(29, doc="of its workgroup")
    is_event = bits(30)
    is_state = bits(31)


class RelaunchState9(Packet, words=1):
    """COMPUTE_RELAUNCH of a dispatch, on gfx9: what its waves have."""

    vgprs = bits(5, 0, doc="in blocks of 4, one less; gfx90a and later: all vector registers, in blocks of 8")
    sgprs = bits(8, 6, doc="in blocks of 16, one less; the trap temporaries are the last of them")
    lds_size = bits(17, 9, doc="of a workgroup, in units of 512 bytes")
    is_state = bits(31, default=1)


class RelaunchState90a(RelaunchState9):
    """The same on gfx90a and gfx94x, whose vector registers are in two parts."""

    lds_size = bits(16, 9, doc="of a workgroup, in units of 512 bytes")
    accum_offset = bits(29, 24, doc="how many are not of the accumulation file, in blocks of 4, one less")


class RelaunchState10(Packet, words=2):
    """The same on gfx10 and later: two words, of the second of which nothing is public."""

    vgprs = bits(5, 0, doc="in blocks of 8 where waves have 32 lanes, of 4 where they have 64, one less")
    lds_size = bits(17, 10, doc="of a workgroup, in units of 512 bytes")
    w32_en = bits(24, doc="waves have 32 lanes")
    shared_vgprs = bits(29, 26, doc="in blocks of 8, of 32 lanes each")
    is_state = bits(31, default=1)


_COMMON = {"m0": 0, "pc_lo": 1, "pc_hi": 2, "exec_lo": 3, "exec_hi": 4}
_GFX9 = {**_COMMON, "status": 5, "trapsts": 6, "xnack_mask_lo": 7, "xnack_mask_hi": 8, "mode": 9}
_GFX10 = {
    **_COMMON,
    "status": 5,
    "trapsts": 6,
    "xnack_mask": 7,
    "mode": 8,
    "flat_scratch_lo": 9,
    "flat_scratch_hi": 10,
}
_GFX12 = {
    **_COMMON,
    "state_priv": 5,
    "excp_flag_priv": 6,
    "mode": 8,
    "scratch_base_lo": 9,
    "scratch_base_hi": 10,
    "excp_flag_user": 11,
    "trap_ctrl": 12,
    "status": 13,
}


class Layout(NamedTuple):
    """How waves of an architecture are saved.

    wave, state  words of the control stack
    registers    hardware registers by name: which of the 16 words each is
    gap_bytes    behind the state of each wave
    accs         the accumulation file: "" where there is none, "equal": as large as the other, "split": by accum_offset
    has_ids      whether trap temporaries say which workgroup a wave is of. On gfx90a they do where a debugger asked for
                 it, on gfx11 with firmware of the scheduler from version 70 on (kfd_dbg_has_ttmps_always_setup)
    """

    family: int
    wave: type[RelaunchWave9] | type[RelaunchWave10]
    state: type[RelaunchState9] | type[RelaunchState10]
    registers: dict[str, int]
    gap_bytes: int = 0
    accs: str = ""
    has_ids: bool = True


def layout_of(arch: str) -> Layout | None:
    """By the name of an architecture; None for one whose layout is not public, such as gfx1250, which moved things."""
    digits = arch.removeprefix("gfx")
    family = digits[:-2]
    if digits == arch or not family.isdecimal() or arch == "gfx950":  # its LDS may be counted in other units
        return None
    if family == "9":
        accs = {"gfx908": "equal", "gfx90a": "split", "gfx940": "split", "gfx941": "split", "gfx942": "split"}
        state = RelaunchState90a if accs.get(arch) == "split" else RelaunchState9
        return Layout(9, RelaunchWave9, state, _GFX9, 64, accs.get(arch, ""), arch != "gfx90a")
    if family in ("10", "11"):
        return Layout(int(family), RelaunchWave10, RelaunchState10, _GFX10)
    return Layout(12, RelaunchWave10, RelaunchState10, _GFX12) if arch in ("gfx1200", "gfx1201") else None
