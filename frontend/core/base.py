"""The core of a tensor: a node, a device, and how new tensors come from old ones.

In       a graph node and the name of the device that will compute it
Out      `Core`, the state of a `Tensor`; `live`, every tensor that is still held; `thread_modes`, the threads
         that are inside no_grad() or watched
Changes  `live`; the clock of changes, which moves when a tensor that exists gets another node
Next     ops/ (the groups of methods), tensor.py (who joins them), jit/capture.py (who watches a thread)

Every method that computes builds a node and wraps it with `_like`; nothing runs before `realize`.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from math import prod
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hcq.checks import is_whole, shown
from hcq.frontend.core import known_later, sizes
from hcq.frontend.core.errors import OutOfRange, UsageError
from hcq.frontend.core.known_later import KnownLater, room_of
from hcq.frontend.core.threads import are_threads
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


class _Ref(weakref.ref["Core"]):
    """A live tensor in the registry; knows its key so that it can leave.

    whole   the tensor that it was made as a view of, or that one was: None for none
    views   how many views of it there are
    thread  the one that made the tensor, or that last computed it or wrote to it
    """

    __slots__ = ("key", "thread", "views", "whole")
    key: int
    thread: int
    views: int
    whole: _Ref | None


_refs: dict[int, _Ref] = {}


def _forget(ref: Any) -> None:
    key = ref.key
    if _refs.get(key) is ref:
        del _refs[key]
    if ref.whole is not None:
        ref.whole.views -= 1


class Live:
    """Every tensor that is still held, oldest first. It holds none of them itself."""

    def __iter__(self) -> Iterator[Core]:
        for ref in list(_refs.values()):
            tensor = ref()
            if tensor is not None:
                yield tensor

    def __len__(self) -> int:
        return len(_refs)

    def __contains__(self, tensor: object) -> bool:
        ref = _refs.get(id(tensor))
        return ref is not None and ref() is tensor

    def own(self) -> list[Core]:
        """Those of this thread: which it made, or last computed or wrote to."""
        thread = get_ident()
        found = [ref() for ref in list(_refs.values()) if ref.thread == thread]
        return [tensor for tensor in found if tensor is not None]

    def take(self, tensor: Core) -> None:
        """From now on a tensor is this thread's."""
        _refs[id(tensor)].thread = get_ident()

    def others(self) -> list[Core]:
        """Those of other threads, as `held` gives them."""
        thread = get_ident()
        return [tensor for tensor in self.held() if _refs[id(tensor)].thread != thread]

    def held(self) -> list[Core]:
        """All at one moment: what a thread makes of them after it reads no memory that none of them reads."""
        refs = list(_refs.values())
        found = [tensor for ref in refs if (tensor := ref()) is not None]
        while are_threads():  # one may have been dropped once another was made of it
            known = set(map(id, refs))
            newer = [ref for ref in list(_refs.values()) if id(ref) not in known]
            if not newer:
                break
            refs += newer
            found += [tensor for ref in newer if (tensor := ref()) is not None]
        return found

    def refs(self) -> list[_Ref]:
        """A reference to each, and perhaps to some that were dropped."""
        return list(_refs.values())

    def ref(self, tensor: Core) -> _Ref:
        """The reference to a tensor: the same one for as long as it lives."""
        return _refs[id(tensor)]

    def since(self, mark: Core) -> list[Core]:
        """The tensors made after this one and still held; as many steps as there are of those."""
        found: list[Core] = []
        for count in (FEW, MORE, len(_refs)):  # copies, for other threads change it meanwhile
            found = []
            for ref in list(itertools.islice(reversed(_refs.values()), count)):
                tensor = ref()
                if tensor is mark:
                    return found
                if tensor is not None:
                    found.append(tensor)
        return found

    def renew(self, mark: Core) -> None:
        """A tensor that stands for nothing but a moment now counts as the one made last."""
        key = id(mark)
        _refs[key] = _refs.pop(key)


FEW, MORE = 8, 64
live = Live()


