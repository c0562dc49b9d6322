"""hub: files of weights that others publish, fetched once and kept.

In       an address
Out      load_state_dict_from_url: the tensors in the file, by name
Changes  files in get_dir(), ~/.cache/hcq/hub unless HCQ_CACHE_DIR or set_dir says another place
Next     ../io/files.py (hcq.load, which reads them without running what is in them)

Programs of others are not fetched and run: `torch.hub.load` has no counterpart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from hcq import config
from hcq.errors import UsageError
from hcq.frontend.io.files import load as load_file
from hcq.frontend.io.weights import Weights
from hcq.system.atomic_files import replaced

_CHUNK_BYTES = 1 << 20
_SILENT_SECONDS = 30  # how long nothing may come
_place: list[Path] = []  # what set_dir said


def get_dir() -> str:
    """The folder that files are kept in.

    >>> hcq.torch.hub.get_dir().endswith("hub")
    True
    """
    return str(_place[0] if _place else config.current().cache_dir / "hub")


def _get_torch_home() -> str:
    """PyTorch's private name for the folder above, which libraries of models use."""
    return os.path.dirname(get_dir())


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep files in another folder.

    >>> before = hcq.torch.hub.get_dir()
    >>> hcq.torch.hub.set_dir("/tmp/hub")
    >>> hcq.torch.hub.get_dir()
    '/tmp/hub'
    >>> hcq.torch.hub.set_dir(before)
    """
    _place[:] = [Path(d)]


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetch a file. It appears at `dst` whole, or not at all.

    hash_prefix   how its SHA-256 begins, in hexadecimal digits
    progress      may be given, and has no effect
    Raises        UsageError for a file of another hash, and where nobody answers; TimeoutError where what comes stops
                  for 30 s

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a").write_bytes(b"words")
    >>> hcq.torch.hub.download_url_to_file((folder / "a").as_uri(), folder / "b")
    >>> (folder / "b").read_bytes()
    b'words'
    """
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "hcq.torch.hub"})
    with contextlib.ExitStack() as opened:
        try:
            answer = opened.enter_context(urllib.request.urlopen(request, timeout=_SILENT_SECONDS))
        except (urllib.error.URLError, TimeoutError) as error:
            raise UsageError(
                f"[download_url_to_file] {url}: {error}. Check the address and the network, or fetch the file by hand "
                f"to {os.fspath(dst)}."
            ) from error
        file = opened.enter_context(replaced(dst))
        while chunk := answer.read(_CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise UsageError(
                f"[download_url_to_file] {url}: its SHA-256 begins with {digest.hexdigest()[:16]}, not {hash_prefix}. "
                "Fetch it again, or ask who publishes it."
            )


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Weights:
    """The tensors in a file of weights, fetched the first time and kept; what hcq.load reads.

    model_dir    the folder that it is kept in, get_dir()/checkpoints unless given
    check_hash   the name ends with -DIGITS, as its SHA-256 begins; a file of another is refused

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> hcq.save({"weight": Tensor([1.0])}, folder / "a.safetensors")
    >>> state = hcq.torch.hub.load_state_dict_from_url((folder / "a.safetensors").as_uri(), model_dir=folder / "kept")
    >>> state["weight"].tolist()
    [1.0]
    """
    folder = Path(model_dir) if model_dir is not None else Path(get_dir()) / "checkpoints"
    name = file_name or Path(urllib.parse.urlparse(url).path).name
    kept = folder / name
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = re.search(r"-([a-f0-9]+)\.", name) if check_hash else None
        print(f"{url} -> {kept}", file=sys.stderr)
        download_url_to_file(url, kept, wanted and wanted.group(1), progress)
    return load_file(kept, map_location=map_location)
