"""Code of small kernels shares pages: freed slots are used again, what runs stays, no page can be written and run."""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import hcq
from hcq.cpu import arena as arenas
from hcq.cpu.arena import ALIGNMENT, CHUNK_BYTES, Arena
from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.system import helper_forks, native
from hcq.system.port import FaultyPort, LinuxPort

pytestmark = pytest.mark.skipif(
    not Arena(LinuxPort(), os.uname().machine).is_usable, reason="kernels have pages of their own here"
)


def adder(number: int) -> bytes:
    """An object whose kernel stores a number, and reads it from its constants."""
    from hcq.compiler.assemble.llvm_cpu import assemble
    from hcq.compiler.target import cpu_target

    text = f"""
@numbers = private unnamed_addr constant [4 x i64] [i64 {number}, i64 {number + 1}, i64 {number + 2}, i64 7], align 32
define void @store(ptr %out, i64 %which, ptr %group) {{
  %at = getelementptr [4 x i64], ptr @numbers, i64 0, i64 %which
  %found = load i64, ptr %at
  store i64 %found, ptr %out
  ret void
}}
"""
    return assemble(text, cpu_target(), "store")


@pytest.fixture(scope="module")
def objects() -> list[bytes]:
    return [adder(10 * number) for number in range(12)]


@pytest.fixture
def own() -> CpuDevice:
    """A device whose arena holds nothing but what a test puts there."""
    device = CpuDevice("CPU", LinuxPort())
    yield device
    device.close()


def stored(device: CpuDevice, program: object, which: int = 0) -> int:
    out = device.alloc(8)
    device.run(program, [out, which])
    return int(struct.unpack("<q", out.read())[0])


def maps() -> list[tuple[int, int, str]]:
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, rights, *_ = line.split()
        start, end = (int(word, 16) for word in bounds.split("-"))
        found.append((start, end, rights))
    return found


def maps_of_code() -> int:
    """How many mappings hold code, of this device and of others that are open."""
    return Path("/proc/self/maps").read_text().count("code of kernels")


def descriptors_of_code() -> int:
    """How many files hold code, of this device and of others that are open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum("code of kernels" in os.readlink(link) for link in links if os.path.islink(link))


def rights_at(va: int) -> str:
    return next(rights for start, end, rights in maps() if start <= va < end)


def test_hundreds_of_kernels_are_in_a_few_maps(own: CpuDevice, objects: list[bytes]) -> None:
    stored(own, own.load(objects[0], "store"))
    before = len(maps())
    programs = [own.load(objects[number % 12], "store") for number in range(600)]
    assert len(maps()) <= before + 6
    assert [stored(own, programs[n], n % 3) for n in range(600)] == [
        10 * (n % 12) + n % 3 for n in range(600)
    ]


def test_code_and_constants_can_never_be_written(own: CpuDevice, objects: list[bytes]) -> None:
    program = own.load(objects[3], "store")
    assert rights_at(program.entry) == "r-xs"
    (chunk,) = own.code_arena.chunks
    assert rights_at(chunk.va + chunk.constants.whole[0][0]) == "r--s"
    assert stored(own, program) == 30


def test_no_memory_of_the_process_can_be_written_and_run(objects: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "store.o").write_bytes(objects[3])
    script = f"""
import hcq
from pathlib import Path
dev = hcq.open("CPU")
program = dev.load(Path({str(tmp_path / "store.o")!r}).read_bytes(), "store")
out = dev.alloc(8)
dev.run(program, [out, 0])
rights = [line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines()]
print(out.read()[0], [word for word in rights if "w" in word and "x" in word])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == ("30 []\n", "")


def test_slots_of_dropped_programs_are_used_again_and_hold_no_code_until_then(
    own: CpuDevice, objects: list[bytes]
) -> None:
    kept = own.load(objects[1], "store")
    program = own.load(objects[2], "store")
    entry = program.entry
    assert stored(own, program) == 20
    for _ in range(own.recent.maxlen or 0):
        own.queue().submit()  # the ledger of submissions holds programs, too
    own.synchronize()
    del program
    own._reap()
    assert native.read(entry, 4) == arenas.TRAP * 4
    again = own.load(objects[5], "store")
    assert again.entry == entry
    assert stored(own, again) == 50
    assert stored(own, kept) == 10


def test_programs_in_flight_keep_their_code(own: CpuDevice, objects: list[bytes]) -> None:
    out = own.alloc(8 * 200)
    queue = own.queue()
    for number in range(200):
        queue.dispatch(own.load(objects[number % 12], "store"), [out.view(8 * number, 8), 1])
    queue.submit()
    others = [own.load(objects[11], "store") for _ in range(200)]
    found = struct.unpack("<200q", out.read())
    assert list(found) == [10 * (number % 12) + 1 for number in range(200)]
    assert stored(own, others[-1]) == 110


def test_programs_come_and_go_in_any_order_and_stay_right(own: CpuDevice, objects: list[bytes]) -> None:
    rng = random.Random(5)
    live: dict[int, tuple[object, int]] = {}
    for step in range(400):
        number = rng.randrange(12)
        live[rng.randrange(60)] = own.load(objects[number], "store"), 10 * number
        if step % 40 == 0:
            own.recent.clear()
            own.synchronize()
        program, wanted = rng.choice(list(live.values()))
        which = rng.randrange(3)
        assert stored(own, program, which) == wanted + which
    assert len(own.code_arena.chunks) == 1


