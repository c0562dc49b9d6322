"""Lab 2: a missing wait.

KERNEL computes out[i] = 3 * in[i] + 1, in the assembly of an AMD GPU (gfx90a). An emulated GPU gives the
right numbers, and a real one does not always: a register is used before its load has come back. Find which
one, and put the right wait in the right place. `s_waitcnt vmcnt(0)` waits for loads of memory, `s_waitcnt
lgkmcnt(0)` for scalar loads and LDS.

    python -m hcq.tools.labs check 2
"""

KERNEL = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
    s_load_dwordx4 s[4:7], s[0:1], 0x0       ; out, in
    v_lshlrev_b32 v1, 2, v0                  ; 4 * thread
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[6:7]
    v_mul_lo_u32 v3, v2, 3
    v_add_u32 v3, 1, v3
    global_store_dword v1, v3, s[4:5]
    s_endpgm
.Lend:
.size kernel, .Lend-kernel

.rodata
.p2align 6
.amdhsa_kernel kernel
    .amdhsa_kernarg_size 16
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_next_free_vgpr 8
    .amdhsa_next_free_sgpr 8
    .amdhsa_accum_offset 8
.end_amdhsa_kernel

.amdgpu_metadata
---
amdhsa.version: [1, 1]
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 8
    .max_flat_workgroup_size: 256
    .args:
      - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata
"""
