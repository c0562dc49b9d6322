"""debugfs of amdgpu: rings of the kernel driver, and MQDs of programs' queues, as it shows them to root.

In       the root of the file system, the number of a DRM device; texts of /sys/kernel/debug/kfd
Out      rings with the packets around their read pointers, queues with named fields; plain data
Changes  nothing. Only files are read, of them none that reads a register, which a GPU that sleeps must not be asked
         for; waves and registers are read when they are asked for by name, and while GFXOFF is not allowed
Next     inspection.py (views of open devices), debugfs_waves.py, debugfs_registers.py, abi/mqd.py (layouts),
         hcq/inspect/command.py (the program)
Source   amdgpu_ring.c: amdgpu_debugfs_ring_read (three words, then the ring); kfd_debugfs.c, kfd_process.c,
         kfd_process_queue_manager.c: pqm_debugfs_mqds; kfd_packet_manager.c: pm_debugfs_runlist; lib/hexdump.c:
         seq_hex_dump; drm_debugfs.c: drm_name_info. Not tried on hardware

/sys/kernel/debug/kfd/hqds is left alone: hqd_dump selects each queue in turn and reads its registers over PCIe. So are
rings of video engines, whose pointers are registers. Those of gfx, compute, copy and scheduler rings are in memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hcq.amd import debugfs_registers, debugfs_waves
from hcq.amd.abi import gpu_registers, mqd
from hcq.amd.chip import CHIPS, arch_of
from hcq.amd.decode import ring_decoder
from hcq.amd.topology import ROOT, properties
from hcq.errors import DriverError, UsageError
from hcq.layout import Packet
from hcq.system.inspection import BEFORE_WORDS, around, at_get
from hcq.system.port import LinuxPort

DEBUGFS = "/sys/kernel/debug"
MQDS, RUNLISTS = f"{DEBUGFS}/kfd/mqds", f"{DEBUGFS}/kfd/rls"
RING_PREFIX = "amdgpu_ring_"
LANGUAGES = {
    "gfx": "PM4",
    "comp": "PM4",
    "kiq": "PM4",
    "sdma": "SDMA",
    "mes": "MES",
}  # whose pointers are in memory
POINTERS = ("rptr", "wptr", "wptr of the driver")
MOST_BYTES = 16 << 20  # of a file
MOST_RINGS, MOST_QUEUES, MOST_PACKETS = 256, 1024, 64
MOST_ENTRIES = 4096  # of a folder
COPIED = "registers are read from the kernel, not from a copy of files: leave --root out"
PLACE = re.compile(r"dev=([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
PROCESS = re.compile(r"Process (\d{1,10}) PASID (?:0x)?([0-9a-fA-F]{1,8}):")
QUEUE = re.compile(r"  (SDMA|Compute) queue on device ([0-9a-f]{1,8})")
NODE = re.compile(r"Node (\d{1,6}), gpu_id ([0-9a-f]{1,8}):")
DUMP = re.compile(r" {2,4}([0-9a-f]{8}): ((?:[0-9a-f]{8} ?){1,8})\s*")


def host(root: str, number: int, chip: str, views: Sequence[str]) -> dict[str, Any]:
    """A real GPU: its rings and queues.

    root    the folder that sys/ is in
    number  of its DRM device, as in /sys/kernel/debug/dri
    chip    its architecture, as gfx1100; "": that of the KFD's node at the same place on the bus
    Raises  DriverError where debugfs cannot be read, with what to do; UsageError for a GPU or a chip that there is not
    """
    if chip and chip not in CHIPS:
        raise UsageError(
            f"inspect --chip {chip!r}: not a GPU whose packets are known. Known: {', '.join(CHIPS)}."
        )
    top = Path(root)
    folder = _below(top, f"{DEBUGFS}/dri/{number}")
    listed = _listed(folder, number)
    said = _read(folder / "name").decode("utf-8", "replace").strip()[:200]
    if not said.startswith("amdgpu"):
        raise UsageError(f"inspect --gpu {number}: the driver there is not amdgpu, but says {said!r}.")
    facts, gpu_id, found = _node(top, said)
    chip = chip or found
    notes = [] if chip else ["its chip is not known, so packets are shown as words. Give --chip, as gfx1100."]
    result: dict[str, Any] = {
        "gpu": number,
        "device": said,
        "chip": chip,
        "gpu_id": gpu_id,
        "rings": [],
        "queues": [],
    }
    if "rings" in views:
        result["rings"], more = _rings(folder, listed, chip)
        notes += more
    if "queues" in views:
        result["queues"], more = _queues(top, gpu_id, chip)
        notes += more
    family = CHIPS[chip].family if chip else facts.get("gfx_target_version", 0) // 10000
    if "waves" in views:
        asleep = (
            debugfs_registers.gfxoff(LinuxPort(), str(folder)) if debugfs_registers.GFXOFF in listed else ""
        )
        if asleep:
            notes.append(f"waves are registers. {asleep}")
        else:
            result["waves"], more = debugfs_waves.waves(folder, facts, family)
            notes += more
    if "registers" in views:
        shown, more = _registers(folder, said, facts, family) if root == "/" else ({}, [COPIED])
        result |= shown
        notes += more
    return {**result, "notes": notes}


def _registers(
    folder: Path, said: str, facts: Mapping[str, int], family: int
) -> tuple[dict[str, Any], list[str]]:
    place = PLACE.search(said)
    if place is None or family not in gpu_registers.NUMBERS or not facts.get("drm_render_minor"):
        return {}, [
            "which registers this GPU has is not known: it is not in the KFD's topology, or of another generation"
        ]
    render = f"/dev/dri/renderD{facts['drm_render_minor']}"
    where = place[0].removeprefix("dev=")
    return debugfs_registers.view(LinuxPort(), str(folder), render, where, facts.get("num_xcc", 1), family)


def _below(top: Path, path: str) -> Path:
    return top / path.lstrip("/")


def _listed(folder: Path, number: int) -> list[str]:
    """The files of a GPU. An error says what is in the way."""
    try:
        return sorted(os.listdir(folder))[:MOST_ENTRIES]
    except FileNotFoundError:
        pass
    except OSError as error:
        _refuse(error, folder)
    try:
        others = ", ".join(sorted(os.listdir(folder.parent))[:32]) or "none"
    except FileNotFoundError:
        raise DriverError(
            f"inspect --gpu {number}: {folder.parent} is not there. Mount debugfs: mount -t debugfs none {DEBUGFS}."
        ) from None
    except OSError as error:
        _refuse(error, folder.parent)
    raise UsageError(f"inspect --gpu {number}: no such DRM device; {folder.parent} has {others}.")


def _refuse(error: OSError, path: Path) -> NoReturn:
    if isinstance(error, PermissionError):
        raise DriverError(
            f"{path}: {error.strerror}. debugfs is for root: sudo python -m hcq inspect --gpu ... "
            "A kernel in lockdown (secure boot) hides it from root, too."
        ) from None
    raise DriverError(f"{path}: {error.strerror or error}.") from None


def _read(path: Path) -> bytes:
    """A file, at most MOST_BYTES of it. Nothing but a plain file is read: a pipe would make us wait."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DriverError(f"{path} is no plain file, so it is none of the kernel's.")
            found = bytearray()
            while len(found) < MOST_BYTES:
                part = os.read(descriptor, MOST_BYTES - len(found))
                if not part:
                    break
                found += part
            return bytes(found)
        finally:
            os.close(descriptor)
    except OSError as error:
        _refuse(error, path)


