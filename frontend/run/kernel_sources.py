"""Kernel sources: what kernels were made from, for readers of a trace of them (HCQ_TRACE).

In       what the compiler showed while it made a kernel: its "graph" to be read again, that over ranges as "ir", its
         loops and target code as "source"
Out      the same by the kernel's code, also in a later process that finds the kernel compiled
Changes  the cache on disk, only while something is traced
Next     plan.py (who asks), hcq/observe/trace.py (who writes them down)
"""

from __future__ import annotations

from collections.abc import Mapping

from hcq.frontend.core.names import wanted as wanted
from hcq.system.cache import DiskCache

KIND = "text"
NAMES = {"graph": "graph", "ir": "ir", "code": "source"}  # the compiler's name of a stage -> the trace's

MAX_KNOWN = 512  # kernels whose texts are kept in memory

_known: dict[str, dict[str, str]] = {}


def keep(disk: DiskCache, image: bytes, entry: str, shown: Mapping[str, str]) -> None:
    """Remember what a kernel was made from."""
    import json
    import zlib

    texts = {NAMES[stage]: text for stage, text in shown.items() if stage in NAMES}
    key = _key(image, entry)
    _remember(key, texts)
    disk.put(KIND, key, zlib.compress(json.dumps(texts).encode()))


def of(disk: DiskCache, image: bytes, entry: str) -> dict[str, str] | None:
    """What a kernel was made from; None when it is unknown."""
    key = _key(image, entry)
    known = _known.get(key)
    if known is None:
        known = _decode(disk.get(KIND, key))
        if known is not None:
            _remember(key, known)
    return known


def _remember(key: str, texts: dict[str, str]) -> None:
    while len(_known) >= MAX_KNOWN:
        _known.pop(next(iter(_known), key), None)  # the oldest: they are still on disk
    _known[key] = texts


def _decode(data: bytes | None) -> dict[str, str] | None:
    """Texts from the cache; None when it has none, or of another form."""
    if data is None:
        return None
    import json
    import zlib

    try:
        texts = json.loads(zlib.decompress(data))
    except (zlib.error, ValueError, RecursionError):
        return None
    if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
        return texts
    return None


def _key(image: bytes, entry: str) -> str:
    import hashlib

    return f"{entry} {hashlib.sha256(image).hexdigest()}"
