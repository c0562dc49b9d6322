"""Launches in machine code: many workgroups in one call, on one thread or several, leave what the interpreter leaves.

In       kernels of LLVM's with many workgroups
Out      results, counts, and faults that are alike
Changes  nothing outside of its own arrays
Next     hcq/emu/amd/shader/native_launch.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from hcq import config
from hcq.emu.amd.shader import native_launch
from hcq.emu.amd.shader.errors import OutOfBudget, PageFault
from hcq.emu.compiled import threads
from tests.hcq.emu.amd.shader.kernels import ISAS, Loaded

HEAD = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare void @llvm.amdgcn.s.barrier()
@room = internal addrspace(3) global [64 x i32] undef
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %count) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %z = call i32 @llvm.amdgcn.workgroup.id.z()
  %zy = mul i32 %z, 3
  %yy = add i32 %y, %zy
  %yx = mul i32 %yy, 5
  %g = add i32 %yx, %x
  %gt = mul i32 %g, 64
  %n = add i32 %gt, %t
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %n
"""
TAIL = '  ret void\n}\nattributes #0 = { "amdgpu-flat-work-group-size"="64,64" }\n'
# each work-item takes what the one opposite has put into LDS, as often as its workgroup's number says
SWAPS = (
    HEAD
    + """
  %mine = getelementptr [64 x i32], ptr addrspace(3) @room, i32 0, i32 %t
  %far = sub i32 63, %t
  %other = getelementptr [64 x i32], ptr addrspace(3) @room, i32 0, i32 %far
  %old = load i32, ptr addrspace(3) %mine
  %rounds = add i32 %g, 1
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%k1, %loop]
  %v = phi i32 [%n, %entry], [%w, %loop]
  store i32 %v, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %o = load i32, ptr addrspace(3) %other
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %o5 = mul i32 %o, 5
  %w = add i32 %o5, %k
  %k1 = add i32 %k, 1
  %more = icmp ne i32 %k1, %rounds
  br i1 %more, label %loop, label %done
done:
  %sum = add i32 %w, %old
  store i32 %sum, ptr addrspace(1) %to
"""
    + TAIL
)
COUNTS = (
    HEAD
    + """
  %one = atomicrmw add ptr addrspace(1) %in, i32 %n syncscope("agent") monotonic
  store i32 %n, ptr addrspace(1) %to
"""
    + TAIL
)
TICKETS = COUNTS.replace("i32 %n, ptr addrspace(1) %to", "i32 %one, ptr addrspace(1) %to")
# the first workgroup waits for what the last one stores
WAITS = (
    HEAD
    + """
  %first = icmp eq i32 %g, 0
  br i1 %first, label %wait, label %go
wait:
  %now = load atomic i32, ptr addrspace(1) %in syncscope("agent") monotonic, align 4
  %is = icmp eq i32 %now, 0
  br i1 %is, label %wait, label %go
go:
  %last = icmp eq i32 %g, 29
  br i1 %last, label %tell, label %done
tell:
  store atomic i32 7, ptr addrspace(1) %in syncscope("agent") monotonic, align 4
  br label %done
done:
  store i32 %n, ptr addrspace(1) %to
"""
    + TAIL
)
GRID = (5, 3, 2)


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """What a test sets is set back."""
    before = config.current()
    yield
    config.use(before)


def use(way: str, count: int = 1) -> None:
    config.use(dataclasses.replace(config.current(), emu_compiled=way, emu_threads=count))


def launch(ir: str, arch: str, **options: object) -> tuple[bytes, bytes, int, int, Loaded]:
    kernel, shared, out = Loaded(ir, arch), np.zeros(16, np.uint32), np.zeros(30 * 64, np.uint32)
    kernel.run("k", [shared, out, np.uint32(3)], grid=GRID, block=(64, 1, 1), **options)
    report = kernel.report
    return out.tobytes(), shared.tobytes(), report.instructions, report.waves, kernel


