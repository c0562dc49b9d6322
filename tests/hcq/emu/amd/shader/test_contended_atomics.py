"""Retry loops that LLVM makes of atomics, and spin locks: an order of the lanes explains every result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader.errors import OutOfBudget, PageFault
from tests.hcq.emu.amd.shader.kernels import DATA_BASE, ISAS, Loaded

GROUPS, ITEMS = 3, 192
LANES = GROUPS * ITEMS
U32, U64 = np.uint32, np.uint64


def kernel(body: str) -> str:
    """%i is the work-item's number in the grid, %p the cells, %o its place in what comes out, %t its number."""
    return f"""
    declare i32 @llvm.amdgcn.workitem.id.x()
    declare i32 @llvm.amdgcn.workgroup.id.x()
    define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %out) {{
    entry:
      %t = call i32 @llvm.amdgcn.workitem.id.x()
      %g = call i32 @llvm.amdgcn.workgroup.id.x()
      %g2 = mul i32 %g, {ITEMS}
      %i = add i32 %g2, %t
      %o = getelementptr i64, ptr addrspace(1) %out, i32 %i
      {body}
      ret void
    }}"""


def run(body: str, cells: Any, arch: str = "gfx1100", **options: Any) -> tuple[Any, Any, int]:
    """(cells, out, blocks that ran)."""
    loaded = Loaded(kernel(body), arch)
    cells, out = loaded.run(
        "k", [cells, np.zeros(LANES, U64)], grid=(GROUPS, 1, 1), block=(ITEMS, 1, 1), **options
    )
    return cells, out, loaded.report.batches


def cas_loop(bits: int, compute: str, place: str = "0") -> str:
    """PTX's or C's usual loop: old is loaded once, then it is what the last round has found."""
    return f"""
      %at = getelementptr i{bits}, ptr addrspace(1) %p, i32 {place}
      %first = load i{bits}, ptr addrspace(1) %at
      br label %again
    again:
      %old = phi i{bits} [%first, %entry], [%seen, %again]
      {compute}
      %pair = cmpxchg ptr addrspace(1) %at, i{bits} %old, i{bits} %new syncscope("agent") monotonic monotonic
      %seen = extractvalue {{i{bits}, i1}} %pair, 0
      %ok = extractvalue {{i{bits}, i1}} %pair, 1
      br i1 %ok, label %done, label %again
    done:
      store i{bits} %old, ptr addrspace(1) %o"""


def check_chain(first: int, last: int, olds: Any, step: Any) -> None:
    """From what stood there first to what stands there now, each lane's step leads to what another lane found."""
    by_old: dict[int, list[int]] = {}
    for lane, old in enumerate(olds.tolist()):
        by_old.setdefault(old, []).append(lane)
    value = first
    for _ in range(len(olds)):
        assert by_old.get(value), f"nobody found {value:#x}"
        value = step(value, by_old[value].pop(0))
    assert value == last


LOOPS = {
    "add": (32, 5, "%new = add i32 %old, 7", lambda old, lane: (old + 7) % 2**32),
    "add own": (32, 5, "%own = add i32 %i, 1\n%new = add i32 %old, %own", lambda old, lane: old + lane + 1),
    "float sum": (
        32,
        0x3F800000,
        (
            "%f = uitofp i32 %i to float\n%x = fadd float %f, 0.25\n%a = bitcast i32 %old to float\n"
            "%b = fadd float %a, %x\n%new = bitcast float %b to i32"
        ),
        lambda old, lane: int((U32(old).view(np.float32) + (np.float32(lane) + np.float32(0.25))).view(U32)),
    ),
    "double product": (
        64,
        0x3FF0000000000000,
        "%a = bitcast i64 %old to double\n%b = fmul double %a, 0x3FF0001000000000\n%new = bitcast double %b to i64",
        lambda old, lane: int(
            (U64(old).view(np.float64) * U64(0x3FF0001000000000).view(np.float64)).view(U64)
        ),
    ),
    "no pattern": (
        32,
        1,
        "%a = mul i32 %old, 5\n%b = lshr i32 %a, 3\n%c = xor i32 %a, %b\n%new = add i32 %c, 1",
        lambda old, lane: ((old * 5 % 2**32) ^ (old * 5 % 2**32) >> 3) + 1 & 0xFFFFFFFF,
    ),
}


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("name", LOOPS)
def test_a_compare_and_swap_loop_is_as_if_lane_came_after_lane(name: str, arch: str) -> None:
    bits, first, compute, step = LOOPS[name]
    cells = np.array([first], U32 if bits == 32 else U64)
    cells, out, blocks = run(cas_loop(bits, compute), cells, arch)
    olds = out.view(U32)[::2] if bits == 32 else out
    check_chain(first, int(cells[0]), olds, step)
    if name != "no pattern":
        assert blocks < 64  # rounds in step would be as many as there are lanes


