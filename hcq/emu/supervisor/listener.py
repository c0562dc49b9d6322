"""The listener: system calls of other processes that wait for an answer from here.

In       a filter, installed by a process for itself and all that it starts; then its calls, one after the other
Out      Notification: which thread makes which call; answers, descriptors put into the process
Changes  the caller's registers and descriptors
Next     bpf.py (the filter), supervisor.py (who asks for calls), answers.py (who answers)
Source   linux/seccomp.h; seccomp_unotify(2); kernel/seccomp.c

A thread that is asked about waits. Since Linux 5.19 no signal but a deadly one ends its wait once the call was
received here, and so its memory, above all its stack, is what it was: an answer may be written there. Before that a
signal makes it give up: its notification is no longer valid, an answer finds nobody, and what is written may land in
memory that it uses for something else by now.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
from typing import NamedTuple

from hcq.emu.supervisor.bpf import Abi, program
from hcq.errors import DriverError, UsageError
from hcq.system import native
from hcq.system.ioctl_numbers import READ, WRITE, ioctl_number

PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, GET_NOTIF_SIZES = 1, 3
FLAG_NEW_LISTENER = 1 << 3
FLAG_WAIT_KILLABLE_RECV = 1 << 5
FLAG_CONTINUE = 1
ADDFD_SETFD, ADDFD_SEND = 1, 2

NOTIF = struct.Struct("<QIIiIQ6Q")  # id, pid, flags; seccomp_data: nr, arch, instruction_pointer, args
RESPONSE = struct.Struct("<QqiI")  # id, val, error, flags
ADDFD = struct.Struct("<QIIII")  # id, flags, srcfd, newfd, newfd_flags


RECV = ioctl_number(READ | WRITE, "!", 0, NOTIF.size)
SEND = ioctl_number(READ | WRITE, "!", 1, RESPONSE.size)
ID_VALID = ioctl_number(WRITE, "!", 2, 8)
ADD_FD = ioctl_number(WRITE, "!", 3, ADDFD.size)
SET_FLAGS = ioctl_number(WRITE, "!", 4, 8)
SYNC_WAKE_UP = 1  # the kernel expects the other side to run next on this core; since Linux 6.6

WAY_OUT = (
    "A Python program can reach emulated GPUs without it: import hcq.emu, then hcq.emu.attach('amd:gfx1100'), "
    "before its libraries open the GPU."
)


class Notification(NamedTuple):
    """One call: `thread` is the number of the thread that makes it."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


