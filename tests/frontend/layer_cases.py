"""Every layer and loss with small arguments and inputs: a row for each, for whoever compares them.

In       nothing
Out      `CASES`: the class's name, its arguments, what it is called on
Next     test_nn_layers.py (against PyTorch), test_nn_docs.py
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """A layer and what it is called on: shapes of normal numbers, or arrays."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})
    inputs: tuple[Any, ...] = ((2, 4, 6),)
    evaluated: bool = False  # where training draws at random

    def __str__(self) -> str:
        options = ",".join([*map(str, self.args), *(f"{key}={value}" for key, value in self.kwargs.items())])
        return f"{self.name}({options})".replace(" ", "")


def case(text: str, *inputs: Any, evaluated: bool = False, **kwargs: Any) -> Case:
    name, *args = text.split(" ")
    return Case(name, tuple(eval(arg) for arg in args), kwargs, inputs or ((2, 4, 6),), evaluated)


_R = np.random.default_rng(3)
IMAGE = (2, 4, 6, 5)
SOLID = (1, 2, 4, 5, 4)
CLASSES = _R.integers(0, 4, (2, 6))
ROWS = _R.integers(0, 4, (5,))
SIGNS = _R.choice([-1.0, 1.0], (5,)).astype(np.float32)
CHANCES = _R.uniform(0.1, 0.9, (5, 4)).astype(np.float32)
LOGS = np.log(CHANCES / CHANCES.sum(1, keepdims=True))
COUNTS = _R.integers(0, 5, (5, 4)).astype(np.float32)
BITS = _R.integers(0, 2, (5, 4)).astype(np.float32)
WEIGHTS = np.array([0.5, 1.0, 2.0, 1.5], dtype=np.float32)
INDICES = _R.integers(0, 5, (2, 3))

SHARES = _R.uniform(0.0, 1.0, (2, 4, 3)).astype(np.float32)
SEQUENCES = np.array([[1, 3, 3, 2], [2, 1, 0, 0]])

