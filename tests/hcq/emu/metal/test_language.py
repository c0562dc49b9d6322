"""The language of kernels on an emulated Metal: control flow, atomic operations, exchanges, memory; both ways."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from hcq.emu.metal.shader.compiled import Compiled
from hcq.emu.metal.shader.errors import KernelFault, NotCompiled
from hcq.emu.metal.shader.groups import write
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Program

GROUPS, THREADS = 2, 64
HEAD = """kernel void k(device int *out [[buffer(0)]], device const int *p [[buffer(1)]], constant int &n [[buffer(2)]],
  device atomic_int *c [[buffer(3)]], uint g [[threadgroup_position_in_grid]],
  uint i [[thread_position_in_threadgroup]], uint all [[thread_position_in_grid]],
  uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
"""
WAIT = "threadgroup_barrier(mem_flags::mem_threadgroup);"
NEAR = "simdgroup_barrier(mem_flags::mem_threadgroup);"
RELAXED = "memory_order_relaxed"
Expected = Callable[[int, int], int]  # (threadgroup, thread in it) -> what it stores
# name -> what is before the kernel, its body, what each thread stores; numbers in p are their own places
CASES: dict[str, tuple[str, str, Expected]] = {
    "a return in a branch in a branch": (
        "",
        """
        if (i < 10u) {
        if (i < 5u) {
        return;
        }
        out[all] = 2;
        }
        out[all] += 3;""",
        lambda g, i: 0 if i < 5 else 5 if i < 10 else 3,
    ),
    "a return in a loop": (
        "",
        """
        for (int j = 0; j < 8; ++j) {
        if (j == (int)(i & 7u)) return;
        out[all] += 1;
        }
        out[all] = 100;""",
        lambda g, i: i & 7,
    ),
    "a loop that is left": (
        "",
        """
        int s = 0;
        for (int j = 0; j < 8; j++) {
        if (j == (int)(i & 7u)) break;
        s += j;
        }
        out[all] = s;""",
        lambda g, i: sum(range(i & 7)),
    ),
    "a round that all cut short": (
        "",
        """
        int s = 0;
        for (int j = 0; j < 8; j++) {
        if ((j & 1) == 0) continue;
        s += j;
        }
        out[all] = s;""",
        lambda g, i: 16,
    ),
    "a round that some cut short": (
        "",
        """
        int s = 0;
        for (int j = 0; j < 8; j++) {
        if (((j + (int)i) & 1) == 0) {
        continue;
        }
        s += j;
        }
        out[all] = s;""",
        lambda g, i: sum(j for j in range(8) if (j + i) & 1),
    ),
    "while": (
        "",
        """
        int s = 0, x = (int)i;
        while (x > 0) {
        s += x & 1;
        x >>= 1;
        }
        out[all] = s;""",
        lambda g, i: bin(i).count("1"),
    ),
    "do": (
        "",
        """
        int s = 0, x = (int)i;
        do {
        s += 1;
        x >>= 1;
        }
        while (x > 0);
        out[all] = s;""",
        lambda g, i: max(1, i.bit_length()),
    ),
    "a reduction whose loop halves": (
        "",
        """
        threadgroup int t[64];
        t[i] = p[i];
        WAIT for (uint s = 32u; s > 0u; s >>= 1) {
        if (i < s) {
        t[i] += t[i + s];
        }
        WAIT }
        out[all] = t[0];""",
        lambda g, i: 2016,
    ),
    "compound assignments": (
        "",
        """
        int x = (int)i;
        x += 3;
        x *= 2;
        x -= 1;
        x <<= 2;
        x ^= 5;
        x |= 8;
        x &= 0xff;
        x %= 100;
        x /= 3;
        out[all] = x;
        out[all] >>= 1;""",
        lambda g, i: ((((((((i + 3) * 2 - 1) << 2) ^ 5) | 8) & 0xFF) % 100) // 3) >> 1,
    ),
    "a threadgroup's variable": (
        "",
        """
        threadgroup int s;
        if (i == 0u) s = 7 + (int)g;
        WAIT out[all] = s;""",
        lambda g, i: 7 + g,
    ),
    "an array of two dimensions": (
        "",
        """
        threadgroup int t[8][9];
        t[i / 8u][i % 8u] = (int)i;
        WAIT out[all] = t[i % 8u][i / 8u];""",
        lambda g, i: (i % 8) * 8 + i // 8,
    ),
    "a name of the preprocessor": (
        "#define N 64\n#define BAR threadgroup_barrier(mem_flags::mem_threadgroup)\n",
        """
        threadgroup int t[N];
        t[i] = (int)i;
        BAR;
        out[all] = t[N - 1 - (int)i];""",
        lambda g, i: 63 - i,
    ),
    "a constant of the source": (
        "constant int N = 64;\n",
        """
        threadgroup int t[N * 2];
        t[i] = (int)i;
        WAIT out[all] = t[N - 1 - (int)i];""",
        lambda g, i: 63 - i,
    ),
    "a sum by atomic operations": (
        "",
        """
        threadgroup atomic_int s;
        if (i == 0u) atomic_store_explicit(&s, 0, RELAXED);
        WAIT atomic_fetch_add_explicit(&s, (int)i, RELAXED);
        WAIT out[all] = atomic_load_explicit(&s, RELAXED);""",
        lambda g, i: 2016,
    ),
    "a histogram": (
        "",
        """
        threadgroup atomic_uint h[4];
        if (i < 4u) atomic_store_explicit(&h[i], 0u, RELAXED);
        WAIT atomic_fetch_add_explicit(&h[i & 3u], 1u, RELAXED);
        WAIT out[all] = (int)atomic_load_explicit(&h[i & 3u], RELAXED);""",
        lambda g, i: 16,
    ),
    "a counter in device memory": (
        "",
        """
        int old = atomic_fetch_add_explicit(c, 1, RELAXED);
        out[all] = old;""",
        lambda g, i: 64 * g + i,
    ),
    "a maximum whose result nobody uses": (
        "",
        """
        atomic_fetch_max_explicit(&c[1], (int)all, RELAXED);
        out[all] = 1;""",
        lambda g, i: 1,
    ),
    "compare and exchange": (
        "",
        """
        int e = 0;
        bool won = atomic_compare_exchange_weak_explicit(&c[2], &e, (int)all + 1, RELAXED, RELAXED);
        out[all] = won ? 1 : e;""",
        lambda g, i: 1,
    ),
    "a loop around compare and exchange": (
        "",
        """
        int e = 0;
        while (!atomic_compare_exchange_weak_explicit(&c[2], &e, e + 1, RELAXED, RELAXED)) {
        }
        out[all] = e;""",
        lambda g, i: 64 * g + i,
    ),
    "a sum of a SIMD group": (
        "",
        """
        out[all] = simd_sum((int)lane);""",
        lambda g, i: 496,
    ),
    "shuffles": (
        "",
        """
        int x = simd_shuffle_down((int)i, (ushort)1);
        x += simd_broadcast((int)i, 0);
        x += simd_shuffle((int)i, (ushort)(31u - lane));
        out[all] = x;""",
        lambda g, i: (i + 1 if i % 32 < 31 else i) + (i // 32 * 32) + (i // 32 * 32 + 31 - i % 32),
    ),
    "prefix sums and votes": (
        "",
        """
        out[all] = simd_prefix_exclusive_sum((int)i) + simd_max((int)i) + (simd_all(i < 40u) ? 1000 : 0);""",
        lambda g, i: sum(range(i // 32 * 32, i)) + (i // 32 * 32 + 31) + (1000 if i < 32 else 0),
    ),
    "barriers of SIMD groups": (
        "",
        """
        threadgroup int t[64];
        t[i] = (int)i;
        NEAR int x = t[i ^ 1u];
        NEAR t[i] = x;
        NEAR out[all] = t[i ^ 2u];""",
        lambda g, i: (i ^ 2) ^ 1,
    ),
    "all read before one writes": (
        "",
        """
        threadgroup int t[64];
        if (lane == 0u) t[sg] = (int)i;
        NEAR int x = t[sg];
        NEAR if (lane == 3u) t[sg] = 5;
        out[all] = x;""",
        lambda g, i: i // 32 * 32,
    ),
    "an array of a thread's own": (
        "",
        """
        int a[8];
        for (int j = 0; j < 8; ++j) a[j] = j * (int)i;
        out[all] = a[i & 7u];""",
        lambda g, i: (i & 7) * i,
    ),
    "a pointer in a variable": (
        "",
        """
        device const int *row = p + 8u * (i / 8u);
        out[all] = row[i % 8u] + row[0];""",
        lambda g, i: i + i // 8 * 8,
    ),
    "functions that take pointers": (
        """int sum(device const int *q, int n) { int s = 0;
          for (int j = 0; j < n; ++j) s += q[j]; return s; }
void put(device int *q, int v) { *q += v; }
void bump(device atomic_int *q) { atomic_fetch_add_explicit(q, 1, memory_order_relaxed); }
""",
        """
        out[all] = sum(p, 4);
        put(out + all, 3);
        bump(c);""",
        lambda g, i: 6 + 3,
    ),
    "functions of integers": (
        "",
        """
        out[all] = min((int)i, 9) + max((int)i, 50) + clamp((int)i, 5, 20) + abs((int)i - 30);""",
        lambda g, i: min(i, 9) + max(i, 50) + min(max(i, 5), 20) + abs(i - 30),
    ),
    "an index of an index": (
        "",
        """
        threadgroup int t[64];
        t[i] = 63 - (int)i;
        WAIT out[all] = t[t[i]];""",
        lambda g, i: i,
    ),
    "a lane that is assigned": (
        "",
        """
        float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f);
        v.x = 9.0f;
        v.w += 1.0f;
        out[all] = (int)(v.x + v.w);""",
        lambda g, i: 14,
    ),
    "a condition that reads only where it is asked": (
        "",
        """
        uint j = 0;
        while (j < 256u && p[j] < (int)i) {
        j += 1u;
        }
        out[all] = (int)j;""",
        lambda g, i: i,
    ),
}
INTERPRETED = {
    "a sum of a SIMD group", "shuffles", "prefix sums and votes", "barriers of SIMD groups",
    "all read before one writes",
    "an array of a thread's own", "a pointer in a variable", "functions that take pointers", "functions of integers",
}  # fmt: skip
WRONG = {
    "a SIMD group exchanges by threadgroup memory with no barrier": (
        "threadgroup int t[64]; t[i] = (int)i; out[all] = t[i ^ 1u];",
        "reads what another one wrote",
    ),
    "a barrier of SIMD groups does not reach another one": (
        "threadgroup int t[64]; t[i] = (int)i; NEAR out[all] = t[i ^ 32u];",
        "reads what another one wrote",
    ),
    "one writes while others of its SIMD group read": (
        "threadgroup int t[2]; if (lane == 0u) t[sg] = 1; NEAR int x = t[sg]; if (lane == 3u) t[sg] = x;",
        "writes what another one read",
    ),
    "a plain load beside atomic operations": (
        """threadgroup atomic_int t[1]; if (i == 0u) atomic_store_explicit(t, 0, RELAXED); WAIT
        atomic_fetch_add_explicit(t, 1, RELAXED); out[all] = t[0];""",
        "reads what another one changed",
    ),
    "an atomic operation beside a plain store": (
        "threadgroup atomic_int t[1]; if (i == 40u) t[0] = 0; atomic_fetch_add_explicit(t, 1, RELAXED);",
        "what another one (wrote|changed)",
    ),
    "some threads of a SIMD group at its barrier": (
        "if (lane < 5u) { NEAR } out[all] = 1;",
        "some threads of a SIMD group reach a simdgroup_barrier that the others do not",
    ),
    "too far in an array of its own": (
        "int a[4]; a[i] = 1; out[all] = a[0];",
        r"writes a\[63\] of 4 elements",
    ),
}


def words(text: str) -> str:
    for name in ("WAIT", "NEAR", "RELAXED"):
        text = text.replace(name, globals()[name])
    return text


def leave(way: str, body: str, before: str = "") -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """What a kernel leaves in `out` and in `c`."""
    source = parse(f"{before}{HEAD}{words(body)}\n}}\n")
    kernel = source.kernels["k"]
    made = (np.zeros(256), np.arange(256), np.array([4]), np.zeros(64))
    data = [one.astype(np.int32).view(np.uint8) for one in made]
    if way == "interpreted":
        Program(source, kernel).interpret((GROUPS, 1, 1), (THREADS, 1, 1), dict(enumerate(data)))
    else:
        Compiled(kernel, write(source, kernel, (THREADS, 1, 1))).run((GROUPS, 1, 1), data)
    return data[0].view(np.int32)[: GROUPS * THREADS], data[3].view(np.int32)


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_does_what_its_text_says(name: str, way: str) -> None:
    before, body, expected = CASES[name]
    if way == "compiled" and name in INTERPRETED:
        with pytest.raises(NotCompiled):
            leave(way, body, before)
        return
    out, _ = leave(way, body, before)
    assert out.tolist() == [expected(g, i) for g in range(GROUPS) for i in range(THREADS)]


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
@pytest.mark.parametrize("name", WRONG)
def test_what_nothing_orders_stops_the_kernel(name: str, way: str) -> None:
    body, message = WRONG[name]
    if way == "compiled" and (("NEAR" in body and "threadgroup int" in body) or "int a[" in body):
        pytest.skip("interpreted only")
    with pytest.raises(KernelFault, match=message):
        leave(way, body)


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("fetch_add", sum(range(128))),
        ("fetch_sub", -sum(range(128))),
        ("fetch_max", 127),
        ("fetch_min", 0),
        ("fetch_or", 127),
        ("fetch_xor", 0),
        ("fetch_and", 0),
        ("exchange", 127),
        ("store", 127),
    ],
)
def test_an_atomic_operation_is_done_once_for_each_thread(way: str, operation: str, expected: int) -> None:
    _, changed = leave(way, f"atomic_{operation}_explicit(&c[1], (int)all, RELAXED);")
    assert changed.tolist()[:3] == [0, expected, 0]


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_a_group_hears_of_another_by_a_flag(way: str) -> None:
    fence = "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);"
    out, _ = leave(
        way,
        f"""if (g == 0u) {{ if (i == 0u) {{ out[200] = 7; {fence} atomic_store_explicit(c, 1, RELAXED); }} }}
        else if (i == 0u) {{ while (atomic_load_explicit(c, RELAXED) == 0) {{ }} {fence} out[all] = out[200]; }}""",
    )
    assert out[64] == 7
