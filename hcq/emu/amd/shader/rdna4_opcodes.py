"""The opcodes of RDNA4 (gfx1201): number, name and operands in assembly order.

In       nothing
Out      one text per format for isa.opcodes(); a line at the margin gives operands, the lines below it the instructions
Changes  nothing
Next     rdna4.py (where the fields lie), isa.py (how this text is read), rdna3_opcodes.py (the generation before)

An operand is field:KIND, KIND a register file (V vector, S scalar, A accumulation, I immediate) and a width in bits;
V16 is half a register. VOP3 lists what is not a promoted VOP1, VOP2 or VOPC instruction.
Source: mnemonics and encodings of LLVM's assembler for gfx1201.
"""

SOP1 = """
sdst:S32 ssrc0:S32
    0 s_mov_b32  2 s_cmov_b32  4 s_brev_b32  8 s_ctz_i32_b32  10 s_clz_i32_u32  12 s_cls_i32
    14 s_sext_i32_i8  15 s_sext_i32_i16  16 s_bitset0_b32  18 s_bitset1_b32  21 s_abs_i32
    22 s_bcnt0_i32_b32  24 s_bcnt1_i32_b32  26 s_quadmask_b32  28 s_wqm_b32  30 s_not_b32
    32 s_and_saveexec_b32  34 s_or_saveexec_b32  36 s_xor_saveexec_b32  38 s_nand_saveexec_b32
    40 s_nor_saveexec_b32  42 s_xnor_saveexec_b32  44 s_and_not0_saveexec_b32  46 s_or_not0_saveexec_b32
    48 s_and_not1_saveexec_b32  50 s_or_not1_saveexec_b32  52 s_and_not0_wrexec_b32
    54 s_and_not1_wrexec_b32  64 s_movrels_b32  66 s_movreld_b32  68 s_movrelsd_2_b32  96 s_ceil_f32
    97 s_floor_f32  98 s_trunc_f32  99 s_rndne_f32  100 s_cvt_f32_i32  101 s_cvt_f32_u32  102 s_cvt_i32_f32
    103 s_cvt_u32_f32  104 s_cvt_f16_f32  105 s_cvt_f32_f16  106 s_cvt_hi_f32_f16  107 s_ceil_f16
    108 s_floor_f16  109 s_trunc_f16  110 s_rndne_f16
sdst:S64 ssrc0:S64
    1 s_mov_b64  3 s_cmov_b64  5 s_brev_b64  27 s_quadmask_b64  29 s_wqm_b64  31 s_not_b64
    33 s_and_saveexec_b64  35 s_or_saveexec_b64  37 s_xor_saveexec_b64  39 s_nand_saveexec_b64
    41 s_nor_saveexec_b64  43 s_xnor_saveexec_b64  45 s_and_not0_saveexec_b64  47 s_or_not0_saveexec_b64
    49 s_and_not1_saveexec_b64  51 s_or_not1_saveexec_b64  53 s_and_not0_wrexec_b64
    55 s_and_not1_wrexec_b64  65 s_movrels_b64  67 s_movreld_b64  73 s_swappc_b64
sdst:S32 ssrc0:S64
    9 s_ctz_i32_b64  11 s_clz_i32_u64  13 s_cls_i32_i64  23 s_bcnt0_i32_b64  25 s_bcnt1_i32_b64
sdst:S64 ssrc0:S32
    17 s_bitset0_b64  19 s_bitset1_b64  20 s_bitreplicate_b64_b32
sdst:S64
    71 s_getpc_b64
ssrc0:S64
    72 s_setpc_b64  74 s_rfe_b64
sdst:S32 ssrc0:I8
    76 s_sendmsg_rtn_b32  80 s_get_barrier_state
sdst:S64 ssrc0:I8
    77 s_sendmsg_rtn_b64
ssrc0:I8
    78 s_barrier_signal  79 s_barrier_signal_isfirst  81 s_barrier_init  82 s_barrier_join
ssrc0:S32
    83 s_alloc_vgpr  88 s_sleep_var
"""

