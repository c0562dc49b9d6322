"""Machine: which paths of the file system are an emulated driver's, and what is there.

In       emulated kernel drivers
Out      find(path): a device node, a file or folder of sysfs, nothing that exists, or nothing of ours
Changes  a temporary folder, in which the emulated files lie as real ones: descriptors of them are real, and list
Next     kernel.py (what drivers show), supervisor/ and attached.py (who ask), port.py (our own drivers, without
         folders)

Only what drivers show exists below the folders that are theirs alone. Elsewhere their files lie over the real ones.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hcq import backends
from hcq.emu.kernel import DeviceNode, Kernel, Refusal

MAX_LINKS = 40  # as the kernel counts them
PREFIX = "hcq-emulated-"
ABANDONED_SECONDS = 60


@dataclass(frozen=True)
class Place:
    """What is at a path: a device node, or a real path that has the contents; neither: nothing."""

    path: str
    node: DeviceNode | None = None
    copy: str = ""


class Machine:
    """The files of emulated drivers. `close` removes the folder.

    made   is told of it before anything is in it
    """

    def __init__(self, kernels: Sequence[Kernel], made: Callable[[str], None] = lambda folder: None) -> None:
        self.kernels = list(kernels)
        self.nodes = {node.path: node for kernel in kernels for node in kernel.nodes()}
        self.kernel_of = {node.path: kernel for kernel in kernels for node in kernel.nodes()}
        self._owned = tuple(folder for kernel in kernels for folder in kernel.folders)
        files = {path: what for kernel in kernels for path, what in kernel.files().items()}
        self._links = {path: what for path, what in files.items() if isinstance(what, str)}
        self._files = {path: what for path, what in files.items() if isinstance(what, bytes)}
        self._live = {path: now for kernel in kernels for path, now in kernel.live().items()}
        self._files |= {path: now() for path, now in self._live.items()}
        self._folders = {
            folder
            for path in (*files, *self._files, *self.nodes, *(one + "-" for one in self._owned))
            for folder in _above(path)
        }
        self.tops = tuple({f"/{path.split('/')[1]}" for path in (*files, *self.nodes)})
        _remove_abandoned()
        self.folder = tempfile.mkdtemp(prefix=PREFIX)
        made(self.folder)
        self._held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._held, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for as long as this process lives
            self._write()
        except BaseException:
            self.close()
            raise

    def _write(self) -> None:
        for folder in sorted(self._folders):
            os.makedirs(self.folder + folder, exist_ok=True)
        for path, data in self._files.items():
            with open(self.folder + path, "wb") as file:
                file.write(data)
            os.chmod(self.folder + path, 0o444)
        for path, target in self._links.items():
            os.symlink(target, self.folder + path)
        for path in self.nodes:  # so that the folder lists it; nobody is given this file
            with open(self.folder + path, "wb"):
                pass

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def find(self, path: str, follow: bool = True) -> Place | None:
        """What is at an absolute path, or None when that is the real system's. Raises Refusal (ELOOP).

        follow   whether a symbolic link at the end is followed
        """
        if not path.startswith(self.tops):
            return None
        found, is_through_ours = self._resolve(path, follow)
        node = self.nodes.get(found)
        if node is not None:
            return Place(found, node)
        is_link = found in self._links
        if found in self._live:
            self._renew(found)
        if found in self._files or is_link:
            return Place(found, copy=self.folder + found)
        is_owned = (found + "/").startswith(self._owned)
        if found in self._folders and (is_owned or not os.path.isdir(found)):
            return Place(found, copy=self.folder + found)
        if is_owned:
            return Place(found)
        # the real system knows what a path through ours leads to, and not the way
        return Place(found, copy=found) if is_through_ours else None

    def _renew(self, path: str) -> None:
        """A file that changes is another one each time: whoever has it open reads what it was."""
        data = self._live[path]()
        if data == self._files[path]:
            return
        new = f"{self.folder}/{threading.get_ident()}"
        with open(new, "wb") as file:
            file.write(data)
        os.chmod(new, 0o444)
        os.replace(new, self.folder + path)
        self._files[path] = data

    def _resolve(self, path: str, follow: bool) -> tuple[str, bool]:
        """The path without our symbolic links, and whether one, or a folder that only we have, was on the way."""
        return resolved(path, self._links, follow, lambda folder: folder in self._folders)


def resolved(
    path: str,
    links: Mapping[str, str],
    follow: bool = True,
    is_ours: Callable[[str], bool] = lambda folder: False,
) -> tuple[str, bool]:
    """A path without these symbolic links, and whether one, or a folder that only we have, was on the way.

    Raises  Refusal (ELOOP)
    """
    done, hops = "", 0
    is_through_ours = False
    rest = path.split("/")[::-1]
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            is_through_ours |= is_ours(done) and not os.path.isdir(done)
            done = done.rpartition("/")[0]
            continue
        target = links.get(f"{done}/{name}")
        if target is None or not (follow or rest):
            done = f"{done}/{name}"
            continue
        hops += 1
        is_through_ours = True
        if hops > MAX_LINKS:
            raise Refusal(errno.ELOOP)
        if target.startswith("/"):
            done = ""
        rest.extend(target.split("/")[::-1])
    return done or "/", is_through_ours


def _remove_abandoned() -> None:
    """Folders of processes that ended without a chance to remove them (SIGKILL, _exit): nobody holds their lock."""
    top = tempfile.gettempdir()
    for name in os.listdir(top):
        if not name.startswith(PREFIX):
            continue
        try:
            fd = os.open(os.path.join(top, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < ABANDONED_SECONDS:
                continue  # somebody else's, or so new that its owner may be about to lock it
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.join(top, name), ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(fd)


def _above(path: str) -> list[str]:
    """The folders on the way to a path."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def kernels_for(words: Sequence[str]) -> list[Kernel]:
    """The emulated drivers of the GPUs that words such as "amd:gfx1100" ask for.

    Raises  UsageError naming what is wrong with a word
    """
    kernels: list[Kernel] = []
    for backend in (backends.of(name) for name in sorted(backends.emulated(words))):
        own = [word for word in words if backends.of(word) is backend]
        kernels.append(backends.load(backend.emulation)(own))
    return kernels
