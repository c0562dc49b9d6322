"""Files of tensors: save a model's state and load it again, in the safetensors format.

In       names and tensors; a path
Out      one file, or the tensors in it
Changes  `save_file` makes the file appear whole or not at all; `load_file` allocates device memory
Next     module.py (state_dict, load_state_dict), ../storage.py (the memory of a tensor)
Source   the safetensors format, huggingface.co/docs/safetensors

    8 bytes   length of the header, little endian
    header    JSON: name -> {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, perhaps "__metadata__"
    data      row-major, little endian, back to back; offsets count from its start

Nothing in a file is ever run, unlike in a pickle; and every offset is checked before memory is touched, so a damaged
or hostile file gives one error and no tensor.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.frontend import device as devices
from hcq.frontend.arguments import checked
from hcq.frontend.realize import realize, storage_of
from hcq.frontend.storage import Storage
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

FORMATS: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2,
    "U16": dtypes.uint16,
    "I16": dtypes.int16,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "U32": dtypes.uint32,
    "I32": dtypes.int32,
    "F32": dtypes.float32,
    "U64": dtypes.uint64,
    "I64": dtypes.int64,
    "F64": dtypes.float64,
}
_WORDS = {dtype: word for word, dtype in FORMATS.items()}
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
PIECE_BYTES = 64 << 20  # read at a time
METADATA = "__metadata__"


class Entry(NamedTuple):
    """One tensor of a file. begin and end are bytes from the start of the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


@checked
def save_file(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors under their names, as `save_file(model.state_dict(), "model.safetensors")`.

    metadata  further words to keep in the file
    Changes   the file at `path`, replaced in one step once everything is on disk: a process that is killed, or a disk
              that is full, leaves what was there before
    Raises    UsageError for a name or a value that the format cannot hold; OSError as the system gives it
    """
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == METADATA or not isinstance(tensor, Tensor):
            raise UsageError(
                f"[save_file] {name!r}: {type(tensor).__name__}. Give strings other than {METADATA!r} and tensors."
            )
    realize(tensors.values())
    # the widest first, as the format's own writer does: then every tensor begins at a multiple of its element's size
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {METADATA: _checked_metadata(metadata)} if metadata else {}
    at = 0
    for name in order:
        tensor = tensors[name]
        end = at + tensor.nbytes
        header[name] = {
            "dtype": _WORDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(words).to_bytes(8, "little") + words)
            for name in order:
                size = tensors[name].nbytes
                buffer = storage_of(tensors[name]).buffer
                if size and buffer is not None:
                    file.write(buffer.read(0, size))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _usual_mode(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


@checked
def load_file(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file, in memory of a device (default: the default device).

    Raises  UsageError for a file that is damaged or not of this format; OSError as the system gives it
    """
    where = devices.canonical(device)
    found = {}
    with open(path, "rb") as file:
        entries, start = _read_header(file, os.fspath(path))
        for entry in entries:
            storage = Storage(where, entry.dtype, entry.shape)
            storage.buffer = devices.get(where).alloc(max(1, storage.size_bytes))
            file.seek(start + entry.begin)
            for at in range(0, storage.size_bytes, PIECE_BYTES):
                wanted = min(PIECE_BYTES, storage.size_bytes - at)
                piece = file.read(wanted)
                if len(piece) < wanted:
                    raise _damaged(os.fspath(path), f"it became shorter while {entry.name!r} was read")
                storage.buffer.write(piece, at)
            found[entry.name] = Tensor._of(storage.node(), where)
    return found


@checked
def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The further words of a file. Raises as `load_file` does."""
    with open(path, "rb") as file:
        header, _, _ = _parse(file, os.fspath(path))
    return _checked_metadata(header.get(METADATA, {}), os.fspath(path))


def _parse(file: Any, path: str) -> tuple[dict[str, Any], int, int]:
    """The header, where the data starts, and how many bytes of it the file has."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise _damaged(
            path, f"{size} bytes, and a header of {length if size >= 8 else '?'} does not fit in them"
        )
    try:
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise _damaged(path, f"the header is a JSON {type(header).__name__}, not an object")
    return header, 8 + length, size - 8 - length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _read_header(file: Any, path: str) -> tuple[list[Entry], int]:
    header, start, size = _parse(file, path)
    _checked_metadata(header.get(METADATA, {}), path)
    entries = [_entry(path, name, fields) for name, fields in header.items() if name != METADATA]
    at = 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != at:
            raise _damaged(
                path,
                f"{entry.name!r} begins at byte {entry.begin} of the data, the one before it ends at {at}",
            )
        at = entry.end
    if at != size:
        raise _damaged(path, f"{size} bytes of data, and the tensors take {at}")
    return entries, start


def _entry(path: str, name: str, fields: Any) -> Entry:
    """One tensor's facts, all checked but for where its neighbours are."""
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"{name!r} does not say dtype, shape and data_offsets")
    word, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(word, str) or word not in FORMATS:
        raise _damaged(path, f"{name!r} is of dtype {word!r}; known: {', '.join(FORMATS)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _damaged(path, f"{name!r} has shape {shape} and offsets {offsets}")
    dtype = FORMATS[word]
    begin, end = offsets
    if end - begin != prod(shape) * dtype.itemsize:
        raise _damaged(path, f"{name!r}, {word} of shape {shape}, has {end - begin} bytes")
    return Entry(name, dtype, tuple(shape), begin, end)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _checked_metadata(metadata: Any, path: str = "") -> dict[str, str]:
    """Names and strings, nothing else."""
    if not isinstance(metadata, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()
    ):
        if path:
            raise _damaged(path, f"{METADATA} holds something else than strings")
        raise UsageError(f"[save_file] metadata {metadata!r}: give strings under strings.")
    return dict(metadata)


def _usual_mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those that the umask gives to a new one."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _damaged(path: str, why: str) -> UsageError:
    return UsageError(f"[load_file] {path}: {why}. It is damaged, or not a safetensors file.")
