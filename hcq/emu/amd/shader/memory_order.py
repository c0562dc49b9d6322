"""What instructions say of order: how far an access reaches as an atomic operation, and which ones are a fence.

In       a Context for one instruction
Out      the level of an access (hcq/emu/shader/order.py); a Fence, or None
Next     race_steps.py (who asks), hcq/emu/shader/order.py (what comes of it)
Source   LLVM, "User Guide for AMDGPU Backend", "Memory Model gfx90a", "gfx942", "gfx10-gfx11", "gfx12"

An instruction set has no word for a fence. One that releases is a wait until all stores of the wave are done, on gfx942
behind a write-back of the L2; one that acquires is an invalidation of what the loads behind it would find in caches of
the compute unit. Within a workgroup accesses are in order.

Not every set marks an atomic access: read-modify-writes are what they are (gfx12 alone says their scope), loads that
pass caches by are told by their bits, but a store on gfx90a, gfx10 and gfx11 may be either (UNMARKED), and a load of
workgroup scope on gfx90a is like any other.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hcq.emu.amd.shader.isa import Instruction, wait_counts
from hcq.emu.amd.shader.operands import Context
from hcq.emu.shader.global_races import UNMARKED
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN

DEVICE_SCOPE = 2  # of gfx12: 0 compute unit, 1 engine, 2 device, 3 system
MOST_ATOMIC_BITS = 64
INVALIDATIONS = re.compile(r"buffer_inv$|buffer_gl1_inv$|buffer_wbinvl1(_vol)?$|global_(inv|wbinv)$")
WAITS = re.compile(r"s_waitcnt(_vscnt)?$|s_wait_(idle|storecnt|storecnt_dscnt|loadcnt|loadcnt_dscnt)$")

NO_ATOMIC = re.compile(r"ds_(read|load|write|store|\w*permute|swizzle|nop|gws)")  # of what begins with ds_


class Fence(NamedTuple):
    """A part of one: it acquires, it releases, or it writes back what a wait then releases.

    of_loads  it waits for loads alone: that releases where the wave has no store under way
    """

    acquires: bool = False
    writes_back: bool = False
    needs_write_back: bool = False
    of_loads: bool = False


def level_of(ctx: Context, kind: str, bits: int) -> int:
    """How far a load, a store or an atomic operation reaches as such."""
    fields = ctx.inst.fields
    if kind == "atomic":
        return BLOCK if fields.get("scope", DEVICE_SCOPE) < DEVICE_SCOPE else DEVICE
    if bits > MOST_ATOMIC_BITS:
        return PLAIN
    if "sc1" in fields:
        return DEVICE if fields["sc1"] else BLOCK if fields["sc0"] else PLAIN
    if "scope" in fields:
        return DEVICE if fields["scope"] >= DEVICE_SCOPE else BLOCK if fields["scope"] else PLAIN
    if kind == "store":
        return UNMARKED
    return DEVICE if fields.get("glc") else PLAIN


def acquires(inst: Instruction) -> bool:
    """Whether loads behind it find what other compute units of the device wrote."""
    if not INVALIDATIONS.match(inst.name):
        return False
    fields = inst.fields
    return bool(fields.get("sc1", 1)) and fields.get("scope", DEVICE_SCOPE) >= DEVICE_SCOPE


def orders_a_group(inst: Instruction) -> bool:
    """Whether it may order some waves of a workgroup and not all: an atomic operation in LDS."""
    name = inst.name
    return name.startswith("flat_atomic") or (name.startswith("ds_") and not NO_ATOMIC.match(name))


def fence_of(ctx: Context) -> Fence | None:
    """What an instruction orders by itself, for other workgroups."""
    inst = ctx.inst
    if acquires(inst):
        return Fence(acquires=True)
    needs_write_back = ctx.isa.arch == "gfx942"
    if inst.name == "buffer_wbl2":
        return Fence(writes_back=True) if inst.fields.get("sc1", 1) else None
    if not WAITS.match(inst.name) or not _waits_for_all(ctx):
        return None
    of_loads = "loadcnt" in inst.name or (inst.name == "s_waitcnt" and not ctx.is_gfx9)
    return Fence(needs_write_back=needs_write_back, of_loads=of_loads)


def _waits_for_all(ctx: Context) -> bool:
    """Whether a wait is for all loads of the wave, or all stores, or both, as the instruction set counts them."""
    name, bits = ctx.inst.name, ctx.inst.fields.get("simm16", 0)
    if name == "s_waitcnt":
        return wait_counts(bits, ctx.isa.generation)[0] == 0
    if name.endswith("_dscnt"):
        return bits >> 8 & 63 == 0
    return name == "s_wait_idle" or bits == 0
