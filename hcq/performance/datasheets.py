"""Datasheets: what chips can do at most, as their vendors say.

In       a chip's name ("h100"), or an architecture ("sm_90")
Out      Datasheet: peak rates, sizes of caches, how many warps have room
Next     counters.py (what a kernel asked for), emu/shader/traffic.py (caches of these sizes), roofline.py (times)
Source   each row's `source`. `inferred` names the figures that no vendor gives, and where they come from

Rates are peaks of dense matrices at the boost clock: no kernel is faster, and power usually keeps it slower.

How far the figures are checked: NVIDIA's with texts that quote the white papers by table and page; of mi300x and
mi250 the units, peaks, memory rates and cache sizes, and of rx7900xtx and rx9070xt the units and cache sizes, with
ROCm's documentation, in which AMD gives them; the rates of both with articles that quote AMD's. rx6900xt was not
compared. What is under `inferred` has no vendor's figure: it is measured by others, or follows from another. That a CU
has room for 32 blocks, and that on Radeon LDS gives 128 bytes a clock to each, is inferred, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hcq.errors import UsageError

KIB, MIB = 1 << 10, 1 << 20
CHANNEL_BYTES = 256  # AMD, MI100 and MI200: ROCm Compute Profiler's documentation, "L2 cache (TCC)"


@dataclass(frozen=True)
class Datasheet:
    """One chip. Rates are per second for the whole chip, unless they say otherwise.

    units            SMs or CUs
    schedulers       of a unit: each issues an instruction of a warp in a clock
    vector_flops, matrix_flops     type -> peak
    shared_bytes_per_clock         of a unit: what one pass moves
    l1_bytes         of a unit; on NVIDIA shared memory is taken out of it
    l2_bytes         of one L2; there are `l2s` of them
    l2_channels      parts of an L2 that work side by side, each on pieces of CHANNEL_BYTES in turn; 0: not said
    last_bytes       a cache behind L2, of the whole chip; 0: none
    warps, blocks    that a unit has room for
    registers        of a unit, 32 bits times the lanes of a warp; given out in steps of register_step for each warp
    max_registers    that a warp can have
    shared_per_unit  bytes that the blocks of a unit share; shared_reserved: of those, the system's for each block
    """

    name: str
    arch: str
    title: str
    warp_size: int
    units: int
    clock_hz: float
    schedulers: int
    vector_flops: dict[str, float]
    matrix_flops: dict[str, float]
    dram_bytes_s: float
    l2_bytes_s: float
    last_bytes_s: float
    sector_bytes: int
    l1_bytes: int
    l2_bytes: int
    l2s: int
    last_bytes: int
    warps: int
    blocks: int
    registers: int
    register_step: int
    shared_per_unit: int
    shared_reserved: int
    source: str
    inferred: str = ""
    shared_bytes_per_clock: int = 128
    l2_channels: int = 0
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def issue_s(self) -> float:
        """Instructions of warps in a second."""
        return self.units * self.schedulers * self.clock_hz

    @property
    def shared_passes_s(self) -> float:
        """Visits to shared memory in a second."""
        return self.units * self.clock_hz * self.shared_bytes_per_clock / 128


def _nv(name: str, arch: str, title: str, **rest: object) -> Datasheet:
    """What NVIDIA's generations since Ampere have in common: CUDA C++ Programming Guide, "Technical Specifications"."""
    common = dict(
        warp_size=32, schedulers=4, last_bytes_s=0.0, sector_bytes=32, l2s=1, last_bytes=0, registers=2048,
        register_step=8, shared_reserved=KIB,
    )  # fmt: skip
    return Datasheet(name=name, arch=arch, title=title, **{**common, **rest})  # type: ignore[arg-type]


