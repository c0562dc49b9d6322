"""Disassembly: the machine code of a kernel, with symbols, labelled jumps, and source lines where the object has them.

In       a code object's bytes, its arch, the symbol of the kernel's entry
Out      Lines: offset, bytes, text, the label before it, what it calls or jumps to, the line of source it came from
Changes  nothing
Next     hcq/elf.py (reads the object), show.py (prints the same kernel's launches)

x86-64 and aarch64 are read by capstone, AMD code by our own instruction tables when they know the arch, everything else
by the vendor's tool when it is on PATH; of NVIDIA's kernels the PTX is shown where nvdisasm is not installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hcq import elf
from hcq.errors import DriverError, HcqError, UsageError
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.views import code_of
from hcq.trace.file import Code, Trace

TOOL_TIMEOUT_S = 60
_BYTES_PER_LINE = 8


class Line(NamedTuple):
    """One instruction. `target` is the label, symbol or address that it refers to, or ""."""

    offset: int
    raw: bytes
    text: str
    label: str = ""
    target: str = ""
    source: str = ""


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """The instructions of one function.

    image   the whole object, as it was loaded
    arch    "x86_64", "aarch64", "gfx1100", "sm_90", ...
    entry   the function's symbol
    name    what messages call the kernel
    Raises  UsageError when the object has no such function; DriverError when nothing here can read its code
    """
    if arch in ("x86_64", "aarch64"):
        return _host(image, arch, entry, name)
    if arch.startswith("gfx"):
        return _amd(image, arch, entry, name)
    if arch.startswith("sm_"):
        return _nv(image, arch, entry)
    raise UsageError(
        f"disasm {name}: there is no disassembler for {arch!r}. Known: x86_64, aarch64, gfx..., sm_...."
    )


def kernels(trace: Trace) -> Iterator[str]:
    """The kernels of a trace: name, arch, size of the object, launches."""
    launches: Counter[tuple[str, str, bytes]] = Counter()
    for submission in trace.submissions:
        for command in submission.all_commands():
            code = code_of(trace, submission, command) if command["verb"] == "dispatch" else None
            if code is not None:
                launches[_what(code)] += 1
    for what, times in Counter(map(_what, trace.code)).items():
        name, arch, image = what
        loaded = f", loaded {times} times" if times > 1 else ""
        yield clean(f"{name}  {arch}, an object of {len(image)} bytes, {launches[what]} launches{loaded}")


def _what(code: Code) -> tuple[str, str, bytes]:
    return code.name, code.device.arch, code.image


def text(code: Code, name: str) -> Iterator[str]:
    """A text that came with a kernel: "source" or "ir". Raises UsageError when it has none."""
    found = code.facts.get(name)
    if not isinstance(found, str):
        raise UsageError(
            f"disasm {code.name}: the trace has no {name} of it. Kernels of the tensor layer have one, and those that "
            f"were loaded with texts={{{name!r}: ...}}."
        )
    return (clean(line) for line in found.splitlines())


def find(trace: Trace, name: str) -> Code:
    """The program of this name, or the only one with this in its name. Raises UsageError listing what there is."""
    exact = trace.code_named(name)
    found = exact or [code for code in trace.code if name in code.name]
    if len({(code.name, code.image) for code in found}) == 1 or exact:
        return found[-1]
    names = sorted({code.name for code in found or trace.code})
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    what = f"{name!r} could be any of these" if found else f"no kernel {name!r}; there are"
    raise UsageError(f"{trace.path}: {what}: {shown or 'none'}.")


def as_json(code: Code, found: list[Line]) -> dict[str, Any]:
    """The kernel and its instructions as plain data."""
    rows = [{**line._asdict(), "raw": line.raw.hex()} for line in found]
    return {
        "kernel": code.name,
        "entry": code.entry,
        "arch": code.device.arch,
        "va": code.va,
        "instructions": rows,
    }


def lines(code: Code, found: list[Line], color: Color, with_bytes: bool = False) -> Iterator[str]:
    """The text that a person reads."""
    arguments = "" if code.args is None else f"({', '.join(code.args)})"
    yield f"{color(code.name + arguments, 'kernel')} {color(f'{code.device.arch}, loaded at {code.va:#x}', 'note')}"
    source = ""
    for line in found:
        if line.label:
            yield color(f"{line.label}:", "heading")
        if line.source and line.source != source:
            source = line.source
            yield color(f"      ; {source}", "note")
        raw = f"{line.raw[:_BYTES_PER_LINE].hex(' '):<{3 * _BYTES_PER_LINE}}" if with_bytes else ""
        target = f"  ; {color(line.target, 'buffer')}" if line.target else ""
        yield f"  {line.offset:5x}  {raw}{clean(line.text)}{target}"


class _Function(NamedTuple):
    """Where a function lies: the bytes of its section from its start on, and its offset in that section."""

    code: bytes
    start: int
    section: int
    object: elf.Object
    symbols: list[elf.Symbol]


def _find(image: bytes, entry: str, name: str) -> _Function:
    object_ = elf.Object(image, name)
    tables = [s for s in object_.sections if s.type in (elf.SHT_SYMTAB, elf.SHT_DYNSYM)]
    symbols = [symbol for table in tables for symbol in object_.symbols(table)]
    for symbol in symbols:
        if symbol.name == entry and 0 < symbol.section < elf.SHN_LORESERVE:
            section = object_.sections[symbol.section]
            start = symbol.value - (section.va if object_.type == elf.ET_DYN else 0)
            size = symbol.size_bytes or section.size_bytes - start
            code = object_.contents(section)
            if not 0 <= start < len(code):
                raise UsageError(
                    f"disasm {name}: {entry!r} starts outside its section; the object is damaged."
                )
            return _Function(code[start : start + size], start, symbol.section, object_, symbols)
    names = sorted({s.name for s in symbols if s.type == elf.STT_FUNC and not s.is_undefined})
    raise UsageError(
        f"disasm {name}: no function {entry!r} in its object. Its functions: {', '.join(names[:12]) or 'none'}."
    )


# ------------------------------------------------------------ x86-64 and aarch64


def _host(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    try:
        import capstone
    except ImportError:
        raise DriverError(
            f"disasm {name}: {arch} code is read by capstone, which is not installed: pip install capstone"
        ) from None
    function = _find(image, entry, name)
    machine = (
        (capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        if arch == "x86_64"
        else (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    )
    reader = capstone.Cs(*machine)
    reader.detail = True
    reader.skipdata = True
    found = list(reader.disasm(function.code, function.start))
    jumps = {at: to for at, to in ((one.address, _jump(one, capstone)) for one in found) if to is not None}
    starts = {one.address for one in found}
    inside = sorted({to for at, to in jumps.items() if to in starts and to != function.start})
    labels = {to: f".L{number}" for number, to in enumerate(inside, 1)}
    labels[function.start] = entry
    relocations = _relocations(function)
    symbols = {
        symbol.value - (function.object.sections[function.section].va if function.object.type == elf.ET_DYN else 0):
            symbol.name
        for symbol in function.symbols
        if symbol.section == function.section and symbol.name and symbol.type == elf.STT_FUNC
    }  # fmt: skip
    sources = _sources(function)
    out = []
    for one in found:
        text = f"{one.mnemonic} {one.op_str}".strip()
        target = ", ".join(
            relocations[at] for at in range(one.address, one.address + one.size) if at in relocations
        )
        to = jumps.get(one.address)
        if to in labels:
            text = re.sub(rf"#?\b0x{to:x}$|#?\b{to}$", labels[to], text)
        elif to is not None and not target:
            target = symbols.get(to, "")
        out.append(
            Line(
                one.address - function.start,
                bytes(one.bytes),
                text,
                labels.get(one.address, ""),
                target,
                sources.get(one.address, ""),
            )
        )
    return out


def _jump(one: Any, capstone: Any) -> int | None:
    """Where a direct jump or call goes, or None. A call that a relocation fills in goes nowhere yet."""
    if one.id == 0:  # bytes that are no instruction
        return None
    groups = set(one.groups)
    if not groups & {capstone.CS_GRP_JUMP, capstone.CS_GRP_CALL, capstone.CS_GRP_BRANCH_RELATIVE}:
        return None
    for operand in one.operands:
        if operand.type == capstone.CS_OP_IMM:
            return int(operand.imm)
    return None


def _relocations(function: _Function) -> dict[int, str]:
    """Offset in the function's section -> the symbol whose address goes there."""
    found: dict[int, str] = {}
    object_ = function.object
    if object_.type != elf.ET_REL:
        return found
    for table in object_.sections:
        if table.type != elf.SHT_RELA or table.info != function.section:
            continue
        symbols = object_.symbols(object_.section(table.link, f"the symbols of {table.name!r}"))
        for entry in object_.relocations(table):
            if entry.symbol >= len(symbols):
                continue
            symbol = symbols[entry.symbol]
            name = symbol.name
            if not name and 0 < symbol.section < len(object_.sections):
                name = object_.sections[symbol.section].name
            found[entry.offset] = name + (f"{entry.addend:+#x}" if entry.addend not in (0, -4) else "")
    return found


