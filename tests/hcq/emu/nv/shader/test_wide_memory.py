"""Values of 16 bytes and vectors: moves, loads, stores, exchanges, atomics by elements; hints that do nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import MisalignedAccess, PageFault, PtxError
from hcq.emu.nv.shader.memory import AddressSpace
from hcq.errors import UsageError
from tests.hcq.emu.nv.shader.running import HEADER, Launch, instructions, run_ptx


def kernel(body: str, params: str = "A B") -> str:
    """Thread t has its number in %t, and the addresses of its 16 bytes of each parameter in %A, %B."""
    names = params.split()
    text = [HEADER, f".visible .entry k({', '.join(f'.param .u64 P{name}' for name in names)}) {{"]
    text.append(
        ".reg .b32 %t, %r<10>; .reg .b64 %d<10>, %A, %B, %C; .reg .b128 %q<10>; .reg .pred %p; .reg .b16 %h<10>;"
    )
    text.append("mov.u32 %t, %tid.x; .shared .align 16 .b8 tile[1024]; mul.wide.u32 %d9, %t, 16;")
    text += [f"ld.param.u64 %{name}, [P{name}]; add.u64 %{name}, %{name}, %d9;" for name in names]
    return "\n".join([*text, body, "ret; }"])


# pairs that no float is equal to by its bits: NaNs, infinities, both zeros
ODD = np.array(
    [[0x7FF0000000000001, 0xFFF8000000000000], [0x8000000000000000, 0], [0, 0x8000000000000000],
     [0x7FF0000000000000, 0xFFFFFFFFFFFFFFFF], [1, 2], [0x7FF4000000000000, 0x7FF4000000000001]],
    np.uint64,
)  # fmt: skip


def test_sixteen_bytes_go_through_memory_and_registers_as_they_are() -> None:
    """Halves changed over, through shared memory, a function, and back; threads that part keep theirs."""
    function = """