SOP2 = """
sdst:S32 ssrc0:S32 ssrc1:S32
    0 s_add_co_u32  1 s_sub_co_u32  2 s_add_co_i32  3 s_sub_co_i32  4 s_add_co_ci_u32  5 s_sub_co_ci_u32
    6 s_absdiff_i32  8 s_lshl_b32  10 s_lshr_b32  12 s_ashr_i32  14 s_lshl1_add_u32  15 s_lshl2_add_u32
    16 s_lshl3_add_u32  17 s_lshl4_add_u32  18 s_min_i32  19 s_min_u32  20 s_max_i32  21 s_max_u32
    22 s_and_b32  24 s_or_b32  26 s_xor_b32  28 s_nand_b32  30 s_nor_b32  32 s_xnor_b32  34 s_and_not1_b32
    36 s_or_not1_b32  38 s_bfe_u32  39 s_bfe_i32  42 s_bfm_b32  44 s_mul_i32  45 s_mul_hi_u32
    46 s_mul_hi_i32  48 s_cselect_b32  50 s_pack_ll_b32_b16  51 s_pack_lh_b32_b16  52 s_pack_hh_b32_b16
    53 s_pack_hl_b32_b16  64 s_add_f32  65 s_sub_f32  66 s_min_num_f32  67 s_max_num_f32  68 s_mul_f32
    71 s_fmac_f32  72 s_cvt_pk_rtz_f16_f32  73 s_add_f16  74 s_sub_f16  75 s_min_num_f16  76 s_max_num_f16
    77 s_mul_f16  78 s_fmac_f16  79 s_minimum_f32  80 s_maximum_f32  81 s_minimum_f16  82 s_maximum_f16
sdst:S64 ssrc0:S64 ssrc1:S32
    9 s_lshl_b64  11 s_lshr_b64  13 s_ashr_i64  40 s_bfe_u64  41 s_bfe_i64
sdst:S64 ssrc0:S64 ssrc1:S64
    23 s_and_b64  25 s_or_b64  27 s_xor_b64  29 s_nand_b64  31 s_nor_b64  33 s_xnor_b64  35 s_and_not1_b64
    37 s_or_not1_b64  49 s_cselect_b64  83 s_add_nc_u64  84 s_sub_nc_u64  85 s_mul_u64
sdst:S64 ssrc0:S32 ssrc1:S32
    43 s_bfm_b64
sdst:S32 ssrc0:S32 ssrc1:S32 literal32
    69 s_fmaak_f32
sdst:S32 ssrc0:S32 literal32 ssrc1:S32
    70 s_fmamk_f32
"""

SOPC = """
ssrc0:S32 ssrc1:S32
    0 s_cmp_eq_i32  1 s_cmp_lg_i32  2 s_cmp_gt_i32  3 s_cmp_ge_i32  4 s_cmp_lt_i32  5 s_cmp_le_i32
    6 s_cmp_eq_u32  7 s_cmp_lg_u32  8 s_cmp_gt_u32  9 s_cmp_ge_u32  10 s_cmp_lt_u32  11 s_cmp_le_u32
    12 s_bitcmp0_b32  13 s_bitcmp1_b32  65 s_cmp_lt_f32  66 s_cmp_eq_f32  67 s_cmp_le_f32  68 s_cmp_gt_f32
    69 s_cmp_lg_f32  70 s_cmp_ge_f32  71 s_cmp_o_f32  72 s_cmp_u_f32  73 s_cmp_nge_f32  74 s_cmp_nlg_f32
    75 s_cmp_ngt_f32  76 s_cmp_nle_f32  77 s_cmp_neq_f32  78 s_cmp_nlt_f32  81 s_cmp_lt_f16
    82 s_cmp_eq_f16  83 s_cmp_le_f16  84 s_cmp_gt_f16  85 s_cmp_lg_f16  86 s_cmp_ge_f16  87 s_cmp_o_f16
    88 s_cmp_u_f16  89 s_cmp_nge_f16  90 s_cmp_nlg_f16  91 s_cmp_ngt_f16  92 s_cmp_nle_f16
    93 s_cmp_neq_f16  94 s_cmp_nlt_f16
ssrc0:S64 ssrc1:S32
    14 s_bitcmp0_b64  15 s_bitcmp1_b64
ssrc0:S64 ssrc1:S64
    16 s_cmp_eq_u64  17 s_cmp_lg_u64
"""

SOPK = """
sdst:S32 simm16
    0 s_movk_i32  2 s_cmovk_i32  15 s_addk_co_i32  16 s_mulk_i32  17 s_getreg_b32
simm16
    1 s_version
simm16 sdst:S32
    18 s_setreg_b32
simm16 literal32
    19 s_setreg_imm32_b32
sdst:S64 simm16
    20 s_call_b64
"""

SOPP = """
simm16
    0 s_nop  1 s_setkill  2 s_sethalt  3 s_sleep  5 s_clause  7 s_delay_alu  8 s_wait_alu  9 s_waitcnt
    11 s_wait_event  16 s_trap  17 s_round_mode  18 s_denorm_mode  20 s_barrier_wait  32 s_branch
    33 s_cbranch_scc0  34 s_cbranch_scc1  35 s_cbranch_vccz  36 s_cbranch_vccnz  37 s_cbranch_execz
    38 s_cbranch_execnz  48 s_endpgm  53 s_setprio  54 s_sendmsg  55 s_sendmsghalt  56 s_incperflevel
    57 s_decperflevel  59 s_ttracedata_imm  64 s_wait_loadcnt  65 s_wait_storecnt  66 s_wait_samplecnt
    67 s_wait_bvhcnt  68 s_wait_expcnt  70 s_wait_dscnt  71 s_wait_kmcnt  72 s_wait_loadcnt_dscnt
    73 s_wait_storecnt_dscnt
-
    10 s_wait_idle  21 s_barrier_leave  31 s_code_end  49 s_endpgm_saved  52 s_wakeup  58 s_ttracedata
    60 s_icache_inv
"""