def test_chunks_that_nobody_uses_are_given_back(own: CpuDevice, objects: list[bytes]) -> None:
    gc.collect()  # devices of other tests
    before, descriptors = maps_of_code(), descriptors_of_code()
    programs = [own.load(objects[0], "store") for _ in range(CHUNK_BYTES // ALIGNMENT // 2)]
    assert len(own.code_arena.chunks) >= 2
    assert descriptors_of_code() == descriptors + len(own.code_arena.chunks)
    programs.clear()
    own._reap()
    assert len(own.code_arena.chunks) == 1
    own.close()
    assert own.code_arena.chunks == []
    assert descriptors_of_code() == descriptors
    assert maps_of_code() == before


def test_a_program_that_outlives_its_device_gives_its_code_back(own: CpuDevice, objects: list[bytes]) -> None:
    program = own.load(objects[0], "store")
    own.close()
    assert len(own.code_arena.chunks) == 1
    own.recent.clear()
    del program
    assert own.code_arena.chunks == []


def test_after_a_fork_neither_process_changes_code_that_the_other_runs(
    own: CpuDevice, objects: list[bytes]
) -> None:
    first, second = own.load(objects[1], "store"), own.load(objects[2], "store")
    before = native.read(first.entry, 16), native.read(second.entry, 16)
    entries = first.entry, second.entry
    (chunk,) = own.code_arena.chunks
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.read(reads, 1)  # the parent has dropped the first
            assert native.read(entries[0], 16) == before[0]
            del second
            own._reap()
            slot = own.code_arena.place(64, 0)
            assert slot is not None and slot.chunk is not chunk
            slot.write(b"\x90" * 64, b"")
            assert native.read(slot.code_va, 64) == b"\x90" * 64
            code = 0
        finally:
            os._exit(code)
    del first
    own._reap()
    third = own.load(objects[3], "store")
    assert third.entry not in range(chunk.va, chunk.va + chunk.size_bytes)
    os.write(writes, b"1")
    assert os.waitpid(child, 0)[1] == 0
    assert native.read(entries[1], 16) == before[1]
    assert (stored(own, second), stored(own, third)) == (20, 30)
    os.close(reads)
    os.close(writes)


def test_children_that_run_no_kernel_leave_the_chunk_in_use(own: CpuDevice, objects: list[bytes]) -> None:
    programs = [own.load(objects[1], "store")]
    for number in range(40):
        with helper_forks.of_helpers():
            child = os.fork()
            if child == 0:
                os._exit(0)
        os.waitpid(child, 0)
        programs.append(own.load(objects[number % 12], "store"))
    assert len(own.code_arena.chunks) == 1


@pytest.mark.thorough
def test_however_often_a_process_forks_code_reaches_its_constants(own: CpuDevice) -> None:
    """Each fork gives the chunks up that there are; with as many forks as a long program makes they stay small."""
    slots = []
    for _ in range(60):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        slot = own.code_arena.place(64, 64)
        assert slot is not None
        slots.append(slot)
    assert max(slot.constants_va - slot.code_va for slot in slots) < 1 << 30
    for slot in slots:
        slot.free()


@pytest.mark.parametrize("call", ["mmap", "mprotect"])
def test_where_the_system_refuses_shared_code_every_kernel_has_its_own_pages(
    objects: list[bytes], call: str
) -> None:
    gc.collect()
    device = CpuDevice("CPU", LinuxPort())

    class Refusing(FaultyPort):
        """Refuses what is shared, and the change of rights of it."""

        def mmap(self, va: int, size: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
            if call == "mmap" and fd >= 0:
                self.plan["mmap"] = 0, errno.EACCES
            try:
                self._last = fd
                return super().mmap(va, size, prot, flags, fd, offset)
            finally:
                self.plan.pop("mmap", None)

        def mprotect(self, va: int, size: int, prot: int) -> None:
            if call == "mprotect" and self._last >= 0:
                self.plan["mprotect"] = 0, errno.EACCES
            try:
                super().mprotect(va, size, prot)
            finally:
                self.plan.pop("mprotect", None)

    descriptors = descriptors_of_code()
    device.code_arena.port = Refusing(LinuxPort(), {})
    program = device.load(objects[6], "store")
    assert device.code_arena.chunks == []
    assert descriptors_of_code() == descriptors
    assert rights_at(program.entry) == "r-xp"
    assert stored(device, program, 2) == 62
    device.close()


@pytest.mark.parametrize("size_bytes", [0, 5000])
def test_a_limit_on_the_size_of_files_is_none_on_kernels(objects: list[bytes], size_bytes: int) -> None:
    device = CpuDevice("CPU", LinuxPort())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    first = device.load(objects[1], "store")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        second = device.load(objects[2], "store")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (stored(device, first), stored(device, second)) == (10, 20)
    device.close()


def test_an_object_that_is_refused_leaves_no_slot_behind(own: CpuDevice, objects: list[bytes]) -> None:
    with pytest.raises(UsageError, match="no function 'other'"):
        own.load(objects[0], "other")
    (chunk,) = own.code_arena.chunks
    assert chunk.is_empty


def test_parts_that_come_and_go_leave_a_whole() -> None:
    rng = random.Random(3)
    area = arenas._Area(0, 1 << 16)
    taken: list[tuple[int, int]] = []
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            area.give_back(taken.pop(rng.randrange(len(taken))))
        elif (part := area.take(rng.randrange(3000))) is not None:
            assert part[0] % ALIGNMENT == 0
            assert all(part[1] <= start or end <= part[0] for start, end in taken)
            taken.append(part)
        assert all(before[1] < after[0] for before, after in zip(area.free, area.free[1:]))
    for part in taken:
        area.give_back(part)
    assert area.is_whole


def test_a_process_that_ends_with_programs_alive_says_nothing() -> None:
    script = """
import hcq, sys
from tests.hcq.cpu.test_arena import adder
sys.program = hcq.open("CPU").load(adder(1), "store")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert hcq.open("CPU") is not None
