"""Disassembly in hcq-trace: which kernels a trace has, and the machine code of one with labels and source lines.

In       a trace; the name of one of its kernels
Out      Lines as text or as plain data; the texts that came with a kernel
Next     tools/disassembly/ (who reads machine code), show.py (prints the same kernel's launches)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hcq import backends
from hcq.errors import UsageError
from hcq.tools.disassembly.function import Line
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.views import code_of
from hcq.trace.file import Code, Trace

_BYTES_PER_LINE = 8
# what reads the objects in a program's file, by kind of GPU
_OF_FILES = {"AMD": "roc-obj -d PROGRAM", "NV": "cuobjdump -sass PROGRAM"}


def disassemble(code: Code) -> list[Line]:
    """The instructions of a loaded kernel, by the disassembler of its kind of device.

    Raises  UsageError when there is no object, or it has no such function; DriverError when nothing here can read it
    """
    if not code.image:
        raise UsageError(_why_there_is_none(code))
    backend = backends.find(code.device.kind)
    if backend is None or not backend.disassembler:
        raise UsageError(f"disasm {code.name}: there is no disassembler for {code.device.kind} devices.")
    found: list[Line] = backends.load(backend.disassembler)(
        code.image, code.device.arch, code.entry, code.name
    )
    return found


def _why_there_is_none(code: Code) -> str:
    """Of a kernel without an object: what is missing, and who else can show its code."""
    tool = _OF_FILES.get(code.device.kind)
    instead = (
        f"The file that it comes from, the program or one of its libraries, is read by: {tool}"
        if tool
        else ""
    )
    if code.facts.get("left_out"):
        why = f"its object of {code.facts['object_bytes']} bytes was too large for the trace."
    elif code.facts.get("found") is False:
        why = (
            "neither GPU memory nor the memory of the process had its object when it was launched"
            " (a compressed one, or code that a driver makes itself, is not found), so the trace has none."
        )
    else:
        why = "the trace has no object of it."
    return f"disasm {code.name}: {why} {instead}".rstrip()


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
        size = f"an object of {len(image)} bytes" if image else "no object"
        yield clean(f"{name}  {arch}, {size}, {launches[what]} launches{loaded}")


def _what(code: Code) -> tuple[str, str, bytes]:
    return code.name, code.device.arch, code.image


def text(code: Code, name: str) -> Iterator[str]:
    """A text that came with a kernel: "source" or "ir". Raises UsageError when it has none."""
    found = code.facts.get(name)
    if not isinstance(found, str):
        raise UsageError(
            f"disasm {code.name}: the trace has no {name} of it. Kernels of the tensor layer have one, and those that "
            f"were loaded with sources={{{name!r}: ...}}."
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