def _node(top: Path, said: str) -> tuple[dict[str, int], int, str]:
    """The KFD's node at the place on the bus that the driver says: properties, gpu_id, architecture; {}, 0 and ""
    without one."""
    place = PLACE.search(said)
    if place is None:
        return {}, 0, ""
    domain, bus, device, function = (int(text, 16) for text in place.groups())
    nodes = _below(top, f"{ROOT}/nodes")
    try:
        names = sorted(os.listdir(nodes))[:MOST_ENTRIES]
    except OSError:
        return {}, 0, ""
    for name in names:
        try:
            facts = properties(_read(nodes / name / "properties"))
            gpu_id = _read(nodes / name / "gpu_id").strip()
        except DriverError:
            continue
        is_there = (
            facts.get("location_id") == bus << 8 | device << 3 | function and facts.get("domain", 0) == domain
        )
        version = facts.get("gfx_target_version", 0)
        if is_there and version and gpu_id.isdigit() and len(gpu_id) <= 10:
            arch = arch_of(version)
            return facts, int(gpu_id), arch if arch in CHIPS else ""
    return {}, 0, ""


# ------------------------------------------------------------ rings of the kernel driver


def _rings(folder: Path, listed: Sequence[str], chip: str) -> tuple[list[dict[str, Any]], list[str]]:
    found, notes = [], []
    names = [name.removeprefix(RING_PREFIX) for name in listed if name.startswith(RING_PREFIX)]
    spared = [name for name in names if not _language(name)]
    for name in [name for name in names if _language(name)][:MOST_RINGS]:
        try:
            found.append(ring(name, _read(folder / f"{RING_PREFIX}{name}"), chip))
        except DriverError as refusal:
            notes.append(str(refusal))
    if spared:
        notes.append(f"not read, for their pointers are registers: {', '.join(spared[:32])}")
    if not names:
        notes.append(f"no {RING_PREFIX}* in {folder}: this kernel shows no rings.")
    return found, notes


