"""Functions of tensors whose axes stand in another order, and of channels that change theirs.

In       tensors
Out      conv_tbc, native_channel_shuffle
Next     functional.py (where they are found), ops/window.py (conv1d)
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor


@checked
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of (time, batch, channels) and a weight (size, channels, out), with `pad` zeros on both sides of the time.

    >>> nn.functional.conv_tbc(Tensor.ones(5, 2, 3), Tensor.ones(3, 3, 4), Tensor.zeros(4), pad=1).shape
    (5, 2, 4)
    """
    if input.ndim != 3 or weight.ndim != 3 or input.shape[2] != weight.shape[1]:
        raise UsageError(
            f"[conv_tbc] {input.shape} and weight {weight.shape}: give (time, batch, channels) and (size, channels, "
            "out)."
        )
    found = input.permute(1, 2, 0).conv1d(weight.permute(2, 1, 0), bias, padding=pad)
    return found.permute(2, 0, 1)


@checked
def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`channel_shuffle`, under the name of PyTorch's operator.

    >>> nn.functional.native_channel_shuffle(Tensor([[[1.0], [2.0], [3.0], [4.0]]]), 2).flatten().tolist()
    [1.0, 3.0, 2.0, 4.0]
    """
    return input.channel_shuffle(groups)
