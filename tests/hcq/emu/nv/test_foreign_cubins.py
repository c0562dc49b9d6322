"""Machine code that a foreign loader has placed runs, where its cubin or a folder says what PTX it is made from."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hcq import config
from hcq.errors import UsageError
from hcq.nv.cubin import Cubin
from hcq.nv.foreign.cubins import Cubins
from tests.hcq.emu.nv.raw import Launch, Memory, Raw
from tests.hcq.emu.nv.shader.running import needs_nvrtc
from tests.hcq.emu.nv.test_compute import do, ready

KERNEL = """
__constant__ int table[4] = {11, 12, 13, 14};
__device__ int number = 5;
extern "C" __global__ void step(int *out, int more) {
  int i = threadIdx.x;
  out[i] = table[i & 3] * number + more + MARK;
  __syncthreads();
  if (i == 0) number = more;
}
"""
THREADS = 8

pytestmark = needs_nvrtc


def compiled(arch: str, mark: int, *options: str) -> tuple[bytes, bytes]:
    """The cubin and the PTX of a kernel that no other test has: cubins are looked for in this whole process."""
    from hcq.nv.toolchain.nvrtc import compile_cuda

    made = compile_cuda(KERNEL.replace("MARK", str(mark)), arch, options)
    return made.cubin, made.ptx.encode()


def stored(number: int, mark: int) -> list[int]:
    """What the kernel stores with 7 for `more`."""
    return [table * number + 7 + mark for table in (11, 12, 13, 14, 11, 12, 13, 14)]


def loaded(raw: Raw, image: bytes) -> tuple[Memory, Cubin, Launch]:
    """A cubin as any loader places it: sections one after the other, addresses filled in, and no descriptor of ours."""
    cubin = Cubin(image)
    layout = cubin.layout()
    memory = raw.memory(layout.size_bytes)
    memory.host[: layout.size_bytes] = np.frombuffer(cubin.link(layout, memory.va), np.uint8)
    banks = {}
    for number in (3, 4):
        place = layout.places[f".nv.constant{number}"]
        banks |= {
            f"constant_buffer_addr_{number}": memory.va + place.offset,
            f"constant_buffer_size_{number}": -(-place.size_bytes // 16) * 16,
            f"constant_buffer_valid_{number}": 1,
        }
    program = memory.va + layout.places[".text.step"].offset
    params = struct.pack("<Qi", raw.out.va, 7)
    return memory, cubin, Launch(raw, program, params, block=(THREADS, 1, 1), **banks)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = config.current()
    config.use(dataclasses.replace(before, emu_ptx=tmp_path))
    yield tmp_path
    config.use(before)


@pytest.mark.parametrize(
    ("arch", "mark"), [("sm_80", 1001), ("sm_90", 1002), ("sm_100", 1003), ("sm_120", 1004)]
)
def test_a_cubin_with_line_numbers_in_the_memory_of_the_process_holds_the_ptx(arch: str, mark: int) -> None:
    image, _ = compiled(arch, mark, "--generate-line-info")
    raw = ready(f"nv:{arch}")
    memory, cubin, launch = loaded(raw, image)
    do(raw, launch.words)
    do(raw, launch.words)  # number is what the first launch has stored
    assert raw.out.array("i4")[:THREADS].tolist() == stored(7, mark)
    at = cubin.layout().places[cubin.variables()["number"][0]].offset
    assert memory.host[at : at + 4].view("i4")[0] == 7


def test_a_folder_holds_the_ptx_beside_the_cubin(folder: Path) -> None:
    image, text = compiled("sm_80", 1005)
    (folder / "kernels.cubin").write_bytes(image)
    (folder / "kernels.ptx").write_bytes(text)
    raw = ready("nv:sm_86")  # executes what was made for sm_80
    _, _, launch = loaded(raw, image)
    do(raw, launch.words)
    assert raw.out.array("i4")[:THREADS].tolist() == stored(5, 1005)


def test_code_of_a_cubin_without_ptx_is_refused_by_the_name_of_its_kernel() -> None:
    image, _ = compiled("sm_90", 1006)
    raw = ready("nv:sm_90")
    raw.push(loaded(raw, image)[2].words)
    xid, line = raw.fault()
    assert (
        xid == 13
        and "step at 0x" in line
        and "comes from a cubin without PTX" in line
        and "-lineinfo" in line
    )


def test_a_cubin_of_another_generation_is_not_taken_for_the_code_of_this_gpu() -> None:
    image, _ = compiled("sm_80", 1007, "--generate-line-info")
    raw = ready("nv:sm_90")
    raw.push(loaded(raw, image)[2].words)
    xid, line = raw.fault()
    assert xid == 13 and "no cubin with this code was found" in line


def test_a_folder_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"HCQ_EMU_PTX=.*absent: is no folder"):
        Cubins(tmp_path / "absent").at(0, 0, "sm_90", lambda va, size_bytes: b"\1" * size_bytes)
