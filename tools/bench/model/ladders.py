"""Ladders: launches that others measured on real GPUs, and that the model is checked against.

In       nothing
Out      CASES: each a kernel of ours, its launch, what was measured and where that is written
Next     count.py (runs the kernels on emulated GPUs), page.py (docs/model.md), *.cu and *.hip (the kernels)
Source   each case's `source`. Which ladders were held out while the model was written: docs/decisions/0015

Kernels are written anew after the descriptions that came with the figures; where a description leaves a launch open,
the case's note says what was assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hcq.performance.counters import Dim3

MIB, N = 1 << 20, 4096
# what an argument is: a number, or ("bytes", n): a buffer of so many
Argument = Any
HELD_OUT = (
    "sgemm-4070tis", "reduce-3050m", "softmax-4070tis", "sum-width-h100", "babelstream-gh200", "azure-h200",
    "small-a40", "small-a40-graph", "transpose-mi210",
    "mma-5090", "attention-5090", "small-mi210", "small-mi210-graph", "azure-mi300x",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One launch.

    module, entry    where the kernel is: a file of this folder; its name
    microseconds     measured
    sample           blocks that run on the emulator; the others are taken to do the same
    is_warm          whether launches follow each other over the same data; benchmarks of Triton's kind clear L2 between
    launched_by      see hcq.performance.model.time.estimate
    shared_bytes     that the launch asks for, beyond the kernel's own
    times            how often all that was done which a loop on the emulator did once
    more             launches that follow, and whose time was measured with it: (name, grid, block, arguments)
    """

    ladder: str
    row: str
    chip: str
    module: str
    entry: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    microseconds: float
    source: str
    sample: int = 4
    is_warm: bool = False
    launched_by: str = "queue"
    shared_bytes: int = 0
    times: int = 1
    note: str = ""
    more: tuple[tuple[str, Dim3, Dim3, tuple[Argument, ...]], ...] = ()

    @property
    def is_held_out(self) -> bool:
        """Whether nobody looked at it while the model was written."""
        return self.ladder in HELD_OUT

    @property
    def launches(self) -> tuple[Case, ...]:
        """All that was measured together, each as a case of one launch."""
        later = [
            replace(self, entry=entry, grid=grid, block=block, arguments=arguments, more=())
            for entry, grid, block, arguments in self.more
        ]
        return replace(self, more=()), *later

    @property
    def counted_as(self) -> str:
        """What is counted: cases that differ by the chip of an architecture alone share it."""
        return f"{self.module}:{self.entry}:{self.grid}:{self.block}:{self.arguments}:{self.sample}:{self.shared_bytes}"


def room(count: int, size: int = 4) -> Argument:
    """A buffer of so many elements."""
    return ("bytes", count * size)


# ------------------------------------------------------------ products

BOEHM = "github.com/siboehm/SGEMM_CUDA@60cba6f README.md"
LEARN = "github.com/gau-nernst/learn-cuda@1454f8b"
SEB = "github.com/seb-v/seb-v.github.io@3f89a56 _posts/2025-01-20"
FLOPS = 2 * N**3
PRODUCT = (room(N * N), room(N * N), room(N * N), N, 1.0, 0.0)
# entry -> (grid, block)
SHAPES = {
    "naive": ((128, 128, 1), (32, 32, 1)),
    "coalesced": ((128, 128, 1), (1024, 1, 1)),
    "shared": ((128, 128, 1), (1024, 1, 1)),
    "tile_1d": ((64, 64, 1), (512, 1, 1)),
    "coarsened": ((32, 32, 1), (256, 1, 1)),
    "tile_2d": ((32, 32, 1), (256, 1, 1)),
    "wide": ((32, 32, 1), (256, 1, 1)),
    "padded": ((32, 32, 1), (256, 1, 1)),
    "deep": ((32, 32, 1), (256, 1, 1)),
    "warps": ((32, 32, 1), (128, 1, 1)),
    "warps_checked": ((64, 32, 1), (256, 1, 1)),
}


def _product(
    ladder: str, row: str, chip: str, entry: str, microseconds: float, source: str, note: str = ""
) -> Case:
    grid, block = SHAPES[entry]
    return Case(
        ladder, row, chip, "cuda_products", entry, grid, block, PRODUCT, microseconds, source, 2, note=note,
        shared_bytes=4 * 64 * (128 + 64) if entry == "warps_checked" else 0,
    )  # fmt: skip


