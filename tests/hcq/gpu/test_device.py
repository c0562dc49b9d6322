"""What a GPU is told to do it does, whoever made it: copies, fills, kernels, order, arguments."""

from __future__ import annotations

import itertools
import struct
import time

import pytest

from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.observe import observer
from hcq.observe.profile import Profile
from tests.hcq.gpu.conftest import Open
from tests.hcq.gpu.kernels import image, works
from tests.hcq.gpu.vendors import AMD, NV, Vendor, vendor_of


def floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def test_a_copy_moves_every_byte(gpu: GpuDevice):
    data = bytes(range(251)) * 799
    a, b = gpu.alloc(len(data)), gpu.alloc(len(data))
    a.write(data)
    gpu.queue().copy(b, a).submit().wait()
    assert b.read() == data


def test_buffers_begin_where_a_line_of_memory_does(gpu: GpuDevice):
    """Or are too small to lie in two of them: whatever was freed and taken again before."""
    sizes = [4, 100, 64, 65, 300, 4096, 10, 4097, 20_000, 70_000, 1, 128, 5000]
    for _ in range(2):
        buffers = [gpu.alloc(size) for size in sizes]
        for buffer in buffers:
            assert buffer.address % (256 if buffer.size_bytes > 64 else 64) == 0
        spans = sorted((buffer.address, buffer.address + buffer.size_bytes) for buffer in buffers)
        assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:]))
        del buffer, buffers


def test_a_copy_within_one_buffer_moves_what_was_there_before(gpu: GpuDevice):
    data = bytes(i * 7 % 256 for i in range(16384))
    buffer = gpu.alloc(len(data))
    for distance in (1024, -1024, 4096, 3):
        size = 9000 if abs(distance) >= 1024 else 64
        buffer.write(data)
        src = 2048
        gpu.queue().copy(buffer, buffer, size, dst_offset=src + distance, src_offset=src).submit().wait()
        expected = bytearray(data)
        expected[src + distance : src + distance + size] = data[src : src + size]
        assert buffer.read() == bytes(expected), distance


def test_a_copy_over_itself_that_would_take_many_packets_is_refused(gpu: GpuDevice):
    buffer = gpu.alloc(1 << 20)
    with pytest.raises(UsageError, match=r"1 bytes apart.*Copy through another buffer"):
        gpu.queue().copy(buffer, buffer, 1 << 19, dst_offset=1)


