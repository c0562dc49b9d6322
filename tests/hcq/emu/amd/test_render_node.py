"""What libdrm and libhsakmt read of an emulated GPU: the render node's ioctls, and sysfs."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from hcq.amd.abi import drm
from hcq.amd.topology import ROOT, properties
from hcq.emu.amd.kfd import emulate
from hcq.emu.amd.spec import CHIPS, SIZES
from hcq.emu.machine import resolved
from hcq.errors import DriverError, UsageError
from hcq.system import native
from tests.hcq.emu.amd.test_kfd import Process


def info(one: Process, query: int, room: int, **fields: int) -> bytes:
    """The answer to a DRM_AMDGPU_INFO."""
    answer = bytearray(room)
    asked = drm.Info(
        return_pointer=native.address_of(answer) if room else 0, return_size=room, query=query, **fields
    )
    one.port.ioctl(one.drm_fd, drm.INFO_REQUEST, bytearray(asked.to_bytes()))
    return bytes(answer)


def test_the_driver_says_its_name_as_far_as_there_is_room():
    one = Process()
    name = bytearray(3)
    asked = drm.Version(name=native.address_of(name), name_len=3)
    argument = bytearray(asked.to_bytes())
    one.port.ioctl(one.drm_fd, drm.VERSION_REQUEST, argument)
    found = drm.Version.decode(memoryview(argument).cast("I"))
    assert name == b"amd"
    assert (found.major, found.name_len, found.desc_len) == (3, 6, 7)


@pytest.mark.parametrize(
    ("arch", "family"), [("gfx90a", 141), ("gfx1030", 143), ("gfx1100", 145), ("gfx1201", 152)]
)
def test_libdrm_finds_a_gpu_that_works_of_the_right_family(arch: str, family: int):
    one = Process(f"amd:{arch}")
    assert int.from_bytes(info(one, drm.ACCEL_WORKING, 4), "little") == 1
    found = drm.DeviceInfo.decode(memoryview(bytearray(info(one, drm.DEV_INFO, 440))).cast("I"))
    size = SIZES[arch]
    assert (found.family, found.device_id, found.cu_active_number) == (family, size.device_id, size.units)
    assert (found.num_shader_engines, found.num_shader_arrays_per_engine) == (size.engines, size.arrays)
    assert found.gpu_counter_freq == 100_000


def test_an_answer_is_cut_to_the_room_there_is_and_no_room_is_refused():
    one = Process()
    assert len(info(one, drm.DEV_INFO, 8)) == 8
    with pytest.raises(DriverError) as error:
        info(one, drm.DEV_INFO, 0)
    assert error.value.errno == errno.EINVAL


def test_one_register_may_be_read_and_no_other():
    one = Process()
    fields = {"mmr_count": 1, "mmr_instance": 0xFFFFFFFF}
    assert any(info(one, drm.READ_MMR_REG, 4, mmr_offset=0x263E, **fields))
    with pytest.raises(DriverError) as error:
        info(one, drm.READ_MMR_REG, 4, mmr_offset=0x2000, **fields)
    assert error.value.errno == errno.EFAULT


# ------------------------------------------------------------ sysfs


@pytest.mark.parametrize("arch", CHIPS)
def test_a_node_has_as_many_files_of_each_kind_as_its_properties_say(arch: str):
    """libhsakmt fails when one is missing, and rocminfo stops at a GPU without caches."""
    files = emulate([f"amd:{arch}", "amd:gfx1100"]).files()
    for node in range(3):
        folder = f"{ROOT}/nodes/{node}"
        facts = properties(files[f"{folder}/properties"])
        for kind in ("mem_banks", "caches", "io_links"):
            found = [path for path in files if path.startswith(f"{folder}/{kind}/")]
            assert len(found) == facts[f"{kind}_count"], (node, kind)
    gpu = properties(files[f"{ROOT}/nodes/1/properties"])
    assert gpu["capability"] >> 12 & 3 == 2  # doorbells of 64 bits: else AMD's runtime stores 32
    assert gpu["caches_count"]
    assert gpu["unique_id"] != properties(files[f"{ROOT}/nodes/2/properties"])["unique_id"]


def test_the_host_has_a_link_to_a_gpu_if_it_sees_its_memory():
    """kfd_parse_subtype_iolink: with the link AMD's runtime copies with the host's own stores, and would fault."""
    for word, links in (("amd:gfx1100", 1), ("amd:gfx1100:private", 0)):
        facts = properties(emulate([word]).files()[f"{ROOT}/nodes/0/properties"])
        assert facts["io_links_count"] == links


def test_libdrm_tells_gpus_apart_by_their_primary_nodes():
    kernel = emulate(["amd:gfx1100", "amd:gfx942"])
    for index, minor in enumerate((128, 129)):
        links = {path: what for path, what in kernel.files().items() if isinstance(what, str)}
        folder, _ = resolved(f"/sys/dev/char/226:{minor}/device/drm", links)
        found = {path.split("/")[7] for path in kernel.files() if path.startswith(folder + "/")}
        assert found == {f"card{index}", f"renderD{minor}"}
    assert {node.path for node in kernel.nodes()} >= {
        "/dev/dri/card0",
        "/dev/dri/card1",
        "/dev/dri/renderD129",
    }


@pytest.mark.parametrize(
    ("word", "units"), [("gfx1100", 96), ("gfx942", 152), ("gfx1100:cu=8", 8), ("gfx942:cu=8", 32)]
)
def test_a_gpu_is_as_large_as_it_is_sold_or_as_the_word_says(word: str, units: int):
    facts: Any = properties(emulate([f"amd:{word}"]).files()[f"{ROOT}/nodes/1/properties"])
    assert facts["simd_count"] // facts["simd_per_cu"] == units
    per_xcc = facts["array_count"] // facts["num_xcc"] * facts["cu_per_simd_array"]
    assert per_xcc >= units // facts["num_xcc"]


@pytest.mark.parametrize("size", ["3", "0", "130", "many", ""])
def test_a_size_that_no_gpu_has_is_refused_with_what_would_do(size: str):
    with pytest.raises(UsageError, match=r"cu=NUMBER .*even, 2 to 128"):
        emulate([f"amd:gfx1100:cu={size}"])
