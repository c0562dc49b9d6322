"""The emulated resource manager refuses what the open kernel module refuses, with the same errno or status."""

from __future__ import annotations

import errno
import struct

import numpy as np
import pytest

from hcq.emu.port import port_for
from hcq.errors import DriverError, UsageError
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.status import NvStatus as S
from hcq.nv.abi.structures import structure
from hcq.system import native
from hcq.system.port import MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE
from tests.hcq.emu.nv.raw import ENTRIES, USERD_AT, Raw, refusal

ALL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


# ------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("nv", "unknown architecture ''"),
        ("nv:sm_75", "unknown architecture 'sm_75'. Known: sm_80"),
        ("nv:sm_90:fast", "unknown option 'fast'. Options: seed=NUMBER"),
        ("nv:sm_90:seed=x", "unknown option 'seed=x'"),
        ("nv:sm_90:steps=0", "unknown option 'steps=0'"),
        ("nv:sm_90:driver=new", "unknown option 'driver=new'"),
    ],
)
def test_a_word_that_means_nothing_is_refused_with_what_does(word: str, says: str):
    with pytest.raises(UsageError, match=says):
        port_for((word,))


def test_gpus_of_two_drivers_cannot_be_in_one_machine():
    with pytest.raises(UsageError, match=r"the drivers 550.1 and 580.142; there is only one"):
        port_for(("nv:sm_90:driver=550.1", "nv:sm_90:driver=580.142"))


@pytest.mark.parametrize(
    ("word", "first"), [("nv:sm_100:driver=555.58.02", 560), ("nv:sm_120:driver=565.57.01", 570)]
)
def test_a_driver_that_is_older_than_the_gpu_does_not_know_it(word: str, first: int):
    with pytest.raises(UsageError, match=f"does not know such GPUs: {first} is the first that does"):
        port_for((word,))


# ------------------------------------------------------------ the machine as it shows itself


def test_the_version_is_where_the_driver_writes_it():
    assert b"x86_64  580.142  Release" in Raw().port.read_file("/proc/driver/nvidia/version")
    older = Raw("nv:sm_90:driver=570.86.15")
    assert b"x86_64  570.86.15  Release" in older.port.read_file("/proc/driver/nvidia/version")
    with pytest.raises(DriverError) as error:
        older.port.read_file("/proc/driver/nvidia/params")
    assert error.value.errno == errno.ENOENT


def ask_version(raw: Raw, command: int, text: str) -> tuple[int, int, str]:
    """errno, the reply, and the version that came back."""
    layout = raw.abi.of(abi.CHECK_VERSION_STR)
    given = layout(cmd=command, versionstring=int.from_bytes(text.encode(), "little"))
    argument, number = bytearray(given.to_bytes()), 0
    try:
        raw.port.ioctl(raw.ctl, abi.CHECK_VERSION_STR.request, argument)
    except DriverError as error:
        number = int(error.errno or 0)
    got = layout.from_bytes(bytes(argument))
    return number, got.reply, got.versionstring.to_bytes(64, "little").partition(b"\0")[0].decode()


def test_a_version_is_asked_for_or_compared_and_the_question_is_always_recognised():
    raw = Raw("nv:sm_90:driver=570.86.15").open_client()
    strict, relaxed, query = 0, ord("1"), ord("2")
    assert ask_version(raw, query, "") == (0, 1, "570.86.15")
    assert ask_version(raw, strict, "570.86.15") == (0, 1, "570.86.15")
    assert ask_version(raw, relaxed, "570.1") == (0, 1, "570.1")
    assert ask_version(raw, strict, "570.1") == (errno.EINVAL, 1, "570.86.15")
    assert ask_version(raw, relaxed, "575.1") == (errno.EINVAL, 1, "570.86.15")
    assert "API mismatch: the client has the version 575.1" in raw.port.kernel_log()[-1]


def test_the_older_question_for_the_version_takes_three_buffers_or_says_how_long_they_are():
    raw = Raw().open_client()
    assert raw.control(raw.client, 0x101).sizeofstrings > 60
    texts = [bytearray(256) for _ in range(3)]
    names = ("pdriverversionbuffer", "pversionbuffer", "ptitlebuffer")
    where = {name: native.address_of(text) for name, text in zip(names, texts)}
    assert refusal(raw.control, raw.client, 0x101, sizeofstrings=16, **where) == S.NV_ERR_INVALID_PARAM_STRUCT
    raw.control(raw.client, 0x101, sizeofstrings=256, **where)
    assert texts[0].partition(b"\0")[0] == b"580.142"


