"""Cubins of many kinds of kernels, for every architecture: each is read, linked, and compared with the vendor's tools.

The sources use what compilers turn into different sections, attributes and relocations: calls, function pointers,
jump tables, recursion, constant and shared memory of every kind, clusters, tensor cores, traps, templates.
"""

from __future__ import annotations

import random
import re
import struct
import subprocess
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.nv.bundle import Bundle
from hcq.nv.cubin import RECURSIVE_STACK_BYTES, Cubin
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc
from tests.hcq.nv.test_cubin import ARCHITECTURES, cubin_of, survives, tool

pytestmark = needs_nvrtc

HALVES = "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}"
SOURCES = {
    "calls": """
__device__ __noinline__ float f(float x, int n) { return n > 0 ? x * 2 : x / n; }
__device__ __noinline__ float g(float x, int n) { return f(x, n) + f(x, n + 1); }
extern "C" __global__ void calls(float *p, int n) { p[threadIdx.x] = g(p[threadIdx.x], n); }
""",
    "function pointers": """
typedef float (*Function)(float);
__device__ __noinline__ float a(float x) { return x + 1; }
__device__ __noinline__ float b(float x) { return x * 3; }
__device__ Function functions[2] = {a, b};
extern "C" __global__ void pointers(float *p, int n) { p[threadIdx.x] = functions[n & 1](p[threadIdx.x]); }
""",
    "a jump table": """
extern "C" __global__ void jumps(int *p, int n) {
  int r;
  switch (n) {
    case 0: r = p[1]; break;
    case 1: r = p[2] * p[3]; break;
    case 2: r = p[4] + 9; break;
    case 3: r = p[5] ^ p[1]; break;
    case 4: r = p[7]; break;
    case 5: r = p[8] * 7 + p[9]; break;
    case 6: r = p[10] / p[11]; break;
    case 7: r = p[2] % p[3]; break;
    default: r = 0;
  }
  p[threadIdx.x] = r;
}
""",
    "shared memory sized by the launch": """
extern __shared__ int sized[];
extern "C" __global__ void shared(int *p) {
  __shared__ int own[33];
  own[threadIdx.x & 31] = p[threadIdx.x];
  sized[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = sized[threadIdx.x ^ 1] + own[5];
}
""",
    "recursion": """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void recursion(int *p) { p[threadIdx.x] = fib(p[threadIdx.x]); }
""",
    "constants": """
__constant__ float weights[1000];
__constant__ double more[10] = {1, 2};
__device__ const int fixed[3] = {4, 5, 6};
extern "C" __global__ void constants(float *p, int n) { p[threadIdx.x] = weights[n] + more[n] + fixed[n]; }
""",
    "a large parameter": """
struct Large { int v[500]; };
extern "C" __global__ void large(const __grid_constant__ Large s, int *p) { p[threadIdx.x] = s.v[p[threadIdx.x]]; }
""",
    "double precision": """
extern "C" __global__ void doubles(double *p) { p[threadIdx.x] = sin(p[threadIdx.x]) / p[1] + sqrt(p[2]); }
""",
    "tensor cores": f"""
extern "C" __global__ void tensor(unsigned *p) {{
  float c[4] = {{}};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {HALVES};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
    : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]));
  p[threadIdx.x] = c[0];
}}
""",
    "a trap": 'extern "C" __global__ void trap(int *p) { if (p[0]) __trap(); }',
    "templates": """
template <int N> __global__ void kernel(int *p) { p[threadIdx.x] = N; }
template __global__ void kernel<3>(int *);
template __global__ void kernel<4>(int *);
""",
    "shuffles and atomics": """
extern "C" __global__ void sums(int *p) {
  int v = p[threadIdx.x];
  for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  if (threadIdx.x == 0) atomicAdd(p, v);
}
""",
}
CLUSTER = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(float *p) {
  p[threadIdx.x] *= 2;
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;");
}
"""
FULL = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\w+) SHARED:(\d+).*?CONSTANT\[0\]:(\d+)")
HEADER = re.compile(r"^\s*[0-9a-f]+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+.*?(\.\S+)$", re.MULTILINE)


def agrees_with_cuobjdump(image: bytes, path: Path) -> Cubin:
    """Kernels, registers, stack, shared memory and constant bank 0 as the vendor's tool reads them."""
    path.write_bytes(image)
    text = subprocess.run(
        [tool("cuobjdump"), "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    cubin = Cubin(image)
    told = {row[0]: row[1:] for row in FULL.findall(text)}
    assert set(told) == set(cubin.kernels)
    for name, (registers, stack, shared, bank0) in told.items():
        kernel = cubin.kernels[name]
        assert [kernel.registers, kernel.shared_bytes, kernel.bank0_bytes] == [
            int(registers),
            int(shared),
            int(bank0),
        ]
        assert kernel.is_recursive == (stack == "UNKNOWN")
        assert kernel.stack_bytes == (RECURSIVE_STACK_BYTES if kernel.is_recursive else int(stack))
    return cubin


@pytest.mark.sampled(24)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("what", SOURCES)
def test_the_vendors_tool_reads_the_same_from(what, arch, tmp_path):
    cubin = agrees_with_cuobjdump(cubin_of(arch, SOURCES[what]), tmp_path / "k.cubin")
    layout = cubin.layout()
    image = cubin.link(layout, 0x7_0000_0000)
    assert len(image) == layout.size_bytes


@pytest.mark.parametrize("arch", [arch for arch in ARCHITECTURES if int(arch[3:]) >= 90])
def test_a_cluster_is_read_with_its_shape(arch, tmp_path):
    cubin = agrees_with_cuobjdump(cubin_of(arch, CLUSTER), tmp_path / "k.cubin")
    assert cubin.kernels["cluster"].cluster == (2, 1, 1)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_function_pointers_in_memory_are_places_within_the_kernel_and_stay_so(arch):
    """The code calls them relative to its own start (CALL.REL), so linking leaves them as they are."""
    cubin = Cubin(cubin_of(arch, SOURCES["function pointers"]))
    layout = cubin.layout()
    image = cubin.link(layout, 0x7_0000_0000)
    section, offset, _ = cubin.variables()["functions"]
    found = struct.unpack_from("<2Q", image, layout.places[section].offset + offset)
    assert len(set(found)) == 2
    assert all(0 < place < cubin.kernels["pointers"].code_bytes and place % 16 == 0 for place in found)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_sections_are_those_that_the_vendors_tool_lists(arch, tmp_path):
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin_of(arch, SOURCES["constants"]))
    text = subprocess.run(
        [tool("cuobjdump"), "-elf", path], capture_output=True, text=True, check=True
    ).stdout
    table = text[text.index(".shstrtab") - 200 :]
    sizes = {
        name: int(size, 16)
        for _, size, name in HEADER.findall(table)
        if name.startswith((".text", ".nv.const"))
    }
    assert sizes
    cubin = Cubin(path.read_bytes())
    for name, size in sizes.items():
        assert len(cubin.contents(name)) == size


@pytest.mark.parametrize("what", ["calls", "recursion", "function pointers"])
def test_kernels_with_functions_say_so(what):
    kernel = next(iter(Cubin(cubin_of("sm_90", SOURCES[what])).kernels.values()))
    assert kernel.has_functions
    assert not Cubin(cubin_of("sm_90", SOURCES["double precision"])).kernels["doubles"].has_functions


@needs_nvjitlink
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_of_our_own_compilers_are_read_as_the_vendors_tool_reads_them(arch, tmp_path):
    """From PTX of LLVM by nvJitLink, and from CUDA C by nvrtc: the parameters are 8 bytes each, in order."""
    from hcq.compiler.codegen import compile_with
    from hcq.compiler.compile import compile_kernel
    from hcq.compiler.target import Toolchain, nv_target
    from hcq.nv.toolchain import images
    from tests.compiler.building import kernel, matmul, out, param

    sink = kernel((out(0, (9, 1, 11)), matmul(param(1, (9, 13)), param(2, (13, 11)))))
    for takes, make in (("ptx", images.of_ptx), ("cuda", images.of_cuda)):
        code = compile_kernel(sink, compile_with(nv_target(arch), Toolchain("cubins", takes, make)))
        cubin = agrees_with_cuobjdump(Bundle.of(code.image).cubin, tmp_path / f"{takes}.cubin")
        found = cubin.kernels[code.entry]
        assert cubin.arch == arch
        assert [(p.offset, p.size_bytes) for p in found.parameters] == [(0, 8), (8, 8), (16, 8)]
        assert found.max_threads[0] == code.block[0]
        cubin.link(cubin.layout([code.entry]), 0x7_0000_0000)


DIVIDES = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry divides(.param .u64 out, .param .f32 a, .param .f32 b) {
  .reg .b64 %p; .reg .f32 %a, %b, %q;
  ld.param.u64 %p, [out]; ld.param.f32 %a, [a]; ld.param.f32 %b, [b];
  div.rn.f32 %q, %a, %b;
  st.global.f32 [%p], %q;
  ret;
}
.visible .entry other(.param .u64 out) { ret; }
"""


@needs_nvjitlink
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_calls_of_functions_in_sections_of_their_own_reach_them(arch, tmp_path):
    """nvJitLink keeps the slow path of a division apart and calls it by address: R_CUDA_ABS47_34, ABS55_16_34."""
    from hcq.nv.toolchain import nvjitlink

    cubin = agrees_with_cuobjdump(nvjitlink.link_ptx(DIVIDES, arch), tmp_path / "k.cubin")
    layout, base = cubin.layout(["divides"]), 0x12_3456_7800
    image = cubin.link(layout, base)
    assert ".text.other" not in layout.places
    assert not cubin.kernels[
        "divides"
    ].has_functions  # the compiler's own: it needs no stack of a guessed size
    called = [name for name in layout.places if name.startswith(".text.") and name != ".text.divides"]
    assert len(called) == 1
    code = layout.places[".text.divides"]
    raw = tmp_path / "raw.bin"
    raw.write_bytes(image[code.offset : code.offset + code.size_bytes])
    told = subprocess.run(
        [tool("nvdisasm"), "-b", arch.upper().replace("_", ""), raw],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    addresses = [int(found, 16) for found in re.findall(r"CALL\.ABS\.NOINC (0x[0-9a-f]+)", told)]
    assert addresses == [base + layout.places[called[0]].offset]
    low, high = re.findall(r"MOV R2[01], (0x[0-9a-f]+)", told)[-2:]
    returns_to = int(high, 16) << 32 | int(low, 16)
    assert code.offset < returns_to - base < code.offset + code.size_bytes


@needs_nvjitlink
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_damage_to_the_relocations_of_calls_never_crashes_the_loader(arch):
    from hcq.nv.toolchain import nvjitlink

    image = nvjitlink.link_ptx(DIVIDES, arch)
    rng = random.Random(11)
    places = [
        at
        for at in range(len(image) - 8)
        if image[at] in (56, 57, 58, 75) and image[at + 1 : at + 4] == bytes(3)
    ]
    outcomes = set()
    for _ in range(400):
        damaged = bytearray(image)
        at = rng.choice(places) + rng.randrange(-8, 16)
        damaged[at] ^= 1 << rng.randrange(8)
        outcomes.add(survives(bytes(damaged)))
    assert outcomes == {"refused", "parsed"}


def test_an_impossible_stack_is_refused():
    image = bytearray(cubin_of("sm_90", SOURCES["calls"]))
    at = image.find(b"\x04\x12\x08\x00")  # EIFMT_SVAL, EIATTR_MIN_STACK_SIZE, 8 bytes: symbol, size
    assert at > 0
    image[at + 8 : at + 12] = struct.pack("<I", 1 << 30)
    with pytest.raises(UsageError, match="wants a stack of 1073741824 bytes"):
        Cubin(bytes(image))
