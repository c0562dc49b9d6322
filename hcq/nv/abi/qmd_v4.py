"""QMD 4.0: the launch description that Hopper reads, 384 bytes.

In       fields by name; addresses and sizes in bytes, the shifts are the fields' units
Out      QmdV4
Changes  nothing
Next     qmd.py (which version a GPU takes, names that all versions share)
Source   clcbc0qmd.h: V04_00
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


class QmdV4(Qmd, words=96):
    """V04_00"""

    version: ClassVar[int] = 4
    renamed: ClassVar[dict[str, str]] = {
        f"release{i}_{new}": f"release_semaphore{i}_{old}"
        for i in range(3)
        for new, old in (("address", "addr"), ("payload", "payload"))
    }

    dependence_counter = bits(15, 0)
    qmd_group_id = bits(21, 16)
    add_to_head_of_qmd_group_linked_list = bits(22)
    qmd_type = bits(25, 23, enum=QmdType, default=QmdType.GRID_CTA)
    arrive_at_latch_valid = bits(28)
    wait_on_latch_valid = bits(29)
    require_scheduling_pcas = bits(30)
    tpc_disable_mask_valid = bits(31)
    circular_queue_size = bits(56, 32)
    inner_get = bits(94, 64)
    inner_overflow = bits(95)
    inner_put = bits(126, 96)
    inner_sticky_overflow = bits(127)
    hw_only_inner_get = bits(190, 160)
    hw_only_inner_put = bits(222, 192)
    hw_only_span_list_head_index = bits(253, 224)
    hw_only_span_list_head_index_valid = bits(254)
    hw_only_sked_next_qmd_pointer = bits(287, 256)
    hw_only_dependence_counter = bits(303, 288)
    hw_only_require_scheduling_pcas = bits(304)
    releases = repeated(range(320, 368, 16), RELEASE)
    dependent_qmds = repeated((368, 373), DEPENDENT_QMD)
    self_copy_on_completion = bits(378)
    demote_l2_evict_last = bits(379)
    disable_auto_invalidate = bits(380)
    correlation_id_internal = bits(381)
    cwd_membar_task_chasing_enable = bits(382)
    correlation_id = bits(415, 384)
    constant_buffer_states = repeated(range(416, 448, 4), CONSTANT_BUFFER_STATE)
    dependent_qmd0_pointer = bits(479, 448, unit=256)
    dependent_qmd1_pointer = bits(511, 480, unit=256)
    shader_local_memory_low_size = bits(535, 512)
    sass_version = bits(543, 536)
    shader_local_memory_high_size = bits(567, 544)
    api_visible_call_limit = bits(568, enum=ApiVisibleCallLimit, default=ApiVisibleCallLimit.NO_CHECK)
    sampler_index = bits(569, enum=SamplerIndex)
    constant_buffer_prefetch_pre_max_size = bits(575, 570, unit=256)
    qmd_minor_version = bits(579, 576)
    qmd_major_version = bits(583, 580, default=4)
    shared_memory_size = bits(601, 584)
    invalidate = placed(602, INVALIDATE)
    min_sm_config_shared_mem_size = bits(613, 608)
    max_sm_config_shared_mem_size = bits(619, 614)
    target_sm_config_shared_mem_size = bits(625, 620)
    shared_allocation_enable = bits(626)
    release_semaphores = repeated((640, 768, 896), RELEASE_SEMAPHORE)
    grid_width = bits(1055, 1024)
    grid_height = bits(1071, 1056)
    grid_depth = bits(1103, 1088)
    cwd_reference_count_delta_minus_one = bits(1127, 1120)
    cwd_reference_count_id = bits(1133, 1128)
    cwd_reference_count_incr_enable = bits(1134)
    cwd_reference_count_decr_enable = bits(1135)
    cwd_membar_type = bits(1137, 1136, enum=CwdMembarType)
    sequentially_run_ctas = bits(1138)
    cta_launch_queue = bits(1139)
    free_cta_slots_empty_sm = bits(1147, 1140)
    sync_domain_id = bits(1149, 1148)
    pre_exit_at_last_cta_launch = bits(1150)
    enable_program_pre_exit = bits(1151)
    cta_thread_dimension0 = bits(1167, 1152)
    cta_thread_dimension1 = bits(1183, 1168)
    cta_thread_dimension2 = bits(1199, 1184)
    register_count = bits(1208, 1200)
    barrier_count = bits(1215, 1211)
    program_address = bits(1272, 1216)
    occupancy_threshold_warp = bits(1287, 1280)
    occupancy_max_warp = bits(1295, 1288)
    occupancy_threshold_register = bits(1303, 1296)
    occupancy_max_register = bits(1311, 1304)
    occupancy_threshold_shared_mem = bits(1319, 1312)
    occupancy_max_shared_mem = bits(1327, 1320)
    program_prefetch_addr = bits(1392, 1344, unit=256)
    program_prefetch_size = bits(1401, 1393)
    program_prefetch_type = bits(1403, 1402, enum=ProgramPrefetchType)
    latch_acquire_invalidate_shader_data_cache = bits(1406)
    latch_acquire_invalidate_texture_data_cache = bits(1407)
    grid_width_resume = bits(1439, 1408)
    grid_height_resume = bits(1455, 1440)
    grid_depth_resume = bits(1471, 1456)
    arrive_at_latch_id = bits(1503, 1472)
    wait_on_latch_id = bits(1535, 1504)
    constant_buffers = repeated(range(1536, 2048, 64), CONSTANT_BUFFER)
    circular_queue_addr = bits(2087, 2048)
    circular_queue_entry_size = bits(2127, 2112)
    coalesce_waiting_period = bits(2135, 2128)
    queue_entries_per_cta_log2 = bits(2140, 2136)
    gpc_cga_width = bits(2149, 2144)
    gpc_cga_height = bits(2157, 2152)
    gpc_cga_depth = bits(2165, 2160)
    cga_cta_distribution_mode = bits(2207, enum=CgaCtaDistributionMode)
    gpu_cga_width = bits(2223, 2208)
    gpu_cga_height = bits(2239, 2224)
    gpu_cga_depth = bits(2255, 2240)
    debug_id = bits(2431, 2368)
    tpc_disable_masks = repeated(range(2432, 2560, 32), {"tpc_disable_mask_{i}": bits(31, 0)})
    outer_put = bits(3038, 3008)
    outer_overflow = bits(3039)
    outer_get = bits(3070, 3040)
    outer_sticky_overflow = bits(3071)