def test_attaching_by_a_control_attaches_nothing():
    """On Linux the node of a GPU has to be opened; the control says whether such GPUs exist."""
    raw = Raw("nv:sm_90", "nv:sm_90").open_client()
    raw.control(raw.client, 0x215, gpuids=0xFFFF)  # all of them
    raw.control(raw.client, 0x215, gpuids=0x200 | 0xFFFFFFFF << 32)
    assert (
        refusal(raw.control, raw.client, 0x215, gpuids=0x900 | 0xFFFFFFFF << 32) == S.NV_ERR_INVALID_ARGUMENT
    )
    raw.control(raw.client, 0x205, gpuid=0x100)
    assert refusal(raw.control, raw.client, 0x205, gpuid=0x200) != S.NV_OK


def test_a_part_lacks_tpcs_that_its_design_has():
    """What LITTER values multiply to is the design's; the masks say what is there."""
    raw = Raw().open_device()
    pairs = bytearray(struct.pack("<6I", 20, 0, 23, 0, 32, 0))
    raw.control(raw.subdevice, 0x20801201, grinfolistsize=3, grinfolist=native.address_of(pairs))
    gpcs, tpcs, _ = struct.unpack("<6I", pairs)[1::2]
    masks = [raw.control(raw.subdevice, 0x2080122B, gpcid=gpc).tpcmask for gpc in range(gpcs + 2)]
    assert 0 < sum(mask.bit_count() for mask in masks) < gpcs * tpcs
    assert masks[gpcs:] == [0, 0]  # a GPC that is not there has none
    assert refusal(raw.control, raw.subdevice, 0x20801201, grinfolistsize=1) == S.NV_ERR_INVALID_ARGUMENT


def test_cards_are_listed_and_minors_are_not_ordinals():
    raw = Raw("nv:sm_80", "nv:sm_90")
    ctl = raw.port.open("/dev/nvidiactl")
    argument = bytearray(32 * 72)
    raw.port.ioctl(ctl, abi.CARD_INFO.request, argument)
    cards = [structure("CardInfoArgs").from_bytes(argument[72 * n : 72 * n + 72]) for n in range(32)]
    assert [card.valid for card in cards[:3]] == [1, 1, 0]
    assert [card.minor_number for card in cards[:2]] == [1, 0]
    assert len({card.gpu_id for card in cards[:2]}) == 2
    with pytest.raises(DriverError):
        raw.port.open("/dev/nvidia2")
    # of a length that is no multiple of an entry the module takes the whole entries, and leaves the rest as it is
    longer = bytearray(b"\xff" * (2 * 72 + 40))
    raw.port.ioctl(ctl, abi.CARD_INFO.request & ~(0x3FFF << 16) | len(longer) << 16, longer)
    assert longer == argument[: 2 * 72] + b"\xff" * 40


@pytest.mark.parametrize("arch", ALL)
def test_the_class_list_has_one_compute_and_one_copy_class(arch: str):
    raw = Raw(f"nv:{arch}").open_device()
    found = raw.control(raw.device, 0x800292)
    classes = struct.unpack(
        f"<{found.numclasses}I", found.classlist.to_bytes(800, "little")[: 4 * found.numclasses]
    )
    names = [ClassId(each).name for each in classes if each in ClassId._value2member_map_]
    assert [name for name in names if "COMPUTE" in name] == [raw.engines.compute.name]
    assert [name for name in names if "DMA_COPY" in name] == [raw.engines.copy.name]
    assert raw.engines.gpfifo in classes and raw.engines.usermode in classes


def test_facts_of_the_graphics_engine_come_in_the_callers_list():
    raw = Raw("nv:sm_90").open_device()
    pairs = bytearray(struct.pack("<8I", 12, 0, 13, 0, 20, 0, 32, 0))
    raw.control(raw.subdevice, 0x20801201, grinfolistsize=4, grinfolist=native.address_of(pairs))
    assert struct.unpack("<8I", pairs)[1::2] == (0x900, 64, 2, 2)


