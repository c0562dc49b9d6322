"""Missing waits: none in what LLVM compiles, and each wait that is taken out of it is missed by what needed it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader.half_registers import are_apart
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.register_waits import FLAT, LDS, MEMORY, SCALAR, RegisterWaits, Waited, Words
from hcq.emu.amd.shader.registers import VECTOR, Uses
from hcq.emu.amd.shader.wait_steps import waited_by
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault
from tests.hcq.emu.amd.shader.kernels import ISAS, Loaded
from tests.hcq.emu.amd.shader.random_kernels import make
from tests.hcq.emu.amd.shader.test_differential import buffers
from tests.hcq.emu.amd.shader.waiting_kernels import KERNELS, arguments
from tests.turns import seeds

BLOCK = (128, 1, 1)


def found_in(loaded: Loaded, name: str, given: list[Any], **options: Any) -> list[KernelFault]:
    checks = Checks(frozenset({"wait"}))
    loaded.run(name, given, block=BLOCK, checks=checks, **options)
    return list(checks.found.values())


def waits_of(loaded: Loaded) -> list[Instruction]:
    """The waits for loads of the program that ran last."""
    program = list(loaded.core.programs.values())[-1]
    generation = program.isa.generation
    return [one for one in program.instructions.values() if waited_by(one, generation) is not None]


def without(kernel: str, arch: str, wait: Instruction) -> list[KernelFault]:
    """What is found in a kernel in which this wait is none."""
    loaded = Loaded(KERNELS[kernel], arch)
    loaded.replace(wait.pc, ISAS[arch].encode("s_nop"))
    return found_in(loaded, "k", arguments())


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_what_llvm_compiles_waits_for_every_load(name: str, arch: str, opt: int) -> None:
    assert found_in(Loaded(KERNELS[name], arch, opt=opt), "k", arguments()) == []


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("seed", seeds(3, of=40))
def test_a_random_kernel_of_llvms_has_no_finding(arch: str, seed: int) -> None:
    kernel = make(seed)
    for opt in (0, 2):
        assert found_in(Loaded(kernel.gpu, arch, opt=opt), "body", buffers(kernel, seed)) == []


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("name", KERNELS)
def test_each_wait_that_is_taken_out_is_found_with_its_load_and_its_use(name: str, arch: str) -> None:
    loaded = Loaded(KERNELS[name], arch)
    assert found_in(loaded, "k", arguments()) == []
    places = {one.next_pc: one for one in list(loaded.core.programs.values())[-1].instructions.values()}
    waits = waits_of(loaded)
    assert len(waits) > 1
    for wait in waits:
        found = without(name, arch, wait)
        if "store" in places[wait.pc].name and name == "a stack":
            assert found == []  # a volatile store is waited for; no register needs that
            continue
        assert found, (hex(wait.pc), places[wait.pc].name)
        for fault in found:
            load, use = fault.sites
            assert fault.rule == "missing-wait"
            assert load.place < wait.pc < use.place or use.place < load.place  # or around the loop
            assert any(
                word in load.text for word in ("load", "read", "atomic", "_rtn", "permute", "store", "write")
            )


def test_a_finding_names_the_register_both_instructions_a_thread_and_the_wait() -> None:
    loaded = Loaded(KERNELS["a chain of addresses"], "gfx1100")
    found_in(loaded, "k", arguments())
    last = max(waits_of(loaded), key=lambda one: one.pc)
    (fault,) = without("a chain of addresses", "gfx1100", last)
    assert fault.what.startswith("v1 is used")
    assert fault.sites[0].text.startswith("global_load_b32 v1") and fault.sites[0].verb == "loads it"
    assert fault.sites[1].text.startswith("global_store_b32 v0, v1") and fault.sites[1].verb == "reads it"
    assert fault.sites[0].who == "workgroup (0, 0, 0), work-item (0, 0, 0)"
    assert "s_waitcnt vmcnt(0)" in fault.why and fault.times == 4


class ByDefinition:
    """What may be unfinished, as sets: a queue in order finishes from its beginning, the others anyhow, and when a wave
    has waited no more are left than the counter may say. Each of FLAT's loads is two things, one of each counter."""

    ORDERED = (MEMORY, LDS)

    def __init__(self) -> None:
        self.issued: list[
            tuple[int, bool, int]
        ] = []  # (queue, whether the counter is that of memory, number)
        self.possible: set[frozenset[int]] = {frozenset()}

    def issue(self, queue: int) -> list[int]:
        sides = {MEMORY: [True], LDS: [False], SCALAR: [False], FLAT: [True, False]}[queue]
        made = []
        for is_memory in sides:
            number = len(self.issued)
            self.issued.append((queue, is_memory, number))
            made.append(number)
        self.possible = {state | set(made) for state in self.possible}
        return made

    def wait(self, is_memory: bool, left: int) -> None:
        after: set[frozenset[int]] = set()
        for state in self.possible:
            for size in range(len(state) + 1):
                for some in itertools.combinations(sorted(state), size):
                    counted = [one for one in some if self.issued[one][1] == is_memory]
                    if len(counted) <= left and self.in_order(state, set(some)):
                        after.add(frozenset(some))
        self.possible = after

    def in_order(self, before: frozenset[int], after: set[int]) -> bool:
        for queue in self.ORDERED:
            mine = [one for one in sorted(before) if self.issued[one][0] == queue]
            left = [one for one in mine if one in after]
            if left != mine[len(mine) - len(left) :]:
                return False
        return True

    def may_be_unfinished(self, numbers: list[int]) -> bool:
        return any(state & set(numbers) for state in self.possible)


