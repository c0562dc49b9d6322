"""PyTorch's files, .pt and .pth: the tensors and the plain data in them, without unpickling.

In       a path: a zip file as torch.save writes since 1.6, or the format before that
Out      `Weights`: tensors by their path in the dicts and lists that were saved; other values as metadata
Changes  device memory, for each tensor that is asked for
Next     pickles.py (what of a pickle is read), zipped.py (where storages are), weights.py
Source   torch.serialization and torch._utils: the names in pickles, the members of the zip file, the legacy layout

    zip     NAME/data.pkl, NAME/data/KEY for each storage, NAME/byteorder, ...
    legacy  four pickles: a number, a version, facts about the machine, what was saved; the keys of storages; and each
            storage, a count of elements before it

A tensor is a storage, an offset, sizes and strides. Storages are views of the mapped file: rows in order are copied to
the device as they are, everything else is put in order there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.mapped import BYTES_OF_A_TENSOR, Mapped, Reader
from hcq.frontend.io.pickles import ENTRY, PLACE, Name, Pickle, plain_key
from hcq.frontend.io.weights import Entry, Weights, uploaded
from hcq.frontend.io.zipped import Member, members
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Shape

LEGACY = 0x1950A86A20F9469CFC6C  # the first number of a legacy file
LEGACY_VERSION = 1001
DTYPES: dict[str, DType] = {
    "float32": dtypes.float32, "float64": dtypes.float64, "float16": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "uint8": dtypes.uint8, "int8": dtypes.int8, "int16": dtypes.int16, "int32": dtypes.int32, "int64": dtypes.int64,
    "uint16": dtypes.uint16, "uint32": dtypes.uint32, "uint64": dtypes.uint64, "bool": dtypes.bool,
    "float8_e4m3fn": dtypes.fp8e4m3, "float8_e5m2": dtypes.fp8e5m2,
}  # fmt: skip
STORAGES: dict[str, DType] = {
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "ByteStorage": dtypes.uint8, "CharStorage": dtypes.int8,
    "ShortStorage": dtypes.int16, "IntStorage": dtypes.int32, "LongStorage": dtypes.int64,
    "BoolStorage": dtypes.bool, "UntypedStorage": dtypes.uint8,
}  # fmt: skip
MAX_DEPTH = 64  # of dicts in dicts
MAX_AXES = 32
BYTES_OF_A_PATH = 200  # besides its characters


class Stored(NamedTuple):
    """A storage: its key, the dtype of its elements, and how many it says that it has."""

    key: str
    dtype: DType
    elements: int


class View(NamedTuple):
    """A tensor: sizes and strides over the elements of a storage, in `dtype`."""

    storage: Stored
    dtype: DType
    offset: int
    shape: Shape
    strides: tuple[int, ...]


def is_legacy(head: bytes) -> bool:
    """Whether a file begins with the number of the legacy format, pickled."""
    return head[:2] in (b"\x80\x02", b"\x80\x03") and head[2:14] == b"\x8a\x0a" + LEGACY.to_bytes(
        10, "little"
    )


def read(path: str | os.PathLike[str], device: str | None = None, call: str = "load") -> Weights:
    """What is in a file, whose tensors are read when they are asked for.

    Raises  UsageError, one sentence: for a file that is damaged, and for a pickle that names anything but tensors and
            plain data
    """
    file = Mapped(path, "PyTorch", call)
    if file.size >= 14 and is_legacy(bytes(file.view(0, 14))):
        saved, find = _legacy(file)
    else:
        saved, find = _zip(file)
    entries: list[Entry] = []
    metadata: dict[str, Any] = {}
    for name, value in _flat(saved, file):
        if isinstance(value, View):
            entries.append(_entry(name, value, file, find))
        else:
            metadata[name] = value
    if len({entry.name for entry in entries}) < len(entries):
        raise file.damaged("two of its tensors have the same path")
    parts = {}
    if isinstance(saved, dict):
        own = {entry.name: entry for entry in entries}
        parts = {key: partial(_whole, value, str(key), own) for key, value in saved.items()}
    return Weights(path, "PyTorch", entries, metadata, device, parts)


def _whole(value: Any, path: str, entries: dict[str, Entry], device: str) -> Any:
    """What was saved under a path, with its dicts and lists as they were, and its tensors on a device.

    What was one object in several places is one here, too.
    """
    made: dict[int, Any] = {}

    def below(value: Any, path: str) -> Any:
        if id(value) in made:
            return made[id(value)]
        found = value
        if isinstance(value, View):
            found = entries[path].place(device)
        elif isinstance(value, dict):
            found = {key: below(item, f"{path}.{key}") for key, item in value.items()}
        elif type(value) in (list, tuple):
            found = type(value)([below(item, f"{path}.{n}") for n, item in enumerate(value)])
        elif isinstance(value, Name):
            found = value.text
        made[id(value)] = found
        return found

    return below(value, path)


Find = Callable[[Stored], Any]  # the bytes of a storage


def _zip(file: Mapped) -> tuple[Any, Find]:
    found: dict[str, Member] = {member.name: member for member in members(file)}
    pickled = [name for name in found if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickled) != 1:
        raise file.damaged(f"it has {len(pickled)} members named data.pkl")
    folder = pickled[0][: -len("data.pkl")]
    if f"{folder}constants.pkl" in found or f"{folder}code/" in {name[: len(folder) + 5] for name in found}:
        raise UsageError(
            f"[{file.call}] {file.path} is a TorchScript program. Save model.state_dict() instead, best as safetensors."
        )
    order = found.get(f"{folder}byteorder")
    if order is not None and bytes(order.read(8)).strip() not in (b"little", b""):
        raise UsageError(f"[{file.call}] {file.path} was saved on a big-endian machine; save it on another.")
    member = found[pickled[0]]
    if not member.is_stored:
        raise file.damaged("its data.pkl is compressed, which torch.save does not do")

    def bytes_of(storage: Stored) -> Any:
        place = found.get(f"{folder}data/{storage.key}")
        if place is None:
            raise file.damaged(f"it has no storage {shown(storage.key)}")
        if not place.is_stored or place.size < storage.elements * storage.dtype.itemsize:
            raise file.damaged(
                f"its storage {shown(storage.key)} of {storage.elements} {storage.dtype.name} has {place.size} bytes"
            )
        return place.read()

    reader = Reader(file, member.begin, member.begin + member.size)
    saved = Pickle(reader, _names(file), lambda reference: _storage(file, reference)).read()
    return saved, bytes_of


def _legacy(file: Mapped) -> tuple[Any, Find]:
    reader = Reader(file)

    def plain() -> Any:
        return Pickle(reader, {}, lambda reference: None).read()

    if plain() != LEGACY or plain() != LEGACY_VERSION:
        raise file.damaged("its version is not 1001")
    facts = plain()
    if isinstance(facts, dict) and facts.get("little_endian") is False:
        raise UsageError(f"[{file.call}] {file.path} was saved on a big-endian machine; save it on another.")
    stored: dict[str, Stored] = {}

    def find(reference: Any) -> Stored:
        found = _storage(file, reference)
        stored.setdefault(found.key, found)
        if len(reference) > 5 and reference[5] is not None:
            raise UsageError(f"[{file.call}] {file.path}: its storages are parts of others. Save it again.")
        return found

    saved = Pickle(reader, _names(file), find).read()
    keys = plain()
    if type(keys) is not list:
        raise file.damaged("it has no list of storages")
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        if not isinstance(key, str) or key not in stored or key in places:
            raise file.damaged(f"its list of storages names {shown(key)}")
        count = reader.whole(8)
        if count != stored[key].elements:
            raise file.damaged(
                f"its storage {shown(key)} has {count} elements and should have {stored[key].elements}"
            )
        begin = reader.at
        reader.take(count * stored[key].dtype.itemsize)
        places[key] = begin, reader.at

    def bytes_of(storage: Stored) -> Any:
        if storage.key not in places:
            raise file.damaged(f"it has no storage {shown(storage.key)}")
        return file.view(*places[storage.key])

    return saved, bytes_of


def _storage(file: Mapped, reference: Any) -> Stored:
    """What ('storage', its class, key, place, count) means."""
    if type(reference) is not tuple or len(reference) < 5 or reference[0] != "storage":
        raise file.damaged(f"the pickle in it refers to {shown(reference)}")
    kind, key, count = reference[1], reference[2], reference[4]
    word = kind.text.rpartition(".")[2] if isinstance(kind, Name) and kind.text.startswith("torch.") else ""
    if word not in STORAGES or not isinstance(key, str) or type(count) is not int or not 0 <= count < 1 << 62:
        name = kind.text if isinstance(kind, Name) else kind
        raise UsageError(
            f"[{file.call}] {file.path}: its storages are of {shown(name)}; known are {', '.join(STORAGES)}."
        )
    return Stored(key, STORAGES[word], count)


def _names(file: Mapped) -> dict[str, Callable[..., Any]]:
    """What the names of state dicts stand for."""

    def ordered(*items: Any) -> dict[Any, Any]:
        found = {}
        file.charge(ENTRY * len(items[0]) if items else 0)
        for pair in items[0] if items else ():
            key, value = pair
            found[plain_key(key)] = value
        return found

    def place(*words: Any) -> str:
        """ "cuda", or "cuda" and a number."""
        if not 1 <= len(words) <= 2 or not all(
            type(word) in (str, int) and len(shown(word)) < 40 for word in words
        ):
            raise TypeError
        return ":".join(map(str, words))

    def elements(items: Any = ()) -> list[Any]:
        if type(items) not in (list, tuple):
            raise TypeError
        file.charge(PLACE * len(items))
        return list(items)

    def tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> View:
        return _view(file, storage, None, offset, shape, strides)

    def tensor_of(
        storage: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, dtype: Any, *___: Any
    ) -> View:
        return _view(file, storage, dtype, offset, shape, strides)

    return {
        "collections.OrderedDict": ordered,
        "torch._utils._rebuild_tensor": tensor,
        "torch._utils._rebuild_tensor_v2": tensor,
        "torch._utils._rebuild_tensor_v3": tensor_of,
        "torch._utils._rebuild_parameter": lambda data, *_: data,
        "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
        "torch.Size": lambda sizes=(): tuple(elements(sizes)),
        "torch.device": place,
        "builtins.set": elements,
        "__builtin__.set": elements,
    }


def _view(file: Mapped, storage: Any, dtype: Any, offset: Any, shape: Any, strides: Any) -> View:
    """A tensor, with every number checked."""
    kind = storage.dtype if isinstance(storage, Stored) else None
    if dtype is not None:
        word = dtype.text.removeprefix("torch.") if isinstance(dtype, Name) else ""
        if word not in DTYPES:
            raise UsageError(
                f"[{file.call}] {file.path}: a tensor is of {shown(word or dtype)}, for which there is no dtype."
            )
        kind = DTYPES[word]
    if kind is None or not all(_are_sizes(numbers) for numbers in (shape, strides, (offset,))):
        raise file.damaged(
            f"a tensor of it has shape {shown(shape)}, strides {shown(strides)}, offset {shown(offset)}"
        )
    if len(shape) != len(strides):
        raise file.damaged(f"a tensor of it has shape {shown(shape)} and strides {shown(strides)}")
    bytes_ = storage.elements * storage.dtype.itemsize
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if prod(shape) and (last + 1) * kind.itemsize > bytes_:
        raise file.damaged(f"a tensor of shape {shown(shape)} ends behind its storage of {bytes_} bytes")
    if prod(shape) * kind.itemsize > max(bytes_, 1 << 20):
        raise UsageError(
            f"[{file.call}] {file.path}: a tensor of shape {shown(shape)} repeats a storage of {bytes_} bytes. "
            "Save it with .contiguous()."
        )
    return View(storage, kind, offset, tuple(shape), tuple(strides))


def _are_sizes(numbers: Any) -> bool:
    return (
        type(numbers) is tuple
        and len(numbers) <= MAX_AXES
        and all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
    )


def _flat(saved: Any, file: Mapped) -> Iterator[tuple[str, Any]]:
    """Tensors and plain values with their paths: keys and places, with dots between. A list of plain values is one.

    One object may be in many places, so that a few bytes of a pickle can stand for any number of paths: each is charged
    to the file.
    """
    # of each list: it may be looked at from many places, and is as long each time
    leads_on: dict[int, bool] = {}

    def below(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if depth > MAX_DEPTH or len(path) > 4096:
            raise file.damaged("what was saved holds itself, or is too deep")
        file.charge(BYTES_OF_A_PATH + len(path) + (BYTES_OF_A_TENSOR if isinstance(value, View) else 0))
        if id(value) not in leads_on and type(value) in (list, tuple, dict):
            leads_on[id(value)] = _holds_more(value)
        if not leads_on.get(id(value)):
            yield path, value.text if isinstance(value, Name) else value
            return
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from below(f"{path}.{key}" if path else str(key), item, depth + 1)

    return below("", saved, 0)


def _holds_more(value: Any) -> bool:
    """Whether paths lead on into a value."""
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, (list, tuple)) and any(
        isinstance(v, (View, dict, list, tuple, Name)) for v in value
    )


def _entry(name: str, view: View, file: Mapped, find: Find) -> Entry:
    dtype, size = view.dtype, prod(view.shape) * view.dtype.itemsize

    def part(count: int) -> Any:
        begin = view.offset * dtype.itemsize
        return memoryview(find(view.storage))[begin : begin + count * dtype.itemsize]

    def place(device: str) -> Tensor:
        if 0 in view.shape:
            return uploaded(b"", device, dtype, view.shape, name)
        order = sorted(
            range(len(view.shape)), key=lambda axis: (-view.strides[axis], -view.shape[axis], axis)
        )
        if _is_row_major([view.shape[axis] for axis in order], [view.strides[axis] for axis in order]):
            flat = uploaded(
                part(prod(view.shape)), device, dtype, tuple(view.shape[axis] for axis in order), name
            )
            back = [order.index(axis) for axis in range(len(order))]
            return flat if back == sorted(back) else flat.permute(*back)
        span = 1 + sum((length - 1) * step for length, step in zip(view.shape, view.strides, strict=True))
        flat = uploaded(part(span), device, dtype, (span,), name)
        index = Tensor.zeros(*view.shape, device=device, dtype=dtypes.int64)
        for axis, (length, step) in enumerate(zip(view.shape, view.strides, strict=True)):
            along = Tensor.arange(length, device=device, dtype=dtypes.int64) * step
            index = index + along.reshape(*[length if i == axis else 1 for i in range(len(view.shape))])
        return flat[index].realize()

    def raw() -> Any:
        return part(prod(view.shape)) if _is_row_major(view.shape, view.strides) else find(view.storage)

    return Entry(name, dtype.name, dtype, view.shape, size, place, raw)


def _is_row_major(shape: Any, strides: Any) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
