"""HCQ_SANITIZE=race on emulated GPUs: every planted race is found, and none in the twins that have none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import hcq
from hcq import Device
from hcq.config import Config
from hcq.emu.port import port_for
from hcq.observe.sanitizer import Sanitizer
from hcq.rules.rule import Finding
from tests.hcq.gpu.racing_kernels import CASES, THREADS, Step, llvm_ir, ptx

pytestmark = pytest.mark.own_devices
LOOKS = {**os.environ, "HCQ_SANITIZE": "race"}
MACHINES = ["amd:gfx1100", "amd:gfx942", "nv:sm_90"]


@pytest.fixture(params=MACHINES)
def gpu(request: pytest.FixtureRequest) -> Iterator[Device]:
    made = opened(request.param, LOOKS)
    yield made
    made.close()


def opened(word: str, environment: dict[str, str]) -> Device:
    """An emulated GPU with the switches of an environment."""
    from hcq.amd.device import AmdDevice
    from hcq.nv.device import NvDevice

    kind = AmdDevice if word.startswith("amd") else NvDevice
    return kind(word.partition(":")[0].upper(), port_for([word]), Config.read(environment))


def image(gpu: Device, steps: tuple[Step, ...]) -> bytes:
    """A kernel of these steps for a GPU."""
    if not gpu.arch.startswith("gfx"):
        return ptx(steps)
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=gpu.arch)
    made: bytes = target.emit_object(llvm.parse_assembly(llvm_ir(steps)))
    return made


def found_in(gpu: Device, steps: tuple[Step, ...], blocks: int = 3) -> list[Finding]:
    """What is said of a kernel of these steps."""
    before = len(Sanitizer.findings)
    kernel = gpu.load(image(gpu, steps), "kernel")
    out = gpu.alloc(4 * THREADS * blocks)
    gpu.run(kernel, [out], grid=(blocks, 1, 1), block=(THREADS, 1, 1))
    return Sanitizer.findings[before:]


def test_each_planted_race_is_found_and_no_twin_has_one(gpu: Device) -> None:
    if gpu.arch == "gfx942":  # waves of 64 threads: those of a half are ordered by the order of instructions
        cases = {name: case for name, case in CASES.items() if name != "one warp writes the next one's"}
    else:
        cases = CASES
    for name, case in cases.items():
        found = {finding.rule for finding in found_in(gpu, case.wrong)}
        assert "shared-race" in found and found <= {"shared-race", "lane-race"}, name
        assert found_in(gpu, case.right) == [], name


def test_a_finding_names_both_instructions_a_thread_of_each_and_the_place(gpu: Device) -> None:
    (finding,) = found_in(gpu, CASES["no barrier between writing a tile and reading it"].wrong)
    assert finding.kernel == "kernel" and finding.level == "warning"
    store, load = (
        ("ds_(store|write)", "ds_(load|read)")
        if gpu.arch.startswith("gfx")
        else (r"st\.shared", r"ld\.shared")
    )
    assert re.search(
        rf"byte \d+ of shared memory: .*writes it by '{store}.*reads it by '{load}", finding.what
    )
    assert finding.what.count("(0, 0, 0)") >= 2 and "no barrier between" in finding.what


def test_what_comes_in_every_block_and_launch_is_said_once(gpu: Device) -> None:
    kernel = gpu.load(image(gpu, CASES["all write one place"].wrong), "kernel")
    out, before = gpu.alloc(20 * THREADS), len(Sanitizer.findings)
    for _ in range(3):
        gpu.run(kernel, [out], grid=(5, 1, 1), block=(THREADS, 1, 1))
    found = Sanitizer.findings[before:]
    # threads of one warp that write one place race, too, where they are not in lock step
    assert [one.rule for one in found] == ["shared-race", "lane-race"][
        : 1 if gpu.arch.startswith("gfx") else 2
    ]
    assert all("times more" in one.what for one in found)


@pytest.mark.parametrize("word", MACHINES)
def test_without_the_switch_nothing_is_looked_at(word: str) -> None:
    gpu = opened(word, {**os.environ, "HCQ_SANITIZE": "", "HCQ_VALIDATE": "0"})
    assert found_in(gpu, CASES["all write one place"].wrong) == []
    gpu.close()


@pytest.mark.parametrize("word", MACHINES)
def test_validation_finds_races_of_warps_in_shared_memory_too(word: str) -> None:
    gpu = opened(word, {**os.environ, "HCQ_SANITIZE": "", "HCQ_VALIDATE": "1"})
    for name in ("all write one place", "no barrier between writing a tile and reading it"):
        assert [one.rule for one in found_in(gpu, CASES[name].wrong)] == ["shared-race"], name
        assert found_in(gpu, CASES[name].right) == [], name
    gpu.close()


NAMED = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<6>;
    .reg .b64 %d<2>;
    .reg .pred %p<2>;
    .shared .align 16 .b8 words[1024];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, words;
    mad.lo.s32 %r3, %r1, 4, %r2;
    st.shared.u32 [%r3], %r1;
    shr.u32 %r4, %r1, 6;
    bar.sync %r4, 64;
    xor.b32 %r5, %r1, DISTANCE;
    mad.lo.s32 %r3, %r5, 4, %r2;
    ld.shared.u32 %r5, [%r3];
    ld.param.u64 %d1, [out];
    mad.wide.u32 %d1, %r1, 4, %d1;
    st.global.u32 [%d1], %r5;
    ret;
}
"""


@pytest.mark.parametrize(("distance", "races"), [(32, 0), (64, 1)])
def test_a_named_barrier_orders_the_warps_that_meet_there_and_no_others(distance: int, races: int) -> None:
    gpu = opened("nv:sm_90", LOOKS)
    before = len(Sanitizer.findings)
    kernel = gpu.load(NAMED.replace("DISTANCE", str(distance)).encode(), "kernel")
    gpu.run(kernel, [gpu.alloc(512)], block=(THREADS, 1, 1))
    assert len(Sanitizer.findings[before:]) == races
    gpu.close()


PROGRAM = """
from hcq import Tensor
from hcq.observe.sanitizer import Sanitizer
x = Tensor([[(7 * i * j) % 23 - 11.0 for i in range(150)] for j in range(70)])
for y in (x @ x.T, x.softmax(1), x.sort(1)[0], x.cumsum(1), x.sum(), x.argmax(1), x.half() @ x.T.half()):
    y.numpy()
print(len(Sanitizer.findings))
"""


@pytest.mark.parametrize("word", ["amd:gfx1100", "nv:sm_90"])
def test_our_own_kernels_have_no_races(word: str) -> None:
    kind = word.partition(":")[0].upper()
    environment = {**LOOKS, "HCQ_EMULATE": word, "HCQ_DEVICE": kind}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")


def test_an_unknown_word_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        hcq.UsageError,
        match=r"HCQ_SANITIZE='races': unknown word 'races'\. Valid words: memory, race, unequal, init",
    ):
        Config.read({"HCQ_SANITIZE": "races"})
