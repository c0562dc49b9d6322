"""Asking: what a tensor is and where its elements lie, and tensors made to be like it.

In       tensors
Out      sizes, strides, flags; tensors of the dtype and on the device of another
Changes  apply_ and map_: the tensor
Next     core/views.py (which tensors show the same memory), strided.py, core/base.py (shape, numel)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.frontend.core import view_writes, views
from hcq.frontend.core.base import Core
from hcq.frontend.core.device import Word
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import DType


def _type_of(device: str) -> str:
    return Word(device).type


class Asking(Methods):
    """stride, is_contiguous, data_ptr, is_cuda, is_signed, new_tensor, type_as, ..."""

    __slots__ = ()

    def stride(self, dim: int | None = None) -> Any:
        """How many elements apart the neighbours along each axis are, or along one, as PyTorch's views lie.

        What is computed lies in row-major order, and so does what PyTorch would copy for, such as a flip.

        >>> Tensor.zeros(2, 3).T.stride(), Tensor.zeros(2, 3).stride(0)
        ((1, 3), 3)
        """
        found = tuple(views.lies(self.node)[0])
        return found if dim is None else found[self._axis_of("stride", dim)]

    def storage_offset(self) -> int:
        """How many elements of the memory lie before the first one.

        >>> Tensor.zeros(2, 3)[1].storage_offset()
        3
        """
        return views.lies(self.node)[1]

    def is_contiguous(self) -> bool:
        """True where the elements lie in row-major order, one behind the other.

        >>> x = Tensor.zeros(2, 3)
        >>> x.is_contiguous(), x.T.is_contiguous()
        (True, False)
        """
        shape = self.node.shape
        pairs = zip(shape, views.lies(self.node)[0], views.row_major(shape), strict=True)
        return 0 in shape or all(size == 1 or have == want for size, have, want in pairs)

    def data_ptr(self) -> int:
        """The address of the first element, on its device; it is computed now. Of no elements it is 0.

        >>> x = Tensor([1.0, 2.0])
        >>> x[1:].data_ptr() - x.data_ptr()
        4
        """
        if not self.numel():
            return 0
        found = view_writes.in_memory(self)
        if found is None:
            raise UsageError(
                f"[data_ptr] shape {self.shape}: a flip has no memory of its own. Use x.clone() first."
            )
        storage, _, start = found
        return int(storage.buffer.address) + start * self.node.dtype.itemsize

    @property
    def is_cpu(self) -> bool:
        """True on the CPU.

        >>> Tensor([1.0], device="CPU").is_cpu
        True
        """
        return self.device == "CPU"

    @property
    def is_cuda(self) -> bool:
        """True on a GPU of NVIDIA or AMD, which PyTorch calls "cuda" both.

        >>> Tensor([1.0], device="CPU").is_cuda
        False
        """
        return _type_of(self.device) == "cuda"

    @property
    def is_mps(self) -> bool:
        """True on a Metal device.

        >>> Tensor([1.0], device="CPU").is_mps
        False
        """
        return _type_of(self.device) == "mps"

    @property
    def is_xpu(self) -> bool:
        """False: there are no such devices.

        >>> Tensor([1.0]).is_xpu
        False
        """
        return False

    def cuda(
        self, device: str | int | None = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Self:
        """On a GPU: x.to("cuda"), or one of several by its number. Raises UsageError where there is none.

        >>> x = Tensor([1.0])
        >>> (x.cuda() if hcq.torch.cuda.is_available() else x).tolist()
        [1.0]
        """
        here: Any = self
        return here.to("cuda" if device is None else device)  # type: ignore[no-any-return]

    def get_device(self) -> int:
        """The number of the GPU that it is on; -1 on the CPU.

        >>> Tensor([1.0], device="CPU").get_device()
        -1
        """
        return -1 if self.is_cpu else Word(self.device).index or 0

    def pin_memory(self, device: Any = None) -> Self:
        """The tensor itself: memory of the host is read by devices as it is.

        >>> x = Tensor([1.0])
        >>> x.pin_memory() is x
        True
        """
        return self

    @property
    def is_sparse(self) -> bool:
        """False: every tensor has all of its elements.

        >>> Tensor([0.0]).is_sparse
        False
        """
        return False

    @property
    def is_quantized(self) -> bool:
        """False: elements are numbers of the dtype.

        >>> Tensor([0.0]).is_quantized
        False
        """
        return False

    @property
    def is_meta(self) -> bool:
        """False: every tensor has values.

        >>> Tensor([0.0]).is_meta
        False
        """
        return False

    @property
    def itemsize(self) -> int:
        """Bytes of an element.

        >>> Tensor([1.0]).itemsize
        4
        """
        return self.node.dtype.itemsize

    def is_signed(self) -> bool:
        """True for a dtype that has numbers below zero.

        >>> hcq.tensor([1]).is_signed(), hcq.tensor([True]).is_signed()
        (True, False)
        """
        dtype = self.node.dtype
        return not (dtype.is_unsigned or dtype.is_bool)

    def is_nonzero(self) -> bool:
        """Whether the one element is not zero. Waits. Raises UsageError unless there is one.

        >>> Tensor([0.5]).is_nonzero()
        True
        """
        return bool(self)

    def is_same_size(self, other: Core) -> bool:
        """True for the same shape.

        >>> hcq.tensor([1]).is_same_size(hcq.tensor([[1]]))
        False
        """
        return self.node.shape == other.node.shape

    def new_tensor(
        self, data: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Any:
        """A tensor of data, of this one's dtype and device unless others are given.

        >>> Tensor([1.5]).new_tensor([2, 3]).tolist()
        [2.0, 3.0]
        """
        kind: Any = self._kind
        return kind(data, device or self.device, dtype or self.node.dtype, requires_grad)

    def new(self, *data: Any) -> Any:
        """`new_empty` of sizes, or `new_tensor` of a list, as older programs have it.

        >>> Tensor([1.5]).new(2, 3).shape, Tensor([1.5]).new([1, 2]).tolist()
        ((2, 3), [1.0, 2.0])
        """
        here: Any = self
        if data and not all(isinstance(size, int) for size in data):
            return here.new_tensor(*data)
        return here.new_empty(data or (0,))

    def type_as(self, other: Core) -> Self:
        """These numbers in the dtype of another tensor.

        >>> hcq.tensor([1]).type_as(Tensor([0.5])).tolist()
        [1.0]
        """
        return self.cast(other.node.dtype)

    def apply_(self, callable: Callable[[Any], Any]) -> Self:
        """Each element becomes what a function of Python makes of it, on the host, one by one. Returns this tensor.

        >>> Tensor([1.0, 2.0]).apply_(lambda x: x + 1).tolist()
        [2.0, 3.0]
        """
        return self._mapped("apply_", callable, self)

    def map_(self, other: Any, callable: Callable[[Any, Any], Any]) -> Self:
        """Each element becomes what a function of Python makes of it and of another tensor's. Returns this tensor.

        >>> Tensor([1.0, 2.0]).map_(Tensor([3.0, 5.0]), lambda x, y: x * y).tolist()
        [3.0, 10.0]
        """
        if not isinstance(other, Methods):
            raise UsageError(f"[map_] {shown(other)}: takes a tensor, and a function of two numbers.")
        return self._mapped("map_", callable, self, other.expand(*self.node.shape))

    def _mapped(self, call: str, function: Callable[..., Any], *given: Any) -> Self:
        if not callable(function):
            raise UsageError(f"[{call}] {shown(function)}: takes a function of numbers.")
        rows = [one.flatten().tolist() for one in given]
        kind: Any = self._kind
        here: Any = self
        made = kind([function(*each) for each in zip(*rows, strict=True)], self.device, self.node.dtype)
        return here._written(call, made.reshape(self.node.shape))  # type: ignore[no-any-return]
