"""Faults of asynchronous copies, mbarriers, named barriers, clusters and matrices, in CUDA with PTX: whole kernels.

In       nothing
Out      `ROWS`
Next     row.py, wait_ptx.py (more), faults_c.py, languages.py
"""

from __future__ import annotations

from typing import Any

from tests.hcq.gpu.sanitizer_corpus.row import Row

HEAD = r"""
#define T ((int)threadIdx.x)
#define SA(p) ((unsigned)__cvta_generic_to_shared(p))
#define CP16(to,from) asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(SA(to)),"l"(from):"memory")
#define CP4(to,from) asm volatile("cp.async.ca.shared.global [%0],[%1],4;"::"r"(SA(to)),"l"(from):"memory")
#define COMMIT() asm volatile("cp.async.commit_group;":::"memory")
#define WAIT(n) asm volatile("cp.async.wait_group %0;"::"n"(n):"memory")
#define MBINIT(b,n) asm volatile("mbarrier.init.shared.b64 [%0],%1;"::"r"(SA(b)),"r"(n):"memory")
#define MBTX(b,n) \
  asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s,[%0],%1;}" \
  ::"r"(SA(b)),"r"(n):"memory")
#define MBARR(b) asm volatile("{.reg .b64 s; mbarrier.arrive.shared.b64 s,[%0];}"::"r"(SA(b)):"memory")
__device__ __forceinline__ void mbwait(unsigned b, int p) {
  asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p,[%0],%1; @!p bra L;}"
    :: "r"(b), "r"(p) : "memory");
}
#define MBWAIT(b,p) mbwait(SA(b),p)
#define BULKIN(to,from,n,b) \
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" \
  ::"r"(SA(to)),"l"(from),"r"(n),"r"(SA(b)):"memory")
#define BULKOUT(to,from,n) \
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0],[%1],%2;" \
  ::"l"(to),"r"(SA(from)),"r"(n):"memory")
#define BCOMMIT() asm volatile("cp.async.bulk.commit_group;":::"memory")
#define BWAIT(n) asm volatile("cp.async.bulk.wait_group %0;"::"n"(n):"memory")
#define BWAITR(n) asm volatile("cp.async.bulk.wait_group.read %0;"::"n"(n):"memory")
#define PROXY() asm volatile("fence.proxy.async;":::"memory")
extern "C" __global__ void """


def _row(name: str, word: str, rule: str, text: str, cluster: bool = False, **options: Any) -> Row:
    bounds = "__cluster_dims__(2, 1, 1) " if cluster else ""
    return Row(name, "whole cuda", word, rule, f"{HEAD}{bounds}kernel{text}", **options)


