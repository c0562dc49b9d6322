"""nn: layers, their state, and the optimizers, under PyTorch's names.

In       tensors
Out      `Module` and the layers; `nn.functional`, `nn.init`, `nn.optim`, `nn.utils`; `nn.save_file`, `nn.load_file`
Changes  nothing by itself; a layer in training mode may update its running statistics
Next     module.py (what a layer is), optim.py (how parameters move), examples/digits.py (a whole training run)
"""

from __future__ import annotations

from hcq.frontend.arguments import check_methods
from hcq.frontend.nn import functional, init, optim, utils
from hcq.frontend.nn.layers import (
    GELU,
    AvgPool2d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    LeakyReLU,
    Linear,
    MaxPool2d,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from hcq.frontend.nn.losses import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from hcq.frontend.nn.module import Module, ModuleList, Sequential
from hcq.frontend.nn.norm import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    RMSNorm,
)
from hcq.frontend.state.safetensors import load_file, save_file

_checked: list[type] = [Module, *Module.__subclasses__(), *BatchNorm.__subclasses__()]
_checked += [optim.Optimizer, *optim.Optimizer.__subclasses__(), *optim.Adam.__subclasses__()]
for _class in _checked:
    check_methods(_class, "__init__")
del _class, _checked

__all__ = [
    "Module",
    "ModuleList",
    "Sequential",
    "Linear",
    "Conv2d",
    "Embedding",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LayerNorm",
    "GroupNorm",
    "RMSNorm",
    "Dropout",
    "MaxPool2d",
    "AvgPool2d",
    "Flatten",
    "Identity",
    "ReLU",
    "LeakyReLU",
    "GELU",
    "SiLU",
    "Sigmoid",
    "Tanh",
    "Softmax",
    "CrossEntropyLoss",
    "NLLLoss",
    "MSELoss",
    "L1Loss",
    "BCEWithLogitsLoss",
    "load_file",
    "save_file",
    "functional",
    "init",
    "optim",
    "utils",
]
