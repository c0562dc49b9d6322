"""mma.sync of small floats and of blocks with scales, as sm_120 has it, beside NumPy's products of what it means."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2
from tests.hcq.emu.nv.shader.running import run_ptx

TABLES = {"e4m3": E4M3, "e5m2": E5M2, "e3m2": E3M2, "e2m3": E2M3, "e2m1": E2M1}
HEADER = ".version 8.8\n.target sm_120a\n.address_size 64\n"


def kernel(instruction: str, registers: str = "") -> str:
    """Each thread loads four words of A, two of B, four sums and two words of scales; its sums go back."""
    loads = [f"ld.global.b32 a{i}, [q+{4 * i}];" for i in range(6)]
    loads += [f"ld.global.f32 c{i}, [q+{24 + 4 * i}];" for i in range(4)]
    loads += ["ld.global.b32 sa, [q+40];", "ld.global.b32 sb, [q+44];"]
    stores = [f"st.global.f32 [q+{24 + 4 * i}], c{i};" for i in range(4)]
    return "\n".join(
        [
            HEADER + ".visible .entry k(.param .u64 p) {",
            ".reg .b32 a<6>, t, sa, sb; .reg .f32 c<4>; .reg .b64 q, w; .reg .u16 h<4>;",
            "ld.param.u64 q, [p]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 48; add.u64 q, q, w;",
            *loads,
            registers,
            instruction,
            *stores,
            "ret; }",
        ]
    )


def mma(kind: str, types: str, scales: str = "") -> str:
    depth = 64 if "mxf4" in kind else 32
    fragments = "{c0, c1, c2, c3}, {a0, a1, a2, a3}, {a4, a5}, {c0, c1, c2, c3}"
    return f"mma.sync.aligned.{kind}.m16n8k{depth}.row.col.f32.{types} {fragments}{scales};"


def codes_of(name: str, rng: Any, *shape: int) -> Any:
    """Codes of numbers that are not NaN, nor too large for exact sums."""
    values = TABLES[name].values
    fine = [code for code, value in enumerate(values) if np.isfinite(value) and abs(value) <= 28]
    return rng.choice(fine, shape).astype(np.uint8)


def memory(a: Any, b: Any, names: tuple[str, str], c: Any, scale_a: Any, scale_b: Any) -> Any:
    """What each thread loads. a (16, k), b (8, k), codes; scale_a (32,), scale_b (32,) words."""
    depth = a.shape[1]
    found = np.zeros((32, 12), np.uint32)
    for thread in range(32):
        group, at = thread // 4, thread % 4
        for register, (row, half) in enumerate([(group, 0), (group + 8, 0), (group, 1), (group + 8, 1)]):
            found[thread, register] = packed(a[row], names[0], at, half, depth)
        for half in range(2):
            found[thread, 4 + half] = packed(b[group], names[1], at, half, depth)
        sums = [c[group + 8 * (i // 2), 2 * at + i % 2] for i in range(4)]
        found[thread, 6:10] = np.array(sums, np.float32).view(np.uint32)
        found[thread, 10:] = scale_a[thread], scale_b[thread]
    return found


def packed(row: Any, name: str, at: int, half: int, depth: int) -> int:
    """A register: the numbers of a thread in one half of k, four in bytes or eight in nibbles."""
    each = depth // 8
    mine = row[half * depth // 2 + at * each :][:each]
    if each == 8:
        return sum(int(code) << 4 * i for i, code in enumerate(mine))
    up = 2 if name == "e2m1" else 0
    return sum(int(code) << up << 8 * i for i, code in enumerate(mine))


def sums_of(found: Any) -> Any:
    out = np.zeros((16, 8), np.float32)
    for thread in range(32):
        for i in range(4):
            out[thread // 4 + 8 * (i // 2), 2 * (thread % 4) + i % 2] = found[thread, 6 + i : 7 + i].view(
                np.float32
            )[0]
    return out


def meaning(codes: Any, name: str) -> Any:
    return TABLES[name].values.astype(np.float64)[codes]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("a", TABLES)
@pytest.mark.parametrize("b", TABLES)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_any_two_small_formats_are_multiplied(a: str, b: str, scaled: bool) -> None:
    rng = np.random.default_rng(len(a + b))
    x, y, c = codes_of(a, rng, 16, 32), codes_of(b, rng, 8, 32), rng.integers(-50, 50, (16, 8))
    exponents = rng.integers(122, 133, (2, 32, 4))
    words = [(one << [0, 8, 16, 24]).sum(1).astype(np.uint32) for one in exponents]
    data = memory(x, y, (a, b), c, *words)
    text = mma("kind::f8f6f4", f"{a}.{b}.f32")
    wanted = meaning(x, a) @ meaning(y, b).T
    if scaled:  # byte 2 of the upper pair of threads, byte 3 of the third thread
        text = mma(
            "kind::mxf8f6f4.block_scale.scale_vec::1X", f"{a}.{b}.f32.ue8m0", ", sa, {2, 1}, sb, {3, 2}"
        )
        of_a = [exponents[0, 4 * (row % 8) + 2 + row // 8, 2] for row in range(16)]
        of_b = [exponents[1, 4 * column + 2, 3] for column in range(8)]
        wanted = wanted * 2.0 ** (np.array(of_a)[:, None] - 127) * 2.0 ** (np.array(of_b) - 127)
    run_ptx(kernel(text), "k", 1, 32, data)
    assert np.array_equal((wanted + c).astype(np.float32), sums_of(data))


@pytest.mark.parametrize(
    "kind,format_,count,byte",
    [
        ("kind::mxf4.block_scale.scale_vec::2X", "ue8m0", 2, 2),
        ("kind::mxf4.block_scale", "ue8m0", 2, 0),
        ("kind::mxf4nvf4.block_scale.scale_vec::2X", "ue8m0", 2, 0),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", "ue8m0", 4, 0),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", "ue4m3", 4, 0),
    ],
)
def test_blocks_of_four_bit_numbers_have_scales_of_their_own(
    kind: str, format_: str, count: int, byte: int
) -> None:
    """The selectors are in registers here."""
    rng = np.random.default_rng(count)
    x, y, c = codes_of("e2m1", rng, 16, 64), codes_of("e2m1", rng, 8, 64), rng.integers(-50, 50, (16, 8))
    codes = rng.integers(124, 131, (2, 32, 4)) if format_ == "ue8m0" else rng.integers(0x30, 0x50, (2, 32, 4))
    words = [(one << [0, 8, 16, 24]).sum(1).astype(np.uint32) for one in codes]
    scale = 2.0 ** (codes - 127.0) if format_ == "ue8m0" else E4M3.values.astype(np.float64)[codes]
    of_a = np.stack([scale[0, 4 * (row % 8) + row // 8, byte : byte + count] for row in range(16)])
    of_b = np.stack([scale[1, 4 * column + 3, byte : byte + count] for column in range(8)])
    data = memory(x, y, ("e2m1", "e2m1"), c, *words)
    registers = f"mov.u16 h0, {byte}; mov.u16 h1, 0; mov.u16 h2, {byte}; mov.u16 h3, 3;"
    text = mma(kind, f"e2m1.e2m1.f32.{format_}", ", sa, {h0, h1}, sb, {h2, h3}")
    run_ptx(kernel(text, registers), "k", 1, 32, data)
    left, right = (
        meaning(one, "e2m1") * np.repeat(scales, 64 // count, 1) for one, scales in ((x, of_a), (y, of_b))
    )
    assert np.array_equal((left @ right.T + c).astype(np.float32), sums_of(data))


def test_a_scale_of_255_makes_its_row_nan() -> None:
    data = memory(np.zeros((16, 32), np.uint8), np.zeros((8, 32), np.uint8), ("e4m3", "e4m3"), np.zeros((16, 8)),
                  np.array([255 if thread == 4 else 127 for thread in range(32)]), np.full(32, 127))  # fmt: skip
    text = mma("kind::mxf8f6f4.block_scale.scale_vec::1X", "e4m3.e4m3.f32.ue8m0", ", sa, {0, 0}, sb, {0, 0}")
    run_ptx(kernel(text), "k", 1, 32, data)
    rows = np.isnan(sums_of(data))
    assert rows[1].all() and not np.delete(rows, 1, 0).any()


@pytest.mark.parametrize(
    "text,said",
    [
        (
            mma("kind::mxf4nvf4.block_scale", "e2m1.e2m1.f32.ue8m0", ", sa, {0, 0}, sb, {0, 0}"),
            "needs one of",
        ),
        (
            mma("kind::mxf4.block_scale", "e2m1.e4m3.f32.ue8m0", ", sa, {0, 0}, sb, {0, 0}"),
            "the factors of kind::mxf4",
        ),
        (mma("kind::mxf8f6f4", "e4m3.e4m3.f32"), "needs .block_scale"),
        (mma("kind::mxf4.block_scale", "e2m1.e2m1.f32.ue4m3", ", sa, {0, 0}, sb, {0, 0}"), "the scales of"),
        (mma("kind::f16", "f16.f16.f32"), "the kinds are kind::f8f6f4"),
    ],
)
def test_what_there_is_not_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        run_ptx(kernel(text), "k", 1, 32, np.zeros((32, 12), np.uint32))


def test_a_selector_that_names_no_thread_is_a_fault_with_the_instruction() -> None:
    text = mma("kind::mxf4.block_scale", "e2m1.e2m1.f32.ue8m0", ", sa, {h0, h1}, sb, {h2, h3}")
    registers = "mov.u16 h0, 1; mov.u16 h1, 0; mov.u16 h2, 0; mov.u16 h3, 0;"
    with pytest.raises(
        KernelFault, match=r"byte-id-a is 1 and thread-id-a 0\. Of 2 scales the first is byte 0 or 2"
    ):
        run_ptx(kernel(text, registers), "k", 1, 32, np.zeros((32, 12), np.uint32))


def test_ptxas_takes_what_these_tests_run(tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if (
        ptxas is None
        or "sm_120a" not in subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout
    ):
        pytest.skip("ptxas, of the CUDA toolkit 12.8 or later, is not installed")
    text = mma("kind::mxf8f6f4.block_scale.scale_vec::1X", "e2m3.e5m2.f32.ue8m0", ", sa, {2, 1}, sb, {3, 2}")
    text += mma("kind::mxf4nvf4.block_scale.scale_vec::4X", "e2m1.e2m1.f32.ue4m3", ", sa, {0, 1}, sb, {0, 2}")
    (tmp_path / "k.ptx").write_text(kernel(text))
    command = [ptxas, "-arch", "sm_120a", "k.ptx", "-o", "k.cubin"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
