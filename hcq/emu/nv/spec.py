"""What an emulated NVIDIA GPU is: what HCQ_EMULATE says of it, and the figures of each architecture.

In       a word such as "nv:sm_90:seed=7"
Out      Spec: a chip with its classes and sizes, and how it is emulated
Next     rm_controls.py (who answers with these figures), card.py (who works as they say), hcq/nv/abi/classes.py
Source   figures of small parts of each generation, which decide what a driver allocates; shared memory: CUDA C++
         Programming Guide, "Technical Specifications per Compute Capability"; where parameters are in constant bank 0:
         EIATTR_PARAM_CBANK of cubins. The driver has figures of its own (hcq/nv/chip.py): each tests the other

    nv:sm_90                 one GPU of that architecture, a small one; the same word twice makes two
    nv:h100                  a part that is sold, with all its SMs: one of PARTS
    nv:sm_90:seed=7          it works asynchronously: launches and copies that nothing orders run late, in random order
    nv:sm_90:private         the host cannot map video memory (no BAR1)
    nv:sm_90:driver=570.86   the kernel driver has that version, 550 to 610; one driver serves all GPUs
    nv:sm_90:caches          what kernels have read stays as it was until it is invalidated
    nv:sm_90:drift=50        its clock gains 50 ns in a millisecond of the host's
    nv:sm_90:late-get        GP_GET is written when a channel is stopped, and not before: dev_pbdma.ref,
                             CONFIG_USERD_WRITEBACK
    nv:sm_90:steps=100000    a kernel that executes more instructions than this hangs
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from hcq.emu.emulation_options import flag, number, parse_word, ppm
from hcq.errors import UsageError
from hcq.nv.abi.classes import ARCHITECTURES, ClassId, Engines

DEFAULT_VERSION = "580.142"
STEP_LIMIT = 20_000_000
MAX_GPUS = 32
# NV2080_ENGINE_TYPE: compute; the first ten copy engines; those from the eleventh on
ENGINE_GR0, ENGINE_COPY0, ENGINE_COPY10 = 1, 9, 52
COPY_GRAPHICS_ENGINES = 2  # copy engines 0 and 1 share the graphics runlist: NV_CE_GRCE_ALLOWED_LCE_MASK
VIDEO_MEMORY_BYTES = 16 << 30  # only what is touched takes memory


class Part(NamedTuple):
    """How many units a GPU has. tpcs_per_gpc: of the design. tpcs: of each GPC that works; of those that do not, none.

    Which TPCs of a design are off differs by piece: here the first ones of a GPC.
    """

    name: str
    tpcs_per_gpc: int
    tpcs: tuple[int, ...]

    @property
    def masks(self) -> list[int]:
        """Which TPCs each GPC has."""
        return [((1 << count) - 1) << self.tpcs_per_gpc - count for count in self.tpcs]


SMALL = Part("", 2, (2, 1))  # one TPC is not there, as on parts that are sold


@dataclass(frozen=True)
class Chip:
    """What one architecture is. `architecture` and `implementation` are MC_GET_ARCH_INFO's."""

    arch: str
    name: str
    architecture: int
    implementation: int
    warps_per_sm: int
    carveouts_kib: tuple[int, ...]
    max_shared_bytes: int  # of a block, with the part that the system reserves
    param_offset: int  # of a kernel's parameters in constant bank 0
    large_param_offset: int  # the same when they exceed LARGE_PARAM_BYTES
    copy_engines: int
    context_buffers: tuple[tuple[int, int], ...]  # (bytes, alignment), the largest alignment first
    first_release: int = 0  # of the kernel driver that knows it: resource_list.h, uvm_hal.c of each branch
    part: Part = SMALL

    @property
    def tpcs(self) -> int:
        """Of the design: local memory is laid out for those that a part lacks, too."""
        return self.part.tpcs_per_gpc * len(self.part.tpcs)

    @property
    def context_bytes(self) -> int:
        """What GR_GET_CTX_BUFFER_SIZE says: all buffers, and once the alignment of each run of equal ones."""
        total = before = 0
        for size, alignment in self.context_buffers:
            total += alignment if alignment != before else 0
            total += -(-size // alignment) * alignment
            before = alignment
        return total

    @property
    def highest_channel_va(self) -> int:
        """Context buffers lie below it: max_channel_va of uvm_ampere.c, uvm_ada.c, uvm_hopper.c, uvm_blackwell.c."""
        return 1 << 57 if self.host_address_bits == 57 else 1 << 40

    @property
    def engines(self) -> Engines:
        """The classes that GPUs of the architecture have."""
        return ARCHITECTURES[self.arch]

    @property
    def sm_version(self) -> int:
        """GR_INFO's: major and minor as 0x900; the consumer Blackwells, sm_120, count on from the others."""
        if self.arch == "sm_120":
            return 0xA04
        number = int(self.arch.removeprefix("sm_"))
        return number // 10 << 8 | number % 10

    @property
    def sass_version(self) -> int:
        """Of its launch descriptions: major and minor, four bits each."""
        return self.sm_version >> 4 & 0xF0 | self.sm_version & 0xF

    @property
    def host_address_bits(self) -> int:
        """How wide the addresses of host semaphores are."""
        return 40 if self.engines.gpfifo == ClassId.AMPERE_CHANNEL_GPFIFO_A else 57

    @property
    def has_shared_window_of_4_gib(self) -> bool:
        """Hopper and later take only the upper half of the shared window's address."""
        return self.host_address_bits == 57

    def param_offset_of(self, param_bytes: int) -> int:
        """Where so many bytes of parameters are in constant bank 0."""
        return self.large_param_offset if param_bytes > LARGE_PARAM_BYTES else self.param_offset

    def classes(self) -> list[int]:
        """What the class list says: every class that objects can be allocated with."""
        engines = self.engines
        channels = [
            each
            for each in sorted({e.gpfifo for e in ARCHITECTURES.values()})
            if each <= engines.gpfifo
            and (each != ClassId.BLACKWELL_CHANNEL_GPFIFO_B or self.arch == "sm_120")
        ]
        windows = [ClassId.TURING_USERMODE_A, ClassId.AMPERE_USERMODE_A]
        if engines.usermode not in windows:
            windows.append(engines.usermode)
        always = [
            ClassId.NV01_MEMORY_SYSTEM,
            ClassId.NV01_MEMORY_LOCAL_USER,
            ClassId.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
            NV01_MEMORY_VIRTUAL,
            ClassId.NV01_DEVICE_0,
            ClassId.NV20_SUBDEVICE_0,
            ClassId.GT200_DEBUGGER,
            ClassId.FERMI_CONTEXT_SHARE_A,
            ClassId.FERMI_VASPACE_A,
            ClassId.KEPLER_CHANNEL_GROUP_A,
        ]
        return sorted({*always, *channels, *windows, engines.compute, engines.copy})


LARGE_PARAM_BYTES = 0x1100
NV01_MEMORY_VIRTUAL = 0x70
SMS_PER_TPC = 2  # the design's, as GPCs and TPCs: LITTER values
# inferred: how large real ones are is nowhere written down, but they grow with the number of TPCs
_SMALL_CONTEXT = ((10 << 20, 2 << 20), (5 << 20, 2 << 20), (640 << 10, 64 << 10))
_LARGE_CONTEXT = ((61 << 20, 2 << 20), (22 << 20, 2 << 20), (3 << 20, 64 << 10))
_LARGE = (0, 8, 16, 32, 64, 100, 132, 164)
_SMALL = (0, 8, 16, 32, 64, 100)
_LARGEST = (*_LARGE, 196, 228)
CHIPS = {
    chip.arch: chip
    for chip in (
        Chip("sm_80", "emulated GA100", 0x170, 0, 64, _LARGE, 167936, 0x160, 0x1A80, 10, _SMALL_CONTEXT),
        Chip("sm_86", "emulated GA102", 0x170, 2, 48, _SMALL, 102400, 0x160, 0x1A80, 5, _SMALL_CONTEXT),
        Chip("sm_89", "emulated AD102", 0x190, 2, 48, _SMALL, 102400, 0x160, 0x1A80, 5, _SMALL_CONTEXT),
        Chip("sm_90", "emulated GH100", 0x180, 0, 64, _LARGEST, 233472, 0x210, 0x210, 10, _LARGE_CONTEXT),
        Chip(
            "sm_100", "emulated GB100", 0x1A0, 0, 64, _LARGEST, 233472, 0x380, 0x380, 20, _LARGE_CONTEXT, 560
        ),
        Chip("sm_120", "emulated GB202", 0x1B0, 2, 48, _SMALL, 102400, 0x380, 0x380, 8, _SMALL_CONTEXT, 570),
    )
}


# whole parts: GPCs, TPCs and SMs by NVIDIA's architecture white papers; how TPCs are spread over GPCs is inferred
PARTS = {
    "a100": ("sm_80", Part("A100", 8, (8, 8, 8, 8, 8, 7, 7))),  # 108 SMs
    "rtx4090": ("sm_89", Part("RTX 4090", 6, (6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5))),  # 128
    "h100": ("sm_90", Part("H100", 9, (9, 9, 8, 8, 8, 8, 8, 8))),  # 132
    "h200": ("sm_90", Part("H200", 9, (9, 9, 8, 8, 8, 8, 8, 8))),
    "b200": ("sm_100", Part("B200", 10, (10, 10, 9, 9, 9, 9, 9, 9))),  # 148, of two dies
    "rtx5090": ("sm_120", Part("RTX 5090", 8, (8, 8, 8, 8, 8, 8, 8, 8, 7, 7, 7))),  # 170
}
OF_PARTS = {
    name: replace(CHIPS[arch], name=f"emulated {part.name}", part=part)
    for name, (arch, part) in PARTS.items()
}


@dataclass(frozen=True)
class Spec:
    """One emulated GPU. seed: work asynchronously, in an order drawn from it. drift_ppm: of its clock.

    is_get_late  GP_GET is written when a channel is stopped alone
    """

    chip: Chip
    seed: int | None = None
    is_video_memory_mappable: bool = True
    version: str | None = None
    step_limit: int = STEP_LIMIT
    has_caches: bool = False
    drift_ppm: int = 0
    is_get_late: bool = False


def parse(word: str) -> Spec:
    """A word such as "nv:sm_90:seed=7". Raises UsageError naming what is wrong with it."""
    chip, options = parse_word(
        word,
        CHIPS | OF_PARTS,
        {
            "seed": number,
            "private": flag,
            "caches": flag,
            "late-get": flag,
            "driver": lambda text: text if re.fullmatch(r"\d{3}(\.\d+){1,2}", text) else None,
            "steps": lambda text: number(text) or None,
            "drift": ppm,
        },
        "seed=NUMBER (asynchronous), private (the host cannot map video memory), caches (shows missing "
        "invalidations), late-get (GP_GET is written when a channel stops), driver=580.142 (another release), "
        "steps=NUMBER (of a hung kernel), drift=PPM (of its clock)",
    )
    return Spec(
        chip,
        options.get("seed"),
        "private" not in options,
        options.get("driver"),
        options.get("steps", STEP_LIMIT),
        "caches" in options,
        options.get("drift", 0),
        "late-get" in options,
    )


def parse_all(words: list[str]) -> list[Spec]:
    """All GPUs. Raises UsageError when there are too many, or when they ask for different drivers."""
    specs = [parse(word) for word in words]
    if len(specs) > MAX_GPUS:
        raise UsageError(f"HCQ_EMULATE asks for {len(specs)} NVIDIA GPUs; {MAX_GPUS} at most.")
    versions = {spec.version for spec in specs if spec.version}
    if len(versions) > 1:
        raise UsageError(
            f"HCQ_EMULATE asks for the drivers {' and '.join(sorted(versions))}; there is only one."
        )
    version = next(iter(versions), DEFAULT_VERSION)
    for chip in {spec.chip for spec in specs}:
        if int(version.partition(".")[0]) < chip.first_release:
            raise UsageError(
                f"HCQ_EMULATE asks for {chip.arch} with driver {version}, which does not know such GPUs: "
                f"{chip.first_release} is the first that does."
            )
    return specs