SMEM = """
sdata:S32 sbase:S64
    0 s_load_b32  8 s_load_i8  9 s_load_u8  10 s_load_i16  11 s_load_u16
sdata:S64 sbase:S64
    1 s_load_b64
sdata:S128 sbase:S64
    2 s_load_b128
sdata:S256 sbase:S64
    3 s_load_b256
sdata:S512 sbase:S64
    4 s_load_b512
sdata:S96 sbase:S64
    5 s_load_b96
sdata:S32 sbase:S128
    16 s_buffer_load_b32  24 s_buffer_load_i8  25 s_buffer_load_u8  26 s_buffer_load_i16
    27 s_buffer_load_u16
sdata:S64 sbase:S128
    17 s_buffer_load_b64
sdata:S128 sbase:S128
    18 s_buffer_load_b128
sdata:S256 sbase:S128
    19 s_buffer_load_b256
sdata:S512 sbase:S128
    20 s_buffer_load_b512
sdata:S96 sbase:S128
    21 s_buffer_load_b96
-
    33 s_dcache_inv  37 s_prefetch_inst_pc_rel  40 s_prefetch_data_pc_rel
sdata:I7 sbase:S64
    34 s_atc_probe
sdata:I7 sbase:S128
    35 s_atc_probe_buffer
sbase:S64
    36 s_prefetch_inst  38 s_prefetch_data
sbase:S128
    39 s_buffer_prefetch_data
"""

VOP1 = """
-
    0 v_nop  27 v_pipeflush
vdst:V32 src0:V32
    1 v_mov_b32  5 v_cvt_f32_i32  6 v_cvt_f32_u32  7 v_cvt_u32_f32  8 v_cvt_i32_f32
    12 v_cvt_nearest_i32_f32  13 v_cvt_floor_i32_f32  14 v_cvt_off_f32_i4  17 v_cvt_f32_ubyte0
    18 v_cvt_f32_ubyte1  19 v_cvt_f32_ubyte2  20 v_cvt_f32_ubyte3  32 v_fract_f32  33 v_trunc_f32
    34 v_ceil_f32  35 v_rndne_f32  36 v_floor_f32  37 v_exp_f32  39 v_log_f32  42 v_rcp_f32
    43 v_rcp_iflag_f32  46 v_rsq_f32  51 v_sqrt_f32  53 v_sin_f32  54 v_cos_f32  55 v_not_b32
    56 v_bfrev_b32  57 v_clz_i32_u32  58 v_ctz_i32_b32  59 v_cls_i32  63 v_frexp_exp_i32_f32
    64 v_frexp_mant_f32  66 v_movreld_b32  67 v_movrels_b32  68 v_movrelsd_b32  72 v_movrelsd_2_b32
    101 v_swap_b32  103 v_permlane64_b32  104 v_swaprel_b32  108 v_cvt_f32_fp8  109 v_cvt_f32_bf8
vdst:S32 src0:V32
    2 v_readfirstlane_b32
vdst:V32 src0:V64
    3 v_cvt_i32_f64  15 v_cvt_f32_f64  21 v_cvt_u32_f64  60 v_frexp_exp_i32_f64
vdst:V64 src0:V32
    4 v_cvt_f64_i32  16 v_cvt_f64_f32  22 v_cvt_f64_u32
vdst:V16 src0:V32
    10 v_cvt_f16_f32  98 v_sat_pk_u8_i16
vdst:V32 src0:V16
    11 v_cvt_f32_f16  106 v_cvt_i32_i16  107 v_cvt_u32_u16
vdst:V64 src0:V16
    110 v_cvt_pk_f32_fp8  111 v_cvt_pk_f32_bf8
vdst:V64 src0:V64
    23 v_trunc_f64  24 v_ceil_f64  25 v_rndne_f64  26 v_floor_f64  47 v_rcp_f64  49 v_rsq_f64
    52 v_sqrt_f64  61 v_frexp_mant_f64  62 v_fract_f64
vdst:V16 src0:V16
    28 v_mov_b16  80 v_cvt_f16_u16  81 v_cvt_f16_i16  82 v_cvt_u16_f16  83 v_cvt_i16_f16  84 v_rcp_f16
    85 v_sqrt_f16  86 v_rsq_f16  87 v_log_f16  88 v_exp_f16  89 v_frexp_mant_f16  90 v_frexp_exp_i16_f16
    91 v_floor_f16  92 v_ceil_f16  93 v_trunc_f16  94 v_rndne_f16  95 v_fract_f16  96 v_sin_f16
    97 v_cos_f16  99 v_cvt_norm_i16_f16  100 v_cvt_norm_u16_f16  102 v_swap_b16  105 v_not_b16
"""