LAYERS = [
    case("Linear 6 3"), case("Linear 6 3", bias=False), case("Bilinear 3 4 5", (2, 3), (2, 4)), case("Identity"),
    case("Conv1d 4 6 3", stride=2, padding=1), case("Conv1d 4 4 3", groups=4, dilation=2, bias=False),
    case("Conv1d 4 2 3", padding="same", padding_mode="circular"),
    case("Conv2d 4 6 3", IMAGE, padding=(1, 0), stride=(2, 1), groups=2),
    case("Conv2d 4 2 (3,2)", IMAGE, padding=1, padding_mode="reflect"),
    case("Conv2d 4 2 3", IMAGE, padding="same", padding_mode="replicate"), case("Conv3d 2 3 2", SOLID, padding=1),
    case("ConvTranspose1d 4 6 3", stride=2, padding=1, output_padding=1),
    case("ConvTranspose2d 4 6 3", IMAGE, groups=2, dilation=2), case("ConvTranspose3d 2 2 2", SOLID, bias=False),
    case("MaxPool1d 3", stride=2, padding=1), case("MaxPool2d (3,2)", IMAGE, ceil_mode=True),
    case("MaxPool3d 2", SOLID), case("AvgPool1d 2"), case("AvgPool2d 2", IMAGE, padding=1, count_include_pad=False),
    case("AvgPool2d 2", IMAGE, divisor_override=3), case("AvgPool3d 2", SOLID), case("LPPool1d 2 2"),
    case("LPPool2d 2 2", IMAGE), case("LPPool3d 2 2", SOLID), case("AdaptiveAvgPool1d 4"),
    case("AdaptiveAvgPool2d (3,None)", IMAGE), case("AdaptiveAvgPool3d 2", SOLID), case("AdaptiveMaxPool1d 4"),
    case("AdaptiveMaxPool2d (3,2)", IMAGE), case("AdaptiveMaxPool3d 2", SOLID),
    *[case(name) for name in "ReLU ReLU6 SELU SiLU Mish Hardsigmoid Hardswish Sigmoid LogSigmoid Tanh".split()],
    *[case(name) for name in "Softsign Tanhshrink ELU CELU GELU Hardtanh Softplus Hardshrink Softshrink GLU".split()],
    case("LeakyReLU"), case("ReLU True"), case("LeakyReLU 0.2"), case("ELU 0.5"), case("GELU", approximate="tanh"),
    case("Hardtanh -0.5 0.5"),
    case("Softplus 2.0 1.0"), case("Threshold 0.1 -2.0"), case("GLU 1"), case("Softmax 1"), case("Softmin 1"),
    case("LogSoftmax 1"), case("Softmax2d", IMAGE), case("PReLU"), case("PReLU 4"), case("RReLU", evaluated=True),
    case("ZeroPad1d 2"), case("ZeroPad2d (1,2,0,1)", IMAGE), case("ZeroPad3d 1", SOLID), case("ConstantPad1d 1 2.5"),
    case("ConstantPad2d 1 2.5", IMAGE), case("ConstantPad3d 1 2.5", SOLID), case("ReflectionPad1d 2"),
    case("ReflectionPad2d 1", IMAGE), case("ReflectionPad3d 1", SOLID), case("ReplicationPad1d (1,2)"),
    case("ReplicationPad2d 1", IMAGE), case("ReplicationPad3d 1", SOLID), case("CircularPad1d 1"),
    case("CircularPad2d 1", IMAGE), case("CircularPad3d 1", SOLID),
    *[case(name, evaluated=True) for name in "Dropout Dropout1d AlphaDropout FeatureAlphaDropout".split()],
    case("Dropout2d 0.3", IMAGE, evaluated=True), case("Dropout3d", SOLID, evaluated=True),
    case("BatchNorm1d 4"), case("BatchNorm1d 4", evaluated=True), case("BatchNorm2d 4", IMAGE, momentum=None),
    case("BatchNorm3d 2", (2, 2, 2, 2, 2), affine=False), case("BatchNorm1d 4", track_running_stats=False),
    case("InstanceNorm1d 4"), case("InstanceNorm2d 4", IMAGE, affine=True, track_running_stats=True),
    case("InstanceNorm2d 4", IMAGE, track_running_stats=True, evaluated=True), case("InstanceNorm3d 2", SOLID),
    case("GroupNorm 2 4"), case("LayerNorm 6"), case("LayerNorm (4,6)", bias=False), case("RMSNorm 6"),
    case("RMSNorm 6", elementwise_affine=False, eps=1e-3), case("LocalResponseNorm 3", IMAGE),
    case("Embedding 5 3", INDICES), case("Embedding 5 3", INDICES, padding_idx=1), case("EmbeddingBag 5 3", INDICES),
    case("EmbeddingBag 5 3", INDICES, mode="max"), case("EmbeddingBag 5 3", INDICES, mode="sum", padding_idx=2),
    case("EmbeddingBag 5 3", INDICES.reshape(-1), np.array([0, 2, 5]), mode="mean"),
    case("Flatten"), case("Flatten 0 1"), case("Unflatten 2 (2,3)"), case("PixelShuffle 2", IMAGE),
    case("PixelUnshuffle 2", (2, 1, 4, 6)), case("ChannelShuffle 2", IMAGE), case("Upsample", scale_factor=2),
    case("Upsample", IMAGE, size=(4, 7), mode="bilinear", align_corners=True),
    case("UpsamplingNearest2d", IMAGE, scale_factor=2), case("UpsamplingBilinear2d", IMAGE, size=(3, 8)),
    case("Unfold (2,3)", IMAGE, padding=1, stride=2), case("Fold (4,5) (2,3)", (2, 12, 9)),
    case("CosineSimilarity", (3, 4), (3, 4)), case("PairwiseDistance 1.5", (3, 4), (3, 4), keepdim=True),
    case("RNN 6 3", num_layers=2), case("RNN 6 3 1 'relu'", batch_first=True, bidirectional=True, bias=False),
    case("LSTM 6 3", num_layers=2, bidirectional=True), case("LSTM 6 4", proj_size=2), case("LSTM 6 3", (4, 6)),
    case("GRU 6 3", num_layers=2, batch_first=True), case("GRU 6 3", (2, 3, 6), (1, 3, 3)),
    case("RNNCell 6 3", (2, 6)), case("RNNCell 6 3", (2, 6), (2, 3), nonlinearity="relu", bias=False),
    case("LSTMCell 6 3", (2, 6)), case("GRUCell 6 3", (2, 6), (2, 3)),
    case("MultiheadAttention 6 2", (3, 2, 6), (4, 2, 6), (4, 2, 6)),
    case("MultiheadAttention 6 2", (3, 2, 6), (4, 2, 5), (4, 2, 3), kdim=5, vdim=3, bias=False),
    case("MultiheadAttention 6 3", (2, 3, 6), (2, 4, 6), (2, 4, 6), batch_first=True, add_bias_kv=True,
         add_zero_attn=True),
    case("TransformerEncoderLayer 6 2 8 0.0", (2, 4, 6), batch_first=True),
    case("TransformerEncoderLayer 6 2 8 0.0 'gelu'", (4, 2, 6), norm_first=True),
    case("TransformerDecoderLayer 6 2 8 0.0", (3, 2, 6), (4, 2, 6)),
    case("Transformer 4 2 1 1 6 0.0", (3, 2, 4), (2, 2, 4)),
    case("SyncBatchNorm 4", evaluated=True),
    case("FractionalMaxPool2d 2", IMAGE, output_size=(3, 2), _random_samples=SHARES[:, :, :2]),
    case("FractionalMaxPool3d (1,2,2)", SOLID, output_ratio=0.5, _random_samples=SHARES[:1, :2]),
    case("AdaptiveLogSoftmaxWithLoss 6 9 [2,5] 2.0", (5, 6), np.array([0, 8, 3, 1, 4]), head_bias=True),
]  # fmt: skip