def test_video_memory_is_counted():
    raw = Raw().open_device()

    def free() -> int:
        made = raw.control(raw.subdevice, 0x20801303, fbinfolistsize=1, fbinfolist=22)
        return int(made.fbinfolist) >> 32

    before = free()
    memory = raw.allocate(1 << 20, is_video=True)
    assert before - free() == 1 << 10
    raw.free(memory)
    assert free() == before
    assert refusal(raw.allocate, 1 << 40, is_video=True) == S.NV_ERR_NO_MEMORY


def test_the_gpus_clock_is_the_time_of_day_and_only_rises():
    raw = Raw().open_channel()
    first = raw.control(raw.subdevice, 0x20800403).time_nsec
    found = raw.control(raw.subdevice, 0x20800406, samplecount=2)
    cpu, gpu = struct.unpack("<QQ", found.samples.to_bytes(256, "little")[:16])
    assert abs(cpu - gpu) < 10**9
    assert first <= gpu <= raw.control(raw.subdevice, 0x20800403).time_nsec


# ------------------------------------------------------------ malformed calls are errnos


def test_the_size_of_a_structure_is_checked_to_the_byte():
    raw = Raw().open_client()
    for size in (47, 49, 44):
        request = 3 << 30 | size << 16 | ord("F") << 8 | 0x2B
        with pytest.raises(DriverError) as error:
            raw.port.ioctl(raw.ctl, request, bytearray(64))
        assert error.value.errno == errno.EINVAL


def test_numbers_that_do_not_exist_and_other_types_are_einval():
    raw = Raw().open_client()
    for request in (0xC00446FF, 0xC0304B2B, 0x5401):
        with pytest.raises(DriverError) as error:
            raw.port.ioctl(raw.ctl, request, bytearray(64))
        assert error.value.errno == errno.EINVAL


def test_an_argument_shorter_than_the_request_says_is_efault():
    raw = Raw().open_client()
    with pytest.raises(DriverError) as error:
        raw.port.ioctl(raw.ctl, abi.RM_ALLOC.request, bytearray(40))
    assert error.value.errno == errno.EFAULT


def test_each_call_belongs_on_one_kind_of_node():
    raw = Raw().open_client()
    assert refusal(raw.call, raw.fd, abi.RM_FREE, hroot=raw.client, hobjectold=raw.client) == errno.EINVAL
    assert refusal(raw.call, raw.ctl, abi.REGISTER_FD, ctl_fd=raw.ctl) == errno.EINVAL
    fields = {"hroot": raw.client, "hobjectparent": raw.client}
    assert refusal(raw.call, raw.fd, abi.RM_ALLOC, hclass=ClassId.NV01_DEVICE_0, **fields) == errno.EINVAL
    # but events may be made there; which they are is answered, here that there are none
    event = ClassId.NV01_EVENT_OS_EVENT
    assert refusal(raw.call, raw.fd, abi.RM_ALLOC, hclass=event, **fields) == S.NV_ERR_INVALID_CLASS
    assert refusal(raw.call, raw.ctl, abi.RM_ALLOC_MEMORY, hroot=raw.client) == errno.EINVAL


def test_a_file_is_registered_once_and_with_a_control_file():
    raw = Raw().open_client()
    assert refusal(raw.call, raw.fd, abi.REGISTER_FD, ctl_fd=raw.ctl) == errno.EINVAL
    fresh = raw.port.open(raw.node)
    assert refusal(raw.call, fresh, abi.REGISTER_FD, ctl_fd=raw.fd) == errno.EINVAL


def test_the_short_form_of_an_allocation_is_told_apart_by_its_size():
    raw = Raw().open_client()
    argument = bytearray(struct.pack("<4IQII", raw.client, raw.client, 0x5C000001, 0x80, 0, 0, 0))
    raw.port.ioctl(raw.ctl, 3 << 30 | 32 << 16 | ord("F") << 8 | 0x2B, argument)
    handle, class_id, _, _, status = struct.unpack("<IIQII", argument[8:])
    assert (handle, class_id, status) == (0x5C000001, 0x80, 0)


# ------------------------------------------------------------ the tree of objects


