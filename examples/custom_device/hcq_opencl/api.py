"""The calls of OpenCL that we make, by cffi in ABI mode: declared here, found in the library, checked.

In       names of calls and their arguments; text, numbers and addresses
Out      `OpenCl`: its functions, each refusal a DriverError that names the call and the error
Changes  what the calls change
Next     device.py (who opens it), processor.py (who enqueues)
Source   OpenCL 3.0 API specification: prototypes, error codes, CL_DEVICE_*; OpenCL ICD: libOpenCL.so.1
"""

from __future__ import annotations

from typing import Any

import cffi

from hcq.errors import DriverError

LIBRARY = "libOpenCL.so.1"
DECLARED = """
int clGetPlatformIDs(uint32_t, void **, uint32_t *);
int clGetDeviceIDs(void *, uint64_t, uint32_t, void **, uint32_t *);
int clGetDeviceInfo(void *, uint32_t, size_t, void *, size_t *);
void *clCreateContext(void *, uint32_t, void **, void *, void *, int *);
int clReleaseContext(void *);
void *clCreateCommandQueueWithProperties(void *, void *, void *, int *);
int clReleaseCommandQueue(void *);
void *clSVMAlloc(void *, uint64_t, size_t, uint32_t);
void clSVMFree(void *, void *);
void *clCreateProgramWithSource(void *, uint32_t, char **, size_t *, int *);
int clBuildProgram(void *, uint32_t, void **, char *, void *, void *);
int clGetProgramBuildInfo(void *, void *, uint32_t, size_t, void *, size_t *);
int clReleaseProgram(void *);
void *clCreateKernel(void *, char *, int *);
int clGetKernelInfo(void *, uint32_t, size_t, void *, size_t *);
int clGetKernelArgInfo(void *, uint32_t, uint32_t, size_t, void *, size_t *);
int clSetKernelArg(void *, uint32_t, size_t, void *);
int clSetKernelArgSVMPointer(void *, uint32_t, void *);
int clReleaseKernel(void *);
int clEnqueueNDRangeKernel(void *, void *, uint32_t, size_t *, size_t *, size_t *, uint32_t, void **, void **);
int clEnqueueSVMMemcpy(void *, uint32_t, void *, void *, size_t, uint32_t, void **, void **);
int clEnqueueSVMMemFill(void *, void *, void *, size_t, size_t, uint32_t, void **, void **);
int clEnqueueMarkerWithWaitList(void *, uint32_t, void **, void **);
int clFlush(void *);
int clWaitForEvents(uint32_t, void **);
int clReleaseEvent(void *);
"""
ERRORS = {
    -1: "CL_DEVICE_NOT_FOUND",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY",
    -8: "CL_MEM_COPY_OVERLAP",
    -11: "CL_BUILD_PROGRAM_FAILURE",
    -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    -30: "CL_INVALID_VALUE",
    -46: "CL_INVALID_KERNEL_NAME",
    -52: "CL_INVALID_KERNEL_ARGS",
    -54: "CL_INVALID_WORK_GROUP_SIZE",
    -1001: "CL_PLATFORM_NOT_FOUND_KHR",
}
ALL_KINDS = 0xFFFFFFFF  # CL_DEVICE_TYPE_ALL
DEVICE_NAME, DRIVER_VERSION, GROUP_SIZE, SVM_CAPABILITIES = 0x102B, 0x102D, 0x1004, 0x1053  # CL_DEVICE_*
FINE_GRAIN = 1 << 1  # CL_DEVICE_SVM_FINE_GRAIN_BUFFER
INSTALL = "Install one, such as PoCL (apt install pocl-opencl-icd ocl-icd-libopencl1)."
NONE = f"No device of OpenCL here shares fine-grained memory with the host. {INSTALL}"


class OpenCl:
    """The library. `call` makes those that return an error, `create` those that return an object."""

    def __init__(self) -> None:
        self.ffi = cffi.FFI()
        self.ffi.cdef(DECLARED)
        try:
            self.library = self.ffi.dlopen(LIBRARY)
        except OSError:
            raise DriverError(f"dlopen({LIBRARY}): there is no OpenCL loader. {INSTALL}") from None

    def call(self, name: str, *arguments: Any) -> None:
        """Make a call. Raises DriverError with its name and what it returned."""
        error = getattr(self.library, name)(*arguments)
        if error:
            raise refused(name, error)

    def create(self, name: str, *arguments: Any) -> Any:
        """Make a call whose last parameter is where the error goes."""
        error = self.ffi.new("int *")
        made = getattr(self.library, name)(*arguments, error)
        if error[0]:
            raise refused(name, error[0])
        return made

    def pointer(self, va: int) -> Any:
        """An address as the calls take it."""
        return self.ffi.cast("void *", va)

    def number(self, name: str, *arguments: Any) -> int:
        """What a clGet...Info call says, as an integer of at most 64 bits."""
        found = self.ffi.new("uint64_t *")
        self.call(name, *arguments, 8, found, self.ffi.NULL)
        return int(found[0])

    def text(self, name: str, *arguments: Any) -> str:
        """What a clGet...Info call says, as text."""
        size = self.ffi.new("size_t *")
        self.call(name, *arguments, 0, self.ffi.NULL, size)
        found = self.ffi.new("char[]", max(1, size[0]))
        self.call(name, *arguments, size[0], found, self.ffi.NULL)
        return self.ffi.string(found).decode("utf-8", "replace").strip()

    def devices(self) -> list[Any]:
        """Every device of every platform that host and kernels can share memory with as they run.

        Raises  DriverError when there is no platform
        """
        platforms, found = self.ffi.new("void *[16]"), self.ffi.new("void *[16]")
        count = self.ffi.new("uint32_t *")
        made: list[Any] = []
        self.call("clGetPlatformIDs", 16, platforms, count)
        for platform in list(platforms)[: min(16, count[0])]:
            if self.library.clGetDeviceIDs(platform, ALL_KINDS, 16, found, count) == 0:
                made += list(found)[: min(16, count[0])]
        return [device for device in made if self._shares_memory(device)]

    def _shares_memory(self, device: Any) -> bool:
        said = self.ffi.new("uint64_t *")  # OpenCL 1.x refuses the question
        error = self.library.clGetDeviceInfo(device, SVM_CAPABILITIES, 8, said, self.ffi.NULL)
        return error == 0 and bool(said[0] & FINE_GRAIN)


def refused(name: str, error: int) -> DriverError:
    """The error for a call that came back with one."""
    fix = f" {INSTALL}" if error == -1001 else ""
    return DriverError(f"{name} -> {ERRORS.get(error, 'error')} ({error}).{fix}")
