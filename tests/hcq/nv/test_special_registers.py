"""Constant bank 0 against the vendor's assembler: every special register and every address conversion is compiled, the
words that the machine code loads are read off its disassembly, and compared with what a launch writes there.

No GPU is needed to see that a word is missing, or that another number is expected in it.
"""

from __future__ import annotations

import functools
import re
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from hcq.errors import UsageError
from hcq.nv.abi.bank0 import STACK_TOP, ZERO
from hcq.nv.address import LOCAL_WINDOW, SHARED_WINDOW
from hcq.nv.bundle import Bundle
from hcq.nv.chip import CHIPS
from hcq.nv.launch import Launcher
from hcq.nv.link import Linked
from hcq.nv.pushbuffer import place, plan
from tests.hcq.emu.nv.shader.running import needs_nvjitlink
from tests.hcq.nv.test_cubin import tool

CODE_VA, DATA_VA, SM_COUNT = 0x6_4000_0000, 0x6_1000_0000, 114
GRID, BLOCK, STATIC, DYNAMIC = (3, 5, 7), (32, 2, 4), 0x120, 0x300
CGA_STEP = 0xA0  # what SR_CgaSize is multiplied by: code subtracts it from the offsets of some words
VARIABLES = ".const .align 16 .b8 other[64] = {1}; .const .align 16 .b8 table[64] = {2}; .shared .align 16 .b8 sh[%d];"
HEAD = """.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
ld.param.u64 %rd1, [out]; st.shared.u32 [sh], %r8; ld.const.u32 %r7, [other]; st.global.u32 [%rd1], %r7;
"""
PARAMETERS = ".param .u64 out, .param .align 16 .b8 blob[64], .param .u32 n"
WORD = "mov.u32 %r1, {}; st.global.u32 [%rd1], %r1;"
LONG = "mov.u64 %rd2, {}; st.global.u64 [%rd1], %rd2;"
ASKED = "ld.param.u64 %rd3, [blob]; {} %p1, %rd3; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1], %r1;"
LEAD = "ld.param.u64 %rd3, [blob]; {}"


def _registers() -> dict[str, str]:
    vectors = ("tid", "ntid", "ctaid", "nctaid")
    clusters = ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    scalars = (
        "laneid warpid nwarpid smid nsmid lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi "
        "globaltimer_lo globaltimer_hi reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap "
        "reserved_smem_offset_0 reserved_smem_offset_1 total_smem_size dynamic_smem_size aggr_smem_size "
        "cluster_ctarank cluster_nctarank"
    ).split()
    words = [f"{name}.{axis}" for name in (*vectors, *clusters) for axis in "xyz"]
    words += scalars + [f"pm{number}" for number in range(8)] + [f"envreg{number}" for number in range(32)]
    doubles = ["gridid", "globaltimer", "clock64", "current_graph_exec"]
    return {
        **{f"%{name}": WORD.format(f"%{name}") for name in words},
        **{f"%{name}": LONG.format(f"%{name}") for name in doubles},
        "%is_explicit_cluster": "mov.pred %p1, %is_explicit_cluster; @%p1 st.global.u32 [%rd1], 1;",
    }


