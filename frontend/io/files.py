"""Files: load tensors from a file of whatever format, and save them in the one that its name says.

In       a path
Out      `load`: `Weights`, read when asked for; `save`: a file
Changes  `save` replaces the file in one step
Next     safetensors.py, gguf.py, torch_file.py, arrays.py (the formats), weights.py (what reading gives)

Which format a file has is seen in its first bytes; its name says it only where it is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcq.frontend.core.errors import DamagedFile, UsageError
from hcq.frontend.io.mapped import opened
from hcq.frontend.io.weights import Weights

WRITTEN = (".safetensors", ".gguf", ".npz", ".npy", ".pt", ".pth")
PYTORCH = (".pt", ".pth", ".bin", ".ckpt", ".tar", ".model")  # suffixes that PyTorch's programs use


def load(
    path: Any,
    device: str | None = None,
    *,
    map_location: Any = None,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    pickle_module: Any = None,
) -> Weights:
    """The tensors of a file, by name: a mapping whose tensors are read when they are asked for, each time anew.

    path    safetensors (also its index.json, or a folder with either), GGUF (of several files the first), PyTorch's .pt
            and .pth, .npz, .npy; or an open file of one
    device  where tensors are put; None is the default device. PyTorch's word is map_location
    weights_only, mmap, pickle_module   may be given, and have no effect: no file is run, and every one is mapped
    Raises  UsageError, one sentence, for a file that is damaged, of no known format, or that asks to run something;
            OSError as the system gives it

    Quantised tensors of GGUF files keep their bytes on the device: they are lazy float32 tensors, and the kernel that
    uses one takes it apart.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "two.safetensors")
    >>> hcq.save({"w": Tensor([[1.0, 2.0]]), "b": hcq.tensor([3])}, path)
    >>> state = hcq.load(path)
    >>> sorted(state), state.entry("w").shape, state["b"].tolist()
    (['b', 'w'], (1, 2), [3])
    """
    from hcq.frontend.io import arrays, gguf, safetensors, torch_file

    device = _device(map_location) if device is None else device
    where = _path("load", path)
    if where.is_dir():
        where = _in_folder(where)
    if where.name.endswith(".index.json"):
        return safetensors.read_index(where, device)
    with opened(where, "load") as file:
        head = file.read(16)
    if head[:4] == gguf.MAGIC:
        return gguf.read(where, device)
    if head[:6] == arrays.MAGIC:
        return arrays.read_npy(where, device)
    if head[:4] == b"PK\x03\x04":
        return _zip(where, device)
    if torch_file.is_legacy(head):
        return torch_file.read(where, device)
    if head[8:9] == b"{" or where.suffix == ".safetensors":
        return safetensors.read(where, device)
    raise DamagedFile(
        f"[load] {where} begins with {head!r}: no safetensors, GGUF, PyTorch, npz or npy file does."
    )


def _path(call: str, path: Any) -> Path:
    """A path, or that of an open file."""
    if not isinstance(path, (str, os.PathLike)):
        path = getattr(path, "name", None)
        if not isinstance(path, str):
            raise UsageError(
                f"[{call}] give the path of a file, or one that is open: it is mapped, not streamed."
            )
    return Path(path)


def _device(map_location: Any) -> Any:
    """Where PyTorch's map_location puts tensors: a device, the one that a dict names, or, for a function, the CPU."""
    if isinstance(map_location, Mapping):
        named = set(map(str, map_location.values()))
        if len(named) != 1:
            raise UsageError(
                f"[load] map_location names {sorted(named)}: give one device, and move tensors after."
            )
        return named.pop()
    return "CPU" if callable(map_location) else map_location


def _zip(path: Path, device: str | None) -> Weights:
    """A zip file is PyTorch's, or of arrays."""
    from hcq.frontend.io import arrays, torch_file
    from hcq.frontend.io.mapped import Mapped
    from hcq.frontend.io.zipped import members

    names = [member.name for member in members(Mapped(path, "zip"))]
    if any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        return torch_file.read(path, device)
    return arrays.read_npz(path, device)


def _in_folder(folder: Path) -> Path:
    """The file of weights in a folder, as models are published."""
    for name in ("model.safetensors.index.json", "model.safetensors"):
        if (folder / name).is_file():
            return folder / name
    found = sorted(
        path
        for pattern in ("*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth")
        for path in folder.glob(pattern)
    )
    first = [path for path in found if "-00001-of-" in path.name]
    if len(found) == 1 or len(first) == 1:
        return (first or found)[0]
    raise UsageError(
        f"[load] {folder} has {len(found)} files of weights and no model.safetensors. Give the path of one file."
    )


def save(tensors: Any, path: Any, metadata: Mapping[str, Any] | None = None) -> None:
    """Write tensors under their names, in the format of the path's suffix: .safetensors, .gguf, .npz; .npy for one.

    PyTorch's .pt, .pth and .tar hold dicts and lists of tensors and plain data, too: torch.load reads them.

    metadata  strings for .safetensors; numbers, strings and lists for .gguf; the others have no place for it
    Raises    UsageError for what the format cannot hold; OSError as the system gives it

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "w.npz")
    >>> hcq.save({"w": Tensor([1.0, 2.0])}, path)
    >>> hcq.load(path)["w"].tolist()
    [1.0, 2.0]
    """
    from hcq.frontend.io import arrays, gguf_writer, safetensors

    path = _path("save", path)
    suffix = path.suffix
    if suffix in PYTORCH and not metadata:
        from hcq.frontend.io.torch_writer import save_torch

        save_torch(tensors, path)
        return
    if not isinstance(tensors, Mapping):
        raise UsageError(f"[save] {type(tensors).__name__}: give tensors under names, as model.state_dict().")
    if metadata and suffix not in (".safetensors", ".gguf"):
        raise UsageError(
            f"[save] a {suffix or 'nameless'} file has no place for metadata. Use .safetensors or .gguf."
        )
    if suffix == ".safetensors":
        safetensors.save_file(tensors, path, metadata)
    elif suffix == ".gguf":
        gguf_writer.save_gguf(tensors, path, metadata)
    elif suffix == ".npz":
        arrays.save_npz(tensors, path)
    elif suffix == ".npy":
        if len(tensors) != 1:
            raise UsageError(f"[save] an .npy file holds one tensor, and there are {len(tensors)}. Use .npz.")
        arrays.save_npy(next(iter(tensors.values())), path)
    else:
        raise UsageError(
            f"[save] {os.fspath(path)}: the suffix {suffix!r} is not written; {', '.join(WRITTEN)} are."
        )
