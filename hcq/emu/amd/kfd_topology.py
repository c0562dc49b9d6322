"""Topology of the emulated KFD: what sysfs says of the emulated GPUs.

In       a Spec for each GPU
Out      the text of every file below the topology's folder, and of the amdgpu module's
Next     spec.py (what a GPU is), sysfs.py (its other files), kfd.py (who serves these), kfd_queues.py (sizes that
         follow from these figures)
Source   kfd_topology.c: node_show, mem_show, kfd_cache_show, iolink_show; kfd_crat.h: types and flags

Sizes decide how much scratch memory and how large a context save area a driver allocates, and how wide a grid AMD's own
copy and fill kernels have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hcq.amd.abi.targets import HAS_FEATURES
from hcq.emu.amd.spec import Spec
from hcq.errors import UsageError

DEVICE = "/sys/devices/virtual/kfd/kfd"
ROOT = f"{DEVICE}/topology"
KFD_MAJOR = 511  # given out when it is loaded, from the highest down
FIRST_RENDER_MINOR = 128
VRAM_BYTES = 16 << 30  # only what is touched takes memory
FIRST_GPU_ID, GPU_ID_STEP = 0x5A3C, 0x3D2B  # ids are hashes: nothing follows from their order
MAX_GPUS = 64
MODULE_BYTES = 20 << 20
FIRST_BUS = 3  # of PCI
HEAP_SYSTEM, HEAP_PUBLIC, HEAP_PRIVATE = 0, 1, 2
PCIE = 2  # a link's type: CRAT_IOLINK_TYPE_PCIEXPRESS
LINK_ENABLED = 1  # its flags do not exclude 32 and 64-bit atomics
DATA_CACHE, CODE_CACHE, GPU_CACHE = 1, 2, 8  # a cache's type: HSA_CACHE_TYPE_DATA, _INSTRUCTION, _HSACU
DOORBELL_64 = 2 << 12  # capability: doorbells of 8 bytes
WATCH_POINTS = 1 << 7 | 2 << 8  # capability: address watch, and how many, as a power of two
SRAM_ECC = 1 << 26  # capability: of Instinct GPUs, whose registers and caches are protected
DEBUG_FIRMWARE = 1 << 29  # capability: exceptions of queues are told through the context save area


@dataclass(frozen=True)
class EmulatedNode:
    """What a GPU is in this topology. `gpu_id` names it in ioctls."""

    spec: Spec
    index: int
    gpu_id: int
    render_minor: int

    @property
    def card_minor(self) -> int:
        """The number of its primary node."""
        return self.index - 1

    @property
    def location_id(self) -> int:
        """Its place on the PCI bus: bus, device, function."""
        return (FIRST_BUS + self.index - 1) << 8

    def properties(self) -> dict[str, int]:
        """The lines of its `properties` file."""
        chip, size = self.spec.chip, self.spec.size
        per_unit = 4 if chip.family == 9 else 2
        return {
            "cpu_cores_count": 0,
            "simd_count": size.units * chip.xccs * per_unit,
            "mem_banks_count": 1,
            "caches_count": len(caches(self)),
            "io_links_count": 1,
            "p2p_links_count": 0,
            "cpu_core_id_base": 0,
            "simd_id_base": 0x80001000 + 0x1000 * (self.index - 1),
            "max_waves_per_simd": 8 if chip.family == 9 else 16,
            "lds_size_in_kb": chip.lds_bytes >> 10,
            "gds_size_in_kb": 0,
            "num_gws": 64,
            "wave_front_size": 64 if chip.family == 9 else 32,
            "array_count": size.engines * size.arrays * chip.xccs,
            "simd_arrays_per_engine": size.arrays,
            "cu_per_simd_array": -(-size.units // (size.engines * size.arrays)),
            "simd_per_cu": per_unit,
            "max_slots_scratch_cu": 32,
            "gfx_target_version": chip.gfx_target_version,
            "vendor_id": 0x1002,
            "device_id": size.device_id,
            "location_id": self.location_id,
            "domain": 0,
            "drm_render_minor": self.render_minor,
            "hive_id": 0,
            "num_sdma_engines": 2,
            "num_sdma_xgmi_engines": 0,
            # kfd_topology_add_device: those that are the process's; gfx11 and later keep two
            "num_sdma_queues_per_engine": 6 if chip.family >= 11 else 8,
            "num_cp_queues": 8,
            "max_engine_clk_fcompute": 2400,
            "local_mem_size": 0,
            "fw_version": 1,
            "capability": DOORBELL_64
            | WATCH_POINTS
            | (SRAM_ECC if chip.arch in HAS_FEATURES else 0)
            | (DEBUG_FIRMWARE if self.spec.kfd_minor >= 13 else 0),
            "debug_prop": 0,
            "sdma_fw_version": 1,
            "unique_id": 0x1D5C3A0000000000 | self.gpu_id,
            "num_xcc": chip.xccs,
            "max_engine_clk_ccompute": 3000,
        }


def caches(node: EmulatedNode) -> list[dict[str, int | str]]:
    """The properties of each kind of cache: one of each that a compute unit has, and those that all share."""
    family, everyone = node.spec.chip.family, ",".join(["1"] * 32)
    kinds = [  # level, KiB, bytes of a line, type
        (1, 16 if family == 9 else 32, 64 if family == 9 else 128, GPU_CACHE | DATA_CACHE),
        (1, 16, 64, GPU_CACHE | DATA_CACHE),
        (1, 32, 64, GPU_CACHE | CODE_CACHE),
        *([] if family == 9 else [(2, 256, 128, GPU_CACHE | DATA_CACHE)]),
        (2, 4096 if family == 9 else 6144, 128, GPU_CACHE | DATA_CACHE),
    ]
    return [
        {
            "processor_id_low": 0x80001000,
            "level": level,
            "size": kib,
            "cache_line_size": line,
            "cache_lines_per_tag": 1,
            "association": 16,
            "latency": 1,
            "type": kind,
            "sibling_map": everyone,
        }
        for level, kib, line, kind in kinds
    ]


def make_nodes(specs: list[Spec]) -> list[EmulatedNode]:
    """One node for each GPU; node 0 is the CPU."""
    if len(specs) > MAX_GPUS:
        raise UsageError(f"HCQ_EMULATE asks for {len(specs)} AMD GPUs; {MAX_GPUS} at most.")
    if len({spec.kfd_minor for spec in specs}) > 1:
        raise UsageError("HCQ_EMULATE asks for AMD GPUs of several kernel drivers (kfd=). A machine has one.")
    return [
        EmulatedNode(
            spec, index + 1, (FIRST_GPU_ID + index * GPU_ID_STEP) % 0xFFFF or 1, FIRST_RENDER_MINOR + index
        )
        for index, spec in enumerate(specs)
    ]


def _real(path: str) -> bytes:
    """What this machine has there; nothing where there is none."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def files(nodes: list[EmulatedNode]) -> dict[str, bytes | str]:
    """Path -> contents, or where a symbolic link leads."""
    found: dict[str, bytes | str] = {
        "/sys/module/amdgpu/initstate": b"live\n",
        "/sys/module/amdgpu/version": b"6.8.5\n",
        "/sys/module/amdgpu/parameters/cwsr_enable": b"1\n",
        "/sys/module/amdgpu/parameters/emu_mode": b"1\n",  # AMD's own tests do less on an emulator
        "/sys/module/amdgpu/refcnt": b"0\n",
        "/sys/module/amdgpu/coresize": b"%d\n" % MODULE_BYTES,
        # rocminfo before 6.0 asks lsmod for it
        "/proc/modules": _real("/proc/modules") + b"amdgpu %d 0 - Live 0x0000000000000000\n" % MODULE_BYTES,
        "/sys/class/kfd/kfd": "../../devices/virtual/kfd/kfd",
        f"{DEVICE}/uevent": b"MAJOR=%d\nMINOR=0\nDEVNAME=kfd\n" % KFD_MAJOR,
        f"{DEVICE}/dev": b"%d:0\n" % KFD_MAJOR,
        f"{DEVICE}/subsystem": "../../../../class/kfd",
        f"{ROOT}/generation_id": b"2\n",
        f"{ROOT}/system_properties": b"platform_oem 0\nplatform_id 0\nplatform_rev 0\n",
        **_cpu_files(nodes),
    }
    for node in nodes:
        folder = f"{ROOT}/nodes/{node.index}"
        heap = HEAP_PUBLIC if node.spec.is_vram_public else HEAP_PRIVATE
        found[f"{folder}/gpu_id"] = f"{node.gpu_id}\n".encode()
        found[f"{folder}/name"] = f"{node.spec.chip.arch}\n".encode()
        found[f"{folder}/properties"] = lines(node.properties())
        found[f"{folder}/mem_banks/0/properties"] = lines(bank(heap, VRAM_BYTES))
        found[f"{folder}/io_links/0/properties"] = lines(link(node.index, 0))
        for index, cache in enumerate(caches(node)):
            found[f"{folder}/caches/{index}/properties"] = lines(cache)
    return found