def _language(name: str) -> str:
    return next((language for prefix, language in LANGUAGES.items() if name.startswith(prefix)), "")


def ring(name: str, data: bytes, chip: str) -> dict[str, Any]:
    """A ring as amdgpu_ring_NAME holds it: read pointer, write pointer, the driver's, then the ring's words."""
    words = memoryview(data[: len(data) // 4 * 4]).cast("I")
    language = _language(name)
    result: dict[str, Any] = {"name": name, "language": language, "unit": "words", "packets": []}
    if len(words) <= len(POINTERS):
        return {**result, "get": 0, "put": 0, "size": 0, "note": f"damaged: it has {len(data)} bytes."}
    get, put, written = words[:3]
    own = words[3:]
    size = len(own)
    result |= {"get": get, "put": put, "size": size, "put_of_driver": written}
    notes = [f"the driver has written up to {written}, and shown {put}"] if written != put else []
    if len(data) % 4:
        notes.append("damaged: no whole words")
    if max(get, put) >= size:
        notes.append("damaged: a pointer is beyond the ring")
        return {**result, "note": "; ".join(notes)}
    packets = around(
        lambda first, count: own[first : first + count],
        size,
        get,
        (put - get) % size,
        BEFORE_WORDS,
        _decode(language, chip),
    )
    return {**result, "packets": packets, "packet": at_get(packets), "note": "; ".join(notes)}


class Unknown(Packet, words=0, tail="words"):
    """Words that no decoder here knows."""


def _decode(language: str, chip: str) -> Callable[[Sequence[int]], list[Packet]]:
    if language in ("PM4", "SDMA") and chip:
        return ring_decoder(chip, language)
    return lambda words: [Unknown.decode(words)]


# ------------------------------------------------------------ queues of programs


def _queues(top: Path, gpu_id: int, chip: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Those on this GPU; of all GPUs, where it is not known which the KFD calls it."""
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    for path, parse in ((MQDS, mqds), (RUNLISTS, runlists)):
        try:
            text = _read(_below(top, path)).decode("ascii", "replace")
        except DriverError as refusal:
            notes.append(str(refusal))
            continue
        found += parse(text, {gpu_id: chip} if gpu_id else {})
    return [one for one in found if not gpu_id or one["gpu_id"] == gpu_id], notes


def mqds(text: str, chips: Mapping[int, str]) -> list[dict[str, Any]]:
    """/sys/kernel/debug/kfd/mqds: a queue for each dump in it. chips: gpu_id -> architecture, where it is known."""
    found = []
    pid, heading = 0, None
    for line, words, is_damaged in _dumps(text):
        if process := PROCESS.fullmatch(line):
            pid = int(process[1])
        elif queue := QUEUE.fullmatch(line):
            heading = queue
        if not words or heading is None:
            continue
        gpu_id = int(heading[2], 16)
        found.append(_queue(heading[1], pid, gpu_id, words, is_damaged, chips.get(gpu_id, "")))
        if len(found) >= MOST_QUEUES:
            break
    return found


def _dumps(text: str) -> Iterator[tuple[str, list[int], bool]]:
    """Lines that are no dump as (line, [], False), and dumps, each as ("", words, whether lines of it are missing).

    A dump that begins again at 0 is another one: of a GPU of several dies there is one for each.
    """
    words: list[int] = []
    is_damaged = False
    for line in text.splitlines():
        dump = DUMP.fullmatch(line)
        if dump is None:
            if words:
                yield "", words, is_damaged
                words, is_damaged = [], False
            yield line.rstrip(), [], False
            continue
        at = int(dump[1], 16)
        if at == 0 and words:
            yield "", words, is_damaged
            words, is_damaged = [], False
        if at != 4 * len(words):
            is_damaged = True
            continue
        if len(words) < MOST_BYTES // 4:
            words += [int(word, 16) for word in dump[2].split()]
    if words:
        yield "", words, is_damaged


def _queue(
    kind: str, pid: int, gpu_id: int, words: Sequence[int], is_damaged: bool, chip: str
) -> dict[str, Any]:
    layout = layout_of(kind, chip)
    found: Any = layout.decode(words)
    notes = []
    if isinstance(found, mqd.ComputeMqd):
        if found.header != mqd.HEADER:
            notes.append(
                f"its header is {found.header:#x}, not {mqd.HEADER:#x}: no MQD of a compute queue, or a damaged one"
            )
        notes += debugfs_registers.compute_notes(found)
    else:
        notes += _sdma_notes(found)
    if is_damaged or len(words) != layout.length_words:
        notes.append(f"damaged: {len(words)} words in one piece, of {layout.length_words}")
    return {
        "name": f"{kind} queue of process {pid} on gpu_id {gpu_id:#x}{f' ({chip})' if chip else ''}",
        "kind": kind,
        "pid": pid,
        "gpu_id": gpu_id,
        "notes": notes,
        "fields": {name: int(value) for name, value in found.values.items() if value},
    }


def layout_of(kind: str, chip: str) -> type[mqd.ComputeMqd] | type[mqd.SdmaMqd]:
    """The layout of a queue's MQD; with what all generations have, where the chip is not known."""
    family = CHIPS[chip].family if chip in CHIPS else 0
    return mqd.COMPUTE.get(family, mqd.ComputeMqd) if kind == "Compute" else mqd.SDMA.get(family, mqd.SdmaMqd)


def _sdma_notes(found: Any) -> Iterator[str]:
    size = 4 << (found.sdmax_rlcx_rb_cntl >> 1 & 0x1F)
    yield (
        f"SDMA ring of {size} bytes at {found.sdmax_rlcx_rb_base:#x}, read to byte {found.sdmax_rlcx_rb_rptr}, written "
        f"to {found.sdmax_rlcx_rb_wptr}, queue {found.sdma_queue_id} of engine {found.sdma_engine_id}"
    )


def runlists(text: str, chips: Mapping[int, str]) -> list[dict[str, Any]]:
    """/sys/kernel/debug/kfd/rls: for each GPU the packets that map processes and queues."""
    found: list[dict[str, Any]] = []
    for line, words, is_damaged in _dumps(text):
        if node := NODE.fullmatch(line):
            gpu_id = int(node[2], 16)
            entry: dict[str, Any] = {
                "name": f"runlist of gpu_id {gpu_id:#x}",
                "kind": "runlist",
                "gpu_id": gpu_id,
            }
            found.append({**entry, "notes": [], "fields": {}})
        elif found and line.strip() == "No active runlist":
            found[-1]["notes"].append("none is active, or the scheduler is MES, which has none")
        elif found and words:
            decode = _decode("PM4", chips.get(found[-1]["gpu_id"], ""))
            found[-1]["notes"] += [repr(packet) for packet in decode(words)[:MOST_PACKETS]]
            found[-1]["notes"] += ["damaged: lines are missing"] if is_damaged else []
        if len(found) >= MOST_QUEUES:
            break
    return found
