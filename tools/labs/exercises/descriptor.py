"""Lab 6: a wrong descriptor.

KERNEL turns 256 numbers round by way of LDS: out[i] = in[255 - i]. Its instructions are right. The descriptor
behind them, which tells the GPU how many registers and how much LDS it needs, is not. Registers come in
eights, LDS is counted in bytes. Correct both.

    python -m hcq.tools.labs check 6
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
    v_sub_u32 v10, 0x3fc, v1                 ; 4 * (255 - thread)
    s_waitcnt lgkmcnt(0)
    global_load_dword v11, v1, s[6:7]
    s_waitcnt vmcnt(0)
    ds_write_b32 v10, v11
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_read_b32 v12, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v12, s[4:5]
    s_endpgm
.Lend:
.size kernel, .Lend-kernel

.rodata
.p2align 6
.amdhsa_kernel kernel
    .amdhsa_group_segment_fixed_size 256
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
    .group_segment_fixed_size: 256
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
