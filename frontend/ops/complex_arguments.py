"""Meeting: what a method of real tensors does when it is given complex numbers.

In       the name of an operator or a method, and its arguments, one of which is complex
Out      the same of complex numbers; a refusal where that is not defined
Changes  nothing; more/complex/ is imported when complex numbers first appear
Next     frontend/more/complex/tensor.py (complex tensors), arguments.py (which catches NotReal for the methods named
         here)

A complex tensor has no node: a method that reads one raises NotReal by itself, so that nothing is computed wrong.
Methods pay nothing for that. Those named here catch it, and come here.
"""

from __future__ import annotations

from typing import Any

from hcq.errors import UsageError
from hcq.frontend.ops.table import above

# methods whose first tensor may be real while another, a number or a dtype is complex
BOTH = frozenset(
    "add sub where masked_fill matmul mm bmm mv dot vdot inner outer tensordot kron addmm addmv addr baddbmm einsum "
    "cat stack hstack vstack dstack column_stack row_stack cast type full zeros ones empty eye full_like zeros_like "
    "ones_like empty_like new_full new_zeros new_ones new_empty rand randn rand_like randn_like isclose linear "
    "block_diag conv1d conv2d sum mean prod cumsum".split()
)
_REFLECTED = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow", "==": "eq", "!=": "ne"}
_NO_ORDER = frozenset({"<", "<=", "maximum", "minimum"})


def complex_class() -> Any:
    """The class of complex tensors, imported when first asked for."""
    return above("complex").Complex


def in_complex(call: str, first: Any, *args: Any, reverse: bool = False, **kwargs: Any) -> Any:
    """`first call args` of complex numbers. An operator by its sign; `reverse` has the operands the other way round."""
    if call in _REFLECTED:
        other = first._operand(call, args[0])
        name = _REFLECTED[call]
        prefix = "" if reverse or name in ("eq", "ne") else "r"
        return getattr(other, f"__{prefix}{name}__")(first)
    if call in _NO_ORDER:
        raise UsageError(
            f"[{call}] complex numbers have no order. Compare their sizes, z.abs(), or their parts, z.real and z.imag."
        )
    if call not in BOTH:
        raise UsageError(
            f"[{call}] is not defined for complex numbers here. Use their parts: z.real and z.imag."
        )
    kind = complex_class()
    if isinstance(first, type):  # a class method
        return getattr(kind, call)(*args, **kwargs)
    if isinstance(first, (list, tuple, str)):  # cat, einsum
        return getattr(kind, call)(first, *args, **kwargs)
    if call == "where":
        return kind.chosen(first, *args, **kwargs)
    return getattr(kind.of(first), call)(*args, **kwargs)