def install(abi: Abi) -> tuple[int, bool]:
    """Put this process, and all that it will start, under the filter. Returns the listener's descriptor, or -errno.

    From here on its calls with paths wait for whoever reads the listener; with True, as long as the answer takes.
    """
    words = program(abi)
    code = native.new("char[]", words)
    header = native.new("char[]", struct.pack("<H6xQ", len(words) // 8, native.address(code)))
    result = native.system_call(abi.prctl, PR_SET_NO_NEW_PRIVS, 1)
    if result < 0:
        return result, False
    flags = FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV
    result = native.system_call(abi.seccomp, SET_MODE_FILTER, flags, native.address(header))
    if result != -errno.EINVAL:
        return result, True
    result = native.system_call(abi.seccomp, SET_MODE_FILTER, FLAG_NEW_LISTENER, native.address(header))
    return result, False


def refused_install(number: int) -> UsageError:
    """Why a filter cannot be installed, in a sentence with the way out."""
    why = {
        errno.EBUSY: "a supervisor of system calls is there already, and Linux allows one (a container's, a sandbox's)",
        errno.EINVAL: "this Linux has no user notification (it came with 5.0)",
        errno.ENOSYS: "this Linux has no seccomp",
        errno.EACCES: "this process may not restrict itself",
        errno.EPERM: "this process may not restrict itself",
    }.get(number, "the kernel refuses it")
    name = errno.errorcode.get(number, number)
    return UsageError(f"seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER) -> {name}: {why}. {WAY_OUT}")


def check_sizes(abi: Abi) -> None:
    """Refuse a kernel whose structures are larger than those here."""
    sizes = native.new("char[]", 6)
    result = native.system_call(abi.seccomp, GET_NOTIF_SIZES, 0, native.address(sizes))
    if result < 0:
        raise refused_install(-result)
    found = struct.unpack("<3H", native.read(native.address(sizes), 6))
    if found != (NOTIF.size, RESPONSE.size, 64):
        raise DriverError(f"seccomp(SECCOMP_GET_NOTIF_SIZES) -> {found}: structures of a newer Linux.")


class Listener:
    """The listener's descriptor. Calls of several threads may be answered at once.

    holds_callers  a thread waits until it is answered, whatever signals come: a call that may take long has to ask
                   `is_interrupted` itself
    """

    def __init__(self, fd: int, holds_callers: bool) -> None:
        self.fd, self.holds_callers = fd, holds_callers
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._has_send_flag = True
        try:
            fcntl.ioctl(fd, SET_FLAGS, SYNC_WAKE_UP)
        except OSError:
            pass  # an older Linux: the answer takes a little longer

    def receive(self, timeout_ms: int = -1) -> Notification | None:
        """The next call; None when there was none in time, or when it was given up. One thread at a time.

        Raises  EOFError when no process is under the filter any more
        """
        ready = self._poll.poll(timeout_ms)
        if not ready:
            return None
        if not ready[0][1] & select.POLLIN:
            raise EOFError
        data = bytearray(NOTIF.size)
        try:
            fcntl.ioctl(self.fd, RECV, data, True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        id, thread, _, number, _, _, *arguments = NOTIF.unpack(data)
        return Notification(id, thread, number, tuple(arguments))

    def is_valid(self, id: int) -> bool:
        """Whether the thread still waits for the answer."""
        try:
            fcntl.ioctl(self.fd, ID_VALID, struct.pack("<Q", id))
        except OSError:
            return False
        return True

    def is_interrupted(self, call: Notification) -> bool:
        """Whether a signal has come for the thread that makes a call, or the thread is gone."""
        return not self.is_valid(call.id) or (self.holds_callers and _has_signal(call.thread))

    def answer(self, id: int, value: int) -> bool:
        """The call returns this: its result, or -errno. False when nobody waits for it any more."""
        return self._send(id, max(value, 0), min(value, 0), 0)

    def let_it_run(self, id: int) -> bool:
        """The call is the kernel's own: it runs as if there were no filter."""
        return self._send(id, 0, 0, FLAG_CONTINUE)

    def _send(self, id: int, value: int, error: int, flags: int) -> bool:
        try:
            fcntl.ioctl(self.fd, SEND, bytearray(RESPONSE.pack(id, value, error, flags)), True)
        except OSError as refused:
            if refused.errno == errno.ENOENT:
                return False
            raise
        return True

    def answer_descriptor(self, id: int, fd: int, flags: int) -> bool:
        """The call returns a descriptor of our open file. flags: O_CLOEXEC or 0. False when nobody waits any more."""
        try:
            if self._has_send_flag:
                try:
                    self._add(id, ADDFD_SEND, fd, flags)
                    return True
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    self._has_send_flag = False  # Linux before 5.14 does it in two steps
            number = self._add(id, 0, fd, flags)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            return self.answer(id, -(error.errno or errno.EIO))  # such as EMFILE: the process has too many
        return self.answer(id, number)

    def replace_descriptor(self, id: int, fd: int, by: int, flags: int) -> None:
        """The caller's descriptor is one of our open file `by` from now on, as dup2 does it. Raises OSError."""
        self._add(id, ADDFD_SETFD, by, flags, fd)

    def add_descriptor(self, id: int, fd: int, flags: int) -> int:
        """The caller has a descriptor of our open file from now on: its number there. Raises OSError."""
        return self._add(id, 0, fd, flags)

    def _add(self, id: int, how: int, fd: int, flags: int, into: int = 0) -> int:
        return int(fcntl.ioctl(self.fd, ADD_FD, bytearray(ADDFD.pack(id, how, fd, into, flags)), True))

    def check(self) -> None:
        """Refuse a kernel that cannot put descriptors into other processes: it is asked about a call that is none."""
        try:
            self._add(0, 0, self.fd, 0)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise UsageError(
                    f"ioctl(SECCOMP_IOCTL_NOTIF_ADDFD) -> {errno.errorcode.get(error.errno or 0)}: this Linux cannot "
                    f"put descriptors into other processes (it came with 5.9). {WAY_OUT}"
                ) from None

    def close(self) -> None:
        """Calls that wait return ENOSYS, as do all later ones."""
        os.close(self.fd)


def _has_signal(thread: int) -> bool:
    """Whether a signal waits for a thread, or for its process, that the thread does not block. proc_pid_status(5)."""
    masks = {}
    try:
        with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, text = line.partition(":")
                if name in ("SigPnd", "ShdPnd", "SigBlk"):
                    masks[name] = int(text, 16)
    except OSError:
        return True  # it has ended
    return bool((masks["SigPnd"] | masks["ShdPnd"]) & ~masks["SigBlk"])
