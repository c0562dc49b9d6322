"""Topology: which GPUs the kernel driver knows, read from sysfs.

In       a port
Out      a Node for every GPU that this process may use
Next     chip.py (what each generation is like), device.py (who opens one)
Source   kfd_topology.c: lines of "name value", decimal
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from hcq.errors import DriverError
from hcq.system.port import Port

ROOT = "/sys/devices/virtual/kfd/kfd/topology"
ATTEMPTS = 5  # a scan is made again when the generation changed meanwhile
HEAP_PUBLIC, HEAP_PRIVATE = 1, 2
SRAM_ECC = 1 << 26  # capability: HSA_CAP_SRAM_EDCSUPPORTED; bit 19 is what it once was


@dataclass(frozen=True)
class Node:
    """One GPU. Sizes in bytes; counts are over all its XCCs."""

    index: int
    gpu_id: int  # a hash that names the GPU in ioctls; differs between machines
    gfx_target_version: int
    render_minor: int
    simds: int
    simds_per_unit: int
    xccs: int
    arrays: int
    arrays_per_engine: int
    scratch_waves_per_unit: int
    sdma_engines: int
    sdma_xgmi_engines: int
    hive_id: int
    ctl_stack_bytes: int  # 0 when this kernel does not say
    cwsr_bytes: int
    vram_bytes: int
    is_vram_public: bool  # the host sees all of it
    device_id: int
    has_sramecc: bool  # its registers and caches are protected, which code is compiled for

    @property
    def compute_units(self) -> int:
        """How many compute units the GPU has."""
        return self.simds // max(self.simds_per_unit, 1)

    @property
    def shader_engines(self) -> int:
        """Of one XCC, the kernel's own figure: node_show multiplies array_count by the XCCs."""
        return max(self.arrays // max(self.arrays_per_engine, 1) // self.xccs, 1)


def properties(text: bytes) -> dict[str, int]:
    """Lines of "name value"; others are passed over, so that a newer kernel's additions do no harm."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        number = _number(value)
        if number is not None:
            found[name] = number
    return found


def _number(text: str) -> int | None:
    """A number as the kernel writes it, of 64 bits."""
    text = text.strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= 20
    return int(text) if is_number and int(text) < 2**64 else None


def read_nodes(port: Port) -> list[Node]:
    """Every GPU, in the kernel's order.

    Raises  DriverError when the driver is not there, or changes its mind faster than we can read
    """
    for _ in range(ATTEMPTS):
        before = port.read_file(f"{ROOT}/generation_id").strip()
        nodes = _scan(port)
        if port.read_file(f"{ROOT}/generation_id").strip() == before:
            return nodes
    raise DriverError(
        f"{ROOT}: changed {ATTEMPTS} times while it was read. GPUs come and go; try again when they have settled."
    )


def _scan(port: Port) -> list[Node]:
    nodes = []
    index = 0
    while (node := _node(port, index)) is not None:
        if node.gpu_id:
            nodes.append(node)
        index += 1
    return nodes


def _node(port: Port, index: int) -> Node | None:
    """A node, with gpu_id 0 when it is no GPU or one that is hidden from us; None when there is none."""
    folder = f"{ROOT}/nodes/{index}"
    try:
        text = port.read_file(f"{folder}/gpu_id").decode("utf-8", "replace").strip()
    except DriverError as error:
        if error.errno == errno.ENOENT and index:  # the first is the host's: it is always there
            return None
        if error.errno != errno.EPERM:  # EPERM: the device cgroup hides it
            raise
        text = ""
    gpu_id = _number(text or "0")
    if gpu_id is None or gpu_id >= 2**32:
        raise DriverError(f"read({folder}/gpu_id): {text[:40]!r} is no number of a GPU. Load amdgpu anew.")
    facts = properties(port.read_file(f"{folder}/properties")) if gpu_id else {}
    if not facts.get("gfx_target_version") or not facts.get("drm_render_minor"):
        gpu_id = 0
    banks = [
        properties(port.read_file(f"{folder}/mem_banks/{bank}/properties"))
        for bank in range(facts.get("mem_banks_count", 0) if gpu_id else 0)
    ]
    return node_of(index, gpu_id, facts, banks)


def node_of(index: int, gpu_id: int, facts: dict[str, int], banks: list[dict[str, int]]) -> Node:
    """A node from its properties; what an older kernel does not say has a default."""
    vram = [bank for bank in banks if bank.get("heap_type") in (HEAP_PUBLIC, HEAP_PRIVATE)]
    return Node(
        index=index,
        gpu_id=gpu_id,
        gfx_target_version=facts.get("gfx_target_version", 0),
        render_minor=facts.get("drm_render_minor", 0),
        simds=facts.get("simd_count", 0),
        simds_per_unit=facts.get("simd_per_cu", 0),
        xccs=facts.get("num_xcc", 1) or 1,
        arrays=facts.get("array_count", 1),
        arrays_per_engine=facts.get("simd_arrays_per_engine", 1),
        scratch_waves_per_unit=facts.get("max_slots_scratch_cu", 32),
        sdma_engines=facts.get("num_sdma_engines", 0),
        sdma_xgmi_engines=facts.get("num_sdma_xgmi_engines", 0),
        hive_id=facts.get("hive_id", 0),
        ctl_stack_bytes=facts.get("ctl_stack_size", 0),
        cwsr_bytes=facts.get("cwsr_size", 0),
        vram_bytes=sum(bank.get("size_in_bytes", 0) for bank in vram),
        is_vram_public=bool(vram) and all(bank["heap_type"] == HEAP_PUBLIC for bank in vram),
        device_id=facts.get("device_id", 0),
        has_sramecc=bool(facts.get("capability", 0) & SRAM_ECC),
    )
