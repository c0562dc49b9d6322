"""Names of `torch` itself: what `hcq.torch.relu`, `hcq.torch.float32` and `hcq.torch.device` are.

In       a name
Out      what it is here
Changes  nothing
Next     rows.py (names with nothing behind them), ../functions/__init__.py (methods as functions, dtypes, numbers)
"""

from __future__ import annotations

import importlib
from typing import Any

from hcq.frontend.torch.modules import MODULES
from hcq.frontend.torch.rows import ROWS, found

VERSION = "2.13.0+hcq"  # of the PyTorch whose names these are: libraries compare it

PLACES = {  # a name -> where it is written
    "Tensor": "hcq.frontend.tensor",
    "device": "hcq.frontend.torch.device",
    "no_grad": "hcq.frontend.grad.gradient",
    "autocast": "hcq.frontend.amp.casting",
    "load": "hcq.frontend.io.files",
    "save": "hcq.frontend.io.files",
    "vmap": "hcq.frontend.more.transforms",
    "_assert": "hcq.frontend.torch.settings",
}


def named(name: str, module: str = "hcq.torch") -> Any:
    """What `hcq.torch.name` is. Raises AttributeError, for the module that was asked, where there is nothing of it."""
    from hcq.frontend import functions  # the tensor layer: not before a name of it is asked for

    if name in MODULES:
        return importlib.import_module(f"hcq.torch.{name}")
    if name in PLACES:
        return getattr(importlib.import_module(PLACES[name]), name)
    if name in ROWS[""]:
        return found("", name)
    if not name.startswith("_") and functions.has(name):
        return functions.named(name)
    from hcq.frontend.ops.late import Unknown

    raise Unknown(
        importlib.import_module("hcq.torch"), name, f"module {module!r} has no attribute or function"
    )


def every_name() -> list[str]:
    """All that `named` knows."""
    from hcq.frontend import functions

    return sorted(
        {*PLACES, *(name for name in MODULES if "." not in name), *ROWS[""], *functions.every_name()}
    )


def short(name: str) -> Any:
    """What `hcq.name` is: a function, a dtype or a number of PyTorch's, without `torch`. Not a module.

    Raises  AttributeError, which says how the name is written in full where it is one of PyTorch's
    """
    if name in MODULES:
        raise AttributeError(
            f"hcq has no {name!r}: write hcq.torch.{name}, after `import hcq.torch`.", name=name
        )
    return named(name, "hcq")
