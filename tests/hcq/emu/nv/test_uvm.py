"""The emulated UVM: files, GPUs, address spaces, ranges and mappings, and what each refuses."""

from __future__ import annotations

import errno
import time

import pytest

from hcq.errors import DriverError
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import NO_FD
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.status import NvStatus as S
from tests.hcq.emu.nv.raw import USERD_AT, WINDOW, WINDOW_BYTES, Memory, Raw, methods, refusal, release


def opened(word: str = "nv:sm_90") -> Raw:
    """An address space that UVM owns, with addresses to try out."""
    raw = Raw(word).open_uvm()
    raw.base = raw.take(1 << 21)
    return raw


# ------------------------------------------------------------ files


def test_nothing_works_before_uvm_is_initialised():
    raw = Raw().open_device()
    fd = raw.port.open("/dev/nvidia-uvm")
    assert refusal(raw.call, fd, abi.UVM_REGISTER_GPU, gpu_uuid=raw.uuid) == S.NV_ERR_ILLEGAL_ACTION
    assert (
        refusal(raw.call, fd, abi.UVM_CREATE_EXTERNAL_RANGE, base=4096, length=4096)
        == S.NV_ERR_ILLEGAL_ACTION
    )
    raw.call(fd, abi.UVM_INITIALIZE, flags=1)
    raw.call(fd, abi.UVM_REGISTER_GPU, gpu_uuid=raw.uuid, rmctrlfd=NO_FD)


def test_numbers_that_do_not_exist_are_einval():
    raw = Raw()
    fd = raw.port.open("/dev/nvidia-uvm")
    with pytest.raises(DriverError) as error:
        raw.port.ioctl(fd, 9999, bytearray(64))
    assert error.value.errno == errno.EINVAL


def test_the_memory_map_is_kept_alive_by_another_file():
    raw = Raw().open_device()
    uvm, keeper = raw.port.open("/dev/nvidia-uvm"), raw.port.open("/dev/nvidia-uvm")
    # not initialised
    assert refusal(raw.call, keeper, abi.UVM_MM_INITIALIZE, uvmfd=uvm) == S.NV_ERR_INVALID_ARGUMENT
    raw.call(uvm, abi.UVM_INITIALIZE)
    assert refusal(raw.call, uvm, abi.UVM_MM_INITIALIZE, uvmfd=uvm) == S.NV_ERR_INVALID_ARGUMENT
    raw.call(keeper, abi.UVM_MM_INITIALIZE, uvmfd=uvm)
    assert refusal(raw.call, keeper, abi.UVM_MM_INITIALIZE, uvmfd=uvm) == S.NV_ERR_INVALID_STATE


def test_an_address_space_needs_that_file_open():
    raw = Raw().open_uvm(register=False)
    raw.port.close(raw.uvm2)
    assert refusal(raw.register_space) == S.NV_ERR_PAGE_TABLE_NOT_AVAIL
    raw.uvm2 = raw.port.open("/dev/nvidia-uvm")
    raw.call(raw.uvm2, abi.UVM_MM_INITIALIZE, uvmfd=raw.uvm)
    raw.register_space()


# ------------------------------------------------------------ GPUs and address spaces


def test_an_address_space_has_to_be_externally_owned():
    raw = Raw().open_uvm(register=False)
    raw.space = raw.alloc(ClassId.FERMI_VASPACE_A, raw.device, "VaspaceAlloc", flags=0x40)
    assert refusal(raw.register_space) == S.NV_ERR_INVALID_FLAGS


def test_a_gpu_is_registered_before_its_address_space_and_has_one():
    raw = Raw("nv:sm_90", "nv:sm_90").open_uvm(register=False)
    other = int.from_bytes(raw.rm.gpus[1].uuid, "little")
    assert refusal(raw.call, raw.uvm, abi.UVM_REGISTER_GPU, gpu_uuid=5) == S.NV_ERR_GPU_UUID_NOT_FOUND
    assert refusal(raw.call, raw.uvm, abi.UVM_REGISTER_GPU, gpu_uuid=other) == S.NV_ERR_GPU_UUID_NOT_FOUND
    mine, raw.uuid = raw.uuid, other
    assert refusal(raw.register_space) == S.NV_ERR_INVALID_DEVICE
    raw.uuid = mine
    raw.register_space()
    assert refusal(raw.register_space) == S.NV_ERR_INVALID_DEVICE


