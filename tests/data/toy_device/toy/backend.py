"""The toy's entry in the registry of backends. Next: hcq/backend.py (what each line means)."""

from hcq.backends import Backend

BACKEND = Backend(
    "TOY",
    device="toy.device:ToyDevice",
    decoder="toy.packets:decoder",
    layouts=("toy.packets",),
    rules="toy.rules:ToyModel",
    disassembler="toy.codegen:disassemble",
    doctor="toy.doctor:DOCTOR",
    target="toy.codegen:target",
)