def test_a_clients_handle_is_no_other_files():
    raw = Raw().open_device()
    other = raw.port.open("/dev/nvidiactl")
    fields = {"hroot": raw.client, "hobjectparent": raw.client, "hclass": 0x80}
    assert refusal(raw.call, other, abi.RM_ALLOC, **fields) == S.NV_ERR_INVALID_CLIENT
    assert refusal(raw.call, raw.ctl, abi.RM_ALLOC, **{**fields, "hroot": 7}) == S.NV_ERR_INVALID_CLIENT


def test_an_object_needs_a_parent_of_the_right_kind():
    raw = Raw().open_device()
    assert refusal(raw.alloc, 0x2080, 0x1234, "SubdeviceAlloc") == S.NV_ERR_INVALID_OBJECT_PARENT
    assert refusal(raw.alloc, 0x2080, raw.client, "SubdeviceAlloc") == S.NV_ERR_INVALID_OBJECT_PARENT
    assert refusal(raw.alloc, raw.engines.usermode, raw.device) == S.NV_ERR_INVALID_OBJECT_PARENT
    assert refusal(raw.alloc, raw.engines.compute, raw.device) == S.NV_ERR_INVALID_OBJECT_PARENT


def test_a_class_that_is_unknown_or_not_on_this_gpu_is_refused():
    raw = Raw("nv:sm_80").open_device()
    assert refusal(raw.alloc, 0x1234, raw.device) == S.NV_ERR_INVALID_CLASS
    assert refusal(raw.alloc, ClassId.HOPPER_USERMODE_A, raw.subdevice) == S.NV_ERR_INVALID_CLASS


def test_a_handle_is_given_or_chosen_and_never_twice():
    raw = Raw().open_device()
    made = raw.alloc(0x2080, raw.device, "SubdeviceAlloc", handle=0x5C000003)
    assert made == 0x5C000003
    again = refusal(raw.alloc, 0x2080, raw.device, "SubdeviceAlloc", handle=0x5C000003)
    assert again == S.NV_ERR_INVALID_OBJECT_NEW


def test_parameters_have_the_size_of_this_release():
    raw = Raw().open_device()
    raw.alloc_raw(ClassId.FERMI_VASPACE_A, raw.device, bytes(56), size=0)  # what the class takes
    for size in (48, 64):
        with pytest.raises(Exception, match="NV_ERR_INVALID_PARAM_STRUCT"):
            raw.alloc_raw(ClassId.FERMI_VASPACE_A, raw.device, bytes(64), size=size)
    with pytest.raises(Exception, match="NV_ERR_INVALID_POINTER"):
        raw.alloc_raw(ClassId.FERMI_VASPACE_A, raw.device, b"", size=56)
    older = Raw("nv:sm_90:driver=570.86").open_device()
    older.alloc_raw(ClassId.FERMI_VASPACE_A, older.device, bytes(48))
    with pytest.raises(Exception, match="NV_ERR_INVALID_PARAM_STRUCT"):
        older.alloc_raw(ClassId.FERMI_VASPACE_A, older.device, bytes(56))


def test_a_control_has_the_size_of_this_release_and_belongs_to_a_kind_of_object():
    raw = Raw().open_channel(schedule=False)
    assert refusal(raw.control, raw.group, 0xA06C0101, size=2, benable=1) == S.NV_ERR_INVALID_PARAM_STRUCT
    assert refusal(raw.control, raw.device, 0xA06C0101, benable=1) == S.NV_ERR_NOT_SUPPORTED
    assert refusal(raw.control, 0x77, 0xA06C0101, benable=1) == S.NV_ERR_OBJECT_NOT_FOUND
    fields = {"hclient": raw.client, "hobject": raw.client}
    assert refusal(raw.call, raw.ctl, abi.RM_CONTROL, cmd=0x20805555, **fields) == S.NV_ERR_NOT_SUPPORTED
    null = refusal(raw.call, raw.ctl, abi.RM_CONTROL, cmd=0x205, paramssize=32, **fields)
    assert null == S.NV_ERR_INVALID_POINTER
    older = Raw("nv:sm_90:driver=570.86").open_channel(schedule=False)
    assert refusal(older.control, older.group, 0xA06C0101, size=3, benable=1) == S.NV_ERR_INVALID_PARAM_STRUCT
    older.schedule()


