"""Steps that follow what nobody wrote through registers, LDS and scratch (HCQ_SANITIZE=init).

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Following`: steps around those of the program; `Unwritten`: what they know of the resident waves
Changes  the Unwritten of the resident waves; no register, no memory
Next     hcq/emu/shader/shadow_bits.py (which bits of a result), hcq/emu/shader/unwritten.py (what is told),
         register_use.py (which registers), checks.py (who attaches an Unwritten), machine.py (the first registers)

Each register has a shadow, with a bit set where nobody wrote: behind the registers of a batch are as many shadows, so
that they are copied, parted and joined with these. Memory has a shadow of the same layout; an access to memory is made
once more, by the same code, from shadows to shadows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.arrays import Array, pack_lanes, unpack_lanes
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.lane_access import active, parse_access
from hcq.emu.amd.shader.lds_ops import LdsStore, lane_addresses, offset16, pair_access, registers, waves_of
from hcq.emu.amd.shader.loads_to_lds import access_to_lds, is_load_to_lds, place_in_lds
from hcq.emu.amd.shader.memory import Bytes
from hcq.emu.amd.shader.memory_ops import address_of, flat, indices, mover, scratch_of
from hcq.emu.amd.shader.operands import PRIVATE_APERTURE, SHARED_APERTURE, Context, Step
from hcq.emu.amd.shader.register_use import EXEC, SCALARS, VCC, VECTORS, Part, Use, use_of
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader import shadow_bits
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.unwritten import Read, tell

SCC = 127  # its shadow is in the place of a shadow that EXEC's upper half does not need
FIRST_SPECIAL = 102  # scalar registers from here on count as set
BITWISE = {
    "and": shadow_bits.of_and,
    "or": shadow_bits.of_or,
    "xor": lambda a, b, shadow_a, shadow_b: shadow_a | shadow_b,
}
COPIES = ("v_mov_b32", "v_mov_b64", "v_not_b32", "s_mov_b32", "s_mov_b64", "s_not_b32", "s_not_b64", "v_accvgpr_read",
          "v_accvgpr_write", "v_accvgpr_mov")  # fmt: skip
SUMS = ("v_add_nc_u32", "v_add_u32", "v_sub_nc_u32", "v_sub_u32", "v_mul_lo_u32", "v_add3_u32", "s_add_u32",
        "s_add_i32", "s_sub_u32", "s_sub_i32", "s_mul_i32")  # fmt: skip
FLOATS = ("add", "sub", "subrev", "mul", "fma", "fmac", "mac", "mad", "max", "min", "exp", "log", "rcp", "rsq", "sqrt",
          "sin", "cos", "floor", "ceil", "trunc", "rndne", "fract")  # fmt: skip
WHOLE = (
    *(f"v_{name}_f32" for name in FLOATS), *(f"v_{name}_f64" for name in FLOATS),
    "v_add_co_u32", "v_add_co_ci_u32", "v_addc_co_u32", "v_sub_co_u32", "v_lshl_add_u32", "v_lshl_add_u64",
    "v_mad_u64_u32", "v_mad_u32_u24", "v_mul_u32_u24", "v_mul_hi_u32", "v_cvt_f32_u32", "v_cvt_f32_i32", "v_cvt_u32_f32",
    "v_cvt_i32_f32", "s_addc_u32", "s_subb_u32", "s_add_u64", "v_max_u32", "v_min_u32", "v_max_i32", "v_min_i32",
)  # fmt: skip
SHIFTS = {"v_lshlrev_b32": "left", "v_lshrrev_b32": "right", "v_ashrrev_i32": "signed", "s_lshl_b32": "left",
          "s_lshr_b32": "right", "s_ashr_i32": "signed"}  # fmt: skip
MATRICES = ("v_wmma", "v_swmmac", "v_mfma", "v_smfmac")
DUALS = {"v_dual_mov_b32", "v_dual_add_f32", "v_dual_mul_f32", "v_dual_sub_f32", "v_dual_fmac_f32", "v_dual_max_f32",
         "v_dual_min_f32", "v_dual_add_nc_u32", "v_dual_lshlrev_b32"}  # fmt: skip
Follow = Callable[["Unwritten", Batch], None]


class _NoMemory:
    """The shadow of global memory, all of which counts as written."""

    def gather(self, addresses: Array, words: int) -> Array:
        """Zeros."""
        return np.zeros((words, len(addresses)), np.uint32)

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        """Zeros."""
        return np.zeros(len(addresses), np.uint32)

    def scatter(self, addresses: Array, data: Array) -> None:
        """Nothing."""

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """Nothing."""


class Unwritten:
    """What nobody wrote of the resident waves.

    origins   register -> where what is unwritten of it came from; all of a register that is not here was written
    """

    def __init__(self, checks: Checks, residents: Residents, text_of: Callable[[int], str]) -> None:
        self.checks, self.text_of, self.residents = checks, text_of, residents
        launch = residents.launch
        made = self.shadow = object.__new__(Residents)
        made.__dict__.update(residents.__dict__)
        made.strays = None
        made.memory = _NoMemory()  # type: ignore[assignment]
        made.lds, made.scratch = (
            Bytes.zeros(len(residents.lds.data)),
            Bytes.zeros(len(residents.scratch.data)),
        )
        made.lds.data.fill(0xFF)
        made.scratch.data.fill(0xFF)
        first = launch.user_sgpr_count + sum(launch.group_ids) + 1
        never = [*range(first, FIRST_SPECIAL), *(VECTORS + n for n in range(1, launch.vgprs))]
        self.origins = {number: Read("register", name=name_of(number, launch.acc_offset)) for number in never}

    def start(self, v: Array, s: Array) -> tuple[Array, Array]:
        """Registers, and behind them their shadows, before the first instruction."""
        shadow_v, shadow_s = np.full_like(v, 0xFFFFFFFF), np.zeros_like(s)
        shadow_v[0] = 0
        for number in self.origins:
            if number < SCALARS:
                shadow_s[:, number] = 0xFFFFFFFF
        return np.concatenate([v, shadow_v]), np.concatenate([s, shadow_s], axis=1)

    # ------------------------------------------------------------ registers

    def shadows(self, b: Batch) -> Batch:
        """The batch of shadows: what a step of an access does to it, it does to shadows."""
        made = object.__new__(Batch)
        made.__dict__.update(b.__dict__)
        made.residents = self.shadow
        made.bind(b.u32[len(b.u32) // 2 :])
        return made

    def of(self, b: Batch, number: int) -> Array:
        """(wave, lane) or (wave, 1) shadows of a register."""
        if number not in self.origins:
            return np.zeros((1, 1), np.uint32)
        if number < SCALARS:
            return b.scalars[:, SCALARS + number][:, None]
        return b.u32[len(b.u32) // 2 + number - VECTORS]

    def put(self, b: Batch, number: int, shadow: Array | None, read: Read | None) -> None:
        """A register was written. shadow: None where all of it was."""
        if shadow is not None and not shadow.any():
            shadow = None
        if shadow is None and number not in self.origins:
            return
        value: Any = np.uint32(0) if shadow is None else shadow
        if number < SCALARS:
            b.scalars[:, SCALARS + number] = (
                value if shadow is None else np.broadcast_to(value, (b.waves, 1))[:, 0]
            )
            is_all = True
        else:
            place = b.u32[len(b.u32) // 2 + number - VECTORS]
            is_all = b.all_lanes
            if is_all:
                place[...] = value
            else:
                np.copyto(place, value, where=b.lanes)
        if shadow is not None and read is not None:
            self.origins[number] = read
        elif shadow is None and is_all and b.waves == len(self.residents.group_of):
            del self.origins[number]

    def origin(self, numbers: Iterable[int]) -> Read | None:
        """Where the first of these came from that may be unwritten."""
        return next((self.origins[number] for number in numbers if number in self.origins), None)

    def used(self, b: Batch, use: str, numbers: Iterable[int], pc: int, lanes: Array | None = None) -> None:
        """The lanes that are on use these registers for something that shows."""
        for number in numbers:
            read = self.origins.get(number)
            if read is None or (use == "store" and read.space == "global"):
                continue
            bad = np.broadcast_to(self.of(b, number) != 0, b.lanes.shape) & b.lanes
            if lanes is not None:
                bad = bad & lanes
            if bad.any():
                wave, lane = (int(each[0]) for each in np.nonzero(bad))
                who, times = b.lane_names(wave, lane), int(np.count_nonzero(bad))
                tell(self.checks, use, read, self.text_of(pc), pc, who, times)
                return


def name_of(number: int, acc_offset: int = 0) -> str:
    """A register as assembly has it."""
    if number < VECTORS:
        return f"s{number}"
    vector = number - VECTORS
    return f"a{vector - acc_offset}" if acc_offset and vector >= acc_offset else f"v{vector}"


# ---------------------------------------------------------------- steps


class Following:
    """Makes the steps of one program follow shadows. Their batches belong to Residents that have `unwritten`."""

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction, with its shadows made before."""
        use = use_of(ctx.inst)
        follow = _follow(ctx, use)
        written = [_number(ctx, each) for part in use.writes for each in part.registers]
        named = [_number(ctx, each) for part in (*use.reads, *use.writes) for each in part.registers]
        last = max(named, default=0) - VECTORS

        def run(b: Batch) -> None:
            unwritten = b.residents.unwritten
            if last >= b.residents.launch.vgprs:
                raise IndexError  # where the shadows are, there is no register
            if unwritten is None or b.answer is not None:
                step(b)
            elif follow is not None:
                follow(unwritten, b)
                step(b)
            else:
                for number in written:
                    unwritten.put(b, number, None, None)
                step(b)

        return run

    def head(self, instructions: list[Context]) -> Step | None:
        """Nothing before a block."""
        return None

    def before_end(self, ctx: Context) -> Step | None:
        """What looks at the condition of a branch, which ends a block."""
        name, pc = ctx.inst.name, ctx.inst.pc
        if name in ("s_cbranch_scc0", "s_cbranch_scc1"):
            first, words = SCC, 1
        elif name in ("s_cbranch_vccz", "s_cbranch_vccnz"):
            first, words = VCC, ctx.wave_size // 32
        else:
            return None

        def run(b: Batch) -> None:
            unwritten = b.residents.unwritten
            if unwritten is not None:
                unwritten.used(b, "branch", range(first, first + words), pc)

        return run


