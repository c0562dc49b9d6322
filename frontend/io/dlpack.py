"""Exchange: the memory of a tensor shown to other libraries, and theirs used by tensors, by DLPack, without a copy.

In       a tensor of the CPU device; an object with `__dlpack__`, an array
Out      a capsule, a NumPy array in the same memory; a tensor
Changes  nothing is copied where both sides can use the memory as it is; each side keeps it while the other holds it
Next     frontend/core/views.py (where the elements of a view lie), hcq/external_memory.py (buffers in memory of others)
Source   DLPack 1.0, dlpack.h: DLManagedTensor, DLManagedTensorVersioned; the array API standard, from_dlpack

Tensors are lazy. Whoever looks into shared memory neither computes nor waits: after `x.add_(1)`, `x.tolist()` first.
And what is yet to be computed of a tensor sees what others have written there meanwhile. 8-bit floats stay here.
Memory goes back when the other side has dropped it: an array's at once, a capsule's at the next garbage collection.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import platform
import sys
from collections import deque
from collections.abc import Callable
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.external_memory import lend
from hcq.frontend.core import device as devices
from hcq.frontend.core import sizes, view_writes, views
from hcq.frontend.core.base import watcher
from hcq.frontend.core.device import is_group
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.storage import Storage
from hcq.frontend.run import timed_out_work
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes, struct_code
from hcq.ir.op import Op
from hcq.system import native
from hcq.system.machine_code import as_function
from hcq.system.port import LinuxPort

CPU = 1  # kDLCPU
ALIGNMENT = 64  # bytes: what kernels may expect of a buffer's address
READ_ONLY, IS_COPY = 1, 2
COMPLEX = 5
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_NAMES = {
    1: "CPU",
    2: "CUDA",
    3: "CUDA host",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    11: "ROCm host",
}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("array", _Array), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("array", _Array),
    ]  # fmt: skip


_python = ctypes.pythonapi
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _python)
)

NEW, NEW_USED = b"dltensor_versioned", b"used_dltensor_versioned"
OLD, OLD_USED = b"dltensor", b"used_dltensor"

# -- what is shown: kept until the other side says that it needs it no longer --

DROPPED_AT = 120  # where it says so, in bytes behind the beginning of the structure
# the other side's destructors run anywhere: with an exception on its way, without the GIL, while the process ends. So
# what they call is no Python: it stores a 1.  mov byte [rdi + 120], 1; ret   |   mov w1, #1; strb w1, [x0, #120]; ret
_DROP = {"x86_64": "c6477801c3", "aarch64": "2100805201e00139c0035fd6"}


class _Shown(ctypes.Structure):
    """One structure that is given away, in room that a page of machine code can mark."""

    _fields_ = [("room", ctypes.c_uint8 * DROPPED_AT), ("is_dropped", ctypes.c_uint8)]


# the structure, its capsule, and what both need kept. A tensor of another library may outlive this module
_shown: deque[tuple[_Shown, Any, tuple[Any, ...]]] = deque()
ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _python))(_shown)


@functools.cache
def _drop_address() -> int:
    made = as_function(bytes.fromhex(_DROP[platform.machine()]), LinuxPort(), "void(*)(void *)")
    gc.callbacks.append(_collected)
    return native.address(made)


def _collected(phase: str, _: object) -> None:
    if phase == "stop" and _shown:
        forget_dropped()


def forget_dropped() -> None:
    """Let go of what the other side needs no longer, and of capsules that nobody took."""
    for _ in range(len(_shown)):
        try:
            entry = _shown.popleft()  # other threads do the same, and a collection in the middle of this
        except IndexError:
            return
        is_taken = not _capsule_is(entry[1], NEW) and not _capsule_is(entry[1], OLD)
        # a capsule that nobody took is held by the entry, and as the argument of this call
        if not entry[0].is_dropped if is_taken else sys.getrefcount(entry[1]) > 2:
            _shown.append(entry)


# -- out --


def layout(call: str, tensor: Tensor, copy: bool | None = None) -> tuple[Any, int, list[int], bool]:
    """The buffer with a tensor's elements, the byte where they begin, their strides, and whether it is a copy.

    The tensor gets memory of its own where it has none. Raises BufferError where copy=False and it takes a copy.
    """
    if is_group(tensor.device) or not devices.get(tensor.device).is_host_memory:
        raise BufferError(
            f"[{call}] a tensor on {tensor.device} has no memory of the host. Bring it: x.cpu()."
        )
    watching = watcher()
    if watching is not None:
        watching.forbids(
            call, "memory is not there while a recording is made. Return the tensor, and share that"
        )
    if sizes.has_counts(tensor.node):
        raise BufferError(f"[{call}] a tensor with a size that is known only when it runs. Use x.numpy().")
    found = None if copy else view_writes.in_memory(tensor)
    if found is None:
        if copy is False:
            raise BufferError(
                f"[{call}] shape {tensor.shape}: its elements lie in no order of strides. Use x.clone()."
            )
        tensor, copy = tensor.detach().clone().realize(), True
        found = view_writes.in_memory(tensor)
        assert found is not None
    storage, strides, start = found
    buffer = storage.buffer
    if timed_out_work.late:
        timed_out_work.drop(buffer.device)
    buffer.wait()
    buffer.host  # noqa: B018  # who watches the device learns that the host may write there
    return buffer, start * tensor.dtype.itemsize, strides, bool(copy)


def capsule(tensor: Tensor, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
    """What `x.__dlpack__()` gives."""
    if tensor.is_complex():
        if copy is False:
            raise BufferError(
                "[dlpack] complex numbers are given away as a copy: their parts lie apart here."
            )
        return tensor.numpy().__dlpack__(max_version=max_version, dl_device=dl_device)
    if tensor._requires_grad:
        raise BufferError("[dlpack] a tensor that requires a gradient is not given away: x.detach() is.")
    if dl_device is not None and int(dl_device[0]) != CPU:
        raise BufferError(f"[dlpack] dl_device={tuple(dl_device)}: tensors are given away on the CPU only.")
    dtype = _type_of(tensor.dtype)
    buffer, start, strides, is_copy = layout("dlpack", tensor, copy)
    rank = len(tensor.shape)
    lengths = (ctypes.c_int64 * rank)(*tensor.shape)
    steps = (ctypes.c_int64 * rank)(*strides)
    is_new = max_version is not None and int(max_version[0]) >= 1
    room = _Shown()
    address = ctypes.addressof(room)
    managed: Any = (_Versioned if is_new else _Managed).from_address(address)
    managed.deleter = _drop_address()
    if is_new:
        managed.major = 1
    if is_new:
        managed.flags = IS_COPY if is_copy else 0
    array = managed.array
    array.data = buffer.address + start if prod(tensor.shape) else None
    array.device, array.ndim, array.dtype = _Device(CPU, 0), rank, dtype
    array.shape, array.strides = lengths, steps
    forget_dropped()
    made = _capsule_new(address, NEW if is_new else OLD, None)
    _shown.append((room, made, (lengths, steps, buffer)))
    return made


class _Shared:
    """Memory of a tensor as NumPy asks for it; the array holds this, and this the buffer."""

    def __init__(self, buffer: Any, interface: dict[str, Any]) -> None:
        self.buffer, self.__array_interface__ = buffer, interface


def array(tensor: Tensor) -> Any:
    """A NumPy array in the memory of a tensor of the CPU device."""
    import numpy as np

    if struct_code(tensor.dtype) is None:
        raise UsageError(f"[numpy] NumPy has no {tensor.dtype.name}. Convert first: x.float().numpy().")
    if not prod(tensor.shape):
        return np.empty(tensor.shape, tensor.dtype.name)
    buffer, start, strides, _ = layout("__array__", tensor)
    interface = {
        "shape": tensor.shape,
        "typestr": np.dtype(tensor.dtype.name).str,
        "data": (buffer.address + start, tensor._requires_grad),  # of a leaf, to be read only
        "strides": tuple(step * tensor.dtype.itemsize for step in strides),
        "version": 3,
    }
    return np.asarray(_Shared(buffer, interface))


def _type_of(dtype: DType) -> _Type:
    if dtype.name == "bfloat16":
        return _Type(4, 16, 1)
    if struct_code(dtype) is None:
        raise BufferError(f"[dlpack] {dtype.name} is not exchanged. Cast it: x.float().")
    kind = "b" if dtype.is_bool else "f" if dtype.is_float else "u" if dtype.is_unsigned else "i"
    return _Type(_CODES[kind], dtype.itemsize * 8, 1)


# -- in --


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor in the memory of an array of another library, which stays there for as long as the tensor needs it.

    x       has `__dlpack__`, as tensors of PyTorch and arrays of NumPy, in memory of the host
    device  where the tensor should be; the CPU unless given
    copy    True copies always; False refuses where it has to: arrays to be read only, addresses that are no multiple of
            64 bytes, strides with gaps
    Raises  UsageError for memory of a GPU, and dtypes that are not here; BufferError for a copy that is not wanted

    >>> import numpy as np
    >>> from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    if isinstance(x, Tensor):
        return x.clone() if copy else x.detach()
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise UsageError(
            f"[from_dlpack] {shown(x)} has no __dlpack__. Give an array, or use hcq.tensor(...)."
        )
    watching = watcher()
    if watching is not None:
        watching.forbids(
            "from_dlpack", "memory of others is not part of a recording. Make the tensor outside"
        )
    kind, number = x.__dlpack_device__()
    if int(kind) != CPU:
        raise UsageError(
            f"[from_dlpack] memory of {_NAMES.get(int(kind), f'device type {int(kind)}')}:{number}: only memory of the "
            "host is taken. Bring it there first, as with x.cpu()."
        )
    try:
        taken = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # a library from before versions
        taken = x.__dlpack__()
    return _taken(taken, device, copy)


def from_numpy(x: Any, /) -> Tensor:
    """A tensor of a NumPy array: in its memory where `from_dlpack` can have it, else a copy.

    >>> import numpy
    >>> hcq.from_numpy(numpy.eye(2, dtype=numpy.float32)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return from_dlpack(x) if x.flags.writeable and x.dtype.isnative and x.dtype.kind in "biuf" else Tensor(x)


def as_tensor(data: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A tensor as it is, an array in its memory where `from_dlpack` can have it; numbers and lists as `Tensor(data)`.

    >>> x = hcq.tensor([1, 2])
    >>> as_tensor(x) is x
    True
    """
    if isinstance(data, Tensor):
        made = data
    elif type(data).__module__.partition(".")[0] == "numpy" and hasattr(data, "flags") and data.ndim:
        made = from_numpy(data)
    elif hasattr(data, "__dlpack__") and not getattr(data, "requires_grad", False):
        made = from_dlpack(data)
    else:
        return Tensor._made_of(data, device, dtype)
    if dtype is not None and dtype is not made.dtype:
        made = made.cast(dtype)
    return made if device is None else made.to(device)


def asarray(
    obj: Any, *, dtype: DType | None = None, device: str | None = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`as_tensor`; a copy with copy=True. Raises BufferError where copy=False and it takes a copy.

    >>> hcq.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if copy is False and not isinstance(obj, Tensor):
        made = from_dlpack(obj, copy=False)
        if dtype not in (None, made.dtype):
            raise BufferError(f"[asarray] {made.dtype.name} to {dtype} takes a copy, and copy=False.")
    else:
        made = as_tensor(obj, dtype, device)
    if copy and made.node.op is Op.BUFFER:
        made = made.clone()
    return made.requires_grad_() if requires_grad else made


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A vector of the numbers in bytes, copied.

    count   how many; all that there are unless given
    offset  in bytes
    Raises  UsageError where there are fewer, or a part of one is left

    >>> frombuffer(bytearray(8), dtype=dtypes.int32, count=1).tolist()
    [0]
    """
    raw = memoryview(buffer).cast("B")
    size = dtype.itemsize
    end = len(raw) if count < 0 else offset + count * size
    if not 0 <= offset < len(raw) or end > len(raw) or (end - offset) % size or not count:
        raise UsageError(
            f"[frombuffer] {len(raw)} bytes, offset={offset}, count={count} of {dtype.name}: they are {size} bytes "
            "each, and have to lie in the buffer."
        )
    return Tensor(raw[offset:end], dtype=dtype, requires_grad=requires_grad)


def _taken(taken: Any, device: str | None, copy: bool | None) -> Tensor:
    """The tensor of what is in a capsule."""
    is_new = bool(_capsule_is(taken, NEW))
    if not is_new and not _capsule_is(taken, OLD):
        raise UsageError(
            "[from_dlpack] the capsule was taken already, or is none of DLPack's. Ask for another one."
        )
    address = _capsule_pointer(taken, NEW if is_new else OLD)
    managed: Any = (_Versioned if is_new else _Managed).from_address(address)
    if is_new and managed.major > 1:
        raise UsageError(f"[from_dlpack] DLPack {managed.major}.{managed.minor} is not known here; 1 is.")
    if managed.array.dtype.code == COMPLEX:
        import numpy as np

        return Tensor(np.from_dlpack(_Again(taken)), device=device)
    dtype = _dtype_of(managed.array.dtype)
    _capsule_rename(taken, NEW_USED if is_new else OLD_USED)
    release = _releaser(address, managed.deleter)
    is_read_only = is_new and bool(managed.flags & READ_ONLY)
    try:
        made = _wrapped(managed.array, dtype, release, copy, is_read_only)
    except BaseException:
        release()
        raise
    return made if device is None else made.to(device)


class _Again:
    """A capsule for who asks an object for one."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def _releaser(address: int, deleter: int | None) -> Callable[[], None]:
    left = [address] if deleter else []
    call = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter or 0)

    def release() -> None:
        if left:
            call(left.pop())

    return release


def _wrapped(
    array: Any, dtype: DType, release: Callable[[], None], copy: bool | None, is_read_only: bool
) -> Tensor:
    shape = tuple(array.shape[axis] for axis in range(array.ndim))
    count = prod(shape)
    strides = [array.strides[axis] for axis in range(array.ndim)] if array.strides else views.row_major(shape)
    if not count:
        release()
        return Tensor.empty(*shape, dtype=dtype, device="CPU")
    order = sorted(range(array.ndim), key=lambda axis: (-strides[axis], axis))
    packed = tuple(shape[axis] for axis in order)
    is_dense = all(
        size == 1 or strides[axis] == step for axis, size, step in zip(order, packed, views.row_major(packed))
    )
    start = array.data + array.offset
    why = (
        "it may only be read" if is_read_only
        else "its strides leave gaps" if not is_dense
        else f"its address is no multiple of {ALIGNMENT} bytes" if start % ALIGNMENT
        else ""
    )  # fmt: skip
    if why and copy is False:
        raise BufferError(f"[from_dlpack] shape {shape}: {why}, so that it takes a copy, and copy=False.")
    back = sorted(range(len(order)), key=order.__getitem__)
    if not why and not copy:
        storage = Storage(
            "CPU", dtype, packed, lend(devices.get("CPU"), start, count * dtype.itemsize, "lent", release)
        )
        storage.is_lent = True
        return Tensor._of(storage.node(), "CPU").permute(*back)
    if is_dense:
        raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(start)
        made = Tensor(memoryview(raw), device="CPU", dtype=dtype).reshape(packed).permute(*back)
    else:
        made = _gathered(start, shape, strides, dtype)
    release()
    return made


def _gathered(start: int, shape: tuple[int, ...], strides: list[int], dtype: DType) -> Tensor:
    """A copy of elements that lie apart: of all bytes between the first and the last."""
    low = sum((size - 1) * step for size, step in zip(shape, strides) if step < 0)
    high = sum((size - 1) * step for size, step in zip(shape, strides) if step > 0)
    raw = (ctypes.c_char * ((high - low + 1) * dtype.itemsize)).from_address(start + low * dtype.itemsize)
    line = Tensor(memoryview(raw), device="CPU", dtype=dtype)
    return (
        line.as_strided(shape, [abs(step) for step in strides], 0)
        if low == 0
        else _turned(line, shape, strides)
    )


def _turned(line: Tensor, shape: tuple[int, ...], strides: list[int]) -> Tensor:
    made = line.as_strided(shape, [abs(step) for step in strides], 0)
    return made.flip(*[axis for axis, step in enumerate(strides) if step < 0])


def _dtype_of(found: _Type) -> DType:
    codes = {code: kind for kind, code in _CODES.items()}
    name = {"i": "int", "u": "uint", "f": "float"}.get(codes.get(found.code, ""), "")
    full = "bool" if found.code == _CODES["b"] else "bfloat16" if found.code == 4 else f"{name}{found.bits}"
    if found.lanes != 1 or (not name and full not in ("bool", "bfloat16")) or not hasattr(dtypes, full):
        raise UsageError(
            f"[from_dlpack] elements of DLPack code {found.code}, {found.bits} bits and {found.lanes} lanes have no "
            "dtype here. Convert the array first."
        )
    return getattr(dtypes, full)  # type: ignore[no-any-return]
