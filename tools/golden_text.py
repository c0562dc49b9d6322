"""Golden text: what one program becomes on one target, kernel by kernel, as a person reads it.

In       a program of golden_programs.py, the name of a target
Out      Sections: the schedule, the launch, the source, the machine code, what an emulated GPU counted
Changes  nothing; counting opens the emulated GPU of HCQ_EMULATE
Next     golden.py (who writes and compares the files)

Schedules, launches and sources are the compiler's own and the same everywhere; MSL is all that there is for Metal.
Machine code, registers and counters are also LLVM's (and ptxas's): a file says whose, and on another toolchain they are
not compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hcq.compiler.assemble.llvm_cpu import toolchain_version
from hcq.compiler.code_object import CodeObject
from hcq.compiler.kernel import kernel_name
from hcq.compiler.loops.matrix_units import narrow_formats, scaled_formats
from hcq.compiler.pipeline import build
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.compiler.target import Target, amd_target, metal_target, nv_target
from hcq.errors import HcqError
from hcq.frontend.core import device as devices
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.node import Node
from hcq.performance import counters
from hcq.performance.counters import Counters
from hcq.tools.disassembly import amd, host
from hcq.tools.golden_programs import PROGRAMS

READABLE_LINES = 120  # longer code is a table of its instructions
READABLE_MSL = 400  # which is all that there is of a kernel for Metal, one operation a line
OWN = ("kernel", "schedule", "launch", "source")  # sections that no toolchain changes


def _cpu(arch: str, cpu: str, bits: int, registers: int) -> Target:
    return Target(
        "cpu", arch, f"golden-{cpu}", 2, bits, registers, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu=cpu
    )


AMD_ARCHS, NV_ARCHS = ("gfx1100", "gfx1201", "gfx90a", "gfx942", "gfx950"), ("sm_80", "sm_90")

TARGETS: dict[str, Callable[[], Target]] = {  # two threads of a processor, whatever machine this runs on
    "x86-64-v4": partial(_cpu, "x86_64", "x86-64-v4", 512, 32),
    "x86-64-v3": partial(_cpu, "x86_64", "x86-64-v3", 256, 16),
    "aarch64": partial(_cpu, "aarch64", "neoverse-n1", 128, 32),
    **{arch: partial(amd_target, arch) for arch in AMD_ARCHS},
    **{arch: partial(nv_target, arch) for arch in NV_ARCHS},
    "apple9": partial(metal_target, "apple9"),
}
EMULATED = {arch: f"amd:{arch}" for arch in AMD_ARCHS} | {arch: f"nv:{arch}" for arch in NV_ARCHS}


@dataclass
class Sections:
    """One kernel: section -> text. `toolchain` made those that are not OWN."""

    toolchain: str
    texts: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(f"-- {name}\n{text.strip()}\n" for name, text in self.texts.items())


def toolchain_of(target: Target) -> str:
    """Who makes machine code of our text, with versions."""
    if target.name == "metal":
        return "MSL, for Apple's compiler"
    words = [toolchain_version()]
    if target.name == "nvptx":
        words.append(_assembler())
    return ", ".join(words)


def texts_of(program: str, target_name: str, counted: bool = True) -> list[Sections]:
    """The kernels of a program. With `counted`, this process's emulated GPU runs them; HCQ_EMULATE names it."""
    target = TARGETS[target_name]()
    result = PROGRAMS[program]()
    structure = structure_of([result.node])
    formats, scaled = narrow_formats(target.arch), scaled_formats(target.arch)
    made = schedule([result.node], structure.storages, target.threads, formats, target.most_arguments, scaled)
    sinks = [kernel.sink for kernel in made.kernels]
    found = [_sections(sink, target) for sink in sinks]
    if counted and target_name in EMULATED:
        device = devices.get(devices.default())
        device.synchronize()  # what made the inputs is not counted
        with counters.count() as launches:
            result.realize()
            device.synchronize()
        for sections, launch in zip(found, launches, strict=True):
            sections.texts["counters"] = _counted(launch)
    return found


def _sections(sink: Node, target: Target) -> Sections:
    shown: dict[str, str] = {}
    try:
        code = build(sink, target, show=shown.__setitem__)
    except RenderError as refused:  # what a target cannot do is reviewed, too
        return Sections(toolchain_of(target), {"kernel": kernel_name(sink), "refused": str(refused)})
    nest, _, source = shown["code"].partition("\n\n")
    assert nest.startswith("schedule: ")
    made = Sections(toolchain_of(target))
    launch = f"groups {code.grid[0]}"
    if target.name != "cpu":
        launch += f", threads {code.block[0]}"
    if code.scratch_bytes:
        launch += f", scratch {code.scratch_bytes} bytes a worker"
    if code.dynamic_shared_bytes:
        launch += f", shared memory asked for {code.dynamic_shared_bytes} bytes"
    made.texts["kernel"] = f"{code.name}: {code.flops} operations, {code.traffic_bytes} bytes"
    made.texts["schedule"] = code.choice or "(as it is)"
    made.texts["launch"] = launch
    if target.name == "metal":
        made.texts["source"] = readable(source.splitlines(), _MSL, READABLE_MSL)
        return made
    made.texts["source"] = readable(source.splitlines(), _IR)
    made.texts["machine"], lines = _machine(code, target)
    made.texts["code"] = readable(lines, _ASSEMBLY)
    return made


