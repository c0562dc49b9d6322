"""Tensor: numbers on a device, computed when they are needed.

In       Python numbers, lists, bytes, arrays; a device name; a dtype
Out      `Tensor`, the groups of methods joined into one class, with the ways into memory and back out
Changes  device memory for data given here; realize() and everything that reads values runs what they need
Next     core/base.py, ops/reading.py, ops/gradients.py, and the groups below,
         ops/late.py (groups that are imported when first used), run/realize.py, run/short.py (one operation)

    movement    reshape, permute, pad         reduction      sum, max, argmax, cumsum
    indexing    x[...], gather, scatter       product        matmul, einsum
    joining     cat, stack                    window         conv2d
    ordering    sort, topk                    normalisation  softmax, layer_norm
    conversion  cast                          loss           cross_entropy
    elementwise + - * / < == where            creation       zeros, arange, eye
    functions   // % exp, log, floor          random         rand, randn
    power       **                            initial        kaiming_uniform, xavier_normal
    activation  relu, elu, hardtanh           attention      scaled_dot_product_attention
    angles      asin, atan2, hypot            logarithms     logaddexp, xlogy
    signs       copysign, nan_to_num, fmax    bits           bitwise_and, gcd
    gates       glu, prelu, softshrink        shapes         meshgrid, hstack, rot90
    statistics  median, quantile, cummax      counting       bincount, searchsorted
    scattering  scatter, index_add, put       special_values erfinv, lgamma, i0
    pooling     max_pool2d, avg_pool2d        rearranging    interpolate, pixel_shuffle
    margins     cdist, triplet_margin_loss    matrices       addmm, kron, tensordot
    parts       real, conj, complex, angle

`x += 1`, `x.add_(1)` and `x[...] = y` write where x is: views of x see it, as `x[0]` or `x.T`, and what was computed
from x before keeps what it meant. `x.assign(y)` gives x another value, and leaves them all what they meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hcq.checks import shown
from hcq.frontend.core import above, sizes
from hcq.frontend.core import data as formats
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import Core, watcher
from hcq.frontend.core.device import is_group
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.frontend.core.known_later import KnownLater
from hcq.frontend.core.nodes import constant_element, scalar_dtype
from hcq.frontend.core.storage import Storage
from hcq.frontend.ops.activation import Activation
from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.choice import Choice
from hcq.frontend.ops.complex_arguments import BOTH, complex_class
from hcq.frontend.ops.elementwise import Elementwise
from hcq.frontend.ops.gradients import Gradients
from hcq.frontend.ops.late import Late, take_over
from hcq.frontend.ops.movement import Movement
from hcq.frontend.ops.product import Product
from hcq.frontend.ops.reading import Reading
from hcq.frontend.ops.reduction import Reduction
from hcq.frontend.run import timed_out_work
from hcq.frontend.run.realize import realize, schedule_of
from hcq.frontend.run.short import realize_short
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:

    class Own(
        Reading, Gradients,
        Movement, Elementwise, Choice, Activation, Reduction, Product,
    ):  # fmt: skip
        """The groups that every program has."""

        __slots__ = ()

else:

    class Own(Methods):
        """The groups that every program has, in one class: attributes are looked for along all bases of a class."""

        __slots__ = ()
        _groups = (
            Reading, Gradients,
        Movement, Elementwise, Choice, Activation, Reduction, Product,
        )  # fmt: skip

    for _part in Own._groups:
        take_over(Own, _part)

if TYPE_CHECKING:
    Kind = type
else:

    class Kind(type(Late)):
        """The class of Tensor: calling it makes a tensor of real or of complex numbers, whichever the data are.

        Classes derived from Tensor are called as any class is, so that they may have an __init__ of their own.
        """

        def __call__(cls, *args, **named):
            return _tensor(*args, **named) if cls is Tensor else type.__call__(cls, *args, **named)

        @property
        def __signature__(cls):
            import inspect

            own = inspect.signature(cls.__init__)
            return own.replace(parameters=list(own.parameters.values())[1:], return_annotation=own.empty)


class Tensor(Own, Late, metaclass=Kind):
    """Numbers of one shape and dtype on a device, computed when they are read.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y = (x @ x.T).relu().sum(dim=1)  # a graph: nothing has run yet
    >>> y.shape, y.tolist()
    ((2,), [16.0, 36.0])
    """

    __slots__ = ()
    _is_parameter: bool = False  # of nn, which files of tensors say

    def __init__(
        self,
        data: Any = (),
        device: str | None = None,
        dtype: DType | None = None,
        requires_grad: bool = False,
    ) -> None:
        """A tensor of `data`, copied to the device at once, as torch.Tensor is: float32, where `hcq.tensor` infers.

        data    nested lists of numbers, a float or a bool, bytes-like (a vector of `dtype`), an array, a Tensor;
                or sizes, of which the first stands here, for zeros: hcq.tensor(4), Tensor(2, 3)
        device  "CPU", ...; None is the default device, or that of a Tensor given as data
        dtype   None is float32 for lists, also of ints and bools, and what it has for an array; an int is a number then
        Raises  UsageError for ragged lists, what is no number, and numbers that do not fit an integer dtype

        >>> hcq.tensor(4).shape, hcq.tensor([0, 1]).dtype, hcq.tensor([0, 1]).dtype
        ((4,), dtypes.float32, dtypes.int64)
        """
        data, device, dtype, requires_grad = _meant(data, device, dtype, requires_grad)
        try:
            self._fill(data, device, dtype)
        except NotReal:
            raise UsageError(
                f"[{type(self).__name__}] complex numbers: its numbers are real. Make one of z.real, another of z.imag."
            ) from None
        if requires_grad:
            self.requires_grad = True

    @classmethod
    def _made_of(
        cls, data: Any, device: str | None = None, dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """`hcq.tensor`: a number, or lists of them, whose dtype they say: bool, int64 or float32."""
        return _made(data, device, dtype, requires_grad)  # type: ignore[return-value]

    def _fill(self, data: Any, device: str | None, dtype: DType | None) -> None:
        if dtype is not None and not isinstance(dtype, DType):
            raise UsageError(
                f"[Tensor] dtype {dtype!r} is not a dtype. Use one of hcq.dtypes, as dtypes.float32."
            )
        self._requires_grad = False
        self._grad = None
        self._take(data, device, dtype)
        self._register()

    def _take(self, data: Any, device: str | None, dtype: DType | None) -> None:
        """Have the numbers of `data`. Raises NotReal where they are complex, or are to be."""
        if dtype is not None and dtype.is_complex:
            raise NotReal(f"[Tensor] dtype {dtype.name}: a tensor of real numbers has no such dtype.")
        if isinstance(data, Tensor):
            source = data if device is None else data.to(device)
            self.device = source.device
            self.node = source.node if dtype is None else source.cast(dtype).node
        else:
            if device is None and isinstance(data, KnownLater):
                device = data.device
            self.device = devices.canonical(device)
            watching = watcher()
            if watching is None or type(data) in (float, int, bool) or isinstance(data, KnownLater):
                self.node = self._node_of(data, dtype)
                return
            if formats.is_of_numbers(data):
                watching.indexed(data)
                # stays as it is: what is written to this tensor is written to a copy
                node = self._node_of(data, dtype)
                self.node = Node(Op.CONTIGUOUS, node.dtype, (node,))
                return
            watching.forbids(
                "Tensor(data)",
                "new host data other than lists of numbers is not part of a recording. Make the tensor outside",
            )
            self.node = self._node_of(data, dtype)

    def _node_of(self, data: Any, dtype: DType | None) -> Node:
        kind = type(data)
        if kind is float or kind is int or kind is bool:
            dtype = dtype or scalar_dtype(data)
            return constant_element("Tensor", data, dtype)
        if isinstance(data, KnownLater):
            node = data.number(self.device)
            return node if dtype is None else node.cast(dtype)
        if isinstance(data, (bytes, bytearray, memoryview)):
            shape, have, raw = formats.from_buffer(data, dtype or dtypes.uint8)
        elif hasattr(data, "__array__"):
            shape, have, raw = formats.from_array(data, dtype)
        else:
            shape, have, raw = formats.from_python(data, dtype)
        node = self._upload(shape, have, raw)
        return node if dtype is None else node.cast(dtype)

    def _upload(self, shape: tuple[int, ...], dtype: DType, raw: Any) -> Node:
        if is_group(self.device):
            storage = above.stored(self.device, dtype, shape, raw, f"data {shape}")
        else:
            storage = Storage(self.device, dtype, shape)
            device = devices.get(self.device)
            if timed_out_work.late:
                timed_out_work.drop(device)
            storage.buffer = device.alloc(storage.size_bytes, f"data {shape}")
            if storage.size_bytes:
                storage.buffer.write(raw)
        watching = watcher()
        if watching is not None:
            watching.uploaded(storage, bytes(raw))
        return storage.node()

    def _real_ones(self) -> tuple[Tensor, ...]:
        return (self,)

    # -- running --

    def realize(self, *others: Any) -> Self:  # tensors; checked here, since most calls have none
        """Compute this tensor, and others with it, if they are not in memory yet. Returns itself.

        Changes  does the pending writes (`assign`) of what it reads, too
        Raises   DeviceFault and WaitTimeout when what was computed before failed on the device

        >>> x = Tensor([1.0]) + 1
        >>> repr(x)[-5:-1], repr(x.realize())[-10:-1]
        ('lazy', 'in memory')
        """
        if not others and realize_short(self):
            return self
        if not all(isinstance(one, Tensor) for one in others):
            raise UsageError(f"[realize] others={shown(others)}: takes a tensor each.")
        realize((self, *real_ones(others)))
        return self

    def schedule(self, *others: Tensor) -> list[Any]:
        """The kernels that realize() would run, compiled but not run; each plan prints as a table.

        >>> x = Tensor.rand(8).realize()
        >>> len((x * 2 + 1).sum().schedule())
        1
        """
        return schedule_of((self, *real_ones(others)))

    def contiguous(self) -> Self:
        """The same values in memory of their own, in row-major order; itself if it has that already.

        >>> hcq.tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        return (
            self if self.node.op is Op.BUFFER else self._like(Node(Op.CONTIGUOUS, self.dtype, (self.node,)))
        )

    def clone(self) -> Self:
        """A copy in memory of its own; gradients flow through it.

        >>> x = Tensor([1.0, 2.0])
        >>> y = x.clone()
        >>> y[0] = 5.0
        >>> x.tolist(), y.tolist()
        ([1.0, 2.0], [5.0, 2.0])
        """
        return self._like(Node(Op.CONTIGUOUS, self.node.dtype, (self.node,)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For np.asarray: an array in this tensor's memory where that is the host's; else a copy."""
        is_near = not is_group(self.device) and devices.get(self.device).is_host_memory
        is_other = dtype is not None and dtype != self.dtype.name
        if copy or not is_near or is_other or self.is_complex() or watcher() or sizes.has_counts(self.node):
            if copy is False:
                what = f"{self.dtype.name} on {self.device}" + (f" to {dtype}" if is_other else "")
                raise ValueError(f"[__array__] a tensor of {what} is copied. Leave out copy=False.")
            array = self.numpy()
        else:
            array = above.shared_array(self)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """For from_dlpack of other libraries: this tensor's memory, where that is the host's.

        Raises  BufferError for a tensor of another device, one that requires a gradient, and dtypes that DLPack lacks
        """
        return above.dlpack_capsule(self, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in DLPack's numbers: (1, 0), the host. Raises BufferError for another."""
        if is_group(self.device) or not devices.get(self.device).is_host_memory:
            raise BufferError(
                f"[dlpack] a tensor on {self.device} has no memory of the host. Bring it: x.cpu()."
            )
        return (1, 0)

    # -- copies --

    def __copy__(self) -> Self:
        return self._like(self.node)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = memo[id(self)] = self.detach().clone().realize()
        if self._grad is not None:
            copy._grad = self._grad.__deepcopy__(memo)
        return copy.requires_grad_(self._requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return above.pickled(self, protocol)


def _meant(data: Any, device: Any, dtype: Any, requires_grad: Any) -> tuple[Any, Any, Any, Any]:
    """What the arguments of `Tensor` mean: ints alone are sizes, and lists of ints become floats."""
    if type(data) is int and not isinstance(dtype, DType):
        given = data, device, dtype, requires_grad or None
        sizes_given = [size for size in given if type(size) is int]
        if type(device) is int:  # all of them are sizes
            device, dtype, requires_grad = None, None, False
        data = Tensor.empty(sizes_given, device=device)
    elif dtype is None and isinstance(data, Sequence) and formats.is_whole(data):
        dtype = dtypes.float32
    return data, device, dtype, requires_grad


def _tensor(data: Any = (), device: Any = None, dtype: Any = None, requires_grad: Any = False) -> Tensor:
    """What calling Tensor gives."""
    if type(data) is not float and not isinstance(data, Core):
        data, device, dtype, requires_grad = _meant(data, device, dtype, requires_grad)
    return _made(data, device, dtype, requires_grad)


def _made(data: Any, device: str | None, dtype: DType | None, requires_grad: bool) -> Tensor:
    """A tensor of data, of the class that its numbers ask for."""
    made = object.__new__(Tensor)
    try:
        made._fill(data, device, dtype)
    except NotReal:
        made = object.__new__(complex_class())
        made._fill(data, device, dtype)
    if requires_grad:
        made.requires_grad = True
    return made


_tensor.__qualname__ = "Tensor"  # which says what is missing, or one too many
Core._kind = Tensor
check_methods(Tensor, meeting=BOTH)


def real_ones(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors that hold the numbers of these: both parts of a complex one."""
    return [part for tensor in tensors for part in tensor._real_ones()]
