"""A kernel: WGSL made into a compute pipeline, and what its bindings take.

In       WGSL, the name of an entry point
Out      `Kernel`, ready to be dispatched; its arguments as 64-bit slots of a packet
Changes  WebGPU's module and pipeline, which go with it
Next     device.py (load, encode_dispatch), commands.py (who dispatches it), codegen.py (who writes most of them)
Source   WGSL (W3C): resource variables, @workgroup_size; WebGPU: GPUBindGroupLayoutEntry

The arguments are the bindings of group 0, in order, none left out: `var<storage, read_write>` is a buffer, and
`var<uniform>` of u32, i32 or f32 a number. Storage that is only read is refused: buffers of the pool share a buffer of
WebGPU's, which one dispatch may use in one way only. A kernel that declares `const ROW = N;` is launched over one
dimension of any length, in rows of N groups: it passes over groups whose number, y * ROW + x, is none of its own.
"""

from __future__ import annotations

import re
from typing import Any

from hcq.device import Device
from hcq.errors import UsageError
from hcq.memory import Buffer, kind_of
from hcq.program import Slot
from hcq_webgpu.api import Gpu

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
BINDING = re.compile(
    r"@group\s*\(\s*(\d+)\s*\)\s*@binding\s*\(\s*(\d+)\s*\)\s*var\s*<\s*([\w\s,]+?)\s*>\s*(\w+)\s*:\s*([^;]+);"
)
SIZE = re.compile(r"@workgroup_size\s*\(([^)]*)\)")
ROW = re.compile(r"\bconst\s+ROW\s*=\s*(\d+)u?\s*;")
LETTERS = {"u32": "I", "i32": "I", "f32": "f"}
MOST_NUMBERS = 8  # uniform buffers with an offset of their own for each dispatch: WebGPU's default limit


class Kernel:
    """One entry point. Raises UsageError, with the compiler's words, when the source or the name is wrong.

    slots  where each argument is behind a Dispatch packet, and its format
    kinds  "buffer", "int" or "float" for each
    block  invocations of a group
    row    groups of a row, where it takes one dimension in rows, or 0
    """

    def __init__(self, gpu: Gpu, source: bytes, entry: str, name: str) -> None:
        self.kinds: list[str] = []
        self.slots: list[Slot] = []
        try:
            text = source.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"load({name!r}): this is no WGSL, which is text: {error}.") from None
        plain = COMMENT.sub(" ", text)
        self.block = _size_of(plain, entry, name)
        row = ROW.search(plain)
        self.row = int(row[1]) if row else 0
        for number, binding in enumerate(_bindings(plain, name)):
            kind, letter = _argument(*binding, name)
            self.kinds.append(kind)
            self.slots.append(Slot(8 * number, 8 if letter == "Q" else 4, letter))
        if len(self.kinds) - self.kinds.count("buffer") > MOST_NUMBERS:
            raise UsageError(f"load({name!r}): more than {MOST_NUMBERS} numbers. Pass them in a buffer.")
        try:
            self.layout = gpu.device.create_bind_group_layout(entries=self._entries(gpu))
            self.pipeline = gpu.device.create_compute_pipeline(
                layout=gpu.device.create_pipeline_layout(bind_group_layouts=[self.layout]),
                compute={"module": gpu.device.create_shader_module(code=text), "entry_point": entry},
            )
        except gpu.error as error:
            raise UsageError(f"load({name!r}): WebGPU makes no kernel of it. Its compiler: {error}") from None

    def _entries(self, gpu: Gpu) -> list[dict[str, Any]]:
        storage = {"type": "storage"}
        uniform = {"type": "uniform", "has_dynamic_offset": True}
        return [
            {"binding": at, "visibility": gpu.compute, "buffer": storage if kind == "buffer" else uniform}
            for at, kind in enumerate(self.kinds)
        ]

    def groups(self, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        """The groups to dispatch for those that a launch asks for: rows, where they do not fit one dimension."""
        x, y, z = grid
        if self.row and y == z == 1 and x > self.row:
            return self.row, -(-x // self.row), 1
        return grid


def _size_of(text: str, entry: str, name: str) -> tuple[int, int, int]:
    """The entry point's @workgroup_size."""
    head = re.search(rf"((?:@\w+\s*(?:\([^)]*\))?\s*)+)fn\s+{re.escape(entry)}\s*\(", text)
    if not entry or head is None or "@compute" not in head[1]:
        raise UsageError(f"load({name!r}): the source has no entry point @compute fn {entry}.")
    found = SIZE.search(head[1])
    sizes = [one.strip() for one in (found[1] if found else "").split(",") if one.strip()]
    if not 1 <= len(sizes) <= 3 or not all(re.fullmatch(r"\d+[ui]?", one) for one in sizes):
        raise UsageError(f"load({name!r}): write the @workgroup_size of {entry} as one to three numbers.")
    x, y, z = [int(one.rstrip("ui")) for one in sizes] + [1] * (3 - len(sizes))
    return x, y, z


def _bindings(text: str, name: str) -> list[tuple[str, str, str]]:
    """(address space, name, type) of each binding, in order."""
    found = [(int(group), int(at), tuple(rest)) for group, at, *rest in BINDING.findall(text)]
    found.sort()
    if [(group, at) for group, at, _ in found] != [(0, at) for at in range(len(found))]:
        where = ", ".join(f"@group({group}) @binding({at})" for group, at, _ in found)
        raise UsageError(f"load({name!r}): bindings {where}; number them from @group(0) @binding(0) on.")
    return [(space, variable, kind) for _, _, (space, variable, kind) in found]


def _argument(space: str, variable: str, kind: str, name: str) -> tuple[str, str]:
    """(kind, letter of struct) of a binding."""
    words = space.replace(",", " ").split()
    if words[0] == "storage":
        if words[1:] != ["read_write"]:
            raise UsageError(
                f"load({name!r}): {variable} is var<{space}>. Declare it var<storage, read_write>: buffers share "
                "WebGPU's, and a dispatch that reads one part of these may not write another unless it may write both."
            )
        return "buffer", "Q"
    letter = LETTERS.get(kind.strip())
    if words != ["uniform"] or letter is None:
        raise UsageError(
            f"load({name!r}): {variable} is var<{space}> of {kind.strip()}. A kernel takes var<storage, read_write>, "
            f"and var<uniform> of {', '.join(LETTERS)}."
        )
    return ("float" if letter == "f" else "int"), letter


def fitting(device: Device, call: str, arg: Any, kind: str, slot: Slot) -> Any:
    """An argument as a number that fits its slot.

    Raises  UsageError for what is no such argument, or not of this device; DeviceFault for memory without a result
    """
    given = kind_of(arg)
    if given != kind and (given, kind) != ("int", "float"):
        raise UsageError(f"{call}: {arg!r} is no {kind}.")
    if isinstance(arg, Buffer):
        if arg.device is not device:
            raise arg.elsewhere(call, device)
        arg.check_poison(call)
        return arg.address
    value = float(arg) if kind == "float" else arg.__index__()
    if not slot.holds(value):
        raise UsageError(f"{call}: {arg!r} does not fit {slot.size_bytes} bytes.")
    return value
