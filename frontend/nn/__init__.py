"""nn: layers, their state, and the optimizers, under PyTorch's names.

In       tensors
Out      `Module` and the layers; `nn.functional`, `nn.init`, `nn.optim`, `nn.utils`; `nn.save_file`, `nn.load_file`
Changes  nothing by itself; a layer in training mode may update its running statistics
Next     module.py (what a layer is), layers/, ../optim/ (how parameters move), examples/digits.py (a training run)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hcq import lazy_module
from hcq.frontend import FORMER as _FORMER
from hcq.frontend.io.safetensors import load_file, save_file
from hcq.frontend.nn import functional, init, utils
from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.late import Unknown

# a file -> its classes: it is imported when one is first asked for
LATE = {
    "module": "Module",
    "parameter": "Buffer Parameter",
    "uninitialized": "UninitializedParameter UninitializedBuffer",
    "containers": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "layers.activation": (
        "CELU ELU GELU GLU SELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax "
        "Mish PReLU ReLU ReLU6 RReLU Sigmoid SiLU Softmax Softmax2d Softmin Softplus Softshrink Softsign "
        "Tanh Tanhshrink Threshold"
    ),
    "layers.adaptive": "AdaptiveLogSoftmaxWithLoss",
    "layers.attention": "MultiheadAttention",
    "layers.cells": "GRUCell LSTMCell RNNCell RNNCellBase",
    "layers.convolution": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "layers.distance": "CosineSimilarity PairwiseDistance",
    "layers.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "layers.embedding": "Embedding EmbeddingBag",
    "layers.lazy": (
        "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d "
        "LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "layers.linear": "Bilinear Identity Linear",
    "layers.norm": (
        "BatchNorm BatchNorm1d BatchNorm2d BatchNorm3d CrossMapLRN2d GroupNorm InstanceNorm1d "
        "InstanceNorm2d InstanceNorm3d LayerNorm LocalResponseNorm RMSNorm SyncBatchNorm"
    ),
    "layers.padding": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d "
        "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d "
        "ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d"
    ),
    "layers.pooling": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d "
        "LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
    "layers.recurrent": "GRU LSTM RNN RNNBase",
    "layers.shapes": (
        "ChannelShuffle Flatten Fold PixelShuffle PixelUnshuffle Unflatten Unfold Upsample "
        "UpsamplingBilinear2d UpsamplingNearest2d"
    ),
    "layers.transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
    ),
    "losses": (
        "BCELoss BCEWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss CTCLoss GaussianNLLLoss "
        "HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MarginRankingLoss MSELoss "
        "MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss "
        "SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "parallel": "DataParallel",
}

if TYPE_CHECKING:  # as LATE has them
    from hcq.frontend.nn.containers import *
    from hcq.frontend.nn.layers.activation import *
    from hcq.frontend.nn.layers.adaptive import *
    from hcq.frontend.nn.layers.attention import *
    from hcq.frontend.nn.layers.cells import *
    from hcq.frontend.nn.layers.convolution import *
    from hcq.frontend.nn.layers.distance import *
    from hcq.frontend.nn.layers.dropout import *
    from hcq.frontend.nn.layers.embedding import *
    from hcq.frontend.nn.layers.lazy import *
    from hcq.frontend.nn.layers.linear import *
    from hcq.frontend.nn.layers.norm import *
    from hcq.frontend.nn.layers.padding import *
    from hcq.frontend.nn.layers.pooling import *
    from hcq.frontend.nn.layers.recurrent import *
    from hcq.frontend.nn.layers.shapes import *
    from hcq.frontend.nn.layers.transformer import *
    from hcq.frontend.nn.losses import *
    from hcq.frontend.nn.module import *
    from hcq.frontend.nn.parallel import *
    from hcq.frontend.nn.parameter import *
    from hcq.frontend.nn.uninitialized import *
else:
    __all__ = [  # noqa: PLE0604
        *" ".join(LATE.values()).split(),
        "load_file",
        "save_file",
        "functional",
        "init",
        "optim",  # noqa: F405
        "utils",
    ]


__getattr__, __dir__ = lazy_module.late_names(
    __name__,
    LATE,
    ("modules", "attention", "optim"),
    refuse=lambda name: Unknown(sys.modules[__name__], name, "module 'hcq.nn' has no attribute or layer"),
    finish=lambda layer: check_methods(layer, "__init__"),
)
for _name, _place in _FORMER.items():
    if _name.startswith("nn."):
        lazy_module.stands_for("hcq.frontend", _name, _place)
del _name, _place
