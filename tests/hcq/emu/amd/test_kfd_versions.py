"""Versions of the emulated KFD's interface: what each of them knows and refuses; our driver works on all of them."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from hcq.amd import sizing
from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import EventType, QueueType, WaitResult
from hcq.amd.chip import chip_of
from hcq.amd.device import AmdDevice
from hcq.amd.memory import Place
from hcq.emu.port import port_for
from hcq.errors import DeviceFault, DriverError, UsageError
from hcq.system import native
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.amd.kernels import image
from tests.hcq.emu.amd.test_kfd import ENOTSUPP, Process, queue_fields
from tests.hcq.gpu.kernels import works


def at(version: str, arch: str = "gfx1100") -> Process:
    """A process on a kernel driver of this version."""
    return Process(f"amd:{arch}:kfd={version}")


@pytest.mark.parametrize("minor", range(11, 20))
def test_our_driver_works_on_it(open_amd: Callable[..., AmdDevice], minor: int) -> None:
    amd = open_amd(options=f":kfd=1.{minor}")
    assert amd.facts()["kfd_version"] == f"1.{minor}"
    works(amd)


@pytest.mark.parametrize("text", ["1.10", "1.20", "2.14", "14", "1.x", ""])
def test_a_version_that_is_not_emulated_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"unknown option 'kfd=.*1\.11 to 1\.19"):
        port_for([f"amd:gfx1100:kfd={text}"])


def test_a_machine_has_one_kernel_driver() -> None:
    with pytest.raises(UsageError, match="several kernel drivers"):
        port_for(["amd:gfx1100:kfd=1.14", "amd:gfx1100"])


@pytest.mark.parametrize(("version", "result"), [("1.13", WaitResult.TIMEOUT), ("1.14", WaitResult.COMPLETE)])
def test_an_event_has_an_age_since_1_14(version: str, result: WaitResult) -> None:
    one = at(version)
    page = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    made = one.call(
        kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=page.handle, auto_reset=1
    )
    data = bytearray(kfd.EventData(event_id=made.event_id, payload_low=7).to_bytes())
    where = native.address_of(data)
    assert one.call(kfd.WAIT_EVENTS, events_ptr=where, num_events=1, timeout=1).wait_result == result


def test_the_runtime_is_enabled_since_1_13() -> None:
    at("1.12").refuses(errno.ENOTTY, kfd.RUNTIME_ENABLE, mode_mask=1)
    at("1.13").call(kfd.RUNTIME_ENABLE, mode_mask=1)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx90a"])
def test_a_queues_buffers_are_checked_since_1_17(arch: str) -> None:
    for version, is_refused in (("1.16", False), ("1.17", True)):
        one = at(version, arch)
        large = one.memory.alloc(65536, Place.SHARED)
        fields = queue_fields(one, ring_base_address=large.va + 8192)
        if is_refused:
            one.refuses(errno.EINVAL, kfd.CREATE_QUEUE, **fields)
        else:
            one.call(kfd.CREATE_QUEUE, **fields)


def test_before_that_gfx11_wants_the_write_pointer_in_a_page_of_its_own() -> None:
    for arch in ("gfx1100", "gfx90a"):
        one = at("1.16", arch)
        large = one.memory.alloc(8192, Place.SHARED)
        fields = queue_fields(one, write_pointer_address=large.va)
        if arch == "gfx1100":
            one.refuses(errno.EINVAL, kfd.CREATE_QUEUE, **fields)
        else:
            one.call(kfd.CREATE_QUEUE, **fields)


@pytest.mark.parametrize("what", ["save area", "end-of-pipe buffer"])
@pytest.mark.parametrize("version", ["1.17", "1.18"])
def test_larger_buffers_than_needed_are_taken_since_1_18(version: str, what: str) -> None:
    one = at(version)
    sizes = sizing.queue_sizes(one.node, chip_of(one.node.gfx_target_version))
    more = 4096 if what == "save area" else 0
    eop = one.memory.alloc(8192 if what != "save area" else 4096, Place.PRIVATE)
    fields = queue_fields(
        one,
        queue_type=QueueType.COMPUTE,
        eop_buffer_address=eop.va,
        eop_buffer_size=eop.size_bytes,
        ctx_save_restore_address=one.memory.alloc(sizes.area_bytes + more, Place.SHARED).va,
        ctx_save_restore_size=sizes.save_bytes + more,
        ctl_stack_size=sizes.ctl_stack_bytes,
    )
    if version == "1.17":
        one.refuses(errno.EINVAL, kfd.CREATE_QUEUE, **fields)
    else:
        one.call(kfd.CREATE_QUEUE, **fields)


def test_a_copy_engine_is_chosen_since_1_17() -> None:
    for version in ("1.16", "1.17"):
        one = at(version)
        fields = queue_fields(one, queue_type=QueueType.SDMA_BY_ENG_ID, sdma_engine_id=1)
        if version == "1.16":
            one.refuses(ENOTSUPP, kfd.CREATE_QUEUE, **fields)
        else:
            one.call(kfd.CREATE_QUEUE, **fields)


@pytest.mark.parametrize(("arch", "most"), [("gfx1100", 12), ("gfx90a", 16)])
def test_copy_engines_have_so_many_queues(arch: str, most: int) -> None:
    one = at("1.17", arch)
    for _ in range(most):
        one.call(kfd.CREATE_QUEUE, **queue_fields(one))
    one.refuses(errno.ENOMEM, kfd.CREATE_QUEUE, **queue_fields(one))


def test_a_small_ring_is_made_larger() -> None:
    one = at("1.17")
    one.call(kfd.CREATE_QUEUE, **queue_fields(one, ring_size=512))
    assert [queue.ring_bytes for queue in one.port.kernels[0].gpus[one.node.gpu_id].queues] == [1024]


def test_a_queue_needs_the_address_space() -> None:
    one = Process(acquire=False)
    fields = {"ring_base_address": 4096, "ring_size": 4096, "gpu_id": one.node.gpu_id, "queue_type": 1}
    one.refuses(errno.ESRCH, kfd.CREATE_QUEUE, **fields)


# ------------------------------------------------------------ a second context


def page_fault(amd: AmdDevice) -> None:
    with pytest.raises(DeviceFault, match="page fault"):
        amd.run(amd.load(image(amd.arch), "store_at"), [amd.alloc(64), 1 << 36])


def test_after_a_page_fault_a_device_can_be_opened_again_since_1_19(
    open_amd: Callable[..., AmdDevice],
) -> None:
    amd = open_amd(options=":kfd=1.19")
    kept = amd.alloc(1 << 20)
    kept.write(b"\5" * (1 << 20))
    page_fault(amd)
    with pytest.raises(UsageError, match=r"Open the device again with hcq.open\('AMD'\)"):
        amd.alloc(64)
    for _ in range(2):  # a second context can be evicted, too
        again = open_amd(port=amd.port)
        works(again)
        page_fault(again)
    assert kept.read() == b"\5" * (1 << 20)


def test_before_that_only_another_process_can(open_amd: Callable[..., AmdDevice]) -> None:
    amd = open_amd(options=":kfd=1.18")
    page_fault(amd)
    with pytest.raises(DriverError, match="Restart the process"):
        open_amd(port=amd.port)


def test_a_second_context_has_its_own_address_space_and_goes_with_its_file() -> None:
    at("1.18").refuses(errno.ENOTTY, kfd.CREATE_PROCESS)
    one = at("1.19")
    first = one.fd
    one.fd = one.port.open("/dev/kfd")
    one.call(kfd.CREATE_PROCESS)
    one.refuses(errno.EINVAL, kfd.CREATE_PROCESS)
    one.refuses(errno.EINVAL, kfd.ACQUIRE_VM, drm_fd=one.drm_fd, gpu_id=one.node.gpu_id)
    drm_fd = one.port.open(f"/dev/dri/renderD{one.node.render_minor}")
    one.call(kfd.ACQUIRE_VM, drm_fd=drm_fd, gpu_id=one.node.gpu_id)
    handle = one.alloc().handle
    gpu = one.port.kernels[0].gpus[one.node.gpu_id]
    assert gpu.vram_used == 4096
    second, one.fd = one.fd, first
    one.refuses(errno.EINVAL, kfd.FREE_MEMORY_OF_GPU, handle=handle)
    one.port.close(second)
    assert gpu.vram_used == 0
