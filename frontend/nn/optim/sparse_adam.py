"""Sparse Adam: a name of PyTorch's, which says what to use here instead.

In       parameters
Out      an error
Changes  nothing
Next     adam.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn.optim.optimizer import Optimizer


class SparseAdam(Optimizer):
    """Refused: gradients are dense here, and an embedding's, too. Adam moves them; a row without a gradient decays.

    >>> hcq.optim.SparseAdam([Tensor([1.0], requires_grad=True)])
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [SparseAdam] gradients are dense here: use Adam.
    """

    def __init__(self, params: Iterable[Any], *options: Any, **named: Any):
        raise UsageError("[SparseAdam] gradients are dense here: use Adam.")
