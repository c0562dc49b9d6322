"""Topology of the emulated KFD: what sysfs says of the emulated GPUs.

In       a Spec for each GPU
Out      the text of every file below the topology's folder
Changes  nothing
Next     spec.py (what a GPU is), kfd.py (who serves these files), kfd_queues.py (sizes that follow from these figures)

The figures are those of small parts of each generation: they decide how much scratch memory and how large a context
save area a driver allocates, and nothing else here.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.emu.amd.spec import LDS_BYTES, Spec
from hcq.errors import UsageError

ROOT = "/sys/devices/virtual/kfd/kfd/topology"
FIRST_RENDER_MINOR = 128
VRAM_BYTES = 16 << 30  # only what is touched takes memory
FIRST_GPU_ID, GPU_ID_STEP = 0x5A3C, 0x3D2B  # ids are hashes: nothing follows from their order
MAX_GPUS = 64


@dataclass(frozen=True)
class EmulatedNode:
    """What a GPU is in this topology. `gpu_id` names it in ioctls."""

    spec: Spec
    index: int
    gpu_id: int
    render_minor: int

    def properties(self) -> dict[str, int]:
        """The lines of its `properties` file."""
        chip = self.spec.chip
        units = 4 * chip.xccs
        per_unit = 4 if chip.family == 9 else 2
        return {
            "cpu_cores_count": 0,
            "simd_count": units * per_unit,
            "mem_banks_count": 1,
            "caches_count": 0,
            "io_links_count": 0,
            "p2p_links_count": 0,
            "max_waves_per_simd": 8 if chip.family == 9 else 16,
            "lds_size_in_kb": LDS_BYTES >> 10,
            "wave_front_size": 64 if chip.family == 9 else 32,
            "array_count": 2 * chip.xccs,
            "simd_arrays_per_engine": 1 if chip.family == 9 else 2,
            "cu_per_simd_array": 2,
            "simd_per_cu": per_unit,
            "max_slots_scratch_cu": 32,
            "gfx_target_version": chip.gfx_target_version,
            "vendor_id": 0x1002,
            "device_id": 0x744C,
            "drm_render_minor": self.render_minor,
            "hive_id": 0,
            "num_sdma_engines": 2,
            "num_sdma_xgmi_engines": 0,
            "num_sdma_queues_per_engine": 8,
            "num_cp_queues": 8,
            "num_xcc": chip.xccs,
            "fw_version": 1,
            "capability": 0,
        }


def make_nodes(specs: list[Spec]) -> list[EmulatedNode]:
    """One node for each GPU; node 0 is the CPU."""
    if len(specs) > MAX_GPUS:
        raise UsageError(f"HCQ_EMULATE asks for {len(specs)} AMD GPUs; {MAX_GPUS} at most.")
    return [
        EmulatedNode(
            spec, index + 1, (FIRST_GPU_ID + index * GPU_ID_STEP) % 0xFFFF or 1, FIRST_RENDER_MINOR + index
        )
        for index, spec in enumerate(specs)
    ]


def files(nodes: list[EmulatedNode]) -> dict[str, bytes]:
    """Path -> contents."""
    found = {
        f"{ROOT}/generation_id": b"2\n",
        f"{ROOT}/system_properties": b"platform_oem 0\nplatform_id 0\nplatform_rev 0\n",
        f"{ROOT}/nodes/0/gpu_id": b"0\n",
        f"{ROOT}/nodes/0/name": b"\n",
        f"{ROOT}/nodes/0/properties": b"cpu_cores_count 2\nsimd_count 0\nmem_banks_count 1\n",
    }
    for node in nodes:
        folder = f"{ROOT}/nodes/{node.index}"
        lines = "".join(f"{name} {value}\n" for name, value in node.properties().items())
        heap = 1 if node.spec.is_vram_public else 2
        found[f"{folder}/gpu_id"] = f"{node.gpu_id}\n".encode()
        found[f"{folder}/name"] = f"{node.spec.chip.arch}\n".encode()
        found[f"{folder}/properties"] = lines.encode()
        found[f"{folder}/mem_banks/0/properties"] = (
            f"heap_type {heap}\nsize_in_bytes {VRAM_BYTES}\nflags 0\nwidth 256\nmem_clk_max 1000\n".encode()
        )
    return found
