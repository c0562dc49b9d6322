"""Raw use, without tensors: load an object (from LLVM, from a C compiler), bind buffers, dispatch, wait."""

from __future__ import annotations

import array
import dataclasses
import math
import random
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hcq
from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.memory import Buffer
from tests.hcq.conftest import assemble


def int64s(buffer: Buffer, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}q", buffer.read(0, 8 * count)))


def doubles(buffer: Buffer, count: int) -> list[float]:
    return list(struct.unpack(f"<{count}d", buffer.read(0, 8 * count)))


def test_the_example_of_the_readme_runs(cpu: CpuDevice, llvm_object: bytes) -> None:
    prog = cpu.load(llvm_object, "add_one")
    out, a = cpu.alloc(4096), cpu.alloc(4096)
    a.write(array.array("f", range(1024)))
    q = cpu.queue()
    q.dispatch(prog, [out, a, 1024], grid=(1, 1, 1), block=(1, 1, 1))
    done = q.submit()
    done.wait(timeout_ms=50_000)
    assert array.array("f", out.read()) == array.array("f", range(1, 1025))
    a.write(array.array("f", [41.0]))
    cpu.run(prog, [out, a, 1], grid=(1, 1, 1), block=(1, 1, 1))
    assert array.array("f", out.read(0, 4))[0] == 42


