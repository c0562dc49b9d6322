"""Which way each instruction of PTX runs: as machine code of the host, by the interpreter, or not at all.

In       examples of each instruction, in its forms
Out      ways: names by way
Next     native_text.py (what is compiled), opcodes.py (what is interpreted), docs/emulated-ptx.md (the lists)
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.native_text import Translator
from hcq.emu.nv.shader.opcodes import decode
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.syntax import Function, Module
from hcq.errors import UsageError

COMPILED, INTERPRETED, REFUSED = "compiled", "interpreted", "refused"
TARGET = ".version 9.0\n.target sm_100a\n.address_size 64\n"
REGISTERS = (
    ".reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<9>; .reg .b128 %q<3>; .reg .f32 %f<9>; .reg .f64 %e<9>;"
    " .reg .pred %p<9>; .shared .align 16 .b8 tile[64];"
)
KINDS = {
    "h": "b16 u16 s16 f16 bf16",
    "r": "b32 u32 s32 f16x2 bf16x2",
    "d": "b64 u64 s64",
    "f": "f32",
    "e": "f64",
    "p": "pred",
}
LETTERS = {kind: letter for letter, kinds in KINDS.items() for kind in kinds.split()}
# forms: a name up to its type, the types, the letters of result and sources (t: of that type), what follows
FORMS = """
add sub min max | u16 s16 u32 s32 u64 s64 f16 f16x2 bf16 bf16x2 f32 f64 | t tt
mul.lo mad.lo sad | u16 s16 u32 s32 u64 s64 | t tt
mad.lo sad | u16 s16 u32 s32 u64 s64 | t ttt
mul.hi div rem | u16 s16 u32 s32 u64 s64 | t tt
mul | f16 f16x2 bf16 bf16x2 f32 f64 | t tt
add.cc addc sub.cc subc | u32 u64 | t tt
mad.hi mad.lo.cc madc.lo | u32 u64 | t ttt
mul.wide | u16 s16 | r hh
mul.wide | u32 s32 | d rr
mul24.lo mul24.hi | u32 s32 | t tt
mad24.lo | u32 s32 | t ttt
dp4a.u32 dp2a.lo.u32 | u32 s32 | r rrr
neg abs | s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 | t t
and or xor | b16 b32 b64 pred | t tt
not | b16 b32 b64 pred | t t
cnot | b16 b32 b64 | t t
shl | b16 b32 b64 | t tr
shr | u16 s16 u32 s32 u64 s64 | t tr
shf.l.wrap shf.r.clamp | b32 | r rrr
lop3 | b32 | r rrr | , 0xCA
prmt | b32 | r rrr
popc clz | b32 b64 | r t
bfind | u32 s32 u64 s64 | r t
brev | b32 b64 | t t
bfe | u32 s32 u64 s64 | t trr
bfi | b32 b64 | t ttrr
bmsk.clamp | b32 | r rr
szext.wrap | u32 s32 | r rr
fns | b32 | r rrr
selp | b16 b32 b64 f32 f64 | t ttp
slct | u32 | r rrr | | .s32
setp.lt | u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64 | p tt
set.lt.u32 | u32 s32 f32 f64 | r tt
testp.finite | f32 f64 | p t
copysign | f32 f64 | t tt
fma.rn | f16 f16x2 bf16 bf16x2 f32 f64 | t ttt
add.rz sub.rp mul.rm | f32 f64 | t tt
fma.rz | f32 f64 | t ttt
div.rn | f32 f64 | t tt
div.approx div.full | f32 | t tt
sqrt.rn rcp.rn | f32 f64 | t t
sqrt.rz rcp.rz | f32 f64 | t t
sqrt.approx rcp.approx rsqrt.approx | f32 | t t
ex2.approx lg2.approx sin.approx cos.approx tanh.approx | f32 | t t
ex2.approx tanh.approx | f16 f16x2 bf16 bf16x2 | t t
mov | b16 b32 b64 b128 f32 f64 pred | t t
cvt.rn.f32 | u16 s32 u64 f64 | f t
cvt.f32 | f16 bf16 | f t
cvt.rzi.s32 cvt.rni.u32 | f32 f64 | r t
cvt.rn.f16 cvt.rn.bf16 | f32 | h t
cvt.rn.f16x2 cvt.rn.bf16x2 | f32 | r tt
cvt.rn.satfinite.e4m3x2 cvt.rn.satfinite.e5m2x2 | f32 | h tt
cvt.rn.f16x2 | e4m3x2 e5m2x2 | r h
cvt.u64 cvt.s64 | u32 s32 | d r
cvt.pack.sat.s16 | s32 | r rr
activemask | b32 | r
match.any.sync match.all.sync | b32 | r r | , 0xFFFFFFFF
redux.sync.add redux.sync.min redux.sync.max | u32 s32 | r r | , 0xFFFFFFFF
redux.sync.and redux.sync.or redux.sync.xor | b32 | r r | , 0xFFFFFFFF
redux.sync.min | f32 | f f | , 0xFFFFFFFF
shfl.sync.bfly shfl.sync.idx shfl.sync.up shfl.sync.down | b32 | r rrr | , 0xFFFFFFFF
vote.sync.any vote.sync.all vote.sync.uni | pred | p p | , 0xFFFFFFFF
vote.sync.ballot | b32 | r p | , 0xFFFFFFFF
movmatrix.sync.aligned.m8n8.trans | b16 | r r
vadd.u32.u32 vsub.u32.u32 vmin.u32.u32 vmax.u32.u32 vabsdiff.u32.u32 | u32 | r rr
vshl.u32.u32 vshr.u32.u32 | u32 | r rr | | .clamp
vset.u32.u32 | lt | r rr
vmad.u32.u32 | u32 | r rrr
vadd2.u32.u32 vsub2.u32.u32 vavrg2.u32.u32 vmin2.u32.u32 vmax2.u32.u32 vabsdiff2.u32.u32 | u32 | r rrr
vadd4.u32.u32 vsub4.u32.u32 vavrg4.u32.u32 vmin4.u32.u32 vmax4.u32.u32 vabsdiff4.u32.u32 | u32 | r rrr
vset2.u32.u32 vset4.u32.u32 | lt | r rrr
"""
# and whole instructions
OTHERS = """
ld.global.u8 %h1, [%d1]; ld.global.u32 %r1, [%d1]; ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1];
ld.global.b128 %q1, [%d1]; ld.shared.u32 %r1, [%r2]; ld.local.u32 %r1, [%r2]; ld.u32 %r1, [%d1];
ld.const.u32 %r1, [%d1]; ldu.global.u32 %r1, [%d1]; st.global.u8 [%d1], %h1; st.global.u32 [%d1], %r1;
st.global.v4.f32 [%d1], {%f1, %f2, %f3, %f4}; st.global.b128 [%d1], %q1; st.shared.u32 [%r2], %r1;
st.local.u32 [%r2], %r1; st.u32 [%d1], %r1; fence.acq_rel.gpu; membar.gl; atom.global.add.u32 %r1, [%d1], %r2;
atom.global.min.s64 %d1, [%d2], %d3; atom.shared.exch.b32 %r1, [%r2], %r3;
atom.global.cas.b32 %r1, [%d1], %r2, %r3; atom.global.inc.u32 %r1, [%d1], %r2;
atom.global.dec.u32 %r1, [%d1], %r2; atom.global.cas.b16 %h1, [%d1], %h2, %h3;
atom.global.add.f32 %f1, [%d1], %f2; atom.global.add.f64 %e1, [%d1], %e2;
atom.global.cas.b128 %q1, [%d1], %q2, %q0; red.global.add.u32 [%d1], %r1; red.global.and.b32 [%d1], %r1;
red.global.add.f32 [%d1], %f1; cvta.to.global.u64 %d1, %d2; cvta.shared.u64 %d1, %d2; isspacep.shared %p1, %d1;
mov.b64 {%r1, %r2}, %d1; mov.b64 %d1, {%r1, %r2}; mov.u32 %r1, %tid.x; mov.u64 %d1, %clock64;
mov.u32 %r1, %laneid; elect.sync %r1|%p1, 0xFFFFFFFF; cp.async.ca.shared.global [%r1], [%d1], 16;
cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all; prefetch.global.L2 [%d1];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], %r2, [%r3];
cp.async.bulk.commit_group; mbarrier.init.shared.b64 [%r1], 1; mbarrier.arrive.shared.b64 %d1, [%r1];
mbarrier.try_wait.shared.b64 %p1, [%r1], %d1;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2}; mapa.u64 %d1, %d2, %r1; getctarank.u64 %r1, %d1;
createpolicy.fractional.L2::evict_last.b64 %d1;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1,
%f2, %f3, %f4};
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6},
{%f1, %f2, %f3, %f4};
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1,
%f2, %f3, %f4};
mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r1,
%r2, %r3, %r4};
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r1, %r2};
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6},
{%f1, %f2, %f3, %f4};
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%e1, %e2}, {%e3}, {%e4}, {%e1, %e2};
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1];
wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
setmaxnreg.inc.sync.aligned.u32 128;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, 1, 1, 1, 0, 0;
tcgen05.fence::before_thread_sync; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;
nanosleep.u32 %r1; pmevent 1; griddepcontrol.wait; discard.global.L2 [%d1], 128;
applypriority.global.L2::evict_normal [%d1], 128; alloca.u64 %d1, %d2; stacksave.u64 %d1; stackrestore.u64 %d1;
bra.uni END; bar.sync 0; barrier.sync 0; bar.sync 0, 64; bar.red.popc.u32 %r1, 0, %p1; bar.warp.sync 0xFFFFFFFF;
barrier.cluster.arrive.aligned; exit; ret; trap; tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1, %r2}];
suld.b.1d.b32.trap %r1, [%d1, {%r2}]; sust.b.1d.b32.trap [%d1, {%r2}], %r1; txq.width.b32 %r1, [%d1];
multimem.ld_reduce.global.add.u32 %r1, [%d1]; multimem.st.global.u32 [%d1], %r1; brkpt;
multimem.red.global.add.u32 [%d1], %r1; st.async.release.gpu.global.u32 [%d1], %r1;
red.async.release.gpu.global.add.s32 [%d1], %r1; add.u8x4 %r1, %r2, %r3; fma.rn.oob.f16x2 %r1, %r2, %r3, %r4;
cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2; cvt.rs.satfinite.e4m3x4.f32 %r1, {%f1, %f2, %f3, %f4}, %r2;
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r5];
stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1], {%r2};
mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r8}, {%r1, %r2, %r3, %r4};
mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%e1, %e2, %e3, %e4}, {%e1, %e2, %e3, %e4, %e5, %e6, %e7, %e8},
{%e1, %e2, %e3, %e4}, {%e1, %e2, %e3, %e4};
mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4},
{%r5, %r6, %r7, %r8}, {%f1, %f2, %f3, %f4}, %r9, 0;
wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, %r1, 0, 1, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r1, %r2, %r3, %r4}, %d1, %d2, 1;
tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, 1;
tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %d1, %d2, [%r3], %r2, 1;
tcgen05.mma.ws.cta_group::1.kind::f16.collector::b0::fill [%r1], %d1, %d2, %r2, 1;
tcgen05.shift.cta_group::1.down [%r1]; tcgen05.cp.cta_group::1.128x256b [%r1], %d1;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];
"""


def examples() -> Iterator[tuple[str, str]]:
    """(name, instruction)."""
    for line in FORMS.strip().splitlines():
        stems, types, letters, *more = (part.strip() for part in line.split("|"))
        result, _, sources = letters.partition(" ")
        tail, behind = (more + ["", ""])[:2]
        for stem in stems.split():
            for type_ in types.split():
                own = LETTERS.get(type_, "q" if type_ == "b128" else "r")
                name = f"{stem}.{type_}{behind}"
                places = [
                    f"%{own if letter == 't' else letter}{number}"
                    for number, letter in enumerate(result + sources)
                ]
                yield name, f"{name} {', '.join(places)}{tail}"
    for one in OTHERS.replace("\n", " ").split(";"):
        text = one.strip()
        if text:
            name = text.split(" ")[0]
            yield (text if name in ("bar.sync", "mov.u64", "mov.b64") else name), text


def way_of(instruction: str) -> str:
    """How one instruction runs."""
    text = f"{TARGET}.visible .entry k() {{ {REGISTERS}\n{instruction};\nEND: ret; }}"
    try:
        decoded = decode(*_function(text))
    except (PtxError, UsageError):
        return REFUSED
    translator = Translator(decoded, True, (1 << 40, 1 << 41))
    return COMPILED if translator.traces(instruction.split(" ")[0].partition(".")[0]) else INTERPRETED


def _function(text: str) -> tuple[Module, Function]:
    module = parse(text)
    return module, module.functions["k"]


def ways() -> dict[str, str]:
    """name -> way. The end of a kernel, where compiled code leaves off anyway, counts as compiled."""
    return {name: way_of(text) for name, text in examples()}
