"""LLVM for GPUs: the text of a module becomes an AMDGPU code object, or PTX.

In       LLVM IR text with one kernel, the target
Out      amdgcn: an ELF object with machine code, kernel descriptor and metadata, no linker has run; nvptx64: PTX text
Next     ../render/gpu.py (the text), the device's loader (who reads the object or hands the PTX on)

Only instructions are combined before the code generators, which share equal values themselves. LLVM's NewGVN pass
before them left reviewed kernels as they are, give or take one or two lines in a hundred, and it stops the whole
process by an assertion at loops whose variables depend on each other, such as those of complex reflections.
"""

from __future__ import annotations

from dataclasses import replace

from hcq.compiler.assemble.llvm_cpu import Machine, ToolchainError, binding
from hcq.compiler.target import Target

TRIPLES = {"amdgpu": "amdgcn-amd-amdhsa", "nvptx": "nvptx64-nvidia-cuda"}

# what only one architecture has, its PTX says by another target: PTX ISA, "Target Architectures"
OWN_ARCH = {"sm_90": ("sm_90a", "+ptx80"), "sm_100": ("sm_100a", "+ptx86")}
OWN_WORDS = ("wgmma.", "cp.async.bulk.tensor.", "tcgen05.")
# products of 8-bit floats came later than the architectures that have them: PTX ISA, "mma", notes
BYTE_FLOATS = (".e4m3.", ".e5m2.")
BYTE_FLOATS_SINCE = {"sm_89": "+ptx84"}
_machines: dict[tuple[str, str, str], Machine] = {}


def own_target(text: str, target: Target) -> Target:
    """The target of a kernel: another one where its text has what only this architecture, or a later PTX, has."""
    since = BYTE_FLOATS_SINCE.get(target.arch)
    if since and any(word in text for word in BYTE_FLOATS):
        return replace(target, features=since)
    arch, features = OWN_ARCH.get(target.arch, ("", ""))
    if not arch or not any(word in text for word in OWN_WORDS):
        return target
    return replace(target, arch=arch, features=features)


def _machine(target: Target) -> Machine:
    """Made once for each architecture and its features."""
    key = (target.name, target.arch, target.features)
    machine = _machines.get(key)
    if machine is None:
        llvm = binding()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        triple = TRIPLES[target.name]
        try:
            backend = llvm.Target.from_triple(triple)
        except RuntimeError as problem:
            raise ToolchainError(
                f"this llvmlite has no {triple} ({problem}): pip install --upgrade llvmlite"
            ) from problem
        made = backend.create_target_machine(cpu=target.arch, features=target.features, opt=2)
        machine = _machines[key] = Machine(made)
    return machine


def assemble(text: str, target: Target, name: str) -> bytes:
    """The code of a module. Raises AssembleError with LLVM's complaint."""
    target = own_target(text, target)
    machine = _machine(target)
    module = machine.parse(f'target triple = "{TRIPLES[target.name]}"\n{text}', name)
    machine.clean(module)
    if target.name == "nvptx":
        return str(machine.target.emit_assembly(module)).encode()
    image: bytes = machine.target.emit_object(module)
    return image
