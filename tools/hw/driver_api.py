"""The vendors' driver interfaces: libcuda's and HIP's few calls that a launch and a copy need, under one set of names.

In       the library, where it is installed; ctypes, which Python brings
Out      DriverApi: load, launch, copy, synchronize; Failure naming a call that was refused
Changes  makes a context in this process
Next     vendor.py (figures), watch.py (what the library asks of the kernel meanwhile)
Source   CUDA Driver API: cuLaunchKernel, cuMemcpyHtoD_v2, ...; HIP's module API, which is the same under other names
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hcq.doctor.check import Failure, Skip


class Names(NamedTuple):
    """What a vendor calls things. calls: ours -> the library's."""

    title: str
    libraries: tuple[str, ...]
    calls: Mapping[str, str]
    look: str


API: dict[str, Names] = {
    "NV": Names(
        "CUDA",
        ("libcuda.so.1", "libcuda.so"),
        {
            "init": "cuInit", "version": "cuDriverGetVersion", "device": "cuDeviceGet",
            "attribute": "cuDeviceGetAttribute", "context": "cuDevicePrimaryCtxRetain", "current": "cuCtxSetCurrent",
            "load": "cuModuleLoadData", "function": "cuModuleGetFunction", "alloc": "cuMemAlloc_v2",
            "free": "cuMemFree_v2", "in": "cuMemcpyHtoD_v2", "out": "cuMemcpyDtoH_v2", "copy": "cuMemcpyDtoD_v2",
            "launch": "cuLaunchKernel", "synchronize": "cuCtxSynchronize",
        },
        "nvidia-smi  # does the vendor's driver work at all?",
    ),
    "AMD": Names(
        "HIP",
        ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"),
        {
            "init": "hipInit", "version": "hipDriverGetVersion", "device": "hipDeviceGet", "select": "hipSetDevice",
            "load": "hipModuleLoadData",
            "function": "hipModuleGetFunction", "alloc": "hipMalloc", "free": "hipFree", "in": "hipMemcpyHtoD",
            "out": "hipMemcpyDtoH", "copy": "hipMemcpyDtoD", "launch": "hipModuleLaunchKernel",
            "synchronize": "hipDeviceSynchronize",
        },
        "rocminfo  # does the vendor's runtime work at all?",
    ),
}  # fmt: skip
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class DriverApi:
    """One vendor's library in this process. Raises Skip where it is not installed."""

    def __init__(self, names: Names, library: Any = None) -> None:
        self.names = names
        self.library = _library(names) if library is None else library
        self.title, self.library_name, self.look = names.title, names.libraries[0], names.look
        self.device = ctypes.c_int()

    def call(self, name: str, *given: Any) -> None:
        """One call. Raises Failure with the status that it answered."""
        spelled = self.names.calls[name]
        try:
            function = getattr(self.library, spelled)
        except AttributeError:
            raise Skip(f"{self.title} has no {spelled} here") from None
        status = function(*given)
        if status:
            raise Failure(f"{spelled} -> {self.title} error {status}.", self.look)

    def open(self, number: int) -> str:
        """Start the runtime on one of the GPUs, as they are numbered from 0: its architecture."""
        self.call("init", 0)
        self.call("device", ctypes.byref(self.device), number)
        if "context" not in self.names.calls:
            self.call("select", number)
            return amd_arch(number)
        context = ctypes.c_void_p()
        self.call("context", ctypes.byref(context), self.device)
        self.call("current", context)
        numbers = []
        for attribute in (MAJOR, MINOR):
            found = ctypes.c_int()
            self.call("attribute", ctypes.byref(found), attribute, self.device)
            numbers.append(found.value)
        return f"sm_{numbers[0]}{numbers[1]}"

    def version(self) -> int:
        """The runtime's version, as it counts."""
        found = ctypes.c_int()
        self.call("version", ctypes.byref(found))
        return found.value

    def load(self, image: bytes) -> ctypes.c_void_p:
        """A module out of machine code."""
        module = ctypes.c_void_p()
        self.call("load", ctypes.byref(module), ctypes.c_char_p(image))
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of a module."""
        found = ctypes.c_void_p()
        self.call("function", ctypes.byref(found), module, ctypes.c_char_p(name.encode()))
        return found

    def alloc(self, size_bytes: int) -> int:
        """Memory of the device: its address."""
        found = ctypes.c_void_p()
        self.call("alloc", ctypes.byref(found), ctypes.c_size_t(size_bytes))
        return found.value or 0

    def launch(self, function: ctypes.c_void_p, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """One launch of a row of blocks."""
        places = (ctypes.c_void_p * max(len(arguments), 1))(*[ctypes.addressof(one) for one in arguments])
        nothing = ctypes.c_void_p()
        self.call("launch", function, blocks, 1, 1, threads, 1, 1, 0, nothing, places, nothing)

    def copy_in(self, dst: int, host: Any, size_bytes: int) -> None:
        """Host to device."""
        self.call("in", ctypes.c_void_p(dst), host, ctypes.c_size_t(size_bytes))

    def copy_out(self, host: Any, src: int, size_bytes: int) -> None:
        """Device to host."""
        self.call("out", host, ctypes.c_void_p(src), ctypes.c_size_t(size_bytes))

    def copy(self, dst: int, src: int, size_bytes: int) -> None:
        """Device to device."""
        self.call("copy", ctypes.c_void_p(dst), ctypes.c_void_p(src), ctypes.c_size_t(size_bytes))

    def synchronize(self) -> None:
        """Until everything is done."""
        self.call("synchronize")


def amd_arch(number: int) -> str:
    """A GPU's architecture, from the kernel's topology: HIP's structure of properties changes its layout."""
    from hcq.amd.chip import arch_of
    from hcq.amd.topology import read_nodes
    from hcq.system.port import LinuxPort

    nodes = read_nodes(LinuxPort())
    if len(nodes) <= number:
        raise Skip(f"the kernel's topology lists {len(nodes)} GPUs")
    return arch_of(nodes[number].gfx_target_version)


def _library(names: Names) -> Any:
    for name in names.libraries:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Skip(f"{names.libraries[0]} is not installed: what {names.title} does is left out")
