"""Metal's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backend import Backend

BACKEND = Backend(
    "METAL",
    device="hcq.metal.device:MetalDevice",
    decoder="hcq.metal.encode:decoder",
    layouts=("hcq.metal.packets",),
    target="hcq.compiler.target:metal_target",
    rules="hcq.metal.validate:MetalModel",
    disassembler="hcq.tools.disassembly.metal:disassemble",
    doctor="hcq.metal.doctor:DOCTOR",
    inspection="hcq.metal.inspection:INSPECTION",
    emulation="hcq.emu.metal.driver:emulate",
)