CHIPS: dict[str, Datasheet] = {
    chip.name: chip
    for chip in (
        _nv(
            "a100", "sm_80", "NVIDIA A100 SXM 80 GB",
            units=108, clock_hz=1.41e9,
            vector_flops={"f32": 19.5e12, "f64": 9.7e12, "f16": 78e12, "bf16": 39e12},
            matrix_flops={"f16": 312e12, "bf16": 312e12, "tf32": 156e12, "i8": 624e12, "f64": 19.5e12},
            dram_bytes_s=2.039e12, l2_bytes_s=5120 * 1.41e9,
            l1_bytes=192 * KIB, l2_bytes=40 * MIB, warps=64, blocks=32, shared_per_unit=164 * KIB,
            source="NVIDIA A100 Tensor Core GPU Architecture (white paper), tables 4 and 5, and page 35: L2 reads "
            "5120 bytes a clock; 80 GB: the product page's 2,039 GB/s",
        ),
        _nv(
            "h100", "sm_90", "NVIDIA H100 SXM",
            units=132, clock_hz=1.83e9,
            vector_flops={"f32": 66.9e12, "f64": 33.5e12, "f16": 133.8e12, "bf16": 133.8e12},
            matrix_flops={
                "f16": 989.4e12, "bf16": 989.4e12, "tf32": 494.7e12, "f8": 1978.9e12, "i8": 1978.9e12, "f64": 66.9e12,
            },
            dram_bytes_s=3.35e12, l2_bytes_s=5120 * 1.83e9,
            l1_bytes=256 * KIB, l2_bytes=50 * MIB, warps=64, blocks=32, shared_per_unit=228 * KIB,
            source="NVIDIA H100 Tensor Core GPU Architecture (white paper), tables 3 and 4; H100's product page, "
            "where tensor cores' figures are of sparse matrices: half of those",
            inferred="L2's rate (5120 bytes a clock, the A100's peak; 4472 were measured on an H800 PCIe: Luo et al., "
            "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv 2402.13499, table V); the clock is "
            "the one that the tensor cores' figures imply",
        ),
        _nv(
            "rtx4090", "sm_89", "NVIDIA GeForce RTX 4090",
            units=128, clock_hz=2.52e9,
            vector_flops={"f32": 82.6e12, "f64": 1.29e12, "f16": 82.6e12, "bf16": 82.6e12},
            matrix_flops={"f16": 165.2e12, "bf16": 165.2e12, "tf32": 82.6e12, "f8": 330.3e12, "i8": 660.6e12,
                          "f64": 1.29e12},
            dram_bytes_s=1.008e12, l2_bytes_s=2048 * 2.52e9,
            l1_bytes=128 * KIB, l2_bytes=72 * MIB, warps=48, blocks=24, shared_per_unit=100 * KIB,
            source="NVIDIA Ada GPU Architecture (white paper 2.1), appendix A: sums in 32 bits, not sparse; Ada "
            "Tuning Guide: 48 warps, 24 blocks, 100 KB of shared memory for an SM",
            inferred="L2's rate (2048 bytes a clock: measured by others, about 5 TB/s)",
        ),
        Datasheet(
            "mi300x", "gfx942", "AMD Instinct MI300X",
            warp_size=64, units=304, clock_hz=2.1e9, schedulers=4,
            vector_flops={"f32": 163.4e12, "f64": 81.7e12, "f16": 163.4e12, "bf16": 163.4e12},
            matrix_flops={
                "f16": 1307.4e12, "bf16": 1307.4e12, "xf32": 653.7e12, "f8": 2614.9e12, "i8": 2614.9e12,
                "f32": 163.4e12, "f64": 163.4e12,
            },
            dram_bytes_s=5.3e12, l2_bytes_s=8 * 2048 * 2.1e9, last_bytes_s=17.2e12,
            sector_bytes=128, l1_bytes=32 * KIB, l2_bytes=4 * MIB, l2s=8, last_bytes=256 * MIB,
            warps=32, blocks=32, registers=2048, register_step=8, shared_per_unit=64 * KIB, shared_reserved=0,
            source="ROCm's documentation, MI300 series microarchitecture: table of peaks for a CU and a clock, 5.3 "
            "TB/s; GPU hardware specifications: units, caches, registers; AMD CDNA 3 Architecture (white paper): "
            "128-byte lines, 2 KB a clock of each XCD's L2, Infinity Cache 17.2 TB/s",
            inferred="the rates of vectors of 16 bits; peaks of vectors of f32 are with packed instructions",
        ),
        Datasheet(
            "mi355x", "gfx950", "AMD Instinct MI355X",
            warp_size=64, units=256, clock_hz=2.4e9, schedulers=4,
            vector_flops={"f32": 157.3e12, "f64": 78.6e12, "f16": 157.3e12, "bf16": 157.3e12},
            matrix_flops={
                "f16": 2516.6e12, "bf16": 2516.6e12, "f8": 5033.2e12, "i8": 5033.2e12, "f4": 10066.3e12,
                "f32": 157.3e12, "f64": 78.6e12,
            },
            dram_bytes_s=8.0e12, l2_bytes_s=8 * 2048 * 2.4e9, last_bytes_s=17.2e12,
            sector_bytes=128, l1_bytes=32 * KIB, l2_bytes=4 * MIB, l2s=8, last_bytes=256 * MIB,
            warps=32, blocks=32, registers=2048, register_step=8, shared_per_unit=160 * KIB, shared_reserved=0,
            shared_bytes_per_clock=256,
            source="AMD's data sheet of the MI355X: units, clock, peaks, 8 TB/s; CDNA4 ISA document, 11.1: LDS of 64 "
            "banks; AMD's talk at ISSCC 2026: 8192 operations of f8 of a unit in a clock",
            inferred="the rates of vectors of 16 bits; L2's and the Infinity Cache's rate as an MI300X has them; f4 is "
            "the peak of floats of four and six bits; peaks of vectors of f32 are with packed instructions",
        ),
        Datasheet(
            "mi250", "gfx90a", "AMD Instinct MI250, one of its two dies",
            warp_size=64, units=104, clock_hz=1.7e9, schedulers=4,
            vector_flops={"f32": 45.26e12, "f64": 22.63e12, "f16": 45.26e12, "bf16": 22.63e12},
            matrix_flops={"f16": 181.0e12, "bf16": 181.0e12, "i8": 181.0e12, "f32": 45.26e12, "f64": 45.26e12},
            dram_bytes_s=1.638e12, l2_bytes_s=4096 * 1.7e9, last_bytes_s=0.0,
            sector_bytes=64, l1_bytes=16 * KIB, l2_bytes=8 * MIB, l2s=1, last_bytes=0,
            warps=32, blocks=32, registers=2048, register_step=8, shared_per_unit=64 * KIB, shared_reserved=0,
            l2_channels=32,
            source="ROCm's documentation, MI250 microarchitecture: table of peaks for a CU and a clock, 104 CUs of a "
            "die at 1.7 GHz, 1.6 TB/s; GPU hardware specifications: caches, registers; 64-byte lines of the L1: "
            "ROCm's documentation of MI200 performance counters; L2's channels: ROCm Compute Profiler's, L2 cache",
            inferred="L2's rate (32 channels of 128 bytes a clock); that a channel has each 32nd piece of 256 bytes, "
            "where AMD says no more than that a hash spreads them; the rates of vectors of 16 bits; peaks of "
            "vectors of f32 are with packed instructions",
        ),
        Datasheet(
            "rx6900xt", "gfx1030", "AMD Radeon RX 6900 XT",
            warp_size=32, units=80, clock_hz=2.25e9, schedulers=2,
            vector_flops={"f32": 23.04e12, "f64": 1.44e12, "f16": 46.08e12}, matrix_flops={},
            dram_bytes_s=0.512e12, l2_bytes_s=2048 * 2.25e9, last_bytes_s=1.94e12,
            sector_bytes=128, l1_bytes=16 * KIB, l2_bytes=4 * MIB, l2s=1, last_bytes=128 * MIB,
            warps=32, blocks=32, registers=2048, register_step=16, shared_per_unit=64 * KIB, shared_reserved=0,
            source="AMD: product page of the RX 6900 XT (80 CUs, boost 2250 MHz, 23.04 and 46.08 TFLOPS, 512 GB/s, 128 "
            "MB of Infinity Cache); ROCm's documentation, GPU hardware specifications: caches, registers; RDNA 2 ISA: "
            "128-byte lines, no matrix instructions",
            inferred="L2's rate (16 channels of 128 bytes a clock), that of Infinity Cache (16 channels of 64 bytes at "
            "1.9 GHz); f64 (a 16th of f32)",
        ),
        Datasheet(
            "rx7900xtx", "gfx1100", "AMD Radeon RX 7900 XTX",
            warp_size=32, units=96, clock_hz=2.5e9, schedulers=2,
            vector_flops={"f32": 61.4e12, "f64": 1.92e12, "f16": 122.8e12, "bf16": 122.8e12},
            matrix_flops={"f16": 122.8e12, "bf16": 122.8e12, "i8": 122.8e12, "i4": 245.6e12},
            dram_bytes_s=0.96e12, l2_bytes_s=3072 * 2.5e9, last_bytes_s=3.5e12,
            sector_bytes=128, l1_bytes=32 * KIB, l2_bytes=6 * MIB, l2s=1, last_bytes=96 * MIB,
            warps=32, blocks=32, registers=3072, register_step=24, shared_per_unit=64 * KIB, shared_reserved=0,
            source="AMD RDNA 3: product page of the RX 7900 XTX (61 and 123 TFLOPS, 960 GB/s, 3500 GB/s with "
            "Infinity Cache); ROCm's documentation, GPU hardware specifications: units, caches, registers; RDNA 3 "
            "ISA: 128-byte lines, dual issue; 512 operations of WMMA on f16, bf16 and iu8 for a CU and a clock, 1024 "
            "on iu4: GPUOpen, How to accelerate AI applications on RDNA 3 using WMMA",
            inferred="L2's rate (3072 bytes a clock); f64 (a 32nd of f32); peaks of vectors need dual issue, "
            "which few kernels reach",
        ),
        Datasheet(
            "rx9070xt", "gfx1201", "AMD Radeon RX 9070 XT",
            warp_size=32, units=64, clock_hz=2.97e9, schedulers=2,
            vector_flops={"f32": 48.66e12, "f64": 0.76e12, "f16": 97.3e12, "bf16": 97.3e12},
            matrix_flops={"f16": 194.6e12, "bf16": 194.6e12, "f8": 389.3e12, "i8": 389.3e12, "i4": 778.6e12},
            dram_bytes_s=0.64e12, l2_bytes_s=2048 * 2.97e9, last_bytes_s=2.33e12,
            sector_bytes=128, l1_bytes=32 * KIB, l2_bytes=8 * MIB, l2s=1, last_bytes=64 * MIB,
            warps=32, blocks=32, registers=3072, register_step=24, shared_per_unit=64 * KIB, shared_reserved=0,
            source="AMD RDNA 4: product page of the RX 9070 XT (64 CUs, 2970 MHz, 48.7 TFLOPS, 640 GB/s); ROCm's "
            "documentation, GPU hardware specifications: caches, registers; 1024 operations of WMMA on f16 and bf16 "
            "for a CU and a clock, 2048 on 8 bits, 4096 on 4, not sparse: GPUOpen, Using the Matrix Cores of AMD "
            "RDNA 4 architecture GPUs",
            inferred="the rates of L2 (2048 bytes a clock) and of the Infinity Cache (the RX 7900 XTX's, by the "
            "width of the memory bus); f64 (a 64th of f32); peaks of vectors need dual issue, which few kernels reach",
        ),
    )
}  # fmt: skip


