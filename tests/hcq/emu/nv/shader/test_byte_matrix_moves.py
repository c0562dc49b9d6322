"""ldmatrix and stmatrix of bytes, and of what is stored in six and four bits."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx


def kernel(move: str, count: int, is_store: bool = False) -> str:
    """Shared memory of 512 bytes is filled from D and goes back to it; R has four words of each thread."""
    words = "{" + ", ".join(f"r{i}" for i in range(count)) + "}"
    text = f"{move} [s], {words};" if is_store else f"{move} {words}, [s];"
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 D, .param .u64 R) {{
.shared .align 16 .b8 tile[512]; .reg .b32 t, s, r<4>; .reg .b64 d, q, w, x<2>;
mov.u32 t, %tid.x; mov.u32 s, tile; mad.lo.u32 s, t, 16, s; ld.param.u64 d, [D]; mul.wide.u32 w, t, 16;
add.u64 d, d, w; ld.global.v2.b64 {{x0, x1}}, [d]; st.shared.v2.b64 [s], {{x0, x1}};
ld.param.u64 q, [R]; add.u64 q, q, w; ld.global.v4.b32 {{r0, r1, r2, r3}}, [q]; bar.warp.sync 0xffffffff;
{text}
bar.warp.sync 0xffffffff; st.global.v4.b32 [q], {{r0, r1, r2, r3}};
ld.shared.v2.b64 {{x0, x1}}, [s]; st.global.v2.b64 [d], {{x0, x1}}; ret; }}"""


def run(move: str, count: int, memory: np.ndarray, registers: np.ndarray, is_store: bool = False) -> None:
    run_ptx(kernel(move, count, is_store), "k", 1, 32, memory, registers)


def octets(registers: np.ndarray) -> np.ndarray:
    return registers.view(np.uint8).reshape(32, 4, 4)


def in_memory(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Rows of 16 numbers, closely packed, the first from the lowest bit on; the rest of 16 bytes is anything."""
    rows = np.full((len(numbers), 16), 0xAA, np.uint8)
    for row, mine in zip(rows, numbers):
        whole = sum(int(number) << bits * i for i, number in enumerate(mine))
        row[: 2 * bits] = list(whole.to_bytes(2 * bits, "little"))
    return rows


FORMATS = {"b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("count", [1, 2])
def test_rows_of_a_16_by_16_matrix_become_columns(format_, count):
    rng, bits = np.random.default_rng(count), FORMATS[format_]
    numbers = rng.integers(0, 1 << bits, (32, 16))
    registers = np.zeros((32, 4), np.uint32)
    run(
        f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{format_}",
        2 * count,
        in_memory(numbers, bits),
        registers,
    )
    for thread in range(32):
        for number in range(2 * count):
            column, first = thread // 4 + 8 * (number % 2), 16 * (number // 2) + 4 * (thread % 4)
            assert list(octets(registers)[thread, number]) == list(numbers[first : first + 4, column])
    assert not registers[:, 2 * count :].any()


@pytest.mark.parametrize("format_", ["b8x16.b6x16_p32", "b8x16.b4x16_p64"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_rows_of_eight_by_16_matrices_are_unpacked(format_, count):
    rng, bits = np.random.default_rng(count), FORMATS[format_]
    numbers = rng.integers(0, 1 << bits, (32, 16))
    registers = np.zeros((32, 4), np.uint32)
    run(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.{format_}", count, in_memory(numbers, bits), registers)
    for thread in range(32):
        for number in range(count):
            row, first = 8 * number + thread // 4, 4 * (thread % 4)
            assert list(octets(registers)[thread, number]) == list(numbers[row, first : first + 4])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_sums_of_a_product_are_stored_as_columns_of_bytes(count):
    registers = np.random.default_rng(5).integers(0, 1 << 32, (32, 4), np.uint32)
    memory = np.zeros((32, 16), np.uint8)
    run(f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8", count, memory, registers, is_store=True)
    for thread in range(32):
        for number in range(count):
            for i in range(4):
                row, column = thread // 4 + 8 * (i // 2), 2 * (thread % 4) + i % 2
                assert memory[8 * number + column, row] == octets(registers)[thread, number, i]
    assert not memory[8 * count :].any()


@pytest.mark.parametrize(
    "move, count",
    [
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8", 2),
        ("ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8", 4),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8", 1),
        ("ldmatrix.sync.aligned.m8n16.x1.trans.shared.b8x16.b4x16_p64", 1),
    ],
)
def test_moves_of_bytes_that_there_are_not_are_refused(move, count):
    with pytest.raises(PtxError):
        run(move, count, np.zeros((32, 16), np.uint8), np.zeros((32, 4), np.uint32))


def test_a_row_of_bytes_beyond_shared_memory_is_reported():
    text = kernel("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8", 4).replace(
        "ldmatrix", "add.u32 s, s, 512; ldmatrix"
    )
    with pytest.raises(KernelFault, match="load of a matrix row"):
        run_ptx(text, "k", 1, 32, np.zeros((32, 16), np.uint8), np.zeros((32, 4), np.uint32))


@needs_nvjitlink
def test_the_vendors_assembler_takes_moves_of_bytes():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    for format_ in FORMATS:
        assert link_ptx(kernel(f"ldmatrix.sync.aligned.m16n16.x2.trans.shared.{format_}", 4), "sm_100a")
    assert link_ptx(kernel("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32", 4), "sm_100a")
    assert link_ptx(kernel("stmatrix.sync.aligned.m16n8.x4.trans.shared.b8", 4, is_store=True), "sm_100a")
