"""Functions of tensors under PyTorch's names: `F.relu(x)` is `x.relu()`.

In       tensors
Out      the methods of Tensor as functions, and `dropout`, which has no method
Changes  nothing
Next     hcq/frontend/functions.py (how a method becomes a function), layers.py (the same as modules)
"""

from __future__ import annotations

from typing import Any

from hcq.errors import UsageError
from hcq.frontend.arguments import checked
from hcq.frontend.function import constant_in
from hcq.frontend.functions import function_of
from hcq.frontend.tensor import Tensor

METHODS = (
    "relu relu6 leaky_relu elu selu gelu silu mish sigmoid tanh softplus softsign hardtanh hardsigmoid "
    "hardswish logsigmoid softmax log_softmax softmin linear embedding one_hot conv1d conv2d conv3d "
    "conv_transpose2d max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool2d layer_norm rms_norm "
    "group_norm instance_norm normalize cosine_similarity scaled_dot_product_attention pad mse_loss l1_loss "
    "huber_loss smooth_l1_loss kl_div nll_loss celu glu prelu hardshrink softshrink tanhshrink threshold "
    "cross_entropy binary_cross_entropy binary_cross_entropy_with_logits max_pool3d avg_pool3d "
    "adaptive_avg_pool1d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "max_unpool1d max_unpool2d max_unpool3d conv_transpose1d conv_transpose3d pixel_shuffle pixel_unshuffle "
    "channel_shuffle local_response_norm interpolate soft_margin_loss hinge_embedding_loss poisson_nll_loss "
    "gaussian_nll_loss multilabel_soft_margin_loss multi_margin_loss margin_ranking_loss cosine_embedding_loss "
    "triplet_margin_loss triplet_margin_with_distance_loss pairwise_distance pdist"
).split()


@checked
def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """In training, each element becomes zero with probability p and the others grow by 1 / (1 - p); else x itself.

    Raises  UsageError for p outside 0 to 1
    """
    if not 0.0 <= p <= 1.0:
        raise UsageError(f"[dropout] p {p}: a probability is between 0 and 1.")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return constant_in(x, x.zeros_like())
    keep = x.bernoulli(x.shape, p=1.0 - p, device=x.device)
    return keep.where(x * (1.0 / (1.0 - p)), 0.0)


def __getattr__(name: str) -> Any:
    if name not in METHODS:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    function = function_of(name)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted([*METHODS, "dropout"])
