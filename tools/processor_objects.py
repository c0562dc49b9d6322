"""The CPU device's command processor as ELF objects, one for each kind of machine, which come with the package.

In       the text of hcq/cpu/processor.py; LLVM
Out      `build(machine)`; as a program, the files of hcq/cpu/objects/
Changes  hcq/cpu/objects/: objects of an older text go
Next     hcq/cpu/native_processor.py (who links them)

Who changes the text of the processor, or a layout that it reads, runs this and commits what it writes. The objects are
for a baseline processor, so the model of the host does not matter.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.compiler.assemble.llvm_cpu import binding
from hcq.cpu import native_processor, processor

LLVM = (22, 1, 0)  # that made the objects as they are


def build(machine: processor.Machine) -> bytes:
    """The object of a machine's text. Raises ToolchainError where LLVM is not installed."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(processor.ir_text(machine))
    module.verify()
    target = llvm.Target.from_triple(machine.triple)
    tuned = target.create_target_machine(cpu=machine.cpu, opt=2, reloc="pic", codemodel="small")
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(tuned, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(tuned.emit_object(module))


def main() -> int:
    """The program. Returns its exit status."""
    if binding().llvm_version_info != LLVM:
        print(
            f"this LLVM is {binding().llvm_version_info}: say so in {Path(__file__).name}, LLVM, then run this again"
        )
        return 1
    folder = native_processor.FOLDER
    folder.mkdir(exist_ok=True)
    wanted = {native_processor.object_path(machine): machine for machine in processor.MACHINES.values()}
    for path in folder.glob("*.o"):
        if path not in wanted:
            path.unlink()
            print(f"removed {path.name}")
    for path, machine in wanted.items():
        path.write_bytes(build(machine))
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