class Watcher(Protocol):
    """What is called back for everything a thread does with tensors: a jit, while it captures a function."""

    name: str

    def made(self, ref: weakref.ref[Core]) -> None:
        """A tensor was made."""

    def writes(self, tensor: Core, is_shown: bool = False) -> None:
        """A tensor that exists is about to get another value, seen in its views or not. May refuse."""

    def is_shared(self, tensor: Core) -> bool:
        """Whether there may be views of a tensor that this thread does not know: of an argument."""

    def shows(self, storage: Any) -> None:
        """Memory is written so that views of it show the new values."""

    def forbids(self, call: str, why: str) -> None:
        """Something is about to happen that a recording cannot mean. May refuse."""

    def requires(self, gap: Any, words: str) -> None:
        """A distance between numbers of variables may not be negative, in any replay."""

    def reads_state(self, thing: object, name: str, value: object) -> None:
        """Python state that decides what is computed was read: a module's mode, whether a gradient is there."""

    def uploaded(self, storage: Any, raw: bytes) -> None:
        """Memory was filled with data of the host."""

    def indexed(self, item: Any) -> None:
        """A list or array of the host is used as an index, or a list of numbers as a tensor's."""


class ThreadMode:
    """The mode of a thread that has one: how many no_grad() deep it is, its watcher, the function transforms around it.

    autocast     inside autocast()
    transforms   of the function that runs now, the innermost last: see more/transforms/
    """

    __slots__ = ("autocast", "no_grad_depth", "transforms", "watcher")

    def __init__(self) -> None:
        self.no_grad_depth = 0
        self.watcher: Watcher | None = None
        self.transforms: list[Any] = []
        self.autocast: dict[str, DType] = {}  # kind of device -> what products are computed in, see amp/


# by thread; most have no entry, so that their work pays for one look
thread_modes: dict[int, ThreadMode] = {}


def watcher() -> Any:
    """The watcher of this thread, or None."""
    if not thread_modes:
        return None
    mode = thread_modes.get(get_ident())
    return None if mode is None else mode.watcher


def transforms() -> list[Any]:
    """The function transforms inside which this thread is, the innermost last."""
    mode = thread_modes.get(get_ident()) if thread_modes else None
    return [] if mode is None else mode.transforms


class _End:
    """Goes when its thread ends, and takes the thread's mode along: the next thread may get the same number."""

    def __init__(self) -> None:
        self.thread = get_ident()

    def __del__(self) -> None:
        thread_modes.pop(self.thread, None)


_ends = threading.local()


def mode_of_thread() -> ThreadMode:
    """This thread's entry of `thread_modes`, made when it has none."""
    if not hasattr(_ends, "end"):
        _ends.end = _End()
    return thread_modes.setdefault(get_ident(), ThreadMode())


def drop_default_mode() -> None:
    """Drop this thread's entry when it is empty."""
    mode = thread_modes.get(get_ident())
    if (
        mode is not None
        and not mode.no_grad_depth
        and mode.watcher is None
        and not mode.transforms
        and not mode.autocast
    ):
        del thread_modes[get_ident()]


def autocast_dtype(device: str) -> DType | None:
    """What products on a device are computed in, inside autocast(); else None."""
    mode = thread_modes.get(get_ident())
    if mode is None or not mode.autocast:
        return None
    return mode.autocast.get(device.partition(",")[0].partition(":")[0])


_ticks = itertools.count(1)
_changes = 0


def changes() -> int:
    """The clock of changes: as long as it stands, every tensor means the node it meant."""
    return _changes


def changed() -> None:
    """A tensor that exists has another node now, or Python state that decides what is computed has changed."""
    global _changes
    _changes = next(_ticks)  # each number is set once, so no change hides another thread's


def _after_fork() -> None:
    """In the child other threads are gone, and new ones may get their numbers."""
    for thread in thread_modes.keys() - {get_ident()}:
        del thread_modes[thread]


os.register_at_fork(after_in_child=_after_fork)


MAX_SIZE = 1 << 62  # elements of a tensor: what an index of 64 bits can count

_NEVER_CUT = frozenset({Op.BUFFER, Op.CONST, Op.DETACH})


