"""nn: layers, their state, and the optimizers, under PyTorch's names.

In       tensors
Out      `Module` and the layers; `nn.functional`, `nn.init`, `nn.optim`, `nn.utils`; `nn.save_file`, `nn.load_file`
Changes  nothing by itself; a layer in training mode may update its running statistics
Next     module.py (what a layer is), layers/, optim/ (how parameters move), examples/digits.py (a whole training run)
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from hcq.frontend.arguments import check_methods
from hcq.frontend.late import Unknown
from hcq.frontend.nn import functional, init, optim, utils
from hcq.frontend.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from hcq.frontend.nn.layers.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmax2d,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from hcq.frontend.nn.layers.attention import MultiheadAttention
from hcq.frontend.nn.layers.cells import GRUCell, LSTMCell, RNNCell
from hcq.frontend.nn.layers.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from hcq.frontend.nn.layers.distance import CosineSimilarity, PairwiseDistance
from hcq.frontend.nn.layers.dropout import (
    AlphaDropout,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    FeatureAlphaDropout,
)
from hcq.frontend.nn.layers.embedding import Embedding, EmbeddingBag
from hcq.frontend.nn.layers.linear import Bilinear, Identity, Linear
from hcq.frontend.nn.layers.norm import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LocalResponseNorm,
    RMSNorm,
)
from hcq.frontend.nn.layers.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from hcq.frontend.nn.layers.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from hcq.frontend.nn.layers.recurrent import GRU, LSTM, RNN
from hcq.frontend.nn.layers.shapes import (
    ChannelShuffle,
    Flatten,
    Fold,
    PixelShuffle,
    PixelUnshuffle,
    Unflatten,
    Unfold,
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
)
from hcq.frontend.nn.layers.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from hcq.frontend.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parallel import DataParallel
from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.state.safetensors import load_file, save_file


def __getattr__(name: str) -> Any:
    """Modules that are imported when they are asked for: nn.modules, nn.attention, nn.parallel."""
    if name not in ("modules", "attention"):
        raise Unknown(sys.modules["hcq.frontend.nn"], name, "module 'hcq.nn' has no attribute or layer")
    return importlib.import_module(f"hcq.frontend.nn.{name}")


def _kinds(base: type) -> list[type]:
    found = [base]
    for kind in found:
        found += kind.__subclasses__()
    return found


for _class in (*_kinds(Module), *_kinds(optim.Optimizer)):
    check_methods(_class, "__init__")
del _class

__all__ = [
    "Module",
    "Parameter",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
    "DataParallel",
    "Identity",
    "Linear",
    "Bilinear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Mish",
    "Hardsigmoid",
    "Hardswish",
    "Sigmoid",
    "LogSigmoid",
    "Tanh",
    "Softsign",
    "Tanhshrink",
    "LeakyReLU",
    "ELU",
    "CELU",
    "GELU",
    "Hardtanh",
    "Softplus",
    "Hardshrink",
    "Softshrink",
    "Threshold",
    "GLU",
    "Softmax",
    "Softmin",
    "LogSoftmax",
    "Softmax2d",
    "PReLU",
    "RReLU",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "FeatureAlphaDropout",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LocalResponseNorm",
    "LayerNorm",
    "RMSNorm",
    "GroupNorm",
    "Embedding",
    "EmbeddingBag",
    "Flatten",
    "Unflatten",
    "PixelShuffle",
    "PixelUnshuffle",
    "ChannelShuffle",
    "Upsample",
    "UpsamplingNearest2d",
    "UpsamplingBilinear2d",
    "Unfold",
    "Fold",
    "CosineSimilarity",
    "PairwiseDistance",
    "RNNCell",
    "LSTMCell",
    "GRUCell",
    "RNN",
    "LSTM",
    "GRU",
    "MultiheadAttention",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerDecoder",
    "Transformer",
    "CrossEntropyLoss",
    "NLLLoss",
    "MSELoss",
    "L1Loss",
    "SmoothL1Loss",
    "HuberLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "KLDivLoss",
    "PoissonNLLLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "SoftMarginLoss",
    "MultiMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MarginRankingLoss",
    "CosineEmbeddingLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "load_file",
    "save_file",
    "functional",
    "init",
    "optim",
    "utils",
]
