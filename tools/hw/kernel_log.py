"""The kernel's log: lines about GPUs that were written since the last look.

In       /dev/kmsg, which root may read, and others where kernel.dmesg_restrict is 0
Out      lines; none where the log is not ours to read (`why` says so)
Next     runner.py (looks before and after each item)
"""

from __future__ import annotations

import os
import re

KMSG = "/dev/kmsg"
ABOUT_GPUS = re.compile(
    r"nvrm|nvidia|xid|amdgpu|kfd|drm|iommu|dmar|pcieport|aer|mce|hung task|out of memory", re.IGNORECASE
)
RECORD_BYTES = 8192
MAX_LINES = 200


class KernelLog:
    """The log from now on; it begins at its end."""

    def __init__(self, path: str = KMSG) -> None:
        self.why = ""
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.why = f"{path}: {error.strerror}"

    def fresh(self) -> list[str]:
        """Lines about GPUs and the bus since the last call, the newest MAX_LINES of them."""
        found: list[str] = []
        while self._fd >= 0:
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # lines were lost: the log is a ring, too
                found.append("(lines were overwritten before they were read)")
                continue
            except OSError:
                break
            if not record:
                break
            head, _, text = record.decode("utf-8", "replace").partition(";")
            line = text.partition("\n")[0]
            if ABOUT_GPUS.search(line):
                stamp = head.split(",")[2] if head.count(",") >= 2 else "0"
                found.append(f"[{int(stamp) / 1e6:.6f}] {line}" if stamp.isdecimal() else line)
        return found[-MAX_LINES:]
