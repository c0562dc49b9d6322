"""MSL by NumPy and by machine code: two translations of the same text, which have to agree bit for bit."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hcq import config
from hcq.emu.compiled import threads
from hcq.emu.metal.shader import compiled
from hcq.emu.metal.shader.compiled import Compiled
from hcq.emu.metal.shader.errors import KernelFault
from hcq.emu.metal.shader.groups import write
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Program
from hcq.emu.metal.shader.stopping import Stop, Stopped

GOLDEN = Path(__file__).resolve().parents[4] / "kernels_golden" / "metal"
HEAD = (
    "kernel void k(device int *out [[buffer(0)]], device const int *p [[buffer(1)]], "
    "constant int &n [[buffer(2)]],\n"
)
PLACES = (
    "  uint g [[threadgroup_position_in_grid]], uint i [[thread_position_in_threadgroup]],\n"
    "  uint all [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {\n"
)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def both(text: str, groups: int, threads: int, *data: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """What a kernel leaves in memory, the same by NumPy and by machine code."""
    source = parse(text)
    (kernel,) = source.kernels.values()
    first, second = ([one.copy() for one in data] for _ in range(2))
    Program(source, kernel).interpret((groups, 1, 1), (threads, 1, 1), dict(enumerate(first)))
    Compiled(kernel, write(source, kernel, (threads, 1, 1))).run((groups, 1, 1), second)
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)
    return second


def ints(*values: int) -> NDArray[np.uint8]:
    return np.array(values, np.int32).view(np.uint8)


LONG = ("convolution.metal.txt", "matmul.metal.txt")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name.partition(".")[0], marks=[pytest.mark.thorough] * (path.name in LONG))
        for path in sorted(GOLDEN.glob("*.txt"))
    ],
)
def test_reviewed_kernels_leave_the_same_bits(path: Path) -> None:
    text, rng = path.read_text(), np.random.default_rng(1)
    groups, threads = (int(found) for found in re.search(r"(\d+) threadgroups of (\d+)", text).groups())  # type: ignore[union-attr]
    shapes = re.findall(r"// p\d+: float32 \[(.*)\]", text)
    sizes = [np.prod([int(size) for size in shape.split(",")]) for shape in shapes]
    data = [rng.standard_normal(size).astype(np.float32).view(np.uint8) for size in sizes]
    assert both(text, int(groups), int(threads), *data)[0].any()


TYPES = ("int", "uint", "char", "uchar", "short", "ushort", "long", "ulong", "float", "half", "bool")
EDGES = (0, 1, -1, 2, 3, 7, 31, 32, 127, 128, 255, 32767, 65535, 65536, 2**31 - 1, -(2**31))


class Expressions:
    """Random ones, each with its type; what C and MSL leave open (floats out of range of an integer) may be in them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, kind: str, depth: int) -> str:
        pick = self.random.choice
        if not depth or self.random.random() < 0.1:
            if kind in ("float", "half"):
                return f"({kind}){pick(('a', 'b', 'f', 'h', '0.5f', '3.0f', '1e-3f'))}"
            return f"({kind}){pick(('a', 'b', 'c', 'f', str(self.random.randrange(100)), '0xffffffffu'))}"
        less = depth - 1
        if kind == "bool":
            other = pick(TYPES)
            sign = pick(("<", "<=", "==", "!=", ">", ">="))
            return pick(
                (
                    f"({self.of(other, less)} {sign} {self.of(other, less)})",
                    f"({self.of('bool', less)} {pick(('&&', '||', '&', '^'))} {self.of('bool', less)})",
                    f"!{self.of('bool', less)}",
                    f"isnan({self.of('float', less)})",
                )
            )
        x, y = self.of(kind, less), self.of(pick((kind, pick(TYPES))), less)
        forms = [
            f"({kind})({x} {pick('+-*/')} {y})",
            f"({kind})(-{x})",
            f"({self.of('bool', less)} ? {x} : {self.of(kind, less)})",
            f"({kind}){y}",
            f"({self.of('bool', less)} ? ({kind})p[(i + 1u) % 16u] : {x})",
        ]
        if kind in ("float", "half"):
            forms += [
                f"{pick(('trunc', 'floor', 'ceil', 'fabs', 'sqrt'))}({x})",
                f"({kind})as_type<float>({self.of('uint', less)})",
            ]
        else:
            whole = self.of(pick([one for one in TYPES if one not in ("float", "half", "bool")]), less)
            forms += [
                f"({kind})({x} {pick(('%', '&', '|', '^', '<<', '>>'))} {whole})",
                f"({kind})(~{x})",
                f"({kind})as_type<int>({self.of('float', less)})",
            ]
        return pick(forms)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4, 60))]
)
def test_arithmetic_of_every_type_agrees_on_every_bit(seed: int) -> None:
    """But for the bits of what is no number, which become one and the same here."""
    made, lines = Expressions(seed), []
    for number in range(24):
        kind = TYPES[number % len(TYPES)]
        value = made.of(kind, 3)
        if kind in ("float", "half"):
            lines.append(f"  const {kind} x{number} = {value};")
            value = f"isnan(x{number}) ? 7 : as_type<int>((float)x{number})"
            lines.append(f"  out[16 * {2 * number} + (int)i] = {value};")
        else:
            lines.append(f"  const long x{number} = (long)({value});")
            lines.append(f"  out[16 * {2 * number} + (int)i] = (int)x{number};")
            lines.append(f"  out[16 * {2 * number + 1} + (int)i] = (int)(x{number} >> 32);")
    values = "  const int a = p[i]; const int b = p[15u - i]; const int c = (int)i; const half h = (half)(b % 100);\n"
    values += "  const float f = (float)a / (float)(b + 3);\n"
    text = HEAD + PLACES + values + "\n".join(lines) + "\n}\n"
    both(text, 1, 16, ints(*[0] * 16 * 48), ints(*EDGES), ints(5))


