"""Starting a program under the filter: the child installs it, hands the listener over, and becomes the program.

In       a command line, an environment
Out      the program's process number and its listener
Changes  a new process; nothing in this one
Next     listener.py (the filter), supervisor.py (who waits for it)
Source   seccomp_unotify(2), unix(7): SCM_RIGHTS; exec(3): what a shell says when a program cannot be started
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence

from hcq.emu.supervisor.bpf import Abi
from hcq.emu.supervisor.listener import Listener, check_sizes, install, refused_install
from hcq.errors import UsageError

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the exit statuses that shells use


class Child:
    """The program's process. `failure` is the errno of the exec that failed; it is known once the child has ended."""

    def __init__(self, pid: int, listener: Listener, words: socket.socket) -> None:
        self.pid, self.listener, self._words = pid, listener, words

    def failure(self) -> int:
        """Why the program could not be started: an errno, or 0. The child has ended, or executes the program."""
        with self._words:
            said = self._words.recv(4)
        return struct.unpack("<i", said)[0] if len(said) == 4 else 0


def spawn(abi: Abi, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start a program. It waits at its first call with a path until somebody reads the listener.

    Raises  UsageError where the system allows no filter, with the way out
    """
    check_sizes(abi)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # what comes after the filter must open no file: all that it needs is made here
    program, values = list(arguments), dict(environment)
    ignored_here = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and a program inherits that
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = NOT_EXECUTABLE
        try:
            for ignored in ignored_here:
                signal.signal(ignored, signal.SIG_DFL)
            _die_with_parent(abi, parent)
            listener, holds_callers = install(abi)
            if listener < 0:
                theirs.send(struct.pack("<i", listener))
                os._exit(status)
            socket.send_fds(theirs, [struct.pack("<i", holds_callers)], [listener])
            os.close(listener)
            os.execvpe(program[0], program, values)
        except OSError as error:
            number = error.errno or errno.EIO
            status = NOT_FOUND if number in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE
            theirs.send(struct.pack("<i", number))
        finally:
            os._exit(status)
    theirs.close()
    data, fds, _, _ = socket.recv_fds(ours, 4, 1)
    if not fds:
        os.waitpid(pid, 0)
        ours.close()
        if len(data) == 4:
            raise refused_install(-struct.unpack("<i", data)[0])
        raise UsageError("the process of the program ended before it could be supervised.")
    os.set_inheritable(fds[0], False)
    return Child(pid, Listener(fds[0], holds_callers=data != bytes(4)), ours)


def _die_with_parent(abi: Abi, parent: int) -> None:
    """A supervisor that is killed must not leave a program behind whose calls nobody answers."""
    from hcq.system import native

    native.system_call(abi.prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(NOT_EXECUTABLE)
