"""attention: PyTorch's choice between implementations of attention. There is one here: what its definition compiles to.

In       the names of implementations
Out      `SDPBackend`, `sdpa_kernel`, which may be entered, and have no effect
Next     ops/attention.py (scaled_dot_product_attention)
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SDPBackend(enum.Enum):
    """Names of implementations.

    >>> nn.attention.SDPBackend.MATH.name
    'MATH'
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """May be entered, and has no effect: attention is compiled from its definition.

    >>> with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
    ...     pass
    """
    yield