LOSSES = [
    case("CrossEntropyLoss", (2, 4, 6), CLASSES), case("CrossEntropyLoss", (5, 4), ROWS, label_smoothing=0.1),
    case("CrossEntropyLoss", (5, 4), ROWS, weight=WEIGHTS, ignore_index=1, reduction="sum"),
    case("CrossEntropyLoss", (5, 4), CHANCES, reduction="none"), case("NLLLoss", LOGS, ROWS, weight=WEIGHTS),
    *[case(name, (5, 4), (5, 4)) for name in "MSELoss L1Loss SmoothL1Loss HuberLoss".split()],
    case("MSELoss", (5, 4), (5, 4), reduction="none"), case("SmoothL1Loss", (5, 4), (5, 4), beta=0.3),
    case("HuberLoss", (5, 4), (5, 4), delta=0.7, reduction="sum"), case("BCELoss", CHANCES, BITS, weight=WEIGHTS),
    case("BCEWithLogitsLoss", (5, 4), BITS, pos_weight=WEIGHTS), case("KLDivLoss", LOGS, CHANCES),
    case("KLDivLoss", LOGS, LOGS * 2, reduction="batchmean", log_target=True), case("PoissonNLLLoss", (5, 4), COUNTS),
    case("PoissonNLLLoss", CHANCES, COUNTS, log_input=False, full=True),
    case("GaussianNLLLoss", (5, 4), (5, 4), CHANCES, full=True), case("HingeEmbeddingLoss", (5,), SIGNS, margin=0.8),
    case("SoftMarginLoss", (5,), SIGNS), case("MultiMarginLoss", (5, 4), ROWS, p=2, margin=0.7, weight=WEIGHTS),
    case("MultiLabelSoftMarginLoss", (5, 4), BITS, weight=WEIGHTS),
    case("MultiLabelMarginLoss", (2, 4), np.array([[3, 0, -1, 1], [2, -1, 0, 0]])),
    case("NLLLoss2d", (2, 4, 3, 2), _R.integers(0, 4, (2, 3, 2)), ignore_index=1),
    case("LinearCrossEntropyLoss 4 3", (5, 4), ROWS % 3, bias=True, label_smoothing=0.1),
    case("LinearCrossEntropyLoss 4 3", (2, 4), CLASSES[:, :2] % 3, out_features=(2,), ignore_index=1),
    case("CTCLoss", np.log(_R.dirichlet(np.ones(5), (7, 2))).astype(np.float32), SEQUENCES, np.array([7, 5]),
         np.array([4, 2])),
    case("CTCLoss 4 'sum' True", np.log(_R.dirichlet(np.ones(5), (6, 2))).astype(np.float32), SEQUENCES,
         np.array([4, 6]), np.array([4, 2])),
    case("MarginRankingLoss", (5,), (5,), SIGNS, margin=0.3),
    case("CosineEmbeddingLoss", (5, 4), (5, 4), SIGNS, margin=0.1),
    case("TripletMarginLoss", (5, 4), (5, 4), (5, 4), swap=True, p=2.0),
    case("TripletMarginWithDistanceLoss", (5, 4), (5, 4), (5, 4), margin=0.5),
]  # fmt: skip

CASES = LAYERS + LOSSES