def test_a_gpu_that_nobody_opened_is_not_there():
    raw = Raw("nv:sm_90", "nv:sm_90").open_client()
    other = raw.rm.gpus[1]
    assert refusal(raw.control, raw.client, 0x205, gpuid=other.gpu_id) == S.NV_ERR_OBJECT_NOT_FOUND
    assert refusal(raw.alloc, 0x80, raw.client, "DeviceAlloc", deviceid=1) == S.NV_ERR_INVALID_DEVICE
    raw.port.open(f"/dev/nvidia{other.minor}")
    assert raw.control(raw.client, 0x205, gpuid=other.gpu_id).deviceinstance == 1


def test_freeing_an_object_frees_all_below_it():
    raw = Raw().open_channel()
    raw.free(raw.device)
    for handle in (raw.subdevice, raw.group, raw.channel, raw.compute, raw.ring.handle):
        assert refusal(raw.free, handle) == S.NV_ERR_OBJECT_NOT_FOUND
    assert raw.emulated.video_memory_used == 0
    assert not raw.emulated.fronts


def test_closing_the_control_file_frees_everything():
    raw = Raw().open_channel()
    raw.port.close(raw.ctl)
    assert not raw.emulated.fronts and not raw.emulated.groups
    assert raw.emulated.video_memory_used == 0


# ------------------------------------------------------------ mappings


def test_a_mapping_belongs_on_the_node_of_what_it_maps():
    raw = Raw("nv:sm_90", "nv:sm_90").open_device()
    system, video = raw.allocate(4096), raw.allocate(4096, is_video=True)
    other = raw.port.open(f"/dev/nvidia{raw.rm.gpus[1].minor}")
    for what, node in ((system, raw.node), (video, "/dev/nvidiactl"), (raw.usermode, "/dev/nvidiactl")):
        fd = raw.port.open(node)
        assert refusal(raw.map, what, 4096, fd) == S.NV_ERR_INVALID_ARGUMENT
    assert refusal(raw.map, video, 4096, other) == S.NV_ERR_INVALID_ARGUMENT
    assert refusal(raw.map, video, 4096, 3) == S.NV_ERR_INVALID_ARGUMENT
    raw.map(video, 4096, raw.port.open(raw.node))


def test_a_file_carries_one_mapping_for_its_whole_life():
    raw = Raw().open_device()
    memory = raw.allocate(4096)
    fd = raw.port.open("/dev/nvidiactl")
    made = raw.map(memory, 4096, fd)
    assert refusal(raw.map, memory, 4096, fd) == S.NV_ERR_STATE_IN_USE
    unmap = {"hclient": raw.client, "hdevice": raw.device, "hmemory": memory}
    raw.call(raw.ctl, abi.RM_UNMAP_MEMORY, plinearaddress=made.plinearaddress, **unmap)
    assert refusal(raw.map, memory, 4096, fd) == S.NV_ERR_STATE_IN_USE
    again = refusal(raw.call, raw.ctl, abi.RM_UNMAP_MEMORY, plinearaddress=made.plinearaddress, **unmap)
    assert again == S.NV_ERR_OBJECT_NOT_FOUND


def test_mmap_takes_what_was_mapped_and_nothing_else():
    raw = Raw().open_device()
    system, video = raw.allocate(8192), raw.allocate(8192, is_video=True)

    def mmap(what: int, node: str, size: int, flags: int = MAP_SHARED, offset: int = 0) -> object:
        fd = raw.port.open(node)
        raw.map(what, 8192, fd)
        return refusal(raw.port.mmap, 0, size, PROT_READ | PROT_WRITE, flags, fd, offset)

    assert mmap(video, raw.node, 4096) == errno.ENXIO  # a BAR mapping has exactly its length
    assert mmap(video, raw.node, 8192) == S.NV_OK
    assert mmap(system, "/dev/nvidiactl", 12288) == errno.ERANGE  # system memory at most
    assert mmap(system, "/dev/nvidiactl", 4096) == S.NV_OK
    assert mmap(system, "/dev/nvidiactl", 8192, offset=4096) == errno.EINVAL
    assert mmap(system, "/dev/nvidiactl", 8192, MAP_PRIVATE) == errno.EINVAL
    nothing = raw.port.open(raw.node)
    assert refusal(raw.port.mmap, 0, 4096, PROT_READ, MAP_SHARED, nothing, 0) == errno.EINVAL


