"""What an emulated AMD GPU is: what HCQ_EMULATE says of it, and the figures of each architecture.

In       a word such as "amd:gfx1100:seed=7"
Out      Spec: a chip, and how it is emulated
Next     kfd_topology.py (what sysfs says of it), gpu.py (who works as it says), ../nv/spec.py (the sister)
Source   gfx_target_version: kfd_topology.c; the unit of scratch memory and the numbers of registers: headers of
         gc_9_4_3, gc_10_3_0 and gc_11_0_0; the count of a copy: sdma_v4_4_2_buffer_funcs, sdma_v5_2_buffer_funcs,
         sdma_v7_0_buffer_funcs of amdgpu

The figures are derived here, and not taken from the driver's own (hcq/amd/chip.py), so that each tests the other.

    amd:gfx1100              one GPU of that architecture; the same word twice makes two
    amd:gfx1100:seed=7       it works asynchronously: queues and what nothing orders run in random order
    amd:gfx1100:private      the host sees none of its memory (no large BAR)
    amd:gfx1100:caches       what is not acquired is old, what is not released is hidden
    amd:gfx1100:cu=8         so many compute units, of each XCC; without it as many as such a GPU has
    amd:mi300x               a part that is sold, with all its XCCs and compute units: one of MODELS
    amd:gfx942:mi300x        the same; so amd:gfx950:mi355x
    amd:gfx1100:drift=-50    its clock loses 50 ns in a millisecond of the host's
    amd:gfx1100:kfd=1.14     the kernel driver's interface: what it knows, and how strict it is, differs (1.11 to 1.19)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hcq.amd.abi import sdma
from hcq.amd.abi.registers import Register
from hcq.emu.emulation_options import flag, number, parse_word, ppm
from hcq.errors import UsageError

ARCHITECTURES = (
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1151",
    "gfx1200",
    "gfx1201",
)
LDS_BYTES, LDS_BYTES_GFX950 = 64 << 10, 160 << 10
MAX_BLOCK = 1024  # work-items of a workgroup
MIN_UNITS, MAX_UNITS = 2, 128
# minor versions of the KFD's interface, all of 1: Linux 6.1 has 11, 6.12 has 17, the newest that we know 19
OLDEST_KFD, USUAL_KFD, NEWEST_KFD = 11, 17, 19


class Size(NamedTuple):
    """How large the GPUs of an architecture are; figures of one XCC."""

    units: int
    engines: int
    arrays: int  # of one engine
    device_id: int  # of PCI


# AMD's data sheets; device ids: pci.ids, and for CDNA the rule by which AMD's operator for Kubernetes names GPUs
# (ROCm/gpu-operator, gpu-nfd-default-rule.yaml: 75a0 is an MI350X, 75a3 an MI355X)
SIZES = {
    "gfx90a": Size(104, 8, 1, 0x740C),
    "gfx942": Size(38, 4, 1, 0x74A1),
    "gfx950": Size(32, 4, 1, 0x75A0),
    "gfx1030": Size(80, 4, 2, 0x73BF),
    "gfx1100": Size(96, 6, 2, 0x744C),
    "gfx1101": Size(60, 3, 2, 0x747E),
    "gfx1102": Size(32, 2, 2, 0x7480),
    "gfx1151": Size(40, 2, 2, 0x1586),
    "gfx1200": Size(32, 2, 2, 0x7590),
    "gfx1201": Size(64, 4, 2, 0x7550),
}


@dataclass(frozen=True)
class Chip:
    """One architecture. The last two characters of its name are the minor version and the stepping.

    xccs   how many dies share one queue
    model  the part that is sold, of MODELS; empty: as is usual of the architecture
    """

    arch: str
    xccs: int = 1
    model: str = ""

    @property
    def size(self) -> Size:
        """How large its GPUs are."""
        return MODELS[self.model].size if self.model else SIZES[self.arch]

    @property
    def family(self) -> int:
        """The generation of its graphics: 9, 10, 11, 12."""
        return int(self.arch[3:-2])

    @property
    def gfx_target_version(self) -> int:
        """The architecture as the topology's properties have it: gfx90a -> 90010."""
        return 10000 * self.family + 100 * int(self.arch[-2], 16) + int(self.arch[-1], 16)

    @property
    def rsrc3(self) -> int:
        """The number of COMPUTE_PGM_RSRC3."""
        return Register.COMPUTE_PGM_RSRC3_GFX9 if self.family == 9 else Register.COMPUTE_PGM_RSRC3

    @property
    def has_architected_scratch(self) -> bool:
        """Whether waves find scratch memory by themselves; on gfx90a and gfx10 scalar registers hold its address."""
        return self.arch != "gfx90a" and self.family != 10

    @property
    def needs_privilege(self) -> bool:
        """Whether only privileged waves are restored whole: kfd_dbg_has_cwsr_workaround, NeedCwsrWA of kfdtest."""
        return self.arch in ("gfx1100", "gfx1101", "gfx1102")

    @property
    def wave_bytes_unit(self) -> int:
        """COMPUTE_TMPRING_SIZE.WAVESIZE counts 256 words on gfx9 and gfx10, 64 on later ones."""
        return 4 * (256 if self.family <= 10 else 64)

    @property
    def lds_bytes(self) -> int:
        """The LDS of a workgroup, at most."""
        return LDS_BYTES_GFX950 if self.arch == "gfx950" else LDS_BYTES

    @property
    def lds_granule(self) -> int:
        """What one of COMPUTE_PGM_RSRC2.LDS_SIZE stands for, in bytes."""
        return 1280 if self.arch == "gfx950" else 512

    @property
    def copies(self) -> sdma.Version:
        """The version of SDMA packets that its copy engine reads."""
        return {9: sdma.V4, 10: sdma.V6, 11: sdma.V6, 12: sdma.V7}[self.family]

    @property
    def copy_bytes(self) -> int:
        """The most that one copy packet moves: its count has 30 bits, that of SDMA 5 has 22.

        The kernel driver sends gfx942 4 MiB at most; AMD's runtime sent it 24 MB in one packet.
        """
        return 1 << (22 if self.family == 10 else 30)


