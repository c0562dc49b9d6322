"""nn: layers, their state, and the optimizers, under PyTorch's names.

In       tensors
Out      `Module` and the layers; `nn.functional`, `nn.init`, `nn.optim`, `nn.utils`; `nn.save_file`, `nn.load_file`
Changes  nothing by itself; a layer in training mode may update its running statistics
Next     module.py (what a layer is), layers/, ../optim/ (how parameters move), examples/digits.py (a training run)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hcq import lazy_module
from hcq.frontend import FORMER as _FORMER
from hcq.frontend import optim
from hcq.frontend.io.safetensors import load_file, save_file
from hcq.frontend.nn import functional, init, utils
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
from hcq.frontend.nn.layers.linear import Bilinear, Identity, Linear
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parameter import Buffer, Parameter
from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.late import Unknown

if TYPE_CHECKING:
    from hcq.frontend.nn.layers.adaptive import AdaptiveLogSoftmaxWithLoss
    from hcq.frontend.nn.layers.attention import MultiheadAttention
    from hcq.frontend.nn.layers.cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
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
    from hcq.frontend.nn.layers.lazy import (
        LazyBatchNorm1d,
        LazyBatchNorm2d,
        LazyBatchNorm3d,
        LazyConv1d,
        LazyConv2d,
        LazyConv3d,
        LazyConvTranspose1d,
        LazyConvTranspose2d,
        LazyConvTranspose3d,
        LazyInstanceNorm1d,
        LazyInstanceNorm2d,
        LazyInstanceNorm3d,
        LazyLinear,
    )
    from hcq.frontend.nn.layers.norm import (
        BatchNorm,
        BatchNorm1d,
        BatchNorm2d,
        BatchNorm3d,
        CrossMapLRN2d,
        GroupNorm,
        InstanceNorm1d,
        InstanceNorm2d,
        InstanceNorm3d,
        LayerNorm,
        LocalResponseNorm,
        RMSNorm,
        SyncBatchNorm,
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
        FractionalMaxPool2d,
        FractionalMaxPool3d,
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
    from hcq.frontend.nn.layers.recurrent import GRU, LSTM, RNN, RNNBase
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
        CTCLoss,
        GaussianNLLLoss,
        HingeEmbeddingLoss,
        HuberLoss,
        KLDivLoss,
        L1Loss,
        LinearCrossEntropyLoss,
        MarginRankingLoss,
        MSELoss,
        MultiLabelMarginLoss,
        MultiLabelSoftMarginLoss,
        MultiMarginLoss,
        NLLLoss,
        NLLLoss2d,
        PoissonNLLLoss,
        SmoothL1Loss,
        SoftMarginLoss,
        TripletMarginLoss,
        TripletMarginWithDistanceLoss,
    )
    from hcq.frontend.nn.parallel import DataParallel
    from hcq.frontend.nn.uninitialized import UninitializedBuffer, UninitializedParameter

# a file -> its classes: it is imported when one is first asked for
LATE = {
    "layers.attention": "MultiheadAttention",
    "layers.cells": "GRUCell LSTMCell RNNCell RNNCellBase",
    "layers.convolution": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "layers.distance": "CosineSimilarity PairwiseDistance",
    "layers.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "layers.embedding": "Embedding EmbeddingBag",
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
    "layers.adaptive": "AdaptiveLogSoftmaxWithLoss",
    "layers.lazy": (
        "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d "
        "LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "uninitialized": "UninitializedParameter UninitializedBuffer",
}


def __getattr__(name: str) -> Any:
    """What is imported when it is asked for: classes of few programs, and the modules nn.modules and nn.attention."""
    if name in ("modules", "attention"):
        return import_module(f"hcq.frontend.nn.{name}")
    file = next((file for file, names in LATE.items() if name in names.split()), None)
    if file is None:
        raise Unknown(sys.modules["hcq.frontend.nn"], name, "module 'hcq.nn' has no attribute or layer")
    module = import_module(f"hcq.frontend.nn.{file}")
    for each in LATE[file].split():
        found = globals()[each] = getattr(module, each)
        check_methods(found, "__init__")
    return globals()[name]


for _name, _place in _FORMER.items():
    if _name.startswith("nn."):
        lazy_module.stands_for("hcq.frontend", _name, _place)


def __dir__() -> list[str]:
    return sorted({*globals(), *" ".join(LATE.values()).split()})


def _kinds(base: type) -> list[type]:
    found = [base]
    for kind in found:
        found += kind.__subclasses__()
    return found


for _class in (*_kinds(Module), *_kinds(optim.Optimizer)):
    check_methods(_class, "__init__")
del _class, _name, _place

__all__ = [
    "Module",
    "Parameter",
    "Buffer",
    "UninitializedParameter",
    "UninitializedBuffer",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
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
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
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
    "SyncBatchNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LocalResponseNorm",
    "CrossMapLRN2d",
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
    "RNNCellBase",
    "RNN",
    "LSTM",
    "GRU",
    "RNNBase",
    "MultiheadAttention",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerDecoder",
    "Transformer",
    "CrossEntropyLoss",
    "NLLLoss",
    "NLLLoss2d",
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
    "MultiLabelMarginLoss",
    "MarginRankingLoss",
    "CosineEmbeddingLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "CTCLoss",
    "LinearCrossEntropyLoss",
    "AdaptiveLogSoftmaxWithLoss",
    "DataParallel",
    "LazyLinear",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "load_file",
    "save_file",
    "functional",
    "init",
    "optim",
    "utils",
]
