"""WebGPU keeps the contract of a device. To run it: python -m pytest, with the checkout of hcq on PYTHONPATH."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hcq_webgpu import api

from hcq.errors import DriverError, UsageError
from hcq.graph import Symbol
from tests.device_contract import DeviceContract

NUMBERS = b"""
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<uniform> a: i32;
@group(0) @binding(2) var<uniform> b: u32; /* @group(0) @binding(3) var<uniform> no: f64; */
@group(0) @binding(3) var<uniform> c: f32;
// fn numbers(
@compute @workgroup_size(1) fn numbers() { out[0] = f32(a); out[1] = f32(b); out[2] = c; }
"""
ROWS = b"""
const ROW = 100u;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(2) fn rows(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let group = id.y * ROW + id.x;
  if (group < 350u) { out[2u * group + t] = group + 1u; }
}
"""
ONE = b"""
@group(0) @binding(0) var<storage, read_write> p: array<u32>;
@compute @workgroup_size(4) fn one() { p[0] = 1u; }
"""


class TestWebGpu(DeviceContract):
    name = "WEBGPU"

    def missing(self) -> str:
        try:
            return "" if api.adapters() else api.NONE
        except DriverError as error:
            return str(error)

    def submit_a_fault(self, device: Any) -> Any:
        return device.submit([struct.pack("<I", 0xFF0001)], [])  # no opcode

    def test_numbers_are_passed_as_the_kernel_declares_them(self, device: Any) -> None:
        out = device.alloc(64)
        program = device.load(NUMBERS, "numbers")
        assert program.args == ("buffer", "int", "int", "float")
        device.run(program, [out, -5, 1 << 31, 0.1])
        assert struct.unpack("<3f", out.read(0, 12)) == (-5, 2**31, 0.10000000149011612)
        for wrong in ([out, 1 << 32, 0, 0.0], [out, 0, 0, 1e39], [out, 0.5, 0, 0.0]):
            with pytest.raises(UsageError, match="argument"):
                device.queue().dispatch(program, wrong)
        symbols = [Symbol(name, kind) for name, kind in zip("abc", program.args[1:])]
        graph = device.graph().dispatch(program, [out, *symbols])
        for values in ((1, 2, 0.5), (-7, 4, -0.25)):
            graph.replay(dict(zip("abc", values)))
            assert struct.unpack("<3f", out.read(0, 12)) == values

    def test_more_groups_than_a_dimension_has_are_launched_in_rows(self, device: Any) -> None:
        out = device.alloc(4 * 1000)
        device.queue().fill(out, 0).submit()
        device.run(device.load(ROWS, "rows"), [out], (350, 1, 1), (2, 1, 1))
        expected = [number // 2 + 1 for number in range(700)] + [0] * 300
        assert list(struct.unpack("<1000I", out.read())) == expected
        with pytest.raises(UsageError, match="65535 groups in a dimension"):
            device.queue().dispatch(device.load(ONE, "one"), [out], (70_000, 1, 1), (4, 1, 1))

    def test_a_kernels_buffer_begins_where_the_adapter_lets_it(self, device: Any) -> None:
        program, out = device.load(ONE, "one"), device.alloc(256)
        device.run(program, [out.view(device.binding_alignment, 64)], block=(4, 1, 1))
        assert out.read(device.binding_alignment, 4) == b"\1\0\0\0"
        with pytest.raises(UsageError, match="begin at multiples of"):
            device.queue().dispatch(program, [out.view(4, 64)], block=(4, 1, 1))
        with pytest.raises(UsageError, match="a kernel takes buffers of alloc"):
            device.queue().dispatch(program, [device.visible(64, "seen")], block=(4, 1, 1))

    def test_the_host_sees_no_buffer_but_reads_and_writes_it(self, device: Any) -> None:
        buffer = device.alloc(64)
        with pytest.raises(UsageError, match="does not see WebGPU's memory"):
            _ = buffer.host
        assert device.visible(64, "seen").host.nbytes == 64

    def test_copies_and_fills_reach_memory_that_the_host_sees(self, device: Any) -> None:
        seen, buffer = device.visible(64, "seen"), device.alloc(64)
        device.queue().fill(seen, 0x41, 62, 1, 1).copy(buffer, seen).submit().wait()
        assert buffer.read(1, 62) == b"A" * 62
        device.queue().fill(buffer, 0x42).copy(seen, buffer, 7, 5, 3).submit().wait()
        assert bytes(seen.host[:14]) == bytes(seen.host[:1]) + b"AAAA" + b"B" * 7 + b"AA"

    @pytest.mark.parametrize(("to", "source"), [(to, source) for to in range(4) for source in range(4)])
    def test_bytes_move_between_any_places_in_words(self, device: Any, to: int, source: int) -> None:
        a, b = device.alloc(1 << 16), device.alloc(1 << 16)  # areas of their own
        data, other = random.Random(1).randbytes(64), random.Random(2).randbytes(64)
        for size in (1, 2, 3, 4, 5, 7, 8, 31):
            a.write(data)
            b.write(other)
            device.queue().copy(b, a, size, 8 + to, 4 + source).submit().wait()
            moved = data[4 + source : 4 + source + size]
            assert b.read(0, 64) == other[: 8 + to] + moved + other[8 + to + size :]

    def test_what_cannot_be_a_kernel_is_refused_with_a_reason(self, device: Any) -> None:
        entry = b"@compute @workgroup_size(1) fn k() {}"
        for source, match in (
            (
                b"@group(0) @binding(0) var<storage, read> p: array<u32>;" + entry,
                "Declare it var<storage, read_write>",
            ),
            (b"@group(0) @binding(1) var<uniform> p: u32;" + entry, "number them from"),
            (b"@group(0) @binding(0) var<uniform> p: vec2<u32>;" + entry, "A kernel takes"),
            (b"const N = 4; @compute @workgroup_size(N) fn k() {}", "as one to three numbers"),
            (b"fn k() {}", "no entry point"),
            (b"@compute @workgroup_size(1) fn k() { undeclared(); }", "Its compiler: .*undeclared"),
            (b"\xff", "is text"),
        ):
            with pytest.raises(UsageError, match=f"(?s){match}"):
                device.load(source, "k")
        with pytest.raises(UsageError, match="@workgroup_size is"):
            device.queue().dispatch(device.load(ONE, "one"), [device.alloc(64)])
