"""Words of rings in a report of hcq, or in the answer of a live process, as a dump of which a capsule is made.

In       the text of a report, quoted or cut perhaps; what `words` of a process's devices says
Out      Dump, and the GPU's name
Changes  nothing
Next     capsule.py (who makes a trace of it), hcq/observe/report_words.py (who writes them), devcoredump/dump.py (Dump)
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Any

from hcq.amd.chip import CHIPS
from hcq.errors import UsageError
from hcq.tools.trace.devcoredump.dump import MAX_BYTES, MAX_RINGS, MAX_WORDS, Buffer, Dump, Ring

MARK = b"---- hcq report:"
MOST_RING_WORDS = 1 << 20
# what place.language goes by
NAMES = {"PM4": "kfd_pm4 {}", "SDMA": "sdma {}", "AQL": "kfd_aql {}"}
_LINE = re.compile(r"^[> \t]*words     (.{1,200}?)\s*$", re.M)
_GPU = re.compile(r"gpu (gfx\w{1,12})")
_RING = re.compile(
    r"ring (PM4|SDMA|AQL) (\w{1,40}) get 0x([0-9a-f]{1,8}) put 0x([0-9a-f]{1,8}) size 0x([0-9a-f]{1,8})"
)
_BUFFER = re.compile(r"buffer 0x([0-9a-f]{1,16}) size 0x([0-9a-f]{1,8})")
_WORDS = re.compile(r"0x([0-9a-f]{1,8}): ((?:[0-9a-f]{8} ?){1,8})")
_FAULT = re.compile(r"page fault: (?:the page at|.{0,80} at) 0x([0-9a-f]{1,16})")


def recognises(content: bytes) -> bool:
    """Whether it is a report of hcq, quoted perhaps."""
    return MARK in content[: 1 << 16]


def of_report(content: bytes, path: str) -> tuple[Dump, str]:
    """What a report has. Raises UsageError for one without words."""
    text = content[:MAX_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")
    rings: list[dict[str, Any]] = []
    buffers: list[dict[str, Any]] = []
    arch, total = "", 0
    parts: list[tuple[int, list[int]]] = []  # of the ring or buffer whose words come now
    for found in _LINE.finditer(text):
        said = found[1]
        if gpu := _GPU.match(said):
            arch = gpu[1]
        elif ring := _RING.fullmatch(said):
            get, put, size = (int(ring[at], 16) for at in (3, 4, 5))
            parts = []
            rings.append(
                {"language": ring[1], "name": ring[2], "get": get, "put": put, "size": size, "parts": parts}
            )
        elif buffer := _BUFFER.fullmatch(said):
            parts = []
            buffers.append({"va": int(buffer[1], 16), "size": int(buffer[2], 16), "parts": parts})
        elif (words := _WORDS.fullmatch(said)) and total < MAX_WORDS:
            row = [int(word, 16) for word in words[2].split()]
            parts.append((int(words[1], 16), row))
            total += len(row)
    if not rings:
        raise UsageError(
            f"capsule {path}: this report of hcq has no words of rings: everything was done, or the device is none of "
            "AMD's, or only the page on stderr was kept: the file that it names has them."
        )
    fault = _FAULT.search(text)
    dump = _dump(rings, buffers, int(fault[1], 16) if fault else None)
    return dump, arch


def of_process(said: dict[str, Any], pid: int) -> tuple[Dump, str]:
    """What a live process says. Raises UsageError when none of its devices has work that is not done."""
    devices = said.get("devices")
    for device in devices if isinstance(devices, list) else []:
        found: Any = device.get("words") if isinstance(device, dict) else None
        try:
            rings = [ring for ring in found["rings"] if ring["pending"]] if isinstance(found, dict) else []
            if not rings:
                continue
            for ring in rings:
                head = ring["size"] - ring["first"]
                ring["parts"] = [(ring["first"], ring["words"][:head]), (0, ring["words"][head:])]
            buffers = [
                {"va": one["va"], "size": len(one["words"]), "parts": [(0, one["words"])]}
                for one in found["buffers"]
            ]
            return _dump(rings, buffers, None), str(found["arch"])
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UsageError(
                f"capsule --live {pid}: the answer is none of ours ({error!r}). Is the process of another version?"
            ) from None
    raise UsageError(
        f"capsule --live {pid}: none of its AMD devices has packets that are not done. `python -m hcq inspect {pid}` "
        "shows what it does."
    )


def _dump(rings: Sequence[dict[str, Any]], buffers: Sequence[dict[str, Any]], fault: int | None) -> Dump:
    dump = Dump(fault_address=fault)
    for one in rings[:MAX_RINGS]:
        size = int(one["size"])
        if not 0 < size <= MOST_RING_WORDS or size & size - 1:
            dump.notes.append(f"ring {one['name']}: {size} words are no size of a ring; it is left out")
            continue
        words, known = array("I", bytes(4 * size)), bytearray(size)
        for first, row in one["parts"]:
            if 0 <= first and first + len(row) <= size:
                words[first : first + len(row)] = array("I", row)
                known[first : first + len(row)] = b"\1" * len(row)
        ring = Ring(
            NAMES[one["language"]].format(one["name"]), one["get"] % size, one["put"] % size, size - 1, size
        )
        ring.has_pointers, ring.words, ring.holes = True, words, _holes(bytes(known))
        dump.rings.append(ring)
    for number, one in enumerate(buffers[:MAX_RINGS]):
        made = Buffer(number, int(one["va"]), int(one["size"]))
        for first, row in one["parts"]:
            if first != len(made.words):
                dump.notes.append(
                    f"the indirect buffer at {made.va:#x} is cut: {len(made.words)} of its words are there"
                )
                break
            made.words.extend(row)
        dump.buffers.append(made)
    dump.notes.append(
        "where the GPU is inside a buffer: the packet at the read pointer of the ring is taken for the one that hangs"
    )
    return dump


def _holes(known: bytes) -> list[tuple[int, int]]:
    """Ranges of words that are not there."""
    found = []
    at = known.find(0)
    while at >= 0:
        end = known.find(1, at)
        found.append((at, len(known) if end < 0 else end))
        at = known.find(0, end) if end >= 0 else -1
    return found


def chip_name(arch: str) -> str:
    """The GPU where it is one that is known; "" else."""
    return arch if arch in CHIPS else ""