@pytest.mark.parametrize("seed", seeds(12, of=200))
def test_a_use_is_too_early_if_some_order_of_ends_leaves_its_load_undone(seed: int) -> None:
    rng = random.Random(seed)
    checks = Checks(frozenset({"wait"}))
    waits, definition = RegisterWaits(2, 8, Words(str, lambda wave, lane: "", 11), checks), ByDefinition()
    wave, on = np.array([1]), np.array([1], np.uint64)
    fills: dict[int, list[int]] = {}
    for place in range(rng.randrange(4, 10)):
        chosen = rng.random()
        register = VECTOR + place % 8
        if chosen < 0.55 and len(definition.issued) < 8:
            queue = rng.choice([MEMORY, MEMORY, LDS, LDS, SCALAR, FLAT])
            waits.issue(wave, queue, np.array([register]), place, on)
            fills[register] = definition.issue(queue)
        elif chosen < 0.8:
            left = rng.randrange(4)
            is_memory = rng.random() < 0.5
            waits.wait(wave, Waited(memory=left) if is_memory else Waited(lds=left, scalar=left))
            definition.wait(is_memory, left)
        elif fills:
            used = rng.choice(sorted(fills))
            waits.used(wave, on, Uses(reads=(used,)), place)
            assert bool(checks.found) == definition.may_be_unfinished(fills[used]), (seed, place)
            if checks.found:
                return


TO_LDS = """
@tile = internal addrspace(3) global [256 x i32] poison, align 16
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.waitcnt(i32)
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %t
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %p, ptr addrspace(3) @tile, i32 4, i32 0, i32 0)
  call void @llvm.amdgcn.s.waitcnt(i32 3952)
  %l = getelementptr i32, ptr addrspace(3) @tile, i32 %t
  %v = load volatile i32, ptr addrspace(3) %l
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
"""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_lds_that_a_load_fills_is_used_when_its_wave_has_waited(arch: str) -> None:
    loaded = Loaded(TO_LDS, arch)
    checks = Checks(frozenset({"wait"}))
    loaded.run("k", arguments()[:2], block=(64, 1, 1), checks=checks)
    assert not checks.found
    before = next(one for one in waits_of(loaded) if one.fields["simm16"] == 3952)
    loaded.replace(before.pc, ISAS[arch].encode("s_nop"))
    loaded.run("k", arguments()[:2], block=(64, 1, 1), checks=checks)
    (fault,) = checks.found.values()
    assert fault.space == "shared" and fault.address == 0 and "vmcnt(0)" in fault.why
    assert "load" in fault.sites[0].text and fault.sites[1].text.startswith("ds_read_b32")


@pytest.mark.parametrize(
    ("load", "use", "apart"),
    [
        ("global_load_d16_hi_b16 v16, v74, s[10:11]", "ds_store_b16 v87, v16 offset:28", True),
        ("global_load_d16_hi_b16 v16, v74, s[10:11]", "ds_store_b16_d16_hi v87, v16", False),
        ("global_load_d16_b16 v16, v74, s[10:11]", "ds_store_b16 v87, v16", False),
        ("global_load_d16_b16 v16, v74, s[10:11]", "global_store_d16_hi_b16 v1, v16, s[2:3]", True),
        ("global_load_d16_hi_b16 v16, v74, s[10:11]", "ds_store_b16 v16, v16", False),
        ("global_load_d16_hi_b16 v16, v74, s[10:11]", "v_add_f16 v3.l, v16.l, v2.l", True),
        ("global_load_d16_hi_b16 v16, v74, s[10:11]", "v_add_f16 v3.l, v16.l, v16.h", False),
        ("global_load_b32 v16, v74, s[10:11]", "ds_store_b16 v87, v16", False),
        ("ds_load_u16_d16 v16, v3", "v_mov_b32 v1, v16", False),
        ("ds_load_u16_d16 v16, v3", "ds_store_b64 v1, v[16:17]", False),
    ],
)
def test_a_load_of_one_half_is_not_waited_for_where_the_other_is_used(
    load: str, use: str, apart: bool
) -> None:
    assert are_apart(load, use, "v16") == apart
