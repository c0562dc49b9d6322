"""QMD 3.0: the launch description that Ampere and Ada read, 256 bytes.

In       fields by name; addresses and sizes in bytes, the shifts are the fields' units
Out      QmdV3
Changes  nothing
Next     qmd.py (which version a GPU takes, names that all versions share)
Source   clc6c0qmd.h, clc7c0qmd.h, clc9c0qmd.h: V03_00; fields that only GA100 has are left out
"""

from __future__ import annotations

from typing import ClassVar

from hcq.layout import bits, placed, repeated
from hcq.nv.abi.compute_methods import LaunchDmaReductionFormat, ReductionOp, StructureSize, TrapType
from hcq.nv.abi.qmd_fields import (
    DEPENDENT_QMD,
    INVALIDATE,
    ApiVisibleCallLimit,
    CwdMembarType,
    MembarType,
    ProgramPrefetchType,
    Qmd,
    SamplerIndex,
)


class QmdV3(Qmd, words=64):
    """V03_00"""

    version: ClassVar[int] = 3
    renamed: ClassVar[dict[str, str]] = {
        "grid_width": "cta_raster_width",
        "grid_height": "cta_raster_height",
        "grid_depth": "cta_raster_depth",
        "register_count": "register_count_v",
        "qmd_minor_version": "qmd_version",
    }

    outer_put = bits(30, 0)
    outer_overflow = bits(31)
    outer_get = bits(62, 32)
    outer_sticky_overflow = bits(63)
    inner_get = bits(94, 64)
    inner_overflow = bits(95)
    inner_put = bits(126, 96)
    inner_sticky_overflow = bits(127)
    qmd_group_id = bits(133, 128)
    sm_global_caching_enable = bits(134, default=1)
    run_cta_in_one_sm_partition = bits(135)
    is_queue = bits(136)
    add_to_head_of_qmd_group_linked_list = bits(137)
    require_scheduling_pcas = bits(140)
    dependence_counter = bits(157, 142)
    self_copy_on_completion = bits(158)
    circular_queue_size = bits(184, 160)
    demote_l2_evict_last = bits(185)
    invalidate = placed(186, INVALIDATE)
    cta_raster_width_resume = bits(223, 192)
    cta_raster_height_resume = bits(239, 224)
    cta_raster_depth_resume = bits(255, 240)
    program_prefetch_addr_lower_shifted = bits(287, 256)
    circular_queue_addr = bits(327, 288)
    circular_queue_entry_size = bits(351, 336)
    cwd_reference_count_id = bits(357, 352)
    cwd_reference_count_delta_minus_one = bits(365, 358)
    cwd_reference_count_incr_enable = bits(367)
    cwd_membar_type = bits(369, 368, enum=CwdMembarType)
    sequentially_run_ctas = bits(370)
    cwd_reference_count_decr_enable = bits(371)
    sm_disable_mask_ext_lower = bits(377, 372)
    api_visible_call_limit = bits(378, enum=ApiVisibleCallLimit, default=ApiVisibleCallLimit.NO_CHECK)
    sm_disable_mask_ext_upper = bits(380, 379)
    sampler_index = bits(382, enum=SamplerIndex)
    disable_auto_invalidate = bits(383)
    cta_raster_width = bits(415, 384)
    cta_raster_height = bits(431, 416)
    cta_raster_depth = bits(463, 448)
    dependent_qmd0_pointer = bits(511, 480, unit=256)
    dependent_qmds = repeated((512, 517), DEPENDENT_QMD)
    coalesce_waiting_period = bits(529, 522)
    queue_entries_per_cta_log2 = bits(534, 530)
    occupancy_threshold_shared_mem = bits(542, 535)
    cta_launch_queue = bits(543)
    shared_memory_size = bits(561, 544)
    min_sm_config_shared_mem_size = bits(567, 562)
    max_sm_config_shared_mem_size = bits(574, 569)
    qmd_version = bits(579, 576)
    qmd_major_version = bits(583, 580, default=3)
    occupancy_max_shared_mem = bits(591, 584)
    cta_thread_dimension0 = bits(607, 592)
    cta_thread_dimension1 = bits(623, 608)
    cta_thread_dimension2 = bits(639, 624)
    constant_buffer_states = repeated(range(640, 648), {"constant_buffer_valid_{i}": bits(0)})
    register_count_v = bits(656, 648)
    target_sm_config_shared_mem_size = bits(662, 657)
    shared_allocation_enable = bits(663)
    free_cta_slots_empty_sm = bits(671, 664)
    sm_disable_mask = bits(735, 672)
    shader_local_memory_low_size = bits(759, 736)
    barrier_count = bits(767, 763)
    releases = repeated(
        (768, 896, 1664),
        {
            "release{i}_address": bits(39, 0),
            "release{i}_membar_type": bits(51, enum=MembarType),
            "release{i}_reduction_op": bits(54, 52, enum=ReductionOp),
            "release{i}_enable": bits(55),
            "release{i}_reduction_format": bits(57, 56, enum=LaunchDmaReductionFormat),
            "release{i}_reduction_enable": bits(58),
            "release{i}_trap_type": bits(60, 59, enum=TrapType),
            "release{i}_payload64b": bits(61),
            "release{i}_structure_size": bits(63, 62, enum=StructureSize),
            "release{i}_payload": bits(127, 64),
        },
    )
    constant_buffers = repeated(
        range(1024, 1536, 64),
        {
            "constant_buffer_addr_{i}": bits(48, 0),
            "constant_buffer_prefetch_post_{i}": bits(49),
            "constant_buffer_invalidate_{i}": bits(50),
            "constant_buffer_size_{i}": bits(63, 51, unit=16),
        },
    )
    program_address = bits(1584, 1536)
    shader_local_memory_high_size = bits(1623, 1600)
    program_prefetch_addr_upper_shifted = bits(1640, 1632)
    program_prefetch_size = bits(1649, 1641)
    program_prefetch_type = bits(1651, 1650, enum=ProgramPrefetchType)
    sass_version = bits(1663, 1656)
    occupancy_threshold_warp = bits(1799, 1792)
    occupancy_max_warp = bits(1807, 1800)
    occupancy_threshold_register = bits(1815, 1808)
    occupancy_max_register = bits(1823, 1816)
    hw_only_inner_get = bits(1854, 1824)
    hw_only_require_scheduling_pcas = bits(1855)
    hw_only_inner_put = bits(1886, 1856)
    hw_only_span_list_head_index = bits(1917, 1888)
    hw_only_span_list_head_index_valid = bits(1919)
    hw_only_sked_next_qmd_pointer = bits(1951, 1920)
    hw_only_dependence_counter = bits(1967, 1952)
    debug_id_upper = bits(2015, 1984)
    debug_id_lower = bits(2047, 2016)