def test_two_mappings_of_one_object_are_one_memory():
    raw = Raw().open_device()
    memory = raw.allocate(8192)
    views = []
    for offset in (0, 4096):
        fd = raw.port.open("/dev/nvidiactl")
        raw.map(memory, 8192 - offset, fd, offset=offset)
        at = raw.port.mmap(0, 8192 - offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd)
        views.append(np.frombuffer(native.view(at, 8192 - offset), np.uint8))
    views[0][4096] = 77
    assert views[1][0] == 77
    fd = raw.port.open("/dev/nvidiactl")
    assert refusal(raw.map, memory, 8192, fd, offset=4096) == S.NV_ERR_INVALID_LIMIT


def test_without_a_large_bar_video_memory_cannot_be_mapped():
    raw = Raw("nv:sm_90:private").open_device()
    video = raw.allocate(4096, is_video=True)
    fd = raw.port.open(raw.node)
    assert refusal(raw.map, video, 4096, fd) == S.NV_ERR_INSUFFICIENT_RESOURCES
    assert raw.control(raw.subdevice, 0x20801303, fbinfolistsize=1, fbinfolist=5).fbinfolist == 5


def test_host_pages_are_registered_on_a_registered_device_file():
    raw = Raw().open_device()
    at = raw.port.mmap(0, 8192, PROT_READ | PROT_WRITE, 0x22)
    fields = {
        "hroot": raw.client,
        "hobjectparent": raw.device,
        "hclass": 0x71,
        "fd": 0xFFFFFFFF,
        "limit": 8191,
    }
    raw.call(raw.fd, abi.RM_ALLOC_MEMORY, hobjectnew=0x5C0000AA, pmemory=at, **fields)
    refused = refusal(raw.call, raw.fd, abi.RM_ALLOC_MEMORY, hobjectnew=0x5C0000AB, pmemory=at + 8, **fields)
    assert refused == S.NV_ERR_INVALID_ADDRESS
    fresh = raw.port.open(raw.node)
    assert refusal(raw.call, fresh, abi.RM_ALLOC_MEMORY, hobjectnew=1, pmemory=at, **fields) == errno.EINVAL
    raw.free(0x5C0000AA)
    raw.port.munmap(at, 8192)


def test_counts_and_sizes_that_nothing_backs_are_refused_before_memory_is_taken():
    raw = Raw().open_device()
    for size in (1 << 44, 2**63, 2**64 - 4096):
        for is_video in (True, False):
            assert refusal(raw.allocate, size, is_video=is_video) == S.NV_ERR_NO_MEMORY
    at = raw.port.mmap(0, 8192, PROT_READ | PROT_WRITE, 0x22)
    fields = {
        "hroot": raw.client,
        "hobjectparent": raw.device,
        "hclass": 0x71,
        "fd": 0xFFFFFFFF,
        "pmemory": at,
    }
    for limit in (1 << 44, 2**64 - 1):
        refused = refusal(raw.call, raw.fd, abi.RM_ALLOC_MEMORY, hobjectnew=0x5C0000AC, limit=limit, **fields)
        assert refused == S.NV_ERR_NO_MEMORY
    refused = refusal(raw.control, raw.subdevice, 0x20801201, grinfolist=at, grinfolistsize=2**32 - 1)
    assert refused == S.NV_ERR_INVALID_ARGUMENT
    raw.port.munmap(at, 8192)


# ------------------------------------------------------------ channels


