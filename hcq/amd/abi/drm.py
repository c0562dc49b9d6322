"""The render node's own ioctls: facts of a GPU that the topology does not have, the speed of its counter above all.

In       fields by name
Out      the structures and requests of DRM_IOCTL_VERSION and DRM_AMDGPU_INFO
Next     hcq/amd/ioctl.py (who asks), hcq/emu/amd/render_node.py (who answers when there is no GPU)
Source   drm/drm.h: drm_version; drm/amdgpu_drm.h: drm_amdgpu_info, drm_amdgpu_info_device
"""

from hcq.layout import SparsePacket, bits
from hcq.system.ioctl_numbers import READ, WRITE, ioctl_number

ACCEL_WORKING, READ_MMR_REG, DEV_INFO = 0x00, 0x15, 0x16  # queries


class Version(SparsePacket, words=16):
    """drm_version: lengths are the room for a text, and come back as its whole length."""

    major = bits(31, 0)
    minor = bits(63, 32)
    patchlevel = bits(95, 64)
    name_len = bits(191, 128)
    name = bits(255, 192)
    date_len = bits(319, 256)
    date = bits(383, 320)
    desc_len = bits(447, 384)
    desc = bits(511, 448)


class Info(SparsePacket, words=8):
    """drm_amdgpu_info: where the answer goes, and what is asked."""

    return_pointer = bits(63, 0)
    return_size = bits(95, 64)
    query = bits(127, 96)
    mmr_offset = bits(159, 128)  # READ_MMR_REG
    mmr_count = bits(191, 160)
    mmr_instance = bits(223, 192)
    mmr_flags = bits(255, 224)


# drm_version, drm_copy_field: each text is cut to the room there is, and its whole length told (EFAULT)
VERSION_REQUEST = ioctl_number(READ | WRITE, "d", 0x00, 4 * Version.length_words)
# amdgpu_info_ioctl: room and a place for the answer, a query that it knows (EINVAL). READ_MMR_REG: engines and arrays
# that there are, at most 128 registers (EINVAL), each of which may be read (EFAULT)
INFO_REQUEST = ioctl_number(WRITE, "d", 0x45, 4 * Info.length_words)


class DeviceInfo(SparsePacket, words=110):
    """drm_amdgpu_info_device, up to the fields that only graphics needs: 440 bytes."""

    device_id = bits(31, 0)
    chip_rev = bits(63, 32)
    external_rev = bits(95, 64)
    pci_rev = bits(127, 96)
    family = bits(159, 128)
    num_shader_engines = bits(191, 160)
    num_shader_arrays_per_engine = bits(223, 192)
    gpu_counter_freq = bits(255, 224)  # kHz, which is ticks in a millisecond
    max_engine_clock = bits(319, 256)  # kHz
    max_memory_clock = bits(383, 320)  # kHz
    cu_active_number = bits(415, 384)
    cu_ao_mask = bits(447, 416)
    # cu_bitmap, 16 words, from bit 448
    enabled_rb_pipes_mask = bits(991, 960)
    num_rb_pipes = bits(1023, 992)
    num_hw_gfx_contexts = bits(1055, 1024)
    pcie_gen = bits(1087, 1056)
    ids_flags = bits(1151, 1088)
    virtual_address_offset = bits(1215, 1152)
    virtual_address_max = bits(1279, 1216)
    virtual_address_alignment = bits(1311, 1280)
    pte_fragment_size = bits(1343, 1312)
    gart_page_size = bits(1375, 1344)
    ce_ram_size = bits(1407, 1376)
    vram_type = bits(1439, 1408)
    vram_bit_width = bits(1471, 1440)
    vce_harvest_config = bits(1503, 1472)
    # gc_double_offchip_lds_buf, then buffers of graphics: 4 addresses and 4 sizes
    wave_front_size = bits(1951, 1920)
    num_shader_visible_vgprs = bits(1983, 1952)
    num_cu_per_sh = bits(2015, 1984)
    num_tcc_blocks = bits(2047, 2016)
    gs_vgt_table_depth = bits(2079, 2048)
    gs_prim_buffer_depth = bits(2111, 2080)
    max_gs_waves_per_vgt = bits(2143, 2112)
    pcie_num_lanes = bits(2175, 2144)
    # cu_ao_bitmap, 16 words, from bit 2176
    high_va_offset = bits(2751, 2688)
    high_va_max = bits(2815, 2752)
