"""Functions that compiled PTX calls: each is compiled once for all kernels, and kept on disk by itself.

In       the text of a kernel
Out      names of the modules it needs, their declarations; the functions, in memory
Changes  LLVM's symbols
Next     native_frame.py (who declares them), native_moves.py and native_atomics.py (their text),
         hcq/emu/compiled/assemble.py (machine code)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

from hcq.emu.compiled import accesses, assemble
from hcq.emu.nv.shader import native_atomics, native_copies, native_memory, native_tiles
from hcq.emu.nv.shader.lane_numbers import WARP

BASE = "base"
PREFIX = "hcq_ptx_"
EXPORTED = ("seek", "gone", "gathered", "let_go", "of_group")
# by "@name", of the function that others call: its text, or what makes it
PARTS: Mapping[str, str | Callable[[], str]] = {
    **native_memory.SOMETIMES,
    **native_atomics.FUNCTIONS,
    **native_tiles.FUNCTIONS,
    **native_copies.FUNCTIONS,
}


def used(text: str) -> list[str]:
    """Modules whose functions a text calls."""
    return [BASE, *(name for name in PARTS if f"{name}(" in text)]


def _exported(name: str) -> tuple[str, ...]:
    return EXPORTED if name == BASE else (name[1:],)


@functools.cache
def _module(name: str) -> str:
    """The text of a module, whose functions have names that nobody else uses."""
    part = _BASE if name == BASE else PARTS[name]
    text = part if isinstance(part, str) else part()
    text = text if name == BASE else f"{text}\n{ATTRIBUTES}"
    for one in _exported(name):
        text = re.sub(rf"define internal (.*)@{one}\(", rf"define \1@{PREFIX}{one}(", text)
    lines = text.splitlines()
    declared = sorted({line for line in lines if line.startswith("declare")})
    return "\n".join([*declared, *(line for line in lines if not line.startswith("declare"))])


def declarations(names: list[str]) -> list[str]:
    """How a kernel declares them; it calls them by their short names."""
    found = []
    for name in names:
        for one in _exported(name):
            line = re.search(rf"^define (.*)@{PREFIX}{one}\((.*)\) ", _module(name), re.MULTILINE)
            assert line is not None
            kinds = re.sub(r" %\w+", "", line[2])
            found.append(f"declare {line[1]}@{PREFIX}{one}({kinds})")
    return found


def renamed(text: str, names: list[str]) -> str:
    """A kernel's text with the names that are theirs alone."""
    short = "|".join(one for name in names for one in _exported(name))
    return re.sub(rf"@({short})\(", rf"@{PREFIX}\1(", text)


def need(names: list[str]) -> None:
    """They are in memory from now on."""
    for name in names:
        assemble.need(_module(name), tuple(PREFIX + one for one in _exported(name)))