def prepared(word: str = "nv:sm_90") -> Raw:
    """All that a channel needs, and no channel."""
    raw = Raw(word).open_uvm()
    raw.ring = raw.memory(1 << 16)
    raw.notifier = raw.memory(4096)
    raw.add_group()
    return raw


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"gpfifoentries": 0}, S.NV_ERR_INVALID_ARGUMENT),
        ({"gpfifoentries": ENTRIES - 1}, S.NV_ERR_INVALID_ARGUMENT),
        ({"hvaspace": 1}, S.NV_ERR_INVALID_ARGUMENT),
        ({"enginetype": 9}, S.NV_ERR_INVALID_ARGUMENT),
        ({"userdoffset_0": 1 << 20}, S.NV_ERR_INVALID_ARGUMENT),
        ({"huserdmemory_0": 0}, S.NV_ERR_INVALID_ARGUMENT),
        ({"huserdmemory_0": 0x99}, S.NV_ERR_INVALID_OBJECT_HANDLE),
        ({"hobjecterror": 0x99}, S.NV_ERR_INVALID_OBJECT_HANDLE),
        ({"hobjectbuffer": 0x99}, S.NV_ERR_INVALID_OBJECT_HANDLE),
        ({"hcontextshare": 0x99}, S.NV_ERR_INVALID_OBJECT_HANDLE),
        ({"gpfifooffset": 0x1004}, S.NV_ERR_INVALID_ARGUMENT),
    ],
)
def test_a_channel_that_cannot_be_is_refused(fields: dict[str, int], status: S):
    raw = prepared()
    assert refusal(raw.add_channel, **fields) == status
    raw.add_channel()


@pytest.mark.parametrize("offset", [USERD_AT, USERD_AT + 4, USERD_AT + 256])
def test_of_userd_the_alignment_of_its_memory_counts_and_not_the_offset_in_it(offset: int):
    """kchannelCreateUserdMemDesc_GV100 looks at the allocation alone."""
    prepared().add_channel(userdoffset_0=offset)


def test_a_context_share_is_for_all_channels_of_a_group_or_for_none():
    raw = prepared()
    raw.add_channel()
    assert refusal(raw.add_channel, hcontextshare=0) == S.NV_ERR_INVALID_ARGUMENT


def test_a_context_share_of_another_group_is_refused():
    raw = prepared()
    mine, share = raw.group, raw.share
    raw.add_group()
    assert refusal(raw.add_channel, hcontextshare=share) == S.NV_ERR_INVALID_OBJECT_PARENT
    raw.group = mine
    raw.add_channel(hcontextshare=share)


@pytest.mark.parametrize("word", ["nv:sm_86", "nv:sm_90"])
def test_a_copy_object_names_a_copy_engine_by_its_number_or_its_type(word: str):
    """Version 0 with 1 is copy engine 1, which shares the graphics runlist: no engine type of the channel's."""
    raw = Raw(word).open_channel()
    raw.free(raw.copy)

    def named(version: int, engine: int) -> S | int:
        return refusal(
            raw.alloc, raw.engines.copy, raw.channel, "CopyAlloc", version=version, enginetype=engine
        )

    assert named(0, 2) == S.NV_ERR_INVALID_STATE  # an engine of another runlist
    assert named(0, 99) == named(1, 1) == named(2, 0) == S.NV_ERR_INVALID_CLASS
    assert named(0, 1) == S.NV_OK


def test_on_blackwell_the_copy_engine_is_that_of_the_channel_whatever_the_object_names():
    raw = Raw("nv:sm_120").open_channel()
    raw.free(raw.copy)
    raw.alloc(raw.engines.copy, raw.channel, "CopyAlloc", version=2, enginetype=99)


def test_memory_needs_an_owner_and_leaves_rms_own_flags_alone():
    raw = Raw().open_device()
    fields = {"size": 4096, "attr": 0x3A000000}

    def made(**more: int) -> S | int:
        return refusal(raw.alloc, 0x3E, raw.device, "MemoryAlloc", **fields, **more)

    for owner in (0, 0xFFFFFFFF, 0xDEAF0001):
        assert made(owner=owner) == S.NV_ERR_INVALID_OWNER
    assert made(owner=raw.client, internalflags=1) == S.NV_ERR_INVALID_ARGUMENT
    assert made(owner=raw.client) == S.NV_OK


def test_a_doorbell_page_for_the_kernel_is_not_given_away():
    raw = Raw().open_device()
    page = raw.engines.usermode
    assert refusal(raw.alloc, page, raw.subdevice, "UsermodeAlloc", bpriv=1) == S.NV_ERR_INVALID_PARAMETER
    both = {"bpriv": 1, "bbar1mapping": 1}
    assert (
        refusal(raw.alloc, page, raw.subdevice, "UsermodeAlloc", **both) == S.NV_ERR_INSUFFICIENT_PERMISSIONS
    )


