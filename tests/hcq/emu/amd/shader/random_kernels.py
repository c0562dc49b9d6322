"""Random kernels: LLVM IR whose meaning is the same on every machine, run by the host as the second opinion.

In       a seed
Out      IR for a GPU kernel and for a host function with the same body; inputs
Next     test_differential.py (compares the two), kernels.py (how the GPU's half is assembled)

Nothing in a body is undefined: shift amounts are masked, divisors are odd, floats become integers by saturating.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INTEGERS = ("i16", "i32", "i64")
FLOATS = ("half", "float", "double")
WIDTH = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
SLOT = {"i16": 0, "i32": 1, "i64": 2, "half": 3, "float": 4, "double": 5}
DTYPES: dict[str, Any] = {
    "i16": np.uint16,
    "i32": np.uint32,
    "i64": np.uint64,
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
}
BINARY = ("add", "sub", "mul", "and", "or", "xor")
EXTREMES = ("umin", "umax", "smin", "smax", "uadd.sat", "usub.sat", "sadd.sat", "ssub.sat")
FLOAT_BINARY = ("fadd", "fsub", "fmul", "fdiv")
COUNTS = ("ctpop", "bitreverse", "ctlz", "cttz", "abs")
ROUNDS = ("floor", "ceil", "trunc", "rint", "fabs", "sqrt")


@dataclass
class Body:
    """IR text under construction, with the values that may be used so far."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    count: int = 0
    label: str = "entry"

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, kind: str, text: str) -> str:
        out = self.name()
        self.lines.append(f"  {out} = {text}")
        self.values.setdefault(kind, []).append(out)
        return out

    def temporary(self, text: str) -> str:
        out = self.name()
        self.lines.append(f"  {out} = {text}")
        return out

    def pick(self, kind: str) -> str:
        known = self.values.get(kind, [])
        if not known or self.rng.random() < 0.15:
            return self.constant(kind)
        return self.rng.choice(known[-12:])

    def constant(self, kind: str) -> str:
        if kind in FLOATS:
            known = ["1.0", "-2.5", "0.5", "3.0", "1024.0", "0.125"]
            # LLVM 22 packs the half constants (x, -0.0) for gfx9 as (x, 0.0)
            return self.rng.choice(known if kind == "half" else [*known, "-0.0"])
        bits = WIDTH[kind]
        return str(self.rng.choice((0, 1, -1, 7, 255, 1 << (bits - 2), self.rng.getrandbits(bits - 1))))

    def intrinsic(self, name: str, kind: str, *operands: tuple[str, str]) -> str:
        types = ", ".join(t for t, _ in operands)
        full = f"@llvm.{name}.{short(kind)}"
        self.declared.add(f"declare {kind} {full}({types})")
        return f"call {kind} {full}({', '.join(f'{t} {v}' for t, v in operands)})"


def short(kind: str) -> str:
    return {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)


def integer_step(b: Body) -> None:
    rng, kind = b.rng, b.rng.choice(INTEGERS)
    bits, a = WIDTH[kind], b.pick(kind)
    choice = rng.randrange(9)
    if choice <= 2:
        b.emit(kind, f"{rng.choice(BINARY)} {kind} {a}, {b.pick(kind)}")
    elif choice == 3:
        amount = b.temporary(f"and {kind} {b.pick(kind)}, {bits - 1}")
        b.emit(kind, f"{rng.choice(('shl', 'lshr', 'ashr'))} {kind} {a}, {amount}")
    elif choice == 4:
        odd = b.temporary(f"or {kind} {b.pick(kind)}, 1")
        if rng.random() < 0.5:
            b.emit(kind, f"{rng.choice(('udiv', 'urem'))} {kind} {a}, {odd}")
        else:
            small = b.temporary(f"and {kind} {odd}, 127")
            b.emit(kind, f"{rng.choice(('sdiv', 'srem'))} {kind} {a}, {small}")
    elif choice == 5:
        b.emit(kind, b.intrinsic(rng.choice(EXTREMES), kind, (kind, a), (kind, b.pick(kind))))
    elif choice == 6:
        name = rng.choice(COUNTS)
        flag = [("i1", "false")] if name in ("ctlz", "cttz", "abs") else []
        b.emit(kind, b.intrinsic(name, kind, (kind, a), *flag))
    elif choice == 7:
        three = [(kind, b.pick(kind)) for _ in range(3)]
        b.emit(kind, b.intrinsic(rng.choice(("fshl", "fshr")), kind, *three))
    else:
        test = rng.choice(("eq", "ne", "ult", "ugt", "ule", "slt", "sgt", "sge"))
        c = b.temporary(f"icmp {test} {kind} {a}, {b.pick(kind)}")
        other = rng.choice(INTEGERS + FLOATS)
        b.emit(other, f"select i1 {c}, {other} {b.pick(other)}, {other} {b.pick(other)}")


