"""Utils: tools of training that are no modules, under PyTorch's names.

In       functions of tensors, data sets
Out      `checkpoint` (values computed again instead of kept), `data` (data sets and batches)
Changes  nothing
Next     checkpoint.py, data.py
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("data", "checkpoint"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
