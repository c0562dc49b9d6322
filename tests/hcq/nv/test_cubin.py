"""Cubins of every architecture, compiled in the test: what we read, what the vendor's tools read, what damage does."""

from __future__ import annotations

import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.nv.cubin import Cubin, CubinKernel
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc

ARCHITECTURES = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
SOURCE = """
__constant__ int table[4] = {1, 2, 3, 4};
__device__ int number = 5;
__device__ int zeros[10];
__device__ int *where = &number;
struct Big { int a; double b[3]; char c; };
extern "C" __global__ void __launch_bounds__(128) busy(float *out, int n, double d, Big big) {
  __shared__ float tile[100];
  tile[threadIdx.x] = out[n];
  __syncthreads();
  float mine[200];
  for (int i = 0; i < 200; i++) mine[i] = tile[i % 100] + n;
  for (int i = 0; i < n; i++) mine[(i * 7) % 200] += mine[(i * 3) % 200];
  asm volatile("bar.sync 3;");
  out[n] = mine[n & 15] + table[n & 3] + *where + zeros[n] + d + big.b[1] + big.c;
}
extern "C" __global__ void idle() {}
extern "C" __global__ void many(MANY) { a0[0] = a59[0]; }
""".replace("MANY", ", ".join(f"int *a{i}" for i in range(60)))


def cubin_of(arch: str, source: str = SOURCE) -> bytes:
    from hcq.nv.toolchain import nvrtc

    try:
        nvrtc.library()
    except UsageError:
        pytest.skip("needs nvrtc: pip install 'hcq[nv]'")
    if int(arch[3:]) not in nvrtc.supported_architectures():
        pytest.skip(f"this nvrtc does not know {arch}")
    key = (arch, source)
    if key not in _KEPT:
        _KEPT[key] = nvrtc.compile_cuda(source, arch).cubin
    return _KEPT[key]


_KEPT: dict[tuple[str, str], bytes] = {}


def tool(name: str) -> str:
    """A program of the CUDA toolkit: on the PATH, or in its pip wheel."""
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
        for path in Path(root).glob(f"*/bin/{name}"):
            return str(path)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: pip install nvidia-cuda-{name}")
    return found


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_kernel_says_what_its_launch_needs(arch):
    cubin = Cubin(cubin_of(arch))
    assert cubin.arch == arch
    assert set(cubin.kernels) == {"busy", "idle", "many"}
    busy, idle, many = (cubin.kernels[name] for name in ("busy", "idle", "many"))
    base = 0x160 if arch < "sm_9" and len(arch) == 5 else (0x210 if arch == "sm_90" else 0x380)
    assert [tuple(p) for p in busy.parameters] == [(0, 0, 8), (1, 8, 4), (2, 16, 8), (3, 24, 40)]
    assert (busy.param_base, busy.param_bytes, busy.bank0_bytes) == (base, 64, base + 64)
    assert busy.max_threads == (128, 1, 1)
    assert busy.barriers == 4
    assert busy.stack_bytes >= 800
    assert busy.shared_bytes == 400 + (0x400 if int(arch[3:]) >= 90 else 0)
    assert (idle.param_base, idle.parameters, idle.barriers, idle.shared_bytes) == (0, [], 0, 0)
    assert [p.offset for p in many.parameters] == [8 * i for i in range(60)]
    assert 0 < busy.registers < 256


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_vendors_tool_reads_the_same_resources(arch, tmp_path):
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin_of(arch))
    text = subprocess.run(
        [tool("cuobjdump"), "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    cubin = Cubin(path.read_bytes())
    told = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+).*?CONSTANT\[0\]:(\d+)", text)
    assert {row[0] for row in told} == set(cubin.kernels)
    for name, registers, stack, shared, bank0 in told:
        kernel = cubin.kernels[name]
        assert (kernel.registers, kernel.shared_bytes, kernel.bank0_bytes) == (
            int(registers),
            int(shared),
            int(bank0),
        )
        assert kernel.stack_bytes == int(stack)


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_vendors_disassembler_finds_as_much_code(arch, tmp_path):
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin_of(arch))
    text = subprocess.run([tool("nvdisasm"), "-c", path], capture_output=True, text=True, check=True).stdout
    for name, kernel in Cubin(path.read_bytes()).kernels.items():
        part = text[text.index(f".text.{name}:") :]
        part = part[: part.find("\n.section", 10)] if "\n.section" in part[10:] else part
        last = re.findall(r"/\*([0-9a-f]{4,})\*/\s+[A-Z@]", part.split("//---")[0])[-1]
        assert kernel.code_bytes - 16 == int(last, 16)


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_linking_writes_addresses_where_the_relocations_are(arch):
    cubin = Cubin(cubin_of(arch))
    layout = cubin.layout()
    base = 0x7_1234_5000
    image = cubin.link(layout, base)
    assert len(image) == layout.size_bytes
    ranges = sorted((p.offset, p.offset + p.size_bytes) for p in layout.places.values())
    assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:]))
    variables = cubin.variables()

    def va(name: str) -> int:
        section, offset, _ = variables[name]
        return base + layout.places[section].offset + offset

    at = va("where") - base
    assert struct.unpack_from("<Q", image, at)[0] == va("number")
    assert struct.unpack_from("<I", image, va("number") - base)[0] == 5
    assert struct.unpack_from("<4I", image, va("table") - base) == (1, 2, 3, 4)
    bank = layout.places[".nv.constant4"]
    addresses = struct.unpack_from(f"<{bank.size_bytes // 8}Q", image, bank.offset)
    assert va("zeros") in addresses
    for kernel in cubin.kernels.values():
        place = layout.places[kernel.code]
        assert place.offset % 128 == 0
        assert image[place.offset : place.offset + place.size_bytes] == cubin.contents(kernel.code)