def test_calls_name_the_control_file_and_the_client():
    raw = Raw().open_uvm(register=False)
    fields = {"gpuuuid": raw.uuid, "hvaspace": raw.space}
    for wrong in ({"rmctrlfd": raw.fd, "hclient": raw.client}, {"rmctrlfd": raw.ctl, "hclient": 9}):
        refused = refusal(raw.call, raw.uvm, abi.UVM_REGISTER_GPU_VASPACE, **fields, **wrong)
        assert refused == S.NV_ERR_INVALID_CLIENT


# ------------------------------------------------------------ ranges and mappings


def test_ranges_are_pages_and_do_not_overlap():
    raw = opened()
    for base, length in ((raw.base + 8, 4096), (raw.base, 100), (raw.base, 0), (0, 4096)):
        assert refusal(raw.create_range, base, length) == S.NV_ERR_INVALID_ADDRESS
    raw.create_range(raw.base, 8192)
    assert refusal(raw.create_range, raw.base + 4096, 8192) == S.NV_ERR_UVM_ADDRESS_IN_USE
    raw.create_range(raw.base + 8192, 4096)


def test_a_mapping_lies_inside_one_range_and_one_allocation():
    raw = opened()
    raw.create_range(raw.base, 8192)
    memory = Memory(raw.allocate(8192), raw.base, 8192, False)
    assert refusal(raw.map_gpu, memory, base=raw.base - 4096) == S.NV_ERR_INVALID_ADDRESS
    assert refusal(raw.map_gpu, memory, length=12288) == S.NV_ERR_INVALID_ADDRESS
    assert refusal(raw.map_gpu, memory, offset=4096) == S.NV_ERR_INVALID_OFFSET
    assert refusal(raw.map_gpu, memory, offset=100) == S.NV_ERR_INVALID_ADDRESS
    assert refusal(raw.map_gpu, memory, hmemory=0x99) == S.NV_ERR_OBJECT_NOT_FOUND
    assert refusal(raw.map_gpu, memory, gpuattributescount=0) == S.NV_ERR_INVALID_ARGUMENT
    assert refusal(raw.map_gpu, memory, pergpuattributes_0_gpuuuid=5) == S.NV_ERR_INVALID_DEVICE
    raw.map_gpu(memory, length=4096, offset=4096)


def test_an_unregistered_address_space_cannot_be_mapped_into():
    raw = Raw().open_uvm(register=False)
    base = raw.take(4096)
    raw.create_range(base, 4096)
    assert refusal(raw.map_gpu, Memory(raw.allocate(4096), base, 4096, False)) == S.NV_ERR_INVALID_DEVICE


def test_addresses_beyond_the_page_tables_are_out_of_range():
    raw = opened("nv:sm_80")
    raw.create_range(1 << 50, 4096)
    assert refusal(raw.map_gpu, Memory(raw.allocate(4096), 1 << 50, 4096, False)) == S.NV_ERR_OUT_OF_RANGE


def test_a_range_is_freed_whole_and_its_length_is_told_until_590():
    raw = opened()
    raw.create_range(raw.base, 8192)
    assert refusal(raw.call, raw.uvm, abi.UVM_FREE, base=raw.base, length=4096) == S.NV_ERR_INVALID_ADDRESS
    assert (
        refusal(raw.call, raw.uvm, abi.UVM_FREE, base=raw.base + 4096, length=4096)
        == S.NV_ERR_INVALID_ADDRESS
    )
    raw.call(raw.uvm, abi.UVM_FREE, base=raw.base, length=8192)
    newer = opened("nv:sm_90:driver=590.48")
    newer.create_range(newer.base, 8192)
    newer.call(newer.uvm, abi.UVM_FREE, base=newer.base)


def test_what_is_unmapped_is_gone_for_the_gpu():
    raw = Raw().open_channel()
    memory = raw.memory(8192)
    raw.push(release(memory.va + 4096, 1))
    raw.until(lambda: memory.array()[1024] == 1)
    raw.call(raw.uvm, abi.UVM_UNMAP_EXTERNAL, base=memory.va + 4096, length=4096, gpuuuid=raw.uuid)
    raw.push(release(memory.va, 2))
    raw.until(lambda: memory.array()[0] == 2)
    raw.push(release(memory.va + 4096, 3))
    xid, line = raw.fault()
    assert (
        xid == 31
        and f"{memory.va + 4096 & 0xFFFFFFFF:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE" in line
    )


