"""The disk cache never fails its caller, and never hands out damaged bytes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from hcq import config
from hcq.cache import DiskCache


def test_what_was_put_is_what_is_got(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"value")
    cache.put("other", b"key", b"")
    assert cache.get("kind", "key") == b"value"
    assert cache.get("other", "key") == b""
    cache.put("kind", "key", b"newer")
    assert DiskCache(tmp_path / "cache").get("kind", "key") == b"newer"


def test_folders_and_files_are_private(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.put("kind", "key", b"value")
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.path("kind", "key").stat().st_mode) == 0o600
    assert [path.name for path in cache.path("kind", "key").parent.iterdir()] == [
        cache.path("kind", "key").name
    ]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "other", "folder"])
def test_a_damaged_file_is_a_miss_and_is_written_anew(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    cache.put("kind", "key", b"value" * 100)
    path = cache.path("kind", "key")
    content = bytearray(path.read_bytes())
    if damage == "folder":
        path.unlink()
        path.mkdir()
        assert cache.get("kind", "key") is None
        cache.put("kind", "key", b"value")
        assert cache.get("kind", "key") is None
        return
    content[-1] ^= 4
    path.write_bytes({"truncate": content[:-3], "flip": content, "empty": b"", "other": b"hello"}[damage])
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"value" * 100)
    assert cache.get("kind", "key") == b"value" * 100


def test_a_full_disk_means_working_without_a_cache_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(file: BinaryIO, content: bytes) -> int:
        file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = DiskCache(tmp_path, write=full)
    config.use(config.Config.read({**os.environ, "HCQ_DEBUG": "code"}))
    try:
        for _ in range(3):
            cache.put("kind", "key", b"value" * 1000)
    finally:
        config.use(None)
    assert cache.get("kind", "key") is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    said = capsys.readouterr().err
    assert said.count("cannot be written (No space left on device); working without it") == 1


def test_a_folder_that_cannot_be_written_means_working_without_a_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = DiskCache(blocked / "cache")
    cache.put("kind", "key", b"value")
    assert cache.get("kind", "key") is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("home", ["", "/proc/nobody", "file"])
def test_a_device_opens_and_works_without_a_home(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("")
    script = """
import hcq
dev = hcq.open("CPU")
buffer = dev.alloc(8)
dev.queue().fill(buffer, 1).submit()
print(buffer.read())
"""
    environment = {
        **os.environ,
        "HCQ_CACHE_DIR": "",
        "XDG_CACHE_HOME": "",
        "HOME": home and str(tmp_path / home),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=50
    )
    assert (done.stdout, done.stderr) == (f"{bytes([1] * 8)!r}\n", "")


def test_a_damaged_command_processor_in_the_cache_is_built_anew(tmp_path: Path) -> None:
    script = "import hcq; b = hcq.open('CPU').alloc(4); hcq.open('CPU').queue().fill(b, 3).submit(); print(b.read())"
    environment = {**os.environ, "HCQ_CACHE_DIR": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=50
        )
        assert (done.stdout, done.stderr) == (f"{bytes([3] * 4)!r}\n", "")
        (path,) = [path for path in (tmp_path / "cpu-processor").rglob("*") if path.is_file()]
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