def test_lanes_at_several_addresses_have_an_order_at_each() -> None:
    compute = "%own = add i32 %i, 1\n%new = add i32 %old, %own"
    body = "%place = urem i32 %i, 3\n" + cas_loop(32, compute, "%place")
    cells, out, _ = run(body, np.array([10, 20, 30], U32))
    olds = out.view(U32)[::2]
    for place in range(3):
        lanes = np.arange(place, LANES, 3)
        check_chain(
            10 * (place + 1), int(cells[place]), olds[lanes], lambda old, n, at=lanes: old + int(at[n]) + 1
        )


def test_what_a_guess_gets_wrong_is_done_round_by_round() -> None:
    """A sum up to a limit: the guess of a running sum is true until there."""
    compute = "%a = add i32 %old, 1\n%b = icmp ult i32 %a, 300\n%new = select i1 %b, i32 %a, i32 300"
    cells, out, _ = run(cas_loop(32, compute), np.zeros(1, U32))
    assert cells.tolist() == [300]
    assert sorted(out.view(U32)[::2].tolist()) == sorted([*range(300), *[300] * (LANES - 300)])


def test_the_loops_llvm_makes_of_its_own_atomics_end_right() -> None:
    body = """
      %f = uitofp i32 %i to float
      %a = atomicrmw fadd ptr addrspace(1) %p, float %f syncscope("agent") monotonic
      %p1 = getelementptr i32, ptr addrspace(1) %p, i32 1
      %b = atomicrmw fmax ptr addrspace(1) %p1, float %f syncscope("agent") monotonic
      %p2 = getelementptr i32, ptr addrspace(1) %p, i32 2
      %c = atomicrmw nand ptr addrspace(1) %p2, i32 %i syncscope("agent") monotonic"""
    for arch in ISAS:
        cells, _, _ = run(body, np.zeros(4, U32), arch)
        assert cells[:2].view(np.float32).tolist() == [LANES * (LANES - 1) / 2, LANES - 1]


LOCK = """
      %lane = and i32 %t, 63
      %one = icmp eq i32 %lane, 0
      br i1 %one, label %spin, label %over
    spin:
      %c = cmpxchg ptr addrspace(1) %p, i32 0, i32 1 syncscope("agent") acq_rel monotonic
      %ok = extractvalue {i32, i1} %c, 1
      br i1 %ok, label %in, label %spin
    in:
      %q = getelementptr i32, ptr addrspace(1) %p, i32 1
      %old = load volatile i32, ptr addrspace(1) %q
      %new = add i32 %old, 1
      store volatile i32 %new, ptr addrspace(1) %q
      RELEASE
      br label %over
    over:"""


@pytest.mark.parametrize("arch", ISAS)
def test_a_lock_that_waves_take_in_turn_is_held_by_one_at_a_time(arch: str) -> None:
    release = 'store atomic i32 0, ptr addrspace(1) %p syncscope("agent") release, align 4'
    cells, _, blocks = run(LOCK.replace("RELEASE", release), np.zeros(4, U32), arch)
    holders = LANES // 64
    assert cells.tolist() == [0, holders, 0, 0]
    assert blocks < 40 * holders  # those who wait let the holder go on at once


def test_a_lock_that_nobody_gives_back_runs_out_of_budget() -> None:
    with pytest.raises(OutOfBudget, match="Look for a loop that does not end"):
        run(LOCK.replace("RELEASE", ""), np.zeros(4, U32), budget=20_000)


def test_a_loop_on_memory_that_is_not_there_is_a_page_fault() -> None:
    body = cas_loop(32, "%new = add i32 %old, 7", "100000")
    with pytest.raises(PageFault, match=f"{DATA_BASE + 400000:#x}"):
        run(body, np.zeros(4, U32))