@pytest.mark.parametrize("ir", [SWAPS, COUNTS, TICKETS])
@pytest.mark.parametrize("arch", ISAS)
def test_launches_leave_the_same_results_and_counts(arch: str, ir: str) -> None:
    use("0")
    expected = launch(ir, arch)[:4]
    use("always")
    assert launch(ir, arch)[:4] == expected


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_workgroups_on_several_threads_leave_the_same_results_and_counts(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "ALONE", 1)
    monkeypatch.setattr(native_launch, "SLICE", 700)
    used: list[int] = []
    run = threads.run
    monkeypatch.setattr(threads, "run", lambda jobs, most: used.append(len(jobs)) or run(jobs, most))
    use("always")
    expected = launch(SWAPS, arch)[:4]
    assert set(used) == {1}
    use("always", 4)
    assert launch(SWAPS, arch)[:4] == expected
    assert max(used) == 4


def program_of(ir: str) -> object:
    (program,) = launch(ir, "gfx1100")[4].core.programs.values()
    return program


def test_only_kernels_whose_order_is_not_seen_are_spread() -> None:
    use("always")
    assert native_launch.may_be_spread(program_of(SWAPS))
    assert native_launch.may_be_spread(program_of(COUNTS))
    assert not native_launch.may_be_spread(program_of(TICKETS))
    floats = COUNTS.replace("add ptr addrspace(1) %in, i32 %n", "fadd ptr addrspace(1) %in, float 1.0")
    assert not native_launch.may_be_spread(program_of(floats))


@pytest.mark.parametrize("count", [1, 3])
def test_a_workgroup_may_wait_for_one_behind_it(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_launch, "SLICE", 10_000)
    use("always", count)
    out, shared, _, waves, _ = launch(WAITS, "gfx1100")
    assert np.frombuffer(shared, np.uint32)[0] == 7 and waves == 60
    assert (np.frombuffer(out, np.uint32) == np.arange(30 * 64)).all()


@pytest.mark.parametrize("way", ["0", "always"])
def test_who_asks_where_waves_are_is_told_between_two_pieces(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_launch, "SLICE", 1000)
    use(way)
    seen: list[int] = []
    asked: list[int] = []

    def interrupted() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(OutOfBudget, match="interrupted") as info:
        launch(
            WAITS.replace("i32 7, ptr", "i32 0, ptr"),
            "gfx1100",
            interrupted=interrupted,
            begins=lambda machine: seen.append(len(machine.residents.group_of)),
        )
    assert seen and info.value.waves


@pytest.mark.parametrize("way", ["0", "always"])
def test_a_fault_in_a_later_workgroup_names_it(way: str) -> None:
    use(way)
    kernel = Loaded(SWAPS, "gfx1100")
    with pytest.raises(PageFault, match=r"write of 4 bytes .*workgroup \(3, 0, 0\), work-item \(0, 0, 0\)"):
        kernel.run(
            "k",
            [np.zeros(16, np.uint32), np.zeros(192, np.uint32), np.uint32(3)],
            grid=GRID,
            block=(64, 1, 1),
        )


