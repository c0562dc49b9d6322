"""OpenCL's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backends import Backend

BACKEND = Backend(
    "OPENCL",
    device="hcq_opencl.device:OpenClDevice",
    decoder="hcq_opencl.packets:decoder",
    layouts=("hcq_opencl.packets",),
    rules="hcq_opencl.rules:OpenClModel",
    disassembler="hcq_opencl.codegen:disassemble",
    doctor="hcq_opencl.doctor:DOCTOR",
    target="hcq_opencl.codegen:target",
)