VOP2 = """
vdst:V32 src0:V32 vsrc1:V32 vcc
    1 v_cndmask_b32
vdst:V64 src0:V64 vsrc1:V64
    2 v_add_f64  6 v_mul_f64  13 v_min_num_f64  14 v_max_num_f64
vdst:V32 src0:V32 vsrc1:V32
    3 v_add_f32  4 v_sub_f32  5 v_subrev_f32  7 v_mul_dx9_zero_f32  8 v_mul_f32  9 v_mul_i32_i24
    10 v_mul_hi_i32_i24  11 v_mul_u32_u24  12 v_mul_hi_u32_u24  17 v_min_i32  18 v_max_i32  19 v_min_u32
    20 v_max_u32  21 v_min_num_f32  22 v_max_num_f32  24 v_lshlrev_b32  25 v_lshrrev_b32  26 v_ashrrev_i32
    27 v_and_b32  28 v_or_b32  29 v_xor_b32  30 v_xnor_b32  37 v_add_nc_u32  38 v_sub_nc_u32
    39 v_subrev_nc_u32  43 v_fmac_f32  47 v_cvt_pk_rtz_f16_f32  60 v_pk_fmac_f16
vdst:V64 src0:V32 vsrc1:V64
    31 v_lshlrev_b64
vdst:V32 vcc src0:V32 vsrc1:V32 vcc
    32 v_add_co_ci_u32  33 v_sub_co_ci_u32  34 v_subrev_co_ci_u32
vdst:V32 src0:V32 literal32 vsrc1:V32
    44 v_fmamk_f32
vdst:V32 src0:V32 vsrc1:V32 literal32
    45 v_fmaak_f32
vdst:V16 src0:V16 vsrc1:V16
    48 v_min_num_f16  49 v_max_num_f16  50 v_add_f16  51 v_sub_f16  52 v_subrev_f16  53 v_mul_f16
    54 v_fmac_f16  59 v_ldexp_f16
vdst:V16 src0:V16 literal32 vsrc1:V16
    55 v_fmamk_f16
vdst:V16 src0:V16 vsrc1:V16 literal32
    56 v_fmaak_f16
"""

VOP3 = """
vdst:V32 src0:V32 src1:V32 src2:S32
    257 v_cndmask_b32
vdst:V32 src0:V32 src1:V32 src2:V32
    521 v_fma_dx9_zero_f32  522 v_mad_i32_i24  523 v_mad_u32_u24  524 v_cubeid_f32  525 v_cubesc_f32
    526 v_cubetc_f32  527 v_cubema_f32  528 v_bfe_u32  529 v_bfe_i32  530 v_bfi_b32  531 v_fma_f32
    533 v_lerp_u8  536 v_mullit_f32  538 v_min3_i32  539 v_min3_u32  541 v_max3_i32  542 v_max3_u32
    544 v_med3_i32  545 v_med3_u32  546 v_sad_u8  547 v_sad_hi_u8  548 v_sad_u16  549 v_sad_u32
    550 v_cvt_pk_u8_f32  551 v_div_fixup_f32  553 v_min3_num_f32  554 v_max3_num_f32  557 v_minimum3_f32
    558 v_maximum3_f32  561 v_med3_num_f32  567 v_div_fmas_f32  569 v_msad_u8  576 v_xor3_b32
    580 v_perm_b32  581 v_xad_u32  582 v_lshl_add_u32  583 v_add_lshl_u32  597 v_add3_u32
    598 v_lshl_or_b32  599 v_and_or_b32  600 v_or3_b32  610 v_maxmin_u32  611 v_minmax_u32
    612 v_maxmin_i32  613 v_minmax_i32  616 v_minmax_num_f32  617 v_maxmin_num_f32
    620 v_minimummaximum_f32  621 v_maximumminimum_f32
vdst:V64 src0:V64 src1:V64 src2:V64
    532 v_fma_f64  552 v_div_fixup_f64  568 v_div_fmas_f64
vdst:V32 src0:V32 src1:V32 src2:V16
    534 v_alignbit_b32  535 v_alignbyte_b32
vdst:V16 src0:V16 src1:V16 src2:V16
    555 v_min3_num_f16  556 v_max3_num_f16  559 v_minimum3_f16  560 v_maximum3_f16  562 v_med3_num_f16
    577 v_mad_u16  584 v_fma_f16  586 v_min3_i16  587 v_min3_u16  589 v_max3_i16  590 v_max3_u16
    592 v_med3_i16  593 v_med3_u16  595 v_mad_i16  596 v_div_fixup_f16  618 v_minmax_num_f16
    619 v_maxmin_num_f16  622 v_minimummaximum_f16  623 v_maximumminimum_f16
vdst:V64 src0:V64 src1:V32 src2:V64
    570 v_qsad_pk_u16_u8  571 v_mqsad_pk_u16_u8
vdst:V128 src0:V64 src1:V32 src2:V128
    573 v_mqsad_u32_u8
vdst:V32 src0:V16 src1:V16 src2:V32
    601 v_mad_u32_u16  602 v_mad_i32_i16
vdst:V32 src0:V32 src1:S32 src2:S32
    603 v_permlane16_b32  604 v_permlanex16_b32
vdst:V16 src0:V16 src1:V16 src2:S32
    605 v_cndmask_b16
vdst:V16 src0:V32 src1:V32 src2:V16
    614 v_dot2_f16_f16  615 v_dot2_bf16_bf16
vdst:S32 src0:S32
    640 v_s_exp_f32  641 v_s_exp_f16  642 v_s_log_f32  643 v_s_log_f16  644 v_s_rcp_f32  645 v_s_rcp_f16
    646 v_s_rsq_f32  647 v_s_rsq_f16  648 v_s_sqrt_f32  649 v_s_sqrt_f16
vdst:V16 src0:V16 src1:V16
    771 v_add_nc_u16  772 v_sub_nc_u16  773 v_mul_lo_u16  777 v_max_u16  778 v_max_i16  779 v_min_u16
    780 v_min_i16  781 v_add_nc_i16  782 v_sub_nc_i16  824 v_lshlrev_b16  825 v_lshrrev_b16
    826 v_ashrrev_i16  866 v_and_b16  867 v_or_b16  868 v_xor_b16  871 v_minimum_f16  872 v_maximum_f16
vdst:V32 src0:V32 src1:V32
    774 v_cvt_pk_i16_f32  775 v_cvt_pk_u16_f32  783 v_permlane16_var_b32  784 v_permlanex16_var_b32
    796 v_ldexp_f32  797 v_bfm_b32  798 v_bcnt_u32_b32  799 v_mbcnt_lo_u32_b32  800 v_mbcnt_hi_u32_b32
    801 v_cvt_pk_norm_i16_f32  802 v_cvt_pk_norm_u16_f32  803 v_cvt_pk_u16_u32  804 v_cvt_pk_i16_i32
    805 v_sub_nc_i32  806 v_add_nc_i32  812 v_mul_lo_u32  813 v_mul_hi_u32  814 v_mul_hi_i32
    869 v_minimum_f32  870 v_maximum_f32  873 v_cvt_pk_fp8_f32  874 v_cvt_pk_bf8_f32  875 v_cvt_sr_fp8_f32
    876 v_cvt_sr_bf8_f32
vdst:V32 src0:V16 src1:V16
    785 v_pack_b32_f16  786 v_cvt_pk_norm_i16_f16  787 v_cvt_pk_norm_u16_f16
vdst:V64 src0:V64 src1:V32
    811 v_ldexp_f64  815 v_trig_preop_f64
vdst:V64 src0:V32 src1:V64
    829 v_lshrrev_b64  830 v_ashrrev_i64
vdst:V64 src0:V64 src1:V64
    833 v_minimum_f64  834 v_maximum_f64
vdst:S32 src0:V32 src1:S32
    864 v_readlane_b32
vdst:V32 src0:S32 src1:S32
    865 v_writelane_b32
"""

