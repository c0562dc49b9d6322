"""Products of a warpgroup: matrices laid out by the manual's table of canonical layouts, products by NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx

HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n"
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
NUMBERS = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


def minifloats(fraction_bits: int, bias: int) -> np.ndarray:
    """The 256 numbers of an 8-bit format; the largest exponent's are as if it had no NaN."""
    found = []
    for code in range(256):
        exponent, low = (code & 127) >> fraction_bits, code % (1 << fraction_bits)
        whole = low + (1 << fraction_bits) * (exponent > 0)
        found.append((-1) ** (code >> 7) * whole * 2.0 ** (max(exponent, 1) - bias - fraction_bits))
    return np.array(found)


E4M3, E5M2 = minifloats(3, 7), minifloats(2, 15)


def encoded(values: np.ndarray, kind: str) -> np.ndarray:
    """Small integers in a type's bits."""
    if kind in ("e4m3", "e5m2"):
        table = E4M3 if kind == "e4m3" else E5M2
        return np.array([int(np.flatnonzero(table == x)[0]) for x in values.reshape(-1)], np.uint8).reshape(
            values.shape
        )
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f16": np.float16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8}[kind])


class Layout:
    """Where (row, k) is, in bytes: the manual's canonical layouts, in elements of T = 16 bytes / element."""

    def __init__(self, rows: int, kind: str, major: str, swizzle: str, depth_bytes: int = 32) -> None:
        self.size = BYTES[kind]
        t, span = 16 // self.size, SPANS[swizzle] // self.size
        depth = depth_bytes // self.size
        self.swizzle = swizzle
        if major == "k":  # ((8,m),(T,2k)):((span,SBO),(1,T)), without a swizzle ((T,SBO),(1,LBO))
            stride = 8 * span
            leading = stride * (rows // 8) if swizzle == "none" else t
            self.at = lambda r, k: r % 8 * span + r // 8 * stride + k % t + k // t * leading
            count = leading * (depth // t) if swizzle == "none" else stride * (rows // 8)
        elif swizzle == "none":  # ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
            stride = 8 * t
            leading = stride * (rows // t)
            self.at = lambda r, k: r % t + r // t * stride + k % 8 * t + k // 8 * leading
            count = leading * (depth // 8)
        else:  # ((T,span/T,m),(8,k)):((1,T,LBO),(span,SBO))
            stride = 8 * span
            leading = stride * (depth // 8)
            self.at = lambda r, k: r % span + r // span * leading + k % 8 * span + k // 8 * stride
            count = leading * -(-rows // span)
        self.leading, self.stride = leading * self.size, stride * self.size
        self.size_bytes = -(-count * self.size // 1024) * 1024

    def image(self, matrix: np.ndarray) -> np.ndarray:
        found = np.zeros(self.size_bytes // self.size, matrix.dtype)
        for r, k in itertools.product(*map(range, matrix.shape)):
            at = self.at(r, k) * self.size
            at ^= at >> 7 << 4 & {"none": 0, "32B": 16, "64B": 48, "128B": 112}[self.swizzle]
            found[at // self.size] = matrix[r, k]
        return found.view(np.uint8)

    @property
    def descriptor(self) -> int:
        leading = 1 if self.swizzle != "none" and self.leading == 16 else self.leading >> 4
        return leading << 16 | self.stride >> 4 << 32 | NUMBERS[self.swizzle] << 62


def kernel(
    shape, types, a_bytes, b_bytes, a_desc, b_desc, count, flags, a_registers=False, guard="", warps=4
):
    """D in place; A in registers comes from 4 words of each thread, else from shared memory."""
    text = [HEADER, ".visible .entry k(.param .u64 A, .param .u64 B, .param .u64 D) {"]
    text.append(f".shared .align 1024 .b8 tile[{a_bytes + b_bytes}];")
    text.append(
        f".reg .b32 %d<{count}>, %a<4>, %i, %at, %s, %w<4>; .reg .b64 %p<5>, %l, %h; .reg .pred %q, %one, %zero;"
    )
    text.append("mov.u32 %i, %tid.x; mov.u32 %s, tile; ld.param.u64 %p0, [A]; ld.param.u64 %p1, [B];")
    text.append("ld.param.u64 %p2, [D]; setp.eq.u32 %one, %i, %i; setp.ne.u32 %zero, %i, %i;")
    for name, size, start in (("%p0", 0 if a_registers else a_bytes, 0), ("%p1", b_bytes, a_bytes)):
        text.append(
            f"mul.lo.u32 %at, %i, 16; L{start}{name[1:]}: setp.ge.u32 %q, %at, {size}; @%q bra E{name[1:]};"
        )
        text.append(
            f"cvt.u64.u32 %l, %at; add.u64 %l, %l, {name}; ld.global.v4.u32 {{%w0, %w1, %w2, %w3}}, [%l];"
        )
        text.append(
            f"{{ .reg .b32 %to; add.u32 %to, %s, %at; st.shared.v4.u32 [%to+{start}], {{%w0, %w1, %w2, %w3}}; }}"
        )
        text.append(f"add.u32 %at, %at, 2048; bra L{start}{name[1:]}; E{name[1:]}:")
    text.append(f"mul.wide.u32 %l, %i, {4 * count}; add.u64 %p2, %p2, %l;")
    text += [f"ld.global.u32 %d{i}, [%p2+{4 * i}];" for i in range(count)]
    text.append("mul.wide.u32 %l, %i, 16; add.u64 %l, %l, %p0;")
    if a_registers:
        text.append("ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%l];")
    text.append("bar.sync 0; fence.proxy.async.shared::cta; shr.u32 %at, %s, 4; cvt.u64.u32 %l, %at;")
    text.append(f"or.b64 %p3, %l, {a_desc:#x}; add.u64 %l, %l, {a_bytes // 16}; or.b64 %p4, %l, {b_desc:#x};")
    text.append("wgmma.fence.sync.aligned;")
    a = "{%a0, %a1, %a2, %a3}" if a_registers else "%p3"
    d = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    text.append(f"wgmma.mma_async.sync.aligned.{shape}.{types} {d}, {a}, %p4, {flags};")
    text.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
    text += [f"st.global.u32 [%p2+{4 * i}], %d{i};" for i in range(count)]
    return "\n".join([*text, "ret; }"])


def fragment(matrix: np.ndarray, per_thread: int) -> np.ndarray:
    """(128, elements): the accumulators of each thread."""
    found = np.zeros((128, per_thread), matrix.dtype)
    for t, i in itertools.product(range(128), range(per_thread)):
        row = 16 * (t // 32) + t % 32 // 4 + (8 if i % 4 >= 2 else 0)
        found[t, i] = matrix[row, 8 * (i // 4) + t % 4 * 2 + i % 2]
    return found


def run(
    kinds, result, columns, majors=("k", "k"), swizzles=("128B", "128B"), scale=("%one", 1, 1), keeps=True
):
    rng = np.random.default_rng(7)
    depth = 32 // BYTES[kinds[0]]
    low = 0 if "u8" in kinds else -4
    a, b = rng.integers(low, 5, (64, depth)), rng.integers(low, 5, (columns, depth))
    c = rng.integers(-50, 50, (64, columns))
    layouts = [
        Layout(rows, kind, major, swizzle)
        for rows, kind, major, swizzle in zip((64, columns), kinds, majors, swizzles)
    ]
    images = [layout.image(encoded(x, kind)) for layout, x, kind in zip(layouts, (a, b), kinds)]
    dtype = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[result]
    d = fragment(c.astype(dtype), columns // 2)
    flags = [str(flag) for flag in scale]
    if result == "s32":
        flags = flags[:1]
    elif BYTES[kinds[0]] == 2:
        flags += ["0" if major == "k" else "1" for major in majors]
    words = d.itemsize * d.shape[1] // 4
    text = kernel(
        f"m64n{columns}k{depth}", f"{result}.{kinds[0]}.{kinds[1]}", len(images[0]), len(images[1]),
        layouts[0].descriptor, layouts[1].descriptor, words, ", ".join(flags),
    )  # fmt: skip
    run_ptx(text, "k", 1, 128, *images, d)
    sign = 1 if result == "s32" else scale[1] * scale[2]
    wanted = sign * (a @ b.T) + (c if keeps else 0)
    assert (d == fragment(wanted.astype(dtype), columns // 2)).all()
    return text


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("majors", list(itertools.product("km", "kn")))
def test_halves_are_multiplied_from_every_canonical_layout(swizzle, majors):
    run(("f16", "f16"), "f32", 128, majors, (swizzle, swizzle))


@pytest.mark.parametrize(
    "kinds, result",
    [
        (("bf16", "bf16"), "f32"), (("tf32", "tf32"), "f32"), (("f16", "f16"), "f16"), (("s8", "u8"), "s32"),
        (("u8", "u8"), "s32"), (("e4m3", "e5m2"), "f32"), (("e5m2", "e4m3"), "f16"), (("e4m3", "e4m3"), "f32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_every_type_is_multiplied(kinds, result, swizzle):
    run(kinds, result, 32, swizzles=(swizzle, "32B"))


@pytest.mark.parametrize("columns", [8, 24, 72, 256])
def test_products_have_8_to_256_columns(columns):
    run(("bf16", "bf16"), "f32", columns, ("k", "n"))


def test_operands_are_negated_and_accumulators_forgotten_as_the_instruction_says():
    run(("f16", "f16"), "f32", 16, scale=("%one", -1, 1))
    run(("f16", "f16"), "f32", 16, scale=("%one", -1, -1))
    run(("f16", "f16"), "f32", 16, scale=("%zero", 1, -1), keeps=False)


def a_place(t: int, i: int, run_length: int) -> tuple[int, int]:
    """The fragment of mma.m16n8, in each warp: (row, depth) of the i-th element of a thread."""
    register, lane = i // run_length, t % 32
    row = 16 * (t // 32) + lane // 4 + 8 * (register % 2)
    return row, lane % 4 * run_length + i % run_length + register // 2 * 4 * run_length


@pytest.mark.parametrize("kind, result", [("f16", "f32"), ("tf32", "f32"), ("s8", "s32"), ("e4m3", "f32")])
def test_matrix_a_may_come_from_registers(kind, result):
    rng = np.random.default_rng(3)
    depth, per_register = 32 // BYTES[kind], 4 // BYTES[kind]
    a, b = rng.integers(-4, 5, (64, depth)), rng.integers(-4, 5, (16, depth))
    layout = Layout(16, kind, "k", "32B")
    bits = encoded(a, kind)
    registers = np.zeros((128, 4 * per_register), bits.dtype)
    for t, i in itertools.product(range(128), range(4 * per_register)):
        registers[t, i] = bits[a_place(t, i, per_register)]
    dtype = np.int32 if result == "s32" else np.float32
    d = np.zeros((128, 8), dtype)
    flags = "%one" if result == "s32" else "%one, 1, 1" + (", 0" if kind == "f16" else "")
    image = layout.image(encoded(b, kind))
    text = kernel(
        f"m64n16k{depth}", f"{result}.{kind}.{kind}", 0, len(image), 0, layout.descriptor, 8, flags, True
    )
    run_ptx(text, "k", 1, 128, registers, image, d)
    assert (d == fragment((a @ b.T).astype(dtype), 8)).all()


def plain_kernel(**options):
    layout = Layout(64, "f16", "k", "128B")
    descriptors = options.pop("descriptor", layout.descriptor)
    shape, types = options.pop("shape", "m64n8k16"), options.pop("types", "f32.f16.f16")
    return kernel(shape, types, 8192, 1024, layout.descriptor, descriptors, 4, "%one, 1, 1, 0, 0", **options)


def arrays():
    return np.zeros(8192, np.uint8), np.zeros(1024, np.uint8), np.zeros((128, 4), np.float32)


def test_a_warpgroup_of_which_a_warp_stays_away_is_reported():
    text = plain_kernel().replace("wgmma.fence", "setp.lt.u32 %q, %i, 96; wgmma.fence", 1)
    with pytest.raises(KernelFault, match="not all four warps of the warpgroup"):
        run_ptx(text, "k", 1, 96, *arrays())


def test_a_warp_that_ends_early_leaves_its_warpgroup_short():
    text = plain_kernel().replace("wgmma.fence", "setp.ge.u32 %q, %i, 96; @%q exit; wgmma.fence", 1)
    with pytest.raises(KernelFault, match="not all four warps of the warpgroup"):
        run_ptx(text, "k", 1, 128, *arrays())


def test_warps_of_a_warpgroup_that_come_at_different_times_wait_for_each_other():
    layout = Layout(64, "f16", "k", "128B")
    ones = np.ones((64, 16), np.float16)
    image, b = layout.image(ones), Layout(8, "f16", "k", "128B").image(ones[:8])
    late = (
        "mov.u32 %at, %i; W: setp.lt.u32 %q, %at, 32; @%q bra G; sub.u32 %at, %at, 1; bra W; G: wgmma.fence"
    )
    d = np.zeros((128, 4), np.float32)
    run_ptx(plain_kernel().replace("wgmma.fence", late, 1), "k", 1, 128, image, b, d)
    assert (d == 16).all()


def test_matrices_outside_of_shared_memory_are_refused_before_anything_is_read():
    a, b, d = arrays()
    with pytest.raises(
        KernelFault, match=r"load of a matrix at 0x.*the block's shared memory has 9216 bytes"
    ):
        run_ptx(plain_kernel(descriptor=1 << 62 | 0x3000), "k", 1, 128, a, b, d)


def test_a_base_offset_is_refused_by_name():
    with pytest.raises(KernelFault, match="base offset is not 0"):
        run_ptx(plain_kernel(descriptor=1 << 62 | 1 << 49), "k", 1, 128, *arrays())


@pytest.mark.parametrize(
    "change, why",
    [
        ({"shape": "m64n12k16"}, "no product with 12 columns"),
        ({"shape": "m64n8k32"}, "products of .f16 have k16"),
        ({"types": "f32.f16.bf16"}, "no product of .f16 and .bf16"),
        ({"types": "f16.bf16.bf16"}, "with a result of .f16"),
    ],
)
def test_products_that_do_not_exist_are_refused(change, why):
    with pytest.raises(PtxError, match=why):
        run_ptx(plain_kernel(**change), "k", 1, 128, *arrays())


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_text_of_these_tests():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    for kinds, result in ((("f16", "f16"), "f32"), (("s8", "u8"), "s32"), (("e4m3", "e5m2"), "f16")):
        assert link_ptx(run(kinds, result, 32), "sm_90a")


def test_registers_are_taken_and_given():
    lines = "setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.inc.sync.aligned.u32 232;"
    text = f"{HEADER}.visible .entry k() {{ {lines} ret; }}"
    run_ptx(text, "k", 1, 128)
    with pytest.raises(PtxError, match="multiple of 8 from 24 to 256"):
        run_ptx(text.replace("232", "233"), "k", 1, 128)
