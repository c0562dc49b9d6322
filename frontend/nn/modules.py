"""modules: layers by the names of the files that PyTorch has them in: `torch.nn.modules.batchnorm._BatchNorm`.

In       a name
Out      the layers' own modules, and what PyTorch calls their common bases
Next     __init__.py (nn: all layers), layers/, ../torch/modules.py (their names)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from hcq.frontend.ops.arguments import check_methods

# PyTorch's file -> ours, and private names there that programs use -> those here
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "activation": ("layers.activation", {"MultiheadAttention": "layers.attention"}),
    "adaptive": ("layers.adaptive", {}),
    "batchnorm": ("layers.norm", {"_BatchNorm": "BatchNorm", "_NormBase": "_Running"}),
    "container": ("containers", {}),
    "conv": ("layers.convolution", {"_ConvNd": "_Convolution", "_ConvTransposeNd": "_Transposed"}),
    "distance": ("layers.distance", {}),
    "dropout": ("layers.dropout", {"_DropoutNd": "_Dropout"}),
    "flatten": ("layers.shapes", {}),
    "fold": ("layers.shapes", {}),
    "instancenorm": ("layers.norm", {}),
    "lazy": ("layers.lazy", {"LazyModuleMixin": "Lazy"}),
    "linear": ("layers.linear", {}),
    "loss": ("losses", {}),
    "module": ("module", {}),
    "normalization": ("layers.norm", {}),
    "padding": ("layers.padding", {}),
    "pixelshuffle": ("layers.shapes", {}),
    "pooling": ("layers.pooling", {}),
    "rnn": (
        "layers.recurrent",
        dict.fromkeys(("RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"), "layers.cells"),
    ),
    "sparse": ("layers.embedding", {}),
    "transformer": ("layers.transformer", {}),
    "upsampling": ("layers.shapes", {}),
}  # fmt: skip


class _File(ModuleType):
    """A file of PyTorch's: the names in ours, and those that it has besides."""

    def __getattr__(self, name: str) -> Any:
        place, others = FILES[self.__name__.rpartition(".")[2]]
        other = others.get(name, name)
        if other.startswith("layers."):
            place, other = other, name
        found = getattr(importlib.import_module(f"hcq.frontend.nn.{place}"), other)
        if isinstance(found, type):
            check_methods(found, "__init__")
        return found


def __getattr__(name: str) -> Any:
    if name in FILES:
        found = _File(f"{__name__}.{name}", f"PyTorch's nn/modules/{name}.py.")
        globals()[name] = found
        return found
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(sys.modules["hcq.frontend.nn"], name)