ATTRIBUTES = 'attributes #0 = { "min-legal-vector-width"="512" }'
_BASE = f"""{accesses.LOOKUP}
{native_memory.PRELUDE}
declare i32 @llvm.vector.reduce.umin.v{WARP}i32(<{WARP} x i32>)
declare i32 @llvm.vector.reduce.umax.v{WARP}i32(<{WARP} x i32>)

define internal i32 @gone(ptr %pc, i64 %ended) noinline {{
  %code = trunc i64 %ended to i32
  %old = load <{WARP} x i32>, ptr %pc, align 64
  %one = insertelement <{WARP} x i32> poison, i32 %code, i64 0
  %all = shufflevector <{WARP} x i32> %one, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  %is = icmp eq <{WARP} x i32> %old, %all
  %bits = bitcast <{WARP} x i1> %is to i32
  ret i32 %bits
}}

; where all threads of a block's warps are that have not ended: one number, or -1
define internal i32 @gathered(ptr %pcs, ptr %lives, i64 %begin, i64 %until, i64 %ended) noinline #0 {{
entry:
  %code = trunc i64 %ended to i32
  %ei = insertelement <{WARP} x i32> poison, i32 %code, i64 0
  %e = shufflevector <{WARP} x i32> %ei, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  br label %loop
loop:
  %n = phi i64 [%begin, %entry], [%n1, %loop]
  %low = phi i32 [-1, %entry], [%low2, %loop]
  %high = phi i32 [0, %entry], [%high2, %loop]
  %pc = getelementptr [{WARP} x i32], ptr %pcs, i64 %n
  %at = load <{WARP} x i32>, ptr %pc, align 64
  %lp = getelementptr i32, ptr %lives, i64 %n
  %l = load i32, ptr %lp
  %live = bitcast i32 %l to <{WARP} x i1>
  %on = icmp ne <{WARP} x i32> %at, %e
  %who = and <{WARP} x i1> %live, %on
  %lows = select <{WARP} x i1> %who, <{WARP} x i32> %at, <{WARP} x i32> splat (i32 -1)
  %highs = select <{WARP} x i1> %who, <{WARP} x i32> %at, <{WARP} x i32> zeroinitializer
  %least = call i32 @llvm.vector.reduce.umin.v{WARP}i32(<{WARP} x i32> %lows)
  %most = call i32 @llvm.vector.reduce.umax.v{WARP}i32(<{WARP} x i32> %highs)
  %is_less = icmp ult i32 %least, %low
  %low2 = select i1 %is_less, i32 %least, i32 %low
  %is_more = icmp ugt i32 %most, %high
  %high2 = select i1 %is_more, i32 %most, i32 %high
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %until
  br i1 %more, label %loop, label %end
end:
  %one = icmp eq i32 %low2, %high2
  %result = select i1 %one, i32 %low2, i32 -1
  ret i32 %result
}}

; where all threads of four warps are: one number, or -1
define internal i32 @of_group(ptr %pcs, i64 %begin) noinline #0 {{
  %p0 = getelementptr [{WARP} x i32], ptr %pcs, i64 %begin
  %a = load <{WARP} x i32>, ptr %p0, align 64
  %p1 = getelementptr i8, ptr %p0, i64 {4 * WARP}
  %b = load <{WARP} x i32>, ptr %p1, align 64
  %p2 = getelementptr i8, ptr %p0, i64 {8 * WARP}
  %c = load <{WARP} x i32>, ptr %p2, align 64
  %p3 = getelementptr i8, ptr %p0, i64 {12 * WARP}
  %d = load <{WARP} x i32>, ptr %p3, align 64
  %first = extractelement <{WARP} x i32> %a, i64 0
  %oi = insertelement <{WARP} x i32> poison, i32 %first, i64 0
  %o = shufflevector <{WARP} x i32> %oi, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  %ax = xor <{WARP} x i32> %a, %o
  %bx = xor <{WARP} x i32> %b, %o
  %cx = xor <{WARP} x i32> %c, %o
  %dx = xor <{WARP} x i32> %d, %o
  %ab = or <{WARP} x i32> %ax, %bx
  %cd = or <{WARP} x i32> %cx, %dx
  %all = or <{WARP} x i32> %ab, %cd
  %differ = icmp ne <{WARP} x i32> %all, zeroinitializer
  %bits = bitcast <{WARP} x i1> %differ to i32
  %same = icmp eq i32 %bits, 0
  %result = select i1 %same, i32 %first, i32 -1
  ret i32 %result
}}

define internal void @let_go(ptr %pcs, i64 %begin, i64 %until, i32 %code, i32 %node) noinline #0 {{
entry:
  %ci = insertelement <{WARP} x i32> poison, i32 %code, i64 0
  %c = shufflevector <{WARP} x i32> %ci, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  %gi = insertelement <{WARP} x i32> poison, i32 %node, i64 0
  %g = shufflevector <{WARP} x i32> %gi, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  br label %loop
loop:
  %n = phi i64 [%begin, %entry], [%n1, %loop]
  %pc = getelementptr [{WARP} x i32], ptr %pcs, i64 %n
  %at = load <{WARP} x i32>, ptr %pc, align 64
  %is = icmp eq <{WARP} x i32> %at, %c
  %new = select <{WARP} x i1> %is, <{WARP} x i32> %g, <{WARP} x i32> %at
  store <{WARP} x i32> %new, ptr %pc, align 64
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %until
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