def _like(name: str, base: str, title: str, source: str, **changed: object) -> None:
    """Another chip of an architecture: what is not said is as on the chip that stands first."""
    CHIPS[name] = replace(CHIPS[base], name=name, title=title, source=source, **changed)  # type: ignore[arg-type]


def _scaled(rates: dict[str, float], factor: float) -> dict[str, float]:
    return {kind: rate * factor for kind, rate in rates.items()}


def _further() -> None:
    """Chips that share an architecture with one above. Their peaks follow from units and clock."""
    h100, ada = CHIPS["h100"], CHIPS["rtx4090"]
    _like("a100-40", "a100", "NVIDIA A100 SXM 40 GB", "product page: 1,555 GB/s", dram_bytes_s=1.555e12)
    pcie = 114 * 1.755 / (132 * 1.83)
    _like(
        "h100-pcie", "h100", "NVIDIA H100 PCIe", "product page: 114 SMs, 2 TB/s", units=114, clock_hz=1.755e9,
        dram_bytes_s=2.039e12, l2_bytes_s=5120 * 1.755e9, vector_flops=_scaled(h100.vector_flops, pcie),
        matrix_flops=_scaled(h100.matrix_flops, pcie),
    )  # fmt: skip
    _like(
        "h200",
        "h100",
        "NVIDIA H200 SXM",
        "product page: 4.8 TB/s",
        dram_bytes_s=4.8e12,
        l2_bytes_s=6144 * 1.83e9,
    )
    _like("gh200", "h100", "NVIDIA GH200, 96 GB of HBM3", "product page: 4 TB/s", dram_bytes_s=4.0e12)
    _like(
        "b200", "h100", "NVIDIA B200", "NVIDIA Blackwell's data sheets (HGX B200): 8 TB/s, 2.25 PFLOPS of f16, "
        "4.5 of f8, not sparse; the resource manager's 148 SMs", arch="sm_100", units=148, clock_hz=1.85e9,
        dram_bytes_s=8.0e12, l2_bytes=126 * MIB, l2_bytes_s=5120 * 1.85e9,
        vector_flops={"f32": 70.1e12, "f64": 35.0e12, "f16": 140.2e12, "bf16": 140.2e12},
        matrix_flops={"f16": 2250e12, "bf16": 2250e12, "tf32": 1125e12, "f8": 4500e12, "i8": 4500e12, "f64": 35.0e12,
                      "f4": 9000e12},
        inferred="units' clock, L2's rate (an H100's bytes a clock)",
    )  # fmt: skip
    ga102 = dict(
        warps=48, blocks=16, l1_bytes=128 * KIB, shared_per_unit=100 * KIB, l2_bytes=6 * MIB, arch="sm_86"
    )

    def of_ga102(
        name: str, title: str, source: str, units: int, clock: float, dram: float, matrix: int, l2: int
    ) -> None:
        flops = units * clock * 256
        _like(
            name, "rtx4090", title, source, units=units, clock_hz=clock, dram_bytes_s=dram, l2_bytes_s=l2 * clock,
            vector_flops={"f32": flops, "f64": flops / 64, "f16": flops, "bf16": flops},
            matrix_flops={"f16": units * clock * matrix, "bf16": units * clock * matrix,
                          "tf32": units * clock * matrix / 2,
                          "i8": units * clock * 2048, "f64": flops / 64},
            inferred="L2's rate: 64 bytes a clock of each of its slices, two for each memory controller of 32 bits",
            **ga102,
        )  # fmt: skip

    white = "NVIDIA Ampere GA102 GPU Architecture (white paper), appendix A"
    of_ga102("rtx3090", "NVIDIA GeForce RTX 3090", white, 82, 1.695e9, 0.936e12, 512, 1536)
    of_ga102("a6000", "NVIDIA RTX A6000", white, 84, 1.8e9, 0.768e12, 1024, 1536)
    of_ga102("a40", "NVIDIA A40", "product page: 696 GB/s; " + white, 84, 1.74e9, 0.696e12, 1024, 1536)
    of_ga102(
        "rtx3050m",
        "NVIDIA GeForce RTX 3050 Laptop",
        "product page: 16 SMs, 192 GB/s",
        16,
        1.5e9,
        0.192e12,
        512,
        512,
    )
    CHIPS["rtx3050m"] = replace(CHIPS["rtx3050m"], l2_bytes=2 * MIB)
    part = 66 * 2.61 / (128 * 2.52)
    _like(
        "rtx4070tis", "rtx4090", "NVIDIA GeForce RTX 4070 Ti SUPER", "product page: 66 SMs, 2.61 GHz, 672 GB/s",
        units=66, clock_hz=2.61e9, dram_bytes_s=0.672e12, l2_bytes=48 * MIB, l2_bytes_s=1536 * 2.61e9,
        vector_flops=_scaled(ada.vector_flops, part), matrix_flops=_scaled(ada.matrix_flops, part),
    )  # fmt: skip
    _like(
        "rtx5090", "rtx4090", "NVIDIA GeForce RTX 5090",
        "NVIDIA RTX Blackwell GPU Architecture (white paper), appendix: 170 SMs, 104.8 TFLOPS, 209.5 of f16 with sums "
        "in 32 bits, 1,792 GB/s, 96 MB of L2",
        arch="sm_120", units=170, clock_hz=2.407e9, dram_bytes_s=1.792e12, l2_bytes=96 * MIB, l2_bytes_s=2048 * 2.407e9,
        vector_flops={"f32": 104.8e12, "f64": 1.64e12, "f16": 104.8e12, "bf16": 104.8e12},
        matrix_flops={"f16": 209.5e12, "bf16": 209.5e12, "tf32": 104.8e12, "f8": 419e12, "i8": 838e12, "f64": 1.64e12,
                      "f4": 1676e12},
        inferred="L2's rate: an RTX 4090's bytes a clock",
    )  # fmt: skip
    _like("mi210", "mi250", "AMD Instinct MI210", "ROCm's documentation: one die of an MI250, 1.6 TB/s")
    gre = 80 * 2.245 / (96 * 2.5)
    radeon = CHIPS["rx7900xtx"]
    _like(
        "rx7900gre", "rx7900xtx", "AMD Radeon RX 7900 GRE", "product page: 80 CUs, 2245 MHz, 576 GB/s, 64 MB of "
        "Infinity Cache", units=80, clock_hz=2.245e9, dram_bytes_s=0.576e12, last_bytes=64 * MIB,
        vector_flops=_scaled(radeon.vector_flops, gre), matrix_flops=_scaled(radeon.matrix_flops, gre),
    )  # fmt: skip
    apple = (
        ("m1", "apple7", 8, 1.278e9, 68e9),
        ("m2", "apple8", 10, 1.398e9, 100e9),
        ("m3", "apple9", 10, 1.38e9, 100e9),
        ("m4", "apple9", 10, 1.47e9, 120e9),
    )
    for name, arch, cores, clock, dram in apple:
        flops = cores * clock * 256
        CHIPS[name] = Datasheet(
            name, arch, f"Apple {name.upper()}, {cores} GPU cores", 32, cores, clock, 4,
            {"f32": flops, "f16": flops}, {"f16": flops, "f32": flops}, dram, cores * 64 * clock, 0.0, 64, 8 * KIB,
            8 * MIB, 1, 0, 32, 32, 1664, 8, 32 * KIB, 0,
            source="Apple's specifications of its computers: GPU cores and memory bandwidth",
            inferred="clocks, caches and room, which Apple does not publish; 128 multiply-adds of a core in a clock "
            "follow from the TFLOPS that Apple has named for M1 (2.6)",
        )  # fmt: skip


