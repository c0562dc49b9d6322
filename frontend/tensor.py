"""Tensor: numbers on a device, computed when they are needed.

In       Python numbers, lists, bytes, arrays; a device name; a dtype
Out      `Tensor`, the groups of methods joined into one class, with the ways into memory and back out
Changes  device memory for data given here; realize() and everything that reads values runs what they need
Next     core/base.py, ops/ (the groups), ops/late.py (groups that are imported when first used), run/realize.py,
         grad/gradient.py (backward)

    movement    reshape, permute, pad         reduction      sum, max, argmax, cumsum
    indexing    x[...], gather, scatter       product        matmul, einsum
    joining     cat, stack                    window         conv2d
    ordering    sort, topk                    normalisation  softmax, layer_norm
    conversion  cast                          loss           cross_entropy
    elementwise + - * / < == where            creation       zeros, arange, eye
    functions   // % exp, log, floor          random         rand, randn
    power       **                            initial        kaiming_uniform, xavier_normal
    activation  relu, tanh, gelu              attention      scaled_dot_product_attention
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

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from hcq.frontend.core import data as formats
from hcq.frontend.core import device as devices
from hcq.frontend.core import views
from hcq.frontend.core.base import Core, changed, live, watcher
from hcq.frontend.core.device import group as group_of
from hcq.frontend.core.device import is_group, members
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.frontend.core.nodes import constant, constant_element, expanded, scalar_dtype
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.threads import lock, new_write, without_done
from hcq.frontend.grad.gradient import backward, is_on_the_way
from hcq.frontend.ops.activation import Activation
from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.attention import Attention
from hcq.frontend.ops.complex_arguments import BOTH, complex_class
from hcq.frontend.ops.conversion import Conversion
from hcq.frontend.ops.creation import Creation
from hcq.frontend.ops.elementwise import Elementwise
from hcq.frontend.ops.functions import Functions
from hcq.frontend.ops.in_place import InPlace
from hcq.frontend.ops.indexing import Indexing
from hcq.frontend.ops.joining import Joining
from hcq.frontend.ops.late import Late
from hcq.frontend.ops.loss import Loss
from hcq.frontend.ops.movement import Movement
from hcq.frontend.ops.normalisation import Normalisation
from hcq.frontend.ops.power import Power
from hcq.frontend.ops.product import Product
from hcq.frontend.ops.random import Random
from hcq.frontend.ops.reduction import Reduction
from hcq.frontend.ops.window import Window
from hcq.frontend.run import timed_out_work
from hcq.frontend.run.realize import realize, realize_short, schedule_of, storage_of, to_read
from hcq.frontend.symbolic import sizes, variable
from hcq.ir.dtype import DType, Scalar, dtypes, struct_code
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


class Tensor(
    Movement, Indexing, Joining, Conversion, Elementwise, Functions, Power, Activation,
    Reduction, Product, Window, Normalisation, Attention, Loss, Creation, Random, InPlace, Late,
):  # fmt: skip
    """Numbers of one shape and dtype on a device, computed when they are read.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y = (x @ x.T).relu().sum(dim=1)  # a graph: nothing has run yet
    >>> y.shape, y.tolist()
    ((2,), [16.0, 36.0])
    """

    __slots__ = ()

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
        if type(data) is int and not isinstance(dtype, DType):
            given: tuple[Any, ...] = (data, device, dtype, requires_grad or None)
            sizes_given = [size for size in given if type(size) is int]
            if type(device) is int:  # all of them are sizes
                device, dtype, requires_grad = None, None, False
            data = type(self)._kind.empty(sizes_given, device=device)
        elif dtype is None and isinstance(data, Sequence) and formats.is_whole(data):
            dtype = dtypes.float32
        self._fill(data, device, dtype, requires_grad)

    @classmethod
    def _made_of(
        cls, data: Any, device: str | None = None, dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """`hcq.tensor`: a number, or lists of them, whose dtype they say: bool, int64 or float32."""
        made: Self = object.__new__(cls._kind)
        made._fill(data, device, dtype, requires_grad)
        return made

    def _fill(self, data: Any, device: str | None, dtype: DType | None, requires_grad: bool) -> None:
        if dtype is not None and not isinstance(dtype, DType):
            raise UsageError(
                f"[Tensor] dtype {dtype!r} is not a dtype. Use one of hcq.dtypes, as dtypes.float32."
            )
        self._requires_grad = False
        self._grad = None
        try:
            self._take(data, device, dtype)
            self._register()
        except NotReal:
            self.__class__ = complex_class()  # its memory is laid out alike
            self._take(data, device, dtype)
        if requires_grad:
            self.requires_grad = True

    def _take(self, data: Any, device: str | None, dtype: DType | None) -> None:
        """Have the numbers of `data`. Raises NotReal where they are complex, or are to be."""
        if dtype is not None and dtype.is_complex:
            raise NotReal(f"[Tensor] dtype {dtype.name}: a tensor of real numbers has no such dtype.")
        if isinstance(data, Tensor):
            source = data if device is None else data.to(device)
            self.device = source.device
            self.node = source.node if dtype is None else source.cast(dtype).node
        else:
            if device is None and type(data) is variable.Bound:
                device = data.device
            self.device = devices.canonical(device)
            watching = watcher()
            if watching is None or type(data) in (float, int, bool, variable.Bound):
                self.node = self._node_of(data, dtype)
                return
            if formats.is_of_numbers(data):
                watching.indexed(data)
                node = self._node_of(
                    data, dtype
                )  # stays as it is: what is written to this tensor is written to a copy
                self.node = Node(Op.CONTIGUOUS, node.dtype, (node,))
                return
            watching.forbids(
                "Tensor(data)",
                "new host data other than lists of numbers is not part of a recording. Make the tensor outside",
            )
            self.node = self._node_of(data, dtype)

    def _node_of(self, data: Any, dtype: DType | None) -> Node:
        kind = type(data)
        if kind is variable.Bound:
            node = data.number(self.device)
            return node if dtype is None else node.cast(dtype)
        if kind is float or kind is int or kind is bool:
            dtype = dtype or scalar_dtype(data)
            return constant_element("Tensor", data, dtype)
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
            from hcq.frontend.devices.sharding.storage import stored

            storage = stored(self.device, dtype, shape, raw, f"data {shape}")
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

    def realize(self, *others: Tensor) -> Self:
        """Compute this tensor, and others with it, if they are not in memory yet. Returns itself.

        Changes  does the pending writes (`assign`) of what it reads, too
        Raises   DeviceFault and WaitTimeout when what was computed before failed on the device

        >>> x = Tensor([1.0]) + 1
        >>> repr(x)[-5:-1], repr(x.realize())[-10:-1]
        ('lazy', 'in memory')
        """
        if others or not realize_short(self):
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

    def to(
        self,
        target: str | DType | Self | None = None,
        dtype: DType | bool | None = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Self:
        """On another device, in another dtype, or both: x.to("CPU"), x.to(dtypes.float16), x.to("AMD", dtypes.int8).

        target         may be a tensor, whose device and dtype are meant
        non_blocking   may be given, and has no effect: no copy waits
        copy           True: memory of its own even where nothing changes

        >>> Tensor([1.9]).to(dtypes.int32).tolist()
        [1]
        """
        if copy:
            return self.to(target, dtype, non_blocking).clone()
        if isinstance(target, Core):
            return self.to(target.device, target.dtype)
        if isinstance(target, DType):
            return self.cast(target)
        dtype = None if isinstance(dtype, bool) else dtype
        if target is None:
            return self if dtype is None else self.cast(dtype)
        name = devices.canonical(target)
        x = self
        if name != self.device:
            x = self._of(self.node if self.node.op is Op.CONST else self._moved(name), name)
        return x if dtype is None else x.cast(dtype)

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """On several devices of this machine: split along an axis, as evenly as can be; without one, a copy on each.

        devices  their names: ["AMD:0", "AMD:1"], or "AMD:0,AMD:1"
        Raises   UsageError for an axis with fewer elements than there are devices

        What is computed from it stays on them. Work that fits the split is done where the values are; sums over the
        split axis, and what is split otherwise, is exchanged between the devices (docs/devices.md).

        >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]]).shard(["CPU:0", "CPU:1"], axis=0)
        >>> x.device, x.sum(dim=0).tolist()
        ('CPU,CPU:1', [4.0, 6.0])
        """
        from hcq.frontend.devices.sharding.placement import Placement, split_evenly

        name = group_of(devices)
        place = None if axis is None else self._axis_of("shard", axis)
        if not is_group(name):
            return self.to(name)
        if place is not None:
            split_evenly("shard", self.node.shape, place, members(name))
        if self.node.op is Op.CONST:
            return self._of(self.node, name)
        where = Placement(name, place, name == self.device)
        return self._of(self._moved(where), name)

    def _moved(self, where: Any) -> Node:
        """The node on another device, or in another placement; what variables cut is cut there by their numbers."""
        node, counts = self.node, sizes.counts_of(self.node)
        if counts:
            node = sizes.zeroed(node)
        node = Node(Op.COPY, self.dtype, (node,), where)
        there = [(axis, variable.bound_of(count).node(str(where))) for axis, count in counts]
        return sizes.with_counts(node, there)

    def shard_(self, devices: Any, axis: int | None = None) -> Self:
        """`shard`, in place: this very tensor is on those devices then, as a parameter that modules hold.

        Its gradient, if it has one, goes with it. An optimizer made before knows it where it was: make that after.

        >>> x = Tensor([1.0, 2.0])
        >>> x.shard_(("CPU:0", "CPU:1"), axis=0).device, x.tolist()
        ('CPU,CPU:1', [1.0, 2.0])
        """
        placed = self.detach().shard(devices, axis).clone().realize()
        if self._grad is not None:
            self._grad.shard_(devices, axis)
        self._before_change()
        self.node, self.device = placed.node, placed.device
        self.node.arg.tracked = self._requires_grad
        changed()
        return self

    def cpu(self) -> Self:
        """On the CPU: x.to("CPU").

        >>> hcq.tensor([1]).cpu().device
        'CPU'
        """
        return self.to("CPU")

    # -- reading --

    def as_memoryview(self) -> memoryview:
        """The elements on the host, copied, as a memoryview: row-major, in this shape where Python has the format.

        Where an axis is empty the shape is (0,), for memoryviews have no others without elements.

        >>> Tensor([[1, 2]], dtype=hcq.int32).as_memoryview().tolist()
        [[1, 2]]
        """
        raw = memoryview(self._bytes("as_memoryview"))
        code: Any = struct_code(self.dtype)
        if code is None or code == "e":
            return raw
        shape = self._shape_now()
        return raw.cast(code) if 0 in shape else raw.cast(code, shape)

    def _bytes(self, call: str) -> bytes:
        if self.node.op is Op.CONST:
            return formats.pack([self.node.arg], self.dtype)
        room = self.node.shape
        if not prod(room):
            return b""
        raw = bytearray(prod(room) * self.dtype.itemsize)
        timed_out_work.read(self._buffer(call), raw)
        if variable.in_use and (now := sizes.shape_now(self.node)) != room:
            return formats.cut(raw, room, now, self.dtype.itemsize)
        return bytes(raw)

    def _shape_now(self) -> tuple[int, ...]:
        return sizes.shape_now(self.node) if variable.in_use else self.node.shape

    def _buffer(self, call: str) -> Any:
        """The device memory that holds the elements in row-major order; computed now."""
        watching = watcher()
        if watching is not None:
            watching.forbids(
                call, "values are not known while a recording is made. Return the tensor and read it after"
            )
        if is_group(self.device):
            return self.to(members(self.device)[0])._buffer(call)
        storage = storage_of(to_read(self))
        if storage.buffer is not None and storage.buffer.device.dead:
            from hcq.frontend.core.device import check_values

            check_values(call, storage)
        return storage.buffer

    def numpy(self) -> Any:
        """The values as a NumPy array that owns its memory. Waits. Raises UsageError for a dtype that NumPy lacks.

        >>> hcq.tensor([[1, 2]]).numpy().shape
        (1, 2)
        """
        import numpy as np

        if struct_code(self.dtype) is None:
            raise UsageError(f"[numpy] NumPy has no {self.dtype.name}. Convert first: x.float().numpy().")
        array = np.empty(self.node.shape, dtype=self.dtype.name)
        if self.node.op is Op.CONST:
            array.fill(self.node.arg)
        elif array.size:
            timed_out_work.read(self._buffer("numpy"), array)
        if variable.in_use and (now := sizes.shape_now(self.node)) != self.node.shape:
            array = array[tuple(map(slice, now))].copy()
        return array

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for shape (). Waits.

        >>> hcq.tensor([[1, 2], [3, 4]]).tolist(), hcq.tensor(5).tolist()
        ([[1, 2], [3, 4]], 5)
        """
        shape = self._shape_now()
        if 0 in shape:
            return _empty(shape)
        return formats.nested(formats.unpack(self._bytes("tolist"), self.dtype), shape)

    def item(self) -> Scalar:
        """The one value, as a Python number. Waits. Raises UsageError unless there is one element.

        >>> Tensor([[2.5]]).item()
        2.5
        """
        if self.numel() != 1:
            raise UsageError(
                f"[item] shape {self.shape} has {self.numel()} elements. Use tolist() or numpy()."
            )
        return formats.unpack(self._bytes("item"), self.dtype)[0]

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """True if every element is close: see `isclose`. Computes and reads back.

        >>> Tensor([1.0]).allclose(Tensor([1.000001])), Tensor([1.0]).allclose(Tensor([1.1]))
        (True, False)
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise UsageError(
                f"[bool] shape {self.shape} has {self.numel()} elements: its truth is unclear. Use any() or all()."
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer or self.numel() != 1:
            raise UsageError(
                f"[index] a {self.dtype.name} tensor of shape {self.shape} is no index. Use one integer."
            )
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise UsageError("[len] a tensor of shape () has no length. Use numel().")
        if isinstance(self.shape[0], variable.Bound):
            raise UsageError(
                f"[len] axis 0 has the size {self.shape[0]}, which is known only when the work runs. "
                "Use x.shape[0], which stands for it."
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise UsageError("[iter] a tensor of shape () has no elements to walk through. Use item().")
        len(self)  # refuses a size that is not known yet
        return iter(self.unbind(0))

    def __contains__(self, value: Any) -> bool:
        return bool((self == self._operand("in", value)).any())

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
            from hcq.frontend.io.dlpack import array as shared

            array = shared(self)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """For from_dlpack of other libraries: this tensor's memory, where that is the host's.

        Raises  BufferError for a tensor of another device, one that requires a gradient, and dtypes that DLPack lacks
        """
        from hcq.frontend.io.dlpack import capsule

        return capsule(self, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in DLPack's numbers: (1, 0), the host. Raises BufferError for another."""
        if is_group(self.device) or not devices.get(self.device).is_host_memory:
            raise BufferError(
                f"[dlpack] a tensor on {self.device} has no memory of the host. Bring it: x.cpu()."
            )
        return (1, 0)

    def __repr__(self) -> str:
        node = self.node
        while node.op is Op.FIRST:
            node = node.src[0]
        state = "in memory" if node.op is Op.BUFFER else "constant" if node.op is Op.CONST else "lazy"
        flag = ", requires_grad" if self._requires_grad else ""
        return f"Tensor(shape={self.shape}, dtype={self.dtype.name}, device={self.device}, {state}{flag})"

    def __str__(self) -> str:
        """The numbers, computed now; in a recording, which does not know them, what repr says."""
        if watcher() is not None:
            return repr(self)
        from hcq.frontend.ops.printing import text

        return text(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    # -- copies --

    def __copy__(self) -> Self:
        return self._like(self.node)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = memo[id(self)] = self.detach().clone().realize()
        if self._grad is not None:
            copy._grad = self._grad.__deepcopy__(memo)
        return copy.requires_grad_(self._requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        from hcq.frontend.io.pickled import reduced

        return reduced(self, protocol)

    # -- writing --

    def assign(self, value: Any) -> Self:
        """Write `value` into the memory this tensor has; without memory of its own it just becomes the value.

        Lazy: the write happens when this tensor is realized. Tensors made from this one before keep the old values.
        Where this one is a view, the tensor that it views gets the new ones.
        A value of fewer axes, or with axes of size 1, is repeated along them.
        Raises  UsageError for a shape that does not expand to this one, another dtype or device

        >>> x = Tensor([1.0, 2.0])
        >>> before = x + 0.0
        >>> x.assign(x * 10.0).tolist(), before.tolist()
        ([10.0, 20.0], [1.0, 2.0])
        """
        value = self._operand("assign", value)
        shape, given = self.shape, value.shape
        if given != shape and given:
            ends = shape[len(shape) - len(given) :] if len(given) <= len(shape) else ()
            if not ends or any(have != size and have != 1 for have, size in zip(given, ends)):
                raise UsageError(
                    f"[assign] {given} into {shape}: the shapes must be equal. Reshape or expand it."
                )
            value = value.expand(*shape)
        if value.device != self.device:
            raise UsageError(
                f'[assign] a value on {value.device} into {self.device}. Move it: y.to("{self.device}").'
            )
        node = value.node
        if node.dtype is not self.dtype:
            if node.op is not Op.CONST:
                raise UsageError(
                    f"[assign] {node.dtype.name} into {self.dtype.name}: cast it: y.cast(dtypes.{self.dtype.name})."
                )
            node = constant("assign", node.arg, self.dtype)
        with lock:
            without_done(self)
            if node is self.node:
                return self
            if live.ref(self).whole is not None and (views.is_family(self) or views.is_part_by_number(self)):
                views.write("assign", self, self._like(node))
            elif self.node.op is Op.BUFFER or self.node.op is Op.ASSIGN:
                self._become(new_write(Node(Op.ASSIGN, self.dtype, (self.node, node))))
            else:
                self._become(expanded(node, self.shape))
        return self

    def _become(self, node: Node) -> None:
        """Have another node from now on."""
        if variable.in_use:
            sizes.sizes_of(node)
        with lock:
            self._before_change()
            self.node = node
            changed()

    def _before_change(self) -> None:
        """Called before this tensor gets another value, which makes it this thread's."""
        live.take(self)
        watching = watcher()
        if watching is not None:
            watching.writes(self)

    def _write_view(self, view: Node, value: Core) -> None:
        """Write into a view of this tensor's memory, now. No tensor holds the view: it would keep what was there."""
        self._before_change()
        before = self.node
        if any(node is before for node in value.node.toposort()):
            value = self._like(value.node).clone().realize()  # what is read must not be overwritten meanwhile
        self.node = new_write(Node(Op.ASSIGN, self.dtype, (view, value.node)))
        if variable.in_use:
            sizes.sizes_of(self.node)
        try:
            self.realize()
        except BaseException:
            self.node = before
            raise
        finally:
            changed()

    # -- gradients --

    @property
    def grad(self) -> Self | None:
        """The gradient that backward() added up, of this tensor's shape; None before. May be assigned.

        Of what was computed from a leaf it stays None, and a warning says so, unless `retain_grad` was called.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> x.grad is None
        True
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [6.0]
        """
        found = self._grad_so_far()
        if found is None and not self._requires_grad and is_on_the_way(self.node) and not self.retains_grad:
            import warnings

            warnings.warn(
                f"[grad] this tensor of shape {self.shape} is no leaf: it was computed from one, and backward() sets "
                "the .grad of leaves alone. Call retain_grad() on it before backward() to have it, too.",
                stacklevel=2,
            )
        return found

    @grad.setter
    def grad(self, gradient: Self | None) -> None:
        self._set_grad(gradient)

    @property
    def requires_grad(self) -> bool:
        """True for a leaf whose gradient backward() computes, and for what was computed from one. May be assigned.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.requires_grad, (x * 2).requires_grad, (x * 2).detach().requires_grad
        (True, True, False)
        """
        return self._requires_grad or is_on_the_way(self.node)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for a gradient, or no longer. A leaf is known by its memory, so it gets memory of its own now.

        Raises  UsageError for integers and bool

        >>> x = Tensor([1.0]).requires_grad_()
        >>> x.requires_grad
        True
        """
        if not requires_grad:
            self._requires_grad = False
            if self.node.op is Op.BUFFER and self.node.arg.history is None:
                self.node.arg.tracked = (
                    False  # what is computed from it from now on has no gradient to keep a way for
                )
            changed()
            return self
        if sizes.has_counts(self.node):
            raise UsageError(
                f"[requires_grad] a tensor of shape {self.shape}, a part of another: ask for the gradient of the whole."
            )
        if not self.dtype.is_float:
            raise UsageError(
                f"[requires_grad] {self.dtype.name} has no gradient. Cast to a floating-point dtype first."
            )
        with lock:
            if self.node.op is not Op.BUFFER or any(t.node is self.node and t is not self for t in live):
                self._before_change()
                self.node = self.clone().realize().node
            self.node.arg.tracked = True
            self._requires_grad = True
            changed()
        return self

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to the `.grad` of every live leaf it depends on. Nothing runs yet.

        gradient      weighs the elements, of this shape; may be left out when there is one
        retain_graph  may be given, and has no effect: a graph is kept by who holds it, and may be gone through again
        create_graph  what `.grad` becomes can be differentiated again
        inputs        tensors, whose `.grad` alone is added to
        Raises        UsageError when there is no such leaf, or what is needed was written over since

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        backward(self, gradient, create_graph, inputs)

    @property
    def data(self) -> Self:
        """The same values in the same memory, apart from gradients: `detach`. What is written to it is written here.

        Assigning gives this very tensor other values, of any shape, and no gradient sees it.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = w.data.mul_(10.0)
        >>> w.tolist(), w.requires_grad, w.data.requires_grad
        ([10.0, 20.0], True, False)
        >>> w.data = Tensor([3.0])
        >>> w.tolist(), w.requires_grad
        ([3.0], True)
        """
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise UsageError(f"[data] {value!r}: assign a tensor.")
        own = value.detach()
        if self._requires_grad:
            if not value.dtype.is_float:
                raise UsageError(
                    f"[data] a {value.dtype.name} tensor for a leaf that requires a gradient: cast it to a float."
                )
            own = own.clone().realize()
            own.node.arg.tracked = True
        self._before_change()
        self.node, self.device = own.node, own.device
        changed()


Core._kind = Tensor
check_methods(Tensor, meeting=BOTH)


def real_ones(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors that hold the numbers of these: both parts of a complex one."""
    return [part for tensor in tensors for part in tensor._real_ones()]


def _empty(shape: tuple[int, ...]) -> Any:
    return [] if shape[0] == 0 else [_empty(shape[1:]) for _ in range(shape[0])]