.func (.param .b128 r) same(.param .b128 a) { .reg .b128 %q; ld.param.b128 %q, [a]; st.param.b128 [r], %q; ret; }
"""
    body = """
    ld.global.b128 %q0, [%A]; mov.b128 {%d0, %d1}, %q0; mov.b128 %q1, {%d1, %d0};
    cvt.u32.u64 %r0, %d9; mov.u32 %r1, tile; add.u32 %r1, %r1, %r0; st.shared.b128 [%r1], %q1;
    and.b32 %r2, %t, 1; setp.eq.u32 %p, %r2, 1; @%p bra ODD;
    ld.shared.b128 %q2, [%r1]; bra END;
    ODD: mov.b128 %q2, %q0;
    END: { .param .b128 a; .param .b128 b; st.param.b128 [a], %q2; call (b), same, (a); ld.param.b128 %q3, [b]; }
    st.global.b128 [%B], %q3;"""
    text = kernel(body)
    text = text.replace(HEADER, HEADER + function)
    out = np.zeros_like(ODD)
    run_ptx(text, "k", 1, len(ODD), ODD.copy(), out)
    expected = np.array([pair if t % 2 else pair[::-1] for t, pair in enumerate(ODD)])
    assert (out == expected).all()


@pytest.mark.parametrize("space", ["global", "shared"])
def test_exchanges_of_sixteen_bytes_serve_threads_in_order(space: str) -> None:
    place = {"global": "sub.u64 %d2, %B, %d9;", "shared": "cvt.u64.u32 %d2, %r1;"}[space]
    body = f"""
    ld.global.b128 %q0, [%A]; mov.u32 %r1, tile; {place} setp.eq.u32 %p, %t, 0;
    @%p st.{space}.b128 [%d2], %q0; bar.sync 0;
    atom.{space}.exch.b128 %q1, [%d2], %q0; st.global.b128 [%A], %q1;
    bar.sync 0; ld.{space}.b128 %q2, [%d2]; @%p st.global.b128 [%B], %q2;"""
    data, out = ODD.copy(), np.zeros((1, 2), np.uint64)
    run_ptx(kernel(body), "k", 1, len(ODD), data, out)
    assert (data == np.concatenate([ODD[:1], ODD[:-1]])).all()
    assert (out == ODD[-1:]).all()


@pytest.mark.parametrize("space", ["global", "shared"])
def test_compare_and_swap_compares_all_bits(space: str) -> None:
    """Every thread expects what the one before it stores, but for one, by a bit: behind it nothing changes."""
    place = {"global": "sub.u64 %d2, %C, %d9;", "shared": "cvt.u64.u32 %d2, %r1;"}[space]
    body = f"""
    ld.global.b128 %q0, [%A]; ld.global.b128 %q1, [%B]; mov.u32 %r1, tile; {place} setp.eq.u32 %p, %t, 0;
    ld.global.b128 %q3, [%C]; @%p st.{space}.b128 [%d2], %q3; bar.sync 0;
    atom.{space}.cas.b128 %q2, [%d2], %q0, %q1; st.global.b128 [%A], %q2;
    bar.sync 0; ld.{space}.b128 %q2, [%d2]; @%p st.global.b128 [%C], %q2;"""
    new = ODD.copy()
    compare = np.concatenate([np.array([[7, 7]], np.uint64), ODD[:-1]])
    compare[4, 1] ^= np.uint64(1)
    start = np.full((len(ODD), 2), 7, np.uint64)
    seen = compare.copy()
    run_ptx(kernel(body, "A B C"), "k", 1, len(ODD), seen, new, start)
    current, expected = (7, 7), []
    for wanted, value in zip(compare.tolist(), ODD.tolist()):
        expected.append(current)
        current = tuple(value) if tuple(wanted) == current else current
    assert seen.tolist() == [list(pair) for pair in expected]
    assert start[0].tolist() == list(current)


def test_a_loop_around_a_swap_of_sixteen_bytes_counts_every_thread() -> None:
    body = """
    sub.u64 %d2, %A, %d9; ld.global.b128 %q0, [%d2];
    AGAIN: mov.b128 {%d0, %d1}, %q0; add.u64 %d3, %d0, 1; add.u64 %d4, %d1, %d3; mov.b128 %q1, {%d3, %d4};
    atom.global.cas.b128 %q2, [%d2], %q0, %q1; mov.b128 {%d5, %d6}, %q2;
    setp.ne.u64 %p, %d5, %d0; mov.b128 %q0, %q2; @%p bra AGAIN;"""
    data = np.zeros((64, 2), np.uint64)
    run_ptx(kernel(body, "A"), "k", 1, 64, data)
    assert data[0].tolist() == [64, 64 * 65 // 2]


@pytest.mark.parametrize("line", [
    "add.b128 %q0, %q1, %q2;", "selp.b128 %q0, %q1, %q2, %p;", "ld.global.u64 %q0, [%A];", "st.global.u64 [%A], %q0;",
    "atom.global.add.b128 %q0, [%A], %q1;", "mov.b64 %d0, %q0;", "mov.b128 %q0, %d0;", "and.b128 %q0, %q1, %q2;",
])  # fmt: skip
def test_nothing_computes_in_sixteen_bytes(line: str) -> None:
    with pytest.raises(PtxError, match="PTX line"):
        run_ptx(kernel(line, "A"), "k", 1, 1, ODD.copy())


def test_sixteen_bytes_lie_at_multiples_of_sixteen() -> None:
    with pytest.raises(MisalignedAccess, match="not a multiple of 16"):
        run_ptx(kernel("ld.global.b128 %q0, [%A+8];", "A"), "k", 1, 1, ODD.copy())


# -- vectors


def bits(x: np.ndarray, kind: str) -> np.ndarray:
    """Small numbers in a format, as bits."""
    if kind.startswith("f16"):
        return x.astype(np.float16).view(np.uint16)
    if kind.startswith("bf16"):
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(np.float32).view(np.uint32)


VECTORS = [
    ("add", "v2.f32"), ("add", "v4.f32"),
    *((what, f"v{count}.{kind}") for what in ("add", "min", "max") for kind in ("f16", "bf16") for count in (2, 4, 8)),
    *((what, f"v{count}.{kind}") for what in ("add", "min", "max") for kind in ("f16x2", "bf16x2") for count in (2, 4)),
]  # fmt: skip
MEANINGS = {"add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("what, form", VECTORS)
def test_vector_atomics_change_each_element_for_every_thread(what: str, form: str, opcode: str) -> None:
    """Ten threads, two addresses; the numbers are small enough that every sum is exact."""
    kind = form.split(".")[1]
    count = int(form[1]) * (2 if kind.endswith("x2") else 1)
    rng = np.random.default_rng(6)
    values, start = rng.integers(-8, 8, (10, count)), rng.integers(-8, 8, (2, count))
    registers = int(form[1])
    size = bits(start, kind).itemsize * count // registers
    letter = "%h" if size == 2 else "%r"
    names = [f"{letter}{i}" for i in range(registers)]
    vector = "{" + ", ".join(names) + "}"
    noftz = "" if kind == "f32" else ".noftz"
    line = f"[%d1], {vector};" if opcode == "red" else f"{vector}, [%d1], {vector};"
    body = f"""
    sub.u64 %d0, %A, %d9; mad.wide.u32 %d0, %t, {size * registers}, %d0; and.b32 %r9, %t, 1;
    sub.u64 %d1, %B, %d9; mad.wide.u32 %d1, %r9, {size * registers}, %d1;
    {" ".join(f"ld.global.b{8 * size} {name}, [%d0+{i * size}];" for i, name in enumerate(names))}
    {opcode}.global.gpu.relaxed.{what}{noftz}.{form} {line}
    {" ".join(f"st.global.b{8 * size} [%d0+{i * size}], {name};" for i, name in enumerate(names))}"""
    memory, operands = bits(start, kind), bits(values, kind)
    run_ptx(kernel(body), "k", 1, 10, operands, memory)
    current, old = start.copy(), values.copy()
    for t in range(10):
        old[t] = current[t % 2]
        current[t % 2] = MEANINGS[what](current[t % 2], values[t])
    assert (memory == bits(current, kind)).all()
    assert (operands == bits(old if opcode == "atom" else values, kind)).all()


def test_the_least_of_halves_knows_zeros_and_nan() -> None:
    """Thread after thread: -0 is below +0, and a NaN changes nothing."""
    body = """
    sub.u64 %d0, %A, %d9; mad.wide.u32 %d0, %t, 4, %d0; sub.u64 %d1, %B, %d9; ld.global.v2.b16 {%h0, %h1}, [%d0];
    atom.global.min.noftz.v2.f16 {%h2, %h3}, [%d1], {%h0, %h1}; red.global.max.noftz.v2.f16 [%d1+4], {%h0, %h1};"""
    halves = np.array([[0.0, np.nan], [-0.0, 5.0], [0.0, np.nan], [np.nan, 7.0]], np.float16)
    memory = np.array([[0.0, np.inf], [-0.0, -np.inf]], np.float16)
    run_ptx(kernel(body), "k", 1, 4, halves, memory)
    assert (memory.view(np.uint16) == np.array([[-0.0, 5.0], [0.0, 7.0]], np.float16).view(np.uint16)).all()


@pytest.mark.parametrize("line", [
    "red.global.min.v2.f32 [%A], {%r0, %r1};", "red.global.add.v8.f32 [%A], {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};",
    "red.shared.add.v2.f32 [%A], {%r0, %r1};", "red.global.add.v2.u32 [%A], {%r0, %r1};",
    "red.global.add.v2.f32 [%A], {%r0, %r1, %r2};", "atom.global.add.v2.f32 %r0, [%A], {%r0, %r1};",
])  # fmt: skip
def test_vectors_that_do_not_exist_are_refused(line: str) -> None:
    with pytest.raises(PtxError, match="PTX line"):
        run_ptx(kernel(line + "st.global.u32 [%A], %r0;", "A"), "k", 1, 1, ODD.copy())


def test_a_vector_lies_at_a_multiple_of_its_size() -> None:
    with pytest.raises(MisalignedAccess, match=r"atomic of 16 bytes at .*not a multiple of 16"):
        run_ptx(kernel("red.global.add.v4.f32 [%A+8], {%r0, %r1, %r2, %r3};", "A"), "k", 1, 1, ODD.copy())


def test_thirty_two_bytes_are_loaded_and_stored_at_once() -> None:
    names = "{" + ", ".join(f"%r{i}" for i in range(8)) + "}"
    pairs = "{%d0, %d1, %d2, %d3}"
    body = f"""
    sub.u64 %d5, %A, %d9; mad.wide.u32 %d5, %t, 32, %d5; sub.u64 %d6, %B, %d9; mad.wide.u32 %d6, %t, 32, %d6;
    ld.global.v8.b32 {names}, [%d5]; add.u32 %r0, %r0, %t; xor.b32 %r7, %r7, %r0; st.global.v8.b32 [%d6], {names};
    ld.v4.b64 {pairs}, [%d6]; add.u64 %d3, %d3, 1; st.v4.b64 [%d6], {pairs};"""
    data = np.random.default_rng(9).integers(0, 2**31, (6, 8)).astype(np.uint32)
    out = np.zeros_like(data)
    run_ptx(kernel(body), "k", 1, 6, data.copy(), out)
    expected = data.copy()
    expected[:, 0] += np.arange(6, dtype=np.uint32)
    expected[:, 7] ^= expected[:, 0]
    wide = expected.view(np.uint64)
    wide[:, 3] += np.uint64(1)
    assert (out == expected).all()


@pytest.mark.parametrize(
    "place", ["ld.shared.v4.b64 {%d0, %d1, %d2, %d3}, [tile];", "ld.v4.b64 {%d0, %d1, %d2, %d3}, [%d4];"]
)
def test_thirty_two_bytes_of_other_memory_are_refused(place: str) -> None:
    body = f"mov.u64 %d5, tile; cvta.shared.u64 %d4, %d5; {place} st.global.u64 [%A], %d0;"
    with pytest.raises(PageFault, match="only global memory is accessed in more than 16 bytes"):
        run_ptx(kernel(body, "A"), "k", 1, 1, ODD.copy())


def test_memory_lies_at_multiples_of_the_longest_access() -> None:
    with pytest.raises(UsageError, match="a multiple of 32"):
        AddressSpace().map(0x10010, np.zeros(64, np.uint8))


# -- hints


POLICIES = [
    "createpolicy.fractional.L2::evict_last.b64 %d0, 1.0;", "createpolicy.fractional.L2::evict_first.b64 %d0;",
    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %d0, 0f3F000000;",
    "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %d0, [%A], 0x100000, 0x200000;",
    "createpolicy.range.L2::evict_normal.b64 %d0, [%A], %r0, %r1;", "createpolicy.cvt.L2.b64 %d0, %d5;",
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_cache_policies_are_taken_and_change_nothing(policy: str) -> None:
    body = f"""mov.u32 %r0, 4096; mov.u32 %r1, 8192; mov.u64 %d5, 0; {policy}
    ld.global.L2::cache_hint.v2.u64 {{%d1, %d2}}, [%A], %d0; add.u64 %d1, %d1, 1;
    st.global.L2::cache_hint.v2.u64 [%A], {{%d1, %d2}}, %d0;
    atom.global.add.L2::cache_hint.u64 %d3, [%A+8], 5, %d0; red.global.add.L2::cache_hint.u64 [%A+8], 6, %d0;"""
    data = np.arange(16, dtype=np.uint64).reshape(8, 2)
    run_ptx(kernel(body, "A"), "k", 1, 8, data)
    assert (data == np.arange(16).reshape(8, 2) + [1, 11]).all()


@pytest.mark.parametrize("policy", [
    "createpolicy.b64 %d0, 1.0;", "createpolicy.fractional.b64 %d0, 1.0;", "createpolicy.cvt.b64 %d0, %d1;",
    "createpolicy.fractional.L2::evict_best.b64 %d0, 1.0;", "createpolicy.range.L2::evict_last.b64 %d0, [%A], 1;",
])  # fmt: skip
def test_policies_that_do_not_exist_are_refused(policy: str) -> None:
    with pytest.raises(PtxError, match="PTX line"):
        run_ptx(kernel(policy, "A"), "k", 1, 1, ODD.copy())


def test_a_logic_function_of_three_also_combines_whether_it_is_zero() -> None:
    rng = np.random.default_rng(8)
    a, b, c = (rng.integers(0, 4, 200).astype(np.uint32) for _ in range(3))
    lines = """setp.gt.u32 %q, %c, 1; lop3.or.b32 %x|%p, %a, %b, %c, 0x80, %q; lop3.and.b32 _|%r, %a, %b, %c, 0x80, !%q;
    selp.u32 %y, 1, 0, %p; @%r add.u32 %y, %y, 2;"""
    x, y = instructions(lines, [a, b, c], "32 32")
    assert (x == (a & b & c)).all()
    assert (y == ((x != 0) | (c > 1)) + 2 * ((x != 0) & ~(c > 1))).all()


def test_a_kernel_can_be_loaded_with_initial_values_of_sixteen_bytes() -> None:
    launch = Launch()
    text = (
        HEADER
        + ".global .align 16 .b128 numbers[2] = {0x000102030405060708090A0B0C0D0E0F, 5};\n"
        + kernel(
            "mov.u64 %d0, numbers; add.u64 %d0, %d0, %d9; ld.global.b128 %q0, [%d0]; st.global.b128 [%A], %q0;",
            "A",
        ).removeprefix(HEADER)
    )
    out = np.zeros(32, np.uint8)
    launch.run(launch.load(text, "k"), 1, 2, out)
    assert bytes(out) == bytes(range(15, -1, -1)) + bytes([5, *[0] * 15])
