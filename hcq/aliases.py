"""Aliases: modules of the tensor layer under the names that PyTorch's have: `import hcq.nn.functional as F`.

In       an import of hcq.nn, hcq.optim, ... or of something inside of these
Out      the module of hcq.frontend that it stands for: the very same module under both names
Changes  one more finder, the first that Python asks
Next     __init__.py (the same names as attributes), docs/from-pytorch.md
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "nn": "hcq.frontend.nn",
    "optim": "hcq.frontend.nn.optim",
    "func": "hcq.frontend.more.transforms",
    "distributed": "hcq.frontend.more.distributed",
    "linalg": "hcq.frontend.functions_linalg",
    "special": "hcq.frontend.functions_special",
    "masked": "hcq.frontend.functions_masked",
    "random": "hcq.frontend.functions_random",
    "distributions": "hcq.frontend.more.distributions",
    "fft": "hcq.frontend.functions_fft",
    "signal": "hcq.signal",  # the core's own, which has PyTorch's signal.windows, too
    "utils": "hcq.frontend.utils",
    "amp": "hcq.frontend.amp",
    "autograd": "hcq.frontend.autograd",
    "cuda": "hcq.frontend.cuda",
    "fx": "hcq.frontend.functions_fx",
    "hub": "hcq.frontend.hub",
    "onnx": "hcq.frontend.more.onnx",
    "testing": "hcq.frontend.functions_testing",
    "accelerator": "hcq.frontend.accelerator",
    "device": "hcq.device",  # the core's own, which is called, too
}

# modules of PyTorch's whose names are a function here, and the core's: what is below, or imported from them
FUNCTIONS = {"jit": ("hcq.frontend.jit", "jit")}
BELOW = {"backends": "hcq.frontend.libraries"}


class Alias:
    """Finds and loads: a name of MODULES, or one below it, is the module that it stands for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where such a module comes from; None for any other name."""
        package, _, rest = name.partition(".")
        first, dot, below = rest.partition(".")
        if package != __package__:
            return None
        if rest in FUNCTIONS:
            return ModuleSpec(name, self, origin=rest)  # type: ignore[arg-type]
        stands_for = BELOW.get(first) if below else None
        stands_for = stands_for or MODULES.get(first)
        if stands_for in (None, f"{package}.{first}"):  # a module of another name, or one with its own name
            return None
        return ModuleSpec(name, self, origin=f"{stands_for}{dot}{below}")  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself. Raises ModuleNotFoundError by the name that was asked for."""
        assert spec.origin is not None
        if spec.origin in FUNCTIONS:
            place, attribute = FUNCTIONS[spec.origin]
            return getattr(importlib.import_module(place), attribute)  # type: ignore[no-any-return]
        try:
            module = importlib.import_module(spec.origin)
        except ModuleNotFoundError as error:
            if error.name != spec.origin:
                raise
            package, _, last = spec.origin.rpartition(".")
            found = getattr(sys.modules.get(package), last, None)
            if isinstance(found, ModuleType):  # one that its package makes
                module = found
                spec.loader_state = module.__spec__
                return module
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from None
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """It has run already; it keeps the name and the origin that it has."""
        if not isinstance(module, ModuleType):  # a function
            return
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state or module.__spec__


sys.meta_path.insert(0, Alias())  # before the folders of the same names, which hold stubs for type checkers