VOP3SD = """
vdst:V32 sdst:S32 src0:V32 src1:V32 src2:S32
    288 v_add_co_ci_u32  289 v_sub_co_ci_u32  290 v_subrev_co_ci_u32
vdst:V32 sdst:S32 src0:V32 src1:V32 src2:V32
    764 v_div_scale_f32
vdst:V64 sdst:S32 src0:V64 src1:V64 src2:V64
    765 v_div_scale_f64
vdst:V64 sdst:S32 src0:V32 src1:V32 src2:V64
    766 v_mad_co_u64_u32  767 v_mad_co_i64_i32
vdst:V32 sdst:S32 src0:V32 src1:V32
    768 v_add_co_u32  769 v_sub_co_u32  770 v_subrev_co_u32
"""

VOP3P = """
vdst:V32 src0:V32 src1:V32 src2:V32
    0 v_pk_mad_i16  9 v_pk_mad_u16  14 v_pk_fma_f16  19 v_dot2_f32_f16  22 v_dot4_i32_iu8  23 v_dot4_u32_u8
    24 v_dot8_i32_iu4  25 v_dot8_u32_u4  26 v_dot2_f32_bf16  32 v_fma_mix_f32  33 v_fma_mixlo_f16
    34 v_fma_mixhi_f16  36 v_dot4_f32_fp8_bf8  37 v_dot4_f32_bf8_fp8  38 v_dot4_f32_fp8_fp8
    39 v_dot4_f32_bf8_bf8
vdst:V32 src0:V32 src1:V32
    1 v_pk_mul_lo_u16  2 v_pk_add_i16  3 v_pk_sub_i16  4 v_pk_lshlrev_b16  5 v_pk_lshrrev_b16
    6 v_pk_ashrrev_i16  7 v_pk_max_i16  8 v_pk_min_i16  10 v_pk_add_u16  11 v_pk_sub_u16  12 v_pk_max_u16
    13 v_pk_min_u16  15 v_pk_add_f16  16 v_pk_mul_f16  27 v_pk_min_num_f16  28 v_pk_max_num_f16
    29 v_pk_minimum_f16  30 v_pk_maximum_f16
vdst:V256 src0:V128 src1:V128 src2:V256
    64 v_wmma_f32_16x16x16_f16  65 v_wmma_f32_16x16x16_bf16
vdst:V128 src0:V128 src1:V128 src2:V128
    66 v_wmma_f16_16x16x16_f16  67 v_wmma_bf16_16x16x16_bf16
vdst:V256 src0:V64 src1:V64 src2:V256
    68 v_wmma_i32_16x16x16_iu8  70 v_wmma_f32_16x16x16_fp8_fp8  71 v_wmma_f32_16x16x16_fp8_bf8
    72 v_wmma_f32_16x16x16_bf8_fp8  73 v_wmma_f32_16x16x16_bf8_bf8  74 v_wmma_i32_16x16x32_iu4
vdst:V256 src0:V32 src1:V32 src2:V256
    69 v_wmma_i32_16x16x16_iu4
vdst:V256 src0:V128 src1:V256 src2:V32
    80 v_swmmac_f32_16x16x32_f16  81 v_swmmac_f32_16x16x32_bf16
vdst:V128 src0:V128 src1:V256 src2:V32
    82 v_swmmac_f16_16x16x32_f16  83 v_swmmac_bf16_16x16x32_bf16
vdst:V256 src0:V64 src1:V128 src2:V32
    84 v_swmmac_i32_16x16x32_iu8  86 v_swmmac_i32_16x16x64_iu4  87 v_swmmac_f32_16x16x32_fp8_fp8
    88 v_swmmac_f32_16x16x32_fp8_bf8  89 v_swmmac_f32_16x16x32_bf8_fp8  90 v_swmmac_f32_16x16x32_bf8_bf8
vdst:V256 src0:V32 src1:V64 src2:V32
    85 v_swmmac_i32_16x16x32_iu4
"""