class Model(NamedTuple):
    """A part that is sold."""

    arch: str
    xccs: int
    size: Size


USUAL_XCCS = 4  # of gfx942 and gfx950: half of a part is quicker to emulate
MODELS = {
    "mi210": Model("gfx90a", 1, Size(104, 8, 1, 0x740F)),
    "mi250": Model("gfx90a", 1, Size(104, 8, 1, 0x740C)),  # one of its two dies, which are a GPU each
    "mi300x": Model("gfx942", 8, Size(38, 4, 1, 0x74A1)),
    "mi325x": Model("gfx942", 8, Size(38, 4, 1, 0x74A5)),
    "mi350x": Model("gfx950", 8, Size(32, 4, 1, 0x75A0)),
    "mi355x": Model("gfx950", 8, Size(32, 4, 1, 0x75A3)),
    "rx6900xt": Model("gfx1030", 1, SIZES["gfx1030"]),
    "rx7900xtx": Model("gfx1100", 1, SIZES["gfx1100"]),
    "rx9070xt": Model("gfx1201", 1, SIZES["gfx1201"]),
}
CHIPS = {arch: Chip(arch, USUAL_XCCS if arch in ("gfx942", "gfx950") else 1) for arch in ARCHITECTURES}
OF_MODELS = {name: Chip(model.arch, model.xccs, name) for name, model in MODELS.items()}
WHOLE = {"mi300x": "gfx942", "mi355x": "gfx950"}  # as an option of the architecture, too


@dataclass(frozen=True)
class Spec:
    """One emulated GPU, as HCQ_EMULATE asks for it.

    seed         work asynchronously, in an order drawn from it
    has_caches   what is not acquired is old, what is not released is hidden
    units        compute units of each XCC; 0: as many as such a GPU has
    kfd_minor    the minor version of the kernel driver's interface
    drift_ppm    how much faster than the host's its clock goes, parts per million
    """

    chip: Chip
    seed: int | None = None
    is_vram_public: bool = True
    has_caches: bool = False
    units: int = 0
    kfd_minor: int = USUAL_KFD
    drift_ppm: int = 0

    @property
    def size(self) -> Size:
        """How large it is: with fewer compute units it also has fewer engines, when some would have none."""
        full = self.chip.size
        units = self.units or full.units
        return full._replace(units=units, engines=max(1, min(full.engines, units // (2 * full.arrays))))


def parse(word: str) -> Spec:
    """A word such as "amd:gfx1100:seed=7". Raises UsageError naming what is wrong with it."""
    chip, options = parse_word(
        word,
        CHIPS | OF_MODELS,
        {
            "seed": number,
            "private": flag,
            "caches": flag,
            "cu": units,
            "kfd": kfd_minor,
            "drift": ppm,
            **dict.fromkeys(WHOLE, flag),
        },
        "seed=NUMBER (asynchronous), private (no large BAR), caches (what is not acquired is old), "
        f"cu=NUMBER (compute units of each XCC: even, {MIN_UNITS} to {MAX_UNITS}), "
        "mi300x and mi355x (a whole one: gfx942 and gfx950 with 8 XCCs), drift=PPM (of its clock), "
        f"kfd=1.NUMBER (the kernel driver's interface, 1.{OLDEST_KFD} to 1.{NEWEST_KFD})",
    )
    for name, arch in WHOLE.items():
        if name in options:
            if chip.arch != arch:
                raise UsageError(f"HCQ_EMULATE={word}: an {name.upper()} is a {arch}, no {chip.arch}.")
            chip = OF_MODELS[name]
    return Spec(
        chip,
        options.get("seed"),
        "private" not in options,
        "caches" in options,
        options.get("cu", 0),
        options.get("kfd", USUAL_KFD),
        options.get("drift", 0),
    )


def units(text: str) -> int | None:
    """A number of compute units; None when there is no such GPU."""
    count = number(text)
    return count if count is not None and MIN_UNITS <= count <= MAX_UNITS and count % 2 == 0 else None


def kfd_minor(text: str) -> int | None:
    """The minor part of a version such as 1.14; None when it is none that is emulated."""
    major, _, minor = text.partition(".")
    found = number(minor) if major == "1" else None
    return found if found is not None and OLDEST_KFD <= found <= NEWEST_KFD else None
