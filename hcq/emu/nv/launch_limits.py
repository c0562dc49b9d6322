"""What the scheduler of a GPU refuses to launch: limits of threads, registers, barriers and shared memory.

In       a QMD, and the chip that is to run it
Out      LaunchError where no GPU of the kind can
Next     launch.py (who asks, and what a launch needs of its channel)
Source   clc6c0qmd.h, clcbc0qmd.h, clcec0qmd.h; limits of threads, registers, barriers: CUDA C++ Programming Guide,
         "Technical Specifications per Compute Capability"
"""

from __future__ import annotations

from math import prod

from hcq.emu.nv.errors import LaunchError
from hcq.emu.nv.spec import SMS_PER_TPC, Chip
from hcq.nv.abi.qmd import Qmd, QmdType

MAX_THREADS, MAX_BARRIERS, MAX_REGISTERS = 1024, 16, 255
REGISTERS_PER_SM = 65536
MAX_CLUSTER = (
    16  # eight where a kernel has not asked for sizes that are not portable, which the QMD does not say
)
FIRST_WITH_CLUSTERS = 4  # of the versions of QMDs


def grid_of(qmd: Qmd) -> tuple[int, int, int]:
    """Blocks of a grid: (x, y, z)."""
    return qmd.value("grid_width"), qmd.value("grid_height"), qmd.value("grid_depth")


def block_of(qmd: Qmd) -> tuple[int, int, int]:
    """Threads of a block: (x, y, z)."""
    return (
        qmd.value("cta_thread_dimension0"),
        qmd.value("cta_thread_dimension1"),
        qmd.value("cta_thread_dimension2"),
    )


def cluster_of(qmd: Qmd) -> tuple[int, int, int]:
    """Blocks of a cluster: (x, y, z)."""
    if qmd.version < FIRST_WITH_CLUSTERS or qmd.value("qmd_type") != QmdType.GRID_GPC_CGA:
        return 1, 1, 1
    return qmd.value("gpc_cga_width"), qmd.value("gpc_cga_height"), qmd.value("gpc_cga_depth")


def check_launch(chip: Chip, qmd: Qmd) -> None:
    """Raises LaunchError for a QMD that no GPU of this kind can launch."""

    def refuse(why: str) -> LaunchError:
        return LaunchError(f"Graphics SKEDCHECK: {why}")

    if qmd.version == 3:
        if qmd.value("is_queue"):
            raise refuse("the QMD is a queue")
    else:
        kind = qmd.value("qmd_type")
        # drivers of other makers leave the field 0 on version 4
        grids = QmdType.GRID_CTA, QmdType.GRID_GPC_CGA
        if kind not in (grids if qmd.version == 5 else (*grids, QmdType.QUEUE)):
            raise refuse(f"QMD_TYPE is {kind!r}; only GRID_CTA and GRID_GPC_CGA are emulated")
        cluster, grid = cluster_of(qmd), grid_of(qmd)
        if not 0 < prod(cluster) <= MAX_CLUSTER:
            raise refuse(
                f"GPC_CGA_WIDTH, _HEIGHT and _DEPTH are {cluster}: a cluster has 1 to {MAX_CLUSTER} blocks"
            )
        if any(size % width for size, width in zip(grid, cluster)):
            raise refuse(f"the grid of {grid} blocks is no multiple of its clusters of {cluster}")
    sass = qmd.value("sass_version")
    if sass not in (0, chip.sass_version):  # 0: a driver that does not say, as Mesa's
        raise refuse(f"SASS_VERSION is {sass:#x}; the SMs are of {chip.sass_version:#x}")
    width, height, depth = block = block_of(qmd)
    threads = width * height * depth
    if not 0 < threads <= MAX_THREADS or depth > 64:
        raise refuse(f"CTA_THREAD_DIMENSION is {block}: {threads} threads, of 1 to {MAX_THREADS}")
    if not all(qmd.value(f"grid_{axis}") for axis in ("width", "height", "depth")):
        raise refuse("the grid has no blocks")
    registers = qmd.value("register_count")
    per_block = -(-max(registers, 1) * 32 // 256) * 256 * -(-threads // 32)
    if registers > MAX_REGISTERS or per_block > REGISTERS_PER_SM:
        raise refuse(
            f"REGISTER_COUNT {registers} for {threads} threads: an SM has {REGISTERS_PER_SM} registers"
        )
    if qmd.value("barrier_count") > MAX_BARRIERS:
        raise refuse(f"BARRIER_COUNT is {qmd.value('barrier_count')}, of {MAX_BARRIERS}")
    shared = qmd.value("shared_memory_size")
    if shared > chip.max_shared_bytes:
        raise refuse(f"SHARED_MEMORY_SIZE is {shared}, of {chip.max_shared_bytes}")
    sizes = []
    for which in ("min", "target", "max"):
        number = qmd.value(f"{which}_sm_config_shared_mem_size")
        if number * 4 - 4 not in chip.carveouts_kib:
            raise refuse(
                f"{which.upper()}_SM_CONFIG_SHARED_MEM_SIZE is {number:#x}: no carve-out of {chip.arch} "
                f"({', '.join(str(kib) for kib in chip.carveouts_kib)} KiB)"
            )
        sizes.append(number * 4 - 4 << 10)
    if not shared <= sizes[0] <= sizes[1] <= sizes[2]:
        raise refuse(f"the carve-outs {sizes} do not rise from SHARED_MEMORY_SIZE {shared}")


def local_memory_bytes(per_thread: int, warps_per_sm: int) -> int:
    """Bytes per TPC that local memory of this size needs."""
    per_warp = -(-per_thread * 32 // 0x200) * 0x200
    return -(-per_warp * warps_per_sm * SMS_PER_TPC // 0x8000) * 0x8000
