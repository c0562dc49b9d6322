"""Programs that know nothing of emulation call NVIDIA's kernel driver: our own driver, and raw calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcq.observe.lint import lint
from hcq.trace.file import Trace
from tests.hcq.emu.supervisor.conftest import Program

RAW = """
    from hcq.nv.abi import ioctls as calls
    from hcq.nv.ioctl import call
    from hcq.nv.abi.status import NvStatus
    from hcq.nv.memory import Place
    from hcq.nv.process import CTL_NODE
    import hcq
    def refused(status, act):
        try:
            act()
        except DriverError as error:
            assert error.status == status, error
        else:
            raise AssertionError("it was answered")
"""


def run(emulate: Program, program: str, words: str = "nv:sm_89") -> str:
    done = emulate(RAW.replace("\n    ", "\n") + "\n" + program.replace("\n        ", "\n"), words)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_our_own_driver_copies_and_launches_from_another_process(emulate: Program) -> None:
    out = run(
        emulate,
        """
        device = hcq.open("NV")
        data = device.alloc(1 << 16)
        device.queue().fill(data, 7).submit().wait()
        print(device.arch, set(data.read()))
        print((hcq.Tensor([1.0, 2.0, 3.0], device="NV") + 2).tolist())
        """,
    )
    assert out == "sm_89 {7}\n[3.0, 4.0, 5.0]\n"


def test_two_gpus_and_two_processes_are_apart(emulate: Program) -> None:
    out = run(
        emulate,
        """
        child = os.fork()
        devices = [hcq.open(name) for name in ("NV", "NV:1")]
        for number, device in enumerate(devices):
            data = device.alloc(1 << 16)
            device.queue().fill(data, number + (3 if child else 5)).submit().wait()
            assert set(data.read()) == {number + (3 if child else 5)}
        for device in devices:
            device.close()
        if child:
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            print("both")
        """,
        "nv:sm_86,nv:sm_90",
    )
    assert out == "both\n"


def test_a_mapping_is_of_the_memory_that_the_descriptor_was_prepared_for(emulate: Program) -> None:
    """Each descriptor one, prepared once; which it is stays so when the memory's other mappings go."""
    run(
        emulate,
        """
        device = hcq.open("NV")
        memory = device.gpu_memory
        rm, handles = memory.rm, [memory._make(1 << 17, Place.SYSTEM, 4096) for _ in range(3)]
        def prepare(fd, handle, offset=0):
            call(rm.abi, port, rm.ctl_fd, calls.RM_MAP_MEMORY, hclient=rm.client, hdevice=memory.device, hmemory=handle,
                    offset=offset, length=1 << 16, fd=fd)
        files = [os.open(CTL_NODE, os.O_RDWR) for _ in handles]
        for fd, handle in zip(files, handles):
            prepare(fd, handle)
            refused(NvStatus.NV_ERR_STATE_IN_USE, lambda: prepare(fd, handle))
        maps = [mmap.mmap(fd, 1 << 16) for fd in files]
        for number, one in enumerate(maps):
            one[:4] = bytes([number] * 4)
        fresh = os.open(CTL_NODE, os.O_RDWR)
        prepare(fresh, handles[1])
        assert mmap.mmap(fresh, 1 << 16)[:4] == bytes([1] * 4)
        assert [one[0] for one in maps] == [0, 1, 2]
        assert os.fstat(files[0]).st_rdev == os.stat(CTL_NODE).st_rdev  # it is still the node
        assert not os.get_inheritable(files[0])
        refused(NvStatus.NV_ERR_NOT_SUPPORTED, lambda: prepare(os.open(CTL_NODE, os.O_RDWR), handles[2], 4096))
        """,
    )


@pytest.mark.thorough
def test_a_program_may_have_more_allocations_than_a_process_has_descriptors(emulate: Program) -> None:
    run(
        emulate,
        """
        device = hcq.open("NV")
        memory = device.gpu_memory
        for one in [memory.alloc(4096, Place.SYSTEM) for _ in range(300)]:
            memory.free(one)
        held = [memory.alloc(4096, Place.SYSTEM) for _ in range(1100)]
        """,
    )


def test_its_launches_are_traced_and_judged_with_names_and_arguments(
    emulate: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(path))
    monkeypatch.setenv("HCQ_VALIDATE", "1")
    out = run(
        emulate,
        """
        print((hcq.Tensor([1.0, 2.0, 3.0], device="NV") + 2).tolist())
        """,
    )
    assert out == "[3.0, 4.0, 5.0]\n"  # and nothing that breaks a rule
    trace = Trace.read(str(path))
    launches = [one for made in trace.submissions for one in made.all_commands() if one["verb"] == "dispatch"]
    assert [len(one["args"]) for one in launches] == [2]
    assert launches[0]["kernel"] in [code.name for code in trace.code]
    assert all(made.finished_ns for made in trace.submissions)
    assert not lint(trace)


def test_a_fault_is_reported_with_kernel_and_argument_and_logged_with_the_programs_number(
    emulate: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(path))
    monkeypatch.setenv("HCQ_VALIDATE", "1")
    monkeypatch.setenv("HCQ_REPORT_DIR", str(tmp_path))
    done = emulate(
        """
        import hcq
        from tests.hcq.nv.kernels import image
        print(os.getpid(), flush=True)
        open("/proc/self/comm", "w").write("a culprit")
        device = hcq.open("NV")
        program = device.load(image(device.arch), "scale")
        try:
            device.run(program, [0xDEAD_0000, device.alloc(1024), 64, 1.0, 0.0], block=(64, 1, 1))
        except hcq.DeviceFault as fault:
            assert "0xdead0000" in str(fault), fault
            print("faulted")
        """,
        "nv:sm_89",
    )
    assert done.stdout.endswith("faulted\n"), done.stderr
    number = done.stdout.split()[0]
    page = done.stderr.partition("---- hcq report: page fault")[2]
    assert "kernel    scale\n" in page and "Xid 31" in page, done.stderr
    assert "argument  0 is 0xdead0000 (not mapped): the very address" in page
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("  NVRM: Xid")]
    assert f" pid={number}, name=a culprit, Ch " in line  # and not the supervisor
    trace = Trace.read(str(path))
    (fault,) = trace.faults
    assert "scale" in trace.submissions[fault.fields["first"] - 1].kernels
    assert {one.rule for one in lint(trace) if one.level == "error"} == {"recorded-fault"}
