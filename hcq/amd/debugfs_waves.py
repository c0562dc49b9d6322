"""Waves of a real GPU through debugfs: the file amdgpu_wave, slot by slot, as umr reads them.

In       the folder of a GPU in debugfs; its facts in the KFD's topology; its chip
Out      waves that are alike together, as plain data; notes
Changes  nothing that a program sees. The kernel driver wakes the GPU, and selects each slot in turn
Next     debugfs.py (rings and queues), hcq/inspect/text.py (the page)
Source   amdgpu_debugfs.c: amdgpu_debugfs_wave_read (where a slot is in the file); gfx_v9_0.c, gfx_v10_0.c, gfx_v11_0.c,
         gfx_v12_0.c: read_wave_data (types 1 to 4); umr: doc/sphinx, --waves. Not tried on hardware

Where a wave stands is read register by register, so a wave that runs has moved meanwhile: its PC and its lanes may be
of two moments. umr halts all waves first where it is told to; this does not.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hcq.errors import DriverError

FILE = "amdgpu_wave"
SLOT_BYTES = 128
MOST_SLOTS, MOST_WAVES, MOST_KINDS, MOST_PLACES = 1 << 17, 1 << 14, 256, 8
VALID = 1 << 16  # of STATUS: there is a wave in the slot
_HEAD = ("status", "pc_lo", "pc_hi", "exec_lo", "exec_hi")
_TAIL = ("ib_sts2", "ib_dbg1", "m0", "mode")
TYPES: dict[int, tuple[str, ...]] = {
    1: (
        *(*_HEAD, "hw_id", "inst_dw0", "inst_dw1", "gpr_alloc", "lds_alloc", "trapsts"),
        *("ib_sts", "ib_dbg0", "m0", "mode"),
    ),
    2: (*_HEAD, "hw_id1", "hw_id2", "inst_dw0", "gpr_alloc", "lds_alloc", "trapsts", "ib_sts", *_TAIL),
    3: (*_HEAD, "hw_id1", "hw_id2", "gpr_alloc", "lds_alloc", "trapsts", "ib_sts", *_TAIL),
    4: (
        *(*_HEAD, "hw_id1", "hw_id2", "gpr_alloc", "lds_alloc", "ib_sts", *_TAIL),
        *("state_priv", "excp_flag_priv", "excp_flag_user", "trap_ctrl", "active", "valid_and_idle"),
    ),
}
STATES = {
    5: "in the trap handler",
    9: "no lane is on",
    12: "at a barrier",
    13: "halted",
    23: "halted by an error",
}
STATES_12 = {2: "its barrier is complete", 14: "halted", 15: "poisoned data"}  # of STATE_PRIV
EXCEPTIONS = {8: "memory violation", 11: "illegal instruction"}  # of TRAPSTS
EXCEPTIONS_12 = {4: "memory violation", 6: "illegal instruction"}  # of EXCP_FLAG_PRIV


def waves(folder: Path, facts: Mapping[str, int], family: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The waves of a GPU, and what to say of them.

    facts   properties of its node: how many engines, arrays, units and slots there are
    Raises  DriverError where the file cannot be read
    """
    places = list(_places(facts, family))
    if not places:
        return [], ["the KFD's topology does not say how many units it has, so its waves are not read"]
    notes = ["waves go on while they are read: PC and lanes may be of two moments"]
    if facts.get("num_xcc", 1) > 1:
        notes.append("the file shows waves of the first XCC alone")
    alike: dict[tuple[Any, ...], list[tuple[str, dict[str, int]]]] = defaultdict(list)
    count = 0
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DriverError(f"{folder / FILE}: {error.strerror}. It is for root; lockdown hides it.") from None
    try:
        for place, offset in places:
            wave = _slot(descriptor, offset, folder)
            if wave is None:
                continue
            count += 1
            pc = (wave["pc_hi"] << 32 | wave["pc_lo"]) & (1 << 48) - 1
            mask = wave["exec_hi"] << 32 | wave["exec_lo"]
            alike[pc, mask, wave["status"]].append((place, wave))
            if count >= MOST_WAVES:
                notes.append(f"more than {MOST_WAVES} waves: the rest is not read")
                break
    finally:
        os.close(descriptor)
    kinds = sorted(alike.items(), key=lambda item: -len(item[1]))
    if len(kinds) > MOST_KINDS:
        notes.append(f"{len(kinds) - MOST_KINDS} more kinds of waves are left out")
    return [_kind(pc, mask, those) for (pc, mask, _), those in kinds[:MOST_KINDS]], notes


def _places(facts: Mapping[str, int], family: int) -> Iterator[tuple[str, int]]:
    """(name, offset in the file) of every slot of a wave."""
    arrays = facts.get("simd_arrays_per_engine", 0)
    engines = facts.get("array_count", 0) // max(arrays, 1) // max(facts.get("num_xcc", 1), 1)
    units, simds = facts.get("cu_per_simd_array", 0), facts.get("simd_per_cu", 0)
    slots = facts.get("max_waves_per_simd", 0)
    if family >= 10:  # a workgroup processor is two compute units
        units, simds = -(-units // 2), 2 * simds
    if not 0 < engines * arrays * units * simds * slots <= MOST_SLOTS:
        return
    array, unit = ("sa", "wgp") if family >= 10 else ("sh", "cu")
    for engine in range(engines):
        for sh in range(arrays):
            for cu in range(units):
                for simd in range(simds):
                    # from gfx10 on the SIMD is a part of the unit's number
                    which, selected = (cu << 2 | simd, 0) if family >= 10 else (cu, simd)
                    base = engine << 7 | sh << 15 | which << 23 | selected << 37
                    for wave in range(slots):
                        yield f"se{engine}.{array}{sh}.{unit}{cu}.simd{simd}.wave{wave}", base | wave << 31


def _slot(descriptor: int, offset: int, folder: Path) -> dict[str, int] | None:
    """The registers of the wave in a slot; None where there is none."""
    try:
        data = os.pread(descriptor, SLOT_BYTES, offset)
    except OSError as error:
        raise DriverError(f"{folder / FILE}: {error.strerror} at {offset:#x}.") from None
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
    names = TYPES.get(words[0], ()) if words else ()
    if not names or len(words) <= len(names) or not words[1] & VALID:
        return None
    return dict(zip(names, words[1:]))


def _kind(pc: int, mask: int, those: list[tuple[str, dict[str, int]]]) -> dict[str, Any]:
    first = those[0][1]
    states = _bits(first["status"], STATES if "state_priv" not in first else {9: STATES[9]})
    states += _bits(first.get("state_priv", 0), STATES_12)
    states += _bits(first.get("trapsts", 0), EXCEPTIONS) + _bits(
        first.get("excp_flag_priv", 0), EXCEPTIONS_12
    )
    return {
        "many": len(those),
        "unit": "wave",
        "places": [place for place, _ in those[:MOST_PLACES]],
        "pc": pc,
        "active": f"exec {mask:#x}, {mask.bit_count()} lanes",
        "state": ", ".join(dict.fromkeys(states)),
        "registers": first,
    }


def _bits(word: int, names: Mapping[int, str]) -> list[str]:
    return [text for bit, text in names.items() if word >> bit & 1]
