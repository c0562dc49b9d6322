"""WebGPU's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backends import Backend

BACKEND = Backend(
    "WEBGPU",
    device="hcq_webgpu.device:WebGpuDevice",
    decoder="hcq_webgpu.packets:decoder",
    layouts=("hcq_webgpu.packets",),
    rules="hcq_webgpu.rules:WebGpuModel",
    disassembler="hcq_webgpu.codegen:disassemble",
    doctor="hcq_webgpu.doctor:DOCTOR",
    target="hcq_webgpu.codegen:target",
)