IDS = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @ids(ptr addrspace(1) %out) #0 {
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %y = call i32 @llvm.amdgcn.workitem.id.y()
  %z = call i32 @llvm.amdgcn.workitem.id.z()
  %y5 = mul i32 %y, 5
  %z20 = mul i32 %z, 20
  %g60 = mul i32 %g, 60
  %a = add i32 %x, %y5
  %b = add i32 %a, %z20
  %n = add i32 %b, %g60
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %n
  store i32 %n, ptr addrspace(1) %to
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="60,60" }
"""


@pytest.mark.parametrize("way", ["0", "always"])
@pytest.mark.parametrize("arch", ISAS)
def test_work_items_know_their_three_coordinates(arch: str, way: str) -> None:
    use(way)
    out = np.zeros(7 * 60, np.uint32)
    Loaded(IDS, arch).run("ids", [out], grid=(7, 1, 1), block=(5, 4, 3))
    assert (out == np.arange(7 * 60)).all()


PLACES = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @places(ptr addrspace(1) %in, ptr addrspace(1) %index, ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %ip = getelementptr i32, ptr addrspace(1) %index, i32 %t
  %i = load i32, ptr addrspace(1) %ip
  %is = icmp sge i32 %i, 0
  br i1 %is, label %go, label %done
go:
  %p = getelementptr TYPE, ptr addrspace(1) %in, i32 %i
  %x = load TYPE, ptr addrspace(1) %p, align 4
  %to = getelementptr TYPE, ptr addrspace(1) %out, i32 %t
  store TYPE %x, ptr addrspace(1) %to, align 4
  br label %done
done:
  ret void
}
"""
LANES = np.arange(64)
WHERE = {
    "a row": LANES,
    "halves of rows": LANES % 8 + LANES // 8 * 24,
    "one place": np.full(64, 5),
    "a place of each half": LANES // 8 * 3,
    "rows with edges": np.where(LANES % 8 == 0, 0, LANES + 9),
    "anywhere": LANES * 37 % 101,
    "backwards": 63 - LANES,
    "the first one": LANES * 0,
    "some lanes off": np.where(LANES % 5 == 1, -1, LANES),
    "one lane on": np.where(LANES == 17, 3, -1),
    "up to the end": LANES + 192,
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("words", [1, 2, 3, 4])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_loads_of_lanes_find_what_lies_there(arch: str, words: int, where: str) -> None:
    use("always")
    kernel = Loaded(PLACES.replace("TYPE", "i32" if words == 1 else f"<{words} x i32>"), arch)
    step = 4 if words == 3 else words
    data = np.random.default_rng(words).integers(0, 1 << 32, (256, step), np.uint32)
    index, out = WHERE[where].astype(np.int32), np.zeros((64, step), np.uint32)
    kernel.run("places", [data, index, out], block=(64, 1, 1))
    is_on = index >= 0
    assert (out[is_on, :words] == data[index[is_on], :words]).all()
    assert not out[~is_on].any()


def test_a_load_beyond_the_end_is_a_fault_of_that_lane() -> None:
    use("always")
    kernel = Loaded(PLACES.replace("TYPE", "i32"), "gfx1100")
    with pytest.raises(PageFault, match=r"read of 4 bytes .*work-item \(60, 0, 0\)"):
        data, out = np.zeros(60, np.uint32), np.zeros(64, np.uint32)
        kernel.run("places", [data, LANES.astype(np.int32), out], block=(64, 1, 1))


PUTS = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @puts(ptr addrspace(1) %in, ptr addrspace(1) %index, ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %ip = getelementptr i32, ptr addrspace(1) %index, i32 %t
  %i = load i32, ptr addrspace(1) %ip
  %is = icmp sge i32 %i, 0
  br i1 %is, label %go, label %done
go:
  %p = getelementptr TYPE, ptr addrspace(1) %in, i32 %t
  %x = load TYPE, ptr addrspace(1) %p, align 4
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store TYPE %x, ptr addrspace(1) %to, align 4
  br label %done
done:
  ret void
}
"""
WHERE_TO = {  # the first word of each lane, for lanes of so many; where waves overlap, their order is anything
    "a row": lambda words: words * LANES,
    "sixteens apart": lambda words: words * (LANES % 16 + LANES // 16 * 20),
    "sixteens that overlap": lambda words: words * (LANES % 16 + LANES // 16 * 3) + LANES // 16,
    "sixteens in each other's place": lambda words: words * (LANES % 16),
    "sixteens backwards": lambda words: words * (LANES % 16 + 48 - LANES // 16 * 16),
    "lanes that overlap": lambda words: LANES * 1,
    "places of whole lanes": lambda words: words * (LANES * 7 % 32) + 1,
    "some lanes off": lambda words: np.where(LANES % 5 == 1, -1, words * LANES),
    "anywhere": lambda words: LANES * 37 % 101,
}


@pytest.mark.parametrize("where", WHERE_TO)
@pytest.mark.parametrize("words", [1, 2, 3, 4])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_stores_of_lanes_leave_what_the_interpreter_leaves(arch: str, words: int, where: str) -> None:
    kernel = Loaded(PUTS.replace("TYPE", "i32" if words == 1 else f"<{words} x i32>"), arch)
    step = 4 if words == 3 else words
    data = np.random.default_rng(words).integers(0, 1 << 32, (64, step), np.uint32)
    left = []
    for way in ("0", "always"):
        use(way)
        out, to = np.zeros(1024, np.uint32), WHERE_TO[where](words)
        index = np.where(to >= 0, to + LANES // 32 * 512, -1).astype(np.int32)
        kernel.run("puts", [data, index, out], block=(64, 1, 1))
        left.append(out)
    assert left[0].any()
    assert (left[0] == left[1]).all()
