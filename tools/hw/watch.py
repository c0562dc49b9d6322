"""Watch: the vendor's runtime launches a kernel and copies, and its calls, rings and packets are written down.

In       the vendor's library, where it is installed; on NVIDIA's side a real GPU, as its licence wants it
Out      watch/vendor.hcqtrace (every ioctl with all it points to), watch/rings.json, watch/packets.txt
Changes  import tables of the libraries in this process, a context of theirs; nothing of ours is open
Next     driver_api.py, hsa_api.py (the runtimes), interpose.py (how), seen.py (what), nv/rings_seen.py and
         amd/rings_seen.py (rings), compare.py (beside ours)
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
from pathlib import Path
from typing import Any

from hcq.doctor.check import Failure, Found, Skip
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.driver_api import API, DriverApi
from hcq.tools.hw.hsa_api import HsaApi
from hcq.tools.hw.interpose import Interposer
from hcq.tools.hw.plan import of_vendor
from hcq.tools.hw.seen import Seen

TRACE, RINGS, PACKETS = "watch/vendor.hcqtrace", "watch/rings.json", "watch/packets.txt"
# what is redirected: never what Python's own calls need, such as libffi
THEIRS = re.compile(r"/(libcuda|libnvidia|libnvcu|libhsa|libhsakmt|libamdhip|libdrm|librocm|libamd)[^/]*$")
COPY_BYTES = 64 << 10
Runtime = DriverApi | HsaApi


def watch(bench: Bench) -> Found:
    """The vendor's runtime, watched: its calls, rings and packets beside ours."""
    if bench.is_emulated:
        raise Skip(
            "the device is emulated for this process alone; the vendor's runtime would look for another one"
        )
    api = runtime_of(bench.kind)
    bench.write(TRACE, b"")
    (bench.folder / TRACE).unlink()
    seen = Seen(bench.kind, bench.folder / TRACE)
    found: dict[str, Any] = {}
    interposer = Interposer(seen.hooks())
    if not interposer.install(is_theirs):
        raise Failure(
            f"{api.library_name} imports no ioctl: its calls cannot be watched this way.", REPORT_IT
        )
    try:
        text = _drive(bench, api, seen, interposer, found)
    finally:  # whatever was learned before something went wrong is kept
        interposer.remove()
        seen.writer.flush()
        bench.write(RINGS, found)
        bench.write(PACKETS, "\n".join(_packets(found)) + "\n")
    requests = {one.call.request for one in seen.calls}
    figures = {"calls": len(seen.calls), "requests": len(requests), "mappings": len(seen.mappings),
               "rings": sum(len(one.get("channels", one.get("queues", ()))) for one in found.values())}  # fmt: skip
    return Found(
        f"{text}; {len(seen.calls)} calls of {len(requests)} kinds seen, {figures['rings']} rings read",
        figures,
    )


def _drive(bench: Bench, api: Runtime, seen: Seen, interposer: Interposer, found: dict[str, Any]) -> str:
    """One launch and one copy each way; the rings are read after each."""
    seen.phase = "open"
    arch = api.open(bench.number)
    interposer.install(is_theirs)  # what opening loaded
    release = release_of(seen.kind)
    seen.describe(arch, {"driver": release, "runtime": api.version()})
    walk = of_vendor(bench.kind, "rings_seen").rings

    def look() -> None:
        found[seen.phase] = {"error": "not read"}
        with contextlib.suppress(LookupError, ValueError, ArithmeticError, OSError):
            found[seen.phase] = walk(seen, arch, release)

    seen.phase = "load"
    module = api.load(kernels.machine_code(arch))
    step = api.function(module, "step")
    seen.phase = "alloc"
    n = COPY_BYTES // 4
    memory = api.alloc(COPY_BYTES)
    host = (ctypes.c_char * COPY_BYTES)()
    seen.phase = "copy in"
    api.copy_in(memory, host, COPY_BYTES)
    api.synchronize()
    look()
    seen.phase = "launch"
    api.launch(step, n // 256, 256, (ctypes.c_void_p(memory), ctypes.c_uint(n)))
    api.synchronize()
    look()
    seen.phase = "copy out"
    api.copy_out(host, memory, COPY_BYTES)
    api.synchronize()
    look()
    seen.phase = "close"
    wanted = kernels.stepped(1).to_bytes(4, "little") * n
    if bytes(host) != wanted:
        raise Failure(f"{api.title}: its own launch left {bytes(host)[:8].hex()}.", api.look)
    return f"{api.title} {api.version()} on {arch} launched and copied"


def runtime_of(kind: str) -> Runtime:
    """The vendor's runtime that is installed: what programs use, or, on AMD's side, what lies below it."""
    try:
        return DriverApi(API[kind])
    except Skip as first:
        if kind != "AMD":
            raise
        try:
            return HsaApi()
        except Skip as second:
            raise Skip(f"{first}; {second}") from None


def is_theirs(path: str) -> bool:
    """Whether a loaded object is one of a vendor's runtime."""
    return THEIRS.search(path) is not None


def release_of(kind: str) -> str:
    """The kernel driver's release, whose structures are seen; some number where it does not say."""
    with contextlib.suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text() if kind == "NV" else ""
        found = re.search(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b", text)
        if found is not None:
            return found[1]
    return "580.142"


def _packets(found: dict[str, Any]) -> list[str]:
    """The rings as text."""
    lines = []
    for phase, rings in found.items():
        lines += ["", f"==== after {phase}"]
        for ring in (*rings.get("channels", ()), *rings.get("queues", ())):
            lines += ["", json.dumps(ring["parameters"])]
            for slot in ring.get("slots", ()):
                lines += [
                    f"  slot {slot['slot']}: {slot['entry']}",
                    *(f"    {one}" for one in slot.get("packets", ())),
                ]
                lines += [
                    f"    launch {launch['qmd_va']}: {launch['qmd']}" for launch in slot.get("launches", ())
                ]
            lines += [f"  {one}" for one in ring.get("packets", ())]
    return lines
