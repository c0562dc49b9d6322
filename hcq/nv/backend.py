"""NVIDIA's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backend import Backend

BACKEND = Backend(
    "NV",
    device="hcq.nv.device:NvDevice",
    decoder="hcq.nv.decode:decoder",
    layouts=(
        "hcq.nv.abi.host_methods",
        "hcq.nv.abi.compute_methods",
        "hcq.nv.abi.copy_methods",
        "hcq.nv.abi.gpfifo",
        "hcq.nv.abi.qmd",
        "hcq.nv.abi.bank0",
        "hcq.nv.abi.tensor_map",
        "hcq.nv.abi.image",
        "hcq.nv.abi.sm_errors",
        "hcq.nv.bundle",
        "hcq.nv.abi.structures",
    ),
    ioctls=("hcq.nv.abi.ioctls",),
    pointers="hcq.nv.abi.pointers:pointers_of",
    rules="hcq.nv.validate:NvModel",
    disassembler="hcq.tools.disassembly.nv:disassemble",
    doctor="hcq.nv.doctor:DOCTOR",
    target="hcq.compiler.target:nv_target",
    toolchain="hcq.nv.toolchain.images:compiler_for",
    emulation="hcq.emu.nv.rm:emulate",
    runnable="hcq.emu.nv.runnable:check",
    foreign="hcq.nv.foreign.reader:RmReader",
    texts="hcq.nv.foreign.kernel_text:search",
    inspection="hcq.nv.inspection:INSPECTION",
    atlas="hcq.nv.abi.atlas:ATLAS",
)