_IR = re.compile(r"^\s+(?:%\S+ = )?(?:tail )?(\w+)(?: (?:nuw |nsw |contract |inbounds )*(<\d+ x \w+>))?")
_MSL = re.compile(r"^\s*(?:const )?(\w+)")
_ASSEMBLY = re.compile(r"^\s*(?:@!?%p\d+ )?([a-z][\w.]*)")


def readable(lines: Sequence[str], instruction: re.Pattern[str], most: int = READABLE_LINES) -> str:
    """The lines, or, where nobody would read them all, how many there are of which instruction."""
    if len(lines) <= most:
        return "\n".join(lines)
    found = Counter(
        " ".join(filter(None, match.groups())) for match in map(instruction.match, lines) if match
    )
    table = "\n".join(f"{count:6} {what}" for what, count in sorted(found.items()))
    return f"{len(lines)} lines:\n{table}"


def _machine(code: CodeObject, target: Target) -> tuple[str, list[str]]:
    """What the machine code takes, and its lines."""
    if target.name == "nvptx":
        lines = [line for line in code.image.decode().rstrip("\0").splitlines() if line.strip()]
        return _of_ptxas(code, target), [line for line in lines if not line.startswith("//")]
    if target.name == "amdgpu":
        said = metadata(code.image)
        read = amd.disassemble(code.image, code.arch, code.entry, code.name)
        lines = [line.text for line in read]
        return ", ".join(f"{what} {said[name]}" for name, what in AMD_METADATA.items()), lines
    lines = [line.text for line in host.disassemble(code.image, code.arch, code.entry, code.name)]
    stack = sum(1 for line in lines if re.search(r"\[(?:rsp|rbp|sp)\b", line))
    return f"{len(lines)} instructions, {stack} of them reach the stack", lines


AMD_METADATA = {
    ".vgpr_count": "vector registers",
    ".sgpr_count": "scalar registers",
    ".vgpr_spill_count": "spilled vector registers",
    ".sgpr_spill_count": "spilled scalar registers",
    ".group_segment_fixed_size": "LDS bytes",
    ".private_segment_fixed_size": "scratch bytes",
}


def metadata(image: bytes) -> dict[str, int]:
    """The numbers of the only kernel in an AMD code object's notes, which are MessagePack.

    Raises KeyError for a name that is not there. Source: LLVM's AMDGPUUsage, Code Object V5 Metadata; MessagePack's
    specification (a number below 128 is one byte; 0xcc, 0xcd, 0xce go before one, two, four bytes of one).
    """
    found = {}
    for name in AMD_METADATA:
        key = name.encode()
        at = image.find(bytes((0xA0 | len(key),)) + key if len(key) < 32 else key)
        if at < 0:
            raise KeyError(name)
        at = image.index(key, at) + len(key)
        width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(image[at], 0)
        found[name] = int.from_bytes(image[at + 1 : at + 1 + width], "big") if width else image[at]
    return found


def _assembler() -> str:
    from hcq.nv.toolchain import nvjitlink

    try:
        return "nvJitLink {}.{}".format(*nvjitlink.version())
    except HcqError:
        return "no nvJitLink"


def _of_ptxas(code: CodeObject, target: Target) -> str:
    from hcq.nv.toolchain import nvjitlink

    try:
        nvjitlink.version()
    except HcqError as missing:
        return f"not assembled: {missing}"
    ptx = code.image.decode().rstrip("\0")
    arch = re.findall(r"^\.target (\w+)", ptx, flags=re.M)[0]
    log = nvjitlink.assemble(ptx, arch, ("-verbose",)).log
    registers = re.findall(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    return f"{registers[0]} registers, {spills[0][0]} bytes of stack, {spills[0][1]} bytes spilled"


def _counted(launch: Counters) -> str:
    """What a launch did: all that is counted exactly, nothing of the models."""
    lines = [
        f"{launch.blocks} blocks, {launch.warps} warps of {launch.warp_size}, occupancy {launch.occupancy:.0%}"
    ]
    lines.append("instructions: " + _listed(launch.instructions.items()))
    if launch.flops or launch.matrix_flops:
        of_matrix = [(f"{name} by matrix units", count) for name, count in launch.matrix_flops.items()]
        lines.append("operations: " + _listed([*launch.flops.items(), *of_matrix]))
    lines.append(
        f"global memory: {launch.sectors} sectors of {launch.sector_bytes} bytes, "
        f"{launch.sector_ratio:.2f} of the ideal"
    )
    lines.append(f"shared memory: {launch.shared_passes} passes, {launch.bank_conflicts} conflicts")
    lines.append(
        f"barriers {launch.barriers}, branches {launch.branches}, divergent {launch.divergent_branches}"
    )
    return "\n".join(lines)


def _listed(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(items) if count) or "none"
