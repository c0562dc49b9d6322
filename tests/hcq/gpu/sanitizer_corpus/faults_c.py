"""Faults as they are made in CUDA and in HIP: bounds, steps that do not wait, flags without fences, divergent barriers,
memory of a thread's own; whole kernels.

In       nothing
Out      `ROWS`
Next     row.py, idioms_cuda.py and idioms_hip.py (more), faults_ptx.py (asynchronous copies), languages.py
"""

from __future__ import annotations

from typing import Any

from tests.hcq.gpu.sanitizer_corpus.row import Row

CUDA = """
#define T ((int) threadIdx.x)
#define B ((int) blockIdx.x)
#define SHARED __shared__
#define BAR() __syncthreads()
#define FENCE() __threadfence()
#define BLOCK_FENCE() __threadfence_block()
#define ADD(p, v) atomicAdd(p, v)
#define LOAD(p) (*(volatile int *) (p))
#define STORE(p, v) atomicExch(p, v)
#define AT(p) ((unsigned) __cvta_generic_to_shared(p))
extern "C" __global__ void kernel"""
HIP = """
#define T ((int) __builtin_amdgcn_workitem_id_x())
#define B ((int) __builtin_amdgcn_workgroup_id_x())
#define SHARED __attribute__((shared))
#define BAR() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \\
               __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define FENCE() __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")
#define BLOCK_FENCE() __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup")
#define ADD(p, v) __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define LOAD(p) __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define STORE(p, v) __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
extern "C" __attribute__((global)) void kernel"""


def _cuda(name: str, word: str, rule: str, text: str, **options: Any) -> Row:
    return Row(name, "whole cuda", word, rule, CUDA + text, **options)


def _hip(name: str, word: str, rule: str, text: str, **options: Any) -> Row:
    return Row(name, "whole hip", word, rule, HIP + text, **options)


def _both(name: str, word: str, rule: str, text: str, **options: Any) -> tuple[Row, Row]:
    return _cuda(name, word, rule, text, **options), _hip(name, word, rule, text, **options)


LDS_FLAG = """(int *out) {
  SHARED int flag, data[64];
  if (T==0) flag=0;
  BAR();
  if (T<64) {
    %s
  } else {
    %s
  }
}"""
SET = "if (T==0) __hip_atomic_store(&flag,1,__ATOMIC_RELEASE,__HIP_MEMORY_SCOPE_WORKGROUP);"
POLL = "while (!__hip_atomic_load(&flag,__ATOMIC_ACQUIRE,__HIP_MEMORY_SCOPE_WORKGROUP)) ;"