def _number(ctx: Context, register: int) -> int:
    """Accumulation registers lie behind the vector registers."""
    return register - 1024 + VECTORS + ctx.acc_offset if register >= 1024 else register


def _numbers(ctx: Context, part: Part | None) -> list[int]:
    return [] if part is None else [_number(ctx, each) for each in part.registers]


def _follow(ctx: Context, use: Use) -> Follow | None:
    inst = ctx.inst
    if is_load_to_lds(inst):
        return _load_to_lds(ctx, use)
    if inst.format == "DS":
        return _lds(ctx, use)
    if inst.format in ("FLAT", "GLOBAL", "SCRATCH"):
        return _memory(ctx, use)
    if inst.format in ("SMEM", "MUBUF"):
        return _through(ctx, use)
    if inst.name.startswith(MATRICES):
        return _matrix(ctx, use)
    if inst.format == "VOPD":
        return _dual(ctx, use)
    if inst.sdwa is not None or inst.dpp is not None:
        return None
    return _plain(ctx, use)


def _after(
    unwritten: Unwritten, b: Batch, made: Batch, numbers: list[int], read: Callable[[Array], Read]
) -> None:
    """What was loaded is in the shadows of these registers: note where it came from."""
    for number in numbers:
        place = made.u32[number - VECTORS]
        if (place[b.lanes] != 0).any():
            unwritten.origins[number] = read(place)
        elif number in unwritten.origins and b.all_lanes and b.waves == len(unwritten.residents.group_of):
            del unwritten.origins[number]


