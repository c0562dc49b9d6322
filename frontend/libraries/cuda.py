"""cuda: switches of products and attention on NVIDIA's GPUs. They may be set, and say nothing.

In       assignments
Out      matmul.allow_tf32, enable_flash_sdp, ...: products are of the dtypes that they are given
Changes  nothing
Next     __init__.py; ../cuda/ (hcq.cuda)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Matmul:
    """Flags of matrix products.

    >>> hcq.backends.cuda.matmul.allow_tf32
    False
    """

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False


matmul = Matmul()


def is_built() -> bool:
    """Whether GPUs of NVIDIA and AMD can be used, on a machine that has one: they can.

    >>> hcq.backends.cuda.is_built()
    True
    """
    return True


def enable_flash_sdp(enabled: bool) -> None:
    """May be called and says nothing: attention is compiled from its definition.

    >>> hcq.backends.cuda.enable_flash_sdp(True)
    """


enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp


@contextmanager
def sdp_kernel(*args: Any, **kwargs: Any) -> Iterator[None]:
    """May be entered and says nothing: attention is compiled from its definition.

    >>> with hcq.backends.cuda.sdp_kernel(enable_flash=True):
    ...     pass
    """
    yield
