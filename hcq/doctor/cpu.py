"""The CPU device, before it opens: what a process needs to run code that it has just made.

In       the host
Out      the checks node, permission and driver
Changes  one page, mapped, sealed and given back
Next     examine.py (the checks above), hcq/cpu/link.py (how pages are sealed)
"""

from __future__ import annotations

import errno
import platform

from hcq.doctor.check import Failure, Found
from hcq.doctor.host import Facts, Host
from hcq.errors import DriverError
from hcq.port import MAP_ANONYMOUS, MAP_PRIVATE, PAGE_BYTES, PROT_EXEC, PROT_READ, PROT_WRITE

MACHINES = ("x86_64", "aarch64")


def node() -> Found:
    return Found("no file is needed: the queue is memory, the hardware is threads of this process")


def permission(host: Host, facts: Facts) -> Found:
    """A page of plain memory can be sealed as code."""
    va = host.mmap(0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    try:
        host.mprotect(va, PAGE_BYTES, PROT_READ | PROT_EXEC)
    except DriverError as error:
        raise Failure(f"memory cannot be made executable: {error}", _fix(facts, error.errno or 0)) from None
    finally:
        host.munmap(va, PAGE_BYTES)
    return Found("memory can be made executable once it is no longer writable")


def driver(facts: Facts) -> Found:
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in MACHINES:
        raise Failure(
            f"the CPU device runs on Linux on {' and '.join(MACHINES)}, and this is {platform.system()} on {machine}.",
            "run it in a Linux container or virtual machine",
        )
    return Found(f"command processor of this package on Linux {facts.kernel}, {machine}")


def _fix(facts: Facts, number: int) -> str:
    if facts.is_selinux_enforcing:
        return "sudo setsebool -P selinuxuser_execmod 1; sudo ausearch -m avc -ts recent | audit2why"
    if facts.is_filtered:
        return "a seccomp filter refuses mprotect: docker run --security-opt seccomp=unconfined IMAGE"
    if number == errno.ENOMEM:
        return "sudo sysctl vm.max_map_count=1048576"
    return (
        "systemctl edit UNIT, and under [Service]: MemoryDenyWriteExecute=no  # the service's policy refuses"
    )