def _read(unwritten: Unwritten, b: Batch, row: Array, space: str, addresses: Array, pc: int) -> Read:
    """The first lane whose register is unwritten, and from where it read that. row: the register's shadow."""
    place = int(np.argmax(active(b, row) != 0))
    wave, lane = (int(each[place]) for each in indices(b))
    address = int(addresses[place]) & 0xFFFFFFFF
    return Read(space, address, "", pc, unwritten.text_of(pc), b.lane_names(wave, lane))


def _shared_read(unwritten: Unwritten, b: Batch, addresses: Array, pc: int, row: Array) -> Read:
    return _read(unwritten, b, row, "shared", addresses, pc)


def _memory(ctx: Context, use: Use) -> Follow | None:
    """Global, flat and scratch memory."""
    inst = ctx.inst
    access = parse_access(inst.name.split("_", 1)[1])
    if access is None:
        return None
    address, move, pc = address_of(ctx), mover(ctx, access), inst.pc
    has_saddr = use.read("saddr") is not None
    made_of = [*_numbers(ctx, use.read("saddr"))]
    lane = _numbers(ctx, use.read("addr"))
    if not (inst.format == "SCRATCH" and has_saddr and not inst.fields.get("sve", 0)):
        made_of += lane[:1] if has_saddr or inst.format == "SCRATCH" else lane
    data = _numbers(ctx, use.read("data")) if access.verb == "store" else []
    results = [_number(ctx, each) for part in use.writes for each in part.registers]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        if not b.lanes.any():
            return
        unwritten.used(b, "address", made_of, pc)
        addresses = active(b, address(b))
        high = addresses >> np.uint64(32)
        if access.verb == "store" and inst.format != "SCRATCH":
            is_global = np.zeros(b.lanes.shape, bool)
            is_global[b.lanes] = (high != SHARED_APERTURE) & (high != PRIVATE_APERTURE)
            unwritten.used(b, "store", data, pc, is_global)
        if access.verb == "atomic":
            for number in results:
                unwritten.put(b, number, None, None)
            return
        made = unwritten.shadows(b)
        _clear_lost(unwritten, b, data)
        try:
            if inst.format == "SCRATCH":
                move(made, scratch_of(made, *indices(b)), addresses)
            elif inst.format == "GLOBAL":
                move(made, unwritten.shadow.memory, addresses)
            else:
                flat(made, addresses, move)
        except PageFault:  # the instruction itself says so
            return
        space = (
            "local" if inst.format == "SCRATCH" else "shared" if (high == SHARED_APERTURE).any() else "local"
        )
        _after(unwritten, b, made, results, lambda row: _read(unwritten, b, row, space, addresses, pc))

    return follow


