"""What tcgen05 touches in shared and tensor memory is touched too early, in CUDA with PTX: whole kernels.

In       nothing
Out      `ROWS`
Next     row.py, faults_ptx.py (more macros), race_copies.py (the same of bulk copies and wgmma)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.faults_ptx import HEAD
from tests.hcq.gpu.sanitizer_corpus.row import Row

WORDS, MORE = (
    1024 + 512,
    2048,
)  # of a tile: A is 128 rows of 32 bytes, B 64 rows, of a sparse product of 64 bytes each
MACROS = r"""
#define ALLOC(p) \
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0],128;"::"r"(SA(p)):"memory")
#define FREE(t) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0,128;"::"r"(t):"memory")
#define MATRIX(p) ((unsigned long long) (SA(p) >> 4) | 8ull << 16 | 16ull << 32 | 1ull << 46)
#define WIDE(p) ((unsigned long long) (SA(p) >> 4) | 8ull << 16 | 32ull << 32 | 1ull << 46)
#define FLOATS 0x08100010u
#define MULTIPLY(words,d,a,b,i,more) \
  asm volatile("{.reg .pred p; setp.ne.u32 p,0,0;\n tcgen05.mma" words " [%0],%1,%2," more "%3,p;}" \
               ::"r"(d),"l"(a),"l"(b),"r"(i):"memory")
#define SCALED(words,d,a,b,i) \
  asm volatile("{.reg .pred p; setp.ne.u32 p,0,0;\n tcgen05.mma" words " [%0],%1,%2,%3,[%0+64],[%0+96],p;}" \
               ::"r"(d),"l"(a),"l"(b),"r"(i):"memory")
#define MMA(d,a) MULTIPLY(".cta_group::1.kind::f16",d,MATRIX(a),MATRIX((a)+1024),FLOATS,"")
#define OF_TENSOR(d,a,b) \
  asm volatile("{.reg .pred p; setp.ne.u32 p,0,0;\n tcgen05.mma.cta_group::1.kind::f16 [%0],[%1],%2,%3,p;}" \
               ::"r"(d),"r"(a),"l"(MATRIX(b)),"r"(FLOATS):"memory")