_further()

# architectures without a row: they are counted with the caches and the room of the nearest one
NEAREST = {"gfx1101": "rx7900xtx", "gfx1102": "rx7900xtx", "gfx1151": "rx7900xtx", "gfx1200": "rx9070xt"}


def chip(name: str) -> Datasheet:
    """By name. Raises UsageError that lists the names."""
    found = CHIPS.get(name.lower())
    if found is None:
        raise UsageError(f"there is no datasheet of {name!r}. There are those of {', '.join(CHIPS)}.")
    return found


def for_arch(arch: str) -> Datasheet | None:
    """Of an architecture, or the nearest one that has a row; None for one that has neither.

    >>> for_arch("sm_90").name
    'h100'
    """
    own = next((one for one in CHIPS.values() if one.arch == arch), None)
    return own or CHIPS.get(NEAREST.get(arch, ""))


def occupancy(
    chip: Datasheet, registers: int, shared_bytes: int, threads: int, warp_size: int
) -> tuple[float, str, int]:
    """(share of a unit's room for warps that a kernel fills, what there is too little of or "", blocks of a unit).

    registers   of a thread
    warp_size   of this kernel: a wave of 64 lanes takes twice the registers on a GPU whose waves have 32
    Source      CUDA occupancy calculator; "Occupancy explained" on AMD's GPUOpen: registers are given to warps in steps
    """
    warps = -(-max(threads, 1) // warp_size)
    per_warp = -(-max(registers, 1) // chip.register_step) * chip.register_step
    per_warp = per_warp * warp_size // chip.warp_size
    own = chip.shared_reserved if shared_bytes else 0
    # registers belong to a scheduler's part of the unit, which has so many whole warps
    by_registers = chip.registers // chip.schedulers // per_warp * chip.schedulers
    limits = {
        "warps": chip.warps // warps,
        "blocks": chip.blocks,
        "registers": by_registers // warps,
        "shared memory": chip.shared_per_unit // (shared_bytes + own) if shared_bytes else chip.blocks,
    }
    blocks = max(1, min(limits.values()))
    share = min(1.0, blocks * warps / chip.warps)
    tight = min(limits, key=lambda what: limits[what])
    return share, "" if share >= 0.999 else tight, blocks