READS = {
    **_registers(),
    "cvta.param": "cvta.param.u64 %rd2, blob; st.global.u64 [%rd1], %rd2;",
    "cvta.to.param": LEAD.format("cvta.to.param.u64 %rd2, %rd3; ld.param.u64 %rd4, [%rd2];"
    " st.global.u64 [%rd1], %rd4;"),
    "cvta.const": "mov.u64 %rd2, table; cvta.const.u64 %rd2, %rd2; st.global.u64 [%rd1], %rd2;",
    "cvta.shared": "mov.u64 %rd2, sh; cvta.shared.u64 %rd2, %rd2; st.global.u64 [%rd1], %rd2;",
    "cvta.to.shared": LEAD.format("cvta.to.shared.u64 %rd2, %rd3; st.global.u64 [%rd1], %rd2;"),
    "cvta.local": ".local .align 16 .b8 lo[64]; mov.u64 %rd2, lo;"
    " cvta.local.u64 %rd2, %rd2; st.global.u64 [%rd1], %rd2;",
    "cvta.to.local": LEAD.format("cvta.to.local.u64 %rd2, %rd3; st.local.u64 [%rd2], %rd2;"),
    **{
        f"isspacep.{space}": ASKED.format(f"isspacep.{space}")
        for space in ("param", "const", "global", "shared", "local", "shared::cluster")
    },
    "alloca": "ld.param.u32 %r1, [n]; alloca.u32 %r2, %r1; st.local.u32 [%r2], %r1;",
    "stacksave": "stacksave.u32 %r1; st.global.u32 [%rd1], %r1;",
    "vprintf": "{.param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd1; st.param.b64 [b], %rd1;"
    " call.uni (r), vprintf, (a, b);}",
    "malloc": "{.param .b64 a; .param .b64 r; st.param.b64 [a], %rd1; call.uni (r), malloc, (a);"
    " ld.param.b64 %rd2, [r]; st.global.u64 [%rd1], %rd2;}",
    "barrier.cluster": "barrier.cluster.arrive; barrier.cluster.wait;",
    "mapa": LEAD.format("mapa.u64 %rd2, %rd3, 0; st.global.u64 [%rd1], %rd2;"),
    "getctarank": LEAD.format("getctarank.u64 %r2, %rd3; st.global.u32 [%rd1], %r2;"),
    "prefetch.tensormap": "prefetch.param.tensormap [blob];",
    "griddepcontrol": "griddepcontrol.wait; griddepcontrol.launch_dependents;",
    "cp.async.bulk": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sh], [%rd1], 64, [sh+64];",
    "cp.async": "cp.async.ca.shared.global [sh], [%rd1], 16; cp.async.wait_all;",
    "mbarrier": "mbarrier.init.shared.b64 [sh], 1; mbarrier.arrive.shared.b64 %rd2, [sh]; st.global.u64 [%rd1], %rd2;",
    "atom": LEAD.format("atom.add.u32 %r1, [%rd3], 1; atom.shared.cas.b32 %r2, [sh], 1, %r1;"
    " st.global.u32 [%rd1], %r2;"),
    "div": LEAD.format("div.u64 %rd4, %rd1, %rd3; st.global.u64 [%rd1], %rd4;"),
    "createpolicy": "createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;"
    " st.global.L2::cache_hint.u32 [%rd1], 1, %rd2;",
    "texture": "{.reg .f32 %f<4>; tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd1, {1}]; st.global.f32 [%rd1], %f0;}",
    "trap": "trap;",
    "brkpt": "brkpt;",
    "pmevent": "pmevent 1;",
    "nanosleep": "nanosleep.u32 20;",
}  # fmt: skip
FROM_HOPPER = re.compile(
    r"cluster|%aggr_smem|^mapa$|getctarank|tensormap|griddepcontrol|cp\.async\.bulk|reserved_smem_offset_cap$"
)
CALLED = (
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"
    " .extern .func (.param .b64 r) malloc(.param .b64 a);\n"
)


class Loads(NamedTuple):
    """Byte offsets of words. by_cluster: loaded there or CGA_STEP below, as SR_CgaSize says."""

    plain: set[int]
    by_cluster: set[int]

    @property
    def words(self) -> set[int]:
        """All of them, with both places."""
        return self.plain | self.by_cluster | {at - CGA_STEP for at in self.by_cluster}


class Compiled(NamedTuple):
    """A module of one entry for each of READS that the architecture has: its PTX, its cubin, and what each loads."""

    ptx: str
    cubin: bytes
    entries: dict[str, str]
    loads: dict[str, Loads]


def entry_text(name: str, body: str) -> str:
    return f".visible .entry {name}({PARAMETERS}) {{\n{HEAD}{body}\nret;\n}}\n"


@functools.cache
def compiled(arch: str) -> Compiled:
    from hcq.nv.toolchain import nvjitlink

    has_clusters = int(arch.removeprefix("sm_")) >= 90
    wanted = [name for name in READS if has_clusters or not FROM_HOPPER.search(name)]
    entries = {name: f"k{number}" for number, name in enumerate(wanted)}
    head = f".version 8.7\n.target {arch}\n.address_size 64\n{CALLED}{VARIABLES % STATIC}\n"
    ptx = head + "".join(entry_text(entry, READS[name]) for name, entry in entries.items())
    cubin = nvjitlink.link_ptx(ptx, arch)
    return Compiled(ptx, cubin, entries, loaded(cubin, entries))


