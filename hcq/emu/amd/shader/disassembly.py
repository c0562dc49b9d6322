"""Instructions as text, spelled much as LLVM spells them.

In       a decoded Instruction
Out      one line: mnemonic, operands, modifiers
Next     isa.py (decode)
"""

from __future__ import annotations

from hcq.emu.amd.shader.isa import DPP, DPP8, DPP8_FI, LITERAL, SDWA, Dpp16, Instruction, Isa, Operand

FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494")
NAMED = {
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
}


def span(letter: str, first: int, width: int) -> str:
    """Registers as text: v3, v[4:5]."""
    count = max(1, width // 32)
    return f"{letter}{first}" if count == 1 else f"{letter}[{first}:{first + count - 1}]"


def scalar_name(isa: Isa, code: int, width: int) -> str:
    """A scalar operand as text: s5, vcc, exec_lo, m0."""
    if code == isa.null:
        return "null"
    if code == isa.m0:
        return "m0"
    for base, name in (
        (106, "vcc"),
        (126, "exec"),
        *(((102, "flat_scratch"), (104, "xnack_mask")) if isa.is_gfx9 else ()),
    ):
        if code in (base, base + 1):
            return name if width == 64 else f"{name}_{'lo' if code == base else 'hi'}"
    if code >= 108:
        return span("ttmp", code - 108, width)
    return span("s", code, width)


def source_name(isa: Isa, inst: Instruction, code: int, width: int) -> str:
    """Any source operand as text, constants included."""
    if code >= 256:
        return span("v", code - 256, width)
    if code < 128:
        return scalar_name(isa, code, width)
    if code <= 208:
        return str(code - 128 if code <= 192 else 192 - code)
    if 240 <= code <= 248:
        return FLOATS[code - 240]
    if code == LITERAL:
        return f"{inst.literal or 0:#x}"
    extra = inst.dpp or inst.sdwa
    if code in (DPP, DPP8, DPP8_FI, SDWA) and extra is not None:
        register = extra.values["src0"]
        is_scalar = inst.sdwa is not None and inst.sdwa.s0
        return scalar_name(isa, register, width) if is_scalar else span("v", register, width)
    return NAMED.get(code, f"src_{code}")


def in_accumulators(inst: Instruction, operand: Operand) -> bool:
    """Whether a bit of the instruction puts an operand into the accumulation file."""
    if inst.format in ("MAI", "SCALED"):
        return bool(inst.fields["acc_cd"]) and operand.field == "vdst" and "mfma" in inst.name
    return bool(inst.fields.get("acc")) and operand.field in ("data", "data0", "data1", "vdst", "vdata")


def operand_name(isa: Isa, inst: Instruction, operand: Operand) -> str:
    """One operand of an instruction as text."""
    if operand.field == "vcc":
        named = inst.named_mask
        return "vcc" if named is None else scalar_name(isa, named, 64 if isa.is_gfx9 else 32)
    if operand.field == "literal32":
        return f"{inst.literal or 0:#x}"
    code = inst.fields[operand.field]
    if operand.field == "simm16" or operand.file == "I":
        return f"{code:#x}" if code > 9 else str(code)
    if operand.field == "sbase":
        return span("s", 2 * code, operand.width)
    if operand.field == "srsrc":
        return span("s", code if isa.generation == 12 else 4 * code, operand.width)
    if operand.field in ("sdst", "sdata"):
        return scalar_name(isa, code, operand.width)
    if operand.field == "vdst" and operand.file == "S":
        return scalar_name(isa, code, operand.width)
    if operand.field in ("src0", "src1", "src2", "ssrc0", "ssrc1", "soffset", "scale0", "scale1"):
        return source_operand(isa, inst, operand, code)
    if operand.field == "vsrc1" and inst.sdwa is not None and inst.sdwa.s1:
        return scalar_name(isa, code, operand.width)
    letter = "a" if operand.file == "A" or in_accumulators(inst, operand) else "v"
    if operand.width == 16 and inst.format in ("VOP1", "VOP2", "VOPC"):
        return f"v{code & 127}.{'h' if code >> 7 else 'l'}"
    return span(letter, code, operand.width)


def source_operand(isa: Isa, inst: Instruction, operand: Operand, code: int) -> str:
    """A source with its half, negation and absolute value as text."""
    if operand.width == 16 and code >= 256 and inst.format in ("VOP1", "VOP2", "VOPC"):
        return f"v{code & 127}.{'h' if code & 128 else 'l'}"
    name = source_name(isa, inst, code, operand.width)
    if operand.file == "A":
        name = name.replace("v", "a", 1)
    if operand.field.startswith("src") and inst.format in ("VOP3", "VOP3SD"):
        index = int(operand.field[3])
        if inst.fields.get("abs", 0) >> index & 1:
            name = f"|{name}|"
        if inst.fields.get("neg", 0) >> index & 1:
            name = f"-{name}"
    return name


def flags(isa: Isa, inst: Instruction) -> list[str]:
    """The modifiers behind the operands, those at their default left out."""
    fields, out = inst.fields, []
    for name in ("opsel", "opsel_hi", "neg_lo", "neg_hi", "cbsz", "abid", "blgp"):
        default = 3 if name == "opsel_hi" else 0
        if fields.get(name, default) != default:
            out.append(f"{name}:{fields[name]:#x}")
    if inst.format == "DS":
        out += [f"{name}:{fields[name]}" for name in ("offset0", "offset1") if fields[name]]
    elif fields.get("offset") and inst.format != "SMEM":
        offset = fields["offset"]
        top = 1 << (24 if "scope" in fields else isa.flat_offset_bits) - 1
        unsigned = inst.format == "MUBUF" and "scope" not in fields
        out.append(f"offset:{offset if unsigned else (offset ^ top) - top}")
    out += [
        name
        for name in ("clamp", "glc", "slc", "dlc", "scc", "sc0", "sc1", "nt", "lds", "offen", "idxen")
        if fields.get(name)
    ]
    if inst.name.startswith("tbuffer"):
        out += [f"{name}:{fields[name]}" for name in ("format", "dfmt", "nfmt") if name in fields]
    if fields.get("omod"):
        out.append(("", "mul:2", "mul:4", "div:2")[fields["omod"]])
    if isinstance(inst.dpp, Dpp16):
        out.append(
            f"dpp_ctrl:{inst.dpp.ctrl:#x} row_mask:{inst.dpp.row_mask:#x} bank_mask:{inst.dpp.bank_mask:#x}"
            + (" bound_ctrl:1" if inst.dpp.bound_ctrl else "")
        )
    elif inst.dpp is not None:
        out.append(f"dpp8:{inst.dpp.values['selectors']:#x}")
    if inst.sdwa is not None:
        if inst.format != "VOPC":  # whose result is a mask
            out.append(f"dst_sel:{inst.sdwa.dst_sel}")
        out.append(f"src0_sel:{inst.sdwa.src0_sel} src1_sel:{inst.sdwa.src1_sel}")
    return out


def dual_text(isa: Isa, inst: Instruction) -> str:
    """Two instructions in one (VOPD) as text."""
    assert inst.pair is not None
    fields, halves = inst.fields, []
    vdst = {"x": fields["vdstx"], "y": 2 * fields["vdsty"] + (1 - (fields["vdstx"] & 1))}
    for opcode, half in zip(inst.pair, "xy"):
        parts = [f"v{vdst[half]}", source_name(isa, inst, fields[f"src0{half}"], 32)]
        if opcode.name != "v_dual_mov_b32":
            parts.append(f"v{fields[f'vsrc1{half}']}")
        if opcode.name.startswith("v_dual_fmaak"):
            parts.append(f"{inst.literal or 0:#x}")
        if opcode.name.startswith("v_dual_fmamk"):
            parts.insert(2, f"{inst.literal or 0:#x}")
        halves.append(f"{opcode.name} {', '.join(parts)}")
    return " :: ".join(halves)


def text(isa: Isa, inst: Instruction) -> str:
    """The instruction in one line, without its address."""
    if inst.format == "VOPD":
        return dual_text(isa, inst)
    fields = inst.fields
    operands = inst.opcode.operands
    if fields.get("lds") and inst.format != "MUBUF":  # what is loaded goes to no register
        operands = tuple(one for one in operands if one.field != "vdst")
    names = [operand_name(isa, inst, operand) for operand in operands]
    if inst.format in ("GLOBAL", "SCRATCH"):
        off = fields["saddr"] in (isa.no_saddr, isa.no_address)
        saddr = "off" if off else scalar_name(isa, fields["saddr"], 64 if inst.format == "GLOBAL" else 32)
        at = next((i for i, o in enumerate(operands) if o.field == "addr"), None)
        if at is not None and inst.format == "GLOBAL" and not off:
            names[at] = f"v{fields['addr']}"
        if (
            at is not None
            and inst.format == "SCRATCH"
            and not fields.get("sve", fields["saddr"] == isa.no_saddr)
        ):
            names[at] = "off"
        names.append(saddr)
    if inst.format == "SMEM":
        top = 1 << 23 if isa.generation == 12 else 1 << 20
        names.append(f"{(fields['offset'] ^ top) - top:#x}" if inst.opcode.operands else "")
    line = f"{inst.name} {', '.join(name for name in names if name)}".rstrip()
    return " ".join([line, *flags(isa, inst)])