def _clear_lost(unwritten: Unwritten, b: Batch, numbers: list[int]) -> None:
    """Shadows of registers that are known to be written may be out of date: they are made zeros."""
    half = len(b.u32) // 2
    for number in numbers:
        if number not in unwritten.origins:
            b.u32[half + number - VECTORS] = 0


def _lds(ctx: Context, use: Use) -> Follow | None:
    inst = ctx.inst
    tail = inst.name[3:]
    pair, access, pc = pair_access(tail), parse_access(inst.name[3:]), inst.pc
    results = [_number(ctx, each) for part in use.writes for each in part.registers]
    made_of = _numbers(ctx, use.read("addr"))
    data0, data1, vdst = registers(ctx)
    if pair is not None and pair[0] in ("load", "store"):
        verb, bits, stride = pair
        offsets = [np.uint64(inst.fields[one] * stride * bits // 8) for one in ("offset0", "offset1")]
        access = lane_access.Access(verb, bits)
        places = [vdst, vdst + access.words] if verb == "load" else [data0, data1]
    elif access is not None and access.verb in ("load", "store") and "addtid" not in tail:
        offsets, places = [offset16(ctx)], [vdst if access.verb == "load" else data0]
    else:
        return _lds_other(ctx, results, made_of)
    moved = access
    address = inst.fields["addr"]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        if not b.lanes.any():
            return
        unwritten.used(b, "address", made_of, pc)
        made = unwritten.shadows(b)
        store = LdsStore(made, waves_of(b))
        for place, offset in zip(places, offsets):
            addresses = lane_addresses(b, address, offset)
            numbers = [VECTORS + place + word for word in range(moved.words)]
            if moved.verb == "store":
                _clear_lost(unwritten, b, numbers)
                lane_access.save(made, store, moved, place, addresses)
            else:
                lane_access.load(made, store, moved, place, addresses)
                _after(
                    unwritten, b, made, numbers, functools.partial(_shared_read, unwritten, b, addresses, pc)
                )

    return follow


def _lds_other(ctx: Context, results: list[int], made_of: list[int]) -> Follow:
    """Atomics, which leave the shadow of their place as it is but for exchanges; permutations."""
    inst = ctx.inst
    is_permute = "permute" in inst.name or "swizzle" in inst.name
    size = 8 if inst.name.endswith("64") else 4
    writes = "xchg" in inst.name or "wrxchg" in inst.name or "addtid" in inst.name or "append" in inst.name
    offset, address, pc = offset16(ctx), inst.fields["addr"], inst.pc

    def follow(unwritten: Unwritten, b: Batch) -> None:
        if not is_permute and made_of:
            unwritten.used(b, "address", made_of, pc)
        if writes:  # where exactly does not matter: less is found
            made = unwritten.shadows(b)
            if "addtid" in inst.name or "2addr" in inst.name or "2_" in inst.name or "append" in inst.name:
                unwritten.shadow.lds.data.fill(0)
            else:
                rows = np.zeros((size // 4, int(np.count_nonzero(b.lanes))), np.uint32)
                LdsStore(made, waves_of(b)).scatter(lane_addresses(b, address, offset), rows)
        for number in results:
            unwritten.put(b, number, None, None)

    return follow


def _load_to_lds(ctx: Context, use: Use) -> Follow | None:
    """What it brings was written."""
    if access_to_lds(ctx.inst) is None:
        return None
    place = place_in_lds(ctx)

    def follow(unwritten: Unwritten, b: Batch) -> None:
        wave, lane = indices(b)
        if len(wave):
            rows = np.zeros((1, len(wave)), np.uint32)
            LdsStore(unwritten.shadows(b), wave).scatter(
                np.asarray(place(b, wave, lane)).astype(np.uint64), rows
            )

    return follow


def _through(ctx: Context, use: Use) -> Follow:
    """Scalar loads, and accesses by a descriptor: global memory."""
    pc, name = ctx.inst.pc, ctx.inst.name
    fields = [field for field in ("sbase", "soffset", "srsrc", "vaddr") if use.read(field) is not None]
    if ctx.inst.format == "MUBUF" and not ctx.inst.fields["offen"] and not ctx.inst.fields["idxen"]:
        fields = [field for field in fields if field != "vaddr"]
    made_of = [number for field in fields for number in _numbers(ctx, use.read(field))]
    data = _numbers(ctx, use.read("vdata")) if "store" in name and "lds" not in name else []
    results = [_number(ctx, each) for part in use.writes for each in part.registers]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        unwritten.used(b, "address", made_of, pc)
        unwritten.used(b, "store", data, pc)
        for number in results:
            unwritten.put(b, number, None, None)

    return follow


def _matrix(ctx: Context, use: Use) -> Follow:
    sources = [_number(ctx, each) for part in use.reads for each in part.registers]
    results = [_number(ctx, each) for part in use.writes for each in part.registers]
    pc = ctx.inst.pc

    def follow(unwritten: Unwritten, b: Batch) -> None:
        unwritten.used(b, "matrix", sources, pc)
        for number in results:
            unwritten.put(b, number, None, None)

    return follow


def _dual(ctx: Context, use: Use) -> Follow:
    """Two instructions in one, of which the usual ones are followed."""
    assert ctx.inst.pair is not None
    halves: list[tuple[int, list[int]]] = []
    for opcode, side, part in zip(ctx.inst.pair, "xy", use.writes):
        names = ("src0", "vsrc1", "old") if "fmac" in opcode.name else ("src0", "vsrc1")
        names = names[:1] if "mov" in opcode.name else names
        sources = [each for name in names for each in _numbers(ctx, use.read(f"{name}{side}"))]
        halves.append((part.first, sources if opcode.name in DUALS else []))

    def follow(unwritten: Unwritten, b: Batch) -> None:
        made = []
        for target, sources in halves:
            read = unwritten.origin(sources)
            shadow = None
            if read is not None:
                shadow = shadow_bits.whole(_either(unwritten, b, sources), np.uint32)
            made.append((target, shadow, read))
        for target, shadow, read in made:
            unwritten.put(b, target, shadow, read)

    return follow


def _either(unwritten: Unwritten, b: Batch, numbers: Iterable[int]) -> Array:
    found = np.zeros((1, 1), np.uint32)
    for number in numbers:
        found = found | unwritten.of(b, number)
    return found


# ---------------------------------------------------------------- arithmetic


def _values(b: Batch, inst: Instruction, part: Part, word: int) -> Array:
    """(wave, lane) or (wave, 1) values of a source."""
    if part.first < 0:
        code = inst.fields.get(part.field, 128)
        number = code - 128 if 128 <= code <= 192 else 192 - code if 193 <= code <= 208 else inst.literal or 0
        return np.array([[(number if word == 0 else -(number < 0)) & 0xFFFFFFFF]], np.uint32)
    if part.first < SCALARS:
        return b.scalar(part.first + word)[:, None]
    return b.u32[part.first - VECTORS + word]


def _plain(ctx: Context, use: Use) -> Follow | None:
    """An instruction that computes registers from others."""
    inst, name = ctx.inst, ctx.inst.name
    sources = [part for part in use.reads if part.field not in ("vcc", "old")]
    if any(1024 <= part.first for part in (*use.reads, *use.writes)) and not name.startswith("v_accvgpr"):
        return None
    results = [_number(ctx, each) for part in use.writes for each in part.registers]
    if "saveexec" in name or (results and set(results) & {EXEC, EXEC + 1} and inst.format.startswith("SO")):
        return _exec(ctx, use, sources, results)
    if name.startswith(("v_cmp_", "s_cmp_", "v_cmpx_")):
        return _comparison(ctx, use, sources)
    if not use.writes or not sources:
        return None
    target, rest = use.writes[0], use.writes[1:]
    if name == "v_readlane_b32":
        return None
    make = _formula(name, inst, sources)
    if make is None:
        return None
    reads = [number for part in use.reads if part.field != "vcc" for number in _numbers(ctx, part)]
    words = [_number(ctx, each) for each in target.registers]
    others = [_number(ctx, each) for part in rest for each in part.registers]
    old = use.read("old")
    everything = [*sources, *([old] if old is not None else [])]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        read = unwritten.origin(reads)
        if read is None:
            for number in (*words, *others):
                unwritten.put(b, number, None, None)
            return
        made = [make(unwritten, b, ctx, everything, word) for word in range(len(words))]
        for number, shadow in zip(words, made):
            unwritten.put(b, number, shadow, read)
        for number in others:
            unwritten.put(b, number, None, None)

    return follow


Make = Callable[[Unwritten, Batch, Context, list[Part], int], Array]


def _shadow(unwritten: Unwritten, b: Batch, ctx: Context, part: Part, word: int) -> Array:
    if part.first < 0 or word >= part.words:
        return np.zeros((1, 1), np.uint32)
    return unwritten.of(b, _number(ctx, part.first + word))


def _formula(name: str, inst: Instruction, sources: list[Part]) -> Make | None:
    """The shadow of one word of a result."""
    if name.startswith(COPIES) and len(sources) == 1:
        return lambda u, b, ctx, parts, word: _shadow(u, b, ctx, parts[0], word)
    if name == "v_readfirstlane_b32":
        return _first_lane
    bitwise = next(
        (BITWISE[each] for each in BITWISE if name in (f"v_{each}_b32", f"s_{each}_b32", f"s_{each}_b64")),
        None,
    )
    if bitwise is not None:
        formula = bitwise
        return lambda u, b, ctx, parts, word: formula(
            *(_values(b, inst, part, word) for part in parts[:2]),
            *(_shadow(u, b, ctx, part, word) for part in parts[:2]),
        )
    if name in SHIFTS:
        return _shifted(name)
    if name in SUMS:
        return lambda u, b, ctx, parts, word: shadow_bits.upwards(_any(u, b, ctx, parts, word))
    if name == "v_cndmask_b32":
        return _choice
    if name in WHOLE:
        return lambda u, b, ctx, parts, word: shadow_bits.whole(_any(u, b, ctx, parts, word), np.uint32)
    return None


def _first_lane(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[Part], word: int) -> Array:
    """v_readfirstlane: of the first lane that is on."""
    shadow = np.broadcast_to(_shadow(unwritten, b, ctx, parts[0], 0), b.lanes.shape)
    return np.take_along_axis(shadow, b.lanes.argmax(axis=1)[:, None], axis=1)


def _any(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[Part], word: int) -> Array:
    """Of all sources, this word and those below."""
    found = np.zeros((1, 1), np.uint32)
    for part in parts:
        for below in range(min(word + 1, part.words)):
            found = found | _shadow(unwritten, b, ctx, part, below)
    return found


def _shifted(name: str) -> Make:
    is_vector, how = name.startswith("v_"), SHIFTS[name]

    def make(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[Part], word: int) -> Array:
        count, value = (parts[0], parts[1]) if is_vector else (parts[1], parts[0])
        by = _values(b, ctx.inst, count, 0) & np.uint32(31)
        shadow = _shadow(unwritten, b, ctx, value, 0)
        moved = shadow << by if how == "left" else shadow >> by
        if how == "signed":
            moved = (shadow.view(np.int32) >> by.view(np.int32)).view(np.uint32)
        return moved | shadow_bits.whole(_shadow(unwritten, b, ctx, count, 0), np.uint32)

    return make


def _choice(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[Part], word: int) -> Array:
    """v_cndmask: the second source where the mask has a bit."""
    no, yes = parts[0], parts[1]
    register = parts[2].first if len(parts) > 2 and parts[2].first >= 0 else VCC
    mask = b.mask(register)
    chosen = np.where(mask, _shadow(unwritten, b, ctx, yes, 0), _shadow(unwritten, b, ctx, no, 0))
    size = b.mask_words
    if any(register + each in unwritten.origins for each in range(size)):
        bits = unpack_lanes(b.scalars[:, SCALARS + register : SCALARS + register + size])
        differ = _values(b, ctx.inst, yes, 0) != _values(b, ctx.inst, no, 0)
        chosen = np.where(bits & differ, np.uint32(0xFFFFFFFF), chosen)
    return np.asarray(chosen, np.uint32)


# ---------------------------------------------------------------- masks and branches


def _comparison(ctx: Context, use: Use, sources: list[Part]) -> Follow | None:
    """Compares, whose result is a mask, or SCC; v_cmpx decides which lanes go on."""
    inst, name, pc = ctx.inst, ctx.inst.name, ctx.inst.pc
    if len(sources) != 2:
        return None
    is_scalar, is_exec = name.startswith("s_"), name.startswith("v_cmpx")
    kind = name.rpartition("_")[2]
    is_equality, is_integer = "_eq_" in name or "_lg_" in name or "_ne_" in name, kind in ("u32", "i32")
    reads = [number for part in sources for number in _numbers(ctx, part)]
    target = use.writes[0].first if use.writes else VCC

    def follow(unwritten: Unwritten, b: Batch) -> None:
        read = unwritten.origin(reads)
        masks = [] if is_scalar or is_exec else list(range(target, target + b.mask_words))
        if read is None:
            for number in masks or ([SCC] if is_scalar else []):
                unwritten.put(b, number, None, None)
            return
        if is_integer:
            values = [_values(b, inst, part, 0) for part in sources]
            shadows = [_shadow(unwritten, b, ctx, part, 0) for part in sources]
            bad = shadow_bits.of_comparison(*values, *shadows, is_equality, kind == "i32")
        else:
            bad = _either(unwritten, b, reads) != 0
        bad = np.broadcast_to(bad, b.lanes.shape) & b.lanes
        if is_scalar:
            unwritten.put(
                b,
                SCC,
                bad[:, :1].astype(np.uint32)
                if bad[:, 0].any()
                else bad.any(axis=1)[:, None].astype(np.uint32),
                read,
            )
        elif is_exec:
            _tell(unwritten, b, bad, read, pc)
        else:
            bits = pack_lanes(np.ascontiguousarray(bad))
            for index, number in enumerate(masks):
                unwritten.put(b, number, bits[:, index : index + 1], read)

    return follow


def _tell(unwritten: Unwritten, b: Batch, bad: Array, read: Read, pc: int) -> None:
    if bad.any():
        wave, lane = (int(each[0]) for each in np.nonzero(bad))
        who = b.lane_names(wave, lane)
        tell(unwritten.checks, "branch", read, unwritten.text_of(pc), pc, who, int(np.count_nonzero(bad)))


def _exec(ctx: Context, use: Use, sources: list[Part], results: list[int]) -> Follow:
    """A mask decides which lanes go on."""
    pc = ctx.inst.pc
    reads = [number for part in sources for number in part.registers if number not in (EXEC, EXEC + 1)]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        for first in reads[:: b.mask_words]:
            read = unwritten.origin(range(first, first + b.mask_words))
            if read is not None:
                bits = unpack_lanes(b.scalars[:, SCALARS + first : SCALARS + first + b.mask_words])
                _tell(unwritten, b, bits & b.lanes, read, pc)
        for number in results:
            if number not in (EXEC, EXEC + 1):
                unwritten.put(b, number, None, None)

    return follow