DS = """
addr:V32 data0:V32
    0 ds_add_u32  1 ds_sub_u32  2 ds_rsub_u32  3 ds_inc_u32  4 ds_dec_u32  5 ds_min_i32  6 ds_max_i32
    7 ds_min_u32  8 ds_max_u32  9 ds_and_b32  10 ds_or_b32  11 ds_xor_b32  13 ds_store_b32
    18 ds_min_num_f32  19 ds_max_num_f32  21 ds_add_f32  30 ds_store_b8  31 ds_store_b16
    152 ds_cond_sub_u32  153 ds_sub_clamp_u32  154 ds_pk_add_f16  155 ds_pk_add_bf16
    160 ds_store_b8_d16_hi  161 ds_store_b16_d16_hi
addr:V32 data0:V32 data1:V32
    12 ds_mskor_b32  14 ds_store_2addr_b32  15 ds_store_2addr_stride64_b32  16 ds_cmpstore_b32
-
    20 ds_nop
vdst:V32 addr:V32 data0:V32
    32 ds_add_rtn_u32  33 ds_sub_rtn_u32  34 ds_rsub_rtn_u32  35 ds_inc_rtn_u32  36 ds_dec_rtn_u32
    37 ds_min_rtn_i32  38 ds_max_rtn_i32  39 ds_min_rtn_u32  40 ds_max_rtn_u32  41 ds_and_rtn_b32
    42 ds_or_rtn_b32  43 ds_xor_rtn_b32  45 ds_storexchg_rtn_b32  50 ds_min_num_rtn_f32
    51 ds_max_num_rtn_f32  121 ds_add_rtn_f32  168 ds_cond_sub_rtn_u32  169 ds_sub_clamp_rtn_u32
    170 ds_pk_add_rtn_f16  171 ds_pk_add_rtn_bf16  178 ds_permute_b32  179 ds_bpermute_b32
    205 ds_bpermute_fi_b32
vdst:V32 addr:V32 data0:V32 data1:V32
    44 ds_mskor_rtn_b32  48 ds_cmpstore_rtn_b32
vdst:V64 addr:V32 data0:V32 data1:V32
    46 ds_storexchg_2addr_rtn_b32  47 ds_storexchg_2addr_stride64_rtn_b32
vdst:V32 addr:V32
    53 ds_swizzle_b32  54 ds_load_b32  57 ds_load_i8  58 ds_load_u8  59 ds_load_i16  60 ds_load_u16
    162 ds_load_u8_d16  163 ds_load_u8_d16_hi  164 ds_load_i8_d16  165 ds_load_i8_d16_hi
    166 ds_load_u16_d16  167 ds_load_u16_d16_hi
vdst:V64 addr:V32
    55 ds_load_2addr_b32  56 ds_load_2addr_stride64_b32  118 ds_load_b64
vdst:V32
    61 ds_consume  62 ds_append  177 ds_load_addtid_b32
addr:V32 data0:V64
    64 ds_add_u64  65 ds_sub_u64  66 ds_rsub_u64  67 ds_inc_u64  68 ds_dec_u64  69 ds_min_i64
    70 ds_max_i64  71 ds_min_u64  72 ds_max_u64  73 ds_and_b64  74 ds_or_b64  75 ds_xor_b64
    77 ds_store_b64  82 ds_min_num_f64  83 ds_max_num_f64
addr:V32 data0:V64 data1:V64
    76 ds_mskor_b64  78 ds_store_2addr_b64  79 ds_store_2addr_stride64_b64  80 ds_cmpstore_b64
vdst:V64 addr:V32 data0:V64
    96 ds_add_rtn_u64  97 ds_sub_rtn_u64  98 ds_rsub_rtn_u64  99 ds_inc_rtn_u64  100 ds_dec_rtn_u64
    101 ds_min_rtn_i64  102 ds_max_rtn_i64  103 ds_min_rtn_u64  104 ds_max_rtn_u64  105 ds_and_rtn_b64
    106 ds_or_rtn_b64  107 ds_xor_rtn_b64  109 ds_storexchg_rtn_b64  114 ds_min_num_rtn_f64
    115 ds_max_num_rtn_f64  126 ds_condxchg32_rtn_b64
vdst:V64 addr:V32 data0:V64 data1:V64
    108 ds_mskor_rtn_b64  112 ds_cmpstore_rtn_b64
vdst:V128 addr:V32 data0:V64 data1:V64
    110 ds_storexchg_2addr_rtn_b64  111 ds_storexchg_2addr_stride64_rtn_b64
vdst:V128 addr:V32
    119 ds_load_2addr_b64  120 ds_load_2addr_stride64_b64  255 ds_load_b128
data0:V32
    176 ds_store_addtid_b32
addr:V32 data0:V96
    222 ds_store_b96
addr:V32 data0:V128
    223 ds_store_b128
vdst:V32 addr:V32 data0:V32 data1:V128
    224 ds_bvh_stack_push4_pop1_rtn_b32
vdst:V32 addr:V32 data0:V32 data1:V256
    225 ds_bvh_stack_push8_pop1_rtn_b32
vdst:V64 addr:V32 data0:V32 data1:V256
    226 ds_bvh_stack_push8_pop2_rtn_b64
vdst:V96 addr:V32
    254 ds_load_b96
"""

