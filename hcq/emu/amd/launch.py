"""From a queue's dispatch to the shader core: a ShaderCore for each GPU, and a Launch for each dispatch.

In       a Dispatch that a packet processor put together
Out      the kernel has run to its end; or a ShaderFault that names the instruction and the work-item
Changes  what the kernel changes
Next     dispatch.py (who calls), shader/run.py (run_dispatch), shader/wave_start.py (the first registers)
"""

from __future__ import annotations

import time

from hcq.emu.amd.dispatch import Dispatch
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.shader.cdna2 import CDNA2
from hcq.emu.amd.shader.cdna3 import CDNA3
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.rdna3 import RDNA3
from hcq.emu.amd.shader.rdna4 import RDNA4
from hcq.emu.amd.shader.run import ShaderCore, run_dispatch
from hcq.emu.amd.shader.wave_start import Launch

ISAS: dict[str, Isa] = {
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102"), RDNA3),
    **dict.fromkeys(("gfx1200", "gfx1201"), RDNA4),
    "gfx90a": CDNA2,
    "gfx942": CDNA3,
}


def run_on_shader_core(gpu: EmulatedGpu, work: Dispatch) -> None:
    """Run it. It ends early when its queue is destroyed meanwhile."""
    isa = ISAS.get(gpu.chip.arch)
    if isa is None:
        raise IllegalOperation(
            work.entry,
            f"no instruction of {gpu.chip.arch} is emulated, only those of {', '.join(ISAS)}: "
            "copies work, kernels do not.",
        )
    if gpu.machine is None:
        if gpu.caches is None:
            gpu.machine = ShaderCore(isa, gpu.vm, gpu.chip.lds_bytes)
        else:
            held = gpu.caches
            gpu.machine = ShaderCore(isa, held.vector, gpu.chip.lds_bytes, scalar=held.scalar, code=held.code)
    launch = Launch.from_registers(
        gpu.chip.arch,
        work.entry,
        work.rsrc1.words[0],
        work.rsrc2.words[0],
        work.rsrc3,
        work.user_sgprs[: work.rsrc2.user_sgpr],
        wave32=work.wave_size == 32,
        lds_bytes=work.lds_bytes,
        scratch_bytes=work.wave_scratch_bytes // work.wave_size if work.rsrc2.scratch_en else 0,
        scratch_waves=work.scratch_waves,
    )
    queue = gpu.running

    def interrupted() -> bool:
        time.sleep(0)  # the process that waits for this kernel shares one interpreter with it: let it in
        return queue is not None and queue.is_ending

    try:
        run_dispatch(gpu.machine, launch, work.grid, work.block, interrupted=interrupted)
    finally:
        if gpu.caches is not None:
            gpu.caches.vector.end_kernel()