def _cpu_files(nodes: list[EmulatedNode]) -> dict[str, bytes]:
    """Node 0: the host's processor and memory, and a link to each GPU whose memory it sees."""
    seen = [node for node in nodes if node.spec.is_vram_public]  # kfd_parse_subtype_iolink
    folder = f"{ROOT}/nodes/0"
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    properties: dict[str, int | str] = {
        "cpu_cores_count": os.cpu_count() or 1,
        "simd_count": 0,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": len(seen),
        "p2p_links_count": 0,
        "cpu_core_id_base": 0,
        "simd_id_base": 0,
        "max_waves_per_simd": 0,
        "lds_size_in_kb": 0,
        "gds_size_in_kb": 0,
        "wave_front_size": 0,
        "vendor_id": 0,
        "device_id": 0,
        "location_id": 0,
        "drm_render_minor": 0,
        "hive_id": 0,
        "num_xcc": 0,
        "max_engine_clk_ccompute": 3000,
    }
    found = {
        f"{folder}/gpu_id": b"0\n",
        f"{folder}/name": b"\n",
        f"{folder}/properties": lines(properties),
        f"{folder}/mem_banks/0/properties": lines(bank(HEAP_SYSTEM, memory)),
    }
    for index, node in enumerate(seen):
        found[f"{folder}/io_links/{index}/properties"] = lines(link(0, node.index))
    return found


def bank(heap: int, size_bytes: int) -> dict[str, int]:
    """The properties of a bank of memory."""
    return {
        "heap_type": heap,
        "size_in_bytes": size_bytes,
        "flags": 0,
        "width": 64 if heap == HEAP_SYSTEM else 256,
        "mem_clk_max": 1000,
    }


def link(start: int, end: int) -> dict[str, int]:
    """The properties of a link between two nodes."""
    return {
        "type": PCIE,
        "version_major": 0,
        "version_minor": 0,
        "node_from": start,
        "node_to": end,
        "weight": 20,
        "min_latency": 0,
        "max_latency": 0,
        "min_bandwidth": 0,
        "max_bandwidth": 0,
        "recommended_transfer_size": 0,
        "flags": LINK_ENABLED,
    }


def lines(properties: Mapping[str, int | str]) -> bytes:
    """A file of "name value" lines."""
    return "".join(f"{name} {value}\n" for name, value in properties.items()).encode()