FUNCTIONS = """static inline ulong shuffle_long(ulong x, ushort by) {
  const uint low = simd_shuffle_xor((uint)x, by);
  const uint high = simd_shuffle_xor((uint)(x >> 32), by);
  return (ulong)high << 32 | (ulong)low;
}
static inline int early(int x) { if (x < 4) return -x; if (x == 9) { return 100; } return x * 2; }
"""


MATRICES = """
        simdgroup_half8x8 x, y; simdgroup_float8x8 z;
        x.thread_elements()[0] = (half)p[all]; x.thread_elements()[1] = (half)(int)lane;
        y.thread_elements()[0] = (half)2.0f; y.thread_elements()[1] = (half)(p[all] - 3);
        z.thread_elements()[0] = (float)n;
        simdgroup_multiply_accumulate(z, x, y, z);"""
BODIES = {
    "loops of each thread's own length, and functions that return early": """
        int s = 0;
        for (int j = 0; j < (int)lane; ++j) { if (j % 3 == 0) { s = s + early(j); } else s = s ^ j; }
        out[all] = s;""",
    "threads meet in a loop whose length is a number": """
        t[i] = p[all];
        for (int j = 0; j < 3; ++j) { BARRIER const int x = t[63u - i]; BARRIER t[i] = x + j; }
        out[all] = t[i];""",
    "threads meet in a loop whose length is passed": """
        t[i] = p[all];
        for (int j = 0; j < n; ++j) { BARRIER const int x = t[i ^ 1u]; BARRIER t[i] = x * 3; }
        out[all] = t[i];""",
    "all threads of a group take a branch in which they meet, or none": """
        int x = 1;
        if (g == 1u) { t[i] = p[all]; BARRIER x = t[63u - i]; } else { x = -1; }
        out[all] = x;""",
    "some SIMD groups exchange, and others do not": """
        int x = p[all];
        if (i < 32u) { x = x + simd_shuffle_xor(x, (ushort)3); x = x + simd_shuffle_xor(x, (ushort)16); }
        out[all] = x;""",
    "a bool is exchanged as a number": """
        bool f = p[all] > 7;
        f = f & (simd_shuffle_xor((uint)f, (ushort)1) != 0u);
        out[all] = (int)f;""",
    "functions exchange": """
        const ulong x = shuffle_long((ulong)p[all] << 30, (ushort)2) >> 20;
        out[all] = (int)x - (int)shuffle_long((ulong)i, (ushort)1);""",
    "threads that have ended": """
        if (g == 1u) { out[all] = 5; return; }
        t[i] = p[all];
        BARRIER
        out[all] = t[63u - i];""",
    "vectors in threadgroup memory": """
        if (i < 16u) *(threadgroup int4 *)&t[4 * i] = *(device const int4 *)&p[4 * i];
        BARRIER
        out[all] = t[i];""",
    "threadgroup memory under two types": """
        ((threadgroup short *)t)[i] = (short)p[all];
        BARRIER
        out[all] = (int)((threadgroup short *)t)[63u - i];""",
    "matrices of halves and of floats": MATRICES
    + """
        out[all] = (int)z.thread_elements()[0] + 1000 * (int)z.thread_elements()[1];
        simdgroup_float8x8 x32, y32;
        x32.thread_elements()[0] = (float)p[all] / 3.0f; x32.thread_elements()[1] = (float)i * 0.1f;
        y32.thread_elements()[0] = 1.5f; y32.thread_elements()[1] = (float)lane;
        for (int j = 0; j < n; ++j) { simdgroup_multiply_accumulate(z, x32, y32, z); }
        out[all] = out[all] ^ as_type<int>(z.thread_elements()[0]) ^ as_type<int>(z.thread_elements()[1]);""",
    "matrices of bfloat, in some SIMD groups": """
        simdgroup_bfloat8x8 x, y; simdgroup_float8x8 z;
        x.thread_elements()[0] = as_type<bfloat>((ushort)(16256 + p[all]));
        y.thread_elements()[1] = as_type<bfloat>((ushort)(16256 + (int)lane));
        if (i >= 32u) { simdgroup_multiply_accumulate(z, x, y, z); }
        out[all] = as_type<int>(z.thread_elements()[0] + z.thread_elements()[1]) + 1;""",
    "what nobody wrote": "out[all] = t[i] + ((threadgroup char *)t)[i];",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_threads_that_part_and_meet_agree(body: str) -> None:
    text = FUNCTIONS + HEAD + PLACES + f"  threadgroup int t[64];\n{body}\n}}\n".replace("BARRIER", BARRIER)
    rng = np.random.default_rng(2)
    data = rng.integers(-50, 50, 192, np.int32).view(np.uint8)
    found = both(text, 3, 64, ints(*[0] * 192), data, ints(4))
    assert found[0].any()


def test_each_thread_knows_its_place_in_three_dimensions() -> None:
    text = """kernel void k(device uint *out [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]],
      uint3 i [[thread_position_in_threadgroup]], uint3 whole [[thread_position_in_grid]],
      uint3 sizes [[threads_per_threadgroup]], uint3 groups [[threadgroups_per_grid]],
      ushort s [[simdgroup_index_in_threadgroup]], uint flat [[thread_index_in_threadgroup]]) {
        const uint at = ((g.z * groups.y + g.y) * groups.x + g.x) * sizes.x * sizes.y * sizes.z + flat;
        out[at] = whole.x + 100u * whole.y + 10000u * whole.z + 1000000u * (uint)s + i.x + i.y + i.z;
    }"""
    source = parse(text)
    (kernel,) = source.kernels.values()
    first, second = (np.zeros(4 * 12 * 60, np.uint8) for _ in range(2))
    Program(source, kernel).interpret((2, 3, 2), (5, 4, 3), {0: first})
    Compiled(kernel, write(source, kernel, (5, 4, 3))).run((2, 3, 2), [second])
    np.testing.assert_array_equal(first, second)
    words = first.view(np.uint32)
    assert words[-1] == 9 + 100 * 11 + 10000 * 5 + 1000000 + 4 + 3 + 2


def test_a_kernel_is_compiled_once_it_has_been_run_often_enough_and_from_then_on_at_once(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config.use(config.Config.read({"HCQ_CACHE_DIR": str(tmp_path)}))
    request.addfinalizer(lambda: config.use(None))
    source = parse(HEAD + PLACES + "out[all] = p[all] + n;\n}")
    (kernel,) = source.kernels.values()
    program = Program(source, kernel)
    out, data, number = ints(*[0] * 64), ints(*range(64)), ints(3)
    ways = []
    for _ in range(2000):
        out[:] = 0
        program.run((2, 1, 1), (32, 1, 1), {0: out, 1: data, 2: number})
        assert out.view(np.int32).tolist() == list(range(3, 67))
        ways.append(program.compiled is not None)
    assert ways[0] is False
    assert ways[-1] is True
    assert ways == sorted(ways)
    other = Program(source, kernel)
    other.run((2, 1, 1), (32, 1, 1), {0: out, 1: data, 2: number})
    assert other.compiled is not None


def test_what_machine_code_is_not_made_of_is_interpreted() -> None:
    source = parse(HEAD + PLACES + "out[all] = simd_shuffle_xor(p[all], (ushort)n);\n}")
    (kernel,) = source.kernels.values()
    program = Program(source, kernel, "compiled")
    out = ints(*[0] * 32)
    program.run((1, 1, 1), (32, 1, 1), {0: out, 1: ints(*range(32)), 2: ints(6)})
    assert out.view(np.int32).tolist() == [one ^ 6 for one in range(32)]
    assert program.compiled is None
    assert program.why_not == "simd_shuffle_xor by a number that is not written"


def test_a_thread_that_leaves_its_buffer_leaves_the_memory_beside_it_alone() -> None:
    source = parse(HEAD + PLACES + "out[all] = 1;\n}")
    (kernel,) = source.kernels.values()
    memory = np.zeros(4 * 64, np.uint8)
    with pytest.raises(KernelFault, match=r"k: writes out\[32\] of 32 elements of int32"):
        Compiled(kernel, write(source, kernel, (32, 1, 1))).run((2, 1, 1), [memory[:128], ints(0), ints(0)])
    assert memory[:128].view(np.int32).tolist() == [1] * 32
    assert not memory[128:].any()


def test_races_are_found_after_so_many_barriers_that_counting_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hcq.emu.metal.shader.threadgroup_memory.EPOCHS", 3)
    body = f"for (int j = 0; j < 20; ++j) {{ {BARRIER} t[i] = j; {BARRIER} out[all] = t[31u - i]; }}"
    text = HEAD + PLACES + f"threadgroup int t[32]; {body}\n}}"
    both(text, 2, 32, ints(*[0] * 64), ints(0), ints(0))
    source = parse(text.replace(f"t[i] = j; {BARRIER}", "t[i] = j;"))
    (kernel,) = source.kernels.values()
    with pytest.raises(KernelFault, match="a race"):
        Compiled(kernel, write(source, kernel, (32, 1, 1))).run(
            (1, 1, 1), [ints(*[0] * 32), ints(0), ints(0)]
        )


class Programs:
    """Random programs of threads that part in conditions and loops, meet at barriers, and exchange."""

    def __init__(self, seed: int, threads: int) -> None:
        self.random, self.threads, self.count = random.Random(seed), threads, 0

    def value(self, depth: int = 2) -> str:
        pick = self.random.choice
        if not depth:
            return pick(("x", "y", "(int)lane", "(int)i", "n", "(int)g", str(self.random.randrange(50))))
        a, b = self.value(depth - 1), self.value(depth - 1)
        return pick(
            (
                f"({a} {pick('+-*&|^')} {b})",
                f"({a} {pick('/%')} {b})",
                f"({a} < {b} ? {a} : y)",
                f"(int)((float){a} * 0.37f + z)",
                f"early({a})",
                f"p[(uint){a} % 192u]",
                f"({a} > 3 && p[(uint){b} % 192u] > 0 ? p[all % 192u] : {b})",
                f"(int)(short)({a} << ({b} & 7))",
            )
        )

    def condition(self, is_common: bool) -> str:
        if is_common:
            return self.random.choice(("n > 3", "g == 1u", "n * 2 < (int)g + 7"))
        return f"{self.value()} {self.random.choice(('<', '>', '==', '!='))} {self.value(1)}"

    def body(self, depth: int, is_common: bool, in_loop: bool = False) -> str:
        lines = []
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.randrange(10)
            self.count += 1
            if kind < 3 or not depth:
                lines.append(f"{self.random.choice('xy')} = {self.value()};")
            elif kind == 3:
                lines.append(f"z = z * 0.5f + (float){self.value()};")
            elif kind == 4:
                inside = self.random.random() < 0.4 and is_common
                arms = [self.body(depth - 1, inside, in_loop) for _ in range(2)]
                lines.append(f"if ({self.condition(inside)}) {{ {arms[0]} }} else {{ {arms[1]} }}")
            elif kind == 5:
                inside = self.random.random() < 0.5 and is_common
                most = self.random.choice(("3", "n")) if inside else f"({self.value(1)} & 7)"
                name = f"j{self.count}"
                body = self.body(depth - 1, inside, True)
                lines.append(f"for (int {name} = 0; {name} < {most}; ++{name}) {{ {body} x = x + {name}; }}")
            elif kind == 6 and is_common:
                lines.append(
                    f"{BARRIER} t[i] = {self.value()}; {BARRIER} y = y ^ t[{self.threads - 1}u - i];"
                )
            elif kind == 7 and is_common and not self.threads % 32:
                lines.append(f"x = x + simd_shuffle_xor(y, (ushort){self.random.randrange(32)});")
            elif kind == 8 and is_common and not self.threads % 32:
                lines.append(
                    "simdgroup_float8x8 A, B, C; A.thread_elements()[0] = (float)(x & 63); "
                    "B.thread_elements()[1] = (float)(y & 15); C.thread_elements()[0] = z; "
                    "simdgroup_multiply_accumulate(C, A, B, C); z = z + C.thread_elements()[1];"
                )
                lines[-1] = f"if (n > 0) {{ {lines[-1]} }}"
            else:
                lines.append(f"out[all] = {self.value()};")
        return " ".join(lines)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("threads", [20, 32, 64, 96, 256])
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_leave_the_same_bits(seed: int, threads: int) -> None:
    body = Programs(seed * 7 + threads, threads).body(3, True)
    text = (
        FUNCTIONS
        + HEAD
        + PLACES
        + f"threadgroup int t[{threads}]; int x = p[all % 192u]; int y = (int)i - 9;\n"
    )
    text += f"float z = (float)x * 0.25f;\n{body}\nout[all] = x ^ y; out[all + {3 * threads}u] = as_type<int>(z);\n}}\n"
    data = np.random.default_rng(seed).integers(-50, 50, 192, np.int32).view(np.uint8)
    both(text, 3, threads, ints(*[0] * 6 * threads), data, ints(4))


SUMS = (
    HEAD
    + PLACES
    + "  int sum = (int)all;\n  for (int j = 0; j < n; ++j) { sum = sum * 5 + p[(sum + j) & 255]; }\n"
    + "  out[all] = sum;\n}\n"
)


def test_groups_on_several_threads_leave_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "ALONE", 0)
    monkeypatch.setattr(threads, "count", lambda: 3)
    data = np.zeros(4 * 64 * 29, np.uint8), ints(*range(7, 263)), ints(50)
    assert both(SUMS, 29, 64, *data)[0].any()


MEETINGS = (
    HEAD
    + PLACES
    + "  threadgroup int t[64];\n  t[i] = p[all & 255] + n;\n  "
    + BARRIER
    + "\n  int other = t[63 - i];\n  "
    + BARRIER
    + "\n  t[i ^ 1] = other;\n  "
    + BARRIER
    + "\n  out[all] = t[i];\n}\n"
)


def test_groups_on_several_threads_know_nothing_of_what_others_did_to_threadgroup_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "ALONE", 0)
    monkeypatch.setattr(threads, "count", lambda: 3)
    data = np.zeros(4 * 64 * 29, np.uint8), ints(*range(7, 263)), ints(50)
    assert both(MEETINGS, 29, 64, *data)[0].any()


def test_of_several_threads_the_first_fault_of_the_grid_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "ALONE", 0)
    monkeypatch.setattr(threads, "count", lambda: 4)
    source = parse(HEAD + PLACES + "  out[all] = n;\n}\n")
    kernel = source.kernels["k"]
    code = write(source, kernel, (32, 1, 1))
    for _ in range(20):  # threads are never at the same places
        with pytest.raises(KernelFault, match="out") as found:
            Compiled(kernel, code).run((64, 1, 1), [np.zeros(4 * 640, np.uint8), ints(1), ints(1)])
        assert re.findall(r"\d+", str(found.value))[:2] == ["640", "640"]  # the index, and how many there are


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_a_kernel_that_is_told_to_stop_stops_in_its_loop(way: str) -> None:
    source = parse(SUMS)
    program, stop = Program(source, source.kernels["k"], way), Stop()
    data = dict(enumerate((np.zeros(4 * 64, np.uint8), ints(*range(256)), ints(2**31 - 1))))
    timer = threading.Timer(0.1, stop.ask)
    timer.start()
    with pytest.raises(Stopped):
        program.run((1, 1, 1), (64, 1, 1), data, stop=stop)  # type: ignore[arg-type]
    timer.join()
