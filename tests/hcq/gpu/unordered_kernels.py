"""Kernels with a race in global memory, each beside a twin that has none, for emulated GPUs of two vendors.

In       nothing
Out      `CASES`: what is wrong; `ptx` and `llvm_ir`, which write the kernel of a case with one of its variants
Next     test_global_sanitizer.py (runs them), racing_kernels.py (the same for shared memory)

A kernel has two blocks of 64 threads and three buffers of zeros: data, flag, out. A body is a row of statements: `only`
ends the others' work, `if block 0` and `if thread 0` go to `else` or `end`; what is read is stored to a place of the
thread's own in `out`.
"""

from __future__ import annotations

from typing import NamedTuple

THREADS = 64


class Case(NamedTuple):
    """What is wrong, and what is right. Each is the kernel's body."""

    rules: frozenset[str]
    wrong: str
    right: str


def _passing(release: str, acquire: str, store: str = "set flag", wait: str = "wait flag") -> str:
    """Block 0 writes, block 1 reads, and a flag says when."""
    return f"only thread 0; if block 0; write data; {release}; {store}; else; {wait}; {acquire}; read data"


def _counted(before: str, after: str) -> str:
    """Each block writes its part, and the last one to be done reads all."""
    return f"only thread 0; write data[block]; {before}; count flag; only last; {after}; read data[other]"


def _locked(release: str, acquire: str) -> str:
    return f"only thread 0; lock flag; {acquire}; add data; {release}; unlock flag"


FENCED = _passing("release", "acquire")
GLOBAL = frozenset({"global-race"})
CASES = {
    "a message without a fence before the flag": Case(GLOBAL, _passing("", "acquire"), FENCED),
    "a message without a fence after the flag": Case(GLOBAL, _passing("release", ""), FENCED),
    "a message with a fence before the data": Case(
        GLOBAL,
        "only thread 0; if block 0; release; write data; set flag; else; wait flag; acquire; read data",
        FENCED,
    ),
    "a message with a fence of the block": Case(GLOBAL, _passing("release block", "acquire"), FENCED),
    "a message read with a fence of the block": Case(GLOBAL, _passing("release", "acquire block"), FENCED),
    "the last block reads all without a fence before counting": Case(
        GLOBAL, _counted("", "acquire"), _counted("release", "acquire")
    ),
    "the last block reads all without a fence after counting": Case(
        GLOBAL, _counted("release", ""), _counted("release", "acquire")
    ),
    "a lock without fences": Case(GLOBAL, _locked("", ""), _locked("release", "acquire")),
    "a lock that is let go without a fence": Case(
        GLOBAL, _locked("", "acquire"), _locked("release", "acquire")
    ),
    "two blocks write one place": Case(
        GLOBAL, "only thread 0; write data", "only thread 0; write data[block]"
    ),
    "a counter without an atomic": Case(GLOBAL, "only thread 0; add data", "only thread 0; count data"),
    "zeroed while others count": Case(
        GLOBAL, "only thread 0; if block 0; write data; else; count data", "only thread 0; count data"
    ),
    "read while others count": Case(
        GLOBAL,
        "only thread 0; if block 0; count data; else; read data",
        "only thread 0; count data; count data",
    ),
    "no barrier between the warps of a block": Case(
        GLOBAL,
        "if block 0; write data[thread]; read data[mirrored]",
        "if block 0; write data[thread]; barrier; read data[mirrored]",
    ),
    "a place is written again before all have read it": Case(
        GLOBAL,
        "if block 0; write data[thread]; barrier; read data[mirrored]; write data[thread]",
        "if block 0; write data[thread]; barrier; read data[mirrored]; barrier; write data[thread]",
    ),
}
LANES = frozenset({"lane-race"})
OF_NVIDIA = {
    "atomics whose scope is the block": Case(
        GLOBAL, "only thread 0; count here data", "only thread 0; count data"
    ),
    "a flag that is set plainly": Case(GLOBAL, _passing("release", "acquire", "set plainly flag"), FENCED),
    "no bar.warp.sync between the threads of a warp": Case(
        LANES,
        "if block 0; write data[thread]; read data[near]",
        "if block 0; write data[thread]; meet; read data[near]",
    ),
    "threads of a warp write one place": Case(
        LANES, "if block 0; only first warp; write data", "if block 0; only thread 0; write data"
    ),
}
# what a fence before a barrier covers may be told by another warp behind it; and the other way round
TWINS = {
    "a fence, a barrier, and another warp sets the flag": (
        "if block 0; write data[thread]; release; barrier; only thread 0; set flag;"
        " else; only thread 0; wait flag; acquire; read data[mirrored]"
    ),
    "a barrier, a fence, and the same warp sets the flag": (
        "if block 0; write data[thread]; barrier; only thread 0; release; set flag;"
        " else; only thread 0; wait flag; acquire; read data[mirrored]"
    ),
    "who waited passes it on by a barrier": (
        "if block 0; write data[thread]; barrier; only thread 0; release; set flag;"
        " else; if thread 0; wait flag; acquire; end; barrier; read data[mirrored]"
    ),
}

