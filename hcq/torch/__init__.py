"""hcq.torch: PyTorch's names. A program changes one line: `import hcq.torch as torch`.

In       a name of PyTorch's
Out      what it is here: a function, a class, a dtype, a module such as hcq.torch.nn.functional
Changes  importing it adds the modules of its table to sys.modules; `install` adds them again as `torch`
Next     ../../frontend/torch/ (the tables), ../lazy_module.py (a module that is imported when something of it is
         used), docs/from-pytorch.md

Nothing here belongs to the drivers, and they know nothing of it: this is the door to the tables in the tensor layer.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.torch import modules, names

__version__ = names.VERSION
modules.add_to(__name__)


def install() -> None:
    """Register these names as `torch` in this process, for libraries such as einops that look for it by that name.

    Raises  UsageError where PyTorch itself is installed: a program has one of the two

    >>> import hcq.torch
    >>> hcq.torch.install.__name__
    'install'
    """
    own = sys.modules[__name__]
    found = sys.modules.get("torch")
    if found is own:
        return
    if found is not None or importlib.util.find_spec("torch") is not None:
        raise UsageError(
            "[torch.install] PyTorch itself is installed here, and stays `torch`. Write `import hcq.torch as torch`, "
            "or use an environment without PyTorch."
        )
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(f"{__name__}."):
            sys.modules[f"torch{name[len(__name__) :]}"] = module


def __getattr__(name: str) -> Any:
    value = names.named(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *names.every_name()} - {"importlib", "sys", "modules", "names", "annotations"})
