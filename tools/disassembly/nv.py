"""NVIDIA's kernels: machine code read by nvdisasm where it is installed, else the PTX beside it.

In       an image as it was loaded: machine code, PTX or both
Out      Lines
Next     hcq/nv/bundle.py (the image), function.py (how the program is run)
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hcq.errors import DriverError
from hcq.nv.bundle import Bundle
from hcq.tools.disassembly.function import Line, find_tool, run_tool


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """One function. Raises DriverError when there is neither nvdisasm nor PTX."""
    code = Bundle.of(image)
    tool = nv_tool("nvdisasm") if code.cubin else None
    if tool is not None:
        return _section(run_tool(tool, ("-c", "-g"), code.cubin, entry), f".text.{entry}")
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


def nv_tool(name: str) -> str | None:
    """One of NVIDIA's programs: on PATH, or in its pip wheel."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(root).glob(f"*/bin/{name}")):
            return str(path)
    return find_tool(name)
