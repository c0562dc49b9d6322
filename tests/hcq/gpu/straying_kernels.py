"""Kernels that touch memory which is not theirs, each beside a twin that does not, for emulated GPUs of two vendors.

In       nothing
Out      `CASES`: what a kernel does wrong, the rule that it breaks, its text and that of its twin, for each vendor
Next     test_sanitizer_memory.py (runs them)

A kernel has two buffers of 400 bytes, a and b, and a number, n. 64 threads run it, each with an address in both: its
own word. What stops a kernel is found, too.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.hcq.gpu.kernels_in_llvm_ir import amd_kernel

BUFFER_BYTES = 400


class Text(NamedTuple):
    """A kernel, wrong and right. stops: the emulated GPU stops the wrong one at the access."""

    wrong: str
    right: str
    stops: bool = False


class Case(NamedTuple):
    """rule: the one that is broken. n: the kernel's number, in the wrong kernel and in the right one."""

    rule: str
    nv: Text | None
    amd: Text | None
    n: tuple[int, int] = (0, 0)


def ptx(body: str) -> bytes:
    """It in PTX, as the entry `kernel`: %a and %b are a thread's own words, %d1 and %d2 the buffers."""
    lines = "\n    ".join(f"{one.strip()};" for one in body.split(";") if one.strip()).replace(
        "AGAIN: ", "AGAIN:\n    "
    )
    return f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 n)
{{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .b64 %a;
    .reg .b64 %b;
    .reg .b64 %n;
    .reg .pred %p<2>;
    .local .align 16 .b8 mine[64];
    .shared .align 16 .b8 words[1024];
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [b];
    ld.param.u64 %n, [n];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 4;
    add.u64 %a, %d1, %d3;
    add.u64 %b, %d2, %d3;
    {lines}
    ret;
}}
""".encode()


def _both(nv: str, amd: str, wrong: int, right: int, stops: bool = False) -> tuple[Text, Text]:
    """The same kernels with another number at AT."""
    made = (
        Text(*(text.replace("AT", str(number)) for number in (wrong, right)), stops=stops)
        for text in (nv, amd)
    )
    first, second = made
    return first, second


def _at(offset: str, then: str) -> str:
    return f"%q = getelementptr i8, ptr addrspace(1) %pa, i64 {offset}\n  {then}"


COPY = "%v = load i32, ptr addrspace(1) %q\n  store i32 %v, ptr addrspace(1) %pb"
CASES = {
    "a load behind the end": Case(
        "buffer-overrun",
        *_both("ld.global.u32 %r2, [%a+AT]; st.global.u32 [%b], %r2", _at("AT", COPY), 148, 144),
    ),
    "a store behind the end": Case(
        "buffer-overrun",
        *_both("st.global.u32 [%a+AT], %r1", _at("AT", "store i32 %t, ptr addrspace(1) %q"), 148, 144),
    ),
    "into the next buffer": Case(
        "buffer-overrun",
        Text(
            "add.u64 %d4, %a, %n; st.global.u32 [%d4], %r1",
            "sub.u64 %d4, %d2, %d1; add.u64 %d4, %d4, %a; st.global.u32 [%d4], %r1",
        ),
        Text(
            _at("%n", "store i32 %t, ptr addrspace(1) %q"),
            "%ia = ptrtoint ptr addrspace(1) %a to i64\n  %ib = ptrtoint ptr addrspace(1) %b to i64\n"
            "  %d = sub i64 %ib, %ia\n  " + _at("%d", "store i32 %t, ptr addrspace(1) %q"),
        ),
        n=(512, 0),
    ),
    "behind the one or the other buffer": Case(
        "buffer-overrun",
        *_both(
            "setp.lt.u32 %p1, %r1, 9; selp.b64 %d4, %a, %b, %p1; st.global.u32 [%d4+AT], %r1",
            "%c = icmp ult i32 %t, 9\n  %pc = select i1 %c, ptr addrspace(1) %pa, ptr addrspace(1) %pb\n"
            "  %q = getelementptr i8, ptr addrspace(1) %pc, i64 AT\n  store i32 %t, ptr addrspace(1) %q",
            1024,
            144,
        ),
    ),
    "before its beginning": Case(
        "buffer-overrun",
        *_both(
            "sub.u64 %d4, %b, AT; ld.global.u32 %r2, [%d4]; st.global.u32 [%a], %r2",
            "%q = getelementptr i8, ptr addrspace(1) %pb, i64 -AT\n"
            "  %v = load i32, ptr addrspace(1) %q\n  store i32 %v, ptr addrspace(1) %pa",
            4,
            0,
        ),
    ),
    "further in each round": Case(
        "buffer-overrun",
        *_both(
            "mov.u32 %r2, 0; AGAIN: st.global.u32 [%a], %r2; add.u64 %a, %a, 256; add.u32 %r2, %r2, 1;"
            " setp.lt.u32 %p1, %r2, AT; @%p1 bra AGAIN",
            "br label %again\nagain:\n  %i = phi i32 [0, %entry], [%j, %again]\n"
            "  %p = phi ptr addrspace(1) [%a, %entry], [%next, %again]\n"
            "  store volatile i32 %i, ptr addrspace(1) %p\n"
            "  %next = getelementptr i8, ptr addrspace(1) %p, i64 256\n  %j = add i32 %i, 1\n"
            "  %more = icmp ult i32 %j, AT\n  br i1 %more, label %again, label %end\nend:",
            3,
            1,
        ),
    ),
    "a byte behind the end": Case(
        "buffer-overrun",
        *_both(
            "st.global.u8 [%d1+AT], %r1",
            "%q = getelementptr i8, ptr addrspace(1) %a, i64 AT\n  store i8 1, ptr addrspace(1) %q",
            400,
            399,
        ),
    ),
    "sixteen bytes over the end": Case(
        "buffer-overrun",
        *_both(
            "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+AT]; st.global.u32 [%b], %r5",
            "%q = getelementptr i8, ptr addrspace(1) %a, i64 AT\n"
            "  %w = load <4 x i32>, ptr addrspace(1) %q, align 16\n"
            "  %i = extractelement <4 x i32> %w, i32 3\n  store <4 x i32> %w, ptr addrspace(1) %b, align 16",
            400,
            384,
        ),
    ),
    "an atomic behind the end": Case(
        "buffer-overrun",
        *_both(
            "red.global.add.u32 [%d1+AT], 1",
            "%q = getelementptr i8, ptr addrspace(1) %a, i64 AT\n"
            '  %v = atomicrmw add ptr addrspace(1) %q, i32 1 syncscope("agent") monotonic',
            400,
            396,
        ),
    ),
    "a counter behind the end, which is returned": Case(
        "buffer-overrun",
        *_both(
            "atom.global.add.u32 %r2, [%d1+AT], 1; st.global.u32 [%b], %r2",
            "%q = getelementptr i8, ptr addrspace(1) %a, i64 AT\n"
            '  %v = atomicrmw add ptr addrspace(1) %q, i32 1 syncscope("agent") monotonic\n'
            "  store i32 %v, ptr addrspace(1) %pb",
            404,
            0,
        ),
    ),
    "a null pointer": Case(
        "null-access",
        Text(
            "ld.global.u32 %r2, [%n]; st.global.u32 [%b], %r2",
            "setp.ne.u64 %p1, %n, 0; @%p1 ld.global.u32 %r2, [%n]; st.global.u32 [%b], %r1",
            stops=True,
        ),
        Text(
            "%p = inttoptr i64 %n to ptr addrspace(1)\n  %v = load volatile i32, ptr addrspace(1) %p",
            "%v = load volatile i32, ptr addrspace(1) %a",
            stops=True,
        ),
    ),
    "an address from nowhere": Case(
        "stray-access",
        Text("ld.global.u32 %r2, [%n]", "ld.global.u32 %r2, [%d1]", stops=True),
        Text(
            "%p = inttoptr i64 %n to ptr addrspace(1)\n  store volatile i32 1, ptr addrspace(1) %p",
            "store volatile i32 1, ptr addrspace(1) %a",
            stops=True,
        ),
        n=(0x5000_0000_0000, 0),
    ),
    "an address that is no multiple": Case(
        "misaligned-access", Text("ld.global.u32 %r2, [%a+2]", "ld.global.u16 %r2, [%a+2]", stops=True), None
    ),
    "an odd address in shared memory": Case(
        "misaligned-access",
        Text("st.shared.u32 [words+2], %r1", "st.shared.u16 [words+2], %r1", stops=True),
        None,
    ),
    "beyond shared memory": Case(
        "shared-beyond",
        Text("st.shared.u32 [words+1024], %r1", "st.shared.u32 [words+1020], %r1", stops=True),
        Text(
            "%s = getelementptr i8, ptr addrspace(3) @words, i64 %n\n  store volatile i32 %t, ptr addrspace(3) %s",
            "%s = getelementptr i8, ptr addrspace(3) @words, i64 %n\n  store volatile i32 %t, ptr addrspace(3) %s",
        ),
        n=(1536, 1020),
    ),
    "beyond the memory of a thread": Case(
        "local-overrun",
        Text(
            "ld.local.u32 %r2, [mine+64]",
            "st.local.u32 [mine+60], %r1; ld.local.u32 %r2, [mine+60]",
            stops=True,
        ),
        Text(
            "%m = alloca [16 x i32], addrspace(5)\n"
            "  %s = getelementptr i8, ptr addrspace(5) %m, i64 %n\n  store volatile i32 %t, ptr addrspace(5) %s",
            "%m = alloca [16 x i32], addrspace(5)\n"
            "  %s = getelementptr i8, ptr addrspace(5) %m, i64 %n\n  store volatile i32 %t, ptr addrspace(5) %s",
            stops=True,
        ),
        n=(4096, 60),
    ),
    "far beyond the arguments": Case(
        "arguments-overrun", Text("ld.param.u64 %d4, [a+48]", "ld.param.u64 %d4, [a+16]", stops=True), None
    ),
    "beyond the arguments": Case(
        "arguments-overrun", Text("ld.param.u32 %r2, [a+24]", "ld.param.u32 %r2, [a+20]"), None
    ),
}


def image(case: Case, is_wrong: bool, arch: str) -> bytes | str | None:
    """PTX, or LLVM's language; None where the vendor has no such kernel."""
    text = case.amd if arch.startswith("gfx") else case.nv
    if text is None:
        return None
    body = text.wrong if is_wrong else text.right
    if not arch.startswith("gfx"):
        return ptx(body)
    return amd_kernel(body, "@words = internal addrspace(3) global [1024 x i8] poison, align 16")