PLACES = {
    "": "zero",
    "[block]": "block",
    "[other]": "other",
    "[thread]": "thread",
    "[mirrored]": "mirrored",
    "[near]": "near",
}
PTX_STATEMENTS = {
    "write": "st.global.u32 [{at}], 7;",
    "read": "ld.global.u32 %v{n}, [{at}]; st.global.u32 [%own], %v{n};",
    "add": "ld.global.u32 %v{n}, [{at}]; add.u32 %v{n}, %v{n}, 1; st.global.u32 [{at}], %v{n};",
    "count": "atom.global.add.u32 %old, [{at}], 1;",
    "count here": "atom.cta.global.add.u32 %old, [{at}], 1;",
    "set": "st.relaxed.gpu.global.u32 [{at}], 1;",
    "set plainly": "st.global.u32 [{at}], 1;",
    "wait": "wait{n}: ld.relaxed.gpu.global.u32 %v{n}, [{at}]; setp.eq.u32 %p{n}, %v{n}, 0; @%p{n} bra wait{n};",
    "lock": "wait{n}: atom.global.cas.b32 %v{n}, [{at}], 0, 1; setp.ne.u32 %p{n}, %v{n}, 0; @%p{n} bra wait{n};",
    "unlock": "st.relaxed.gpu.global.u32 [{at}], 0;",
    "release": "fence.acq_rel.gpu;",
    "acquire": "fence.acq_rel.gpu;",
    "release block": "fence.acq_rel.cta;",
    "acquire block": "membar.cta;",
    "barrier": "bar.sync 0;",
    "meet": "bar.warp.sync 0xffffffff;",
    "only thread 0": "setp.ne.u32 %p{n}, %thread, 0; @%p{n} bra done;",
    "only first warp": "setp.gt.u32 %p{n}, %thread, 31; @%p{n} bra done;",
    "only last": "setp.ne.u32 %p{n}, %old, 1; @%p{n} bra done;",
    "if block 0": "setp.ne.u32 %p{n}, %block, 0; @%p{n} bra else;",
    "if thread 0": "setp.ne.u32 %p{n}, %thread, 0; @%p{n} bra end;",
    "else": "bra done; else:",
    "end": "end:",
}


def ptx(body: str) -> bytes:
    """It in PTX, as the entry `kernel`."""
    lines = []
    for n, statement in enumerate(filter(None, map(str.strip, body.split(";")))):
        verb, buffer, index = _parts(statement)
        at = f"%at{n}"
        if buffer:
            lines.append(f"mad.wide.u32 {at}, %{PLACES[index]}, 4, %{buffer};")
        lines += PTX_STATEMENTS[verb].format(at=at, n=n).split("; ")
    lines += [] if "else" in body else ["else:"]
    text = "\n    ".join(line if line.endswith((";", ":")) else line + ";" for line in lines)
    names = " ".join(f".reg .b32 %v{n}; .reg .pred %p{n}; .reg .b64 %at{n};" for n in range(24))
    return f"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .reg .b32 %zero, %block, %other, %thread, %mirrored, %near, %place, %old;
    .reg .b64 %data, %flag, %own;
    {names}
    ld.param.u64 %data, [a];
    ld.param.u64 %flag, [b];
    ld.param.u64 %own, [c];
    mov.u32 %zero, 0;
    mov.u32 %old, 0;
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    sub.u32 %other, 1, %block;
    sub.u32 %mirrored, 63, %thread;
    xor.b32 %near, %thread, 1;
    mad.lo.u32 %place, %block, 64, %thread;
    mad.wide.u32 %own, %place, 4, %own;
    {text}