#define CP(d,a) asm volatile("tcgen05.cp.cta_group::1.128x256b [%0],%1;"::"r"(d),"l"(MATRIX(a)):"memory")
#define ARRIVES(b) \
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"::"r"(SA(b)):"memory")
#define PUT(t,x) \
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0],{%1};"::"r"((t)+((T/32)<<21)),"r"(x):"memory")
#define GET(x,t) \
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0},[%1];":"=r"(x):"r"((t)+((T/32)<<21)):"memory")
#define WAIT_ST() asm volatile("tcgen05.wait::st.sync.aligned;":::"memory")
#define WAIT_LD() asm volatile("tcgen05.wait::ld.sync.aligned;":::"memory")
#define BEFORE() asm volatile("tcgen05.fence::before_thread_sync;":::"memory")
#define AFTER() asm volatile("tcgen05.fence::after_thread_sync;":::"memory")
#define STORE(t,x) PUT(t,x); WAIT_ST()
#define LOAD(x,t) GET(x,t); WAIT_LD()
__device__ __forceinline__ int rank() { int r; asm volatile("mov.u32 %0,%%cluster_ctarank;":"=r"(r)); return r; }
#define CLUSTER() \
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory")
"""
BEGIN = f"""
  __shared__ __align__(128) int s[{2 * MORE}]; __shared__ unsigned place;
  __shared__ __align__(8) unsigned long long full[2], done[2];
  if (T<32) ALLOC(&place);
  if (T==0) {{ MBINIT(full,1); MBINIT(full+1,1); MBINIT(done,1); MBINIT(done+1,1); }}
  __syncthreads();
  unsigned t=place; int x=0;"""
END = """
  LOAD(x,t);
  out[T]=x;
  __syncthreads();
  if (T<32) FREE(t);
}"""
FILL = f"""
  for (int k=T;k<{MORE + 1024};k+=128) s[k]=0;"""
LOADS = f"MBTX(%s,{4 * WORDS}); BULKIN(%s,in,{4 * WORDS},%s);"


def _loads(to: str, bar: str) -> str:
    return LOADS % (bar, to, bar)


# what nobody has waited for: threads are in order, by themselves or by what is no wait for tcgen05
ALONE = {
    "a tile is loaded over one that is multiplied": f"""
  if (T==0) for (int k=0;k<2;k++) {{
    {_loads("s", "full")}
    MBWAIT(full,k); MMA(t,s); ARRIVES(done);
    + MBWAIT(done,k);
  }}
  __syncthreads();
  MBWAIT(done,1);""",
    "a tile is multiplied before its load has come": f"""
  if (T==0) {{
    {_loads("s", "full")}
    + MBWAIT(full,0);
    MMA(t,s); ARRIVES(done);
  }}
  MBWAIT(done,0);
  MBWAIT(full,0);""",
    "an arrival in the place of a commit": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) {
    MMA(t,s);
    - ARRIVES(done+1); MBARR(done);
    + ARRIVES(done);
  }
  __syncthreads();
  MBWAIT(done,0);
  if (T==0) s[0]=1;""",
    "a commit before the product": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) {
    - ARRIVES(done);
    MMA(t,s);
    + ARRIVES(done);
    - ARRIVES(done+1);
  }
  __syncthreads();
  MBWAIT(done,0);
  if (T==0) s[0]=1;""",
    "the source of tcgen05.cp is loaded again too early": f"""
  if (T==0) for (int k=0;k<2;k++) {{
    {_loads("s", "full")}
    MBWAIT(full,k); CP(t,s); ARRIVES(done);
    + MBWAIT(done,k);
  }}
  __syncthreads();
  MBWAIT(done,1);""",
    "of two buffers in turn the first is taken again too early": f"""
  if (T==0) for (int k=0;k<4;k++) {{
    - if (k>2) MBWAIT(done+(k&1),k/2+1&1);
    + if (k>1) MBWAIT(done+(k&1),k/2+1&1);
    {_loads(f"(s+{MORE}*(k&1))", "(full+(k&1))")}
    MBWAIT(full+(k&1),k/2&1);
    MMA(t,s+{MORE}*(k&1)); ARRIVES(done+(k&1));
  }}
  __syncthreads();
  MBWAIT(done,1); MBWAIT(done+1,1);""",
    "a buffer of two is free when its product is issued, and not when it is over": f"""
  __shared__ __align__(8) unsigned long long issued[2];
  if (T==0) {{ MBINIT(issued,1); MBINIT(issued+1,1); }}
  __syncthreads();
  if (T==0) for (int k=0;k<4;k++) {{
    - if (k>1) MBWAIT(issued+(k&1),k/2+1&1);
    + if (k>1) MBWAIT(done+(k&1),k/2+1&1);
    {_loads(f"(s+{MORE}*(k&1))", "(full+(k&1))")}
  }}
  if (T==32) for (int k=0;k<4;k++) {{
    MBWAIT(full+(k&1),k/2&1);
    MMA(t,s+{MORE}*(k&1)); MBARR(issued+(k&1)); ARRIVES(done+(k&1));
  }}
  __syncthreads();
  MBWAIT(done,1); MBWAIT(done+1,1);""",
    "the older of two commits is waited for": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) {
    MMA(t,s); ARRIVES(done); MMA(t,s+2048); ARRIVES(done+1);
    - MBWAIT(done,0);
    + MBWAIT(done+1,0);
    s[2048]=1;
  }
  __syncthreads();
  MBWAIT(done+1,0);""",
}
# one warp multiplies or copies, another one writes
TOGETHER = {
    "what is multiplied is overwritten by another warp": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); }
  - if (T==96) s[1530]=1;
  MBWAIT(done,0);
  + if (T==96) s[1530]=1;""",
    "the source of tcgen05.cp is overwritten by another warp": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { CP(t,s); ARRIVES(done); }
  - if (T==96) s[1000]=1;
  MBWAIT(done,0);
  + if (T==96) s[1000]=1;""",
    "the source of tcgen05.cp has yet to be written": FILL
    + """
  PROXY();
  + __syncthreads();
  if (T==0) { CP(t,s); ARRIVES(done); }
  MBWAIT(done,0);""",
}
KINDS = {  # a product of what has yet to be written: how it is issued
    "halves": 'MULTIPLY(".cta_group::1.kind::f16",t,MATRIX(s),MATRIX(s+1024),FLOATS,"")',
    "tf32": 'MULTIPLY(".cta_group::1.kind::tf32",t,MATRIX(s),MATRIX(s+1024),FLOATS|2u<<7|2u<<10,"")',
    "bytes": 'MULTIPLY(".cta_group::1.kind::i8",t,MATRIX(s),MATRIX(s+1024),FLOATS^0x30u,"")',
    "8-bit floats": 'MULTIPLY(".cta_group::1.kind::f8f6f4",t,MATRIX(s),MATRIX(s+1024),FLOATS,"")',
    "scaled floats": 'SCALED(".cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X",t,MATRIX(s),MATRIX(s+1024),'
    "0x08900000u)",
    "scaled 4-bit floats": 'SCALED(".cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X",t,MATRIX(s),'
    "MATRIX(s+1024),0x08100480u)",
    "weights that stay": 'MULTIPLY(".ws.cta_group::1.kind::f16",t,MATRIX(s),MATRIX(s+1024),FLOATS,"")',
    "a sparse matrix": 'MULTIPLY(".sp.cta_group::1.kind::f16",t,MATRIX(s),WIDE(s+1024),FLOATS|4u,"[%0+64],")',
}
PRODUCT = (
    FILL
    + """
  STORE(t+64,0x44444444);
  PROXY();
  + __syncthreads();
  if (T==0) { %s; ARRIVES(done); }
  MBWAIT(done,0);"""
)
PRODUCTS = {
    f"a product of what other warps have yet to write, {name}": PRODUCT % how for name, how in KINDS.items()
}
UNFENCED = {
    "a product of what threads wrote without a fence": FILL
    + """
  + PROXY();
  __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); }
  MBWAIT(done,0);""",
    "tcgen05.cp of what threads wrote without a fence": FILL
    + """
  + PROXY();
  __syncthreads();
  if (T==0) { CP(t,s); ARRIVES(done); }
  MBWAIT(done,0);""",
}
# in tensor memory: what is not in order, and what is and was not waited for
SUMS = {
    "sums are loaded before their product is over": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); }
  - GET(x,t); WAIT_LD();
  MBWAIT(done,0); AFTER();""",
    "the next product overwrites sums that are still loaded": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); }
  MBWAIT(done,0); AFTER();
  GET(x,t); WAIT_LD(); BEFORE();
  + __syncthreads();
  if (T==0) { AFTER(); MMA(t,s); ARRIVES(done); }
  MBWAIT(done,1); AFTER();""",
    "of two sums in turn the one that is under way is loaded": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); MMA(t+64,s); ARRIVES(done+1); }
  MBWAIT(done,0); AFTER();
  - GET(x,t+64); WAIT_LD();
  + GET(x,t); WAIT_LD();
  MBWAIT(done+1,0); AFTER();""",
    "what tcgen05.cp brings is overwritten by another warp": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { CP(t,s); ARRIVES(done); }
  - if (T>=32) { PUT(t,x); WAIT_ST(); }
  MBWAIT(done,0); AFTER();
  + if (T>=32) { PUT(t,x); WAIT_ST(); }""",
    "a factor in tensor memory has yet to be stored": FILL
    + """
  PROXY(); __syncthreads();
  for (int k=0;k<8;k++) PUT(t+64+k,k);
  WAIT_ST(); BEFORE();
  + __syncthreads();
  if (T==0) { AFTER(); OF_TENSOR(t,t+64,s); ARRIVES(done); }
  MBWAIT(done,0); AFTER();""",
}
UNWAITED = {
    "a factor in tensor memory whose stores nobody waits for": FILL
    + """
  PROXY(); __syncthreads();
  for (int k=0;k<8;k++) PUT(t+64+k,k);
  + WAIT_ST();
  BEFORE(); __syncthreads();
  if (T==0) { AFTER(); OF_TENSOR(t,t+64,s); ARRIVES(done); }
  MBWAIT(done,0); AFTER();""",
    "sums that are overwritten before a load of them was waited for": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); }
  MBWAIT(done,0); AFTER();
  GET(x,t);
  + WAIT_LD();
  BEFORE(); __syncthreads();
  if (T==0) { AFTER(); MMA(t,s); ARRIVES(done); }
  WAIT_LD();
  MBWAIT(done,1); AFTER();""",
    "sums are loaded with a barrier and no wait for their product": FILL
    + """
  PROXY(); __syncthreads();
  if (T==0) { MMA(t,s); ARRIVES(done); BEFORE(); }
  __syncthreads();
  + MBWAIT(done,0);
  AFTER(); GET(x,t); WAIT_LD();
  MBWAIT(done,0);""",
    "a factor in tensor memory is stored again while it is multiplied": FILL
    + """
  PROXY();
  for (int k=0;k<8;k++) PUT(t+64+k,k);
  WAIT_ST(); BEFORE(); __syncthreads();
  if (T==0) { AFTER(); OF_TENSOR(t,t+64,s); ARRIVES(done); }
  __syncthreads();
  + MBWAIT(done,0);
  PUT(t+64,1); WAIT_ST();
  MBWAIT(done,0); AFTER();""",
}
PAIR = """
  __shared__ __align__(128) int s[2048]; __shared__ unsigned place; __shared__ __align__(8) unsigned long long done;
  if (T<32)
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%%0],128;"::"r"(SA(&place)):"memory");
  if (T==0) MBINIT(&done,1);
  for (int k=T;k<2048;k+=128) s[k]=0;
  PROXY(); __syncthreads();
  unsigned t=place;
  CLUSTER();
  if (T==0 && rank()==0) {
    MULTIPLY(".cta_group::2.kind::f16",t,MATRIX(s),MATRIX(s+1024),0x10200010u,"");
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%%0],%%1;"
                 ::"r"(SA(&done)),"h"((short)3):"memory");
  }
  - if (%s) s[1500]=1;
  CLUSTER();
  MBWAIT(&done,0);
  + if (%s) s[1500]=1;
  int x; LOAD(x,t);
  out[T+128*rank()]=x;
  CLUSTER();
  if (T<32) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %%0,128;"::"r"(t):"memory");
}"""
OF_PAIRS = {
    "a product of a pair of blocks reads what the other block overwrites": PAIR
    % (("T==96 && rank()==1",) * 2)
}
OF_ONE = {"a pair of blocks overwrites what it multiplies": PAIR % (("T==0 && rank()==0",) * 2)}


def _rows(word: str, rule: str, texts: dict[str, str], is_pair: bool = False) -> tuple[Row, ...]:
    bounds = "__cluster_dims__(2, 1, 1) " if is_pair else ""
    return tuple(
        Row(
            name=name,
            language="whole cuda",
            word=word,
            rule=rule,
            text=f"{HEAD.replace('extern', f'{MACROS}extern')}{bounds}kernel(int *out, const int *in) {{"
            f"{text if is_pair else BEGIN + text + END}",
            block=128,
            grid=1 + is_pair,
            buffers=(4096, 4 * WORDS),
            only=("nv:sm_100",),
        )
        for name, text in texts.items()
    )


ROWS = (
    *_rows("race", "async-copy-not-waited", ALONE),
    *_rows("wait", "async-copy-not-waited", ALONE),
    *_rows("race", "shared-race", TOGETHER),
    *_rows("race", "shared-race", PRODUCTS),
    *_rows("race", "shared-race", OF_PAIRS, is_pair=True),
    *_rows("wait", "async-copy-not-waited", OF_ONE, is_pair=True),
    *_rows("wait", "proxy-fence", UNFENCED),
    *_rows("race", "shared-race", SUMS),
    *_rows("wait", "async-copy-not-waited", UNWAITED),
)
