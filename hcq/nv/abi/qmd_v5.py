"""QMD 5.0: the launch description that Blackwell reads, 384 bytes.

In       fields by name; addresses and sizes in bytes, the shifts are the fields' units
Out      QmdV5
Changes  nothing
Next     qmd.py (which version a GPU takes, names that all versions share)
Source   clcdc0qmd.h, clcec0qmd.h: V05_00
"""

from __future__ import annotations

from typing import ClassVar

from hcq.layout import bits, placed, repeated
from hcq.nv.abi.qmd_fields import (
    CONSTANT_BUFFER,
    CONSTANT_BUFFER_STATE,
    DEPENDENT_QMD,
    INVALIDATE,
    RELEASE,
    RELEASE_SEMAPHORE,
    ApiVisibleCallLimit,
    CgaCtaDistributionMode,
    CwdMembarType,
    ProgramPrefetchType,
    Qmd,
    QmdType,
    SamplerIndex,
)


class QmdV5(Qmd, words=96):
    """V05_00"""

    version: ClassVar[int] = 5
    renamed: ClassVar[dict[str, str]] = {
        f"release{i}_{new}": f"release_semaphore{i}_{old}"
        for i in range(3)
        for new, old in (("address", "addr"), ("payload", "payload"))
    }

    hw_only_span_list_head_index = bits(29, 0)
    hw_only_span_list_head_index_valid = bits(30)
    hw_only_require_scheduling_pcas = bits(31)
    hw_only_sked_next_qmd_pointer = bits(63, 32)
    inner_get = bits(94, 64)
    inner_overflow = bits(95)
    inner_put = bits(126, 96)
    inner_sticky_overflow = bits(127)
    dependence_counter = bits(143, 128)
    qmd_group_id = bits(149, 144)
    add_to_head_of_qmd_group_linked_list = bits(150)
    qmd_type = bits(153, 151, enum=QmdType, default=QmdType.GRID_CTA)
    num_sub_tasks_per_task = bits(157, 154)
    require_scheduling_pcas = bits(158)
    tpc_disable_mask_valid = bits(159)
    circular_queue_size = bits(184, 160)
    hw_only_dependence_counter = bits(207, 192)
    resume_sub_task_id = bits(210, 208)
    completed_sub_task_mask = bits(218, 211)
    grid_width_resume = bits(255, 224)
    grid_height_resume = bits(271, 256)
    grid_depth_resume = bits(287, 272)
    releases = repeated(range(288, 336, 16), RELEASE)
    dependent_qmds = repeated((336, 344), DEPENDENT_QMD)
    self_copy_on_completion = bits(341)
    demote_l2_evict_last = bits(342)
    disable_auto_invalidate = bits(343)
    correlation_id_internal = bits(349)
    cwd_membar_task_chasing_enable = bits(350)
    shared_allocation_enable = bits(351)
    correlation_id = bits(383, 352)
    dependent_qmd0_pointer = bits(415, 384, unit=256)
    dependent_qmd1_pointer = bits(447, 416, unit=256)
    sass_version = bits(455, 448)
    api_visible_call_limit = bits(456, enum=ApiVisibleCallLimit, default=ApiVisibleCallLimit.NO_CHECK)
    sampler_index = bits(457, enum=SamplerIndex)
    constant_bank_prefetch_pre_max_size = bits(463, 458, unit=256)
    qmd_minor_version = bits(467, 464)
    qmd_major_version = bits(471, 468, default=5)
    invalidate = placed(472, INVALIDATE)
    latch_acquire_invalidate_shader_data_cache = bits(478)
    latch_acquire_invalidate_texture_data_cache = bits(479)
    release_semaphores = repeated((480, 768, 896), RELEASE_SEMAPHORE)
    cwd_reference_count_delta_minus_one = bits(615, 608)
    cwd_reference_count_id = bits(621, 616)
    cwd_reference_count_incr_enable = bits(622)
    cwd_reference_count_decr_enable = bits(623)
    cwd_membar_type = bits(625, 624, enum=CwdMembarType)
    latch_acquire_invalidate_constant_cache = bits(626)
    cta_launch_queue = bits(627)
    free_cta_slots_empty_sm = bits(635, 628)
    sync_domain_id = bits(637, 636)
    pre_exit_at_last_cta_launch = bits(638)
    enable_program_pre_exit = bits(639)
    arrive_at_latch_id = bits(671, 640)
    wait_on_latch_id = bits(703, 672)
    occupancy_threshold_shared_mem = bits(721, 714)
    occupancy_max_shared_mem = bits(729, 722)
    arrive_at_latch_valid = bits(730)
    wait_on_latch_valid = bits(731)
    latch_release_invalidate_enable = bits(732)
    hold_cta_launch_until_parent_latch_acquire_and_cta_complete = bits(733)
    hold_membar_until_latch_acquire = bits(734)
    priority_demote_until_latch_acquire = bits(735)
    occupancy_threshold_warp = bits(743, 736)
    occupancy_max_warp = bits(751, 744)
    occupancy_threshold_register = bits(759, 752)
    occupancy_max_register = bits(767, 760)
    program_address = bits(1076, 1024, unit=16)
    program_prefetch_size = bits(1085, 1077)
    program_prefetch_type = bits(1087, 1086, enum=ProgramPrefetchType)
    cta_thread_dimension0 = bits(1103, 1088)
    cta_thread_dimension1 = bits(1119, 1104)
    cta_thread_dimension2 = bits(1127, 1120)
    register_count = bits(1136, 1128)
    barrier_count = bits(1141, 1137)
    icc_prefetch_size = bits(1147, 1142)
    shared_memory_size = bits(1162, 1152, unit=128)
    min_sm_config_shared_mem_size = bits(1168, 1163)
    max_sm_config_shared_mem_size = bits(1174, 1169)
    target_sm_config_shared_mem_size = bits(1180, 1175)
    shared_mem_barrier_init_enable = bits(1181)
    shader_local_memory_low_size = bits(1199, 1184, unit=16)
    shader_local_memory_high_size = bits(1215, 1200, unit=16)
    virtual_resource_count = bits(1223, 1216)
    grid_width = bits(1279, 1248)
    grid_height = bits(1295, 1280)
    grid_depth = bits(1327, 1312)
    constant_buffers = repeated(range(1344, 1856, 64), CONSTANT_BUFFER)
    constant_buffer_states = repeated(range(1856, 1888, 4), CONSTANT_BUFFER_STATE)
    program_prefetch_addr = bits(1936, 1888, unit=256)
    gpc_cga_width = bits(2053, 2048)
    gpc_cga_height = bits(2061, 2056)
    gpc_cga_depth = bits(2069, 2064)
    large_gpc_cga_width_minus_one = bits(2075, 2072)
    large_gpc_cga_height_minus_one = bits(2079, 2076)
    cga_cta_distribution_mode = bits(2111, enum=CgaCtaDistributionMode)
    gpu_cga_width = bits(2127, 2112)
    gpu_cga_height = bits(2143, 2128)
    gpu_cga_depth = bits(2159, 2144)
    debug_id = bits(2239, 2176)
    tpc_disable_masks = repeated(range(2240, 2368, 32), {"tpc_disable_mask_{i}": bits(31, 0)})
    incomplete_box_base_width_resume = bits(2527, 2496)
    incomplete_box_base_height_resume = bits(2543, 2528)
    incomplete_box_base_depth_resume = bits(2559, 2544)
    incomplete_box_offset_width_resume = bits(2563, 2560)
    incomplete_box_offset_height_resume = bits(2567, 2564)
    queue_entries_per_cta_log2 = bits(2596, 2592)
    hw_only_inner_get = bits(2654, 2624)
    hw_only_inner_put = bits(2686, 2656)
    outer_put = bits(3038, 3008)
    outer_overflow = bits(3039)
    outer_get = bits(3070, 3040)
    outer_sticky_overflow = bits(3071)
