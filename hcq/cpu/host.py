"""The machine that the CPU device is: how much memory it has, and what its processor is called.

In       a port
Out      bytes, a name
Next     device.py (who asks)
"""

from __future__ import annotations

import platform

from hcq.errors import DriverError
from hcq.memory import MAX_BUFFER_BYTES
from hcq.system.port import Port


def memory_bytes(port: Port) -> int:
    """Memory and swap of the machine, or what a container grants of it."""
    try:
        text = port.read_file("/proc/meminfo").decode("utf-8", "replace")
    except DriverError:
        return int(MAX_BUFFER_BYTES)
    sizes = {
        line.split(":")[0]: int(line.split()[1]) << 10 for line in text.splitlines() if line.endswith("kB")
    }
    found = sizes.get("MemTotal", MAX_BUFFER_BYTES) + sizes.get("SwapTotal", 0)
    try:
        limit = port.read_file("/sys/fs/cgroup/memory.max").decode().strip()
    except DriverError:
        limit = "max"
    return min(found, int(limit)) if limit.isdecimal() else found


def cpu_model(port: Port) -> str:
    """The processor's name, as the system gives it."""
    try:
        text = port.read_file("/proc/cpuinfo").decode("utf-8", "replace")
    except DriverError:
        return "unknown"
    for line in text.splitlines():
        if line.startswith("model name"):
            return str(line.partition(":")[2].strip())
    return platform.machine()


def mapped_memory(access: str) -> list[tuple[int, int]]:
    """Where memory of this process is that it may "read", "write" or "run", and how much: a device of its own threads
    sees all of it."""
    found, letter = [], {"read": "r", "write": "w", "run": "x"}[access]
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            place, may, *_ = line.split(maxsplit=2)
            if letter in may:
                low, high = (int(end, 16) for end in place.split("-"))
                found.append((low, high - low))
    return found
