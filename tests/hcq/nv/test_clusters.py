"""Kernels whose blocks are in clusters: from the driver's launch description to what the emulated GPU computes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from hcq.errors import UsageError
from hcq.nv.abi.qmd import QmdType
from hcq.nv.device import NvDevice
from hcq.nv.toolchain import images
from tests.hcq.emu.nv.raw import Launch, Loaded, Raw
from tests.hcq.emu.nv.shader.running import needs_header, needs_nvrtc
from tests.hcq.emu.nv.test_bank0 import put, refused
from tests.hcq.emu.nv.test_compute import do, ready

Open = Callable[..., NvDevice]
SOURCE = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 2, 1) transposed(float *out, const float *in, int n) {
  __shared__ float mine[8][8];
  cg::cluster_group cluster = cg::this_cluster();
  dim3 at = cluster.block_index();
  int x = threadIdx.x, y = threadIdx.y;
  mine[y][x] = in[(blockIdx.y * 8 + y) * n + blockIdx.x * 8 + x];
  cluster.sync();
  float (*there)[8] = cluster.map_shared_rank(mine, at.x * 2 + at.y);
  int left = (blockIdx.x - at.x) * 8, top = (blockIdx.y - at.y) * 8;
  out[(top + at.y * 8 + y) * n + left + at.x * 8 + x] = there[x][y];
  cluster.sync();
}
"""
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 2, 3, 1 {
.reg .b64 %d<3>; .reg .b32 %r<4>; .reg .pred %p;
ld.param.u64 %d1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.y;
mad.lo.u32 %r1, %r3, %r2, %r1; mad.wide.u32 %d1, %r1, 4, %d1; mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, %nclusterid.y; mad.lo.u32 %r1, %r2, 16, %r1; mov.u32 %r2, %clusterid.y; mad.lo.u32 %r1, %r2, 256, %r1;
mov.pred %p, %is_explicit_cluster; @%p st.global.u32 [%d1], %r1; ret;
}
"""
GRID = 4, 6, 1
CLUSTER = {"qmd_type": QmdType.GRID_GPC_CGA, "gpc_cga_width": 2, "gpc_cga_height": 3, "gpc_cga_depth": 1}


@needs_nvrtc
@needs_header("cooperative_groups.h")
@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_blocks_of_a_cluster_exchange_their_tiles(open_nv: Open, arch: str):
    device = open_nv(arch)
    values = np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32)
    out, source = device.alloc(values.nbytes), device.alloc(values.nbytes)
    source.write(values.tobytes())
    program = device.load(images.of_cuda(SOURCE, arch, "tiles"), "transposed")
    assert program.kernel.cluster == (2, 2, 1)
    device.run(program, [out, source, 32], grid=(4, 4, 1), block=(8, 8, 1))
    found = np.frombuffer(out.read(), np.float32).reshape(2, 16, 2, 16)
    assert (found == values.reshape(2, 16, 2, 16).transpose(0, 3, 2, 1)).all()
    with pytest.raises(
        UsageError, match=r"grid=\(3, 4, 1\) is no multiple of the kernel's clusters of \(2, 2, 1\)"
    ):
        device.run(program, [out, source, 32], grid=(3, 4, 1), block=(8, 8, 1))


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_a_launch_of_clusters_says_what_code_reads_of_them(open_nv: Open, arch: str):
    device = open_nv(arch)
    out = device.alloc(96)
    device.run(device.load(PTX.encode(), "k"), [out], grid=GRID, block=(1, 1, 1))
    x, y = np.arange(4), np.arange(6)[:, None]
    found = np.frombuffer(out.read(), np.uint32).reshape(6, 4)
    assert (found == 256 * (y // 3) + 16 * 2 + x % 2 + y % 3 * 2).all()


def launch(grid: tuple[int, int, int] = GRID, **fields: int) -> tuple[Raw, Launch]:
    raw = ready("nv:sm_90")
    kernel = Loaded(raw, PTX, "k", 8)
    made = Launch(raw, kernel.program, struct.pack("<Q", raw.out.va), grid, **{**CLUSTER, **fields})
    put(made, 0x140, struct.pack("<4I", 1, 2, 3, 1))
    put(made, 0x150, struct.pack("<3f3I", 1 / 2, 1 / 3, 1, grid[0] // 2, grid[1] // 3, 1))
    return raw, made


def test_a_description_of_other_makers_with_clusters_runs():
    raw, made = launch()
    do(raw, made.words)
    x, y = np.arange(4), np.arange(6)[:, None]
    assert (raw.out.array()[:24].reshape(6, 4) == 256 * (y // 3) + 32 + x % 2 + y % 3 * 2).all()


@pytest.mark.parametrize(
    "grid, fields, at, data, why",
    [
        (
            (3, 6, 1),
            {},
            0x208,
            b"",
            r"the grid of (3, 6, 1) blocks is no multiple of its clusters of (2, 3, 1)",
        ),
        (GRID, {"gpc_cga_width": 0}, 0x208, b"", "GPC_CGA_WIDTH, _HEIGHT and _DEPTH are (0, 3, 1)"),
        (GRID, {"gpc_cga_width": 4, "gpc_cga_height": 6}, 0x208, b"", "a cluster has 1 to 16 blocks"),
        (
            GRID,
            {"gpc_cga_width": 4, "gpc_cga_height": 1},
            0x144,
            struct.pack("<3I", 4, 1, 1),
            "1 / the blocks",
        ),
        (GRID, {}, 0x140, bytes(4), "whether clusters were asked for is 0x0; it is 0x1"),
        (
            GRID,
            {},
            0x144,
            struct.pack("<3I", 1, 1, 1),
            "the blocks of a cluster is 0x1, 0x1, 0x1; it is 0x2, 0x3, 0x1",
        ),
        (GRID, {"qmd_type": QmdType.GRID_GPU_CGA}, 0x208, b"", "only GRID_CTA and GRID_GPC_CGA are emulated"),
    ],
)
def test_a_description_whose_clusters_cannot_be_is_refused(grid, fields, at, data, why):
    raw, made = launch(grid, **fields)
    put(made, at, data)
    assert why in refused(raw, made)