def float_step(b: Body) -> None:
    rng, kind = b.rng, b.rng.choice(FLOATS)
    a = b.pick(kind)
    choice = rng.randrange(7)
    if choice <= 2:
        b.emit(kind, f"{rng.choice(FLOAT_BINARY)} {kind} {a}, {b.pick(kind)}")
    elif choice == 3:
        b.emit(kind, b.intrinsic(rng.choice(ROUNDS), kind, (kind, a)))
    elif choice == 4:
        if kind == "half":  # the host's fused half multiply rounds twice
            b.emit(kind, f"fneg {kind} {a}")
        else:
            b.emit(kind, b.intrinsic("fma", kind, (kind, a), (kind, b.pick(kind)), (kind, b.pick(kind))))
    elif choice == 5:
        sign = b.pick(kind)
        ordered = b.temporary(f"fcmp ord {kind} {sign}, {sign}")  # the sign of a NaN is nobody's promise
        known = b.temporary(f"select i1 {ordered}, {kind} {sign}, {kind} 1.0")
        b.emit(kind, b.intrinsic("copysign", kind, (kind, a), (kind, known)))
    else:
        test = rng.choice(("oeq", "one", "olt", "ogt", "ole", "uno", "ueq", "ult", "uge"))
        c = b.temporary(f"fcmp {test} {kind} {a}, {b.pick(kind)}")
        other = rng.choice(INTEGERS + FLOATS)
        b.emit(other, f"select i1 {c}, {other} {b.pick(other)}, {other} {b.pick(other)}")


def convert_step(b: Body) -> None:
    rng = b.rng
    choice = rng.randrange(5)
    if choice == 0:
        small, large = rng.choice((("i16", "i32"), ("i16", "i64"), ("i32", "i64")))
        if rng.random() < 0.5:
            b.emit(small, f"trunc {large} {b.pick(large)} to {small}")
        else:
            b.emit(large, f"{rng.choice(('zext', 'sext'))} {small} {b.pick(small)} to {large}")
    elif choice == 1:
        integer, floating = rng.choice(("i16", "i32", "i64")), rng.choice(("float", "double"))
        b.emit(floating, f"{rng.choice(('sitofp', 'uitofp'))} {integer} {b.pick(integer)} to {floating}")
    elif choice == 2:
        integer, floating = rng.choice(("i32", "i64")), rng.choice(("float", "double"))
        name = rng.choice(("fptosi.sat", "fptoui.sat"))
        full = f"@llvm.{name}.{integer}.{short(floating)}"
        b.declared.add(f"declare {integer} {full}({floating})")
        b.emit(integer, f"call {integer} {full}({floating} {b.pick(floating)})")
    elif choice == 3:
        small, large = rng.choice((("half", "float"), ("float", "double")))
        if rng.random() < 0.5:
            b.emit(small, f"fptrunc {large} {b.pick(large)} to {small}")
        else:
            b.emit(large, f"fpext {small} {b.pick(small)} to {large}")
    else:
        pair = rng.choice((("i16", "half"), ("i32", "float"), ("i64", "double")))
        # only floats become bits after their NaNs are one and the same
        b.emit(pair[1], f"bitcast {pair[0]} {b.pick(pair[0])} to {pair[1]}")


def pair_step(b: Body) -> None:
    """Two halves at once: packed instructions."""
    rng = b.rng
    kind = rng.choice(("half", "i16"))
    vectors = []
    for _ in range(2):
        first = b.temporary(f"insertelement <2 x {kind}> poison, {kind} {b.pick(kind)}, i32 0")
        vectors.append(b.temporary(f"insertelement <2 x {kind}> {first}, {kind} {b.pick(kind)}, i32 1"))
    op = (
        rng.choice(("fadd", "fmul", "fsub"))
        if kind == "half"
        else rng.choice(("add", "sub", "mul", "and", "xor"))
    )
    both = b.temporary(f"{op} <2 x {kind}> {vectors[0]}, {vectors[1]}")
    for lane in (0, 1):
        b.emit(kind, f"extractelement <2 x {kind}> {both}, i32 {lane}")


def steps(b: Body, count: int) -> None:
    for _ in range(count):
        b.rng.choice((integer_step, integer_step, float_step, float_step, convert_step, pair_step))(b)


def branch(b: Body, depth: int) -> None:
    """if / else on a value that differs between work-items; results meet in phis."""
    tag = b.count
    c = b.temporary(f"icmp slt i32 {b.pick('i32')}, {b.pick('i32')}")
    b.lines.append(f"  br i1 {c}, label %then{tag}, label %else{tag}")
    before = {kind: list(values) for kind, values in b.values.items()}
    ends, results = [], []
    kinds = [b.rng.choice(INTEGERS), b.rng.choice(FLOATS)]
    for side in ("then", "else"):
        b.values = {kind: list(values) for kind, values in before.items()}
        b.lines.append(f"{side}{tag}:")
        b.label = f"{side}{tag}"
        steps(b, 3)
        if depth and side == "then":
            branch(b, depth - 1)
        results.append([b.pick(kind) for kind in kinds])
        ends.append(b.label)
        b.lines.append(f"  br label %join{tag}")
    b.values = before
    b.lines.append(f"join{tag}:")
    b.label = f"join{tag}"
    for index, kind in enumerate(kinds):
        b.emit(kind, f"phi {kind} [ {results[0][index]}, %{ends[0]} ], [ {results[1][index]}, %{ends[1]} ]")


