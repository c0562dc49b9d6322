"""What people write in MSL, and what goes wrong in it: barriers of threadgroups and of SIMD groups, atomic operations
with their fences, arrays of a thread's own, variables without a value.

In       nothing
Out      `ROWS`
Next     row.py, idioms_msl.py (more), languages.py
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

HEAD = """#include <metal_stdlib>
using namespace metal;
kernel void kernel_(device int *out [[buffer(0)]], device const int *in [[buffer(1)]],
  device atomic_int *count [[buffer(2)]], uint t [[thread_position_in_threadgroup]],
  uint b [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
  uint sg [[simdgroup_index_in_threadgroup]], uint all [[thread_position_in_grid]]) {
"""
TG = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SG = "simdgroup_barrier(mem_flags::mem_threadgroup);"
DEVICE = "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);"
RELAXED = "memory_order_relaxed"


def _row(name: str, word: str, rule: str, text: str) -> Row:
    return Row(
        name, "whole msl", word, rule, f"{HEAD}{text}\n}}", block=64, grid=2, buffers=(4096, 4096, 256)
    )


# fmt: off
ROWS = (
    _row("tree reduction in a loop","race","shared-race",f"""
  threadgroup int s[64]; s[t]=in[all]; {TG}
  for (uint d=32u; d>0u; d>>=1) {{ if (t<d) s[t]+=s[t+d];
  + {TG}
  }}
  if (t==0u) out[b]=s[0];"""),
    _row("SIMD groups exchange by threadgroup memory","race","shared-race",f"""
  threadgroup int s[64]; s[t]=in[all];
  + {SG}
  out[all]=s[t^1u];"""),
    _row("a barrier of SIMD groups for another group","race","shared-race",f"""
  threadgroup int s[64]; s[t]=in[all];
  - {SG}
  + {TG}
  out[all]=s[63u-t];"""),
    _row("sums of SIMD groups","race","shared-race",f"""
  threadgroup int s[2]; int x=simd_sum(in[all]); if (lane==0u) s[sg]=x;
  + {TG}
  if (t==0u) out[b]=s[0]+s[1];"""),
    _row("histogram zeroed late","race","shared-race",f"""
  threadgroup atomic_int h[16]; if (t<16u) atomic_store_explicit(&h[t],0,{RELAXED});
  {TG} atomic_fetch_add_explicit(&h[in[all]&15],1,{RELAXED});
  - if (t<16u) out[b*16u+t]=h[t];
  + {TG} if (t<16u) out[b*16u+t]=atomic_load_explicit(&h[t],{RELAXED});"""),
    _row("counter without an atomic","race","global-race",f"""
  - if (t==0u) out[0]+=1;
  + if (t==0u) atomic_fetch_add_explicit(count,1,{RELAXED});
  out[1u+all]=1;"""),
    _row("the last group sums up","race","global-race",f"""
  threadgroup int last; out[all]=in[all];
  + {DEVICE}
  threadgroup_barrier(mem_flags::mem_device);
  if (t==0u) last=atomic_fetch_add_explicit(count,1,{RELAXED})==1 ? 1 : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (last==0) return;
  {DEVICE}
  int s=0; for (uint j=t; j<128u; j+=64u) s+=out[j];
  out[128u+t]=s;"""),
    _row("a message with no fence before the flag","race","global-race",f"""
  if (b==0u) {{ if (t==0u) {{ out[0]=7;
     + {DEVICE}
     atomic_store_explicit(count,1,{RELAXED}); }} }}
  else if (t==0u) {{ while (atomic_load_explicit(count,{RELAXED})==0) {{ }}
     {DEVICE}
     out[1]=out[0]; }}"""),
    _row("a message with a fence of the threadgroup","race","global-race",f"""
  if (b==0u) {{ if (t==0u) {{ out[0]=7;
     - atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_threadgroup);
     + {DEVICE}
     atomic_store_explicit(count,1,{RELAXED}); }} }}
  else if (t==0u) {{ while (atomic_load_explicit(count,{RELAXED})==0) {{ }}
     {DEVICE}
     out[1]=out[0]; }}"""),
    _row("device memory of a SIMD group","race","lane-race",f"""
  out[all]=in[all];
  - {SG}
  + simdgroup_barrier(mem_flags::mem_device);
  int x=out[all^1u];
  - {SG}
  + simdgroup_barrier(mem_flags::mem_device);
  out[all]=x;"""),
    _row("barrier in a branch","sync","barrier-not-reached",f"""
  threadgroup int s[64]; s[t]=1;
  - if (t<40u) {{ {TG} }}
  + {TG}
  out[all]=s[t^1u];"""),
    _row("barrier in a loop of own length","sync","barrier-not-reached",f"""
  threadgroup int s[64]; s[t]=1;
  - for (uint j=0u; j<t/32u+1u; ++j) {{ {TG} }}
  + for (uint j=0u; j<2u; ++j) {{ {TG} }}
  out[all]=s[t^1u];"""),
    _row("barrier behind an early return","sync","barrier-not-reached",f"""
  threadgroup int s[64];
  - if (all>=100u) return;
  s[t]=1; {TG}
  out[all]=s[t^1u];"""),
    _row("simdgroup barrier of half a group","sync","barrier-not-reached",f"""
  threadgroup int s[64]; s[t]=1;
  - if (lane<16u) {{ {SG} }}
  + {SG}
  out[all]=s[t^1u];"""),
    _row("a shuffle from lanes that are off","sync","mask-names-absent","""
  int x=in[all];
  - if (lane<16u) x+=simd_shuffle_xor(x,(ushort)16);
  + if (lane<16u) x+=simd_shuffle_xor(x,(ushort)8);
  out[all]=x;"""),
    _row("a shuffle down from lanes that are off","sync","mask-names-absent","""
  int x=in[all];
  - if (lane<16u) x+=simd_shuffle_down(x,(ushort)8);
  + x+=simd_shuffle_down(x,(ushort)8);
  out[all]=x;"""),
    _row("an array of its own","memory","local-overrun","""
  int a[8]; for (int j=0;j<8;j++) a[j]=j;
  - out[all]=a[(t&7u)+1u];
  + out[all]=a[t&7u];"""),
    _row("off by one at the end","memory","buffer-overrun","""
  - for (uint j=all; j<=1024u; j+=128u) out[j]=1;
  + for (uint j=all; j<1024u; j+=128u) out[j]=1;"""),
    _row("one before","memory","buffer-overrun","""
  - out[all]=in[(int)all-1];
  + out[all]=all>0u ? in[all-1u] : 0;"""),
    _row("threadgroup index off by one","memory","shared-beyond",f"""
  threadgroup int s[64]; s[t]=1; {TG}
  - out[all]=s[t+1u];
  + out[all]=s[(t+1u)&63u];"""),
    _row("atomic behind the end","memory","buffer-overrun",f"""
  - atomic_fetch_add_explicit(&count[all],1,{RELAXED});
  + atomic_fetch_add_explicit(&count[all&63u],1,{RELAXED});"""),
    _row("vector misaligned","memory","misaligned-access","""
  - int4 v=*(device const int4 *)&in[all+1u];
  + int4 v=*(device const int4 *)&in[4u*(all&63u)];
  out[all]=v.x+v.w;"""),
    _row("a variable with no value","init","uninitialised-read","""
  int s;
  + s=0;
  for (uint j=0u;j<4u;j++) s+=in[j];
  out[all]=s;"""),
    _row("a variable that one arm sets","init","uninitialised-read","""
  int s;
  - if (t<60u) s=1;
  + if (t<60u) { s=1; } else { s=2; }
  out[all]=s;"""),
    _row("an array of its own, partly written","init","uninitialised-read","""
  int a[8];
  - for (int j=1;j<8;j++) a[j]=j;
  + for (int j=0;j<8;j++) a[j]=j;
  int s=0; for (int j=0;j<8;j++) s+=a[j];
  out[all]=s;"""),
    _row("a counter that nobody set to zero","init","uninitialised-read",f"""
  threadgroup atomic_int c;
  + if (t==0u) atomic_store_explicit(&c,0,{RELAXED});
  + {TG}
  atomic_fetch_add_explicit(&c,1,{RELAXED}); {TG}
  if (t==0u) out[b]=atomic_load_explicit(&c,{RELAXED});"""),
    _row("a tile whose edge nobody wrote","init","uninitialised-read",f"""
  threadgroup int s[66]; s[t+1u]=in[all];
  + if (t==0u) {{ s[0]=0; s[65]=0; }}
  {TG}
  out[all]=s[t]+s[t+1u]+s[t+2u];"""),
    _row("branch on a flag nobody set","init","uninitialised-read",f"""
  threadgroup int f;
  + if (t==0u) f=0;
  {TG} if (t==5u && in[all]>100) f=1;
  {TG} if (f!=0) out[all]=1;"""),
    _row("ping-pong scan with one buffer","race","shared-race",f"""
  threadgroup int s[2][64]; int p=0; s[0][t]=in[all]; {TG}
  for (uint d=1u; d<64u; d*=2u) {{
  int v=s[p][t]; if (t>=d) v+=s[p][t-d];
  - s[p][t]=v;
  + s[1-p][t]=v; p=1-p;
  {TG} }}
  out[all]=s[p][t];"""),
    _row("two threadgroups write one element","race","global-race","""
  - out[t]=(int)b;
  + out[all]=(int)b;"""),
)
