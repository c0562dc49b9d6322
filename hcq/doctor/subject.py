"""Subject: what a kind of device shows the doctor before it opens; its backend names one (hcq/backend.py, `doctor`).

In       the host
Out      names of the devices that are here; the checks node, permission and driver; a kernel for a later check
Next     access.py (subjects behind a kernel driver), examine.py (who asks), hcq/cpu/doctor.py (the smallest one)
"""

from __future__ import annotations

from hcq.doctor.check import Found
from hcq.doctor.host import Facts, Host
from hcq.doctor.kernels import Tiny
from hcq.system.port import Port


class Subject:
    """A kind of device. As it stands here, it needs no file and no permission, and always is there.

    has_kernel_driver  it is reached through one: its limits and permissions may be what is wrong
    """

    has_kernel_driver = False

    def __init__(self, name: str, title: str = "") -> None:
        self.name = name
        self.title = title or name  # what messages call it

    @property
    def look(self) -> str:
        """The command that shows what it, or its kernel driver, says is wrong."""
        return f"HCQ_DEBUG=push,sync python -m hcq doctor --device {self.name}"

    def names(self, host: Host) -> list[str]:
        """A name for each device that is here, whether it works or not."""
        return [self.name]

    def absence(self) -> str:
        """Why none is here."""
        return "none"

    def node(self, host: Host, facts: Facts, index: int) -> Found:
        """Is the kernel driver's file there? Raises Failure with the fix."""
        return Found("no file is needed")

    def permission(self, host: Host, facts: Facts, index: int) -> Found:
        """May this process open it? Raises Failure with the fix."""
        return Found("nothing has to be allowed")

    def driver(self, port: Port, kernel: str) -> Found:
        """Which driver is it, and do we know its interface? kernel: what answers, "Linux 6.8" or an emulated one."""
        return Found(f"driver of this package on {kernel}")

    def kernel(self, arch: str) -> Tiny | None:
        """The doctor's kernel for an architecture; None when nobody has made it."""
        return None