def test_a_read_only_mapping_cannot_be_written():
    raw = Raw().open_channel()
    memory = raw.memory(4096)
    raw.map_gpu(memory, pergpuattributes_0_gpumappingtype=3)
    raw.push(release(memory.va, 1))
    xid, line = raw.fault()
    assert xid == 31 and "FAULT_RO_VIOLATION" in line and memory.array()[0] == 0


def test_memory_that_was_freed_stays_mapped_until_its_range_is():
    raw = Raw().open_channel()
    memory = raw.memory(4096)
    raw.free(memory.handle)
    raw.push(release(memory.va, 5))
    raw.until(lambda: memory.array()[0] == 5)
    raw.call(raw.uvm, abi.UVM_FREE, base=memory.va, length=4096)
    raw.push(release(memory.va, 6))
    assert raw.fault()[0] == 31


# ------------------------------------------------------------ channels


def test_a_graphics_channel_is_registered_after_its_compute_object_exists():
    raw = opened()
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    raw.add_group()
    raw.add_channel()
    assert refusal(raw.register_channel) == S.NV_ERR_INVALID_OBJECT
    raw.add_objects()
    assert refusal(raw.register_channel, base=WINDOW + 1) == S.NV_ERR_INVALID_ADDRESS
    assert refusal(raw.register_channel, base=0) == S.NV_ERR_INVALID_ADDRESS
    raw.register_channel()
    assert refusal(raw.register_channel) == S.NV_ERR_INVALID_CHANNEL
    assert refusal(raw.create_range, WINDOW, 4096) == S.NV_ERR_UVM_ADDRESS_IN_USE


def with_objects(word: str = "nv:sm_90") -> Raw:
    """A channel that only has to be registered."""
    raw = opened(word)
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    raw.add_group()
    raw.add_channel()
    raw.add_objects()
    return raw


