"""The API: wgpu's adapters, what one must be able to do for us, and the calls that differ from WebGPU's text.

In       the number of an adapter
Out      `Gpu`: an open WebGPU device, its queue and limits
Changes  what the calls change; the first of them loads wgpu and starts its Vulkan, Metal or Direct3D 12
Next     device.py (who opens it), commands.py (who records work)
Source   WebGPU (W3C): GPUAdapter, GPUSupportedLimits, GPUQueue; wgpu-py 0.32, wgpu-native's features

Software adapters will do. OpenGL's are not asked for: they have no 64-bit integers.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from hcq.errors import DriverError

INT64, FLOAT64 = (
    "shader-int64",
    "shader-f64",
)  # wgpu-native's, not WebGPU's; hcq's integers have 64 bits by default
BUFFERS = 24  # storage buffers of a kernel, see codegen.py
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
    "min-uniform-buffer-offset-alignment",
)
INSTALL = (
    "Install wgpu (pip install wgpu) and a driver, such as Mesa's for the CPU (apt install mesa-vulkan-drivers "
    "libvulkan1)."
)
NONE = f"No adapter of WebGPU here has 64-bit integers and {BUFFERS} storage buffers for a kernel. {INSTALL}"


def library() -> Any:
    """The wgpu package, which loads wgpu-native.

    Raises  DriverError where it is not installed, and in a child of fork, where the threads of its drivers are missing
    """
    wgpu, process = _loaded()
    if process != os.getpid():
        raise DriverError(
            "import wgpu: the parent of this process has used WebGPU, and a fork has none of its drivers' threads. "
            'Start a process of its own, as multiprocessing does by "spawn".'
        )
    return wgpu


@functools.cache
def _loaded() -> tuple[Any, int]:
    """The package, and the process that loaded it."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native import extras
    except (ImportError, OSError) as error:
        raise DriverError(f"import wgpu: {error}. {INSTALL}") from None
    try:
        extras.set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
    except RuntimeError:
        pass  # somebody used it before us: then OpenGL's adapters are found, and passed over
    return wgpu, os.getpid()


def adapters() -> list[Any]:
    """The adapters that can be a device of ours, in the order in which wgpu lists them."""
    return [adapter for adapter in library().gpu.enumerate_adapters_sync() if _serves(adapter)]


def _serves(adapter: Any) -> bool:
    is_able = INT64 in adapter.features and adapter.info["backend_type"] != "OpenGL"
    return is_able and adapter.limits["max-storage-buffers-per-shader-stage"] >= BUFFERS


class Gpu:
    """One open device of WebGPU.

    limits       what was granted, by WebGPU's names in lower case, with dashes
    has_float64  whether kernels may compute in it
    error        what calls of wgpu raise for what they refuse
    """

    def __init__(self, index: int) -> None:
        found = adapters()
        if index >= len(found):
            raise DriverError(f"enumerate_adapters: {len(found)} that serve. {NONE}")
        adapter, wgpu = found[index], library()
        self.error: type[Exception] = wgpu.GPUError
        self.has_float64 = FLOAT64 in adapter.features
        try:
            self.device = adapter.request_device_sync(
                required_features=[INT64, *([FLOAT64] if self.has_float64 else [])],
                required_limits={name: adapter.limits[name] for name in LIMITS},
            )
        except (wgpu.GPUError, RuntimeError) as error:
            raise DriverError(f"requestDevice on {adapter.info['device']}: {error}") from None
        self.model = str(adapter.info["device"])
        self.driver = (
            f"wgpu {wgpu.__version__}, {adapter.info['backend_type']}, {adapter.info['description']}"
        )
        self.limits = {name: int(self.device.limits[name]) for name in LIMITS}
        self.queue = self.device.queue
        self.storage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        self.uniform = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        self.compute = wgpu.ShaderStage.COMPUTE

    def make_buffer(self, size_bytes: int, usage: int) -> Any:
        """A new buffer. Raises DriverError when there is no memory for it, or the adapter allows no such size."""
        most = self.limits["max-buffer-size"]
        try:
            if size_bytes > most:
                raise self.error(f"this adapter's buffers have {most} bytes at most")
            return self.device.create_buffer(size=size_bytes, usage=usage)
        except self.error as error:
            raise DriverError(f"createBuffer({size_bytes} bytes): {error}. Use smaller buffers.") from None

    def finish(self) -> None:
        """Return once all that was submitted is done."""
        # wgpu-py's own way; on_submitted_work_done_sync, which is public, raises TypeError in 0.32
        self.device._poll_wait()

    def close(self) -> None:
        """Give the device back; its buffers go with it."""
        self.device.destroy()
