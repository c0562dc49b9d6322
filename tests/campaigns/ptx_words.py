"""Words of PTX: another opcode, modifier, register, name or directive in a text that runs, or one that does not exist.

In       a case
Out      refused by `load` with the line, or run; Wrong where only a launch finds out that an instruction cannot run
Next     hcq/emu/nv/runnable.py (who refuses), readers.py (texts that are damaged as texts)

A kernel beside it, of which no word was changed, has to load and run whatever the changed one holds.
"""

from __future__ import annotations

import random
import re
from typing import Any

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

HEAD = (
    ".version 8.3\n.target sm_90a\n.address_size 64\n.extern .func (.param .b64 r) malloc(.param .b64 a);\n"
)
CALLED = """.func (.param .b32 r) twice(.param .b32 a) {
  .reg .b32 %r<3>;
  ld.param.u32 %r0, [a];
  add.u32 %r1, %r0, %r0;
  st.param.u32 [r], %r1;
  ret;
}
"""
UNUSED = """.func unused() {
  .reg .b32 %r<3>;
  mov.u32 %r0, %laneid;
  ret;
}
"""
CHANGED = """.visible .entry changed(.param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b16 %h<6>;
  .reg .b32 %r<20>;
  .reg .b64 %d<8>;
  .reg .f32 %f<10>;
  .reg .f64 %g<4>;
  .shared .align 16 .b8 tile[1024];
  .local .align 8 .b8 own[16];
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ntid.x;
  mad.lo.u32 %r2, %r0, %r1, 3;
  add.cc.u32 %r3, %r2, %r0;
  addc.u32 %r4, %r3, 0;
  cvt.rn.f32.u32 %f0, %r2;
  mul.rn.f32 %f1, %f0, 0f3F000000;
  fma.rn.f32 %f2, %f0, %f1, %f1;
  ex2.approx.ftz.f32 %f3, %f1;
  cvt.rn.f16.f32 %h0, %f2;
  cvt.f64.f32 %g0, %f2;
  div.rn.f64 %g1, %g0, 0d4008000000000000;
  setp.lt.u32 %p0, %r0, 16;
  selp.b32 %r5, %r2, %r3, %p0;
  @%p0 bra AHEAD;
  xor.b32 %r5, %r5, 255;
AHEAD:
  shl.b32 %r6, %r0, 2;
  cvt.u64.u32 %d1, %r6;
  mov.u32 %r7, tile;
  add.u32 %r8, %r7, %r6;
  st.shared.u32 [%r8], %r5;
  bar.sync 0;
  ld.shared.u32 %r9, [%r8];
  shfl.sync.bfly.b32 %r10, %r9, 1, 31, -1;
  vote.sync.ballot.b32 %r11, %p0, -1;
  redux.sync.add.u32 %r12, %r0, -1;
  atom.shared.add.u32 %r13, [tile], 1;
  prmt.b32 %r14, %r10, %r11, 0x5410;
  bfe.u32 %r15, %r14, 4, 8;
  lop3.b32 %r16, %r15, %r12, %r13, 0x96;
  st.local.u32 [own], %r16;
  ld.local.u32 %r17, [own];
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f4, %f5, %f6, %f7},
    {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
  { .param .b32 a; .param .b32 b;
  st.param.b32 [a], %r17;
  call.uni (b), twice, (a);
  ld.param.b32 %r18, [b]; }
  add.u64 %d2, %d0, %d1;
  st.global.u32 [%d2], %r18;
  red.global.add.u32 [%d0], %r12;
  membar.gl;
  ret;
}
"""
PLAIN = """.visible .entry plain(.param .u64 out)
{
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [out];
  st.global.u32 [%d0], 7;
  ret;
}
"""
KNOWN = """add sub mul mad fma div rem abs neg min max popc clz brev bfe bfi prmt and or xor not shl shr setp selp slct
mov ld st cvt cvta atom red bar barrier shfl vote match redux mma wgmma tex suld tcgen05 frobnicate alloca createpolicy
.u8 .u16 .u32 .u64 .s32 .b16 .b32 .b64 .b128 .f16 .f32 .f64 .bf16 .u31 .f17 .pred .f16x2 .e4m3x2 .v2 .v4 .v3 .rn .rz
.approx .ftz .sat .whole .sync .aligned .uni .lo .hi .wide .cc .shared .global .local .param .const .generic .volatile
.relaxed .gpu .sys .cta .cluster .lt .eq .ballot .bfly .idx .add .cas .exch .m16n8k8 .m16n8k16 .m8n8k4 .row .col .tf32
.block_scale .gizmo %tid.x %tid.w %laneid %moonphase %clock64 %cluster_ctarank %r0 %r99 %d0 %f0 %h0 %p0 %g0 tile own
twice unused malloc nobody AHEAD 0 1 -1 31 0xff 0f3F800000 0d3FF0000000000000 _ { } [ ] ( ) , ; @%p1 @!%p0""".split()
WORD = re.compile(r"\.?[A-Za-z_%$][\w$%:]*|0[fdxX][0-9A-Fa-f]+|-?\d+|[{}\[\](),;@!]")


