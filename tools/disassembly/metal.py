"""Metal's kernels: their source. The machine code that Metal makes of it is nobody's to see.

In       an image, which is MSL
Out      its lines
Next     function.py (Line), hcq/metal/program.py (who loads it)
"""

from __future__ import annotations

from hcq.tools.disassembly.function import Line


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """The text, line by line; that of the entry has its name as a label."""
    found, at = [], 0
    for text in image.decode("utf-8", "replace").splitlines(keepends=True):
        label = entry if f"kernel void {entry}(" in text else ""
        found.append(Line(at, b"", text.rstrip("\n"), label))
        at += len(text.encode())
    return found