def test_functions_of_an_object_call_each_other(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(8)
    cpu.run(cpu.load(llvm_object, "functions"), [out, 10])
    assert int64s(out, 1) == [40]


def test_constants_of_an_object_are_found(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(8)
    program = cpu.load(llvm_object, "constants")
    seen = []
    for index in range(4):
        cpu.run(program, [out, index])
        seen += int64s(out, 1)
    assert seen == [10, 20, 30, 40]


def test_static_data_and_zeroed_data_keep_their_values_between_launches(
    cpu: CpuDevice, llvm_object: bytes
) -> None:
    out = cpu.alloc(16)
    program = cpu.load(llvm_object, "static_data")
    seen = []
    for _ in range(3):
        cpu.run(program, [out])
        seen.append(int64s(out, 2))
    assert seen == [[5, 0], [6, 100], [7, 200]]
    cpu.run(cpu.load(llvm_object, "static_data"), [out])
    assert int64s(out, 2) == [5, 0]  # another load has data of its own


def test_jump_tables_work(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(16)
    program = cpu.load(llvm_object, "jump", args=("buffer", "int"))
    seen = []
    for index in range(7):
        cpu.run(program, [out, index])
        seen += int64s(out, 1)
    assert seen == [4, 111, 222, 243, 30, 555, -1]


def test_libm_functions_may_be_undefined(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(4)
    cpu.run(cpu.load(llvm_object, "math"), [out, 1.25])
    assert struct.unpack("<f", out.read())[0] == pytest.approx(math.sin(1.25), rel=1e-6)


def test_arguments_beyond_the_integer_registers_go_on_the_stack(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(32)
    cpu.run(cpu.load(llvm_object, "many_ints"), [out, 1, 2, 3, 4, -5, 6, 7, 8, -9])
    assert int64s(out, 4) == [1, -5, 6, -9]


def test_arguments_beyond_the_float_registers_go_on_the_stack(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(32)
    cpu.run(cpu.load(llvm_object, "many_floats"), [out, *(float(n) + 0.5 for n in range(10))])
    assert doubles(out, 4) == [0.5, 7.5, 8.5, 9.5]


def test_mixed_arguments_and_the_group_behind_them_arrive(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(32)
    args = [out, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25]
    cpu.run(cpu.load(llvm_object, "mixed"), args)
    assert doubles(out, 2) == [1.5, 9.25]
    assert int64s(out, 4)[2:] == [88, 1]


def store_all(kinds: str) -> str:
    """A kernel that stores each of its arguments, and its group's `last`, into its first."""
    types = {"i": "i64", "f": "double"}
    parameters = ", ".join(f"{types[kind]} %a{index}" for index, kind in enumerate(kinds))
    lines = [f"define void @store_all(ptr %out{', ' * bool(kinds)}{parameters}, ptr %group) {{"]
    for index, kind in enumerate(kinds):
        lines.append(f"  %p{index} = getelementptr i64, ptr %out, i64 {index}")
        lines.append(f"  store {types[kind]} %a{index}, ptr %p{index}")
    lines.append(f"  %q = getelementptr i64, ptr %out, i64 {len(kinds)}")
    lines.append("  %g = getelementptr i64, ptr %group, i64 1")
    lines.append("  %last = load i64, ptr %g")
    lines.append("  store i64 %last, ptr %q")
    return "\n".join([*lines, "  ret void", "}"])


@settings(max_examples=60, deadline=None)
@given(kinds=st.text("if", max_size=40), seed=st.integers(0, 2**32))
def test_arguments_of_any_signature_arrive(kinds: str, seed: int) -> None:
    """A second opinion on the calling convention: LLVM places the parameters, we place the arguments."""
    device = hcq.open("CPU")
    rng = random.Random(seed)
    args = [rng.randrange(-(2**63), 2**63) if kind == "i" else rng.uniform(-1e9, 1e9) for kind in kinds]
    out = device.alloc(8 * len(kinds) + 8)
    program = device.load(assemble(store_all(kinds)), "store_all")
    device.run(program, [out, *args], grid=(3, 1, 1), block=(1, 1, 1))
    layout = "<" + "".join("q" if kind == "i" else "d" for kind in kinds) + "q"
    *seen, last = struct.unpack(layout, out.read())
    assert seen == args
    assert last in (1, 2, 3)


@pytest.mark.parametrize("value", [-(2**63), -1, 2**63 - 1, 2**63, 2**64 - 1])
def test_integers_of_64_bits_arrive_signed_or_unsigned(
    cpu: CpuDevice, llvm_object: bytes, value: int
) -> None:
    out = cpu.alloc(32)
    cpu.run(cpu.load(llvm_object, "many_ints"), [out, value, 0, 0, 0, 0, 0, 0, 0, value])
    assert int64s(out, 4)[0] % 2**64 == value % 2**64
    assert int64s(out, 4)[3] % 2**64 == value % 2**64


def test_an_int_is_taken_for_a_float_parameter(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(4)
    cpu.run(cpu.load(llvm_object, "math", args=("buffer", "float")), [out, 0])
    assert out.read() == bytes(4)


@pytest.mark.parametrize("grid", [(1, 1, 1), (2, 1, 1), (7, 3, 5), (1, 1, 997), (4096, 1, 1), (100, 10, 10)])
@pytest.mark.parametrize("groups_per_claim", [0, 1, 13, 10**9])
def test_every_group_runs_exactly_once(
    four_threads: CpuDevice, llvm_object: bytes, grid: tuple[int, int, int], groups_per_claim: int
) -> None:
    groups = math.prod(grid)
    counts = four_threads.alloc(4 * groups)
    counts.write(bytes(4 * groups))
    program = four_threads.load(llvm_object, "cover", args=("buffer",))
    queue = four_threads.queue()
    for _ in range(25):
        queue.dispatch(program, [counts], grid=grid, groups_per_claim=groups_per_claim)
    queue.submit().wait()
    assert set(array.array("i", counts.read())) == {25}


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_group_runs_exactly_once_on_any_number_of_threads(llvm_object: bytes, threads: int) -> None:
    device = CpuDevice("CPU:n", config=dataclasses.replace(config.current(), threads=threads))
    program = device.load(llvm_object, "cover", args=("buffer",))
    counts = device.alloc(4 * 300)
    counts.write(bytes(4 * 300))
    expected = [0] * 300
    rng = random.Random(threads)
    for _ in range(100):
        queue = device.queue()
        for _ in range(rng.randrange(1, 20)):
            groups = rng.choice((1, 2, 3, 17, 64, 300))
            queue.dispatch(program, [counts], grid=(groups, 1, 1), groups_per_claim=rng.choice((0, 0, 1, 2)))
            for index in range(groups):
                expected[index] += 1
        done = queue.submit()
        if rng.random() < 0.5:
            done.wait()
    assert list(array.array("i", counts.read())) == expected
    device.close()


def test_the_group_structure_says_where_a_call_is_and_gives_scratch_memory(
    cpu: CpuDevice, llvm_object: bytes
) -> None:
    out = cpu.alloc(64)
    program = cpu.load(llvm_object, "group_facts", scratch_bytes=10_000)
    cpu.run(program, [out], grid=(1, 1, 1))
    first, last, x, y, z, scratch, scratch_bytes, worker = int64s(out, 8)
    assert (first, last, x, y, z, scratch_bytes, worker) == (0, 1, 1, 1, 1, 10_000, 0)
    assert scratch != 0
    assert scratch % 64 == 0
    bigger = cpu.load(llvm_object, "group_facts", scratch_bytes=5_000_000)
    cpu.run(bigger, [out], grid=(1, 1, 1))
    assert int64s(out, 8)[6] == 5_000_000
    cpu.run(program, [out], grid=(1, 1, 1))
    assert int64s(out, 8)[6] == 10_000


C_SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
static const double weights[4] = {0.5, 1.5, 2.5, 3.5};
static int64_t calls;
static const char *const names[3] = {"one", "three", "fifteen"};
int64_t visible = 3;
int64_t other_visible;
__attribute__((noinline)) static double weigh(int64_t i) { return weights[i & 3] * visible; }
__attribute__((noinline)) int64_t length(int64_t i) {  // a loop that GCC makes strlen of
  int64_t n = 0;
  for (const char *at = names[i % 3]; *at; at++) n++;
  return n;
}
struct hcq_group { int64_t first, last, grid_x, grid_y, grid_z; void *scratch; int64_t scratch_bytes, worker; };
void kernel(double *out, int64_t *in, int64_t n, double scale, int mode_is_low_half_of_a_slot) {
  calls++;
  other_visible += 2;
  for (int64_t i = 0; i < n; i++) {
    switch (in[i]) {
      case 0: out[i] = weigh(i); break;
      case 1: out[i] = sin(scale); break;
      case 2: out[i] = (double)length(i); break;
      case 3: out[i] = pow(scale, 3.0); break;
      case 4: out[i] = (double)calls; break;
      case 5: out[i] = (double)other_visible; break;
      case 6: { char big[300]; memset(big, (int)i, sizeof big); memcpy(out + i, big, 8); out[i] = big[299]; break; }
      case 7: out[i] = fmaf(1.5f, 2.0f, (float)scale); break;
      default: out[i] = mode_is_low_half_of_a_slot;
    }
  }
}
"""
EXPECTED = [1.5, math.sin(2.0), len("fifteen"), 8.0, 1.0, 2.0, 6.0, 5.0, 77.0]


@pytest.mark.parametrize(
    "flags",
    [
        ("-c", "-O2"),
        ("-c", "-O0"),
        ("-c", "-O3", "-fPIC"),
        ("-c", "-O2", "-fno-pic", "-fno-pie"),
        ("-c", "-O2", "-fno-plt"),
        ("-c", "-O2", "-fcommon"),
        ("-c", "-O2", "-ffunction-sections", "-fdata-sections"),
        ("-c", "-O2", "-g"),
        ("-c", "-O2", "-fstack-protector-all", "-D_FORTIFY_SOURCE=2"),
        ("-c", "-O0", "-mcmodel=large"),
        ("-shared", "-fPIC", "-O2"),
        ("-shared", "-fPIC", "-O2", "-Wl,-z,now"),
        ("-shared", "-fPIC", "-O2", "-Wl,-z,pack-relative-relocs"),
    ],
    ids=" ".join,
)
def test_objects_of_a_c_compiler_run(
    cpu: CpuDevice, compile_c: Callable[..., bytes], flags: tuple[str, ...]
) -> None:
    try:
        image = compile_c(C_SOURCE, *flags)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this compiler does not take {flags}: {error.stderr.decode()[:200]}")
    if "-mcmodel=large" in flags:
        with pytest.raises(UsageError, match=r"relocation type .* is not one that plain C needs"):
            cpu.load(image, "kernel")
        return
    program = cpu.load(image, "kernel", args=("buffer", "buffer", "int", "float", "int"))
    out, modes = cpu.alloc(8 * 9), cpu.alloc(8 * 9)
    modes.write(struct.pack("<9q", *range(9)))
    cpu.run(program, [out, modes, 9, 2.0, 77])
    assert doubles(out, 9) == pytest.approx(EXPECTED)


def test_an_undefined_symbol_is_named(cpu: CpuDevice, compile_c: Callable[..., bytes]) -> None:
    source = 'int printf(const char *, ...); void other(void); void k(void *a) { other(); printf("%p", a); }'
    for flags in (("-c", "-O2"), ("-c", "-O0"), ("-shared", "-fPIC")):
        with pytest.raises(UsageError, match=r"undefined symbol .*'other'"):
            cpu.load(compile_c(source, *flags), "k")
    with pytest.raises(UsageError, match=r"undefined symbol .*'printf'"):
        cpu.load(compile_c(source, "-c", "-O2"), "k")


UNREACHED = """
void other(void);
int printf(const char *, ...);
static int once(int x) { return x + 1; }
__attribute__((noinline)) int helps(int x) { return once(x) * 2; }
int (*table[1])(int) = {helps};
void report(void *a) { other(); printf("%p", a); }
int (*unused)(const char *, ...) = printf;
void k(int *a) { a[0] = table[0](a[0]); }
void l(int *a) { report(a); }
"""


def test_what_the_entry_does_not_reach_may_need_what_nobody_has(
    cpu: CpuDevice, compile_c: Callable[..., bytes]
) -> None:
    image = compile_c(UNREACHED, "-c", "-O2", "-fPIC", "-ffunction-sections", "-fdata-sections")
    buffer = cpu.alloc(4)
    buffer.write(struct.pack("<i", 20))
    cpu.run(cpu.load(image, "k"), [buffer])
    assert struct.unpack("<i", buffer.read()) == (42,)


@pytest.mark.parametrize(
    "flags", [("-ffunction-sections",), ()], ids=["by calls", "beside it in its section"]
)
def test_an_undefined_symbol_that_the_entry_may_reach_is_named_with_the_function_that_needs_it(
    cpu: CpuDevice, compile_c: Callable[..., bytes], flags: tuple[str, ...]
) -> None:
    image = compile_c(UNREACHED, "-c", "-O1", "-fno-inline", "-fPIC", *flags)
    with pytest.raises(UsageError, match="undefined symbol 'other', which 'report' needs, 'printf'"):
        cpu.load(image, "l")


def test_sections_of_an_llvm_object_that_the_entry_does_not_reach_are_left_out(cpu: CpuDevice) -> None:
    ir = r"""
    declare void @other()
    define void @stray() section ".text.stray" { call void @other() ret void }
    define void @k(ptr %a) { store i64 7, ptr %a ret void }
    """
    buffer = cpu.alloc(8)
    image = assemble(ir)
    cpu.run(cpu.load(image, "k"), [buffer])
    assert int64s(buffer, 1) == [7]
    with pytest.raises(UsageError, match=r"undefined symbol 'other', which 'stray' needs\."):
        cpu.load(image, "stray")


def test_an_unknown_entry_lists_the_functions(cpu: CpuDevice, llvm_object: bytes) -> None:
    with pytest.raises(
        UsageError, match=r"no function 'nobody' in the object. Its functions: add_one, .*twice"
    ):
        cpu.load(llvm_object, "nobody")


def test_thread_local_data_and_constructors_are_refused(
    cpu: CpuDevice, compile_c: Callable[..., bytes]
) -> None:
    with pytest.raises(UsageError, match="thread-local"):
        cpu.load(compile_c("_Thread_local int t = 3; void k(int *o) { *o = t++; }", "-c", "-O2"), "k")
    source = "static int t; __attribute__((constructor)) void c(void) { t = 1; } void k(int *o) { *o = t; }"
    for flags in (("-c", "-O2"), ("-shared", "-fPIC")):
        with pytest.raises(UsageError, match="constructors"):
            cpu.load(compile_c(source, *flags), "k")


def test_raw_use_imports_neither_numpy_nor_llvm(cpu: CpuDevice, llvm_object: bytes, tmp_path: object) -> None:
    path = f"{tmp_path}/kernel.o"
    with open(path, "wb") as file:
        file.write(llvm_object)
    script = f"""
import sys, hcq
dev = hcq.open("CPU")
prog = dev.load(open({path!r}, "rb").read(), "functions")
out = dev.alloc(8)
dev.run(prog, [out, 3])
assert out.read()[0] == 12
print(sorted(name for name in ("numpy", "llvmlite", "hcq.ir", "hcq.frontend") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
