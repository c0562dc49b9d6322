"""Files of tensors: save a model's state and load it again, in the safetensors format.

In       names and tensors; a path
Out      one file, or the tensors in it
Changes  `save_file` makes the file appear whole or not at all; `load_file` allocates device memory
Next     module.py (state_dict, load_state_dict), ../storage.py (the memory of a tensor)
Source   the safetensors format, huggingface.co/docs/safetensors; hcq/safetensors.py has it, and reads headers

Nothing in a file is ever run, unlike in a pickle; and every offset is checked before memory is touched, so a damaged
or hostile file gives one error and no tensor.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcq import safetensors as headers
from hcq.errors import UsageError
from hcq.frontend import device as devices
from hcq.frontend.arguments import checked
from hcq.frontend.realize import realize, storage_of
from hcq.frontend.storage import Storage
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

FORMATS: dict[str, DType] = {word: dtypes.named(name) for word, (name, _) in headers.FORMATS.items()}
_WORDS = {dtype: word for word, dtype in FORMATS.items()}
PIECE_BYTES = 64 << 20  # read at a time
METADATA = headers.METADATA


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
                tensor = tensors[name]
                buffer = storage_of(tensor.to(devices.members(tensor.device)[0])).buffer
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
        for entry in headers.read_header(file, os.fspath(path), "load_file").entries:
            storage = Storage(where, dtypes.named(entry.dtype), entry.shape)
            storage.buffer = devices.get(where).alloc(max(1, storage.size_bytes))
            file.seek(entry.begin)
            for at in range(0, storage.size_bytes, PIECE_BYTES):
                wanted = min(PIECE_BYTES, storage.size_bytes - at)
                piece = file.read(wanted)
                if len(piece) < wanted:
                    raise UsageError(
                        f"[load_file] {os.fspath(path)}: it became shorter while {entry.name!r} was read. "
                        "It is damaged, or not a safetensors file."
                    )
                storage.buffer.write(piece, at)
            found[entry.name] = Tensor._of(storage.node(), where)
    return found


@checked
def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The further words of a file. Raises as `load_file` does."""
    with open(path, "rb") as file:
        return headers.read_header(file, os.fspath(path), "load_file").metadata


def _checked_metadata(metadata: Any) -> dict[str, str]:
    """Names and strings, nothing else."""
    if not headers.are_strings(metadata):
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
