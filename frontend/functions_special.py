"""Special functions under PyTorch's names: `hcq.special.erfc(x)` is `x.erfc()`.

In       tensors
Out      the methods of Tensor that PyTorch has in torch.special, as functions
Changes  nothing
Next     functions.py (how a method becomes a function), methods/special_values.py (the methods)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.functions import function_of

METHODS = (
    "digamma entr erf erfc erfcx erfinv exp2 expm1 i0 i0e i1 i1e log1p log_ndtr log_softmax logit logsumexp "
    "ndtr ndtri polygamma round sinc softmax xlog1py xlogy"
).split()
OTHER_NAMES = {"gammaln": "lgamma", "psi": "digamma", "expit": "sigmoid", "multigammaln": "mvlgamma"}


def __getattr__(name: str) -> Any:
    method = OTHER_NAMES.get(name, name)
    if method not in METHODS and name not in OTHER_NAMES:
        raise AttributeError(f"module 'hcq.special' has no function {name!r}")
    function = globals()[name] = function_of(method)
    return function


def __dir__() -> list[str]:
    return sorted([*METHODS, *OTHER_NAMES])