A6000 = [
    _product("sgemm-a6000", row, "a6000", entry, FLOPS / rate / 1e3, BOEHM)
    for row, entry, rate in (
        ("1 naive", "naive", 309.0),
        ("2 coalesced", "coalesced", 1986.5),
        ("3 shared", "shared", 2980.3),
        ("4 1D tile", "tile_1d", 8474.7),
        ("5 2D tile", "tile_2d", 15971.7),
        ("6 vectorised", "wide", 18237.3),
        ("8 banks, offset", "padded", 16459.2),
        ("9 autotuned", "deep", 19721.0),
        ("10 warp tiles", "warps", 21779.3),
    )
]
ADA = [
    _product("sgemm-4070tis", row, "rtx4070tis", entry, 1e3 * ms, LEARN + " 02a_matmul_simt/README.md",
             "the tiles' sizes are those of sgemm-a6000, but for v5: 128 x 64 x 64, warps of 32 x 32")
    for row, entry, ms in (
        ("v1 naive", "coalesced", 56.21),
        ("v2 shared tiles", "shared", 48.14),
        ("v3 coarsened", "coarsened", 39.03),
        ("v4 register tiles", "tile_2d", 8.92),
        ("v5 warp tiles", "warps_checked", 8.75),
        ("v6b transposed A", "wide", 5.16),
    )
]  # fmt: skip
RDNA = [
    Case("sgemm-7900xtx", row, "rx7900xtx", "hip_kernels", entry, grid, block, PRODUCT, 1e3 * ms, SEB, 2)
    for row, entry, grid, block, ms in (
        ("1 naive", "naive", (256, 256, 1), (16, 16, 1), 136.006),
        ("2 LDS tiles", "lds", (128, 128, 1), (32, 32, 1), 34.2059),
        ("3 register tiles", "tiles", (32, 32, 1), (256, 1, 1), 6.0341),
    )
]

# ------------------------------------------------------------ streams

BENCHES = "github.com/te42kyfo/gpu-benches@1c36d50"
AZURE = "github.com/samuel-bohman/AI-benchmarking-guide@2b25b69 Azure_Results"
YENCAL = "github.com/yencal/yencal.github.io@b39dbe1"
BABEL = 1 << 25  # doubles of an array
ARRAYS = (room(BABEL, 8), room(BABEL, 8), room(BABEL, 8))
MOVED = {"copy": 2, "mul": 2, "add": 3, "triad": 3, "dot": 2}


def _babel(ladder: str, chip: str, source: str, sms: int, rates: dict[str, float]) -> list[Case]:
    made = []
    for row, rate in rates.items():
        grid = BABEL // 1024
        arguments: tuple[Argument, ...] = ARRAYS
        if row == "dot":
            grid, arguments = 4 * sms, (room(BABEL, 8), room(BABEL, 8), room(4 * sms, 8), BABEL)
        microseconds = MOVED[row] * 8 * BABEL / rate / 1e3
        made.append(
            Case(ladder, row, chip, "cuda_streams", f"stream_{row}", (grid, 1, 1), (1024, 1, 1), arguments,
                 microseconds, source, 8, note="dot: four blocks for each SM" if row == "dot" else "")
        )  # fmt: skip
    return made


