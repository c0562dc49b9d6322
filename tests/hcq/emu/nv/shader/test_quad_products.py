"""mma.m8n8k4 of halves: four products of a warp, fragments placed by the manual's formulas, products by NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PtxError
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx


def a_place(lane: int, i: int, layout: str) -> tuple[int, int]:
    upper = 4 if lane >= 16 else 0
    return (lane % 4 + upper, i) if layout == "row" else (i % 4 + upper, lane % 4)


def b_place(lane: int, i: int, layout: str) -> tuple[int, int]:
    upper = 4 if lane >= 16 else 0
    return (lane % 4, i + upper) if layout == "row" else (i, lane % 4 + upper)


def c_place(lane: int, i: int, kind: str) -> tuple[int, int]:
    upper = 4 if lane >= 16 else 0
    if kind == "f16":
        return lane % 4 + upper, i
    return (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)


def product_of(lane: int) -> int:
    return lane % 16 // 4


def kernel(layouts: tuple[str, str], d: str, c: str) -> str:
    """12 words of each thread: two of A, two of B, eight of C; D goes where C was."""
    c_words, d_words = (4 if kind == "f16" else 8 for kind in (c, d))
    c_list, d_list = (
        ", ".join(f"{name}{i}" for i in range(n)) for name, n in (("c", c_words), ("d", d_words))
    )
    return "\n".join(
        [
            ".version 8.4\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {",
            ".reg .b32 a<2>, b<2>, t; .reg .b64 q, w;",
            f".reg .{'b32' if c == 'f16' else 'f32'} c<8>; .reg .{'b32' if d == 'f16' else 'f32'} d<8>;",
            "ld.param.u64 q, [p]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 48; add.u64 q, q, w;",
            *[f"ld.global.b32 a{i}, [q+{4 * i}]; ld.global.b32 b{i}, [q+{8 + 4 * i}];" for i in range(2)],
            *[f"ld.global.b32 c{i}, [q+{16 + 4 * i}];" for i in range(8)],
            f"mma.sync.aligned.m8n8k4.{'.'.join(layouts)}.{d}.f16.f16.{c}",
            f"{{{d_list}}}, {{a0, a1}}, {{b0, b1}}, {{{c_list}}};",
            *[f"st.global.b32 [q+{16 + 4 * i}], d{i};" for i in range(d_words)],
            "ret; }",
        ]
    )


@pytest.mark.parametrize("layouts", list(itertools.product(("row", "col"), repeat=2)))
@pytest.mark.parametrize("d, c", [("f32", "f32"), ("f16", "f16"), ("f32", "f16")])
def test_a_warp_computes_four_small_products_of_halves(layouts, d, c):
    rng = np.random.default_rng(4)
    a, b = rng.integers(-9, 9, (2, 4, 8, 4))
    sums = rng.integers(-99, 99, (4, 8, 8))
    data = np.zeros((64, 12), np.uint32)
    kinds = {"f16": np.float16, "f32": np.float32}
    for lane in range(64):  # two warps
        mine = product_of(lane % 32)
        lane_a = [a[mine][a_place(lane % 32, i, layouts[0])] for i in range(4)]
        lane_b = [b[mine].T[b_place(lane % 32, i, layouts[1])] for i in range(4)]
        lane_c = [sums[mine][c_place(lane % 32, i, c)] for i in range(8)]
        data[lane, :2] = np.array(lane_a, np.float16).view(np.uint32)
        data[lane, 2:4] = np.array(lane_b, np.float16).view(np.uint32)
        data[lane, 4 : 8 if c == "f16" else 12] = np.array(lane_c, kinds[c]).view(np.uint32)
    run_ptx(kernel(layouts, d, c), "k", 1, 64, data)
    for lane in range(64):
        mine = product_of(lane % 32)
        wanted = a[mine] @ b[mine].T + sums[mine]
        found = data[lane, 4 : 8 if d == "f16" else 12].view(kinds[d])
        assert list(found) == [wanted[c_place(lane % 32, i, d)] for i in range(8)]


def test_sums_of_singles_do_not_become_halves():
    with pytest.raises(PtxError, match="do not become"):
        run_ptx(kernel(("row", "col"), "f16", "f32"), "k", 1, 32, np.zeros((32, 12), np.uint32))


@needs_nvjitlink
def test_the_vendors_assembler_takes_these_products():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    assert link_ptx(kernel(("col", "row"), "f32", "f16"), "sm_75")
