"""The host: files and commands that say which machine this is, gathered without a driver of ours.

In       the vendor's lists of files, folders and commands
Out      the folder host/ with one file for each; figures with what matters most
Changes  nothing; opening a vendor's tool may start the GPU, as it does for everybody
Next     nv/host.py, amd/host.py (what is looked at), hcq/doctor/host.py (what the doctor makes of the same files)

Nothing about users is kept: no environment beyond the switches of drivers, no list of processes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from hcq.doctor.check import Failure, Found
from hcq.doctor.host import LinuxHost, facts_of
from hcq.tools.hw.bench import Bench
from hcq.tools.hw.plan import of_vendor
from hcq.tools.hw.sources import Sources

COMMAND_S = 10.0
FILE_BYTES = 256 << 10
FOLDER_FILES = 2_000
SWITCHES = re.compile(r"^(HCQ|CUDA|NVIDIA|ROCR|HSA|HIP|AMD|GPU|LD)_")
PACKAGES = ("cffi", "numpy", "llvmlite", "capstone", "pyelftools", "ioctl-opt", "nvidia-cuda-nvrtc", "torch")


COMMON = Sources(
    files=(
        "/proc/version", "/proc/cmdline", "/proc/cpuinfo", "/proc/meminfo", "/proc/devices", "/proc/modules",
        "/proc/self/limits", "/proc/self/status", "/proc/interrupts", "/etc/os-release",
        "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/kernel/dmesg_restrict",
        "/proc/sys/vm/max_map_count", "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    commands={"lspci": ("lspci", "-nnvv"), "dmesg": ("dmesg",), "numa": ("numactl", "--hardware")},
)  # fmt: skip


def host(bench: Bench) -> Found:
    """The machine: kernel, driver, device files, PCI, what the vendor's tools say."""
    kept = _files(bench, COMMON) + _files(
        bench, of_vendor(bench.kind, "host").SOURCES if bench.kind else Sources()
    )
    facts = asdict(facts_of(LinuxHost()))
    facts = {name: facts[name] for name in ("capabilities", "container", "kernel", "is_wsl", "is_filtered", "memlock",
                                            "is_selinux_enforcing", "memory_bytes")}  # fmt: skip
    nodes = list(device_files())
    gpus = list(pci_gpus())
    bench.write("host/gpus.json", gpus)
    bench.write("host/nodes.json", nodes)
    bench.write(
        "host/python.json",
        {"python": sys.version, "packages": dict(_packages()), "machine": platform.machine()},
    )
    bench.write(
        "host/switches.json", {name: value for name, value in os.environ.items() if SWITCHES.match(name)}
    )
    bench.write("host/facts.json", facts)
    shown = (
        ", ".join(f"{gpu['vendor']}:{gpu['device']} at {gpu['address']}" for gpu in gpus)
        or "no GPU on the PCI bus"
    )
    text = f"Linux {facts['kernel']}{' in ' + facts['container'] if facts['container'] else ''}; {shown}; {kept} files"
    return Found(
        text, {"kernel": str(facts["kernel"]), "gpus": len(gpus), "nodes": len(nodes), "files": kept}
    )


def facts(bench: Bench) -> Found:
    """What the kernel driver says of the GPU when it is asked without a channel: every call by itself."""
    found: dict[str, Any] = {}
    try:
        of_vendor(bench.kind, "host").ask(bench.port, bench.name, found)
    finally:  # what was learned before something went wrong is kept
        bench.write("facts.json", found)
    wrong = [
        name for name, value in found.items() if isinstance(value, str) and value.startswith("refused: ")
    ]
    if len(wrong) == len(found):
        first = next(iter(found.values()), "nothing was asked")
        raise Failure(f"no call was answered: {first}", "python -m hcq doctor  # what is in the way")
    text = f"{len(found) - len(wrong)} of {len(found)} questions answered"
    return Found(
        text + (f"; refused: {', '.join(wrong)}" if wrong else ""),
        {"asked": len(found), "refused": len(wrong)},
    )


# ------------------------------------------------------------ files and commands


def _files(bench: Bench, sources: Sources) -> int:
    kept = 0
    for path in sources.files:
        kept += _keep(bench, Path(path))
    for folder in sources.folders:
        for found in itertools.islice(_walk(Path(folder)), FOLDER_FILES):
            kept += _keep(bench, found)
    for name, command in sources.commands.items():
        bench.write(f"host/{name}.txt", _output(command, sources.drop.get(name, "")))
        kept += 1
    return kept


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root) / name for name in sorted(names))


def _keep(bench: Bench, path: Path) -> int:
    """A copy below host/, under its own path. What cannot be read is left out."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES)
    except (OSError, ValueError):
        return 0
    bench.write(f"host{path}", data)
    return 1


def _output(command: Sequence[str], drop: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return f"{command[0]} is not installed\n"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}\n"
    text = done.stdout + done.stderr
    if drop:
        text = re.split(drop, text, maxsplit=1, flags=re.MULTILINE)[0]
    return text[:FILE_BYTES]


def device_files() -> Iterator[dict[str, Any]]:
    """Nodes of GPUs, and whether their numbers are those that the kernel gave the driver."""
    majors = _majors()
    for folder in ("/dev", "/dev/dri", "/dev/nvidia-caps"):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if not re.match(r"nvidia|kfd|card\d|renderD\d", name):
                    continue
                path = f"{folder}/{name}"
                seen = os.stat(path)
                major, minor = os.major(seen.st_rdev), os.minor(seen.st_rdev)
                may = os.access(path, os.R_OK | os.W_OK)
                yield {"path": path, "mode": oct(seen.st_mode), "gid": seen.st_gid, "major": major, "minor": minor,
                       "driver": majors.get(major, "nobody"), "may_open": may}  # fmt: skip


def _majors() -> dict[int, str]:
    """Numbers of character devices, as the kernel gave them out."""
    found = {}
    with contextlib.suppress(OSError):
        text = Path("/proc/devices").read_text().partition("Block devices")[0]
        for number, name in re.findall(r"^\s*(\d+) (\S+)$", text, re.MULTILINE):
            found[int(number)] = name
    return found


def pci_gpus() -> Iterator[dict[str, Any]]:
    """GPUs on the bus: ids, driver, link, and the sizes of their windows (BAR1 is what the host sees of the memory)."""
    with contextlib.suppress(OSError):
        for device in sorted(Path("/sys/bus/pci/devices").iterdir()):
            kind = _text(device / "class")
            if kind[:4] not in ("0x03", "0x12"):
                continue
            names = ("vendor", "device", "subsystem_vendor", "subsystem_device", "revision", "numa_node",
                     "current_link_speed", "current_link_width", "max_link_speed",
                     "max_link_width", "power_state")  # fmt: skip
            windows = [line.split() for line in _text(device / "resource").splitlines()]
            driver = device / "driver"
            yield {
                "address": device.name,
                **{name: _text(device / name) for name in names},
                "driver": driver.resolve().name if driver.exists() else "",
                "windows": [
                    int(last, 16) - int(first, 16) + 1 for first, last, _ in windows if int(last, 16)
                ],
            }


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _packages() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"
