"""Cooperative launches: all blocks of a grid run at once and wait for one another, or the grid is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest

from hcq.errors import DeviceFault, UsageError
from hcq.nv import graph as nv_graph
from hcq.nv import pushbuffer
from hcq.nv.abi.bank0 import BANK0_OF_QMD
from hcq.nv.chip import CHIPS
from hcq.nv.device import NvDevice
from hcq.nv.encode import Piece, wait_for_idle
from tests.hcq.emu.nv.shader.running import compile_by_nvcc

Open = Callable[..., NvDevice]
ARCHS = ["sm_80", "sm_90", "sm_120"]

# a grid barrier as one would write it: thread 0 of each block counts, and looks until all have
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BARRIER = """
    bar.sync 0; @!%first bra MET{n};
    atom.add.release.gpu.u32 %r1, [%counter], 1;
    LOOK{n}: ld.acquire.gpu.u32 %r1, [%counter]; setp.lt.u32 %p, %r1, %all{n}; @%p bra LOOK{n};
    MET{n}: bar.sync 0;
"""
TURN_ROUND = (
    HEAD
    + """
.visible .entry k(.param .u64 data, .param .u64 counter, .param .u64 out) {
    .reg .b64 %counter, %data, %out, %d<4>; .reg .b32 %r<9>, %all0, %all1, %me, %blocks; .reg .pred %p, %first;
    ld.param.u64 %data, [data]; ld.param.u64 %counter, [counter]; ld.param.u64 %out, [out];
    mov.u32 %blocks, %nctaid.x; mov.u32 %all0, %blocks; add.u32 %all1, %blocks, %blocks;
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %me, %r4, %r3, %r2;
    setp.eq.u32 %first, %r2, 0;
    mul.wide.u32 %d0, %me, 4; add.u64 %d1, %data, %d0; add.u64 %out, %out, %d0;
    mul.lo.u32 %r5, %me, 3; st.global.u32 [%d1], %r5;
"""
    + BARRIER.format(n=0)
    + """
    mul.lo.u32 %r6, %blocks, %r3; sub.u32 %r6, %r6, 1; sub.u32 %r6, %r6, %me; mul.wide.u32 %d2, %r6, 4;
    add.u64 %d2, %data, %d2; ld.global.u32 %r7, [%d2];
"""
    + BARRIER.format(n=1)
    + "st.global.u32 [%d1], %r7; st.global.u32 [%out], %r7; ret; }"
)


@pytest.mark.parametrize("arch", ARCHS)
def test_blocks_wait_for_one_another(arch: str, open_nv: Open) -> None:
    """As many as fit: each reads what the one at the other end has written."""
    device = open_nv(arch)
    program = device.load(TURN_ROUND.encode(), "k", args=("buffer", "buffer", "buffer"))
    program.cooperative = True
    threads = 1024 if arch != "sm_120" else 768
    blocks = 2 * device.gpu.sm_count
    data, counter, out = (device.alloc(size) for size in (4 * blocks * threads, 4, 4 * blocks * threads))
    counter.write(bytes(4))
    device.run(program, [data, counter, out], grid=(blocks, 1, 1), block=(threads, 1, 1))
    expected = tuple(3 * (blocks * threads - 1 - i) for i in range(blocks * threads))
    assert struct.unpack(f"{blocks * threads}I", out.read()) == expected
    assert struct.unpack(f"{blocks * threads}I", data.read()) == expected


@pytest.mark.parametrize("arch", ARCHS)
def test_grid_sync_of_cooperative_groups_runs_again_and_again(arch: str, open_nv: Open) -> None:
    source = r"""
    #include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(unsigned *data, unsigned *out) {
        cg::grid_group grid = cg::this_grid();
        unsigned me = grid.thread_rank();
        for (int round = 0; round < 3; round++) {
            data[me] = me * (round + 1);
            grid.sync();
            unsigned other = data[grid.size() - 1 - me];
            grid.sync();
            out[me] = other + (grid.is_valid() ? 0 : 1000000);
        }
    }"""
    ptx = compile_by_nvcc(source, arch.replace("sm_", "compute_"))
    device = open_nv(arch)
    program = device.load(ptx.encode(), "k")
    program.cooperative = True
    blocks, threads = 25, 64
    data, out = device.alloc(4 * blocks * threads), device.alloc(4 * blocks * threads)
    graph = device.graph()
    for _ in range(3):
        graph.dispatch(program, [data, out], grid=(5, 5, 1), block=(8, 4, 2))
    for launch in (
        lambda: device.run(program, [data, out], grid=(blocks, 1, 1), block=(threads, 1, 1)),
        lambda: device.run(program, [data, out], grid=(5, 5, 1), block=(8, 4, 2)),
        lambda: graph.replay().wait(),
        lambda: graph.replay().wait(),
    ):
        out.write(bytes(4 * blocks * threads))
        launch()
        expected = tuple(3 * (blocks * threads - 1 - i) for i in range(blocks * threads))
        assert struct.unpack(f"{blocks * threads}I", out.read()) == expected


WHAT_IT_SEES = (
    HEAD
    + """
