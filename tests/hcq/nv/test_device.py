"""The NVIDIA driver at work: what goes in comes out, with every generation of launches."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from hcq.errors import UsageError
from hcq.gpu.memory import GUARD_BYTES
from hcq.nv.address import POOL
from hcq.nv.device import CELLS_BYTES, NvDevice
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def test_kernels_see_the_sizes_of_their_launch(nv: NvDevice):
    out = nv.alloc(12)
    program = nv.load(image(nv.arch), "sizes")
    for grid, block in (((5, 2, 1), (48, 1, 1)), ((7, 3, 2), (32, 1, 1)), ((5, 2, 1), (64, 1, 1))):
        nv.run(program, [out], grid=grid, block=block)
        assert words(out.read()) == (grid[0], grid[1], block[0])


def test_a_launch_may_ask_for_shared_memory(nv: NvDevice):
    out, a = nv.alloc(1024), nv.alloc(1024)
    a.write(struct.pack("<256I", *range(256)))
    program = nv.load(image(nv.arch), "reverse_dynamic")
    for threads in (256, 64):
        program.dynamic_shared_bytes = 4 * threads
        nv.run(program, [out, a], block=(threads, 1, 1))
        assert words(out.read(0, 4 * threads)) == tuple(reversed(range(threads)))
    with pytest.raises(UsageError, match=r"dynamic_shared_bytes=300000.*bytes of shared memory on sm_"):
        program.dynamic_shared_bytes = 300_000


def test_closing_gives_back_what_opening_took(open_nv: Open):
    nv = open_nv()
    port = nv.port
    nv.close()
    free = sum(end - start for start, end in POOL.free)
    for _ in range(3):
        again = open_nv(port=port)
        again.run(again.load(image(again.arch), "local"), [again.alloc(400), 3], block=(100, 1, 1))
        again.close()
    left = free - sum(end - start for start, end in POOL.free)
    # each leaves its signals, and the slab of a buffer that still lives, with their guards
    assert left <= 3 * (CELLS_BYTES + (2 << 20) + 2 * GUARD_BYTES)


def test_push_shows_every_word_and_what_a_launch_points_to(
    nv: NvDevice, open_nv: Open, capsys: pytest.CaptureFixture[str]
):
    nv = open_nv(nv.arch, debug=frozenset({"push"}))
    a, b = nv.alloc(256), nv.alloc(256)
    increment = nv.load(image(nv.arch), "increment")
    a.write(bytes(256))
    nv.queue().barrier().submit().wait()
    capsys.readouterr()
    nv.queue().dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).submit().wait()
    said = capsys.readouterr().err
    for part in (
        f"LaunchData(QmdV{nv.chip.qmd.version}(",
        "cta_thread_dimension0=64",
        f"program_address={increment.entry:#x}",
        "constant_buffer_valid_0=1",
        "ntid_x=64",
        "stack_pointer=",
        "SEND_PCAS_A(",
        "SEND_SIGNALING_PCAS2_B(",
        "LAUNCH_DMA(",
        "SEM_EXECUTE(operation=RELEASE, release_wfi=EN, payload_size=SIZE_64BIT, release_timestamp=EN)",
    ):
        assert part in said, part
    assert "unclaimed" not in said
    assert "UNKNOWN" not in said


@pytest.mark.parametrize(
    "version", ["550.163.01", "570.211.01", "575.57.08", "580.65.06", "590.48.01", "595.45.04"]
)
def test_every_release_of_the_kernel_driver_is_spoken_to_in_its_own_layouts(open_nv: Open, version: str):
    nv = open_nv("sm_90", options=f":driver={version}")
    assert nv.facts()["driver"] == version
    a = nv.alloc(256)
    nv.queue().fill(a, 1, value_bytes=4).submit().wait()
    nv.run(nv.load(image("sm_90"), "increment"), [a], block=(64, 1, 1))
    assert words(a.read()) == (2,) * 64
    assert nv.stats()["dispatches"] == 1
    port = nv.port
    nv.close()
    open_nv(port=port).queue().barrier().submit().wait()


def test_an_unknown_newer_driver_is_asked_and_told_about(open_nv: Open, capsys: pytest.CaptureFixture[str]):
    nv = open_nv("sm_90", options=":driver=700.10")
    assert "700.10" in capsys.readouterr().err
    a = nv.alloc(64)
    nv.queue().fill(a, 5).submit().wait()
    assert a.read() == b"\5" * 64