def _sources(function: _Function) -> dict[int, str]:
    """Address -> file:line, for objects that carry line tables (cc -g)."""
    if not any(section.name in (".debug_line", ".zdebug_line") for section in function.object.sections):
        return {}
    import io

    from elftools.common.exceptions import DWARFError, ELFError, ELFParseError
    from elftools.elf.elffile import ELFFile

    found: dict[int, str] = {}
    base = function.object.sections[function.section].va if function.object.type == elf.ET_DYN else 0
    try:
        dwarf = ELFFile(io.BytesIO(function.object.image)).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            files = program["file_entry"]
            first = 0 if program["version"] >= 5 else 1
            for entry in program.get_entries():
                state = entry.state
                if state is None or state.end_sequence or not 0 <= state.file - first < len(files):
                    continue
                file = files[state.file - first].name.decode("utf-8", "replace")
                found[state.address - base] = f"{file}:{state.line}"
    except (DWARFError, ELFError, ELFParseError, ValueError, KeyError, IndexError, struct.error):
        return {}  # line tables are a comfort; the code is shown without them
    return found


# ------------------------------------------------------------ AMD


def _amd(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    from hcq.emu.amd.shader.architectures import isa_of

    isa = isa_of(arch)
    if isa is not None:
        return _amd_tables(image, isa, entry, name)
    tool = _tool("llvm-objdump", "amdgpu-objdump")
    if tool is None:
        raise DriverError(
            f"disasm {name}: our instruction tables do not know {arch}, and llvm-objdump is not on PATH. "
            "Install it: apt install llvm (or take ROCm's, /opt/rocm/llvm/bin)."
        )
    return _run(tool, ("-d", f"--disassemble-symbols={entry}"), image, name)


def _amd_tables(image: bytes, isa: Any, entry: str, name: str) -> list[Line]:
    from hcq.emu.amd.shader import disassembly

    function = _find(image, entry, name)
    words = struct.unpack(f"<{len(function.code) // 4}I", function.code[: len(function.code) // 4 * 4])
    found: list[tuple[int, tuple[int, ...], Any]] = []
    at = 0
    while at < len(words):
        one: Any = None
        raw = words[at : at + 1]
        with contextlib.suppress(HcqError):
            one = isa.decode(words[at:], 4 * at)
            raw = one.words
        found.append((4 * at, raw, one))
        at += len(raw)
    jumps = {offset: _amd_jump(one) for offset, _, one in found if one is not None}
    inside = sorted(
        {to for to in jumps.values() if to is not None} & {offset for offset, _, _ in found} - {0}
    )
    labels = {to: f".L{number}" for number, to in enumerate(inside, 1)}
    labels[0] = entry
    out = []
    for offset, raw, one in found:
        text = f".long {raw[0]:#010x}" if one is None else disassembly.text(isa, one)
        to = jumps.get(offset)
        if to in labels:
            text = f"{one.name} {labels[to]}"
        out.append(Line(offset, struct.pack(f"<{len(raw)}I", *raw), text, labels.get(offset, "")))
    return out


def _amd_jump(one: Any) -> int | None:
    """Where a branch goes, in bytes from the function's start: a signed count of words after it."""
    if not one.name.startswith(("s_branch", "s_cbranch")) or "simm16" not in one.fields:
        return None
    words = one.fields["simm16"]
    return int(one.next_pc + 4 * (words - 0x10000 if words >= 0x8000 else words))


# ------------------------------------------------------------ NVIDIA and the vendors' tools


def _nv(image: bytes, arch: str, entry: str) -> list[Line]:
    from hcq.nv.bundle import Bundle

    code = Bundle.of(image)
    tool = _nv_tool("nvdisasm") if code.cubin else None
    if tool is not None:
        return _section(_run(tool, ("-c", "-g"), code.cubin, entry), f".text.{entry}")
    if code.ptx:  # text already, and beside the machine code of what our compilers made
        lines = code.ptx.decode("utf-8", "replace").splitlines()
        return [Line(number, b"", line) for number, line in enumerate(lines, 1)]
    raise DriverError(
        f"disasm {entry}: {arch} machine code is read by nvdisasm, which is not here, and there is no PTX beside it. "
        "Install it: pip install nvidia-cuda-nvdisasm, or take CUDA's bin folder into PATH."
    )


def _section(lines: list[Line], name: str) -> list[Line]:
    """One section of what nvdisasm prints; all of it where that has no such heading."""
    headings = [number for number, line in enumerate(lines) if line.text.startswith("//----")]
    for start, end in zip(headings, [*headings[1:], len(lines)]):
        if lines[start].text.split()[1] == name:
            return lines[start:end]
    return lines


def _nv_tool(name: str) -> str | None:
    """One of NVIDIA's programs: on PATH, or in its pip wheel."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(root).glob(f"*/bin/{name}")):
            return str(path)
    return _tool(name)


def _tool(*names: str) -> str | None:
    return next((path for path in map(shutil.which, names) if path), None)


def _run(tool: str, options: tuple[str, ...], image: bytes, name: str) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="hcq-trace-") as folder:
        path = Path(folder) / "kernel.o"
        path.write_bytes(image)
        try:
            done = subprocess.run(
                [tool, *options, str(path)], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DriverError(f"disasm {name}: {tool} did not answer ({error}).") from None
    if done.returncode:
        raise DriverError(f"disasm {name}: {tool} -> {done.returncode}: {done.stderr.strip()[:300]}")
    return [Line(number, b"", text) for number, text in enumerate(done.stdout.splitlines())]
