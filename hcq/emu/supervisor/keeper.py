"""The keeper: a process beside the supervisor that clears up behind it when the supervisor is killed.

In       processes, as the supervisor meets them: descriptors of them; the folder of its emulated files
Out      nothing
Changes  one process more; once the supervisor is gone, what is left of those it was told of is killed, and its folder
         removed
Next     supervisor.py, processes.py (who tells), spawn.py (the program itself dies with its parent by itself)
Source   pidfd_open(2), pidfd_send_signal(2), unix(7): SCM_RIGHTS

Without a supervisor their calls fail with ENOSYS, and AMD's runtime makes the one that waits again and again, for ever.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import socket

WORD_BYTES = 8192  # of what is told: a path at most


class Keeper:
    """The supervisor's end. The other one ends when this process does, or at `close`."""

    def __init__(self) -> None:
        self._words, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        between = os.fork()
        if between == 0:
            # forked twice: the supervisor waits for all its children, and this is to be none
            try:
                if os.fork() == 0:
                    _keep(theirs)
            finally:
                os._exit(0)
        os.waitpid(between, 0)
        theirs.close()

    def tell(self, pidfd: int) -> None:
        """One more process. The descriptor stays the caller's."""
        with contextlib.suppress(OSError):  # a keeper that was killed keeps nothing
            socket.send_fds(self._words, [b"p"], [pidfd])

    def tell_folder(self, folder: str) -> None:
        """A folder that is to go with the supervisor."""
        with contextlib.suppress(OSError):
            self._words.send(b"f" + os.fsencode(folder))

    def close(self) -> None:
        """The supervisor ends; what it has left is ended, too."""
        self._words.close()


def _keep(words: socket.socket) -> None:
    os.setsid()  # what is meant for the program's group is not meant for this
    # whoever reads what the supervisor prints must see its end
    os.closerange(0, words.fileno())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(words.fileno() + 1, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    left: set[int] = set()
    folders: list[bytes] = []
    poll = select.epoll()
    poll.register(words, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in left:  # it has ended
                poll.unregister(fd)
                os.close(fd)
                left.remove(fd)
                continue
            said, fds, _, _ = socket.recv_fds(words, WORD_BYTES, 1)
            if not said:
                for pidfd in left:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                for folder in folders:
                    shutil.rmtree(folder, ignore_errors=True)
                return
            if said.startswith(b"f"):
                folders.append(said[1:])
            for pidfd in fds:
                poll.register(pidfd, select.EPOLLIN)
                left.add(pidfd)
