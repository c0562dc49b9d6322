"""Older names: constructors named after their dtype, range, chain_matmul, as programs written for earlier PyTorch have.

In       data or sizes
Out      FloatTensor, LongTensor, ...; range, chain_matmul, frobenius_norm, nuclear_norm; Size and dtype, for isinstance
Next     __init__.py (who asks), ops/creation.py (the constructors of today)
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Axes
from hcq.frontend.ops.table import above
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

Size: type = tuple  # what x.shape is
dtype = DType


def _made(kind: DType, given: tuple[Any, ...], device: str | None) -> Tensor:
    if not given:
        return Tensor.zeros(0, dtype=kind, device=device)
    if all(isinstance(size, int) for size in given):
        return Tensor.empty(*given, dtype=kind, device=device)
    if len(given) > 1:
        raise UsageError(f"[{kind.name}] {len(given)} arguments: give sizes, or one list or array.")
    return Tensor._made_of(given[0], device, kind)


def _of(kind: DType, example: str, what: str = "") -> Callable[..., Tensor]:
    """A constructor of tensors of a dtype, which it notes: x.type(hcq.torch.FloatTensor) casts to it."""

    def constructor(*data: Any, device: str | None = None) -> Tensor:
        return _made(kind, data, device)

    name = next(word for word, each in _WORDS.items() if each is kind)
    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = f"{what or f'`FloatTensor` of {kind.name}.'}\n\n{example}"
    constructor.dtype = kind  # type: ignore[attr-defined]
    return constructor


_WORDS = {
    "FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64, "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16, "LongTensor": dtypes.int64, "IntTensor": dtypes.int32,
    "ShortTensor": dtypes.int16, "CharTensor": dtypes.int8, "ByteTensor": dtypes.uint8, "BoolTensor": dtypes.bool,
}  # fmt: skip
FloatTensor = _of(
    dtypes.float32,
    ">>> hcq.torch.FloatTensor([1, 2]).dtype, hcq.torch.FloatTensor(2, 3).shape\n(dtypes.float32, (2, 3))",
    "float32 numbers of a list, or unknown ones of these sizes: `hcq.tensor(data, dtype=hcq.float32)` today.",
)
DoubleTensor = _of(dtypes.float64, ">>> hcq.DoubleTensor(2).dtype\ndtypes.float64")
HalfTensor = _of(dtypes.float16, ">>> hcq.HalfTensor([0.5]).dtype\ndtypes.float16")
BFloat16Tensor = _of(dtypes.bfloat16, ">>> hcq.BFloat16Tensor([0.5]).dtype\ndtypes.bfloat16")
LongTensor = _of(dtypes.int64, ">>> hcq.torch.LongTensor([1, 2]).tolist()\n[1, 2]")
IntTensor = _of(dtypes.int32, ">>> hcq.IntTensor([1, 2]).dtype\ndtypes.int32")
ShortTensor = _of(dtypes.int16, ">>> hcq.ShortTensor([1, 2]).dtype\ndtypes.int16")
CharTensor = _of(dtypes.int8, ">>> hcq.CharTensor([1, 2]).dtype\ndtypes.int8")
ByteTensor = _of(dtypes.uint8, ">>> hcq.ByteTensor([1, 2]).dtype\ndtypes.uint8")
BoolTensor = _of(dtypes.bool, ">>> hcq.BoolTensor([True, False]).tolist()\n[True, False]")


def range(
    start: float, end: float, step: float = 1, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Numbers from start on, end included: float32 unless another dtype is given. Today it is `arange`.

    >>> hcq.range(1, 2, 0.5).tolist()
    [1.0, 1.5, 2.0]
    """
    if not step or (end - start) / step < 0:
        raise UsageError(f"[range] from {start} to {end} in steps of {step}: none leads there.")
    count = int((end - start) / step) + 1
    return (Tensor.arange(count, device=device) * step + start).cast(dtype or dtypes.float32)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, in the order of the fewest multiplications: `hcq.torch.linalg.multi_dot`.

    >>> hcq.chain_matmul(Tensor([[1.0, 2.0]]), Tensor([[1.0], [1.0]]), Tensor([[3.0]])).tolist()
    [[9.0]]
    """
    return matrices[0] if len(matrices) == 1 else above("linalg").multi_dot(builtins.list(matrices))


def frobenius_norm(input: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares: `x.norm("fro", dim)`.

    >>> hcq.frobenius_norm(Tensor([[3.0, 4.0]])).item()
    5.0
    """
    return input.norm("fro", dim, keepdim)


def nuclear_norm(input: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices: `x.norm("nuc", dim)`.

    >>> round(hcq.nuclear_norm(Tensor([[3.0, 0.0], [0.0, 4.0]])).item(), 4)
    7.0
    """
    return input.norm("nuc", dim, keepdim)


def name_of(tensor: Any) -> str:
    """What PyTorch's old programs call a tensor's type: "torch.FloatTensor", "torch.cuda.LongTensor"."""
    place = "cuda." if tensor.is_cuda else ""
    for word, kind in _WORDS.items():
        if kind is tensor.dtype:
            return f"torch.{place}{word}"
    return f"torch.{place}{tensor.dtype.name}"


def on_gpu(word: str) -> Any:
    """`torch.cuda.FloatTensor`: a constructor that makes its tensors on the GPU that "cuda" means."""
    made = globals()[word]

    def constructor(*data: Any) -> Tensor:
        return made(*data, device="cuda")

    constructor.__name__ = word
    constructor.dtype, constructor.device = made.dtype, "cuda"  # type: ignore[attr-defined]
    return constructor


def constructor_of(named: Any) -> Any:
    """The constructor that is meant by one, or by its name. Raises UsageError for another thing."""
    if isinstance(named, str):
        package, _, word = named.rpartition(".")
        if word in _WORDS and package in ("torch", "hcq", "", "torch.cuda", "hcq.torch", "hcq.torch.cuda"):
            if not package.endswith(".cuda"):
                return globals()[word]
            return on_gpu(word)
    elif isinstance(getattr(named, "dtype", None), DType) and callable(named):
        return named
    raise UsageError(f"[type] {shown(named)}: give a dtype, or a constructor such as hcq.torch.FloatTensor.")