@pytest.mark.parametrize(
    ("word", "mib"), [("nv:sm_80", 20), ("nv:sm_90", 92), ("nv:sm_100", 92), ("nv:sm_120", 20)]
)
def test_context_buffers_need_as_many_addresses_as_rm_says(word: str, mib: int):
    """64 MiB, which small parts are content with, are too few for large ones."""
    raw = with_objects(word)
    said = raw.control(raw.subdevice, 0x20801218, hchannel=raw.channel).totalbuffersize
    assert mib << 20 > said > mib - 4 << 20
    assert raw.control(raw.subdevice, 0x20801218, hchannel=raw.group).totalbuffersize == said
    assert refusal(raw.control, raw.subdevice, 0x20801218, hchannel=raw.compute) == S.NV_ERR_INVALID_CHANNEL
    assert refusal(raw.register_channel, length=said - (6 << 20)) == S.NV_ERR_INVALID_ADDRESS
    is_large = said > 64 << 20
    assert refusal(raw.register_channel, length=64 << 20) == (
        S.NV_ERR_INVALID_ADDRESS if is_large else S.NV_OK
    )
    if is_large:
        raw.register_channel(length=-(-said // (2 << 20)) * (2 << 20))


def test_context_buffers_go_into_the_gaps_of_their_window():
    raw = with_objects()
    raw.create_range(WINDOW, 4096)
    raw.create_range(WINDOW + (100 << 20), 4096)
    assert refusal(raw.register_channel, length=100 << 20) == S.NV_OK
    assert refusal(raw.create_range, WINDOW + 4096, 4096) == S.NV_OK  # what no buffer took is anybody's
    assert refusal(raw.create_range, WINDOW + (2 << 20), 4096) == S.NV_ERR_UVM_ADDRESS_IN_USE


def test_channels_of_a_group_share_their_context_buffers():
    raw = with_objects()
    first = raw.channel
    raw.register_channel()
    raw.add_channel(userdoffset_0=USERD_AT + 512)
    raw.register_channel(length=4096)  # wherever the first one's are
    off = {"gpuuuid": raw.uuid, "hclient": raw.client}
    raw.call(raw.uvm, abi.UVM_UNREGISTER_CHANNEL, hchannel=first, **off)
    assert refusal(raw.create_range, WINDOW, 4096) == S.NV_ERR_UVM_ADDRESS_IN_USE
    raw.call(raw.uvm, abi.UVM_UNREGISTER_CHANNEL, hchannel=raw.channel, **off)
    raw.create_range(WINDOW, 4096)


def test_a_copy_engines_channel_needs_no_window():
    raw = opened()
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    engine = raw.emulated.copy_engine_types[2]
    fields = {"enginetype": engine, "hvaspace": raw.space}
    raw.group = raw.alloc(ClassId.KEPLER_CHANNEL_GROUP_A, raw.device, "ChannelGroupAlloc", **fields)
    raw.share = 0
    raw.add_channel()
    raw.register_channel(base=0, length=0)


@pytest.mark.parametrize("word", ["nv:sm_80", "nv:sm_90:seed=3", "nv:sm_120"])
def test_a_channel_that_is_unregistered_has_finished_and_its_notifier_says_that_it_was_removed(word: str):
    """Xid 45 is no error: who looks at the notifier meanwhile must know that the channel is being torn down."""
    raw = Raw(word).open_channel()
    memory = raw.memory(4096)
    raw.push(release(memory.va, 6))
    raw.call(raw.uvm, abi.UVM_UNREGISTER_CHANNEL, gpuuuid=raw.uuid, hclient=raw.client, hchannel=raw.channel)
    assert memory.array()[0] == 6
    assert int(raw.notifier.array("u2")[7]) == 0xFFFF and int(raw.notifier.array()[2]) == 45
    assert raw.port.kernel_log() == []
    raw.push(release(memory.va, 7))
    time.sleep(0.02)
    assert memory.array()[0] == 6  # it runs nothing any more


def test_a_channel_that_never_ends_is_stopped_all_the_same():
    raw = Raw().open_channel()
    memory = raw.memory(4096)
    raw.push(methods(0, 0x5C, memory.va & 0xFFFFFFFF, memory.va >> 32, 1, 0, 0))  # waits for a 1
    raw.call(raw.uvm, abi.UVM_UNREGISTER_CHANNEL, gpuuuid=raw.uuid, hclient=raw.client, hchannel=raw.channel)
    assert int(raw.notifier.array()[2]) == 45


def test_a_channel_without_a_compute_object_is_registered_once_its_group_has_one():
    raw = opened()
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    raw.add_group()
    raw.add_channel()
    with_compute = raw.channel
    raw.add_channel(userdoffset_0=USERD_AT + 512)
    raw.alloc(raw.engines.copy, raw.channel)
    assert refusal(raw.register_channel) == S.NV_ERR_INVALID_OBJECT
    raw.alloc(raw.engines.compute, with_compute)
    raw.register_channel()


def test_the_window_of_a_freed_channel_stays_taken_until_it_is_unregistered():
    raw = Raw().open_channel()
    channel, group = raw.channel, raw.group
    raw.free(group)
    raw.add_group()
    raw.add_channel()
    raw.add_objects()
    assert refusal(raw.create_range, WINDOW, 4096) == S.NV_ERR_UVM_ADDRESS_IN_USE
    assert refusal(raw.register_channel, length=96 << 20) == S.NV_ERR_INVALID_ADDRESS
    raw.call(raw.uvm, abi.UVM_UNREGISTER_CHANNEL, gpuuuid=raw.uuid, hclient=raw.client, hchannel=channel)
    raw.register_channel(length=96 << 20)
    raw.schedule()


def test_the_window_lies_low_on_ampere():
    raw = opened("nv:sm_86")
    raw.ring, raw.notifier = raw.memory(1 << 16), raw.memory(4096)
    raw.add_group()
    raw.add_channel()
    raw.add_objects()
    assert refusal(raw.register_channel, base=1 << 41, length=WINDOW_BYTES) == S.NV_ERR_OUT_OF_RANGE


def test_closing_uvm_takes_every_mapping_away():
    raw = Raw().open_channel()
    memory = raw.memory(4096)
    raw.port.close(raw.uvm)
    raw.enter(memory.va, 4)
    assert raw.fault()[0] == 31


def test_a_file_is_initialised_once_more_with_the_same_flags():
    raw = opened()
    raw.call(raw.uvm, abi.UVM_INITIALIZE)
    assert refusal(raw.call, raw.uvm, abi.UVM_INITIALIZE, flags=1) == S.NV_ERR_INVALID_ARGUMENT
    assert (
        refusal(raw.call, raw.uvm2, abi.UVM_INITIALIZE) == S.NV_ERR_INVALID_ARGUMENT
    )  # it keeps the other's tables
