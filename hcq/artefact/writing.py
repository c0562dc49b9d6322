"""Writing a program's file: a header and its blobs, whole or not at all.

In       a `Contents` and its blobs
Out      one file
Changes  the file, replaced in one step once everything is on disk
Next     file.py (every byte, and reading it), frontend/jit/saving.py (who says what is in it)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hcq import __version__
from hcq.artefact.file import HEAD, MAGIC, VERSION, Contents, Launch, Memory, Place, digest_of, padded
from hcq.errors import UsageError
from hcq.system.atomic_files import replaced


class Blob(NamedTuple):
    """Bytes that are to be written: how many, their digest, and where they come from, in pieces."""

    size_bytes: int
    digest: str
    pieces: Callable[[], Iterable[Any]]

    @classmethod
    def of(cls, pieces: Callable[[], Iterable[Any]]) -> Blob:
        """What these pieces hold together; they are asked for twice."""
        digest, size = hashlib.sha256(), 0
        for piece in pieces():
            digest.update(piece)
            size += len(piece)
        return cls(size, digest.hexdigest(), pieces)


def write(path: str | os.PathLike[str], contents: Contents, blobs: Sequence[Blob]) -> None:
    """Write a file, which replaces one at this path in one step once everything is on disk."""
    places, at = [], 0
    for blob in blobs:
        places.append(Place(at, blob.size_bytes, blob.digest))
        at += padded(blob.size_bytes)
    text = json.dumps(_to_json(contents, places), separators=(",", ":")).encode()
    start = padded(HEAD.size + len(text))
    end = start + (places[-1].offset + places[-1].size_bytes if places else 0)
    head = HEAD.pack(MAGIC, VERSION, len(text), end, digest_of(len(text), end, text))
    with replaced(path) as file:
        file.write(head + text)
        for place, blob in zip(places, blobs):
            file.seek(start + place.offset)
            digest = hashlib.sha256()
            for piece in blob.pieces():
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != blob.digest:
                raise UsageError(
                    f"[save_program] {path}: a tensor changed while it was saved. Save when no thread runs it."
                )
        file.truncate(end)


def _to_json(contents: Contents, places: Sequence[Place]) -> dict[str, Any]:
    return {
        "name": contents.name,
        "made_by": f"hcq {__version__}",
        "parameters": contents.parameters,
        "inputs": contents.inputs,
        "outputs": contents.outputs,
        "variants": [
            {
                "device": variant.device,
                "arch": variant.arch,
                "abi": variant.abi,
                "features": sorted(variant.features),
                "runtime": variant.runtime,
                "memory": [_memory_to_json(one) for one in variant.memory],
                "launches": [_launch_to_json(launch) for launch in variant.launches],
            }
            for variant in contents.variants
        ],
        "blobs": places,
    }


def _launch_to_json(launch: Launch) -> dict[str, Any]:
    """Without numbers where there are none: versions that know none read it, too."""
    return {name: value for name, value in launch._asdict().items() if value or name != "numbers"}


def _memory_to_json(one: Memory) -> list[Any]:
    if one.spec is not None:
        return [one.kind, *one.spec, one.source]
    return [one.kind, one.size_bytes if one.kind == "temporary" else one.number]