@needs_nvrtc
def test_only_the_kernels_asked_for_are_placed():
    layout = Cubin(cubin_of("sm_90")).layout(["idle"])
    assert ".text.idle" in layout.places
    assert ".text.busy" not in layout.places
    with pytest.raises(UsageError, match=r"no kernel 'nobody'; it has \w+, \w+, \w+"):
        Cubin(cubin_of("sm_90")).layout(["nobody"])


@needs_nvrtc
def test_a_kernel_that_needs_the_device_runtime_is_refused_by_name():
    source = 'extern "C" __global__ void talk(int n) { printf("%d", n); }'
    cubin = Cubin(cubin_of("sm_90", source))
    assert cubin.kernels["talk"].runtime_calls == ["vprintf"]
    with pytest.raises(UsageError, match="it calls 'vprintf', a function of the device runtime"):
        cubin.link(cubin.layout(), 0x1000)


@needs_nvrtc
@needs_nvjitlink
def test_ptx_becomes_a_cubin_with_the_same_parameters():
    from hcq.nv.toolchain import nvjitlink, nvrtc

    ptx = nvrtc.compile_cuda(SOURCE, "compute_80").ptx
    busy = Cubin(nvjitlink.link_ptx(ptx, "sm_90")).kernels["busy"]
    assert [p.size_bytes for p in busy.parameters] == [8, 4, 8, 40]


def test_a_cubin_of_ptxas_12_is_read_as_well():
    """Another ABI version: the architecture is in other bits, the barriers in the flags of the code's section."""
    path = Path(__file__).parents[2] / "data" / "nv" / "scale_sm_80_ptxas_12.8.cubin"
    cubin = Cubin(path.read_bytes())
    scale = cubin.kernels["scale"]
    assert (cubin.arch, cubin.abi) == ("sm_80", 7)
    assert (scale.registers, scale.barriers, scale.shared_bytes, scale.code_bytes) == (10, 3, 256, 512)
    assert (scale.param_base, [tuple(p) for p in scale.parameters]) == (0x160, [(0, 0, 8), (1, 8, 4)])
    assert scale.max_threads == (64, 1, 1)


@pytest.mark.parametrize("attribute, number, value, why", [
    (0x05, 0, 0, "a block of at most"),
    (0x05, 1, 1 << 20, "a block of at most"),
    (0x17, 1, 0x0000_0001, "begins inside of the one before it"),
    (0x17, 1, 0x00F0_0001, "ends at byte"),
    (0x17, 1, 0x0008_0007, "has no parameter"),
])  # fmt: skip
def test_an_attribute_that_makes_no_sense_is_refused_with_the_kernels_name(attribute, number, value, why):
    path = Path(__file__).parents[2] / "data" / "nv" / "scale_sm_80_ptxas_12.8.cubin"
    image = bytearray(path.read_bytes())
    places = [found.start() + 4 for found in re.finditer(bytes((4, attribute, 12, 0)), image)]
    at = next(
        place for place in places if attribute != 0x17 or image[place + 4 : place + 6] == b"\1\0"
    )  # of parameter 1
    struct.pack_into("<I", image, at + 4 * number, value)
    with pytest.raises(UsageError, match=f"load\\('cubin'\\): .*scale.* {why}|{why}.*of scale"):
        Cubin(bytes(image))


@needs_nvrtc
def test_something_else_is_not_a_cubin():
    with pytest.raises(UsageError, match="fewer than an ELF header"):
        Cubin(b"\x7fELF")
    elf = bytearray(cubin_of("sm_90"))
    elf[18:24] = struct.pack("<HI", 62, 1)
    with pytest.raises(UsageError, match="an object for x86_64, not a cubin"):
        Cubin(bytes(elf))
    elf = bytearray(cubin_of("sm_90"))
    elf[16:18] = (1).to_bytes(2, "little")
    with pytest.raises(UsageError, match="link it first with nvJitLink"):
        Cubin(bytes(elf))


def survives(image: bytes) -> str:
    """Parse and link a damaged cubin: it works, or it is refused with a sentence."""
    try:
        cubin = Cubin(image)
        layout = cubin.layout()
        if layout.size_bytes < 1 << 24:
            cubin.link(layout, 0x10000)
    except UsageError as refusal:
        assert str(refusal).startswith("load('cubin'): ")
        return "refused"
    for kernel in cubin.kernels.values():
        assert isinstance(kernel, CubinKernel)
        assert 0 < kernel.registers < 256
        assert all(p.offset + p.size_bytes <= kernel.param_bytes for p in kernel.parameters)
    return "parsed"


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_truncated_cubins_are_refused(arch):
    image = cubin_of(arch)
    table_end = max(struct.unpack_from("<Q", image, 40)[0] + 64 * struct.unpack_from("<H", image, 60)[0], 0)
    for length in range(0, len(image), 97):
        if length < table_end:
            assert survives(image[:length]) == "refused"
        else:
            survives(image[:length])


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_flipped_bits_never_crash_the_loader(arch):
    image = cubin_of(arch)
    rng = random.Random(5)
    outcomes = {"refused": 0, "parsed": 0}
    sections = struct.unpack_from("<Q", image, 40)[0]
    for trial in range(600):
        damaged = bytearray(image)
        low, high = (
            (0, 64) if trial % 3 == 0 else ((sections, len(image)) if trial % 3 == 1 else (64, len(image)))
        )
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(low, max(high, low + 1)) % len(image)
            damaged[at] ^= 1 << rng.randrange(8)
        outcomes[survives(bytes(damaged))] += 1
    assert outcomes["refused"] > 20
    assert outcomes["parsed"] > 20
