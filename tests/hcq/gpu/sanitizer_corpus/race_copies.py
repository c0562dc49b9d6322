"""Races of bulk copies, st.async and red.async, in CUDA with PTX: whole kernels.

In       nothing
Out      `ROWS`
Next     row.py, faults_ptx.py (the macros; what else is wrong with copies)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.faults_ptx import HEAD
from tests.hcq.gpu.sanitizer_corpus.row import Row

BEGIN = """
  __shared__ __align__(16) int s[256]; __shared__ __align__(8) unsigned long long b;
  if (T==0) MBINIT(&b,1);
  __syncthreads();"""
ASYNC = (
    BEGIN
    + """
  s[T]=T;
  if (T==0) MBTX(&b,4);
  __syncthreads();
  if (T==0) asm volatile("%s.async.shared::cluster.mbarrier::complete_tx::bytes%s.u32 [%%0],%%1,[%%2];"
                         ::"r"(SA(&s[200])),"r"(7),"r"(SA(&b)):"memory");
  + MBWAIT(&b,0);
  out[T]=s[T];
}"""
)
TEXTS = {
    "a bulk copy to what other warps still read": BEGIN + """
  for (int k=0;k<2;k++) {
    if (T==0) { MBTX(&b,1024); BULKIN(s,in+256*k,1024,&b); }
    MBWAIT(&b,k);
    out[T]+=s[255-T];
    + __syncthreads();
  }
}""",
    "a bulk copy that its mbarrier has not counted": BEGIN + """
  if (T==0) { MBTX(&b,1024); BULKIN(s,in,1024,&b); }
  - __syncthreads();
  - if (T==64) s[3]=1;
  MBWAIT(&b,0);
  out[T]=s[T];
}""",
    "a bulk store of what other warps have yet to write": """
  __shared__ __align__(16) int s[256];
  s[T]=T;
  PROXY();
  + __syncthreads();
  if (T==0) { BULKOUT(out,s,1024); BCOMMIT(); BWAIT(0); }
}""",
    "a store behind a bulk store that others have not waited for": """
  __shared__ __align__(16) int s[256];
  s[T]=T;
  PROXY();
  __syncthreads();
  if (T==0) { BULKOUT(out,s,1024); BCOMMIT(); BWAITR(0); }
  + __syncthreads();
  s[T]=1;
}""",
    "a word of st.async is read without a wait": ASYNC % ("st", ""),
    "a word of red.async is read without a wait": ASYNC % ("red", ".relaxed.cluster.add"),
    "cp.async that an mbarrier counts too early": """
  __shared__ __align__(16) int s[256]; __shared__ __align__(8) unsigned long long b;
  if (T==0) MBINIT(&b,256);
  __syncthreads();
  - asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"::"r"(SA(&b)):"memory");
  CP4(&s[T],in+T);
  + asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"::"r"(SA(&b)):"memory");
  MBWAIT(&b,0);
  out[T]=s[255-T];
}""",
}  # fmt: skip
OF_GLOBAL = {
    "a bulk store to what another warp writes": """
  __shared__ __align__(16) int s[256];
  s[T]=T;
  PROXY();
  __syncthreads();
  if (T==0) { BULKOUT(out,s,1024); BCOMMIT(); BWAIT(0); }
  + __syncthreads();
  if (T==64) out[3]=1;
}""",
}  # fmt: skip
ROWS = tuple(
    Row(
        name,
        "whole cuda",
        "race",
        rule,
        f"{HEAD}kernel(int *out, const int *in) {{{text}",
        buffers=(4096, 4096),
        only=("nv:sm_90",),
    )
    for rule, texts in (("shared-race", TEXTS), ("global-race", OF_GLOBAL))
    for name, text in texts.items()
)