def test_a_group_needs_an_engine_that_there_is():
    raw = Raw().open_device()
    for engine in (0, 2, 99):
        refused = refusal(raw.alloc, 0xA06C, raw.device, "ChannelGroupAlloc", enginetype=engine)
        assert refused == S.NV_ERR_INVALID_ARGUMENT


def test_a_copy_channel_has_no_compute_object():
    raw = prepared()
    raw.add_group(engine_type=9 + 2)
    raw.group_space = raw.alloc(0xA06C, raw.device, "ChannelGroupAlloc", enginetype=11, hvaspace=raw.space)
    raw.group = raw.group_space
    raw.add_channel(hcontextshare=0)
    assert refusal(raw.alloc, raw.engines.compute, raw.channel) == S.NV_ERR_INVALID_CLASS
    wrong = refusal(raw.alloc, raw.engines.copy, raw.channel, "CopyAlloc", version=1, enginetype=12)
    assert wrong == S.NV_ERR_INVALID_STATE
    raw.alloc(raw.engines.copy, raw.channel, "CopyAlloc", version=1, enginetype=11)


def test_a_channel_is_scheduled_after_uvm_has_its_context_and_not_before():
    raw = prepared()
    raw.add_channel()
    raw.add_objects()
    assert refusal(raw.schedule) == S.NV_ERR_INVALID_STATE
    raw.register_channel()
    raw.schedule()


def test_tokens_differ_and_are_not_the_channels_number():
    raw = prepared()
    tokens = []
    for at in (USERD_AT, USERD_AT + 512):
        raw.add_channel(userdoffset_0=at)
        tokens.append(raw.control(raw.channel, 0xC36F0108).worksubmittoken)
    assert len(set(tokens)) == 2 and all(token > 0xFFFF for token in tokens)


# ------------------------------------------------------------ what other drivers ask


def control_of(raw: Raw, handle: int, command: int, params: bytes) -> bytes:
    """A control call whose structure is given as bytes."""
    memory = bytearray(params)
    where = native.address_of(memory)
    fields = {
        "hclient": raw.client,
        "hobject": handle,
        "cmd": command,
        "params": where,
        "paramssize": len(memory),
    }
    raw.call(raw.ctl, abi.RM_CONTROL, **fields)
    return bytes(memory)


def test_the_version_can_be_asked_of_the_client():
    raw = Raw().open_client()
    assert control_of(raw, raw.client, 0x13E, bytes(1032)).startswith(b"580.142\0")
    older = Raw("nv:sm_90:driver=550.90").open_client()
    assert control_of(older, older.client, 0x13E, bytes(776)).startswith(b"550.90\0")
    assert refusal(control_of, older, older.client, 0x13E, bytes(1032)) == S.NV_ERR_INVALID_PARAM_STRUCT


def test_the_older_class_list_is_asked_twice():
    raw = Raw().open_device()
    (count,) = struct.unpack_from("<I", control_of(raw, raw.device, 0x800201, bytes(16)))
    listed = bytearray(4 * count)
    control_of(raw, raw.device, 0x800201, struct.pack("<I4xQ", count, native.address_of(listed)))
    assert raw.engines.compute in struct.unpack(f"<{count}I", listed)


def test_memory_is_mapped_into_rms_own_address_space_for_whoever_asks():
    raw = Raw().open_device()
    memory = raw.allocate(4096)
    raw.alloc_raw(0x70, raw.device, bytes(24), handle=0x5C000070)
    request = 3 << 30 | 64 << 16 | ord("F") << 8 | 0x57

    def map_dma(virtual: int) -> tuple[int, int]:
        given = struct.pack(
            "<4IQQIIIIQII", raw.client, raw.device, virtual, memory, 0, 4096, 0x8000, 0, 0, 0, 0x7000, 0, 0
        )
        argument = bytearray(given)
        raw.port.ioctl(raw.ctl, request, argument)
        return struct.unpack_from("<QI", argument, 48)

    assert map_dma(0x5C000070) == (0x7000, S.NV_OK)
    assert map_dma(memory)[1] == S.NV_ERR_INVALID_OBJECT_HANDLE
    older = Raw("nv:sm_90:driver=570.86").open_device()
    with pytest.raises(DriverError):
        older.port.ioctl(older.ctl, request, bytearray(64))
