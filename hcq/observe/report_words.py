"""The part of a report that machines read: the words of rings that are not done, from which hcq-trace makes a capsule.

In       a device
Out      lines; none of a kind of device that has no such words, and none when everything is done
Next     report.py (the page), tools/trace/words_in_reports.py (who reads them), hcq/amd/ring_words.py and
         hcq/nv/ring_words.py, hcq/metal/inspection.py (the words)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hcq import backends, checks
from hcq.backend import load
from hcq.device import Device
from hcq.errors import HcqError

PER_LINE = 8
NAME_CHARACTERS, LEFT_OUT_CHARACTERS = 60, 160


def lines(device: Device) -> Iterator[str]:
    """words     gpu gfx1100, words     ring ..., words     0x0018: c0012800 ..."""
    backend = backends.find(device.name.partition(":")[0])
    look = load(backend.inspection).words if backend is not None and backend.inspection else None
    if look is None:
        return
    try:
        found = look(device)
    except HcqError as refusal:
        yield f"words     could not be read: {refusal}"
        return
    rings = [ring for ring in found["rings"] if ring["pending"]]
    if not rings:
        return
    yield f"words     gpu {found['arch']}, for hcq-trace capsule"
    for ring in rings:
        yield (
            f"words     ring {ring['language']} {ring['name']} get {ring['get']:#x} put {ring['put']:#x} "
            f"size {ring['size']:#x}" + (f" done {ring['done']:#x}" if "done" in ring else "")
        )
        yield from _hex(ring["first"], ring["words"])
    for kind, key in (("buffer", "buffers"), ("memory", "memory"), ("code", "code")):
        for block in found.get(key, ()):
            yield f"words     {kind} {block['va']:#x} size {len(block['words']):#x}"
            yield from _hex(0, block["words"])
    for one in found.get("allocations", ()):
        name = checks.printable(one["name"] or "unnamed")[:NAME_CHARACTERS]
        yield f"words     allocation {one['va']:#x} size {one['size']:#x} {name}"
    for text in found.get("left_out", ()):
        yield f"words     left out: {checks.printable(text)[:LEFT_OUT_CHARACTERS]}"


def _hex(first: int, words: Sequence[int]) -> Iterator[str]:
    for at in range(0, len(words), PER_LINE):
        row = " ".join(f"{word:08x}" for word in words[at : at + PER_LINE])
        yield f"words     {first + at:#06x}: {row}"
