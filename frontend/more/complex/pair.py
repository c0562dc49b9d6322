"""Pair: what a complex tensor is, and how it is made of data, read, realized and differentiated.

In       two real tensors of one shape, float dtype and device; or data with complex numbers
Out      `Pair`, from which the groups of methods of this folder derive
Changes  device memory for data given here; what realize() and reading change
Next     tensor.py (who joins the groups), ../tensor.py (the same for real tensors)

A complex tensor stands for its parts and has no node. Whatever reads one, raises NotReal: so a method of real tensors
never takes a complex one for something else, and every method that nobody has thought of refuses.

Gradients are PyTorch's: of a real loss, d/d real + i d/d imag, which is the way uphill. They need no rules: each part
has its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

from hcq.frontend.core import data as formats
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.frontend.run.realize import realize, schedule_of
from hcq.frontend.tensor import Tensor, real_ones
from hcq.ir.dtype import COMPLEX, ComplexDType, DType, dtypes
from hcq.ir.dtype import DType as AnyDType
from hcq.ir.node import Node, Shape

if TYPE_CHECKING:
    from typing_extensions import Self

_OF_PART = {dtype.part: dtype for dtype in (dtypes.complex64, dtypes.complex128)}


class Pair(Tensor):
    """State, memory, reading and gradients of a complex tensor."""

    __slots__ = ()

    # the class with all groups of methods, of which every complex tensor is: tensor.py sets it
    whole: ClassVar[Any]
    # kept in the place in which a real tensor has its node
    parts: tuple[Tensor, Tensor] = Core.__dict__["node"]

    @property
    def node(self) -> Node:  # type: ignore[override]
        """Raises NotReal: a complex tensor has none."""
        raise NotReal(
            f"[{_method()}] is not defined for this {self.dtype.name} tensor of shape {self.shape}. "
            "Take its parts, z.real and z.imag, its sizes, z.abs(), or its pairs, z.view_as_real()."
        )

    @classmethod
    def of(cls, real: Tensor, imag: Tensor | None = None) -> Self:
        """The complex numbers of these parts; those of an integer or narrow dtype become float32."""
        if isinstance(real, Pair):
            return real  # type: ignore[return-value]
        dtype = (
            dtypes.float64
            if dtypes.float64 in (real.dtype, real.dtype if imag is None else imag.dtype)
            else None
        )
        real = real.cast(dtype or dtypes.float32)
        if imag is None:
            imag = real.zeros_like()
        tensor: Self = object.__new__(cls.whole)
        tensor._have(real, imag.cast(real.dtype))
        return tensor

    def _have(self, real: Tensor, imag: Tensor) -> None:
        self.parts = real, imag  # type: ignore[misc]
        self.device = real.device
        self._requires_grad = False  # its parts' answer stands for it
        self._grad = None

    @classmethod
    def joined(cls, real: Any, imag: Any) -> Any:
        """What a method gave for both parts, as a complex tensor, or a tuple or list of them."""
        if isinstance(real, Tensor):
            return cls.of(real, imag)
        pairs = [cls.joined(re, im) for re, im in zip(real, imag, strict=True)]
        return pairs if isinstance(real, list) else tuple(pairs)

    # -- from data --

    def _register(self) -> None:
        """No live tensor of its own: its parts are."""

    def _take(self, data: Any, device: str | None, dtype: AnyDType | None) -> None:
        """Have the numbers of `data`: called where `Tensor` found that they are complex."""
        if isinstance(data, Pair):
            real, imag = data.parts if device is None else data.to(device).parts
        elif isinstance(data, Tensor):
            made = self.of(data if device is None else data.to(device))
            real, imag = made.parts
        else:
            have, first, second = _split(data)
            part = (dtype if isinstance(dtype, ComplexDType) else have).part
            name = devices.canonical(device)
            real, imag = Tensor(first, name, part), Tensor(second, name, part)
        if dtype is not None and not dtype.is_complex:
            raise UsageError(
                f"[Tensor] complex numbers do not fit {dtype.name}. Use dtypes.complex64, or give their real parts."
            )
        if isinstance(dtype, ComplexDType):
            real, imag = real.cast(dtype.part), imag.cast(dtype.part)
        self._have(real, imag)

    # -- what it is --

    @property
    def real(self) -> Tensor:  # type: ignore[override]
        """The real parts, as a tensor of real numbers."""
        return self.parts[0]

    @property
    def imag(self) -> Tensor:  # type: ignore[override]
        """The imaginary parts, as a tensor of real numbers."""
        return self.parts[1]

    @property
    def dtype(self) -> DType:
        """complex64 or complex128."""
        return _OF_PART[self.parts[0].dtype]

    @property
    def shape(self) -> Shape:
        """Sizes by axis."""
        return self.parts[0].shape

    @property
    def ndim(self) -> int:
        """How many axes."""
        return self.parts[0].ndim

    def dim(self) -> int:
        """How many axes; PyTorch's word for `ndim`."""
        return self.parts[0].ndim

    def element_size(self) -> int:
        """Bytes of one element: 8 or 16."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_complex(self) -> bool:
        """True."""
        return True

    def is_floating_point(self) -> bool:
        """False: complex numbers are no floats."""
        return False

    def detach(self) -> Self:
        """The same values in the same memory; no gradient flows back through them."""
        return self.of(self.real.detach(), self.imag.detach())

    def _axis(self, call: str, axis: int, extra: int = 0) -> int:
        return self.real._axis(call, axis, extra)

    def _axis_of(self, call: str, axis: int) -> int:
        return self.real._axis_of(call, axis)

    def _axes(self, call: str, axes: int | tuple[int, ...] | list[int] | None) -> tuple[int, ...]:
        return self.real._axes(call, axes)

    def _like(self, node: Node) -> Any:
        return self.real._like(node)

    def _float(self) -> Self:
        return self

    def _operand(self, call: str, other: Any) -> Any:
        """Anything a tensor can be made of, real or complex, as a tensor on this device."""
        if isinstance(other, Core):
            return other
        if isinstance(other, complex) and not hasattr(other, "dtype"):
            numbers = (other.real, other.imag)
            return self.of(*[Tensor(number, self.device, self.real.dtype) for number in numbers])
        return self.real._operand(call, other)

    # -- memory --

    def _real_ones(self) -> tuple[Tensor, ...]:
        return self.parts

    def realize(self, *others: Tensor) -> Self:
        """Compute both parts, and other tensors with them, if they are not in memory yet. Returns itself."""
        realize(real_ones((self, *others)))
        return self

    def schedule(self, *others: Tensor) -> list[Any]:
        """The kernels that realize() would run, compiled but not run."""
        return schedule_of(real_ones((self, *others)))

    def contiguous(self) -> Self:
        """The same values, each part in memory of its own."""
        return self.of(self.real.contiguous(), self.imag.contiguous())

    def clone(self) -> Self:
        """A copy in memory of its own; gradients flow through it."""
        return self.of(self.real.clone(), self.imag.clone())

    def to(
        self,
        target: str | AnyDType | Tensor | None = None,
        dtype: AnyDType | bool | None = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Any:
        """On another device, in another complex dtype, or both: see `Tensor.to`."""
        if isinstance(target, Core):
            return self.to(target.device, target.dtype, copy=copy)
        if isinstance(target, DType):
            return self.to(None, target, copy=copy)
        moved: Any = self
        if target is not None:
            moved = self.of(self.real.to(target), self.imag.to(target))
        if dtype is not None and not isinstance(dtype, bool):
            moved = moved.cast(dtype)
        return moved.clone() if copy else moved

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """Both parts on several devices: see `Tensor.shard`."""
        return self.of(self.real.shard(devices, axis), self.imag.shard(devices, axis))

    def assign(self, value: Any) -> Self:
        """Write `value` into the memory that the parts have: see `Tensor.assign`."""
        value = self.of(self._operand("assign", value))
        real, imag = (value.real.clone(), value.imag.clone()) if value is not self else self.parts
        self.real.assign(real)
        self.imag.assign(imag)
        return self

    # -- reading --

    def numpy(self) -> Any:
        """The values as a NumPy array of complex numbers, which owns its memory. Waits."""
        import numpy as np

        realize(self.parts)
        real, imag = self.real.numpy(), self.imag.numpy()
        array = np.empty(real.shape, self.dtype.name)
        array.real, array.imag = real, imag
        return array

    def as_memoryview(self) -> memoryview:
        """The elements on the host, copied: pairs of floats, row-major, one byte after the other."""
        return memoryview(self.numpy().tobytes())

    def tolist(self) -> Any:
        """The values as nested lists of Python's complex numbers; a number for shape (). Waits."""
        return self.numpy().tolist()

    def item(self) -> Any:
        """The one value, as a complex number of Python's. Waits. Raises UsageError unless there is one element."""
        realize(self.parts)
        return complex(self.real.item(), self.imag.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __float__(self) -> float:
        raise UsageError(f"[float] a {self.dtype.name} number is no float. Take z.real, or complex(z).")

    def __int__(self) -> int:
        raise UsageError(f"[int] a {self.dtype.name} number is no int. Take z.real, or complex(z).")

    def __repr__(self) -> str:
        text = repr(self.real).replace(f"dtype={self.real.dtype.name}", f"dtype={self.dtype.name}")
        return text

    def __copy__(self) -> Self:
        return self.of(*self.parts)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = memo[id(self)] = self.detach().clone().realize()
        return copy.requires_grad_(self.requires_grad)

    # -- gradients --

    @property
    def requires_grad(self) -> bool:
        """True for a leaf whose gradient backward() computes, and for what was computed from one."""
        return any(part.requires_grad for part in self.parts)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for a gradient, or no longer: both parts become leaves."""
        if requires_grad and not self.requires_grad:
            if self.real is self.imag:
                self.parts = self.real.clone(), self.imag.clone()  # type: ignore[misc]
        for part in self.parts:
            part.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Self | None:  # type: ignore[override]
        """d loss / d real + i d loss / d imag, as PyTorch has it; None before backward(). May be assigned."""
        slopes = [part.grad for part in self.parts]
        if slopes[0] is None and slopes[1] is None:
            return None
        real, imag = (part.zeros_like() if g is None else g for part, g in zip(self.parts, slopes))
        return self.of(real, imag)

    @grad.setter
    def grad(self, gradient: Any) -> None:
        for part, slope in zip(self.parts, (None, None) if gradient is None else self.of(gradient).parts):
            part.grad = slope

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add gradients to the `.grad` of every live leaf: see `Tensor.backward`.

        gradient  weighs the elements, of this shape
        Raises    UsageError without one: a gradient starts from a real number
        """
        if gradient is None:
            raise UsageError(
                f"[backward] a {self.dtype.name} tensor of shape {self.shape}: a gradient starts from a real number. "
                "Make one, as z.abs().sum(), or pass a gradient of its shape."
            )
        if gradient.shape != self.shape:
            raise UsageError(
                f"[backward] shape {self.shape} with a gradient of shape {gradient.shape}: the shapes must be equal."
            )
        weighed(self, gradient).backward(None, retain_graph, create_graph, inputs)


def weighed(z: Any, weights: Any) -> Tensor:
    """The real number whose gradients are those of z with these weights."""
    given = z.of(weights)
    return (z.real * given.real.detach() + z.imag * given.imag.detach()).sum()


def _split(data: Any) -> tuple[ComplexDType, Any, Any]:
    """The complex dtype of numbers, lists or an array, and their two parts."""
    if isinstance(data, complex) and not hasattr(data, "dtype"):
        return dtypes.complex64, data.real, data.imag
    if isinstance(data, (bool, int, float)):
        return dtypes.complex64, float(data), 0.0
    if isinstance(data, (bytes, bytearray, memoryview)):
        raise UsageError("[Tensor] bytes and a complex dtype. Use numpy.frombuffer(data, 'complex64').")
    if not hasattr(data, "__array__"):
        return dtypes.complex64, _each(data, "real", 0), _each(data, "imag", 0)
    import numpy as np

    array = np.asarray(data)
    if array.dtype.kind == "c" and array.dtype.name not in COMPLEX:
        raise UsageError(
            f"[Tensor] arrays of {array.dtype.name} have no dtype here. Use .astype('complex64')."
        )
    dtype = COMPLEX.get(
        array.dtype.name, dtypes.complex128 if array.dtype.name == "float64" else dtypes.complex64
    )
    return dtype, array.real.copy("C"), array.imag.copy("C")


def _each(data: Any, part: str, depth: int) -> Any:
    """That part of each number in nested lists; what is none stays as it is, to be refused."""
    if depth > formats.MAX_DEPTH:
        raise UsageError(
            f"[Tensor] lists deeper than {formats.MAX_DEPTH}, or a list that holds itself. Give an array."
        )
    if isinstance(data, (list, tuple)):
        return [_each(item, part, depth + 1) for item in data]
    if hasattr(data, "tolist"):
        return _each(data.tolist(), part, depth + 1)
    return getattr(data, part) if isinstance(data, (bool, int, float, complex)) else data


def _method() -> str:
    """The method of Tensor that a user called: the outermost one of this layer on the stack."""
    frame, name, folder = sys._getframe(2), "", "/frontend/"
    while frame is not None and folder in frame.f_code.co_filename.replace("\\", "/"):
        here = frame.f_code.co_name
        if hasattr(Tensor, here) and (not here.startswith("_") or here.startswith("__")):
            name = here
        frame = frame.f_back  # type: ignore[assignment]
    return name.strip("_") or "Tensor"
