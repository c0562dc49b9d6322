"""hcq: userspace GPU drivers, a compiler and a lazy tensor layer, in Python.

In       a device name ("CPU", later "AMD", "NV:0") or a tensor program
Out      a Device that loads code objects and runs command queues; the tensor layer's Tensor, nn, jit, load, save, ...
Changes  nothing: importing opens no device, reads no environment, and loads neither numpy nor LLVM
Next     device.py (how a device opens), queue.py (commands to packets), docs/architecture.md (the whole road),
         torch/__init__.py (PyTorch's names: `import hcq.torch as torch`)
"""

from __future__ import annotations

import importlib
import importlib.machinery
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcq import lazy_module

if TYPE_CHECKING:
    from hcq.device import Device as Device
    from hcq.lifetime.opening import open as open

__version__ = "0.2.0"

# an editable install reaches this folder by a link (setup.py): modules are named by where they really are
__file__ = str(Path(__file__).resolve())
__path__ = [str(Path(__file__).parent)]

# A checkout works uninstalled: ir/, compiler/, frontend/ and tools/ stand beside this folder there, and below it when
# installed (setup.py maps them), so the same absolute names resolve both ways.
_checkout = Path(__file__).parent.parent
if (_checkout / "setup.py").is_file() and (_checkout / "ir" / "node.py").is_file():
    __path__.append(str(_checkout))

_LAZY = {
    "open": "hcq.lifetime.opening",
    "Queue": "hcq.queue",
    "HcqError": "hcq.errors",
    "UsageError": "hcq.errors",
    "DriverError": "hcq.errors",
    "DeviceFault": "hcq.errors",
    "WaitTimeout": "hcq.errors",
    "load_program": "hcq.artefact",
    "custom": "hcq.frontend.more.custom",
    # the only upward references of this floor: the tensor layer's names and modules, resolved when first used
    "Tensor": "hcq.frontend.tensor",
    "Device": "hcq.frontend.core.device",
    "Variable": "hcq.frontend.symbolic.variable",
    "dtypes": "hcq.ir.dtype",
    "jit": "hcq.frontend.jit",
    "save_program": "hcq.frontend.jit",
    "load": "hcq.frontend.io.files",
    "save": "hcq.frontend.io.files",
}
_MODULES = {  # those that may be imported by their name here: import hcq.nn as nn
    "nn": "hcq.frontend.nn",
    "nn.functional": "hcq.frontend.nn.functional",
    "nn.init": "hcq.frontend.nn.init",
    "nn.utils": "hcq.frontend.nn.utils",
    "optim": "hcq.frontend.optim",
    "optim.lr_scheduler": "hcq.frontend.optim.lr_scheduler",
    "func": "hcq.frontend.more.transforms",
    "distributed": "hcq.frontend.more.distributed",
    "onnx": "hcq.frontend.more.onnx",
    "counters": "hcq.performance.counters",
    "roofline": "hcq.performance.roofline",
    "ranks": "hcq.events.ranks",
}
_TOP = [name for name in _MODULES if "." not in name]
for _name, _place in _MODULES.items():
    lazy_module.stands_for(__name__, _name, _place)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name == "torch":
        return importlib.import_module("hcq.torch")
    elif name.startswith("_") or importlib.machinery.PathFinder.find_spec(f"hcq.{name}", __path__):
        # no name of ours; or a module, for which `from hcq import config` asks here before it imports it
        raise AttributeError(f"module 'hcq' has no attribute {name!r}")
    else:  # hcq.relu, hcq.float32: PyTorch's functions and dtypes
        value = importlib.import_module("hcq.frontend.torch.names").short(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Its own names: of PyTorch's, `hcq.torch` has the list."""
    return sorted([*(name for name in globals() if name.startswith("__")), *_LAZY, *_TOP, "torch"])