FLAT = """
vdst:V32 addr:V64
    16 flat_load_u8  17 flat_load_i8  18 flat_load_u16  19 flat_load_i16  20 flat_load_b32
    30 flat_load_d16_u8  31 flat_load_d16_i8  32 flat_load_d16_b16  33 flat_load_d16_hi_u8
    34 flat_load_d16_hi_i8  35 flat_load_d16_hi_b16
vdst:V64 addr:V64
    21 flat_load_b64
vdst:V96 addr:V64
    22 flat_load_b96
vdst:V128 addr:V64
    23 flat_load_b128
addr:V64 data:V32
    24 flat_store_b8  25 flat_store_b16  26 flat_store_b32  36 flat_store_d16_hi_b8
    37 flat_store_d16_hi_b16  51 flat_atomic_swap_b32  53 flat_atomic_add_u32  54 flat_atomic_sub_u32
    55 flat_atomic_sub_clamp_u32  56 flat_atomic_min_i32  57 flat_atomic_min_u32  58 flat_atomic_max_i32
    59 flat_atomic_max_u32  60 flat_atomic_and_b32  61 flat_atomic_or_b32  62 flat_atomic_xor_b32
    63 flat_atomic_inc_u32  64 flat_atomic_dec_u32  80 flat_atomic_cond_sub_u32  81 flat_atomic_min_num_f32
    82 flat_atomic_max_num_f32  86 flat_atomic_add_f32  89 flat_atomic_pk_add_f16
    90 flat_atomic_pk_add_bf16
addr:V64 data:V64
    27 flat_store_b64  52 flat_atomic_cmpswap_b32  65 flat_atomic_swap_b64  67 flat_atomic_add_u64
    68 flat_atomic_sub_u64  69 flat_atomic_min_i64  70 flat_atomic_min_u64  71 flat_atomic_max_i64
    72 flat_atomic_max_u64  73 flat_atomic_and_b64  74 flat_atomic_or_b64  75 flat_atomic_xor_b64
    76 flat_atomic_inc_u64  77 flat_atomic_dec_u64
addr:V64 data:V96
    28 flat_store_b96
addr:V64 data:V128
    29 flat_store_b128  66 flat_atomic_cmpswap_b64
"""

SCRATCH = """
vdst:V32 addr:V32
    16 scratch_load_u8  17 scratch_load_i8  18 scratch_load_u16  19 scratch_load_i16  20 scratch_load_b32
    30 scratch_load_d16_u8  31 scratch_load_d16_i8  32 scratch_load_d16_b16  33 scratch_load_d16_hi_u8
    34 scratch_load_d16_hi_i8  35 scratch_load_d16_hi_b16
vdst:V64 addr:V32
    21 scratch_load_b64
vdst:V96 addr:V32
    22 scratch_load_b96
vdst:V128 addr:V32
    23 scratch_load_b128
addr:V32 data:V32
    24 scratch_store_b8  25 scratch_store_b16  26 scratch_store_b32  36 scratch_store_d16_hi_b8
    37 scratch_store_d16_hi_b16
addr:V32 data:V64
    27 scratch_store_b64
addr:V32 data:V96
    28 scratch_store_b96
addr:V32 data:V128
    29 scratch_store_b128
"""