# fmt: off
ROWS = (
    _hip("a flag in LDS is set before what it announces", "race", "shared-race", LDS_FLAG % (
        f"- {SET}\n    data[T]=T;\n    + {SET}", f"{POLL}\n    out[T]=data[127-T];"), block=128),
    _hip("what a flag in LDS announces is read before it", "race", "shared-race", LDS_FLAG % (
        f"data[T]=T;\n    {SET}",
        f"- int v=*(volatile int *)&data[127-T];\n    {POLL}\n    + int v=data[127-T];\n    out[T]=v;"), block=128),
    *_both("grid stride loop with <=", "memory", "buffer-overrun", """(int *out, int n) {
  - for (int i = B*256+T; i <= n; i += 512) out[i] = i;
  + for (int i = B*256+T; i < n; i += 512) out[i] = i;
}""", grid=2, numbers=(1024,)),
    *_both("negative index from halo", "memory", "buffer-overrun", """(int *out, const int *in, int n) {
  int i = B*256+T;
  - int left = in[i-1];
  + int left = i > 0 ? in[i-1] : 0;
  out[i] = left + in[i];
}""", grid=4, buffers=(4096, 4096), numbers=(1024,)),
    *_both("row pitch forgotten", "memory", "buffer-overrun", """(int *out, int pitch) {
  int r = T/16, c = T%16;
  - out[r*pitch*4 + c] = 1;
  + out[r*pitch + c] = 1;
}""", buffers=(1024,), numbers=(16,)),
    *_both("float4 over the tail", "memory", "buffer-overrun", """(int *out, int n) {

  int i = T*4;
  - if (i < n) { out[i]=1; out[i+1]=1; out[i+2]=1; out[i+3]=1; }
  + for (int k=0;k<4;k++) if (i+k < n) out[i+k]=1;
}""", block=64, buffers=(1000,), numbers=(250,)),
    *_both("struct of pointers one swapped", "memory", "buffer-overrun", """(int *small, int *big, int n) {
  - for (int i=T;i<n;i+=256) small[i]=big[i];
  + for (int i=T;i<n;i+=256) big[i]=i<64?small[i]:0;
}""", buffers=(256, 4096), numbers=(1024,)),
    *_both("shared array off by one", "memory", "shared-beyond", """(int *out) {
  SHARED int s[256];
  s[T] = T; BAR();
  - s[T+1] = 1;
  + if (T < 255) { int v = s[T+1]; out[T]=v; }
  BAR();
  out[T] += s[T];
}"""),
    *_both("reduction missing first barrier", "race", "shared-race", """(float *out, const float *in) {
  SHARED float s[256];
  s[T] = in[T];
  + BAR();
  for (int d=128;d>0;d>>=1) { if (T<d) s[T]+=s[T+d]; BAR(); }
  if (T==0) out[0]=s[0];
}""", buffers=(4096, 4096)),
    *_both("broadcast through shared scalar in a loop", "race", "shared-race", """(int *out, int n) {
  SHARED int best;
  int sum = 0;
  for (int k=0;k<n;k++) {
    if (T==k) best = k*3;
    BAR();
    sum += best;
    + BAR();
  }
  out[T]=sum;
}""", numbers=(4,)),
    *_both("scan ping-pong uses one buffer", "race", "shared-race", """(int *out, const int *in) {
  SHARED int s[2][256];
  int p=0; s[0][T]=in[T]; BAR();
  for (int d=1;d<256;d<<=1) {
    - int v = s[p][T]; if (T>=d) v += s[p][T-d]; s[p][T]=v; BAR();
    + int v = s[p][T]; if (T>=d) v += s[p][T-d]; s[p^1][T]=v; p^=1; BAR();
  }
  out[T]=s[p][T];
}""", buffers=(4096, 4096)),
    *_both("atomicAdd in shared then read without barrier", "race", "shared-race", """(int *out) {
  SHARED int c;
  if (T==0) c=0;
  BAR();
  ADD(&c,1);
  + BAR();
  out[T]=c;
}"""),
    *_both("warp sum then block without barrier", "race", "shared-race", """(int *out) {
  SHARED int w[8];
  if (T%64==0) w[T/64]=T;
  + BAR();
  if (T<4) out[T]=w[T];
}"""),
    *_both("in-place transpose across blocks", "race", "global-race", """(int *m) {
  int r=B, c=T%32;
  - if (T<32) { int a=m[r*32+c], b=m[c*32+r]; m[r*32+c]=b; m[c*32+r]=a; }
  + if (T<32 && c<r) { int a=m[r*32+c], b=m[c*32+r]; m[r*32+c]=b; m[c*32+r]=a; }
}""", grid=32),
    *_both("histogram global without atomics", "race", "global-race", """(int *h, const int *in) {
  - h[in[B*256+T]&15] += 1;
  + ADD(&h[in[B*256+T]&15],1);
}""", grid=4, buffers=(64, 4096)),
    *_both("producer consumer flag plain", "race", "global-race", """(int *data, int *flag, int *out) {
  if (B==0) { if (T==0) { data[0]=42;
     + FENCE();
     STORE(flag,1); } }
  else if (T==0) { while (LOAD(flag)==0);
     + FENCE();
     out[0]=data[0]; }
}""", grid=2, buffers=(64, 64, 64)),
    *_both("producer consumer fence too narrow", "race", "global-race", """(int *data, int *flag, int *out) {
  if (B==0) { if (T==0) { data[0]=42;
     - BLOCK_FENCE();
     + FENCE();
     STORE(flag,1); } }
  else if (T==0) { while (LOAD(flag)==0);
     FENCE();
     out[0]=data[0]; }
}""", grid=2, buffers=(64, 64, 64)),
    *_both("grid barrier without generation fence", "race", "global-race", """(int *a, int *count, int *out) {
  a[B*256+T]=B;
  + FENCE();
  BAR();
  if (T==0) { ADD(count,1); while (LOAD(count)<4);
    + FENCE();
  }
  BAR();
  out[B*256+T]=a[((B+1)&3)*256+T];
}""", grid=4, buffers=(4096, 64, 4096)),
    *_both("uninitialised accumulator in shared", "init", "uninitialised-read", """(int *out) {
  SHARED int acc[32];
  + if (T<32) acc[T]=0;
  BAR();
  ADD(&acc[T&31],T);
  BAR();
  if (T<32) out[T]=acc[T];
}"""),
    *_both("index loaded from unwritten shared", "init", "uninitialised-read", """(int *out) {
  SHARED int idx[256];
  - if (T<200) idx[T]=T;
  + idx[T]=T;
  BAR();
  out[idx[255-T]&255]=1;
}"""),
    _cuda("divergent syncthreads by parity", "sync", "barrier-divergent", """(int *out) {
  SHARED int s[256];
  s[T]=T;
  - if (T&1) { __syncthreads(); out[T]=s[T-1]; } else { __syncthreads(); out[T]=s[T+1]; }
  + __syncthreads(); if (T&1) out[T]=s[T-1]; else out[T]=s[T+1];
}"""),
    _cuda("shfl mask misses lane 31", "sync", "mask-names-absent", """(int *out) {
  - int v=__shfl_xor_sync(0x7fffffff,T,1);
  + int v=__shfl_xor_sync(0xffffffff,T,1);
  out[T]=v;
}"""),
    _cuda("syncwarp wrong mask", "sync", "mask-names-absent", """(int *out) {
  __shared__ int s[256]; s[T]=T;
  - if ((T&31)<16) { __syncwarp(0xff); out[T]=s[T^1]; }
  + if ((T&31)<16) { __syncwarp(0xffff); out[T]=s[T^1]; }
}"""),
    _cuda("warp exchange by shared without syncwarp", "race", "lane-race", """(int *out) {
  __shared__ volatile int s[256]; s[T]=T;
  + __syncwarp();
  out[T]=s[T^1];
}"""),
    _cuda("butterfly reduce in shared missing second syncwarp", "race", "lane-race", """(int *out) {
  __shared__ volatile int s[32];
  s[T]=T; __syncwarp();
  for (int d=16;d>0;d>>=1) { int v=s[T]+s[T^d];
     + __syncwarp();
     s[T]=v; __syncwarp(); }
  out[T]=s[T];
}""", block=32),
    _cuda("block atomics across blocks", "race", "global-race", """(int *out) {
  - atomicAdd_block(out,1);
  + atomicAdd(out,1);
}""", grid=4),
    _cuda("system flag with cta scope store", "race", "global-race", """(int *data, int *flag, int *out) {
  if (B==0) { if (T==0) { data[0]=1;
    - asm volatile("st.release.cta.global.u32 [%0], 1;"::"l"(flag):"memory");
    + asm volatile("st.release.gpu.global.u32 [%0], 1;"::"l"(flag):"memory");
  } } else if (T==0) { int v; do {
    asm volatile("ld.acquire.gpu.global.u32 %0,[%1];":"=r"(v):"l"(flag):"memory"); } while(!v); out[0]=data[0]; }
}""", grid=2, buffers=(64, 64, 64)),
    _cuda("acquire load relaxed instead", "race", "global-race", """(int *data, int *flag, int *out) {
  if (B==0) { if (T==0) { data[0]=1;
    asm volatile("st.release.gpu.global.u32 [%0], 1;"::"l"(flag):"memory");
  } } else if (T==0) { int v; do {
    - asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];":"=r"(v):"l"(flag):"memory");
    + asm volatile("ld.acquire.gpu.global.u32 %0,[%1];":"=r"(v):"l"(flag):"memory");
  } while(!v); out[0]=data[0]; }
}""", grid=2, buffers=(64, 64, 64)),
    *_both("local array dynamic", "memory", "local-overrun", """(int *out, int n) {
  int a[64];
  #pragma unroll 1
  for (int i=0;i<64;i++) a[(i*n)&63]=i;
  - out[T] = a[(T&63)+n];
  + out[T] = a[(T+n)&63];
}""", numbers=(1,)),
    *_both("local array far", "memory", "local-overrun", """(int *out, int n) {
  int a[64];
  #pragma unroll 1
  for (int i=0;i<64;i++) a[(i*n)&63]=i;
  - a[T*n] = 3;
  + a[(T+n)&63] = 3;
  out[T]=a[n];
}""", numbers=(1,)),
    *_both("local array partly written", "init", "uninitialised-read", """(int *out, int n) {
  int a[64];
  #pragma unroll 1
  - for (int i=1;i<64;i++) a[(i*n)&63]=i;
  + for (int i=0;i<64;i++) a[(i*n)&63]=i;
  int s=0;
  #pragma unroll 1
  for (int i=0;i<64;i++) s+=a[(i*n)&63];
  out[T]=s;
}""", numbers=(1,)),
    *_both("stack of a recursive function", "memory", "local-overrun", """_x();
__attribute__((device)) __attribute__((noinline)) int put(int *p, int i) { p[i]=i; return p[i/2]; }
extern "C" __attribute__((global)) void kernel(int *out, int n) {
  int a[64]; for (int i=0;i<64;i++) a[i]=n;
  - out[T]=put(a,64+n*1000)+a[n];
  + out[T]=put(a,n)+a[n];
}""", numbers=(5,)),
    _hip("barrier in a branch of odd lanes", "sync", "barrier-divergent", """(int *out) {
  SHARED int s[256]; s[T]=T;
  - if (T&1) { BAR(); out[T]=s[T-1]; } else out[T]=2;
  + BAR(); if (T&1) { out[T]=s[T-1]; } else out[T]=2;
  out[T+256]=s[T];
}"""),
    _hip("barrier in a loop of own length", "sync", "barrier-divergent", """(int *out, int n) {
  SHARED int s[256]; s[T]=0;
  - for (int i=T;i<n;i+=256) { s[T]+=i; BAR(); }
  + for (int i=0;i<n;i+=256) { if (i+T<n) s[T]+=i; BAR(); }
  out[T]=s[T];
}""", numbers=(300,)),
    *_both("barrier only for the first half", "sync", "barrier-divergent", """(int *out) {
  SHARED int s[256]; s[T]=T;
  - if (T<100) BAR();
  + BAR();
  out[T]=s[T^1];
  BAR();
  out[T+256]=s[T^1];
}"""),
)
