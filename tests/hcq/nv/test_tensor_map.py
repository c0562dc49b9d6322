"""Tensor maps: what the maker refuses, what the bytes say, and kernels that take one as a parameter."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.nv import ptx
from hcq.nv.abi.tensor_map import ELEMENT_BYTES, ElementType, Fill, Swizzle, TensorMap
from hcq.nv.bundle import Bundle
from hcq.nv.cubin import Cubin
from hcq.nv.device import NvDevice
from hcq.nv.tensor_map import tile_bytes, tiled
from tests.hcq.emu.nv.shader.running import needs_nvrtc
from tests.hcq.nv.test_cubin import tool

Open = Callable[..., NvDevice]
ONE = st.tuples(
    st.integers(1, 1 << 32), st.integers(1, (1 << 36) - 1), st.integers(1, 256)
)  # dim, stride, box
SIZES = st.lists(ONE, min_size=1, max_size=5)


@given(
    SIZES,
    st.integers(0, (1 << 60) - 1),
    st.sampled_from(list(ElementType)),
    st.lists(st.integers(1, 8), min_size=5),
)
def test_a_map_says_what_it_was_made_of(sizes, address, element, steps):
    dims, strides, box = zip(*sizes)
    row = max(16 // ELEMENT_BYTES[element], box[0] // 16 * 16)
    box = (row, *box[1:])
    strides = tuple(16 * stride for stride in strides[1:])
    steps = tuple(steps[: len(dims)])
    data = tiled(16 * address, element, dims, strides, box, steps=steps)
    made = TensorMap.decode(np.frombuffer(data, np.uint32).tolist())
    assert len(data) == 128
    assert (made.global_address, made.element_type, made.rank) == (16 * address, element, len(dims))
    assert (made.dims, made.strides[1:], made.box, made.steps) == (dims, strides, box, steps)
    assert not made.unclaimed


RIGHT = {"tensor": 0x1000, "element": ElementType.F32, "dims": (8, 8), "strides": (32,), "box": (4, 8)}


@pytest.mark.parametrize(
    "change, why",
    [
        ({"tensor": 0x1008}, "tensor='0x1008'.*no multiple of 16"),
        ({"dims": ()}, "1 to 5 dimensions"),
        ({"dims": (1,) * 6}, "1 to 5 dimensions"),
        ({"dims": (8, 0)}, "expected 2 numbers from 1 to 4294967296"),
        ({"dims": (8, 8, 8)}, r"box=\(4, 8\).*expected 3 numbers from 1 to 256"),
        ({"strides": (40,)}, "40 is no multiple of 16"),
        ({"strides": (1 << 40,)}, "expected 1 numbers from 1 to 1099511627775"),
        ({"box": (4, 257)}, "expected 2 numbers from 1 to 256"),
        ({"box": (3, 8)}, "a row has 12 bytes, no multiple of 16"),
        ({"box": (16, 8), "swizzle": Swizzle.B32}, "more than the swizzle's span of 32"),
        ({"steps": (1, 9)}, "expected 2 numbers from 1 to 8"),
        ({"element": 11}, "expected one of ElementType"),
        ({"element": ElementType.S32, "fill": Fill.NAN}, "S32 has no NaN"),
        ({"element": ElementType.F16, "box": (8, 8), "is_tf32": True}, "F16 is no F32"),
    ],
)
def test_what_the_vendors_call_refuses_is_refused(change, why):
    assert len(tiled(**RIGHT)) == 128
    with pytest.raises(UsageError, match=why):
        tiled(**{**RIGHT, **change})


def test_a_tensor_that_is_longer_than_its_buffer_is_refused(open_nv: Open):
    dev = open_nv("sm_90")
    buffer = dev.alloc(4096)
    tiled(buffer, ElementType.F32, (32, 32), (128,), (32, 32))
    with pytest.raises(UsageError, match="the tensor ends at byte 4224 of a buffer of 4096"):
        tiled(buffer, ElementType.F32, (32, 33), (128,), (32, 32))


# -- the layout, from the vendor's assembler


REPLACE = """extern "C" __global__ void k{number}(void *p, unsigned long long v, unsigned n) {{
  asm volatile("tensormap.replace.tile.{field}.global.b1024.b{bits} [%0], {operands};"
               :: "l"(p), "{letter}"({value})); }}"""
STORE = re.compile(r"STG\.E(?:\.(64))? desc\[UR\d+\]\[R\d+\.64(?:\+(0x[0-9a-f]+))?\]")
SELECT = re.compile(r"LOP3\.LUT \w+, \w+, (0x[0-9a-f]+), \w+, 0xb8")
SHARED_WORDS = (64, 224, 416, 448)  # the first bits of words in which several fields are


NAMED = [("global_address", "%1", ("global_address", "unnamed_85")), ("rank", "%1", ("rank_less_1",))]
NAMED += [("global_dim", f"{i}, %1", (f"dim{i}_less_1",)) for i in range(5)]
NAMED += [("box_dim", f"{i}, %1", (f"box{i}_less_1",)) for i in range(5)]
NAMED += [("element_stride", f"{i}, %1", (f"step{i}_less_1",)) for i in range(5)]
NAMED += [("global_stride", f"{i}, %1", (f"stride_low{i}", f"stride_high{i}")) for i in range(4)]
NAMED += [("swizzle_mode", "0", ("swizzle", "unnamed_86")), ("fill_mode", "0", ("fill",))]
NAMED += [("elemtype", "0", ("element_type",)), ("interleave_layout", "0", ("interleave",))]


OF_SM_100 = ("swizzle_atomicity",)
NAMED += [("swizzle_atomicity", "0", ("swizzle_atomicity",))]


@functools.cache
def disassembled(arch: str) -> str:
    """A kernel for each form of tensormap.replace that the chip has, as machine code."""
    from hcq.nv.toolchain.nvrtc import compile_cuda

    source = ""
    for number, (field, operands, _) in enumerate(NAMED):
        if (field in OF_SM_100) != (arch == "sm_100a"):
            continue
        wide = field in ("global_address", "global_stride")
        bits, letter, value = (64, "l", "v") if wide else (32, "r", "n")
        source += REPLACE.format(
            number=number, field=field, bits=bits, operands=operands, letter=letter, value=value
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compile_cuda(source, arch).cubin)
        file.flush()
        command = [tool("nvdisasm"), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def written_by(number: int) -> set[int]:
    """The bits of a map that a kernel writes."""
    arch = "sm_100a" if NAMED[number][0] in OF_SM_100 else "sm_90a"
    shown = disassembled(arch).partition(f".text.k{number}:")[2].partition(".section")[0]
    masks = [int(mask, 16) for mask in SELECT.findall(shown)]
    found: set[int] = set()
    for width, at in STORE.findall(shown):
        start = 8 * int(at or "0", 16)
        for bit in range(64 if width else 32):
            if start not in SHARED_WORDS or any(mask >> bit & 1 for mask in masks):
                found.add(start + bit)
    return found


@needs_nvrtc
@pytest.mark.parametrize("number, names", [(i, names) for i, (_, _, names) in enumerate(NAMED)])
def test_fields_lie_where_the_vendors_assembler_writes_them(number, names):
    fields = [TensorMap.fields[name] for name in names]
    assert written_by(number) == {bit for field in fields for bit in range(field.low, field.high + 1)}


# -- maps as parameters


ACCUMULATORS = ", ".join(f"%{i}" for i in range(32))
OUTPUTS = ", ".join(f'"+f"(d[{i}])' for i in range(32))
PRODUCT = Path(__file__).parents[2] / "data" / "nv" / "product_sm_90a.cu"


@functools.cache
def compiled() -> tuple[str, bytes]:
    from hcq.nv.toolchain.nvrtc import compile_cuda

    defines = f'#define ACCUMULATORS "{ACCUMULATORS}"\n#define OUTPUTS {OUTPUTS}\n'
    made = compile_cuda(defines + PRODUCT.read_text(), "sm_90a")
    return made.ptx, made.cubin


@needs_nvrtc
@pytest.mark.parametrize("has_machine_code", [True, False])
def test_a_product_by_tma_and_wgmma_is_the_product_also_where_tiles_are_cut(open_nv: Open, has_machine_code):
    rows, columns, depth = 100, 132, 320
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-4, 5, (size, depth)).astype(np.float16) for size in (rows, columns))
    dev = open_nv("sm_90")
    text, cubin = compiled()
    program = dev.load(Bundle(cubin if has_machine_code else b"", text.encode()).pack(), "product")
    a, b, out, corners = (dev.alloc(size) for size in (x.nbytes, y.nbytes, 4 * rows * columns, 4096))
    a.write(x.tobytes()), b.write(y.tobytes()), out.write(bytes(out.size_bytes))
    maps = [
        tiled(buffer, ElementType.F16, (depth, size), (2 * depth,), (64, 64), swizzle=Swizzle.B128)
        for buffer, size in ((a, rows), (b, columns))
    ]
    whole = tiled(out, ElementType.F32, (columns, rows), (4 * columns,), (64, 64))
    assert tile_bytes((64, 64), ElementType.F16) == 64 * 64 * 2
    dev.run(program, [maps[0], corners, maps[1], whole, depth], grid=(3, 2, 1), block=(160, 1, 1))
    wanted = x.astype(np.float64) @ y.astype(np.float64).T
    found = np.frombuffer(out.read(), np.float32).reshape(rows, columns)
    assert (found == wanted).all()
    assert np.frombuffer(corners.read(), np.float32)[0] == wanted[0, 0]


@needs_nvrtc
def test_parameters_lie_where_machine_code_has_them():
    text, cubin = compiled()
    kernel = Cubin(cubin).kernels["product"]
    entry = ptx.read_module(text).entries["product"].based(kernel.param_base)
    mine = [(one.offset, one.size_bytes) for one in entry.parameters]
    assert mine == [
        (one.offset, one.size_bytes) for one in sorted(kernel.parameters, key=lambda one: one.ordinal)
    ]
    assert entry.param_bytes == kernel.param_bytes
    assert all((kernel.param_base + at) % 64 == 0 for at, size in mine if size == 128)
