"""What a supervised program asks of the emulated KFD, from its own threads and processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.hcq.emu.supervisor.conftest import Program

GPU = """
    class Gpu:
        def __init__(self):
            self.fd = port.open("/dev/kfd")
            self.drm = port.open("/dev/dri/renderD128")
            self.id = int(port.read_file("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id"))
            self.call(kfd.ACQUIRE_VM, drm_fd=self.drm, gpu_id=self.id)
        def call(self, what, **fields):
            return call(port, self.fd, what, **fields)  # again after EINTR, as libhsakmt does
        def alloc(self, size, va=0x7E0000000000):
            flags = kfd.AllocFlags.VRAM | kfd.AllocFlags.WRITABLE | kfd.AllocFlags.PUBLIC
            return self.call(kfd.ALLOC_MEMORY_OF_GPU, va_addr=va, size=size, gpu_id=self.id, flags=flags)
        def available(self):
            return self.call(kfd.AVAILABLE_MEMORY, gpu_id=self.id).available
        def event(self):
            page = self.call(kfd.ALLOC_MEMORY_OF_GPU, va_addr=0x7D0000000000, size=1 << 15, gpu_id=self.id,
                             flags=kfd.AllocFlags.GTT | kfd.AllocFlags.WRITABLE)
            return self.call(kfd.CREATE_EVENT, event_page_offset=page.handle, auto_reset=1).event_id
        def wait(self, event, timeout_ms):
            import array
            words = array.array("I", [0] * kfd.EventData.length_words)
            memoryview(words).cast("B")[kfd.EventData.event_id.byte_offset :][:4] = event.to_bytes(4, "little")
            return self.call(kfd.WAIT_EVENTS, events_ptr=words.buffer_info()[0], num_events=1,
                             wait_for_all=1, timeout=timeout_ms).wait_result
    def refuses(number, act):
        try:
            act()
        except (DriverError, OSError) as error:
            assert error.errno == number, error
        else:
            raise AssertionError("it was answered")
"""


def passes(emulate: Program, program: str, words: str = "amd:gfx1100") -> str:
    done = emulate(GPU.replace("\n    ", "\n") + "\n" + _flat(program), words)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr, done.stderr
    return done.stdout


def _flat(program: str) -> str:
    import textwrap

    return textwrap.dedent(program)


def test_our_own_driver_runs_on_it_from_another_process(emulate: Program) -> None:
    out = passes(
        emulate,
        """
        import hcq
        device = hcq.open("AMD")
        data = device.alloc(1 << 16)
        device.queue().fill(data, 7).submit().wait()
        print(device.arch, set(data.read()))
        device.close()
        """,
        "amd:gfx942",
    )
    assert out == "gfx942 {7}\n"


def test_memory_of_the_gpu_is_mapped_by_the_program_itself(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        before = gpu.available()
        one, two = gpu.alloc(1 << 20), gpu.alloc(1 << 20, 0x7E0000100000)
        assert gpu.available() == before - (2 << 20)
        pages = [mmap.mmap(gpu.drm, 1 << 20, offset=each.mmap_offset) for each in (one, two)]
        pages[0][:4] = b"data"
        again = mmap.mmap(gpu.drm, 1 << 20, offset=one.mmap_offset)
        assert (again[:4], pages[1][:4]) == (b"data", bytes(4))
        """,
    )


def test_the_kernels_own_page_of_events_is_mapped_by_the_program_itself(emulate: Program) -> None:
    done = emulate(
        """
        fd = os.open("/dev/kfd", os.O_RDWR | os.O_CLOEXEC)
        made = [call(port, fd, kfd.CREATE_EVENT, event_type=kfd.EventType.SIGNAL) for _ in range(300)]
        assert [one.event_slot_index for one in made] == list(range(1, 301))
        offset = made[0].event_page_offset
        assert offset
        slots = mmap.mmap(fd, kfd.EVENT_PAGE_BYTES, offset=offset)
        assert slots[:] == b"\\xff" * kfd.EVENT_PAGE_BYTES
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pointer_to_nothing_is_efault(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        refuses(errno.EFAULT, lambda: gpu.call(kfd.WAIT_EVENTS, events_ptr=0x1000, num_events=1, timeout=0))
        refuses(errno.EFAULT, lambda: fcntl.ioctl(gpu.fd, 0x80084B01, 4096))
        assert fcntl.ioctl(gpu.fd, 0x80084B01, bytes(8))[:4] == (1).to_bytes(4, "little")
        """,
    )


