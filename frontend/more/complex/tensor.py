"""Complex: the groups of methods of complex tensors joined into one class, and the refusal of all others.

In       two real tensors, or data with complex numbers: Tensor([1 + 2j])
Out      `Complex`, a Tensor of dtype complex64 or complex128
Next     pair.py, partwise.py, arithmetic.py, functions.py, products.py, creation.py (groups),
         frontend/ops/complex_arguments.py

A public method of real tensors that no group here has, and INHERITED does not name, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import NotReal
from hcq.frontend.more.complex.arithmetic import Arithmetic
from hcq.frontend.more.complex.creation import Creation
from hcq.frontend.more.complex.functions import Functions
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.more.complex.partwise import Partwise
from hcq.frontend.more.complex.products import Products
from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.late import groups
from hcq.frontend.tensor import Tensor

# methods of real tensors that are made of others, and right for complex ones
INHERITED = frozenset(
    "numel size realize lerp addcmul addcdiv broadcast_shapes is_complex is_conj resolve_neg element_size cpu "
    "eq ne allclose count_nonzero bool cfloat cdouble conj_physical resolve_conj mH adjoint "
    "view_as_complex complex polar stft istft scalar_tensor manual_seed "
    "cholesky cholesky_solve cholesky_inverse triangular_solve inverse det slogdet logdet qr svd pinverse "
    "matrix_exp".split()
)


groups()  # what they have is refused, or done to both parts


class Complex(Partwise, Arithmetic, Functions, Products, Creation):
    """Complex numbers of one shape and dtype on a device, computed when they are read.

    >>> z = Tensor([3 + 4j, 1j])
    >>> z.abs().tolist(), (z * z.conj()).tolist()
    ([5.0, 1.0], [(25+0j), (1+0j)])
    """

    __slots__ = ()


def _refusal(name: str) -> Callable[..., Any]:
    def refused(self: Any = None, *args: Any, **kwargs: Any) -> Any:
        what = (
            f"a {self.dtype.name} tensor of shape {self.shape}"
            if isinstance(self, Pair)
            else "complex numbers"
        )
        raise NotReal(
            f"[{_OPERATORS.get(name, name)}] is not defined for {what} here. Take its parts, z.real and z.imag, "
            "its sizes, z.abs(), or its pairs, z.view_as_real()."
        )

    refused.__name__ = name
    refused.__doc__ = "Refused: it is not defined for complex numbers."
    return refused


_OPERATORS = {
    "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=", "__mod__": "%", "__rmod__": "%", "__floordiv__": "//",
    "__rfloordiv__": "//", "__and__": "&", "__rand__": "&", "__or__": "|", "__ror__": "|", "__xor__": "^",
    "__rxor__": "^", "__lshift__": "<<", "__rlshift__": "<<", "__rshift__": ">>", "__rrshift__": ">>",
    "__invert__": "~", "__index__": "index",
}  # fmt: skip


def _refuse_the_rest() -> None:
    """Give the class a refusal for each public method of real tensors that it would inherit."""
    own = {name for base in Complex.__mro__ if base not in Tensor.__mro__ for name in vars(base)}
    names = {name for base in Tensor.__mro__[:-1] for name in vars(base) if not name.startswith("_")}
    for name in sorted(names | set(_OPERATORS)):
        if name in own or name in INHERITED or name == "device":
            continue
        if name in names or hasattr(Tensor, name):
            setattr(Complex, name, _refusal(name))


_refuse_the_rest()
for _name in ("add", "sub", "mul", "truediv", "pow"):  # z += w makes a new tensor: both parts change at once
    setattr(Complex, f"__i{_name}__", getattr(Complex, f"__{_name}__"))
Pair.whole = Complex
check_methods(Complex)
