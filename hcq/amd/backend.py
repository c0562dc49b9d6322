"""AMD's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backend import Backend

BACKEND = Backend(
    "AMD",
    device="hcq.amd.device:AmdDevice",
    decoder="hcq.amd.decode:decoder",
    queue_decoder="hcq.amd.decode:queue_decoder",
    layouts=tuple(
        f"hcq.amd.abi.{name}"
        for name in ("pm4", "sdma", "aql", "registers", "descriptor", "kfd", "mqd", "save_area")
    ),
    ioctls=("hcq.amd.abi.kfd",),
    pointers="hcq.amd.abi.pointers:pointers_of",
    rules="hcq.amd.validate:AmdModel",
    disassembler="hcq.tools.disassembly.amd:disassemble",
    doctor="hcq.amd.doctor:DOCTOR",
    target="hcq.compiler.target:amd_target",
    emulation="hcq.emu.amd.kfd:emulate",
    foreign="hcq.amd.foreign.reader:KfdReader",
    inspection="hcq.amd.inspection:INSPECTION",
    atlas="hcq.amd.abi.atlas:ATLAS",
)
