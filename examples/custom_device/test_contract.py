"""OpenCL keeps the contract of a device. To run it: python -m pytest, with the checkout of hcq on PYTHONPATH."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hcq_opencl import api

from hcq.errors import DeviceFault, DriverError, UsageError
from hcq.graph import Symbol
from tests.device_contract import DeviceContract

NUMBERS = b"""
kernel void numbers(global double *out, char a, ushort b, int c, ulong d, float e, double f) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f;
}
"""
FOUR = b"kernel __attribute__((reqd_work_group_size(4, 1, 1))) void four(global int *p) { *p = 1; }"


class TestOpenCl(DeviceContract):
    name = "OPENCL"

    def missing(self) -> str:
        try:
            return "" if api.OpenCl().devices() else api.NONE
        except DriverError as error:
            return str(error)

    def submit_a_fault(self, device: Any) -> Any:
        return device.submit([struct.pack("<I", 0xFF)], [])  # no opcode

    def test_numbers_are_passed_as_the_kernel_declares_them(self, device: Any) -> None:
        out = device.alloc(64)
        program = device.load(NUMBERS, "numbers")
        assert program.args == ("buffer", "int", "int", "int", "int", "float", "float")
        device.run(program, [out, -5, 65535, -(1 << 31), 1 << 40, 0.1, 3])
        assert struct.unpack("<6d", out.read(0, 48)) == (-5, 65535, -(2**31), 2**40, 0.10000000149011612, 3)
        for wrong in (
            [out, 256, 0, 0, 0, 0.0, 0.0],
            [out, 0, 0, 0, 0, 1e39, 0.0],
            [out, 0.5, 0, 0, 0, 0.0, 0.0],
        ):
            with pytest.raises(UsageError, match="argument"):
                device.queue().dispatch(program, wrong)
        words = [Symbol(name, kind) for name, kind in zip("abcdef", program.args[1:])]
        graph = device.graph().dispatch(program, [out, *words])
        for values in ((1, 2, 3, 4, 0.5, 0.25), (-1, 65535, -3, 5, -0.5, 1e300)):
            graph.replay(dict(zip("abcdef", values)))
            assert struct.unpack("<6d", out.read(0, 48)) == values

    def test_what_opencl_refuses_is_a_fault_that_names_its_call(self, careless: Any) -> None:
        program = careless.load(FOUR, "four")
        done = careless.queue().dispatch(program, [careless.alloc(64)], block=(8, 1, 1)).submit()
        with pytest.raises(
            DeviceFault, match=r"clEnqueueNDRangeKernel -> CL_INVALID_WORK_GROUP_SIZE \(-54\)"
        ):
            done.wait()
        careless.run(program, [careless.alloc(64)], block=(4, 1, 1))

    def test_what_the_compiler_says_is_in_the_error(self, device: Any) -> None:
        with pytest.raises(UsageError, match=r"no OpenCL C.*undeclared_name"):
            device.load(b"kernel void k(global int *p) { *p = undeclared_name; }", "k")
        with pytest.raises(UsageError, match="parameter 0 is a int4"):
            device.load(b"kernel void k(int4 v) {}", "k")
