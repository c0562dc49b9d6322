"""Settings: what PyTorch's programs set or ask of the library as a whole, under its names.

In       a dtype, a device, a number
Out      compile, get_default_dtype, get_num_threads, memory formats, is_autocast_enabled, ...
Changes  set_default_device, set_default_dtype: refused unless they say what holds anyway
Next     ../functions/__init__.py (who asks), rows.py (settings with nothing behind them),
         docs/environment.md (the switches that there are)
"""

from __future__ import annotations

import os
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import autocast_dtype
from hcq.frontend.core.device import Word
from hcq.ir.dtype import DType, dtypes


class MemoryFormat:
    """An order of elements in memory: may be given where PyTorch takes one, and has no effect. Rows are the order.

    >>> hcq.channels_last
    hcq.channels_last
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"hcq.{self._name}"


memory_format = MemoryFormat
contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")


class Layout:
    """How elements are kept: there is one way, strided.

    >>> hcq.strided
    hcq.strided
    """

    def __repr__(self) -> str:
        return "hcq.strided"


layout = Layout
strided = Layout()


def compile(model: Any = None, **options: Any) -> Any:
    """The function or module as it is: its operators are compiled in any case. `hcq.jit` records what they submit.

    options   fullgraph, dynamic, backend, mode, options, disable: may be given, and have no effect

    >>> net = nn.Linear(2, 1)
    >>> hcq.compile(net, mode="max-autotune") is net
    True
    """
    if model is None:
        return lambda function: function
    if not callable(model):
        raise UsageError(f"[compile] {shown(model)}: give a function or a module.")
    return model


def get_default_dtype() -> DType:
    """float32: the dtype of Python's floats.

    >>> hcq.get_default_dtype()
    dtypes.float32
    """
    return dtypes.float32


def set_default_dtype(d: DType) -> None:
    """float32 is the dtype of Python's floats, always. Raises UsageError for another.

    >>> hcq.set_default_dtype(hcq.float32)
    """
    if d is not dtypes.float32:
        raise UsageError(
            f"[set_default_dtype] {shown(d)}: Python's floats become float32. Give dtype=, or convert: model.double()."
        )


def get_default_device() -> Word:
    """The device that tensors are made on when none is named: HCQ_DEVICE.

    >>> hcq.get_default_device() == Tensor([1.0]).device
    True
    """
    return devices.default()


def set_default_device(device: str | None) -> None:
    """HCQ_DEVICE says the default. Raises UsageError for another device.

    >>> hcq.set_default_device(hcq.get_default_device())
    """
    if device is not None and devices.canonical(device) != devices.default():
        raise UsageError(
            f"[set_default_device] {device!r}: the default is {devices.default()}, which HCQ_DEVICE sets for the whole "
            "process. Name the device where tensors are made: device=."
        )


def get_num_threads() -> int:
    """Threads of the CPU device.

    >>> hcq.get_num_threads() >= 1
    True
    """
    return int(devices.get(devices.canonical("CPU")).config.threads or os.cpu_count() or 1)


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether this thread is inside autocast() for a kind of device, a GPU unless given.

    >>> with hcq.autocast("CPU"):
    ...     hcq.is_autocast_enabled("cpu")
    True
    """
    return _autocast(device_type) is not None


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`.

    >>> hcq.is_autocast_cpu_enabled()
    False
    """
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> DType:
    """What products are computed in inside of autocast() there.

    >>> hcq.get_autocast_dtype("cpu")
    dtypes.bfloat16
    """
    return _autocast(device_type) or (dtypes.bfloat16 if device_type.lower() == "cpu" else dtypes.float16)


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`.

    >>> hcq.get_autocast_gpu_dtype()
    dtypes.float16
    """
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`.

    >>> hcq.get_autocast_cpu_dtype()
    dtypes.bfloat16
    """
    return get_autocast_dtype("cpu")


def _autocast(device_type: str | None) -> DType | None:
    word = (device_type or "cuda").lower()
    kinds = ("NV", "AMD") if word == "cuda" else ("METAL",) if word == "mps" else (word.upper(),)
    return next((found for found in map(autocast_dtype, kinds) if found is not None), None)


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`, as a function."""
    assert condition, message


def typename(obj: Any) -> str:
    """The name of an object's type, with its module.

    >>> hcq.typename(Tensor([1.0]))
    'hcq.frontend.tensor.Tensor'
    """
    return f"{type(obj).__module__}.{type(obj).__qualname__}"
