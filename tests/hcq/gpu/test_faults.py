"""What goes wrong on a GPU is told, and the device, the process and its neighbours go on."""

from __future__ import annotations

import struct

import pytest

from hcq.errors import DeviceFault, UsageError, WaitTimeout
from hcq.gpu.device import GpuDevice
from tests.hcq.gpu.conftest import Open
from tests.hcq.gpu.kernels import image


def works(gpu: GpuDevice) -> None:
    """The device computes and copies."""
    a, b = gpu.alloc(256), gpu.alloc(256)
    a.write(bytes(256))
    program = gpu.load(image(gpu), "increment")
    gpu.queue().dispatch(program, [a], block=(64, 1, 1)).copy(b, a).submit().wait(timeout_ms=50_000)
    assert struct.unpack("<64I", b.read()) == (1,) * 64


def test_work_submitted_before_a_fault_keeps_its_results_and_work_after_it_fails(gpu: GpuDevice):
    good, bad = gpu.load(image(gpu), "increment"), gpu.load(image(gpu), "store_at")
    a, b, c = gpu.alloc(256), gpu.alloc(256), gpu.alloc(256)
    for buffer in (a, b, c):
        buffer.write(bytes(256))
    first = gpu.queue().dispatch(good, [a], block=(64, 1, 1)).submit()
    second = gpu.queue().dispatch(bad, [b, 1 << 40]).submit()
    third = gpu.queue().dispatch(good, [c], block=(64, 1, 1)).submit()
    first.wait()
    for done in (second, third):
        with pytest.raises(DeviceFault, match="store_at"):
            done.wait(timeout_ms=50_000)
    assert struct.unpack("<64I", a.read()) == (1,) * 64
    works(gpu)


def test_a_wait_that_nobody_signals_is_a_timeout_and_a_reset_ends_it(gpu: GpuDevice):
    never = gpu.signal("never")
    with pytest.raises(WaitTimeout, match="wait signal@"):
        gpu.queue().wait(never, 1).submit().wait(timeout_ms=50)
    gpu.reset()
    works(gpu)


def test_freeing_memory_that_a_kernel_still_uses_is_a_page_fault_and_not_a_crash(open_gpu: Open):
    gpu = open_gpu(validate=False)
    out = gpu.alloc(1 << 20, "gone")
    va = out.address
    program = gpu.load(image(gpu), "store_at")
    q = gpu.queue().dispatch(program, [out, 0])
    out.free()
    del q._held[:]
    gpu.memory.trim(0)
    assert va not in gpu.memory.regions
    with pytest.raises(DeviceFault, match="page fault"):
        q.submit().wait(timeout_ms=50_000)
    works(gpu)


def test_closing_while_a_kernel_runs_on_ends_it(open_gpu: Open, capsys: pytest.CaptureFixture[str]):
    gpu = open_gpu()
    port = gpu.port
    gpu.queue().dispatch(gpu.load(image(gpu), "forever"), [gpu.alloc(64)]).submit()
    gpu.close(timeout_ms=100)
    assert "dispatch forever" in capsys.readouterr().err
    works(open_gpu(port=port))


def test_a_launch_with_a_freed_buffer_is_refused_before_the_doorbell(gpu: GpuDevice):
    program = gpu.load(image(gpu), "increment")
    a = gpu.alloc(1 << 20, "gone")
    q = gpu.queue().dispatch(program, [a], block=(64, 1, 1))
    a.free()
    with pytest.raises(UsageError, match=r"gone.*freed"):
        q.submit()
    works(gpu)


def test_closing_one_device_does_not_disturb_another_on_the_same_gpu(open_gpu: Open):
    one = open_gpu()
    two = open_gpu(port=one.port)
    out = one.alloc(256)
    out.write(bytes(256))
    go = one.signal("go")
    program = one.load(image(one), "increment")
    done = one.queue().wait(go, 1).dispatch(program, [out], block=(64, 1, 1)).submit()
    works(two)
    two.close()
    go.set(1)
    done.wait(timeout_ms=50_000)
    assert struct.unpack("<64I", out.read()) == (1,) * 64
