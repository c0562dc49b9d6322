"""MSL as the emulated GPU runs it: C's arithmetic, masks, memory, barriers; and what it finds wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hcq.emu.metal.shader.program import WAYS
from tests.hcq.emu.metal.raw import Raw, numbers, packed

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
THREADS = "uint i [[thread_position_in_threadgroup]]"


@pytest.fixture(params=WAYS)
def raw(request: pytest.FixtureRequest) -> Raw:
    """The same GPU twice: by NumPy, and by machine code."""
    return Raw(f"metal:m3:kernels={request.param}")


def compute(raw: Raw, expression: str, kind: str, x: object, numpy: str, before: str = "") -> list[object]:
    """An expression of x, an array, element by element."""
    data = np.asarray(x)
    names = {
        "int32": "int",
        "uint32": "uint",
        "float32": "float",
        "int64": "long",
        "uint16": "ushort",
        "int8": "char",
    }
    source = (
        f"{HEAD}{before}\nkernel void k(device {kind} *out [[buffer(0)]], "
        f"device const {names[data.dtype.name]} *p [[buffer(1)]], "
        f"{THREADS}) {{\n  const {names[data.dtype.name]} x = p[i];\n  out[i] = {expression};\n}}\n"
    )
    size = np.dtype(numpy).itemsize
    out = raw.buffer(bytes(size * len(data)))
    assert raw.run(source, [out, raw.buffer(data.tobytes())], 1, len(data)) == ""
    return numbers(raw.contents(out), numpy)


INTEGERS = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 12345], np.int32)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x / 3", [0, 0, 0, 2, -2, 715827882, -715827882, 4115]),
        ("x % 3", [0, 1, -1, 1, -1, 1, -2, 0]),
        ("x + x", [0, 2, -2, 14, -14, -2, 0, 24690]),
        ("x >> 1", [0, 0, -1, 3, -4, 2**30 - 1, -(2**30), 6172]),
        ("(int)((uint)x >> 1)", [0, 0, 2**31 - 1, 3, 2147483644, 2**30 - 1, 2**30, 6172]),
        ("(int)(char)x", [0, 1, -1, 7, -7, -1, 0, 57]),
        ("x < 0 ? -x : x", [0, 1, 1, 7, 7, 2**31 - 1, -(2**31), 12345]),
        ("(int)(x > 0 && x < 100) + 2 * (int)(x == 0 || x == 7)", [2, 1, 0, 3, 0, 0, 0, 0]),
        ("~x ^ 1", [-2, -1, 1, -7, 7, -(2**31) + 1, 2**31 - 2, -12345]),
        ("(int)(as_type<uint>(x) / 2u)", [0, 0, 2**31 - 1, 3, 2147483644, 2**30 - 1, 2**30, 6172]),
    ],
)
def test_integers_compute_as_in_c(raw: Raw, expression: str, expected: list[int]) -> None:
    assert compute(raw, expression, "int", INTEGERS, "<i4") == expected


def test_an_unsigned_operand_makes_the_comparison_unsigned(raw: Raw) -> None:
    assert compute(raw, "(int)(x < 1u)", "int", INTEGERS, "<i4") == [1, 0, 0, 0, 0, 0, 0, 0]


def test_floats_are_rounded_to_their_format_at_each_step(raw: Raw) -> None:
    x = np.array([0.1, -2.5, 3.3e38, 1e-30, np.inf, 65519.0, 65520.0, 1 / 3], np.float32)
    with np.errstate(all="ignore"):
        assert compute(raw, "x * x + 1.5f", "float", x, "<f4") == (x * x + np.float32(1.5)).tolist()
        halves = x.astype(np.float16).view(np.uint16).tolist()
    assert compute(raw, "as_type<ushort>((half)x)", "ushort", x, "<u2") == halves
    assert compute(raw, "(int)trunc(x)", "int", x[:2], "<i4") == [0, -2]


def test_a_function_returns_early_for_some_threads(raw: Raw) -> None:
    before = "static inline int f(int a) { if (a < 0) return -1; if (a == 0) return 100; return a / 2; }"
    assert compute(raw, "f(x)", "int", INTEGERS, "<i4", before) == [100, 0, -1, 3, -1, 2**30 - 1, -1, 6172]


def test_threads_part_at_conditions_and_in_loops_of_their_own_length(raw: Raw) -> None:
    source = f"""{HEAD}kernel void k(device int *out [[buffer(0)]], {THREADS}) {{
      int sum = 0;
      for (int j = 0; j < (int)i; ++j) {{ if (j % 2 == 0) {{ sum = sum + j; }} else {{ sum = sum - 1; }} }}
      if (i > 2) out[i] = sum; else {{ out[i] = -5; }}
    }}"""
    out = raw.buffer(bytes(4 * 8))
    assert raw.run(source, [out], 1, 8) == ""
    expected = [-5 if i <= 2 else sum(j if j % 2 == 0 else -1 for j in range(i)) for i in range(8)]
    assert numbers(raw.contents(out), "<i4") == expected


def test_a_choice_reads_only_what_it_takes(raw: Raw) -> None:
    source = f"{HEAD}kernel void k(device int *p [[buffer(0)]], {THREADS}) {{ p[i] = i < 3 ? p[i + 1] : 7; }}"
    out = raw.buffer(packed(1, 2, 3, 4))
    assert raw.run(source, [out], 1, 4) == ""
    assert numbers(raw.contents(out), "<i4")[-1] == 7


def test_vectors_are_loaded_and_stored_whole(raw: Raw) -> None:
    source = f"""{HEAD}kernel void k(device float *out [[buffer(0)]], device const float *p [[buffer(1)]], {THREADS}) {{
      const float4 v = *(device const float4 *)&p[4 * i];
      *(device float4 *)&out[4 * i] = float4(v[3], v.z, v.y, v[0]);
    }}"""
    data = np.arange(32, dtype=np.float32)
    out = raw.buffer(bytes(128))
    assert raw.run(source, [out, raw.buffer(data.tobytes())], 1, 8) == ""
    assert numbers(raw.contents(out), "<f4") == data.reshape(8, 4)[:, ::-1].reshape(-1).tolist()


REVERSE = """kernel void k(device int *p [[buffer(0)]], uint g [[threadgroup_position_in_grid]],
                          uint i [[thread_position_in_threadgroup]]) {
  threadgroup int t[64];
  t[i] = p[64 * g + i];
  BARRIER
  p[64 * g + i] = t[63 - i];
}"""


def test_groups_share_memory_of_their_own_and_meet_at_barriers(raw: Raw) -> None:
    out = raw.buffer(packed(*range(192)))
    source = REVERSE.replace("BARRIER", "threadgroup_barrier(mem_flags::mem_threadgroup);")
    assert raw.run(source, [out], 3, 64) == ""
    assert numbers(raw.contents(out), "<u4") == np.arange(192).reshape(3, 64)[:, ::-1].reshape(-1).tolist()


def test_simd_groups_exchange_what_their_threads_have(raw: Raw) -> None:
    body = "{ p[i] = simd_shuffle_xor(p[i], (ushort)5); }"
    source = f"{HEAD}kernel void k(device uint *p [[buffer(0)]], {THREADS}) {body}"
    out = raw.buffer(packed(*range(64)))
    assert raw.run(source, [out], 1, 64) == ""
    assert numbers(raw.contents(out), "<u4") == [i ^ 5 for i in range(64)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p[i + 60] = 1;", r"k: writes p\[(64|91)\] of 64 elements of int32"),
        ("p[i] = p[(int)i - 1];", r"k: reads p\[-1\] of 64"),
        (
            "t[i] = 1; p[i] = t[31 - i];",
            "a race: a thread (reads what another one wrote|writes what another one read), at byte .* of t",
        ),
        ("t[i / 2] = (int)i;", "a race: a thread writes what another one (wrote|writes)"),
        ("p[i] = t[i + 1]; t[i] = 2;", "a race: a thread writes what another one read"),
        (
            "if (i < 5) { threadgroup_barrier(mem_flags::mem_threadgroup); }",
            "some threads of a group reach a threadgroup_barrier that the others do not",
        ),
        ("p[i] = simd_shuffle_xor(p[i], (ushort)32);", "reaches a thread that is not in the SIMD group"),
        ("if (i < 1) { p[i] = simd_shuffle_xor(p[i], (ushort)1); }", "asks a thread that is not there"),
        ("*(device int2 *)&p[i] = int2(1, 2);", "does not begin at a multiple of its size"),
    ],
)
def test_what_a_thread_must_not_do_ends_the_command_buffer_with_the_reason(
    raw: Raw, body: str, message: str
) -> None:
    source = (
        f"{HEAD}kernel void k(device int *p [[buffer(0)]], {THREADS}) {{ threadgroup int t[64]; {body} }}"
    )
    why = raw.run(source, [raw.buffer(bytes(256))], 1, 32)
    assert re.search(message, why), why


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p[i] = q;", "use of undeclared identifier 'q'"),
        ("p[i] = 1", "expected ';'"),
        ("double x = 1;", "program_source:3: .*expected"),
        ("p[i] = foo(3);", "foo of int is not known here"),
        ("c[i] = 1;", "what is const cannot be assigned"),
        ("p[i] = 1.5f % 2.0f;", "float % float"),
        ("p[i] = as_type<long>(i);", r"as_type<long> of a uint"),
        ("atomic_int x = 1;", "expected"),
        ("p[i] = @;", "begins no word of MSL"),
    ],
)
def test_text_that_is_no_msl_of_the_subset_is_refused_with_its_line(
    raw: Raw, body: str, message: str
) -> None:
    head = f"{HEAD}kernel void k(device int *p [[buffer(0)]], device const int *c [[buffer(1)]], {THREADS})"
    with pytest.raises(ValueError, match=message):
        raw.pipeline(f"{head} {{ {body} }}")
