"""Safetensors: save a model's state and load it again, in the safetensors format.

In       names and tensors; a path
Out      one file, or the tensors in it; several files that an index names, as one
Changes  `save_file` makes the file appear whole or not at all; a tensor that is read gets device memory
Next     weights.py (what reading gives), ../nn/module.py (state_dict, load_state_dict)
Source   the safetensors format, huggingface.co/docs/safetensors; hcq/code/safetensors.py has it, and reads headers

Nothing in a file is ever run, unlike in a pickle; and every offset is checked before memory is touched, so a damaged
or hostile file gives one error and no tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcq.code import safetensors as headers
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import DamagedFile
from hcq.frontend.io.mapped import Mapped, opened
from hcq.frontend.io.weights import Entry, Weights, plain_entry
from hcq.frontend.ops.arguments import checked
from hcq.frontend.run.realize import realize, storage_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.system.atomic_files import replaced

FORMATS: dict[str, DType] = {word: dtypes.named(name) for word, (name, _) in headers.FORMATS.items()}
_WORDS = {dtype: word for word, dtype in FORMATS.items()}
METADATA = headers.METADATA
MAX_INDEX_BYTES = 64 << 20


@checked
def save_file(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors under their names, as `save_file(model.state_dict(), "model.safetensors")`.

    metadata  further words to keep in the file
    Changes   the file at `path`, replaced in one step once everything is on disk: a process that is killed, or a disk
              that is full, leaves what was there before
    Raises    UsageError for a name or a value that the format cannot hold; OSError as the system gives it

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> nn.save_file(nn.Linear(2, 1).state_dict(), path)
    >>> sorted(nn.load_file(path))
    ['bias', 'weight']
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
        header[name] = {"dtype": _WORDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    with replaced(path) as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for name in order:
            file.write(contents(tensors[name]))


def contents(tensor: Tensor) -> bytes:
    """The bytes of a realized tensor, row-major; of one on several devices, put together on the first."""
    buffer = storage_of(tensor.to(devices.members(tensor.device)[0])).buffer
    return buffer.read(0, tensor.nbytes) if tensor.nbytes and buffer is not None else b""


@checked
def load_file(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file, in memory of a device (default: the default device).

    Raises  UsageError for a file that is damaged or not of this format; OSError as the system gives it

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> nn.save_file({"w": Tensor([1.0, 2.0])}, path)
    >>> nn.load_file(path)["w"].tolist()
    [1.0, 2.0]
    """
    return dict(read(path, device, "load_file"))


@checked
def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The further words of a file. Raises as `load_file` does."""
    with opened(path, "load_file") as file:
        return headers.read_header(file, os.fspath(path), "load_file").metadata


def read(path: str | os.PathLike[str], device: str | None = None, call: str = "load") -> Weights:
    """What is in a file, whose tensors are read when they are asked for."""
    entries, metadata = _entries(path, call)
    return Weights(path, "safetensors", entries, metadata, device)


def read_index(path: str | os.PathLike[str], device: str | None = None, call: str = "load") -> Weights:
    """What is in the files that an index names, `model.safetensors.index.json`, as if they were one.

    Raises  UsageError for an index that names files elsewhere, or tensors that its files have not
    """

    def damaged(why: str) -> DamagedFile:
        return DamagedFile(
            f"[{call}] {os.fspath(path)}: {why}. It is damaged, or not an index of safetensors files."
        )

    with opened(path, call) as file:
        text = file.read(MAX_INDEX_BYTES + 1)
    if len(text) > MAX_INDEX_BYTES:
        raise damaged(f"it has more than {MAX_INDEX_BYTES} bytes")
    try:
        index = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(f"it is no JSON: {error}") from None
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not headers.are_strings(places):
        raise damaged("it has no weight_map of strings")
    found: dict[str, Entry] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or name in ("", ".", ".."):
            raise damaged(f"it names {name!r}, which is not a file beside it")
        entries, _ = _entries(Path(path).parent / name, call)
        for entry in entries:
            if places.get(entry.name) == name:
                found[entry.name] = entry
    missing = [name for name in places if name not in found]
    if missing:
        raise damaged(f"{places[missing[0]]} has no tensor {missing[0]!r}")
    metadata = index.get("metadata", {})
    in_order = [found[name] for name in places]
    return Weights(path, "safetensors", in_order, metadata if isinstance(metadata, dict) else {}, device)


def _entries(path: str | os.PathLike[str], call: str) -> tuple[list[Entry], dict[str, str]]:
    with opened(path, call) as file:
        header = headers.read_header(file, os.fspath(path), call)
    mapped = Mapped(path, "safetensors", call)
    return [_entry(mapped, found) for found in header.entries], header.metadata


def _entry(mapped: Mapped, found: headers.Entry) -> Entry:
    dtype = dtypes.named(found.dtype)
    return plain_entry(
        found.name, _WORDS[dtype], dtype, found.shape, lambda: mapped.view(found.begin, found.end)
    )


def _checked_metadata(metadata: Any) -> dict[str, str]:
    """Names and strings, nothing else."""
    if not headers.are_strings(metadata):
        raise UsageError(f"[save_file] metadata {metadata!r}: give strings under strings.")
    return dict(metadata)