.visible .entry k(.param .u64 out) {
    .reg .b64 %d<3>; .reg .b32 %r<4>; ld.param.u64 %d0, [out]; mov.u32 %r0, %envreg1; mov.u32 %r1, %envreg2;
    mov.b64 %d1, {%r1, %r0}; st.global.u64 [%d0], %d1; setp.eq.u64 %p, %d1, 0; @%p bra END;
    ld.global.u64 %d2, [%d1]; st.global.u64 [%d0+8], %d2; st.global.u32 [%d1+4], 77;
    END: ret; }
""".replace(".reg .b32", ".reg .pred %p; .reg .b32")
)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_launch_finds_its_workspace_set_back(arch: str, open_nv: Open) -> None:
    """The kernel leaves 77 in the counter, as one that was stopped in the middle would."""
    device = open_nv(arch)
    program = device.load(WHAT_IT_SEES.encode(), "k")
    out = device.alloc(16)
    for is_cooperative in (False, True, True, False, True):
        program.cooperative = is_cooperative
        assert program.cooperative is is_cooperative
        out.write(bytes(16))
        device.run(program, [out], grid=(1, 1, 1), block=(1, 1, 1))
        address, found = struct.unpack("2Q", out.read())
        assert bool(address) == is_cooperative
        assert found == (8 if is_cooperative else 0)


def test_a_grid_that_cannot_be_there_at_once_is_refused(open_nv: Open) -> None:
    device = open_nv("sm_90")
    program = device.load(TURN_ROUND.encode(), "k")
    program.cooperative = True
    sms = device.gpu.sm_count
    data = device.alloc(1024)
    for block, most in ((1024, 2), (512, 4), (33, 32), (96, 21)):
        with pytest.raises(
            UsageError, match=rf"grid=\({sms * most + 1}, 1, 1\).*at most {sms * most} blocks of {block} "
        ):
            device.run(program, [data] * 3, grid=(sms * most + 1, 1, 1), block=(block, 1, 1))
    program.dynamic_shared_bytes = 100 << 10
    with pytest.raises(
        UsageError, match=rf"at most {2 * sms} blocks of 32 threads run at once on {sms} SMs of sm_90"
    ):
        device.run(program, [data] * 3, grid=(2 * sms + 1, 1, 1), block=(32, 1, 1))
    program.cooperative = False
    assert not program.cooperative


@pytest.mark.parametrize("value", [1, "yes", None, 0])
def test_cooperative_is_true_or_false(value: object, open_nv: Open) -> None:
    program = open_nv("sm_90").load(WHAT_IT_SEES.encode(), "k")
    with pytest.raises(UsageError, match=r"k.cooperative=.*True or False"):
        program.cooperative = value


def test_registers_and_shared_memory_bound_the_blocks_of_an_sm() -> None:
    """The numbers of NVIDIA's occupancy calculator for sm_80: 65,536 registers, 64 warps, 164 KiB of shared memory."""
    chip = CHIPS["sm_80"]
    assert chip.resident_blocks(1024, 256, 32) == 8  # by warps
    assert chip.resident_blocks(1024, 256, 64) == 4  # by registers
    assert chip.resident_blocks(1024, 32, 32) == 32  # by blocks
    assert chip.resident_blocks(1024, 32, 255) == 8  # two warps of 8,160 registers to each quarter
    assert chip.resident_blocks(50 << 10, 32, 32) == 3  # by shared memory


def test_graphs_run_nothing_beside_a_cooperative_kernel(
    open_nv: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three kernels that nothing orders the GPU waits for the last alone; where one is cooperative, for each."""
    device = open_nv("sm_90")
    image = WHAT_IT_SEES.encode()
    together, other = (device.load(image, "k", args=("buffer",), access=("write",)) for _ in range(2))
    together.cooperative = True
    buffers = [device.alloc(16) for _ in range(3)]
    seen: list[list[bool]] = []

    def plan(pieces: Sequence[Piece]) -> pushbuffer.Plan:
        seen.append([what.endswith(wait_for_idle()) for what in pieces if what.launches])
        return pushbuffer.plan(pieces)

    monkeypatch.setattr(nv_graph, "plan", plan)
    for middle in (other, together):
        graph = device.graph()
        for program, buffer in zip((other, middle, other), buffers):
            graph.dispatch(program, [buffer], grid=(1, 1, 1), block=(1, 1, 1))
        graph.replay().wait()
    assert seen[0] == [False, False, True]
    assert seen[-1] == [True, True, True]


def test_a_barrier_that_the_host_did_not_ask_for_is_a_trap_of_the_library(open_nv: Open) -> None:
    source = r"""
    #include <cooperative_groups.h>
    extern "C" __global__ void k() { cooperative_groups::this_grid().sync(); }"""
    device = open_nv("sm_90")
    program = device.load(compile_by_nvcc(source, "compute_90").encode(), "k")
    with pytest.raises(DeviceFault, match="trap by"):
        device.run(program, [], grid=(2, 1, 1), block=(32, 1, 1))


@pytest.mark.parametrize("layout", BANK0_OF_QMD.values(), ids=lambda layout: layout.__name__)
def test_the_workspace_is_in_the_first_driver_registers(layout) -> None:
    made = layout(envreg=(0x12 << 32) | (0x34 << 64)).to_bytes()
    at = layout.fields["envreg"].low // 8
    assert struct.unpack_from("<3I", made, at) == (0, 0x12, 0x34)