class Core:
    """What every method relies on: `node`, `device`, `grad`, and making a tensor like this one."""

    __slots__ = ("__weakref__", "_grad", "_requires_grad", "device", "node")

    _kind: ClassVar[type[Any]]  # of what is computed from one: Tensor, also where that one is a parameter

    __array_ufunc__ = None  # NumPy's operators leave `array + tensor` to the tensor

    node: Node  # what to compute, or the BUFFER that holds it
    device: str  # canonical device name
    _grad: Self | None
    _requires_grad: bool

    def _view(self, node: Node) -> Self:
        """A new tensor that shows this one's elements: what is written into either is seen in both (views.py)."""
        tensor = self._like(node)
        own = _refs[id(self)]
        whole = _refs[id(tensor)].whole = own.whole or own
        whole.views += 1
        return tensor

    def _is_view_of(self, whole: _Ref) -> None:
        """This new tensor shows what that one shows, or a part of it, as if it had been made by `_view`."""
        own = _refs[id(self)]
        if whole is not own:
            own.whole = whole.whole or whole
            own.whole.views += 1

    def _like(self, node: Node) -> Self:
        """A new tensor on this one's device."""
        if known_later.in_use:
            for source in node.src:
                if source.src:  # memory and numbers are whole
                    sizes.sizes_of(node)  # refuses, here and not when it runs
                    break
        if thread_modes:
            return self._like_in_mode(node)
        tensor: Self = object.__new__(self._kind)
        tensor.node = node
        tensor.device = self.device
        tensor._requires_grad = False
        tensor._grad = None
        key = id(tensor)
        ref = _Ref(tensor, _forget)
        ref.key, ref.views, ref.whole = key, 0, None
        ref.thread = get_ident()
        _refs[key] = ref
        return tensor

    def _like_in_mode(self, node: Node) -> Self:
        mode = thread_modes.get(get_ident())
        if mode is not None and mode.no_grad_depth and node.op not in _NEVER_CUT:
            node = Node(Op.DETACH, node.dtype, (node,))
        return self._of(node, self.device)

    @classmethod
    def _of(cls, node: Node, device: str) -> Self:
        """A new tensor of that node on that device."""
        tensor: Self = object.__new__(cls._kind)
        tensor.node = node
        tensor.device = device
        tensor._requires_grad = False
        tensor._grad = None
        tensor._register()
        return tensor

    def _register(self) -> None:
        key = id(self)
        ref = _Ref(self, _forget)
        ref.key, ref.views, ref.whole = key, 0, None
        ref.thread = get_ident()
        _refs[key] = ref
        if thread_modes and (watching := watcher()) is not None:
            watching.made(ref)

    @property
    def grad(self) -> Self | None:
        """The gradient that backward() added up; see `Tensor.grad`."""
        return self._grad_so_far()

    @grad.setter
    def grad(self, gradient: Self | None) -> None:
        self._set_grad(gradient)

    def _set_grad(self, gradient: Self | None) -> None:
        if thread_modes and (watching := watcher()) is not None:
            watching.reads_state(self, "grad", None)  # what is read after this is not from before
        self._grad = gradient

    def _grad_so_far(self) -> Self | None:
        """`grad`, of which nothing is said where it is None."""
        if thread_modes and (watching := watcher()) is not None:
            watching.reads_state(self, "grad", self._grad is not None)
        return self._grad

    @property
    def shape(self) -> Shape:
        """Sizes by axis, a tuple of ints; a `Bound` stands for the size of an axis that a Variable cut.

        >>> hcq.tensor([[1, 2, 3]]).shape, hcq.tensor(5).shape
        ((1, 3), ())
        """
        return self.node.shape if not known_later.in_use else sizes.shape_of(self.node)

    @property
    def dtype(self) -> DType:
        """The number format of the elements: one of hcq.dtypes.

        >>> hcq.tensor([1, 2]).dtype, (hcq.tensor([1, 2]) / 2).dtype
        (dtypes.int64, dtypes.float32)
        """
        return self.node.dtype

    @property
    def ndim(self) -> int:
        """How many axes.

        >>> Tensor.zeros(2, 3).ndim
        2
        """
        return len(self.node.shape)

    def dim(self) -> int:
        """How many axes; PyTorch's word for `ndim`.

        >>> Tensor.zeros(2, 3).dim(), hcq.tensor(7).dim()
        (2, 0)
        """
        return len(self.node.shape)

    def numel(self) -> int:
        """How many elements: the product of the shape.

        >>> Tensor.zeros(2, 3).numel(), Tensor(1.0).numel()
        (6, 1)
        """
        return prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis. Raises OutOfRange for an axis that is not there.

        >>> Tensor.zeros(2, 3).size(-1)
        3
        """
        return self.shape if dim is None else self.shape[self._axis("size", dim)]

    def element_size(self) -> int:
        """Bytes of one element.

        >>> Tensor.zeros(3, dtype=hcq.float16).element_size()
        2
        """
        return self.node.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements.

        >>> Tensor.zeros(2, 3).nbytes
        24
        """
        return self.numel() * self.node.dtype.itemsize

    def is_complex(self) -> bool:
        """True for complex64 and complex128.

        >>> Tensor([1j]).is_complex(), Tensor([1.0]).is_complex()
        (True, False)
        """
        return False

    def is_floating_point(self) -> bool:
        """True for the float formats, those of 8 bits included.

        >>> Tensor([1.0]).is_floating_point(), hcq.tensor([1]).is_floating_point()
        (True, False)
        """
        return self.node.dtype.is_float

    def detach(self) -> Self:
        """The same values in the same memory; no gradient flows back through them.

        >>> x = Tensor([2.0], requires_grad=True)
        >>> (x * x.detach()).sum().backward()
        >>> x.grad.tolist()
        [2.0]
        """
        return self._view(Node(Op.DETACH, self.node.dtype, (self.node,)))

    # -- how methods check what they are given --

    def _axis(self, call: str, axis: int, extra: int = 0) -> int:
        """A non-negative axis; negative ones count from the end. `extra` is 1 where a new axis may be named."""
        rank = len(self.node.shape) + extra
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise UsageError(f"[{call}] axis {shown(axis)}: an axis is an int.")
        if -rank <= axis < rank:
            return axis + rank if axis < 0 else axis
        if rank == 0 and axis in (0, -1):  # a scalar answers to axis 0, as in PyTorch
            return 0
        known = f"use {-rank} to {rank - 1}" if rank else "it has none"
        raise OutOfRange(
            f"[{call}] axis {axis} of a tensor of shape {self.node.shape}: out of range; {known}."
        )

    def _axis_of(self, call: str, axis: int) -> int:
        """A non-negative axis of a tensor that has one."""
        if not self.node.shape:
            raise OutOfRange(
                f"[{call}] a tensor of shape () has no axis. Give it one first, with unsqueeze(0)."
            )
        return self._axis(call, axis)

    def _refuse_cut(self, call: str, first: int = 0) -> None:
        """Refuse what is computed from sizes as ints, where an axis from `first` on is cut by a bound variable."""
        if not known_later.in_use:
            return
        for axis, size in enumerate(sizes.shape_of(self.node)):
            if axis >= first and isinstance(size, KnownLater):
                raise UsageError(
                    f"[{call}] axis {axis} has the size {size}, which is known only when the work "
                    "runs: this takes sizes that are ints. Give a whole tensor."
                )

    def _axes(self, call: str, axes: int | tuple[int, ...] | list[int] | None) -> tuple[int, ...]:
        """Non-negative axes in order, each once; None means all of them."""
        if axes is None:
            return tuple(range(len(self.node.shape)))
        if not isinstance(axes, (tuple, list)):
            axes = (axes,)
        found = sorted(self._axis(call, axis) for axis in axes)
        for a, b in itertools.pairwise(found):
            if a == b:
                raise UsageError(
                    f"[{call}] axes {tuple(axes)}: axis {a} is named twice. Name each axis once."
                )
        if not self.node.shape:
            return ()
        return tuple(found)

    def _same_device(self, call: str, *others: Core) -> None:
        for other in others:
            if other.device != self.device:
                raise UsageError(
                    f"[{call}] one tensor is on {self.device}, another on {other.device}. "
                    f'Move one: x.to("{self.device}").'
                )