def test_a_fill_repeats_its_pattern_from_the_first_byte_on(gpu: GpuDevice):
    buffer = gpu.alloc(8192)
    places = ((0, 4096), (3, 1000), (5, 8), (1, 0), (4, 4), (2, 264))
    for value_bytes, (offset, size) in itertools.product((1, 2, 4, 8), places):
        value = int.from_bytes(bytes(range(0x11, 0x11 + value_bytes)), "little")
        buffer.write(b"\xee" * 8192)
        size -= size % value_bytes
        gpu.queue().fill(buffer, value, size, offset, value_bytes).submit().wait()
        pattern = value.to_bytes(value_bytes, "little") * (size // value_bytes)
        expected = b"\xee" * offset + pattern + b"\xee" * (8192 - offset - size)
        assert buffer.read() == expected, (value_bytes, offset, size)


def test_a_kernel_takes_buffers_ints_floats_and_doubles(gpu: GpuDevice):
    program = gpu.load(image(gpu), "scale", args=("buffer", "buffer", "int", "float", "float"))
    out, a = gpu.alloc(4096), gpu.alloc(4096)
    a.write(struct.pack("<1024f", *range(1024)))
    out.write(bytes(4096))
    gpu.run(program, [out, a, 1000, 2, 0.5], grid=(16, 1, 1), block=(64, 1, 1))
    assert floats(out.read()) == tuple(i * 2 + 0.5 if i < 1000 else 0 for i in range(1024))


def test_divergent_loops_add_64_bit_numbers_atomically(gpu: GpuDevice):
    total = gpu.alloc(8)
    total.write(bytes(8))
    gpu.run(gpu.load(image(gpu), "triangle"), [total], grid=(3, 1, 1), block=(100, 1, 1))
    assert int.from_bytes(total.read(), "little") == 3 * sum(i * (i + 1) // 2 for i in range(100))


def test_submissions_run_in_the_order_of_their_submit_calls(gpu: GpuDevice):
    increment = gpu.load(image(gpu), "increment")
    a, b = gpu.alloc(256), gpu.alloc(256)
    a.write(bytes(256))
    for _ in range(5):
        gpu.queue().dispatch(increment, [a], block=(64, 1, 1)).submit()
        gpu.queue().copy(b, a).submit()
        gpu.queue().copy(a, b).submit()
    gpu.synchronize()
    assert words(a.read()) == (5,) * 64


def test_a_new_signal_is_none_that_was_dropped_and_is_still_to_be_set(gpu: GpuDevice):
    gate, old = gpu.signal("gate"), gpu.signal("old")
    late = gpu.queue().wait(gate, 1).signal(old, 5).submit()
    del old
    signals = [gpu.signal() for _ in range(20)]
    gate.set(1)
    late.wait(50_000)
    assert [signal.value for signal in signals] == [0] * 20


def test_a_queue_waits_for_a_signal_that_the_host_sets(gpu: GpuDevice):
    a, b = gpu.alloc(64), gpu.alloc(64)
    a.write(b"\x05" * 64)
    b.write(bytes(64))
    go, gone = gpu.signal("go"), gpu.signal("gone")
    done = gpu.queue().wait(go, 3).copy(b, a).signal(gone, 8).submit()
    time.sleep(0.02)
    assert not done.is_done
    assert gone.value == 0
    before = time.monotonic_ns()
    go.set(3)
    done.wait(timeout_ms=50_000)
    assert gone.value == 8
    # two clocks, set beside each other
    assert before - 10**9 <= gone.timestamp_ns <= time.monotonic_ns() + 10**9
    assert b.read() == b"\x05" * 64


def test_timestamps_rise(gpu: GpuDevice):
    cells = gpu.alloc(32)
    gpu.queue().timestamp(cells).barrier().timestamp(cells, 8).submit().wait()
    first, second = struct.unpack("<2Q", cells.read(0, 16))
    assert 0 < first <= second
    assert abs(gpu.clock.to_ns(second) - time.monotonic_ns()) < 5 * 10**9


def test_a_device_opens_again_after_it_was_closed(open_gpu: Open):
    gpu = open_gpu()
    port = gpu.port
    gpu.close()
    again = open_gpu(port=port)
    a, b = again.alloc(100), again.alloc(100)
    a.write(b"x" * 100)
    again.queue().copy(b, a).submit().wait()
    assert b.read() == b"x" * 100


def test_threads_of_a_block_share_memory_across_a_barrier(gpu: GpuDevice):
    out, a = gpu.alloc(4096), gpu.alloc(4096)
    a.write(struct.pack("<1024I", *range(1024)))
    gpu.run(gpu.load(image(gpu), "reverse"), [out, a], grid=(4, 1, 1), block=(256, 1, 1))
    assert words(out.read()) == tuple(g * 256 + 255 - t for g in range(4) for t in range(256))


def test_threads_have_memory_of_their_own(gpu: GpuDevice):
    out = gpu.alloc(400)
    gpu.run(gpu.load(image(gpu), vendor_of(gpu).own_memory), [out, 37], block=(100, 1, 1))
    assert words(out.read()) == tuple(37 * t for t in range(100))


def test_kernels_copies_and_fills_run_in_the_order_they_were_recorded(gpu: GpuDevice):
    increment = gpu.load(image(gpu), "increment")
    a, b = gpu.alloc(256), gpu.alloc(256)
    q = gpu.queue().fill(a, 10, value_bytes=4)
    for _ in range(3):
        q.dispatch(increment, [a], block=(64, 1, 1)).copy(b, a)
        q.dispatch(increment, [b], block=(64, 1, 1)).copy(a, b)
    q.submit().wait()
    assert words(a.read()) == (16,) * 64


def test_launches_in_flight_are_never_overwritten(vendor: Vendor, open_gpu: Open):
    """More than the memory for launches holds, while the GPU waits: later submissions wait for room."""
    gpu = open_gpu(timeout_ms=50_000)
    increment = gpu.load(image(gpu), "increment")
    a = gpu.alloc(256)
    a.write(bytes(256))
    gpu.uploads.size_bytes = vendor.few_uploads
    gpu.uploads.head = gpu.uploads.tail = 0
    for _ in range(100):
        gpu.queue().dispatch(increment, [a], block=(64, 1, 1)).submit()
    gpu.synchronize()
    assert words(a.read()) == (100,) * 64


@pytest.mark.usefixtures("small_rings")
@pytest.mark.parametrize(
    ("vendor", "queue"), [(AMD, "pm4"), (AMD, "aql"), (NV, "")], ids=["AMD-pm4", "AMD-aql", "NV"]
)
def test_rings_wrap_many_times(vendor: Vendor, queue: str, open_gpu: Open):
    gpu = open_gpu(**({"queue": queue} if queue else {}))
    increment = gpu.load(image(gpu), "increment")
    a, b = gpu.alloc(256), gpu.alloc(256)
    a.write(bytes(256))
    for _ in range(100):
        gpu.queue().dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).copy(a, b).submit()
    gpu.synchronize()
    assert words(a.read()) == (100,) * 64
    assert all(ring.put > ring.size for ring in gpu.ring_states() if "copy" not in ring.name)


def test_two_gpus_work_side_by_side_and_see_each_other(vendor: Vendor, open_gpu: Open):
    port = vendor.fresh_port(vendor.arch, vendor.other)
    one, two = open_gpu(port=port), open_gpu(port=port, name=f"{vendor.name}:1")
    assert (one.arch, two.arch) == (vendor.arch, vendor.other)
    a = one.alloc(256)
    a.write(bytes(256))
    one.run(one.load(image(one), "increment"), [a], block=(64, 1, 1))
    two.run(two.load(image(two), "increment"), [a], block=(64, 1, 1))
    assert words(a.read()) == (2,) * 64


def test_a_peer_copy_moves_bytes_from_one_gpu_to_the_other(vendor: Vendor, open_gpu: Open):
    port = vendor.fresh_port(vendor.arch, vendor.arch)
    one, two = open_gpu(port=port), open_gpu(port=port, name=f"{vendor.name}:1")
    a, b = one.alloc(5000), two.alloc(5000)
    for round_ in range(3):
        data = bytes((i * 7 + round_) % 256 for i in range(5000))
        a.write(data)
        two.queue().copy(b, a).submit()
        assert b.read() == data
        b.write(data[::-1])
        two.queue().copy(a, b).submit()
        assert a.read() == data[::-1]


def test_a_device_of_another_system_cannot_be_reached(open_gpu: Open):
    one, two = open_gpu(), open_gpu()
    with pytest.raises(UsageError, match="cannot reach its memory"):
        two.queue().copy(two.alloc(64), one.alloc(64))


@pytest.mark.parametrize(
    ("vendor", "arch"),
    [
        *((AMD, arch) for arch in ("gfx1101", "gfx1102", "gfx1200")),
        *((NV, arch) for arch in ("sm_86", "sm_89", "sm_100")),
    ],
    ids=lambda one: one.name if isinstance(one, Vendor) else one,
)
def test_the_other_architectures_compute_and_copy(vendor: Vendor, open_gpu: Open, arch: str):
    gpu = open_gpu(arch)
    works(gpu)
    a, b = gpu.alloc(1000), gpu.alloc(1000)
    a.write(b"0123456789" * 100)
    gpu.queue().copy(b, a).fill(a, 3).submit().wait()
    assert b.read() == b"0123456789" * 100
    assert a.read() == b"\x03" * 1000


EVERY = [  # arguments, of which None stands for a buffer, grid, block, and what the error says
    ([], (1, 1, 1), (64, 1, 1), "takes 1 arguments"),
    (["x"], (1, 1, 1), (64, 1, 1), "An argument is a Buffer"),
    ([None], (0, 1, 1), (64, 1, 1), "grid=(0, 1, 1)"),
]
WRONG_LAUNCHES = {
    "AMD": [
        *EVERY,
        ([5.0], (1, 1, 1), (64, 1, 1), "argument 0 is a buffer"),
        ([None], (1, 1, 1), (2000, 1, 1), "at most 1024"),
        ([None], (1 << 30, 1, 1), (64, 1, 1), "along one axis"),
    ],
    "NV": [
        *EVERY,
        ([5.0, 6.0], (1, 1, 1), (64, 1, 1), "takes 1 arguments"),
        ([None], (1, 1, 1), (2000, 1, 1), "from 1 to (1024, 1024, 64)"),
        ([None], (1, 1, 1), (64, 64, 1), "has 4096 threads; the kernel was compiled for at most 1024"),
        ([None], (1, 65536, 1), (64, 1, 1), "from 1 to (2147483647, 65535, 65535)"),
        ([None], (1, 1, 1), (1, 1, 65), "block=(1, 1, 65)"),
    ],
}


def test_a_launch_that_cannot_be_right_says_why(gpu: GpuDevice):
    program = gpu.load(image(gpu), "increment")
    buffer = gpu.alloc(256)
    for args, grid, block, says in WRONG_LAUNCHES[vendor_of(gpu).name]:
        with pytest.raises(UsageError) as error:
            gpu.queue().dispatch(program, [buffer if arg is None else arg for arg in args], grid, block)
        assert says in str(error.value)
        assert "increment" in str(error.value)


def test_code_for_another_gpu_is_refused_by_name(vendor: Vendor, open_gpu: Open):
    theirs, says = {
        "AMD": (vendor.arch, "it is for gfx942, and this device is a gfx1100"),
        "NV": (vendor.other, "the PTX is for sm_90, and this device is sm_80"),
    }[vendor.name]
    gpu = open_gpu(theirs)
    other = vendor.other if theirs == vendor.arch else vendor.arch
    with pytest.raises(UsageError, match=says):
        gpu.load(image(other), "scale")


@pytest.mark.sampled(3)
def test_long_reads_come_through_the_copy_engine(gpu: GpuDevice):
    counter = vendor_of(gpu).reads
    data = bytes(i * 31 % 256 for i in range(5 << 20))
    buffer = gpu.alloc(len(data))
    buffer.write(data)
    before = gpu.stats()
    assert buffer.read() == data
    assert buffer.read(100, 20_000) == data[100:20_100]
    target = bytearray(1 << 20)
    buffer.read_into(target, offset=4096)
    assert target == data[4096 : 4096 + (1 << 20)]
    assert gpu.stats()["submissions"] >= before["submissions"] + 4
    assert gpu.stats()[counter] > before[counter]


def test_launches_are_counted_in_queues_and_in_graphs(gpu: GpuDevice):
    program, a = gpu.load(image(gpu), "increment"), gpu.alloc(256)
    a.write(bytes(256))
    before = gpu.stats()["dispatches"]
    q = gpu.queue()
    for _ in range(3):
        q.dispatch(program, [a], block=(64, 1, 1))
    q.fill(a, 0).submit().wait()
    assert gpu.stats()["dispatches"] == before + 3
    graph = (
        gpu.graph("pair").dispatch(program, [a], block=(64, 1, 1)).dispatch(program, [a], block=(64, 1, 1))
    )
    graph.fill(a, 1).dispatch(program, [a], block=(64, 1, 1))
    for _ in range(2):
        graph.replay().wait()
    assert gpu.stats()["dispatches"] == before + 9
    assert gpu.stats()["packets"] > gpu.stats()["submissions"]


def test_a_missing_kernel_is_refused_with_the_names_there_are(gpu: GpuDevice):
    with pytest.raises(
        UsageError, match=r"no kernel 'missing' in the object. Its kernels: .*increment.*scale"
    ):
        gpu.load(image(gpu), "missing")


def test_a_number_that_does_not_fit_its_parameter_is_refused(gpu: GpuDevice):
    program = gpu.load(image(gpu), vendor_of(gpu).own_memory)  # its second parameter is an i32
    out = gpu.alloc(4096)
    for value in (2**40, 2**32, -(2**31) - 1):
        with pytest.raises(UsageError, match=rf"argument 1 is {value}; it does not fit 32 bits"):
            gpu.queue().dispatch(program, [out, value])
    for value in (2**32 - 1, -(2**31)):
        gpu.queue().dispatch(program, [out, value])


def test_the_driver_needs_neither_numpy_nor_llvm():
    import subprocess
    import sys

    code = "import sys, hcq, hcq.amd.graph, hcq.nv.graph; print({'numpy', 'llvmlite', 'hcq.emu'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_profile_is_in_nanoseconds(open_gpu: Open):
    gpu = open_gpu(profile=True)
    increment = gpu.load(image(gpu), "increment")
    a = gpu.alloc(256)
    start = time.monotonic_ns()
    for _ in range(3):
        gpu.run(increment, [a], block=(64, 1, 1))
    profile = observer(gpu, Profile)
    profile.collect()
    calls, total = profile.totals["increment"]
    assert calls == 3
    assert 0 < total < time.monotonic_ns() - start


def test_numbers_of_other_libraries_and_bytes_are_arguments(gpu: GpuDevice):
    import numpy as np

    program = gpu.load(image(gpu), "scale")
    out, a = gpu.alloc(256), gpu.alloc(256)
    a.write(struct.pack("<64f", *[2.0] * 64))
    gpu.run(program, [out, a, np.int64(64), np.float32(3), np.float64(1)], block=(64, 1, 1))
    assert floats(out.read()) == (7.0,) * 64
    gpu.run(program, [out, a, struct.pack("<i", 64), struct.pack("<f", 4), 0.5], block=(64, 1, 1))
    assert floats(out.read()) == (8.5,) * 64
    with pytest.raises(UsageError, match="argument 2 is b'123'"):
        gpu.queue().dispatch(program, [out, a, b"123", 1.0, 1.0], block=(64, 1, 1))


def test_negative_numbers_keep_their_bits(gpu: GpuDevice):
    out = gpu.alloc(64)
    out.write(b"\xff" * 64)
    program = gpu.load(image(gpu), "store_at")
    gpu.run(program, [out.view(32, 32), -16])
    assert words(out.read(16, 4)) == (7,)