def loaded(cubin: bytes, entries: dict[str, str]) -> dict[str, Loads]:
    """The byte offsets of words that each entry loads from constant bank 0, as nvdisasm shows them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.cubin")
        path.write_bytes(cubin)
        shown = subprocess.run(
            [tool("nvdisasm"), "-c", path], capture_output=True, text=True, check=True
        ).stdout
    sections = dict(re.findall(r"^//-+ \.text\.(\w+) .*\n((?:(?!//----).*\n)*)", shown, re.MULTILINE))
    return {name: loads_of(sections[entry]) for name, entry in entries.items()}


def loads_of(text: str) -> Loads:
    plain: set[int] = set()
    by_cluster: set[int] = set()
    for line in text.splitlines():
        for index, offset in re.findall(r"\bc\[0x0\]\[(?:(U?R\d+)\+)?(0x[0-9a-f]+|U?RZ)\]", line):
            at = 0 if offset.endswith("RZ") else int(offset, 16)
            is_long = re.search(r"\b(U?LDCU?)\.64\b", line) is not None
            reached = {at, at + 4} if is_long else {at}
            if index and "SR_CgaSize" in text and at < 0x2D0:
                by_cluster |= reached
            else:
                plain |= reached
    return Loads(plain, by_cluster)


def launcher_of(arch: str, name: str) -> Launcher:
    """Raises UsageError for code that calls the device runtime."""
    made = compiled(arch)
    linked = Linked(Bundle(made.cubin, made.ptx.encode()), made.entries[name], CHIPS[arch], name)
    return Launcher(CHIPS[arch], linked.kernel, CODE_VA, SM_COUNT)


def bank_of(launcher: Launcher) -> tuple[int, bytes]:
    """A launch as the GPU gets it: the address and the bytes of its constant bank 0."""
    piece = launcher.dispatch(bytes(launcher.kernel.param_bytes), GRID, BLOCK, DYNAMIC)
    placed = place([piece], plan([piece]), DATA_VA)
    at = placed.data[0] + launcher.qmd_bytes
    return DATA_VA + at, bytes(placed.image[at : at + launcher.bank_bytes])


def halves(*addresses: int) -> tuple[int, ...]:
    return struct.unpack(f"<{2 * len(addresses)}I", struct.pack(f"<{len(addresses)}Q", *addresses))


def meant(arch: str, name: str, launcher: Launcher, bank: int) -> tuple[int, ...] | None:
    """The words that code expects, in order of address; None for what comes from no constant bank."""
    is_first = arch < "sm_9" and arch.startswith("sm_8")
    kernel = launcher.kernel
    begin = bank + kernel.param_base
    shared = STATIC + DYNAMIC + 0x400
    rounded = -(-shared // 256) * 256
    axis = "xyz".find(name[-1])
    one = struct.unpack("<I", struct.pack("<f", 1.0))[0]
    table = {
        "%ntid": (BLOCK[axis],),
        "%nctaid": (GRID[axis],),
        "%nclusterid": (GRID[axis],),
        "%cluster_nctaid": (1,),
        "%clusterid": (1,) if name.endswith(".x") else (one,),
        "%cluster_ctaid": (1,) if name.endswith(".x") else (1, one),
    }
    if name.partition(".")[0] in table:
        return table[name.partition(".")[0]]
    bank3 = next(CODE_VA + offset for number, offset, _ in kernel.banks if number == 3)
    end = rounded if is_first else 0x400
    slot = end - 0x200
    known: dict[str, tuple[int, ...]] = {
        "%nsmid": (SM_COUNT,),
        "%cluster_nctarank": (1,),
        "%gridid": (0, 0),
        "%current_graph_exec": (0, 0),
        "%is_explicit_cluster": (0,),
        "barrier.cluster": (0,),
        "%dynamic_smem_size": (DYNAMIC,),
        "%total_smem_size": (0x400,),  # taken off SR_SMEMSZ
        "%aggr_smem_size": (shared,),
        "%reserved_smem_offset_end": (end,),
        "%reserved_smem_offset_1": (slot,),
        "cvta.param": halves(bank) if is_first else halves(begin),
        "isspacep.param": (*halves(bank), kernel.param_base + kernel.param_bytes)
        if is_first
        else halves(begin, begin + kernel.param_bytes),
        "cvta.const": halves(bank3),
        "isspacep.const": halves(bank3),
        "cvta.local": halves(LOCAL_WINDOW),
    }
    if is_first:
        known |= {"%reserved_smem_offset_begin": (0x400,), "%reserved_smem_offset_0": (0x400,)}
        known |= {"cvta.shared": halves(SHARED_WINDOW)}
    if name.startswith("%envreg"):
        return (0,) if name not in ("%envreg10", "%envreg11") or is_first else None
    return known.get(name)


ALL = list(CHIPS)
# compiling for one takes seconds
OFTEN = [
    arch if arch in ("sm_80", "sm_90") else pytest.param(arch, marks=pytest.mark.thorough) for arch in ALL
]


@needs_nvjitlink
@pytest.mark.parametrize("arch", OFTEN)
def test_no_word_that_machine_code_loads_from_the_bank_is_unknown(arch: str):
    bank0 = CHIPS[arch].bank0
    known = {at for field in bank0.fields.values() for at in range(field.low // 8, field.high // 8, 4)}
    unknown = {
        name: sorted(map(hex, loads.words - known - set(range(bank0.param_base, 0x10000, 4))))
        for name, loads in compiled(arch).loads.items()
    }
    assert {name: words for name, words in unknown.items() if words} == {}
    stack = bank0.fields["stack_pointer"].byte_offset
    assert all(stack in loads.plain for loads in compiled(arch).loads.values())


@needs_nvjitlink
@pytest.mark.parametrize("arch", OFTEN)
def test_every_field_of_the_bank_is_written_or_is_zero_for_a_reason(arch: str):
    launcher = launcher_of(arch, "cvta.const")
    _, data = bank_of(launcher)
    shown = CHIPS[arch].bank0.decode(memoryview(data).cast("I"))
    zero = {name for name, value in shown.values.items() if not value}
    reasoned = {name for name in shown.fields if re.sub(r"(_\d+)?(_low)?$", "", name) in ZERO}
    assert zero == reasoned


@needs_nvjitlink
@pytest.mark.parametrize("arch", OFTEN)
def test_what_code_loads_is_what_the_register_means(arch: str):
    found = compiled(arch)
    bank0 = CHIPS[arch].bank0
    always = set(range(bank0.param_base, 0x10000, 4))
    for name in ("stack_pointer", "global_descriptor"):
        field = bank0.fields[name]
        always |= set(range(field.low // 8, field.high // 8, 4))
    wrong, checked = {}, 0
    for name, loads in found.loads.items():
        try:
            launcher = launcher_of(arch, name)
        except UsageError as error:
            assert "functions of the device runtime" in str(error)
            assert not loads.words - always
            continue
        va, data = bank_of(launcher)
        expected = meant(arch, name, launcher, va)
        offsets = sorted((loads.plain | loads.by_cluster) - always)
        got = tuple(struct.unpack_from("<I", data, at)[0] for at in offsets)
        for at in loads.by_cluster:
            assert data[at : at + 4] == data[at - CGA_STEP : at - CGA_STEP + 4], (name, hex(at))
        if expected is None:
            continue
        checked += 1
        if got != expected:
            wrong[name] = [hex(at) for at in offsets], got, expected
    assert wrong == {}
    assert checked > 45
    stack = bank0.fields["stack_pointer"].byte_offset
    assert struct.unpack_from("<I", data, stack)[0] == STACK_TOP


@needs_nvjitlink
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89"])
def test_more_parameters_than_fit_are_counted_from_the_banks_start(arch: str):
    """Before Hopper, they begin at 0x1a80, and code adds that to the bank's address by itself."""
    from hcq.nv.toolchain import nvjitlink

    body = "cvta.param.u64 %rd2, blob; st.global.u64 [%rd1], %rd2;"
    head = f".version 8.7\n.target {arch}\n.address_size 64\n{VARIABLES % STATIC}\n"
    ptx = head + entry_text("k", body).replace("blob[64]", "blob[4800]")
    linked = Linked(Bundle(nvjitlink.link_ptx(ptx, arch), ptx.encode()), "k", CHIPS[arch], "k")
    va, data = bank_of(Launcher(CHIPS[arch], linked.kernel, CODE_VA, SM_COUNT))
    assert linked.kernel.param_base == 0x1A80
    assert struct.unpack_from("<Q", data, 0x40) == (va,)
    assert struct.unpack_from("<I", data, 0x12C) == (0x1A80 + linked.kernel.param_bytes,)
