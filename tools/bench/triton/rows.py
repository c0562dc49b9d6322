"""Rows: the operations that are compared, each as our tensors compute it and as Triton's launches do.

In       nothing; a GPU's architecture, where it decides which launches are tried
Out      ROWS: name -> Row
Next     kernels.py (Triton's kernels), launches.py (Launch), count.py (counts both)
Source   triton-lang.org, tutorials 02, 03, 05, 06: sizes of tiles, warps and stages that are tried
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hcq import Tensor
from hcq.frontend.grad.gradient import grad
from hcq.ir.dtype import DType, dtypes
from hcq.performance.datasheets import Datasheet
from hcq.tools.bench.triton.launches import Launch, Memory

Run = Callable[[], object]
Tile = tuple[int, int, int, int, int]
F16_TILES = (  # tutorial 03: rows, columns, depth, warps, stages
    (128, 256, 64, 8, 3), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4), (64, 32, 32, 2, 5), (32, 64, 32, 2, 5),
)  # fmt: skip
F8_TILES = (
    (128, 256, 128, 8, 3), (256, 128, 128, 8, 3), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4), (128, 128, 128, 4, 4),
    (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4),
)  # fmt: skip
AMD_TILES = (
    (256, 256, 64, 8, 2), (128, 128, 64, 4, 2), (128, 256, 32, 8, 2), (128, 64, 64, 4, 2), (64, 64, 64, 4, 2),
    (32, 64, 64, 2, 2), (64, 32, 64, 2, 2), (32, 32, 64, 2, 2),
)  # fmt: skip
ATTENTION = (
    (128, 64, 8, 3),
    (128, 64, 4, 3),
    (64, 64, 4, 3),
    (128, 128, 8, 2),
    (128, 32, 4, 3),
    (64, 32, 4, 4),
)
BLOCKS_A_UNIT = 2
TRIED = 4
GROUP = 8
LONG = 16384
HEAD = 64
HEADS = 128  # of a launch: 4 texts of 32
LEAST_ROWS = 64  # of a block: so many blocks of a causal head are all of its blocks, or those of two heads


@dataclass(frozen=True)
class Row:
    """An operation.

    ours     makes the operands and returns what computes the result from them
    theirs   of a chip: each a list of launches that follow each other, of which the best counts
    blocks   that are counted of a launch; 0: all
    times    all that is counted belongs to a part of the operation (one head of many): so often is it done
    inexact  words of HCQ_INEXACT for ours
    """

    name: str
    ours: Callable[[], Run]
    theirs: Callable[[Datasheet], list[tuple[Launch, ...]]]
    blocks: int = 2
    times: int = 1
    inexact: str = ""


def zeros(*shape: int, dtype: DType = dtypes.float32) -> Tensor:
    """A tensor in memory, without a kernel that would fill it."""
    raw = np.zeros(prod(shape) * dtype.itemsize, np.uint8)
    kinds = {1: np.int8, 2: np.float16, 4: np.float32}
    if dtype in (dtypes.float32, dtypes.float16, dtypes.int8):
        return Tensor(raw.view(kinds[dtype.itemsize]).reshape(shape)).realize()
    return Tensor(raw.view(kinds[dtype.itemsize]).reshape(shape)).bitcast(dtype).realize()


def _matmul(
    name: str,
    m: int,
    n: int,
    k: int,
    dtype: DType,
    kind: str,
    out: str,
    *,
    tf32: bool = False,
    blocks: int = 2,
) -> Row:
    def ours() -> Run:
        a, b = zeros(m, k, dtype=dtype), zeros(k, n, dtype=dtype)
        if dtype is dtypes.int8:
            return lambda: (a.cast(dtypes.int32) @ b.cast(dtypes.int32)).realize()
        if dtype.itemsize == 1:
            return lambda: (a.cast(dtypes.float32) @ b.cast(dtypes.float32)).cast(dtypes.float16).realize()
        return lambda: (a @ b).realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        tiles = F8_TILES if dtype.itemsize == 1 else F16_TILES
        tiles = tiles if chip.arch.startswith("sm_") else AMD_TILES
        found: list[tuple[Launch, ...]] = []
        for rows, columns, depth, warps, stages in _likely(tiles, m, n, chip.units):
            constants = {
                "M": rows, "N": columns, "K": depth, "GROUP": GROUP, "PRECISION": "tf32" if tf32 else "ieee",
                "SUMS": "tl.int32" if kind == "i8" else "tl.float32",
            }  # fmt: skip
            operands = Memory(out, m * n), Memory(kind, m * k), Memory(kind, k * n)
            grid = (-(-m // rows) * -(-n // columns),)
            found.append((Launch("matmul", (*operands, m, n, k, k, n, n), grid, constants, warps, stages),))
        return found

    return Row(f"matmul {name}", ours, theirs, blocks, inexact="tf32" if tf32 else "")


def _likely(tiles: Sequence[Tile], m: int, n: int, units: int) -> list[Tile]:
    """Those that give units nearest to two blocks each: of large products large tiles, of small ones small tiles."""

    def off(tile: Tile) -> float:
        return abs(math.log(-(-m // tile[0]) * -(-n // tile[1]) / (BLOCKS_A_UNIT * units)))

    return sorted(tiles, key=off)[:TRIED]


def _products() -> list[Row]:
    made = []
    kinds = (
        ("f16", dtypes.float16, "fp16", "fp16"),
        ("bf16", dtypes.bfloat16, "bf16", "bf16"),
        ("int8", dtypes.int8, "i8", "i32"),
        ("fp8", dtypes.fp8e4m3, "fp8e4nv", "fp16"),
        ("f32", dtypes.float32, "fp32", "fp32"),
    )
    for name, dtype, kind, out in kinds:
        sizes = (512, 1024, 2048, 4096, 8192) if name == "f16" else (1024, 4096)
        made += [_matmul(f"{name} {size}", size, size, size, dtype, kind, out) for size in sizes]
        if name in ("f16", "f32"):
            made.append(_matmul(f"{name} 1000x1100x900", 1000, 1100, 900, dtype, kind, out))
    made.append(_matmul("tf32 4096", 4096, 4096, 4096, dtypes.float32, "fp32", "fp32", tf32=True))
    return made


def _softmax(rows: int, columns: int) -> Row:
    def ours() -> Run:
        x = zeros(rows, columns)
        return lambda: x.softmax(-1).realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        block = 1 << (columns - 1).bit_length()
        found: list[tuple[Launch, ...]] = []
        for programs, warps, stages in (
            (rows, 4, 1),
            (rows, 8, 1),
            (rows, 1, 1),
            (8 * chip.units, 8, 2),
            (8 * chip.units, 4, 4),
        ):
            arguments = (
                Memory("fp32", rows * columns),
                Memory("fp32", rows * columns),
                rows,
                columns,
                columns,
                columns,
            )
            found.append(
                (
                    Launch(
                        "softmax",
                        arguments,
                        (min(programs, rows),),
                        {"BLOCK": block, "STAGES": stages},
                        warps,
                    ),
                )
            )
        return found

    return Row(f"softmax {rows}x{columns}", ours, theirs, 4)


def _layer_norm(rows: int, columns: int) -> Row:
    def ours() -> Run:
        x, weight, bias = (
            zeros(*shape, dtype=dtypes.float16) for shape in ((rows, columns), (columns,), (columns,))
        )
        return lambda: x.layer_norm((columns,), weight, bias).realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        block = min(32768, 1 << (columns - 1).bit_length())
        warps = min(max(block // 256, 1), 8)
        x, line = Memory("fp16", rows * columns), Memory("fp16", columns)
        arguments = (x, x, line, line, Memory("fp32", rows), Memory("fp32", rows), columns, columns, 1e-5)
        return [(Launch("layer_norm", arguments, (rows,), {"BLOCK": block}, warps),)]

    return Row(f"layer norm f16 {rows}x{columns}", ours, theirs, 4)


def _attention(length: int, is_causal: bool) -> Row:
    heads = HEADS

    def ours() -> Run:
        q, k, v = (zeros(1, heads, length, HEAD, dtype=dtypes.float16) for _ in range(3))
        return lambda: q.scaled_dot_product_attention(k, v, is_causal=is_causal).realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        return [
            (_forward(heads, length, is_causal, *tile),)
            for tile in (ATTENTION if length < LONG else ATTENTION[:2])
        ]

    name = f"attention {length}{' causal' if is_causal else ''}"
    return Row(name, ours, theirs, length // LEAST_ROWS if is_causal else 1)


def _forward(
    heads: int, length: int, is_causal: bool, rows: int, keys: int, warps: int, stages: int
) -> Launch:
    x = Memory("fp16", heads * length * HEAD)
    constants = {"M": rows, "N": keys, "D": HEAD, "CAUSAL": is_causal, "STAGES": stages}
    arguments = (x, Memory("fp32", heads * length), x, x, x, length, 0.125)
    return Launch("attention", arguments, (length // rows, heads), constants, warps, stages)


def _attention_back(length: int, is_causal: bool) -> Row:
    heads = HEADS

    def ours() -> Run:
        q, k, v = (zeros(1, heads, length, HEAD, dtype=dtypes.float16) for _ in range(3))
        g = zeros(1, heads, length, HEAD, dtype=dtypes.float16)

        def run() -> object:
            out = q.scaled_dot_product_attention(k, v, is_causal=is_causal)
            return out.realize(*grad([out], [q, k, v], [g]))

        return run

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        x, line = Memory("fp16", heads * length * HEAD), Memory("fp32", heads * length)
        size = heads * length * HEAD
        found: list[tuple[Launch, ...]] = []
        for forward, warps in ((ATTENTION[0], 4), (ATTENTION[1], 4), (ATTENTION[1], 8)):
            constants = {"WIDE": 128, "NARROW": 32, "D": HEAD, "CAUSAL": is_causal}
            found.append(
                (
                    _forward(heads, length, is_causal, *forward),
                    Launch("scaled", (x, x, 0.18), (size // 1024,), {"BLOCK": 1024}),
                    Launch("attention_deltas", (line, x, x, length), (length // 128, heads), {"M": 128, "D": HEAD}),
                    Launch("attention_back", (x, x, x, x, x, x, x, line, line, length, 0.125), (length // 128, heads),
                           constants, warps, 5 if chip.arch.startswith("sm_") else 2),
                )
            )  # fmt: skip
        return found

    name = f"attention backward {length}{' causal' if is_causal else ''}"
    return Row(name, ours, theirs, length // LEAST_ROWS if is_causal else 1)


def _sum(size: int) -> Row:
    def ours() -> Run:
        x = zeros(size)
        return lambda: x.sum().realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        found: list[tuple[Launch, ...]] = []
        for block, warps in ((1024, 4), (4096, 8)):
            programs = min(1024, size // block)
            x, parts = Memory("fp32", size), Memory("fp32", programs)
            last = Launch("total", (Memory("fp32", 1), parts, programs), (1,), {"BLOCK": 1024}, 4)
            found.append((Launch("total", (parts, x, size), (programs,), {"BLOCK": block}, warps), last))
            zero = Launch("scaled", (Memory("fp32", 1), Memory("fp32", 1), 0.0), (1,), {"BLOCK": 1}, 1)
            found.append(
                (
                    zero,
                    Launch(
                        "total_by_atomics", (Memory("fp32", 1), x, size), (programs,), {"BLOCK": block}, warps
                    ),
                )
            )
        return found

    return Row(f"sum {size}", ours, theirs, 4)


def _transpose(size: int, dtype: DType, kind: str, name: str) -> Row:
    def ours() -> Run:
        x = zeros(size, size, dtype=dtype)
        return lambda: x.T.contiguous().realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        x = Memory(kind, size * size)
        found: list[tuple[Launch, ...]] = []
        for rows, columns, warps in ((32, 32, 4), (64, 64, 4), (64, 64, 8), (32, 64, 4)):
            constants = {"ROWS": rows, "COLUMNS": columns}
            grid = (size // rows, size // columns)
            found.append((Launch("transpose", (x, x, size, size), grid, constants, warps),))
        return found

    return Row(f"transpose {name} {size}", ours, theirs, 4)


def _cumsum(rows: int, columns: int) -> Row:
    def ours() -> Run:
        x = zeros(rows, columns)
        return lambda: x.cumsum(1).realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        x = Memory("fp32", rows * columns)
        return [(Launch("running", (x, x, columns), (rows,), {"BLOCK": columns}, warps),) for warps in (4, 8)]

    return Row(f"cumsum {rows}x{columns}", ours, theirs, 4)


def _gather(rows: int, columns: int, entries: int) -> Row:
    places = np.random.default_rng(0).permutation(entries)[:rows].astype(np.int32)

    def ours() -> Run:
        table, at = zeros(entries, columns), Tensor(places).realize()
        return lambda: table[at].realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        arguments = (
            Memory("fp32", rows * columns),
            Memory("fp32", entries * columns),
            Memory("i32", rows, places),
            columns,
        )
        return [
            (Launch("gather", arguments, (rows // each,), {"ROWS": each, "BLOCK": columns}, warps),)
            for each, warps in ((1, 4), (4, 4), (8, 4))
        ]

    return Row(f"gather {rows}x{columns}", ours, theirs, 16)


def _sort(rows: int, columns: int) -> Row:
    def ours() -> Run:
        x = Tensor(np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)).realize()
        return lambda: x.sort(1)[0].realize()

    def theirs(chip: Datasheet) -> list[tuple[Launch, ...]]:
        x = Memory("fp32", rows * columns)
        return [
            (Launch("ordered", (x, x), (rows // each,), {"ROWS": each, "COLUMNS": columns}, warps),)
            for each, warps in ((1, 4), (1, 8), (4, 4))
        ]

    return Row(f"sort {rows}x{columns}", ours, theirs, 0, 64)


def _all() -> Sequence[Row]:
    return (
        *_products(),
        *(_softmax(4096, columns) for columns in (512, 1024, 4096)),
        *(_layer_norm(4096, columns) for columns in (1024, 4096)),
        *(_attention(length, is_causal) for length in (512, 1024, 4096) for is_causal in (False, True)),
        _attention(16384, False),
        *(_attention_back(length, is_causal) for length in (1024,) for is_causal in (False, True)),
        _sum(1 << 24),
        _sum(1 << 20),
        _transpose(4096, dtypes.float32, "fp32", "f32"),
        _transpose(4096, dtypes.float16, "fp16", "f16"),
        _cumsum(4096, 4096),
        _cumsum(4096, 1024),
        _gather(16384, 512, 32768),
        _sort(64, 1024),
    )


ROWS = {row.name: row for row in _all()}