def _kind(word: str) -> str:
    """What begins a word: a dot, a %, a letter, a digit, or a sign."""
    return "a" if word[0].isalpha() else "0" if word[0].isdigit() else word[0] if word[0] in ".%" else ";"


def changed_text(rng: random.Random) -> str:
    """The text with one to three words of the kernel, or of the function it calls, changed."""
    called, kernel = CALLED, CHANGED
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = called if rng.random() < 0.1 else kernel
        found = list(WORD.finditer(text, text.index("{") + 1, text.rindex("}")))  # inside of its braces
        word, other = rng.choice(found), rng.choice(found)
        new = rng.choice(KNOWN) if rng.random() < 0.6 else other[0]
        if rng.random() < 0.8:  # one of the same kind: most others are no PTX at first sight
            new = rng.choice([one for one in KNOWN if _kind(one) == _kind(word[0])])
        how = rng.randrange(8)
        if how == 0:
            new = ""
        elif how == 1:
            new = f"{word[0]}{new if new.startswith('.') else ' ' + new}"
        made = text[: word.start()] + new + text[word.end() :]
        called, kernel = (made, kernel) if text is called else (called, made)
    return HEAD + called + UNUSED + kernel + PLAIN


def run_words(case: Case) -> Outcome:
    from hcq.emu.port import port_for
    from hcq.errors import DeviceFault, HcqError, UsageError
    from hcq.nv.device import NvDevice

    text = changed_text(case.rng())
    device: Any = NvDevice("NV", port_for(["nv:sm_90:steps=100000"]))
    try:
        out = device.alloc(4096)
        try:
            program = device.load(text.encode(), "changed")
        except UsageError as refused:
            said = str(refused)
            if not re.search(r"\bline \d+\b", said) and "load('changed')" not in said:
                raise Wrong(f"refused without a line: {said}\n{text}") from refused
            program = None
        if program is not None:
            try:
                device.run(program, [out], grid=(2, 1, 1), block=(64, 1, 1))
                device.synchronize()
            except DeviceFault as fault:
                if "Illegal Instruction" in str(fault) or "is not known" in str(fault):
                    raise Wrong(f"found out by the launch: {fault}\n{text}") from fault
                return Outcome.RIGHT  # an access or a barrier that is wrong where it is reached
            except HcqError:
                return Outcome.RIGHT  # a loop without end
            return Outcome.RIGHT
        _check_plain(device, out, text)
        return Outcome.REFUSED
    finally:
        device.close()


def _check_plain(device: Any, out: Any, text: str) -> None:
    """The kernel beside the changed one runs, as long as a reader can tell where the functions end."""
    from hcq.errors import UsageError

    whole = HEAD + CALLED + UNUSED + CHANGED + PLAIN
    if any(text.count(word) != whole.count(word) for word in (".align 16", ".align 8")):
        return
    if re.sub(r"[^{}();]", "", text) != re.sub(r"[^{}();]", "", whole):
        return
    try:
        program = device.load(text.encode(), "plain")
    except UsageError as refused:
        if "begins no word of PTX" in str(refused):
            return
        raise Wrong(f"a kernel that was not changed is refused: {refused}\n{text}") from refused
    device.run(program, [out], grid=(1, 1, 1), block=(1, 1, 1))
    if int.from_bytes(out.read()[:4], "little") != 7:
        raise Wrong(f"a kernel that was not changed stored something else than 7\n{text}")


CAMPAIGNS = (
    Campaign(
        "ptx-words",
        "other words, and words that do not exist, in PTX that an emulated GPU runs",
        run_words,
        short=60,
        environment={"HCQ_EMULATE": "nv:sm_90", "HCQ_REPORT": "off", "HCQ_TIMEOUT_MS": "20000"},
        is_flat=False,
    ),
)
