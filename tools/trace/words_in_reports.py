"""Words of rings in a report of hcq, or in the answer of a live process, of which a capsule is made.

In       the text of a report, quoted or cut perhaps; what `words` of a process's devices says
Out      Words; those of an AMD device as a Dump
Next     capsule.py, nv_capsule.py, metal_capsule.py (who make a trace of it), hcq/observe/report_words.py (who writes
         them), devcoredump/dump.py (Dump)
"""

from __future__ import annotations

import re
from array import array
from typing import Any, NamedTuple

from hcq.amd.chip import CHIPS
from hcq.errors import UsageError
from hcq.tools.trace.devcoredump.dump import MAX_BYTES, MAX_RINGS, MAX_WORDS, Buffer, Dump, Ring

MARK = b"---- hcq report:"
MOST_RING_WORDS = 1 << 20
# what place.language goes by
NAMES = {"PM4": "kfd_pm4 {}", "SDMA": "sdma {}", "AQL": "kfd_aql {}"}
LANGUAGES = (*NAMES, "GPFIFO", "METAL")
_LINE = re.compile(r"^[> \t]*words     (.{1,200}?)\s*$", re.M)
_GPU = re.compile(r"gpu (\w{1,24})")
_RING = re.compile(
    r"ring (PM4|SDMA|AQL|GPFIFO|METAL) (\w{1,40}) get 0x([0-9a-f]{1,8}) put 0x([0-9a-f]{1,8}) size 0x([0-9a-f]{1,8})"
    r"(?: done 0x([0-9a-f]{1,8}))?"
)
_BUFFER = re.compile(r"(buffer|memory|code) 0x([0-9a-f]{1,16}) size 0x([0-9a-f]{1,8})")
_ALLOCATION = re.compile(r"allocation 0x([0-9a-f]{1,16}) size 0x([0-9a-f]{1,12}) (.{1,60})")
_LEFT_OUT = re.compile(r"left out: (.{1,160})")
MOST_NOTES = 64
_WORDS = re.compile(r"0x([0-9a-f]{1,8}): ((?:[0-9a-f]{8} ?){1,8})")
_FAULT = re.compile(r"page fault: (?:the page at|.{0,80} at) 0x([0-9a-f]{1,16})")


def recognises(content: bytes) -> bool:
    """Whether it is a report of hcq, quoted perhaps."""
    return MARK in content[: 1 << 16]


class Words(NamedTuple):
    """Words of the rings of one device that are not done; places of a ring count words.

    buffers  what the rings run: indirect buffers, segments of a pushbuffer
    memory   what else is known of memory: semaphores that are waited for, launches
    code     of kernels, as it lies in memory
    allocations  where arguments of launches point to: address, size in bytes, name
    left_out     what the report says it does not have
    fault    the address of a page fault
    """

    arch: str
    rings: list[dict[str, Any]]
    buffers: list[dict[str, Any]]
    memory: list[dict[str, Any]]
    code: list[dict[str, Any]]
    allocations: list[tuple[int, int, str]]
    left_out: list[str]
    fault: int | None = None

    def speaks(self, language: str) -> bool:
        """Whether a ring is of this language."""
        return any(ring["language"] == language for ring in self.rings)


