"""Free functions: `hcq.relu(x)` is `x.relu()`, `hcq.cat([a, b])` is `Tensor.cat([a, b])`, as in PyTorch.

In       a name
Out      the method of Tensor by that name as a function of its first argument; `tensor`, numbers and dtypes by name
Next     methods.py (a method as a function), ops/ (the methods), ../torch/names.py (who asks), nn/functional.py

There is no list of methods: every public one of the groups in ops/ is a function, and so is a new one.
What names a dtype in PyTorch is the dtype: `hcq.float32`, `hcq.bool`. A function that has the name of one of hcq's
modules, as `trace` has, is reached as a method: `x.trace()`.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

from hcq.frontend.functions.methods import function_of
from hcq.frontend.ops.late import group, groups, own_groups
from hcq.frontend.ops.table import METHODS
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e, "newaxis": None}
DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "half float double short int long float8_e4m3fn float8_e5m2 complex64 complex128 cfloat cdouble"
).split()
OF_TENSOR = (
    "clone",
    "detach",
    "allclose",
    "numel",
    "is_complex",
    "is_floating_point",
)  # methods that Tensor and its core have themselves
HERE = ("tensor", "is_tensor", "real", "imag")
_SHORT_NAMES = {
    "half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32", "long": "int64",
    "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2",
}  # fmt: skip


def tensor(
    data: Any, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of numbers, lists or an array: bool, int64 or float32, the first that holds them all, unless given.

    >>> tensor([1, 2]).tolist()
    [1, 2]
    """
    return Tensor._made_of(data, device, dtype, requires_grad)


def is_tensor(thing: object) -> bool:
    """True for a Tensor.

    >>> hcq.is_tensor(hcq.tensor(1)), hcq.is_tensor([1])
    (True, False)
    """
    return isinstance(thing, Tensor)


def real(input: Tensor) -> Tensor:
    """The real parts: of real numbers, these.

    >>> hcq.real(Tensor([1 + 2j])).tolist()
    [1.0]
    """
    return input.real


def imag(input: Tensor) -> Tensor:
    """The imaginary parts of complex numbers.

    >>> hcq.imag(Tensor([1 + 2j])).tolist()
    [2.0]
    """
    return input.imag


# what PyTorch has a second name for
ALIASES = {
    **{f"{name}_copy": name for name in "expand permute squeeze transpose t unbind unsqueeze view unfold".split()},
    "alias_copy": "clone", "diagonal_copy": "diagonal", "split_with_sizes_copy": "split_with_sizes",
    "concat": "cat", "concatenate": "cat", "ger": "outer",
}  # fmt: skip


def named(name: str) -> Any:
    """What `hcq.name` is. Raises AttributeError where there is nothing of that name."""
    if name in DTYPES:
        return getattr(dtypes, _SHORT_NAMES.get(name, name))
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in HERE:
        return globals()[name]
    if name in ALIASES or _is_function(name):
        return function_of(ALIASES.get(name, name))
    raise AttributeError(f"no function, dtype or number of PyTorch's is called {name!r}")


def has(name: str) -> bool:
    """Whether `named` knows it."""
    return name in {*DTYPES, *CONSTANTS, *HERE} or name in ALIASES or name in names()


def every_name() -> list[str]:
    """All that `named` knows."""
    return sorted({*DTYPES, *CONSTANTS, *HERE, *ALIASES, *names()})


@functools.cache
def names() -> tuple[str, ...]:
    """Every method that is a function, too."""
    of_functions = [each for each in groups(Tensor) if each._are_functions]
    found = {name for each in of_functions for name in vars(each) if not name.startswith("_")}
    callables = [name for name in found if not isinstance(inspect.getattr_static(Tensor, name), property)]
    return tuple(sorted([*(name for name in callables if name not in DTYPES), *OF_TENSOR]))


def _is_function(name: str) -> bool:
    """Whether a method is in `names`; groups that do not have it are not imported for that."""
    if name in OF_TENSOR:
        return True
    if name.startswith("_") or name in DTYPES:
        return False
    of_it = [group(METHODS[name])] if name in METHODS else own_groups(Tensor)
    if not any(name in vars(each) for each in of_it if each._are_functions):
        return False
    return not isinstance(inspect.getattr_static(Tensor, name), property)
