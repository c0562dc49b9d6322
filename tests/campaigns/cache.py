"""Attacks on the disk cache: whatever its files and folders become, the numbers are right and nothing is raised.

In       a case; its random numbers choose programs, and what happens to the files that they left in the cache
Out      Outcome.RIGHT; Wrong when a number differs, when something is raised, or when no cache works afterwards
Changes  a folder of the case's own
Next     hcq/system/cache.py, hcq/system/private_files.py, frontend/run/plan.py (who reads), docs/security.md
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hcq import Tensor, config
from hcq.compiler import compile as compiling
from hcq.frontend.core import device as devices
from hcq.frontend.run import plan as plans
from hcq.system.cache import DiskCache
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

ROOT = Path(__file__).resolve().parent.parent.parent
N = 24
DATA = np.arange(N, dtype=np.float32) - 7

# programs of one signature: in another's place, each would run without complaint
PROGRAMS: list[tuple[str, Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = [
    ("x + 1", lambda x: x + 1, lambda a: a + 1),
    ("x * 2", lambda x: x * 2, lambda a: a * 2),
    ("-x", lambda x: -x, lambda a: -a),
    ("x * x", lambda x: x * x, lambda a: a * a),
    ("relu(x)", lambda x: x.relu(), lambda a: np.maximum(a, 0)),
    ("x - 3", lambda x: x - 3, lambda a: a - 3),
    ("x reversed", lambda x: x.flip(0) + 0, lambda a: a[::-1]),
]
Program = tuple[str, Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]


def forget() -> None:
    """As in a new process: nothing is in memory, all is looked for on disk."""
    compiling.forget()
    plans._plans.clear()
    plans._programs.clear()
    devices.get(devices.default()).recent.clear()  # it holds programs


def compute(programs: list[Program], what: str) -> None:
    forget()
    for name, of_tensor, of_array in programs:
        got, want = of_tensor(Tensor(DATA)).numpy(), of_array(DATA)
        if not np.array_equal(got, want):
            raise Wrong(f"{name} is {got.tolist()}, not {want.tolist()}, after: {what}")


def files(folder: Path) -> list[Path]:
    """Entries of the cache, but for those that an attack has made huge."""
    found = [p for p in folder.rglob("*") if len(p.name) == 64 and p.is_file() and not p.is_symlink()]
    return sorted(p for p in found if p.stat().st_size < 1 << 24)


# -- attacks: each does its damage below a folder and returns what it did in words ----------------------------------


def swap(folder: Path, rng: random.Random) -> str:
    a, b = rng.sample(files(folder), 2)
    data, other = a.read_bytes(), b.read_bytes()
    a.write_bytes(other)
    b.write_bytes(data)
    return f"{a.parent.parent.name} {a.name[:8]} and {b.parent.parent.name} {b.name[:8]} swapped"


def rotate(folder: Path, rng: random.Random) -> str:
    kind = rng.choice([path for path in sorted(folder.iterdir()) if path.is_dir() and files(path)])
    found = files(kind)
    contents = [path.read_bytes() for path in found]
    for path, data in zip(found, contents[1:] + contents[:1]):
        path.write_bytes(data)
    return f"every {kind.name} in the place of the next"


def truncate(folder: Path, rng: random.Random) -> str:
    path = rng.choice(files(folder))
    size = rng.choice([0, 1, 9, 10, 41, 42, 43, rng.randrange(path.stat().st_size + 1)])
    os.truncate(path, size)
    return f"{path.parent.parent.name} cut to {size} bytes"


def flip(folder: Path, rng: random.Random) -> str:
    path = rng.choice(files(folder))
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"bits of a {path.parent.parent.name} flipped"


def other_format(folder: Path, rng: random.Random) -> str:
    """What another version of the cache would have written: its own checksum is right."""
    import hashlib

    path = rng.choice(files(folder))
    data = rng.choice([b"", b"{}", b"\xff" * 64, rng.choice(files(folder)).read_bytes()])
    path.write_bytes(b"HCQCACHE1\n" + hashlib.sha256(data).digest() + data)
    return f"a {path.parent.parent.name} of another format"


def replace(folder: Path, rng: random.Random) -> str:
    path = rng.choice(files(folder))
    other = rng.choice(files(folder))
    what = rng.choice(["folder", "full folder", "link", "link to nothing", "link to zeros", "pipe", "sparse"])
    path.unlink()
    if what.endswith("folder"):
        path.mkdir()
        if what == "full folder":
            (path / "file").write_text("")
    elif what == "link":
        path.symlink_to(other)
    elif what == "link to nothing":
        path.symlink_to(folder / "nothing")
    elif what == "link to zeros":
        path.symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"")
        os.truncate(path, 1 << 40)
    return f"a {path.parent.parent.name} is a {what}"


def some_folder(folder: Path, rng: random.Random) -> Path:
    path = rng.choice(files(folder))
    return rng.choice([path.parent, path.parent.parent, folder])


def lax_folder(folder: Path, rng: random.Random) -> str:
    at, mode = some_folder(folder, rng), rng.choice([0o777, 0o770, 0o707, 0o1777, 0o755])
    at.chmod(mode)
    return f"{at.relative_to(folder.parent)} has mode {mode:o}"


def replaced_folder(folder: Path, rng: random.Random) -> str:
    at, what = some_folder(folder, rng), rng.choice(["file", "link", "nothing"])
    shutil.rmtree(at)
    if what == "file":
        at.write_text("")
    elif what == "link":
        (folder.parent / "elsewhere").mkdir(exist_ok=True)
        at.symlink_to(folder.parent / "elsewhere")
    return f"{at.relative_to(folder.parent)} is a {what}"


def foreign(folder: Path, rng: random.Random) -> str:
    at = rng.choice([some_folder(folder, rng), rng.choice(files(folder))])
    if os.geteuid() == 0:
        os.chown(at, 54321, -1)
        return f"{at.relative_to(folder.parent)} belongs to another user"
    at.chmod(0o777)
    return f"{at.relative_to(folder.parent)} can be written by all"


def read_only(folder: Path, rng: random.Random) -> str:
    removed = rng.sample(files(folder), 2)
    for path in removed:
        path.unlink()
    at = rng.choice([folder, removed[0].parent, removed[0].parent.parent])
    at.chmod(0o500)
    return f"{at.relative_to(folder.parent)} is read-only, and two files are gone"


def processes(folder: Path, rng: random.Random) -> str:
    """Others write to the same entries, and to many of their own, and are killed while they do."""
    path = rng.choice(files(folder))
    kind = path.parent.parent.name
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:  # no tensors here: this touches files alone
            try:
                cache = DiskCache(folder)
                while True:
                    for key in ("a", "b", f"{number} {rng.random()}"):
                        found = cache.get(kind, key)
                        if found is not None and found[:1] != key[:1].encode():
                            os._exit(7)
                        cache.put(kind, key, key[:1].encode() * rng.randrange(1, 1 << 18))
            finally:
                os._exit(8)
        children.append(child)
    time.sleep(rng.random() * 0.05)
    for child in children:
        os.kill(child, signal.SIGKILL)
        if os.WIFEXITED(status := os.waitpid(child, 0)[1]):
            raise Wrong(f"a process that shares the cache saw another's answer: {status}")
    return "two processes that wrote were killed"


ATTACKS = [
    *(swap, rotate, truncate, flip, other_format, replace, lax_folder, replaced_folder),
    *(foreign, read_only, processes),
]


@contextlib.contextmanager
def full_disk(size_bytes: int) -> Iterator[None]:
    """No file can grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def open_elsewhere(folder: Path, what: str) -> None:
    """A new process computes with what is in the cache."""
    script = "import hcq; print((hcq.Tensor([1.0, 2.0]) * 3).tolist())"
    environment = {**os.environ, "HCQ_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if not line.startswith("hcq: warning: the cache in")]
    if done.stdout != "[3.0, 6.0]\n" or told:
        raise Wrong(f"a process with this cache says {done.stdout!r} and {done.stderr!r} after: {what}")


def run(case: Case) -> Outcome:
    rng = case.rng()
    Tensor([1.0]).realize()  # the device opens with the worker's own cache
    programs = rng.sample(PROGRAMS, 3)
    with tempfile.TemporaryDirectory(prefix="cache-") as name:
        folder = Path(name) / "cache"
        config.use(config.Config.read({**os.environ, "HCQ_CACHE_DIR": str(folder)}))
        try:
            attack_and_compute(folder, programs, rng)
        finally:
            config.use(None)
            forget()
    return Outcome.RIGHT


def attack_and_compute(folder: Path, programs: list[Program], rng: random.Random) -> None:
    is_opened = rng.random() < 0.15
    compute(programs, "nothing")
    if is_opened:
        open_elsewhere(folder, "nothing")
    did = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if len(files(folder)) >= 2:
            did.append(rng.choice(ATTACKS)(folder, rng))
    what = "; ".join(did)
    if rng.random() < 0.15:
        size = rng.choice([0, 1, 100, 4096])
        what += f"; no file can have more than {size} bytes"
        with full_disk(size):
            compute(programs, what)
    if is_opened:
        open_elsewhere(folder, what)
    for _ in range(2):
        compute(programs, what)
    whole = DiskCache(folder.parent / "another")
    whole.put("kind", "key", b"value")
    if whole.get("kind", "key") != b"value":
        raise Wrong(f"a new folder is no cache after: {what}")


CAMPAIGNS = (
    Campaign(
        "cache",
        "files of the cache swapped, copied across kinds, cut, flipped, replaced by links, pipes and folders; folders "
        "of others; full disks; processes killed while they write",
        run,
        short=44,
    ),
)
