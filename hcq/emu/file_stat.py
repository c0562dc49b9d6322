"""Results of stat(2) and statx(2) for emulated files, in the layout that the kernel gives C programs.

In       an os.stat_result, or a device node
Out      struct stat and struct statx as bytes
Next     machine.py (what is at a path), emu/supervisor/answers.py and attached.py (who give it to programs)
Source   arch/x86/include/uapi/asm/stat.h, asm-generic/stat.h (aarch64), linux/stat.h
"""

from __future__ import annotations

import os
import platform
import stat
import struct
from dataclasses import dataclass

from hcq.emu.kernel import DeviceNode

BLOCK_BYTES = 4096
STATX_BASIC = 0x7FF


@dataclass(frozen=True)
class Stat:
    """What a call of the family says."""

    mode: int
    inode: int
    device: int
    rdev: int = 0
    size_bytes: int = 0
    links: int = 1
    uid: int = 0
    gid: int = 0
    time_ns: int = 0


def of_node(node: DeviceNode) -> Stat:
    """A character device that everyone may use."""
    rdev = os.makedev(node.major, node.minor)
    # devtmpfs is some device of its own, and a node's inode is its name there
    return Stat(stat.S_IFCHR | 0o666, 1000 + rdev % 100000, 6, rdev)


def of_copy(found: os.stat_result) -> Stat:
    """A file or folder of sysfs: root's, as large as it is here."""
    return Stat(
        found.st_mode,
        found.st_ino,
        found.st_dev,
        size_bytes=found.st_size,
        links=found.st_nlink,
        time_ns=found.st_mtime_ns,
    )


def struct_stat(one: Stat) -> bytes:
    """struct stat of this machine."""
    blocks = -(-one.size_bytes // 512)
    times = divmod(one.time_ns, 1_000_000_000) * 3
    if platform.machine() == "aarch64":
        head = struct.pack(
            "<QQIIIIQQ", one.device, one.inode, one.mode, one.links, one.uid, one.gid, one.rdev, 0
        )
        return head + struct.pack("<qiiq6QII", one.size_bytes, BLOCK_BYTES, 0, blocks, *times, 0, 0)
    head = struct.pack("<QQQIIIIQ", one.device, one.inode, one.links, one.mode, one.uid, one.gid, 0, one.rdev)
    return head + struct.pack("<qqq6Q24x", one.size_bytes, BLOCK_BYTES, blocks, *times)


def struct_statx(one: Stat) -> bytes:
    """struct statx: the same everywhere."""
    time = struct.pack("<qI4x", *divmod(one.time_ns, 1_000_000_000))
    return (
        struct.pack("<IIQIIIH2x", STATX_BASIC, BLOCK_BYTES, 0, one.links, one.uid, one.gid, one.mode)
        + struct.pack("<QQQQ", one.inode, one.size_bytes, -(-one.size_bytes // 512), 0)
        + time * 4
        + struct.pack(
            "<4I", os.major(one.rdev), os.minor(one.rdev), os.major(one.device), os.minor(one.device)
        )
        + bytes(256 - 144)
    )
