"""Launch descriptions: each version puts each value where its header has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.nv.abi import qmd
from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.abi.qmd import Qmd, QmdV3, QmdV4, QmdV5

VERSIONS = [QmdV3, QmdV4, QmdV5]
# program at 0x200400000, constant bank 0 at 0x200600040, grid 7x3x2, block 128x2x1: computed from the class headers by
# a second encoder; they have not been run on a GPU. Word index -> value, all other words are zero.
VECTORS = [
    (
        QmdV4,
        {
            "qmd_major_version": 0x4,
            "qmd_minor_version": 0x0,
            "qmd_type": 0x2,
            "qmd_group_id": 0x3F,
            "api_visible_call_limit": 0x1,
            "sampler_index": 0x0,
            "cwd_membar_type": 0x1,
            "invalidate_texture_header_cache": 0x1,
            "invalidate_texture_sampler_cache": 0x1,
            "invalidate_texture_data_cache": 0x1,
            "invalidate_shader_data_cache": 0x1,
            "grid_width": 0x7,
            "grid_height": 0x3,
            "grid_depth": 0x2,
            "cta_thread_dimension0": 0x80,
            "cta_thread_dimension1": 0x2,
            "cta_thread_dimension2": 0x1,
            "register_count": 0x28,
            "barrier_count": 0x1,
            "program_address": 0x200400000,
            "shared_memory_size": 0x800,
            "min_sm_config_shared_mem_size": 0x3,
            "target_sm_config_shared_mem_size": 0x9,
            "max_sm_config_shared_mem_size": 0x3A,
            "shader_local_memory_high_size": 0x240,
            "sass_version": 0x90,
            "constant_buffer_addr_0": 0x200600040,
            "constant_buffer_size_0": 0x300,
            "constant_buffer_valid_0": 0x1,
            "constant_buffer_invalidate_0": 0x1,
            "constant_buffer_addr_3": 0x200601040,
            "constant_buffer_size_3": 0x40,
            "constant_buffer_valid_3": 0x1,
        },
        {
            0: 0x13F0000,
            13: 0x1009,
            16: 0x90000000,
            17: 0x1000240,
            18: 0x3C080040,
            19: 0x9E83,
            32: 0x7,
            33: 0x3,
            34: 0x2,
            35: 0x10000,
            36: 0x20080,
            37: 0x8280001,
            38: 0x400000,
            39: 0x2,
            48: 0x8018001,
            49: 0x1800000,
            54: 0x8018041,
            55: 0x200000,
        },
    ),
    (
        QmdV4,
        {
            "qmd_major_version": 0x4,
            "qmd_type": 0x2,
            "api_visible_call_limit": 0x1,
            "grid_width": 0x7,
            "grid_height": 0x3,
            "grid_depth": 0x2,
            "cta_thread_dimension0": 0x80,
            "cta_thread_dimension1": 0x2,
            "cta_thread_dimension2": 0x1,
            "register_count": 0x28,
            "barrier_count": 0x1,
            "program_address": 0x200400000,
            "shared_memory_size": 0x800,
            "min_sm_config_shared_mem_size": 0x3,
            "target_sm_config_shared_mem_size": 0x9,
            "max_sm_config_shared_mem_size": 0x3A,
            "constant_buffer_addr_0": 0x200600040,
            "constant_buffer_size_0": 0x300,
            "constant_buffer_valid_0": 0x1,
        },
        {
            0: 0x1000000,
            13: 0x1,
            17: 0x1000000,
            18: 0x80040,
            19: 0x9E83,
            32: 0x7,
            33: 0x3,
            34: 0x2,
            36: 0x20080,
            37: 0x8280001,
            38: 0x400000,
            39: 0x2,
            48: 0x8018001,
            49: 0x1800000,
        },
    ),
    (
        QmdV3,
        {
            "qmd_major_version": 0x3,
            "qmd_group_id": 0x3F,
            "sm_global_caching_enable": 0x1,
            "api_visible_call_limit": 0x1,
            "sampler_index": 0x1,
            "cwd_membar_type": 0x1,
            "invalidate_texture_header_cache": 0x1,
            "invalidate_texture_sampler_cache": 0x1,
            "invalidate_texture_data_cache": 0x1,
            "invalidate_shader_data_cache": 0x1,
            "cta_raster_width": 0x7,
            "cta_raster_height": 0x3,
            "cta_raster_depth": 0x2,
            "cta_thread_dimension0": 0x80,
            "cta_thread_dimension1": 0x2,
            "cta_thread_dimension2": 0x1,
            "register_count_v": 0x28,
            "barrier_count": 0x1,
            "program_address": 0x200400000,
            "shared_memory_size": 0x800,
            "min_sm_config_shared_mem_size": 0x3,
            "target_sm_config_shared_mem_size": 0x9,
            "max_sm_config_shared_mem_size": 0x1A,
            "shader_local_memory_high_size": 0x240,
            "sass_version": 0x86,
            "constant_buffer_addr_0": 0x200600040,
            "constant_buffer_size_0": 0x300,
            "constant_buffer_valid_0": 0x1,
            "constant_buffer_invalidate_0": 0x1,
        },
        {
            4: 0x7F,
            5: 0x3C000000,
            11: 0x44010000,
            12: 0x7,
            13: 0x3,
            14: 0x2,
            17: 0x340C0800,
            18: 0x800030,
            19: 0x10002,
            20: 0x122801,
            23: 0x8000000,
            32: 0x600040,
            33: 0x1840002,
            48: 0x400000,
            49: 0x2,
            50: 0x240,
            51: 0x86000000,
        },
    ),
    (
        QmdV5,
        {
            "qmd_major_version": 0x5,
            "qmd_type": 0x2,
            "qmd_group_id": 0x3F,
            "api_visible_call_limit": 0x1,
            "sampler_index": 0x1,
            "cwd_membar_type": 0x1,
            "invalidate_texture_header_cache": 0x1,
            "invalidate_texture_sampler_cache": 0x1,
            "invalidate_texture_data_cache": 0x1,
            "invalidate_shader_data_cache": 0x1,
            "grid_width": 0x7,
            "grid_height": 0x3,
            "grid_depth": 0x2,
            "cta_thread_dimension0": 0x80,
            "cta_thread_dimension1": 0x2,
            "cta_thread_dimension2": 0x1,
            "register_count": 0x28,
            "barrier_count": 0x1,
            "program_address": 0x200400000,
            "shared_memory_size": 0x800,
            "min_sm_config_shared_mem_size": 0x3,
            "target_sm_config_shared_mem_size": 0x9,
            "max_sm_config_shared_mem_size": 0x1A,
            "shader_local_memory_high_size": 0x240,
            "constant_buffer_addr_0": 0x200600040,
            "constant_buffer_size_0": 0x480,
            "constant_buffer_valid_0": 0x1,
            "constant_buffer_invalidate_0": 0x1,
        },
        {
            4: 0x13F0000,
            14: 0xF500300,
            19: 0x10000,
            32: 0x20040000,
            34: 0x20080,
            35: 0x22801,
            36: 0x4B41810,
            37: 0x240000,
            39: 0x7,
            40: 0x3,
            41: 0x2,
            42: 0x8018001,
            43: 0x2400000,
            58: 0x9,
        },
    ),
]


@pytest.mark.parametrize(("version", "values", "expected"), VECTORS)
def test_a_launch_is_the_words_a_second_encoder_makes(
    version: type[Qmd], values: dict[str, int], expected: dict[int, int]
) -> None:
    words = version(**values).words
    assert {index: word for index, word in enumerate(words) if word} == expected


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_every_version_decodes_to_what_was_encoded(version: type[Qmd], data: st.DataObject) -> None:
    seed = data.draw(st.randoms(use_true_random=False))
    values = {name: seed.getrandbits(field.width) * field.unit for name, field in version.fields.items()}
    again = version.decode(version(**values).words)
    assert again.values == values
    assert not again.unclaimed


@pytest.mark.parametrize("version", VERSIONS)
def test_shared_names_reach_each_versions_own_fields(version: type[Qmd]) -> None:
    values = {
        "grid_width": 7,
        "grid_height": 3,
        "grid_depth": 2,
        "cta_thread_dimension0": 128,
        "register_count": 40,
        "barrier_count": 1,
        "program_address": 0x2_0040_0000,
        "shared_memory_size": 2048,
        "shader_local_memory_high_size": 0x240,
        "constant_buffer_addr_0": 0x2_0060_0040,
        "constant_buffer_size_0": 0x300,
        "constant_buffer_valid_0": 1,
        "release0_address": 0x2_0000_0010,
        "release0_payload": 5,
        "dependent_qmd0_pointer": 0x2_0000_0100,
        "qmd_minor_version": 0,
    }
    made = version.launch(**values)
    assert {name: made.value(name) for name in values} == values
    assert qmd.decode(made.words) == made
    assert set(version.renamed.values()) <= set(version.fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_a_version_has_not_is_refused(version: type[Qmd]) -> None:
    with pytest.raises(UsageError, match="has no field 'grid_colour'"):
        version.launch(grid_colour=1)


def test_a_constant_bank_that_is_not_aligned_is_refused() -> None:
    with pytest.raises(UsageError, match="not a multiple of 64"):
        QmdV4(constant_buffer_addr_0=0x2_0060_0020)
    with pytest.raises(UsageError, match="not a multiple of 128"):
        QmdV5(shared_memory_size=100)


def test_each_architecture_has_its_version() -> None:
    taken = {arch: qmd.qmd_for(engines.compute).version for arch, engines in ARCHITECTURES.items()}
    assert taken == {"sm_80": 3, "sm_86": 3, "sm_89": 3, "sm_90": 4, "sm_100": 5, "sm_120": 5}
    with pytest.raises(UsageError, match="Known: 0xc6c0 AMPERE_COMPUTE_A"):
        qmd.qmd_for(0xC5C0)


def test_words_that_state_no_version_are_no_qmd() -> None:
    assert qmd.decode([0] * 96) is None


def test_the_largest_carve_outs_have_the_values_that_headers_give() -> None:
    assert [qmd.sm_config(size) for size in (164, 100, 228)] == [0x2A, 0x1A, 0x3A]
