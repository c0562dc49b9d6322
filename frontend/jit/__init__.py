"""jit: a function of tensors is called and watched, and from then on what it submitted is submitted again.

In       a function of tensors
Out      `jit`, and the function that it makes
Changes  nothing by itself
Next     function.py (which call is replayed), watched_call.py and capture.py (what a call does), replay.py (how it is
         done again); saving.py (a recording as a file), closure.py (the variables around a function), contents.py
         (what is in them), references.py (who holds a tensor), pytree.py (nested containers)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hcq.frontend.jit.function import Jit as Jit
from hcq.frontend.jit.function import jit as jit

if TYPE_CHECKING:
    from hcq.frontend.jit.saving import save_program as save_program


def __getattr__(name: str) -> Any:
    """`save_program`, imported when it is asked for: few programs write recordings."""
    if name != "save_program":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = import_module("hcq.frontend.jit.saving").save_program
    return globals()[name]
