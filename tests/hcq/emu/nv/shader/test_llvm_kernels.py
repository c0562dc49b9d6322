"""Random programs in LLVM's IR: as PTX from the NVPTX back end, run here, and as native code of this machine."""

from __future__ import annotations

import ctypes
import random

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import run_ptx
from tests.turns import seeds

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("float", "double")
SIZE = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
COMPARISONS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
FLOAT_COMPARISONS = (
    "oeq",
    "one",
    "olt",
    "ole",
    "ogt",
    "oge",
    "ord",
    "ueq",
    "une",
    "ult",
    "ule",
    "ugt",
    "uge",
    "uno",
)
LANES = 96


class Writer:
    """A random function body over values of several types: defined operations only, so that both machines agree."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.values: dict[str, list[str]] = {type_: [] for type_ in (*INTEGERS, *FLOATS, "i1")}
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def add(self, type_: str, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        self.values[type_].append(name)
        return name

    def pick(self, type_: str) -> str:
        if self.random.random() < 0.15 and type_ in INTEGERS:
            return str(self.random.choice([0, 1, -1, 2, 3, 7, 100, -128]))
        return self.random.choice(self.values[type_])

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.4:
            self._integer()
        elif choice < 0.6:
            self._float()
        elif choice < 0.7:
            self._compare()
        elif choice < 0.85:
            self._convert()
        else:
            type_ = self.random.choice([*INTEGERS, *FLOATS])
            self.add(
                type_, f"select i1 {self.pick('i1')}, {type_} {self.pick(type_)}, {type_} {self.pick(type_)}"
            )

    def _integer(self) -> None:
        type_ = self.random.choice(INTEGERS)
        bits = 8 * SIZE[type_]
        op = self.random.choice(
            ["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "urem", "sdiv", "srem"]
        )
        a, b = self.pick(type_), self.pick(type_)
        if op in ("shl", "lshr", "ashr"):
            b = self.add(type_, f"and {type_} {b}, {bits - 1}")
        elif op in ("udiv", "urem"):
            b = self.add(type_, f"or {type_} {b}, 1")
        elif op in ("sdiv", "srem"):  # a positive divisor: never 0, never -1
            b = self.add(type_, f"lshr {type_} {b}, 1")
            b = self.add(type_, f"or {type_} {b}, 1")
        if self.random.random() < 0.2 and bits >= 32:
            x, y = f"{type_} {a}", f"{type_} {b}"
            call = self.random.choice([
                f"ctpop.{type_}({x})", f"bitreverse.{type_}({x})", f"ctlz.{type_}({x}, i1 false)",
                f"fshl.{type_}({x}, {y}, {x})", f"smax.{type_}({x}, {y})", f"umin.{type_}({x}, {y})",
            ])  # fmt: skip
            self.add(type_, f"call {type_} @llvm.{call}")
            return
        self.add(type_, f"{op} {type_} {a}, {b}")

    def _float(self) -> None:
        type_ = self.random.choice(FLOATS)
        a, b, c = (self.pick(type_) for _ in range(3))
        suffix = "f32" if type_ == "float" else "f64"
        text = self.random.choice([
            f"fadd {type_} {a}, {b}", f"fsub {type_} {a}, {b}", f"fmul {type_} {a}, {b}", f"fdiv {type_} {a}, {b}",
            f"fneg {type_} {a}", f"call {type_} @llvm.fma.{suffix}({type_} {a}, {type_} {b}, {type_} {c})",
            f"call {type_} @llvm.fabs.{suffix}({type_} {a})",
        ])  # fmt: skip
        self.add(type_, text)

    def _compare(self) -> None:
        if self.random.random() < 0.6:
            type_ = self.random.choice(INTEGERS)
            self.add(
                "i1", f"icmp {self.random.choice(COMPARISONS)} {type_} {self.pick(type_)}, {self.pick(type_)}"
            )
        else:
            type_ = self.random.choice(FLOATS)
            self.add(
                "i1",
                f"fcmp {self.random.choice(FLOAT_COMPARISONS)} {type_} {self.pick(type_)}, {self.pick(type_)}",
            )

    def _convert(self) -> None:
        a, b = self.random.sample(INTEGERS, 2)
        kind = self.random.random()
        if kind < 0.5:
            op = "trunc" if SIZE[a] > SIZE[b] else self.random.choice(["zext", "sext"])
            self.add(b, f"{op} {a} {self.pick(a)} to {b}")
        elif kind < 0.75:
            type_ = self.random.choice(FLOATS)
            self.add(type_, f"{self.random.choice(['sitofp', 'uitofp'])} {a} {self.pick(a)} to {type_}")
        elif kind < 0.85:
            self.add("double", f"fpext float {self.pick('float')} to double")
        elif kind < 0.95:
            self.add("float", f"fptrunc double {self.pick('double')} to float")
        else:
            type_, whole = self.random.choice([("float", "i32"), ("double", "i64")])
            suffix = "f32" if type_ == "float" else "f64"
            self.add(whole, f"call {whole} @llvm.fptosi.sat.{whole}.{suffix}({type_} {self.pick(type_)})")


def program(seed: int, for_gpu: bool) -> str:
    """A kernel: every thread loads a value of each type, computes, loops a few times, and stores one of each type."""
    w = Writer(seed)
    types = [*INTEGERS, *FLOATS]
    pointer = "ptr addrspace(1)" if for_gpu else "ptr"
    arguments = ", ".join(f"{pointer} %{kind}{i}" for i in range(len(types)) for kind in ("in", "out"))
    for i, type_ in enumerate(types):
        at = w.name()
        w.lines.append(f"  {at} = getelementptr {type_}, {pointer} %in{i}, i64 %lane")
        w.add(type_, f"load {type_}, {pointer} {at}")
    w.add("i1", f"icmp slt i32 {w.values['i32'][0]}, 0")
    for _ in range(30):
        w.step()
    # a loop of a different length in every thread, with a branch inside
    bound = w.add("i32", f"and i32 {w.pick('i32')}, 7")
    starts = {type_: w.pick(type_) if type_ in FLOATS else w.values[type_][-1] for type_ in types}
    before = w.lines
    w.lines = []
    inner = {type_: [f"%loop{i}"] for i, type_ in enumerate(types)}
    w.values = {
        **{type_: [*w.values[type_], *inner[type_] * 3] for type_ in types},
        "i1": list(w.values["i1"]),
    }
    for _ in range(12):
        w.step()
    condition = w.add("i1", f"icmp ult i32 {w.pick('i32')}, {w.pick('i32')}")
    at_branch = {type_: list(values) for type_, values in w.values.items()}
    body, w.lines = w.lines, []
    for _ in range(6):
        w.step()
    then = w.lines
    taken = {type_: w.values[type_][-1] for type_ in types}
    other = {type_: at_branch[type_][-1] for type_ in types}
    taken = {type_: taken[type_] if taken[type_] not in at_branch[type_] else other[type_] for type_ in types}
    phis = [f"  %loop{i} = phi {t} [ {starts[t]}, %entry ], [ %next{i}, %join ]" for i, t in enumerate(types)]
    joins = [
        f"  %next{i} = phi {t} [ {taken[t]}, %then ], [ {other[t]}, %loop ]" for i, t in enumerate(types)
    ]
    stores = []
    for i, type_ in enumerate(types):
        stores.append(f"  %to{i} = getelementptr {type_}, {pointer} %out{i}, i64 %lane")
        stores.append(f"  store {type_} %next{i}, {pointer} %to{i}")
    lane = "%lane = zext i32 %tid to i64"
    first = ["  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()", f"  {lane}"] if for_gpu else []
    head = (
        f"define {'ptx_kernel ' if for_gpu else ''}void @k({arguments}{'' if for_gpu else ', i64 %lane'}) {{"
    )
    lines = [head, "entry:", *first, *before, "  br label %loop", "loop:", *phis]
    lines += [
        "  %trip = phi i32 [ 0, %entry ], [ %more, %join ]",
        *body,
        f"  br i1 {condition}, label %then, label %join",
    ]
    lines += ["then:", *then, "  br label %join", "join:", *joins, "  %more = add i32 %trip, 1"]
    lines += [
        f"  %again = icmp ult i32 %more, {bound}",
        "  br i1 %again, label %loop, label %done",
        "done:",
        *stores,
        "  ret void",
        "}",
    ]
    return "\n".join([*lines, "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()" if for_gpu else ""])


def inputs(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for bits, scalar in ((8, np.uint8), (16, np.uint16), (32, np.uint32), (64, np.uint64)):
        wide = rng.integers(0, 2**63, LANES, dtype=np.uint64) >> rng.integers(0, bits, LANES).astype(
            np.uint64
        )
        found.append(wide.astype(scalar))
    floats = rng.standard_normal(LANES) * 10.0 ** rng.integers(-3, 4, LANES)
    return [*found, floats.astype(np.float32), floats[::-1].copy()]


def on_the_host(text: str, arrays: list[np.ndarray], outs: list[np.ndarray]) -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=1)
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        pointers = [ctypes.c_void_p(array.ctypes.data) for pair in zip(arrays, outs) for array in pair]
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)(
            engine.get_function_address("k")
        )
        for lane in range(LANES):
            function(*pointers, lane)


def to_ptx(text: str, opt: int) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly('target triple = "nvptx64-nvidia-cuda"\n' + text)
    module.verify()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    ptx: str = target.create_target_machine(cpu="sm_90", features="+ptx80", opt=opt).emit_assembly(module)
    return ptx


@pytest.mark.parametrize("seed", seeds(8, of=40))
def test_a_random_program_computes_what_this_machine_computes(seed):
    arrays = inputs(seed)
    here, there = ([np.zeros_like(array) for array in arrays] for _ in range(2))
    on_the_host(program(seed, for_gpu=False), arrays, here)
    ptx = to_ptx(program(seed, for_gpu=True), opt=seed % 4)
    run_ptx(ptx, "k", 1, LANES, *[array for pair in zip(arrays, there) for array in pair])
    for type_, expected, found in zip([*INTEGERS, *FLOATS], here, there):
        same = (expected == found) | ((expected != expected) & (found != found))
        assert same.all(), (
            f"{type_}: threads {np.flatnonzero(~same)[:5]}: {found[~same][:5]}, expected {expected[~same][:5]}"
        )
