"""Custom: the forward and backward of a function of one's own inside autocast.

In       static methods of an autograd.Function
Out      `custom_fwd`, `custom_bwd`: decorators
Changes  nothing but the mode of the thread while they run
Next     casting.py, ../autograd/custom.py (such functions)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.amp.casting import autocast
from hcq.frontend.core.base import autocast_dtype
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """A decorator of forward: its float tensors become `cast_inputs`, and it computes in that; None leaves them.

    It does so inside of autocast alone; backward, with `custom_bwd`, computes as forward did.

    >>> class Square(hcq.torch.autograd.Function):
    ...     @staticmethod
    ...     @hcq.torch.amp.custom_fwd(device_type="cpu", cast_inputs=hcq.float32)
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x @ x
    ...
    ...     @staticmethod
    ...     @hcq.torch.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g @ x.T + x.T @ g
    >>> with hcq.autocast("cpu", hcq.bfloat16):
    ...     Square.apply(Tensor([[1.0]])).dtype.name
    'float32'
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    kinds = _kinds("custom_fwd", fwd, device_type)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        inside = next(filter(None, (autocast_dtype(kind) for kind in kinds)), None)
        ctx._autocast = None if cast_inputs is not None else inside
        if cast_inputs is None or inside is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, cast_inputs), **_cast(kwargs, cast_inputs))

    return forward


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """A decorator of backward, which then computes as a forward with `custom_fwd` did.

    >>> hcq.torch.amp.custom_bwd(lambda ctx, g: g * 2, device_type="cpu")(hcq.nn.Identity(), Tensor([1.0])).tolist()
    [2.0]
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    _kinds("custom_bwd", bwd, device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = getattr(ctx, "_autocast", None)
        with autocast(device_type, dtype, enabled=dtype is not None):
            return bwd(ctx, *args, **kwargs)

    return backward


def _kinds(call: str, function: Callable[..., Any], device_type: str) -> tuple[str, ...]:
    if not callable(function):
        raise UsageError(
            f"[{call}] {shown(function)}: it is put before a function, as @{call}(device_type='cpu')."
        )
    return autocast(device_type).kinds


def _cast(value: Any, dtype: DType) -> Any:
    """The same with float tensors of another dtype; float64 stays."""
    if isinstance(value, Tensor):
        return value.cast(dtype) if value.dtype.is_float and value.dtype.itemsize < 8 else value
    if isinstance(value, dict):
        return {key: _cast(each, dtype) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_cast(each, dtype) for each in value)
    return value