GLOBAL = """
vdst:V32 addr:V64
    16 global_load_u8  17 global_load_i8  18 global_load_u16  19 global_load_i16  20 global_load_b32
    30 global_load_d16_u8  31 global_load_d16_i8  32 global_load_d16_b16  33 global_load_d16_hi_u8
    34 global_load_d16_hi_i8  35 global_load_d16_hi_b16
vdst:V64 addr:V64
    21 global_load_b64  88 global_load_tr_b64
vdst:V96 addr:V64
    22 global_load_b96
vdst:V128 addr:V64
    23 global_load_b128  87 global_load_tr_b128
addr:V64 data:V32
    24 global_store_b8  25 global_store_b16  26 global_store_b32  36 global_store_d16_hi_b8
    37 global_store_d16_hi_b16  51 global_atomic_swap_b32  53 global_atomic_add_u32
    54 global_atomic_sub_u32  55 global_atomic_sub_clamp_u32  56 global_atomic_min_i32
    57 global_atomic_min_u32  58 global_atomic_max_i32  59 global_atomic_max_u32  60 global_atomic_and_b32
    61 global_atomic_or_b32  62 global_atomic_xor_b32  63 global_atomic_inc_u32  64 global_atomic_dec_u32
    80 global_atomic_cond_sub_u32  81 global_atomic_min_num_f32  82 global_atomic_max_num_f32
    86 global_atomic_add_f32  89 global_atomic_pk_add_f16  90 global_atomic_pk_add_bf16
addr:V64 data:V64
    27 global_store_b64  52 global_atomic_cmpswap_b32  65 global_atomic_swap_b64  67 global_atomic_add_u64
    68 global_atomic_sub_u64  69 global_atomic_min_i64  70 global_atomic_min_u64  71 global_atomic_max_i64
    72 global_atomic_max_u64  73 global_atomic_and_b64  74 global_atomic_or_b64  75 global_atomic_xor_b64
    76 global_atomic_inc_u64  77 global_atomic_dec_u64  115 global_atomic_ordered_add_b64
addr:V64 data:V96
    28 global_store_b96
addr:V64 data:V128
    29 global_store_b128  66 global_atomic_cmpswap_b64
vdst:V32
    40 global_load_addtid_b32
data:V32
    41 global_store_addtid_b32
-
    43 global_inv  44 global_wb  79 global_wbinv
"""

MUBUF = """
vdata:V32 vaddr:V32 srsrc:S128 soffset:S32
    0 buffer_load_format_x  4 buffer_store_format_x  8 buffer_load_d16_format_x
    9 buffer_load_d16_format_xy  12 buffer_store_d16_format_x  13 buffer_store_d16_format_xy
    16 buffer_load_u8  17 buffer_load_i8  18 buffer_load_u16  19 buffer_load_i16  20 buffer_load_b32
    24 buffer_store_b8  25 buffer_store_b16  26 buffer_store_b32  30 buffer_load_d16_u8
    31 buffer_load_d16_i8  32 buffer_load_d16_b16  33 buffer_load_d16_hi_u8  34 buffer_load_d16_hi_i8
    35 buffer_load_d16_hi_b16  36 buffer_store_d16_hi_b8  37 buffer_store_d16_hi_b16
    38 buffer_load_d16_hi_format_x  39 buffer_store_d16_hi_format_x  51 buffer_atomic_swap_b32
    53 buffer_atomic_add_u32  54 buffer_atomic_sub_u32  55 buffer_atomic_sub_clamp_u32
    56 buffer_atomic_min_i32  57 buffer_atomic_min_u32  58 buffer_atomic_max_i32  59 buffer_atomic_max_u32
    60 buffer_atomic_and_b32  61 buffer_atomic_or_b32  62 buffer_atomic_xor_b32  63 buffer_atomic_inc_u32
    64 buffer_atomic_dec_u32  80 buffer_atomic_cond_sub_u32  81 buffer_atomic_min_num_f32
    82 buffer_atomic_max_num_f32  86 buffer_atomic_add_f32  89 buffer_atomic_pk_add_f16
    90 buffer_atomic_pk_add_bf16
vdata:V64 vaddr:V32 srsrc:S128 soffset:S32
    1 buffer_load_format_xy  5 buffer_store_format_xy  10 buffer_load_d16_format_xyz
    11 buffer_load_d16_format_xyzw  14 buffer_store_d16_format_xyz  15 buffer_store_d16_format_xyzw
    21 buffer_load_b64  27 buffer_store_b64  52 buffer_atomic_cmpswap_b32  65 buffer_atomic_swap_b64
    67 buffer_atomic_add_u64  68 buffer_atomic_sub_u64  69 buffer_atomic_min_i64  70 buffer_atomic_min_u64
    71 buffer_atomic_max_i64  72 buffer_atomic_max_u64  73 buffer_atomic_and_b64  74 buffer_atomic_or_b64
    75 buffer_atomic_xor_b64  76 buffer_atomic_inc_u64  77 buffer_atomic_dec_u64
vdata:V96 vaddr:V32 srsrc:S128 soffset:S32
    2 buffer_load_format_xyz  6 buffer_store_format_xyz  22 buffer_load_b96  28 buffer_store_b96
vdata:V128 vaddr:V32 srsrc:S128 soffset:S32
    3 buffer_load_format_xyzw  7 buffer_store_format_xyzw  23 buffer_load_b128  29 buffer_store_b128
    66 buffer_atomic_cmpswap_b64
"""