done:
    ret;
}}
""".encode()


IR_STATEMENTS = {
    "write": "store i32 7, ptr addrspace(1) {at}",
    "read": "%v{n} = load i32, ptr addrspace(1) {at}; store i32 %v{n}, ptr addrspace(1) %own",
    "add": (
        "%v{n} = load i32, ptr addrspace(1) {at}; %w{n} = add i32 %v{n}, 1; store i32 %w{n}, ptr addrspace(1) {at}"
    ),
    "count": '%old = atomicrmw add ptr addrspace(1) {at}, i32 1 syncscope("agent") monotonic',
    "set": 'store atomic i32 1, ptr addrspace(1) {at} syncscope("agent") monotonic, align 4',
    "wait": (
        "br label %wait{n}; wait{n}:;"
        ' %v{n} = load atomic i32, ptr addrspace(1) {at} syncscope("agent") monotonic, align 4;'
        " %p{n} = icmp eq i32 %v{n}, 0; br i1 %p{n}, label %wait{n}, label %on{n}; on{n}:"
    ),
    "lock": (
        "br label %wait{n}; wait{n}:;"
        ' %c{n} = cmpxchg ptr addrspace(1) {at}, i32 0, i32 1 syncscope("agent") monotonic monotonic;'
        " %p{n} = extractvalue {{i32, i1}} %c{n}, 1; br i1 %p{n}, label %on{n}, label %wait{n}; on{n}:"
    ),
    "unlock": 'store atomic i32 0, ptr addrspace(1) {at} syncscope("agent") monotonic, align 4',
    "release": 'fence syncscope("agent") release',
    "acquire": 'fence syncscope("agent") acquire',
    "release block": 'fence syncscope("workgroup") release',
    "acquire block": 'fence syncscope("workgroup") acquire',
    "barrier": (
        'fence syncscope("workgroup") release; call void @llvm.amdgcn.s.barrier();'
        ' fence syncscope("workgroup") acquire'
    ),
    "only thread 0": "%p{n} = icmp eq i32 %thread, 0; br i1 %p{n}, label %on{n}, label %done; on{n}:",
    "only last": "%p{n} = icmp eq i32 %old, 1; br i1 %p{n}, label %on{n}, label %done; on{n}:",
    "if block 0": "%p{n} = icmp eq i32 %block, 0; br i1 %p{n}, label %on{n}, label %else; on{n}:",
    "if thread 0": "%p{n} = icmp eq i32 %thread, 0; br i1 %p{n}, label %on{n}, label %end; on{n}:",
    "else": "br label %done; else:",
    "end": "br label %end; end:",
}


def llvm_ir(body: str) -> str:
    """It in LLVM's language for AMD GPUs, as the kernel `kernel`."""
    lines = []
    for n, statement in enumerate(filter(None, map(str.strip, body.split(";")))):
        verb, buffer, index = _parts(statement)
        at = f"%at{n}"
        if buffer:
            lines.append(f"{at} = getelementptr i32, ptr addrspace(1) %{buffer}, i32 %{PLACES[index]}")
        text = IR_STATEMENTS[verb].format(at=at, n=n)
        lines += text.replace("%old", f"%old{n}").split(";") if verb == "count" else text.split(";")
        if verb == "count":
            last = n
    lines += [] if "else" in body or "if block" not in body else ["br label %done", "else:"]
    text = "\n  ".join(lines)
    if "%old," in text:
        text = text.replace("%old,", f"%old{last},")
    return f"""
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @kernel(ptr addrspace(1) %data, ptr addrspace(1) %flag, ptr addrspace(1) %out) {{
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %block = call i32 @llvm.amdgcn.workgroup.id.x()
  %zero = and i32 %block, 0
  %other = sub i32 1, %block
  %mirrored = sub i32 {THREADS - 1}, %thread
  %first = mul i32 %block, {THREADS}
  %place = add i32 %first, %thread
  %own = getelementptr i32, ptr addrspace(1) %out, i32 %place
  {text}
  br label %done
done:
  ret void
}}
"""


def _parts(statement: str) -> tuple[str, str, str]:
    """(what is done, to which buffer if to one, at which place)."""
    if statement in PTX_STATEMENTS:
        return statement, "", ""
    verb, _, place = statement.rpartition(" ")
    buffer, bracket, index = place.partition("[")
    return verb, buffer, bracket + index
