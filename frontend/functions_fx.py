"""hcq.fx: what libraries of models ask of torch.fx when they are imported. Nothing is traced.

In       functions
Out      wrap, which gives the function as it is; symbolic_trace, which is refused
Changes  nothing
Next     docs/passes.md (the graphs that there are, and how they print)
"""

from __future__ import annotations

from typing import Any, TypeVar

from hcq.errors import UsageError

T = TypeVar("T")


class Proxy:
    """What a tensor is while torch.fx traces. There are none.

    >>> isinstance(Tensor([1.0]), hcq.fx.Proxy)
    False
    """


def wrap(fn_or_name: T) -> T:
    """The function, or its name, as it is: a tracer that is not here would leave it whole.

    >>> hcq.fx.wrap(len) is len
    True
    """
    return fn_or_name


def symbolic_trace(root: Any, *args: Any, **kwargs: Any) -> Any:
    """Refused: operators build a graph themselves.

    >>> hcq.fx.symbolic_trace(nn.ReLU())
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [fx.symbolic_trace] operators build ...
    """
    raise UsageError(
        "[fx.symbolic_trace] operators build graphs of tensors here, which HCQ_DEBUG=schedule prints; no graph of "
        "Python is made. Change the module itself."
    )
