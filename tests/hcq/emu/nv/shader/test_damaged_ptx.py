"""Damaged PTX: it is refused with a sentence, or it runs; nothing else happens."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.run import Kernel
from hcq.errors import DeviceFault, UsageError
from tests.hcq.emu.nv.shader.running import compile_cuda, needs_nvrtc, run_ptx

SOURCE = """
__constant__ float table[4] = {1, 2, 3, 4};
__device__ __noinline__ float helper(float x, int n) { return n > 2 ? x * table[n & 3] : sinf(x); }
extern "C" __global__ void k(float *out, const float *in, int n) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  tile[t] = in[t];
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < n; i++) sum += tile[(t + i) & 63] * helper(in[t], i);
  switch (t & 7) { case 0: sum += 1; break; case 1: sum *= 2; break; case 2: sum = -sum; break; case 3: sum /= 3; break;
                   case 4: sum = sqrtf(sum); break; case 5: sum = fabsf(sum); }
  atomicAdd(&out[t & 15], __shfl_xor_sync(~0u, sum, 1));
}"""
TOKENS = "add.u32 bra ret ; , { } [ ] ( ) %r1 %p1 %rd1 %f1 .u64 .pred @ @%p1 0 -1 0f3F800000 .global .shared ld st mov"
WORDS = [*TOKENS.split(), "call", "%tid.x", "_", "|"]


def survives(ptx: str) -> str:
    try:
        run_ptx(ptx, "k", 1, 64, np.zeros(64, np.float32), np.ones(64, np.float32), 5, step_limit=20_000)
    except (UsageError, DeviceFault) as refusal:
        assert len(str(refusal)) > 20
        return type(refusal).__name__
    return "runs"


@needs_nvrtc
@pytest.mark.parametrize("seed", range(6))
def test_changed_words_are_refused_or_run(seed):
    ptx = compile_cuda(SOURCE)
    rng = random.Random(seed)
    outcomes = set()
    for _ in range(60):
        lines = ptx.split("\n")
        at = rng.randrange(8, len(lines))
        words = lines[at].split(" ")
        kind = rng.random()
        if kind < 0.4:
            words[rng.randrange(len(words))] = rng.choice(WORDS)
        elif kind < 0.6:
            words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
        elif kind < 0.8:
            lines[at], lines[at - 1] = lines[at - 1], lines[at]
            words = lines[at].split(" ")
        else:
            del words[rng.randrange(len(words))]
        lines[at] = " ".join(words)
        outcomes.add(survives("\n".join(lines)))
    assert "PtxError" in outcomes


@needs_nvrtc
def test_changed_characters_are_refused_or_run():
    ptx = compile_cuda(SOURCE)
    rng = random.Random(9)
    for _ in range(200):
        text = list(ptx)
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = chr(rng.randrange(32, 127))
        survives("".join(text))


LINES = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r0, %r1, %r2, %r3}, %d0, %d1, %p0, 1, 1, 0, 0;
wgmma.wait_group.sync.aligned 0;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1, %r2}], [%r3];
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d0, {%r1, %r2}], [%r3];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0], 16, [%r3];
cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r0], 16;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r0], 16;
cp.async.bulk.wait_group 0;
cp.async.mbarrier.arrive.noinc.b64 [%r0];
mbarrier.init.b64 [%r0], 1;
mbarrier.arrive.b64 %d0, [%r0];
mbarrier.arrive.expect_tx.b64 %d0, [%r0], 16;
mbarrier.try_wait.parity.b64 %p0, [%r0], 0;
tensormap.replace.tile.box_dim.global.b1024.b32 [%d0], 1, 5;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d0], [%r0], 128;
mapa.u32 %r0, %r1, 0;
setmaxnreg.inc.sync.aligned.u32 64;""".splitlines()


@pytest.mark.parametrize("line", LINES)
def test_an_instruction_without_its_last_operands_is_refused(line):
    name, _, rest = line.rstrip(";").partition(" ")
    operands = re.findall(r"\{.*?\}|\[.*?\]|[^,\s]+", rest)
    entry = ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k() {"
    entry += " .reg .b32 %r<4>; .reg .b64 %d<2>; .reg .pred %p<1>; "
    Kernel(f"{entry} {line} ret; }}", "k")
    for count in range(len(operands)):
        with pytest.raises(PtxError):
            Kernel(f"{entry} {name} {', '.join(operands[:count])}; ret; }}", "k")