# fmt: off
ROWS = (
    *(_row(f"who has arrived at a named barrier writes on, {who}", "race", "shared-race", f"""(int *out) {{
  __shared__ int s[64];
  if ({mine}) {{
    s[T&63]=T;
    asm volatile("bar.arrive 1,128;":::"memory");
    - s[T&63]=T+1;
  }} else {{
    asm volatile("bar.sync 1,128;":::"memory");
    out[T&63]=s[T&63];
  }}
}}""", block=128) for who, mine in (("first", "T<64"), ("last", "T>=64"))),
    *(_row(f"between the two halves of a cluster's barrier, {what}", "race", "shared-race", f"""(int *out) {{
  __shared__ int s[64]; unsigned other, rank; int v=0;
  asm("mov.u32 %0,%%cluster_ctarank;":"=r"(rank));
  asm("mapa.shared::cluster.u32 %0,%1,%2;":"=r"(other):"r"(SA(&s[T])),"r"(rank^1));
  {write % "+" if writes else write % " "}
  asm volatile("barrier.cluster.arrive.aligned;":::"memory");
  {write % "-" if writes else "- v=s[63-T];"}
  asm volatile("barrier.cluster.wait.aligned;":::"memory");
  {"v=s[63-T];" if writes else "+ v=s[63-T];"}
  out[blockIdx.x*64+T]=v;
  asm volatile("barrier.cluster.arrive.aligned;":::"memory");
  asm volatile("barrier.cluster.wait.aligned;":::"memory");
}}""", cluster=True, grid=4, block=64)
        for write in ('%s asm volatile("st.shared::cluster.u32 [%%0],%%1;"::"r"(other),"r"(T):"memory");',)
        for what, writes in (("a block writes", True), ("a block reads", False))),
    *(_row(f"a bulk store that is waited for until it has read, {word}", word, "async-copy-not-waited",
           """(int *out, int *more) {
  __shared__ __align__(16) int s[256];
  s[T]=T; PROXY(); __syncthreads();
  if (T==0) { BULKOUT(out,s,1024); BCOMMIT();
    - BWAITR(0);
    + BWAIT(0);
  }
  __syncthreads();
  more[T]=out[255-T];
}""", buffers=(4096, 4096)) for word in ("wait", "race")),
    _row("a bulk store that another block reads", "wait", "async-copy-not-waited", """(int *out, int *flag, int *more) {
  __shared__ __align__(16) int s[256];
  if (blockIdx.x==0) {
    s[T]=T; PROXY(); __syncthreads();
    if (T==0) { BULKOUT(out,s,1024); BCOMMIT();
      + BWAIT(0);
      __threadfence(); atomicExch(flag,1); }
  } else {
    if (T==0) { while (!atomicAdd(flag,0)) ; __threadfence(); }
    __syncthreads();
    more[T]=out[T];
  }
}""", grid=2, buffers=(4096, 64, 4096)),
    _row("cp.async behind a barrier and before its wait", "race", "async-copy-not-waited",
         """(int *out, const int *in) {
  __shared__ __align__(16) int s[256];
  CP4(&s[T],in+T); COMMIT();
  + WAIT(0);
  __syncthreads();
  out[T]=s[255-T];
  WAIT(0);
}""", buffers=(4096, 4096)),
    _row("double-buffered cp.async, wait one too weak", "wait", "async-copy-not-waited", """(int *out, const int *in) {
  __shared__ __align__(16) int s[2][256]; int sum=0;
  CP4(&s[0][T],in+T); COMMIT();
  for (int k=0;k<4;k++) {
    if (k<3) CP4(&s[(k+1)&1][T],in+(k+1)*256+T);
    COMMIT();
    - WAIT(2);
    + WAIT(1);
    __syncthreads();
    sum+=s[k&1][255-T];
    __syncthreads();
  }
  out[T]=sum;
}""", buffers=(4096, 4096)),
    _row("last iteration of the pipeline waits for one", "wait", "async-copy-not-waited", """(int *out, const int *in) {
  __shared__ __align__(16) int s[2][256]; int sum=0;
  CP4(&s[0][T],in+T); COMMIT();
  for (int k=0;k<4;k++) {
    if (k<3) { CP4(&s[(k+1)&1][T],in+(k+1)*256+T); COMMIT();
       WAIT(1); }
    + else WAIT(0);
    __syncthreads();
    sum+=s[k&1][255-T];
    __syncthreads();
  }
  out[T]=sum;
}""", buffers=(4096, 4096)),
    _row("cp.async over a tile that others still read", "race", "shared-race", """(int *out, const int *in) {
  __shared__ __align__(16) int s[256]; int sum=0;
  for (int k=0;k<4;k++) {
    CP4(&s[T],in+k*256+T); COMMIT(); WAIT(0);
    __syncthreads();
    sum+=s[255-T];
    + __syncthreads();
  }
  out[T]=sum;
}""", buffers=(4096, 4096)),
    _row("own cp.async read after commit only", "wait", "async-copy-not-waited", """(int *out, const int *in) {
  __shared__ __align__(16) int s[1024];
  CP16(&s[T*4],in+T*4); COMMIT();
  + WAIT(0);
  out[T]=s[T*4];
}""", buffers=(4096, 4096)),
    _row("bulk copy read before its phase", "wait", "async-copy-not-waited", """(int *out, const int *in) {
  __shared__ __align__(128) int s[256]; __shared__ __align__(8) unsigned long long b;
  if (T==0) { MBINIT(&b,1); PROXY(); }
  __syncthreads();
  if (T==0) { MBTX(&b,1024); BULKIN(s,in,1024,&b); }
  - __syncthreads();
  + MBWAIT(&b,0);
  out[T]=s[T];
}""", buffers=(4096, 4096)),
    _row("bulk store without proxy fence", "wait", "proxy-fence", """(int *out) {
  __shared__ __align__(128) int s[256];
  s[T]=T;
  + PROXY();
  __syncthreads();
  if (T==0) { BULKOUT(out,s,1024); BCOMMIT(); BWAIT(0); }
}"""),
    _row("shared tile reused before bulk store has read it", "wait", "async-copy-not-waited", """(int *out) {
  __shared__ __align__(128) int s[256];
  for (int k=0;k<2;k++) {
    s[T]=T+k; PROXY(); __syncthreads();
    if (T==0) { BULKOUT(out+k*256,s,1024); BCOMMIT();
      + BWAITR(0);
    }
    __syncthreads();
  }
  if (T==0) BWAIT(0);
}"""),
    _row("mbarrier count one too many", "sync", "barrier-not-reached", """(int *out) {
  __shared__ __align__(8) unsigned long long b; __shared__ int s[256];
  - if (T==0) MBINIT(&b,257);
  + if (T==0) MBINIT(&b,256);
  __syncthreads();
  s[T]=T; MBARR(&b); MBWAIT(&b,0);
  out[T]=s[255-T];
}"""),
    _row("mbarrier not waited for before read", "race", "shared-race", """(int *out) {
  __shared__ __align__(8) unsigned long long b; __shared__ int s[256];
  if (T==0) MBINIT(&b,256);
  __syncthreads();
  s[T]=T; MBARR(&b);
  + MBWAIT(&b,0);
  out[T]=s[255-T];
}"""),
    _row("mbarrier used before init is visible", "race", "shared-race", """(int *out) {
  __shared__ __align__(8) unsigned long long b; __shared__ int s[256];
  if (T==0) MBINIT(&b,256);
  + __syncthreads();
  s[T]=T; MBARR(&b); MBWAIT(&b,0);
  out[T]=s[255-T];
}"""),
    _row("named barrier id mismatched", "sync", "barrier-not-reached", """(int *out) {
  __shared__ int s[256]; s[T]=T;
  - if (T<128) asm volatile("bar.sync 1,256;":::"memory"); else asm volatile("bar.sync 2,256;":::"memory");
  + if (T<128) asm volatile("bar.sync 1,256;":::"memory"); else asm volatile("bar.sync 1,256;":::"memory");
  out[T]=s[255-T];
}"""),
    _row("a named barrier that counts half of its warps", "race", "shared-race", """(int *out) {
  __shared__ int s[256];
  s[T]=T;
  if (T<128) {
   - asm volatile("bar.sync 1,64;":::"memory");
   + asm volatile("bar.sync 1,128;":::"memory");
   out[T]=s[127-T]; }
}"""),
    _row("ldmatrix rows misaligned", "memory", "misaligned-access", """(int *out) {
  __shared__ __align__(16) int s[256]; s[T]=T; __syncthreads();
  int r;
  - asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0},[%1];":"=r"(r):"r"(SA(s)+(T&7)*16+4));
  + asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0},[%1];":"=r"(r):"r"(SA(s)+(T&7)*16));
  out[T]=r;
}""", block=32),
    _row("mma on shared never written", "init", "uninitialised-read", """(float *out) {
  __shared__ __align__(16) unsigned s[64];
  + s[T]=0; s[T+32]=0;
  __syncwarp();
  unsigned a0=s[T],a1=s[T+32]; float d0=0,d1=0,d2=0,d3=0;
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
    :"+f"(d0),"+f"(d1),"+f"(d2),"+f"(d3):"r"(a0),"r"(a1),"r"(a0));
  out[T]=d0+d1+d2+d3;
}""", block=32),
    _row("dsmem read after peer may have left", "sync", "cluster-left", """(int *out) {
  __shared__ int s[64]; s[T]=T+blockIdx.x;
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory");
  unsigned a; asm volatile("mapa.shared::cluster.u32 %0,%1,%2;":"=r"(a):"r"(SA(&s[T])),"r"((blockIdx.x&1)^1));
  int v; asm volatile("ld.shared::cluster.u32 %0,[%1];":"=r"(v):"r"(a):"memory");
  out[blockIdx.x*64+T]=v;
  + asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory");
}""", block=64, grid=4, cluster=True),
    _row("dsmem read before peer has written", "race", "shared-race", """(int *out) {
  __shared__ int s[64]; s[T]=T+blockIdx.x;
  + asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory");
  unsigned a; asm volatile("mapa.shared::cluster.u32 %0,%1,%2;":"=r"(a):"r"(SA(&s[T])),"r"((blockIdx.x&1)^1));
  int v; asm volatile("ld.shared::cluster.u32 %0,[%1];":"=r"(v):"r"(a):"memory");
  out[blockIdx.x*64+T]=v;
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory");
}""", block=64, grid=4, cluster=True),
)
