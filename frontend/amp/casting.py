"""autocast: what this thread multiplies inside is multiplied in 16 bits, and what needs 32 is computed in 32.

In       a kind of device, a dtype
Out      `autocast`, for `with` and as a decorator
Changes  the mode of the thread
Next     ops/base.py (narrowed: who asks), scaler.py
Source   Micikevicius et al. 2018
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import drop_default_mode, mode_of_thread
from hcq.ir.dtype import DType, dtypes

GPUS = ("AMD", "NV", "METAL")


class autocast(ContextDecorator):
    """Inside, matrix products, convolutions and attention take float32 as `dtype`, and give it.

    device_type   "CPU", "AMD", "NV", "METAL" in any case; "cuda" for every GPU
    dtype         dtypes.bfloat16 (on the CPU unless given) or dtypes.float16 (on GPUs unless given)
    enabled       False for a part that is computed as it stands

    Softmax, norms and losses give float32; float64 and integers stay. Weights keep their dtype, so their gradients do.
    backward() needs no autocast around it.

    >>> x = Tensor([[1.0, 2.0]])
    >>> with hcq.autocast("CPU", dtypes.bfloat16):
    ...     y = x @ x.T
    ...     z = y.softmax(-1)
    >>> y.dtype.name, z.dtype.name
    ('bfloat16', 'float32')
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        if not isinstance(device_type, str):
            raise UsageError(
                f"[autocast] device_type {shown(device_type)}: give 'CPU', 'AMD', 'NV', ... or 'cuda'."
            )
        if dtype not in (None, dtypes.float16, dtypes.bfloat16):
            raise UsageError(f"[autocast] dtype {shown(dtype)}: use dtypes.bfloat16 or dtypes.float16.")
        name = device_type.upper()
        self.kinds = GPUS if name == "CUDA" else (devices.canonical(name).partition(":")[0],)
        self.dtype = dtype or (dtypes.bfloat16 if self.kinds == ("CPU",) else dtypes.float16)
        self.enabled = bool(enabled)
        self._before: list[dict[str, DType]] = []

    def __enter__(self) -> autocast:
        mode = mode_of_thread()
        self._before.append(mode.autocast)
        others = {kind: dtype for kind, dtype in mode.autocast.items() if kind not in self.kinds}
        mode.autocast = {**others, **dict.fromkeys(self.kinds, self.dtype)} if self.enabled else others
        return self

    def __exit__(self, *error: Any) -> None:
        mode_of_thread().autocast = self._before.pop()
        drop_default_mode()


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` takes this kind of device: it takes every kind that there is.

    >>> hcq.torch.amp.is_autocast_available("cpu"), hcq.torch.amp.is_autocast_available("abacus")
    (True, False)
    """
    if not isinstance(device_type, str):
        raise UsageError(
            f"[is_autocast_available] {shown(device_type)}: give 'CPU', 'AMD', 'NV', ... or 'cuda'."
        )
    return device_type.upper() in ("CPU", "CUDA", *GPUS)
