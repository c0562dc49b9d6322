"""Record: run a command with tracing switched on.

In       a command and its arguments
Out      the command's exit status; 128 and the number of the signal that ended it
Changes  the file, which begins anew; whatever the command does
Next     hcq/observe/trace.py (what is written), show.py (reads it)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hcq import config
from hcq.errors import DriverError, UsageError
from hcq.observe.trace_paths import files_of, letters_of
from hcq.trace.records import MAGIC


def record(command: Sequence[str], output: str, with_data: bool) -> int:
    """Run a command and record what it submits.

    output     the trace file, or a pattern of trace_paths.py; traces that are there already are replaced
    with_data  also record contents of memory
    Raises     UsageError when the command cannot be started, or the file is something else than a trace
    """
    words = list(command[1:] if command[:1] == ["--"] else command)
    if not words:
        raise UsageError("give a command after --, as in: hcq-trace record -- python x.py")
    path = Path(output)
    pattern = str(path.absolute())
    letters = letters_of(pattern)
    if not letters:
        _make_room(path)
    # the ranks of this run have the names of those before; processes and hosts may be others
    elif letters == {"r"}:
        for old in files_of(pattern):
            _make_room(old)
    before = {one: one.stat().st_size for one in files_of(pattern)}
    environment = {**os.environ, "HCQ_TRACE": pattern + (",data" if with_data else "")}
    try:
        child = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise UsageError(f"{words[0]} cannot be started ({error.strerror}).") from None
    status = _wait(child)
    written = [one for one in files_of(pattern) if one.stat().st_size != before.get(one)]
    if not written:
        print(f"hcq-trace record: {words[0]} opened no hcq device; nothing was recorded", file=sys.stderr)
        return status if status >= 0 else 128 - status
    names = " ".join(str(one) if letters else output for one in written)
    if status < 0:
        name = signal.Signals(-status).name
        print(
            f"hcq-trace record: {words[0]} was ended by {name}; {names} holds what came before",
            file=sys.stderr,
        )
    elif sys.stderr.isatty():
        size = sum(one.stat().st_size for one in written) / 1e6
        print(
            f"hcq-trace record: {names}, {size:.1f} MB; look at it: hcq-trace show {names} --last 3",
            file=sys.stderr,
        )
    return status if status >= 0 else 128 - status


def record_foreign(command: Sequence[str], output: str) -> int:
    """Run a command that is none of ours and record what it asks of a GPU's kernel driver and submits there, by ptrace.

    Where AMD's and NVIDIA's are both there, AMD's is looked at, unless HCQ_DEVICE names NV.
    Raises  UsageError where it cannot be traced, or there is no GPU
    """
    from hcq.observe.foreign.session import Session
    from hcq.tools.trace.tracer import filter
    from hcq.tools.trace.tracer.kfd import KfdProcess
    from hcq.tools.trace.tracer.process import TracedProcess
    from hcq.tools.trace.tracer.rm import RmProcess
    from hcq.tools.trace.tracer.tracer import Tracer

    words = list(command[1:] if command[:1] == ["--"] else command)
    if not words:
        raise UsageError("give a command after --, as in: hcq-trace record --foreign -- ./a_hip_program")
    amd = _amd_gpus()
    is_nvidia = not amd or config.current().device.startswith("NV")
    gpus = _nvidia_gpus() if is_nvidia else amd
    process_of: type[TracedProcess] = RmProcess if is_nvidia else KfdProcess
    if not gpus:
        raise UsageError(
            "record --foreign: neither /sys/devices/virtual/kfd nor /dev/nvidiactl shows a GPU. Programs of this"
            " package record themselves anywhere: leave --foreign out."
        )
    path = Path(output)
    _make_room(path)
    settings = replace(config.current(), trace=str(path.absolute()), report=frozenset({"off"}))
    session = Session(settings)
    session.offers(process_of.kind, gpus)
    tracer = Tracer(session, filter.is_filtered(), process_of)
    try:
        status = tracer.run(words)
    finally:
        session.close()
    if not path.exists():
        print(f"hcq-trace record: {words[0]} used no GPU; nothing was recorded", file=sys.stderr)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _amd_gpus() -> dict[int, str]:
    """What names each GPU in calls of the KFD, and its architecture."""
    found = {}
    for folder in sorted(
        Path("/sys/devices/virtual/kfd/kfd/topology/nodes").glob("*"), key=lambda at: at.name
    ):
        try:
            gpu_id = int((folder / "gpu_id").read_text())
            rows = (line.split() for line in (folder / "properties").read_text().splitlines())
            version = next((int(row[1]) for row in rows if row[:1] == ["gfx_target_version"]), 0)
        except (OSError, ValueError):
            continue
        if gpu_id:
            found[gpu_id] = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return found


def _nvidia_gpus() -> dict[int, str]:
    """The device instance of each GPU that can be opened, and its architecture."""
    from hcq.nv.abi.controls import ControlId
    from hcq.nv.gpu import Gpu
    from hcq.nv.process import NvProcess
    from hcq.system.port import LinuxPort

    port, process = LinuxPort(), NvProcess()
    found: dict[int, str] = {}
    files: list[int] = []
    try:
        cards = process.cards(port)
        rm = process.client(port)
        files.append(rm.ctl_fd)
        for card in cards:
            try:
                fd = port.open(f"/dev/nvidia{card.values['minor_number']}")
                files.append(fd)
                gpu = Gpu(process, card, fd)
                gpu.attach(port)
                gpu.make_device(rm)
                gpu.pick_classes(rm)
            except DriverError:
                continue  # not given to this container or user, or none that is known
            said = rm.control(rm.client, ControlId.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, gpuid=gpu.gpu_id)
            found[int(said.values["deviceinstance"])] = gpu.chip.arch
    except DriverError:
        return found
    finally:
        for fd in files:
            port.close(fd)
    return found


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the command. Ctrl-C reaches it, too, and what it means is for it to say."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def _make_room(path: Path) -> None:
    """Remove an old trace; anything else is somebody's file."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
        if start and not start.startswith(MAGIC.split()[0]):
            raise UsageError(
                f"record: {path} is no trace, and recording would replace it. Name another file with -o."
            )
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}). Name another file with -o."
        ) from None
