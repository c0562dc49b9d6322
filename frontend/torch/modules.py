"""Modules of PyTorch, and the module here that each one is.

In       the package that they become part of: hcq.torch
Out      its modules, for `import hcq.torch.nn.functional as F` and `from hcq.torch.utils.data import DataLoader`
Changes  sys.modules
Next     rows.py (names with nothing behind them), ../../hcq/lazy_module.py (imported when first used)
"""

from __future__ import annotations

import importlib
from typing import Any

from hcq import lazy_module
from hcq.frontend.torch.rows import ROWS, found

# PyTorch's module -> ours; with ":name", what a module of ours has of that name; "" where rows are all that it has
MODULES: dict[str, str] = {
    "nn": "hcq.frontend.nn",
    "nn.functional": "hcq.frontend.nn.functional",
    "nn.init": "hcq.frontend.nn.init",
    "nn.parameter": "hcq.frontend.nn.parameter",
    "nn.attention": "hcq.frontend.nn.attention",
    "nn.parallel": "hcq.frontend.nn.parallel",
    "nn.modules": "hcq.frontend.nn.modules",
    **{
        f"nn.modules.{name}": f"hcq.frontend.nn.modules:{name}"
        for name in (
            "activation adaptive batchnorm container conv distance dropout flatten fold instancenorm lazy linear loss "
            "module normalization padding pixelshuffle pooling rnn sparse transformer upsampling"
        ).split()
    },
    "nn.utils": "hcq.frontend.nn.utils",
    "nn.utils.parametrizations": "hcq.frontend.nn.utils.parametrizations",
    "nn.utils.parametrize": "hcq.frontend.nn.utils.parametrize",
    "nn.utils.prune": "hcq.frontend.nn.utils.prune",
    "nn.utils.rnn": "hcq.frontend.nn.utils.rnn",
    "nn.utils.stateless": "hcq.frontend.nn.utils.stateless",
    "optim": "hcq.frontend.optim",
    "optim.lr_scheduler": "hcq.frontend.optim.lr_scheduler",
    "optim.swa_utils": "hcq.frontend.optim.swa_utils",
    "optim.optimizer": "hcq.frontend.optim.optimizer",
    "func": "hcq.frontend.more.transforms",
    "distributed": "hcq.frontend.more.distributed",
    "linalg": "hcq.frontend.more.linalg.functions",
    "special": "hcq.frontend.functions.special",
    "masked": "hcq.frontend.functions.masked",
    "random": "hcq.frontend.functions.random",
    "fft": "hcq.frontend.more.fourier.fft",
    "signal": "",
    "signal.windows": "hcq.frontend.more.fourier.windows",
    "distributions": "hcq.frontend.more.distributions",
    "distributions.constraints": "hcq.frontend.more.distributions.constraints",
    "distributions.constraint_registry": "hcq.frontend.more.distributions.constraint_registry",
    "distributions.distribution": "hcq.frontend.more.distributions.distribution",
    "distributions.kl": "hcq.frontend.more.distributions.kl",
    "distributions.transforms": "hcq.frontend.more.distributions.transforms",
    "utils": "",
    "utils.checkpoint": "hcq.frontend.autograd.checkpoint",
    "utils.data": "hcq.frontend.data",
    **{f"utils.data.{name}": "hcq.frontend.data" for name in ("dataset", "dataloader", "sampler")},
    "amp": "hcq.frontend.amp",
    "autograd": "hcq.frontend.autograd",
    "autograd.functional": "hcq.frontend.autograd.functional",
    "cuda": "hcq.frontend.torch.cuda",
    "cuda.amp": "hcq.frontend.torch.cuda.amp",
    "accelerator": "hcq.frontend.torch.accelerator",
    "hub": "hcq.frontend.torch.hub",
    "onnx": "hcq.frontend.more.onnx",
    "testing": "hcq.frontend.torch.testing",
    "fx": "",
    "jit": "",
    "compiler": "",
    "_dynamo": "",
    "backends": "",
    "backends.cuda": "",
    "backends.cuda.matmul": "",
    "backends.cudnn": "",
    "backends.mps": "hcq.frontend.torch.mps",
    "backends.mkl": "",
    "backends.mkldnn": "",
    "backends.openmp": "",
}


def add_to(package: str) -> None:
    """Make every module of the table known below a package."""
    for name in MODULES:
        _add(package, name)


def names_of(module: str) -> list[str]:
    """All that a module of the table has, but for the modules in it."""
    rows = list(ROWS.get(module, ()))
    return [*rows, *dir(_real(MODULES[module]))] if MODULES[module] else rows


def named(package: str, module: str, name: str) -> Any:
    """What `package.module.name` is. Raises AttributeError where there is nothing of that name."""
    if name in ROWS.get(module, ()):
        return found(module, name)
    if MODULES[module]:
        return getattr(_real(MODULES[module]), name)
    raise AttributeError(f"module '{package}.{module}' has no attribute {name!r}")


def _add(package: str, module: str) -> None:
    lazy_module.add(package, module, lambda name: named(package, module, name), lambda: names_of(module))


def _real(place: str) -> Any:
    name, _, attribute = place.partition(":")
    module = importlib.import_module(name)
    return getattr(module, attribute) if attribute else module