def test_a_thread_that_waits_blocks_nobody_and_is_woken(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        event = gpu.event()
        results = []
        threads = [threading.Thread(target=lambda: results.append(gpu.wait(event, 60000))) for _ in range(9)]
        for one in threads:
            one.start()
        time.sleep(0.1)
        while len(results) < 9:  # it resets itself, and may wake one alone
            gpu.call(kfd.SET_EVENT, event_id=event)
            os.stat("/dev/kfd")
            time.sleep(0.002)
        assert results == [kfd.WaitResult.COMPLETE] * 9, results
        """,
    )


def test_a_signal_interrupts_a_wait(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        event = gpu.event()
        class Stop(Exception):
            pass
        def interrupt(*_):
            raise Stop
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            gpu.wait(event, 600000)
        except Stop:
            pass
        assert gpu.wait(event, 1) == kfd.WaitResult.TIMEOUT
        """,
    )


def test_a_call_that_a_signal_interrupts_is_done_once(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        before = gpu.available()
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
        made = [gpu.alloc(4096, 0x7E0000000000 + 4096 * at) for at in range(200)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len({one.handle for one in made}) == 200
        assert gpu.available() == before - 200 * 4096, (before - gpu.available()) / 4096
        """,
    )


def test_a_child_of_fork_must_open_its_own_and_has_a_memory_of_its_own(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        handle = gpu.alloc(4096).handle
        pid = os.fork()
        if not pid:
            try:
                refuses(errno.EBADF, lambda: gpu.alloc(4096))
                mine = Gpu()
                refuses(errno.EINVAL, lambda: mine.call(kfd.FREE_MEMORY_OF_GPU, handle=handle))
                mine.alloc(4096)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        gpu.call(kfd.FREE_MEMORY_OF_GPU, handle=handle)
        """,
    )


def test_memory_is_shared_with_another_process_by_a_descriptor(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        made = gpu.alloc(8192)
        shared = gpu.call(kfd.EXPORT_DMABUF, handle=made.handle, flags=0).dmabuf_fd
        before = gpu.call(kfd.GET_DMABUF_INFO, dmabuf_fd=shared)
        assert (before.size, before.gpu_id) == (8192, gpu.id)
        assert os.lseek(shared, 0, os.SEEK_END) == 8192  # how programs ask how long it is
        refuses(errno.EACCES, lambda: mmap.mmap(shared, 8192))
        refuses(errno.EBADF, lambda: gpu.call(kfd.GET_DMABUF_INFO, dmabuf_fd=999))
        pid = os.fork()
        if not pid:
            try:
                mine = Gpu()
                found = mine.call(kfd.IMPORT_DMABUF, gpu_id=mine.id, dmabuf_fd=os.dup(shared), va_addr=1 << 32)
                mine.call(kfd.FREE_MEMORY_OF_GPU, handle=found.handle)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        """,
    )


def test_a_process_that_is_killed_gives_everything_back(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        before = gpu.available()
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            mine = Gpu()
            mine.alloc(1 << 30)
            os.write(theirs, b"x")
            mine.wait(mine.event(), 600000)
        os.read(ours, 1)
        assert gpu.available() == before - (1 << 30)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        end = time.monotonic() + 60
        while gpu.available() != before:
            assert time.monotonic() < end
            time.sleep(0.01)
        """,
    )


def test_a_process_that_executes_another_program_gives_everything_back(emulate: Program) -> None:
    passes(
        emulate,
        """
        if len(sys.argv) == 1:
            gpu = Gpu()
            before = gpu.available()
            gpu.alloc(1 << 30)
            command = open("/proc/self/cmdline").read().split(chr(0))
            os.execv(sys.executable, [sys.executable, "-c", command[2], str(before)])
        assert Gpu().available() == int(sys.argv[1])
        """,
    )


def test_two_programs_share_a_gpu(emulate: Program) -> None:
    out = passes(
        emulate,
        """
        import subprocess
        program = '''
        import hcq
        device = hcq.open("AMD")
        data = device.alloc(1 << 16)
        for value in range(20):
            device.queue().fill(data, value).submit().wait()
            assert set(data.read()) == {value}
        device.close()
        print("right")
        '''.replace("\\n        ", "\\n")
        both = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
        assert [one.wait() for one in both] == [0, 0]
        """,
    )
    assert out == "right\nright\n"


def test_ctrl_c_interrupts_a_wait_and_the_program_decides(start: Callable[[str], object]) -> None:
    program = GPU.replace("\n    ", "\n") + _flat(
        """
        gpu = Gpu()
        event = gpu.event()
        print("ready", flush=True)
        try:
            gpu.wait(event, 600000)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    one = start(program)
    assert one.stdout.readline() == "ready\n"  # type: ignore[attr-defined]
    time.sleep(0.1)
    os.killpg(one.pid, signal.SIGINT)  # type: ignore[attr-defined]
    assert one.communicate(timeout=60)[0] == "interrupted\n"  # type: ignore[attr-defined]
    assert one.returncode == 0  # type: ignore[attr-defined]


def test_counts_and_sizes_that_nothing_backs_are_refused_before_memory_is_taken(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        def peak_mib():
            status = open(f"/proc/{os.getppid()}/status").read()
            return int(status.split("VmHWM:")[1].split()[0]) >> 10
        before = peak_mib()
        events = mmap.mmap(-1, 400 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        import ctypes
        at = ctypes.addressof(ctypes.c_char.from_buffer(events))
        for count in (2**32 - 1, len(events) // 24):
            refuses(errno.ENOMEM, lambda: gpu.call(kfd.WAIT_EVENTS, events_ptr=at, num_events=count, timeout=0))
        flags = {"GTT": kfd.AllocFlags.GTT, "VRAM": kfd.AllocFlags.VRAM, "USERPTR": kfd.AllocFlags.USERPTR}
        for flag in flags.values():
            for size in (1 << 44, 2**63, 2**64 - 1):
                refuses(errno.ENOMEM, lambda: gpu.call(
                    kfd.ALLOC_MEMORY_OF_GPU, va_addr=1 << 33, size=size, gpu_id=gpu.id, flags=flag,
                    mmap_offset=at & -4096))
        for number in (kfd.MAP_MEMORY_TO_GPU, kfd.UNMAP_MEMORY_FROM_GPU):
            refuses(errno.EINVAL, lambda: gpu.call(number, handle=1, device_ids_array_ptr=at, n_devices=2**32 - 1))
        refuses(errno.EINVAL, lambda: gpu.call(
            kfd.GET_PROCESS_APERTURES_NEW, kfd_process_device_apertures_ptr=at, num_of_nodes=2**32 - 1))
        refuses(errno.EFAULT, lambda: gpu.call(kfd.SET_CU_MASK, queue_id=1, num_cu_mask=2**32 - 32, cu_mask_ptr=at))
        assert peak_mib() - before < 100
        """,
    )


def test_memory_of_the_host_is_given_out_no_more_than_there_is(emulate: Program) -> None:
    passes(
        emulate,
        """
        gpu = Gpu()
        host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        half = host // 2 + 4096 & -4096
        ask = dict(va_addr=1 << 33, gpu_id=gpu.id, flags=kfd.AllocFlags.GTT, size=half)
        made = gpu.call(kfd.ALLOC_MEMORY_OF_GPU, **ask)
        refuses(errno.ENOMEM, lambda: gpu.call(kfd.ALLOC_MEMORY_OF_GPU, **ask))
        gpu.call(kfd.FREE_MEMORY_OF_GPU, handle=made.handle)
        gpu.call(kfd.ALLOC_MEMORY_OF_GPU, **ask)
        """,
    )
