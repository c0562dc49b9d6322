"""Instructions of AMD GPUs, for the debugger: which registers each reads and writes, and where it reaches in memory.

In       a Context, as programs compile it; a batch of waves that are about to execute it
Out      AmdSite; `accesses_of` a batch; `index_of` a register's name
Next     amd.py (who asks), hcq/emu/amd/shader/isa.py (operands)
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from hcq.debug.moment import Access, Array, Site
from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.classes import WAITS, WARP
from hcq.emu.amd.shader.isa import Instruction, Isa, Operand
from hcq.emu.amd.shader.lane_access import active, parse_access
from hcq.emu.amd.shader.lds_ops import lane_addresses, offset16, pair_access
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.memory_ops import LOWEST_APERTURE, Buffer, address_of, indices
from hcq.emu.amd.shader.operands import PRIVATE_APERTURE, SHARED_APERTURE, Context, scalar64
from hcq.emu.amd.shader.scalar_memory_ops import LOAD_WORDS, offset_of
from hcq.emu.amd.shader.waves import EXEC, VCC, Batch
from hcq.errors import UsageError

SPAN = re.compile(r"([vsa])(?:\[(\d+):(\d+)\]|(\d+))(?:\.[lh])?$")
RESULTS = ("vdst", "sdst", "vcc")  # fields that are written, where the table names them before the sources
ACCUMULATES = re.compile(
    r"v_(?:dual_)?(?:fmac|mac|dot\w*c_|pk_fmac)|v_writelane|v_mfma|v_smfmac|v_wmma|v_swmmac"
)
READS_SCC = re.compile(r"s_(?:cselect|addc|subb|cmov|cbranch_scc|cmovk)")
WRITES_SCC = re.compile(
    r"s_(?:cmp|bitcmp|add_|sub_|addc|subb|and|or|xor|nand|nor|xnor|not|andn|orn|lshl|lshr|ashr|bfe|min|max|abs|bcnt|wqm)"
)
WRITES_EXEC = re.compile(r"s_\w+_(?:saveexec|wrexec)_|v_cmpx_")
EXEC_WORDS = {"exec", "exec_lo", "exec_hi"}


class AmdSite(NamedTuple):
    """An instruction, and what is needed to find its addresses."""

    site: Site
    ctx: Context


def index_of(name: str, isa: Isa) -> tuple[str, int]:
    """The file of a register ("v", "a", "s") and its number in it. Raises UsageError."""
    named = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1,
             "m0": isa.m0}  # fmt: skip
    if name in named:
        return "s", named[name]
    found = re.fullmatch(r"(ttmp|[vsa])(\d+)", name)
    if found is None:
        raise UsageError(f"there is no register {name!r}. Say v3, s4, a0, vcc, exec, m0 or scc.")
    number = int(found[2])
    return ("s", 108 + number) if found[1] == "ttmp" else (found[1], number)


def site_of(ctx: Context) -> AmdSite:
    """What is known of an instruction."""
    inst = ctx.inst
    reads, writes = _registers(ctx)
    text = disassembly.text(ctx.isa, inst)
    return AmdSite(
        Site(inst.pc, text, "", tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes)), _kind(inst)), ctx
    )


def _kind(inst: Instruction) -> str:
    name, form = inst.name, inst.format
    if name.startswith("s_endpgm"):
        return "end"
    if name in ("s_barrier", "s_barrier_wait"):
        return "barrier"
    if name.startswith(("s_cbranch", "s_branch", "s_setpc", "s_swappc", "s_call")):
        return "branch"
    if (
        form not in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "DS", "SMEM")
        or WARP.match(name)
        or WAITS.match(name)
    ):
        return ""
    tail = name.split("_", 1)[1]
    for kind, words in (("load", ("load", "read", "buffer_load")), ("store", ("store", "write"))):
        if tail.startswith(words):
            return kind
    return "atomic" if tail.startswith("atomic") or form == "DS" else ""


def spelled(isa: Isa, inst: Instruction, operand: Operand) -> list[str]:
    """The registers of an operand, one by one."""
    return expanded(disassembly.operand_name(isa, inst, operand).strip("-|"), isa)


def expanded(text: str, isa: Isa) -> list[str]:
    """The registers of a text such as "v[2:3]", "vcc", "s4"; none of a constant."""
    if text in ("vcc", "exec"):
        return [text]
    if text in ("vcc_lo", "vcc_hi", "exec_lo", "exec_hi"):
        return [text[:-3] if text.endswith("_lo") else text]
    if text in ("m0", "scc", "src_scc"):
        return [text.removeprefix("src_")]
    found = SPAN.match(text)
    if found is None:
        return []
    if found[4] is not None:
        return [f"{found[1]}{found[4]}"]
    return [f"{found[1]}{n}" for n in range(int(found[2]), int(found[3]) + 1)]


def _registers(ctx: Context) -> tuple[list[str], list[str]]:
    inst, isa = ctx.inst, ctx.isa
    if inst.format == "VOPD":
        return _dual(ctx)
    reads: list[str] = []
    writes: list[str] = []
    kind, name = _kind(inst), inst.name
    for place, operand in enumerate(inst.opcode.operands):
        if operand.field in ("simm16", "literal32") or operand.file == "I":
            continue
        names = spelled(isa, inst, operand)
        is_result = (
            operand.field in ("vdst", "sdst")
            or (operand.field == "vcc" and place <= 1 and not name.startswith("v_cndmask"))
            or (operand.field in ("sdata", "vdata") and kind == "load")
        )
        if is_result and name.startswith(("s_cmpk", "s_setreg", "s_setpc")):
            is_result = False
        (writes if is_result else reads).extend(names)
    if inst.format in ("GLOBAL", "SCRATCH", "FLAT") and inst.fields.get("saddr", isa.no_saddr) not in (
        isa.no_saddr,
        isa.no_address,
    ):
        reads += [f"s{inst.fields['saddr']}", f"s{inst.fields['saddr'] + 1}"]
    if ACCUMULATES.match(name) or name.startswith(("s_fmac", "s_addk", "s_mulk")):
        reads += writes
    if READS_SCC.match(name):
        reads.append("scc")
    if WRITES_SCC.match(name):
        writes.append("scc")
    if WRITES_EXEC.match(name):
        reads.append("exec")
        writes.append("exec")
    if name.startswith("s_cbranch_vcc"):
        reads.append("vcc")
    if name.startswith("s_cbranch_exec"):
        reads.append("exec")
    return reads, writes


def _dual(ctx: Context) -> tuple[list[str], list[str]]:
    reads: list[str] = []
    writes: list[str] = []
    for half in disassembly.dual_text(ctx.isa, ctx.inst).split(" :: "):
        name, _, rest = half.partition(" ")
        names = [one for part in rest.split(", ") for one in expanded(part, ctx.isa)]
        writes += names[:1]
        reads += names[1:] if not ACCUMULATES.match(name) else names
        if "cndmask" in name:
            reads.append("vcc")
    return reads, writes


# ------------------------------------------------------------ where it reaches


def accesses_of(known: AmdSite, b: Batch, numbers: Array, acc_offset: int) -> list[Access]:
    """What the waves of a batch, which have these numbers, are about to do with memory."""
    ctx, kind = known.ctx, known.site.kind
    inst = ctx.inst
    if kind not in ("load", "store", "atomic"):
        return []
    if inst.format == "SMEM":
        return _scalar(known, b, numbers)
    if not b.lanes.any() or is_load_to_lds(inst):
        return []
    wave, lane = indices(b)
    if inst.format == "DS":
        return _shared(known, b, numbers[wave], lane)
    access = parse_access(inst.name.split("_", 1)[1])
    if access is None:
        return []
    data = known.site.writes if kind == "load" else _data(inst, access.words, acc_offset)
    size = access.bits // 8
    if inst.format == "MUBUF":
        return _buffer(Buffer(ctx, access), kind, b, numbers, size, data)
    at = active(b, address_of(ctx)(b))
    if inst.format == "SCRATCH":
        return [Access(kind, "local", numbers[wave], lane, at, size, data)]
    if inst.format == "GLOBAL" or int(at.max(initial=0)) < LOWEST_APERTURE:
        return [Access(kind, "global", numbers[wave], lane, at, size, data)]
    high, low = at >> np.uint64(32), at & np.uint64(0xFFFFFFFF)
    found = []
    for space, chosen, where in (
        ("shared", high == SHARED_APERTURE, low),
        ("local", high == PRIVATE_APERTURE, low),
        ("global", (high != SHARED_APERTURE) & (high != PRIVATE_APERTURE), at),
    ):
        if chosen.any():
            found.append(Access(kind, space, numbers[wave[chosen]], lane[chosen], where[chosen], size, data))
    return found


def _data(inst: Instruction, words: int, acc_offset: int) -> tuple[str, ...]:
    first = inst.fields["vdata" if inst.format == "MUBUF" else "data0" if inst.format == "DS" else "data"]
    letter = "a" if inst.fields.get("acc") else "v"
    return tuple(f"{letter}{first + n}" for n in range(words))


def _buffer(
    buffer: Buffer, kind: str, b: Batch, numbers: Array, size: int, data: tuple[str, ...]
) -> list[Access]:
    wave, lane = indices(b)
    if buffer.is_spread(b):
        store, offsets = buffer.spread(b)
        return [Access(kind, "global", numbers[wave], lane, store.place(offsets, 1, "read"), size, data)]
    addresses, inside = buffer.places(b)
    reached = active(b, inside)
    where = active(b, addresses)[reached]
    return [Access(kind, "global", numbers[wave[reached]], lane[reached], where, size, data)]


def _scalar(known: AmdSite, b: Batch, numbers: Array) -> list[Access]:
    ctx, name = known.ctx, known.ctx.inst.name
    first = 2 * ctx.inst.fields["sbase"]
    base = scalar64(ctx, first)(b)
    if "buffer" in name:
        base = base & np.uint64(0xFFFFFFFFFFFF)
    at = base + offset_of(ctx)(b)
    tail = name.rpartition("_")[2]
    if known.site.kind == "atomic":
        access = parse_access(f"atomic_{name.partition('_atomic_')[2]}")
        size = access.bits // 8 if access is not None else 4
    else:
        size = 4 * LOAD_WORDS[tail] if tail in LOAD_WORDS else int(tail[1:]) // 8
    lanes = np.zeros(len(numbers), np.int64)
    data = known.site.writes if known.site.kind == "load" else known.site.reads[:1]
    return [Access(known.site.kind, "global", numbers, lanes, at & ~np.uint64(min(size, 4) - 1), size, data)]


def _shared(known: AmdSite, b: Batch, wave: Array, lane: Array) -> list[Access]:
    ctx, kind = known.ctx, known.site.kind
    name, fields = ctx.inst.name, ctx.inst.fields
    if "addtid" in name or fields.get("gds") or "gws" in name:
        return []
    pair = pair_access(name[3:])
    if pair is not None:
        _, bits, stride = pair
        words, size = bits // 32, bits // 8
        found = []
        for number, field in enumerate(("offset0", "offset1")):
            at = lane_addresses(b, fields["addr"], np.uint64(fields[field] * stride * size))
            data = (
                known.site.writes[number * words : (number + 1) * words]
                if kind == "load"
                else tuple(f"v{fields[f'data{number}'] + n}" for n in range(words))
            )
            found.append(Access(kind, "shared", wave, lane, at, size, data))
        return found
    access = parse_access(name[3:]) or parse_access("atomic_" + name[3:].replace("_rtn", ""))
    if access is None:
        return []
    at = lane_addresses(b, fields["addr"], offset16(ctx))
    data = known.site.writes if kind == "load" else _data(ctx.inst, access.words, 0)
    return [Access(kind, "shared", wave, lane, at, access.bits // 8, data)]
