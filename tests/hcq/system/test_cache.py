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
from hcq.system.cache import DiskCache, _header


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


@pytest.mark.parametrize("other", [("kind", "other key"), ("other kind", "key")])
def test_a_file_in_the_place_of_another_is_a_miss(tmp_path: Path, other: tuple[str, str]) -> None:
    cache = DiskCache(tmp_path)
    cache.put("kind", "key", b"value")
    cache.put(*other, b"another value")
    cache.path(*other).replace(cache.path("kind", "key"))
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"value")
    assert cache.get("kind", "key") == b"value"


def test_no_kind_and_key_can_pass_for_another_pair() -> None:
    parts = ["", "a", "b", "ab", "\0", "a\0"]
    heads = {_header(kind, key, data.encode()) for kind in parts for key in parts for data in parts}
    assert len(heads) == len(parts) ** 3


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "lax"])
def test_what_is_no_file_of_ours_alone_is_a_miss(tmp_path: Path, what: str) -> None:
    cache = DiskCache(tmp_path)
    cache.put("kind", "key", b"value")
    path = cache.path("kind", "key")
    if what == "lax":
        path.chmod(0o666)
    else:
        path.rename(tmp_path / "aside")
        if what == "link":
            path.symlink_to(tmp_path / "aside")
        elif what == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"newer")
    assert cache.get("kind", "key") == (None if what == "folder" else b"newer")
    assert path.is_symlink() is False


@pytest.mark.parametrize("level", ["root", "kind", "shard", "above"])
def test_a_folder_that_is_a_link_is_followed_only_where_the_user_says_the_cache_is(
    tmp_path: Path, level: str
) -> None:
    cache = DiskCache(tmp_path / "above" / "cache")
    cache.put("kind", "key", b"value")
    path = cache.path("kind", "key")
    folder = {
        "shard": path.parent,
        "kind": path.parent.parent,
        "root": cache.root,
        "above": cache.root.parent,
    }
    folder[level].rename(tmp_path / "aside")
    folder[level].symlink_to(tmp_path / "aside")
    assert cache.get("kind", "key") == (b"value" if level in ("root", "above") else None)
    cache.put("kind", "key", b"newer")


def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "a" / "b" / "cache")
    before = os.umask(0)
    try:
        cache.put("kind", "key", b"value")
    finally:
        os.umask(before)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(folders) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_not_used_and_that_is_said_once(
    tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    DiskCache(tmp_path).put("kind", "key", b"value")
    tmp_path.chmod(mode)
    for _ in range(2):
        cache = DiskCache(tmp_path)
        cache.put("kind", "other", b"value")
        assert cache.get("kind", "key") is None
        assert cache.get("kind", "other") is None
    told = capsys.readouterr().err
    assert told == (
        f"hcq: warning: the cache in {tmp_path} is not used: other users can write to {tmp_path}. "
        f"If it is for you alone: chmod go-w {tmp_path}\n"
    )
    tmp_path.chmod(0o755)
    assert DiskCache(tmp_path).get("kind", "key") == b"value"


def test_a_warning_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """Where nothing can be written any more."""

        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    tmp_path.chmod(0o777)
    monkeypatch.setattr(sys, "stderr", Full())
    assert DiskCache(tmp_path).get("kind", "key") is None
    DiskCache(tmp_path).put("kind", "key", b"value")


def test_a_lax_folder_inside_is_made_private(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("kind", "key", b"value")
    folder = cache.path("kind", "key").parent
    folder.chmod(0o777)
    assert cache.get("kind", "key") == b"value"  # the file is ours alone, and the answer to its key
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("level", ["root", "kind", "shard", "file"])
def test_what_belongs_to_another_user_is_not_read(
    tmp_path: Path, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = DiskCache(tmp_path)
    cache.put("kind", "key", b"value")
    path = cache.path("kind", "key")
    os.chown(
        {"root": tmp_path, "kind": path.parent.parent, "shard": path.parent, "file": path}[level], 12345, -1
    )
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"newer")
    told = capsys.readouterr().err
    if level == "file":  # in a folder of ours: it is replaced
        assert cache.get("kind", "key") == b"newer"
    else:
        assert "belongs to another user (uid 12345)" in told
        assert cache.get("kind", "key") is None


def test_a_folder_above_that_others_can_exchange_makes_misses_only(tmp_path: Path) -> None:
    above = tmp_path / "above"
    cache = DiskCache(above / "cache")
    cache.put("kind", "key", b"value")
    above.chmod(0o777)
    assert cache.get("kind", "key") == b"value"
    (above / "cache").rename(above / "aside")
    (above / "cache").mkdir(mode=0o777)
    (above / "cache").chmod(0o777)  # what somebody else puts there is theirs, or theirs to write
    assert cache.get("kind", "key") is None


def test_a_cache_that_is_full_loses_what_was_not_used_for_longest(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit_bytes=32 * 4096)
    for number in range(4):
        cache.put("kind", f"used {number}", bytes(1000))
    for number in range(100):
        cache.put("kind", f"once {number}", bytes(1000))
        os.utime(cache.path("kind", f"once {number}"), (1000 + number, 1000 + number))
        os.utime(cache.path("kind", f"used {number % 4}"), (1, 1))
        assert cache.get("kind", f"used {number % 4}") == bytes(1000)  # which marks it as used
        if number % 20 == 0:
            assert sum(path.is_file() for path in tmp_path.rglob("*")) <= 32 + 8 + 1
    assert all(cache.get("kind", f"used {number}") is not None for number in range(4))
    assert cache.get("kind", "once 0") is None
    assert cache.get("kind", "once 99") is not None


def test_what_is_no_part_of_the_cache_stays_when_the_cache_is_full(tmp_path: Path) -> None:
    others = [tmp_path / "reports" / "a.txt", tmp_path / "notes", tmp_path / "kind" / "ab" / "mine"]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(9000))
    cache = DiskCache(tmp_path)
    for number in range(20):
        cache.put("kind", str(number), bytes(5000))
    assert cache.trim(0) == 0
    assert all(path.exists() for path in others)
    assert not any(cache.path("kind", str(number)).exists() for number in range(20))


def test_what_a_killed_process_left_behind_goes_some_time(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("kind", "key", b"value")
    path = cache.path("kind", "key")
    old = path.with_name(f".{path.name}.123.0a1b2c3d")
    new = path.with_name(f".{path.name}.123.ffffffff")
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.put("kind", "key", b"value")
    assert sorted(path.parent.iterdir()) == sorted([new, path])


def test_processes_that_write_and_read_at_once_see_whole_answers(tmp_path: Path) -> None:
    script = """
import hashlib, pathlib, sys
from hcq.system.cache import DiskCache, _header
cache = DiskCache(pathlib.Path(sys.argv[1]), limit_bytes=1 << 20)
for number in range(300):
    key = str(number % 7)
    found = cache.get("kind", key)
    assert found is None or (found[:1] == key.encode() and len(set(found)) == 1), key
    cache.put("kind", key, key.encode() * (1000 + 997 * number % 50000))
print("fine")
"""
    words = [sys.executable, "-c", script, str(tmp_path)]
    running = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate() for process in running] == [("fine\n", "")] * 3