def of_report(content: bytes, path: str) -> Words:
    """What a report has. Raises UsageError for one without words."""
    text = content[:MAX_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")
    found = Words("", [], [], [], [], [], [])
    arch, total = "", 0
    parts: list[tuple[int, list[int]]] = []  # of the ring or buffer whose words come now
    for line in _LINE.finditer(text):
        said = line[1]
        if gpu := _GPU.match(said):
            arch = gpu[1]
        elif ring := _RING.fullmatch(said):
            get, put, size = (int(ring[at], 16) for at in (3, 4, 5))
            parts = []
            found.rings.append(
                {
                    "language": ring[1],
                    "name": ring[2],
                    "get": get,
                    "put": put,
                    "done": int(ring[6], 16) if ring[6] else get,
                    "size": size,
                    "parts": parts,
                }
            )
        elif buffer := _BUFFER.fullmatch(said):
            parts = []
            into = {"buffer": found.buffers, "memory": found.memory, "code": found.code}[buffer[1]]
            into.append({"va": int(buffer[2], 16), "size": int(buffer[3], 16), "parts": parts})
        elif (held := _ALLOCATION.fullmatch(said)) and len(found.allocations) < MOST_NOTES:
            found.allocations.append((int(held[1], 16), int(held[2], 16), held[3]))
        elif (why := _LEFT_OUT.fullmatch(said)) and len(found.left_out) < MOST_NOTES:
            found.left_out.append(why[1])
        elif (words := _WORDS.fullmatch(said)) and total < MAX_WORDS:
            row = [int(word, 16) for word in words[2].split()]
            parts.append((int(words[1], 16), row))
            total += len(row)
    if not found.rings:
        raise UsageError(
            f"capsule {path}: this report of hcq has no words of rings: everything was done, or the device is none of "
            "AMD's, NVIDIA's or Metal's, or only the page on stderr was kept: the file that it names has them."
        )
    fault = _FAULT.search(text)
    return found._replace(arch=arch, fault=int(fault[1], 16) if fault else None)


def of_process(said: dict[str, Any], pid: int) -> Words:
    """What a live process says. Raises UsageError when none of its devices has work that is not done."""
    devices = said.get("devices")
    for device in devices if isinstance(devices, list) else []:
        found: Any = device.get("words") if isinstance(device, dict) else None
        try:
            rings = [ring for ring in found["rings"] if ring["pending"]] if isinstance(found, dict) else []
            if rings:
                buffers, memory, code = (
                    [_block(one) for one in found.get(kind, ())] for kind in ("buffers", "memory", "code")
                )
                held = [
                    (int(one["va"]), int(one["size"]), str(one["name"])[:60])
                    for one in found.get("allocations", ())[:MOST_NOTES]
                ]
                notes = [str(one)[:160] for one in found.get("left_out", ())[:MOST_NOTES]]
                lanes = [_ring(ring) for ring in rings]
                return Words(str(found["arch"]), lanes, buffers, memory, code, held, notes)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UsageError(
                f"capsule --live {pid}: the answer is none of ours ({error!r}). Is the process of another version?"
            ) from None
    raise UsageError(
        f"capsule --live {pid}: none of its AMD, NVIDIA or Metal devices has packets that are not done. "
        f"`python -m hcq inspect {pid}` shows what it does."
    )


def _ring(said: dict[str, Any]) -> dict[str, Any]:
    head = int(said["size"]) - int(said["first"])
    places = {key: int(said.get(key, said["get"])) for key in ("get", "put", "done", "size")}
    if said["language"] not in LANGUAGES:
        raise ValueError(f"a ring of {said['language']!r}")
    words = _checked(said["words"])
    return {
        "name": str(said["name"]),
        "language": said["language"],
        **places,
        "parts": [(int(said["first"]), words[:head]), (0, words[head:])],
    }


def _block(said: dict[str, Any]) -> dict[str, Any]:
    words = _checked(said["words"])
    return {"va": int(said["va"]), "size": len(words), "parts": [(0, words)]}


def _checked(words: Any) -> list[int]:
    return list(array("I", words))


def words_of(block: dict[str, Any]) -> list[int]:
    """The words of a buffer, up to the first one that is not there."""
    words: list[int] = []
    for first, row in block["parts"]:
        if first != len(words):
            break
        words += row
    return words


def ring_of(said: dict[str, Any]) -> tuple[array[int], bytes] | None:
    """The words of a ring, and which of them are there. None when it is of a size that no ring has."""
    size = int(said["size"])
    if not 0 < size <= MOST_RING_WORDS or size & size - 1:
        return None
    words, known = array("I", bytes(4 * size)), bytearray(size)
    for first, row in said["parts"]:
        if 0 <= first and first + len(row) <= size:
            words[first : first + len(row)] = array("I", row)
            known[first : first + len(row)] = b"\1" * len(row)
    return words, bytes(known)


def no_ring(said: dict[str, Any]) -> str:
    """What to say of such a ring."""
    return f"ring {said['name']}: {said['size']} words are no size of a ring; it is left out"


def as_dump(found: Words) -> Dump:
    """Those of an AMD device as a dump."""
    dump = Dump(fault_address=found.fault)
    for one in [ring for ring in found.rings if ring["language"] in NAMES][:MAX_RINGS]:
        read = ring_of(one)
        if read is None:
            dump.notes.append(no_ring(one))
            continue
        words, known = read
        size = len(words)
        ring = Ring(
            NAMES[one["language"]].format(one["name"]), one["get"] % size, one["put"] % size, size - 1, size
        )
        ring.has_pointers, ring.words, ring.holes = True, words, _holes(known)
        dump.rings.append(ring)
    for number, one in enumerate(found.buffers[:MAX_RINGS]):
        made = Buffer(number, int(one["va"]), int(one["size"]))
        made.words.extend(words_of(one))
        if len(made.words) < made.size:
            dump.notes.append(
                f"the indirect buffer at {made.va:#x} is cut: {len(made.words)} of its words are there"
            )
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