def loop(b: Body) -> None:
    """A loop whose trip count differs between work-items."""
    tag = b.count
    trips = b.temporary(f"and i32 {b.pick('i32')}, 7")
    kinds = [b.rng.choice(INTEGERS), b.rng.choice(FLOATS)]
    starts = [b.pick(kind) for kind in kinds]
    entry = b.label
    b.lines.append(f"  br label %loop{tag}")
    b.lines.append(f"loop{tag}:")
    phi_at = len(b.lines)
    index = f"%i{tag}"
    carried = [f"%c{tag}_{n}" for n in range(2)]
    before = {kind: list(values) for kind, values in b.values.items()}
    for kind, name in zip(kinds, carried):
        b.values.setdefault(kind, []).append(name)
    b.values.setdefault("i32", []).append(index)
    b.label = f"loop{tag}"
    steps(b, 4)
    nexts = [b.values[kind][-1] for kind in kinds]
    after = b.temporary(f"add i32 {index}, 1")
    more = b.temporary(f"icmp ule i32 {after}, {trips}")
    b.lines.append(f"  br i1 {more}, label %loop{tag}, label %out{tag}")
    phis = [f"  {index} = phi i32 [ 0, %{entry} ], [ {after}, %{b.label} ]"]
    for kind, name, start, following in zip(kinds, carried, starts, nexts):
        phis.append(f"  {name} = phi {kind} [ {start}, %{entry} ], [ {following}, %{b.label} ]")
    b.lines[phi_at:phi_at] = phis
    b.lines.append(f"out{tag}:")
    b.label = f"out{tag}"
    b.values = before
    for kind, name in zip(kinds, nexts):
        b.values.setdefault(kind, []).append(name)


@dataclass(frozen=True)
class Kernel:
    """The two texts, and how many results of each kind a work-item stores."""

    gpu: str
    host: str
    results: int


RESULTS = 3


def make(seed: int) -> Kernel:
    """A body with arithmetic, a branch, a loop and more arithmetic; its last values of every kind are stored."""
    b = Body(random.Random(seed))
    for kind, slot in SLOT.items():
        for index in range(2):
            place = b.temporary(f"getelementptr {kind}, ptr AS %in{slot}, i64 %at{index}")
            b.emit(kind, f"load {kind}, ptr AS {place}")
    steps(b, 8)
    branch(b, 1)
    steps(b, 3)
    loop(b)
    steps(b, 5)
    for kind, slot in SLOT.items():
        for index, value in enumerate(b.values[kind][-RESULTS:]):
            offset = b.temporary(f"add i64 %first, {index}")
            place = b.temporary(f"getelementptr {kind}, ptr AS %out{slot}, i64 {offset}")
            b.lines.append(f"  store {kind} {value}, ptr AS {place}")
    pointers = ", ".join(f"ptr AS %in{i}, ptr AS %out{i}" for i in range(len(SLOT)))
    head = ["  %at0 = mul i64 %gid, 2", "  %at1 = add i64 %at0, 1", f"  %first = mul i64 %gid, {RESULTS}"]
    text = "\n".join([*head, *b.lines])
    declares = "\n".join(sorted(b.declared))
    gpu = f"""{declares}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @body({pointers}) {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %m = mul i32 %g, 64
  %n = add i32 %m, %t
  %gid = zext i32 %n to i64
{text}
  ret void
}}
""".replace("ptr AS", "ptr addrspace(1)")
    host = f"""{declares}
define void @body({pointers}, i64 %gid) {{
entry:
{text}
  ret void
}}
""".replace("ptr AS", "ptr")
    return Kernel(gpu, host, RESULTS)


def inputs(seed: int, items: int) -> dict[str, np.ndarray[Any, Any]]:
    """Two numbers of every kind for each work-item: edge values among random ones. No NaN that carries a message."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray[Any, Any]] = {}
    for kind, dtype in DTYPES.items():
        if kind in FLOATS:
            x = (rng.standard_normal(2 * items) * 10.0 ** rng.integers(-3, 4, 2 * items)).astype(dtype)
            edges = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny / 2, np.finfo(dtype).max, 1.0]
        else:
            x = rng.integers(0, np.iinfo(dtype).max, 2 * items, dtype=dtype, endpoint=True)
            top = int(np.iinfo(dtype).max)
            edges = [0, 1, top, top // 2, top // 2 + 1, 2, 3, 10]
        where = rng.integers(0, 2 * items, items // 2)
        x[where] = np.array(edges, dtype)[rng.integers(0, len(edges), items // 2)]
        out[kind] = x
    return out