STREAMS = [
    *_babel("azure-a100", "a100", AZURE + "/ND_A100_v4_results.md", 108,
            {"copy": 1610, "mul": 1610, "add": 1700, "triad": 1700, "dot": 1750}),
    *_babel("azure-h100", "h100", AZURE + "/ND_H100_v5_results.md", 132,
            {"copy": 2900, "mul": 2900, "add": 2970, "triad": 2970, "dot": 3180}),
    *_babel("azure-h200", "h200", AZURE + "/ND_H200_v5_results.md", 132,
            {"copy": 4010, "mul": 4000, "add": 4190, "triad": 4180, "dot": 4570}),
    *_babel("babelstream-gh200", "gh200", "github.com/UoB-HPC/BabelStream issue 194", 132,
            {"copy": 2979, "mul": 2890.7, "add": 3301.4, "triad": 3314.9}),
]  # fmt: skip
LONG = 1 << 27
OCCUPANCY = [
    Case("stream-h100pcie", f"{kind}, {block} threads", "h100-pcie", "cuda_streams", kind, (LONG // block, 1, 1),
         (block, 1, 1), (room(LONG, 8),) * arrays, 8 * moved * (LONG // block * block) / rate / 1e3,
         BENCHES + " gpu-stream/h100_pcie.txt", 16, shared_bytes=113 << 10, note="two blocks an SM")
    for kind, arrays, moved, rates in (
        ("read", 2, 1, {32: 96, 128: 368, 352: 908, 736: 1624, 1024: 1942}),
        ("scale", 2, 2, {32: 183, 128: 607, 352: 1295, 736: 1651, 1024: 1704}),
        ("triad", 3, 3, {32: 254, 128: 821, 352: 1615, 736: 1738, 1024: 1832}),
    )
    for block, rate in rates.items()
]  # fmt: skip
WIDTHS = [
    Case("copy-width-h100", row, "h100", "cuda_streams", entry, ((1 << 30) // size // 1024, 1, 1), (1024, 1, 1),
         (room(1 << 30, 1), room(1 << 30, 1)), 2 * (1 << 30) / rate / 1e3,
         YENCAL + " _posts/2025-11-29-gpu-memory-throughput.md", 8)
    for row, entry, size, rate in (
        ("uint8_t", "copy_u8", 1, 675.0),
        ("uint16_t", "copy_u16", 2, 1175.0),
        ("uint32_t", "copy_u32", 4, 2000.0),
        ("uint64_t", "copy_u64", 8, 2625.0),
        ("uint4", "copy_u128", 16, 3050.0),
    )
]  # fmt: skip
SUMS = [
    Case("sum-width-h100", row, "h100", "cuda_streams", f"sum_{row}", (1024, 1, 1), (512, 1, 1),
         (room(1 << 30, 1), room(1), (1 << 30) // size), (1 << 30) / rate / 1e3,
         YENCAL + " _posts/2025-12-13-gpu-reduction.md", 4)
    for row, size, rate in (("int", 4, 2300.0), ("int2", 8, 3050.0), ("int4", 16, 3150.0))
]  # fmt: skip
FLOATS = 1 << 27
INTENSITY = [
    Case("intensity-a100-40", f"{steps} steps", "a100-40", "cuda_streams", f"intensity_{steps}", (864, 1, 1),
         (256, 1, 1), (room(FLOATS), room(864 * 256), FLOATS), (FLOATS // 2) * (2 + 2 * steps) / rate / 1e3,
         BENCHES + " gpu-roofline/alex_a100_40.txt", 4)
    for steps, rate in ((0, 343), (24, 8263), (48, 15191), (96, 17554), (208, 18755), (344, 19079))
]  # fmt: skip
SMALL = [
    Case(ladder, f"{count} elements", "a40", "cuda_streams", "small", (-(-count // 256), 1, 1), (256, 1, 1),
         (room(count, 8), room(count, 8), count), us, f"{BENCHES} gpu-small-kernels/{file}", 16, True, by,
         note="blocks of 256; the best of several sizes was measured")
    for ladder, by, file, rows in (
        ("small-a40", "queue", "a40.txt",
         {4096: 2.048, 15625: 2.049, 63237: 2.353, 241526: 3.204, 977896: 28.396}),
        ("small-a40-graph", "graph", "a40_graph.txt",
         {4096: 1.092, 15625: 1.174, 63237: 1.473, 241526: 2.353, 977896: 25.4}),
    )
    for count, us in rows.items()
]  # fmt: skip

# ------------------------------------------------------------ rows and histograms

ROWS = (room(64 * 32000), room(64), 64, 32000)
ROW_SUMS = [
    Case("rowsum-4070tis", row, "rtx4070tis", "cuda_rows", entry, grid, block, ROWS, us, LEARN + " 03_sum/README.md", 8,
         note=note)
    for row, entry, grid, block, us, note in (
        ("v1", "rows_thread", (1, 1, 1), (64, 1, 1), 799.49, "one block of 64"),
        ("v2 tree", "rows_tree", (125, 64, 1), (256, 1, 1), 26.05, "blocks of 256"),
        ("v3 coarsened", "rows_coarse", (32, 64, 1), (256, 1, 1), 15.36, "blocks of 256, 4 elements a thread"),
        ("v4c shuffles", "rows_shuffle", (32, 64, 1), (256, 1, 1), 15.07, "blocks of 256, 4 elements a thread"),
        ("v6 16-byte loads", "rows_wide", (32, 64, 1), (256, 1, 1), 15.01, "blocks of 256, 4 elements a thread"),
    )
]  # fmt: skip
HISTOGRAMS = [
    Case("histogram-h100", row, "h100", "cuda_rows", entry, (4224, 1, 1), (512, 1, 1),
         (("random", 1 << 30), room(256), (1 << 30) // size), 1e3 * ms,
         "github.com/yencal/gpu-histogram-optimization@b71f5c0 README.md", 4)
    for row, entry, size, ms in (
        ("global atomics", "histogram_global", 1, 276.13),
        ("shared atomics", "histogram_shared", 1, 1.53),
        ("shared, 16 bytes", "histogram_wide", 16, 0.47),
    )
]  # fmt: skip
FEW = 1 << 24
PUPKING = "github.com/Pupking/03_parallel_reduction (a copy at gh.nahida.ren)"
REDUCTIONS = [
    Case("reduce-3050m", row, "rtx3050m", "cuda_rows", entry, (grid, 1, 1), (256, 1, 1),
         (room(FEW), room(FEW // 256), *more), 1e3 * ms, PUPKING, 8, note="blocks of 256")
    for row, entry, grid, more, ms in (
        ("naive", "sum_interleaved", FEW // 256, (), 2.059),
        ("sequential", "sum_sequential", FEW // 512, (), 0.646),
        ("shuffle", "sum_shuffle", FEW // 512, (), 0.36),
        ("grid stride", "sum_strided", 128, (FEW,), 0.361),
    )
]  # fmt: skip
SOFTMAX = [
    Case("softmax-4070tis", f"{row}, {m}x{n}", "rtx4070tis", "cuda_rows", entry, (m, 1, 1), (1024, 1, 1),
         (room(m * n), room(m * n), n), us, LEARN + " 04_softmax/README.md", 4, note="blocks of 1024")
    for row, entry, m, n, us in (
        ("naive", "softmax_naive", 8192, 8192, 874.69),
        ("online", "softmax_online", 8192, 8192, 874.85),
        ("naive", "softmax_naive", 1, 128256, 25.6),
        ("online", "softmax_online", 1, 128256, 19.46),
    )
]  # fmt: skip
NORMS = [
    Case("layernorm-a100", f"{how}, rows of {n}", "a100", "cuda_rows", f"norm_{entry}{n}", (4096, 1, 1), (256, 1, 1),
         (room(4096 * n, 2), room(4096 * n, 2), room(n, 2), room(n, 2)), 2 * 2 * 4096 * n / rate / 1e3,
         "github.com/allenai/OLMo issue 258", 8, note="halves, 8 warps a row, as Triton's tutorial 05 has them")
    for how, entry, rates in (
        ("affine", "", {4096: 1129.93, 8192: 1379.71}), ("plain", "plain_", {4096: 1092.27, 8192: 1409.38})
    )
    for n, rate in rates.items()
]  # fmt: skip

# ------------------------------------------------------------ matrix units

SPATTERS = "github.com/spatters/mma-matmul@ea1d41a README.md"
HALVES = (room(N * N, 2), room(N * N, 2), room(N * N), N)
MMA_ADA = [
    Case("mma-4090", row, "rtx4090", "cuda_matrix", entry, (N // tile, N // tile, 1), (256, 1, 1), HALVES, us,
         SPATTERS, 2)
    for row, entry, tile, us in (
        ("1.0 naive", "plain_1", 32, 4680),
        ("1.1 twice the tile", "plain_2", 64, 2400),
        ("2.0 permuted shared", "permuted", 64, 1080),
        ("2.1 registers", "kept", 64, 1030),
        ("3.0 cp.async", "staged", 64, 1000),
        ("3.1 larger tiles", "staged_4", 128, 895),
    )
]  # fmt: skip


def _brains(ladder: str, chip: str, rates: tuple[float, ...]) -> list[Case]:
    steps = (
        ("v1 loads", "loads"), ("v2 cp.async", "copies"), ("v3 padded shared", "padded"),
        ("v4 swizzled shared", "swizzled"), ("v5 ldmatrix.x4", "wider"), ("v6 two stages", "pipelined"),
    )  # fmt: skip
    return [
        Case(ladder, row, chip, "cuda_matrix", entry, (N // 128, N // 128, 1), (128, 1, 1), HALVES,
             FLOPS / rate / 1e6, LEARN + " 02b_matmul_sm80/README.md", 2,
             shared_bytes=65536 if entry == "pipelined" else 0)
        for (row, entry), rate in zip(steps, rates)
    ]  # fmt: skip


MMA_BF16 = [
    *_brains("mma-a100-40", "a100-40", (59.92, 64.94, 166.78, 190.94, 160.42, 220.77)),
    *_brains("mma-5090", "rtx5090", (140.66, 152.91, 160.47, 177.42, 177.6, 177.66)),
]
SONNYLI = "github.com/sonnyli/flash_attention_from_scratch@58b7e33 README.md"


def _attention(ladder: str, row: str, chip: str, entry: str, tile: int, heads: int, keys: int, rate: float,
               source: str, note: str = "") -> Case:  # fmt: skip
    queries = 4096
    arguments = (room(heads * queries * 128, 2), *(room(heads * keys * 128, 2),) * 2, room(heads * queries * 128, 2),
                 queries, keys, 0.0884)  # fmt: skip
    return Case(ladder, row, chip, "cuda_attention", entry, (queries // tile, heads, 1), (128, 1, 1), arguments,
                4 * heads * queries * keys * 128 / rate / 1e6, source, 2, note=note)  # fmt: skip


ATTENTION = [
    *[
        _attention("attention-a100", row, "a100", entry, 64, 64, 4096, rate, SONNYLI,
                   "64 heads in all, tiles of 64 x 64, bf16")
        for row, entry, rate in (
            ("1 base", "rows_64", 29.5), ("2 swizzled", "swizzled_64", 135.3), ("3 K and V early", "ahead_64", 144.6)
        )
    ],
    *[
        _attention("attention-5090", row, "rtx5090", entry, 128, 32, 8192, rate, LEARN + " 07_attention/README.md",
                   "tiles of 128 x 64")
        for row, entry, rate in (
            ("v1", "rows_128", 142.87), ("v2 swizzled", "swizzled_128", 181.11),
            ("v3 two stages", "ahead_128", 189.84), ("v4 ldmatrix.x4", "wider_128", 194.33),
        )
    ],
]  # fmt: skip

# ------------------------------------------------------------ prefix sums, more small launches

ALL = 1 << 30
SCAN = "github.com/yencal/gpu-scan-optimization@4170904 README.md"
TOTALS = tuple(room(ALL // 512**level) for level in range(1, 5))


def _scan_in_several(row: str, entry: str, ms: float) -> Case:
    data = (room(ALL), *TOTALS)
    sizes = [ALL // 512**level for level in range(1, 4)] + [1]
    down = [(entry, (blocks, 1, 1), (512, 1, 1), (data[level], data[level], data[level + 1]))
            for level, blocks in list(enumerate(sizes))[1:3]]  # fmt: skip
    up = [
        ("tiles_add", (sizes[level], 1, 1), (512, 1, 1), (data[level], data[level + 1])) for level in (1, 0)
    ]
    return Case("scan-h100", row, "h100", "cuda_scans", entry, (sizes[0], 1, 1), (512, 1, 1),
                (data[0], data[0], data[1]), 1e3 * ms, SCAN, 8, more=(*down, *up))  # fmt: skip


SCANS = [
    _scan_in_several("several launches, shared", "tiles_shared", 10.72),
    _scan_in_several("several launches, shuffles", "tiles_shuffle", 9.33),
    *[
        Case("scan-h100", f"look-back, {items} a thread", "h100", "cuda_scans", f"look_back_{items}",
             (-(-ALL // (512 * items)), 1, 1), (512, 1, 1), (room(ALL + 8192), room(ALL + 8192), room(ALL // 512, 8),
             room(1)), 1e3 * ms, SCAN, 64, note="a thread's elements lie beside each other")
        for items, ms in ((1, 15.06), (4, 5.29), (8, 4.75), (12, 3.44))
    ],
]  # fmt: skip
SMALL_A100 = [
    Case(ladder, f"{count} elements", "a100", "cuda_streams", "small", (-(-count // 256), 1, 1), (256, 1, 1),
         (room(count, 8), room(count, 8), count), us, f"{BENCHES} gpu-small-kernels/{file}", 16, True, by,
         note="blocks of 256")
    for ladder, by, file, rows in (
        ("small-a100", "queue", "a100_80.txt",
         {4096: 2.621, 15139: 2.662, 60482: 2.959, 241669: 3.665, 965698: 6.578}),
        ("small-a100-graph", "graph", "a100_80_graph.txt",
         {4096: 1.337, 15139: 1.392, 60482: 1.561, 241669: 2.452, 965698: 5.313}),
    )
    for count, us in rows.items()
]  # fmt: skip

# ------------------------------------------------------------ AMD

AMD_EXAMPLES = "github.com/amd/HPCTrainingExamples@aaaa72d4"
WIDE = 8192
TRANSPOSES = [
    Case("transpose-mi210", row, "mi210", "hip_kernels", entry, grid, block,
         (room(WIDE * WIDE, 8), room(WIDE * WIDE, 8), WIDE), us, AMD_EXAMPLES + " HIP/transpose", 8)
    for row, entry, grid, block, us in (
        ("read contiguous", "transpose_read", (256, 256, 1), (32, 32, 1), 4450.2),
        ("write contiguous", "transpose_write", (256, 256, 1), (32, 32, 1), 2901.8),
        ("tiled", "transpose_tiled", (256, 256, 1), (32, 32, 1), 2686.4),
    )
]  # fmt: skip
LONGEST, PART = 32768, 2048
YAX = [
    Case("yax-mi210", row, "mi210", "hip_kernels", entry, (blocks, 1, 1), (threads, 1, 1),
         (room(LONGEST * LONGEST, 8), room(LONGEST, 8), room(LONGEST, 8), room(1 << 20, 8), rows, columns, LONGEST,
         step), 1e3 * ms, AMD_EXAMPLES + " rocprof-compute", sample, times=LONGEST * LONGEST // (rows * columns),
         note="of each row and each thread's rows the emulator ran a part")
    for row, entry, blocks, threads, step, rows, columns, sample, ms in (
        ("4 blocks of 64", "yax_rows", 4, 64, 256, 256, PART, 1, 2911),
        ("2048 blocks of 64", "yax_rows", 512, 64, 32768, 32768, PART, 2, 70),
        ("columns across threads", "yax_columns", 2048, 256, 2048, 2048, LONGEST, 2, 12),
    )
]  # fmt: skip

SMALL_MI210 = [
    Case(ladder, f"{count} elements", "mi210", "hip_kernels", "small", (-(-count // 256), 1, 1), (256, 1, 1),
         (room(count, 8), room(count, 8), count), us, f"{BENCHES} gpu-small-kernels/{file}", 16, True, by,
         note="blocks of 256; the best of several sizes was measured")
    for ladder, by, file, rows in (
        ("small-mi210", "queue", "mi210.txt",
         {4096: 2.048, 15139: 2.106, 65320: 2.287, 241669: 3.574, 965698: 14.241}),
        ("small-mi210-graph", "graph", "mi210_graph.txt",
         {4096: 2.048, 15139: 2.088, 65320: 2.386, 241669: 3.538, 965698: 14.215}),
    )
    for count, us in rows.items()
]  # fmt: skip
MI300X = [
    Case("azure-mi300x", row, "mi300x", "hip_kernels", f"stream_{row}",
         (4 * 304 if row == "dot" else BABEL // 1024, 1, 1), (1024, 1, 1),
         (*ARRAYS, BABEL, 4 * 304) if row == "dot" else ARRAYS, MOVED[row] * 8 * BABEL / rate / 1e3,
         AZURE + "/ND_MI300X_v5_results.md", 8, note="dot: four blocks for each CU" if row == "dot" else "")
    for row, rate in (("copy", 4150), ("mul", 4280), ("add", 4130), ("triad", 4100), ("dot", 4000))
]  # fmt: skip
CUBE, RADIUS = 512, 4
SEISMIC = [
    Case("seismic-mi250x", f"{axis}, {how}", "mi250", "hip_kernels", f"stencil_{axis}",
         (CUBE // wide, CUBE // high, CUBE), (wide, high, 1),
         (room(64 + line * (CUBE + 2 * RADIUS) ** 2),) * 2 + (begin, line, line * (CUBE + 2 * RADIUS), CUBE),
         4 * (2 * CUBE**3 + 2 * RADIUS * CUBE**2) / rate / 1e3,
         "github.com/ROCm/rocm-blogs@c9a603f seismic-stencils/part-2; blocks: " + AMD_EXAMPLES, 16)
    for axis, wide, high, rates in (("x", 256, 1, (956, 990)), ("y", 64, 4, (940, 966)), ("z", 64, 8, (217, 297)))
    for how, begin, line, rate in (("unaligned", 0, CUBE + 2 * RADIUS, rates[0]), ("aligned", 60, 576, rates[1]))
]  # fmt: skip

CASES: tuple[Case, ...] = (
    *A6000, *ADA, *RDNA, *STREAMS, *OCCUPANCY, *WIDTHS, *SUMS, *INTENSITY, *SMALL, *ROW_SUMS, *HISTOGRAMS, *REDUCTIONS,
    *SOFTMAX, *NORMS,
    *TRANSPOSES, *YAX, *MMA_ADA, *MMA_BF16, *ATTENTION, *SCANS, *SMALL_A100, *SMALL_MI210, *MI300X, *SEISMIC,
)  # fmt: skip
