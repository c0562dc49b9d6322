"""The CPU's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backend import Backend

BACKEND = Backend(
    "CPU",
    device="hcq.cpu.device:CpuDevice",
    decoder="hcq.cpu.encode:decoder",
    layouts=("hcq.cpu.packets",),
    rules="hcq.cpu.validate:CpuModel",
    disassembler="hcq.tools.disassembly.host:disassemble",
    doctor="hcq.cpu.doctor:DOCTOR",
    inspection="hcq.cpu.inspection:INSPECTION",
    carried="hcq.cpu.program_file_parts:CARRIED",
    target="hcq.compiler.target:cpu_target",
)