def shape_args(call: str, args: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape or list of axes given as one tuple or as loose ints."""
    found = tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    for item in found:
        if type(item) is not int or not -MAX_SIZE <= item <= MAX_SIZE:
            return tuple(_plain_size(call, each, found) for each in found)
    return found


def room_args(call: str, args: tuple[Any, ...]) -> tuple[int, ...]:
    """`shape_args` where a size may be a Bound of an axis that is there: how many elements it has room for."""
    found = tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    return shape_args(call, (tuple([room_of(n) if isinstance(n, KnownLater) else n for n in found]),))


def _plain_size(call: str, item: Any, found: Any) -> int:
    if isinstance(item, KnownLater):
        raise UsageError(
            f"[{call}] {shown(found)}: the size {item} is known only when the work runs. Take a size with room for "
            f"{item.high}, and cut what comes of it: x[:{item}]."
        )
    if isinstance(item, Core) and not item.node.shape and item.node.dtype.is_integer:
        item = item.__index__()  # type: ignore[attr-defined]
    if isinstance(item, Core) or not is_whole(item):
        raise UsageError(
            f"[{call}] {shown(found)}: {shown(item)} is not an int. Give ints, loose or in one tuple."
        )
    size = int(item.__index__())
    if not -MAX_SIZE <= size <= MAX_SIZE:
        raise UsageError(
            f"[{call}] {shown(found)}: {shown(item)} is more than any tensor has. Use a smaller size."
        )
    return size


def check_count(call: str, shape: Shape) -> None:
    """Refuse a shape of more elements than an index can count."""
    if prod(shape) > MAX_SIZE:
        raise UsageError(
            f"[{call}] shape {shown(shape)} has more elements than any tensor. Use smaller sizes."
        )
